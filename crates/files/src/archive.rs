//! Archives on their way to a `tar` in a pod.

use std::io::{self, Write};
use tokio::sync::mpsc;

/// tar reads archives in records of this many bytes, and waits for the last one to be whole.
const RECORD: usize = 10_240;
/// Bytes that are sent at once.
const PIECE: usize = 256 * 1024;
/// How many such pieces wait to be sent.
const PIECES: usize = 8;

/// The archive of one thread, written in pieces that another task sends.
pub struct Pieces {
    to: mpsc::Sender<Vec<u8>>,
    held: Vec<u8>,
    sent: usize,
}

impl Pieces {
    /// Where the archive is written, and where its pieces come out.
    pub fn channel() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (to, pieces) = mpsc::channel(PIECES);
        (Self { to, held: Vec::with_capacity(PIECE), sent: 0 }, pieces)
    }

    /// Ends the archive: fills the last record, and sends what is held.
    ///
    /// # Errors
    /// Nobody takes the pieces any more.
    pub fn end(mut self) -> io::Result<()> {
        let rest = self.sent.next_multiple_of(RECORD).saturating_sub(self.sent);
        self.write_all(&vec![0; rest])?;
        self.flush()
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        self.sent = self.sent.wrapping_add(bytes.len());
        if self.held.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.to.blocking_send(std::mem::take(&mut self.held)).map_err(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_ends_with_a_whole_record() {
        for size in [0, 1, RECORD, PIECE + 1] {
            let (mut archive, mut pieces) = Pieces::channel();
            archive.write_all(&vec![7; size]).unwrap();
            archive.end().unwrap();
            let mut bytes = Vec::new();
            while let Some(piece) = pieces.blocking_recv() {
                bytes.extend(piece);
            }
            assert_eq!(bytes.len(), size.next_multiple_of(RECORD));
            assert!(bytes[..size].iter().all(|byte| *byte == 7) && bytes[size..].iter().all(|byte| *byte == 0));
        }
    }
}
