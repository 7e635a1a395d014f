//! What of a task file a managed job is made of.

use crate::launch::fit::{Size, size_asked};
use crate::launch::job::job_resources;
use crate::launch::{Refused, bare, configuration, gpus};
use api::sky::{
    API_VERSION, Candidate, JobFile, JobRate, JobRecovery, JobStrategy, JobTask, LaunchFiles, ManagedJobSpec,
    WorkerShare, keys,
};
use placement::Catalogue;
use serde_json::{Value, json};
use sky::resources::Resources;
use sky::task::Task;
use sky::value::Value as Field;

/// Bytes of a callback, which is one argument of bash. Linux takes 128 KiB.
const CALLBACK_MAX: usize = 96 * 1024;

/// The name of the ManagedJob of this number.
pub fn name_of(id: u32) -> String {
    format!("job-{id}")
}

fn first(task: &Task) -> Resources {
    task.resources.list.first().cloned().unwrap_or_default()
}

/// The priority of a job: that of its first task. Default: 0.
pub fn priority(tasks: &[Task]) -> i32 {
    let of = tasks.first().map(first).and_then(|one| one.priority);
    of.and_then(|priority| priority.as_number()).map_or(0, clamped)
}

#[expect(clippy::cast_possible_truncation, reason = "clamped")]
fn clamped(priority: f64) -> i32 {
    priority.clamp(-1000.0, 1000.0) as i32
}

/// When a task is started again. Of one that says nothing: in another region, whenever its machines are lost.
pub fn recovery(task: &Task) -> JobRecovery {
    let one = first(task);
    if one.never_recovers {
        return JobRecovery { strategy: JobStrategy::None, ..JobRecovery::default() };
    }
    let Some(said) = one.job_recovery else { return JobRecovery::default() };
    let field = |name: &str| said.get(name).map(Field::to_json).unwrap_or_default();
    let strategy = match field("strategy").as_str().map(str::to_lowercase).as_deref() {
        Some("failover") => JobStrategy::Failover,
        _ => JobStrategy::EagerNextRegion,
    };
    let codes = match field("recover_on_exit_codes") {
        Value::Array(codes) => codes.iter().filter_map(Value::as_i64).collect(),
        code => code.as_i64().into_iter().collect(),
    };
    let restarts = field("max_restarts_on_errors").as_u64().unwrap_or(0);
    JobRecovery {
        strategy,
        max_restarts_on_errors: u32::try_from(restarts).unwrap_or(u32::MAX),
        recover_on_exit_codes: codes,
    }
}

/// What a task takes of a pool's worker. Empty: it asks for nothing in particular, and takes the whole worker.
fn shares(task: &Task) -> Vec<WorkerShare> {
    let share = |one: &Resources| {
        let Size { cpus, memory } = size_asked(one);
        WorkerShare { cpus, memory, gpus: gpus(one) }
    };
    let all: Vec<WorkerShare> = task.resources.list.iter().map(share).collect();
    if all.first().is_none_or(|first| *first == WorkerShare::default()) { Vec::new() } else { all }
}

/// A task of a job. `secret` names the Secret with its variables; empty: it has none.
pub fn task(task: &Task, catalogue: &Catalogue, files: Vec<LaunchFiles>, secret: String) -> JobTask {
    JobTask {
        name: task.name.clone().unwrap_or_default(),
        task: bare(task, catalogue),
        files,
        secret,
        configuration: configuration(task, catalogue),
        requested: job_resources(task.num_nodes, &first(task)),
        shares: shares(task),
        is_empty: task.run.is_none() && task.setup.is_none(),
        recovery: recovery(task),
        auxiliary: None,
        rate: rate(task),
        service: Value::Null,
    }
}

/// Machines and GPUs of a task per hour; [`priced`] adds the dollars.
#[expect(clippy::cast_precision_loss, reason = "numbers of machines")]
fn rate(task: &Task) -> JobRate {
    let machines = task.num_nodes.max(1) as f64;
    let all = task.resources.list.iter().filter_map(gpus).map(|gpus| gpus.count);
    JobRate { dollars: 0.0, gpus: all.fold(0.0, f64::max) * machines, machines }
}

/// A task of a job with the price of its most expensive place.
pub fn priced(mut task: JobTask, places: &[Candidate]) -> JobTask {
    let prices = places.iter().map(|place| place.hourly_price);
    task.rate.dollars = prices.fold(0.0, f64::max) * task.rate.machines;
    task
}

/// What of a task no managed job acts on.
///
/// # Errors
/// The line about it.
pub fn check(task: &Task) -> Result<(), Refused> {
    if let Some(long) = task.event_callback.as_ref().filter(|script| script.len() > CALLBACK_MAX) {
        let what = format!(
            "`event_callback` has {} bytes, and at most {CALLBACK_MAX} are allowed; let it call a script.",
            long.len()
        );
        return Err(Refused::new("ValueError", what));
    }
    if task.service.is_some() {
        let what = "`service` and `pool` are not supported in a managed job; remove them from the task file.";
        return Err(Refused::new("ValueError", what));
    }
    Ok(())
}

/// The ConfigMap with the tasks. It is created before the jobs, which name it.
///
/// # Errors
/// The tasks are no JSON.
pub fn config_map(file: &JobFile) -> serde_json::Result<Value> {
    Ok(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"generateName": "managed-job-", "labels": {keys::SUBMISSION: "true"}},
        "data": {"job": serde_json::to_string(file)?},
    }))
}

/// A ManagedJob.
pub fn managed_job(spec: &ManagedJobSpec) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": "ManagedJob",
        "metadata": {"name": name_of(spec.id)}, "spec": spec,
    })
}
