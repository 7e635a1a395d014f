//! What a reader of a job's output is shown next: a decision over what is kept.

use crate::part::{Part, Spot, Stage};
use crate::record::Record;
use crate::segment::Portion;
use crate::store::{Extent, JobOutput, Outputs};
use crate::stream::Request;
use std::io;
use std::time::{Duration, Instant};

/// How long a part without new lines holds up what follows it: if its machines do not answer, and if they do.
const CUT_MAX: Duration = Duration::from_secs(3);
const QUIET_MAX: Duration = Duration::from_secs(15);

/// What is next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Lines, perhaps none; then the next step.
    Text(Vec<u8>),
    /// The present state of the job is needed, for a mark.
    Facts,
    /// Nothing before something changes. A limit of time counts, too, if it is timed.
    Wait { is_timed: bool },
    /// Everything was shown.
    End,
}

/// How far a reader is.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    request: Request,
    /// After what was shown; `None`: nothing was.
    at: Option<Spot>,
    has_begun: bool,
    /// Since when only this part is missing.
    holds_up: Option<Instant>,
    /// The part for whose mark the state of the job was read.
    asked_for: Option<Part>,
}

impl Reader {
    pub fn new(request: Request) -> Self {
        Self { at: request.from, request, has_begun: false, holds_up: None, asked_for: None }
    }

    /// Decides what is next. Waits for the disk.
    pub fn step(&mut self, outputs: &Outputs, job: &JobOutput) -> io::Result<Step> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if job.is_closed() {
            let is_removed = is_first && job.page().is_removed;
            return Ok(if is_removed { Step::Text(self.shown(before_all(), REMOVED)) } else { Step::End });
        }
        let has_ended = job.page().task_has_ended(self.request.task);
        let parts = job.parts(self.request.task);
        if is_first && self.at.is_none() {
            self.at = self.request.tail.map(|tail| last(outputs, job, &parts, tail)).transpose()?.flatten();
        }
        let Some(at) = self.at else {
            return Ok(match parts.first() {
                Some(first) => self.enter(job, *first, &parts),
                None if has_ended || !self.request.follow => Step::End,
                None => Step::Wait { is_timed: false },
            });
        };
        // looked at before the lines: a part that was complete then has no others
        let extent = outputs.extent(job, at.part)?.unwrap_or_default();
        if let Some(portion) = outputs.read(job, at.part, at.offset)?.filter(|portion| !portion.bytes.is_empty()) {
            self.holds_up = None;
            return Ok(Step::Text(self.render(at, &portion)));
        }
        let next = parts.iter().find(|part| **part > at.part);
        if next.is_none() && !has_ended && self.request.follow {
            return Ok(Step::Wait { is_timed: false });
        }
        if !self.may_leave(extent) {
            return Ok(Step::Wait { is_timed: true });
        }
        Ok(next.map_or(Step::End, |next| self.enter(job, *next, &parts)))
    }

    /// Whether nothing more of the present part is waited for.
    fn may_leave(&mut self, extent: Extent) -> bool {
        if !self.request.follow || extent.open == 0 {
            return true;
        }
        let waited = self.holds_up.get_or_insert_with(Instant::now).elapsed();
        waited > if extent.reading == 0 { CUT_MAX } else { QUIET_MAX }
    }

    /// Goes on to a part, with a mark if it is another attempt's.
    fn enter(&mut self, job: &JobOutput, part: Part, parts: &[Part]) -> Step {
        let of = |part: &Part| (part.task, part.attempt);
        let page = job.page();
        let is_new = !parts.iter().any(|other| of(other) == of(&part) && other.stage < part.stage);
        let several = part.attempt > 1 || page.tasks.len() > 1 || parts.iter().any(|other| of(other) != of(&part));
        let earlier = parts.iter().filter(|other| other.task == part.task && other.attempt < part.attempt);
        let previous = earlier.map(|other| other.attempt).max();
        let has_mark = is_new && several;
        // the watch of jobs may be later than that of pods
        if has_mark && !page.knows(part.task, part.attempt, previous) && self.asked_for.replace(part) != Some(part) {
            return Step::Facts;
        }
        let start = Spot { part, offset: 0 };
        (self.at, self.holds_up) = (Some(start), None);
        Step::Text(match has_mark {
            true => self.shown(start, &page.mark(part.task, part.attempt, previous)),
            false => Vec::new(),
        })
    }

    /// The lines of records, and the place after them.
    fn render(&mut self, at: Spot, portion: &Portion) -> Vec<u8> {
        let mut spot = Spot { offset: portion.start, ..at };
        let mut text = Vec::with_capacity(portion.bytes.len());
        if portion.start > at.offset {
            let missing = size_shown(portion.start - at.offset);
            text = self.shown(spot, &format!("--- {missing} of older output are not kept any more ---"));
        }
        for record in portion.bytes.split_inclusive(|byte| *byte == b'\n') {
            spot.offset += record.len() as u64;
            let record = Record::parse(record.strip_suffix(b"\n").unwrap_or(record));
            if let Some(shown) = record.and_then(|record| record.shown()) {
                self.line(&mut text, spot, shown);
            }
        }
        self.at = Some(spot);
        text
    }

    fn shown(&self, after: Spot, line: &str) -> Vec<u8> {
        let mut text = Vec::new();
        self.line(&mut text, after, line.as_bytes());
        text
    }

    fn line(&self, text: &mut Vec<u8>, after: Spot, line: &[u8]) {
        if self.request.places {
            text.extend_from_slice(format!("{after} ").as_bytes());
        }
        text.extend_from_slice(line);
        text.push(b'\n');
    }
}

/// In place of output that was removed.
const REMOVED: &str = "--- the output of this job was removed, because too much output was kept ---";

fn before_all() -> Spot {
    Spot { part: Part { task: 0, attempt: 1, stage: Stage::Setup }, offset: 0 }
}

/// The place before the last lines; `None`: there are fewer.
fn last(outputs: &Outputs, job: &JobOutput, parts: &[Part], mut lines: usize) -> io::Result<Option<Spot>> {
    for part in parts.iter().rev() {
        let Some((offset, found)) = outputs.tail(job, *part, lines)? else { continue };
        if found >= lines {
            return Ok(Some(Spot { part: *part, offset }));
        }
        lines -= found;
    }
    Ok(None)
}

/// `3.5 MiB`.
fn size_shown(bytes: u64) -> String {
    let tenths = bytes / ((1 << 20) / 10);
    match tenths {
        0 => format!("{bytes} bytes"),
        tenths => format!("{}.{} MiB", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests;
