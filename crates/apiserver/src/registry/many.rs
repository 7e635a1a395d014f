//! Deletes many objects with few commits: collections, and events that have expired.

use super::{Attempt, Core, DeleteOptions, Target};
use jiff::Timestamp;
use resource::User;
use resource::status::Status;
use serde_json::Value;
use std::time::Duration;
use store::{Op, Txn, WriteError};

/// Objects of one commit at most.
const TOGETHER: usize = 256;
/// Bytes of the objects of one commit, but for the last.
const TOGETHER_BYTES: usize = 4 << 20;
/// Objects after which others get their turn.
const AT_ONCE: usize = 16;

impl Core {
    /// Deletes objects, or starts to; says of each whether it was there, and what clients are warned of. In batches: a batch that loses
    /// a race is carried out one by one. `long`: looking at an object may take long. Those before one that must not be deleted are
    /// deleted, those after it are not.
    ///
    /// # Errors
    /// What [`Core::delete`] says about the first object that cannot be deleted.
    pub(crate) async fn delete_all(
        &self,
        long: bool,
        targets: Vec<Target>,
        options: &DeleteOptions,
        user: &User,
    ) -> Result<(Vec<bool>, Vec<String>), Status> {
        let mut warnings = Vec::new();
        let mut deleted = Vec::with_capacity(targets.len());
        while deleted.len() < targets.len() {
            let rest = targets.get(deleted.len()..).unwrap_or_default();
            let mut batch = self.batch(long, rest, options, user).await?;
            for warning in batch.warnings {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
            let committed = match batch.txn.ops.is_empty() {
                true => Ok(Vec::new()),
                false => self.store.submit(batch.txn).await,
            };
            match committed {
                Ok(_) => {}
                Err(WriteError::Conflict) => {
                    for (target, there) in rest.iter().zip(&mut batch.there) {
                        match self.run(long, || self.delete(target, options, user)).await {
                            Ok(_) => *there = true,
                            Err(status) if status.code == 404 => *there = false,
                            Err(status) => return Err(status),
                        }
                    }
                }
                Err(error) => return Err(super::not_written(&error)),
            }
            if let Some(status) = batch.failed {
                return Err(status);
            }
            deleted.append(&mut batch.there);
        }
        Ok((deleted, warnings))
    }

    /// The deletions of the first of these objects, as many as fit into a commit.
    async fn batch(
        &self,
        long: bool,
        targets: &[Target],
        options: &DeleteOptions,
        user: &User,
    ) -> Result<Batch, Status> {
        let mut batch = Batch::default();
        let mut bytes = 0_usize;
        for target in targets.iter().take(TOGETHER) {
            bytes = bytes.saturating_add(self.entry(target).map_or(0, |entry| entry.length()));
            match self.apart(long, || self.delete(target, options, user)).await {
                Ok(Attempt::Done(answer)) => {
                    batch.warnings.extend(answer.warnings);
                    batch.there.push(true);
                }
                Ok(Attempt::Write(mut pending)) => {
                    batch.warnings.append(&mut pending.warnings);
                    let (txn, _) = pending.split()?;
                    batch.txn.ops.extend(txn.ops);
                    batch.there.push(true);
                }
                Err(status) if status.code == 404 => batch.there.push(false),
                Err(status) => {
                    batch.failed = Some(status);
                    break;
                }
            }
            if bytes >= TOGETHER_BYTES {
                break;
            }
            if batch.there.len() % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(batch)
    }

    /// Deletes the events that nobody has written for `time`; returns how many there were. Those that are written meanwhile
    /// stay, and may keep others of their batch until the next look.
    ///
    /// # Errors
    /// The store cannot write.
    pub async fn expire_events(&self, time: Duration) -> Result<usize, WriteError> {
        let now = self.world.now();
        let bucket: std::sync::Arc<str> = super::bucket("", "events").into();
        let snapshot = self.store.snapshot(&bucket);
        let old =
            |value: &Value| written(value).is_some_and(|at| now.duration_since(at).unsigned_abs() > time && at < now);
        let mut ops: Vec<Op> = Vec::new();
        for entry in snapshot.iter(None, None).filter(|entry| old(&entry.object.glance())) {
            let (bucket, key) = (bucket.clone(), entry.key.clone());
            ops.push(Op::Delete { bucket, key, expect: entry.revision });
        }
        let mut expired = 0_usize;
        for batch in ops.chunks(TOGETHER) {
            match self.store.submit(Txn { ops: batch.to_vec(), ..Txn::default() }).await {
                Ok(events) => expired = expired.saturating_add(events.len()),
                Err(WriteError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(expired)
    }
}

#[derive(Default)]
struct Batch {
    txn: Txn,
    /// Of each object, whether it was there.
    there: Vec<bool>,
    warnings: Vec<String>,
    /// Why the object after these must not be deleted.
    failed: Option<Status>,
}

/// When an object was last written: upstream's lease of an event begins with each write, and each write leaves its time with
/// the fields that its writer manages.
fn written(object: &Value) -> Option<Timestamp> {
    let meta = &object["metadata"];
    let managed = meta.get("managedFields").and_then(Value::as_array).into_iter().flatten().map(|entry| &entry["time"]);
    let times = managed.chain([&meta["creationTimestamp"]]);
    times.filter_map(|time| time.as_str()?.parse().ok()).max()
}
