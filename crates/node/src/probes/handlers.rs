//! One try of a probe, by each of its four kinds; failures in the kubelet's words.

use super::grpc::{self, HealthError};
use crate::http_get::{self, ConnectError, GetError};
use crate::link::Link;
use crate::poddir::PodDir;
use crate::wire::{HttpGet, Reply, Request};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// What a command's output may add to the message of a failure (the kubelet's limit).
const OUTPUT_BYTES_MAX: usize = 10 << 10;

/// Why a container is not well, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("command timed out: {words:?} timed out after {secs}s")]
    CommandTimedOut { words: String, secs: u64 },
    /// What the command printed.
    #[error("{0}")]
    Command(String),
    /// The shim does not start the command.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Machine(#[from] io::Error),
    #[error("Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    GetTimedOut { url: String },
    #[error(transparent)]
    Get(#[from] GetError),
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
    #[error("dial tcp {host}:{port}: i/o timeout")]
    ConnectTimedOut { host: String, port: u16 },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Health(#[from] HealthError),
}

/// A handler names a port that its container does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid port {asked:?}: container {container:?} has no port of that name")]
pub struct PortError {
    asked: String,
    container: String,
}

/// Where the handlers of one pod go.
#[derive(Clone, Debug)]
pub struct Target {
    pub dir: PodDir,
    pub address: Ipv4Addr,
    /// Ports that stand for those that the containers name.
    pub ports: BTreeMap<u16, u16>,
}

/// Tries once, at most for `limit`.
///
/// # Errors
/// Why the container is not well.
pub async fn once(target: &Target, container: &Container, probe: &Probe, limit: Duration) -> Result<(), ProbeError> {
    if let Some(exec) = &probe.exec {
        let argv = exec.command.clone().unwrap_or_default();
        let words = argv.join(" ");
        let result = timeout(limit, execute(target, &container.name, argv)).await;
        return result.unwrap_or_else(|_| Err(ProbeError::CommandTimedOut { words, secs: limit.as_secs() }));
    }
    if let Some(action) = &probe.http_get {
        let get = http_action(action, container, &target.address.to_string(), &target.ports)?;
        let Ok(answer) = timeout(limit, http_get::get(&get)).await else {
            return Err(ProbeError::GetTimedOut { url: http_get::url(&get) });
        };
        let status = answer?;
        return match status.is_success() || status.is_redirection() {
            true => Ok(()),
            false => Err(ProbeError::Status(status.as_u16())),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        let port = port(&tcp.port, container, &target.ports)?;
        let host = host(tcp.host.as_deref(), &target.address.to_string());
        let Ok(connected) = timeout(limit, http_get::connect(&host, port)).await else {
            return Err(ProbeError::ConnectTimedOut { host, port });
        };
        return Ok(connected.map(drop)?);
    }
    if let Some(action) = &probe.grpc {
        let port = port(&IntOrString::Int(action.port), container, &target.ports)?;
        let service = action.service.as_deref().unwrap_or_default();
        return Ok(grpc::check(&target.address.to_string(), port, service, limit).await?);
    }
    Ok(())
}

fn host(asked: Option<&str>, own: &str) -> String {
    asked.filter(|host| !host.is_empty()).unwrap_or(own).to_owned()
}

/// The request that an action asks for.
///
/// # Errors
/// It names a port that the container does not have.
pub fn http_action(
    action: &HTTPGetAction,
    container: &Container,
    address: &str,
    ports: &BTreeMap<u16, u16>,
) -> Result<HttpGet, PortError> {
    let headers = action.http_headers.iter().flatten().map(|header| (header.name.clone(), header.value.clone()));
    let path = action.path.as_deref().unwrap_or_default().trim_start_matches('/');
    Ok(HttpGet {
        https: action.scheme.as_deref().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")),
        host: host(action.host.as_deref(), address),
        port: port(&action.port, container, ports)?,
        path: format!("/{path}"),
        headers: headers.collect(),
    })
}

/// A port by number, or by its name among the container's; and the port that stands for it here.
fn port(port: &IntOrString, container: &Container, ports: &BTreeMap<u16, u16>) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            named.map(|port| port.container_port).or_else(|| name.parse().ok())
        }
    };
    let number =
        number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0).ok_or_else(|| {
            let asked = match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name.clone(),
            };
            PortError { asked, container: container.name.clone() }
        })?;
    Ok(ports.get(&number).copied().unwrap_or(number))
}

async fn execute(target: &Target, container: &str, argv: Vec<String>) -> Result<(), ProbeError> {
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    let (output_in, mut output) = pipe::pipe()?;
    let output_in: OwnedFd = output_in.into_blocking_fd()?;
    let mut link = Link::connect(&target.dir).await?;
    let request = Request::Exec { container: container.to_owned(), argv, tty: false, kill_on_close: true };
    link.send_with(&request, &[null.as_fd(), output_in.as_fd(), output_in.as_fd()]).await?;
    drop(output_in);
    let mut said = Vec::new();
    let code = tokio::select! {
        code = ended(&mut link) => code?,
        // A command that prints more than that is read no further: it waits, and times out, unless it ends.
        never = keep_reading(&mut output, &mut said) => match never {},
    };
    if code == 0 {
        return Ok(());
    }
    // What is in the pipe by now. What the command left behind may hold it open: nobody waits for that.
    let mut chunk = [0; 4096];
    while said.len() < OUTPUT_BYTES_MAX {
        match output.try_read(&mut chunk) {
            Ok(n) if n > 0 => said.extend_from_slice(&chunk[..n]),
            Ok(_) | Err(_) => break,
        }
    }
    said.truncate(OUTPUT_BYTES_MAX);
    Err(ProbeError::Command(String::from_utf8_lossy(&said).into_owned()))
}

/// Reads what a command prints; never returns.
async fn keep_reading(output: &mut pipe::Receiver, said: &mut Vec<u8>) -> std::convert::Infallible {
    let mut chunk = [0; 4096];
    loop {
        match output.read(&mut chunk).await {
            Ok(n) if n > 0 => {
                let room = OUTPUT_BYTES_MAX.saturating_sub(said.len()).min(n);
                said.extend_from_slice(&chunk[..room]);
            }
            Ok(_) | Err(_) => std::future::pending().await,
        }
    }
}

/// Waits for the command's end; its exit code.
async fn ended(link: &mut Link) -> Result<i32, ProbeError> {
    loop {
        match link.reply().await? {
            Reply::Started { .. } => {}
            Reply::Refused { message } => return Err(ProbeError::Refused(message)),
            Reply::Exited { code } => return Ok(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_go_by_name_and_stand_for_others() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 29500}]})).unwrap();
        let ports = [(29500, 20017)].into();
        let find = |wanted: IntOrString| port(&wanted, &container, &ports);
        assert_eq!(find(IntOrString::String("web".into())), Ok(20017));
        assert_eq!(find(IntOrString::Int(29500)), Ok(20017));
        assert_eq!(find(IntOrString::Int(80)), Ok(80));
        let why = "invalid port \"other\": container \"c\" has no port of that name";
        assert_eq!(find(IntOrString::String("other".into())).unwrap_err().to_string(), why);
    }

    #[test]
    fn requests_are_what_actions_ask_for() {
        let container = Container::default();
        let action = |value| serde_json::from_value::<HTTPGetAction>(value).unwrap();
        let plain = action(json!({"port": 80}));
        let plain = http_action(&plain, &container, "127.1.2.3", &BTreeMap::new()).unwrap();
        assert_eq!(http_get::url(&plain), "http://127.1.2.3:80/");
        let full = action(json!({"port": 1, "host": "::1", "path": "a?b", "scheme": "HTTPS",
            "httpHeaders": [{"name": "X", "value": "1"}]}));
        let full = http_action(&full, &container, "127.1.2.3", &BTreeMap::new()).unwrap();
        assert_eq!(http_get::url(&full), "https://[::1]:1/a?b");
        assert_eq!(full.headers, [("X".to_owned(), "1".to_owned())]);
    }
}
