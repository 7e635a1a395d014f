//! Files for a machine whose home directory is a folder of this computer: copied.

use crate::sent::{LISTED_MAX, Listed, file_of, listed, text};
use crate::{Entry, Store, Tree, named};
use api::sky::{Cluster, ClusterNode, Place};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether a machine's home directory is a folder of this computer: those of a control plane elsewhere are somewhere else, too.
pub fn is_here(cluster: &Cluster, node: &ClusterNode) -> bool {
    let is_local = cluster.at().is_some_and(|one| one.place() == Place::Local);
    let by_pods = std::env::var_os("TRAINYARD_SKY_BY_PODS").is_some();
    is_local && !by_pods && Path::new(&node.home).is_dir()
}

/// Puts a tree to its place on the machine with this home: the folder, or the one file, is called so.
///
/// # Errors
/// With the path of what cannot be read or written.
pub fn fill(store: &Store, tree: &Tree, home: &Path, place: &str) -> io::Result<()> {
    let to = home.join(place.strip_prefix('~').unwrap_or(place).trim_start_matches('/'));
    let kept = home.join(file_of(place));
    let sent = kept_list(&kept);
    let at = |path: &Path| if path.as_os_str().is_empty() { to.clone() } else { to.join(path) };
    for (path, was) in tree.leftovers(&sent, |path| found(&at(path))) {
        // a folder in which something else is stays
        let _ = if *was == Entry::Folder { fs::remove_dir(at(path)) } else { fs::remove_file(at(path)) };
    }
    let folder = kept.parent().unwrap_or(home);
    let fresh = kept.with_extension("new");
    let noted = || {
        fs::create_dir_all(folder)?;
        clear(&fresh)?;
        fs::write(&fresh, text(&tree.below()))?;
        fs::rename(&fresh, &kept)
    };
    noted().map_err(|error| named(error, &kept))?;
    copy(store, tree, &to)
}

/// The list in a file; an empty one where there is none, or something else has taken its place.
fn kept_list(file: &Path) -> Listed {
    let mut kept = Vec::new();
    let is_file = file.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let opened = is_file.then(|| fs::File::open(file));
    let read = opened.and_then(Result::ok).map(|opened| opened.take(LISTED_MAX).read_to_end(&mut kept));
    if matches!(read, Some(Ok(_))) { listed(&kept) } else { Listed::new() }
}

/// What is there.
fn found(path: &Path) -> Option<Entry> {
    let meta = path.symlink_metadata().ok()?;
    match meta.file_type() {
        kind if kind.is_dir() => Some(Entry::Folder),
        kind if kind.is_symlink() => fs::read_link(path).ok().map(Entry::Link),
        _ => Some(Entry::of_file(&meta)),
    }
}

fn copy(store: &Store, tree: &Tree, to: &Path) -> io::Result<()> {
    let folder = if tree.file.is_some() { to.parent().unwrap_or(to) } else { to };
    fs::create_dir_all(folder).map_err(|error| named(error, folder))?;
    for (path, entry) in &tree.entries {
        let target = if tree.file.is_some() { to.to_owned() } else { to.join(path) };
        let done = match entry {
            Entry::Folder => fs::create_dir_all(&target),
            Entry::Link(points) => link(points, &target),
            Entry::File { .. } => file(store, tree, path, entry, &target),
        };
        done.map_err(|error| named(error, &target))?;
    }
    Ok(())
}

fn link(points: &Path, target: &Path) -> io::Result<()> {
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

/// Writes a file by way of a new one beside it: a reader of the old one goes on with it. It has the time of change that the client's had
/// before it was read, so what is changed meanwhile is sent the next time.
fn file(store: &Store, tree: &Tree, path: &Path, wanted: &Entry, target: &Path) -> io::Result<()> {
    if target.symlink_metadata().is_ok_and(|held| held.is_file() && Entry::of_file(&held) == *wanted) {
        return Ok(());
    }
    let Entry::File { changed: (seconds, nanoseconds), mode, .. } = *wanted else { return Ok(()) };
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let fresh = target.with_file_name(format!(".{name}.sky-sync"));
    let copied = || {
        clear(&fresh)?;
        io::copy(&mut tree.file(store, path), &mut fs::File::create_new(&fresh)?)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
        let changed = TimeSpec::new(seconds, nanoseconds);
        utimensat(nix::fcntl::AT_FDCWD, &fresh, &changed, &changed, UtimensatFlags::FollowSymlink)?;
        fs::rename(&fresh, target)
    };
    copied().inspect_err(|_| drop(fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn a_place_becomes_as_it_was_listed() {
        let (from, to, kept) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::new(kept.path(), "default");
        let source = |name: &str| from.path().join(name);
        for name in ["gone", "stays"] {
            fs::write(source(name), "abc").unwrap();
        }
        fs::create_dir(source("turns")).unwrap();
        std::os::unix::fs::symlink(".", source("ring")).unwrap();
        let send = || {
            let tree = crate::send::kept(&Source::list(from.path(), &mut Vec::new()).unwrap(), &store);
            fill(&store, &tree, to.path(), "~/w").unwrap();
        };
        let there = |name: &str| to.path().join("w").join(name);
        send();
        fs::write(there("of a job"), "result").unwrap();
        assert_eq!(fs::read(there("stays")).unwrap(), b"abc");
        assert_eq!(fs::read_link(there("ring")).unwrap(), Path::new("."));
        fs::remove_file(source("gone")).unwrap();
        fs::write(source("stays"), "abcdef").unwrap();
        fs::remove_dir(source("turns")).unwrap();
        fs::write(source("turns"), "a file").unwrap();
        send();
        assert_eq!(fs::read(there("stays")).unwrap(), b"abcdef");
        assert!(!there("gone").exists() && there("turns").is_file() && there("of a job").is_file());
        assert_eq!(fs::read_dir(to.path().join("w")).unwrap().count(), 4, "nothing is left beside them");
    }
}
