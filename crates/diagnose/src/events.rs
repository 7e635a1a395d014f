//! Events: which of them belong to the job, and which reasons they stand for.

use crate::facts::Facts;
use crate::pattern::captures;
use crate::pods::last_seen;
use crate::reason::Reason;
use crate::tell::Case;
use api::object;
use serde_json::Value;
use std::collections::BTreeSet;

/// What controllers, schedulers and kubelets write, and which reason it stands for; the first that fits counts.
const SIGNS: &[(Reason, &[&str])] = &[
    (
        Reason::QuotaExceeded,
        &[
            "exceeded quota: {quota}, requested: {resources}",
            "exceeded quota: {quota}",
            "failed quota: {quota}: {resources}",
        ],
    ),
    (Reason::PodSecurityRefused, &["violates PodSecurity \"{level}\": {message}"]),
    (
        Reason::WebhookDown,
        &[
            "failed calling webhook \"{webhook}\": failed to call webhook: {message}",
            "failed calling webhook \"{webhook}\": {message}",
            "no endpoints available for service \"{webhook}\"",
        ],
    ),
    (Reason::PriorityClassMissing, &["no PriorityClass with name {class} was found"]),
    (Reason::RuntimeClassMissing, &["RuntimeClass \"{class}\" not found"]),
    (
        Reason::LimitRange,
        &[
            "is forbidden: {message} per Container is {_}",
            "is forbidden: {message} per Pod is {_}",
            "is forbidden: {message} limit to request ratio per",
        ],
    ),
    (Reason::AdmissionRefused, &["admission webhook \"{webhook}\" denied the request: {message}"]),
    (
        Reason::ServiceAccountMissing,
        &["error looking up service account {_}/{account}: ", "serviceaccount \"{account}\" not found"],
    ),
    (Reason::NamespaceEnding, &["because it is being terminated", "namespace is being terminated"]),
    (
        Reason::RuntimeMissing,
        &[
            "TrainingRuntime.trainer.kubeflow.org \"{runtime}\" not found",
            "must be created before the TrainJob is created",
            "unsupported runtime: {runtime}",
        ],
    ),
    (
        Reason::ConfigMissing,
        &[
            "MountVolume.SetUp failed {_} : configmap {missing} not found",
            "MountVolume.SetUp failed {_} : secret {missing} not found",
            "references non-existent config key: {message}",
            "references non-existent secret key: {message}",
        ],
    ),
    (
        Reason::MountFailed,
        &[
            "MountVolume.SetUp failed for volume \"{volume}\" : {message}",
            "MountVolume.MountDevice failed for volume \"{volume}\" : {message}",
            "AttachVolume.Attach failed for volume \"{volume}\" : {message}",
            "Multi-Attach error for volume \"{volume}\" {message}",
            "Unable to attach or mount volumes: {message}",
        ],
    ),
    (
        Reason::SandboxFailed,
        &["Failed to create pod sandbox: {message}", "NetworkPlugin cni failed{message}", "network: {message}"],
    ),
    (Reason::PortsTaken, &["waiting for {ports} free ports in a row, which the pods of a job share: {message}"]),
    (Reason::Busy, &["waiting for GPUs that other pods, or clusters on this machine, still hold"]),
    (
        Reason::ProbeFailed,
        &[
            "Container {container} failed liveness probe, {message}",
            "Container {container} failed startup probe, {message}",
            "Liveness probe failed: {message}",
            "Startup probe failed: {message}",
        ],
    ),
    (
        Reason::AdmissionRefused,
        &[
            "is forbidden: {message}",
            "is invalid: {message}",
            "Invalid value: {message}",
            "denied the request: {message}",
        ],
    ),
];

/// Events of the job, what it made, and its pods. What belongs to an earlier job of the same name does not count.
pub fn of_job<'a>(facts: &'a Facts) -> Vec<&'a Value> {
    let objects =
        [&facts.job, &facts.jobset].into_iter().chain(&facts.jobs).chain(facts.pods.iter().map(|pod| &pod.pod));
    let uids: BTreeSet<&str> = objects.map(object::uid).filter(|uid| !uid.is_empty()).collect();
    let (job, made) = (object::meta(&facts.job, "name"), object::meta(&facts.job, "creationTimestamp"));
    let prefix = format!("{job}-");
    let belongs = |event: &&'a Value| {
        let about = &event["involvedObject"];
        let (name, uid) = (object::text(about, "name"), object::text(about, "uid"));
        if uids.contains(uid) {
            return true;
        }
        // of what is gone the uid is not known any more: what was seen since the job was made is of this one
        let since = made.is_empty() || last_seen(event).is_empty() || last_seen(event) >= made;
        match object::text(about, "kind") {
            "TrainJob" | "MPIJob" => uid.is_empty() && name == job && since,
            "JobSet" | "PodGroup" | "Workload" => {
                (facts.jobset.is_null() || uid.is_empty() || !is_known(facts, about))
                    && (name == job || name.contains(&prefix))
                    && since
            }
            "Job" | "Pod" => name.starts_with(&prefix) && since,
            _ => false,
        }
    };
    facts.events.iter().filter(belongs).collect()
}

/// Whether the object of that kind and name is there, with another uid.
fn is_known(facts: &Facts, about: &Value) -> bool {
    object::text(about, "kind") == "JobSet" && !facts.jobset.is_null()
}

/// The newest warning that stands for a reason, of those that `wants` wants.
pub(crate) fn case(facts: &Facts, wants: impl Fn(Reason) -> bool) -> Option<Case> {
    let events = of_job(facts);
    let warnings = events.into_iter().rev().filter(|event| object::text(event, "type") == "Warning");
    warnings.filter_map(of_event).find(|case| wants(case.reason))
}

fn of_event(event: &Value) -> Option<Case> {
    let message = object::text(event, "message").trim();
    let mut case = of_message(message)?;
    case.quote(&source(event), message);
    Some(case)
}

/// What a message of a controller stands for.
pub(crate) fn of_message(message: &str) -> Option<Case> {
    SIGNS.iter().find_map(|(reason, patterns)| {
        let held = patterns.iter().find_map(|pattern| captures(pattern, message))?;
        let mut case = Case::new(*reason);
        case.vars.insert("message", message.to_owned());
        case.vars.extend(held);
        Some(case)
    })
}

/// `event FailedScheduling on pod x`.
pub(crate) fn source(event: &Value) -> String {
    let about = &event["involvedObject"];
    let kind = object::text(about, "kind");
    let kind = if kind == "Pod" { "pod" } else { kind };
    format!("event {} on {kind} {}", object::text(event, "reason"), object::text(about, "name"))
}
