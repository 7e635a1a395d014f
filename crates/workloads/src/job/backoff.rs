//! How long to wait before a failed pod is replaced: 10 s, doubled by each failure in a row, at most 10 min.

use super::pods::{Pod, time};
use super::status::render_time;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const FIRST: SignedDuration = SignedDuration::from_secs(10);
const LONGEST: SignedDuration = SignedDuration::from_mins(10);

/// Where the record of a Job is kept. Upstream keeps it in memory and forgets it on a restart; pods that were deleted leave
/// no other trace of when they failed.
pub const ANNOTATION: &str = "trainyard.dev/job-pod-failures";

/// Failures in a row since the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    failures: u32,
    last: Option<Timestamp>,
}

impl Record {
    /// From the annotation `<failures> <time of the last>`; nothing where there is none, or it cannot be read.
    pub fn read(job: &Value) -> Self {
        let text = api::object::annotation(job, ANNOTATION).unwrap_or_default();
        let Some((failures, last)) = text.split_once(' ') else { return Self::default() };
        match (failures.parse(), time(&Value::from(last))) {
            (Ok(failures), Some(last)) => Self { failures, last: Some(last) },
            _ => Self::default(),
        }
    }

    /// The annotation's value; `None` without failures.
    pub fn render(&self) -> Option<String> {
        self.last.map(|last| format!("{} {}", self.failures, render_time(last)))
    }

    /// Takes in pods that have newly ended. A success ends the row; of the failures only those after it count.
    #[must_use]
    pub fn after(&self, succeeded: &[&Pod], failed: &[&Pod]) -> Self {
        let last_success = succeeded.iter().map(|pod| pod.finished_at()).max();
        let mut record = if last_success.is_some() { Self::default() } else { self.clone() };
        for at in
            failed.iter().map(|pod| pod.finished_at()).filter(|at| last_success.is_none_or(|success| *at > success))
        {
            record.failures = record.failures.saturating_add(1);
            record.last = record.last.max(Some(at));
        }
        record
    }

    /// What is left of the wait; zero where there is none.
    pub fn remaining(&self, now: Timestamp) -> SignedDuration {
        self.last.map_or(SignedDuration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// What is left, at `now`, of the wait after this many failures in a row, the last of them at `last`.
pub fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> SignedDuration {
    if failures == 0 {
        return SignedDuration::ZERO;
    }
    // beyond ten doublings it is the longest in any case
    let wait = FIRST.checked_mul(1 << (failures - 1).min(10)).unwrap_or(LONGEST).min(LONGEST);
    api::time::left(wait, last, now).max(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn second(n: i64) -> Timestamp {
        Timestamp::from_second(n).expect("a time")
    }

    fn ended(at: i64) -> Pod {
        let at = render_time(second(at));
        Pod::read(&Arc::new(json!({"metadata": {"creationTimestamp": at}})))
    }

    #[test]
    fn doubles_up_to_ten_minutes() {
        for (failures, want) in [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (99, 600)] {
            assert_eq!(remaining(failures, second(0), second(0)).as_secs(), want, "{failures}");
        }
        assert_eq!(remaining(1, second(0), second(4)).as_secs(), 6);
        assert_eq!(remaining(1, second(0), second(11)).as_secs(), 0);
    }

    #[test]
    fn a_success_ends_the_row() {
        let record = Record::default().after(&[], &[&ended(3), &ended(5)]);
        assert_eq!(record, Record { failures: 2, last: Some(second(5)) });
        let written = json!({"metadata": {"annotations": {ANNOTATION: record.render()}}});
        assert_eq!(Record::read(&written), record);
        assert_eq!(record.after(&[], &[]), record);
        assert_eq!(record.after(&[&ended(6)], &[]), Record::default());
        assert_eq!(record.after(&[&ended(6)], &[&ended(4), &ended(8)]), Record { failures: 1, last: Some(second(8)) });
        assert_eq!(Record::default().render(), None);
    }
}
