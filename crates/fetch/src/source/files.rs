//! Files of this machine: a path, or all below a folder.

use super::{Content, Listing, Opened, Told};
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::Settings;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
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
        let mut all = Vec::new();
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
            self.walk(&self.root, "", &mut Vec::new(), &mut all)?;
        } else {
            let name = self.root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            all.push(entry(&self.root, name, &facts));
        }
        let mut warnings = Vec::new();
        let wanted: Vec<Entry> = all.iter().filter(|entry| self.filter.wants(&entry.target)).cloned().collect();
        if wanted.is_empty() && !all.is_empty() {
            let why = self.filter.why_nothing(all.iter().map(|entry| entry.target.as_str()));
            warnings.push(format!("file://{}: nothing is left to copy: {why}", self.root.display()));
        }
        Ok(Listing { entries: wanted, pin: None, warnings })
    }

    /// Links are followed; one that leads back to a folder above it is an error.
    fn walk(
        &self,
        folder: &Path,
        prefix: &str,
        above: &mut Vec<(u64, u64)>,
        all: &mut Vec<Entry>,
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
            let name = item.file_name().into_string();
            let name = name.map_err(|_| Error::config(format!("{}: the name is not UTF-8", path.display())))?;
            let facts = fs::metadata(&path).map_err(|e| failed(&path, &e))?;
            let target = format!("{prefix}{name}");
            if facts.is_dir() {
                self.walk(&path, &format!("{target}/"), above, all)?;
            } else if facts.is_file() {
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
            let mut file = File::open(path)?;
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
