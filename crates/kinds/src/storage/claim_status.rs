//! What is wrong with the status of a PersistentVolumeClaim (`ValidatePersistentVolumeClaimStatusUpdate`).

use crate::kit::members;
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;

const RESIZING: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];
const AMOUNT: &str = "must be a valid resource quantity";

pub fn faults(status: &Value) -> ErrorList {
    let path = Path::new("status");
    let mut errors = ErrorList::new();
    for (name, amount) in members(status, "capacity") {
        amount_faults(amount, &path.child("capacity").key(name), &mut errors);
    }
    let resizing = path.child("allocatedResourceStatuses");
    for (name, state) in members(status, "allocatedResourceStatuses") {
        name_faults(name, &resizing, &mut errors);
        if !RESIZING.contains(&state.as_str().unwrap_or_default()) {
            // upstream shows the name where it means the value
            errors.push(Error::not_supported(&resizing, name.as_str(), &RESIZING));
        }
    }
    let allocated = path.child("allocatedResources");
    for (name, amount) in members(status, "allocatedResources") {
        if name_faults(name, &allocated, &mut errors) {
            amount_faults(amount, &allocated.key(name), &mut errors);
        }
    }
    errors
}

/// Whether there may be a resource of that name; adds what is wrong with it.
fn name_faults(name: &str, path: &Path, errors: &mut ErrorList) -> bool {
    let before = errors.len();
    errors.extend(names::qualified_name_faults(name).into_iter().map(|fault| Error::invalid(path, name, fault)));
    let is_own = !name.contains('/') || name.split('/').next().is_some_and(|domain| domain.ends_with("kubernetes.io"));
    if errors.len() == before && is_own && name != "storage" {
        errors.push(Error::not_supported(path, name, &["storage"]));
    }
    errors.len() == before
}

fn amount_faults(amount: &Value, path: &Path, errors: &mut ErrorList) {
    let Ok(amount) = Quantity::from_json(amount) else { return };
    if amount.is_negative() {
        errors.push(Error::invalid(path, amount.value(), AMOUNT));
    }
}
