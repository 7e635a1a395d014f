//! The local records of machines: one file each, in a folder for its owner alone. A record is durable before any action begins.

use crate::access::Identity;
use managed::provider::{Failure, Fate, Request, Seen, State};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Which machine a record is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Who {
    pub token: String,
    pub node: String,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeMap<String, String>,
    #[serde(default)]
    pub address: String,
    #[serde(default)]
    pub home: String,
}

impl Who {
    pub fn of(request: &Request) -> Self {
        Self {
            token: request.token.clone(),
            node: request.node.clone(),
            labels: request.labels.clone(),
            taints: request.taints.clone(),
            address: String::new(),
            home: String::new(),
        }
    }

    pub fn identity(&self) -> Identity {
        let (token, node) = (self.token.clone(), self.node.clone());
        Identity { token, node, labels: self.labels.clone(), taints: self.taints.clone() }
    }

    /// The machine, by the provider's name for it.
    pub fn seen(&self, id: String, state: State) -> Seen {
        Seen {
            token: self.token.clone(),
            id,
            state,
            node: self.node.clone(),
            address: self.address.clone(),
            home: self.home.clone(),
        }
    }
}

/// A machine's record.
pub trait Kept: Serialize + DeserializeOwned + Send + Sync + 'static {
    fn who(&self) -> &Who;

    fn who_mut(&mut self) -> &mut Who;

    /// Whether nothing of the machine is left anywhere: then its record can go.
    fn is_over(&self) -> bool;
}

/// The records.
#[derive(Clone, Debug)]
pub struct Records<R> {
    folder: PathBuf,
    of: PhantomData<fn() -> R>,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("cannot {what} {}", path.display());
    move |error| Failure::new(Fate::Retry, format!("{what}: {error}"))
}

impl<R: Kept> Records<R> {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, of: PhantomData }
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

    pub fn read(&self, token: &str) -> Result<Option<R>, Failure> {
        read(&self.path(token))
    }

    pub fn all(&self) -> Result<Vec<R>, Failure> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.folder))?,
        };
        let paths =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "json"));
        paths.map(|path| read(&path)).filter_map(Result::transpose).collect()
    }

    /// Durable once it returns. Removes the file of a record that is over.
    pub fn write(&self, record: &R) -> Result<(), Failure> {
        let path = self.path(&record.who().token);
        let fresh = path.with_extension("new");
        let written = || {
            if record.is_over() {
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

fn read<R: Kept>(path: &Path) -> Result<Option<R>, Failure> {
    let text = match crate::answer::record(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(failed("read", path))?,
    };
    let record = serde_json::from_slice(&text);
    record.map(Some).map_err(|error| Failure::new(Fate::GiveUp, format!("{} cannot be read: {error}", path.display())))
}
