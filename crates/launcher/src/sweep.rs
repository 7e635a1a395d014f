//! Removes leftovers of launches: their objects, Secrets that no launch names, and files that no launch needs.

use crate::{Launcher, api, resource, typed};
use api::object::Gvk;
use api::sky::{JobFile, Launch, LaunchFiles, cluster_gvk, keys, launch_gvk, managed_job_gvk, pool_gvk, serving_gvk};
use files::{Digest, Store, Tree};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use managed::launch::step::is_left;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time between two sweeps.
const EVERY: Duration = Duration::from_secs(600);
/// How long an unneeded file or an unnamed Secret is kept, because a client may be about to name it.
const UNUSED_FOR: Duration = Duration::from_secs(3600);

impl Launcher {
    /// Sweeps now, and then at regular intervals.
    pub(crate) async fn sweep(&self) {
        loop {
            if let Err(error) = self.sweep_once().await {
                tracing::warn!(%error, "cannot remove what launches have left; trying again");
            }
            self.eyes.forget();
            tokio::time::sleep(EVERY).await;
        }
    }

    fn all(&self, gvk: &Gvk) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(gvk))
    }

    async fn sweep_once(&self) -> kube::Result<()> {
        let clusters = self.all(&cluster_gvk()).list(&ListParams::default()).await?;
        let live: BTreeSet<String> = clusters.iter().filter_map(ResourceExt::uid).collect();
        let launches = self.all(&launch_gvk()).list(&ListParams::default()).await?;
        let all: Vec<Launch> = launches.iter().filter_map(|one| Some(typed(one).ok()?.1)).collect();
        let now = Timestamp::now();
        let mut kept: Vec<&Launch> = Vec::new();
        for launch in &all {
            if !is_left(launch, &all, &live, now) {
                kept.push(launch);
                continue;
            }
            let (namespace, name) = (&launch.metadata.namespace, &launch.metadata.name);
            let api = api(&self.client, namespace.as_deref().unwrap_or_default(), &launch_gvk());
            ignore_gone(api.delete(name.as_deref().unwrap_or_default(), &DeleteParams::default()).await.map(drop))?;
        }
        self.sweep_secrets(&kept, now).await?;
        let mut files: BTreeMap<String, Vec<LaunchFiles>> = BTreeMap::new();
        for launch in kept {
            let of = files.entry(launch.metadata.namespace.clone().unwrap_or_default()).or_default();
            of.extend(launch.spec.files.iter().cloned());
        }
        self.sweep_submissions(&mut files, now).await?;
        self.sweep_files(files).await;
        Ok(())
    }

    /// Deletes Secrets of clients that were killed before they created the launch.
    async fn sweep_secrets(&self, launches: &[&Launch], now: Timestamp) -> kube::Result<()> {
        let wanted = ListParams::default().labels(&format!("{}=true", keys::VARIABLES));
        for secret in self.all(&Gvk::new("", "v1", "Secret")).list(&wanted).await? {
            let (namespace, name) = (secret.namespace(), secret.name_any());
            let is_named = |launch: &&&Launch| launch.metadata.namespace == namespace && launch.spec.secret == name;
            if is_old(&secret, now) && !launches.iter().any(|one| is_named(&one)) {
                let api = api(&self.client, namespace.as_deref().unwrap_or_default(), &Gvk::new("", "v1", "Secret"));
                ignore_gone(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
            }
        }
        Ok(())
    }

    /// Deletes what was submitted for managed jobs, services and pools that are gone, and notes the files of the others.
    async fn sweep_submissions(
        &self,
        files: &mut BTreeMap<String, Vec<LaunchFiles>>,
        now: Timestamp,
    ) -> kube::Result<()> {
        let wanted = ListParams::default().labels(&format!("{}=true", keys::SUBMISSION));
        let kind = Gvk::new("", "v1", "ConfigMap");
        let submissions = self.all(&kind).list(&wanted).await?;
        // read after the submissions, which are there before their jobs
        let jobs = self.all(&managed_job_gvk()).list(&ListParams::default()).await?;
        let name = |job: &DynamicObject| job.data["spec"]["submission"].as_str().map(str::to_owned);
        let mut named: BTreeSet<(Option<String>, String)> =
            jobs.iter().filter_map(|job| Some((job.namespace(), name(job)?))).collect();
        for kind in [serving_gvk(), pool_gvk()] {
            for fleet in self.all(&kind).list(&ListParams::default()).await? {
                let versions = fleet.data["status"]["versions"].as_array().into_iter().flatten();
                let older = versions.filter_map(|version| version["submission"].as_str().map(str::to_owned));
                named.extend(older.chain(name(&fleet)).map(|name| (fleet.namespace(), name)));
            }
        }
        for submission in &submissions {
            let (namespace, name) = (submission.namespace(), submission.name_any());
            if named.contains(&(namespace.clone(), name.clone())) || !is_old(submission, now) {
                let text = submission.data["data"]["job"].as_str().unwrap_or_default();
                let read: JobFile = serde_json::from_str(text).unwrap_or_default();
                let of = files.entry(namespace.unwrap_or_default()).or_default();
                of.extend(read.tasks.into_iter().flat_map(|task| task.files));
                continue;
            }
            let api = api(&self.client, namespace.as_deref().unwrap_or_default(), &kind);
            ignore_gone(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
        }
        Ok(())
    }

    /// Removes files that neither a launch nor a managed job needs.
    async fn sweep_files(&self, files: BTreeMap<String, Vec<LaunchFiles>>) {
        let digests =
            |one: &LaunchFiles| -> Vec<Digest> { one.list.iter().filter_map(|text| text.parse().ok()).collect() };
        let lists: BTreeMap<String, Vec<Vec<Digest>>> =
            files.into_iter().map(|(namespace, files)| (namespace, files.iter().map(digests).collect())).collect();
        let folder = self.eyes.settings().files.clone();
        let swept = tokio::task::spawn_blocking(move || {
            let namespaces = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            for namespace in namespaces.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
                let store = Store::new(&folder, &namespace);
                let mut used = BTreeSet::new();
                for list in lists.get(&namespace).into_iter().flatten() {
                    used.extend(list);
                    // a launch whose list is gone fails; nothing of it can be kept
                    used.extend(Tree::kept(&store, list).iter().flat_map(Tree::all_parts));
                }
                if let Err(error) = store.collect(&used, UNUSED_FOR) {
                    tracing::warn!(%error, namespace, "cannot remove files that no launch needs");
                }
            }
        });
        if let Err(error) = swept.await {
            tracing::warn!(%error, "cannot remove files that no launch needs");
        }
    }
}

/// Whether an object is so old that a client that made it would have named it by now.
fn is_old(object: &DynamicObject, now: Timestamp) -> bool {
    let limit = SignedDuration::try_from(UNUSED_FOR).unwrap_or(SignedDuration::MAX);
    object.creation_timestamp().is_some_and(|made| now.duration_since(made.0) > limit)
}

fn ignore_gone(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}
