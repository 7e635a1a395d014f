//! What is particular to MPIJobs (`kubeflow.org/v2beta1`): where they stand, which pods they have, why their launcher waits or fails,
//! and how commands for jobs are written for them.
//!
//! Everything else about their pods (what cannot be placed or started, how containers ended) is judged as for any job.

use crate::events;
use crate::facts::Facts;
use crate::pods::{Phase, condition, last_seen};
use crate::reason::Reason;
use crate::tell::Case;
use api::mpi::names::{
    LABEL_JOB_ROLE, LABEL_OPERATOR_NAME, OPERATOR_NAME, ROLE_LAUNCHER, ROLE_WORKER, WAIT_CONTAINER, launcher, worker,
};
use api::mpi::{self, Reason as Told};
use api::object;
use serde_json::Value;

/// Workers that a sentence names; the rest are counted.
const NAMED: usize = 5;

/// Whether a job is an MPIJob rather than a TrainJob.
pub(crate) fn is(job: &Value) -> bool {
    object::text(job, "kind") == mpi::KIND
}

/// Where an MPIJob stands, by its conditions. One that is suspended is so for its owner at once.
pub(crate) fn phase(job: &Value) -> Phase {
    match () {
        () if condition(job, "Failed").is_some() => Phase::Failed,
        () if condition(job, "Succeeded").is_some() => Phase::Complete,
        () if job["spec"]["runPolicy"]["suspend"] == true => Phase::Suspended,
        () if condition(job, "Running").is_some() => Phase::Running,
        () => Phase::Pending,
    }
}

/// `launcher` or `worker-1`; `None` for pods that are no MPIJob's.
pub(crate) fn step(pod: &Value) -> Option<String> {
    if object::label(pod, LABEL_OPERATOR_NAME) != Some(OPERATOR_NAME) {
        return None;
    }
    match object::label(pod, LABEL_JOB_ROLE)? {
        // the label of the index counts a launcher that takes ranks
        ROLE_WORKER => {
            let number = object::meta(pod, "name").rsplit('-').next().unwrap_or_default();
            Some(format!("{ROLE_WORKER}-{number}"))
        }
        role => Some(role.to_owned()),
    }
}

/// The step without its number.
fn is_role(pod: &Value, role: &str) -> bool {
    step(pod).is_some() && object::label(pod, LABEL_JOB_ROLE) == Some(role)
}

/// What the controller says that keeps the job from being run at all.
pub(crate) fn refused(facts: &Facts) -> Option<Case> {
    if !is(&facts.job) {
        return None;
    }
    // later than all that the job has become since: else it was mended
    let conditions = facts.job["status"]["conditions"].as_array().into_iter().flatten();
    let since = conditions.map(|condition| object::text(condition, "lastUpdateTime")).max().unwrap_or_default();
    let told = events::of_job(facts).into_iter().rev().filter(|event| last_seen(event) >= since);
    told.into_iter().find_map(|event| {
        let reason = match object::text(event, "reason") {
            reason if reason == Told::ValidationError.as_str() => Reason::MpiJobInvalid,
            reason if reason == Told::ResourceExists.as_str() => Reason::ChildNameTaken,
            _ => return None,
        };
        let message = object::text(event, "message").trim();
        let mut case = Case::new(reason);
        let said = message.strip_prefix("Found validation errors: ").unwrap_or(message);
        case.vars.insert("message", said.to_owned());
        // upstream's message names the object and leaves its kind empty
        if let Some(name) = message.strip_prefix("Resource \"").and_then(|rest| rest.split('"').next()) {
            case.vars.insert("child", name.to_owned());
        }
        case.quote(&events::source(event), message);
        Some(case)
    })
}

/// A launcher that waits for its workers: in its pod, or because it is not made before they are ready.
pub(crate) fn launcher_waits(facts: &Facts) -> Option<Case> {
    if !is(&facts.job) {
        return None;
    }
    let live = || facts.pods.iter().filter(|pod| pod.live && !object::is_terminating(&pod.pod)).map(|pod| &pod.pod);
    let asked = facts.job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"].as_i64().unwrap_or(0);
    let is_ready = |index: i64| {
        let name = i32::try_from(index).map(|index| worker(object::meta(&facts.job, "name"), index));
        let pod = name.ok().and_then(|name| live().find(|pod| object::meta(pod, "name") == name));
        pod.is_some_and(|pod| condition(pod, "Ready").is_some())
    };
    let missing: Vec<i64> = (0..asked).filter(|index| !is_ready(*index)).collect();
    let launcher = live().find(|pod| is_role(pod, ROLE_LAUNCHER));
    let source = match launcher {
        Some(pod) if is_waiting_inside(pod) => format!("status of pod {}", object::meta(pod, "name")),
        None if !missing.is_empty() && live().any(|pod| is_role(pod, ROLE_WORKER)) => "pods of the job".to_owned(),
        _ => return None,
    };
    let named: Vec<String> = missing.iter().take(NAMED).map(|index| format!("{ROLE_WORKER}-{index}")).collect();
    let more = missing.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let ready = asked.saturating_sub(i64::try_from(missing.len()).unwrap_or(asked));
    let mut case = Case::new(Reason::WorkersAwaited).with("ready", ready.to_string()).with("wanted", asked.to_string());
    if !named.is_empty() {
        case.vars.insert("missing", format!("{}{more}", named.join(", ")));
    }
    let text = match launcher {
        Some(_) => format!("its init container {WAIT_CONTAINER} runs: not all workers answer by SSH"),
        None => format!("{ready} of {asked} workers are ready, and the launcher is not made yet"),
    };
    case.quote(&source, &text);
    Some(case)
}

fn is_waiting_inside(pod: &Value) -> bool {
    let statuses = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
    statuses.into_iter().any(|status| status["name"] == WAIT_CONTAINER && status["state"]["running"].is_object())
}

/// What the launcher's init container said that waited for the workers in vain: its last line.
pub(crate) fn not_reached(container: &str, message: &str) -> Option<Case> {
    let said = message.trim().lines().last().filter(|_| container == WAIT_CONTAINER)?;
    let mut case = Case::new(Reason::WorkersNotReachable).with("message", said);
    let missing = crate::pattern::captures("of {_} workers could not be {_} within {_} s: {missing}", said);
    case.vars.extend(missing.into_iter().flatten().filter(|(name, _)| *name == "missing"));
    Some(case)
}

/// Why an MPIJob failed whose pods say nothing of it.
pub(crate) fn failed(facts: &Facts) -> Option<Case> {
    let failed = condition(&facts.job, "Failed").filter(|_| is(&facts.job))?;
    let (reason, message) = (object::text(failed, "reason"), object::text(failed, "message"));
    if let Some(mut case) = told(facts, Told::WorkersNotReachable, Reason::WorkersNotReachable) {
        case.quote("MPIJob's condition Failed", message);
        return Some(case);
    }
    let mut case = match reason {
        reason if reason == Told::Evicted.as_str() => Case::new(Reason::Evicted).with("message", message),
        _ => return removed_launcher(facts),
    };
    case.quote("MPIJob's condition Failed", message);
    Some(case)
}

/// How a launcher ended whose pod its Job has removed at the last failure, with the log: so it is under `restartPolicy: OnFailure`, which
/// is upstream's default.
fn removed_launcher(facts: &Facts) -> Option<Case> {
    if facts.pods.iter().any(|pod| is_role(&pod.pod, ROLE_LAUNCHER)) {
        return None;
    }
    let prefix = format!("{}-", launcher(object::meta(&facts.job, "name")));
    let of_launcher = |event: &&Value| {
        let about = &event["involvedObject"];
        object::text(about, "kind") == "Pod" && object::text(about, "name").starts_with(&prefix)
    };
    let mut events = facts.events.iter().rev().filter(of_launcher);
    events.find_map(|event| {
        let message = object::text(event, "message");
        let ended = crate::pattern::captures("Container {_} exited with code {code} ({_}", message)?;
        let mut case = Case::new(Reason::ExitCode).with("who", ROLE_LAUNCHER).with("removed", "OnFailure");
        case.vars.extend(ended);
        case.quote(&events::source(event), message);
        Some(case)
    })
}

/// That an MPIJob has ended well without its workers.
pub(crate) fn unused(facts: &Facts) -> Option<Case> {
    told(facts, Told::WorkersNotUsed, Reason::WorkersNotUsed)
}

fn told(facts: &Facts, event: Told, reason: Reason) -> Option<Case> {
    let mut events = events::of_job(facts).into_iter().rev().filter(|_| is(&facts.job));
    let event = events.find(|held| object::text(held, "reason") == event.as_str())?;
    let message = object::text(event, "message");
    let mut case = Case::new(reason).with("message", message);
    case.quote(&events::source(event), message);
    Some(case)
}

/// A command for TrainJobs, as it is for MPIJobs; `None` where there is none.
pub(crate) fn command(template: &str) -> Option<String> {
    let lacks = ["--rank ", "--step ", "trainyard metrics", "trainyard runtimes", "pod-security=", "service,endpoints"];
    if lacks.iter().any(|part| template.contains(part)) {
        return None;
    }
    let mut text = template.to_owned();
    for verb in ["logs", "suspend", "resume", "delete"] {
        text = text.replace(&format!("trainyard {verb} "), &format!("trainyard mpijob {verb} "));
    }
    for (of_trainjob, of_mpijob) in
        [("jobset.sigs.k8s.io/jobset-name=", "training.kubeflow.org/job-name="), (" trainjob {job}", " mpijob {job}")]
    {
        text = text.replace(of_trainjob, of_mpijob);
    }
    Some(text)
}

/// What shows the last lines of a pod's log.
pub(crate) fn logs(job: &str, step: &str, flags: &str) -> String {
    let which = match step.strip_prefix("worker-") {
        Some(number) => format!(" --worker {number}"),
        None => String::new(),
    };
    format!("trainyard mpijob logs {job}{which} --tail 50{flags}")
}
