//! The load balancer of a service: an HTTP proxy in front of backends that come and go.
//!
//! [`serve`] accepts connections. It reads a [`BalancerConfig`] from one channel and writes a [`BalancerReport`] to another, and knows
//! nothing else of its surroundings. A request goes to a ready backend that the [`Picker`] chooses. While no backend is ready, requests
//! are held, up to a number and a time.
//!
//! | Module | What it holds |
//! |---|---|
//! | `config`, `report` | the values that go in and out |
//! | `policy` | the choice of a backend, without I/O |
//! | `balancer` | the backends, the ready ones, the counters |
//! | `upstream`, `link` | one backend: its health, and the connections to it |
//! | `probe` | asks a backend whether it is ready |
//! | `proxy` | the way of one request: choice, connection, retries, answer |
//! | `headers`, `body`, `tunnel` | the parts of a request and an answer |
//! | `serve`, `tls`, `stall` | connections of clients |
//! | `reporter` | sends the report when it changes |
//!
//! Rules that hold everywhere:
//! - Bodies are streamed. A connection exists before the first byte of a request's body is read, so a backend that refuses connections
//!   costs no request, whatever its method or length.
//! - Nothing is logged for a request. Headers, queries and bodies never appear in a log or a report.
//! - Backends are spoken to in HTTP/1.1, so gRPC, which requires HTTP/2, does not work.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod balancer;
mod body;
mod config;
mod headers;
mod link;
mod policy;
mod probe;
mod proxy;
mod report;
mod reporter;
mod serve;
mod stall;
mod tls;
mod tunnel;
mod upstream;

pub use config::{Backend, BackendState, BalancerConfig, CertificatePair, Hold, Probe};
pub use policy::{Picker, Policy, capacity_of};
pub use report::{BackendReport, BalancerReport};
pub use serve::serve;
