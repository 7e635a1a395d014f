//! What `sky check` tries: it connects to the hosts of pools by SSH, and asks the API servers of contexts for their version and whether
//! you may create pods. It changes nothing there. Each try has a time limit.

use crate::{AtHand, ContextError, POOLS, client};
use api::foreign::visible_line;
use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;
use placement::Cloud;
use sky::commands::Call;
use sky::console::Tried;
use sky::pools::{self, Host};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// How long a host or an API server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(8);
const CONNECT_TIMEOUT: &str = "ConnectTimeout=5";
/// Hosts and API servers that are tried at once.
const AT_ONCE: usize = 16;
/// How many failed hosts of a pool are named.
const NAMED_MAX: usize = 3;

/// Why a host, a pool or a context cannot be used.
#[derive(Debug, thiserror::Error)]
enum TryError {
    #[error("`ssh` cannot be run")]
    Ssh(#[source] io::Error),
    #[error("no answer within {} s", ANSWER_MAX.as_secs())]
    Late,
    #[error("`ssh` failed without a message")]
    Silent,
    /// The last line that ssh wrote.
    #[error("{0}")]
    Said(String),
    /// None of a pool's hosts can be used; why not.
    #[error("{0}")]
    Pool(String),
    #[error("the API server did not answer within {} s", ANSWER_MAX.as_secs())]
    LateServer,
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("Kubernetes {version} answers, but you may not create pods in namespace {namespace}")]
    Forbidden { version: String, namespace: String },
}

/// The result for a host.
type Connected = Result<&'static str, TryError>;

/// Tries the pools and contexts that the command asks for; `enabled` are the clouds that may be used.
pub fn tried(call: &Call, at_hand: &AtHand, home: &Path, enabled: &[Cloud]) -> Vec<Tried> {
    if call.path != "sky check" {
        return Vec::new();
    }
    let asked: Vec<(Option<Cloud>, Option<&str>)> = call
        .values("infra_list")
        .iter()
        .map(|name| {
            let (cloud, place) = name.split_once('/').map_or((name.as_str(), None), |(cloud, at)| (cloud, Some(at)));
            (Cloud::from_name(cloud), place)
        })
        .collect();
    let is_asked = |cloud: Cloud, place: &str| {
        let means = |(one, at): &(Option<Cloud>, Option<&str>)| *one == Some(cloud) && at.is_none_or(|at| at == place);
        enabled.contains(&cloud) && (asked.is_empty() || asked.iter().any(means))
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let text = std::fs::read_to_string(home.join(POOLS)).unwrap_or_default();
    let pools = pools::parse(&text, home, Path::is_file).unwrap_or_default();
    let pools = pools.into_iter().filter_map(|(name, hosts)| Some((name, hosts.ok()?)));
    let pools: Vec<(String, Vec<Host>)> = pools.filter(|(name, _)| is_asked(Cloud::Ssh, name)).collect();
    let contexts = at_hand.contexts.allowed.iter().filter(|name| is_asked(Cloud::Kubernetes, name));
    let tried = runtime.block_on(async {
        let (by_ssh, on_kubernetes) = futures::future::join(
            futures::stream::iter(pools.into_iter().map(|(name, hosts)| pool(name, hosts))).buffered(AT_ONCE).collect(),
            futures::stream::iter(contexts.map(|name| context(name))).buffered(AT_ONCE).collect::<Vec<_>>(),
        )
        .await;
        let by_ssh: Vec<Tried> = by_ssh;
        by_ssh.into_iter().chain(on_kubernetes).collect::<Vec<_>>()
    });
    runtime.shutdown_background();
    tried
}

/// Tries all hosts of a pool. A pool can be used if one of its hosts can.
async fn pool(name: String, hosts: Vec<Host>) -> Tried {
    let tries = hosts.iter().map(|host| async move { (host, connect(host).await) });
    let all: Vec<(&Host, Connected)> = futures::stream::iter(tries).buffered(AT_ONCE).collect().await;
    row(format!("ssh/{name}"), summed(&all))
}

/// The row of a place in `sky check`'s table.
fn row(place: String, found: Result<String, TryError>) -> Tried {
    let is_usable = found.is_ok();
    Tried { place, is_usable, said: found.unwrap_or_else(|error| api::error_chain(&error)) }
}

/// The text for a pool.
fn summed(all: &[(&Host, Connected)]) -> Result<String, TryError> {
    let good: Vec<&'static str> = all.iter().filter_map(|(_, tried)| tried.as_ref().ok().copied()).collect();
    let failed = all.iter().filter_map(|(host, tried)| Some((host, tried.as_ref().err()?)));
    let bad: Vec<String> = failed.map(|(host, error)| format!("{}: {}", host.name, api::error_chain(error))).collect();
    let more = bad.len().saturating_sub(NAMED_MAX);
    let mut parts: Vec<String> = bad.into_iter().take(NAMED_MAX).collect();
    if more > 0 {
        parts.push(format!("{more} more host{} failed", if more == 1 { "" } else { "s" }));
    }
    let plural = if all.len() == 1 { "" } else { "s" };
    let Some(first) = good.first() else { return Err(TryError::Pool(parts.join("; "))) };
    let counted = if parts.is_empty() {
        format!("{} host{plural}", all.len())
    } else {
        format!("{} of {} host{plural}", good.len(), all.len())
    };
    parts.insert(0, format!("{counted} {first}"));
    Ok(parts.join("; "))
}

/// Logs in and runs nothing. A password is not tried: a wrong one may lock the account.
async fn connect(host: &Host) -> Connected {
    let mut command = tokio::process::Command::new("ssh");
    command.arg("-T").args(["-o", "BatchMode=yes", "-o", CONNECT_TIMEOUT, "-o", "ClearAllForwardings=yes"]);
    command.args(["-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no", "-o", "ControlPath=none"]);
    if let Some(user) = &host.user {
        command.args(["-l", user]);
    }
    if let Some(file) = &host.identity_file {
        command.arg("-i").arg(file).args(["-o", "IdentitiesOnly=yes"]);
    }
    command.arg("--").arg(&host.name).arg("true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(TryError::Ssh)?;
    let stderr = child.stderr.take();
    let outcome = async {
        use tokio::io::AsyncReadExt;
        let mut said = Vec::new();
        if let Some(stderr) = stderr {
            let _ = stderr.take(16 << 10).read_to_end(&mut said).await; // what was read until then is enough
        }
        (child.wait().await, said)
    };
    let Ok((status, said)) = tokio::time::timeout(ANSWER_MAX, outcome).await else {
        return Err(TryError::Late);
    };
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => Ok("connected"),
        Ok(_) if host.password.is_some() && last.contains("password") && last.contains("Permission denied") => {
            Ok("answered and accept passwords, which were not tried")
        }
        _ if last.is_empty() => Err(TryError::Silent),
        _ => Err(TryError::Said(visible_line(last).into_owned())),
    }
}

/// The API server of a context.
async fn context(name: &str) -> Tried {
    let asked = tokio::time::timeout(ANSWER_MAX, rights(name)).await;
    row(format!("k8s/{name}"), asked.unwrap_or(Err(TryError::LateServer)))
}

async fn rights(context: &str) -> Result<String, TryError> {
    let client = client(context).await?;
    let version = client.apiserver_version().await?;
    let namespace = client.default_namespace().to_owned();
    let wanted = ResourceAttributes {
        namespace: Some(namespace.clone()),
        verb: Some("create".into()),
        resource: Some("pods".into()),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(wanted),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer = Api::all(client).create(&PostParams::default(), &review).await?;
    let version = visible_line(&version.git_version).into_owned();
    match answer.status.is_some_and(|status| status.allowed) {
        true => Ok(format!("Kubernetes {version}, pods may be created in namespace {namespace}")),
        false => Err(TryError::Forbidden { version, namespace }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_usable_if_one_host_is() {
        let host = |name: &str| Host { name: name.into(), user: None, identity_file: None, password: None };
        let hosts: Vec<Host> = ["a", "b", "c", "d", "e"].map(host).into();
        let of = |bad: usize| {
            let refused = || TryError::Said("refused".to_owned());
            let tried = |(at, host)| (host, if at < bad { Err(refused()) } else { Ok("connected") });
            summed(&hosts.iter().enumerate().map(tried).collect::<Vec<_>>()).map_err(|error| error.to_string())
        };
        assert_eq!(of(0).as_deref(), Ok("5 hosts connected"));
        assert_eq!(of(1).as_deref(), Ok("4 of 5 hosts connected; a: refused"));
        assert_eq!(of(5), Err("a: refused; b: refused; c: refused; 2 more hosts failed".to_owned()));
    }
}
