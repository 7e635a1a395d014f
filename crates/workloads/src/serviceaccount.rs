//! What every namespace has: the service account `default`, and the ConfigMap `kube-root-ca.crt` by which pods verify the
//! API server. Both come back when deleted.

use api::object::{self, Gvk, Key, Target};
use jiff::Timestamp;
use reconcile::{Decision, Op, Primary, Reconciler, Wakes, Watch, World};
use serde_json::{Value, json};
use std::sync::Arc;

const DEFAULT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";

fn namespaces() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

fn service_accounts() -> Gvk {
    Gvk::new("", "v1", "ServiceAccount")
}

fn config_maps() -> Gvk {
    Gvk::new("", "v1", "ConfigMap")
}

/// Furnishes namespaces.
#[derive(Clone, Debug)]
pub struct ServiceAccountController {
    /// The API server's certificate authorities, PEM.
    root_ca: Arc<str>,
}

impl ServiceAccountController {
    /// `root_ca`: the certificate authorities by which the API server can be verified, PEM.
    pub fn new(root_ca: &str) -> Self {
        Self { root_ca: root_ca.into() }
    }
}

/// A namespace with its furniture.
#[derive(Clone, Debug)]
pub struct Observed {
    name: String,
    has_account: bool,
    root_ca: Option<Arc<Value>>,
}

fn namespace_of(object: &Value, name: &str) -> Vec<Target> {
    let ours = object::meta(object, "name") == name;
    let key = Key::new("", object::meta(object, "namespace"));
    ours.then_some(Target { gvk: namespaces(), key }).into_iter().collect()
}

impl Reconciler for ServiceAccountController {
    type Observed = Observed;

    fn name(&self) -> &'static str {
        "serviceaccount"
    }

    fn primary(&self) -> Primary {
        Primary::Kind(namespaces())
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            Watch { gvk: service_accounts(), wakes: Wakes::Keys(|_, account| namespace_of(account, DEFAULT)) },
            Watch { gvk: config_maps(), wakes: Wakes::Keys(|_, config_map| namespace_of(config_map, ROOT_CA)) },
        ]
    }

    fn observe(&self, world: &dyn World, target: &Target) -> Option<Observed> {
        let namespace = world.get(&namespaces(), &target.key)?;
        let name = target.key.name.clone();
        (!object::is_terminating(&namespace)).then(|| Observed {
            has_account: world.get(&service_accounts(), &Key::new(&name, DEFAULT)).is_some(),
            root_ca: world.get(&config_maps(), &Key::new(&name, ROOT_CA)),
            name,
        })
    }

    fn decide(&self, observed: &Observed, _now: Timestamp) -> Decision {
        let Observed { name, has_account, root_ca } = observed;
        let mut decision = Decision::nothing();
        let data = json!({"ca.crt": *self.root_ca});
        let object = |kind: &str, object_name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"namespace": name, "name": object_name}});
        if !has_account {
            decision.writes.push(Op::Create { object: object("ServiceAccount", DEFAULT) }.into());
        }
        match root_ca {
            None => {
                let mut made = object("ConfigMap", ROOT_CA);
                made["data"] = data;
                decision.writes.push(Op::Create { object: made }.into());
            }
            Some(held) if held["data"] != data => {
                let mut repaired = (**held).clone();
                repaired["data"] = data;
                decision.writes.push(Op::Update { object: repaired }.into());
            }
            Some(_) => {}
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::testing::Model;

    #[test]
    fn furnishes_and_repairs() {
        let controller = ServiceAccountController::new("PEM");
        let target = Target { gvk: namespaces(), key: Key::new("", "ns") };
        let mut model = Model::of([json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})]);
        model.run(&controller, &target);
        assert_eq!(model.writes, ["create ServiceAccount default", "create ConfigMap kube-root-ca.crt"]);
        model.change(&config_maps(), &Key::new("ns", ROOT_CA), |o| o["data"] = json!({"ca.crt": "other", "more": "x"}));
        model.run(&controller, &target);
        assert_eq!(model.one("ConfigMap", ROOT_CA).expect("it is there")["data"], json!({"ca.crt": "PEM"}));
        model
            .change(&namespaces(), &target.key, |o| o["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        assert!(model.decide(&controller, &target).is_none());
    }
}
