//! The controllers of our kinds: their Deployments, and the Leases by which their replicas elect a leader.

use super::{JOBSET, install};
use crate::facts::{Facts, Probe, Seen};
use crate::finding::{Findings, Remedy, Severity};
use api::object::{meta, text};
use client::codes::ErrorCode;
use jiff::Timestamp;
use serde_json::Value;
use view::state::short_duration;

/// Name of the Lease of Trainer's controllers, upstream's and ours alike.
const LEASE: &str = "trainer.kubeflow.org";
/// How many seconds after its time a Lease still counts, because clocks differ.
const SKEW_SECS: i64 = 60;

/// Whose Deployment it is: `trainyard`, `kubeflow` (upstream's Trainer) or `jobset`; `None` if it is another's or has no replicas.
pub(crate) fn deployed(deployment: &Value) -> Option<&'static str> {
    if is_idle(deployment) { None } else { whose(deployment) }
}

/// Whether its spec requests no replicas.
fn is_idle(deployment: &Value) -> bool {
    deployment["spec"]["replicas"] == 0
}

/// Whose Deployment it is, with or without replicas.
pub(super) fn whose(deployment: &Value) -> Option<&'static str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let images: Vec<&str> = containers.map(|container| text(container, "image")).collect();
    // a mirror may rename an image, but will hardly change the last part of its name
    let is = |part: &str| images.iter().any(|image| image.contains(part));
    if is("trainyard") {
        Some("trainyard")
    } else if is("trainer-controller-manager") {
        Some("kubeflow")
    } else if is("/jobset") || meta(deployment, "name") == "jobset-controller-manager" {
        Some("jobset")
    } else {
        None
    }
}

pub(super) fn judge(facts: &Facts) -> Findings {
    let mut found = Findings::new("controllers");
    if let Some(version) = facts.embedded() {
        found.ok(format!("Server/{}", facts.server), format!("trainyard {version} brings them along"));
    }
    found.unseen("Deployments", &facts.deployments);
    found.unseen("Leases", &facts.leases);
    let leader = leases(facts, &mut found);
    let deployments = facts.deployments.items();
    let of = |whose: &str| -> Vec<&Value> { deployments.iter().filter(|one| deployed(one) == Some(whose)).collect() };
    let (ours, theirs, jobset) = (of("trainyard"), of("kubeflow"), of("jobset"));
    for deployment in ours.iter().chain(&theirs).chain(&jobset) {
        ready(&mut found, deployment);
    }
    rivals(&mut found, &ours, &theirs);
    if facts.embedded().is_some() {
        return found;
    }
    if ours.is_empty() && theirs.is_empty() && leader.is_none() && facts.deployments.known().is_some() {
        let worked = facts
            .trainjobs
            .items()
            .iter()
            .any(|job| job["status"].as_object().is_some_and(|status| !status.is_empty()));
        let elsewhere =
            |sign: &str| format!("no Deployment and no Lease of one is visible, though {sign}: it may run elsewhere");
        let (severity, message) = match (&facts.probe, worked) {
            (Seen::Known(Probe::Refused), _) => (Severity::Warning, elsewhere("its webhooks answer")),
            (_, true) => (Severity::Warning, elsewhere("TrainJobs have been worked on")),
            (_, false) => (Severity::Error, "none is there: TrainJobs are not processed".to_owned()),
        };
        match idle(facts, &["trainyard", "kubeflow"]) {
            Some(deployment) => at_zero(&mut found, deployment, "TrainJobs are not processed"),
            None => {
                found.add(ErrorCode::ControllerMissing, severity, "controller of TrainJobs", message, install(facts))
            }
        }
    }
    let leads_jobsets = facts
        .leases
        .items()
        .iter()
        .any(|lease| meta(lease, "name").ends_with("jobset.x-k8s.io") && Held::of(lease, facts.now) == Held::Fresh);
    // the controller that writes statuses works, wherever it runs
    let has_worked = facts
        .jobsets
        .items()
        .iter()
        .any(|jobset| jobset["status"]["replicatedJobsStatus"].as_array().is_some_and(|steps| !steps.is_empty()));
    if jobset.is_empty() && !leads_jobsets && !has_worked && facts.deployments.known().is_some() {
        match idle(facts, &["jobset"]) {
            Some(deployment) => at_zero(&mut found, deployment, "TrainJobs get a JobSet and no pods"),
            None => found.add(
                ErrorCode::ControllerMissing,
                Severity::Warning,
                "controller of JobSets",
                "no Deployment and no Lease of one is visible: without it TrainJobs get a JobSet and no pods",
                Remedy::advise(JOBSET),
            ),
        }
    }
    found
}

/// A Deployment of one of these owners whose spec requests no replicas.
fn idle<'a>(facts: &'a Facts, of: &[&str]) -> Option<&'a Value> {
    let mut all = facts.deployments.items().iter().filter(|one| is_idle(one));
    all.find(|one| whose(one).is_some_and(|whose| of.contains(&whose)))
}

fn at_zero(found: &mut Findings, deployment: &Value, so: &str) {
    let (namespace, name) = (meta(deployment, "namespace"), meta(deployment, "name"));
    let command = format!("kubectl -n {namespace} scale deploy/{name} --replicas=2");
    found.add(
        ErrorCode::ControllerMissing,
        Severity::Error,
        named(deployment),
        format!("it is scaled to 0 replicas: {so}"),
        Remedy::run(command),
    );
}

fn named(deployment: &Value) -> String {
    format!("Deployment/{}/{}", meta(deployment, "namespace"), meta(deployment, "name"))
}

fn ready(found: &mut Findings, deployment: &Value) {
    let (namespace, name) = (meta(deployment, "namespace"), meta(deployment, "name"));
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(1);
    let ready = deployment["status"]["readyReplicas"].as_i64().unwrap_or(0);
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let image = containers.and_then(|all| all.first()).map_or("", |first| text(first, "image"));
    let command = format!("kubectl -n {namespace} get pods; kubectl -n {namespace} logs deploy/{name}");
    let remedy = Remedy::run(command);
    match ready {
        0 => found.add(
            ErrorCode::ControllerNotReady,
            Severity::Error,
            named(deployment),
            format!("none of {wanted} replicas of {image} is ready"),
            remedy,
        ),
        ready if ready < wanted => {
            let message = format!("{ready} of {wanted} replicas of {image} are ready");
            found.add(ErrorCode::ControllerNotReady, Severity::Warning, named(deployment), message, remedy);
        }
        ready => found.ok(named(deployment), format!("{ready} of {wanted} replicas of {image} are ready")),
    }
}

/// Reports two controllers that work on the same kinds.
fn rivals(found: &mut Findings, ours: &[&Value], theirs: &[&Value]) {
    let all: Vec<&Value> = ours.iter().chain(theirs).copied().filter(|one| !keeps_to_one(one)).collect();
    let [first, others @ ..] = all.as_slice() else { return };
    for other in others {
        let elect_together = meta(first, "namespace") == meta(other, "namespace");
        let (severity, message) = match elect_together {
            true => {
                (Severity::Warning, "works on the same kinds; both take part in one election, so only one is at work")
            }
            false => {
                (Severity::Error, "works on the same kinds, and both are at work: each undoes what the other does")
            }
        };
        let (namespace, name) = (meta(other, "namespace"), meta(other, "name"));
        let command = format!("kubectl -n {namespace} scale deploy/{name} --replicas=0");
        let remedy = Remedy::why("keep one of them", command);
        found.add(
            ErrorCode::ControllerRivals,
            severity,
            named(other),
            format!("beside {} it {message}", named(first)),
            remedy,
        );
    }
}

/// Whether our operator watches the TrainJobs of only one namespace.
pub(super) fn keeps_to_one(deployment: &Value) -> bool {
    let args = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    args.into_iter().flatten().filter_map(Value::as_str).any(|arg| arg.starts_with("--watch-namespace"))
}

fn replica() -> Remedy {
    Remedy::why("is a replica running", "kubectl get deployments -A | grep -E 'trainer|trainyard'")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Fresh,
    /// Not renewed for so many seconds.
    Late(i64),
    /// Released, or never taken.
    Free,
}

impl Held {
    fn of(lease: &Value, now: Timestamp) -> Self {
        let spec = &lease["spec"];
        let renewed = text(spec, "renewTime").parse::<Timestamp>();
        match (text(spec, "holderIdentity"), renewed) {
            ("", _) | (_, Err(_)) => Self::Free,
            (_, Ok(renewed)) => {
                let late = now.as_second() - renewed.as_second() - spec["leaseDurationSeconds"].as_i64().unwrap_or(15);
                if late > SKEW_SECS { Self::Late(late) } else { Self::Fresh }
            }
        }
    }
}

/// Judges the Leases of Trainer's controllers, and returns the holders.
fn leases<'a>(facts: &'a Facts, found: &mut Findings) -> Option<&'a str> {
    let leases: Vec<&Value> = facts.leases.items().iter().filter(|lease| meta(lease, "name") == LEASE).collect();
    let mut leader = None;
    for lease in leases {
        let object = format!("Lease/{}/{LEASE}", meta(lease, "namespace"));
        let holder = text(&lease["spec"], "holderIdentity");
        match (Held::of(lease, facts.now), leader) {
            (Held::Fresh, None) => {
                found.ok(object, format!("{holder} leads"));
                leader = Some(holder);
            }
            (Held::Fresh, Some(first)) => found.add(
                ErrorCode::ControllerRivals,
                Severity::Error,
                object,
                format!("{holder} leads, and {first} in another namespace: two controllers are at work"),
                Remedy::why("keep one of them", "kubectl get deployments -A | grep -E 'trainer|trainyard'"),
            ),
            (Held::Late(secs), _) => found.add(
                ErrorCode::ControllerNotReady,
                Severity::Error,
                object,
                format!("no replica leads: {holder} has not renewed the lease in time, {} ago", short_duration(secs)),
                replica(),
            ),
            (Held::Free, _) => found.add(
                ErrorCode::ControllerNotReady,
                Severity::Warning,
                object,
                "no replica leads: the lease was given back",
                replica(),
            ),
        }
    }
    leader
}
