//! Serves `history.trainyard.dev`: live pods from the API, deleted ones from the store of the history.

use crate::follow::attempt;
use crate::runs;
use crate::store::{Kind, Store, part_of, read_pod};
use api::job_history::{self, JobEvents, JobHistory, Metadata, PastPod};
use api::jobset::keys::JOBSET_NAME;
use api::mpi::names::{LABEL_JOB_NAME, launcher};
use api::object::{self, Gvk};
use api::trainer;
use apiserver::delegate::{Delegate, Text, Wanted};
use apiserver::query::Query;
use driver::Source;
use futures::StreamExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use node::logs::{self, LogOptions};
use node::poddir::PodDir;
use resource::status::Status;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The history of jobs, as an API.
#[derive(Clone)]
pub struct Evidence {
    store: Store,
    /// The node agent's data.
    node: PathBuf,
    /// The API server, once it is there: it is made with this one as a part of it.
    server: Arc<OnceLock<(Client, Arc<dyn Source>)>>,
}

/// A job and its parts.
struct Job {
    kind: Kind,
    metadata: Metadata,
    /// The attempt that each part is or was, by uid.
    parts: BTreeMap<String, i64>,
}

fn failed(what: &str, error: impl std::fmt::Display) -> Status {
    tracing::warn!(%error, "{what} cannot be read");
    Status::new(500, "InternalError", format!("{what} cannot be read: {error}"))
}

fn refused(error: kube::Error) -> Status {
    match error {
        kube::Error::Api(status) => Status::new(status.code, "InternalError", status.message),
        error => failed("the API", error),
    }
}

impl Evidence {
    pub fn new(store: Store, node: PathBuf) -> Self {
        Self { store, node, server: Arc::default() }
    }

    /// Says where the API server is.
    pub fn connect(&self, client: &Client, source: &Arc<dyn Source>) {
        drop(self.server.set((client.clone(), source.clone())));
    }

    fn server(&self) -> Result<&(Client, Arc<dyn Source>), Status> {
        self.server.get().ok_or_else(|| Status::new(503, "ServiceUnavailable", "the server is starting"))
    }

    fn api(&self, namespace: &str, kind: GroupVersionKind, plural: &str) -> Result<Api<DynamicObject>, Status> {
        let (client, _) = self.server()?;
        let kind = ApiResource::from_gvk_with_plural(&kind, plural);
        Ok(Api::namespaced_with(client.clone(), namespace, &kind))
    }

    /// The job that is asked for; 404 where it is not there.
    async fn job(&self, wanted: &Wanted) -> Result<Job, Status> {
        let Wanted { version, namespace, plural, name } = wanted;
        let not_found = || Status::not_found(job_history::GROUP, plural, name);
        let kind = match plural.as_str() {
            job_history::TRAINJOBS => Kind::TrainJob,
            job_history::MPIJOBS => Kind::MpiJob,
            _ => return Err(not_found()),
        };
        if version != job_history::VERSION || namespace.is_empty() {
            return Err(not_found());
        }
        let get = async |Gvk { group, version, kind }: Gvk, plural: &str, name: &str| match self
            .api(namespace, GroupVersionKind { group, version, kind }, plural)?
            .get(name)
            .await
        {
            Ok(object) => Ok(Some(serde_json::to_value(&object).expect("invariant: objects from the API are JSON"))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(refused(error)),
        };
        let gvk = match kind {
            Kind::TrainJob => Gvk::new(trainer::GROUP, trainer::VERSION, kind.as_str()),
            Kind::MpiJob => api::mpi::gvk(),
        };
        let job = get(gvk, plural, name).await?.ok_or_else(not_found)?;
        let uid = object::uid(&job).to_owned();
        let (store, of) = (self.store.clone(), uid.clone());
        let known = tokio::task::spawn_blocking(move || store.parts(&of));
        let mut parts = known.await.expect("reading does not panic");
        // the watches may be late
        let part = match kind {
            Kind::TrainJob => get(api::jobset::gvk(), "jobsets", name).await?,
            Kind::MpiJob => {
                parts.insert(uid.clone(), 0);
                get(Gvk::new("batch", "v1", "Job"), "jobs", &launcher(name)).await?
            }
        };
        if let Some(part) = part
            && object::controller_of(&part).is_some_and(|owner| object::text(owner, "uid") == uid)
        {
            parts.insert(object::uid(&part).to_owned(), attempt(&part));
        }
        let metadata = Metadata { name: name.clone(), namespace: namespace.clone(), uid };
        Ok(Job { kind, metadata, parts })
    }

    async fn history(self, wanted: Wanted) -> Result<Value, Status> {
        let job = self.job(&wanted).await?;
        let pods = self.api(&wanted.namespace, GroupVersionKind::gvk("", "v1", "Pod"), "pods")?;
        let label = match job.kind {
            Kind::TrainJob => JOBSET_NAME,
            Kind::MpiJob => LABEL_JOB_NAME,
        };
        let labels = format!("{label}={}", wanted.name);
        let live = pods.list(&ListParams::default().labels(&labels)).await.map_err(refused)?;
        let read = move || {
            let mut pods: Vec<PastPod> = Vec::new();
            let mut seen = BTreeSet::new();
            for pod in live.items {
                let mut pod = serde_json::to_value(&pod).expect("invariant: objects from the API are JSON");
                let Some(attempt) = job.attempt_of(&pod) else { continue };
                drop(pod["metadata"].as_object_mut().and_then(|meta| meta.remove("managedFields")));
                seen.insert(object::uid(&pod).to_owned());
                let containers = match self.dir(&job, object::uid(&pod)) {
                    Some(dir) => runs::of(&dir, &pod).map_err(|error| failed("a pod's journal", error))?,
                    None => Vec::new(),
                };
                pods.push(PastPod { pod, live: true, attempt, containers });
            }
            // Looked at after those that are live: what has gone meanwhile is here.
            for dir in self.gone(&job, &seen) {
                let Some(pod) = read_pod(&dir).filter(|pod| !seen.contains(object::uid(pod))) else { continue };
                let Some(attempt) = job.attempt_of(&pod) else { continue };
                seen.insert(object::uid(&pod).to_owned());
                let containers = runs::of(&dir, &pod).unwrap_or_default();
                pods.push(PastPod { pod, live: false, attempt, containers });
            }
            pods.sort_by_cached_key(|past| {
                let made = object::meta(&past.pod, "creationTimestamp").to_owned();
                // made in the same second: in the order in which they ran
                let ran =
                    past.containers.iter().flat_map(|container| &container.attempts).filter_map(|run| run.started_at);
                (past.attempt, made, ran.min(), object::meta(&past.pod, "name").to_owned())
            });
            let history = JobHistory::new(job.metadata, pods);
            Ok(serde_json::to_value(history).expect("invariant: plain data"))
        };
        tokio::task::spawn_blocking(read).await.expect("reading does not panic")
    }

    /// The events that mention a name; of thousands of others no more is read than whether they do.
    async fn events(self, wanted: Wanted) -> Result<Value, Status> {
        let Wanted { version, namespace, plural, name } = wanted;
        if version != job_history::VERSION || namespace.is_empty() || name.is_empty() {
            return Err(Status::not_found(job_history::GROUP, &plural, &name));
        }
        let source = self.server()?.1.clone();
        let read = move || {
            let (all, _) = source.list(&Gvk::new("", "v1", "Event")).unwrap_or_default();
            let mentioning = all.iter().filter(|event| event.mentions(&name)).map(|event| event.lean());
            let here = mentioning.filter(|event| object::meta(event, "namespace") == namespace);
            let items = here.map(Arc::unwrap_or_clone).collect();
            let metadata = Metadata { name, namespace, uid: String::new() };
            serde_json::to_value(JobEvents::new(metadata, items)).expect("invariant: plain data")
        };
        Ok(tokio::task::spawn_blocking(read).await.expect("reading does not panic"))
    }

    async fn log(self, wanted: Wanted, query: Query) -> Result<Text, Status> {
        let job = self.job(&wanted).await?;
        let options = options(&query)?;
        let (pod, container) = (query.text("pod").to_owned(), query.text("container").to_owned());
        let attempt = u32::try_from(query.int("attempt")?.unwrap_or(0))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let (kind, name) = (job.kind.as_str(), wanted.name.clone());
        let open = move || {
            let missing = |what: &str| Status::bad_request(format!("{kind} {name:?} has had no {what}"));
            let find = || self.dir(&job, &pod).ok_or_else(|| missing(&format!("pod with uid {pod:?}")));
            let mut dir = find()?;
            loop {
                let about = read_pod(&dir).unwrap_or_default();
                let known = runs::of(&dir, &about).map_err(|error| failed("a pod's journal", error))?;
                let mut known = known.iter().filter(|known| known.name == container).flat_map(|known| &known.attempts);
                let is_there = known.any(|run| run.attempt == attempt);
                let lines = logs::read_attempt(&dir, &container, attempt, options.clone());
                // moved away meanwhile: what was opened may be nothing
                if !dir.path().exists() {
                    dir = find()?;
                    continue;
                }
                if !is_there {
                    return Err(missing(&format!("attempt {attempt} of container {container:?} in pod {pod:?}")));
                }
                return lines.map_err(|error| failed("a log", error));
            }
        };
        let lines = tokio::task::spawn_blocking(open).await.expect("opening does not panic")?;
        // a file that cannot be read any further ends the log: there is nobody to tell in the middle of a body
        let lines = lines.take_while(|chunk| std::future::ready(chunk.is_ok()));
        Ok(lines.filter_map(|chunk| std::future::ready(chunk.ok())).boxed())
    }

    /// The directory of one of the job's pods, live or kept.
    fn dir(&self, job: &Job, pod: &str) -> Option<PodDir> {
        let is_plain = !pod.is_empty() && pod.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let live = is_plain.then(|| PodDir::of(&self.node, pod));
        let live = live.filter(|dir| read_pod(dir).is_some_and(|pod| job.attempt_of(&pod).is_some()));
        live.or_else(|| {
            self.store.sweep();
            let waiting = self.store.waiting().into_iter().filter(|dir| job.has(dir));
            // looked at after those that wait: what has been given to the job meanwhile is here
            waiting.chain(self.store.pods(&job.metadata.uid)).find(|dir| dir.uid() == pod && dir.path().exists())
        })
    }

    /// The directories of pods whose objects are gone: kept, or about to be.
    fn gone(&self, job: &Job, live: &BTreeSet<String>) -> Vec<PodDir> {
        let leaving = fs::read_dir(self.node.join("pods")).into_iter().flatten().flatten();
        let leaving = leaving.map(|entry| PodDir::new(entry.path())).filter(|dir| !live.contains(&dir.uid()));
        let mut dirs: Vec<PodDir> = leaving
            .filter(|dir| {
                // most are of other jobs: a look at the text is enough to tell
                let text = fs::read_to_string(dir.pod()).unwrap_or_default();
                job.parts.keys().any(|part| text.contains(part))
            })
            .collect();
        self.store.sweep();
        dirs.extend(self.store.waiting().into_iter().filter(|dir| job.has(dir)));
        dirs.extend(self.store.pods(&job.metadata.uid));
        dirs
    }
}

impl Job {
    /// The attempt that a pod belongs to; `None` where it is not the job's.
    fn attempt_of(&self, pod: &Value) -> Option<i64> {
        self.parts.get(part_of(pod)?).copied()
    }

    /// Whether a directory is that of a pod of the job's.
    fn has(&self, dir: &PodDir) -> bool {
        read_pod(dir).is_some_and(|pod| self.attempt_of(&pod).is_some())
    }
}

fn options(query: &Query) -> Result<LogOptions, Status> {
    let wrong = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
    let tail = query.int("tailLines")?.map(u64::try_from).transpose().map_err(|error| wrong(&error))?;
    let since = match query.text("sinceTime") {
        "" => None,
        text => Some(text.parse().map_err(|error| wrong(&error))?),
    };
    Ok(LogOptions {
        since,
        tail_lines: tail,
        timestamps: query.flag("timestamps"),
        follow: query.flag("follow"),
        ..LogOptions::default()
    })
}

impl Delegate for Evidence {
    fn group(&self) -> &'static str {
        job_history::GROUP
    }

    fn has(&self, plural: &str) -> bool {
        plural != job_history::MANAGED_JOBS
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        if wanted.plural == job_history::EVENTS {
            return Box::pin(self.clone().events(wanted));
        }
        Box::pin(self.clone().history(wanted))
    }

    fn text(&self, wanted: Wanted, subresource: &str, query: &Query) -> BoxFuture<'static, Result<Text, Status>> {
        if subresource != job_history::LOG {
            let missing = Status::not_found(job_history::GROUP, subresource, &wanted.name);
            return Box::pin(std::future::ready(Err(missing)));
        }
        Box::pin(self.clone().log(wanted, query.clone()))
    }
}
