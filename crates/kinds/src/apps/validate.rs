//! Validation of workloads, in upstream's words and order (`pkg/apis/apps/validation`).

use super::super::kit::{at, child, int, keep, map, same, text};
use super::super::{job, podspec, storage};
use super::{Workload, is_empty, is_readable};
use api::field::{Error, ErrorList, Path};
use api::names;
use objects::selector::Selector;
use serde_json::{Value, json};

const MISMATCH: &str = "`selector` does not match template `labels`";

fn nonnegative(object: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let number = int(object, field).unwrap_or_default();
    if number < 0 {
        errors.push(Error::invalid(&path.child(field), number, "must be greater than or equal to 0"));
    }
}

/// Faults of a whole workload's spec; `old` where one is updated.
pub fn spec(workload: Workload, object: &Value, old: Option<&Value>) -> ErrorList {
    let (spec, path, mut errors) = (at(object, "spec"), Path::new("spec"), ErrorList::new());
    match workload {
        Workload::Deployment => deployment(spec, &path, &mut errors),
        Workload::ReplicaSet => {
            nonnegative(spec, "replicas", &path, &mut errors);
            nonnegative(spec, "minReadySeconds", &path, &mut errors);
            selected(workload, spec, &path, "deployment", &mut errors);
        }
        Workload::ReplicationController => controller(spec, &path, &mut errors),
        Workload::StatefulSet => stateful(spec, &path, old, &mut errors),
        Workload::DaemonSet => daemons(spec, &path, &mut errors),
    }
    errors
}

/// Faults of an update.
pub fn update(workload: Workload, new: &Value, old: &Value) -> ErrorList {
    let mut errors = spec(workload, new, Some(old));
    let path = Path::new("spec");
    match workload {
        Workload::Deployment | Workload::ReplicaSet | Workload::DaemonSet => {
            if !same(at(new, "spec.selector"), at(old, "spec.selector")) {
                let value = at(new, "spec.selector").clone();
                let error = Error::invalid(&path.child("selector"), value, "field is immutable");
                // upstream compares a DaemonSet with what it was before it looks at what it is
                errors.insert(if workload == Workload::DaemonSet { 0 } else { errors.len() }, error);
            }
        }
        Workload::StatefulSet => {
            let mut fixed = at(new, "spec").clone();
            for field in [
                "replicas",
                "template",
                "updateStrategy",
                "minReadySeconds",
                "ordinals",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
            ] {
                keep(&mut fixed, at(old, "spec"), field);
            }
            if !same(&fixed, at(old, "spec")) {
                let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                              'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                              'minReadySeconds' are forbidden";
                errors.push(Error::forbidden(&path, detail));
            }
        }
        Workload::ReplicationController => {}
    }
    errors
}

/// The selector, and whether the template's pods are selected.
fn selected(workload: Workload, spec: &Value, path: &Path, word: &str, errors: &mut ErrorList) {
    let wanted = at(spec, "selector");
    let at_selector = path.child("selector");
    if wanted.is_null() {
        errors.push(Error::required(&at_selector, ""));
    } else {
        errors.extend(podspec::label_selector(wanted, &at_selector));
        if is_empty(wanted) {
            let detail = format!("empty selector is invalid for {word}");
            errors.push(Error::invalid(&at_selector, wanted.clone(), detail));
        }
    }
    if !is_readable(wanted) {
        let detail = if workload == Workload::StatefulSet { "" } else { "invalid label selector" };
        errors.push(Error::invalid(&at_selector, wanted.clone(), detail));
        return;
    }
    let path = path.child("template");
    let labels = at(spec, "template.metadata.labels");
    if !is_empty(wanted) && !selects(wanted, labels) {
        errors.push(Error::invalid(&path.child("metadata").child("labels"), labels.clone(), MISMATCH));
    }
    if workload == Workload::StatefulSet {
        let template = with_claims(spec);
        job::pod_template(&template, &path, errors);
        // said twice by upstream
        job::template_metadata(&template, &path, errors);
    } else {
        job::pod_template(at(spec, "template"), &path, errors);
    }
    always(workload, spec, &path, errors);
}

/// Pods of a workload are started again for ever.
fn always(workload: Workload, spec: &Value, path: &Path, errors: &mut ErrorList) {
    let path = path.child("spec");
    let policy = text(spec, "template.spec.restartPolicy");
    if policy != "Always" {
        errors.push(Error::not_supported(&path.child("restartPolicy"), policy, &["Always"]));
    }
    if !at(spec, "template.spec.activeDeadlineSeconds").is_null() {
        let kind = if workload == Workload::Deployment { "ReplicaSet" } else { workload.kind() };
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(Error::forbidden(&path.child("activeDeadlineSeconds"), detail));
    }
}

fn deployment(spec: &Value, path: &Path, errors: &mut ErrorList) {
    nonnegative(spec, "replicas", path, errors);
    selected(Workload::Deployment, spec, path, "deployment", errors);
    let (strategy, place) = (at(spec, "strategy"), path.child("strategy"));
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(Error::forbidden(&place.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let place = place.child("rollingUpdate");
            let (missing, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            share(missing, &place.child("maxUnavailable"), errors);
            share(surge, &place.child("maxSurge"), errors);
            if amount(missing) == 0 && amount(surge) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(Error::invalid(&place.child("maxUnavailable"), missing.clone(), detail));
            }
            at_most_all(missing, &place.child("maxUnavailable"), errors);
        }
        _ => errors.push(not_supported(&place, "DeploymentStrategy", strategy, &["Recreate", "RollingUpdate"])),
    }
    nonnegative(spec, "minReadySeconds", path, errors);
    nonnegative(spec, "revisionHistoryLimit", path, errors);
    nonnegative(spec, "progressDeadlineSeconds", path, errors);
    let deadline = int(spec, "progressDeadlineSeconds").unwrap_or_default();
    if deadline <= int(spec, "minReadySeconds").unwrap_or_default() {
        let detail = "must be greater than minReadySeconds";
        errors.push(Error::invalid(&path.child("progressDeadlineSeconds"), deadline, detail));
    }
}

fn controller(spec: &Value, path: &Path, errors: &mut ErrorList) {
    nonnegative(spec, "minReadySeconds", path, errors);
    let wanted = at(spec, "selector");
    let empty = wanted.as_object().is_none_or(serde_json::Map::is_empty);
    if empty {
        errors.push(Error::required(&path.child("selector"), ""));
    }
    nonnegative(spec, "replicas", path, errors);
    let (template, place) = (at(spec, "template"), path.child("template"));
    if template.is_null() {
        errors.push(Error::required(&place, ""));
        return;
    }
    let labels = at(template, "metadata.labels");
    if !empty && !selects(&json!({"matchLabels": wanted}), labels) {
        errors.push(Error::invalid(&place.child("metadata").child("labels"), labels.clone(), MISMATCH));
    }
    job::pod_template(template, &place, errors);
    always(Workload::ReplicationController, spec, &place, errors);
}

fn stateful(spec: &Value, path: &Path, old: Option<&Value>, errors: &mut ErrorList) {
    let policy = text(spec, "podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(Error::invalid(&path.child("podManagementPolicy"), policy, detail));
    }
    let (strategy, place) = (at(spec, "updateStrategy"), path.child("updateStrategy"));
    let rolling = at(strategy, "rollingUpdate");
    match text(strategy, "type") {
        "OnDelete" => {
            if !rolling.is_null() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(Error::invalid(&place.child("rollingUpdate"), rolling.clone(), detail));
            }
        }
        "RollingUpdate" => {
            let place = place.child("rollingUpdate");
            nonnegative(rolling, "partition", &place, errors);
            let missing = at(rolling, "maxUnavailable");
            if !missing.is_null() {
                let place = place.child("maxUnavailable");
                share(missing, &place, errors);
                if amount(missing) == 0 {
                    errors.push(Error::invalid(&place, missing.clone(), "cannot be 0"));
                }
                at_most_all(missing, &place, errors);
            }
        }
        _ => {
            let error = Error::invalid(&place, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'");
            errors.push(error.shown_as(shown("StatefulSetUpdateStrategy", strategy)));
        }
    }
    for field in ["whenDeleted", "whenScaled"] {
        let value = text(at(spec, "persistentVolumeClaimRetentionPolicy"), field);
        if !["Retain", "Delete"].contains(&value) {
            let place = path.child("persistentVolumeClaimRetentionPolicy").child(field);
            errors.push(Error::not_supported(&place, value, &["Retain", "Delete"]));
        }
    }
    if old.is_none() {
        for (i, claim) in super::super::kit::items(spec, "volumeClaimTemplates").iter().enumerate() {
            let place = path.child("volumeClaimTemplates").index(i).child("spec");
            errors.extend(storage::claim_spec(at(claim, "spec"), &place));
        }
    }
    nonnegative(spec, "replicas", path, errors);
    nonnegative(spec, "minReadySeconds", path, errors);
    nonnegative(at(spec, "ordinals"), "start", &path.child("ordinals"), errors);
    let service = text(spec, "serviceName");
    if old.is_none() && !service.is_empty() {
        for fault in names::label_faults(service, false) {
            errors.push(Error::invalid(&path.child("serviceName"), service, fault));
        }
    }
    selected(Workload::StatefulSet, spec, path, "statefulset", errors);
}

/// The template with the volumes that its claims become: their mounts are of volumes that exist.
fn with_claims(spec: &Value) -> Value {
    let mut template = at(spec, "template").clone();
    let claims = super::super::kit::items(spec, "volumeClaimTemplates");
    let names: std::collections::BTreeSet<&str> = claims.iter().map(|claim| text(claim, "metadata.name")).collect();
    let pod = child(&mut template, "spec");
    map(pod).remove("subdomain");
    map(pod).remove("hostname");
    if !names.is_empty() {
        let mut volumes: Vec<Value> =
            names.iter().map(|n| json!({"name": n, "persistentVolumeClaim": {"claimName": n}})).collect();
        let own = super::super::kit::items(pod, "volumes").iter();
        volumes.extend(own.filter(|volume| !names.contains(&text(volume, "name"))).cloned());
        pod["volumes"] = volumes.into();
    }
    template
}

/// Whether a template's labels are what the selector asks for; a selector that is not there selects nothing.
fn selects(selector: &Value, labels: &Value) -> bool {
    Selector::read(selector).is_some_and(|selector| selector.matches(labels))
}

fn daemons(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let wanted = at(spec, "selector");
    errors.extend(podspec::label_selector(wanted, &path.child("selector")));
    let place = path.child("template");
    let labels = at(spec, "template.metadata.labels");
    if is_readable(wanted) && !selects(wanted, labels) {
        errors.push(Error::invalid(&place.child("metadata").child("labels"), labels.clone(), MISMATCH));
    }
    if is_empty(wanted) {
        let detail = "empty selector is invalid for daemonset";
        errors.push(Error::invalid(&path.child("selector"), wanted.clone(), detail));
    }
    job::pod_template(at(spec, "template"), &place, errors);
    always(Workload::DaemonSet, spec, &place, errors);
    nonnegative(spec, "minReadySeconds", path, errors);
    let (strategy, place) = (at(spec, "updateStrategy"), path.child("updateStrategy"));
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = at(strategy, "rollingUpdate");
            let place = place.child("rollingUpdate");
            let (missing, surge) = (at(rolling, "maxUnavailable"), at(rolling, "maxSurge"));
            share(missing, &place.child("maxUnavailable"), errors);
            share(surge, &place.child("maxSurge"), errors);
            at_most_all(missing, &place.child("maxUnavailable"), errors);
            at_most_all(surge, &place.child("maxSurge"), errors);
            match (amount(missing) != 0, amount(surge) != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.push(Error::invalid(&place.child("maxSurge"), surge.clone(), detail));
                }
                (false, false) => {
                    errors.push(Error::required(&place.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"));
                }
                _ => {}
            }
        }
        _ => errors.push(not_supported(&place, "DaemonSetUpdateStrategy", strategy, &["RollingUpdate", "OnDelete"])),
    }
    nonnegative(spec, "revisionHistoryLimit", path, errors);
}

/// A whole structure that is not among what is supported: upstream shows it all.
/// `kind`: the type of the value, which the message shows as a whole.
fn not_supported(path: &Path, kind: &str, value: &Value, supported: &[&str]) -> Error {
    Error::not_supported(path, value.clone(), supported).shown_as(shown(kind, value))
}

fn shown(kind: &str, value: &Value) -> String {
    merge::builtin::as_internal(&format!("io.k8s.api.apps.v1.{kind}"), value)
}

/// A number of pods, or a percentage of them.
fn share(value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::String(text) if percent(text).is_none() => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                          regex used for validation is '[0-9]+%')";
            errors.push(Error::invalid(path, text.as_str(), detail));
        }
        Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => {
            errors.push(Error::invalid(path, value.clone(), "must be greater than or equal to 0"));
        }
        _ => {}
    }
}

fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

fn at_most_all(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(text) = value.as_str()
        && percent(text).is_some_and(|n| n > 100)
    {
        errors.push(Error::invalid(path, text, "must not be greater than 100%"));
    }
}

/// Faults of a status.
pub fn status(workload: Workload, new: &Value, old: &Value) -> ErrorList {
    let (status, path, mut errors) = (at(new, "status"), Path::new("status"), ErrorList::new());
    let fields: &[&str] = match workload {
        Workload::Deployment => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        Workload::ReplicaSet | Workload::ReplicationController => &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        Workload::StatefulSet => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        Workload::DaemonSet => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    };
    for field in fields {
        nonnegative(status, field, &path, &mut errors);
    }
    let parts: &[&str] = match workload {
        Workload::Deployment => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        Workload::ReplicaSet | Workload::ReplicationController => {
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        }
        Workload::StatefulSet => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        Workload::DaemonSet => &[],
    };
    let number = |field: &str| int(status, field).unwrap_or_default();
    for field in parts {
        if number(field) > number("replicas") {
            let detail = "cannot be greater than status.replicas";
            errors.push(Error::invalid(&path.child(field), number(field), detail));
        }
    }
    if !parts.is_empty() && number("availableReplicas") > number("readyReplicas") {
        let whose = if workload == Workload::StatefulSet { "status." } else { "" };
        let detail = format!("cannot be greater than {whose}readyReplicas");
        errors.push(Error::invalid(&path.child("availableReplicas"), number("availableReplicas"), detail));
    }
    if fields.contains(&"collisionCount")
        && int(old, "status.collisionCount").is_some_and(|before| before > number("collisionCount"))
    {
        errors.push(Error::invalid(&path.child("collisionCount"), number("collisionCount"), "cannot be decremented"));
    }
    errors
}
