//! Versions, and the kinds that are installed.

use super::{JOBSET, install, some};
use crate::facts::{Facts, Seen};
use crate::finding::{Findings, Remedy, Severity};
use crate::schema;
use api::object::meta;
use client::codes::ErrorCode;
use serde_json::Value;

/// The oldest Kubernetes that Trainer 2.3 supports: 1.31.
const OLDEST: (u64, u64) = (1, 31);
/// How many missing fields of a kind are named.
const FIELDS_MAX: usize = 8;
/// Kinds that only searches and gangs need.
const OPTIONAL: [(&str, &str); 4] = [
    // a cluster without MPIJobs does not need their kind
    ("mpijobs.kubeflow.org", ""),
    ("optimizationjobs.trainer.kubeflow.org", "OptimizationJobs cannot be made"),
    ("podgroups.scheduling.x-k8s.io", ""),
    ("podgroups.scheduling.volcano.sh", ""),
];

pub(super) fn versions(facts: &Facts) -> Findings {
    let mut found = Findings::new("versions");
    let ours = env!("CARGO_PKG_VERSION");
    let object = format!("Server/{}", facts.server);
    let version = match &facts.version {
        Seen::Known(version) => version,
        Seen::Unknown(why) => {
            found.unknown(object, why);
            return found;
        }
    };
    let told = version["gitVersion"].as_str().unwrap_or("(it does not say)");
    match facts.embedded() {
        Some(theirs) if theirs != ours => found.add(
            ErrorCode::ServerVersion,
            Severity::Warning,
            object,
            format!("it is trainyard {theirs}, this command is {ours}"),
            Remedy::run("trainyard down && trainyard up --detach"),
        ),
        Some(_) => found.ok(object, format!("trainyard {ours}, as Kubernetes {told}")),
        // providers append to the number: 31+
        None => match number(version) {
            Some(number) if number < OLDEST => found.add(
                ErrorCode::ServerVersion,
                Severity::Error,
                object,
                format!(
                    "Kubernetes {told} is older than {}.{}, the oldest that Trainer works with",
                    OLDEST.0, OLDEST.1
                ),
                Remedy::advise("upgrade the cluster"),
            ),
            Some(_) => found.ok(object, format!("Kubernetes {told}; this command is trainyard {ours}")),
            None => found.unknown(object, &format!("its version is {told}")),
        },
    }
    found
}

fn number(version: &Value) -> Option<(u64, u64)> {
    let part = |name: &str| version[name].as_str()?.trim_end_matches('+').parse().ok();
    Some((part("major")?, part("minor")?))
}

pub(super) fn kinds(facts: &Facts) -> Findings {
    let mut found = Findings::new("kinds");
    for ours in &facts.expected {
        let name = meta(ours, "name");
        let object = format!("CustomResourceDefinition/{name}");
        match facts.installed.get(name) {
            Some(Seen::Known(Some(theirs))) => kind(&mut found, object, ours, theirs),
            Some(Seen::Known(None)) => missing(facts, &mut found, object, name),
            Some(Seen::Unknown(why)) => found.unknown(object, why),
            None => found.unknown(object, "it was not looked for"),
        }
    }
    found
}

fn missing(facts: &Facts, found: &mut Findings, object: String, name: &str) {
    let optional = OPTIONAL.iter().find(|(optional, _)| *optional == name);
    match optional {
        // runtimes that use gangs report the missing kind
        Some((_, "")) => {}
        Some((_, without)) => found.add(
            ErrorCode::KindMissing,
            Severity::Warning,
            object,
            format!("not installed: {without}"),
            install(facts),
        ),
        None if name == "jobsets.jobset.x-k8s.io" => found.add(
            ErrorCode::KindMissing,
            Severity::Error,
            object,
            "not installed: TrainJobs are accepted, but nothing is created for them",
            Remedy::advise(JOBSET),
        ),
        None => found.add(ErrorCode::KindMissing, Severity::Error, object, "not installed", install(facts)),
    }
}

fn kind(found: &mut Findings, object: String, ours: &Value, theirs: &Value) {
    let remedy = |name: &str| match name.ends_with("jobset.x-k8s.io") {
        true => Remedy::advise(JOBSET),
        false => Remedy::run("kubectl apply --server-side --force-conflicts -k manifests/crds"),
    };
    let remedy = remedy(meta(ours, "name"));
    let served = |definition: &Value| -> Vec<String> {
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        versions.filter(|v| v["served"] == true).filter_map(|v| v["name"].as_str()).map(str::to_owned).collect()
    };
    let (want, have) = (served(ours), served(theirs));
    // the date, because an age would differ each time
    let day = meta(theirs, "creationTimestamp").get(..10).unwrap_or("some day");
    let before = found.all.len();
    for version in &want {
        if !have.contains(version) {
            let message = format!("version {version} is not served; it has {}", some(&have, FIELDS_MAX));
            found.add(ErrorCode::KindDiffers, Severity::Error, object.clone(), message, remedy.clone());
            continue;
        }
        let lacks: Vec<String> =
            schema::lacking(schema::of(ours, version), schema::of(theirs, version)).into_iter().collect();
        if !lacks.is_empty() {
            let message = format!(
                "{version}, installed {day}, is older than this command's: it lacks {}, which the server drops or refuses",
                some(&lacks, FIELDS_MAX)
            );
            found.add(ErrorCode::KindDiffers, Severity::Warning, object.clone(), message, remedy.clone());
        }
        let more: Vec<String> =
            schema::lacking(schema::of(theirs, version), schema::of(ours, version)).into_iter().collect();
        if !more.is_empty() {
            let message = format!(
                "{version}, installed {day}, is newer than this command's: it also has {}, which trainyard {} does not know",
                some(&more, FIELDS_MAX),
                env!("CARGO_PKG_VERSION")
            );
            found.add(
                ErrorCode::KindDiffers,
                Severity::Warning,
                object.clone(),
                message,
                Remedy::advise("install a newer trainyard, or keep off these fields"),
            );
        }
    }
    let conditions = theirs["status"]["conditions"].as_array().into_iter().flatten();
    let refused = conditions.filter(|c| matches!(c["type"].as_str(), Some("Established" | "NamesAccepted")));
    for condition in refused.filter(|c| c["status"] == "False") {
        let message = format!("not served: {}", condition["message"].as_str().unwrap_or_default());
        let remedy = Remedy::run(format!("kubectl describe crd {}", meta(ours, "name")));
        found.add(ErrorCode::KindDiffers, Severity::Error, object.clone(), message, remedy);
    }
    if found.all.len() == before {
        found.ok(object, format!("{}, installed {day}", some(&have, FIELDS_MAX)));
    }
}
