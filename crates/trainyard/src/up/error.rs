//! Why the control plane cannot start, with codes and exit codes.

use crate::pki::PkiError;
use apiserver::ServeError;
use cli::exit;
use client::ClientError;
use client::codes::ErrorCode;
use operator::embedded::install::InstallError;
use std::path::PathBuf;

/// Why the control plane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{1}")]
    Usage(ErrorCode, String),
    #[error("cannot listen on {address}")]
    Listen {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot open the database {path}")]
    Store {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot set up keys and certificates")]
    Pki(#[from] PkiError),
    #[error("cannot use the certificates")]
    Tls(#[from] ServeError),
    #[error("cannot install kinds and runtimes")]
    Install(#[from] InstallError),
    #[error("cannot start the node agent; without one: trainyard up --no-node")]
    Node(#[source] std::io::Error),
    #[error("the agent of this machine's node cannot run")]
    Agent(#[source] std::io::Error),
    #[error("cannot write the audit log {path}")]
    Audit {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot print")]
    Print(#[source] std::io::Error),
    #[error("the operator cannot run")]
    Operator {
        code: ErrorCode,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl UpError {
    /// What keeps the operator from running.
    pub fn operator<E: std::error::Error + Send + Sync + 'static>(code: ErrorCode) -> impl Fn(E) -> Self {
        move |error| Self::Operator { code, source: Box::new(error) }
    }

    /// The code by which documentation and programs know it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Client(error) => error.code(),
            Self::Usage(code, _) | Self::Operator { code, .. } => *code,
            Self::Listen { .. } => ErrorCode::ListenFailed,
            Self::Store { source, .. } => match source.downcast_ref() {
                Some(store::OpenError::Newer { .. }) => ErrorCode::DatabaseNewer,
                _ => ErrorCode::DatabaseUnopened,
            },
            Self::Pki(_) | Self::Tls(_) => ErrorCode::KeysFailed,
            Self::Install(_) => ErrorCode::KindsNotInstalled,
            Self::Node(_) | Self::Agent(_) => ErrorCode::NodeFailed,
            Self::Audit { .. } => ErrorCode::AuditLogFailed,
            Self::Print(_) => ErrorCode::PrintFailed,
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Client(error) => exit::of(error),
            Self::Usage(..) => exit::USAGE,
            Self::Listen { .. }
            | Self::Store { .. }
            | Self::Pki(_)
            | Self::Tls(_)
            | Self::Install(_)
            | Self::Node(_)
            | Self::Agent(_)
            | Self::Audit { .. }
            | Self::Print(_)
            | Self::Operator { .. } => exit::FAILURE,
        }
    }

    /// The error with its code and its sources, ready to print.
    pub fn render(&self) -> String {
        match self {
            Self::Client(error) => error.render(),
            _ => client::render(self.code(), self, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice() {
        let io = || std::io::Error::other("Permission denied");
        let newer = store::OpenError::Newer { format: 9, by: "9.0.0".to_owned(), known: 1 };
        let store =
            |source: Box<dyn std::error::Error + Send + Sync>| UpError::Store { path: "/h/store.db".into(), source };
        let settings = operator::cluster::settings::SettingsError::Read { path: "/c".into(), source: io() };
        let errors = [
            (UpError::Listen { address: "127.0.0.1:1".to_owned(), source: io() }, "TY0402"),
            (store(Box::new(newer)), "TY0404"),
            (store(Box::new(store::OpenError::File(io()))), "TY0403"),
            (UpError::Pki(PkiError::Io { path: "/h/pki".into(), source: io() }), "TY0405"),
            (UpError::Node(io()), "TY0407"),
            (UpError::Agent(io()), "TY0407"),
            (UpError::Audit { path: "/a".into(), source: io() }, "TY0408"),
            (UpError::Print(io()), "TY0410"),
            (UpError::operator(ErrorCode::OperatorSettings)(settings), "TY0601"),
            (ClientError::NotServed.into(), "TY0106"),
        ];
        for (error, code) in errors {
            let rendered = error.render();
            assert!(rendered.starts_with(&format!("error[{code}]: ")), "{rendered}");
            let parts: Vec<&str> = rendered.split(": ").flat_map(|part| part.split('\n')).map(str::trim).collect();
            let repeated = parts.iter().enumerate().find(|(at, part)| parts[..*at].contains(part));
            assert!(repeated.is_none(), "{repeated:?} in {rendered}");
        }
    }
}
