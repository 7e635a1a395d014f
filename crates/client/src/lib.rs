//! Reaches an API server: finds it by flags and environment, reads objects through it, and says in words what went wrong.
//!
//! `Cluster` is a connection with a namespace, `Home` the folder of a control plane of this machine, `ClientError` what can go wrong,
//! each with its code and advice (`codes`). Nothing here prints, and nothing starts a control plane: that is for whoever calls.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod choice;
pub mod codes;
mod connect;
mod error;
pub mod home;
mod kind;
mod page;
mod warned;

pub use choice::Choice;
pub use connect::{Cluster, Where, place, pods_of, value};
pub use error::{ClientError, is_not_served, render};
pub use home::Home;
pub use kind::Kind;
