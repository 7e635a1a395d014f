//! A job in a list of jobs: its state in a word, its nodes and GPUs.
//!
//! A list of a hundred thousand jobs keeps a few numbers of each instead of objects: [`RowState`] is what of a job's own object determines its
//! state. The rest comes from its JobSet and its pods, which change on their own.

use crate::amounts::{self, GPU};
use crate::mpijob::State;
use crate::trials;
use api::job_kind::JobKind;
use api::object;
use diagnose::{Signs, Stance};
use jiff::Timestamp;
use serde_json::Value;

/// What of a job's object determines its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowState {
    Train(Stance),
    Mpi(State),
    /// The state itself: nothing else has a part in it.
    Word(&'static str),
}

impl RowState {
    pub fn of(kind: JobKind, job: &Value) -> Self {
        match kind {
            JobKind::Train => Self::Train(Stance::of(job)),
            JobKind::Mpi => Self::Mpi(State::of(job)),
            JobKind::Search => Self::Word(trials::state(job)),
        }
    }

    /// Of a JobSet that no other job has made.
    pub fn of_jobset(jobset: &Value) -> Self {
        Self::Train(Stance::of_jobset(jobset))
    }

    /// How often the job has begun anew by its own rule.
    pub fn retries(&self) -> i64 {
        match self {
            Self::Train(stance) => stance.retries(),
            Self::Mpi(_) | Self::Word(_) => 0,
        }
    }

    /// The state, as tables show it: `Running`, `Restarting (3)`.
    ///
    /// # Parameters
    /// - `restarts`: of the job's JobSet as a whole.
    /// - `signs`: of its pods.
    pub fn word(&self, restarts: i64, signs: &Signs, now: Timestamp) -> String {
        match self {
            Self::Train(stance) => stance.standing(restarts, signs, now).to_string(),
            // a launcher that fails again and again does not run, whatever the condition says
            Self::Mpi(State::Created | State::Running) if signs.is_troubled() => {
                Stance::default().standing(0, signs, now).to_string()
            }
            Self::Mpi(State::Created) => "Pending".to_owned(),
            Self::Mpi(state) => state.to_string(),
            Self::Word(word) => (*word).to_owned(),
        }
    }
}

/// How often a JobSet has been restarted as a whole.
pub fn restarts_of_jobset(jobset: &Value) -> i64 {
    jobset["status"]["restarts"].as_i64().unwrap_or(0)
}

/// How many pods a JobSet makes, initializers left out; `None` where there is no JobSet.
pub fn pods_of_jobset(jobset: &Value) -> Option<i64> {
    let jobs = jobset["spec"]["replicatedJobs"].as_array()?;
    let steps = jobs.iter().filter(|job| !object::text(job, "name").ends_with("-initializer"));
    Some(steps.map(pods).fold(0, i64::saturating_add))
}

/// How many GPUs all pods of a JobSet ask for together.
pub fn gpus_of_jobset(jobset: &Value) -> i64 {
    let jobs = jobset["spec"]["replicatedJobs"].as_array().into_iter().flatten();
    jobs.map(|job| pods(job).saturating_mul(gpus_of_pod(&job["template"]["spec"]["template"])))
        .fold(0, i64::saturating_add)
}

/// How many GPUs a pod asks for.
pub fn gpus_of_pod(pod: &Value) -> i64 {
    amounts::held(&amounts::of_pod(pod), GPU).value()
}

fn pods(job: &Value) -> i64 {
    let number = |value: &Value| value.as_i64().unwrap_or(1);
    number(&job["replicas"]).saturating_mul(number(&job["template"]["spec"]["parallelism"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_are_the_pods_that_there_are() {
        let job = |name: &str, replicas: i64, pods: i64| json!({"name": name, "replicas": replicas, "template": {"spec": {"parallelism": pods}}});
        let jobset = json!({"spec": {"replicatedJobs": [job("dataset-initializer", 1, 1), job("launcher", 1, 1), job("node", 1, 3)]}});
        assert_eq!(pods_of_jobset(&jobset), Some(4));
        assert_eq!(pods_of_jobset(&Value::Null), None);
    }

    #[test]
    fn gpus_are_those_of_all_pods() {
        let pod = json!({"spec": {"containers": [{"resources": {"limits": {GPU: 2}}}]}});
        let job = json!({"name": "node", "replicas": 3, "template": {"spec": {"parallelism": 2, "template": pod}}});
        assert_eq!(gpus_of_jobset(&json!({"spec": {"replicatedJobs": [job]}})), 12);
        assert_eq!(gpus_of_jobset(&Value::Null), 0);
    }

    #[test]
    fn a_launcher_that_fails_again_and_again_does_not_run() {
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let mut signs = Signs::default();
        assert_eq!(RowState::Mpi(State::Running).word(0, &signs, now), "Running");
        assert_eq!(RowState::Mpi(State::Created).word(0, &signs, now), "Pending");
        signs.see(&json!({"status": {"phase": "Failed"}}), now);
        assert_eq!(RowState::Mpi(State::Running).word(0, &signs, now), "Restarting (1)");
        assert_eq!(RowState::Mpi(State::Succeeded).word(0, &signs, now), "Succeeded");
    }
}
