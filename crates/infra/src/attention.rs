//! Wakes the controller for a machine when a connection to its host, pod or agent ends.
//!
//! A lost connection does not mean that the machine is gone. The controller asks the provider next; only the provider knows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Wakes the task of a machine by the name of its Node. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Attention(Arc<Mutex<BTreeMap<String, Arc<Notify>>>>);

impl Attention {
    fn wakes(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the controller check this Node's machine soon. Nodes without a machine are ignored.
    pub fn look_at(&self, node: &str) {
        if let Some(wake) = self.wakes().get(node) {
            wake.notify_one();
        }
    }

    /// Registers what wakes the machine of this Node.
    pub(crate) fn register(&self, node: String, wake: Arc<Notify>) {
        self.wakes().insert(node, wake);
    }

    /// Removes a Node's entry, unless a newer machine has registered that name.
    pub(crate) fn forget(&self, node: &str, wake: &Arc<Notify>) {
        let mut wakes = self.wakes();
        if wakes.get(node).is_some_and(|held| Arc::ptr_eq(held, wake)) {
            wakes.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn a_node_wakes_its_own_machine_and_the_newer_one_of_its_name() {
        let attention = Attention::default();
        let (one, other) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let is_woken = |wake: &Arc<Notify>| wake.notified().now_or_never().is_some();
        attention.register("n".into(), one.clone());
        attention.look_at("m");
        assert!(!is_woken(&one));
        attention.look_at("n");
        assert!(is_woken(&one));
        attention.register("n".into(), other.clone());
        attention.forget("n", &one);
        attention.look_at("n");
        assert!(is_woken(&other) && !is_woken(&one));
        attention.forget("n", &other);
        attention.look_at("n");
        assert!(!is_woken(&other));
    }
}
