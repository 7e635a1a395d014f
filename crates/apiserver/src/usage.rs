//! What pods and nodes use at present (`metrics.k8s.io`), which on a cluster metrics-server answers. The objects are made
//! when somebody asks for them, and never stored.

use crate::registry::{Live, Served};
use futures::future::BoxFuture;
use jiff::Timestamp;
use resource::admission::Objects;
use resource::{Column, Facts, Resource, Strategy};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "v1beta1";

/// Amounts by resource (`cpu`, `memory`, …), as quantities.
pub type Amounts = BTreeMap<String, String>;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    pub at: Timestamp,
    /// The time over which rates are averages.
    pub window: Duration,
    /// By name.
    pub nodes: BTreeMap<String, Amounts>,
    /// By pod uid and container.
    pub pods: BTreeMap<String, BTreeMap<String, Amounts>>,
}

/// Measures, as the API server needs it.
pub trait Usage: Send + Sync {
    fn measure(&self) -> BoxFuture<'static, Measured>;
}

/// The two kinds.
pub(crate) fn served(usage: &Arc<dyn Usage>) -> [Served; 2] {
    let of = |kind: &str, plural: &str, pods: bool| {
        let schema = schema(kind, pods);
        let metrics = Metrics { usage: usage.clone(), pods };
        let resource = Resource {
            group: GROUP.to_owned(),
            version: VERSION.to_owned(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            plural: plural.to_owned(),
            singular: String::new(),
            namespaced: pods,
            short_names: Vec::new(),
            categories: Vec::new(),
            verbs: vec!["get", "list"],
            subresources: Vec::new(),
            schema: crate::crd::schema(&schema),
            type_name: None,
            columns: ["Name", "cpu", "memory", "Window"].map(column).to_vec(),
            facts: Facts::default(),
            strategy: Arc::new(Rows),
            custom: false,
        };
        Served::live(resource, Arc::new(metrics))
    };
    [of("NodeMetrics", "nodes", false), of("PodMetrics", "pods", true)]
}

fn column(name: &str) -> Column {
    let format = match name {
        "Name" => "name",
        "Window" => "duration",
        _ => "quantity",
    };
    Column {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: format.to_owned(),
        description: String::new(),
        priority: 0,
        json_path: None,
    }
}

fn schema(kind: &str, pods: bool) -> Value {
    let amounts = json!({
        "description": "The amounts in use, by resource.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    });
    let mut properties = json!({
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "timestamp": {"description": "The end of the time over which was measured.", "type": "string"},
        "window": {"description": "How long was measured.", "type": "string"},
    });
    if pods {
        properties["containers"] = json!({
            "description": "The containers that run.",
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "usage": amounts}},
        });
    } else {
        properties["usage"] = amounts;
    }
    json!({"description": format!("{kind}: what is used at present."), "type": "object", "properties": properties})
}

/// One of the two kinds.
struct Metrics {
    usage: Arc<dyn Usage>,
    pods: bool,
}

/// Their table rows.
struct Rows;

impl Strategy for Rows {
    fn row(&self, object: &Value, _now: Timestamp) -> Vec<Value> {
        let total = |resource: &str| -> String {
            let containers = object["containers"].as_array().into_iter().flatten();
            let all = containers.map(|container| &container["usage"]).chain([&object["usage"]]);
            let amounts: Vec<&str> = all.filter_map(|usage| usage[resource].as_str()).collect();
            sum(&amounts)
        };
        vec![
            api::object::meta(object, "name").into(),
            total("cpu").into(),
            total("memory").into(),
            object["window"].clone(),
        ]
    }
}

/// The sum of quantities of one unit, in that unit.
fn sum(amounts: &[&str]) -> String {
    let parts = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        Some((text[..digits].parse::<u64>().ok()?, text[digits..].to_owned()))
    };
    let (numbers, units): (Vec<u64>, Vec<String>) = amounts.iter().filter_map(|text| parts(text)).unzip();
    format!("{}{}", numbers.iter().sum::<u64>(), units.first().map_or("", String::as_str))
}

impl Live for Metrics {
    fn objects(&self, stored: &dyn Objects, namespace: &str) -> BoxFuture<'static, Vec<Value>> {
        let plural = if self.pods { "pods" } else { "nodes" };
        let subjects = stored.list("", plural, namespace);
        let measuring = self.usage.measure();
        let pods = self.pods;
        Box::pin(async move {
            let measured = measuring.await;
            subjects
                .iter()
                .filter_map(|subject| if pods { pod(subject, &measured) } else { node(subject, &measured) })
                .collect()
        })
    }
}

fn pod(pod: &Value, measured: &Measured) -> Option<Value> {
    let containers = measured.pods.get(api::object::uid(pod))?;
    let containers: Vec<Value> = containers.iter().map(|(name, usage)| json!({"name": name, "usage": usage})).collect();
    let mut object = about(pod, "PodMetrics", measured);
    object["containers"] = containers.into();
    Some(object)
}

fn node(node: &Value, measured: &Measured) -> Option<Value> {
    let usage = measured.nodes.get(api::object::meta(node, "name"))?;
    let mut object = about(node, "NodeMetrics", measured);
    object["usage"] = json!(usage);
    Some(object)
}

/// What both kinds say: of whom, when, how long.
fn about(subject: &Value, kind: &str, measured: &Measured) -> Value {
    let at = crate::registry::time(measured.at);
    let mut meta = Map::new();
    for field in ["name", "namespace"] {
        let value = api::object::meta(subject, field);
        if !value.is_empty() {
            meta.insert(field.to_owned(), value.into());
        }
    }
    meta.insert("creationTimestamp".to_owned(), at.clone().into());
    if let Some(labels) = subject["metadata"].get("labels") {
        meta.insert("labels".to_owned(), labels.clone());
    }
    json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": meta,
        "timestamp": at,
        "window": format!("{:.3}s", measured.window.as_secs_f64()),
    })
}

/// Who may read pods may read what they use, as metrics-server has it.
pub(crate) fn role() -> Value {
    let label = |to: &str| (format!("rbac.authorization.k8s.io/aggregate-to-{to}"), json!("true"));
    let labels: Map<String, Value> = ["view", "edit", "admin"].map(label).into_iter().collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:aggregated-metrics-reader", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_the_unit() {
        assert_eq!(sum(&["1500n", "500n"]), "2000n");
        assert_eq!(sum(&["10Ki"]), "10Ki");
        assert_eq!(sum(&[]), "0");
    }

    #[test]
    fn a_pod_has_the_pods_labels_and_its_containers() {
        let usage: Amounts = [("cpu".to_owned(), "5n".to_owned())].into();
        let measured = Measured {
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            window: Duration::from_millis(1500),
            nodes: BTreeMap::new(),
            pods: [("u".to_owned(), [("c".to_owned(), usage)].into())].into(),
        };
        let subject = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}}});
        let object = pod(&subject, &measured).unwrap();
        assert_eq!(object["metadata"]["labels"]["a"], "b");
        assert_eq!(object["window"], "1.500s");
        assert_eq!(object["containers"], json!([{"name": "c", "usage": {"cpu": "5n"}}]));
        assert!(pod(&json!({"metadata": {"uid": "other"}}), &measured).is_none(), "a pod that does not run");
    }
}
