//! What a job's training loop has reported over time.

use api::history;
use api::object;
use client::{ClientError, Cluster, Kind};
use jiff::Timestamp;
use serde_json::Value;

/// All reports of a job, oldest first. Where no history is kept, or it may not be read, the one in the job's status;
/// `tell` gets the reason.
pub async fn all(
    cluster: &Cluster,
    job: &Value,
    name: &str,
    tell: impl FnOnce(&str),
) -> Result<Vec<Value>, ClientError> {
    let path = history::path(object::meta(job, "namespace"), name);
    let request = http::Request::get(path).body(Vec::new()).expect("names of objects fit into a path");
    let why = match cluster.client.request::<Value>(request).await {
        Ok(mut history) => match history["reports"].take() {
            Value::Array(reports) => return Ok(reports),
            _ => "its history cannot be read".to_owned(),
        },
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => match kept(cluster, job, name).await {
            Ok(reports) if !reports.is_empty() => return Ok(reports),
            Ok(_) if status.code == 403 => format!("its history may not be read: {}", status.message),
            Ok(_) => "this cluster keeps no history of reports".to_owned(),
            Err(error) => format!("its history cannot be read: {error}"),
        },
        Err(error) => return Err(error.into()),
    };
    match &job["status"]["trainerStatus"] {
        Value::Null => Ok(Vec::new()),
        last => {
            tell(&format!("only the last report of TrainJob \"{name}\" is known: {why}"));
            Ok(vec![last.clone()])
        }
    }
}

/// The reports of a job that are kept, oldest first; empty where none are, or they may not be read.
pub async fn kept_reports(cluster: &Cluster, job: &Value) -> Vec<Value> {
    let name = object::meta(job, "name");
    let path = history::path(object::meta(job, "namespace"), name);
    let Ok(request) = http::Request::get(path).body(Vec::new()) else { return Vec::new() };
    match cluster.client.request::<Value>(request).await {
        Ok(mut history) => match history["reports"].take() {
            Value::Array(reports) => reports,
            _ => Vec::new(),
        },
        Err(_) => kept(cluster, job, name).await.unwrap_or_default(),
    }
}

/// What a cluster's operator keeps of a job's reports, with the last one, which is in the status before.
async fn kept(cluster: &Cluster, job: &Value, name: &str) -> Result<Vec<Value>, ClientError> {
    let Some(map) = cluster.find(Kind::ConfigMap, &history::config_map(name)).await? else { return Ok(Vec::new()) };
    Ok(course(&map, job))
}

fn course(map: &Value, job: &Value) -> Vec<Value> {
    let owners = map["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    if !owners.into_iter().any(|owner| object::text(owner, "uid") == object::uid(job)) {
        return Vec::new();
    }
    let lines = map["data"][history::REPORTS].as_str().unwrap_or_default().lines();
    let mut reports: Vec<Value> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    let time = |report: &Value| object::text(report, "lastUpdatedTime").parse::<Timestamp>().ok();
    let last = &job["status"]["trainerStatus"];
    if last.is_object() && reports.last().is_none_or(|newest| time(newest) < time(last)) {
        reports.push(last.clone());
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clusters_history_goes_on_with_the_status() {
        let report = |second: u32| serde_json::json!({"lastUpdatedTime": format!("2026-01-01T00:00:0{second}Z"), "progressPercentage": second});
        let lines = format!("{}\n{}\n", report(1), report(2));
        let map =
            serde_json::json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "data": {"reports.jsonl": lines}});
        let job = |uid: &str, last: u32| serde_json::json!({"metadata": {"uid": uid}, "status": {"trainerStatus": report(last)}});
        assert_eq!(course(&map, &job("u", 3)), [report(1), report(2), report(3)]);
        assert_eq!(course(&map, &job("u", 2)), [report(1), report(2)]);
        assert!(course(&map, &job("other", 3)).is_empty(), "of an earlier job of that name");
    }
}
