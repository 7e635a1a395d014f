//! Providers of machines, and the controller that calls them.
//!
//! A [`Provider`] makes machines, finds them again, stops, starts and ends them. `managed` decides what is requested from it and when, and
//! defines the types of its calls and answers. The [`MachineController`] follows the Machine objects and carries the decisions out. A
//! provider starts a node agent on each machine that it makes, with the labels and taints of the request; it knows nothing of pods.

pub mod access;
mod answer;
mod attention;
mod fault;
mod host;
mod kept;
pub mod kubernetes;
pub mod local;
mod machine_controller;
mod making;
mod program;
mod provider;
pub mod ssh;

pub use attention::Attention;
pub use machine_controller::MachineController;
pub use managed::provider::{Ended, Failure, Fate, Found, Handle, Request, Seen, State};
pub use provider::{Answering, Provider};
