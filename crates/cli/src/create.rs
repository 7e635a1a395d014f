//! Creates what `run` has planned: a job or a search; on a cluster also the ConfigMap with the code for its pods.

use crate::code::Start;
use crate::manifest::{Draft, Pods, VOLUME, manifest, stem, steps};
use crate::ship::{Bundle, MOUNT};
use crate::sweep::Search;
use api::object;
use api::trainer::API_VERSION;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What is created.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    Job,
    /// A search whose trials are such jobs.
    Search(&'a Search),
}

impl What<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Job => "TrainJob",
            Self::Search(_) => "OptimizationJob",
        }
    }
}

/// Creates it, and returns it as the server has it.
pub(crate) async fn create(cluster: &Cluster, draft: Draft<'_>, what: What<'_>) -> Result<Value, ClientError> {
    if cluster.local {
        send(cluster, what, manifest(draft, &Pods::Here)).await
    } else if draft.code.start == Start::Command && draft.code.folder.is_none() {
        send(cluster, what, manifest(draft, &Pods::Image)).await
    } else {
        ship(cluster, draft, what).await
    }
}

async fn send(cluster: &Cluster, what: What<'_>, job: Value) -> Result<Value, ClientError> {
    let (kind, object) = match what {
        What::Job => (Kind::TrainJob, job),
        What::Search(search) => (Kind::OptimizationJob, search.of_trials(job)),
    };
    let object = serde_json::from_value(object).expect("what is made here is an object");
    Ok(value(&cluster.api(kind).create(&PostParams::default(), &object).await?))
}

/// Creates it on a cluster, whose pods do not see this machine's files: they get them by a ConfigMap.
///
/// Expected flow: the ConfigMap first, for the job names it; then the job; then the job becomes the ConfigMap's owner, so that
/// they go together. Where the job is refused, the ConfigMap is deleted again.
async fn ship(cluster: &Cluster, draft: Draft<'_>, what: What<'_>) -> Result<Value, ClientError> {
    let Draft { args, code, ready, .. } = draft;
    let (bundle, script) = match &code.folder {
        Some(folder) if code.start == Start::Command => (Bundle::folder(folder)?, PathBuf::new()),
        None => (Bundle::script(&code.script)?, PathBuf::from(code.script.file_name().unwrap_or_default())),
        Some(folder) => (Bundle::folder(folder)?, code.inside(folder)?),
    };
    bundle.skipped.iter().for_each(|skipped| eprintln!("not sent: {skipped}"));
    let steps = steps(&ready.runtime);
    if steps.is_empty() {
        return Err(ClientError::Usage(
            ErrorCode::RuntimeUnfit,
            format!(
                "runtime {:?} has no container \"node\", so it cannot run a script; choose another: trainyard runtimes",
                object::meta(&ready.runtime, "name")
            ),
        ));
    }
    // an error about the name is one of the job, not of its files
    let stem = stem(args.name.as_deref().map_or(code.named.as_path(), Path::new));
    let files = serde_json::to_value(bundle.config_map(&stem)?).expect("a ConfigMap is JSON");
    let maps = cluster.api(Kind::ConfigMap);
    let files = serde_json::from_value(files).expect("a ConfigMap is an object");
    let files = value(&maps.create(&PostParams::default(), &files).await?);
    let files = object::meta(&files, "name");
    eprintln!("sent {} to {} (context {}) as ConfigMap {files}", bundle.summary(), cluster.server, cluster.context);

    let script = if code.start == Start::Command { code.script.clone() } else { Path::new(MOUNT).join(script) };
    let pods = Pods::Elsewhere { script, volume: bundle.volume(VOLUME, files), steps };
    let created = match send(cluster, what, manifest(draft, &pods)).await {
        Ok(created) => created,
        Err(error) => {
            let _ = maps.delete(files, &DeleteParams::default()).await;
            return Err(error);
        }
    };
    let name = object::meta(&created, "name");
    let owner = json!({"apiVersion": API_VERSION, "kind": what.kind(), "name": name, "uid": object::uid(&created)});
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": [owner]}}));
    if let Err(error) = maps.patch(files, &PatchParams::default(), &owned).await {
        eprintln!("ConfigMap {files} will not be deleted with {name}, because its owner cannot be set: {error}");
        eprintln!("  remove it once the job has ended: kubectl delete configmap {files} -n {}", cluster.namespace);
    }
    Ok(created)
}
