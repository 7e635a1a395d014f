//! What a run leaves for the next: the state of the folder, and what the next one must do with it.

use super::verify::Check;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
    pub modified: i128,
    /// Of its content: the source's, or one of our own.
    pub check: Check,
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

/// A folder's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// By target; `true`: on the disk, whatever happened since.
    pub files: BTreeMap<String, (Record, bool)>,
    pub complete: Vec<Complete>,
}

impl State {
    /// What the state file tells. A state of another version, or none, tells nothing.
    pub fn read(text: &[u8]) -> Self {
        let mut state = Self::default();
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        // a line without its end is torn
        let mut next = || -> Option<Line> { serde_json::from_slice(lines.next()?.strip_suffix(b"\n")?).ok() };
        if next() != Some(Line::Version(VERSION)) {
            return state;
        }
        while let Some(line) = next() {
            match line {
                Line::Version(_) => break,
                Line::File(record) => _ = state.files.insert(record.target.clone(), (record, false)),
                Line::Synced => state.files.values_mut().for_each(|(_, synced)| *synced = true),
                Line::Complete(complete) => {
                    state.complete.retain(|other| other.location != complete.location);
                    state.complete.push(complete);
                }
            }
        }
        state
    }

    /// The same in as few lines as possible. What was not known to be on the disk still is not.
    pub fn write(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let files = |wanted: bool| {
            let of = self.files.values().filter(move |(_, synced)| *synced == wanted);
            of.map(|(record, _)| Line::File(record))
        };
        let known = [Line::Version(VERSION)].into_iter().chain(files(true)).chain([Line::Synced]);
        let lines = known.chain(self.complete.iter().map(Line::Complete)).chain(files(false));
        lines.for_each(|line| add(&mut text, &line));
        text
    }

    /// What a run begins with that has compared `compared`. Of the rest, what is not known to be on the disk is forgotten: a later
    /// `Synced` would vouch for content that nobody has looked at.
    pub fn begin(&mut self, compared: impl IntoIterator<Item = Record>) {
        self.files.retain(|_, (_, synced)| *synced);
        self.files.extend(compared.into_iter().map(|record| (record.target.clone(), (record, false))));
    }
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
    pub modified: i128,
}

/// What a file needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// It is there, and right if its content has this checksum.
    Compare(Check),
    Fetch,
}

/// What must be done for `entry` of `origin`, given what is recorded and what is there.
pub fn need(entry: &Entry, origin: &str, record: Option<&(Record, bool)>, found: Option<Found>) -> Need {
    let Some(found) = found else { return Need::Fetch };
    if entry.size.is_some_and(|size| size != found.size) {
        return Need::Fetch;
    }
    if let Some((record, synced)) = record {
        let same_content = match &entry.check {
            Some(check) if check.algorithm == record.check.algorithm => *check == record.check,
            _ => record.origin == origin && entry.version.is_some() && entry.version == record.version,
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

    #[test]
    fn needs() {
        let entry = |own: Option<Check>, version: &str| Entry {
            size: Some(3),
            version: Some(version.into()).filter(|v: &String| !v.is_empty()),
            check: own,
            ..Entry::default()
        };
        let found = |size, modified| Some(Found { size, modified });
        let crc = Check::from_hex("crc32", "00000000").unwrap();
        let known = Some((record("a"), true));
        let unsure = Some((record("a"), false));
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
            assert_eq!(need(&entry, "s3://b a", record.as_ref(), found), expected, "{about}");
        }
        assert_eq!(need(&entry(None, "e"), "s3://c a", known.as_ref(), found(3, 7)), Need::Fetch, "another origin");
    }

    #[test]
    fn a_state_survives_its_own_writing() {
        let mut state = State::default();
        state.files.insert("a".into(), (record("a"), true));
        state.files.insert("b".into(), (record("b"), false));
        state.complete.push(Complete {
            location: "l".into(),
            pin: "p".into(),
            settings: String::new(),
            files: vec!["a".into()],
        });
        assert_eq!(State::read(&state.write()), state);
        assert_eq!(State::read(b"{\"version\":99}\n"), State::default());
        assert_eq!(State::read(b""), State::default());
    }

    /// A power cut leaves `a` unsure; a run that looks at `b` alone syncs the disk. `a` is still unsure.
    #[test]
    fn what_nobody_compared_is_not_vouched_for() {
        let mut state = State::default();
        state.files.insert("a".into(), (record("a"), false));
        state.files.insert("b".into(), (record("b"), false));
        state.files.insert("c".into(), (record("c"), true));
        state.begin([record("b")]);
        let text = [state.write(), encode(&Line::Synced)].concat();
        let told: Vec<(String, bool)> = State::read(&text).files.into_iter().map(|(name, (_, s))| (name, s)).collect();
        assert_eq!(told, [("b".to_owned(), true), ("c".to_owned(), true)]);
    }

    proptest! {
        /// A state file that is cut off anywhere tells of a beginning of what was written.
        #[test]
        fn a_torn_state_tells_less(count in 0_usize..6, cut in 0_usize..2000) {
            let mut text = encode(&Line::Version(VERSION));
            (0..count).for_each(|i| text.extend(encode(&Line::File(record(&i.to_string())))));
            text.truncate(cut);
            let told = State::read(&text);
            prop_assert!(told.files.iter().enumerate().all(|(i, (name, (_, synced)))| *name == i.to_string() && !synced));
        }
    }
}
