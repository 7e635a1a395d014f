//! Bugs planted on purpose: what the simulator must find, or it proves nothing.
//!
//! Each is a mistake that an author of a controller can make, laid over a real controller: a watch that is missing, a
//! wake-up that is lost, a precondition that is left out. `sim --bugs` runs seeds with each until one fails.

use crate::actors::{MakeLogic, scheduler_without_room};
use crate::cluster::Workload;
use api::object::{self, Target};
use reconcile::{Decision, Next, Op, StatusWrite};
use serde_json::Value;

/// A mistake in one controller.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    pub name: &'static str,
    /// The controller that has it; empty for all.
    pub actor: &'static str,
    pub mistake: Mistake,
}

#[derive(Clone, Copy, Debug)]
pub enum Mistake {
    /// Changes of this kind wake nobody.
    Deaf(&'static str),
    /// Deletions of this kind wake nobody.
    DeafToDeletion(&'static str),
    /// It never looks again by itself, whatever it decided.
    NoTimers,
    /// What failed is not tried again.
    NoRetries,
    /// A conflict is taken for success.
    ConflictsAreFine,
    /// What changes while an object rests after a look is not looked at once it has rested.
    LosesWakesOfResting,
    /// It is another controller.
    Is(MakeLogic),
    /// Events that go with a write without an answer are not sent.
    TellsNothingUnanswered,
    /// The server's time is the machine's, which is set by hours now and then.
    FollowsMachineClock,
    /// The decision is another one.
    Decides(fn(&mut Decision, &Target, u64)),
}

/// A seed that a bug has failed (`bug-seeds.txt`, which `sim --bugs` prints anew). It is tried first, as most bugs fail few seeds; where
/// the simulator has changed so that it fails no more, the others follow.
pub fn kept_seed(name: &str) -> Option<u64> {
    let mut lines = include_str!("../bug-seeds.txt").lines().filter_map(|line| line.split_once('\t'));
    lines.find(|(_, bug)| *bug == name).and_then(|(seed, _)| seed.parse().ok())
}

/// All of them. `sim --bugs` holds each to be found.
pub const BUGS: &[Bug] = &[
    bug("a TrainJob does not hear of its JobSet", "trainjob", Mistake::Deaf("JobSet")),
    bug("a JobSet does not hear of its Jobs", "jobset", Mistake::Deaf("Job")),
    bug("a Job does not hear of its pods", "job", Mistake::Deaf("Pod")),
    bug("a search does not hear of its trials", "optimizationjob", Mistake::Deaf("TrainJob")),
    bug("nobody hears of pods that want a place", "scheduler", Mistake::Deaf("Pod")),
    bug("nobody collects the children of a deleted TrainJob", "gc", Mistake::DeafToDeletion("TrainJob")),
    bug("a retry's backoff is never over", "trainjob", Mistake::NoTimers),
    bug("a Job's backoff between two pods is never over", "job", Mistake::NoTimers),
    bug("what failed is not tried again", "", Mistake::NoRetries),
    bug("a conflict is taken for success", "", Mistake::ConflictsAreFine),
    bug("a Job's pods have names of chance", "job", Mistake::Decides(names_of_chance)),
    bug("a pod's finalizer is never taken away", "job", Mistake::Decides(finalizers_stay)),
    bug("a TrainJob is complete and failed", "trainjob", Mistake::Decides(both_ends)),
    bug("a TrainJob's end is not told", "trainjob", Mistake::Decides(ends_are_not_told)),
    bug("nobody notices that a node is silent", "nodelifecycle", Mistake::NoTimers),
    bug("pods of a silent node are kept for ever", "podgc", Mistake::NoTimers),
    bug("pods of a node that is gone are kept", "podgc", Mistake::Deaf("Node")),
    bug("nobody hears of nodes that return", "scheduler", Mistake::Deaf("Node")),
    bug("a gang gets nodes for all but one", "scheduler", Mistake::Decides(all_but_one)),
    bug("all pods go to one node", "scheduler", Mistake::Decides(to_one_node)),
    bug("a gang is ended for another but for one pod", "scheduler", Mistake::Decides(ends_all_but_one)),
    bug("a namespace is never given free", "namespace", Mistake::Decides(namespaces_stay)),
    bug("an MPIJob does not hear of its launcher", "mpijob", Mistake::Deaf("Job")),
    bug("an MPIJob does not hear of its pods", "mpijob", Mistake::Deaf("Pod")),
    bug("an MPIJob's retry is never due", "mpijob", Mistake::NoTimers),
    bug("an MPIJob's first worker is never made", "mpijob", Mistake::Decides(no_first_worker)),
    bug("a wake during a rest is lost", "mpijob", Mistake::LosesWakesOfResting),
    bug("events are lost with an answer", "mpijob", Mistake::TellsNothingUnanswered),
    bug("no room is kept for a launcher that comes later", "scheduler", Mistake::Is(scheduler_without_room)),
    bug("a clock that is set makes nodes silent", "", Mistake::FollowsMachineClock),
    bug("a child lands in another namespace", "trainjob", Mistake::Decides(writes_elsewhere)),
];

const fn bug(name: &'static str, actor: &'static str, mistake: Mistake) -> Bug {
    Bug { name, actor, mistake }
}

impl Bug {
    /// The clusters in which it can be found.
    pub fn workload(&self) -> Workload {
        match (self.actor, self.mistake) {
            ("mpijob", _) | (_, Mistake::Is(_)) => Workload::MpiJobs,
            _ => Workload::TrainJobs,
        }
    }

    pub fn is_in(&self, actor: &str) -> bool {
        self.actor.is_empty() || self.actor == actor
    }

    /// What becomes of a decision.
    pub fn spoil(&self, decision: &mut Decision, target: &Target, chance: u64) {
        match self.mistake {
            Mistake::NoTimers => decision.next = Next::AwaitChange,
            Mistake::Decides(spoil) => spoil(decision, target, chance),
            Mistake::Deaf(_)
            | Mistake::DeafToDeletion(_)
            | Mistake::NoRetries
            | Mistake::ConflictsAreFine
            | Mistake::LosesWakesOfResting
            | Mistake::TellsNothingUnanswered
            | Mistake::FollowsMachineClock
            | Mistake::Is(_) => {}
        }
    }

    /// Whether a change wakes nobody.
    pub fn drowns(&self, kind: &str, is_gone: bool) -> bool {
        match self.mistake {
            Mistake::Deaf(deaf_to) => deaf_to == kind,
            Mistake::DeafToDeletion(deaf_to) => deaf_to == kind && is_gone,
            Mistake::NoTimers
            | Mistake::NoRetries
            | Mistake::ConflictsAreFine
            | Mistake::LosesWakesOfResting
            | Mistake::TellsNothingUnanswered
            | Mistake::FollowsMachineClock
            | Mistake::Is(_)
            | Mistake::Decides(_) => false,
        }
    }
}

fn no_first_worker(decision: &mut Decision, _: &Target, _: u64) {
    decision.writes.retain(|write| match &write.op {
        Op::Create { object } => !object::meta(object, "name").ends_with("-worker-0"),
        _ => true,
    });
}

fn names_of_chance(decision: &mut Decision, _: &Target, chance: u64) {
    for (at, write) in decision.writes.iter_mut().enumerate() {
        if let Op::Create { object } = &mut write.op
            && object["kind"] == "Pod"
        {
            let name = format!("{}-{:x}", object::meta(object, "name"), chance % 0xffff + at as u64);
            object["metadata"]["name"] = name.into();
        }
    }
}

fn status_of(decision: &mut Decision) -> Option<&mut Value> {
    match decision.status.as_mut()? {
        StatusWrite::Replace(object) | StatusWrite::Merge(object) => object.get_mut("status"),
    }
}

fn finalizers_stay(decision: &mut Decision, _: &Target, _: u64) {
    decision.writes.retain(|write| !format!("{:?}", write.op).contains("finalizers"));
}

fn namespaces_stay(decision: &mut Decision, _: &Target, _: u64) {
    decision.writes.retain(|write| !matches!(&write.op, Op::Subresource { subresource: "finalize", .. }));
}

fn both_ends(decision: &mut Decision, _: &Target, _: u64) {
    if let Some(conditions) = status_of(decision).and_then(|status| status["conditions"].as_array_mut())
        && let Some(complete) = conditions.iter().find(|condition| condition["type"] == "Complete")
    {
        let mut failed = complete.clone();
        failed["type"] = "Failed".into();
        conditions.push(failed);
    }
}

fn ends_are_not_told(decision: &mut Decision, _: &Target, _: u64) {
    let conditions = status_of(decision).and_then(|status| status["conditions"].as_array().cloned());
    if conditions.into_iter().flatten().any(|condition| condition["type"] == "Complete") {
        decision.status = None;
    }
}

fn bindings(decision: &Decision) -> usize {
    decision.writes.iter().filter(|write| matches!(write.op, Op::Subresource { subresource: "binding", .. })).count()
}

fn all_but_one(decision: &mut Decision, _: &Target, _: u64) {
    if bindings(decision) > 1 {
        decision.writes.remove(0);
    }
}

fn ends_all_but_one(decision: &mut Decision, _: &Target, _: u64) {
    let is_end = |write: &reconcile::Write| matches!(write.op, Op::Delete { .. });
    if decision.writes.iter().filter(|write| is_end(write)).count() > 1 {
        let at = decision.writes.iter().position(is_end).unwrap_or_default();
        decision.writes.remove(at);
    }
}

fn to_one_node(decision: &mut Decision, _: &Target, _: u64) {
    let mut first = Value::Null;
    for write in &mut decision.writes {
        if let Op::Subresource { subresource: "binding", object, .. } = &mut write.op {
            if first.is_null() {
                first = object["target"]["name"].clone();
            }
            object["target"]["name"] = first.clone();
        }
    }
}

fn writes_elsewhere(decision: &mut Decision, _: &Target, _: u64) {
    for write in &mut decision.writes {
        if let Op::Apply { object, .. } = &mut write.op {
            object["metadata"]["namespace"] = "elsewhere".into();
        }
    }
}
