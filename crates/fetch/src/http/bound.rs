//! How much of an answer is read as a text, and for how long. Servers are not ours: an answer may be endless, or come a byte at a time.

use super::{Answer, Fault};
use crate::plan::error::{Error, Kind};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What an answer is, and how large and slow such a one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    what: &'static str,
    bytes: usize,
    time: Duration,
}

impl Bound {
    /// Of an object store: a thousand keys of a KiB each, percent-encoded, with what is told of each.
    pub const PAGE: Self = Self { what: "a page of a listing", bytes: 8 << 20, time: Duration::from_secs(120) };
    /// Of Azure, with 5,000 names and their metadata, and of hubs, which may tell all of a repository at once.
    pub const LARGE_PAGE: Self = Self { what: "a page of a listing", bytes: 32 << 20, time: Duration::from_secs(120) };
    pub const TOKEN: Self = Self { what: "an answer about credentials", bytes: 1 << 20, time: Duration::from_secs(60) };
    pub const REFUSAL: Self = Self { what: "a refusal", bytes: 64 << 10, time: Duration::from_secs(10) };
}

/// Which bound an answer met.
enum Met {
    Bytes,
    Time,
}

impl Answer {
    /// A whole small body.
    ///
    /// # Errors
    /// It broke off, or met the bound.
    pub async fn text(mut self, bound: Bound) -> Result<String, Fault> {
        let (all, met) = self.read(bound).await?;
        let from = &self.body.from;
        let what = bound.what;
        match met {
            None => Ok(String::from_utf8(all).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
            Some(Met::Bytes) => {
                let most = crate::plan::progress::binary(bound.bytes);
                let text =
                    format!("{from}: the answer is larger than {most}, which is the most that is read of {what}");
                Err(Error::new(Kind::Other, text).into())
            }
            Some(Met::Time) => {
                let seconds = bound.time.as_secs();
                let text = format!(
                    "{from}: the answer has not ended after {seconds} s, which is the longest that {what} may take"
                );
                Err(Error::new(Kind::Network, text).into())
            }
        }
    }

    /// What a server says of a refusal: as much as the bound allows, for the rest says no more.
    ///
    /// # Errors
    /// It broke off.
    pub async fn refusal(mut self) -> Result<String, Fault> {
        let (all, _) = self.read(Bound::REFUSAL).await?;
        Ok(String::from_utf8_lossy(&all).into_owned())
    }

    /// The same, and the body can still be read.
    ///
    /// # Errors
    /// As those of `refusal`.
    pub async fn peeked(&mut self) -> Result<String, Fault> {
        let (all, _) = self.read(Bound::REFUSAL).await?;
        let text = String::from_utf8_lossy(&all).into_owned();
        self.body.ahead = Some(Bytes::from(all));
        Ok(text)
    }

    async fn read(&mut self, bound: Bound) -> Result<(Vec<u8>, Option<Met>), Fault> {
        const USUAL: u64 = 1 << 20;
        let announced = self.length().unwrap_or_default().min(USUAL);
        let mut all = Vec::with_capacity(usize::try_from(announced).unwrap_or_default());
        let now = Instant::now();
        let end = now.checked_add(bound.time).unwrap_or(now);
        loop {
            let Ok(chunk) = timeout_at(end, self.body.chunk()).await else { return Ok((all, Some(Met::Time))) };
            let Some(chunk) = chunk? else { return Ok((all, None)) };
            if all.len().saturating_add(chunk.len()) > bound.bytes {
                return Ok((all, Some(Met::Bytes)));
            }
            all.extend_from_slice(&chunk);
        }
    }
}
