//! Runs seeds and prints the first that breaks a promise.

use clap::Parser;
use std::process::ExitCode;

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
    let (mut runs, mut writes, mut finished, mut rounds) = (0u64, 0, 0, 0);
    for seed in seeds {
        match sim::run(seed) {
            Ok(summary) => {
                runs += 1;
                writes += summary.writes;
                finished += summary.finished;
                rounds = rounds.max(summary.rounds);
            }
            Err(failure) => {
                println!("{failure}");
                println!("{runs} passed, 1 failed");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{writes} writes, {finished} jobs finished, at rest after at most {rounds} rounds");
    println!("{runs} passed, 0 failed");
    ExitCode::SUCCESS
}
