//! The words of MPIJob's contract: labels, names of children, volumes, files, variables.
//!
//! Source: mpi-operator 0.8.2.

/// Label of pods: the operator that made them; the value is [`OPERATOR_NAME`].
pub const LABEL_OPERATOR_NAME: &str = "training.kubeflow.org/operator-name";
/// Label of pods: name of their MPIJob.
pub const LABEL_JOB_NAME: &str = "training.kubeflow.org/job-name";
/// Label of pods: [`ROLE_LAUNCHER`] or [`ROLE_WORKER`].
pub const LABEL_JOB_ROLE: &str = "training.kubeflow.org/job-role";
/// Label of workers: their index, one more where the launcher is a worker, too; then the launcher has 0.
pub const LABEL_REPLICA_INDEX: &str = "training.kubeflow.org/replica-index";
/// Label of all children but pods: name of their MPIJob.
pub const LABEL_APP: &str = "app";
/// Value of [`LABEL_OPERATOR_NAME`].
pub const OPERATOR_NAME: &str = "mpi-operator";
/// Value of [`LABEL_JOB_ROLE`]: runs `mpirun`.
pub const ROLE_LAUNCHER: &str = "launcher";
/// Value of [`LABEL_JOB_ROLE`]: runs `sshd`, and ranks.
pub const ROLE_WORKER: &str = "worker";
/// Annotation of an MPIJob: the queue of its Volcano PodGroup, where its scheduling policy names none.
pub const ANNOTATION_VOLCANO_QUEUE: &str = "scheduling.volcano.sh/queue-name";

/// `managedBy` of an MPIJob that this controller reconciles; so does an absent one.
pub const MANAGED_BY_MPI_OPERATOR: &str = "kubeflow.org/mpi-operator";
/// `managedBy` of an MPIJob that Kueue's MultiKueue runs elsewhere.
pub const MANAGED_BY_MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// Where keys are mounted by default.
pub const ROOT_SSH_PATH: &str = "/root/.ssh";
/// Volume with the keys.
pub const SSH_VOLUME: &str = "ssh-auth";
/// Volume with the hostfile.
pub const CONFIG_VOLUME: &str = "mpi-job-config";
/// Where [`CONFIG_VOLUME`] is mounted in the launcher.
pub const CONFIG_PATH: &str = "/etc/mpi";
/// Key and file: the hosts of all declared workers.
pub const HOSTFILE: &str = "hostfile";
/// Key and file: a script that prints the hosts of running workers.
pub const DISCOVER_HOSTS: &str = "discover_hosts.sh";
/// Key of the Secret: the private key.
pub const PRIVATE_KEY: &str = "ssh-privatekey";
/// Key of the Secret: the public key.
pub const PUBLIC_KEY: &str = "ssh-publickey";
/// Type of the Secret.
pub const SECRET_TYPE: &str = "kubernetes.io/ssh-auth";

/// The component that an MPIJob's events name as their source.
pub const EVENT_REPORTER: &str = "mpi-job-controller";
/// The Lease by which mpi-operators agree on one of them to work.
pub const LEASE: &str = "mpi-operator";

/// Name of the init container that waits for the workers, in launchers that ask for it.
pub const WAIT_CONTAINER: &str = "trainyard-wait-for-workers";
/// The subcommand that it runs.
pub const WAIT_COMMAND: &str = "mpi-wait";

/// Condition of a pod with [`CONFIG_PATH`] that has ended, where its node knows: whether it entered another pod by SSH.
pub const ENTERED_PODS: &str = "trainyard.dev/EnteredPods";

/// Environment variables.
pub mod env {
    /// The pod's role.
    pub const ROLE: &str = "K_MPI_JOB_ROLE";
    /// Intel MPI: the hostfile.
    pub const INTEL_HOSTFILE: &str = "I_MPI_HYDRA_HOST_FILE";
    /// Intel MPI: more arguments for ssh.
    pub const INTEL_SSH_ARGS: &str = "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS";
    /// Intel MPI: ranks of one host.
    pub const INTEL_SLOTS: &str = "I_MPI_PERHOST";
    /// MPICH: the hostfile.
    pub const MPICH_HOSTFILE: &str = "HYDRA_HOST_FILE";
    /// MPICH: more arguments for ssh.
    pub const MPICH_SSH_ARGS: &str = "HYDRA_LAUNCH_EXTRA_ARGS";
    /// NVIDIA's runtime: the devices to show. Empty: none.
    pub const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
    /// NVIDIA's runtime: the driver's parts to show. Empty: none.
    pub const NVIDIA_CAPABILITIES: &str = "NVIDIA_DRIVER_CAPABILITIES";
    /// Arguments that make ssh try again while a worker's sshd starts.
    pub const SSH_ARGS: &str = "-o ConnectionAttempts=10";
    /// Open MPI 5, which passes over the names of its predecessors: the hostfile.
    pub const OPEN_MPI_5_HOSTFILE: &str = "PRTE_MCA_prte_default_hostfile";
}

/// Name of the launcher's Job and host.
pub fn launcher(job: &str) -> String {
    format!("{job}-launcher")
}

/// Name of a worker's pod and host.
pub fn worker(job: &str, index: i32) -> String {
    format!("{job}-worker-{index}")
}

/// The host of a pod, as others of the job reach it through the Service; `domain`: the cluster's, where it is written.
pub fn host(pod: &str, namespace: &str, job: &str, domain: Option<&str>) -> String {
    match domain {
        Some(domain) => format!("{pod}.{job}.{namespace}.svc.{domain}"),
        None => format!("{pod}.{job}.{namespace}.svc"),
    }
}

/// What a ConfigMap may hold at most, in bytes.
pub const CONFIG_MAP_MAX: usize = 1 << 20;

/// Why so many workers are too many: about how large their hostfile is, which is known before it is written.
pub fn hostfile_fault(workers: i32, namespace: &str, job: &str, domain: Option<&str>) -> Option<String> {
    let line = host(&worker(job, workers), namespace, job, domain).len().saturating_add(2);
    let size = line.saturating_mul(usize::try_from(workers).unwrap_or_default());
    (size > CONFIG_MAP_MAX)
        .then(|| format!("the hostfile would have {size} bytes, and a ConfigMap holds {CONFIG_MAP_MAX}"))
}

/// Name of the ConfigMap with [`HOSTFILE`] and [`DISCOVER_HOSTS`].
pub fn config(job: &str) -> String {
    format!("{job}-config")
}

/// Name of the Secret with the keys.
pub fn ssh_secret(job: &str) -> String {
    format!("{job}-ssh")
}

/// Name of the NetworkPolicy that lets a job's pods reach each other and nobody else reach them.
pub fn network_policy(job: &str) -> String {
    format!("{job}-peers")
}

/// The hosts of a hostfile, in its order, each once; `host slots=2`, `host:2` and `host` are lines of one.
pub fn hosts(hostfile: &str) -> Vec<&str> {
    let mut hosts: Vec<&str> = Vec::new();
    for line in hostfile.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let word = line.split_whitespace().next().unwrap_or_default();
        let host = match word.rsplit_once(':') {
            Some((host, slots)) if slots.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => word,
        };
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    #[test]
    fn hosts_of_each_mpi() {
        let text = "# made by hand\na.s.ns.svc slots=2\nb.s.ns.svc:16\n\n c # the last\na.s.ns.svc slots=2\nd:\n";
        assert_eq!(super::hosts(text), ["a.s.ns.svc", "b.s.ns.svc", "c", "d"]);
        assert!(super::hosts("").is_empty());
    }
}
