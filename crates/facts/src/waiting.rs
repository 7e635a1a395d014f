//! What a user who follows a job reads while it waits: the sentence of `explain`, as soon as it is known and whenever it changes.

use crate::Machine;
use client::Cluster;
use diagnose::{Diagnosis, Reason, diagnose};
use serde_json::Value;
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

/// When to look at a waiting job, and what was found last.
pub struct Reasons {
    next: Option<Instant>,
    pause: Duration,
    said: String,
}

impl Default for Reasons {
    fn default() -> Self {
        Self { next: None, pause: AGAIN, said: String::new() }
    }
}

impl Reasons {
    /// Takes in the job as it is now: one that does not wait is not looked at.
    pub fn see(&mut self, job: &Value) {
        match Phase::of(job) {
            Phase::Pending if self.next.is_none() => {
                self.pause = AGAIN;
                self.next = Some(api::time::after(Instant::now(), FIRST));
            }
            Phase::Pending => {}
            _ => self.next = None,
        }
    }

    /// Returns when the next look is due; never, while the job does not wait.
    pub async fn due(&self) {
        match self.next {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Looks at the job; the sentence, where it is news.
    pub async fn look(&mut self, cluster: &Cluster, job: &Value, machine: &impl Machine) -> Option<String> {
        let told = looked(cluster, job, machine).await.filter(|found| !is_printed_elsewhere(found)).as_ref().map(told);
        let news = told.filter(|text| *text != self.said);
        self.pause = if news.is_some() { AGAIN } else { self.pause.saturating_mul(2).min(AGAIN_MAX) };
        self.next = Some(api::time::after(Instant::now(), self.pause));
        if let Some(text) = &news {
            self.said.clone_from(text);
        }
        news
    }
}

/// Why a job waits, for a reader who looks once; `None` for a job that does not wait, and where nothing is known.
pub async fn why(cluster: &Cluster, job: &Value, machine: &impl Machine) -> Option<String> {
    if Phase::of(job) != Phase::Pending {
        return None;
    }
    looked(cluster, job, machine).await.as_ref().map(told)
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
    format!("waiting: {} ({}, {})", diagnosis.why, diagnosis.reason.as_str(), diagnosis.reason.code())
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
