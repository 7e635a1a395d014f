//! `sky jobs`: managed jobs, as they are found and shown.

mod cancel;
mod explain;
mod group;
mod launch;
mod logs;
mod queue;
mod rows;

pub(super) use cancel::{cancel, end};
pub(super) use explain::explain;
pub(super) use launch::launch;
pub(super) use logs::logs;
pub(super) use queue::{progress, queue};
pub(super) use rows::Placed;

use crate::sky::clusters::{Sky, user};
use api::sky::{JobFile, ManagedJob, ManagedState};
use client::ClientError;
use client::tally::{LATEST_MAX, TallyQuery, tally};
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use managed::fleet::submitted::name_of;
use std::collections::{BTreeMap, BTreeSet};

/// A managed job as it was read.
pub(super) struct Job {
    /// The name of its object.
    object: String,
    pub(super) job: ManagedJob,
    submitted: Option<Timestamp>,
}

impl Job {
    pub(super) fn id(&self) -> u32 {
        self.job.spec.id
    }

    /// Whether this user submitted it. A job that was created as an object was submitted by no user.
    fn is_mine(&self) -> bool {
        let of = &self.job.spec.user;
        of.is_empty() || *of == user()
    }

    /// Whether none of its tasks goes on.
    pub(super) fn has_ended(&self) -> bool {
        match self.job.status.tasks.as_slice() {
            [] => self.job.status.state.has_ended(),
            tasks => tasks.iter().all(|task| task.state.has_ended()),
        }
    }

    /// Whether it runs in the pool that a user calls by this name.
    pub(super) fn is_in(&self, pool: &str) -> bool {
        self.job.spec.pool == name_of(pool)
    }

    /// Its state, for a message about it.
    fn state(&self) -> ManagedState {
        self.job.status.state
    }
}

fn read(object: &DynamicObject) -> Option<ManagedJob> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

/// A managed job that a table shows; replicas are shown with their service.
fn shown(object: DynamicObject) -> Option<Job> {
    let submitted = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let job = read(&object).filter(|job| job.spec.replica.is_none())?;
    Some(Job { object: object.metadata.name?, job, submitted })
}

/// All managed jobs, the newest first.
pub(super) async fn all(sky: &Sky) -> Result<Vec<Job>, ClientError> {
    let list = sky.managed_jobs().list(&ListParams::default()).await?;
    let mut jobs: Vec<Job> = list.into_iter().filter_map(shown).collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id()));
    Ok(jobs)
}

/// The jobs of these objects, in their order. Those that are gone are left out.
async fn some(sky: &Sky, names: &[String]) -> Result<Vec<Job>, ClientError> {
    let api = &sky.managed_jobs();
    let read = |name: &String| {
        let name = name.clone();
        async move { api.get_opt(&name).await }
    };
    let read: Vec<Option<DynamicObject>> = stream::iter(names).map(read).buffered(READS_MAX).try_collect().await?;
    Ok(read.into_iter().flatten().filter_map(shown).collect())
}

/// The jobs of these numbers, the newest first. Those that do not exist are left out.
async fn numbered(sky: &Sky, ids: &BTreeSet<u32>) -> Result<Vec<Job>, ClientError> {
    // as the control plane's clients call them
    let names: Vec<String> = ids.iter().rev().map(|id| format!("job-{id}")).collect();
    let mut jobs = some(sky, &names).await?;
    jobs.retain(|job| ids.contains(&job.id()));
    if jobs.len() < ids.len() {
        // one that was created as an object may have another name
        jobs = all(sky).await?;
        jobs.retain(|job| ids.contains(&job.id()));
    }
    Ok(jobs)
}

/// The latest job of this user.
async fn latest(sky: &Sky) -> Result<Option<Job>, ClientError> {
    let query = TallyQuery { user: Some(user()), limit: 1, ..TallyQuery::default() };
    let jobs = match tally(&sky.client, &sky.namespace, &query).await? {
        Some(tally) => some(sky, &tally.latest).await?,
        None => all(sky).await?,
    };
    Ok(jobs.into_iter().find(Job::is_mine))
}

/// The jobs that go on and do not wait, the newest first.
pub(super) async fn running(sky: &Sky) -> Result<Vec<Job>, ClientError> {
    let runs = |state: &ManagedState| *state != ManagedState::Pending && !state.has_ended();
    let states = ManagedState::ALL.into_iter().filter(runs).map(|state| state.as_str().to_owned()).collect();
    let query = TallyQuery { states, limit: LATEST_MAX, ..TallyQuery::default() };
    match tally(&sky.client, &sky.namespace, &query).await? {
        Some(tally) if tally.jobs <= LATEST_MAX => some(sky, &tally.latest).await,
        _ => all(sky).await,
    }
}

/// All managed jobs, for shells that complete their numbers.
pub(in crate::sky) async fn managed_jobs(sky: &Sky) -> Result<Vec<ManagedJob>, ClientError> {
    Ok(all(sky).await?.into_iter().map(|job| job.job).collect())
}

/// Objects that are read at once.
const READS_MAX: usize = 16;

/// What the submissions of these jobs say, by the names of their ConfigMaps. A submission that is gone is left out.
async fn files(sky: &Sky, jobs: impl IntoIterator<Item = &Job>) -> Result<BTreeMap<String, JobFile>, ClientError> {
    let names: BTreeSet<String> = jobs.into_iter().map(|job| job.job.spec.submission.clone()).collect();
    let api = &sky.config_maps();
    let read = |name: String| async move {
        let found = api.get_opt(&name).await?;
        let file = found.map(|found| {
            let text = found.data["data"]["job"].as_str().unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        });
        Ok::<_, ClientError>((name, file))
    };
    let read: Vec<(String, Option<JobFile>)> =
        stream::iter(names).map(read).buffer_unordered(READS_MAX).try_collect().await?;
    Ok(read.into_iter().filter_map(|(name, file)| Some((name, file?))).collect())
}
