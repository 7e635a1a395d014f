//! What pods use at present, as the server measures it (metrics.k8s.io).

#![allow(clippy::arithmetic_side_effects, reason = "floats, and counts of rows")]

use api::object;
use api::quantity::Quantity;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, pods_of};
use serde_json::Value;
use std::collections::BTreeMap;
use view::job::job_of;
use view::state::{node_rank, ranks, step};

/// Processors that all ranks of a job together use at most while they wait for something.
const IDLE_CPUS: f64 = 0.05;

/// What something uses. `None`: the server does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    pub cpus: f64,
    pub memory_bytes: i64,
    pub gpu_percent: Option<i64>,
    pub gpu_memory_bytes: Option<i64>,
    pub disk_read_bytes: Option<i64>,
    pub disk_written_bytes: Option<i64>,
    pub network_sent_bytes: Option<i64>,
    pub network_received_bytes: Option<i64>,
}

impl Used {
    /// From `usage` of metrics.k8s.io; what begins with `trainyard.dev/` is this machine's control plane's own.
    pub fn of(usage: &Value) -> Self {
        let quantity = |name: &str| Quantity::from_json(usage.get(name)?).ok();
        let number = |name: &str| quantity(name).map(Quantity::value);
        Self {
            cpus: quantity("cpu").map_or(0.0, |cpu| cpu.milli_value() as f64 / 1000.0),
            memory_bytes: number("memory").unwrap_or(0),
            gpu_percent: number("trainyard.dev/gpu-percent"),
            gpu_memory_bytes: number("trainyard.dev/gpu-memory"),
            disk_read_bytes: number("trainyard.dev/disk-read"),
            disk_written_bytes: number("trainyard.dev/disk-written"),
            network_sent_bytes: number("trainyard.dev/network-sent"),
            network_received_bytes: number("trainyard.dev/network-received"),
        }
    }

    /// Adds the usage of others; of two GPU loads the greater one counts.
    pub fn add(&mut self, other: Self) {
        let sum = |a: Option<i64>, b: Option<i64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
        self.cpus += other.cpus;
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.gpu_percent = self.gpu_percent.max(other.gpu_percent);
        self.gpu_memory_bytes = sum(self.gpu_memory_bytes, other.gpu_memory_bytes);
        self.disk_read_bytes = sum(self.disk_read_bytes, other.disk_read_bytes);
        self.disk_written_bytes = sum(self.disk_written_bytes, other.disk_written_bytes);
        self.network_sent_bytes = sum(self.network_sent_bytes, other.network_sent_bytes);
        self.network_received_bytes = sum(self.network_received_bytes, other.network_received_bytes);
    }
}

/// One pod of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub job: String,
    pub step: String,
    /// `rank 1`, `ranks 4 to 7`; empty for what is no node.
    pub ranks: String,
    pub pod: String,
    pub node: String,
    pub used: Used,
}

/// Whether a job's ranks are idle: at most [`IDLE_CPUS`] together, and no GPU. `None` if usage is not measured.
pub async fn is_idle(cluster: &Cluster, job: &str) -> Option<bool> {
    let rows = of_pods(cluster, &pods_of(job)).await.ok().filter(|rows| !rows.is_empty())?;
    let mut used = Used::default();
    rows.iter().for_each(|row| used.add(row.used));
    Some(used.cpus < IDLE_CPUS && used.gpu_percent.unwrap_or(0) == 0)
}

/// Thousandths of a processor that each pod of a job uses, by the pod's name; empty if usage is not measured.
pub async fn processors(cluster: &Cluster, job: &str) -> BTreeMap<String, i64> {
    let measured = measured(cluster, &pods_of(job)).await.unwrap_or_default();
    let of_pod = |item: &Value| {
        let containers = item["containers"].as_array().into_iter().flatten();
        let cpus: f64 = containers.map(|container| Used::of(&container["usage"]).cpus).sum();
        (object::meta(item, "name").to_owned(), (cpus * 1000.0) as i64)
    };
    measured["items"].as_array().into_iter().flatten().map(of_pod).collect()
}

/// The rows of the pods with these labels.
///
/// Errors: usage is not measured; the pods cannot be listed.
pub async fn of_pods(cluster: &Cluster, labels: &str) -> Result<Vec<Row>, ClientError> {
    let measured = measured(cluster, labels).await?;
    let pods = cluster.list(Kind::Pod, labels).await?;
    Ok(rows(&measured, &pods))
}

async fn measured(cluster: &Cluster, labels: &str) -> Result<Value, ClientError> {
    let query = format!("labelSelector={}", labels.replace('=', "%3D").replace('/', "%2F"));
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?{query}", cluster.namespace);
    let request = http::Request::get(path).body(Vec::new()).expect("names of objects fit into a path");
    match cluster.client.request::<Value>(request).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 503) => Err(unmeasured()),
        answer => Ok(answer?),
    }
}

fn unmeasured() -> ClientError {
    ClientError::Api(ErrorCode::UsageUnknown,
        "the server does not say what pods use (metrics.k8s.io): install metrics-server on the cluster, and wait a minute"
            .to_owned(),
    )
}

/// What was measured of pods that still are, by job, rank and step.
pub fn rows(measured: &Value, pods: &[Value]) -> Vec<Row> {
    let measured: BTreeMap<&str, &Value> =
        measured["items"].as_array().into_iter().flatten().map(|item| (object::meta(item, "name"), item)).collect();
    let mut rows: Vec<(Option<i64>, Row)> = pods
        .iter()
        .filter_map(|pod| {
            let name = object::meta(pod, "name");
            let mut used = Used::default();
            for container in measured.get(name)?["containers"].as_array().into_iter().flatten() {
                used.add(Used::of(&container["usage"]));
            }
            let row = Row {
                job: job_of(pod).unwrap_or_default(),
                step: step(pod),
                ranks: ranks(pod).unwrap_or_default(),
                pod: name.to_owned(),
                node: object::text(&pod["spec"], "nodeName").to_owned(),
                used,
            };
            Some((node_rank(pod), row))
        })
        .collect();
    rows.sort_by(|(a_rank, a), (b_rank, b)| (&a.job, a_rank, &a.step).cmp(&(&b.job, b_rank, &b.step)));
    rows.into_iter().map(|(_, row)| row).collect()
}
