//! Says at a JobSet that the output of its pods is kept, so that its machines may go.

use api::jobset::{self, keys::JOBSET_NAME};
use api::object;
use api::sky::keys;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// A JobSet of a managed job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobPods {
    pub uid: String,
    /// Its pods have ended, or are being ended.
    pub has_ended: bool,
    /// It has the annotation.
    pub is_kept: bool,
}

impl JobPods {
    /// `None`: it is not a managed job's.
    pub fn of(jobset: &Value) -> Option<Self> {
        object::label(jobset, keys::MANAGED_JOB)?;
        let conditions = jobset["status"]["conditions"].as_array().into_iter().flatten();
        let is_end = |one: &Value| one["status"] == "True" && (one["type"] == "Completed" || one["type"] == "Failed");
        Some(Self {
            uid: object::uid(jobset).to_owned(),
            has_ended: object::annotation(jobset, keys::ENDED).is_some() || conditions.into_iter().any(is_end),
            is_kept: object::annotation(jobset, keys::OUTPUT_KEPT).is_some(),
        })
    }
}

/// Writes the annotation if the output of all pods of an ended JobSet is kept. `done`: pods whose output is.
pub(super) async fn mark(client: Client, namespace: String, name: String, uid: String, done: BTreeSet<String>) {
    loop {
        match mark_once(&client, &namespace, &name, &uid, &done).await {
            // it is gone, or another one has its name
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return,
            Err(error) => tracing::warn!(%error, jobset = name, "cannot say that output is kept; trying again"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn mark_once(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    done: &BTreeSet<String>,
) -> kube::Result<()> {
    let api = |group: &str, version: &str, kind: &str| -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(client.clone(), namespace, &kind)
    };
    // a pod that was not seen yet comes later
    let pods = ListParams::default().labels(&format!("{JOBSET_NAME}={name}"));
    let there = api("", "v1", "Pod").list(&pods).await?;
    if !there.iter().all(|pod| pod.uid().is_some_and(|uid| done.contains(&uid))) {
        return Ok(());
    }
    let annotation = json!({"metadata": {"uid": uid, "annotations": {keys::OUTPUT_KEPT: "true"}}});
    let jobsets = api(jobset::GROUP, jobset::VERSION, jobset::KIND);
    jobsets.patch(name, &PatchParams::default(), &Patch::Merge(&annotation)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobset_has_ended_by_a_condition_or_from_outside() {
        let of = |annotations: Value, conditions: Value| {
            let metadata = json!({"uid": "u", "labels": {keys::MANAGED_JOB: "j"}, "annotations": annotations});
            let found = JobPods::of(&json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap();
            (found.has_ended, found.is_kept)
        };
        let failed = |status: &str| json!([{"type": "Failed", "status": status}]);
        assert_eq!(of(json!({}), json!(null)), (false, false));
        assert_eq!(of(json!({}), failed("False")), (false, false));
        assert_eq!(of(json!({}), failed("True")), (true, false));
        assert_eq!(of(json!({keys::ENDED: "CANCELLED x", keys::OUTPUT_KEPT: "true"}), json!([])), (true, true));
        assert!(JobPods::of(&json!({"metadata": {"uid": "u"}})).is_none());
    }
}
