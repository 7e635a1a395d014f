//! What is remembered here of each machine: on which hosts something of it may be. It is written before a host is touched, and removed
//! when all of them have said that nothing is left, so a machine without a record was never begun.

use managed::provider::{Failure, Fate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A host of a pool; never its password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub pool: String,
    /// An address, or a name of the OpenSSH configuration.
    pub name: String,
    pub user: Option<String>,
    pub identity_file: Option<PathBuf>,
}

impl Place {
    /// What the provider calls the machine there.
    pub fn id(&self) -> String {
        format!("{}/{}", self.pool, self.host())
    }

    /// What ssh calls it.
    pub fn host(&self) -> String {
        self.user.as_ref().map_or_else(|| self.name.clone(), |user| format!("{user}@{}", self.name))
    }

    /// Whether it is the same host, however it is reached now.
    pub fn is(&self, other: &Self) -> bool {
        (&self.name, &self.user) == (&other.name, &other.user)
    }
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub token: String,
    pub node: String,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeMap<String, String>,
    /// Where something of it may be.
    pub places: Vec<Place>,
    /// Where it is, or is being made.
    pub current: Option<Place>,
    #[serde(default)]
    pub address: String,
    #[serde(default)]
    pub home: String,
}

impl Record {
    pub fn forget(&mut self, place: &Place) {
        self.places.retain(|one| !one.is(place));
        if self.current.as_ref().is_some_and(|one| one.is(place)) {
            self.current = None;
        }
    }
}

/// The records, a file each.
#[derive(Clone, Debug)]
pub struct Records {
    folder: PathBuf,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("cannot {what} {}", path.display());
    move |error| Failure::new(Fate::Retry, format!("{what}: {error}"))
}

impl Records {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Makes the folder, for its owner alone.
    pub fn create_folder(&self) -> Result<(), Failure> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(failed("make", &self.folder))
    }

    fn path(&self, token: &str) -> PathBuf {
        let name: String = token.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        self.folder.join(format!("{name}.json"))
    }

    pub fn read(&self, token: &str) -> Result<Option<Record>, Failure> {
        read(&self.path(token))
    }

    pub fn all(&self) -> Result<Vec<Record>, Failure> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.folder))?,
        };
        let paths =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
        paths.map(|path| read(&path)).filter_map(Result::transpose).collect()
    }

    /// Durable once it returns. A record of no place is removed.
    pub fn write(&self, record: &Record) -> Result<(), Failure> {
        let path = self.path(&record.token);
        let fresh = path.with_extension("new");
        let written = || {
            if record.places.is_empty() {
                return match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => std::fs::File::open(&self.folder)?.sync_all(),
                };
            }
            let text = serde_json::to_vec(record).map_err(io::Error::other)?;
            let mut file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)?;
            std::fs::File::open(&self.folder)?.sync_all()
        };
        written().map_err(failed("write", &path))
    }
}

fn read(path: &Path) -> Result<Option<Record>, Failure> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(failed("read", path))?,
    };
    let record = serde_json::from_slice(&text);
    record.map(Some).map_err(|error| Failure::new(Fate::GiveUp, format!("{} cannot be read: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_lives_as_long_as_it_has_places() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("ssh"));
        assert_eq!(records.all().unwrap(), []);
        records.create_folder().unwrap();
        let place =
            |pool: &str| Place { pool: pool.into(), name: "h".into(), user: Some("u".into()), identity_file: None };
        let mut record = Record {
            token: "t-1".into(),
            node: "n".into(),
            labels: BTreeMap::new(),
            taints: BTreeMap::new(),
            places: vec![place("p")],
            current: Some(place("p")),
            address: String::new(),
            home: String::new(),
        };
        assert_eq!(place("p").id(), "p/u@h");
        records.write(&record).unwrap();
        assert_eq!((records.read("t-1").unwrap(), records.all().unwrap().len()), (Some(record.clone()), 1));
        record.forget(&place("another pool now"));
        records.write(&record).unwrap();
        records.write(&record).unwrap();
        assert_eq!((records.read("t-1").unwrap(), record.current), (None, None));
    }
}
