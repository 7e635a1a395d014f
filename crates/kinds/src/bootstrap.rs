//! The objects that every cluster has from the start: namespaces, roles, bindings, priority classes.

use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};

/// What every authenticated user may read.
const DISCOVERY: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];
/// What anybody may read.
const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// The kinds of a namespace that its users work with, by group; secrets and roles are apart.
const WORK: [(&str, &[&str]); 7] = [
    (
        "",
        &[
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "pods/log",
            "pods/status",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    (
        "apps",
        &[
            "controllerrevisions",
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "statefulsets",
            "statefulsets/scale",
            "statefulsets/status",
        ],
    ),
    ("batch", &["jobs", "jobs/status"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["networkpolicies"]),
    ("policy", &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    ("coordination.k8s.io", &["leases"]),
];
/// Where those who take tokens of service accounts find whose they are.
const ISSUER: [&str; 4] =
    ["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"];
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Namespaces, priority classes, and the roles and bindings that upstream's documentation names.
pub fn bootstrap() -> Vec<Value> {
    let mut objects: Vec<Value> = ["default", "kube-system", "kube-public", api::node::LEASE_NAMESPACE]
        .map(|name| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
        })
        .into();
    for (name, value, what) in [
        ("system-node-critical", 2_000_001_000, "Pods without which a node does not work."),
        ("system-cluster-critical", 2_000_000_000, "Pods without which the cluster does not work."),
    ] {
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "globalDefault": false, "description": what, "preemptionPolicy": "PreemptLowerPriority"}));
    }
    let rules = |verbs: &[&str], kinds: &[(&str, &[&str])]| -> Vec<Value> {
        kinds
            .iter()
            .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
            .collect()
    };
    let part = |name: &str, to: &str, rules: Vec<Value>| {
        let labels = json!({format!("rbac.authorization.k8s.io/aggregate-to-{to}"): "true"});
        let mut role = cluster_role(name, rules);
        role["metadata"]["labels"]
            .as_object_mut()
            .expect("roles have labels")
            .extend(labels.as_object().cloned().unwrap_or_default());
        role
    };
    objects.push(cluster_role(
        "cluster-admin",
        vec![
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ],
    ));
    objects.push(cluster_role("system:discovery", vec![json!({"nonResourceURLs": DISCOVERY, "verbs": ["get"]})]));
    objects.push(cluster_role("system:public-info-viewer", vec![json!({"nonResourceURLs": PUBLIC, "verbs": ["get"]})]));
    objects.push(cluster_role("system:basic-user", vec![
        json!({"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]}),
        json!({"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}),
    ]));
    objects.push(cluster_role(
        "system:service-account-issuer-discovery",
        vec![json!({"nonResourceURLs": ISSUER, "verbs": ["get"]})],
    ));
    objects.push(part("system:aggregate-to-view", "view", rules(&READ, &WORK)));
    let mut edit = rules(&WRITE, &WORK);
    edit.extend(rules(
        &[&READ[..], &WRITE[..]].concat(),
        &[("", &["secrets", "pods/attach", "pods/exec", "pods/portforward", "pods/eviction"])],
    ));
    objects.push(part("system:aggregate-to-edit", "edit", edit));
    let admin = rules(&[&READ[..], &WRITE[..]].concat(), &[("rbac.authorization.k8s.io", &["roles", "rolebindings"])]);
    objects.push(part("system:aggregate-to-admin", "admin", admin));
    for (name, from, above) in
        [("view", "view", Some("edit")), ("edit", "edit", Some("admin")), ("admin", "admin", None)]
    {
        let mut role = cluster_role(name, Vec::new());
        if let Some(above) = above {
            role["metadata"]["labels"][format!("rbac.authorization.k8s.io/aggregate-to-{above}")] = "true".into();
        }
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{from}");
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        objects.push(role);
    }
    for (role, groups) in [
        ("cluster-admin", &["system:masters"][..]),
        ("system:discovery", &["system:authenticated"]),
        ("system:basic-user", &["system:authenticated"]),
        ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
        ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ] {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}))
            .collect();
        objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": role, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}));
    }
    objects
}

/// The Service `default/kubernetes` with its Endpoints and EndpointSlice, for a server that listens there.
pub fn own_service(address: SocketAddr) -> [Value; 3] {
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    let port = json!({"name": "https", "protocol": "TCP", "port": address.port()});
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let meta = |labels: Value| json!({"name": "kubernetes", "namespace": "default", "labels": labels});
    let first = super::service::first_address();
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(json!({"component": "apiserver", "provider": "kubernetes"})),
            "spec": {"type": "ClusterIP", "clusterIP": first, "clusterIPs": [first], "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": address.port()}]},
            "status": {"loadBalancer": {}}}),
        json!({"apiVersion": "v1", "kind": "Endpoints",
            "metadata": meta(json!({"endpointslice.kubernetes.io/skip-mirror": "true"})),
            "subsets": [{"addresses": [{"ip": ip.to_string()}], "ports": [port]}]}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": meta(json!({"kubernetes.io/service-name": "kubernetes"})), "addressType": family,
            "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}], "ports": [port]}),
    ]
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}, "rules": rules})
}
