//! The API group `sky.trainyard.dev/v1alpha1`: clusters of machines that take the tasks of SkyPilot's task files, and the ledger of
//! their machines.
//!
//! Doc comments become the texts of `kubectl explain`; bounds and defaults beside the fields are what `xtask crds` writes into the CRDs.

mod budget;
mod launch;
mod managed_job;
mod serving;

pub use budget::{
    Budget, BudgetAction, BudgetAmount, BudgetJob, BudgetLimit, BudgetPeriod, BudgetSelector, BudgetSpec, BudgetStatus,
};
pub use launch::{Launch, LaunchFiles, LaunchManaged, LaunchPhase, LaunchSpec, LaunchStatus, WhenSetUp};
pub use managed_job::{
    CapacityWanted, Ground, JobAttempt, JobFile, JobRate, JobRecovery, JobStrategy, JobTask, ManagedJob,
    ManagedJobSpec, ManagedJobStatus, ManagedState, ManagedTask, ReplicaOf, TaskCallbacks, TaskEvent, WorkerShare,
};
pub use serving::{
    BalancedReplica, Balancing, FleetSpec, FleetState, FleetStatus, FleetVersion, FleetZone, Pool, ReadinessProbe,
    Replica, ReplicaReport, ReplicaState, ScalerMemory, Serving, ServingLoad, Traffic, UpdateMode,
};

use crate::object::Gvk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The API group.
pub const GROUP: &str = "sky.trainyard.dev";
/// The only version served.
pub const VERSION: &str = "v1alpha1";
/// `sky.trainyard.dev/v1alpha1`.
pub const API_VERSION: &str = "sky.trainyard.dev/v1alpha1";

/// `Cluster` of this group.
pub fn cluster_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Cluster")
}

/// `Machine` of this group.
pub fn machine_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Machine")
}

/// `Launch` of this group.
pub fn launch_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Launch")
}

/// `ManagedJob` of this group.
pub fn managed_job_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "ManagedJob")
}

/// `Serving` of this group.
pub fn serving_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Serving")
}

/// `Pool` of this group.
pub fn pool_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Pool")
}

/// `Budget` of this group.
pub fn budget_gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, "Budget")
}

/// Labels, annotations, taints and finalizers.
pub mod keys {
    /// Label of Launches, Clusters, JobSets and pods: the ManagedJob that they are for.
    pub const MANAGED_JOB: &str = "sky.trainyard.dev/managed-job";
    /// Label of ManagedJobs that are replicas, and of what their services own: the Serving or the Pool.
    pub const FLEET: &str = "sky.trainyard.dev/fleet";
    /// Label beside it: `service` or `pool`.
    pub const FLEET_KIND: &str = "sky.trainyard.dev/fleet-kind";
    /// Label beside it: number of the task in its job, from 0.
    pub const TASK: &str = "sky.trainyard.dev/task";
    /// Label beside it, of Launches, JobSets and pods: number of the attempt, from 1.
    pub const ATTEMPT: &str = "sky.trainyard.dev/attempt";
    /// Label of pods that run the callback of a managed job's task: the ManagedJob. Beside it: [`TASK`].
    pub const CALLBACK: &str = "sky.trainyard.dev/callback";
    /// Annotation of a JobSet of a managed job: the output of its pods is kept, so its machines may go.
    pub const OUTPUT_KEPT: &str = "sky.trainyard.dev/output-kept";
    /// Label of ConfigMaps that hold the tasks of managed jobs.
    pub const SUBMISSION: &str = "sky.trainyard.dev/submission";
    /// Label of Launches, Machines, Nodes and JobSets: the cluster's name. Nodes are tainted with it, too.
    pub const CLUSTER: &str = "sky.trainyard.dev/cluster";
    /// Label of Nodes: the namespace of the cluster.
    pub const CLUSTER_NAMESPACE: &str = "sky.trainyard.dev/cluster-namespace";
    /// Label of Nodes: the token of their machine.
    pub const TOKEN: &str = "sky.trainyard.dev/token";
    /// Label of JobSets: number of the job on its cluster.
    pub const JOB: &str = "sky.trainyard.dev/job";
    /// Label of JobSets: `setup` or `run`.
    pub const STAGE: &str = "sky.trainyard.dev/stage";
    /// Annotation of a JobSet: what became of a job that was ended from outside (`CANCELLED`, `FAILED`).
    pub const ENDED: &str = "sky.trainyard.dev/ended";
    /// Annotation of a JobSet: when its turn came, RFC 3339.
    pub const TURN: &str = "sky.trainyard.dev/turn";
    /// Annotation of a JobSet: GPUs that each of its pods holds.
    pub const GPUS: &str = "sky.trainyard.dev/gpus-per-node";
    /// Annotation of a JobSet: `true` lets it pass jobs that wait.
    pub const BACKFILL: &str = "sky.trainyard.dev/backfill";
    /// Label of pods that run the hooks of a cluster: `stop` or `down`. Beside it: [`CLUSTER`].
    pub const HOOK: &str = "sky.trainyard.dev/hook";
    /// Annotation of pods: addresses of the job's nodes in the order of ranks, by newlines.
    pub const NODE_IPS: &str = "sky.trainyard.dev/node-ips";
    /// Annotation of pods of a job group: addresses and names of the machines of its tasks, a line each: `ADDRESS NAME`. It may change while
    /// the pod runs.
    pub const HOSTS: &str = "sky.trainyard.dev/hosts";
    /// Annotation of a JobSet: `true` keeps it from its turn until its managed job takes the annotation away.
    pub const HELD: &str = "sky.trainyard.dev/held";
    /// Annotation of a Cluster or a Machine that is to be forgotten though its provider fails.
    pub const PURGE: &str = "sky.trainyard.dev/purge";
    /// Annotation of a Machine whose provider is to be asked at once how it is; it goes when that has been done.
    pub const REFRESH: &str = "sky.trainyard.dev/refresh";
    /// Finalizer of Clusters and Machines: something of them may still be out there.
    pub const LEDGER: &str = "sky.trainyard.dev/ledger";
    /// Finalizer of Machines that a budget counts: their spend is not settled yet.
    pub const BUDGET: &str = "sky.trainyard.dev/budget";
    /// Annotation of Launches, Clusters and Machines: names of the budgets that count them, with commas.
    pub const BUDGETS: &str = "sky.trainyard.dev/budgets";
    /// Label of JobSets: the uid of the Launch that submitted the job.
    pub const LAUNCH: &str = "sky.trainyard.dev/launch";
    /// Label of Secrets: the variables of a task that is being launched.
    pub const VARIABLES: &str = "sky.trainyard.dev/variables";
    /// Label of ConfigMaps that keep the record of clusters that are gone.
    pub const HISTORY: &str = "sky.trainyard.dev/cluster-history";
}

/// Names of providers, as `spec.candidate.provider` has them. Code asks [`Candidate::place`].
pub mod providers {
    /// This computer.
    pub const LOCAL: &str = "local";
    /// Hosts of pools.
    pub const SSH: &str = "ssh";
    /// Pods of Kubernetes clusters.
    pub const KUBERNETES: &str = "kubernetes";
}

/// Where a machine is made, with what only that place has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place<'a> {
    /// The control plane's computer.
    Local,
    /// A host of a pool, reached by SSH; without a name: any that is free.
    Ssh { pool: &'a str, host: Option<&'a str> },
    /// A pod of the cluster of a context of the kubeconfig.
    Kubernetes { context: &'a str, options: &'a PodOptions },
    /// A provider that has no options of its own here, by name.
    Other(&'a str),
}

impl Candidate {
    /// Where it is: the one reading of `provider`, and of the fields whose meaning depends on it.
    pub fn place(&self) -> Place<'_> {
        match self.provider.as_str() {
            providers::LOCAL => Place::Local,
            providers::SSH => {
                Place::Ssh { pool: &self.region, host: Some(self.zone.as_str()).filter(|zone| !zone.is_empty()) }
            }
            providers::KUBERNETES => Place::Kubernetes { context: &self.region, options: &self.pod },
            other => Place::Other(other),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A named set of identical machines that run the jobs of task files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cluster {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Cluster`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ClusterSpec,
    /// What is there, as last observed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ClusterStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterSpec {
    /// How many machines.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub nodes: i32,
    /// What each machine may be and where, the preferred one first; the next is tried where one has no capacity.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1000)))]
    pub candidates: Vec<Candidate>,
    /// Whether the machines are to run. Default: Running.
    #[serde(default, skip_serializing_if = "is_default")]
    pub power: Power,
    /// When to stop or to end the cluster by itself. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop: Option<Autostop>,
    /// Whether to begin anew with the first candidate where all of them had no capacity. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry_until_up: bool,
    /// Scripts that run on its machines before they are stopped or ended. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 33), extend("x-kubernetes-list-type" = "atomic")))]
    pub hooks: Vec<ClusterHook>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: String,
    /// The command that asked for it last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub command: String,
}

/// A script that runs on each machine of a cluster before the machine is stopped or ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterHook {
    /// The script, for bash.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 16384)))]
    pub run: String,
    /// The events before which it runs.
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub events: Vec<HookEvent>,
    /// Seconds that it may run.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub timeout_seconds: i32,
}

/// What a hook runs before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HookEvent {
    /// The cluster stops.
    #[default]
    Stop,
    /// A provider takes a machine away. No provider warns of that, so these hooks do not run yet.
    Preemption,
    /// The cluster ends.
    Down,
}

impl HookEvent {
    /// `stop`, `preemption`, `down`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Preemption => "preemption",
            Self::Down => "down",
        }
    }

    /// The event of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Stop, Self::Preemption, Self::Down].into_iter().find(|event| event.as_str() == name)
    }
}

/// The latest run of the hooks of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HookRun {
    /// Number of this run, from 1; part of the names of its pods.
    pub number: u32,
    /// The event for which they ran.
    pub event: HookEvent,
    /// When they began, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub began_at: String,
    /// When all of them had ended, RFC 3339. Empty: some still run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
    /// One line for each machine whose hooks failed or did not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub failures: Vec<String>,
    /// Whether the cluster was told to run again after these hooks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_past: bool,
}

/// What a machine may be, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Candidate {
    /// Who makes it: `local`, `ssh`, `kubernetes`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub provider: String,
    /// The region; the pool, of machines that are reached by SSH; the context, of a Kubernetes cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub region: String,
    /// The zone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub zone: String,
    /// The type of machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub instance_type: String,
    /// Processors; 0 leaves it to the provider.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpus: f64,
    /// Memory in GiB; 0 leaves it to the provider.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory: f64,
    /// The accelerators that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<Accelerators>,
    /// Whether it may be taken away at any time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spot: bool,
    /// Dollars an hour for one machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hourly_price: f64,
    /// How the pod is made that holds it, of a machine on a Kubernetes cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pod: PodOptions,
}

/// How the pod of a machine on a Kubernetes cluster is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodOptions {
    /// The image in which jobs run. Default: one with bash and Python.
    #[serde(default, skip_serializing_if = "is_default")]
    pub image: String,
    /// The service account. Default: the namespace's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub service_account: String,
    /// Labels of the pod, beside ours.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    #[serde(default, skip_serializing_if = "is_default")]
    pub annotations: BTreeMap<String, String>,
    /// Fields of a pod that are laid over ours (`metadata`, `spec`).
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(extend("type" = "object", "x-kubernetes-preserve-unknown-fields" = true)))]
    pub config: serde_json::Value,
    /// How long the pod may wait for a node, seconds; below 0: for ever. Default: 10.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait_seconds: i32,
}

/// Accelerators of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accelerators {
    /// Their name: `H100`.
    pub name: String,
    /// How many; parts of one are possible where the provider can share it.
    pub count: f64,
}

/// Whether machines are to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Power {
    #[default]
    Running,
    Stopped,
}

/// When a cluster stops or ends by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Autostop {
    /// Minutes without work after which it does.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub idle_minutes: i32,
    /// Whether it is ended rather than stopped. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub down: bool,
    /// What counts as work. Default: JobsAndSsh.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait_for: WaitFor,
    /// When it was set; idleness counts from then on at the earliest.
    #[serde(default, skip_serializing_if = "is_default")]
    pub since: String,
}

/// What keeps a cluster from stopping by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum WaitFor {
    /// Jobs, and sessions over SSH.
    #[default]
    JobsAndSsh,
    /// Jobs alone.
    Jobs,
    /// Nothing: the minutes count from when it was set.
    None,
}

/// What is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterStatus {
    /// Where the cluster stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub phase: ClusterPhase,
    /// Which candidate is tried or was taken, from 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub candidate: i32,
    /// How many sets of machines were begun; part of their names.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: i32,
    /// The machines in the order of ranks, the head first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub nodes: Vec<ClusterNode>,
    /// Dollars an hour for all machines while they run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hourly_price: f64,
    /// When it was last launched or started, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub launched_at: String,
    /// When it last had work, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_activity: String,
    /// When its machines ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub usage: Vec<Interval>,
    /// What became of its hooks, if they have ever run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hooks: HookRun,
    /// Why it is not what is asked for: what the provider said.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// What was tried in vain, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub rejected: Vec<String>,
    /// How many of the candidates, in this round, were refused for another reason than capacity.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refusals: u32,
    /// The generation of the spec that all this is about.
    #[serde(default, skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// Each with when and why it last changed: `Ready`, `Failed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Condition>", extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

/// Where a cluster stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ClusterPhase {
    /// Its machines are being made or started, or not all of them are well.
    #[default]
    Init,
    /// All machines run.
    Up,
    /// All machines are stopped.
    Stopped,
    /// It stops or ends by itself.
    Autostopping,
}

impl Cluster {
    /// The candidate that it is at, or tries; `None` once all have been tried.
    pub fn at(&self) -> Option<&Candidate> {
        self.spec.candidates.get(usize::try_from(self.status.candidate).ok()?)
    }
}

impl ClusterPhase {
    /// `INIT`, `UP`, `STOPPED`, `AUTOSTOPPING`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Up => "UP",
            Self::Stopped => "STOPPED",
            Self::Autostopping => "AUTOSTOPPING",
        }
    }
}

/// A machine of a cluster, as its jobs see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterNode {
    /// Its Machine.
    pub machine: String,
    /// Its Node.
    pub node: String,
    /// Its address, as the others reach it.
    pub address: String,
    /// The home directory that jobs have on it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub home: String,
}

/// A time from one moment to another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// When it began, RFC 3339.
    pub from: String,
    /// When it ended; empty where it has not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub to: String,
}

/// A line of the ledger: a machine that is, or may be, out there. It is written before the provider is called, and goes when the provider
/// says that the machine is gone. Its uid is the token by which the provider knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Machine`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: MachineSpec,
    /// What the provider said last.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: MachineStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineSpec {
    /// The Cluster that it is of.
    pub cluster: String,
    /// Its place in the cluster, from 0, which is the head.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub rank: i32,
    /// What it is to be, and where.
    pub candidate: Candidate,
    /// Whether it is to run. Default: Running.
    #[serde(default, skip_serializing_if = "is_default")]
    pub power: Power,
    /// Labels of its Node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
}

/// What the provider said last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MachineStatus {
    /// Where the machine stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub phase: MachinePhase,
    /// What the provider calls it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub id: String,
    /// Its Node.
    #[serde(default, skip_serializing_if = "is_default")]
    pub node: String,
    /// Its address, as other machines of the cluster reach it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub address: String,
    /// The home directory that jobs have on it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub home: String,
    /// How often in a row the provider failed, did not see the machine, or found that it ended before it ran.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: i32,
    /// Why the machine ended, where it is lost; else what the provider said when it failed last, empty after a success.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// When a lost machine ended, RFC 3339: as its provider says, else when that was noticed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
}

/// Where a machine stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum MachinePhase {
    /// The provider has been or will be asked to make it, and has not said that it runs.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// It is on its way to being stopped.
    Stopping,
    /// It is stopped.
    Stopped,
    /// It is on its way to running again.
    Starting,
    /// The provider has no room for it: another place may have.
    NoCapacity,
    /// The provider refuses it, and would again.
    Refused,
    /// It ran, and the provider has proof that it has ended; the message says why.
    Lost,
    /// It is on its way out.
    Deleting,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_once() {
        let of = |text: &str| serde_json::from_str::<Candidate>(text).unwrap();
        assert_eq!(of(r#"{"provider": "local"}"#).place(), Place::Local);
        let ssh = of(r#"{"provider": "ssh", "region": "lab"}"#);
        assert_eq!(ssh.place(), Place::Ssh { pool: "lab", host: None });
        let host = of(r#"{"provider": "ssh", "region": "lab", "zone": "10.0.0.1"}"#);
        assert_eq!(host.place(), Place::Ssh { pool: "lab", host: Some("10.0.0.1") });
        let pod = of(r#"{"provider": "kubernetes", "region": "c", "pod": {"image": "i"}}"#);
        let Place::Kubernetes { context: "c", options } = pod.place() else { panic!("{:?}", pod.place()) };
        assert_eq!(options.image, "i");
        assert_eq!(of(r#"{"provider": "aws", "region": "us-east-1"}"#).place(), Place::Other("aws"));
        // what was stored is written as it was
        let text = r#"{"provider":"ssh","region":"lab","zone":"10.0.0.1"}"#;
        assert_eq!(serde_json::to_string(&of(text)).unwrap(), text);
    }
}
