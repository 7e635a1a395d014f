//! Receives files of launches, part by part (`files.trainyard.dev`).

use ::files::send::{GROUP, NAMED_BY, PLURAL, VERSION};
use ::files::store::{Digest, Store, together};
use apiserver::delegate::{Delegate, Wanted};
use bytes::Bytes;
use futures::future::BoxFuture;
use resource::status::Status;
use serde_json::Value;
use std::path::PathBuf;

/// Stores the parts that clients send, below this folder.
pub struct PartsOfFiles(pub PathBuf);

impl Delegate for PartsOfFiles {
    fn group(&self) -> &'static str {
        GROUP
    }

    fn get(&self, wanted: Wanted) -> BoxFuture<'static, Result<Value, Status>> {
        Box::pin(std::future::ready(Err(Status::not_found(GROUP, PLURAL, &wanted.name))))
    }

    fn post(&self, wanted: Wanted, subresource: &str, body: Bytes) -> BoxFuture<'static, Result<Bytes, Status>> {
        let Wanted { version, namespace, plural, name } = wanted;
        let is_known = version == VERSION && plural == PLURAL && name == NAMED_BY && !namespace.is_empty();
        let store = Store::new(&self.0, &namespace);
        let done = match subresource {
            "missing" if is_known => tokio::task::spawn_blocking(move || missing(&store, &body)),
            "contents" if is_known => tokio::task::spawn_blocking(move || keep(&store, body)),
            _ => {
                let missing = Status::not_found(GROUP, &format!("{plural}/{subresource}"), &name);
                return Box::pin(std::future::ready(Err(missing)));
            }
        };
        Box::pin(async move { done.await.unwrap_or_else(|error| Err(Status::internal(error.to_string()))) })
    }
}

/// Which of these digests, one per line, are not stored.
fn missing(store: &Store, body: &Bytes) -> Result<Bytes, Status> {
    let text = std::str::from_utf8(body).unwrap_or("?");
    let digests: Result<Vec<Digest>, _> = text.lines().map(str::parse).collect();
    let Ok(digests) = digests else {
        return Err(Status::bad_request("the body must be SHA-256 digests in hexadecimal, a line each"));
    };
    let lines: String = store.missing(&digests).iter().map(|digest| format!("{digest}\n")).collect();
    Ok(lines.into())
}

/// Stores parts.
fn keep(store: &Store, body: Bytes) -> Result<Bytes, Status> {
    let Some(parts) = together::parts(body) else {
        return Err(Status::bad_request(
            "the body must be parts of at most 1 MiB, before each its length in four bytes, the lowest first",
        ));
    };
    for part in parts {
        store.add(&part).map_err(|error| Status::internal(format!("a file cannot be kept: {error}")))?;
    }
    Ok(Bytes::new())
}
