//! Lines of watches, shared by all watches of the same thing in the same form.
//!
//! Watchers read an event at about the same time, so few lines need to be kept, and a client that reads nothing holds
//! lines that others hold, too.

use crate::negotiate::{Encoding, Form};
use crate::registry::Served;
use crate::table::Include;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use store::Revision;

/// Bytes of lines kept.
const KEPT: usize = 2 << 20;

/// What an event is to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
    /// The object is there, but no longer selected.
    Left,
}

impl Change {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted | Self::Left => "DELETED",
        }
    }
}

/// A kind as it is served at present; another one after its definition has changed.
#[derive(Clone)]
pub(super) struct Kind(pub Arc<Served>);

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// An event, by its revision, in one of the ways in which watches show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub kind: Kind,
    pub revision: Revision,
    pub change: Change,
    pub encoding: Encoding,
    pub form: Form,
    pub form_version: &'static str,
    pub include: Include,
    /// With the table's columns, as the first line of a watch is.
    pub columns: bool,
}

/// A line that is being made, or is made.
type Cell = Arc<OnceLock<Bytes>>;

#[derive(Default)]
struct Inner {
    cells: HashMap<View, Cell>,
    /// Those that are made, oldest first.
    made: VecDeque<(View, usize)>,
    bytes: usize,
}

/// The newest lines.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Inner>);

impl Lines {
    /// The line, made by its first reader.
    pub(super) fn get(&self, view: View, make: impl FnOnce() -> Bytes) -> Bytes {
        // nothing that holds the lock panics
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = lock().cells.entry(view.clone()).or_default().clone();
        let mut mine = false;
        let line = cell.get_or_init(|| {
            mine = true;
            make()
        });
        if mine {
            let mut inner = lock();
            inner.bytes = inner.bytes.saturating_add(line.len());
            inner.made.push_back((view, line.len()));
            while inner.bytes > KEPT
                && inner.made.len() > 1
                && let Some((oldest, bytes)) = inner.made.pop_front()
            {
                inner.cells.remove(&oldest);
                inner.bytes = inner.bytes.saturating_sub(bytes);
            }
        }
        line.clone()
    }

    #[cfg(test)]
    fn held(&self) -> (usize, usize, usize) {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.cells.len(), inner.made.len(), inner.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_made_once_and_the_oldest_are_let_go() {
        let served = kinds::resources().into_iter().find(|r| r.plural == "configmaps").map(Served::builtin);
        let served = Arc::new(served.expect("it is served"));
        let lines = Lines::default();
        let mut made = 0;
        let first = View {
            kind: Kind(served),
            revision: 0,
            change: Change::Added,
            encoding: Encoding::Json,
            form: Form::Object,
            form_version: "v1",
            include: Include::None,
            columns: false,
        };
        for revision in 0..100 {
            for _ in 0..50 {
                let view = View { revision, ..first.clone() };
                let line = lines.get(view, || {
                    made += 1;
                    vec![b'x'; 100_000].into()
                });
                assert_eq!(line.len(), 100_000);
            }
        }
        assert_eq!(made, 100);
        assert_eq!(lines.held(), (20, 20, 2_000_000));
        let table = View { revision: 99, form: Form::Table, ..first };
        assert_eq!(lines.get(table, || Bytes::from_static(b"row")), "row");
    }
}
