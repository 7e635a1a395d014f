//! How far a listing may go. Servers are not ours: a listing may be endless, larger than memory, or lead in a circle, and to take what came
//! of such a one for all that there is would be a silent loss.

use super::incomplete;
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::progress::binary;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long all pages of a listing may take.
const LONGEST: Duration = Duration::from_secs(1800);
/// How many pages in a row may hold nothing: stores have some where much was deleted.
const EMPTY_MOST: u32 = 1000;
/// What an object takes beside its name: its version, checksum and place in lists.
const BESIDE: usize = 200;

/// What all pages of a listing share.
pub struct Extent {
    name: String,
    start: Instant,
    held: AtomicUsize,
    most: usize,
}

impl Extent {
    /// `most`: bytes of memory that the listing may take (LISTING_MAX).
    pub fn new(name: String, most: usize) -> Self {
        Self { name, start: Instant::now(), held: AtomicUsize::new(0), most }
    }

    /// The same, of a listing that begins from nothing; its time goes on.
    pub fn anew(&self) -> Self {
        Self { name: self.name.clone(), start: self.start, held: AtomicUsize::new(0), most: self.most }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts a page, by the lengths of its names.
    ///
    /// # Errors
    /// The listing is too large, or takes too long.
    pub fn count(&self, names: impl Iterator<Item = usize>) -> Result<(), Fault> {
        // a name is kept twice: as it is at the source, and in the target
        let bytes: usize = names.fold(0, |sum, name| sum.saturating_add(name.saturating_mul(2).saturating_add(BESIDE)));
        let held = self.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if held > self.most {
            let text = format!(
                "{}: the listing takes more than {} of memory; fetch a part of it, or raise LISTING_MAX if it is meant to be so long",
                self.name,
                binary(self.most)
            );
            return Err(Error::new(Kind::Other, text).into());
        }
        if self.start.elapsed() > LONGEST {
            let text = format!("{}: the listing has not ended after {} s", self.name, LONGEST.as_secs());
            return Err(Error::new(Kind::Network, text).into());
        }
        Ok(())
    }

    /// Follows a chain of pages.
    pub fn chain(&self) -> Chain<'_> {
        Chain { name: &self.name, seen: HashSet::new(), empty: 0 }
    }
}

/// Pages, each of which tells the next.
pub struct Chain<'a> {
    name: &'a str,
    seen: HashSet<String>,
    empty: u32,
}

impl Chain<'_> {
    /// The page after one with so many names.
    ///
    /// # Errors
    /// It was there before, or one page after the other holds nothing.
    pub fn follow(&mut self, token: &str, names: usize) -> Result<(), Fault> {
        if !self.seen.insert(token.to_owned()) {
            return Err(incomplete(self.name, &format!("the server gives the continuation {token:.60?} twice")));
        }
        self.empty = if names == 0 { self.empty.saturating_add(1) } else { 0 };
        if self.empty >= EMPTY_MOST {
            return Err(incomplete(self.name, &format!("{EMPTY_MOST} pages in a row are empty, and it goes on")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fault: Fault) -> String {
        fault.into_error().text
    }

    #[test]
    fn a_circle_is_no_end() {
        let extent = Extent::new("s3://b".to_owned(), 1 << 20);
        let mut chain = extent.chain();
        for token in ["a", "b"] {
            chain.follow(token, 1).unwrap();
        }
        assert!(text(chain.follow("a", 1).unwrap_err()).contains("\"a\" twice"));
        let mut chain = extent.chain();
        let ends = (0..=EMPTY_MOST).find_map(|at| chain.follow(&at.to_string(), 0).err()).unwrap();
        assert!(text(ends).contains("1000 pages"));
    }

    #[test]
    fn a_listing_that_does_not_end_meets_a_bound() {
        let extent = Extent::new("s3://b".to_owned(), 8 << 20);
        let pages = (0..).find(|_| extent.count(std::iter::repeat_n(100, 1000)).is_err());
        assert_eq!(pages, Some(20), "400 bytes for each of 1,000 objects");
        assert!(text(extent.count([1].into_iter()).unwrap_err()).contains("more than 8 MiB"));
    }
}
