//! What a user who follows a job reads while it waits: the sentence of `explain`, as soon as it is known and whenever it changes.

use crate::ThisMachine;
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
    pub async fn look(&mut self, cluster: &Cluster, job: &Value) -> Option<String> {
        let read = tokio::time::timeout(LOOK_MAX, crate::of(cluster, job.clone(), &ThisMachine)).await;
        let told = read.ok().and_then(Result::ok).map(|facts| diagnose(&facts)).and_then(sentence);
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
pub async fn why(cluster: &Cluster, job: &Value) -> Option<String> {
    if Phase::of(job) != Phase::Pending {
        return None;
    }
    let read = tokio::time::timeout(LOOK_MAX, crate::of(cluster, job.clone(), &ThisMachine)).await;
    let diagnosis = diagnose(&read.ok()?.ok()?);
    let is_nothing = matches!(
        diagnosis.reason,
        Reason::Complete | Reason::Running | Reason::Starting | Reason::Suspended | Reason::Unknown
    );
    (!is_nothing).then(|| told(&diagnosis))
}

fn told(diagnosis: &Diagnosis) -> String {
    format!("waiting: {} ({}, {})", diagnosis.why, diagnosis.reason.as_str(), diagnosis.reason.code())
}

/// What a diagnosis says of a wait. What the scheduler writes on pods is printed as soon as it is there, and not again here.
fn sentence(diagnosis: Diagnosis) -> Option<String> {
    match diagnosis.reason {
        Reason::Complete | Reason::Running | Reason::Starting | Reason::Suspended | Reason::Unknown => None,
        Reason::Unschedulable
        | Reason::NeverFits
        | Reason::Busy
        | Reason::NodeTainted
        | Reason::NodeSelector
        | Reason::PodsApart
        | Reason::NodesNotReady
        | Reason::EarlierRunEnding
        | Reason::GangWaiting => None,
        _ => Some(told(&diagnosis)),
    }
}
