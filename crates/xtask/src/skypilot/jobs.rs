//! Managed jobs against recordings: how states change, when tasks restart, which state a job has, and the tables of jobs and services.

use std::path::Path;

use anyhow::{Context, Result};
use api::sky::{JobRecovery, ManagedState};
use managed::jobs::Status;
use managed::transitions::{Restart, Transition, job_state, restarts};
use serde_json::{Value as Json, json};
use sky::console::{JobColumns, JobRow, ServedKind, going_on, jobs_table, served_table};

use super::text_of;

/// Each case, and how it differs.
pub(super) type Found = Vec<(String, Option<String>)>;

pub(super) fn read(path: &Path) -> Result<Json> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

pub(super) fn cases(recorded: &Json) -> impl Iterator<Item = &Json> {
    recorded["cases"].as_array().into_iter().flatten()
}

fn compared(got: Json, wanted: &Json) -> Option<String> {
    (got != *wanted).then(|| format!("{got} instead of {wanted}"))
}

fn state(name: &Json) -> Result<ManagedState> {
    ManagedState::parse(&text_of(name)).with_context(|| format!("there is no state {name}"))
}

fn transition(verb: &str) -> Result<Transition> {
    Ok(match verb {
        "start" => Transition::Start,
        "started" => Transition::Started,
        "backoff" => Transition::Backoff,
        "restart" => Transition::Restart,
        "restart-recovering" => Transition::RestartRecovering,
        "recover" => Transition::Recover,
        "recover-forced" => Transition::RecoverForced,
        "recovered" => Transition::Recovered,
        "succeeded" => Transition::Succeeded,
        "failed" => Transition::Failed(ManagedState::Failed),
        "failed-controller" => Transition::Failed(ManagedState::FailedController),
        "failed-override" => Transition::FailedAnyway(ManagedState::FailedController),
        "cancel-pending" => Transition::CancelPending,
        "cancelling" => Transition::Cancelling,
        "cancelled" => Transition::Cancelled,
        other => anyhow::bail!("there is no transition {other}"),
    })
}

/// Replays `jobs-transitions.json`, and compares its facts about states.
pub fn transitions(path: &Path) -> Result<Found> {
    let recorded = read(path)?;
    let mut found = Found::new();
    for case in cases(&recorded) {
        let (from, verb) = (state(&case["from"])?, text_of(&case["verb"]));
        let mut got = json!({"from": case["from"], "verb": case["verb"]});
        match transition(&verb)?.apply(from) {
            Ok(moved) => {
                got["to"] = json!(moved.state.as_str());
                got["recovery_count"] = json!(u32::from(moved.is_recovery));
                got["ended"] = json!(moved.has_end);
            }
            Err(error) => {
                got["to"] = json!(error.from.as_str());
                got["recovery_count"] = json!(0);
                got["ended"] = json!(error.from.has_ended());
                got["error"] = json!("ManagedJobStatusError");
            }
        }
        found.push((format!("{} {verb}", from.as_str()), compared(got, case)));
    }
    let facts = |key: &str| recorded.pointer(key).and_then(Json::as_object).into_iter().flatten();
    for (name, wanted) in facts("/statuses") {
        let state = state(&json!(name))?;
        let got = json!({"terminal": state.has_ended(), "failed": state.is_failed()});
        found.push((format!("state {name}"), compared(got, wanted)));
    }
    for (name, wanted) in facts("/exit_codes/managed_job") {
        found.push((format!("exit code {name}"), compared(json!(state(&json!(name))?.exit_code()), wanted)));
    }
    use Status::{Cancelled, Failed, FailedDriver, FailedSetup, Pending, Running, SettingUp, Succeeded};
    for status in [Pending, SettingUp, Running, Succeeded, Failed, FailedSetup, FailedDriver, Cancelled] {
        let name = status.as_str();
        let wanted = &recorded["exit_codes"]["cluster_job"][name];
        if !wanted.is_null() {
            found.push((format!("exit code of a cluster's job {name}"), compared(json!(status.exit_code()), wanted)));
        }
    }
    Ok(found)
}

/// Replays `jobs-restart-policy.json`.
pub fn restart_policy(path: &Path) -> Result<Found> {
    let mut found = Found::new();
    for case in cases(&read(path)?) {
        let recovery = JobRecovery {
            max_restarts_on_errors: serde_json::from_value(case["max_restarts_on_errors"].clone())?,
            recover_on_exit_codes: serde_json::from_value::<Option<_>>(case["recover_on_exit_codes"].clone())?
                .unwrap_or_default(),
            ..JobRecovery::default()
        };
        let failures: Vec<Option<Vec<i64>>> = serde_json::from_value(case["failures"].clone())?;
        let (mut so_far, mut got) = (0, Vec::new());
        for codes in &failures {
            let restart = restarts(&recovery, so_far, codes.as_deref());
            so_far += u32::from(restart == Restart::Counted);
            got.push(restart != Restart::No);
        }
        let name =
            format!("{} {} {}", recovery.max_restarts_on_errors, case["recover_on_exit_codes"], case["failures"]);
        found.push((name, compared(json!(got), &case["restart"])));
    }
    Ok(found)
}

/// Replays `jobs-status-of-tasks.json`.
pub fn status_of_tasks(path: &Path) -> Result<Found> {
    let mut found = Found::new();
    for case in cases(&read(path)?) {
        let tasks = case["tasks"].as_array().into_iter().flatten().map(state).collect::<Result<Vec<_>>>()?;
        found.push((case["tasks"].to_string(), compared(json!(job_state(&tasks).as_str()), &case["job"])));
    }
    Ok(found)
}

/// Replays `tables-of-jobs.json`.
pub fn tables(path: &Path) -> Result<Found> {
    let mut found = Found::new();
    for case in cases(&read(path)?) {
        let name = text_of(&case["name"]);
        let got = table(case).with_context(|| name.clone())?;
        let wanted = text_of(&case["text"]);
        found.push((name, (got != wanted).then(|| format!("\n{got}\n--- recorded\n{wanted}"))));
    }
    Ok(found)
}

fn table(case: &Json) -> Result<String> {
    let (rows, options) = (case["rows"].clone(), &case["options"]);
    let now = case["now"].as_i64().context("there is no time")?;
    let all = options["show_all"] == true;
    let served = match case["kind"].as_str() {
        Some("jobs") => {
            let max_jobs = serde_json::from_value(options["max_jobs"].clone())?;
            let columns = JobColumns { all, users: options["show_user"] == true, max_jobs };
            let rows: Vec<JobRow> = serde_json::from_value(rows)?;
            return Ok(jobs_table(&rows, &going_on(&rows), columns, now));
        }
        Some("services") => ServedKind::Services,
        Some("pools") => ServedKind::Pools,
        other => anyhow::bail!("there are no tables of {other:?}"),
    };
    Ok(served_table(&serde_json::from_value::<Vec<_>>(rows)?, served, all, now))
}
