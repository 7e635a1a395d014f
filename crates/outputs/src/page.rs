//! What is known of a managed job beside its output. It is kept in the job's folder, because the object forgets older attempts.

use api::object::Key;
use api::sky::ManagedJob;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attempts of a task that are remembered.
const ATTEMPTS_MAX: usize = 1000;

/// `job.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Page {
    pub namespace: String,
    pub name: String,
    /// When the job ended, RFC 3339; empty while it has not.
    pub ended_at: String,
    pub tasks: BTreeMap<u32, TaskPage>,
    /// The output was removed to keep within bounds.
    pub is_removed: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TaskPage {
    pub has_ended: bool,
    pub attempts: BTreeMap<u32, AttemptPage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AttemptPage {
    /// `provider/region/zone`.
    pub place: String,
    /// Why it ended, in words.
    pub evidence: String,
}

impl Page {
    /// Takes over what an object says.
    pub fn note(&mut self, key: &Key, job: &ManagedJob) {
        self.namespace.clone_from(&key.namespace);
        self.name.clone_from(&key.name);
        let status = &job.status;
        if !status.state.has_ended() {
            self.ended_at.clear();
        } else if self.ended_at.is_empty() {
            let times = status.tasks.iter().map(|task| task.ended_at.as_str());
            self.ended_at = times.filter(|time| !time.is_empty()).max().unwrap_or(NO_TIME).to_owned();
        }
        for (task, number) in status.tasks.iter().zip(0..) {
            let page: &mut TaskPage = self.tasks.entry(number).or_default();
            page.has_ended = task.state.has_ended() || status.state.has_ended();
            for attempt in &task.attempts {
                let known = AttemptPage { place: attempt.place.clone(), evidence: attempt.evidence.clone() };
                page.attempts.insert(attempt.number, known);
            }
            while page.attempts.len() > ATTEMPTS_MAX {
                page.attempts.pop_first();
            }
        }
    }

    pub fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    pub fn has_ended(&self) -> bool {
        !self.ended_at.is_empty()
    }

    /// Whether nothing more comes of a task, or of all.
    pub fn task_has_ended(&self, task: Option<u32>) -> bool {
        self.has_ended() || task.is_some_and(|task| self.tasks.get(&task).is_some_and(|task| task.has_ended))
    }

    /// Whether a mark before this attempt has a place and a reason.
    pub fn knows(&self, task: u32, attempt: u32, previous: Option<u32>) -> bool {
        let find = |number: u32| self.tasks.get(&task).and_then(|task| task.attempts.get(&number));
        let has_place = find(attempt).is_some_and(|found| !found.place.is_empty());
        has_place && previous.is_none_or(|number| find(number).is_some_and(|found| !found.evidence.is_empty()))
    }

    /// The line before an attempt; `previous` is the attempt of this task whose output precedes it.
    pub fn mark(&self, task: u32, attempt: u32, previous: Option<u32>) -> String {
        let attempts = self.tasks.get(&task).map(|task| &task.attempts);
        let find = |number: u32| attempts.and_then(|attempts| attempts.get(&number));
        let mut line = "--- ".to_owned();
        if self.tasks.len() > 1 {
            line += &format!("task {task}, ");
        }
        line += &format!("attempt {attempt}");
        if let Some(place) = find(attempt).map(|found| &found.place).filter(|place| !place.is_empty()) {
            line += &format!(" on {place}");
        }
        let before = previous.and_then(find).filter(|found| !found.evidence.is_empty());
        if let Some(before) = before {
            line += &format!(", because: {}", before.evidence);
        }
        match previous.map_or(0, |previous| attempt.saturating_sub(previous + 1)) {
            0 => {}
            1 => line += " (one attempt between had no output)",
            several => line += &format!(" ({several} attempts between had no output)"),
        }
        line += " ---";
        api::foreign::visible_line(&line).into_owned()
    }
}

/// Sorts before all times.
const NO_TIME: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(status: serde_json::Value) -> ManagedJob {
        serde_json::from_value(json!({"spec": {"id": 1, "submission": "s"}, "status": status})).unwrap()
    }

    #[test]
    fn a_mark_names_place_and_reason() {
        let mut page = Page::default();
        let attempts = json!([
            {"number": 1, "place": "ssh/pool/h1", "ground": "MachinesLost", "evidence": "machine h1 is gone"},
            {"number": 2, "evidence": "no capacity"},
            {"number": 4, "place": "ssh/pool/h2"},
        ]);
        let status = json!({"state": "RUNNING", "tasks": [{"state": "RUNNING", "attempts": attempts}]});
        page.note(&Key::new("default", "job-1"), &job(status));
        assert_eq!(page.mark(0, 1, None), "--- attempt 1 on ssh/pool/h1 ---");
        assert_eq!(page.mark(0, 2, Some(1)), "--- attempt 2, because: machine h1 is gone ---");
        let expected =
            "--- attempt 4 on ssh/pool/h2, because: machine h1 is gone (2 attempts between had no output) ---";
        assert_eq!(page.mark(0, 4, Some(1)), expected);
        assert!(page.knows(0, 1, None) && page.knows(0, 4, Some(1)));
        assert!(!page.knows(0, 2, Some(1)) && !page.knows(0, 5, None) && !page.knows(0, 1, Some(4)));
        assert_eq!(page.mark(0, 9, Some(7)), "--- attempt 9 (one attempt between had no output) ---");
        assert!(!page.task_has_ended(None) && !page.task_has_ended(Some(0)));
    }

    #[test]
    fn earlier_attempts_are_remembered() {
        let mut page = Page::default();
        let key = Key::new("default", "job-1");
        let status = |number: u32, state: &str, ended: &str| {
            let attempts = json!([{"number": number, "place": "local", "evidence": format!("e{number}\u{1b}")}]);
            json!({"state": state, "tasks": [
                {"state": "SUCCEEDED", "endedAt": "2026-01-01T00:00:00Z"},
                {"state": state, "attempts": attempts, "endedAt": ended},
            ]})
        };
        page.note(&key, &job(status(1, "RUNNING", "")));
        assert!(page.task_has_ended(Some(0)) && !page.task_has_ended(Some(1)) && !page.has_ended());
        page.note(&key, &job(status(2, "FAILED", "2026-01-02T00:00:00Z")));
        assert_eq!(page.mark(1, 2, Some(1)), "--- task 1, attempt 2 on local, because: e1\\x1b ---");
        assert!(page.has_ended() && page.task_has_ended(Some(1)));
        assert_eq!(page.ended_at, "2026-01-02T00:00:00Z");
    }
}
