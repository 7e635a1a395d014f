//! The machine of a laptop's control plane: which limits it can enforce on pods, and which it cannot.

use crate::doctor::facts::{Facts, Findings};
use api::object::{annotation, meta};

/// Says whether limits of memory and processors are enforced, and why not; the node agent writes it.
const LIMITS: &str = "trainyard.dev/limits";

/// A machine without a cgroup to lend is not faulty: this is information, not a warning.
pub(super) fn limits(facts: &Facts) -> Findings {
    let mut found = Findings::new("nodes");
    if facts.embedded().is_none() {
        return found;
    }
    for node in facts.nodes.items() {
        let text = match annotation(node, LIMITS) {
            Some("enforced") => "limits of memory and processors are enforced".to_owned(),
            Some(why_not) => format!("limits are {why_not}"),
            None => continue,
        };
        found.ok(format!("Node/{}", meta(node, "name")), text);
    }
    found
}
