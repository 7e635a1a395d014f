//! Validation of a Job's spec, and of changes to it.

use super::{NAME_LABELS, UID_LABELS, indexes};
use crate::kit::{at, child_if, has_condition, int, is_true, items, items_mut, keep, map, same, text};
use crate::podspec;
use api::field::{Error, ErrorList, ErrorType, Path};
use api::names;
use objects::selector::Selector;
use serde_json::{Value, json};

const MAX_PARALLELISM: i64 = 100_000;
const MAX_FAILED: i64 = 100_000;
const HIGH_COMPLETIONS: i64 = 100_000;
const MAX_WITH_HIGH_COMPLETIONS: i64 = 10_000;

/// An error that shows no value.
pub(super) fn without_value(path: &Path, detail: &str) -> Error {
    Error { kind: ErrorType::Invalid, field: path.clone(), value: None, detail: detail.to_owned(), shown: None }
}

/// All faults of a Job. `prefixed`: its template must have the labels with prefix, too.
pub fn job(job: &Value, prefixed: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("spec");
    let spec = at(job, "spec");
    let name = text(job, "metadata.name");
    generated_selector(job, prefixed, &mut errors);
    self::spec(spec, &path, &mut errors);
    selector(spec, &path, &mut errors);
    if text(spec, "completionMode") == "Indexed"
        && let Some(completions) = int(spec, "completions")
        && completions > 0
    {
        let host = format!("{name}-{}", completions - 1);
        if !names::label_faults(&host, false).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {host}");
            errors.push(Error::invalid(&Path::new("metadata").child("name"), name, detail));
        }
    }
    errors
}

fn generated_selector(job: &Value, prefixed: bool, errors: &mut ErrorList) {
    let spec = at(job, "spec");
    let wanted = at(spec, "selector");
    if is_true(spec, "manualSelector") || wanted.is_null() {
        return;
    }
    let (name, uid) = (text(job, "metadata.name"), text(job, "metadata.uid"));
    if uid.is_empty() {
        errors.push(Error::required(&Path::new("metadata").child("uid"), ""));
    }
    let path = Path::new("spec").child("template").child("metadata").child("labels");
    let labels = at(spec, "template.metadata.labels");
    let mut expected = serde_json::Map::new();
    let pairs = [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    for (key, value) in pairs.into_iter().take(if prefixed { 4 } else { 2 }) {
        let detail = format!("must be '{value}'");
        match labels.get(key).and_then(Value::as_str) {
            None => errors.push(Error::required(&path.key(key), detail)),
            Some(there) if there != value => errors.push(Error::invalid(&path.key(key), labels.clone(), detail)),
            Some(_) => {}
        }
        expected.insert(key.to_owned(), value.into());
    }
    if !Selector::read(wanted).is_some_and(|selector| selector.matches(&Value::Object(expected))) {
        let path = Path::new("spec").child("selector");
        errors.push(Error::invalid(&path, wanted.clone(), "`selector` not auto-generated"));
    }
}

fn nonnegative(spec: &Value, field: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(value) = int(spec, field)
        && value < 0
    {
        errors.push(Error::invalid(&path.child(field), value, "must be greater than or equal to 0"));
    }
}

/// Faults of a Job's spec, or of the one that a CronJob makes Jobs of.
pub(super) fn spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let fields = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in fields {
        nonnegative(spec, field, path, errors);
    }
    let per_index = int(spec, "backoffLimitPerIndex");
    let max_failed = int(spec, "maxFailedIndexes");
    if max_failed.is_some() && per_index.is_none() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(Error::required(&path.child("backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = at(spec, "managedBy").as_str() {
        managed_by(manager, &path.child("managedBy"), errors);
    }
    let mode = text(spec, "completionMode");
    if !at(spec, "completionMode").is_null() && !["NonIndexed", "Indexed"].contains(&mode) {
        errors.push(Error::not_supported(&path.child("completionMode"), mode, &["NonIndexed", "Indexed"]));
    }
    match mode {
        "Indexed" => indexed(spec, path, errors),
        _ => {
            for (field, value) in [("backoffLimitPerIndex", per_index), ("maxFailedIndexes", max_failed)] {
                if let Some(value) = value {
                    errors.push(Error::invalid(&path.child(field), value, "requires indexed completion mode"));
                }
            }
        }
    }
    let failure = at(spec, "podFailurePolicy");
    if !failure.is_null() {
        failure_policy(spec, &path.child("podFailurePolicy").child("rules"), errors);
    }
    let success = at(spec, "successPolicy");
    if !success.is_null() {
        let path = path.child("successPolicy");
        if mode == "Indexed" {
            success_policy(spec, &path.child("rules"), errors);
        } else {
            errors.push(Error::invalid(&path, success.clone(), "requires indexed completion mode"));
        }
    }
    if let Some(policy) = at(spec, "podReplacementPolicy").as_str() {
        let supported: &[&str] = if failure.is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
        if !supported.contains(&policy) {
            errors.push(Error::not_supported(&path.child("podReplacementPolicy"), policy, supported));
        }
    }
    let template = at(spec, "template");
    pod_template(template, &path.child("template"), errors);
    let at_restart = path.child("template").child("spec").child("restartPolicy");
    match text(template, "spec.restartPolicy") {
        "" | "Always" => {
            errors.push(Error::required(&at_restart, "valid values: \"OnFailure\", \"Never\""));
        }
        "OnFailure" if !failure.is_null() => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(Error::invalid(&at_restart, "OnFailure", detail));
        }
        "OnFailure" | "Never" => {}
        other => errors.push(Error::not_supported(&at_restart, other, &["OnFailure", "Never"])),
    }
}

fn selector(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let wanted = at(spec, "selector");
    if wanted.is_null() {
        errors.push(Error::required(&path.child("selector"), ""));
    } else {
        errors.extend(podspec::label_selector(wanted, &path.child("selector")));
    }
    let labels = at(spec, "template.metadata.labels");
    // A selector that is not there matches nothing.
    if !Selector::read(wanted).is_some_and(|selector| selector.matches(labels)) {
        let path = path.child("template").child("metadata").child("labels");
        errors.push(Error::invalid(&path, labels.clone(), "`selector` does not match template `labels`"));
    }
}

/// The metadata of a pod template.
pub fn template_metadata(template: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, value) in at(template, "metadata.labels").as_object().into_iter().flatten() {
        let path = path.child("labels");
        let value = value.as_str().unwrap_or_default();
        errors.extend(names::qualified_name_faults(key).into_iter().map(|f| Error::invalid(&path, key.as_str(), f)));
        errors.extend(names::label_value_faults(value).into_iter().map(|f| Error::invalid(&path, value, f)));
    }
    for (key, _) in at(template, "metadata.annotations").as_object().into_iter().flatten() {
        let path = path.child("annotations");
        for fault in names::qualified_name_faults(&key.to_lowercase()) {
            errors.push(Error::invalid(&path, key.as_str(), fault));
        }
    }
    crate::pod::annotations::validate(template, None, &path.child("annotations"), errors);
}

/// The metadata and the spec of a pod template.
pub fn pod_template(template: &Value, path: &Path, errors: &mut ErrorList) {
    template_metadata(template, path, errors);
    errors.extend(podspec::validate(at(template, "spec"), &path.child("spec")));
    if !items(template, "spec.ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(&path.child("spec").child("ephemeralContainers"), detail));
    }
}

fn managed_by(manager: &str, path: &Path, errors: &mut ErrorList) {
    if manager.is_empty() {
        errors.push(Error::required(path, ""));
    } else {
        match manager.split_once('/') {
            Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
                for fault in names::subdomain_faults(host, false) {
                    errors.push(Error::invalid(path, host, fault));
                }
                let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
                if !rest.chars().all(allowed) {
                    let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                    errors.push(Error::invalid(path, rest, detail));
                }
            }
            _ => {
                let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                errors.push(Error::invalid(path, manager, detail));
            }
        }
    }
    if manager.len() > 63 {
        errors.push(Error::too_long(path, 63));
    }
}

fn indexed(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let completions = int(spec, "completions");
    let parallelism = int(spec, "parallelism");
    let max_failed = int(spec, "maxFailedIndexes");
    let path_of = |field: &str| path.child(field);
    let at_most = |field: &str, value: Option<i64>, most: i64, when: &str, errors: &mut ErrorList| {
        if let Some(value) = value
            && value > most
        {
            let detail = format!("must be less than or equal to {most}{when}");
            errors.push(Error::invalid(&path_of(field), value, detail));
        }
    };
    if completions.is_none() {
        errors.push(Error::required(&path.child("completions"), "when completion mode is Indexed"));
    }
    at_most("parallelism", parallelism, MAX_PARALLELISM, " when completion mode is Indexed", errors);
    if let (Some(completions), Some(max_failed)) = (completions, max_failed)
        && max_failed > completions
    {
        let detail = "must be less than or equal to completions";
        errors.push(Error::invalid(&path.child("maxFailedIndexes"), max_failed, detail));
    }
    at_most("maxFailedIndexes", max_failed, MAX_FAILED, "", errors);
    if completions.is_some_and(|c| c > HIGH_COMPLETIONS) && int(spec, "backoffLimitPerIndex").is_some() {
        if max_failed.is_none() {
            let detail = format!("must be specified when completions is above {HIGH_COMPLETIONS}");
            errors.push(Error::required(&path.child("maxFailedIndexes"), detail));
        }
        let when = format!(" when completions are above {HIGH_COMPLETIONS} and used with backoff limit per index");
        at_most("parallelism", parallelism, MAX_WITH_HIGH_COMPLETIONS, &when, errors);
        at_most("maxFailedIndexes", max_failed, MAX_WITH_HIGH_COMPLETIONS, &when, errors);
    }
}

fn words(valid: &[&str]) -> String {
    let quoted: Vec<String> = valid.iter().map(|v| format!("{v:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn required_choice(value: &str, valid: &[&str], path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        errors.push(Error::required(path, words(valid)));
    } else if !valid.contains(&value) {
        errors.push(Error::not_supported(path, value, valid));
    }
}

fn failure_policy(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = items(spec, "podFailurePolicy.rules");
    if rules.len() > 20 {
        errors.push(Error::too_many(path, rules.len(), 20));
    }
    let pod = at(spec, "template.spec");
    let known: Vec<&str> =
        items(pod, "containers").iter().chain(items(pod, "initContainers")).map(|c| text(c, "name")).collect();
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let action = text(rule, "action");
        if action == "FailIndex" {
            if int(spec, "backoffLimitPerIndex").is_none() {
                let detail = "requires the backoffLimitPerIndex to be set";
                errors.push(Error::invalid(&path.child("action"), action, detail));
            }
        } else {
            required_choice(action, &["Count", "FailIndex", "FailJob", "Ignore"], &path.child("action"), errors);
        }
        let codes = at(rule, "onExitCodes");
        if !codes.is_null() {
            exit_codes(codes, &known, &path.child("onExitCodes"), errors);
        }
        let conditions = items(rule, "onPodConditions");
        if conditions.len() > 20 {
            errors.push(Error::too_many(&path.child("onPodConditions"), conditions.len(), 20));
        }
        for (j, pattern) in conditions.iter().enumerate() {
            let path = path.child("onPodConditions").index(j);
            let kind = text(pattern, "type");
            for fault in names::qualified_name_faults(kind) {
                errors.push(Error::invalid(&path.child("type"), kind, fault));
            }
            required_choice(text(pattern, "status"), &["False", "True", "Unknown"], &path.child("status"), errors);
        }
        match (codes.is_null(), conditions.is_empty()) {
            (false, false) => {
                let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
                errors.push(without_value(&path, detail));
            }
            (true, true) => {
                let detail = "specifying one of OnExitCodes and OnPodConditions is required";
                errors.push(without_value(&path, detail));
            }
            _ => {}
        }
    }
}

fn exit_codes(codes: &Value, known: &[&str], path: &Path, errors: &mut ErrorList) {
    let operator = text(codes, "operator");
    required_choice(operator, &["In", "NotIn"], &path.child("operator"), errors);
    if let Some(name) = at(codes, "containerName").as_str()
        && !known.contains(&name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(Error::invalid(&path.child("containerName"), name, detail));
    }
    let at_values = path.child("values");
    let list = items(codes, "values");
    let values: Vec<i64> = list.iter().filter_map(Value::as_i64).collect();
    if values.is_empty() {
        errors.push(Error::invalid(&at_values, at(codes, "values").clone(), "at least one value is required"));
    } else if values.len() > 255 {
        errors.push(Error::too_many(&at_values, values.len(), 255));
    }
    for (j, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            errors.push(Error::invalid(&at_values.index(j), 0, "must not be 0 for the In operator"));
        }
        if values[..j].contains(value) {
            errors.push(Error::duplicate(&at_values.index(j), *value));
        }
    }
    if !values.is_sorted() {
        errors.push(Error::invalid(&at_values, list.to_vec(), "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = items(spec, "successPolicy.rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(path, detail));
    }
    if rules.len() > 20 {
        errors.push(Error::too_many(path, rules.len(), 20));
    }
    let completions = int(spec, "completions").unwrap_or_default();
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        let count = int(rule, "succeededCount");
        let list = at(rule, "succeededIndexes").as_str();
        if count.is_none() && list.is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(Error::required(&path, detail));
        }
        let mut total = 0;
        if let Some(list) = list {
            let path = path.child("succeededIndexes");
            if list.len() > 64 * 1024 {
                errors.push(Error::too_long(&path, 64 * 1024));
            }
            match indexes::count(list, completions) {
                Ok(count) => total = count,
                Err(why) => {
                    errors.push(Error::invalid(&path, list, format!("error parsing succeededIndexes: {why}")));
                }
            }
        }
        if let Some(count) = count {
            let path = path.child("succeededCount");
            if count < 0 {
                errors.push(Error::invalid(&path, count, "must be greater than or equal to 0"));
            }
            if count > completions {
                let detail =
                    format!("must be less than or equal to {completions} (the number of specified completions)");
                errors.push(Error::invalid(&path, count, detail));
            }
            if list.is_some() && count > total {
                let detail = format!(
                    "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                );
                errors.push(Error::invalid(&path, count, detail));
            }
        }
    }
}

/// Adds the faults of a change of the spec.
pub fn update(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec");
    // Upstream validates the spec once more here, and reports what it finds twice.
    self::spec(at(new, "spec"), &path, errors);
    selector(at(new, "spec"), &path, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    let immutable = |field: &str, errors: &mut ErrorList| {
        let value = at(spec, field);
        if !same(value, at(before, field)) {
            errors.push(Error::invalid(&path.child(field), value.clone(), "field is immutable"));
        }
    };
    if text(spec, "completionMode") == "Indexed" {
        let (completions, parallelism) = (int(spec, "completions"), int(spec, "parallelism"));
        if completions.is_some() && completions != int(before, "completions") && completions != parallelism {
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.push(Error::invalid(&path.child("completions"), completions, detail));
        }
    } else {
        immutable("completions", errors);
    }
    immutable("selector", errors);
    template_update(new, old, errors);
    for field in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        immutable(field, errors);
    }
}

fn template_update(new: &Value, old: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("template");
    let suspended = is_true(old, "spec.suspend");
    let idle = at(old, "status.startTime").is_null() || has_condition(old, "Suspended");
    let open = suspended && idle && int(old, "status.active").unwrap_or_default() == 0;
    let template = at(new, "spec.template");
    let mut allowed = at(old, "spec.template").clone();
    if open {
        // What steers pods to nodes may change while none is there.
        let affinity = at(template, "spec.affinity").clone();
        if let Some(spec) = child_if(&mut allowed, "spec") {
            if affinity.is_null() {
                if let Some(old) = child_if(spec, "affinity") {
                    map(old).remove("nodeAffinity");
                }
            } else {
                if at(spec, "affinity").is_null() {
                    spec["affinity"] = json!({});
                }
                keep(&mut spec["affinity"], &affinity, "nodeAffinity");
            }
            for field in ["nodeSelector", "tolerations", "schedulingGates"] {
                keep(spec, at(template, "spec"), field);
            }
        }
        let metadata = at(template, "metadata").clone();
        let own = crate::kit::child(&mut allowed, "metadata");
        for field in ["annotations", "labels"] {
            keep(own, &metadata, field);
        }
    }
    if !open {
        if !same(template, &allowed) {
            errors.push(Error::invalid(&path, template.clone(), "field is immutable"));
        }
        return;
    }
    let spec = at(template, "spec");
    let mut allowed = at(&allowed, "spec").clone();
    for list in ["containers", "initContainers"] {
        let wanted = items(spec, list);
        if wanted.len() != items(&allowed, list).len() {
            continue;
        }
        for (container, wanted) in items_mut(&mut allowed, list).zip(wanted) {
            if text(container, "name") == text(wanted, "name") {
                keep(container, wanted, "resources");
            }
        }
    }
    if !same(spec, &allowed) {
        errors.push(Error::invalid(&path.child("spec"), spec.clone(), "field is immutable"));
    }
}
