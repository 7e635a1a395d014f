//! Replays recordings of SkyPilot against our reading of its files. The form of the recordings is in their README.

mod balancer;
mod cli;
mod commands;
mod groups;
mod jobs;
mod launches;
mod optimizer;
mod script;
mod serving;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use placement::{Catalogue, Cloud};
use serde_json::{Map, Value as Json, json};
use sky::check::{PathKind, Surroundings, check};
use sky::console::Circumstances;
use sky::value::Value;
use sky::{File, Given, Reader, TaskError};

use optimizer::Outcome;

/// Errors of Python's own: SkyPilot fell over the file. We give a real error, or do what was meant.
const CRASHES: [&str; 12] = [
    "error",
    "IndexError",
    "AttributeError",
    "AssertionError",
    "JSONDecodeError",
    "ScannerError",
    "ParserError",
    "ConstructorError",
    "ComposerError",
    "ReaderError",
    "TypeError",
    "KeyError",
];

/// How Python words what it could not read as a number.
const NUMBERS: [&str; 2] = ["invalid literal for int()", "could not convert string to float"];

/// Replays the folder. Prints a line for each case that differs, then `KIND: N passed, N failed` for each kind, and `N passed, N failed` for
/// all of them last.
pub fn replay(folder: &Path, only: &str) -> Result<()> {
    let prices = folder.join("catalog/v8");
    let catalogue = if prices.is_dir() { read_catalogue(&prices)? } else { Catalogue::default() };
    let mut tally = Tally::default();
    folders(folder, only, &catalogue, &mut tally)?;
    let recorded = folder.join("group-placement.json");
    let found = if recorded.is_file() { groups::replay(&recorded, &catalogue)? } else { Vec::new() };
    for (name, outcome) in found.into_iter().filter(|(name, _)| name.contains(only)) {
        tally.outcome("group-placement", Path::new(&name), outcome);
    }
    lists(folder, only, &catalogue, &mut tally)?;
    type Replayed = fn(&Path) -> Result<Vec<(String, Option<String>)>>;
    let facts: [(&str, Replayed); 9] = [
        ("balancer", balancer::replay),
        ("run-script", script::replay),
        ("environment", script::environment),
        ("jobs-transitions", jobs::transitions),
        ("jobs-restart-policy", jobs::restart_policy),
        ("jobs-status-of-tasks", jobs::status_of_tasks),
        ("tables-of-jobs", jobs::tables),
        ("autoscaler", serving::autoscaler),
        ("spot-placer", serving::spot_placer),
    ];
    for (kind, replayed) in facts {
        let path = folder.join(format!("{kind}.json"));
        let found = if path.is_file() { replayed(&path)? } else { Vec::new() };
        for (name, difference) in found.into_iter().filter(|(name, _)| name.contains(only)) {
            tally.count(kind, &name, difference);
        }
    }
    tally.told(folder, only)
}

/// Replays cases that have a folder each.
fn folders(folder: &Path, only: &str, catalogue: &Catalogue, tally: &mut Tally) -> Result<()> {
    for case in cases(&folder.join("task"), only)? {
        let outcome = task(&case, catalogue).with_context(|| case.display().to_string())?;
        tally.outcome("task", &case, outcome);
    }
    for case in cases(&folder.join("optimizer"), only)? {
        let outcome = optimizer::replay(&case, catalogue).with_context(|| case.display().to_string())?;
        tally.outcome("optimizer", &case, outcome);
    }
    let mut later = 0;
    for case in cases(&folder.join("cli"), only)? {
        match cli::replay(&case, catalogue).with_context(|| case.display().to_string())? {
            None => later += 1,
            Some(outcome) => tally.outcome("cli", &case, outcome),
        }
    }
    if later > 0 {
        println!("{later} transcripts are of verbs that come later, and were not compared");
    }
    Ok(())
}

/// Replays command lines.
fn lists(folder: &Path, only: &str, catalogue: &Catalogue, tally: &mut Tally) -> Result<()> {
    let read = |name: &str| match fs::read_to_string(folder.join(name)) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("reading {name}")),
        Err(_) => Ok(Json::Null),
    };
    for (command, difference) in commands::replay(&read("commands.json")?) {
        if command.contains(only) {
            tally.count("commands", &command, difference);
        }
    }
    for (line, difference) in words::replay(&read("words.json")?) {
        if line.contains(only) {
            tally.count("words", &line, difference);
        }
    }
    for case in read("launches.json")?.as_array().into_iter().flatten() {
        let words: Vec<String> = case["args"].as_array().into_iter().flatten().map(text_of).collect();
        if words.join(" ").contains(only) {
            tally.count("launches", &words.join(" "), launches::replay(case, &words, catalogue));
        }
    }
    Ok(())
}

/// How many cases passed and failed, by kind.
#[derive(Default)]
struct Tally {
    kinds: Vec<(String, usize, usize)>,
    on_purpose: usize,
}

impl Tally {
    fn outcome(&mut self, kind: &str, case: &Path, outcome: Outcome) {
        let difference = match outcome {
            Outcome::Same => None,
            Outcome::OnPurpose(difference) => {
                self.on_purpose += 1;
                println!("{kind}/{}: on purpose: {difference}", name(case));
                None
            }
            Outcome::Differs(difference) => Some(difference),
        };
        self.count(kind, &name(case), difference);
    }

    fn count(&mut self, kind: &str, name: &str, difference: Option<String>) {
        if !self.kinds.iter().any(|(known, ..)| known == kind) {
            self.kinds.push((kind.to_owned(), 0, 0));
        }
        for (_, passed, failed) in self.kinds.iter_mut().filter(|(known, ..)| known == kind) {
            *(if difference.is_none() { passed } else { failed }) += 1;
        }
        if let Some(difference) = difference {
            println!("{kind}/{name}: {difference}");
        }
    }

    fn told(self, folder: &Path, only: &str) -> Result<()> {
        let sum = |of: fn(&(String, usize, usize)) -> usize| self.kinds.iter().map(of).sum::<usize>();
        let (passed, failed) = (sum(|kind| kind.1), sum(|kind| kind.2));
        ensure!(passed + failed > 0, "{}: no case has a name with {only:?}", folder.display());
        if self.on_purpose > 0 {
            println!("{} of those that passed differ on purpose: COMPATIBILITY.md says why", self.on_purpose);
        }
        for (kind, passed, failed) in &self.kinds {
            println!("{kind}: {passed} passed, {failed} failed");
        }
        println!("{passed} passed, {failed} failed");
        ensure!(failed == 0, "{failed} of {} cases differ", passed + failed);
        Ok(())
    }
}

fn name(case: &Path) -> String {
    case.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folders of a kind of cases, by name; none where the kind is not there.
fn cases(folder: &Path, only: &str) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let list = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut cases: Vec<PathBuf> =
        list.filter_map(|entry| Some(entry.ok()?.path())).filter(|case| name(case).contains(only)).collect();
    cases.sort();
    Ok(cases)
}

/// Whether a file is refused there for naming this machine, and read here.
fn names_this_machine(read: &Result<File, TaskError>, refused: &Json) -> bool {
    let is_local = |task: &sky::Task| task.resources.list.iter().any(|one| one.infra.cloud == Some(Cloud::Local));
    let message = refused["error"]["message"].as_str().unwrap_or_default().to_lowercase();
    read.as_ref().is_ok_and(|file| file.tasks.iter().any(is_local)) && message.contains("'local' does not match")
}

/// What came of a case.
fn task(case: &Path, catalogue: &Catalogue) -> Result<Outcome> {
    Ok(difference(case, catalogue)?.map_or(Outcome::Same, |(difference, on_purpose)| match on_purpose {
        true => Outcome::OnPurpose(difference),
        false => Outcome::Differs(difference),
    }))
}

/// JSON as Python writes it: with numbers that JSON has not.
fn python_json(text: &str) -> Result<Json> {
    let line = |line: &str| {
        let (before, value) = line.rsplit_once(": ").map_or(("", line), |(before, value)| (before, value));
        match value.trim().trim_end_matches(',') {
            number @ ("NaN" | "Infinity" | "-Infinity") => format!(
                "{before}{}\"{}\"{}",
                if before.is_empty() { "" } else { ": " },
                number.to_lowercase().trim_end_matches("inity"),
                if value.ends_with(',') { "," } else { "" }
            ),
            _ => line.to_owned(),
        }
    };
    Ok(serde_json::from_str(&text.lines().map(line).collect::<Vec<_>>().join("\n"))?)
}

/// How a case differs from its recording, and whether on purpose.
fn difference(case: &Path, catalogue: &Catalogue) -> Result<Option<(String, bool)>> {
    let text = fs::read_to_string(case.join("task.yaml"))?;
    let mut expected = python_json(&fs::read_to_string(case.join("expected.json"))?)?;
    if let Some(error) = expected.get("dump_error").cloned() {
        // it could be read there, and not written: here it is refused at once
        expected = json!({"error": error});
    }
    let options: Json = match fs::read_to_string(case.join("options.json")) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => json!({}),
    };
    let pairs = |key: &str| {
        let list = options[key].as_array().cloned().unwrap_or_default();
        list.iter().map(|pair| (text_of(&pair[0]), Some(text_of(&pair[1])))).collect()
    };
    let given = Given { envs: pairs("env"), secrets: pairs("secret"), on_command_line: false };
    let read = File::read(&text, &given, Reader::Client, catalogue);
    if let Some(difference) = compare(&outcome(&read, catalogue), &expected) {
        return Ok(Some((difference, names_this_machine(&read, &expected))));
    }
    if let Ok(file) = read
        && let Some(difference) = second_look(file, &options, &expected, catalogue)
    {
        return Ok(Some((difference, false)));
    }
    let server = outcome(&File::read(&text, &given, Reader::Server, catalogue), catalogue);
    let wanted = expected.get("server").unwrap_or(&expected);
    Ok(compare(&server, wanted).map(|difference| (format!("on the server: {difference}"), false)))
}

/// How the second look at a file differs from its recording. What was enabled and known there is in the recordings' README.
fn second_look(mut file: File, options: &Json, expected: &Json, catalogue: &Catalogue) -> Option<String> {
    let files = options["files"].as_object().cloned().unwrap_or_default();
    let path = |path: &str| {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        match path {
            "" | "." | "~" | "/" => PathKind::Folder,
            path => kind_of(&files, path),
        }
    };
    let around = Surroundings {
        catalogue,
        enabled: &[Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod],
        contexts: &["example".into(), "arn:aws:eks:us-east-1:1:cluster/example".into()],
        ssh_pools: &[],
        slurm_clusters: &["hpc".into()],
        on_server: true,
        path: &path,
    };
    let found = file.tasks.iter_mut().find_map(|task| check(task, &around).err());
    let got = found.map(|error| json!({"error": {"class": error.class.name(), "message": error.message}}));
    let wanted = expected.get("validate_error").map(|error| json!({"error": error}));
    match (got, wanted) {
        (None, None) => None,
        (Some(got), Some(wanted)) => compare(&got, &wanted).map(|difference| format!("second look: {difference}")),
        (got, wanted) => Some(format!("second look: {got:?} instead of {wanted:?}")),
    }
}

/// What `sky` knows of its surroundings where the recordings were made, but for files and variables.
fn world(catalogue: &Catalogue) -> Circumstances<'_> {
    Circumstances {
        catalogue,
        catalogue_folder: "",
        enabled: &[Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod],
        makes: &[],
        nodes: &[],
        hosts: &[],
        pools: &[],
        contexts: &[],
        unusable: &[],
        tried: &[],
        read: &|_| Err(NO_FILE.to_owned()),
        path: &|_| PathKind::Missing,
        variable: &|_| None,
        cluster: "",
    }
}

/// What a case says when a file is read that it does not have.
const NO_FILE: &str = "there is no such file";

/// The text of one of the case's files.
fn file_of(files: &Map<String, Json>, path: &str) -> Result<String, String> {
    files.get(path).map(text_of).ok_or_else(|| NO_FILE.to_owned())
}

/// What a path is among the case's files.
fn kind_of(files: &Map<String, Json>, path: &str) -> PathKind {
    match path {
        path if files.contains_key(path) => PathKind::File,
        path if files.keys().any(|file| file.starts_with(&format!("{path}/"))) => PathKind::Folder,
        _ => PathKind::Missing,
    }
}

/// Whether SkyPilot ended in an error of Python's own.
fn is_crash(class: &str, message: &str) -> bool {
    CRASHES.contains(&class) || NUMBERS.iter().any(|start| message.starts_with(start))
}

fn text_of(json: &Json) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

/// What came of a file, in the form of the recordings.
fn outcome(read: &Result<File, TaskError>, catalogue: &Catalogue) -> Json {
    match read {
        Err(error) => json!({"error": {"class": error.class.name(), "message": error.message}}),
        Ok(file) => {
            let tasks: Vec<Json> =
                file.tasks.iter().map(|task| sorted(Value::Map(task.write(catalogue)).to_json())).collect();
            let mut out = json!({"kind": file.kind_name(), "name": file.name, "tasks": tasks});
            if let sky::file::Kind::Parallel(group) = &file.kind {
                out["group"] = json!({
                    "inter_connection": group.inter_connection,
                    "primary_tasks": group.primary_tasks.clone().map(|tasks| Value::List(tasks).to_json()),
                    "termination_delay": group.termination_delay.as_ref().map(Value::to_json),
                });
            }
            out
        }
    }
}

/// `any_of` is a set: sorted by its text. So is, in `ordered`, what one amount of memory stands for: the order is that of Python's hashes.
fn sorted(mut task: Json) -> Json {
    if let Some(list) = task.pointer_mut("/resources/ordered").and_then(Json::as_array_mut) {
        let key = |one: &Json| -> Option<(Json, Option<String>)> {
            let mut rest = one.clone();
            let name = rest.as_object_mut().and_then(|rest| rest.remove("accelerators"));
            (one["_no_missing_accel_warnings"] == true).then(|| (rest, name.map(|name| name.to_string())))
        };
        for run in list.chunk_by_mut(|a, b| matches!((key(a), key(b)), (Some((a, _)), Some((b, _))) if a == b)) {
            run.sort_by_key(Json::to_string);
        }
    }
    if let Some(list) = task.pointer_mut("/resources/any_of").and_then(Json::as_array_mut) {
        list.sort_by_key(Json::to_string);
    }
    task
}

fn compare(got: &Json, expected: &Json) -> Option<String> {
    match (got.get("error"), expected.get("error")) {
        (Some(got), Some(expected)) => {
            let message = expected["message"].as_str().unwrap_or_default();
            let same = is_crash(expected["class"].as_str().unwrap_or_default(), message)
                || (got["class"] == expected["class"]
                    && (expected.get("message").is_none() || got["message"] == expected["message"]));
            (!same).then(|| format!("error {got} instead of {expected}"))
        }
        (Some(got), None) => Some(format!("error {got} instead of a task")),
        (None, Some(expected)) if expected["class"] == "JSONDecodeError" => None,
        // a known key without a value: to us it is not given
        (None, Some(expected)) if text_of(&expected["message"]).starts_with("Invalid task args: ") => None,
        (None, Some(expected)) => Some(format!("no error instead of {expected}")),
        (None, None) => ["kind", "name", "group", "tasks"].into_iter().find_map(|key| {
            let expected = if key == "tasks" {
                Json::Array(expected[key].as_array()?.iter().cloned().map(sorted).collect())
            } else {
                expected[key].clone()
            };
            (got[key] != expected).then(|| format!("{key} {} instead of {expected}", got[key]))
        }),
    }
}

/// The price lists of a folder: `CLOUD/vms.csv`, `CLOUD/images.csv`, `common/accelerators.csv`, `common/metadata.csv`.
fn read_catalogue(folder: &Path) -> Result<Catalogue> {
    let mut catalogue = Catalogue::default();
    for cloud in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let cloud = cloud?;
        let name = cloud.file_name().to_string_lossy().into_owned();
        for file in fs::read_dir(cloud.path())? {
            let path = file?.path();
            let text = fs::read_to_string(&path)?;
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            catalogue.add(&name, &file, &text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(catalogue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recordings_pass() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sky/golden");
        let replayed = replay(&folder, "");
        assert!(replayed.is_ok(), "{replayed:?}: `cargo xtask skypilot-goldens crates/sky/golden` names them");
    }
}
