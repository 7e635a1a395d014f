//! The ledger: what to ask the provider of a machine next, and what becomes of its answer.
//!
//! All that is remembered is in the Machine object. It is durable before the provider is called ([`step`] asks for a machine only by the uid
//! of an object that was read), and it goes when the provider has said that nothing of the machine is left. A crash between a call and the
//! note of its answer leaves an object whose step is the same call again, under the same token.
//!
//! A machine is lost only by proof ([`Ended`]). A provider that does not see a machine, or does not answer, proves nothing: the machine's
//! phase stays, the message says what is going on, and the provider is asked again.

use crate::provider::{Ended, Failure, Fate, Found, Handle, Request, Seen, State};
use api::sky::{API_VERSION, Machine, MachinePhase as Phase, MachineStatus, Power, keys};
use jiff::Timestamp;
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

/// What the provider answered, or why it did not.
pub type Answer = Result<Found, Failure>;

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The status to write, where it differs from the one that is there.
    pub status: MachineStatus,
    /// Whether nothing is left of a machine that was to go: the provider has said so.
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

/// What the answer to a call means for the machine's object; `now` is when it came.
pub fn answered(machine: &Machine, call: &Call, answer: &Answer, now: Timestamp) -> Noted {
    let seen = match answer {
        Err(failure) => return failed(machine, call, failure),
        Ok(Found::Absent) => return absent(machine),
        Ok(Found::Ended(ended)) => return has_ended(machine, ended, now),
        Ok(Found::There(seen)) => seen,
    };
    let mut status = machine.status.clone();
    let ending = machine.metadata.deletion_timestamp.is_some();
    status.failures = 0;
    status.message.clear();
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

/// The provider has proof that the machine has ended.
fn has_ended(machine: &Machine, ended: &Ended, now: Timestamp) -> Noted {
    let mut status = machine.status.clone();
    status.failures = 0;
    status.message.clear();
    if machine.metadata.deletion_timestamp.is_some() {
        status.phase = Phase::Deleting;
        return Noted { status, gone: true, again: AT_REST };
    }
    status.message.clone_from(&ended.why);
    if status.phase == Phase::Pending {
        // it never ran, so nothing is lost: it is made again
        status.id.clear();
        status.failures = machine.status.failures.saturating_add(1);
        let again = backoff(status.failures);
        return Noted { status, gone: false, again };
    }
    status.phase = Phase::Lost;
    status.ended_at = ended.at.unwrap_or(now).to_string();
    Noted { status, gone: false, again: ON_ITS_WAY }
}

/// The provider does not see the machine, which proves nothing: all stays as it is, and the provider is asked again.
fn absent(machine: &Machine) -> Noted {
    let mut status = machine.status.clone();
    let named = if status.id.is_empty() { "this machine".to_owned() } else { format!("machine {}", status.id) };
    let provider = &machine.spec.candidate.provider;
    let until = if machine.metadata.deletion_timestamp.is_some() {
        "confirms that nothing of it is left"
    } else {
        "shows it or proves its end"
    };
    status.message = format!("{provider} does not show {named} now; it is asked again until it {until}");
    status.failures = status.failures.saturating_add(1);
    let again = backoff(status.failures);
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
        "home": status.home, "failures": status.failures, "message": status.message, "endedAt": status.ended_at,
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
        let answered = |answer: Answer| answered(&fresh, &call, &answer, Timestamp::UNIX_EPOCH);
        let lost = answered(Err(Failure::new(Fate::Retry, "no answer")));
        assert_eq!((lost.status.failures, lost.status.phase, lost.gone), (1, Phase::Pending, false));
        let noted = answered(Ok(Found::There(seen("i", "t", State::Running))));
        assert_eq!((noted.status.id.as_str(), noted.status.phase), ("i", Phase::Running));
        let full = answered(Err(Failure::new(Fate::NextCandidate, "full")));
        assert_eq!(full.status.phase, Phase::NoCapacity);
    }

    #[test]
    fn deletion_goes_on_until_the_provider_says_that_it_is_gone() {
        let ending = machine(json!({"phase": "Running", "id": "i"}), true);
        let Step::Call(call @ Call::Delete(_)) = step(&ending) else { panic!() };
        let gone = |answer: Answer| answered(&ending, &call, &answer, Timestamp::UNIX_EPOCH).gone;
        assert!(!gone(Err(Failure::new(Fate::GiveUp, "no"))));
        assert!(!gone(Ok(Found::There(seen("i", "t", State::Ending)))));
        assert!(!gone(Ok(Found::Absent)), "a list may lag");
        assert!(gone(Ok(Found::ended("its folder is gone"))));
        let mut purged = machine(json!({"phase": "Running", "id": "i", "failures": 1}), true);
        purged.metadata.annotations = Some([(keys::PURGE.to_owned(), "true".to_owned())].into());
        assert_eq!(step(&purged), Step::Release);
    }

    #[test]
    fn only_proof_makes_a_loss() {
        let running = machine(json!({"phase": "Running", "id": "i", "message": "old"}), false);
        let Step::Call(call @ Call::Observe(_)) = step(&running) else { panic!() };
        let now = Timestamp::from_second(100).unwrap();
        let absent = answered(&running, &call, &Ok(Found::Absent), now).status;
        assert_eq!((absent.phase, absent.failures, absent.ended_at.as_str()), (Phase::Running, 1, ""));
        assert_eq!(
            absent.message,
            "local does not show machine i now; it is asked again until it shows it or proves its end"
        );
        let evicted = Ended { why: "evicted".into(), at: Some(Timestamp::from_second(7).unwrap()) };
        let lost = answered(&running, &call, &Ok(Found::Ended(evicted)), now).status;
        let told = (lost.phase, lost.message.as_str(), lost.ended_at.as_str());
        assert_eq!(told, (Phase::Lost, "evicted", "1970-01-01T00:00:07Z"));
        let noticed = answered(&running, &call, &Ok(Found::ended("gone")), now).status;
        assert_eq!(noticed.ended_at, "1970-01-01T00:01:40Z", "when it was noticed");
        // one that never ran is made again
        let starting = machine(json!({"id": "i"}), false);
        let again = answered(&starting, &call, &Ok(Found::ended("evicted")), now).status;
        assert_eq!((again.phase, again.id.as_str(), again.message.as_str()), (Phase::Pending, "", "evicted"));
        let waits = answered(&starting, &call, &Ok(Found::Absent), now).status;
        assert_eq!((waits.phase, waits.id.as_str()), (Phase::Pending, "i"));
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
