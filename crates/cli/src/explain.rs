//! `explain JOB`: why a job waits, fails or makes no progress. `diagnose` judges, `view::explained` words it; this module prints.

use crate::exit;
use crate::output;
use api::object;
use client::{ClientError, Cluster};
use diagnose::{Diagnosis, Facts, PodFacts, diagnose};
use facts::ThisMachine;
use grammar::{Format, Output};
use serde_json::Value;
use view::explained::{end, json, text};
use view::state::byte;

/// `trainyard explain JOB`.
pub(crate) async fn explain(cluster: &Cluster, job: &str, output: Output) -> Result<u8, ClientError> {
    let name = job;
    let job = cluster.job(name).await?;
    let diagnosis = diagnose(&facts::of(cluster, job, &ThisMachine).await?);
    print(name, &diagnosis, output);
    Ok(exit::OK)
}

/// Prints why a job of this name stands where it does.
pub(crate) fn print(name: &str, diagnosis: &Diagnosis, output: Output) {
    match output.output {
        Format::Json | Format::Yaml => output::print(&json(diagnosis), output.output),
        Format::Name => println!("{}", diagnosis.reason.as_str()),
        Format::Table | Format::Wide => print!("{}", text(name, diagnosis)),
    }
}

/// Says on stderr at the end of a failed `run` what failed, why, and what to do next: the last lines of the process that
/// failed first, a sentence, a command. `pods` are those that were seen while it ran.
///
/// Returns the exit code of that process, where it is known.
pub(crate) async fn print_end(cluster: &Cluster, job: &Value, pods: &[Value]) -> Option<u8> {
    let mut facts = match facts::of(cluster, job.clone(), &ThisMachine).await {
        Ok(facts) => facts,
        Err(error) => {
            // the job is over: that more cannot be read is worth a line, not another end
            eprintln!("cannot read why it failed: {error}");
            Facts { job: job.clone(), home: facts::home(cluster), ..Facts::default() }
        }
    };
    for pod in pods {
        if facts.pods.iter().all(|known| object::uid(&known.pod) != object::uid(pod)) {
            facts.pods.push(PodFacts { pod: pod.clone(), live: false, attempt: 0 });
        }
    }
    let diagnosis = diagnose(&facts);
    eprint!("{}", end(&facts, &diagnosis));
    diagnosis.exit_code.map(|code| byte(Some(code)))
}
