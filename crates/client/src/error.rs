//! Errors of a client: what happened, to which object, what to do next, and the code (`codes`) of each.

use crate::codes::ErrorCode;
use crate::connect::Cluster;
use api::foreign::visible;
use std::path::PathBuf;

/// A failed request, or what kept it from being made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{1}")]
    Usage(ErrorCode, String),
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
    #[error("{message}")]
    Forbidden {
        message: String,
        /// Flags that lead to the server that was asked, with a blank before them.
        flags: String,
    },
    #[error("the server does not accept the credentials of the kubeconfig: {0}")]
    Unauthorized(String),
    /// The server knows nothing under the path that was asked for.
    #[error("the API server does not serve Kubeflow Trainer's kinds")]
    NotServed,
    #[error("the API server does not serve MPIJobs (kubeflow.org/v2beta1)")]
    NoMpiJobs,
    #[error("{1}")]
    Api(ErrorCode, String),
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

impl ClientError {
    /// The code by which documentation and programs know it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Usage(code, _) | Self::Api(code, _) => *code,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::NotRunning { .. } => ErrorCode::NotRunning,
            Self::NotReady { .. } => ErrorCode::NotReady,
            Self::Unreachable { .. } => ErrorCode::Unreachable,
            Self::Forbidden { .. } => ErrorCode::Forbidden,
            Self::Unauthorized(_) => ErrorCode::Unauthorized,
            Self::NotServed | Self::NoMpiJobs => ErrorCode::NotServed,
            Self::Io { .. } => ErrorCode::FileFailed,
            Self::Kubeconfig { .. } => ErrorCode::KubeconfigUnreadable,
        }
    }

    /// What to try next; empty where the message says it all.
    pub fn hint(&self) -> String {
        match self {
            Self::NotRunning { .. } => {
                "start one: trainyard up --detach\n  or name a cluster: --kubeconfig FILE, --context NAME".to_owned()
            }
            Self::NotReady { log, .. } => format!("see why in its log: {log}"),
            Self::Unreachable { local: true, .. } => "check whether it is running: trainyard status".to_owned(),
            Self::Unreachable { local: false, .. } => {
                "check whether the cluster answers: kubectl cluster-info; to use this machine's control plane: --home DIR"
                    .to_owned()
            }
            Self::Forbidden { flags, .. } => format!("see which rights are missing: trainyard doctor{flags}"),
            Self::Unauthorized(_) => "log in again, or name another user's context: --context NAME".to_owned(),
            Self::NotServed => {
                "install them: kubectl apply --server-side -k manifests/overlays/manager\n  see what else is missing: \
                 trainyard doctor"
                    .to_owned()
            }
            Self::NoMpiJobs => {
                "install them: kubectl apply --server-side -k manifests/overlays/manager\n  or update what serves them: \
                 trainyard up, trainyard operator"
                    .to_owned()
            }
            Self::Io { doing: "create", .. } => "choose another folder: --home DIR or TRAINYARD_HOME".to_owned(),
            Self::NotFound { near, .. } if !near.is_empty() => near.clone(),
            Self::NotFound { kind: "MPIJob", .. } => "see which there are: trainyard mpijob get".to_owned(),
            Self::NotFound { kind: "TrainJob", .. } => "see which there are: trainyard get".to_owned(),
            Self::NotFound { .. } | Self::Usage(..) | Self::Api(..) | Self::Io { .. } | Self::Kubeconfig { .. } => {
                String::new()
            }
        }
    }

    /// The same, told of the server that was asked.
    pub fn at(mut self, cluster: &Cluster) -> Self {
        if let Self::Unreachable { server, local, .. } = &mut self {
            *server = Some(cluster.server.clone());
            *local = cluster.local;
        }
        if let Self::Forbidden { flags, .. } = &mut self {
            flags.clone_from(&cluster.flags);
        }
        self
    }

    /// The error with its sources and its hint, ready to print.
    pub fn render(&self) -> String {
        render(self.code(), self, &self.hint())
    }
}

/// An error with its code, its sources and what to try next, ready to print.
pub fn render(code: ErrorCode, error: &dyn std::error::Error, hint: &str) -> String {
    let chain = api::error_chain(error);
    let text = format!("error[{code}]: {}", visible(&chain));
    if hint.is_empty() { text } else { format!("{text}\n  {hint}") }
}

/// What an error comes from at last.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Whether an answer 404 means that the path, and so the kind, is unknown, rather than one object.
pub fn is_not_served(status: &kube::core::Status) -> bool {
    let named = status.details.as_ref().is_some_and(|details| !details.name.is_empty());
    status.code == 404 && !named
}

impl From<kube::Error> for ClientError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if is_not_served(&status) => Self::NotServed,
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(status.message.clone()),
            kube::Error::Api(status) if status.code == 403 => {
                Self::Forbidden { message: status.message.clone(), flags: String::new() }
            }
            kube::Error::Api(status) => Self::Api(ErrorCode::RequestRefused, status.message.clone()),
            kube::Error::BuildRequest(why) => Self::Usage(ErrorCode::FlagRefused, innermost(&why)),
            other => Self::Unreachable { server: None, local: false, source: Box::new(other) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: serde_json::Value) -> ClientError {
        kube::Error::Api(serde_json::from_value(status).expect("a Status")).into()
    }

    /// No part of a message (between `: `) stands in it twice.
    fn repeats(message: &str) -> bool {
        let parts: Vec<&str> = message.split(": ").flat_map(|part| part.split('\n')).map(str::trim).collect();
        parts.iter().enumerate().any(|(at, part)| parts[..at].contains(part))
    }

    #[test]
    fn nothing_is_said_twice() {
        use std::io::{Error, ErrorKind};
        let io = || Error::new(ErrorKind::PermissionDenied, "Permission denied (os error 13)");
        let config = || {
            let missing = kube::config::Kubeconfig::read_from("/there/is/no/such/file").expect_err("no such file");
            ClientError::Kubeconfig { path: "/there/is/no/such/file".into(), source: Box::new(missing) }
        };
        let unreachable = |source: kube::Error| ClientError::from(source);
        let errors = [
            ClientError::NotRunning { home: "/h".into() },
            ClientError::NotReady { home: "/h".into(), log: "/h/up.log".to_owned() },
            ClientError::NotServed,
            ClientError::Io { doing: "create", path: "/h".into(), source: io() },
            ClientError::Unauthorized("Unauthorized".to_owned()),
            ClientError::NotFound {
                kind: "TrainJob",
                name: "x".to_owned(),
                namespace: "default".to_owned(),
                near: String::new(),
            },
            config(),
            unreachable(kube::Error::Service(Box::new(io()))),
            unreachable(kube::Error::ReadEvents(io())),
            unreachable(kube::Error::HttpError(http::Error::from(http::Uri::try_from("a b").expect_err("no URI")))),
        ];
        for error in errors {
            let rendered = error.render();
            assert!(rendered.starts_with(&format!("error[{}]: ", error.code())), "{rendered}");
            assert!(!repeats(&rendered), "{rendered}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_from_what_is_not_served() {
        use serde_json::json;
        let page = told(json!({"code": 404, "message": "404 page not found", "reason": "Failed to parse error data"}));
        assert!(page.render().contains("manifests/overlays/manager"), "{}", page.render());
        let object = told(json!({"code": 404, "reason": "NotFound", "message": "namespaces \"x\" not found",
            "details": {"name": "x", "kind": "namespaces"}}));
        assert_eq!(object.render(), "error[TY0109]: namespaces \"x\" not found");
        let forbidden = told(json!({"code": 403, "reason": "Forbidden", "message": "pods is forbidden"}));
        assert!(forbidden.render().contains("trainyard doctor"));
    }
}
