//! The machines of all clusters, and at which places some have become free.
//!
//! A place is `provider/region`. A machine frees its place when its object goes, which its provider has confirmed, and when it is stopped.

use super::capacity::Freed;
use crate::names::{object_name, place};
use api::object::{self, Key};
use api::sky::{Ground, ManagedJob, cluster_gvk, keys, machine_gvk, managed_job_gvk};
use jiff::Timestamp;
use reconcile::World;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A machine that exists or may exist.
#[derive(Debug)]
struct Held {
    uid: String,
    place: String,
    /// The object of its Cluster.
    cluster: String,
    /// The managed job that it is for.
    job: Option<Key>,
    made: Timestamp,
    /// Whether its provider has shown it, and it is not stopped.
    is_taken: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Machines(BTreeMap<Key, Held>);

impl Held {
    fn read(world: &dyn World, object: &Value) -> Self {
        let candidate = &object["spec"]["candidate"];
        let part = |name: &str| object::text(candidate, name);
        let cluster = object::label(object, keys::CLUSTER).unwrap_or_default();
        let namespace = object::meta(object, "namespace");
        let owner = world.head(&cluster_gvk(), &Key::new(namespace, cluster));
        let job = owner.and_then(|owner| Some(Key::new(namespace, object::label(&owner, keys::MANAGED_JOB)?)));
        let status = &object["status"];
        Self {
            uid: object::uid(object).to_owned(),
            place: place(&[part("provider"), part("region")]),
            cluster: cluster.to_owned(),
            job,
            made: object::meta(object, "creationTimestamp").parse().unwrap_or(Timestamp::MIN),
            is_taken: !object::text(status, "id").is_empty() && object::text(status, "phase") != "Stopped",
        }
    }

    /// Whether its attempt never ran because other machines were missing, or it was of no use.
    fn is_in_vain(&self, world: &dyn World) -> bool {
        let Some(object) = self.job.as_ref().and_then(|key| world.get(&managed_job_gvk(), key)) else { return false };
        let Ok(job) = ManagedJob::deserialize(&*object) else { return false };
        let latest = job.status.tasks.iter().filter_map(|task| task.attempts.last());
        let mut its = latest.filter(|attempt| object_name(&attempt.cluster) == self.cluster);
        its.any(|one| {
            one.ran_at.is_empty() && matches!(one.ground, Ground::None | Ground::NoCapacity | Ground::Refused)
        })
    }

    fn freed(self, world: &dyn World) -> Freed {
        let in_vain_since = self.is_in_vain(world).then_some(self.made);
        Freed { place: self.place, job: self.job, in_vain_since }
    }
}

impl Machines {
    /// The first look.
    pub fn start(&mut self, world: &dyn World) {
        world.each(&machine_gvk(), None, &mut |object| {
            self.0.insert(Key::of(object), Held::read(world, object));
        });
    }

    /// Reads a machine that has changed. Returns what is free now and was not before.
    pub fn note(&mut self, world: &dyn World, key: &Key) -> Option<Freed> {
        let now = world.get(&machine_gvk(), key).map(|object| Held::read(world, &object));
        let before = self.0.remove(key);
        let is_free = before.as_ref().is_some_and(|before| {
            before.is_taken && now.as_ref().is_none_or(|now| now.uid != before.uid || !now.is_taken)
        });
        if let Some(mut held) = now {
            let same = before.as_ref().filter(|before| before.uid == held.uid);
            // its Cluster may be out of view by now, or not in view yet
            held.job = held.job.or_else(|| same.and_then(|before| before.job.clone()));
            self.0.insert(key.clone(), held);
        }
        before.filter(|_| is_free).map(|before| before.freed(world))
    }
}
