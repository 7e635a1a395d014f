//! The API group `jobset.x-k8s.io/v1alpha2`: a JobSet runs several groups of Jobs as one.
//!
//! Our own fields are typed; Job templates and volume claim templates stay [`serde_json::Value`], so that a field that is
//! newer than this program survives the way through it. The bounds, defaults and CEL rules beside the fields are what
//! `xtask crds` writes into the CRD. Doc comments become the texts of `kubectl explain`.

use crate::object::Gvk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The API group.
pub const GROUP: &str = "jobset.x-k8s.io";
/// The only version served.
pub const VERSION: &str = "v1alpha2";
/// `jobset.x-k8s.io/v1alpha2`.
pub const API_VERSION: &str = "jobset.x-k8s.io/v1alpha2";
/// The kind.
pub const KIND: &str = "JobSet";

/// `jobset.x-k8s.io/v1alpha2, Kind=JobSet`.
pub fn gvk() -> Gvk {
    Gvk::new(GROUP, VERSION, KIND)
}

/// `spec.managedBy` of JobSets that this controller reconciles; so does an absent one.
pub const MANAGER: &str = "jobset.sigs.k8s.io/jobset-controller";

/// Labels and annotations. Unless said otherwise a child Job and its pods carry each as both.
pub mod keys {
    /// Name of the JobSet.
    pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
    /// Uid of the JobSet.
    pub const JOBSET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
    /// Name of the replicated job.
    pub const REPLICATED_JOB_NAME: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    /// Replicas of the replicated job.
    pub const REPLICATED_JOB_REPLICAS: &str = "jobset.sigs.k8s.io/replicatedjob-replicas";
    /// Replicas of all replicated jobs together.
    pub const GLOBAL_REPLICAS: &str = "jobset.sigs.k8s.io/global-replicas";
    /// Index of the Job in its replicated job.
    pub const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
    /// Index of the Job among all Jobs of the JobSet.
    pub const JOB_GLOBAL_INDEX: &str = "jobset.sigs.k8s.io/job-global-index";
    /// Index of a pod among those of its Job, as the Job controller writes it; of a JobSet's pods, in their Job.
    pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
    /// SHA-1, in lower-case hexadecimal, of `<namespace>/<name of the Job>`.
    pub const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";
    /// Group of the replicated job.
    pub const GROUP_NAME: &str = "jobset.sigs.k8s.io/group-name";
    /// Replicas of all replicated jobs of the group.
    pub const GROUP_REPLICAS: &str = "jobset.sigs.k8s.io/group-replicas";
    /// Index of the Job among the Jobs of its group.
    pub const JOB_GROUP_INDEX: &str = "jobset.sigs.k8s.io/job-group-index";
    /// `status.restarts` when the Job was made.
    pub const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
    /// Host name of the coordinator pod, where `spec.coordinator` names one.
    pub const COORDINATOR: &str = "jobset.sigs.k8s.io/coordinator";
    /// Priority of the pod; a label, of pods only.
    pub const PRIORITY: &str = "jobset.sigs.k8s.io/priority";
    /// Annotation: node label whose values are given to one Job each.
    pub const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    /// Annotation: nodes were labelled for their Jobs beforehand.
    pub const NODE_SELECTOR_STRATEGY: &str = "alpha.jobset.sigs.k8s.io/node-selector";
    /// Node label that the node selector strategy selects by.
    pub const NAMESPACED_JOB: &str = "alpha.jobset.sigs.k8s.io/namespaced-job";
    /// Taint that the node selector strategy tolerates.
    pub const NO_SCHEDULE_TAINT: &str = "alpha.jobset.sigs.k8s.io/no-schedule";
}

/// Types of a JobSet's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    Completed,
    Failed,
    Suspended,
    RestartingJobSet,
    StartupPolicyInProgress,
    StartupPolicyCompleted,
}

impl ConditionType {
    /// As `status.conditions[].type` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::RestartingJobSet => "RestartingJobSet",
            Self::StartupPolicyInProgress => "StartupPolicyInProgress",
            Self::StartupPolicyCompleted => "StartupPolicyCompleted",
        }
    }
}

/// Reasons of conditions and events.
pub mod reasons {
    pub const ALL_JOBS_COMPLETED: &str = "AllJobsCompleted";
    pub const FAILED_JOBS: &str = "FailedJobs";
    pub const REACHED_MAX_RESTARTS: &str = "ReachedMaxRestarts";
    pub const FAIL_JOBSET_ACTION: &str = "FailJobSetFailurePolicyAction";
    pub const RESTART_JOBSET_ACTION: &str = "RestartJobSetFailurePolicyAction";
    pub const RESTART_JOBSET_IGNORING_MAX_ACTION: &str = "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction";
    /// Of RestartingJobSet, where no rule matched.
    pub const DEFAULT_FAILURE_POLICY: &str = "DefaultFailurePolicy";
    pub const SUSPENDED_JOBS: &str = "SuspendedJobs";
    pub const RESUME_JOBS: &str = "ResumeJobs";
    pub const JOBS_READY: &str = "JobsReady";
    pub const JOBSET_FAILED: &str = "JobSetFailed";
    pub const JOBSET_COMPLETED: &str = "JobSetCompleted";
    pub const JOBSET_SUSPENDED: &str = "JobSetSuspended";
    pub const IN_ORDER_IN_PROGRESS: &str = "InOrderStartupPolicyInProgress";
    pub const IN_ORDER_COMPLETED: &str = "InOrderStartupPolicyCompleted";
    pub const JOB_CREATION_FAILED: &str = "JobCreationFailed";
    pub const SERVICE_CREATION_FAILED: &str = "HeadlessServiceCreationFailed";
    pub const CLAIM_CREATION_FAILED: &str = "PVCCreationFailed";
    /// Of a pod's DisruptionTarget condition.
    pub const EXCLUSIVE_PLACEMENT_VIOLATION: &str = "ExclusivePlacementViolation";
}

/// Several groups of Jobs that run, fail, restart and finish as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSet {
    /// `jobset.x-k8s.io/v1alpha2`.
    #[serde(default)]
    pub api_version: String,
    /// `JobSet`.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels and what else every object has. Names of Jobs, pods and host names are made of the name:
    /// the longest of them must be a DNS label of at most 63 characters.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::ObjectMeta"))]
    pub metadata: ObjectMeta,
    /// What to run.
    #[serde(default)]
    pub spec: JobSetSpec,
    /// What has become of it, as last observed.
    #[serde(default)]
    pub status: JobSetStatus,
}

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && self.replicatedJobs.exists(x, has(x.dependsOn)))",
     "message": "StartupPolicy and DependsOn APIs are mutually exclusive"}])))]
pub struct JobSetSpec {
    /// The groups of Jobs. Cannot be changed, but for labels, annotations, node selector, tolerations and scheduling
    /// gates of the pod templates while the JobSet is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub replicated_jobs: Vec<ReplicatedJob>,
    /// How pods find each other. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::value_immutable))]
    pub network: Option<Network>,
    /// When the JobSet is done. Default: when all Jobs have completed. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::value_immutable))]
    pub success_policy: Option<SuccessPolicy>,
    /// What a failed Job does to the JobSet. Without it the first failed Job fails the JobSet. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::value_immutable))]
    pub failure_policy: Option<FailurePolicy>,
    /// In which order the replicated jobs start; prefer their dependsOn. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = crate::schema::value_immutable))]
    pub startup_policy: Option<StartupPolicy>,
    /// While true no pod runs; pods that run are stopped. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The pod whose host name every Job and pod carries as the label and annotation jobset.sigs.k8s.io/coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<Coordinator>,
    /// Who reconciles the JobSet, as `domain/path` of at most 63 characters; jobset.sigs.k8s.io/jobset-controller if
    /// absent. Everybody else leaves it alone. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// Seconds after its end at which the JobSet is deleted with all it owns; never if absent, at once if 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Volume claims that are made for the JobSet and shared by its pods. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 50), extend("x-kubernetes-list-type" = "atomic"),
        transform = crate::schema::value_immutable))]
    pub volume_claim_policies: Vec<VolumeClaimPolicy>,
}

/// A group of equal Jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("required" = ["name", "template"])))]
pub struct ReplicatedJob {
    /// Name of the group; its Jobs are called `<JobSet>-<name>-<index>`.
    pub name: String,
    /// The group in which the labels group-replicas and job-group-index count; a DNS label.
    #[serde(default = "default_group")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "default")))]
    pub group_name: String,
    /// The Job to make.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "crate::schema::JobTemplateSpec"))]
    pub template: Value,
    /// How many Jobs to make, at least 0.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("default" = 1)))]
    pub replicas: i32,
    /// Earlier replicated jobs that must be ready or complete before this one starts; all of them. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<DependsOn>", length(max = 5), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]),
        transform = crate::schema::value_immutable))]
    pub depends_on: Option<Vec<DependsOn>>,
}

fn default_group() -> String {
    "default".to_owned()
}

fn one() -> i32 {
    1
}

/// A replicated job to wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DependsOn {
    /// Name of a replicated job that comes earlier in the list.
    pub name: String,
    /// What is waited for.
    pub status: DependencyStatus,
}

/// State of a replicated job that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum DependencyStatus {
    /// Every Job is ready or has ended.
    Ready,
    /// Every Job has completed.
    Complete,
}

/// How pods find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Network {
    /// Give pods host names: `<JobSet>-<replicated job>-<job index>-<pod index>.<subdomain>`. Default: true.
    #[serde(default, rename = "enableDNSHostnames", skip_serializing_if = "Option::is_none")]
    pub enable_dns_hostnames: Option<bool>,
    /// Subdomain of the pods and name of the headless Service; a DNS label. Default: the JobSet's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subdomain: String,
    /// Resolve names of pods that are not ready yet. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_not_ready_addresses: Option<bool>,
}

/// When a JobSet is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuccessPolicy {
    /// Whether all Jobs of the targets must complete, or any.
    pub operator: SuccessOperator,
    /// Names of the replicated jobs that count; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub target_replicated_jobs: Vec<String>,
}

/// How many Jobs must complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum SuccessOperator {
    #[default]
    All,
    Any,
}

/// What a failed Job does to the JobSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailurePolicy {
    /// How often the JobSet may be restarted before a failure is final. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_restarts: i32,
    /// How Jobs are made again at a restart.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "Recreate")))]
    pub restart_strategy: RestartStrategy,
    /// The first rule that matches a failed Job says what to do. If none does the JobSet is restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<FailurePolicyRule>,
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// How Jobs are made again at a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum RestartStrategy {
    /// Each Job as soon as its predecessor is gone.
    #[default]
    Recreate,
    /// All Jobs once all predecessors are gone.
    BlockingRecreate,
    /// Containers are restarted within their pods; behind a feature gate.
    InPlaceRestart,
}

/// What to do when a Job fails in a certain way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailurePolicyRule {
    /// Name of the rule: 1 to 128 letters, digits and `_,:`, beginning with a letter. Default: failurePolicyRule with
    /// the index.
    pub name: String,
    /// What to do.
    pub action: FailurePolicyAction,
    /// Reasons of the Job's Failed condition that match; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_reasons: Vec<String>,
    /// Regular expressions of which one must be found in the message of the Job's Failed condition; any message matches
    /// if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_job_failure_message_patterns: Vec<String>,
    /// Names of the replicated jobs whose Jobs match; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub target_replicated_jobs: Vec<String>,
}

/// What is done about a failed Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum FailurePolicyAction {
    /// The JobSet fails at once.
    FailJobSet,
    /// All Jobs are made again, if there are restarts left.
    RestartJobSet,
    /// All Jobs are made again; does not count towards the restarts allowed.
    RestartJobSetAndIgnoreMaxRestarts,
    /// The failed Job alone is made again, if there are restarts left; behind a feature gate.
    RestartJob,
    /// The failed Job alone is made again; does not count; behind a feature gate.
    RestartJobAndIgnoreMaxRestarts,
}

/// In which order replicated jobs start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StartupPolicy {
    /// The order.
    pub startup_policy_order: StartupOrder,
}

/// The order in which replicated jobs start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum StartupOrder {
    /// All at once.
    #[default]
    AnyOrder,
    /// Each when the one before is ready.
    InOrder,
}

/// Names a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coordinator {
    /// Name of the replicated job.
    pub replicated_job: String,
    /// Index of the Job in it. Default: 0.
    #[serde(default, skip_serializing_if = "is_nil")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::PlainInteger>"))]
    pub job_index: i64,
    /// Index of the pod in the Job. Default: 0.
    #[serde(default, skip_serializing_if = "is_nil")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<crate::schema::PlainInteger>"))]
    pub pod_index: i64,
}

fn is_nil(value: &i64) -> bool {
    *value == 0
}

/// Volume claims of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)",
     "message": "namespace cannot be set for VolumeClaimPolicies templates"}])))]
pub struct VolumeClaimPolicy {
    /// The claims. Each is called `<name of the template>-<JobSet>`; pods whose containers mount a volume of the
    /// template's name get the claim as that volume.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::PersistentVolumeClaim>", length(max = 50),
        extend("x-kubernetes-list-type" = "atomic")))]
    pub templates: Vec<Value>,
    /// What becomes of the claims. Default: they are deleted with the JobSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<RetentionPolicy>,
}

/// What becomes of volume claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetentionPolicy {
    /// What becomes of them when the JobSet is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("default" = "Delete")))]
    pub when_deleted: Option<Retention>,
}

/// What becomes of volume claims when the JobSet is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(inline))]
pub enum Retention {
    /// They are deleted too.
    #[default]
    Delete,
    /// They stay, for another JobSet of the same name.
    Retain,
}

/// What has become of a JobSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobSetStatus {
    /// Completed, Failed, Suspended, RestartingJobSet, StartupPolicyInProgress and StartupPolicyCompleted, each with when
    /// and why it last changed. Completed and Failed are final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::schema::Condition>", extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
    /// How often all Jobs were made again.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(transform = without_default))]
    pub restarts: i32,
    /// How many of the restarts count towards the restarts allowed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts_count_towards_max: i32,
    /// Completed or Failed; empty before the end.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub terminal_state: String,
    /// Counts of Jobs, one entry a replicated job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])))]
    pub replicated_jobs_status: Vec<ReplicatedJobStatus>,
    /// The latest in-place restart that is over; behind a feature gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub previous_in_place_restart_attempt: Option<i32>,
    /// The in-place restart that all pods have reached; behind a feature gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub current_in_place_restart_attempt: Option<i32>,
}

/// The field may be absent, and the server does not fill it in.
#[cfg(feature = "schema")]
fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

/// Counts of the Jobs of one replicated job; Jobs of earlier restarts do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicatedJobStatus {
    /// Name of the replicated job.
    pub name: String,
    /// Unfinished Jobs of which enough pods are ready or have succeeded.
    pub ready: i32,
    /// Jobs that completed.
    pub succeeded: i32,
    /// Jobs that failed.
    pub failed: i32,
    /// Unfinished Jobs with a pod that is pending or running.
    pub active: i32,
    /// Unfinished Jobs that are suspended.
    pub suspended: i32,
    /// How often each Job alone was made again, by index; behind a feature gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic")))]
    pub job_restarts: Vec<i32>,
    /// How many of them count towards the restarts allowed; behind a feature gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 1024), extend("x-kubernetes-list-type" = "atomic")))]
    pub job_restarts_count_towards_max: Vec<i32>,
}

impl JobSet {
    /// A stored object as what it is.
    ///
    /// # Errors
    /// A field of it has another type.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(object)
    }

    /// Whether `spec.suspend` is true.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or(false)
    }

    /// Whether the condition is there and True.
    pub fn has(&self, kind: ConditionType) -> bool {
        self.status.conditions.iter().any(|c| c.type_ == kind.as_str() && c.status == "True")
    }

    /// Whether it is Completed or Failed.
    pub fn is_finished(&self) -> bool {
        self.has(ConditionType::Completed) || self.has(ConditionType::Failed)
    }

    /// Subdomain of the pods: `spec.network.subdomain`, or the JobSet's name.
    pub fn subdomain(&self) -> &str {
        match &self.spec.network {
            Some(network) if !network.subdomain.is_empty() => &network.subdomain,
            _ => self.metadata.name.as_deref().unwrap_or_default(),
        }
    }

    /// Name of the Job of a replicated job and index.
    pub fn job_name(&self, replicated_job: &str, index: i64) -> String {
        format!("{}-{replicated_job}-{index}", self.metadata.name.as_deref().unwrap_or_default())
    }

    /// Host name of the coordinator pod, where there is one.
    pub fn coordinator_endpoint(&self) -> Option<String> {
        let coordinator = self.spec.coordinator.as_ref()?;
        let job = self.job_name(&coordinator.replicated_job, coordinator.job_index);
        Some(format!("{job}-{}.{}", coordinator.pod_index, self.subdomain()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_the_server_stores_and_writes_it_back() {
        let stored = json!({
            "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "js", "namespace": "ns"},
            "spec": {
                "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
                "coordinator": {"replicatedJob": "w", "podIndex": 1},
                "replicatedJobs": [{"groupName": "default", "name": "w", "replicas": 2,
                    "template": {"spec": {"template": {"spec": {"newField": {"a": 1}}}}}}],
                "successPolicy": {"operator": "All"}
            },
            "status": {"restarts": 0}
        });
        let parsed: JobSet = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(parsed.coordinator_endpoint().as_deref(), Some("js-w-0-1.js"));
        assert_eq!(serde_json::to_value(&parsed).unwrap(), stored);
    }
}
