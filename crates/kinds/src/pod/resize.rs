//! Whether the node of a pod can take it in another size. Source: `plugin/pkg/admission/podresize`.

use crate::kit::{at, int, text};
use crate::limits;
use api::quantity::Quantity;
use resource::Context;
use resource::status::{Cause, Status};
use serde_json::Value;

/// Refuses sizes for which the node is missing, too small, or of a kind that cannot do it.
///
/// # Errors
/// 403 in upstream's words.
pub fn admit(cx: &Context<'_>, new: &Value, old: &Value) -> Result<(), Status> {
    let name = text(new, "spec.nodeName");
    let generation = |pod: &Value| int(pod, "metadata.generation");
    if name.is_empty() || generation(new) == generation(old) {
        return Ok(());
    }
    let forbidden = |why: &str| Status::forbidden("", "pods", text(new, "metadata.name"), why);
    let Some(node) = (cx.lookup)("", "nodes", "", name) else {
        return Err(forbidden(&format!("node {name:?} not found")));
    };
    let refused = |why: &str, reason: &'static str| {
        Err(Status { causes: vec![Cause { reason, ..Cause::default() }], ..forbidden(why) })
    };
    let system = at(&node, "metadata.labels").get("kubernetes.io/os").and_then(Value::as_str);
    if let Some(system) = system.filter(|system| *system != "linux") {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return refused(&why, "UnsupportedPlatform");
    }
    let (wanted, has) = (limits::of_pod(at(new, "spec"), "requests"), limits::amounts(at(&node, "status.allocatable")));
    let lacking = ["cpu", "memory"].into_iter().filter_map(|resource| {
        let of = |amounts: &limits::Amounts| amounts.get(resource).copied().unwrap_or(Quantity::units(0));
        let (wanted, has) = (of(&wanted), of(&has));
        let shown = |amount: Quantity| if resource == "cpu" { amount.milli_value() } else { amount.value() };
        (wanted > has).then(|| format!("{resource}, requested: {}, allocatable: {}", shown(wanted), shown(has)))
    });
    let lacking: Vec<String> = lacking.collect();
    if lacking.is_empty() {
        return Ok(());
    }
    refused(&format!("node didn't have enough allocatable resources: {}", lacking.join("; ")), "NodeCapacity")
}
