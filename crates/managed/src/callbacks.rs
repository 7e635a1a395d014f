//! The reconciler of callbacks: runs the `event_callback` of a task for each of its events, in a pod.
//!
//! [`crate::job`] lists the events in the job's status together with the state that they are about, so a crash loses none. Here the events of
//! a task get their pods one after another: the pod of the next event is created once that of the last one has ended. The name of a pod is
//! a function of job, task and event, so a repeated creation changes nothing. A callback never changes its job: it has its own reconciler,
//! whose refused writes delay no decision about the job.

use crate::cluster::delete;
use crate::job::{callback, task_environment, task_id};
use api::object::{self, Gvk, Key, Target};
use api::sky::{API_VERSION, JobFile, ManagedJob, TaskCallbacks, TaskEvent, keys, managed_job_gvk};
use jiff::Timestamp;
use reconcile::{
    Decision, Event, EventType, Next, OnError, Op, Primary, Propagation, Reconciler, StatusWrite, Wakes, Watch, World,
    Write,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const REPORTER: &str = "sky-callback-controller";
/// Seconds that a callback may run.
pub const CALLBACK_SECS: i64 = 300;
/// Seconds that its processes have to end after that.
const GRACE_SECS: i64 = 5;
/// Pods that are kept for each task after they have ended, so that their output can be read.
const KEPT: u32 = 3;
/// The image of its pods. A laptop's node ignores images.
const IMAGE: &str = "sky";

/// The reconciler.
pub struct CallbackController;

/// What a decision reads.
pub struct Observed {
    object: Arc<Value>,
    job: ManagedJob,
    /// What was submitted; `None`: it is not in the view, or cannot be read.
    file: Option<JobFile>,
    pods: Vec<Arc<Value>>,
}

/// A callback that has ended otherwise than with exit code 0.
struct Failure {
    task: usize,
    event: TaskEvent,
    /// `exited with 3`.
    how: String,
    pod: String,
}

fn pod_gvk() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

/// The pod of a callback, by the names of job, task and event: `job-7-0-callback-3`.
pub fn pod_name(job: &str, task: usize, event: u32) -> String {
    format!("{job}-{task}-callback-{event}")
}

/// Whether events of a job may have no callback yet.
fn is_open(job: &ManagedJob) -> bool {
    let ended = |index: usize| job.status.callbacks.get(index).map_or(0, |callbacks| callbacks.last_event);
    let last = |task: &api::sky::ManagedTask| task.events.last().map_or(0, |event| event.number);
    job.status.tasks.iter().enumerate().any(|(index, task)| last(task) > ended(index))
}

impl Reconciler for CallbackController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "callback"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(managed_job_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            Watch { gvk: pod_gvk(), wakes: Wakes::ControllerOwner },
            Watch { gvk: Gvk::new("", "v1", "ConfigMap"), wakes: Wakes::Nothing },
        ]
    }

    fn concerns(&self, object: &Value) -> bool {
        let mut tasks = object["status"]["tasks"].as_array().into_iter().flatten();
        !object::is_terminating(object) && tasks.any(|task| !task["events"].is_null())
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let object = world.get(&target.gvk, &target.key).filter(|object| !object::is_terminating(object))?;
        let job = ManagedJob::deserialize(&*object).ok()?;
        let key = Key::new(&target.key.namespace, &job.spec.submission);
        let map = is_open(&job).then(|| world.get(&Gvk::new("", "v1", "ConfigMap"), &key)).flatten();
        let file = map.and_then(|map| serde_json::from_str(map["data"]["job"].as_str()?).ok());
        let pods = world.owned_by(&pod_gvk(), object::uid(&object));
        Some(Observed { object, job, file, pods })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        observed.decide()
    }
}

/// How a callback failed; `None`: it exited with 0.
fn failure(pod: &Value) -> Option<String> {
    if pod["status"]["phase"] == "Succeeded" {
        return None;
    }
    let status = &pod["status"];
    let code = status["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64();
    Some(match (status["reason"].as_str(), code) {
        (Some("DeadlineExceeded"), _) => format!("ran longer than {CALLBACK_SECS} s and was ended"),
        (_, Some(code)) => format!("exited with {code}"),
        _ if !object::has_ended(pod) => "was deleted before it had ended".to_owned(),
        (Some(reason), None) => format!("ended without an exit code: {reason}"),
        (None, None) => "ended without an exit code".to_owned(),
    })
}

impl Observed {
    /// Whether a callback of a task runs.
    fn runs_any(&self, index: usize) -> bool {
        let index = index.to_string();
        let its = |pod: &&Arc<Value>| object::label(pod, keys::TASK) == Some(&index);
        self.pods.iter().filter(its).any(|pod| !object::has_ended(pod) && !object::is_terminating(pod))
    }

    fn decide(&self) -> Decision {
        let (mut writes, mut failures) = (Vec::new(), Vec::new());
        let mut all = self.job.status.callbacks.clone();
        all.resize_with(self.job.status.tasks.len().max(all.len()), TaskCallbacks::default);
        for ((index, task), callbacks) in self.job.status.tasks.iter().enumerate().zip(&mut all) {
            for event in &task.events {
                if event.number <= callbacks.last_event {
                    continue;
                }
                match self.pod(index, event.number) {
                    // one that the list of events no longer has may still run
                    None if self.runs_any(index) => break,
                    None => {
                        writes.extend(self.started(index, event));
                        break;
                    }
                    Some(pod) if object::has_ended(pod) || object::is_terminating(pod) => {
                        let missed = event.number.saturating_sub(callbacks.last_event).saturating_sub(1);
                        callbacks.skipped = callbacks.skipped.saturating_add(missed);
                        callbacks.last_event = event.number;
                        if let Some(how) = failure(pod) {
                            let pod = object::meta(pod, "name").to_owned();
                            callbacks.failed = callbacks.failed.saturating_add(1);
                            callbacks.last_failure =
                                format!("the callback for {} {how}; {}", event.status, output(&pod));
                            failures.push(Failure { task: index, event: event.clone(), how, pod });
                        }
                    }
                    Some(_) => break,
                }
            }
            writes.extend(self.surplus(index));
        }
        let status = self.patch(all);
        let events = if status.is_some() { failures.iter().map(Failure::event).collect() } else { Vec::new() };
        Decision { writes, status, events, next: Next::AwaitChange, ..Decision::default() }
    }

    /// The status with these callbacks, if it differs.
    fn patch(&self, mut all: Vec<TaskCallbacks>) -> Option<StatusWrite> {
        while all.last().is_some_and(|last| *last == TaskCallbacks::default()) {
            all.pop();
        }
        (all != self.job.status.callbacks).then(|| {
            let version = object::resource_version(&self.object);
            StatusWrite::Merge(json!({"metadata": {"resourceVersion": version}, "status": {"callbacks": all}}))
        })
    }

    fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    fn pod_name(&self, index: usize, event: u32) -> String {
        pod_name(self.name(), index, event)
    }

    fn pod(&self, index: usize, event: u32) -> Option<&Value> {
        let name = self.pod_name(index, event);
        self.pods.iter().map(|pod| &**pod).find(|pod| object::meta(pod, "name") == name)
    }

    /// Deletions of ended pods of events that the status counts as ended: all but the latest.
    fn surplus(&self, index: usize) -> Vec<Write> {
        // as it was observed, so that an event whose end is not recorded keeps its pod
        let last = self.job.status.callbacks.get(index).map_or(0, |callbacks| callbacks.last_event);
        let prefix = self.pod_name(index, 0);
        let prefix = prefix.trim_end_matches('0');
        let is_old = |pod: &&Arc<Value>| {
            let number = object::meta(pod, "name").strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
            number.is_some_and(|number| number.saturating_add(KEPT) <= last) && !object::is_terminating(pod)
        };
        let old = self.pods.iter().filter(is_old);
        old.map(|pod| delete(Target::of(pod), Some(object::uid(pod).to_owned()), Propagation::Background)).collect()
    }

    /// The pod that runs the callback of an event.
    fn started(&self, index: usize, event: &TaskEvent) -> Option<Write> {
        let file = self.file.as_ref()?;
        let asked = file.tasks.get(index)?;
        let script = callback(asked)?;
        let task_name = if asked.name.is_empty() { &self.job.spec.name } else { &asked.name };
        let mut env: BTreeMap<String, String> = task_environment(&self.job, file);
        let own = [
            ("SKYPILOT_TASK_ID", task_id(&self.job, file, index)),
            ("TASK_ID", index.to_string()),
            ("JOB_ID", self.job.spec.id.to_string()),
            ("JOB_STATUS", event.status.clone()),
            ("CLUSTER_NAME", event.cluster.clone()),
            ("TASK_NAME", task_name.clone()),
            // what SkyPilot says, whatever the machines are
            ("EVENT_TYPE", "Spot".to_owned()),
        ];
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        // `$(…)` is for the script, not for the node
        let literal = |text: &str| text.replace('$', "$$");
        let env: Vec<Value> = env.iter().map(|(name, value)| json!({"name": name, "value": literal(value)})).collect();
        let mut container = json!({
            "name": "callback", "image": IMAGE, "command": ["/bin/bash", "-c", literal(script)], "env": env,
        });
        if !asked.secret.is_empty() {
            container["envFrom"] = json!([{"secretRef": {"name": asked.secret}}]);
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.pod_name(index, event.number), "namespace": object::meta(&self.object, "namespace"),
                "labels": {keys::CALLBACK: self.name(), keys::TASK: index.to_string()},
                "ownerReferences": [{
                    "apiVersion": API_VERSION, "kind": managed_job_gvk().kind, "name": self.name(),
                    "uid": object::uid(&self.object), "controller": true,
                }],
            },
            "spec": {
                "restartPolicy": "Never", "activeDeadlineSeconds": CALLBACK_SECS,
                "terminationGracePeriodSeconds": GRACE_SECS, "automountServiceAccountToken": false,
                "containers": [container],
            },
        });
        // a refused pod must not delay what is written about other tasks
        Some(Write { on_error: OnError::Continue, ..Op::Create { object }.into() })
    }
}

/// How to see the output of a callback.
fn output(pod: &str) -> String {
    format!("`kubectl logs {pod}` shows its output")
}

impl Failure {
    fn event(&self) -> Event {
        let Self { task, event, how, pod } = self;
        Event {
            regarding: None,
            kind: EventType::Warning,
            reason: "CallbackFailed".into(),
            message: format!("task {task}: the callback for {} {how}; {}", event.status, output(pod)),
            reporter: REPORTER,
            action: "Reconciling",
        }
    }
}
