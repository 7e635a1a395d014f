//! The form that templates take on their way through Kubernetes' typed clients: what upstream freezes and applies.
//!
//! Keeping to it means that a TrainJob started by upstream can be taken over without a change to its JobSet, and that
//! what the JobSet webhook fills in is not taken away again by the next apply.

use crate::build::list_mut;
use crate::job::list;
use merge::builtin::{self, DecodeError};
use serde_json::Value;

const JOB_TEMPLATE: &str = "io.k8s.api.batch.v1.JobTemplateSpec";
const CLAIM: &str = "io.k8s.api.core.v1.PersistentVolumeClaim";

/// Members of a JobSet's spec (by section; the spec itself first) that JobSet's types leave out when they are zero.
// `replicas: 0` is left out by upstream, too, and comes back as 1; we keep what the runtime says.
const ZERO_IS_ABSENT: [(&str, &[&str]); 5] = [
    ("", &["replicatedJobs", "volumeClaimPolicies"]),
    ("network", &["subdomain"]),
    ("successPolicy", &["targetReplicatedJobs"]),
    ("failurePolicy", &["maxRestarts", "rules"]),
    ("coordinator", &["jobIndex", "podIndex"]),
];

/// Members of pod templates whose own members are the user's.
const FREE_MAPS: [&str; 6] = ["labels", "annotations", "nodeSelector", "matchLabels", "volumeAttributes", "options"];

/// Normalises the Kubernetes types within a JobSet's spec: Job templates and claim templates.
///
/// # Errors
/// The decoder's words for what does not have the type it should (a quantity that is none: CRDs do not look at those).
pub fn normalize(jobset_spec: &mut Value) -> Result<(), DecodeError> {
    for (section, members) in ZERO_IS_ABSENT {
        let section = if section.is_empty() { Some(&mut *jobset_spec) } else { jobset_spec.get_mut(section) };
        if let Some(section) = section.and_then(Value::as_object_mut) {
            section.retain(|name, value| !(members.contains(&name.as_str()) && is_zero(value)));
        }
    }
    for job in list_mut(jobset_spec, "replicatedJobs") {
        if list(job, "dependsOn").is_empty()
            && let Some(job) = job.as_object_mut()
        {
            job.remove("dependsOn");
        }
        if let Some(template) = job.get_mut("template") {
            pass(JOB_TEMPLATE, template)?;
        }
    }
    for policy in list_mut(jobset_spec, "volumeClaimPolicies") {
        for claim in list_mut(policy, "templates") {
            pass(CLAIM, claim)?;
        }
    }
    Ok(())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

fn pass(name: &str, value: &mut Value) -> Result<(), DecodeError> {
    builtin::decode(name, value)?;
    builtin::normalize(name, value);
    Ok(())
}

/// Leaves out of a patch what typed clients leave out of it, so that it clears nothing: members that are null, empty or
/// false where absent means the same. A service account's name is a pointer to them: an empty one does clear.
pub fn omit_empty(patch: &mut Value) {
    match patch {
        Value::Object(members) => {
            members.retain(|name, member| {
                !(member.is_null()
                    // An empty storage class is a choice, too: no dynamic provisioning.
                    || (member.as_str() == Some("") && !["storageClassName", "serviceAccountName"].contains(&name.as_str()))
                    || member.as_array().is_some_and(Vec::is_empty)
                    || (name == "readOnly" && member == &Value::Bool(false)))
            });
            for (_, member) in members.iter_mut().filter(|(name, _)| !FREE_MAPS.contains(&name.as_str())) {
                omit_empty(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(omit_empty),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_as_a_typed_client_writes_them() {
        let mut spec = json!({
            "replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": {"containers": [
                {"name": "node", "env": [{"name": "A", "value": ""}], "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1000m"}}},
            ]}}}}}],
            "volumeClaimPolicies": [{"templates": [{"metadata": {"name": "c"}, "spec": {
                "storageClassName": "", "resources": {"requests": {"storage": "1024Mi"}},
            }}]}],
        });
        normalize(&mut spec).expect("it can be decoded");
        let container = &spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"], json!({"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}));
        assert_eq!(container["env"], json!([{"name": "A"}]));
        let claim = &spec["volumeClaimPolicies"][0]["templates"][0];
        assert_eq!(claim["status"], json!({}));
        assert_eq!(claim["spec"]["resources"], json!({"requests": {"storage": "1Gi"}}));
        assert_eq!(claim["spec"]["storageClassName"], "");
    }

    #[test]
    fn patches_clear_nothing() {
        let mut patch = json!({
            "tolerations": [], "nodeSelector": {"zone": ""}, "serviceAccountName": "", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "a", "env": [{"name": "A", "value": ""}], "securityContext": {"runAsNonRoot": false}}],
        });
        omit_empty(&mut patch);
        assert_eq!(
            patch,
            json!({
                "nodeSelector": {"zone": ""}, "serviceAccountName": "", "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "a", "env": [{"name": "A"}], "securityContext": {"runAsNonRoot": false}}],
            })
        );
    }
}
