//! Puts the working directory and the local files of a task into the home directories of a cluster's machines.
//!
//! Machines of this computer have their home directories here: files are copied where size or time of change differ, and nothing is
//! removed. `.skyignore` at the top of a folder, else `.gitignore`, says by patterns what stays behind.

use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What was left out, and why: said on stderr.
pub(super) type Skipped = Vec<String>;

/// Patterns of a `.skyignore` or `.gitignore`.
struct Ignored(Vec<(regex::Regex, bool, bool)>);

impl Ignored {
    fn of(folder: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let text = read(".skyignore").or_else(|| read(".gitignore")).unwrap_or_default();
        Self(text.lines().filter_map(pattern).collect())
    }

    fn has(&self, path: &str, is_folder: bool) -> bool {
        let mut ignored = false;
        for (pattern, of_folders, negated) in &self.0 {
            if (is_folder || !of_folders) && pattern.is_match(path) {
                ignored = !negated;
            }
        }
        ignored
    }
}

/// A line as a pattern, whether it is for folders alone, and whether it takes back what earlier lines say (gitignore(5)).
fn pattern(line: &str) -> Option<(regex::Regex, bool, bool)> {
    let line = line.trim_end();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (line, negated) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
    let (line, of_folders) = line.strip_suffix('/').map_or((line, false), |rest| (rest, true));
    let anchored = line.contains('/');
    let mut text = if anchored { "^".to_owned() } else { "(^|/)".to_owned() };
    let mut chars = line.trim_start_matches('/').chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                text.push_str(if chars.next_if_eq(&'/').is_some() { "(.*/)?" } else { ".*" });
            }
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            c => text.push_str(&regex::escape(&c.to_string())),
        }
    }
    text.push('$');
    Some((regex::Regex::new(&text).ok()?, of_folders, negated))
}

/// Copies a file, or what is in a folder, to `to`.
pub(super) fn copy(from: &Path, to: &Path, skipped: &mut Skipped) -> io::Result<()> {
    let named = |error: io::Error, path: &Path| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let meta = fs::metadata(from).map_err(|error| named(error, from))?;
    if !meta.is_dir() {
        let folder = to.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(|error| named(error, folder))?;
        return file(from, &meta, to).map_err(|error| named(error, to));
    }
    let ignored = Ignored::of(from);
    fs::create_dir_all(to).map_err(|error| named(error, to))?;
    let mut folders: Vec<PathBuf> = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let here = from.join(&below);
        for entry in fs::read_dir(&here).map_err(|error| named(error, &here))? {
            let name = entry?.file_name();
            let below = below.join(name);
            let (source, target) = (from.join(&below), to.join(&below));
            let meta = match source.symlink_metadata() {
                // gone meanwhile
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                meta => meta.map_err(|error| named(error, &source))?,
            };
            let kind = meta.file_type();
            if ignored.has(&below.to_string_lossy(), kind.is_dir()) {
                continue;
            }
            let done = if kind.is_dir() {
                folders.push(below);
                fs::create_dir_all(&target)
            } else if kind.is_symlink() {
                link(&source, &target)
            } else if kind.is_file() {
                file(&source, &meta, &target)
            } else {
                let what = if kind.is_socket() {
                    "a socket"
                } else if kind.is_fifo() {
                    "a pipe"
                } else {
                    "a device"
                };
                skipped.push(format!("{} is {what}: left out", source.display()));
                Ok(())
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !source.exists() => {}
                done => done.map_err(|error| named(error, &target))?,
            }
        }
    }
    Ok(())
}

fn link(source: &Path, target: &Path) -> io::Result<()> {
    let points = fs::read_link(source)?;
    if fs::read_link(target).is_ok_and(|held| held == points) {
        return Ok(());
    }
    clear(target)?;
    std::os::unix::fs::symlink(points, target)
}

fn clear(target: &Path) -> io::Result<()> {
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a file by way of a new one beside it: who reads the old one goes on with it.
fn file(source: &Path, meta: &Metadata, target: &Path) -> io::Result<()> {
    let same = |held: &Metadata| {
        (held.len(), held.mtime(), held.mtime_nsec(), held.mode())
            == (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.mode())
    };
    if target.symlink_metadata().is_ok_and(|held| held.is_file() && same(&held)) {
        return Ok(());
    }
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let fresh = target.with_file_name(format!(".{name}.sky-sync"));
    let copied = || {
        clear(&fresh)?;
        fs::copy(source, &fresh)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
        let at = |seconds, nanoseconds| TimeSpec::new(seconds, nanoseconds);
        let changed = at(meta.mtime(), meta.mtime_nsec());
        utimensat(nix::fcntl::AT_FDCWD, &fresh, &changed, &changed, UtimensatFlags::FollowSymlink)?;
        fs::rename(&fresh, target)
    };
    copied().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_gits() {
        let of = |lines: &str| Ignored(lines.lines().filter_map(pattern).collect());
        let ignored = of("# no\n*.pyc\nbuild/\n/top\na/**/z\n!keep.pyc\n");
        for (path, is_folder, is) in [
            ("x.pyc", false, true),
            ("a/x.pyc", false, true),
            ("keep.pyc", false, false),
            ("build", true, true),
            ("build", false, false),
            ("top", false, true),
            ("a/top", false, false),
            ("a/b/c/z", false, true),
            ("a/z", false, true),
            ("train.py", false, false),
        ] {
            assert_eq!(ignored.has(path, is_folder), is, "{path}");
        }
    }
}
