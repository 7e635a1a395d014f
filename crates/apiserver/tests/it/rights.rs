//! Who may do what: every route, every verb, and roles that give exactly it, all but it, or it elsewhere.

use crate::hostile::Hostile;
use resource::User;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMIN: &str = "system:masters";
const JSON: &str = "application/json";
const VERBS: [&str; 8] = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

fn user(name: &str) -> User {
    User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn admin() -> User {
    User { name: "admin".to_owned(), groups: vec![ADMIN.to_owned()], ..User::default() }
}

impl Hostile {
    /// A user with these rules: in the whole cluster, or in one namespace.
    async fn grant(&self, name: &str, namespace: Option<&str>, rules: Value) -> User {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let (code, answer) =
            self.ask_as(admin(), "POST", &format!("{RBAC}/clusterroles"), JSON, role.to_string()).await;
        assert_eq!(code, 201, "{answer}");
        let binding = json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": name}],
            "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}});
        let path = match namespace {
            Some(namespace) => format!("{RBAC}/namespaces/{namespace}/rolebindings"),
            None => format!("{RBAC}/clusterrolebindings"),
        };
        let (code, answer) = self.ask_as(admin(), "POST", &path, JSON, binding.to_string()).await;
        assert_eq!(code, 201, "{answer}");
        user(name)
    }
}

/// The request that needs a verb: method, whether it names an object, query, media type.
fn request(verb: &str) -> (&'static str, bool, &'static str, &'static str) {
    match verb {
        "get" => ("GET", true, "", ""),
        "list" => ("GET", false, "", ""),
        "watch" => ("GET", false, "?watch=1&timeoutSeconds=1&resourceVersion=1", ""),
        "create" => ("POST", false, "", JSON),
        "update" => ("PUT", true, "", JSON),
        "patch" => ("PATCH", true, "", "application/merge-patch+json"),
        "delete" => ("DELETE", true, "?dryRun=All", ""),
        _ => ("DELETE", false, "?dryRun=All", ""),
    }
}

#[tokio::test]
async fn every_route_needs_its_verb() {
    let hostile = Hostile::start(None).await;
    let catalog = hostile.server.core.catalog();
    let mut asked = 0;
    for (i, served) in catalog.kinds.values().enumerate() {
        let resource = &served.resource;
        // what everybody may ask about themselves
        if resource.plural.starts_with("selfsubject") {
            continue;
        }
        let base = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        let scope = if resource.namespaced { "/namespaces/default" } else { "" };
        let collection = format!("{base}/{}{scope}/{}", resource.version, resource.plural);
        let rule = |verbs: &[&str], names: &[&str]| json!([{"apiGroups": [resource.group], "resources": [resource.plural], "verbs": verbs, "resourceNames": names}]);
        for verb in VERBS {
            let others: Vec<&str> = VERBS.iter().copied().filter(|other| *other != verb).collect();
            let (method, named, query, media) = request(verb);
            let path = if named { format!("{collection}/one{query}") } else { format!("{collection}{query}") };
            // a namespace is its own place
            let namespaced = resource.namespaced;
            let users = [
                ("exactly", true, hostile.grant(&format!("exactly-{verb}-{i}"), None, rule(&[verb], &[])).await),
                ("all but it", false, hostile.grant(&format!("others-{verb}-{i}"), None, rule(&others, &[])).await),
                ("by name", named, hostile.grant(&format!("named-{verb}-{i}"), None, rule(&[verb], &["one"])).await),
                ("another", false, hostile.grant(&format!("another-{verb}-{i}"), None, rule(&[verb], &["two"])).await),
                (
                    "here",
                    namespaced,
                    hostile.grant(&format!("here-{verb}-{i}"), Some("default"), rule(&[verb], &[])).await,
                ),
                (
                    "there",
                    false,
                    hostile.grant(&format!("there-{verb}-{i}"), Some("kube-public"), rule(&[verb], &[])).await,
                ),
                ("nothing", false, user("nobody")),
            ];
            for (role, may, user) in users {
                if verb == "watch" && may {
                    continue;
                }
                let what = format!("{method} {path} with {role}");
                // beside a body, the query of a DELETE counts for nothing
                let body = if method == "DELETE" { "" } else { "{}" };
                let (code, answer) = hostile.ask_as(user, method, &path, media, body).await;
                let refused =
                    answer["message"].as_str().unwrap_or_default().contains(&format!("cannot {verb} resource"));
                assert_eq!((code != 403 || !refused, refused), (may, !may), "{what}: {code} {answer}");
                asked += 1;
            }
            // a right to one by name allows only to read and delete it so
            if verb == "create" {
                let named = user(&format!("named-{verb}-{i}"));
                let path = format!("{collection}?fieldSelector=metadata.name=one");
                let (code, answer) = hostile.ask_as(named, method, &path, media, "{}").await;
                assert_eq!(code, 403, "{path}: {answer}");
            }
        }
    }
    assert!(asked > 1_000, "{asked}");
}

#[tokio::test]
async fn patch_and_put_make_nothing_without_create() {
    let hostile = Hostile::start(None).await;
    let rule = |verbs: &[&str]| json!([{"apiGroups": ["", "coordination.k8s.io"], "resources": ["configmaps", "leases"], "verbs": verbs}]);
    let changes = hostile.grant("changes", None, rule(&["patch", "update", "get"])).await;
    let makes = hostile.grant("makes", None, rule(&["patch", "update", "create"])).await;
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let path = "/api/v1/namespaces/default/configmaps/a?fieldManager=t";
    let media = "application/apply-patch+yaml";
    let (code, answer) = hostile.ask_as(changes.clone(), "PATCH", path, media, apply.to_string()).await;
    assert_eq!(code, 403, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("cannot create resource \"configmaps\""), "{answer}");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/a";
    assert_eq!(hostile.ask_as(changes.clone(), "PUT", leases, JSON, lease.to_string()).await.0, 403);
    assert_eq!(hostile.ask_as(makes.clone(), "PATCH", path, media, apply.to_string()).await.0, 201);
    assert_eq!(hostile.ask_as(makes, "PUT", leases, JSON, lease.to_string()).await.0, 201);
    assert_eq!(hostile.ask_as(changes, "PATCH", path, media, apply.to_string()).await.0, 200);
}

#[tokio::test]
async fn rights_do_not_grow_by_what_one_may_write() {
    let hostile = Hostile::start(None).await;
    let group = "rbac.authorization.k8s.io";
    let resources = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];
    let write = json!([{"apiGroups": [group], "resources": resources, "verbs": ["create", "update", "patch", "get"]}]);
    let writer = hostile.grant("writer", None, write.clone()).await;
    let mut pass = write.as_array().unwrap().clone();
    pass.push(json!({"apiGroups": [group], "resources": ["clusterroles", "roles"], "verbs": ["escalate", "bind"]}));
    let trusted = hostile.grant("trusted", None, json!(pass)).await;
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role_ref = |kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    let subjects = json!([{"kind": "User", "name": "somebody"}]);
    let collects = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]});
    let plain = json!([{"apiGroups": [group], "resources": ["roles"], "verbs": ["get"]}]);
    let attempts = [
        ("clusterroles", "", json!({"rules": all})),
        ("clusterroles", "", json!({"rules": [{"nonResourceURLs": ["*"], "verbs": ["*"]}]})),
        ("clusterroles", "", json!({"aggregationRule": collects})),
        ("clusterroles", "", json!({"aggregationRule": collects, "rules": plain})),
        ("roles", "/namespaces/default", json!({"rules": all})),
        ("clusterrolebindings", "", json!({"roleRef": role_ref("ClusterRole", "cluster-admin"), "subjects": subjects})),
        (
            "rolebindings",
            "/namespaces/default",
            json!({"roleRef": role_ref("ClusterRole", "cluster-admin"), "subjects": subjects}),
        ),
    ];
    for (i, (plural, scope, object)) in attempts.into_iter().enumerate() {
        let kind = match plural {
            "clusterroles" => "ClusterRole",
            "roles" => "Role",
            "clusterrolebindings" => "ClusterRoleBinding",
            _ => "RoleBinding",
        };
        let mut object = object;
        object["metadata"] = json!({"name": format!("grows-{i}")});
        (object["apiVersion"], object["kind"]) = (format!("{group}/v1").into(), kind.into());
        let path = format!("{RBAC}{scope}/{plural}");
        let (code, answer) = hostile.ask_as(writer.clone(), "POST", &path, JSON, object.to_string()).await;
        assert_eq!(code, 403, "{plural}: {answer}");
        for (method, media) in [("PUT", JSON), ("PATCH", "application/apply-patch+yaml")] {
            let query = if method == "PATCH" { "?fieldManager=t" } else { "" };
            let path = format!("{path}/grows-{i}{query}");
            let (code, answer) = hostile.ask_as(writer.clone(), method, &path, media, object.to_string()).await;
            assert!(code == 403 || method == "PUT" && code == 404, "{method} {plural}: {code} {answer}");
        }
        let (code, answer) = hostile.ask_as(trusted.clone(), "POST", &path, JSON, object.to_string()).await;
        assert_eq!(code, 201, "{plural}: {answer}");
    }
    // to what is there already: `trusted` made the third one, the writer's own role has no rule of that kind
    let own = json!({"metadata": {"name": "mine"}, "rules": plain});
    let hers = hostile
        .grant(
            "hers",
            None,
            json!([
        {"apiGroups": [group], "resources": ["clusterroles"], "verbs": ["create", "update", "patch", "get"]},
        {"apiGroups": [group], "resources": ["roles"], "verbs": ["get"]}]),
        )
        .await;
    let path = format!("{RBAC}/clusterroles");
    assert_eq!(hostile.ask_as(hers.clone(), "POST", &path, JSON, own.to_string()).await.0, 201);
    for (name, change) in [
        ("mine", json!({"aggregationRule": collects})),
        ("mine", json!({"rules": all})),
        ("grows-3", json!({"aggregationRule": null})),
    ] {
        let media = "application/merge-patch+json";
        let (code, answer) =
            hostile.ask_as(hers.clone(), "PATCH", &format!("{path}/{name}"), media, change.to_string()).await;
        assert_eq!(code, 403, "{name} {change}: {answer}");
    }
}

#[tokio::test]
async fn a_token_dies_with_what_it_is_bound_to() {
    let hostile = Hostile::start(None).await;
    let ns = "/api/v1/namespaces/default";
    let review = |token: String| {
        let hostile = &hostile;
        async move {
            let body =
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let (code, answer) = hostile.ask_as(admin(), "POST", path, JSON, body.to_string()).await;
            assert_eq!(code, 201, "{answer}");
            let reviewed = answer["status"]["authenticated"] == true;
            // both ask the same
            assert_eq!(reviewed, hostile.server.core.authenticate(body["spec"]["token"].as_str().unwrap()).is_some());
            reviewed
        }
    };
    let account = json!({"metadata": {"name": "sa"}});
    let secret = json!({"metadata": {"name": "s"}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}});
    let objects = [("serviceaccounts", "sa", &account), ("secrets", "s", &secret), ("pods", "p", &pod)];
    for (kind, plural, name, object) in
        [("", "serviceaccounts", "sa", &account), ("Secret", "secrets", "s", &secret), ("Pod", "pods", "p", &pod)]
    {
        for (plural, name, object) in objects {
            if hostile.ask_as(admin(), "GET", &format!("{ns}/{plural}/{name}"), "", "").await.0 == 404 {
                let (code, answer) =
                    hostile.ask_as(admin(), "POST", &format!("{ns}/{plural}"), JSON, object.to_string()).await;
                assert_eq!(code, 201, "{answer}");
            }
        }
        let spec = if kind.is_empty() {
            json!({"spec": {}})
        } else {
            json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name}}})
        };
        let path = format!("{ns}/serviceaccounts/sa/token");
        let (code, answer) = hostile.ask_as(admin(), "POST", &path, JSON, spec.to_string()).await;
        assert_eq!(code, 201, "{answer}");
        let token = answer["status"]["token"].as_str().unwrap().to_owned();
        assert!(review(token.clone()).await, "{plural}");
        let path = format!("{ns}/{plural}/{name}?gracePeriodSeconds=0");
        assert_eq!(hostile.ask_as(admin(), "DELETE", &path, "", "").await.0, 200);
        assert!(!review(token.clone()).await, "{plural} is gone");
        let (code, answer) = hostile.ask_as(admin(), "POST", &format!("{ns}/{plural}"), JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
        assert!(!review(token).await, "{plural} is another one of the same name");
    }
}

/// Who asks for a proxy's users must not get the proxy's rights, however those users are called.
#[tokio::test]
async fn names_that_are_not_ascii_are_impersonated_or_refused() {
    use http_body_util::{BodyExt, Full};
    use tower::Service;
    let hostile = Hostile::start(None).await;
    let ask_as = async |user: &[u8], name: &str, value: &[u8]| {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = http::Request::post(path).header("content-type", JSON).header("impersonate-user", user);
        let request = if name.is_empty() { request } else { request.header(name, value) };
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
        let request = request.body(Full::new(bytes::Bytes::from(body))).unwrap();
        let response = hostile.server.service(admin()).call(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (code, answer) = ask_as("jürgen".as_bytes(), "", b"").await;
    assert_eq!((code, &answer["status"]["userInfo"]["username"]), (201, &json!("jürgen")), "{answer}");
    let (_, answer) = ask_as(b"u", "impersonate-group", "größe".as_bytes()).await;
    assert_eq!(answer["status"]["userInfo"]["groups"][0], "größe");
    assert_eq!(ask_as(b"\xff\xfe", "", b"").await.0, 400);
    for name in ["impersonate-group", "impersonate-uid", "impersonate-extra-k"] {
        let (code, answer) = ask_as(b"u", name, b"\xff\xfe").await;
        assert_eq!(code, 400, "{name}: {answer}");
    }
    // one of those whom nobody knows is so in any group
    let (_, answer) = ask_as(b"system:anonymous", "impersonate-group", b"system:authenticated").await;
    let both = json!(["system:authenticated", "system:unauthenticated"]);
    assert_eq!(answer["status"]["userInfo"]["groups"], both);
}

/// Names are known of what is there: a right to one name makes nothing of that name.
#[tokio::test]
async fn a_right_to_escalate_one_role_is_none_to_post_it() {
    let hostile = Hostile::start(None).await;
    let group = json!(["rbac.authorization.k8s.io"]);
    let bob = json!([
        {"apiGroups": group, "resources": ["clusterroles"], "verbs": ["create", "patch", "get"]},
        {"apiGroups": group, "resources": ["clusterroles"], "verbs": ["escalate"], "resourceNames": ["one"]},
    ]);
    let bob = hostile.grant("bob", None, bob).await;
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "one"}, "rules": all});
    let path = format!("{RBAC}/clusterroles");
    let (code, answer) = hostile.ask_as(bob.clone(), "POST", &path, JSON, role.to_string()).await;
    assert_eq!(code, 403, "{answer}");
    let (path, media) = (format!("{path}/one?fieldManager=me"), "application/apply-patch+yaml");
    let (code, answer) = hostile.ask_as(bob, "PATCH", &path, media, role.to_string()).await;
    assert_eq!(code, 201, "here the request says the name: {answer}");
}

/// WebSockets begin with a GET.
#[tokio::test]
async fn who_may_only_read_subresources_runs_nothing_in_pods() {
    let hostile = Hostile::start(None).await;
    let streams = json!(["pods/exec", "pods/attach", "pods/portforward"]);
    let rule = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": streams, "verbs": verbs}]);
    let reads = hostile.grant("reads", None, rule(&["get"])).await;
    let may = hostile.grant("may", None, rule(&["get", "create"])).await;
    for stream in ["exec?command=x", "attach", "portforward"] {
        let path = format!("/api/v1/namespaces/default/pods/p/{stream}");
        let (code, answer) = hostile.ask_as(reads.clone(), "GET", &path, JSON, String::new()).await;
        assert_eq!((code, &answer["message"]), (403, &json!("pods \"p\" is forbidden: ")), "{answer}");
        let (code, answer) = hostile.ask_as(may.clone(), "GET", &path, JSON, String::new()).await;
        assert_eq!(code, 404, "{answer}");
    }
}

/// A role becomes part of another that collects roles by nothing but a label: once a user who might update roles could make a role of his own
/// collect cluster-admin.
#[tokio::test]
async fn labels_of_roles_give_no_rights() {
    let hostile = Hostile::start(None).await;
    let verbs = json!(["get", "update", "patch"]);
    let roles = json!(["roles", "clusterroles", "rolebindings", "clusterrolebindings"]);
    let group = json!(["rbac.authorization.k8s.io"]);
    let rules = json!([{"apiGroups": group, "resources": roles, "verbs": verbs}]);
    let bob = hostile.grant("bob", None, rules.clone()).await;
    let held = json!({"metadata": {"name": "held"}, "rules": rules});
    assert_eq!(hostile.ask_as(admin(), "POST", &format!("{RBAC}/clusterroles"), JSON, held.to_string()).await.0, 201);
    let merge = "application/merge-patch+json";
    let labelled = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}}).to_string();
    for kept in ["clusterroles/cluster-admin", "clusterroles/view", "clusterrolebindings/cluster-admin"] {
        let path = format!("{RBAC}/{kept}");
        let annotated = json!({"metadata": {"annotations": {"a": "b"}}}).to_string();
        for change in [&labelled, &annotated] {
            let (code, answer) = hostile.ask_as(bob.clone(), "PATCH", &path, merge, change.as_str()).await;
            assert_eq!(code, 403, "{kept}: {answer}");
        }
        let apply = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]).to_string();
        let (code, answer) = hostile.ask_as(bob.clone(), "PATCH", &path, "application/json-patch+json", apply).await;
        assert_eq!(code, 403, "{kept}: {answer}");
        let (_, mut whole) = hostile.ask("GET", &path, JSON, "").await;
        whole["metadata"]["labels"]["a"] = json!("b");
        let (code, answer) = hostile.ask_as(bob.clone(), "PUT", &path, JSON, whole.to_string()).await;
        assert_eq!(code, 403, "{kept}: {answer}");
        // what garbage collection must be able to do
        let collected = json!({"metadata": {"finalizers": ["example.com/f"]}}).to_string();
        let (code, answer) = hostile.ask_as(bob.clone(), "PATCH", &path, merge, collected).await;
        assert_eq!(code, 200, "{kept}: {answer}");
    }
    let (code, answer) =
        hostile.ask_as(bob, "PATCH", &format!("{RBAC}/clusterroles/held"), merge, labelled.as_str()).await;
    assert_eq!(code, 200, "a role whose rights he has: {answer}");
}

/// Policies ask about rights: of the user of the request, for the resource of the request and others, and of a service account.
#[tokio::test]
async fn policies_ask_what_users_may_do() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let mut policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "variables": [{"name": "rights", "expression": "authorizer"}, {"name": "second", "expression": "duration('1s')"}],
        "validations": [
            {"expression": "variables.second < duration('2s') && variables.rights.group('apps').resource('deployments').namespace('default').check('create').allowed()",
             "message": "no deployments"},
            {"expression": "authorizer.requestResource.check('delete').allowed()", "message": "no deletion of its own"},
            {"expression": "!authorizer.serviceAccount('default', 'sa').requestResource.check('create').allowed() || true"},
            {"expression": "!authorizer.serviceAccount('default', 'sa').group('').resource('configmaps').namespace('default').check('create').allowed()",
             "message": "the account may, too"},
            {"expression": "authorizer.path('/metrics').check('get').reason() == ''", "message": "reads metrics"},
            {"expression": "true", "messageExpression": "string(authorizer.requestResource.check('create').allowed())"}]}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    // `requestResource` is one name with `authorizer`: that of an account has none
    let (code, answer) =
        hostile.ask("POST", &format!("{base}/validatingadmissionpolicies"), JSON, policy.to_string()).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!((code, message.contains("requestResource")), (422, true), "{answer}");
    // and messages are made without rights
    assert!(message.contains("validations[5].messageExpression"), "{answer}");
    let validations = policy["spec"]["validations"].as_array_mut().unwrap();
    validations.pop();
    validations.remove(2);
    for (plural, object) in [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)] {
        let (code, answer) = hostile.ask("POST", &format!("{base}/{plural}"), JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let rule = |group: &str, plural: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [plural], "verbs": verbs});
    let maps = rule("", "configmaps", &["create"]);
    let none = hostile.grant("none", None, json!([maps])).await;
    let makes = hostile.grant("makes", None, json!([maps, rule("apps", "deployments", &["create"])])).await;
    let both = json!([rule("", "configmaps", &["create", "delete"]), rule("apps", "deployments", &["*"])]);
    let all = hostile.grant("all", None, both.clone()).await;
    let metrics = json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]});
    let reads = hostile.grant("reads", None, json!([both[0], both[1], metrics])).await;
    let map = json!({"metadata": {"generateName": "a"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    for (user, expected) in [
        (none, "denied request: no deployments"),
        (makes, "denied request: no deletion of its own"),
        (all.clone(), ""),
        (reads, "denied request: reads metrics"),
    ] {
        let (code, answer) = hostile.ask_as(user, "POST", path, JSON, map.clone()).await;
        let message = answer["message"].as_str().unwrap_or_default();
        let fits = if expected.is_empty() { code == 201 } else { code == 422 && message.contains(expected) };
        assert!(fits, "{expected}: {answer}");
    }
    let bound = json!({"metadata": {"name": "account"}, "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "default"}],
        "roleRef": {"kind": "ClusterRole", "name": "none", "apiGroup": "rbac.authorization.k8s.io"}});
    let (code, answer) = hostile.ask("POST", &format!("{RBAC}/clusterrolebindings"), JSON, bound.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let (code, answer) = hostile.ask_as(all, "POST", path, JSON, map).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!((code, message.contains("the account may, too")), (422, true), "{answer}");
}

/// Messages of policies show what their parameters say, so that who makes a policy must be able to read those.
#[tokio::test]
async fn policies_take_no_parameters_that_their_maker_may_not_read() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let rule = |group: &str, plurals: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": plurals, "verbs": verbs});
    let policies = rule("admissionregistration.k8s.io", &["*"], &["*"]);
    let bob = hostile.grant("bob", None, json!([policies, rule("", &["configmaps"], &["get"])])).await;
    let constraints = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]});
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}});
    let own = |kind: &str| match kind {
        "validating" => json!({"validations": [{"expression": "true"}], "matchConstraints": constraints}),
        _ => json!({"mutations": [mutation], "reinvocationPolicy": "Never", "matchConstraints": constraints}),
    };
    let ask = async |who: &User, method: &str, path: String, body: Value| {
        let content = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
        hostile.ask_as(who.clone(), method, &path, content, body.to_string()).await
    };
    let all = "user &{bob  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind";
    for kind in ["validating", "mutating"] {
        let path = format!("{base}/{kind}admissionpolicies");
        let policy = |name: &str, param_kind: &Value| {
            let mut spec = own(kind);
            spec["paramKind"] = param_kind.clone();
            json!({"metadata": {"name": name}, "spec": spec})
        };
        let secrets = json!({"apiVersion": "v1", "kind": "Secret"});
        let maps = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let (code, answer) = ask(&bob, "POST", path.clone(), policy("secrets", &secrets)).await;
        let cause = &answer["details"]["causes"][0];
        assert_eq!((code, &cause["field"]), (422, &json!("spec.paramKind")), "{answer}");
        assert_eq!(cause["message"], format!("Forbidden: {all} (kind=Secret, apiVersion=v1)"), "{answer}");
        let unknown = json!({"apiVersion": "example.com/v1", "kind": "Nothing"});
        let (code, answer) = ask(&bob, "POST", path.clone(), policy("unknown", &unknown)).await;
        assert_eq!(code, 422, "a kind that nobody serves may come to be any: {answer}");
        let (code, answer) = ask(&bob, "POST", path.clone(), policy("maps", &maps)).await;
        assert_eq!(code, 201, "{answer}");
        let (code, answer) = ask(&admin(), "POST", path.clone(), policy("secrets", &secrets)).await;
        assert_eq!(code, 201, "{answer}");
        // an update asks where it takes other parameters
        let labelled = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, answer) = ask(&bob, "PATCH", format!("{path}/secrets"), labelled.clone()).await;
        assert_eq!(code, 200, "{answer}");
        let (code, answer) = ask(&bob, "PATCH", format!("{path}/maps"), json!({"spec": {"paramKind": secrets}})).await;
        assert_eq!(code, 422, "{answer}");

        let path = format!("{base}/{kind}admissionpolicybindings");
        let bound = |policy: &str, reference: Value| {
            let actions = if kind == "validating" { json!(["Deny"]) } else { Value::Null };
            json!({"metadata": {"generateName": "b"}, "spec": {"policyName": policy, "paramRef": reference, "validationActions": actions}})
        };
        let named = json!({"name": "p", "namespace": "default", "parameterNotFoundAction": "Deny"});
        let selected = json!({"selector": {}, "namespace": "default", "parameterNotFoundAction": "Deny"});
        for (policy, reference, expected) in [
            ("maps", &named, 201),
            ("maps", &selected, 422),
            ("secrets", &named, 422),
            ("secrets", &selected, 422),
            ("absent", &named, 422),
        ] {
            let (code, answer) = ask(&bob, "POST", path.clone(), bound(policy, reference.clone())).await;
            assert_eq!(code, expected, "{kind} {policy} {reference}: {answer}");
            let (code, answer) = ask(&admin(), "POST", path.clone(), bound(policy, reference.clone())).await;
            assert_eq!(code, 201, "{answer}");
        }
        let policies = format!("{base}/{kind}admissionpolicies");
        let (code, answer) = ask(&admin(), "POST", policies, policy("unknown", &unknown)).await;
        assert_eq!(code, 201, "{answer}");
        let bob_is = "&{bob  [system:authenticated] map[]}";
        let (who, what) = if kind == "validating" { (bob_is, "get") } else { ("get", bob_is) };
        let everything = format!(
            "to determine minimum required permissions and user {bob_is} does not have \"get\" permission for all groups, versions and resources"
        );
        for (policy, words) in [
            ("secrets", format!("user {who} does not have \"{what}\" permission on the object referenced by paramRef")),
            ("absent", format!("unable to get policy absent {everything}")),
            ("unknown", format!("unable to resolve paramKind &{{example.com/v1 Nothing}} {everything}")),
        ] {
            let (code, answer) = ask(&bob, "POST", path.clone(), bound(policy, named.clone())).await;
            assert_eq!(
                (code, &answer["details"]["causes"][0]["message"]),
                (422, &json!(format!("Forbidden: {words}")))
            );
        }
    }
}
