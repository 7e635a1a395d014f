//! The node agent: follows the pods bound to its node, and runs a worker for each.

use crate::cgroup::{self, Support};
use crate::crowd::Starts;
use crate::evidence::Keep;
use crate::gpus;
use crate::identity::Peer;
use crate::link;
use crate::memory;
use crate::node_object::{self, Machine};
use crate::poddir::PodDir;
use crate::prepare::Settings;
use crate::programs;
use crate::registry::Registry;
use crate::sessions::{self, Sessions};
use crate::warm::{self, Zygotes};
use crate::wire::Isolation;
use crate::worker::{Desired, Ended, Worker};
use crate::world::{PodApi, PodEvent};
use api::node::{CONNECTED_LEASE_SECS, LEASE_SECS};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// How often the node says that it is alive, and all that it has (the kubelet's numbers).
const LEASE_INTERVAL: Duration = Duration::from_secs(10);
const NODE_STATUS_INTERVAL: Duration = Duration::from_secs(60);
/// How often it says both while it is connected, and so known to be alive.
const CONNECTED_INTERVAL: Duration = Duration::from_secs(300);
/// How soon it tries again when it is not known yet.
const REGISTER_RETRY: Duration = Duration::from_secs(1);

/// How an agent is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where pods, claims and the agent's programs live; made if it is not there. Pods' secrets are in it: keep it private.
    pub data: PathBuf,
    pub node_name: String,
    /// What runs a shim (`["/usr/bin/trainyard", "shim"]`); the pod's directory is appended.
    pub shim: Vec<OsString>,
    /// `None`: as much as the machine allows.
    pub isolation: Option<Isolation>,
    /// `None`: what the machine lends.
    pub cgroups: Option<Support>,
    /// Host and port of the API server, as pods reach it.
    pub api_server: Option<(String, u16)>,
    /// The node's address (127.0.0.1 on a machine of one).
    pub host_ip: Ipv4Addr,
    /// Bytes after which a log is rotated, and files kept.
    pub log_bytes_max: u64,
    pub log_files_max: u32,
    /// How often config maps, secrets and tokens in volumes are looked at again.
    pub refresh: Duration,
    /// Resources of the node by name, over what is found (`cpu: "64"`).
    pub capacity: BTreeMap<String, String>,
    /// The GPUs to hand out; `None`: those of the machine.
    pub gpus: Option<Vec<gpus::Gpu>>,
    /// Which of them others of this machine have for now.
    pub share: gpus::Share,
    /// Labels of the Node object, beside those that tell what the machine is.
    pub labels: BTreeMap<String, String>,
    /// Taints of effect `NoSchedule` with which the Node object is made: keys and values.
    pub taints: BTreeMap<String, String>,
    /// Variables of all pods, over those that they have from this process.
    pub environment: Vec<(String, String)>,
    /// How many pods the node takes.
    pub pods_max: u32,
    /// Whether the Node object tells of sessions over SSH.
    pub tells_sessions: bool,
    /// The Kubernetes version that the Node object names.
    pub version: String,
    /// Whether the agent is connected to a control plane that then knows that it is alive.
    pub connected: watch::Receiver<bool>,
    /// What becomes of pods whose objects are gone; `None`: nothing stays.
    pub keep: Option<Arc<dyn Keep>>,
    /// Images behind which a program of this machine stands.
    pub stand_ins: Vec<programs::StandIn>,
}

impl Config {
    /// The usual: all isolation there is, logs of 10 MiB times 5, volumes refreshed each minute.
    pub fn new(data: PathBuf, node_name: &str, shim: Vec<OsString>) -> Self {
        Self {
            data,
            node_name: node_name.to_owned(),
            shim,
            isolation: None,
            cgroups: None,
            api_server: None,
            host_ip: Ipv4Addr::LOCALHOST,
            log_bytes_max: 10 << 20,
            log_files_max: 5,
            refresh: Duration::from_secs(60),
            capacity: BTreeMap::new(),
            gpus: None,
            share: gpus::Share::default(),
            labels: BTreeMap::new(),
            taints: BTreeMap::new(),
            environment: Vec::new(),
            pods_max: 1000,
            tells_sessions: false,
            version: "v1.36.3".to_owned(),
            connected: watch::channel(false).1,
            keep: None,
            stand_ins: Vec::new(),
        }
    }
}

/// A moment by both clocks: that of the wall, and the monotonic one, which stands still while a machine sleeps.
#[derive(Clone, Copy)]
struct Moment {
    wall: Timestamp,
    monotonic: std::time::Instant,
}

impl Moment {
    fn now() -> Self {
        Self { wall: clock::now(), monotonic: std::time::Instant::now() }
    }

    /// Whether more or less time has passed since then by the one clock than by the other: the machine slept, or its clock was corrected.
    fn has_jumped(&self) -> bool {
        let wall = clock::now().duration_since(self.wall);
        let monotonic = SignedDuration::try_from(self.monotonic.elapsed()).unwrap_or(SignedDuration::MAX);
        wall.saturating_sub(monotonic).unsigned_abs() > LEASE_INTERVAL.saturating_mul(2)
    }
}

/// What the agent and its workers share.
#[derive(Debug)]
pub struct Shared<W> {
    pub config: Config,
    pub settings: Settings,
    pub cgroups: Support,
    pub world: W,
    registry: Mutex<Registry>,
    pub(crate) starts: Starts,
}

impl<W> Shared<W> {
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().expect("invariant: nothing panics while it holds the registry")
    }
}

/// What a machine has for pods.
#[derive(Clone, Debug)]
struct Found {
    isolation: Isolation,
    gpus: Vec<gpus::Gpu>,
    cgroups: Support,
}

/// Makes the data directory, and finds out what the configuration leaves open.
async fn look(config: Config) -> io::Result<(Config, Found)> {
    for dir in ["pods", "claims", "probe"] {
        fs::create_dir_all(config.data.join(dir))?;
    }
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(config.data.join("pods"), fs::Permissions::from_mode(0o700))?;
    let data = config.data.canonicalize()?;
    let config = Config { data, ..config };
    let isolation = async {
        match &config.isolation {
            Some(isolation) => Ok(isolation.clone()),
            None => link::probe(&config.shim, &config.data.join("probe")).await,
        }
    };
    let gpus = async {
        match &config.gpus {
            Some(gpus) => gpus.clone(),
            None => gpus::detect().await,
        }
    };
    let (isolation, gpus) = tokio::join!(isolation, gpus);
    let cgroups = match &config.cgroups {
        Some(cgroups) => cgroups.clone(),
        None => cgroup::detect(&config.data),
    };
    Ok((config, Found { isolation: isolation?, gpus, cgroups }))
}

/// Finds out what the configuration leaves open, and notes it there: a start that has other work meanwhile need not wait for it.
///
/// # Errors
/// The data directory cannot be used, or the shim program does not run.
pub async fn looked(config: Config) -> io::Result<Config> {
    let (config, Found { isolation, gpus, cgroups }) = look(config).await?;
    Ok(Config { isolation: Some(isolation), gpus: Some(gpus), cgroups: Some(cgroups), ..config })
}

/// A node agent, ready to run.
#[derive(Debug)]
pub struct Agent<W> {
    shared: Arc<Shared<W>>,
    /// What the machine has; for the Node object.
    pub gpus: Vec<gpus::Gpu>,
}

impl<W: PodApi> Agent<W> {
    /// Looks at the machine and takes over what earlier agents left in the data directory.
    ///
    /// # Errors
    /// The data directory cannot be used, or the shim program does not run.
    pub async fn new(config: Config, world: W) -> io::Result<Self> {
        let (config, Found { isolation, gpus, cgroups }) = look(config).await?;
        let bin = config.data.join("bin");
        programs::make(&bin, &config.shim)?;
        if let Isolation::Plain { why } = &isolation
            && !why.is_empty()
        {
            tracing::warn!(
                why,
                "this machine refuses namespaces: pods run without names and paths of their own; peers are reached as \
                 127.0.0.1, and mount paths are rewritten in commands and environments"
            );
        }
        let own = std::env::vars().chain(config.environment.iter().cloned());
        let settings = Settings {
            cgroup: cgroups.group.clone(),
            data: config.data.clone(),
            machine_hosts: hosts_of_container(&isolation),
            isolation,
            host_ip: config.host_ip,
            api_server: config.api_server.clone(),
            domain: "cluster.local".to_owned(),
            log_bytes_max: config.log_bytes_max,
            log_files_max: config.log_files_max,
            has_gpus: !gpus.is_empty(),
            cpu_milli: i64::try_from(crate::host::cpus()).unwrap_or(i64::MAX).saturating_mul(1000),
            memory_bytes: i64::try_from(crate::host::memory_bytes()).unwrap_or(i64::MAX),
            base_env: programs::base_environment(&bin, config.host_ip, own),
            stand_ins: config.stand_ins.clone(),
        };
        let indices: BTreeSet<u32> = gpus.iter().map(|gpu| gpu.index).collect();
        let mut registry = Registry::new(&config.data, &settings.domain, indices, config.share.clone());
        registry.name_in(settings.machine_hosts.clone());
        if let Some(group) = &cgroups.group {
            cgroup::clear(group, |uid| PodDir::of(&config.data, uid).path().exists());
        }
        for dir in pod_dirs(&config)? {
            match dir.read_held() {
                Ok(Some(held)) => registry.adopt(&held),
                Ok(None) => {}
                Err(error) => tracing::warn!(dir = %dir.path().display(), %error, "cannot read a launch description"),
            }
        }
        let shared =
            Shared { config, settings, cgroups, world, registry: Mutex::new(registry), starts: Starts::default() };
        Ok(Self { shared: Arc::new(shared), gpus })
    }

    /// What pods get on this machine.
    pub fn isolation(&self) -> &Isolation {
        &self.shared.settings.isolation
    }

    /// Follows the node's pods until `stop`. Pods go on running when it returns: their shims do not need an agent.
    ///
    /// # Guarantees
    /// A pod is started at most once, by this or any other agent with the same data directory. What happened to it is
    /// reported sooner or later, also when it happened while no agent ran.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = self.keep_registered() => {}
            () = self.follow_pods(stop) => {}
            () = self.keep_warm() => {}
            () = memory::watch(&self.shared.config.data) => {}
        }
    }

    /// Answers the launchers of warm starts, forever; without it they start cold.
    async fn keep_warm(&self) {
        let error = match Zygotes::new(warm::directory(&self.shared.config.data)) {
            Ok(zygotes) => zygotes.serve().await,
            Err(error) => error,
        };
        tracing::warn!(%error, "no warm starts: all starts are cold");
        std::future::pending().await
    }

    /// Keeps the Node object and its lease fresh, forever.
    async fn keep_registered(&self) {
        let world = &self.shared.world;
        let mut registered: Option<Instant> = None;
        let mut renewed = Moment::now();
        let mut logins = match self.shared.config.tells_sessions {
            false => None,
            true => {
                let logins = Sessions::follow();
                logins.inspect_err(|error| tracing::warn!(%error, "sessions over SSH are not seen")).ok()
            }
        };
        let count = |logins: &Option<Sessions>| logins.is_some().then(sessions::count);
        // what the Node object is to tell at once
        let now = |logins: &Option<Sessions>| (count(logins), self.lent());
        let mut told = now(&logins);
        let mut connected = self.shared.config.connected.clone();
        let mut reconnected = false;
        loop {
            // It may have been given up before it was connected again, while the machine slept, or because a clock was wrong.
            let anew = renewed.has_jumped() || registered.is_none() || reconnected;
            let (lease_interval, status_interval, valid) = match *connected.borrow_and_update() {
                true => (CONNECTED_INTERVAL, CONNECTED_INTERVAL, CONNECTED_LEASE_SECS),
                false => (LEASE_INTERVAL, NODE_STATUS_INTERVAL, LEASE_SECS),
            };
            if anew || registered.is_none_or(|at| at.elapsed() >= status_interval) || told != now(&logins) {
                told = now(&logins);
                registered = self.register(told).await;
            }
            if anew || renewed.monotonic.elapsed() >= lease_interval {
                match world.renew_lease(valid).await {
                    // Who had been given up is taken for dead again if the status comes before the lease.
                    Ok(()) if anew && registered.is_some() => registered = self.register(told).await,
                    Ok(()) => {}
                    Err(error) => {
                        // it may be given up by the time that a renewal succeeds
                        registered = None;
                        tracing::warn!(%error, "cannot renew the node's lease; trying again");
                    }
                }
                renewed = Moment::now();
            }
            let left = lease_interval.saturating_sub(renewed.monotonic.elapsed());
            let pause = if registered.is_some() { left } else { REGISTER_RETRY };
            let changed = async {
                match &mut logins {
                    Some(logins) => logins.changed().await,
                    None => std::future::pending().await,
                }
            };
            let connects = async {
                if connected.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            let jumps = async {
                while !renewed.has_jumped() {
                    tokio::time::sleep(LEASE_INTERVAL).await;
                }
            };
            reconnected = false;
            tokio::select! {
                () = jumps => {}
                () = tokio::time::sleep(pause) => {}
                () = changed => {}
                () = connects => reconnected = true,
                () = self.shared.config.share.changed() => {}
            }
        }
    }

    /// How many of its GPUs others have.
    fn lent(&self) -> usize {
        let parts = self.shared.config.share.parts();
        self.gpus.iter().filter(|gpu| parts.lent.contains(&gpu.index)).count()
    }

    /// Writes the Node object, with the sessions over SSH and the GPUs that are lent; when, or `None` where that failed.
    async fn register(&self, (sessions, gpus_lent): (Option<usize>, usize)) -> Option<Instant> {
        let Shared { config, settings, cgroups, world, .. } = &*self.shared;
        let machine = Machine {
            name: &config.node_name,
            host_ip: config.host_ip,
            data: &config.data,
            gpus: &self.gpus,
            gpus_lent,
            isolation: &settings.isolation,
            limits: &cgroups.limits,
            capacity: &config.capacity,
            labels: &config.labels,
            taints: &config.taints,
            pods_max: config.pods_max,
            sessions,
            version: &config.version,
        };
        let written = world.put_node(node_object::node(&machine, clock::now())).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "cannot register the node; trying again");
        }
        written.is_ok().then(Instant::now)
    }

    async fn follow_pods(&self, stop: CancellationToken) {
        let mut pods = self.shared.world.pods();
        let mut workers = Workers {
            shared: Arc::clone(&self.shared),
            known: BTreeMap::new(),
            resting: BTreeSet::new(),
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                event = pods.next() => match event {
                    Some(event) => workers.on_event(event),
                    None => break,
                },
                Some(ended) = workers.tasks.join_next_with_id() => workers.on_end(ended),
            }
        }
        workers.tasks.shutdown().await;
    }
}

/// The hosts file of the container that the agent runs in, if pods have none of their own: a kubelet made it for this container alone.
fn hosts_of_container(isolation: &Isolation) -> Option<PathBuf> {
    let path = PathBuf::from("/etc/hosts");
    let is_in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let is_writable = || fs::OpenOptions::new().write(true).open(&path).is_ok();
    (!isolation.is_hosts() && is_in_pod && is_writable()).then_some(path)
}

/// The directories of all pods that were ever started here and not cleaned up.
fn pod_dirs(config: &Config) -> io::Result<Vec<PodDir>> {
    fs::read_dir(config.data.join("pods"))?.map(|entry| Ok(PodDir::new(entry?.path()))).collect()
}

struct Workers<W> {
    shared: Arc<Shared<W>>,
    known: BTreeMap<String, watch::Sender<Desired>>,
    /// Pods that have ended and are told of: they keep their names, and get a worker again when they are to go.
    resting: BTreeSet<String>,
    tasks: JoinSet<Ended>,
    /// The pod that each task is for.
    names: BTreeMap<task::Id, String>,
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

impl<W: PodApi> Workers<W> {
    fn on_event(&mut self, event: PodEvent) {
        match event {
            PodEvent::Applied(pod) => self.apply(pod),
            PodEvent::Deleted(pod) => self.gone(&uid(&pod), Some(&pod)),
            PodEvent::All(pods) => {
                let there: BTreeSet<String> = pods.iter().map(|pod| uid(pod)).collect();
                // Names first: the pods of a job that are there already know each other from the start.
                pods.iter().filter(|pod| self.is_ours(pod)).for_each(|pod| drop(self.enter(pod)));
                pods.into_iter().for_each(|pod| self.apply(pod));
                let lost: Vec<String> = self.known.keys().filter(|uid| !there.contains(*uid)).cloned().collect();
                lost.iter().for_each(|uid| self.gone(uid, None));
                // what is left of them is found in their directories
                for uid in self.resting.extract_if(.., |uid| !there.contains(uid)) {
                    self.shared.registry().leave(&uid);
                }
                self.clear_leftovers(&there);
            }
        }
    }

    /// Whether the pod needs a worker: it is not over, or something of it is still here.
    fn is_ours(&self, pod: &Pod) -> bool {
        let uid = uid(pod);
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        let is_over = phase == "Succeeded" || phase == "Failed";
        !uid.is_empty()
            && (!is_over
                || pod.metadata.deletion_timestamp.is_some()
                || PodDir::of(&self.shared.config.data, &uid).path().exists())
    }

    fn enter(&self, pod: &Pod) -> Peer {
        self.shared.registry().enter(pod)
    }

    fn apply(&mut self, pod: Arc<Pod>) {
        let uid = uid(&pod);
        let desired = Desired { pod, gone: false };
        match self.known.get(&uid) {
            Some(sender) => {
                self.shared.registry().rename(&desired.pod);
                drop(sender.send(desired));
            }
            None if self.resting.contains(&uid) && !desired.is_ending() => {}
            None if self.is_ours(&desired.pod) => self.spawn(uid, desired),
            None => {}
        }
    }

    /// Gives the pod a worker.
    fn spawn(&mut self, uid: String, desired: Desired) {
        self.resting.remove(&uid);
        let pod = Arc::clone(&desired.pod);
        let peer = self.enter(&pod);
        let (sender, desired) = watch::channel(desired);
        self.known.insert(uid.clone(), sender);
        let span = tracing::info_span!(
            "pod",
            namespace = pod.metadata.namespace.as_deref().unwrap_or_default(),
            name = pod.metadata.name.as_deref().unwrap_or_default(),
            uid
        );
        let worker = Worker::new(Arc::clone(&self.shared), &uid, peer, desired);
        let task = self.tasks.spawn(worker.run().instrument(span));
        self.names.insert(task.id(), uid);
    }

    /// The pod object is gone, `last` seen like this: the worker stops what runs and cleans up.
    fn gone(&mut self, uid: &str, last: Option<&Arc<Pod>>) {
        if let Some(sender) = self.known.get(uid) {
            sender.send_modify(|desired| {
                desired.gone = true;
                if let Some(last) = last {
                    desired.pod = Arc::clone(last);
                }
            });
        } else if let Some(last) = last.filter(|_| self.resting.contains(uid)) {
            self.spawn(uid.to_owned(), Desired { pod: Arc::clone(last), gone: true });
        }
    }

    /// Pods that vanished while no agent looked: what runs of them is stopped, their directories are removed.
    fn clear_leftovers(&mut self, there: &BTreeSet<String>) {
        let dirs = match pod_dirs(&self.shared.config) {
            Ok(dirs) => dirs,
            Err(error) => return tracing::warn!(%error, "cannot list the pods' directories"),
        };
        for dir in dirs {
            let uid = dir.uid();
            if there.contains(&uid) || self.known.contains_key(&uid) {
                continue;
            }
            let stored = fs::read(dir.pod()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let stored = stored.and_then(|pod: serde_json::Value| serde_json::from_value::<Pod>(pod).ok());
            match stored {
                Some(pod) => self.spawn(uid, Desired { pod: Arc::new(pod), gone: true }),
                None => {
                    // It never got as far as a shim.
                    if let Err(error) = dir.remove() {
                        tracing::warn!(dir = %dir.path().display(), %error, "cannot remove a pod's directory");
                    }
                }
            }
        }
    }

    fn on_end(&mut self, ended: Result<(task::Id, Ended), task::JoinError>) {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let Some(uid) = self.names.remove(&id) else { return };
        let last = self.known.remove(&uid).map(|sender| sender.borrow().clone());
        match (ended, last) {
            (Err(error), Some(desired)) if error.is_panic() => {
                // Whatever it was, it is one pod's trouble: a new worker looks at the directory afresh.
                tracing::error!(pod.uid = uid, %error, "a pod's worker died");
                self.spawn(uid, desired);
            }
            // it is to go since the worker's last look
            (Ok((_, Ended::Rests)), Some(desired)) if desired.is_ending() => self.spawn(uid, desired),
            (Ok((_, Ended::Rests)), _) => _ = self.resting.insert(uid),
            _ => self.shared.registry().leave(&uid),
        }
    }
}
