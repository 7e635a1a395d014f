//! What the agent of a node may change: its own Node but for labels and taints that say which pods may run there, its own Lease, the status of its pods.
//!
//! Source: Kubernetes' admission plugin `NodeRestriction` (`plugin/pkg/admission/noderestriction`), from which the messages are. Ours
//! is stricter in one thing: labels beneath `trainyard.dev` say to which cluster a machine belongs, so an agent may not set them.

use super::node::{LEASES, items, node_of};
use api::object::{meta, text};
use resource::admission::{Admission, Operation, Request};
use resource::status::Status;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Labels beneath `kubernetes.io` and `k8s.io` that an agent may set.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
];

/// The plugin.
pub struct NodeRestriction;

impl Admission for NodeRestriction {
    fn handles(&self, operation: Operation, group: &str, resource: &str, _subresource: &str) -> bool {
        let known = matches!((group, resource), ("", "nodes" | "pods") | ("coordination.k8s.io", "leases"));
        known && operation != Operation::Connect
    }

    fn mutates(&self) -> bool {
        false
    }

    fn admit(&self, request: &Request<'_>) -> Result<(), Status> {
        let Some(node) = request.user.node() else { return Ok(()) };
        let faults = match (request.group, request.resource, request.subresource) {
            ("", "nodes", _) => of_node(node, request),
            ("", "pods", _) => of_pod(node, request),
            ("coordination.k8s.io", "leases", _) => of_lease(node, request),
            _ => Ok(()),
        };
        let forbid = |why: String| Status::forbidden(request.group, request.resource, request.name, &why);
        faults.map_err(forbid)
    }

    fn validate(&self, request: &Request<'_>) -> Result<Vec<String>, Status> {
        // all other writes were judged as they came in
        if request.operation == Operation::Delete {
            self.admit(request)?;
        }
        Ok(Vec::new())
    }
}

fn name<'a>(request: &Request<'a>) -> &'a str {
    if request.name.is_empty() { request.object.map_or("", |object| meta(object, "name")) } else { request.name }
}

fn of_node(node: &str, request: &Request<'_>) -> Result<(), String> {
    let asked = name(request);
    if asked != node {
        return Err(format!("node {node:?} is not allowed to modify node {asked:?}"));
    }
    // Through a subresource as well: the status takes metadata along.
    let Some(new) = request.object else { return Ok(()) };
    let nothing = Value::Null;
    let old = request.old_object.unwrap_or(&nothing);
    let is_new = request.old_object.is_none();
    let source = &new["spec"]["configSource"];
    if !source.is_null() && is_new {
        return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
    }
    if !source.is_null() && *source != old["spec"]["configSource"] {
        return Err(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource"));
    }
    if !is_new && !same_list(&new["spec"]["taints"], &old["spec"]["taints"]) {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    if !is_new && !same_list(&new["metadata"]["ownerReferences"], &old["metadata"]["ownerReferences"]) {
        return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    let mut forbidden = changed(new, old);
    forbidden.retain(|label| !is_own(label));
    if forbidden.is_empty() {
        return Ok(());
    }
    let forbidden = forbidden.join(", ");
    Err(match is_new {
        true => format!("node {node:?} is not allowed to set the following labels: {forbidden}"),
        false => format!("is not allowed to modify labels: {forbidden}"),
    })
}

/// Whether two lists hold the same; an absent one is empty.
fn same_list(one: &Value, other: &Value) -> bool {
    items(one).eq(items(other))
}

/// The labels that differ, ordered.
fn changed(new: &Value, old: &Value) -> Vec<String> {
    let of = |object: &Value| object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (new, old) = (of(new), of(old));
    let names: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    names.into_iter().filter(|label| new.get(*label) != old.get(*label)).cloned().collect()
}

/// Whether an agent may set this label of its own Node.
fn is_own(label: &str) -> bool {
    let namespace = label.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
    if within("node-restriction.kubernetes.io") || within("trainyard.dev") {
        return false;
    }
    let restricted = within("kubernetes.io") || within("k8s.io");
    !restricted || OWN_LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

fn of_pod(node: &str, request: &Request<'_>) -> Result<(), String> {
    let Some(old) = request.old_object else {
        return Err(format!("node {node:?} can only create mirror pods, and agents of trainyard make none"));
    };
    let is_bound = node_of(old) == node;
    match (request.operation, request.subresource) {
        (Operation::Delete, "") if is_bound => Ok(()),
        (Operation::Delete, "") => Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        (_, "status") if !is_bound => {
            Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"))
        }
        (_, "status") => {
            let Some(new) = request.object else { return Ok(()) };
            if !changed(new, old).is_empty() {
                return Err(format!("node {node:?} cannot update labels through pod status"));
            }
            if claims(new) != claims(old) {
                return Err(format!("node {node:?} cannot update resource claim statues")); // upstream's spelling
            }
            Ok(())
        }
        (_, other) => Err(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed")),
    }
}

/// The claims of resources that a pod's status names, with what they were given.
fn claims(pod: &Value) -> Vec<(&str, Option<&str>)> {
    let claims = items(&pod["status"]["resourceClaimStatuses"]);
    claims.map(|claim| (text(claim, "name"), claim["resourceClaimName"].as_str())).collect()
}

/// Whether the agent of a node may have a token of a service account, by the TokenRequest that it sends. `pod`: by name, in the
/// account's namespace.
///
/// # Errors
/// Why not.
pub fn token(node: &str, request: &Value, pod: impl Fn(&str) -> Option<Arc<Value>>) -> Result<(), String> {
    let reference = &request["spec"]["boundObjectRef"];
    let name = text(reference, "name");
    if (text(reference, "apiVersion"), text(reference, "kind")) != ("v1", "Pod") || name.is_empty() {
        return Err("node requested token not bound to a pod".to_owned());
    }
    let uid = text(reference, "uid");
    if uid.is_empty() {
        return Err("node requested token with a pod binding without a uid".to_owned());
    }
    let Some(there) = pod(name) else { return Err(format!("pod {name:?} not found")) };
    let actual = api::object::uid(&there);
    if actual != uid {
        return Err(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record ({actual})"
        ));
    }
    if node_of(&there) != node {
        return Err("node requested token bound to a pod scheduled on a different node".to_owned());
    }
    let projected = items(&there["spec"]["volumes"]).flat_map(|volume| items(&volume["projected"]["sources"]));
    let audiences: Vec<&str> = projected.map(|source| text(&source["serviceAccountToken"], "audience")).collect();
    for audience in items(&request["spec"]["audiences"]).filter_map(Value::as_str) {
        if !audience.is_empty() && !audiences.contains(&audience) {
            return Err(format!("audience {audience:?} not found in pod spec volume"));
        }
    }
    Ok(())
}

fn of_lease(node: &str, request: &Request<'_>) -> Result<(), String> {
    if request.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    if name(request) != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use resource::User;
    use resource::admission::Objects;
    use serde_json::json;

    struct Nothing;

    impl Objects for Nothing {
        fn get(&self, _group: &str, _plural: &str, _namespace: &str, _name: &str) -> Option<Arc<Value>> {
            None
        }

        fn list(&self, _group: &str, _plural: &str, _namespace: &str) -> Vec<Arc<Value>> {
            Vec::new()
        }
    }

    /// `what`: resource and subresource; the answer to the agent of `one`, empty where it may.
    fn told(operation: Operation, what: &str, name: &str, object: Option<Value>, old: Option<Value>) -> String {
        let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
        let group = if resource == "leases" { "coordination.k8s.io" } else { "" };
        let namespace = if resource == "leases" { LEASES } else { "ns" };
        let user = User::of_node("one");
        let request = Request {
            operation,
            group,
            version: "v1",
            kind: "",
            resource,
            subresource,
            namespace,
            name,
            object: object.as_ref(),
            old_object: old.as_ref(),
            dry_run: false,
            user: &user,
            objects: &Nothing,
        };
        assert!(NodeRestriction.handles(operation, group, resource, subresource));
        let told = match operation {
            Operation::Delete => NodeRestriction.validate(&request).map(|_| ()),
            _ => NodeRestriction.admit(&request),
        };
        told.err().map(|status| status.message).unwrap_or_default()
    }

    #[test]
    fn nodes() {
        use Operation::{Create, Update};
        let node = |labels: Value, taints: Value| {
            Some(json!({"metadata": {"name": "one", "labels": labels}, "spec": {"taints": taints}}))
        };
        let plain =
            || node(json!({"kubernetes.io/os": "linux", "mine": "x", "nvidia.com/gpu.count": "1"}), Value::Null);
        assert_eq!(told(Create, "nodes", "one", plain(), None), "");
        assert_eq!(told(Create, "nodes", "", plain(), None), "", "named in the object alone");
        assert_eq!(
            told(Create, "nodes", "two", plain(), None),
            "nodes \"two\" is forbidden: node \"one\" is not allowed to modify node \"two\""
        );
        for label in ["node-restriction.kubernetes.io/x", "sky.trainyard.dev/cluster", "node-role.kubernetes.io/x"] {
            let labelled = node(json!({label: "x"}), Value::Null);
            let at_first = told(Create, "nodes", "one", labelled.clone(), None);
            assert!(at_first.ends_with(&format!("is not allowed to set the following labels: {label}")), "{at_first}");
            let later = told(Update, "nodes", "one", labelled.clone(), plain());
            assert!(later.contains("is not allowed to modify labels: ") && later.contains(label), "{later}");
            let taken_off = told(Update, "nodes", "one", plain(), labelled.clone());
            assert!(taken_off.contains(label), "{taken_off}");
            assert_eq!(told(Update, "nodes", "one", labelled.clone(), labelled), "", "left as it is");
        }
        for (what, written) in [
            ("modify labels: node-role.kubernetes.io/x", node(json!({"node-role.kubernetes.io/x": ""}), Value::Null)),
            ("modify taints", node(json!({}), json!([{"key": "k", "effect": "NoSchedule"}]))),
            (
                "modify ownerReferences",
                Some(
                    json!({"metadata": {"name": "one", "ownerReferences": [{"kind": "Node", "name": "one", "uid": "u"}]}}),
                ),
            ),
        ] {
            for path in ["nodes", "nodes/status"] {
                let refused = told(Update, path, "one", written.clone(), node(json!({}), json!([])));
                assert!(refused.contains(what), "{path}: {refused}");
            }
        }
        let own = json!({"kubernetes.io/os": "linux", "mine": "y"});
        assert_eq!(told(Update, "nodes/status", "one", node(own, json!([])), plain()), "");
        let tainted = node(json!({}), json!([{"key": "k", "effect": "NoSchedule"}]));
        assert_eq!(told(Create, "nodes", "one", tainted.clone(), None), "");
        assert!(told(Update, "nodes", "one", node(json!({}), Value::Null), tainted).contains("modify taints"));
    }

    #[test]
    fn pods_and_leases() {
        use Operation::{Create, Delete, Update};
        let pod = |node: &str| Some(json!({"metadata": {"name": "p"}, "spec": {"nodeName": node}}));
        assert_eq!(told(Delete, "pods", "p", None, pod("one")), "");
        assert!(told(Delete, "pods", "p", None, pod("two")).contains("can only delete pods"));
        assert_eq!(told(Update, "pods/status", "p", pod("one"), pod("one")), "");
        assert!(told(Update, "pods/status", "p", pod("two"), pod("two")).contains("can only update pod status"));
        let labelled = Some(json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"nodeName": "one"}}));
        assert!(told(Update, "pods/status", "p", labelled, pod("one")).contains("cannot update labels"));
        let claiming = Some(json!({"metadata": {"name": "p"}, "spec": {"nodeName": "one"},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}}));
        assert!(
            told(Update, "pods/status", "p", claiming, pod("one")).contains("cannot update resource claim statues")
        );
        assert!(!told(Create, "pods", "p", pod("one"), None).is_empty());
        assert!(!told(Update, "pods", "p", pod("one"), pod("one")).is_empty());

        let lease = |name: &str| Some(json!({"metadata": {"name": name}}));
        assert_eq!(told(Create, "leases", "one", lease("one"), None), "");
        assert!(told(Create, "leases", "", lease("two"), None).contains("same name"));
    }

    #[test]
    fn tokens() {
        let pod = |name: &str| {
            let node = if name == "mine" { "one" } else { "two" };
            let volumes = json!([{"projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}}]);
            Some(Arc::new(json!({"metadata": {"uid": "u"}, "spec": {"nodeName": node, "volumes": volumes}})))
        };
        let ask = |name: &str, uid: &str, audiences: Value| {
            let to = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
            let asked = token("one", &json!({"spec": {"boundObjectRef": to, "audiences": audiences}}), pod);
            asked.err().unwrap_or_default()
        };
        assert_eq!(ask("mine", "u", json!([])), "");
        assert_eq!(ask("mine", "u", json!(["vault"])), "");
        assert!(ask("mine", "u", json!(["bank"])).contains("not found in pod spec volume"));
        assert!(ask("theirs", "u", json!([])).contains("scheduled on a different node"));
        assert!(ask("mine", "old", json!([])).contains("does not match"));
        assert!(ask("mine", "", json!([])).contains("without a uid"));
        assert!(token("one", &json!({"spec": {}}), pod).unwrap_err().contains("not bound to a pod"));
    }
}
