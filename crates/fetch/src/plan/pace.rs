//! How many streams pay, and how long to wait before the next try.

use std::time::Duration;

/// The number of streams: more while the rate grows, fewer where the server asks for less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    now: usize,
    most: usize,
    /// Bytes between two looks, at the last change.
    rate: f64,
    /// How many looks in a row may still show no more than before; 0: no more streams are tried. So it is once they gave nothing,
    /// or the server pushed back.
    hope: u32,
}

/// A look is short, and a machine has other work: so many without a gain end the growth.
const HOPE: u32 = 4;

/// Streams to begin with, where parts of large files fill the line.
const FIRST: usize = 8;
/// Streams to begin with, where small files keep the line waiting for a round trip each.
const FIRST_OF_MANY: usize = 128;
/// A stream more at the beginning for so many small files.
const FILES: usize = 16;

impl Streams {
    /// `small`: how many files come in one go each.
    pub fn new(most: usize, small: usize) -> Self {
        let first = (small / FILES).clamp(FIRST, FIRST_OF_MANY);
        Self { now: first.min(most).max(1), most: most.max(1), rate: 0.0, hope: HOPE }
    }

    pub fn now(&self) -> usize {
        self.now
    }

    /// So many bytes came since the last look, with all streams busy.
    pub fn measured(&mut self, bytes: f64) {
        if self.hope == 0 {
            return;
        }
        if bytes > self.rate * 1.1 {
            self.rate = bytes;
            self.now = self.now.saturating_mul(2).min(self.most);
            self.hope = HOPE;
        } else {
            self.hope -= 1;
        }
    }

    /// 429 or 503: half as many, from now on.
    pub fn pushed_back(&mut self) {
        self.now = (self.now / 2).max(1);
        self.hope = 0;
    }
}

/// Why a try failed, as far as waiting is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens, no such host, no route.
    Unreachable,
    /// The connection broke, or nothing came.
    Broken,
    /// 5xx, 408.
    Server,
    /// 429, 503: the server asks for patience, maybe for how much.
    Busy(Option<Duration>),
}

const TRIES: u32 = 8;
/// So many bytes, and patience begins anew: slow enough for any line, and an end to servers that send a byte a try.
const PROGRESS: u64 = 64 << 10;
const LONGEST: Duration = Duration::from_secs(8);
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// How long to wait after try number `tries` (from 1) without a byte of progress between them; `None`: give up. `jitter` from 0
/// to 1. All waits together are about half a minute, so that a name server may be gone for 20 seconds.
pub fn wait(failure: Failure, tries: u32, jitter: f64) -> Option<Duration> {
    if tries >= TRIES {
        return None;
    }
    let step = Duration::from_millis(500).saturating_mul(2_u32.saturating_pow(tries.saturating_sub(1))).min(LONGEST);
    let own = step.mul_f64(0.75 + 0.25 * jitter.clamp(0.0, 1.0));
    Some(match failure {
        // a server that asks for a shorter wait than our own gets our own
        Failure::Busy(Some(asked)) => asked.min(LONGEST_ASKED).max(own),
        Failure::Unreachable | Failure::Broken | Failure::Server | Failure::Busy(None) => own,
    })
}

/// Patience with one piece of work. It begins anew when the piece gets on, and with a server that asks for patience when any
/// piece does: it lets them in one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    tries: u32,
    own: u64,
    all: u64,
}

impl Patience {
    /// How long to wait after a failure; `None`: give up. `own`: bytes that this piece has got so far; `all`: bytes that all have.
    pub fn after(&mut self, failure: Failure, own: u64, all: u64, jitter: f64) -> Option<Duration> {
        let got_on = own.saturating_sub(self.own) >= PROGRESS;
        let others_did = matches!(failure, Failure::Busy(_)) && all > self.all;
        if got_on || others_did {
            self.tries = 0;
        }
        if got_on || own < self.own {
            self.own = own;
        }
        self.all = all;
        self.tries = self.tries.saturating_add(1);
        wait(failure, self.tries, jitter)
    }
}

/// What a `Retry-After` asks for: seconds, or a date.
pub fn retry_after(value: &str, now: jiff::Timestamp) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let seconds = at.as_second().saturating_sub(now.as_second());
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_grow_while_it_pays() {
        let mut streams = Streams::new(40, 0);
        assert_eq!(streams.now(), 8);
        streams.measured(100.0);
        assert_eq!(streams.now(), 16);
        streams.measured(105.0);
        streams.measured(150.0);
        assert_eq!(streams.now(), 32, "one look without a gain is chance");
        let mut ended = streams;
        (1..=HOPE).for_each(|look| ended.measured(150.0 + f64::from(look)));
        ended.measured(900.0);
        assert_eq!(ended.now(), 32);
        streams.measured(900.0);
        assert_eq!(streams.now(), 40, "no more than are allowed");
        streams.pushed_back();
        assert_eq!(streams.now(), 20);
        streams.measured(9000.0);
        assert_eq!(streams.now(), 20);
        for _ in 0..9 {
            streams.pushed_back();
        }
        assert_eq!(streams.now(), 1);
        assert_eq!(Streams::new(3, 0).now(), 3);
    }

    #[test]
    fn many_small_files_begin_in_many_streams() {
        for (most, small, first) in [(256, 1, 8), (256, 160, 10), (256, 20_000, 128), (40, 20_000, 40), (0, 0, 1)] {
            assert_eq!(Streams::new(most, small).now(), first, "{small} files, {most} streams");
        }
        let mut streams = Streams::new(256, 20_000);
        streams.pushed_back();
        streams.measured(9000.0);
        assert_eq!(streams.now(), 64, "the server asks for less");
    }

    #[test]
    fn patience_lasts_longer_than_a_name_server_is_gone() {
        for jitter in [0.0, 1.0] {
            let waits = (1..).map_while(|tries| wait(Failure::Unreachable, tries, jitter));
            let all: Duration = waits.sum();
            assert!(all > Duration::from_secs(20) && all < Duration::from_secs(40), "{all:?}");
        }
        let busy = |asked| wait(Failure::Busy(Some(Duration::from_secs(asked))), 1, 0.0);
        assert_eq!(busy(7), Some(Duration::from_secs(7)));
        assert_eq!(busy(9999), Some(LONGEST_ASKED));
        for asked in [0, 1] {
            let waits = (1..).map_while(|tries| wait(Failure::Busy(Some(Duration::from_secs(asked))), tries, 0.0));
            assert!(waits.sum::<Duration>() > Duration::from_secs(20), "a storm of refusals is sat out");
        }
        assert_eq!(wait(Failure::Server, 8, 0.5), None);
    }

    #[test]
    fn patience_begins_anew_with_what_comes() {
        let given_up = |failure: Failure, own: u64, all: u64| {
            let mut patience = Patience::default();
            (0..100_u64).find(|n| patience.after(failure, n * own, n * all, 0.5).is_none())
        };
        assert_eq!(given_up(Failure::Broken, 0, PROGRESS), Some(7), "others get on, this piece does not");
        assert_eq!(given_up(Failure::Broken, 1, 1), Some(7), "a byte a try");
        assert_eq!(given_up(Failure::Broken, PROGRESS, PROGRESS), None);
        assert_eq!(given_up(Failure::Broken, PROGRESS / 4, 0), None, "little by little");
        assert_eq!(given_up(Failure::Busy(None), 0, 0), Some(7));
        assert_eq!(given_up(Failure::Busy(None), 0, 1), None, "one after the other");
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(retry_after(" 3 ", now), Some(Duration::from_secs(3)));
        assert_eq!(retry_after("Thu, 01 Jan 2026 00:00:09 GMT", now), Some(Duration::from_secs(9)));
        assert_eq!(retry_after("Thu, 01 Jan 2015 00:00:09 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
