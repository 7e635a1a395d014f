//! Pods: their strategy in the API server. Source: `pkg/registry/core/pod` of Kubernetes 1.36.

mod admission;
pub mod annotations;
mod apparmor;
mod eviction;
mod resize;
mod table;
mod update;
mod warnings;

pub use admission::shown_name;
pub use warnings::{
    not_canonical, of_claim as warnings_of_claim, of_sources as warnings_of_sources,
    of_template as warnings_of_template,
};

use super::kit::{at, child, int, items, keep, map, members, text};
use super::podspec;
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use merge::apply::Ignored;
use resource::status::Status;
use resource::{Context, Facts, Outcome, Strategy};
use serde_json::{Value, json};

/// The kind `Pod`.
pub struct Pods;

/// A time as conditions carry it.
pub fn stamp(now: Timestamp) -> Value {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into()
}

/// Puts a condition in place of the one of its type; the transition time moves only with the status.
pub fn set_condition(object: &mut Value, mut condition: Value, now: Timestamp) {
    let kind = text(&condition, "type").to_owned();
    let status = child(object, "status");
    let list = map(status).entry("conditions").or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let list = list.as_array_mut().expect("invariant: just made a list");
    let there = list.iter_mut().find(|c| text(c, "type") == kind);
    let same = there.as_deref().is_some_and(|c| text(c, "status") == text(&condition, "status"));
    condition["lastTransitionTime"] = match &there {
        Some(old) if same => old["lastTransitionTime"].clone(),
        _ => stamp(now),
    };
    if condition.get("lastProbeTime").is_none() {
        condition["lastProbeTime"] = Value::Null;
    }
    match there {
        Some(old) => *old = condition,
        None => list.push(condition),
    }
}

/// `podIP` is the first of `podIPs`, whichever of both was written.
fn join_addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").filter(|s| s.is_object()) else { return };
    let first = items(status, "podIPs").first().map(|ip| text(ip, "ip").to_owned());
    let single = text(status, "podIP").to_owned();
    match first {
        None if !single.is_empty() => status["podIPs"] = json!([{ "ip": single }]),
        Some(first) if !single.is_empty() && first != single => status["podIPs"] = json!([{ "ip": single }]),
        Some(first) if single.is_empty() => status["podIP"] = first.into(),
        _ => {}
    }
}

fn label_keys(pod: &mut Value) {
    // matchLabelKeys become expressions over the pod's own labels.
    let labels = at(pod, "metadata.labels").clone();
    let expand = |term: &mut Value, keys_field: &str, operator: &str| {
        let keys: Vec<String> = items(term, keys_field).iter().filter_map(|k| k.as_str().map(str::to_owned)).collect();
        if term.get("labelSelector").is_none_or(Value::is_null) {
            return;
        }
        for key in keys {
            if let Some(value) = labels.get(&key).cloned() {
                let selector = child(term, "labelSelector");
                let list = map(selector).entry("matchExpressions").or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
    };
    let Some(spec) = pod.get_mut("spec") else { return };
    for constraint in crate::kit::items_mut(spec, "topologySpreadConstraints") {
        expand(constraint, "matchLabelKeys", "In");
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.pointer_mut(&format!("/affinity/{kind}")) else { continue };
        if let Some(terms) =
            affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution").and_then(Value::as_array_mut)
        {
            for term in terms {
                expand(term, "matchLabelKeys", "In");
                expand(term, "mismatchLabelKeys", "NotIn");
            }
        }
        if let Some(terms) =
            affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution").and_then(Value::as_array_mut)
        {
            for term in terms.iter_mut().filter_map(|t| t.get_mut("podAffinityTerm")) {
                expand(term, "matchLabelKeys", "In");
                expand(term, "mismatchLabelKeys", "NotIn");
            }
        }
    }
}

/// Faults of a pod that creates and updates share.
fn whole(pod: &Value, old: Option<&Value>) -> ErrorList {
    let path = Path::new("spec");
    let spec = at(pod, "spec");
    let mut errors = ErrorList::new();
    annotations::validate(pod, old, &Path::new("metadata").child("annotations"), &mut errors);
    errors.extend(podspec::validate(spec, &path));
    errors.extend(podspec::trimmed_images(spec, &path));
    if text(spec, "serviceAccountName").is_empty() {
        for (i, volume) in items(spec, "volumes").iter().enumerate() {
            for (j, source) in items(volume, "projected.sources").iter().enumerate() {
                if !at(source, "serviceAccountToken").is_null() {
                    let at = path.child("volumes").index(i).child("projected").child("sources").index(j);
                    let detail = "must not be specified when serviceAccountName is not set";
                    errors.push(Error::forbidden(&at.child("serviceAccountToken"), detail));
                }
            }
        }
    }
    errors
}

/// Bindings as a collection: the older way of a pod's subresource.
pub struct Bindings;

impl Strategy for Bindings {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, alias_of: Some(("", "pods", "binding")), ..Facts::default() }
    }
}

/// The condition by which kubectl hides pods that have ended.
fn row_conditions(object: &Value) -> Vec<Value> {
    let (reason, message) = match text(object, "status.phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": reason, "message": message})]
}

impl Strategy for Pods {
    fn facts(&self) -> Facts {
        Facts {
            refuses_empty: |path| podspec::refuses_empty(path, "spec"),
            grows_by: Some("resize"),
            early_warnings: apparmor::warnings,
            row_conditions,
            graceful: true,
            delete_returns_object: true,
            ..Facts::default()
        }
    }

    fn admit_valid(&self, cx: &Context<'_>, new: &Value, part: Option<(&str, &Value)>) -> Result<(), Status> {
        match part {
            Some(("resize", old)) => resize::admit(cx, new, old),
            Some(_) => Ok(()),
            None => {
                super::limits::check(cx, "pods", new)?;
                admission::overhead(cx, new)
            }
        }
    }

    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        podspec::defaults(spec);
        podspec::pod_defaults(spec);
        // of a template it stays as it is
        if int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        join_addresses(object);
    }

    fn admit_create(&self, cx: &Context<'_>, new: &mut Value) -> Result<(), Status> {
        admission::create(cx, new)
    }

    fn prepare_create(&self, cx: &Context<'_>, new: &mut Value) {
        podspec::drop_disabled(new, "/spec");
        let class = podspec::qos_class(at(new, "spec"));
        new["status"] = json!({"phase": "Pending", "qosClass": class});
        if !items(new, "spec.schedulingGates").is_empty() {
            let condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            set_condition(new, condition, cx.now);
        }
        label_keys(new);
        apparmor::fill_in(new);
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = whole(new, None);
        let path = Path::new("spec");
        if !items(new, "spec.ephemeralContainers").is_empty() {
            errors.push(Error::forbidden(&path.child("ephemeralContainers"), "cannot be set on create"));
        }
        if !text(new, "spec.nodeName").is_empty() && !items(new, "spec.schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.push(Error::forbidden(&path.child("nodeName"), detail));
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        admission::tolerations(new);
        podspec::drop_disabled(new, "/spec");
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = whole(new, Some(old));
        annotations::validate_update(new, old, &mut errors);
        update::validate(new, old, &mut errors);
        errors
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        match subresource {
            "status" => update::prepare_status(new, old),
            "ephemeralcontainers" => update::prepare_ephemeral(new, old),
            "resize" => update::prepare_resize(new, old),
            _ => {}
        }
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, old: &Value) -> ErrorList {
        match subresource {
            "status" => {
                let mut errors = ErrorList::new();
                annotations::validate_update(new, old, &mut errors);
                errors.extend(update::validate_status(new, old));
                errors
            }
            "ephemeralcontainers" | "resize" if annotations::is_mirror(old) => {
                let detail = match subresource {
                    "resize" => "static pods cannot be resized",
                    _ => "static pods do not support ephemeral containers",
                };
                // upstream's path of no members reads so
                vec![Error::forbidden(&Path::new("[]"), detail)]
            }
            "ephemeralcontainers" => {
                let mut errors = whole(new, Some(old));
                annotations::validate_update(new, old, &mut errors);
                update::validate_ephemeral(new, old, &mut errors);
                errors
            }
            "resize" => {
                let mut errors = whole(new, Some(old));
                update::validate_resize(new, old, &mut errors);
                errors
            }
            _ => ErrorList::new(),
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        if old.is_some() {
            return Vec::new();
        }
        let name = text(new, "metadata.name");
        let mut warnings = Vec::new();
        let faults = api::names::label_faults(name, false);
        if !faults.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
                 is recommended: [{}]",
                faults.join(" ")
            ));
        }
        warnings.extend(warnings::of_template(new, ""));
        warnings
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        let mut fields: Vec<(&'static str, String)> = [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ]
        .map(|field| (field, text(object, field).to_owned()))
        .to_vec();
        fields.push(("spec.hostNetwork", super::kit::is_true(object, "spec.hostNetwork").to_string()));
        fields
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        table::row(object, now)
    }

    fn grace_secs(&self, object: &Value, asked: Option<i64>) -> i64 {
        let gone = matches!(text(object, "status.phase"), "Failed" | "Succeeded");
        if text(object, "spec.nodeName").is_empty() || gone {
            return 0;
        }
        let period = asked.or_else(|| int(object, "spec.terminationGracePeriodSeconds")).unwrap_or(0);
        if period < 0 { 1 } else { period }
    }

    fn post(
        &self,
        cx: &Context<'_>,
        subresource: &str,
        parent: &Value,
        body: &Value,
    ) -> Option<Result<Outcome, Status>> {
        match subresource {
            "binding" => Some(bind(cx, parent, body)),
            "eviction" => Some(eviction::evict(cx, parent, body)),
            _ => None,
        }
    }

    fn posted(&self, subresource: &str, name: &str, body: &Value) -> Result<(), Status> {
        let given = text(body, "metadata.name");
        if subresource == "binding" && !given.is_empty() && given != name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        if subresource == "eviction" && given != name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        Ok(())
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
            "ephemeralcontainers" | "resize" => Ignored::Nothing,
            _ => Ignored::paths(&["status"]),
        }
    }
}

/// What POST on `binding` and `eviction` answers.
pub fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Puts a pod on a node.
fn bind(cx: &Context<'_>, pod: &Value, body: &Value) -> Result<Outcome, Status> {
    let name = text(pod, "metadata.name");
    let kind = text(body, "target.kind");
    let mut errors = ErrorList::new();
    let target = Path::new("target");
    if !["", "Node"].contains(&kind) {
        errors.push(Error::not_supported(&target.child("kind"), kind, &["Node", "<empty>"]));
    }
    let node = text(body, "target.name");
    if node.is_empty() {
        errors.push(Error::required(&target.child("name"), ""));
    }
    if !errors.is_empty() {
        return Err(Status::new(500, "", api::field::aggregate(&errors)));
    }
    let conflict = |why: String| Err(Status::conflict("", "pods/binding", name, &why));
    let uid = text(body, "metadata.uid");
    if !uid.is_empty() && uid != text(pod, "metadata.uid") {
        let there = text(pod, "metadata.uid");
        return conflict(format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {there}"));
    }
    let version = text(body, "metadata.resourceVersion");
    if !version.is_empty() && version != text(pod, "metadata.resourceVersion") {
        return conflict(
            "the object has been modified; please apply your changes to the latest version and try again".to_owned(),
        );
    }
    if api::object::is_terminating(pod) {
        return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let there = text(pod, "spec.nodeName");
    if !there.is_empty() {
        return conflict(format!("pod {name} is already assigned to node {there:?}"));
    }
    if !items(pod, "spec.schedulingGates").is_empty() {
        return conflict(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    child(&mut bound, "spec")["nodeName"] = node.into();
    for extra in ["annotations", "labels"] {
        for (key, value) in members(body, &format!("metadata.{extra}")) {
            map(child(child(&mut bound, "metadata"), extra)).insert(key.clone(), value.clone());
        }
    }
    if let Some(status) = bound.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    set_condition(&mut bound, json!({"type": "PodScheduled", "status": "True"}), cx.now);
    Ok(Outcome::Update { parent: bound, reply: Some(success()) })
}
