//! Installs the runtimes that come with the operator.
//!
//! Kinds and objects of these kinds cannot be applied in one go: the kind must be served first. So the installation brings
//! the kinds, and the leader brings the runtimes once they are served. A runtime into which others have
//! written is left as it is, and the health report says so.

use crate::cluster::health::{Health, Level};
use crate::cluster::leader::form;
use api::object::text;
use http::{HeaderValue, Method};
use kube::Client;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The part of [`Health`] that this tells of.
const PART: &str = "built-in-runtimes";
/// Until everything is there, so long between two tries.
const SOON: Duration = Duration::from_secs(2);
/// Afterwards: a runtime that is deleted by mistake comes back.
const LATER: Duration = Duration::from_secs(60);

/// See the module.
pub struct Runtimes {
    pub client: Client,
    /// ClusterTrainingRuntimes as they should be.
    pub wanted: Vec<Value>,
    pub health: Arc<Health>,
}

/// How one runtime fares.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    There,
    /// Others own fields of it that ours would change.
    Theirs,
    /// Not now, and why.
    Later(String),
}

impl Runtimes {
    /// Applies them, and again from time to time, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            let applied = async {
                let mut fates = Vec::new();
                for runtime in &self.wanted {
                    fates.push((text(&runtime["metadata"], "name"), self.apply(runtime).await));
                }
                fates
            };
            let fates = tokio::select! {
                fates = applied => fates,
                () = stop.cancelled() => return,
            };
            let (level, message) = summary(&fates);
            self.health.set(PART, level, message);
            let again = fates.iter().any(|(_, fate)| matches!(fate, Fate::Later(_)));
            tokio::select! {
                () = tokio::time::sleep(if again { SOON } else { LATER }) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn apply(&self, runtime: &Value) -> Fate {
        let name = text(&runtime["metadata"], "name");
        let path = format!(
            "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{name}?fieldManager=trainyard&force=false"
        );
        let mut request = form(Method::PATCH, &path, Some(runtime));
        let apply = HeaderValue::from_static("application/apply-patch+yaml");
        request.headers_mut().insert(http::header::CONTENT_TYPE, apply);
        match self.client.request::<Value>(request).await {
            Ok(_) => Fate::There,
            Err(kube::Error::Api(status)) if status.code == 409 => Fate::Theirs,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                Fate::Later("ClusterTrainingRuntime is not served yet".to_owned())
            }
            Err(kube::Error::Api(status)) => Fate::Later(status.message),
            Err(error) => Fate::Later(error.to_string()),
        }
    }
}

/// What to tell of all of them.
fn summary(fates: &[(&str, Fate)]) -> (Level, String) {
    if let Some((name, Fate::Later(why))) = fates.iter().find(|(_, fate)| matches!(fate, Fate::Later(_))) {
        return (Level::Lacks, format!("{name} cannot be installed yet, which is tried again: {why}"));
    }
    let theirs: Vec<&str> = fates.iter().filter(|(_, fate)| *fate == Fate::Theirs).map(|(name, _)| *name).collect();
    if theirs.is_empty() {
        return (Level::Works, format!("{} installed", fates.len()));
    }
    let message = format!(
        "{} left as others made them; to have ours instead: kubectl apply --server-side --force-conflicts \
         --field-manager=trainyard -k manifests/overlays/runtimes",
        theirs.join(", ")
    );
    (Level::Lacks, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_before_what_is_left_alone() {
        let later = || Fate::Later("not served".to_owned());
        let (level, message) = summary(&[("a", Fate::There), ("b", Fate::Theirs), ("c", later())]);
        assert!(level == Level::Lacks && message.starts_with("c ") && message.ends_with("not served"), "{message}");
        let (level, message) = summary(&[("a", Fate::There), ("b", Fate::Theirs)]);
        assert!(level == Level::Lacks && message.starts_with("b left"), "{message}");
        assert_eq!(summary(&[("a", Fate::There)]), (Level::Works, "1 installed".to_owned()));
    }
}
