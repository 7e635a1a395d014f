//! Bugs planted on purpose: what the simulator must find, or it proves nothing.
//!
//! Each is a mistake that somebody who writes a controller can make, laid over a real controller: a watch that is missing, a
//! wake-up that is lost, a precondition that is left out. `sim --bugs` runs seeds with each until one fails.

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
    /// The decision is another one.
    Decides(fn(&mut Decision, &Target, u64)),
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
    bug("a child lands in another namespace", "trainjob", Mistake::Decides(writes_elsewhere)),
];

const fn bug(name: &'static str, actor: &'static str, mistake: Mistake) -> Bug {
    Bug { name, actor, mistake }
}

impl Bug {
    pub fn is_in(&self, actor: &str) -> bool {
        self.actor.is_empty() || self.actor == actor
    }

    /// What becomes of a decision.
    pub fn spoil(&self, decision: &mut Decision, target: &Target, chance: u64) {
        match self.mistake {
            Mistake::NoTimers => decision.next = Next::AwaitChange,
            Mistake::Decides(spoil) => spoil(decision, target, chance),
            Mistake::Deaf(_) | Mistake::DeafToDeletion(_) | Mistake::NoRetries | Mistake::ConflictsAreFine => {}
        }
    }

    /// Whether a change wakes nobody.
    pub fn drowns(&self, kind: &str, is_gone: bool) -> bool {
        match self.mistake {
            Mistake::Deaf(deaf_to) => deaf_to == kind,
            Mistake::DeafToDeletion(deaf_to) => deaf_to == kind && is_gone,
            Mistake::NoTimers | Mistake::NoRetries | Mistake::ConflictsAreFine | Mistake::Decides(_) => false,
        }
    }
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

fn writes_elsewhere(decision: &mut Decision, _: &Target, _: u64) {
    for write in &mut decision.writes {
        if let Op::Apply { object, .. } = &mut write.op {
            object["metadata"]["namespace"] = "elsewhere".into();
        }
    }
}
