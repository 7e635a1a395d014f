//! Downloads of initializers. The progress of each is read from the last lines of its log.

use super::Reader;
use crate::problem::Problem;
use crate::sheet::{Cell, Sheet, main_table};
use api::jobset::keys::REPLICATED_JOB_NAME;
use api::object;
use client::Kind;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;
use std::time::Duration;
use view::downloads::{News, is_initializer, news};
use view::job::job_of;
use view::state::step;

/// Logs that are read at the same time.
const AT_ONCE: usize = 8;
/// Logs that are read for one page.
const READ_MAX: usize = 50;
/// Lines at the end of a log among which the newest progress is.
const LINES: i64 = 50;
/// How long a log may take to be read.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The variable in which an initializer gets its source.
const SOURCE: &str = "STORAGE_URI";

/// Where it downloads from.
fn source(pod: &Value) -> String {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut variables = containers.flat_map(|one| one["env"].as_array().into_iter().flatten());
    let found = variables.find(|variable| variable["name"] == SOURCE);
    // user, password and query may be secrets
    let text = found.map(|variable| object::text(variable, "value")).unwrap_or_default();
    match text.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        None => text.to_owned(),
    }
}

fn row(reader: &Reader<'_>, pod: &Value, log: &str) -> Vec<Cell> {
    let namespace = object::meta(pod, "namespace");
    let (step, job) = (step(pod), job_of(pod).unwrap_or_default());
    let newest = log.lines().rev().find_map(|line| news(&step, line));
    let phase = object::text(&pod["status"], "phase");
    let (state, group) = match (phase, &newest) {
        ("Succeeded", _) | (_, Some(News::Done)) => ("Complete", "complete"),
        ("Failed", _) => ("Failed", "failed"),
        ("Running", _) => ("Running", "running"),
        _ => ("Pending", "pending"),
    };
    let (bar, rate, left) = match &newest {
        Some(News::Progress(download)) => (
            Cell::Bar { percent: i64::try_from(download.percent()).unwrap_or(100), text: download.part().to_owned() },
            download.rate(),
            download.left().unwrap_or_default(),
        ),
        _ => (Cell::text(""), "", ""),
    };
    vec![
        Cell::link(reader.job(namespace, &job), &job),
        Cell::text(namespace),
        Cell::text(step.trim_end_matches("-initializer")),
        Cell::text(source(pod)),
        Cell::state(state, group),
        bar,
        Cell::text(if state == "Running" { rate } else { "" }),
        Cell::text(if state == "Running" { left } else { "" }),
        Cell::time(object::text(&pod["status"], "startTime")),
    ]
}

/// The last lines of a pod's log; none if they cannot be read now.
async fn end_of_log(client: kube::Client, namespace: String, pod: String) -> String {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let parameters = LogParams { tail_lines: Some(LINES), ..LogParams::default() };
    let bytes = tokio::time::timeout(WAIT_MAX, facts::whole(&api, &pod, &parameters)).await;
    String::from_utf8_lossy(&bytes.ok().and_then(Result::ok).unwrap_or_default()).into_owned()
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Downloads".to_owned(), ..Sheet::default() };
    let labels = format!("{REPLICATED_JOB_NAME} in (dataset-initializer,model-initializer)");
    let mut pods = reader.objects(Kind::Pod, &labels, &mut sheet).await?;
    pods.retain(|pod| is_initializer(&step(pod)));
    // those that go on come first, then the latest
    pods.sort_by_key(|pod| {
        (object::has_ended(pod), std::cmp::Reverse(object::meta(pod, "creationTimestamp").to_owned()))
    });
    let meta = |pod: &Value, member: &str| object::meta(pod, member).to_owned();
    let names: Vec<(String, String)> =
        pods.iter().take(READ_MAX).map(|pod| (meta(pod, "namespace"), meta(pod, "name"))).collect();
    let logs = names.into_iter().map(|(namespace, name)| end_of_log(reader.cluster().client.clone(), namespace, name));
    let logs: Vec<String> = futures::stream::iter(logs).buffered(AT_ONCE).collect().await;
    let rows = pods.iter().enumerate().map(|(at, pod)| row(reader, pod, logs.get(at).map_or("", String::as_str)));
    let headings = ["Job", "Namespace", "Data", "Source", "State", "Progress", "Rate", "Time left", "Started"];
    let empty = "No job downloads a model or a dataset. A job downloads them if its spec has an initializer.";
    sheet.parts.push(main_table(&headings, rows.collect(), empty, ""));
    Ok(sheet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_source_is_shown_without_its_password() {
        for (uri, wanted) in [
            ("hf://org/model", "hf://org/model"),
            ("https://ann:secret@host/a/b?token=x", "https://host/a/b"),
            ("/data", "/data"),
            ("s3://bucket", "s3://bucket/"),
        ] {
            let env = json!([{"name": "OTHER", "value": "x"}, {"name": "STORAGE_URI", "value": uri}]);
            assert_eq!(source(&json!({"spec": {"containers": [{"env": env}]}})), wanted);
        }
    }
}
