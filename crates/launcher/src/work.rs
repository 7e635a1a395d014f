//! The steps of a launch that touch the world.

use crate::effects::Trouble;
use crate::{Launcher, typed};
use api::object;
use api::sky::{
    Cluster, ClusterNode, Launch, LaunchFiles, LaunchStatus, Place, WhenSetUp, cluster_gvk, keys, launch_gvk,
    machine_gvk,
};
use files::{Digest, Store, Tree, here, there};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use managed::jobs::{Job as Submitted, jobs};
use managed::launch::fit::Size;
use managed::launch::job::{Job, Setup};
use managed::launch::{self, Refused, step};
use managed::names::object_name;
use serde_json::{Value, json};
use sky::Task;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two reports of how many bytes of a launch's files were sent.
const TOLD: Duration = Duration::from_secs(1);
/// Time between two delays of a cluster's autostop while files are sent to it.
const HOLD_AGAIN: Duration = step::RENEWED.unsigned_abs();

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Turns the error for a missing object into `None`.
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

/// One Launch.
pub(crate) struct Kept<'a> {
    launcher: &'a Launcher,
    namespace: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Kept<'a> {
    pub(crate) fn new(launcher: &'a Launcher, launch: &'a Launch) -> Self {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
        Self { launcher, namespace: text(&launch.metadata.namespace), name: text(&launch.metadata.name) }
    }

    fn api(&self, gvk: &object::Gvk) -> kube::Api<DynamicObject> {
        crate::api(&self.launcher.client, self.namespace, gvk)
    }

    fn core(&self, kind: &str) -> kube::Api<DynamicObject> {
        self.api(&object::Gvk::new("", "v1", kind))
    }

    fn machines(&self) -> kube::Api<DynamicObject> {
        self.api(&machine_gvk())
    }

    /// The Cluster of the launch's name.
    pub(crate) async fn cluster(&self, launch: &Launch) -> Result<Option<(Value, Cluster)>, Trouble> {
        let name = object_name(&launch.spec.cluster);
        let found = self.api(&cluster_gvk()).get_opt(&name).await?;
        let unreadable = |error| Trouble::Fails(format!("cluster {name} cannot be read: {error}"));
        found.as_ref().map(typed).transpose().map_err(unreadable)
    }

    pub(crate) async fn jobs(&self, launch: &Launch) -> Result<Vec<Submitted>, Trouble> {
        let wanted = ListParams::default().labels(&format!("{}={}", keys::CLUSTER, object_name(&launch.spec.cluster)));
        let list = self.api(&::api::jobset::gvk()).list(&wanted).await?;
        let values: Vec<Value> = list.iter().filter_map(|object| serde_json::to_value(object).ok()).collect();
        Ok(jobs(&values))
    }

    /// Writes a status, unless it is unchanged.
    pub(crate) async fn note(&self, launch: &Launch, status: &LaunchStatus) -> kube::Result<()> {
        if *status == launch.status {
            return Ok(());
        }
        let before = serde_json::to_value(&launch.status).unwrap_or_default();
        let body = managed::status::replacing(&before, serde_json::to_value(status).unwrap_or_default());
        let patch = json!({"metadata": {"uid": launch.metadata.uid}, "status": body});
        self.api(&launch_gvk()).patch_status(self.name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Delays the time at which the cluster of an unfinished launch would stop by itself.
    pub(crate) async fn hold(&self, launch: &Launch) -> Result<(), Trouble> {
        let Some(held) = step::held(launch, Timestamp::now()) else { return Ok(()) };
        let patch = json!({"metadata": {"uid": launch.status.cluster_uid}, "spec": {"autostop": held}});
        let name = object_name(&launch.spec.cluster);
        unless_gone(self.api(&cluster_gvk()).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)?;
        Ok(())
    }

    /// The least that each machine of a cluster has.
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
    pub(crate) async fn place(&self, launch: &Launch, mut task: Task) -> Result<(), Trouble> {
        let (eyes, task) = (&self.launcher.eyes, &mut task);
        let catalogue = eyes.catalogue(&launch.spec.catalog).await.map_err(Trouble::Fails)?;
        let at_hand =
            eyes.look(self.namespace, task, &launch.spec.settings, &catalogue).await.map_err(Trouble::Fails)?;
        let folder = eyes.settings().home.join(offers::CATALOGUE);
        let places = launch::find(task, &at_hand, &catalogue, &folder.display().to_string())?;
        let cluster = launch::cluster_of(launch, task, places.candidates, Timestamp::now());
        match self.api(&cluster_gvk()).create(&PostParams::default(), &dynamic(cluster)?).await {
            // another launch has created it, which is as good
            Err(error) if !is_status(&error, 409) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Patches a Cluster so that it comes up, and deletes its lost machines so that they are made again. Returns the patched Cluster.
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
            // the machine is this computer, so only its home is its own
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
        let (mut told, mut held) = (launch.clone(), Instant::now());
        loop {
            tokio::select! {
                done = &mut sends => return done,
                () = tokio::time::sleep(TOLD) => {
                    let read = files::size_shown(store.bytes_read());
                    let status = LaunchStatus {
                        message: format!("Sending files to {machines}: {read} so far."),
                        ..told.status.clone()
                    };
                    self.note(&told, &status).await?;
                    told.status = status;
                    if held.elapsed() >= HOLD_AGAIN {
                        self.hold(launch).await?;
                        held = Instant::now();
                    }
                }
            }
        }
    }

    /// Submits the job unless that is done, and sets when the cluster stops by itself. Returns the job's number; 0 without a job.
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
                None => self.create(launch, &job, jobs).await?,
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

    /// Creates the JobSet of an attempt of a managed job. Its number is that of the attempt, so no attempt is submitted twice. `None`:
    /// another job has the number.
    async fn create_attempt(&self, job: &Job<'_>, attempt: u32) -> Result<Option<u32>, Trouble> {
        let (wanted, sets) = (job.main(attempt), self.api(&api::jobset::gvk()));
        match sets.create(&PostParams::default(), &dynamic(wanted.clone())?).await {
            Err(error) if !is_status(&error, 409) => return Err(error.into()),
            Ok(_) => return Ok(Some(attempt)),
            Err(_) => {}
        }
        // a user's own job on the cluster may have the number
        let there = sets.get_opt(object::meta(&wanted, "name")).await?;
        let label = |object: &Value| object["metadata"]["labels"][keys::ATTEMPT].as_str().map(str::to_owned);
        let there = there.and_then(|there| serde_json::to_value(there).ok());
        Ok(there.filter(|there| label(there) == label(&wanted)).map(|_| attempt))
    }

    /// Creates the JobSet under the next free number.
    async fn create(&self, launch: &Launch, job: &Job<'_>, jobs: &[Submitted]) -> Result<u32, Trouble> {
        // several jobs share a pool's worker, so the number may belong to another one; the label with the launch's uid identifies the job
        if let Some(managed) = launch.spec.managed.as_ref().filter(|_| !launch.spec.on_existing)
            && let Some(id) = self.create_attempt(job, managed.attempt).await?
        {
            return Ok(id);
        }
        let mut id = jobs.last().map_or(1, |last| last.id.saturating_add(1));
        // the number is part of the name: if another launch was first, this one takes the next number
        loop {
            match self.api(&api::jobset::gvk()).create(&PostParams::default(), &dynamic(job.main(id))?).await {
                Ok(_) => return Ok(id),
                Err(error) if is_status(&error, 409) => id = id.saturating_add(1),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes the Secret of the launch live as long as the cluster.
    async fn keep_secret(&self, launch: &Launch, cluster: &Value) -> Result<(), Trouble> {
        // the Secret of a managed job is that of all its attempts
        if launch.spec.secret.is_empty() || launch.spec.managed.is_some() {
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

    /// Deletes the Secret of a launch that submits no job.
    pub(crate) async fn drop_secret(&self, launch: &Launch) -> Result<(), Trouble> {
        let name = &launch.spec.secret;
        if name.is_empty() {
            return Ok(());
        }
        let found = self.core("Secret").get_opt(name).await?;
        // a Secret without the label belongs to a job
        if found.is_some_and(|secret| secret.labels().contains_key(keys::VARIABLES)) {
            unless_gone(self.core("Secret").delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Deletes a Cluster that never had a running machine.
    pub(crate) async fn abandon(&self, cluster: &Value) -> Result<(), Trouble> {
        let uid = object::uid(cluster).to_owned();
        let which = Preconditions { uid: Some(uid), resource_version: None };
        let options = DeleteParams { preconditions: Some(which), ..DeleteParams::default() };
        match self.api(&cluster_gvk()).delete(object::meta(cluster, "name"), &options).await {
            Err(error) if !is_status(&error, 404) && !is_status(&error, 409) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes the launch's finalizer, so that its object can go.
    pub(crate) async fn release(&self, object: &DynamicObject) -> Result<(), Trouble> {
        Ok(effects::release(&self.api(&launch_gvk()), object, keys::LEDGER).await?)
    }
}

/// The tree that a launch names, and its destination.
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
