//! Pods of a MPIJob: what a worker and a launcher have beyond their templates.

use super::Settings;
use super::asked;
use super::children::owner_reference;
use super::gang;
use super::hosts::search_domain;
use super::profile;
use super::reach;
use crate::build::entry;
use api::mpi::names::{
    CONFIG_PATH, CONFIG_VOLUME, DISCOVER_HOSTS, HOSTFILE, LABEL_JOB_NAME, LABEL_JOB_ROLE, LABEL_OPERATOR_NAME,
    LABEL_REPLICA_INDEX, OPERATOR_NAME, PRIVATE_KEY, PUBLIC_KEY, ROLE_LAUNCHER, ROLE_WORKER, ROOT_SSH_PATH, SSH_VOLUME,
    config, env, launcher, worker,
};
use api::mpi::{Implementation, MpiJob, ReplicaType};
use api::object::Key;
use api::trainer::names::env::{OMPI_DEFAULT_SLOTS, OMPI_HOSTFILE, OMPI_KEEP_FQDN, OMPI_RSH_ARGS};
use serde_json::{Map, Value, json};

/// What a worker runs that says nothing.
const SSHD: [&str; 2] = ["/usr/sbin/sshd", "-De"];

/// A pod template in the making.
struct Pod<'a> {
    job: &'a MpiJob,
    key: &'a Key,
    metadata: Map<String, Value>,
    spec: Value,
}

/// The Pod of a worker.
pub(super) fn of_worker(job: &MpiJob, key: &Key, uid: &str, index: i32, settings: &Settings) -> Value {
    let name = worker(&key.name, index);
    let mut pod = Pod::new(job, key, ReplicaType::Worker, ROLE_WORKER, &name);
    // where the launcher has index 0, others count on from there: Kueue wants them all different
    let label = index.saturating_add(i32::from(job.spec.launcher_is_worker()));
    pod.label(LABEL_REPLICA_INDEX, &label.to_string());
    let searches = entry(&mut pod.spec, "dnsConfig").entry("searches").or_insert_with(|| json!([]));
    push(searches, json!(search_domain(key, settings)));
    let main = pod.main();
    if is_empty_list(main, "command") && is_empty_list(main, "args") {
        main.insert("command".to_owned(), json!(SSHD));
    }
    append(main, "env", [variable(env::ROLE, ROLE_WORKER)]);
    pod.add_keys();
    pod.restart(ReplicaType::Worker, "Never");
    gang::decorate(&mut pod.metadata, &mut pod.spec, &key.name, settings);
    profile::decorate(&mut pod.metadata, &mut pod.spec, settings);
    let mut metadata = pod.metadata;
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(key.namespace));
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(&key.name, uid)]));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec})
}

/// The pod template of the launcher's Job.
// H-22 (kept): it has an owner reference, which Jobs pass over; recordings hold it.
pub(super) fn launcher_template(job: &MpiJob, key: &Key, uid: &str, settings: &Settings) -> Value {
    let mut pod = Pod::new(job, key, ReplicaType::Launcher, ROLE_LAUNCHER, &launcher(&key.name));
    gang::decorate(&mut pod.metadata, &mut pod.spec, &key.name, settings);
    let is_worker = job.spec.launcher_is_worker();
    if is_worker {
        pod.label(LABEL_REPLICA_INDEX, "0");
    }
    let main = pod.main();
    append(main, "env", [variable(env::ROLE, ROLE_LAUNCHER)]);
    append(main, "env", variables(job));
    if !is_worker {
        // the launcher has no rank, so it is to see no GPU
        append(main, "env", [env::NVIDIA_DEVICES, env::NVIDIA_CAPABILITIES].map(|name| json!({"name": name})));
    }
    pod.add_keys();
    pod.restart(ReplicaType::Launcher, "OnFailure");
    let volume = json!({"name": CONFIG_VOLUME, "configMap": {
        "name": config(&key.name),
        "items": [
            {"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444},
            {"key": DISCOVER_HOSTS, "path": DISCOVER_HOSTS, "mode": 0o555},
        ],
    }});
    pod.add_volume(volume, CONFIG_PATH);
    if let (Some(waiter), Some(spec)) = (reach::waiter(job, settings), pod.spec.as_object_mut()) {
        // after the job's own: these may take long
        append(spec, "initContainers", [waiter]);
    }
    profile::decorate(&mut pod.metadata, &mut pod.spec, settings);
    let mut metadata = pod.metadata;
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(&key.name, uid)]));
    json!({"metadata": metadata, "spec": pod.spec})
}

/// Whether the launcher's template has a restart policy, which does not count.
pub(super) fn says_restart_policy(job: &MpiJob) -> bool {
    let template = job.spec.role(ReplicaType::Launcher).map(|role| &role.template);
    let said = template.and_then(|template| template.pointer("/spec/restartPolicy"));
    said.and_then(Value::as_str).is_some_and(|policy| !policy.is_empty())
}

/// What tells mpirun of the hosts and of SSH.
fn variables(job: &MpiJob) -> Vec<Value> {
    let hostfile = format!("{CONFIG_PATH}/{HOSTFILE}");
    let slots = job.spec.slots().to_string();
    match job.spec.implementation() {
        Implementation::OpenMpi => vec![
            variable(OMPI_KEEP_FQDN, "true"),
            variable(OMPI_HOSTFILE, &hostfile),
            variable(OMPI_RSH_ARGS, env::SSH_ARGS),
            variable(OMPI_DEFAULT_SLOTS, &slots),
        ],
        Implementation::Intel => vec![
            variable(env::INTEL_HOSTFILE, &hostfile),
            variable(env::INTEL_SSH_ARGS, env::SSH_ARGS),
            variable(env::INTEL_SLOTS, &slots),
        ],
        Implementation::Mpich => {
            vec![variable(env::MPICH_HOSTFILE, &hostfile), variable(env::MPICH_SSH_ARGS, env::SSH_ARGS)]
        }
    }
}

impl<'a> Pod<'a> {
    /// A role's template with what all pods have. Of its metadata only labels and annotations go on.
    fn new(job: &'a MpiJob, key: &'a Key, role: ReplicaType, role_label: &str, hostname: &str) -> Self {
        let template = job.spec.role(role).map_or(&Value::Null, |role| &role.template);
        let mut metadata = Map::new();
        for member in ["labels", "annotations"] {
            if let Some(Value::Object(said)) = template.pointer(&format!("/metadata/{member}")) {
                metadata.insert(member.to_owned(), json!(said));
            }
        }
        let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
        spec["hostname"] = json!(hostname);
        // the Service's name
        spec["subdomain"] = json!(key.name);
        if spec.get("hostNetwork") == Some(&json!(true)) {
            spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        let mut pod = Self { job, key, metadata, spec };
        pod.label(LABEL_OPERATOR_NAME, OPERATOR_NAME);
        pod.label(LABEL_JOB_NAME, &key.name);
        pod.label(LABEL_JOB_ROLE, role_label);
        pod
    }

    fn label(&mut self, name: &str, value: &str) {
        let labels = self.metadata.entry("labels").or_insert_with(|| json!({}));
        labels[name] = json!(value);
    }

    /// The first container: it runs mpirun or sshd.
    fn main(&mut self) -> &mut Map<String, Value> {
        let containers = self.spec.get_mut("containers").and_then(Value::as_array_mut);
        let first = containers.and_then(|containers| containers.first_mut()).and_then(Value::as_object_mut);
        first.expect("invariant: a job without containers is not run")
    }

    fn add_volume(&mut self, volume: Value, path: &str) {
        let mount = json!({"name": volume["name"], "mountPath": path});
        if let Some(spec) = self.spec.as_object_mut() {
            append(spec, "volumes", [volume]);
        }
        append(self.main(), "volumeMounts", [mount]);
    }

    fn add_keys(&mut self) {
        let path = self.job.spec.ssh_path();
        let mut secret = json!({
            "secretName": asked::secret(self.job, &self.key.name),
            "items": [
                {"key": PRIVATE_KEY, "path": "id_rsa"},
                {"key": PUBLIC_KEY, "path": "id_rsa.pub"},
                {"key": PUBLIC_KEY, "path": "authorized_keys"},
            ],
        });
        if path == ROOT_SSH_PATH {
            secret["defaultMode"] = json!(0o600);
        }
        self.add_volume(json!({"name": SSH_VOLUME, "secret": secret}), path);
    }

    fn restart(&mut self, role: ReplicaType, default: &str) {
        let said = self.job.spec.role(role).and_then(|role| role.restart_policy.as_deref());
        self.spec["restartPolicy"] = json!(said.filter(|policy| !policy.is_empty()).unwrap_or(default));
    }
}

fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

fn is_empty_list(object: &Map<String, Value>, member: &str) -> bool {
    object.get(member).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

/// Appends to a list; one of the same name that is there already stays, and what comes last counts.
fn append(object: &mut Map<String, Value>, member: &str, items: impl IntoIterator<Item = Value>) {
    let list = object.entry(member).or_insert_with(|| json!([]));
    items.into_iter().for_each(|item| push(list, item));
}
