//! Reconcilers that look at all managed jobs at once: [`crate::job_turns`] and [`crate::pool_turns`].

use api::object::{Gvk, Key, Target};
use api::sky::{ManagedJob, managed_job_gvk};
use reconcile::wakes::Notes;
use reconcile::{Wakes, Watch};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::DerefMut;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a look goes on from the last one")]
use std::sync::{Mutex, PoisonError};

/// The order of a job among those that wait: priority, number, then whatever tells them apart.
pub type Rank = (Reverse<i32>, u32, Key);

/// The order of a job.
pub fn rank(key: &Key, job: &ManagedJob) -> Rank {
    (Reverse(job.spec.priority), job.spec.id, key.clone())
}

/// What has changed since the last look, and what was known then. Copies share both.
#[derive(Default)]
pub struct Looks<M> {
    notes: Arc<Notes>,
    #[expect(clippy::disallowed_types, reason = "a look goes on from the last one")]
    memory: Arc<Mutex<M>>,
}

impl<M> Clone for Looks<M> {
    fn clone(&self) -> Self {
        Self { notes: self.notes.clone(), memory: self.memory.clone() }
    }
}

impl<M> Looks<M> {
    /// The key of all looks, which names no job.
    pub fn key() -> Target {
        Target { gvk: managed_job_gvk(), key: Key::default() }
    }

    /// Notes each object of a kind that changes, and wakes the reconciler for a look.
    pub fn noted(&self, gvk: Gvk) -> Watch {
        Watch { gvk, wakes: Wakes::Noted(self.notes.clone(), vec![Self::key()]) }
    }

    /// The objects that have changed since the last call.
    pub fn changed(&self) -> BTreeSet<Target> {
        self.notes.take()
    }

    /// What is known from the last look.
    pub fn memory(&self) -> impl DerefMut<Target = M> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
