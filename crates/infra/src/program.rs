//! The program that runs on other machines, too: this one.

use crate::fault::Fault;
use crate::making::Making;
use managed::provider::{Failure, Fate};
use ring::digest::{Context, SHA256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// SHA-256 of a file and its size in bytes, if it could be read.
type Known = io::Result<(String, u64)>;

/// The program's file, which is read once.
pub struct Program {
    pub path: PathBuf,
    known: OnceCell<(String, u64)>,
    /// The task that reads it. On a loaded machine that takes longer than a call to a provider may, so the next call waits for the same
    /// task.
    reading: Making<(String, u64)>,
}

impl Program {
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: OnceCell::new(), reading: Making::default() }
    }

    /// Its SHA-256, and its size in bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn digest(&self) -> Result<&(String, u64), Fault> {
        let done = self.known.get_or_try_init(|| self.read(digest)).await;
        done.map_err(|failure| Fault::Stuck(failure.what))
    }

    async fn read(&self, how: fn(&Path) -> Known) -> Result<(String, u64), Failure> {
        let path = self.path.clone();
        let work = || async move {
            let shown = path.display().to_string();
            let read = tokio::task::spawn_blocking(move || how(&path)).await;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            read.map_err(|error| Failure::new(Fate::Retry, format!("cannot read {shown}: {error}")))
        };
        self.reading.join(work).await
    }
}

fn digest(path: &Path) -> Known {
    let mut file = std::fs::File::open(path)?;
    let (mut hash, mut buffer, mut size) = (Context::new(&SHA256), vec![0; 1 << 20], 0_u64);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            let digits = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((digits, size));
        }
        size = size.saturating_add(read as u64);
        hash.update(&buffer[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn program(folder: &tempfile::TempDir, name: &str) -> Program {
        Program::new(folder.path().join(name))
    }

    #[tokio::test]
    async fn the_digest_is_that_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(&folder, "program");
        assert!(program.digest().await.unwrap_err().what().contains("cannot read"));
        // a failure is tried again
        std::fs::write(&program.path, "abc").unwrap();
        let of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(program.digest().await.unwrap(), &(of_abc.to_owned(), 3));
        // and a known result stays
        std::fs::write(&program.path, "other").unwrap();
        assert_eq!(program.digest().await.unwrap().1, 3);
    }

    #[tokio::test]
    async fn a_reading_outlives_the_call_that_began_it() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        fn slow(path: &Path) -> Known {
            let nth = BEGUN.fetch_add(1, Ordering::SeqCst) + 1;
            while !path.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok((format!("reading {nth}"), 0))
        }
        let folder = tempfile::tempdir().unwrap();
        let program = program(&folder, "go on");
        for _ in 0..3 {
            let cut = tokio::time::timeout(Duration::from_millis(20), program.read(slow)).await;
            assert!(cut.is_err(), "nothing lets it end yet");
        }
        std::fs::write(&program.path, "").unwrap();
        assert_eq!(program.read(slow).await.unwrap().0, "reading 1");
    }
}
