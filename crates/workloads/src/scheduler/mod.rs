//! The gang scheduler of embedded mode: gives pending pods their nodes.
//!
//! One pass looks at all pods and nodes. The pods of a gang get their nodes in one pass or not at all ([`gang`]); gangs and
//! single pods are tried in the order of priority and age, and one that does not fit does not hold up those behind it. A pod
//! goes where its node selector, affinities, tolerations and resource requests let it; of several nodes to one that holds
//! members of its gang, then to the fullest. Whoever stays without a node is told what is missing, in upstream's words with
//! the amounts added.
//!
//! As long as no node has ever reported, nobody is told anything: whoever starts a control plane without a node plays its part.
//!
//! Not done: preemption, topology spread constraints, host ports. Which devices of a node a pod gets is the node's business.

mod affinity;
mod gang;
mod node;
mod request;
#[cfg(test)]
mod tests;

use affinity::{Namespaces, Neighbours};
use api::object::{self, Gvk, Key, Target};
use gang::{Facts, Seat, Unit};
use jiff::{SignedDuration, Timestamp};
use node::{Node, Placed, Reason};
use reconcile::{
    Decision, Event, EventType, Next, OnError, Op, PatchBody, Primary, Reconciler, Wakes, Watch, World, Write,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Schedulers whose pods this one takes care of: on one machine there is nobody else.
const SCHEDULERS: [&str; 4] = ["default-scheduler", "scheduler-plugins-scheduler", "volcano", "kai-scheduler"];
/// Reporter of the events.
const REPORTER: &str = "default-scheduler";
/// Seconds for which a gang may be incomplete before its pods say so: Jobs are made one after another.
const INCOMPLETE_SECS: i64 = 5;
/// Seconds after which a condition whose amounts alone have changed is written again.
const AMOUNTS_SECS: i64 = 30;

fn core(kind: &str) -> Gvk {
    Gvk::new("", "v1", kind)
}

/// Binds pending pods to nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduler;

impl Scheduler {
    /// The one key: a pass is about all pods. It names a node that cannot exist, since scheduling has no object of its own.
    pub fn key() -> Target {
        Target { gvk: core("Node"), key: Key::default() }
    }
}

fn all(_: &dyn World, _: &Value) -> Vec<Target> {
    vec![Scheduler::key()]
}

/// What a pass reads.
pub struct Observed {
    nodes: Vec<Arc<Value>>,
    /// Pods that are to get a node.
    waiting: Vec<Arc<Value>>,
    /// Pods that have one, also those that have ended.
    bound: Vec<Arc<Value>>,
    jobsets: BTreeMap<Key, Arc<Value>>,
    jobs: Vec<Arc<Value>>,
    pod_groups: BTreeMap<Key, i64>,
    namespaces: Namespaces,
    claims: BTreeSet<Key>,
}

/// Whether a pod is to get a node: pending, ours, not held back by a gate, not on its way out.
fn waits(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let scheduler = spec["schedulerName"].as_str().unwrap_or("default-scheduler");
    SCHEDULERS.contains(&scheduler)
        && node_of(pod).is_none()
        && !has_ended(pod)
        && !object::is_terminating(pod)
        && spec["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

impl Reconciler for Scheduler {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(core("Node"))
    }

    fn watches(&self) -> Vec<Watch> {
        let [of_plugins, of_volcano] = gang::pod_groups();
        let wake =
            [core("Pod"), core("Node"), core("PersistentVolumeClaim"), api::jobset::gvk(), of_plugins, of_volcano];
        let read = [Gvk::new("batch", "v1", "Job"), core("Namespace")];
        let wake = wake.into_iter().map(|gvk| Watch { gvk, wakes: Wakes::Keys(all) });
        wake.chain(read.into_iter().map(|gvk| Watch { gvk, wakes: Wakes::Nothing })).collect()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        if *target != Self::key() {
            return None;
        }
        let pods = world.list(&core("Pod"), None);
        let waiting: Vec<Arc<Value>> = pods.iter().filter(|pod| waits(pod)).cloned().collect();
        if waiting.is_empty() {
            return None;
        }
        let keyed = |gvk: &Gvk| world.list(gvk, None).into_iter().map(|object| (Key::of(&object), object));
        let min_member = |(key, group): (Key, Arc<Value>)| Some((key, group["spec"]["minMember"].as_i64()?));
        let is_of_jobset = |job: &Arc<Value>| object::label(job, api::jobset::keys::JOBSET_NAME).is_some();
        Some(Observed {
            nodes: world.list(&core("Node"), None),
            bound: pods.into_iter().filter(|pod| node_of(pod).is_some()).collect(),
            jobsets: keyed(&api::jobset::gvk()).collect(),
            jobs: world.list(&Gvk::new("batch", "v1", "Job"), None).into_iter().filter(is_of_jobset).collect(),
            pod_groups: gang::pod_groups().iter().flat_map(keyed).filter_map(min_member).collect(),
            namespaces: keyed(&core("Namespace")).map(|(key, namespace)| (key.name, namespace)).collect(),
            claims: keyed(&core("PersistentVolumeClaim")).map(|(key, _)| key).collect(),
            waiting,
        })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        if !observed.nodes.iter().any(|node| node::readiness(node).is_some()) {
            let mut decision = Decision::nothing();
            decision.report.note("no node has reported yet");
            return decision;
        }
        let facts = Facts { jobsets: &observed.jobsets, jobs: &observed.jobs, pod_groups: &observed.pod_groups };
        let mut pass = Pass::new(observed, facts.seats(&observed.bound));
        for unit in facts.units(&observed.waiting, &observed.bound) {
            pass.place(&unit, now);
        }
        let mut decision = pass.decision;
        // nodes first: telling why others got none can wait
        decision.writes.extend(pass.told);
        decision
    }
}

/// A pass in the making: nodes fill up as it goes.
struct Pass<'a> {
    observed: &'a Observed,
    nodes: Vec<Node>,
    placed: Vec<Placed>,
    by_name: BTreeMap<String, Arc<Value>>,
    /// What running gangs keep for their own.
    seats: Vec<Seat>,
    decision: Decision,
    /// Conditions of pods that stay without a node.
    told: Vec<Write>,
}

impl<'a> Pass<'a> {
    fn new(observed: &'a Observed, seats: Vec<Seat>) -> Self {
        let by_name = observed.nodes.iter().map(|node| (object::meta(node, "name").to_owned(), node.clone())).collect();
        let mut nodes: Vec<Node> = observed.nodes.iter().cloned().map(Node::new).collect();
        let indexes: BTreeMap<String, usize> =
            nodes.iter().enumerate().map(|(index, node)| (node.name().to_owned(), index)).collect();
        let mut placed = Vec::new();
        // what has ended holds nothing; what is being deleted does until it is gone
        for pod in observed.bound.iter().filter(|pod| !has_ended(pod)) {
            let name = node_of(pod).unwrap_or_default();
            if let Some(index) = indexes.get(name) {
                nodes[*index].take(pod);
            }
            placed.push(Placed::new(pod.clone(), name));
        }
        let mut pass =
            Self { observed, nodes, placed, by_name, seats, decision: Decision::nothing(), told: Vec::new() };
        for seat in pass.seats.clone() {
            if let Some(node) = pass.node_of(&seat) {
                node.take(&seat.pod);
            }
        }
        pass
    }

    fn node_of(&mut self, seat: &Seat) -> Option<&mut Node> {
        let name = node_of(&seat.pod)?;
        self.nodes.iter_mut().find(|node| node.name() == name)
    }

    /// Puts a pod where it goes. If a seat is kept for it, that is free for it alone; it stays kept where it does not go
    /// anywhere.
    fn seat(&mut self, pod: &Arc<Value>) -> Result<(), String> {
        let suited = self.seats.iter().enumerate().filter_map(|(at, seat)| Some((seat.suits(pod)?, at)));
        let Some(at) = suited.max_by_key(|(same_index, _)| *same_index).map(|(_, at)| at) else { return self.put(pod) };
        let seat = self.seats.remove(at);
        if let Some(node) = self.node_of(&seat) {
            node.give_back(&seat.pod);
        }
        let result = self.put(pod);
        if result.is_err() {
            if let Some(node) = self.node_of(&seat) {
                node.take(&seat.pod);
            }
            self.seats.push(seat);
        }
        result
    }

    /// Places the pods that a unit needs, all or none; then the others, each if it can be.
    fn place(&mut self, unit: &Unit, now: Timestamp) {
        let (needed, others) = unit.pods.split_at(unit.needed);
        if unit.missing > 0 {
            return self.wait_for_members(unit, now);
        }
        // one pod that does not fit changes nothing
        let before = if needed.len() > 1 { Some(self.nodes.clone()) } else { None };
        let count = self.placed.len();
        for (index, pod) in needed.iter().enumerate() {
            let Err(why) = self.seat(pod) else { continue };
            self.placed.truncate(count);
            if let Some(before) = before {
                self.nodes = before;
            }
            let about = match unit.is_gang() {
                true => {
                    let (name, needed) = (&unit.name, needed.len());
                    format!("{why} Gang {name} needs nodes for {needed} pods at once; {index} fit.")
                }
                false => why,
            };
            self.decision.report.note(format!("{}: {about}", object::meta(pod, "name")));
            for pod in &unit.pods {
                self.tell(pod, &about, now);
            }
            return;
        }
        for placed in &self.placed[count..] {
            self.decision.writes.push(binding(placed));
        }
        for pod in others {
            match self.put(pod) {
                Ok(()) => {
                    let placed = self.placed.last().expect("invariant: just placed");
                    self.decision.writes.push(binding(placed));
                }
                Err(why) => self.tell(pod, &why, now),
            }
        }
    }

    /// A gang is not complete: it says so once it has had the time to become so.
    fn wait_for_members(&mut self, unit: &Unit, now: Timestamp) {
        let (there, wanted) = (unit.pods.len(), unit.pods.len() + unit.missing);
        let text = format!("gang {} has {there} of {wanted} pods; it starts when all are there", unit.name);
        self.decision.report.note(text.clone());
        let due = api::time::later_secs(unit.created().unwrap_or(now), INCOMPLETE_SECS);
        if due > now {
            return self.look_again(due.duration_since(now));
        }
        for pod in &unit.pods {
            self.tell(pod, &text, now);
        }
    }

    /// Puts a pod on the best node, or says why there is none.
    fn put(&mut self, pod: &Arc<Value>) -> Result<(), String> {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let claims = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        for claim in claims {
            if !self.observed.claims.contains(&Key::new(object::meta(pod, "namespace"), claim)) {
                let count = self.nodes.len();
                return Err(format!("0/{count} nodes are available: persistentvolumeclaim {claim:?} not found."));
            }
        }
        let needs = request::of_pod(pod);
        let neighbours =
            Neighbours { placed: &self.placed, nodes: &self.by_name, namespaces: &self.observed.namespaces };
        let takes = |node: &Node| {
            node.has_room(&needs)
                && affinity::selects(pod, node)
                && node.keeps_out(pod).is_none()
                && neighbours.refuse(pod, node).is_none()
        };
        let fitting = self.nodes.iter().enumerate().filter(|(_, node)| takes(node));
        // nodes come by name, which decides between equals
        let best = fitting.min_by_key(|(_, node)| Self::cost(pod, &needs, node)).map(|(index, _)| index);
        let Some(best) = best else {
            let refusals: Vec<_> = self.nodes.iter().map(|node| refusal(pod, &needs, node, &neighbours)).collect();
            return Err(node::explain(&refusals));
        };
        self.nodes[best].take(pod);
        self.placed.push(Placed::new(pod.clone(), self.nodes[best].name()));
        Ok(())
    }

    /// Orders nodes, best first: preferred ones, those with pods of the same JobSet, then the fullest, devices before cpu.
    /// Pods that ask for nothing go where the fewest are.
    fn cost(pod: &Value, needs: &request::Resources, node: &Node) -> impl Ord + use<> {
        let members = if needs.is_empty() { 0 } else { node.members_like(pod) };
        let crowd = if needs.is_empty() { node.pods } else { 0 };
        let (mut devices, mut plain) = (Vec::new(), Vec::new());
        for resource in needs.keys() {
            let left = node.left_after(resource, needs);
            if resource.contains('/') { devices.push(left) } else { plain.push(left) }
        }
        let preference = affinity::preference(pod, node);
        (preference.saturating_neg(), std::cmp::Reverse(members), crowd, devices, plain)
    }

    /// Tells a pod why it has no node, where it was not told so already. Where only amounts have changed, which they do with
    /// each pod that comes or goes, the condition follows now and then, and no event is made of it.
    fn tell(&mut self, pod: &Value, why: &str, now: Timestamp) {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let held =
            conditions.find(|c| object::text(c, "type") == "PodScheduled" && object::text(c, "status") == "False");
        let said = held.map(|held| object::text(held, "message")).unwrap_or_default();
        if said == why {
            return;
        }
        let news = node::gist(said) != node::gist(why);
        if let Some(held) = held.filter(|_| !news) {
            let told: Timestamp = object::text(held, "lastProbeTime").parse().unwrap_or_default();
            let due = api::time::later_secs(told, AMOUNTS_SECS);
            if due > now {
                return self.look_again(due.duration_since(now));
            }
        }
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let since = held.map(|held| object::text(held, "lastTransitionTime")).filter(|since| !since.is_empty());
        let condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastProbeTime": at,
            "lastTransitionTime": since.unwrap_or(&at),
        });
        let op = Op::Patch {
            target: Target::of(pod),
            subresource: Some("status"),
            body: PatchBody::Strategic(json!({"status": {"conditions": [condition]}})),
        };
        let event = event(pod, EventType::Warning, "FailedScheduling", why.to_owned(), "Scheduling");
        self.told.push(Write { op, on_error: OnError::Continue, on_success: news.then_some(event) });
    }

    /// Asks for another pass, at the latest after this time.
    fn look_again(&mut self, after: SignedDuration) {
        self.decision.next = match self.decision.next {
            Next::After(sooner) if sooner < after => Next::After(sooner),
            Next::After(_) | Next::AwaitChange | Next::Backoff => Next::After(after),
        };
    }
}

/// Why a node does not take a pod.
fn refusal(pod: &Value, needs: &request::Resources, node: &Node, neighbours: &Neighbours<'_>) -> Vec<Reason> {
    if !affinity::selects(pod, node) {
        return vec![Reason::Other("node(s) didn't match Pod's node affinity/selector".to_owned())];
    }
    let reasons = node.refuses(pod, needs);
    if reasons.is_empty() { neighbours.refuse(pod, node).into_iter().collect() } else { reasons }
}

fn event(pod: &Value, kind: EventType, reason: &str, message: String, action: &'static str) -> Event {
    Event { regarding: Some(pod.clone()), kind, reason: reason.to_owned(), message, reporter: REPORTER, action }
}

/// The write that gives a pod its node.
fn binding(placed: &Placed) -> Write {
    let Placed { pod, node, guards: _ } = placed;
    let key = Key::of(pod);
    let object = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": object::uid(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let op = Op::Subresource { target: Target::of(pod), subresource: "binding", object };
    let text = format!("Successfully assigned {key} to {node}");
    let event = event(pod, EventType::Normal, "Scheduled", text, "Binding");
    Write { op, on_error: OnError::Continue, on_success: Some(event) }
}
