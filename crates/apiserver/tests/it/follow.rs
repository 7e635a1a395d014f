//! Lists and watches for readers in the process.

use super::*;
use api::object::Gvk;
use apiserver::registry::{Change, Followed, Following};

fn maps() -> Gvk {
    Gvk::new("", "v1", "ConfigMap")
}

/// What changes tell: whether the object is there, its name, and a value of it.
async fn told(following: &mut Following) -> Vec<(bool, String, Value)> {
    let Followed::Changes(changes, until) = following.next().await else { panic!("it goes on") };
    let told = changes.iter().map(|change| {
        let (is_there, object) = match change {
            Change::Is(object) => (true, object.open()),
            Change::Was(object) => (false, object.open()),
        };
        let revision: u64 = api::object::resource_version(&object).parse().unwrap();
        assert!(revision <= until, "{revision} {until}");
        (is_there, api::object::meta(&object, "name").to_owned(), object["data"]["k"].clone())
    });
    told.collect()
}

#[tokio::test]
async fn a_reader_in_the_process_gets_what_the_store_holds() {
    let server = server(Options::new(kinds::built_in())).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let (listed, revision) = server.core.everything(&maps()).unwrap();
    let of_ours = |name: &str| listed.iter().filter(|map| api::object::meta(&map.open(), "name") == name).count();
    assert_eq!((of_ours("a"), of_ours("b")), (1, 0));

    let mut following = server.core.follow(&maps(), revision).unwrap();
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    assert_eq!(told(&mut following).await, [(true, "b".to_owned(), json!("1"))]);
    api.patch("b", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "2"}}))).await.unwrap();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    let mut rest = told(&mut following).await;
    while rest.len() < 2 {
        rest.extend(told(&mut following).await);
    }
    assert_eq!(rest, [(true, "b".to_owned(), json!("2")), (false, "b".to_owned(), json!("2"))]);

    // a follower that comes later continues where it left off, with the same bytes
    let mut late = server.core.follow(&maps(), revision).unwrap();
    assert_eq!(told(&mut late).await.iter().map(|(is_there, ..)| *is_there).collect::<Vec<_>>(), [true, true, false]);

    // it is the store's own: nothing was copied
    let (again, _) = server.core.everything(&maps()).unwrap();
    assert!(listed.iter().zip(&again).any(|(before, now)| Arc::ptr_eq(before, now)));
}

#[tokio::test]
async fn what_is_forgotten_or_not_stored_is_not_followed() {
    let server = server(Options::new(kinds::built_in())).await;
    let core = &server.core;
    let unknown = Gvk::new("example.com", "v1", "Nothing");
    assert!(core.stores(&maps()) && !core.stores(&unknown));
    assert!(core.everything(&unknown).is_none() && core.follow(&unknown, 0).is_none());

    let (_, revision) = core.everything(&maps()).unwrap();
    let mut following = core.follow(&maps(), revision).unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    core.store.compact();
    assert!(matches!(following.next().await, Followed::Forgotten));
    assert!(core.follow(&maps(), revision).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reader_asks_anew_now_and_then() {
    let server = Server::new(Options::new(kinds::built_in())).unwrap();
    let (_, revision) = server.core.everything(&maps()).unwrap();
    let mut following = server.core.follow(&maps(), revision).unwrap();
    let Followed::Ended(until) = following.next().await else { panic!("its time is up") };
    assert_eq!(until, revision);
    assert!(server.core.follow(&maps(), until).is_some());
}

#[tokio::test]
async fn objects_are_followed_in_the_version_that_was_asked_for_until_the_kind_is_gone() {
    let server = server(Options::new(kinds::built_in())).await;
    let client = client(&server);
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"size": {"type": "integer"}}}}})
    };
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v2", false)]},
    }))
    .unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let v2 = Gvk::new("example.com", "v2", "Thing");
    let is_served = async {
        while !server.core.stores(&v2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_served).await.unwrap();

    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things");
    let things: Api<DynamicObject> = Api::all_with(client, &kind);
    let thing: DynamicObject = serde_json::from_value(
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "size": 3}),
    )
    .unwrap();
    things.create(&PostParams::default(), &thing).await.unwrap();
    for (version, is_stored) in [("v1", true), ("v2", false)] {
        let (listed, revision) = server.core.everything(&Gvk::new("example.com", version, "Thing")).unwrap();
        let [thing] = &listed[..] else { panic!("there is one") };
        let stored = server.core.store.snapshot("example.com/things").iter(None, None).next().cloned().unwrap();
        assert_eq!(Arc::ptr_eq(thing, &stored.object), is_stored, "{version}");
        let text: Value = serde_json::from_slice(&thing.text()).unwrap();
        assert_eq!(*thing.open(), text);
        assert_eq!((&text["apiVersion"], &text["size"]), (&json!(format!("example.com/{version}")), &json!(3)));
        assert!(server.core.follow(&v2, revision).is_some());
    }

    let (_, revision) = server.core.everything(&v2).unwrap();
    let mut following = server.core.follow(&v2, revision).unwrap();
    definitions.delete("things.example.com", &DeleteParams::default()).await.unwrap();
    let ended = async { while !matches!(following.next().await, Followed::Ended(_)) {} };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
}
