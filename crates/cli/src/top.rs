//! `top`: what jobs use at present, by rank.

#![allow(clippy::arithmetic_side_effects, reason = "floats, and counts of rows")]

use crate::exit;
use crate::output;
use crate::terminal;
use api::job_kind::JobKind;
use api::mpi::names::LABEL_JOB_NAME;
use api::trainer::names::LABEL_JOBSET_NAME;
use client::{ClientError, Cluster};
use facts::Subject;
use facts::usage::{Row, Used, of_pods};
use grammar::{Format, TopArgs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

/// `trainyard top`.
pub(crate) async fn top(cluster: &Cluster, args: &TopArgs) -> Result<u8, ClientError> {
    let job = subject(cluster, args).await?;
    match args.output.output {
        format @ (Format::Json | Format::Yaml) => {
            output::print(&as_json(&read(cluster, job.as_ref()).await?), format);
        }
        Format::Name => {
            read(cluster, job.as_ref()).await?.iter().for_each(|row| println!("pod/{}", row.pod));
        }
        Format::Table | Format::Wide if args.once || !std::io::stdout().is_terminal() => {
            let rows = read(cluster, job.as_ref()).await?;
            if rows.is_empty() {
                eprintln!("{}", nothing(cluster, job.as_ref()));
            } else {
                lines(&rows, args).iter().for_each(|line| println!("{line}"));
            }
        }
        Format::Table | Format::Wide => return live(cluster, args).await,
    }
    Ok(exit::OK)
}

/// Shows it again and again, until Ctrl-C or the job's end.
async fn live(cluster: &Cluster, args: &TopArgs) -> Result<u8, ClientError> {
    let mut drawn = 0;
    loop {
        let job = subject(cluster, args).await?;
        let rows = read(cluster, job.as_ref()).await?;
        let mut shown = lines(&rows, args);
        if rows.is_empty() {
            shown = vec![nothing(cluster, job.as_ref())];
        }
        draw(&shown, &mut drawn);
        if let Some(job) = job.filter(Subject::is_finished) {
            eprintln!("{} is {}", job.title(), job.state());
            return Ok(exit::OK);
        }
        tokio::select! {
            () = tokio::time::sleep(args.interval) => {}
            _ = tokio::signal::ctrl_c() => return Ok(exit::OK),
        }
    }
}

/// Writes lines over those that were drawn last, cut to the terminal.
pub(crate) fn draw(lines: &[String], drawn: &mut usize) {
    let (columns, rows) = terminal::size().map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()));
    let mut text = if *drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
    let shown: Vec<&String> = lines.iter().take(usize::max(rows, 2) - 1).collect();
    for line in &shown {
        let cut: String = line.chars().take(columns).collect();
        text += &format!("\r{cut}\x1b[K\n");
    }
    text += "\x1b[J";
    *drawn = shown.len();
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush()); // a terminal that is gone shows nothing
}

/// What is said where there is nothing to show.
fn nothing(cluster: &Cluster, job: Option<&Subject>) -> String {
    match job {
        Some(job) => {
            let (title, state, name, flags) = (job.title(), job.state(), job.short_name(), &cluster.flags);
            format!("{title} is {state}, and none of its pods runs; more: trainyard describe {name}{flags}")
        }
        None => format!("no job runs in namespace {}; all jobs: trainyard get", cluster.namespace),
    }
}

/// The job that is asked for.
///
/// Errors: there is none of this name, or it is a search, which has no pods of its own.
async fn subject(cluster: &Cluster, args: &TopArgs) -> Result<Option<Subject>, ClientError> {
    let Some(name) = &args.job else { return Ok(None) };
    let subject = Subject::find(cluster, name).await?;
    match subject.kind {
        JobKind::Search => Err(subject.without_pods(cluster, "top").await),
        JobKind::Train | JobKind::Mpi => Ok(Some(subject)),
    }
}

/// The pods of one job, or of all jobs of all kinds.
async fn read(cluster: &Cluster, job: Option<&Subject>) -> Result<Vec<Row>, ClientError> {
    if let Some(labels) = job.and_then(Subject::pods) {
        return of_pods(cluster, &labels).await;
    }
    let (train, mpi) = tokio::try_join!(of_pods(cluster, LABEL_JOBSET_NAME), of_pods(cluster, LABEL_JOB_NAME))?;
    Ok(train.into_iter().chain(mpi).collect())
}

/// The table: of one job a line for each pod, of all jobs a line for each job.
fn lines(rows: &[Row], args: &TopArgs) -> Vec<String> {
    let has = |of: fn(&Used) -> Option<i64>| rows.iter().any(|row| of(&row.used).is_some());
    let (gpus, disks) = (has(|used| used.gpu_percent.or(used.gpu_memory_bytes)), has(|used| used.disk_read_bytes));
    let network = has(|used| used.network_sent_bytes);
    let amounts = |used: &Used| {
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut cells = vec![format!("{:.2}", used.cpus), bytes(used.memory_bytes)];
        if gpus {
            cells.push(dash(used.gpu_percent.map(|percent| format!("{percent}%"))));
            cells.push(dash(used.gpu_memory_bytes.map(bytes)));
        }
        if disks {
            cells.push(dash(used.disk_read_bytes.map(|b| bytes(b) + "/s")));
            cells.push(dash(used.disk_written_bytes.map(|b| bytes(b) + "/s")));
        }
        if network {
            cells.push(dash(used.network_sent_bytes.map(|b| bytes(b) + "/s")));
            cells.push(dash(used.network_received_bytes.map(|b| bytes(b) + "/s")));
        }
        cells
    };
    let mut header = vec!["CPUS", "MEMORY"];
    if gpus {
        header.extend(["GPU", "GPU-MEMORY"]);
    }
    if disks {
        header.extend(["DISK-READ", "DISK-WRITTEN"]);
    }
    if network {
        header.extend(["NET-SENT", "NET-RECEIVED"]);
    }
    if args.job.is_some() {
        let header: Vec<&str> = ["STEP", "RANKS"].into_iter().chain(header).chain(["POD", "NODE"]).collect();
        let cells = rows.iter().map(|row| {
            let ranks = if row.ranks.is_empty() {
                "-"
            } else {
                row.ranks.trim_start_matches("ranks ").trim_start_matches("rank ")
            };
            let mut cells = vec![row.step.clone(), ranks.to_owned()];
            cells.extend(amounts(&row.used));
            cells.extend([row.pod.clone(), row.node.clone()]);
            cells
        });
        return output::table_lines(&header, cells.collect());
    }
    let mut jobs: BTreeMap<&str, (usize, Used)> = BTreeMap::new();
    for row in rows {
        let (pods, used) = jobs.entry(&row.job).or_default();
        *pods += 1;
        used.add(row.used);
    }
    let header: Vec<&str> = ["JOB", "PODS"].into_iter().chain(header).collect();
    let cells = jobs.iter().map(|(job, (pods, used))| {
        let mut cells = vec![(*job).to_owned(), pods.to_string()];
        cells.extend(amounts(used));
        cells
    });
    output::table_lines(&header, cells.collect())
}

/// `999B`, `1.5Ki`, `153Mi`.
fn bytes(number: i64) -> String {
    const UNITS: [&str; 6] = ["B", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut amount, mut unit) = (number as f64, 0);
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount >= 10.0 {
        format!("{amount:.0}{}", UNITS[unit])
    } else {
        format!("{amount:.1}{}", UNITS[unit])
    }
}

fn as_json(rows: &[Row]) -> Value {
    let of = |row: &Row| {
        let Row { job, step, ranks, pod, node, used } = row;
        json!({
            "job": job, "step": step, "ranks": ranks, "pod": pod, "node": node,
            "cpus": used.cpus,
            "memoryBytes": used.memory_bytes,
            "gpuPercent": used.gpu_percent,
            "gpuMemoryBytes": used.gpu_memory_bytes,
            "diskReadBytesPerSecond": used.disk_read_bytes,
            "diskWrittenBytesPerSecond": used.disk_written_bytes,
            "networkSentBytesPerSecond": used.network_sent_bytes,
            "networkReceivedBytesPerSecond": used.network_received_bytes,
        })
    };
    rows.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::usage::rows;

    fn pod(job: &str, rank: i64) -> Value {
        json!({
            "metadata": {"name": format!("{job}-{rank}"), "labels": {
                LABEL_JOBSET_NAME: job,
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": rank.to_string(),
            }},
            "spec": {"nodeName": "n", "containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]},
        })
    }

    fn measured(names: &[&str], usage: &Value) -> Value {
        let item = |name: &&str| json!({"metadata": {"name": name}, "containers": [{"name": "c", "usage": usage}]});
        json!({"items": names.iter().map(item).collect::<Vec<_>>()})
    }

    fn args(job: Option<&str>) -> TopArgs {
        TopArgs {
            job: job.map(str::to_owned),
            once: true,
            interval: std::time::Duration::from_secs(2),
            output: grammar::Output::default(),
        }
    }

    #[test]
    fn ranks_are_in_order_and_jobs_are_sums() {
        let usage = json!({"cpu": "1500000000n", "memory": "2048Ki", "trainyard.dev/gpu-percent": "40",
            "trainyard.dev/gpu-memory": "1073741824"});
        let pods = [pod("b", 0), pod("a", 10), pod("a", 2), pod("gone", 0)];
        let rows = rows(&measured(&["a-10", "a-2", "b-0", "unknown"], &usage), &pods);
        let names: Vec<&str> = rows.iter().map(|row| row.pod.as_str()).collect();
        assert_eq!(names, ["a-2", "a-10", "b-0"]);
        let of_job = lines(&rows[..2], &args(Some("a")));
        assert_eq!(
            of_job.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>(),
            [
                "STEP RANKS CPUS MEMORY GPU GPU-MEMORY POD NODE",
                "node-2 4 to 5 1.50 2.0Mi 40% 1.0Gi a-2 n",
                "node-10 20 to 21 1.50 2.0Mi 40% 1.0Gi a-10 n",
            ]
        );
        let all = lines(&rows, &args(None));
        assert_eq!(all[1].split_whitespace().collect::<Vec<_>>(), ["a", "2", "3.00", "4.0Mi", "40%", "2.0Gi"]);
    }

    #[test]
    fn what_a_cluster_does_not_say_has_no_column() {
        let rows = rows(&measured(&["a-0"], &json!({"cpu": "250m", "memory": "153Mi"})), &[pod("a", 0)]);
        let table = lines(&rows, &args(None));
        assert_eq!(table[0].split_whitespace().collect::<Vec<_>>(), ["JOB", "PODS", "CPUS", "MEMORY"]);
        assert_eq!(as_json(&rows)[0]["gpuPercent"], Value::Null);
    }

    #[test]
    fn bytes_are_short() {
        for (number, text) in [(0, "0B"), (1023, "1023B"), (1536, "1.5Ki"), (160_432_128, "153Mi"), (5 << 30, "5.0Gi")]
        {
            assert_eq!(bytes(number), text);
        }
    }
}
