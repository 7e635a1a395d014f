//! The source files of a submission, and when they change.

use crate::code::{Code, Start};
use crate::spec::Spec;
use client::ClientError;
use client::codes::ErrorCode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time between two looks at the files. They must also be unchanged for that long, because editors write in steps.
const LOOK: Duration = Duration::from_millis(150);
/// More files and folders than this are not watched.
const FILES_MAX: usize = 2000;
const FOLDERS_MAX: usize = 300;
/// Endings of source files. Results, which jobs write themselves, have others.
const SOURCES: [&str; 10] = ["py", "pyi", "pyx", "sh", "bash", "toml", "yaml", "yml", "cfg", "ini"];
/// Folders without the user's code.
const IGNORED: [&str; 4] = ["__pycache__", "node_modules", ".venv", "venv"];

/// Files, each with its last change.
#[derive(Debug)]
pub struct Sources {
    roots: Vec<PathBuf>,
    /// Whether all folders below count; else only Python's packages, because the script may be anywhere.
    whole: bool,
    known: BTreeMap<PathBuf, SystemTime>,
}

impl Sources {
    /// The script and the sources in `--workdir`; without that flag, the sources beside the script and in packages there.
    pub fn of(spec: &Spec) -> Result<Self, ClientError> {
        // a script that is missing for a moment (editors replace files) is still watched
        let code = Code::find(spec);
        let script = match &code {
            Ok(code) if code.start != Start::Command => Some(code.script.clone()),
            Ok(_) => None,
            Err(_) => std::path::absolute(&spec.script).ok(),
        };
        let folder = code.ok().and_then(|code| code.folder);
        let whole = folder.is_some();
        let beside = || script.as_deref().and_then(Path::parent).map(Path::to_owned);
        let mut roots: Vec<PathBuf> = folder.or_else(beside).into_iter().collect();
        roots.extend(script);
        let mut files = Self { roots, whole, known: BTreeMap::new() };
        files.known = files.look();
        if files.known.is_empty() {
            return Err(ClientError::Usage(
                ErrorCode::ScriptMissing,
                "--watch: there is no file to watch; name a script, or --workdir DIR".to_owned(),
            ));
        }
        Ok(files)
    }

    fn look(&self) -> BTreeMap<PathBuf, SystemTime> {
        let mut found = BTreeMap::new();
        let mut waiting = Vec::new();
        for root in &self.roots {
            match std::fs::metadata(root) {
                Ok(metadata) if metadata.is_dir() => waiting.push(root.clone()),
                // the script counts, whatever its name
                Ok(metadata) => _ = found.insert(root.clone(), written(&metadata)),
                Err(_) => {}
            }
        }
        let mut folders = 0;
        while let Some(folder) = waiting.pop().filter(|_| folders < FOLDERS_MAX) {
            folders += 1;
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    let theirs = IGNORED.contains(&name.as_ref()) || name.starts_with('.');
                    let code =
                        if self.whole { !path.join("pyvenv.cfg").exists() } else { path.join("__init__.py").exists() };
                    if !theirs && code {
                        waiting.push(path);
                    }
                } else if found.len() < FILES_MAX
                    && path.extension().is_some_and(|extension| SOURCES.iter().any(|source| extension == *source))
                {
                    found.insert(path, written(&metadata));
                }
            }
        }
        found
    }

    /// Waits until a file is added, removed or changed; returns once nothing changes any more.
    pub async fn changed(&self) -> PathBuf {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut now = self.look();
            let Some(file) = difference(&self.known, &now) else { continue };
            loop {
                tokio::time::sleep(LOOK).await;
                let next = self.look();
                if next == now {
                    return file;
                }
                now = next;
            }
        }
    }

    /// `3 files`.
    pub fn title(&self) -> String {
        if self.known.len() == 1 { "1 file".to_owned() } else { format!("{} files", self.known.len()) }
    }
}

fn written(metadata: &std::fs::Metadata) -> SystemTime {
    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The first file that differs between two looks.
fn difference(before: &BTreeMap<PathBuf, SystemTime>, now: &BTreeMap<PathBuf, SystemTime>) -> Option<PathBuf> {
    let changed = now.iter().find(|(path, time)| before.get(*path) != Some(*time));
    let gone = || before.iter().find(|(path, _)| !now.contains_key(*path));
    changed.or_else(gone).map(|(path, _)| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_watched_and_results_are_not() {
        let root = std::env::temp_dir().join(format!("trainyard-watch-{}", std::process::id()));
        for (file, _) in
            [("train.py", 1), ("pkg/net.py", 1), ("out.json", 0), (".git/x.py", 0), ("e/pyvenv.cfg", 0), ("e/x.py", 0)]
        {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let mut files = Sources { roots: vec![root.clone()], whole: false, known: BTreeMap::new() };
        assert_eq!(files.look().len(), 1, "no packages");
        files.whole = true;
        let found = files.look();
        let names: Vec<&Path> = found.keys().map(|path| path.strip_prefix(&root).unwrap()).collect();
        assert_eq!(names, [Path::new("pkg/net.py"), Path::new("train.py")]);
        let mut later = found.clone();
        assert_eq!(difference(&found, &later), None);
        later.insert(root.join("new.py"), SystemTime::UNIX_EPOCH);
        assert_eq!(difference(&found, &later), Some(root.join("new.py")));
        assert_eq!(difference(&later, &found), Some(root.join("new.py")));
        std::fs::remove_dir_all(root).unwrap();
    }
}
