//! Machines of sky's clusters: what the providers of `infra` need of this process, node agents and the API server.

use api::sky::keys;
use futures::FutureExt;
use futures::future::BoxFuture;
use infra::access::{Access, Duplex, Identity, Pass, PassError};
use infra::local::{Agents, Host, Local, Machines};
use infra::{Attention, MachineController, Provider, kubernetes, ssh};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use node::agent::{Agent, Config};
use node::gpus::{Gpu, Share};
use node::poddir::PodDir;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const GIB: f64 = 1_073_741_824.0;

/// Node agents in this process, by the folders of their machines.
struct Here {
    client: Client,
    api_server: SocketAddr,
    gpus: Vec<Gpu>,
    /// What this machine's own node has of them.
    share: Share,
    running: Mutex<BTreeMap<PathBuf, (CancellationToken, JoinHandle<()>)>>,
}

impl Agents for Here {
    fn start<'a>(&'a self, machine: &'a Local) -> BoxFuture<'a, std::io::Result<()>> {
        async move {
            let mut running = self.running.lock().await;
            if running.get(&machine.folder).is_some_and(|(_, task)| !task.is_finished()) {
                return Ok(());
            }
            let program = std::env::current_exe()?;
            let shim = vec![program.clone().into(), "shim".into()];
            let mut config = Config::new(machine.folder.join("node"), &machine.node, shim);
            config.stand_ins = crate::initialize::stand_ins(&program.to_string_lossy());
            config.api_server = Some((self.api_server.ip().to_string(), self.api_server.port()));
            config.host_ip = machine.address;
            config.labels.clone_from(&machine.labels);
            config.taints.clone_from(&machine.taints);
            let home = machine.folder.join("home").display().to_string();
            config.environment = vec![("HOME".to_owned(), home)];
            let has = |gpu: &&Gpu| machine.gpus.contains(&gpu.index);
            config.gpus = Some(self.gpus.iter().filter(has).cloned().collect());
            let world = node::kube_world::KubeWorld::new(self.client.clone(), &machine.node);
            let agent = Agent::new(config, world).await?;
            let stop = CancellationToken::new();
            let task = tokio::spawn({
                let stop = stop.clone();
                async move { agent.run(stop).await }
            });
            running.insert(machine.folder.clone(), (stop, task));
            Ok(())
        }
        .boxed()
    }

    fn is_busy(&self, folder: &Path) -> bool {
        let pods = std::fs::read_dir(folder.join("node/pods")).into_iter().flatten().flatten();
        // what cannot be read may run
        pods.map(|entry| PodDir::new(entry.path())).any(|dir| !matches!(dir.shim(), Ok(None)))
    }

    fn stop<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, ()> {
        async move {
            if let Some((stop, task)) = self.running.lock().await.remove(folder) {
                stop.cancel();
                let _ = task.await; // one that panicked has stopped, too
            }
        }
        .boxed()
    }

    fn gpus_in_use(&self) -> BTreeSet<u32> {
        self.share.held()
    }

    fn keep_gpus(&self, gpus: BTreeSet<u32>) -> bool {
        self.share.lend(gpus)
    }
}

/// Days for which the token of an agent on another machine is good; it dies with the Node object before.
const TOKEN_DAYS: u16 = 3650;

/// The API server, for agents that reach it through a tunnel.
struct Door {
    client: Client,
    /// Of the control plane.
    home: PathBuf,
    api_server: SocketAddr,
}

impl Door {
    async fn pass_of(&self, machine: &Identity, port: u16) -> Result<Pass, PassError> {
        let nodes = crate::agent::nodes(&self.client);
        let token = |node: &DynamicObject| node.labels().get(keys::TOKEN).cloned();
        let found = nodes.get_opt(&machine.node).await?;
        if found.is_some_and(|node| token(&node).as_deref() != Some(&machine.token)) {
            return Err(PassError::Taken(machine.node.clone()));
        }
        let mut node = crate::agent::bare(&machine.node);
        node["metadata"]["labels"] = json!(machine.labels);
        let taint = |(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"});
        node["spec"]["taints"] = machine.taints.iter().map(taint).collect();
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = crate::agent::kubeconfig(&self.home, &self.client, &server, &node, TOKEN_DAYS).await;
        let kubeconfig = kubeconfig.map_err(|error| PassError::Kubeconfig(error.render()))?;
        let there = nodes.get(&machine.node).await?;
        Ok(Pass { kubeconfig, uid: there.uid().unwrap_or_default() })
    }
}

impl Access for Door {
    fn pass<'a>(&'a self, machine: &'a Identity, port: u16) -> BoxFuture<'a, Result<Pass, PassError>> {
        self.pass_of(machine, port).boxed()
    }

    fn carry(&self, relay: Box<dyn Duplex>) -> BoxFuture<'static, ()> {
        crate::relay::carry(relay, self.api_server).boxed()
    }
}

/// Whose machines are those of the control plane of this home.
fn owner(home: &Path) -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{} on {}", home.display(), host.to_string_lossy())
}

/// Machines in pods of the clusters of the user's kubeconfig.
fn in_pods(home: &Path, door: Arc<Door>, attention: Attention) -> std::io::Result<Arc<dyn Provider>> {
    let settings = kubernetes::Settings {
        folder: home.join("kubernetes"),
        kubeconfig: None,
        owner: owner(home),
        program: std::env::current_exe()?,
        attention,
    };
    Ok(Arc::new(kubernetes::Machines::new(settings, door)))
}

/// Machines of the pools in the user's `~/.sky/ssh_node_pools.yaml`.
fn by_ssh(
    home: &Path,
    api_server: SocketAddr,
    door: Arc<Door>,
    attention: Attention,
) -> std::io::Result<Arc<dyn Provider>> {
    let user = std::env::home_dir().unwrap_or_default();
    let settings = ssh::Settings {
        folder: home.join("ssh"),
        pools: user.join(".sky/ssh_node_pools.yaml"),
        home: user,
        owner: owner(home),
        api_server,
        program: std::env::current_exe()?,
        attention,
    };
    Ok(Arc::new(ssh::Machines::new(settings, door)))
}

/// The controller of all machines that this control plane can make; `home` is its own. `gpus` are this machine's, of which its own node, that must
/// not run yet, has the part that `share` says. `attention` is woken by the connections of agents.
pub fn controller(
    client: &Client,
    home: &Path,
    api_server: SocketAddr,
    gpus: Vec<Gpu>,
    share: Share,
    attention: Attention,
) -> std::io::Result<MachineController> {
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    let host = Host {
        cpus: node::host::cpus() as f64,
        memory: node::host::memory_bytes() as f64 / GIB,
        gpus: gpus.iter().map(|gpu| (gpu.index, gpu.product.clone())).collect(),
    };
    let agents = Arc::new(Here { client: client.clone(), api_server, gpus, share, running: Mutex::default() });
    let local = Machines::new(home.join("machines"), host, agents);
    if let Err(failure) = local.keep_gpus() {
        tracing::warn!(what = failure.what, "GPUs of clusters on this machine are not kept from other jobs");
    }
    let local = Arc::new(local) as Arc<dyn Provider>;
    let door = Arc::new(Door { client: client.clone(), home: home.to_owned(), api_server });
    let providers =
        [local, by_ssh(home, api_server, door.clone(), attention.clone())?, in_pods(home, door, attention.clone())?];
    Ok(MachineController::new(client.clone(), providers, &attention))
}
