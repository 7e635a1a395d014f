//! Machines that budgets count.

use super::{MachineTime, account};
use api::object::{self, Key, Target};
use api::sky::{JobRate, Machine, MachinePhase, cluster_gvk, keys, machine_gvk};
use jiff::Timestamp;
use reconcile::{Op, PatchBody, World, Write};
use serde_json::{Value, json};

/// A Machine, as far as budgets read it.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub uid: String,
    version: String,
    finalizers: Vec<String>,
    /// Names of the budgets that its annotation has.
    pub named: Vec<String>,
    /// The managed job that it is for, while that exists.
    pub job: Option<Key>,
    from: Timestamp,
    to: Option<Timestamp>,
    rate: JobRate,
    /// Whether its provider has shown it.
    is_shown: bool,
    is_terminating: bool,
    /// Whether its object is gone although its spend may not be settled.
    pub has_vanished: bool,
}

/// What is known about a Machine.
pub(super) enum Found {
    /// It counts, or may.
    Counted(Box<Counted>),
    /// It is of no managed job.
    Other,
    /// Its Cluster is not in view yet.
    Later,
}

impl Counted {
    pub fn read(world: &dyn World, object: &Value) -> Found {
        let Ok(machine) = serde_json::from_value::<Machine>(object.clone()) else { return Found::Other };
        let named = object::annotation(object, keys::BUDGETS).unwrap_or_default();
        let named: Vec<String> = named.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let finalizers = machine.metadata.finalizers.clone().unwrap_or_default();
        let cluster = object::label(object, keys::CLUSTER).unwrap_or_default();
        let namespace = object::meta(object, "namespace");
        let owner = world.head(&cluster_gvk(), &Key::new(namespace, cluster));
        let job = owner.as_ref().and_then(|owner| object::label(owner, keys::MANAGED_JOB));
        let is_counted = !named.is_empty() || finalizers.iter().any(|name| name == keys::BUDGET);
        match (job, is_counted, owner.is_none() && !cluster.is_empty()) {
            (None, false, true) => return Found::Later,
            (None, false, false) => return Found::Other,
            _ => {}
        }
        let candidate = &machine.spec.candidate;
        let status = &machine.status;
        let is_refused = matches!(status.phase, MachinePhase::NoCapacity | MachinePhase::Refused);
        Found::Counted(Box::new(Self {
            uid: object::uid(object).to_owned(),
            version: object::resource_version(object).to_owned(),
            finalizers,
            named,
            job: job.map(|job| Key::new(namespace, job)),
            from: machine.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0),
            to: status.ended_at.parse().ok().filter(|_| status.phase == MachinePhase::Lost),
            rate: JobRate {
                dollars: candidate.hourly_price,
                gpus: candidate.accelerators.as_ref().map_or(0.0, |gpus| gpus.count),
                machines: 1.0,
            },
            is_shown: !is_refused && (!status.id.is_empty() || status.phase != MachinePhase::Pending),
            is_terminating: object::is_terminating(object),
            has_vanished: false,
        }))
    }

    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    /// Whether nothing of it is left: the ledger has released it, or its object is gone.
    pub fn is_gone(&self) -> bool {
        self.has_vanished || self.is_terminating && !self.has(keys::LEDGER)
    }

    /// Whether it costs something now.
    pub fn runs(&self) -> bool {
        self.is_shown && self.to.is_none() && !self.is_gone()
    }

    pub fn line(&self) -> account::CountedMachine {
        let interval = MachineTime { from: self.from, to: self.to, rate: self.rate };
        account::CountedMachine {
            uid: self.uid.clone(),
            interval: self.is_shown.then_some(interval),
            is_gone: self.is_gone(),
        }
    }

    fn patch(&self, key: &Key, mut metadata: Value) -> Write {
        metadata["resourceVersion"] = self.version.as_str().into();
        let target = Target { gvk: machine_gvk(), key: key.clone() };
        Op::Patch { target, subresource: None, body: PatchBody::Merge(json!({"metadata": metadata})) }.into()
    }

    /// Records the budgets that count it, and adds the finalizer. `None`: that is done, or the machine is ending.
    pub fn claimed<'a>(&self, key: &Key, budgets: impl Iterator<Item = &'a str> + Clone) -> Option<Write> {
        let count = budgets.clone().count();
        let is_complete = count == self.named.len() && self.has(keys::BUDGET);
        if is_complete || count == 0 || self.is_terminating || self.has_vanished {
            return None;
        }
        let mut finalizers: Vec<&str> = self.finalizers.iter().map(String::as_str).collect();
        if !self.has(keys::BUDGET) {
            finalizers.push(keys::BUDGET);
        }
        let names = budgets.collect::<Vec<_>>().join(",");
        Some(self.patch(key, json!({"finalizers": finalizers, "annotations": {keys::BUDGETS: names}})))
    }

    /// Lets its object go, once its spend is settled.
    pub fn released(&self, key: &Key) -> Option<Write> {
        if self.has_vanished || !self.is_gone() || !self.has(keys::BUDGET) {
            return None;
        }
        let left: Vec<&String> = self.finalizers.iter().filter(|name| *name != keys::BUDGET).collect();
        Some(self.patch(key, json!({"finalizers": left})))
    }
}
