//! Versions of a service or a pool, and the number of replicas of each.

use super::observed::Observed;
use super::{FleetKind, Turn};
use crate::autoscale::{Demand, Demanded, Member, Scaler, Scaling, ScalingRules};
use crate::backoff;
use crate::names::place;
use crate::spot::{self, Zone};
use api::sky::{
    FleetSpec, FleetState, FleetStatus, FleetVersion, FleetZone, JobFile, JobTask, Replica, ReplicaState as State,
    UpdateMode,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeSet;

/// The pause after a replica that failed without having been ready, and the longest one after several in a row, seconds.
const PAUSE_SECS: i64 = 5;
const PAUSE_MAX_SECS: i64 = 300;
/// Zones that are remembered for spot machines.
const ZONES_MAX: usize = 100;

/// The current version: the newest one that has not stopped. If all have stopped, the newest.
pub(super) fn current(status: &FleetStatus) -> Option<&FleetVersion> {
    let going = status.versions.iter().rev().find(|version| version.stopped.is_empty());
    going.or(status.versions.last())
}

/// Notes a version that was submitted, and forgets those that nothing needs.
pub(super) fn note_versions(status: &mut FleetStatus, spec: &FleetSpec) {
    if status.versions.last().is_none_or(|last| last.number < spec.version) {
        status.versions.push(FleetVersion {
            number: spec.version,
            submission: spec.submission.clone(),
            mode: spec.mode,
            ..FleetVersion::default()
        });
    }
    let current = current(status).map_or(0, |version| version.number);
    let used: BTreeSet<u32> = status.replicas.iter().map(|replica| replica.version).collect();
    // the last one that stopped says why
    let newest = spec.version;
    status.versions.retain(|one| one.number >= current || used.contains(&one.number) || one.number == newest);
}

fn members(status: &FleetStatus) -> Vec<Member> {
    let member = |replica: &Replica| Member {
        number: replica.number,
        version: replica.version,
        state: replica.state,
        is_spot: replica.is_spot.unwrap_or(false),
        gpu: replica.gpu.clone(),
        jobs: status.load.backends.iter().find(|one| one.replica == replica.number).map_or(0, |one| one.in_flight),
        is_fatal: replica.is_fatal,
    };
    status.replicas.iter().map(member).collect()
}

fn ready_of(status: &FleetStatus, version: u32) -> u32 {
    let is_ready = |one: &&Replica| one.version == version && one.state == State::Ready;
    u32::try_from(status.replicas.iter().filter(is_ready).count()).unwrap_or(u32::MAX)
}

/// The versions that get requests: in a rolling update all with ready replicas; in a blue-green one the newest that has enough, until then
/// the one before.
fn active(status: &FleetStatus, current: &FleetVersion, least: u32) -> Vec<u32> {
    let ready: BTreeSet<u32> =
        status.replicas.iter().filter(|one| one.state == State::Ready).map(|one| one.version).collect();
    if current.mode == UpdateMode::Rolling {
        return ready.into_iter().collect();
    }
    let older = ready.iter().rev().find(|version| **version < current.number).copied();
    let is_enough = ready_of(status, current.number) >= least.max(1);
    match older {
        Some(older) if !is_enough => vec![older],
        _ if ready.contains(&current.number) => vec![current.number],
        older => older.into_iter().collect(),
    }
}

/// Whether replicas of two versions would be the same: only the `service` section may differ.
fn is_alike(one: &JobFile, other: &JobFile) -> bool {
    let bare = |file: &JobFile| -> Vec<JobTask> {
        file.tasks.iter().map(|task| JobTask { service: Value::Null, ..task.clone() }).collect()
    };
    bare(one) == bare(other) && (&one.settings, &one.catalog) == (&other.settings, &other.catalog)
}

impl Observed {
    /// Counts replicas of the version before as those of the newest one, where nothing but the `service` section has changed.
    pub(super) fn carry_over(&self, status: &mut FleetStatus) {
        let [.., before, newest] = status.versions.as_slice() else { return };
        let (from, to) = (before.number, newest.number);
        let goes_on = |one: &Replica| one.version == from && !one.state.has_ended();
        if !status.replicas.iter().any(goes_on) {
            return;
        }
        let (Ok(old), Ok(new)) = (self.file(&before.submission), self.file(&newest.submission)) else { return };
        if is_alike(old, new) {
            status.replicas.iter_mut().filter(|one| goes_on(one)).for_each(|one| one.version = to);
        }
    }

    fn demanded(&self, status: &FleetStatus) -> Demanded {
        match self.kind {
            // a request that waits has been counted when it came, perhaps more than a minute ago
            FleetKind::Service => Demanded::Requests(status.load.requests_last_minute.max(status.load.held)),
            FleetKind::Pool => Demanded::Waiting(status.load.held),
        }
    }

    /// Decides the number of replicas of each version. `section`: the `service` section of the current version.
    pub(super) fn roll(&self, turn: &mut Turn, section: &Value, now: Timestamp) {
        let Some(version) = current(&turn.status).cloned() else { return };
        let load = self.demanded(&turn.status);
        let mut scaler = Self::scaler(&turn.status, &version, section, load);
        let members = members(&turn.status);
        scaler.note_ready(&members);
        let active = active(&turn.status, &version, scaler.rules.least);
        if scaler.is_stuck(&members) {
            Self::stop(&mut turn.status, &version);
            turn.status.scaler = scaler.memory;
            turn.status.active_versions = active;
            if current(&turn.status).is_some_and(|going| going.number != version.number) {
                // the version before goes on
                turn.within(SignedDuration::from_millis(1));
            }
            return;
        }
        Self::look_at_load(turn, &mut scaler, load, &members, now);
        let newer = members.iter().filter(|one| one.version > version.number && !one.state.has_ended());
        let mut changes: Vec<Scaling> = newer.map(|one| Scaling::End(one.number)).collect();
        changes.extend(scaler.outdated(&members, &active).into_iter().map(Scaling::End));
        changes.extend(scaler.changes(&members));
        self.note_zones(&mut turn.status, section);
        let due = pause(&turn.status, version.number).filter(|due| *due > now);
        if let Some(due) = due {
            turn.within(due.duration_since(now));
        }
        for change in changes {
            match change {
                Scaling::End(number) => {
                    turn.status.replicas.iter_mut().filter(|one| one.number == number).for_each(|one| end(one, now));
                }
                Scaling::Add(_) if due.is_some() => {}
                Scaling::Add(is_spot) => add(&mut turn.status, &version, is_spot, section),
            }
        }
        turn.status.scaler = scaler.memory;
        turn.status.active_versions = active;
        if let Some(last) = turn.status.versions.iter_mut().find(|one| one.number == version.number) {
            last.ever_ready |= scaler.ever_ready;
            if last.ever_ready {
                last.stopped.clear();
            }
        }
    }

    /// The scaler as it was after the last look.
    fn scaler(status: &FleetStatus, version: &FleetVersion, section: &Value, load: Demanded) -> Scaler {
        let rules = ScalingRules::of(section);
        let mut scaler = Scaler::new(rules.clone(), version.number);
        match status.scaler.version {
            0 => {}
            same if same == version.number => scaler.memory = status.scaler.clone(),
            _ => {
                scaler.memory = status.scaler.clone();
                scaler.update(rules, version.number, version.mode, load);
            }
        }
        scaler.mode = version.mode;
        scaler.ever_ready = version.ever_ready;
        scaler
    }

    /// Looks at the load if that is due.
    fn look_at_load(turn: &mut Turn, scaler: &mut Scaler, load: Demanded, members: &[Member], now: Timestamp) {
        let interval = SignedDuration::from_secs(i64::from(scaler.interval()));
        let last: Timestamp = scaler.memory.looked_at.parse().unwrap_or(Timestamp::MIN);
        let due = api::time::later(last, interval);
        let is_asked = matches!(load, Demanded::Requests(1..) | Demanded::Waiting(1..));
        let is_first = scaler.memory.target == 0 && is_asked;
        // a job that waits at zero workers gets one, however few wait
        let load = match (is_first, load, &scaler.rules.demand) {
            (true, Demanded::Waiting(jobs), Demand::Queue(least)) => Demanded::Waiting(jobs.max(*least)),
            _ => load,
        };
        // the first replica needs no look
        if due <= now || is_first {
            let before = (scaler.memory.target, scaler.memory.up, scaler.memory.down);
            scaler.look(load, members);
            if before != (scaler.memory.target, scaler.memory.up, scaler.memory.down) {
                scaler.memory.looked_at = now.to_string();
            }
        }
        let pause = if due > now { due.duration_since(now) } else { interval };
        turn.within(pause);
    }

    /// Ends an update that cannot succeed. The version before goes on.
    fn stop(status: &mut FleetStatus, version: &FleetVersion) {
        let failed = status.replicas.iter().find(|one| one.version == version.number && one.is_fatal);
        let Some(failed) = failed else { return };
        let why = format!("replica {} is {}: {}", failed.number, failed.state.as_str(), failed.message);
        if let Some(one) = status.versions.iter_mut().find(|one| one.number == version.number) {
            one.stopped = why;
        }
    }

    /// Remembers the zones of spot machines, and in which of them machines were lost.
    fn note_zones(&self, status: &mut FleetStatus, section: &Value) {
        if section["replica_policy"]["spot_placer"].is_null() {
            return;
        }
        let clusters = self.jobs.iter().filter_map(|own| own.cluster.as_ref());
        for at in clusters.flat_map(|(_, cluster)| &cluster.spec.candidates).filter(|at| at.spot) {
            let name = place(&[&at.provider, &at.region, &at.zone]);
            if status.zones.len() < ZONES_MAX && !status.zones.iter().any(|zone| zone.place == name) {
                status.zones.push(FleetZone { place: name, hourly_price: at.hourly_price });
            }
        }
        let before = |number: u32| self.status.replicas.iter().find(|one| one.number == number);
        let lost = status.replicas.iter().filter(|one| {
            one.state == State::Preempted && before(one.number).is_some_and(|before| before.state != State::Preempted)
        });
        let lost: Vec<String> = lost.map(|one| one.place.clone()).collect();
        let zones = zones(status);
        let mut preempted: BTreeSet<String> = status.preempted.iter().cloned().collect();
        for place in lost {
            spot::note_preempted(&zones, &mut preempted, &place);
        }
        status.preempted = preempted.into_iter().collect();
    }

    /// The state as a whole, and what to say about it.
    pub(super) fn state(&self, status: &FleetStatus, now: Timestamp) -> (FleetState, String) {
        let newest = status.versions.last();
        let stopped = newest.filter(|version| !version.stopped.is_empty());
        let told = stopped.map(|version| match status.versions.len() {
            1 => format!("the control plane makes no more replicas: {}", version.stopped),
            _ => format!("the update to version {} has stopped: {}", version.number, version.stopped),
        });
        let mut told = told.unwrap_or_default();
        if self.kind == FleetKind::Service && !self.status.load.message.is_empty() {
            told = if told.is_empty() {
                self.status.load.message.clone()
            } else {
                format!("{told}\n{}", self.status.load.message)
            };
        }
        let pause = current(status).and_then(|version| pause(status, version.number)).filter(|due| *due > now);
        if let (true, Some(due)) = (told.is_empty(), pause) {
            told =
                format!("replicas fail before they are ready; the control plane makes the next one at {due} or later");
        }
        let is_there = |one: &&Replica| !one.state.has_ended();
        if status.replicas.iter().any(|one| one.state == State::Ready) {
            return (FleetState::Ready, told);
        }
        if stopped.is_some() && status.versions.iter().all(|version| !version.stopped.is_empty()) {
            return (FleetState::Failed, told);
        }
        if status.replicas.iter().filter(is_there).count() == 0 && status.scaler.target == 0 {
            return (FleetState::NoReplica, told);
        }
        let waits = status.replicas.iter().filter(is_there).find(|one| !one.message.is_empty());
        if told.is_empty() {
            told = waits.map(|one| format!("replica {}: {}", one.number, one.message)).unwrap_or_default();
        }
        (FleetState::ReplicaInit, told)
    }
}

fn zones(status: &FleetStatus) -> Vec<Zone> {
    status.zones.iter().map(|zone| Zone { place: zone.place.clone(), hourly: zone.hourly_price }).collect()
}

/// When the next replica of a version may be made, after replicas of it have failed in a row without having been ready.
fn pause(status: &FleetStatus, version: u32) -> Option<Timestamp> {
    let of_version = || status.replicas.iter().filter(move |one| one.version == version);
    let last_ready = of_version().filter(|one| !one.ready_at.is_empty()).map(|one| one.number).max().unwrap_or(0);
    let failed: Vec<&Replica> =
        of_version().filter(|one| one.number > last_ready && one.is_fatal && one.ready_at.is_empty()).collect();
    let last = failed.last()?;
    let count = u32::try_from(failed.len()).unwrap_or(u32::MAX);
    let pause = backoff::seconds(count, PAUSE_SECS, PAUSE_MAX_SECS);
    Some(api::time::later_secs(last.ended_at.parse().ok()?, pause))
}

/// Ends a replica, unless it has ended or is being ended.
pub(super) fn end(replica: &mut Replica, now: Timestamp) {
    if !replica.state.has_ended() {
        replica.is_ending = true;
        replica.state = State::ShuttingDown;
        replica.message.clear();
        replica.ended_at = now.to_string();
    }
}

fn add(status: &mut FleetStatus, version: &FleetVersion, is_spot: Option<bool>, section: &Value) {
    status.made = status.made.saturating_add(1);
    let used: Vec<String> =
        status.replicas.iter().filter(|one| !one.state.has_ended()).map(|one| one.place.clone()).collect();
    let is_placed = is_spot != Some(false) && !section["replica_policy"]["spot_placer"].is_null();
    let preempted: BTreeSet<String> = status.preempted.iter().cloned().collect();
    let zones = zones(status);
    let place = Some(&zones).filter(|_| is_placed).and_then(|zones| spot::next(zones, &preempted, &used));
    status.replicas.push(Replica {
        number: status.made,
        version: version.number,
        is_spot,
        place: place.map(|zone| zone.place.clone()).unwrap_or_default(),
        ..Replica::default()
    });
}
