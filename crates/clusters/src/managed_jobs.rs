//! Submits managed jobs through the API.

use crate::Sky;
use api::sky::{JobFile, ManagedJobSpec, keys};
use client::ClientError;
use futures::{StreamExt, TryStreamExt};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use managed::job::submitted::{config_map, managed_job};
use serde_json::{Value, json};

/// Jobs that are created at the same time.
const AT_ONCE: usize = 64;
/// The ConfigMap that holds the number of the next managed job.
const NUMBERS: &str = "sky-managed-jobs";

/// Why jobs were not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An object could not be written down.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The ConfigMap with the numbers of jobs was changed by hand.
    #[error(
        "the key `next` of ConfigMap {NUMBERS} is {0:?}, not the number of a job; to reset the numbers, delete the ConfigMap"
    )]
    Numbers(String),
}

impl From<kube::Error> for SubmitError {
    fn from(error: kube::Error) -> Self {
        Self::Client(error.into())
    }
}

fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

fn dynamic(object: Value) -> serde_json::Result<DynamicObject> {
    serde_json::from_value(object)
}

impl Sky {
    /// Reserves so many numbers of jobs, and returns the first.
    async fn reserve(&self, count: u32) -> Result<u32, SubmitError> {
        loop {
            let Some(held) = self.config_maps().get_opt(NUMBERS).await? else {
                let fresh = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NUMBERS},
                    "data": {"next": "1"}});
                match self.config_maps().create(&PostParams::default(), &dynamic(fresh)?).await {
                    Err(error) if !is_status(&error, 409) => return Err(error.into()),
                    _ => continue,
                }
            };
            let text = held.data["data"]["next"].as_str().unwrap_or_default().to_owned();
            let Some((next, after)) =
                text.parse::<u32>().ok().and_then(|next| Some((next.max(1), next.max(1).checked_add(count)?)))
            else {
                return Err(SubmitError::Numbers(text));
            };
            let patch = json!({
                "metadata": {"resourceVersion": held.metadata.resource_version}, "data": {"next": after.to_string()},
            });
            let patched = self.config_maps().patch(NUMBERS, &PatchParams::default(), &Patch::Merge(patch)).await;
            match patched {
                Err(error) if is_status(&error, 409) || is_status(&error, 404) => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(next),
            }
        }
    }

    /// Lets the Secrets that the tasks of a file name live as long as its ConfigMap.
    pub(crate) async fn adopt_secrets(&self, file: &JobFile, held: &DynamicObject) -> Result<(), SubmitError> {
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": held.metadata.name, "uid": held.metadata.uid,
        });
        for secret in file.tasks.iter().map(|task| &task.secret).filter(|secret| !secret.is_empty()) {
            let patch = json!({"metadata": {"labels": {keys::VARIABLES: null}, "ownerReferences": [owner]}});
            self.secrets().patch(secret, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(())
    }

    /// Submits so many jobs of one file, and returns their numbers. `spec` has neither number, rank nor submission. Secrets that the file's tasks
    /// name live as long as the jobs from then on.
    ///
    /// # Errors
    /// The API refuses it, or does not answer. What was created without a job is removed by the control plane in an hour.
    pub async fn submit(&self, file: &JobFile, spec: &ManagedJobSpec, count: u32) -> Result<Vec<u32>, SubmitError> {
        let held = self.config_maps().create(&PostParams::default(), &dynamic(config_map(file)?)?).await?;
        let name = held.metadata.name.clone().unwrap_or_default();
        self.adopt_secrets(file, &held).await?;
        let (jobs, mut ids) = (self.managed_jobs(), Vec::new());
        let mut ranks: Vec<u32> = (0..count).collect();
        // a number may be in use without a reservation; then another one is reserved
        while !ranks.is_empty() {
            let first = self.reserve(u32::try_from(ranks.len()).unwrap_or(u32::MAX)).await?;
            let made = (first..).zip(std::mem::take(&mut ranks)).map(|(id, rank)| {
                let spec = ManagedJobSpec { id, rank, submission: name.clone(), ..spec.clone() };
                let jobs = jobs.clone();
                async move {
                    match jobs.create(&PostParams::default(), &dynamic(managed_job(&spec))?).await {
                        Ok(_) => Ok(Ok(id)),
                        Err(error) if is_status(&error, 409) => Ok(Err(rank)),
                        Err(error) => Err(SubmitError::from(error)),
                    }
                }
            });
            let made: Vec<Result<u32, u32>> = futures::stream::iter(made).buffered(AT_ONCE).try_collect().await?;
            for one in made {
                match one {
                    Ok(id) => ids.push(id),
                    Err(rank) => ranks.push(rank),
                }
            }
        }
        Ok(ids)
    }
}
