//! Lists and watches for readers in this process: the very objects that the store holds, neither encoded nor copied.
//!
//! What a reader gets is what a list or a watch of all objects of a kind shows to a user who may see them all.

use super::{Core, Served};
use api::object::Gvk;
use objects::packed::Packed;
use std::sync::Arc;
use std::time::Duration;
use store::{Revision, Watcher};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a reader follows before it has to ask anew, as watches over HTTP end now and then.
const LASTS: Duration = Duration::from_secs(290);

/// What has become of an object.
pub enum Change {
    /// It is like this now.
    Is(Arc<Packed>),
    /// It is gone, and was like this.
    Was(Arc<Packed>),
}

/// What has happened since a reader last asked.
pub enum Followed {
    /// Up to here it has heard everything.
    Changes(Vec<Change>, Revision),
    /// It asks anew for what happens from here on.
    Ended(Revision),
    /// Some of it is forgotten: the reader lists again.
    Forgotten,
}

/// Follows the objects of a kind.
pub struct Following {
    served: Arc<Served>,
    watcher: Watcher,
    ended: CancellationToken,
    until: Instant,
}

impl Core {
    /// A kind whose objects are in the store; `None` for all others.
    fn stored_kind(&self, gvk: &Gvk) -> Option<Arc<Served>> {
        let catalog = self.catalog();
        let mut kinds = catalog.of(&gvk.group, &gvk.version);
        kinds.find(|served| served.resource.kind == gvk.kind && served.live.is_none()).cloned()
    }

    /// Whether a kind's objects are in the store.
    pub fn stores(&self, gvk: &Gvk) -> bool {
        self.stored_kind(gvk).is_some()
    }

    /// All objects of a kind, and their revision; `None` where the store has no such kind.
    pub fn everything(&self, gvk: &Gvk) -> Option<(Vec<Arc<Packed>>, Revision)> {
        let served = self.stored_kind(gvk)?;
        let snapshot = self.store.snapshot(&served.bucket);
        let objects = snapshot.iter(None, None).map(|entry| served.packed(entry)).collect();
        Some((objects, snapshot.revision))
    }

    /// Follows a kind from a revision on; `None` where the store has no such kind, or has forgotten what happened since.
    pub fn follow(&self, gvk: &Gvk, from: Revision) -> Option<Following> {
        let served = self.stored_kind(gvk)?;
        let watcher = self.store.watch(&served.bucket, from).ok()?;
        let ended = served.custom.as_ref().map(|custom| custom.ended.clone()).unwrap_or_default();
        Some(Following { served, watcher, ended, until: api::time::after(Instant::now(), LASTS) })
    }
}

impl Following {
    /// Waits until something happens.
    pub async fn next(&mut self) -> Followed {
        let batch = tokio::select! {
            batch = self.watcher.next() => batch,
            () = self.ended.cancelled() => return Followed::Ended(self.watcher.revision()),
            () = tokio::time::sleep_until(self.until) => return Followed::Ended(self.watcher.revision()),
        };
        let Ok(batch) = batch else { return Followed::Forgotten };
        if batch.events.is_empty() {
            // the store is gone
            return Followed::Ended(batch.revision);
        }
        let change = |event: &store::Event| {
            let object = self.served.packed(&event.entry);
            if event.deleted { Change::Was(object) } else { Change::Is(object) }
        };
        Followed::Changes(batch.events.iter().map(change).collect(), batch.revision)
    }
}
