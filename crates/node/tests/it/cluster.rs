//! A cluster that is a map, and a node whose agent can be killed and started again.

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use node::agent::{Agent, Config};
use node::logs::{self, LogOptions};
use node::poddir::PodDir;
use node::wire::Isolation;
use node::world::{EventType, PodApi, PodEvent, TokenAsk, WorldError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const PATIENCE: Duration = Duration::from_secs(30);

static UIDS: AtomicU64 = AtomicU64::new(0);

/// A uid that no other test has: an agent ends every process that bears its pod's uid, and tests run beside each other.
fn unique_uid(name: &str) -> String {
    format!("uid-{name}-{}-{}", std::process::id(), UIDS.fetch_add(1, Ordering::Relaxed))
}

#[derive(Default)]
struct Objects {
    pods: BTreeMap<String, Value>,
    config_maps: BTreeMap<String, ConfigMap>,
    config_maps_read: usize,
    /// How many of the next questions for ConfigMaps are not answered, and when they were asked.
    faults: usize,
    faulted: Vec<Instant>,
    secrets: BTreeMap<String, Secret>,
    events: Vec<(String, String, String)>,
    node: Value,
}

#[derive(Clone)]
pub struct Cluster {
    objects: Arc<Mutex<Objects>>,
    changes: broadcast::Sender<PodEvent>,
    revision: Arc<watch::Sender<u64>>,
}

fn typed(pod: &Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(pod.clone()).unwrap())
}

impl Cluster {
    fn new() -> Self {
        Self { objects: Arc::default(), changes: broadcast::channel(10_000).0, revision: Arc::new(watch::channel(0).0) }
    }

    fn change<T>(&self, f: impl FnOnce(&mut Objects, &mut Vec<PodEvent>) -> T) -> T {
        let mut objects = self.objects.lock().unwrap();
        let mut events = Vec::new();
        let result = f(&mut objects, &mut events);
        for event in events {
            let _ = self.changes.send(event);
        }
        self.revision.send_modify(|r| *r += 1);
        result
    }

    pub fn create(&self, name: &str, spec: Value) {
        self.create_with(name, json!({}), spec);
    }

    pub fn create_with(&self, name: &str, labels: Value, spec: Value) {
        self.change(|objects, events| {
            let uid = unique_uid(name);
            let pod = json!({
                "metadata": {"name": name, "namespace": "default", "uid": uid, "labels": labels, "generation": 1},
                "spec": spec, "status": {"phase": "Pending"}
            });
            events.push(PodEvent::Applied(typed(&pod)));
            objects.pods.insert(name.to_owned(), pod);
        });
    }

    pub fn config_map(&self, name: &str, data: Value) {
        let map = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
        self.change(|objects, _| objects.config_maps.insert(name.to_owned(), map));
    }

    pub fn secret(&self, name: &str, data: &str) {
        let secret = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": data}})).unwrap();
        self.change(|objects, _| objects.secrets.insert(name.to_owned(), secret));
    }

    /// The next so many questions for ConfigMaps are not answered.
    pub fn fail_config_maps(&self, times: usize) {
        self.change(|objects, _| objects.faults = times);
    }

    /// When such questions were asked.
    pub fn faulted(&self) -> Vec<Instant> {
        self.objects.lock().unwrap().faulted.clone()
    }

    /// How often somebody has asked for a ConfigMap.
    pub fn config_maps_read(&self) -> usize {
        self.objects.lock().unwrap().config_maps_read
    }

    pub fn node(&self) -> Value {
        self.objects.lock().unwrap().node.clone()
    }

    /// As `kubectl delete`.
    pub fn delete(&self, name: &str, grace_secs: i64) {
        self.change(|objects, events| {
            if let Some(pod) = objects.pods.get_mut(name) {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace_secs);
                events.push(PodEvent::Applied(typed(pod)));
            }
        });
    }

    /// As another controller that writes the pod's status.
    pub fn declare(&self, name: &str, status: Value) {
        self.change(|objects, events| {
            if let Some(pod) = objects.pods.get_mut(name) {
                for (key, value) in status.as_object().unwrap() {
                    pod["status"][key] = value.clone();
                }
                events.push(PodEvent::Applied(typed(pod)));
            }
        });
    }

    /// As a deletion with force.
    pub fn vanish(&self, name: &str) {
        self.change(|objects, events| {
            if let Some(pod) = objects.pods.remove(name) {
                events.push(PodEvent::Deleted(typed(&pod)));
            }
        });
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        self.objects.lock().unwrap().pods.get(name).cloned()
    }

    pub fn events(&self, name: &str) -> Vec<(String, String)> {
        let objects = self.objects.lock().unwrap();
        let events = objects.events.iter().filter(|(pod, _, _)| pod == name);
        events.map(|(_, reason, message)| (reason.clone(), message.clone())).collect()
    }

    /// Waits until the pod (`null` if it is gone) is as wanted.
    pub async fn until(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut revision = self.revision.subscribe();
        let result = tokio::time::timeout(PATIENCE, async {
            loop {
                revision.borrow_and_update();
                let pod = self.pod(name).unwrap_or(Value::Null);
                if wanted(&pod) {
                    return pod;
                }
                revision.changed().await.unwrap();
            }
        });
        match result.await {
            Ok(pod) => pod,
            Err(_) => {
                panic!("pod {name} stays as it is: {:#}\n{:?}", self.pod(name).unwrap_or_default(), self.events(name))
            }
        }
    }

    /// Waits for an event about the pod: reason and message.
    pub async fn until_event(&self, name: &str, wanted: impl Fn(&(String, String)) -> bool) {
        let _ = self.until(name, |_| self.events(name).iter().any(&wanted)).await;
    }

    pub async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, |pod| pod["status"]["phase"] == phase).await
    }
}

impl PodApi for Cluster {
    fn pods(&self) -> BoxStream<'static, PodEvent> {
        let objects = self.objects.lock().unwrap();
        let changes = self.changes.subscribe();
        let all = PodEvent::All(objects.pods.values().map(typed).collect());
        let changes =
            futures::stream::unfold(changes, |mut changes| async { Some((changes.recv().await.ok()?, changes)) });
        futures::stream::once(async { all }).chain(changes).boxed()
    }

    async fn patch_status(&self, pod: &Pod, status: Value) -> Result<(), WorldError> {
        self.change(|objects, events| {
            let stored = objects.pods.get_mut(pod.metadata.name.as_ref().unwrap());
            let stored =
                stored.filter(|p| p["metadata"]["uid"] == json!(pod.metadata.uid)).ok_or(WorldError::NotFound)?;
            for (key, value) in status.as_object().unwrap() {
                stored["status"][key] = value.clone();
            }
            events.push(PodEvent::Applied(typed(stored)));
            Ok(())
        })
    }

    async fn delete_pod(&self, pod: &Pod) -> Result<(), WorldError> {
        self.vanish(pod.metadata.name.as_ref().unwrap());
        Ok(())
    }

    async fn config_map(&self, _: &str, name: &str) -> Result<ConfigMap, WorldError> {
        let mut objects = self.objects.lock().unwrap();
        objects.config_maps_read += 1;
        if objects.faults > 0 {
            objects.faults -= 1;
            objects.faulted.push(Instant::now());
            return Err(WorldError::Failed { what: "made up".to_owned(), why: "a fault".to_owned() });
        }
        objects.config_maps.get(name).cloned().ok_or(WorldError::NotFound)
    }

    fn config_map_changes(&self, _: &str, name: &str) -> BoxStream<'static, ConfigMap> {
        // also where something else has changed: what is shown again stays as it is
        let (objects, name) = (Arc::clone(&self.objects), name.to_owned());
        let revision = self.revision.subscribe();
        futures::stream::unfold((revision, objects, name), |(mut revision, objects, name)| async move {
            loop {
                revision.changed().await.ok()?;
                let found = objects.lock().unwrap().config_maps.get(&name).cloned();
                if let Some(found) = found {
                    return Some((found, (revision, objects, name)));
                }
            }
        })
        .boxed()
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Secret, WorldError> {
        self.objects.lock().unwrap().secrets.get(name).cloned().ok_or(WorldError::NotFound)
    }

    async fn token(&self, ask: &TokenAsk) -> Result<String, WorldError> {
        Ok(format!("token of {} for {}", ask.service_account, ask.pod_name))
    }

    async fn put_node(&self, node: Value) -> Result<(), WorldError> {
        self.change(|objects, _| objects.node = node);
        Ok(())
    }

    async fn renew_lease(&self, _: i32) -> Result<(), WorldError> {
        Ok(())
    }

    async fn event(&self, pod: &Pod, _: EventType, reason: &str, message: &str) {
        let name = pod.metadata.name.clone().unwrap();
        self.change(|objects, _| objects.events.push((name, reason.to_owned(), message.to_owned())));
    }
}

/// A node; its data directory is removed with it, its pods are killed.
pub struct Node {
    pub cluster: Cluster,
    pub config: Config,
    pub isolation: Option<Isolation>,
    agent: Option<(JoinHandle<()>, CancellationToken)>,
    _tmp: tempfile::TempDir,
}

impl Node {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A node whose pods have names and paths of their own; `None`, with a word, where the kernel refuses that (no root
    /// and no user namespaces).
    pub async fn hosts() -> Option<Self> {
        Self::hosts_with(|_| {}).await
    }

    pub async fn hosts_with(change: impl FnOnce(&mut Config)) -> Option<Self> {
        let node = Self::with(change).await;
        let is_hosts = node.isolation.as_ref().is_some_and(Isolation::is_hosts);
        if !is_hosts {
            eprintln!("not tried here: {:?}", node.isolation);
        }
        is_hosts.then_some(node)
    }

    pub async fn plain() -> Self {
        Self::with(|config| config.isolation = Some(Isolation::Plain { why: String::new() })).await
    }

    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let shim = vec![env!("CARGO_BIN_EXE_node-shim").into()];
        let mut config = Config::new(tmp.path().join("data"), "this", shim);
        change(&mut config);
        let mut node = Self { cluster: Cluster::new(), config, isolation: None, agent: None, _tmp: tmp };
        node.start().await;
        node
    }

    pub async fn start(&mut self) {
        let agent = Agent::new(self.config.clone(), self.cluster.clone()).await.unwrap();
        self.isolation = Some(agent.isolation().clone());
        let stop = CancellationToken::new();
        let token = stop.clone();
        self.agent = Some((tokio::spawn(async move { agent.run(token).await }), stop));
    }

    /// The agent is gone from one moment to the next; its shims are not.
    pub async fn kill_agent(&mut self) {
        let (task, _) = self.agent.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    pub fn dir(&self, name: &str) -> PodDir {
        let pod = self.cluster.pod(name).unwrap();
        self.dir_of(pod["metadata"]["uid"].as_str().unwrap())
    }

    pub fn dir_of(&self, uid: &str) -> PodDir {
        PodDir::of(&PathBuf::from(&self.config.data), uid)
    }

    pub async fn log(&self, name: &str, container: &str) -> String {
        self.log_with(name, container, LogOptions::default()).await
    }

    pub async fn log_with(&self, name: &str, container: &str, options: LogOptions) -> String {
        let stream = logs::read(&self.dir(name), name, container, options).unwrap();
        let chunks: Vec<_> = tokio::time::timeout(PATIENCE, stream.collect()).await.unwrap();
        String::from_utf8(chunks.into_iter().flat_map(|c| c.unwrap().to_vec()).collect()).unwrap()
    }

    /// Waits until the pod runs and has printed this.
    pub async fn log_has_once_running(&self, name: &str, line: &str) {
        self.cluster.until_phase(name, "Running").await;
        self.log_has(name, "node", line).await;
    }

    /// Waits for a line in a log.
    pub async fn log_has(&self, name: &str, container: &str, line: &str) {
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = Box::pin(logs::read(&self.dir(name), name, container, options).unwrap());
        let mut text = String::new();
        let found = tokio::time::timeout(PATIENCE, async {
            while let Some(chunk) = stream.next().await {
                text += &String::from_utf8_lossy(&chunk.unwrap());
                if text.contains(line) {
                    return true;
                }
            }
            false
        });
        let found = found.await;
        assert_eq!(found, Ok(true), "{line:?} is not in {text:?}");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some((task, _)) = self.agent.take() {
            task.abort();
        }
        // The lock tells which shims live; each takes its pod with it.
        for entry in std::fs::read_dir(self.config.data.join("pods")).into_iter().flatten().flatten() {
            let dir = PodDir::new(entry.path());
            if let Ok(Some(pid)) = dir.shim() {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
            if let Ok(Some(node::wire::Launch { cgroup: Some(group), .. })) = dir.read_launch() {
                let _ = node::cgroup::remove(&group);
            }
        }
    }
}

/// A pod spec with one container named `node` that runs a shell script.
pub fn script(text: &str) -> Value {
    json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "node", "image": "img", "command": ["sh", "-c", text]}]
    })
}
