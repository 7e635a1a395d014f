//! The format of kept files: each line is a record.
//!
//! | Record | What it holds |
//! |---|---|
//! | `3 TIME TEXT` | a line of source 3, with the time that its machine wrote before it |
//! | `3~TIME TEXT` | a part of a long line, whose rest follows |
//! | `3+POD RANK TIME SAME TORN` | source 3 is this pod's rank; how far it is kept |
//! | `3.` | the output of source 3 is complete |
//! | `0!TEXT` | a note of the control plane |

use std::io::Write;

/// A line of output, or a part of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub time: String,
    pub text: Vec<u8>,
    /// The rest of the line follows.
    pub is_part: bool,
}

/// How far the output of a pod is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The time of the last complete line; empty for none.
    pub time: String,
    /// Number of complete lines with this time: lines that were written together share a time.
    pub same: u64,
    /// Bytes that are kept of the line after those.
    pub torn: u64,
}

impl Position {
    /// Moves past a line or a part.
    pub fn pass(&mut self, line: &Line) {
        self.pass_bytes(&line.time, line.text.len(), line.is_part);
    }

    fn pass_bytes(&mut self, time: &str, length: usize, is_part: bool) {
        if is_part {
            self.torn += length as u64;
            return;
        }
        self.torn = 0;
        if self.time == time {
            self.same += 1;
        } else {
            time.clone_into(&mut self.time);
            self.same = 1;
        }
    }
}

/// A pod whose output is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The pod's uid.
    pub pod: String,
    /// `head`, `worker1`.
    pub rank: String,
    pub position: Position,
    /// Nothing more comes.
    pub is_complete: bool,
}

/// What a line of a kept file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Line { source: u32, time: &'a [u8], text: &'a [u8], is_part: bool },
    Source { source: u32, of: Source },
    Complete { source: u32 },
    Note(&'a [u8]),
}

impl<'a> Record<'a> {
    /// Reads a line, without its line feed. `None`: it is damaged.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = line.split_at_checked(digits)?;
        let source: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let (kind, rest) = rest.split_first()?;
        Some(match kind {
            b' ' | b'~' => {
                let end = rest.iter().position(|byte| *byte == b' ')?;
                let (time, text) = (rest.get(..end)?, rest.get(end + 1..)?);
                Self::Line { source, time, text, is_part: *kind == b'~' }
            }
            b'+' => Self::Source { source, of: source_of(rest)? },
            b'.' => Self::Complete { source },
            b'!' => Self::Note(rest),
            _ => return None,
        })
    }

    /// What readers see of it.
    pub fn shown(&self) -> Option<&'a [u8]> {
        match self {
            Self::Line { text, .. } | Self::Note(text) => Some(text),
            Self::Source { .. } | Self::Complete { .. } => None,
        }
    }
}

fn source_of(text: &[u8]) -> Option<Source> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ');
    let (pod, rank, time) = (words.next()?, words.next()?, words.next()?);
    let position = Position {
        time: if time == NO_TIME { String::new() } else { time.to_owned() },
        same: words.next()?.parse().ok()?,
        torn: words.next()?.parse().ok()?,
    };
    Some(Source { pod: pod.to_owned(), rank: rank.to_owned(), position, is_complete: false })
}

/// In place of a time, where no line is complete.
const NO_TIME: &str = "-";

/// Writes records into a buffer.
#[derive(Debug, Default)]
pub(crate) struct Records(pub Vec<u8>);

impl Records {
    pub fn line(&mut self, source: u32, line: &Line) {
        let kind = if line.is_part { '~' } else { ' ' };
        self.begin(source, kind);
        self.0.extend_from_slice(line.time.as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(&line.text);
        self.0.push(b'\n');
    }

    /// The state of a source, with its end.
    pub fn source(&mut self, source: u32, of: &Source) {
        let Position { time, same, torn } = &of.position;
        let time = if time.is_empty() { NO_TIME } else { time };
        self.begin(source, '+');
        let _ = writeln!(self.0, "{} {} {time} {same} {torn}", of.pod, of.rank);
        if of.is_complete {
            self.complete(source);
        }
    }

    pub fn complete(&mut self, source: u32) {
        self.begin(source, '.');
        self.0.push(b'\n');
    }

    /// A note of one line.
    pub fn note(&mut self, text: &str) {
        self.begin(0, '!');
        self.0.extend_from_slice(api::foreign::visible_line(text).as_bytes());
        self.0.push(b'\n');
    }

    fn begin(&mut self, source: u32, kind: char) {
        let _ = write!(self.0, "{source}{kind}"); // a vector takes everything
    }
}

/// The sources that a file's text describes, by number from 1, on top of those before it.
pub(crate) fn sources(text: &[u8]) -> Vec<Source> {
    let mut all: Vec<Source> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        match Record::parse(line) {
            Some(Record::Source { source, of }) if source as usize == all.len() + 1 => all.push(of),
            Some(Record::Line { source, time, text, is_part }) => {
                if let Some(source) = at(&mut all, source) {
                    source.position.pass_bytes(&String::from_utf8_lossy(time), text.len(), is_part);
                }
            }
            Some(Record::Complete { source }) => {
                if let Some(source) = at(&mut all, source) {
                    source.is_complete = true;
                }
            }
            Some(Record::Source { .. } | Record::Note(_)) | None => {}
        }
    }
    all
}

/// The source of a number.
pub(crate) fn at(all: &mut [Source], number: u32) -> Option<&mut Source> {
    all.get_mut((number as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: &str, text: &[u8]) -> Line {
        Line { time: time.to_owned(), text: text.to_vec(), is_part: false }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let position = Position { time: "t1".to_owned(), same: 2, torn: 7 };
        let source = Source { pod: "uid".to_owned(), rank: "head".to_owned(), position, is_complete: false };
        let mut records = Records::default();
        records.source(1, &source);
        records.line(1, &line("t2", b"a\rb \xff"));
        records.line(1, &Line { is_part: true, ..line("t3", b"long") });
        records.note("two\nlines");
        records.complete(1);
        let read: Vec<Record<'_>> = records.0.split(|byte| *byte == b'\n').filter_map(Record::parse).collect();
        let of = |time, text, is_part| Record::Line { source: 1, time, text, is_part };
        let expected = [
            Record::Source { source: 1, of: source },
            of(b"t2", b"a\rb \xff", false),
            of(b"t3", b"long", true),
            Record::Note(b"two\\nlines"),
            Record::Complete { source: 1 },
        ];
        assert_eq!(read, expected);
        let sources = sources(&records.0);
        assert_eq!(sources[0].position, Position { time: "t2".to_owned(), same: 1, torn: 4 });
        assert!(sources[0].is_complete);
    }

    #[test]
    fn damaged_lines_are_skipped() {
        for damaged in ["", "x", "1", "1 time", "1?x", "99999999999 t x", "1+uid head", "\0\0\0"] {
            assert_eq!(Record::parse(damaged.as_bytes()), None, "{damaged:?}");
        }
        assert!(sources(b"7 t x\n0.\n5.\n2+uid head - 0 0\n").is_empty());
    }

    #[test]
    fn lines_that_share_a_time_are_counted() {
        let mut position = Position::default();
        for (time, is_part) in [("a", false), ("b", false), ("b", true), ("b", true), ("b", false)] {
            position.pass(&Line { is_part, ..line(time, b"xy") });
        }
        assert_eq!(position, Position { time: "b".to_owned(), same: 2, torn: 0 });
    }
}
