//! Runtimes that jobs can use.

use super::{NO_NAMESPACE, Reader, address, object, yaml};
use crate::problem::Problem;
use crate::sheet::{Cell, Command, Part, Sheet, facts, main_table};
use api::object as read;
use api::trainer::names::{LABEL_FRAMEWORK, LABEL_SUPPORT, SUPPORT_DEPRECATED};
use client::Kind;
use serde_json::Value;
use std::collections::BTreeSet;

fn nodes(runtime: &Value) -> i64 {
    runtime["spec"]["mlPolicy"]["numNodes"].as_i64().unwrap_or(1)
}

/// The images of all its steps.
fn images(runtime: &Value) -> String {
    let jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array().into_iter().flatten();
    let containers = jobs.flat_map(|job| {
        let pod = &job["template"]["spec"]["template"]["spec"];
        pod["containers"].as_array().into_iter().flatten()
    });
    let images: BTreeSet<&str> =
        containers.map(|one| read::text(one, "image")).filter(|image| !image.is_empty()).collect();
    images.into_iter().collect::<Vec<_>>().join(", ")
}

fn framework(runtime: &Value) -> &str {
    read::label(runtime, LABEL_FRAMEWORK).unwrap_or_default()
}

fn is_deprecated(runtime: &Value) -> bool {
    read::label(runtime, LABEL_SUPPORT) == Some(SUPPORT_DEPRECATED)
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Runtimes".to_owned(), ..Sheet::default() };
    let mut all = reader.objects(Kind::ClusterTrainingRuntime, "", &mut sheet).await?;
    all.extend(reader.objects(Kind::TrainingRuntime, "", &mut sheet).await?);
    let row = |runtime: &Value| {
        let (namespace, name) = (read::meta(runtime, "namespace"), read::meta(runtime, "name"));
        let within = if namespace.is_empty() { NO_NAMESPACE } else { namespace };
        vec![
            Cell::link(address(&["runtimes", within, name]), name),
            Cell::text(framework(runtime)),
            Cell::number(f64::from(i32::try_from(nodes(runtime)).unwrap_or(i32::MAX)), nodes(runtime).to_string()),
            Cell::text(if namespace.is_empty() {
                "all namespaces".to_owned()
            } else {
                format!("namespace {namespace}")
            }),
            Cell::text(images(runtime)),
            Cell::text(if is_deprecated(runtime) { "deprecated" } else { "" }),
        ]
    };
    let headings = ["Name", "Framework", "Nodes", "Available in", "Images", "Note"];
    sheet.parts.push(main_table(&headings, all.iter().map(row).collect(), "There are no runtimes.", ""));
    Ok(sheet)
}

pub(super) async fn one(reader: &Reader<'_>, namespace: &str, name: &str) -> Result<Sheet, Problem> {
    let is_shared = namespace == NO_NAMESPACE;
    let kind = if is_shared { Kind::ClusterTrainingRuntime } else { Kind::TrainingRuntime };
    let runtime = object(&reader.within(namespace), kind, name).await?;
    let jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"].as_array().into_iter().flatten();
    let steps: Vec<&str> = jobs.map(|job| read::text(job, "name")).collect();
    let policy = runtime["spec"]["mlPolicy"].as_object().into_iter().flatten();
    let policy: Vec<&str> = policy.map(|(name, _)| name.as_str()).filter(|name| *name != "numNodes").collect();
    let flags = &reader.cluster().flags;
    let namespace_flag = if is_shared { String::new() } else { format!(" -n {namespace}") };
    Ok(Sheet {
        title: name.to_owned(),
        subtitle: match is_shared {
            true => "Runtime for all namespaces".to_owned(),
            false => format!("Runtime in namespace {namespace}"),
        },
        state: is_deprecated(&runtime).then(|| Cell::state("deprecated", "restarting")),
        parts: vec![
            facts(
                "Overview",
                vec![
                    ("Framework", Cell::text(framework(&runtime))),
                    ("Nodes", Cell::text(nodes(&runtime).to_string())),
                    ("Policy", Cell::text(policy.join(", "))),
                    ("Steps", Cell::text(steps.join(", "))),
                    ("Images", Cell::text(images(&runtime))),
                    ("Created", Cell::time(read::meta(&runtime, "creationTimestamp"))),
                ],
            ),
            Part::Commands {
                title: "Commands".to_owned(),
                commands: vec![Command {
                    title: "Run a script with it",
                    command: format!("trainyard run --runtime {name}{namespace_flag}{flags} train.py"),
                }],
            },
            yaml(runtime.clone()),
        ],
        ..Sheet::default()
    })
}
