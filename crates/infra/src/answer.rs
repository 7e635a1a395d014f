//! Reads the output of machines, up to a limit: a machine is not ours, and may print without end.

use crate::fault::Fault;
use std::io;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The most bytes that are read of an answer or an error message.
pub const ANSWER_MAX: usize = 1 << 20;
/// The most bytes that are read of one of our records.
const RECORD_MAX: u64 = 4 << 20;

/// Reads a stream to its end; an error if it is longer than the limit.
pub async fn read(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, TooMuch> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // the bytes from before the connection broke count: the exit code tells the rest
        let _ = stream.take(ANSWER_MAX as u64 + 1).read_to_end(&mut bytes).await;
    }
    if bytes.len() > ANSWER_MAX { Err(TooMuch) } else { Ok(bytes) }
}

/// The stream is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

impl TooMuch {
    /// The rest is not read, because it may have no end.
    pub fn fault(self, of: &str) -> Fault {
        Fault::Stuck(format!("{of} printed more than {} MiB, which is the most that is read", ANSWER_MAX >> 20))
    }
}

/// Reads a line of at most `most` bytes, without its end; `None` if it is longer, or if the stream ends first.
pub async fn line(stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    while line.len() <= most {
        // byte by byte: the bytes after the line belong to another reader
        match stream.read_u8().await {
            Ok(b'\n') => return Ok(Some(line)),
            Ok(byte) => line.push(byte),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// One of our records: a regular file of limited size.
///
/// # Errors
/// It cannot be read, or is something else.
pub fn record(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let waitless = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(waitless).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() || facts.len() > RECORD_MAX {
        let most = RECORD_MAX >> 20;
        return Err(io::Error::other(format!("it is no regular file of at most {most} MiB")));
    }
    let mut text = Vec::new();
    file.take(RECORD_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_has_no_end_is_not_read_to_it() {
        assert_eq!(read(Some(tokio::io::repeat(b'x'))).await, Err(TooMuch));
        assert_eq!(read(Some(&b"answer"[..])).await, Ok(b"answer".to_vec()));
        assert_eq!(read(None::<&[u8]>).await, Ok(Vec::new()));
        assert_eq!(line(&mut tokio::io::repeat(b'x'), 99).await.unwrap(), None);
        let mut two = &b"one\ntwo"[..];
        assert_eq!(line(&mut two, 99).await.unwrap(), Some(b"one".to_vec()));
        assert_eq!((two, line(&mut &b"two"[..], 99).await.unwrap()), (&b"two"[..], None));
    }

    #[test]
    fn a_record_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        std::fs::File::create(at("hole")).unwrap().set_len(1 << 40).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for name in ["zero", "hole", "pipe"] {
            assert!(record(&at(name)).unwrap_err().to_string().contains("no regular file"), "{name}");
        }
    }
}
