//! In which order replicated jobs start. Spec A.8.

use api::jobset::{DependencyStatus, JobSet, ReplicatedJob, ReplicatedJobStatus, StartupOrder};
use std::collections::BTreeMap;

/// What decides whether a replicated job may start.
pub(crate) struct Startup {
    /// Whether each starts only when the one before has.
    pub in_order: bool,
    /// Replicas and counts by name of the replicated job.
    known: BTreeMap<String, (i32, ReplicatedJobStatus)>,
}

impl Startup {
    pub(crate) fn of(jobset: &JobSet, counts: &[ReplicatedJobStatus]) -> Self {
        let counts = |name: &str| counts.iter().find(|status| status.name == name).cloned().unwrap_or_default();
        let replicated = jobset.spec.replicated_jobs.iter();
        Self {
            in_order: jobset.spec.startup_policy.as_ref().map(|policy| policy.startup_policy_order)
                == Some(StartupOrder::InOrder),
            known: replicated.map(|r| (r.name.clone(), (r.replicas, counts(&r.name)))).collect(),
        }
    }

    /// Whether everything that it depends on has come far enough.
    pub(crate) fn may_start(&self, replicated: &ReplicatedJob) -> bool {
        replicated.depends_on.iter().flatten().all(|dependency| {
            let Some((replicas, counts)) = self.known.get(&dependency.name) else { return false };
            match dependency.status {
                DependencyStatus::Complete => *replicas == counts.succeeded,
                DependencyStatus::Ready => *replicas == counts.ready + counts.failed + counts.succeeded,
            }
        })
    }

    /// Whether all its Jobs are ready or have ended.
    pub(crate) fn has_started(&self, replicated: &ReplicatedJob) -> bool {
        self.known
            .get(&replicated.name)
            .is_some_and(|(replicas, counts)| *replicas == counts.failed + counts.ready + counts.succeeded)
    }
}
