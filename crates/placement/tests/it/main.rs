//! The search finds the best candidate there is, and gives a reason for each that it dropped.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod best;
mod group;
mod reasons;
