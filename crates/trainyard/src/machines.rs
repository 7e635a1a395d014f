//! Machines of sky's clusters on this one: the provider `local` of `infra`, with node agents in this process.

use futures::FutureExt;
use futures::future::BoxFuture;
use infra::local::{Agents, Host, Local, Machines};
use infra::{Keeper, Provider};
use kube::Client;
use node::agent::{Agent, Config};
use node::gpus::Gpu;
use node::poddir::PodDir;
use std::collections::BTreeMap;
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
    running: Mutex<BTreeMap<PathBuf, (CancellationToken, JoinHandle<()>)>>,
}

impl Agents for Here {
    fn start<'a>(&'a self, machine: &'a Local) -> BoxFuture<'a, Result<(), String>> {
        async move {
            let mut running = self.running.lock().await;
            if running.get(&machine.folder).is_some_and(|(_, task)| !task.is_finished()) {
                return Ok(());
            }
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
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
            let agent = Agent::new(config, world).await.map_err(|error| error.to_string())?;
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
}

/// The keeper of all machines that this control plane can make.
pub async fn keeper(client: &Client, root: PathBuf, api_server: SocketAddr) -> Keeper {
    let gpus = node::gpus::detect().await;
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    let host = Host {
        cpus: node::host::cpus() as f64,
        memory: node::host::memory_bytes() as f64 / GIB,
        gpus: gpus.iter().map(|gpu| (gpu.index, gpu.product.clone())).collect(),
    };
    let agents = Arc::new(Here { client: client.clone(), api_server, gpus, running: Mutex::default() });
    let local = Arc::new(Machines::new(root, host, agents)) as Arc<dyn Provider>;
    Keeper::new(client.clone(), [local])
}
