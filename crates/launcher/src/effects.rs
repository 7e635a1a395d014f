//! The effects of the loop of Launches: reads the facts for a step, carries the step out, and records the result.

use crate::Launcher;
use crate::work::Kept;
use api::sky::{Cluster, Launch, LaunchPhase, LaunchStatus};
use effects::{Effects, Unseen};
use jiff::{SignedDuration, Timestamp};
use kube::api::DynamicObject;
use managed::jobs::Job;
use managed::launch::fit::Size;
use managed::launch::step::{self, RENEWED, Step, failed, step};
use managed::names::object_name;
use reconcile::Next;
use serde_json::Value;
use sky::Task;

/// The parts of a Launch whose change wakes its loop. The status is not among them, because the loop writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    generation: i64,
    is_ending: bool,
    /// Name of the launch's Cluster.
    pub(crate) cluster: String,
}

/// A Launch, and the facts about it.
pub(crate) struct Seen {
    object: DynamicObject,
    launch: Launch,
    /// The facts, or why the launch fails.
    around: Result<Around, String>,
}

/// The facts, other than the launch itself, from which a step is decided.
struct Around {
    task: Task,
    cluster: Option<(Value, Cluster)>,
    size: Option<Size>,
    jobs: Vec<Job>,
}

/// Why a step was not completed.
pub(crate) enum Trouble {
    /// A request to the API server failed: the step is repeated.
    Api(kube::Error),
    /// The launch fails with this message.
    Fails(String),
}

impl From<kube::Error> for Trouble {
    /// A request that is refused as invalid, or for lack of a right or a quota, would be refused again.
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status)
                if matches!(status.code, 400..500) && !matches!(status.code, 404 | 408 | 409 | 429) =>
            {
                Self::Fails(format!("the control plane refuses an object of the launch: {}", status.message))
            }
            error => Self::Api(error),
        }
    }
}

impl From<managed::launch::Refused> for Trouble {
    fn from(refused: managed::launch::Refused) -> Self {
        Self::Fails(refused.to_string())
    }
}

/// The effects of a [`Launcher`].
pub(crate) struct Launches(pub(crate) Launcher);

impl Effects for Launches {
    type Mark = Mark;
    type Seen = Seen;
    type Call = Step;
    /// The status to write.
    type Answer = Result<Option<LaunchStatus>, Trouble>;

    fn mark(&self, object: &DynamicObject) -> Mark {
        Mark {
            generation: object.metadata.generation.unwrap_or(0),
            is_ending: object.metadata.deletion_timestamp.is_some(),
            cluster: object_name(object.data["spec"]["cluster"].as_str().unwrap_or_default()),
        }
    }

    async fn look(&self, object: DynamicObject) -> Result<Seen, Unseen> {
        let launch: Launch = serde_json::from_value(serde_json::to_value(&object)?)?;
        let around = match self.0.around(&launch).await {
            Ok(around) => Ok(around),
            Err(Trouble::Api(error)) => return Err(error.into()),
            Err(Trouble::Fails(why)) => Err(why),
        };
        Ok(Seen { object, launch, around })
    }

    fn step(&self, seen: &Seen) -> Option<Step> {
        let now = Timestamp::now();
        let around = match &seen.around {
            Ok(around) => around,
            Err(why) => return Some(Step::Note(failed(&seen.launch, why, now))),
        };
        let Around { task, cluster, size, jobs } = around;
        let cluster = cluster.as_ref().map(|(object, read)| (object, read));
        match step(&step::Seen { launch: &seen.launch, task, cluster, size: *size, jobs, now }) {
            Step::Rest => None,
            step => Some(step),
        }
    }

    async fn call(&self, seen: &Seen, step: &Step) -> Result<Option<LaunchStatus>, Trouble> {
        let (kept, launch) = (Kept::new(&self.0, &seen.launch), &seen.launch);
        let around = seen.around.as_ref().ok();
        let cluster = around.and_then(|around| around.cluster.as_ref());
        match (step, around, cluster) {
            (Step::Wait(status) | Step::Note(status), _, _) => return Ok(Some(status.clone())),
            (Step::Place, Some(around), _) => kept.place(launch, around.task.clone()).await?,
            (Step::Take { patch, is_set_up }, _, Some((cluster, _))) => {
                let taken = kept.take(cluster, patch).await?;
                return Ok(Some(step::taken(launch, &taken, *is_set_up)));
            }
            (Step::Hold, _, Some(_)) => kept.hold(launch).await?,
            (Step::Send, _, Some((cluster, read))) => {
                kept.send(launch, cluster, read).await?;
                return Ok(Some(step::sent(launch)));
            }
            (Step::Submit, Some(around), Some((cluster, read))) => {
                let id = kept.submit(launch, &around.task, (cluster, read), &around.jobs).await?;
                return Ok(Some(step::submitted(launch, id, Timestamp::now())));
            }
            (Step::Abandon, _, Some((cluster, _))) => kept.abandon(cluster).await?,
            (Step::Release, _, _) => {
                kept.drop_secret(launch).await?;
                kept.release(&seen.object).await?;
            }
            // steps about a cluster are none without it
            (Step::Rest | Step::Place, _, _) => {}
            (Step::Take { .. } | Step::Hold | Step::Send | Step::Submit | Step::Abandon, _, _) => {}
        }
        Ok(None)
    }

    async fn note(
        &self,
        seen: &Seen,
        step: &Step,
        answer: Result<Option<LaunchStatus>, Trouble>,
    ) -> kube::Result<Next> {
        let (kept, launch) = (Kept::new(&self.0, &seen.launch), &seen.launch);
        let status = match answer {
            Ok(status) => status,
            Err(Trouble::Api(error)) => return Err(error),
            Err(Trouble::Fails(why)) => Some(failed(launch, &why, Timestamp::now())),
        };
        let Some(status) = status else { return Ok(Next::After(SignedDuration::ZERO)) };
        kept.note(launch, &status).await?;
        if status.phase == LaunchPhase::Failed {
            match kept.drop_secret(launch).await {
                Err(Trouble::Api(error)) => return Err(error),
                Err(Trouble::Fails(why)) => tracing::warn!(why, launch = kept.name, "cannot delete its Secret"),
                Ok(()) => {}
            }
        }
        let pause = if matches!(step, Step::Wait(_)) { RENEWED } else { SignedDuration::ZERO };
        Ok(Next::After(pause))
    }
}

impl Launcher {
    /// Reads only what a step needs.
    async fn around(&self, launch: &Launch) -> Result<Around, Trouble> {
        let kept = Kept::new(self, launch);
        let is_over = launch.status.phase.is_over() || launch.metadata.deletion_timestamp.is_some();
        let cluster = match kept.cluster(launch).await {
            // what has ended cannot fail
            Err(Trouble::Fails(_)) if is_over => None,
            found => found?,
        };
        let phase = Some(launch.status.phase).filter(|_| !is_over);
        let task = match phase {
            Some(LaunchPhase::Pending | LaunchPhase::Submitting) => {
                let catalogue = self.eyes.catalogue(&launch.spec.catalog).await.map_err(Trouble::Fails)?;
                managed::launch::task_of(launch, &catalogue)?
            }
            // the step does not depend on it
            _ => managed::launch::empty_task(),
        };
        let (size, jobs) = match (&cluster, phase) {
            (Some((_, cluster)), Some(LaunchPhase::Pending)) => {
                (Some(kept.size(cluster).await?), kept.jobs(launch).await?)
            }
            (Some(_), Some(LaunchPhase::Submitting)) => (None, kept.jobs(launch).await?),
            _ => (None, Vec::new()),
        };
        Ok(Around { task, cluster, size, jobs })
    }
}
