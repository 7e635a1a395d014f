//! Reads metrics out of the output of jobs that print them instead of reporting them.
//!
//! Which jobs: TrainJobs with the annotation `trainyard.dev/metrics`, and trials of a search, for its objectives. What rank 0's pod
//! prints goes the same way as a report (`Reports::take_printed`), at most once a second, with the time of the line. After a restart
//! of this program, reading goes on behind the millisecond of the last report, where a history knows it; elsewhere at its second.

use super::reports::Reports;
use api::jobset::keys;
use api::object::{self, Key};
use api::trainer::annotations::METRICS;
use api::trainer::printed::{Patterns, plain};
use api::trainer::{API_VERSION, Metric};
use futures::StreamExt;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use http::Request;
use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use plan::optimization::template::LABEL_PARENT;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How many jobs are read at a time. The others are read when one of these has ended.
const JOBS_MAX: usize = 512;
/// Bytes of a line that are read; the rest of it is passed over.
const LINE_MAX: usize = 16 * 1024;
/// What was printed is reported after this long without another line.
const QUIET: Duration = Duration::from_millis(500);
/// Between two tries to read a log, and to hand in a report.
const RETRY: Duration = Duration::from_secs(1);
const TRIES_MAX: u32 = 10;
/// A job that ended this long before this program started is not read again.
const ENDED_MAX: i64 = 600;
/// How long the logs of an ended job may take to come to their end.
const LAST: Duration = Duration::from_secs(60);
/// Replicated jobs of which no pod trains.
const INITIALIZER: &str = "-initializer";

/// The jobs that are read.
pub(super) struct Printed {
    client: Client,
    reports: Arc<Reports>,
    places: Arc<Semaphore>,
    /// By uid.
    jobs: Mutex<BTreeMap<String, Reading>>,
}

/// A job that is read: told when it has ended, and stopped when it is gone.
struct Reading {
    ended: watch::Sender<bool>,
    stop: CancellationToken,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Printed {
    pub fn new(client: Client, reports: Arc<Reports>) -> Self {
        Self { client, reports, places: Arc::new(Semaphore::new(JOBS_MAX)), jobs: Mutex::default() }
    }

    /// A TrainJob is there, or has changed.
    pub fn observe(&self, job: &Value) {
        let ended = ended(job);
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = jobs.get(object::uid(job)) {
            reading.ended.send_if_modified(|known| !std::mem::replace(known, ended.is_some()) && ended.is_some());
            return;
        }
        let search = object::label(job, LABEL_PARENT);
        let patterns = object::annotation(job, METRICS).and_then(|text| Patterns::parse(text).ok());
        if search.is_none() && patterns.is_none() {
            return;
        }
        let now = Timestamp::now().as_second();
        if ended.is_some_and(|at| now.saturating_sub(at.as_second()) > ENDED_MAX) {
            return;
        }
        let (sender, receiver) = watch::channel(ended.is_some());
        let stop = CancellationToken::new();
        jobs.insert(object::uid(job).to_owned(), Reading { ended: sender, stop: stop.clone() });
        let task = Task {
            client: self.client.clone(),
            reports: self.reports.clone(),
            key: Key::of(job),
            uid: object::uid(job).to_owned(),
            patterns: Arc::new(patterns.unwrap_or_default()),
        };
        let (search, status) = (search.map(str::to_owned), job["status"]["trainerStatus"].clone());
        let places = self.places.clone();
        tokio::spawn(async move {
            let reading = async {
                let _place = places.acquire_owned().await;
                task.run(search, &status, receiver).await;
            };
            tokio::select! {
                () = reading => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// A TrainJob is gone.
    pub fn forget(&self, uid: &str) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// These are all TrainJobs that there are.
    pub fn retain(&self, uids: &BTreeSet<&str>) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| uids.contains(uid.as_str()));
    }
}

/// When a job ended.
pub(super) fn ended(job: &Value) -> Option<Timestamp> {
    let mut conditions = job["status"]["conditions"].as_array()?.iter();
    let end = conditions.find(|condition| {
        matches!(object::text(condition, "type"), "Complete" | "Failed") && condition["status"] == "True"
    })?;
    Some(object::text(end, "lastTransitionTime").parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The reading of one job.
#[derive(Clone)]
struct Task {
    client: Client,
    reports: Arc<Reports>,
    key: Key,
    uid: String,
    patterns: Arc<Patterns>,
}

impl Task {
    /// Reads all pods of rank 0, one after the other as they come, until the job has ended and their logs have, too.
    async fn run(mut self, search: Option<String>, status: &Value, mut ended: watch::Receiver<bool>) {
        if let Some(search) = search {
            let objectives = self.objectives(&search).await;
            let own = self.patterns.as_ref().clone();
            self.patterns = Arc::new(own.and(Patterns::of_names(objectives.iter().map(String::as_str))));
        }
        if self.patterns.is_empty() {
            return;
        }
        let names: BTreeSet<&str> = self.patterns.names().collect();
        let mut since = self.reports.prints(&self.key, &names, status);
        if since.is_some() {
            since = since.max(self.reports.last_in_history(&self.key, &self.uid).await.map(millisecond));
        }
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Pod"), "pods");
        let pods: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.key.namespace, &kind);
        let which = format!("{}={},{}=0", keys::JOBSET_NAME, self.key.name, keys::JOB_INDEX);
        let mut changes = pin!(watcher(pods, Config::default().labels(&which)).default_backoff());
        let mut known: BTreeMap<String, watch::Sender<bool>> = BTreeMap::new();
        let mut logs = JoinSet::new();
        let mut last = None;
        loop {
            let is_last = async {
                match last {
                    Some(last) => tokio::time::sleep_until(last).await,
                    None => std::future::pending().await,
                }
            };
            let change = tokio::select! {
                change = changes.next() => change,
                _ = logs.join_next(), if !logs.is_empty() => {
                    if last.is_some() && logs.is_empty() {
                        return;
                    }
                    continue;
                }
                changed = ended.wait_for(|ended| *ended), if last.is_none() => {
                    if changed.is_err() {
                        return;
                    }
                    // a pod that nobody has seen yet may be told of in the next moment
                    let wait = if logs.is_empty() { RETRY } else { LAST };
                    last = tokio::time::Instant::now().checked_add(wait);
                    continue;
                }
                () = is_last => return,
            };
            let pod = match change {
                Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => pod,
                Some(Ok(Event::Delete(pod))) => {
                    if let Some(over) = known.get(pod.metadata.uid.as_deref().unwrap_or_default()) {
                        over.send_replace(true);
                    }
                    continue;
                }
                Some(_) => continue,
                None => return,
            };
            let Ok(pod) = serde_json::to_value(pod) else { continue };
            let (uid, over) = (object::uid(&pod).to_owned(), object::has_ended(&pod));
            if let Some(known) = known.get(&uid) {
                known.send_replace(over);
            } else if let Some(container) = container(&pod) {
                let (sender, receiver) = watch::channel(over);
                known.insert(uid, sender);
                let log =
                    Log { task: self.clone(), pod: object::meta(&pod, "name").to_owned(), container, last: since };
                logs.spawn(log.read(receiver));
            }
        }
    }

    /// The metrics that a search looks for.
    async fn objectives(&self, search: &str) -> Vec<String> {
        // a list, as the operator may list them and not get one
        let path = format!(
            "/apis/{API_VERSION}/namespaces/{}/optimizationjobs?fieldSelector=metadata.name%3D{search}",
            self.key.namespace
        );
        for _ in 0..TRIES_MAX {
            let request = Request::get(&path).body(Vec::new()).expect("invariant: names of objects make a path");
            match self.client.request::<Value>(request).await {
                Ok(found) => {
                    let objectives = found["items"][0]["spec"]["objectives"].as_array().cloned().unwrap_or_default();
                    return objectives.iter().map(|objective| object::text(objective, "metric").to_owned()).collect();
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => break,
                Err(error) => tracing::warn!(%error, job = %self.key, search, "the search of a trial cannot be read"),
            }
            tokio::time::sleep(RETRY).await;
        }
        Vec::new()
    }
}

/// The container of a pod whose output is rank 0's, once it has started.
fn container(pod: &Value) -> Option<String> {
    let of = object::label(pod, keys::REPLICATED_JOB_NAME)?;
    let index = object::annotation(pod, keys::COMPLETION_INDEX).unwrap_or("0");
    if of.ends_with(INITIALIZER) || index != "0" {
        return None;
    }
    let containers = pod["spec"]["containers"].as_array()?;
    let chosen = containers.iter().find(|container| container["name"] == of).or(containers.first())?;
    let name = object::text(chosen, "name");
    let mut states = pod["status"]["containerStatuses"].as_array()?.iter();
    let state = &states.find(|status| status["name"] == name)?["state"];
    let started = ["running", "terminated"].iter().any(|phase| !state[phase].is_null());
    started.then(|| name.to_owned())
}

/// The log of one container.
struct Log {
    task: Task,
    pod: String,
    container: String,
    /// Lines up to this millisecond have been reported.
    last: Option<Timestamp>,
}

impl Log {
    /// Reads to the end of the pod. A stream that ends while the pod runs is opened again where it ended.
    async fn read(mut self, mut over: watch::Receiver<bool>) {
        let mut failures = 0;
        while failures < TRIES_MAX {
            let was_over = *over.borrow_and_update();
            match self.stream().await {
                Ok(()) => failures = 0,
                Err(kube::Error::Api(status)) if status.code == 404 => return,
                Err(error) => {
                    failures += 1;
                    tracing::debug!(%error, job = %self.task.key, pod = self.pod, "the output of a job cannot be read; trying again");
                }
            }
            if was_over && failures == 0 {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                changed = over.changed() => if changed.is_err() { return },
            }
        }
        let (job, pod) = (&self.task.key, &self.pod);
        tracing::warn!(%job, pod, "the output of a job cannot be read; its metrics are missing");
    }

    async fn stream(&mut self) -> Result<(), kube::Error> {
        let since = match self.last {
            // whole seconds: what is read twice is passed over
            Some(at) => format!("&sinceTime={}", Timestamp::from_second(at.as_second()).unwrap_or(at)),
            None => String::new(),
        };
        let (namespace, pod, container) = (&self.task.key.namespace, &self.pod, &self.container);
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&follow=true&timestamps=true{since}"
        );
        let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let client = self.task.client.clone();
        let stream = pin!(client.request_stream(request).await?);
        self.lines(stream).await.map_err(kube::Error::ReadEvents)
    }

    async fn lines(&mut self, stream: impl AsyncBufRead + Unpin) -> io::Result<()> {
        let patterns = self.task.patterns.clone();
        let mut lines = Lines { stream, line: Vec::new() };
        let mut pending: Pending = None;
        loop {
            let line = match tokio::time::timeout(QUIET, lines.next()).await {
                Ok(Ok(Some(line))) => line,
                Ok(end) => {
                    self.report(pending.take()).await;
                    return end.map(|_| ());
                }
                Err(_) => {
                    self.report(pending.take()).await;
                    continue;
                }
            };
            let text = String::from_utf8_lossy(&line);
            let Some((stamp, text)) = text.split_once(' ') else { continue };
            let Ok(at) = stamp.parse::<Timestamp>().map(millisecond) else { continue };
            if self.last.is_some_and(|last| at <= last) {
                continue;
            }
            let text = plain(text);
            let found = patterns.read(&text);
            if found.is_empty() {
                continue;
            }
            if pending.as_ref().is_some_and(|(known, _)| known.as_second() != at.as_second()) {
                self.report(pending.take()).await;
            }
            let (last, values) = pending.get_or_insert_with(|| (at, BTreeMap::new()));
            *last = at;
            values.extend(found.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
    }

    async fn report(&mut self, pending: Pending) {
        let Some((at, values)) = pending else { return };
        let values: Vec<Metric> = values.into_iter().map(|(name, value)| Metric { name, value }).collect();
        for _ in 0..TRIES_MAX {
            if self.task.reports.take_printed(&self.task.key, &values, at).await {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        self.last = Some(at);
    }
}

/// What was printed in a second and is not yet reported, with the time of the last of it.
type Pending = Option<(Timestamp, BTreeMap<String, String>)>;

/// The whole millisecond of a time: histories have no finer ones.
fn millisecond(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// Lines of a stream, each cut at [`LINE_MAX`]. `next` may be dropped and called again.
struct Lines<S> {
    stream: S,
    line: Vec<u8>,
}

impl<S: AsyncBufRead + Unpin> Lines<S> {
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let bytes = self.stream.fill_buf().await?;
            if bytes.is_empty() {
                let rest = std::mem::take(&mut self.line);
                return Ok((!rest.is_empty()).then_some(rest));
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let room = LINE_MAX.saturating_sub(self.line.len()).min(part.len());
            self.line.extend_from_slice(&part[..room]);
            let used = part.len() + usize::from(end.is_some());
            self.stream.consume_unpin(used);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::io::BufReader;
    use serde_json::json;

    #[test]
    fn long_lines_are_cut_and_the_next_is_whole() {
        let text = [vec![b'x'; LINE_MAX + 5], b"\nloss=1\n\nlast".to_vec()].concat();
        let mut lines = Lines { stream: BufReader::with_capacity(7, text.as_slice()), line: Vec::new() };
        let mut next = || block_on(lines.next()).unwrap();
        assert_eq!(next().unwrap().len(), LINE_MAX);
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(b"loss=1".to_vec()), Some(vec![]), Some(b"last".to_vec()), None]
        );
    }

    #[test]
    fn the_container_of_rank_0_is_read_once_it_has_started() {
        let pod = |of: &str, index: &str, state: Value| {
            json!({"metadata": {"labels": {keys::REPLICATED_JOB_NAME: of}, "annotations": {keys::COMPLETION_INDEX: index}},
                   "spec": {"containers": [{"name": "proxy"}, {"name": "node"}]},
                   "status": {"containerStatuses": [{"name": "node", "state": state}, {"name": "proxy", "state": state}]}})
        };
        let running = json!({"running": {}});
        assert_eq!(container(&pod("node", "0", running.clone())).as_deref(), Some("node"));
        assert_eq!(container(&pod("trainer", "0", json!({"terminated": {}}))).as_deref(), Some("proxy"));
        assert_eq!(container(&pod("node", "1", running.clone())), None);
        assert_eq!(container(&pod("model-initializer", "0", running)), None);
        assert_eq!(container(&pod("node", "0", json!({"waiting": {}}))), None);
    }
}
