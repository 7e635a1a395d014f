//! The program that runs on other machines, too: this one.

use crate::fault::Fault;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// The program's file, which is read once.
pub struct Program {
    pub path: PathBuf,
    digest: OnceCell<(String, u64)>,
}

impl Program {
    pub fn new(path: PathBuf) -> Self {
        Self { path, digest: OnceCell::new() }
    }

    /// Its SHA-256, and its size in bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn digest(&self) -> Result<&(String, u64), Fault> {
        let done = self.digest.get_or_try_init(|| digest(&self.path)).await;
        done.map_err(|error| Fault::Stuck(format!("cannot read {}: {error}", self.path.display())))
    }
}

/// SHA-256 of a file, and its size in bytes.
async fn digest(path: &Path) -> io::Result<(String, u64)> {
    let path = path.to_owned();
    let read = move || {
        let mut file = std::fs::File::open(&path)?;
        let (mut hash, mut buffer, mut size) = (Sha256::new(), vec![0; 1 << 20], 0_u64);
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
                return Ok((digits, size));
            }
            size = size.saturating_add(read as u64);
            hash.update(&buffer[..read]);
        }
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
