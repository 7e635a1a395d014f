//! Startup, liveness and readiness probes. They run in the agent: while it is down, containers keep the readiness they had.

use crate::link::Link;
use crate::poddir::PodDir;
use crate::programs;
use crate::status::{ContainerState, PodView};
use crate::wire::{Reply, Request};
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Findings not read yet; a slow agent slows its probes down.
const FINDINGS_MAX: usize = 16;

/// What a probe found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Ready {
        container: String,
        ready: bool,
    },
    Started {
        container: String,
    },
    Unhealthy {
        container: String,
        /// `Liveness`, `Readiness`, `Startup`
        kind: &'static str,
        message: String,
        /// The container is to be killed for it.
        kill: bool,
    },
}

/// The probes of one pod.
#[derive(Debug)]
pub struct Probes {
    target: Target,
    sender: mpsc::Sender<Finding>,
    receiver: mpsc::Receiver<Finding>,
    /// By container: the attempt that is probed.
    followed: BTreeMap<String, (u32, JoinSet<()>)>,
}

#[derive(Clone, Debug)]
struct Target {
    dir: PodDir,
    address: Ipv4Addr,
}

impl Probes {
    pub fn new(dir: PodDir, address: Ipv4Addr) -> Self {
        let (sender, receiver) = mpsc::channel(FINDINGS_MAX);
        Self { target: Target { dir, address }, sender, receiver, followed: BTreeMap::new() }
    }

    /// Probes the containers that run now, and no others.
    pub fn follow(&mut self, pod: &Pod, view: &PodView) {
        let containers = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        for container in containers {
            let seen = view.containers.get(&container.name);
            let running = seen.filter(|c| matches!(c.state, ContainerState::Running { .. }));
            let attempt = running.map(|c| c.attempt);
            if self.followed.get(&container.name).map(|(attempt, _)| *attempt) == attempt {
                continue;
            }
            self.followed.remove(&container.name);
            let probed = container.startup_probe.is_some()
                || container.liveness_probe.is_some()
                || container.readiness_probe.is_some();
            if let Some(attempt) = attempt.filter(|_| probed) {
                let started = seen.is_some_and(|c| c.started);
                let mut tasks = JoinSet::new();
                let (target, sender, container) = (self.target.clone(), self.sender.clone(), container.clone());
                let name = container.name.clone();
                tasks.spawn(async move { follow(target, sender, container, started).await });
                self.followed.insert(name, (attempt, tasks));
            }
        }
    }

    pub fn is_followed(&self, container: &str) -> bool {
        self.followed.contains_key(container)
    }

    pub fn clear(&mut self) {
        self.followed.clear();
    }

    /// The next finding. Cancel safe.
    pub async fn next(&mut self) -> Finding {
        self.receiver.recv().await.expect("invariant: a sender is kept")
    }
}

async fn follow(target: Target, sender: mpsc::Sender<Finding>, container: Container, started: bool) {
    let is_sshd = programs::is_sshd(&container);
    let Container { name, startup_probe, liveness_probe, readiness_probe, .. } = container;
    let [startup_probe, liveness_probe, readiness_probe] = [startup_probe, liveness_probe, readiness_probe]
        .map(|probe| probe.map(|probe| if is_sshd { of_stand_in(probe) } else { probe }));
    if let Some(probe) = startup_probe.filter(|_| !started) {
        let ended = watch(&target, &name, &probe, "Startup", &sender, true).await;
        if !ended || sender.send(Finding::Started { container: name.clone() }).await.is_err() {
            return;
        }
    }
    let liveness = async {
        if let Some(probe) = liveness_probe {
            watch(&target, &name, &probe, "Liveness", &sender, false).await;
        }
    };
    let readiness = async {
        if let Some(probe) = readiness_probe {
            watch(&target, &name, &probe, "Readiness", &sender, false).await;
        }
    };
    tokio::join!(liveness, readiness);
}

/// The stand-in for sshd has no port to try and nothing to wait for: that it runs is all there is to find out.
fn of_stand_in(probe: Probe) -> Probe {
    match probe.tcp_socket {
        Some(_) => Probe { tcp_socket: None, initial_delay_seconds: None, ..probe },
        None => probe,
    }
}

fn seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(default))
}

/// Repeats a probe and sends what changes. Returns `true` at the first success if `until_success`, `false` when the
/// container is to be killed or nobody listens any more.
async fn watch(
    target: &Target,
    container: &str,
    probe: &Probe,
    kind: &'static str,
    sender: &mpsc::Sender<Finding>,
    until_success: bool,
) -> bool {
    let threshold = |value: Option<i32>, default| value.and_then(|v| u32::try_from(v).ok()).unwrap_or(default).max(1);
    let (failure_threshold, success_threshold) =
        (threshold(probe.failure_threshold, 3), threshold(probe.success_threshold, 1));
    let is_readiness = kind == "Readiness";
    sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut ticks = interval(seconds(probe.period_seconds, 10).max(Duration::from_secs(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut failures, mut successes, mut ready) = (0, 0, None);
    loop {
        ticks.tick().await;
        let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
        let result = match timeout(limit, once(target, container, probe)).await {
            Ok(result) => result,
            Err(_) => Err(format!("timed out after {}s", limit.as_secs())),
        };
        let mut finding = None;
        match result {
            Ok(()) if until_success => return true,
            Ok(()) => {
                (failures, successes) = (0, successes + 1);
                if is_readiness && successes >= success_threshold && ready != Some(true) {
                    ready = Some(true);
                    finding = Some(Finding::Ready { container: container.to_owned(), ready: true });
                }
            }
            Err(message) => {
                (failures, successes) = (failures + 1, 0);
                let kill = !is_readiness && failures >= failure_threshold;
                if is_readiness && failures >= failure_threshold && ready != Some(false) {
                    ready = Some(false);
                    finding = Some(Finding::Ready { container: container.to_owned(), ready: false });
                }
                let unhealthy = Finding::Unhealthy { container: container.to_owned(), kind, message, kill };
                // Told at the first failure, and when it counts: not every period.
                let told = failures == 1 || failures == failure_threshold;
                if (told && sender.send(unhealthy).await.is_err()) || kill {
                    return false;
                }
            }
        }
        if let Some(finding) = finding
            && sender.send(finding).await.is_err()
        {
            return false;
        }
    }
}

/// One try.
async fn once(target: &Target, container: &str, probe: &Probe) -> Result<(), String> {
    if let Some(exec) = &probe.exec {
        return execute(target, container, exec.command.clone().unwrap_or_default()).await;
    }
    if let Some(http) = &probe.http_get {
        let port = port(&http.port).ok_or("named ports are not available to probes of processes")?;
        let mut stream = connect(http.host.as_deref(), target.address, port).await?;
        if http.scheme.as_deref() == Some("HTTPS") {
            return Ok(()); // no certificate would fit; that something listens has to do
        }
        let mut request =
            format!("GET {} HTTP/1.1\r\nHost: {}:{port}\r\n", http.path.as_deref().unwrap_or("/"), target.address);
        for header in http.http_headers.iter().flatten() {
            request += &format!("{}: {}\r\n", header.name, header.value);
        }
        request += "User-Agent: kube-probe\r\nConnection: close\r\n\r\n";
        let text = |e: std::io::Error| e.to_string();
        stream.write_all(request.as_bytes()).await.map_err(text)?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.map_err(text)?;
        let code: u16 = String::from_utf8_lossy(&head).split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
        return match (200..400).contains(&code) {
            true => Ok(()),
            false => Err(format!("HTTP probe failed with statuscode: {code}")),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        let port = port(&tcp.port).ok_or("named ports are not available to probes of processes")?;
        return connect(tcp.host.as_deref(), target.address, port).await.map(drop);
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).map_err(|e| e.to_string())?;
        return connect(None, target.address, port).await.map(drop);
    }
    Ok(())
}

fn port(port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(port) => u16::try_from(*port).ok(),
        IntOrString::String(port) => port.parse().ok(),
    }
}

async fn connect(host: Option<&str>, address: Ipv4Addr, port: u16) -> Result<TcpStream, String> {
    let host = host.filter(|h| !h.is_empty()).map_or_else(|| address.to_string(), str::to_owned);
    TcpStream::connect((host.as_str(), port)).await.map_err(|e| format!("dial tcp {host}:{port}: {e}"))
}

async fn execute(target: &Target, container: &str, argv: Vec<String>) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").map_err(text)?;
    let mut link = Link::connect(&target.dir).await.map_err(text)?;
    let request = Request::Exec { container: container.to_owned(), argv, tty: false, kill_on_close: true };
    link.send_with(&request, &[null.as_fd(), null.as_fd(), null.as_fd()]).await.map_err(text)?;
    loop {
        match link.reply().await.map_err(text)? {
            Reply::Started { .. } => {}
            Reply::Refused { message } => return Err(message),
            Reply::Exited { code: 0 } => return Ok(()),
            Reply::Exited { code } => return Err(format!("command exited with code {code}")),
        }
    }
}
