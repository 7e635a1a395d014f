//! Files of this machine: a path, or all below a folder.

use super::{Content, Listing, Opened, Told, Unfit};
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::Settings;
use nix::fcntl::OFlag;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub struct Files {
    root: PathBuf,
    target: PathBuf,
    filter: Filter,
}

impl Files {
    pub fn new(root: PathBuf, settings: &Settings, target: &Path) -> Self {
        Self { root, target: target.to_owned(), filter: settings.filter() }
    }

    /// # Errors
    /// Nothing is there, or it cannot be read.
    pub async fn list(&self) -> Result<Listing, Fault> {
        let facts = fs::metadata(&self.root).map_err(|e| failed(&self.root, &e))?;
        let (mut all, mut unfit) = (Vec::new(), Vec::new());
        if facts.is_dir() {
            let own = |path: &Path| fs::canonicalize(path).ok();
            // the target may be yet to be made
            let target = std::path::absolute(&self.target).unwrap_or_else(|_| self.target.clone());
            if let (Some(from), Some(to)) = (own(&self.root), target.ancestors().find_map(own))
                && to.starts_with(&from)
            {
                let (root, target) = (self.root.display(), self.target.display());
                return Err(Error::config(format!(
                    "file://{root}: the target {target} lies in it, and would be copied into itself"
                ))
                .into());
            }
            self.walk(&self.root, "", &mut Vec::new(), &mut all, &mut unfit)?;
        } else {
            let name = self.root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            match refusal(&self.root, &facts) {
                None => all.push(entry(&self.root, name, &facts)),
                Some(why) => return Err(Error::config(format!("file://{}: {why}", self.root.display())).into()),
            }
        }
        let mut warnings = Vec::new();
        let wanted: Vec<Entry> = all.iter().filter(|entry| self.filter.wants(&entry.target)).cloned().collect();
        if wanted.is_empty() && !all.is_empty() {
            let why = self.filter.why_nothing(all.iter().map(|entry| entry.target.as_str()));
            warnings.push(format!("file://{}: nothing is left to copy: {why}", self.root.display()));
        }
        let tally = self.filter.tally(all.iter().map(|entry| entry.target.as_str()));
        Ok(Listing { entries: wanted, pin: None, warnings, unfit, tally })
    }

    /// Links are followed; one that leads back to a folder above it is an error.
    fn walk(
        &self,
        folder: &Path,
        prefix: &str,
        above: &mut Vec<(u64, u64)>,
        all: &mut Vec<Entry>,
        unfit: &mut Vec<Unfit>,
    ) -> Result<(), Error> {
        let facts = fs::metadata(folder).map_err(|e| failed(folder, &e))?;
        let id = (facts.dev(), facts.ino());
        if above.contains(&id) {
            return Err(Error::config(format!("{}: a link leads back to a folder above it", folder.display())));
        }
        above.push(id);
        let items = fs::read_dir(folder).map_err(|e| failed(folder, &e))?;
        let mut items = items.collect::<io::Result<Vec<_>>>().map_err(|e| failed(folder, &e))?;
        items.sort_by_key(fs::DirEntry::file_name);
        for item in items {
            let path = item.path();
            let facts = fs::metadata(&path).map_err(|e| failed(&path, &e))?;
            let name = match (refusal(&path, &facts), item.file_name().into_string()) {
                (None, Ok(name)) => name,
                (Some(why), _) => {
                    if self.filter.wants(&format!("{prefix}{}", item.file_name().to_string_lossy())) {
                        unfit.push(Unfit { source: path.display().to_string(), why });
                    }
                    continue;
                }
                (None, Err(_)) => continue,
            };
            let target = format!("{prefix}{name}");
            if facts.is_dir() {
                self.walk(&path, &format!("{target}/"), above, all, unfit)?;
            } else {
                all.push(entry(&path, target, &facts));
            }
        }
        above.pop();
        Ok(())
    }

    /// # Errors
    /// It is gone.
    pub fn describe(&self, known: &Entry) -> Result<Entry, Fault> {
        let path = Path::new(&known.source);
        let facts = fs::metadata(path).map_err(|e| failed(path, &e))?;
        Ok(entry(path, known.target.clone(), &facts))
    }

    /// # Errors
    /// It is gone, or another than it was.
    pub fn open(&self, known: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        let path = Path::new(&known.source);
        let open = || -> io::Result<(File, Metadata)> {
            // what became a pipe meanwhile must not be waited for
            let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
            let facts = file.metadata()?;
            file.seek(SeekFrom::Start(range.map_or(0, |range| range.start)))?;
            Ok((file, facts))
        };
        let (file, facts) = open().map_err(|e| failed(path, &e))?;
        if entry(path, known.target.clone(), &facts) != *known {
            return Err(Fault::Changed(format!("{} changed while it was copied", path.display())));
        }
        Ok(Opened { content: Content::Local(file), told: Told::Nothing, is_packed: false })
    }
}

/// Why something cannot be copied, if it cannot: only files and folders have an end.
fn refusal(path: &Path, facts: &Metadata) -> Option<String> {
    if path.to_str().is_none() {
        return Some("its name is not UTF-8".to_owned());
    }
    let kind = facts.file_type();
    let what = match () {
        () if kind.is_file() || kind.is_dir() => return None,
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Some(format!("it is {what}, neither a file nor a folder"))
}

fn entry(path: &Path, target: String, facts: &Metadata) -> Entry {
    let version = format!("{}.{:09}-{}", facts.mtime(), facts.mtime_nsec(), facts.ino());
    Entry {
        source: path.to_string_lossy().into_owned(),
        target,
        size: Some(facts.len()),
        version: Some(version),
        check: None,
        ranges: true,
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Kind::NotFound,
        io::ErrorKind::PermissionDenied => Kind::NoAccess,
        _ => Kind::Other,
    };
    let shown = path.display();
    let text = match kind {
        Kind::NotFound => {
            let there = path.ancestors().skip(1).find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).display();
            format!("file://{shown}: there is no such file or folder on this machine; look for its name in {there}")
        }
        Kind::NoAccess => format!("file://{shown}: {error}; let the user of this process read it"),
        _ => format!("file://{shown}: {error}"),
    };
    Error::new(kind, text)
}
