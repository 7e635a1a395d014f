//! Runs seeds, on all cores, and prints the first that breaks a promise.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

use clap::Parser;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Parser)]
struct Flags {
    /// Run this one seed
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run so many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    from: u64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let seeds = match flags.seed {
        Some(seed) => seed..seed + 1,
        None => flags.from..flags.from + flags.seeds,
    };
    let (done, failures) = run_all(seeds);
    let days = done.millis as f64 / 86_400_000.0;
    println!(
        "{} writes, {} jobs finished, {days:.0} simulated days, at rest after at most {} rounds",
        done.writes, done.finished, done.rounds
    );
    // of several the earliest, whichever was found first
    let Some((seed, failure)) = failures.first_key_value() else {
        println!("{} passed, 0 failed", done.runs);
        return ExitCode::SUCCESS;
    };
    println!("{failure}");
    println!("{} passed, {} failed, the first is seed {seed}", done.runs, failures.len());
    ExitCode::FAILURE
}

/// What all runs together did.
#[derive(Default)]
struct Done {
    runs: u64,
    writes: usize,
    finished: usize,
    rounds: usize,
    millis: u64,
}

/// Runs the seeds, on every core; no new ones once one has failed. A seed's run does not depend on the others.
fn run_all(seeds: Range<u64>) -> (Done, BTreeMap<u64, String>) {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let all = Mutex::new((Done::default(), BTreeMap::new()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let result = sim::run(seed);
            let (done, failures) = &mut *all.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(summary) => {
                    done.runs += 1;
                    done.writes += summary.writes;
                    done.finished += summary.finished;
                    done.millis += summary.millis;
                    done.rounds = done.rounds.max(summary.rounds);
                }
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    failures.insert(seed, failure.to_string());
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| _ = scope.spawn(work)));
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}
