//! What machines could be had: this one, the hosts of SSH pools, the nodes of Kubernetes clusters, and those of clouds by their price lists.
//!
//! [`observe`] reads what files of this computer say ([`AtHand`]); [`look_at_contexts`] asks Kubernetes clusters what they have free,
//! and [`look_at_hosts`] the control plane what it knows of hosts. What to make of it is worked out in `managed::launch`. [`tried`]
//! connects to hosts and clusters, as `sky check` does. This crate prints nothing.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

mod at_hand;
mod catalogue;
mod contexts;
mod settings;
mod tried;

pub use at_hand::{POOLS, look_at_contexts, look_at_hosts, observe, region};
pub use catalogue::{CATALOGUE, ListError, read_catalogue};
pub use contexts::{ContextError, client, inventory, inventory_of};
pub use managed::launch::{AtHand, Contexts};
pub use settings::{Settings, SettingsError, settings, settings_with};
pub use tried::tried;
