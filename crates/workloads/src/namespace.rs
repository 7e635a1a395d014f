//! The end of a namespace: everything in it goes, then the namespace itself.
//!
//! Pods go first, for they may need the rest to end in order; as upstream, the conditions do not speak of them. Then, while
//! something is left that finalizers hold, they say what. The finalizer `kubernetes` in the spec goes last, through the
//! subresource `finalize`.

use crate::plurals;
use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Op, Primary, Reconciler, StatusWrite, Wakes, Watch, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const FINALIZER: &str = "kubernetes";

fn namespaces() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

/// Empties namespaces that are being deleted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceController;

/// A namespace that is being deleted, and what is left in it.
#[derive(Clone, Debug)]
pub struct Observed {
    namespace: Arc<Value>,
    /// By `resource.group`.
    left: BTreeMap<String, Left>,
}

const PODS: &str = "pods.";

/// What is left of one kind.
#[derive(Clone, Debug)]
struct Left {
    gvk: Gvk,
    count: usize,
    /// Of those, the ones whose deletion has not been asked for yet.
    untold: usize,
    finalizers: BTreeMap<String, usize>,
}

/// The namespace of a changed object, where it is being deleted.
fn terminating_namespace(world: &dyn World, object: &Value) -> Vec<Target> {
    let key = Key::new("", object::meta(object, "namespace"));
    let namespace = if key.name.is_empty() { None } else { world.get(&namespaces(), &key) };
    let terminating = namespace.filter(|namespace| object::is_terminating(namespace));
    terminating.map(|_| Target { gvk: namespaces(), key }).into_iter().collect()
}

impl Reconciler for NamespaceController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "namespace"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(namespaces())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch::every(Wakes::Keys(terminating_namespace))]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let namespace = world.get(&namespaces(), &target.key)?;
        if !object::is_terminating(&namespace) {
            return None;
        }
        let mut left = BTreeMap::new();
        for gvk in world.kinds() {
            let objects = world.list(&gvk, Some(&target.key.name));
            if objects.is_empty() {
                continue;
            }
            let mut finalizers = BTreeMap::new();
            for object in &objects {
                let held = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
                held.for_each(|finalizer| *finalizers.entry(finalizer.to_owned()).or_default() += 1);
            }
            let untold = objects.iter().filter(|object| !object::is_terminating(object)).count();
            let name = format!("{}.{}", plurals::resource(world, &gvk), gvk.group);
            left.insert(name, Left { gvk, count: objects.len(), untold, finalizers });
        }
        Some(Observed { namespace, left })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let Observed { namespace, left } = observed;
        let mut decision = Decision::nothing();
        let spec_finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !spec_finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return decision;
        }
        let name = object::meta(namespace, "name");
        let delete = |gvk: &Gvk| Op::DeleteCollection { gvk: gvk.clone(), namespace: name.to_owned() };
        let now_due = |of: &&Left| of.untold > 0 && (of.gvk.kind == "Pod" || !left.contains_key(PODS));
        let due: Vec<&Left> = left.values().filter(now_due).collect();
        if !due.is_empty() {
            decision.report.note(format!("{} kinds of objects are to be deleted", due.len()));
            decision.writes.extend(due.iter().map(|left| delete(&left.gvk).into()));
        } else if left.is_empty() {
            decision.report.note("nothing is left in it");
            let mut ended = (**namespace).clone();
            let kept: Vec<Value> = spec_finalizers.into_iter().filter(|finalizer| finalizer != FINALIZER).collect();
            ended["spec"]["finalizers"] = kept.into();
            // events are in no view: nobody waits for them
            decision.writes.push(delete(&Gvk::new("", "v1", "Event")).into());
            let target = Target { gvk: namespaces(), key: Key::of(namespace) };
            decision.writes.push(Op::Subresource { target, subresource: "finalize", object: ended }.into());
        } else {
            decision.report.note("waiting for what finalizers or grace periods hold");
            let nothing = BTreeMap::new();
            decision.status = status(namespace, if left.contains_key(PODS) { &nothing } else { left }, now);
        }
        decision
    }
}

/// What the namespace's conditions say, where they do not say it already.
fn status(namespace: &Value, left: &BTreeMap<String, Left>, now: Timestamp) -> Option<StatusWrite> {
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for (finalizer, count) in left.values().flat_map(|left| &left.finalizers) {
        *finalizers.entry(finalizer).or_default() += count;
    }
    let join = |parts: Vec<String>| parts.join(", ");
    let resources =
        join(left.iter().map(|(name, left)| format!("{name} has {} resource instances", left.count)).collect());
    let holders =
        join(finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect());
    let finalizers_remaining = if finalizers.is_empty() {
        (false, "ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned())
    } else {
        let message = format!("Some content in the namespace has finalizers remaining: {holders}");
        (true, "SomeFinalizersRemain", message)
    };
    let done = |reason, message: &str| (false, reason, message.to_owned());
    let resources_remaining = if left.is_empty() {
        done("ContentRemoved", "All content successfully removed")
    } else {
        (true, "SomeResourcesRemain", format!("Some resources are remaining: {resources}"))
    };
    let wanted = [
        ("NamespaceDeletionDiscoveryFailure", done("ResourcesDiscovered", "All resources successfully discovered")),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            done("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            done("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        ),
        ("NamespaceContentRemaining", resources_remaining),
        ("NamespaceFinalizersRemaining", finalizers_remaining),
    ];
    let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions = before.clone();
    for (kind, (holds, reason, message)) in wanted {
        let word = if holds { "True" } else { "False" };
        let at = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut new =
            json!({"type": kind, "status": word, "reason": reason, "message": message, "lastTransitionTime": at});
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(held) => {
                if held["status"] == new["status"] {
                    new["lastTransitionTime"] = held["lastTransitionTime"].clone();
                }
                *held = new;
            }
            None => conditions.push(new),
        }
    }
    (conditions != before).then(|| {
        let mut changed = namespace.clone();
        changed["status"]["conditions"] = conditions.into();
        StatusWrite::Replace(changed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;

    fn target() -> Target {
        Target { gvk: namespaces(), key: Key::new("", "ns") }
    }

    fn model(terminating: bool) -> Model {
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        if terminating {
            namespace["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        let object = |kind: &str, namespace: &str, name: &str, finalizers: &[&str]| {
            json!({"apiVersion": "v1", "kind": kind,
                "metadata": {"namespace": namespace, "name": name, "finalizers": finalizers}})
        };
        Model::of([
            namespace,
            object("ConfigMap", "ns", "held", &["example/hold"]),
            object("ConfigMap", "ns", "plain", &[]),
            object("Secret", "ns", "held", &["example/hold", "example/more"]),
            object("Secret", "elsewhere", "plain", &[]),
        ])
    }

    #[test]
    fn a_living_namespace_is_left_alone() {
        assert!(model(false).decide(&NamespaceController, &target()).is_none());
    }

    #[test]
    fn empties_says_what_holds_it_and_ends() {
        let mut model = model(true);
        model.run(&NamespaceController, &target());
        assert_eq!((model.all("ConfigMap").len(), model.all("Secret").len()), (1, 2));
        let status = model.one("Namespace", "ns").expect("it waits")["status"].clone();
        let texts: Vec<&str> =
            status["conditions"].as_array().expect("conditions").iter().map(|c| object::text(c, "message")).collect();
        assert_eq!(
            texts[3..],
            [
                "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances",
                "Some content in the namespace has finalizers remaining: example/hold in 2 resource instances, example/more in 1 resource instances"
            ]
        );
        assert_eq!(status["conditions"][3]["status"], "True");
        for kind in ["ConfigMap", "Secret"] {
            model.change(&Gvk::new("", "v1", kind), &Key::new("ns", "held"), |o| {
                o["metadata"]["finalizers"] = json!([])
            });
        }
        model.run(&NamespaceController, &target());
        let ended = model.one("Namespace", "ns").expect("the model does not know what finalize means");
        assert_eq!(ended["spec"]["finalizers"], json!([]));
        assert_eq!(model.all("Secret").len(), 1);
        assert!(model.decide(&NamespaceController, &target()).is_some_and(|decision| decision.is_silent()));
    }

    #[test]
    fn pods_go_first_and_the_conditions_pass_over_them() {
        let mut model = model(true);
        model.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "p"},
            "spec": {"nodeName": "n"}}));
        model.run(&NamespaceController, &target());
        assert_eq!((model.all("Pod").len(), model.all("ConfigMap").len()), (1, 2));
        let status = model.one("Namespace", "ns").expect("it waits")["status"].clone();
        assert_eq!(status["conditions"][3]["reason"], "ContentRemoved");
        model.end_grace(&Gvk::new("", "v1", "Pod"), &Key::new("ns", "p"));
        model.run(&NamespaceController, &target());
        assert_eq!((model.all("Pod").len(), model.all("ConfigMap").len()), (0, 1));
        let status = model.one("Namespace", "ns").expect("it waits")["status"].clone();
        assert_eq!(status["conditions"][3]["reason"], "SomeResourcesRemain");
    }

    #[test]
    fn only_a_terminating_namespace_is_woken() {
        let pod = json!({"metadata": {"namespace": "ns", "name": "p"}});
        assert_eq!(terminating_namespace(&model(true), &pod), [target()]);
        assert_eq!(terminating_namespace(&model(false), &pod), []);
        assert_eq!(terminating_namespace(&model(true), &json!({"metadata": {"name": "node"}})), []);
    }
}
