//! Watches TrainJobs and the ends of their pods for the status server.

use super::reports::Reports;
use api::object::{self, Key};
use api::trainer::{GROUP, VERSION};
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// The label of a JobSet's pods; a TrainJob's JobSet has the TrainJob's name.
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// Pods that have ended.
const ENDED: &str = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";

/// Follows TrainJobs and their pods (of one namespace, where one is named) until `stop`. What fails is tried again, with pauses
/// up to half a minute.
pub(super) async fn follow(client: Client, namespace: Option<String>, reports: &Reports, stop: CancellationToken) {
    let all = |kind: &ApiResource| match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, kind),
        None => Api::all_with(client.clone(), kind),
    };
    let kind = |group, version, kind, plural| {
        all(&ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
    };
    let (trainjobs, all_pods) = (kind(GROUP, VERSION, "TrainJob", "trainjobs"), kind("", "v1", "Pod", "pods"));
    tokio::select! {
        () = async { tokio::join!(jobs(trainjobs, reports), pods(all_pods, reports)); } => {}
        () = stop.cancelled() => {}
    }
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("invariant: objects from the API are JSON")
}

async fn jobs(api: Api<DynamicObject>, reports: &Reports) {
    let mut changes = watcher(api, watcher::Config::default()).default_backoff().boxed();
    // What has a history before a list began, and is not in the list, is gone.
    let mut files = Vec::new();
    let mut listed: BTreeMap<Key, String> = BTreeMap::new();
    let mut statuses = Some(Vec::new());
    while let Some(change) = changes.next().await {
        use watcher::Event;
        match change {
            Ok(Event::Init) => {
                listed.clear();
                files = reports.recorded().await;
                if let Some(statuses) = &mut statuses {
                    statuses.clear();
                }
            }
            Ok(Event::InitApply(job)) => {
                let mut job = json(&job);
                reports.observe(&job);
                let (key, uid) = (Key::of(&job), object::uid(&job).to_owned());
                if let Some(statuses) = &mut statuses {
                    statuses.push((key.clone(), uid.clone(), job["status"]["trainerStatus"].take()));
                }
                listed.insert(key, uid);
            }
            Ok(Event::InitDone) => {
                reports.retain(&listed, std::mem::take(&mut files)).await;
                if let Some(statuses) = statuses.take() {
                    reports.recover(statuses).await;
                }
            }
            Ok(Event::Apply(job)) => reports.observe(&json(&job)),
            Ok(Event::Delete(job)) => {
                let job = json(&job);
                reports.forget(&Key::of(&job), object::uid(&job)).await;
            }
            Err(error) => tracing::debug!(%error, "TrainJobs cannot be watched; trying again"),
        }
    }
}

/// A job whose pod has ended may end itself a moment later, and a client that waits for its end reads the last report then.
async fn pods(api: Api<DynamicObject>, reports: &Reports) {
    let config = watcher::Config::default().labels(JOBSET_NAME).fields(ENDED);
    let mut changes = watcher(api, config).default_backoff().boxed();
    while let Some(change) = changes.next().await {
        match change {
            Ok(watcher::Event::Apply(pod)) => {
                let meta = &pod.metadata;
                let job = meta.labels.as_ref().and_then(|labels| labels.get(JOBSET_NAME));
                if let (Some(namespace), Some(job)) = (&meta.namespace, job) {
                    reports.hurry(&Key::new(namespace, job));
                }
            }
            Ok(_) => {}
            // without the right to watch pods, a job's last report is written when the job has ended
            Err(error) => tracing::debug!(%error, "pods cannot be watched; trying again"),
        }
    }
}
