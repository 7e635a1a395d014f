//! The machines that a task could get now. A launch uses this, and so does a client that asks before it launches.

use crate::Settings;
use crate::work::ended;
use kube::Client;
use managed::launch::AtHand;
use offers::SettingsError;
use placement::Catalogue;
use serde_json::Value;
use sky::value::Value as Field;
use sky::{File, Given, Reader, Task};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an observation is valid.
const SEEN_FOR: Duration = Duration::from_secs(15);

/// Observes the machines at hand. Clones share the last observation.
#[derive(Clone)]
pub struct Eyes {
    client: Client,
    settings: Arc<Settings>,
    last: Arc<Mutex<Option<Seen>>>,
    /// The price lists that were read last: they are large.
    lists: Arc<Mutex<Option<Lists>>>,
}

struct Lists {
    folder: PathBuf,
    at: Instant,
    read: Arc<Catalogue>,
}

struct Seen {
    /// What was asked for.
    asked: String,
    at: Instant,
    found: AtHand,
}

/// A client's question before it launches: `{task, settings, catalog}`, in the form of a Launch.
pub struct Asked {
    task: Value,
    settings: Value,
    catalog: String,
}

impl Asked {
    /// Reads it; `None` for anything else.
    pub fn read(body: &[u8]) -> Option<Self> {
        let mut body: Value = serde_json::from_slice(body).ok()?;
        let catalog = body["catalog"].as_str().unwrap_or_default().to_owned();
        let task = body["task"].take();
        task.is_object().then(|| Self { task, settings: body["settings"].take(), catalog })
    }
}

impl Eyes {
    /// Those of a control plane.
    pub fn new(client: Client, settings: Settings) -> Self {
        Self { client, settings: Arc::new(settings), last: Arc::default(), lists: Arc::default() }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The price lists of this folder; those of the control plane if no folder is named.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn catalogue(&self, named: &str) -> Result<Arc<Catalogue>, String> {
        let (folder, is_named) = match named {
            "" => (self.settings.home.join(offers::CATALOGUE), false),
            named => (PathBuf::from(named), true),
        };
        let counts = |lists: &&Lists| lists.folder == folder && lists.at.elapsed() < SEEN_FOR;
        if let Some(lists) = self.lists().as_ref().filter(counts) {
            return Ok(lists.read.clone());
        }
        let named = folder.clone();
        let read = tokio::task::spawn_blocking(move || offers::read_catalogue(&named, is_named)).await;
        let read = read.map_err(|error| ended(&error))?.map_err(|error| api::error_chain(&error))?;
        let read = Arc::new(read);
        *self.lists() = Some(Lists { folder, at: Instant::now(), read: read.clone() });
        Ok(read)
    }

    fn lists(&self) -> MutexGuard<'_, Option<Lists>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the memory of price lists that are no longer valid.
    pub(crate) fn forget(&self) {
        self.lists().take_if(|lists| lists.at.elapsed() >= SEEN_FOR);
    }

    /// The machines at hand for a task that a client describes.
    ///
    /// # Errors
    /// It is no task, settings cannot be read, or the API server cannot be asked.
    pub async fn asked(&self, namespace: &str, asked: &Asked) -> Result<AtHand, String> {
        let catalogue = self.catalogue(&asked.catalog).await?;
        let read = File::read(&asked.task.to_string(), &Given::default(), Reader::Server, &catalogue);
        let tasks = read.map_err(|error| error.message)?.tasks;
        let task = tasks.first().ok_or("there is no task")?;
        self.look(namespace, task, &asked.settings, &catalogue).await
    }

    /// The machines at hand for a task: this machine, the pools and price lists in files of this computer, hosts as their Nodes describe
    /// them, and what is free in the Kubernetes clusters that the task may use.
    ///
    /// # Errors
    /// Settings cannot be read, or the API server cannot be asked.
    pub(crate) async fn look(
        &self,
        namespace: &str,
        task: &Task,
        settings: &Value,
        catalogue: &Arc<Catalogue>,
    ) -> Result<AtHand, String> {
        let resources: Vec<String> =
            task.resources.list.iter().map(|one| Field::Map(one.write(catalogue)).quoted()).collect();
        let asked = format!("{namespace}\n{settings}\n{}", resources.join("\n"));
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = last().as_ref().filter(|seen| seen.asked == asked && seen.at.elapsed() < SEEN_FOR) {
            return Ok(seen.found.clone());
        }
        let given = Field::from_json(settings).and_then(|value| value.as_map().cloned());
        let (around, lists) = (self.settings.clone(), catalogue.clone());
        let observed = tokio::task::spawn_blocking(move || {
            let read = offers::settings_with(&around.home, given)?;
            Ok::<_, SettingsError>(offers::observe(&around.home, read.map.as_ref(), &around.kubeconfig, &lists))
        });
        let found = observed.await.map_err(|error| ended(&error))?;
        let mut found = found.map_err(|error| api::error_chain(&error))?;
        let hosts = offers::look_at_hosts(&mut found, &self.client, namespace).await;
        hosts.map_err(|error| api::error_chain(&error))?;
        offers::look_at_contexts(&mut found, &task.resources.list).await;
        *last() = Some(Seen { asked, at: Instant::now(), found: found.clone() });
        Ok(found)
    }
}
