//! The files of all jobs.
//!
//! ```text
//! <root>/<job uid>/job.json                              name, tasks, places and ends of attempts
//! <root>/<job uid>/<task>/<attempt>/<stage>/<offset>.log the lines of all ranks (`segment`)
//! ```
//!
//! Bounds: 64 MiB for each rank of an attempt, 1 GiB a job, 4 GiB in all. The oldest lines go first, and of several jobs those that ended
//! first. Methods wait for the disk.

use crate::page::Page;
use crate::part::{Part, Stage};
use crate::record::{Line, Position};
use crate::segment::{Portion, Segment, names, private, private_folder};
use api::object::Key;
use api::sky::ManagedJob;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Jobs that are gone and remembered, because their last lines come after them.
const GONE_MAX: usize = 1000;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of a rank of an attempt.
    pub rank: u64,
    /// Bytes of a job.
    pub job: u64,
    /// Bytes of all jobs.
    pub all: u64,
    /// Bytes of a file: lines are removed in such pieces.
    pub file: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { rank: 64 << 20, job: 1 << 30, all: 4 << 30, file: 4 << 20 }
    }
}

/// The store. Clones share it.
#[derive(Clone, Debug)]
pub struct Outputs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    bounds: Bounds,
    /// Bytes of all jobs.
    bytes: AtomicU64,
    book: Mutex<Book>,
    live: Mutex<Live>,
}

#[derive(Debug, Default)]
struct Book {
    is_loaded: bool,
    /// By uid.
    jobs: BTreeMap<String, Arc<JobOutput>>,
    uids: BTreeMap<Key, String>,
    gone: VecDeque<String>,
}

/// The pods that there are, as far as the watch has seen them.
#[derive(Debug, Default)]
struct Live {
    is_listed: bool,
    /// By uid.
    pods: BTreeMap<String, Reach>,
}

/// Whether the output of a pod can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Reading,
    /// Its machine does not answer.
    Cut,
    /// All is kept.
    Done,
}

/// The output of a job.
#[derive(Debug)]
pub(crate) struct JobOutput {
    folder: PathBuf,
    bytes: AtomicU64,
    page: Mutex<Page>,
    parts: Mutex<BTreeMap<Part, Arc<Slot>>>,
    /// Rises when there are lines, parts or facts that were not there before.
    changes: watch::Sender<u64>,
    /// The job was deleted, or its output removed: nothing is added.
    is_closed: AtomicBool,
}

/// A segment, which is opened when it is needed.
#[derive(Debug)]
struct Slot {
    folder: PathBuf,
    bytes: AtomicU64,
    segment: Mutex<Option<Segment>>,
}

/// How far a part is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub end: u64,
    /// Number of pods whose output may go on.
    pub open: usize,
    /// Number of those whose machines answer.
    pub reading: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn new(folder: PathBuf) -> io::Result<Self> {
        let mut bytes = 0;
        for name in names(&folder)? {
            bytes += fs::metadata(folder.join(name))?.len();
        }
        Ok(Self { folder, bytes: AtomicU64::new(bytes), segment: Mutex::default() })
    }
}

impl Outputs {
    /// The store below this folder, which is made when there is something to keep.
    pub fn new(root: PathBuf) -> Self {
        Self::bounded(root, Bounds::default())
    }

    pub(crate) fn bounded(root: PathBuf, bounds: Bounds) -> Self {
        let (book, live) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { root, bounds, bytes: AtomicU64::new(0), book, live }))
    }

    /// The book, with what an earlier process has left.
    fn book(&self) -> MutexGuard<'_, Book> {
        let mut book = locked(&self.0.book);
        if !book.is_loaded {
            book.is_loaded = true;
            if let Err(error) = self.load(&mut book) {
                tracing::warn!(folder = %self.0.root.display(), %error, "kept output cannot be read");
            }
        }
        book
    }

    fn load(&self, book: &mut Book) -> io::Result<()> {
        for uid in names(&self.0.root)? {
            let folder = self.0.root.join(&uid);
            let page = fs::read(folder.join(PAGE)).ok();
            let Some(page) = page.and_then(|bytes| serde_json::from_slice::<Page>(&bytes).ok()) else {
                // a crash interrupted its creation or its removal
                fs::remove_dir_all(&folder)?;
                continue;
            };
            let job = JobOutput::new(folder, page);
            let parts = parts_in(&job.folder)?;
            let bytes = parts.values().map(|slot| slot.bytes.load(Ordering::Relaxed)).sum();
            *locked(&job.parts) = parts;
            job.bytes.store(bytes, Ordering::Relaxed);
            self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
            book.uids.insert(locked(&job.page).key(), uid.clone());
            book.jobs.insert(uid, Arc::new(job));
        }
        Ok(())
    }

    /// The jobs that are known, by uid.
    pub(crate) fn known(&self) -> BTreeSet<String> {
        self.book().jobs.keys().cloned().collect()
    }

    pub(crate) fn job(&self, uid: &str) -> Option<Arc<JobOutput>> {
        self.book().jobs.get(uid).cloned()
    }

    /// The uid of a job that was seen.
    pub(crate) fn uid(&self, key: &Key) -> Option<String> {
        self.book().uids.get(key).cloned()
    }

    /// A job exists, in this state. `None`: it is known to be gone.
    pub(crate) fn saw_job(&self, job: &ManagedJob) -> Option<Arc<JobOutput>> {
        let of = &job.metadata;
        let key = Key::new(of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default());
        let uid = of.uid.as_deref().filter(|uid| is_plain(uid))?;
        let mut book = self.book();
        if book.gone.iter().any(|gone| gone == uid) {
            return None;
        }
        book.uids.insert(key.clone(), uid.to_owned());
        let new = || Arc::new(JobOutput::new(self.0.root.join(uid), Page::default()));
        let known = book.jobs.entry(uid.to_owned()).or_insert_with(new).clone();
        drop(book);
        known.note(&key, job);
        Some(known)
    }

    /// A job is gone, and with it its output.
    pub(crate) fn job_gone(&self, uid: &str) {
        let mut book = self.book();
        book.gone.push_back(uid.to_owned());
        if book.gone.len() > GONE_MAX {
            book.gone.pop_front();
        }
        book.uids.retain(|_, known| known != uid);
        let Some(job) = book.jobs.remove(uid) else { return };
        drop(book);
        self.empty(&job);
        remove(&job.folder);
        job.changed();
    }

    /// Opens a pod's output for writing. `None`: the output of this job is not kept.
    pub(crate) fn begin(&self, uid: &str, part: Part, pod: &str, rank: &str) -> io::Result<Option<Writer>> {
        let Some(job) = self.job(uid).filter(|job| !job.is_closed()) else { return Ok(None) };
        let slot = job.slot(part)?;
        let mut writer = Writer { outputs: self.clone(), job, slot, source: 0 };
        writer.source = writer.write(|segment| segment.source(pod, rank))?;
        Ok(Some(writer))
    }

    /// Removes what is too much, after a part has grown.
    fn bound(&self, job: &JobOutput, slot: &Slot) {
        let Bounds { rank, job: job_max, all, .. } = self.0.bounds;
        let ranks = locked(&slot.segment).as_ref().map_or(1, |segment| segment.sources().len().max(1));
        let most = rank.saturating_mul(ranks as u64);
        while slot.bytes.load(Ordering::Relaxed) > most && self.drop_oldest(job, slot) {}
        while job.bytes.load(Ordering::Relaxed) > job_max && self.shorten(job) {}
        while self.0.bytes.load(Ordering::Relaxed) > all && self.relieve() {}
    }

    /// Removes the oldest file of a part; `false`: it has only one.
    fn drop_oldest(&self, job: &JobOutput, slot: &Slot) -> bool {
        let dropped = slot.with(self.0.bounds.file, Segment::drop_oldest);
        let Ok(Some(bytes)) = dropped.inspect_err(|error| warn(&slot.folder, error)) else { return false };
        self.shrink(job, slot, bytes);
        true
    }

    /// Removes the oldest lines of a job; `false`: only the newest are left.
    fn shorten(&self, job: &JobOutput) -> bool {
        let parts: Vec<(Part, Arc<Slot>)> =
            locked(&job.parts).iter().map(|(part, slot)| (*part, slot.clone())).collect();
        let Some((newest, _)) = parts.last() else { return false };
        for (part, slot) in &parts {
            if self.drop_oldest(job, slot) {
                return true;
            }
            let all_done = |segment: &mut Segment| Ok(segment.sources().iter().all(|source| source.is_complete));
            if part != newest && slot.with(self.0.bounds.file, all_done).unwrap_or(false) {
                locked(&job.parts).remove(part);
                remove(&slot.folder);
                self.shrink(job, slot, slot.bytes.load(Ordering::Relaxed));
                return true;
            }
        }
        false
    }

    /// Removes the output of the job that ended first, else the oldest lines of the largest job.
    fn relieve(&self) -> bool {
        let book = self.book();
        let with_output = book.jobs.values().filter(|job| job.bytes.load(Ordering::Relaxed) > 0);
        let ended = with_output.clone().filter(|job| locked(&job.page).has_ended());
        let first = ended.min_by_key(|job| locked(&job.page).ended_at.clone()).cloned();
        let largest = with_output.max_by_key(|job| job.bytes.load(Ordering::Relaxed)).cloned();
        drop(book);
        match (first, largest) {
            (Some(job), _) => {
                let page = locked(&job.page).clone();
                tracing::warn!(job = page.name, "too much output is kept; that of this job is removed");
                self.empty(&job);
                job.close(Page { is_removed: true, ..page });
                true
            }
            (None, Some(job)) => self.shorten(&job),
            (None, None) => false,
        }
    }

    /// Removes all files of a job but its page.
    fn empty(&self, job: &JobOutput) {
        job.is_closed.store(true, Ordering::Relaxed);
        let parts = std::mem::take(&mut *locked(&job.parts));
        for slot in parts.values() {
            // held until the files are gone: a writer looks whether the job is closed while it holds it
            let mut segment = locked(&slot.segment);
            *segment = None;
            remove(&slot.folder);
            drop(segment);
            self.shrink(job, slot, slot.bytes.load(Ordering::Relaxed));
        }
        job.bytes.store(0, Ordering::Relaxed);
    }

    fn shrink(&self, job: &JobOutput, slot: &Slot, bytes: u64) {
        for held in [&slot.bytes, &job.bytes, &self.0.bytes] {
            let less = |held: u64| Some(held.saturating_sub(bytes));
            let _ = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    fn grow(&self, job: &JobOutput, slot: &Slot, bytes: u64) {
        for held in [&slot.bytes, &job.bytes, &self.0.bytes] {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A pod exists, and its output can be read or not.
    pub(crate) fn saw_pod(&self, uid: &str, reach: Reach) {
        locked(&self.0.live).pods.insert(uid.to_owned(), reach);
    }

    pub(crate) fn pod_gone(&self, uid: &str) {
        locked(&self.0.live).pods.remove(uid);
    }

    /// All pods that exist were seen.
    pub(crate) fn pods_listed(&self) {
        locked(&self.0.live).is_listed = true;
    }

    /// Whether the output of a pod is kept to its end.
    pub(crate) fn is_done(&self, pod: &str) -> bool {
        locked(&self.0.live).pods.get(pod) == Some(&Reach::Done)
    }

    /// How far a part is. `None`: it is not there.
    pub(crate) fn extent(&self, job: &JobOutput, part: Part) -> io::Result<Option<Extent>> {
        let live = |pod: &str| {
            let live = locked(&self.0.live);
            let unknown = (!live.is_listed).then_some(Reach::Reading);
            live.pods.get(pod).copied().or(unknown).filter(|reach| *reach != Reach::Done)
        };
        self.look(job, part, |segment| {
            let open = segment.sources().iter().filter(|source| !source.is_complete);
            let open: Vec<Reach> = open.filter_map(|source| live(&source.pod)).collect();
            let reading = open.iter().filter(|reach| **reach == Reach::Reading).count();
            Ok(Extent { start: segment.start(), end: segment.end(), open: open.len(), reading })
        })
    }

    /// The records of a part from an offset on, some of them.
    pub(crate) fn read(&self, job: &JobOutput, part: Part, offset: u64) -> io::Result<Option<Portion>> {
        self.look(job, part, |segment| segment.read(offset))
    }

    /// The offset before the last lines of a part, and how many there are from there on.
    pub(crate) fn tail(&self, job: &JobOutput, part: Part, lines: usize) -> io::Result<Option<(u64, usize)>> {
        self.look(job, part, |segment| segment.tail(lines))
    }

    fn look<T>(
        &self,
        job: &JobOutput,
        part: Part,
        look: impl FnOnce(&mut Segment) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let Some(slot) = locked(&job.parts).get(&part).cloned() else { return Ok(None) };
        slot.with(self.0.bounds.file, look).map(Some)
    }
}

impl Slot {
    /// Calls a function with the segment, which is opened if need be.
    fn with<T>(&self, file_bytes: u64, call: impl FnOnce(&mut Segment) -> io::Result<T>) -> io::Result<T> {
        let mut held = locked(&self.segment);
        match &mut *held {
            Some(segment) => call(segment),
            None => call(held.insert(Segment::open(&self.folder, file_bytes)?)),
        }
    }
}

/// What the page of a job is called.
const PAGE: &str = "job.json";

impl JobOutput {
    fn new(folder: PathBuf, page: Page) -> Self {
        Self {
            folder,
            bytes: AtomicU64::new(0),
            is_closed: AtomicBool::new(page.is_removed),
            page: Mutex::new(page),
            parts: Mutex::default(),
            changes: watch::Sender::default(),
        }
    }

    fn note(&self, key: &Key, job: &ManagedJob) {
        let mut page = locked(&self.page);
        let before = page.clone();
        page.note(key, job);
        if *page == before {
            return;
        }
        // a job without output has no folder
        if (!locked(&self.parts).is_empty() || page.is_removed)
            && let Err(error) = self.write(&page)
        {
            warn(&self.folder, &error);
        }
        drop(page);
        self.changed();
    }

    fn write(&self, page: &Page) -> io::Result<()> {
        private_folder(&self.folder)?;
        let bytes = serde_json::to_vec(page)?;
        let path = self.folder.join(PAGE);
        let fresh = path.with_extension("tmp");
        let mut file = private().write(true).create(true).truncate(true).open(&fresh)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(fresh, path)
    }

    /// Keeps nothing more.
    fn close(&self, page: Page) {
        if let Err(error) = self.write(&page) {
            warn(&self.folder, &error);
        }
        *locked(&self.page) = page;
        self.changed();
    }

    /// The files of a part. Before the first one, the page is written.
    fn slot(&self, part: Part) -> io::Result<Arc<Slot>> {
        let page = locked(&self.page);
        let mut parts = locked(&self.parts);
        if let Some(slot) = parts.get(&part) {
            return Ok(slot.clone());
        }
        if self.is_closed() {
            return Err(closed());
        }
        if parts.is_empty() {
            self.write(&page)?;
        }
        let Part { task, attempt, stage } = part;
        let folder = self.folder.join(task.to_string()).join(attempt.to_string()).join(stage.as_str());
        let slot = Arc::new(Slot::new(folder)?);
        parts.insert(part, slot.clone());
        Ok(slot)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Wakes a reader when there is something new.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub fn page(&self) -> Page {
        locked(&self.page).clone()
    }

    /// The parts in their order; those of one task, if it is named.
    pub fn parts(&self, task: Option<u32>) -> Vec<Part> {
        let parts = locked(&self.parts);
        parts.keys().filter(|part| task.is_none_or(|task| part.task == task)).copied().collect()
    }
}

/// Adds to the output of a pod.
#[derive(Debug)]
pub(crate) struct Writer {
    outputs: Outputs,
    job: Arc<JobOutput>,
    slot: Arc<Slot>,
    source: u32,
}

impl Writer {
    /// How far the output is kept; `None`: to its end.
    pub fn position(&self) -> io::Result<Option<Position>> {
        let source = self.source;
        self.slot.with(self.outputs.0.bounds.file, |segment| {
            let state = segment.state(source).filter(|state| !state.is_complete);
            Ok(state.map(|state| state.position.clone()))
        })
    }

    pub fn append(&self, lines: &[Line]) -> io::Result<()> {
        self.write(|segment| segment.append(self.source, lines))
    }

    pub fn note(&self, text: &str) -> io::Result<()> {
        self.write(|segment| segment.note(text))
    }

    /// All lines are kept. They are on disk afterwards.
    pub fn complete(&self) -> io::Result<()> {
        self.write(|segment| segment.complete(self.source))
    }

    /// Whether nothing is kept of this job any more.
    pub fn is_closed(&self) -> bool {
        self.job.is_closed()
    }

    fn write<T>(&self, write: impl FnOnce(&mut Segment) -> io::Result<T>) -> io::Result<T> {
        let mut grown = 0;
        let mut is_new_file = false;
        let done = self.slot.with(self.outputs.0.bounds.file, |segment| {
            if self.job.is_closed() {
                return Err(closed());
            }
            let (bytes, files) = (segment.bytes(), segment.files());
            let done = write(segment);
            grown = segment.bytes().saturating_sub(bytes);
            is_new_file = segment.files() > files;
            done
        });
        self.outputs.grow(&self.job, &self.slot, grown);
        if is_new_file {
            self.outputs.bound(&self.job, &self.slot);
        }
        self.job.changed();
        done
    }
}

/// The parts whose files are in the folder of a job.
fn parts_in(folder: &Path) -> io::Result<BTreeMap<Part, Arc<Slot>>> {
    let mut parts = BTreeMap::new();
    let numbers = |folder: &Path| -> io::Result<Vec<u32>> {
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        Ok(names(folder)?.iter().filter_map(|name| name.parse().ok()).collect())
    };
    for task in numbers(folder)? {
        let of_task = folder.join(task.to_string());
        for attempt in numbers(&of_task)? {
            let of_attempt = of_task.join(attempt.to_string());
            for stage in names(&of_attempt)?.iter().filter_map(|name| Stage::parse(name)) {
                let slot = Slot::new(of_attempt.join(stage.as_str()))?;
                parts.insert(Part { task, attempt, stage }, Arc::new(slot));
            }
        }
    }
    Ok(parts)
}

/// Whether a uid can be a folder's name.
pub(crate) fn is_plain(uid: &str) -> bool {
    !uid.is_empty() && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn closed() -> io::Error {
    io::Error::other("the output of this job is not kept any more")
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => warn(folder, &error),
        _ => {}
    }
}

fn warn(folder: &Path, error: &io::Error) {
    tracing::warn!(folder = %folder.display(), %error, "kept output cannot be changed");
}

#[cfg(test)]
mod tests;
