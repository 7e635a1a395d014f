//! How the pod that holds a machine of a cluster is made.

use api::sky::PodOptions;
use serde_json::{Value as Json, json};
use sky::resources::Resources;
use sky::value::{Map, Value};

/// How the pods of a task's machines are made in a context. Three settings apply, each over the one before: `kubernetes` of
/// `~/.sky/config.yaml`, its block for the context, and the task's own `config`.
pub fn pod(asked: &Resources, config: Option<&Map>, context: &str) -> PodOptions {
    let block = |map: Option<&Map>| map.map(|map| Value::Map(map.clone()).to_json()).unwrap_or_default();
    let everywhere = block(config);
    let here = everywhere["context_configs"][context].clone();
    let own = block(asked.overrides.as_ref())["kubernetes"].clone();
    let mut made = PodOptions { config: json!({}), ..PodOptions::default() };
    for from in [&everywhere, &here, &own] {
        over(&mut made.config, &from["pod_config"]);
        for (texts, key) in [(&mut made.labels, "labels"), (&mut made.annotations, "annotations")] {
            for (name, value) in from["custom_metadata"][key].as_object().into_iter().flatten() {
                texts.insert(name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            }
        }
        let identity = &from["remote_identity"];
        let identity = identity.as_str().or_else(|| identity[context].as_str());
        // SkyPilot's own words for what is usual
        if let Some(name) =
            identity.filter(|name| !matches!(*name, "SERVICE_ACCOUNT" | "LOCAL_CREDENTIALS" | "NO_UPLOAD"))
        {
            made.service_account = name.to_owned();
        }
        if let Some(seconds) = from["provision_timeout"].as_i64() {
            let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            made.wait_seconds = if seconds == 0 { -1 } else { seconds };
        }
    }
    for (name, value) in asked.labels.iter().flat_map(Map::iter) {
        made.labels.insert(name.text(), value.text());
    }
    if made.config == json!({}) {
        made.config = Json::Null;
    }
    made.image = asked.container_image().unwrap_or_default();
    made
}

/// Merges settings over others: maps are merged, all other values replace the earlier ones.
fn over(under: &mut Json, more: &Json) {
    match (under, more) {
        (_, Json::Null) => {}
        (Json::Object(under), Json::Object(more)) => {
            for (key, value) in more {
                over(under.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
        (under, more) => under.clone_from(more),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Map {
        let mut read = sky::yaml::documents(text).unwrap();
        read.remove(0).value.unwrap().as_map().unwrap().clone()
    }

    #[test]
    fn the_task_has_the_last_word_about_its_pods() {
        let config = map(
            "pod_config: {spec: {nodeSelector: {a: '1'}, priorityClassName: low}}\ncustom_metadata: {labels: {x: y}}\nremote_identity: LOCAL_CREDENTIALS\ncontext_configs: {c: {provision_timeout: 0, pod_config: {spec: {nodeSelector: {b: '2'}}}}}",
        );
        let overrides = map(
            "kubernetes: {pod_config: {spec: {priorityClassName: high}}, remote_identity: mine, provision_timeout: 30}",
        );
        let asked = Resources {
            overrides: Some(overrides),
            labels: Some(map("team: us")),
            docker_image: Some("img".into()),
            ..Resources::default()
        };
        let made = pod(&asked, Some(&config), "c");
        assert_eq!(made.config, json!({"spec": {"nodeSelector": {"a": "1", "b": "2"}, "priorityClassName": "high"}}));
        assert_eq!((made.service_account.as_str(), made.wait_seconds, made.image.as_str()), ("mine", 30, "img"));
        assert_eq!(made.labels, [("team", "us"), ("x", "y")].map(|(a, b)| (a.to_owned(), b.to_owned())).into());
        let plain = pod(&Resources::default(), Some(&config), "other");
        assert_eq!((plain.service_account.as_str(), plain.wait_seconds), ("", 0));
        assert_eq!(pod(&Resources::default(), None, "c"), PodOptions::default());
        assert_eq!(pod(&Resources::default(), Some(&config), "c").wait_seconds, -1);
    }
}
