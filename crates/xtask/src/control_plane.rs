//! `cargo xtask kubernetes`: a real control plane on loopback, to compare with and to run against.
//!
//! etcd, kube-apiserver and kube-controller-manager, and on demand upstream's JobSet, Trainer and Kueue controllers and
//! mpi-operator, built from the Go modules pinned in `e2e/kubernetes`. There is no kubelet and no scheduler: pods stay pending until something
//! writes their status.

mod build;
mod install;
mod keys;
mod process;

use anyhow::{Context, Result, bail, ensure};
use build::{PROGRAMS, Programs};
use install::Controller;
use keys::Keys;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use process::Processes;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Ports used from the first one on: API server, etcd and its peers, controller manager, two webhooks, status server, Kueue's
/// webhooks.
const PORTS: u16 = 8;
/// The lowest port that is chosen where none is given, and how many runs of ports there are from it on.
const LOWEST: u16 = 10_000;
const RUNS: u16 = 2_800;
/// How long a program may take to answer, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(180);

/// What to start beside etcd, the API server and the controller manager.
#[derive(Clone, Copy, clap::Args)]
pub struct With {
    /// JobSet's controller and webhooks
    #[arg(long)]
    jobset: bool,
    /// Kubeflow Trainer's controllers, webhooks and runtimes, the PodGroup kinds that it knows, and JobSet
    #[arg(long)]
    trainer: bool,
    /// Kueue's controllers and webhooks, for Jobs, JobSets, TrainJobs and MPIJobs
    #[arg(long)]
    kueue: bool,
    /// mpi-operator, one on a machine (it takes port 8080), and the PodGroup kinds that it knows
    #[arg(long)]
    mpi: bool,
    /// Note every request of a service account in DIR/audit.jsonl
    #[arg(long)]
    audit: bool,
}

/// Which requests the audit log has, and how much of each: metadata, once the request is answered.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: [\"system:serviceaccounts\"]}
- {level: None}
";

impl With {
    fn controllers(self) -> Vec<Controller> {
        let wanted = [
            (self.jobset || self.trainer, Controller::JobSet),
            (self.trainer, Controller::Trainer),
            (self.kueue, Controller::Kueue),
            (self.mpi, Controller::Mpi),
        ];
        wanted.into_iter().filter_map(|(wanted, controller)| wanted.then_some(controller)).collect()
    }
}

/// Builds the programs into the cache, and says where they are.
pub fn build(root: &Path, with: With) -> Result<()> {
    for folder in programs(root, with)?.folders() {
        println!("{}", folder.display());
    }
    Ok(())
}

/// Builds Helm 3 and 4 into the cache, and says where they are.
pub fn helm(root: &Path) -> Result<()> {
    // one by one: Go names both `helm`
    for name in ["helm", "helm4"] {
        println!("{}", Programs::build(root, &[name])?.path(name)?.display());
    }
    Ok(())
}

fn programs(root: &Path, with: With) -> Result<Programs> {
    let mut wanted: Vec<&str> = PROGRAMS[..3].iter().map(|program| program.name).collect();
    wanted.extend(with.controllers().iter().map(|controller| controller.program()));
    Programs::build(root, &wanted)
}

/// Starts a control plane in `dir` and prints its kubeconfig's path. `port` 0 is any free one.
///
/// What a former start left in `dir` is kept: keys, and all objects.
pub fn up(root: &Path, dir: &Path, port: u16, with: With) -> Result<()> {
    let programs = programs(root, with)?;
    make_private(dir)?;
    let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
    let processes = Processes::new(&dir);
    ensure!(
        !processes.any_alive(),
        "a control plane runs in {dir} already: cargo xtask kubernetes down {dir}",
        dir = dir.display()
    );
    let started = start(root, &dir, port, with, &programs, &processes);
    if started.is_err() {
        processes.stop_all(false).context("stopping what was started")?;
    }
    println!("{}", started?.display());
    Ok(())
}

fn start(
    root: &Path,
    dir: &Path,
    port: u16,
    with: With,
    programs: &Programs,
    processes: &Processes,
) -> Result<PathBuf> {
    let port = free_ports(port)?;
    let keys = Keys::make(dir)?;
    let kubeconfig = dir.join("kubeconfig");
    write_private(&kubeconfig, &keys.kubeconfig(port))?;

    let at = |offset: u16| format!("http://127.0.0.1:{}", port + offset);
    let (store, peers) = (at(1), at(2));
    processes.start("etcd", &programs.path("etcd")?, &[], |command| {
        command.arg("--data-dir").arg(dir.join("etcd")).args([
            &format!("--listen-client-urls={store}"),
            &format!("--advertise-client-urls={store}"),
            &format!("--listen-peer-urls={peers}"),
            &format!("--initial-advertise-peer-urls={peers}"),
            &format!("--initial-cluster=default={peers}"),
            "--log-level=error",
        ]);
    })?;
    write_private(&dir.join("audit-policy.yaml"), AUDIT_POLICY)?;
    processes.start("kube-apiserver", &programs.path("kube-apiserver")?, &[], |command| {
        if with.audit {
            command.args(["--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.jsonl"]);
        }
        command.args([
            &format!("--etcd-servers={store}"),
            &format!("--secure-port={port}"),
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            // as every installer sets it
            "--allow-privileged=true",
            // nothing would lead to the address that it would publish
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            // the same for Services with webhooks: they are asked where their endpoints are
            "--enable-aggregator-routing=true",
            // some clusters require a right of clients that make children which block their owner's deletion
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--authorization-mode=RBAC",
            "--tls-cert-file=server.crt",
            "--tls-private-key-file=server.key",
            "--token-auth-file=tokens.csv",
            // as ours
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-account-key-file=service-accounts.pub",
            "--service-account-signing-key-file=service-accounts.key",
            // there is one user, an administrator: fairness between users would only cost time
            "--enable-priority-and-fairness=false",
        ]);
    })?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(&kubeconfig).await?;
        processes
            .until("kube-apiserver", PATIENCE, async || {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                Ok(client.request_text(request).await.map(|_| ())?)
            })
            .await?;
        processes.start("kube-controller-manager", &programs.path("kube-controller-manager")?, &[], |command| {
            command.args([
                "--kubeconfig=kubeconfig",
                "--service-account-private-key-file=service-accounts.key",
                "--root-ca-file=ca.crt",
                "--use-service-account-credentials=false",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                &format!("--secure-port={}", port + 3),
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ]);
        })?;
        install::all(&with.controllers(), root, dir, port, programs, processes, &client, &keys).await?;
        Ok(kubeconfig)
    })
}

/// Installs controllers in the control plane that runs in `dir`.
pub fn add(root: &Path, dir: &Path, with: With) -> Result<()> {
    let programs = programs(root, with)?;
    let (dir, processes) = processes(dir)?;
    let keys = Keys::make(&dir)?;
    let kubeconfig = dir.join("kubeconfig");
    let config = Kubeconfig::read_from(&kubeconfig)?;
    let cluster = config.clusters.first().and_then(|named| named.cluster.as_ref());
    let server = cluster.and_then(|cluster| cluster.server.as_deref()).context("a kubeconfig without a server")?;
    let port = server.rsplit(':').next().unwrap_or_default().parse().with_context(|| format!("no port in {server}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = client(&kubeconfig).await?;
        install::all(&with.controllers(), root, &dir, port, &programs, &processes, &client, &keys).await
    })
}

/// Stops the control plane that was started in `dir`, each program asked to end or killed at once; its data stays.
pub fn down(dir: &Path, at_once: bool) -> Result<()> {
    processes(dir)?.1.stop_all(at_once)
}

/// Stops one of its programs; killed at once it has no time to put things in order.
pub fn stop(dir: &Path, program: &str, at_once: bool) -> Result<()> {
    processes(dir)?.1.stop(program, at_once)
}

/// Starts a program that was stopped, with the same arguments but for those given (`--flag=value`).
pub fn start_again(dir: &Path, program: &str, arguments: &[String]) -> Result<()> {
    processes(dir)?.1.start_again(program, arguments)
}

/// What was started in a folder, whose true path comes first.
fn processes(dir: &Path) -> Result<(PathBuf, Processes)> {
    let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
    let processes = Processes::new(&dir);
    Ok((dir, processes))
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A run of free ports that starts at `first`, or anywhere where that is 0: but not where the system takes the ports of outgoing
/// connections from (32768 and up), for one of these would have a port that a killed program wants back.
fn free_ports(first: u16) -> Result<u16> {
    let is_free = |first: u16| {
        first
            .checked_add(PORTS)
            .is_some_and(|end| (first..end).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()))
    };
    if first != 0 {
        ensure!(
            is_free(first),
            "not all of the ports {first} to {} are free: choose others",
            first.saturating_add(PORTS - 1)
        );
        return Ok(first);
    }
    for _ in 0..100 {
        let any = u16::try_from(uuid::Uuid::new_v4().as_u128() % u128::from(RUNS)).expect("invariant: a small number");
        let port = LOWEST + any * PORTS;
        if is_free(port) {
            return Ok(port);
        }
    }
    bail!("no {PORTS} free ports in a row found: give the first of them")
}

fn make_private(dir: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("making {}", dir.display()))
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("writing {}", path.display()))
}

/// Until when something that begins now may take.
fn deadline(limit: Duration) -> Instant {
    api::time::after(Instant::now(), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_together_or_not_taken() {
        let first = free_ports(0).expect("there are some");
        let taken = TcpListener::bind(("127.0.0.1", first + PORTS - 1)).expect("it was free");
        let error = free_ports(first).expect_err("the last one is taken").to_string();
        assert!(error.contains(&first.to_string()), "{error}");
        drop(taken);
        assert!(free_ports(u16::MAX).is_err(), "there are not so many");
    }

    #[test]
    fn trainer_brings_jobset() {
        let with = With { jobset: false, trainer: true, kueue: false, mpi: false, audit: false };
        assert_eq!(with.controllers(), [Controller::JobSet, Controller::Trainer]);
    }
}
