//! A pod as a row of a table.

use crate::kit::{age, at, human, int, is_true, items, text, time};
use jiff::Timestamp;
use serde_json::{Value, json};

fn sidecar(container: &Value) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// What is counted over containers: restarts and the last of them.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += int(status, "restartCount").unwrap_or_default();
        self.last = self.last.max(time(status, "lastState.terminated.finishedAt"));
    }
}

/// How a container ended, in a word.
fn ended(terminated: &Value) -> String {
    let reason = text(terminated, "reason");
    let signal = int(terminated, "signal").unwrap_or_default();
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int(terminated, "exitCode").unwrap_or_default())
    }
}

fn condition_is_true(pod: &Value, kind: &str) -> bool {
    crate::kit::has_condition(pod, kind)
}

/// Name, ready, status, restarts, age; wide: IP, node, nominated node, readiness gates.
pub fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let init = items(pod, "spec.initContainers");
    let total = items(pod, "spec.containers").len() + init.iter().filter(|c| sidecar(c)).count();
    let phase = text(pod, "status.phase");
    let mut ready = 0;
    let mut restarts = Restarts::default();
    let mut sidecars = Restarts::default();
    let mut reason = match text(pod, "status.reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    if items(pod, "status.conditions")
        .iter()
        .any(|c| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated")
    {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut initializing = false;
    for (i, status) in items(pod, "status.initContainerStatuses").iter().enumerate() {
        restarts.add(status);
        let is_sidecar = init.iter().any(|c| text(c, "name") == text(status, "name") && sidecar(c));
        if is_sidecar {
            sidecars.add(status);
        }
        let terminated = at(status, "state.terminated");
        let waiting = text(status, "state.waiting.reason");
        if !terminated.is_null() && int(terminated, "exitCode").unwrap_or_default() == 0 {
            continue;
        }
        if is_sidecar && is_true(status, "started") {
            ready += usize::from(is_true(status, "ready"));
            continue;
        }
        reason = if !terminated.is_null() {
            format!("Init:{}", ended(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", init.len())
        };
        initializing = true;
        break;
    }
    if !initializing || condition_is_true(pod, "Initialized") {
        restarts = sidecars;
        let mut running = false;
        let mut failure = String::new();
        for status in items(pod, "status.containerStatuses").iter().rev() {
            restarts.add(status);
            let terminated = at(status, "state.terminated");
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if !terminated.is_null() {
                reason = ended(terminated);
                if int(terminated, "exitCode").unwrap_or_default() != 0 {
                    failure.clone_from(&reason);
                }
            } else if is_true(status, "ready") && !at(status, "state.running").is_null() {
                running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            if running && condition_is_true(pod, "Ready") {
                "Running".clone_into(&mut reason);
            } else if !failure.is_empty() {
                reason = failure;
            } else if running {
                "NotReady".clone_into(&mut reason);
            }
        }
    }
    if api::object::is_terminating(pod) {
        if text(pod, "status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Failed" | "Succeeded") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarted = match restarts.last {
        Some(last) if restarts.count != 0 => {
            format!("{} ({} ago)", restarts.count, human(now.as_second() - last.as_second()))
        }
        _ => restarts.count.to_string(),
    };
    let or_none = |value: &str| json!(if value.is_empty() { "<none>" } else { value });
    let gates = items(pod, "spec.readinessGates");
    let open = gates.iter().filter(|gate| condition_is_true(pod, text(gate, "conditionType"))).count();
    let gates = if gates.is_empty() { "<none>".to_owned() } else { format!("{open}/{}", gates.len()) };
    let ip = items(pod, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        json!(text(pod, "metadata.name")),
        json!(format!("{ready}/{total}")),
        json!(reason),
        json!(restarted),
        age(pod, now),
        or_none(ip),
        or_none(text(pod, "spec.nodeName")),
        or_none(text(pod, "status.nominatedNodeName")),
        json!(gates),
    ]
}
