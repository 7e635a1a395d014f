//! `ManagedJob`: a job that has clusters of its own, and new ones when their machines are lost.

use super::{LaunchFiles, is_default};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A job that the control plane owns: it makes a cluster for each task, starts the task again when machines are lost, and removes the
/// cluster at the end. No client need wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManagedJob {
    /// `sky.trainyard.dev/v1alpha1`.
    #[serde(default)]
    pub api_version: String,
    /// `ManagedJob`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: ManagedJobSpec,
    /// What became of it so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: ManagedJobStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManagedJobSpec {
    /// Number of the job in its namespace, by which users name it.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub id: u32,
    /// What the user calls the job. Default: it has no name.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub name: String,
    /// The ConfigMap with the tasks, under the key `job`. Jobs that were submitted together share it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub submission: String,
    /// Jobs of a higher priority are launched first. Default: 0.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = -1000, max = 1000)))]
    pub priority: i32,
    /// Whether the job is to end now. It never starts again. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cancel: bool,
    /// Why a budget stops the job. A stopped job never starts again. Default: empty.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024)))]
    pub halted: String,
    /// The Pool on whose workers it runs. Default: none; it makes clusters of its own.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(length(max = 253)))]
    pub pool: String,
    /// Its number among the jobs that were submitted together, from 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rank: u32,
    /// Whether it is a job group: its tasks start together and reach one another. Default: false; its tasks run one after another.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group: bool,
    /// The service or the pool that it is a replica of. Default: none; users name it by its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaOf>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: String,
    /// The command that asked for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub command: String,
}

impl ManagedJob {
    /// Whether a user or a budget has asked for its end.
    pub fn is_ending(&self) -> bool {
        self.spec.cancel || !self.spec.halted.is_empty()
    }

    /// The tasks that have their turn now, with their numbers: those of a group that have not ended, or the first that has not succeeded.
    pub fn in_play(&self) -> impl Iterator<Item = (usize, &ManagedTask)> {
        let (is_group, current) = (self.spec.group, self.status.current());
        let all = self.status.tasks.iter().enumerate();
        all.filter(move |(index, task)| if is_group { !task.state.has_ended() } else { Some(*index) == current })
    }
}

/// What a job that is a replica needs to know of its service or pool. Its `id` is the replica's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicaOf {
    /// The name of the Serving or the Pool.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: String,
    /// The version that it is of.
    pub version: u32,
    /// Whether its machines are kept after its task has succeeded, until the job is cancelled. Default: false.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holds: bool,
    /// Whether its machines are spot machines. Default: as the task says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_spot: Option<bool>,
    /// `provider/region/zone` where its machines are made. Default: wherever the task may run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub place: String,
}

/// What jobs of one submission share: the value of the key `job` of their ConfigMap, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobFile {
    /// When it was submitted: `2026-01-01-00-00-00-000000`. Part of the tasks' ids.
    pub submitted: String,
    /// The tasks, which run one after another, or, in a job group, at the same time.
    pub tasks: Vec<JobTask>,
    /// Settings that go before those of the control plane's `~/.sky/config.yaml`.
    pub settings: serde_json::Value,
    /// The folder of price lists. Default: `~/.sky/catalogs/v8` of the control plane.
    pub catalog: String,
    /// How many jobs were submitted together.
    #[serde(skip_serializing_if = "is_default")]
    pub count: u32,
}

/// What a job of a pool takes of each machine of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkerShare {
    /// Processors; 0: none are asked for.
    pub cpus: f64,
    /// GiB of memory; 0: none is asked for.
    pub memory: f64,
    /// GPUs; `None`: none are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<super::Accelerators>,
}

/// A task of a managed job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobTask {
    /// Its name; empty for none.
    pub name: String,
    /// The task in the form of a task file, without variables, secrets and files of the client.
    pub task: serde_json::Value,
    /// Files of the client, which the control plane keeps by content.
    pub files: Vec<LaunchFiles>,
    /// The Secret with its variables; empty for none.
    pub secret: String,
    /// A digest of what it sets up.
    pub configuration: String,
    /// What it asks for, as tables show it: `1x[CPU:1+]`.
    pub requested: String,
    /// What it takes of a worker if it runs in a pool: one of these. Empty: it takes a worker as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<WorkerShare>,
    /// Whether it has nothing to run, so that it succeeds at once.
    pub is_empty: bool,
    /// When it is started again.
    pub recovery: JobRecovery,
    /// Makes it an auxiliary task of a job group, which is ended so many seconds after all primary tasks have ended. `None`: it is a primary
    /// task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auxiliary: Option<u32>,
    /// What an hour of its most expensive place costs, as known when it was submitted.
    #[serde(skip_serializing_if = "is_default")]
    pub rate: JobRate,
    /// Its `service` section, without secrets: where there are some, it says `true`. Null: it has none.
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub service: serde_json::Value,
}

/// What an hour of all machines of a task costs. All 0: it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRate {
    /// Dollars.
    pub dollars: f64,
    /// Accelerators.
    pub gpus: f64,
    /// Machines.
    pub machines: f64,
}

/// When a task is started again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobRecovery {
    /// Where it is started again after its machines were lost.
    pub strategy: JobStrategy,
    /// How often it is started again after its own code failed.
    pub max_restarts_on_errors: u32,
    /// Exit codes after which it is started again without counting.
    pub recover_on_exit_codes: Vec<i64>,
}

/// Where a task is started again after its machines were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStrategy {
    /// In another region first.
    #[default]
    EagerNextRegion,
    /// In the same region first.
    Failover,
    /// Nowhere: the task fails.
    None,
}

/// What became of a managed job so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManagedJobStatus {
    /// Where the job stands: the state of its first task that has not succeeded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: ManagedState,
    /// How often its tasks were started again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recoveries: u32,
    /// The job may make so many attempts, of all its tasks. It waits for its turn while it has made as many.
    #[serde(default, skip_serializing_if = "is_default")]
    pub turn: u32,
    /// Number of the pool's worker for its next or its current attempt; 0: none yet. Only in a pool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub worker: u32,
    /// What the user calls the cluster of that worker.
    #[serde(default, skip_serializing_if = "is_default")]
    pub worker_cluster: String,
    /// Its tasks, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub tasks: Vec<ManagedTask>,
    /// The callbacks of its tasks, in the order of the tasks. Empty while none has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub callbacks: Vec<TaskCallbacks>,
}

/// What became of the callbacks of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskCallbacks {
    /// Number of the latest event whose callback has ended; 0: none has.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_event: u32,
    /// How many callbacks failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failed: u32,
    /// How many events had no callback, because the callbacks before them took too long.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skipped: u32,
    /// How the latest failed callback ended, and how to see its output.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_failure: String,
}

impl ManagedJobStatus {
    /// How many attempts its tasks have made together.
    pub fn made(&self) -> u32 {
        self.tasks.iter().map(|task| task.attempt).sum()
    }

    /// Number of the first task that has not succeeded; `None`: all have, or there are none yet.
    pub fn current(&self) -> Option<usize> {
        self.tasks.iter().position(|task| task.state != ManagedState::Succeeded)
    }
}

/// What became of a task so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManagedTask {
    /// Where it stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: ManagedState,
    /// What it waits for, or why it ended as it did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub message: String,
    /// Number of its latest attempt; 0: there was none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempt: u32,
    /// How often it was started again, whatever the ground.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recoveries: u32,
    /// How often it was started again because its own code failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub restarts: u32,
    /// Launches in a row that found no capacity.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// The next attempt does not begin before this time, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_before: String,
    /// The machines that its next attempt looks for, as those of its latest one; it is tried again when some of them may be free. None
    /// while its code runs, and in a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityWanted>,
    /// When its providers were asked whether machines were lost, because its code failed, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub asked_at: String,
    /// What the user calls the cluster of the latest attempt.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: String,
    /// Whether the next attempt is on the cluster of the latest one, whose other machines are well.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_kept: bool,
    /// `provider/region` of the attempt whose machines were lost; the next attempt begins elsewhere, or there, as the strategy says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_at: String,
    /// When it was first running, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started_at: String,
    /// When it was running again after the latest recovery, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recovered_at: String,
    /// When it ended, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
    /// Seconds that it ran, without the attempt that runs now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_secs: i64,
    /// The latest attempts, ten at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub attempts: Vec<JobAttempt>,
    /// The latest events for its callback, 20 at most. Only tasks with an `event_callback` have events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub events: Vec<TaskEvent>,
}

/// The machines that a task looks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapacityWanted {
    /// `provider/region` of each place where they may be, 16 at most. Empty: there are more places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub places: Vec<String>,
    /// How many machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nodes: u32,
    /// A digest of what each machine must have: equal for equal requests.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: String,
}

/// A change of a task's state, for its callback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskEvent {
    /// Its number, from 1.
    pub number: u32,
    /// `JOB_STATUS` of the callback: `SUBMITTED`, `STARTING`, `STARTED`, `RECOVERING`, `RECOVERED`, `SUCCEEDED`, `FAILED`, `CANCELLING` or
    /// `CANCELLED`.
    pub status: String,
    /// What the user called the task's cluster at that time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: String,
}

impl ManagedTask {
    /// Its latest attempt, if that has not ended.
    pub fn open_attempt(&self) -> Option<&JobAttempt> {
        self.attempts.last().filter(|attempt| attempt.ended_at.is_empty())
    }
}

/// A launch of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobAttempt {
    /// Its number, from 1.
    pub number: u32,
    /// What the user calls its cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cluster: String,
    /// Number of its job on the cluster.
    #[serde(default, skip_serializing_if = "is_default")]
    pub job: u32,
    /// Where its machines were: `provider/region/zone`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub place: String,
    /// Dollars an hour for all its machines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hourly_price: f64,
    /// When it began, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub began_at: String,
    /// When its code began to run, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ran_at: String,
    /// When it ended, RFC 3339.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ended_at: String,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ground: Ground,
    /// The evidence, in words.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evidence: String,
}

/// Why an attempt ended. Whatever the control plane cannot see is no ground: its network, its clock, an API that fails, its own restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Ground {
    /// It has not ended.
    #[default]
    None,
    /// The provider said that machines of it have ended.
    MachinesLost,
    /// The agents reported how its processes exited.
    Exited,
    /// The agents reported that its processes were killed with their supervisor, as by a restart of the machine.
    Interrupted,
    /// It had no machines: no place had capacity.
    NoCapacity,
    /// A provider or the control plane refused it, and would again.
    Refused,
    /// A user asked for its end, or removed its cluster.
    Asked,
    /// A budget stopped the job.
    Budget,
    /// Its job group ended it.
    Group,
}

/// Where a task or a managed job stands, in SkyPilot's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ManagedState {
    /// It waits for its turn, or for capacity.
    #[default]
    Pending,
    /// An older name of `STARTING`.
    Submitted,
    /// Its machines are made, or set up.
    Starting,
    /// Its code runs.
    Running,
    /// Its results are gathered, or auxiliary tasks of a job group end after the primary ones.
    WindingDown,
    /// It is being started again.
    Recovering,
    /// It is being ended.
    Cancelling,
    /// Its code exited with 0.
    Succeeded,
    /// A user ended it.
    Cancelled,
    /// Its code failed.
    Failed,
    /// Its `setup` failed.
    FailedSetup,
    /// It could never run.
    FailedPrechecks,
    /// There were no machines for it, or its pool is gone.
    FailedNoResource,
    /// The control plane failed.
    FailedController,
}

impl ManagedState {
    /// All, in the order in which commands list them.
    pub const ALL: [Self; 14] = [
        Self::Pending,
        Self::Submitted,
        Self::Starting,
        Self::Running,
        Self::WindingDown,
        Self::Recovering,
        Self::Cancelling,
        Self::Succeeded,
        Self::Cancelled,
        Self::Failed,
        Self::FailedSetup,
        Self::FailedPrechecks,
        Self::FailedNoResource,
        Self::FailedController,
    ];

    /// `FAILED_SETUP`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Submitted => "SUBMITTED",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::WindingDown => "WINDING_DOWN",
            Self::Recovering => "RECOVERING",
            Self::Cancelling => "CANCELLING",
            Self::Succeeded => "SUCCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::Failed => "FAILED",
            Self::FailedSetup => "FAILED_SETUP",
            Self::FailedPrechecks => "FAILED_PRECHECKS",
            Self::FailedNoResource => "FAILED_NO_RESOURCE",
            Self::FailedController => "FAILED_CONTROLLER",
        }
    }

    /// The state of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it failed.
    pub fn is_failed(self) -> bool {
        use ManagedState::{Failed, FailedController, FailedNoResource, FailedPrechecks, FailedSetup};
        matches!(self, Failed | FailedSetup | FailedPrechecks | FailedNoResource | FailedController)
    }

    /// Whether nothing more comes.
    pub fn has_ended(self) -> bool {
        self.is_failed() || matches!(self, Self::Succeeded | Self::Cancelled)
    }

    /// The exit code of a command that waits for the job: 0, 100 failed, 101 not over, 103 cancelled.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::Cancelled => 103,
            state if state.is_failed() => 100,
            _ => 101,
        }
    }
}
