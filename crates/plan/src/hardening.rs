//! What Kubernetes' restricted Pod Security standard asks of pods, where a TrainJob or its runtime wants it
//! (`trainyard.dev/pod-security: restricted`). Fields that are already set stay as they are: a template can
//! ask for more, and the namespace's own policy decides on it.

use crate::build::{entry, fill, list_mut};
use serde_json::{Value, json};

/// Fills in all pods of a JobSet's spec.
pub(crate) fn restrict(jobset: &mut Value) {
    for replicated in list_mut(jobset, "replicatedJobs") {
        if let Some(pod) = replicated.pointer_mut("/template/spec/template/spec") {
            restrict_pod(pod);
        }
    }
}

/// Fills in one pod's spec.
pub(crate) fn restrict_pod(pod: &mut Value) {
    let is_windows = pod.pointer("/os/name").is_some_and(|name| name == "windows");
    // a named account is there for its rights
    if pod.get("serviceAccountName").is_none() {
        fill(pod.as_object_mut(), "automountServiceAccountToken", json!(false));
    }
    let context = entry(pod, "securityContext");
    fill(Some(context), "runAsNonRoot", json!(true));
    if is_windows {
        // the rest must not be said there
        return;
    }
    fill(Some(context), "seccompProfile", json!({"type": "RuntimeDefault"}));
    for member in ["initContainers", "containers"] {
        for container in list_mut(pod, member) {
            let context = entry(container, "securityContext");
            // a privileged one cannot be without escalation: the API would refuse what nobody wrote
            if context.get("privileged") != Some(&json!(true)) {
                fill(Some(context), "allowPrivilegeEscalation", json!(false));
            }
            let capabilities = context.entry("capabilities").or_insert_with(|| json!({}));
            fill(capabilities.as_object_mut(), "drop", json!(["ALL"]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restricted(pod: Value) -> Value {
        let mut jobset = json!({"replicatedJobs": [{"template": {"spec": {"template": {"spec": pod}}}}]});
        restrict(&mut jobset);
        jobset.pointer("/replicatedJobs/0/template/spec/template/spec").expect("it was there").clone()
    }

    #[test]
    fn what_is_not_said_is_filled_in() {
        let container = json!({"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}});
        let pod = restricted(json!({"containers": [{"name": "a"}], "initContainers": [{"name": "a"}]}));
        let expected = json!({
            "automountServiceAccountToken": false,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container], "initContainers": [container],
        });
        assert_eq!(pod, expected);
        assert_eq!(restricted(pod.clone()), pod);
    }

    #[test]
    fn what_is_said_stays() {
        let said = json!({
            "serviceAccountName": "reader",
            "securityContext": {"runAsNonRoot": false, "runAsUser": 0, "seccompProfile": {"type": "Unconfined"}},
            "containers": [
                {"name": "a", "securityContext": {"privileged": true, "capabilities": {"drop": ["NET_RAW"], "add": ["SYS_PTRACE"]}}},
                {"name": "b", "securityContext": {"allowPrivilegeEscalation": true, "capabilities": {"drop": []}}},
            ],
        });
        assert_eq!(restricted(said.clone()), said);
    }

    #[test]
    fn windows_knows_no_capabilities() {
        let pod = restricted(json!({"os": {"name": "windows"}, "containers": [{"name": "a"}]}));
        assert_eq!(pod["securityContext"], json!({"runAsNonRoot": true}));
        assert_eq!(pod["containers"], json!([{"name": "a"}]));
    }
}
