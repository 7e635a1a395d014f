//! Programs that users wrote run, for as long as they may, beside everything else: other requests are answered meanwhile.

use crate::hostile::Hostile;
use apiserver::{Options, Server};
use http_body_util::Empty;
use resource::User;
use resource::admission::{Admission, Operation, Request};
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::Service;

const THINGS: &str = "/apis/test.io/v1/namespaces/default/things";
const JSON: &str = "application/json";

/// Takes long, as a rule can: until another request was answered.
struct Long {
    entered: Mutex<Sender<()>>,
    answered: Mutex<Receiver<()>>,
}

impl Admission for Long {
    fn validator(&self) -> &str {
        "long"
    }

    fn handles(&self, operation: Operation, _group: &str, resource: &str, _subresource: &str) -> bool {
        operation == Operation::Create && resource == "things"
    }

    fn validate(&self, _request: &Request<'_>) -> Result<Vec<String>, Status> {
        self.entered.lock().unwrap().send(()).unwrap();
        let answered = self.answered.lock().unwrap().recv_timeout(Duration::from_secs(60));
        answered.map(|()| Vec::new()).map_err(|_| Status::bad_request("nobody was answered meanwhile"))
    }
}

fn definition(rule: &str) -> Value {
    json!({
        "metadata": {"name": "things.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object",
                    "properties": {"list": {"type": "array", "maxItems": 100, "items": {"type": "integer"}}},
                    "x-kubernetes-validations": [{"rule": rule}]}}}}}]},
    })
}

async fn define(server: &Arc<Server>, rule: &str) {
    let hostile = Hostile { server: server.clone() };
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = hostile.ask("POST", path, JSON, definition(rule).to_string()).await;
    assert_eq!(code, 201, "{answer}");
    let server = server.clone();
    tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
}

/// One worker thread: what keeps it keeps all.
#[test]
fn rules_do_not_hold_the_threads_of_sockets() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (entered, has_entered) = channel();
    let (answered, was_answered) = channel();
    let long = Long { entered: Mutex::new(entered), answered: Mutex::new(was_answered) };
    let options = Options { plugins: vec![Arc::new(long)], ..Options::new(kinds::built_in()) };
    let server = Server::new(options).unwrap();
    let asking = server.clone();
    let write = runtime.spawn(async move {
        define(&asking, "self.list.all(x, x >= 0)").await;
        let hostile = Hostile { server: asking };
        let thing =
            json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"list": [1]}});
        hostile.ask("POST", THINGS, JSON, thing.to_string()).await
    });
    has_entered.recv_timeout(Duration::from_secs(60)).unwrap();
    let read = runtime.spawn(async move {
        let request = http::Request::get("/version").body(Empty::<bytes::Bytes>::new()).unwrap();
        let code = server.service(User::admin()).call(request).await.unwrap().status();
        answered.send(()).unwrap();
        code
    });
    let (code, answer) = runtime.block_on(write).unwrap();
    assert_eq!(code, 201, "{answer}");
    assert_eq!(runtime.block_on(read).unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_have_a_limit_for_all_that_they_say() {
    let hostile = Hostile::start(None).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let dear = "[1,2,3,4,5,6,7,8].all(a, object.data.k.split('').all(x, x != 'y' || a < 0))";
    let policy = |name: &str, count: usize| {
        let conditions = if name == "conditions" { count } else { 0 };
        let conditions: Vec<Value> =
            (0..conditions).map(|i| json!({"name": format!("c{i}"), "expression": dear})).collect();
        let count = if conditions.is_empty() { count } else { 1 };
        json!({"metadata": {"name": name}, "spec": {"matchConditions": conditions,
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": vec![json!({"expression": dear}); count]}})
    };
    for (name, count) in [("few", 1), ("many", 120), ("conditions", 60)] {
        let (code, answer) = hostile
            .ask("POST", &format!("{base}/validatingadmissionpolicies"), JSON, policy(name, count).to_string())
            .await;
        assert_eq!(code, 201, "{answer}");
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"],
            "matchResources": {"objectSelector": {"matchLabels": {"policy": name}}}}});
        let (code, answer) =
            hostile.ask("POST", &format!("{base}/validatingadmissionpolicybindings"), JSON, binding.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let map = |policy: &str, size: usize| {
        json!({"metadata": {"name": policy, "labels": {"policy": policy}}, "data": {"k": "x".repeat(size)}}).to_string()
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, answer) = hostile.ask("POST", maps, JSON, map("few", 5_000)).await;
    assert_eq!(code, 201, "one expression has this much: {answer}");
    for (name, found) in [("many", "expression '"), ("conditions", "denied request: validation failed")] {
        let (code, answer) = hostile.ask("POST", maps, JSON, map(name, 5_000)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!((code, message.contains("running out of cost budget")), (422, true), "{answer}");
        assert!(message.contains(found), "{answer}");
    }
    let (code, answer) = hostile.ask("POST", maps, JSON, map("few", 1_000_000)).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!((code, message.contains("actual cost limit exceeded")), (422, true), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_cannot_ask_for_all_memory() {
    let hostile = Hostile::start(None).await;
    // of a definition, what a rule may ask for is known beforehand
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let rule = definition("lists.range(self.list[0]).size() >= 0").to_string();
    let (code, answer) = hostile.ask("POST", definitions, JSON, rule).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!((code, message.contains("estimated rule cost exceeds budget")), (422, true), "{answer}");
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "lists.range(int(object.data.k)).size() >= 0 && 'x'.replace('x', 'y') == 'y'"}]}});
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    for (plural, object) in [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)] {
        let (code, answer) = hostile.ask("POST", &format!("{base}/{plural}"), JSON, object.to_string()).await;
        assert_eq!(code, 201, "{answer}");
    }
    let map = |count: i64| json!({"metadata": {"generateName": "a"}, "data": {"k": count.to_string()}}).to_string();
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, answer) = hostile.ask("POST", maps, JSON, map(1000)).await;
    assert_eq!(code, 201, "{answer}");
    for count in [i64::MAX, 1_000_000_000_000] {
        let (code, answer) = hostile.ask("POST", maps, JSON, map(count)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!((code, message.contains("cost limit exceeded")), (422, true), "{answer}");
    }
}
