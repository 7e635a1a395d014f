//! How containers ended, and which of them failed first by itself rather than because of another.

use crate::facts::{Facts, LogTail, PodFacts};
use crate::lines::{Child, first_child};
use crate::pods::{node_rank, processes_per_node, statuses, step};
use crate::reason::Reason;
use crate::signs::Class;
use crate::verdict::{self, Verdict};
use api::object;
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Labels of JobSet's pods: which of its restarts they are of.
const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// Exit codes of SIGTERM and SIGKILL.
const TERM: i64 = 143;
const KILL: i64 = 137;

/// A container that ended with an error, and what its log says.
#[derive(Clone, Debug)]
pub(crate) struct Ending<'a> {
    pub pod: &'a Value,
    pub step: String,
    pub container: &'a str,
    pub exit_code: i64,
    /// As the status has it: `Error`, `OOMKilled`.
    pub reason: &'a str,
    /// What the status keeps of its last words.
    pub message: &'a str,
    pub finished: Option<Timestamp>,
    /// How often it had been restarted before.
    pub attempt: i64,
    pub restarts: i64,
    pub log: Option<Cow<'a, LogTail>>,
    pub verdict: Option<Verdict>,
}

impl Ending<'_> {
    /// Ended from outside, as those are that go on when another has failed.
    pub fn was_ended(&self) -> bool {
        let is_asked = self.exit_code == TERM || (self.exit_code == KILL && self.reason != "OOMKilled");
        let own = self
            .verdict
            .as_ref()
            .is_some_and(|verdict| verdict.class == Class::Own && verdict.reason != Reason::Interrupted);
        is_asked && !own
    }

    fn class(&self) -> Class {
        self.verdict.as_ref().map_or(Class::Own, |verdict| verdict.class)
    }

    /// The global rank of the process that failed, where it is known.
    pub fn rank(&self) -> Option<i64> {
        if !crate::pods::is_node(self.pod) {
            return self.verdict.as_ref()?.rank;
        }
        let node = node_rank(self.pod)?;
        match processes_per_node(self.pod) {
            ..=1 => Some(node),
            _ => self.verdict.as_ref().and_then(|verdict| verdict.rank).or_else(|| self.child()?.rank),
        }
    }

    /// What torchrun says of the process that failed first.
    pub fn child(&self) -> Option<Child> {
        let read = self.verdict.as_ref().and_then(|verdict| verdict.child.clone());
        read.or_else(|| first_child(self.log.as_deref()?))
    }

    /// The exit code of the process itself, which launchers do not pass on.
    pub fn process_code(&self) -> i64 {
        let told = self.child().and_then(|child| child.exit_code);
        match told {
            // torchrun ends with 1, whatever its workers end with
            Some(code) if self.exit_code == 1 && code != 0 => {
                if code < 0 {
                    128_i64.saturating_sub(code)
                } else {
                    code
                }
            }
            _ => self.exit_code,
        }
    }
}

/// The containers that ended with an error in the attempt that decided; the first that failed by itself comes first.
pub(crate) fn endings(facts: &Facts) -> Vec<Ending<'_>> {
    let mut endings: Vec<Ending<'_>> = deciding(&facts.pods).into_iter().flat_map(|pod| of_pod(facts, pod)).collect();
    endings.sort_by(|a, b| order(a).cmp(&order(b)));
    endings
}

/// Expected order: what ended by itself before what was ended, causes before consequences, then by time.
fn order<'a>(ending: &'a Ending<'_>) -> impl Ord + use<'a> {
    let at = ending.verdict.as_ref().and_then(|verdict| verdict.time);
    // statuses have whole seconds; within one the log is finer
    let second = ending.finished.map_or(i64::MAX, Timestamp::as_second);
    (ending.was_ended(), ending.class(), second, at.is_none(), at, ending.step.clone(), ending.exit_code == KILL)
}

/// The last pod of each index of each step, of the last attempt and restart in which anything failed.
fn deciding(pods: &[PodFacts]) -> Vec<&Value> {
    let restart = |pod: &&PodFacts| {
        let restart = object::label(&pod.pod, RESTART_ATTEMPT).and_then(|text| text.parse::<i64>().ok());
        (pod.attempt, restart.unwrap_or(0))
    };
    let failed = pods.iter().filter(|pod| has_ended_badly(&pod.pod));
    let Some(last) = failed.map(|pod| restart(&pod)).max() else { return Vec::new() };
    let mut slots: BTreeMap<(String, usize), &PodFacts> = BTreeMap::new();
    for (at, pod) in pods.iter().enumerate().filter(|(_, pod)| restart(pod) == last) {
        // without an index nothing says which pod came in place of which
        let slot = (step(&pod.pod), if node_rank(&pod.pod).is_some() { 0 } else { at });
        let slot = slots.entry(slot).or_insert(pod);
        let made = |pod: &PodFacts| object::meta(&pod.pod, "creationTimestamp").to_owned();
        // one that has not run yet says nothing of how its forerunner ended
        let key = |pod: &PodFacts| (has_ended_badly(&pod.pod), made(pod), pod.live);
        if key(slot) < key(pod) {
            *slot = pod;
        }
    }
    slots.into_values().map(|pod| &pod.pod).collect()
}

fn has_ended_badly(pod: &Value) -> bool {
    statuses(pod).any(|status| terminated(status).is_some())
}

/// The last end of a container that is an error, and how often it had been restarted before that.
fn terminated(status: &Value) -> Option<(&Value, i64)> {
    let restarts = status["restartCount"].as_i64().unwrap_or(0);
    let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    if failed(&status["state"]) {
        return Some((&status["state"]["terminated"], restarts));
    }
    failed(&status["lastState"]).then(|| (&status["lastState"]["terminated"], restarts.saturating_sub(1)))
}

fn of_pod<'a>(facts: &'a Facts, pod: &'a Value) -> Vec<Ending<'a>> {
    let of_status = |status: &'a Value| {
        let (end, attempt) = terminated(status)?;
        let container = object::text(status, "name");
        let message = object::text(end, "message");
        let log =
            log_of(facts, pod, container, attempt).map(Cow::Borrowed).or_else(|| last_words(message).map(Cow::Owned));
        Some(Ending {
            pod,
            step: step(pod),
            container,
            exit_code: end["exitCode"].as_i64().unwrap_or(1),
            reason: object::text(end, "reason"),
            message,
            finished: object::text(end, "finishedAt").parse().ok(),
            attempt,
            restarts: status["restartCount"].as_i64().unwrap_or(0),
            verdict: log.as_deref().and_then(verdict::of),
            log,
        })
    };
    statuses(pod).filter_map(of_status).collect()
}

/// The log of this run of a container, else the newest there is.
fn log_of<'a>(facts: &'a Facts, pod: &Value, container: &str, attempt: i64) -> Option<&'a LogTail> {
    let of_container = |log: &&LogTail| {
        let same = if log.uid.is_empty() { log.pod == object::meta(pod, "name") } else { log.uid == object::uid(pod) };
        same && log.container == container && !log.lines.is_empty()
    };
    let logs: Vec<&LogTail> = facts.logs.iter().filter(of_container).collect();
    let exact = logs.iter().find(|log| log.attempt == attempt).copied();
    exact.or_else(|| logs.into_iter().filter(|log| log.attempt <= attempt).max_by_key(|log| log.attempt))
}

/// What a status keeps of a log, as a log.
fn last_words(message: &str) -> Option<LogTail> {
    let line = |text: &str| crate::facts::Line { text: text.to_owned(), ..Default::default() };
    let lines: Vec<_> = message.lines().filter(|text| !text.trim().is_empty()).map(line).collect();
    (!lines.is_empty()).then(|| LogTail { lines, ..LogTail::default() })
}
