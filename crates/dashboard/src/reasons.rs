//! Why the jobs of a page wait or have failed, in a sentence each: read with the user's token, for the rows on the page alone, and kept for a
//! few seconds.

use crate::row::{Kind, Row};
use crate::sessions::Session;
use client::{Cluster, pods_of};
use facts::said;
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a sentence counts while the job's row stays the same.
const KEPT: Duration = Duration::from_secs(15);
/// How long a job may take to be read.
const READ_MAX: Duration = Duration::from_secs(3);
/// Jobs that are read at the same time.
const AT_ONCE: usize = 8;
/// Sentences that are kept.
const MOST: usize = 2000;

struct Known {
    state: String,
    found: Instant,
    reason: String,
}

/// By the job's uid.
#[derive(Default)]
pub(crate) struct Reasons(Mutex<HashMap<String, Known>>);

impl Reasons {
    /// Gives the rows the sentences that are known, also old ones: they are better than none.
    pub fn fill(&self, rows: &mut [Row]) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            if let Some(known) = known.get(&row.uid).filter(|known| known.state == row.state) {
                row.reason.clone_from(&known.reason);
            }
        }
    }

    fn is_fresh(&self, row: &Row) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&row.uid).is_some_and(|known| known.state == row.state && known.found.elapsed() < KEPT)
    }

    fn keep(&self, row: &Row, reason: String) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, known| known.found.elapsed() < KEPT);
        }
        if known.len() < MOST {
            known.insert(row.uid.clone(), Known { state: row.state.clone(), found: Instant::now(), reason });
        }
    }
}

/// Whether there is more to say of a row than its object says.
fn is_asked(row: &Row) -> bool {
    row.kind == Kind::TrainJob && !matches!(row.group.as_str(), "running" | "complete")
}

/// Finds the sentences that are missing or old; whether any is new.
pub async fn find(session: &Session, rows: &[Row]) -> bool {
    let wanted: Vec<Row> = rows.iter().filter(|row| is_asked(row) && !session.reasons.is_fresh(row)).cloned().collect();
    let reads = futures::stream::iter(wanted).map(|row| {
        let cluster = session.cluster.clone();
        async move {
            let reason = tokio::time::timeout(READ_MAX, read(&cluster, &row)).await.ok().flatten();
            (row, reason)
        }
    });
    let found: Vec<(Row, Option<String>)> = reads.buffer_unordered(AT_ONCE).collect().await;
    let mut is_new = false;
    for (row, reason) in found {
        let reason = reason.unwrap_or_else(|| row.reason.clone());
        is_new |= reason != row.reason;
        session.reasons.keep(&row, reason);
    }
    is_new
}

/// Why a TrainJob is as it is; `None` where it cannot be read.
async fn read(cluster: &Cluster, row: &Row) -> Option<String> {
    let cluster = Cluster { namespace: row.namespace.clone(), ..cluster.clone() };
    let labels = pods_of(&row.name);
    let (job, jobset, pods) = futures::join!(
        cluster.find(client::Kind::TrainJob, &row.name),
        cluster.find(client::Kind::JobSet, &row.name),
        cluster.list(client::Kind::Pod, &labels),
    );
    let job = job.ok().flatten()?;
    // without the right to read them there is less to say
    let (jobset, pods) = (jobset.ok().flatten().unwrap_or(Value::Null), pods.unwrap_or_default());
    Some(said(&cluster, &job, &jobset, &pods, Timestamp::now()))
}
