//! Validation of requests and limits, a container's and a pod's.

use super::HUGE_PAGES;
use crate::kit::{at, items, text};
use crate::limits;
use api::field::{Error, ErrorList, Path};
use api::names;
use api::quantity::Quantity;
use serde_json::Value;

/// Names without a domain that containers may ask for.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

fn native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// The name of a resource that is not Kubernetes' own, as it must be.
fn is_extended(name: &str) -> bool {
    !native(name)
        && !name.starts_with("requests.")
        && names::qualified_name_faults(&format!("requests.{name}")).is_empty()
}

/// Extended resources, and huge pages, are whole and cannot be promised twice.
fn overcommit(name: &str) -> bool {
    native(name) && !name.starts_with(HUGE_PAGES)
}

pub fn resource_name(name: &str, path: &Path, errors: &mut ErrorList) {
    let faults = names::qualified_name_faults(name);
    let bad = !faults.is_empty();
    errors.extend(faults.into_iter().map(|fault| Error::invalid(path, name, fault)));
    if !name.contains('/') {
        let standard = STANDARD.contains(&name) || name.starts_with(HUGE_PAGES);
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
    } else if !native(name) && !is_extended(name) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
}

/// The name of a resource that a pod can have as a whole.
fn resource_name_of_pod(name: &str, path: &Path, errors: &mut ErrorList) {
    let mut faults = ErrorList::new();
    resource_name(name, path, &mut faults);
    faults.retain(|fault| !fault.detail.ends_with("for containers") && !fault.detail.starts_with("doesn't follow"));
    if faults.is_empty() && !super::is_of_pods(name) {
        faults.push(Error::not_supported(path, name, &["cpu", HUGE_PAGES, "memory"]));
    }
    errors.extend(faults);
}

fn claims_of_pod(path: &Path) -> Error {
    Error::forbidden(&path.child("claims"), "claims may not be set for Resources at pod-level")
}

/// What is wrong with an empty list or map at `path` of an object with a pod's specification at `spec`.
pub fn refuses_empty(path: &str, spec: &str) -> Option<Error> {
    let resources = Path::new(spec).child("resources");
    let claims = claims_of_pod(&resources);
    (claims.field.as_str() == path).then_some(claims)
}

/// What a pod has as a whole: valid itself, and no less than its containers have.
pub(super) fn pod_resources(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let resources = at(spec, "resources");
    if resources.is_null() {
        return;
    }
    let path = path.child("resources");
    if text(spec, "os.name") == "windows" {
        errors.push(Error::forbidden(&path, "may not be set for a windows pod"));
        return;
    }
    if !at(resources, "claims").is_null() {
        errors.push(claims_of_pod(&path));
    }
    errors.extend(requirements(resources, resource_name_of_pod, &path));
    for (part, what) in [("requests", ""), ("limits", HUGE_PAGES)] {
        let given = limits::amounts(at(resources, part));
        for (name, sum) in limits::of_containers(spec, part) {
            if let Some(own) = given.get(&name).filter(|own| name.starts_with(what) && **own < sum) {
                let why = format!("must be greater than or equal to aggregate container {part} of {sum}");
                errors.push(Error::invalid(&path.child(part).key(&name), own.to_string(), why));
            }
        }
    }
    let most = limits::amounts(at(resources, "limits"));
    for (i, container) in items(spec, "containers").iter().enumerate() {
        for (name, limit) in limits::amounts(at(container, "resources.limits")) {
            if let Some(most) = most.get(&name).filter(|most| limit > **most) {
                let path = path.child("containers").index(i).key(&name).child("limits");
                let why = format!("must be less than or equal to pod limits of {most}");
                errors.push(Error::invalid(&path, limit.to_string(), why));
            }
        }
    }
}

fn amount(name: &str, value: &Value, path: &Path, errors: &mut ErrorList) -> Option<Quantity> {
    let quantity = Quantity::from_json(value).ok()?;
    if quantity.is_negative() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be greater than or equal to 0"));
    }
    if is_extended(name) && !quantity.is_whole() {
        errors.push(Error::invalid(path, quantity.to_string(), "must be an integer"));
    }
    if let Some(size) = name.strip_prefix(HUGE_PAGES)
        && !are_pages(quantity, size)
    {
        let detail = format!("{quantity} is not positive integer multiple of {name}");
        errors.push(Error::invalid(path, quantity.to_string(), detail));
    }
    Some(quantity)
}

/// Whether an amount is a whole number of pages of a size.
fn are_pages(amount: Quantity, size: &str) -> bool {
    Quantity::parse(size).is_ok_and(|size| size.is_whole() && size.value() > 0 && amount.value() % size.value() == 0)
}

/// Limits and requests of a container.
pub fn resource_requirements(resources: &Value, path: &Path) -> ErrorList {
    requirements(resources, resource_name, path)
}

fn requirements(resources: &Value, resource_name: fn(&str, &Path, &mut ErrorList), path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    let (mut compute, mut huge) = (false, false);
    let mut seen = |name: &str| {
        compute |= name == "cpu" || name == "memory";
        huge |= name.starts_with(HUGE_PAGES);
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
