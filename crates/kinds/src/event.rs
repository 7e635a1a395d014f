//! Events, in the shape of core/v1 and in that of events.k8s.io/v1. They are kept in the first.
//!
//! Source: `pkg/apis/core/validation/events.go` and `pkg/apis/events/v1/conversion.go` of Kubernetes 1.36.

use super::kit::{at, int, map, same, since, text, time, unset};
use api::field::{Error, ErrorList, Path};
use api::names;
use jiff::Timestamp;
use resource::{Context, Facts, Storage, Strategy};
use serde_json::{Value, json};

const SYSTEM_NAMESPACE: &str = "kube-system";
const DEFAULT_NAMESPACE: &str = "default";

/// Fields that the two shapes call by other names: core/v1, events.k8s.io/v1.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let map = map(object);
    for (from, to) in pairs {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// Events of core/v1.
pub struct CoreEvents;

/// Events of events.k8s.io/v1.
pub struct Events;

impl Strategy for CoreEvents {
    fn facts(&self) -> Facts {
        Facts {
            cached: false,
            // Whatever fits in a path: only the newer shape asks for more.
            name_faults: names::path_segment_faults,
            has_dependents: false,
            has_generation: false,
            create_on_update: true,
            ..Facts::default()
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        legacy(new, "reportingComponent")
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        legacy(new, "reportingComponent")
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        selectable(object)
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(object, now)
    }
}

fn to_storage(object: &mut Value) {
    rename(object, NAMES.into_iter().map(|(core, new)| (new, core)));
    object["apiVersion"] = "v1".into();
    merge::builtin::normalize("io.k8s.api.core.v1.Event", object);
}

fn to_shape(object: &mut Value) {
    rename(object, NAMES.into_iter());
    object["apiVersion"] = "events.k8s.io/v1".into();
    merge::builtin::normalize("io.k8s.api.events.v1.Event", object);
}

impl Strategy for Events {
    fn facts(&self) -> Facts {
        Facts {
            cached: false,
            has_dependents: false,
            has_generation: false,
            create_on_update: true,
            storage: Some(Storage { group: "", plural: "events", to_storage, to_shape }),
            ..Facts::default()
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let event = as_core(new);
        let mut errors = legacy(&event, "reportingController");
        series(&event, &mut errors);
        if at(&event, "eventTime").is_null() {
            errors.push(Error::required(&Path::new("eventTime"), ""));
        }
        let kind = text(&event, "type");
        if !["Normal", "Warning"].contains(&kind) {
            errors.push(Error::invalid(&Path::new("type"), "", format!("has invalid value: {kind}")));
        }
        for field in ["firstTimestamp", "lastTimestamp"] {
            if !at(&event, field).is_null() {
                errors.push(Error::invalid(&Path::new(field), "", "needs to be unset"));
            }
        }
        if int(&event, "count").unwrap_or_default() != 0 {
            errors.push(Error::invalid(&Path::new("count"), "", "needs to be unset"));
        }
        if !unset(at(&event, "source")) {
            errors.push(Error::invalid(&Path::new("source"), "", "needs to be unset"));
        }
        errors
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let (event, before) = (as_core(new), as_core(old));
        let mut errors = legacy(&event, "reportingController");
        if at(&event, "series") != at(&before, "series") {
            series(&event, &mut errors);
        }
        let fields = [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "reason",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingComponent",
            "reportingInstance",
        ];
        for field in fields {
            if !same(at(&event, field), at(&before, field)) {
                let shown = if field == "reportingComponent" { "reportingController" } else { field };
                let value = match (field, at(&event, field)) {
                    ("count", Value::Null) => json!(0),
                    (
                        "reason" | "message" | "type" | "action" | "reportingComponent" | "reportingInstance",
                        Value::Null,
                    ) => {
                        json!("")
                    }
                    (_, value) => value.clone(),
                };
                errors.push(Error::invalid(&Path::new(shown), value, "field is immutable"));
            }
        }
        errors
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        let regarding = [
            ("involvedObject.kind", "regarding.kind"),
            ("involvedObject.namespace", "regarding.namespace"),
            ("involvedObject.name", "regarding.name"),
            ("involvedObject.uid", "regarding.uid"),
            ("involvedObject.apiVersion", "regarding.apiVersion"),
            ("involvedObject.resourceVersion", "regarding.resourceVersion"),
            ("involvedObject.fieldPath", "regarding.fieldPath"),
            ("reportingComponent", "reportingController"),
            ("reason", "reason"),
            ("type", "type"),
        ];
        let fields = selectable(&as_core(object));
        let named = |core: &str| regarding.iter().find(|(c, _)| *c == core).map(|(_, own)| *own);
        fields.into_iter().filter_map(|(core, value)| Some((named(core)?, value))).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(&as_core(object), now)
    }
}

/// An event in core/v1's shape, whichever it has.
fn as_core(event: &Value) -> Value {
    let mut event = event.clone();
    rename(&mut event, NAMES.into_iter().map(|(core, new)| (new, core)));
    event
}

fn at_most(object: &Value, field: &str, shown: &str, most: usize, errors: &mut ErrorList) {
    if text(object, field).len() > most {
        errors.push(Error::invalid(&Path::new(shown), "", format!("can have at most {most} characters")));
    }
}

fn legacy(event: &Value, controller_field: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let namespace = text(event, "metadata.namespace");
    let involved = text(event, "involvedObject.namespace");
    let mismatch =
        || Error::invalid(&Path::new("involvedObject").child("namespace"), involved, "does not match event.namespace");
    if at(event, "eventTime").is_null() {
        let fits = if involved.is_empty() {
            namespace.is_empty() || namespace == DEFAULT_NAMESPACE
        } else {
            involved == namespace
        };
        if !fits {
            errors.push(mismatch());
        }
        return errors;
    }
    if involved.is_empty() && namespace != DEFAULT_NAMESPACE && namespace != SYSTEM_NAMESPACE {
        errors.push(mismatch());
    }
    let controller = text(event, "reportingComponent");
    let path = Path::new(controller_field);
    if controller.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    for fault in names::qualified_name_faults(controller) {
        errors.push(Error::invalid(&path, controller, fault));
    }
    for field in ["reportingInstance", "action", "reason"] {
        if text(event, field).is_empty() {
            errors.push(Error::required(&Path::new(field), ""));
        }
        at_most(event, field, field, 128, &mut errors);
    }
    at_most(event, "message", "message", 1024, &mut errors);
    errors
}

fn series(event: &Value, errors: &mut ErrorList) {
    let series = at(event, "series");
    if series.is_null() {
        return;
    }
    if int(series, "count").unwrap_or_default() < 2 {
        errors.push(Error::invalid(&Path::new("series.count"), "", "should be at least 2"));
    }
    if at(series, "lastObservedTime").is_null() {
        errors.push(Error::required(&Path::new("series.lastObservedTime"), ""));
    }
}

fn selectable(event: &Value) -> Vec<(&'static str, String)> {
    let source = match text(event, "source.component") {
        "" => text(event, "reportingComponent"),
        component => component,
    };
    let mut fields: Vec<(&'static str, String)> = [
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
    ]
    .map(|field| (field, text(event, field).to_owned()))
    .to_vec();
    fields.push(("reportingComponent", text(event, "reportingComponent").to_owned()));
    fields.push(("source", source.to_owned()));
    fields
}

fn row(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = match time(event, "firstTimestamp") {
        Some(first) => since(Some(first), now),
        None => since(time(event, "eventTime"), now),
    };
    let mut last = match time(event, "lastTimestamp") {
        Some(last) => since(Some(last), now),
        None => first.clone(),
    };
    let mut count = int(event, "count").unwrap_or_default();
    if !at(event, "series").is_null() {
        last = since(time(event, "series.lastObservedTime"), now);
        count = int(event, "series.count").unwrap_or_default();
    } else if count == 0 {
        count = 1;
    }
    let kind = text(event, "involvedObject.kind").to_lowercase();
    let name = text(event, "involvedObject.name");
    let target = if name.is_empty() { kind } else { format!("{kind}/{name}") };
    let pair = |component: &str, instance: &str| {
        if instance.is_empty() { component.to_owned() } else { format!("{component}, {instance}") }
    };
    let source = match text(event, "source.component") {
        "" => pair(text(event, "reportingComponent"), text(event, "reportingInstance")),
        component => pair(component, text(event, "source.host")),
    };
    vec![
        json!(last),
        json!(text(event, "type")),
        json!(text(event, "reason")),
        json!(target),
        json!(text(event, "involvedObject.fieldPath")),
        json!(source),
        json!(text(event, "message").trim()),
        json!(first),
        json!(count),
        json!(text(event, "metadata.name")),
    ]
}
