//! Watches TrainJobs and their JobSets, MPIJobs and their launchers, to know whose pods are kept and when they are removed.

use super::Store;
use super::store::Kind;
use api::mpi::names::LABEL_APP;
use api::object::{self, Key};
use api::trainer::annotations::ATTEMPT;
use api::trainer::{GROUP, VERSION};
use api::{jobset, mpi};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often to look again at what could not be given to a job at once.
const LOOK: Duration = Duration::from_secs(60);

enum Seen {
    Job(Kind, Event<DynamicObject>),
    JobSet(Event<DynamicObject>),
    Launcher(Event<DynamicObject>),
}

/// Keeps the store to what there is, forever. What fails is tried again.
pub async fn follow(client: Client, store: Store) {
    let all = watcher::Config::default();
    let jobs = changes(&client, [GROUP, VERSION, "TrainJob", "trainjobs"], all.clone());
    let jobsets = changes(&client, [jobset::GROUP, jobset::VERSION, jobset::KIND, "jobsets"], all.clone());
    let mpijobs = changes(&client, [mpi::GROUP, mpi::VERSION, mpi::KIND, mpi::PLURAL], all.clone());
    // of all Jobs, those with the label of MPIJobs' children
    let launchers = changes(&client, ["batch", "v1", "Job", "jobs"], all.labels(LABEL_APP));
    let mut seen = stream::select_all([
        jobs.map(|event| Seen::Job(Kind::TrainJob, event)).boxed(),
        jobsets.map(Seen::JobSet).boxed(),
        mpijobs.map(|event| Seen::Job(Kind::MpiJob, event)).boxed(),
        launchers.map(Seen::Launcher).boxed(),
    ]);
    let mut lists: BTreeMap<Kind, List> = BTreeMap::new();
    loop {
        let change = tokio::select! {
            change = seen.next() => change,
            () = store.bell.notified() => None,
            () = tokio::time::sleep(LOOK) => None,
        };
        let store = store.clone();
        // the disk is waited for elsewhere; one change after the other
        let done = tokio::task::spawn_blocking(move || {
            match change {
                Some(Seen::Job(kind, event)) => lists.entry(kind).or_default().job(&store, kind, event),
                Some(Seen::JobSet(event)) => jobset(&store, event),
                Some(Seen::Launcher(event)) => launcher(&store, event),
                None => {}
            }
            store.sweep();
            lists
        });
        lists = done.await.unwrap_or_default();
    }
}

fn changes(
    client: &Client,
    [group, version, kind, plural]: [&str; 4],
    which: watcher::Config,
) -> BoxStream<'static, Event<DynamicObject>> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let changes = watcher(api, which).default_backoff();
    changes
        .filter_map(|change| {
            std::future::ready(match change {
                Ok(event) => Some(event),
                Err(error) => {
                    tracing::debug!(%error, "jobs or their parts cannot be watched; trying again");
                    None
                }
            })
        })
        .boxed()
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("invariant: objects from the API are JSON")
}

/// A list of the jobs of a kind that has begun.
#[derive(Default)]
struct List {
    /// The jobs that were known before; what the list does not name is gone.
    before: BTreeSet<String>,
}

impl List {
    fn job(&mut self, store: &Store, kind: Kind, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.before = store.known(kind),
            Event::InitApply(job) | Event::Apply(job) => {
                let job = json(&job);
                let uid = object::uid(&job);
                self.before.remove(uid);
                if kind == Kind::MpiJob {
                    // its workers are its own, whichever attempt they serve
                    store.saw_part(uid, Some((kind, uid)), 0);
                }
                store.saw_job(kind, uid, &Key::of(&job), finished(&job));
            }
            Event::InitDone => std::mem::take(&mut self.before).iter().for_each(|uid| store.job_gone(uid)),
            Event::Delete(job) => store.job_gone(object::uid(&json(&job))),
        }
    }
}

fn jobset(store: &Store, event: Event<DynamicObject>) {
    match event {
        Event::InitApply(jobset) | Event::Apply(jobset) => {
            let jobset = json(&jobset);
            store.saw_part(object::uid(&jobset), owner(&jobset, Kind::TrainJob), attempt(&jobset));
        }
        Event::Delete(jobset) => store.part_gone(object::uid(&json(&jobset))),
        Event::Init | Event::InitDone => {}
    }
}

/// A Job that may be an MPIJob's launcher. Others have pods that nobody keeps.
fn launcher(store: &Store, event: Event<DynamicObject>) {
    if let Event::InitApply(job) | Event::Apply(job) = event {
        let job = json(&job);
        if let Some(owner) = owner(&job, Kind::MpiJob) {
            store.saw_part(object::uid(&job), Some(owner), attempt(&job));
        }
    }
}

/// The job that controls a part of it.
fn owner(part: &Value, kind: Kind) -> Option<(Kind, &str)> {
    let owner = object::controller_of(part).filter(|owner| owner["kind"] == kind.as_str());
    owner.map(|owner| (kind, object::text(owner, "uid")))
}

/// The attempt of its job that a part is.
pub(super) fn attempt(part: &Value) -> i64 {
    object::annotation(part, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// When a job ended.
fn finished(job: &Value) -> Option<String> {
    let conditions = job["status"]["conditions"].as_array()?;
    let ends = ["Complete", "Succeeded", "Failed"];
    let is_end = |c: &&Value| c["status"] == "True" && ends.contains(&object::text(c, "type"));
    Some(object::text(conditions.iter().find(is_end)?, "lastTransitionTime").to_owned())
}
