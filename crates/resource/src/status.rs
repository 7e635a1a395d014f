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
    /// `details` but for its causes; absent where upstream sends none.
    pub details: Option<Value>,
    /// `details.causes`. A list of a hundred thousand faulty elements has as many, so they are no JSON before they are sent.
    pub causes: Vec<Cause>,
    /// `metadata.continue`: where an expired list may go on.
    pub list_meta: Option<String>,
    /// Texts of `Warning: 299` headers that go with the failure.
    pub warnings: Vec<String>,
}

/// Why a request failed, or what is wrong with one of its fields. What is empty is not sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let message = format!("{} \"{name}\" not found", qualified(group, plural));
        Self { details: Some(details(group, plural, name)), ..Self::new(404, "NotFound", message) }
    }

    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(group, plural));
        Self { details: Some(details(group, plural, name)), ..Self::new(409, "AlreadyExists", message) }
    }

    /// The name of an object that asks for a generated one is taken, whoever gave it (`NewGenerateNameConflict`).
    pub fn generated_name_exists(group: &str, plural: &str, name: &str) -> Self {
        let mut status = Self::already_exists(group, plural, name);
        status.message += ", the server was not able to generate a unique name for the object";
        if let Some(details) = status.details.as_mut() {
            details["retryAfterSeconds"] = 1.into();
        }
        status
    }

    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Self { details: Some(details(group, plural, name)), ..Self::new(409, "Conflict", message) }
    }

    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let what = qualified(group, plural);
        let message = if name.is_empty() {
            format!("{what} is forbidden: {why}")
        } else {
            format!("{what} \"{name}\" is forbidden: {why}")
        };
        Self { details: Some(details(group, plural, name)), ..Self::new(403, "Forbidden", message) }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 500: something here is at fault.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let told = format!("Internal error occurred: {message}");
        let causes = vec![Cause { message, ..Cause::default() }];
        Self { causes, ..Self::new(500, "InternalError", told) }
    }

    /// 422: the causes of all field errors.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &ErrorList) -> Self {
        let cause = |e: &field::Error| Cause { reason: e.kind.as_str(), message: e.body(), field: e.field.to_string() };
        let what = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{what} \"{name}\" is invalid: {}", field::aggregate(errors));
        let causes = errors.iter().map(cause).collect();
        Self { details: Some(details(group, kind, name)), causes, ..Self::new(422, "Invalid", message) }
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
        if self.details.is_some() || !self.causes.is_empty() {
            out += r#","details":"#;
            self.put_details(&mut out);
        }
        out += &format!(",\"code\":{}}}\n", self.code);
        out
    }

    /// `details` in Go's field order: name, group, kind, uid, causes, retryAfterSeconds.
    fn put_details(&self, out: &mut String) {
        let mut separator = '{';
        for name in ["name", "group", "kind", "uid", "causes", "retryAfterSeconds"] {
            let value = self.details.as_ref().and_then(|details| details.get(name));
            if value.is_none() && (name != "causes" || self.causes.is_empty()) {
                continue;
            }
            out.push(separator);
            separator = ',';
            *out += &format!("\"{name}\":");
            match value {
                Some(value) => *out += &value.to_string(),
                None => self.put_causes(out),
            }
        }
        *out += if separator == '{' { "{}" } else { "}" };
    }

    fn put_causes(&self, out: &mut String) {
        let mut between = '[';
        for Cause { reason, message, field } in &self.causes {
            out.push(between);
            between = ',';
            let mut separator = '{';
            for (name, text) in [("reason", *reason), ("message", message), ("field", field)] {
                if !text.is_empty() {
                    out.push(separator);
                    separator = ',';
                    *out += "\"";
                    *out += name;
                    *out += "\":";
                    quote(out, text);
                }
            }
            *out += if separator == '{' { "{}" } else { "}" };
        }
        out.push(']');
    }
}

/// Writes a text as JSON.
fn quote(out: &mut String, text: &str) {
    *out += &serde_json::to_string(text).unwrap_or_default();
}
