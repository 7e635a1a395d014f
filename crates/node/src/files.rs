//! Files that a pod can put something else in the place of: they are opened without waiting for anybody (a FIFO would hang who
//! opens it), never through a link, and read within bounds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const FLAGS: i32 = nix::libc::O_NONBLOCK | nix::libc::O_NOFOLLOW | nix::libc::O_CLOEXEC;

/// Opens a regular file for reading.
///
/// # Errors
/// It cannot be opened, or is something else.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(FLAGS).open(path)?;
    regular(file, path)
}

fn regular(file: File, path: &Path) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(format!("{} is not a regular file", path.display()))),
    }
}

/// The first bytes of a regular file, at most so many.
///
/// # Errors
/// See [`open`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes the path an empty regular file, whatever it is now.
///
/// # Errors
/// It is a directory, or the disk does not let us.
pub fn make_empty(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o666).custom_flags(FLAGS);
    let opened = options.open(path).and_then(|file| regular(file, path));
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            // what is not there is not in the way: then the first error says more
            fs::remove_file(path).map_err(|gone| if gone.kind() == io::ErrorKind::NotFound { error } else { gone })?;
            options.create_new(true).open(path)?
        }
    };
    file.set_len(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let tmp = tempfile::tempdir().unwrap();
        let [fifo, link, file] = ["fifo", "link", "file"].map(|name| tmp.path().join(name));
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read(&file, 3).unwrap(), b"tex");
        for path in [&fifo, &link] {
            read(path, 3).unwrap_err();
            make_empty(path).unwrap();
            assert_eq!(read(path, 3).unwrap(), b"");
        }
        assert_eq!(fs::read(&file).unwrap(), b"text", "not through the link");
        make_empty(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"");
    }
}
