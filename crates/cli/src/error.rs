//! What the command line says when something goes wrong: what happened, to which object, and what to do next.

use crate::exit;
use std::path::PathBuf;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("{kind} \"{name}\" not found in namespace \"{namespace}\"")]
    NotFound { kind: &'static str, name: String, namespace: String },
    #[error("no control plane is running under {home}")]
    NotRunning { home: PathBuf },
    #[error("the control plane under {home} did not become ready")]
    NotReady { home: PathBuf, log: String },
    #[error("cannot reach the API server")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{0}")]
    Api(String),
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read {path} as a kubeconfig")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
}

impl CliError {
    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => exit::USAGE,
            Self::NotFound { .. } => exit::NOT_FOUND,
            Self::NotRunning { .. } | Self::NotReady { .. } | Self::Unreachable(_) => exit::UNREACHABLE,
            Self::Api(_) | Self::Io { .. } | Self::Kubeconfig { .. } => exit::FAILURE,
        }
    }

    /// What to try next; empty where the message says it all.
    pub fn hint(&self) -> String {
        match self {
            Self::NotRunning { .. } => "start one: trainyard up --detach".to_owned(),
            Self::NotReady { log, .. } => format!("see why in its log: {log}"),
            Self::Unreachable(_) => "is it running? trainyard status".to_owned(),
            Self::NotFound { kind: "TrainJob", .. } => "see which there are: trainyard get".to_owned(),
            Self::NotFound { .. } | Self::Usage(_) | Self::Api(_) | Self::Io { .. } | Self::Kubeconfig { .. } => {
                String::new()
            }
        }
    }

    /// The error with its sources and its hint, ready to print.
    pub fn render(&self) -> String {
        let mut text = format!("error: {self}");
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // kube's errors repeat their sources
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        let hint = self.hint();
        if hint.is_empty() { text } else { format!("{text}\n  {hint}") }
    }
}

impl From<kube::Error> for CliError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Api(status.message.clone()),
            other => Self::Unreachable(Box::new(other)),
        }
    }
}
