//! The pods of a group: what units those that wait form, and what seats it keeps for those that are made anew.

use super::gang::{self, Group, Seat};
use super::index::{Index, State};
use super::line::{Ending, Place, Shape, Unit};
use super::node;
use super::pod::Pod;
use api::jobset::keys;
use api::object::{self, Key};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group's pods.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// In the order of their ranks.
    pub waiting: BTreeSet<((i64, i64), Key)>,
    /// Those that have a node, or had one.
    pub bound: BTreeSet<Key>,
    /// How many of them have not ended, and how many have failed.
    pub live: usize,
    pub failed: usize,
    /// How many are bound, by replicated job.
    pub started: BTreeMap<String, usize>,
    /// Those bound that are being deleted; they and their replacements do not run at the same time.
    pub leaving: BTreeSet<Key>,
    /// How many of these have not ended yet.
    pub live_leaving: usize,
    /// The JobSets that its pods are of, or were.
    pub jobsets: BTreeSet<Key>,
    /// Their units, by the first pod.
    pub units: Vec<Key>,
    pub seats: Vec<Seat>,
}

impl Members {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.bound.is_empty()
    }

    /// All of them.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.waiting.iter().map(|(_, key)| key).chain(&self.bound)
    }

    /// The replicated jobs of which those that are made anew follow one by one. Of those whose pods are all being deleted, the
    /// next are a gang again, unless others of the gang run.
    fn started(&self, pods: &BTreeMap<Key, Pod>) -> Cow<'_, BTreeMap<String, usize>> {
        if self.staying() > 0 || self.leaving.is_empty() {
            return Cow::Borrowed(&self.started);
        }
        let stay = self.bound.difference(&self.leaving).filter_map(|key| pods.get(key));
        let mut started = BTreeMap::new();
        for pod in stay {
            *started.entry(pod.role.to_string()).or_default() += 1;
        }
        Cow::Owned(started)
    }

    /// How many run and are to go on running.
    fn staying(&self) -> usize {
        self.live - self.live_leaving
    }
}

impl Index {
    /// The seats that a group keeps.
    pub(super) fn seats(&self, members: &Members) -> Vec<Seat> {
        if members.staying() == 0 || members.failed == 0 {
            return Vec::new();
        }
        let bound: Vec<Arc<Value>> =
            members.bound.iter().filter_map(|key| self.pods.get(key)).map(Pod::object).collect();
        let bound: Vec<&Arc<Value>> = bound.iter().collect();
        let jobsets: BTreeSet<Key> = bound.iter().filter_map(|pod| gang::jobset_of(pod)).collect();
        let of_jobset = |jobset: &Key| {
            let plan = self.plans.get(jobset).map(|(_, plan)| plan);
            self.jobs.get(jobset).map(|jobs| gang::seats(&bound, plan, jobs)).unwrap_or_default()
        };
        jobsets.iter().flat_map(of_jobset).collect()
    }

    /// The seats of a unit's group.
    pub(super) fn seats_for(&self, unit: &Unit) -> &[Seat] {
        self.groups.get(&unit.group).map(|members| members.seats.as_slice()).unwrap_or_default()
    }

    fn expected(&self, jobset: &Key, attempt: i64) -> Option<BTreeMap<&str, usize>> {
        Some(self.plans.get(jobset)?.1.expected(self.jobs.get(jobset), attempt))
    }

    /// The units that a group's waiting pods form. Pods of an attempt that is over form none: they are about to be deleted.
    pub(super) fn units_of(&self, group: &Group, members: &Members) -> Vec<Unit> {
        let waiting = || members.waiting.iter().map(|(_, key)| key.clone());
        let alone = |key: Key| self.unit(group, "", vec![key], 1, members.staying() > 0);
        match group {
            Group::Alone(_) => waiting().map(alone).collect(),
            Group::Declared(_) if !members.started(&self.pods).is_empty() => waiting().map(alone).collect(),
            _ if members.waiting.is_empty() => Vec::new(),
            Group::Declared(key) => {
                let wanted = self.pod_groups.get(key).copied().unwrap_or_default();
                let mut wanted = usize::try_from(wanted).unwrap_or_default();
                if let Some(startable) = self.startable(members) {
                    wanted = wanted.min(startable);
                }
                vec![self.unit(group, &key.name, waiting().collect(), wanted, false)]
            }
            Group::Owned(at, owner) => match self.together(*at, owner, members, members.waiting.len()) {
                Some(wanted) => vec![self.unit(group, &owner.name, waiting().collect(), wanted, false)],
                None => waiting().map(alone).collect(),
            },
            Group::JobSet(key, attempt) => {
                if self.plans.get(key).is_some_and(|(_, plan)| plan.restarts > *attempt) {
                    return Vec::new();
                }
                let started = members.started(&self.pods);
                let follows = |key: &Key| {
                    let pod = self.pods.get(key);
                    pod.is_some_and(|pod| started.contains_key(&*pod.role))
                };
                let (following, first): (Vec<Key>, Vec<Key>) = match started.is_empty() {
                    true => (Vec::new(), waiting().collect()),
                    false => waiting().partition(follows),
                };
                let mut units: Vec<Unit> = following.into_iter().map(alone).collect();
                if first.is_empty() {
                    return units;
                }
                let expected = self.expected(key, *attempt).map_or(first.len(), |expected| {
                    let fresh = expected.iter().filter(|(name, _)| !started.contains_key(**name));
                    fresh.map(|(_, count)| count).sum()
                });
                let wanted = expected.max(first.len());
                units.push(self.unit(group, &key.name, first, wanted, false));
                units
            }
        }
    }

    /// The pods that have to end before a group's waiting ones start: those that are being deleted, of this group and of its JobSet's
    /// earlier attempts, so that no two runs of a job write to the same files. Pods of a node that does not report are not
    /// waited for: their objects may stay for as long as the node is away.
    pub(super) fn ending(&self, members: &Members) -> Ending {
        let mut ending = Ending::default();
        let others = members.jobsets.iter().flat_map(|jobset| self.groups_of(jobset));
        let others = others.filter_map(|group| self.groups.get(group));
        for key in others.chain([members]).flat_map(|members| &members.leaving) {
            let Some(pod) = self.pods.get(key) else { continue };
            let State::On(node) = &pod.state else { continue };
            if self.nodes.get(node).is_some_and(|node| node::is_up(&node.object)) {
                ending.pods += 1;
                ending.at = ending.at.max(object::meta(&pod.object(), "deletionTimestamp").parse().ok());
            }
        }
        ending
    }

    /// How many pods of the JobSet that these belong to may start by now; `None` where they belong to none.
    fn startable(&self, members: &Members) -> Option<usize> {
        let pod = self.pods.get(&members.waiting.first()?.1)?.object();
        let attempt = object::label(&pod, keys::RESTART_ATTEMPT)?.parse().ok()?;
        Some(self.expected(&gang::jobset_of(&pod)?, attempt)?.values().sum())
    }

    fn unit(&self, group: &Group, name: &str, pods: Vec<Key>, wanted: usize, replaces: bool) -> Unit {
        let (needed, missing) = (wanted.min(pods.len()), wanted.saturating_sub(pods.len()));
        let objects = || pods.iter().filter_map(|key| self.pods.get(key));
        let priority = objects().map(|pod| pod.priority).max();
        let created = objects().map(|pod| pod.created).min();
        let mut wants: BTreeMap<Arc<Shape>, u64> = BTreeMap::new();
        for pod in objects().take(needed).filter(|_| missing == 0) {
            *wants.entry(pod.shape.clone()).or_default() += 1;
        }
        let place = Place {
            is_new: !replaces,
            priority: Reverse(priority.unwrap_or_default()),
            created: created.flatten(),
            name: name.to_owned(),
            unit: pods.first().cloned().unwrap_or_default(),
        };
        Unit {
            group: group.clone(),
            name: name.to_owned(),
            needed,
            missing,
            ending: Ending::default(),
            place: Arc::new(place),
            wants: wants.into_iter().collect(),
            pods,
        }
    }
}
