//! Whatever stands in CustomResourceDefinitions, the server stays: hostile ones ([`generator`]), then objects of those that it takes,
//! patches of every form, subresources, lists and watches in every form, other definitions put in their place, another start on the same
//! file, and their end. `PROPTEST_CASES` asks for more (`make soak`).

mod generator;

use crate::hostile::Hostile;
use bytes::Bytes;
use generator::{Draws, definition};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;
use proptest::test_runner::Config;
use resource::User;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const JSON: &str = "application/json";
const PATCHES: [&str; 4] = [
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/strategic-merge-patch+json",
];

/// Most processor time of one request, in a build without optimisations. What is allowed to cost most (rules, at upstream's limit for a
/// request) takes a few seconds there.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// Most bytes of one answer: the largest object that may be stored, in tables and messages about itself.
const ANSWER_MAX: usize = 64 << 20;

/// What the bookmark says that comes once a watch has told of all objects that are there.
const ALL_TOLD: &str = "k8s.io/initial-events-end";

/// How long until it comes.
const TOLD_MAX: Duration = Duration::from_secs(120);

/// How long a case may take until it counts as hung.
const CASE_MAX: Duration = Duration::from_secs(600);

struct Case {
    hostile: Hostile,
    draws: Draws,
}

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    now.into()
}

fn shown(text: &str) -> String {
    text.chars().take(3000).collect()
}

/// What a kube-apiserver, too, says with code 500: what is applied, or what was stored by an earlier schema, does not have the types that the
/// schema states, nothing can be applied to the scale of a custom object, and one without replicas has none.
const FIVE_HUNDREDS: [&str; 6] = [
    "failed to create typed patch object",
    "failed to create typed live object",
    "failed to create manager for existing fields: failed to convert new object",
    "failed to prune fields: failed to convert merged object",
    "request to convert CR to an invalid group/version: autoscaling/v1",
    "the spec replicas field",
];

/// A body, up to a text.
async fn told(response: Response<apiserver::Body>, until: Option<&str>) -> Vec<u8> {
    let (mut body, mut out) = (response.into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap_or_default();
        out.extend_from_slice(&data);
        if until.is_some_and(|text| data.windows(text.len()).any(|part| part == text.as_bytes())) {
            return out;
        }
    }
    assert!(until.is_none(), "{until:?} did not come: {}", shown(&String::from_utf8_lossy(&out)));
    out
}

impl Case {
    async fn ask(&self, method: &str, path: &str, media: &str, body: &str) -> (u16, Value) {
        let before = cpu();
        let (code, bytes) = self.hostile.bytes_as(User::admin(), method, path, media, body).await;
        let spent = cpu() - before;
        let said = String::from_utf8_lossy(&bytes[..bytes.len().min(3000)]).into_owned();
        assert!(
            code < 500 || FIVE_HUNDREDS.iter().any(|known| said.contains(known)),
            "{method} {path} {media}: {code} {said}\n{}",
            shown(body)
        );
        assert!(
            spent < REQUEST_MAX,
            "{method} {path} {media} took {spent:?}: {code} {}\n{}",
            shown(&said),
            shown(body)
        );
        assert!(
            bytes.len() < ANSWER_MAX,
            "{method} {path} {media}: an answer of {} bytes: {}\n{}",
            bytes.len(),
            shown(&said),
            shown(body)
        );
        if std::env::var_os("HOSTILE_LOG").is_some() {
            eprintln!(
                "{method} {path} {media}: {code} {spent:?} {} -> {} {}",
                body.len(),
                bytes.len(),
                if code >= 400 { shown(&said) } else { String::new() }
            );
        }
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn sync(&self) {
        let before = cpu();
        self.hostile.server.sync_definitions();
        let spent = cpu() - before;
        assert!(spent < REQUEST_MAX, "definitions were followed for {spent:?}");
    }

    /// Objects of each version that is served; which objects there are, by path.
    async fn objects(&mut self, definition: &Value) {
        let spec = &definition["spec"];
        for version in spec["versions"].as_array().unwrap() {
            let paths = Paths::of(definition, version);
            let (code, discovered) = self.ask("GET", &paths.group, "", "").await;
            let there = discovered["resources"]
                .as_array()
                .is_some_and(|all| all.iter().any(|r| r["name"] == spec["names"]["plural"]));
            if code != 200 || !there {
                continue;
            }
            let schema = &version["schema"]["openAPIV3Schema"];
            for (i, validation) in ["Strict", "Warn", "Ignore"].into_iter().enumerate() {
                let name = format!("o{}", self.draws.below(4));
                let object = self.object(schema, &paths, &name);
                self.ask(
                    "POST",
                    &format!("{}?fieldValidation={validation}", paths.collection),
                    JSON,
                    &object.to_string(),
                )
                .await;
                let at = format!("{}/{name}", paths.collection);
                for media in PATCHES {
                    let change = self.object(schema, &paths, &name);
                    let body = match media {
                        "application/json-patch+json" => json!([
                            {"op": "add", "path": "/spec", "value": change["spec"]},
                            {"op": "copy", "from": "/spec", "path": "/spec/a"},
                            {"op": "test", "path": "/metadata/name", "value": name},
                        ]),
                        _ => change,
                    };
                    let force = if media.contains("apply") { "&force=true" } else { "" };
                    for suffix in ["", "/status", "/scale"] {
                        self.ask("PATCH", &format!("{at}{suffix}?fieldManager=t{force}"), media, &body.to_string())
                            .await;
                    }
                }
                if i == 0 {
                    let (code, scale) = self.ask("GET", &format!("{at}/scale"), "", "").await;
                    if code == 200 {
                        for replicas in [json!(i64::MAX), json!(-1), json!(3), json!("x")] {
                            let mut scale = scale.clone();
                            scale["spec"]["replicas"] = replicas;
                            self.ask("PUT", &format!("{at}/scale"), JSON, &scale.to_string()).await;
                        }
                    }
                    let (_, mut held) = self.ask("GET", &at, "", "").await;
                    held["spec"] = self.object(schema, &paths, &name)["spec"].take();
                    held["status"] = self.object(schema, &paths, &name)["spec"].take();
                    self.ask("PUT", &at, JSON, &held.to_string()).await;
                    self.ask("PUT", &format!("{at}/status"), JSON, &held.to_string()).await;
                }
            }
            self.lists(&paths).await;
            self.ask("GET", &format!("/openapi/v3{}", paths.group), "", "").await;
        }
    }

    fn object(&mut self, schema: &Value, paths: &Paths, name: &str) -> Value {
        let mut budget = *self.draws.of(&[300, 5000, 200_000, 2_500_000]);
        let mut object = self.draws.value(schema, &mut budget);
        if !object.is_object() {
            object = json!({"spec": object});
        }
        object["apiVersion"] = paths.api_version.clone().into();
        object["kind"] = paths.kind.clone().into();
        object["metadata"] = json!({"name": name, "labels": {"app": "t"}});
        object
    }

    /// Lists and watches of the objects, in every form.
    async fn lists(&self, paths: &Paths) {
        for accept in [
            "application/json",
            "application/yaml",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        ] {
            for query in ["?includeObject=Object", "?limit=1", "?fieldSelector=spec.a%3D1", "?labelSelector=app%3Dt"] {
                self.read(&format!("{}{query}", paths.collection), accept, None).await;
            }
            for query in ["", "&includeObject=Object", "&fieldSelector=spec.a%3D1"] {
                let all = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
                let accept = accept.replace("MetadataList", "Metadata");
                self.read(&format!("{}?{all}{query}", paths.collection), &accept, Some(ALL_TOLD)).await;
            }
        }
    }

    /// What a request is answered, up to this text, if one is given.
    async fn read(&self, path: &str, accept: &str, until: Option<&str>) {
        let request = Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
        let before = cpu();
        let response = tower::Service::call(&mut self.hostile.server.service(User::admin()), request).await.unwrap();
        let code = response.status().as_u16();
        let until = until.filter(|_| code == 200);
        let body = tokio::time::timeout(TOLD_MAX, told(response, until)).await;
        let body = body.unwrap_or_else(|_| panic!("{path} {accept}: {until:?} does not come"));
        let spent = cpu() - before;
        if std::env::var_os("HOSTILE_LOG").is_some() {
            eprintln!("GET {path} {accept}: {code} {spent:?} {}", body.len());
        }
        assert!(
            code < 500 && spent < REQUEST_MAX && body.len() < ANSWER_MAX,
            "{path} {accept}: {code} {spent:?} {} bytes: {}",
            body.len(),
            shown(&String::from_utf8_lossy(&body[..body.len().min(3000)]))
        );
    }

    /// Names and versions of all objects of the definitions.
    async fn held(&self, definitions: &[Value]) -> BTreeMap<String, Value> {
        let mut out = BTreeMap::new();
        for definition in definitions {
            for version in definition["spec"]["versions"].as_array().unwrap() {
                let paths = Paths::of(definition, version);
                let (code, list) = self.ask("GET", &paths.collection, "", "").await;
                assert!(matches!(code, 200 | 404), "{}: {code} {list}", paths.collection);
                for object in list["items"].as_array().into_iter().flatten() {
                    let name = object["metadata"]["name"].as_str().unwrap();
                    out.insert(format!("{}/{name}", paths.collection), object["metadata"]["resourceVersion"].clone());
                }
            }
        }
        out
    }
}

struct Paths {
    group: String,
    collection: String,
    api_version: String,
    kind: String,
}

impl Paths {
    fn of(definition: &Value, version: &Value) -> Self {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
        let group = format!("/apis/{api_version}");
        let place = if spec["scope"] == "Namespaced" { "/namespaces/default" } else { "" };
        let collection = format!("{group}{place}/{}", text(&spec["names"]["plural"]));
        Self { group, collection, api_version, kind: text(&spec["names"]["kind"]) }
    }
}

async fn start(database: &Path) -> Hostile {
    let hostile = Hostile::start(Some(database)).await;
    hostile.server.sync_definitions();
    hostile
}

/// One case, on a thread with the stack that worker threads have in production.
fn lives_through(definitions: Vec<Value>, seed: u64) {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("s.sqlite");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let held = runtime.block_on(async {
        let mut case = Case { hostile: start(&database).await, draws: Draws(seed) };
        let mut taken = Vec::new();
        for definition in &definitions {
            let (code, _) = case.ask("POST", DEFINITIONS, JSON, &definition.to_string()).await;
            if code == 201 {
                case.sync().await;
                taken.push(definition.clone());
                case.objects(definition).await;
            }
        }
        // another's versions in their place, with objects of the old ones there
        for definition in &taken {
            let name = definition["metadata"]["name"].as_str().unwrap();
            let (_, mut now) = case.ask("GET", &format!("{DEFINITIONS}/{name}"), "", "").await;
            let mut versions = definitions[0]["spec"]["versions"].clone();
            for (version, old) in
                versions.as_array_mut().unwrap().iter_mut().zip(definition["spec"]["versions"].as_array().unwrap())
            {
                version["name"] = old["name"].clone();
            }
            now["spec"]["versions"] = versions;
            case.ask("PUT", &format!("{DEFINITIONS}/{name}"), JSON, &now.to_string()).await;
            case.sync().await;
            case.objects(&now).await;
        }
        case.ask("GET", "/openapi/v2", "", "").await;
        case.ask("GET", "/apis", "", "").await;
        let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}}).to_string();
        assert_eq!(case.ask("POST", maps, JSON, &map).await.0, 201);
        case.held(&definitions).await
    });
    runtime.block_on(async {
        let case = Case { hostile: start(&database).await, draws: Draws(seed) };
        assert!(case.held(&definitions).await == held, "the next start has other objects");
        assert_eq!(case.ask("GET", &format!("{maps}/m"), "", "").await.0, 200);
        // nothing that was hostile is in the way of its end, and nothing of it comes back with another of the name
        for definition in &definitions {
            let name = definition["metadata"]["name"].as_str().unwrap();
            case.ask("DELETE", &format!("{DEFINITIONS}/{name}"), "", "").await;
            case.sync().await;
            assert_eq!(case.ask("GET", &format!("{DEFINITIONS}/{name}"), "", "").await.0, 404, "{name} is not deleted");
            let mut plain = definition.clone();
            plain["spec"]["versions"] = json!([{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]);
            plain["spec"]["conversion"] = Value::Null;
            if case.ask("POST", DEFINITIONS, JSON, &plain.to_string()).await.0 == 201 {
                case.sync().await;
                let (_, list) =
                    case.ask("GET", &Paths::of(&plain, &plain["spec"]["versions"][0]).collection, "", "").await;
                assert!(list["items"].as_array().is_none_or(Vec::is_empty), "objects outlive their definition: {list}");
                case.ask("DELETE", &format!("{DEFINITIONS}/{name}"), "", "").await;
                case.sync().await;
            }
        }
    });
}

/// Runs a case apart, so that one that hangs is a failure and not a test that never ends.
fn judged(definitions: Vec<Value>, seed: u64) {
    let (done, end) = mpsc::channel();
    let case = definitions.clone();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        lives_through(case, seed);
        let _ = done.send(());
    });
    match end.recv_timeout(CASE_MAX) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("a case hangs: seed {seed} {}", json!(definitions)),
        // it ended, well or in a panic
        _ => {
            if let Err(panic) = thread.unwrap().join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Three in the gate, as a build without optimisations takes seconds for a large one; `make soak` runs 2,000.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    Config { cases, max_shrink_iters: 300, failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn hostile_definitions_break_nothing(definitions in prop::collection::vec(definition(), 1..3), seed in any::<u64>()) {
        judged(definitions, seed);
    }
}

/// A definition whose versions are all retired has objects all the same.
#[tokio::test]
async fn objects_of_retired_versions_go_with_their_definition() {
    let hostile = Hostile::start(None).await;
    let definition = |served: bool| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.retired.io"},
            "spec": {"group": "retired.io", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": served, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    };
    let ask = |method: &'static str, path: String, body: Value| {
        let hostile = &hostile;
        async move {
            let media = if method == "PATCH" { "application/merge-patch+json" } else { JSON };
            let body = if body.is_null() { String::new() } else { body.to_string() };
            let answer = hostile.ask(method, &path, media, body).await;
            hostile.server.sync_definitions();
            answer
        }
    };
    let (named, things) = (format!("{DEFINITIONS}/things.retired.io"), "/apis/retired.io/v1/things".to_owned());
    assert_eq!(ask("POST", DEFINITIONS.to_owned(), definition(true)).await.0, 201);
    let thing = json!({"apiVersion": "retired.io/v1", "kind": "Thing", "metadata": {"name": "a"}});
    assert_eq!(ask("POST", things.clone(), thing).await.0, 201);
    let retired = json!({"spec": {"versions": definition(false)["spec"]["versions"]}});
    assert_eq!(ask("PATCH", named.clone(), retired).await.0, 200);
    assert_eq!(ask("GET", things.clone(), Value::Null).await.0, 404);
    assert_eq!(ask("DELETE", named.clone(), Value::Null).await.0, 200);
    assert_eq!(ask("GET", named, Value::Null).await.0, 404);
    assert_eq!(ask("POST", DEFINITIONS.to_owned(), definition(true)).await.0, 201);
    let (code, list) = ask("GET", things, Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(0)), "{list}");
}
