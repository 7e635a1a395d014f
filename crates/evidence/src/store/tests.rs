//! The store, told of things in every order, over crashes and at its bounds.

use super::*;
use jiff::Timestamp;
use node::poddir::JournalWriter;
use node::wire::{Event, Exit, Record};
use serde_json::json;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("trainyard-evidence-{name}-{}", std::process::id())))
    }

    fn store(&self) -> Store {
        Store::new(self.0.clone())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A JobSet's pod that has ended with this code, as the node leaves it.
fn end(store: &Store, uid: &str, jobset: &str, second: i64, code: i32, log: &str) {
    let labels = json!({JOBSET_UID: jobset, "batch.kubernetes.io/job-completion-index": "0"});
    end_with(store, json!({"name": uid, "uid": uid, "labels": labels}), second, code, log);
}

/// A pod of an MPIJob.
fn end_of_mpijob(store: &Store, uid: &str, role: &str, owner: &str, second: i64) {
    let owners = json!([{"uid": owner, "controller": true}]);
    end_with(
        store,
        json!({"name": uid, "uid": uid, "labels": {LABEL_JOB_ROLE: role}, "ownerReferences": owners}),
        second,
        1,
        "x",
    );
}

fn end_with(store: &Store, metadata: Value, second: i64, code: i32, log: &str) {
    let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "node"}]}});
    let typed: Pod = serde_json::from_value(pod.clone()).unwrap();
    let dir = PodDir::new(store.place(&typed).expect("it is wanted"));
    fs::create_dir_all(dir.container("node")).unwrap();
    fs::write(dir.pod(), pod.to_string()).unwrap();
    let at = Timestamp::from_second(second).unwrap();
    let exit = Exit {
        code,
        signal: None,
        reason: "Error".to_owned(),
        message: String::new(),
        started_at: at,
        finished_at: at,
        peak_memory_bytes: None,
    };
    let event = Event::Exited { container: "node".to_owned(), attempt: 0, exit };
    let mut journal = JournalWriter::open(&dir).unwrap();
    journal.append(&Record { at, uptime: None, event }).unwrap();
    fs::write(dir.log("node", 0), log).unwrap();
}

fn pods(store: &Store, job: &str) -> Vec<String> {
    store.pods(job).iter().map(PodDir::uid).collect()
}

fn ended(folder: &Folder) -> usize {
    names(&folder.0.join("ended")).unwrap().len()
}

#[test]
fn a_pod_that_ends_before_its_part_is_heard_of_can_be_read() {
    let folder = Folder::new("waiting");
    let store = folder.store();
    end(&store, "pod", "part", 1, 1, "line\n");
    store.sweep();
    let waiting: Vec<String> = store.waiting().iter().map(PodDir::uid).collect();
    assert_eq!((waiting, pods(&store, "job")), (vec!["pod".to_owned()], vec![]));
    store.saw_part("part", Some((Kind::TrainJob, "job")), 1);
    store.saw_job(Kind::TrainJob, "job", &Key::new("ns", "train"), None);
    store.sweep();
    assert_eq!((store.waiting().len(), pods(&store, "job")), (0, vec!["pod".to_owned()]));
}

#[test]
fn a_pod_goes_to_its_job_whatever_is_heard_first() {
    let key = Key::new("ns", "train");
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let folder = Folder::new("order");
        let store = folder.store();
        for step in order {
            match step {
                0 => end(&store, "p", "s", 1, 3, "x"),
                1 => store.saw_part("s", Some((Kind::TrainJob, "j")), 2),
                _ => store.saw_job(Kind::TrainJob, "j", &key, None),
            }
            store.sweep();
        }
        assert_eq!((pods(&store, "j"), ended(&folder)), (vec!["p".to_owned()], 0), "{order:?}");
        // and after a crash: a JobSet that is gone is remembered
        let again = folder.store();
        assert_eq!((pods(&again, "j"), again.parts("j")), (vec!["p".to_owned()], [("s".to_owned(), 2)].into()));
        end(&again, "q", "s", 2, 3, "x");
        again.saw_job(Kind::TrainJob, "j", &key, None);
        again.sweep();
        assert_eq!(pods(&again, "j"), ["p", "q"]);
        again.job_gone("j");
        assert_eq!(names(&folder.0.join("jobs")).unwrap().len(), 0);
        // its last pods go after it
        end(&again, "r", "s", 3, 3, "x");
        again.sweep();
        assert_eq!(ended(&folder), 0);
    }
}

#[test]
fn pods_of_nobody_are_not_kept() {
    let folder = Folder::new("nobody");
    let store = folder.store();
    end(&store, "early", "other", 1, 0, "x");
    store.saw_part("other", None, 1);
    store.sweep();
    assert_eq!(ended(&folder), 0);
    let pod =
        |labels: Value| -> Pod { serde_json::from_value(json!({"metadata": {"uid": "p", "labels": labels}})).unwrap() };
    assert_eq!(store.place(&pod(json!({JOBSET_UID: "other"}))), None);
    assert_eq!(store.place(&pod(json!({"app": "web"}))), None);
    assert!(store.place(&pod(json!({JOBSET_UID: "unknown"}))).is_some());
}

#[test]
fn a_job_that_a_list_does_not_name_is_gone() {
    let folder = Folder::new("list");
    let store = folder.store();
    for (job, set) in [("j", "s"), ("k", "t")] {
        store.saw_part(set, Some((Kind::TrainJob, job)), 1);
        store.saw_job(Kind::TrainJob, job, &Key::new("ns", job), None);
        end(&store, &format!("of-{job}"), set, 1, 0, "x");
    }
    store.sweep();
    let again = folder.store();
    assert_eq!(again.known(Kind::TrainJob), ["j".to_owned(), "k".to_owned()].into());
    again.job_gone("j");
    assert_eq!((pods(&again, "j"), pods(&again, "k")), (vec![], vec!["of-k".to_owned()]));
}

#[test]
fn pods_of_mpijobs_are_kept_with_them() {
    let folder = Folder::new("mpijob");
    let store = folder.store();
    end_of_mpijob(&store, "launcher", "launcher", "l", 1);
    end_of_mpijob(&store, "worker", "worker", "m", 1);
    end_of_mpijob(&store, "stranger", "worker", "other", 1);
    store.sweep();
    assert_eq!((ended(&folder), store.known(Kind::MpiJob)), (3, BTreeSet::new()), "nobody has heard of them yet");
    store.saw_part("m", Some((Kind::MpiJob, "m")), 0);
    store.saw_job(Kind::MpiJob, "m", &Key::new("ns", "train"), None);
    store.saw_part("l", Some((Kind::MpiJob, "m")), 1);
    store.saw_job(Kind::TrainJob, "j", &Key::new("ns", "train"), None);
    store.sweep();
    assert_eq!((pods(&store, "m"), ended(&folder)), (vec!["launcher".to_owned(), "worker".to_owned()], 1));
    // a list of one kind says nothing of the other, before and after a crash
    for store in [&store, &folder.store()] {
        assert_eq!(store.known(Kind::MpiJob), ["m".to_owned()].into());
        assert_eq!(store.parts("m"), [("l".to_owned(), 1), ("m".to_owned(), 0)].into());
    }
    assert_eq!(store.known(Kind::TrainJob), ["j".to_owned()].into());
    store.job_gone("m");
    assert_eq!(names(&folder.0.join("jobs")).unwrap().len(), 0);
}

#[test]
fn pages_of_before_mpijobs_are_of_trainjobs() {
    let page = r#"{"namespace": "ns", "name": "train", "jobsets": {"s": 2}}"#;
    let page: Page = serde_json::from_str(page).unwrap();
    assert_eq!((page.kind, page.parts), (Kind::TrainJob, [("s".to_owned(), 2)].into()));
}

#[test]
fn what_is_too_much_goes_and_the_first_failure_stays() {
    let folder = Folder::new("bounds");
    let mut store = folder.store();
    store.limits = Limits { job_bytes: 3000, job_pods: 200, bytes: 1 << 30 };
    store.saw_part("s", Some((Kind::TrainJob, "j")), 1);
    store.saw_job(Kind::TrainJob, "j", &Key::new("ns", "train"), None);
    let log = "x".repeat(1000);
    for (n, code) in [(1, 0), (2, 3), (3, 3), (4, 3), (5, 3)] {
        end(&store, &format!("p{n}"), "s", n, code, &log);
        store.sweep();
    }
    let kept: Vec<(String, bool)> =
        store.pods("j").iter().map(|dir| (dir.uid(), dir.log("node", 0).exists())).collect();
    let of = |uid: &str| kept.iter().find(|(pod, _)| pod == uid).expect("it is known").1;
    assert_eq!((of("p1"), of("p2"), of("p5")), (false, true, true), "{kept:?}");
    let first = store.pods("j").into_iter().find(|dir| dir.uid() == "p1").unwrap();
    let runs = runs::of(&first, &Value::Null).unwrap();
    assert!(runs[0].attempts[0].log_cut && runs[0].attempts[0].log_bytes == 0, "the run is known, its log is not");
}

#[test]
fn of_all_jobs_the_one_that_ended_first_loses_its_logs() {
    let folder = Folder::new("all");
    let mut store = folder.store();
    store.limits = Limits { bytes: 5000, ..Limits::default() };
    for (job, set, finished) in [("runs", "a", None), ("late", "b", Some("2026-02")), ("early", "c", Some("2026-01"))] {
        store.saw_part(set, Some((Kind::TrainJob, job)), 1);
        store.saw_job(Kind::TrainJob, job, &Key::new("ns", job), finished.map(str::to_owned));
        end(&store, &format!("of-{job}"), set, 1, 0, &"x".repeat(2000));
    }
    store.sweep();
    let left: Vec<usize> = ["runs", "late", "early"].iter().map(|job| pods(&store, job).len()).collect();
    assert_eq!(left, [1, 1, 0]);
}
