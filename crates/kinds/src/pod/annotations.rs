//! Annotations of pods that mean something to Kubernetes itself. Source: `ValidatePodSpecificAnnotations` and
//! `ValidatePodSpecificAnnotationUpdates` of Kubernetes 1.36.

use super::apparmor;
use crate::access;
use crate::kit::{items, members, text};
use crate::podspec;
use api::field::{Error, ErrorList, Path};
use serde_json::Value;
use std::collections::BTreeSet;

/// Pods with this annotation mirror what a node runs on its own.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Whether a pod mirrors what a node runs on its own.
pub fn is_mirror(pod: &Value) -> bool {
    api::object::annotation(pod, MIRROR).is_some()
}

fn texts(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    members(object, "metadata.annotations").map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn is_cost(annotation: &str) -> bool {
    let begins_well = annotation == "0" || annotation.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    begins_well && annotation.parse::<i32>().is_ok()
}

fn seccomp(profile: &str, path: &Path, errors: &mut ErrorList) {
    match profile.strip_prefix("localhost/") {
        _ if ["runtime/default", "docker/default", "unconfined"].contains(&profile) => {}
        Some(local) => podspec::local_path(local, path, errors),
        None => errors.push(Error::invalid(path, profile, "must be a valid seccomp profile")),
    }
}

fn app_armor(profile: &str) -> bool {
    ["", "runtime/default", "unconfined"].contains(&profile) || profile.starts_with("localhost/")
}

/// Adds the faults of the annotations of a pod or a template (`path`: that of the annotations). `old`: a pod before an update.
pub fn validate(object: &Value, old: Option<&Value>, path: &Path, errors: &mut ErrorList) {
    if let Some(value) = api::object::annotation(object, MIRROR)
        && text(object, "spec.nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(Error::invalid(&path.key(MIRROR), value, detail));
    }
    let cost = |object: &Value| api::object::annotation(object, DELETION_COST).map(str::to_owned);
    // what was wrong before may stay
    if let Some(value) = cost(object).filter(|value| !is_cost(value))
        && old.is_none_or(|old| cost(old).is_none_or(|old| is_cost(&old)))
    {
        errors.push(Error::invalid(&path.key(DELETION_COST), value, "must be a 32bit integer"));
    }
    if let Some(profile) = api::object::annotation(object, SECCOMP_POD) {
        seccomp(profile, &path.child(SECCOMP_POD), errors);
    }
    for (key, profile) in texts(object).filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER)) {
        seccomp(profile, &path.child(key), errors);
    }
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let names: BTreeSet<&str> = lists
        .iter()
        .flat_map(|list| items(object, &format!("spec.{list}")))
        .map(|container| text(container, "name"))
        .collect();
    for (key, profile) in texts(object) {
        let Some(container) = key.strip_prefix(apparmor::ANNOTATION) else { continue };
        if !names.contains(container) {
            errors.push(Error::invalid(&path.key(key), container, "container not found"));
        }
        if !app_armor(profile) {
            let detail = format!("invalid AppArmor profile name: {profile:?}");
            errors.push(Error::invalid(&path.key(key), profile, detail));
        }
    }
}

/// Adds the faults of a change of annotations, and those of the annotations themselves.
pub fn validate_update(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("metadata").child("annotations");
    let (is_now, was) = (texts(new).collect::<Vec<_>>(), texts(old).collect::<Vec<_>>());
    for (key, value) in &was {
        if is_now.contains(&(key, value)) {
            continue;
        }
        if key.starts_with(apparmor::ANNOTATION) {
            errors.push(Error::forbidden(&path.key(key), "may not remove or update AppArmor annotations"));
        }
        if *key == MIRROR {
            errors.push(Error::forbidden(&path.key(key), "may not remove or update mirror pod annotation"));
        }
    }
    for (key, _) in is_now.iter().filter(|(key, _)| was.iter().all(|(other, _)| other != key)) {
        if key.starts_with(apparmor::ANNOTATION) {
            errors.push(Error::forbidden(&path.key(key), "may not add AppArmor annotations"));
        }
        if *key == MIRROR {
            errors.push(Error::forbidden(&path.key(key), "may not add mirror pod annotation"));
        }
    }
    validate(new, Some(old), &path, errors);
}

/// Whether a pod refers to a Secret.
pub fn has_secrets(spec: &Value) -> bool {
    let mut found = false;
    access::secrets(spec, &mut |name| found |= !name.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(annotations: Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}]}})
    }

    fn told(errors: &ErrorList) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn annotations_are_looked_at() {
        let faults = |annotations: Value| {
            let mut errors = ErrorList::new();
            validate(&pod(annotations), None, &Path::new("x"), &mut errors);
            told(&errors)
        };
        let none: Vec<String> = Vec::new();
        for cost in ["0", "-1", "-0", "2147483647"] {
            assert_eq!(faults(json!({DELETION_COST: cost})), none, "{cost}");
        }
        for cost in ["", "+1", "00", "01", "2147483648", "1.5", "-"] {
            let fault = format!("x[{DELETION_COST}]: Invalid value: {cost:?}: must be a 32bit integer");
            assert_eq!(faults(json!({DELETION_COST: cost})), [fault]);
        }
        let seccomp = format!("{SECCOMP_CONTAINER}a");
        assert_eq!(faults(json!({SECCOMP_POD: "docker/default", seccomp.clone(): "localhost/a/b"})), none);
        assert_eq!(
            faults(json!({SECCOMP_POD: "bad", seccomp.clone(): "localhost//x"})),
            [
                format!("x.{SECCOMP_POD}: Invalid value: \"bad\": must be a valid seccomp profile"),
                format!("x.{seccomp}: Invalid value: \"/x\": must be a relative path"),
            ]
        );
        let profile = |name: &str| format!("{}{name}", apparmor::ANNOTATION);
        assert_eq!(faults(json!({profile("a"): "localhost/x"})), none);
        assert_eq!(
            faults(json!({profile("z"): "bad"})),
            [
                format!("x[{}]: Invalid value: \"z\": container not found", profile("z")),
                format!("x[{}]: Invalid value: \"bad\": invalid AppArmor profile name: \"bad\"", profile("z")),
            ]
        );
        let unplaced = "must set spec.nodeName if mirror pod annotation is set";
        assert_eq!(faults(json!({MIRROR: "y"})), [format!("x[{MIRROR}]: Invalid value: \"y\": {unplaced}")]);
    }

    #[test]
    fn some_annotations_stay_as_they_are() {
        let changed = |new: Value, old: Value| {
            let mut errors = ErrorList::new();
            let placed = |annotations: Value| {
                let mut pod = pod(annotations);
                pod["spec"]["nodeName"] = "n".into();
                pod
            };
            validate_update(&placed(new), &placed(old), &mut errors);
            told(&errors)
        };
        let none: Vec<String> = Vec::new();
        let (plain, mirror) = (json!({"a": "b"}), json!({MIRROR: "x"}));
        assert_eq!(changed(mirror.clone(), mirror.clone()), none);
        assert_eq!(changed(json!({"a": "c"}), plain.clone()), none);
        let told = |why: &str| vec![format!("metadata.annotations[{MIRROR}]: Forbidden: may not {why}")];
        assert_eq!(changed(mirror.clone(), plain.clone()), told("add mirror pod annotation"));
        assert_eq!(changed(plain, mirror.clone()), told("remove or update mirror pod annotation"));
        assert_eq!(changed(json!({MIRROR: "y"}), mirror), told("remove or update mirror pod annotation"));
        // a cost that was wrong before may stay wrong
        assert_eq!(changed(json!({DELETION_COST: "x"}), json!({DELETION_COST: "y"})), none);
        assert_eq!(changed(json!({DELETION_COST: "x"}), json!({DELETION_COST: "1"})).len(), 1);
    }

    #[test]
    fn secrets_are_found_wherever_a_pod_names_one() {
        let found = |spec: Value| has_secrets(&spec);
        assert!(found(json!({"imagePullSecrets": [{"name": "s"}]})));
        assert!(found(json!({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]})));
        assert!(found(json!({"volumes": [{"name": "v", "csi": {"nodePublishSecretRef": {"name": "s"}}}]})));
        assert!(found(json!({"initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}]})));
        assert!(!found(json!({"imagePullSecrets": [{}], "volumes": [{"configMap": {"name": "s"}}]})));
    }
}
