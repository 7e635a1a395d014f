//! Files that are missing: all of them at once, in as many streams as pay, until each is in its place.

use super::folder::PartFile;
use super::piece::{self, FETCHED_MOST, Origin, Shared};
use super::status::{Progress, Status};
use super::wanted::{Item, total};
use super::{Said, Say};
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::pace::Streams;
use crate::plan::parts::{Cut, Piece, Queue};
use crate::plan::progress::{Told, left};
use crate::plan::restart::{Entry, Record};
use crate::plan::settings::Settings;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How often the rate is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Files begin before a stream is free for them, as what their source has to say of them takes a round trip. So many pieces for each
/// stream may wait or be about to: part files do not all lie there at once.
const AHEAD: usize = 2;

/// A file on its way.
struct Job {
    item: Item,
    file: Option<Arc<PartFile>>,
    /// Parts that are to come; 0 of a file that comes whole.
    left: u32,
    fetched: u32,
    changed: bool,
    /// Which beginning this is: answers to an earlier one are passed over.
    begun: u32,
    /// Bytes of it that count as done.
    done: u64,
}

impl Job {
    fn new(item: Item) -> Self {
        Self { item, file: None, left: 0, fetched: 0, changed: false, begun: 0, done: 0 }
    }
}

/// How a file begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    First,
    /// Nothing that came of it counts.
    Anew,
    /// The same, as it is another at its source by now.
    Changed,
}

/// What a task did.
enum Done {
    /// The file's source was asked about it, and it has a part file if it comes in parts, with those that are there.
    Begun(Entry, Option<(Arc<PartFile>, Vec<u32>)>),
    /// In its place.
    File(Record),
    Part,
    /// All parts came, and the sum is wrong.
    Damaged,
}

/// What a task keeps others from.
enum Held {
    /// A stream. `large`: one that counts in the queue as a large file's.
    Stream {
        large: bool,
    },
    /// Room in the queue, for so many pieces.
    Ahead(usize),
    Nothing,
}

struct Outcome {
    file: usize,
    /// Of a part: its number.
    part: u32,
    begun: u32,
    held: Held,
    result: Result<Done, Fault>,
}

/// A file that comes in parts, cut; `None`: it comes whole.
fn cut(entry: &Entry, part: u64) -> Option<Cut> {
    let size = entry.size.filter(|size| *size > part)?;
    (entry.ranges && entry.version.is_some()).then_some(Cut { size, part })
}

/// Asks the source what its listing does not tell, checksums above all, and opens the part file.
async fn begun(shared: Arc<Shared>, origin: Origin, entry: Arc<Entry>, part: u64, how: How) -> Result<Done, Fault> {
    // a fault of this question says nothing of the content, so it does not count as another change of it
    let described = origin.source.describe(&entry).await.map_err(Fault::into_error)?;
    let is_same = described.size == entry.size && described.version == entry.version;
    let entry = if is_same || how == How::Changed { described } else { Entry::clone(&entry) };
    let Some(cut) = cut(&entry, part) else { return Ok(Done::Begun(entry, None)) };
    let opened = tokio::task::spawn_blocking(move || {
        let opened = shared.folder.parts(&entry, &origin.name(&entry), cut, how != How::First);
        opened.map(|(file, there)| Done::Begun(entry, Some((Arc::new(file), there))))
    });
    Ok(opened.await.map_err(|e| Error::new(Kind::Other, e.to_string()))??)
}

pub struct Jobs<'a> {
    shared: &'a Arc<Shared>,
    say: &'a Say,
    status: Option<&'a Status>,
    files_done: usize,
    part: u64,
    streams: Streams,
    jobs: Vec<Job>,
    /// Of `jobs`, the first that has not begun.
    next: usize,
    queue: Queue,
    /// Pieces of files that are about to be in the queue.
    coming: usize,
    running: JoinSet<Outcome>,
    /// Of `running`, those that hold a stream.
    open: usize,
    total: u64,
    /// Bytes of finished files and parts.
    done: u64,
}

impl<'a> Jobs<'a> {
    pub fn new(
        settings: &Settings,
        shared: &'a Arc<Shared>,
        todo: Vec<Item>,
        say: &'a Say,
        status: Option<&'a Status>,
    ) -> Self {
        let small = todo.iter().filter(|item| cut(&item.entry, settings.part).is_none()).count();
        Self {
            shared,
            say,
            status,
            files_done: 0,
            part: settings.part,
            streams: Streams::new(settings.streams, small),
            total: total(&todo),
            jobs: todo.into_iter().map(Job::new).collect(),
            next: 0,
            queue: Queue::default(),
            coming: 0,
            running: JoinSet::new(),
            open: 0,
            done: 0,
        }
    }

    fn count(&mut self, index: usize, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        self.jobs[index].done = self.jobs[index].done.saturating_add(bytes);
    }

    /// A file is begun anew: what came of it does not count.
    fn uncount(&mut self, index: usize) {
        self.done = self.done.saturating_sub(std::mem::take(&mut self.jobs[index].done));
    }

    /// Sees to it that what is missing of a file gets into the queue.
    fn begin(&mut self, index: usize, how: How) {
        let job = &self.jobs[index];
        let pieces = match cut(&job.item.entry, self.part) {
            Some(cut) => usize::try_from(cut.count()).unwrap_or(usize::MAX),
            None if how != How::Changed => return self.queue.push(Piece { file: index, part: 0 }, false),
            None => 1,
        };
        self.coming = self.coming.saturating_add(pieces);
        let (shared, part, begun) = (Arc::clone(self.shared), self.part, job.begun);
        let Item { origin, entry } = job.item.clone();
        self.running.spawn(async move {
            let result = self::begun(shared, origin, entry, part, how).await;
            Outcome { file: index, part: 0, begun, held: Held::Ahead(pieces), result }
        });
    }

    /// A file's source has said what it is, and its part file is open.
    fn queue(&mut self, index: usize, entry: Entry, parts: Option<(Arc<PartFile>, Vec<u32>)>) {
        let size = |entry: &Entry| entry.size.unwrap_or(0);
        let job = &mut self.jobs[index];
        self.total = self.total.saturating_sub(size(&job.item.entry)).saturating_add(size(&entry));
        job.item.entry = Arc::new(entry);
        job.left = 0;
        let Some((file, there)) = parts else {
            job.file = None;
            return self.queue.push(Piece { file: index, part: 0 }, false);
        };
        let cut = file.cut;
        job.file = Some(file);
        let mut left = 0_u32;
        for part in 0..cut.map_or(0, Cut::count) {
            if there.binary_search(&part).is_ok() {
                let range = cut.map_or(0..0, |cut| cut.range(part));
                self.count(index, range.end.saturating_sub(range.start));
            } else {
                left = left.saturating_add(1);
                self.queue.push(Piece { file: index, part }, true);
            }
        }
        self.jobs[index].left = left;
        if left == 0 {
            self.finish(index);
        }
    }

    fn finish(&mut self, index: usize) {
        let job = &mut self.jobs[index];
        job.fetched = job.fetched.saturating_add(1);
        let Some(file) = job.file.clone() else { return };
        let (shared, begun, is_last) = (Arc::clone(self.shared), job.begun, job.fetched >= FETCHED_MOST);
        let Item { origin, entry } = job.item.clone();
        self.running.spawn(async move {
            let result = piece::finish(shared, origin, entry, file, is_last).await;
            let result = result.map(|record| record.map_or(Done::Damaged, Done::File));
            Outcome { file: index, part: 0, begun, held: Held::Nothing, result }
        });
    }

    fn start(&mut self, piece: Piece, large: bool) {
        let job = &self.jobs[piece.file];
        let (shared, begun, file) = (Arc::clone(self.shared), job.begun, job.file.clone());
        let Item { origin, entry } = job.item.clone();
        self.open = self.open.saturating_add(1);
        self.running.spawn(async move {
            let result = match file {
                Some(file) if large => {
                    let range = file.cut.map_or(0..0, |cut| cut.range(piece.part));
                    piece::part(&shared, &origin, &entry, &file, piece.part, range).await.map(|()| Done::Part)
                }
                _ => piece::whole(&shared, &origin, &entry).await.map(Done::File),
            };
            Outcome { file: piece.file, part: piece.part, begun, held: Held::Stream { large }, result }
        });
    }

    /// An object that changed is looked at once more, and begun anew; the second time it fails.
    fn changed(&mut self, index: usize, why: String) -> Result<(), Error> {
        self.queue.forget(index);
        self.uncount(index);
        let job = &mut self.jobs[index];
        if job.changed {
            return Err(Error::new(
                Kind::Damaged,
                format!("{why}, and once more at the second attempt; fetch it when no other program writes to it"),
            ));
        }
        (self.say)(Said::Warning(format!("{why}; it is fetched again")));
        job.changed = true;
        job.fetched = 0;
        job.begun = job.begun.saturating_add(1);
        self.begin(index, How::Changed);
        Ok(())
    }

    /// A server without ranges, whatever it said: the file comes in one go.
    fn read_whole(&mut self, index: usize) {
        self.queue.forget(index);
        self.uncount(index);
        let job = &mut self.jobs[index];
        let whole = Entry { ranges: false, ..Entry::clone(&job.item.entry) };
        job.item.entry = Arc::new(whole);
        (job.file, job.left) = (None, 0);
        job.begun = job.begun.saturating_add(1);
        self.begin(index, How::Anew);
    }

    fn take(&mut self, outcome: Outcome) -> Result<(), Error> {
        let index = outcome.file;
        let mut came = false;
        match outcome.held {
            Held::Stream { large } => {
                self.open = self.open.saturating_sub(1);
                self.queue.done(large);
                came = true;
            }
            Held::Ahead(pieces) => self.coming = self.coming.saturating_sub(pieces),
            Held::Nothing => {}
        }
        if outcome.begun != self.jobs[index].begun {
            return Ok(());
        }
        match outcome.result {
            Ok(Done::Begun(entry, parts)) => self.queue(index, entry, parts),
            Ok(Done::File(record)) => {
                self.files_done = self.files_done.saturating_add(1);
                // bytes of parts are counted already
                if came {
                    self.count(index, record.size);
                }
            }
            Ok(Done::Part) => {
                let job = &mut self.jobs[index];
                job.left = job.left.saturating_sub(1);
                let range = job.file.as_ref().and_then(|file| file.cut).map_or(0..0, |cut| cut.range(outcome.part));
                let is_whole = job.left == 0;
                self.count(index, range.end.saturating_sub(range.start));
                if is_whole {
                    self.finish(index);
                }
            }
            Ok(Done::Damaged) => {
                self.uncount(index);
                let job = &mut self.jobs[index];
                (self.say)(Said::Warning(format!(
                    "{}: the checksum is wrong; it is fetched again",
                    job.item.entry.source
                )));
                job.begun = job.begun.saturating_add(1);
                self.begin(index, How::Anew);
            }
            Err(Fault::Changed(why)) => self.changed(index, why)?,
            Err(Fault::Whole(_)) => self.read_whole(index),
            Err(fault) => return Err(fault.into_error()),
        }
        Ok(())
    }

    /// The status server, if there is one.
    fn tell(&self, at: Duration) {
        let Some(status) = self.status else { return };
        let (done, fetched) = (self.done.min(self.total), self.shared.fetched.load(Ordering::Relaxed));
        let left = left(done, self.total, fetched, at);
        status.tell(Progress { done, total: self.total, files_done: self.files_done, left });
    }

    /// Gives every free stream a piece, and begins the files that are next.
    fn fill(&mut self) {
        let streams = self.streams.now();
        loop {
            if self.open < streams
                && let Some((piece, large)) = self.queue.next(streams)
            {
                self.start(piece, large);
            } else if self.next < self.jobs.len()
                && self.queue.waiting().saturating_add(self.coming) < streams.saturating_mul(AHEAD)
            {
                self.begin(self.next, How::First);
                self.next = self.next.saturating_add(1);
            } else {
                return;
            }
        }
    }

    /// Until all are in their places. `patience`: servers that ask for it.
    pub async fn run(mut self, mut patience: mpsc::UnboundedReceiver<Duration>) -> Result<(), Error> {
        let start = Instant::now();
        let mut told = Told::default();
        let mut paused_until = tokio::time::Instant::now();
        let mut look = tokio::time::interval(LOOK);
        look.tick().await;
        let mut before = 0;
        loop {
            let is_paused = tokio::time::Instant::now() < paused_until;
            if !is_paused {
                self.fill();
            }
            if self.running.is_empty() && self.next == self.jobs.len() && !is_paused {
                self.tell(start.elapsed());
                return Ok(());
            }
            tokio::select! {
                Some(outcome) = self.running.join_next() => {
                    let outcome = outcome.map_err(|e| Error::new(Kind::Other, format!("a download ended without an answer: {e}")))?;
                    self.take(outcome)?;
                }
                Some(wait) = patience.recv() => {
                    // several streams are told at once: that is one word
                    if tokio::time::Instant::now() >= paused_until {
                        self.streams.pushed_back();
                    }
                    let now = tokio::time::Instant::now();
                    paused_until = paused_until.max(now.checked_add(wait).unwrap_or(now));
                }
                () = tokio::time::sleep_until(paused_until), if is_paused => {}
                _ = look.tick() => {
                    let fetched = self.shared.fetched.load(Ordering::Relaxed);
                    if self.open >= self.streams.now() && !is_paused {
                        self.streams.measured(fetched.saturating_sub(before) as f64);
                    }
                    before = fetched;
                    if let Some(line) = told.line(self.done.min(self.total), self.total, fetched, start.elapsed()) {
                        (self.say)(Said::Info(line));
                        self.tell(start.elapsed());
                    }
                }
            }
        }
    }
}
