//! The OptimizationJob controller: starts trials, waits for their metrics, keeps the best.
//!
//! It remembers nothing but its trials: each is a TrainJob, named by the search and its index, that carries the values it
//! was started with. After a crash the next look at the trials continues from them; a trial that is started twice collides
//! with itself.

use super::search::{Algorithm, Search};
use super::suggest::{Known, suggest};
use super::template::{self, parent_of, trial_name};
use super::trial::{Outcome, Trial};
use crate::conditions::{self, Condition};
use crate::controller::trainjob_gvk;
use crate::job::list;
use crate::names::{self, ConditionType};
use crate::plugins::Settings;
use api::field::aggregate;
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{
    Decision, Event, EventType, Next, OnError, Op, Primary, Reconciler, StatusWrite, Wakes, Watch, World, Write,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The component that an OptimizationJob's events name as their reporter.
const REPORTER: &str = "trainer-optimizationjob-controller";
/// Reason of the condition Created.
const REASON_CREATED: &str = "OptimizationJobCreated";
/// Reason of the condition Complete: as many trials have ended as were asked for (KEP-3562).
const REASON_MAX_TRIALS: &str = "MaxTrialsReached";
/// Reason of the condition Complete: every point of the grid has been tried.
const REASON_GRID: &str = "GridExhausted";
/// Reason of the condition Failed: there is no result.
const REASON_ALL_FAILED: &str = "AllTrialsFailed";
/// Reason of the condition Failed: the spec cannot be searched; only where no admission has looked at it.
const REASON_INVALID: &str = "InvalidSpec";
/// Reason of the event about a trial that the API refuses (KEP-3562).
const EVENT_CREATION_FAILED: &str = "TrainJobsCreationFailed";
/// Reason of the event about a trial's name that somebody else's TrainJob has.
const EVENT_NAME_TAKEN: &str = "TrialNameTaken";
/// Reason of the event about metrics that nobody takes.
const EVENT_NO_METRICS: &str = "MetricsUnavailable";

/// Reconciles OptimizationJobs.
#[derive(Clone, Copy, Debug)]
pub struct OptimizationController {
    /// Whether training code can report metrics: nothing can be searched otherwise (KEP-3562's hard dependency).
    reports: bool,
}

impl OptimizationController {
    /// Active where there is a status server for trials to report to.
    pub fn new(settings: &Settings) -> Self {
        Self { reports: settings.status_server.is_some() }
    }
}

/// An OptimizationJob and everything its reconciliation looks at.
#[derive(Clone, Debug)]
pub struct Observed {
    pub job: Arc<Value>,
    /// TrainJobs that it controls.
    pub trials: Vec<Arc<Value>>,
    /// Names of its trials that other TrainJobs have.
    pub taken: Vec<String>,
}

impl Reconciler for OptimizationController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "optimizationjob"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(optimizationjob_gvk())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: trainjob_gvk(), wakes: Wakes::Keys(wakes) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let job = world.get(&target.gvk, &target.key)?;
        let (uid, namespace) = (object::uid(&job), object::meta(&job, "namespace"));
        let is_ours = |object: &Value| {
            object::controller_of(object).is_some_and(|owner| object::text(owner, "uid") == uid)
                && object::meta(object, "namespace") == namespace
        };
        let gvk = trainjob_gvk();
        let owned = if uid.is_empty() { Vec::new() } else { world.owned_by(&gvk, uid) };
        let trials = owned.into_iter().filter(|object| is_ours(object)).collect();
        let count = job.pointer("/spec/numTrials").and_then(Value::as_u64).unwrap_or(1) as usize;
        let names = (0..count).map(|index| trial_name(object::meta(&job, "name"), index));
        let taken = names
            .filter(|name| world.get(&gvk, &Key::new(namespace, name)).is_some_and(|object| !is_ours(&object)))
            .collect();
        Some(Observed { job, trials, taken })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        let before = Status::of(&observed.job);
        if before.is_finished() {
            decision.report.note("finished: trials are left as they are");
            return decision;
        }
        if object::is_terminating(&observed.job) {
            decision.report.note("being deleted: no trial is started any more");
            return decision;
        }
        if !self.reports {
            decision.report.note("no status server: trials could not report their metric");
            let text = "no trial is started: training code cannot report metrics here, for the control plane runs \
                        without a status server; start it with --status-server ADDRESS:PORT";
            decision.events.push(warning(EVENT_NO_METRICS, text));
            return decision;
        }
        let mut status = before.clone();
        match Search::parse(&observed.job) {
            Ok(search) => go_on(&search, observed, &mut status, &mut decision, now),
            Err(errors) => {
                let text = format!("the spec cannot be searched: {}", aggregate(&errors));
                status.set(ConditionType::Failed, REASON_INVALID, text, now);
            }
        }
        decision.status = status.difference(&before, &observed.job);
        decision
    }
}

/// Starts the trials that there is room for, and says where the search stands.
fn go_on(search: &Search, observed: &Observed, status: &mut Status, decision: &mut Decision, now: Timestamp) {
    let parent = object::meta(&observed.job, "name");
    let read = observed.trials.iter().filter_map(|object| Trial::read(object, parent, search, now));
    let trials: BTreeMap<usize, Trial> = read.map(|trial| (trial.index, trial)).collect();
    let tally = Tally::of(search, &trials);
    status.result = tally.best.map(result);
    let budget = search.budget();
    if tally.succeeded + tally.failed == budget {
        let said = tally.sentence(search);
        match (tally.best, search.algorithm) {
            (None, _) => status.set(ConditionType::Failed, REASON_ALL_FAILED, said, now),
            (Some(_), Algorithm::Grid) if search.trials > budget => {
                status.set(ConditionType::Complete, REASON_GRID, said, now);
            }
            (Some(_), _) => status.set(ConditionType::Complete, REASON_MAX_TRIALS, said, now),
        }
    }
    status.set(ConditionType::Created, REASON_CREATED, tally.sentence(search), now);
    for name in &observed.taken {
        let text = format!("TrainJob {name} is there and not this search's: the trial waits until it is deleted");
        decision.events.push(warning(EVENT_NAME_TAKEN, &text));
    }
    let mut history: Vec<Known> =
        trials.values().map(|trial| Known { parameters: trial.parameters.clone(), value: trial.value() }).collect();
    let free = (0..budget).filter(|index| !trials.contains_key(index));
    let free = free.filter(|index| !observed.taken.contains(&trial_name(parent, *index)));
    for index in free.take(search.parallel.saturating_sub(tally.running)) {
        let values = suggest(search, index, &history);
        let object = template::trial(&observed.job, &search.parameters, index, &values);
        let text = format!("starting trial {}: {{error:950}}", trial_name(parent, index));
        decision.report.note(format!("trial {index} is started"));
        decision.writes.push(Write {
            op: Op::Create { object },
            on_error: OnError::EventThenContinue(warning(EVENT_CREATION_FAILED, &text)),
            on_success: None,
        });
        history.push(Known { parameters: values, value: None });
    }
    let awaited = trials.values().filter_map(|trial| match trial.outcome {
        Outcome::Awaited { until } => Some(until),
        Outcome::Running | Outcome::Succeeded(_) | Outcome::Failed(_) => None,
    });
    if let Some(until) = awaited.min() {
        decision.next = Next::After(now.duration_until(until));
    }
}

/// OptimizationJobs' group, version and kind.
pub fn optimizationjob_gvk() -> Gvk {
    Gvk::new(names::GROUP, names::VERSION, "OptimizationJob")
}

/// A TrainJob wakes the search that it is a trial of, and the one that waits for its name.
fn wakes(_world: &dyn World, object: &Value) -> Vec<Target> {
    let owner = object::controller_of(object).filter(|owner| object::text(owner, "kind") == "OptimizationJob");
    let owner = owner.map(|owner| object::text(owner, "name"));
    let namesake = parent_of(object::meta(object, "name")).map(|(parent, _)| parent);
    let mut names: Vec<&str> = owner.into_iter().chain(namesake).collect();
    names.dedup();
    let namespace = object::meta(object, "namespace");
    names.into_iter().map(|name| Target { gvk: optimizationjob_gvk(), key: Key::new(namespace, name) }).collect()
}

fn warning(reason: &str, message: &str) -> Event {
    Event {
        regarding: None,
        kind: EventType::Warning,
        reason: reason.to_owned(),
        message: message.to_owned(),
        reporter: REPORTER,
        action: names::EVENT_ACTION_RECONCILING,
    }
}

/// How many trials stand where.
struct Tally<'a> {
    running: usize,
    succeeded: usize,
    failed: usize,
    /// Of equal ones the earliest.
    best: Option<&'a Trial>,
    /// The last one that failed, and why.
    failure: Option<(&'a Trial, &'a str)>,
}

impl<'a> Tally<'a> {
    fn of(search: &Search, trials: &'a BTreeMap<usize, Trial>) -> Self {
        let mut tally = Self { running: 0, succeeded: 0, failed: 0, best: None, failure: None };
        let mut least = f64::INFINITY;
        for trial in trials.values() {
            match &trial.outcome {
                Outcome::Running | Outcome::Awaited { .. } => tally.running += 1,
                Outcome::Failed(why) => {
                    tally.failed += 1;
                    tally.failure = Some((trial, why));
                }
                Outcome::Succeeded(value) => {
                    tally.succeeded += 1;
                    if search.loss(*value) < least {
                        (least, tally.best) = (search.loss(*value), Some(trial));
                    }
                }
            }
        }
        tally
    }

    /// Where the search stands, for people: the API has no counters.
    fn sentence(&self, search: &Search) -> String {
        let Self { running, succeeded, failed, best, failure } = self;
        let mut said =
            format!("{succeeded} of {} trials succeeded, {failed} failed, {running} running", search.budget());
        if let Some((best, value)) = best.and_then(|best| Some((best, best.value()?))) {
            said.push_str(&format!("; best: {}, {} {value}", best.name, search.metric));
        }
        if let Some((trial, why)) = failure {
            let why = &why[..why.floor_char_boundary(500)];
            said.push_str(&format!("; last failure: {}, {why}", trial.name));
        }
        said
    }
}

fn result(best: &Trial) -> Value {
    json!({"trainJobName": best.name, "parameters": best.parameters})
}

/// An OptimizationJob's status.
#[derive(Clone, Debug, PartialEq)]
struct Status {
    conditions: Vec<Value>,
    result: Option<Value>,
}

impl Status {
    fn of(job: &Value) -> Self {
        let status = job.get("status").unwrap_or(&Value::Null);
        Self { conditions: list(status, "conditions").to_vec(), result: status.get("result").cloned() }
    }

    fn is_finished(&self) -> bool {
        let is_true = |kind| conditions::is_true(&self.conditions, kind);
        is_true(ConditionType::Complete) || is_true(ConditionType::Failed)
    }

    /// Sets a condition to True.
    fn set(&mut self, kind: ConditionType, reason: &str, message: String, now: Timestamp) {
        let condition = Condition { kind, status: true, reason: reason.to_owned(), message, since: None };
        conditions::set(&mut self.conditions, &condition, now);
    }

    /// The patch that turns `before` into this, where they differ; void if the object has changed meanwhile.
    fn difference(&self, before: &Self, object: &Value) -> Option<StatusWrite> {
        let mut changed = Map::new();
        if self.conditions != before.conditions {
            changed.insert("conditions".to_owned(), json!(self.conditions));
        }
        if self.result != before.result {
            changed.insert("result".to_owned(), json!(self.result));
        }
        if changed.is_empty() {
            return None;
        }
        let version = object::resource_version(object);
        let mut body = json!({"status": changed});
        if !version.is_empty() {
            body["metadata"] = json!({"resourceVersion": version});
        }
        Some(StatusWrite::Merge(body))
    }
}
