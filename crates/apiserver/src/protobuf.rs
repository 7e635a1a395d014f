//! Kubernetes' protobuf: an envelope (`k8s\0`, then `runtime.Unknown`) around one message of a built-in kind.
//!
//! Typed Go clients (kubectl from 1.32 on, Helm 4, controller-runtime) send it without a way back to JSON. The messages
//! are described by the table of types (`merge::builtin`): field numbers there are Kubernetes' own. Both directions go
//! through the JSON form, which is what the server works on.

mod decode;
mod encode;

use api::object::Gvk;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use decode::{ProtobufError, decode};
pub use encode::encode;
pub(crate) use encode::{bytes, integer};
use jiff::Timestamp;
use merge::builtin::{Field, JSON_SCHEMA, Other, Shape, facts, type_name};
use serde_json::{Map, Value, json};

const MAGIC: &[u8] = b"k8s\0";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Messages inside messages; the deepest built-in type has some twenty.
const DEPTH_MAX: usize = 100;
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Objects of which only the metadata is shown. The table of facts leaves the type out, for nothing is stored as one.
const PARTIAL: &str = "PartialObjectMetadata";

/// The table's name of what `apiVersion` and `kind` say; for lists, of their items.
enum Named {
    One(String),
    ListOf(String),
}

fn named(api_version: &str, kind: &str) -> Option<Named> {
    let group = Gvk::from_api_version(api_version, kind).group;
    let meta = format!("{META}.{kind}");
    if let Some(name) = type_name(&group, kind) {
        return Some(Named::One(name.to_owned()));
    }
    if matches!(kind, "Status" | "DeleteOptions") && facts(&meta).is_some() {
        return Some(Named::One(meta));
    }
    let item = kind.strip_suffix("List")?;
    Some(Named::ListOf(type_name(&group, item)?.to_owned()))
}

#[cfg(test)]
mod tests;
