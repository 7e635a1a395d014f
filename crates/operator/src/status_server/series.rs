//! The history of what jobs reported: one file of JSON lines for each TrainJob, `<root>/<namespace>/<name>.<uid>.jsonl`.
//!
//! Lines are appended and never changed. A file that has grown too large is written anew with every other line, so that a
//! job of any length keeps its whole course in bounded space, the older part more coarsely with each time. Files are
//! their owner's alone (0600). A crash of this process loses nothing; one of the machine may lose the last seconds.

use api::object::Key;
use api::trainer::TrainerStatus;
use serde_json::Value;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that a job's file may have: about 30,000 reports of a few metrics, at one in five seconds 40 hours.
const FILE_MAX: u64 = 4 << 20;
/// Bytes that one line may have, by the limit on a report's body.
const LINE_MAX: u64 = 1 << 17;

/// A directory of series. Its methods wait for the disk.
#[derive(Clone, Debug)]
pub struct Series {
    root: PathBuf,
    file_max: u64,
    /// One at a time changes files.
    turn: Arc<Mutex<()>>,
}

impl Series {
    /// Series below this directory, which is made with the first report.
    pub fn new(root: PathBuf) -> Self {
        Self { root, file_max: FILE_MAX, turn: Arc::default() }
    }

    /// The reports of a TrainJob, oldest first, each as `trainerStatus` has it. Empty where it has reported nothing.
    ///
    /// # Errors
    /// The file cannot be read, or the key is not one of an object.
    pub fn read(&self, key: &Key) -> io::Result<Vec<Value>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for (name, uid) in self.files_in(&self.folder(key)?)? {
            if name == key.name {
                files.push(self.file(key, &uid)?);
            }
        }
        // Of a job that was made anew the old one's may still be there for a moment.
        files.sort_by_key(|file| file.metadata().and_then(|m| m.modified()).ok());
        let Some(file) = files.last() else { return Ok(Vec::new()) };
        let text = fs::read_to_string(file)?;
        Ok(lines(&text).filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Appends a report.
    pub(super) fn append(&self, key: &Key, uid: &str, status: &TrainerStatus) -> io::Result<()> {
        let path = self.file(key, uid)?;
        let mut line = line(status)?;
        line.push(b'\n');
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match private().append(true).create(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(self.folder(key)?)?;
                private().append(true).create(true).open(&path)?
            }
            opened => opened?,
        };
        let before = file.metadata()?.len();
        if let Err(error) = file.write_all(&line) {
            // half a line would spoil the next one
            drop(file.set_len(before));
            return Err(error);
        }
        if before + line.len() as u64 > self.file_max {
            thin(&path)?;
        }
        Ok(())
    }

    /// The last report of a TrainJob.
    pub(super) fn last(&self, key: &Key, uid: &str) -> io::Result<Option<TrainerStatus>> {
        let mut file = match File::open(self.file(key, uid)?) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let start = file.metadata()?.len().saturating_sub(LINE_MAX);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let tail = String::from_utf8_lossy(&tail);
        Ok(lines(&tail).last().and_then(|line| serde_json::from_str(line).ok()))
    }

    /// All TrainJobs that have a file, with their uids.
    pub(super) fn jobs(&self) -> io::Result<Vec<(Key, String)>> {
        let mut found = Vec::new();
        let folders = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?.path();
            let namespace = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.extend(self.files_in(&folder)?.into_iter().map(|(name, uid)| (Key::new(&namespace, &name), uid)));
        }
        Ok(found)
    }

    /// Removes a TrainJob's file, if it has one.
    pub(super) fn remove(&self, key: &Key, uid: &str) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::remove_file(self.file(key, uid)?) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                // the folder goes with its last file
                drop(fs::remove_dir(self.folder(key)?));
                Ok(())
            }
        }
    }

    /// Names and uids of the files of one namespace.
    fn files_in(&self, folder: &Path) -> io::Result<Vec<(String, String)>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry?.file_name();
            let stem = entry.to_str().and_then(|name| name.strip_suffix(".jsonl"));
            if let Some((name, uid)) = stem.and_then(|stem| stem.rsplit_once('.')) {
                found.push((name.to_owned(), uid.to_owned()));
            }
        }
        Ok(found)
    }

    fn folder(&self, key: &Key) -> io::Result<PathBuf> {
        Ok(self.root.join(plain(&key.namespace)?))
    }

    fn file(&self, key: &Key, uid: &str) -> io::Result<PathBuf> {
        Ok(self.folder(key)?.join(format!("{}.{}.jsonl", plain(&key.name)?, plain(uid)?)))
    }
}

/// The name if it can be one of an object, and so of a file: letters, digits, `-` and `.`, beginning with no dot.
fn plain(name: &str) -> io::Result<&str> {
    let is_plain = !name.starts_with('.') && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
    if !name.is_empty() && is_plain {
        return Ok(name);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not the name of an object")))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// A report as one line. Its time is kept to the millisecond, which the API rounds away.
fn line(status: &TrainerStatus) -> io::Result<Vec<u8>> {
    let mut value = serde_json::to_value(status)?;
    if let Some(time) = &status.last_updated_time {
        value["lastUpdatedTime"] = format!("{:.3}", time.0).into();
    }
    Ok(serde_json::to_vec(&value)?)
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty())
}

/// Drops every other line but the last.
fn thin(path: &Path) -> io::Result<()> {
    let text = fs::read_to_string(path)?;
    let count = lines(&text).count();
    let kept = lines(&text).enumerate().filter(|(at, _)| at % 2 == 0 || at + 1 == count);
    let mut thinned = String::with_capacity(text.len() / 2);
    for (_, line) in kept {
        thinned.push_str(line);
        thinned.push('\n');
    }
    let fresh = path.with_extension("tmp");
    private().write(true).create(true).truncate(true).open(&fresh)?.write_all(thinned.as_bytes())?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("trainyard-series-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn report(percent: i32) -> TrainerStatus {
        let time: jiff::Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        TrainerStatus {
            progress_percentage: Some(percent),
            last_updated_time: Some(time.into()),
            ..TrainerStatus::default()
        }
    }

    fn percents(series: &Series, key: &Key) -> Vec<i64> {
        series.read(key).unwrap().iter().map(|report| report["progressPercentage"].as_i64().unwrap()).collect()
    }

    #[test]
    fn what_is_appended_is_read_until_it_is_removed() {
        let folder = Folder::new("append");
        let series = Series::new(folder.0.clone());
        let (key, other) = (Key::new("ns", "train"), Key::new("ns", "train-2"));
        assert_eq!((series.read(&key).unwrap(), series.last(&key, "u").unwrap()), (vec![], None));
        for percent in 0..3 {
            series.append(&key, "u", &report(percent)).unwrap();
        }
        series.append(&other, "v", &report(9)).unwrap();
        assert_eq!((percents(&series, &key), percents(&series, &other)), (vec![0, 1, 2], vec![9]));
        assert_eq!(series.read(&key).unwrap()[0]["lastUpdatedTime"], "2026-01-02T03:04:05.678Z");
        assert_eq!(series.last(&key, "u").unwrap().unwrap().progress_percentage, Some(2));
        let mut jobs = series.jobs().unwrap();
        jobs.sort();
        assert_eq!(jobs, [(key.clone(), "u".to_owned()), (other.clone(), "v".to_owned())]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.0.join("ns")), mode(&folder.0.join("ns/train.u.jsonl"))), (0o700, 0o600));
        series.remove(&key, "u").unwrap();
        series.remove(&key, "u").unwrap();
        assert_eq!((series.read(&key).unwrap().len(), percents(&series, &other)), (0, vec![9]));
        series.remove(&other, "v").unwrap();
        assert!(!folder.0.join("ns").exists());
    }

    #[test]
    fn a_long_series_is_thinned_and_keeps_its_ends() {
        let folder = Folder::new("thin");
        let series = Series { file_max: 2000, ..Series::new(folder.0.clone()) };
        let key = Key::new("ns", "train");
        for percent in 0..1000 {
            series.append(&key, "u", &report(percent)).unwrap();
            assert!(fs::metadata(folder.0.join("ns/train.u.jsonl")).unwrap().len() <= 2000);
        }
        let kept = percents(&series, &key);
        assert_eq!((kept[0], kept[kept.len() - 1]), (0, 999));
        assert!(kept.len() > 5 && kept.is_sorted(), "{kept:?}");
        assert!(kept[kept.len() / 2] > 300, "the older part is the coarser one, not gone: {kept:?}");
    }

    #[test]
    fn a_torn_line_costs_itself_alone() {
        let folder = Folder::new("torn");
        let series = Series::new(folder.0.clone());
        let key = Key::new("ns", "train");
        series.append(&key, "u", &report(1)).unwrap();
        let path = folder.0.join("ns/train.u.jsonl");
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"progressPerc\n").unwrap();
        series.append(&key, "u", &report(2)).unwrap();
        assert_eq!(percents(&series, &key), [1, 2]);
    }

    #[test]
    fn names_lead_nowhere_else() {
        let series = Series::new(PathBuf::from("/nowhere"));
        for name in ["..", "../x", "a/b", "", ".hidden"] {
            assert_eq!(series.read(&Key::new(name, "x")).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(series.append(&Key::new("ns", name), "u", &report(1)).is_err(), "{name}");
        }
    }
}
