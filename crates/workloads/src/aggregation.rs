//! Aggregated ClusterRoles: their rules are those of the roles that their selectors select.

use api::object::{self, Gvk, Target};
use jiff::Timestamp;
use objects::selector::Selector;
use reconcile::{Decision, Op, PatchBody, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

fn cluster_roles() -> Gvk {
    Gvk::new("rbac.authorization.k8s.io", "v1", "ClusterRole")
}

/// Writes the rules of aggregated ClusterRoles.
#[derive(Clone, Copy, Debug, Default)]
pub struct AggregationController;

/// An aggregated role and all others, by name.
#[derive(Clone, Debug)]
pub struct Observed {
    role: Arc<Value>,
    others: Vec<Arc<Value>>,
}

fn selectors(role: &Value) -> Vec<Selector> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten();
    selectors.filter_map(Selector::read).collect()
}

impl Reconciler for AggregationController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "aggregation"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(cluster_roles())
    }

    /// Any role may belong to any aggregated one, or have belonged to it.
    fn watches(&self) -> Vec<Watch> {
        let aggregated = |world: &dyn World, _: &Value| {
            let roles = world.list(&cluster_roles(), None);
            roles.iter().filter(|role| role["aggregationRule"].is_object()).map(|role| Target::of(role)).collect()
        };
        vec![Watch { gvk: cluster_roles(), wakes: Wakes::Keys(aggregated) }]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let role = world.get(&cluster_roles(), &target.key)?;
        role["aggregationRule"].is_object().then(|| {
            let mut others = world.list(&cluster_roles(), None);
            others.retain(|other| object::meta(other, "name") != target.key.name);
            Observed { role, others }
        })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        let Observed { role, others } = observed;
        let mut rules: Vec<Value> = Vec::new();
        for selector in selectors(role) {
            for rule in
                others.iter().filter(|other| selector.selects(other)).flat_map(|o| o["rules"].as_array()).flatten()
            {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        let held = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        if held == rules {
            return Decision::nothing();
        }
        let version = object::resource_version(role);
        let body = PatchBody::Merge(json!({"metadata": {"resourceVersion": version}, "rules": rules}));
        let patch = Op::Patch { target: Target::of(role), subresource: None, body };
        Decision { writes: vec![patch.into()], ..Decision::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::Key;
    use reconcile::testing::Model;

    fn role(name: &str, labels: Value, verbs: &[&str]) -> Value {
        let rules: Vec<Value> = verbs.iter().map(|verb| json!({"verbs": [verb], "resources": ["pods"]})).collect();
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels}, "rules": rules})
    }

    #[test]
    fn rules_follow_the_selected_roles() {
        let mut sum = role("sum", json!({"part": "y"}), &["stale"]);
        sum["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchLabels": {"part": "y"}}, {"matchLabels": {"also": "y"}}]});
        let mut model = Model::of([
            sum,
            role("a", json!({"also": "y"}), &["watch", "get"]),
            role("b", json!({"part": "y"}), &["get", "list"]),
            role("c", json!({}), &["delete"]),
        ]);
        let target = Target { gvk: cluster_roles(), key: Key::new("", "sum") };
        model.run(&AggregationController, &target);
        let sum = model.one("ClusterRole", "sum").expect("it is there");
        let verbs: Vec<&str> =
            sum["rules"].as_array().expect("rules").iter().filter_map(|r| r["verbs"][0].as_str()).collect();
        assert_eq!(verbs, ["get", "list", "watch"]);
        assert!(
            model.decide(&AggregationController, &Target { gvk: cluster_roles(), key: Key::new("", "a") }).is_none()
        );
    }
}
