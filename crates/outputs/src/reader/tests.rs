//! What readers are shown, in which order, and what they wait for.

use super::*;
use crate::record::Line;
use crate::store::{Reach, Writer};
use api::sky::ManagedJob;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;

struct Scene {
    _folder: TempDir,
    outputs: Outputs,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(folder.path().to_owned());
        outputs.pods_listed();
        Self { _folder: folder, outputs }
    }

    /// The job in this state, with these tasks.
    fn job(&self, state: &str, tasks: Value) -> Arc<JobOutput> {
        let value = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "a"}, "spec": {"id": 1, "submission": "s"},
            "status": {"state": state, "tasks": tasks},
        });
        let job: ManagedJob = serde_json::from_value(value).unwrap();
        self.outputs.saw_job(&job).unwrap()
    }

    fn pod(&self, part: Part, rank: &str) -> Writer {
        let uid = format!("{}-{}-{}-{rank}", part.task, part.attempt, part.stage.as_str());
        self.outputs.saw_pod(&uid, Reach::Reading);
        self.outputs.begin("a", part, &uid, rank).unwrap().unwrap()
    }
}

fn part(task: u32, attempt: u32, stage: Stage) -> Part {
    Part { task, attempt, stage }
}

fn write(writer: &Writer, text: &str) {
    writer.append(&[Line { time: "t".to_owned(), text: text.as_bytes().to_vec(), is_part: false }]).unwrap();
}

/// All lines that there are for a reader, and what it does then.
fn read(reader: &mut Reader, scene: &Scene, job: &JobOutput) -> (Vec<String>, Step) {
    let mut all = Vec::new();
    loop {
        match reader.step(&scene.outputs, job).unwrap() {
            Step::Text(text) => all.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned)),
            Step::Facts => {}
            step => return (all, step),
        }
    }
}

fn running(attempts: Value) -> Value {
    json!([{"state": "RUNNING", "attempts": attempts}])
}

#[test]
fn parts_come_in_their_order_with_marks_between_attempts() {
    let scene = Scene::new();
    let attempts = json!([
        {"number": 1, "place": "ssh/pool/h1", "evidence": "machine h1 is gone"}, {"number": 2, "place": "ssh/pool/h2"},
    ]);
    let job = scene.job("RUNNING", running(attempts));
    let second = scene.pod(part(0, 2, Stage::Run), "head");
    write(&second, "second");
    let head = scene.pod(part(0, 1, Stage::Run), "head");
    let worker = scene.pod(part(0, 1, Stage::Run), "worker1");
    write(&worker, "worker");
    write(&head, "head");
    write(&scene.pod(part(0, 1, Stage::Setup), "head"), "setup");
    let expected = [
        "--- attempt 1 on ssh/pool/h1 ---",
        "setup",
        "worker",
        "head",
        "--- attempt 2 on ssh/pool/h2, because: machine h1 is gone ---",
        "second",
    ];
    assert_eq!(
        read(&mut Reader::new(Request::default()), &scene, &job),
        (expected.map(str::to_owned).into(), Step::End)
    );
    let tail = |lines| Reader::new(Request { tail: Some(lines), ..Request::default() });
    assert_eq!(read(&mut tail(0), &scene, &job).0, Vec::<String>::new());
    assert_eq!(read(&mut tail(1), &scene, &job).0, expected[5..]);
    assert_eq!(read(&mut tail(3), &scene, &job).0, expected[2..]);
    assert_eq!(read(&mut tail(99), &scene, &job).0, expected);
}

#[test]
fn a_job_with_one_attempt_has_no_mark() {
    let scene = Scene::new();
    let job = scene.job("RUNNING", running(json!([{"number": 1, "place": "local"}])));
    write(&scene.pod(part(0, 1, Stage::Setup), "head"), "setup");
    write(&scene.pod(part(0, 1, Stage::Run), "head"), "run");
    assert_eq!(read(&mut Reader::new(Request::default()), &scene, &job).0, ["setup", "run"]);
}

#[test]
fn tasks_are_marked_where_there_are_several() {
    let scene = Scene::new();
    let job = scene.job("RUNNING", json!([{"state": "SUCCEEDED"}, {"state": "RUNNING"}]));
    write(&scene.pod(part(1, 1, Stage::Run), "head"), "second");
    write(&scene.pod(part(0, 1, Stage::Run), "head"), "first");
    let all = ["--- task 0, attempt 1 ---", "first", "--- task 1, attempt 1 ---", "second"];
    assert_eq!(read(&mut Reader::new(Request::default()), &scene, &job).0, all);
    let one = Request { task: Some(1), ..Request::default() };
    assert_eq!(read(&mut Reader::new(one), &scene, &job).0, all[2..]);
}

#[test]
fn a_follower_waits_for_lines_that_are_on_their_way() {
    let scene = Scene::new();
    let job = scene.job("PENDING", json!([]));
    let mut reader = Reader::new(Request { follow: true, ..Request::default() });
    let idle = Step::Wait { is_timed: false };
    assert_eq!(read(&mut reader, &scene, &job), (vec![], idle));
    let setup = scene.pod(part(0, 1, Stage::Setup), "head");
    write(&setup, "one");
    let idle = Step::Wait { is_timed: false };
    assert_eq!(read(&mut reader, &scene, &job), (vec!["one".to_owned()], idle));
    let run = scene.pod(part(0, 1, Stage::Run), "head");
    write(&run, "three");
    assert_eq!(read(&mut reader, &scene, &job), (vec![], Step::Wait { is_timed: true }), "setup is still being read");
    write(&setup, "two");
    setup.complete().unwrap();
    let idle = Step::Wait { is_timed: false };
    assert_eq!(read(&mut reader, &scene, &job), (vec!["two".to_owned(), "three".to_owned()], idle));
    scene.job("SUCCEEDED", json!([{"state": "SUCCEEDED", "endedAt": "t"}]));
    assert_eq!(read(&mut reader, &scene, &job), (vec![], Step::Wait { is_timed: true }));
    write(&run, "last");
    run.complete().unwrap();
    assert_eq!(read(&mut reader, &scene, &job), (vec!["last".to_owned()], Step::End));
}

#[test]
fn a_reader_goes_on_after_a_place() {
    let scene = Scene::new();
    let job = scene.job("RUNNING", running(json!([])));
    write(&scene.pod(part(0, 1, Stage::Run), "head"), "a b");
    write(&scene.pod(part(0, 2, Stage::Run), "head"), "c");
    let (all, _) = read(&mut Reader::new(Request { places: true, ..Request::default() }), &scene, &job);
    let split = |line: &String| {
        let (place, text) = line.split_once(' ').unwrap();
        (place.parse::<Spot>().unwrap(), text.to_owned())
    };
    let all: Vec<(Spot, String)> = all.iter().map(split).collect();
    let texts: Vec<&str> = all.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["--- attempt 1 ---", "a b", "--- attempt 2 ---", "c"]);
    for (at, (place, _)) in all.iter().enumerate() {
        let from = Request { from: Some(*place), tail: Some(1), ..Request::default() };
        assert_eq!(read(&mut Reader::new(from), &scene, &job).0, texts[at + 1..], "{place}");
    }
}

#[test]
fn output_that_is_gone_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bounds = crate::store::Bounds { rank: 400, job: 4000, all: 8000, file: 200 };
    let outputs = Outputs::bounded(folder.path().to_owned(), bounds);
    let scene = Scene { _folder: folder, outputs };
    let job = scene.job("RUNNING", running(json!([])));
    let head = scene.pod(part(0, 1, Stage::Run), "head");
    (0..100).for_each(|number| write(&head, &format!("line {number}")));
    let (all, _) = read(&mut Reader::new(Request::default()), &scene, &job);
    assert!(
        all[0].starts_with("--- ") && all[0].ends_with(" bytes of older output are not kept any more ---"),
        "{}",
        all[0]
    );
    assert_eq!(all.last().map(String::as_str), Some("line 99"));
    scene.outputs.job_gone("a");
    assert_eq!(
        read(&mut Reader::new(Request { follow: true, ..Request::default() }), &scene, &job),
        (vec![], Step::End)
    );
}
