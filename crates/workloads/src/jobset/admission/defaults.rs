//! What is filled into a new JobSet. Spec A.1.
//!
//! Upstream's webhook decodes the object into Go types, sets defaults and, if it set any, sends back everything that the
//! types write out: empty metadata of templates, empty resources of containers, empty strings for required names. Clients
//! see those, and the schema judges them, so they are filled in here too.

use super::super::json::entry_object;
use serde_json::{Map, Value, json};

/// Fills in the defaults of a JobSet that is being created. Members of a wrong type are left for the schema to refuse.
pub fn default(jobset: &mut Value) {
    let Some(jobset) = jobset.as_object_mut() else { return };
    if jobset.get("spec").is_some_and(|spec| !spec.is_object() && !spec.is_null()) {
        return;
    }
    let spec = entry_object(jobset, "spec");
    let before = spec.clone();
    set_defaults(spec);
    if *spec != before {
        write_out(spec);
    }
}

/// Sets a member that is absent or null.
fn unset(map: &mut Map<String, Value>, member: &str, value: impl Into<Value>) {
    let held = map.entry(member.to_owned()).or_insert(Value::Null);
    if held.is_null() {
        *held = value.into();
    }
}

/// A member as an object, made where it is absent; `None` where it is something else.
fn object_in<'a>(map: &'a mut Map<String, Value>, member: &str) -> Option<&'a mut Map<String, Value>> {
    unset(map, member, json!({}));
    map.get_mut(member)?.as_object_mut()
}

/// The objects of a list, with their indexes.
fn objects_in<'a>(
    map: &'a mut Map<String, Value>,
    member: &str,
) -> impl Iterator<Item = (usize, &'a mut Map<String, Value>)> {
    let list = map.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten().enumerate();
    list.filter_map(|(index, item)| Some((index, item.as_object_mut()?)))
}

fn is_blank(value: Option<&Value>) -> bool {
    value.is_none_or(|value| value.is_null() || value.as_str() == Some(""))
}

fn set_defaults(spec: &mut Map<String, Value>) {
    unset(spec, "successPolicy", json!({"operator": "All"}));
    unset(spec, "startupPolicy", json!({"startupPolicyOrder": "AnyOrder"}));
    for (_, replicated) in objects_in(spec, "replicatedJobs") {
        let job = object_in(replicated, "template").and_then(|template| object_in(template, "spec"));
        let Some(job) = job else { continue };
        unset(job, "completionMode", "Indexed");
        let pod = object_in(job, "template").and_then(|template| object_in(template, "spec"));
        if let Some(pod) = pod.filter(|pod| is_blank(pod.get("restartPolicy"))) {
            pod.insert("restartPolicy".to_owned(), "OnFailure".into());
        }
    }
    if let Some(network) = object_in(spec, "network") {
        unset(network, "enableDNSHostnames", true);
        unset(network, "publishNotReadyAddresses", true);
    }
    if let Some(policy) = spec.get_mut("failurePolicy").and_then(Value::as_object_mut) {
        for (index, rule) in objects_in(policy, "rules") {
            if is_blank(rule.get("name")) {
                rule.insert("name".to_owned(), format!("failurePolicyRule{index}").into());
            }
        }
    }
    for (_, policy) in objects_in(spec, "volumeClaimPolicies") {
        unset(policy, "retentionPolicy", json!({"whenDeleted": "Delete"}));
    }
}

/// What a Go type writes for a member that was not given.
#[derive(Clone, Copy)]
enum Zero {
    Text,
    Object,
}

impl Zero {
    fn value(self) -> Value {
        match self {
            Self::Text => "".into(),
            Self::Object => json!({}),
        }
    }
}

/// Members of a JobSet's spec that its types always write; `[]` stands for every item of a list. Parents come first.
const SPEC: [(&str, Zero); 8] = [
    ("successPolicy.operator", Zero::Text),
    ("startupPolicy.startupPolicyOrder", Zero::Text),
    ("failurePolicy.rules[].action", Zero::Text),
    ("coordinator.replicatedJob", Zero::Text),
    ("replicatedJobs[].name", Zero::Text),
    ("replicatedJobs[].template", Zero::Object),
    ("replicatedJobs[].dependsOn[].name", Zero::Text),
    ("replicatedJobs[].dependsOn[].status", Zero::Text),
];

/// What a JobSet holds of Kubernetes' own types.
const TEMPLATE: &str = "io.k8s.api.batch.v1.JobTemplateSpec";
const CLAIM: &str = "io.k8s.api.core.v1.PersistentVolumeClaim";

fn write_out(spec: &mut Map<String, Value>) {
    fill_all(spec, &SPEC);
    for (_, replicated) in objects_in(spec, "replicatedJobs") {
        if let Some(template) = replicated.get_mut("template") {
            merge::builtin::write_out(TEMPLATE, template);
        }
    }
    for (_, policy) in objects_in(spec, "volumeClaimPolicies") {
        for claim in policy.get_mut("templates").and_then(Value::as_array_mut).into_iter().flatten() {
            merge::builtin::write_out(CLAIM, claim);
        }
    }
}

fn fill_all(map: &mut Map<String, Value>, table: &[(&str, Zero)]) {
    for (path, zero) in table {
        fill(map, path, *zero);
    }
}

/// Sets a member that is absent, where its parents are there.
fn fill(map: &mut Map<String, Value>, path: &str, zero: Zero) {
    let Some((first, rest)) = path.split_once('.') else {
        map.entry(path.to_owned()).or_insert_with(|| zero.value());
        return;
    };
    match first.strip_suffix("[]") {
        Some(list) => {
            for (_, item) in objects_in(map, list) {
                fill(item, rest, zero);
            }
        }
        None => {
            if let Some(member) = map.get_mut(first).and_then(Value::as_object_mut) {
                fill(member, rest, zero);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_stays_and_nothing_is_written_out_without_need() {
        let full = json!({"spec": {
            "successPolicy": {"operator": "Any"}, "startupPolicy": {"startupPolicyOrder": "InOrder"},
            "network": {"enableDNSHostnames": false, "publishNotReadyAddresses": false},
            "replicatedJobs": [{"template": {"spec": {"completionMode": "NonIndexed", "template": {"spec":
                {"restartPolicy": "Never", "containers": [{"image": "x", "resources": {"requests": {"cpu": "1000m"}}}]}}}}}],
        }});
        let mut given = full.clone();
        default(&mut given);
        assert_eq!(given, full);

        let spec = given["spec"].as_object_mut().unwrap();
        spec.remove("network");
        default(&mut given);
        let template = &given["spec"]["replicatedJobs"][0]["template"];
        assert_eq!(template["metadata"], json!({}));
        let container = &template["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(*container, json!({"name": "", "image": "x", "resources": {"requests": {"cpu": "1"}}}));
    }

    #[test]
    fn all_that_kubernetes_types_always_write_is_written_out() {
        let policy =
            json!({"rules": [{"onPodConditions": [{"type": "DisruptionTarget"}]}, {"onExitCodes": {"values": [1]}}]});
        let container = json!({"lifecycle": {"preStop": {"httpGet": {"httpHeaders": [{"name": "a"}]}}}});
        let mut given = json!({"spec": {"replicatedJobs": [{"template": {"spec": {"podFailurePolicy": policy,
            "template": {"spec": {"containers": [container], "os": {}}}}}}]}});
        default(&mut given);
        let job = &given["spec"]["replicatedJobs"][0]["template"]["spec"];
        let rules = &job["podFailurePolicy"]["rules"];
        assert_eq!(rules[0], json!({"action": "", "onPodConditions": [{"type": "DisruptionTarget", "status": ""}]}));
        assert_eq!(rules[1], json!({"action": "", "onExitCodes": {"operator": "", "values": [1]}}));
        let pod = &job["template"]["spec"];
        assert_eq!(pod["os"], json!({"name": ""}));
        let asks = &pod["containers"][0]["lifecycle"]["preStop"]["httpGet"];
        assert_eq!(*asks, json!({"httpHeaders": [{"name": "a", "value": ""}], "port": 0}));
    }
}
