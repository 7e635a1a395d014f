//! Jobs that wait for capacity: when some may be free, and which of them tries to get it.
//!
//! Jobs that look for the same machines at the same places form a class. Capacity that appears at a place opens the classes that may use
//! it. The first job of all open classes is tried; once a try fails, its class is closed, so the others of the class are not tried in vain.
//! A try that gets its machines leaves the class open, because there may be more. At a place as many machines are tried for at a time as
//! became free there, one at least.
//!
//! A job that needs several machines may get some of them and give them back because others are missing. Whoever failed meanwhile is tried
//! again, but never the job itself, so two such jobs do not take turns for ever.

use crate::looks::Rank;
use api::object::Key;
use api::sky::CapacityWanted;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// For how long a try keeps others from its places, if nothing is known of it yet.
const HOLDS: SignedDuration = SignedDuration::from_secs(20);

/// A job that waits for capacity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiter {
    pub rank: Rank,
    pub wanted: CapacityWanted,
    /// When its latest launch failed.
    pub failed_at: Timestamp,
    /// It is not tried sooner than this.
    pub earliest: Timestamp,
}

/// A launch that may use capacity.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Launching {
    /// What it looks for; `None`: that is not known yet.
    pub wanted: Option<CapacityWanted>,
    /// When its attempt began, if there is one.
    pub began: Option<Timestamp>,
}

/// Capacity that has appeared at a place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Freed {
    pub place: String,
    /// The job whose machine it was.
    pub job: Option<Key>,
    /// When the machine was made, if its attempt failed because others were missing.
    pub in_vain_since: Option<Timestamp>,
}

#[derive(Default)]
struct Class {
    jobs: BTreeMap<Rank, Waiter>,
    /// Places at which there may be capacity for it.
    open: BTreeSet<String>,
    /// The latest failure of one of its jobs.
    failed: Option<(Timestamp, Key)>,
}

struct Try {
    launching: Launching,
    since: Timestamp,
    /// What its class had open before it.
    open: BTreeSet<String>,
    /// Places at which capacity has appeared since.
    freed: BTreeSet<String>,
    /// Whether some may have appeared at any place: the control plane has started since.
    is_unknown: bool,
}

/// All of them.
#[derive(Default)]
pub(super) struct Capacity {
    classes: BTreeMap<CapacityWanted, Class>,
    tries: BTreeMap<Key, Try>,
    /// Machines by place that became free and were not taken since.
    free: BTreeMap<String, u32>,
}

/// A place, as the class of this request knows it; `None`: it is none of its places. Where a request has too many places to name, they are
/// one place without a name.
fn known(wanted: &CapacityWanted, place: &str) -> Option<String> {
    match wanted.places.is_empty() {
        true => Some(String::new()),
        false => wanted.places.iter().find(|one| *one == place).cloned(),
    }
}

impl Capacity {
    /// A job waits. `is_first`: nothing is known of what happened since its launch failed, so it is tried.
    pub fn wait(&mut self, waiter: Waiter, is_first: bool) {
        let key = &waiter.rank.key;
        let attempt = self.tries.remove(key);
        let mut is_unknown = is_first;
        let class = self.classes.entry(waiter.wanted.clone()).or_default();
        match attempt {
            Some(attempt) if waiter.failed_at >= attempt.since => {
                class.failed = Some((waiter.failed_at, key.clone()));
                is_unknown |= attempt.is_unknown;
                class.open = attempt.freed.iter().filter_map(|place| known(&waiter.wanted, place)).collect();
            }
            // it had no turn after all
            Some(attempt) => class.open.extend(attempt.open),
            None => {}
        }
        if is_unknown {
            class.open.extend(by_place(&waiter.wanted).map(|(place, _)| place));
        }
        class.jobs.insert(waiter.rank.clone(), waiter);
    }

    /// A job is being launched. `is_first`: nothing is known of what happened since its attempt began.
    pub fn launch(&mut self, key: &Key, launching: Launching, is_first: bool, now: Timestamp) {
        let since = launching.began.unwrap_or(now);
        match self.tries.get_mut(key) {
            Some(one) => {
                if launching.began.is_some() && launching.began != one.launching.began {
                    one.since = since;
                    // it has found what appeared before
                    one.freed.clear();
                    one.is_unknown = false;
                }
                one.launching = launching;
            }
            None => {
                let (open, freed) = (BTreeSet::new(), BTreeSet::new());
                self.tries.insert(key.clone(), Try { launching, since, open, freed, is_unknown: is_first });
            }
        }
    }

    /// A job waits no longer; what it waited for is forgotten with the last job of its class.
    pub fn forget(&mut self, waiter: &Waiter) {
        if let Some(class) = self.classes.get_mut(&waiter.wanted) {
            class.jobs.remove(&waiter.rank);
            if class.jobs.is_empty() {
                self.classes.remove(&waiter.wanted);
            }
        }
    }

    /// A job is not being launched any more, and does not wait: it has its machines, or it has ended.
    pub fn settle(&mut self, key: &Key) {
        let Some(wanted) = self.tries.remove(key).and_then(|one| one.launching.wanted) else { return };
        for place in &wanted.places {
            if let Some(free) = self.free.get_mut(place) {
                *free = free.saturating_sub(wanted.nodes);
            }
        }
    }

    /// Capacity has appeared.
    pub fn appear(&mut self, freed: &Freed, now: Timestamp) {
        let place = &freed.place;
        let mut is_wanted = false;
        for (wanted, class) in &mut self.classes {
            let Some(known) = known(wanted, place) else { continue };
            let concerns = match (freed.in_vain_since, &class.failed) {
                (None, _) => true,
                (Some(since), Some((at, key))) => *at >= since && freed.job.as_ref() != Some(key),
                (Some(_), None) => false,
            };
            if concerns {
                class.open.insert(known);
                is_wanted = true;
            }
        }
        for (key, one) in &mut self.tries {
            let is_own = freed.job.as_ref() == Some(key);
            if !is_own || freed.in_vain_since.is_none() {
                one.freed.insert(place.clone());
            }
            // its own machines are gone: now its next attempt begins
            if is_own && one.launching.began.is_none() {
                one.since = now;
            }
        }
        if is_wanted {
            let free = self.free.entry(place.clone()).or_default();
            *free = free.saturating_add(1);
        }
    }

    /// Machines for which others try at each place now.
    fn tried(&self, now: Timestamp) -> BTreeMap<String, u32> {
        let mut tried: BTreeMap<String, u32> = BTreeMap::new();
        for one in self.tries.values().filter(|one| one.holds_until() > now) {
            for (place, nodes) in one.launching.wanted.iter().flat_map(by_place) {
                let count = tried.entry(place.clone()).or_default();
                *count = count.saturating_add(nodes);
            }
        }
        tried
    }

    /// A job that was picked is not tried now.
    pub fn give_up(&mut self, key: &Key) {
        self.tries.remove(key);
    }

    /// The next jobs to try, `limit` at most.
    pub fn pick(&mut self, now: Timestamp, limit: usize) -> Vec<Rank> {
        let mut picked = Vec::new();
        if self.classes.values().all(|class| class.open.is_empty()) {
            self.free.clear();
            return picked;
        }
        let mut tried = self.tried(now);
        while picked.len() < limit {
            let takes = |place: &String| {
                let free = self.free.get(place).copied().unwrap_or(0).max(1);
                tried.get(place).copied().unwrap_or(0) < free
            };
            let first =
                |class: &Class| class.jobs.first_key_value().map(|(rank, waiter)| (rank.clone(), waiter.earliest));
            let ready = self.classes.iter().filter(|(_, class)| class.open.iter().any(takes));
            let ready = ready.filter_map(|(wanted, class)| Some((first(class)?, wanted)));
            let ready = ready.filter(|((_, earliest), _)| *earliest <= now).min();
            let Some(((rank, _), wanted)) = ready.map(|(first, wanted)| (first, wanted.clone())) else { break };
            for (place, nodes) in by_place(&wanted) {
                let count = tried.entry(place.clone()).or_default();
                *count = count.saturating_add(nodes);
            }
            let Some(class) = self.classes.get_mut(&wanted) else { break };
            class.jobs.remove(&rank);
            let open = class.open.clone();
            if class.jobs.is_empty() {
                self.classes.remove(&wanted);
            }
            let launching = Launching { wanted: Some(wanted), began: None };
            let freed = BTreeSet::new();
            self.tries.insert(rank.key.clone(), Try { launching, since: now, open, freed, is_unknown: false });
            picked.push(rank);
        }
        picked
    }

    /// When [`Self::pick`] may find more although nothing has changed.
    pub fn due(&self, now: Timestamp) -> Option<Timestamp> {
        let open = || self.classes.values().filter(|class| !class.open.is_empty());
        open().next()?;
        let earliest = open().filter_map(|class| class.jobs.first_key_value()).map(|(_, waiter)| waiter.earliest);
        let holds = self.tries.values().filter(|one| one.launching.wanted.is_some()).map(Try::holds_until);
        earliest.chain(holds).filter(|at| *at > now).min()
    }
}

impl Try {
    fn holds_until(&self) -> Timestamp {
        api::time::later(self.since, HOLDS)
    }
}

/// How many machines are wanted at each place.
fn by_place(wanted: &CapacityWanted) -> impl Iterator<Item = (String, u32)> + '_ {
    let unnamed = wanted.places.is_empty().then(String::new);
    wanted.places.iter().cloned().chain(unnamed).map(|place| (place, wanted.nodes.max(1)))
}
