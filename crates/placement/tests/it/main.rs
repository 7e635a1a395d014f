//! What is found is the best there is, and why all else was dropped is told.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod best;
mod reasons;
