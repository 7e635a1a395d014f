//! A run: what is there and what is wanted, then everything that is missing at once, then the state of the folder.

mod folder;
mod piece;
mod sink;
mod status;
mod sum;

use crate::http::{Client, Fault, Secrets};
use crate::plan::error::{Error, Kind};
use crate::plan::names::{self, Name};
use crate::plan::pace::Streams;
use crate::plan::parts::{Cut, Piece, Queue};
use crate::plan::progress::{Told, bytes, left};
use crate::plan::restart::{Complete, Entry, Line, Need, Record, State, need};
use crate::plan::settings::Settings;
use crate::source::Source;
use folder::{Folder, PartFile};
use hyper_util::client::proxy::matcher::Matcher;
use piece::{FETCHED_MOST, Origin, Shared};
use serde::Serialize;
use status::{Progress, Status};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Fetch,
    /// Only say what would be fetched.
    DryRun,
    /// Only compare what is there with the source.
    Verify,
}

/// What is said on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Info(String),
    Warning(String),
}

pub type Say = Arc<dyn Fn(Said) + Send + Sync>;

/// One file, and what became of it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct FileReport {
    pub path: String,
    pub size: Option<u64>,
    /// `present`, `fetched`; of a dry run `missing`; of a verification `present`, `missing`, `different`.
    pub state: &'static str,
}

#[derive(Clone, Debug, Default, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub files: Vec<FileReport>,
    /// Of all files.
    pub bytes: u64,
    /// That came over the line, also those that were of no use.
    pub bytes_fetched: u64,
    pub seconds: f64,
}

/// A wanted file.
#[derive(Clone)]
struct Item {
    entry: Entry,
    origin: Origin,
}

/// What is known of all locations before anything is written.
struct Wanted {
    items: Vec<Item>,
    /// Locations with a pin, and their files' names.
    pinned: Vec<Complete>,
    /// Records of files of locations that need no look: all is there.
    present: Vec<Record>,
}

/// Fills `target`. `stop` ends it: what came is kept for the next run.
///
/// # Errors
/// Whatever kept it from being filled; the error's kind is the process's exit code.
pub async fn run(
    settings: Settings,
    target: PathBuf,
    mode: Mode,
    say: Say,
    stop: impl Future<Output = ()>,
) -> Result<Report, Error> {
    let secrets = Secrets::new(settings.secrets());
    let clean = secrets.clone();
    let say: Say = Arc::new(move |said| {
        say(match said {
            Said::Info(text) => Said::Info(clean.scrubbed(&text)),
            Said::Warning(text) => Said::Warning(clean.scrubbed(&text)),
        });
    });
    let client = Client::new(Matcher::from_env(), settings.stall, secrets.clone(), None);
    let result = tokio::select! {
        result = filled(&settings, &target, mode, &client, &say) => result,
        () = stop => Err(Error::new(Kind::Stopped, "stopped; what was fetched is kept, and the next run goes on from there")),
    };
    result.map_err(|error| Error::new(error.kind, secrets.scrubbed(&error.text)))
}

async fn filled(settings: &Settings, target: &Path, mode: Mode, client: &Client, say: &Say) -> Result<Report, Error> {
    let start = Instant::now();
    settings.warnings.iter().for_each(|text| say(Said::Warning(text.clone())));
    let wanted = look(settings, target, mode, client, say).await?;
    let present = wanted.present.iter().map(|record| Name { source: &record.origin, target: &record.target });
    names::check(
        wanted.items.iter().map(|item| Name { source: &item.entry.source, target: &item.entry.target }).chain(present),
    )?;
    let mut report = match mode {
        Mode::Fetch => {
            let status = Status::start(&settings.variables, &client.secrets, say);
            let fetched = fetch(settings, target, wanted, say, status.as_ref()).await;
            if let Some(status) = status {
                status.close().await;
            }
            fetched?
        }
        Mode::DryRun | Mode::Verify => compare(target, &wanted, mode).await?,
    };
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Asks all locations what they hold; one that is pinned and complete is not asked.
async fn look(settings: &Settings, target: &Path, mode: Mode, client: &Client, say: &Say) -> Result<Wanted, Error> {
    let state = folder::read_state(target);
    let mut wanted = Wanted { items: Vec::new(), pinned: Vec::new(), present: Vec::new() };
    for one in &settings.wanted {
        let source = Arc::new(Source::new(one, settings, client, target)?);
        let known =
            state.complete.iter().find(|known| known.location == one.name && known.settings == settings.fingerprint());
        if let Some(known) = known.filter(|_| mode != Mode::Verify) {
            let pin = source.pin().await.map_err(Fault::into_error)?;
            if let Some(records) = all_there(&state, known, target).filter(|_| pin.as_deref() == Some(&known.pin)) {
                say(Said::Info(format!("{}: all {} files of {} are there", one.name, records.len(), known.pin)));
                wanted.present.extend(records);
                wanted.pinned.push(known.clone());
                continue;
            }
        }
        let listing = source.list().await.map_err(Fault::into_error)?;
        listing.warnings.into_iter().for_each(|text| say(Said::Warning(text)));
        if let Some(pin) = listing.pin {
            let files = listing.entries.iter().map(|entry| entry.target.clone()).collect();
            wanted.pinned.push(Complete { location: one.name.clone(), pin, settings: settings.fingerprint(), files });
        }
        let origin = Origin { source, location: one.name.as_str().into() };
        wanted.items.extend(listing.entries.into_iter().map(|entry| Item { entry, origin: origin.clone() }));
    }
    Ok(wanted)
}

/// The records of all files of a complete location, if each is on the disk as it was put there.
fn all_there(state: &State, known: &Complete, target: &Path) -> Option<Vec<Record>> {
    let one = |name: &String| {
        let (record, synced) = state.files.get(name)?;
        let found = folder::found(target, name)?;
        (*synced && found.size == record.size && found.modified == record.modified).then(|| record.clone())
    };
    known.files.iter().map(one).collect()
}

/// What each file needs. Contents are compared on threads of their own, a few at a time.
async fn needs(target: &Path, items: &[Item], state: &State, every_byte: bool) -> Result<Vec<bool>, Error> {
    const AT_ONCE: usize = 4;
    let mut missing = vec![false; items.len()];
    let mut running: JoinSet<(usize, bool)> = JoinSet::new();
    for (index, item) in items.iter().enumerate() {
        let found = folder::found(target, &item.entry.target);
        let record = state.files.get(&item.entry.target);
        let mut what = need(&item.entry, &item.origin.name(&item.entry), record, found);
        if every_byte && what == Need::Nothing {
            let recorded = record.map(|(record, _)| record.check.clone());
            what = item.entry.check.clone().or(recorded).map_or(Need::Nothing, Need::Compare);
        }
        match what {
            Need::Nothing => {}
            Need::Fetch => missing[index] = true,
            Need::Compare(check) => {
                if running.len() >= AT_ONCE
                    && let Some(Ok((index, differs))) = running.join_next().await
                {
                    missing[index] = differs;
                }
                let path = target.join(&item.entry.target);
                running.spawn_blocking(move || {
                    (index, folder::hash(&path, check.algorithm).ok().is_none_or(|found| found != check))
                });
            }
        }
    }
    while let Some(done) = running.join_next().await {
        let (index, differs) = done.map_err(|e| Error::new(Kind::Other, e.to_string()))?;
        missing[index] = differs;
    }
    Ok(missing)
}

fn total(items: &[Item]) -> u64 {
    items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.entry.size.unwrap_or(0)))
}

async fn compare(target: &Path, wanted: &Wanted, mode: Mode) -> Result<Report, Error> {
    let state = folder::read_state(target);
    let missing = needs(target, &wanted.items, &state, mode == Mode::Verify).await?;
    let files = wanted.items.iter().zip(&missing).map(|(item, missing)| FileReport {
        path: item.entry.target.clone(),
        size: item.entry.size,
        state: match (missing, mode) {
            (false, _) => "present",
            (true, Mode::Verify) if folder::found(target, &item.entry.target).is_some() => "different",
            (true, _) => "missing",
        },
    });
    let present = wanted.present.iter().map(|record| FileReport {
        path: record.target.clone(),
        size: Some(record.size),
        state: "present",
    });
    let report = Report { files: files.chain(present).collect(), bytes: total(&wanted.items), ..Report::default() };
    let wrong: Vec<&FileReport> = report.files.iter().filter(|file| file.state != "present").collect();
    match (mode, wrong.as_slice()) {
        (Mode::Verify, [first, ..]) => {
            let text = format!(
                "{}: {} of {} files are not as their source has them; the first is {:?} ({}). Run without --verify to mend them",
                target.display(),
                wrong.len(),
                report.files.len(),
                first.path,
                first.state
            );
            Err(Error::new(Kind::Damaged, text))
        }
        _ => Ok(report),
    }
}

async fn fetch(
    settings: &Settings,
    target: &Path,
    wanted: Wanted,
    say: &Say,
    status: Option<&Status>,
) -> Result<Report, Error> {
    if wanted.items.is_empty() && !wanted.present.is_empty() {
        return Ok(report(&wanted, &[], 0));
    }
    let lock = match folder::lock(target, false)? {
        Some(lock) => lock,
        None => {
            say(Said::Info(format!("another run fills {}; waiting until it has ended", target.display())));
            let path = target.to_owned();
            let waiting = tokio::task::spawn_blocking(move || folder::lock(&path, true)).await;
            let lock = waiting.map_err(|e| Error::new(Kind::Other, e.to_string()))??;
            lock.ok_or_else(|| Error::new(Kind::Other, "the lock of the folder was lost"))?
        }
    };
    let (folder, state) = Folder::open(target, lock)?;
    let missing = needs(target, &wanted.items, &state, false).await?;
    let (todo, there): (Vec<_>, Vec<_>) =
        wanted.items.iter().cloned().zip(&missing).partition(|(_, missing)| **missing);
    let todo: Vec<Item> = todo.into_iter().map(|(item, _)| item).collect();
    room(target, &folder, &todo)?;
    say(Said::Info(format!(
        "{} files, {} to fetch ({})",
        wanted.items.len().saturating_add(wanted.present.len()),
        todo.len(),
        bytes(total(&todo))
    )));
    // what is there without a record gets one, so that the next run need not read it
    for (item, _) in &there {
        if !state.files.contains_key(&item.entry.target)
            && let (Some(check), Some(found)) = (&item.entry.check, folder::found(target, &item.entry.target))
        {
            folder.append(&[Line::File(Record {
                target: item.entry.target.clone(),
                origin: item.origin.name(&item.entry),
                version: item.entry.version.clone(),
                size: found.size,
                modified: found.modified,
                check: check.clone(),
            })])?;
        }
    }
    let (busy, patience) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared { folder, fetched: AtomicU64::new(0), busy });
    let all = todo.len();
    Pull::new(settings, &shared, todo, say, status).run(patience).await?;
    let complete: Vec<Line> = wanted.pinned.iter().cloned().map(Line::Complete).collect();
    let sync = Arc::clone(&shared);
    tokio::task::spawn_blocking(move || sync.folder.synced(&complete))
        .await
        .map_err(|e| Error::new(Kind::Other, e.to_string()))??;
    shared.folder.clear_parts();
    if all > 0 {
        say(Said::Info(format!("done: {} files in {}", wanted.items.len(), target.display())));
    }
    Ok(report(&wanted, &missing, shared.fetched.load(Ordering::Relaxed)))
}

fn report(wanted: &Wanted, missing: &[bool], fetched: u64) -> Report {
    let files = wanted.items.iter().enumerate().map(|(index, item)| FileReport {
        path: item.entry.target.clone(),
        size: item.entry.size,
        state: if missing.get(index) == Some(&true) { "fetched" } else { "present" },
    });
    let present = wanted.present.iter().map(|record| FileReport {
        path: record.target.clone(),
        size: Some(record.size),
        state: "present",
    });
    let size = wanted.present.iter().fold(total(&wanted.items), |sum, record| sum.saturating_add(record.size));
    Report { files: files.chain(present).collect(), bytes: size, bytes_fetched: fetched, seconds: 0.0 }
}

/// Asked before the first byte.
fn room(target: &Path, folder: &Folder, todo: &[Item]) -> Result<(), Error> {
    let reserved = todo.iter().fold(0_u64, |sum, item| {
        sum.saturating_add(folder.allocated(&item.entry.target).min(item.entry.size.unwrap_or(0)))
    });
    let needed = total(todo).saturating_sub(reserved);
    match folder::room(target) {
        Some(free) if free < needed => Err(Error::new(
            Kind::NoRoom,
            format!(
                "{}: {} are missing: {} are to be fetched, and {} are free; nothing was fetched",
                target.display(),
                bytes(needed.saturating_sub(free)),
                bytes(needed),
                bytes(free)
            ),
        )),
        _ => Ok(()),
    }
}

/// How often the rate is looked at.
const LOOK: Duration = Duration::from_millis(100);

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

enum Done {
    /// In its place.
    File(Record),
    Part,
    /// All parts came, and the sum is wrong.
    Damaged,
}

struct Outcome {
    piece: Piece,
    begun: u32,
    /// Whether it took a place in the queue's count of large files' parts.
    large: Option<bool>,
    result: Result<Done, Fault>,
}

struct Pull<'a> {
    shared: &'a Arc<Shared>,
    say: &'a Say,
    status: Option<&'a Status>,
    files_done: usize,
    part: u64,
    streams: Streams,
    jobs: Vec<Job>,
    queue: Queue,
    running: JoinSet<Outcome>,
    /// Of `running`, those that hold a stream.
    open: usize,
    total: u64,
    /// Bytes of finished files and parts.
    done: u64,
}

impl<'a> Pull<'a> {
    fn new(
        settings: &Settings,
        shared: &'a Arc<Shared>,
        todo: Vec<Item>,
        say: &'a Say,
        status: Option<&'a Status>,
    ) -> Self {
        Self {
            shared,
            say,
            status,
            files_done: 0,
            part: settings.part,
            streams: Streams::new(settings.streams),
            total: total(&todo),
            jobs: todo
                .into_iter()
                .map(|item| Job { item, file: None, left: 0, fetched: 0, changed: false, begun: 0, done: 0 })
                .collect(),
            queue: Queue::default(),
            running: JoinSet::new(),
            open: 0,
            done: 0,
        }
    }

    fn is_large(&self, entry: &Entry) -> bool {
        entry.ranges && entry.version.is_some() && entry.size.is_some_and(|size| size > self.part)
    }

    fn count(&mut self, index: usize, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        self.jobs[index].done = self.jobs[index].done.saturating_add(bytes);
    }

    /// A file is begun anew: what came of it does not count.
    fn uncount(&mut self, index: usize) {
        self.done = self.done.saturating_sub(std::mem::take(&mut self.jobs[index].done));
    }

    /// Queues what is missing of a file. `anew`: nothing that is there counts.
    async fn begin(&mut self, index: usize, anew: bool) -> Result<(), Error> {
        let entry = self.jobs[index].item.entry.clone();
        if !self.is_large(&entry) {
            self.jobs[index].left = 0;
            self.queue.push(Piece { file: index, part: 0 }, false);
            return Ok(());
        }
        let origin = self.jobs[index].item.origin.clone();
        // checksums that a listing does not tell
        let described = origin.source.describe(&entry).await.map_err(Fault::into_error)?;
        if described.size == entry.size && described.version == entry.version {
            self.jobs[index].item.entry = described;
        }
        let entry = &self.jobs[index].item.entry;
        let cut = Cut { size: entry.size.unwrap_or(0), part: self.part };
        let shared = Arc::clone(self.shared);
        let (copy, name) = (entry.clone(), origin.name(entry));
        let opened = tokio::task::spawn_blocking(move || shared.folder.parts(&copy, &name, cut, anew)).await;
        let (file, there) = opened.map_err(|e| Error::new(Kind::Other, e.to_string()))??;
        self.jobs[index].file = Some(Arc::new(file));
        let mut left = 0_u32;
        for part in 0..cut.count() {
            if there.binary_search(&part).is_ok() {
                let range = cut.range(part);
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
        Ok(())
    }

    fn finish(&mut self, index: usize) {
        let job = &mut self.jobs[index];
        job.fetched = job.fetched.saturating_add(1);
        let Some(file) = job.file.clone() else { return };
        let (shared, origin, entry, begun) =
            (Arc::clone(self.shared), job.item.origin.clone(), job.item.entry.clone(), job.begun);
        let is_last = job.fetched >= FETCHED_MOST;
        self.running.spawn(async move {
            let result = piece::finish(shared, origin, entry, file, is_last).await;
            let result = result.map(|record| record.map_or(Done::Damaged, Done::File));
            Outcome { piece: Piece { file: index, part: 0 }, begun, large: None, result }
        });
    }

    fn start(&mut self, piece: Piece, large: bool) {
        let job = &self.jobs[piece.file];
        let (shared, origin, entry, begun) =
            (Arc::clone(self.shared), job.item.origin.clone(), job.item.entry.clone(), job.begun);
        let file = job.file.clone();
        self.open = self.open.saturating_add(1);
        self.running.spawn(async move {
            let result = match file {
                Some(file) if large => {
                    let range = file.cut.map_or(0..0, |cut| cut.range(piece.part));
                    piece::part(&shared, &origin, &entry, &file, piece.part, range).await.map(|()| Done::Part)
                }
                _ => piece::whole(&shared, &origin, &entry).await.map(Done::File),
            };
            Outcome { piece, begun, large: Some(large), result }
        });
    }

    /// An object that changed is looked at once more, and begun anew; the second time it fails.
    async fn changed(&mut self, index: usize, why: String) -> Result<(), Error> {
        self.queue.forget(index);
        self.uncount(index);
        let job = &mut self.jobs[index];
        if job.changed {
            return Err(Error::new(
                Kind::Damaged,
                format!("{why}, and again when it was fetched anew; fetch it when nobody writes to it"),
            ));
        }
        (self.say)(Said::Warning(format!("{why}; it is fetched anew")));
        job.changed = true;
        job.fetched = 0;
        job.begun = job.begun.saturating_add(1);
        let (origin, entry) = (job.item.origin.clone(), job.item.entry.clone());
        let entry = origin.source.describe(&entry).await.map_err(Fault::into_error)?;
        self.total =
            self.total.saturating_sub(job.item.entry.size.unwrap_or(0)).saturating_add(entry.size.unwrap_or(0));
        self.jobs[index].item.entry = entry;
        self.begin(index, true).await
    }

    async fn take(&mut self, outcome: Outcome) -> Result<(), Error> {
        if let Some(large) = outcome.large {
            self.open = self.open.saturating_sub(1);
            self.queue.done(large);
        }
        let index = outcome.piece.file;
        if outcome.begun != self.jobs[index].begun {
            return Ok(());
        }
        match outcome.result {
            Ok(Done::File(record)) => {
                self.files_done = self.files_done.saturating_add(1);
                if outcome.large.is_some() {
                    self.count(index, record.size);
                }
                Ok(())
            }
            Ok(Done::Part) => {
                let job = &mut self.jobs[index];
                job.left = job.left.saturating_sub(1);
                let range =
                    job.file.as_ref().and_then(|file| file.cut).map_or(0..0, |cut| cut.range(outcome.piece.part));
                let is_whole = job.left == 0;
                self.count(index, range.end.saturating_sub(range.start));
                if is_whole {
                    self.finish(index);
                }
                Ok(())
            }
            Ok(Done::Damaged) => {
                self.uncount(index);
                let entry = &self.jobs[index].item.entry;
                (self.say)(Said::Warning(format!("{}: the checksum is wrong; it is fetched anew", entry.source)));
                self.jobs[index].begun = self.jobs[index].begun.saturating_add(1);
                self.begin(index, true).await
            }
            Err(Fault::Changed(why)) => self.changed(index, why).await,
            Err(fault) => Err(fault.into_error()),
        }
    }

    /// The status server, if there is one.
    fn tell(&self, at: Duration) {
        let Some(status) = self.status else { return };
        let (done, fetched) = (self.done.min(self.total), self.shared.fetched.load(Ordering::Relaxed));
        let left = left(done, self.total, fetched, at);
        status.tell(Progress { done, total: self.total, files_done: self.files_done, left });
    }

    async fn run(mut self, mut patience: mpsc::UnboundedReceiver<Duration>) -> Result<(), Error> {
        let start = Instant::now();
        let mut told = Told::default();
        let mut paused_until = tokio::time::Instant::now();
        let mut look = tokio::time::interval(LOOK);
        look.tick().await;
        let mut before = 0;
        // files begin as streams become free, so that their part files do not all lie there at once
        let mut next_job = 0;
        loop {
            let is_paused = tokio::time::Instant::now() < paused_until;
            while !is_paused && self.open < self.streams.now() {
                match self.queue.next(self.streams.now()) {
                    Some((piece, large)) => self.start(piece, large),
                    None if next_job < self.jobs.len() => {
                        self.begin(next_job, false).await?;
                        next_job += 1;
                    }
                    None => break,
                }
            }
            if self.running.is_empty() && next_job == self.jobs.len() && !is_paused {
                self.tell(start.elapsed());
                return Ok(());
            }
            tokio::select! {
                Some(outcome) = self.running.join_next() => {
                    let outcome = outcome.map_err(|e| Error::new(Kind::Other, format!("a download ended without an answer: {e}")))?;
                    self.take(outcome).await?;
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
