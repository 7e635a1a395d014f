//! What of a task file a service or a pool is made of.

use super::FleetKind;
use crate::job::submitted;
use crate::launch::Refused;
use crate::names::object_name;
use api::sky::{API_VERSION, FleetSpec, JobRecovery, JobStrategy, JobTask, LaunchFiles, keys};
use placement::Catalogue;
use serde_json::{Map, Value, json};
use sky::task::Task;
use sky::value::Value as Field;

/// The name of the job of a replica.
pub fn job_name(kind: FleetKind, shown: &str, number: u32) -> String {
    format!("{}-{}-{number}", kind.prefix(), object_name(shown))
}

/// The name of a service's or a pool's object.
pub fn name_of(shown: &str) -> String {
    object_name(shown)
}

/// The key of the load balancer's Secret that holds the headers of a version's probes.
pub fn headers_key(version: u32) -> String {
    format!("headers-{version}")
}

/// The `service` section of a task, as JSON.
fn section(task: &Task) -> Value {
    task.service.clone().map(|section| Field::Map(section).to_json()).unwrap_or_default()
}

/// What is secret of a service: the headers of its probe as JSON, if it has any.
pub fn headers(task: &Task) -> Option<String> {
    let headers = section(task)["readiness_probe"]["headers"].clone();
    headers.is_object().then(|| headers.to_string())
}

/// The task of a version. Headers of its probe and its certificate are left out; it says that there are some. `secret` names the Secret with
/// its variables.
pub fn task(task: &Task, catalogue: &Catalogue, files: Vec<LaunchFiles>, secret: String) -> JobTask {
    let mut made = submitted::task(task, catalogue, files, secret);
    // a new replica comes in place of a lost one
    made.recovery = JobRecovery { strategy: JobStrategy::None, ..JobRecovery::default() };
    let mut section = made.task.as_object_mut().and_then(|task| task.remove("service")).unwrap_or_default();
    for secret in ["/readiness_probe/headers", "/tls"] {
        if let Some(found) = section.pointer_mut(secret).filter(|found| found.is_object()) {
            *found = true.into();
        }
    }
    if let (Ok(port), None) = (port(task), section.get("pool")) {
        section["ports"] = port.into();
    }
    made.service = section;
    made
}

/// The port on which replicas answer: that of the section, else the only one of the task's `resources.ports`.
///
/// # Errors
/// There is none, or more than one.
pub fn port(task: &Task) -> Result<u16, Refused> {
    let refuse = |message: String| Err(Refused::new("ValueError", message));
    if let Some(port) = section(task)["ports"].as_u64().and_then(|port| u16::try_from(port).ok()) {
        return Ok(port);
    }
    let ports: Vec<String> = task.resources.list.first().and_then(|one| one.ports.clone()).unwrap_or_default();
    match ports.as_slice() {
        [port] => match port.parse() {
            Ok(port) => Ok(port),
            Err(_) => refuse(format!("`resources.ports: {port}` is a range; name the port of the service in `service.ports`.")),
        },
        [] => refuse(
            "Must specify at least one port under `resources.ports` or under `service.ports` to expose the service.".to_owned(),
        ),
        _ => refuse("Must specify only one port in resources when `service.ports` is not set. Each replica will use the port specified as application ingress port.".to_owned()),
    }
}

/// The object of a service or a pool.
pub fn object(kind: FleetKind, spec: &FleetSpec) -> Value {
    json!({
        "apiVersion": API_VERSION, "kind": kind.gvk().kind,
        "metadata": {"name": name_of(&spec.name), "finalizers": [keys::LEDGER]},
        "spec": spec,
    })
}

/// The name of the load balancer's Secret, and of its pod.
pub fn balancer_name(shown: &str) -> String {
    super::balancer::name(&name_of(shown))
}

/// The load balancer's Secret. `data`: its certificate and the headers of probes.
pub fn secret(shown: &str, data: Map<String, Value>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": balancer_name(shown), "labels": {keys::FLEET: name_of(shown)}},
        "stringData": data,
    })
}
