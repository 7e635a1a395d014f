//! The status of ResourceQuotas: what of each limited resource is in use.
//!
//! Admission refuses what would exceed a quota; here the truth is summed up from what there is.

use crate::plurals;
use api::object::{self, Gvk, Target};
use api::quantity::Quantity;
use api::quota::{self, Amounts};
use jiff::Timestamp;
use reconcile::{Decision, Primary, Reconciler, StatusWrite, Wakes, Watch, World};
use serde_json::{Map, Value};
use std::sync::Arc;

fn quotas() -> Gvk {
    Gvk::new("", "v1", "ResourceQuota")
}

/// Sums up what quotas limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuotaController;

/// A quota and all that may count towards it.
#[derive(Clone, Debug)]
pub struct Observed {
    quota: Arc<Value>,
    kinds: Vec<Counted>,
}

/// Objects of one kind in the quota's namespace.
#[derive(Clone, Debug)]
struct Counted {
    group: String,
    resource: String,
    objects: Vec<Arc<Value>>,
}

fn quotas_of_namespace(world: &dyn World, object: &Value) -> Vec<Target> {
    let namespace = object::meta(object, "namespace");
    if namespace.is_empty() || Gvk::of(object) == quotas() {
        return Vec::new();
    }
    world.list(&quotas(), Some(namespace)).iter().map(|quota| Target::of(quota)).collect()
}

/// The kind that a limited resource is about, as `(group, resource)`.
fn subject(name: &str) -> (&str, &str) {
    if let Some(counted) = name.strip_prefix("count/") {
        let (resource, group) = counted.split_once('.').unwrap_or((counted, ""));
        return (group, resource);
    }
    match name {
        "configmaps"
        | "persistentvolumeclaims"
        | "replicationcontrollers"
        | "resourcequotas"
        | "secrets"
        | "services" => ("", name),
        "requests.storage" => ("", "persistentvolumeclaims"),
        _ if name.contains(".storageclass.storage.k8s.io/") => ("", "persistentvolumeclaims"),
        _ if name.starts_with("services.") => ("", "services"),
        _ => ("", "pods"),
    }
}

impl Reconciler for QuotaController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "quota"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(quotas())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![Watch::every(Wakes::Keys(quotas_of_namespace))]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let quota = world.get(&quotas(), &target.key)?;
        let limited = quota["spec"]["hard"].as_object().into_iter().flatten().map(|(name, _)| subject(name));
        let mut subjects: Vec<(&str, &str)> = limited.collect();
        subjects.sort_unstable();
        subjects.dedup();
        let served = world.kinds();
        let kinds = subjects.iter().filter_map(|(group, resource)| {
            let kind = served.iter().find(|gvk| gvk.group == *group && plurals::resource(world, gvk) == *resource)?;
            let objects = world.list(kind, Some(&target.key.namespace));
            Some(Counted { group: (*group).to_owned(), resource: (*resource).to_owned(), objects })
        });
        let kinds = kinds.collect();
        Some(Observed { quota, kinds })
    }

    fn decide(&self, observed: &Observed, now: Timestamp) -> Decision {
        let Observed { quota, kinds } = observed;
        let mut sum = Amounts::new();
        for kind in kinds {
            for object in kind.objects.iter().filter(|object| quota::in_scope(quota, &kind.resource, object)) {
                quota::add(&mut sum, &quota::usage(&kind.group, &kind.resource, object, now));
            }
        }
        let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
        let used: Map<String, Value> = hard
            .keys()
            .map(|name| (name.clone(), sum.get(name).copied().unwrap_or(Quantity::ZERO).to_string().into()))
            .collect();
        let before = &quota["status"];
        let (hard, used) = (Value::Object(hard), Value::Object(used));
        let mut decision = Decision::nothing();
        if before["hard"] != hard || before["used"] != used {
            let mut changed = (**quota).clone();
            changed["status"]["hard"] = hard;
            changed["status"]["used"] = used;
            decision.status = Some(StatusWrite::Replace(changed));
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::object::Key;
    use reconcile::testing::Model;
    use serde_json::json;

    fn object(group_version: &str, kind: &str, name: &str, rest: Value) -> Value {
        let mut object =
            json!({"apiVersion": group_version, "kind": kind, "metadata": {"namespace": "ns", "name": name}});
        reconcile::testing::merge(&mut object, &rest);
        object
    }

    #[test]
    fn sums_what_is_there() {
        let cpu = |amount: &str| json!({"spec": {"containers": [{"resources": {"requests": {"cpu": amount}}}]}});
        let hard = json!({"count/jobs.batch": "1", "count/secrets": "5", "pods": "2", "requests.cpu": "4", "services": "0",
            "count/graphics.example": "1"});
        let mut elsewhere = object("v1", "Secret", "far", json!({}));
        elsewhere["metadata"]["namespace"] = "other".into();
        let mut model = Model::of([
            object("v1", "ResourceQuota", "q", json!({"spec": {"hard": hard}})),
            object("v1", "Pod", "a", cpu("1500m")),
            object("v1", "Pod", "b", cpu("500m")),
            object("v1", "Secret", "s", json!({})),
            object("batch/v1", "Job", "j", json!({})),
            elsewhere,
        ]);
        let target = Target { gvk: quotas(), key: Key::new("ns", "q") };
        model.run(&QuotaController, &target);
        let status = |model: &Model| model.one("ResourceQuota", "q").expect("it is there")["status"].clone();
        assert_eq!(status(&model)["hard"], hard);
        let used = json!({"count/jobs.batch": "1", "count/secrets": "1", "pods": "2", "requests.cpu": "2", "services": "0",
            "count/graphics.example": "0"});
        assert_eq!(status(&model)["used"], used);
        model
            .change(&Gvk::new("", "v1", "Pod"), &Key::new("ns", "a"), |pod| pod["status"] = json!({"phase": "Failed"}));
        model.run(&QuotaController, &target);
        assert_eq!(
            (&status(&model)["used"]["pods"], &status(&model)["used"]["requests.cpu"]),
            (&json!("1"), &json!("500m"))
        );
    }

    #[test]
    fn what_a_limit_is_about() {
        for (name, want) in [
            ("pods", ("", "pods")),
            ("requests.nvidia.com/gpu", ("", "pods")),
            ("count/jobs.batch", ("batch", "jobs")),
            ("count/trainjobs.trainer.kubeflow.org", ("trainer.kubeflow.org", "trainjobs")),
            ("services.nodeports", ("", "services")),
            ("fast.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
        ] {
            assert_eq!(subject(name), want);
        }
    }
}
