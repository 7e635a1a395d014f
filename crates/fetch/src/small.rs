//! Small files whose paths others give: tokens, keys, settings. A pipe may be one of them (a shell's `<(…)`), a device may not: it has
//! no end.

use crate::plan::progress::binary;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const MOST: usize = 1 << 20;
/// How long a pipe may keep its reader waiting.
const LONGEST: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// Opens a file of our own, which must be a regular one, and is never waited for.
///
/// # Errors
/// It cannot be opened, or is something else: a link, a device, a pipe.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refused = || io::Error::other("it is no regular file; remove it, then run this again");
    let file = match options.custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits()).open(path) {
        // a link; a pipe that nobody reads
        Err(e) if matches!(e.raw_os_error().map(Errno::from_raw), Some(Errno::ELOOP | Errno::ENXIO)) => {
            return Err(refused());
        }
        file => file?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused()) }
}

/// All of a file of our own.
///
/// # Errors
/// It cannot be read, is something else, or is larger than such a file is.
pub fn read_own(path: &Path, most: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let file = open_own(path, OpenOptions::new().read(true))?;
    let facts = file.metadata()?;
    let mut all = Vec::new();
    if facts.len() <= most {
        all.reserve(usize::try_from(facts.len()).unwrap_or_default());
        file.take(most.saturating_add(1)).read_to_end(&mut all)?;
    }
    if facts.len().max(all.len() as u64) > most {
        let most = binary(usize::try_from(most).unwrap_or(usize::MAX));
        return Err(io::Error::other(format!("it is larger than {most}; remove it, then run this again")));
    }
    Ok((all, facts))
}

/// # Errors
/// It cannot be read, or is none that has an end soon.
pub fn read(path: &Path) -> io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !std::os::unix::fs::FileTypeExt::is_fifo(&kind) {
        return Err(io::Error::other("it is neither a file nor a pipe"));
    }
    let (start, mut all, mut piece) = (Instant::now(), Vec::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => all.extend_from_slice(&piece[..count]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if all.len() > MOST {
            return Err(io::Error::other("it is larger than 1 MiB, which is the most that is read of such a file"));
        }
        if start.elapsed() > LONGEST {
            return Err(io::Error::other(format!("it has not ended after {} seconds", LONGEST.as_secs())));
        }
    }
    String::from_utf8(all).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// The same, where others must not wait.
///
/// # Errors
/// As those of `read`.
pub async fn read_aside(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref().to_owned();
    tokio::task::spawn_blocking(move || read(&path)).await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("token"), "hf_1\n").unwrap();
        assert_eq!(read(&at("token")).unwrap(), "hf_1\n");
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        std::fs::File::create(at("hole")).unwrap().set_len(1 << 40).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (name, says) in
            [("zero", "neither a file"), ("hole", "1 MiB"), (".", "neither a file"), ("none", "No such file")]
        {
            let error = read(&at(name)).unwrap_err().to_string();
            assert!(error.contains(says), "{name}: {error}");
        }
        assert_eq!(read(&at("pipe")).unwrap(), "", "nobody writes to it");
        for name in ["zero", "pipe", "."] {
            for options in [OpenOptions::new().read(true), OpenOptions::new().append(true)] {
                assert!(open_own(&at(name), options).is_err(), "{name}");
            }
        }
        assert_eq!(read_own(&at("token"), 5).unwrap().0, b"hf_1\n");
        assert!(read_own(&at("token"), 4).unwrap_err().to_string().contains("4 bytes"));
    }

    #[test]
    fn a_pipe_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // it reads and writes, so it need not wait for the other end
        let mut both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        io::Write::write_all(&mut both, b"{\"a\":").unwrap();
        let reader = std::thread::spawn(move || read(&path));
        io::Write::write_all(&mut both, b"1}").unwrap();
        while !reader.is_finished() {
            // the pipe ends once its reader has all of it
            if nix::poll::poll(
                &mut [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(&both), nix::poll::PollFlags::POLLIN)],
                0_u8,
            )
            .unwrap()
                == 0
            {
                break;
            }
            std::thread::yield_now();
        }
        drop(both);
        assert_eq!(reader.join().unwrap().unwrap(), "{\"a\":1}");
    }
}
