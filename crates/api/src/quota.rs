//! What objects count towards a ResourceQuota: admission adds it, and the quota controller sums it up.
//!
//! Names of quota resources and the rules of counting are upstream's (`pkg/quota/v1/evaluator/core`).

use crate::object;
use crate::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Kinds that quotas may count under their bare resource name, beside `count/…`.
const BY_BARE_NAME: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// What one object of `resource` (`pods`, `jobs`) in `group` uses, by every name under which a quota may limit it.
///
/// Pods that have ended, or whose grace period is over at `now`, count as objects only.
pub fn usage(group: &str, resource: &str, object: &Value, now: Timestamp) -> Amounts {
    let one = Quantity::units(1);
    let dotted = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let mut used = Amounts::from([(format!("count/{dotted}"), one)]);
    if !group.is_empty() {
        return used;
    }
    match resource {
        "pods" if !is_over(object, now) => used.extend(pod_usage(object)),
        "services" => {
            used.insert(resource.to_owned(), one);
            let kind = object::text(&object["spec"], "type");
            if kind == "LoadBalancer" {
                used.insert("services.loadbalancers".to_owned(), one);
            }
            if matches!(kind, "NodePort" | "LoadBalancer") {
                // where none are allocated, only a port counts that asks for its node port by number
                let allocates = object["spec"]["allocateLoadBalancerNodePorts"] != false;
                let counts = |port: &&Value| allocates || port["nodePort"].as_i64().is_some_and(|number| number != 0);
                let ports = object["spec"]["ports"].as_array().into_iter().flatten().filter(counts).count();
                used.insert("services.nodeports".to_owned(), Quantity::units(i64::try_from(ports).unwrap_or(i64::MAX)));
            }
        }
        "persistentvolumeclaims" => {
            used.insert(resource.to_owned(), one);
            let storage = Quantity::from_json(&object["spec"]["resources"]["requests"]["storage"]).ok();
            let class = object["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty());
            if let Some(class) = class {
                used.insert(format!("{class}.storageclass.storage.k8s.io/{resource}"), one);
            }
            if let Some(storage) = storage {
                used.insert("requests.storage".to_owned(), storage);
                if let Some(class) = class {
                    used.insert(format!("{class}.storageclass.storage.k8s.io/requests.storage"), storage);
                }
            }
        }
        _ if BY_BARE_NAME.contains(&resource) => _ = used.insert(resource.to_owned(), one),
        _ => {}
    }
    used
}

/// Whether a pod uses nothing any more.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    if object::has_ended(pod) {
        return true;
    }
    let deletion: Option<Timestamp> = object::meta(pod, "deletionTimestamp").parse().ok();
    let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
    match (deletion, grace) {
        (Some(at), Some(grace)) => now.duration_since(at) > SignedDuration::from_secs(grace),
        _ => false,
    }
}

fn pod_usage(pod: &Value) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::units(1))]);
    let (requests, limits) = (pod_resources(pod, "requests"), pod_resources(pod, "limits"));
    for (name, amount) in requests {
        match name.as_str() {
            "cpu" | "memory" | "ephemeral-storage" => {
                used.insert(format!("requests.{name}"), amount);
                used.insert(name, amount);
            }
            _ if name.starts_with("hugepages-") => {
                used.insert(format!("requests.{name}"), amount);
                used.insert(name, amount);
            }
            _ => _ = used.insert(format!("requests.{name}"), amount),
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), amount);
        }
    }
    used
}

/// What a pod asks for (`requests`) or is held to (`limits`): the sum of its containers and sidecars, or the most that an
/// init container needs beside the sidecars started before it, where that is more; and its overhead.
pub fn pod_resources(pod: &Value, member: &str) -> Amounts {
    let spec = &pod["spec"];
    let list = |name: &str| spec[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |container: &Value| amounts(container["resources"][member].as_object());
    let (mut running, mut peak) = (Amounts::new(), Amounts::new());
    for container in list("containers") {
        add(&mut running, &of(container));
    }
    let mut sidecars = Amounts::new();
    for container in list("initContainers") {
        if container["restartPolicy"] == "Always" {
            add(&mut sidecars, &of(container));
            raise(&mut peak, &sidecars);
        } else {
            let mut alone = of(container);
            add(&mut alone, &sidecars);
            raise(&mut peak, &alone);
        }
    }
    add(&mut running, &sidecars);
    raise(&mut running, &peak);
    // resources of the pod as a whole take the place of the sum
    running.extend(amounts(spec["resources"][member].as_object()));
    let overhead = amounts(spec["overhead"].as_object());
    // an overhead is no limit where there is none
    let overhead = overhead.into_iter().filter(|(name, _)| member == "requests" || running.contains_key(name));
    let overhead: Amounts = overhead.collect();
    add(&mut running, &overhead);
    running
}

/// A resource list; what is no quantity is passed over.
pub fn amounts(list: Option<&Map<String, Value>>) -> Amounts {
    let parsed =
        list.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?)));
    parsed.collect()
}

/// Adds amount to amount.
pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or(*amount, |held| held.plus(*amount));
        to.insert(name.clone(), sum);
    }
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let held = to.entry(name.clone()).or_insert(*amount);
        *held = (*held).max(*amount);
    }
}

/// Whether a quota is about an object at all: every scope of its, given by name or by selector, must apply. Scopes are of
/// pods and claims of volumes; a quota that has any is about nothing else.
pub fn in_scope(quota: &Value, resource: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = spec["scopes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let selectors = spec["scopeSelector"]["matchExpressions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if scopes.is_empty() && selectors.is_empty() {
        return true;
    }
    match resource {
        "pods" => {
            scopes.iter().all(|scope| scope_holds(scope.as_str().unwrap_or_default(), object))
                && selectors.iter().all(|selector| selector_holds(selector, object))
        }
        "persistentvolumeclaims" => {
            let classes = attribute_classes(object);
            let is_known = |scope: &str| scope == "VolumeAttributesClass";
            scopes.iter().all(|scope| is_known(scope.as_str().unwrap_or_default()) && !classes.is_empty())
                && selectors
                    .iter()
                    .all(|selector| is_known(object::text(selector, "scopeName")) && names_one_of(selector, &classes))
        }
        _ => false,
    }
}

/// The classes of attributes that a claim of a volume has, had or is to get.
pub fn attribute_classes(claim: &Value) -> BTreeSet<&str> {
    let status = &claim["status"];
    let named = [
        object::text(&claim["spec"], "volumeAttributesClassName"),
        object::text(status, "currentVolumeAttributesClassName"),
        object::text(&status["modifyVolumeStatus"], "targetVolumeAttributesClassName"),
    ];
    named.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Whether a selector of a scope takes any of these names; with no names at all, whether it takes an object without.
fn names_one_of(selector: &Value, names: &BTreeSet<&str>) -> bool {
    let listed =
        |name: &str| selector["values"].as_array().is_some_and(|values| values.iter().any(|value| value == name));
    match object::text(selector, "operator") {
        "In" => names.iter().any(|name| listed(name)),
        "NotIn" => names.is_empty() || names.iter().any(|name| !listed(name)),
        "Exists" => !names.is_empty(),
        "DoesNotExist" => names.is_empty(),
        _ => false,
    }
}

fn scope_holds(scope: &str, pod: &Value) -> bool {
    match scope {
        "Terminating" => pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0),
        "NotTerminating" => !scope_holds("Terminating", pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => !object::text(&pod["spec"], "priorityClassName").is_empty(),
        "CrossNamespacePodAffinity" => reaches_across(pod),
        _ => false,
    }
}

fn selector_holds(selector: &Value, pod: &Value) -> bool {
    let scope = object::text(selector, "scopeName");
    if scope != "PriorityClass" {
        return scope_holds(scope, pod);
    }
    let class = object::text(&pod["spec"], "priorityClassName");
    names_one_of(selector, &Some(class).filter(|class| !class.is_empty()).into_iter().collect())
}

fn is_best_effort(pod: &Value) -> bool {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array());
    let mut resources = lists.into_iter().flatten().flatten().map(|container| &container["resources"]);
    resources.all(|resources| {
        ["requests", "limits"].iter().all(|member| {
            amounts(resources[member].as_object())
                .iter()
                .all(|(name, amount)| !matches!(name.as_str(), "cpu" | "memory") || amount.is_zero())
        })
    })
}

/// Whether a term of its pod affinity speaks of other namespaces.
fn reaches_across(pod: &Value) -> bool {
    fn term(term: &Value) -> bool {
        term["namespaces"].as_array().is_some_and(|namespaces| !namespaces.is_empty())
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    }
    ["podAffinity", "podAntiAffinity"].iter().map(|kind| &pod["spec"]["affinity"][kind]).any(|affinity| {
        let required = affinity["requiredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        let preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        required.chain(preferred.map(|weighted| &weighted["podAffinityTerm"])).any(term)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn used(group: &str, resource: &str, object: &Value) -> String {
        let now = "2026-01-01T00:00:00Z".parse().expect("a time");
        let parts: Vec<String> =
            usage(group, resource, object, now).iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        parts.join(" ")
    }

    #[test]
    fn what_objects_use() {
        let container = |requests: Value, limits: Value| json!({"resources": {"requests": requests, "limits": limits}});
        let pod = json!({"spec": {
            "containers": [container(json!({"cpu": "1500m", "nvidia.com/gpu": "2"}), json!({"memory": "1Gi", "nvidia.com/gpu": "2"})),
                container(json!({"cpu": "500m"}), json!({}))],
            "initContainers": [container(json!({"memory": "1Gi"}), json!({})), container(json!({"cpu": "3"}), json!({}))]}});
        let pod_text = "count/pods=1 cpu=3 limits.memory=1Gi memory=1Gi pods=1 requests.cpu=3 requests.memory=1Gi requests.nvidia.com/gpu=2";
        let mut ended = pod.clone();
        ended["status"] = json!({"phase": "Succeeded"});
        let mut leaving = pod.clone();
        leaving["metadata"] = json!({"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30});
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}}});
        let claim_text = "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
             fast.storageclass.storage.k8s.io/requests.storage=5Gi persistentvolumeclaims=1 requests.storage=5Gi";
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{}, {}]}});
        let by_number = json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "ports": [{}, {"nodePort": 30000}]}});
        for (group, resource, object, want) in [
            ("", "pods", &pod, pod_text),
            ("", "pods", &ended, "count/pods=1"),
            ("", "pods", &leaving, "count/pods=1"),
            ("", "secrets", &json!({}), "count/secrets=1 secrets=1"),
            ("batch", "jobs", &json!({}), "count/jobs.batch=1"),
            ("", "persistentvolumeclaims", &claim, claim_text),
            ("", "services", &service, "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"),
            ("", "services", &by_number, "count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"),
        ] {
            assert_eq!(used(group, resource, object), want, "{object}");
        }
    }

    #[test]
    fn scopes() {
        let best_effort = json!({"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}}}]}});
        let burstable = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high",
            "containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        let scoped = |scopes: &[&str]| json!({"spec": {"scopes": scopes}});
        let by_class = |operator: &str| {
            json!({"spec": {"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}}})
        };
        for (quota, on_best_effort, on_burstable) in [
            (json!({"spec": {}}), true, true),
            (scoped(&["BestEffort"]), true, false),
            (scoped(&["NotBestEffort", "Terminating"]), false, true),
            (scoped(&["NotTerminating"]), true, false),
            (by_class("In"), false, true),
            (by_class("NotIn"), true, false),
            (by_class("Exists"), false, true),
        ] {
            assert_eq!(in_scope(&quota, "pods", &best_effort), on_best_effort, "{quota}");
            assert_eq!(in_scope(&quota, "pods", &burstable), on_burstable, "{quota}");
        }
        assert!(!in_scope(&scoped(&["BestEffort"]), "secrets", &json!({})));
    }

    #[test]
    fn claims_are_in_scope_by_their_classes() {
        let claims = "persistentvolumeclaims";
        let none = json!({"spec": {}});
        let gold = json!({"spec": {"volumeAttributesClassName": "gold"}});
        let target = json!({"targetVolumeAttributesClassName": "gold"});
        let both =
            json!({"spec": {}, "status": {"currentVolumeAttributesClassName": "tin", "modifyVolumeStatus": target}});
        let by = |operator: &str, values: Value| {
            let scope = "VolumeAttributesClass";
            let expression = json!({"scopeName": scope, "operator": operator, "values": values});
            json!({"spec": {"scopeSelector": {"matchExpressions": [expression]}}})
        };
        let scoped = |scope: &str| json!({"spec": {"scopes": [scope]}});
        for (quota, on_none, on_gold, on_both) in [
            (scoped("VolumeAttributesClass"), false, true, true),
            (scoped("Terminating"), false, false, false),
            (by("In", json!(["gold"])), false, true, true),
            (by("In", json!(["silver"])), false, false, false),
            (by("NotIn", json!(["gold"])), true, false, true),
            (by("Exists", json!([])), false, true, true),
            (by("DoesNotExist", json!([])), true, false, false),
        ] {
            let holds = [&none, &gold, &both].map(|claim| in_scope(&quota, claims, claim));
            assert_eq!(holds, [on_none, on_gold, on_both], "{quota}");
        }
        assert!(!in_scope(&scoped("VolumeAttributesClass"), "pods", &json!({"spec": {}})));
    }
}
