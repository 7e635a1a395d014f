//! How a process keeps the objects of the API: as their text, compressed when idle, and read in parts.
//!
//! [`packed`] keeps an object, and [`compressed`] shrinks it. [`part`] and [`take`] read a few fields without parsing the rest, and
//! [`selector`] rules out most objects by a search of their text. [`memo`] keeps results of pure functions.
//!
//! What an object means is the business of `api`. This crate uses only its rules for the names of labels, in [`selector`].

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod compressed;
pub mod memo;
pub mod packed;
pub mod part;
pub mod selector;
pub mod take;
