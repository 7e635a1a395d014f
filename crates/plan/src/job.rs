//! A TrainJob, parsed once: what the pipeline and its plugins read of it.
//!
//! Kubernetes' own parts (variables, resources, patches) stay values, so that nothing that a newer client wrote is lost.

use crate::annotations::Options;
use crate::names;
use api::object::{self, Key, Target};
use api::trainer::{Initializer, RuntimeRef, Trainer};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A TrainJob as the API server holds it: defaulted and valid by its schema. Whatever is malformed all the same reads as
/// absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub namespace: String,
    pub name: String,
    /// Empty before the object was stored (in admission).
    pub uid: String,
    pub created: Option<Timestamp>,
    pub terminating: bool,
    pub runtime_ref: RuntimeRef,
    pub initializer: Initializer,
    /// `spec.trainer`; `None` where the section is absent, which differs from an empty one.
    pub trainer: Option<Trainer>,
    /// `spec.runtimePatches`, in order.
    pub patches: Vec<Patch>,
    pub suspend: bool,
    /// `spec.activeDeadlineSeconds`, where it is more than zero.
    pub active_deadline_secs: Option<i64>,
    pub managed_by: Option<String>,
    /// What its annotations ask for beyond upstream's API.
    pub options: Options,
    /// The whole `status`; an empty object where there is none.
    pub status: Value,
}

/// One entry of `spec.runtimePatches`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    pub manager: String,
    pub time: Option<String>,
    /// `trainingRuntimeSpec.template`: `metadata` for the JobSet object, `spec` to merge over the runtime's.
    pub template: Option<Value>,
}

impl Job {
    /// Reads a TrainJob.
    pub fn parse(object: &Value) -> Self {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        Self {
            namespace: object::meta(object, "namespace").to_owned(),
            name: object::meta(object, "name").to_owned(),
            uid: object::uid(object).to_owned(),
            created: object::meta(object, "creationTimestamp").parse().ok(),
            terminating: object::is_terminating(object),
            runtime_ref: section(spec, "runtimeRef").unwrap_or_default(),
            initializer: section(spec, "initializer").unwrap_or_default(),
            trainer: section(spec, "trainer"),
            patches: list(spec, "runtimePatches").iter().map(patch).collect(),
            suspend: spec.get("suspend").and_then(Value::as_bool).unwrap_or(false),
            active_deadline_secs: spec.get("activeDeadlineSeconds").and_then(Value::as_i64).filter(|s| *s > 0),
            managed_by: string(spec, "managedBy"),
            options: Options::of(object),
            status: object.get("status").cloned().unwrap_or_else(|| json!({})),
        }
    }

    /// Whether this controller is the one to look after it; absent counts as ours.
    pub fn is_ours(&self) -> bool {
        self.managed_by.as_deref().is_none_or(|m| m == names::MANAGED_BY_TRAINER)
    }

    /// `trainer.numNodes`.
    pub fn num_nodes(&self) -> Option<i32> {
        self.trainer.as_ref().and_then(|t| t.num_nodes)
    }

    /// `trainer.numProcPerNode`.
    pub fn num_proc_per_node(&self) -> Option<i32> {
        self.trainer.as_ref().and_then(|t| t.num_proc_per_node)
    }

    /// Host name of the pod with rank 0, under the TrainJob's own headless Service.
    // Q-22 (kept): so upstream has it whatever the trainer's replicated job or the subdomain is called; recordings hold it.
    pub fn master_host(&self) -> String {
        format!("{0}-node-0-0.{0}", self.name)
    }

    /// The controller owner reference that every child carries.
    pub fn owner_reference(&self) -> Value {
        json!({
            "apiVersion": names::API_VERSION,
            "kind": "TrainJob",
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }

    /// A child in the TrainJob's namespace, owned by it, with `apiVersion`, `kind` and `metadata` filled in: plugins add
    /// the rest.
    pub fn child(&self, api_version: &str, kind: &str, name: &str) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "ownerReferences": [self.owner_reference()],
            },
        })
    }

    /// Names an object in the TrainJob's namespace.
    pub fn sibling(&self, api_version: &str, kind: &str, name: &str) -> Target {
        Target { gvk: object::Gvk::from_api_version(api_version, kind), key: Key::new(&self.namespace, name) }
    }
}

fn patch(value: &Value) -> Patch {
    Patch {
        manager: object::text(value, "manager").to_owned(),
        time: string(value, "time"),
        template: value.pointer("/trainingRuntimeSpec/template").filter(|t| t.is_object()).cloned(),
    }
}

/// A typed section; `None` where it is absent, or not what the schema says.
fn section<T: DeserializeOwned>(spec: &Value, member: &str) -> Option<T> {
    spec.get(member).filter(|m| m.is_object()).and_then(|m| T::deserialize(m).ok())
}

fn string(value: &Value, member: &str) -> Option<String> {
    value.get(member).and_then(Value::as_str).map(str::to_owned)
}

/// A list member; empty where absent.
pub(crate) fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A list of strings; `None` where absent, `Some([])` where empty.
pub(crate) fn strings(value: &Value, member: &str) -> Option<Vec<String>> {
    let items = value.get(member)?.as_array()?;
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
