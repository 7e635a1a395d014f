//! The machine of a laptop's control plane: which limits it can enforce on pods, and which it cannot.

use crate::facts::Facts;
use crate::finding::{Findings, Remedy, Severity};
use api::node::{Enforced, LIMITS, Limited};
use api::object::{annotation, meta};
use client::codes::ErrorCode;

/// Reports limits that the kernel does not enforce: a job may exceed them, for a moment or for ever.
pub(super) fn limits(facts: &Facts) -> Findings {
    let mut found = Findings::new("nodes");
    if facts.embedded().is_none() {
        return found;
    }
    for node in facts.nodes.items() {
        let object = format!("Node/{}", meta(node, "name"));
        let Some(limits) = annotation(node, LIMITS).and_then(Limited::parse) else { continue };
        let memory = match limits.memory {
            Enforced::ByCgroup => "limits of memory are enforced",
            Enforced::ByLooking => "limits of memory are enforced by looking once a second",
            Enforced::No => "limits of memory are not enforced",
        };
        let cpu = match limits.cpu {
            Enforced::ByCgroup => "those of processors are enforced",
            Enforced::ByLooking | Enforced::No => "those of processors are not enforced",
        };
        if (limits.memory, limits.cpu) == (Enforced::ByCgroup, Enforced::ByCgroup) {
            found.ok(object, "limits of memory and processors are enforced");
            continue;
        }
        let remedy = Remedy::why(
            "to have the kernel enforce both, restart the control plane in a scope that can use cgroup v2",
            "systemd-run --user --scope -p Delegate=yes trainyard up",
        );
        let text = format!("{memory}, {cpu}: {}", limits.why_not);
        found.add(ErrorCode::LimitsNotEnforced, Severity::Warning, object, text, remedy);
    }
    found
}
