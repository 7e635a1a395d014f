//! One suite that all providers of machines must pass, even if their outside fails. It must find ten planted faults.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod cases;
mod faults;
mod hosts;
mod local;
mod pods;

use cases::{Outside, Suite};
use std::process::Command;

/// Each trouble comes at one in this many calls of a provider; `TRAINYARD_SUITE_STEP` sets another number (`make soak`: 1).
fn step(otherwise: usize) -> usize {
    std::env::var("TRAINYARD_SUITE_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn here() -> Box<dyn Outside> {
    Box::new(local::Here::new())
}

fn by_ssh() -> Box<dyn Outside> {
    Box::new(hosts::Hosts::new())
}

#[test]
fn machines_of_this_computer() {
    Suite { make: &here, fault: None, step: step(1) }.run().unwrap();
}

/// Runs the test again in a process whose PATH begins with the fake `ssh`.
#[test]
fn machines_by_ssh() {
    if std::env::var_os("SUITE_SSH").is_some() {
        Suite { make: &by_ssh, fault: None, step: step(6) }.run().unwrap();
        for fault in faults::ALL {
            let found = Suite { make: &by_ssh, fault: Some(fault), step: 4 }.run();
            println!("{fault:?}: {found:?}");
            assert!(found.is_err(), "{fault:?} is not found");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    hosts::program(folder.path());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "machines_by_ssh", "--nocapture"])
        .env("PATH", path)
        .env("SUITE_SSH", "1")
        .output()
        .unwrap();
    let said = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes)).join("\n");
    assert!(done.status.success(), "{said}");
}

fn in_pods() -> Box<dyn Outside> {
    Box::new(pods::Pods::new())
}

#[test]
fn machines_in_pods() {
    Suite { make: &in_pods, fault: None, step: step(6) }.run().unwrap();
    for fault in faults::ALL {
        let found = Suite { make: &in_pods, fault: Some(fault), step: 4 }.run();
        println!("{fault:?}: {found:?}");
        assert!(found.is_err(), "{fault:?} is not found");
    }
}

#[test]
fn planted_faults_are_found() {
    // a fault that needs an unreachable outside cannot be tested here: a folder always answers
    for fault in faults::ALL.into_iter().filter(|fault| *fault != faults::Fault::SilenceIsLoss) {
        let found = Suite { make: &here, fault: Some(fault), step: 4 }.run();
        println!("{fault:?}: {found:?}");
        assert!(found.is_err(), "{fault:?} is not found");
    }
}
