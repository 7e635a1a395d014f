//! What users ask for; and worlds with more jobs than there are machines, and with jobs of several tasks.

use crate::chance::Chance;
use crate::cloud::ZONES;
use crate::jobs::{Asked, FAULTS, Kind, Sim, later};
use api::sky::JobStrategy;
use std::collections::BTreeSet;

/// Jobs where there are few machines, and seconds in which things go wrong there.
const CROWD: u32 = 6;
const CROWD_FAULTS: i64 = 2 * 3600;
/// The same of jobs of several tasks.
const COMPOSED: u32 = 4;
const COMPOSED_FAULTS: i64 = 4 * 3600;

impl Sim {
    /// A few machines in each zone, and more jobs than they can run at a time.
    pub fn crowded(mut self) -> Self {
        let mut hosts = [0; ZONES];
        for zone in &mut hosts {
            *zone = usize::try_from(self.chance.below(3)).expect("few");
        }
        hosts[0] = 4;
        self.cloud.hosts = Some(hosts);
        self.fault_secs = CROWD_FAULTS;
        for id in 1..=CROWD {
            let mut asked = self.asked_for();
            asked.submitted = later(self.start, self.chance.secs(1, CROWD_FAULTS / 2));
            asked.priority = [0, 0, 5][usize::try_from(self.chance.below(3)).expect("few")];
            asked.work /= 32;
            asked.fails.retain(|(at, _)| *at < asked.work);
            self.add(id, asked);
        }
        self
    }

    pub fn asked_for(&mut self) -> Asked {
        let chance = &mut self.chance;
        let submitted = later(self.start, chance.secs(1, FAULTS / 2));
        let work = chance.secs(60, 40_000);
        let mut fails = Vec::new();
        if chance.percent(40) {
            for _ in 0..=chance.below(3) {
                fails.push((chance.secs(1, work), if chance.percent(50) { 33 } else { 1 }));
            }
            fails.sort_unstable();
        }
        let during = |chance: &mut Chance| later(submitted, chance.secs(1, 20_000));
        let cancel = chance.percent(20).then(|| during(chance));
        let down = chance.percent(10).then(|| during(chance));
        Asked {
            more: Vec::new(),
            kind: Kind::Pipeline,
            calls: false,
            auxiliary: None,
            work,
            nodes: usize::try_from(1 + chance.below(4)).expect("few"),
            strategy: [JobStrategy::EagerNextRegion, JobStrategy::Failover]
                [usize::try_from(chance.below(2)).expect("few")],
            fails,
            max_restarts: u32::try_from(chance.below(3)).expect("few"),
            codes: if chance.percent(50) { vec![33] } else { Vec::new() },
            priority: 0,
            submitted,
            cancel,
            down,
            downed: BTreeSet::new(),
        }
    }

    /// Jobs of several tasks: pipelines and groups.
    pub fn composed(mut self) -> Self {
        self.fault_secs = COMPOSED_FAULTS;
        self.jobs.clear();
        for id in 1..=COMPOSED {
            let mut asked = self.part();
            asked.submitted = later(self.start, self.chance.secs(1, COMPOSED_FAULTS / 2));
            asked.cancel = self.chance.percent(15).then(|| later(asked.submitted, self.chance.secs(1, 6000)));
            asked.calls = self.chance.percent(50);
            asked.kind = if id % 2 == 0 { Kind::Group } else { Kind::Pipeline };
            for _ in 0..=self.chance.below(2) {
                let mut part = self.part();
                let is_auxiliary = asked.kind == Kind::Group && self.chance.percent(60);
                part.auxiliary = is_auxiliary.then(|| u32::try_from(self.chance.below(300)).expect("few"));
                if is_auxiliary && self.chance.percent(70) {
                    // it would go on
                    (part.work, part.fails) = (100_000, Vec::new());
                }
                asked.more.push(part);
            }
            self.add(id, asked);
        }
        self
    }

    /// A small task.
    fn part(&mut self) -> Asked {
        let mut asked = self.asked_for();
        asked.work = 60 + asked.work / 16;
        asked.fails.retain(|(at, _)| *at < asked.work);
        asked.fails.truncate(1);
        asked.nodes = asked.nodes.min(2);
        (asked.cancel, asked.down) = (None, None);
        asked
    }
}
