//! ResourceQuotas: what they keep out, and their own rules.
//!
//! Source: `apiserver/pkg/admission/plugin/resourcequota`, `pkg/quota/v1/evaluator/core` and `ValidateResourceQuota` of
//! Kubernetes 1.36. What is in use is
//! known from what is stored (the server's ledger), not from the quota's status, which follows.

use super::kit::{age, at, items, members, text};
use super::limits::{Amounts, amounts};
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use api::quota::{self as counted, in_scope};
use jiff::Timestamp;
use resource::admission::Objects;
use resource::status::Status;
use resource::{Context, Facts, Growth, Quotas, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const COMPUTE: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const STANDARD: [&str; 21] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "storage",
    "count/pods",
];

/// Whether a resource has this name without a domain.
pub fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) && !name.starts_with("count/")
}

/// Whether not every scope goes with a resource of this name; all others (`count/pods`) go with any.
fn has_scopes(name: &str) -> bool {
    let pages = name.strip_prefix("requests.").unwrap_or(name).starts_with("hugepages-");
    pages || (is_standard(name) && name != "storage")
}

fn pretty(amounts: &Amounts) -> String {
    amounts.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}

/// The containers that say nothing about a resource which a quota counts.
fn unspecified(spec: &Value, hard: &[&str]) -> Option<String> {
    if !super::kit::unset(at(spec, "resources")) {
        return None;
    }
    let mut required: Vec<&str> = hard.iter().copied().filter(|name| COMPUTE.contains(name)).collect();
    required.sort_unstable();
    let mut parts = Vec::new();
    for name in required {
        let (kind, resource) = match name.split_once('.') {
            Some(("limits", resource)) => ("limits", resource),
            Some((_, resource)) => ("requests", resource),
            None => ("requests", name),
        };
        let mut missing: Vec<&str> = items(spec, "containers")
            .iter()
            .chain(items(spec, "initContainers"))
            .filter(|c| at(c, &format!("resources.{kind}")).get(resource).is_none())
            .map(|c| text(c, "name"))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            parts.push(format!("{name} for: {}", missing.join(",")));
        }
    }
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// The names by which a quota limits objects of this kind.
fn limits<'a>(hard: &'a Amounts, group: &str, plural: &str) -> Vec<&'a str> {
    hard.keys().map(String::as_str).filter(|name| concerns(name, group, plural)).collect()
}

/// What quotas count, and what they keep out.
pub struct Rules;

impl Quotas for Rules {
    fn of(&self, objects: &dyn Objects, namespace: &str) -> Vec<Arc<Value>> {
        objects.list("", "resourcequotas", namespace)
    }

    fn usage(&self, group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
        counted::usage(group, plural, object, now)
    }

    /// By what the scopes of quotas ask about.
    fn class(&self, group: &str, plural: &str, object: &Value) -> String {
        if plural == "persistentvolumeclaims" && group.is_empty() {
            return counted::attribute_classes(object).into_iter().collect::<Vec<_>>().join(" ");
        }
        if plural != "pods" || !group.is_empty() {
            return String::new();
        }
        let holds = |scope: &str| in_scope(&json!({"spec": {"scopes": [scope]}}), plural, object);
        let [terminating, best_effort, across] = ["Terminating", "BestEffort", "CrossNamespacePodAffinity"].map(holds);
        format!("{terminating} {best_effort} {across} {}", text(object, "spec.priorityClassName"))
    }

    fn counts(&self, quota: &Value, plural: &str, object: &Value) -> bool {
        in_scope(quota, plural, object)
    }

    /// A pod uses nothing once its grace period is over.
    fn ends(&self, group: &str, plural: &str, object: &Value) -> Option<i64> {
        if plural != "pods" || !group.is_empty() {
            return None;
        }
        let deletion: Timestamp = api::object::meta(object, "deletionTimestamp").parse().ok()?;
        let grace = at(object, "metadata.deletionGracePeriodSeconds").as_i64()?;
        Some(deletion.as_second().saturating_add(grace))
    }

    fn limit(&self, quotas: &[Arc<Value>], group: &str, plural: &str) -> bool {
        any_limits(quotas, group, plural)
    }

    fn check(
        &self,
        growth: &Growth<'_>,
        quotas: &[Arc<Value>],
        used: &dyn Fn(&Value) -> Amounts,
    ) -> Result<bool, Status> {
        check(growth, quotas, used)
    }
}

/// Whether any of the quotas limits objects of this kind.
fn any_limits(quotas: &[Arc<Value>], group: &str, plural: &str) -> bool {
    quotas.iter().any(|quota| !limits(&amounts(at(quota, "status.hard")), group, plural).is_empty())
}

fn check(growth: &Growth<'_>, quotas: &[Arc<Value>], used: &dyn Fn(&Value) -> Amounts) -> Result<bool, Status> {
    let Growth { group, plural, object, more, new } = *growth;
    let refuse = |why: String| Err(Status::forbidden(group, plural, super::pod::shown_name(object), &why));
    // what one of them demands of every container counts before what another has no room for
    let mut concerned: Vec<(&Arc<Value>, Amounts)> = Vec::new();
    for quota in quotas {
        let hard = amounts(at(quota, "status.hard"));
        let name = text(quota, "metadata.name");
        let names = limits(&hard, group, plural);
        if names.is_empty() || !in_scope(quota, plural, object) {
            continue;
        }
        if new
            && plural == "pods"
            && group.is_empty()
            && let Some(why) = unspecified(at(object, "spec"), &names)
        {
            return refuse(format!("failed quota: {name}: {why}"));
        }
        concerned.push((quota, hard));
    }
    let mut limited = false;
    for (quota, hard) in &concerned {
        let (name, names) = (text(quota, "metadata.name"), limits(hard, group, plural));
        let requested: Amounts = more
            .iter()
            .filter(|(name, amount)| names.contains(&name.as_str()) && !amount.is_zero())
            .map(|(name, amount)| (name.clone(), *amount))
            .collect();
        if requested.is_empty() {
            continue;
        }
        limited = true;
        let in_use = used(quota);
        let used: Amounts =
            requested.keys().map(|name| (name.clone(), in_use.get(name).copied().unwrap_or(Quantity::ZERO))).collect();
        let over = |name: &&String| {
            let total = used[*name].plus(requested[*name]);
            hard.get(*name).is_some_and(|limit| total > *limit)
        };
        let exceeded: Vec<&String> = requested.keys().filter(over).collect();
        if !exceeded.is_empty() {
            let only = |all: &Amounts| -> Amounts {
                all.iter().filter(|(name, _)| exceeded.contains(name)).map(|(n, a)| (n.clone(), *a)).collect()
            };
            return refuse(format!(
                "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
                pretty(&only(&requested)),
                pretty(&only(&used)),
                pretty(&only(hard))
            ));
        }
    }
    Ok(limited)
}

/// Whether a quota's entry is about objects of this kind.
fn concerns(entry: &str, group: &str, plural: &str) -> bool {
    if let Some(counted) = entry.strip_prefix("count/") {
        return counted == if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    }
    if !group.is_empty() {
        return false;
    }
    match plural {
        "pods" => {
            entry == "pods"
                || COMPUTE.contains(&entry)
                || entry.ends_with("ephemeral-storage")
                || entry.starts_with("hugepages-")
                || entry.starts_with("requests.hugepages-")
                || (entry.starts_with("requests.") && entry.contains('/'))
        }
        "persistentvolumeclaims" => {
            entry == plural || entry == "requests.storage" || entry.contains(".storageclass.storage.k8s.io/")
        }
        "services" => entry == plural || entry.starts_with("services."),
        _ => entry == plural,
    }
}

/// The kind `ResourceQuota`.
pub struct ResourceQuotas;

impl Strategy for ResourceQuotas {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, delete_returns_object: true, ..Facts::default() }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({});
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        super::kit::keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        super::kit::keep(new, old, "spec");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        validate(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = validate(new);
        let scopes = |quota: &Value| -> BTreeSet<String> {
            items(quota, "spec.scopes").iter().filter_map(|s| s.as_str().map(str::to_owned)).collect()
        };
        if scopes(new) != scopes(old) {
            let path = Path::new("spec").child("scopes");
            errors.push(Error::invalid(&path, at(new, "spec.scopes").clone(), "field is immutable"));
        }
        errors
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        for field in ["hard", "used"] {
            amount_faults(at(new, "status"), field, &Path::new("status"), &mut errors);
        }
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let hard = |name: String| {
            let amount = Quantity::from_json(at(new, "spec.hard").get(&name)?).ok()?;
            Some((name, amount))
        };
        let above = |name: &&str| {
            let bare = || hard((*name).to_owned()).filter(|_| matches!(*name, "cpu" | "memory"));
            let (request, asked) = hard(format!("requests.{name}")).or_else(bare)?;
            let (limit, most) = hard(format!("limits.{name}"))?;
            (asked > most).then(|| format!("ResourceQuota {request} ({asked}) should be less than {limit} ({most})"))
        };
        ["cpu", "memory", "storage", "ephemeral-storage"].iter().filter_map(above).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let used = at(object, "status.used");
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        for (name, hard) in members(object, "status.hard") {
            let hard = hard.as_str().unwrap_or("0");
            let used = used.get(name).and_then(Value::as_str).unwrap_or("0");
            let cell = format!("{name}: {used}/{hard}");
            if name.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
        }
        vec![
            json!(text(object, "metadata.name")),
            json!(requests.join(", ")),
            json!(limits.join(", ")),
            age(object, now),
        ]
    }
}

fn validate(quota: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    amount_faults(at(quota, "spec"), "hard", &Path::new("spec"), &mut errors);
    scope_faults(quota, &mut errors);
    errors
}

/// Adds the faults of amounts of resources that a quota counts (`ValidateResourceQuotaResourceName`,
/// `ValidateResourceQuantityValue`).
fn amount_faults(of: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let path = path.child(field);
    for (name, value) in members(of, field) {
        let path = path.key(name);
        let faults = names::qualified_name_faults(name);
        let bad = !faults.is_empty();
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name.as_str(), fault)));
        if !name.contains('/') {
            let standard = STANDARD.contains(&name.as_str())
                || name.starts_with("hugepages-")
                || name.starts_with("requests.hugepages-");
            if !standard {
                if !bad {
                    let detail = "must be a standard resource type or fully qualified";
                    errors.push(Error::invalid(&path, name.as_str(), detail));
                }
                errors.push(Error::invalid(&path, name.as_str(), "must be a standard resource for quota"));
            }
        }
        if let Ok(amount) = Quantity::from_json(value) {
            if amount.is_negative() {
                errors.push(Error::invalid(&path, amount.to_string(), "must be greater than or equal to 0"));
            }
            let whole = [
                "pods",
                "services",
                "replicationcontrollers",
                "resourcequotas",
                "secrets",
                "configmaps",
                "persistentvolumeclaims",
                "services.nodeports",
                "services.loadbalancers",
            ];
            if (whole.contains(&name.as_str()) || name.starts_with("count/")) && !amount.is_whole() {
                errors.push(Error::invalid(&path, amount.to_string(), "must be an integer"));
            }
        }
    }
}

/// Most scopes of a quota; there are seven.
const SCOPES_MAX: usize = 100;

fn scope_faults(quota: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("scopes");
    let list = items(quota, "spec.scopes");
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    // each fault shows all of them
    if list.len() > SCOPES_MAX {
        errors.push(Error::too_many(&path, list.len(), SCOPES_MAX));
        return;
    }
    let hard: Vec<&str> =
        members(quota, "spec.hard").map(|(name, _)| name.as_str()).filter(|n| has_scopes(n)).collect();
    let misfits = |scope: &str| hard.iter().filter(|resource| !fits(scope, resource)).count();
    let conflicts = |names: &[&str]| {
        let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
        pairs.iter().filter(|pair| pair.iter().all(|name| names.contains(name))).count()
    };
    let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    for name in &names {
        if !known.contains(name) {
            errors.push(Error::invalid(&path, list.to_vec(), "unsupported scope"));
        }
        for _ in 0..misfits(name) {
            errors.push(Error::invalid(&path, list.to_vec(), MISFIT));
        }
    }
    for _ in 0..conflicts(&names) {
        errors.push(Error::invalid(&path, list.to_vec(), CONFLICT));
    }
    let path = Path::new("spec").child("scopeSelector").child("matchExpressions");
    let expressions = items(quota, "spec.scopeSelector.matchExpressions");
    if expressions.len() > SCOPES_MAX {
        errors.push(Error::too_many(&path, expressions.len(), SCOPES_MAX));
        return;
    }
    for expression in expressions {
        let name = text(expression, "scopeName");
        let operator = text(expression, "operator");
        let values = items(expression, "values");
        if !known.contains(&name) {
            errors.push(Error::invalid(&path.child("scopeName"), name, "unsupported scope"));
        }
        for _ in 0..misfits(name) {
            errors.push(Error::invalid(&path, Value::Null, MISFIT).shown_as(shown_selector(expressions)));
        }
        match operator {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    errors.push(Error::required(&path.child("values"), detail));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    errors.push(Error::invalid(&path.child("values"), values.to_vec(), detail));
                }
            }
            other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
        }
        let with_values = ["PriorityClass", "VolumeAttributesClass"].contains(&name);
        if !with_values && known.contains(&name) && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(Error::invalid(&path.child("operator"), operator, detail));
        }
    }
    let names: Vec<&str> = expressions.iter().map(|expression| text(expression, "scopeName")).collect();
    for _ in 0..conflicts(&names) {
        // upstream shows the other list
        let shown = if list.is_empty() { Value::Null } else { list.to_vec().into() };
        errors.push(Error::invalid(&path, shown, CONFLICT));
    }
}

const MISFIT: &str = "unsupported scope applied to resource";
const CONFLICT: &str = "conflicting scopes";

/// Whether a scope goes with a resource.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

/// A selector of scopes as upstream prints its Go struct.
fn shown_selector(expressions: &[Value]) -> String {
    let shown = expressions.iter().map(|expression| {
        let text = |field: &str| Value::from(text(expression, field)).to_string();
        let values = match at(expression, "values") {
            Value::Array(values) if !values.is_empty() => Value::from(values.clone()).to_string(),
            _ => "null".to_owned(),
        };
        format!(r#"{{"ScopeName":{},"Operator":{},"Values":{values}}}"#, text("scopeName"), text("operator"))
    });
    format!(r#"{{"MatchExpressions":[{}]}}"#, shown.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_go_with_some_resources() {
        let texts = |spec: Value| -> Vec<String> {
            let mut errors = ErrorList::new();
            scope_faults(&json!({"spec": spec}), &mut errors);
            errors.iter().map(ToString::to_string).collect()
        };
        let of = |scope: &str, hard: Value| texts(json!({"scopes": [scope], "hard": hard}));
        let misfit =
            |scope: &str| format!("spec.scopes: Invalid value: [\"{scope}\"]: unsupported scope applied to resource");
        let none: Vec<String> = Vec::new();
        assert_eq!(of("Terminating", json!({"pods": "1", "count/pods": "1", "storage": "1"})), none);
        assert_eq!(of("Terminating", json!({"secrets": "1", "hugepages-2Mi": "1"})), vec![misfit("Terminating"); 2]);
        assert_eq!(of("VolumeAttributesClass", json!({"requests.storage": "1"})), none);
        assert_eq!(of("VolumeAttributesClass", json!({"pods": "1"})), [misfit("VolumeAttributesClass")]);
        let path = "spec.scopeSelector.matchExpressions: Invalid value: ";
        let expression = |name: &str| json!({"scopeName": name, "operator": "Exists"});
        assert_eq!(
            texts(json!({"scopeSelector": {"matchExpressions": [expression("BestEffort")]}, "hard": {"secrets": "1"}})),
            [format!(
                r#"{path}{{"MatchExpressions":[{{"ScopeName":"BestEffort","Operator":"Exists","Values":null}}]}}: {MISFIT}"#
            )]
        );
        let both = [expression("BestEffort"), expression("NotBestEffort")];
        assert_eq!(texts(json!({"scopeSelector": {"matchExpressions": both}})), [format!("{path}null: {CONFLICT}")]);
    }

    #[test]
    fn what_must_be_specified_counts_before_what_is_exceeded() {
        let quota = |name: &str, hard: Value| {
            Arc::new(json!({"metadata": {"name": name}, "spec": {"hard": hard}, "status": {"hard": hard}}))
        };
        let object = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m"}]}});
        let more = amounts(&json!({"pods": "1"}));
        let growth = Growth { group: "", plural: "pods", object: &object, more: &more, new: true };
        let refused = |quotas: &[Arc<Value>]| {
            check(&growth, quotas, &|_| Amounts::new()).err().map(|status| status.message).unwrap_or_default()
        };
        let (full, strict) = (quota("full", json!({"pods": "0"})), quota("strict", json!({"limits.cpu": "1"})));
        let exceeded = refused(std::slice::from_ref(&full));
        assert!(
            exceeded.ends_with("exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0"),
            "{exceeded}"
        );
        let failed = refused(&[full, strict]);
        assert!(failed.ends_with("failed quota: strict: must specify limits.cpu for: m"), "{failed}");
    }
}
