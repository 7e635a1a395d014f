//! A world of managed jobs: the real controllers of jobs, turns, clusters, launches and machines, in memory and by a virtual clock, on a cloud
//! that preempts machines, has no room, loses answers, shows outdated lists and cannot be reached for a while; and a control plane that
//! looks at outdated views and is killed between any two writes.
//!
//! `JOBS_SEEDS` is the number of seeds (default 4; `make soak`: 1,000), `JOBS_FROM` the first of them. A seed that fails is printed with the
//! command that runs it alone.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_precision_loss,
    reason = "a test that panics fails, as it should"
)]

#[path = "world/budget.rs"]
mod budget;
#[path = "world/bugs.rs"]
mod bugs;
#[path = "world/callbacks.rs"]
mod callbacks;
#[path = "world/chance.rs"]
mod chance;
#[path = "world/cloud.rs"]
mod cloud;
#[path = "world/control.rs"]
mod control;
#[path = "world/jobs.rs"]
mod jobs;
#[path = "world/judge.rs"]
mod judge;
#[path = "world/runs.rs"]
mod runs;
#[path = "world/sum.rs"]
mod sum;
#[path = "world/worlds.rs"]
mod worlds;

use bugs::Bug;
use jobs::Sim;
use std::panic::{AssertUnwindSafe, catch_unwind};
use sum::Sum;

#[expect(clippy::disallowed_methods, reason = "a test has no other arguments")]
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Seeds that have found a fault: a task that lost its machines before its code ran was called STARTING again.
const KEPT: [u64; 1] = [19];

/// Runs a seed to its end.
fn run(seed: u64, bug: Bug) -> Result<Sum, String> {
    play(|| Sim::new(seed, bug))
}

fn play(sim: impl Fn() -> Sim) -> Result<Sum, String> {
    match catch_unwind(AssertUnwindSafe(|| sim().run())) {
        Ok(done) => done,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            Err(said.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
        }
    }
}

#[test]
fn jobs_recover_on_evidence_and_leave_nothing() {
    let (from, seeds) = (number("JOBS_FROM", 1), number("JOBS_SEEDS", 4));
    let work = |seeds: Vec<u64>| {
        let mut sum = Sum::default();
        for seed in seeds {
            let again = || format!("JOBS_FROM={seed} JOBS_SEEDS=1 cargo test -p managed --test jobs_world");
            sum.add(&run(seed, Bug::None).map_err(|why| format!("seed {seed}: {why}\n{}", again()))?);
        }
        Ok(sum)
    };
    let kept = KEPT.into_iter().filter(|_| from == 1);
    let all: Vec<u64> = kept.chain(from..from + seeds).collect();
    let mut sum = Sum::default();
    std::thread::scope(|scope| {
        let half = |which: u64| all.iter().copied().filter(|seed| seed % 2 == which).collect();
        let threads = [0, 1].map(|which| scope.spawn(move || work(half(which))));
        for thread in threads {
            let done: Result<Sum, String> = thread.join().expect("a thread");
            sum.add(&done.unwrap_or_else(|why| panic!("{why}")));
        }
    });
    println!("{sum}");
    assert!(
        sum.recoveries > seeds && sum.replaced > 0 && sum.cancelled > 0 && sum.kills > seeds,
        "too little happened: {sum}"
    );
}

/// `JOBS_BUGS` is the number of bugs to plant (default 3; `make soak`: all).
#[test]
fn planted_bugs_are_found() {
    let count = usize::try_from(number("JOBS_BUGS", 3)).unwrap_or(usize::MAX);
    for bug in Bug::ALL.into_iter().take(count) {
        let found = (1..60).find_map(|seed| Some((seed, run(seed, bug).err()?)));
        let (seed, why) = found.unwrap_or_else(|| panic!("no seed fails with {bug:?}"));
        println!("{bug:?}: seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}

/// `BUDGET_SEEDS` is the number of seeds (default 1; `make soak`: 100), `BUDGET_FROM` the first of them.
#[test]
fn no_budget_is_passed_by_more_than_a_minute() {
    let mut sum = Sum::default();
    let from = number("BUDGET_FROM", 1);
    for seed in from..from + number("BUDGET_SEEDS", 1) {
        let chance = &mut chance::Chance(seed);
        let hours = 0.2 * 1.5_f64.powi(i32::try_from(chance.below(12)).expect("few"));
        let reserved = [0, 0, 2, 10][usize::try_from(chance.below(4)).expect("few")];
        let run = || Sim::new(seed, Bug::None).limited(hours, reserved).run();
        let done = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|panic| Err(format!("{:?}", panic.downcast_ref::<String>())));
        sum.add(&done.unwrap_or_else(|why| panic!("BUDGET_FROM={seed}: limit {hours}, reserve {reserved}: {why}")));
    }
    println!("{sum}; {} budgets used up, {} jobs stopped", sum.crossed, sum.stopped);
    assert!(sum.stopped > 0 && sum.succeeded > 0, "too little happened: {sum}");
}

/// `CROWD_SEEDS` is the number of seeds (default 1; `make soak`: 200), `CROWD_FROM` the first of them, `CROWD_BUGS` the number of bugs to
/// plant (default 1; `make soak`: all).
#[test]
fn a_job_that_waits_gets_a_free_machine_soon() {
    let mut sum = Sum::default();
    let from = number("CROWD_FROM", 1);
    for seed in from..from + number("CROWD_SEEDS", 1) {
        let done = play(|| Sim::new(seed, Bug::None).crowded());
        sum.add(&done.unwrap_or_else(|why| panic!("CROWD_FROM={seed} CROWD_SEEDS=1: {why}")));
    }
    println!("{sum}");
    assert!(sum.succeeded > 0, "too little happened: {sum}");
    let bugs = usize::try_from(number("CROWD_BUGS", 1)).unwrap_or(usize::MAX);
    for bug in Bug::OF_CROWDS.into_iter().take(bugs) {
        let found = (1..30).find_map(|seed| Some((seed, play(|| Sim::new(seed, bug).crowded()).err()?)));
        let (seed, why) = found.unwrap_or_else(|| panic!("no seed fails with {bug:?}"));
        println!("{bug:?}: seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}

/// `COMPOSED_SEEDS` is the number of seeds (default 1; `make soak`: 200), `COMPOSED_FROM` the first of them, `COMPOSED_BUGS` the number of
/// bugs to plant (default 1; `make soak`: all).
#[test]
fn tasks_of_a_pipeline_follow_each_other_and_those_of_a_group_go_together() {
    let mut sum = Sum::default();
    let from = number("COMPOSED_FROM", 1);
    for seed in from..from + number("COMPOSED_SEEDS", 1) {
        let done = play(|| Sim::new(seed, Bug::None).composed());
        sum.add(&done.unwrap_or_else(|why| panic!("COMPOSED_FROM={seed} COMPOSED_SEEDS=1: {why}")));
    }
    println!("{sum}");
    assert!(sum.succeeded > 0, "too little happened: {sum}");
    let bugs = usize::try_from(number("COMPOSED_BUGS", 1)).unwrap_or(usize::MAX);
    for bug in Bug::OF_COMPOSED.into_iter().take(bugs) {
        let found = (1..60).find_map(|seed| Some((seed, play(|| Sim::new(seed, bug).composed()).err()?)));
        let (seed, why) = found.unwrap_or_else(|| panic!("no seed fails with {bug:?}"));
        println!("{bug:?}: seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}

#[test]
fn a_run_replays() {
    let told = || run(3, Bug::None).map(|sum| sum.to_string());
    assert_eq!(told(), told());
}
