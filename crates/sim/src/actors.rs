//! The controllers under test: reconcilers behind one type, each with its own view of the world and its own queue, woken by
//! what its watches tell and by nothing else.

use crate::bugs::{Bug, Mistake};
use crate::cluster::{Cluster, Workload};
use crate::dice::Dice;
use crate::invariants::{torn_gang, wrong_preemption};
use crate::view::{Change, View};
use api::object::{Gvk, Target};
use jiff::Timestamp;
use operator::controllers::{gangs, scopes};
use plan::controller::{RuntimeController, TrainJobController};
use plan::evidence::PodFailureController;
use plan::mpijob;
use plan::mpijob::controller::MpiJobController;
use plan::optimization::controller::OptimizationController;
use plan::plugins::{CaSource, Settings, StatusServer};
use plan::runtime::RuntimeKind;
use reconcile::execution::{Answer, Call, Execution, Outcome, Request, Step};
use reconcile::queue::Queue;
use reconcile::wakes::states;
use reconcile::{Decision, Event, Next, Primary, Reconciler, StatusWrite, Watch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use workloads::{
    aggregation, claims, disruption, gc, job, jobset, namespace, nodelifecycle, podgc, quota, scheduler, serviceaccount,
};

/// A reconciler without its types.
pub trait Logic {
    fn name(&self) -> &'static str;
    fn primary(&self) -> Primary;
    fn watches(&self) -> Vec<Watch>;
    fn decide(&self, view: &View, target: &Target, now: Timestamp) -> Option<Decision>;
    fn concerns(&self, object: &Value) -> bool;
    fn rests(&self) -> bool;
}

struct Erased<R>(R);

impl<R: Reconciler> Logic for Erased<R> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn primary(&self) -> Primary {
        self.0.primary()
    }

    fn watches(&self) -> Vec<Watch> {
        self.0.watches()
    }

    fn decide(&self, view: &View, target: &Target, now: Timestamp) -> Option<Decision> {
        self.0.observe(view, target).map(|observed| self.0.decide(&observed, now))
    }

    fn concerns(&self, object: &Value) -> bool {
        self.0.concerns(object)
    }

    fn rests(&self) -> bool {
        self.0.rests()
    }
}

/// Makes one that knows nothing yet.
pub type MakeLogic = fn() -> Box<dyn Logic>;

fn searches() -> Box<dyn Logic> {
    // searches want to know that there is a status server, and no more of it
    let status_server = StatusServer { base_url: "https://status".to_owned(), ca: CaSource::Inline(String::new()) };
    let searches = OptimizationController::new(&Settings { status_server: Some(status_server) });
    Box::new(Erased(searches))
}

fn mpijobs() -> Box<dyn Logic> {
    // as `trainyard up` has it: launchers wait in their pods
    let settings = mpijob::Settings { image: Some("trainyard".to_owned()), ..mpijob::Settings::default() };
    Box::new(Erased(MpiJobController::new(settings)))
}

/// A scheduler that places gangs of MPIJobs and keeps no room for a launcher that comes later.
pub fn scheduler_without_room() -> Box<dyn Logic> {
    let mut rules = gangs::rules();
    for rule in &mut rules {
        rule.read = |owner| {
            let needs = gangs::rules().first().and_then(|rule| (rule.read)(owner))?;
            let late = usize::from(needs.kept.as_ref().is_some_and(|kept| kept.is_late));
            let count = needs.count - late;
            Some(scheduler::Needs { count, least: needs.least.min(count), kept: None })
        };
    }
    Box::new(Erased(scheduler::Scheduler::with_rules(rules)))
}

/// All reconcilers that the operator can run, those of one name apart.
pub fn logic(world: Workload) -> Vec<MakeLogic> {
    let mut all = of_trainjobs();
    if world == Workload::MpiJobs {
        all.push(mpijobs);
    }
    all
}

fn of_trainjobs() -> Vec<MakeLogic> {
    vec![
        searches,
        || Box::new(Erased(TrainJobController::default())),
        || Box::new(Erased(PodFailureController)),
        || Box::new(Erased(jobset::JobSetController)),
        || Box::new(Erased(jobset::placement::PlacementController)),
        || Box::new(Erased(job::JobController)),
        || Box::new(Erased(job::PodFinalizerController)),
        || Box::new(Erased(scheduler::Scheduler::with_rules(gangs::rules()))),
        || Box::new(Erased(gc::GarbageCollector::new(scopes::is_namespaced))),
        || Box::new(Erased(podgc::PodGcController)),
        || Box::new(Erased(RuntimeController::new(RuntimeKind::TrainingRuntime))),
        || Box::new(Erased(RuntimeController::new(RuntimeKind::ClusterTrainingRuntime))),
        || Box::new(Erased(namespace::NamespaceController)),
        || Box::new(Erased(nodelifecycle::NodeLifecycleController::default())),
        || Box::new(Erased(claims::ClaimProtectionController)),
        || Box::new(Erased(quota::QuotaController)),
        || Box::new(Erased(disruption::DisruptionController)),
        || Box::new(Erased(aggregation::AggregationController)),
        || Box::new(Erased(serviceaccount::ServiceAccountController::new("made up"))),
    ]
}

/// One controller of a run.
pub struct Actor {
    make: MakeLogic,
    logic: Box<dyn Logic>,
    primary: Primary,
    watches: Vec<Watch>,
    view: View,
    queue: Queue,
    /// Until when objects rest, for a mistake to know.
    resting: BTreeMap<Target, Duration>,
    bug: Option<Bug>,
}

/// The events that go with a decision's status: once it is written, they are due.
struct Promised {
    status: Option<StatusWrite>,
    events: Vec<Event>,
    due: Vec<Event>,
}

impl Promised {
    fn of(decision: &Decision) -> Self {
        Self { status: decision.status.clone(), events: decision.events.clone(), due: Vec::new() }
    }

    /// The call was carried out. A status in place of the decision's promises nothing.
    fn applied(&mut self, call: &Call) {
        if let Some(StatusWrite::Replace(body) | StatusWrite::Merge(body)) = &self.status
            && call.subresource == Some("status")
            && call.body == *body
        {
            self.due.append(&mut self.events);
        }
    }
}

/// How a look at one object ended.
enum Look {
    Carried(Outcome, Next),
    /// The controller was killed on the way.
    Crashed,
}

impl Actor {
    pub fn new(make: MakeLogic, bug: Option<Bug>) -> Self {
        let mut logic = make();
        let bug = bug.filter(|bug| bug.is_in(logic.name()));
        let mut make = make;
        if let Some(Bug { mistake: Mistake::Is(another), .. }) = bug {
            make = another;
            logic = make();
        }
        let (primary, watches) = (logic.primary(), logic.watches());
        let resting = BTreeMap::new();
        Self { make, logic, primary, watches, view: View::default(), queue: Queue::default(), resting, bug }
    }

    /// Sees more of the world, and is woken by what it sees.
    pub fn catch_up(&mut self, cluster: &Cluster, dice: Option<&mut Dice>) {
        for Change { gvk, old, new, is_gone } in self.view.catch_up(cluster, dice) {
            if self.bug.is_some_and(|bug| bug.drowns(&gvk.kind, is_gone)) {
                continue;
            }
            for state in states(old.as_deref(), &new) {
                self.wake(&gvk, state, cluster.elapsed());
            }
        }
    }

    fn concerned(&self, gvk: &Gvk, object: &Value) -> Vec<Target> {
        let own = self.primary.woken_by(gvk, object).filter(|_| self.logic.concerns(object));
        let mut targets: Vec<Target> = own.into_iter().collect();
        for watch in &self.watches {
            targets.extend(watch.woken_by(&self.primary, &self.view, gvk, object));
        }
        targets
    }

    fn wake(&mut self, gvk: &Gvk, object: &Value, now: Duration) {
        let loses = self.bug.is_some_and(|bug| matches!(bug.mistake, Mistake::LosesWakesOfResting));
        for target in self.concerned(gvk, object) {
            if !(loses && self.resting.get(&target).is_some_and(|until| *until > now)) {
                self.queue.add(target, now);
            }
        }
    }

    /// A controller that starts anew has lists of all kinds, and no memory.
    fn restart(&mut self, cluster: &Cluster) {
        self.logic = (self.make)();
        self.watches = self.logic.watches();
        self.queue = Queue::default();
        self.resting.clear();
        self.view = View::default();
        self.catch_up(cluster, None);
    }

    /// Looks at the next object that is due and does what it decides; false where none is. With dice, anything may go wrong
    /// on the way.
    pub fn work(&mut self, cluster: &Cluster, mut dice: Option<&mut Dice>) -> bool {
        let Some((target, _)) = self.queue.pop(cluster.elapsed()) else { return false };
        match self.look(cluster, &target, dice.as_deref_mut()) {
            Look::Carried(mut outcome, next) => {
                match (self.bug.map(|bug| bug.mistake), &outcome) {
                    (Some(Mistake::NoRetries), Outcome::Failed(..))
                    | (Some(Mistake::ConflictsAreFine), Outcome::Again) => {
                        outcome = Outcome::Done;
                    }
                    _ => {}
                }
                if let Outcome::Failed(errors, _) = &outcome {
                    cluster.note(format!("  failed: {}", errors.join("; ")));
                }
                let now = cluster.elapsed();
                self.queue.settle(&target, &outcome, next, now);
                let mut rest = Duration::ZERO;
                if self.logic.rests() {
                    // a look that takes its time hears of what happens meanwhile, its own writes included
                    cluster.remember();
                    self.catch_up(cluster, dice);
                    rest = cluster.rest();
                    self.resting.insert(target.clone(), now.saturating_add(rest));
                }
                self.queue.done(&target, now, rest);
            }
            Look::Crashed => {
                cluster.note(format!("{} crashes", self.logic.name()));
                cluster.remember();
                self.restart(cluster);
            }
        }
        cluster.remember();
        true
    }

    fn look(&mut self, cluster: &Cluster, target: &Target, mut dice: Option<&mut Dice>) -> Look {
        let Some(mut decision) = self.logic.decide(&self.view, target, cluster.now()) else {
            return Look::Carried(Outcome::Done, Next::AwaitChange);
        };
        if let Some(bug) = self.bug {
            bug.spoil(&mut decision, target, cluster.chance());
        }
        if let Some(torn) = torn_gang(&decision, &self.view) {
            cluster.broken(torn);
        }
        if self.logic.name() == "scheduler"
            && let Some(wrong) = wrong_preemption(&decision, &self.view)
        {
            cluster.broken(wrong);
        }
        let next = decision.next;
        let mut promised = Promised::of(&decision);
        let mut execution = Execution::new(target.clone(), decision);
        let mut answer = None;
        loop {
            let is_refused = matches!(answer, Some(Answer::Refused(_)));
            answer = Some(match execution.step(answer) {
                Step::End(outcome) => {
                    if let Some(event) = promised.due.first() {
                        let (name, reason) = (self.logic.name(), &event.reason);
                        cluster.broken(format!("{name} wrote the status of {target}, and no event {reason} was sent"));
                    }
                    return Look::Carried(outcome, next);
                }
                Step::Ask(Request::Call(call)) => {
                    if cluster.kills.get() && dice.as_deref_mut().is_some_and(|dice| dice.chance(4)) {
                        return Look::Crashed;
                    }
                    let answer = cluster.call(self.logic.name(), target, &call, dice.as_deref_mut());
                    if cluster.applied.get() {
                        promised.applied(&call);
                    }
                    answer
                }
                Step::Ask(Request::Draw) => Answer::Drawn(std::array::from_fn(|_| cluster.chance() as u8)),
                Step::Ask(Request::Show(object)) => {
                    self.view.show(object);
                    Answer::Noted
                }
                Step::Ask(Request::Record(event)) => {
                    let is_lost = is_refused
                        && self.bug.is_some_and(|bug| matches!(bug.mistake, Mistake::TellsNothingUnanswered));
                    if !is_lost {
                        promised.due.retain(|due| *due != event);
                    }
                    Answer::Noted
                }
            });
        }
    }

    /// When it wants to look at something again, though nothing changes. Nobody waits for a Lease to run out whose node lives:
    /// it is renewed by then.
    pub fn next_at(&self, cluster: &Cluster) -> Option<Duration> {
        let is_idle = self.logic.name() == "nodelifecycle" && !cluster.has_unnoticed_death();
        self.queue.next_at().filter(|_| !is_idle)
    }

    /// It is started anew, as by an upgrade.
    pub fn restart_with(&mut self, cluster: &Cluster) {
        cluster.note(format!("{} is restarted", self.logic.name()));
        self.restart(cluster);
    }

    /// Looks at everything, woken or not: at rest nothing is left to do. What there is, something should have woken it for.
    ///
    /// # Errors
    /// The object that it had forgotten.
    pub fn look_at_everything(&mut self, cluster: &Cluster) -> Result<(), String> {
        let everything = self.view.everything();
        let targets: BTreeSet<Target> =
            everything.iter().flat_map(|(gvk, object)| self.concerned(gvk, object)).collect();
        for target in targets {
            let before = cluster.writes();
            self.look(cluster, &target, None);
            if cluster.writes() != before {
                return Err(format!("{} was not woken for {target}, and had something to do", self.logic.name()));
            }
        }
        Ok(())
    }
}
