//! The kind `ControllerRevision` of apps/v1: a state that a controller kept, which never changes.

use super::super::kit::{age, at, int, items, same, text};
use api::field::{Error, ErrorList, Path};
use jiff::Timestamp;
use resource::{Context, Facts, Strategy};
use serde_json::{Value, json};

/// The kind `ControllerRevision`.
pub struct ControllerRevisions;

fn number_faults(object: &Value) -> ErrorList {
    let number = int(object, "revision").unwrap_or_default();
    let path = Path::new("revision");
    if number < 0 { vec![Error::invalid(&path, number, "must be greater than or equal to 0")] } else { Vec::new() }
}

impl Strategy for ControllerRevisions {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, ..Facts::default() }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        let mut errors = number_faults(new);
        let path = Path::new("data");
        match at(new, "data") {
            Value::Object(_) => {}
            Value::Null => errors.push(Error::required(&path, "data is mandatory")),
            _ => errors.push(Error::required(&path, "data must be a valid JSON object")),
        }
        errors
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = number_faults(new);
        if !same(at(new, "data"), at(old, "data")) {
            errors.push(Error::invalid(&Path::new("data"), at(new, "data").clone(), "field is immutable"));
        }
        errors
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let owner = items(object, "metadata.ownerReferences").iter().find(|owner| owner["controller"] == true);
        let owner = owner.map_or_else(
            || "<none>".to_owned(),
            |owner| {
                let group =
                    text(owner, "apiVersion").split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
                format!("{}{group}/{}", text(owner, "kind").to_lowercase(), text(owner, "name"))
            },
        );
        let number = int(object, "revision").unwrap_or_default();
        vec![json!(text(object, "metadata.name")), json!(owner), json!(number), age(object, now)]
    }
}
