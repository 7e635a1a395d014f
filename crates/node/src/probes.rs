//! Startup, liveness and readiness probes. They run in the agent: while it is down, containers keep the readiness they had.

mod grpc;
pub mod handlers;

use crate::poddir::PodDir;
use crate::programs;
use crate::status::{ContainerState, PodView};
use handlers::Target;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Findings not read yet; a slow agent slows its probes down.
const FINDINGS_MAX: usize = 16;

/// What a probe found out about an attempt of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub container: String,
    pub attempt: u32,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Ready(bool),
    Started,
    Unhealthy {
        /// `Liveness`, `Readiness`, `Startup`
        kind: &'static str,
        message: String,
        /// The container is to be killed for it, with this grace in seconds if the probe has one of its own.
        kill: Option<Option<u64>>,
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

impl Probes {
    pub fn new(dir: PodDir, address: Ipv4Addr) -> Self {
        let (sender, receiver) = mpsc::channel(FINDINGS_MAX);
        let target = Target { dir, address, ports: BTreeMap::new() };
        Self { target, sender, receiver, followed: BTreeMap::new() }
    }

    /// Ports that stand for those that containers name, once they are chosen.
    pub fn use_ports(&mut self, ports: BTreeMap<u16, u16>) {
        self.target.ports = ports;
    }

    /// Probes the containers that run now, and no others. Those whose probes began or ended with this.
    pub fn follow(&mut self, pod: &Pod, view: &PodView) -> BTreeSet<String> {
        let containers = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        let mut changed = BTreeSet::new();
        for container in containers {
            let seen = view.containers.get(&container.name);
            let running = seen.and_then(|c| match c.state {
                ContainerState::Running { since } => Some((c.attempt, since, c.started)),
                ContainerState::NeverStarted | ContainerState::Ended(_) | ContainerState::BackOff { .. } => None,
            });
            let attempt = running.map(|(attempt, ..)| attempt);
            if self.followed.get(&container.name).map(|(attempt, _)| *attempt) == attempt {
                continue;
            }
            self.followed.remove(&container.name);
            let probed = container.startup_probe.is_some()
                || container.liveness_probe.is_some()
                || container.readiness_probe.is_some();
            if !probed {
                continue;
            }
            changed.insert(container.name.clone());
            if let Some((attempt, since, started)) = running {
                let probing = Probing {
                    target: self.target.clone(),
                    sender: self.sender.clone(),
                    container: container.clone(),
                    attempt,
                    since,
                };
                let mut tasks = JoinSet::new();
                tasks.spawn(probing.follow(started));
                self.followed.insert(container.name.clone(), (attempt, tasks));
            }
        }
        changed
    }

    /// Whether a finding is about what runs now.
    pub fn is_current(&self, finding: &Finding) -> bool {
        self.followed.get(&finding.container).is_some_and(|(attempt, _)| *attempt == finding.attempt)
    }

    /// Begins anew with the container's probes: what they found could not be told.
    pub fn forget(&mut self, container: &str) {
        self.followed.remove(container);
    }

    pub fn clear(&mut self) {
        self.followed.clear();
    }

    /// The next finding. Cancel safe.
    pub async fn next(&mut self) -> Finding {
        self.receiver.recv().await.expect("invariant: a sender is kept")
    }
}

/// The probes of an attempt of a container.
struct Probing {
    target: Target,
    sender: mpsc::Sender<Finding>,
    container: Container,
    attempt: u32,
    /// When it was started; initial delays count from here.
    since: Timestamp,
}

impl Probing {
    async fn follow(self, started: bool) {
        let is_sshd = programs::is_sshd(&self.container);
        let Container { startup_probe, liveness_probe, readiness_probe, .. } = self.container.clone();
        let [startup_probe, liveness_probe, readiness_probe] = [startup_probe, liveness_probe, readiness_probe]
            .map(|probe| probe.map(|probe| if is_sshd { of_stand_in(probe) } else { probe }));
        if let Some(probe) = startup_probe.filter(|_| !started) {
            let succeeded = self.watch(&probe, "Startup", true).await;
            if !succeeded || self.tell(What::Started).await.is_err() {
                return;
            }
        }
        let liveness = async {
            if let Some(probe) = liveness_probe {
                self.watch(&probe, "Liveness", false).await;
            }
        };
        let readiness = async {
            if let Some(probe) = readiness_probe {
                self.watch(&probe, "Readiness", false).await;
            }
        };
        tokio::join!(liveness, readiness);
    }

    async fn tell(&self, what: What) -> Result<(), mpsc::error::SendError<Finding>> {
        self.sender.send(Finding { container: self.container.name.clone(), attempt: self.attempt, what }).await
    }

    /// Repeats a probe and sends what changes. Returns `true` at the first success if `until_success`, `false` when the
    /// container is to be killed or nobody listens any more.
    async fn watch(&self, probe: &Probe, kind: &'static str, until_success: bool) -> bool {
        let threshold =
            |value: Option<i32>, default| value.and_then(|v| u32::try_from(v).ok()).unwrap_or(default).max(1);
        let (failure_threshold, success_threshold) =
            (threshold(probe.failure_threshold, 3), threshold(probe.success_threshold, 1));
        let is_readiness = kind == "Readiness";
        let age = Duration::try_from(clock::now().duration_since(self.since)).unwrap_or_default();
        sleep(seconds(probe.initial_delay_seconds, 0).saturating_sub(age)).await;
        let mut ticks = interval(seconds(probe.period_seconds, 10).max(Duration::from_secs(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1));
        let (mut failures, mut successes, mut ready) = (0_u32, 0_u32, None);
        loop {
            ticks.tick().await;
            let mut findings = Vec::new();
            let mut kill = None;
            match handlers::once(&self.target, &self.container, probe, limit).await {
                Ok(()) if until_success => return true,
                Ok(()) => {
                    (failures, successes) = (0, successes.saturating_add(1));
                    if is_readiness && successes >= success_threshold && ready != Some(true) {
                        ready = Some(true);
                        findings.push(What::Ready(true));
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    (failures, successes) = (failures.saturating_add(1), 0);
                    if failures >= failure_threshold {
                        if is_readiness && ready != Some(false) {
                            ready = Some(false);
                            findings.push(What::Ready(false));
                        }
                        if !is_readiness {
                            kill =
                                Some(probe.termination_grace_period_seconds.and_then(|secs| u64::try_from(secs).ok()));
                        }
                    }
                    // Told at the first failure, and when it counts: not every period.
                    if failures == 1 || failures == failure_threshold {
                        findings.push(What::Unhealthy { kind, message, kill });
                    }
                }
            }
            for finding in findings {
                if self.tell(finding).await.is_err() {
                    return false;
                }
            }
            if kill.is_some() {
                return false;
            }
        }
    }
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
