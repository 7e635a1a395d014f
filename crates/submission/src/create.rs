//! Creates the objects of a checked submission: a job or a search; on a cluster also the ConfigMap with the code for its pods.

use crate::Tell;
use crate::code::{Start, stem};
use crate::manifest::{Pods, VOLUME, manifest};
use crate::preflight::Ready;
use crate::search::Search;
use crate::ship::{Bundle, MOUNT};
use api::object;
use api::trainer::API_VERSION;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The object to create.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
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

impl Ready {
    /// Creates it, and returns it as the server stored it.
    pub async fn create(&self, cluster: &Cluster, what: What<'_>, tell: Tell<'_>) -> Result<Value, ClientError> {
        if cluster.local {
            send(cluster, what, manifest(self, &Pods::Here)).await
        } else if self.code.start == Start::Command && self.code.folder.is_none() {
            send(cluster, what, manifest(self, &Pods::Image)).await
        } else {
            ship(cluster, self, what, tell).await
        }
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

/// Creates it on a cluster, whose pods do not see this machine's files: a ConfigMap brings them.
///
/// Expected flow: the ConfigMap first, because the job names it; then the job; then the job becomes the ConfigMap's owner, so that both are
/// deleted together. If the server refuses the job, the ConfigMap is deleted again.
async fn ship(cluster: &Cluster, ready: &Ready, what: What<'_>, tell: Tell<'_>) -> Result<Value, ClientError> {
    let Ready { spec, code, runtime, .. } = ready;
    let (bundle, script) = match &code.folder {
        Some(folder) if code.start == Start::Command => (Bundle::folder(folder)?, PathBuf::new()),
        None => (Bundle::script(&code.script)?, PathBuf::from(code.script.file_name().unwrap_or_default())),
        Some(folder) => (Bundle::folder(folder)?, code.inside(folder)?),
    };
    bundle.skipped.iter().for_each(|skipped| tell(&format!("not sent: {skipped}")));
    let steps = runtime.steps();
    if steps.is_empty() {
        return Err(ClientError::Usage(
            ErrorCode::RuntimeUnfit,
            format!(
                "runtime {:?} has no container \"node\", so it cannot run a script; choose another: trainyard runtimes",
                runtime.name()
            ),
        ));
    }
    // an error about the name concerns the job, not its files
    let stem = stem(spec.name.as_deref().map_or(code.named.as_path(), Path::new));
    let files = serde_json::to_value(bundle.config_map(&stem)?).expect("a ConfigMap is JSON");
    let maps = cluster.api(Kind::ConfigMap);
    let files = serde_json::from_value(files).expect("a ConfigMap is an object");
    let files = value(&maps.create(&PostParams::default(), &files).await?);
    let files = object::meta(&files, "name");
    tell(&format!(
        "sent {} to {} (context {}) as ConfigMap {files}",
        bundle.summary(),
        cluster.server,
        cluster.context
    ));

    let script = if code.start == Start::Command { code.script.clone() } else { Path::new(MOUNT).join(script) };
    let pods = Pods::Elsewhere { script, volume: bundle.volume(VOLUME, files), steps };
    let created = match send(cluster, what, manifest(ready, &pods)).await {
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
        tell(&format!("ConfigMap {files} will not be deleted with {name}, because its owner cannot be set: {error}"));
        tell(&format!("  remove it once the job has ended: kubectl delete configmap {files} -n {}", cluster.namespace));
    }
    Ok(created)
}
