//! Managed jobs as rows of tables and JSON: one for each task.

use super::Job;
use ::sky::console::JobRow;
use ::sky::infra::Infra;
use api::sky::{JobFile, JobTask, ManagedState, ManagedTask};
use jiff::Timestamp;
use placement::Cloud;
use std::collections::BTreeMap;

/// The rows of a job. `clusters` has what clusters are, by what users call them; without a `file` its tasks have no names.
pub(super) fn rows(
    job: &Job,
    file: Option<&JobFile>,
    clusters: &BTreeMap<String, String>,
    now: Timestamp,
) -> Vec<JobRow> {
    let unseen = [ManagedTask::default()];
    let tasks = match job.job.status.tasks.as_slice() {
        [] => &unseen,
        tasks => tasks,
    };
    let asked = JobTask::default();
    let schedule_state = schedule_state(job).to_owned();
    let row = |(at, task): (usize, &ManagedTask)| {
        let asked = file.and_then(|file| file.tasks.get(at)).unwrap_or(&asked);
        let of_job = of_job(job, asked, &schedule_state);
        let cluster = clusters.get(&task.cluster).filter(|_| !task.state.has_ended());
        let dash = || "-".to_owned();
        let message = Some(task.message.clone()).filter(|text| !text.is_empty());
        let waits = task.state == ManagedState::Pending && !job.job.spec.pool.is_empty();
        let message = message.or_else(|| waits.then(|| managed::job::waits_for_worker(&job.job.spec.pool)));
        let (details, failure_reason) = if task.state.is_failed() { (None, message) } else { (message, None) };
        let place = Placed::of(task.attempts.last().map_or("", |attempt| &attempt.place));
        JobRow {
            task_id: at,
            status: task.state.as_str().to_owned(),
            cluster_resources: cluster.cloned().unwrap_or_else(dash),
            cluster_resources_full: cluster.cloned().unwrap_or_else(dash),
            infra: place.shown(),
            cloud: place.cloud,
            region: place.region,
            zone: place.zone,
            is_primary_in_job_group: file.filter(|_| job.job.spec.group).map(|_| asked.auxiliary.is_none()),
            submitted_at: if at == 0 || job.job.spec.group {
                job.submitted.map(Timestamp::as_second)
            } else {
                began(task)
            },
            start_at: seconds(&task.started_at),
            end_at: seconds(&task.ended_at),
            last_recovered_at: seconds(&task.recovered_at).or(seconds(&task.started_at)).unwrap_or(-1),
            job_duration: ran(task, now),
            recovery_count: task.recoveries,
            details,
            failure_reason,
            job_id_on_pool_cluster: pool_job(job, task),
            current_cluster_name: Some(task.cluster.clone()).filter(|name| !name.is_empty()),
            ..of_job
        }
    };
    tasks.iter().enumerate().map(row).collect()
}

/// What the row of a task has from its job.
fn of_job(job: &Job, asked: &JobTask, schedule_state: &str) -> JobRow {
    let spec = &job.job.spec;
    let name = |name: &str| if name.is_empty() { "-" } else { name }.to_owned();
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    JobRow {
        job_id: spec.id,
        job_name: name(&spec.name),
        task_name: name(if asked.name.is_empty() { &spec.name } else { &asked.name }),
        user_name: given(&spec.user),
        workspace: "default".to_owned(),
        schedule_state: schedule_state.to_owned(),
        resources: name(&asked.requested),
        priority: Some(spec.priority),
        pool: given(&spec.pool),
        entrypoint: given(&spec.command),
        ..JobRow::default()
    }
}

/// The number of its job on the worker that it has.
fn pool_job(job: &Job, task: &ManagedTask) -> Option<u32> {
    let number = task.attempts.last().map(|attempt| attempt.job);
    number.filter(|number| *number > 0 && !job.job.spec.pool.is_empty())
}

/// Where a job is in the queue for launches, in SkyPilot's words.
fn schedule_state(job: &Job) -> &'static str {
    let tasks = &job.job.status.tasks;
    let Some(at) = tasks.iter().position(|task| !task.state.has_ended()) else {
        return if tasks.is_empty() { "WAITING" } else { "DONE" };
    };
    let attempts = tasks.get(at).map_or(0, |task| task.attempt);
    match tasks.get(at).map(|task| task.state).unwrap_or_default() {
        ManagedState::Pending if attempts > 0 => "ALIVE_BACKOFF",
        ManagedState::Pending if at > 0 => "ALIVE_WAITING",
        ManagedState::Pending => "WAITING",
        ManagedState::Submitted | ManagedState::Starting | ManagedState::Recovering => "LAUNCHING",
        _ => "ALIVE",
    }
}

/// When the first attempt of a task began, as far as that is known.
fn began(task: &ManagedTask) -> Option<i64> {
    let first = task.attempts.first();
    match first.filter(|attempt| attempt.number == 1).or(first.filter(|_| task.started_at.is_empty())) {
        Some(attempt) => seconds(&attempt.began_at),
        None => seconds(&task.started_at),
    }
}

/// Seconds that its code ran, in all attempts.
fn ran(task: &ManagedTask, now: Timestamp) -> i64 {
    let running = task.open_attempt().filter(|_| task.ended_at.is_empty());
    let since = running.and_then(|attempt| seconds(&attempt.ran_at));
    task.ran_secs.saturating_add(since.map_or(0, |since| now.as_second().saturating_sub(since).max(0)))
}

fn seconds(time: &str) -> Option<i64> {
    time.parse().ok().map(Timestamp::as_second)
}

/// A place: `provider/region/zone` taken apart, `-` for parts that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sky::verbs) struct Placed {
    cloud: String,
    region: String,
    zone: String,
}

impl Placed {
    pub(in crate::sky::verbs) fn of(place: &str) -> Self {
        let (provider, rest) = place.split_once('/').unwrap_or((place, ""));
        let cloud = Cloud::from_name(provider);
        let (region, zone) = match cloud {
            // names of contexts may have slashes
            Some(Cloud::Kubernetes) => (rest.trim_end_matches('/'), ""),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        let part = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        Self { cloud: part(cloud.map_or(provider, |cloud| cloud.display())), region: part(region), zone: part(zone) }
    }

    /// `AWS (us-east-1)`.
    pub(in crate::sky::verbs) fn shown(&self) -> String {
        match self.region.as_str() {
            "-" => self.cloud.clone(),
            region => format!("{} ({region})", self.cloud),
        }
    }
}

/// Whether a row is at a place as `--infra` names it.
pub(super) fn is_at(row: &JobRow, infra: &Infra) -> bool {
    let is = |wanted: Option<&str>, has: &str| wanted.is_none_or(|wanted| wanted == has);
    let region = infra.region.as_deref();
    is(infra.cloud.map(Cloud::display), &row.cloud)
        && is(region.map(|region| region.strip_prefix("ssh-").unwrap_or(region)), &row.region)
        && is(infra.zone.as_deref(), &row.zone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(tasks: Value) -> Job {
        let job = json!({
            "spec": {"id": 7, "name": "train", "submission": "s", "user": "ada", "command": "sky jobs launch a.yaml"},
            "status": {"tasks": tasks},
        });
        let submitted = "2026-01-01T00:00:00Z".parse().ok();
        Job { object: "job-7".into(), job: serde_json::from_value(job).unwrap(), submitted }
    }

    fn shown(tasks: Value) -> Vec<JobRow> {
        let file = json!({"tasks": [{"name": "prepare", "requested": "1x[CPU:1+]"}, {"requested": "2x[H100:8]"}]});
        let clusters = BTreeMap::from([("train-7".to_owned(), "2x (gpus=H100:8, -)".to_owned())]);
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        rows(&job(tasks), Some(&serde_json::from_value(file).unwrap()), &clusters, now)
    }

    #[test]
    fn a_job_that_was_not_looked_at_is_pending() {
        let rows = shown(json!([]));
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.status.as_str(), row.schedule_state.as_str()), ("PENDING", "WAITING"));
        assert_eq!((row.task_name.as_str(), row.resources.as_str()), ("prepare", "1x[CPU:1+]"));
        assert_eq!((row.submitted_at, row.start_at, row.infra.as_str()), (Some(1_767_225_600), None, "-"));
    }

    #[test]
    fn tasks_have_their_own_times_and_places() {
        let rows = shown(json!([
            {"state": "FAILED", "message": "exit code 3", "ranSecs": 60, "endedAt": "2026-01-01T00:10:00Z", "cluster": "train-7",
             "attempts": [{"number": 1, "place": "kubernetes/arn:a/b", "ranAt": "2026-01-01T00:09:00Z"}]},
            {"state": "RUNNING", "attempt": 2, "ranSecs": 100, "cluster": "train-7", "recoveries": 1, "message": "slow",
             "startedAt": "2026-01-01T00:20:00Z", "recoveredAt": "2026-01-01T00:50:00Z",
             "attempts": [
                {"number": 1, "beganAt": "2026-01-01T00:15:00Z", "endedAt": "2026-01-01T00:40:00Z"},
                {"number": 2, "place": "ssh/lab/h1", "ranAt": "2026-01-01T00:50:00Z"}]},
        ]));
        let [first, second] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((first.failure_reason.as_deref(), first.details.as_deref()), (Some("exit code 3"), None));
        assert_eq!((first.infra.as_str(), first.zone.as_str()), ("Kubernetes (arn:a/b)", "-"));
        assert_eq!((first.job_duration, first.cluster_resources.as_str()), (60, "-"));
        assert_eq!((second.job_duration, second.cluster_resources.as_str()), (700, "2x (gpus=H100:8, -)"));
        assert_eq!((second.task_name.as_str(), second.details.as_deref()), ("train", Some("slow")));
        assert_eq!((second.infra.as_str(), second.zone.as_str()), ("SSH (lab)", "h1"));
        assert_eq!(second.submitted_at, Some(1_767_226_500));
        assert_eq!((second.last_recovered_at, first.last_recovered_at), (1_767_228_600, -1));
        assert!(rows.iter().all(|row| row.schedule_state == "ALIVE" && row.user_name.as_deref() == Some("ada")));
        for (infra, at) in [("ssh", 1), ("ssh/lab", 1), ("k8s/arn:a/b", 0), ("*", 0)] {
            assert!(is_at(&rows[at], &Infra::read(infra).unwrap()), "{infra}");
        }
        for (infra, at) in [("ssh/lab2", 1), ("ssh", 0), ("local", 1)] {
            assert!(!is_at(&rows[at], &Infra::read(infra).unwrap()), "{infra}");
        }
    }

    #[test]
    fn the_queue_for_launches_is_in_skypilots_words() {
        let state = |tasks: Value| schedule_state(&job(tasks));
        let task = |state: &str, attempt: u32| json!({"state": state, "attempt": attempt});
        assert_eq!(state(json!([])), "WAITING");
        assert_eq!(state(json!([task("PENDING", 0)])), "WAITING");
        assert_eq!(state(json!([task("PENDING", 2)])), "ALIVE_BACKOFF");
        assert_eq!(state(json!([task("SUCCEEDED", 1), task("PENDING", 0)])), "ALIVE_WAITING");
        assert_eq!(state(json!([task("STARTING", 1)])), "LAUNCHING");
        assert_eq!(state(json!([task("RUNNING", 1)])), "ALIVE");
        assert_eq!(state(json!([task("FAILED", 1), task("CANCELLED", 0)])), "DONE");
    }
}
