//! The simulated cloud. It takes machines away, loses answers, shows outdated lists, and cannot be reached for some time.

use crate::chance::Chance;
use api::sky::Candidate;
use jiff::Timestamp;
use managed::machine::{Answer, Call};
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen, State};
use std::collections::{BTreeMap, BTreeSet};

impl Chance {
    /// Whole seconds between two bounds.
    pub fn secs(&mut self, from: i64, to: i64) -> i64 {
        from + i64::try_from(self.below(u64::try_from(to - from).unwrap_or(1))).unwrap_or(0)
    }
}

pub const ZONES: usize = 4;

/// A machine that exists.
#[derive(Clone, Debug)]
pub struct Made {
    pub token: String,
    pub id: String,
    pub zone: usize,
    node: String,
    /// From when on lists and lookups show it.
    visible: Timestamp,
    /// When it will be gone, if it is being ended.
    pub gone: Option<Timestamp>,
    /// When the cloud takes it away.
    pub preempted: Timestamp,
}

/// A machine that the cloud took away.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its Node.
    pub node: String,
    /// Until when lookups say nothing of it.
    lag: Timestamp,
}

pub struct Cloud {
    pub machines: Vec<Made>,
    /// Creations that take effect later.
    late: Vec<(Timestamp, Request)>,
    /// By token.
    pub taken: BTreeMap<String, Taken>,
    /// Until when nobody reaches a zone.
    pub dark: [Timestamp; ZONES],
    /// Until when a zone has no room.
    pub full: [Timestamp; ZONES],
    /// How many machines each zone has, where that is limited.
    pub hosts: Option<[usize; ZONES]>,
    /// The provider refuses everything: its key is wrong.
    pub refuses: bool,
    /// Tokens that were refused.
    pub refused: BTreeSet<String>,
    /// Seconds of machines so far.
    pub machine_secs: i64,
    ids: u64,
    /// Whether things go wrong.
    pub faults: bool,
    pub calls: u64,
}

pub fn zone_of(candidate: &Candidate) -> usize {
    candidate.region.trim_start_matches('z').parse().unwrap_or(0)
}

fn later(at: Timestamp, secs: i64) -> Timestamp {
    api::time::later_secs(at, secs)
}

fn lost<T>() -> Result<T, Failure> {
    Err(Failure::new(Fate::Retry, "no answer"))
}

impl Cloud {
    pub fn new() -> Self {
        Self {
            machines: Vec::new(),
            late: Vec::new(),
            taken: BTreeMap::new(),
            dark: [Timestamp::MIN; ZONES],
            full: [Timestamp::MIN; ZONES],
            hosts: None,
            refuses: false,
            refused: BTreeSet::new(),
            machine_secs: 0,
            ids: 0,
            faults: true,
            calls: 0,
        }
    }

    fn wrong(&self, chance: &mut Chance, of_hundred: u64) -> bool {
        self.faults && chance.percent(of_hundred)
    }

    pub fn is_dark(&self, zone: usize, now: Timestamp) -> bool {
        self.dark[zone] > now
    }

    pub fn machine(&self, token: &str) -> Option<&Made> {
        self.machines.iter().find(|made| made.token == token)
    }

    /// Brings the cloud to this moment.
    pub fn pass(&mut self, now: Timestamp, chance: &mut Chance) {
        let late: Vec<(Timestamp, Request)> = self.late.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, request) in late {
            self.appear(&request, now, chance);
        }
        let faults = self.faults;
        let (taken, gone) = (&mut self.taken, |made: &Made| made.gone.is_some_and(|gone| gone <= now));
        self.machines.retain(|made| {
            if gone(made) {
                return false;
            }
            let is_taken = faults && made.preempted <= now;
            if is_taken {
                let lag = if chance.percent(40) { chance.secs(1, 90) } else { 0 };
                let node = made.node.clone();
                taken.insert(made.token.clone(), Taken { node, lag: later(now, lag) });
            }
            !is_taken
        });
    }

    /// The next moment at which something happens.
    pub fn next(&self) -> Option<Timestamp> {
        let late = self.late.iter().map(|(at, _)| *at);
        let faults = self.faults;
        let machines =
            self.machines.iter().filter_map(|made| made.gone.into_iter().chain(faults.then_some(made.preempted)).min());
        late.chain(machines).min()
    }

    /// Machines that exist or will.
    pub fn left(&self) -> usize {
        self.machines.len() + self.late.len()
    }

    fn appear(&mut self, request: &Request, now: Timestamp, chance: &mut Chance) -> Seen {
        self.ids += 1;
        let zone = zone_of(&request.candidate);
        let lag = if self.wrong(chance, 20) { chance.secs(1, 30) } else { 0 };
        // by price: the cheaper a zone, the sooner it takes a machine back
        let lives = chance.secs(600, 40_000) * (i64::try_from(zone).unwrap_or(0) + 1);
        let made = Made {
            token: request.token.clone(),
            id: format!("i{}", self.ids),
            zone,
            node: request.node.clone(),
            visible: later(now, lag),
            gone: None,
            preempted: later(now, lives),
        };
        self.machines.push(made.clone());
        seen(&made)
    }

    /// The effect of a call, and its answer.
    pub fn ask(&mut self, call: &Call, zone: usize, now: Timestamp, chance: &mut Chance) -> Answer {
        self.calls += 1;
        if self.is_dark(zone, now) || self.wrong(chance, 8) {
            return lost(); // it never arrived
        }
        let answer = match call {
            Call::Create(request) => self.create(request, zone, now, chance),
            Call::Observe(machine) => self.look(machine, now, chance),
            Call::Stop(machine) | Call::Start(machine) => self.look(machine, now, chance),
            Call::Delete(machine) => {
                let goes = later(now, chance.secs(1, 8));
                let is_it = |made: &&mut Made| made.token == machine.token;
                self.machines.iter_mut().filter(is_it).for_each(|made| made.gone = made.gone.or(Some(goes)));
                self.look(machine, now, chance)
            }
        };
        if self.wrong(chance, 10) { lost() } else { answer }
    }

    fn create(&mut self, request: &Request, zone: usize, now: Timestamp, chance: &mut Chance) -> Answer {
        if let Some(made) = self.machine(&request.token).filter(|made| made.visible <= now) {
            return Ok(Found::There(seen(made)));
        }
        if self.refuses {
            self.refused.insert(request.token.clone());
            return Err(Failure::new(Fate::GiveUp, "the key is wrong"));
        }
        let comes =
            self.machine(&request.token).is_some() || self.late.iter().any(|(_, late)| late.token == request.token);
        if comes {
            return lost();
        }
        if self.full[zone] > now || self.hosts.is_some_and(|hosts| self.made_at(zone).count() >= hosts[zone]) {
            return Err(Failure::new(Fate::NextCandidate, "full"));
        }
        if self.wrong(chance, 10) {
            self.late.push((later(now, chance.secs(1, 40)), request.clone()));
            return lost();
        }
        Ok(Found::There(self.appear(request, now, chance)))
    }

    /// The tokens of machines that exist or will in a zone.
    pub fn made_at(&self, zone: usize) -> impl Iterator<Item = &str> {
        let late = self.late.iter().filter(move |(_, late)| zone_of(&late.candidate) == zone);
        let made = self.machines.iter().filter(move |made| made.zone == zone);
        made.map(|made| made.token.as_str()).chain(late.map(|(_, late)| late.token.as_str()))
    }

    fn look(&self, machine: &Handle, now: Timestamp, chance: &mut Chance) -> Answer {
        if let Some(made) = self.machine(&machine.token) {
            let is_shown = made.visible <= now && !self.wrong(chance, 6);
            return Ok(if is_shown { Found::There(seen(made)) } else { Found::Absent });
        }
        if self.late.iter().any(|(_, late)| late.token == machine.token) {
            return Ok(Found::Absent);
        }
        match self.taken.get(&machine.token) {
            Some(taken) if taken.lag > now => Ok(Found::Absent),
            Some(_) => Ok(Found::ended("it was preempted")),
            None => Ok(Found::ended("it is terminated")),
        }
    }

    /// What the sweep lists; `None`: no answer.
    pub fn list(&self, now: Timestamp) -> Option<Vec<Seen>> {
        if (0..ZONES).any(|zone| self.is_dark(zone, now)) {
            return None;
        }
        Some(self.machines.iter().filter(|made| made.visible <= now).map(seen).collect())
    }
}

fn seen(made: &Made) -> Seen {
    Seen {
        token: made.token.clone(),
        id: made.id.clone(),
        state: if made.gone.is_some() { State::Ending } else { State::Running },
        node: made.node.clone(),
        address: "10.0.0.1".into(),
        home: "/home".into(),
    }
}
