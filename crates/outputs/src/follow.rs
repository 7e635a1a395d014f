//! Follows managed jobs, their pods and their JobSets, and keeps the output.
//!
//! A pod that runs has a task that reads its log. It ends when all is kept. A JobSet is marked when its pods have ended and their output
//! is on disk.

mod kept;
mod lines;
mod pod;

use crate::store::{Outputs, Reach};
use api::jobset;
use api::object::{self, Gvk, Key};
use api::sky::{ManagedJob, keys, managed_job_gvk};
use driver::Feed;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use kept::JobPods;
use kube::Client;
use kube::runtime::watcher::{Config, Event};
use objects::take;
use pod::{JobPod, State};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::task::JoinMap;

/// Changes of jobs that are handled together, if so many are there.
const TOGETHER: usize = 64;

/// Keeps the output of all managed jobs, forever.
pub async fn follow(feed: Feed, client: Client, outputs: Outputs) {
    let jobs = follow_jobs(feed.changes(&managed_job_gvk(), "managedjobs", Config::default()), outputs.clone());
    let followed = Followed { client, outputs, pods: BTreeMap::new(), jobsets: BTreeMap::new() };
    tokio::join!(jobs, followed.run(&feed));
}

/// Keeps the store to the jobs that there are.
async fn follow_jobs(jobs: BoxStream<'static, Event<Arc<Value>>>, outputs: Outputs) {
    let mut changes = jobs.ready_chunks(TOGETHER);
    // the jobs that were known before a list, and that it has not named so far
    let mut before: BTreeSet<String> = BTreeSet::new();
    while let Some(events) = changes.next().await {
        let outputs = outputs.clone();
        let work = move || {
            for event in events {
                job_changed(&outputs, &mut before, event);
            }
            before
        };
        before = tokio::task::spawn_blocking(work).await.unwrap_or_default();
    }
}

fn job_changed(outputs: &Outputs, before: &mut BTreeSet<String>, event: Event<Arc<Value>>) {
    match event {
        Event::Init => *before = outputs.known(),
        Event::InitApply(job) | Event::Apply(job) => {
            before.remove(object::uid(&job));
            match ManagedJob::deserialize(&*job) {
                Ok(job) => drop(outputs.saw_job(&job)),
                Err(error) => tracing::warn!(%error, job = %Key::of(&job), "a managed job cannot be read"),
            }
        }
        Event::InitDone => std::mem::take(before).iter().for_each(|uid| outputs.job_gone(uid)),
        Event::Delete(job) => outputs.job_gone(object::uid(&job)),
    }
}

/// The pods and JobSets of managed jobs.
struct Followed {
    client: Client,
    outputs: Outputs,
    /// By uid.
    pods: BTreeMap<String, FollowedPod>,
    jobsets: BTreeMap<Key, JobPods>,
}

struct FollowedPod {
    pod: JobPod,
    state: watch::Sender<State>,
    /// A task reads its log, or has read it.
    has_begun: bool,
    /// All its output is kept.
    is_done: bool,
}

enum Seen {
    Pod(Event<Arc<Value>>),
    JobSet(Event<Arc<Value>>),
}

/// The tasks: readers by the uid of their pod, and those that mark JobSets.
#[derive(Default)]
struct Tasks {
    readers: JoinMap<String, ()>,
    marks: JoinMap<Key, ()>,
    /// JobSets that changed while they were being marked.
    again: BTreeSet<Key>,
}

impl Followed {
    async fn run(mut self, feed: &Feed) {
        let which = || Config::default().labels(keys::MANAGED_JOB);
        let pods = feed.parts(&Gvk::new("", "v1", "Pod"), "pods", which(), take::state);
        let jobsets = feed.parts(&jobset::gvk(), "jobsets", which(), take::state);
        let mut seen = stream::select(pods.map(Seen::Pod), jobsets.map(Seen::JobSet));
        let mut tasks = Tasks::default();
        // the objects of a list that is under way
        let (mut pods, mut jobsets) = (BTreeSet::new(), BTreeSet::new());
        loop {
            tokio::select! {
                event = seen.next() => match event {
                    Some(Seen::Pod(event)) => self.pod(event, &mut pods, &mut tasks),
                    Some(Seen::JobSet(event)) => self.jobset(event, &mut jobsets, &mut tasks),
                    None => return,
                },
                Some((uid, done)) = tasks.readers.join_next() => self.read(&uid, done.is_ok(), &mut tasks),
                Some((key, _)) = tasks.marks.join_next() => {
                    if tasks.again.remove(&key) {
                        self.settle(&key, &mut tasks);
                    }
                }
            }
        }
    }

    fn pod(&mut self, event: Event<Arc<Value>>, listed: &mut BTreeSet<String>, tasks: &mut Tasks) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.insert(object::uid(&pod).to_owned());
                self.pod_is(&pod, tasks);
            }
            Event::Apply(pod) => self.pod_is(&pod, tasks),
            Event::InitDone => {
                let gone: Vec<String> = self.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                gone.iter().for_each(|uid| self.pod_gone(uid, tasks));
                self.outputs.pods_listed();
            }
            Event::Delete(pod) => self.pod_gone(object::uid(&pod), tasks),
        }
    }

    fn pod_is(&mut self, object: &Value, tasks: &mut Tasks) {
        let Some((pod, state)) = JobPod::of(object) else { return };
        let uid = pod.uid.clone();
        let new = || FollowedPod { pod, state: watch::Sender::new(state), has_begun: false, is_done: false };
        let followed = self.pods.entry(uid.clone()).or_insert_with(new);
        followed.state.send_if_modified(|held| std::mem::replace(held, state) != state);
        if state == State::Waiting || followed.has_begun {
            return;
        }
        followed.has_begun = true;
        self.outputs.saw_pod(&uid, Reach::Reading);
        let (client, outputs) = (self.client.clone(), self.outputs.clone());
        let reader = pod::keep(client, outputs, followed.pod.clone(), followed.state.subscribe());
        tasks.readers.spawn(uid, reader);
    }

    /// The object of a pod is gone. A reader reads what is on its way.
    fn pod_gone(&mut self, uid: &str, tasks: &mut Tasks) {
        let Some(followed) = self.pods.get(uid) else { return };
        followed.state.send_replace(State::Gone);
        if followed.is_done || !followed.has_begun {
            self.forget(uid, tasks);
        }
    }

    fn forget(&mut self, uid: &str, tasks: &mut Tasks) {
        let Some(followed) = self.pods.remove(uid) else { return };
        self.outputs.pod_gone(uid);
        self.settle(&followed.jobset(), tasks);
    }

    /// A reader has ended.
    fn read(&mut self, uid: &str, is_ok: bool, tasks: &mut Tasks) {
        let Some(followed) = self.pods.get_mut(uid) else { return };
        if !is_ok {
            tracing::error!(pod = followed.pod.name, "the output of a pod is not kept, by a bug");
            self.outputs.saw_pod(uid, Reach::Done);
        }
        followed.is_done = true;
        if *followed.state.borrow() == State::Gone {
            return self.forget(uid, tasks);
        }
        let jobset = followed.jobset();
        self.settle(&jobset, tasks);
    }

    fn jobset(&mut self, event: Event<Arc<Value>>, listed: &mut BTreeSet<Key>, tasks: &mut Tasks) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(jobset) => {
                listed.insert(Key::of(&jobset));
                self.jobset_is(&jobset, tasks);
            }
            Event::Apply(jobset) => self.jobset_is(&jobset, tasks),
            Event::InitDone => self.jobsets.retain(|key, _| listed.contains(key)),
            Event::Delete(jobset) => drop(self.jobsets.remove(&Key::of(&jobset))),
        }
    }

    fn jobset_is(&mut self, object: &Value, tasks: &mut Tasks) {
        let Some(jobset) = JobPods::of(object) else { return };
        let key = Key::of(object);
        self.jobsets.insert(key.clone(), jobset);
        self.settle(&key, tasks);
    }

    /// Marks a JobSet whose pods have ended and are kept.
    fn settle(&mut self, key: &Key, tasks: &mut Tasks) {
        let Some(jobset) = self.jobsets.get(key).filter(|jobset| jobset.has_ended && !jobset.is_kept) else { return };
        let of_it = self.pods.iter().filter(|(_, followed)| followed.jobset() == *key);
        let mut done = BTreeSet::new();
        for (uid, followed) in of_it {
            if !followed.is_done {
                return;
            }
            done.insert(uid.clone());
        }
        if tasks.marks.contains_key(key) {
            tasks.again.insert(key.clone());
        } else {
            let Key { namespace, name } = key.clone();
            let mark = kept::mark(self.client.clone(), namespace, name, jobset.uid.clone(), done);
            tasks.marks.spawn(key.clone(), mark);
        }
    }
}

impl FollowedPod {
    fn jobset(&self) -> Key {
        Key::new(&self.pod.namespace, &self.pod.jobset)
    }
}
