//! Validation of a new JobSet: all faults, in upstream's order. Spec A.3.

use super::super::construct;
use super::names;
use api::field::{Error, ErrorList, Path};
use api::jobset::{
    Coordinator, FailurePolicy, FailurePolicyAction, JobSet, ReplicatedJob, RestartStrategy, Retention,
    VolumeClaimPolicy, keys,
};
use api::names::{label_value_faults, subdomain_faults};
use api::object;
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Longest value of `spec.managedBy`, and longest name of a generated volume claim.
const NAME_MAX: usize = 63;
/// Longest name of a rule.
const RULE_NAME_MAX: usize = 128;
/// A generated name keeps so much of its prefix, and gets five characters.
const GENERATED_BASE_MAX: usize = 58;

/// Why a Job may fail, as its Failed condition says.
const JOB_FAILURE_REASONS: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];

/// A fault without a field.
fn fault(detail: impl Into<String>) -> Error {
    Error::internal(&Path::root(), detail)
}

/// What is wrong with a JobSet that is being created, after defaulting and the schema's checks. `existing_claim` looks up a
/// volume claim of its namespace by name.
pub fn validate_create(stored: &Value, existing_claim: &dyn Fn(&str) -> Option<Arc<Value>>) -> ErrorList {
    let mut jobset = match JobSet::read(stored) {
        Ok(jobset) => jobset,
        Err(why) => return vec![fault(why.to_string())],
    };
    if jobset.metadata.name.as_deref().unwrap_or_default().is_empty() {
        let prefix = jobset.metadata.generate_name.as_deref().unwrap_or_default();
        let kept: String = prefix.chars().take(GENERATED_BASE_MAX).collect();
        jobset.metadata.name = Some(format!("{kept}abcde"));
    }
    let mut errors = ErrorList::new();
    let spec = &jobset.spec;
    let in_place = spec.failure_policy.as_ref().map(|p| p.restart_strategy) == Some(RestartStrategy::InPlaceRestart);
    if in_place {
        errors
            .push(fault("InPlaceRestart restart strategy cannot be set when InPlaceRestart feature gate is disabled"));
    }
    if spec.replicated_jobs.first().is_some_and(|first| first.depends_on.is_some()) {
        errors.push(fault("DependsOn can't be set for the first ReplicatedJob"));
    }
    if let Some(network) = spec.network.as_ref().filter(|network| !network.subdomain.is_empty()) {
        subdomain(&network.subdomain, &mut errors);
    }
    if let Some(manager) = &spec.managed_by {
        managed_by(manager, &mut errors);
    }
    let mut known = BTreeSet::new();
    for (index, replicated) in spec.replicated_jobs.iter().enumerate() {
        known.insert(replicated.name.as_str());
        replicated_job(&jobset, index, replicated, &known, &mut errors);
    }
    for target in spec.success_policy.iter().flat_map(|policy| &policy.target_replicated_jobs) {
        if !known.contains(target.as_str()) {
            let detail = format!("invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs");
            errors.push(fault(detail));
        }
    }
    if let Some(policy) = &spec.failure_policy {
        failure_policy(policy, &known, &mut errors);
    }
    if let Some(named) = &spec.coordinator {
        errors.extend(coordinator(&jobset, named));
        errors.extend(coordinator_endpoint(&jobset));
    }
    volume_claims(&jobset, stored, existing_claim, &mut errors);
    errors
}

fn subdomain(value: &str, errors: &mut ErrorList) {
    let path = Path::new("spec").child("network").child("subdomain");
    let too_long = ".spec.network.subdomain is too long, must be less than 63 characters";
    // a Service is called by it, so that it must be a label too
    for detail in subdomain_faults(value, false).into_iter().chain(names::dns_1035_label(value, too_long)) {
        errors.push(Error::invalid(&path, value, detail));
    }
}

fn managed_by(manager: &str, errors: &mut ErrorList) {
    let path = Path::new("spec").child("managedBy");
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.push(Error::required(&path, "")),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            for detail in subdomain_faults(domain, false) {
                errors.push(Error::invalid(&path, domain, detail));
            }
            if let Some(detail) = names::http_path(rest) {
                errors.push(Error::invalid(&path, rest, detail));
            }
        }
        Some(_) | None => {
            errors.push(Error::invalid(&path, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
        }
    }
    if manager.len() > NAME_MAX {
        errors.push(Error::too_long(&path, NAME_MAX));
    }
}

/// Indexed Jobs' number of pods, where both are said.
fn indexed_completions(replicated: &ReplicatedJob) -> Option<i64> {
    let spec = &replicated.template["spec"];
    spec["completions"].as_i64().filter(|_| spec["completionMode"] == "Indexed")
}

fn replicated_job(
    jobset: &JobSet,
    index: usize,
    replicated: &ReplicatedJob,
    known: &BTreeSet<&str>,
    errors: &mut ErrorList,
) {
    let path = Path::new("spec").child("replicatedJobs").index(index);
    let (name, replicas) = (&replicated.name, i64::from(replicated.replicas));
    let parallelism = replicated.template["spec"]["parallelism"].as_i64().unwrap_or(1);
    if replicas * parallelism > i64::from(i32::MAX) {
        errors.push(fault(format!(
            "the product of replicas and parallelism must not exceed {} for replicatedJob '{name}'",
            i32::MAX
        )));
    }
    let too_long = ".spec.replicatedJob[].groupName is too long, must be less than 63 characters";
    for detail in names::dns_1035_label(&replicated.group_name, too_long) {
        errors.push(Error::invalid(&path.child("groupName"), replicated.group_name.as_str(), detail));
    }
    // the last Job and the last pod have the longest names
    let job = jobset.job_name(name, replicas - 1);
    let too_long = "JobSet name is too long, job names generated for this JobSet will exceed 63 characters";
    for detail in names::dns_1035_label(&job, too_long) {
        errors.push(Error::invalid(&path.child("name"), job.as_str(), detail));
    }
    if let Some(completions) = indexed_completions(replicated) {
        let pod = format!("{job}-{}-abcde", completions - 1);
        let too_long = "JobSet name is too long, pod names generated for this JobSet will exceed 63 characters";
        for detail in names::dns_1035_label(&pod, too_long) {
            errors.push(Error::invalid(&path.child("name"), job.as_str(), detail));
        }
    }
    for dependency in replicated.depends_on.iter().flatten() {
        if !known.contains(dependency.name.as_str()) {
            let detail = format!("replicatedJob: {name} cannot depend on replicatedJob: {}", dependency.name);
            errors.push(fault(detail));
        }
    }
}

fn failure_policy(policy: &FailurePolicy, known: &BTreeSet<&str>, errors: &mut ErrorList) {
    static RULE_NAME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$").expect("invariant: a constant pattern")
    });
    let gated = |action| {
        matches!(action, FailurePolicyAction::RestartJob | FailurePolicyAction::RestartJobAndIgnoreMaxRestarts)
    };
    if policy.rules.iter().any(|rule| gated(rule.action)) {
        return errors.push(fault(
            "RestartJob and RestartJobAndIgnoreMaxRestarts failure policy actions are not allowed when RestartJob \
             feature gate is disabled",
        ));
    }
    let mut indexes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let (name, length) = (rule.name.as_str(), rule.name.len());
        indexes.entry(name).or_default().push(index.to_string());
        if length == 0 || length > RULE_NAME_MAX {
            errors.push(fault(format!(
                "invalid failure policy rule name of length {length}, the rule name must be at least 1 characters long \
                 and at most {RULE_NAME_MAX} characters long"
            )));
        }
        if !RULE_NAME.is_match(name) {
            errors.push(fault(format!(
                "invalid failure policy rule name '{name}', a failure policy rule name must start with an alphabetic \
                 character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an \
                 alphanumeric character or '_'"
            )));
        }
        for target in rule.target_replicated_jobs.iter().filter(|target| !known.contains(target.as_str())) {
            errors.push(fault(format!(
                "invalid replicatedJob name '{target}' in failure policy does not appear in .spec.ReplicatedJobs"
            )));
        }
        for reason in rule.on_job_failure_reasons.iter().filter(|r| !JOB_FAILURE_REASONS.contains(&r.as_str())) {
            errors.push(fault(format!(
                "invalid job failure reason '{reason}' in failure policy is not a recognized job failure reason"
            )));
        }
    }
    for (name, indexes) in indexes.iter().filter(|(_, indexes)| indexes.len() > 1) {
        errors.push(fault(format!(
            "rule names are not unique, rules with indices [{}] all have the same name '{name}'",
            indexes.join(" ")
        )));
    }
}

fn coordinator(jobset: &JobSet, named: &Coordinator) -> Option<Error> {
    let Coordinator { replicated_job: name, job_index, pod_index } = named;
    let Some(replicated) = jobset.spec.replicated_jobs.iter().find(|replicated| replicated.name == *name) else {
        return Some(fault(format!("coordinator replicatedJob {name} does not exist")));
    };
    if !(0..i64::from(replicated.replicas)).contains(job_index) {
        return Some(fault(format!("coordinator job index {job_index} is invalid for replicatedJob {name}")));
    }
    let Some(completions) = indexed_completions(replicated) else {
        let detail = "job for coordinator pod must be indexed completion mode, and completions number must be set";
        return Some(fault(detail));
    };
    (!(0..completions).contains(pod_index)).then(|| {
        fault(format!("coordinator pod index {pod_index} is invalid for replicatedJob {name} job index {job_index}"))
    })
}

fn coordinator_endpoint(jobset: &JobSet) -> Option<Error> {
    let endpoint = jobset.coordinator_endpoint()?;
    let faults = label_value_faults(&endpoint);
    (!faults.is_empty()).then(|| {
        fault(format!(
            "spec will lead to invalid label value {endpoint:?} for coordinator label {:?} (long JobSet / ReplicatedJob \
             / SubDomain name?): {}",
            keys::COORDINATOR,
            faults.join(", ")
        ))
    })
}

fn volume_claims(
    jobset: &JobSet,
    stored: &Value,
    existing_claim: &dyn Fn(&str) -> Option<Arc<Value>>,
    errors: &mut ErrorList,
) {
    let mut seen = BTreeSet::new();
    for (index, policy) in jobset.spec.volume_claim_policies.iter().enumerate() {
        let VolumeClaimPolicy { templates, retention_policy } = policy;
        let path = Path::new("spec").child("volumeClaimPolicies").index(index);
        for (index, template) in templates.iter().enumerate() {
            let template_path = path.child("template").index(index);
            let name = object::meta(template, "name");
            let mut wrong = |detail: String| errors.push(Error::invalid(&template_path.child("name"), name, detail));
            if !seen.insert(name.to_owned()) {
                wrong("names must be unique for VolumeClaimPolicies template".to_owned());
            }
            subdomain_faults(name, false).into_iter().for_each(&mut wrong);
            let claim = construct::claim_name(jobset, name);
            if claim.len() > NAME_MAX {
                wrong("VolumeClaimPolicies template name is too long".to_owned());
            }
            volume_users(jobset, stored, name, errors);
            let Some(existing) = existing_claim(&claim) else { continue };
            let namespace = jobset.metadata.namespace.as_deref().unwrap_or_default();
            let spec = template.get("spec").cloned().unwrap_or_default();
            let same = |value: &Value| super::update::canonical(value);
            if same(&existing["spec"]) != same(&spec) {
                let detail = format!("spec does not match existing PVC {claim} in namespace {namespace}");
                errors.push(Error::invalid(&template_path.child("spec"), spec, detail));
            }
            let retention = retention_policy.as_ref().map(|policy| policy.when_deleted.unwrap_or_default());
            if retention == Some(Retention::Delete) {
                let field = path.child("retentionPolicy").child("whenDeleted");
                errors.push(Error::invalid(&field, "Delete", "retentionPolicy must be retain when PVC exists"));
            }
        }
    }
}

/// A claim must be mounted by some container, and no pod may have a volume of its name already.
fn volume_users(jobset: &JobSet, stored: &Value, name: &str, errors: &mut ErrorList) {
    let path = Path::new("spec").child("replicatedJobs");
    let mut is_mounted = false;
    for (index, replicated) in jobset.spec.replicated_jobs.iter().enumerate() {
        let pod = &replicated.template["spec"]["template"]["spec"];
        for (volume, _) in pod["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, volume)| object::text(volume, "name") == name)
        {
            let pod_path = path.index(index).child("template").child("spec").child("template").child("spec");
            let detail = format!("volume name conflicts with VolumeClaimPolicy template name: {name}");
            errors.push(Error::invalid(&pod_path.child("volumes").index(volume).child("name"), name, detail));
        }
        is_mounted |= ["initContainers", "containers"].iter().any(|list| construct::mounts(pod.get(*list), name));
    }
    if !is_mounted {
        let detail =
            format!("replicatedJob containers don't have a matching volumeMount: {name} from VolumeClaimPolicies");
        let value = stored["spec"].get("replicatedJobs").cloned().unwrap_or_default();
        errors.push(Error::invalid(&path, value, detail));
    }
}
