//! What is read about a job, and what is asked of it.

use super::pooled::Pooled;
use super::{batch_job, core};
use crate::cluster::delete;
use crate::evidence::{AttemptFacts, Ruling, judge};
use crate::jobs::{Job, Status, jobs, name_of_rank, stages};
use crate::names::object_name;
use api::jobset;
use api::object::{self, Gvk, Key, Target};
use api::sky::{
    Cluster, JobFile, Launch, Machine, MachinePhase, ManagedJob, ManagedState, ManagedTask, cluster_gvk, keys,
    launch_gvk, machine_gvk, managed_job_gvk,
};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Op, PatchBody, Propagation, World, Write};
use serde_json::{Value, json};
use std::sync::Arc;

/// A cluster of the job, with what is on it.
pub(super) struct Own {
    pub object: Arc<Value>,
    pub cluster: Cluster,
    pub machines: Vec<Machine>,
    /// Jobs on it; those that other managed jobs run on it are left out.
    pub jobs: Vec<Job>,
    /// JobSets of managed jobs on it, whose output is kept.
    pub sets: Vec<Arc<Value>>,
    /// Pods of its jobs.
    pub pods: Vec<Arc<Value>>,
    /// The first node that does not report, by its machine.
    pub silent: Option<String>,
}

/// What a decision reads.
pub struct Observed {
    pub(super) object: Arc<Value>,
    pub(super) job: ManagedJob,
    /// What was submitted, or why it cannot be read; `None`: it is not in the view, or the job has ended.
    pub(super) file: Option<Result<JobFile, String>>,
    pub(super) launches: Vec<Launch>,
    pub(super) clusters: Vec<Own>,
    /// What it needs to know of its pool, if it runs in one.
    pub(super) pool: Option<Pooled>,
    /// The budgets of an attempt that recovers or has no Launch yet; otherwise they are not read.
    pub(super) budgets: Vec<String>,
}

/// Reasons of pods that their node ended, and not their code.
const INTERRUPTIONS: [&str; 3] = ["SupervisorLost", "NodeShutdown", "NodeLost"];

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object).ok()
}

fn is_silent(world: &dyn World, machine: &Machine) -> bool {
    if machine.status.phase != MachinePhase::Running || machine.status.node.is_empty() {
        return false;
    }
    let Some(node) = world.get(&core("Node"), &Key::new("", &machine.status.node)) else { return false };
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|one| one["type"] == "Ready");
    ready.is_some_and(|ready| ready["status"] == "Unknown")
}

/// Whose jobs on a cluster count.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    /// The name of the ManagedJob.
    pub job: &'a str,
    /// Only those of this task; users' own jobs do not count then. Default: all of the job, and those of no managed job.
    pub task: Option<usize>,
}

impl Whose<'_> {
    fn is_its(self, object: &Value) -> bool {
        let of = object::label(object, keys::MANAGED_JOB);
        match self.task {
            None => of.is_none_or(|of| of == self.job),
            Some(task) => {
                of == Some(self.job) && object::label(object, keys::TASK).is_some_and(|of| of.parse() == Ok(task))
            }
        }
    }
}

impl Own {
    pub(super) fn look(world: &dyn World, object: Arc<Value>, whose: Whose<'_>, is_fencing: bool) -> Option<Self> {
        let cluster = read(&object)?;
        let uid = object::uid(&object);
        let owned = world.owned_by(&machine_gvk(), uid);
        let mut machines: Vec<Machine> = owned.iter().filter_map(|machine| read(machine)).collect();
        machines.sort_by_key(|machine| machine.spec.rank);
        let all = world.owned_by(&jobset::gvk(), uid);
        let jobsets: Vec<&Arc<Value>> = all.iter().filter(|set| whose.is_its(set)).collect();
        let mut pods = Vec::new();
        for set in &jobsets {
            for job in world.owned_by(&batch_job(), object::uid(set)) {
                pods.extend(world.owned_by(&core("Pod"), object::uid(&job)));
            }
        }
        if is_fencing {
            // pods outlive the Jobs that owned them
            let name = object::meta(&object, "name");
            pods = world.mentioning(&core("Pod"), Some(object::meta(&object, "namespace")), name);
            pods.retain(|pod| object::label(pod, keys::CLUSTER) == Some(name) && whose.is_its(pod));
        }
        let silent = machines.iter().find(|machine| is_silent(world, machine));
        let silent = silent.and_then(|machine| machine.metadata.name.clone());
        let jobs = jobs(jobsets.iter().map(|set| &***set));
        let sets = all.into_iter().filter(|set| object::label(set, keys::MANAGED_JOB).is_some()).collect();
        Some(Self { object, cluster, machines, jobs, sets, pods, silent })
    }

    /// Ends its jobs that have not ended, in this state.
    pub(super) fn ends(&self, state: Status, now: Timestamp) -> impl Iterator<Item = Write> {
        let left = self.jobs.iter().filter(|job| !job.status.has_ended()).flat_map(stages);
        left.map(move |set| Op::Update { object: crate::jobs::marked(set, state, now) }.into())
    }

    /// The job of an attempt.
    fn job(&self, attempt: u32) -> Option<&Job> {
        let attempt = attempt.to_string();
        self.jobs.iter().find(|job| object::label(&job.run, keys::ATTEMPT) == Some(&attempt))
    }

    /// What an agent says of a pod of the job that did not end by itself.
    fn interrupted(&self, job: &Job) -> Option<String> {
        let sets: Vec<&str> = stages(job).map(|set| object::meta(set, "name")).collect();
        let of_job =
            |pod: &&Arc<Value>| object::label(pod, jobset::keys::JOBSET_NAME).is_some_and(|set| sets.contains(&set));
        let pod = self
            .pods
            .iter()
            .filter(of_job)
            .find(|pod| INTERRUPTIONS.contains(&object::text(&pod["status"], "reason")))?;
        let status = &pod["status"];
        Some(match object::text(status, "message") {
            "" => object::text(status, "reason").to_owned(),
            message => message.to_owned(),
        })
    }

    /// Exit codes by rank of the stage that ended the job.
    fn exits(&self, job: &Job) -> Vec<Option<i64>> {
        let stage = match (job.status, &job.setup) {
            (Status::FailedSetup, Some(setup)) => setup,
            _ => &job.run,
        };
        let set = object::meta(stage, "name");
        let code = |rank: u32| {
            let name = name_of_rank(rank);
            let mut pods = self.pods.iter().filter(|pod| {
                object::label(pod, jobset::keys::JOBSET_NAME) == Some(set)
                    && object::label(pod, jobset::keys::REPLICATED_JOB_NAME) == Some(&name)
            });
            pods.find_map(|pod| pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64())
        };
        (0..job.nodes.max(1)).map(code).collect()
    }
}

impl Observed {
    pub(super) fn look(world: &dyn World, target: &Target) -> Option<Self> {
        let object = world.get(&target.gvk, &target.key)?;
        let job: ManagedJob = read(&object)?;
        let uid = object::uid(&object);
        let key = Key::new(object::meta(&object, "namespace"), &job.spec.submission);
        // of a job that has ended only the clusters count
        let map = (!job.status.state.has_ended()).then(|| world.get(&core("ConfigMap"), &key)).flatten();
        let file = map.map(|map| {
            let text = map["data"]["job"].as_str().unwrap_or_default();
            serde_json::from_str(text)
                .map_err(|error| format!("ConfigMap {} does not hold the tasks of a job: {error}", job.spec.submission))
        });
        let launches = world.owned_by(&launch_gvk(), uid);
        let launches: Vec<Launch> = launches.iter().filter_map(|launch| read(launch)).collect();
        let clusters = world.owned_by(&cluster_gvk(), uid);
        let is_fencing = job.status.tasks.iter().any(|task| task.is_kept);
        let whose = Whose { job: &target.key.name, task: None };
        let clusters = clusters.into_iter().filter_map(|cluster| Own::look(world, cluster, whose, is_fencing));
        let clusters = clusters.collect();
        let pool = (!job.spec.pool.is_empty()).then(|| Pooled::look(world, target, &job));
        let has_launch = |index: usize, attempt: u32| {
            let managed = launches.iter().filter_map(|launch: &Launch| launch.spec.managed.as_ref());
            managed.into_iter().any(|one| usize::try_from(one.task) == Ok(index) && one.attempt == attempt)
        };
        let is_launching = job.status.tasks.iter().enumerate().any(|(index, task)| match task.open_attempt() {
            Some(attempt) => !has_launch(index, attempt.number),
            None => task.state == ManagedState::Recovering,
        });
        let budgets = if is_launching { crate::budget::covering(world, &job) } else { Vec::new() };
        Some(Self { object, job, file, launches, clusters, pool, budgets })
    }

    pub(super) fn namespace(&self) -> &str {
        object::meta(&self.object, "namespace")
    }

    pub(super) fn target(&self, gvk: Gvk, name: Option<&str>) -> Target {
        Target { gvk, key: Key::new(self.namespace(), name.unwrap_or_default()) }
    }

    /// The cluster of this name, as users see it.
    pub(super) fn cluster(&self, shown: &str) -> Option<&Own> {
        let name = object_name(shown);
        let all = self.clusters.iter().chain(self.pool.as_ref().and_then(Pooled::worker));
        all.into_iter().find(|own| object::meta(&own.object, "name") == name)
    }

    /// The Launch of an attempt.
    pub(super) fn launch(&self, index: usize, attempt: u32) -> Option<&Launch> {
        let name = self.launch_name(index, attempt);
        self.launches.iter().find(|launch| launch.metadata.name.as_deref() == Some(&name))
    }

    /// `job-17-0-1`.
    pub(super) fn launch_name(&self, index: usize, attempt: u32) -> String {
        format!("{}-{index}-{attempt}", object::meta(&self.object, "name"))
    }

    /// The job of the latest attempt on its cluster.
    pub(super) fn current(&self, task: &ManagedTask) -> Option<(&Own, &Job)> {
        let own = self.cluster(&task.cluster)?;
        Some((own, own.job(task.attempt)?))
    }

    pub(super) fn judged(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Ruling {
        let own = self.cluster(&task.cluster);
        let job = own.and_then(|own| own.job(task.attempt));
        let machines: Vec<&Machine> = own
            .iter()
            .flat_map(|own| own.machines.iter().filter(|machine| machine.metadata.deletion_timestamp.is_none()))
            .collect();
        let exits = own.zip(job).map(|(own, job)| own.exits(job)).unwrap_or_default();
        let interrupted = own.zip(job).and_then(|(own, job)| own.interrupted(job));
        let ruling = judge(&AttemptFacts {
            holds: self.holds(),
            launch: self.launch(index, task.attempt),
            cluster: own.map(|own| (&*own.object, &own.cluster)),
            machines: &machines,
            job,
            exits: &exits,
            interrupted: interrupted.as_deref(),
            silent: own.and_then(|own| own.silent.as_deref()),
            asked_at: task.asked_at.parse().ok(),
            now,
        });
        match &self.pool {
            Some(pool) => pool.ruling(task, ruling),
            None => ruling,
        }
    }

    fn launches_of(&self, index: usize) -> impl Iterator<Item = &Launch> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        self.launches.iter().filter(move |one| one.spec.managed.as_ref().is_some_and(|managed| managed.task == index))
    }

    fn clusters_of(&self, index: usize) -> impl Iterator<Item = &Own> {
        let index = index.to_string();
        self.clusters.iter().filter(move |own| object::label(&own.object, keys::TASK) == Some(&index))
    }

    /// Whether launches or clusters of a task are left.
    pub(super) fn has_any(&self, index: usize) -> bool {
        self.launches_of(index).next().is_some() || self.clusters_of(index).next().is_some()
    }

    /// Deletions of what is left of a task, without one cluster.
    pub(super) fn removals(&self, index: usize, except: Option<&str>) -> Vec<Write> {
        let except = except.map(object_name);
        let launches = self.launches_of(index).filter(|launch| launch.metadata.deletion_timestamp.is_none());
        let launches = launches
            .map(|launch| (self.target(launch_gvk(), launch.metadata.name.as_deref()), launch.metadata.uid.clone()));
        let clusters = self.clusters_of(index).filter(|own| {
            !object::is_terminating(&own.object) && Some(object::meta(&own.object, "name")) != except.as_deref()
        });
        let clusters = clusters.map(|own| (Target::of(&own.object), Some(object::uid(&own.object).to_owned())));
        // a launch whose cluster goes first would fail, and say so
        launches.chain(clusters).map(|(target, uid)| delete(target, uid, Propagation::Background)).collect()
    }

    /// Ends what of an attempt is left on a cluster that is kept: its processes, and the machines that are lost. Empty once all is gone.
    pub(super) fn fence(&self, own: &Own, now: Timestamp) -> Vec<Write> {
        let mut writes: Vec<Write> = own.ends(Status::FailedDriver, now).collect();
        let lost = own.machines.iter().filter(|machine| machine.status.phase == MachinePhase::Lost);
        for machine in lost.filter(|machine| machine.metadata.deletion_timestamp.is_none()) {
            let target = self.target(machine_gvk(), machine.metadata.name.as_deref());
            writes.push(delete(target, machine.metadata.uid.clone(), Propagation::Background));
        }
        writes
    }

    /// Whether processes or lost machines of the last attempt may still be there.
    pub(super) fn is_fenced(own: &Own) -> bool {
        let is_left = |machine: &Machine| {
            machine.status.phase == MachinePhase::Lost || machine.metadata.deletion_timestamp.is_some()
        };
        let ends = |pod: &Arc<Value>| object::has_ended(pod);
        !own.machines.iter().any(is_left)
            && own.pods.iter().all(ends)
            && !own.jobs.iter().flat_map(stages).any(crate::jobs::is_active)
    }

    /// Asks the provider of each machine of the task's cluster how it is.
    pub(super) fn questions(&self, task: &ManagedTask) -> Vec<Write> {
        let machines = self.cluster(&task.cluster).into_iter().flat_map(|own| own.machines.iter());
        machines
            .map(|machine| {
                let target = self.target(machine_gvk(), machine.metadata.name.as_deref());
                let body = json!({"metadata": {"annotations": {keys::REFRESH: "true"}}});
                Op::Patch { target, subresource: None, body: PatchBody::Merge(body) }.into()
            })
            .collect()
    }

    /// How long the machines of a task that has ended wait for their output to be kept; `None`: no longer.
    pub(super) fn waits_for_output(&self, task: &ManagedTask, index: usize, now: Timestamp) -> Option<SignedDuration> {
        let ended: Timestamp = task.ended_at.parse().ok()?;
        let until = api::time::later_secs(ended, super::KEEP_SECS);
        let is_kept = |set: &Value| object::annotation(set, keys::OUTPUT_KEPT) == Some("true");
        let of_clusters = self.clusters_of(index).filter(|own| !object::is_terminating(&own.object));
        let of_clusters = of_clusters.flat_map(|own| &own.sets).map(|set| &**set);
        let all = of_clusters.chain(self.pool.iter().flat_map(|pool| pool.sets(index))).all(is_kept);
        (!all && now < until).then(|| until.duration_since(now))
    }

    /// The owner reference to the job.
    pub(super) fn owner(&self) -> Value {
        json!({
            "apiVersion": api::sky::API_VERSION, "kind": managed_job_gvk().kind,
            "name": object::meta(&self.object, "name"), "uid": object::uid(&self.object), "controller": true,
        })
    }
}
