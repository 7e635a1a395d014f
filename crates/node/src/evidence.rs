//! What stays of a pod whose object is gone: the object as it was last, its journal, and its logs. Somebody else says
//! where it goes and how long it stays; without anybody, the pod's directory is removed with all in it.

use crate::poddir::PodDir;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Says where the evidence of pods goes.
pub trait Keep: Debug + Send + Sync {
    /// A path in an existing folder of the same file system, to which the pod's directory is moved; `None` where nothing
    /// of the pod is wanted.
    fn place(&self, pod: &Pod) -> Option<PathBuf>;

    /// A pod's directory was moved there.
    fn moved(&self);
}

/// Takes a pod's directory away: moves what is wanted of it, removes the rest. Nothing of the pod runs any more.
///
/// # Guarantees
/// Whenever the machine stops in between, the directory is either where it was, and this may be done again, or where it
/// was to go, with everything that stays and nothing else.
pub fn retire(dir: &PodDir, pod: &Pod, last: &Value, keep: Option<&dyn Keep>) -> io::Result<()> {
    let place = keep.filter(|_| dir.path().exists()).and_then(|keep| Some((keep, keep.place(pod)?)));
    let Some((keep, place)) = place else { return dir.remove() };
    let last = serde_json::to_vec(last)?;
    if let Err(error) = dir.write_whole(&dir.pod(), &last) {
        // Without the last status, the object as it was at the start has to do: the disk may be full.
        tracing::warn!(dir = %dir.path().display(), %error, "cannot write a pod's last state");
    }
    strip(dir)?;
    match fs::rename(dir.path(), &place) {
        // Of the same pod, from a start that was cut short.
        Err(e) if matches!(e.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
            fs::remove_dir_all(&place)?;
            fs::rename(dir.path(), &place)?;
        }
        other => other?,
    }
    keep.moved();
    Ok(())
}

/// Removes everything but the pod, the journal and the logs: volumes hold secrets and, often, most of the bytes.
fn strip(dir: &PodDir) -> io::Result<()> {
    let containers = dir.containers();
    remove_all_but(dir.path(), |path| path == dir.pod() || path == dir.journal() || path == containers)?;
    let containers = match fs::read_dir(&containers) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for container in containers {
        remove_all_but(&container?.path(), is_log)?;
    }
    Ok(())
}

/// Whether a file is `<attempt>.log` or `<attempt>.log.<n>`.
fn is_log(path: &Path) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name.split_once(".log") {
        Some((attempt, "")) => is_number(attempt),
        Some((attempt, rest)) => is_number(attempt) && rest.strip_prefix('.').is_some_and(is_number),
        None => false,
    }
}

fn remove_all_but(folder: &Path, stays: impl Fn(&Path) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if stays(&path) {
            continue;
        }
        let removed = if entry.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Into(PathBuf, AtomicUsize);

    impl Keep for Into {
        fn place(&self, pod: &Pod) -> Option<PathBuf> {
            pod.metadata.name.as_ref().map(|name| self.0.join(name))
        }

        fn moved(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn files(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
        found.sort();
        found
    }

    fn filled(data: &Path) -> PodDir {
        let dir = PodDir::of(data, "u");
        dir.create().unwrap();
        fs::create_dir_all(dir.volume("token")).unwrap();
        fs::create_dir_all(dir.work("node")).unwrap();
        for path in [dir.pod(), dir.journal(), dir.launch(), dir.hosts(), dir.log("node", 0), dir.log("node", 12)] {
            fs::write(path, "{}").unwrap();
        }
        fs::write(dir.volume("token").join("token"), "secret").unwrap();
        fs::write(dir.work("node").join("0.log"), "the container's own").unwrap();
        fs::write(dir.container("node").join("0.log.3"), "x").unwrap();
        fs::write(dir.termination_log("node"), "x").unwrap();
        dir
    }

    #[test]
    fn logs_journal_and_the_last_state_stay_and_nothing_else() {
        let tmp = tempfile::tempdir().unwrap();
        let to = tmp.path().join("ended");
        fs::create_dir(&to).unwrap();
        let keep = Into(to.clone(), AtomicUsize::new(0));
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        // the second time over what the first left
        for _ in 0..2 {
            let dir = filled(tmp.path());
            retire(&dir, &pod, &json!({"last": true}), Some(&keep)).unwrap();
            assert!(!dir.path().exists());
            assert_eq!(files(&to.join("p")), ["0.log", "0.log.3", "12.log", "journal.jsonl", "pod.json"]);
            assert_eq!(fs::read_to_string(to.join("p/pod.json")).unwrap(), "{\"last\":true}");
        }
        assert_eq!(keep.1.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_nobody_wants_is_removed() {
        let tmp = tempfile::tempdir().unwrap();
        let keep = Into(tmp.path().join("ended"), AtomicUsize::new(0));
        for keep in [None, Some(&keep as &dyn Keep)] {
            let dir = filled(tmp.path());
            retire(&dir, &Pod::default(), &json!({}), keep).unwrap();
            assert!(!dir.path().exists());
            retire(&dir, &Pod::default(), &json!({}), keep).unwrap();
        }
    }
}
