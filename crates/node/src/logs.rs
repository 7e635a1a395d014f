//! Reads containers' logs as `kubectl logs` wants them: tail, since, previous, timestamps, limit, follow.
//!
//! The files are small, local and in the page cache, so they are read without leaving the async thread.

use crate::poddir::{JournalReader, PodDir};
use crate::shim::log_writer::{log_time, rotated_files};
use crate::wire::{Event, Record};
use bytes::Bytes;
use futures::Stream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a follower waits before it looks again: short after something was new, so that a line is not late, then a
/// quarter longer each time, so that a quiet log costs next to nothing.
const FOLLOW_MIN: Duration = Duration::from_millis(2);
const FOLLOW_MAX: Duration = Duration::from_millis(40);
/// How long a follower waits for the container's start, and how often it looks: a start is a matter of tens of milliseconds.
const START_MAX: Duration = Duration::from_secs(10);
const START_LOOK: Duration = Duration::from_millis(10);
const CHUNK_BYTES: usize = 64 * 1024;

/// As the query parameters of `GET /api/v1/namespaces/{ns}/pods/{name}/log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOptions {
    /// Go on until the container has ended.
    pub follow: bool,
    /// The attempt before the current one.
    pub previous: bool,
    /// Only lines written at or after this time.
    pub since: Option<Timestamp>,
    /// Only this many lines from the end of what is there now.
    pub tail_lines: Option<u64>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// End after this many bytes.
    pub limit_bytes: Option<u64>,
}

/// Why there is no log; the text is what the API server answers (400 Bad Request).
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("container {container:?} in pod {pod:?} is waiting to start: ContainerCreating")]
    NotStarted { container: String, pod: String },
    #[error("previous terminated container {container:?} in pod {pod:?} not found")]
    NoPrevious { container: String, pod: String },
    #[error("reading the log of container {container:?}")]
    Io {
        container: String,
        #[source]
        source: io::Error,
    },
}

/// Opens the log of a container of a pod on this machine.
///
/// # Expected flow
/// The attempt to read is chosen from the journal now; the stream then yields what was asked for in chunks that end
/// anywhere, and ends when all is sent or, following, when that attempt has ended and all is sent.
///
/// # Guarantees
/// The last byte sent is a newline (if any byte was sent and `limit_bytes` did not cut). No line is skipped by rotation
/// unless the reader is slower than five files of log.
///
/// # Assumptions
/// The container's name is one of the pod's (the API server checks it).
///
/// # Errors
/// See `LogError`.
pub fn read(
    dir: &PodDir,
    pod: &str,
    container: &str,
    options: LogOptions,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, LogError> {
    let names = || (container.to_owned(), pod.to_owned());
    let failed = |source| LogError::Io { container: container.to_owned(), source };
    let records = dir.read_journal().map_err(failed)?;
    let attempts = Attempts::of(&records, container);
    let attempt = if options.previous { attempts.previous() } else { attempts.current() };
    let Some(attempt) = attempt else {
        let (container, pod) = names();
        return Err(match options.previous {
            true => LogError::NoPrevious { container, pod },
            false => LogError::NotStarted { container, pod },
        });
    };
    read_attempt(dir, container, attempt, options)
}

/// As `read`, but a follower of a container that was just made waits for its start, ten seconds at most. Upstream's kubelet refuses it
/// at once (400, ContainerCreating), and so do we after that: the logs of a pod that cannot start still say so.
///
/// # Errors
/// See `LogError`.
pub async fn read_when_started(
    dir: &PodDir,
    pod: &str,
    container: &str,
    options: LogOptions,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, LogError> {
    let until = api::time::after(Instant::now(), START_MAX);
    loop {
        match read(dir, pod, container, options.clone()) {
            Err(LogError::NotStarted { .. }) if options.follow && Instant::now() < until => {
                tokio::time::sleep(START_LOOK).await;
            }
            answer => return answer,
        }
    }
}

/// Opens the log of one attempt of a container, wherever the pod's directory lies. `previous` is of no account.
///
/// # Errors
/// `LogError::Io`. An attempt without a log has an empty one.
pub fn read_attempt(
    dir: &PodDir,
    container: &str,
    attempt: u32,
    options: LogOptions,
) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, LogError> {
    let failed = |source| LogError::Io { container: container.to_owned(), source };
    let reader = LogReader::open(dir, container, attempt, options).map_err(failed)?;
    Ok(futures::stream::unfold(reader, |mut reader| async move {
        let chunk = reader.next().await?;
        Some((chunk, reader))
    }))
}

/// How much there is of an attempt's log: its bytes, and whether its beginning was rotated away.
pub fn extent(dir: &PodDir, container: &str, attempt: u32) -> (u64, bool) {
    let path = dir.log(container, attempt);
    let rotated = rotated_files(&path).unwrap_or_default();
    let is_cut = rotated.first().is_some_and(|(first, _)| *first > 1);
    let files = rotated.into_iter().map(|(_, path)| path).chain([path]);
    (files.filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum(), is_cut)
}

/// Which attempts of a container the journal tells of.
#[derive(Debug, Default)]
struct Attempts {
    last: Option<u32>,
    is_waiting: bool,
}

impl Attempts {
    fn of(records: &[Record], name: &str) -> Self {
        let mut attempts = Self::default();
        for record in records {
            match &record.event {
                Event::Running { container, attempt, .. } | Event::Exited { container, attempt, .. }
                    if container == name =>
                {
                    attempts.last = Some(*attempt);
                    attempts.is_waiting = false;
                }
                Event::Waiting { container, .. } if container == name => attempts.is_waiting = true,
                Event::Running { .. }
                | Event::Exited { .. }
                | Event::Waiting { .. }
                | Event::Taken { .. }
                | Event::Started { .. }
                | Event::HookFailed { .. }
                | Event::Stopping { .. }
                | Event::Finished
                | Event::Lost { .. } => {}
            }
        }
        attempts
    }

    fn current(&self) -> Option<u32> {
        self.last
    }

    /// While a container waits to be restarted, its last run is the previous one.
    fn previous(&self) -> Option<u32> {
        let last = self.last?;
        if self.is_waiting { Some(last) } else { last.checked_sub(1) }
    }
}

/// Whether an attempt is over, as far as the journal knows.
fn is_over(records: &[Record], name: &str, wanted: u32) -> bool {
    records.iter().any(|record| match &record.event {
        Event::Exited { container, attempt, .. } => container == name && *attempt >= wanted,
        Event::Finished | Event::Lost { .. } => true,
        Event::Taken { .. }
        | Event::Running { .. }
        | Event::Waiting { .. }
        | Event::Started { .. }
        | Event::HookFailed { .. }
        | Event::Stopping { .. } => false,
    })
}

/// The current file of a log and the rotated ones before it, oldest first.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let rotated = match rotated_files(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    Ok(rotated.into_iter().map(|(_, path)| path).chain([path.to_owned()]).collect())
}

struct LogReader {
    journal: JournalReader,
    container: String,
    attempt: u32,
    path: PathBuf,
    file: Option<File>,
    options: LogOptions,
    since: Option<String>,
    left: u64,
    /// The beginning of a log line whose end is not there yet.
    torn: Vec<u8>,
    /// The next byte begins a line for the reader of the stream.
    at_line_start: bool,
    /// Which stream of the container the last part was of.
    part_of: Vec<u8>,
    done: bool,
}

impl LogReader {
    fn open(dir: &PodDir, container: &str, attempt: u32, options: LogOptions) -> io::Result<Self> {
        let path = dir.log(container, attempt);
        let file = match options.tail_lines {
            Some(lines) => open_at_tail(&path, lines)?,
            // None for an attempt that could not be started.
            None => files(&path)?.iter().find_map(|file| crate::files::open(file).ok()),
        };
        Ok(Self {
            journal: JournalReader::new(dir.clone()),
            container: container.to_owned(),
            attempt,
            path,
            file,
            since: options.since.map(log_time),
            left: options.limit_bytes.unwrap_or(u64::MAX),
            options,
            torn: Vec::new(),
            at_line_start: true,
            part_of: Vec::new(),
            done: false,
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut pause = FOLLOW_MIN;
        loop {
            if self.done || self.left == 0 {
                return None;
            }
            match self.read_some() {
                Err(e) => {
                    self.done = true;
                    return Some(Err(e));
                }
                Ok(Some(out)) if out.is_empty() => {}
                Ok(Some(out)) => return Some(Ok(self.limited(out))),
                Ok(None) => {
                    self.done = true;
                    return (!self.at_line_start).then(|| Ok(self.limited(b"\n".to_vec())));
                }
            }
            if self.file.is_none() || !self.has_more() {
                tokio::time::sleep(pause).await;
                pause = pause.mul_f32(1.25).min(FOLLOW_MAX);
            }
        }
    }

    /// Whether another read is worthwhile at once.
    fn has_more(&mut self) -> bool {
        let Some(file) = &mut self.file else { return false };
        let at = file.stream_position().unwrap_or(0);
        file.metadata().is_ok_and(|m| m.len() > at)
    }

    fn limited(&mut self, mut out: Vec<u8>) -> Bytes {
        out.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.left -= out.len() as u64;
        out.into()
    }

    /// The next output; empty if there is none yet, `None` if there will be none.
    fn read_some(&mut self) -> io::Result<Option<Vec<u8>>> {
        // Looked at before the file: what is in the file afterwards is all there will be.
        let over = !self.options.follow || {
            self.journal.read()?;
            is_over(&self.journal.records, &self.container, self.attempt) || !self.path.exists()
        };
        loop {
            let bytes = self.read_chunk()?;
            if !bytes.is_empty() {
                let out = self.render(&bytes);
                if out.is_empty() {
                    continue;
                }
                return Ok(Some(out));
            }
            if !self.open_successor()? {
                return Ok(if over { None } else { Some(Vec::new()) });
            }
        }
    }

    fn read_chunk(&mut self) -> io::Result<Vec<u8>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let size = match &mut self.file {
            Some(file) => file.read(&mut chunk)?,
            None => 0,
        };
        chunk.truncate(size);
        Ok(chunk)
    }

    /// At the end of a file: goes on with the next one, if the log was rotated meanwhile.
    fn open_successor(&mut self) -> io::Result<bool> {
        let Some(file) = &self.file else {
            self.file = crate::files::open(&self.path).ok();
            return Ok(self.file.is_some());
        };
        let mine = file.metadata()?.ino();
        if fs::metadata(&self.path).is_ok_and(|m| m.ino() == mine) {
            return Ok(false);
        }
        let files = files(&self.path)?;
        let place = files.iter().position(|path| fs::metadata(path).is_ok_and(|m| m.ino() == mine));
        // Not among them: it was removed, and the oldest one there is comes next.
        let next = place.map_or(0, |place| place + 1);
        match files.get(next).map(|path| crate::files::open(path)) {
            Some(Ok(file)) => {
                self.file = Some(file);
                Ok(true)
            }
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Some(Err(_)) | None => Ok(false),
        }
    }

    fn render(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut buffer = std::mem::take(&mut self.torn);
        buffer.extend_from_slice(bytes);
        let mut rest = buffer.as_slice();
        while let Some(end) = rest.iter().position(|&b| b == b'\n') {
            if let Some(line) = CriLine::parse(&rest[..end]) {
                self.render_line(&line, &mut out);
            }
            rest = &rest[end + 1..];
        }
        self.torn = rest.to_vec();
        out
    }

    fn render_line(&mut self, line: &CriLine<'_>, out: &mut Vec<u8>) {
        if self.since.as_ref().is_some_and(|since| line.time < since.as_bytes()) {
            return;
        }
        // a bar on stderr that has not ended must not stand before a line on stdout
        if !self.at_line_start && self.part_of != line.stream {
            out.push(b'\n');
            self.at_line_start = true;
        }
        self.part_of.clear();
        self.part_of.extend_from_slice(line.stream);
        if self.at_line_start && self.options.timestamps {
            out.extend_from_slice(line.time);
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if line.is_full {
            out.push(b'\n');
        }
        self.at_line_start = line.is_full;
    }
}

/// `<time> <stream> <tag> <text>`.
struct CriLine<'a> {
    time: &'a [u8],
    stream: &'a [u8],
    is_full: bool,
    text: &'a [u8],
}

impl<'a> CriLine<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |&b| b == b' ');
        let (time, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        Some(Self { time, stream, is_full: tag != b"P", text })
    }
}

/// Where the lines of a file begin: a line written in parts counts once.
fn line_starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    // the stream of a line that has not ended
    let mut within: Option<&[u8]> = None;
    while let Some(length) = bytes[at..].iter().position(|&b| b == b'\n') {
        let line = CriLine::parse(&bytes[at..at + length]);
        if within.is_none() || line.as_ref().is_some_and(|line| within != Some(line.stream)) {
            starts.push(at);
        }
        within = line.filter(|line| !line.is_full).map(|line| line.stream);
        at += length + 1;
    }
    starts
}

/// The file that holds the first of the last `lines` lines, positioned there.
fn open_at_tail(path: &Path, lines: u64) -> io::Result<Option<File>> {
    let mut wanted = usize::try_from(lines).unwrap_or(usize::MAX);
    let mut oldest = None;
    for path in files(path)?.iter().rev() {
        let mut file = match crate::files::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        if wanted == 0 {
            if oldest.is_none() {
                file.seek(SeekFrom::End(0))?;
                oldest = Some(file);
            }
            break;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let starts = line_starts(&bytes);
        let start = starts.len().checked_sub(wanted).map_or(0, |at| starts[at]);
        file.seek(SeekFrom::Start(start as u64))?;
        wanted = wanted.saturating_sub(starts.len());
        oldest = Some(file);
    }
    Ok(oldest)
}

/// The end of a log, for a termination message: at most this many lines and bytes.
pub fn last_lines(path: &Path, lines: usize, bytes_max: usize) -> String {
    let mut text = Vec::new();
    if let Ok(Some(mut file)) = open_at_tail(path, lines as u64) {
        let mut bytes = Vec::new();
        let _ = file.read_to_end(&mut bytes);
        for line in bytes.split(|&b| b == b'\n').filter_map(CriLine::parse) {
            text.extend_from_slice(line.text);
            if line.is_full {
                text.push(b'\n');
            }
        }
    }
    let start = text.len().saturating_sub(bytes_max);
    String::from_utf8_lossy(&text[start..]).into_owned()
}

#[cfg(test)]
mod tests;
