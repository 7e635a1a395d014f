//! Why a job is pending: what keeps its pods from being created, placed or started.

use crate::context::largest;
use crate::events;
use crate::facts::Facts;
use crate::mpijob;
use crate::pattern::captures;
use crate::pods::{is_node, node_rank, processes_per_node, short_duration, statuses, step};
use crate::reason::Reason;
use crate::tell::Case;
use api::mpi::names::MANAGED_BY_MPI_OPERATOR;
use api::object;
use api::quantity::Quantity;
use api::trainer::annotations::{ATTEMPT, RETRIES, RETRY_AT};
use jiff::Timestamp;
use serde_json::Value;

/// Who runs TrainJobs here.
const OURS: &str = "trainer.kubeflow.org/trainjob-controller";
/// Label by which Kueue takes a job in.
const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// How long a controller may take before its absence is noted.
const PATIENCE_SECS: i64 = 20;

/// Why a suspended job is suspended.
pub(crate) fn suspended(facts: &Facts) -> Case {
    if let Some(queue) = object::label(&facts.job, KUEUE_QUEUE) {
        return queued(facts, queue);
    }
    let mut case = Case::new(Reason::Suspended);
    if let Some((manager, at)) = suspended_by(&facts.job) {
        let manager = if manager.is_empty() { "unknown".to_owned() } else { manager };
        let since = at.map(|at| short_duration(facts.now.as_second().saturating_sub(at.as_second())));
        case.quote(
            "field manager of spec.suspend",
            &format!("{manager}{}", at.map_or(String::new(), |at| format!(" at {at}"))),
        );
        case.vars.insert("by", manager);
        case.vars.insert("ago", since.unwrap_or_default());
    }
    case
}

fn queued(facts: &Facts, queue: &str) -> Case {
    let mut case = Case::new(Reason::QueuedByKueue).with("queue", queue);
    let events = events::of_job(facts);
    let told = events
        .iter()
        .rev()
        .find(|event| matches!(object::text(event, "reason"), "Pending" | "QuotaReserved" | "Stopped" | "Suspended"));
    if let Some(event) = told.filter(|event| !object::text(event, "message").is_empty()) {
        case.vars.insert("message", object::text(event, "message").to_owned());
        case.quote(&events::source(event), object::text(event, "message"));
    }
    case
}

/// Who set `spec.suspend` last, and when, as far as field management tells.
fn suspended_by(job: &Value) -> Option<(String, Option<Timestamp>)> {
    let entries = job["metadata"]["managedFields"].as_array()?;
    let paths = ["/fieldsV1/f:spec/f:suspend", "/fieldsV1/f:spec/f:runPolicy/f:suspend"];
    let owns = |entry: &&Value| paths.iter().any(|path| entry.pointer(path).is_some());
    let newest = entries.iter().filter(owns).max_by_key(|entry| object::text(entry, "time"))?;
    Some((object::text(newest, "manager").to_owned(), object::text(newest, "time").parse().ok()))
}

/// Why a job that was never at work waits.
pub(crate) fn of_job(facts: &Facts) -> Case {
    let job = &facts.job;
    let (manager, member, ours) = match mpijob::is(job) {
        false => (object::text(&job["spec"], "managedBy"), "spec.managedBy", OURS),
        true => {
            let policy = &job["spec"]["runPolicy"];
            (object::text(policy, "managedBy"), "spec.runPolicy.managedBy", MANAGED_BY_MPI_OPERATOR)
        }
    };
    if !manager.is_empty() && manager != ours {
        let mut case = Case::new(Reason::ManagedElsewhere).with("manager", manager);
        case.quote(member, manager);
        return case;
    }
    if let Some(case) = mpijob::refused(facts) {
        return case;
    }
    if let Some(case) = retry(facts) {
        return case;
    }
    if facts.jobset["spec"]["suspend"] == true
        && let Some(queue) = object::label(&facts.jobset, KUEUE_QUEUE).or_else(|| object::label(job, KUEUE_QUEUE))
    {
        return queued(facts, queue);
    }
    let said = match of_pods(facts) {
        // why its other pods are not there is in events
        Some(case) if awaits_pods(&case) => of_events(facts).or(Some(case)),
        said => said.or_else(|| of_events(facts)),
    };
    let said = said.or_else(|| steps(facts));
    said.or_else(|| mpijob::launcher_waits(facts)).unwrap_or_else(|| nothing_said(facts))
}

/// The pause before the next attempt.
pub(crate) fn retry(facts: &Facts) -> Option<Case> {
    let number = |key| object::annotation(&facts.job, key).and_then(|text| text.parse::<i64>().ok());
    let attempt = number(ATTEMPT).filter(|attempt| *attempt > 1)?;
    let start: Timestamp = object::annotation(&facts.job, RETRY_AT)?.parse().ok()?;
    let left = start.as_second().saturating_sub(facts.now.as_second());
    (left > 0).then(|| {
        let most = number(RETRIES).map_or(attempt, |retries| retries.saturating_add(1)).max(attempt);
        let case = Case::new(Reason::RetryWaiting);
        let case = case.with("before", (attempt - 1).to_string()).with("attempt", attempt.to_string());
        case.with("most", most.to_string()).with("left", short_duration(left))
    })
}

fn nothing_said(facts: &Facts) -> Case {
    let made = object::meta(&facts.job, "creationTimestamp").parse::<Timestamp>();
    let age = made.map_or(0, |made| facts.now.as_second().saturating_sub(made.as_second()));
    let is_late = age > PATIENCE_SECS;
    // a controller that is at work says so in an MPIJob's conditions before all else
    let is_mpi = mpijob::is(&facts.job);
    let is_unseen = if is_mpi { facts.job["status"]["conditions"][0].is_null() } else { facts.jobset.is_null() };
    let reason = match (is_unseen, facts.pods.iter().any(|pod| pod.live)) {
        (true, _) if is_late => Reason::NoController,
        (false, false) if is_late => Reason::PodsMissing,
        _ => Reason::Starting,
    };
    let mut case = Case::new(reason).with("age", short_duration(age));
    let text = match reason {
        Reason::NoController if is_mpi => "the MPIJob has no condition yet",
        Reason::PodsMissing if is_mpi => "the MPIJob has conditions, but no pod",
        Reason::NoController => "no JobSet of the job's name exists",
        Reason::PodsMissing => "the JobSet exists, but no pod of it",
        _ => "",
    };
    case.quote("objects of the job", text);
    case
}

/// What events say that keeps objects from being made or pods from being started.
pub(crate) fn of_events(facts: &Facts) -> Option<Case> {
    let has_started = facts
        .pods
        .iter()
        .any(|pod| pod.live && statuses(&pod.pod).any(|status| status["state"].get("running").is_some()));
    events::case(facts, |reason| reason == Reason::ProbeFailed || !has_started)
}

/// What keeps pods that are there from running; the most telling of all pods'.
pub(crate) fn of_pods(facts: &Facts) -> Option<Case> {
    let is_waiting = |pod: &Value| object::text(&pod["status"], "phase") != "Running" || has_waiting(pod);
    let live = facts.pods.iter().filter(|pod| pod.live && !object::is_terminating(&pod.pod));
    let waiting: Vec<&Value> = live.map(|pod| &pod.pod).filter(|pod| is_waiting(pod) && !is_over(pod)).collect();
    let mut cases = waiting.iter().filter_map(|pod| of_pod(facts, pod)).collect::<Vec<_>>();
    // a gang's members wait because one of them does not fit
    cases.sort_by_key(|case| matches!(case.reason, Reason::GangWaiting | Reason::Unschedulable));
    cases.into_iter().next()
}

/// A gang that waits for pods that are not made yet.
fn awaits_pods(case: &Case) -> bool {
    let message = case.vars.get("message").map_or("", String::as_str);
    case.reason == Reason::GangWaiting && captures("gang {_} has {_} of {_} pods", message).is_some()
}

fn is_over(pod: &Value) -> bool {
    matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

fn has_waiting(pod: &Value) -> bool {
    statuses(pod).any(|status| status["state"]["waiting"].is_object())
}

fn of_pod(facts: &Facts, pod: &Value) -> Option<Case> {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let unscheduled =
        conditions.filter(|c| c["type"] == "PodScheduled" && c["status"] == "False").find_map(|condition| {
            let message = object::text(condition, "message");
            let gated = object::text(condition, "reason") == "SchedulingGated";
            (gated || !message.is_empty()).then(|| if gated { gate(pod) } else { unplaced(facts, pod, message) })
        });
    let case = unscheduled
        .or_else(|| statuses(pod).find_map(|status| of_waiting(facts, pod, status)))
        .or_else(|| claims(facts, pod))?;
    Some(about(case, pod))
}

fn gate(pod: &Value) -> Case {
    let gate = object::text(&pod["spec"]["schedulingGates"][0], "name");
    let mut case = Case::new(Reason::SchedulingGated).with("gate", gate);
    case.quote(&format!("spec of pod {}", object::meta(pod, "name")), &format!("schedulingGates: {gate}"));
    case
}

/// Adds whose pod it is.
fn about(mut case: Case, pod: &Value) -> Case {
    case.vars.insert("pod", object::meta(pod, "name").to_owned());
    case.vars.insert("step", step(pod));
    case.vars.entry("who").or_insert_with(|| step(pod));
    case.vars.entry("node").or_insert_with(|| object::text(&pod["spec"], "nodeName").to_owned());
    if is_node(pod) && processes_per_node(pod) <= 1 {
        case.rank = node_rank(pod);
    }
    case
}

/// What the scheduler says of a pod that it cannot place.
fn unplaced(facts: &Facts, pod: &Value, message: &str) -> Case {
    let mut case = scheduling(facts, pod, message);
    case.vars.entry("message").or_insert_with(|| message.to_owned());
    case.quote(&format!("condition PodScheduled of pod {}", object::meta(pod, "name")), message);
    case
}

fn scheduling(facts: &Facts, pod: &Value, message: &str) -> Case {
    let claim = ["persistentvolumeclaim \"{claim}\" not found", "persistentvolumeclaim \"{claim}\" is being deleted"];
    if let Some(held) = claim.iter().find_map(|pattern| captures(pattern, message)) {
        let mut case = Case::new(Reason::VolumeMissing);
        case.vars.extend(held);
        return case;
    }
    let is_elsewhere = message.contains("volume node affinity conflict");
    if message.contains("unbound immediate PersistentVolumeClaims") || is_elsewhere {
        let name = pod["spec"]["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .find_map(|v| v["persistentVolumeClaim"]["claimName"].as_str());
        let reason = if is_elsewhere { Reason::VolumeElsewhere } else { Reason::VolumePending };
        return Case::new(reason).with("claim", name.unwrap_or_default());
    }
    if let Some(case) = insufficient(facts, pod, message) {
        return case;
    }
    if message.contains("of the run before it") {
        return Case::new(Reason::EarlierRunEnding);
    }
    if message.contains("gang ") || message.contains("Gang ") || message.contains("PodGroup") {
        return Case::new(Reason::GangWaiting);
    }
    let taint = |text: &str| {
        captures("had untolerated taint(s) {taint}, ", text)
            .or_else(|| captures("had untolerated taint {taint}}", text))
    };
    let readiness = [
        "were not ready",
        "were unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "no nodes available",
        "node.kubernetes.io/unschedulable",
    ];
    if readiness.iter().any(|text| message.contains(text)) {
        let cordoned = facts.nodes.iter().find(|node| node["spec"]["unschedulable"] == true);
        return Case::new(Reason::NodesNotReady).with("node", cordoned.map_or("", |node| object::meta(node, "name")));
    }
    if ["pod topology spread", "pod affinity", "pod anti-affinity", "anti-affinity rules"]
        .iter()
        .any(|text| message.contains(text))
    {
        return Case::new(Reason::PodsApart);
    }
    if ["affinity/selector", "node affinity", "node selector"].iter().any(|text| message.contains(text)) {
        let selector = match &pod["spec"]["nodeSelector"] {
            Value::Object(labels) => labels
                .iter()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", "),
            _ => String::new(),
        };
        return Case::new(Reason::NodeSelector).with("selector", selector);
    }
    if let Some(held) = taint(message) {
        let taint = held.into_iter().find(|(name, _)| *name == "taint").map_or(String::new(), |(_, text)| text);
        return Case::new(Reason::NodeTainted)
            .with("taint", taint.trim_start_matches('{').trim_end_matches('}').trim());
    }
    if message.contains("Too many pods") {
        return Case::new(Reason::Busy).with("resource", "room for pods");
    }
    Case::new(Reason::Unschedulable)
}

/// A resource that does not suffice: for now, or on any node for ever.
fn insufficient(facts: &Facts, pod: &Value, message: &str) -> Option<Case> {
    let (_, rest) = message.split_once("Insufficient ")?;
    let resource: String = rest.chars().take_while(|c| !c.is_whitespace() && *c != ',').collect();
    let resource = resource.trim_end_matches('.').to_owned();
    let told = captures("(needs {needs}, {free} free of {of})", message).unwrap_or_default();
    let told_of = |name: &str| told.iter().find(|(held, _)| *held == name).map(|(_, text)| text.clone());
    let requested = requested(pod, &resource);
    let needs = told_of("needs").or_else(|| requested.map(|amount| amount.to_string()));
    let amount = needs.as_deref().and_then(|text| Quantity::parse(text).ok());
    let most = largest(facts, &resource).or_else(|| told_of("of").and_then(|text| Quantity::parse(&text).ok()));
    let never = matches!((amount, most), (Some(amount), Some(most)) if amount > most);
    if !never && (message.contains("Gang ") || message.contains("gang ")) {
        return Some(Case::new(Reason::GangWaiting).with("resource", resource));
    }
    let mut case = Case::new(if never { Reason::NeverFits } else { Reason::Busy }).with("resource", resource);
    case.vars.extend(told);
    case.vars.insert("needs", needs.unwrap_or_default());
    case.vars.insert("most", most.map(|most| most.to_string()).unwrap_or_default());
    Some(case)
}

/// What a pod's containers ask for together.
fn requested(pod: &Value, resource: &str) -> Option<Quantity> {
    let containers = pod["spec"]["containers"].as_array()?;
    let of_container = |container: &Value| {
        let resources = &container["resources"];
        let asked = [&resources["requests"][resource], &resources["limits"][resource]]
            .into_iter()
            .find(|value| !value.is_null())?;
        Quantity::from_json(asked).ok()
    };
    containers.iter().filter_map(of_container).reduce(Quantity::plus)
}

/// What keeps a container from starting.
fn of_waiting(facts: &Facts, pod: &Value, status: &Value) -> Option<Case> {
    let waiting = &status["state"]["waiting"];
    let (reason, message) = (object::text(waiting, "reason"), object::text(waiting, "message"));
    let name = object::text(status, "name");
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let image = containers
        .filter(|container| container["name"] == name)
        .map(|container| object::text(container, "image"))
        .next();
    let mut case = match reason {
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "RegistryUnavailable" | "ImageInspectError" => {
            // the back-off says nothing of why: the attempt before did, in an event
            let told = pull_event(facts, pod);
            let cause = [message, told.map_or("", |event| object::text(event, "message"))].map(pull_cause);
            let mut case = Case::new(Reason::ImagePull);
            let cause = cause.into_iter().find(|cause| !cause.is_empty()).unwrap_or_default();
            if cause == OTHER_PLATFORM {
                case.reason = Reason::ImagePlatform;
            }
            case.vars.insert("cause", cause.to_owned());
            if let Some(event) = told {
                case.quote(&events::source(event), object::text(event, "message"));
            }
            case
        }
        "InvalidImageName" => Case::new(Reason::InvalidImage),
        "CreateContainerConfigError" if message.contains("runAsNonRoot") || message.contains("runAsUser") => {
            Case::new(Reason::RunsAsRoot)
        }
        "CreateContainerConfigError" => {
            let patterns =
                ["configmap \"{missing}\" not found", "secret \"{missing}\" not found", "couldn't find key {missing}"];
            let kinds = ["ConfigMap ", "Secret ", "key "];
            let found =
                patterns.iter().zip(kinds).find_map(|(pattern, kind)| Some((captures(pattern, message)?, kind)));
            let missing = found.and_then(|(held, kind)| Some(format!("{kind}{}", held.first()?.1)));
            Case::new(Reason::ConfigMissing).with("missing", missing.unwrap_or_default())
        }
        "CreateContainerError" | "RunContainerError" | "StartError" | "ContainerCannotRun" => cannot_start(message),
        // how it ended the last time says more
        "CrashLoopBackOff" | "" | "ContainerCreating" | "PodInitializing" => return None,
        _ => Case::new(Reason::CannotStart),
    };
    case.vars.entry("message").or_insert_with(|| message.to_owned());
    case.vars.insert("container", name.to_owned());
    case.vars.insert("image", image.unwrap_or_default().to_owned());
    let text = if message.is_empty() { reason.to_owned() } else { format!("{reason}: {message}") };
    case.quote(&format!("status of pod {}, container {name}", object::meta(pod, "name")), &text);
    Some(case)
}

/// A container's command that cannot be started, out of what its runtime says.
pub(crate) fn cannot_start(message: &str) -> Case {
    let patterns = [
        "exec: \"{command}\": {message}",
        "exec: {command}: {message}",
        "stat {command}: no such file or directory",
        "chdir to cwd (\"{command}\") set in config.json failed: {message}",
    ];
    let mut case = Case::new(Reason::CannotStart).with("message", message);
    if let Some(held) = patterns.iter().find_map(|pattern| captures(pattern, message)) {
        case.vars.extend(held);
    }
    if message.contains("exec format error") {
        case.reason = Reason::ExecFormat;
    }
    case
}

/// The newest event that says why a pod's image was not had.
fn pull_event<'a>(facts: &'a Facts, pod: &Value) -> Option<&'a Value> {
    let name = object::meta(pod, "name");
    let is_it = |event: &&Value| {
        object::text(&event["involvedObject"], "name") == name
            && object::text(event, "message").starts_with("Failed to pull image")
    };
    events::of_job(facts).into_iter().rev().find(is_it)
}

const OTHER_PLATFORM: &str = "it is not built for the node's processor";

/// Why an image was not had, in short.
fn pull_cause(message: &str) -> &'static str {
    let causes = [
        ("no match for platform", OTHER_PLATFORM),
        ("no matching manifest for", OTHER_PLATFORM),
        ("not found", "it does not exist"),
        ("manifest unknown", "it does not exist"),
        ("repository does not exist", "it does not exist, or needs a login"),
        ("no basic auth credentials", "the registry asks for a login"),
        ("unauthorized", "the registry asks for a login"),
        ("authentication required", "the registry asks for a login"),
        ("denied", "the registry asks for a login"),
        ("403", "the registry refuses it"),
        ("toomanyrequests", "the registry's rate limit is reached"),
        ("no such host", "the registry's name cannot be resolved"),
        ("i/o timeout", "the registry does not answer"),
        ("connection refused", "the registry does not answer"),
        ("x509", "the registry's certificate is not trusted"),
        ("no space left", "the node's disk is full"),
        ("not present with pull policy of Never", "it is not on the node, and must not be pulled"),
    ];
    causes.iter().find(|(sign, _)| message.contains(sign)).map_or("", |(_, cause)| cause)
}

/// Claims that are not bound, where the scheduler has said nothing yet.
fn claims(facts: &Facts, pod: &Value) -> Option<Case> {
    let name = object::meta(pod, "name");
    let about_pod =
        |event: &&Value| object::text(&event["involvedObject"], "name") == name && event["type"] == "Warning";
    let events = events::of_job(facts);
    events.into_iter().rev().filter(about_pod).find_map(|event| {
        let message = object::text(event, "message");
        let mut case = match object::text(event, "reason") {
            "FailedScheduling" => scheduling(facts, pod, message),
            _ => events::of_message(message)?,
        };
        case.vars.entry("message").or_insert_with(|| message.to_owned());
        case.quote(&events::source(event), message);
        Some(case)
    })
}

/// Steps that start only when others are done.
pub(crate) fn steps(facts: &Facts) -> Option<Case> {
    let list = |value: &Value, member: &str| value[member].as_array().cloned().unwrap_or_default();
    let counters = list(&facts.jobset["status"], "replicatedJobsStatus");
    let replicated = list(&facts.jobset["spec"], "replicatedJobs");
    let reached = |name: &str, state: &str| {
        let wanted = replicated.iter().find(|job| job["name"] == name).and_then(|job| job["replicas"].as_i64());
        let held = counters.iter().find(|step| step["name"] == name);
        let count = |counter: &str| held.and_then(|step| step[counter].as_i64()).unwrap_or(0);
        let done =
            if state == "Ready" { count("ready").saturating_add(count("succeeded")) } else { count("succeeded") };
        done >= wanted.unwrap_or(1)
    };
    for job in &replicated {
        for on in list(job, "dependsOn") {
            let (name, state) = (object::text(&on, "name"), object::text(&on, "status"));
            if reached(name, state) {
                continue;
            }
            let waiting = object::text(job, "name");
            let is_at_work = name.ends_with("-initializer")
                && facts.pods.iter().any(|pod| {
                    pod.live && step(&pod.pod) == name && object::text(&pod.pod["status"], "phase") == "Running"
                });
            let reason = if is_at_work { Reason::InitializerRunning } else { Reason::StepWaiting };
            let mut case = Case::new(reason).with("waiting", waiting).with("awaited", name).with("step", name);
            case.vars.insert("wanted_state", state.to_lowercase());
            case.quote("JobSet's dependsOn", &format!("{waiting} waits until {name} is {}", state.to_lowercase()));
            return Some(case);
        }
    }
    None
}
