//! What the command line says when something goes wrong: what happened, to which object, and what to do next.

use crate::connect::Cluster;
use crate::exit;
use std::path::PathBuf;

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{0}")]
    Usage(String),
    #[error("{kind} \"{name}\" not found in namespace \"{namespace}\"")]
    NotFound {
        kind: &'static str,
        name: String,
        namespace: String,
        /// Which other was meant, as a question; empty where none is like it.
        near: String,
    },
    #[error("no control plane is running under {home}")]
    NotRunning { home: PathBuf },
    #[error("the control plane under {home} did not become ready")]
    NotReady { home: PathBuf, log: String },
    #[error("cannot reach the API server{}", server.as_ref().map(|url| format!(" at {url}")).unwrap_or_default())]
    Unreachable {
        /// Its URL, once it is known which one was asked.
        server: Option<String>,
        /// The local control plane.
        local: bool,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{0}")]
    Forbidden(String),
    #[error("the server does not take the kubeconfig's credentials: {0}")]
    Unauthorized(String),
    /// The server knows nothing under the path that was asked for.
    #[error("the API server does not serve Kubeflow Trainer's kinds")]
    NotServed,
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
            Self::NotRunning { .. } | Self::NotReady { .. } | Self::Unreachable { .. } => exit::UNREACHABLE,
            Self::Forbidden(_) | Self::Unauthorized(_) | Self::NotServed => exit::FAILURE,
            Self::Api(_) | Self::Io { .. } | Self::Kubeconfig { .. } => exit::FAILURE,
        }
    }

    /// What to try next; empty where the message says it all.
    pub fn hint(&self) -> String {
        match self {
            Self::NotRunning { .. } => {
                "start one: trainyard up --detach\n  or name a cluster: --kubeconfig FILE, --context NAME".to_owned()
            }
            Self::NotReady { log, .. } => format!("see why in its log: {log}"),
            Self::Unreachable { local: true, .. } => "is it running? trainyard status".to_owned(),
            Self::Unreachable { local: false, .. } => {
                "does anything answer there? kubectl cluster-info; for this machine's control plane: --home DIR"
                    .to_owned()
            }
            Self::Forbidden(_) => "see which rights are missing: trainyard doctor".to_owned(),
            Self::Unauthorized(_) => "log in again, or name another user's context: --context NAME".to_owned(),
            Self::NotServed => {
                "install them: kubectl apply --server-side -k manifests/overlays/manager\n  see what else is missing: \
                 trainyard doctor"
                    .to_owned()
            }
            Self::Io { doing: "create", .. } => "choose another folder: --home DIR or TRAINYARD_HOME".to_owned(),
            Self::NotFound { near, .. } if !near.is_empty() => near.clone(),
            Self::NotFound { kind: "TrainJob", .. } => "see which there are: trainyard get".to_owned(),
            Self::NotFound { .. } | Self::Usage(_) | Self::Api(_) | Self::Io { .. } | Self::Kubeconfig { .. } => {
                String::new()
            }
        }
    }

    /// The same, told of the server that was asked.
    pub(crate) fn at(mut self, cluster: &Cluster) -> Self {
        if let Self::Unreachable { server, local, .. } = &mut self {
            *server = Some(cluster.server.clone());
            *local = cluster.local;
        }
        self
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

/// Whether an answer 404 means that the path, and so the kind, is unknown, rather than one object.
pub(crate) fn is_not_served(status: &kube::core::Status) -> bool {
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !named
}

impl From<kube::Error> for CliError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_not_served(&status) => Self::NotServed,
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(status.message.clone()),
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(status.message.clone()),
            kube::Error::Api(status) => Self::Api(status.message.clone()),
            other => Self::Unreachable { server: None, local: false, source: Box::new(other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: serde_json::Value) -> CliError {
        kube::Error::Api(serde_json::from_value(status).expect("a Status")).into()
    }

    #[test]
    fn what_is_not_there_is_told_from_what_is_not_served() {
        use serde_json::json;
        let page = told(json!({"code": 404, "message": "404 page not found", "reason": "Failed to parse error data"}));
        assert!(page.render().contains("manifests/overlays/manager"), "{}", page.render());
        let object = told(json!({"code": 404, "reason": "NotFound", "message": "namespaces \"x\" not found",
            "details": {"name": "x", "kind": "namespaces"}}));
        assert_eq!(object.render(), "error: namespaces \"x\" not found");
        let forbidden = told(json!({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"}));
        assert!(forbidden.render().contains("trainyard doctor"));
    }
}
