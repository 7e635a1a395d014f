//! Seeded whole-system simulator with faults.
//!
//! The real reconcilers, the real API server over its memory store, made-up nodes and a made-up user, all in one thread,
//! with a clock and chance of their own. A controller looks at what its queue holds, and only watches and timers put something
//! there: it may see the world as it was, be killed between any two calls, be refused a call, or lose the answer to one that was
//! done. A run has three parts:
//!
//! 1. a storm: each step lets one of them do one thing, and anything may go wrong;
//! 2. a life of days: jobs run for minutes to days, things are made, deleted and suspended, nodes die, return or are replaced, and
//!    controllers are restarted. Time passes up to whatever is due next, so that it is spent where something happens;
//! 3. an end: nobody is killed any more, and after [`FAULTY_ROUNDS`] rounds nothing goes wrong either. Everything must come to
//!    rest, with nothing left to do that nobody was woken for, and with nothing to do when the machine's clock is set.
//!
//! [`invariants`] hold after every step. The same seed gives the same run.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod actors;
pub mod bugs;
mod cluster;
pub mod dice;
pub mod invariants;
mod view;

use actors::{Actor, logic};
use bugs::{Bug, Mistake};
use cluster::Cluster;
pub use cluster::Workload;
use dice::Dice;
use invariants::Watchdog;
use std::fmt;
use std::time::Duration;

/// Steps of the storm.
const STEPS: usize = 300;
/// How long a life lasts: this, and up to twice as much more.
const LIFE: Duration = Duration::from_hours(48);
/// How often something happens in it that nobody waits for: after this and up to ten times as long.
const PAUSE_SECS: u64 = 7200;
/// Rounds after them, each letting every controller do all that is due, before a run counts as not coming to rest.
const ROUNDS_MAX: usize = 400;
/// The first of them, in which pods still fail and calls still get lost.
const FAULTY_ROUNDS: usize = 12;
/// How many objects a controller may look at in one round.
const LOOKS_MAX: usize = 2000;

/// Seeds that found a fault once (`seeds.txt`).
pub fn kept_seeds() -> Vec<u64> {
    let lines =
        include_str!("../seeds.txt").lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    lines.map(|seed| seed.parse().expect("invariant: seeds.txt holds numbers, which a test reads")).collect()
}

/// A run that broke a promise.
#[derive(Debug)]
pub struct Failure {
    pub seed: u64,
    pub workload: Workload,
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
        let world = if self.workload == Workload::MpiJobs { " --mpi" } else { "" };
        writeln!(f, "replay: cargo run --release -p sim -- --seed {}{world}", self.seed)?;
        write!(f, "to be kept, with what it found, in crates/sim/seeds.txt")
    }
}

/// How much a run did: to see that seeds are not all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub writes: usize,
    pub finished: usize,
    /// Launchers of MPIJobs that started: each was judged by whether it found its workers.
    pub starts: usize,
    pub rounds: usize,
    /// How long it lasted by its own clock.
    pub millis: u64,
}

/// Runs one seed.
///
/// # Errors
/// The first broken promise.
pub fn run(seed: u64, workload: Workload) -> Result<Summary, Box<Failure>> {
    run_with(seed, workload, None)
}

/// Runs one seed with a bug in a controller.
///
/// # Errors
/// The first broken promise: the bug is found.
pub fn run_with(seed: u64, workload: Workload, bug: Option<Bug>) -> Result<Summary, Box<Failure>> {
    let mut dice = Dice::new(seed);
    let cluster = Cluster::new(seed, &mut dice, workload);
    if bug.is_some_and(|bug| matches!(bug.mistake, Mistake::FollowsMachineClock)) {
        cluster.follow_machine_clock();
    }
    let mut actors: Vec<Actor> = logic(workload).into_iter().map(|logic| Actor::new(logic, bug)).collect();
    let mut watchdog = Watchdog::default();
    let failed = |step: usize, what: String| {
        Box::new(Failure { seed, workload, step, what, trace: cluster.trace.borrow().clone() })
    };

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
            90..94 => cluster.user_step(&mut dice),
            94 => cluster.node_fate(&mut dice),
            _ => cluster.pass_time(&mut dice),
        }
        watchdog.check(&cluster).map_err(|what| failed(step, what))?;
    }

    let mut step = STEPS;
    live(&cluster, &mut actors, &mut dice, &mut |cluster, looks| {
        step += 1;
        patience(looks).and_then(|()| watchdog.check(cluster)).map_err(|what| failed(step, what))
    })?;

    // everybody sees everything, until nobody has anything left to do. Nobody is killed any more: what starts anew looks at
    // everything, and would hide what it was not woken for. Soon pods succeed, and calls arrive.
    cluster.resume_all();
    cluster.settle_nodes(&mut dice);
    cluster.kills.set(false);
    for round in 0..ROUNDS_MAX {
        let before = cluster.writes();
        let mut faults = (round < FAULTY_ROUNDS).then_some(&mut dice);
        let mut check = |cluster: &Cluster, looks| {
            patience(looks).and_then(|()| watchdog.check(cluster)).map_err(|what| failed(step + round, what))
        };
        work(&cluster, &mut actors, faults.as_deref_mut(), false, &mut check)?;
        if cluster.node_settle(faults.as_deref_mut()) || cluster.writes() != before {
            continue;
        }
        let timer = actors.iter().filter_map(|actor| actor.next_at(&cluster)).min();
        if cluster.wait(timer, faults.is_some(), None) {
            continue;
        }
        for actor in &mut actors {
            actor.look_at_everything(&cluster).map_err(|what| failed(step + round, what))?;
        }
        watchdog.check_at_rest(&cluster).map_err(|what| failed(step + round, what))?;
        cluster.set_clock();
        for actor in &mut actors {
            let moved = actor.look_at_everything(&cluster);
            moved.map_err(|what| failed(step + round, format!("the machine's clock was set: {what}")))?;
        }
        let millis = cluster.elapsed().as_millis() as u64;
        return Ok(Summary {
            writes: cluster.writes(),
            finished: watchdog.finished(),
            starts: cluster.starts(),
            rounds: round,
            millis,
        });
    }
    Err(failed(step + ROUNDS_MAX, format!("does not come to rest within {ROUNDS_MAX} rounds")))
}

/// What must hold now; with how many objects a controller has looked at without a pause.
type Check<'a> = dyn FnMut(&Cluster, usize) -> Result<(), Box<Failure>> + 'a;

fn patience(looks: usize) -> Result<(), String> {
    if looks > LOOKS_MAX { Err(format!("a controller looks at more than {LOOKS_MAX} objects")) } else { Ok(()) }
}

fn later(cluster: &Cluster, seconds: u64) -> Duration {
    cluster.elapsed().saturating_add(Duration::from_secs(seconds))
}

/// Days of a cluster.
fn live(cluster: &Cluster, actors: &mut [Actor], dice: &mut Dice, check: &mut Check<'_>) -> Result<(), Box<Failure>> {
    let end = later(cluster, LIFE.as_secs() + dice.below(2 * LIFE.as_secs()));
    let mut next = cluster.elapsed();
    while cluster.elapsed() < end {
        work(cluster, actors, Some(dice), true, check)?;
        if cluster.node_settle(Some(dice)) {
            continue;
        }
        // watches may lag, but not for hours
        let before = cluster.writes();
        work(cluster, actors, Some(dice), false, check)?;
        if cluster.writes() != before {
            continue;
        }
        let timer = actors.iter().filter_map(|actor| actor.next_at(cluster)).min();
        cluster.wait(timer, true, Some(next));
        if cluster.elapsed() < next {
            continue;
        }
        next = later(cluster, PAUSE_SECS + dice.below(10 * PAUSE_SECS));
        cluster.set_clock_now_and_then();
        match dice.below(10) {
            0..7 => cluster.user_day(dice),
            7..9 => cluster.node_fate(dice),
            _ => actors.iter_mut().for_each(|actor| actor.restart_with(cluster)),
        }
        check(cluster, 0)?;
    }
    Ok(())
}

/// Lets every controller do all that is due; with dice, calls get lost on the way, and with `lags` watches lag.
fn work(
    cluster: &Cluster,
    actors: &mut [Actor],
    mut dice: Option<&mut Dice>,
    lags: bool,
    check: &mut Check<'_>,
) -> Result<(), Box<Failure>> {
    for actor in actors {
        cluster.remember();
        actor.catch_up(cluster, dice.as_deref_mut().filter(|_| lags));
        let mut looks = 0;
        while actor.work(cluster, dice.as_deref_mut()) {
            actor.catch_up(cluster, dice.as_deref_mut().filter(|_| lags));
            looks += 1;
            check(cluster, looks)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_hold_on_some_seeds() {
        // `make sim` runs many more
        for seed in kept_seeds().into_iter().chain(1..=4) {
            if let Err(failure) = run(seed, Workload::TrainJobs) {
                panic!("{failure}");
            }
        }
    }

    #[test]
    fn each_bug_has_a_kept_seed() {
        for bug in bugs::BUGS {
            assert!(
                bugs::kept_seed(bug.name).is_some(),
                "{}: copy what `sim --bugs` prints to bug-seeds.txt",
                bug.name
            );
        }
    }

    #[test]
    fn promises_hold_for_mpijobs() {
        let mut starts = 0;
        for seed in 1..=6 {
            match run(seed, Workload::MpiJobs) {
                Ok(summary) => starts += summary.starts,
                Err(failure) => panic!("{failure}"),
            }
        }
        assert!(starts > 0, "what is promised of launchers was never put to the test");
    }

    #[test]
    fn a_launcher_for_which_no_room_is_kept_is_missed() {
        // seeds whose clusters keep their nodes
        let mut seeds = (1..=10).map(|number| number * cluster::CALM);
        let bug = bugs::BUGS.iter().find(|bug| matches!(bug.mistake, Mistake::Is(_))).copied();
        assert!(bug.is_some() && seeds.any(|seed| run_with(seed, Workload::MpiJobs, bug).is_err()));
        if let Err(failure) = run(cluster::CALM, Workload::MpiJobs) {
            panic!("{failure}");
        }
    }

    #[test]
    fn bugs_are_planted_where_there_are_controllers() {
        let names: Vec<&str> = logic(Workload::MpiJobs).iter().map(|make| make().name()).collect();
        for bug in bugs::BUGS {
            assert!(bug.actor.is_empty() || names.contains(&bug.actor), "{}: no controller {}", bug.name, bug.actor);
        }
        // what seeds make of each: `cargo run --release -p sim -- --bugs`
        assert!((1..=10).any(|seed| run_with(seed, bugs::BUGS[0].workload(), Some(bugs::BUGS[0])).is_err()));
    }

    #[test]
    fn a_seed_replays() {
        for workload in [Workload::TrainJobs, Workload::MpiJobs] {
            let told = || run(3, workload).map_err(|f| f.to_string());
            assert_eq!(told(), told());
        }
    }
}
