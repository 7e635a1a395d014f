//! Which reports are written at once, which are held back, and until when. Decisions only: the time is an argument.
//!
//! A job's first report is written at once and opens its window. What comes while the window is open is held back, the
//! newest in place of the one before, and written when the window ends, which opens the next. Nothing is held back of a
//! job that has ended, and neither is the report that first says 100 %.
//!
//! A job that reports seldom does not wait for a window: a few reports that come after a pause are written at once, as upstream
//! writes every one.

use api::object::Key;
use api::trainer::TrainerStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The least time between two writes of one job's status.
pub(super) const WINDOW: Duration = Duration::from_secs(5);
/// How many writes a second all jobs together come to, unless told otherwise: with more jobs than fit, each one's window
/// grows.
pub(super) const WRITES_PER_SEC: f64 = 500.0;

/// A job that has not reported for so long reports now and then.
const PAUSE: Duration = Duration::from_millis(500);
/// So many reports after a pause are written at once before the next time that a window ends with nothing held back.
const SPARE: u8 = 4;

/// What the watch tells of a TrainJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub uid: String,
    pub finished: bool,
    /// The time of the report in its status, in seconds since 1970.
    pub reported: Option<i64>,
}

/// What is to become of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Write it, then [`Pacing::settle`] under this number.
    Write(u64),
    /// It is kept here, and [`Pacing::pop_due`] hands it out in time.
    Held,
    /// Another report of the job is being written, and whether this one is good is for the API server to say: ask again
    /// once that is settled.
    Wait,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Written {
        /// It said 100 %.
        complete: bool,
        /// Its time, in seconds since 1970.
        time: Option<i64>,
    },
    /// To be written later, unless a newer report has come.
    Again(TrainerStatus),
    /// Refused, or nobody knows.
    Dropped,
}

struct Held {
    number: u64,
    status: TrainerStatus,
}

/// A job whose status was written lately, or is being written.
#[derive(Default)]
struct Window {
    held: Option<Held>,
    /// When it ends; `None` while a write is under way.
    due: Option<Instant>,
    /// What is held back after the write under way is not to wait.
    urgent: bool,
    /// The last report written said 100 %.
    complete: bool,
    /// The time of the last report written, in seconds since 1970.
    time: Option<i64>,
    /// When the job last reported.
    heard: Option<Instant>,
    /// How many reports were written at once because they came after a pause.
    spared: u8,
}

/// The open windows, and the jobs that there are. Bounded by the number of jobs that reported lately.
#[derive(Default)]
pub(super) struct Pacing {
    jobs: BTreeMap<Key, Known>,
    windows: BTreeMap<Key, Window>,
    /// The ends of all windows.
    due: BTreeSet<(Instant, Key)>,
    numbers: u64,
    /// Another pace than [`WRITES_PER_SEC`].
    writes_per_sec: Option<f64>,
}

impl Pacing {
    /// One that plans so many writes a second.
    pub fn paced(writes_per_sec: f64) -> Self {
        Self { writes_per_sec: Some(writes_per_sec), ..Self::default() }
    }

    /// Decides on a report. `free`: a write could start now.
    pub fn offer(&mut self, key: &Key, status: &TrainerStatus, now: Instant, free: bool) -> Verdict {
        let known = self.jobs.get(key);
        // What may be refused is not for us to answer.
        let holdable = known.is_some() && is_surely_valid(status);
        let ended = known.is_some_and(|known| known.finished);
        // Those that wait for a free hand come first.
        let free = free && self.due.first().is_none_or(|(due, _)| *due >= now);
        let is_quiet = self.gap() == WINDOW;
        self.numbers += 1;
        let number = self.numbers;
        let held = || Some(Held { number, status: status.clone() });
        let Some(window) = self.windows.get_mut(key) else {
            let mut window = Window { heard: Some(now), ..Window::default() };
            let verdict = if free || !holdable {
                Verdict::Write(number)
            } else {
                window.held = held();
                window.due = Some(now);
                self.due.insert((now, key.clone()));
                Verdict::Held
            };
            self.windows.insert(key.clone(), window);
            return verdict;
        };
        let paused = window.heard.replace(now).is_some_and(|heard| now.duration_since(heard) >= PAUSE);
        let spare = paused && is_quiet && free && window.due.is_some() && window.spared < SPARE;
        window.spared += u8::from(spare);
        let urgent = spare || ended || (is_complete(status) && !window.complete);
        match window.due {
            None if holdable => {
                window.held = held();
                window.urgent |= urgent;
                Verdict::Held
            }
            None => Verdict::Wait,
            Some(due) if holdable && !(urgent && free) => {
                window.held = held();
                if urgent {
                    reschedule(&mut self.due, key, window, due, now);
                }
                Verdict::Held
            }
            Some(due) => {
                self.due.remove(&(due, key.clone()));
                window.due = None;
                Verdict::Write(number)
            }
        }
    }

    /// Takes note of how the write of report `number` ended.
    pub fn settle(&mut self, key: &Key, number: u64, outcome: Outcome, now: Instant) {
        let gap = self.gap();
        let Some(window) = self.windows.get_mut(key) else { return };
        let mut wait = if window.urgent { Duration::ZERO } else { gap };
        window.urgent = false;
        match outcome {
            Outcome::Written { complete, time } => {
                window.complete = complete;
                window.time = time;
                if window.held.as_ref().is_some_and(|held| held.number < number) {
                    window.held = None;
                }
            }
            Outcome::Again(status) => {
                wait = gap;
                window.held.get_or_insert(Held { number, status });
            }
            Outcome::Dropped if window.held.is_none() => {
                self.windows.remove(key);
                return;
            }
            Outcome::Dropped => {}
        }
        let due = api::time::after(now, if window.held.is_some() { wait } else { gap });
        window.due = Some(due);
        self.due.insert((due, key.clone()));
    }

    /// A report whose time has come, to be written and settled under its number. Windows that end with nothing held back
    /// are closed on the way.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Key, u64, TrainerStatus)> {
        loop {
            if self.due.first().is_none_or(|(due, _)| *due > now) {
                return None;
            }
            let (_, key) = self.due.pop_first()?;
            let window = self.windows.get_mut(&key)?;
            window.due = None;
            match window.held.take() {
                Some(held) => return Some((key, held.number, held.status)),
                None => drop(self.windows.remove(&key)),
            }
        }
    }

    /// When `pop_due` is to be called next.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// What is held back of a job is to be written now: the job ends.
    pub fn hurry(&mut self, key: &Key, now: Instant) {
        let Some(window) = self.windows.get_mut(key) else { return };
        match window.due {
            None => window.urgent = true,
            Some(due) if window.held.is_some() => reschedule(&mut self.due, key, window, due, now),
            Some(_) => {}
        }
    }

    /// Everything that is held back is to be written now.
    pub fn hurry_all(&mut self, now: Instant) {
        let keys: Vec<Key> = self.windows.keys().cloned().collect();
        keys.iter().for_each(|key| self.hurry(key, now));
    }

    /// How many reports are held back.
    pub fn held(&self) -> usize {
        self.windows.values().filter(|window| window.held.is_some()).count()
    }

    /// A TrainJob is there, or has changed.
    pub fn observe(&mut self, key: Key, known: Known, now: Instant) {
        let old = self.jobs.get(&key);
        if old.is_some_and(|old| old.uid != known.uid) {
            self.forget(&key);
        } else if let Some(window) = self.windows.get_mut(&key)
            && known.reported != window.time
            && window.held.as_ref().is_some_and(|held| time(&held.status) < known.reported)
        {
            // another replica has written a newer one
            window.held = None;
        } else if known.finished && old.is_none_or(|old| !old.finished) {
            self.hurry(&key, now);
        }
        self.jobs.insert(key, known);
    }

    /// A TrainJob is gone, and what was held back of it has no place to go.
    pub fn forget(&mut self, key: &Key) {
        self.jobs.remove(key);
        let Some(window) = self.windows.get_mut(key) else { return };
        window.held = None;
        if let Some(due) = window.due {
            self.due.remove(&(due, key.clone()));
            self.windows.remove(key);
        }
    }

    /// Forgets the jobs for which `is_there` is false.
    pub fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.jobs.keys().filter(|key| !is_there(key)).cloned().collect();
        gone.iter().for_each(|key| self.forget(key));
    }

    /// Whether a report of the job was written or held back lately.
    pub fn is_open(&self, key: &Key) -> bool {
        self.windows.contains_key(key)
    }

    /// The uid of a TrainJob that the watch has told of.
    pub fn uid(&self, key: &Key) -> Option<String> {
        self.jobs.get(key).map(|known| known.uid.clone())
    }

    /// How long a window that opens now is.
    fn gap(&self) -> Duration {
        let jobs = u32::try_from(self.windows.len()).unwrap_or(u32::MAX);
        let seconds = f64::from(jobs) / self.writes_per_sec.unwrap_or(WRITES_PER_SEC);
        WINDOW.max(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

fn reschedule(dues: &mut BTreeSet<(Instant, Key)>, key: &Key, window: &mut Window, due: Instant, now: Instant) {
    if due > now {
        dues.remove(&(due, key.clone()));
        dues.insert((now, key.clone()));
        window.due = Some(now);
    }
}

/// When a report was made, in seconds since 1970, as the API keeps it.
pub(super) fn time(status: &TrainerStatus) -> Option<i64> {
    status.last_updated_time.as_ref().map(|time| time.0.as_second())
}

/// Whether a report says that all is done.
pub(super) fn is_complete(status: &TrainerStatus) -> bool {
    status.progress_percentage == Some(100)
}

/// Whether the TrainJob's schema has nothing against a report. In doubt it is asked.
fn is_surely_valid(status: &TrainerStatus) -> bool {
    let TrainerStatus { progress_percentage, estimated_remaining_seconds, metrics, last_updated_time } = status;
    let is_word = |text: &str| (1..=64).contains(&text.chars().count());
    last_updated_time.is_some()
        && progress_percentage.is_none_or(|percent| (0..=100).contains(&percent))
        && estimated_remaining_seconds.is_none_or(|secs| secs >= 0)
        && metrics.len() <= 256
        && metrics.iter().all(|metric| is_word(&metric.name) && is_word(&metric.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::trainer::Metric;
    use jiff::Timestamp;

    fn key() -> Key {
        Key::new("ns", "train")
    }

    fn report(percent: i32) -> TrainerStatus {
        TrainerStatus {
            progress_percentage: Some(percent),
            last_updated_time: Some(Timestamp::UNIX_EPOCH.into()),
            ..TrainerStatus::default()
        }
    }

    fn known(finished: bool) -> Known {
        Known { uid: "u".to_owned(), finished, reported: None }
    }

    /// One that knows the job, and has written a first report of it at `now`.
    fn opened(now: Instant) -> Pacing {
        let mut pacing = Pacing::default();
        pacing.observe(key(), known(false), now);
        let Verdict::Write(number) = pacing.offer(&key(), &report(1), now, true) else {
            panic!("the first is written")
        };
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now);
        pacing
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_newest_of_a_window_is_written_at_its_end() {
        let now = Instant::now();
        let mut pacing = opened(now);
        assert_eq!(pacing.offer(&key(), &report(2), now + PAUSE / 2, true), Verdict::Held);
        assert_eq!(pacing.offer(&key(), &report(3), now + PAUSE, true), Verdict::Held);
        assert_eq!((pacing.pop_due(now + secs(4)), pacing.next_due()), (None, Some(now + WINDOW)));
        let (_, number, status) = pacing.pop_due(now + WINDOW).expect("it is time");
        assert_eq!(status, report(3));
        // one that comes meanwhile opens no second write
        assert_eq!(pacing.offer(&key(), &report(4), now + WINDOW, true), Verdict::Held);
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now + WINDOW);
        assert_eq!(pacing.next_due(), Some(now + WINDOW * 2));
        let (_, number, status) = pacing.pop_due(now + WINDOW * 2).expect("it is time");
        assert_eq!(status, report(4));
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now + WINDOW * 2);
        // a window that nothing comes in is closed, and the next report is a first one
        assert_eq!((pacing.pop_due(now + WINDOW * 3), pacing.next_due()), (None, None));
        assert!(matches!(pacing.offer(&key(), &report(5), now + WINDOW * 3, true), Verdict::Write(_)));
    }

    #[test]
    fn who_reports_now_and_then_does_not_wait() {
        let start = Instant::now();
        let mut pacing = opened(start);
        let mut now = start;
        for percent in 0..i32::from(SPARE) {
            now += PAUSE;
            let verdict = pacing.offer(&key(), &report(percent), now, true);
            let Verdict::Write(number) = verdict else { panic!("{percent}: {verdict:?}") };
            pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now);
        }
        assert_eq!(pacing.offer(&key(), &report(50), now + PAUSE, true), Verdict::Held, "it does so all the time");
        let (_, number, _) = pacing.pop_due(now + WINDOW).expect("it is time");
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now + WINDOW);
        assert_eq!(pacing.pop_due(now + WINDOW * 2), None, "nothing came in this window");
        let Verdict::Write(number) = pacing.offer(&key(), &report(51), now + WINDOW * 2, true) else {
            panic!("a first one")
        };
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now + WINDOW * 2);
        assert!(matches!(pacing.offer(&key(), &report(52), now + WINDOW * 2 + PAUSE, true), Verdict::Write(_)));
    }

    #[test]
    fn the_end_does_not_wait() {
        let now = Instant::now();
        let mut pacing = opened(now);
        let Verdict::Write(number) = pacing.offer(&key(), &report(100), now, true) else { panic!("100 % is urgent") };
        // said again it is not
        pacing.settle(&key(), number, Outcome::Written { complete: true, time: Some(0) }, now);
        assert_eq!(pacing.offer(&key(), &report(100), now, true), Verdict::Held);
        assert_eq!(pacing.pop_due(now), None);
        pacing.hurry(&key(), now);
        assert!(pacing.pop_due(now).is_some(), "a pod of the job has ended");

        let mut pacing = opened(now);
        assert_eq!(pacing.offer(&key(), &report(50), now, true), Verdict::Held);
        pacing.observe(key(), known(true), now);
        let (_, number, status) = pacing.pop_due(now).expect("the job has ended");
        assert_eq!(status, report(50));
        pacing.settle(&key(), number, Outcome::Written { complete: false, time: Some(0) }, now);
        assert!(matches!(pacing.offer(&key(), &report(51), now, true), Verdict::Write(_)), "a late report");
    }

    #[test]
    fn what_may_be_refused_is_never_held() {
        let now = Instant::now();
        let metric = |name: &str, value: &str| Metric { name: name.to_owned(), value: value.to_owned() };
        let with = |metrics| TrainerStatus { metrics, ..report(1) };
        let doubtful = [
            report(101),
            report(-1),
            TrainerStatus { last_updated_time: None, ..report(1) },
            TrainerStatus { estimated_remaining_seconds: Some(-1), ..report(1) },
            with(vec![metric("", "1")]),
            with(vec![metric("a", &"ü".repeat(65))]),
            with(vec![metric("a", "1"); 257]),
        ];
        for status in doubtful {
            let mut pacing = opened(now);
            let Verdict::Write(number) = pacing.offer(&key(), &status, now, false) else { panic!("{status:?}") };
            assert_eq!(pacing.offer(&key(), &status, now, true), Verdict::Wait);
            assert_eq!(pacing.offer(&key(), &report(7), now, true), Verdict::Held);
            // what is good is not lost with it
            pacing.settle(&key(), number, Outcome::Dropped, now);
            assert_eq!(pacing.pop_due(now + WINDOW).map(|due| due.2), Some(report(7)));
        }
        let mut pacing = Pacing::default();
        assert!(matches!(pacing.offer(&key(), &report(1), now, false), Verdict::Write(_)), "a job nobody knows of");
        assert!(matches!(
            opened(now).offer(&key(), &with(vec![metric("a", &"ü".repeat(64))]), now, true),
            Verdict::Held
        ));
    }

    #[test]
    fn with_no_hand_free_a_first_report_waits_its_turn() {
        let now = Instant::now();
        let mut pacing = Pacing::default();
        pacing.observe(key(), known(false), now);
        assert_eq!(pacing.offer(&key(), &report(1), now, false), Verdict::Held);
        let other = Key::new("ns", "other");
        pacing.observe(other.clone(), known(false), now);
        assert_eq!(pacing.offer(&other, &report(1), now + secs(1), true), Verdict::Held, "after those that wait");
        assert_eq!(pacing.pop_due(now + secs(1)).map(|due| due.0), Some(key()));
        assert_eq!(pacing.pop_due(now + secs(1)).map(|due| due.0), Some(other));
    }

    #[test]
    fn a_write_that_failed_is_tried_again_unless_there_is_news() {
        let now = Instant::now();
        let mut pacing = opened(now);
        pacing.offer(&key(), &report(2), now, true);
        let (_, number, status) = pacing.pop_due(now + WINDOW).unwrap();
        pacing.settle(&key(), number, Outcome::Again(status), now + WINDOW);
        let (_, number, status) = pacing.pop_due(now + WINDOW * 2).unwrap();
        assert_eq!(status, report(2));
        pacing.offer(&key(), &report(3), now + WINDOW * 2, true);
        pacing.settle(&key(), number, Outcome::Again(status), now + WINDOW * 2);
        assert_eq!(pacing.pop_due(now + WINDOW * 3).map(|due| due.2), Some(report(3)));
    }

    #[test]
    fn what_another_replica_wrote_is_not_overwritten_by_something_older() {
        let now = Instant::now();
        for (reported, held) in [(0, 1), (5, 0), (-5, 1)] {
            let mut pacing = opened(now);
            // made at 0, as the one before that we wrote ourselves
            pacing.offer(&key(), &report(2), now, true);
            pacing.observe(key(), Known { reported: Some(reported), ..known(false) }, now);
            assert_eq!(pacing.held(), held, "the status has one made at {reported}");
        }
    }

    #[test]
    fn a_job_that_is_gone_leaves_nothing_behind() {
        let now = Instant::now();
        for anew in [false, true] {
            let mut pacing = opened(now);
            pacing.offer(&key(), &report(2), now, true);
            assert_eq!(pacing.held(), 1);
            if anew {
                pacing.observe(key(), Known { uid: "another".to_owned(), ..known(false) }, now);
            } else {
                pacing.retain(|_| false);
            }
            assert_eq!((pacing.held(), pacing.next_due()), (0, None));
            assert_eq!(pacing.uid(&key()).is_some(), anew);
        }
    }
}
