//! Pods that are made because they are missing, and deleted because they are too many, or because their Job ends.

use super::super::backoff;
use super::super::build::{self, Names};
use super::super::pods::{Phase, Pod};
use super::ending::{Ending, POD_FAILURE_POLICY};
use super::{ENDING_SINCE, Sync, event};
use api::object;
use api::time::left;
use jiff::{SignedDuration, Timestamp};
use reconcile::{EventType, OnError, Op, Write};

/// How long pods that are active when their Job comes to its end may go on: those that end together with the one that
/// decided it end by themselves. (Upstream looks at pods a second after they change, to the same effect.)
const LAST_MOMENT: SignedDuration = SignedDuration::from_secs(1);
/// The same where a pod failure policy ends the Job: it asks not to go on, and somebody waits for the end.
const LAST_MOMENT_OF_POLICY: SignedDuration = SignedDuration::from_millis(250);
/// How long after the end of a pod no new one is made, where the ends of others may decide the Job together with it. Ends are
/// told in whole seconds: it is at least a quarter of one. (Upstream looks a second later.)
const ENDS_TOGETHER: SignedDuration = SignedDuration::from_millis(1250);
/// How many pods one decision creates or deletes.
const PODS_MAX: usize = 500;

impl<'a> Sync<'a> {
    /// Failures and successes that this decision puts into the status lengthen or end the row that the backoff counts. (So
    /// many at once that some must wait for the next decision are the longest backoff already.)
    pub fn take_in_failures(&mut self) {
        if self.spec.backoff_limit_per_index.is_none() {
            self.record = self.record.after(&self.newly_succeeded(), &self.newly_failed());
        }
    }

    /// Deletes pods that are too many, or creates those that are missing.
    pub fn manage(&mut self) {
        self.waits.extend(self.deadline_left());
        let active = self.active();
        if self.spec.suspend {
            self.report.note("suspended");
            return self.drop_pods(active);
        }
        let wanted = match self.spec.completions {
            None if self.successes() > 0 => active.len(),
            None => self.spec.parallelism as usize,
            Some(completions) => completions.saturating_sub(self.successes()).min(self.spec.parallelism) as usize,
        };
        let surplus = build::surplus(&self.spec, &active, active.len().saturating_sub(wanted));
        if !surplus.is_empty() {
            self.report.note(format!("{} active pods, {wanted} wanted", active.len()));
            return self.drop_pods(surplus.into_iter().take(PODS_MAX).collect());
        }
        let ending = self.pods.iter().filter(|pod| pod.ending()).count();
        let occupied = active.len() + if self.spec.only_replace_failed { ending } else { 0 };
        let missing = wanted.saturating_sub(occupied).min(PODS_MAX);
        if missing > 0 {
            self.report.note(format!("{} active pods, {wanted} wanted", active.len()));
            self.create_pods(missing);
        }
    }

    /// Deletes active pods that are not to be counted: the finalizer goes first.
    fn drop_pods(&mut self, pods: Vec<&'a Pod>) {
        for pod in pods {
            if pod.tracked {
                self.writes.push(build::remove_finalizer(pod).into());
            }
            self.delete_pod(pod);
        }
    }

    fn delete_pod(&mut self, pod: &'a Pod) {
        self.writes.push(Write {
            op: build::delete(pod),
            on_error: OnError::EventThenStop(event(EventType::Warning, "FailedDelete", "Error deleting: {error}")),
            on_success: Some(event(EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {}", pod.name))),
        });
        self.deleted.insert(&pod.uid);
    }

    /// One, then two, then four and so on, as long as none is refused.
    fn create_pods(&mut self, missing: usize) {
        if self.spec.backoff_limit_per_index.is_none() {
            let wait = self.record.remaining(self.now);
            if wait.is_positive() {
                self.report.note(format!("backing off for {} s", wait.as_secs()));
                return self.waits.push(wait);
            }
        }
        if let Some(wait) = self.others_may_end() {
            self.report.note("a pod has just ended, and others may end with it");
            return self.waits.push(wait);
        }
        let indexes = if self.spec.indexed { self.indexes_to_start(missing) } else { vec![None; missing] };
        let taken = self.pods.iter().map(|pod| pod.name.clone()).chain(self.ownerless.iter().cloned()).collect();
        let mut names = Names::new(self.job, self.before.succeeded + self.before.failed, taken);
        for index in indexes {
            let replaced = index.and_then(|index| self.awaiting.get(&index).copied());
            let object = build::pod(self.job, &self.spec, &mut names, index, replaced);
            let created = format!("Created pod: {}", object::meta(&object, "name"));
            self.writes.push(Write {
                op: Op::Create { object },
                on_error: OnError::EventThenSkip(
                    event(EventType::Warning, "FailedCreate", "Error creating: {error}"),
                    (self.created + 1).ilog2(),
                ),
                on_success: Some(event(EventType::Normal, "SuccessfulCreate", created)),
            });
            self.created += 1;
        }
    }

    /// What is left of the moment in which pods end together, where that may be the end of the Job: failures under limits for each
    /// index, which no backoff of the Job holds back, and successes under a success policy.
    fn others_may_end(&self) -> Option<SignedDuration> {
        let by_failures = self.spec.indexed && self.spec.backoff_limit_per_index.is_some();
        let by_successes = self.spec.indexed && !self.spec.success_policy().is_null();
        if !(by_failures || by_successes) || self.active().is_empty() {
            return None;
        }
        let decides = |pod: &&&Pod| match pod.phase {
            Phase::Failed => by_failures,
            Phase::Succeeded => by_successes,
            _ => false,
        };
        let last = self.pods.iter().filter(decides).map(|pod| pod.finished_at()).max()?;
        let left = left(ENDS_TOGETHER, last, self.now);
        // somebody else's clock may be ahead
        (left.is_positive() && left <= ENDS_TOGETHER).then_some(left)
    }

    /// The lowest indexes that have neither ended nor a pod, without those that must wait for their own backoff.
    fn indexes_to_start(&mut self, count: usize) -> Vec<Option<u32>> {
        let mut taken = self.succeeded.clone();
        let occupies = |pod: &&&Pod| pod.active() || (self.spec.only_replace_failed && pod.ending());
        taken.extend(self.pods.iter().filter(occupies).filter_map(|pod| pod.index));
        if let Some(failed) = &self.failed {
            taken.extend((0..self.spec.size()).filter(|index| failed.has(*index)));
        }
        let mut indexes = taken.missing(count, self.spec.size());
        let mut waits = Vec::new();
        indexes.retain(|index| {
            let Some(last) = self.awaiting.get(index) else { return true };
            let wait = backoff::remaining(last.index_attempts().saturating_add(1), last.finished_at(), self.now);
            waits.push(wait);
            !wait.is_positive()
        });
        self.waits.extend(waits.into_iter().filter(SignedDuration::is_positive));
        indexes.into_iter().map(Some).collect()
    }

    /// Deletes what is still active once the status says that the Job is ending. The pods of a failing one are counted
    /// first; those of one that has succeeded need not be.
    pub fn end_pods(&mut self, ending: &Ending) {
        if self.before.is(ending.interim()).is_none() {
            return;
        }
        let since = object::annotation(self.job, ENDING_SINCE).and_then(|text| text.parse().ok());
        let moment = if ending.reason == POD_FAILURE_POLICY { LAST_MOMENT_OF_POLICY } else { LAST_MOMENT };
        let left = since.map(|since: Timestamp| left(moment, since, self.now));
        if let Some(left) = left.filter(SignedDuration::is_positive) {
            return self.waits.push(left);
        }
        for pod in self.active() {
            if ending.success {
                self.drop_pods(vec![pod]);
            } else if !pod.tracked {
                self.delete_pod(pod);
            } else if self.uncounted_failed.contains(&pod.uid) || !self.countable(pod) || self.ignored(pod) {
                self.drop_pods(vec![pod]);
            }
        }
    }
}
