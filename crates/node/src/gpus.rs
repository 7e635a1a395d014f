//! The machine's NVIDIA GPUs: which there are, and which pod has which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// The extended resource by which pods ask for GPUs.
pub const RESOURCE: &str = "nvidia.com/gpu";

/// How long `nvidia-smi` may take: it waits for the driver to wake the GPUs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As `nvidia-smi` counts: in the order of the PCI bus.
    pub index: u32,
    /// `NVIDIA H200`; empty if not known.
    pub product: String,
    pub memory_mib: u64,
}

/// Who has which GPUs of a machine that runs several agents: the pods of the agent that carries this value, or others, to whom GPUs are lent.
#[derive(Clone, Debug, Default)]
pub struct Share(Arc<(Mutex<Parts>, Notify)>);

/// GPUs by index.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub lent: BTreeSet<u32>,
    pub held: BTreeSet<u32>,
}

impl Share {
    pub(crate) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.0.lock().expect("invariant: nothing panics while it holds the lock")
    }

    /// Those that the agent's pods have.
    pub fn held(&self) -> BTreeSet<u32> {
        self.parts().held.clone()
    }

    /// Lends these, and takes back all others. False, and nothing changes, where a pod has one that was not lent before.
    pub fn lend(&self, gpus: BTreeSet<u32>) -> bool {
        let mut parts = self.parts();
        if gpus.difference(&parts.lent).any(|gpu| parts.held.contains(gpu)) {
            return false;
        }
        if parts.lent != gpus {
            parts.lent = gpus;
            self.0.1.notify_one();
        }
        true
    }

    /// Until GPUs were lent or taken back. For one that waits: the agent.
    pub(crate) async fn changed(&self) {
        self.0.1.notified().await;
    }
}

/// The GPUs that pods may be given: those of the machine, or, if the agent itself was started with a
/// `CUDA_VISIBLE_DEVICES` of indices, these only.
pub async fn detect() -> Vec<Gpu> {
    let mut gpus = match nvidia_smi("index,name,memory.total", PROBE_TIMEOUT).await {
        Some(text) => parse(&text),
        None => device_files(Path::new("/dev")),
    };
    if let Ok(visible) = std::env::var("CUDA_VISIBLE_DEVICES") {
        let indices: Result<BTreeSet<u32>, _> =
            visible.split(',').filter(|s| !s.trim().is_empty()).map(|s| s.trim().parse()).collect();
        if let Ok(indices) = indices {
            gpus.retain(|gpu| indices.contains(&gpu.index));
        }
    }
    if !gpus.is_empty() && !Path::new("/dev/nvidia-uvm").exists() {
        // CUDA would have this device made at its first use, but a pod's `/dev` is its own.
        let made = tokio::process::Command::new("nvidia-modprobe").args(["-u", "-c=0"]).stdin(Stdio::null()).output();
        if let Err(error) = made.await {
            tracing::debug!(%error, "nvidia-modprobe");
        }
    }
    gpus
}

/// These fields of each GPU, as CSV; `None` where there is no answer in time.
pub(crate) async fn nvidia_smi(fields: &str, timeout: Duration) -> Option<String> {
    let output = tokio::process::Command::new("nvidia-smi")
        .args([&format!("--query-gpu={fields}"), "--format=csv,noheader,nounits"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(timeout, output).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn parse(text: &str) -> Vec<Gpu> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.split(',').map(str::trim);
            let index = parts.next()?.parse().ok()?;
            let product = parts.next()?.to_owned();
            let memory_mib = parts.next().and_then(|m| m.parse().ok()).unwrap_or(0);
            Some(Gpu { index, product, memory_mib })
        })
        .collect()
}

fn device_files(dev: &Path) -> Vec<Gpu> {
    let entries = std::fs::read_dir(dev).into_iter().flatten().flatten();
    let index = |name: String| name.strip_prefix("nvidia")?.parse::<u32>().ok();
    let mut indices: Vec<u32> = entries.filter_map(|e| index(e.file_name().to_string_lossy().into_owned())).collect();
    indices.sort_unstable();
    indices.into_iter().map(|index| Gpu { index, product: String::new(), memory_mib: 0 }).collect()
}

/// Gives each container as many of the free GPUs as it wants, lowest first; `None` if there are not enough.
pub fn allot(free: &BTreeSet<u32>, wants: &BTreeMap<String, usize>) -> Option<BTreeMap<String, Vec<u32>>> {
    let mut free = free.iter().copied();
    wants
        .iter()
        .map(|(container, &count)| {
            let given: Vec<u32> = free.by_ref().take(count).collect();
            (given.len() == count).then(|| (container.clone(), given))
        })
        .collect()
}

/// The environment that shows a container its GPUs, and no others.
pub fn environment(given: &[u32]) -> [(&'static str, String); 3] {
    let list = given.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let nvidia = if list.is_empty() { "void".to_owned() } else { list.clone() };
    // Without this, CUDA counts the fastest GPU first, and the indices would be others than `nvidia-smi`'s.
    [("CUDA_VISIBLE_DEVICES", list), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()), ("NVIDIA_VISIBLE_DEVICES", nvidia)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_prints() {
        let gpus = parse("0, NVIDIA H200, 143771\n1, NVIDIA H200, [N/A]\n");
        assert_eq!(gpus[0], Gpu { index: 0, product: "NVIDIA H200".into(), memory_mib: 143_771 });
        assert_eq!(gpus[1].memory_mib, 0);
        assert_eq!(parse("No devices were found"), []);
    }

    #[test]
    fn what_a_pod_has_is_not_lent() {
        let share = Share::default();
        assert!(share.lend([0].into()));
        share.parts().held = [1].into();
        assert!(!share.lend([0, 1].into()));
        assert_eq!(share.parts().lent, [0].into());
        assert!(share.lend([2].into()));
        assert_eq!(share.parts().lent, [2].into());
        assert_eq!(share.held(), [1].into());
    }

    #[test]
    fn allotment() {
        let wants: BTreeMap<String, usize> = [("a".to_owned(), 1), ("b".to_owned(), 2)].into();
        let given = allot(&[1, 3, 5].into(), &wants).unwrap();
        assert_eq!((given["a"].as_slice(), given["b"].as_slice()), ([1].as_slice(), [3, 5].as_slice()));
        assert_eq!(allot(&[1, 3].into(), &wants), None);
        assert_eq!(environment(&[])[0].1, "");
        assert_eq!(environment(&[1, 3])[2].1, "1,3");
    }
}
