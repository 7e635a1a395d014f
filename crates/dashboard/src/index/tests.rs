//! Rows after events in any order, compared with what `view` says of the objects themselves.

use super::*;
use serde_json::json;

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn job(name: &str, uid: &str) -> Value {
    json!({
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "a", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
        "status": {"jobsStatus": [{"name": "node", "ready": 2}]},
    })
}

fn jobset(name: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner
        .iter()
        .map(|uid| json!({"kind": "TrainJob", "name": name, "uid": uid, "controller": true, "apiVersion": "v1"}))
        .collect();
    json!({
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "a", "uid": format!("set-{name}"), "ownerReferences": owners},
        "spec": {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": {"parallelism": 3,
            "template": {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]}}}}}]},
        "status": {"restarts": 1},
    })
}

fn pod(job: &str, uid: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": uid, "namespace": "a", "uid": uid, "labels": {"jobset.sigs.k8s.io/jobset-name": job}},
        "status": {"phase": phase, "containerStatuses": [{"name": "node", "restartCount": 4, "state": {"running": {}}}]},
    })
}

fn see(index: &Index, which: Followed, event: Event<Value>) {
    let event = match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(object) => Event::InitApply(Arc::new(object)),
        Event::Apply(object) => Event::Apply(Arc::new(object)),
        Event::Delete(object) => Event::Delete(Arc::new(object)),
    };
    index.see(which, event, &mut Listing::default());
}

const TRAIN: Followed = Followed::Jobs(Kind::TrainJob);
const SETS: Followed = Followed::Jobs(Kind::JobSet);

fn rows(index: &Index) -> Vec<Row> {
    let mut rows = index.rows(now(), |_, _| true);
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

#[test]
fn a_row_is_put_together_whatever_came_first() {
    let events =
        [(TRAIN, job("one", "1")), (SETS, jobset("one", Some("1"))), (Followed::Pods, pod("one", "p", "Running"))];
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let index = Index::default();
        order.into_iter().for_each(|at| see(&index, events[at].0, Event::Apply(events[at].1.clone())));
        let rows = rows(&index);
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((row.state.as_str(), row.nodes, row.gpus, row.restarts), ("Running", Some(3), 6, 5));
        assert_eq!((row.runtime.as_str(), row.created), ("torch-distributed", 1_767_225_600));
    }
}

#[test]
fn a_job_that_was_made_again_outlives_the_end_of_the_first() {
    let index = Index::default();
    see(&index, TRAIN, Event::Apply(job("one", "1")));
    see(&index, TRAIN, Event::Apply(job("one", "2")));
    see(&index, TRAIN, Event::Delete(job("one", "1")));
    assert_eq!(rows(&index).len(), 1);
    see(&index, TRAIN, Event::Delete(job("one", "2")));
    assert!(rows(&index).is_empty());
}

#[test]
fn a_list_forgets_what_it_does_not_name() {
    let index = Index::default();
    see(&index, TRAIN, Event::Apply(job("gone", "1")));
    see(&index, SETS, Event::Apply(jobset("bare", None)));
    assert!(index.listed().is_empty());
    let mut listing = Listing::default();
    index.see(TRAIN, Event::Init, &mut listing);
    index.see(TRAIN, Event::InitApply(Arc::new(job("new", "2"))), &mut listing);
    index.see(TRAIN, Event::InitDone, &mut listing);
    let names: Vec<String> = rows(&index).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["bare", "new"], "other kinds stay");
    assert_eq!(index.listed(), [Kind::TrainJob].into());
}

#[test]
fn only_what_may_be_seen_is_shown_and_trials_are_counted() {
    let index = Index::default();
    let search = json!({"kind": "OptimizationJob", "metadata": {"name": "sweep", "namespace": "a", "uid": "s"}});
    let mut trial = job("sweep-1", "1");
    trial["metadata"]["ownerReferences"] =
        json!([{"kind": "OptimizationJob", "name": "sweep", "uid": "s", "controller": true, "apiVersion": "v1"}]);
    see(&index, Followed::Jobs(Kind::OptimizationJob), Event::Apply(search));
    see(&index, TRAIN, Event::Apply(trial));
    let trials: Vec<(String, usize)> = rows(&index).into_iter().map(|row| (row.search, row.trials)).collect();
    assert_eq!(trials, [(String::new(), 1), ("sweep".to_owned(), 0)]);
    assert!(index.rows(now(), |kind, namespace| kind == Kind::TrainJob && namespace == "b").is_empty());
    assert_eq!(index.rows(now(), |kind, _| kind == Kind::TrainJob).len(), 1);
}
