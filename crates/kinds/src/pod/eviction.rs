//! Evicting a pod: deleting it, unless a disruption budget needs it.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.36.

use super::{stamp, success, update};
use crate::kit::{at, child, has_condition, int, items, map, text};
use objects::selector::Selector;
use resource::status::{Cause, Status};
use resource::{Beside, Context, Outcome};
use serde_json::{Value, json};

/// A pod on its way out is not told of more than so many disruptions by one budget.
const MAX_DISRUPTED: usize = 2000;

fn too_many(cause: String) -> Status {
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let causes = vec![Cause { reason: "DisruptionBudget", message: cause, ..Cause::default() }];
    Status { causes, ..Status::new(429, "TooManyRequests", why) }
}

/// The outcome of POST `eviction`.
pub fn evict(cx: &Context<'_>, pod: &Value, body: &Value) -> Result<Outcome, Status> {
    let name = text(pod, "metadata.name");
    let mut options = at(body, "deleteOptions").clone();
    if !options.is_object() {
        options = json!({});
    }
    // whatever it says: what it says wrong is found when the pod is deleted
    let dry = cx.dry_run || !items(&options, "dryRun").is_empty();
    let reply = success();
    let mut beside = Vec::new();
    let mut spared = None;
    let ignorable = matches!(text(pod, "status.phase"), "Succeeded" | "Failed" | "Pending" | "")
        || api::object::is_terminating(pod);
    if !ignorable {
        match spend_budget(cx, pod, dry)? {
            Budget::Untouched => {}
            Budget::Spent(budget) => beside.push(budget),
            Budget::Spared(name) => spared = Some(name),
        }
    }
    let wanted = text(&options, "preconditions.uid");
    let uid = text(pod, "metadata.uid");
    let is_another = !wanted.is_empty() && wanted != uid;
    if let Some(budget) = spared
        && is_another
        && at(&options, "preconditions.resourceVersion").is_null()
        && items(&options, "dryRun").iter().all(|what| what == "All")
    {
        // upstream deletes a spared pod on condition that it has not changed, and takes every conflict for such a change
        return Err(processing(&budget));
    }
    if !dry {
        if is_another {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
                 been deleted and then recreated"
            );
            return Err(Status::conflict("", "Pod", name, &why));
        }
        let wanted = text(&options, "preconditions.resourceVersion");
        let version = text(pod, "metadata.resourceVersion");
        if !wanted.is_empty() && wanted != version {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            );
            return Err(Status::conflict("", "Pod", name, &why));
        }
        if let Some(preconditions) = options.get_mut("preconditions").and_then(Value::as_object_mut) {
            // It is about the pod as it was; marking it makes a new version.
            preconditions.remove("resourceVersion");
        }
        let mut marked = pod.clone();
        update::mark_evicted(&mut marked, cx.now);
        beside.push(Beside { group: "", plural: "pods", object: marked });
    } else if items(&options, "dryRun").is_empty() {
        map(&mut options).insert("dryRun".to_owned(), json!(["All"]));
    }
    Ok(Outcome::Delete { options, reply, beside })
}

/// What an eviction takes from the pod's budget.
enum Budget {
    /// Nothing: the pod has none, or the eviction is a trial.
    Untouched,
    /// One disruption; the budget as it is then.
    Spent(Beside),
    /// Nothing, as the pod is not healthy anyway; the budget's name.
    Spared(String),
}

fn processing(budget: &str) -> Status {
    let cause = format!("The disruption budget {budget} is still being processed by the server.");
    Status { details: Some(json!({"retryAfterSeconds": 10})), ..too_many(cause) }
}

/// Takes one disruption from the pod's budget, if it has one.
fn spend_budget(cx: &Context<'_>, pod: &Value, dry: bool) -> Result<Budget, Status> {
    let labels = at(pod, "metadata.labels");
    let budgets: Vec<_> = (cx.list)("policy", "poddisruptionbudgets", cx.namespace)
        .into_iter()
        .filter(|budget| Selector::read(at(budget, "spec.selector")).is_some_and(|selector| selector.matches(labels)))
        .collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(Budget::Untouched),
        [one] => one,
        _ => {
            return Err(Status::new(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let count = |field: &str| int(budget, &format!("status.{field}")).unwrap_or_default();
    if !has_condition(pod, "Ready") {
        let healthy = count("currentHealthy") >= count("desiredHealthy") && count("desiredHealthy") > 0;
        if text(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow" || healthy {
            return Ok(Budget::Spared(text(budget, "metadata.name").to_owned()));
        }
    }
    let name = text(budget, "metadata.name");
    if count("observedGeneration") < int(budget, "metadata.generation").unwrap_or_default() {
        return Err(processing(name));
    }
    let allowed = count("disruptionsAllowed");
    if allowed < 0 {
        return Err(Status::forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative"));
    }
    let disrupted = at(budget, "status.disruptedPods").as_object().map_or(0, serde_json::Map::len);
    if disrupted > MAX_DISRUPTED {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden("policy", "poddisruptionbudget", name, why));
    }
    if allowed == 0 {
        let mut cause = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            count("desiredHealthy"),
            count("currentHealthy")
        );
        let failing = crate::kit::condition(budget, "DisruptionAllowed").filter(|c| text(c, "reason") == "SyncFailed");
        if let Some(condition) = failing {
            cause = format!("{cause}. {}", text(condition, "message"));
        }
        return Err(too_many(cause));
    }
    if dry {
        return Ok(Budget::Untouched);
    }
    let mut spent = (**budget).clone();
    let left = allowed - 1;
    let status = child(&mut spent, "status");
    status["disruptionsAllowed"] = left.into();
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        && left == 0
    {
        for condition in conditions.iter_mut().filter(|c| text(c, "type") == "DisruptionAllowed") {
            condition["status"] = "False".into();
            condition["reason"] = "InsufficientPods".into();
            condition["lastTransitionTime"] = stamp(cx.now);
        }
    }
    map(child(status, "disruptedPods")).insert(text(pod, "metadata.name").to_owned(), stamp(cx.now));
    Ok(Budget::Spent(Beside { group: "policy", plural: "poddisruptionbudgets", object: spent }))
}
