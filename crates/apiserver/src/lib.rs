//! A Kubernetes-shaped API over the store: discovery, CRUD, watch, patches, server-side apply, tables, OpenAPI, CRDs.
//!
//! The crate `resource` is the seam between this machinery, which knows no kind, and the kinds that it is given (those of
//! Kubernetes itself: the crate `kinds`). Custom resources go through the same seam with a strategy made from their definition.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

pub mod audit;
pub mod auth;
pub(crate) mod authorize;
pub mod crd;
pub mod decode;
pub mod delegate;
pub mod field_selector;
mod http;
mod meta;
pub mod negotiate;
mod openapi;
mod policy;
pub mod protobuf;
pub mod query;
pub mod registry;
mod route;
mod table;
pub mod usage;
mod wire;

pub use crate::http::{Body, Check, Local, Options, ServeError, Server, tls_config};
