//! Namespaces.

use super::*;

/// The finalizer that namespaces are born with: their content goes before they do.
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Namespaces without which a cluster is none.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The label under which selectors find a namespace by name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The kind `Namespace`.
pub struct Namespaces;

impl Strategy for Namespaces {
    fn default(&self, object: &mut Value) {
        let name = text(object, "metadata.name").to_owned();
        if !name.is_empty() {
            let labels = map(child(child(object, "metadata"), "labels"));
            labels.insert(NAMESPACE_LABEL.to_owned(), name.into());
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        self.default(new);
        new["status"] = json!({"phase": "Active"});
        let mut finalizers = items(new, "spec.finalizers").to_vec();
        if !finalizers.iter().any(|f| f == NAMESPACE_FINALIZER) {
            finalizers.push(NAMESPACE_FINALIZER.into());
        }
        child(new, "spec")["finalizers"] = finalizers.into();
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        let before = at(old, "spec").clone();
        keep(child(new, "spec"), &before, "finalizers");
        keep(new, old, "status");
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        if subresource == "finalize" {
            keep(new, old, "status");
        } else {
            keep(new, old, "spec");
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        finalizer_faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        finalizer_faults(new)
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = finalizer_faults(new);
        let phase = text(new, "status.phase");
        let path = Path::new("status").child("phase");
        if subresource == "status" {
            if api::object::is_terminating(new) {
                if phase != "Terminating" {
                    let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
                    errors.push(Error::invalid(&path, phase, detail));
                }
            } else if phase != "Active" {
                let detail = "may only be 'Active' if `deletionTimestamp` is empty";
                errors.push(Error::invalid(&path, phase, detail));
            }
        }
        errors
    }

    fn begin_delete(&self, _cx: &Context<'_>, object: &Value) -> Result<Option<Value>, Status> {
        let name = text(object, "metadata.name");
        if IMMORTAL.contains(&name) {
            return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
        }
        let mut going = object.clone();
        child(&mut going, "status")["phase"] = "Terminating".into();
        Ok(Some(going))
    }

    fn may_vanish(&self, object: &Value) -> bool {
        items(object, "spec.finalizers").is_empty()
    }

    fn generation_changed(&self, _new: &Value, _old: &Value) -> Option<bool> {
        None
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![
            ("status.phase", text(object, "status.phase").to_owned()),
            ("name", text(object, "metadata.name").to_owned()),
        ]
    }

    fn name_faults(&self, name: &str, prefix: bool) -> Vec<String> {
        names::label_faults(name, prefix)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "status.phase")), age(object, now)]
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match subresource {
            "status" => Ignored::paths(&["spec"]),
            _ => Ignored::paths(&["status"]),
        }
    }
}

fn finalizer_faults(namespace: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    for finalizer in items(namespace, "spec.finalizers") {
        let name = finalizer.as_str().unwrap_or_default();
        let path = Path::new("spec").child("finalizers");
        let faults = names::qualified_name_faults(name);
        if faults.is_empty() && !name.contains('/') && name != NAMESPACE_FINALIZER {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path, name, detail));
        }
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name, fault)));
    }
    errors
}
