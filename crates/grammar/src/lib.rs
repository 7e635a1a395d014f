//! The grammar of the command line: commands, flags and values as types of clap, their help, and the messages about words that do not fit.
//!
//! Nothing is carried out or printed here. [`usage::read`] parses words into a [`Cli`], or returns why it cannot; the variant of a
//! [`Command`] shows what the command needs.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod command;
mod global;
mod jobs;
mod machine;
pub mod man;
pub mod mpi;
pub mod operator;
mod output;
pub mod sky;
pub mod usage;
mod values;

pub use command::{Cli, ClientCommand, Command, LocalCommand, ServerCommand};
pub use global::Global;
pub use jobs::*;
pub use machine::*;
pub use output::{Format, Output};
pub use values::Attempt;
