//! Smaller kinds of core/v1: namespaces, config maps, secrets, nodes, pod templates, endpoints; and leases.

mod data;
mod namespaces;
mod nodes;

use super::kit::{self, age, at, child, int, is_true, items, keep, map, members, text, unset};
use super::podspec;
use api::field::{Error, ErrorList, Path};
use api::names;
use base64::Engine;
pub use data::{ConfigMaps, Secrets};
use jiff::Timestamp;
pub use namespaces::Namespaces;
pub use nodes::Nodes;
use resource::status::Status;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn immutable(new: &Value, old: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    let value = at(new, field);
    if !super::kit::same(value, at(old, field)) {
        errors.push(Error::invalid(path, value.clone(), "field is immutable"));
    }
}

/// The kind `PodTemplate`.
pub struct PodTemplates;

impl Strategy for PodTemplates {
    fn facts(&self) -> Facts {
        Facts {
            refuses_empty: |path| podspec::refuses_empty(path, "template.spec"),
            delete_returns_object: true,
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        podspec::defaults(child(child(object, "template"), "spec"));
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        podspec::drop_disabled(new, "/template/spec");
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, _old: &Value) {
        podspec::drop_disabled(new, "/template/spec");
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        super::job::pod_template(at(new, "template"), &Path::new("template"), &mut errors);
        errors
    }

    fn validate_update(&self, cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        self.validate_create(cx, new)
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        at(new, "template") != at(old, "template")
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        match old {
            Some(old) if at(old, "template") == at(new, "template") => Vec::new(),
            Some(_) | None => super::pod::warnings_of_template(at(new, "template"), "template."),
        }
    }

    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let (containers, images) = super::job::containers(at(object, "template.spec"));
        vec![
            json!(text(object, "metadata.name")),
            json!(containers),
            json!(images),
            json!(super::kit::labels(at(object, "template.metadata.labels"))),
        ]
    }
}

/// The kind `Endpoints`.
pub struct Endpoints;

impl Strategy for Endpoints {
    fn facts(&self) -> Facts {
        Facts {
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            create_on_update: true,
            has_generation: false,
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        for subset in super::kit::items_mut(object, "subsets") {
            for port in super::kit::items_mut(subset, "ports") {
                super::kit::default(port, "protocol", "TCP");
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        super::network::endpoints(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        super::network::endpoints(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut all = Vec::new();
        for subset in items(object, "subsets") {
            for address in items(subset, "addresses") {
                let ip = text(address, "ip");
                if items(subset, "ports").is_empty() {
                    all.push(ip.to_owned());
                }
                for port in items(subset, "ports") {
                    all.push(format!("{ip}:{}", int(port, "port").unwrap_or_default()));
                }
            }
        }
        let more = all.len().saturating_sub(3);
        let mut shown = all.into_iter().take(3).collect::<Vec<_>>().join(",");
        if more > 0 {
            shown += &format!(" + {more} more...");
        }
        if shown.is_empty() {
            "<none>".clone_into(&mut shown);
        }
        vec![json!(text(object, "metadata.name")), json!(shown), age(object, now)]
    }
}

/// The kind `Lease` of coordination.k8s.io.
pub struct Leases;

impl Leases {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        if let Some(seconds) = int(object, "spec.leaseDurationSeconds")
            && seconds <= 0
        {
            errors.push(Error::invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
        }
        if let Some(count) = int(object, "spec.leaseTransitions")
            && count < 0
        {
            let detail = "must be greater than or equal to 0";
            errors.push(Error::invalid(&path.child("leaseTransitions"), count, detail));
        }
        errors
    }
}

impl Strategy for Leases {
    fn facts(&self) -> Facts {
        Facts {
            qualified_finalizers: false,
            has_generation: false,
            create_on_update: true,
            unconditional_update: false,
            ..Facts::default()
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        // behind a gate that is off
        super::kit::without(new, "spec", &["strategy", "preferredHolder"]);
    }

    fn prepare_update(&self, cx: &Context<'_>, new: &mut Value, _old: &Value) {
        self.prepare_create(cx, new);
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        vec![json!(text(object, "metadata.name")), json!(text(object, "spec.holderIdentity")), age(object, now)]
    }
}
