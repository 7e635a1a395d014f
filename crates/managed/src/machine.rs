//! The ledger: what to ask the provider of a machine next, and what becomes of its answer.
//!
//! All that is remembered is in the Machine object. It is durable before the provider is called ([`step`] asks for a machine only by the uid
//! of an object that was read), and it goes when the provider has said that the machine is gone. A crash between a call and the note
//! of its answer leaves an object whose step is the same call again, under the same token.

use crate::provider::{Failure, Fate, Handle, Request, Seen, State};
use api::sky::{API_VERSION, Machine, MachinePhase as Phase, MachineStatus, Power, keys};
use std::time::Duration;

/// How soon a machine that is on its way is looked at again.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How often a machine that rests is looked at: it may have been taken away.
const AT_REST: Duration = Duration::from_secs(60);
/// The first pause after a failure; it doubles up to the longest.
const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// What to do about a machine.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and soon used up")]
pub enum Step {
    /// Ask the provider, and note its answer ([`answered`]).
    Call(Call),
    /// Nothing is left of it: let the object go.
    Release,
    /// Nothing until the object changes.
    Rest,
}

/// What the provider is asked.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and soon used up")]
pub enum Call {
    Create(Request),
    Observe(Handle),
    Stop(Handle),
    Start(Handle),
    Delete(Handle),
}

/// What the provider answered: a machine, or that there is none; or why it did not.
pub type Answer = Result<Option<Seen>, Failure>;

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The status to write, where it differs from the one that is there.
    pub status: MachineStatus,
    /// Whether the provider has said that the machine is gone, which was to go.
    pub gone: bool,
    /// When to look again, if nothing changes before.
    pub again: Duration,
}

/// Its token: the uid of the object.
pub fn token(machine: &Machine) -> &str {
    machine.metadata.uid.as_deref().unwrap_or_default()
}

fn handle(machine: &Machine) -> Handle {
    let id = Some(machine.status.id.clone()).filter(|id| !id.is_empty());
    Handle { token: token(machine).to_owned(), id, generation: machine.metadata.generation.unwrap_or(0) }
}

/// What its Node is called: as it is, and outside of the namespace `default` with its namespace before it. The dot, which no namespace
/// has, keeps machine `b-c` of `a` and machine `c` of `a-b` apart.
pub fn node_name(machine: &Machine) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    node_of(&text(&machine.metadata.namespace), &text(&machine.metadata.name))
}

/// The name of a machine's Node, by the machine's namespace and name; see [`node_name`].
pub fn node_of(namespace: &str, name: &str) -> String {
    if matches!(namespace, "" | "default") { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// What to do next about a machine, given its object as the API server has it now.
pub fn step(machine: &Machine) -> Step {
    let is_ours = machine.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == keys::LEDGER);
    let purge = machine.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(keys::PURGE));
    if machine.metadata.deletion_timestamp.is_some() {
        return match is_ours {
            false => Step::Rest,
            // the provider was asked once, and is not believed
            true if purge && machine.status.failures > 0 => Step::Release,
            true => Step::Call(Call::Delete(handle(machine))),
        };
    }
    if !is_ours || token(machine).is_empty() {
        return Step::Rest;
    }
    match (machine.status.phase, machine.spec.power) {
        (Phase::NoCapacity | Phase::Refused | Phase::Lost, _) => Step::Rest,
        (Phase::Pending, _) if machine.status.id.is_empty() => Step::Call(Call::Create(request(machine))),
        (Phase::Running, Power::Stopped) => Step::Call(Call::Stop(handle(machine))),
        (Phase::Stopped, Power::Running) => Step::Call(Call::Start(handle(machine))),
        (_, _) => Step::Call(Call::Observe(handle(machine))),
    }
}

fn request(machine: &Machine) -> Request {
    let mut labels = machine.spec.node_labels.clone();
    labels.insert(keys::CLUSTER.to_owned(), machine.spec.cluster.clone());
    let namespace = machine.metadata.namespace.clone().unwrap_or_default();
    labels.insert(keys::CLUSTER_NAMESPACE.to_owned(), namespace);
    labels.insert(keys::TOKEN.to_owned(), token(machine).to_owned());
    Request {
        token: token(machine).to_owned(),
        node: node_name(machine),
        candidate: machine.spec.candidate.clone(),
        labels,
        taints: [(keys::CLUSTER.to_owned(), machine.spec.cluster.clone())].into(),
    }
}

/// What the answer to a call means for the machine's object.
pub fn answered(machine: &Machine, call: &Call, answer: &Answer) -> Noted {
    let mut status = machine.status.clone();
    let ending = machine.metadata.deletion_timestamp.is_some();
    let seen = match answer {
        Err(failure) => return failed(machine, call, failure),
        Ok(seen) => seen,
    };
    status.failures = 0;
    status.message.clear();
    let Some(seen) = seen else {
        // a machine that was asked for and is not listed yet is asked for again
        let never_was = status.phase == Phase::Pending;
        if ending {
            status.phase = Phase::Deleting;
        } else if never_was {
            status.id.clear();
        } else {
            status.phase = Phase::Lost;
            status.message =
                format!("the provider does not know machine {} any more: it was ended from outside", status.id);
        }
        return Noted { status, gone: ending, again: if ending { AT_REST } else { ON_ITS_WAY } };
    };
    status.id.clone_from(&seen.id);
    for (has, says) in
        [(&mut status.node, &seen.node), (&mut status.address, &seen.address), (&mut status.home, &seen.home)]
    {
        if !says.is_empty() {
            has.clone_from(says);
        }
    }
    let before = status.phase;
    status.phase = match seen.state {
        _ if ending => Phase::Deleting,
        State::Starting if before == Phase::Pending => Phase::Pending,
        State::Starting => Phase::Starting,
        State::Running => Phase::Running,
        State::Stopping => Phase::Stopping,
        State::Stopped => Phase::Stopped,
        State::Ending => Phase::Deleting,
    };
    let wanted = match machine.spec.power {
        Power::Running => Phase::Running,
        Power::Stopped => Phase::Stopped,
    };
    let again = if status.phase == wanted { AT_REST } else { ON_ITS_WAY };
    Noted { status, gone: false, again }
}

fn failed(machine: &Machine, call: &Call, failure: &Failure) -> Noted {
    let mut status = machine.status.clone();
    status.failures = status.failures.saturating_add(1);
    status.message.clone_from(&failure.what);
    let backoff = backoff(status.failures);
    let again = match failure.fate {
        Fate::Later(pause) => pause.max(backoff),
        Fate::Retry | Fate::NextCandidate | Fate::GiveUp => backoff,
    };
    match (call, failure.fate) {
        (Call::Create(_), Fate::NextCandidate) => status.phase = Phase::NoCapacity,
        (Call::Create(_), Fate::GiveUp) => status.phase = Phase::Refused,
        // what is there is never given up: not to be stopped, and not to be ended
        _ => {}
    }
    Noted { status, gone: false, again }
}

/// The pause after so many failures in a row.
fn backoff(failures: i32) -> Duration {
    let doubled = u32::try_from(failures.saturating_sub(1).clamp(0, 16)).unwrap_or(0);
    BACKOFF.saturating_mul(1_u32 << doubled).min(BACKOFF_MAX)
}

/// Machines that a provider lists and that are to be ended: those that no object stands for, and all but one of those of one token.
///
/// `machines` must have been read from the API server *after* the provider gave its list. An object is there before its machine is, so a
/// machine without one has lost it. Of two machines with one token the one whose id is noted stays. While none is noted both stay: an answer
/// that is on its way may name either, and the machine that it names must not have been ended meanwhile.
pub fn orphans(listed: &[Seen], machines: &[Machine]) -> Vec<Handle> {
    let is_kept = |seen: &Seen| {
        let Some(machine) = machines.iter().find(|machine| token(machine) == seen.token) else { return false };
        let noted = machine.status.id.as_str();
        let is_listed = || listed.iter().any(|other| other.token == seen.token && other.id == noted);
        // while an id is noted that is not listed, the list lags: nothing is ended in its place, unless that machine is lost
        let lags = || !is_listed() && machine.status.phase != Phase::Lost;
        noted.is_empty() || noted == seen.id || lags()
    };
    // one that is on its way out may need to be told again
    let orphans = listed.iter().filter(|seen| !is_kept(seen));
    orphans.map(|seen| Handle { token: seen.token.clone(), id: Some(seen.id.clone()), generation: 0 }).collect()
}

/// The merge patch of a machine's status.
pub fn status_patch(status: &MachineStatus) -> serde_json::Value {
    serde_json::json!({"apiVersion": API_VERSION, "kind": "Machine", "status": {
        "phase": status.phase, "id": status.id, "node": status.node, "address": status.address,
        "home": status.home, "failures": status.failures, "message": status.message,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine(status: serde_json::Value, deleting: bool) -> Machine {
        let mut object = json!({
            "apiVersion": API_VERSION, "kind": "Machine",
            "metadata": {"name": "dev-1-0", "namespace": "default", "uid": "t", "finalizers": [keys::LEDGER]},
            "spec": {"cluster": "dev", "rank": 0, "candidate": {"provider": "local"}}, "status": status,
        });
        if deleting {
            object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        serde_json::from_value(object).unwrap()
    }

    fn seen(id: &str, token: &str, state: State) -> Seen {
        let text = String::new();
        Seen { token: token.into(), id: id.into(), state, node: text.clone(), address: text.clone(), home: text }
    }

    #[test]
    fn a_machine_is_asked_for_until_its_answer_is_noted() {
        let fresh = machine(json!({}), false);
        let Step::Call(call @ Call::Create(_)) = step(&fresh) else { panic!("{:?}", step(&fresh)) };
        let lost = answered(&fresh, &call, &Err(Failure::new(Fate::Retry, "no answer")));
        assert_eq!((lost.status.failures, lost.status.phase, lost.gone), (1, Phase::Pending, false));
        let noted = answered(&fresh, &call, &Ok(Some(seen("i", "t", State::Running))));
        assert_eq!((noted.status.id.as_str(), noted.status.phase), ("i", Phase::Running));
        let full = answered(&fresh, &call, &Err(Failure::new(Fate::NextCandidate, "full")));
        assert_eq!(full.status.phase, Phase::NoCapacity);
    }

    #[test]
    fn deletion_goes_on_until_the_provider_says_that_it_is_gone() {
        let ending = machine(json!({"phase": "Running", "id": "i"}), true);
        let Step::Call(call @ Call::Delete(_)) = step(&ending) else { panic!() };
        assert!(!answered(&ending, &call, &Err(Failure::new(Fate::GiveUp, "no"))).gone);
        assert!(!answered(&ending, &call, &Ok(Some(seen("i", "t", State::Ending)))).gone);
        assert!(answered(&ending, &call, &Ok(None)).gone);
        let mut purged = machine(json!({"phase": "Running", "id": "i", "failures": 1}), true);
        purged.metadata.annotations = Some([(keys::PURGE.to_owned(), "true".to_owned())].into());
        assert_eq!(step(&purged), Step::Release);
    }

    #[test]
    fn orphans_are_what_no_object_stands_for() {
        let known = machine(json!({"phase": "Running", "id": "b"}), false);
        let listed = [
            seen("a", "t", State::Running),
            seen("b", "t", State::Running),
            seen("c", "u", State::Running),
            seen("d", "v", State::Ending),
        ];
        let ids = |listed: &[Seen], machines: &[Machine]| {
            orphans(listed, machines).into_iter().filter_map(|handle| handle.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&listed, std::slice::from_ref(&known)), ["a", "c", "d"]);
        assert_eq!(ids(&listed[..1], std::slice::from_ref(&known)), [""; 0], "the list lags");
        assert_eq!(ids(&listed[..2], &[machine(json!({}), false)]), [""; 0], "the answer may name either");
        assert_eq!(ids(&listed[..1], &[machine(json!({"phase": "Lost", "id": "b"}), false)]), ["a"]);
    }

    #[test]
    fn pauses_double_up_to_a_minute() {
        assert_eq!([1, 2, 4, 100].map(backoff), [500, 1000, 4000, 60_000].map(Duration::from_millis));
    }
}
