//! Answers that clients see and that no rule of the API's documents names: as kube-apiserver 1.36 gives them, which was asked.

use crate::hostile::Hostile;
use http_body_util::{BodyExt, Full};
use resource::User;
use serde_json::{Value, json};
use tower::Service;

const BASE: &str = "/api/v1/namespaces/default";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Code, warnings and body.
async fn ask(hostile: &Hostile, method: &str, path: &str, media: &str, body: Value) -> (u16, Vec<String>, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(Full::new(bytes::Bytes::from(body.to_string()))).unwrap();
    let response = hostile.server.service(User::admin()).call(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, warnings, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// Makes an object, which is answered.
async fn made(hostile: &Hostile, path: &str, object: Value) -> Value {
    let (code, _, answer) = ask(hostile, "POST", path, JSON, object).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

#[tokio::test]
async fn a_pod_that_goes_at_once_is_changed_then_deleted() {
    let hostile = Hostile::start(None).await;
    made(&hostile, &format!("{BASE}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let pods = format!("{BASE}/pods");
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (name, all) in [("one", false), ("many", true)] {
        let pod = made(&hostile, &pods, pod(name)).await;
        let version = api::object::resource_version(&pod);
        let path = if all { pods.clone() } else { format!("{pods}/{name}") };
        let (code, _, last) = ask(&hostile, "DELETE", &path, JSON, json!({"gracePeriodSeconds": 0})).await;
        assert_eq!(code, 200, "{last}");
        let watch = format!("{pods}?watch=true&timeoutSeconds=1&resourceVersion={version}");
        let (_, bytes) = hostile.bytes_as(User::admin(), "GET", &watch, "", "").await;
        let events: Vec<Value> = serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect();
        let seen: Vec<_> = events.iter().map(|event| (&event["type"], &event["object"]["metadata"])).collect();
        let [(first, changed), (second, gone)] = seen.as_slice() else { panic!("{events:?}") };
        assert_eq!([*first, *second], ["MODIFIED", "DELETED"]);
        for meta in [changed, gone] {
            assert_eq!((&meta["deletionGracePeriodSeconds"], &meta["generation"]), (&json!(0), &json!(2)), "{meta}");
        }
        assert_ne!(changed["resourceVersion"], gone["resourceVersion"]);
        if !all {
            assert_eq!(last["metadata"]["resourceVersion"], gone["resourceVersion"], "the answer is the last version");
        }
    }
}
