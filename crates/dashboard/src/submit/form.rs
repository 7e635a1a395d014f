//! The fields of a form: where each stands in the object, how it is typed, and what the server's schema says about it.

use crate::row::Kind;
use client::Cluster;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;

/// Names that a field offers.
const OFFERED_MAX: usize = 200;
/// Characters of a description.
const HELP_MAX: usize = 300;

/// How a field is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Input {
    Text,
    Number,
    /// A command: a list of words, or one line for a shell.
    Command,
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Field {
    label: &'static str,
    /// The way to it in the object; numbers are places in lists.
    path: Vec<String>,
    input: Input,
    /// The beginning of what the server's schema says about it.
    help: String,
    /// What can be chosen; other values are possible.
    offers: Vec<String>,
}

type Row = (&'static str, &'static str, Input);

/// Label, way and input of each field.
fn rows(kind: Kind) -> Vec<Row> {
    let mut rows: Vec<Row> =
        vec![("Name", "metadata.name", Input::Text), ("Namespace", "metadata.namespace", Input::Text)];
    rows.extend(match kind {
        Kind::MpiJob => vec![
            ("Workers", "spec.mpiReplicaSpecs.Worker.replicas", Input::Number),
            ("Slots per worker", "spec.slotsPerWorker", Input::Number),
            ("Image of the launcher", "spec.mpiReplicaSpecs.Launcher.template.spec.containers.0.image", Input::Text),
            ("Command", "spec.mpiReplicaSpecs.Launcher.template.spec.containers.0.command", Input::Command),
            ("Image of the workers", "spec.mpiReplicaSpecs.Worker.template.spec.containers.0.image", Input::Text),
            (
                "GPUs per worker",
                "spec.mpiReplicaSpecs.Worker.template.spec.containers.0.resources.limits.nvidia~com/gpu",
                Input::Number,
            ),
        ],
        Kind::OptimizationJob => vec![
            ("Metric", "spec.objectives.0.metric", Input::Text),
            ("Direction", "spec.objectives.0.direction", Input::Text),
            ("Trials", "spec.numTrials", Input::Number),
            ("Trials at once", "spec.parallelTrials", Input::Number),
            ("Runtime", "spec.trainJobTemplate.spec.runtimeRef.name", Input::Text),
            ("Nodes", "spec.trainJobTemplate.spec.trainer.numNodes", Input::Number),
            ("Command", "spec.trainJobTemplate.spec.trainer.command", Input::Command),
        ],
        Kind::TrainJob | Kind::JobSet | Kind::ManagedJob => vec![
            ("Runtime", "spec.runtimeRef.name", Input::Text),
            ("Command", "spec.trainer.command", Input::Command),
            ("Nodes", "spec.trainer.numNodes", Input::Number),
            ("Processes per node", "spec.trainer.numProcPerNode", Input::Number),
            ("GPUs per node", "spec.trainer.resourcesPerNode.limits.nvidia~com/gpu", Input::Number),
            ("CPUs per node", "spec.trainer.resourcesPerNode.requests.cpu", Input::Text),
            ("Memory per node", "spec.trainer.resourcesPerNode.requests.memory", Input::Text),
            ("Image", "spec.trainer.image", Input::Text),
            ("Kueue queue", "metadata.labels.kueue~x-k8s~io/queue-name", Input::Text),
        ],
    });
    rows
}

/// The fields of a kind's form. Help and choices are empty if the server publishes no schema.
pub(super) async fn fields(cluster: &Cluster, kind: Kind) -> Vec<Field> {
    let (schema, runtimes) = tokio::join!(schema(cluster, kind), runtimes(cluster));
    let field = |(label, way, input): Row| {
        // a dot within a member is written as a tilde
        let path: Vec<String> = way.split('.').map(|member| member.replace('~', ".")).collect();
        let described = described(&schema, &path);
        let offers = match label {
            "Runtime" => runtimes.clone(),
            _ => described.map(choices).unwrap_or_default(),
        };
        Field { label, help: described.map(help).unwrap_or_default(), path, input, offers }
    };
    rows(kind).into_iter().map(field).collect()
}

async fn runtimes(cluster: &Cluster) -> Vec<String> {
    let mut names = Vec::new();
    let (shared, own) = (client::Kind::ClusterTrainingRuntime, client::Kind::TrainingRuntime);
    for api in [cluster.api_all(shared), cluster.api(own)] {
        let listed = api.list(&ListParams::default().limit(200)).await;
        names.extend(listed.into_iter().flatten().filter_map(|runtime| runtime.metadata.name));
    }
    names.truncate(OFFERED_MAX);
    names
}

/// The schemas of the kind's group, and the one of the kind; null where the server publishes none.
async fn schema(cluster: &Cluster, kind: Kind) -> (Value, Value) {
    let resource = client::Kind::from(kind).resource();
    let path = format!("/openapi/v3/apis/{}/{}", resource.group, resource.version);
    let request = http::Request::get(path).body(Vec::new()).expect("a group is a part of a path");
    let mut document: Value = cluster.client.request(request).await.unwrap_or_default();
    let schemas = document["components"]["schemas"].take();
    let is_it = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.is_some_and(|kinds| {
            kinds.iter().any(|one| one["kind"] == *resource.kind && one["group"] == *resource.group)
        })
    };
    let found = schemas.as_object().and_then(|all| all.values().find(is_it)).cloned().unwrap_or_default();
    (schemas, found)
}

/// The schema at the end of a way.
fn described<'a>((schemas, root): &'a (Value, Value), path: &[String]) -> Option<&'a Value> {
    let mut at = resolved(schemas, root);
    for member in path {
        let next = match member.parse::<usize>() {
            Ok(_) => &at["items"],
            Err(_) => match at["properties"].get(member) {
                Some(next) => next,
                None => &at["additionalProperties"],
            },
        };
        if next.is_null() {
            return None;
        }
        // what stands beside a reference describes this use of it
        if next["description"].is_string() && path.last() == Some(member) {
            return Some(next);
        }
        at = resolved(schemas, next);
    }
    Some(at)
}

/// A schema, or the one that it only refers to.
fn resolved<'a>(schemas: &'a Value, schema: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    let name = reference.and_then(|reference| reference.rsplit('/').next());
    name.and_then(|name| schemas.get(name)).unwrap_or(schema)
}

/// The first sentence of a description.
fn help(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
    let first = text.split_once(". ").map_or(text.as_str(), |(first, _)| first);
    first.trim_end_matches('.').chars().take(HELP_MAX).collect()
}

fn choices(schema: &Value) -> Vec<String> {
    let all = schema["enum"].as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned)).take(OFFERED_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_is_described_by_the_schema_at_its_end() {
        let spec = json!({"properties": {
            "nodes": {"type": "integer", "description": "How many nodes.\nMore text. And more."},
            "mode": {"enum": ["a", "b"]},
            "list": {"items": {"$ref": "#/components/schemas/Item"}},
            "limits": {"additionalProperties": {"description": "An amount"}},
        }});
        let schemas = json!({"Spec": spec, "Item": {"properties": {"name": {"description": "Its name"}}}});
        let root = json!({"properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}]}}});
        let both = (schemas, root);
        let at = |way: &str| {
            let path: Vec<String> = way.split('.').map(str::to_owned).collect();
            described(&both, &path).map(|schema| (help(schema), choices(schema)))
        };
        assert_eq!(at("spec.nodes").unwrap().0, "How many nodes");
        assert_eq!(at("spec.mode").unwrap().1, ["a", "b"]);
        assert_eq!(at("spec.list.0.name").unwrap().0, "Its name");
        assert_eq!(at("spec.limits.cpu").unwrap().0, "An amount");
        assert_eq!(at("spec.none"), None);
    }
}
