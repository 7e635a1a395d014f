//! The file that a command names: what SkyPilot refuses of it before it looks at tasks, and where in it something stands.

use std::collections::BTreeMap;

use crate::commands::Call;
use crate::error::TaskError;
use crate::value::{Map, Value, quote};
use crate::yaml::{Document, Place};

/// Options of the command line, by the path of what they say in a task file.
const OPTIONS: [(&str, &[&str]); 4] = [
    (
        "$.resources",
        &[
            "infra",
            "cloud",
            "region",
            "zone",
            "gpus",
            "cpus",
            "memory",
            "instance_type",
            "image_id",
            "disk_tier",
            "network_tier",
            "local_disk",
            "disk_size",
            "use_spot",
            "ports",
        ],
    ),
    ("$.workdir", &["workdir", "git_url", "git_ref"]),
    ("$.num_nodes", &["num_nodes"]),
    ("$.name", &["name"]),
];

/// A task file, and where its values begin.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Its path, as it was named.
    pub(super) name: String,
    /// By path in its document, where it has one task that the command line says nothing else of.
    places: BTreeMap<String, Place>,
}

impl Source {
    /// The source of a file with these documents. What an option of the command line says is not looked for in the file.
    pub(super) fn of(name: &str, documents: &[Document], call: &Call) -> Self {
        let places = match documents {
            [one] => one.places.clone(),
            _ => BTreeMap::new(),
        };
        let said = |options: &[&str]| options.iter().any(|option| !call.values(option).is_empty());
        let given: Vec<&str> = OPTIONS.iter().filter(|(_, options)| said(options)).map(|(path, _)| *path).collect();
        let places =
            places.into_iter().filter(|(path, _)| !given.iter().any(|given| path.starts_with(given))).collect();
        Self { name: name.to_owned(), places }
    }

    /// Where what an error is about begins; the whole document is no place.
    pub(super) fn place(&self, error: &TaskError) -> Option<Place> {
        if error.place.is_some() {
            return error.place;
        }
        let mut path = error.path.as_deref()?;
        while path.len() > 1 {
            if let Some(place) = self.places.get(path) {
                return Some(*place);
            }
            path = path.get(..path.rfind(['.', '['])?)?;
        }
        None
    }
}

/// What is wrong with a file as a whole: a key that stands twice, and no task at all.
///
/// # Errors
/// The first such thing.
pub(super) fn check_whole(name: &str, documents: &[Document]) -> Result<(), TaskError> {
    if let Some(twice) = documents.iter().find_map(|document| document.duplicates.first()) {
        let message = format!(
            "Duplicate key {} in YAML at line {} (also defined at line {}). Remove one of the entries so the intended value is unambiguous.",
            quote(&twice.key),
            twice.place.line,
            twice.first.line
        );
        return Err(TaskError { place: Some(twice.place), ..TaskError::value(message) });
    }
    let is_something = |document: &Document| document.value.as_ref().is_some_and(Value::is_truthy);
    if documents.iter().any(is_something) {
        return Ok(());
    }
    // a list or a number that is empty is told as such, not as nothing
    let is_nothing =
        |document: &Document| document.value.as_ref().is_none_or(|value| value.as_map().is_some_and(Map::is_empty));
    if !documents.iter().all(is_nothing) {
        return Ok(());
    }
    Err(TaskError::value(format!(
        "{} is empty or contains no task definition. Add at least a `run:` (or `setup:`) field.",
        quote(name)
    )))
}
