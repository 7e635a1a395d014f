//! Recording rules and alerts.

use serde_json::{Value, json};

/// An alert with what its reader needs.
pub(super) struct Alert {
    pub name: &'static str,
    expr: &'static str,
    /// For how long the expression holds before the alert fires.
    lasts: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

/// The page of an alert, below the repository's root.
pub(super) fn page(alert: &str) -> String {
    format!("docs/runbooks/{alert}.md")
}

pub(super) const ALERTS: &[Alert] = &[
    Alert {
        name: "TrainyardJobPendingTooLong",
        expr: "max by (kind, namespace, name, queue) (trainyard_job_info{state=~\"Pending|PENDING\"}) == 1",
        lasts: "1h",
        severity: "warning",
        summary: "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} has been pending for an hour",
        description: "The job has not started. `trainyard explain {{ $labels.name }} -n {{ $labels.namespace }}` prints why.",
    },
    Alert {
        name: "TrainyardGangWaits",
        expr: "max by (kind, namespace, name) (trainyard_job_info{state=\"Pending\",reason=\"PodsPending\"}) == 1",
        lasts: "15m",
        severity: "warning",
        summary: "The pods of {{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} have waited for 15 minutes",
        description: "All pods of the job exist, and none runs: no nodes have room for all of them, or an image or a volume is missing.",
    },
    Alert {
        name: "TrainyardJobFailsRepeatedly",
        expr: "(trainyard_job_restarts - min_over_time(trainyard_job_restarts[1h]) >= 3) \
               and on (kind, namespace, name) trainyard_job_info{state!~\"Complete|Failed\"}",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} restarted {{ $value }} times within an hour",
        description: "The job fails, restarts and fails again. `trainyard explain {{ $labels.name }} -n {{ $labels.namespace }}` prints why.",
    },
    Alert {
        name: "TrainyardGpusIdle",
        expr: "max by (namespace, pod) (DCGM_FI_DEV_GPU_UTIL{pod!=\"\"}) < 5",
        lasts: "30m",
        severity: "warning",
        summary: "Pod {{ $labels.namespace }}/{{ $labels.pod }} has GPUs and has not used them for 30 minutes",
        description: "No GPU of the pod was used more than 5 %. Other jobs may wait for them.",
    },
    Alert {
        name: "TrainyardJobMakesNoProgress",
        expr: "(trainyard_job_progress_ratio < 1) and (changes(trainyard_job_progress_ratio[1h]) == 0) \
               and (trainyard_job_progress_ratio offset 1h)",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }} has reported no progress for an hour",
        description: "The job runs, and its progress has stayed at {{ $value }} of 1. A rank may hang.",
    },
    Alert {
        name: "TrainyardControlPlaneSlow",
        expr: "(trainyard:request_seconds:p99_5m > 1 or trainyard:queue_seconds:p99_5m > 10) \
               and on (job, instance) trainyard_job_info_left_out",
        lasts: "10m",
        severity: "warning",
        summary: "The control plane {{ $labels.instance }} is slow",
        description: "One of a hundred requests or reconciliations waits for {{ $value }} seconds or more.",
    },
    Alert {
        name: "TrainyardWatchBehind",
        expr: "trainyard_watch_behind_seconds > 60",
        lasts: "2m",
        severity: "critical",
        summary: "The controllers of {{ $labels.instance }} do not see changes of kind {{ $labels.kind }}",
        description: "Listing or watching this kind has failed for {{ $value }} seconds. Jobs may stand still.",
    },
    Alert {
        name: "TrainyardCertificateNearEnd",
        expr: "trainyard_certificate_expiration_timestamp_seconds - time() < 7 * 86400",
        lasts: "10m",
        severity: "critical",
        summary: "The certificate {{ $labels.certificate }} of {{ $labels.instance }} expires within a week",
        description: "{{ $value | humanizeDuration }} are left. Without a valid certificate clients and webhooks refuse connections.",
    },
];

/// Names and expressions of what is worked out ahead of time.
pub(super) const RECORDED: &[(&str, &str)] = &[
    (
        "trainyard:request_seconds:p99_5m",
        "histogram_quantile(0.99, sum by (job, instance, le) (rate(apiserver_request_duration_seconds_bucket[5m]))) \
         and on (job, instance) trainyard_job_info_left_out",
    ),
    (
        "trainyard:queue_seconds:p99_5m",
        "histogram_quantile(0.99, sum by (job, instance, le) (rate(workqueue_queue_duration_seconds_bucket[5m]))) \
         and on (job, instance) trainyard_job_info_left_out",
    ),
    (
        "trainyard:job_queue_seconds:p90_1h",
        "histogram_quantile(0.9, sum by (kind, le) (rate(trainyard_job_queue_seconds_bucket[1h])))",
    ),
];

/// The groups of a rule file.
pub(super) fn groups() -> Value {
    let recorded: Vec<Value> = RECORDED.iter().map(|(name, expr)| json!({"record": name, "expr": expr})).collect();
    let alerts: Vec<Value> = ALERTS
        .iter()
        .map(|alert| {
            let Alert { name, expr, lasts, severity, summary, description } = alert;
            json!({"alert": name, "expr": expr, "for": lasts, "labels": {"severity": severity},
                "annotations": {"summary": summary, "description": description, "runbook": page(name)}})
        })
        .collect();
    json!([{"name": "trainyard-recorded", "rules": recorded}, {"name": "trainyard-alerts", "rules": alerts}])
}
