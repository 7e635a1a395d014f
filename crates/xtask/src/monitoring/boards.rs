//! Boards for Grafana. Members that Grafana's library adds on its own are written, too, so that it writes the same bytes.

use serde_json::{Value, json};

/// A chart: its title, the unit of its values, and queries with their legends.
struct Panel {
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

const fn panel(title: &'static str, unit: &'static str, queries: &'static [(&'static str, &'static str)]) -> Panel {
    Panel { title, unit, queries }
}

struct Board {
    name: &'static str,
    title: &'static str,
    /// Variables by name, each with its query.
    variables: &'static [(&'static str, &'static str)],
    panels: &'static [Panel],
}

const NAMESPACE: (&str, &str) = ("namespace", "label_values(trainyard_job_info, namespace)");
const NAME: (&str, &str) = ("name", "label_values(trainyard_job_info{namespace=~\"$namespace\"}, name)");

const BOARDS: &[Board] = &[
    Board {
        name: "fleet",
        title: "Trainyard: all jobs",
        variables: &[NAMESPACE],
        panels: &[
            panel("Jobs by state", "short", &[("sum by (state) (trainyard_jobs)", "{{state}}")]),
            panel("Jobs by kind", "short", &[("sum by (kind) (trainyard_jobs)", "{{kind}}")]),
            panel(
                "Unfinished jobs by namespace",
                "short",
                &[(
                    "count by (namespace) (trainyard_job_info{namespace=~\"$namespace\",state!~\"Complete|Failed\"})",
                    "{{namespace}}",
                )],
            ),
            panel(
                "Ends per hour",
                "short",
                &[("sum by (kind, state) (increase(trainyard_job_end_seconds_count[1h]))", "{{kind}} {{state}}")],
            ),
            panel(
                "Failed jobs by reason",
                "short",
                &[("sum by (reason) (trainyard_jobs{state=\"Failed\"})", "{{reason}}")],
            ),
            panel(
                "Duration, nine of ten jobs",
                "s",
                &[(
                    "histogram_quantile(0.9, sum by (kind, le) (rate(trainyard_job_end_seconds_bucket[1h])))",
                    "{{kind}}",
                )],
            ),
        ],
    },
    Board {
        name: "job",
        title: "Trainyard: one job",
        variables: &[NAMESPACE, NAME],
        panels: &[
            panel(
                "State",
                "short",
                &[(
                    "trainyard_job_info{namespace=~\"$namespace\",name=~\"$name\"}",
                    "{{kind}} {{namespace}}/{{name}} {{state}} {{reason}}",
                )],
            ),
            panel(
                "Progress",
                "percentunit",
                &[(
                    "trainyard_job_progress_ratio{namespace=~\"$namespace\",name=~\"$name\"}",
                    "{{namespace}}/{{name}}",
                )],
            ),
            panel(
                "Restarts",
                "short",
                &[("trainyard_job_restarts{namespace=~\"$namespace\",name=~\"$name\"}", "{{namespace}}/{{name}}")],
            ),
            panel(
                "GPUs requested",
                "short",
                &[("trainyard_job_gpus{namespace=~\"$namespace\",name=~\"$name\"}", "{{namespace}}/{{name}}")],
            ),
        ],
    },
    Board {
        name: "sweep",
        title: "Trainyard: sweeps",
        variables: &[NAMESPACE],
        panels: &[
            panel(
                "Sweeps by state",
                "short",
                &[("sum by (state) (trainyard_jobs{kind=\"OptimizationJob\"})", "{{state}}")],
            ),
            panel(
                "Sweeps",
                "short",
                &[(
                    "trainyard_job_info{kind=\"OptimizationJob\",namespace=~\"$namespace\"}",
                    "{{namespace}}/{{name}} {{state}}",
                )],
            ),
            panel(
                "Ends per hour",
                "short",
                &[(
                    "sum by (state) (increase(trainyard_job_end_seconds_count{kind=\"OptimizationJob\"}[1h]))",
                    "{{state}}",
                )],
            ),
        ],
    },
    Board {
        name: "mpi",
        title: "Trainyard: MPIJobs",
        variables: &[NAMESPACE],
        panels: &[
            panel("MPIJobs by state", "short", &[("sum by (state) (trainyard_jobs{kind=\"MPIJob\"})", "{{state}}")]),
            panel(
                "MPIJobs",
                "short",
                &[(
                    "trainyard_job_info{kind=\"MPIJob\",namespace=~\"$namespace\"}",
                    "{{namespace}}/{{name}} {{state}}",
                )],
            ),
            panel(
                "Time to running, nine of ten jobs",
                "s",
                &[(
                    "histogram_quantile(0.9, sum by (le) (rate(trainyard_job_start_seconds_bucket{kind=\"MPIJob\"}[1h])))",
                    "start",
                )],
            ),
            panel(
                "Created, succeeded and failed per hour",
                "short",
                &[
                    ("sum(increase(mpi_operator_jobs_created_total[1h]))", "created"),
                    ("sum(increase(mpi_operator_jobs_successful_total[1h]))", "succeeded"),
                    ("sum(increase(mpi_operator_jobs_failed_total[1h]))", "failed"),
                ],
            ),
        ],
    },
    Board {
        name: "queue",
        title: "Trainyard: queue",
        variables: &[NAMESPACE],
        panels: &[
            panel(
                "Pending jobs by queue",
                "short",
                &[(
                    "count by (queue, reason) (trainyard_job_info{state=~\"Pending|PENDING|Suspended\",namespace=~\"$namespace\"})",
                    "{{queue}} {{reason}}",
                )],
            ),
            panel("Wait, nine of ten jobs", "s", &[("trainyard:job_queue_seconds:p90_1h", "{{kind}}")]),
            panel(
                "Time to running, nine of ten jobs",
                "s",
                &[(
                    "histogram_quantile(0.9, sum by (kind, le) (rate(trainyard_job_start_seconds_bucket[1h])))",
                    "{{kind}}",
                )],
            ),
            panel(
                "Passes of the scheduler a second",
                "short",
                &[(
                    "sum by (result) (rate(controller_runtime_reconcile_total{controller=\"scheduler_controller\"}[5m]))",
                    "{{result}}",
                )],
            ),
            panel(
                "GPUs that pending jobs request",
                "short",
                &[(
                    "sum by (namespace) (trainyard_job_gpus * on (kind, namespace, name) \
                     group_left () trainyard_job_info{state=\"Pending\",namespace=~\"$namespace\"})",
                    "{{namespace}}",
                )],
            ),
        ],
    },
    Board {
        name: "gpus",
        title: "Trainyard: GPUs",
        variables: &[],
        panels: &[
            panel(
                "GPUs requested and held",
                "short",
                &[
                    ("sum by (kind) (trainyard_gpus_requested)", "{{kind}} requested"),
                    ("sum by (kind) (trainyard_gpus_held)", "{{kind}} held"),
                ],
            ),
            panel("Use", "percent", &[("DCGM_FI_DEV_GPU_UTIL", "{{Hostname}} {{gpu}} {{namespace}}/{{pod}}")]),
            panel("Memory in use (MiB)", "decmbytes", &[("DCGM_FI_DEV_FB_USED", "{{Hostname}} {{gpu}}")]),
            panel("Temperature", "celsius", &[("DCGM_FI_DEV_GPU_TEMP", "{{Hostname}} {{gpu}}")]),
            panel("Power", "watt", &[("DCGM_FI_DEV_POWER_USAGE", "{{Hostname}} {{gpu}}")]),
        ],
    },
    Board {
        name: "control-plane",
        title: "Trainyard: control plane",
        variables: &[],
        panels: &[
            panel("Requests, 99 of 100", "s", &[("trainyard:request_seconds:p99_5m", "{{instance}}")]),
            panel("Wait for a controller, 99 of 100", "s", &[("trainyard:queue_seconds:p99_5m", "{{instance}}")]),
            panel(
                "Reconciliations a second",
                "short",
                &[("sum by (controller) (rate(controller_runtime_reconcile_total[5m]))", "{{controller}}")],
            ),
            panel(
                "Failed reconciliations a second",
                "short",
                &[(
                    "sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m])) > 0 or vector(0)",
                    "{{controller}}",
                )],
            ),
            panel("Watches that are behind", "s", &[("max by (kind) (trainyard_watch_behind_seconds)", "{{kind}}")]),
            panel(
                "Requests a second",
                "short",
                &[("sum by (verb, code) (rate(apiserver_request_total[5m]))", "{{verb}} {{code}}")],
            ),
            panel("Memory", "bytes", &[("process_resident_memory_bytes", "{{instance}}")]),
            panel("Processors in use", "short", &[("rate(process_cpu_seconds_total[5m])", "{{instance}}")]),
            panel(
                "Certificates: time left",
                "s",
                &[("trainyard_certificate_expiration_timestamp_seconds - time()", "{{instance}} {{certificate}}")],
            ),
        ],
    },
];

/// All boards, by the names of their files.
pub(super) fn all() -> Vec<(&'static str, Value)> {
    BOARDS.iter().map(|board| (board.name, render(board))).collect()
}

/// Where Grafana gets the data of a panel or a variable: the user's choice at the top of the board.
fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn render(board: &Board) -> Value {
    let common = |kind: &str, name: &str, label: &str, query: &str| {
        json!({"type": kind, "name": name, "label": label, "query": query, "allowCustomValue": true, "auto": false,
            "auto_count": 30, "auto_min": "10s", "includeAll": false, "multi": false, "skipUrlSync": false})
    };
    let mut variables = vec![common("datasource", "datasource", "Data source", "prometheus")];
    for (name, query) in board.variables {
        let mut variable = common("query", name, name, query);
        variable["datasource"] = source();
        // asked again whenever the range of time changes
        variable["refresh"] = 2.into();
        variable["includeAll"] = true.into();
        variable["multi"] = true.into();
        variable["allValue"] = ".*".into();
        variables.push(variable);
    }
    let panels: Vec<Value> = board.panels.iter().enumerate().map(|(index, panel)| chart(index, panel)).collect();
    json!({"uid": format!("trainyard-{}", board.name), "title": board.title, "tags": ["trainyard"], "timezone": "browser",
        "editable": true, "schemaVersion": 41, "refresh": "30s", "time": {"from": "now-6h", "to": "now"},
        "annotations": {}, "fiscalYearStartMonth": 0, "graphTooltip": 0,
        "templating": {"list": variables}, "panels": panels})
}

/// Two charts in a row.
fn chart(index: usize, panel: &Panel) -> Value {
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..)
        .map(|((expr, legend), id)| json!({"refId": id.to_string(), "expr": expr, "legendFormat": legend}))
        .collect();
    json!({"id": index + 1, "type": "timeseries", "title": panel.title, "datasource": source(), "targets": targets,
        "gridPos": {"x": index % 2 * 12, "y": index / 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "repeatDirection": "h", "transparent": false})
}
