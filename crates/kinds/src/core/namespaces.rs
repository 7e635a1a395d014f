//! Namespaces.

use super::*;
use resource::Deletion;

/// The finalizer that namespaces are born with: their content goes before they do.
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Finalizers without a domain that any object may have.
const STANDARD_FINALIZERS: [&str; 3] = [NAMESPACE_FINALIZER, "orphan", "foregroundDeletion"];

/// Namespaces without which a cluster is none.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The label under which selectors find a namespace by name.
const NAMESPACE_LABEL: &str = "kubernetes.io/metadata.name";

/// The kind `Namespace`.
pub struct Namespaces;

impl Strategy for Namespaces {
    fn facts(&self) -> Facts {
        Facts {
            deletion: Deletion::OwnWithDependents,
            finalizers_in_spec: true,
            has_generation: false,
            name_faults: names::label_faults,
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        let name = text(object, "metadata.name").to_owned();
        if !name.is_empty() {
            let labels = map(child(child(object, "metadata"), "labels"));
            labels.insert(NAMESPACE_LABEL.to_owned(), name.into());
        }
        kit::default(child(object, "status"), "phase", "Active");
    }

    fn admit_valid(&self, _cx: &Context<'_>, new: &Value, part: Option<(&str, &Value)>) -> Result<(), Status> {
        match part {
            None => unsound(new, security_faults(new)),
            Some(_) => Ok(()),
        }
    }

    fn admit_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), Status> {
        let faults = security_faults(new);
        // what was wrong before may stay
        if faults == security_faults(old) { Ok(()) } else { unsound(new, faults) }
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
        finalizer_faults(new, false)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        finalizer_faults(new, false)
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, _old: &Value) -> ErrorList {
        let mut errors = finalizer_faults(new, subresource == "finalize");
        let phase = text(new, "status.phase");
        // upstream names the field as its Go struct does
        let path = Path::new("status").child("Phase");
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
        if api::object::is_terminating(object) {
            return Ok(None);
        }
        let mut going = object.clone();
        child(&mut going, "status")["phase"] = "Terminating".into();
        Ok(Some(going))
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.phase", text(object, "status.phase").to_owned())]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "status.phase")), age(object, now)]
    }
}

/// `counted`: each is named by its place in the list.
fn finalizer_faults(namespace: &Value, counted: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    for (i, finalizer) in items(namespace, "spec.finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let list = Path::new("spec").child("finalizers");
        let path = if counted { list.index(i) } else { list };
        let faults = names::qualified_name_faults(name);
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, name, fault)));
        if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path, name, detail));
        }
    }
    errors
}

fn unsound(namespace: &Value, faults: ErrorList) -> Result<(), Status> {
    let refusal = || Status::invalid("", "Namespace", text(namespace, "metadata.name"), &faults);
    if faults.is_empty() { Ok(()) } else { Err(refusal()) }
}

/// What is wrong with the labels that say how safe pods must be.
fn security_faults(namespace: &Value) -> ErrorList {
    let labels = at(namespace, "metadata.labels");
    let mut errors = ErrorList::new();
    for mode in ["enforce", "audit", "warn"] {
        for (version, suffix) in [(false, ""), (true, "-version")] {
            let label = format!("pod-security.kubernetes.io/{mode}{suffix}");
            let Some(value) = labels.get(&label).and_then(Value::as_str) else { continue };
            let minor = value.strip_prefix("v1.").unwrap_or_default();
            let is_number = minor == "0" || (minor.parse::<u32>().is_ok() && !minor.starts_with(['0', '+']));
            let detail = match version {
                true if value != "latest" && !is_number => "must be \"latest\" or \"v1.x\"",
                false if !["privileged", "baseline", "restricted"].contains(&value) => {
                    "must be one of privileged, baseline, restricted"
                }
                _ => continue,
            };
            errors.push(Error::invalid(&Path::new("metadata").child("labels").key(&label), value, detail));
        }
    }
    errors
}
