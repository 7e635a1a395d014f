//! What the scheduler knows of the world, kept in step with it change by change.
//!
//! [`Index::take_in`] takes the new state of an object in; what it touches is noted and brought in order by [`Index::settle`]:
//! first the gangs whose members changed, then the nodes whose room did. An index of the same objects is the same, in whatever
//! order they came.

use super::affinity::{self, Namespaces};
use super::gang::{self, Group, Job, Plan, Seat};
use super::line::{Line, Place, Shape, Unit};
use super::members::Members;
use super::node::{self, Node};
use super::owned::{Needs, Rule};
use super::pod::Pod;
use super::preempt::Holders;
use super::reserve::{Heads, Reservation, runs_for_ever};
use super::{core, node_of, waits};
use api::object::{self, Gvk, Key, Target};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What has become of a pod, as far as nodes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is to get a node.
    Waits,
    /// It has one, or is about to.
    On(Arc<str>),
    /// It had one, and holds nothing any more.
    Ended,
    /// It never had one and gets none from here.
    Apart,
}

#[derive(Default)]
pub(super) struct Index {
    pub pods: BTreeMap<Key, Pod>,
    pub nodes: BTreeMap<Arc<str>, Node>,
    /// Pods that hold something of a node, whether it is there or not.
    pub on_node: BTreeMap<Arc<str>, BTreeSet<Key>>,
    pub groups: BTreeMap<Group, Members>,
    /// Groups that keep seats.
    seated: BTreeSet<Group>,
    /// Groups with pods of a JobSet.
    of_jobset: BTreeMap<Key, BTreeSet<Group>>,
    /// Pods that name a PodGroup, which need not be there.
    of_pod_group: BTreeMap<Key, BTreeSet<Key>>,
    pub pod_groups: BTreeMap<Key, i64>,
    /// What JobSets say, and the text of what hangs on.
    pub plans: BTreeMap<Key, (Box<str>, Plan)>,
    pub jobs: BTreeMap<Key, BTreeMap<String, Job>>,
    jobset_of_job: BTreeMap<Key, Key>,
    pub rules: Vec<Rule>,
    /// What owners by these rules say; `None` where their pods are no gang.
    pub owned: BTreeMap<(usize, Key), Option<Needs>>,
    pub namespaces: Namespaces,
    pub claims: BTreeSet<Key>,
    pub units: BTreeMap<Key, Unit>,
    /// All units, in order.
    pub queue: BTreeSet<Arc<Place>>,
    /// Those that have come, or have changed, and were not told anything yet.
    pub fresh: BTreeSet<Arc<Place>>,
    pub line: Line,
    pub heads: Heads,
    pub reservation: Option<Reservation>,
    /// Pods with a node that keep others away.
    pub guards: BTreeSet<Key>,
    /// The pods that hold nodes, as preemption looks for them.
    pub holders: Holders,
    /// Counts whatever may let somebody in, or out.
    pub moves: u64,
    pub touched_groups: BTreeSet<Group>,
    pub touched_nodes: BTreeSet<Arc<str>>,
}

impl Index {
    pub(super) fn with_rules(rules: &[Rule]) -> Self {
        Self { rules: rules.to_vec(), ..Self::default() }
    }

    /// Takes in the state of an object, or that there is none.
    pub(super) fn take_in(&mut self, target: &Target, object: Option<&Arc<Value>>) {
        let Target { gvk, key } = target;
        if let Some(at) = self.rules.iter().position(|rule| (rule.owner)() == *gvk) {
            return self.take_owner(at, key, object);
        }
        match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Pod") => self.take_pod(key, object),
            ("", "Node") => self.take_node(&key.name, object),
            ("", "Namespace") => {
                match object {
                    Some(object) => self.namespaces.insert(key.name.clone(), object.clone()),
                    None => self.namespaces.remove(&key.name),
                };
                self.moves += 1;
            }
            ("", "PersistentVolumeClaim") => {
                let is_news = if object.is_some() { self.claims.insert(key.clone()) } else { self.claims.remove(key) };
                self.moves += u64::from(is_news);
            }
            ("batch", "Job") => self.take_job(key, object),
            (api::jobset::GROUP, _) => self.take_jobset(key, object),
            _ => self.take_pod_group(key, object.and_then(|group| group["spec"]["minMember"].as_i64())),
        }
    }

    /// Whether a pod's old and new state differ in anything that counts here.
    fn is_same(old: &Pod, new: &Value) -> bool {
        let object = old.object();
        let (was, has) = (&object["metadata"], &new["metadata"]);
        let members = ["uid", "labels", "annotations", "creationTimestamp", "deletionTimestamp"];
        old.state == State::from(new)
            && object["status"]["phase"] == new["status"]["phase"]
            && members.iter().all(|member| was.get(member) == has.get(member))
            && object["spec"] == new["spec"]
    }

    fn take_pod(&mut self, key: &Key, object: Option<&Arc<Value>>) {
        if let (Some(pod), Some(object)) = (self.pods.get_mut(key), object)
            && Self::is_same(pod, object)
        {
            pod.keep(object);
            return;
        }
        self.remove_pod(key);
        let Some(object) = object else { return };
        if let Some(pod_group) = gang::pod_group_of(object) {
            self.of_pod_group.entry(pod_group).or_default().insert(key.clone());
        }
        let group = Group::of(object, &self.pod_groups, &self.rules);
        let shape = self.line.known(Shape::of(object));
        self.add_pod(key, object, Pod::new(object, State::from(&**object), shape, group));
    }

    /// Takes in what a pod was told; if more of it has changed, that is for a pass.
    pub(super) fn take_telling(&mut self, key: &Key, object: Option<&Arc<Value>>) {
        if let (Some(pod), Some(object)) = (self.pods.get_mut(key), object)
            && Self::is_same(pod, object)
        {
            pod.keep(object);
        }
    }

    /// `object` is the pod's.
    pub(super) fn add_pod(&mut self, key: &Key, object: &Value, pod: Pod) {
        let members = self.groups.entry(pod.group.clone()).or_default();
        match &pod.state {
            State::Waits => _ = members.waiting.insert((pod.rank, key.clone())),
            State::On(_) | State::Ended => {
                members.bound.insert(key.clone());
                members.live += usize::from(pod.state != State::Ended);
                if object::is_terminating(object) {
                    members.leaving.insert(key.clone());
                    members.live_leaving += usize::from(pod.state != State::Ended);
                }
                members.failed += usize::from(object["status"]["phase"] == "Failed");
                *members.started.entry(pod.role.to_string()).or_default() += 1;
            }
            State::Apart => {}
        }
        if let State::On(node) = &pod.state {
            self.on_node.entry(node.clone()).or_default().insert(key.clone());
            if affinity::keeps_away(object) {
                self.guards.insert(key.clone());
            }
            self.holders.come(key, &pod);
            if let Some(held) = self.nodes.get_mut(node) {
                held.take(object, &pod.shape.needs);
            }
            self.touched_nodes.insert(node.clone());
        }
        let is_leaving = members.leaving.contains(key);
        if let Some(jobset) = gang::jobset_of(object) {
            members.jobsets.insert(jobset.clone());
            self.of_jobset.entry(jobset.clone()).or_default().insert(pod.group.clone());
            if is_leaving {
                self.touch_jobset(&jobset);
            }
        }
        self.touched_groups.insert(pod.group.clone());
        self.pods.insert(key.clone(), pod);
    }

    pub(super) fn remove_pod(&mut self, key: &Key) -> Option<Pod> {
        let pod = self.pods.remove(key)?;
        let object = pod.object();
        let mut left = None;
        if let Some(members) = self.groups.get_mut(&pod.group) {
            match &pod.state {
                State::Waits => _ = members.waiting.remove(&(pod.rank, key.clone())),
                State::On(_) | State::Ended => {
                    members.bound.remove(key);
                    members.live -= usize::from(pod.state != State::Ended);
                    if members.leaving.remove(key) {
                        members.live_leaving -= usize::from(pod.state != State::Ended);
                        left = gang::jobset_of(&object);
                    }
                    members.failed -= usize::from(object["status"]["phase"] == "Failed");
                    let name = &*pod.role;
                    if let Some(count) = members.started.get_mut(name) {
                        *count -= 1;
                        if *count == 0 {
                            members.started.remove(name);
                        }
                    }
                }
                State::Apart => {}
            }
        }
        if let State::On(node) = &pod.state {
            if let Some(held) = self.nodes.get_mut(node) {
                held.give_back(&object, &pod.shape.needs);
            }
            remove_from(&mut self.on_node, node, key);
            self.guards.remove(key);
            self.holders.go(key, &pod);
            if runs_for_ever(&object) {
                self.heads.look_anew();
            }
            self.touched_nodes.insert(node.clone());
        }
        if let Some(pod_group) = gang::pod_group_of(&object) {
            remove_from(&mut self.of_pod_group, &pod_group, key);
        }
        left.iter().for_each(|jobset| self.touch_jobset(jobset));
        self.touched_groups.insert(pod.group.clone());
        Some(pod)
    }

    /// A pod is going to have a node.
    pub(super) fn assume(&mut self, key: &Key, node: &Arc<str>) {
        if let Some(pod) = self.remove_pod(key) {
            if let Some(pod_group) = gang::pod_group_of(&pod.object()) {
                self.of_pod_group.entry(pod_group).or_default().insert(key.clone());
            }
            let pod = pod.on(node);
            self.add_pod(key, &pod.object(), pod);
        }
    }

    fn take_node(&mut self, name: &str, object: Option<&Arc<Value>>) {
        if let (Some(node), Some(object)) = (self.nodes.get_mut(name), object)
            && node.is_like(object)
        {
            node.object = object.clone();
            return;
        }
        let name: Arc<str> = name.into();
        let was_up = self.nodes.remove(&name).is_some_and(|node| node::is_up(&node.object));
        if was_up != object.is_some_and(|node| node::is_up(node)) {
            self.touch_leaving(&name);
        }
        self.heads.look_anew();
        if self.is_kept(&name) {
            self.drop_reservation();
        }
        if let Some(object) = object {
            let mut node = Node::new(object.clone());
            for pod in self.on_node.get(&name).into_iter().flatten().filter_map(|key| self.pods.get(key)) {
                node.take(&pod.object(), &pod.shape.needs);
            }
            let seated = self.seated.iter().filter_map(|group| self.groups.get(group));
            let seats = seated.flat_map(|members| &members.seats);
            for seat in seats.filter(|seat| node_of(&seat.pod) == Some(&name)) {
                node.take(&seat.pod, &seat.needs);
            }
            self.nodes.insert(name.clone(), node);
        }
        self.touched_nodes.insert(name);
    }

    fn take_jobset(&mut self, key: &Key, object: Option<&Arc<Value>>) {
        // what it says hangs on little of it: reading it whole is dear
        let facts = |object: &Value| {
            let meta = &object["metadata"];
            let parts = [&object["spec"], &object["status"]["restarts"], &meta["deletionTimestamp"], &meta["uid"]];
            serde_json::to_string(&parts).unwrap_or_default().into_boxed_str()
        };
        let now = object.map(|object| facts(object));
        if now.as_ref() == self.plans.get(key).map(|(facts, _)| facts) {
            return;
        }
        match (now, object.and_then(|object| Plan::of(object))) {
            (Some(facts), Some(plan)) => _ = self.plans.insert(key.clone(), (facts, plan)),
            _ => _ = self.plans.remove(key),
        }
        self.touch_jobset(key);
    }

    /// The groups that have pods of a JobSet.
    pub(super) fn groups_of(&self, jobset: &Key) -> impl Iterator<Item = &Group> {
        self.of_jobset.get(jobset).into_iter().flatten()
    }

    /// The groups that wait for pods of this node to end.
    fn touch_leaving(&mut self, node: &Arc<str>) {
        let pods = self.on_node.get(node).into_iter().flatten().filter_map(|key| self.pods.get(key));
        let leaving: Vec<(Group, Option<Key>)> = pods
            .map(|pod| (pod, pod.object()))
            .filter(|(_, object)| object::is_terminating(object))
            .map(|(pod, object)| (pod.group.clone(), gang::jobset_of(&object)))
            .collect();
        for (group, jobset) in leaving {
            self.touched_groups.insert(group);
            jobset.iter().for_each(|jobset| self.touch_jobset(jobset));
        }
    }

    fn touch_jobset(&mut self, jobset: &Key) {
        self.touched_groups.extend(self.of_jobset.get(jobset).into_iter().flatten().cloned());
    }

    fn take_job(&mut self, key: &Key, object: Option<&Arc<Value>>) {
        let jobset = object.and_then(|object| gang::jobset_of(object));
        let now = object.filter(|_| jobset.is_some()).map(|object| Job::of(object));
        let before = self.jobset_of_job.get(key).cloned();
        if before == jobset && now.as_ref() == before.as_ref().and_then(|jobset| self.jobs.get(jobset)?.get(&key.name))
        {
            return;
        }
        if let Some(jobset) = before {
            self.jobset_of_job.remove(key);
            if let Some(jobs) = self.jobs.get_mut(&jobset) {
                jobs.remove(&key.name);
                if jobs.is_empty() {
                    self.jobs.remove(&jobset);
                }
            }
            self.touch_jobset(&jobset);
        }
        if let (Some(jobset), Some(job)) = (jobset, now) {
            self.jobset_of_job.insert(key.clone(), jobset.clone());
            self.jobs.entry(jobset.clone()).or_default().insert(key.name.clone(), job);
            self.touch_jobset(&jobset);
        }
    }

    fn take_pod_group(&mut self, key: &Key, members: Option<i64>) {
        if self.pod_groups.get(key).copied() == members {
            return;
        }
        match members {
            Some(members) => self.pod_groups.insert(key.clone(), members),
            None => self.pod_groups.remove(key),
        };
        for key in self.of_pod_group.get(key).cloned().unwrap_or_default() {
            if let Some(pod) = self.pods.get(&key).map(Pod::object) {
                let state = self.remove_pod(&key).map(|pod| pod.state);
                self.take_pod(&key, Some(&pod));
                // it may have a node that the world has not told of yet
                if let Some(State::On(node)) = state {
                    self.assume(&key, &node);
                }
            }
        }
    }

    /// Brings gangs and nodes in order after changes.
    pub(super) fn settle(&mut self) {
        while let Some(group) = self.touched_groups.pop_first() {
            self.regroup(&group);
        }
        while let Some(name) = self.touched_nodes.pop_first() {
            self.spare(&name);
            self.line.refresh(&name, self.nodes.get(&name));
            self.moves += 1;
        }
    }

    /// Forms the units and the seats of a group anew.
    fn regroup(&mut self, group: &Group) {
        self.keep_room(group);
        let Some(mut members) = self.groups.remove(group) else { return };
        for key in std::mem::take(&mut members.units) {
            if let Some(unit) = self.units.remove(&key) {
                self.line.leave(&unit);
                self.queue.remove(&unit.place);
                self.fresh.remove(&unit.place);
                self.heads.leave(&unit.place);
            }
        }
        self.seated.remove(group);
        for seat in std::mem::take(&mut members.seats) {
            self.keep_seat(&seat, Node::give_back);
        }
        if members.is_empty() {
            for jobset in &members.jobsets {
                remove_from(&mut self.of_jobset, jobset, group);
            }
            return;
        }
        members.seats = self.seats(&members);
        if members.seats.is_empty() {
            self.seated.remove(group)
        } else {
            self.seated.insert(group.clone())
        };
        for seat in &members.seats {
            self.keep_seat(seat, Node::take);
        }
        let ending = self.ending(&members);
        for mut unit in self.units_of(group, &members) {
            if unit.pods.iter().any(|key| self.pods.get(key).is_some_and(|pod| !pod.is_room)) {
                unit.ending = ending.clone();
            }
            let (key, place) = (unit.place.unit.clone(), unit.place.clone());
            if unit.is_ready() {
                let pods = &self.pods;
                let sample = |shape: &Shape| {
                    let pods = unit.pods.iter().filter_map(|key| pods.get(key));
                    let mut suited = pods.filter(|pod| *pod.shape == *shape).map(Pod::object);
                    suited.next().unwrap_or_default()
                };
                self.line.join(&unit, &self.nodes, sample);
                self.heads.eligible.insert(place.clone());
            }
            self.queue.insert(place.clone());
            self.fresh.insert(place);
            members.units.push(key.clone());
            self.units.insert(key, unit);
        }
        self.groups.insert(group.clone(), members);
    }

    fn keep_seat(&mut self, seat: &Seat, act: impl Fn(&mut Node, &Value, &super::request::Resources)) {
        let Some(name) = node_of(&seat.pod) else { return };
        if let Some(node) = self.nodes.get_mut(name) {
            act(node, &seat.pod, &seat.needs);
            self.touched_nodes.insert(name.into());
        }
    }

    /// Pods that have a node, and where.
    pub(super) fn placed(&self) -> impl Iterator<Item = (Arc<Value>, &str)> {
        let on_node = self.on_node.iter();
        let here = |key: &&Key| !self.holders.thought_away.contains(*key);
        on_node.flat_map(move |(node, keys)| {
            keys.iter().filter(here).filter_map(|key| Some((self.pods.get(key)?.object(), &**node)))
        })
    }

    /// Whether any node has ever reported.
    pub(super) fn has_reported(&self) -> bool {
        self.nodes.values().any(|node| node::readiness(&node.object).is_some())
    }
}

impl From<&Value> for State {
    fn from(pod: &Value) -> Self {
        match node_of(pod) {
            Some(_) if object::has_ended(pod) => Self::Ended,
            Some(node) => Self::On(node.into()),
            None if waits(pod) => Self::Waits,
            None => Self::Apart,
        }
    }
}

/// Takes one of a set away, and the set with the last.
fn remove_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, of: &K, key: &V) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(key);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

/// All kinds that an index is made of.
pub(super) fn kinds() -> Vec<Gvk> {
    let [of_plugins, of_volcano] = gang::pod_groups();
    vec![
        core("Node"),
        core("Pod"),
        core("PersistentVolumeClaim"),
        core("Namespace"),
        api::jobset::gvk(),
        Gvk::new("batch", "v1", "Job"),
        of_plugins,
        of_volcano,
    ]
}
