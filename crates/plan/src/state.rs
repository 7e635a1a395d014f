//! The part of a TrainJob's status that its controller writes: conditions, and how the jobs are.

use crate::conditions::{self, Condition};
use crate::job::{Job, list};
use crate::names::{ConditionType, Reason};
use api::object;
use jiff::Timestamp;
use reconcile::StatusWrite;
use serde_json::{Map, Value, json};

/// The part of a TrainJob's status that this controller writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Status {
    pub conditions: Vec<Value>,
    pub jobs: Vec<Value>,
}

impl Status {
    pub(crate) fn of(job: &Job) -> Self {
        let held = |member: &str| list(&job.status, member).to_vec();
        Self { conditions: held("conditions"), jobs: held("jobsStatus") }
    }

    pub(crate) fn is_finished(&self) -> bool {
        let is_true = |kind| conditions::is_true(&self.conditions, kind);
        is_true(ConditionType::Complete) || is_true(ConditionType::Failed)
    }

    /// Since when it is finished.
    pub(crate) fn finished_at(&self) -> Option<Timestamp> {
        let ended = [ConditionType::Complete, ConditionType::Failed];
        let ended = ended.into_iter().filter(|kind| conditions::is_true(&self.conditions, *kind));
        let times = ended.filter_map(|kind| {
            object::text(conditions::find(&self.conditions, kind.as_str())?, "lastTransitionTime").parse().ok()
        });
        times.min()
    }

    pub(crate) fn exceeded_deadline(&self) -> bool {
        conditions::is_true(&self.conditions, ConditionType::Failed)
            && conditions::find(&self.conditions, ConditionType::Failed.as_str())
                .is_some_and(|c| c["reason"] == Reason::DeadlineExceeded.as_str())
    }

    /// Suspended is True while asked for; once it was, it turns False, never away.
    pub(crate) fn suspension(&mut self, job: &Job, now: Timestamp) {
        let condition = if job.suspend {
            Condition::own(ConditionType::Suspended, true, Reason::Suspended)
        } else if conditions::is_true(&self.conditions, ConditionType::Suspended) {
            Condition::own(ConditionType::Suspended, false, Reason::Resumed)
        } else {
            return;
        };
        conditions::set(&mut self.conditions, &condition, now);
    }

    /// Takes over how the JobSet ended and how its jobs are. A JobSet that is not there (yet, or any more) says nothing. A
    /// failure that is not final, since another attempt follows, is not taken over.
    pub(crate) fn follow(&mut self, jobset: Option<&Value>, is_final: bool, now: Timestamp) {
        let Some(status) = jobset.and_then(|jobset| jobset.get("status")) else { return };
        let theirs = list(status, "conditions");
        // A passed deadline has the last word: deleting the JobSet may look like a failure of it.
        let decided = self.exceeded_deadline() || !is_final;
        for (kind, name) in [(ConditionType::Complete, "Completed"), (ConditionType::Failed, "Failed")] {
            let Some(found) = conditions::find(theirs, name).filter(|c| c["status"] == "True" && !decided) else {
                continue;
            };
            let condition = Condition {
                kind,
                status: true,
                reason: object::text(found, "reason").to_owned(),
                message: object::text(found, "message").to_owned(),
                since: Some(object::text(found, "lastTransitionTime").to_owned()).filter(|since| !since.is_empty()),
            };
            conditions::set(&mut self.conditions, &condition, now);
        }
        let counters = ["ready", "succeeded", "failed", "active", "suspended"];
        let job = |theirs: &Value| {
            let mut ours = Map::from_iter([("name".to_owned(), json!(object::text(theirs, "name")))]);
            ours.extend(counters.map(|c| (c.to_owned(), theirs.get(c).cloned().unwrap_or(json!(0)))));
            Value::Object(ours)
        };
        self.jobs = list(status, "replicatedJobsStatus").iter().map(job).collect();
    }

    /// The patch that turns `before` into this, where they differ; void if the object has changed meanwhile.
    pub(crate) fn difference(&self, before: &Self, object: &Value) -> Option<StatusWrite> {
        let mut changed = Map::new();
        let pairs = [("conditions", &self.conditions, &before.conditions), ("jobsStatus", &self.jobs, &before.jobs)];
        for (member, now, before) in pairs {
            if now != before {
                changed.insert(member.to_owned(), if now.is_empty() { Value::Null } else { json!(now) });
            }
        }
        if changed.is_empty() {
            return None;
        }
        let mut body = json!({"status": changed});
        let revision = object::resource_version(object);
        if !revision.is_empty() {
            body["metadata"] = json!({"resourceVersion": revision});
        }
        Some(StatusWrite::Merge(body))
    }
}
