//! Watches TrainJobs and their JobSets, to know whose pods are kept and when they are removed.

use super::Store;
use api::jobset;
use api::object::{self, Key};
use api::trainer::annotations::ATTEMPT;
use api::trainer::{GROUP, VERSION};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// How often to look again at what could not be given to a job at once.
const LOOK: Duration = Duration::from_secs(60);

enum Seen {
    Job(Event<DynamicObject>),
    JobSet(Event<DynamicObject>),
}

/// Keeps the store to what there is, forever. What fails is tried again.
pub async fn follow(client: Client, store: Store) {
    let jobs = changes(&client, GROUP, VERSION, "TrainJob", "trainjobs").map(Seen::Job);
    let jobsets = changes(&client, jobset::GROUP, jobset::VERSION, jobset::KIND, "jobsets").map(Seen::JobSet);
    let mut seen = stream::select(jobs, jobsets);
    let mut list = List::default();
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
                Some(Seen::Job(event)) => list.job(&store, event),
                Some(Seen::JobSet(event)) => jobset(&store, event),
                None => {}
            }
            store.sweep();
            list
        });
        list = done.await.unwrap_or_default();
    }
}

fn changes(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    plural: &str,
) -> BoxStream<'static, Event<DynamicObject>> {
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let changes = watcher(api, watcher::Config::default()).default_backoff();
    changes
        .filter_map(|change| {
            std::future::ready(match change {
                Ok(event) => Some(event),
                Err(error) => {
                    tracing::debug!(%error, "TrainJobs or JobSets cannot be watched; trying again");
                    None
                }
            })
        })
        .boxed()
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("invariant: objects from the API are JSON")
}

/// A list of TrainJobs that has begun.
#[derive(Default)]
struct List {
    /// The jobs that were known before; what the list does not name is gone.
    before: BTreeSet<String>,
}

impl List {
    fn job(&mut self, store: &Store, event: Event<DynamicObject>) {
        match event {
            Event::Init => self.before = store.known(),
            Event::InitApply(job) | Event::Apply(job) => {
                let job = json(&job);
                self.before.remove(object::uid(&job));
                store.saw_job(object::uid(&job), &Key::of(&job), finished(&job));
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
            let owner = object::controller_of(&jobset).filter(|owner| owner["kind"] == "TrainJob");
            let owner = owner.map(|owner| object::text(owner, "uid"));
            let attempt = object::annotation(&jobset, ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(1);
            store.saw_jobset(&jobset, owner, attempt);
        }
        Event::Delete(jobset) => store.jobset_gone(object::uid(&json(&jobset))),
        Event::Init | Event::InitDone => {}
    }
}

/// When a TrainJob ended.
fn finished(job: &Value) -> Option<String> {
    let conditions = job["status"]["conditions"].as_array()?;
    let is_end = |c: &&Value| c["status"] == "True" && (c["type"] == "Complete" || c["type"] == "Failed");
    Some(object::text(conditions.iter().find(is_end)?, "lastTransitionTime").to_owned())
}
