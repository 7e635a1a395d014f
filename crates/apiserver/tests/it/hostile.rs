//! Requests that try to break the server: what is stored can be read again, what cannot is refused, and nothing stops it.

use apiserver::{Options, Server};
use http_body_util::{BodyExt, Full};
use resource::User;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use tower::Service;

const MIB: usize = 1 << 20;

pub struct Hostile {
    pub server: Arc<Server>,
}

impl Hostile {
    pub async fn start(database: Option<&Path>) -> Self {
        let options = Options { database: database.map(Into::into), ..Options::new(kinds::built_in()) };
        let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
        Self { server }
    }

    /// Status code and body of the administrator's request with a body of this media type.
    pub async fn ask(&self, method: &str, path: &str, media: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
        self.ask_as(User::admin(), method, path, media, body).await
    }

    pub async fn ask_as(
        &self,
        user: User,
        method: &str,
        path: &str,
        media: &str,
        body: impl Into<Vec<u8>>,
    ) -> (u16, Value) {
        let (code, body) = self.bytes_as(user, method, path, media, body).await;
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// The same, with the body as it is.
    pub async fn bytes_as(
        &self,
        user: User,
        method: &str,
        path: &str,
        media: &str,
        body: impl Into<Vec<u8>>,
    ) -> (u16, bytes::Bytes) {
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Full::new(bytes::Bytes::from(body.into()))).unwrap();
        let response = self.server.service(user).call(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        (code, body)
    }

    pub async fn define(&self) {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.test.io"},
            "spec": {"group": "test.io", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                        "filled": {"type": "array", "items": {"type": "object", "properties": {
                            "text": {"type": "string", "default": "x".repeat(100_000)}}}}}}}}]},
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let (code, answer) = self.ask("POST", path, "application/json", definition.to_string()).await;
        assert_eq!(code, 201, "{answer}");
        let server = self.server.clone();
        tokio::task::spawn_blocking(move || server.sync_definitions()).await.unwrap();
    }
}

const THINGS: &str = "/apis/test.io/v1/namespaces/default/things";
const PATCHES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Runs on worker threads with the stack that they have in production.
fn with_small_stacks(test: impl Future<Output = ()> + Send + 'static) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).thread_stack_size(2 * MIB).enable_all().build().unwrap();
    runtime.block_on(async { tokio::spawn(test).await.unwrap() });
}

fn nested(levels: usize, list: bool) -> String {
    if list { "[".repeat(levels) + &"]".repeat(levels) } else { "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels) }
}

fn thing(name: &str, members: &str) -> String {
    format!(r#"{{"apiVersion":"test.io/v1","kind":"Thing","metadata":{{"name":"{name}"}}{members}}}"#)
}

#[test]
fn whatever_depth_is_stored_is_served_by_the_next_start() {
    with_small_stacks(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sqlite");
        let mut stored = Vec::new();
        {
            let hostile = Hostile::start(Some(&path)).await;
            hostile.define().await;
            for (levels, list) in (80..=130).step_by(5).chain([1_000, 100_000]).flat_map(|n| [(n, true), (n, false)]) {
                let members = format!(r#","deep":{}"#, nested(levels, list));
                let name = format!("t{levels}-{list}");
                let (code, answer) = hostile.ask("POST", THINGS, "application/json", thing(&name, &members)).await;
                assert!(matches!(code, 201 | 400), "{levels}: {code} {answer}");
                if code == 201 {
                    stored.push(name.clone());
                }
                let (code, _) = hostile.ask("POST", THINGS, "application/json", thing(&format!("p{name}"), "")).await;
                assert_eq!(code, 201);
                stored.push(format!("p{name}"));
                for media in PATCHES {
                    let body = match media {
                        "application/json-patch+json" => {
                            format!(r#"[{{"op":"add","path":"/deep","value":{}}}]"#, nested(levels, list))
                        }
                        _ => thing(&format!("p{name}"), &members),
                    };
                    let path = format!("{THINGS}/p{name}?fieldManager=t&force=true");
                    let path = if media.contains("apply") { path } else { path.replace("&force=true", "") };
                    let (code, answer) = hostile.ask("PATCH", &path, media, body).await;
                    assert!(matches!(code, 200 | 400), "{levels} {media}: {code} {answer}");
                }
            }
            assert!(stored.iter().any(|name| name.starts_with("t80")), "{stored:?}");
            assert!(!stored.iter().any(|name| name.starts_with("t100")), "{stored:?}");
        }
        let hostile = Hostile::start(Some(&path)).await;
        for name in stored {
            let (code, answer) = hostile.ask("GET", &format!("{THINGS}/{name}"), "", "").await;
            assert_eq!((code, &answer["metadata"]["name"]), (200, &json!(name)));
        }
    });
}

#[test]
fn patches_that_double_an_object_end_at_a_bound() {
    with_small_stacks(async {
        let hostile = Hostile::start(None).await;
        hostile.define().await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        assert_eq!(hostile.ask("POST", maps, "application/json", map.to_string()).await.0, 201);
        assert_eq!(hostile.ask("POST", THINGS, "application/json", thing("a", r#","s":{"b":1}"#)).await.0, 201);
        for path in [format!("{maps}/a"), format!("{THINGS}/a")] {
            for (from, to) in [("/metadata", "/metadata/labels"), ("/metadata", "/metadata/x"), ("/s", "/s/b")] {
                let copies = vec![json!({"op": "copy", "from": from, "path": to}); 120];
                let (code, answer) = hostile.ask("PATCH", &path, PATCHES[0], json!(copies).to_string()).await;
                assert!((400..500).contains(&code), "{code} {answer}");
            }
            let (code, answer) =
                hostile.ask("PATCH", &path, PATCHES[0], json!(vec![json!({"op": "test"}); 10_001]).to_string()).await;
            assert_eq!(code, 413, "{answer}");
            assert_eq!(answer["message"], "The allowed maximum operations in a JSON patch is 10000, got 10001");
        }
        // piece by piece, and all at once through defaults
        let mut refused = 0;
        for i in 0..12 {
            let patch = json!({"s": {format!("k{i}"): "x".repeat(MIB / 4)}}).to_string();
            let (code, answer) = hostile.ask("PATCH", &format!("{THINGS}/a"), PATCHES[1], patch).await;
            if code != 200 {
                assert_eq!((code, &answer["message"]), (413, &json!("etcdserver: request is too large")));
                refused += 1;
            }
        }
        assert_eq!(refused, 7, "1.5 MiB hold five quarters of a MiB");
        let many = thing("many", &format!(r#","filled":[{}]"#, vec!["{}"; 500_000].join(",")));
        for suffix in ["", "?dryRun=All"] {
            let (code, answer) =
                hostile.ask("POST", &format!("{THINGS}{suffix}"), "application/json", many.clone()).await;
            assert_eq!((code, &answer["message"]), (413, &json!("etcdserver: request is too large")));
        }
        let (code, answer) = hostile.ask("POST", THINGS, "application/json", " ".repeat(3 * MIB + 1)).await;
        assert_eq!((code, &answer["message"]), (413, &json!("Request entity too large: limit is 3145728")));
        assert_eq!(hostile.ask("GET", &format!("{THINGS}/a"), "", "").await.0, 200);
    });
}
