//! From a stream of bytes to a place in a file: written and summed up at once where that is quick, else on threads that may block, while
//! the next bytes come.

use super::folder::{PartFile, failed};
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::verify::{Crc32, Hasher};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Bytes that are gathered before a thread is woken to take them.
const GATHERED: usize = 512 << 10;

/// What happens to the bytes. They come in order.
pub struct Core {
    part: Arc<PartFile>,
    at: u64,
    /// Bytes written, after unpacking.
    pub written: u64,
    pub crc: Crc32,
    pub hasher: Option<Hasher>,
    unpack: Option<MultiGzDecoder<Vec<u8>>>,
}

impl Core {
    pub fn new(part: Arc<PartFile>, at: u64, hasher: Option<Hasher>) -> Self {
        Self { part, at, written: 0, crc: Crc32::default(), hasher, unpack: None }
    }

    pub fn unpacking(mut self) -> Self {
        self.unpack = Some(MultiGzDecoder::new(Vec::new()));
        self
    }

    /// Whether bytes are taken as fast as memory is copied.
    fn is_quick(&self) -> bool {
        self.unpack.is_none() && self.hasher.as_ref().is_none_or(Hasher::is_quick)
    }

    pub fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.unpack.take() {
            None => self.put(bytes),
            Some(mut unpack) => {
                // little by little: what is packed well grows much
                for some in bytes.chunks(16 << 10) {
                    unpack.write_all(some)?;
                    let plain = std::mem::take(unpack.get_mut());
                    self.put(&plain)?;
                }
                self.unpack = Some(unpack);
                Ok(())
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.part.file.write_all_at(bytes, self.at)?;
        self.crc.update(bytes);
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        let count = bytes.len() as u64;
        self.at = self.at.saturating_add(count);
        self.written = self.written.saturating_add(count);
        Ok(())
    }

    /// The last of what was packed.
    pub fn finish(&mut self) -> io::Result<()> {
        let Some(unpack) = self.unpack.take() else { return Ok(()) };
        let plain = unpack.finish()?;
        self.put(&plain)
    }
}

pub struct Sink {
    core: Option<Core>,
    busy: Option<JoinHandle<io::Result<Core>>>,
    gathered: Vec<Bytes>,
    count: usize,
    part: Arc<PartFile>,
}

impl Sink {
    pub fn new(core: Core) -> Self {
        Self { part: Arc::clone(&core.part), core: Some(core), busy: None, gathered: Vec::new(), count: 0 }
    }

    pub async fn push(&mut self, bytes: Bytes) -> Result<(), Fault> {
        if let Some(core) = self.core.as_mut().filter(|core| core.is_quick()) {
            // to the page cache and through a CRC: less than it takes to wake another thread
            return core.take(&bytes).map_err(|e| failed(&self.part.path, &e).into());
        }
        self.count = self.count.saturating_add(bytes.len());
        self.gathered.push(bytes);
        if self.count < GATHERED { Ok(()) } else { self.flush().await }
    }

    async fn idle(&mut self) -> Result<Core, Fault> {
        if let Some(core) = self.core.take() {
            return Ok(core);
        }
        let lost = || Error::new(Kind::Other, "a thread that writes was lost");
        let busy = self.busy.take().ok_or_else(lost)?;
        let core = busy.await.map_err(|_| lost())?;
        core.map_err(|e| match e.kind() {
            // of what is unpacked
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                Fault::Again(crate::plan::pace::Failure::Broken, format!("what came packed cannot be unpacked: {e}"))
            }
            _ => failed(&self.part.path, &e).into(),
        })
    }

    async fn flush(&mut self) -> Result<(), Fault> {
        let mut core = self.idle().await?;
        let gathered = std::mem::take(&mut self.gathered);
        self.count = 0;
        self.busy = Some(tokio::task::spawn_blocking(move || {
            gathered.iter().try_for_each(|bytes| core.take(bytes))?;
            Ok(core)
        }));
        Ok(())
    }

    /// Nothing of it is wanted; returns when nothing more is written.
    pub async fn abandoned(mut self) {
        let _ = self.idle().await;
    }

    /// All is written; what was counted.
    pub async fn finish(mut self) -> Result<Core, Fault> {
        if !self.gathered.is_empty() {
            self.flush().await?;
        }
        self.idle().await
    }
}
