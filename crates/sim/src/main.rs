//! Runs seeds, on all cores, and prints the first that breaks a promise.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

use clap::Parser;
use sim::bugs::{BUGS, Bug, kept_seed};
use sim::{Failure, Workload};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// As in the product: a quarter of the time was the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Clusters whose user makes MPIJobs, not TrainJobs
    #[arg(long)]
    mpi: bool,
    /// Plant bugs, one after the other: each must fail one of the seeds
    #[arg(long, conflicts_with = "seed")]
    bugs: bool,
    /// Plant those bugs alone whose names hold this text
    #[arg(long, requires = "bugs")]
    bug: Option<String>,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let range = flags.from..flags.from + flags.seeds;
    if flags.bugs {
        return plant(&range.collect::<Vec<_>>(), flags.bug.as_deref().unwrap_or_default());
    }
    let seeds = match flags.seed {
        Some(seed) => vec![seed],
        // kept seeds are of clusters with TrainJobs
        None if flags.mpi => range.collect(),
        None => sim::kept_seeds().into_iter().chain(range).collect(),
    };
    let workload = if flags.mpi { Workload::MpiJobs } else { Workload::TrainJobs };
    let (done, failures) = run_all(&seeds, workload, None);
    let years = done.millis as f64 / 86_400_000.0 / 365.0;
    let starts = if flags.mpi { format!("{} launchers' starts, ", done.starts) } else { String::new() };
    println!(
        "{} writes, {} jobs finished, {starts}{years:.1} cluster-years, at rest after at most {} rounds",
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

/// Runs seeds with each bug until one fails, and says which are never found. The lines of standard output are those of `bug-seeds.txt`.
fn plant(seeds: &[u64], named: &str) -> ExitCode {
    let bugs: Vec<&Bug> = BUGS.iter().filter(|bug| bug.name.contains(named)).collect();
    let mut found = 0;
    for bug in &bugs {
        let seeds: Vec<u64> = kept_seed(bug.name).into_iter().chain(seeds.iter().copied()).collect();
        let (done, failures) = run_all(&seeds, bug.workload(), Some(**bug));
        match failures.first_key_value() {
            Some((seed, failure)) => {
                println!("{seed}\t{}", bug.name);
                eprintln!("  found after {} seeds: {}", done.runs + 1, failure.what);
                found += 1;
            }
            None => eprintln!("{}: NOT FOUND in {} seeds", bug.name, done.runs),
        }
    }
    let missed = bugs.len() - found;
    eprintln!("{found} bugs found, {missed} not");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What all runs together did.
#[derive(Default)]
struct Done {
    runs: u64,
    writes: usize,
    finished: usize,
    starts: usize,
    rounds: usize,
    millis: u64,
}

/// Runs the seeds, on every core; no new ones once one has failed. A seed's run does not depend on the others.
fn run_all(seeds: &[u64], workload: Workload, bug: Option<Bug>) -> (Done, BTreeMap<u64, Box<Failure>>) {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let all = Mutex::new((Done::default(), BTreeMap::new()));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() else { return };
            let result = sim::run_with(seed, workload, bug);
            let (done, failures) = &mut *all.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(summary) => {
                    done.runs += 1;
                    done.writes += summary.writes;
                    done.finished += summary.finished;
                    done.starts += summary.starts;
                    done.millis += summary.millis;
                    done.rounds = done.rounds.max(summary.rounds);
                }
                Err(failure) => {
                    failed.store(true, Ordering::Relaxed);
                    failures.insert(seed, failure);
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| _ = scope.spawn(work)));
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}
