//! Trainyard's annotations of TrainJobs and runtimes, which turn on what upstream's API does not have: their keys, values, and which of them
//! only controllers write.
//!
//! Annotations add no field to upstream's kinds, and other controllers ignore them.

/// What all of them begin with.
pub const PREFIX: &str = "trainyard.dev/";

/// Seconds after its end at which a TrainJob is deleted, with everything that it made. Default: never.
pub const TTL_SECONDS: &str = "trainyard.dev/ttl-seconds-after-finished";
/// How many further times a failed TrainJob is tried. Default: 0.
pub const RETRIES: &str = "trainyard.dev/retries";
/// How long to wait before the first retry (`30s`, `5m`, `1h30m`); doubled before each further one. Default: `10s`.
pub const RETRY_BACKOFF: &str = "trainyard.dev/retry-backoff";
/// `true`: conditions Created, Running and Restarting are kept. Default: `false`, as upstream.
pub const LIFECYCLE: &str = "trainyard.dev/lifecycle-conditions";
/// Which pods are placed together: `all` (default, as upstream) or `stages`, those that start at the same time.
pub const GANG: &str = "trainyard.dev/gang";
/// `restricted`: pods get what Kubernetes' restricted Pod Security asks for, where runtime and TrainJob say nothing.
/// Default: `unchanged`, as upstream.
pub const POD_SECURITY: &str = "trainyard.dev/pod-security";
/// `fail-fast`: the first process that fails ends the job; nothing is restarted that runtime and TrainJob do not ask for.
/// Default: `unchanged`, as upstream, whose Jobs restart a failed container six times.
pub const FAILURE_POLICY: &str = "trainyard.dev/failure-policy";

/// Metrics that the job prints and does not report: a pattern on each line ([`super::printed`]), looked for in the output of rank 0.
/// Default: none. Of a TrainJob alone: a runtime cannot know what a script prints.
pub const METRICS: &str = "trainyard.dev/metrics";

/// Written by the controller: the attempt that runs or is next, from 1. The JobSet of a later attempt has it, too.
pub const ATTEMPT: &str = "trainyard.dev/attempt";
/// Written by the controller: when the next attempt starts, RFC 3339. Taken away by a user: at once.
pub const RETRY_AT: &str = "trainyard.dev/retry-at";
/// Written by the controller, with [`LIFECYCLE`] on: how often the JobSet of this attempt has restarted.
pub const RESTARTS: &str = "trainyard.dev/restarts";

/// On an event PodFailed about a TrainJob: what says how the pod failed, as a pod in JSON, for the pod may be gone.
pub const EVENT_POD: &str = "trainyard.dev/pod";

/// Those that a user writes: into a TrainJob, or into the template of a runtime for all TrainJobs that say nothing.
pub const ASKED: [&str; 8] =
    [TTL_SECONDS, RETRIES, RETRY_BACKOFF, LIFECYCLE, GANG, POD_SECURITY, FAILURE_POLICY, METRICS];
/// Those that the controller writes.
pub const TOLD: [&str; 3] = [ATTEMPT, RETRY_AT, RESTARTS];
