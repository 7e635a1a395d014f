//! What should happen to a Job: one look, one decision.
//!
//! In order: is it over already; which pods are its own; has it come to an end by now; if not, are there too many or too
//! few pods; which pods are to be counted; and what does the status say after all that.

use super::backoff::{self, Record};
use super::build::{self, Names};
use super::indexes::Indexes;
use super::pods::{Phase, Pod};
use super::policy::{self, Verdict};
use super::spec::Spec;
use super::status::{COMPLETE, Condition, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, Status};
use super::{Observed, controlled_by, job_gvk};
use api::object::{self, Key, Target};
use api::selector::Selector;
use api::time::left;
use jiff::{SignedDuration, Timestamp};
use reconcile::{AfterRefusal, Decision, Event, EventType, Next, OnError, Op, Propagation, Report, StatusWrite, Write};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const REPORTER: &str = "job-controller";
/// How many pods may be in `uncountedTerminatedPods`: 20 KB of uids.
const UNCOUNTED_MAX: usize = 500;
/// When the end of a Job with pods still active was noted, to the microsecond; gone with its last pod.
const ENDING_SINCE: &str = "trainyard.dev/job-ending-since";
/// How long pods that are active when their Job comes to its end may go on: those that end together with the one that
/// decided it end by themselves. (Upstream looks at pods a second after they change, to the same effect.)
const LAST_MOMENT: SignedDuration = SignedDuration::from_secs(1);
/// The same where a pod failure policy ends the Job: it asks not to go on, and somebody waits for the end.
const LAST_MOMENT_OF_POLICY: SignedDuration = SignedDuration::from_millis(250);
/// Reason of a Job that its pod failure policy has ended.
const POD_FAILURE_POLICY: &str = "PodFailurePolicy";
/// How many pods one decision creates or deletes.
const PODS_MAX: usize = 500;

/// How a Job comes to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ending {
    success: bool,
    reason: String,
    message: String,
}

impl Ending {
    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { success: true, reason: reason.to_owned(), message: message.into() }
    }

    fn from_condition(success: bool, condition: &Condition) -> Self {
        Self { success, reason: condition.reason.clone(), message: condition.message.clone() }
    }

    /// The condition that says so while pods are still ending.
    fn interim(&self) -> &'static str {
        if self.success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// The condition that says so when all is done.
    fn terminal(&self) -> &'static str {
        if self.success { COMPLETE } else { FAILED }
    }
}

fn event(kind: EventType, reason: &str, message: impl Into<String>) -> Event {
    Event { regarding: None, kind, reason: reason.to_owned(), message: message.into(), reporter: REPORTER, action: "" }
}

/// See the module's documentation.
pub fn decide(observed: &Observed, now: Timestamp) -> Decision {
    let Observed { job, pods, orphans, ownerless } = observed;
    let status = Status::read(job);
    let Some(spec) = Spec::read(job) else { return Decision::nothing() };
    if let Some(over) = status.finished() {
        return expire(job, &spec, over, now);
    }
    if spec.external {
        return Decision::nothing();
    }
    let claims = claims(job, pods, orphans);
    if !claims.is_empty() {
        return Decision { writes: claims, ..Decision::default() };
    }
    Sync::new(job, spec, status, pods, ownerless, now).decide()
}

/// A finished Job lives on for its time to live.
fn expire(job: &Value, spec: &Spec<'_>, over: &Condition, now: Timestamp) -> Decision {
    let mut decision = Decision::nothing();
    let (Some(ttl), Some(since), false) = (spec.ttl, over.since(), object::is_terminating(job)) else {
        return decision;
    };
    let left = left(SignedDuration::from_secs(ttl), since, now);
    if left.is_positive() {
        decision.next = Next::After(left);
    } else {
        decision.report.note(format!("finished {ttl} s ago, which is its time to live"));
        let delete = Op::Delete {
            target: Target { gvk: job_gvk(), key: Key::of(job) },
            propagation: Propagation::Foreground,
            uid: Some(object::uid(job).to_owned()),
            resource_version: Some(object::resource_version(job).to_owned()),
            grace_secs: None,
        };
        decision.writes.push(delete.into());
    }
    decision
}

/// Orphans to adopt and pods to give up; the next look sees the rest.
fn claims(job: &Value, pods: &[Pod], orphans: &[Pod]) -> Vec<Write> {
    let (false, Some(selector)) = (object::is_terminating(job), Selector::read(&job["spec"]["selector"])) else {
        return Vec::new();
    };
    let strays = pods.iter().filter(|pod| !selector.selects(&pod.object)).map(|pod| build::release(job, pod));
    let adopted = orphans.iter().filter(|pod| !pod.terminating).map(|pod| build::adopt(job, pod));
    adopted.chain(strays).map(Write::from).collect()
}

/// One decision in the making.
struct Sync<'a> {
    job: &'a Value,
    spec: Spec<'a>,
    pods: Vec<&'a Pod>,
    /// See [`Observed`].
    ownerless: &'a BTreeSet<String>,
    now: Timestamp,
    /// As read.
    before: Status,
    /// As it will be written.
    status: Status,
    record: Record,
    ending_since: Option<String>,
    terminating_job: bool,
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    /// What the pod failure policy says, or would say, of each pod, by uid. Empty where there is no policy.
    verdicts: BTreeMap<&'a str, Verdict>,
    succeeded_before: Indexes,
    succeeded: Indexes,
    /// Under `backoffLimitPerIndex` only.
    failed: Option<Indexes>,
    /// The last failed pod of each index that waits for a replacement: it stays, for it holds the index's count.
    awaiting: BTreeMap<u32, &'a Pod>,
    writes: Vec<Write>,
    events: Vec<Event>,
    waits: Vec<SignedDuration>,
    report: Report,
    /// Active pods that this decision deletes, by uid.
    deleted: BTreeSet<&'a str>,
    created: u32,
}

impl<'a> Sync<'a> {
    fn new(
        job: &'a Value,
        spec: Spec<'a>,
        before: Status,
        pods: &'a [Pod],
        ownerless: &'a BTreeSet<String>,
        now: Timestamp,
    ) -> Self {
        let mut pods: Vec<&Pod> = pods.iter().filter(|pod| controlled_by(&pod.object, object::uid(job))).collect();
        if spec.indexed {
            pods.sort_by_key(|pod| pod.index);
        }
        let mut status = before.clone();
        let uncounted = status.uncounted.get_or_insert_default().clone();
        let succeeded_before = before.completed(if spec.indexed { spec.size() } else { 0 });
        let mut sync = Self {
            record: Record::read(job),
            ending_since: object::annotation(job, ENDING_SINCE).map(str::to_owned),
            terminating_job: object::is_terminating(job),
            uncounted_succeeded: uncounted.succeeded.into_iter().collect(),
            uncounted_failed: uncounted.failed.into_iter().collect(),
            verdicts: BTreeMap::new(),
            succeeded: succeeded_before.clone(),
            succeeded_before,
            failed: None,
            awaiting: BTreeMap::new(),
            writes: Vec::new(),
            events: Vec::new(),
            waits: Vec::new(),
            report: Report::default(),
            deleted: BTreeSet::new(),
            created: 0,
            job,
            spec,
            pods,
            ownerless,
            now,
            before,
            status,
        };
        sync.judge();
        if sync.spec.indexed {
            sync.read_indexes();
        }
        sync
    }

    /// Pods that go along with their Job have not failed.
    fn failed(&self, pod: &Pod) -> bool {
        pod.failed(self.spec.only_replace_failed || self.terminating_job)
    }

    fn judge(&mut self) {
        let policy = self.spec.pod_failure_policy();
        if !policy.is_null() {
            self.verdicts = self.pods.iter().map(|pod| (pod.uid.as_str(), policy::judge(policy, pod))).collect();
        }
    }

    fn verdict(&self, pod: &Pod) -> Verdict {
        self.verdicts.get(pod.uid.as_str()).cloned().unwrap_or(Verdict::Count)
    }

    fn ignored(&self, pod: &Pod) -> bool {
        self.verdict(pod) == Verdict::Ignore
    }

    /// Its index, where the Job is Indexed and has such an index.
    fn index(&self, pod: &Pod) -> Option<u32> {
        pod.index.filter(|index| self.spec.indexed && *index < self.spec.size())
    }

    /// Whether the pod may enter the counters at all.
    fn countable(&self, pod: &Pod) -> bool {
        !self.spec.indexed || self.index(pod).is_some()
    }

    fn active(&self) -> Vec<&'a Pod> {
        self.pods.iter().copied().filter(|pod| pod.active()).collect()
    }

    /// Indexes that have succeeded or failed, with pods that are not in the status yet.
    fn read_indexes(&mut self) {
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
    fn newly_failed(&self) -> Vec<&'a Pod> {
        let new = |pod: &&Pod| {
            pod.tracked && self.countable(pod) && self.failed(pod) && !self.uncounted_failed.contains(&pod.uid)
        };
        self.pods.iter().copied().filter(new).collect()
    }

    /// Pods that have ended since the status was written.
    fn newly_succeeded(&self) -> Vec<&'a Pod> {
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
    fn successes(&self) -> u32 {
        if self.spec.indexed {
            self.succeeded.len()
        } else {
            self.before.succeeded + (self.uncounted_succeeded.len() + self.newly_succeeded().len()) as u32
        }
    }

    fn decide(mut self) -> Decision {
        if self.before.start_time.is_none() && !self.spec.suspend {
            self.status.start_time = Some(whole_seconds(self.now));
        }
        let mut ending = self.ending();
        if ending.is_none() && !self.terminating_job {
            self.take_in_failures();
            self.manage();
        }
        if let Some(ending) = &ending {
            self.end_pods(ending);
        }
        let active = self.active().len() as u32 - self.deleted.len() as u32;
        if ending.is_none() && active + self.created == 0 && self.complete() {
            ending = Some(Ending::success("CompletionsReached", "Reached expected number of succeeded pods"));
        }
        if ending.is_none() && !self.terminating_job {
            self.suspend_or_resume();
        }
        let pending = self.track(ending.as_ref());
        self.count();
        if self.spec.indexed {
            self.status.succeeded = self.succeeded.len();
            self.status.completed_indexes = self.succeeded.to_string();
            self.status.failed_indexes = self.failed.as_ref().map(Indexes::to_string);
        }
        self.status.active = active;
        let ready = |pod: &&&Pod| pod.ready && !self.deleted.contains(pod.uid.as_str());
        self.status.ready = Some(self.active().iter().filter(ready).count() as u32);
        let terminating = self.pods.iter().filter(|pod| pod.ending()).count() as u32 + self.deleted.len() as u32;
        self.status.terminating = Some(terminating);
        if let Some(ending) = ending {
            if active > 0 && self.before.is(ending.interim()).is_none() {
                self.ending_since = Some(self.now.to_string());
            }
            self.end(&ending, pending || active > 0 || terminating > 0);
        }
        self.conclude()
    }

    /// Whether, and how, the Job is at its end; not counting its completions, which need all pods to have ended.
    fn ending(&self) -> Option<Ending> {
        if let Some(met) = self.before.is(SUCCESS_CRITERIA_MET) {
            return Some(Ending::from_condition(true, met));
        }
        if let Some(target) = self.before.is(FAILURE_TARGET) {
            return Some(Ending::from_condition(false, target));
        }
        let told = self.pods.iter().filter(|pod| self.failed(pod)).find_map(|pod| match self.verdict(pod) {
            Verdict::FailJob(message) => Some(message),
            Verdict::Count | Verdict::Ignore | Verdict::FailIndex => None,
        });
        if let Some(message) = told {
            return Some(Ending::failure(POD_FAILURE_POLICY, message));
        }
        let counted = self.newly_failed().into_iter().filter(|pod| !self.ignored(pod)).count();
        let failures = u64::from(self.before.failed) + (self.uncounted_failed.len() + counted) as u64;
        if failures > u64::from(self.spec.backoff_limit) || self.restarted_too_often() {
            return Some(Ending::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if self.deadline_left().is_some_and(|left| !left.is_positive()) {
            return Some(Ending::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        if !self.spec.indexed {
            return None;
        }
        if let Some(failed) = &self.failed {
            if self.spec.max_failed_indexes.is_some_and(|max| failed.len() > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(Ending::failure("MaxFailedIndexesExceeded", message));
            }
            if !failed.is_empty() && failed.len() + self.succeeded.len() >= self.spec.size() {
                return Some(Ending::failure("FailedIndexes", "Job has failed indexes"));
            }
        }
        let met = policy::succeeds(self.spec.success_policy(), self.spec.size(), &self.succeeded)?;
        Some(Ending::success("SuccessPolicy", met))
    }

    /// Containers that are restarted in place spend the backoff limit too.
    fn restarted_too_often(&self) -> bool {
        let restarts: u64 = self.pods.iter().map(|pod| pod.restarts()).sum();
        self.spec.restarts_in_place && restarts >= u64::from(self.spec.backoff_limit.max(1))
    }

    /// `None` where no deadline runs.
    fn deadline_left(&self) -> Option<SignedDuration> {
        let deadline = self.spec.active_deadline.filter(|_| !self.spec.suspend)?;
        let resuming = self.before.is(SUSPENDED).is_some();
        let start = if resuming { self.now } else { self.status.start_time? };
        Some(left(SignedDuration::from_secs(deadline), start, self.now))
    }

    fn complete(&self) -> bool {
        match self.spec.completions {
            None => self.successes() > 0,
            Some(completions) => self.successes() >= completions,
        }
    }

    /// Failures and successes that this decision puts into the status lengthen or end the row that the backoff counts. (So
    /// many at once that some must wait for the next decision are the longest backoff already.)
    fn take_in_failures(&mut self) {
        if self.spec.backoff_limit_per_index.is_none() {
            self.record = self.record.after(&self.newly_succeeded(), &self.newly_failed());
        }
    }

    /// Deletes pods that are too many, or creates those that are missing.
    fn manage(&mut self) {
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
    fn end_pods(&mut self, ending: &Ending) {
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

    fn suspend_or_resume(&mut self) {
        let (reason, message) =
            if self.spec.suspend { ("JobSuspended", "Job suspended") } else { ("JobResumed", "Job resumed") };
        if !self.status.set_condition(Condition::new(SUSPENDED, self.spec.suspend, reason, message, self.now)) {
            return;
        }
        self.status.start_time = (!self.spec.suspend).then(|| whole_seconds(self.now));
        let reason = if self.spec.suspend { "Suspended" } else { "Resumed" };
        self.events.push(event(EventType::Normal, reason, message));
    }

    /// First and second step of counting: notes pods that have ended, lets go of those that were noted. Whether some are
    /// still to be noted or counted.
    fn track(&mut self, ending: Option<&Ending>) -> bool {
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
    fn count(&mut self) {
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

    /// Writes the interim condition, and the terminal one once nothing is left to end or to count.
    fn end(&mut self, ending: &Ending, unfinished: bool) {
        let Ending { success, reason, message } = ending;
        if self.status.is(ending.interim()).is_none() {
            self.report.note(format!("{}: {message}", ending.interim()));
            self.status.set_condition(Condition::new(ending.interim(), true, reason, message, self.now));
        }
        let uncounted = self.status.uncounted.as_ref();
        if unfinished || uncounted.is_some_and(|u| !u.succeeded.is_empty() || !u.failed.is_empty()) {
            return;
        }
        self.report.note(format!("{}: nothing is left to end or to count", ending.terminal()));
        self.status.set_condition(Condition::new(ending.terminal(), true, reason, message, self.now));
        self.ending_since = None;
        if *success {
            self.status.completion_time = Some(whole_seconds(self.now));
            if self.spec.completions.is_some_and(|completions| self.status.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                self.events.push(event(EventType::Warning, "TooManySucceededPods", message));
            }
            self.events.push(event(EventType::Normal, "Completed", "Job completed"));
        } else {
            self.events.push(event(EventType::Warning, reason, message.clone()));
        }
        self.waits.clear();
        self.waits.extend(self.spec.ttl.map(SignedDuration::from_secs));
    }

    fn conclude(self) -> Decision {
        let notes = [(backoff::ANNOTATION, self.record.render()), (ENDING_SINCE, self.ending_since.clone())];
        let stale = |(name, value): &(&str, Option<String>)| object::annotation(self.job, name) != value.as_deref();
        let stale = notes.iter().any(stale);
        let changed = |status: &Status| stale || *status != self.before;
        let write = |status: &Status| {
            let mut job = self.job.clone();
            job["status"] = status.write_over(&self.job["status"]);
            for (name, value) in notes.clone() {
                set_annotation(&mut job, name, value);
            }
            StatusWrite::Replace(job)
        };
        let after_refusal = match self.created {
            0 => AfterRefusal::Same,
            _ => AfterRefusal::Other(changed(&self.status).then(|| write(&self.status))),
        };
        let counted = Status { active: self.status.active + self.created, ..self.status.clone() };
        let status = changed(&counted).then(|| write(&counted));
        let next = self.waits.into_iter().min().map_or(Next::AwaitChange, Next::After);
        Decision { writes: self.writes, status, after_refusal, events: self.events, next, report: self.report }
    }
}

fn set_annotation(object: &mut Value, name: &str, value: Option<String>) {
    let metadata = &mut object["metadata"];
    match value {
        Some(value) => metadata["annotations"][name] = value.into(),
        None => {
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.remove(name);
                if annotations.is_empty() {
                    metadata.as_object_mut().map(|metadata| metadata.remove("annotations"));
                }
            }
        }
    }
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
