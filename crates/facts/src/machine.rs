//! What only a machine itself knows about a job: its processes, and the files beside its script.

mod modules;
pub mod processes;

use diagnose::{Facts, LocalModule, RankProcess};

/// A machine that runs a job, or on which its user works.
pub trait Machine: Sync {
    /// The newest process of each rank.
    fn processes(&self, facts: &Facts) -> Vec<RankProcess>;

    /// The user's own Python modules, in case the job's script did not find one of them.
    fn modules(&self, facts: &Facts) -> Vec<LocalModule>;
}

/// The machine of this process. It shows what this process may read.
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
