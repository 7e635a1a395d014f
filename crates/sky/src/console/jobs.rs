//! `sky jobs queue`: the table of managed jobs, and what the options of `sky jobs` rule out.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::table::{or_dash, padded};
use super::times::{ago, lasting, lasting_secs};
use crate::commands::Call;

/// A task of a managed job, with the field names of SkyPilot's JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRow {
    pub job_id: u32,
    pub task_id: usize,
    pub job_name: String,
    pub task_name: String,
    pub user_name: Option<String>,
    pub user_hash: Option<String>,
    pub workspace: String,
    pub status: String,
    pub schedule_state: String,
    /// What it asks for: `1x[CPU:1+]`.
    pub resources: String,
    /// What its cluster is.
    pub cluster_resources: String,
    /// The same, nothing left out.
    pub cluster_resources_full: String,
    pub cloud: String,
    pub region: String,
    pub zone: String,
    /// The place in words: `AWS (us-east-1)`.
    pub infra: String,
    /// When it was submitted, when its code first ran, when it ended: seconds since 1970.
    pub submitted_at: Option<i64>,
    pub start_at: Option<i64>,
    pub end_at: Option<i64>,
    /// When its code began to run after the latest recovery; -1: it has not run.
    pub last_recovered_at: i64,
    /// Seconds that its code ran.
    pub job_duration: i64,
    pub recovery_count: u32,
    /// What it waits for.
    pub details: Option<String>,
    pub failure_reason: Option<String>,
    pub pool: Option<String>,
    pub current_cluster_name: Option<String>,
    pub job_id_on_pool_cluster: Option<u32>,
    /// Whether it is a primary task of its job group; none: the job is no group.
    pub is_primary_in_job_group: Option<bool>,
    pub priority: Option<i32>,
    /// The command that submitted the job.
    pub entrypoint: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

/// What a table of managed jobs shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobColumns {
    /// Whether it has all columns.
    pub all: bool,
    /// Whether it names users.
    pub users: bool,
    /// How many jobs it shows at most.
    pub max_jobs: Option<usize>,
}

/// When a column is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Always,
    /// With all columns, or if there are jobs of several workspaces.
    Workspaces,
    Users,
    /// With users and all columns.
    UsersOfAll,
    All,
}

/// How many columns there are.
const COUNT: usize = 22;
const COLUMNS: [(&str, Shown); COUNT] = [
    ("ID", Shown::Always),
    ("TASK", Shown::Always),
    ("WORKSPACE", Shown::Workspaces),
    ("NAME", Shown::Always),
    ("USER", Shown::Users),
    ("USER_ID", Shown::UsersOfAll),
    ("REQUESTED", Shown::Always),
    ("SUBMITTED", Shown::Always),
    ("TOT. DURATION", Shown::Always),
    ("JOB DURATION", Shown::Always),
    ("#RECOVERIES", Shown::Always),
    ("STATUS", Shown::Always),
    ("PROGRESS", Shown::Always),
    ("POOL", Shown::Always),
    ("WORKER_CLUSTER", Shown::All),
    ("WORKER_JOB_ID", Shown::All),
    ("STARTED", Shown::All),
    ("INFRA", Shown::All),
    ("RESOURCES", Shown::All),
    ("SCHED. STATE", Shown::All),
    ("DETAILS", Shown::All),
    ("GIT_COMMIT", Shown::All),
];

type Line = [String; COUNT];

/// The table of tasks, those of a job below each other, and before it how many are in progress: `going_on` has their number by state.
pub fn jobs_table(rows: &[JobRow], going_on: &BTreeMap<String, usize>, columns: JobColumns, now: i64) -> String {
    let mut jobs = jobs(rows);
    let workspaces: BTreeSet<&str> =
        jobs.iter().filter_map(|tasks| tasks.first()).map(|task| task.workspace.as_str()).collect();
    jobs.truncate(columns.max_jobs.unwrap_or(usize::MAX));
    let told = in_progress(going_on);
    if jobs.is_empty() {
        return told;
    }
    let is_shown = |when: Shown| match when {
        Shown::Always => true,
        Shown::Workspaces => columns.all || workspaces.len() > 1,
        Shown::Users => columns.users,
        Shown::UsersOfAll => columns.users && columns.all,
        Shown::All => columns.all,
    };
    let head: Vec<&str> = COLUMNS.iter().filter(|(_, when)| is_shown(*when)).map(|(name, _)| *name).collect();
    let cells = |line: Line| -> Vec<String> {
        let cells = line.into_iter().zip(COLUMNS).filter(|(_, (_, when))| is_shown(*when));
        cells.map(|(cell, _)| cell).collect()
    };
    let lines = jobs.iter().flat_map(|tasks| lines(tasks, now)).map(cells);
    format!("{told}\n{}", padded(&head, &lines.collect::<Vec<_>>()))
}

/// The tasks of each job, in the order in which the jobs come first.
fn jobs(rows: &[JobRow]) -> Vec<Vec<&JobRow>> {
    let mut jobs: Vec<Vec<&JobRow>> = Vec::new();
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for row in rows {
        let place = *places.entry(row.job_id).or_insert(jobs.len());
        match jobs.get_mut(place) {
            Some(tasks) => tasks.push(row),
            None => jobs.push(vec![row]),
        }
    }
    jobs
}

/// How many of these tasks go on, by state.
pub fn going_on(rows: &[JobRow]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows.iter().filter(|row| !row.has_ended()) {
        let count = counts.entry(row.status.clone()).or_default();
        *count = count.saturating_add(1);
    }
    counts
}

fn in_progress(counts: &BTreeMap<String, usize>) -> String {
    if counts.is_empty() {
        return "No in-progress managed jobs.".to_owned();
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    format!("In progress tasks: {}", counts.join(", "))
}

/// The lines of a job: one where it has one task, otherwise one for the job, one for each task and an empty one.
fn lines(tasks: &[&JobRow], now: i64) -> Vec<Line> {
    if let [one] = tasks {
        let own = [one.job_id.to_string(), "-".to_owned(), one.workspace.clone(), one.task_name.clone()];
        return vec![one.line(own, one.schedule_state.clone(), now)];
    }
    let has_others = has_both_kinds(tasks);
    let mut lines: Vec<Line> = summary(tasks, now).into_iter().collect();
    lines.extend(tasks.iter().map(|task| {
        let mark = if has_others && task.is_primary_in_job_group == Some(true) { " [P]" } else { "" };
        let name = format!("{}{mark}", task.task_name);
        task.line([" ↳".to_owned(), task.task_id.to_string(), "-".to_owned(), name], "-".to_owned(), now)
    }));
    lines.push(Line::default());
    lines
}

/// Whether a job group has primary tasks and others.
fn has_both_kinds(tasks: &[&JobRow]) -> bool {
    let has = |kind: bool| tasks.iter().any(|task| task.is_primary_in_job_group == Some(kind));
    has(true) && has(false)
}

/// The task that a job's state is about: the first one that has not succeeded, or the last; of a group's primary ones, if it has others too.
fn current<'a>(tasks: &[&'a JobRow]) -> Option<&'a JobRow> {
    let only_primary = has_both_kinds(tasks);
    let mut counted = tasks.iter().filter(|task| !only_primary || task.is_primary_in_job_group == Some(true));
    let last = counted.clone().next_back();
    counted.find(|task| task.status != "SUCCEEDED").or(last).copied()
}

/// The line of a job that has several tasks.
fn summary(tasks: &[&JobRow], now: i64) -> Option<Line> {
    let (first, current) = (tasks.first()?, current(tasks)?);
    let submitted = tasks.iter().filter_map(|task| task.submitted_at).min();
    let ends: Option<Vec<i64>> = tasks.iter().map(|task| task.end_at).collect();
    let end = ends.and_then(|ends| ends.into_iter().max()).unwrap_or(now);
    let ran = tasks.iter().fold(0, |sum: i64, task| sum.saturating_add(task.job_duration));
    let recoveries = tasks.iter().fold(0, |sum: u32, task| sum.saturating_add(task.recovery_count));
    let status = match current.has_ended() {
        true => current.status.clone(),
        false => format!("{} (task: {})", current.status, current.task_id),
    };
    let none = || "-".to_owned();
    Some([
        first.job_id.to_string(),
        String::new(),
        String::new(),
        first.job_name.clone(),
        or_dash(&first.user_name),
        or_dash(&first.user_hash),
        none(),
        ago(submitted, now),
        lasting(submitted, end),
        lasting_secs(ran),
        recoveries.to_string(),
        status,
        none(),
        or_dash(&first.pool),
        none(),
        none(),
        none(),
        none(),
        none(),
        first.schedule_state.clone(),
        current.details(),
        first.git_commit(),
    ])
}

impl JobRow {
    /// Whether nothing more comes.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "SUCCEEDED" | "CANCELLED") || self.status.starts_with("FAILED")
    }

    fn details(&self) -> String {
        let failure = || self.failure_reason.as_ref().map(|reason| format!("Failure: {reason}"));
        or_dash(&self.details.clone().or_else(failure)).replace('\n', " ")
    }

    fn git_commit(&self) -> String {
        or_dash(&self.metadata.get("git_commit").cloned())
    }

    /// Its line; `own` has the first four cells.
    fn line(&self, own: [String; 4], schedule_state: String, now: i64) -> Line {
        let [id, task, workspace, name] = own;
        let worker = |cell: Option<String>| cell.unwrap_or_else(|| "None".to_owned());
        [
            id,
            task,
            workspace,
            name,
            or_dash(&self.user_name),
            or_dash(&self.user_hash),
            self.resources.clone(),
            ago(self.submitted_at, now),
            lasting(self.submitted_at, self.end_at.unwrap_or(now)),
            lasting_secs(self.job_duration),
            self.recovery_count.to_string(),
            self.status.clone(),
            "-".to_owned(),
            or_dash(&self.pool),
            worker(self.current_cluster_name.clone()),
            worker(self.job_id_on_pool_cluster.map(|id| id.to_string())),
            ago(self.start_at, now),
            self.infra.clone(),
            self.cluster_resources.clone(),
            schedule_state,
            self.details(),
            self.git_commit(),
        ]
    }
}

/// What is wrong with the jobs that `sky jobs cancel` is to end; none: nothing.
pub fn wrong_choice(call: &Call) -> Option<String> {
    let ids = call.values("job_ids");
    let mut given = Vec::new();
    if !ids.is_empty() {
        given.push(format!("--job-ids {}", ids.join(",")));
    }
    for (name, option) in [("name", "--name"), ("pool", "--pool")] {
        given.extend(call.value(name).map(|value| format!("{option} {value}")));
    }
    let ways = given.len();
    let (all, all_users) = (call.is_set("all"), call.is_set("all_users"));
    given.extend(all.then(|| "--all".to_owned()));
    given.extend(all_users.then(|| "--all-users".to_owned()));
    if ways.saturating_add((all || all_users).into()) != 1 {
        return Some(format!(
            "Can only specify one of JOB_IDS, --name, --pool, or --all/--all-users. Provided '{}'.",
            given.join(" ")
        ));
    }
    (call.value("task").is_some() && ids.len() != 1)
        .then(|| "--task takes exactly one JOB_ID and no --name, --pool, --all or --all-users.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{Parsed, commands, parse};

    fn task(id: usize, status: &str, is_primary: Option<bool>) -> JobRow {
        let (job_name, task_name) = ("job".to_owned(), format!("task-{id}"));
        let status = status.to_owned();
        JobRow {
            job_id: 1,
            task_id: id,
            job_name,
            task_name,
            status,
            is_primary_in_job_group: is_primary,
            ..JobRow::default()
        }
    }

    fn words(table: &str, line: usize) -> Vec<&str> {
        table.lines().nth(line).unwrap_or_default().split_whitespace().collect()
    }

    #[test]
    fn the_state_of_a_group_is_that_of_its_primary_tasks() {
        let rows = [task(0, "FAILED", Some(false)), task(1, "SUCCEEDED", Some(true)), task(2, "RUNNING", Some(true))];
        let table = jobs_table(&rows, &going_on(&rows), JobColumns::default(), 0);
        assert!(words(&table, 2).ends_with(&["RUNNING", "(task:", "2)", "-", "-"]), "{table}");
        assert_eq!(words(&table, 5)[..4], ["↳", "2", "task-2", "[P]"], "{table}");
        assert!(!table.lines().nth(3).is_none_or(|line| line.contains("[P]")), "{table}");
    }

    #[test]
    fn a_reason_is_one_line_of_a_table() {
        let details = Some("no capacity\nanywhere".to_owned());
        let rows = [JobRow { details, ..task(0, "PENDING", None) }];
        let table = jobs_table(&rows, &going_on(&rows), JobColumns { all: true, ..JobColumns::default() }, 0);
        assert_eq!(table.lines().count(), 3);
        assert!(table.contains("no capacity anywhere"), "{table}");
    }

    #[test]
    fn jobs_to_cancel_are_named_in_one_way() {
        let wrong = |words: &str| {
            let words: Vec<String> = format!("jobs cancel {words}").split(' ').map(str::to_owned).collect();
            match parse(&commands(), &words) {
                Ok(Parsed::Call(call)) => wrong_choice(&call).unwrap_or_default(),
                other => panic!("{words:?}: {other:?}"),
            }
        };
        for words in ["5", "5 6", "-n x", "-p x", "-a", "-u", "-a -u", "5 --task 1"] {
            assert_eq!(wrong(words), "", "{words}");
        }
        for (words, given) in [
            ("-y", ""),
            ("-a 5", "--job-ids 5 --all"),
            ("-p x -n y -a -u 4 5", "--job-ids 4,5 --name y --pool x --all --all-users"),
        ] {
            assert!(wrong(words).ends_with(&format!("Provided '{given}'.")), "{words}");
        }
        assert!(wrong("5 6 --task 1").starts_with("--task takes exactly one JOB_ID"));
    }
}
