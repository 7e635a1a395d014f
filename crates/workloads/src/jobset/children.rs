//! The Jobs of a JobSet, as the controller sees them, and their counts. Spec A.5.3, A.7.

use super::json::number;
use api::jobset::{JobSet, ReplicatedJobStatus, keys};
use api::object;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// How a Job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    Failed {
        reason: String,
        message: String,
        /// When its Failed condition became True.
        at: Timestamp,
    },
}

/// A Job that the JobSet controls.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub job: Arc<Value>,
    pub ended: Option<Ended>,
}

impl Child {
    fn new(job: Arc<Value>) -> Self {
        let ended = ended(&job);
        Self { job, ended }
    }

    pub(crate) fn name(&self) -> &str {
        object::meta(&self.job, "name")
    }

    /// The replicated job it belongs to; `None` where the label is missing.
    pub(crate) fn replicated_job(&self) -> Option<&str> {
        object::label(&self.job, keys::REPLICATED_JOB_NAME).filter(|name| !name.is_empty())
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.job["spec"]["suspend"].as_bool().unwrap_or(false)
    }

    /// Whether as many pods are ready or have succeeded as run at a time.
    fn is_ready(&self) -> bool {
        let parallelism = self.job["spec"]["parallelism"].as_i64().unwrap_or(1);
        let pods = self.job["spec"]["completions"].as_i64().map_or(parallelism, |c| c.min(parallelism));
        number(&self.job, &["status", "succeeded"]) + number(&self.job, &["status", "ready"]) >= pods
    }
}

/// A Job has ended when it is Complete or Failed; its pods may still be terminating before that.
fn ended(job: &Value) -> Option<Ended> {
    let conditions = job.get("status")?.get("conditions")?.as_array()?;
    conditions.iter().filter(|c| object::text(c, "status") == "True").find_map(|condition| {
        match object::text(condition, "type") {
            "Complete" => Some(Ended::Complete),
            "Failed" => Some(Ended::Failed {
                reason: object::text(condition, "reason").to_owned(),
                message: object::text(condition, "message").to_owned(),
                at: object::text(condition, "lastTransitionTime").parse().unwrap_or_default(),
            }),
            _ => None,
        }
    })
}

/// The Jobs of a JobSet by what is to be done with them.
#[derive(Debug, Default)]
pub(crate) struct Children {
    /// Not ended.
    pub active: Vec<Child>,
    pub successful: Vec<Child>,
    pub failed: Vec<Child>,
    /// Of an attempt before the last restart: to be deleted.
    pub previous: Vec<Child>,
}

impl Children {
    /// Sorts Jobs by the restart attempt they carry and by how they ended.
    ///
    /// # Errors
    /// A Job without a restart attempt: nobody can say whether it is of this attempt.
    pub(crate) fn of(jobs: &[Arc<Value>], restarts: i32) -> Result<Self, String> {
        let mut children = Self::default();
        for job in jobs {
            let attempt = object::label(job, keys::RESTART_ATTEMPT).and_then(|text| text.parse::<i64>().ok());
            let attempt = attempt.ok_or_else(|| {
                format!("label {} of Job {} is no number", keys::RESTART_ATTEMPT, object::meta(job, "name"))
            })?;
            let child = Child::new(job.clone());
            let list = match &child.ended {
                _ if attempt < i64::from(restarts) => &mut children.previous,
                None => &mut children.active,
                Some(Ended::Complete) => &mut children.successful,
                Some(Ended::Failed { .. }) => &mut children.failed,
            };
            list.push(child);
        }
        Ok(children)
    }

    /// Whether there is a Job of this name, of whatever attempt.
    pub(crate) fn has(&self, name: &str) -> bool {
        [&self.active, &self.successful, &self.failed, &self.previous].into_iter().flatten().any(|c| c.name() == name)
    }

    /// One entry a replicated job; Jobs of earlier attempts, and of replicated jobs that do not exist, do not count.
    pub(crate) fn counts(&self, jobset: &JobSet) -> Vec<ReplicatedJobStatus> {
        let count = |list: &[Child], name: &str, holds: &dyn Fn(&Child) -> bool| {
            let counted = list.iter().filter(|child| child.replicated_job() == Some(name) && holds(child)).count();
            i32::try_from(counted).unwrap_or(i32::MAX)
        };
        let any = |_: &Child| true;
        let held = &jobset.status.replicated_jobs_status;
        jobset
            .spec
            .replicated_jobs
            .iter()
            .map(|replicated| {
                let name = replicated.name.as_str();
                let before = held.iter().find(|status| status.name == name).cloned().unwrap_or_default();
                ReplicatedJobStatus {
                    name: name.to_owned(),
                    ready: count(&self.active, name, &Child::is_ready),
                    succeeded: count(&self.successful, name, &any),
                    failed: count(&self.failed, name, &any),
                    active: count(&self.active, name, &|child| number(&child.job, &["status", "active"]) > 0),
                    suspended: count(&self.active, name, &Child::is_suspended),
                    ..before
                }
            })
            .collect()
    }
}
