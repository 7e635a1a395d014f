//! Remembers `run --warm` for a folder: reads and writes the file of the home that lists the folders whose runs start warm, one per line.

use crate::Tell;
use crate::launcher::Launcher;
use crate::runtime::Runtime;
use crate::spec::Spec;
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use nix::fcntl::{Flock, FlockArg};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The folders of one home whose runs start warm.
#[derive(Debug)]
struct Folders {
    file: PathBuf,
}

impl Folders {
    fn of(home: &Path) -> Self {
        Self { file: home.join("warm-folders") }
    }

    fn has(&self, folder: &Path) -> bool {
        std::fs::read_to_string(&self.file).is_ok_and(|text| parse(&text).contains(&line(folder)))
    }

    /// Adds or removes a folder. Returns whether that changed anything.
    fn set(&self, folder: &Path, warm: bool) -> Result<bool, ClientError> {
        let failed = |source| ClientError::Io { doing: "write", path: self.file.clone(), source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.file);
        // two runs may do this at once
        let locked = Flock::lock(file.map_err(failed)?, FlockArg::LockExclusive);
        let mut file: Flock<File> = locked.map_err(|(_, error)| failed(error.into()))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let mut folders = parse(&text);
        let changed = if warm { folders.insert(line(folder)) } else { folders.remove(&line(folder)) };
        if changed {
            let text: String = folders.iter().map(|folder| format!("{folder}\n")).collect();
            file.rewind()
                .and_then(|()| file.set_len(0))
                .and_then(|()| file.write_all(text.as_bytes()))
                .map_err(failed)?;
        }
        Ok(changed)
    }
}

fn parse(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A folder's line in the file; line ends in its name are escaped.
fn line(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.to_string_lossy().replace('\\', r"\\").replace('\n', r"\n")
}

/// Whether the ranks are forked from a process that has imported torch: as this flag says, or as the folder's last flag said.
///
/// Errors: `Usage` if it is requested but impossible.
pub(crate) fn starts(
    cluster: &Cluster,
    spec: &Spec,
    folder: &Path,
    runtime: &Runtime,
    tell: Tell<'_>,
) -> Result<bool, ClientError> {
    let asked = spec.warm == Some(true);
    let refused = |why: String| match asked {
        true => Err(ClientError::Usage(ErrorCode::FlagOfOtherPlace, format!("--warm works {why}"))),
        false => Ok(false),
    };
    let Some(home) = &cluster.home else {
        return refused(format!("on this machine only, and {} is a cluster", cluster.server));
    };
    let framework = runtime.framework();
    if Launcher::of(framework) != Launcher::Torchrun {
        return refused(format!("with torch only, and runtime {} is for {framework}", runtime.name()));
    }
    let folders = Folders::of(home);
    let Some(warm) = spec.warm else { return Ok(folders.has(folder)) };
    if folders.set(folder, warm)? && warm {
        tell(&format!("runs of {} start warm from now on; --no-warm ends that", folder.display()));
    }
    Ok(warm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_remembered_until_they_are_forgotten() {
        let home = std::env::temp_dir().join(format!("trainyard-warm-{}", std::process::id()));
        std::fs::create_dir_all(&home).unwrap();
        let folders = Folders::of(&home);
        let (one, two) = (Path::new("/nowhere/a b"), Path::new("/nowhere/two\nlines"));
        assert!(!folders.has(one));
        assert!(folders.set(one, true).unwrap());
        assert!(folders.set(two, true).unwrap());
        assert!(!folders.set(one, true).unwrap(), "it was there");
        assert!(folders.has(one) && folders.has(two) && !folders.has(Path::new("/nowhere")));
        assert!(folders.set(one, false).unwrap());
        assert!(!folders.has(one) && folders.has(two));
        std::fs::remove_dir_all(home).unwrap();
    }
}
