//! Writes what containers print, as CRI log lines: `<time> stdout F <line>`, rotated by size.
//!
//! A line longer than 16 KiB, and one that stays unfinished for half a second (a progress bar), is written in parts
//! tagged `P`; its last part is tagged `F`. Times have nine digits always, so that text order is time order.

use jiff::Timestamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest part of a line in one log line, as container runtimes have it.
const PART_BYTES_MAX: usize = 16 * 1024;
/// How long an unfinished line may wait for its end.
const PART_AGE_MAX: Duration = Duration::from_millis(500);

/// `2026-11-21T11:47:41.123456789Z`: always 30 bytes.
pub fn log_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// Which of a container's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The unfinished line of a stream.
#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    /// When its oldest byte came.
    since: Option<Instant>,
    /// Parts of this line have been written already.
    continued: bool,
}

/// The log of one attempt of a container.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    bytes_max: u64,
    files_max: u32,
    rotated: u64,
    pending: [Pending; 2],
    out: Vec<u8>,
}

impl LogWriter {
    /// Opens the log, appending.
    pub fn open(path: &Path, bytes_max: u64, files_max: u32) -> io::Result<Self> {
        let file = open(path)?;
        let size = file.metadata()?.len();
        let rotated = rotated_files(path)?.last().map_or(0, |(n, _)| *n);
        let pending = [Pending::default(), Pending::default()];
        Ok(Self { path: path.to_owned(), file, size, bytes_max, files_max, rotated, pending, out: Vec::new() })
    }

    /// Takes what a container printed.
    pub fn write(&mut self, stream: Stream, mut bytes: &[u8], now: Timestamp) -> io::Result<()> {
        let time = log_time(now);
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            self.extend(stream, &bytes[..end], &time);
            self.emit(stream, &time, 'F');
            bytes = &bytes[end + 1..];
        }
        self.extend(stream, bytes, &time);
        self.flush_out()
    }

    /// Adds to the unfinished line, writing full parts.
    fn extend(&mut self, stream: Stream, mut bytes: &[u8], time: &str) {
        while !bytes.is_empty() {
            let pending = &mut self.pending[stream as usize];
            let room = PART_BYTES_MAX - pending.bytes.len();
            let take = room.min(bytes.len());
            pending.bytes.extend_from_slice(&bytes[..take]);
            pending.since.get_or_insert_with(Instant::now);
            bytes = &bytes[take..];
            if pending.bytes.len() == PART_BYTES_MAX {
                self.emit(stream, time, 'P');
            }
        }
    }

    fn emit(&mut self, stream: Stream, time: &str, tag: char) {
        let pending = &mut self.pending[stream as usize];
        self.out.extend_from_slice(time.as_bytes());
        self.out.extend_from_slice(format!(" {} {tag} ", stream.as_str()).as_bytes());
        self.out.append(&mut pending.bytes);
        self.out.push(b'\n');
        pending.since = None;
        pending.continued = tag == 'P';
    }

    /// Until when `flush_old` need not be called.
    pub fn next_flush(&self) -> Option<Instant> {
        self.pending.iter().filter_map(|p| p.since).min().map(|since| api::time::after(since, PART_AGE_MAX))
    }

    /// Writes unfinished lines that waited long enough.
    pub fn flush_old(&mut self, now: Timestamp) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            if self.pending[stream as usize].since.is_some_and(|since| since.elapsed() >= PART_AGE_MAX) {
                self.emit(stream, &log_time(now), 'P');
            }
        }
        self.flush_out()
    }

    /// Ends unfinished lines: the container is gone.
    pub fn finish(&mut self, now: Timestamp) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let pending = &self.pending[stream as usize];
            if !pending.bytes.is_empty() || pending.continued {
                self.emit(stream, &log_time(now), 'F');
            }
        }
        self.flush_out()
    }

    fn flush_out(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let rotated = match self.size > 0 && self.size + self.out.len() as u64 > self.bytes_max {
            true => self.rotate(),
            false => Ok(()),
        };
        // Whatever went wrong, the lines are not kept: a full disk must not fill the memory too.
        let result = rotated.and(self.file.write_all(&self.out));
        self.size += self.out.len() as u64;
        self.out.clear();
        self.out.shrink_to(256 * 1024);
        result
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.rotated += 1;
        fs::rename(&self.path, rotated_path(&self.path, self.rotated))?;
        self.file = open(&self.path)?;
        self.size = 0;
        let old = rotated_files(&self.path)?;
        let surplus = (old.len() + 1).saturating_sub(self.files_max.max(1) as usize);
        for (_, path) in &old[..surplus] {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn rotated_path(path: &Path, n: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

/// The rotated files of a log, oldest first, with their numbers.
pub fn rotated_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let number = file_name.to_str().and_then(|f| f.strip_prefix(name)?.strip_prefix('.')?.parse().ok());
        if let Some(number) = number {
            files.push((number, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bodies(path: &Path) -> Vec<String> {
        fs::read_to_string(path).unwrap().lines().map(|l| l[31..].to_owned()).collect()
    }

    #[test]
    fn lines_parts_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogWriter::open(&path, 1 << 20, 5).unwrap();
        let now = clock::now();
        log.write(Stream::Stdout, b"one\ntw", now).unwrap();
        log.write(Stream::Stderr, b"oops\n", now).unwrap();
        log.write(Stream::Stdout, b"o\n\n", now).unwrap();
        log.write(Stream::Stdout, &[b'x'; PART_BYTES_MAX], now).unwrap();
        log.finish(now).unwrap();
        let long = "x".repeat(PART_BYTES_MAX);
        let long = format!("stdout P {long}");
        assert_eq!(
            bodies(&path),
            ["stdout F one", "stderr F oops", "stdout F two", "stdout F ", long.as_str(), "stdout F "]
        );
        assert_eq!(log_time(now).len(), 30);
    }

    #[test]
    fn rotation_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = LogWriter::open(&path, 100, 3).unwrap();
        for n in 0..20 {
            log.write(Stream::Stdout, format!("line {n}\n").as_bytes(), clock::now()).unwrap();
        }
        let rotated = rotated_files(&path).unwrap();
        assert_eq!(rotated.len(), 2);
        assert_eq!(bodies(&path).last().unwrap(), "stdout F line 19");
    }
}
