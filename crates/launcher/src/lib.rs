//! The controller of Launches.
//!
//! Carries out what `managed::launch::step` says about each Launch: finds a place, makes the Cluster, puts files onto its machines and
//! submits the job. No client need wait for it.
//!
//! Each Launch has a task that reads what there is, does one step and notes it. A step that was done and not noted is done again.

mod look;
mod sweep;
mod work;

pub use look::{Asked, Eyes};

use api::object;
use api::sky::{Cluster, Launch, LaunchPhase, cluster_gvk, keys, launch_gvk, machine_gvk};
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use managed::jobs::{Job, jobs};
use managed::launch::step::{self, RENEWED, Seen, Step, failed, step};
use managed::names::object_name;
use placement::Catalogue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause after the API server could not be asked.
const API_RETRY: Duration = Duration::from_millis(500);

/// Where the control plane keeps and finds things.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The user's home, with `~/.sky`.
    pub home: PathBuf,
    /// The kubeconfig of the control plane itself, whose cluster is none to make machines on.
    pub kubeconfig: PathBuf,
    /// The folder of files that are kept by content.
    pub files: PathBuf,
}

/// Makes a client that reaches the API server through a socket: commands in pods need one.
pub type BySocket = Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<Client>> + Send + Sync>;

/// Follows all Launches.
#[derive(Clone)]
pub struct Launcher {
    client: Client,
    by_socket: BySocket,
    eyes: Eyes,
}

/// A Launch that is followed.
struct Followed {
    uid: String,
    /// The name of the Cluster that it is about.
    cluster: String,
    wake: Arc<Notify>,
}

/// Launches by namespace and name.
type Known = BTreeMap<(String, String), Followed>;

fn api(client: &Client, namespace: &str, gvk: &object::Gvk) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource(gvk))
}

fn resource(gvk: &object::Gvk) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind))
}

/// What a typed object says, or why it cannot be read.
fn typed<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Result<(Value, T), serde_json::Error> {
    let value = serde_json::to_value(object)?;
    let read = serde_json::from_value(value.clone())?;
    Ok((value, read))
}

/// One Launch, as its task has it.
struct Kept<'a> {
    launcher: &'a Launcher,
    namespace: &'a str,
    name: &'a str,
    /// Read when it is needed: price lists are large.
    catalogue: OnceCell<Arc<Catalogue>>,
}

/// Why a step did not come to its end.
enum Trouble {
    /// The API server could not be asked: the step is done again.
    Api(kube::Error),
    /// The launch fails with this message.
    Fails(String),
}

impl From<kube::Error> for Trouble {
    /// What is refused, as invalid or for lack of a right or a quota, would be refused again.
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status)
                if matches!(status.code, 400..500) && !matches!(status.code, 404 | 408 | 409 | 429) =>
            {
                Self::Fails(format!("the control plane refuses an object of the launch: {}", status.message))
            }
            error => Self::Api(error),
        }
    }
}

impl From<managed::launch::Refused> for Trouble {
    fn from(refused: managed::launch::Refused) -> Self {
        Self::Fails(refused.to_string())
    }
}

impl Launcher {
    /// The controller of all Launches.
    pub fn new(client: Client, by_socket: BySocket, eyes: Eyes) -> Self {
        Self { client, by_socket, eyes }
    }

    /// Works until `stop`. A step that is under way then is dropped; the next run does it again.
    pub async fn run(self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        let sweeps = self.clone();
        tasks.spawn(async move { sweeps.sweep().await });
        let all = |gvk: &object::Gvk| {
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource(gvk));
            watcher(api, watcher::Config::default())
        };
        let launches = all(&launch_gvk()).map(|event| (true, event)).boxed();
        let clusters = all(&cluster_gvk()).map(|event| (false, event)).boxed();
        let mut events = pin!(stream::select(launches, clusters));
        let mut known = Known::new();
        loop {
            let (is_launch, event) = tokio::select! {
                () = stop.cancelled() => break,
                event = events.next() => match event {
                    Some(event) => event,
                    None => break,
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) if is_launch => {
                    self.follow(&object, &mut known, &mut tasks);
                }
                Ok(watcher::Event::Delete(object)) if is_launch => {
                    let gone = known.remove(&(object.namespace().unwrap_or_default(), object.name_any()));
                    gone.inspect(|gone| gone.wake.notify_one());
                }
                Ok(
                    watcher::Event::Apply(object) | watcher::Event::InitApply(object) | watcher::Event::Delete(object),
                ) => {
                    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                    let about = known.iter().filter(|(at, one)| at.0 == namespace && one.cluster == name);
                    about.for_each(|(_, one)| one.wake.notify_one());
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) => {}
                Err(error) => {
                    tracing::warn!(%error, "watching launches; trying again");
                    tokio::time::sleep(API_RETRY).await;
                }
            }
        }
        tasks.shutdown().await;
    }

    fn follow(&self, object: &DynamicObject, known: &mut Known, tasks: &mut JoinSet<()>) {
        let at = (object.namespace().unwrap_or_default(), object.name_any());
        let uid = object.uid().unwrap_or_default();
        match known.get(&at) {
            Some(one) if one.uid == uid => one.wake.notify_one(),
            _ => {
                let wake = Arc::new(Notify::new());
                let cluster = object_name(object.data["spec"]["cluster"].as_str().unwrap_or_default());
                known.insert(at.clone(), Followed { uid: uid.clone(), cluster, wake: wake.clone() });
                let launcher = self.clone();
                tasks.spawn(async move {
                    let mut kept =
                        Kept { launcher: &launcher, namespace: &at.0, name: &at.1, catalogue: OnceCell::new() };
                    kept.keep(&uid, &wake).await;
                });
            }
        }
    }
}

impl Kept<'_> {
    fn api(&self, gvk: &object::Gvk) -> Api<DynamicObject> {
        api(&self.launcher.client, self.namespace, gvk)
    }

    fn core(&self, kind: &str) -> Api<DynamicObject> {
        self.api(&object::Gvk::new("", "v1", kind))
    }

    /// Does what is to be done about the launch until its object is gone, or nothing more is to be done.
    async fn keep(&mut self, uid: &str, wake: &Notify) {
        loop {
            let object = match self.api(&launch_gvk()).get_opt(self.name).await {
                Ok(Some(object)) if object.uid().as_deref() == Some(uid) => object,
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, launch = self.name, "cannot read a launch; trying again");
                    tokio::time::sleep(API_RETRY).await;
                    continue;
                }
            };
            let launch = match typed::<Launch>(&object) {
                Ok((_, launch)) => launch,
                Err(error) => {
                    tracing::error!(%error, launch = self.name, "a launch that cannot be read; left alone");
                    wake.notified().await;
                    continue;
                }
            };
            match self.advance(&object, &launch).await {
                Ok(Next::Again) => {}
                Ok(Next::Wait) => {
                    let _ = tokio::time::timeout(RENEWED, wake.notified()).await;
                    self.renew(&launch).await;
                }
                Ok(Next::Rest) => {
                    drop(self.catalogue.take());
                    wake.notified().await;
                }
                Err(Trouble::Api(error)) => {
                    tracing::warn!(%error, launch = self.name, "cannot go on with a launch; trying again");
                    tokio::time::sleep(API_RETRY).await;
                }
                Err(Trouble::Fails(message)) => {
                    if let Err(error) = self.note(&launch, &failed(&launch, &message, Timestamp::now())).await {
                        tracing::warn!(%error, launch = self.name, "cannot note why a launch failed; trying again");
                        tokio::time::sleep(API_RETRY).await;
                    }
                }
            }
        }
    }

    /// Does one step.
    async fn advance(&self, object: &DynamicObject, launch: &Launch) -> Result<Next, Trouble> {
        let cluster = self.cluster(launch).await?;
        let read = cluster.as_ref().map(|(object, read)| (object, read));
        let is_over = launch.status.phase.is_over() || launch.metadata.deletion_timestamp.is_some();
        let mut task =
            if is_over { sky_task() } else { managed::launch::task_of(launch, &*self.catalogue(launch).await?)? };
        let (size, jobs) = match (read, launch.status.phase) {
            (Some((_, cluster)), LaunchPhase::Pending) if !is_over => {
                (Some(self.size(cluster).await?), self.jobs(launch).await?)
            }
            (Some(_), LaunchPhase::Submitting) if !is_over => (None, self.jobs(launch).await?),
            _ => (None, Vec::new()),
        };
        let seen = Seen { launch, task: &task, cluster: read, size, jobs: &jobs, now: Timestamp::now() };
        match (step(&seen), read) {
            (Step::Rest, _) => return Ok(Next::Rest),
            (Step::Wait(status), _) => {
                self.note(launch, &status).await?;
                return Ok(Next::Wait);
            }
            (Step::Note(status), _) => {
                self.note(launch, &status).await?;
                if status.phase == LaunchPhase::Failed {
                    self.drop_secret(launch).await?;
                }
            }
            (Step::Place, _) => self.place(launch, &mut task).await?,
            (Step::Take { patch, is_set_up }, Some((cluster, _))) => {
                let taken = self.take(cluster, &patch).await?;
                self.note(launch, &step::taken(launch, &taken, is_set_up)).await?;
            }
            (Step::Send, Some((cluster, read))) => {
                self.send(launch, cluster, read).await?;
                self.note(launch, &step::sent(launch)).await?;
            }
            (Step::Submit, Some((cluster, read))) => {
                let id = self.submit(launch, &task, (cluster, read), &jobs).await?;
                self.note(launch, &step::submitted(launch, id, Timestamp::now())).await?;
            }
            (Step::Abandon, Some((cluster, _))) => self.abandon(cluster).await?,
            (Step::Release, _) => {
                self.drop_secret(launch).await?;
                self.release(object).await?;
            }
            (Step::Take { .. } | Step::Send | Step::Submit | Step::Abandon, None) => {}
        }
        Ok(Next::Again)
    }

    /// The Cluster of the launch's name.
    async fn cluster(&self, launch: &Launch) -> Result<Option<(Value, Cluster)>, Trouble> {
        let name = object_name(&launch.spec.cluster);
        let found = self.api(&cluster_gvk()).get_opt(&name).await?;
        let unreadable = |error| Trouble::Fails(format!("cluster {name} cannot be read: {error}"));
        found.as_ref().map(typed).transpose().map_err(unreadable)
    }

    async fn jobs(&self, launch: &Launch) -> Result<Vec<Job>, kube::Error> {
        let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, object_name(&launch.spec.cluster)));
        let list = self.api(&::api::jobset::gvk()).list(&wanted).await?;
        let values: Vec<Value> = list.iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
        Ok(jobs(&values))
    }

    /// Writes a status, unless it is there.
    async fn note(&self, launch: &Launch, status: &api::sky::LaunchStatus) -> Result<(), kube::Error> {
        if *status == launch.status {
            return Ok(());
        }
        // fields that are at their default are taken away
        let mut body = serde_json::to_value(&launch.status).unwrap_or_default();
        body.as_object_mut().into_iter().flatten().for_each(|(_, value)| *value = Value::Null);
        let fresh = serde_json::to_value(status).unwrap_or_default();
        for (name, value) in fresh.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let patch = json!({"metadata": {"uid": launch.metadata.uid}, "status": body});
        self.api(&launch_gvk()).patch_status(self.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Puts off the time at which the cluster of a launch that is under way would stop by itself.
    async fn renew(&self, launch: &Launch) {
        let Some(held) = step::held(launch, Timestamp::now()).filter(|_| !launch.status.cluster_uid.is_empty()) else {
            return;
        };
        let patch = json!({"metadata": {"uid": launch.status.cluster_uid}, "spec": {"autostop": held}});
        let name = object_name(&launch.spec.cluster);
        // where it fails, the next one comes early enough
        if let Err(error) = self.api(&cluster_gvk()).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            tracing::debug!(%error, launch = self.name, "cannot renew the time of the autostop setting");
        }
    }

    fn machines(&self) -> Api<DynamicObject> {
        self.api(&machine_gvk())
    }
}

/// A task that asks for nothing, for a launch about which no task matters any more.
fn sky_task() -> sky::Task {
    let empty = sky::value::Value::Map(sky::value::Map::new());
    let none = sky::Task::read(empty, &sky::Given::default(), sky::Reader::Server, &Catalogue::default());
    none.expect("a task may be empty")
}

/// When to look at a launch again.
enum Next {
    Again,
    /// When it or its cluster has changed.
    Wait,
    /// When it has changed.
    Rest,
}
