//! The history of reports on a cluster, where there is no disk: a ConfigMap beside each TrainJob that reports
//! ([`api::history::config_map`]), owned by it. Each replica puts in what it took: once a minute, at the job's end, and when the
//! replica stops.

use crate::cluster::leader::form;
use api::history::{REPORTS, config_map};
use api::object::{self, Key};
use api::time::after;
use api::trainer::{API_VERSION, TrainerStatus};
use http::{HeaderValue, Method, Request, header};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long reports wait to be put in together. A replica that is killed loses those that wait.
const PERIOD: Duration = Duration::from_secs(60);
/// After a write that failed, or that another replica's came before.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes that the history of a job may have; beyond it every other report is left out, so that it keeps its whole course.
const HISTORY_MAX: usize = 128 << 10;
/// How long what waits may take to be written once the replica stops.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// What one job has reported and is not in its ConfigMap yet.
struct Waiting {
    uid: String,
    /// JSON lines, at most [`HISTORY_MAX`] bytes of them.
    lines: Vec<String>,
    due: Instant,
}

/// See the module.
pub(super) struct Kept {
    client: Client,
    waiting: Mutex<BTreeMap<Key, Waiting>>,
    changed: Notify,
}

/// Why a history was not written.
enum Failed {
    /// Somebody else wrote at the same time, or the ConfigMap of an earlier TrainJob of that name is still there.
    Again,
    /// It will not get better by itself.
    Refused(kube::Error),
}

impl Kept {
    pub(super) fn new(client: Client) -> Self {
        Self { client, waiting: Mutex::default(), changed: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Key, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a report, to be written with the others of the next minute.
    pub(super) fn add(&self, key: &Key, uid: &str, status: &TrainerStatus) {
        let Ok(line) = serde_json::to_string(status) else { return };
        {
            let mut waiting = self.waiting();
            let fresh = || Waiting { uid: uid.to_owned(), lines: Vec::new(), due: after(Instant::now(), PERIOD) };
            let held = waiting.entry(key.clone()).or_insert_with(fresh);
            if held.uid != uid {
                *held = fresh();
            }
            held.lines.push(line);
            thin(&mut held.lines);
        }
        self.changed.notify_one();
    }

    /// The job, or a pod of it, has ended: what waits of it is written now.
    pub(super) fn hurry(&self, key: &Key) {
        if let Some(held) = self.waiting().get_mut(key) {
            held.due = Instant::now();
        }
        self.changed.notify_one();
    }

    /// The job is gone, and the ConfigMap with it.
    pub(super) fn forget(&self, key: &Key) {
        self.waiting().remove(key);
    }

    /// Writes until `stop`, one job at a time, so that many jobs make histories later and not more requests; then what is left.
    pub(super) async fn run(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let next =
                self.waiting().iter().min_by_key(|(_, held)| held.due).map(|(key, held)| (key.clone(), held.due));
            let due = async {
                match &next {
                    Some((_, due)) => tokio::time::sleep_until(*due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => if let Some((key, _)) = &next {
                    self.write(key).await;
                },
                () = self.changed.notified() => {}
                () = stop.cancelled() => {}
            }
        }
        let keys: Vec<Key> = self.waiting().keys().cloned().collect();
        let flush = async {
            for key in &keys {
                self.write(key).await;
            }
        };
        if tokio::time::timeout(FLUSH_MAX, flush).await.is_err() {
            let jobs: Vec<String> = self.waiting().keys().take(3).map(Key::to_string).collect();
            tracing::warn!(
                job = jobs.join(", "),
                "the last minute's reports are not in the histories of these jobs and others"
            );
        }
    }

    /// Puts what waits of a job into its ConfigMap; puts it back where that fails for now.
    async fn write(&self, key: &Key) {
        let Some(held) = self.waiting().remove(key) else { return };
        match self.put(key, &held).await {
            Ok(()) => {}
            Err(Failed::Again) => {
                let mut waiting = self.waiting();
                let now = waiting.entry(key.clone()).or_insert_with(|| Waiting {
                    uid: held.uid.clone(),
                    lines: Vec::new(),
                    due: after(Instant::now(), RETRY),
                });
                if now.uid == held.uid {
                    now.lines.splice(0..0, held.lines);
                    thin(&mut now.lines);
                }
            }
            Err(Failed::Refused(error)) => {
                tracing::warn!(%error, job = %key, "reports are missing in the history: ConfigMap {} cannot be written", config_map(&key.name));
            }
        }
    }

    async fn put(&self, key: &Key, held: &Waiting) -> Result<(), Failed> {
        let collection = format!("/api/v1/namespaces/{}/configmaps", key.namespace);
        let path = format!("{collection}/{}", config_map(&key.name));
        let found = match self.client.request::<Value>(form(Method::GET, &path, None)).await {
            Ok(found) => Some(found),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => return Err(outcome(error)),
        };
        let request = match &found {
            None => form(Method::POST, &collection, Some(&object(key, &held.uid, &held.lines))),
            Some(found) if !is_of(found, &held.uid) => return Err(Failed::Again),
            Some(found) => patch(&path, found, &held.lines),
        };
        self.client.request::<Value>(request).await.map(|_| ()).map_err(outcome)
    }
}

fn outcome(error: kube::Error) -> Failed {
    match &error {
        // a namespace that is being deleted says 403 to creations, and takes the job along
        kube::Error::Api(status) if !matches!(status.code, 409 | 429 | 500..) => Failed::Refused(error),
        _ => Failed::Again,
    }
}

fn is_of(config_map: &Value, uid: &str) -> bool {
    let owners = config_map["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| object::text(owner, "uid") == uid)
}

fn object(key: &Key, uid: &str, lines: &[String]) -> Value {
    // no controller: nothing is decided by it, and nobody need look at the job because of it
    let owner = json!({"apiVersion": API_VERSION, "kind": "TrainJob", "name": key.name, "uid": uid});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {REPORTS: text(merged("", lines))},
        "metadata": {"name": config_map(&key.name), "namespace": key.namespace, "ownerReferences": [owner]}})
}

fn patch(path: &str, held: &Value, lines: &[String]) -> Request<Vec<u8>> {
    let reports = text(merged(held["data"][REPORTS].as_str().unwrap_or_default(), lines));
    let body = json!({"metadata": {"resourceVersion": object::resource_version(held)}, "data": {REPORTS: reports}});
    let mut request = form(Method::PATCH, path, Some(&body));
    let merge = HeaderValue::from_static("application/merge-patch+json");
    request.headers_mut().insert(header::CONTENT_TYPE, merge);
    request
}

/// What is there and what is new, in the order of time (replicas take turns), each once, within bounds.
fn merged(held: &str, new: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = held.lines().chain(new.iter().map(String::as_str)).map(str::to_owned).collect();
    lines.sort_by_cached_key(|line| at(line));
    lines.dedup();
    thin(&mut lines);
    lines
}

fn at(line: &str) -> Option<Timestamp> {
    let report: Value = serde_json::from_str(line).ok()?;
    object::text(&report, "lastUpdatedTime").parse().ok()
}

fn text(lines: Vec<String>) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

/// Leaves out every other line but the last, until all fit.
fn thin(lines: &mut Vec<String>) {
    let size = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    while size(lines) > HISTORY_MAX && lines.len() > 1 {
        let last = lines.len() - 1;
        let mut at = 0;
        lines.retain(|_| {
            at += 1;
            // counted from the end, so that the last stays
            (last + 1 - at).is_multiple_of(2)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(second: usize) -> String {
        let (minute, second) = (second / 60, second % 60);
        json!({"lastUpdatedTime": format!("2026-01-01T{:02}:{:02}:{second:02}Z", minute / 60, minute % 60), "progressPercentage": 1})
            .to_string()
    }

    #[test]
    fn what_two_replicas_took_is_one_course() {
        let held = text(vec![report(1), report(3)]);
        let new = [report(4), report(2), report(3)];
        assert_eq!(merged(&held, &new), [report(1), report(2), report(3), report(4)]);
        assert_eq!(merged("", &[report(1)]), [report(1)]);
    }

    #[test]
    fn a_long_course_is_kept_whole_and_small() {
        let lines: Vec<String> = (0..10_000).map(report).collect();
        let kept = merged("", &lines);
        assert!(text(kept.clone()).len() <= HISTORY_MAX && kept.len() > 500, "{}", kept.len());
        assert_eq!(kept.last(), lines.last());
        assert!(kept[0] < report(100), "it begins where the job began");
        let again = merged(&text(kept.clone()), &[report(10_001)]);
        assert_eq!(again.last(), Some(&report(10_001)));
    }

    #[test]
    fn a_config_map_is_its_trainjobs_and_no_other() {
        let key = Key::new("ns", "train");
        let made = object(&key, "uid-1", &[report(1)]);
        assert!(is_of(&made, "uid-1") && !is_of(&made, "uid-2"));
        assert_eq!(made["metadata"]["name"], "train.progress");
        assert!(object::controller_of(&made).is_none(), "it wakes nobody");
        let mut held = made;
        held["metadata"]["resourceVersion"] = json!("5");
        let patch: Value = serde_json::from_slice(patch("/x", &held, &[report(2)]).body()).expect("JSON");
        assert_eq!(patch["metadata"]["resourceVersion"], "5");
        assert_eq!(patch["data"][REPORTS].as_str().map(|text| text.lines().count()), Some(2));
    }
}
