//! Hooks: scripts that run on the machines of a cluster before it stops or ends.
//!
//! Each machine that can be reached gets a pod, which runs the hooks of the event one after another. If a
//! cluster is deleted while it stops, its hooks run once, for the first event. `status.hooks` is written before the first pod is created, and its number is part of the
//! names of the pods, so a repeated decision changes nothing. Hooks delay the end of a cluster by their timeouts at most, and a
//! silent machine by a minute.

use super::Observed;
use crate::cluster::delete;
use crate::job::soonest;
use api::object::{self, Gvk, Target};
use api::sky::{API_VERSION, Cluster, ClusterHook, HookEvent, HookRun, Machine, MachinePhase, cluster_gvk, keys};
use jiff::Timestamp;
use reconcile::{Event, EventType, Next, Op, Propagation, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// Seconds in which the pod of a machine must start, and a silent machine must report again.
const START_SECS: i64 = 60;
/// Seconds that a hook has to end after its timeout.
const KILL_SECS: i64 = 10;

/// Runs hooks one after another, each for its seconds at most, and keeps their output in the file that SkyPilot uses. It exits with the
/// code of the last hook that failed. Arguments: seconds and script of each hook. Processes that a hook leaves cannot delay the end.
const AROUND: &str = r#"log=$HOME/.sky/hooks/$SKYPILOT_HOOK_EVENT.log
mkdir -p "${log%/*}" && : >"$log" && cd || exit 1
exec > >(trap '' TERM INT; exec tee -a -- "$log") 2>&1
out=$! all=$(($# / 2)) i=0 code=0
while (($#)); do
  i=$((i + 1))
  timeout -k "$KILL_SECS" "$1" bash -c "$2"
  c=$?
  if ((c == 124)); then
    code=$c; echo "hook $i of $all ran longer than $1 s and was ended"
  elif ((c)); then
    code=$c; echo "hook $i of $all exited with $c"
  fi
  shift 2
done
exec >&- 2>&-
for ((i = 0; i < 100; i++)); do kill -0 "$out" 2>/dev/null || break; sleep 0.02; done
exit "$code""#;

/// Where a pod has the exit code of its container.
const EXIT_CODE: &str = "/status/containerStatuses/0/state/terminated/exitCode";

pub(super) fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

/// What the hooks of a cluster do now.
pub(super) struct Hooks {
    /// The status to write.
    pub run: HookRun,
    /// Whether the machines need not wait for them.
    pub is_over: bool,
    pub writes: Vec<Write>,
    pub events: Vec<Event>,
    pub next: Next,
}

/// Where a machine is with its hooks.
enum Stage {
    Runs(Next),
    Starts,
    /// Why they failed; `None`: they succeeded.
    Over(Option<String>),
}

impl Observed {
    fn hooks_of(&self, event: HookEvent) -> Vec<&ClusterHook> {
        self.cluster.spec.hooks.iter().filter(|hook| hook.events.contains(&event)).collect()
    }

    /// The state of hooks of a cluster that is to run.
    pub(super) fn past_hooks(&self) -> HookRun {
        let before = &self.cluster.status.hooks;
        HookRun { is_past: before.number > 0, ..before.clone() }
    }

    /// Runs the hooks of an event.
    pub(super) fn hooks(&self, event: HookEvent, now: Timestamp) -> Hooks {
        let before = &self.cluster.status.hooks;
        let mut hooks = Hooks {
            run: before.clone(),
            is_over: true,
            writes: Vec::new(),
            events: Vec::new(),
            next: Next::AwaitChange,
        };
        let is_claimed = before.number > 0 && !before.is_past;
        if is_claimed && !before.ended_at.is_empty() {
            return hooks;
        }
        if !is_claimed {
            let runs = |machine: &&Machine| is_running(machine);
            if self.hooks_of(event).is_empty() || !self.current().any(|machine| runs(&machine)) {
                return hooks;
            }
            hooks.is_over = false;
            hooks.run = HookRun {
                number: before.number.saturating_add(1),
                event,
                began_at: now.to_string(),
                ..HookRun::default()
            };
            hooks.writes = self.pods.iter().filter(|pod| !object::is_terminating(pod)).map(removed).collect();
            return hooks;
        }
        hooks.is_over = false;
        let (mut is_done, mut failures) = (true, Vec::new());
        for machine in self.current() {
            match self.stage(machine, before, now) {
                Stage::Runs(next) => {
                    is_done = false;
                    hooks.next = soonest(hooks.next, next);
                }
                Stage::Starts => {
                    is_done = false;
                    hooks.writes.push(self.hook_pod(before, machine));
                }
                Stage::Over(failure) => failures.extend(failure),
            }
        }
        if is_done {
            hooks.run.ended_at = now.to_string();
            hooks.events = failures.iter().map(|failure| failed(failure)).collect();
            hooks.run.failures = failures;
            hooks.writes.extend(self.hooks_left());
        }
        hooks
    }

    /// Deletions of pods of hooks that have not ended.
    pub(super) fn hooks_left(&self) -> Vec<Write> {
        let left = self.pods.iter().filter(|pod| !object::has_ended(pod) && !object::is_terminating(pod));
        left.map(removed).collect()
    }

    fn stage(&self, machine: &Machine, run: &HookRun, now: Timestamp) -> Stage {
        let name = machine.metadata.name.as_deref().unwrap_or_default();
        let over = |how: &str| Stage::Over(Some(format!("machine {name}: {how}")));
        let wanted = self.hook_pod_name(run, machine);
        let began: Timestamp = run.began_at.parse().unwrap_or(now);
        let may_run = self.seconds(run.event);
        let Some(pod) = self.pods.iter().find(|pod| object::meta(pod, "name") == wanted) else {
            let is_ready = self.is_ready(machine);
            // a control plane that starts again may create the pod until the timeouts of the hooks have passed
            let start_by =
                api::time::later_secs(began, if is_ready { may_run.saturating_add(START_SECS) } else { START_SECS });
            return match is_running(machine) && machine.metadata.deletion_timestamp.is_none() {
                true if is_ready && now < start_by => Stage::Starts,
                true if now < start_by => Stage::Runs(Next::After(start_by.duration_since(now))),
                true if is_ready => over("its hooks could not be started"),
                true => over("it does not report, so its hooks did not run"),
                // it was not there when they began, or has just been lost
                false => Stage::Over(None),
            };
        };
        if object::has_ended(pod) {
            let code = pod.pointer(EXIT_CODE).and_then(Value::as_i64);
            return match (pod["status"]["phase"].as_str(), code) {
                (Some("Succeeded"), _) => Stage::Over(None),
                (_, Some(124)) => over("a hook ran longer than its timeout and was ended"),
                (_, Some(code)) => over(&format!("a hook exited with {code}")),
                (_, None) => over("its hooks ended without an exit code"),
            };
        }
        if object::is_terminating(pod) {
            return over("the pod of its hooks was deleted");
        }
        if !is_running(machine) {
            return over("it was lost while its hooks ran");
        }
        let time = |text: &str| text.parse::<Timestamp>().ok();
        let started = time(object::text(&pod["status"], "startTime"));
        // a silent machine may report again, as after a restart of the control plane
        let silent_since = self.silent_since(machine).filter(|_| !self.is_ready(machine));
        let (until, what) = match (silent_since, started) {
            (Some(since), _) => (since.max(began), "it stopped reporting while its hooks ran"),
            (None, None) => (time(object::meta(pod, "creationTimestamp")).unwrap_or(began), "its hooks did not start"),
            (None, Some(started)) => {
                (api::time::later_secs(started, may_run), "its hooks ran longer than their timeouts")
            }
        };
        let until = api::time::later_secs(until, START_SECS);
        if until <= now {
            return over(what);
        }
        Stage::Runs(Next::After(until.duration_since(now)))
    }

    /// When the condition `Ready` of a machine's node last changed.
    fn silent_since(&self, machine: &Machine) -> Option<Timestamp> {
        object::text(self.condition(machine, "Ready")?, "lastTransitionTime").parse().ok()
    }

    /// How long the hooks of an event may run together.
    fn seconds(&self, event: HookEvent) -> i64 {
        let all =
            self.hooks_of(event).into_iter().map(|hook| i64::from(hook.timeout_seconds).saturating_add(KILL_SECS));
        all.fold(0_i64, i64::saturating_add).clamp(1, i64::from(i32::MAX))
    }

    /// `dev-hooks-2-0`.
    fn hook_pod_name(&self, run: &HookRun, machine: &Machine) -> String {
        format!("{}-hooks-{}-{}", self.name(), run.number, machine.spec.rank)
    }

    fn hook_pod(&self, run: &HookRun, machine: &Machine) -> Write {
        // `$(…)` is for the scripts, not for the node
        let literal = |text: &str| text.replace('$', "$$");
        let hooks = self.hooks_of(run.event);
        let args: Vec<String> =
            hooks.into_iter().flat_map(|hook| [hook.timeout_seconds.to_string(), literal(&hook.run)]).collect();
        let around = literal(&AROUND.replace("\"$KILL_SECS\"", &KILL_SECS.to_string()));
        let name = self.name();
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.hook_pod_name(run, machine), "namespace": object::meta(&self.object, "namespace"),
                "labels": {keys::CLUSTER: name, keys::HOOK: run.event.as_str()},
                "ownerReferences": [{
                    "apiVersion": API_VERSION, "kind": cluster_gvk().kind, "name": name,
                    "uid": object::uid(&self.object), "controller": true,
                }],
            },
            "spec": {
                "restartPolicy": "Never", "activeDeadlineSeconds": self.seconds(run.event),
                "terminationGracePeriodSeconds": KILL_SECS, "automountServiceAccountToken": false,
                "nodeSelector": {"kubernetes.io/hostname": machine.status.node},
                "tolerations": [{"key": keys::CLUSTER, "operator": "Equal", "value": name, "effect": "NoSchedule"}],
                "containers": [{
                    "name": "hooks", "image": "sky", "command": ["/bin/bash", "-c", around, "hooks"], "args": args,
                    "env": [
                        {"name": "SKYPILOT_HOOK_EVENT", "value": run.event.as_str()},
                        {"name": "SKYPILOT_NODE_RANK", "value": machine.spec.rank.to_string()},
                    ],
                }],
            },
        });
        Op::Create { object }.into()
    }
}

fn is_running(machine: &Machine) -> bool {
    machine.status.phase == MachinePhase::Running && !machine.status.node.is_empty()
}

fn removed(pod: &Arc<Value>) -> Write {
    delete(Target::of(pod), Some(object::uid(pod).to_owned()), Propagation::Background)
}

fn failed(message: &str) -> Event {
    Event {
        regarding: None,
        kind: EventType::Warning,
        reason: "HookFailed".into(),
        message: message.to_owned(),
        reporter: super::REPORTER,
        action: "Stopping",
    }
}

/// What a user reads about failed hooks of a cluster.
pub fn told(cluster: &Cluster, shown: &str) -> Vec<String> {
    let run = &cluster.status.hooks;
    let event = run.event.as_str();
    run.failures.iter().map(|failure| format!("{event} hooks of cluster {shown} failed: {failure}")).collect()
}
