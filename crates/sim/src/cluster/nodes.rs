//! The nodes: they run pods, die, come back (some of them under another name), and say that they live.

use super::{Cluster, JOBSET_NAME, MERGE, is_trial, mpi};
use crate::dice::Dice;
use api::jobset::keys;
use api::node::LEASE_NAMESPACE;
use api::object::{self, Gvk, Key};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MINUTE: i64 = 60_000;
const NODES_MAX: usize = 3;

/// What nodes know that the API does not.
#[derive(Default)]
pub struct Nodes {
    /// By name, whether it runs.
    alive: BTreeMap<String, bool>,
    /// How many there ever were.
    made: usize,
    /// How often one came, went, died or returned.
    pub changes: u64,
    /// Whether one ever died.
    lost: bool,
    /// Whether one was ever removed.
    removed: bool,
    /// When each running pod ends, by uid.
    ends: BTreeMap<String, i64>,
}

fn node_of(pod: &Value) -> &str {
    object::text(&pod["spec"], "nodeName")
}

impl Cluster {
    fn pod_status(&self, pod: &Value, status: &Value) {
        let path = format!("{}/status", Self::path(&Gvk::new("", "v1", "Pod"), &Key::of(pod)));
        self.act("PATCH", &path, MERGE, &json!({"status": status}));
    }

    fn remove_pod(&self, pod: &Value) {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": object::uid(pod)}});
        let path = Self::path(&Gvk::new("", "v1", "Pod"), &Key::of(pod));
        self.act("DELETE", &path, super::JSON, &options);
    }

    fn run_pod(&self, pod: &Value, phase: &str, exit_code: i64) {
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let state = match phase {
            "Running" => json!({"running": {"startedAt": now}}),
            _ => json!({"terminated": {"exitCode": exit_code, "startedAt": now, "finishedAt": now}}),
        };
        let ready = phase == "Running";
        if ready {
            self.mpi_pod_runs(pod);
        }
        self.note(format!("{}: {} {phase}", node_of(pod), object::meta(pod, "name")));
        self.pod_status(pod, &json!({"phase": phase, "startTime": now,
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": now}],
            "containerStatuses": [{"name": "node", "ready": ready, "restartCount": 0, "image": "", "imageID": "", "state": state}]}));
    }

    /// Training code tells its loss, as the status server writes it. Searches alone look at it.
    fn report(&self, pod: &Value, loss: &str) {
        let trial = object::label(pod, JOBSET_NAME).unwrap_or_default();
        let jobs = self.all("TrainJob");
        let Some(job) = jobs.iter().find(|job| object::meta(job, "name") == trial && is_trial(job)) else { return };
        self.note(format!("{trial} has a loss of {loss}"));
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let told = json!({"metrics": [{"name": "loss", "value": loss}], "lastUpdatedTime": now});
        let path = format!("{}/status", Self::path(&Gvk::of(job), &Key::of(job)));
        self.act("PATCH", &path, MERGE, &json!({"status": {"trainerStatus": told}}));
    }

    fn is_alive(&self, node: &str) -> bool {
        self.nodes.borrow().alive.get(node) == Some(&true)
    }

    fn names(&self, alive: bool) -> Vec<String> {
        let nodes = self.nodes.borrow();
        nodes.alive.iter().filter(|(_, is)| **is == alive).map(|(name, _)| name.clone()).collect()
    }

    /// Pods of nodes that run.
    fn pods(&self) -> Vec<Arc<Value>> {
        let mut pods = self.all("Pod");
        pods.retain(|pod| self.is_alive(node_of(pod)));
        pods
    }

    // ------------------------------------------------------------------------------------------------ life and death

    /// A node of a new name, ready for work.
    pub fn add_node(&self, dice: &mut Dice) {
        let name = {
            let mut nodes = self.nodes.borrow_mut();
            nodes.made += 1;
            nodes.changes += 1;
            let name = format!("node-{}", nodes.made);
            nodes.alive.insert(name.clone(), true);
            name
        };
        self.note(format!("{name} joins"));
        self.must("POST", "/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let capacity = json!({"cpu": (2 + dice.below(5)).to_string(), "memory": "8Gi", "pods": "20"});
        let status = json!({"status": {"capacity": capacity, "allocatable": capacity}});
        self.act("PATCH", &format!("/api/v1/nodes/{name}/status"), MERGE, &status);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}});
        self.must("POST", &format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"), &lease);
        self.heartbeat();
    }

    /// Nodes that run say so: each renews its Lease, and one that is called silent says that it is ready. A node does so every
    /// ten seconds; here, whenever time has passed, so that no time passes in which nobody could tell the difference.
    pub fn heartbeat(&self) {
        let now = self.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        for name in self.names(true) {
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{name}");
            let _ = self.send("PATCH", &path, MERGE, &json!({"spec": {"renewTime": now}}));
            if self.readiness(&name).as_deref() != Some("True") {
                let ready = json!([{"type": "Ready", "status": "True", "reason": "Up", "message": "",
                    "lastTransitionTime": now, "lastHeartbeatTime": now}]);
                let path = format!("/api/v1/nodes/{name}/status");
                self.act("PATCH", &path, MERGE, &json!({"status": {"conditions": ready}}));
            }
        }
    }

    /// What a node's condition Ready says.
    fn readiness(&self, name: &str) -> Option<String> {
        let nodes = self.all("Node");
        let node = nodes.iter().find(|node| object::meta(node, "name") == name)?;
        let mut conditions = node["status"]["conditions"].as_array()?.iter();
        conditions.find(|condition| condition["type"] == "Ready")?["status"].as_str().map(str::to_owned)
    }

    /// Whether a node is dead and nobody has noticed yet. Only then is it of any use to look at Leases when they run out: all
    /// others were renewed meanwhile.
    pub fn has_unnoticed_death(&self) -> bool {
        self.names(false).iter().any(|name| self.readiness(name).is_some_and(|ready| ready != "Unknown"))
    }

    /// Whether a node was removed, with what ran there.
    pub fn has_removed_nodes(&self) -> bool {
        self.nodes.borrow().removed
    }

    /// Whether a node ever died.
    pub fn has_lost_nodes(&self) -> bool {
        self.nodes.borrow().lost
    }

    /// A node dies, returns, is removed, or a new one comes; in a calm cluster they only come.
    pub fn node_fate(&self, dice: &mut Dice) {
        let (alive, dead) = (self.names(true), self.names(false));
        match dice.below(10) {
            0..8 if self.is_calm => {}
            0..5 if alive.len() > 1 || dead.is_empty() => self.kill_node(dice.pick(&alive)),
            0..8 if !dead.is_empty() => self.end_absence(dice, true),
            _ if alive.len() + dead.len() < NODES_MAX => self.add_node(dice),
            _ => {}
        }
    }

    fn kill_node(&self, name: Option<&String>) {
        let Some(name) = name else { return };
        self.note(format!("{name} dies"));
        let mut nodes = self.nodes.borrow_mut();
        nodes.changes += 1;
        nodes.lost = true;
        nodes.alive.insert(name.clone(), false);
    }

    /// A dead node returns: with its processes or without, or under another name. Or its administrator removes it. Or (but not
    /// with `surely`) it stays silent.
    pub fn end_absence(&self, dice: &mut Dice, surely: bool) {
        let dead = self.names(false);
        let Some(name) = dice.pick(&dead) else { return };
        let fate = dice.below(if surely { 5 } else { 7 });
        if fate < 3 {
            self.note(format!("{name} returns"));
            {
                let mut nodes = self.nodes.borrow_mut();
                nodes.changes += 1;
                nodes.alive.insert(name.clone(), true);
            }
            if fate == 0 {
                // a reboot: its processes are gone
                let pods = self.all("Pod");
                for pod in pods.iter().filter(|pod| node_of(pod) == name && pod["status"]["phase"] == "Running") {
                    self.run_pod(pod, "Failed", 137);
                }
            }
            self.heartbeat();
        } else if fate < 5 {
            self.note(format!("{name} is removed"));
            {
                let mut nodes = self.nodes.borrow_mut();
                nodes.changes += 1;
                nodes.alive.remove(name);
                nodes.removed = true;
            }
            self.act("DELETE", &format!("/api/v1/nodes/{name}"), super::JSON, &Value::Null);
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{name}");
            self.act("DELETE", &path, super::JSON, &Value::Null);
            if fate == 4 || self.names(true).is_empty() {
                self.add_node(dice);
            }
        }
    }

    /// Before the end each dead node has its chance; at least one node runs.
    pub fn settle_nodes(&self, dice: &mut Dice) {
        for _ in 0..self.names(false).len() {
            self.end_absence(dice, false);
        }
        if self.names(true).is_empty() {
            self.add_node(dice);
        }
    }

    // ------------------------------------------------------------------------------------------------ pods

    /// A node does something to one of its pods: starts it, ends it well or badly, loses it, or reports twice.
    pub fn node_step(&self, dice: &mut Dice) {
        let pods = self.pods();
        let Some(pod) = dice.pick(&pods) else { return };
        let phase = object::text(&pod["status"], "phase");
        if object::is_terminating(pod) {
            return self.remove_pod(pod);
        }
        match (phase, dice.below(100)) {
            ("Pending" | "", _) => {
                if let Some((phase, code)) = self.mpi_pod_starts(pod) {
                    self.run_pod(pod, phase, code);
                }
            }
            // mpirun ends as its workers let it; they listen until somebody ends them
            ("Running", 0..60) if mpi::is_pod(pod) => {
                if let Some((phase, code)) = self.mpirun(pod) {
                    self.run_pod(pod, phase, code);
                }
            }
            ("Running", 0..60) => {
                if dice.chance(80) {
                    self.report(pod, &format!("0.{}", dice.below(10)));
                }
                self.run_pod(pod, "Succeeded", 0);
            }
            ("Running", 60..85) => self.run_pod(pod, "Failed", 1 + dice.below(3) as i64),
            ("Running", 85..92) => {
                self.note(format!("{}: {} is lost", node_of(pod), object::meta(pod, "name")));
                self.remove_pod(pod);
            }
            ("Running", _) => self.run_pod(pod, "Running", 0),
            _ => {}
        }
    }

    /// Nodes without whims: pods start, run for minutes to days (with dice, and some end badly; without, they end at once and
    /// well), and go when told. Returns whether there was anything to do.
    pub fn node_settle(&self, mut dice: Option<&mut Dice>) -> bool {
        let mut acted = false;
        let now = self.millis();
        for pod in self.pods() {
            let uid = object::uid(&pod).to_owned();
            match object::text(&pod["status"], "phase") {
                phase if object::is_terminating(&pod) => {
                    let finalizers = pod["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
                    if finalizers && matches!(phase, "Succeeded" | "Failed") {
                        continue;
                    }
                    if finalizers {
                        self.run_pod(&pod, "Failed", 137);
                    } else {
                        self.remove_pod(&pod);
                    }
                }
                "Pending" | "" => {
                    let Some((phase, code)) = self.mpi_pod_starts(&pod) else { continue };
                    self.run_pod(&pod, phase, code);
                    if let Some(dice) = dice.as_deref_mut() {
                        let minutes = [5, 60, 600, 4000][dice.below(4) as usize];
                        let length = (1 + dice.below(minutes) as i64) * MINUTE;
                        self.nodes.borrow_mut().ends.insert(uid, now + length);
                    }
                }
                "Running" if mpi::is_pod(&pod) => {
                    let end = self.nodes.borrow().ends.get(&uid).copied().unwrap_or(0);
                    let Some((phase, code)) = self.mpirun(&pod).filter(|_| dice.is_none() || end <= now) else {
                        continue;
                    };
                    self.run_pod(&pod, phase, code);
                    self.nodes.borrow_mut().ends.remove(&uid);
                }
                "Running" if !self.waits_for_others(&pod) => {
                    let end = self.nodes.borrow().ends.get(&uid).copied().unwrap_or(0);
                    if dice.is_some() && end > now {
                        continue;
                    }
                    if dice.as_deref_mut().is_some_and(|dice| dice.chance(15)) {
                        self.run_pod(&pod, "Failed", 1);
                    } else {
                        self.report(&pod, "0.5");
                        self.run_pod(&pod, "Succeeded", 0);
                    }
                    self.nodes.borrow_mut().ends.remove(&uid);
                }
                _ => continue,
            }
            acted = true;
        }
        acted
    }

    /// When the first running pod ends.
    pub fn next_end(&self) -> Option<i64> {
        let pods = self.pods();
        let running: BTreeSet<&str> =
            pods.iter().filter(|pod| pod["status"]["phase"] == "Running").map(|pod| object::uid(pod)).collect();
        // nobody waits for the end of a worker that listens
        let idle: BTreeSet<&str> = pods
            .iter()
            .filter(|pod| mpi::is_pod(pod) && self.mpirun(pod).is_none())
            .map(|pod| object::uid(pod))
            .collect();
        let nodes = self.nodes.borrow();
        nodes
            .ends
            .iter()
            .filter(|(uid, _)| running.contains(uid.as_str()) && !idle.contains(uid.as_str()))
            .map(|(_, end)| *end)
            .filter(|end| *end > self.millis())
            .min()
    }

    /// Whether training cannot get on, since members of the pod's gang are missing: as ranks wait in a barrier.
    fn waits_for_others(&self, pod: &Value) -> bool {
        let is_of_gang = |object: &Arc<Value>| {
            [keys::JOBSET_NAME, keys::RESTART_ATTEMPT]
                .iter()
                .all(|key| object::label(object, key) == object::label(pod, key))
        };
        let pods: Vec<Arc<Value>> = self.all("Pod").into_iter().filter(is_of_gang).collect();
        self.all("Job").iter().filter(|job| is_of_gang(job)).any(|job| {
            let is_there = |pod: &&Arc<Value>| {
                object::controller_of(pod).is_some_and(|owner| object::text(owner, "uid") == object::uid(job))
                    && matches!(object::text(&pod["status"], "phase"), "Running" | "Succeeded")
            };
            let there = i64::try_from(pods.iter().filter(is_there).count()).unwrap_or(i64::MAX);
            there < job["spec"]["parallelism"].as_i64().unwrap_or(1)
        })
    }
}
