//! What choosing machines costs: one task, and a chain of 50, among price lists as long as the real ones of AWS and Google Cloud; one core, no I/O.

use crate::overhead::median;
use crate::{Figure, Setting};
use anyhow::{Context, Result, bail, ensure};
use placement::place::{Task, USUAL_SECONDS};
use placement::{Amount, Catalogue, Cloud, Market, Request, Rules, Target, place};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 101;
const CHAIN: usize = 50;
/// Rows of both lists.
const ROWS: usize = 30_000;
const GPUS: [(&str, f64); 8] = [
    ("V100", 16.0),
    ("A100", 40.0),
    ("A100-80GB", 80.0),
    ("T4", 16.0),
    ("L4", 24.0),
    ("H100", 80.0),
    ("A10G", 24.0),
    ("K80", 12.0),
];

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let rounds = ROUNDS.div_euclid(setting.shrink).max(3);
    let texts = [("aws", list(ROWS / 2, "m6i.", 7)), ("gcp", list(ROWS / 2, "n2-standard-", 11))];
    let read = || -> Result<Catalogue> {
        let mut catalogue = Catalogue::default();
        for (cloud, text) in &texts {
            catalogue.add(cloud, "vms.csv", text).with_context(|| format!("the list of {cloud}"))?;
        }
        Ok(catalogue)
    };
    let catalogue = read()?;
    let clouds = [Cloud::Aws, Cloud::Gcp];
    let rows: usize = clouds.iter().map(|cloud| catalogue.offers(*cloud).len()).sum();
    ensure!(rows == ROWS, "{rows} rows");
    let market = Market { catalogue: &catalogue, enabled: &clouds, nodes: &[], blocked: &[], rules: Rules::default() };
    let request = |at: usize| match at % 3 {
        0 => Request { accelerator: Some((GPUS[at % GPUS.len()].0.to_owned(), 4.0)), ..Request::default() },
        1 => Request { cpus: Some(Amount::AtLeast(8.0)), use_spot: true, ..Request::default() },
        _ => Request { memory: Some(Amount::AtLeast(32.0 + at as f64)), ..Request::default() },
    };
    let task = |at: usize| {
        let parents = at.checked_sub(1).into_iter().collect();
        Task { requests: vec![(request(at), USUAL_SECONDS)], nodes: 1, parents, outputs: 100.0, ..Task::default() }
    };
    let chain: Vec<Task> = (0..CHAIN).map(task).collect();
    let timed = |tasks: &[Task]| -> Result<f64> {
        let mut took = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            let plan = place(black_box(tasks), &market, Target::Cost);
            took.push(start.elapsed().as_secs_f64() * 1e3);
            if let Err(error) = plan {
                bail!("no plan: {error}");
            }
        }
        Ok(median(took))
    };
    let reading = {
        let start = Instant::now();
        black_box(read()?);
        start.elapsed().as_secs_f64() * 1e3
    };
    let figure =
        |name, ours| Figure { name, unit: "ms (median)", ours, peer: None, against: "none", more_is_better: false };
    Ok(vec![
        figure("a task placed, 30,000 rows", timed(chain.get(..1).context("a chain")?)?),
        figure("a chain of 50 placed, 30,000 rows", timed(&chain)?),
        figure("30,000 rows read", reading),
    ])
}

/// A price list with so many rows: types of all sizes, two in three of them with accelerators, in 30 regions of three zones. `plain` begins the
/// name of those without: a cloud's usual family.
fn list(rows: usize, plain: &str, seed: usize) -> String {
    let mut out = String::from(
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n",
    );
    for at in 0..rows {
        let (kind, place) = (at / 90, at % 90);
        let (name, memory) = GPUS[kind % GPUS.len()];
        let count = [1, 2, 4, 8][kind / GPUS.len() % 4];
        let cpus = [2, 4, 8, 16, 32, 64, 96][kind % 7];
        let price = 0.05 * f64::from(cpus) + ((kind * seed + place) % 97) as f64 / 100.0;
        let (accelerator, counted, info) = match kind % 3 {
            0 => (String::new(), String::new(), String::new()),
            _ => (
                name.to_owned(),
                count.to_string(),
                format!("\"{{'Gpus': [{{'MemoryInfo': {{'SizeInMiB': {}}}}}]}}\"", memory * 1024.0),
            ),
        };
        let family = if accelerator.is_empty() { plain } else { "gpu." };
        let (region, zone) = (place / 3, ["a", "b", "c"][place % 3]);
        let _ = writeln!(
            out,
            "{family}{kind}x{cpus},{accelerator},{counted},{cpus},{},{info},{price:.4},{:.4},region-{region},region-{region}{zone}",
            cpus * 4,
            price * 0.3
        );
    }
    out
}
