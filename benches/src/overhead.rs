//! What the platform adds: from `trainyard run` to the first line that the script prints, over the bare program.

use crate::peer::Peer;
use crate::{Figure, Setting};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

const RUNS: usize = 11;

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("hello.py");
    std::fs::write(&script, "print('hello', flush=True)\n")?;
    let peer = Peer::trainyard(&setting.trainyard, &[])?;
    let home = peer.kubeconfig.parent().context("the kubeconfig lies in the home")?;
    let mut figures = Vec::new();
    for (name, runtime, bare) in [
        ("run to first line, python", "jax-distributed", &["python3"][..]),
        ("run to first line, torchrun", "torch-distributed", &["torchrun", "--nproc-per-node", "1"][..]),
    ] {
        if Command::new(bare[0]).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
            && Command::new(bare[0]).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        {
            eprintln!("no {} on PATH: {name} is left out", bare[0]);
            continue;
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let mut command = Command::new(&setting.trainyard);
            command.args(["run", "--home"]).arg(home).args(["--runtime", runtime]).arg(&script);
            with.push(first_line(command)?);
            let mut command = Command::new(bare[0]);
            command.args(&bare[1..]).arg(&script);
            without.push(first_line(command)?);
        }
        with.sort_by(f64::total_cmp);
        without.sort_by(f64::total_cmp);
        let (with, without) = (with[RUNS / 2], without[RUNS / 2]);
        eprintln!("{name}: {with:.1} ms, bare {without:.1} ms, added {:.1} ms", with - without);
        figures.push(Figure {
            name,
            unit: "ms (median)",
            ours: with,
            peer: Some(without),
            against: "the bare program",
            more_is_better: false,
        });
    }
    Ok(figures)
}

/// Milliseconds until a line of the command's stdout says hello.
fn first_line(mut command: Command) -> Result<f64> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut elapsed = None;
    for line in BufReader::new(stdout).lines() {
        if line?.contains("hello") && elapsed.is_none() {
            elapsed = Some(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    child.wait()?;
    elapsed.context("the script's line did not come")
}
