//! How the pods of a Job have ended, at which index, and what a failure policy makes of it.

use super::super::indexes::Indexes;
use super::super::pods::{Phase, Pod};
use super::super::policy::{self, Verdict};
use super::Sync;
use std::collections::{BTreeMap, BTreeSet};

impl<'a> Sync<'a> {
    /// Pods that go along with their Job have not failed.
    pub fn failed(&self, pod: &Pod) -> bool {
        pod.failed(self.spec.only_replace_failed || self.terminating_job)
    }

    pub fn judge(&mut self) {
        let policy = self.spec.pod_failure_policy();
        if !policy.is_null() {
            self.verdicts = self.pods.iter().map(|pod| (pod.uid.as_str(), policy::judge(policy, pod))).collect();
        }
    }

    pub fn verdict(&self, pod: &Pod) -> Verdict {
        self.verdicts.get(pod.uid.as_str()).cloned().unwrap_or(Verdict::Count)
    }

    pub fn ignored(&self, pod: &Pod) -> bool {
        self.verdict(pod) == Verdict::Ignore
    }

    /// Its index, where the Job is Indexed and has such an index.
    pub fn index(&self, pod: &Pod) -> Option<u32> {
        pod.index.filter(|index| self.spec.indexed && *index < self.spec.size())
    }

    /// Whether the pod may enter the counters at all.
    pub fn countable(&self, pod: &Pod) -> bool {
        !self.spec.indexed || self.index(pod).is_some()
    }

    pub fn active(&self) -> Vec<&'a Pod> {
        self.pods.iter().copied().filter(|pod| pod.active()).collect()
    }

    /// Indexes that have succeeded or failed, with pods that are not in the status yet.
    pub fn read_indexes(&mut self) {
        for pod in &self.pods {
            if let Some(index) = self.index(pod)
                && pod.tracked
                && pod.phase == Phase::Succeeded
                && !self.uncounted_failed.contains(&pod.uid)
            {
                self.succeeded.add(index);
            }
        }
        let Some(limit) = self.spec.backoff_limit_per_index else { return };
        let mut failed = Indexes::parse(self.before.failed_indexes.as_deref().unwrap_or_default(), self.spec.size());
        for pod in self.pods.iter().filter(|pod| pod.tracked && self.failed(pod)) {
            let spent = match self.verdict(pod) {
                Verdict::Ignore => false,
                Verdict::FailIndex => true,
                Verdict::Count | Verdict::FailJob(_) => pod.index_failures >= limit,
            };
            failed.extend(self.index(pod).filter(|_| spent));
        }
        let active: BTreeSet<u32> = self.active().iter().filter_map(|pod| pod.index).collect();
        let rank = |pod: &Pod| (pod.index_attempts(), pod.finished_at());
        let mut awaiting = BTreeMap::new();
        for &pod in self.pods.iter().filter(|pod| pod.tracked && self.failed(pod)) {
            let Some(index) = self.index(pod) else { continue };
            if self.succeeded.has(index) || failed.has(index) || active.contains(&index) {
                continue;
            }
            let last = awaiting.entry(index).or_insert(pod);
            if rank(pod) >= rank(last) {
                *last = pod;
            }
        }
        self.awaiting = awaiting;
        self.failed = Some(failed);
    }

    /// Pods that have ended since the status was written.
    pub fn newly_failed(&self) -> Vec<&'a Pod> {
        let new = |pod: &&Pod| {
            pod.tracked && self.countable(pod) && self.failed(pod) && !self.uncounted_failed.contains(&pod.uid)
        };
        self.pods.iter().copied().filter(new).collect()
    }

    /// Pods that have ended since the status was written.
    pub fn newly_succeeded(&self) -> Vec<&'a Pod> {
        let new = |pod: &&Pod| {
            let known = match self.index(pod) {
                Some(index) => self.succeeded_before.has(index),
                None => self.spec.indexed || self.uncounted_succeeded.contains(&pod.uid),
            };
            pod.tracked && pod.phase == Phase::Succeeded && !known && !self.uncounted_failed.contains(&pod.uid)
        };
        self.pods.iter().copied().filter(new).collect()
    }

    /// All that have succeeded, counted or not.
    pub fn successes(&self) -> u32 {
        if self.spec.indexed {
            self.succeeded.len()
        } else {
            self.before.succeeded + (self.uncounted_succeeded.len() + self.newly_succeeded().len()) as u32
        }
    }
}
