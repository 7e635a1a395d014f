//! `jobs logs`: the output of a managed job over all its attempts, and its history.

use super::super::{Done, NOT_FOUND, say};
use super::{Job, all, files, latest, numbered, read};
use crate::sky::clusters::{self, SHOW, Sky};
use crate::sky::submit::{Trouble, value_error};
use crate::sky::words::as_typed;
use ::clusters::managed_output::{ManagedLine, ManagedOutput, ReadError};
use ::clusters::output::DownloadError;
use ::sky::commands::Call;
use api::foreign::visible_line;
use api::sky::{Ground, JobAttempt, ManagedJob, ManagedState};
use client::ClientError;
use std::convert::Infallible;
use std::path::PathBuf;

pub(in crate::sky::verbs) async fn logs(call: &Call) -> Done {
    let id: Option<u32> = call.value("job_id").and_then(|id| id.parse().ok());
    let name = call.value("name");
    if name.is_some() && call.value("job_id").is_some() {
        return Err(value_error("Cannot specify both --name and a job ID.").into());
    }
    if call.is_set("controller") && call.is_set("sync_down") {
        return Err(value_error("Cannot specify both --controller and --sync-down.").into());
    }
    let sky = clusters::connect().await?;
    let found = match (call.value("job_id"), name) {
        (Some(_), _) => numbered(&sky, &id.into_iter().collect()).await?.pop(),
        // the newest comes first
        (None, Some(name)) => all(&sky).await?.into_iter().find(|job| job.job.spec.name == name),
        (None, None) => latest(&sky).await?,
    };
    let Some(chosen) = found else {
        eprintln!("{}", as_typed(&missing(call)));
        return Ok(NOT_FOUND);
    };
    let task = match call.value("task") {
        None => None,
        Some(text) => match task(&sky, &chosen, text).await? {
            Some(task) => Some(task),
            None => {
                let id = chosen.id();
                eprintln!("Task '{}' not found in managed job {id}.", visible_line(text));
                return Ok(NOT_FOUND);
            }
        },
    };
    let names = match chosen.job.spec.group && task.is_none() {
        true => names(&sky, &chosen).await?,
        false => Vec::new(),
    };
    let Job { object, job, .. } = chosen;
    if call.is_set("controller") {
        history(&job, task).iter().for_each(|line| clusters::say(line));
        return Ok(state(&job, task).exit_code());
    }
    let output = ManagedOutput {
        job: object,
        task,
        follow: call.is_set("follow") && !call.is_set("sync_down"),
        tail: call.value("tail").and_then(|tail| tail.parse().ok()).filter(|tail| *tail > 0),
    };
    if call.is_set("sync_down") {
        return download(&sky, &job, output).await;
    }
    show(&sky, &job, &output, &names).await
}

/// The names of a job's tasks.
async fn names(sky: &Sky, job: &Job) -> Result<Vec<String>, ClientError> {
    let files = files(sky, [job]).await?;
    let tasks = files.into_values().next().map(|file| file.tasks).unwrap_or_default();
    Ok(tasks.into_iter().map(|task| task.name).collect())
}

/// That there is no such job.
fn missing(call: &Call) -> String {
    let what = match (call.value("job_id"), call.value("name")) {
        (Some(id), _) => format!("Managed job {id} not found"),
        (None, Some(name)) => format!("No managed job has the name '{}'", visible_line(name)),
        (None, None) => "You have no managed jobs".to_owned(),
    };
    format!("{what}. `sky jobs queue -a -u` lists all jobs.")
}

/// The task of a number or a name.
async fn task(sky: &Sky, job: &Job, text: &str) -> Result<Option<u32>, ClientError> {
    let known = job.job.status.tasks.len();
    if let Ok(number) = text.parse::<u32>() {
        return Ok(Some(number).filter(|number| (*number as usize) < known.max(1)));
    }
    let files = files(sky, [job]).await?;
    let at = files.values().find_map(|file| file.tasks.iter().position(|task| task.name == text));
    Ok(at.and_then(|at| u32::try_from(at).ok()))
}

/// The state of a task, or of the job.
fn state(job: &ManagedJob, task: Option<u32>) -> ManagedState {
    let of_task = task.and_then(|task| job.status.tasks.get(task as usize)).map(|task| task.state);
    of_task.unwrap_or(job.status.state)
}

/// Passes on the lines of all tasks of a group as they come, each with the name of its task before it. `false`: the job is gone.
async fn read_all(sky: &Sky, output: &ManagedOutput, names: &[String]) -> Result<bool, ReadError> {
    let each = names.iter().zip(0..).map(|(name, task)| async move {
        let output = ManagedOutput { task: Some(task), ..output.clone() };
        let print = |line: ManagedLine| {
            clusters::say(&format!("[{name}] {}", line.shown()));
            Ok(())
        };
        output.read(sky, SHOW, print).await
    });
    let are_there = futures::future::try_join_all(each).await?;
    Ok(are_there.into_iter().all(|is_there| is_there))
}

/// Shows the output, and returns the exit code of the job or the task. Where all tasks of a group are shown, `names` are the names of its
/// tasks; otherwise it is empty.
async fn show(sky: &Sky, job: &ManagedJob, output: &ManagedOutput, names: &[String]) -> Done {
    let id = job.spec.id;
    let print = |line: ManagedLine| {
        clusters::say(&line.shown());
        Ok(())
    };
    let shown = async {
        match names {
            [] => output.read(sky, SHOW, print).await,
            names => read_all(sky, output, names).await,
        }
    };
    let shown = tokio::select! {
        shown = shown => shown,
        told = tell_waits(sky, output), if output.follow => match told? {},
        _ = tokio::signal::ctrl_c() => {
            goes_on(id);
            return Ok(crate::exit::INTERRUPTED);
        }
    };
    let is_there = shown.map_err(trouble)?;
    let now = sky.managed_jobs().get_opt(&output.job).await?.as_ref().and_then(read);
    let Some(now) = now.filter(|_| is_there) else {
        eprintln!("Managed job {id} has been deleted, and its output with it.");
        return Ok(NOT_FOUND);
    };
    let state = state(&now, output.task);
    if state.has_ended() {
        eprintln!("{}", finished(&now, output.task));
    } else if let Some(waits) = waits(&now, output.task) {
        eprintln!("{waits}");
    }
    Ok(state.exit_code())
}

fn trouble(error: ReadError) -> Trouble {
    match error {
        ReadError::Client(error) => error.into(),
        ReadError::Write(_) | ReadError::Gone => Trouble::Said(error.to_string()),
    }
}

/// Says what the job waits for while it does not run, and again when that changes.
async fn tell_waits(sky: &Sky, output: &ManagedOutput) -> Result<Infallible, ClientError> {
    let mut told = String::new();
    loop {
        let waits = client::until(sky.managed_jobs(), &output.job, |object| {
            let now = object.and_then(read).and_then(|job| waits(&job, output.task)).unwrap_or_default();
            (now != told).then_some(now)
        });
        told = waits.await?;
        if !told.is_empty() {
            eprintln!("{told}");
        }
    }
}

/// What a job waits for that is not running.
fn waits(job: &ManagedJob, task: Option<u32>) -> Option<String> {
    let state = state(job, task);
    if state.has_ended() || matches!(state, ManagedState::Running | ManagedState::WindingDown) {
        return None;
    }
    let mut tasks = job.status.tasks.iter();
    let of = match task {
        Some(task) => tasks.nth(task as usize),
        None => tasks.find(|task| !task.state.has_ended()),
    };
    let why = of.map(|task| visible_line(&task.message)).filter(|why| !why.is_empty());
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Some(format!("Managed job {} is {}{why}", job.spec.id, state.as_str()))
}

/// That a job has ended, and why it failed.
fn finished(job: &ManagedJob, task: Option<u32>) -> String {
    let state = state(job, task);
    let mark = if state == ManagedState::Succeeded { "✓" } else { "✗" };
    let mut text = format!("{mark} Managed job finished: {} (status: {}).", job.spec.id, state.as_str());
    let tasks = job.status.tasks.iter().zip(0..);
    let failed = tasks.filter(|(of, number)| task.is_none_or(|task| task == *number) && of.state.is_failed());
    for (of, number) in failed.filter(|(of, _)| !of.message.is_empty()) {
        text += &format!("\nTask {number}: {}", visible_line(&of.message));
    }
    text
}

/// What is said of a job whose output is no longer followed: Ctrl-C ends the command, not the job.
fn goes_on(id: u32) {
    let hint =
        format!("Managed job {id} goes on. To see its output: sky jobs logs {id}; to end it: sky jobs cancel {id}");
    eprintln!("\n{}", as_typed(&hint));
}

/// Writes the output into `~/sky_logs/managed_jobs/ID`.
async fn download(sky: &Sky, job: &ManagedJob, output: ManagedOutput) -> Done {
    let id = job.spec.id;
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let folder = home.join("sky_logs").join("managed_jobs").join(id.to_string());
    let written = std::fs::create_dir_all(&folder).map_err(|error| DownloadError::Write(folder.clone(), error));
    let is_there = match written {
        Ok(()) => output.download(sky, &folder, SHOW).await,
        Err(error) => Err(error),
    };
    let is_there = is_there.map_err(|error| match error {
        DownloadError::Client(error) => Trouble::from(error),
        refused => value_error(refused.to_string()),
    })?;
    if !is_there {
        eprintln!("Managed job {id} has been deleted, and its output with it.");
        return Ok(NOT_FOUND);
    }
    say(format!("Managed job {id} logs: {}", folder.display()));
    Ok(0)
}

/// The history of a job, a line for the job, each task and each attempt.
fn history(job: &ManagedJob, wanted: Option<u32>) -> Vec<String> {
    let status = &job.status;
    let mut lines = vec![format!(
        "Managed job {}{}: {}, recoveries: {}",
        job.spec.id,
        in_words(" ", &job.spec.name),
        status.state.as_str(),
        status.recoveries
    )];
    for (task, number) in status.tasks.iter().zip(0..) {
        if wanted.is_some_and(|wanted| wanted != number) {
            continue;
        }
        lines.push(format!("Task {number}: {}{}", task.state.as_str(), in_words(": ", &task.message)));
        lines.extend(task.attempts.iter().map(|attempt| format!("Task {number}, {}", told(attempt))));
    }
    lines.iter().map(|line| visible_line(line).into_owned()).collect()
}

fn in_words(before: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}

/// `attempt 1 on local, cluster job-1-0: began 2026-…, ran 2026-…, ended 2026-…: MachinesLost: machine h1 is gone`.
fn told(attempt: &JobAttempt) -> String {
    let times = [("began", &attempt.began_at), ("ran", &attempt.ran_at), ("ended", &attempt.ended_at)];
    let times = times.iter().filter(|(_, at)| !at.is_empty()).map(|(what, at)| format!("{what} {at}"));
    let ground = match attempt.ground {
        Ground::None => String::new(),
        ground => format!("{ground:?}"),
    };
    format!(
        "attempt {}{}{}{}{}{}",
        attempt.number,
        in_words(" on ", &attempt.place),
        in_words(", cluster ", &attempt.cluster),
        in_words(": ", &times.collect::<Vec<_>>().join(", ")),
        in_words(": ", &ground),
        in_words(": ", &attempt.evidence)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job(status: Value) -> ManagedJob {
        let spec = json!({"id": 7, "name": "train", "submission": "s"});
        serde_json::from_value(json!({"spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_job_says_what_it_waits_for() {
        let of = |state: &str, message: &str, task: Option<u32>| {
            let tasks = json!([
                {"state": "SUCCEEDED", "message": "done"}, {"state": state, "message": message}, {"state": "PENDING"},
            ]);
            waits(&job(json!({"state": state, "tasks": tasks})), task)
        };
        let pending = |why: &str| Some(format!("Managed job 7 is PENDING{why}"));
        assert_eq!(of("PENDING", "no capacity in\u{1b} a", None), pending(": no capacity in\\x1b a"));
        assert_eq!(of("PENDING", "", None), pending(""));
        assert_eq!(of("RECOVERING", "x", Some(1)), Some("Managed job 7 is RECOVERING: x".to_owned()));
        assert_eq!(of("RUNNING", "x", None), None);
        assert_eq!(of("RUNNING", "x", Some(0)), None);
        assert_eq!(of("RUNNING", "x", Some(2)), pending(""));
        assert_eq!(waits(&job(json!({})), None), pending(""));
    }

    #[test]
    fn the_end_names_what_failed() {
        let tasks = json!([{"state": "SUCCEEDED"}, {"state": "FAILED", "message": "exit code 3"}]);
        let job = job(json!({"state": "FAILED", "tasks": tasks}));
        assert_eq!(finished(&job, None), "✗ Managed job finished: 7 (status: FAILED).\nTask 1: exit code 3");
        assert_eq!(finished(&job, Some(0)), "✓ Managed job finished: 7 (status: SUCCEEDED).");
        assert_eq!((state(&job, None).exit_code(), state(&job, Some(0)).exit_code()), (100, 0));
    }

    #[test]
    fn the_history_has_a_line_for_each_attempt() {
        let attempts = json!([
            {"number": 1, "place": "ssh/a/h1", "cluster": "c", "beganAt": "t0", "ranAt": "t1", "endedAt": "t2",
             "ground": "MachinesLost", "evidence": "machine h1\nis gone"},
            {"number": 2, "beganAt": "t3"},
        ]);
        let tasks = json!([{"state": "RECOVERING", "message": "waits", "attempts": attempts}, {"state": "PENDING"}]);
        let job = job(json!({"state": "RECOVERING", "recoveries": 1, "tasks": tasks}));
        let expected = [
            "Managed job 7 train: RECOVERING, recoveries: 1",
            "Task 0: RECOVERING: waits",
            "Task 0, attempt 1 on ssh/a/h1, cluster c: began t0, ran t1, ended t2: MachinesLost: machine h1\\nis gone",
            "Task 0, attempt 2: began t3",
        ];
        assert_eq!(history(&job, Some(0)), expected);
        assert_eq!(history(&job, None).len(), 5);
    }
}
