//! A Kubernetes-shaped API over the store: discovery, CRUD, watch, patches, server-side apply, tables, OpenAPI, CRDs.
//!
//! `resource` is the seam between the generic machinery (which knows no kind) and `builtin` (which knows core, batch and
//! the other kinds of Kubernetes itself). Custom resources go through the same seam with a strategy made from their CRD.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod admission;
pub mod audit;
pub mod auth;
pub(crate) mod authorize;
pub mod builtin;
pub mod crd;
pub mod decode;
pub mod delegate;
mod http;
pub mod jsonpath;
mod meta;
pub mod negotiate;
mod openapi;
mod policy;
pub mod query;
pub mod registry;
pub mod resource;
mod route;
pub mod selectors;
pub mod status;
pub mod streams;
mod table;
pub mod usage;
mod wire;

pub use crate::http::{Body, Check, Local, Options, ServeError, Server, tls_config};
