//! Field errors in Kubernetes' wording (`k8s.io/apimachinery/pkg/util/validation/field`).
//!
//! Validation never stops at the first fault: it collects an [`ErrorList`], which the API server turns into the causes
//! of a 422. Clients and users read these texts, so [`Error`]'s `Display` matches upstream's byte for byte.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// A path to a field, rendered as Kubernetes does: `spec.containers[0].name`, `metadata.labels[a/b]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(String);

impl Path {
    /// Whether it is the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// A path that starts at the named field.
    pub fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    /// The empty path: errors there are about the object itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// `self.name`, or `name` where `self` is the root.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    /// `self[index]`.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// `self[key]`.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The rendered path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// What is wrong with a field; decides the cause's reason and how the message reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl ErrorType {
    /// The `reason` of the cause in a Status (e.g. `FieldValueInvalid`).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The words at the front of the message.
    fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One fault in one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub kind: ErrorType,
    pub field: Path,
    /// The offending value; shown in the message for the kinds that show it. `None` shows nothing.
    pub value: Option<Value>,
    pub detail: String,
    /// How a message shows the value, where that is not its JSON.
    pub shown: Option<String>,
}

/// All faults of an object, in the order in which upstream reports them.
pub type ErrorList = Vec<Error>;

impl Error {
    fn new(kind: ErrorType, field: &Path, value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { kind, field: field.clone(), value, detail: detail.into(), shown: None }
    }

    /// The error with a value that its message shows as this text.
    #[must_use]
    pub fn shown_as(mut self, text: impl Into<String>) -> Self {
        self.shown = Some(text.into());
        self
    }

    pub fn required(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Required, field, None, detail)
    }

    pub fn invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Invalid, field, Some(value.into()), detail)
    }

    pub fn type_invalid(field: &Path, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::TypeInvalid, field, Some(value.into()), detail)
    }

    pub fn duplicate(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::Duplicate, field, Some(value.into()), "")
    }

    pub fn not_found(field: &Path, value: impl Into<Value>) -> Self {
        Self::new(ErrorType::NotFound, field, Some(value.into()), "")
    }

    pub fn forbidden(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Forbidden, field, None, detail)
    }

    /// `Unsupported value: "x": supported values: "a", "b"`.
    pub fn not_supported(field: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(ErrorType::NotSupported, field, Some(value.into()), detail)
    }

    /// `Too long: may not be more than N bytes` (the value is not shown).
    pub fn too_long(field: &Path, max: usize) -> Self {
        let bytes = if max == 1 { "byte" } else { "bytes" };
        Self::new(ErrorType::TooLong, field, None, format!("may not be more than {max} {bytes}"))
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(field: &Path, actual: usize, max: usize) -> Self {
        let items = if max == 1 { "item" } else { "items" };
        Self::new(ErrorType::TooMany, field, Some(Value::from(actual)), format!("must have at most {max} {items}"))
    }

    pub fn internal(field: &Path, detail: impl Into<String>) -> Self {
        Self::new(ErrorType::Internal, field, None, detail)
    }

    /// The message without the field: what a Status cause carries.
    pub fn body(&self) -> String {
        let title = self.kind.title();
        let shown = match (&self.kind, &self.value) {
            (ErrorType::Required | ErrorType::Forbidden | ErrorType::TooLong | ErrorType::Internal, _) | (_, None) => {
                title.to_owned()
            }
            (_, Some(value)) => {
                format!("{title}: {}", self.shown.as_deref().map_or_else(|| render(value), str::to_owned))
            }
        };
        if self.detail.is_empty() { shown } else { format!("{shown}: {}", self.detail) }
    }
}

/// A value as Go's `%v`/`%q` mix in upstream's `field.Error.ErrorBody` shows it: strings quoted, objects as JSON.
fn render(value: &Value) -> String {
    match value {
        Value::String(s) => go_quoted(s),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

/// As Go's `%q` quotes.
fn go_quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for Error {}

/// Errors joined as upstream's aggregate: one alone as it is, several as `[a, b]`, duplicates once.
pub fn aggregate(errors: &[Error]) -> String {
    let mut seen = BTreeSet::new();
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let texts: Vec<&str> = all.iter().map(String::as_str).filter(|text| seen.insert(*text)).collect();
    match texts.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_upstream() {
        let path = Path::new("spec").child("containers").index(0).child("name");
        assert_eq!(Error::required(&path, "").to_string(), "spec.containers[0].name: Required value");
        assert_eq!(
            Error::invalid(&path, "A", "must be lower case").to_string(),
            "spec.containers[0].name: Invalid value: \"A\": must be lower case"
        );
        assert_eq!(
            Error::not_supported(&path, "x", &["a", "b"]).to_string(),
            "spec.containers[0].name: Unsupported value: \"x\": supported values: \"a\", \"b\""
        );
        assert_eq!(aggregate(&[Error::required(&path, ""), Error::forbidden(&path, "no")]).matches(", ").count(), 1);
    }
}
