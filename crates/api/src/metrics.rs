//! The metrics that our programs serve: one table of names, types, labels and help.
//!
//! Names and labels are those of controller-runtime, kube-apiserver and mpi-operator where these measure the same, so dashboards made for
//! them still work. docs/cluster.md lists the table, and `cargo xtask tidy` compares both.

pub mod text;

/// What a series counts, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name as served: a counter ends with `_total`, a quantity with its unit.
    pub name: &'static str,
    pub kind: Kind,
    /// The names of its labels, in the order of the output.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// How a metric's values change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// The current value.
    Gauge,
    /// Durations of milliseconds to a minute, in seconds.
    Histogram,
    /// Durations of seconds to a week, in seconds.
    LongHistogram,
}

impl Kind {
    /// The name of the type in Prometheus' format.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram | Self::LongHistogram => "histogram",
        }
    }
}

type Names = &'static [&'static str];

impl Metric {
    pub const fn counter(name: &'static str, labels: Names, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, labels, help }
    }

    pub const fn gauge(name: &'static str, labels: Names, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, labels, help }
    }

    pub const fn histogram(name: &'static str, labels: Names, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, labels, help }
    }

    pub const fn long_histogram(name: &'static str, labels: Names, help: &'static str) -> Self {
        Self { name, kind: Kind::LongHistogram, labels, help }
    }

    /// The name without the endings that OpenMetrics adds: a counter's `_total`, a histogram's unit.
    pub fn stem(&self) -> &'static str {
        let ending = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Histogram | Kind::LongHistogram => "_seconds",
        };
        self.name.strip_suffix(ending).unwrap_or(self.name)
    }

    /// The unit of its values; empty for numbers of things.
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit)).unwrap_or_default()
    }
}

// the driver's: one series for each controller

/// Finished decisions, by controller and result: success, requeue_after, requeue or error.
pub const RECONCILES: Metric =
    Metric::counter("controller_runtime_reconcile_total", &["controller", "result"], "Reconciliations per controller");
/// Decisions that failed.
pub const RECONCILE_ERRORS: Metric = Metric::counter(
    "controller_runtime_reconcile_errors_total",
    &["controller"],
    "Reconciliations that failed, per controller",
);
/// Reconcilers that crashed on an object.
pub const RECONCILE_PANICS: Metric = Metric::counter(
    "controller_runtime_reconcile_panics_total",
    &["controller"],
    "Reconciliations that panicked, per controller",
);
/// From taking a key until the API server's last answer.
pub const RECONCILE_SECONDS: Metric = Metric::histogram(
    "controller_runtime_reconcile_time_seconds",
    &["controller"],
    "Length of a reconciliation, per controller",
);
/// Workers that are handling a key.
pub const ACTIVE_WORKERS: Metric =
    Metric::gauge("controller_runtime_active_workers", &["controller"], "Workers in use, per controller");
/// All workers.
pub const MAX_WORKERS: Metric =
    Metric::gauge("controller_runtime_max_concurrent_reconciles", &["controller"], "Workers there are, per controller");
/// Keys that were added.
pub const QUEUE_ADDS: Metric =
    Metric::counter("workqueue_adds_total", &["controller", "name"], "Objects that were queued, per queue");
/// From when a key is ready until a worker takes it.
pub const QUEUE_SECONDS: Metric = Metric::histogram(
    "workqueue_queue_duration_seconds",
    &["controller", "name"],
    "How long objects waited for a worker, per queue",
);
/// From when a worker takes a key until it is done.
pub const QUEUE_WORK_SECONDS: Metric = Metric::histogram(
    "workqueue_work_duration_seconds",
    &["controller", "name"],
    "How long objects were worked on, per queue",
);
/// Keys that wait for a worker.
pub const QUEUE_DEPTH: Metric =
    Metric::gauge("workqueue_depth", &["controller", "name"], "Objects that wait for a worker, per queue");
/// Keys that were put back to be tried again.
pub const QUEUE_RETRIES: Metric =
    Metric::counter("workqueue_retries_total", &["controller", "name"], "Objects to be tried again, per queue");

// the operator's

/// Requests to the API server by status code (`<error>`: no answer), host and method, as client-go counts them.
pub const CLIENT_REQUESTS: Metric = Metric::counter(
    "rest_client_requests_total",
    &["code", "host", "method"],
    "Requests to the API server, by status code, host and method",
);
/// Whether this replica leads.
pub const LEADS: Metric =
    Metric::gauge("leader_election_master_status", &["name"], "Whether this replica leads, by lease");
/// Webhook requests by path and HTTP status code.
pub const WEBHOOK_REQUESTS: Metric = Metric::counter(
    "controller_runtime_webhook_requests_total",
    &["code", "webhook"],
    "Admission requests by webhook and status code",
);
/// Length of webhook requests.
pub const WEBHOOK_SECONDS: Metric = Metric::histogram(
    "controller_runtime_webhook_latency_seconds",
    &["webhook"],
    "How long admission requests took, by webhook",
);
/// Webhook requests in progress.
pub const WEBHOOKS_IN_FLIGHT: Metric = Metric::gauge(
    "controller_runtime_webhook_requests_in_flight",
    &["webhook"],
    "Admission requests that are being answered",
);
/// Results of admission.
pub const VERDICTS: Metric =
    Metric::counter("trainyard_admission_total", &["verdict", "webhook"], "Objects admitted and denied, by webhook");
/// TrainJobs by state (Pending, Running, Suspended, Complete, Failed) and reason. Only the leader counts them.
pub const TRAINJOBS: Metric =
    Metric::gauge("trainyard_trainjobs", &["reason", "state"], "TrainJobs by state and reason");
/// Until pods of the TrainJob were first ready, according to its jobsStatus.
pub const TRAINJOB_START_SECONDS: Metric = Metric::long_histogram(
    "trainyard_trainjob_start_seconds",
    &[],
    "From a TrainJob's creation until pods of it first ran",
);
/// Until the TrainJob was complete or failed.
pub const TRAINJOB_END_SECONDS: Metric = Metric::long_histogram(
    "trainyard_trainjob_end_seconds",
    &["state"],
    "From a TrainJob's creation until it ended, by state",
);
pub const MPIJOBS_CREATED: Metric =
    Metric::counter("mpi_operator_jobs_created_total", &[], "MPIJobs that were first looked at");
pub const MPIJOBS_SUCCEEDED: Metric =
    Metric::counter("mpi_operator_jobs_successful_total", &[], "MPIJobs that succeeded");
pub const MPIJOBS_FAILED: Metric =
    Metric::counter("mpi_operator_jobs_failed_total", &[], "MPIJobs that failed for good");
/// Upstream never removes a series; we remove it with the MPIJob.
pub const MPIJOB_INFO: Metric =
    Metric::gauge("mpi_operator_job_info", &["launcher", "namespace"], "MPIJobs whose launcher was made, by its name");
/// Whether this replica works on MPIJobs.
pub const MPIJOBS_LEADS: Metric = Metric::gauge("mpi_operator_is_leader", &[], "Whether this replica works on MPIJobs");

// jobs of all kinds, in both programs

/// Jobs of each kind: TrainJobs, MPIJobs, OptimizationJobs, JobSets that no other job made, managed jobs.
pub const JOBS: Metric =
    Metric::gauge("trainyard_jobs", &["kind", "reason", "state"], "Jobs by kind, state and reason");
/// Until the first pod has a node; for a job in a queue of Kueue, until the queue admits it.
pub const JOB_QUEUE_SECONDS: Metric = Metric::long_histogram(
    "trainyard_job_queue_seconds",
    &["kind"],
    "From a job's creation until its first pod had a node, or its queue admitted it",
);
pub const JOB_START_SECONDS: Metric =
    Metric::long_histogram("trainyard_job_start_seconds", &["kind"], "From a job's creation until it first ran");
pub const JOB_END_SECONDS: Metric = Metric::long_histogram(
    "trainyard_job_end_seconds",
    &["kind", "state"],
    "From a job's creation until it ended, by state",
);
pub const RESTARTS: Metric =
    Metric::counter("trainyard_restarts_total", &["kind"], "Restarts of whole jobs by their own rules, by kind");
pub const GPUS_REQUESTED: Metric =
    Metric::gauge("trainyard_gpus_requested", &["kind"], "GPUs that unfinished jobs ask for, suspended jobs left out");
pub const GPUS_HELD: Metric = Metric::gauge("trainyard_gpus_held", &["kind"], "GPUs of jobs that run");
/// At most 10,000 series; the series of a job ends an hour after the job.
pub const JOB_INFO: Metric = Metric::gauge(
    "trainyard_job_info",
    &["kind", "name", "namespace", "queue", "reason", "state"],
    "Unfinished jobs, and jobs that ended within the last hour; always 1",
);
pub const JOB_INFO_LEFT_OUT: Metric =
    Metric::gauge("trainyard_job_info_left_out", &[], "Jobs without trainyard_job_info: there are over 10,000");
pub const JOB_GPUS: Metric = Metric::gauge(
    "trainyard_job_gpus",
    &["kind", "name", "namespace"],
    "GPUs that a job of trainyard_job_info asks for; none for jobs without GPUs",
);
pub const JOB_RESTARTS: Metric = Metric::gauge(
    "trainyard_job_restarts",
    &["kind", "name", "namespace"],
    "Restarts of a job of trainyard_job_info by its own rules",
);
pub const JOB_PROGRESS: Metric = Metric::gauge(
    "trainyard_job_progress_ratio",
    &["kind", "name", "namespace"],
    "Progress that a running TrainJob reported, from 0 to 1",
);
pub const CLUSTERS: Metric = Metric::gauge("trainyard_clusters", &["phase"], "Clusters of SkyPilot's tasks, by phase");
pub const WATCH_BEHIND: Metric = Metric::gauge(
    "trainyard_watch_behind_seconds",
    &["kind"],
    "Seconds since the watch of a kind failed; 0 while it works",
);
pub const CERTIFICATE_END: Metric = Metric::gauge(
    "trainyard_certificate_expiration_timestamp_seconds",
    &["certificate"],
    "When a certificate that this program shows expires, in seconds since 1970",
);

// of each process

pub const PROCESS_MEMORY: Metric = Metric::gauge("process_resident_memory_bytes", &[], "Memory in use");
pub const PROCESS_CPU: Metric = Metric::counter("process_cpu_seconds_total", &[], "Processor time used");

// the API server's

/// The labels that describe a request.
const ABOUT: Names = &["verb", "group", "version", "resource", "subresource", "scope", "component"];

pub const REQUESTS: Metric = Metric::counter(
    "apiserver_request_total",
    &["verb", "group", "version", "resource", "subresource", "scope", "component", "code"],
    "Requests, by what they ask for and the answer's code",
);
pub const REQUEST_SECONDS: Metric = Metric::histogram(
    "apiserver_request_duration_seconds",
    ABOUT,
    "Time from a request's head to its answer's; watches are left out",
);
pub const IN_FLIGHT: Metric =
    Metric::gauge("apiserver_current_inflight_requests", &["request_kind"], "Requests that are being answered");
pub const LONG_RUNNING: Metric = Metric::gauge("apiserver_longrunning_requests", ABOUT, "Watches that are open");
pub const COMMIT_SECONDS: Metric =
    Metric::histogram("trainyard_store_commit_duration_seconds", &[], "Time that commits to the database took");
pub const TRANSACTIONS: Metric = Metric::counter(
    "trainyard_store_transactions_total",
    &[],
    "Transactions committed; one commit takes all that wait",
);
pub const FAILED_COMMITS: Metric = Metric::counter("trainyard_store_failed_commits_total", &[], "Commits that failed");
pub const WRITABLE: Metric =
    Metric::gauge("trainyard_store_writable", &[], "Whether the last write, or the last try since, went through");
pub const SET_ASIDE: Metric =
    Metric::gauge("trainyard_store_set_aside_objects", &[], "Damaged objects that are not served");
pub const STORED_BYTES: Metric =
    Metric::gauge("apiserver_storage_size_bytes", &["storage_cluster_id"], "Size of the database and its log");
pub const STORED_OBJECTS: Metric = Metric::gauge("apiserver_storage_objects", &["resource"], "Stored objects, by kind");

/// The metrics of `trainyard operator`.
pub const OPERATOR: &[&Metric] = &[
    &RECONCILES,
    &RECONCILE_ERRORS,
    &RECONCILE_PANICS,
    &RECONCILE_SECONDS,
    &ACTIVE_WORKERS,
    &MAX_WORKERS,
    &QUEUE_ADDS,
    &QUEUE_SECONDS,
    &QUEUE_WORK_SECONDS,
    &QUEUE_DEPTH,
    &QUEUE_RETRIES,
    &CLIENT_REQUESTS,
    &LEADS,
    &WEBHOOK_REQUESTS,
    &WEBHOOK_SECONDS,
    &WEBHOOKS_IN_FLIGHT,
    &VERDICTS,
    &TRAINJOBS,
    &TRAINJOB_START_SECONDS,
    &TRAINJOB_END_SECONDS,
    &MPIJOBS_CREATED,
    &MPIJOBS_SUCCEEDED,
    &MPIJOBS_FAILED,
    &MPIJOB_INFO,
    &MPIJOBS_LEADS,
    &JOBS,
    &JOB_QUEUE_SECONDS,
    &JOB_START_SECONDS,
    &JOB_END_SECONDS,
    &RESTARTS,
    &GPUS_REQUESTED,
    &GPUS_HELD,
    &JOB_INFO,
    &JOB_INFO_LEFT_OUT,
    &JOB_GPUS,
    &JOB_RESTARTS,
    &JOB_PROGRESS,
    &CLUSTERS,
    &WATCH_BEHIND,
    &CERTIFICATE_END,
    &PROCESS_MEMORY,
    &PROCESS_CPU,
];

/// The metrics of the API server of `trainyard up`.
pub const SERVER: &[&Metric] = &[
    &REQUESTS,
    &REQUEST_SECONDS,
    &IN_FLIGHT,
    &LONG_RUNNING,
    &COMMIT_SECONDS,
    &TRANSACTIONS,
    &FAILED_COMMITS,
    &WRITABLE,
    &SET_ASIDE,
    &STORED_BYTES,
    &STORED_OBJECTS,
    &PROCESS_MEMORY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_prometheus_and_used_once() {
        for table in [OPERATOR, SERVER] {
            let names: BTreeSet<&str> = table.iter().map(|metric| metric.name).collect();
            assert_eq!(names.len(), table.len());
        }
        for metric in OPERATOR.iter().chain(SERVER) {
            let name = metric.name;
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(metric.kind.as_str() != "histogram" || name.ends_with("_seconds"), "{name}");
        }
        assert_eq!((REQUESTS.stem(), REQUESTS.unit()), ("apiserver_request", ""));
        assert_eq!((REQUEST_SECONDS.stem(), REQUEST_SECONDS.unit()), ("apiserver_request_duration", "seconds"));
        assert_eq!((STORED_BYTES.stem(), STORED_BYTES.unit()), (STORED_BYTES.name, "bytes"));
        assert_eq!(PROCESS_CPU.unit(), "seconds");
    }
}
