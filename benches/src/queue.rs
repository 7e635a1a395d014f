//! What a change costs the scheduler, by how many gangs wait: a pod that fits comes, is given a node, and goes. One core, no
//! I/O.

use crate::{Figure, Setting};
use anyhow::{Context, Result};
use api::jobset::keys;
use api::object::{Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Op, Reconciler, Watch, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use workloads::scheduler::Scheduler;

const NODES: usize = 1000;

pub fn measure(setting: &Setting) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut first = None;
    for (name, waiting) in [
        ("a fitting pod behind 10 gangs", 10),
        ("a fitting pod behind 100 gangs", 100),
        ("a fitting pod behind 1,000 gangs", 1000),
        ("a fitting pod behind 10,000 gangs", 10_000),
    ] {
        if waiting > 1000 && setting.shrink > 1 {
            continue;
        }
        let took = passing_pods(waiting, if setting.shrink > 1 { 5 } else { 100 })?.as_secs_f64() * 1e6;
        let few = *first.get_or_insert(took);
        figures.push(Figure {
            name,
            unit: "µs",
            ours: took,
            peer: Some(few),
            against: "behind 10",
            more_is_better: false,
        });
    }
    Ok(figures)
}

/// Objects by kind, as a cache has them, and a reconciler that hears of their changes.
struct Shelf {
    kinds: BTreeMap<Gvk, BTreeMap<Key, Arc<Value>>>,
    scheduler: Scheduler,
    watches: Vec<Watch>,
}

impl World for Shelf {
    fn get(&self, gvk: &Gvk, key: &Key) -> Option<Arc<Value>> {
        self.kinds.get(gvk)?.get(key).cloned()
    }

    fn list(&self, gvk: &Gvk, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let objects = self.kinds.get(gvk).into_iter().flatten();
        objects.filter(|(key, _)| namespace.is_none_or(|n| n == key.namespace)).map(|(_, o)| o.clone()).collect()
    }

    fn owned_by(&self, _: &Gvk, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn kinds(&self) -> Vec<Gvk> {
        self.kinds.keys().cloned().collect()
    }
}

impl Shelf {
    fn tell(&self, object: &Value) {
        for watch in &self.watches {
            watch.woken_by(&self.scheduler.primary(), self, &Gvk::of(object), object);
        }
    }

    fn put(&mut self, object: Value) {
        let object = Arc::new(object);
        self.kinds.entry(Gvk::of(&object)).or_default().insert(Key::of(&object), object.clone());
        self.tell(&object);
    }

    fn remove(&mut self, target: &Target) {
        let gone = self.kinds.get_mut(&target.gvk).and_then(|objects| objects.remove(&target.key));
        gone.iter().for_each(|object| self.tell(object));
    }

    fn decide(&self, now: Timestamp) -> Decision {
        let observed = self.scheduler.observe(self, &Scheduler::key());
        observed.map(|observed| self.scheduler.decide(&observed, now)).unwrap_or_default()
    }

    /// Gives pods the nodes that were decided on; how many.
    fn bind(&mut self, decision: &Decision) -> usize {
        let bindings = decision.writes.iter().filter_map(|write| match &write.op {
            Op::Subresource { target, subresource: "binding", object } => Some((target, &object["target"]["name"])),
            _ => None,
        });
        let mut bound = 0;
        for (target, node) in bindings {
            let Some(pod) = self.get(&target.gvk, &target.key) else { continue };
            let mut pod = (*pod).clone();
            pod["spec"]["nodeName"] = node.clone();
            self.put(pod);
            bound += 1;
        }
        bound
    }
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "default-scheduler",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"}})
}

/// A JobSet with its Job and its two pods, which want a node each.
fn gang(shelf: &mut Shelf, name: &str) {
    let template = json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}});
    let labels = json!({keys::JOBSET_NAME: name, keys::JOBSET_UID: name, keys::RESTART_ATTEMPT: "0",
        keys::REPLICATED_JOB_NAME: "node", keys::JOB_KEY: name, keys::JOB_GLOBAL_INDEX: "0"});
    shelf.put(json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "groupName": "default", "template": template}]}}));
    shelf.put(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": format!("{name}-node-0"), "namespace": "default", "labels": labels},
        "spec": template["spec"]}));
    for index in 0..2 {
        let mut pod = pod(&format!("{name}-node-0-{index}"), "8");
        pod["metadata"]["labels"] = labels.clone();
        shelf.put(pod);
    }
}

/// How long one of so many pods keeps the scheduler busy, from its coming to its going.
fn passing_pods(waiting: usize, rounds: usize) -> Result<Duration> {
    let mut shelf =
        Shelf { kinds: BTreeMap::new(), watches: Scheduler::default().watches(), scheduler: Scheduler::default() };
    shelf.watches = shelf.scheduler.watches();
    let now: Timestamp = "2026-01-01T01:00:00Z".parse()?;
    for index in 0..NODES {
        let name = format!("node-{index:04}");
        shelf.put(node(&name, "8"));
        let mut there = pod(&format!("there-{index}"), "7");
        there["spec"]["nodeName"] = name.into();
        shelf.put(there);
    }
    for index in 0..waiting {
        gang(&mut shelf, &format!("gang-{index:05}"));
    }
    // it has read everything, and has nothing left to give
    while shelf.bind(&shelf.decide(now)) > 0 {}
    let started = Instant::now();
    for round in 0..rounds {
        let passing = pod(&format!("passing-{round}"), "500m");
        let target = Target::of(&passing);
        shelf.put(passing);
        let bound = shelf.bind(&shelf.decide(now));
        anyhow::ensure!(bound == 1, "{bound} pods are bound, not the one that fits, behind {waiting} gangs");
        shelf.decide(now);
        shelf.remove(&target);
        shelf.decide(now);
    }
    let rounds = u32::try_from(rounds).context("as many rounds as anybody waits for")?;
    Ok(started.elapsed().checked_div(rounds).unwrap_or_default())
}
