//! The history on disk: what happened in the last minutes, also before a restart.
//!
//! Beside the database is a folder of segments, files that are only appended to. A segment holds blocks, each the events of
//! (a part of) one commit, compressed, with their checksum and their revisions in front. Each event carries the version that
//! it replaced: compressed, that costs little.
//!
//! Every write has a revision of its own, so revisions without a gap up to the database's last are the proof that nothing is
//! missing. The files are not synced: after a loss of power their end may be gone, and then all of them are, because watches
//! that would resume in them must be told. What cannot be written or read is forgotten in the same way; no write fails for it.

mod block;

use crate::watch::{Interest, Portion};
use crate::{Event, Limits, Revision};
use block::{Header, blocks};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Instant, SystemTime};

/// A segment is closed at this size.
const SEGMENT: u64 = 4 << 20;
/// Decoded blocks kept, so that watches that resume together read together; and the bytes of their events, but for the last
/// block.
const DECODED: usize = 256;
const DECODED_BYTES: usize = 1 << 20;
/// Bytes of events that one call looks at, but for the last block: some milliseconds' work.
const LOOK: usize = 2 << 20;

struct Segment {
    first: Revision,
    file: Arc<File>,
    length: u64,
    /// `None`: before this process could have counted.
    written: Option<Instant>,
}

#[derive(Default)]
struct Inner {
    segments: VecDeque<Segment>,
    /// Revision of the last event in the segments; where there are none, the one after which they will begin.
    last: Revision,
    decoded: VecDeque<(Place, Block)>,
    /// How often all was forgotten: places of before mean nothing after.
    epoch: u64,
}

/// A segment, by its first revision, and an offset in it.
type Place = (Revision, u64);
type Block = Arc<Vec<Event>>;

fn bytes(block: &Block) -> usize {
    block.iter().map(|event| event.entry.length()).sum()
}

/// Where a reader goes on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    segment: Revision,
    offset: u64,
    /// All before this place is up to this revision.
    after: Revision,
}

pub(crate) struct Archive {
    folder: PathBuf,
    limits: Limits,
    inner: Mutex<Inner>,
}

impl Archive {
    /// The history beside the database at `path`, as far as it leads up to `revision`. `None`: the path is a URI of SQLite's,
    /// beside which there is nothing.
    pub(crate) fn open(path: &Path, revision: Revision, limits: Limits) -> Option<Self> {
        if path.as_os_str().as_encoded_bytes().starts_with(b"file:") {
            return None;
        }
        let mut folder = path.as_os_str().to_owned();
        folder.push("-history");
        let archive = Self { folder: folder.into(), limits, inner: Mutex::default() };
        let mut inner = archive.lock();
        match archive.load(revision) {
            Ok(Some(segments)) => {
                inner.segments = segments;
                inner.last = revision;
            }
            Ok(None) => archive.forget(&mut inner, revision),
            Err(error) => {
                tracing::warn!(%error, "the history of before cannot be read; clients that watched list again");
                archive.forget(&mut inner, revision);
            }
        }
        drop(inner);
        Some(archive)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // what panics while it holds the lock has at most appended to a file without saying so
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything after this revision is here.
    pub(crate) fn floor(&self) -> Revision {
        self.lock().floor()
    }

    fn names(&self) -> io::Result<Vec<(Revision, PathBuf)>> {
        let mut out = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(first) = name.and_then(|name| name.strip_suffix(".events")).and_then(|name| name.parse().ok()) {
                out.push((first, path));
            }
        }
        out.sort_unstable();
        Ok(out)
    }

    /// The segments that lead up to `revision` without a gap, if there are any.
    fn load(&self, revision: Revision) -> io::Result<Option<VecDeque<Segment>>> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut segments = VecDeque::new();
        for (first, path) in self.names()? {
            let file = File::options().read(true).write(true).open(path)?;
            let length = file.metadata()?.len();
            // in this process it ages by a clock that nobody sets
            let age = SystemTime::now().duration_since(file.metadata()?.modified()?).unwrap_or_default();
            let written = Instant::now().checked_sub(age);
            segments.push_back(Segment { first, written, file: Arc::new(file), length });
        }
        // What was on its way into the database when the process ended, and what a crash has cut off.
        let mut reached = None;
        while let Some(segment) = segments.back_mut() {
            let (last, length) = segment.end(revision)?;
            if length > 0 {
                if length < segment.length {
                    segment.file.set_len(length)?;
                    segment.length = length;
                }
                reached = Some(last);
                break;
            }
            self.remove(segment.first);
            segments.pop_back();
        }
        // A segment begins where the one before it ends, unless that one has lost its end.
        for at in (1..segments.len()).rev() {
            let (before, first) = (&segments[at.saturating_sub(1)], segments[at].first);
            if before.end(Revision::MAX)?.0.checked_add(1) != Some(first) {
                for segment in segments.drain(..at) {
                    self.remove(segment.first);
                }
                break;
            }
        }
        Ok((reached == Some(revision)).then_some(segments))
    }

    fn path(&self, first: Revision) -> PathBuf {
        self.folder.join(format!("{first:020}.events"))
    }

    fn remove(&self, first: Revision) {
        // what stays does no harm: revisions without a gap decide
        drop(std::fs::remove_file(self.path(first)));
    }

    fn forget(&self, inner: &mut Inner, last: Revision) {
        for (first, _) in self.names().unwrap_or_default() {
            self.remove(first);
        }
        *inner = Inner { last, epoch: inner.epoch.saturating_add(1), ..Inner::default() };
    }

    /// Forgets everything up to `revision`, the last there is.
    pub(crate) fn reset(&self, revision: Revision) {
        self.forget(&mut self.lock(), revision);
    }

    /// Keeps events, which follow those before. What cannot be kept is forgotten, with all before it.
    fn append(&self, events: &[Event]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let blocks = blocks(events);
        let mut inner = self.lock();
        let inner = &mut *inner;
        if inner.last.checked_add(1) != Some(first.revision) {
            self.forget(inner, first.revision.saturating_sub(1));
        }
        match blocks.and_then(|blocks| self.write(inner, first.revision, &blocks)) {
            Ok(()) => {
                inner.last = last.revision;
                self.shrink(inner);
            }
            Err(error) => {
                tracing::warn!(%error, "the history cannot be written; watches cannot resume from before now");
                self.forget(inner, last.revision);
            }
        }
    }

    fn write(&self, inner: &mut Inner, first: Revision, blocks: &[u8]) -> io::Result<()> {
        if inner.segments.back().is_none_or(|segment| segment.length >= SEGMENT) {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.path(first))?;
            let (file, written) = (Arc::new(file), Some(Instant::now()));
            inner.segments.push_back(Segment { first, file, length: 0, written });
        }
        if let Some(segment) = inner.segments.back_mut() {
            segment.file.write_all_at(blocks, segment.length)?;
            segment.length = segment.length.saturating_add(blocks.len() as u64);
            segment.written = Some(Instant::now());
        }
        Ok(())
    }

    /// Removes the oldest segments: those beyond the bound of bytes, and those past their time once there are many.
    fn shrink(&self, inner: &mut Inner) {
        let mut bytes: u64 = inner.segments.iter().map(|segment| segment.length).sum();
        while inner.segments.len() > 1
            && let Some(oldest) = inner.segments.front()
        {
            let old = oldest.written.is_none_or(|written| written.elapsed() > self.limits.archive_time);
            if bytes <= self.limits.archive_bytes && !(old && bytes > self.limits.archive_kept) {
                break;
            }
            bytes = bytes.saturating_sub(oldest.length);
            self.remove(oldest.first);
            inner.segments.pop_front();
        }
    }

    /// Some of the events of a bucket after `after` and up to `visible`, and the revision up to which nothing is left out.
    /// `None`: some are forgotten.
    pub(crate) fn read(
        &self,
        bucket: &str,
        interest: &Interest,
        after: Revision,
        visible: Revision,
        portion: Portion,
        hint: &mut Option<Hint>,
    ) -> Option<(Vec<Event>, Revision)> {
        let (mut out, mut bytes, mut reached) = (Vec::new(), 0_usize, after);
        let mut at = hint.filter(|hint| hint.after <= after);
        let mut looked = 0_usize;
        while looked < LOOK {
            let Some((place, block)) = self.block(after.max(reached), at).ok()? else {
                // all that there is
                reached = visible;
                break;
            };
            for event in block.iter() {
                if event.revision <= reached {
                    continue;
                }
                if event.revision > visible {
                    return Some((out, visible));
                }
                reached = event.revision;
                if *event.bucket == *bucket && interest.covers(&event.entry.key) {
                    bytes = bytes.saturating_add(event.entry.length());
                    out.push(event.clone());
                    if out.len() >= portion.events || bytes >= portion.bytes {
                        *hint = Some(place);
                        return Some((out, reached));
                    }
                }
            }
            looked = looked.saturating_add(self::bytes(&block));
            at = Some(place);
            *hint = at;
        }
        Some((out, reached))
    }

    /// The block with the event that follows `after`, and its place; `None` where there is none.
    fn block(&self, after: Revision, hint: Option<Hint>) -> io::Result<Option<(Hint, Block)>> {
        let (mut segment, mut offset, mut known) = (0, 0, 0);
        let (file, length, epoch) = {
            let inner = self.lock();
            if after < inner.floor() {
                return Err(io::ErrorKind::NotFound.into());
            }
            if after >= inner.last {
                return Ok(None);
            }
            let found = inner.segments.partition_point(|segment| segment.first <= after.saturating_add(1));
            let Some(found) = found.checked_sub(1).and_then(|at| inner.segments.get(at)) else { return Ok(None) };
            segment = found.first.max(segment);
            if let Some(hint) = hint.filter(|hint| hint.segment == segment) {
                (offset, known) = (hint.offset, hint.after);
            }
            (found.file.clone(), found.length, inner.epoch)
        };
        while offset < length {
            let header = Header::read(&file, offset)?;
            if header.last > after {
                let place = Hint { segment, offset, after: known };
                let known = self.lock().decoded.iter().rev().find(|(at, _)| *at == (segment, offset)).cloned();
                if let Some((_, block)) = known {
                    return Ok(Some((place, block)));
                }
                let decoded: Block = Arc::new(header.events(&file, offset)?);
                let mut inner = self.lock();
                if inner.epoch == epoch {
                    inner.decoded.push_back(((segment, offset), decoded.clone()));
                }
                let mut held: usize = inner.decoded.iter().map(|(_, block)| bytes(block)).sum();
                while inner.decoded.len() > 1
                    && (held > DECODED_BYTES || inner.decoded.len() > DECODED)
                    && let Some((_, oldest)) = inner.decoded.pop_front()
                {
                    held = held.saturating_sub(bytes(&oldest));
                }
                return Ok(Some((place, decoded)));
            }
            known = header.last;
            offset = header.next(offset);
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Inner {
    fn floor(&self) -> Revision {
        self.segments.front().map_or(self.last, |segment| segment.first.saturating_sub(1))
    }
}

impl Segment {
    /// The last revision, not beyond `revision`, of the whole blocks, and where they end.
    fn end(&self, revision: Revision) -> io::Result<(Revision, u64)> {
        let (mut last, mut offset) = (self.first.saturating_sub(1), 0);
        while offset < self.length {
            let Ok(header) = Header::read(&self.file, offset) else { break };
            let next = header.next(offset);
            if next > self.length || header.last > revision || last.checked_add(1) != Some(header.first) {
                break;
            }
            (last, offset) = (header.last, next);
        }
        Ok((last, offset))
    }
}

/// The thread that keeps events while the database commits them.
pub(crate) struct Keeper {
    queue: mpsc::Sender<(Vec<Event>, mpsc::Sender<()>)>,
}

impl Keeper {
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(archive: Arc<Archive>) -> io::Result<Self> {
        // one group of events at a time: the writer waits for each
        let (queue, waiting) = mpsc::channel::<(Vec<Event>, mpsc::Sender<()>)>();
        std::thread::Builder::new().name("history".to_owned()).spawn(move || {
            while let Ok((events, done)) = waiting.recv() {
                archive.append(&events);
                _ = done.send(());
            }
        })?;
        Ok(Self { queue })
    }

    /// Begins to keep events. They are kept, or forgotten, when the receiver has something to say.
    pub(crate) fn keep<'a>(&self, events: impl Iterator<Item = &'a Event>) -> mpsc::Receiver<()> {
        let (done, kept) = mpsc::channel();
        drop(self.queue.send((events.cloned().collect(), done)));
        kept
    }
}
