//! The hosts of a MPIJob, as its ConfigMap has them.

use super::Settings;
use crate::mpi;
use api::mpi::MpiJob;
use api::mpi::names::{DISCOVER_HOSTS, HOSTFILE, launcher, worker};
use api::object::Key;
use serde_json::{Value, json};

/// The domain of clusters that do not say.
const DEFAULT_DOMAIN: &str = "cluster.local";

/// The host of a pod, as others of the job reach it through the Service.
fn host(pod: &str, key: &Key, settings: &Settings) -> String {
    let Key { namespace, name } = key;
    match &settings.cluster_domain {
        Some(domain) => format!("{pod}.{name}.{namespace}.svc.{domain}"),
        None => format!("{pod}.{name}.{namespace}.svc"),
    }
}

/// Where a worker looks for short names: Intel MPI and MPICH call the launcher by its own host name.
// H-20 (fixed): upstream writes cluster.local whatever the cluster's domain.
pub(super) fn search_domain(key: &Key, settings: &Settings) -> String {
    let domain = settings.cluster_domain.as_deref().unwrap_or(DEFAULT_DOMAIN);
    format!("{}.{}.svc.{domain}", key.name, key.namespace)
}

/// The ConfigMap's data: all declared hosts, and a script that tells of those that run.
pub(super) fn data(job: &MpiJob, key: &Key, running: &[&str], settings: &Settings) -> Value {
    let leader = job.spec.launcher_is_worker().then(|| launcher(&key.name));
    let workers = (0..job.spec.workers()).map(|index| worker(&key.name, index));
    let declared = leader.clone().into_iter().chain(workers).map(|pod| host(&pod, key, settings));
    let mut running = running.to_vec();
    // H-31 (kept): as text, so worker 10 comes before worker 2
    running.sort_unstable();
    // the launcher is where the script is read, or the job has failed
    let running = leader.as_deref().into_iter().chain(running);
    let script: String = running.map(|pod| format!("echo {}\n", host(pod, key, settings))).collect();
    json!({
        HOSTFILE: mpi::hostfile(job.spec.implementation(), declared, job.spec.slots()),
        DISCOVER_HOSTS: format!("#!/bin/sh\n{script}"),
    })
}

/// About how large the hostfile is, in bytes: known before it is written.
pub(super) fn hostfile_size(job: &MpiJob, key: &Key, settings: &Settings) -> usize {
    let line = host(&worker(&key.name, job.spec.workers()), key, settings).len().saturating_add(2);
    line.saturating_mul(usize::try_from(job.spec.workers()).unwrap_or_default())
}
