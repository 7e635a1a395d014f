//! An API server's refusal of an object, taken apart: at which field each error is.

use kube::core::Status;
use serde::Serialize;

/// A step into an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Step {
    Member(String),
    Index(usize),
}

/// An error, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    /// As the server writes it: `spec.trainer.numNodes`; empty: it is about the object as a whole.
    pub field: String,
    /// The way to it.
    pub path: Vec<Step>,
    pub message: String,
}

impl Fault {
    pub fn at(field: &str, message: &str) -> Self {
        let message = api::foreign::visible(message).into_owned();
        Self { field: field.to_owned(), path: steps(field), message }
    }
}

/// The way that a field is written as: `spec.containers[0].env[A]`, `metadata.labels[a.b/c]`.
fn steps(field: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (key, after) = inside.split_once(']').unwrap_or((inside, ""));
            let key = key.trim_matches('"');
            steps.push(key.parse().map_or_else(|_| Step::Member(key.to_owned()), Step::Index));
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (member, after) = rest.split_at(end);
            if !member.is_empty() {
                steps.push(Step::Member(member.to_owned()));
            }
            rest = after.strip_prefix('.').unwrap_or(after);
        }
    }
    steps
}

/// Words by which errors of fields go on after the field.
const KINDS: [&str; 8] = [
    "Invalid value",
    "Required value",
    "Unsupported value",
    "Forbidden",
    "Duplicate value",
    "Not found",
    "Too long",
    "Too many",
];

/// Whether a text is a field, and not a word before a colon.
fn is_field(text: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '[' | ']' | '"' | '-' | '_' | '/');
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_fine)
}

/// The errors of fields that a sentence has, as an admission webhook joins them: `denied the request: spec.a: Invalid value: …`.
fn in_sentence(message: &str) -> Option<Fault> {
    let found = KINDS.iter().filter_map(|kind| message.find(&format!(": {kind}"))).min()?;
    let (before, after) = message.split_at(found);
    let field = before.rsplit([' ', '[']).next().filter(|field| is_field(field));
    // a bracket may be a part of the field
    let field = field.or_else(|| before.rsplit(' ').next().filter(|field| is_field(field)))?;
    Some(Fault::at(field, after.trim_start_matches(": ")))
}

/// `json: cannot unmarshal string into Go struct field Trainer.spec.trainer.numNodes of type int32`, as upstream's webhook says it.
fn of_wrong_type(message: &str) -> Option<Fault> {
    let (before, after) = message.split_once(" into Go struct field ")?;
    let (field, kind) = after.split_once(" of type ")?;
    // the name of the type stands before the way
    let (_, field) = field.split_once('.').filter(|(_, field)| is_field(field))?;
    let what = before.rsplit(": ").next().unwrap_or(before);
    Some(Fault::at(field, &format!("{what} into {kind}")))
}

/// `strict decoding error: unknown field "spec.x", duplicate field "spec.y"`.
fn strict(message: &str) -> Vec<Fault> {
    let Some((_, rest)) = message.split_once("strict decoding error: ") else { return Vec::new() };
    let mut faults = Vec::new();
    for part in rest.split(", ") {
        let Some((what, quoted)) = part.split_once('"') else { continue };
        let field = quoted.trim_end_matches('"');
        faults.push(Fault::at(field, &format!("{} {field}", what.trim())));
    }
    faults
}

/// The errors of a refusal, each at its field.
pub(super) fn of(status: &Status) -> Vec<Fault> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let at_fields: Vec<Fault> = causes
        .iter()
        .filter(|cause| !cause.field.is_empty())
        .map(|cause| Fault::at(&cause.field, &cause.message))
        .collect();
    if !at_fields.is_empty() {
        return at_fields;
    }
    let strict = strict(&status.message);
    if !strict.is_empty() {
        return strict;
    }
    // a name that is taken
    if status.code == 409 && status.reason == "AlreadyExists" {
        return vec![Fault::at("metadata.name", &status.message)];
    }
    in_sentence(&status.message).or_else(|| of_wrong_type(&status.message)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn told(status: Value) -> Vec<(String, String)> {
        let status: Status = serde_json::from_value(status).unwrap();
        of(&status).into_iter().map(|fault| (fault.field, fault.message)).collect()
    }

    fn pair(field: &str, message: &str) -> (String, String) {
        (field.to_owned(), message.to_owned())
    }

    #[test]
    fn fields_are_ways_into_the_object() {
        let member = |name: &str| Step::Member(name.to_owned());
        for (field, wanted) in [
            ("spec.trainer.numNodes", vec![member("spec"), member("trainer"), member("numNodes")]),
            ("spec.env[2].name", vec![member("spec"), member("env"), Step::Index(2), member("name")]),
            ("metadata.labels[a.b/c]", vec![member("metadata"), member("labels"), member("a.b/c")]),
            ("spec.limits[\"cpu\"]", vec![member("spec"), member("limits"), member("cpu")]),
            ("", vec![]),
            ("[", vec![member("")]),
        ] {
            assert_eq!(steps(field), wanted, "{field}");
        }
    }

    #[test]
    fn refusals_say_where_each_error_is() {
        let causes = json!({"message": "it is invalid", "code": 422, "details": {"causes": [
            {"field": "spec.trainer.numNodes", "message": "Invalid value: 0: must be 1 or more", "reason": "FieldValueInvalid"},
            {"field": "metadata.name", "message": "Required value", "reason": "FieldValueRequired"}]}});
        assert_eq!(
            told(causes),
            [
                pair("spec.trainer.numNodes", "Invalid value: 0: must be 1 or more"),
                pair("metadata.name", "Required value")
            ]
        );
        let unknown = "TrainJob in version \"v1alpha1\" cannot be handled as a TrainJob: strict decoding error: unknown field \
            \"spec.trainer.nodes\", unknown field \"spec.x\"";
        assert_eq!(
            told(json!({"message": unknown, "code": 400})),
            [pair("spec.trainer.nodes", "unknown field spec.trainer.nodes"), pair("spec.x", "unknown field spec.x")]
        );
        let webhook =
            "admission webhook \"v\" denied the request: spec.runtimeRef: Invalid value: {\"name\":\"x\"}: not found";
        assert_eq!(
            told(json!({"message": webhook, "code": 403})),
            [pair("spec.runtimeRef", "Invalid value: {\"name\":\"x\"}: not found")]
        );
        let taken = "trainjobs.trainer.kubeflow.org \"a\" already exists";
        assert_eq!(
            told(json!({"message": taken, "code": 409, "reason": "AlreadyExists"})),
            [pair("metadata.name", taken)]
        );
        let typed = "admission webhook \"d\" denied the request: json: cannot unmarshal string into Go struct field \
            Trainer.spec.trainer.numNodes of type int32";
        assert_eq!(
            told(json!({"message": typed, "code": 403})),
            [pair("spec.trainer.numNodes", "cannot unmarshal string into int32")]
        );
        assert_eq!(told(json!({"message": "namespaces \"x\" not found", "code": 404})), []);
    }
}
