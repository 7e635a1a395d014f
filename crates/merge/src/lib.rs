//! What may be done to an object: JSON, merge and strategic patches, server-side apply with managed fields, and
//! structural schemas that default, prune and validate (CEL included).
//!
//! Pure: no I/O, no clock. Times that end up in managed fields are arguments.
//!
//! # Two sources, one schema
//!
//! Built-in kinds come from a table of facts (`data`: fields, types, list keys, protobuf numbers; no text), CRDs
//! from their own schemas. Both become the same `schema::Schema`, which defaults, prunes, validates, merges and
//! publishes. CEL is bounded by upstream's costs, functions of the library included (`cel::meter`, `guard`); the
//! API server runs it apart from the threads that serve sockets.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

pub mod apply;
pub mod bounds;
pub mod builtin;
pub mod cel;
pub mod fields;
pub mod gotext;
pub mod json_patch;
pub mod merge_patch;
pub mod order;
mod pattern;
pub mod schema;
pub mod strategic;
pub mod structural;

/// Why a patch was refused; [`PatchError::code`] is the HTTP status that the API server answers with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is no patch of its kind: 400 `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch is well formed but does not fit the object: 422 `Invalid` (upstream answers the generic
    /// "the server rejected our request due to an error in our request"; this text says what it was).
    #[error("{0}")]
    Unprocessable(String),
    /// A `test` of a JSON patch found another value: 422, as the former.
    #[error("{0}")]
    TestFailed(String),
    /// Too many operations, or copies that would grow the object without bound: 413 `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// What upstream answers as an error of its own, although the patch is at fault: 500.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Unprocessable(_) | Self::TestFailed(_) => 422,
            Self::TooLarge(_) => 413,
            Self::Internal(_) => 500,
        }
    }
}
