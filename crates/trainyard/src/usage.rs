//! Resource use of pods and of this machine: connects the API server with the sampler of the node agent.

use apiserver::usage::{Amounts, Measured, Usage};
use futures::future::BoxFuture;
use node::usage::Sampler;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Beyond what metrics-server knows. Rates are per second.
const DISK_READ: &str = "trainyard.dev/disk-read";
const DISK_WRITTEN: &str = "trainyard.dev/disk-written";
/// Of TCP.
const NETWORK_SENT: &str = "trainyard.dev/network-sent";
const NETWORK_RECEIVED: &str = "trainyard.dev/network-received";
/// In hundredths: `40` of a container with two GPUs is 40 % of both.
const GPU: &str = "trainyard.dev/gpu-percent";
const GPU_MEMORY: &str = "trainyard.dev/gpu-memory";

/// The node of this name and its pods.
pub struct NodeUsage {
    node: String,
    data: PathBuf,
    /// Made at the first question: the machine's GPUs are looked for then.
    sampler: Arc<OnceCell<Sampler>>,
}

impl NodeUsage {
    pub fn new(node: &str, data: PathBuf) -> Self {
        Self { node: node.to_owned(), data, sampler: Arc::default() }
    }
}

impl Usage for NodeUsage {
    fn measure(&self) -> BoxFuture<'static, Measured> {
        let (node, data, sampler) = (self.node.clone(), self.data.clone(), self.sampler.clone());
        Box::pin(async move {
            let sampler = sampler.get_or_init(|| async { Sampler::new(data, node::gpus::detect().await) }).await;
            let usage = sampler.usage().await;
            let pods = usage.pods.iter().map(|(uid, containers)| {
                let containers: BTreeMap<String, Amounts> =
                    containers.iter().map(|(name, used)| (name.clone(), amounts(used))).collect();
                (uid.clone(), containers)
            });
            Measured {
                at: usage.at,
                window: usage.window,
                nodes: [(node, amounts(&usage.machine))].into(),
                pods: pods.collect(),
            }
        })
    }
}

fn amounts(used: &node::usage::Amounts) -> Amounts {
    let node::usage::Amounts {
        cpu_nanos,
        memory_bytes,
        disk_read_bytes,
        disk_written_bytes,
        network_sent_bytes,
        network_received_bytes,
        gpu_percent,
        gpu_memory_bytes,
    } = used;
    let mut out: Amounts =
        [("cpu".to_owned(), format!("{cpu_nanos}n")), ("memory".to_owned(), format!("{}Ki", memory_bytes / 1024))]
            .into();
    let more = [
        (DISK_READ, disk_read_bytes),
        (DISK_WRITTEN, disk_written_bytes),
        (NETWORK_SENT, network_sent_bytes),
        (NETWORK_RECEIVED, network_received_bytes),
        (GPU, gpu_percent),
        (GPU_MEMORY, gpu_memory_bytes),
    ];
    out.extend(more.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount.as_ref()?.to_string()))));
    out
}
