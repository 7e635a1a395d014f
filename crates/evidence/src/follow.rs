//! Watches TrainJobs and their JobSets, MPIJobs and their launchers, to know whose pods are kept and when they are removed.

use crate::Store;
use crate::store::Kind;
use api::mpi::names::LABEL_APP;
use api::object::{self, Gvk, Key};
use api::trainer::annotations::ATTEMPT;
use api::trainer::{GROUP, VERSION};
use api::{jobset, mpi};
use driver::Feed;
use futures::StreamExt;
use futures::stream;
use kube::runtime::watcher::{Config, Event};
use objects::take;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often to look again at what could not be given to a job at once.
const LOOK: Duration = Duration::from_secs(60);
/// Changes that are taken in together, if so many are there.
const TOGETHER: usize = 64;

enum Seen {
    Job(Kind, Event<Arc<Value>>),
    JobSet(Event<Arc<Value>>),
    Launcher(Event<Arc<Value>>),
}

/// Keeps the store to what there is, forever.
pub async fn follow(feed: Feed, store: Store) {
    let kind = |group, version, kind| Gvk::new(group, version, kind);
    let all = Config::default;
    let jobs = feed.parts(&kind(GROUP, VERSION, "TrainJob"), "trainjobs", all(), take::state);
    let jobsets = feed.parts(&kind(jobset::GROUP, jobset::VERSION, jobset::KIND), "jobsets", all(), take::state);
    let mpijobs = feed.parts(&kind(mpi::GROUP, mpi::VERSION, mpi::KIND), mpi::PLURAL, all(), take::state);
    // of all Jobs, those with the label of MPIJobs' children
    let launchers = feed.parts(&kind("batch", "v1", "Job"), "jobs", all().labels(LABEL_APP), take::state);
    let mut seen = stream::select_all([
        jobs.map(|event| Seen::Job(Kind::TrainJob, event)).boxed(),
        jobsets.map(Seen::JobSet).boxed(),
        mpijobs.map(|event| Seen::Job(Kind::MpiJob, event)).boxed(),
        launchers.map(Seen::Launcher).boxed(),
    ])
    .ready_chunks(TOGETHER);
    let mut lists: BTreeMap<Kind, List> = BTreeMap::new();
    loop {
        let changes = tokio::select! {
            changes = seen.next() => changes.unwrap_or_default(),
            () = store.bell.notified() => Vec::new(),
            () = tokio::time::sleep(LOOK) => Vec::new(),
        };
        let store = store.clone();
        // the disk is waited for elsewhere; one change after the other
        let done = tokio::task::spawn_blocking(move || {
            for change in changes {
                match change {
                    Seen::Job(kind, event) => lists.entry(kind).or_default().job(&store, kind, event),
                    Seen::JobSet(event) => jobset(&store, event),
                    Seen::Launcher(event) => launcher(&store, event),
                }
            }
            store.sweep();
            lists
        });
        lists = done.await.unwrap_or_default();
    }
}

/// A list of the jobs of a kind that has begun.
#[derive(Default)]
struct List {
    /// The jobs that were known before; what the list does not name is gone.
    before: BTreeSet<String>,
}

impl List {
    fn job(&mut self, store: &Store, kind: Kind, event: Event<Arc<Value>>) {
        match event {
            Event::Init => self.before = store.known(kind),
            Event::InitApply(job) | Event::Apply(job) => {
                let uid = object::uid(&job);
                self.before.remove(uid);
                if kind == Kind::MpiJob {
                    // its workers are its own, whichever attempt they serve
                    store.saw_part(uid, Some((kind, uid)), 0);
                }
                store.saw_job(kind, uid, &Key::of(&job), finished(&job));
            }
            Event::InitDone => std::mem::take(&mut self.before).iter().for_each(|uid| store.job_gone(uid)),
            Event::Delete(job) => store.job_gone(object::uid(&job)),
        }
    }
}

fn jobset(store: &Store, event: Event<Arc<Value>>) {
    match event {
        Event::InitApply(jobset) | Event::Apply(jobset) => {
            store.saw_part(object::uid(&jobset), owner(&jobset, Kind::TrainJob), attempt(&jobset));
        }
        Event::Delete(jobset) => store.part_gone(object::uid(&jobset)),
        Event::Init | Event::InitDone => {}
    }
}

/// A Job that may be an MPIJob's launcher. Others have pods that nobody keeps.
fn launcher(store: &Store, event: Event<Arc<Value>>) {
    if let Event::InitApply(job) | Event::Apply(job) = event
        && let Some(owner) = owner(&job, Kind::MpiJob)
    {
        store.saw_part(object::uid(&job), Some(owner), attempt(&job));
    }
}

/// The job that controls a part of it.
fn owner(part: &Value, kind: Kind) -> Option<(Kind, &str)> {
    let owner = object::controller_of(part).filter(|owner| owner["kind"] == kind.as_str());
    owner.map(|owner| (kind, object::text(owner, "uid")))
}

/// The attempt of its job that a part is.
pub(crate) fn attempt(part: &Value) -> i64 {
    object::annotation(part, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// When a job ended.
fn finished(job: &Value) -> Option<String> {
    let conditions = job["status"]["conditions"].as_array()?;
    let ends = ["Complete", "Succeeded", "Failed"];
    let is_end = |c: &&Value| c["status"] == "True" && ends.contains(&object::text(c, "type"));
    Some(object::text(conditions.iter().find(is_end)?, "lastTransitionTime").to_owned())
}
