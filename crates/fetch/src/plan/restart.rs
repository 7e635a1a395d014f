//! What a run leaves for the next: the state of the folder, and what the next one must do with it.

use super::verify::Check;
use serde::{Deserialize, Serialize};

/// A file at its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name at the source: key, path in the repository, URL.
    pub source: String,
    /// Its path in the target.
    pub target: String,
    pub size: Option<u64>,
    /// What changes when the content does (a strong etag, a git object id), if the source tells such a thing.
    pub version: Option<String>,
    /// What the source says of its content.
    pub check: Option<Check>,
    /// Ranges of it can be asked for, and are of this version or refused.
    pub ranges: bool,
}

/// What is known of a file that was put in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub target: String,
    /// Where it came from: location and name there.
    pub origin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub size: u64,
    /// Of the file in the target, in nanoseconds.
    pub modified: i64,
    /// Of its content: the source's, or one of our own.
    pub check: Check,
}

impl Record {
    /// Its name at its source, if that is in this location.
    fn source(&self, location: &str) -> Option<&str> {
        self.origin.strip_prefix(location)?.strip_prefix(' ')
    }
}

/// A location all of whose files are in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    pub location: String,
    /// What pins it: the commit.
    pub pin: String,
    /// Patterns and the like: what else decides which files there are.
    pub settings: String,
    pub files: Vec<String>,
}

/// The state file: one line each, appended; what is torn ends it. Lines may borrow what they tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line<F = Record, C = Complete> {
    /// The first line.
    Version(u32),
    File(F),
    /// All lines before, and the data that they tell of, are on the disk.
    Synced,
    Complete(C),
}

pub const VERSION: u32 = 1;

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub record: Record,
    /// It is on the disk, whatever happened since.
    pub synced: bool,
}

/// A folder's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order of their targets, one of each.
    files: Vec<Known>,
    pub complete: Vec<Complete>,
}

impl State {
    /// `files` in any order; of several with one target the last counts.
    fn new(mut files: Vec<Known>, complete: Vec<Complete>) -> Self {
        // by what is first in them and differs, which is one number of each: then little is left to compare
        let shared = shared(&files);
        files.sort_by_cached_key(|known| head(&known.record.target, shared));
        files.sort_by(|one, other| one.record.target.cmp(&other.record.target));
        files.dedup_by(|next, kept| {
            let is_same = next.record.target == kept.record.target;
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
        Self { files, complete }
    }

    /// What the state file tells. A state of another version, or none, tells nothing.
    pub fn read(text: &[u8]) -> Self {
        let text = std::str::from_utf8(text).or_else(|e| std::str::from_utf8(&text[..e.valid_up_to()]));
        let text = text.unwrap_or_default();
        let mut lines = text.split_inclusive('\n');
        // a line without its end is torn
        let mut next = || -> Option<Line> { serde_json::from_str(lines.next()?.strip_suffix('\n')?).ok() };
        if next() != Some(Line::Version(VERSION)) {
            return Self::default();
        }
        const SHORTEST: usize = 200;
        let mut files: Vec<Known> = Vec::with_capacity(text.len() / SHORTEST);
        let mut complete: Vec<Complete> = Vec::new();
        let mut synced = 0;
        while let Some(line) = next() {
            match line {
                Line::Version(_) => break,
                Line::File(record) => files.push(Known { record, synced: false }),
                Line::Synced => synced = files.len(),
                Line::Complete(one) => {
                    complete.retain(|other| other.location != one.location);
                    complete.push(one);
                }
            }
        }
        files.iter_mut().take(synced).for_each(|known| known.synced = true);
        Self::new(files, complete)
    }

    pub fn files(&self) -> &[Known] {
        &self.files
    }

    /// Where a target is among `files`. `next`: where it may be, as they are looked for in their order; where the next may be.
    pub fn find(&self, target: &str, next: &mut usize) -> Option<usize> {
        let is_it = |known: &Known| known.record.target == target;
        let at = match self.files.get(*next) {
            Some(known) if is_it(known) => Some(*next),
            _ => self.files.binary_search_by(|known| known.record.target.as_str().cmp(target)).ok(),
        };
        *next = at.map_or(*next, |at| at.saturating_add(1));
        at
    }

    /// The names that files of a location have there.
    pub fn sources(&self, location: &str) -> Vec<&str> {
        self.files.iter().filter_map(|known| known.record.source(location)).collect()
    }

    /// The same in as few lines as possible. What was not known to be on the disk still is not.
    pub fn write(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let files = |wanted: bool| {
            let of = self.files.iter().filter(move |known| known.synced == wanted);
            of.map(|known| Line::File(&known.record))
        };
        let known = [Line::Version(VERSION)].into_iter().chain(files(true)).chain([Line::Synced]);
        let lines = known.chain(self.complete.iter().map(Line::Complete)).chain(files(false));
        lines.for_each(|line| add(&mut text, &line));
        text
    }

    /// What a run begins with that has compared `compared`. Of the rest, what is not known to be on the disk is forgotten: a later
    /// `Synced` would vouch for content that nobody has looked at.
    pub fn begin(&mut self, compared: impl IntoIterator<Item = Record>) {
        let Self { mut files, complete } = std::mem::take(self);
        files.retain(|known| known.synced);
        files.extend(compared.into_iter().map(|record| Known { record, synced: false }));
        *self = Self::new(files, complete);
    }
}

/// How many bytes all targets begin with.
fn shared(files: &[Known]) -> usize {
    let Some((first, others)) = files.split_first() else { return 0 };
    let first = first.record.target.as_bytes();
    others.iter().fold(first.len(), |shared, known| {
        let alike = first.iter().zip(known.record.target.as_bytes()).take(shared);
        alike.take_while(|(one, other)| one == other).count()
    })
}

/// Eight bytes of a target from `start` on, as a number that is in their order.
fn head(target: &str, start: usize) -> u64 {
    let mut head = [0; 8];
    let bytes = target.as_bytes().get(start..).unwrap_or_default();
    head.iter_mut().zip(bytes).for_each(|(byte, one)| *byte = *one);
    u64::from_be_bytes(head)
}

fn add<F: Serialize, C: Serialize>(text: &mut Vec<u8>, line: &Line<F, C>) {
    // to memory, of what can be written: it cannot fail
    let _ = serde_json::to_writer(&mut *text, line);
    text.push(b'\n');
}

pub fn encode(line: &Line) -> Vec<u8> {
    let mut text = Vec::new();
    add(&mut text, line);
    text
}

/// A file that is in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub size: u64,
    pub modified: i64,
}

/// What a file needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// It is there, and right if its content has this checksum.
    Compare(Check),
    Fetch,
}

/// What must be done for `entry` of `location`, given what is recorded and what is there.
pub fn need(entry: &Entry, location: &str, known: Option<&Known>, found: Option<Found>) -> Need {
    let Some(found) = found else { return Need::Fetch };
    if entry.size.is_some_and(|size| size != found.size) {
        return Need::Fetch;
    }
    if let Some(Known { record, synced }) = known {
        let same_content = match &entry.check {
            Some(check) if check.algorithm == record.check.algorithm => *check == record.check,
            _ => {
                record.source(location) == Some(&entry.source)
                    && entry.version.is_some()
                    && entry.version == record.version
            }
        };
        let untouched = record.size == found.size && record.modified == found.modified;
        match (same_content, untouched) {
            (true, true) if *synced => return Need::Nothing,
            (true, _) => return Need::Compare(record.check.clone()),
            (false, _) => {}
        }
    }
    match &entry.check {
        Some(check) => Need::Compare(check.clone()),
        None => Need::Fetch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(digit: char) -> Check {
        Check::from_hex("md5", &digit.to_string().repeat(32)).unwrap()
    }

    fn record(target: &str) -> Record {
        Record {
            target: target.into(),
            origin: "s3://b a".into(),
            version: Some("e".into()),
            size: 3,
            modified: 7,
            check: check('1'),
        }
    }

    fn known(target: &str, synced: bool) -> Known {
        Known { record: record(target), synced }
    }

    #[test]
    fn needs() {
        let entry = |own: Option<Check>, version: &str| Entry {
            source: "a".into(),
            size: Some(3),
            version: Some(version.into()).filter(|v: &String| !v.is_empty()),
            check: own,
            ..Entry::default()
        };
        let found = |size, modified| Some(Found { size, modified });
        let crc = Check::from_hex("crc32", "00000000").unwrap();
        let known = Some(known("a", true));
        let unsure = Some(self::known("a", false));
        for (about, entry, record, found, expected) in [
            ("absent", entry(None, "e"), &known, None, Need::Fetch),
            ("known, untouched", entry(None, "e"), &known, found(3, 7), Need::Nothing),
            ("known, power may have been cut", entry(None, "e"), &unsure, found(3, 7), Need::Compare(check('1'))),
            ("known, touched", entry(None, "e"), &known, found(3, 8), Need::Compare(check('1'))),
            ("another size", entry(None, "e"), &known, found(4, 7), Need::Fetch),
            ("another version", entry(None, "f"), &known, found(3, 7), Need::Fetch),
            (
                "another version, content told",
                entry(Some(check('2')), "f"),
                &known,
                found(3, 7),
                Need::Compare(check('2')),
            ),
            ("another version, same content", entry(Some(check('1')), "f"), &known, found(3, 7), Need::Nothing),
            ("no version", entry(None, ""), &known, found(3, 7), Need::Fetch),
            ("another algorithm", entry(Some(crc.clone()), "e"), &known, found(3, 7), Need::Nothing),
            ("unknown, content told", entry(Some(crc.clone()), "e"), &None, found(3, 7), Need::Compare(crc)),
            ("unknown", entry(None, "e"), &None, found(3, 7), Need::Fetch),
        ] {
            assert_eq!(need(&entry, "s3://b", record.as_ref(), found), expected, "{about}");
        }
        assert_eq!(need(&entry(None, "e"), "s3://c", known.as_ref(), found(3, 7)), Need::Fetch, "another origin");
    }

    #[test]
    fn a_state_survives_its_own_writing() {
        let complete =
            Complete { location: "l".into(), pin: "p".into(), settings: String::new(), files: vec!["a".into()] };
        let state = State::new(vec![known("b", false), known("a", true)], vec![complete]);
        assert_eq!(State::read(&state.write()), state);
        assert_eq!(State::read(b"{\"version\":99}\n"), State::default());
        assert_eq!(State::read(b""), State::default());
    }

    /// A power cut leaves `a` unsure; a run that looks at `b` alone syncs the disk. `a` is still unsure.
    #[test]
    fn what_nobody_compared_is_not_vouched_for() {
        let mut state = State::new(vec![known("a", false), known("b", false), known("c", true)], Vec::new());
        state.begin([record("b")]);
        let text = [state.write(), encode(&Line::Synced)].concat();
        assert_eq!(State::read(&text).files, [known("b", true), known("c", true)]);
    }

    #[test]
    fn the_last_line_of_a_file_counts() {
        let newer = Record { size: 4, ..record("a") };
        let lines = [Line::File(record("b")), Line::File(record("a")), Line::Synced, Line::File(newer.clone())];
        let text: Vec<u8> = [Line::Version(VERSION)].iter().chain(&lines).flat_map(encode).collect();
        let state = State::read(&text);
        assert_eq!(state.files, [Known { record: newer, synced: false }, known("b", true)]);
        let mut next = 0;
        let places = ["a", "b", "", "a", "c", "b"].map(|target| state.find(target, &mut next));
        assert_eq!(places, [Some(0), Some(1), None, Some(0), None, Some(1)]);
        assert_eq!(
            (state.sources("s3://b"), state.sources("s3:"), state.sources("")),
            (vec!["a", "a"], vec![], vec![])
        );
    }

    proptest! {
        /// A state file that is cut off anywhere tells of a beginning of what was written.
        #[test]
        fn a_torn_state_tells_less(count in 0_usize..6, cut in 0_usize..2000) {
            let mut text = encode(&Line::Version(VERSION));
            (0..count).for_each(|i| text.extend(encode(&Line::File(record(&i.to_string())))));
            text.truncate(cut);
            let told = State::read(&text);
            prop_assert!(told.files.iter().enumerate().all(|(i, one)| *one == known(&i.to_string(), false)));
        }
    }
}
