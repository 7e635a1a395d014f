//! LimitRanges: their defaults in pods, their bounds on pods and claims, and their own rules.
//!
//! Source: `plugin/pkg/admission/limitranger` and `ValidateLimitRange` of Kubernetes 1.36.

use super::kit::{at, child, items, items_mut, map, members, text};
use super::plain::name_and_time;
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Amounts by resource name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a resource list.
pub fn amounts(list: &Value) -> Amounts {
    list.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), Quantity::from_json(value).ok()?)))
        .collect()
}

fn add(into: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = into.get(name).map_or(*amount, |there| there.plus(*amount));
        into.insert(name.clone(), sum);
    }
}

fn raise(into: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        if into.get(name).is_none_or(|there| there < amount) {
            into.insert(name.clone(), *amount);
        }
    }
}

/// What the containers of a pod ask for together, whatever the pod itself says.
pub fn of_containers(spec: &Value, kind: &str) -> Amounts {
    let mut bare = spec.clone();
    map(&mut bare).remove("resources");
    of_pod(&bare, kind)
}

/// What a whole pod asks for (`requests`) or is limited to (`limits`): its containers together, but at least what any of
/// its init containers needs, with the sidecars that run beside it.
pub fn of_pod(spec: &Value, kind: &str) -> Amounts {
    let of = |container: &Value| amounts(at(container, &format!("resources.{kind}")));
    let mut sum = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut sum, &of(container));
    }
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let mut own = of(container);
        if text(container, "restartPolicy") == "Always" {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        raise(&mut init, &own);
    }
    raise(&mut sum, &init);
    for (name, amount) in amounts(at(spec, &format!("resources.{kind}"))) {
        sum.insert(name, amount);
    }
    sum
}

/// Fills in what the namespace's limit ranges give containers that say nothing.
pub fn pod_defaults(cx: &Context<'_>, pod: &mut Value) {
    for range in (cx.list)("", "limitranges", cx.namespace) {
        let mut limits = serde_json::Map::new();
        let mut requests = serde_json::Map::new();
        for item in items(&range, "spec.limits").iter().filter(|l| text(l, "type") == "Container") {
            for (into, from) in [(&mut requests, "defaultRequest"), (&mut limits, "default")] {
                for (name, value) in members(item, from) {
                    into.insert(name.clone(), value.clone());
                }
            }
        }
        let mut notes = Vec::new();
        let spec = child(pod, "spec");
        for (list, prefix) in [("containers", "container"), ("initContainers", "init container")] {
            for container in items_mut(spec, list) {
                let name = text(container, "name").to_owned();
                for (kind, word, defaults) in [("requests", "request", &requests), ("limits", "limit", &limits)] {
                    if defaults.is_empty() {
                        continue;
                    }
                    let there = map(child(child(container, "resources"), kind));
                    let mut set = Vec::new();
                    for (resource, value) in defaults {
                        if !there.contains_key(resource) {
                            there.insert(resource.clone(), value.clone());
                            set.push(resource.as_str());
                        }
                    }
                    if !set.is_empty() {
                        notes.push(format!("{} {word} for {prefix} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty() {
            let annotations = child(child(pod, "metadata"), "annotations");
            annotations["kubernetes.io/limit-ranger"] = format!("LimitRanger plugin set: {}", notes.join("; ")).into();
        }
    }
}

/// Upstream compares whole units where either side is too large for thousandths.
fn comparable(amounts: [Option<Quantity>; 3]) -> [i64; 3] {
    const MAX_MILLI: i64 = i64::MAX / 1000;
    let large = amounts.iter().flatten().any(|a| a.value() > MAX_MILLI);
    amounts.map(|a| a.map_or(0, |a| if large { a.value() } else { a.milli_value() }))
}

fn minimum(kind: &str, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let (request, limit) = (requests.get(name).copied(), limits.get(name).copied());
    let [req, lim, least] = comparable([request, limit, Some(bound)]);
    match (request, limit) {
        (None, _) => Some(format!("minimum {name} usage per {kind} is {bound}.  No request is specified")),
        (Some(request), _) if req < least => {
            Some(format!("minimum {name} usage per {kind} is {bound}, but request is {request}"))
        }
        (_, Some(limit)) if lim < least => {
            Some(format!("minimum {name} usage per {kind} is {bound}, but limit is {limit}"))
        }
        _ => None,
    }
}

fn maximum(kind: &str, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let (request, limit) = (requests.get(name).copied(), limits.get(name).copied());
    let [req, lim, most] = comparable([request, limit, Some(bound)]);
    match (request, limit) {
        (_, None) => Some(format!("maximum {name} usage per {kind} is {bound}.  No limit is specified")),
        (_, Some(limit)) if lim > most => {
            Some(format!("maximum {name} usage per {kind} is {bound}, but limit is {limit}"))
        }
        (Some(request), _) if req > most => {
            Some(format!("maximum {name} usage per {kind} is {bound}, but request is {request}"))
        }
        _ => None,
    }
}

fn maximum_request(kind: &str, name: &str, bound: Quantity, requests: &Amounts) -> Option<String> {
    match requests.get(name) {
        None => Some(format!("maximum {name} usage per {kind} is {bound}.  No request is specified")),
        Some(request) if *request > bound => {
            Some(format!("maximum {name} usage per {kind} is {bound}, but request is {request}"))
        }
        Some(_) => None,
    }
}

fn ratio(kind: &str, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
    let (request, limit) = (requests.get(name).copied(), limits.get(name).copied());
    let [req, lim, _] = comparable([request, limit, None]);
    let what = format!("{name} max limit to request ratio per {kind} is {bound}");
    if req == 0 {
        return Some(format!("{what}, but no request is specified or request is 0"));
    }
    if lim == 0 {
        return Some(format!("{what}, but no limit is specified or limit is 0"));
    }
    // Ratios are shown and compared as floating point upstream.
    #[expect(clippy::cast_precision_loss)]
    let (provided, most) = (lim as f64 / req as f64, bound.milli_value() as f64 / 1000.0);
    (provided > most).then(|| format!("{what}, but provided ratio is {provided:.6}"))
}

fn bounds(item: &Value, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    let kind = text(item, "type");
    for (name, bound) in amounts(at(item, "min")) {
        faults.extend(minimum(kind, &name, bound, requests, limits));
    }
    for (name, bound) in amounts(at(item, "max")) {
        faults.extend(maximum(kind, &name, bound, requests, limits));
    }
    for (name, bound) in amounts(at(item, "maxLimitRequestRatio")) {
        faults.extend(ratio(kind, &name, bound, requests, limits));
    }
}

/// Refuses a new pod or claim that is out of a limit range's bounds.
pub fn check(cx: &Context<'_>, plural: &str, object: &Value) -> Result<(), Status> {
    for range in (cx.list)("", "limitranges", cx.namespace) {
        let mut faults = Vec::new();
        for item in items(&range, "spec.limits") {
            match (text(item, "type"), plural) {
                ("Container", "pods") => {
                    let spec = at(object, "spec");
                    for container in items(spec, "containers").iter().chain(items(spec, "initContainers")) {
                        let requests = amounts(at(container, "resources.requests"));
                        let limits = amounts(at(container, "resources.limits"));
                        bounds(item, &requests, &limits, &mut faults);
                    }
                }
                ("Pod", "pods") => {
                    let spec = at(object, "spec");
                    bounds(item, &of_pod(spec, "requests"), &of_pod(spec, "limits"), &mut faults);
                }
                ("PersistentVolumeClaim", "persistentvolumeclaims") => {
                    let requests = amounts(at(object, "spec.resources.requests"));
                    for (name, bound) in amounts(at(item, "min")) {
                        faults.extend(minimum("PersistentVolumeClaim", &name, bound, &requests, &Amounts::new()));
                    }
                    for (name, bound) in amounts(at(item, "max")) {
                        faults.extend(maximum_request("PersistentVolumeClaim", &name, bound, &requests));
                    }
                }
                _ => {}
            }
        }
        if !faults.is_empty() {
            let mut seen = BTreeSet::new();
            let distinct: Vec<String> = faults.into_iter().filter(|fault| seen.insert(fault.clone())).collect();
            let why = match distinct.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            return Err(Status::forbidden("", plural, super::shown_name(object), &why));
        }
    }
    Ok(())
}

/// The kind `LimitRange`.
pub struct LimitRanges;

impl Strategy for LimitRanges {
    fn facts(&self) -> Facts {
        Facts { create_on_update: true, has_generation: false, ..Facts::default() }
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        for item in items_mut(spec, "limits") {
            if text(item, "type") != "Container" {
                continue;
            }
            let fill = |item: &mut Value, into: &str, from: &str| {
                let values = at(item, from).as_object().cloned().unwrap_or_default();
                if values.is_empty() {
                    return;
                }
                let there = map(child(item, into));
                for (name, value) in values {
                    there.entry(name).or_insert(value);
                }
            };
            fill(item, "default", "max");
            fill(item, "defaultRequest", "default");
            fill(item, "defaultRequest", "min");
        }
    }

    fn prepare_create(&self, cx: &Context<'_>, new: &mut Value) {
        if text(new, "metadata.name").is_empty() {
            map(child(new, "metadata")).insert("name".to_owned(), cx.world.uid().into());
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        validate(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        validate(new)
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        name_and_time(object)
    }
}

/// The name of a resource that something of this kind is limited in.
fn resource_name(kind: &str, name: &str, path: &Path, errors: &mut ErrorList) {
    if matches!(kind, "Pod" | "Container") {
        return super::podspec::resource_name(name, path, errors);
    }
    let faults = names::qualified_name_faults(name);
    if faults.is_empty() && !name.contains('/') && !name.starts_with("hugepages-") && !super::quota::is_standard(name) {
        errors.push(Error::invalid(path, name, "must be a standard resource type or fully qualified"));
    }
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, name, fault)));
}

fn validate(range: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for (i, item) in items(range, "spec.limits").iter().enumerate() {
        let path = Path::new("spec").child("limits").index(i);
        let kind = text(item, "type");
        let at_kind = path.child("type");
        let faults = names::qualified_name_faults(kind);
        let bad = !faults.is_empty();
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&at_kind, kind, fault)));
        if !bad && !kind.contains('/') && !["Pod", "Container", "PersistentVolumeClaim"].contains(&kind) {
            let detail = "must be a standard limit type or fully qualified";
            errors.push(Error::invalid(&at_kind, kind, detail));
        }
        if kinds.contains(&kind) {
            errors.push(Error::duplicate(&at_kind, kind));
        }
        kinds.insert(kind);
        for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            if kind == "Pod" && field.starts_with("default") {
                continue;
            }
            for (name, _) in members(item, field) {
                resource_name(kind, name, &path.child(field).key(name), &mut errors);
            }
        }
        let (min, max) = (amounts(at(item, "min")), amounts(at(item, "max")));
        let (mut default, mut request) = (Amounts::new(), Amounts::new());
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !super::kit::unset(at(item, field)) {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(Error::forbidden(&path.child(field), detail));
                }
            }
        } else {
            default = amounts(at(item, "default"));
            request = amounts(at(item, "defaultRequest"));
        }
        if kind == "PersistentVolumeClaim" && !min.contains_key("storage") && !max.contains_key("storage") {
            let detail = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(Error::required(&path.child("limits"), detail));
        }
        let ratios = amounts(at(item, "maxLimitRequestRatio"));
        let mut keys: Vec<&String> =
            [&max, &min, &default, &request, &ratios].into_iter().flat_map(BTreeMap::keys).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let (min, max, default, request) = (min.get(key), max.get(key), default.get(key), request.get(key));
            let at_key = |field: &str| path.child(field).key(key);
            let mut above = |low: Option<&Quantity>,
                             high: Option<&Quantity>,
                             field: &str,
                             low_name: &str,
                             high_name: &str,
                             shown: Option<&Quantity>| {
                if let (Some(low), Some(high)) = (low, high)
                    && low > high
                {
                    let detail = format!("{low_name} value {low} is greater than {high_name} value {high}");
                    let shown = shown.unwrap_or(low).to_string();
                    errors.push(Error::invalid(&at_key(field), shown, detail));
                }
            };
            above(min, max, "min", "min", "max", None);
            above(min, request, "defaultRequest", "min", "default request", request);
            above(request, max, "defaultRequest", "default request", "max", None);
            above(request, default, "defaultRequest", "default request", "default limit", None);
            above(min, default, "default", "min", "default", min);
            above(default, max, "default", "default", "max", max);
            if let Some(ratio) = ratios.get(key) {
                if *ratio < Quantity::units(1) {
                    let detail = format!("ratio {ratio} is less than 1");
                    errors.push(Error::invalid(&at_key("maxLimitRequestRatio"), ratio.to_string(), detail));
                }
                if let (Some(min), Some(max)) = (min, max)
                    && min.milli_value() > 0
                {
                    // Floating point, as upstream compares.
                    #[expect(clippy::cast_precision_loss)]
                    let (most, given) =
                        (max.milli_value() as f64 / min.milli_value() as f64, ratio.milli_value() as f64 / 1000.0);
                    if given > most {
                        let detail = format!("ratio {ratio} is greater than max/min = {most:.6}");
                        errors.push(Error::invalid(&at_key("maxLimitRequestRatio"), ratio.to_string(), detail));
                    }
                }
            }
            let overcommit = !key.contains('/') || key.contains("kubernetes.io/");
            if !overcommit && request.is_some() && default != request {
                let shown = default.map_or_else(|| "0".to_owned(), ToString::to_string);
                let request = request.map_or_else(String::new, ToString::to_string);
                let detail = format!("default value {shown} must equal to defaultRequest value {request} in {key}");
                errors.push(Error::invalid(&at_key("defaultRequest"), json!(shown), detail));
            }
        }
    }
    errors
}
