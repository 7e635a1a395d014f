//! Seeded whole-system simulator with faults.
//!
//! The real reconcilers, the real API server over its memory store, a made-up node and a made-up user, all in one thread,
//! with a clock and chance of their own. Each step lets one of them do one thing. A controller looks at what its queue holds,
//! and only watches and timers put something there: it may see the world as it was, be killed between any two calls, be
//! refused a call, or lose the answer to one that was done. The last part of a run is free of faults and must come to rest,
//! with nothing left to do that nobody was woken for. [`invariants`] hold after every step. The same seed gives the same run.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod actors;
pub mod bugs;
mod cluster;
mod dice;
pub mod invariants;
mod view;

use actors::{Actor, logic};
use bugs::Bug;
use cluster::Cluster;
use dice::Dice;
use invariants::Watchdog;
use std::fmt;

/// Steps with faults.
const STEPS: usize = 240;
/// Rounds after them, each letting every controller do all that is due, before a run counts as not coming to rest.
const ROUNDS_MAX: usize = 400;
/// The first of them, in which pods still fail and calls still get lost.
const FAULTY_ROUNDS: usize = 12;
/// How many objects a controller may look at in one round.
const LOOKS_MAX: usize = 2000;

/// A run that broke a promise.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    /// The step at which it showed.
    pub step: usize,
    pub what: String,
    /// What happened before, newest last.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, step {}: {}", self.seed, self.step, self.what)?;
        for line in self.trace.iter().rev().take(30).rev() {
            writeln!(f, "  {line}")?;
        }
        write!(f, "replay: cargo run --release -p sim -- --seed {}", self.seed)
    }
}

/// How much a run did: to see that seeds are not all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub writes: usize,
    pub finished: usize,
    pub rounds: usize,
    /// How long it lasted by its own clock.
    pub millis: u64,
}

/// Runs one seed.
///
/// # Errors
/// The first broken promise.
pub fn run(seed: u64) -> Result<Summary, Box<Failure>> {
    run_with(seed, None)
}

/// Runs one seed with a bug in a controller.
///
/// # Errors
/// The first broken promise: the bug is found.
pub fn run_with(seed: u64, bug: Option<Bug>) -> Result<Summary, Box<Failure>> {
    let mut dice = Dice::new(seed);
    let cluster = Cluster::new(&mut dice);
    let mut actors: Vec<Actor> = logic().into_iter().map(|logic| Actor::new(logic, bug)).collect();
    let mut watchdog = Watchdog::default();
    let failed =
        |step: usize, what: String| Box::new(Failure { seed, step, what, trace: cluster.trace.borrow().clone() });

    for step in 0..STEPS {
        cluster.remember();
        match dice.below(100) {
            0..75 => {
                let which = dice.below(actors.len() as u64) as usize;
                let actor = &mut actors[which];
                actor.catch_up(&cluster, Some(&mut dice));
                // a worker takes a few keys before the next controller has its turn
                let mut keys = 1 + dice.below(3);
                while keys > 0 && actor.work(&cluster, Some(&mut dice)) {
                    keys -= 1;
                }
            }
            75..90 => cluster.node_step(&mut dice),
            90..95 => cluster.user_step(&mut dice),
            _ => cluster.pass_time(&mut dice),
        }
        watchdog.check(&cluster).map_err(|what| failed(step, what))?;
    }

    // everybody sees everything, until nobody has anything left to do. Nobody is killed any more: what starts anew looks at
    // everything, and would hide what it was not woken for. Soon pods succeed, and calls arrive.
    cluster.resume_all();
    cluster.kills.set(false);
    for round in 0..ROUNDS_MAX {
        let before = cluster.writes();
        let mut faults = (round < FAULTY_ROUNDS).then_some(&mut dice);
        for actor in &mut actors {
            cluster.remember();
            actor.catch_up(&cluster, None);
            let mut looks = 0;
            while actor.work(&cluster, faults.as_deref_mut()) {
                actor.catch_up(&cluster, None);
                watchdog.check(&cluster).map_err(|what| failed(STEPS + round, what))?;
                looks += 1;
                if looks > LOOKS_MAX {
                    return Err(failed(STEPS + round, format!("a controller looks at more than {LOOKS_MAX} objects")));
                }
            }
        }
        if cluster.node_settle(faults) || cluster.writes() != before {
            continue;
        }
        if let Some(at) = actors.iter().filter_map(Actor::next_at).min() {
            cluster.jump_to(at);
            continue;
        }
        for actor in &mut actors {
            actor.look_at_everything(&cluster).map_err(|what| failed(STEPS + round, what))?;
        }
        watchdog.check_at_rest(&cluster).map_err(|what| failed(STEPS + round, what))?;
        let millis = cluster.elapsed().as_millis() as u64;
        return Ok(Summary { writes: cluster.writes(), finished: watchdog.finished(), rounds: round, millis });
    }
    Err(failed(STEPS + ROUNDS_MAX, format!("does not come to rest within {ROUNDS_MAX} rounds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds that found a fault once.
    const REMEMBERED: &[u64] = &[];

    #[test]
    fn promises_hold_on_some_seeds() {
        // CI runs many more, optimised: `cargo run --release -p sim -- --seeds 1000`
        for seed in REMEMBERED.iter().copied().chain(1..=6) {
            if let Err(failure) = run(seed) {
                panic!("{failure}");
            }
        }
    }

    #[test]
    fn bugs_are_planted_where_there_are_controllers() {
        let names: Vec<&str> = logic().iter().map(|logic| logic.name()).collect();
        for bug in bugs::BUGS {
            assert!(bug.actor.is_empty() || names.contains(&bug.actor), "{}: no controller {}", bug.name, bug.actor);
        }
        // what seeds make of each: `cargo run --release -p sim -- --bugs`
        assert!(run_with(1, Some(bugs::BUGS[0])).is_err());
    }

    #[test]
    fn a_seed_replays() {
        assert_eq!(run(3).map_err(|f| f.to_string()), run(3).map_err(|f| f.to_string()));
    }
}
