//! Services and pools as rows of tables.

use super::super::jobs::Placed;
use ::clusters::Fleet;
use ::sky::console::{ReplicaRow, ServiceRow};
use api::sky::{JobFile, Replica};
use jiff::Timestamp;
use managed::fleet::FleetKind;
use managed::shown::policy;
use std::collections::BTreeMap;

fn seconds(time: &str) -> Option<i64> {
    time.parse().ok().map(Timestamp::as_second)
}

fn given(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

/// The numbers of the jobs of a pool, by the worker that they have.
pub(super) type Used = BTreeMap<u32, Vec<u32>>;

/// The row of a service or a pool. Without a `file` its policy is not known. `used`: only of a pool.
pub(super) fn row(fleet: &Fleet, file: Option<&JobFile>, kind: FleetKind, used: &Used) -> ServiceRow {
    let task = file.and_then(|file| file.tasks.first());
    let section = task.map(|task| task.service.clone()).unwrap_or_default();
    let status = &fleet.status;
    let state = if fleet.is_ending() { "SHUTTING_DOWN" } else { status.state.as_str() };
    ServiceRow {
        name: fleet.spec.name.clone(),
        active_versions: status.active_versions.clone(),
        uptime: seconds(&status.ready_since),
        status: state.to_owned(),
        endpoint: given(&status.load.endpoint),
        policy: policy(&section, kind),
        load_balancing_policy: section["load_balancing_policy"].as_str().unwrap_or("least_load").to_owned(),
        requested_resources_str: task.map(|task| task.requested.clone()).unwrap_or_default(),
        // a table may be cut: those that have failed come last
        replica_info: [false, true]
            .into_iter()
            .flat_map(|failed| status.replicas.iter().filter(move |one| one.state.is_failed() == failed))
            .map(|one| ReplicaRow { used_by: used.get(&one.number).cloned(), ..replica(one) })
            .collect(),
    }
}

fn replica(replica: &Replica) -> ReplicaRow {
    let dash = || "-".to_owned();
    let resources = given(&replica.resources).unwrap_or_else(dash);
    ReplicaRow {
        replica_id: replica.number,
        version: replica.version,
        status: replica.state.as_str().to_owned(),
        status_detail: None,
        endpoint: given(&replica.address).map(|address| format!("http://{address}")),
        launched_at: seconds(&replica.launched_at),
        infra: given(&replica.place).map(|place| Placed::of(&place).shown()),
        resources_str: resources.clone(),
        resources_str_full: resources,
        used_by: None,
    }
}
