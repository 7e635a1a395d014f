//! Claims of volumes, volumes, and classes of storage; here is what claims and volumes have in common.

mod claim_status;
mod claims;
mod classes;
mod volumes;

pub use claims::{Claims, claim_spec};
pub use classes::Classes;
pub use volumes::Volumes;

use crate::kit::at;
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Access modes as tables show them: `RWO,RWX`.
fn short_modes(modes: &[Value]) -> String {
    let known =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let there = known.into_iter().filter(|(mode, _)| modes.iter().any(|m| m == mode));
    there.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

/// An amount of storage is greater than zero (`ValidatePositiveQuantityValue`).
fn size_faults(amount: &Quantity, path: &Path, errors: &mut ErrorList) {
    if amount.is_negative() || amount.is_zero() {
        errors.push(Error::invalid(path, amount.to_string(), "must be greater than zero"));
    }
}

fn attributes_class(spec: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(class) = at(spec, "volumeAttributesClassName").as_str()
        && !class.is_empty()
    {
        let faults = names::subdomain_faults(class, false);
        let path = path.child("volumeAttributesClassName");
        errors.extend(faults.into_iter().map(|fault| Error::invalid(&path, class, fault)));
    }
}

/// Access modes: they are known, and one that admits a single pod stands alone.
fn mode_faults(modes: &[Value], path: &Path, errors: &mut ErrorList) {
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(path, mode, &MODES));
        }
    }
    let (alone, others) = modes.iter().partition::<Vec<_>, _>(|mode| *mode == "ReadWriteOncePod");
    if !alone.is_empty() && others.iter().any(|mode| mode.as_str().is_some_and(|mode| MODES.contains(&mode))) {
        errors.push(Error::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}
