//! Jobs from creation to end, on a world in memory.
//!
//! [`recorded`] plays the recordings of the real controllers (`e2e/golden/job`) in virtual time: what the API server would
//! refuse or fill in is not this crate's matter, so scenarios about that are left to the replay against a server.

use super::{JobController, PodFinalizerController, job_gvk, pod_gvk};
use api::object::{self, Key, Target};
use reconcile::testing::{Model, merge};
use reconcile::{Next, Propagation, World};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What the API server fills into a Job.
pub(super) fn with_defaults(mut job: Value) -> Value {
    let name = object::meta(&job, "name").to_owned();
    let uid = format!("uid-of-{name}");
    job["metadata"]["uid"] = uid.clone().into();
    job["metadata"]["namespace"] = "ns".into();
    let spec = &mut job["spec"];
    let has = |spec: &Value, member: &str| spec.get(member).is_some();
    if !has(spec, "completions") && !has(spec, "parallelism") {
        spec["completions"] = 1.into();
    }
    let limit = if has(spec, "backoffLimitPerIndex") { json!(i32::MAX) } else { json!(6) };
    let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    for (member, value) in [
        ("backoffLimit", limit),
        ("completionMode", json!("NonIndexed")),
        ("parallelism", json!(1)),
        ("podReplacementPolicy", json!(replacement)),
        ("suspend", json!(false)),
    ] {
        if !has(spec, member) {
            spec[member] = value;
        }
    }
    if spec["manualSelector"] != true {
        spec["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        let labels = json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
            "controller-uid": uid, "job-name": name});
        merge(&mut spec["template"], &json!({"metadata": {"labels": labels}}));
    }
    merge(&mut spec["template"], &json!({"spec": {"terminationGracePeriodSeconds": 30}}));
    job["status"] = json!({});
    job
}

/// A control plane of one namespace: the Job controllers, and a kubelet that the test directs.
struct Play {
    model: Model,
}

impl Play {
    fn of(jobs: impl IntoIterator<Item = Value>) -> Self {
        let mut play = Self { model: Model::default() };
        for job in jobs {
            play.model.put(with_defaults(job));
        }
        play
    }

    /// Reconciles everything until nothing changes; returns the shortest time after which something wants to look again.
    fn rest(&mut self) -> Option<jiff::SignedDuration> {
        loop {
            let (before, mut wait) = (self.model.writes.len(), None);
            for (kind, gvk) in [("Job", job_gvk()), ("Pod", pod_gvk())] {
                for held in self.model.all(kind) {
                    let target = Target { gvk: gvk.clone(), key: Key::of(&held) };
                    let next = match kind {
                        "Job" => self.model.run(&JobController, &target),
                        _ => self.model.run(&PodFinalizerController, &target),
                    };
                    if let Next::After(delay) = next {
                        wait = wait.into_iter().chain([delay]).min();
                    }
                }
            }
            self.collect();
            if self.model.writes.len() == before {
                return wait;
            }
        }
    }

    /// What garbage collection does to pods: they go when their Job is gone or waits for them; orphaned, they lose it.
    fn collect(&mut self) {
        for pod in self.model.all("Pod") {
            let Some(owner) = object::controller_of(&pod) else { continue };
            let job = self.model.one("Job", object::text(owner, "name"));
            let finalizers = job.as_ref().map(|job| job["metadata"]["finalizers"].clone()).unwrap_or_default();
            let has = |name: &str| finalizers.as_array().is_some_and(|list| list.iter().any(|f| f == name));
            let target = Target::of(&pod);
            if has("orphan") {
                self.model.change(&pod_gvk(), &target.key, |pod| {
                    pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
                });
            } else if (job.is_none() || has("foregroundDeletion")) && !object::is_terminating(&pod) {
                self.model.delete(&target, Propagation::Background, None);
            } else {
                continue;
            }
            self.model.writes.push("collected".to_owned());
        }
        for job in self.model.all("Job").iter().filter(|job| object::is_terminating(job)) {
            if self.model.owned_by(&pod_gvk(), object::uid(job)).is_empty() {
                self.model.change(&job_gvk(), &Key::of(job), |job| job["metadata"]["finalizers"] = json!([]));
                self.model.writes.push("collected".to_owned());
            }
        }
    }

    /// Lets up to this many seconds pass, in steps of one, until `done`.
    fn wait(&mut self, seconds: i64, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..=seconds {
            self.rest();
            if done(self) {
                return true;
            }
            self.model.pass(1);
        }
        false
    }

    fn status(&self, name: &str) -> Value {
        self.model.one("Job", name).map(|job| job["status"].clone()).unwrap_or_default()
    }

    fn condition(&self, name: &str, kind: &str) -> bool {
        let status = self.status(name);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
    }

    /// Writes a status into the pods that have not ended and that the arguments of a `pods:` step select.
    fn kubelet(&mut self, step: &Value) {
        let terminating = step["terminating"] == true;
        let alive = |pod: &Value| {
            selected(pod, step["selector"].as_str().unwrap_or_default())
                && object::is_terminating(pod) == terminating
                && !object::has_ended(pod)
        };
        let pods: Vec<_> = self.model.all("Pod").into_iter().filter(|pod| alive(pod)).collect();
        let count = step["count"].as_u64().unwrap_or(1) as usize;
        assert!(pods.len() >= count, "{} pods for {step}", pods.len());
        let now = self.model.now.to_string();
        for pod in pods.iter().take(step["limit"].as_u64().unwrap_or(u64::MAX) as usize) {
            let status = kubelet_status(pod, step, &now);
            self.model.change(&pod_gvk(), &Key::of(pod), |pod| pod["status"] = status);
        }
    }
}

/// Whether the object meets a selector of the forms `a=b`, `a in (b,c)`, joined by nothing or commas outside parentheses.
fn selected(object: &Value, selector: &str) -> bool {
    match selector.split_once(" in (") {
        Some((label, values)) => {
            let value = object::label(object, label).unwrap_or_default();
            values.trim_end_matches(')').split(',').any(|v| v == value)
        }
        None => selector.split(',').filter(|part| !part.is_empty()).all(|part| {
            let (label, value) = part.split_once('=').expect("a=b");
            object::label(object, label) == Some(value)
        }),
    }
}

fn kubelet_status(pod: &Value, step: &Value, now: &str) -> Value {
    let phase = step["phase"].as_str().expect("a phase");
    let ended = matches!(phase, "Succeeded" | "Failed");
    let code = step["exitCode"].as_i64().unwrap_or(i64::from(phase == "Failed"));
    let ready = !ended && step["ready"] != false;
    let container = |container: &Value| {
        let state = if ended {
            json!({"terminated": {"exitCode": code, "finishedAt": now}})
        } else {
            json!({"running": {"startedAt": now}})
        };
        let restarts = step["restarts"].as_u64().unwrap_or(0);
        json!({"name": container["name"], "restartCount": restarts, "ready": ready, "state": state})
    };
    let containers: Vec<Value> = pod["spec"]["containers"].as_array().into_iter().flatten().map(container).collect();
    let word = if ready { "True" } else { "False" };
    let mut conditions = vec![json!({"type": "Ready", "status": word, "lastTransitionTime": now})];
    conditions.extend(step["conditions"].as_array().cloned().unwrap_or_default());
    json!({"phase": phase, "conditions": conditions, "containerStatuses": containers})
}

// ------------------------------------------------------------------------------------------------------- recordings

/// Scenarios about what the API server refuses, fills in or prints: nothing for controllers to do in them.
const SERVER_ONLY: &[&str] = &[
    "job-defaults",
    "job-immutable-fields",
    "job-invalid-per-index",
    "job-invalid-pod-failure-policy",
    "job-invalid-spec",
    "job-invalid-success-policy",
    "job-managed-by",
    "job-pod-creation-refused",
    "job-status-validation",
    "job-suspend-edit-template",
    "job-eviction-api",
    "job-managed-by-builtin",
    "job-table",
];

/// Replaces times and generated name tails.
fn plain(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), plain(v, names))).collect()),
        Value::Array(list) => list.iter().map(|v| plain(v, names)).collect(),
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "<time>".into(),
        Value::String(text) => {
            let mut text = text.clone();
            for (name, plain) in names {
                text = text.replace(name, plain);
            }
            text.into()
        }
        other => other.clone(),
    }
}

/// What a recording and our world have to agree in: a Job's whole status, and of pods what the controller decides.
fn essence(object: &Value, names: &BTreeMap<String, String>) -> String {
    let kind = object::text(object, "kind");
    let meta = &object["metadata"];
    let mut out = json!({"kind": kind, "name": meta["name"]});
    match kind {
        "Job" => {
            out["status"] = object["status"].clone();
            out["generation"] = meta["generation"].clone();
        }
        "Pod" => {
            for member in ["annotations", "finalizers", "generateName"] {
                out[member] = meta.get(member).cloned().unwrap_or_default();
            }
            let labels = meta["labels"].as_object().into_iter().flatten().map(|(label, _)| label.clone());
            out["labels"] = labels.collect::<Vec<_>>().into();
            out["owners"] = meta["ownerReferences"].as_array().map(|owners| owners.len()).unwrap_or_default().into();
            out["terminating"] = object::is_terminating(object).into();
            out["phase"] = object["status"]["phase"].as_str().unwrap_or("Pending").into();
            out["hostname"] = object["spec"]["hostname"].clone();
            out["env"] = object["spec"]["containers"][0]["env"]
                .as_array()
                .map(|env| env.iter().map(|v| v["name"].clone()).collect())
                .unwrap_or_default();
        }
        _ => {}
    }
    plain(&out, names).to_string()
}

fn play(folder: &Path) -> Result<(), String> {
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(folder.join(file)).expect("a recording");
        serde_saphyr::from_str(&text).expect("YAML")
    };
    let (scenario, expected) = (read("scenario.yaml"), read("expected.yaml"));
    let mut play = Play::of([]);
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut before: BTreeMap<(String, String), Value> = BTreeMap::new();
    let steps = scenario["steps"].as_array().expect("steps");
    for (at, (step, want)) in steps.iter().zip(expected.as_array().expect("results")).enumerate() {
        let (verb, arg) = step.as_object().and_then(|step| step.iter().next()).expect("one verb");
        let at = format!("step {}, {verb}", at + 1);
        match verb.as_str() {
            "create" if arg["kind"] == "Job" => _ = play.model.put(with_defaults(arg.clone())),
            "create" if arg["kind"] == "Node" => {}
            "pods" => {
                let enough = |play: &Play| play.model.all("Pod").len() >= arg["count"].as_u64().unwrap_or(1) as usize;
                play.wait(5, enough);
                play.kubelet(arg);
            }
            "patch" => {
                let key = Key::new("ns", arg["name"].as_str().expect("a name"));
                play.model.change(&job_gvk(), &key, |job| merge(job, &arg["body"]));
            }
            "delete" => {
                let key = Key::new("ns", arg["name"].as_str().expect("a name"));
                let policy = match arg["propagation"].as_str() {
                    Some("Background") => Propagation::Background,
                    Some("Foreground") => Propagation::Foreground,
                    _ => Propagation::Orphan,
                };
                play.model.delete(&Target { gvk: job_gvk(), key }, policy, None);
            }
            "request" if arg["method"] == "DELETE" => {
                let query = arg["path"].as_str().and_then(|path| path.split_once('?')).map_or("", |(_, query)| query);
                let parameter = |name: &str| {
                    let value = query.split('&').find_map(|part| part.strip_prefix(&format!("{name}=")));
                    value.map(|value| value.replace("%3D", "=")).unwrap_or_default()
                };
                let phase = parameter("fieldSelector").replace("status.phase=", "");
                let grace = parameter("gracePeriodSeconds").parse().ok();
                for pod in play.model.all("Pod") {
                    if selected(&pod, &parameter("labelSelector"))
                        && (phase.is_empty() || pod["status"]["phase"] == *phase)
                    {
                        play.model.delete(&Target::of(&pod), Propagation::Background, grace);
                    }
                }
            }
            "wait" => {
                let kind = arg["kind"].as_str().expect("a kind");
                let name = arg["name"].as_str();
                let met = play.wait(arg["timeout"].as_i64().unwrap_or(10), |play| match name {
                    Some(name) if arg["absent"] == true => play.model.one(kind, name).is_none(),
                    Some(name) => play.condition(name, arg["condition"].as_str().expect("a condition")),
                    None if arg["absent"] == true => play.model.all(kind).is_empty(),
                    None => play.model.all(kind).len() as u64 == arg["count"].as_u64().expect("a count"),
                });
                if !met {
                    return Err(format!("{at}: not met: {arg}; {:#?}", play.model.all("Job")));
                }
            }
            "settle" => {
                play.wait(2, |_| false);
                let mut got: Vec<Value> = play.model.all("Job").iter().map(|o| (**o).clone()).collect();
                if arg["kinds"].as_array().is_some_and(|kinds| kinds.contains(&"Pod".into())) {
                    got.extend(play.model.all("Pod").iter().map(|o| (**o).clone()));
                }
                for pod in play.model.all("Pod") {
                    let stem: String = object::meta(&pod, "generateName").chars().take(58).collect();
                    names.insert(object::meta(&pod, "name").to_owned(), format!("{stem}<rand>"));
                }
                let mut wanted: Vec<Value> = want["objects"].as_array().cloned().unwrap_or_default();
                for object in &mut wanted {
                    let id = (object::text(object, "kind").to_owned(), object::meta(object, "name").to_owned());
                    match before.get(&id) {
                        Some(held) if object["unchanged"] == true => *object = held.clone(),
                        _ => _ = before.insert(id, object.clone()),
                    }
                }
                let lines = |objects: &[Value]| {
                    let mut lines: Vec<String> = objects.iter().map(|object| essence(object, &names)).collect();
                    lines.sort();
                    lines.join("\n")
                };
                let (got, wanted) = (lines(&got), lines(&wanted).replace(&format!("{}/", file_name(folder)), "ns/"));
                if got != wanted {
                    return Err(format!("{at}\n  want:\n{wanted}\n  got:\n{got}"));
                }
                play.model.pass(1);
            }
            "events" => {
                let wanted: BTreeSet<String> = want["events"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .filter_map(|line| line.strip_prefix("Job/")?.split_once(' ').map(|(_, event)| event.to_owned()))
                    .map(|line| line.replace(&file_name(folder), "ns"))
                    .collect();
                let tail = |line: &String| {
                    let line = plain(&line.as_str().into(), &names).as_str().expect("text").to_owned();
                    match line.rsplit_once('-') {
                        Some((head, tail)) if line.contains(" pod: ") && tail.len() == 5 => format!("{head}-<rand>"),
                        _ => line,
                    }
                };
                let got: BTreeSet<String> = play.model.events.iter().map(tail).collect();
                if got != wanted {
                    return Err(format!("{at}\n  want: {wanted:#?}\n  got: {got:#?}"));
                }
            }
            _ => return Err(format!("{at}: no such step: {arg}")),
        }
    }
    Ok(())
}

fn file_name(folder: &Path) -> String {
    folder.file_name().expect("a folder").to_string_lossy().into_owned()
}

#[test]
fn recorded() {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/golden/job");
    let mut folders: Vec<_> =
        std::fs::read_dir(goldens).expect("recordings").map(|e| e.expect("a folder").path()).collect();
    folders.sort();
    let played: Vec<_> = folders.iter().filter(|f| !SERVER_ONLY.contains(&file_name(f).as_str())).collect();
    assert!(played.len() >= 30, "only {} scenarios", played.len());
    let wrong: Vec<_> = played
        .into_iter()
        .filter_map(|folder| play(folder).err().map(|error| format!("{}: {error}", file_name(folder))))
        .collect();
    assert!(wrong.is_empty(), "{} scenarios differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

// ------------------------------------------------------------------------------------------------ beyond the recordings

fn job(spec: Value) -> Value {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec});
    merge(
        &mut job["spec"],
        &json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}}),
    );
    job
}

fn patch(play: &mut Play, over: Value) {
    play.model.change(&job_gvk(), &Key::new("ns", "j"), |job| merge(job, &over));
}

fn pods(play: &Play) -> Vec<String> {
    play.model.all("Pod").iter().map(|pod| object::meta(pod, "name").to_owned()).collect()
}

#[test]
fn a_refused_pod_warns_and_is_tried_again() {
    let mut play = Play::of([job(json!({"completions": 3, "parallelism": 3}))]);
    play.model.refuse = Some(|line| line.starts_with("create Pod").then(|| "pods \"j-\" is forbidden: no".to_owned()));
    play.rest();
    let status = play.status("j");
    assert_eq!((status.get("active"), &status["ready"], status.get("startTime").is_some()), (None, &json!(0), true));
    let refused = "Warning FailedCreate: Error creating: pods \"j-\" is forbidden: no";
    let count = play.model.events.len();
    assert!(play.model.events.iter().all(|event| event == refused), "{:?}", play.model.events);
    // once the status owes nothing, one refusal ends the pass
    play.model.run(&JobController, &Target { gvk: job_gvk(), key: Key::new("ns", "j") });
    assert_eq!(play.model.events.len(), count + 1);
    play.model.refuse = None;
    play.rest();
    assert_eq!(play.status("j")["active"], 3);
}

#[test]
fn the_status_counts_the_pods_that_its_own_look_makes() {
    let mut play = Play::of([job(json!({"completions": 3, "parallelism": 3}))]);
    play.model.run(&JobController, &Target { gvk: job_gvk(), key: Key::new("ns", "j") });
    let status = play.status("j");
    assert_eq!((pods(&play).len(), &status["active"], &status["ready"]), (3, &json!(3), &json!(0)));
    play.rest();
    let written = play.model.writes.iter().filter(|line| line.starts_with("status")).count();
    assert_eq!(written, 1, "{:?}", play.model.writes);
}

#[test]
fn pods_are_counted_while_others_are_refused() {
    let spec = json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
    let mut play = Play::of([job(spec)]);
    play.rest();
    play.model.refuse = Some(|line| line.starts_with("create Pod").then(|| "not yet".to_owned()));
    play.kubelet(&json!({"phase": "Failed"}));
    play.rest();
    let status = play.status("j");
    assert_eq!((&status["failed"], &status["failedIndexes"]), (&json!(1), &json!("0")), "{status}");
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
}

#[test]
fn a_quota_lets_some_pods_through() {
    let mut play = Play::of([job(json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"}))]);
    play.model.refuse = Some(|line| line.starts_with("create Pod j-2-").then(|| "exceeded quota".to_owned()));
    play.rest();
    assert_eq!((pods(&play).len(), &play.status("j")["active"]), (2, &json!(2)));
    let created = play.model.events.iter().filter(|event| event.contains("SuccessfulCreate")).count();
    assert_eq!(created, 2, "{:?}", play.model.events);
}

#[test]
fn pods_are_made_in_batches_as_long_as_none_is_refused() {
    let mut play = Play::of([job(json!({"completions": 7, "parallelism": 7, "completionMode": "Indexed"}))]);
    play.model.refuse = Some(|line| line.starts_with("create Pod j-1-").then(|| "no".to_owned()));
    play.model.run(&JobController, &Target { gvk: job_gvk(), key: Key::new("ns", "j") });
    let made: Vec<_> =
        play.model.all("Pod").iter().map(|pod| object::annotation(pod, super::INDEX).map(str::to_owned)).collect();
    assert_eq!(made, [Some("0".to_owned()), Some("2".to_owned())]);
    play.model.refuse = None;
    play.rest();
    assert_eq!(play.status("j")["active"], 7);
}

#[test]
fn the_deadline_starts_anew_on_resume() {
    let mut play = Play::of([job(json!({"activeDeadlineSeconds": 10, "suspend": true}))]);
    play.rest();
    play.model.pass(60);
    patch(&mut play, json!({"spec": {"suspend": false}}));
    assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(10)));
    play.model.pass(9);
    assert!(play.rest().is_some() && !play.condition("j", "Failed"));
    play.model.pass(1);
    assert!(play.wait(1, |play| play.condition("j", "Failed")));
    assert_eq!(play.model.all("Pod").len(), 0);
}

#[test]
fn time_to_live_counts_from_the_end_even_if_set_later() {
    let mut play = Play::of([job(json!({}))]);
    play.rest();
    play.kubelet(&json!({"phase": "Succeeded"}));
    assert_eq!(play.rest(), None);
    play.model.pass(100);
    patch(&mut play, json!({"spec": {"ttlSecondsAfterFinished": 160}}));
    assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(60)));
    play.model.pass(60);
    play.rest();
    assert_eq!((play.model.all("Job").len(), play.model.all("Pod").len()), (0, 0));
}

#[test]
fn strangers_are_left_alone() {
    let spec = json!({"managedBy": "example.com/other"});
    let mut play = Play::of([job(spec)]);
    play.rest();
    assert_eq!((play.status("j"), pods(&play).len()), (json!({}), 0));
}

#[test]
fn pods_are_adopted_and_given_up_by_labels() {
    let mut play = Play::of([job(json!({"parallelism": 2, "completions": 2}))]);
    let labels = json!({"batch.kubernetes.io/controller-uid": "uid-of-j"});
    let orphan = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "orphan", "labels": labels},
        "spec": {"containers": [{"name": "main"}]}});
    play.model.put(orphan);
    play.rest();
    let orphan = play.model.one("Pod", "orphan").expect("it stays");
    assert_eq!(object::controller_of(&orphan).map(|owner| object::text(owner, "uid")), Some("uid-of-j"));
    assert_eq!(orphan["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
    assert_eq!((pods(&play).len(), &play.status("j")["active"]), (2, &json!(2)));

    play.model.change(&pod_gvk(), &Key::new("ns", "orphan"), |pod| pod["metadata"]["labels"] = json!({}));
    play.rest();
    let given_up = play.model.one("Pod", "orphan").expect("it stays");
    assert!(given_up["metadata"].get("ownerReferences").is_none() && given_up["metadata"].get("finalizers").is_none());
    assert_eq!((pods(&play).len(), &play.status("j")["active"]), (3, &json!(2)));
}

#[test]
fn pods_that_were_given_up_keep_their_names() {
    for mode in ["Indexed", "NonIndexed"] {
        let name = "j".repeat(63);
        let mut job = job(json!({"parallelism": 2, "completions": 2, "completionMode": mode}));
        job["metadata"]["name"] = name.as_str().into();
        let mut play = Play::of([job]);
        play.rest();
        for round in 1..=2 {
            for pod in play.model.all("Pod") {
                play.model.change(&pod_gvk(), &Key::of(&pod), |pod| pod["metadata"]["labels"] = json!({}));
            }
            play.rest();
            assert_eq!((pods(&play).len(), &play.status(&name)["active"]), (2 + 2 * round, &json!(2)), "{mode}");
        }
    }
}

#[test]
fn lower_parallelism_takes_pending_pods_first() {
    let mut play = Play::of([job(json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed"}))]);
    play.rest();
    play.kubelet(&json!({"phase": "Running", "selector": "batch.kubernetes.io/job-completion-index=2"}));
    patch(&mut play, json!({"spec": {"parallelism": 1}}));
    play.rest();
    let left = play.model.all("Pod");
    assert_eq!((left.len(), object::annotation(&left[0], super::INDEX)), (1, Some("2")));
    let status = play.status("j");
    assert_eq!((status.get("failed"), &status["active"]), (None, &json!(1)));
}

#[test]
fn a_success_ends_the_backoff() {
    let mut play = Play::of([job(json!({"parallelism": 2, "completions": 3}))]);
    play.rest();
    play.kubelet(&json!({"phase": "Failed", "limit": 1}));
    assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(10)));
    play.model.pass(2);
    play.kubelet(&json!({"phase": "Succeeded", "limit": 1}));
    play.rest();
    assert_eq!(play.status("j")["active"], 2);
}

#[test]
fn failures_in_a_row_double_the_wait() {
    let mut play = Play::of([job(json!({}))]);
    for seconds in [10, 20, 40, 80] {
        play.rest();
        play.kubelet(&json!({"phase": "Failed"}));
        let pods = pods(&play).len();
        assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(seconds)));
        play.model.pass(seconds);
        play.rest();
        assert_eq!(play.model.all("Pod").len(), pods + 1);
    }
}

#[test]
fn ignored_failures_wait_too() {
    let policy = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]});
    let mut play = Play::of([job(json!({"backoffLimit": 0, "podFailurePolicy": policy}))]);
    for seconds in [10, 20] {
        play.rest();
        play.kubelet(&json!({"phase": "Failed", "exitCode": 7}));
        assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(seconds)));
        play.model.pass(seconds);
    }
    play.rest();
    let status = play.status("j");
    assert_eq!((status.get("failed"), &status["active"]), (None, &json!(1)));
}

#[test]
fn ignored_failures_of_an_index_are_counted_apart() {
    let policy = json!({"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]});
    let spec = json!({"completionMode": "Indexed", "backoffLimitPerIndex": 1, "podFailurePolicy": policy});
    let mut play = Play::of([job(spec)]);
    let mut seen = Vec::new();
    for code in [7, 1, 7, 1] {
        play.wait(700, |play| play.status("j")["active"] == 1);
        let newest = play.model.all("Pod").into_iter().find(|pod| pod["status"].get("phase").is_none()).expect("a pod");
        let note = |name| object::annotation(&newest, name).unwrap_or("-").to_owned();
        seen.push((note(super::INDEX_FAILURES), note(super::INDEX_IGNORED_FAILURES)));
        play.kubelet(&json!({"phase": "Failed", "exitCode": code}));
    }
    play.rest();
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(seen, [pair("0", "-"), pair("0", "1"), pair("1", "1"), pair("1", "2")]);
    let status = play.status("j");
    assert_eq!((&status["failedIndexes"], &status["failed"]), (&json!("0"), &json!(2)));
    assert!(play.condition("j", "Failed"));
}

#[test]
fn an_elastic_job_forgets_what_is_beyond_its_size() {
    let mut play = Play::of([job(json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4}))]);
    play.rest();
    for index in [1, 3] {
        let selector = format!("batch.kubernetes.io/job-completion-index={index}");
        play.kubelet(&json!({"phase": "Succeeded", "selector": selector}));
    }
    play.rest();
    assert_eq!(play.status("j")["completedIndexes"], "1,3");
    patch(&mut play, json!({"spec": {"completions": 2, "parallelism": 2}}));
    play.rest();
    let status = play.status("j");
    assert_eq!((&status["completedIndexes"], &status["succeeded"]), (&json!("1"), &json!(1)));
    assert_eq!(status["active"], 1);
}

#[test]
fn pods_that_end_with_the_one_that_fails_the_job_are_not_deleted() {
    let mut play = Play::of([job(json!({"completions": 3, "parallelism": 3, "backoffLimit": 0}))]);
    play.rest();
    play.kubelet(&json!({"phase": "Failed", "limit": 1}));
    assert_eq!(play.rest(), Some(jiff::SignedDuration::from_secs(1)));
    assert!(play.condition("j", "FailureTarget"));
    play.kubelet(&json!({"phase": "Failed", "limit": 1}));
    assert!(play.wait(2, |play| play.condition("j", "Failed")));
    let deleted = play.model.events.iter().filter(|event| event.contains("SuccessfulDelete")).count();
    assert_eq!((deleted, &play.status("j")["failed"], play.model.all("Pod").len()), (1, &json!(3), 2));
    let annotations = play.model.one("Job", "j").expect("it stays")["metadata"]["annotations"].clone();
    assert!(annotations.get("trainyard.dev/job-ending-since").is_none());
}

#[test]
fn at_rest_nothing_is_written() {
    let mut play = Play::of([job(json!({"completions": 2, "parallelism": 2}))]);
    play.rest();
    let target = Target { gvk: job_gvk(), key: Key::new("ns", "j") };
    let decision = play.model.decide(&JobController, &target).expect("a Job");
    assert!(decision.is_silent(), "{decision:?}");
    play.kubelet(&json!({"phase": "Succeeded", "count": 2}));
    play.rest();
    let decision = play.model.decide(&JobController, &target).expect("a Job");
    assert!(decision.is_silent() && play.condition("j", "Complete"), "{decision:?}");
}

#[test]
fn a_job_costs_few_writes() {
    let mut play = Play::of([job(json!({"completions": 2, "parallelism": 2}))]);
    play.rest();
    play.kubelet(&json!({"phase": "Succeeded", "count": 2}));
    play.rest();
    let statuses = play.model.writes.iter().filter(|line| line.starts_with("status")).count();
    assert!(statuses <= 4, "{:?}", play.model.writes);
}

/// Seconds at their limits once made 40 Jobs panic all workers.
#[test]
fn no_number_of_seconds_is_too_large() {
    for seconds in [1, 1_000_000_000_000, i64::MAX] {
        let spec =
            json!({"activeDeadlineSeconds": seconds, "ttlSecondsAfterFinished": i32::MAX, "backoffLimit": i32::MAX});
        let mut play = Play::of([job(spec)]);
        play.rest();
        assert_eq!(pods(&play).len(), 1, "{seconds}");
        play.kubelet(&json!({"phase": "Succeeded"}));
        // what is left of the time to live, which rustc's own arithmetic could not hold
        assert!(play.rest().is_some_and(|left| left.as_secs() > 1_000_000_000), "{seconds}");
    }
}

#[test]
fn pods_that_end_together_decide_together() {
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 2});
        merge(&mut spec, &more);
        spec
    };
    let policy = json!({"successPolicy": {"rules": [{"succeededCount": 2}]}});
    let cases = [
        (json!({"backoffLimitPerIndex": 0, "backoffLimit": 1}), "Failed", "Failed", 2),
        (json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}), "Failed", "Failed", 2),
        (policy, "Succeeded", "SuccessCriteriaMet", 2),
        // nothing is decided: the next index is made at once
        (json!({}), "Succeeded", "Complete", 4),
    ];
    for (more, phase, condition, made) in cases {
        let mut play = Play::of([job(indexed(more.clone()))]);
        play.rest();
        play.kubelet(&json!({"phase": phase, "limit": 1}));
        let wait = play.rest();
        assert_eq!(wait.is_some_and(|wait| wait.as_millis() <= 1250), made == 2, "{more}: {wait:?}");
        play.kubelet(&json!({"phase": phase, "limit": 1}));
        let done = (0..4).any(|_| {
            play.wait(2, |_| false);
            let done = play.condition("j", condition);
            play.kubelet(&json!({"phase": phase, "count": 0}));
            done
        });
        let created = play.model.events.iter().filter(|event| event.contains("SuccessfulCreate")).count();
        assert_eq!((done, created), (true, made), "{more}: {:?}", play.model.events);
    }
    let mut play = Play::of([job(indexed(json!({"backoffLimitPerIndex": 0})))]);
    play.rest();
    play.kubelet(&json!({"phase": "Failed", "limit": 1}));
    assert!(play.wait(2, |play| play.status("j")["active"] == 2), "the next index comes");
}

#[test]
fn what_is_written_about_completed_indexes_counts_with_the_next_change() {
    let mut play = Play::of([job(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}))]);
    play.rest();
    patch(&mut play, json!({"status": {"completedIndexes": "0"}}));
    play.rest();
    let told = |play: &Play| play.status("j").get("succeeded").cloned();
    assert_eq!(told(&play), None);
    play.kubelet(&json!({"phase": "Running", "limit": 1}));
    play.rest();
    assert_eq!(told(&play), Some(json!(1)));
}

#[test]
fn pods_of_an_ending_job_do_not_become_ready() {
    let mut made = job(json!({"completions": 2, "parallelism": 2, "backoffLimit": 1}));
    merge(&mut made, &json!({"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}));
    let mut play = Play::of([made]);
    play.rest();
    play.kubelet(&json!({"phase": "Running", "restarts": 1}));
    play.rest();
    let status = play.status("j");
    assert!(play.condition("j", "FailureTarget"), "{status}");
    assert_eq!((&status["ready"], &status["active"]), (&json!(0), &json!(2)));
}
