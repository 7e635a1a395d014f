//! Files of a volume are replaced as the kubelet replaces them: into a new directory that takes the place of the old one by the switch
//! of one link (`..data`), so that a reader sees all of the old or all of the new.

use super::contents::Files;
use super::safe;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Replaces the contents of `dir` by these files, all at once; does nothing if they are there already.
pub fn write_atomically(dir: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let data = dir.join("..data");
    let old = fs::read_link(&data).ok();
    if old.is_some() && is_there(&data, files)? {
        return Ok(());
    }
    let now = clock::now();
    let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    let new = dir.join(&name);
    fs::create_dir(&new)?;
    for (path, (bytes, mode)) in files {
        let path = new.join(safe(path)?);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
    }
    let switch = dir.join("..data_tmp");
    let _ = fs::remove_file(&switch);
    symlink(&name, &switch)?;
    fs::rename(&switch, &data)?;
    let tops: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let link = dir.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(top), &link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let known = file_name.to_str().is_some_and(|n| n.starts_with("..") || tops.contains(n));
        if !known {
            fs::remove_file(entry.path())?;
        }
    }
    if let Some(old) = old {
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(())
}

fn is_there(data: &Path, files: &Files) -> io::Result<bool> {
    fn count(dir: &Path) -> io::Result<usize> {
        fs::read_dir(dir)?.try_fold(0, |sum, entry| {
            let entry = entry?;
            Ok(sum + if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 })
        })
    }
    let same = |(path, (bytes, _)): (&String, &(Vec<u8>, u32))| {
        crate::files::read(&data.join(path), u64::MAX).is_ok_and(|b| b == *bytes)
    };
    Ok(files.iter().all(same) && count(data).unwrap_or(usize::MAX) == files.len())
}
