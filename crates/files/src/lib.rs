//! Files that a launch brings along: from a folder of a client, by way of the control plane, to the machines of a cluster.
//!
//! 1. The client lists a folder ([`Source::list`]) and cuts each file into parts, which are named by their SHA-256 ([`send()`]). It sends the
//!    parts that the control plane does not have, then the list itself, as parts, too.
//! 2. The control plane keeps parts in a [`Store`], by content. A [`Tree`] is read from it by the digests of its list.
//! 3. Machines are filled from there ([`here`], [`there`]). Each gets what it lacks: files whose size, time of change or permissions
//!    differ. A machine keeps a list of what was sent to it ([`sent`]). What was deleted by the client since is deleted there, too, if it
//!    is still as it was sent. What a job wrote stays.
//!
//! This crate prints nothing. What was left out, and why, is returned as lines.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod archive;
pub mod here;
mod ignored;
pub mod send;
mod sent;
pub mod store;
pub mod there;
mod tree;

pub use archive::Pieces;
pub use send::{Progress, send};
pub use store::{Digest, Store};
pub use tree::{Entry, Skipped, Source, Tree};

use std::io;
use std::path::Path;

/// The bytes of a part: the last one of a file has fewer.
pub const PART: usize = 1 << 20;

/// An error with the path that it is about.
fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Bytes as people read them: `512 B`, `12.0 KiB`, `3.4 GiB`.
pub fn size_shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "it is rounded")]
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0);
    format!("{amount:.digits$} {}", UNITS.get(unit).unwrap_or(&"B"))
}
