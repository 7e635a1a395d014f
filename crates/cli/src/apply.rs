//! `apply -f`: creates or changes the objects of a manifest by server-side apply, as `kubectl apply --server-side` does.

use crate::{exit, output};
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, value};
use grammar::{ApplyArgs, Format};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Who the fields belong to.
const MANAGER: &str = "trainyard";
/// Bytes of a manifest.
const MANIFEST_MAX: u64 = 16 << 20;

/// `trainyard apply`.
pub(crate) async fn apply(cluster: &Cluster, args: &ApplyArgs) -> Result<u8, ClientError> {
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(read(file)?);
    }
    let mut applied = Vec::new();
    for object in &objects {
        let (object, what) = one(cluster, object).await?;
        if matches!(args.output.output, Format::Table | Format::Wide | Format::Name) {
            println!("{what}");
        }
        applied.push(object);
    }
    if let format @ (Format::Json | Format::Yaml) = args.output.output {
        match applied.as_slice() {
            [one] => output::print(one, format),
            many => output::print(&json!({"apiVersion": "v1", "kind": "List", "items": many}), format),
        }
    }
    Ok(exit::OK)
}

/// The objects of a file, or of the standard input (`-`); the items of a list each by itself.
fn read(file: &Path) -> Result<Vec<Value>, ClientError> {
    let shown = file.display();
    let failed = |source| ClientError::Io { doing: "read", path: file.to_owned(), source };
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().take(MANIFEST_MAX).read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|file| file.take(MANIFEST_MAX).read_to_string(&mut text)),
    };
    read.map_err(failed)?;
    let wrong = |why: String| ClientError::Usage(ErrorCode::FlagRefused, format!("{shown} is no manifest: {why}"));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| wrong(error.to_string()))?;
    let mut objects = Vec::new();
    for document in documents.into_iter().filter(|document| !document.is_null()) {
        match document["items"].as_array().filter(|_| object::text(&document, "kind").ends_with("List")) {
            Some(items) => objects.extend(items.iter().cloned()),
            None => objects.push(document),
        }
    }
    for object in &objects {
        let lacks = ["apiVersion", "kind"].into_iter().find(|member| object::text(object, member).is_empty());
        if let Some(lacks) = lacks {
            return Err(wrong(format!("an object in it has no {lacks}")));
        }
        if object::meta(object, "name").is_empty() {
            return Err(wrong(format!("a {} in it has no metadata.name", object::text(object, "kind"))));
        }
    }
    if objects.is_empty() {
        return Err(wrong("it holds no object".to_owned()));
    }
    Ok(objects)
}

/// Applies one object; returns it, and what is printed: `trainjob.trainer.kubeflow.org/train created`.
async fn one(cluster: &Cluster, object: &Value) -> Result<(Value, String), ClientError> {
    let (version, kind) = (object::text(object, "apiVersion"), object::text(object, "kind"));
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let (resource, capabilities) = pinned_kind(&cluster.client, &gvk).await.map_err(|error| match error {
        kube::Error::Discovery(_) | kube::Error::Api(_) => ClientError::Usage(
            ErrorCode::FlagRefused,
            format!("the API server has no kind {kind:?} in {}", object::text(object, "apiVersion")),
        ),
        other => other.into(),
    })?;
    let name = object::meta(object, "name");
    let namespace = match object::meta(object, "namespace") {
        "" => cluster.namespace.as_str(),
        namespace => namespace,
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(cluster.client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
    };
    let before = api.get_opt(name).await?.and_then(|held| held.metadata.resource_version);
    let now = api.patch(name, &PatchParams::apply(MANAGER), &Patch::Apply(object)).await?;
    let what = match &before {
        None => "created",
        Some(version) if now.metadata.resource_version.as_ref() == Some(version) => "unchanged",
        Some(_) => "configured",
    };
    let of = if group.is_empty() { String::new() } else { format!(".{group}") };
    let told = format!("{}{of}/{name} {what}", kind.to_lowercase());
    Ok((value(&now), told))
}
