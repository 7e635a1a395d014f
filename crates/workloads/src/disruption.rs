//! The status of PodDisruptionBudgets: how many of the selected pods may be evicted now.
//!
//! The API server's eviction subresource reads `disruptionsAllowed`, lowers it, and notes the pod in `disruptedPods`; here
//! that note is dropped once the pod is being deleted, or was not deleted for two minutes.

use api::object::{self, Gvk, Key, Target};
use jiff::{SignedDuration, Timestamp};
use objects::selector::Selector;
use reconcile::{Decision, Event, EventType, Next, Primary, Reconciler, StatusWrite, Wakes, Watch, World};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How long an evicted pod may take to be deleted before the eviction is forgotten.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const REPORTER: &str = "controllermanager";

fn budgets() -> Gvk {
    Gvk::new("policy", "v1", "PodDisruptionBudget")
}

fn pods() -> Gvk {
    Gvk::new("", "v1", "Pod")
}

/// Keeps PodDisruptionBudgets up to date.
#[derive(Clone, Copy, Debug, Default)]
pub struct DisruptionController;

/// A budget and the pods that it selects, by name.
#[derive(Clone, Debug)]
pub struct Observed {
    budget: Arc<Value>,
    pods: Vec<Arc<Value>>,
}

/// Budgets of the pod's namespace that select it.
fn budgets_of_pod(world: &dyn World, pod: &Value) -> Vec<Target> {
    let budgets = world.list(&budgets(), Some(object::meta(pod, "namespace")));
    let selects = |budget: &&Arc<Value>| {
        Selector::read(&budget["spec"]["selector"]).is_some_and(|selector| selector.selects(pod))
    };
    budgets.iter().filter(selects).map(|budget| Target::of(budget)).collect()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A selector as Go prints the type, which upstream does in an event.
fn go_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|expression| {
        let values = expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let (key, operator) = (object::text(expression, "key"), object::text(expression, "operator"));
        let values = values.collect::<Vec<_>>().join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

/// What is odd about the selected pods, said whenever the status is written.
fn remarks(budget: &Value, pods: &[Arc<Value>]) -> Vec<Event> {
    let event = |kind, reason: &str, message: String| Event {
        regarding: None,
        kind,
        reason: reason.to_owned(),
        message,
        reporter: REPORTER,
        action: "",
    };
    let mut remarks = Vec::new();
    if pods.is_empty() {
        remarks.push(event(EventType::Normal, "NoPods", "No matching pods found".to_owned()));
    }
    if counts_by_scale(budget) && pods.iter().any(|pod| object::controller_of(pod).is_none()) {
        let selector = go_text(&budget["spec"]["selector"]);
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
             status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
             pods please set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        remarks.push(event(EventType::Warning, "UnmanagedPods", message));
    }
    remarks
}

/// Whether it speaks in shares, or of unavailable pods: then the scale of the pods' controllers is needed.
fn counts_by_scale(budget: &Value) -> bool {
    let spec = &budget["spec"];
    spec.get("maxUnavailable").is_some_and(|value| !value.is_null()) || spec["minAvailable"].is_string()
}

/// How many pods are meant to be there, and how many of them healthy.
///
/// A whole number of pods is taken as it is. Shares, and any `maxUnavailable`, are of the scale of the pods' controllers;
/// none of the kinds that own pods here has a scale, so the budget's condition says, as upstream's does, that it cannot be counted.
fn demand(budget: &Value, pods: &[Arc<Value>]) -> Result<(i64, i64), String> {
    if counts_by_scale(budget) {
        return match pods.iter().find(|pod| object::controller_of(pod).is_some()) {
            Some(pod) => Err(format!("found no controllers for pod {:?}", object::meta(pod, "name"))),
            None => Ok((0, 0)),
        };
    }
    Ok((pods.len() as i64, budget["spec"]["minAvailable"].as_i64().unwrap_or(0)))
}

impl Reconciler for DisruptionController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "disruption"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(budgets())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch { gvk: pods(), wakes: Wakes::Keys(budgets_of_pod) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let budget = world.get(&budgets(), &target.key)?;
        let selector = Selector::read(&budget["spec"]["selector"]);
        let mut selected = Vec::new();
        world.each(&pods(), Some(&target.key.namespace), &mut |pod| {
            if selector.as_ref().is_some_and(|selector| selector.selects(pod)) {
                selected.push(pod.clone());
            }
        });
        let pods = selected;
        Some(Observed { budget, pods })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let Observed { budget, pods } = observed;
        let mut decision = Decision::nothing();
        let generation = budget["metadata"]["generation"].as_i64().unwrap_or(0);
        let before = &budget["status"];
        let mut status = before.as_object().cloned().unwrap_or_default();
        let (allowed, reason, message) = match demand(budget, pods) {
            Ok((expected, desired)) => {
                let (evicting, recheck) = evicting(before, pods, now);
                decision.next = recheck.map_or(Next::AwaitChange, Next::After);
                let healthy = |pod: &&Arc<Value>| {
                    is_ready(pod) && !object::is_terminating(pod) && !evicting.contains_key(object::meta(pod, "name"))
                };
                let healthy = pods.iter().filter(healthy).count() as i64;
                let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
                for (member, value) in
                    [("currentHealthy", healthy), ("desiredHealthy", desired), ("expectedPods", expected)]
                {
                    status.insert(member.to_owned(), value.into());
                }
                status.insert("observedGeneration".to_owned(), generation.into());
                if evicting.is_empty() {
                    status.remove("disruptedPods");
                } else {
                    status.insert("disruptedPods".to_owned(), evicting.into());
                }
                let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
                (allowed, reason, String::new())
            }
            Err(fault) => {
                let message = format!("Failed to calculate the number of expected pods: {fault}");
                let told = before["conditions"][0]["message"] == fault.as_str();
                decision.events.extend((!told).then(|| Event {
                    regarding: None,
                    kind: EventType::Warning,
                    reason: "CalculateExpectedPodCountFailed".to_owned(),
                    message,
                    reporter: REPORTER,
                    action: "",
                }));
                (0, "SyncFailed", fault)
            }
        };
        status.insert("disruptionsAllowed".to_owned(), allowed.into());
        let at = Key::of(budget);
        let observed_generation = status.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0);
        let condition = condition(before, allowed > 0, reason, &message, observed_generation, now);
        status.insert("conditions".to_owned(), condition);
        decision.report.note(format!("{at}: {allowed} disruptions allowed"));
        let status = Value::Object(status);
        if status != *before {
            decision.events.extend(remarks(budget, pods));
        }
        decision.status = (status != *before).then(|| {
            let mut changed = (**budget).clone();
            changed["status"] = status;
            StatusWrite::Replace(changed)
        });
        decision
    }
}

/// The pods whose eviction was allowed and that are still there, and when to look at them again.
fn evicting(status: &Value, pods: &[Arc<Value>], now: Timestamp) -> (Map<String, Value>, Option<SignedDuration>) {
    let (mut kept, mut recheck) = (Map::new(), None);
    for pod in pods.iter().filter(|pod| !object::is_terminating(pod)) {
        let name = object::meta(pod, "name");
        let since = &status["disruptedPods"][name];
        let Some(at) = since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { continue };
        let left = api::time::left(DELETION_TIMEOUT, at, now);
        if left.is_positive() {
            kept.insert(name.to_owned(), since.clone());
            recheck = recheck.into_iter().chain([left]).min();
        }
    }
    (kept, recheck)
}

/// The list of conditions with the one about evictions renewed.
fn condition(before: &Value, holds: bool, reason: &str, message: &str, generation: i64, now: Timestamp) -> Value {
    let word = if holds { "True" } else { "False" };
    let mut conditions = before["conditions"].as_array().cloned().unwrap_or_default();
    let held = conditions.iter().position(|condition| condition["type"] == "DisruptionAllowed");
    let since = held.map(|at| &conditions[at]).filter(|condition| condition["status"] == word);
    let since = since.map(|condition| condition["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    let new = json!({"type": "DisruptionAllowed", "status": word, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": since});
    match held {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
    conditions.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;

    fn pod(name: &str, ready: bool, controlled: bool) -> Value {
        let word = if ready { "True" } else { "False" };
        let owner = json!([{"kind": "Job", "name": "j", "uid": "u", "controller": true}]);
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": name, "labels": {"app": "k"},
            "ownerReferences": if controlled { owner } else { json!([]) }},
            "status": {"conditions": [{"type": "Ready", "status": word}]}})
    }

    fn budget(spec: Value) -> Value {
        let mut spec = spec;
        spec["selector"] = json!({"matchLabels": {"app": "k"}});
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "ns", "name": "b"}, "spec": spec})
    }

    fn target() -> Target {
        Target { gvk: budgets(), key: Key::new("ns", "b") }
    }

    fn numbers(model: &Model) -> [i64; 4] {
        let status = model.one("PodDisruptionBudget", "b").expect("it is there")["status"].clone();
        ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
            .map(|n| status[n].as_i64().unwrap_or(-1))
    }

    #[test]
    fn healthy_beyond_the_minimum_may_go() {
        let mut model = Model::of([budget(json!({"minAvailable": 1})), pod("a", true, true)]);
        model.run(&DisruptionController, &target());
        assert_eq!(numbers(&model), [0, 1, 1, 1]);
        model.put(pod("b", true, true));
        model.put(pod("c", false, true));
        model.run(&DisruptionController, &target());
        assert_eq!(numbers(&model), [1, 2, 1, 3]);
        // the server allowed one to be evicted
        let now = model.now.to_string();
        model.change(&budgets(), &target().key, |budget| {
            merge_status(budget, json!({"disruptionsAllowed": 0, "disruptedPods": {"a": now}}));
        });
        assert_eq!(model.run(&DisruptionController, &target()), Next::After(DELETION_TIMEOUT));
        assert_eq!(numbers(&model), [0, 1, 1, 3]);
        model.pass(120);
        model.run(&DisruptionController, &target());
        assert_eq!(numbers(&model), [1, 2, 1, 3]);
        model.delete(&Target { gvk: pods(), key: Key::new("ns", "a") }, reconcile::Propagation::Background, None);
        model.run(&DisruptionController, &target());
        assert_eq!(numbers(&model), [0, 1, 1, 2]);
    }

    fn merge_status(budget: &mut Value, over: Value) {
        reconcile::testing::merge(budget, &json!({"status": over}));
    }

    #[test]
    fn odd_pods_are_remarked_upon() {
        let mut model = Model::of([budget(json!({"maxUnavailable": 1})), pod("a", true, false)]);
        model.run(&DisruptionController, &target());
        let start = "Warning UnmanagedPods: Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:\
             map[string]string{app: k,},MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged.";
        assert!(model.events[0].starts_with(start), "{:?}", model.events);
        let mut model = Model::of([budget(json!({"minAvailable": 1}))]);
        model.run(&DisruptionController, &target());
        assert_eq!(model.events, ["Normal NoPods: No matching pods found"]);
    }

    #[test]
    fn shares_of_what_has_no_scale_allow_nothing() {
        let mut model = Model::of([budget(json!({"maxUnavailable": 1})), pod("a", true, true)]);
        model.run(&DisruptionController, &target());
        let status = model.one("PodDisruptionBudget", "b").expect("it is there")["status"].clone();
        assert_eq!(
            (&status["disruptionsAllowed"], &status["conditions"][0]["reason"]),
            (&json!(0), &json!("SyncFailed"))
        );
        let told = "Warning CalculateExpectedPodCountFailed: Failed to calculate the number of expected pods: found no controllers for pod \"a\"";
        assert_eq!(model.events, [told]);
    }
}
