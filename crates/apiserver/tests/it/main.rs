//! The server through real clients: kube-rs in the same process, and the core without any runtime.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

mod alike;
mod apart;
mod applied;
mod asked;
mod asked_admission;
mod asked_namespaces;
mod asked_paths;
mod asked_values;
mod audit;
mod compressed;
mod definitions;
mod documents;
mod follow;
mod handed;
mod health;
mod hostile;
mod jobs;
mod many;
mod node_rights;
mod parsers;
mod plugins;
mod policies;
mod rights;
mod small;
mod versions;

use apiserver::delegate::{Delegate, Text, Wanted};
use apiserver::query::{Query, WriteOptions};
use apiserver::registry::{Call, DeleteOptions, Target, Tracked};
use apiserver::{Options, Server};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use resource::User;
use resource::status::Status;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn server(options: Options) -> Arc<Server> {
    let server = tokio::task::spawn_blocking(move || Server::new(options)).await.unwrap().unwrap();
    tokio::spawn(server.clone().follow_definitions());
    server
}

fn client(server: &Arc<Server>) -> Client {
    Client::new(server.service(User::admin()), "default")
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": "t"}}, "data": {"k": value}})).unwrap()
}

#[tokio::test]
async fn a_kube_client_needs_no_socket() {
    let server = server(Options::new(kinds::built_in())).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let before = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    let conflict = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists"));

    let mut stale = made.clone();
    stale.data = Some([("k".to_owned(), "2".to_owned())].into());
    let updated = maps.replace("a", &PostParams::default(), &stale).await.unwrap();
    let conflict = maps.replace("a", &PostParams::default(), &stale).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict"));

    let apply = PatchParams::apply("test").force();
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "3"}, "metadata": {"name": "a"}});
    let applied = maps.patch("a", &apply, &Patch::Apply(&patch)).await.unwrap();
    assert!(applied.managed_fields().iter().any(|m| m.manager.as_deref() == Some("test")));
    let again = maps.patch("a", &apply, &Patch::Apply(&patch)).await.unwrap();
    assert_eq!(applied.resource_version(), again.resource_version(), "a repeated apply writes nothing");
    assert_ne!(updated.resource_version(), applied.resource_version());

    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let events: Vec<String> = maps
        .watch(&WatchParams::default().timeout(1), &before)
        .await
        .unwrap()
        .map_ok(|event| match event {
            WatchEvent::Added(map) => format!("added {}", map.data.unwrap()["k"]),
            WatchEvent::Modified(map) => format!("modified {}", map.data.unwrap()["k"]),
            WatchEvent::Deleted(map) => format!("deleted {}", map.data.unwrap()["k"]),
            other => format!("{other:?}"),
        })
        .try_filter(|text| std::future::ready(!text.starts_with("Bookmark")))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(events, ["added 1", "modified 2", "modified 3", "deleted 3"]);
}

/// Answers for a group with one object in it.
struct Answers;

impl Delegate for Answers {
    fn group(&self) -> &'static str {
        "elsewhere.example.org"
    }

    fn get(&self, wanted: Wanted) -> futures::future::BoxFuture<'static, Result<Value, Status>> {
        Box::pin(async move {
            let is_there = wanted.name == "a" && wanted.namespace == "default" && wanted.version == "v1";
            let found = is_there.then(|| json!({"kind": "Thing", "of": wanted.plural}));
            found.ok_or_else(|| Status::not_found("elsewhere.example.org", &wanted.plural, &wanted.name))
        })
    }

    fn text(
        &self,
        wanted: Wanted,
        part: &str,
        query: &Query,
    ) -> futures::future::BoxFuture<'static, Result<Text, Status>> {
        let answer = match part {
            "log" => Ok(format!("{} of {}\n", query.text("lines"), wanted.name)),
            _ => Err(Status::not_found("elsewhere.example.org", &wanted.plural, &wanted.name)),
        };
        Box::pin(async move { Ok(futures::stream::iter([answer?.into()]).boxed() as Text) })
    }
}

/// Answers for one plural of the same group.
struct OtherAnswers;

impl Delegate for OtherAnswers {
    fn group(&self) -> &'static str {
        "elsewhere.example.org"
    }

    fn has(&self, plural: &str) -> bool {
        plural == "others"
    }

    fn get(&self, _: Wanted) -> futures::future::BoxFuture<'static, Result<Value, Status>> {
        Box::pin(std::future::ready(Ok(json!({"of": "another delegate"}))))
    }
}

#[tokio::test]
async fn a_delegate_answers_for_its_group_whom_the_server_lets_through() {
    let delegates: Vec<Arc<dyn Delegate>> = vec![Arc::new(OtherAnswers), Arc::new(Answers)];
    let server = server(Options { delegates, ..Options::new(kinds::built_in()) }).await;
    let ask = |user: User, method: &str, path: &str| {
        let client = Client::new(server.service(user), "default");
        let path = format!("/apis/elsewhere.example.org/v1/namespaces/default/{path}");
        let request = http::Request::builder().method(method).uri(path).body(Vec::new()).unwrap();
        async move {
            match client.request::<Value>(request).await {
                Ok(object) => Ok(object["of"].clone()),
                Err(kube::Error::Api(status)) => Err(status.code),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let nobody = || User::service_account("default", "nobody");
    assert_eq!(ask(User::admin(), "GET", "things/a").await, Ok(json!("things")));
    assert_eq!(ask(User::admin(), "GET", "others/a").await, Ok(json!("another delegate")));
    assert_eq!(ask(User::admin(), "GET", "things/b").await, Err(404));
    assert_eq!(ask(nobody(), "GET", "things/a").await, Err(403));
    let lines = async |user: User| {
        let client = Client::new(server.service(user), "default");
        let path = "/apis/elsewhere.example.org/v1/namespaces/default/things/a/log?lines=3";
        client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await.ok()
    };
    assert_eq!(lines(User::admin()).await.as_deref(), Some("3 of a\n"));
    assert_eq!(lines(nobody()).await, None);
    for (method, path) in [
        ("GET", "things"),
        ("GET", "things/a/status"),
        ("GET", "things/a/log/x"),
        ("DELETE", "things/a"),
        ("POST", "things"),
    ] {
        assert_eq!(ask(User::admin(), method, path).await, Err(404), "{method} {path}");
    }
}

#[tokio::test]
async fn definitions_are_served_as_they_come_and_go() {
    let server = server(Options::new(kinds::built_in())).await;
    let client = client(&server);
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "default": 3, "minimum": 1}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let established = kube::runtime::wait::conditions::is_crd_established();
    let waiting = kube::runtime::wait::await_condition(definitions.clone(), "widgets.example.org", established);
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Widget"));
    let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let widget = |spec: Value| DynamicObject::new("w", &resource).data(json!({"spec": spec, "status": {"x": 1}}));
    let made = widgets.create(&PostParams::default(), &widget(json!({}))).await.unwrap();
    assert_eq!(made.data["spec"]["size"], 3);
    assert_eq!(made.data.get("status"), None, "a creator does not write the status");
    let refused = widgets.create(&PostParams::default(), &widget(json!({"size": 0}))).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 422));
    let patch = Patch::Merge(json!({"status": {"phase": "Up"}, "spec": {"size": 9}}));
    let patched = widgets.patch_status("w", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((&patched.data["status"]["phase"], &patched.data["spec"]["size"]), (&json!("Up"), &json!(3)));
    assert_eq!(patched.metadata.generation, Some(1));

    definitions.delete("widgets.example.org", &DeleteParams::default()).await.unwrap();
    let gone = async {
        while definitions.get_opt("widgets.example.org").await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    let missing = widgets.get("w").await.unwrap_err();
    assert!(matches!(missing, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test]
async fn pages_show_one_moment() {
    let server = server(Options::new(kinds::built_in())).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    for i in 0..10 {
        maps.create(&PostParams::default(), &config_map(&format!("m{i}"), "x")).await.unwrap();
    }
    let mut names = Vec::new();
    let mut versions = Vec::new();
    let mut token = String::new();
    loop {
        let mut params = ListParams::default().limit(3).labels("app=t");
        params.continue_token = (!token.is_empty()).then(|| token.clone());
        let page = maps.list(&params).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        versions.push(page.metadata.resource_version.clone());
        // What happens between the pages is not in them.
        drop(maps.delete(&format!("m{}", 9 - names.len() / 3), &DeleteParams::default()).await);
        token = page.metadata.continue_.unwrap_or_default();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(names, (0..10).map(|i| format!("m{i}")).collect::<Vec<_>>());
    assert!(versions.windows(2).all(|w| w[0] == w[1]));
}

#[tokio::test]
async fn a_restart_keeps_everything() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options { database: Some(dir.path().join("s.sqlite")), ..Options::new(kinds::built_in()) };
    let first = Server::new(options()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(first.service(User::admin()), "default"));
    let made = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    drop(maps);
    // Clients keep a worker with the service; the database is free once they are gone.
    let mut first = first;
    let second = loop {
        match Arc::try_unwrap(first) {
            Ok(server) => {
                drop(server);
                break Server::new(options()).unwrap();
            }
            Err(shared) => {
                first = shared;
                tokio::task::yield_now().await;
            }
        }
    };
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::new(second.service(User::admin()), "default"));
    let kept = maps.get("a").await.unwrap();
    assert_eq!(kept.resource_version(), made.resource_version());
    let next = maps.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    let number = |map: &ConfigMap| map.resource_version().unwrap().parse::<u64>().unwrap();
    assert!(number(&next) > number(&made));
}

#[test]
fn the_core_works_without_a_runtime() {
    let server = Server::new(Options::new(kinds::built_in())).unwrap();
    let core = &server.core;
    let served = core.catalog().get("", "v1", "configmaps").unwrap().clone();
    let target = |name: &str| Target {
        served: served.clone(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
    };
    let user = User::admin();
    let options = WriteOptions::parse(&Query::default(), "CreateOptions", "sim", false).unwrap();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let collection = target("");
    let call = Call { target: &collection, options: &options, user: &user, warnings: &[] };
    let made = core.run_now(|| core.create(&call, body.clone(), Tracked::No)).unwrap();
    assert_eq!(made.code, 201);
    assert_eq!(core.get(&target("a")).unwrap().value()["data"]["k"], "v");
    core.run_now(|| core.delete(&target("a"), &DeleteOptions::default(), &user)).unwrap();
    assert_eq!(core.get(&target("a")).err().unwrap().code, 404);
}

/// Creators, patchers and deleters of one object: each gets an answer that says what the object's state was, whatever the
/// others do.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_of_one_object_are_all_served() {
    let dir = tempfile::tempdir().unwrap();
    for database in [None, Some(dir.path().join("s.sqlite"))] {
        let server = server(Options { database, ..Options::new(kinds::built_in()) }).await;
        let writers = (0..120).map(|writer| {
            let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
            tokio::spawn(async move {
                for i in 0..10 {
                    let patch = Patch::Merge(json!({"data": {format!("w{writer}"): i.to_string()}}));
                    let (result, expected) = match writer % 3 {
                        0 => (maps.create(&PostParams::default(), &config_map("a", "1")).await.map(drop), 409),
                        1 => (maps.patch("a", &PatchParams::default(), &patch).await.map(drop), 404),
                        _ => (maps.delete("a", &DeleteParams::default()).await.map(drop), 404),
                    };
                    if let Err(error) = result {
                        assert!(
                            matches!(&error, kube::Error::Api(s) if s.code == expected),
                            "writer {writer}: {error}"
                        );
                    }
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    }
}

/// Each of many patchers of one object gets its write in, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_write_is_lost_among_many_to_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let server =
        server(Options { database: Some(dir.path().join("s.sqlite")), ..Options::new(kinds::built_in()) }).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let writers = (0..200).map(|writer| {
        let maps = maps.clone();
        let patch = json!({"data": {format!("w{writer}"): "x"}});
        tokio::spawn(async move { maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap() })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(maps.get("a").await.unwrap().data.unwrap().len(), 201);
}

/// Not a test: says how many creates a second the server takes, from 16 writers at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn creates_per_second() {
    let dir = tempfile::tempdir().unwrap();
    for database in [None, Some(dir.path().join("s.sqlite"))] {
        let what = if database.is_some() { "sqlite" } else { "memory" };
        let server = server(Options { database, ..Options::new(kinds::built_in()) }).await;
        let started = std::time::Instant::now();
        let writers = (0..16).map(|writer| {
            let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
            tokio::spawn(async move {
                for i in 0..250 {
                    maps.create(&PostParams::default(), &config_map(&format!("m{writer}-{i}"), "x")).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        println!("{what}: {:.0} creates/s", 4000.0 / started.elapsed().as_secs_f64());
    }
}

#[tokio::test]
async fn a_watch_ends_at_its_time_and_marks_the_initial_state() {
    let server = server(Options::new(kinds::built_in())).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let params = WatchParams::default().initial_events().timeout(1);
    let events: Vec<WatchEvent<ConfigMap>> =
        maps.watch(&params, "0").await.unwrap().filter_map(|e| async { e.ok() }).collect().await;
    assert!(matches!(&events[0], WatchEvent::Added(map) if map.name_any() == "a"));
    assert!(matches!(&events[1], WatchEvent::Bookmark(mark)
        if mark.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|v| v == "true")));
}
