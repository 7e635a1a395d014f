//! What the binary composes and others may want too: the operator's webhooks as plugins of the embedded API server, and
//! the kinds and runtimes that `up` installs.

pub mod admission;
pub mod install;
