//! The TrainJob controller: keeps a TrainJob's children as the pipeline builds them, and its status as they are.
//! Source: upstream's `pkg/controller/trainjob_controller.go`.

use crate::annotations::Options;
use crate::build;
use crate::conditions::{self, Condition};
use crate::job::Job;
use crate::lifecycle::{self, Built};
use crate::names::{
    self, ConditionType, EVENT_ACTION_RECONCILING, EVENT_REPORTER, EVENT_RESOURCES_CREATION_FAILED, Reason,
};
use crate::plugins::{BuildError, PLUGINS, Settings, View, jobset};
use crate::retry::{self, Stage};
use crate::runtime::{Runtime, RuntimeKind};
use crate::settled::is_settled;
use crate::snapshot;
use crate::state::Status;
use crate::warnings;
use api::object::{self, Gvk, Target};
use jiff::{SignedDuration, Timestamp};
use reconcile::{
    Decision, Event, EventType, Next, OnError, Op, PatchBody, Primary, Propagation, Reconciler, StatusWrite, Wakes,
    Watch, World, Write,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Where the error goes in an event's message, as far as it fits.
const API_ERROR: &str = "{error:950}";

/// Reconciles TrainJobs.
#[derive(Clone, Debug, Default)]
pub struct TrainJobController {
    settings: Settings,
    memory: snapshot::Memory,
}

impl TrainJobController {
    pub fn new(settings: Settings) -> Self {
        Self { settings, memory: snapshot::Memory::default() }
    }
}

/// A TrainJob and everything its reconciliation looks at.
#[derive(Clone, Debug)]
pub struct Observed {
    pub job: Arc<Value>,
    /// The runtime as it is now, of whichever kind the TrainJob refers to.
    pub runtime: Option<Arc<Value>>,
    /// Children of the TrainJob, and what plugins read.
    pub others: BTreeMap<Target, Arc<Value>>,
}

impl Reconciler for TrainJobController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "trainjob"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(trainjob_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        let mut watches: Vec<Watch> =
            child_kinds().into_iter().map(|gvk| Watch { gvk, wakes: Wakes::ControllerOwner }).collect();
        // Runtimes are frozen in snapshots: an edit wakes nobody.
        let runtimes = [RuntimeKind::TrainingRuntime, RuntimeKind::ClusterTrainingRuntime];
        watches.extend(runtimes.map(|kind| Watch { gvk: kind.gvk(), wakes: Wakes::Nothing }));
        watches
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let object = world.get(&target.gvk, &target.key)?;
        let job = Job::parse(&object);
        let mut others = BTreeMap::new();
        for gvk in child_kinds() {
            let children = if job.uid.is_empty() { Vec::new() } else { world.owned_by(&gvk, &job.uid) };
            others.extend(children.into_iter().map(|child| {
                let key = object::Key::of(&child);
                (Target { gvk: gvk.clone(), key }, child)
            }));
        }
        let mut reads = vec![snapshot::target(&job), jobset::target(&job)];
        reads.extend(PLUGINS.iter().flat_map(|plugin| plugin.reads(&job, &self.settings)));
        for read in reads {
            if let Entry::Vacant(place) = others.entry(read)
                && let Some(found) = world.get(&place.key().gvk, &place.key().key)
            {
                place.insert(found);
            }
        }
        let runtime = RuntimeKind::of(&job.runtime_ref).ok().and_then(|kind| {
            let target = kind.target(&job.namespace, &job.runtime_ref.name);
            world.get(&target.gvk, &target.key)
        });
        Some(Observed { job: object, runtime, others })
    }

    fn rests(&self) -> bool {
        true
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut job = Job::parse(&observed.job);
        let mut decision = Decision::nothing();
        if !job.is_ours() {
            decision.report.note("managed by another controller");
            return decision;
        }
        let before = Status::of(&job);
        let finished = before.is_finished();
        let mut status = before.clone();
        let kind = match RuntimeKind::of(&job.runtime_ref) {
            Ok(kind) => kind,
            Err(unsupported) => {
                // Q-05 (fixed): upstream crashes here and never gets to write the condition.
                if !finished {
                    decision.report.note(unsupported.to_string());
                    let mut failed = Condition::own(ConditionType::Failed, true, Reason::TrainingRuntimeNotSupported);
                    failed.message = unsupported.to_string();
                    conditions::set(&mut status.conditions, &failed, now);
                    decision.status = status.difference(&before, &observed.job);
                }
                return decision;
            }
        };
        if let Some(template) = self.template_metadata(&job, kind, observed) {
            job.options = Options::under(&observed.job, &template);
        }
        let live = observed.others.get(&jobset::target(&job)).map(Arc::as_ref);
        let stage = if finished || job.terminating { Stage::Attempt } else { retry::stage(&job, live, now) };
        status.suspension(&job, now);
        status.follow(live, stage == Stage::Attempt, now);
        match Deadline::of(&job, &status, now) {
            Deadline::None => {}
            Deadline::In(rest) => decision.next = Next::After(rest),
            Deadline::Passed => {
                let failed = Condition::own(ConditionType::Failed, true, Reason::DeadlineExceeded);
                conditions::set(&mut status.conditions, &failed, now);
                decision.report.note("the active deadline has passed");
            }
        }
        let mut built = Ok(Vec::new());
        if status.exceeded_deadline() {
            // Q-06 (fixed): as long as the JobSet is there it is deleted, not once only.
            decision.writes.extend(live.and_then(|live| delete(&job, live, Propagation::Background)));
        } else if finished {
            decision.report.note("finished: children are left as they are");
        } else if job.terminating {
            // Fixed (golden README, quirks 2 and 3): upstream keeps building what the garbage collector takes down.
            decision.report.note("being deleted: nothing is built any more");
        } else if let Some(note) = annotate(&job, live, &stage, &observed.job) {
            // The rest, the status included, is the next look's: this one's would be void.
            decision.writes.push(note);
            if let Stage::Failed(failure) = stage {
                decision.report.note("this attempt has failed and another follows");
                decision.next = Next::After(failure.wait());
            }
            return decision;
        } else {
            match stage {
                Stage::Attempt | Stage::Failed(_) => built = self.children(&job, kind, observed, &mut decision.events),
                Stage::Waiting(wait) => {
                    decision.report.note(format!("attempt {} starts later", job.options.attempt));
                    decision.next = sooner(decision.next, wait);
                }
                Stage::Over(failed) => decision.writes.extend(delete(&job, failed, Propagation::Foreground)),
                Stage::Leaving => decision.report.note("the JobSet of the attempt before is being deleted"),
            }
        }
        if finished && !job.terminating {
            expire(&mut decision, &job, &status, &observed.job, now);
        }
        let error = built.as_ref().err().map(ToString::to_string);
        let outcome = error.as_deref().map_or(Built::Fine, Built::Not);
        let mut refused = status.clone();
        lifecycle::update(&mut refused, &job, live, &stage, Built::Refused(API_ERROR), now);
        lifecycle::update(&mut status, &job, live, &stage, outcome, now);
        match built {
            Ok(writes) => {
                // The conditions follow the TrainJob whether or not its children do.
                let said = if job.options.lifecycle { &refused } else { &status };
                let said = said.difference(&before, &observed.job);
                decision.writes.extend(writes.into_iter().map(|write| saying(write, &job, said.as_ref())));
            }
            Err(error) => {
                decision.report.note(format!("children cannot be built: {error}"));
                decision.events.push(failure(API_ERROR).about_error(&error.to_string()));
                // Whatever is missing may be a thing that nobody tells us about (a runtime).
                decision.next = Next::Backoff;
            }
        }
        decision.status = status.difference(&before, &observed.job);
        decision
    }
}

impl TrainJobController {
    /// The metadata of the runtime's template, frozen or not yet; `None` where it has no annotations, or cannot be read, which
    /// is told when children are made.
    fn template_metadata(&self, job: &Job, kind: RuntimeKind, observed: &Observed) -> Option<Value> {
        let metadata = match observed.others.get(&snapshot::target(job)) {
            Some(snapshot) => snapshot::read(job, kind, snapshot, &self.memory).ok()?.metadata.clone(),
            None => observed.runtime.as_ref()?.pointer("/spec/template/metadata")?.clone(),
        };
        metadata.get("annotations").is_some().then_some(metadata)
    }

    /// The writes that make the children what they should be.
    fn children(
        &self,
        job: &Job,
        kind: RuntimeKind,
        observed: &Observed,
        events: &mut Vec<Event>,
    ) -> Result<Vec<Write>, BuildError> {
        let mut writes = Vec::new();
        let runtime = match (observed.others.get(&snapshot::target(job)), &observed.runtime) {
            (Some(snapshot), _) => snapshot::read(job, kind, snapshot, &self.memory)?,
            (None, Some(runtime)) => {
                let parsed = Runtime::parse(kind, runtime).map_err(|error| BuildError::new(error.to_string()))?;
                let prefix = "creating runtime snapshot: applying runtime snapshot ConfigMap: ";
                // Nothing may be built from a runtime that is not frozen.
                let on_error = OnError::EventThenStop(failure(&format!("{prefix}{API_ERROR}")));
                writes.push(Write { on_error, ..Write::from(snapshot::of(job, kind, runtime)?) });
                // told once: the runtime is frozen from then on
                events.extend(warnings::events(warnings::of(job, &parsed, &self.settings)));
                Arc::new(parsed)
            }
            (None, None) => return Err(missing(kind, &job.runtime_ref.name)),
        };
        let view = |target: &Target| observed.others.get(target).cloned();
        for op in build::children(job, &runtime, &self.settings, View(&view))? {
            if let Op::Apply { object, manager } = &op
                && let Some(live) = observed.others.get(&Target::of(object))
                && is_settled(live, object, manager)
            {
                continue;
            }
            let on_error = match &op {
                Op::Apply { object, .. } if object::text(object, "kind") == "JobSet" => {
                    OnError::EventThenContinue(failure(API_ERROR))
                }
                _ => OnError::EventThenStop(failure(API_ERROR)),
            };
            writes.push(Write { on_error, ..Write::from(op) });
        }
        Ok(writes)
    }
}

/// TrainJobs' group, version and kind.
pub fn trainjob_gvk() -> Gvk {
    Gvk::new(names::GROUP, names::VERSION, "TrainJob")
}

/// Kinds of objects that TrainJobs may own, each once.
fn child_kinds() -> Vec<Gvk> {
    let mut kinds = vec![Gvk::new("", "v1", "ConfigMap")];
    for gvk in PLUGINS.iter().flat_map(|plugin| plugin.watches()) {
        if !kinds.contains(&gvk) {
            kinds.push(gvk);
        }
    }
    kinds
}

fn missing(kind: RuntimeKind, name: &str) -> BuildError {
    let error = crate::admission::not_found(kind, name);
    BuildError::new(match kind {
        RuntimeKind::TrainingRuntime => format!("TrainingRuntime specified in TrainJob is not found: {error}"),
        RuntimeKind::ClusterTrainingRuntime => {
            format!("not found ClusterTrainingRuntime specified in TrainJob: {error}")
        }
    })
}

fn failure(error: &str) -> Event {
    Event {
        regarding: None,
        kind: EventType::Warning,
        reason: EVENT_RESOURCES_CREATION_FAILED.to_owned(),
        message: format!("TrainJob resources reconciliation failed: {error}"),
        reporter: EVENT_REPORTER,
        action: EVENT_ACTION_RECONCILING,
    }
}

/// Writes down on the TrainJob what cannot be read from its children once they are gone: a failed attempt, restarts.
fn annotate(job: &Job, live: Option<&Value>, stage: &Stage<'_>, object: &Value) -> Option<Write> {
    let mut notes: Map<String, Value> = Map::new();
    let mut event = None;
    if let Stage::Failed(failure) = stage {
        notes.extend(failure.notes().map(|(key, value)| (key.to_owned(), value)));
        event = Some(failure.event(job));
    }
    notes.extend(lifecycle::note(job, live).map(|(key, value)| (key.to_owned(), value)));
    if notes.is_empty() {
        return None;
    }
    // The resource version refuses a count that is based on an old one.
    let metadata = json!({"annotations": notes, "resourceVersion": object::resource_version(object)});
    let body = PatchBody::Merge(json!({"metadata": metadata}));
    let op = Op::Patch { target: Target::of(object), subresource: None, body };
    Some(Write { on_success: event, ..Write::from(op) })
}

/// A finished TrainJob lives on for its time to live, where it has one.
fn expire(decision: &mut Decision, job: &Job, status: &Status, object: &Value, now: Timestamp) {
    let (Some(ttl), Some(since)) = (job.options.ttl_secs, status.finished_at()) else { return };
    let left = api::time::left(SignedDuration::from_secs(ttl), since, now);
    if left.is_positive() {
        decision.next = sooner(decision.next, left);
        return;
    }
    decision.report.note(format!("finished {ttl} s ago, which is its time to live"));
    let delete = Op::Delete {
        target: Target::of(object),
        propagation: Propagation::Foreground,
        uid: Some(job.uid.clone()),
        // A user who changes the job at the last moment keeps it.
        resource_version: Some(object::resource_version(object).to_owned()),
        grace_secs: None,
    };
    decision.writes.push(delete.into());
}

fn sooner(next: Next, wait: SignedDuration) -> Next {
    match next {
        Next::AwaitChange => Next::After(wait),
        Next::After(other) => Next::After(other.min(wait)),
        Next::Backoff => Next::Backoff,
    }
}

/// Has the status written where this write is refused: that which says so, where the TrainJob asks for that.
fn saying(write: Write, job: &Job, status: Option<&StatusWrite>) -> Write {
    match (&write.on_error, status) {
        // Writes and status that follow come anyway.
        (OnError::EventThenContinue(_), Some(_)) if !job.options.lifecycle => write,
        (OnError::EventThenStop(event) | OnError::EventThenContinue(event), Some(status)) => {
            let on_error = OnError::EventThenStatus(event.clone(), status.clone());
            Write { on_error, ..write }
        }
        _ => write,
    }
}

/// Deletes a JobSet that is this TrainJob's and not on its way out already.
fn delete(job: &Job, live: &Value, propagation: Propagation) -> Option<Write> {
    let ours = object::controller_of(live).is_some_and(|owner| object::text(owner, "uid") == job.uid);
    (ours && !object::is_terminating(live)).then(|| {
        Write::from(Op::Delete {
            target: jobset::target(job),
            propagation,
            uid: Some(object::uid(live).to_owned()),
            resource_version: None,
            grace_secs: None,
        })
    })
}

/// When a TrainJob has been active for too long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deadline {
    /// There is none, or it does not count: suspended or finished.
    None,
    In(SignedDuration),
    Passed,
}

impl Deadline {
    fn of(job: &Job, status: &Status, now: Timestamp) -> Self {
        let Some(seconds) = job.active_deadline_secs else { return Self::None };
        if job.suspend || status.is_finished() {
            return Self::None;
        }
        let resumed = conditions::find(&status.conditions, ConditionType::Suspended.as_str())
            .filter(|c| c["status"] == "False")
            .and_then(|c| object::text(c, "lastTransitionTime").parse::<Timestamp>().ok());
        let Some(start) = resumed.or(job.created) else { return Self::None };
        // A span that leaves the calendar ends after the world does.
        let Ok(end) = start.checked_add(SignedDuration::from_secs(seconds)) else { return Self::None };
        if now > end { Self::Passed } else { Self::In(now.duration_until(end).max(SignedDuration::from_secs(1))) }
    }
}

/// Reconciles runtimes of one kind: takes away the finalizer that releases before 2.3 put on runtimes in use.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeController {
    kind: RuntimeKind,
}

impl RuntimeController {
    pub fn new(kind: RuntimeKind) -> Self {
        Self { kind }
    }
}

impl Reconciler for RuntimeController {
    type Observed = Arc<Value>;

    fn name(&self) -> &'static str {
        match self.kind {
            RuntimeKind::TrainingRuntime => "trainingruntime",
            RuntimeKind::ClusterTrainingRuntime => "clustertrainingruntime",
        }
    }

    fn primary(&self) -> Primary {
        Primary::Kind(self.kind.gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        Vec::new()
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Arc<Value>> {
        world.get(&target.gvk, &target.key)
    }

    fn decide(&self, runtime: &Arc<Value>, _now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let finalizers = runtime.pointer("/metadata/finalizers").and_then(Value::as_array);
        let kept: Vec<&Value> =
            finalizers.into_iter().flatten().filter(|f| *f != names::FINALIZER_RESOURCE_IN_USE).collect();
        if finalizers.is_some_and(|all| all.len() != kept.len()) {
            let body = json!({"metadata": {
                "finalizers": if kept.is_empty() { Value::Null } else { json!(kept) },
                "resourceVersion": object::resource_version(runtime),
            }});
            let target = Target { gvk: self.kind.gvk(), key: object::Key::of(runtime) };
            decision.writes.push(Op::Patch { target, subresource: None, body: PatchBody::Merge(body) }.into());
        }
        decision
    }
}
