//! What a user who follows a job reads while it waits, and when a node is lost on which it runs: the sentence of `explain`, as soon as it
//! is known and whenever it changes.

use crate::{Machine, home, nodes};
use api::object;
use client::{Cluster, Kind, value};
use diagnose::{Diagnosis, Facts, PodFacts, Reason, diagnose};
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use view::state::Phase;

/// A job that waits this long gets a reason on screen.
const FIRST: Duration = Duration::from_millis(1500);
/// Between two looks; each look that finds nothing new doubles it, up to the last.
const AGAIN: Duration = Duration::from_secs(2);
const AGAIN_MAX: Duration = Duration::from_secs(16);
/// A look that takes longer than this says nothing.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Between two looks at the nodes of a running job.
const NODES_AGAIN: Duration = Duration::from_secs(10);
/// Nodes that are read one by one; of more, all of the cluster are listed.
const NODES_MAX: usize = 16;

/// When to look at a job, and what was found last.
pub struct Reasons {
    phase: Option<Phase>,
    next: Option<Instant>,
    pause: Duration,
    said: String,
}

impl Default for Reasons {
    fn default() -> Self {
        Self { phase: None, next: None, pause: AGAIN, said: String::new() }
    }
}

impl Reasons {
    /// Takes in the job as it is now: one that neither waits nor runs is not looked at.
    pub fn see(&mut self, job: &Value) {
        let phase = Phase::of(job);
        if self.phase.replace(phase) == Some(phase) {
            return;
        }
        self.pause = AGAIN;
        let wait = match phase {
            Phase::Pending => Some(FIRST),
            Phase::Running => Some(NODES_AGAIN),
            Phase::Suspended | Phase::Complete | Phase::Failed => None,
        };
        self.next = wait.map(|wait| api::time::after(Instant::now(), wait));
    }

    /// Returns when the next look is due; never, while the job neither waits nor runs.
    pub async fn due(&self) {
        match self.next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Looks at the job with these pods; the sentence, where it is news.
    pub async fn look(
        &mut self,
        cluster: &Cluster,
        job: &Value,
        pods: Vec<Value>,
        machine: &impl Machine,
    ) -> Option<String> {
        let told = match self.phase {
            Some(Phase::Running) => lost(cluster, job, pods).await,
            _ => {
                let found = looked(cluster, job, machine).await.filter(|found| !is_printed_elsewhere(found));
                found.as_ref().map(waits)
            }
        };
        let news = told.filter(|text| *text != self.said);
        self.pause = match self.phase {
            Some(Phase::Running) => NODES_AGAIN,
            _ if news.is_some() => AGAIN,
            _ => self.pause.saturating_mul(2).min(AGAIN_MAX),
        };
        self.next = Some(api::time::after(Instant::now(), self.pause));
        if let Some(text) = &news {
            self.said.clone_from(text);
        }
        news
    }
}

/// Why a job waits, or that it runs on a node that is lost, for a reader who looks once; `None` for other jobs, and where nothing is known.
pub async fn why(cluster: &Cluster, job: &Value, machine: &impl Machine) -> Option<String> {
    match Phase::of(job) {
        Phase::Pending => looked(cluster, job, machine).await.as_ref().map(waits),
        Phase::Running => {
            let pods = cluster.pods(object::meta(job, "name")).await.ok()?;
            lost(cluster, job, pods).await
        }
        Phase::Suspended | Phase::Complete | Phase::Failed => None,
    }
}

/// The sentence about a lost node on which one of these pods runs. `None` if no node is lost, or nodes may not be read. Reads nodes alone, because a
/// running job is looked at often.
async fn lost(cluster: &Cluster, job: &Value, pods: Vec<Value>) -> Option<String> {
    let pods: Vec<PodFacts> = pods
        .into_iter()
        .filter(|pod| !object::has_ended(pod))
        .map(|pod| PodFacts { pod, live: true, attempt: 1 })
        .collect();
    let of = |pod: &PodFacts| object::text(&pod.pod["spec"], "nodeName").to_owned();
    let names: BTreeSet<String> = pods.iter().map(of).filter(|name| !name.is_empty()).collect();
    let read = async {
        if names.len() > NODES_MAX {
            return Ok(nodes(cluster).await);
        }
        let api = &cluster.api_all(Kind::Node);
        let each = stream::iter(names).map(|name| async move { api.get_opt(&name).await });
        let found: Vec<Option<_>> = each.buffer_unordered(NODES_MAX).try_collect().await?;
        Ok::<_, kube::Error>(found.iter().flatten().map(value).collect())
    };
    let nodes = tokio::time::timeout(LOOK_MAX, read).await.ok()?.ok()?;
    let facts = Facts { job: job.clone(), nodes, pods, now: Timestamp::now(), home: home(cluster), ..Facts::default() };
    Some(diagnose(&facts)).filter(|found| found.reason == Reason::NodeLost).as_ref().map(told)
}

/// The diagnosis of a job, if it is a reason to wait and can be read in time.
async fn looked(cluster: &Cluster, job: &Value, machine: &impl Machine) -> Option<Diagnosis> {
    let facts = tokio::time::timeout(LOOK_MAX, crate::of(cluster, job.clone(), machine)).await.ok()?.ok()?;
    let is_nothing = |reason| {
        matches!(reason, Reason::Complete | Reason::Running | Reason::Starting | Reason::Suspended | Reason::Unknown)
    };
    Some(diagnose(&facts)).filter(|found| !is_nothing(found.reason))
}

fn told(diagnosis: &Diagnosis) -> String {
    format!("{} ({}, {})", diagnosis.why, diagnosis.reason.as_str(), diagnosis.reason.code())
}

fn waits(diagnosis: &Diagnosis) -> String {
    format!("waiting: {}", told(diagnosis))
}

/// Whether the scheduler has written the reason on the pods: whoever follows the job has read it there.
fn is_printed_elsewhere(diagnosis: &Diagnosis) -> bool {
    matches!(
        diagnosis.reason,
        Reason::Unschedulable
            | Reason::NeverFits
            | Reason::Busy
            | Reason::NodeTainted
            | Reason::NodeSelector
            | Reason::PodsApart
            | Reason::NodesNotReady
            | Reason::EarlierRunEnding
            | Reason::GangWaiting
    )
}
