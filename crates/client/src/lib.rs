//! Finds an API server by flags and environment, and reads objects from it.
//!
//! `Cluster` is a connection with a namespace, `Home` the folder of a control plane of this machine, and `ClientError` an error with its
//! code and advice (`codes`). This crate prints nothing and starts no control plane; its callers do.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod choice;
pub mod codes;
mod connect;
mod error;
pub mod home;
mod kind;
pub mod offers;
mod page;
pub mod tally;
mod until;
mod warned;

pub use choice::Choice;
pub use connect::{ApiServer, Cluster, Where, place, pods_of, value};
pub use error::{ClientError, is_not_served, render};
pub use home::Home;
pub use kind::Kind;
pub use until::until;
