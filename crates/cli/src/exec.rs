//! `exec` and `shell`: a command in the container of a running rank.

use crate::exit;
use crate::terminal;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind};
use facts::{Subject, missing};
use futures::SinkExt;
use grammar::{ExecArgs, ShellArgs};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess, TerminalSize};
use serde_json::Value;
use std::io::IsTerminal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::signal::unix::{SignalKind, signal};
use view::lines::{Show, Source};

/// Bytes that wait in each direction.
const BUFFER: usize = 64 * 1024;
/// The best shell that the container has.
const SHELL: &str = "command -v bash >/dev/null 2>&1 && exec bash; exec sh";

/// `trainyard exec`.
pub(crate) async fn exec(cluster: &Cluster, args: &ExecArgs) -> Result<u8, ClientError> {
    let tty = args.tty && std::io::stdin().is_terminal();
    if args.tty && !tty {
        eprintln!("warning: --tty is left out: the input is no terminal");
    }
    let pod = running_pod(cluster, &args.job, args.rank, args.step.as_deref()).await?;
    let command = where_the_rank_runs(cluster, &pod, args.rank, args.command.clone());
    run(cluster, &pod, command, args.stdin, tty).await
}

/// `trainyard shell`.
pub(crate) async fn shell(cluster: &Cluster, args: &ShellArgs) -> Result<u8, ClientError> {
    let pod = running_pod(cluster, &args.job, args.rank, args.step.as_deref()).await?;
    let command = ["sh", "-c", SHELL].map(str::to_owned).to_vec();
    let command = where_the_rank_runs(cluster, &pod, args.rank, command);
    run(cluster, &pod, command, true, std::io::stdin().is_terminal()).await
}

/// The command, begun in the folder of the rank and with the variables that its launcher told it. A container knows neither: a
/// script may change its folder, and torchrun and mpirun tell each rank its own. Known for pods of this machine only.
pub(crate) fn where_the_rank_runs(
    cluster: &Cluster,
    pod: &Value,
    rank: Option<i64>,
    command: Vec<String>,
) -> Vec<String> {
    let host = object::text(&pod["spec"], "hostname");
    let Some(place) = cluster.local.then(|| facts::machine::processes::workplace(host, rank)).flatten() else {
        return command;
    };
    let Some(folder) = place.folder.to_str() else { return command };
    let begin = r#"cd -- "$1" 2>/dev/null; shift; exec env "$@""#;
    let words = ["sh", "-c", begin, "sh", folder].map(str::to_owned);
    words.into_iter().chain(place.variables).chain(command).collect()
}

/// The pod of this rank or step; where neither is named, that of rank 0, or the first that runs.
pub(crate) async fn running_pod(
    cluster: &Cluster,
    job: &str,
    rank: Option<i64>,
    step: Option<&str>,
) -> Result<Value, ClientError> {
    let subject = Subject::find(cluster, job).await?;
    let Some(labels) = subject.pods() else {
        return Err(subject.without_pods(cluster, "exec").await);
    };
    let pods = cluster.list(Kind::Pod, &labels).await?;
    let show = Show { rank, step: step.map(str::to_owned), ..Show::default() };
    let sources: Vec<Source> = pods.iter().map(|pod| Source::of(pod, 1)).collect();
    show.check(job, &sources.iter().collect::<Vec<_>>()).map_err(missing)?;
    choose(&show, pods).map_err(|found| {
        let (title, state) = (subject.title(), subject.state());
        ClientError::Usage(
            ErrorCode::NotInPod,
            match found {
                Some(pod) => format!(
                    "{} of {title} does not run: its pod {} is {}",
                    view::state::step(&pod),
                    object::meta(&pod, "name"),
                    pod["status"]["phase"].as_str().unwrap_or("Pending")
                ),
                None => {
                    format!(
                        "{title} is {state} and has no running pod; see why: trainyard explain {job}{}",
                        cluster.flags
                    )
                }
            },
        )
    })
}

/// Of the pods that are wanted the first that runs; else, where there is one, a pod that does not.
fn choose(show: &Show, mut pods: Vec<Value>) -> Result<Value, Option<Value>> {
    use view::state::{node_rank, step};
    pods.retain(|pod| show.wants_pod(&Source::of(pod, 1)));
    pods.sort_by_key(|pod| (node_rank(pod).is_none(), node_rank(pod), step(pod)));
    match pods.iter().position(is_running) {
        Some(at) => Ok(pods.swap_remove(at)),
        None => Err(pods.into_iter().next()),
    }
}

fn is_running(pod: &Value) -> bool {
    let mut containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    pod["metadata"]["deletionTimestamp"].is_null()
        && containers.any(|container| container["state"].get("running").is_some())
}

/// The container in which the training runs, if the pod says so; else its first.
fn container(pod: &Value) -> Option<&str> {
    let named = object::annotation(pod, "kubectl.kubernetes.io/default-container");
    named.or_else(|| pod["spec"]["containers"][0]["name"].as_str())
}

/// Begins a command in the pod's container.
pub(crate) async fn begin(
    cluster: &Cluster,
    pod: &Value,
    command: Vec<String>,
    stdin: bool,
    tty: bool,
) -> Result<AttachedProcess, ClientError> {
    let name = object::meta(pod, "name");
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let asked = AttachParams {
        container: container(pod).map(str::to_owned),
        stdin,
        stdout: true,
        stderr: !tty,
        tty,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        max_stderr_buf_size: Some(BUFFER),
    };
    api.exec(name, command, &asked).await.map_err(|error| match error {
        kube::Error::UpgradeConnection(why) => {
            let right = "you need the right to create and get pods/exec in the namespace";
            ClientError::Api(ErrorCode::ExecRefused, format!("pod {name} takes no command: {why}; {right}"))
        }
        other => other.into(),
    })
}

/// Runs a command to its end, with our input and output; its exit code.
async fn run(cluster: &Cluster, pod: &Value, command: Vec<String>, stdin: bool, tty: bool) -> Result<u8, ClientError> {
    let name = object::meta(pod, "name");
    let mut process = begin(cluster, pod, command, stdin, tty).await?;
    let mut terminate = signal(SignalKind::terminate()).map_err(terminal::error)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(terminal::error)?;
    // back to what it was when this function ends, however it does
    let _raw = if tty { Some(terminal::Raw::enter().map_err(terminal::error)?) } else { None };
    let input = process.stdin().map(|to| tokio::spawn(copy(tokio::io::stdin(), to)));
    let sizes = process.terminal_size();
    let done = tokio::select! {
        status = output(&mut process) => outcome(status, name),
        () = resize(sizes), if tty => unreachable!("sizes have no end"),
        _ = terminate.recv() => Ok(143),
        _ = hang_up.recv() => Ok(129),
    };
    if let Some(input) = input {
        input.abort();
    }
    done
}

/// Prints what the command prints, until it has ended.
async fn output(process: &mut AttachedProcess) -> Option<Status> {
    let status = process.take_status();
    let (out, err) = (process.stdout(), process.stderr());
    let out = async {
        if let Some(out) = out {
            copy(out, tokio::io::stdout()).await;
        }
    };
    let err = async {
        if let Some(err) = err {
            copy(err, tokio::io::stderr()).await;
        }
    };
    tokio::join!(out, err);
    status?.await
}

/// Copies to the end, or until the other side takes nothing more.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    use tokio::io::AsyncWriteExt;
    let _ = tokio::io::copy(&mut from, &mut to).await;
    let _ = to.shutdown().await;
}

/// Tells the size of our terminal, now and whenever it changes. Never returns.
async fn resize(sizes: Option<futures::channel::mpsc::Sender<TerminalSize>>) {
    if let (Some(mut sizes), Ok(mut changes)) = (sizes, signal(SignalKind::window_change())) {
        loop {
            if let Some((width, height)) = terminal::size()
                && sizes.send(TerminalSize { width, height }).await.is_err()
            {
                break;
            }
            changes.recv().await;
        }
    }
    std::future::pending().await
}

/// What a command came to: its exit code, or why there is none.
pub(crate) fn outcome(status: Option<Status>, pod: &str) -> Result<u8, ClientError> {
    let Some(status) = status else {
        return Err(ClientError::Api(
            ErrorCode::StreamLost,
            format!("the connection to pod {pod} ended before the command did"),
        ));
    };
    if status.status.as_deref() == Some("Success") {
        return Ok(exit::OK);
    }
    let causes = status.details.into_iter().flat_map(|details| details.causes.unwrap_or_default());
    let code = causes.filter(|cause| cause.reason.as_deref() == Some("ExitCode")).find_map(|cause| cause.message);
    match code.and_then(|code| code.parse::<i64>().ok()) {
        Some(code) => Ok(u8::try_from(code).unwrap_or(exit::FAILURE)),
        None => Err(ClientError::Api(
            ErrorCode::RequestRefused,
            status.message.unwrap_or_else(|| format!("pod {pod} did not run the command")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(rank: i64, running: bool) -> Value {
        let state = if running { json!({"running": {}}) } else { json!({"waiting": {}}) };
        json!({
            "metadata": {"name": format!("p{rank}"), "labels": {
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                "batch.kubernetes.io/job-completion-index": rank.to_string(),
            }},
            "spec": {"containers": [{"name": "node", "env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}]},
            "status": {"containerStatuses": [{"name": "node", "state": state}]},
        })
    }

    fn name(found: Result<Value, Option<Value>>) -> Result<String, Option<String>> {
        let name = |pod: Value| object::meta(&pod, "name").to_owned();
        found.map(name).map_err(|pod| pod.map(name))
    }

    #[test]
    fn a_rank_is_on_the_pod_of_its_node() {
        let pods = || vec![pod(2, true), pod(1, false), pod(0, true)];
        let rank = |rank| Show { rank, ..Show::default() };
        assert_eq!(name(choose(&rank(None), pods())), Ok("p0".to_owned()));
        assert_eq!(name(choose(&rank(Some(5)), pods())), Ok("p2".to_owned()), "two ranks a node");
        assert_eq!(name(choose(&rank(Some(3)), pods())), Err(Some("p1".to_owned())), "it does not run");
        assert_eq!(name(choose(&rank(None), Vec::new())), Err(None));
    }

    #[test]
    fn the_commands_exit_code_is_ours() {
        let status = |value: Value| Some(serde_json::from_value(value).expect("a Status"));
        assert_eq!(outcome(status(json!({"status": "Success"})), "p").unwrap(), 0);
        let failed = json!({"status": "Failure", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}});
        assert_eq!(outcome(status(failed), "p").unwrap(), 7);
        let refused = json!({"status": "Failure", "message": "no such program"});
        assert_eq!(outcome(status(refused), "p").unwrap_err().to_string(), "no such program");
        assert!(outcome(None, "p").unwrap_err().to_string().contains("ended before"));
    }
}
