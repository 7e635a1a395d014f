//! What is read about a service or a pool, and what is asked of its jobs.

use super::{FleetKind, core, rollout};
use crate::cluster::delete;
use crate::names::object_name;
use api::object::{self, Key, Target};
use api::sky::{
    API_VERSION, Cluster, FleetSpec, FleetStatus, JobFile, ManagedJob, ManagedJobSpec, Replica, ReplicaOf,
    ReplicaReport, cluster_gvk, keys, launch_gvk, managed_job_gvk,
};
use jiff::Timestamp;
use reconcile::{Op, PatchBody, Propagation, World, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long after its creation a version's ConfigMap may be missing from the view, seconds.
const LATE_SECS: i64 = 60;
/// How long requests of a replica that ends may go on, seconds.
const DRAIN_SECS: i64 = 120;
/// Jobs of replicas are launched before those of users that name no priority.
const PRIORITY: i32 = 900;

/// The job of a replica, with the cluster that it has now.
pub(super) struct Own {
    pub object: Arc<Value>,
    pub job: ManagedJob,
    pub cluster: Option<(Arc<Value>, Cluster)>,
    /// Whether launches or clusters of it are left.
    pub has_any: bool,
}

impl Own {
    fn look(world: &dyn World, object: Arc<Value>) -> Option<Self> {
        let job: ManagedJob = serde_json::from_value((*object).clone()).ok()?;
        let uid = object::uid(&object);
        let clusters = world.owned_by(&cluster_gvk(), uid);
        let has_any = !clusters.is_empty() || !world.owned_by(&launch_gvk(), uid).is_empty();
        let name = job.status.tasks.first().map(|task| object_name(&task.cluster)).unwrap_or_default();
        let current = clusters.into_iter().find(|cluster| object::meta(cluster, "name") == name);
        let cluster = current.and_then(|cluster| {
            let read = serde_json::from_value((*cluster).clone()).ok()?;
            Some((cluster, read))
        });
        Some(Self { object, job, cluster, has_any })
    }

    pub(super) fn number(&self) -> u32 {
        self.job.spec.id
    }
}

/// What a decision reads.
pub struct Observed {
    pub(super) kind: FleetKind,
    pub(super) object: Arc<Value>,
    pub(super) spec: FleetSpec,
    pub(super) status: FleetStatus,
    /// What was submitted for each version, by the name of its ConfigMap.
    pub(super) files: BTreeMap<String, Result<JobFile, String>>,
    pub(super) jobs: Vec<Own>,
    /// The pod of the load balancer.
    pub(super) balancer: Option<Arc<Value>>,
}

impl Observed {
    pub(super) fn look(world: &dyn World, target: &Target, kind: FleetKind) -> Option<Self> {
        let object = world.get(&target.gvk, &target.key)?;
        let spec: FleetSpec = serde_json::from_value(object["spec"].clone()).ok()?;
        let status: FleetStatus = match object.get("status") {
            Some(status) => serde_json::from_value(status.clone()).ok()?,
            None => FleetStatus::default(),
        };
        let namespace = object::meta(&object, "namespace");
        let versions = status.versions.iter().map(|version| version.submission.as_str());
        let mut files = BTreeMap::new();
        for name in versions.chain([spec.submission.as_str()]) {
            if let Some(map) = world.get(&core("ConfigMap"), &Key::new(namespace, name)) {
                let text = map["data"]["job"].as_str().unwrap_or_default();
                let read = serde_json::from_str(text)
                    .map_err(|error| format!("ConfigMap {name} does not hold the task of a version: {error}"));
                files.insert(name.to_owned(), read);
            }
        }
        let jobs = world.owned_by(&managed_job_gvk(), object::uid(&object));
        let jobs = jobs.into_iter().filter_map(|job| Own::look(world, job)).collect();
        let balancer = match kind {
            FleetKind::Service => {
                let name = super::balancer::name(object::meta(&object, "name"));
                world.get(&core("Pod"), &Key::new(namespace, &name))
            }
            FleetKind::Pool => None,
        };
        Some(Self { kind, object, spec, status, files, jobs, balancer })
    }

    pub(super) fn namespace(&self) -> &str {
        object::meta(&self.object, "namespace")
    }

    pub(super) fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    pub(super) fn job(&self, number: u32) -> Option<&Own> {
        self.jobs.iter().find(|own| own.number() == number)
    }

    pub(super) fn report(&self, number: u32) -> Option<&ReplicaReport> {
        self.status.load.backends.iter().find(|one| one.replica == number)
    }

    /// Whether the view may lack what was created with the object.
    pub(super) fn is_late(&self, now: Timestamp) -> bool {
        let created = object::meta(&self.object, "creationTimestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH);
        now < api::time::later_secs(created, LATE_SECS)
    }

    /// The task of a version, and its `service` section.
    ///
    /// # Errors
    /// It cannot be read; the text says why.
    pub(super) fn file(&self, submission: &str) -> Result<&JobFile, String> {
        match self.files.get(submission) {
            Some(Ok(file)) => Ok(file),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!(
                "ConfigMap {submission} with the task does not exist; submit it again: {}",
                match self.kind {
                    FleetKind::Service => format!("sky serve update {} FILE", self.spec.name),
                    FleetKind::Pool => format!("sky jobs pool apply -p {} FILE", self.spec.name),
                }
            )),
        }
    }

    /// The `service` section of the current version.
    pub(super) fn section(&self, status: &FleetStatus) -> Result<&Value, String> {
        let submission = rollout::current(status).map_or(&self.spec.submission, |version| &version.submission);
        self.file(submission).map(section_of)
    }

    pub(super) fn owner(&self) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": self.kind.gvk().kind, "name": self.name(),
            "uid": object::uid(&self.object), "controller": true, "blockOwnerDeletion": false,
        })
    }

    pub(super) fn labels(&self) -> Value {
        json!({keys::FLEET: self.name(), keys::FLEET_KIND: self.kind.label()})
    }

    fn target(&self, own: &Own) -> Target {
        Target { gvk: managed_job_gvk(), key: Key::of(&own.object) }
    }

    /// Creates the job of a replica.
    pub(super) fn created(&self, status: &FleetStatus, replica: &Replica) -> Option<Write> {
        let version = status.versions.iter().find(|version| version.number == replica.version)?;
        let spec = ManagedJobSpec {
            id: replica.number,
            name: self.spec.name.clone(),
            submission: version.submission.clone(),
            priority: PRIORITY,
            user: self.spec.user.clone(),
            command: self.spec.command.clone(),
            replica: Some(ReplicaOf {
                name: self.name().to_owned(),
                version: replica.version,
                holds: self.kind == FleetKind::Pool,
                is_spot: replica.is_spot,
                // where it is to be, until it is somewhere
                place: replica.place.clone(),
            }),
            ..ManagedJobSpec::default()
        };
        let object = json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {
                "name": super::submitted::job_name(self.kind, &self.spec.name, replica.number),
                "namespace": self.namespace(), "labels": self.labels(), "ownerReferences": [self.owner()],
            },
            "spec": spec,
        });
        Some(Op::Create { object }.into())
    }

    /// Asks for the end of a job, unless somebody has.
    pub(super) fn cancelled(&self, own: &Own) -> Option<Write> {
        let is_due = !own.job.spec.cancel && !own.job.status.state.has_ended();
        let body = PatchBody::Merge(json!({"metadata": {"uid": object::uid(&own.object)}, "spec": {"cancel": true}}));
        is_due.then(|| Op::Patch { target: self.target(own), subresource: None, body }.into())
    }

    /// The next step of the end of a job: it is cancelled, then it is removed.
    pub(super) fn ended(&self, own: &Own) -> Option<Write> {
        if !own.job.status.state.has_ended() || own.has_any {
            return self.cancelled(own);
        }
        if object::is_terminating(&own.object) {
            return None;
        }
        Some(delete(self.target(own), Some(object::uid(&own.object).to_owned()), Propagation::Background))
    }

    /// Whether a replica that ends works on no more requests, or a worker on no more jobs.
    pub(super) fn is_drained(&self, replica: &Replica, now: Timestamp) -> bool {
        if self.kind == FleetKind::Pool {
            // a worker that was never ready has no job
            return replica.ready_at.is_empty()
                || self.report(replica.number).is_some_and(|report| report.is_draining && report.in_flight == 0);
        }
        let until = replica.ended_at.parse().map(|at| api::time::later_secs(at, DRAIN_SECS));
        let is_busy = self.kind == FleetKind::Service
            && !replica.address.is_empty()
            && self.report(replica.number).is_some_and(|report| !report.is_draining || report.in_flight > 0);
        !is_busy || until.map_or(true, |until| now >= until)
    }

    /// Takes the finalizer away, so that the object goes.
    pub(super) fn release(&self) -> Option<Write> {
        let finalizers = self.object["metadata"]["finalizers"].as_array()?;
        let rest: Vec<&Value> = finalizers.iter().filter(|one| *one != keys::LEDGER).collect();
        if rest.len() == finalizers.len() {
            return None;
        }
        let version = object::resource_version(&self.object);
        let body = PatchBody::Merge(json!({"metadata": {"resourceVersion": version, "finalizers": rest}}));
        Some(Op::Patch { target: Target::of(&self.object), subresource: None, body }.into())
    }
}

/// The `service` section of a version's task.
pub(super) fn section_of(file: &JobFile) -> &Value {
    file.tasks.first().map_or(&Value::Null, |task| &task.service)
}
