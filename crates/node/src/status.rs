//! A pod's status as a kubelet would report it, a function of the pod and its journal.

use crate::wire::{Event, Exit, Record, StopReason};
use api::mpi::names::ENTERED_PODS;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// All that the status depends on.
#[derive(Debug)]
pub struct Observed<'a> {
    pub pod: &'a Pod,
    pub records: &'a [Record],
    /// Containers that a probe found ready or not; the others are ready when they run.
    pub ready: &'a BTreeMap<String, bool>,
    pub address: Ipv4Addr,
    pub host_ip: Ipv4Addr,
    /// When the agent first saw the pod.
    pub start_time: Timestamp,
    /// Why the pod is not running yet.
    pub problem: Option<&'a Problem>,
    /// The status reported last (`null`: none): times of conditions that did not change are taken from there.
    pub previous: &'a Value,
    /// Whether the pod, one of an MPI job that has its list of hosts, has entered another one by ssh; `None`: it is another kind of pod.
    pub entered: Option<bool>,
    pub now: Timestamp,
}

/// Why containers wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The container it is about; `None`: all of them.
    pub container: Option<String>,
    /// `ContainerCreating`, `CreateContainerConfigError`.
    pub reason: &'static str,
    pub message: String,
}

/// What the journal says of one container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerView {
    /// Attempt numbers are restart counts.
    pub attempt: u32,
    pub state: ContainerState,
    /// How the attempt before the current state's ended.
    pub last: Option<Exit>,
    /// A startup probe succeeded in this attempt.
    pub started: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ContainerState {
    #[default]
    NeverStarted,
    Running {
        since: Timestamp,
    },
    /// Ended; restarted later if the pod is not over.
    Ended(Exit),
    BackOff {
        secs: u64,
    },
}

/// What the journal says of the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    pub containers: BTreeMap<String, ContainerView>,
    pub stopping: Option<StopReason>,
    pub over: Option<Over>,
}

/// Nothing of the pod runs any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    Finished,
    /// The shim died with the pod.
    Lost(String),
}

impl PodView {
    pub fn of(records: &[Record]) -> Self {
        let mut view = Self::default();
        for Record { at, event, .. } in records {
            match event {
                Event::Taken { .. } | Event::HookFailed { .. } => {}
                Event::Running { container, attempt, .. } => {
                    let view = view.containers.entry(container.clone()).or_default();
                    view.remember();
                    view.attempt = *attempt;
                    view.started = false;
                    view.state = ContainerState::Running { since: *at };
                }
                Event::Exited { container, attempt, exit } => {
                    let view = view.containers.entry(container.clone()).or_default();
                    view.remember(); // an attempt that could not be started has no record of running
                    view.attempt = *attempt;
                    view.state = ContainerState::Ended(exit.clone());
                }
                Event::Waiting { container, attempt, back_off_secs } => {
                    let view = view.containers.entry(container.clone()).or_default();
                    view.remember();
                    view.attempt = attempt.saturating_sub(1);
                    view.state = ContainerState::BackOff { secs: *back_off_secs };
                }
                Event::Started { container, .. } => {
                    view.containers.entry(container.clone()).or_default().started = true
                }
                Event::Stopping { why, .. } => view.stopping = Some(*why),
                Event::Finished => view.over = Some(Over::Finished),
                Event::Lost { message } => {
                    view.over.get_or_insert(Over::Lost(message.clone()));
                }
            }
        }
        if let Some(Over::Lost(message)) = &view.over {
            let at = records.last().map(|r| r.at).unwrap_or_default();
            view.containers.values_mut().for_each(|container| container.lose(message, at));
        }
        view
    }

    fn container(&self, name: &str) -> ContainerView {
        self.containers.get(name).cloned().unwrap_or_default()
    }

    /// Whether the init container has done its part: succeeded, or, as a sidecar, started.
    fn is_initialized(&self, container: &Container) -> bool {
        let view = self.container(&container.name);
        if is_sidecar(container) {
            return is_started(container, &view) || view.last.is_some();
        }
        matches!(view.state, ContainerState::Ended(ref exit) if exit.code == 0)
    }
}

impl ContainerView {
    fn remember(&mut self) {
        if let ContainerState::Ended(exit) = &self.state {
            self.last = Some(exit.clone());
        }
    }

    fn lose(&mut self, message: &str, at: Timestamp) {
        let since = match &self.state {
            ContainerState::Running { since } => *since,
            ContainerState::BackOff { .. } | ContainerState::NeverStarted => at,
            ContainerState::Ended(_) => return,
        };
        self.state = ContainerState::Ended(Exit {
            code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".to_owned(),
            message: message.to_owned(),
            started_at: since,
            finished_at: at,
            peak_memory_bytes: None,
        });
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn is_started(container: &Container, view: &ContainerView) -> bool {
    matches!(view.state, ContainerState::Running { .. }) && (container.startup_probe.is_none() || view.started)
}

/// A time as Kubernetes writes it: whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The pod's phase (`Pending`, `Running`, `Succeeded`, `Failed`).
pub fn phase(spec: &PodSpec, view: &PodView) -> &'static str {
    match &view.over {
        Some(Over::Lost(_)) => return "Failed",
        Some(Over::Finished) => {
            let succeeded =
                |c: &Container| matches!(view.container(&c.name).state, ContainerState::Ended(exit) if exit.code == 0);
            let deadline = view.stopping == Some(StopReason::DeadlineExceeded);
            return if !deadline && spec.containers.iter().all(succeeded) { "Succeeded" } else { "Failed" };
        }
        None => {}
    }
    let was_started = |c: &Container| view.container(&c.name).state != ContainerState::NeverStarted;
    if spec.containers.iter().all(was_started) { "Running" } else { "Pending" }
}

/// The status to write (a strategic merge patch of `status`: `null` removes).
pub fn status(observed: &Observed<'_>) -> Value {
    let empty = PodSpec::default();
    let spec = observed.pod.spec.as_ref().unwrap_or(&empty);
    let view = PodView::of(observed.records);
    let phase = phase(spec, &view);
    let (reason, message) = match (&view.over, view.stopping) {
        (Some(Over::Lost(message)), _) => (json!("SupervisorLost"), json!(message)),
        (_, Some(StopReason::DeadlineExceeded)) if phase == "Failed" => {
            (json!("DeadlineExceeded"), json!("Pod was active on the node longer than the specified deadline"))
        }
        (_, Some(StopReason::Shutdown)) if phase == "Failed" => {
            (json!("Terminated"), json!("Pod was terminated in response to imminent node shutdown."))
        }
        _ => (Value::Null, Value::Null),
    };
    let init: Vec<&Container> = spec.init_containers.iter().flatten().collect();
    let initialized = init.iter().all(|c| view.is_initialized(c));
    let mut status = Map::new();
    status.insert("phase".into(), json!(phase));
    status.insert("reason".into(), reason);
    status.insert("message".into(), message);
    status.insert("startTime".into(), json!(time(observed.start_time)));
    status.insert("hostIP".into(), json!(observed.host_ip.to_string()));
    status.insert("hostIPs".into(), json!([{"ip": observed.host_ip.to_string()}]));
    status.insert("podIP".into(), json!(observed.address.to_string()));
    status.insert("podIPs".into(), json!([{"ip": observed.address.to_string()}]));
    status.insert("conditions".into(), conditions(observed, spec, &view, phase, initialized));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let of = |containers: &[&Container], waiting: &str| -> Value {
        containers.iter().map(|c| container_status(observed, &view, c, waiting)).collect()
    };
    if !init.is_empty() {
        status.insert("initContainerStatuses".into(), of(&init, "PodInitializing"));
    }
    let main: Vec<&Container> = spec.containers.iter().collect();
    status.insert("containerStatuses".into(), of(&main, waiting));
    if let Some(generation) = observed.pod.metadata.generation {
        status.insert("observedGeneration".into(), json!(generation));
    }
    Value::Object(status)
}

fn is_ready(observed: &Observed<'_>, container: &Container, view: &ContainerView) -> bool {
    let probed = observed.ready.get(&container.name).copied().unwrap_or(container.readiness_probe.is_none());
    is_started(container, view) && probed
}

fn container_status(observed: &Observed<'_>, pod: &PodView, container: &Container, waiting: &str) -> Value {
    let view = pod.container(&container.name);
    let uid = observed.pod.metadata.uid.as_deref().unwrap_or_default();
    let id = |attempt: u32| format!("trainyard://{uid}/{}/{attempt}", container.name);
    let ended = |exit: &Exit, attempt: u32| {
        let mut ended = json!({
            "exitCode": exit.code,
            "reason": exit.reason,
            "startedAt": time(exit.started_at),
            "finishedAt": time(exit.finished_at),
            "containerID": id(attempt),
        });
        if !exit.message.is_empty() {
            ended["message"] = json!(exit.message);
        }
        json!({"terminated": ended})
    };
    let pod_ended = pod.over.is_some();
    let mut ready = is_ready(observed, container, &view);
    let started = is_started(container, &view);
    let state = match &view.state {
        ContainerState::NeverStarted => {
            let problem = observed.problem.filter(|p| p.container.as_ref().is_none_or(|c| *c == container.name));
            match problem {
                Some(problem) => json!({"waiting": {"reason": problem.reason, "message": problem.message}}),
                None => json!({"waiting": {"reason": waiting}}),
            }
        }
        ContainerState::Running { since } => json!({"running": {"startedAt": time(*since)}}),
        ContainerState::Ended(exit) => {
            // A sidecar or init container that succeeded counts as ready, as the kubelet has it.
            ready |=
                observed.pod.spec.iter().any(|s| s.init_containers.iter().flatten().any(|c| c.name == container.name))
                    && exit.code == 0
                    && !is_sidecar(container);
            ended(exit, view.attempt)
        }
        ContainerState::BackOff { .. } if pod_ended => match &view.last {
            Some(exit) => ended(exit, view.attempt),
            None => json!({"waiting": {"reason": waiting}}),
        },
        ContainerState::BackOff { secs } => {
            let name = observed.pod.metadata.name.as_deref().unwrap_or_default();
            let namespace = observed.pod.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!(
                "back-off {secs}s restarting failed container={} pod={name}_{namespace}({uid})",
                container.name
            );
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
    };
    let was_started = view.state != ContainerState::NeverStarted;
    let last = match (&view.last, &view.state) {
        (Some(exit), ContainerState::BackOff { .. }) => ended(exit, view.attempt),
        (Some(exit), _) => ended(exit, view.attempt.saturating_sub(1)),
        (None, _) => json!({}),
    };
    let mut status = json!({
        "name": container.name,
        "image": container.image.as_deref().unwrap_or_default(),
        "imageID": "",
        "ready": ready,
        "started": started,
        "restartCount": view.attempt,
        "state": state,
        "lastState": last,
    });
    if was_started {
        status["containerID"] = json!(id(view.attempt));
    }
    status
}

fn conditions(observed: &Observed<'_>, spec: &PodSpec, view: &PodView, phase: &str, initialized: bool) -> Value {
    let names = |containers: Vec<&str>| format!("[{}]", containers.join(" "));
    let unready: Vec<&str> = spec
        .containers
        .iter()
        .filter(|c| !is_ready(observed, c, &view.container(&c.name)))
        .map(|c| c.name.as_str())
        .collect();
    let (over, waiting_message) = match phase {
        "Succeeded" => (Some("PodCompleted"), None),
        "Failed" => (Some("PodFailed"), None),
        _ => (None, Some(format!("containers with unready status: {}", names(unready.clone())))),
    };
    let containers_ready = if unready.is_empty() && over.is_none() {
        (true, None, None)
    } else {
        (false, Some(over.unwrap_or("ContainersNotReady")), waiting_message)
    };
    let gates_open = spec.readiness_gates.iter().flatten().all(|gate| {
        let conditions = observed.pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
        conditions.into_iter().any(|c| c.type_ == gate.condition_type && c.status == "True")
    });
    let ready = match containers_ready.0 && !gates_open {
        true => {
            (false, Some("ReadinessGatesNotReady"), Some("the status of pod readiness gate is not \"True\"".to_owned()))
        }
        false => containers_ready.clone(),
    };
    let initialized = if initialized || phase == "Succeeded" {
        (true, (phase == "Succeeded").then_some("PodCompleted"), None)
    } else {
        let missing = spec.init_containers.iter().flatten().filter(|c| !view.is_initialized(c));
        let missing = names(missing.map(|c| c.name.as_str()).collect());
        (false, Some("ContainersNotInitialized"), Some(format!("containers with incomplete status: {missing}")))
    };
    let sandbox = !observed.records.is_empty() && view.over.is_none();
    let all = [
        ("PodReadyToStartContainers", (sandbox, None, None)),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", (true, None, None)),
    ];
    // while it runs it may still enter one
    let entered = observed.entered.filter(|_| over.is_some()).map(|entered| (ENTERED_PODS, (entered, None, None)));
    all.into_iter()
        .chain(entered)
        .map(|(kind, (is_true, reason, message))| condition(observed, kind, is_true, reason, message))
        .collect()
}

fn condition(
    observed: &Observed<'_>,
    kind: &str,
    is_true: bool,
    reason: Option<&str>,
    message: Option<String>,
) -> Value {
    let status = if is_true { "True" } else { "False" };
    let known = observed.pod.status.iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.type_ == kind);
    let same = known.filter(|c| c.status == status);
    let stored = same.and_then(|c| c.last_transition_time.as_ref()).map(|t| time(t.0));
    let reported = observed.previous["conditions"].as_array().into_iter().flatten();
    let reported = reported.into_iter().find(|c| c["type"] == kind && c["status"] == status);
    let reported = reported.and_then(|c| c["lastTransitionTime"].as_str()).map(str::to_owned);
    let since = reported.or(stored).unwrap_or_else(|| time(observed.now));
    let mut condition = json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": null,
        "lastTransitionTime": since,
    });
    if let Some(generation) = observed.pod.metadata.generation {
        condition["observedGeneration"] = json!(generation);
    }
    condition
}

#[cfg(test)]
mod tests;
