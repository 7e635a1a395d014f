//! MPIJobs: their user, and what mpirun makes of the workers that it finds.

use super::{Cluster, JSON, MERGE, NAMESPACE};
use crate::dice::Dice;
use api::mpi::names::{LABEL_JOB_NAME, LABEL_JOB_ROLE, ROLE_LAUNCHER, ROLE_WORKER, WAIT_CONTAINER, worker};
use api::mpi::{self, annotations};
use api::object::{self, Key};
use api::trainer::annotations::{RETRIES, RETRY_BACKOFF, TTL_SECONDS};
use serde_json::{Value, json};
use std::sync::Arc;

/// How many there are at once.
const JOBS_MAX: usize = 3;

/// Whether a pod is a launcher or a worker.
pub fn is_pod(pod: &Value) -> bool {
    object::label(pod, LABEL_JOB_ROLE).is_some()
}

fn is_worker(pod: &Value) -> bool {
    object::label(pod, LABEL_JOB_ROLE) == Some(ROLE_WORKER)
}

/// Whether its launcher is to start once all workers are ready. What was suspended once starts with its workers, as upstream's: its
/// launcher's Job is made while it is suspended. Its user changes nothing else, so its generation tells, also where the controller
/// had no time to tell it by a condition.
fn waits(job: &Value) -> bool {
    job["spec"]["launcherCreationPolicy"] == "WaitForWorkersReady"
        && job["spec"]["runPolicy"]["suspend"] != true
        && job["metadata"]["generation"] == 1
}

/// Whether a launcher's pod waits for its workers before its first container starts.
fn waits_inside(pod: &Value) -> bool {
    let mut before = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    before.any(|container| container["name"] == WAIT_CONTAINER)
}

/// The names of the declared workers.
fn declared(job: &Value) -> Vec<String> {
    let count = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"].as_i64().unwrap_or(0);
    let count = i32::try_from(count).unwrap_or(0);
    (0..count).map(|index| worker(object::meta(job, "name"), index)).collect()
}

/// How many whole processors a node has.
fn processors(node: &Value) -> u64 {
    object::text(&node["status"]["allocatable"], "cpu").parse().unwrap_or_default()
}

impl Cluster {
    /// The MPIJob that a pod is of. One of its name that was made after it is another.
    fn mpijob_of(&self, pod: &Value) -> Option<Arc<Value>> {
        let name = object::label(pod, LABEL_JOB_NAME)?;
        let job = self.all(mpi::KIND).into_iter().find(|job| object::meta(job, "name") == name)?;
        let owner = object::controller_of(pod).map(|owner| owner["uid"].clone());
        let launcher = self.all("Job").into_iter().find(|launcher| owner == Some(launcher["metadata"]["uid"].clone()));
        let owner =
            launcher.map_or(owner, |launcher| object::controller_of(&launcher).map(|owner| owner["uid"].clone()));
        (owner.as_ref() == Some(&job["metadata"]["uid"])).then_some(job)
    }

    /// A worker that has run once is remembered; a launcher's start is counted, and one that was to wait finds no worker that has not
    /// run.
    pub(super) fn mpi_pod_runs(&self, pod: &Value) {
        let Some(job) = is_pod(pod).then(|| self.mpijob_of(pod)).flatten() else { return };
        let key = |name: &str| (object::uid(&job).to_owned(), name.to_owned());
        if is_worker(pod) {
            self.ran.borrow_mut().insert(key(object::meta(pod, "name")));
            return;
        }
        self.starts.set(self.starts.get() + 1);
        let missing = declared(&job).into_iter().find(|name| !self.ran.borrow().contains(&key(name)));
        if let Some(missing) = missing.filter(|_| waits(&job)) {
            let launcher = object::meta(pod, "name");
            self.broken(format!("{launcher} starts, and {missing} has never run"));
        }
    }

    /// Whether a pod on a node starts now, or how it ends without: a launcher that waits inside starts once all workers can be
    /// reached, and gives up where one has ended. `None`: it waits.
    pub(super) fn mpi_pod_starts(&self, pod: &Value) -> Option<(&'static str, i64)> {
        if !is_pod(pod) || !waits_inside(pod) {
            return Some(("Running", 0));
        }
        self.mpirun(pod).map(|(phase, code)| if phase == "Succeeded" { ("Running", 0) } else { (phase, code) })
    }

    /// How mpirun ends now: well where all workers run, badly where one has ended; `None` where it waits for one that comes, and
    /// for a worker, which listens for ever.
    pub(super) fn mpirun(&self, pod: &Value) -> Option<(&'static str, i64)> {
        if object::label(pod, LABEL_JOB_ROLE) != Some(ROLE_LAUNCHER) {
            return None;
        }
        // of a job that is gone nobody knows the workers
        let Some(job) = self.mpijob_of(pod) else { return Some(("Failed", 1)) };
        let pods = self.all("Pod");
        let phases = declared(&job).into_iter().map(|name| {
            let found = pods.iter().find(|pod| object::meta(pod, "name") == name);
            found.map_or_else(String::new, |pod| object::text(&pod["status"], "phase").to_owned())
        });
        let phases: Vec<String> = phases.collect();
        match () {
            () if phases.iter().any(|phase| matches!(phase.as_str(), "Failed" | "Succeeded")) => Some(("Failed", 1)),
            () if phases.iter().all(|phase| phase == "Running") => Some(("Succeeded", 0)),
            () => None,
        }
    }

    pub(super) fn make_mpijob(&self, dice: &mut Dice) {
        if self.all(mpi::KIND).len() >= JOBS_MAX {
            return;
        }
        let name = format!("mpi{}", self.number());
        let role = |replicas: u64, cpu: &str| {
            json!({"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {"containers": [
                {"name": "node", "image": "none", "resources": {"requests": {"cpu": cpu}}}]}}})
        };
        let mut asked = json!({});
        if dice.chance(30) {
            asked[RETRIES] = (1 + dice.below(2)).to_string().into();
            asked[RETRY_BACKOFF] = ["3s", "1m", "6h"][dice.below(3) as usize].into();
        }
        if dice.chance(20) {
            asked[TTL_SECONDS] = ["30", "3600", "90000"][dice.below(3) as usize].into();
        }
        let cpu = ["1", "500m"][dice.below(2) as usize];
        let policy = ["AtStartup", "WaitForWorkersReady"][dice.below(2) as usize];
        if dice.chance(30) {
            asked[annotations::WAIT_FOR_WORKERS] = annotations::REACHABLE.into();
        }
        // upstream's launcher would wait for ever for a worker that has ended before
        if policy != "AtStartup" || dice.chance(20) {
            asked[annotations::REPLACE_WORKERS] = "true".into();
        }
        let clean = ["All", "Running"][dice.below(2) as usize];
        let mut job = json!({"apiVersion": mpi::API_VERSION, "kind": mpi::KIND,
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": asked},
            "spec": {"launcherCreationPolicy": policy,
                "runPolicy": {"suspend": dice.chance(20), "backoffLimit": dice.below(3),
                    "cleanPodPolicy": clean},
                "mpiReplicaSpecs": {"Launcher": role(1, "500m"), "Worker": role(1 + dice.below(3), cpu)}}});
        if self.is_calm && dice.chance(50) {
            // workers that take all the room or half of it, with a launcher that comes later
            let room: u64 = self.all("Node").iter().map(|node| processors(node)).sum();
            job["spec"]["mpiReplicaSpecs"]["Worker"] = role((room / (1 + dice.below(2))).max(1), "1");
            job["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady".into();
            job["metadata"]["annotations"][annotations::REPLACE_WORKERS] = "true".into();
        }
        self.note(format!("user: makes {name}"));
        self.must("POST", &format!("/apis/kubeflow.org/v2beta1/namespaces/{NAMESPACE}/mpijobs"), &job);
    }

    /// The user makes, suspends, resumes or deletes a MPIJob.
    pub(super) fn mpi_user_step(&self, dice: &mut Dice) {
        let jobs = self.all(mpi::KIND);
        match (dice.below(100), dice.pick(&jobs)) {
            (0..50, _) | (_, None) => self.make_mpijob(dice),
            (50..85, Some(job)) => {
                let suspend = job["spec"]["runPolicy"]["suspend"] != true;
                self.note(format!("user: sets suspend of {} to {suspend}", object::meta(job, "name")));
                let change = json!({"spec": {"runPolicy": {"suspend": suspend}}});
                self.act("PATCH", &Self::job_path(job), MERGE, &change);
            }
            (_, Some(job)) => {
                let policy = ["Background", "Foreground"][dice.below(2) as usize];
                self.note(format!("user: deletes {} ({policy})", object::meta(job, "name")));
                self.act("DELETE", &Self::job_path(job), JSON, &json!({"propagationPolicy": policy}));
            }
        }
    }

    /// In the course of weeks what has ended is cleared away.
    pub(super) fn mpi_user_day(&self, dice: &mut Dice) {
        if dice.chance(70) {
            return self.mpi_user_step(dice);
        }
        for job in self.all(mpi::KIND) {
            if !job["status"]["completionTime"].is_null() {
                self.note(format!("user: clears {} away", Key::of(&job)));
                self.act("DELETE", &Self::job_path(&job), JSON, &json!({"propagationPolicy": "Background"}));
            }
        }
    }

    pub(super) fn resume_mpijobs(&self) {
        for job in self.all(mpi::KIND) {
            self.act("PATCH", &Self::job_path(&job), MERGE, &json!({"spec": {"runPolicy": {"suspend": false}}}));
        }
    }
}
