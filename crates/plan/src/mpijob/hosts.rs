//! The hosts of a MPIJob, as its ConfigMap has them.

use super::Settings;
use crate::mpi;
use api::mpi::MpiJob;
use api::mpi::names::{self, DISCOVER_HOSTS, HOSTFILE, launcher, worker};
use api::object::Key;
use serde_json::{Value, json};

/// The domain of clusters that do not say.
const DEFAULT_DOMAIN: &str = "cluster.local";

/// The host of a pod.
fn host(pod: &str, key: &Key, settings: &Settings) -> String {
    names::host(pod, &key.namespace, &key.name, settings.cluster_domain.as_deref())
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

/// Why the job has more workers than a hostfile holds.
pub(super) fn hostfile_fault(job: &MpiJob, key: &Key, settings: &Settings) -> Option<String> {
    names::hostfile_fault(job.spec.workers(), &key.namespace, &key.name, settings.cluster_domain.as_deref())
}
