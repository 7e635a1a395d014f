//! Validation of a Job's status: what it may contain, and what it may not revoke. Most rules hold only where the field they are about
//! changes, so that a status that is wrong already does not block all else.

use super::indexes;
use super::validate::without_value;
use crate::kit::{at, has_condition, int, is_true, items, same, text, time};
use api::field::{Error, ErrorList, Path};
use serde_json::Value;
use std::collections::BTreeSet;

/// Faults of a write of the status.
pub fn validate(new: &Value, old: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let was = |kind| has_condition(old, kind);
    let is = |kind| has_condition(new, kind);
    let finished = is("Complete") || is("Failed");
    let changed = |field: &str| !same(at(new, field), at(old, field));
    let count = |object, field: &str| int(object, field).unwrap_or_default();

    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        let value = count(new, &format!("status.{field}"));
        if value < 0 {
            errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
        }
    }
    uncounted(new, &path.child("uncountedTerminatedPods"), &mut errors);

    let complete_changed = was("Complete") != is("Complete");
    let failed_changed = was("Failed") != is("Failed");
    let finished_changed = finished != (was("Complete") || was("Failed"));
    let start_changed = changed("status.startTime");
    let completion_changed = changed("status.completionTime");
    let completed_changed = text(new, "status.completedIndexes") != text(old, "status.completedIndexes");
    let indexes_changed = at(new, "status.failedIndexes") != at(old, "status.failedIndexes");
    let conditions = path.child("conditions");

    if (complete_changed || failed_changed) && is("Complete") && is("Failed") {
        errors.push(without_value(&conditions, "cannot set Complete=True and Failed=true conditions"));
    }
    let target_changed = was("FailureTarget") != is("FailureTarget");
    if (complete_changed || target_changed) && is("Complete") && is("FailureTarget") {
        errors.push(without_value(&conditions, "cannot set Complete=True and FailureTarget=true conditions"));
    }
    let completion = at(new, "status.completionTime");
    let at_completion = path.child("completionTime");
    if complete_changed || completion_changed {
        if !completion.is_null() && !is("Complete") {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(Error::invalid(&at_completion, completion.clone(), detail));
        }
        if completion.is_null() && is("Complete") {
            errors.push(Error::required(&at_completion, "completionTime is required for Complete jobs"));
        }
    }
    if start_changed || completion_changed {
        let (start, end) = (time(new, "status.startTime"), time(new, "status.completionTime"));
        if start.zip(end).is_some_and(|(start, end)| end < start) {
            let detail = "must be equal to or after `startTime`";
            errors.push(Error::invalid(&at_completion, completion.clone(), detail));
        }
    }
    if (failed_changed || indexes_changed) && is("Failed") && !is("FailureTarget") {
        let detail = "cannot set Failed=True condition without the FailureTarget=true condition";
        errors.push(without_value(&conditions, detail));
    }
    let met_changed = was("SuccessCriteriaMet") != is("SuccessCriteriaMet");
    if (complete_changed || met_changed) && is("Complete") && !is("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition";
        errors.push(without_value(&conditions, detail));
    }
    let active = count(new, "status.active");
    if (finished_changed || changed("status.active")) && active > 0 && finished {
        errors.push(Error::invalid(&path.child("active"), active, "active>0 is invalid for finished job"));
    }
    let nothing_to_do = is_true(new, "spec.suspend") && int(new, "spec.completions") == Some(0);
    if (finished_changed || start_changed) && !nothing_to_do && finished && at(new, "status.startTime").is_null() {
        errors.push(Error::required(&path.child("startTime"), "startTime is required for finished job"));
    }
    let pods = at(new, "status.uncountedTerminatedPods");
    let any = !items(pods, "failed").is_empty() || !items(pods, "succeeded").is_empty();
    if (finished_changed || changed("status.uncountedTerminatedPods")) && finished && any {
        let at = path.child("uncountedTerminatedPods");
        errors.push(Error::invalid(&at, pods.clone(), "must be empty for finished job"));
    }
    index_lists(new, completed_changed, indexes_changed, &path, &mut errors);
    let terminating = count(new, "status.terminating");
    if (finished_changed || changed("status.terminating")) && terminating > 0 && finished {
        let at = path.child("terminating");
        errors.push(Error::invalid(&at, terminating, "terminating>0 is invalid for finished job"));
    }
    let ready = count(new, "status.ready");
    let says_ready = int(new, "status.ready").is_some();
    if says_ready && (changed("status.ready") || changed("status.active")) && ready > active {
        errors.push(Error::invalid(&path.child("ready"), ready, "cannot set more ready pods than active"));
    }
    for other in ["Failed", "FailureTarget"] {
        if is("SuccessCriteriaMet") && is(other) {
            let detail = format!("cannot set SuccessCriteriaMet=True and {other}=true conditions");
            errors.push(without_value(&conditions, &detail));
        }
    }
    if !at(new, "spec.successPolicy").is_null() && !is("SuccessCriteriaMet") && is("Complete") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        errors.push(without_value(&conditions, detail));
    }
    transitions(new, old, &path, &mut errors);
    errors
}

fn uncounted(job: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for list in ["succeeded", "failed"] {
        for (i, uid) in items(job, &format!("status.uncountedTerminatedPods.{list}")).iter().enumerate() {
            let uid = uid.as_str().unwrap_or_default();
            let path = path.child(list).index(i);
            if uid.is_empty() {
                errors.push(Error::invalid(&path, uid, "must not be empty"));
            } else if seen.contains(&uid) {
                errors.push(Error::duplicate(&path, uid));
            } else {
                seen.insert(uid);
            }
        }
    }
}

fn index_lists(job: &Value, completed_changed: bool, failed_changed: bool, path: &Path, errors: &mut ErrorList) {
    let completions = int(job, "spec.completions");
    let per_index = int(job, "spec.backoffLimitPerIndex").is_some();
    let completed = text(job, "status.completedIndexes");
    let failed = at(job, "status.failedIndexes").as_str();
    let (at_completed, at_failed) = (path.child("completedIndexes"), path.child("failedIndexes"));
    if let Some(completions) = completions {
        if completed_changed && let Err(why) = indexes::count(completed, completions) {
            errors.push(Error::invalid(&at_completed, completed, format!("error parsing completedIndexes: {why}")));
        }
        if let Some(failed) = failed
            && failed_changed
            && per_index
            && let Err(why) = indexes::count(failed, completions)
        {
            errors.push(Error::invalid(&at_failed, failed, format!("error parsing failedIndexes: {why}")));
        }
    }
    if completed_changed && !completed.is_empty() && text(job, "spec.completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(Error::invalid(&at_completed, completed, detail));
    }
    let Some(failed) = failed else { return };
    if failed_changed && !per_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(Error::invalid(&at_failed, failed, detail));
    }
    if (failed_changed || completed_changed)
        && let Some(completions) = completions
        && let Some(index) = indexes::overlap(completed, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(Error::invalid(&at_failed, failed, detail));
    }
}

/// What a status may not take back.
fn transitions(new: &Value, old: &Value, path: &Path, errors: &mut ErrorList) {
    let was = |kind| has_condition(old, kind);
    let is = |kind| has_condition(new, kind);
    let count = |object, field: &str| int(object, field).unwrap_or_default();
    let conditions = path.child("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if was(kind) && !is(kind) {
            errors.push(without_value(&conditions, &format!("cannot disable the terminal {kind}=True condition")));
        }
    }
    let failed = count(new, "status.failed");
    if failed < count(old, "status.failed") {
        errors.push(Error::invalid(&path.child("failed"), failed, "cannot decrease the failed counter"));
    }
    let scalable =
        text(new, "spec.completionMode") == "Indexed" && int(new, "spec.completions") == int(new, "spec.parallelism");
    let succeeded = count(new, "status.succeeded");
    if !scalable && succeeded < count(old, "status.succeeded") {
        errors.push(Error::invalid(&path.child("succeeded"), succeeded, "cannot decrease the succeeded counter"));
    }
    let (end, before) = (at(new, "status.completionTime"), at(old, "status.completionTime"));
    if !end.is_null() && !before.is_null() && end != before {
        errors.push(Error::invalid(&path.child("completionTime"), end.clone(), "field is immutable"));
    }
    let resumed = was("Suspended")
        && items(new, "status.conditions")
            .iter()
            .any(|c| text(c, "type") == "Suspended" && text(c, "status") == "False");
    let (start, before) = (at(new, "status.startTime"), at(old, "status.startTime"));
    if !resumed && !before.is_null() && start != before && !is_true(new, "spec.suspend") {
        let detail = "field is immutable for unsuspended job once set";
        errors.push(Error::invalid(&path.child("startTime"), start.clone(), detail));
    }
    if was("SuccessCriteriaMet") && !is("SuccessCriteriaMet") {
        errors.push(without_value(&conditions, "cannot disable the SuccessCriteriaMet=True condition"));
    }
    if was("Complete") && !was("SuccessCriteriaMet") && is("SuccessCriteriaMet") {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(without_value(&conditions, detail));
    }
}
