//! Providers of machines, and the keeper that calls them.
//!
//! A [`Provider`] makes machines, finds them again, stops, starts and ends them. What is asked of it and when is worked out by `managed`,
//! whose words its calls and answers are; the [`Keeper`] follows the Machine objects and carries that out. A provider starts a node
//! agent on each machine that it makes, with the labels and taints of the request; it knows nothing of pods.

pub mod access;
mod fault;
mod host;
mod keeper;
pub mod kubernetes;
pub mod local;
mod making;
mod program;
mod provider;
mod records;
pub mod ssh;

pub use keeper::Keeper;
pub use managed::provider::{Failure, Fate, Handle, Offer, Request, Seen, State};
pub use provider::{Answer, Provider, Shell};
