//! Objects as a process keeps them: as text. A reader of an object gets its tree, and concurrent readers share that tree; it is freed after
//! the last of them.
//!
//! The trees of objects that every request reads (access rules, definitions of kinds) stay in memory: they are few, and their keeper marks
//! them with [`Packed::staying`].
//!
//! Whether a tree is still in memory changes only how long a read takes. That is why a pure crate may hold it (see [`crate::memo`]).
//!
//! A text may be kept compressed ([`Packed::compress`]); its readers do not notice.
//!
//! # One representation
//!
//! An object is its text: the JSON that the server sends. The store, its history and the caches of controllers in
//! the same process share these bytes. Lists, gets, restarts and backups copy bytes and parse nothing.
//!
//! - A tree takes about ten times the memory of its text. It is parsed on demand, and concurrent readers share
//!   it. The trees that were read last stay until the process rests ([`rest`], after two seconds), since several controllers
//!   read a change one after the other. Together they represent at most 4 MiB of text (half a MiB in an operator).
//! - A list by label or field first searches the text for what such an object must contain (`selector::Signs`,
//!   vector instructions), then reads labels alone.
//! - Tables and lists of metadata copy the metadata's text and read the rest without managed fields (`part`).
//! - A controller of many objects keeps only what it reads: the scheduler's index keeps a tenth of a pod.
//! - `World::each` shows objects one by one, `World::mentioning` those that contain a word. `World::stands`
//!   reports, without parsing it, whether the object with a uid exists and is not being deleted: the garbage
//!   collector's usual question.
//! - An object that no write has replaced for two to four seconds is compressed in memory, with another object of
//!   its bucket as the dictionary. LZ4 makes a sixth or less of the 36 KB of a waiting job's objects, at 0.7
//!   GB/s, and gives them back at 4 GB/s. The disk keeps plain text, because recently written objects are usually
//!   replaced soon. A busy process compresses in one of five rests.
//!
//! A compact tree (interned keys, sorted vectors) would be smaller than today's tree, but not smaller than the
//! text, which would be needed beside it.

use crate::compressed::{Compressed, Models};
use crate::part;
use crate::take::{self, Take};
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
#[expect(clippy::disallowed_types, reason = "see the module's comment")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError, Weak};

/// Bytes of text of the trees that stay without a reader: those of some hundred jobs in progress.
const STAY: usize = 4 << 20;
/// The same limit for processes that never call [`rest`].
const STAY_WITHOUT_REST: usize = 512 << 10;
/// The share of that limit that one tree may take: a larger tree would displace all others.
const STAY_SHARE: usize = 8;

/// One version of an object.
#[derive(Debug)]
pub struct Packed {
    #[expect(clippy::disallowed_types, reason = "see the module's comment")]
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    text: Text,
    tree: Tree,
}

#[derive(Clone, Debug)]
enum Text {
    Plain(Bytes),
    Compressed(Compressed),
}

/// An extension that a client in the server's process adds to a request: the tree of the body (null: none). The body then has no text. The
/// object of the answer comes the same way, as an extension (`Arc<Packed>`) without a body, if the server holds it. Requests and answers
/// over a socket have no extensions.
#[derive(Clone, Debug)]
pub struct Handed(pub Arc<Value>);

#[derive(Debug)]
enum Tree {
    /// Held by its readers.
    Lent(Weak<Value>),
    /// Read at least once.
    Stays(Option<Arc<Value>>),
}

impl Packed {
    /// An object from its text, which must be JSON; any other text is shown as null.
    pub fn from_text(text: Vec<u8>) -> Self {
        // spare capacity of the vector would be kept with it
        Self::with(Bytes::from(text.into_boxed_slice()), Tree::Lent(Weak::new()))
    }

    fn with(text: Bytes, tree: Tree) -> Self {
        #[expect(clippy::disallowed_types, reason = "see the module's comment")]
        let held = Mutex::new(Held { text: Text::Plain(text), tree });
        Self { held }
    }

    /// The same object; its tree stays after the first read.
    #[must_use]
    pub fn staying(&self) -> Self {
        Self::with(self.text(), Tree::Stays(self.held()))
    }

    /// An object that was just written as this text, and will probably be read soon.
    pub fn new(tree: Arc<Value>, text: Vec<u8>) -> Self {
        let length = text.len();
        let packed = Self::from_text(text);
        packed.hold(&tree);
        stay(tree, length);
        packed
    }

    /// Its JSON.
    pub fn text(&self) -> Bytes {
        match self.with_held(|held| held.text.clone()) {
            Text::Plain(text) => text,
            Text::Compressed(compressed) => compressed.text().into(),
        }
    }

    /// Bytes of its JSON.
    pub fn length(&self) -> usize {
        self.with_held(|held| match &held.text {
            Text::Plain(text) => text.len(),
            Text::Compressed(compressed) => compressed.length(),
        })
    }

    /// Keeps its text compressed from now on, if that saves half of it. For objects that are rarely read for a while: each reader gets its
    /// own copy of the text. Objects whose tree stays are left alone.
    pub fn compress(&self, models: &mut Models) {
        let plain = self.with_held(|held| match held {
            Held { text: Text::Plain(text), tree: Tree::Lent(_) } => Some(text.clone()),
            Held { text: Text::Plain(_) | Text::Compressed(_), .. } => None,
        });
        if let Some(compressed) = plain.and_then(|text| models.compress(&text)) {
            self.with_held(|held| held.text = Text::Compressed(compressed));
        }
    }

    /// Whether its text contains a word. The word must be one that JSON does not escape.
    pub fn mentions(&self, word: &str) -> bool {
        memchr::memmem::find(&self.text(), word.as_bytes()).is_some()
    }

    /// Its tree, which stays for a while.
    pub fn open(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| {
            let tree = self.parse();
            if self.hold(&tree) {
                stay(tree.clone(), self.length());
            }
            tree
        })
    }

    /// Its tree, which does not stay: for a reader that visits many objects once each.
    pub fn glance(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| {
            let tree = self.parse();
            self.hold(&tree);
            tree
        })
    }

    /// Its tree, perhaps without managed fields: for a reader that visits many objects once each.
    pub fn lean(&self) -> Arc<Value> {
        self.part(take::lean)
    }

    /// Its tree, perhaps without the members that `take` leaves out: for a reader that visits many objects once each.
    pub fn part(&self, take: fn(&str) -> Take) -> Arc<Value> {
        self.held().unwrap_or_else(|| Arc::new(part::taken(&self.text(), take)))
    }

    /// Its tree, perhaps with nothing but what [`part::identity`] reads: for a reader that visits many objects once each.
    pub fn identity(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| Arc::new(part::identity(&self.text())))
    }

    /// Its tree, perhaps with nothing but its kind and metadata: for a reader that visits many objects once each.
    pub fn head(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| Arc::new(part::head(&self.text())))
    }

    /// Its tree, perhaps with nothing but labels: for a reader that visits many objects once each.
    pub fn labelled(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| Arc::new(part::labels(&self.text())))
    }

    /// Its tree, perhaps without lists: for a reader that visits many objects once each.
    pub fn scalars(&self) -> Arc<Value> {
        self.held().unwrap_or_else(|| Arc::new(part::scalars(&self.text())))
    }

    fn with_held<T>(&self, look: impl FnOnce(&mut Held) -> T) -> T {
        look(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn held(&self) -> Option<Arc<Value>> {
        self.with_held(|held| match &held.tree {
            Tree::Lent(tree) => tree.upgrade(),
            Tree::Stays(tree) => tree.clone(),
        })
    }

    /// Remembers the tree. Returns whether the tree goes with its last reader.
    fn hold(&self, tree: &Arc<Value>) -> bool {
        self.with_held(|held| {
            match &mut held.tree {
                Tree::Lent(held) => *held = Arc::downgrade(tree),
                Tree::Stays(held) => *held = Some(tree.clone()),
            }
            matches!(held.tree, Tree::Lent(_))
        })
    }

    fn parse(&self) -> Arc<Value> {
        Arc::new(serde_json::from_slice(&self.text()).unwrap_or_default())
    }
}

/// The trees that stay, oldest first, with the bytes of their text.
struct Staying {
    trees: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
    /// Bytes of text that may stay.
    most: usize,
    /// Trees that were added since the last rest.
    fresh: usize,
}

impl Staying {
    const NONE: Self = Self { trees: VecDeque::new(), bytes: 0, most: STAY_WITHOUT_REST, fresh: 0 };
}

#[expect(clippy::disallowed_types, reason = "see the module's comment")]
static STAYING: Mutex<Staying> = Mutex::new(Staying::NONE);

/// Ends one retention period: trees that were added during it stay for another one, all others go. A process with a clock calls this every
/// few seconds; then more trees may stay between two calls.
pub fn rest() {
    let mut gone = Vec::new();
    {
        let mut staying = STAYING.lock().unwrap_or_else(PoisonError::into_inner);
        staying.most = STAY;
        while staying.trees.len() > staying.fresh
            && let Some((oldest, bytes)) = staying.trees.pop_front()
        {
            staying.bytes = staying.bytes.saturating_sub(bytes);
            gone.push(oldest);
        }
        staying.fresh = 0;
    }
    drop(gone);
}

fn stay(tree: Arc<Value>, bytes: usize) {
    let mut gone = Vec::new();
    {
        let mut staying = STAYING.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > staying.most / STAY_SHARE {
            return;
        }
        staying.bytes = staying.bytes.saturating_add(bytes);
        staying.trees.push_back((tree, bytes));
        staying.fresh = staying.fresh.saturating_add(1);
        while staying.bytes > staying.most
            && let Some((oldest, bytes)) = staying.trees.pop_front()
        {
            staying.bytes = staying.bytes.saturating_sub(bytes);
            gone.push(oldest);
        }
    }
    // freeing a tree takes a while, so it happens outside of the lock
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_who_look_get_the_same_tree_and_what_was_written_is_there_at_once() {
        let written = Arc::new(json!({"a": [1, {"b": null}]}));
        let packed = Packed::new(written.clone(), written.to_string().into_bytes());
        assert!(Arc::ptr_eq(&packed.open(), &written));
        let read = Packed::from_text(written.to_string().into_bytes());
        let first = read.glance();
        assert!(!Arc::ptr_eq(&first, &written) && first == written);
        assert!(Arc::ptr_eq(&first, &read.open()));
        assert_eq!(read.text(), r#"{"a":[1,{"b":null}]}"#);
    }

    #[test]
    fn a_compressed_object_is_read_as_before() {
        let of = |name: &str| json!({"kind": "K", "metadata": {"name": name, "labels": {"a": "b"}, "managedFields": [{"f:a": {}}]}, "spec": {"long": "x".repeat(300)}});
        let mut models = Models::default();
        for name in ["a", "b"] {
            let text = of(name).to_string();
            let packed = Packed::from_text(text.clone().into_bytes());
            let tree = packed.glance();
            packed.compress(&mut models);
            assert!(packed.with_held(|held| matches!(held.text, Text::Compressed(_))));
            assert_eq!((&*packed.text(), packed.length()), (text.as_bytes(), text.len()));
            assert!(Arc::ptr_eq(&packed.open(), &tree), "who looks at the time has the same tree");
            drop(tree);
            assert_eq!(*packed.open(), of(name));
            assert_eq!(packed.head()["metadata"]["name"], *name);
            assert!(packed.mentions(&format!("\"name\":\"{name}\"")) && !packed.mentions("nothing of it"));
            let again = packed.text();
            packed.compress(&mut models);
            assert_eq!(packed.text(), again);
        }
        let stays = Packed::from_text(of("c").to_string().into_bytes()).staying();
        stays.compress(&mut models);
        assert!(stays.with_held(|held| matches!(held.text, Text::Plain(_))));
    }

    #[test]
    fn a_number_that_is_read_and_written_again_is_the_same() {
        for text in [
            "0.1",
            "1.7976931348623157e308",
            "5e-324",
            "0.3054390556722895",
            "51.24817837550540",
            "18446744073709551615",
        ] {
            let read = Packed::from_text(text.as_bytes().to_vec());
            let number = read.glance().as_f64().expect("a number");
            let exact: f64 = text.parse().expect("a number");
            assert_eq!(number.to_bits(), exact.to_bits(), "{text}");
            let again = Packed::from_text(read.glance().to_string().into_bytes());
            assert_eq!(again.glance(), read.glance(), "{text}");
        }
    }

    #[test]
    fn trees_that_nobody_looks_at_go_but_for_the_last() {
        let glanced = Packed::from_text(b"{\"glanced\":1}".to_vec());
        drop(glanced.glance());
        assert!(glanced.held().is_none());
        let staying = glanced.staying();
        drop(staying.glance());
        assert!(staying.held().is_some());
        let opened = Packed::from_text(b"{\"opened\":1}".to_vec());
        drop(opened.open());
        let each = STAY_WITHOUT_REST / STAY_SHARE;
        let large = format!("\"{}\"", "x".repeat(each)).into_bytes();
        drop(Packed::from_text(large).open());
        assert!(opened.held().is_some());
        // other tests may displace it too, but never too late
        let filler = format!("\"{}\"", "x".repeat(each - 2)).into_bytes();
        for _ in 0..9 {
            drop(Packed::from_text(filler.clone()).open());
        }
        assert!(opened.held().is_none());
        let sums_up = || {
            let staying = STAYING.lock().unwrap();
            assert!(staying.bytes <= staying.most);
            assert_eq!(staying.bytes, staying.trees.iter().map(|(_, bytes)| bytes).sum::<usize>());
        };
        sums_up();
        // trees added since the last rest stay until the next one is over
        rest();
        drop(opened.open());
        rest();
        assert!(opened.held().is_some());
        rest();
        assert!(opened.held().is_none());
        sums_up();
        for _ in 0..9 {
            drop(Packed::from_text(filler.clone()).open());
        }
        assert!(STAYING.lock().unwrap().bytes > STAY_WITHOUT_REST, "more may stay");
    }
}
