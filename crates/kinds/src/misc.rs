//! Kinds of the smaller groups: priority and runtime classes, disruption budgets, network policies, endpoint slices.

use super::kit::{age, at, child, default, int, is_true, items, items_mut, keep, label_selector, same, text};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Highest priority that is not the system's.
const HIGHEST: i64 = 1_000_000_000;
/// Classes of the system, with their values.
const SYSTEM: [(&str, i64); 2] = [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The kind `PriorityClass`.
pub struct PriorityClasses;

impl PriorityClasses {
    fn faults(class: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let name = text(class, "metadata.name");
        let value = int(class, "value").unwrap_or_default();
        let known = SYSTEM.iter().find(|(system, _)| *system == name);
        if name.starts_with("system-") {
            let path = Path::new("metadata").child("name");
            let reserved = "priority class names with 'system-' prefix are reserved for system use only. error:";
            match known {
                None => {
                    let detail = format!("{reserved} {name} is not a known system priority class");
                    errors.push(Error::forbidden(&path, detail));
                }
                Some((_, own)) if *own != value => {
                    let detail = format!("{reserved} value of {name} PriorityClass must be {own}");
                    errors.push(Error::forbidden(&path, detail));
                }
                Some(_) => {}
            }
        } else if value > HIGHEST {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
            errors.push(Error::forbidden(&Path::new("value"), detail));
        }
        if let Some(policy) = at(class, "preemptionPolicy").as_str()
            && !["PreemptLowerPriority", "Never"].contains(&policy)
        {
            let supported = ["PreemptLowerPriority", "Never"];
            errors.push(Error::not_supported(&Path::new("preemptionPolicy"), policy, &supported));
        }
        errors
    }
}

impl Strategy for PriorityClasses {
    fn begin_delete(&self, _cx: &Context<'_>, object: &Value) -> Result<Option<Value>, Status> {
        let name = text(object, "metadata.name");
        if SYSTEM.iter().any(|(system, _)| *system == name) {
            let why = "this is a system priority class and cannot be deleted";
            return Err(Status::forbidden("scheduling.k8s.io", "priorityclasses", name, why));
        }
        Ok(None)
    }

    fn default(&self, object: &mut Value) {
        default(object, "preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        if int(new, "value").unwrap_or_default() != int(old, "value").unwrap_or_default() {
            errors.push(Error::forbidden(&Path::new("value"), "may not be changed in an update."));
        }
        let policy = at(new, "preemptionPolicy");
        if !same(policy, at(old, "preemptionPolicy")) {
            errors.push(Error::invalid(&Path::new("preemptionPolicy"), policy.clone(), "field is immutable"));
        }
        errors
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> bool {
        false
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![
            json!(text(object, "metadata.name")),
            json!(int(object, "value").unwrap_or_default()),
            json!(is_true(object, "globalDefault")),
            age(object, now),
            json!(text(object, "preemptionPolicy")),
        ]
    }
}

/// The kind `RuntimeClass`.
pub struct RuntimeClasses;

fn handler_faults(class: &Value) -> ErrorList {
    let (handler, path) = (text(class, "handler"), Path::new("handler"));
    match handler {
        "" => vec![Error::required(&path, "")],
        _ => {
            names::label_faults(handler, false).into_iter().map(|fault| Error::invalid(&path, handler, fault)).collect()
        }
    }
}

/// What pods of the class take beside their containers is like a container's limits.
fn overhead(class: &Value) -> ErrorList {
    let limits = json!({"limits": at(class, "overhead.podFixed")});
    let mut errors = super::podspec::resource_requirements(&limits, &Path::new("overhead"));
    let path = Path::new("scheduling");
    super::podspec::labels(at(class, "scheduling.nodeSelector"), &path.child("nodeSelector"), &mut errors);
    let (tolerations, path) = (items(class, "scheduling.tolerations"), path.child("tolerations"));
    super::podspec::tolerations(tolerations, &path, &mut errors);
    for (i, toleration) in
        tolerations.iter().enumerate().filter(|(i, toleration)| tolerations[..*i].contains(toleration))
    {
        let shown = merge::builtin::as_internal("io.k8s.api.core.v1.Toleration", toleration);
        errors.push(Error::duplicate(&path.index(i), toleration.clone()).shown_as(shown));
    }
    errors
}

impl Strategy for RuntimeClasses {
    fn facts(&self) -> Facts {
        Facts {
            qualified_finalizers: false,
            create_on_update: true,
            unconditional_update: false,
            has_generation: false,
            ..Facts::default()
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = handler_faults(new);
        errors.extend(overhead(new));
        errors
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let handler = text(new, "handler");
        let mut errors = handler_faults(new);
        errors.extend(overhead(new));
        if handler != text(old, "handler") {
            errors.push(Error::invalid(&Path::new("handler"), handler, "field is immutable"));
        }
        errors
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "handler")), age(object, now)]
    }
}

const REASON_BYTES_MAX: usize = 1 << 10;
const MESSAGE_BYTES_MAX: usize = 32 << 10;

/// Faults of `metav1.Condition`s (`pkg/apis/meta/v1/validation`).
pub fn conditions(list: &[Value], path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (i, condition) in list.iter().enumerate() {
        let path = path.index(i);
        let (kind, reason) = (text(condition, "type"), text(condition, "reason"));
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&path.child("type"), kind));
        }
        for fault in names::qualified_name_faults(kind) {
            errors.push(Error::invalid(&path.child("type"), kind, fault));
        }
        let (status, known) = (text(condition, "status"), ["False", "True", "Unknown"]);
        if !known.contains(&status) {
            errors.push(Error::not_supported(&path.child("status"), status, &known));
        }
        if let Some(number) = int(condition, "observedGeneration").filter(|number| *number < 0) {
            let at = path.child("observedGeneration");
            errors.push(Error::invalid(&at, number, "must be greater than or equal to zero"));
        }
        if at(condition, "lastTransitionTime").is_null() {
            errors.push(Error::required(&path.child("lastTransitionTime"), ""));
        }
        if reason.is_empty() {
            errors.push(Error::required(&path.child("reason"), ""));
        } else {
            let fault = names::condition_reason_fault(reason);
            errors.extend(fault.map(|fault| Error::invalid(&path.child("reason"), reason, fault)));
            if reason.len() > REASON_BYTES_MAX {
                errors.push(Error::too_long(&path.child("reason"), REASON_BYTES_MAX));
            }
        }
        if text(condition, "message").len() > MESSAGE_BYTES_MAX {
            errors.push(Error::too_long(&path.child("message"), MESSAGE_BYTES_MAX));
        }
    }
    errors
}

/// The kind `PodDisruptionBudget`.
pub struct Budgets;

impl Budgets {
    fn faults(budget: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let (least, most) = (at(budget, "spec.minAvailable"), at(budget, "spec.maxUnavailable"));
        if !least.is_null() && !most.is_null() {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            errors.push(Error::invalid(&path, at(budget, "spec").clone(), detail));
        }
        for (field, value) in [("minAvailable", least), ("maxUnavailable", most)] {
            let path = path.child(field);
            match value {
                Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
                    errors.push(Error::invalid(&path, value.clone(), "must be greater than or equal to 0"));
                }
                Value::String(text) => match text.strip_suffix('%').and_then(|n| n.parse::<u32>().ok()) {
                    None => {
                        let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. \
                                      '1%',  or '93%', regex used for validation is '[0-9]+%')";
                        errors.push(Error::invalid(&path, text.as_str(), detail));
                    }
                    Some(percent) if percent > 100 => {
                        errors.push(Error::invalid(&path, text.as_str(), "must not be greater than 100%"));
                    }
                    Some(_) => {}
                },
                _ => {}
            }
        }
        errors.extend(super::podspec::label_selector(at(budget, "spec.selector"), &path.child("selector")));
        let policy = text(budget, "spec.unhealthyPodEvictionPolicy");
        if !["", "AlwaysAllow", "IfHealthyBudget"].contains(&policy) {
            let supported = ["AlwaysAllow", "IfHealthyBudget"];
            errors.push(Error::not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, &supported));
        }
        errors
    }
}

impl Strategy for Budgets {
    fn facts(&self) -> Facts {
        Facts {
            // Whatever fits in a path: upstream's rules of budgets do not look at metadata.
            name_faults: api::names::path_segment_faults,
            looks_at_metadata: false,
            qualified_finalizers: false,
            unconditional_update: false,
            ..Facts::default()
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let path = Path::new("status");
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        let negative = counts.into_iter().filter_map(|count| Some((count, int(new, &format!("status.{count}"))?)));
        let negative = negative.filter(|(_, number)| *number < 0);
        let fault = |(count, number)| Error::invalid(&path.child(count), number, "must be greater than or equal to 0");
        let mut errors = conditions(items(new, "status.conditions"), &path.child("conditions"));
        errors.extend(negative.map(fault));
        errors
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let or = |field: &str| match at(object, field) {
            Value::Null => json!("N/A"),
            Value::String(text) => json!(text),
            other => json!(other.to_string()),
        };
        vec![
            json!(text(object, "metadata.name")),
            or("spec.minAvailable"),
            or("spec.maxUnavailable"),
            json!(int(object, "status.disruptionsAllowed").unwrap_or_default()),
            age(object, now),
        ]
    }
}

/// The kind `NetworkPolicy`.
pub struct NetworkPolicies;

impl Strategy for NetworkPolicies {
    fn facts(&self) -> Facts {
        Facts { counts_empty: Some("spec"), ..Facts::default() }
    }

    fn warnings(&self, _new: &Value, old: Option<&Value>) -> Vec<String> {
        let warning =
            || crate::kit::stored_only("NetworkPolicies", "blocks nothing: pods reach whatever their machine reaches");
        old.is_none().then(warning).into_iter().collect()
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        for rules in ["ingress", "egress"] {
            for rule in items_mut(spec, rules) {
                for port in items_mut(rule, "ports") {
                    default(port, "protocol", "TCP");
                }
            }
        }
        if items(spec, "policyTypes").is_empty() {
            let out = !items(spec, "egress").is_empty();
            spec["policyTypes"] = if out { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        super::network::policy(new)
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let selector = label_selector(at(object, "spec.podSelector"));
        vec![json!(text(object, "metadata.name")), json!(selector), age(object, now)]
    }
}

/// What is wrong with the type of a slice's addresses.
fn address_type(slice: &Value) -> Option<Error> {
    let (kind, path) = (text(slice, "addressType"), Path::new("addressType"));
    match kind {
        "" => Some(Error::required(&path, "")),
        "FQDN" | "IPv4" | "IPv6" => None,
        _ => Some(Error::not_supported(&path, kind, &["FQDN", "IPv4", "IPv6"])),
    }
}

/// Takes out the topology of endpoints that only v1beta1 has, unless they are as they were; a node that it named stays so.
fn drop_topology(new: &mut Value, old: Option<&Value>) {
    if old.is_some_and(|old| at(old, "endpoints") == at(new, "endpoints")) {
        return;
    }
    let node = |endpoint: &Value| Some(endpoint.get("deprecatedTopology")?.get("kubernetes.io/hostname")?.clone());
    let known: Vec<Value> =
        old.map_or(&[][..], |old| items(old, "endpoints")).iter().filter_map(node).filter(|name| name != "").collect();
    for endpoint in items_mut(new, "endpoints") {
        let named = node(endpoint).filter(|name| known.contains(name));
        let Some(members) = endpoint.as_object_mut() else { continue };
        members.remove("deprecatedTopology");
        if let Some(name) = named {
            members.entry("nodeName").or_insert(name);
        }
    }
}

/// The kind `EndpointSlice`.
pub struct EndpointSlices;

impl Strategy for EndpointSlices {
    fn default(&self, object: &mut Value) {
        for port in items_mut(object, "ports") {
            default(port, "protocol", "TCP");
            if at(port, "name").is_null() {
                port["name"] = json!("");
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors: ErrorList = address_type(new).into_iter().collect();
        super::network::slice_ports(new, &mut errors);
        super::network::slice_endpoints(new, &mut errors);
        errors
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors: ErrorList = address_type(new).into_iter().collect();
        super::network::slice_ports(new, &mut errors);
        // what was taken once stays valid as long as nobody touches it
        if at(new, "endpoints") != at(old, "endpoints") {
            super::network::slice_endpoints(new, &mut errors);
        }
        let kind = text(new, "addressType");
        if kind != text(old, "addressType") {
            errors.push(Error::invalid(&Path::new("addressType"), kind, "field is immutable"));
        }
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_none() && text(new, "addressType") == "FQDN" {
            return vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()];
        }
        Vec::new()
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        drop_topology(new, None);
    }

    /// Topology raises the generation although it is dropped: upstream counts before it drops.
    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        let counts = ["endpoints", "ports", "addressType", "metadata.labels"];
        let changed = counts.into_iter().any(|field| at(new, field) != at(old, field));
        let generation = int(old, "metadata.generation").unwrap_or_default();
        child(new, "metadata")["generation"] = json!(generation + i64::from(changed));
        drop_topology(new, Some(old));
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        at(new, "metadata.generation") != at(old, "metadata.generation")
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let list = |values: Vec<String>| {
            let more = values.len().saturating_sub(3);
            let shown = values.into_iter().take(3).collect::<Vec<_>>().join(",");
            match (shown.is_empty(), more) {
                (true, _) => "<unset>".to_owned(),
                (false, 0) => shown,
                (false, more) => format!("{shown} + {more} more..."),
            }
        };
        let port = |port: &Value| match (int(port, "port"), at(port, "name").as_str()) {
            (Some(number), _) => number.to_string(),
            (None, name) => name.unwrap_or("*").to_owned(),
        };
        let ports = items(object, "ports").iter().map(port);
        let addresses = items(object, "endpoints")
            .iter()
            .flat_map(|e| items(e, "addresses"))
            .filter_map(|a| a.as_str().map(str::to_owned));
        vec![
            json!(text(object, "metadata.name")),
            json!(text(object, "addressType")),
            json!(list(ports.collect())),
            json!(list(addresses.collect())),
            age(object, now),
        ]
    }
}
