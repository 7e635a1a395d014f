//! The store over restarts, at its bounds, and as jobs go.

use super::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

fn bounds() -> Bounds {
    Bounds { rank: 2000, job: 4000, all: 6000, file: 500 }
}

fn job(uid: &str, state: &str) -> ManagedJob {
    let ended = if state == "RUNNING" { String::new() } else { format!("2026-01-01T00:00:00Z {uid}") };
    let tasks = json!([{"state": state, "endedAt": ended, "attempts": [{"number": 1, "place": "local"}]}]);
    let value = json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"id": 1, "submission": "s"},
        "status": {"state": state, "tasks": tasks},
    });
    serde_json::from_value(value).unwrap()
}

fn part(attempt: u32) -> Part {
    Part { task: 0, attempt, stage: Stage::Run }
}

fn line(number: usize) -> Line {
    Line { time: format!("t{number:04}"), text: format!("line {number:04}").into_bytes(), is_part: false }
}

fn fill(outputs: &Outputs, uid: &str, attempt: u32, lines: usize) -> Writer {
    let writer = outputs.begin(uid, part(attempt), &format!("{uid}-{attempt}"), "head").unwrap().unwrap();
    (0..lines).for_each(|number| writer.append(&[line(number)]).unwrap());
    writer
}

#[test]
fn a_restart_finds_what_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("managed");
    let outputs = Outputs::new(root.clone());
    outputs.saw_job(&job("a", "RUNNING")).unwrap();
    assert!(!root.exists(), "a job without output has no files");
    let writer = fill(&outputs, "a", 1, 3);
    assert_eq!(outputs.uid(&Key::new("default", "a")).as_deref(), Some("a"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&root), mode(&root.join("a/job.json"))), (0o700, 0o600));
    drop(writer);

    let again = Outputs::new(root);
    assert_eq!(again.known(), BTreeSet::from(["a".to_owned()]));
    let kept = again.job("a").unwrap();
    assert_eq!(kept.parts(None), [part(1)]);
    assert!(kept.parts(Some(1)).is_empty());
    assert_eq!(kept.page().mark(0, 1, None), "--- attempt 1 on local ---");
    let writer = again.begin("a", part(1), "a-1", "head").unwrap().unwrap();
    let position = writer.position().unwrap().unwrap();
    assert_eq!(position, Position { time: "t0002".to_owned(), same: 1, torn: 0 });
    writer.complete().unwrap();
    assert_eq!(writer.position().unwrap(), None);
}

#[test]
fn the_oldest_lines_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::bounded(folder.path().to_owned(), bounds());
    let kept = outputs.saw_job(&job("a", "RUNNING")).unwrap();
    fill(&outputs, "a", 1, 200);
    let extent = outputs.extent(&kept, part(1)).unwrap().unwrap();
    let bytes = extent.end - extent.start;
    assert!(extent.start > 0 && bytes <= 2000 + 500, "{extent:?}");
    assert_eq!(kept.bytes.load(Ordering::Relaxed), bytes);
    // of a job whose attempts are too large together, the oldest attempt
    for attempt in 2..5 {
        fill(&outputs, "a", attempt, 60).complete().unwrap();
    }
    assert!(kept.bytes.load(Ordering::Relaxed) <= 4000 + 500);
    let first = outputs.extent(&kept, part(1)).unwrap().unwrap();
    assert!(first.start > extent.start);
    let newest = outputs.extent(&kept, part(4)).unwrap().unwrap();
    assert_eq!(newest.start, 0);
}

#[test]
fn attempts_that_are_complete_go_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::bounded(folder.path().to_owned(), bounds());
    let kept = outputs.saw_job(&job("a", "RUNNING")).unwrap();
    for attempt in 1..30 {
        fill(&outputs, "a", attempt, 15).complete().unwrap();
    }
    let parts = kept.parts(None);
    assert!(parts.len() < 29 && parts.contains(&part(29)) && !parts.contains(&part(1)), "{parts:?}");
    assert!(!folder.path().join("a/0/1/run").exists());
}

#[test]
fn of_all_jobs_those_that_ended_first_lose_their_output() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::bounded(folder.path().to_owned(), bounds());
    for (uid, state) in [("a", "RUNNING"), ("b", "FAILED"), ("c", "SUCCEEDED"), ("d", "RUNNING")] {
        outputs.saw_job(&job(uid, state)).unwrap();
        fill(&outputs, uid, 1, 85);
    }
    let bytes = |uid: &str| outputs.job(uid).unwrap().bytes.load(Ordering::Relaxed);
    assert_eq!(bytes("b"), 0);
    assert!(bytes("a") > 0 && bytes("c") > 0 && bytes("d") > 0);
    assert!(outputs.job("b").unwrap().page().is_removed);
    assert!(outputs.begin("b", part(1), "x", "head").unwrap().is_none());
    let again = Outputs::bounded(folder.path().to_owned(), bounds());
    assert!(again.job("b").unwrap().is_closed(), "a restart does not read it again");
    // jobs that run lose their oldest lines
    outputs.saw_job(&job("e", "RUNNING")).unwrap();
    fill(&outputs, "e", 1, 85);
    assert_eq!(bytes("c"), 0);
    outputs.saw_job(&job("f", "RUNNING")).unwrap();
    fill(&outputs, "f", 1, 85);
    assert!(outputs.0.bytes.load(Ordering::Relaxed) <= 6000 + 500);
    assert!(["a", "d", "e", "f"].iter().all(|uid| bytes(uid) > 0));
}

#[test]
fn files_go_with_their_job() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::new(folder.path().to_owned());
    let kept = outputs.saw_job(&job("a", "RUNNING")).unwrap();
    let writer = fill(&outputs, "a", 1, 3);
    let changes = kept.changes();
    outputs.job_gone("a");
    assert!(changes.has_changed().unwrap());
    assert!(!folder.path().join("a").exists());
    assert!(writer.append(&[line(9)]).is_err() && writer.is_closed());
    assert!(!folder.path().join("a").exists(), "a writer that is late leaves nothing");
    assert!(outputs.saw_job(&job("a", "RUNNING")).is_none());
    assert_eq!(outputs.0.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_creation_that_was_interrupted_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("a/0/1/run")).unwrap();
    assert!(Outputs::new(folder.path().to_owned()).known().is_empty());
    assert!(!folder.path().join("a").exists());
}

#[test]
fn a_source_is_open_while_its_pod_exists() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs::new(folder.path().to_owned());
    let kept = outputs.saw_job(&job("a", "RUNNING")).unwrap();
    let writer = fill(&outputs, "a", 1, 1);
    let open = || {
        let extent = outputs.extent(&kept, part(1)).unwrap().unwrap();
        (extent.open, extent.reading)
    };
    assert_eq!(open(), (1, 1), "not all pods were seen");
    outputs.pods_listed();
    assert_eq!(open(), (0, 0));
    outputs.saw_pod("a-1", Reach::Cut);
    assert_eq!(open(), (1, 0));
    outputs.saw_pod("a-1", Reach::Reading);
    assert_eq!(open(), (1, 1));
    writer.complete().unwrap();
    assert_eq!(open(), (0, 0));
    outputs.saw_pod("a-1", Reach::Done);
    assert!(outputs.is_done("a-1"));
    outputs.pod_gone("a-1");
    assert!(!outputs.is_done("a-1"));
}
