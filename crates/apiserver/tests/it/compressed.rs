//! Objects that lie for a while are compressed, and nobody who asks for them notices.

use super::*;
use api::object::Gvk;
use http::Request;

/// What the server answers, as text without the ages in tables.
async fn asked(client: &Client, path: &str, accept: &str) -> String {
    let request = Request::get(path).header("Accept", accept).body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    (0..100).fold(text, |text, seconds| text.replace(&format!("\"{seconds}s\""), "\"age\""))
}

#[tokio::test]
async fn answers_are_the_same_before_and_after() {
    let server = server(Options::new(kinds::built_in())).await;
    let client = client(&server);
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for number in 0..20 {
        let mut map = config_map(&format!("m{number}"), &"x".repeat(300));
        map.labels_mut().insert("number".to_owned(), number.to_string());
        api.create(&PostParams::default(), &map).await.unwrap();
    }
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let asks = [
        (format!("{MAPS}/m7"), "application/json"),
        (MAPS.to_owned(), "application/json"),
        (MAPS.to_owned(), "application/json;as=Table;v=v1;g=meta.k8s.io"),
        (MAPS.to_owned(), "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"),
        (format!("{MAPS}?labelSelector=number%3D7"), "application/json"),
        (format!("{MAPS}?fieldSelector=metadata.name%3Dm7"), "application/json"),
        (format!("{MAPS}?limit=3"), "application/yaml"),
        (format!("{MAPS}?watch=1&timeoutSeconds=1&labelSelector=number%3D7"), "application/json"),
    ];
    let all = async || {
        let mut answers = Vec::new();
        for (path, accept) in &asks {
            answers.push(asked(&client, path, accept).await);
        }
        answers
    };
    let before = all().await;
    assert!(before.iter().all(|answer| answer.contains("m7")) || before[6].contains("m1"), "{before:?}");

    let (maps, _) = server.core.everything(&Gvk::new("", "v1", "ConfigMap")).unwrap();
    let compressed = || maps.iter().filter(|map| format!("{map:?}").contains("Compressed")).count();
    server.rest();
    assert!(!server.compress(usize::MAX) && compressed() == 0, "they are young");
    server.rest();
    assert!(!server.compress(usize::MAX), "no more are left");
    assert!(compressed() >= 20, "{}", compressed());
    assert_eq!(all().await, before);

    // one that is written is as young as it was
    api.patch("m7", &PatchParams::default(), &Patch::Merge(json!({"data": {"more": "1"}}))).await.unwrap();
    let patched = api.get("m7").await.unwrap().data.unwrap();
    assert_eq!((patched["more"].as_str(), patched["k"].len()), ("1", 300));
    api.delete("m8", &DeleteParams::default()).await.unwrap();
    assert_eq!(api.list(&ListParams::default().labels("app=t")).await.unwrap().items.len(), 19);
}
