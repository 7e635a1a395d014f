//! Machines that are there already and are reached by SSH: the pools in which SkyPilot's users list them.

mod pools;

pub use pools::{Host, Pools, parse};
