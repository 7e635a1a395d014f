//! `--output-dir`: a folder for the output of a job, with one folder for each of its nodes.

use crate::ship::files;
use crate::spec::Spec;
use api::object;
use api::trainer::names::{LABEL_JOBSET_NAME, RANK_FIELD_PATH};
use client::ClientError;
use client::codes::ErrorCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Annotation of a job: the folder of `--output-dir`; the job's own folder in it has the job's name.
pub(crate) const ANNOTATION: &str = "trainyard.dev/output-dir";
/// The variable that names a node's folder.
const VARIABLE: &str = "TRAINYARD_OUTPUT";
/// More files than this are not counted.
const FILES_MAX: usize = 10_000;

/// The folder's absolute path; `None` without the flag.
pub(crate) fn folder(spec: &Spec) -> Option<PathBuf> {
    spec.output_dir.as_ref().map(|folder| std::path::absolute(folder).unwrap_or_else(|_| folder.clone()))
}

/// Makes the folder.
///
/// Errors: `Usage` if it cannot be made or written.
pub(crate) fn prepare(spec: &Spec) -> Result<(), ClientError> {
    let Some(folder) = folder(spec) else { return Ok(()) };
    let made = std::fs::create_dir_all(&folder).map_err(|error| error.to_string());
    let usable = made.and_then(|()| {
        nix::unistd::access(&folder, nix::unistd::AccessFlags::W_OK).map_err(|error| error.desc().to_owned())
    });
    usable.map_err(|why| {
        ClientError::Usage(
            ErrorCode::OutputFolder,
            format!("--output-dir {}: it cannot be written: {why}", folder.display()),
        )
    })
}

/// The variables that give a job's processes their folder.
pub(crate) fn variables(folder: &Path) -> Vec<Value> {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    // in a value, `$$` means `$`
    let folder = folder.to_string_lossy().replace('$', "$$");
    vec![
        json!({"name": "TRAINYARD_JOB", "valueFrom": field(&format!("metadata.labels['{LABEL_JOBSET_NAME}']"))}),
        json!({"name": "TRAINYARD_NODE", "valueFrom": field(RANK_FIELD_PATH)}),
        json!({"name": VARIABLE, "value": format!("{folder}/$(TRAINYARD_JOB)/node-$(TRAINYARD_NODE)")}),
    ]
}

/// The shell command that makes the folder before the script starts.
pub(crate) const MAKE: &str = "mkdir -p \"$TRAINYARD_OUTPUT\" && ";

/// What a job has written, in one line; `None` for a job without such a folder.
pub fn written(job: &Value) -> Option<String> {
    let folder = Path::new(object::annotation(job, ANNOTATION)?).join(object::meta(job, "name"));
    let (mut count, mut bytes) = (0, 0);
    let mut waiting = vec![folder.clone()];
    while let Some(inner) = waiting.pop() {
        for entry in std::fs::read_dir(inner).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            } else if count < FILES_MAX {
                count += 1;
                bytes += metadata.len();
            }
        }
    }
    Some(format!("{} ({}, {})", folder.display(), files(count), ::files::size_shown(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_files_are_counted() {
        let root = std::env::temp_dir().join(format!("trainyard-results-{}", std::process::id()));
        for node in ["node-0", "node-1/deep"] {
            std::fs::create_dir_all(root.join("job").join(node)).unwrap();
            std::fs::write(root.join("job").join(node).join("out"), "1234").unwrap();
        }
        let job = json!({"metadata": {"name": "job", "annotations": {ANNOTATION: root.to_string_lossy()}}});
        assert_eq!(written(&job), Some(format!("{}/job (2 files, 8 B)", root.display())));
        assert_eq!(written(&json!({"metadata": {"name": "job"}})), None);
        let told = variables(Path::new("/a/$b"));
        assert_eq!(told[2]["value"], "/a/$$b/$(TRAINYARD_JOB)/node-$(TRAINYARD_NODE)");
        std::fs::remove_dir_all(root).unwrap();
    }
}
