//! What a job looks like: its state, its runs and lines, its progress, its place in the queue, and why it is as it is, in words.
//!
//! All of it is pure: objects go in, words and values come out. The command line prints them; so may a page or a test. `view` never learns
//! who looks, nor how the objects were read.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod amounts;
pub mod bars;
pub mod downloads;
pub mod explained;
pub mod fold;
pub mod job;
pub mod lines;
pub mod marks;
pub mod members;
pub mod mpijob;
pub mod nodes;
pub mod progress;
pub mod queue;
pub mod row;
pub mod runs;
pub mod series;
pub mod state;
pub mod trials;

/// A part of a job that was asked for and is not there; the text says which there are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSuch {
    #[error("{0}")]
    Rank(String),
    #[error("{0}")]
    Attempt(String),
}
