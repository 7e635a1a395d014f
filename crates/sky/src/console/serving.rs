//! `sky serve status` and `sky jobs pool status`: the tables of services, pools and their replicas.

use serde::Deserialize;

use super::table::{or_dash, padded};
use super::times::{ago, lasting};

/// A service or a pool, with the field names of SkyPilot's JSON.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceRow {
    pub name: String,
    pub active_versions: Vec<u32>,
    /// Since when it has been ready: seconds since 1970.
    pub uptime: Option<i64>,
    pub status: String,
    pub endpoint: Option<String>,
    /// How many replicas it has, in words.
    pub policy: String,
    pub load_balancing_policy: String,
    pub requested_resources_str: String,
    pub replica_info: Vec<ReplicaRow>,
}

/// A replica of a service, or a worker of a pool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ReplicaRow {
    pub replica_id: u32,
    pub version: u32,
    pub status: String,
    /// More about its status.
    pub status_detail: Option<String>,
    pub endpoint: Option<String>,
    /// When its machines were launched: seconds since 1970.
    pub launched_at: Option<i64>,
    pub infra: Option<String>,
    pub resources_str: String,
    /// The same, nothing left out.
    pub resources_str_full: String,
    /// Jobs that run on it.
    pub used_by: Option<Vec<u32>>,
}

/// What replicas are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedKind {
    Services,
    Pools,
}

/// Replicas that are shown unless all are asked for.
const MAX: usize = 10;
/// Jobs of a worker that are named.
const JOBS_MAX: usize = 2;

/// The table of services or pools, and below it that of their replicas.
pub fn served_table(rows: &[ServiceRow], served: ServedKind, all: bool, now: i64) -> String {
    let is_pool = served == ServedKind::Pools;
    if rows.is_empty() {
        return format!("No existing {}.", if is_pool { "pools" } else { "services" });
    }
    let mut head = vec!["NAME", "VERSION", "UPTIME", "STATUS"];
    head.extend(if is_pool { &["WORKERS"][..] } else { &["REPLICAS", "ENDPOINT"] });
    if all {
        head.push("AUTOSCALING_POLICY");
        head.extend((!is_pool).then_some("LOAD_BALANCING_POLICY"));
        head.push("REQUESTED_RESOURCES");
    }
    let lines: Vec<Vec<String>> = rows.iter().map(|row| row.line(is_pool, all, now)).collect();
    let title = if is_pool { "Pool Workers" } else { "Service Replicas" };
    format!("{}\n\n{title}\n{}", padded(&head, &lines), replicas(rows, is_pool, all, now))
}

fn replicas(rows: &[ServiceRow], is_pool: bool, all: bool, now: i64) -> String {
    let word = if is_pool { "workers" } else { "replicas" };
    let of = |row| move |replica| (row, replica);
    let mut list: Vec<(&ServiceRow, &ReplicaRow)> =
        rows.iter().flat_map(|row| row.replica_info.iter().map(of(row))).collect();
    if list.is_empty() {
        return format!("No existing {word}.");
    }
    let is_cut = !all && list.len() > MAX;
    if is_cut {
        list.truncate(MAX);
    }
    let mut head = vec![if is_pool { "POOL_NAME" } else { "SERVICE_NAME" }, "ID", "VERSION"];
    head.extend((!is_pool).then_some("ENDPOINT"));
    head.extend(["LAUNCHED", "INFRA", "RESOURCES", "STATUS"]);
    head.extend(is_pool.then_some("USED_BY"));
    let lines: Vec<Vec<String>> =
        list.iter().map(|(row, replica)| replica.line(&row.name, is_pool, all, now)).collect();
    let rest = if is_cut { format!("\n... (use --all to show all {word})") } else { String::new() };
    format!("{}{rest}", padded(&head, &lines))
}

impl ServiceRow {
    fn line(&self, is_pool: bool, all: bool, now: i64) -> Vec<String> {
        let versions: Vec<String> = self.active_versions.iter().map(u32::to_string).collect();
        let count =
            |is_counted: fn(&ReplicaRow) -> bool| self.replica_info.iter().filter(|one| is_counted(one)).count();
        let mut line = vec![
            self.name.clone(),
            if versions.is_empty() { "-".to_owned() } else { versions.join(",") },
            lasting(self.uptime, now),
            self.status.clone(),
            format!("{}/{}", count(|one| one.status == "READY"), count(ReplicaRow::is_counted)),
        ];
        line.extend((!is_pool).then(|| or_dash(&self.endpoint)));
        if all {
            line.push(self.policy.clone());
            line.extend((!is_pool).then(|| self.load_balancing_policy.clone()));
            line.push(self.requested_resources_str.clone());
        }
        line
    }
}

impl ReplicaRow {
    /// Whether it is one of its service's replicas. Those that failed are not.
    fn is_counted(&self) -> bool {
        self.status != "UNKNOWN" && !self.status.starts_with("FAILED")
    }

    fn line(&self, service: &str, is_pool: bool, all: bool, now: i64) -> Vec<String> {
        let mut line = vec![service.to_owned(), self.replica_id.to_string(), self.version.to_string()];
        line.extend((!is_pool).then(|| or_dash(&self.endpoint)));
        line.push(ago(self.launched_at, now));
        line.push(or_dash(&self.infra));
        line.push(if all { &self.resources_str_full } else { &self.resources_str }.clone());
        line.push(match &self.status_detail {
            Some(detail) => format!("{} ({detail})", self.status),
            None => self.status.clone(),
        });
        line.extend(is_pool.then(|| self.jobs()));
        line
    }

    /// `4, 5, +2 more`.
    fn jobs(&self) -> String {
        let jobs = self.used_by.as_deref().unwrap_or_default();
        let mut named: Vec<String> = jobs.iter().take(JOBS_MAX).map(u32::to_string).collect();
        let rest = jobs.len().saturating_sub(JOBS_MAX);
        named.extend((rest > 0).then(|| format!("+{rest} more")));
        if named.is_empty() { "-".to_owned() } else { named.join(", ") }
    }
}
