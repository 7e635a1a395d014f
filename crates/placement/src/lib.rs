//! Which machine, where, at what price.
//!
//! Pure: price lists are texts, what is free is an argument. [`place()`] looks for machines for tasks (`search`, cloud by cloud in
//! `market`), and chooses one for each (`solve`). [`group`] chooses the place that all tasks of a job group share.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod abilities;
pub mod catalogue;
pub mod cloud;
pub mod egress;
mod free;
mod gcp;
pub mod group;
pub mod list;
mod market;
pub mod place;
pub mod request;
pub mod search;
pub mod solve;

pub use abilities::Feature;
pub use catalogue::Catalogue;
pub use cloud::Cloud;
pub use free::is_named;
pub use place::{Plan, Task, Unplaceable, place};
pub use request::{Amount, Block, DiskWish, FreeNode, Request};
pub use search::Market;
pub use solve::Target;

/// Whose rules hold where we do otherwise than SkyPilot. COMPATIBILITY.md says what differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Ours: `max_hourly_cost` counts all that a machine costs, in each region; a task without accelerators gets a machine without
    /// them where one will do; of equal ends the cheapest; memory counts on RunPod, too.
    #[default]
    Own,
    /// SkyPilot 0.14.1's, to compare with.
    SkyPilot,
}
