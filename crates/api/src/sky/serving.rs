//! `Serving`: a service with replicas behind a load balancer, and `Pool`: workers that wait for jobs.

use super::is_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A service: the control plane keeps as many replicas as its policy asks for, and a load balancer sends requests to those that are ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Serving {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Serving`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: FleetSpec,
    /// How it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: FleetStatus,
}

/// A pool: the control plane keeps as many workers as its policy asks for. Managed jobs that name the pool run on them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `Pool`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: FleetSpec,
    /// How it is.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: FleetStatus,
}

/// What is asked for: the latest version of a service or a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetSpec {
    /// What the user calls it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub name: String,
    /// Number of the version, from 1. Each update adds 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub version: u32,
    /// The ConfigMap with the version's task, under the key `job`.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub submission: String,
    /// How replicas of older versions are replaced. Default: Rolling.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: UpdateMode,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: String,
    /// The command that asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub command: String,
    /// Where the load balancer of a service listens: `ADDRESS` or `ADDRESS:PORT`. Without a port it is the first free one from 30001 on.
    /// Default: the loopback address 127.0.0.1. A change makes the load balancer start again.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub listen: String,
}

/// How replicas of older versions are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum UpdateMode {
    /// An old replica ends for each new one that is ready. Both versions get requests meanwhile.
    #[default]
    Rolling,
    /// Only the old version gets requests until enough new replicas are ready; then only the new one does.
    BlueGreen,
}

/// How a service or a pool is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// Its state as a whole.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: FleetState,
    /// What it waits for, or what is wrong.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Since when a replica has been ready without a break, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready_since: String,
    /// Versions that get requests or jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub active_versions: Vec<u32>,
    /// Versions whose replicas may exist, oldest first. The last one is the latest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub versions: Vec<FleetVersion>,
    /// Number of the replica that was made last; 0: none was.
    #[serde(default, skip_serializing_if = "is_default")]
    pub made: u32,
    /// What the scaler remembers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaler: ScalerMemory,
    /// Zones where spot machines may be made. Only with a spot placer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub zones: Vec<FleetZone>,
    /// Zones in which spot machines were lost, and where none are made for now: `provider/region/zone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub preempted: Vec<String>,
    /// Its replicas by number, those that have failed included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub replicas: Vec<Replica>,
    /// Settings of the load balancer. Only of a service.
    #[serde(default, skip_serializing_if = "is_default")]
    pub balancing: Balancing,
    /// What the load balancer reports. It alone writes this.
    #[serde(default, skip_serializing_if = "is_default")]
    pub load: ServingLoad,
}

/// A version of a service or a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetVersion {
    /// Its number.
    pub number: u32,
    /// The ConfigMap with its task.
    pub submission: String,
    /// How it replaces older versions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: UpdateMode,
    /// Whether a replica of it has ever been ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ever_ready: bool,
    /// Why no more replicas of it are made: it has failed before any replica was ready. Empty: they are made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stopped: String,
}

/// A zone where spot machines may be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetZone {
    /// `provider/region/zone`.
    pub place: String,
    /// Dollars an hour for the machines of a replica.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hourly_price: f64,
}

/// What the scaler remembers between two looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScalerMemory {
    /// Replicas that are wanted, without those in reserve.
    #[serde(default, skip_serializing_if = "is_default")]
    pub target: u32,
    /// Looks in a row that asked for more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub up: u32,
    /// Looks in a row that asked for fewer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub down: u32,
    /// The version that it scales; 0: none yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub version: u32,
    /// When it looked last, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub looked_at: String,
}

/// A replica of a service, or a worker of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replica {
    /// Its number, from 1. Numbers are never reused.
    pub number: u32,
    /// The version that it is of.
    pub version: u32,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: ReplicaState,
    /// What it waits for, or why it has failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Whether it failed in a way that another replica of its version would repeat.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_fatal: bool,
    /// Whether it is being ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_ending: bool,
    /// What the user calls its cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: String,
    /// `host:port` where it answers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub address: String,
    /// Whether its machines are spot machines. Default: as the task says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_spot: Option<bool>,
    /// Where its machines are: `provider/region/zone`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub place: String,
    /// What its machines have, as tables show it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: String,
    /// The kind of its GPUs: `A100:1`; empty for none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu: String,
    /// When its machines were up, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub launched_at: String,
    /// When its code began to run, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_at: String,
    /// When it was ready for the first time, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready_at: String,
    /// When it failed or was ended, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
}

/// Settings of a service's load balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Balancing {
    /// `least_load`, `round_robin` or `instance_aware_least_load`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub policy: String,
    /// Seconds without a byte after which a request ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream_timeout_seconds: f64,
    /// Whether it answers with TLS.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_tls: bool,
    /// Whether requests are refused while no replica is ready, because none will be. Default: they wait.
    #[serde(default, skip_serializing_if = "is_default")]
    pub refuses: bool,
    /// The replicas that may be reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub backends: Vec<BalancedReplica>,
}

/// A replica as the load balancer knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BalancedReplica {
    /// Number of the replica.
    pub replica: u32,
    /// `host:port`.
    pub address: String,
    /// Whether it gets requests while it is ready. Default: Serving.
    #[serde(default, skip_serializing_if = "is_default")]
    pub traffic: Traffic,
    /// Requests per second that it is for; 0: unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub capacity: f64,
    /// How the load balancer finds out whether it is ready.
    pub probe: ReadinessProbe,
}

/// Whether a replica gets requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Traffic {
    /// It does while it is ready.
    #[default]
    Serving,
    /// It is probed and gets none.
    Probed,
    /// Those that it has go on; it gets no more.
    Draining,
}

/// A request that tells whether a replica is ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReadinessProbe {
    /// `/health`.
    pub path: String,
    /// Seconds that an answer may take.
    pub timeout_seconds: f64,
    /// Seconds between two probes.
    pub interval_seconds: f64,
    /// What is sent, as JSON; the request is a POST then. Default: nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub body: String,
    /// The key of the load balancer's Secret that holds its headers as JSON; they may be tokens. Default: it has none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub headers_key: String,
}

/// What the load balancer of a service reports, or what gives jobs to the workers of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServingLoad {
    /// Where it answers: `http://127.0.0.1:30001`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub endpoint: String,
    /// Why it does not work as it should.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Requests that came in the last minute.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requests_last_minute: u64,
    /// Requests that wait for a replica, or jobs that wait for a worker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub held: u64,
    /// The replicas that it probes, or the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub backends: Vec<ReplicaReport>,
}

/// What is reported of a replica or of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaReport {
    /// Number of the replica.
    pub replica: u32,
    /// Whether it gets no more requests or jobs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_draining: bool,
    /// Whether its latest probe succeeded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_ready: bool,
    /// When a probe succeeded for the first time, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ready_at: String,
    /// Since when all probes have failed, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failing_since: String,
    /// Probes in a row that failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// How the latest one failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_failure: String,
    /// Requests or jobs that it works on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub in_flight: u64,
}

/// Where a replica stands, in SkyPilot's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ReplicaState {
    /// It waits for its turn, or for capacity.
    #[default]
    Pending,
    /// Its machines are made.
    Provisioning,
    /// Its code runs or is set up, and it has not been ready yet.
    Starting,
    /// It has been ready, and its latest probe failed.
    NotReady,
    /// It is ready.
    Ready,
    /// It is being ended.
    ShuttingDown,
    /// Its code has failed.
    Failed,
    /// It was not ready in time.
    FailedInitialDelay,
    /// It was ready, and its probes failed for too long.
    FailedProbing,
    /// There were no machines for it.
    FailedProvision,
    /// Its machines could not be removed.
    FailedCleanup,
    /// Its machines are lost.
    Preempted,
    /// Nothing is known about it.
    Unknown,
}

impl ReplicaState {
    /// All.
    pub const ALL: [Self; 13] = [
        Self::Pending,
        Self::Provisioning,
        Self::Starting,
        Self::NotReady,
        Self::Ready,
        Self::ShuttingDown,
        Self::Failed,
        Self::FailedInitialDelay,
        Self::FailedProbing,
        Self::FailedProvision,
        Self::FailedCleanup,
        Self::Preempted,
        Self::Unknown,
    ];

    /// `NOT_READY`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Provisioning => "PROVISIONING",
            Self::Starting => "STARTING",
            Self::NotReady => "NOT_READY",
            Self::Ready => "READY",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Failed => "FAILED",
            Self::FailedInitialDelay => "FAILED_INITIAL_DELAY",
            Self::FailedProbing => "FAILED_PROBING",
            Self::FailedProvision => "FAILED_PROVISION",
            Self::FailedCleanup => "FAILED_CLEANUP",
            Self::Preempted => "PREEMPTED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it has failed.
    pub fn is_failed(self) -> bool {
        use ReplicaState::{Failed, FailedCleanup, FailedInitialDelay, FailedProbing, FailedProvision, Unknown};
        matches!(self, Failed | FailedInitialDelay | FailedProbing | FailedProvision | FailedCleanup | Unknown)
    }

    /// Whether it is on its way out, or has ended.
    pub fn has_ended(self) -> bool {
        self.is_failed() || matches!(self, Self::ShuttingDown | Self::Preempted)
    }
}

/// Where a service or a pool stands, in SkyPilot's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum FleetState {
    /// It was submitted a moment ago.
    #[default]
    ControllerInit,
    /// Replicas are made, and none is ready yet.
    ReplicaInit,
    /// The control plane cannot run it.
    ControllerFailed,
    /// A replica is ready.
    Ready,
    /// It is being ended.
    ShuttingDown,
    /// Its replicas fail, and none is made any more.
    Failed,
    /// What is left of it could not be removed.
    FailedCleanup,
    /// It wants no replica now.
    NoReplica,
}

impl FleetState {
    /// `NO_REPLICA`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControllerInit => "CONTROLLER_INIT",
            Self::ReplicaInit => "REPLICA_INIT",
            Self::ControllerFailed => "CONTROLLER_FAILED",
            Self::Ready => "READY",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Failed => "FAILED",
            Self::FailedCleanup => "FAILED_CLEANUP",
            Self::NoReplica => "NO_REPLICA",
        }
    }
}
