//! AppArmor profiles that a new pod names by annotation, as before Kubernetes 1.30, and the fields that take their place. Source:
//! `pkg/registry/core/pod` of Kubernetes 1.36.

use crate::kit::{at, child, items, items_mut, members, text};
use crate::podspec;
use api::field::{ErrorList, Path};
use serde_json::{Value, json};

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

fn annotation_of<'a>(pod: &'a Value, container: &Value) -> Option<&'a str> {
    at(pod, "metadata.annotations").get(format!("{ANNOTATION}{}", text(container, "name")))?.as_str()
}

/// Containers without a profile get that of their annotation, where the pod has another or none.
pub fn fill_in(pod: &mut Value) {
    if text(pod, "spec.os.name") == "windows" {
        return;
    }
    let of_pod = at(pod, "spec.securityContext.appArmorProfile").clone();
    let whole = pod.clone();
    for list in LISTS {
        for container in items_mut(child(pod, "spec"), list) {
            let wanted = annotation_of(&whole, container).and_then(profile);
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
        let wanted = annotation_of(pod, container).map(profile);
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
