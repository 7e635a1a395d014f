//! The pure half: what is wanted, under which names, in which parts, and what a restart must do. No I/O, no clock, no chance.

pub mod error;
pub mod location;
pub mod names;
pub mod pace;
pub mod parts;
pub mod patterns;
pub mod progress;
pub mod restart;
pub mod settings;
pub mod verify;
