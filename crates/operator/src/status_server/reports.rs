//! Carries out what `pacing` decides: writes statuses, keeps the history, and loses nothing at the end.

use super::kept::Kept;
use super::pacing::{Known, Outcome, Pacing, Verdict, is_complete, time};
use super::printed;
use super::series::Series;
use api::object::{self, Key};
use api::trainer::names::MANAGER_STATUS;
use api::trainer::{API_VERSION, Metric, TrainerStatus};
use driver::limit::Limiter;
use http::Method;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use plan::plugins::status::audience;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many statuses are written at a time. They mostly wait for the API server, where writes that wait together share a
/// commit.
const HANDS: usize = 32;
/// How long one write may take.
const WRITE_MAX: Duration = Duration::from_secs(10);
/// How long what is still held back may take to be written once the server stops.
const FLUSH_MAX: Duration = Duration::from_secs(5);

/// How many metrics a TrainJob's schema allows.
const METRICS_MAX: usize = 256;

/// Why a report was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The TrainJob's schema refuses it, in these words.
    #[error("{0}")]
    Invalid(String),
    #[error("there is no such TrainJob")]
    NotFound,
    /// The API server does not answer as it should.
    #[error("the API server cannot be asked")]
    Internal,
}

/// The reports of all jobs on their way into statuses and histories.
pub(super) struct Reports {
    client: Client,
    pub series: Option<Series>,
    pub kept: Option<Kept>,
    pacing: Mutex<Pacing>,
    limiter: Option<Limiter>,
    /// What is held back is being written, because the server stops: as fast as it goes.
    flushing: CancellationToken,
    hands: Arc<Semaphore>,
    /// For `run`: there may be something to do.
    changed: Notify,
    /// For reports that wait for another's outcome.
    settled: Notify,
    /// The jobs whose output is read for metrics, too.
    printing: Mutex<BTreeMap<Key, Printing>>,
}

/// What a job reports and what it prints; its status has both.
#[derive(Default)]
struct Printing {
    /// Its own last report.
    reported: TrainerStatus,
    /// The last value of each metric that it prints and does not report.
    printed: BTreeMap<String, String>,
    shown: Option<TrainerStatus>,
}

impl Printing {
    /// Its status, of this time at least.
    fn status(&self, at: Option<Time>) -> TrainerStatus {
        let mut status = self.reported.clone();
        let room = METRICS_MAX.saturating_sub(status.metrics.len());
        let printed = self.printed.iter().take(room);
        status.metrics.extend(printed.map(|(name, value)| Metric { name: name.clone(), value: value.clone() }));
        status.last_updated_time = status.last_updated_time.max(at);
        status
    }

    fn reports(&self, name: &str) -> bool {
        self.reported.metrics.iter().any(|metric| metric.name == name)
    }
}

/// A write under way. Whatever becomes of the task, it is settled.
struct Writing<'a> {
    reports: &'a Reports,
    key: &'a Key,
    number: u64,
    outcome: Outcome,
    hand: Option<OwnedSemaphorePermit>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Outcome::Dropped);
        self.reports.pacing().settle(self.key, self.number, outcome, Instant::now());
        drop(self.hand.take());
        self.reports.changed.notify_one();
        self.reports.settled.notify_waiters();
    }
}

impl Reports {
    pub fn new(client: Client) -> Self {
        Self {
            client,
            series: None,
            kept: None,
            pacing: Mutex::default(),
            limiter: None,
            flushing: CancellationToken::new(),
            hands: Arc::new(Semaphore::new(HANDS)),
            changed: Notify::new(),
            settled: Notify::new(),
            printing: Mutex::default(),
        }
    }

    /// The same, writing no faster than so: `per_second` in the long run, `burst` at once.
    pub fn paced(self, per_second: f64, burst: f64) -> Self {
        let pacing = Mutex::new(Pacing::paced(per_second));
        Self { pacing, limiter: Some(Limiter::new(per_second, burst)), ..self }
    }

    fn printing(&self) -> MutexGuard<'_, BTreeMap<Key, Printing>> {
        self.printing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job's output is read for these metrics, beside what it reports. `status`: its `trainerStatus`.
    /// Returns the time of the last of them that is in the status.
    pub fn prints(&self, key: &Key, names: &BTreeSet<&str>, status: &Value) -> Option<Timestamp> {
        let shown: TrainerStatus = serde_json::from_value(status.clone()).unwrap_or_default();
        let mut reported = shown.clone();
        let printed: Vec<Metric> =
            reported.metrics.extract_if(.., |metric| names.contains(metric.name.as_str())).collect();
        let last = shown.last_updated_time.as_ref().filter(|_| !printed.is_empty()).map(|time| time.0);
        let printed = printed.into_iter().map(|metric| (metric.name, metric.value)).collect();
        self.printing().insert(key.clone(), Printing { reported, printed, shown: Some(shown) });
        last
    }

    /// The time of a job's last report as its history has it: a status knows whole seconds alone.
    pub async fn last_in_history(&self, key: &Key, uid: &str) -> Option<Timestamp> {
        let series = self.series.clone()?;
        let (key, uid) = (key.clone(), uid.to_owned());
        let last = tokio::task::spawn_blocking(move || series.last(&key, &uid)).await.ok()?.ok()??;
        last.last_updated_time.map(|time| time.0)
    }

    /// A report, with the metrics that its job prints and does not report.
    pub fn joined(&self, key: &Key, status: TrainerStatus) -> TrainerStatus {
        let mut printing = self.printing();
        let Some(job) = printing.get_mut(key) else { return status };
        job.printed.retain(|name, _| !status.metrics.iter().any(|metric| metric.name == *name));
        job.reported = status;
        let joined = job.status(None);
        job.shown = Some(joined.clone());
        joined
    }

    /// Takes metrics that a job has printed; of one that it reports itself, the report counts. Returns false if they should be handed in
    /// again.
    pub async fn take_printed(&self, key: &Key, values: &[Metric], at: Timestamp) -> bool {
        let status = {
            let mut printing = self.printing();
            let Some(job) = printing.get_mut(key) else { return true };
            for metric in values.iter().filter(|metric| !job.reports(&metric.name)).cloned().collect::<Vec<_>>() {
                job.printed.insert(metric.name, metric.value);
            }
            let status = job.status(Some(Time(at)));
            if job.printed.is_empty() || job.shown.as_ref() == Some(&status) {
                return true;
            }
            job.shown = Some(status.clone());
            status
        };
        match self.take(key, &status).await {
            Ok(()) | Err(Fault::NotFound) => true,
            Err(Fault::Invalid(why)) => {
                tracing::warn!(why, job = %key, "metrics that a job has printed are refused");
                true
            }
            Err(Fault::Internal) => {
                if let Some(job) = self.printing().get_mut(key) {
                    job.shown = None;
                }
                false
            }
        }
    }

    fn pacing(&self) -> MutexGuard<'_, Pacing> {
        self.pacing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a report: writes it, or holds it back to be written in time. Either way it is in the history then.
    ///
    /// # Errors
    /// The report is not good, in the API server's words; or it cannot be told whether it is.
    pub async fn take(&self, key: &Key, status: &TrainerStatus) -> Result<(), Fault> {
        loop {
            let hand = self.hands.clone().try_acquire_owned().ok();
            let settled = self.settled.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let verdict = self.pacing().offer(key, status, Instant::now(), hand.is_some());
            match verdict {
                Verdict::Held => {
                    drop(hand);
                    self.changed.notify_one();
                    let uid = self.pacing().uid(key);
                    self.record(key, uid, status).await;
                    return Ok(());
                }
                Verdict::Wait => {
                    drop(hand);
                    self.changed.notify_one();
                    settled.await;
                }
                Verdict::Write(number) => {
                    let mut writing = Writing { reports: self, key, number, outcome: Outcome::Dropped, hand };
                    if writing.hand.is_none() {
                        writing.hand = self.hands.clone().acquire_owned().await.ok();
                    }
                    let uid = self.write(key, status).await?;
                    writing.outcome = Outcome::Written { complete: is_complete(status), time: time(status) };
                    drop(writing);
                    self.record(key, Some(uid), status).await;
                    return Ok(());
                }
            }
        }
    }

    /// Writes what is held back when its time comes, until `stop`; then writes all of it.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut writes = JoinSet::new();
        loop {
            let next = self.start_due(&mut writes);
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
                Some(_) = writes.join_next(), if !writes.is_empty() => {}
                () = stop.cancelled() => break,
            }
        }
        self.flushing.cancel();
        let flush = async {
            self.pacing().hurry_all(Instant::now());
            loop {
                self.start_due(&mut writes);
                if writes.is_empty() && self.pacing().held() == 0 {
                    return;
                }
                tokio::select! {
                    () = self.changed.notified() => {}
                    Some(_) = writes.join_next(), if !writes.is_empty() => {}
                }
            }
        };
        if tokio::time::timeout(FLUSH_MAX, flush).await.is_err() {
            let left = self.pacing().held();
            tracing::warn!(left, "some jobs' last reports are not in their status yet; the next start writes them");
        }
    }

    /// Starts writes for what is due, as far as hands are free; returns when to look again.
    fn start_due(self: &Arc<Self>, writes: &mut JoinSet<()>) -> Option<Instant> {
        loop {
            // with none free, the next one that is tells `changed`
            let hand = self.hands.clone().try_acquire_owned().ok()?;
            let mut pacing = self.pacing();
            let Some((key, number, status)) = pacing.pop_due(Instant::now()) else { return pacing.next_due() };
            let reports = self.clone();
            writes.spawn(async move {
                let outcome = Outcome::Again(status.clone());
                let mut writing = Writing { reports: &reports, key: &key, number, outcome, hand: Some(hand) };
                writing.outcome = match reports.write(&key, &status).await {
                    Ok(_) => Outcome::Written { complete: is_complete(&status), time: time(&status) },
                    Err(Fault::Internal) => Outcome::Again(status),
                    // the job is gone, and so is the use of its progress
                    Err(Fault::NotFound) => Outcome::Dropped,
                    Err(Fault::Invalid(why)) => {
                        tracing::warn!(why, job.namespace = key.namespace, job.name = key.name, "a report is refused");
                        Outcome::Dropped
                    }
                };
            });
        }
    }

    /// Replaces the TrainJob's `trainerStatus`; the rest of the status is the controller's. Returns the TrainJob's uid.
    async fn write(&self, key: &Key, status: &TrainerStatus) -> Result<String, Fault> {
        let mut status = serde_json::to_value(status).map_err(|_| Fault::Internal)?;
        if status.get("lastUpdatedTime").is_none() {
            // The schema says so in its own words.
            status["lastUpdatedTime"] = Value::Null;
        }
        let object = json!({
            "apiVersion": API_VERSION,
            "kind": "TrainJob",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "status": {"trainerStatus": status},
        });
        let request = http::Request::builder()
            .method(Method::PATCH)
            .uri(format!("/apis/{}?fieldManager={MANAGER_STATUS}&force=true", audience(&key.namespace, &key.name)))
            .header(CONTENT_TYPE, "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .map_err(|_| Fault::Internal)?;
        let told = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, job.namespace = key.namespace, job.name = key.name, "a status cannot be written");
            Fault::Internal
        };
        if let Some(limiter) = &self.limiter {
            tokio::select! {
                () = self.flushing.cancelled() => {}
                () = limiter.pass() => {}
            }
        }
        match tokio::time::timeout(WRITE_MAX, self.client.request::<Value>(request)).await {
            Ok(Ok(job)) => Ok(object::uid(&job).to_owned()),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 400 | 422) => {
                Err(Fault::Invalid(status.message.clone()))
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(Fault::NotFound),
            Ok(Err(error)) => Err(told(&error)),
            Err(_) => Err(told(&"the API server takes too long")),
        }
    }

    /// Appends a report to the job's history. One that cannot be appended is missing there, and the log says so.
    async fn record(&self, key: &Key, uid: Option<String>, status: &TrainerStatus) {
        let Some(uid) = uid.filter(|uid| !uid.is_empty()) else { return };
        if let Some(kept) = &self.kept {
            kept.add(key, &uid, status);
            if is_complete(status) {
                kept.hurry(key);
            }
        }
        let Some(series) = self.series.clone() else { return };
        let (key, status) = (key.clone(), status.clone());
        let place = format!("{key}");
        let appended = tokio::task::spawn_blocking(move || series.append(&key, &uid, &status)).await;
        if let Ok(Err(error)) = appended {
            tracing::warn!(%error, job = place, "a report cannot be kept in the history");
        }
    }

    /// A TrainJob is there, or has changed.
    pub fn observe(&self, job: &Value) {
        let finished = printed::ended(job).is_some();
        let reported = object::text(&job["status"]["trainerStatus"], "lastUpdatedTime").parse::<jiff::Timestamp>();
        let reported = reported.ok().map(jiff::Timestamp::as_second);
        if finished && let Some(kept) = &self.kept {
            kept.hurry(&Key::of(job));
        }
        let known = Known { uid: object::uid(job).to_owned(), finished, reported };
        self.pacing().observe(Key::of(job), known, Instant::now());
        self.changed.notify_one();
    }

    /// A TrainJob is gone: its history goes too.
    pub async fn forget(&self, key: &Key, uid: &str) {
        self.pacing().forget(key);
        self.printing().remove(key);
        if let Some(kept) = &self.kept {
            kept.forget(key);
        }
        self.remove(vec![(key.clone(), uid.to_owned())]).await;
    }

    /// These are all TrainJobs that there are (by key, with their uids); `files` had a history before they were listed.
    pub async fn retain(&self, listed: &BTreeMap<Key, String>, files: Vec<(Key, String)>) {
        self.pacing().retain(|key| listed.contains_key(key));
        self.printing().retain(|key, _| listed.contains_key(key));
        self.remove(files.into_iter().filter(|(key, uid)| listed.get(key) != Some(uid)).collect()).await;
    }

    async fn remove(&self, gone: Vec<(Key, String)>) {
        let Some(series) = self.series.clone() else { return };
        let removed = tokio::task::spawn_blocking(move || {
            for (key, uid) in gone {
                if let Err(error) = series.remove(&key, &uid) {
                    tracing::warn!(%error, job = %key, "the history of a job that is gone cannot be removed");
                }
            }
        });
        drop(removed.await);
    }

    /// The TrainJobs that have a history.
    pub async fn recorded(&self) -> Vec<(Key, String)> {
        let Some(series) = self.series.clone() else { return Vec::new() };
        match tokio::task::spawn_blocking(move || series.jobs()).await {
            Ok(Ok(jobs)) => jobs,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the directory of histories cannot be read");
                Vec::new()
            }
            Err(_) => Vec::new(),
        }
    }

    /// A pod of this job has ended, so the job may be about to.
    pub fn hurry(&self, key: &Key) {
        self.pacing().hurry(key, Instant::now());
        if let Some(kept) = &self.kept {
            kept.hurry(key);
        }
        self.changed.notify_one();
    }

    /// Writes last reports that are in the history and not in the status: this process's forerunner was killed.
    /// `statuses`: the `trainerStatus` of each TrainJob.
    pub async fn recover(&self, statuses: Vec<(Key, String, Value)>) {
        let Some(series) = self.series.clone() else { return };
        let behind = tokio::task::spawn_blocking(move || {
            let newer = |(key, uid, written): (Key, String, Value)| {
                let last = series.last(&key, &uid).ok()??;
                let shown = serde_json::to_value(&last).ok()?;
                let is_older = object::text(&shown, "lastUpdatedTime") < object::text(&written, "lastUpdatedTime");
                (shown != written && !is_older).then_some((key, last))
            };
            statuses.into_iter().filter_map(newer).collect::<Vec<_>>()
        });
        for (key, status) in behind.await.unwrap_or_default() {
            tracing::info!(job = %key, "its last report is in the history and not in its status: writing it");
            let mut pacing = self.pacing();
            // not if the job has reported anew meanwhile
            let now = Instant::now();
            if !pacing.is_open(&key)
                && let Verdict::Write(number) = pacing.offer(&key, &status, now, false)
            {
                // not one that can be held back, so it was never held back
                pacing.settle(&key, number, Outcome::Dropped, now);
            }
        }
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
