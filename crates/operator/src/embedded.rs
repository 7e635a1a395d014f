//! What an API server in this process gets from the operator: its webhooks as plugins, and the kinds and runtimes that `up` installs.

pub mod admission;
pub mod install;
