//! The journal on a disk that fails: no record that was taken is lost, and none is read twice or changed.

use super::*;
use crate::wire::{Event, Exit};
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A disk on which writes are torn, refused, or not kept.
struct Faulty {
    /// What a reader sees.
    now: Vec<u8>,
    /// What a crash leaves for certain.
    durable: Vec<u8>,
    rng: StdRng,
    /// How often each step fails, in thousandths.
    faults: u32,
    hits: u64,
}

impl Faulty {
    fn fails(&mut self) -> bool {
        let hit = self.rng.random_range(0..1000) < self.faults;
        self.hits += u64::from(hit);
        hit
    }
}

impl Sink for &mut Faulty {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.fails() {
            let part = self.rng.random_range(0..=bytes.len());
            self.now.extend_from_slice(&bytes[..part]);
            let error = if self.rng.random_bool(0.5) { libc::ENOSPC } else { libc::EIO };
            return Err(io::Error::from_raw_os_error(error));
        }
        self.now.extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.fails() {
            // as Linux does: what could not be written counts as clean from now on, and is a hole after a crash
            let from = self.durable.len();
            let hole = vec![0; self.now.len() - from];
            self.durable.extend(hole);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let from = self.durable.len();
        let new = self.now[from..].to_vec();
        self.durable.extend(new);
        Ok(())
    }
}

fn read(bytes: &[u8]) -> Vec<Record> {
    let dir = tempfile::tempdir().unwrap();
    let dir = PodDir::new(dir.path().to_owned());
    dir.create().unwrap();
    fs::write(dir.journal(), bytes).unwrap();
    let records = dir.read_journal().unwrap();
    dir.remove().unwrap();
    records
}

/// `SOAK_FAULTS=1000` sets how many runs there are, `SEED=7` which is the first.
#[test]
fn no_exit_code_is_lost_on_a_disk_that_fails() {
    let number = |name: &str, default| std::env::var(name).ok().map_or(default, |text| text.parse().unwrap());
    let (first, runs): (u64, u64) = (number("SEED", 1), number("SOAK_FAULTS", 100));
    let mut hits = 0;
    for seed in first..first + runs {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut disk = Faulty {
            now: Vec::new(),
            durable: Vec::new(),
            faults: rng.random_range(0..600),
            rng: StdRng::seed_from_u64(seed),
            hits: 0,
        };
        let mut taken = Vec::new();
        // a shim that crashes now and then, on the same file
        for life in 0..3 {
            let torn = disk.now.last().is_some_and(|&b| b != b'\n');
            let mut journal = JournalWriter { sink: &mut disk, torn };
            for n in 0..rng.random_range(1..8) {
                let at = Timestamp::from_second(life * 100 + n).unwrap();
                let exit = Exit {
                    code: rng.random_range(0..256),
                    signal: None,
                    reason: "Error".to_owned(),
                    message: String::new(),
                    started_at: at,
                    finished_at: at,
                    peak_memory_bytes: None,
                };
                let event = Event::Exited { container: format!("c{n}"), attempt: 0, exit };
                let record = Record { at, uptime: Some(n.unsigned_abs()), event };
                // as the shim does: again until it is taken, or until it is killed in between
                let mut tries = 0;
                while journal.append(&record).is_err() && tries < 30 {
                    tries += 1;
                }
                if tries < 30 {
                    taken.push(record);
                }
            }
            // the machine crashes: of what was not synced any part is left
            let part = rng.random_range(disk.durable.len()..=disk.now.len());
            let crashed = [&disk.durable[..], &disk.now[disk.durable.len()..part]].concat();
            for (which, bytes) in [("before", &disk.now), ("after", &crashed)] {
                let found = read(bytes);
                let known: Vec<&Record> = found.iter().filter(|record| taken.contains(record)).collect();
                assert_eq!(known, taken.iter().collect::<Vec<_>>(), "seed {seed}, {which} the crash");
            }
            disk.now.clone_from(&crashed);
            disk.durable = crashed;
        }
        hits += disk.hits;
    }
    println!("{runs} runs from seed {first}: {hits} faults");
    assert!(hits > runs, "there were hardly any faults: {hits}");
}
