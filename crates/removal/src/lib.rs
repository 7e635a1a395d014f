//! Removal of folders that others filled.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What the owner of a folder needs to remove what is in it.
const OWN: u32 = 0o700;

/// Removes a folder and all in it, also where folders in it may not be written: Go's module cache makes such ones. Links are removed, not
/// followed.
///
/// # Errors
/// As those of [`fs::remove_dir_all`], once all folders that are ours can be written.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open(path);
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

/// Lets their owner write all folders from here on. What cannot be changed is told by the removal.
fn open(path: &Path) {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let Some(facts) = fs::symlink_metadata(&folder).ok().filter(fs::Metadata::is_dir) else { continue };
        let mode = facts.permissions().mode();
        if mode & OWN != OWN {
            let _ = fs::set_permissions(&folder, Permissions::from_mode(mode | OWN));
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_may_not_be_written_are_removed() {
        let folder = tempfile::tempdir().unwrap().keep();
        let (tree, outside) = (folder.join("tree"), folder.join("outside"));
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(tree.join("a/b/x"), "x").unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        let mode = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&outside, 0o555);
        for name in ["a/b/c", "a/b", "a", ""] {
            mode(&tree.join(name), if name == "a/b" { 0 } else { 0o555 });
        }
        // root may remove anything: what makes it removable for others is looked at alone
        open(&tree);
        let found = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([found(&tree), found(&tree.join("a/b")), found(&tree.join("a/b/c"))], [0o755, 0o700, 0o755]);
        assert_eq!(found(&outside), 0o555, "a link is not followed");
        remove_dir_all(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());
        mode(&outside, 0o755);
        remove_dir_all(&folder).unwrap();
        assert_eq!(remove_dir_all(&folder).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
