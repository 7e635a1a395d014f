//! Lines of a pod's log as it arrives, without those that are kept already.

use crate::record::{Line, Position};

/// A longer line is kept in parts.
const LINE_MAX: usize = 1 << 20;
/// The time of a line before which no valid time stands.
const UNKNOWN: &str = "1970-01-01T00:00:00.000000000Z";

/// Splits a log, which begins at the time of the last kept line.
#[derive(Debug)]
pub(super) struct Lines {
    /// Where the kept output ends.
    kept: Position,
    /// Lines of that time that are still to be skipped, and bytes of the line after them.
    same: u64,
    torn: u64,
    /// The begin of a line whose end has not arrived, without the parts before it.
    rest: Vec<u8>,
    /// The time of the line of which parts were passed on.
    part_of: Option<String>,
    /// The time of the line before.
    time: String,
    /// Lines are missing between what is kept and what arrived.
    has_gap: bool,
}

impl Lines {
    pub fn after(kept: Position) -> Self {
        let time = if kept.time.is_empty() { UNKNOWN.to_owned() } else { kept.time.clone() };
        let (same, torn) = (kept.same, kept.torn);
        Self { kept, same, torn, rest: Vec::new(), part_of: None, time, has_gap: false }
    }

    /// Whether the log had all lines that are kept: then its end is the end.
    pub fn is_aligned(&self) -> bool {
        self.same == 0
    }

    /// Whether lines are missing; says so once.
    pub fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.has_gap)
    }

    /// New lines that are complete now.
    pub fn take(&mut self, mut bytes: &[u8]) -> Vec<Line> {
        let mut lines = Vec::new();
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.extend(line, &mut lines);
            let line = self.line(false);
            lines.extend(line);
            bytes = rest.get(1..).unwrap_or_default();
        }
        self.extend(bytes, &mut lines);
        lines
    }

    /// The unfinished line, if nothing more comes.
    pub fn finish(&mut self) -> Option<Line> {
        if self.rest.is_empty() && self.part_of.is_none() { None } else { self.line(false) }
    }

    fn extend(&mut self, mut bytes: &[u8], lines: &mut Vec<Line>) {
        while self.rest.len() + bytes.len() > LINE_MAX {
            let (now, later) = bytes.split_at(LINE_MAX - self.rest.len());
            self.rest.extend_from_slice(now);
            bytes = later;
            let part = self.line(true);
            lines.extend(part);
        }
        self.rest.extend_from_slice(bytes);
    }

    /// What was gathered, as a line or as a part of one; `None`: it is kept already.
    fn line(&mut self, is_part: bool) -> Option<Line> {
        let raw = std::mem::take(&mut self.rest);
        let (time, text) = match self.part_of.take() {
            Some(time) => (time, raw),
            None => match stamped(&raw) {
                Some((time, text)) => (time.to_owned(), text.to_vec()),
                None => (self.time.clone(), raw),
            },
        };
        self.time.clone_from(&time);
        if is_part {
            self.part_of = Some(time.clone());
        }
        self.new_line(Line { time, text, is_part })
    }

    fn new_line(&mut self, mut line: Line) -> Option<Line> {
        if !self.kept.time.is_empty() && line.time < self.kept.time {
            return None;
        }
        if self.same > 0 {
            if line.time == self.kept.time {
                self.same -= u64::from(!line.is_part);
                return None;
            }
            self.has_gap = true;
            (self.same, self.torn) = (0, 0);
        }
        if self.torn > 0 {
            let known = usize::try_from(self.torn).unwrap_or(usize::MAX).min(line.text.len());
            line.text.drain(..known);
            self.torn = if line.is_part { self.torn - known as u64 } else { 0 };
            if line.text.is_empty() && line.is_part {
                return None;
            }
        }
        Some(line)
    }
}

/// A line that begins with its time, in two.
fn stamped(raw: &[u8]) -> Option<(&str, &[u8])> {
    let end = raw.iter().take(40).position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(raw.get(..end)?).ok()?;
    time.parse::<jiff::Timestamp>().ok()?;
    Some((time, raw.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(second: u8) -> String {
        format!("2026-01-01T00:00:{second:02}.000000000Z")
    }

    fn log(lines: &[(u8, &str)]) -> Vec<u8> {
        lines.iter().flat_map(|(second, text)| format!("{} {text}\n", time(*second)).into_bytes()).collect()
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
    }

    #[test]
    fn however_a_log_arrives_its_lines_are_the_same() {
        let log = log(&[(1, "a"), (1, ""), (2, "b  c\r"), (3, "é")]);
        for size in 1..log.len() {
            let mut lines = Lines::after(Position::default());
            let all: Vec<Line> = log.chunks(size).flat_map(|bytes| lines.take(bytes)).collect();
            assert_eq!(texts(&all), ["a", "", "b  c\r", "é"], "{size}");
            assert!(lines.finish().is_none() && lines.is_aligned());
        }
    }

    #[test]
    fn nothing_is_lost_or_repeated_wherever_a_reader_stops() {
        let all = [(1, "a"), (1, "b"), (2, "c"), (2, "d"), (2, "e"), (3, "f")];
        for stop in 0..=all.len() {
            let mut position = Position::default();
            let first = Lines::after(position.clone()).take(&log(&all[..stop]));
            first.iter().for_each(|line| position.pass(line));
            // the log is asked for from the time of the last line on
            let since: Vec<(u8, &str)> =
                all.iter().filter(|(second, _)| position.time <= time(*second)).copied().collect();
            let mut lines = Lines::after(position);
            let second = lines.take(&log(&since));
            assert_eq!([texts(&first), texts(&second)].concat(), ["a", "b", "c", "d", "e", "f"], "{stop}");
            assert!(lines.is_aligned() && !lines.take_gap());
        }
    }

    #[test]
    fn a_log_that_broke_off_is_not_taken_for_whole() {
        let position = Position { time: time(2), same: 2, torn: 0 };
        let mut lines = Lines::after(position.clone());
        assert!(lines.take(&log(&[(2, "a")])).is_empty());
        assert!(!lines.is_aligned());
        let mut lines = Lines::after(position);
        assert_eq!(texts(&lines.take(&log(&[(3, "later")]))), ["later"]);
        assert!(lines.is_aligned() && lines.take_gap() && !lines.take_gap(), "lines were rotated away");
    }

    #[test]
    fn long_lines_are_kept_in_parts_once() {
        let long: String = (0..3 * LINE_MAX).map(|at| char::from(b'a' + u8::try_from(at % 26).unwrap())).collect();
        let log = log(&[(1, "short"), (2, &long), (3, "after")]);
        let joined = |lines: &[Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>().concat();
        let mut lines = Lines::after(Position::default());
        let all: Vec<Line> = log.chunks(65_536).flat_map(|bytes| lines.take(bytes)).collect();
        assert_eq!(all.iter().map(|line| line.is_part).collect::<Vec<_>>(), [false, true, true, true, false, false]);
        for stop in 0..all.len() {
            let mut position = Position::default();
            all[..stop].iter().for_each(|line| position.pass(line));
            let since =
                if position.time.is_empty() { 0 } else { log.iter().position(|byte| *byte == b'\n').unwrap() + 1 };
            let log = if position.time == time(2) { &log[since..] } else { &log[..] };
            let mut lines = Lines::after(position);
            let rest: Vec<Line> = log.chunks(10_000).flat_map(|bytes| lines.take(bytes)).collect();
            assert_eq!([joined(&all[..stop]), joined(&rest)].concat(), joined(&all), "{stop}");
        }
    }

    #[test]
    fn lines_without_a_time_are_kept_as_they_are() {
        let mut lines = Lines::after(Position::default());
        let all = lines.take(b"no time here\n\n99-99 x\n");
        assert_eq!(texts(&all), ["no time here", "", "99-99 x"]);
        assert!(all.iter().all(|line| line.time == UNKNOWN));
        assert!(lines.take(b"unfinished").is_empty());
        assert_eq!(lines.finish().unwrap().text, b"unfinished");
    }
}
