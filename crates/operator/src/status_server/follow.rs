//! Watches TrainJobs and the ends of their pods for the status server.

use super::printed::Printed;
use super::reports::Reports;
use api::object::{self, Gvk, Key};
use api::trainer::{GROUP, VERSION};
use driver::Feed;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::runtime::watcher::{Config, Event};
use objects::take;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The label of a JobSet's pods; a TrainJob's JobSet has the TrainJob's name.
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// The phases of pods that have ended, and the same as a field selector.
const ENDED: [&str; 2] = ["Succeeded", "Failed"];
const ENDED_PODS: &str = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";

/// Follows TrainJobs and their pods until `stop`.
pub(super) async fn follow(feed: &Feed, reports: &Reports, printed: &Printed, stop: CancellationToken) {
    let trainjobs = feed.parts(&Gvk::new(GROUP, VERSION, "TrainJob"), "trainjobs", Config::default(), take::state);
    // without the right to watch pods, a job's last report is written when the job has ended
    let all_pods =
        feed.news(&Gvk::new("", "v1", "Pod"), "pods", Config::default().labels(JOBSET_NAME).fields(ENDED_PODS));
    tokio::select! {
        () = async { tokio::join!(jobs(trainjobs, reports, printed), pods(all_pods, reports)); } => {}
        () = stop.cancelled() => {}
    }
}

async fn jobs(mut changes: BoxStream<'static, Event<Arc<Value>>>, reports: &Reports, printed: &Printed) {
    // What has a history before a list began, and is not in the list, is gone.
    let mut files = Vec::new();
    let mut listed: BTreeMap<Key, String> = BTreeMap::new();
    let mut statuses = Some(Vec::new());
    while let Some(change) = changes.next().await {
        match change {
            Event::Init => {
                listed.clear();
                files = reports.recorded().await;
                if let Some(statuses) = &mut statuses {
                    statuses.clear();
                }
            }
            Event::InitApply(job) => {
                reports.observe(&job);
                printed.observe(&job);
                let (key, uid) = (Key::of(&job), object::uid(&job).to_owned());
                if let Some(statuses) = &mut statuses {
                    statuses.push((key.clone(), uid.clone(), job["status"]["trainerStatus"].clone()));
                }
                listed.insert(key, uid);
            }
            Event::InitDone => {
                reports.retain(&listed, std::mem::take(&mut files)).await;
                printed.retain(&listed.values().map(String::as_str).collect());
                if let Some(statuses) = statuses.take() {
                    reports.recover(statuses).await;
                }
            }
            Event::Apply(job) => {
                reports.observe(&job);
                printed.observe(&job);
            }
            Event::Delete(job) => {
                printed.forget(object::uid(&job));
                reports.forget(&Key::of(&job), object::uid(&job)).await;
            }
        }
    }
}

/// A job whose pod has ended may end itself a moment later, and a client that waits for its end reads the last report then.
async fn pods(mut changes: BoxStream<'static, Event<Arc<Value>>>, reports: &Reports) {
    while let Some(change) = changes.next().await {
        if let Event::Apply(pod) = change
            && ENDED.contains(&object::text(&pod["status"], "phase"))
        {
            let job = object::text(&pod["metadata"]["labels"], JOBSET_NAME);
            if !job.is_empty() {
                reports.hurry(&Key::new(object::meta(&pod, "namespace"), job));
            }
        }
    }
}
