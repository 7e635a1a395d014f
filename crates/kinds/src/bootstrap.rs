//! The objects that every cluster has from the start: namespaces, roles, bindings, priority classes.

use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};

/// Groups, resources and verbs.
type Rule = (&'static [&'static str], &'static [&'static str], &'static [&'static str]);

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

/// What `view` may read, rule by rule: groups and resources.
const VIEW: [(&[&str], &[&str]); 12] = [
    (
        &[""],
        &[
            "configmaps",
            "endpoints",
            "persistentvolumeclaims",
            "persistentvolumeclaims/status",
            "pods",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "serviceaccounts",
            "services",
            "services/status",
        ],
    ),
    (
        &[""],
        &[
            "bindings",
            "limitranges",
            "namespaces/status",
            "pods/log",
            "pods/status",
            "replicationcontrollers/status",
            "resourcequotas",
            "resourcequotas/status",
        ],
    ),
    (&[""], &["namespaces"]),
    (&["", "events.k8s.io"], &["events"]),
    (&["discovery.k8s.io"], &["endpointslices"]),
    (
        &["apps"],
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
    (&["autoscaling"], &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
    (&["batch"], &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
    (
        &["extensions"],
        &[
            "daemonsets",
            "daemonsets/status",
            "deployments",
            "deployments/scale",
            "deployments/status",
            "ingresses",
            "ingresses/status",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
            "replicationcontrollers/scale",
        ],
    ),
    (&["policy"], &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
    (&["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"]),
    (&["resource.k8s.io"], &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
];
/// What `edit` adds to it.
const EDIT: [Rule; 15] = [
    (&[""], &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"], &READ),
    (&[""], &["serviceaccounts"], &["impersonate"]),
    (&[""], &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"], &WRITE),
    (&[""], &["pods/eviction"], &["create"]),
    (
        &[""],
        &[
            "configmaps",
            "persistentvolumeclaims",
            "replicationcontrollers",
            "replicationcontrollers/scale",
            "secrets",
            "serviceaccounts",
            "services",
            "services/proxy",
        ],
        &WRITE,
    ),
    (&[""], &["serviceaccounts/token"], &["create"]),
    (&["", "events.k8s.io"], &["events"], &WRITE),
    (
        &["apps"],
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "replicasets",
            "replicasets/scale",
            "statefulsets",
            "statefulsets/scale",
        ],
        &WRITE,
    ),
    (&["autoscaling"], &["horizontalpodautoscalers"], &WRITE),
    (&["batch"], &["cronjobs", "jobs"], &WRITE),
    (
        &["extensions"],
        &[
            "daemonsets",
            "deployments",
            "deployments/rollback",
            "deployments/scale",
            "ingresses",
            "networkpolicies",
            "replicasets",
            "replicasets/scale",
            "replicationcontrollers/scale",
        ],
        &WRITE,
    ),
    (&["policy"], &["poddisruptionbudgets"], &WRITE),
    (&["networking.k8s.io"], &["ingresses", "networkpolicies"], &WRITE),
    (&["coordination.k8s.io"], &["leases"], &ALL),
    (&["resource.k8s.io"], &["resourceclaims", "resourceclaimtemplates"], &WRITE),
];
/// What `admin` adds to that.
const ADMIN: [Rule; 2] = [
    (&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]),
    (&["rbac.authorization.k8s.io"], &["rolebindings", "roles"], &ALL),
];
/// What programs that people install beside a cluster's own are bound to: servers of more APIs and proxies that ask who somebody
/// is, second schedulers, provisioners of volumes.
const FOR_OTHERS: [(&str, &[Rule]); 4] = [
    (
        "system:auth-delegator",
        &[
            (&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
            (&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
        ],
    ),
    (
        "system:kubelet-api-admin",
        &[
            (&[""], &["nodes"], &READ),
            (&[""], &["nodes"], &["proxy"]),
            (&[""], &["nodes/log", "nodes/metrics", "nodes/proxy", "nodes/stats"], &["*"]),
            (&[""], &["nodes/configz", "nodes/healthz", "nodes/pods"], &["*"]),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            (&[""], &["persistentvolumes"], &["create", "delete", "get", "list", "watch"]),
            (&[""], &["persistentvolumeclaims"], &["get", "list", "update", "watch"]),
            (&["storage.k8s.io"], &["storageclasses"], &READ),
            (&[""], &["events"], &["watch"]),
            (&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
        ],
    ),
    (
        "system:volume-scheduler",
        &[
            (&[""], &["persistentvolumes"], &CLAIM),
            (&["storage.k8s.io"], &["storageclasses"], &READ),
            (&[""], &["persistentvolumeclaims"], &CLAIM),
        ],
    ),
];
/// What tells how a server does.
const MONITORED: [&str; 10] = [
    "/flagz",
    "/healthz",
    "/healthz/*",
    "/livez",
    "/livez/*",
    "/metrics",
    "/metrics/slis",
    "/readyz",
    "/readyz/*",
    "/statusz",
];
/// Where those who take tokens of service accounts find whose they are.
const ISSUER: [&str; 4] =
    ["/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"];
const READ: [&str; 3] = ["get", "list", "watch"];
const CLAIM: [&str; 5] = ["get", "list", "patch", "update", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];
const ALL: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Namespaces, priority classes, and the roles and bindings that upstream's documentation names.
pub fn bootstrap() -> Vec<Value> {
    let mut objects: Vec<Value> = ["default", "kube-system", "kube-public", api::node::LEASE_NAMESPACE]
        .map(|name| {
            let labels = json!({"kubernetes.io/metadata.name": name});
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        })
        .into();
    for (name, value, what) in [
        ("system-node-critical", 2_000_001_000, "Pods without which a node does not work."),
        ("system-cluster-critical", 2_000_000_000, "Pods without which the cluster does not work."),
    ] {
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
            "value": value, "description": what, "preemptionPolicy": "PreemptLowerPriority"}));
    }
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let rules = |rules: &[Rule]| -> Vec<Value> {
        rules.iter().map(|(groups, resources, verbs)| rule(groups, resources, verbs)).collect()
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
    objects.extend(FOR_OTHERS.iter().map(|(name, of)| cluster_role(name, rules(of))));
    let monitoring =
        vec![json!({"nonResourceURLs": MONITORED, "verbs": ["get"]}), rule(&[""], &["nodes/metrics"], &["get"])];
    objects.push(cluster_role("system:monitoring", monitoring));
    let read = json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["extension-apiserver-authentication"], "verbs": READ});
    let mut reader = bootstrap_metadata("extension-apiserver-authentication-reader");
    reader["namespace"] = "kube-system".into();
    objects.push(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": reader, "rules": [read]}),
    );
    let view = VIEW.iter().map(|(groups, resources)| rule(groups, resources, &READ)).collect();
    objects.push(part("system:aggregate-to-view", "view", view));
    objects.push(part("system:aggregate-to-edit", "edit", rules(&EDIT)));
    objects.push(part("system:aggregate-to-admin", "admin", rules(&ADMIN)));
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
        ("system:monitoring", &["system:monitoring"]),
        ("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
        ("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ] {
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}))
            .collect();
        objects.push(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": bootstrap_metadata(role), "subjects": subjects,
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

/// The metadata of a role or binding that every cluster has, as those who keep them up to date look for it.
fn bootstrap_metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": bootstrap_metadata(name), "rules": rules})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a role gives a verb on a resource by its own rules.
    fn gives(role: &str, verb: &str, group: &str, resource: &str) -> bool {
        let objects = bootstrap();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == role);
        let holds = |rule: &Value, field: &str, wanted: &str| {
            rule[field].as_array().is_some_and(|all| all.iter().any(|one| one == wanted))
        };
        let mut rules = role.and_then(|role| role["rules"].as_array()).into_iter().flatten();
        rules.any(|rule| {
            holds(rule, "verbs", verb) && holds(rule, "apiGroups", group) && holds(rule, "resources", resource)
        })
    }

    #[test]
    fn parts_of_roles_give_what_upstream_s_give() {
        let cases = [
            ("view", "list", "", "pods", true),
            ("view", "get", "", "namespaces", true),
            ("view", "watch", "events.k8s.io", "events", true),
            ("view", "get", "batch", "cronjobs/status", true),
            ("view", "get", "networking.k8s.io", "ingresses", true),
            ("view", "get", "", "secrets", false),
            ("view", "get", "coordination.k8s.io", "leases", false),
            ("view", "create", "", "pods", false),
            ("edit", "create", "", "pods/eviction", true),
            ("edit", "delete", "", "pods/eviction", false),
            ("edit", "impersonate", "", "serviceaccounts", true),
            ("edit", "create", "", "serviceaccounts/token", true),
            ("edit", "patch", "batch", "cronjobs", true),
            ("edit", "get", "", "secrets", true),
            ("edit", "update", "", "pods/status", false),
            ("edit", "update", "", "resourcequotas", false),
            ("edit", "update", "", "limitranges", false),
            ("edit", "update", "discovery.k8s.io", "endpointslices", false),
            ("edit", "watch", "coordination.k8s.io", "leases", true),
            ("admin", "create", "authorization.k8s.io", "localsubjectaccessreviews", true),
            ("admin", "update", "rbac.authorization.k8s.io", "rolebindings", true),
            ("admin", "update", "", "resourcequotas", false),
        ];
        for (role, verb, group, resource, given) in cases {
            assert_eq!(
                gives(&format!("system:aggregate-to-{role}"), verb, group, resource),
                given,
                "{role} {verb} {resource}"
            );
        }
    }
}
