//! The time. Where a home's clock is kept, it goes on when the machine's clock is set, and approaches that little by little.
//!
//! Objects say when things began, and controllers compare that with the time: so a machine's clock that is set by hours would end what
//! has a deadline, evict what has a heartbeat, and keep waiting what has a back-off. A home's clock goes with the machine's uptime
//! instead (`CLOCK_BOOTTIME`, which counts sleep), from where it stood ([`Line`]). The control plane or the agent *keeps* it in a file,
//! which survives it, and shims *follow* the file; so all that write or compare times of one home have the same time. A reboot, or a
//! start of the keeper while more than a day is between the clocks, takes the machine's time.
//!
//! The agent of another machine keeps the time of its control plane: what it writes is compared there with what others write, so a machine
//! whose clock is wrong by an hour would be given up at once, or an hour too late. It [`correct`]s its machine's clock by what the control
//! plane says.
//!
//! Elsewhere (the command line, an operator on a cluster) the time is the machine's.
//!
//! # A home's clock
//!
//! - The two clocks are brought together by going a twentieth faster or slower: an hour is made up for in twenty,
//!   and time never goes back.
//! - The keeper is the process that holds the lock of the home (`up` or `node`); the file lies beside the pods ([`keep`]).
//! - Journals also hold the uptime, which distinguishes processes. Certificates are checked by the machine's
//!   clock.
//! - In the simulator the machine's clock is set by hours now and then; that must give a system at rest no work.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod line;

use jiff::{SignedDuration, Timestamp};
pub use line::Line;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the file is called.
pub const FILE: &str = "clock";

/// How often the machine's clock is compared, at most: nanoseconds.
const LOOK: i64 = 1_000_000_000;
/// Less than this is no clock that was set: nanoseconds.
const NOTICED: i64 = 50_000_000;
/// Two clocks that are read within this are read at the same time: nanoseconds.
const AT_ONCE: i64 = 1_000_000;
/// A keeper that starts with more than this between the clocks takes the machine's: a clock that is off by more was wrong: nanoseconds.
const TRUSTED: i64 = 24 * 3600 * 1_000_000_000;

/// Two machines whose clocks differ by less have the same time: whole seconds are told, and telling takes time: nanoseconds.
const SURE: i64 = 2_000_000_000;

/// What the file holds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Saved {
    /// Of which start of the machine the uptimes are.
    boot_id: String,
    #[serde(flatten)]
    line: Line,
    /// By how much the machine's clock is behind the one that counts: nanoseconds.
    #[serde(default)]
    behind: i64,
}

struct Clock {
    line: Line,
    /// As in the file.
    behind: i64,
    file: PathBuf,
    boot_id: String,
    keeps: bool,
    /// Whether the file says what `line` does.
    is_saved: bool,
    /// The uptime at which the machine's clock was compared last.
    looked: i64,
}

static CLOCK: Mutex<Option<Clock>> = Mutex::new(None);

/// The time of this home; the machine's where none is kept or followed.
pub fn now() -> Timestamp {
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let nanoseconds = match &mut *clock {
        Some(clock) => clock.now(read),
        None => of(ClockId::CLOCK_REALTIME),
    };
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::MAX)
}

/// How long the machine has been up, time asleep included: nothing sets that.
pub fn uptime() -> Duration {
    Duration::from_nanos(u64::try_from(of(ClockId::CLOCK_BOOTTIME)).unwrap_or_default())
}

/// From now on [`now`] is the time that is kept in this file, which other processes may [`follow`]. One process keeps a file. `behind`: by how
/// much the machine's clock is behind the one that counts, where that is known; else what was known last.
///
/// # Errors
/// The file cannot be written. The clock is kept nevertheless, by this process alone.
pub fn keep(file: &Path, behind: Option<SignedDuration>) -> io::Result<()> {
    let mut clock = Clock::keeper(file, boot_id(), read(), behind.map(nanoseconds));
    let saved = clock.save();
    *CLOCK.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    saved
}

/// Says by how much the machine's clock is behind the one that counts. The clock that is kept approaches that little by little.
pub fn correct(behind: SignedDuration) {
    if let Some(clock) = CLOCK.lock().unwrap_or_else(PoisonError::into_inner).as_mut().filter(|clock| clock.keeps) {
        let behind = nanoseconds(behind);
        // what is less is the time that the answer took
        if clock.behind.saturating_sub(behind).saturating_abs() >= SURE {
            clock.behind = behind;
            clock.is_saved = false;
        }
    }
}

fn nanoseconds(duration: SignedDuration) -> i64 {
    let nanoseconds = i64::try_from(duration.as_nanos()).unwrap_or_default();
    if nanoseconds.saturating_abs() < SURE { 0 } else { nanoseconds }
}

/// From now on [`now`] is the time that another process keeps in this file; the machine's where there is no such file of this start
/// of the machine.
pub fn follow(file: &Path) {
    *CLOCK.lock().unwrap_or_else(PoisonError::into_inner) = Clock::follower(file, boot_id(), read());
}

impl Clock {
    fn keeper(file: &Path, boot_id: String, (uptime, wall): (i64, i64), behind: Option<i64>) -> Self {
        let saved = load(file, &boot_id);
        let was_behind = saved.as_ref().map(|saved| saved.behind);
        let behind = behind.or(was_behind).unwrap_or(0);
        let wall = wall.saturating_add(behind);
        let known = saved.map(|saved| saved.line);
        let known = known.filter(|line| line.at(uptime).saturating_sub(wall).saturating_abs() <= TRUSTED);
        let is_saved = known.is_some() && was_behind == Some(behind);
        let line = known.unwrap_or_else(|| Line::new(uptime, wall));
        let mut clock = Self { line, behind, file: file.to_owned(), boot_id, keeps: true, is_saved, looked: uptime };
        clock.compare(uptime, wall);
        clock
    }

    fn follower(file: &Path, boot_id: String, (uptime, _): (i64, i64)) -> Option<Self> {
        let Saved { line, behind, .. } = load(file, &boot_id)?;
        Some(Self { line, behind, file: file.to_owned(), boot_id, keeps: false, is_saved: true, looked: uptime })
    }

    fn now(&mut self, read: impl Fn() -> (i64, i64)) -> i64 {
        let (uptime, wall) = read();
        if uptime.saturating_sub(self.looked) >= LOOK {
            self.looked = uptime;
            self.compare(uptime, wall.saturating_add(self.behind));
            // a write that fails now can perhaps be made later
            let _ = self.save();
        }
        self.line.at(uptime)
    }

    fn compare(&mut self, uptime: i64, wall: i64) {
        let shift = self.line.shift(uptime, wall);
        if shift.saturating_abs() < NOTICED {
            return;
        }
        if self.keeps {
            self.line = self.line.set(uptime, wall);
            self.is_saved = false;
            let (shift, behind) =
                (SignedDuration::from_nanos(shift), SignedDuration::from_nanos(self.line.behind(uptime)));
            tracing::warn!(
                "the machine's clock was set by {shift:#}: time goes on here as before, and is made up for by 3 s a minute \
                 until the difference of {behind:#} is gone"
            );
        } else if let Some(saved) = load(&self.file, &self.boot_id) {
            (self.line, self.behind) = (saved.line, saved.behind);
        }
    }

    /// Writes the file, where that is left to do.
    fn save(&mut self) -> io::Result<()> {
        if self.is_saved || !self.keeps {
            return Ok(());
        }
        let text = serde_json::to_vec(&Saved { boot_id: self.boot_id.clone(), line: self.line, behind: self.behind })?;
        let new = self.file.with_extension("new");
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).open(&new)?.write_all(&text)?;
        std::fs::rename(&new, &self.file)?;
        self.is_saved = true;
        Ok(())
    }
}

/// What is in a file, where it is of this start of the machine.
fn load(file: &Path, boot_id: &str) -> Option<Saved> {
    let saved: Saved = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    (saved.boot_id == boot_id && !boot_id.is_empty()).then_some(saved)
}

/// Which start of the machine this is.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn of(clock: ClockId) -> i64 {
    let Ok(time) = clock_gettime(clock) else { return 0 };
    time.tv_sec().saturating_mul(1_000_000_000).saturating_add(time.tv_nsec())
}

/// The uptime and the machine's clock, at the same moment (but for a processor that is busy elsewhere each time).
fn read() -> (i64, i64) {
    let mut best = (i64::MAX, 0, 0);
    for _ in 0..5 {
        let before = of(ClockId::CLOCK_BOOTTIME);
        let wall = of(ClockId::CLOCK_REALTIME);
        let after = of(ClockId::CLOCK_BOOTTIME);
        let took = after.saturating_sub(before);
        if took < best.0 {
            best = (took, before.saturating_add(took / 2), wall);
        }
        if took <= AT_ONCE {
            break;
        }
    }
    (best.1, best.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const WALL: i64 = 1_800_000_000 * SECOND;
    const HOUR: i64 = 3600 * SECOND;

    fn keeper(file: &Path, boot: &str, uptime: i64, wall: i64) -> Clock {
        let mut clock = Clock::keeper(file, boot.to_owned(), (uptime, wall), None);
        clock.save().unwrap();
        clock
    }

    #[test]
    fn keepers_and_followers_agree() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        assert!(Clock::follower(&file, "b".to_owned(), (0, WALL)).is_none(), "nobody keeps a clock");
        for by in [2 * HOUR, -2 * HOUR] {
            let _ = std::fs::remove_file(&file);
            let mut kept = keeper(&file, "b", 0, WALL);
            let mut followed = Clock::follower(&file, "b".to_owned(), (0, WALL)).unwrap();
            // what is noticed late is noticed: the file is written by the keeper's next look, and read by the follower's
            for second in 1..10 {
                let at = (second * SECOND, WALL + second * SECOND + if second > 3 { by } else { 0 });
                let (theirs, ours) = (followed.now(|| at), kept.now(|| at));
                assert!((theirs - ours).abs() < SECOND / 10, "{theirs} {ours}");
                assert!((ours - WALL - second * SECOND).abs() < SECOND, "{ours}");
            }
            // one that starts anew goes on
            let at = (100 * SECOND, WALL + 100 * SECOND + by);
            let there = kept.now(|| at);
            assert_eq!(keeper(&file, "b", at.0, at.1).now(|| at), there);
            assert_eq!(Clock::follower(&file, "b".to_owned(), at).unwrap().now(|| at), there);
            // and takes the machine's time after a reboot
            assert_eq!(keeper(&file, "c", 5, at.1).now(|| (5, at.1)), at.1);
            assert!(Clock::follower(&file, "b".to_owned(), at).is_none());
        }
    }

    #[test]
    fn a_clock_that_was_wrong_by_years_is_not_kept_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let years = 5 * 365 * 24 * HOUR;
        let mut clock = keeper(&file, "b", 0, WALL);
        assert!(clock.now(|| (2 * SECOND, WALL + years)) - WALL < 3 * SECOND, "but nothing that runs is ended");
        assert_eq!(keeper(&file, "b", 3 * SECOND, WALL + years).now(|| (3 * SECOND, WALL + years)), WALL + years);
    }

    #[test]
    fn a_clock_that_is_corrected_is_the_one_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        for by in [HOUR, -HOUR] {
            let _ = std::fs::remove_file(&file);
            let machine = |second: i64| (second * SECOND, WALL - by + second * SECOND);
            let mut kept = Clock::keeper(&file, "b".to_owned(), machine(0), Some(by));
            kept.save().unwrap();
            let mut followed = Clock::follower(&file, "b".to_owned(), machine(0)).unwrap();
            for second in [0, 5, 500] {
                assert_eq!(kept.now(|| machine(second)), WALL + second * SECOND);
                assert_eq!(followed.now(|| machine(second)), WALL + second * SECOND);
            }
            // one that starts where the control plane does not answer goes by what it knew
            assert_eq!(keeper(&file, "b", machine(600).0, machine(600).1).now(|| machine(600)), WALL + 600 * SECOND);
            // the machine's clock is set right, and that is told: the time goes on
            let right = |second: i64| (second * SECOND, WALL + second * SECOND);
            kept.now(|| right(700));
            (kept.behind, kept.is_saved) = (0, false);
            for second in [705, 710, 800] {
                let (ours, theirs) = (kept.now(|| right(second)), followed.now(|| right(second)));
                assert!((ours - WALL - second * SECOND).abs() < SECOND / 2, "{second}: {ours}");
                assert!((theirs - ours).abs() < SECOND / 2, "{second}: {theirs} {ours}");
            }
        }
        assert_eq!(nanoseconds(SignedDuration::from_millis(-1900)), 0, "whole seconds are told");
        assert_eq!(nanoseconds(SignedDuration::from_secs(3600)), HOUR);
    }

    #[test]
    fn a_torn_file_and_a_full_disk_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, "{\"bootId\":\"b\",\"sin").unwrap();
        assert_eq!(keeper(&file, "b", 0, WALL).now(|| (SECOND, WALL + SECOND)), WALL + SECOND);
        let away = folder.path().join("away").join(FILE);
        let mut clock = Clock::keeper(&away, "b".to_owned(), (0, WALL), None);
        clock.save().unwrap_err();
        assert_eq!(clock.now(|| (2 * SECOND, WALL + HOUR)), WALL + 2 * SECOND);
        std::fs::create_dir(away.parent().unwrap()).unwrap();
        let there = clock.now(|| (4 * SECOND, WALL + HOUR));
        let mut followed =
            Clock::follower(&away, "b".to_owned(), (4 * SECOND, WALL + HOUR)).expect("written as soon as it can be");
        assert_eq!(followed.now(|| (4 * SECOND, WALL + HOUR)), there);
    }

    #[test]
    fn the_machines_clocks_are_read() {
        let (before, ours, after) = (Timestamp::now(), now(), Timestamp::now());
        assert!(before <= ours && ours <= after, "{before} {ours} {after}");
        let (a, b) = (uptime(), uptime());
        assert!(!a.is_zero() && a <= b);
    }
}
