//! What happened, in numbers.

use std::fmt;

/// What happened in all seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sum {
    pub seeds: u64,
    pub jobs: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub recoveries: u64,
    /// Recoveries in which some machines stayed.
    pub replaced: u64,
    /// Running jobs that SkyPilot's rule would have made again because their zone was not reached.
    pub blind: u64,
    pub kills: u64,
    pub world_secs: i64,
    pub machine_secs: i64,
    /// Seconds of work that counted.
    pub work_secs: i64,
    pub writes: u64,
    /// Seeds in which a budget was used up.
    pub crossed: u64,
    /// Jobs that a budget stopped.
    pub stopped: u64,
}

impl Sum {
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.jobs += other.jobs;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.recoveries += other.recoveries;
        self.replaced += other.replaced;
        self.blind += other.blind;
        self.kills += other.kills;
        self.world_secs += other.world_secs;
        self.machine_secs += other.machine_secs;
        self.work_secs += other.work_secs;
        self.writes += other.writes;
        self.crossed += other.crossed;
        self.stopped += other.stopped;
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let years = |secs: i64| secs as f64 / 86_400.0 / 365.0;
        write!(
            f,
            "{} seeds: {} jobs ({} succeeded, {} failed, {} cancelled), {} recoveries on evidence ({} kept machines), \
             0 of healthy jobs; the rule of 60 s and 5 probes would have made {} healthy jobs again; {} kills, {} writes, \
             {:.2} cluster-years, {:.2} machine-years, goodput {:.0} %",
            self.seeds,
            self.jobs,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.recoveries,
            self.replaced,
            self.blind,
            self.kills,
            self.writes,
            years(self.world_secs),
            years(self.machine_secs),
            self.work_secs as f64 * 100.0 / self.machine_secs.max(1) as f64
        )
    }
}
