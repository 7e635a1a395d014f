//! What the agent of a node may do: read what the pods bound to it use, and nothing of other nodes.
//!
//! Source: Kubernetes' node authorizer (`plugin/pkg/auth/authorizer/node`, with `AuthorizeNodeWithSelectors`) and the rules that it
//! gives all nodes (`NodeRules` of `rbac/bootstrappolicy`). What an agent of ours never asks for (claims, volumes, certificates,
//! reviews, mirror pods) is left out. What its writes may change is `restriction`'s.

use super::rbac::List;
use resource::{Ask, User};
use serde_json::Value;
use std::sync::Arc;

/// Where the leases of nodes are.
pub(super) const LEASES: &str = "kube-node-lease";

/// Why the agent of a node may do it (an empty text, as upstream); `None` for what it may not, and for all other users.
pub fn authorize(user: &User, ask: &Ask<'_>, list: List<'_>) -> Option<String> {
    let node = user.node()?;
    let Ask::Resource { verb, group, resource, namespace, name, fields } = *ask else { return None };
    let reads = matches!(verb, "get" | "list" | "watch");
    let writes = matches!(verb, "update" | "patch");
    let bound = || list("", "pods", namespace).into_iter().filter(|pod| node_of(pod) == node);
    let allowed = match (group, resource) {
        ("", "nodes") => (verb == "create" || writes || reads) && (name == node || verb == "create"),
        ("", "nodes/status") => writes && name == node,
        ("", "pods") if verb == "get" => bound().any(|pod| api::object::meta(&pod, "name") == name),
        ("", "pods") if reads => {
            let is_own = || !namespace.is_empty() && bound().any(|pod| api::object::meta(&pod, "name") == name);
            selects(fields, "spec.nodeName", node) || is_own()
        }
        ("", "pods") => verb == "delete" && bound().any(|pod| api::object::meta(&pod, "name") == name),
        ("", "pods/status") => writes && bound().any(|pod| api::object::meta(&pod, "name") == name),
        // A list or a watch of one object by its name asks about that object; no other gets through.
        // Of all namespaces, a name says nothing: that of one pod's Secret may be another's in each of them.
        ("", "secrets") => reads && !namespace.is_empty() && used(name, bound(), secrets),
        ("", "configmaps") => reads && !namespace.is_empty() && used(name, bound(), config_maps),
        ("", "serviceaccounts/token") => verb == "create" && !namespace.is_empty() && used(name, bound(), accounts),
        ("", "services") | ("node.k8s.io", "runtimeclasses") => reads,
        ("" | "events.k8s.io", "events") => verb == "create" || writes,
        ("coordination.k8s.io", "leases") => {
            let own = namespace == LEASES && (name == node || (verb == "create" && name.is_empty()));
            own && (writes || matches!(verb, "get" | "create" | "delete"))
        }
        _ => false,
    };
    allowed.then(String::new)
}

/// The node that a pod is bound to.
pub(super) fn node_of(pod: &Value) -> &str {
    api::object::text(&pod["spec"], "nodeName")
}

/// Whether a field selector asks for this value of this field, besides whatever else. No agent needs to escape anything, and what
/// follows an escaped comma is a part of a value, not a term.
fn selects(selector: &str, field: &str, value: &str) -> bool {
    !selector.contains('\\')
        && selector.split(',').any(|term| {
            let rest = term.trim().strip_prefix(field).and_then(|rest| rest.strip_prefix('='));
            rest.map(|rest| rest.strip_prefix('=').unwrap_or(rest)) == Some(value)
        })
}

/// Calls `visit` with the name of each object of a kind that a pod with this spec uses.
type Uses = fn(spec: &Value, visit: &mut dyn FnMut(&str));

fn used(name: &str, pods: impl Iterator<Item = Arc<Value>>, of: Uses) -> bool {
    let mut found = false;
    pods.into_iter().for_each(|pod| of(&pod["spec"], &mut |used| found |= !name.is_empty() && used == name));
    found
}

fn accounts(spec: &Value, visit: &mut dyn FnMut(&str)) {
    visit(api::object::text(spec, "serviceAccountName"));
}

/// Calls `visit` with the name of each Secret that a pod with this spec refers to, and with empty texts.
pub(crate) fn secrets(spec: &Value, visit: &mut dyn FnMut(&str)) {
    for secret in items(&spec["imagePullSecrets"]) {
        visit(api::object::text(secret, "name"));
    }
    variables(spec, "secretKeyRef", "secretRef", visit);
    for volume in items(&spec["volumes"]) {
        visit(api::object::text(&volume["secret"], "secretName"));
        visit(api::object::text(&volume["azureFile"], "secretName"));
        visit(api::object::text(&volume["csi"]["nodePublishSecretRef"], "name"));
        for kind in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            visit(api::object::text(&volume[kind]["secretRef"], "name"));
        }
        for source in items(&volume["projected"]["sources"]) {
            visit(api::object::text(&source["secret"], "name"));
        }
    }
}

fn config_maps(spec: &Value, visit: &mut dyn FnMut(&str)) {
    variables(spec, "configMapKeyRef", "configMapRef", visit);
    for volume in items(&spec["volumes"]) {
        visit(api::object::text(&volume["configMap"], "name"));
        for source in items(&volume["projected"]["sources"]) {
            visit(api::object::text(&source["configMap"], "name"));
        }
    }
}

/// The objects that variables of containers are taken from.
fn variables(spec: &Value, key: &str, whole: &str, visit: &mut dyn FnMut(&str)) {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    for container in lists.iter().flat_map(|list| items(&spec[*list])) {
        for variable in items(&container["env"]) {
            visit(api::object::text(&variable["valueFrom"][key], "name"));
        }
        for source in items(&container["envFrom"]) {
            visit(api::object::text(&source[whole], "name"));
        }
    }
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pods(group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>> {
        assert_eq!((group, plural), ("", "pods"), "nothing else is read");
        let pod = |name: &str, node: &str, spec: Value| {
            let mut pod = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
            pod["spec"]["nodeName"] = node.into();
            Arc::new(pod)
        };
        let all = vec![
            pod(
                "a",
                "one",
                json!({
                    "serviceAccountName": "sa",
                    "imagePullSecrets": [{"name": "pull"}],
                    "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "init"}}}]}],
                    "containers": [{"envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "map"}}]}],
                    "volumes": [{"secret": {"secretName": "vol"}}, {"configMap": {"name": "volmap"}},
                        {"projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "projmap"}}]}}],
                }),
            ),
            pod("b", "two", json!({"serviceAccountName": "other", "volumes": [{"secret": {"secretName": "theirs"}}]})),
        ];
        if namespace.is_empty() || namespace == "ns" { all } else { Vec::new() }
    }

    #[test]
    fn a_node_gets_what_its_pods_use_and_nothing_else() {
        let user = User::of_node("one");
        let may = |verb: &str, resource: &str, namespace: &str, name: &str, fields: &str| {
            let (group, resource) = match resource.split_once(':') {
                Some((group, resource)) => (group, resource),
                None => ("", resource),
            };
            authorize(&user, &Ask::Resource { verb, group, resource, namespace, name, fields }, &pods).is_some()
        };
        for name in ["pull", "init", "from", "vol", "proj"] {
            assert!(may("get", "secrets", "ns", name, "") && may("watch", "secrets", "ns", name, ""), "{name}");
            assert!(!may("get", "secrets", "elsewhere", name, ""), "{name}");
            assert!(!may("list", "secrets", "", name, "") && !may("watch", "secrets", "", name, ""), "{name}");
            assert!(!may("update", "secrets", "ns", name, ""), "{name}");
        }
        for name in ["theirs", "map", "", "none"] {
            assert!(!may("get", "secrets", "ns", name, ""), "{name}");
        }
        assert!(!may("list", "secrets", "ns", "", "") && !may("list", "secrets", "", "", ""));
        for name in ["map", "volmap", "projmap"] {
            assert!(may("get", "configmaps", "ns", name, ""), "{name}");
            assert!(!may("list", "configmaps", "", name, "") && !may("watch", "configmaps", "", name, ""), "{name}");
        }
        assert!(may("create", "serviceaccounts/token", "ns", "sa", ""));
        assert!(!may("create", "serviceaccounts/token", "ns", "other", ""));
        assert!(may("get", "pods", "ns", "a", "") && !may("get", "pods", "ns", "b", ""));
        assert!(
            may("list", "pods", "", "", "spec.nodeName=one") && may("watch", "pods", "", "", "x=y,spec.nodeName==one")
        );
        for selector in
            ["", "spec.nodeName=two", "spec.nodeName!=one", "metadata.name=one", r"metadata.name!=x\,spec.nodeName=one"]
        {
            assert!(!may("list", "pods", "", "", selector), "{selector}");
        }
        assert!(
            may("list", "pods", "ns", "a", "")
                && !may("list", "pods", "ns", "b", "")
                && !may("list", "pods", "", "a", "")
        );
        assert!(may("delete", "pods", "ns", "a", "") && !may("delete", "pods", "ns", "b", ""));
        assert!(may("patch", "pods/status", "ns", "a", "") && !may("patch", "pods/status", "ns", "b", ""));
        assert!(!may("create", "pods", "ns", "", "") && !may("patch", "pods", "ns", "a", ""));
        assert!(!may("get", "pods/log", "ns", "a", "") && !may("create", "pods/exec", "ns", "a", ""));
        assert!(may("get", "nodes", "", "one", "") && may("patch", "nodes/status", "", "one", ""));
        for verb in ["get", "patch", "update", "delete"] {
            assert!(!may(verb, "nodes", "", "two", ""), "{verb}");
        }
        assert!(!may("list", "nodes", "", "", "") && !may("delete", "nodes", "", "one", ""));
        assert!(may("patch", "coordination.k8s.io:leases", LEASES, "one", ""));
        assert!(!may("patch", "coordination.k8s.io:leases", LEASES, "two", ""));
        assert!(!may("patch", "coordination.k8s.io:leases", "ns", "one", ""));
        assert!(!may("get", "sky.trainyard.dev:clusters", "ns", "x", ""));
    }

    #[test]
    fn only_name_and_group_together_make_an_agent() {
        for (name, group) in [("system:node:one", "x"), ("one", "system:nodes"), ("system:node:", "system:nodes")] {
            let user = User { name: name.to_owned(), groups: vec![group.to_owned()], ..User::default() };
            assert_eq!(user.node(), None, "{name}");
        }
        assert_eq!(User::of_node("one").node(), Some("one"));
    }
}
