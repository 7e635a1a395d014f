//! All jobs in memory, as rows: fed by watches, asked by pages.
//!
//! A job costs a few hundred bytes here, because its object is read once at each change and a few facts of it are kept. Its JobSet and its
//! pods are kept apart, as they change on their own; a row is put together when a page wants it.

use crate::row::{Kept, Kind, Row, group};
use api::object::{self, Gvk, Key};
use api::sky::keys;
use diagnose::{PodSigns, Signs};
use driver::Feed;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jiff::Timestamp;
use kube::runtime::watcher::{Config, Event};
use objects::take;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use view::job::job_of;
use view::row;

/// How long the first pages wait for the first lists.
const READY_MAX: Duration = Duration::from_secs(2);

/// What is kept of a JobSet.
#[derive(Clone, Debug, Default)]
struct Set {
    uid: Box<str>,
    restarts: i64,
    pods: Option<i64>,
    gpus: i64,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<(Kind, Key), Kept>,
    /// JobSets that another job has made.
    sets: HashMap<Key, Set>,
    /// By job, as `view::job::job_of` calls it, and by the pod's uid.
    pods: HashMap<Key, HashMap<Box<str>, PodSigns>>,
    /// Kinds that were listed as a whole.
    listed: BTreeSet<Kind>,
}

/// All jobs, as rows.
#[derive(Clone)]
pub struct Index {
    inner: Arc<RwLock<Inner>>,
    /// Grows with each change.
    version: watch::Sender<u64>,
    wanted: Arc<Notify>,
    /// When the first page asked.
    asked: Arc<OnceLock<Instant>>,
}

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    Jobs(Kind),
    Pods,
}

impl Default for Index {
    fn default() -> Self {
        Self { inner: Arc::default(), version: watch::Sender::new(0), wanted: Arc::default(), asked: Arc::default() }
    }
}

impl Index {
    /// Follows all jobs, from the first request for a page on. Until then it costs nothing.
    pub async fn follow(self, feed: Feed) {
        self.wanted.notified().await;
        let jobs = Kind::ALL.map(|kind| {
            let resource = client::Kind::from(kind).resource();
            let gvk = Gvk::new(&resource.group, &resource.version, &resource.kind);
            let which = Followed::Jobs(kind);
            feed.changes(&gvk, &resource.plural, Config::default()).map(move |event| (which, event)).boxed()
        });
        let pods = feed.parts(&Gvk::new("", "v1", "Pod"), "pods", Config::default(), take::state);
        let pods = pods.map(|event| (Followed::Pods, event)).boxed();
        let streams: Vec<BoxStream<'static, (Followed, Event<Arc<Value>>)>> = jobs.into_iter().chain([pods]).collect();
        let mut events = stream::select_all(streams);
        let mut listing: HashMap<&'static str, Listing> = HashMap::new();
        while let Some((which, event)) = events.next().await {
            let listing = listing.entry(which.as_str()).or_default();
            self.see(which, event, listing);
        }
    }

    fn see(&self, which: Followed, event: Event<Arc<Value>>, listing: &mut Listing) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Init => listing.seen.clear(),
            Event::InitApply(object) => {
                listing.seen.insert(object::uid(&object).into());
                inner.apply(which, &object);
            }
            Event::Apply(object) => inner.apply(which, &object),
            Event::Delete(object) => inner.delete(which, &object),
            Event::InitDone => {
                inner.keep_only(which, &listing.seen);
                listing.seen = BTreeSet::new();
            }
        }
        drop(inner);
        self.version.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Waits until all jobs of these kinds are known, but no longer than [`READY_MAX`] after the first question: a server may lack a kind.
    pub(crate) async fn ready(&self, kinds: &[Kind]) {
        self.wanted.notify_one();
        let deadline = api::time::after(*self.asked.get_or_init(Instant::now), READY_MAX);
        let mut changes = self.changes();
        while kinds.iter().any(|kind| !self.listed().contains(kind)) {
            if tokio::time::timeout_at(deadline.into(), changes.changed()).await.is_err() {
                return;
            }
        }
    }

    /// What a job of this name is: a TrainJob, unless only a JobSet has the name.
    pub(crate) fn kind_of(&self, namespace: &str, name: &str) -> Kind {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let key = Key::new(namespace, name);
        let is = |kind: Kind| inner.jobs.contains_key(&(kind, key.clone()));
        if !is(Kind::TrainJob) && is(Kind::JobSet) { Kind::JobSet } else { Kind::TrainJob }
    }

    /// Tells when something has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Kinds whose jobs are all known: of the others some may be missing.
    pub(crate) fn listed(&self) -> BTreeSet<Kind> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).listed.clone()
    }

    /// The rows that `shows` lets through.
    pub(crate) fn rows(&self, now: Timestamp, shows: impl Fn(Kind, &str) -> bool) -> Vec<Row> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let mut trials: HashMap<(&str, &str), usize> = HashMap::new();
        for ((_, key), kept) in inner.jobs.iter().filter(|(_, kept)| !kept.search.is_empty()) {
            let count = trials.entry((key.namespace.as_str(), &kept.search)).or_default();
            *count = count.saturating_add(1);
        }
        let jobs = inner.jobs.iter().filter(|((kind, key), _)| shows(*kind, &key.namespace));
        jobs.map(|((kind, key), kept)| {
            let trials = match kind {
                Kind::OptimizationJob => trials.get(&(key.namespace.as_str(), key.name.as_str())).copied(),
                _ => None,
            };
            Row { trials: trials.unwrap_or(0), ..inner.row(*kind, key, kept, now) }
        })
        .collect()
    }
}

impl Followed {
    fn as_str(self) -> &'static str {
        match self {
            Self::Jobs(kind) => kind.as_str(),
            Self::Pods => "pod",
        }
    }
}

/// The uids that a list in progress has named so far.
#[derive(Default)]
struct Listing {
    seen: BTreeSet<Box<str>>,
}

/// The job that a pod belongs to.
fn job_of_pod(pod: &Value) -> Option<Key> {
    Some(Key::new(object::meta(pod, "namespace"), &job_of(pod)?))
}

/// Whether a JobSet is part of another job, whose row it then belongs to.
fn is_part(set: &Value) -> bool {
    let is_of_cluster = object::label(set, keys::CLUSTER).is_some();
    object::label(set, keys::MANAGED_JOB).is_some()
        // of a cluster's job the stage that runs it has the row
        || (is_of_cluster && object::label(set, keys::STAGE).is_some_and(|stage| stage != "run"))
        || (!is_of_cluster && object::controller_of(set).is_some())
}

impl Inner {
    fn apply(&mut self, which: Followed, object: &Value) {
        match which {
            Followed::Jobs(Kind::JobSet) if is_part(object) => {
                let set = Set {
                    uid: object::uid(object).into(),
                    restarts: row::restarts_of_jobset(object),
                    pods: row::pods_of_jobset(object),
                    gpus: row::gpus_of_jobset(object),
                };
                self.sets.insert(Key::of(object), set);
            }
            // a replica of a service, or a worker of a pool, is shown with it
            Followed::Jobs(Kind::ManagedJob) if !object["spec"]["replica"].is_null() => {}
            Followed::Jobs(kind) => _ = self.jobs.insert((kind, Key::of(object)), Kept::of(kind, object)),
            Followed::Pods => {
                if let Some(job) = job_of_pod(object) {
                    self.pods.entry(job).or_default().insert(object::uid(object).into(), PodSigns::of(object));
                }
            }
        }
    }

    fn delete(&mut self, which: Followed, object: &Value) {
        match which {
            Followed::Jobs(kind) => {
                let key = Key::of(object);
                if kind == Kind::JobSet && self.sets.get(&key).is_some_and(|set| *set.uid == *object::uid(object)) {
                    self.sets.remove(&key);
                }
                let job = (kind, key);
                // a later one of that name may have been seen before
                if self.jobs.get(&job).is_some_and(|kept| *kept.uid == *object::uid(object)) {
                    self.jobs.remove(&job);
                }
            }
            Followed::Pods => {
                let Some(job) = job_of_pod(object) else { return };
                if let Some(pods) = self.pods.get_mut(&job) {
                    pods.remove(object::uid(object));
                    if pods.is_empty() {
                        self.pods.remove(&job);
                    }
                }
            }
        }
    }

    /// Forgets what a whole list has not named.
    fn keep_only(&mut self, which: Followed, seen: &BTreeSet<Box<str>>) {
        match which {
            Followed::Jobs(kind) => {
                self.jobs.retain(|(of, _), kept| *of != kind || seen.contains(&kept.uid));
                if kind == Kind::JobSet {
                    self.sets.retain(|_, set| seen.contains(&set.uid));
                }
                self.listed.insert(kind);
            }
            Followed::Pods => self.pods.retain(|_, pods| {
                pods.retain(|uid, _| seen.contains(uid));
                !pods.is_empty()
            }),
        }
    }

    fn row(&self, kind: Kind, key: &Key, kept: &Kept, now: Timestamp) -> Row {
        let name = kind.of_command().map_or(key.name.clone(), |kind| kind.short_name(&key.name));
        let mut signs = Signs::default();
        let mut restarts: i64 = 0;
        for pod in self.pods.get(&Key::new(&key.namespace, &name)).into_iter().flat_map(HashMap::values) {
            signs.add(pod, now);
            restarts = restarts.saturating_add(pod.restarts);
        }
        let none = Set::default();
        let set = self.sets.get(key).filter(|_| kind == Kind::TrainJob).unwrap_or(&none);
        let state = kept.stands.word(set.restarts, &signs, now);
        Row {
            kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            title: match &*kept.title {
                "" => key.name.clone(),
                title => title.to_owned(),
            },
            uid: kept.uid.to_string(),
            group: group(&state),
            state,
            reason: kept.message.to_string(),
            progress: kept.progress,
            nodes: set.pods.or(kept.nodes),
            gpus: kept.gpus.max(set.gpus),
            restarts: restarts.saturating_add(set.restarts).saturating_add(kept.stands.retries()),
            queue: kept.queue.to_string(),
            runtime: kept.runtime.to_string(),
            owner: kept.owner.to_string(),
            search: kept.search.to_string(),
            created: kept.created,
            trials: 0,
        }
    }
}

#[cfg(test)]
mod tests;
