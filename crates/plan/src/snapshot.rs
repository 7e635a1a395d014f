//! The runtime snapshot: a ConfigMap that freezes a TrainJob's runtime as it was when its children were first built (§2.5),
//! so that editing or deleting a runtime changes nothing for TrainJobs that run on it.

use crate::job::Job;
use crate::names::{SNAPSHOT_KEY, SUFFIX_RUNTIME_SNAPSHOT};
use crate::plugins::{BuildError, apply};
use crate::runtime::{Runtime, RuntimeKind};
use api::object::{self, Gvk, Target};
use reconcile::Op;
use serde_json::{Value, json};

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
pub fn read(job: &Job, kind: RuntimeKind, snapshot: &Value) -> Result<Runtime, BuildError> {
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
    let frozen: Value = serde_saphyr::from_str(text).map_err(|error| unreadable(&error))?;
    let found = (object::meta(&frozen, "name"), Gvk::of(&frozen));
    let reference = &job.runtime_ref;
    let differs = |expected: &Option<String>, found: &str| expected.as_deref().is_some_and(|e| e != found);
    if found.0 != reference.name
        || differs(&reference.api_group, &found.1.group)
        || differs(&reference.kind, &found.1.kind)
    {
        let any = |expected: &Option<String>| expected.clone().unwrap_or_else(|| "<any>".to_owned());
        return Err(fail(format!(
            "the snapshot refers to the wrong runtime: expecting a runtime with name, api group and kind of {:?}, {:?}, \
             {:?} but found runtime with name, api group and kind of {:?}, {:?}, {:?}",
            reference.name,
            any(&reference.api_group),
            any(&reference.kind),
            found.0,
            found.1.group,
            found.1.kind,
        )));
    }
    Runtime::parse(kind, &frozen).map_err(|error| unreadable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

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
