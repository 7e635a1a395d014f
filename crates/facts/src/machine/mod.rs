//! What the machine tells of a job that no API server knows: its processes, and the files beside its script.

mod modules;
pub mod processes;

use diagnose::{Facts, LocalModule, RankProcess};

/// A machine that may have run a job, or be the one of its user.
pub trait Machine: Sync {
    /// The newest process of each rank.
    fn processes(&self, _facts: &Facts) -> Vec<RankProcess> {
        Vec::new()
    }

    /// Python modules of the user's own that the job's script may have missed.
    fn modules(&self, _facts: &Facts) -> Vec<LocalModule> {
        Vec::new()
    }
}

/// The one that this process is on, as far as its user may look.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn processes(&self, facts: &Facts) -> Vec<RankProcess> {
        processes::of(facts)
    }

    fn modules(&self, facts: &Facts) -> Vec<LocalModule> {
        modules::of(facts)
    }
}

/// None: whoever asks is on another machine.
#[derive(Clone, Copy, Debug)]
pub struct Elsewhere;

impl Machine for Elsewhere {}
