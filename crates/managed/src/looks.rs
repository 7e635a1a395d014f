//! Reconcilers that look at all managed jobs at once: [`crate::job_turns`] and [`crate::pool_turns`].

use api::object::{Gvk, Key, Target};
use api::sky::{ManagedJob, ManagedState, ManagedTask, managed_job_gvk};
use reconcile::wakes::Notes;
use reconcile::{Wakes, Watch};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::DerefMut;
use std::sync::Arc;
#[expect(clippy::disallowed_types, reason = "a look goes on from the last one")]
use std::sync::{Mutex, PoisonError};

/// The order of a job among those that wait: jobs that recover come first, then those of a higher priority, then those that were submitted
/// first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Whether none of its tasks recovers.
    is_new: bool,
    priority: Reverse<i32>,
    id: u32,
    pub key: Key,
}

/// The order of a job.
pub fn rank(key: &Key, job: &ManagedJob) -> Rank {
    // a task that found no capacity for its recovery is PENDING
    let recovers = |task: &ManagedTask| task.state == ManagedState::Recovering || !task.started_at.is_empty();
    let is_new = !job.in_play().any(|(_, task)| recovers(task));
    Rank { is_new, priority: Reverse(job.spec.priority), id: job.spec.id, key: key.clone() }
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
