//! The files of one stage of an attempt: all its ranks, in the order in which their lines arrived.
//!
//! A file is named after the number of bytes before it, so an offset stays valid when older files are removed. Each file begins with the
//! state of all sources: after a restart only the last one is read. A line that a crash cut off is removed then.

use crate::record::{self, Line, Position, Records, Source, at};
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes that a reader gets at a time, if no line is longer.
const READ_BYTES: u64 = 256 << 10;

/// Folders that are made for a segment: those of its stage, attempt, task and job, in the store's.
const FOLDERS: usize = 5;

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chunk {
    /// Bytes before it.
    start: u64,
    bytes: u64,
}

impl Chunk {
    fn end(self) -> u64 {
        self.start + self.bytes
    }
}

/// The files, the oldest first, and what is known of their sources.
#[derive(Debug)]
pub(crate) struct Segment {
    folder: PathBuf,
    /// A file that is longer is followed by another.
    chunk_bytes: u64,
    chunks: VecDeque<Chunk>,
    /// The last file, while lines are added.
    file: Option<File>,
    sources: Vec<Source>,
}

/// Records of a segment, complete ones only.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Portion {
    /// Offset of the first byte. Larger than the offset that was asked for if older files were removed.
    pub start: u64,
    pub bytes: Vec<u8>,
}

impl Segment {
    /// Opens what is in a folder, which may not exist yet.
    pub fn open(folder: &Path, chunk_bytes: u64) -> io::Result<Self> {
        let mut chunks: Vec<Chunk> = Vec::new();
        for name in names(folder)? {
            let Some(start) = name.strip_suffix(".log").and_then(|start| start.parse().ok()) else { continue };
            chunks.push(Chunk { start, bytes: fs::metadata(folder.join(&name))?.len() });
        }
        chunks.sort_by_key(|chunk| chunk.start);
        let mut segment =
            Self { folder: folder.to_owned(), chunk_bytes, chunks: chunks.into(), file: None, sources: Vec::new() };
        segment.recover()?;
        Ok(segment)
    }

    /// Reads the last file, and removes a line that was cut off.
    fn recover(&mut self) -> io::Result<()> {
        let Some(last) = self.chunks.back_mut() else { return Ok(()) };
        let path = self.folder.join(name_of(last.start));
        let text = fs::read(&path)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < text.len() {
            OpenOptions::new().write(true).open(&path)?.set_len(whole as u64)?;
        }
        last.bytes = whole as u64;
        self.sources = record::sources(text.get(..whole).unwrap_or_default());
        Ok(())
    }

    /// Offset of the oldest byte that is kept.
    pub fn start(&self) -> u64 {
        self.chunks.front().map_or(0, |chunk| chunk.start)
    }

    /// Offset after the newest byte.
    pub fn end(&self) -> u64 {
        self.chunks.back().map_or(0, |chunk| chunk.end())
    }

    /// All bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.chunks.len()
    }

    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The number of a pod's source, which is added if it is new.
    pub fn source(&mut self, pod: &str, rank: &str) -> io::Result<u32> {
        if let Some(at) = self.sources.iter().position(|source| source.pod == pod) {
            return Ok(number(at));
        }
        let source =
            Source { pod: pod.to_owned(), rank: rank.to_owned(), position: Position::default(), is_complete: false };
        let new = number(self.sources.len());
        let mut records = Records::default();
        records.source(new, &source);
        self.write(&records.0)?;
        self.sources.push(source);
        Ok(new)
    }

    /// How far a source is kept, and whether it is complete.
    pub fn state(&self, source: u32) -> Option<&Source> {
        self.sources.get((source as usize).checked_sub(1)?)
    }

    /// Adds lines of a source.
    pub fn append(&mut self, source: u32, lines: &[Line]) -> io::Result<()> {
        let mut position = self.state(source).map(|source| source.position.clone()).unwrap_or_default();
        let mut records = Records::default();
        for line in lines {
            records.line(source, line);
            position.pass(line);
        }
        self.write(&records.0)?;
        if let Some(source) = at(&mut self.sources, source) {
            source.position = position;
        }
        Ok(())
    }

    /// Adds a note.
    pub fn note(&mut self, text: &str) -> io::Result<()> {
        let mut records = Records::default();
        records.note(text);
        self.write(&records.0)
    }

    /// Marks a source as complete. Afterwards all its lines are on disk.
    pub fn complete(&mut self, source: u32) -> io::Result<()> {
        let mut records = Records::default();
        records.complete(source);
        self.write(&records.0)?;
        if let Some(file) = &self.file {
            file.sync_data()?;
        }
        if let Some(source) = at(&mut self.sources, source) {
            source.is_complete = true;
        }
        if self.sources.iter().all(|source| source.is_complete) {
            self.file = None;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.make_room()?;
        let (Some(file), Some(last)) = (&mut self.file, self.chunks.back_mut()) else { return Ok(()) };
        if let Err(error) = file.write_all(bytes) {
            // a part of a line must not precede the next one
            let cut = file.set_len(last.bytes);
            self.file = None;
            return cut.and(Err(error));
        }
        last.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Opens the last file, or begins another after it.
    fn make_room(&mut self) -> io::Result<()> {
        match self.chunks.back() {
            Some(last) if last.bytes < self.chunk_bytes => {
                if self.file.is_none() {
                    self.file = Some(private().append(true).open(self.folder.join(name_of(last.start)))?);
                }
                Ok(())
            }
            _ => self.begin_file(),
        }
    }

    /// A file appears under its name only with the state of all sources.
    fn begin_file(&mut self) -> io::Result<()> {
        if let Some(full) = self.file.take() {
            full.sync_data()?;
        }
        private_folder(&self.folder)?;
        let mut records = Records::default();
        for (at, source) in self.sources.iter().enumerate() {
            records.source(number(at), source);
        }
        let start = self.end();
        let path = self.folder.join(name_of(start));
        let fresh = path.with_extension("tmp");
        let mut file = private().create(true).append(true).open(&fresh)?;
        file.set_len(0)?;
        file.write_all(&records.0)?;
        file.sync_data()?;
        fs::rename(&fresh, &path)?;
        self.sync_folders()?;
        self.chunks.push_back(Chunk { start, bytes: records.0.len() as u64 });
        self.file = Some(file);
        Ok(())
    }

    /// Makes names durable: those of the first file's folders, too.
    fn sync_folders(&self) -> io::Result<()> {
        let folders = if self.chunks.is_empty() { FOLDERS } else { 1 };
        for folder in self.folder.ancestors().take(folders) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes the oldest file, unless it is the only one, and returns how long it was.
    pub fn drop_oldest(&mut self) -> io::Result<Option<u64>> {
        if self.chunks.len() < 2 {
            return Ok(None);
        }
        let Some(oldest) = self.chunks.front().copied() else { return Ok(None) };
        match fs::remove_file(self.folder.join(name_of(oldest.start))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.chunks.pop_front();
        Ok(Some(oldest.bytes))
    }

    /// The records from an offset on, some of them.
    pub fn read(&self, offset: u64) -> io::Result<Portion> {
        for chunk in self.chunks.iter().filter(|chunk| chunk.end() > offset) {
            let start = offset.max(chunk.start);
            let bytes = self.read_chunk(*chunk, start - chunk.start)?;
            if !bytes.is_empty() {
                return Ok(Portion { start, bytes });
            }
        }
        Ok(Portion { start: self.end(), bytes: Vec::new() })
    }

    fn read_chunk(&self, chunk: Chunk, from: u64) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.folder.join(name_of(chunk.start)))?;
        file.seek(SeekFrom::Start(from))?;
        let left = chunk.bytes.saturating_sub(from);
        let mut bytes = Vec::new();
        (&mut file).take(left.min(READ_BYTES)).read_to_end(&mut bytes)?;
        if !bytes.contains(&b'\n') {
            file.take(left - bytes.len() as u64).read_to_end(&mut bytes)?;
        }
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        Ok(bytes)
    }

    /// The offset before the last lines that readers see, and how many there are from there on.
    pub fn tail(&self, lines: usize) -> io::Result<(u64, usize)> {
        let mut found = 0;
        for chunk in self.chunks.iter().rev() {
            let mut text = Vec::new();
            let file = File::open(self.folder.join(name_of(chunk.start)))?;
            file.take(chunk.bytes).read_to_end(&mut text)?;
            let mut end = text.len();
            while let Some(begin) = last_line(&text, end) {
                if found == lines {
                    return Ok((chunk.start + end as u64, found));
                }
                let line = text.get(begin..end - 1).unwrap_or_default();
                found += usize::from(record::Record::parse(line).is_some_and(|record| record.shown().is_some()));
                end = begin;
            }
        }
        Ok((self.start(), found))
    }
}

/// Where the line begins that ends at this place with a line feed.
fn last_line(text: &[u8], end: usize) -> Option<usize> {
    let before = text.get(..end.checked_sub(1)?)?;
    Some(before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1))
}

/// Sources are numbered from 1.
fn number(at: usize) -> u32 {
    u32::try_from(at + 1).unwrap_or(u32::MAX)
}

fn name_of(start: u64) -> String {
    format!("{start:020}.log")
}

/// The names in a folder; none if it is missing.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}

pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub(crate) fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn line(time: &str, text: &str) -> Line {
        Line { time: time.to_owned(), text: text.as_bytes().to_vec(), is_part: false }
    }

    /// What readers see from an offset on.
    fn shown(segment: &Segment, mut offset: u64) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let portion = segment.read(offset).unwrap();
            if portion.bytes.is_empty() {
                return all;
            }
            offset = portion.start + portion.bytes.len() as u64;
            let lines = portion.bytes.split(|byte| *byte == b'\n').filter_map(Record::parse);
            all.extend(lines.filter_map(|record| Some(String::from_utf8_lossy(record.shown()?).into_owned())));
        }
    }

    #[test]
    fn a_restart_goes_on_after_the_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0/1/run");
        let mut segment = Segment::open(&path, 1000).unwrap();
        let head = segment.source("a", "head").unwrap();
        let worker = segment.source("b", "worker1").unwrap();
        segment.append(head, &[line("t1", "one"), line("t2", "two")]).unwrap();
        segment.append(worker, &[line("t1", "three")]).unwrap();
        let end = segment.end();
        drop(segment);
        let file = path.join(name_of(0));
        let mut text = fs::read(&file).unwrap();
        text.extend_from_slice(b"1 t3 cut of");
        fs::write(&file, text).unwrap();

        let mut segment = Segment::open(&path, 1000).unwrap();
        assert_eq!(segment.end(), end, "the line that was cut off is gone");
        assert_eq!((segment.source("a", "head").unwrap(), segment.source("b", "worker1").unwrap()), (1, 2));
        assert_eq!(segment.state(1).unwrap().position, Position { time: "t2".to_owned(), same: 1, torn: 0 });
        segment.append(head, &[line("t3", "cut off")]).unwrap();
        assert_eq!(shown(&segment, 0), ["one", "two", "three", "cut off"]);
        assert_eq!(shown(&segment, end), ["cut off"]);
    }

    #[test]
    fn offsets_stay_valid_when_old_files_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut segment = Segment::open(folder.path(), 60).unwrap();
        let head = segment.source("a", "head").unwrap();
        for number in 0..9 {
            segment.append(head, &[line(&format!("t{number}"), &format!("line {number}"))]).unwrap();
        }
        let (middle, _) = segment.tail(4).unwrap();
        assert_eq!(shown(&segment, middle), ["line 5", "line 6", "line 7", "line 8"]);
        let all = segment.bytes();
        let dropped = segment.drop_oldest().unwrap().unwrap();
        assert_eq!(segment.bytes(), all - dropped);
        assert_eq!(segment.start(), dropped);
        assert_eq!(shown(&segment, middle), ["line 5", "line 6", "line 7", "line 8"]);
        let left = shown(&segment, 0);
        assert!(!left.contains(&"line 0".to_owned()) && left.contains(&"line 8".to_owned()), "{left:?}");
        while segment.drop_oldest().unwrap().is_some() {}
        assert_eq!(segment.chunks.len(), 1, "the last file stays");

        let again = Segment::open(folder.path(), 60).unwrap();
        assert_eq!(again.sources(), segment.sources(), "each file describes the sources");
        assert_eq!((again.start(), again.end()), (segment.start(), segment.end()));
    }

    #[test]
    fn a_source_is_complete_once_all_is_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut segment = Segment::open(folder.path(), 1000).unwrap();
        let head = segment.source("a", "head").unwrap();
        segment.append(head, &[line("t", "x")]).unwrap();
        segment.note("a note").unwrap();
        segment.complete(head).unwrap();
        let again = Segment::open(folder.path(), 1000).unwrap();
        assert!(again.state(head).unwrap().is_complete);
        assert_eq!(shown(&again, 0), ["x", "a note"]);
        assert_eq!(shown(&again, again.tail(1).unwrap().0), ["a note"]);
        assert_eq!(again.tail(5).unwrap(), (0, 2));
    }

    #[test]
    fn files_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0/1/run");
        Segment::open(&path, 1000).unwrap().source("a", "head").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&folder.path().join("0")), mode(&path.join(name_of(0)))), (0o700, 0o700, 0o600));
    }

    #[test]
    fn long_lines_are_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut segment = Segment::open(folder.path(), 4 << 20).unwrap();
        let head = segment.source("a", "head").unwrap();
        let long = "x".repeat(700_000);
        segment.append(head, &[line("t", "short"), line("t", &long), line("t", "after")]).unwrap();
        assert_eq!(shown(&segment, 0), ["short", &long, "after"]);
        assert_eq!(shown(&segment, segment.tail(2).unwrap().0), [&long, "after"]);
    }
}
