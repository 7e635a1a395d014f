//! Why a task file is refused.

use crate::schema::Refusal;
use crate::value::Value;
use crate::yaml::{Place, YamlError};

/// The kind of a refusal, by the name that SkyPilot's exceptions have: programs look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The file does not have the shape of a task file.
    Shape,
    /// A value is wrong.
    Value,
    /// A storage object asks for what does not go together.
    Storage,
    /// A cloud cannot do what is asked.
    Unsupported,
    /// The text is no YAML.
    Yaml,
    /// Nothing that may be used meets what is asked for.
    Unavailable,
}

impl Class {
    /// Whether the exception is one of Python's own and not of SkyPilot's.
    pub fn is_pythons(self) -> bool {
        self == Self::Value
    }

    /// SkyPilot's name of the exception.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shape => "InvalidSkyPilotConfigError",
            Self::Value => "ValueError",
            Self::Storage => "StorageSpecError",
            Self::Unsupported => "NotSupportedError",
            Self::Yaml => "YAMLError",
            Self::Unavailable => "ResourcesUnavailableError",
        }
    }
}

/// Why a task file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// Its kind.
    pub class: Class,
    /// What is wrong, in SkyPilot's words where it has any.
    pub message: String,
    /// Where in its document, as JSONPath (`$.resources.cpus`), where that is known.
    pub path: Option<String>,
    /// Where in its file.
    pub place: Option<Place>,
    /// What else would help, where SkyPilot does not say it.
    pub hint: Option<String>,
}

impl TaskError {
    /// A value is wrong.
    pub fn value(message: impl Into<String>) -> Self {
        Self { class: Class::Value, message: message.into(), path: None, place: None, hint: None }
    }

    /// A storage object asks for what does not go together.
    pub fn storage(message: impl Into<String>) -> Self {
        Self { class: Class::Storage, ..Self::value(message) }
    }

    /// A cloud cannot do what is asked.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { class: Class::Unsupported, ..Self::value(message) }
    }

    /// The file has not the shape it must have.
    pub fn shape(message: impl Into<String>) -> Self {
        Self { class: Class::Shape, ..Self::value(message) }
    }

    /// A refusal of a part of the file: `below` is where the part stands (`$.resources`), `prefix` what the message begins with.
    pub fn refused(refusal: Refusal, prefix: &str, below: &str) -> Self {
        let path = refusal.path.replacen('$', below, 1);
        Self { path: Some(path), ..Self::shape(format!("{prefix}{}", refusal.message)) }
    }

    /// The same, with where it is, unless that is known better.
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path.get_or_insert_with(|| path.into());
        self
    }

    /// The same, with what else would help.
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = self.hint.or(hint);
        self
    }

    /// A value of the wrong type where SkyPilot would fail with an error of Python's.
    pub fn wrong_type(what: &str, value: &Value, wanted: &str) -> Self {
        Self::value(format!("{what} must be {wanted}, not {} ({})", value.quoted(), value.type_name()))
    }
}

impl From<YamlError> for TaskError {
    fn from(error: YamlError) -> Self {
        Self { class: Class::Yaml, place: Some(error.place), ..Self::value(error.message) }
    }
}
