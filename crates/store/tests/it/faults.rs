//! Seeded runs on a disk that fails and a machine that crashes: nothing acknowledged is lost, nothing refused is shown, revisions
//! only grow, and service comes back by itself.
//!
//! `SOAK_FAULTS=1000` sets how many runs there are, `SEED=7` which is the first.

use crate::disk::{self, Disk, Faults};
use crate::{Plain, delete, put};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use store::{Expect, Key, Limits, Revision, Store, Txn, WriteError};

/// An object as the world knows it: revision and number; `None`: there is none.
type Seen = Option<(Revision, i64)>;

struct World {
    disk: &'static Mutex<Disk>,
    rng: StdRng,
    /// What was acknowledged.
    known: BTreeMap<String, Seen>,
    /// What was refused since then: each number that an object was to get, `None` where it was to go.
    refused: BTreeMap<String, Vec<Option<i64>>>,
    highest: Revision,
    next: i64,
}

impl World {
    fn faults(&mut self) -> Faults {
        let mut one = |most: u32| if self.rng.random_bool(0.5) { self.rng.random_range(0..most) } else { 0 };
        let faults = Faults { full: one(100), write: one(60), sync: one(60), truncate: one(200), ..Faults::default() };
        Faults { read_only: self.rng.random_bool(0.1), ..faults }
    }

    /// Opens the store; while it does, reads may fail. Once they do not, it opens.
    fn open(&mut self, path: &str) -> Store {
        let (read, short_reads) = (self.rng.random_range(0..40), self.rng.random_range(0..2));
        self.disk.lock().unwrap().faults = Faults { read, short_reads, ..Faults::default() };
        let open = || Store::open_on(Path::new(path), Plain, Limits::default(), disk::settle);
        let opened = open();
        self.disk.lock().unwrap().faults = Faults::default();
        opened.or_else(|_| open()).expect("a disk that is well again can be read")
    }

    fn txn(&mut self) -> (String, Option<i64>, Txn) {
        let name = format!("n{}", self.rng.random_range(0..12));
        let number = self.next + 1;
        self.next += 1;
        // of some size, so that there are overflow pages
        let padding = "x".repeat(self.rng.random_range(0..3) * 5000);
        let value = json!({"n": self.next, "padding": padding});
        let txn = match self.known.get(&name).copied().flatten() {
            None => put(&name, value, Expect::Absent),
            Some((revision, _)) if self.rng.random_bool(0.3) => {
                let txn = delete(&name, revision);
                return (name, None, txn);
            }
            Some((revision, _)) => put(&name, value, Expect::Revision(revision)),
        };
        (name, Some(number), txn)
    }

    /// Writes a few objects at once, each another one. Whether all of it was acknowledged.
    fn write(&mut self, store: &Store) -> bool {
        let mut commits: Vec<(String, Option<i64>, store::Commit)> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let (name, number, txn) = self.txn();
            if commits.iter().all(|(other, ..)| *other != name) {
                commits.push((name, number, store.submit(txn)));
            }
        }
        let mut well = true;
        for (name, number, commit) in commits {
            match commit.wait() {
                Ok(events) => {
                    let event = events.last().unwrap();
                    assert!(event.revision > self.highest, "revision {} after {}", event.revision, self.highest);
                    self.highest = event.revision;
                    let number = event.entry.value()["n"].as_i64().unwrap();
                    self.refused.remove(&name);
                    self.known.insert(name, (!event.deleted).then_some((event.revision, number)));
                }
                Err(WriteError::Full(_) | WriteError::ReadOnly(_) | WriteError::Failed(_)) => {
                    well = false;
                    self.known.entry(name.clone()).or_default();
                    self.refused.entry(name).or_default().push(number);
                }
                Err(WriteError::Conflict) => panic!("{name}: it is not what was acknowledged"),
            }
        }
        self.check(store);
        well
    }

    fn check(&self, store: &Store) {
        for (name, seen) in &self.known {
            let entry = store.get("b", &Key::new("ns", name));
            let found = entry.map(|entry| (entry.revision, entry.value()["n"].as_i64().unwrap()));
            assert_eq!(found, *seen, "{name}");
        }
    }

    /// After a crash: an object is as acknowledged, or as a later write made it that was refused.
    fn check_after_crash(&mut self, store: &Store) {
        assert_eq!(store.health().set_aside, []);
        assert!(store.revision() >= self.highest, "revision {} after {}", store.revision(), self.highest);
        self.highest = store.revision();
        for (name, seen) in &mut self.known {
            let entry = store.get("b", &Key::new("ns", name));
            let found = entry.map(|entry| (entry.revision, entry.value()["n"].as_i64().unwrap()));
            let refused = self.refused.remove(name).unwrap_or_default();
            let number = found.map(|(_, number)| number);
            assert!(
                found == *seen || refused.contains(&number),
                "{name}: {seen:?} was acknowledged, {refused:?} refused, and there is {found:?}"
            );
            *seen = found;
        }
    }
}

fn run(disk: &'static Mutex<Disk>, path: &str, seed: u64) -> u64 {
    disk.lock().unwrap().format(seed);
    let rng = StdRng::seed_from_u64(seed);
    let mut world = World { disk, rng, known: BTreeMap::new(), refused: BTreeMap::new(), highest: 0, next: 0 };
    let mut hits = 0;
    for life in 0..4 {
        let store = world.open(path);
        if life == 0 {
            world.check(&store);
        } else {
            world.check_after_crash(&store);
        }
        for _ in 0..3 {
            let faults = world.faults();
            disk.lock().unwrap().faults = faults;
            for _ in 0..8 {
                world.write(&store);
            }
            // the disk is well again, and so is the store, with no help
            disk.lock().unwrap().faults = Faults::default();
            let begin = Instant::now();
            while !world.write(&store) || store.health().trouble.is_some() {
                assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", store.health().trouble);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        if world.rng.random_bool(0.7) {
            let faults = world.faults();
            disk.lock().unwrap().faults = faults;
            for _ in 0..world.rng.random_range(0..4) {
                world.write(&store);
            }
            disk.lock().unwrap().crash();
        }
        drop(store);
        let mut disk = disk.lock().unwrap();
        hits += disk.hits;
        disk.restart();
    }
    let store = world.open(path);
    world.check_after_crash(&store);
    hits
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fails() {
    let number = |name: &str, default| std::env::var(name).ok().map_or(default, |text| text.parse().unwrap());
    let (first, runs) = (number("SEED", 1), number("SOAK_FAULTS", 100));
    let disk = disk::register("faulty");
    let mut hits = 0;
    for seed in first..first + runs {
        let result = std::panic::catch_unwind(|| run(disk, "file:/store?vfs=faulty", seed));
        disk.clear_poison();
        hits += result.unwrap_or_else(|panic| {
            eprintln!("seed {seed}: SEED={seed} SOAK_FAULTS=1 cargo test -p store nothing_acknowledged");
            std::panic::resume_unwind(panic)
        });
    }
    println!("{runs} runs from seed {first}: {hits} faults");
    assert!(hits > runs, "there were hardly any faults: {hits}");
}
