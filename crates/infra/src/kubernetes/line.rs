//! Runs commands in the pod of a machine, through the cluster's API server.

use super::pod::CONTAINER;
use crate::access::Duplex;
use crate::answer::{TooMuch, line, read};
use crate::fault::{Fault, shown};
use crate::host::{Said, outcome, reader, script};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::time::timeout;

/// Most bytes in the first line of a relay.
const RELAY_LINE_MAX: usize = 200;
/// Most bytes that may wait to be sent.
const WAITING_BYTES: usize = 1 << 18;
/// How long a command may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// The first word of a relay's output.
const RELAY: &str = "trainyard-relay";

/// Runs commands in a pod.
#[derive(Clone)]
pub struct Line {
    pub pods: Api<Pod>,
    pub pod: String,
}

/// A command did not run to an exit code: what is said of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoCode(String);

/// The exit code of a command; `None` if it has none, because the connection broke.
fn code(status: Option<Status>) -> Result<Option<i32>, NoCode> {
    let Some(status) = status else { return Ok(None) };
    if status.status.as_deref() == Some("Success") {
        return Ok(Some(0));
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.into_iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message?.parse().ok());
    code.map(Some).ok_or(NoCode(status.message.unwrap_or_default()))
}

impl Line {
    async fn begin(&self, command: Vec<String>, with_errors: bool) -> Result<AttachedProcess, Fault> {
        let options = AttachParams::default()
            .container(CONTAINER)
            .stdin(true)
            .stdout(true)
            .stderr(with_errors)
            .max_stdin_buf_size(WAITING_BYTES)
            .max_stdout_buf_size(WAITING_BYTES);
        let begun = timeout(BEGIN_MAX, self.pods.exec(&self.pod, command, &options)).await;
        let begun = begun.map_err(|_| Fault::Broken("a command in the pod does not begin".to_owned()))?;
        begun.map_err(|error| Fault::Broken(format!("no command runs in the pod: {}", api::error_chain(&error))))
    }

    /// Makes a port of the machine's loopback lead to the returned end; this port if possible. The relay ends with its process.
    pub async fn relay(&self, program: &str, port: u16) -> Result<(Box<dyn Duplex>, AttachedProcess, u16), Fault> {
        let command = [program, "relay", &port.to_string()].map(str::to_owned).to_vec();
        let mut process = self.begin(command, false).await?;
        let broken = || Fault::Broken("the relay in the pod does not begin".to_owned());
        let (Some(stdin), Some(stdout)) = (process.stdin(), process.stdout()) else { return Err(broken()) };
        let mut stdout = BufReader::new(stdout);
        let line = timeout(BEGIN_MAX.saturating_mul(2), line(&mut stdout, RELAY_LINE_MAX)).await;
        let line = line.ok().and_then(Result::ok).flatten().and_then(|line| String::from_utf8(line).ok());
        let said = line.as_deref().and_then(|line| line.trim_end().split_once(' ')).filter(|(word, _)| *word == RELAY);
        match said.and_then(|(_, port)| port.parse().ok()) {
            Some(port) => Ok((Box::new(tokio::io::join(stdout, stdin)), process, port)),
            None => Err(broken()),
        }
    }
}

impl crate::kept::Line for Line {
    async fn call(
        &self,
        function: &str,
        variables: &[(&str, &str)],
        payload: Option<&Path>,
        limit: Duration,
    ) -> Result<Said, Fault> {
        let mut variables = variables.to_vec();
        variables.push(("slot", &self.pod));
        let script = script(function, &variables);
        let mut process = self.begin(["/bin/sh", "-c", &reader(&script)].map(str::to_owned).to_vec(), true).await?;
        let (stdin, stdout, stderr) = (process.stdin(), process.stdout(), process.stderr());
        let status = process.take_status();
        let input = async {
            let mut stdin = stdin?;
            let sent = async {
                stdin.write_all(script.as_bytes()).await?;
                if let Some(path) = payload {
                    tokio::io::copy(&mut tokio::fs::File::open(path).await?, &mut stdin).await?;
                }
                stdin.flush().await
            };
            // a command that refuses does not read all of its input: its exit code says why
            let _ = sent.await;
            Some(stdin) // it stays open: older servers end the connection with it
        };
        let status = async {
            match status {
                Some(status) => status.await,
                None => None,
            }
        };
        let talk = async {
            let input = async { Ok(input.await) };
            let (_input, said, complaint) = tokio::try_join!(input, read(stdout), read(stderr))?;
            Ok((said, complaint))
        };
        let all = async {
            let (mut status, mut talk) = (pin!(status), pin!(talk));
            tokio::select! {
                // the connection broke, which does not end its streams
                status = &mut status => match status {
                    None => Ok((None, Vec::new(), Vec::new())),
                    status => talk.await.map(|(said, complaint)| (status, said, complaint)),
                },
                talk = &mut talk => {
                    let (said, complaint) = talk?;
                    Ok::<_, TooMuch>((status.await, said, complaint))
                }
            }
        };
        let late = |_| Fault::Broken(format!("`{function}` had no answer within {} s", limit.as_secs()));
        let done = timeout(limit, all).await;
        process.abort();
        let (status, said, complaint) = done.map_err(late)?.map_err(|more| more.fault(&format!("`{function}`")))?;
        let code = code(status).map_err(|NoCode(why)| Fault::Broken(shown(&why).into_owned()))?;
        outcome(code, &said, &complaint)
    }
}
