//! What runs on a machine, against recordings: the script around a user's `run` (carried out by bash, with what a pod of ours would have), and the
//! variables, names and files that it sees.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use managed::jobs::Submission;
use serde_json::{Value as Json, json};

use super::text_of;

/// Addresses of the machines of a job, as the annotations of its pods have them.
const ADDRESSES: [&str; 2] = ["127.1.0.1", "127.1.0.2"];

/// A job as `sky launch` submits it.
fn submission(nodes: u32) -> Submission {
    Submission {
        cluster: "c1".into(),
        cluster_shown: "c1".into(),
        namespace: "default".into(),
        id: 3,
        user: "me".into(),
        nodes,
        gpus: 0.5,
        run_timestamp: "sky-2024-01-02-03-04-05-678901".into(),
        cluster_info: json!({"cluster_name": "c1", "cloud": "local", "region": null, "zone": null}),
        ..Submission::default()
    }
}

/// How a rank ended, and what it wrote.
struct Ran {
    /// As Python tells it: below zero by a signal.
    code: i32,
    /// Lines without their prefix, both streams.
    out: String,
    /// The prefix of the first line.
    prefix: String,
    /// Files below the home, by name.
    files: Vec<String>,
}

/// Runs a rank of a job as a pod would: its command and its variables, in a home of its own.
fn run(job: &Submission, rank: u32, given: &BTreeMap<String, String>) -> Result<Ran> {
    let jobset = job.jobset();
    let template = jobset.pointer(&format!("/spec/replicatedJobs/{rank}/template/spec/template"));
    let template = template.context("the JobSet has no such rank")?;
    let container = &template["spec"]["containers"][0];
    let count = usize::try_from(job.nodes)?;
    let annotations = BTreeMap::from([
        ("sky.trainyard.dev/node-ips", ADDRESSES.get(..count).unwrap_or(&ADDRESSES).join("\n")),
        ("sky.trainyard.dev/node-ip", ADDRESSES[usize::try_from(rank)?].to_owned()),
    ]);
    // what is set by name comes over what a Secret holds
    let mut variables = given.clone();
    for one in container["env"].as_array().into_iter().flatten() {
        let path = one["valueFrom"]["fieldRef"]["fieldPath"].as_str().unwrap_or_default();
        let key = path.trim_start_matches("metadata.annotations['").trim_end_matches("']");
        let value = match annotations.get(key) {
            Some(value) => value.clone(),
            None => expand(&text_of(&one["value"]), &variables),
        };
        variables.insert(text_of(&one["name"]), value);
    }
    let words = ["command", "args"].into_iter().flat_map(|part| container[part].as_array().into_iter().flatten());
    let words: Vec<String> = words.map(|word| expand(&text_of(word), &variables)).collect();
    let (program, arguments) = words.split_first().context("the container has no command")?;
    let home = tempfile::tempdir()?;
    let ran = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&variables)
        .env("HOME", home.path())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {program}"))?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let (mut out, mut prefix) = (String::new(), String::new());
    for line in text.split_inclusive('\n') {
        let (before, rest) = line.split_once(") ").unwrap_or(("", line));
        if prefix.is_empty() && !before.is_empty() {
            prefix = format!("{before})");
        }
        out.push_str(rest);
    }
    let code = ran.status.code().context("the script around was itself ended by a signal")?;
    let code = if code > 128 { 128 - code } else { code };
    let mut files = Vec::new();
    let mut folders = vec![home.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path.strip_prefix(home.path())?.display().to_string())
            }
        }
    }
    Ok(Ran { code, out, prefix, files })
}

/// Kubernetes' `$(NAME)` and `$$`.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        let named = behind.strip_prefix('(').and_then(|behind| behind.split_once(')'));
        rest = match (behind.strip_prefix('$'), named) {
            (Some(behind), _) => {
                out.push('$');
                behind
            }
            (None, Some((name, behind))) if variables.contains_key(name) => {
                out.push_str(&variables[name]);
                behind
            }
            _ => {
                out.push('$');
                behind
            }
        };
    }
    out + rest
}

/// Replays `run-script.json`: the cases, and how each differs.
pub fn replay(path: &Path) -> Result<Vec<(String, Option<String>)>> {
    let recorded: Json = serde_json::from_str(&std::fs::read_to_string(path)?).context("reading run-script.json")?;
    let mut found = Vec::new();
    for case in recorded["cases"].as_array().into_iter().flatten() {
        let variables = case["env"].as_object().into_iter().flatten();
        let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let variables = variables.map(|(name, value)| (name.clone(), text(value))).collect();
        let job = Submission { script: text_of(&case["run"]), ..submission(1) };
        let ran = run(&job, 0, &variables)?;
        let wanted = text_of(&case["stdout"]);
        // both streams are one log
        let same = match case["stderr_empty"] == true {
            true => ran.out == wanted,
            false => ran.out.len() > wanted.len() && ran.out.contains(&wanted),
        };
        let same = same && case["exit_code"] == ran.code;
        let difference = format!("{} and {:?} instead of {} and {wanted:?}", ran.code, ran.out, case["exit_code"]);
        found.push((text_of(&case["name"]), (!same).then_some(difference)));
    }
    Ok(found)
}

/// Compares `environment.json` with what ranks see: each fact, and how it differs. Managed jobs, services and pools come later.
pub fn environment(path: &Path) -> Result<Vec<(String, Option<String>)>> {
    let recorded: Json = serde_json::from_str(&std::fs::read_to_string(path)?).context("reading environment.json")?;
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    let mut check = |name: &str, got: String, wanted: &str| {
        found.push((name.to_owned(), (got != wanted).then(|| format!("{got:?} instead of {wanted:?}"))));
    };
    let printed = Submission { script: "env -0 | tr '\\n\\0' '|\\n'".into(), ..submission(2) };
    let seen = |is_setup: bool| -> Result<BTreeMap<String, String>> {
        let ran = run(&Submission { is_setup, ..printed.clone() }, 1, &BTreeMap::new())?;
        let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(ran.out.lines().filter_map(pair).collect())
    };
    let stages = BTreeMap::from([("run", seen(false)?), ("setup", seen(true)?)]);
    for fact in recorded["run"].as_array().into_iter().flatten() {
        let (name, place) = (text_of(&fact["name"]), text_of(&fact["where"]));
        if !matches!(place.as_str(), "run" | "setup" | "both") {
            continue;
        }
        for (stage, variables) in &stages {
            let is_due = place == *stage || place == "both";
            let wanted = match name.trim_start_matches("SKYPILOT_").trim_start_matches("SETUP_") {
                _ if !is_due => None,
                "NODE_RANK" => Some("1".to_owned()),
                "NODE_IPS" => Some(ADDRESSES.join("|")),
                "NUM_NODES" => Some("2".to_owned()),
                "NUM_GPUS_PER_NODE" | "PYTHONUNBUFFERED" => Some("1".to_owned()),
                "INTERNAL_JOB_ID" => Some("3".to_owned()),
                "TASK_ID" => Some(printed.task_id()),
                "CLUSTER_INFO" => Some(printed.cluster_info.to_string()),
                // a name of somebody
                "USER" | "USER_ID" => {
                    variables.get(&name).filter(|value| !value.is_empty()).cloned().or(Some("?".into()))
                }
                other => anyhow::bail!("{path:?}: nothing is known of {other}", path = path.display()),
            };
            let shown = |value: Option<&String>| value.cloned().unwrap_or_else(|| "unset".to_owned());
            check(&format!("{name} in {stage}"), shown(variables.get(&name)), &shown(wanted.as_ref()));
        }
    }
    for example in recorded["task_id"]["examples"].as_array().into_iter().flatten() {
        if example["managed"] == true {
            continue;
        }
        let job = Submission {
            run_timestamp: text_of(&example["timestamp"]),
            cluster_shown: text_of(&example["cluster"]),
            id: text_of(&example["job"]).parse().context("the number of a job")?,
            ..submission(1)
        };
        check("a task's id", job.task_id(), &text_of(&example["id"]));
    }
    let paths = &recorded["paths"];
    let folder = text_of(&paths["logs"]).replace("RUN_TIMESTAMP", &printed.run_timestamp);
    let folder = folder.trim_start_matches("~/").to_owned();
    let many = text_of(&paths["log_many_nodes"]);
    let (head, worker) = many.split_once(" or ").unwrap_or_default();
    let named = BTreeMap::from([
        ((1, 0), text_of(&paths["log_one_node"])),
        ((2, 0), head.replace("RANK", "0")),
        ((2, 1), worker.replace("RANK", "1").replace("workerN", "worker1")),
    ]);
    let prefixes = &recorded["log_prefix"];
    let many = text_of(&prefixes["many_nodes"]);
    let (first, second) = many.split_once(" or ").unwrap_or_default();
    let one = text_of(&prefixes["one_node"]);
    for ((nodes, rank), file) in named {
        let script = r#"echo "$PWD"; [ "${PWD##*/}" = sky_workdir ] && echo x > result"#;
        let ran = run(&Submission { script: script.into(), ..submission(nodes) }, rank, &BTreeMap::new())?;
        let log = format!("{folder}/{file}");
        let is_there = ran.files.contains(&log);
        check(&log, if is_there { log.clone() } else { ran.files.join(" ") }, &log);
        let work = format!("{}/result", text_of(&paths["working_directory"]).trim_start_matches("~/"));
        let is_there = ran.files.contains(&work);
        check(&work, if is_there { work.clone() } else { ran.files.join(" ") }, &work);
        let wanted = match (nodes, rank) {
            (1, _) => one.replace("NAME", &text_of(&prefixes["unnamed_task"])),
            (_, 0) => first.to_owned(),
            _ => second.replace("ADDRESS", ADDRESSES[1]),
        };
        let pid: String =
            ran.prefix.split("pid=").nth(1).unwrap_or_default().chars().take_while(char::is_ascii_digit).collect();
        check("a prefix", ran.prefix.clone(), &wanted.replace("PID", &pid));
    }
    Ok(found)
}
