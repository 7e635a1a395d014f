//! One piece of work: a whole file in one go, or one part of a large one; with patience.

use super::folder::{Folder, PartFile, hash};
use super::sink::{Core, Sink};
use super::sum::Sum;
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::pace::{Failure, Patience};
use crate::plan::parts::Finished;
use crate::plan::restart::{Entry, Record};
use crate::plan::verify::{Algorithm, Check, Hasher};
use crate::source::{Content, Opened, Source, Told};
use bytes::Bytes;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How often a file is fetched whose content is not what its checksum says.
pub const FETCHED_MOST: u32 = 3;
/// Sums of files whose source tells none, so that they are known again.
const OWN: Algorithm = Algorithm::Crc64Nvme;

/// Which sum is taken of a file.
pub fn algorithm(entry: &Entry) -> Algorithm {
    entry.check.as_ref().map_or(OWN, |check| check.algorithm)
}

/// What all pieces share.
pub struct Shared {
    pub folder: Folder,
    /// Bytes that came, whatever became of them.
    pub fetched: AtomicU64,
    /// Servers that ask for patience, and for how long. As many as tries that fail, each read before the next second ends.
    pub busy: UnboundedSender<Duration>,
}

/// Where a file comes from.
#[derive(Clone)]
pub struct Origin {
    pub source: Arc<Source>,
    /// The location's name.
    pub location: Arc<str>,
    /// Which of the locations it is.
    pub number: usize,
}

impl Origin {
    pub fn name(&self, entry: &Entry) -> String {
        format!("{} {}", self.location, entry.source)
    }
}

fn damaged(origin: &Origin, entry: &Entry, expected: &Check, found: &Check) -> Error {
    let text = format!(
        "{}: {:?} came {FETCHED_MOST} times with a content that is not what its checksum says ({:?}: {} expected, {} found); it is \
         damaged at its source or on the way, and was not put in its place",
        origin.location, entry.source, expected.algorithm, expected.value, found.value
    );
    Error::new(Kind::Damaged, text)
}

/// Waits before the next try, or gives up. `came`: bytes of this piece.
async fn rest(shared: &Shared, fault: Fault, patience: &mut Patience, came: u64) -> Result<(), Fault> {
    let Fault::Again(failure, _) = &fault else { return Err(fault) };
    let all = shared.fetched.load(Ordering::Relaxed);
    let Some(wait) = patience.after(*failure, came, all, rand::random()) else { return Err(fault) };
    if let Failure::Busy(_) = failure {
        // the receiver ends when it has all pieces
        let _ = shared.busy.send(wait);
    }
    tokio::time::sleep(wait).await;
    Ok(())
}

/// Takes what came; whether more is to come.
async fn take(
    shared: &Shared,
    bytes: Bytes,
    sink: &mut Sink,
    most: Option<u64>,
    came: &mut u64,
    is_packed: bool,
) -> Result<bool, Fault> {
    let count = bytes.len() as u64;
    if most.is_some_and(|most| count > most.saturating_sub(*came)) && !is_packed {
        return Err(Fault::Again(Failure::Broken, "more bytes came than were announced".to_owned()));
    }
    *came = came.saturating_add(count);
    shared.fetched.fetch_add(count, Ordering::Relaxed);
    sink.push(bytes).await?;
    Ok(is_packed || most != Some(*came))
}

/// Moves `opened` into `sink`.
async fn flow(
    shared: &Shared,
    opened: Opened,
    sink: &mut Sink,
    most: Option<u64>,
    came: &mut u64,
) -> Result<(), Fault> {
    let is_packed = opened.is_packed;
    match opened.content {
        Content::Net(mut body) => {
            // to the end of the answer, so that its connection serves again
            while let Some(bytes) = body.chunk().await? {
                take(shared, bytes, sink, most, came, is_packed).await?;
            }
        }
        Content::Local(mut file) => loop {
            let left = most.map_or(u64::MAX, |most| most.saturating_sub(*came)).min(1 << 20);
            let read = tokio::task::spawn_blocking(move || {
                let mut buffer = vec![0; usize::try_from(left).unwrap_or(1 << 20)];
                let count = file.read(&mut buffer)?;
                buffer.truncate(count);
                std::io::Result::Ok((file, buffer))
            });
            let lost = |why: String| Error::new(Kind::Other, format!("a file cannot be read: {why}"));
            let (again, bytes) = read.await.map_err(|e| lost(e.to_string()))?.map_err(|e| lost(e.to_string()))?;
            file = again;
            if bytes.is_empty() || !take(shared, Bytes::from(bytes), sink, most, came, is_packed).await? {
                break;
            }
        },
    }
    match most {
        Some(most) if *came != most && !is_packed => {
            Err(Fault::Again(Failure::Broken, format!("{came} bytes came where {most} were announced")))
        }
        _ => Ok(()),
    }
}

/// Fetches a file in one go, checks it and puts it in its place.
pub async fn whole(shared: &Arc<Shared>, origin: &Origin, entry: &Arc<Entry>) -> Result<Record, Fault> {
    let part = Arc::new(shared.folder.whole(entry)?);
    let mut fetched = 0_u32;
    loop {
        let (core, expected) = stream(shared, origin, entry, &part).await?;
        let found = core.hasher.map(Hasher::finish);
        let found = found.ok_or_else(|| Error::new(Kind::Other, "a checksum was lost"))?;
        fetched = fetched.saturating_add(1);
        match expected {
            Some(expected) if expected != found && fetched >= FETCHED_MOST => {
                let _ = std::fs::remove_file(&part.path); // it is of no use
                return Err(damaged(origin, entry, &expected, &found).into());
            }
            Some(expected) if expected != found => {}
            _ => {
                part.file.set_len(core.written).map_err(|e| super::folder::failed(&part.path, &e))?;
                let (shared, origin, entry) = (Arc::clone(shared), origin.clone(), Arc::clone(entry));
                let place = move || shared.folder.place(&part, &entry, &origin.name(&entry), found);
                let placed = tokio::task::spawn_blocking(place).await;
                return Ok(placed.map_err(|e| Error::new(Kind::Other, e.to_string()))??);
            }
        }
    }
}

/// All bytes of a file, once; and the checksum that they should have.
async fn stream(
    shared: &Shared,
    origin: &Origin,
    entry: &Entry,
    part: &Arc<PartFile>,
) -> Result<(Core, Option<Check>), Fault> {
    let mut patience = Patience::default();
    let mut state: Option<(Sink, Option<Check>, u64)> = None;
    let mut ranges = entry.ranges;
    loop {
        // what came already is kept where the rest can be asked for
        let resumes = state.as_ref().is_some_and(|(_, _, came)| ranges && entry.size.is_some() && *came > 0);
        let before = state.as_ref().map_or(0, |(_, _, came)| *came);
        let attempt = async {
            let range = entry.size.filter(|_| resumes).map(|size| before..size);
            let mut opened = origin.source.open(entry, range).await?;
            if !resumes {
                let expected = match std::mem::replace(&mut opened.told, Told::Nothing) {
                    Told::Nothing => entry.check.clone(),
                    Told::NoChecksum => None,
                    Told::Checksum(check) => Some(check),
                };
                let algorithm = expected.as_ref().map_or(OWN, |check| check.algorithm);
                let hasher = Hasher::new(algorithm, entry.size.unwrap_or(0));
                let core = Core::new(Arc::clone(part), 0, Some(hasher));
                let core = if opened.is_packed { core.unpacking() } else { core };
                state = Some((Sink::new(core), expected, 0));
            }
            let Some((sink, _, came)) = &mut state else { return Ok(()) };
            flow(shared, opened, sink, entry.size, came).await
        }
        .await;
        let came = state.as_ref().map_or(0, |(_, _, came)| *came);
        match attempt {
            Ok(()) => {
                let Some((sink, expected, _)) = state.take() else { continue };
                let mut core = match sink.finish().await {
                    Err(fault @ Fault::Again(..)) => {
                        rest(shared, fault, &mut patience, 0).await?;
                        continue;
                    }
                    other => other?,
                };
                match core.finish() {
                    Ok(()) => return Ok((core, expected)),
                    Err(e) => {
                        let text = format!("{}: what came packed cannot be unpacked: {e}", origin.location);
                        rest(shared, Fault::Again(Failure::Broken, text), &mut patience, 0).await?;
                    }
                }
            }
            // asked for the rest, the server sends all: then all is read, once
            Err(Fault::Whole(_)) if ranges => {
                ranges = false;
                if let Some((sink, _, _)) = state.take() {
                    sink.abandoned().await;
                }
            }
            Err(fault) => {
                // without ranges all begins anew, and nothing is gained; so does a file all of which came in an answer that was wrong
                let kept = if ranges && entry.size.is_none_or(|size| came < size) { came } else { 0 };
                if kept == 0
                    && let Some((sink, _, _)) = state.take()
                {
                    sink.abandoned().await;
                }
                rest(shared, fault, &mut patience, kept).await?;
            }
        }
    }
}

/// Fetches one part; what it has of it when the connection breaks is kept.
pub async fn part(
    shared: &Shared,
    origin: &Origin,
    entry: &Entry,
    file: &Arc<PartFile>,
    index: u32,
    range: Range<u64>,
) -> Result<(), Fault> {
    let length = range.end.saturating_sub(range.start);
    let new = || Sink::new(Core::new(Arc::clone(file), range.start, file.sum.as_ref().and_then(Sum::of_part)));
    let mut sink = new();
    let mut came = 0_u64;
    let mut patience = Patience::default();
    loop {
        let attempt = async {
            let opened = origin.source.open(entry, Some(range.start.saturating_add(came)..range.end)).await?;
            flow(shared, opened, &mut sink, Some(length), &mut came).await
        }
        .await;
        match attempt {
            Ok(()) => break,
            Err(fault) => {
                if came >= length {
                    // all came, and the answer was not what it said: nothing of it counts, and what is still written ends first
                    sink.abandoned().await;
                    (sink, came) = (new(), 0);
                }
                rest(shared, fault, &mut patience, came).await?;
            }
        }
    }
    let core = sink.finish().await?;
    let finished = Finished { index, crc: core.crc.finish() };
    let (file, hasher) = (Arc::clone(file), core.hasher);
    tokio::task::spawn_blocking(move || file.finished(finished, hasher))
        .await
        .map_err(|e| Error::new(Kind::Other, e.to_string()))??;
    Ok(())
}

/// What the last part leaves to do: the sum over all, and the place. `None`: it is not what it should be.
pub async fn finish(
    shared: Arc<Shared>,
    origin: Origin,
    entry: Arc<Entry>,
    file: Arc<PartFile>,
    is_last: bool,
) -> Result<Option<Record>, Fault> {
    let work = move || {
        let found = match &file.sum {
            Some(sum) => sum.finish(&file.file),
            None => hash(&file.path, algorithm(&entry)),
        };
        let found = found.map_err(|e| super::folder::failed(&file.path, &e))?;
        match &entry.check {
            Some(expected) if *expected != found && is_last => Err(damaged(&origin, &entry, expected, &found)),
            Some(expected) if *expected != found => Ok(None),
            _ => shared.folder.place(&file, &entry, &origin.name(&entry), found).map(Some),
        }
    };
    let done = tokio::task::spawn_blocking(work).await.map_err(|e| Error::new(Kind::Other, e.to_string()))?;
    Ok(done?)
}
