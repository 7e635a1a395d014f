//! Wakes the controller for a machine when a connection to its host, pod or agent ends.
//!
//! A lost connection does not mean that the machine is gone. The controller asks the provider next; only the provider knows.

use crate::machine_controller::MachineWakes;
use api::object::Key;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Pause between the end of a connection and the look at its machine. So an agent that keeps ending is looked at twice a second at most.
const SETTLE: Duration = Duration::from_millis(500);

/// Wakes the loop of a machine by the name of its Node. Clones share one list.
#[derive(Clone, Default)]
pub struct Attention(Arc<Mutex<Vec<MachineWakes>>>);

impl Attention {
    fn all(&self) -> MutexGuard<'_, Vec<MachineWakes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the controller check this Node's machine soon. Nodes without a machine are ignored.
    pub fn look_at(&self, node: &str) {
        for wakes in self.all().iter() {
            machines_of(node).for_each(|key| wakes.wake(&key, SETTLE));
        }
    }

    /// Adds the handle that wakes a provider's loop.
    pub(crate) fn wakes(&self, wakes: MachineWakes) {
        self.all().push(wakes);
    }
}

/// The machines whose Node may have this name (see `managed::machine::node_of`). One too many does no harm.
fn machines_of(node: &str) -> impl Iterator<Item = Key> {
    let elsewhere = node.split_once('.').map(|(namespace, name)| Key::new(namespace, name));
    elsewhere.into_iter().chain([Key::new("default", node)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use managed::machine::node_of;

    #[test]
    fn a_node_names_its_machine() {
        for (namespace, name) in [("default", "dev-0"), ("default", "a.b"), ("team", "dev-0"), ("team", "a.b")] {
            let node = node_of(namespace, name);
            assert!(machines_of(&node).any(|key| key == Key::new(namespace, name)), "{node}");
        }
    }
}
