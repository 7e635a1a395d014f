//! Validation of a container's requests, limits and claims.

use crate::kit::at;
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;

/// Names without a domain that containers may ask for.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Extended resources, and huge pages, are whole and cannot be promised twice.
fn overcommit(name: &str) -> bool {
    native(name) && !name.starts_with("hugepages-")
}

pub fn resource_name(name: &str, path: &Path, errors: &mut ErrorList) {
    let faults = names::qualified_name_faults(name);
    let bad = !faults.is_empty();
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, name, fault)));
    if !name.contains('/') {
        let standard = STANDARD.contains(&name) || name.starts_with("hugepages-");
        if !bad
            && !standard
            && !["storage", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory", "pods"].contains(&name)
        {
            let detail = "must be a standard resource type or fully qualified";
            errors.push(Error::invalid(path, name, detail));
        }
        if !standard {
            errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
        }
    } else if !native(name) && (name.starts_with("requests.") || bad) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

fn amount(name: &str, value: &Value, path: &Path, errors: &mut ErrorList) -> Option<Quantity> {
    let quantity = Quantity::from_json(value).ok()?;
    if quantity.is_negative() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be greater than or equal to 0"));
    }
    if !native(name) && !quantity.is_whole() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be an integer"));
    }
    Some(quantity)
}

/// Limits and requests of a container.
pub fn resource_requirements(resources: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let (mut compute, mut huge) = (false, false);
    let mut seen = |name: &str| {
        compute |= name == "cpu" || name == "memory";
        huge |= name.starts_with("hugepages-");
    };
    for (name, value) in at(resources, "limits").as_object().into_iter().flatten() {
        resource_name(name, &limits.key(name), &mut errors);
        amount(name, value, &limits.key(name), &mut errors);
        seen(name);
    }
    for (name, value) in at(resources, "requests").as_object().into_iter().flatten() {
        resource_name(name, &requests.key(name), &mut errors);
        let Some(asked) = amount(name, value, &requests.key(name), &mut errors) else { continue };
        seen(name);
        match Quantity::from_json(&resources["limits"][name.as_str()]) {
            Ok(limit) if asked != limit && !overcommit(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests, asked.to_string(), detail));
            }
            Ok(limit) if asked > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(Error::invalid(&requests, asked.to_string(), detail));
            }
            Ok(_) => {}
            Err(_) => {
                if !overcommit(name) {
                    errors.push(Error::required(&limits, "Limit must be set for non overcommitable resources"));
                }
            }
        }
    }
    if huge && !compute {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
    errors
}
