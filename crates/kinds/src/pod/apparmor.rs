//! AppArmor profiles that a new pod names by annotation, as before Kubernetes 1.30, and the fields that take their place. Source:
//! `pkg/registry/core/pod` of Kubernetes 1.36.

use crate::kit::{at, child, items, items_mut, members, text};
use crate::podspec;
use api::field::{ErrorList, Path};
use serde_json::{Map, Value, json};

/// What the name of the container is appended to.
pub const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The field that says what an annotation says; `None` for one that says nothing valid.
fn profile(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        other => json!({"type": "Localhost", "localhostProfile": other.strip_prefix("localhost/")?}),
    };
    let mut faults = ErrorList::new();
    podspec::app_armor(&json!({"appArmorProfile": profile}), &Path::root(), &mut faults);
    faults.is_empty().then_some(profile)
}

fn annotation_of<'a>(annotations: &'a Value, container: &Value) -> Option<&'a str> {
    annotations.get(format!("{ANNOTATION}{}", text(container, "name")))?.as_str()
}

/// Containers without a profile get that of their annotation, where the pod has another or none.
pub fn fill_in(pod: &mut Value) {
    if text(pod, "spec.os.name") == "windows" {
        return;
    }
    let of_pod = at(pod, "spec.securityContext.appArmorProfile").clone();
    let annotations = members(pod, "metadata.annotations").filter(|(name, _)| name.starts_with(ANNOTATION));
    let annotations: Value = annotations.map(|(name, value)| (name.clone(), value.clone())).collect();
    if annotations.as_object().is_none_or(Map::is_empty) {
        return;
    }
    for list in LISTS {
        for container in items_mut(child(pod, "spec"), list) {
            let wanted = annotation_of(&annotations, container).and_then(profile);
            if let Some(wanted) = wanted.filter(|wanted| *wanted != of_pod)
                && at(container, "securityContext.appArmorProfile").is_null()
            {
                child(container, "securityContext")["appArmorProfile"] = wanted;
            }
        }
    }
}

/// The warning for a client whose annotation became a field, or is not valid. `pod` has its fields filled in.
pub fn warnings(pod: &Value) -> Vec<String> {
    if text(pod, "spec.os.name") == "windows" {
        return Vec::new();
    }
    let of_pod = at(pod, "spec.securityContext.appArmorProfile");
    let containers = LISTS.iter().flat_map(|list| items(pod, &format!("spec.{list}")).iter().map(move |c| (*list, c)));
    let told = containers.filter(|(list, container)| {
        let wanted = annotation_of(at(pod, "metadata.annotations"), container).map(profile);
        wanted.is_some_and(|wanted| !is_given(pod, list, container) && wanted.as_ref() != Some(of_pod))
    });
    told.map(|(_, container)| {
        let key = format!("{ANNOTATION}{}", text(container, "name"));
        format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead")
    })
    .collect()
}

/// Whether the client gave the container's profile itself: what it gave, it manages.
fn is_given(pod: &Value, list: &str, container: &Value) -> bool {
    let key = format!("k:{}", json!({"name": text(container, "name")}));
    let entries = items(pod, "metadata.managedFields").iter();
    entries
        .filter_map(|entry| entry["fieldsV1"]["f:spec"][format!("f:{list}")].get(&key))
        .any(|fields| members(fields, "f:securityContext").any(|(name, _)| name == "f:appArmorProfile"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_get_what_their_annotation_says() {
        let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        for other in [json!({}), json!({"a": "b"}), json!({format!("{ANNOTATION}c"): "unconfined"}), Value::Null] {
            let (mut filled, before) = (pod(other.clone()), pod(other));
            fill_in(&mut filled);
            assert_eq!(filled, before);
        }
        let mut filled = pod(json!({"x": "y", format!("{ANNOTATION}b"): "runtime/default"}));
        fill_in(&mut filled);
        let profile = json!({"appArmorProfile": {"type": "RuntimeDefault"}});
        assert_eq!(filled["spec"]["containers"], json!([{"name": "a"}, {"name": "b", "securityContext": profile}]));
    }
}
