//! Counting, in three steps, so that each pod counts once whatever fails: a pod that has ended is noted in the status, then let go of (its
//! finalizer), then moved from the notes into the counters.

use super::super::build;
use super::super::pods::Phase;
use super::Sync;
use super::ending::Ending;
use std::collections::BTreeSet;

/// How many pods may be in `uncountedTerminatedPods`: 20 KB of uids.
const UNCOUNTED_MAX: usize = 500;

impl Sync<'_> {
    /// First and second step of counting: notes pods that have ended, lets go of those that were noted. Whether some are
    /// still to be noted or counted.
    pub fn track(&mut self, ending: Option<&Ending>) -> bool {
        let failing = ending.is_some_and(|ending| !ending.success);
        let mut pending = false;
        let mut uncounted = self.status.uncounted.take().unwrap_or_default();
        for &pod in &self.pods {
            if !pod.tracked || self.deleted.contains(pod.uid.as_str()) {
                continue;
            }
            let (failed, succeeded) = (self.failed(pod), pod.phase == Phase::Succeeded);
            let awaiting =
                self.index(pod).and_then(|index| self.awaiting.get(&index)).is_some_and(|p| p.uid == pod.uid);
            let due = self.terminating_job || ending.is_some() || succeeded || (failed && !awaiting);
            if !due {
                continue;
            }
            let counts_as_failed = failed || failing;
            let noted = self.uncounted_failed.contains(&pod.uid) || self.uncounted_succeeded.contains(&pod.uid);
            let known = noted
                || !self.countable(pod)
                || match self.index(pod) {
                    Some(index) if succeeded => self.succeeded_before.has(index),
                    _ => !succeeded && (!counts_as_failed || self.ignored(pod)),
                };
            if known {
                // a live pod of a Job that has succeeded is let go where it is deleted
                if !pod.active() || self.terminating_job {
                    self.writes.push(build::remove_finalizer(pod).into());
                }
                continue;
            }
            pending = true;
            if uncounted.succeeded.len() + uncounted.failed.len() >= UNCOUNTED_MAX {
                break;
            }
            match (succeeded, self.spec.indexed) {
                (true, true) => {} // the index itself is the note
                (true, false) => uncounted.succeeded.push(pod.uid.clone()),
                (false, _) => uncounted.failed.push(pod.uid.clone()),
            }
        }
        self.status.uncounted = Some(uncounted);
        pending
    }

    /// Third step of counting: what was noted and is seen without finalizer, or gone, moves into the counters.
    pub fn count(&mut self) {
        let tracked: BTreeSet<&str> = self.pods.iter().filter(|pod| pod.tracked).map(|pod| pod.uid.as_str()).collect();
        let Some(uncounted) = &mut self.status.uncounted else { return };
        let counted = |uids: &mut Vec<String>| {
            let before = uids.len();
            uids.retain(|uid| tracked.contains(uid.as_str()));
            (before - uids.len()) as u32
        };
        self.status.succeeded += counted(&mut uncounted.succeeded);
        self.status.failed += counted(&mut uncounted.failed);
    }
}
