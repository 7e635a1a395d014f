//! The steps of a launch that touch the world.

use crate::{Kept, Trouble};
use api::object;
use api::sky::{Cluster, ClusterNode, Launch, LaunchFiles, Place, WhenSetUp, cluster_gvk, keys};
use files::{Digest, Store, Tree, here, there};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use managed::jobs::Job as Submitted;
use managed::launch::fit::Size;
use managed::launch::job::{Job, Setup};
use managed::launch::{self, By, Refused, step};
use placement::Catalogue;
use serde_json::{Value, json};
use sky::Task;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a launch tells how many bytes of its files were sent.
const TOLD: Duration = Duration::from_secs(1);

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// What is there, or else nothing.
fn unless_gone<T>(done: kube::Result<T>) -> kube::Result<Option<T>> {
    match done {
        Err(error) if is_status(&error, 404) => Ok(None),
        done => done.map(Some),
    }
}

fn dynamic(object: Value) -> Result<DynamicObject, Trouble> {
    serde_json::from_value(object).map_err(|error| Trouble::Fails(error.to_string()))
}

/// A panic of a thread that reads files.
pub(crate) fn ended(error: &tokio::task::JoinError) -> String {
    format!("a thread of the control plane has ended: {error}")
}

impl Kept<'_> {
    /// The price lists that the launch names, or those of the control plane.
    pub(crate) async fn catalogue(&self, launch: &Launch) -> Result<Arc<Catalogue>, Trouble> {
        let read = || async { self.launcher.eyes.catalogue(&launch.spec.catalog).await.map_err(Trouble::Fails) };
        self.catalogue.get_or_try_init(read).await.cloned()
    }

    /// What each machine of a cluster has at least.
    pub(crate) async fn size(&self, cluster: &Cluster) -> Result<Size, Trouble> {
        let nodes = kube::Api::<DynamicObject>::all_with(
            self.launcher.client.clone(),
            &crate::resource(&object::Gvk::new("", "v1", "Node")),
        );
        let mut sizes = Vec::new();
        for node in &cluster.status.nodes {
            let found = nodes.get_opt(&node.node).await?;
            sizes.extend(found.map(|node| Size::allocatable(&node.data["status"]["allocatable"])));
        }
        Ok(Size::of_cluster(cluster, sizes.into_iter()))
    }

    /// Looks for places, and creates the Cluster.
    pub(crate) async fn place(&self, launch: &Launch, task: &mut Task) -> Result<(), Trouble> {
        let eyes = &self.launcher.eyes;
        let catalogue = self.catalogue(launch).await?;
        let at_hand =
            eyes.look(self.namespace, task, &launch.spec.settings, &catalogue).await.map_err(Trouble::Fails)?;
        let folder = eyes.settings().home.join(offers::CATALOGUE);
        let places = launch::find(task, &at_hand, &catalogue, &folder.display().to_string())?;
        let by = By { user: &launch.spec.user, command: &launch.spec.command };
        let mut cluster = launch::cluster(&launch.spec.cluster, task, places.candidates, &by);
        cluster["metadata"]["annotations"][keys::LAUNCH] = launch.metadata.uid.clone().into();
        if launch.spec.retry_until_up {
            cluster["spec"]["retryUntilUp"] = true.into();
        }
        if let Some(held) = step::held(launch, Timestamp::now()) {
            cluster["spec"]["autostop"] = held;
        }
        match self.api(&cluster_gvk()).create(&PostParams::default(), &dynamic(cluster)?).await {
            // somebody else launches it: theirs is as good
            Err(error) if !is_status(&error, 409) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Patches a Cluster so that it comes up, and lets machines that are lost be made anew. Returns it as it is then.
    pub(crate) async fn take(&self, cluster: &Value, patch: &Value) -> Result<Value, Trouble> {
        let name = object::meta(cluster, "name");
        let mut patch = patch.clone();
        patch["metadata"] = json!({"uid": object::uid(cluster)});
        let patched = self.api(&cluster_gvk()).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        let wanted = ListParams::default().labels(&format!("{}={name}", keys::CLUSTER));
        for machine in self.machines().list(&wanted).await? {
            if machine.data["status"]["phase"] == "Lost" {
                unless_gone(self.machines().delete(&machine.name_any(), &DeleteParams::default()).await)?;
            }
        }
        serde_json::to_value(&patched).map_err(|error| Trouble::Fails(error.to_string()))
    }

    /// Puts the launch's files onto the machines.
    pub(crate) async fn send(&self, launch: &Launch, object: &Value, cluster: &Cluster) -> Result<(), Trouble> {
        let store = Store::new(&self.launcher.eyes.settings().files, self.namespace);
        let (kept, wanted) = (store.clone(), launch.spec.files.clone());
        let read = move || wanted.iter().map(|one| tree(&kept, one)).collect::<Result<Vec<_>, Refused>>();
        let trees = tokio::task::spawn_blocking(read).await.map_err(|error| Trouble::Fails(ended(&error)))??;
        let is_local = cluster.at().is_some_and(|one| one.place() == Place::Local);
        if is_local && let Some((_, to)) = trees.iter().find(|(_, to)| to.starts_with('/')) {
            // the machine is this computer: what is outside of its home is not its own
            let message = format!("{to}: machines of `infra: local` share this computer's folders; mount below ~/.");
            return Err(Refused::new("ValueError", message).into());
        }
        let sends = async {
            let (near, far): (Vec<ClusterNode>, Vec<ClusterNode>) =
                cluster.status.nodes.iter().cloned().partition(|node| here::is_here(cluster, node));
            for node in near {
                fill_here(&store, &trees, &node.home, &node.machine).await?;
            }
            if far.is_empty() {
                return Ok(());
            }
            let client = (self.launcher.by_socket)().await;
            let through = there::Cluster {
                client: client.map_err(|error| cannot_copy("the task's files", "the machines", &error))?,
                namespace: self.namespace.to_owned(),
                name: object::meta(object, "name").to_owned(),
                uid: object::uid(object).to_owned(),
            };
            let done = there::fill(&through, far, &store, &trees).await;
            done.map_err(|(machine, why)| cannot_copy("the task's files", &machine, &why))
        };
        let machines = match cluster.status.nodes.len() {
            1 => "1 machine".to_owned(),
            many => format!("{many} machines"),
        };
        let mut sends = std::pin::pin!(sends);
        let mut told = launch.clone();
        loop {
            tokio::select! {
                done = &mut sends => return done,
                () = tokio::time::sleep(TOLD) => {
                    let read = files::size_shown(store.bytes_read());
                    let status = api::sky::LaunchStatus {
                        message: format!("Sending files to {machines}: {read} so far."),
                        ..told.status.clone()
                    };
                    self.note(&told, &status).await?;
                    told.status = status;
                }
            }
        }
    }

    /// Submits the job, unless it was, and sets when the cluster stops by itself. Returns the job's number; 0 where there is none.
    pub(crate) async fn submit(
        &self,
        launch: &Launch,
        task: &Task,
        (object, cluster): (&Value, &Cluster),
        jobs: &[Submitted],
    ) -> Result<u32, Trouble> {
        let is_left_out = launch.spec.on_existing || launch.spec.setup == WhenSetUp::Never || launch.status.is_set_up;
        let setup = if is_left_out { Setup::LeftOut } else { Setup::As(launch.spec.configuration.clone()) };
        let has_job = task.run.is_some() || (task.setup.is_some() && !is_left_out);
        let mut id = 0;
        if has_job {
            let now = Timestamp::now();
            let before = step::job_of(launch, jobs);
            let shown = &launch.spec.cluster;
            let job = Job::new(object, cluster, shown, task, setup, &launch.spec.user, now)?.of(launch);
            self.keep_secret(launch, object).await?;
            id = match before {
                Some(job) => job.id,
                None => self.create(&job, jobs).await?,
            };
            if let Some(setup) = job.setup(id) {
                match self.api(&api::jobset::gvk()).create(&PostParams::default(), &dynamic(setup)?).await {
                    Err(error) if !is_status(&error, 409) => return Err(error.into()),
                    _ => {}
                }
            }
        } else {
            self.drop_secret(launch).await?;
        }
        if let Some(autostop) = step::set(launch, Timestamp::now()) {
            let patch = json!({"metadata": {"uid": object::uid(object)}, "spec": {"autostop": autostop}});
            let name = object::meta(object, "name");
            let set = self.api(&cluster_gvk()).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            unless_gone(set)?;
        }
        Ok(id)
    }

    /// Creates the JobSet under the next free number.
    async fn create(&self, job: &Job<'_>, jobs: &[Submitted]) -> Result<u32, Trouble> {
        let mut id = jobs.last().map_or(1, |last| last.id.saturating_add(1));
        // the name is made of the number: the second launch to come takes the next one
        loop {
            match self.api(&api::jobset::gvk()).create(&PostParams::default(), &dynamic(job.main(id))?).await {
                Ok(_) => return Ok(id),
                Err(error) if is_status(&error, 409) => id = id.saturating_add(1),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Lets the Secret of the launch live as long as the cluster.
    async fn keep_secret(&self, launch: &Launch, cluster: &Value) -> Result<(), Trouble> {
        if launch.spec.secret.is_empty() {
            return Ok(());
        }
        let owner = json!({
            "apiVersion": api::sky::API_VERSION, "kind": "Cluster",
            "name": object::meta(cluster, "name"), "uid": object::uid(cluster),
        });
        let patch = json!({"metadata": {"labels": {keys::VARIABLES: null}, "ownerReferences": [owner]}});
        let kept = self.core("Secret").patch(&launch.spec.secret, &PatchParams::default(), &Patch::Merge(patch)).await;
        match unless_gone(kept)? {
            Some(_) => Ok(()),
            None => Err(Trouble::Fails(format!(
                "Secret {} with the variables of the task is not there any more: run the command again",
                launch.spec.secret
            ))),
        }
    }

    /// Deletes the Secret of a launch that comes to no job.
    pub(crate) async fn drop_secret(&self, launch: &Launch) -> Result<(), Trouble> {
        let name = &launch.spec.secret;
        if name.is_empty() {
            return Ok(());
        }
        let found = self.core("Secret").get_opt(name).await?;
        // one without the label is a job's
        if found.is_some_and(|secret| secret.labels().contains_key(keys::VARIABLES)) {
            unless_gone(self.core("Secret").delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Deletes a Cluster of which nothing was ever there.
    pub(crate) async fn abandon(&self, cluster: &Value) -> Result<(), Trouble> {
        let uid = object::uid(cluster).to_owned();
        let which = Preconditions { uid: Some(uid), resource_version: None };
        let options = DeleteParams { preconditions: Some(which), ..DeleteParams::default() };
        match self.api(&cluster_gvk()).delete(object::meta(cluster, "name"), &options).await {
            Err(error) if !is_status(&error, 404) && !is_status(&error, 409) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Lets the launch's object go.
    pub(crate) async fn release(&self, object: &DynamicObject) -> Result<(), Trouble> {
        let left: Vec<&String> = object.finalizers().iter().filter(|held| *held != keys::LEDGER).collect();
        let patch = json!({"metadata": {"resourceVersion": object.resource_version(), "finalizers": left}});
        let launches = self.api(&api::sky::launch_gvk());
        unless_gone(launches.patch(self.name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        Ok(())
    }
}

/// A tree that a launch names, and where it goes.
fn tree(store: &Store, files: &LaunchFiles) -> Result<(Arc<Tree>, String), Refused> {
    let cannot = |why: String| {
        let message = format!("cannot copy {} to the machines: {why}", files.from);
        Refused::new("sky.exceptions.CommandError", message)
    };
    let list: Option<Vec<Digest>> = files.list.iter().map(|digest| digest.parse().ok()).collect();
    let list = list.ok_or_else(|| cannot("its list is named by something else than SHA-256".to_owned()))?;
    let tree = Tree::kept(store, &list).map_err(|error| cannot(error.to_string()))?;
    Ok((Arc::new(tree), files.to.clone()))
}

fn cannot_copy(from: &str, machine: &str, why: &dyn std::fmt::Display) -> Trouble {
    let message = format!("cannot copy {from} to {machine}: {why}");
    Refused::new("sky.exceptions.CommandError", message).into()
}

/// Fills a machine whose home is a folder of this computer.
async fn fill_here(store: &Store, trees: &[(Arc<Tree>, String)], home: &str, machine: &str) -> Result<(), Trouble> {
    for (tree, to) in trees {
        let (store, tree, to, home) = (store.clone(), tree.clone(), to.clone(), PathBuf::from(home));
        let filled = tokio::task::spawn_blocking(move || here::fill(&store, &tree, &home, &to)).await;
        let filled = filled.map_err(|error| Trouble::Fails(ended(&error)))?;
        filled.map_err(|error| cannot_copy("the task's files", machine, &error))?;
    }
    Ok(())
}
