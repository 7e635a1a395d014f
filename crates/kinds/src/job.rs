//! batch/v1 Jobs: what the API server does to them. Source: `pkg/registry/batch/job` and `pkg/apis/batch` of
//! Kubernetes 1.36.

mod cron;
mod indexes;
mod schedule;
mod status;
mod validate;

pub use cron::CronJobs;
pub use validate::{pod_template, template_metadata};

use super::kit::{
    age, at, child, default, human, int, is_true, items, items_mut, keep, label_selector, map, text, time,
};
use super::podspec;
use api::field::ErrorList;
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// The kind `Job`.
pub struct Jobs;

/// Labels that tie pods to their Job, with and without prefix: name, then uid.
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Whether a name was made of a prefix (of which upstream takes 58 bytes) and five letters.
fn was_generated(name: &str, prefix: &str) -> bool {
    let base = prefix.get(..58).unwrap_or(prefix);
    !base.is_empty() && name.strip_prefix(base).is_some_and(|suffix| suffix.len() == 5)
}

/// A Job without labels shows those of its template: its own, and those that tie its pods to it.
fn show_template_labels(job: &mut Value) {
    let labels = at(job, "spec.template.metadata.labels").clone();
    if super::kit::unset(at(job, "metadata.labels")) && !super::kit::unset(&labels) {
        child(job, "metadata")["labels"] = labels;
    }
}

impl Strategy for Jobs {
    fn facts(&self) -> Facts {
        Facts {
            refuses_empty: |path| podspec::refuses_empty(path, "spec.template.spec"),
            selected_as: Some("Job"),
            default_orphans: true,
            warns_of_orphans: true,
            ..Facts::default()
        }
    }

    fn default(&self, object: &mut Value) {
        // A new Job gets those of its template once they are complete (`prepare_create`).
        if !text(object, "metadata.uid").is_empty() {
            show_template_labels(object);
        }
        spec_defaults(child(object, "spec"));
    }

    fn as_tracked(&self, object: &Value) -> Option<Value> {
        let mut seen = object.clone();
        show_template_labels(&mut seen);
        Some(seen)
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        super::podspec::drop_disabled(new, "/spec/template/spec");
        new["status"] = json!({});
        // A template without labels has nothing yet that the Job could show: what is no label value is found there alone.
        let good = api::names::label_value_faults(text(new, "metadata.name")).is_empty();
        let shown = good || !super::kit::unset(at(new, "spec.template.metadata.labels"));
        if is_true(new, "spec.manualSelector") {
            return show_template_labels(new);
        }
        let (name, uid) = (text(new, "metadata.name").to_owned(), text(new, "metadata.uid").to_owned());
        if was_generated(&name, text(new, "metadata.generateName")) {
            // upstream makes a copy for each name that it tries: the Job's labels are those that the template had before
            show_template_labels(new);
        }
        let spec = child(new, "spec");
        let labels = map(child(child(child(spec, "template"), "metadata"), "labels"));
        for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
            for key in keys {
                labels.entry(key).or_insert_with(|| value.as_str().into());
            }
        }
        let matched = map(child(child(spec, "selector"), "matchLabels"));
        matched.entry(UID_LABELS[1]).or_insert_with(|| uid.into());
        if shown {
            show_template_labels(new);
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        validate::job(new, true)
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        super::podspec::drop_disabled(new, "/spec/template/spec");
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let labels = at(old, "spec.template.metadata.labels");
        let prefixed = labels.get(NAME_LABELS[1]).is_some() && labels.get(UID_LABELS[1]).is_some();
        let mut errors = validate::job(new, prefixed);
        validate::update(new, old, &mut errors);
        errors
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn validate_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &Value, old: &Value) -> ErrorList {
        status::validate(new, old)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() {
            let faults = api::names::label_faults(text(new, "metadata.name"), false);
            if !faults.is_empty() {
                warnings.push(format!(
                    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
                     DNS label is recommended: [{}]",
                    faults.join(" ")
                ));
            }
        }
        if old.is_none_or(|old| at(old, "spec") != at(new, "spec")) {
            let count = |field| int(new, field).unwrap_or_default();
            let indexed = text(new, "spec.completionMode") == "Indexed";
            if indexed && count("spec.completions") > 100_000 && count("spec.parallelism") > 10_000 {
                warnings.push(
                    "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
                     10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                        .to_owned(),
                );
            }
            warnings.extend(super::pod::warnings_of_template(at(new, "spec.template"), "spec.template."));
        }
        warnings
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.successful", int(object, "status.succeeded").unwrap_or_default().to_string())]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let succeeded = int(object, "status.succeeded").unwrap_or_default();
        let completions = match (int(object, "spec.completions"), int(object, "spec.parallelism").unwrap_or_default()) {
            (Some(completions), _) => format!("{succeeded}/{completions}"),
            (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            (None, _) => format!("{succeeded}/1"),
        };
        let duration = time(object, "status.startTime").map_or_else(String::new, |start| {
            let end = time(object, "status.completionTime").unwrap_or(now);
            human(end.as_second() - start.as_second())
        });
        let is = |kind| super::kit::has_condition(object, kind);
        let status = if is("Complete") {
            "Complete"
        } else if is("Failed") {
            "Failed"
        } else if api::object::is_terminating(object) {
            "Terminating"
        } else if is("Suspended") {
            "Suspended"
        } else if is("FailureTarget") {
            "FailureTarget"
        } else if is("SuccessCriteriaMet") {
            "SuccessCriteriaMet"
        } else {
            "Running"
        };
        let (names, images) = containers(at(object, "spec.template.spec"));
        vec![
            json!(text(object, "metadata.name")),
            json!(status),
            json!(completions),
            json!(duration),
            age(object, now),
            json!(names),
            json!(images),
            json!(label_selector(at(object, "spec.selector"))),
        ]
    }
}

/// Defaults of a Job's spec.
fn spec_defaults(spec: &mut Value) {
    if int(spec, "completions").is_none() && int(spec, "parallelism").is_none() {
        spec["completions"] = json!(1);
    }
    default(spec, "parallelism", 1);
    let limit = if int(spec, "backoffLimitPerIndex").is_some() { i64::from(i32::MAX) } else { 6 };
    default(spec, "backoffLimit", limit);
    if at(spec, "completionMode").is_null() {
        spec["completionMode"] = json!("NonIndexed");
    }
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    let failed = !at(spec, "podFailurePolicy").is_null();
    if at(spec, "podReplacementPolicy").is_null() {
        spec["podReplacementPolicy"] = json!(if failed { "Failed" } else { "TerminatingOrFailed" });
    }
    if let Some(policy) = super::kit::child_if(spec, "podFailurePolicy") {
        for rule in items_mut(policy, "rules") {
            for pattern in items_mut(rule, "onPodConditions") {
                default(pattern, "status", "True");
            }
        }
    }
    podspec::defaults(child(child(spec, "template"), "spec"));
}

/// Names and images of a template's containers, as tables show them.
pub fn containers(spec: &Value) -> (String, String) {
    let join = |field: &str| items(spec, "containers").iter().map(|c| text(c, field)).collect::<Vec<_>>().join(",");
    (join("name"), join("image"))
}
