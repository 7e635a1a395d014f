//! From an OptimizationJob's template to the TrainJob of one trial.

use super::search::{Parameter, VARIABLE_PREFIX};
use crate::job::list;
use crate::names::API_VERSION;
use api::field::{Error, ErrorList, Path};
use api::object;
use api::trainer::Assignment;
use api::trainer::annotations::TTL_SECONDS;
use serde_json::{Map, Value, json};

/// Label of a trial's TrainJob: the name of its OptimizationJob.
pub const LABEL_PARENT: &str = "trainyard.dev/optimizationjob";
/// Annotation of a trial's TrainJob: its values, for people to read. What counts are its variables.
pub const ANNOTATION_PARAMETERS: &str = "trainyard.dev/optimization-parameters";
/// The longest name of a TrainJob.
const NAME_MAX: usize = 63;

/// Name of a trial's TrainJob.
pub fn trial_name(parent: &str, index: usize) -> String {
    format!("{parent}-trial-{index}")
}

/// The parent and index that a trial's name tells.
pub fn parent_of(trial: &str) -> Option<(&str, usize)> {
    let (parent, index) = trial.rsplit_once("-trial-")?;
    Some((parent, index.parse().ok().filter(|n: &usize| n.to_string() == index)?))
}

/// The TrainJob of a trial. Its values are told to the trainer's containers by variables, which stand first, so that the
/// template's own variables, its command and its arguments can refer to them: `$(KUBEFLOW_TRAINER_OPT_LR)`.
pub fn trial(parent: &Value, parameters: &[Parameter], index: usize, values: &[Assignment]) -> Value {
    let name = object::meta(parent, "name");
    let template = parent.pointer("/spec/trainJobTemplate").unwrap_or(&Value::Null);
    let strings = |member: &str| -> Map<String, Value> {
        template["metadata"].get(member).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (mut labels, mut annotations) = (strings("labels"), strings("annotations"));
    labels.insert(LABEL_PARENT.to_owned(), json!(name));
    annotations.insert(ANNOTATION_PARAMETERS.to_owned(), json!(json!(values).to_string()));
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    let value = |parameter: &Parameter| values.iter().find(|v| v.name == parameter.name).map(|v| v.value.clone());
    let mut env: Vec<Value> = parameters
        .iter()
        .map(|parameter| json!({"name": parameter.variable, "value": value(parameter).unwrap_or_default()}))
        .collect();
    env.extend_from_slice(list(&spec["trainer"], "env"));
    if !spec["trainer"].is_object() {
        spec["trainer"] = json!({});
    }
    spec["trainer"]["env"] = json!(env);
    json!({
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {
            "name": trial_name(name, index),
            "namespace": object::meta(parent, "namespace"),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": "OptimizationJob",
                "name": name,
                "uid": object::uid(parent),
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// The values that a trial was made with: what its variables say.
pub fn values(trial: &Value, parameters: &[Parameter]) -> Vec<Assignment> {
    let env = list(&trial["spec"]["trainer"], "env");
    let found = parameters.iter().filter_map(|parameter| {
        let variable = env.iter().find(|variable| object::text(variable, "name") == parameter.variable)?;
        Some(Assignment { name: parameter.name.clone(), value: object::text(variable, "value").to_owned() })
    });
    found.collect()
}

/// What is wrong with an OptimizationJob's name and template, given its parameters, each with its variable, and its number of
/// trials.
pub fn faults(parent: &Value, told: &[(&str, String)], trials: usize) -> ErrorList {
    let mut errors = ErrorList::new();
    let name = object::meta(parent, "name");
    let room = NAME_MAX - trial_name("", trials.saturating_sub(1)).len();
    if name.len() > room {
        let text = format!("may not be longer than {room} characters: its trials are called {name}-trial-0 and so on");
        errors.push(Error::invalid(&Path::new("metadata").child("name"), name, text));
    }
    let field = Path::new("spec").child("trainJobTemplate");
    let template = parent.pointer("/spec/trainJobTemplate").unwrap_or(&Value::Null);
    if template["metadata"]["annotations"].get(TTL_SECONDS).is_some() {
        // a finished trial that is deleted would be run again
        let text = "trials are what the search remembers: they go with the OptimizationJob, not before";
        errors.push(Error::forbidden(&field.child("metadata").child("annotations").key(TTL_SECONDS), text));
    }
    let (field, trainer) = (field.child("spec").child("trainer"), &template["spec"]["trainer"]);
    for (at, variable) in list(trainer, "env").iter().enumerate() {
        let field = field.child("env").index(at);
        let name = object::text(variable, "name");
        if let Some((parameter, _)) = told.iter().find(|(_, variable)| variable == name) {
            let text = format!("{name} tells a trial the parameter {parameter:?}: take it out");
            errors.push(Error::forbidden(&field.child("name"), text));
        }
        errors.extend(unknown(object::text(variable, "value"), told, &field.child("value")));
    }
    for member in ["command", "args"] {
        for (at, word) in list(trainer, member).iter().enumerate() {
            let word = word.as_str().unwrap_or_default();
            errors.extend(unknown(word, told, &field.child(member).index(at)));
        }
    }
    errors
}

/// References in a word, `$(NAME)`, to variables of parameters that there are none of.
fn unknown(word: &str, told: &[(&str, String)], field: &Path) -> ErrorList {
    let known: Vec<String> = told.iter().map(|(_, variable)| format!("$({variable})")).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    references(word)
        .into_iter()
        .filter(|name| name.starts_with(VARIABLE_PREFIX))
        .map(|name| format!("$({name})"))
        .filter(|reference| !known.contains(&reference.as_str()))
        .map(|reference| Error::not_supported(field, reference, &known))
        .collect()
}

/// The variables that a word refers to, as Kubernetes expands it: `$$` stands for `$`.
fn references(word: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            found.push(name);
            rest = after;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_parent_and_index() {
        assert_eq!(parent_of(&trial_name("a-trial-1", 12)), Some(("a-trial-1", 12)));
        for other in ["a", "a-trial-", "a-trial-x", "a-trial-01", "a-trial--1", "a-trial-+1"] {
            assert_eq!(parent_of(other), None, "{other}");
        }
    }

    #[test]
    fn references_are_found_as_kubernetes_does() {
        assert_eq!(references("--lr=$(A)$(B) $$(C) $D $(E"), ["A", "B"]);
        assert_eq!(references("$$$(A)"), ["A"]);
        assert!(references("").is_empty());
    }
}
