//! Where lists and watches come from: requests, or the server in the same process.
//!
//! On a laptop the source is the server in this process. It gives lists and watches as the store holds them; writes
//! are requests, under the same rules, that carry trees in place of text (`objects::packed::Handed`) and are answered
//! with the object that the store then holds. Readers without a cache (the node's pods, the status server, the
//! history) follow the same source through `Feed`, which elsewhere watches by requests.

use crate::requests::RequestError;
use api::object::{self, Gvk};
use futures::stream::BoxStream;
use objects::packed::Packed;
use objects::take::{self, Take};
use reconcile::wakes;
use serde_json::Value;
use std::sync::Arc;

/// What a watch tells.
pub enum Told {
    /// An object is like this now.
    Is(Held),
    /// An object is gone, and was like this.
    Was(Held),
    /// Nothing has happened up to this revision that was not told.
    Nothing(String),
    /// Some of what has happened is forgotten: list again.
    Forgotten,
}

/// An object as it is held: as a tree, ready to be read, or as its text.
#[derive(Clone)]
pub enum Held {
    Tree(Arc<Value>),
    Packed(Arc<Packed>),
}

impl Held {
    pub fn open(&self) -> Arc<Value> {
        match self {
            Self::Tree(object) => object.clone(),
            Self::Packed(packed) => packed.open(),
        }
    }

    /// Whether this state of an object may concern others than a later one does.
    pub(crate) fn may_concern_others(&self, later: &Self) -> bool {
        match (self, later) {
            (Self::Packed(old), Self::Packed(new)) => !wakes::stays_by_text(&old.text(), &new.text()),
            _ => true,
        }
    }

    /// Whether a word, of which JSON escapes nothing, may be somewhere in it.
    pub(crate) fn may_have(&self, word: &str) -> bool {
        match self {
            Self::Tree(_) => true,
            Self::Packed(packed) => packed.mentions(word),
        }
    }

    /// Whether somebody may have asked for its end.
    pub(crate) fn may_be_terminating(&self) -> bool {
        match self {
            Self::Tree(object) => object::is_terminating(object),
            Self::Packed(packed) => packed.mentions("\"deletionTimestamp\":"),
        }
    }

    /// Its kind and its metadata, and perhaps more.
    pub fn head(&self) -> Arc<Value> {
        match self {
            Self::Tree(object) => object.clone(),
            Self::Packed(packed) => packed.head(),
        }
    }

    /// Its tree, of which members may be missing that `take` leaves out, for a caller that looks at many objects once.
    pub(crate) fn part(&self, take: fn(&str) -> Take) -> Arc<Value> {
        match self {
            Self::Tree(object) => object.clone(),
            Self::Packed(packed) => packed.part(take),
        }
    }

    /// Its tree, of which managed fields may be missing, for a caller that looks at many objects once.
    pub fn lean(&self) -> Arc<Value> {
        self.part(take::lean)
    }
}

/// The server in the same process, from which a driver gets objects as they are held, not copied. It shows
/// what a list or a watch of all objects of a kind shows to a client that may see them all. Writes are requests nevertheless: they
/// go the same way, under the same rules, with trees in place of text where the server takes them.
pub trait Source: Send + Sync {
    /// Whether a kind is to be had from it; all others are listed and watched by requests.
    fn has(&self, gvk: &Gvk) -> bool;

    /// Whether requests to it may carry trees ([`objects::packed::Handed`]).
    fn takes_trees(&self) -> bool {
        false
    }

    /// All objects of a kind, and the revision of the list; `None` where it is not to be had any more.
    fn list(&self, gvk: &Gvk) -> Option<(Vec<Arc<Packed>>, u64)>;

    /// What happens to a kind's objects after a revision; `None` where it has to be listed again. Where the stream ends, the
    /// reader asks for another one.
    fn watch(&self, gvk: &Gvk, revision: u64) -> Option<BoxStream<'static, Told>>;
}

/// An event of a watch by requests.
pub(crate) fn read(mut event: Value, slim: impl Fn(&mut Value)) -> Told {
    let mut object = event["object"].take();
    let revision = || object::resource_version(&object).to_owned();
    match event["type"].as_str().unwrap_or_default() {
        "BOOKMARK" => Told::Nothing(revision()),
        kind @ ("ADDED" | "MODIFIED" | "DELETED") => {
            slim(&mut object);
            let object = Held::Tree(Arc::new(object));
            if kind == "DELETED" { Told::Was(object) } else { Told::Is(object) }
        }
        // 410: too old; anything else: the same remedy
        _ => Told::Forgotten,
    }
}

/// Events of a watch, wherever they come from.
pub(crate) type Events<'a> = BoxStream<'a, Result<Told, RequestError>>;
