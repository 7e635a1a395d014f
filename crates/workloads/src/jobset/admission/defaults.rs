//! What is filled into a new JobSet. Spec A.1.
//!
//! Upstream's webhook decodes the object into Go types, sets defaults and, if it set any, sends back everything that the
//! types write out: empty metadata of templates, empty resources of containers, empty strings for required names. Clients
//! see those, and the schema judges them, so they are filled in here too.

use super::super::json::entry_object;
use api::quantity::Quantity;
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
    Number,
    Object,
    Null,
}

impl Zero {
    fn value(self) -> Value {
        match self {
            Self::Text => "".into(),
            Self::Number => 0.into(),
            Self::Object => json!({}),
            Self::Null => Value::Null,
        }
    }
}

/// Members of a JobSet's spec that its types always write; `[]` stands for every item of a list. Parents come first.
const SPEC: [(&str, Zero); 16] = [
    ("successPolicy.operator", Zero::Text),
    ("startupPolicy.startupPolicyOrder", Zero::Text),
    ("failurePolicy.rules[].action", Zero::Text),
    ("coordinator.replicatedJob", Zero::Text),
    ("replicatedJobs[].name", Zero::Text),
    ("replicatedJobs[].template", Zero::Object),
    ("replicatedJobs[].template.metadata", Zero::Object),
    ("replicatedJobs[].template.spec", Zero::Object),
    ("replicatedJobs[].template.spec.template", Zero::Object),
    ("replicatedJobs[].template.spec.template.metadata", Zero::Object),
    ("replicatedJobs[].template.spec.template.spec", Zero::Object),
    ("replicatedJobs[].dependsOn[].name", Zero::Text),
    ("replicatedJobs[].dependsOn[].status", Zero::Text),
    ("volumeClaimPolicies[].templates[].metadata", Zero::Object),
    ("volumeClaimPolicies[].templates[].spec.resources", Zero::Object),
    ("volumeClaimPolicies[].templates[].status", Zero::Object),
];

/// The same of a pod's spec, containers apart.
const POD: [(&str, Zero); 21] = [
    ("containers", Zero::Null),
    ("volumes[].name", Zero::Text),
    ("volumes[].configMap.items[].key", Zero::Text),
    ("volumes[].configMap.items[].path", Zero::Text),
    ("volumes[].secret.items[].key", Zero::Text),
    ("volumes[].secret.items[].path", Zero::Text),
    ("volumes[].downwardAPI.items[].path", Zero::Text),
    ("volumes[].hostPath.path", Zero::Text),
    ("volumes[].nfs.server", Zero::Text),
    ("volumes[].nfs.path", Zero::Text),
    ("volumes[].csi.driver", Zero::Text),
    ("volumes[].persistentVolumeClaim.claimName", Zero::Text),
    ("volumes[].ephemeral.volumeClaimTemplate.metadata", Zero::Object),
    ("volumes[].ephemeral.volumeClaimTemplate.spec", Zero::Object),
    ("volumes[].ephemeral.volumeClaimTemplate.spec.resources", Zero::Object),
    ("topologySpreadConstraints[].maxSkew", Zero::Number),
    ("topologySpreadConstraints[].topologyKey", Zero::Text),
    ("topologySpreadConstraints[].whenUnsatisfiable", Zero::Text),
    ("hostAliases[].ip", Zero::Text),
    ("schedulingGates[].name", Zero::Text),
    ("readinessGates[].conditionType", Zero::Text),
];

/// The same of a container.
const CONTAINER: [(&str, Zero); 22] = [
    ("name", Zero::Text),
    ("resources", Zero::Object),
    ("resources.claims[].name", Zero::Text),
    ("ports[].containerPort", Zero::Number),
    ("env[].name", Zero::Text),
    ("env[].valueFrom.fieldRef.fieldPath", Zero::Text),
    ("env[].valueFrom.resourceFieldRef.resource", Zero::Text),
    ("env[].valueFrom.configMapKeyRef.key", Zero::Text),
    ("env[].valueFrom.secretKeyRef.key", Zero::Text),
    ("volumeMounts[].name", Zero::Text),
    ("volumeMounts[].mountPath", Zero::Text),
    ("volumeDevices[].name", Zero::Text),
    ("volumeDevices[].devicePath", Zero::Text),
    ("livenessProbe.httpGet.port", Zero::Number),
    ("livenessProbe.tcpSocket.port", Zero::Number),
    ("livenessProbe.grpc.port", Zero::Number),
    ("readinessProbe.httpGet.port", Zero::Number),
    ("readinessProbe.tcpSocket.port", Zero::Number),
    ("readinessProbe.grpc.port", Zero::Number),
    ("startupProbe.httpGet.port", Zero::Number),
    ("startupProbe.tcpSocket.port", Zero::Number),
    ("startupProbe.grpc.port", Zero::Number),
];

/// Lists of containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Maps of quantities, and single ones, in a container or a claim's spec.
const QUANTITIES: [&str; 2] = ["resources.requests", "resources.limits"];

fn write_out(spec: &mut Map<String, Value>) {
    fill_all(spec, &SPEC);
    for (_, policy) in objects_in(spec, "volumeClaimPolicies") {
        for (_, claim) in objects_in(policy, "templates") {
            if let Some(claim) = claim.get_mut("spec").and_then(Value::as_object_mut) {
                canonical_quantities(claim);
            }
        }
    }
    for (_, replicated) in objects_in(spec, "replicatedJobs") {
        let path = ["template", "spec", "template", "spec"];
        let Some(template) = replicated.get_mut(path[0]) else { continue };
        let pod = path[1..].iter().try_fold(template, |value, member| value.get_mut(*member));
        let Some(pod) = pod.and_then(Value::as_object_mut) else { continue };
        fill_all(pod, &POD);
        for list in CONTAINERS {
            for (_, container) in objects_in(pod, list) {
                fill_all(container, &CONTAINER);
                canonical_quantities(container);
            }
        }
        for (_, volume) in objects_in(pod, "volumes") {
            if let Some(limit) = volume.get_mut("emptyDir").and_then(|source| source.get_mut("sizeLimit")) {
                canonical_quantity(limit);
            }
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

fn canonical_quantities(map: &mut Map<String, Value>) {
    for path in QUANTITIES {
        let Some((parent, member)) = path.split_once('.') else { continue };
        let held = map.get_mut(parent).and_then(|parent| parent.get_mut(member)).and_then(Value::as_object_mut);
        held.into_iter().flatten().for_each(|(_, quantity)| canonical_quantity(quantity));
    }
}

fn canonical_quantity(value: &mut Value) {
    if let Ok(quantity) = Quantity::from_json(value) {
        *value = quantity.to_string().into();
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
}
