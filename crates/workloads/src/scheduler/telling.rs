//! Messages to pods that wait: written beside the placement of others, and a few at a time.

use super::index::{Index, State};
use super::line::{Ending, Place, Unit};
use super::{AMOUNTS_SECS, INCOMPLETE_SECS, event, node};
use api::object::{self, Key, Target};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Decision, EventType, Next, OnError, Op, PatchBody, Write};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many units are looked at in one go.
const UNITS_MAX: usize = 32;
/// Seconds between one go and the next.
const PAUSE_SECS: i64 = 1;
/// How many units, from the first in the queue, get a new message when nothing but the amounts in it has changed.
const FIRST: usize = 16;

/// What is left to be told.
#[derive(Default)]
pub(super) struct Teller {
    /// The round in progress: how far things had gone when it began, and the unit that it came to.
    round: Option<(u64, Option<Arc<Place>>)>,
    /// How far things had gone when the last whole round began.
    done: u64,
    last: Option<Timestamp>,
    /// Units that are looked at again at a time.
    later: BTreeMap<Arc<Place>, Timestamp>,
    /// What was told in the last go, until the world is seen to have it.
    pub told: Vec<(Arc<Place>, Key, String)>,
}

impl Teller {
    /// Writes conditions of units that have come or changed, then of the next in turn.
    pub(super) fn tell(&mut self, index: &mut Index, now: Timestamp) -> Decision {
        let mut decision = Decision::nothing();
        // what was refused is written again
        for (place, key, text) in std::mem::take(&mut self.told) {
            let is_told = index.pods.get(&key).is_none_or(|pod| {
                pod.state != State::Waits
                    || said(&pod.object()).is_some_and(|said| object::text(said, "message") == text)
            });
            if !is_told && index.queue.contains(&place) {
                index.fresh.insert(place);
            }
        }
        if let Some(last) = self.last {
            let due = api::time::later_secs(last, PAUSE_SECS);
            if due > now && (!index.fresh.is_empty() || self.done < index.moves) {
                look_again(&mut decision, due.duration_since(now));
                return decision;
            }
        }
        let is_due = |_: &Arc<Place>, at: &mut Timestamp| *at <= now;
        index.fresh.extend(self.later.extract_if(.., is_due).map(|(place, _)| place));
        let mut units: Vec<Arc<Place>> = Vec::new();
        while units.len() < UNITS_MAX
            && let Some(place) = index.fresh.pop_first()
        {
            units.push(place);
        }
        self.take_turns(index, &mut units);
        let first: BTreeSet<Arc<Place>> = index.queue.iter().take(FIRST).cloned().collect();
        for place in units {
            self.tell_unit(index, &place, first.contains(&place), now, &mut decision);
        }
        if let Some(at) = self.later.values().min() {
            look_again(&mut decision, at.duration_since(now));
        }
        if !decision.writes.is_empty() {
            self.last = Some(now);
        }
        if !index.fresh.is_empty() || self.done < index.moves {
            look_again(&mut decision, SignedDuration::from_secs(PAUSE_SECS));
            self.last = Some(now);
        }
        decision
    }

    /// The next units of the round.
    fn take_turns(&mut self, index: &Index, units: &mut Vec<Arc<Place>>) {
        if self.round.is_none() && self.done < index.moves {
            self.round = Some((index.moves, None));
        }
        let Some((began, after)) = self.round.take() else { return };
        let rest = match &after {
            Some(after) => index.queue.range((std::ops::Bound::Excluded(after.clone()), std::ops::Bound::Unbounded)),
            None => index.queue.range::<Arc<Place>, _>(..),
        };
        let mut rest = rest.cloned().peekable();
        let mut after = after;
        while units.len() < UNITS_MAX
            && let Some(place) = rest.next()
        {
            after = Some(place.clone());
            if !units.contains(&place) {
                units.push(place);
            }
        }
        match rest.peek() {
            Some(_) => self.round = Some((began, after)),
            None => self.done = began,
        }
    }

    fn tell_unit(
        &mut self,
        index: &mut Index,
        place: &Arc<Place>,
        is_first: bool,
        now: Timestamp,
        decision: &mut Decision,
    ) {
        let Some(unit) = index.units.remove(&place.unit) else { return };
        let due = api::time::later_secs(unit.place.created.unwrap_or(now), INCOMPLETE_SECS);
        let why = match &unit {
            Unit { ending, .. } if ending.pods > 0 => Some(held_up(ending, now)),
            Unit { missing: 0, .. } => index.why(&unit),
            _ if due > now => {
                self.later.insert(place.clone(), due);
                None
            }
            _ => Some(incomplete(&unit)),
        };
        if let Some(text) = why {
            decision.report.note(format!("{}: {text}", place.unit.name));
            for key in &unit.pods {
                let Some(pod) = index.pods.get(key).filter(|pod| !pod.is_room) else { continue };
                match tell(&pod.object(), &text, is_first, now) {
                    Told::Already => {}
                    Told::Later(at) => _ = self.later.insert(place.clone(), at),
                    Told::Now(write) => {
                        decision.writes.push(*write);
                        self.told.push((place.clone(), key.clone(), text.clone()));
                    }
                }
            }
        }
        index.units.insert(place.unit.clone(), unit);
    }
}

/// What a gang says that is not complete, once it has had the time to become so.
fn incomplete(unit: &Unit) -> String {
    let (there, wanted) = (unit.pods.len(), unit.pods.len() + unit.missing);
    format!("gang {} has {there} of {wanted} pods; it starts when all are there", unit.name)
}

/// What a unit says that starts after the pods of its earlier run.
fn held_up(ending: &Ending, now: Timestamp) -> String {
    let which = match ending.pods {
        1 => "1 pod of the run before it is".to_owned(),
        pods => format!("{pods} pods of the run before it are"),
    };
    match ending.at.map(|at| at.as_second() - now.as_second()) {
        Some(left) if left > 0 => format!("{which} still ending (at most {left} s)"),
        _ => format!("{which} still ending"),
    }
}

enum Told {
    Already,
    Later(Timestamp),
    Now(Box<Write>),
}

/// What a pod was told.
fn said(pod: &Value) -> Option<&Value> {
    let mut conditions = pod["status"]["conditions"].as_array()?.iter();
    conditions.find(|c| object::text(c, "type") == "PodScheduled" && object::text(c, "status") == "False")
}

/// Tells a pod why it has no node, where it was not told so already. Where only amounts have changed, which they do with each
/// pod that comes or goes, the condition follows now and then, and no event is made of it.
fn tell(pod: &Value, why: &str, is_first: bool, now: Timestamp) -> Told {
    let held = said(pod);
    let before = held.map(|held| object::text(held, "message")).unwrap_or_default();
    if before == why {
        return Told::Already;
    }
    let news = node::gist(before) != node::gist(why);
    if let Some(held) = held.filter(|_| !news) {
        if !is_first {
            return Told::Already;
        }
        let told: Timestamp = object::text(held, "lastProbeTime").parse().unwrap_or_default();
        let due = api::time::later_secs(told, AMOUNTS_SECS);
        if due > now {
            return Told::Later(due);
        }
    }
    let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let since = held.map(|held| object::text(held, "lastTransitionTime")).filter(|since| !since.is_empty());
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": why,
        "lastProbeTime": at,
        "lastTransitionTime": since.unwrap_or(&at),
    });
    let op = Op::Patch {
        target: Target::of(pod),
        subresource: Some("status"),
        body: PatchBody::Strategic(json!({"status": {"conditions": [condition]}})),
    };
    let event = event(pod, EventType::Warning, "FailedScheduling", why.to_owned(), "Scheduling");
    Told::Now(Box::new(Write { op, on_error: OnError::Continue, on_success: news.then_some(event) }))
}

/// Asks for another look, at the latest after this time.
pub(super) fn look_again(decision: &mut Decision, after: SignedDuration) {
    decision.next = match decision.next {
        Next::After(sooner) if sooner < after => Next::After(sooner),
        Next::After(_) | Next::AwaitChange | Next::Backoff => Next::After(after),
    };
}
