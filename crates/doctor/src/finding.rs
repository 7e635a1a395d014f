//! The findings of an examination: how serious each is, and what to do about it.

use crate::facts::Seen;
use client::codes::ErrorCode;

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    Unknown,
    Warning,
    Error,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// `None` if all is well.
    pub code: Option<ErrorCode>,
    /// The name of the check: `versions`, `health`, `kinds`, `rights`, `webhooks`, `controllers`, `nodes`, `runtimes`, `jobs`.
    pub check: &'static str,
    /// `Kind/name` or `Kind/namespace/name`.
    pub object: String,
    pub message: String,
    pub remedy: Remedy,
}

/// What to do about a finding: words, a command line to type, or both; neither if there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remedy {
    pub text: String,
    pub command: String,
}

impl Remedy {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// An action for which there is no command.
    pub(crate) fn advise(text: impl Into<String>) -> Self {
        Self { text: text.into(), command: String::new() }
    }

    pub(crate) fn run(command: impl Into<String>) -> Self {
        Self { text: String::new(), command: command.into() }
    }

    /// A command and its purpose.
    pub(crate) fn why(text: impl Into<String>, command: impl Into<String>) -> Self {
        Self { text: text.into(), command: command.into() }
    }

    pub fn is_none(&self) -> bool {
        self.text.is_empty() && self.command.is_empty()
    }
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.text.is_empty() || self.command.is_empty() { "" } else { ": " };
        write!(f, "{}{mark}{}", self.text, self.command)
    }
}

/// The findings of one check.
pub(crate) struct Findings {
    check: &'static str,
    pub all: Vec<Finding>,
}

impl Findings {
    pub(crate) fn new(check: &'static str) -> Self {
        Self { check, all: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        code: ErrorCode,
        severity: Severity,
        object: impl Into<String>,
        message: impl Into<String>,
        remedy: Remedy,
    ) {
        self.push(Some(code), severity, object.into(), message.into(), remedy);
    }

    fn push(&mut self, code: Option<ErrorCode>, severity: Severity, object: String, message: String, remedy: Remedy) {
        self.all.push(Finding { severity, code, check: self.check, object, message, remedy });
    }

    pub(crate) fn ok(&mut self, object: impl Into<String>, message: impl Into<String>) {
        self.push(None, Severity::Ok, object.into(), message.into(), Remedy::none());
    }

    pub(crate) fn unknown(&mut self, object: impl Into<String>, why: &str) {
        self.add(ErrorCode::NotVisible, Severity::Unknown, object, format!("unknown: {why}"), Remedy::none());
    }

    /// Reports which of these facts are unknown.
    pub(crate) fn unseen<T>(&mut self, object: &str, seen: &Seen<T>) {
        if let Seen::Unknown(why) = seen {
            self.unknown(object, why);
        }
    }
}
