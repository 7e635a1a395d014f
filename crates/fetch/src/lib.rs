//! Fills a folder from a location.
//!
//! `plan` is pure: what is wanted, under which names, in which parts, what a restart must do. `http` sends requests, `source` knows
//! what each kind of location speaks, `pull` has the connections, the disk and the state of the folder.
//!
//! All files run at once (`pull`); a file's checksum is asked for while others are fetched. A part is synced before
//! its record, which holds a checksum of it. A file gets its name by rename after verification. The state file is
//! lines; a torn end costs only the last one.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod http;
pub mod plan;
mod pull;
mod small;
mod source;

pub use plan::error::{Error, Kind as ErrorKind, scrubbed};
pub use plan::location::Kind;
pub use plan::settings::{Settings, Variables};
pub use pull::{Mode, Report, Said, run};
