//! What should happen to a Job: one look, one decision.
//!
//! In order: is it over already; which pods are its own; what they tell (`outcomes`); has it come to an end by now (`ending`); if not, are
//! there too many or too few pods (`pods`); which pods are to be counted (`count`); and what does the status say after all that. Here
//! are the order, and what each step hands to the next.

mod count;
mod ending;
mod outcomes;
mod pods;

use super::backoff::{self, Record};
use super::build;
use super::indexes::Indexes;
use super::pods::Pod;
use super::policy::Verdict;
use super::spec::Spec;
use super::status::{Condition, SUSPENDED, Status};
use super::{Observed, controlled_by, job_gvk};
use api::object::{self, Key, Target};
use api::time::left;
use ending::Ending;
use jiff::{SignedDuration, Timestamp};
use objects::selector::Selector;
use reconcile::{AfterRefusal, Decision, Event, EventType, Next, Op, Propagation, Report, StatusWrite, Write};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const REPORTER: &str = "job-controller";
/// When the end of a Job with pods still active was noted, to the microsecond; gone with its last pod.
const ENDING_SINCE: &str = "trainyard.dev/job-ending-since";

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
        let ready = self.active().iter().filter(ready).count() as u32;
        // who waits for them to be ready is not told so of pods that go in a moment
        let most = if ending.is_some() { self.before.ready.unwrap_or(0) } else { ready };
        self.status.ready = Some(ready.min(most));
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

    fn conclude(self) -> Decision {
        let notes = [(backoff::ANNOTATION, self.record.render()), (ENDING_SINCE, self.ending_since.clone())];
        let stale = |(name, value): &(&str, Option<String>)| object::annotation(self.job, name) != value.as_deref();
        let stale = notes.iter().any(stale);
        // what others wrote about successes of an Indexed Job is put right with the next change, as upstream does
        let known = |status: &Status| match self.spec.indexed {
            true => Status { succeeded: self.before.succeeded, ..status.clone() },
            false => status.clone(),
        };
        let changed = |status: &Status| stale || known(status) != self.before;
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
