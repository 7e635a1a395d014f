//! Reads the runs of a pod's containers from its journal.

use api::job_history::{PastContainer, Run};
use node::logs;
use node::poddir::PodDir;
use node::wire::{Event, Record};
use serde_json::Value;
use std::io;

/// What lies beside a log whose beginning was removed to keep within bounds.
pub fn cut_mark(dir: &PodDir, container: &str, attempt: u32) -> std::path::PathBuf {
    dir.log(container, attempt).with_extension("log.cut")
}

/// The containers of a pod that ran, init containers first, with all of their runs.
pub fn of(dir: &PodDir, pod: &Value) -> io::Result<Vec<PastContainer>> {
    let mut containers = from_journal(&dir.read_journal()?);
    let lists = ["initContainers", "containers"].into_iter();
    let names: Vec<&str> = lists
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    containers.sort_by_key(|container| names.iter().position(|name| *name == container.name).unwrap_or(names.len()));
    for container in &mut containers {
        for run in &mut container.attempts {
            let (bytes, rotated) = logs::extent(dir, &container.name, run.attempt);
            run.log_bytes = bytes;
            run.log_cut = rotated || cut_mark(dir, &container.name, run.attempt).exists();
        }
    }
    Ok(containers)
}

fn from_journal(records: &[Record]) -> Vec<PastContainer> {
    let mut containers: Vec<PastContainer> = Vec::new();
    for Record { at, event, .. } in records {
        match event {
            Event::Running { container, attempt, .. } => {
                run(&mut containers, container, *attempt).started_at = Some(*at);
            }
            Event::Exited { container, attempt, exit } => {
                let run = run(&mut containers, container, *attempt);
                run.started_at = Some(exit.started_at);
                run.finished_at = Some(exit.finished_at);
                run.exit_code = Some(exit.code);
                run.signal = exit.signal;
                run.reason.clone_from(&exit.reason);
                run.message.clone_from(&exit.message);
                run.peak_memory_bytes = exit.peak_memory_bytes;
            }
            Event::Lost { message } => {
                // what ran ended with its supervisor; nobody saw when, or how
                let open = containers.iter_mut().flat_map(|container| &mut container.attempts);
                for run in open.filter(|run| run.finished_at.is_none()) {
                    run.finished_at = Some(*at);
                    run.exit_code = Some(137);
                    run.reason = "ContainerStatusUnknown".to_owned();
                    run.message.clone_from(message);
                }
            }
            Event::Taken { .. }
            | Event::Waiting { .. }
            | Event::Started { .. }
            | Event::HookFailed { .. }
            | Event::Stopping { .. }
            | Event::Finished => {}
        }
    }
    containers
}

fn run<'a>(containers: &'a mut Vec<PastContainer>, name: &str, attempt: u32) -> &'a mut Run {
    let at = containers.iter().position(|container| container.name == name).unwrap_or_else(|| {
        containers.push(PastContainer { name: name.to_owned(), attempts: Vec::new() });
        containers.len() - 1
    });
    let runs = &mut containers[at].attempts;
    let at = runs.iter().position(|run| run.attempt == attempt).unwrap_or_else(|| {
        runs.push(Run { attempt, ..Run::default() });
        runs.len() - 1
    });
    &mut runs[at]
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use node::wire::Exit;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn every_run_has_its_start_and_its_end() {
        let running = |attempt| Event::Running { container: "node".into(), attempt, pid: 1 };
        let exit = Exit {
            code: 3,
            signal: None,
            reason: "Error".into(),
            message: String::new(),
            started_at: at(1),
            finished_at: at(2),
            peak_memory_bytes: Some(7),
        };
        let ended = Event::Exited { container: "node".into(), attempt: 0, exit };
        let lost = Event::Lost { message: "gone".into() };
        let records = [running(0), ended, running(1), lost];
        let records: Vec<Record> = records
            .into_iter()
            .enumerate()
            .map(|(n, event)| Record { at: at(n as i64), uptime: None, event })
            .collect();
        let told: Vec<_> = from_journal(&records)[0]
            .attempts
            .iter()
            .map(|run| (run.attempt, run.started_at, run.finished_at, run.exit_code, run.peak_memory_bytes))
            .collect();
        let expected =
            [(0, Some(at(1)), Some(at(2)), Some(3), Some(7)), (1, Some(at(2)), Some(at(3)), Some(137), None)];
        assert_eq!(told, expected);
        assert_eq!(from_journal(&records[..3])[0].attempts[1].exit_code, None, "it runs");
    }
}
