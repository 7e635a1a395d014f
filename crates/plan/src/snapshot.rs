//! The runtime snapshot: a ConfigMap that freezes a TrainJob's runtime as it was when its children were first built,
//! so that editing or deleting a runtime changes nothing for TrainJobs that run on it.
//! Source: upstream's `pkg/runtime/core/snapshot.go`.

use crate::job::Job;
use crate::names::{SNAPSHOT_KEY, SUFFIX_RUNTIME_SNAPSHOT};
use crate::plugins::{BuildError, apply};
use crate::runtime::{Runtime, RuntimeKind};
use api::object::{self, Gvk, Target};
use objects::memo::Memo;
use reconcile::Op;
use serde_json::{Value, json};
use std::sync::Arc;

/// Runtimes that are remembered; all are forgotten when there are more.
const REMEMBERED_MAX: usize = 64;
/// Bytes of the longest text that is remembered.
const TEXT_MAX: usize = 64 * 1024;

/// Runtimes out of snapshots, by their text: thousands of TrainJobs run on a few, and to read one takes longer than all the
/// rest of a decision. Forgetting them costs time and changes nothing else.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Memo<Arc<Frozen>>>);

impl Default for Memory {
    fn default() -> Self {
        Self(Arc::new(Memo::new(REMEMBERED_MAX)))
    }
}

/// What a snapshot holds.
#[derive(Debug)]
struct Frozen {
    name: String,
    gvk: Gvk,
    runtime: Arc<Runtime>,
}

impl Memory {
    fn recall(&self, text: &str) -> Option<Arc<Frozen>> {
        self.0.recall(text)
    }

    fn keep(&self, text: &str, frozen: &Arc<Frozen>) {
        if text.len() <= TEXT_MAX {
            self.0.keep(text, frozen.clone());
        }
    }
}

/// The snapshot of a TrainJob.
pub fn target(job: &Job) -> Target {
    job.sibling("v1", "ConfigMap", &name(job))
}

fn name(job: &Job) -> String {
    format!("{}{SUFFIX_RUNTIME_SNAPSHOT}", job.name)
}

/// The ConfigMap that holds this runtime. What the API server keeps books in (managed fields) is left out.
pub fn of(job: &Job, kind: RuntimeKind, runtime: &Value) -> Result<Op, BuildError> {
    let mut frozen = runtime.clone();
    frozen["apiVersion"] = json!(crate::names::API_VERSION);
    frozen["kind"] = json!(kind.as_str());
    if let Some(metadata) = frozen.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(spec) = frozen.pointer_mut("/spec/template/spec") {
        let fail = |error| BuildError::new(format!("creating runtime snapshot: {error}"));
        crate::typed::normalize(spec).map_err(fail)?;
    }
    let text = serde_saphyr::to_string(&frozen)
        .map_err(|error| BuildError::new(format!("creating runtime snapshot: {error}")))?;
    let mut object = job.child("v1", "ConfigMap", &name(job));
    object["data"] = json!({SNAPSHOT_KEY: text});
    Ok(apply(object))
}

/// The runtime that a snapshot holds, if it is this TrainJob's and of its runtime. Reads what upstream wrote, too.
pub fn read(job: &Job, kind: RuntimeKind, snapshot: &Value, memory: &Memory) -> Result<Arc<Runtime>, BuildError> {
    let fail = |what: String| {
        let prefix = match kind {
            RuntimeKind::TrainingRuntime => "unable to get runtime snapshot",
            RuntimeKind::ClusterTrainingRuntime => "getting runtime snapshot",
        };
        BuildError::new(format!("{prefix}: invalid runtime snapshot: {what}"))
    };
    if object::controller_of(snapshot).is_none_or(|owner| object::text(owner, "uid") != job.uid) {
        return Err(fail("a snapshot configmap exists but is owned by another object".to_owned()));
    }
    let text = snapshot.get("data").and_then(|data| data.get(SNAPSHOT_KEY)).and_then(Value::as_str);
    let text = text.ok_or_else(|| fail(format!("snapshot ConfigMap missing {SNAPSHOT_KEY:?} data key")))?;
    let unreadable = |error: &dyn std::fmt::Display| {
        // The parser's drawing of the place is of no use in an event.
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        fail(format!("unable to unmarshal the snapshot: {}", line.trim_start_matches("error: ")))
    };
    let frozen = match memory.recall(text) {
        Some(frozen) => frozen,
        None => {
            let object: Value = serde_saphyr::from_str(text).map_err(|error| unreadable(&error))?;
            let (name, gvk) = (object::meta(&object, "name").to_owned(), Gvk::of(&object));
            if let Some(fault) = mismatch(job, &name, &gvk) {
                return Err(fail(fault));
            }
            let runtime = Runtime::parse(kind, &object).map_err(|error| unreadable(&error))?;
            let frozen = Arc::new(Frozen { name, gvk, runtime: Arc::new(runtime) });
            memory.keep(text, &frozen);
            frozen
        }
    };
    match mismatch(job, &frozen.name, &frozen.gvk) {
        Some(fault) => Err(fail(fault)),
        None => Ok(frozen.runtime.clone()),
    }
}

/// What is wrong with a snapshot of a runtime of this name and kind; `None` where it is the TrainJob's.
fn mismatch(job: &Job, name: &str, gvk: &Gvk) -> Option<String> {
    let reference = &job.runtime_ref;
    let differs = |expected: &Option<String>, found: &str| expected.as_deref().is_some_and(|e| e != found);
    let any = |expected: &Option<String>| expected.clone().unwrap_or_else(|| "<any>".to_owned());
    let is_other =
        name != reference.name || differs(&reference.api_group, &gvk.group) || differs(&reference.kind, &gvk.kind);
    is_other.then(|| {
        format!(
            "the snapshot refers to the wrong runtime: expecting a runtime with name, api group and kind of {:?}, {:?}, \
             {:?} but found runtime with name, api group and kind of {name:?}, {:?}, {:?}",
            reference.name,
            any(&reference.api_group),
            any(&reference.kind),
            gvk.group,
            gvk.kind,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The TrainJob `train` of this uid on this runtime, and a snapshot of that.
    fn frozen(uid: &str, runtime: &str, image: &str) -> (Job, Value) {
        let job =
            Job::parse(&json!({"metadata": {"name": "train", "namespace": "ns", "uid": uid}, "spec": {"runtimeRef":
            {"apiGroup": crate::names::GROUP, "kind": "TrainingRuntime", "name": runtime}}}));
        let object = json!({"metadata": {"name": runtime, "namespace": "ns"}, "spec": {"template": {"spec": {
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {
                "containers": [{"name": "node", "image": image}]}}}}}]}}}});
        match of(&job, RuntimeKind::TrainingRuntime, &object) {
            Ok(Op::Apply { object, .. }) => (job, object),
            other => panic!("no snapshot: {other:?}"),
        }
    }

    #[test]
    fn what_is_remembered_reads_the_same() {
        let memory = Memory::default();
        let kind = RuntimeKind::TrainingRuntime;
        let cases =
            [("u-1", "a", "x:1"), ("u-2", "a", "x:1"), ("u-3", "a", "x:2"), ("u-4", "b", "x:1"), ("u-1", "a", "x:1")];
        for (uid, runtime, image) in cases {
            let (job, snapshot) = frozen(uid, runtime, image);
            let fresh = read(&job, kind, &snapshot, &Memory::default()).expect("it is the TrainJob's");
            assert_eq!(read(&job, kind, &snapshot, &memory), Ok(fresh));
        }
        assert_eq!(memory.0.count(), 3);
        // a remembered text is no less wrong for another's TrainJob, or on another runtime
        let (own, snapshot) = frozen("u-1", "a", "x:1");
        let (stranger, _) = frozen("u-9", "a", "x:1");
        assert!(read(&stranger, kind, &snapshot, &memory).is_err_and(|e| e.0.contains("owned by another object")));
        let moved = Job { runtime_ref: frozen("u-1", "b", "x:1").0.runtime_ref, ..own };
        assert!(read(&moved, kind, &snapshot, &memory).is_err_and(|e| e.0.contains("refers to the wrong runtime")));
        let text = snapshot["data"][SNAPSHOT_KEY].as_str().expect("it has a text");
        let held = memory.recall(text).expect("it was read");
        for n in 0..3 * REMEMBERED_MAX {
            memory.keep(&n.to_string(), &held);
            assert!(memory.0.count() <= REMEMBERED_MAX);
        }
    }

    #[test]
    fn strings_that_look_like_something_else_survive() {
        let odd = [
            "y",
            "yes",
            "on",
            "no",
            "null",
            "~",
            "1",
            "010",
            "0x10",
            "1e3",
            "12:30",
            "1_000",
            ".5",
            "",
            " a",
            "a: b",
            "# c",
            "- d",
            "true",
            "2026-01-01",
            "*x",
            "&x",
            "!x",
            "%x",
            "@x",
            "`x",
            "a\nb",
            "a\nb\n",
            "ü",
            "=",
            "<<",
            "'",
        ];
        let map: serde_json::Map<_, _> = odd.iter().map(|o| ((*o).to_owned(), json!(o))).collect();
        let value = json!({"list": odd.to_vec(), "map": map});
        let text = serde_saphyr::to_string(&value).expect("values can be written");
        println!("{text}");
        let back: Value = serde_saphyr::from_str(&text).expect("what was written can be read");
        assert_eq!(back, value);
    }
}
