//! SkyPilot's task file as values: read, checked, normalised and written back as SkyPilot 0.14.1 does.
//!
//! Pure: no I/O, no clock. What a machine knows (files, catalogues, contexts) is an argument.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod check;
pub mod commands;
pub mod console;
pub mod error;
pub mod file;
pub mod group;
pub mod infra;
pub mod mounts;
pub mod place;
pub mod pools;
pub mod quantity;
pub mod resources;
pub mod schema;
pub mod secrets;
pub mod service;
mod shapes;
pub mod suggest;
mod tabs;
pub mod task;
pub mod value;
pub mod yaml;

pub use error::{Class, TaskError};
pub use file::File;
pub use schema::Reader;
pub use task::{Given, Task};
