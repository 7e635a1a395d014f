//! The load balancer with real sockets: clients before it, servers behind it.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod balance;
mod hold;
mod probes;
mod protocols;
mod streams;
mod support;
