//! Python modules of the user's own, which a script may have missed: read only where a job says that a module is missing.

use api::object;
use diagnose::{Facts, LocalModule};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Names that are looked at in a folder, and in a package of it.
const NAMES_MAX: usize = 2000;
/// What Python says of a module that it does not find.
const MISSING: &str = "No module named";
/// Annotations of jobs that `run` made: where they run, and the script and the folder that it sent to a cluster.
const DIRECTORY: &str = "trainyard.dev/directory";
const SCRIPT: &str = "trainyard.dev/script";
const WORKDIR: &str = "trainyard.dev/workdir";

/// The modules in the script's folder and in the one where the job runs, as far as they are on this machine.
pub fn of(facts: &Facts) -> Vec<LocalModule> {
    let is_missing = facts.logs.iter().flat_map(|log| &log.lines).any(|line| line.text.contains(MISSING));
    if !is_missing {
        return Vec::new();
    }
    let mut modules: Vec<LocalModule> = Vec::new();
    for (folder, is_on_path) in folders(&facts.job) {
        for module in in_folder(&folder, is_on_path) {
            if modules.iter().all(|known| known.name != module.name) {
                modules.push(module);
            }
        }
    }
    modules
}

/// The folders, the script's own, which Python looks at by itself, first.
fn folders(job: &Value) -> Vec<(PathBuf, bool)> {
    let said = |key| object::annotation(job, key).map(PathBuf::from);
    let directory = said(DIRECTORY).or_else(|| said(WORKDIR));
    let arguments = job["spec"]["trainer"]["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let script = said(SCRIPT)
        .or_else(|| arguments.map(PathBuf::from).find(|word| word.extension().is_some_and(|end| end == "py")));
    let of_script = script.and_then(|script| match &directory {
        Some(directory) => directory.join(script).parent().map(Path::to_owned),
        None => script.is_absolute().then(|| script.parent().map(Path::to_owned)).flatten(),
    });
    let mut folders: Vec<(PathBuf, bool)> = of_script.into_iter().map(|folder| (folder, true)).collect();
    if let Some(directory) = directory.filter(|directory| folders.iter().all(|(known, _)| known != directory)) {
        folders.push((directory, false));
    }
    folders
}

fn in_folder(folder: &Path, is_on_path: bool) -> Vec<LocalModule> {
    let shown = folder.display().to_string();
    let module =
        |(name, members): (String, Vec<String>)| LocalModule { name, folder: shown.clone(), is_on_path, members };
    entries(folder)
        .filter_map(|path| {
            if path.is_dir() {
                let members: Vec<String> = entries(&path).filter_map(|member| name_of(&member)).collect();
                return (!members.is_empty()).then(|| name_of(&path).map(|name| (name, members))).flatten();
            }
            name_of(&path).map(|name| (name, Vec::new()))
        })
        .map(module)
        .collect()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().take(NAMES_MAX).map(|entry| entry.path())
}

/// The name under which Python would import a file or folder; `None` where it would not.
fn name_of(path: &Path) -> Option<String> {
    let name = match path.is_dir() {
        true => path.file_name()?.to_str()?,
        false if path.extension()? == "py" => path.file_stem()?.to_str()?,
        false => return None,
    };
    let is_name =
        name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit());
    (is_name && !name.starts_with("__")).then(|| name.to_owned())
}
