//! `jobs`: jobs that the control plane owns.

mod explain;
mod launch;

pub(super) use explain::explain;
pub(super) use launch::launch;
