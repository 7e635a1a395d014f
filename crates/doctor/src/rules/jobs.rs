//! Runtimes that jobs name but that do not exist; jobs of all kinds, JobSets and pods that make no progress.

use super::{KUEUE_QUEUE, deployed, install, some};
use crate::facts::{Facts, Seen};
use crate::finding::{Findings, Remedy, Severity};
use api::job_kind::JobKind;
use api::mpi::names::LABEL_JOB_NAME;
use api::object::{self, label, meta, text, uid};
use api::trainer::annotations::RETRY_AT;
use api::trainer::names::{LABEL_JOBSET_NAME, MANAGED_BY_TRAINER};
use client::codes::ErrorCode;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use view::job::is_finished;
use view::state::{Attempts, Phase, condition, short_duration, why_pending};
use view::trials::PARENT;

/// How many reasons, names or finalizers of one object are reported.
const TOLD_MAX: usize = 3;
/// The manager that MPIJobs name when the operator handles them.
const MANAGED_BY_MPI: &str = "kubeflow.org/mpi-operator";
/// The manager that JobSets name when JobSet's own controller handles them.
const MANAGED_BY_JOBSET: &str = "jobset.sigs.k8s.io/jobset-controller";
/// The kinds that schedule gangs, each with the member of a runtime's `podGroupPolicy` that requests it.
const GANGS: [(&str, &str); 2] =
    [("coscheduling", "podgroups.scheduling.x-k8s.io"), ("volcano", "podgroups.scheduling.volcano.sh")];

fn named(kind: &str, object: &Value) -> String {
    let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The flags that name the server and an object's namespace. A namespace that the user has given is not repeated.
fn flags(facts: &Facts, object: &Value) -> String {
    match &facts.only {
        Some(_) => facts.flags.clone(),
        None => format!("{} -n {}", facts.flags, meta(object, "namespace")),
    }
}

/// The command that shows more about a TrainJob.
fn describe(facts: &Facts, job: &Value) -> Remedy {
    Remedy::run(format!("trainyard describe {}{}", meta(job, "name"), flags(facts, job)))
}

/// The command that explains why a job of another kind waits.
fn explain(facts: &Facts, kind: &str, job: &Value) -> Remedy {
    Remedy::run(format!("trainyard explain {kind}/{}{}", meta(job, "name"), flags(facts, job)))
}

fn is_over(job: &Value) -> bool {
    Phase::of(job).is_finished()
}

pub(super) fn runtimes(facts: &Facts) -> Findings {
    let mut found = Findings::new("runtimes");
    found.unseen("ClusterTrainingRuntimes", &facts.cluster_runtimes);
    found.unseen("TrainingRuntimes", &facts.runtimes);
    let (shared, own) = (facts.cluster_runtimes.items(), facts.runtimes.items());
    if shared.is_empty() && own.is_empty() && facts.cluster_runtimes.known().is_some() {
        let message = "there are none, and every TrainJob needs one";
        let command = "kubectl apply --server-side --force-conflicts -k manifests/overlays/runtimes";
        found.add(ErrorCode::RuntimeNotThere, Severity::Warning, "runtimes", message, Remedy::run(command));
    }
    let clusters: BTreeSet<&str> = shared.iter().map(|runtime| meta(runtime, "name")).collect();
    let namespaced: BTreeSet<(&str, &str)> =
        own.iter().map(|runtime| (meta(runtime, "namespace"), meta(runtime, "name"))).collect();
    let before = found.all.len();
    for job in facts.trainjobs.items().iter().filter(|job| !is_over(job)) {
        let reference = &job["spec"]["runtimeRef"];
        let (kind, name) = (text(reference, "kind"), text(reference, "name"));
        let is_there = match kind {
            "TrainingRuntime" => {
                facts.runtimes.known().is_none() || namespaced.contains(&(meta(job, "namespace"), name))
            }
            "ClusterTrainingRuntime" | "" => facts.cluster_runtimes.known().is_none() || clusters.contains(name),
            // a kind of runtime that is not Trainer's
            _ => true,
        };
        if is_there {
            continue;
        }
        let kind = if kind.is_empty() { "ClusterTrainingRuntime" } else { kind };
        let message = format!("its runtime does not exist: {kind} {name:?}");
        let runs = jobset_of(facts, job).is_some();
        let severity = if runs { Severity::Warning } else { Severity::Error };
        let message = if runs { format!("{message} (its pods go on)") } else { message };
        let command = format!("trainyard runtimes{}", facts.flags);
        let remedy = Remedy::why("create it, or delete the job; see which there are", command);
        found.add(ErrorCode::RuntimeNotThere, severity, named("TrainJob", job), message, remedy);
    }
    for runtime in shared.iter().chain(own) {
        for (member, definition) in GANGS {
            let wants = runtime["spec"]["podGroupPolicy"][member].is_object();
            if wants && facts.installed.get(definition) == Some(&Seen::Known(None)) {
                let kind = text(runtime, "kind");
                let kind = if kind.is_empty() { "Runtime" } else { kind };
                found.add(
                    ErrorCode::GangScheduler,
                    Severity::Error,
                    named(kind, runtime),
                    format!("it schedules gangs by {member}, and {definition} is not installed"),
                    Remedy::advise(format!(
                        "install {member}'s scheduler with its CustomResourceDefinitions, or leave out podGroupPolicy"
                    )),
                );
            }
        }
    }
    if found.all.len() == before && !(shared.is_empty() && own.is_empty()) {
        found.ok("runtimes", format!("{} for all, {} of namespaces; none is missing", shared.len(), own.len()));
    }
    found
}

fn jobset_of<'a>(facts: &'a Facts, job: &Value) -> Option<&'a Value> {
    facts
        .jobsets
        .items()
        .iter()
        .find(|jobset| meta(jobset, "namespace") == meta(job, "namespace") && meta(jobset, "name") == meta(job, "name"))
}

fn owner_of<'a>(facts: &'a Facts, jobset: &Value) -> Option<&'a Value> {
    let owner = api::object::controller_of(jobset)?;
    facts.trainjobs.items().iter().find(|job| uid(job) == text(owner, "uid"))
}

pub(super) fn jobs(facts: &Facts) -> Findings {
    let mut found = Findings::new("jobs");
    for (kind, seen) in [
        ("TrainJobs", &facts.trainjobs),
        ("MPIJobs", &facts.mpijobs),
        ("OptimizationJobs", &facts.searches),
        ("JobSets", &facts.jobsets),
        ("Jobs", &facts.jobs),
        ("Pods", &facts.pods),
        ("Events", &facts.events),
    ] {
        found.unseen(kind, seen);
    }
    let before = found.all.len();
    for job in facts.trainjobs.items() {
        if !deleting(facts, &mut found, "TrainJob", job) {
            trainjob(facts, &mut found, job);
        }
    }
    let mut pods: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    for pod in facts.pods.items() {
        let of = (meta(pod, "namespace"), label(pod, LABEL_JOBSET_NAME).unwrap_or_default());
        pods.entry(of).or_default().push(pod);
    }
    for jobset in facts.jobsets.items() {
        if !deleting(facts, &mut found, "JobSet", jobset) {
            let its = pods.get(&(meta(jobset, "namespace"), meta(jobset, "name"))).map_or(&[][..], Vec::as_slice);
            self::jobset(facts, &mut found, jobset, its);
        }
    }
    for job in facts.mpijobs.items() {
        if !deleting(facts, &mut found, "MPIJob", job) {
            mpijob(facts, &mut found, job);
        }
    }
    for search in facts.searches.items() {
        if !deleting(facts, &mut found, "OptimizationJob", search) {
            self::search(facts, &mut found, search);
        }
    }
    for pod in facts.pods.items().iter().chain(facts.mpi_pods.items()) {
        deleting(facts, &mut found, "Pod", pod);
    }
    if found.all.len() == before && facts.trainjobs.known().is_some() {
        let place = facts
            .only
            .as_ref()
            .map_or("all namespaces that you may see".to_owned(), |only| format!("namespace {only}"));
        found.ok("jobs", format!("{} in {place}, none stuck", counted(facts)));
    }
    found
}

/// `3 TrainJobs (1 not ended), 1 MPIJob`; kinds other than TrainJobs appear only if there are some.
fn counted(facts: &Facts) -> String {
    let kinds = JobKind::ALL.into_iter().zip([&facts.trainjobs, &facts.mpijobs, &facts.searches]);
    let counts = kinds.filter(|(kind, jobs)| *kind == JobKind::Train || !jobs.items().is_empty());
    let counts = counts.map(|(of, jobs)| {
        let kind = of.title();
        let count = jobs.items().len();
        let plural = if count == 1 { "" } else { "s" };
        match jobs.items().iter().filter(|job| !is_finished(of, job)).count() {
            0 => format!("{count} {kind}{plural}"),
            open => format!("{count} {kind}{plural} ({open} not ended)"),
        }
    });
    counts.collect::<Vec<_>>().join(", ")
}

/// An MPIJob that has no pods, or whose pods wait.
fn mpijob(facts: &Facts, found: &mut Findings, job: &Value) {
    let suspended = job["spec"]["runPolicy"]["suspend"] == true;
    let of_others = !matches!(text(&job["spec"]["runPolicy"], "managedBy"), "" | MANAGED_BY_MPI);
    if is_finished(JobKind::Mpi, job) || suspended || of_others || object::annotation(job, RETRY_AT).is_some() {
        return;
    }
    let Some(secs) = long_since(facts, meta(job, "creationTimestamp")) else { return };
    let (object, age) = (named("MPIJob", job), short_duration(secs));
    let remedy = explain(facts, "mpijob", job);
    let its = |pod: &&Value| {
        meta(pod, "namespace") == meta(job, "namespace") && label(pod, LABEL_JOB_NAME) == Some(meta(job, "name"))
    };
    let pods: Vec<&Value> = facts.mpi_pods.items().iter().filter(its).collect();
    if pods.is_empty() {
        if facts.mpi_pods.known().is_some() {
            let why = warning(facts, "MPIJob", job);
            let why =
                why.map_or(", and no event says why: no operator is at work".to_owned(), |why| format!(": {why}"));
            let message = format!("no pods were created for it in {age}{why}");
            found.add(ErrorCode::JobStandsStill, Severity::Error, object, message, remedy);
        }
        return;
    }
    let waiting: BTreeSet<String> = pods
        .iter()
        .filter(|pod| long_since(facts, meta(pod, "creationTimestamp")).is_some())
        .filter_map(|pod| why_pending(pod).or_else(|| unscheduled(pod)))
        .collect();
    if !waiting.is_empty() {
        let reasons: Vec<String> = waiting.into_iter().collect();
        let message = format!("its pods wait: {}", some(&reasons, TOLD_MAX));
        found.add(ErrorCode::PodsWaiting, Severity::Warning, object, message, remedy);
    }
}

/// A search that has never started a trial.
fn search(facts: &Facts, found: &mut Findings, search: &Value) {
    if is_finished(JobKind::Search, search) || facts.trainjobs.known().is_none() {
        return;
    }
    let Some(secs) = long_since(facts, meta(search, "creationTimestamp")) else { return };
    let is_trial = |job: &&Value| {
        meta(job, "namespace") == meta(search, "namespace") && label(job, PARENT) == Some(meta(search, "name"))
    };
    if facts.trainjobs.items().iter().any(|job| is_trial(&job)) {
        return;
    }
    let why = warning(facts, "OptimizationJob", search);
    let why = why.map_or(", and no event says why: no controller is at work".to_owned(), |why| format!(": {why}"));
    let message = format!("no trial was started in {}{why}", short_duration(secs));
    let remedy = explain(facts, "optimizationjob", search);
    found.add(ErrorCode::JobStandsStill, Severity::Error, named("OptimizationJob", search), message, remedy);
}

/// Seconds since a time, if they exceed the patience.
fn long_since(facts: &Facts, time: &str) -> Option<i64> {
    let since: Timestamp = time.parse().ok()?;
    let elapsed = facts.now.duration_since(since);
    (elapsed > facts.patience).then_some(elapsed.as_secs())
}

/// Reports an object whose deletion takes too long. Returns whether it is being deleted at all.
fn deleting(facts: &Facts, found: &mut Findings, kind: &str, object: &Value) -> bool {
    let since = meta(object, "deletionTimestamp");
    if since.is_empty() {
        return false;
    }
    // the deletion time of a pod is the end of its grace period
    let Some(secs) = long_since(facts, since) else { return true };
    let finalizers: Vec<String> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
    let (held, remedy) = if finalizers.is_empty() {
        (
            "nothing; its node may be gone".to_owned(),
            Remedy::run(format!("kubectl -n {namespace} describe {} {name}", kind.to_lowercase())),
        )
    } else if finalizers.iter().any(|finalizer| finalizer == "foregroundDeletion") {
        let children = format!("kubectl -n {namespace} get jobsets,jobs,pods,configmaps | grep {name}");
        (format!("finalizers {}: what it owns is not gone", some(&finalizers, TOLD_MAX)), Remedy::run(children))
    } else {
        let patch = format!(
            "kubectl -n {namespace} patch {} {name} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
            kind.to_lowercase()
        );
        let remedy = Remedy::why("the controller that set it should remove it; if that is gone for good", patch);
        (format!("finalizers {}", some(&finalizers, TOLD_MAX)), remedy)
    };
    let message = format!("is being deleted for {}, held by {held}", short_duration(secs));
    found.add(ErrorCode::DeletionHeld, Severity::Error, named(kind, object), message, remedy);
    true
}

fn trainjob(facts: &Facts, found: &mut Findings, job: &Value) {
    let manager = text(&job["spec"], "managedBy");
    let waits = Attempts::of(job).waits(facts.now).is_some();
    if !matches!(manager, "" | MANAGED_BY_TRAINER) || Phase::of(job) != Phase::Pending || waits {
        return;
    }
    let Some(secs) = long_since(facts, meta(job, "creationTimestamp")) else { return };
    // a JobSet may exist unseen
    if facts.jobsets.known().is_none() || jobset_of(facts, job).is_some() {
        return;
    }
    let age = short_duration(secs);
    let (message, remedy) = match warning(facts, "TrainJob", job) {
        Some(why) => (format!("no JobSet was created for it in {age}: {why}"), describe(facts, job)),
        None => {
            let told = job["status"]["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
            let silent = if told { "" } else { ", and no event says why: no controller is at work" };
            (format!("no JobSet was created for it in {age}{silent}"), at_work(facts, job))
        }
    };
    found.add(ErrorCode::JobStandsStill, Severity::Error, named("TrainJob", job), message, remedy);
}

/// The remedy for a TrainJob without children, if no event gives a reason.
fn at_work(facts: &Facts, job: &Value) -> Remedy {
    let is_there = facts.deployments.items().iter().any(|one| deployed(one).is_some_and(|whose| whose != "jobset"));
    if is_there || facts.embedded().is_some() { describe(facts, job) } else { install(facts) }
}

/// The newest warning about an object.
fn warning(facts: &Facts, kind: &str, object: &Value) -> Option<String> {
    let newest = facts.events.items().iter().rev().find(|event| {
        let about = &event["involvedObject"];
        text(about, "kind") == kind
            && text(about, "name") == meta(object, "name")
            && meta(event, "namespace") == meta(object, "namespace")
    })?;
    Some(format!("{}: {}", text(newest, "reason"), text(newest, "message").trim()))
}

/// The reason that `explain` gives for a waiting job, and its first command; `None` if it finds none.
fn diagnosed(facts: &Facts, job: &Value, jobset: &Value, jobs: &[&Value], pods: &[&Value]) -> Option<(String, Remedy)> {
    let namespace = meta(job, "namespace");
    let events = facts.events.items().iter().filter(|event| meta(event, "namespace") == namespace);
    let flags = flags(facts, job);
    let told = diagnose::diagnose(&diagnose::Facts {
        job: job.clone(),
        jobset: jobset.clone(),
        jobs: jobs.iter().map(|job| (*job).clone()).collect(),
        pods: pods.iter().map(|pod| diagnose::PodFacts { pod: (*pod).clone(), live: true, attempt: 0 }).collect(),
        events: events.cloned().collect(),
        now: facts.now,
        home: diagnose::Home { flags, kubectl: format!("kubectl -n {namespace}"), local: facts.embedded().is_some() },
        ..diagnose::Facts::default()
    });
    if matches!(told.reason, diagnose::Reason::Starting | diagnose::Reason::Running) {
        return None;
    }
    let remedy = told.remedies.into_iter().find_map(|remedy| Some((remedy.text, remedy.command?)));
    remedy.map(|(text, command)| (format!("{} ({})", told.why, told.reason.as_str()), Remedy::why(text, command)))
}

/// The message about a pod that no scheduler handles.
fn unscheduled(pod: &Value) -> Option<String> {
    let is_pending = text(&pod["status"], "phase") == "Pending" && text(&pod["spec"], "nodeName").is_empty();
    is_pending.then(|| "on no node, and no event says why: check that a scheduler is running".to_owned())
}

fn jobset(facts: &Facts, found: &mut Findings, jobset: &Value, pods: &[&Value]) {
    let manager = text(&jobset["spec"], "managedBy");
    let has_ended = condition(jobset, "Completed").or_else(|| condition(jobset, "Failed")).is_some();
    if has_ended || !matches!(manager, "" | MANAGED_BY_JOBSET) {
        return;
    }
    let Some(secs) = long_since(facts, meta(jobset, "creationTimestamp")) else { return };
    let (object, age) = (named("JobSet", jobset), short_duration(secs));
    let (namespace, name) = (meta(jobset, "namespace"), meta(jobset, "name"));
    let owner = owner_of(facts, jobset);
    if jobset["spec"]["suspend"] == true {
        let queue = label(jobset, KUEUE_QUEUE).or_else(|| label(owner?, KUEUE_QUEUE));
        let runs = owner.is_some_and(|job| job["spec"]["suspend"] != true && !is_over(job));
        match (queue, runs) {
            (Some(queue), true) => found.add(ErrorCode::PodsWaiting,
                Severity::Warning,
                object,
                format!("waits for Kueue to admit it from queue {queue}"),
                Remedy::run(format!(
                    "kubectl -n {namespace} get workloads.kueue.x-k8s.io; kubectl -n {namespace} describe localqueue {queue}"
                )),
            ),
            (None, true) => {
                let message = "is suspended, though its TrainJob is not: its controller does not follow";
                found.add(ErrorCode::JobStandsStill, Severity::Error, object, message, describe(facts, jobset));
            }
            // the user who suspended the TrainJob knows it
            (_, false) => {}
        }
        return;
    }
    let moved = |member: &str| jobset["status"][member].as_array().is_some_and(|list| !list.is_empty());
    if !moved("conditions") && !moved("replicatedJobsStatus") && pods.is_empty() {
        let why = warning(facts, "JobSet", jobset).map_or(String::new(), |why| format!(": {why}"));
        let message = format!("it has no status {age} after it was made: JobSet's controller is not at work{why}");
        let remedy = Remedy::run("kubectl get deployments -A | grep jobset");
        found.add(ErrorCode::JobStandsStill, Severity::Error, object, message, remedy);
        return;
    }
    let its = |job: &&Value| meta(job, "namespace") == namespace && label(job, LABEL_JOBSET_NAME) == Some(name);
    let jobs: Vec<&Value> = facts.jobs.items().iter().filter(its).collect();
    if jobs.is_empty() && facts.jobs.known().is_some() {
        let why = warning(facts, "JobSet", jobset).map_or(String::new(), |why| format!(": {why}"));
        let remedy = Remedy::run(format!("kubectl -n {namespace} describe jobset {name}"));
        found.add(
            ErrorCode::JobStandsStill,
            Severity::Error,
            object,
            format!("no Jobs were created for it in {age}{why}"),
            remedy,
        );
        return;
    }
    // Jobs without pods explain it themselves: a quota, a missing service account
    let refused: BTreeSet<String> = jobs
        .iter()
        .filter(|job| job["status"]["active"].as_i64().unwrap_or(0) < job["spec"]["parallelism"].as_i64().unwrap_or(1))
        .filter(|job| condition(job, "Complete").or_else(|| condition(job, "Failed")).is_none())
        .filter_map(|job| warning(facts, "Job", job).filter(|why| why.starts_with("FailedCreate")))
        .collect();
    if !refused.is_empty() && pods.iter().all(|pod| text(&pod["status"], "phase") != "Running") {
        let refused: Vec<String> = refused.into_iter().collect();
        let command =
            format!("kubectl -n {namespace} get resourcequota,limitrange; kubectl -n {namespace} describe jobs");
        let remedy = Remedy::run(command);
        found.add(
            ErrorCode::PodsRefused,
            Severity::Error,
            object.clone(),
            format!("pods are refused: {}", some(&refused, 1)),
            remedy,
        );
    }
    let waiting: Vec<(&&Value, String)> = pods
        .iter()
        .filter(|pod| long_since(facts, meta(pod, "creationTimestamp")).is_some())
        .filter_map(|pod| why_pending(pod).or_else(|| unscheduled(pod)).map(|why| (pod, why)))
        .collect();
    if !waiting.is_empty() {
        let reasons: BTreeSet<&str> = waiting.iter().map(|(_, why)| why.as_str()).collect();
        let reasons: Vec<String> = reasons.into_iter().map(str::to_owned).collect();
        let mut message = format!("{} of {} pods wait: {}", waiting.len(), pods.len(), some(&reasons, TOLD_MAX));
        let told = owner.and_then(|job| diagnosed(facts, job, jobset, &jobs, pods));
        let remedy = match (owner, told) {
            (_, Some((why, remedy))) => {
                message = format!("{} of {} pods wait: {why}", waiting.len(), pods.len());
                remedy
            }
            (Some(job), None) => describe(facts, job),
            (None, None) => Remedy::run(format!("kubectl -n {namespace} describe pod {}", meta(waiting[0].0, "name"))),
        };
        found.add(ErrorCode::PodsWaiting, Severity::Warning, object, message, remedy);
    }
}
