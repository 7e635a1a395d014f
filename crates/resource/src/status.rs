//! The `Status` answers of a Kubernetes API server: one constructor per reason, messages as upstream's
//! (`k8s.io/apimachinery/pkg/api/errors`).

use api::field::{self, ErrorList};
use serde_json::{Map, Value};

/// A failed request: what the client gets as a `Status` body.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: u16,
    /// Empty where upstream sends none.
    pub reason: &'static str,
    pub message: String,
    /// `details`, absent where upstream sends none.
    pub details: Option<Value>,
    /// `details.causes` of a 422, apart: a list of a hundred thousand faulty elements has as many.
    pub causes: Vec<Cause>,
    /// `metadata.continue`: where an expired list may go on.
    pub list_meta: Option<String>,
    /// Texts of `Warning: 299` headers that go with the failure.
    pub warnings: Vec<String>,
}

/// A fault of a field, as a `Status` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid` and the like.
    pub reason: &'static str,
    pub message: String,
    pub field: String,
}

/// `name.group` as upstream's messages name a resource (`trainjobs.trainer.kubeflow.org`, `pods`).
pub fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut map = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            map.insert(key.to_owned(), value.into());
        }
    }
    Value::Object(map)
}

impl Status {
    /// The same failure with warnings that came before its own.
    #[must_use]
    pub fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings.splice(..0, warnings.iter().cloned());
        self
    }

    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            causes: Vec::new(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        Self {
            code: 404,
            reason: "NotFound",
            message: format!("{} \"{name}\" not found", qualified(group, plural)),
            details: Some(details(group, plural, name)),
            causes: Vec::new(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        Self {
            code: 409,
            reason: "AlreadyExists",
            message: format!("{} \"{name}\" already exists", qualified(group, plural)),
            details: Some(details(group, plural, name)),
            causes: Vec::new(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        Self {
            code: 409,
            reason: "Conflict",
            message: format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural)),
            details: Some(details(group, plural, name)),
            causes: Vec::new(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, plural);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self {
            code: 403,
            reason: "Forbidden",
            message,
            details: Some(details(group, plural, name)),
            causes: Vec::new(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 422: the causes of all field errors.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &ErrorList) -> Self {
        let cause = |e: &field::Error| Cause { reason: e.kind.as_str(), message: e.body(), field: e.field.to_string() };
        let what = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self {
            code: 422,
            reason: "Invalid",
            message: format!("{what} \"{name}\" is invalid: {}", field::aggregate(errors)),
            details: Some(details(group, kind, name)),
            causes: errors.iter().map(cause).collect(),
            list_meta: None,
            warnings: Vec::new(),
        }
    }

    /// The wire form, in Go's field order.
    pub fn to_json(&self) -> String {
        let causes: usize = self
            .causes
            .iter()
            .map(|cause| cause.message.len().saturating_add(cause.field.len()).saturating_add(80))
            .sum();
        let mut out = String::with_capacity(self.message.len().saturating_add(causes).saturating_add(256));
        out += r#"{"kind":"Status","apiVersion":"v1","metadata":{"#;
        if let Some(token) = &self.list_meta {
            out += r#""continue":"#;
            quote(&mut out, token);
        }
        out += r#"},"status":"Failure","message":"#;
        quote(&mut out, &self.message);
        if !self.reason.is_empty() {
            out += &format!(r#","reason":"{}""#, self.reason);
        }
        if let Some(details) = &self.details {
            out += r#","details":"#;
            self.put_details(&mut out, details);
        }
        out += &format!(",\"code\":{}}}\n", self.code);
        out
    }

    /// `details` in Go's field order: name, group, kind, uid, causes, retryAfterSeconds.
    fn put_details(&self, out: &mut String, details: &Value) {
        out.push('{');
        let mut separator = "";
        for name in ["name", "group", "kind", "uid", "causes", "retryAfterSeconds"] {
            let value = details.get(name);
            if value.is_none() && (name != "causes" || self.causes.is_empty()) {
                continue;
            }
            *out += separator;
            separator = ",";
            *out += &format!("\"{name}\":");
            match value {
                Some(Value::Array(causes)) => {
                    let causes: Vec<String> = causes.iter().map(ordered_cause).collect();
                    *out += &format!("[{}]", causes.join(","));
                }
                Some(value) => *out += &value.to_string(),
                None => self.put_causes(out),
            }
        }
        out.push('}');
    }

    fn put_causes(&self, out: &mut String) {
        let mut separator = '[';
        for Cause { reason, message, field } in &self.causes {
            out.push(separator);
            separator = ',';
            *out += r#"{"reason":"#;
            quote(out, reason);
            *out += r#","message":"#;
            quote(out, message);
            *out += r#","field":"#;
            quote(out, field);
            out.push('}');
        }
        out.push(']');
    }
}

/// Writes a text as JSON.
fn quote(out: &mut String, text: &str) {
    *out += &serde_json::to_string(text).unwrap_or_default();
}

fn ordered_cause(cause: &Value) -> String {
    let parts: Vec<String> = ["reason", "message", "field"]
        .iter()
        .filter_map(|key| Some(format!("\"{key}\":{}", cause.get(*key)?)))
        .collect();
    format!("{{{}}}", parts.join(","))
}
