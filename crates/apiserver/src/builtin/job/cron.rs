//! batch/v1 CronJobs: kept and defaulted; nothing here starts their Jobs.

use crate::builtin::kit::{age, at, child, default, int, is_true, items, keep, since, text, time};
use crate::builtin::podspec;
use crate::resource::{Context, Strategy};
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The kind `CronJob`.
pub struct CronJobs;

impl CronJobs {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let schedule = text(object, "spec.schedule");
        if schedule.is_empty() {
            errors.push(Error::required(&path.child("schedule"), ""));
        } else if schedule.contains("TZ") {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(Error::invalid(&path.child("schedule"), schedule, detail));
        } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
            let count = schedule.split_whitespace().count();
            let shown: Vec<&str> = schedule.split_whitespace().collect();
            let detail = format!("expected exactly 5 fields, found {count}: [{}]", shown.join(" "));
            errors.push(Error::invalid(&path.child("schedule"), schedule, detail));
        }
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            if let Some(value) = int(object, &format!("spec.{field}"))
                && value < 0
            {
                errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
            }
        }
        let policy = text(object, "spec.concurrencyPolicy");
        let supported = ["Allow", "Forbid", "Replace"];
        if !supported.contains(&policy) {
            errors.push(Error::not_supported(&path.child("concurrencyPolicy"), policy, &supported));
        }
        let template = path.child("jobTemplate").child("spec").child("template");
        super::pod_template(at(object, "spec.jobTemplate.spec.template"), &template, &mut errors);
        errors
    }
}

impl Strategy for CronJobs {
    fn default(&self, object: &mut Value) {
        let spec = child(object, "spec");
        default(spec, "concurrencyPolicy", "Allow");
        default(spec, "suspend", false);
        default(spec, "successfulJobsHistoryLimit", 3);
        default(spec, "failedJobsHistoryLimit", 1);
        let job = child(child(spec, "jobTemplate"), "spec");
        podspec::defaults(child(child(job, "template"), "spec"));
    }

    fn prepare_create(&self, _cx: &Context<'_>, new: &mut Value) {
        new["status"] = json!({});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = Self::faults(new);
        let name = text(new, "metadata.name");
        if name.len() > 52 {
            let path = Path::new("metadata").child("name");
            errors.push(Error::invalid(&path, name, "must be no more than 52 characters"));
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        keep(new, old, "status");
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, _old: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn prepare_subresource(&self, _cx: &Context<'_>, _subresource: &str, new: &mut Value, old: &Value) {
        keep(new, old, "spec");
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let job = at(object, "spec.jobTemplate.spec");
        let (names, images) = super::containers(at(job, "template.spec"));
        let last = match time(object, "status.lastScheduleTime") {
            None => "<none>".to_owned(),
            last => since(last, now),
        };
        vec![
            json!(text(object, "metadata.name")),
            json!(text(object, "spec.schedule")),
            json!(at(object, "spec.timeZone").as_str().unwrap_or("<none>")),
            json!(is_true(object, "spec.suspend")),
            json!(items(object, "status.active").len()),
            json!(last),
            age(object, now),
            json!(names),
            json!(images),
            json!(crate::builtin::kit::label_selector(at(job, "selector"))),
        ]
    }
}
