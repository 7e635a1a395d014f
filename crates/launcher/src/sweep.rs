//! Removes leftovers of launches: their objects, Secrets that no launch names, and files that no launch needs.

use crate::{Launcher, api, resource, typed};
use api::object::Gvk;
use api::sky::{Launch, cluster_gvk, keys, launch_gvk};
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
        self.sweep_files(&kept).await;
        Ok(())
    }

    /// Deletes Secrets of clients that were killed before they created the launch.
    async fn sweep_secrets(&self, launches: &[&Launch], now: Timestamp) -> kube::Result<()> {
        let wanted = ListParams::default().labels(&format!("{}=true", keys::VARIABLES));
        for secret in self.all(&Gvk::new("", "v1", "Secret")).list(&wanted).await? {
            let (namespace, name) = (secret.namespace(), secret.name_any());
            let is_named = |launch: &&&Launch| launch.metadata.namespace == namespace && launch.spec.secret == name;
            let made = secret.creation_timestamp().map(|at| at.0);
            let limit = SignedDuration::try_from(UNUSED_FOR).unwrap_or(SignedDuration::MAX);
            let is_old = made.is_some_and(|made| now.duration_since(made) > limit);
            if is_old && !launches.iter().any(|one| is_named(&one)) {
                let api = api(&self.client, namespace.as_deref().unwrap_or_default(), &Gvk::new("", "v1", "Secret"));
                ignore_gone(api.delete(&name, &DeleteParams::default()).await.map(drop))?;
            }
        }
        Ok(())
    }

    /// Removes files that no launch needs.
    async fn sweep_files(&self, launches: &[&Launch]) {
        let mut lists: BTreeMap<String, Vec<Vec<Digest>>> = BTreeMap::new();
        for launch in launches {
            let of = lists.entry(launch.metadata.namespace.clone().unwrap_or_default()).or_default();
            of.extend(
                launch.spec.files.iter().map(|one| one.list.iter().filter_map(|text| text.parse().ok()).collect()),
            );
        }
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

fn ignore_gone(done: kube::Result<()>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done,
    }
}
