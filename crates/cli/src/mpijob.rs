//! `mpijob`: MPIJobs from the command line, also as `kubectl odh mpijob` and `oc odh mpijob`.

mod change;
mod create;
mod logs;
mod show;

use crate::choice;
use api::job_kind::JobKind;
use api::mpi::Reason;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind};
use facts::Named;
use grammar::mpi::{self as args, MpiJobArgs, MpiJobCommand};
use grammar::{self as job_args, ClientCommand, Global};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

/// Carries out a command of `mpijob`.
pub(crate) async fn execute(args: &MpiJobArgs, global: &Global) -> Result<u8, ClientError> {
    if let MpiJobCommand::Create(args) = &args.command
        && let Some(done) = create::without_server(args, global)?
    {
        return Ok(done);
    }
    let cluster = Cluster::existing(&choice(global)).await?;
    on(&args.command, &cluster, global).await.map_err(|error| told(error, &cluster))
}

pub(crate) async fn on(command: &MpiJobCommand, cluster: &Cluster, global: &Global) -> Result<u8, ClientError> {
    match command {
        MpiJobCommand::Create(args) => create::create(cluster, args, global).await,
        MpiJobCommand::Get(args) => show::get(cluster, args).await,
        MpiJobCommand::Describe(args) => show::describe(cluster, args).await,
        MpiJobCommand::Explain(args) => show::explain(cluster, args).await,
        MpiJobCommand::Logs(args) => logs::logs(cluster, args).await,
        MpiJobCommand::Delete(args) => {
            let jobs = args.mpijobs.iter().map(|name| titled(name)).collect();
            let given = job_args::DeleteArgs { jobs, no_wait: args.no_wait, output: args.output, ..Default::default() };
            crate::change::delete(cluster, &given).await
        }
        MpiJobCommand::Suspend(args) => {
            let given = job_args::SuspendArgs { jobs: vec![titled(&args.mpijob)], no_wait: false, output: args.output };
            crate::change::suspend(cluster, &given).await
        }
        MpiJobCommand::Resume(args) => {
            let given = job_args::ResumeArgs { jobs: vec![titled(&args.mpijob)], output: args.output };
            crate::change::resume(cluster, &given).await
        }
        MpiJobCommand::Wait(args) => change::wait(cluster, args).await,
        MpiJobCommand::Scale(args) => change::scale(cluster, args).await,
    }
}

/// Why the operator does not start a job, once it has said so. Of one that it has taken on nothing is asked.
async fn refusal(cluster: &Cluster, job: &Value) -> Option<String> {
    if view::mpijob::deciding(job).is_some() {
        return None;
    }
    let about = format!("involvedObject.kind={},involvedObject.name={}", api::mpi::KIND, object::meta(job, "name"));
    // who may not read events is told nothing
    let told = cluster.api(Kind::Event).list(&ListParams::default().fields(&about)).await.ok()?;
    let is_refused = |event: &DynamicObject| {
        event.data["reason"] == Reason::ValidationError.as_str()
            && event.data["involvedObject"]["uid"] == object::uid(job)
    };
    let event = told.items.into_iter().rev().find(is_refused)?;
    event.data["message"].as_str().map(str::to_owned)
}

/// What `mpijob/NAME` asks of a command for TrainJobs; `None` where the job is one, `Some(Err)` where that cannot be asked.
pub(crate) fn named(command: &ClientCommand) -> Option<Result<MpiJobCommand, ClientError>> {
    let lacking = |what: &str| Some(Err(wrong(format!("{what} is for TrainJobs; see: trainyard mpijob --help"))));
    Some(Ok(match command {
        ClientCommand::Get(given) if matches!(given.job.as_deref(), Some("mpijob" | "mpijobs")) => {
            let all_namespaces = given.all_namespaces;
            MpiJobCommand::Get(args::GetArgs { mpijob: None, all_namespaces, output: given.output })
        }
        ClientCommand::Get(given) => {
            let mpijob = Some(name_of(given.job.as_deref()?)?.to_owned());
            MpiJobCommand::Get(args::GetArgs { mpijob, all_namespaces: false, output: given.output })
        }
        ClientCommand::Describe(given) => MpiJobCommand::Describe(of(given)?),
        ClientCommand::Explain(given) => {
            let mpijob = name_of(given.subject.as_deref()?)?.to_owned();
            MpiJobCommand::Explain(args::NameArgs { mpijob, output: given.output })
        }
        ClientCommand::Logs(given) => {
            let mpijob = name_of(&given.job)?.to_owned();
            if given.rank.is_some() || given.grep.is_some() {
                return lacking("choosing lines by rank or text");
            }
            let worker = match given.step.as_deref() {
                None | Some("launcher") => None,
                Some(step) => match step.strip_prefix("worker-").and_then(|number| number.parse().ok()) {
                    Some(number) => Some(number),
                    None => return lacking(&format!("--step {step} (of an MPIJob: launcher, worker-0, worker-1, …)")),
                },
            };
            let job_args::LogsArgs { follow, attempt, previous, tail, .. } = *given;
            MpiJobCommand::Logs(args::LogsArgs { mpijob, launcher: false, worker, follow, attempt, previous, tail })
        }
        ClientCommand::Wait(given) => {
            use job_args::WaitFor;
            let state = match given.state {
                WaitFor::Complete => args::WaitFor::Succeeded,
                WaitFor::Failed => args::WaitFor::Failed,
                WaitFor::Running => args::WaitFor::Running,
                WaitFor::Suspended => args::WaitFor::Suspended,
                WaitFor::Finished => args::WaitFor::Finished,
                WaitFor::Deleted => args::WaitFor::Deleted,
            };
            let mpijob = name_of(&given.job)?.to_owned();
            MpiJobCommand::Wait(args::WaitArgs { mpijob, state, timeout: given.timeout, output: given.output })
        }
        _ => return None,
    }))
}

fn of(given: &job_args::JobArgs) -> Option<args::NameArgs> {
    Some(args::NameArgs { mpijob: name_of(&given.job)?.to_owned(), output: given.output })
}

/// The name in `mpijob/NAME`, however kubectl would write the kind.
fn name_of(job: &str) -> Option<&str> {
    Named::parse(job).ok().filter(|named| named.kind == Some(JobKind::Mpi)).map(|named| named.name)
}

/// `mpijob/NAME`.
fn titled(name: &str) -> String {
    JobKind::Mpi.short_name(name_of(name).unwrap_or(name))
}

/// An error, told of MPIJobs and of the server that was asked.
pub(crate) fn told(error: ClientError, cluster: &Cluster) -> ClientError {
    match error {
        ClientError::NotServed => ClientError::NoMpiJobs,
        error => error.at(cluster),
    }
}

/// Wrong use.
fn wrong(text: String) -> ClientError {
    ClientError::Usage(ErrorCode::FlagRefused, text)
}

/// A request that does not fit the state of a job.
fn unfit(text: String) -> ClientError {
    ClientError::Api(ErrorCode::NothingToDo, text)
}

/// One MPIJob, or the error that says it is not there.
async fn find(cluster: &Cluster, name: &str) -> Result<Value, ClientError> {
    match cluster.find(Kind::MpiJob, name_of(name).unwrap_or(name)).await? {
        Some(job) => Ok(job),
        None => Err(cluster.not_found(Kind::MpiJob, api::mpi::KIND, name).await),
    }
}

/// How an MPIJob is named in answers.
fn full_name(name: &str) -> String {
    JobKind::Mpi.full_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn named_in(words: &[&str]) -> Option<Result<MpiJobCommand, ClientError>> {
        match job_args::Cli::parse_from([&["trainyard"], words].concat()).command {
            job_args::Command::Client(command) => named(&command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_for_jobs_know_mpijobs_by_their_kind() {
        for words in [
            &["get", "mpijob/a"][..],
            &["describe", "mpijobs/a"],
            &["explain", "mpijob/a"],
            &["logs", "mpijob.kubeflow.org/a", "--step", "worker-1", "-f"],
            &["wait", "mpijob/a", "--for", "complete"],
        ] {
            let told = format!("{:?}", named_in(words).expect("it is one").expect("it can be asked"));
            assert!(told.contains("\"a\""), "{told}");
        }
        for words in [&["get", "mpijobs"][..], &["get", "mpijob", "-A"]] {
            let told = format!("{:?}", named_in(words).expect("they are").expect("they can be listed"));
            assert!(told.contains("mpijob: None"), "{told}");
        }
        for words in [&["get", "a"][..], &["get"], &["delete", "a", "b"], &["logs", "trainjob/a"], &["top", "mpijob/a"]]
        {
            assert!(named_in(words).is_none(), "{words:?}");
        }
        let words = ["logs", "mpijob/a", "--rank", "0"];
        assert!(named_in(&words).is_some_and(|named| named.is_err()), "{words:?}");
    }
}
