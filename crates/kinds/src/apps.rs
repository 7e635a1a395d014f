//! Kinds that stand for many pods: apps/v1 and ReplicationController. They are stored, validated, defaulted, scaled and shown as
//! upstream does it (`pkg/registry/apps`, `pkg/apis/apps` of Kubernetes 1.36); nothing here makes pods of them, and a
//! warning on create says so.

mod revision;
mod validate;

pub use revision::ControllerRevisions;

use super::kit::{age, at, child, default, int, items, keep, label_selector, labels, map, text, unset};
use super::podspec;
use api::field::ErrorList;
use api::names;
use jiff::Timestamp;
use merge::apply::Ignored;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// Counts the changes of a DaemonSet's template: a field that v1 keeps as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Which of the kinds it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    DaemonSet,
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

use Workload::{DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};

impl Workload {
    fn kind(self) -> &'static str {
        match self {
            DaemonSet => "DaemonSet",
            Deployment => "Deployment",
            ReplicaSet => "ReplicaSet",
            ReplicationController => "ReplicationController",
            StatefulSet => "StatefulSet",
        }
    }

    /// The pods' selector as text, as tables and Scales show it.
    fn selector(self, object: &Value) -> String {
        let selector = at(object, "spec.selector");
        if self == ReplicationController { labels(selector) } else { label_selector(selector) }
    }
}

/// The selector that a Scale shows: none where there is none.
fn scaled(selector: String) -> String {
    if selector == "<none>" { String::new() } else { selector }
}

impl Strategy for Workload {
    fn facts(&self) -> Facts {
        Facts {
            refuses_empty: |path| podspec::refuses_empty(path, "spec.template.spec"),
            name_faults: match self {
                StatefulSet => names::label_faults,
                // only the name that was made of it is looked at
                ReplicationController => {
                    |name, prefix| if prefix { Vec::new() } else { names::subdomain_faults(name, prefix) }
                }
                _ => names::subdomain_faults,
            },
            default_orphans: *self == ReplicationController,
            bookmark: match self {
                DaemonSet => |object| object["metadata"]["annotations"][TEMPLATE_GENERATION] = "0".into(),
                Deployment | ReplicaSet | StatefulSet => |object| object["spec"]["replicas"] = 0.into(),
                ReplicationController => |_| (),
            },
            scale: match self {
                DaemonSet => None,
                ReplicationController => Some(|object| scaled(labels(at(object, "spec.selector")))),
                Deployment | ReplicaSet | StatefulSet => {
                    Some(|object| scaled(label_selector(at(object, "spec.selector"))))
                }
            },
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        if *self == ReplicationController {
            let own = at(object, "spec.template.metadata.labels").clone();
            if own.is_object() {
                for (parent, member) in [("spec", "selector"), ("metadata", "labels")] {
                    let parent = child(object, parent);
                    if unset(at(parent, member)) {
                        parent[member] = own.clone();
                    }
                }
            }
        }
        if *self == DaemonSet && api::object::annotation(object, TEMPLATE_GENERATION).is_none() {
            count_template(object, 0);
        }
        let spec = child(object, "spec");
        if *self != DaemonSet {
            default(spec, "replicas", 1);
        }
        match self {
            Deployment => {
                rolling(child(spec, "strategy"), &[("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))]);
                default(spec, "progressDeadlineSeconds", 600);
            }
            DaemonSet => {
                rolling(child(spec, "updateStrategy"), &[("maxUnavailable", json!(1)), ("maxSurge", json!(0))])
            }
            StatefulSet => stateful_defaults(spec),
            ReplicaSet | ReplicationController => {}
        }
        if matches!(self, Deployment | DaemonSet | StatefulSet) {
            default(spec, "revisionHistoryLimit", 10);
        }
        if *self != ReplicationController || spec.get("template").is_some_and(Value::is_object) {
            podspec::defaults(child(child(spec, "template"), "spec"));
        }
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        super::podspec::drop_disabled(new, "/spec/template/spec");
        new["status"] = json!({});
        if *self == StatefulSet {
            drop_gated(new, None);
        }
        if *self == DaemonSet {
            let given = api::object::annotation(new, TEMPLATE_GENERATION).and_then(|n| n.parse::<i64>().ok());
            count_template(new, given.unwrap_or_default().max(1));
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        validate::spec(*self, new, None)
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        super::podspec::drop_disabled(new, "/spec/template/spec");
        keep(new, old, "status");
        if *self == StatefulSet {
            drop_gated(new, Some(old));
        }
        if *self == DaemonSet {
            let before = api::object::annotation(old, TEMPLATE_GENERATION).and_then(|n| n.parse::<i64>().ok());
            let changed = at(new, "spec.template") != at(old, "spec.template");
            count_template(new, before.unwrap_or_default() + i64::from(changed));
        }
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        validate::update(*self, new, old)
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &mut Value, old: &Value) {
        if subresource == "status" {
            keep(new, old, "spec");
            if *self == DaemonSet {
                // the number of its template is part of its spec
                let number = api::object::annotation(old, TEMPLATE_GENERATION).and_then(|n| n.parse::<i64>().ok());
                count_template(new, number.unwrap_or_default());
            }
            if *self == Deployment {
                super::kit::keep_meta(new, old, "labels");
            }
        }
    }

    fn validate_subresource(&self, _cx: &Context<'_>, subresource: &str, new: &Value, old: &Value) -> ErrorList {
        if subresource == "status" { validate::status(*self, new, old) } else { validate::update(*self, new, old) }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() {
            let kind = self.kind();
            let faults = names::label_faults(text(new, "metadata.name"), false);
            if !faults.is_empty() && matches!(self, Deployment | ReplicaSet | ReplicationController) {
                warnings.push(format!(
                    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
                     DNS label is recommended: [{}]",
                    faults.join(" ")
                ));
            }
            warnings.push(crate::kit::stored_only(&format!("{kind}s"), "runs none: no pods will come of this one"));
        }
        let part = if *self == DaemonSet { "spec.template" } else { "spec" };
        let warned_of = match old {
            None => Some(new),
            Some(old) if at(old, part) == at(new, part) => None,
            // upstream takes one for the other
            Some(old) if *self == ReplicationController => Some(old),
            Some(_) => Some(new),
        };
        if let Some(object) = warned_of {
            warnings.extend(super::pod::warnings_of_template(at(object, "spec.template"), "spec.template."));
        }
        if *self == StatefulSet {
            // on updates upstream writes one part more of the path, by the name that it has in Go
            let part = if old.is_some() { ".Spec" } else { "" };
            for (i, claim) in items(new, "spec.volumeClaimTemplates").iter().enumerate() {
                let path = format!("spec.volumeClaimTemplates[{i}]{part}");
                warnings.extend(super::pod::warnings_of_claim(at(claim, "spec"), &path));
            }
        }
        if *self == StatefulSet && int(new, "spec.revisionHistoryLimit").is_some_and(|n| n < 0) {
            let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                        recommended";
            warnings.push(text.to_owned());
        }
        warnings
    }

    fn generation_changed(&self, new: &Value, old: &Value) -> bool {
        let told = *self == Deployment && at(new, "metadata.annotations") != at(old, "metadata.annotations");
        told || at(new, "spec") != at(old, "spec")
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        match self {
            ReplicationController => {
                vec![("status.replicas", int(object, "status.replicas").unwrap_or_default().to_string())]
            }
            _ => Vec::new(),
        }
    }

    fn ignored(&self, subresource: &str) -> Ignored {
        match (self, subresource) {
            (Deployment, "status") => Ignored::paths(&["spec", "metadata.labels"]),
            (_, "status") => Ignored::paths(&["spec"]),
            _ => Ignored::paths(&["status"]),
        }
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let number = |field: &str| json!(int(object, field).unwrap_or_default());
        let ready = || {
            let (ready, wanted) = (int(object, "status.readyReplicas"), int(object, "spec.replicas"));
            json!(format!("{}/{}", ready.unwrap_or_default(), wanted.unwrap_or_default()))
        };
        let mut row = vec![json!(text(object, "metadata.name"))];
        match self {
            Deployment => {
                row.extend([
                    ready(),
                    number("status.updatedReplicas"),
                    number("status.availableReplicas"),
                    age(object, now),
                ]);
            }
            StatefulSet => row.extend([ready(), age(object, now)]),
            ReplicaSet | ReplicationController => {
                row.extend(["spec.replicas", "status.replicas", "status.readyReplicas"].map(number));
                row.push(age(object, now));
            }
            DaemonSet => {
                row.extend(
                    [
                        "desiredNumberScheduled",
                        "currentNumberScheduled",
                        "numberReady",
                        "updatedNumberScheduled",
                        "numberAvailable",
                    ]
                    .map(|field| number(&format!("status.{field}"))),
                );
                row.push(json!(labels(at(object, "spec.template.spec.nodeSelector"))));
                row.push(age(object, now));
            }
        }
        let (containers, images) = super::job::containers(at(object, "spec.template.spec"));
        row.extend([json!(containers), json!(images)]);
        match self {
            // the object of a bookmark has no selector; upstream shows nothing for it
            Deployment if at(object, "spec.selector").is_null() => row.push(json!("")),
            StatefulSet => {}
            Deployment | DaemonSet | ReplicaSet | ReplicationController => row.push(json!(self.selector(object))),
        }
        row
    }
}

/// A strategy of type `RollingUpdate` where it says none, and how that goes.
fn rolling(strategy: &mut Value, how: &[(&str, Value)]) {
    if unset(at(strategy, "type")) {
        strategy["type"] = json!("RollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate" {
        for (field, value) in how {
            default(child(strategy, "rollingUpdate"), field, value.clone());
        }
    }
}

fn stateful_defaults(spec: &mut Value) {
    if unset(at(spec, "podManagementPolicy")) {
        spec["podManagementPolicy"] = json!("OrderedReady");
    }
    let strategy = child(spec, "updateStrategy");
    if unset(at(strategy, "type")) {
        strategy["type"] = json!("RollingUpdate");
        child(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate" && at(strategy, "rollingUpdate").is_object() {
        default(child(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        if unset(at(retention, field)) {
            retention[field] = json!("Retain");
        }
    }
    for claim in super::kit::items_mut(spec, "volumeClaimTemplates") {
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        default(child(claim, "spec"), "volumeMode", "Filesystem");
        default(child(claim, "status"), "phase", "Pending");
    }
}

/// Takes off how many pods may be missing at once, which upstream's gate keeps out: an old one may be changed.
fn drop_gated(new: &mut Value, old: Option<&Value>) {
    const FIELD: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    if old.is_none_or(|old| at(old, FIELD).is_null())
        && let Some(Value::Object(rolling)) = new.pointer_mut("/spec/updateStrategy/rollingUpdate")
    {
        rolling.remove("maxUnavailable");
    }
}

fn count_template(daemons: &mut Value, count: i64) {
    map(child(child(daemons, "metadata"), "annotations"))
        .insert(TEMPLATE_GENERATION.to_owned(), json!(count.to_string()));
}

/// Whether a selector can be read at all: upstream then asks no more of the template.
fn is_readable(selector: &Value) -> bool {
    podspec::label_selector(selector, &api::field::Path::new("selector")).is_empty()
}

/// Whether nothing is asked of labels.
fn is_empty(selector: &Value) -> bool {
    selector.is_object() && items(selector, "matchExpressions").is_empty() && unset(at(selector, "matchLabels"))
}
