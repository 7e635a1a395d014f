//! What the agent of a node may do, and for how long: requests and answers as upstream's node authorizer and NodeRestriction have
//! them, and the end of everything with the Node's uid.

use crate::hostile::Hostile;
use apiserver::auth::Authenticator;
use apiserver::{Options, Server};
use futures::StreamExt;
use http_body_util::{BodyDataStream, BodyExt, Full};
use resource::User;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tower::Service;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// Signs tokens.
const KEY: [u8; 32] = [7; 32];
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with the nodes `one` and `two`, and pods on both that use Secrets and ConfigMaps in two namespaces.
async fn start() -> Hostile {
    let plugins: Vec<Arc<dyn resource::admission::Admission>> = vec![Arc::new(kinds::NodeRestriction)];
    let options = Options { plugins, authenticator: Authenticator::new(KEY), ..Options::new(kinds::built_in()) };
    let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
    let hostile = Hostile { server };
    for node in ["one", "two"] {
        let body = json!({"metadata": {"name": node, "labels": {"kubernetes.io/os": "linux"}}});
        post(&hostile, "/api/v1/nodes", body).await;
    }
    for namespace in ["ns", "other"] {
        post(&hostile, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        let account = json!({"metadata": {"name": "default"}});
        post(&hostile, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), account).await;
        for name in ["used", "theirs"] {
            let base = format!("/api/v1/namespaces/{namespace}");
            post(&hostile, &format!("{base}/secrets"), json!({"metadata": {"name": name}})).await;
            post(&hostile, &format!("{base}/configmaps"), json!({"metadata": {"name": name}})).await;
        }
    }
    let pod = |name: &str, node: &str, secret: &str| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "s", "secret": {"secretName": secret}}, {"name": "m", "configMap": {"name": secret}}]}})
    };
    for (name, node, secret) in [("mine", "one", "used"), ("other", "two", "theirs")] {
        post(&hostile, "/api/v1/namespaces/ns/pods", pod(name, node, secret)).await;
    }
    hostile
}

async fn post(hostile: &Hostile, path: &str, body: Value) {
    let (code, answer) = hostile.ask("POST", path, JSON, body.to_string()).await;
    assert_eq!(code, 201, "{path}: {answer}");
}

#[tokio::test]
async fn an_agent_reads_what_its_own_pods_use_in_their_namespace() {
    let hostile = start().await;
    let all = "/api/v1";
    let ns = "/api/v1/namespaces/ns";
    let rows = [
        (format!("{ns}/secrets/used"), 200),
        (format!("{ns}/configmaps/used"), 200),
        (format!("{ns}/secrets?fieldSelector=metadata.name%3Dused"), 200),
        (format!("{ns}/configmaps?fieldSelector=metadata.name%3Dused"), 200),
        (format!("{ns}/secrets/theirs"), 403),
        (format!("{ns}/secrets"), 403),
        ("/api/v1/namespaces/other/secrets/used".to_owned(), 403),
        // of all namespaces: a Secret of that name in any of them
        (format!("{all}/secrets?fieldSelector=metadata.name%3Dused"), 403),
        (format!("{all}/configmaps?fieldSelector=metadata.name%3Dused"), 403),
        (format!("{all}/secrets?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dused"), 403),
        (format!("{all}/watch/secrets?timeoutSeconds=1&fieldSelector=metadata.name%3Dused"), 403),
        // what follows an escaped comma is a part of a value
        (format!("{ns}/secrets?fieldSelector=metadata.name!%3Dx%5C,metadata.name%3Dused"), 403),
        (format!("{all}/pods?fieldSelector=spec.nodeName%3Done"), 200),
        (format!("{all}/pods?fieldSelector=spec.nodeName%3Dtwo"), 403),
        (format!("{all}/pods?fieldSelector=metadata.name!%3Dx%5C,spec.nodeName%3Done"), 403),
        (format!("{all}/pods"), 403),
        (format!("{ns}/pods/mine"), 200),
        (format!("{ns}/pods/other"), 403),
        (format!("{all}/nodes/one"), 200),
        (format!("{all}/nodes/two"), 403),
        (format!("{all}/nodes"), 403),
    ];
    for (path, expected) in rows {
        let (code, answer) = hostile.ask_as(User::of_node("one"), "GET", &path, "", "").await;
        assert_eq!(code, expected, "{path}: {answer}");
    }
}

#[tokio::test]
async fn an_agent_changes_no_part_of_its_node_that_says_which_pods_may_run_there() {
    let hostile = start().await;
    let owners = json!([{"apiVersion": "v1", "kind": "Node", "name": "one", "uid": "u"}]);
    let label = |name: &str| json!({"metadata": {"labels": {name: "x"}}});
    let rows = [
        ("one", label("mine"), ""),
        ("one", label("node.kubernetes.io/mine"), ""),
        ("one", label("node-role.kubernetes.io/control-plane"), "is not allowed to modify labels: node-role"),
        ("one", label("node-restriction.kubernetes.io/x"), "is not allowed to modify labels: node-restriction"),
        ("one", json!({"metadata": {"labels": {"kubernetes.io/os": null}}}), ""),
        ("one", json!({"metadata": {"ownerReferences": owners}}), "is not allowed to modify ownerReferences"),
        ("one", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}), "is not allowed to modify taints"),
        ("one", json!({"spec": {"configSource": {"configMap": {"name": "x"}}}}), "to update configSource"),
        ("two", label("mine"), "User \"system:node:one\" cannot patch resource"),
    ];
    for (node, change, refusal) in rows {
        for path in [format!("/api/v1/nodes/{node}"), format!("/api/v1/nodes/{node}/status")] {
            let path = format!("{path}?dryRun=All");
            let (code, answer) = hostile.ask_as(User::of_node("one"), "PATCH", &path, MERGE, change.to_string()).await;
            let message = answer["message"].as_str().unwrap_or_default();
            assert_eq!(code, if refusal.is_empty() { 200 } else { 403 }, "{path} {change}: {answer}");
            assert!(message.contains(refusal), "{path} {change}: {message}");
        }
    }
    // of its pods, the status alone, and not the labels along with it
    let pods = [
        ("mine/status", json!({"status": {"phase": "Running"}}), 200),
        ("mine/status", label("x"), 403),
        ("mine/status", json!({"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}}), 403),
        ("other/status", json!({"status": {"phase": "Running"}}), 403),
        ("mine", label("x"), 403),
    ];
    for (pod, change, expected) in pods {
        let path = format!("/api/v1/namespaces/ns/pods/{pod}?dryRun=All");
        let (code, answer) = hostile.ask_as(User::of_node("one"), "PATCH", &path, MERGE, change.to_string()).await;
        assert_eq!(code, expected, "{path} {change}: {answer}");
    }
}

/// Whether the Node's token is still good, and a watch of its pods.
struct Agent {
    token: String,
    watch: BodyDataStream<apiserver::Body>,
}

impl Agent {
    async fn of(hostile: &Hostile, node: &str) -> Self {
        let (_, there) = hostile.ask("GET", &format!("/api/v1/nodes/{node}"), "", "").await;
        let core = &hostile.server.core;
        let now = jiff::Timestamp::now();
        let uid = there["metadata"]["uid"].as_str().unwrap();
        let token = Authenticator::new(KEY).node_token(node, uid, now, 600);
        let user = core.authenticate(&token).unwrap();
        let path = format!("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D{node}");
        let request = http::Request::builder().uri(path).body(Full::new(bytes::Bytes::new())).unwrap();
        let response = hostile.server.service(user).call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Self { token, watch: BodyExt::into_data_stream(response.into_body()) }
    }
}

#[tokio::test]
async fn everything_of_an_agent_ends_with_the_uid_of_its_node() {
    let hostile = start().await;
    for finalizers in [json!([]), json!(["example.com/stay"])] {
        let mut one = Agent::of(&hostile, "one").await;
        let mut two = Agent::of(&hostile, "two").await;
        assert!(one.watch.next().await.is_some() && two.watch.next().await.is_some(), "the pods that there are");
        // as the agent itself may do
        let hold = json!({"metadata": {"finalizers": finalizers}}).to_string();
        let (code, answer) = hostile.ask_as(User::of_node("one"), "PATCH", "/api/v1/nodes/one", MERGE, hold).await;
        assert_eq!(code, 200, "{answer}");
        assert!(hostile.server.core.authenticate(&one.token).is_some());
        assert_eq!(hostile.ask("DELETE", "/api/v1/nodes/one", "", "").await.0, 200);
        assert!(hostile.server.core.authenticate(&one.token).is_none(), "{finalizers}");
        let ended = tokio::time::timeout(PATIENCE, async { while one.watch.next().await.is_some() {} }).await;
        assert!(ended.is_ok(), "the watch of a Node's agent goes on without the Node: {finalizers}");

        let none = json!({"metadata": {"finalizers": null}}).to_string();
        let (_, _) = hostile.ask("PATCH", "/api/v1/nodes/one", MERGE, none).await;
        post(&hostile, "/api/v1/nodes", json!({"metadata": {"name": "one"}})).await;
        assert!(hostile.server.core.authenticate(&one.token).is_none(), "another Node of that name");
        assert!(hostile.server.core.authenticate(&two.token).is_some());
        assert!(futures::FutureExt::now_or_never(two.watch.next()).is_none(), "the other agent's watch goes on");
    }
}
