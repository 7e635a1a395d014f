//! The runtime of a job.

use api::near::did_you_mean;
use api::object;
use api::trainer::names::{LABEL_ANCESTOR, LABEL_FRAMEWORK, NODE};
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind, value};
use kube::api::ListParams;
use serde_json::Value;

/// The runtime of scripts if the user names none.
pub(crate) const DEFAULT: &str = "torch-distributed";
/// The runtime without a framework.
pub(crate) const PLAIN: &str = "plain";

/// A runtime as the server returned it.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    pub object: Value,
    /// `TrainingRuntime` or `ClusterTrainingRuntime`.
    pub kind: &'static str,
}

impl Runtime {
    /// Finds the runtime of this name; one of the namespace comes before one of the cluster.
    ///
    /// Errors: `Usage` if it does not exist.
    pub(crate) async fn find(cluster: &Cluster, name: &str) -> Result<Self, ClientError> {
        let (own, shared) = tokio::join!(
            cluster.find(Kind::TrainingRuntime, name),
            cluster.find_shared(Kind::ClusterTrainingRuntime, name)
        );
        if let Some(object) = own? {
            return Ok(Self { object, kind: "TrainingRuntime" });
        }
        if let Some(object) = shared? {
            return Ok(Self { object, kind: "ClusterTrainingRuntime" });
        }
        let shared = cluster.api_all(Kind::ClusterTrainingRuntime).list(&ListParams::default()).await?;
        let mut there: Vec<Value> = shared.items.iter().map(value).collect();
        there.extend(cluster.list(Kind::TrainingRuntime, "").await?);
        let meant = did_you_mean(name, there.iter().map(|runtime| object::meta(runtime, "name")));
        let flags = &cluster.flags;
        Err(ClientError::Usage(
            ErrorCode::RuntimeUnknown,
            format!(
                "--runtime {name}: there is no such runtime{meant}\n  see which there are: trainyard runtimes{flags}"
            ),
        ))
    }

    pub(crate) fn name(&self) -> &str {
        object::meta(&self.object, "name")
    }

    /// Its framework; empty if it names none.
    pub(crate) fn framework(&self) -> &str {
        object::label(&self.object, LABEL_FRAMEWORK).unwrap_or_default()
    }

    /// Number of nodes of its jobs, if they do not set one.
    pub(crate) fn nodes(&self) -> Option<i64> {
        self.object["spec"]["mlPolicy"]["numNodes"].as_i64()
    }

    /// The steps that run the user's code (in containers called `node`), by the names of their replicated jobs; for MPI, the launcher and
    /// the nodes.
    pub(crate) fn steps(&self) -> Vec<String> {
        let jobs = self.object["spec"]["template"]["spec"]["replicatedJobs"].as_array();
        let runs_code = |job: &&Value| {
            let ancestor = job["template"]["metadata"]["labels"][LABEL_ANCESTOR].as_str().unwrap_or_default();
            let containers = job["template"]["spec"]["template"]["spec"]["containers"].as_array();
            !ancestor.ends_with("-initializer") && containers.into_iter().flatten().any(|c| c["name"] == NODE)
        };
        jobs.into_iter().flatten().filter(runs_code).map(|job| object::text(job, "name").to_owned()).collect()
    }
}
