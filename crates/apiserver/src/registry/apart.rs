//! Runs work that may take long apart from the threads that serve sockets.
//!
//! Rules and policies are programs that users write. Their cost is bounded, but what the bound allows may take a second, and a
//! thread that computes for so long shakes no hands and sends no event meanwhile.

use super::{Core, Target, catalog};
use std::num::NonZeroUsize;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Bodies from this size on are read and merged apart, too.
const LARGE_BYTES: usize = 64 << 10;

/// Lets as much of such work go on at a time as there are processors; the rest waits in order.
pub(super) struct Places(Semaphore);

impl Default for Places {
    fn default() -> Self {
        Self(Semaphore::new(std::thread::available_parallelism().map_or(2, NonZeroUsize::get).max(2)))
    }
}

impl Core {
    /// Whether a write to this kind, with a body of so many bytes, may run programs that users wrote, or much else.
    pub(crate) fn may_take_long(&self, target: &Target, bytes: usize) -> bool {
        let group = target.served.resource.group.as_str();
        bytes >= LARGE_BYTES
            || matches!(group, "apiextensions.k8s.io" | "admissionregistration.k8s.io")
            || target.served.schema().has_rules()
            || self.has_any("admissionregistration.k8s.io", "validatingadmissionpolicybindings")
            || self.has_any("admissionregistration.k8s.io", "mutatingadmissionpolicybindings")
    }

    fn has_any(&self, group: &str, plural: &str) -> bool {
        self.store.snapshot(&catalog::bucket(group, plural)).iter(None, None).next().is_some()
    }

    /// Does some work, apart from other requests where `long` says that it may take long: on a runtime of several threads these go on
    /// meanwhile. A runtime of one thread (the simulator's) does it in its turn.
    pub(crate) async fn apart<T>(&self, long: bool, work: impl FnOnce() -> T) -> T {
        let threads = Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
        if !(long && threads) {
            return work();
        }
        // never closed: without a place it would go on all the same
        let _place = self.places.0.acquire().await;
        tokio::task::block_in_place(work)
    }
}
