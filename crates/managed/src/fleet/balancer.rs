//! The load balancer of a service: a pod that runs `trainyard balance`, with an account that may read the service and its Secret, and write
//! its status.

use super::observed::{Observed, section_of};
use super::{SOON, Turn, core};
use crate::autoscale::ScalingRules;
use crate::cluster::delete;
use api::object::{self, Key, Target};
use api::sky::{
    BalancedReplica, Balancing, FleetState, GROUP, ReadinessProbe, Replica, ReplicaState as State, Traffic, UpdateMode,
};
use reconcile::{Op, Propagation, Write};
use serde_json::{Value, json};

/// The image that has this program.
const IMAGE: &str = "trainyard";
/// Seconds for which requests may go on when the load balancer ends.
const GRACE_SECS: i64 = 30;

/// The name of the pod, its account and its role.
pub(super) fn name(serving: &str) -> String {
    format!("serve-{serving}-balancer")
}

fn probe(section: &Value, version: u32) -> ReadinessProbe {
    let probe = &section["readiness_probe"];
    let number = |name: &str, default: f64| probe[name].as_f64().unwrap_or(default);
    let has_headers = probe["headers"].as_bool() == Some(true);
    ReadinessProbe {
        path: probe["path"].as_str().unwrap_or("/").to_owned(),
        timeout_seconds: number("timeout_seconds", 15.0),
        interval_seconds: number("endpoint_probe_interval_seconds", 10.0),
        body: probe.get("post_data").filter(|body| !body.is_null()).map(Value::to_string).unwrap_or_default(),
        headers_key: if has_headers { super::submitted::headers_key(version) } else { String::new() },
    }
}

impl Observed {
    /// Tells the load balancer of its replicas, and keeps its pod running.
    pub(super) fn balance(&self, turn: &mut Turn) {
        let backends: Vec<BalancedReplica> =
            turn.status.replicas.iter().filter_map(|replica| self.backend(turn, replica)).collect();
        let newest = turn.status.versions.last().and_then(|version| self.file(&version.submission).ok());
        let section = newest.map_or(&Value::Null, section_of);
        let policy = section["load_balancing_policy"].as_str().unwrap_or("least_load");
        let timeout = section["load_balancer"]["stream_timeout_seconds"].as_f64();
        turn.status.balancing = Balancing {
            policy: policy.to_owned(),
            stream_timeout_seconds: timeout.unwrap_or(120.0),
            is_tls: section.get("tls").is_some_and(|tls| !tls.is_null()),
            refuses: turn.status.state == FleetState::Failed,
            backends,
        };
        match &self.balancer {
            None => turn.writes.extend(self.balancer_objects()),
            Some(pod) if object::has_ended(pod) && !object::is_terminating(pod) => {
                let target = Target { gvk: core("Pod"), key: Key::of(pod) };
                turn.writes.push(delete(target, Some(object::uid(pod).to_owned()), Propagation::Background));
                turn.within(SOON);
            }
            Some(_) => {}
        }
    }

    fn backend(&self, turn: &Turn, replica: &Replica) -> Option<BalancedReplica> {
        let is_reached =
            matches!(replica.state, State::Starting | State::Ready | State::NotReady | State::ShuttingDown);
        if replica.address.is_empty() || !is_reached || replica.ran_at.is_empty() {
            return None;
        }
        let version = turn.status.versions.iter().find(|version| version.number == replica.version)?;
        let section = self.file(&version.submission).map(section_of).ok()?;
        let active = &turn.status.active_versions;
        let is_active = active.is_empty() || active.contains(&replica.version);
        let mode = turn.status.versions.last().map(|version| version.mode).unwrap_or_default();
        let traffic = match mode {
            _ if replica.is_ending => Traffic::Draining,
            UpdateMode::BlueGreen if !is_active => Traffic::Probed,
            UpdateMode::Rolling | UpdateMode::BlueGreen => Traffic::Serving,
        };
        Some(BalancedReplica {
            replica: replica.number,
            address: replica.address.clone(),
            traffic,
            capacity: ScalingRules::of(section).capacity(&replica.gpu),
            probe: probe(section, replica.version),
        })
    }

    fn balancer_objects(&self) -> Vec<Write> {
        let name = name(self.name());
        let meta = json!({
            "name": name, "namespace": self.namespace(), "labels": self.labels(), "ownerReferences": [self.owner()],
        });
        let rules = [
            json!({"apiGroups": [GROUP], "resources": ["servings"], "verbs": ["get", "list", "watch"], "resourceNames": [self.name()]}),
            json!({"apiGroups": [GROUP], "resources": ["servings/status"], "verbs": ["patch"], "resourceNames": [self.name()]}),
            json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"], "resourceNames": [name]}),
        ];
        let rbac = "rbac.authorization.k8s.io";
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": meta, "rules": rules}),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": meta,
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self.namespace()}],
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": meta,
                "spec": {
                    "serviceAccountName": name, "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": GRACE_SECS,
                    "containers": [{
                        "name": "balancer", "image": IMAGE,
                        "command": ["trainyard", "balance", "--namespace", self.namespace(), self.name()],
                    }],
                },
            }),
        ];
        objects.into_iter().map(|object| Op::Create { object }.into()).collect()
    }
}
