//! The objects of a task's job on a cluster: a JobSet for its `run`, and one before it for its `setup`.

use super::fit::fits;
use super::{Refused, gpus};
use crate::jobs::Submission;
use api::sky::{Cluster, Launch};
use jiff::Timestamp;
use serde_json::{Value, json};
use sky::resources::Resources;
use sky::task::Task;

/// Whether the `setup` of a task runs before its job.
pub enum Setup {
    LeftOut,
    /// It does if the task has one; the job records this configuration as set up.
    As(String),
}

/// A task as a job of a cluster.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    submission: Submission,
    cluster: &'a Cluster,
    setup: Option<String>,
}

impl<'a> Job<'a> {
    /// `object` is the Cluster as the API returned it, `shown` the name that its user sees.
    ///
    /// # Errors
    /// The cluster lacks what the task asks for.
    pub fn new(
        object: &'a Value,
        cluster: &'a Cluster,
        shown: &str,
        task: &Task,
        setup: Setup,
        user: &str,
        now: Timestamp,
    ) -> Result<Self, Refused> {
        let each = fits(cluster, shown, task, None)?;
        let (script, configuration) = match setup {
            Setup::LeftOut => (None, String::new()),
            Setup::As(configuration) => (task.setup.clone(), configuration),
        };
        let place = cluster.at().cloned().unwrap_or_default();
        let none_if_empty = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
        let submission = Submission {
            cluster_shown: shown.to_owned(),
            name: task.name.clone().unwrap_or_default(),
            user: user.to_owned(),
            gpus: gpus(each).map_or(0.0, |gpus| gpus.count),
            resources: job_resources(task.num_nodes, each),
            run_timestamp: format!("sky-{}", now.strftime("%Y-%m-%d-%H-%M-%S-%6f")),
            script: task.run.clone().unwrap_or_default(),
            is_setup: false,
            has_setup: script.is_some(),
            configuration,
            cluster_info: json!({
                "cluster_name": shown, "cloud": place.provider,
                "region": none_if_empty(&place.region), "zone": none_if_empty(&place.zone),
            }),
            ..Submission::on(object, 0, u32::try_from(task.num_nodes).unwrap_or(1))
        };
        Ok(Self { submission, cluster, setup: script })
    }

    /// Makes it the job of a launch: adds the launch's uid, the Secret with its variables, and its managed job.
    pub fn of(mut self, launch: &Launch) -> Self {
        self.submission.secret.clone_from(&launch.spec.secret);
        self.submission.launch = launch.metadata.uid.clone().unwrap_or_default();
        self.submission.managed.clone_from(&launch.spec.managed);
        self
    }

    /// The JobSet of its `run`; `id` is the job's number on the cluster.
    pub fn main(&self, id: u32) -> Value {
        Submission { id, ..self.submission.clone() }.jobset()
    }

    /// The JobSet of its `setup`, which runs on the machines of the job.
    pub fn setup(&self, id: u32) -> Option<Value> {
        let script = self.setup.clone()?;
        let nodes = u32::try_from(self.cluster.spec.nodes).unwrap_or(1).min(self.submission.nodes.max(1));
        Some(Submission { id, script, is_setup: true, nodes, ..self.submission.clone() }.jobset())
    }
}

/// The resources that a task's job holds: `1x[CPU:1+]`, `2x[H100:8]`.
pub(crate) fn job_resources(nodes: i128, each: &Resources) -> String {
    let each = gpus(each).map_or_else(|| "CPU:1+".to_owned(), |gpus| format!("{}:{}", gpus.name, gpus.count));
    format!("{nodes}x[{each}]")
}
