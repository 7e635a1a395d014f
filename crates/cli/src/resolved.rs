//! Commands about jobs with their names resolved: which kind of job each name means is known before the command begins.

use client::{ClientError, Cluster};
use facts::Subject;
use grammar::{ClientCommand, GetArgs, WaitFor};

/// Replaces each name by the shortest one that says the kind: `NAME` of a TrainJob, `mpijob/NAME`, `optimizationjob/NAME`.
///
/// Errors: a kind that does not exist; no such job.
pub(crate) async fn names(command: &mut ClientCommand, cluster: &Cluster) -> Result<(), ClientError> {
    let name = match command {
        ClientCommand::Get(GetArgs { job: Some(job), .. }) if !is_kind(job) => job,
        ClientCommand::Describe(args) => &mut args.job,
        ClientCommand::Explain(args) => match &mut args.subject {
            Some(subject) => subject,
            None => return Ok(()),
        },
        ClientCommand::Logs(args) => &mut args.job,
        ClientCommand::Top(args) => match &mut args.job {
            Some(job) => job,
            None => return Ok(()),
        },
        ClientCommand::Exec(args) => &mut args.job,
        ClientCommand::Shell(args) => &mut args.job,
        ClientCommand::Metrics(args) => {
            for name in &mut args.jobs {
                *name = Subject::find(cluster, name).await?.short_name();
            }
            return Ok(());
        }
        ClientCommand::Wait(args) => {
            let found = Subject::find(cluster, &args.job).await;
            match found {
                // what does not exist is deleted
                Err(ClientError::NotFound { .. }) if args.state == WaitFor::Deleted => {}
                found => args.job = found?.short_name(),
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    *name = Subject::find(cluster, name).await?.short_name();
    Ok(())
}

/// Whether a word after `get` means all jobs of a kind.
pub(crate) fn is_kind(word: &str) -> bool {
    matches!(word, "mpijob" | "mpijobs" | "trainjob" | "trainjobs" | "optimizationjob" | "optimizationjobs")
}
