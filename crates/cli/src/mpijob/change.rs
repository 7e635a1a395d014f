//! `mpijob scale` and `wait`.

use super::logs::LOOK_EVERY;
use super::{find, full_name, name_of, refusal, unfit, wrong};
use crate::jobs::until;
use crate::plugin::as_called;
use crate::{exit, output};
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use grammar::mpi::{ScaleArgs, WaitArgs, WaitFor};
use grammar::{Format, Output};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use submission::mpi::{check_hosts, check_name};
use view::mpijob::{State, command, message, workers};

/// Changes the number of workers.
pub(crate) async fn scale(cluster: &Cluster, args: &ScaleArgs) -> Result<u8, ClientError> {
    if args.workers < 1 {
        return Err(wrong(format!("--workers {}: must be 1 or more", args.workers)));
    }
    let job = find(cluster, &args.mpijob).await?;
    let (name, state) = (object::meta(&job, "name"), State::of(&job));
    if state.is_finished() {
        let state = state.to_string().to_lowercase();
        return Err(unfit(format!("MPIJob {name:?} has {state}: there is nothing to scale")));
    }
    check_name(name, args.workers)?;
    check_hosts(name, object::meta(&job, "namespace"), args.workers)?;
    let (_, before) = workers(&job);
    let follows = command(&job).iter().any(|word| word.contains("horovodrun") || word.contains("discover_hosts"));
    let job = patch(cluster, &job, json!({"mpiReplicaSpecs": {"Worker": {"replicas": args.workers}}})).await?;
    say(&job, "scaled", args.output);
    let now = i64::from(args.workers);
    if !follows && now > before {
        eprintln!(
            "note: mpirun starts no ranks beyond those that its command names, with {now} workers as with {before}"
        );
    } else if !follows && now < before {
        let which = if before - now == 1 {
            format!("worker {now} goes")
        } else {
            format!("workers {now} to {} go", before - 1)
        };
        eprintln!("note: {which}; an mpirun that has ranks there ends, and with it the job");
    }
    Ok(exit::OK)
}

async fn patch(cluster: &Cluster, job: &Value, spec: Value) -> Result<Value, ClientError> {
    let change = Patch::Merge(json!({"spec": spec}));
    let name = object::meta(job, "name");
    Ok(value(&cluster.api(Kind::MpiJob).patch(name, &PatchParams::default(), &change).await?))
}

fn say(job: &Value, what: &str, output: Output) {
    match output.output {
        format @ (Format::Json | Format::Yaml) => output::print(job, format),
        Format::Name => println!("{}", full_name(object::meta(job, "name"))),
        Format::Table | Format::Wide => println!("{} {what}", full_name(object::meta(job, "name"))),
    }
}

/// Returns once the operator has said that it will not start the job, and why.
async fn refused(cluster: &Cluster, name: &str) -> String {
    loop {
        // an error here is for who waits for the job itself
        if let Ok(Some(job)) = cluster.find(Kind::MpiJob, name).await
            && let Some(why) = refusal(cluster, &job).await
        {
            return why;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Waits for a state. Exit code 0 when reached, 1 when it cannot be reached any more, 124 out of time.
pub(crate) async fn wait(cluster: &Cluster, args: &WaitArgs) -> Result<u8, ClientError> {
    let name = name_of(&args.mpijob).unwrap_or(&args.mpijob);
    if args.state != WaitFor::Deleted {
        find(cluster, name).await?;
    }
    let is_reached = |job: Option<&Value>| match (args.state, job.map(State::of)) {
        (WaitFor::Deleted, state) => state.is_none(),
        (_, None) => false,
        (WaitFor::Succeeded, Some(state)) => state == State::Succeeded,
        (WaitFor::Failed, Some(state)) => state == State::Failed,
        (WaitFor::Finished, Some(state)) => state.is_finished(),
        (WaitFor::Running, Some(state)) => state == State::Running,
        (WaitFor::Suspended, Some(state)) => state == State::Suspended,
    };
    let is_over = |job: Option<&Value>| job.is_none_or(|job| State::of(job).is_finished());
    let ended =
        until(cluster, Kind::MpiJob, name, |job| is_reached(job) || (args.state != WaitFor::Deleted && is_over(job)));
    let limit = async {
        match args.timeout {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let refused = async {
        match args.state {
            WaitFor::Deleted => std::future::pending().await,
            _ => refused(cluster, name).await,
        }
    };
    let job = tokio::select! {
        job = ended => job?,
        why = refused => {
            eprintln!("error[{}]: MPIJob {name:?} cannot start: {why}", ErrorCode::WaitInVain);
            return Ok(exit::FAILURE);
        }
        () = limit => {
            eprintln!("error[{}]: timed out: MPIJob {name:?} is not {:?}", ErrorCode::WaitTimedOut, args.state);
            let describe = as_called(&format!("trainyard mpijob describe {name}{}", cluster.flags));
            eprintln!("  see where it stands: {describe}");
            return Ok(exit::TIMEOUT);
        }
    };
    let state = job.as_ref().map_or("deleted".to_owned(), |job| State::of(job).to_string().to_lowercase());
    match (args.output.output, &job) {
        (format @ (Format::Json | Format::Yaml), job) => output::print(job.as_ref().unwrap_or(&Value::Null), format),
        (Format::Name | Format::Table | Format::Wide, _) => println!("{} {state}", full_name(name)),
    }
    if is_reached(job.as_ref()) {
        return Ok(exit::OK);
    }
    let message = job.as_ref().map_or("", message);
    eprintln!("error[{}]: MPIJob {name:?} ended as {state}: {message}", ErrorCode::WaitInVain);
    eprintln!("  see why: {}", as_called(&format!("trainyard mpijob logs {name}{}", cluster.flags)));
    Ok(exit::FAILURE)
}
