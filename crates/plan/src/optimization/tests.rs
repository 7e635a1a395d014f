//! Searches from the first trial to the last, in a world in memory; algorithms against each other on functions.

use super::admission::validate_optimizationjob;
use super::controller::{OptimizationController, optimizationjob_gvk};
use super::search::{ANNOTATION_ALGORITHM, Search, TPE};
use super::suggest::{Known, suggest};
use super::template::{LABEL_PARENT, trial_name};
use crate::controller::trainjob_gvk;
use crate::plugins::{CaSource, Settings, StatusServer, View};
use api::field::aggregate;
use api::object::{Key, Target};
use api::trainer::Assignment;
use proptest::prelude::*;
use reconcile::testing::Model;
use reconcile::{Next, Reconciler};
use serde_json::{Value, json};
use std::sync::Arc;

/// A search for the least loss; `over` is laid over its spec.
fn job(over: Value) -> Value {
    let mut job = json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob",
        "metadata": {"name": "tune", "namespace": "ns", "uid": "uid-tune"},
        "spec": {
            "objectives": [{"metric": "loss", "direction": "Minimize"}],
            "searchAlgorithm": {"random": {}},
            "parameters": [
                {"name": "lr", "searchSpace": {"logUniform": {"min": "1e-4", "max": "1", "type": "Float"}}},
                {"name": "batch-size", "searchSpace": {"categorical": {"choices": ["16", "32", "64"]}}},
            ],
            "numTrials": 4, "parallelTrials": 2,
            "trainJobTemplate": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
                "spec": {
                    "runtimeRef": {"name": "plain", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
                    "trainer": {"args": ["--lr=$(KUBEFLOW_TRAINER_OPT_LR)"], "env": [{"name": "A", "value": "1"}]},
                },
            },
        },
    });
    reconcile::testing::merge(&mut job, &json!({"spec": over}));
    job
}

fn annotated(mut job: Value, annotation: &str, value: &str) -> Value {
    job["metadata"]["annotations"] = json!({annotation: value});
    job
}

fn target() -> Target {
    Target { gvk: optimizationjob_gvk(), key: Key::new("ns", "tune") }
}

fn controller() -> OptimizationController {
    let status_server =
        Some(StatusServer { base_url: "https://127.0.0.1:1".into(), ca: CaSource::Inline(String::new()) });
    OptimizationController::new(&Settings { status_server })
}

/// A world with one search, run until it waits.
fn started(job: Value) -> Model {
    let mut model = Model::of([job]);
    model.run(&controller(), &target());
    model
}

fn condition(model: &Model, kind: &str) -> Value {
    let job = model.one("OptimizationJob", "tune").expect("the search is there");
    let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

fn names(model: &Model) -> Vec<String> {
    model.all("TrainJob").iter().map(|trial| api::object::meta(trial, "name").to_owned()).collect()
}

/// Ends a trial as a TrainJob does; lets the controller look.
fn end(model: &mut Model, index: usize, kind: &str, metrics: Value) -> Next {
    let now = crate::conditions::time(model.now);
    model.change(&trainjob_gvk(), &Key::new("ns", &trial_name("tune", index)), |trial| {
        let condition =
            json!({"type": kind, "status": "True", "reason": "R", "message": "why", "lastTransitionTime": now});
        trial["status"] = json!({"conditions": [condition], "trainerStatus": {"metrics": metrics}});
    });
    model.run(&controller(), &target())
}

fn complete(model: &mut Model, index: usize, loss: &str) -> Next {
    end(model, index, "Complete", json!([{"name": "other", "value": "9"}, {"name": "loss", "value": loss}]))
}

#[test]
fn a_search_runs_its_trials_two_at_a_time_and_keeps_the_best() {
    let mut model = started(job(json!({})));
    assert_eq!(names(&model), ["tune-trial-0", "tune-trial-1"]);
    let trial = model.one("TrainJob", "tune-trial-0").expect("it was started");
    assert_eq!(trial["metadata"]["labels"], json!({"team": "a", LABEL_PARENT: "tune"}));
    assert_eq!(trial["metadata"]["annotations"]["note"], "b");
    assert_eq!(trial["metadata"]["ownerReferences"][0]["uid"], "uid-tune");
    assert_eq!(trial["metadata"]["ownerReferences"][0]["controller"], true);
    let env: Vec<&str> = trial["spec"]["trainer"]["env"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|variable| variable["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(env, ["KUBEFLOW_TRAINER_OPT_LR", "KUBEFLOW_TRAINER_OPT_BATCH_SIZE", "A"]);
    assert_eq!(condition(&model, "Created")["message"], "0 of 4 trials succeeded, 0 failed, 2 running");

    complete(&mut model, 1, "0.5");
    assert_eq!(names(&model).len(), 3, "one has ended, one is started");
    complete(&mut model, 0, "0.25");
    end(&mut model, 2, "Failed", json!([{"name": "loss", "value": "0.1"}]));
    assert_eq!(condition(&model, "Complete"), Value::Null);
    complete(&mut model, 3, " 3e-1 ");
    let job = model.one("OptimizationJob", "tune").expect("the search is there");
    assert_eq!(job["status"]["result"]["trainJobName"], "tune-trial-0");
    let values = &job["status"]["result"]["parameters"];
    assert_eq!((&values[0]["name"], &values[0]["value"]), (&json!("lr"), &trial["spec"]["trainer"]["env"][0]["value"]));
    let done = condition(&model, "Complete");
    assert_eq!((&done["reason"], &done["status"]), (&json!("MaxTrialsReached"), &json!("True")));
    assert_eq!(
        done["message"],
        "3 of 4 trials succeeded, 1 failed, 0 running; best: tune-trial-0, loss 0.25; last failure: tune-trial-2, why"
    );
    // finished is finished
    let writes = model.writes.len();
    complete(&mut model, 0, "0.9");
    model.delete(
        &Target { gvk: trainjob_gvk(), key: Key::new("ns", "tune-trial-1") },
        reconcile::Propagation::Background,
        None,
    );
    assert_eq!(model.run(&controller(), &target()), Next::AwaitChange);
    assert_eq!(model.writes.len(), writes);
}

#[test]
fn more_can_be_better() {
    let mut model = started(job(json!({"objectives": [{"metric": "loss", "direction": "Maximize"}], "numTrials": 2})));
    complete(&mut model, 0, "-2");
    complete(&mut model, 1, "-1");
    let job = model.one("OptimizationJob", "tune").expect("the search is there");
    assert_eq!(job["status"]["result"]["trainJobName"], "tune-trial-1");
}

#[test]
fn a_metric_may_come_late_but_not_never() {
    let mut model = started(job(json!({"numTrials": 1, "parallelTrials": 1})));
    assert_eq!(end(&mut model, 0, "Complete", json!([])), Next::After(super::trial::REPORT_GRACE));
    assert_eq!(condition(&model, "Created")["message"], "0 of 1 trials succeeded, 0 failed, 1 running");
    model.pass(9);
    assert!(matches!(model.run(&controller(), &target()), Next::After(_)));
    model.pass(1);
    model.run(&controller(), &target());
    let failed = condition(&model, "Failed");
    assert_eq!(failed["reason"], "AllTrialsFailed");
    assert_eq!(
        failed["message"],
        "0 of 1 trials succeeded, 1 failed, 0 running; last failure: tune-trial-0, it ended without reporting its metric \"loss\""
    );
}

#[test]
fn a_late_metric_counts() {
    let mut model = started(job(json!({"numTrials": 1, "parallelTrials": 1})));
    end(&mut model, 0, "Complete", json!([]));
    model.pass(5);
    assert_eq!(complete(&mut model, 0, "1"), Next::AwaitChange);
    assert_eq!(condition(&model, "Complete")["reason"], "MaxTrialsReached");
}

#[test]
fn what_is_no_number_is_no_result() {
    for (reported, said) in [
        (json!([{"name": "loss", "value": "nan"}]), "its metric \"loss\" is \"nan\", which is no finite number"),
        (json!([{"name": "loss", "value": "low"}]), "its metric \"loss\" is \"low\", which is no finite number"),
    ] {
        let mut model = started(job(json!({"numTrials": 1, "parallelTrials": 1})));
        end(&mut model, 0, "Complete", reported);
        let message = condition(&model, "Failed")["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.ends_with(said), "{message}");
    }
    let mut model = started(job(json!({"numTrials": 1, "parallelTrials": 1})));
    end(&mut model, 0, "Complete", json!([{"name": "accuracy", "value": "1"}]));
    model.pass(10);
    model.run(&controller(), &target());
    let message = condition(&model, "Failed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.ends_with("it ended without reporting its metric \"loss\", only accuracy"), "{message}");
}

#[test]
fn a_grid_is_tried_in_order_and_not_beyond_its_end() {
    let choices = |words: &[&str]| json!({"categorical": {"choices": words}});
    let grid = json!({
        "searchAlgorithm": {"random": null, "grid": {}}, "numTrials": 10, "parallelTrials": 10,
        "parameters": [{"name": "lr", "searchSpace": choices(&["a", "b"])}, {"name": "n", "searchSpace": choices(&["1", "2"])}],
    });
    let mut model = started(job(grid));
    let tried: Vec<String> = model
        .all("TrainJob")
        .iter()
        .map(|trial| {
            let env = &trial["spec"]["trainer"]["env"];
            format!("{}{}", env[0]["value"].as_str().unwrap_or("?"), env[1]["value"].as_str().unwrap_or("?"))
        })
        .collect();
    assert_eq!(tried, ["a1", "a2", "b1", "b2"]);
    (0..4).for_each(|index| _ = complete(&mut model, index, "1"));
    assert_eq!(condition(&model, "Complete")["reason"], "GridExhausted");
    let job = model.one("OptimizationJob", "tune").expect("the search is there");
    assert_eq!(job["status"]["result"]["trainJobName"], "tune-trial-0", "of equal ones the earliest");
}

#[test]
fn names_that_others_have_are_waited_for() {
    let other = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "tune-trial-0", "namespace": "ns"}, "spec": {}});
    let mut model = Model::of([other.clone(), job(json!({"numTrials": 2}))]);
    model.run(&controller(), &target());
    assert_eq!(names(&model), ["tune-trial-0", "tune-trial-1"]);
    let text = "Warning TrialNameTaken: TrainJob tune-trial-0 is there and not this search's: the trial waits until it is deleted";
    assert_eq!(model.events.last().map(String::as_str), Some(text));
    complete(&mut model, 1, "1");
    assert_eq!(condition(&model, "Complete"), Value::Null);
    // its deletion wakes the search
    let reconcile::Wakes::Keys(wakes) = controller().watches().remove(0).wakes else { panic!("it wakes by name") };
    assert_eq!(wakes(&model, &other), [target()]);
    model.delete(
        &Target { gvk: trainjob_gvk(), key: Key::new("ns", "tune-trial-0") },
        reconcile::Propagation::Background,
        None,
    );
    model.run(&controller(), &target());
    complete(&mut model, 0, "0.5");
    assert_eq!(condition(&model, "Complete")["reason"], "MaxTrialsReached");
}

#[test]
fn a_refused_trial_is_said_and_tried_again() {
    let mut model = Model::of([job(json!({"numTrials": 1, "parallelTrials": 1}))]);
    model.refuse = Some(|line| line.starts_with("create").then(|| "no quota".to_owned()));
    let decision = model.decide(&controller(), &target()).expect("the search is there");
    assert!(!model.execute(&target(), &decision));
    assert_eq!(model.events, ["Warning TrainJobsCreationFailed: starting trial tune-trial-0: no quota"]);
    model.refuse = None;
    model.run(&controller(), &target());
    assert_eq!(names(&model), ["tune-trial-0"]);
}

#[test]
fn nothing_is_started_where_it_would_be_of_no_use() {
    let silent = OptimizationController::new(&Settings::default());
    let mut model = Model::of([job(json!({}))]);
    let decision = model.decide(&silent, &target()).expect("the search is there");
    assert!(decision.writes.is_empty() && decision.status.is_none());
    assert_eq!(decision.events[0].reason, "MetricsUnavailable");

    model.change(&optimizationjob_gvk(), &Key::new("ns", "tune"), |job| {
        job["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    assert!(model.decide(&controller(), &target()).expect("still there").is_silent());

    let model =
        started(job(json!({"trainJobTemplate": {"spec": {"trainer": {"args": ["$(KUBEFLOW_TRAINER_OPT_X)"]}}}})));
    assert_eq!(condition(&model, "Failed")["reason"], "InvalidSpec");
    assert!(names(&model).is_empty());
}

/// Any prefix of a decision's writes, then a new look: no trial twice, no other values, no more at once than allowed.
#[test]
fn a_crash_between_writes_changes_nothing() {
    let job = || annotated(job(json!({"numTrials": 6, "parallelTrials": 3})), ANNOTATION_ALGORITHM, TPE);
    let finish = |model: &mut Model| {
        for index in 0..6 {
            let running = model.all("TrainJob").iter().filter(|trial| trial.get("status").is_none()).count();
            assert!(running <= 3, "{running} at once");
            complete(model, index, &format!("{}", (index as f64 - 2.0).abs()));
        }
        let values = |trial: &Arc<Value>| trial["spec"]["trainer"]["env"].clone();
        (model.all("TrainJob").iter().map(values).collect::<Vec<_>>(), condition(model, "Complete")["message"].clone())
    };
    let whole = finish(&mut started(job()));
    for kept in 0..=3 {
        let mut model = Model::of([job()]);
        let mut decision = model.decide(&controller(), &target()).expect("the search is there");
        assert_eq!(decision.writes.len(), 3);
        decision.writes.truncate(kept);
        decision.status = None;
        model.execute(&target(), &decision);
        model.run(&controller(), &target());
        assert_eq!(finish(&mut model), whole, "after {kept} writes");
    }
}

#[test]
fn bad_input_is_told_with_its_field() {
    let runtime = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "plain"}, "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "none"}]}}}}}]}}}});
    let runtime = Arc::new(runtime);
    let get = |target: &Target| {
        (target.gvk.kind == "ClusterTrainingRuntime" && target.key.name == "plain").then(|| runtime.clone())
    };
    let verdict = |new: &Value, old: Option<&Value>| {
        validate_optimizationjob(new, old, View(&get)).map_err(|errors| aggregate(&errors)).err().unwrap_or_default()
    };
    assert_eq!(verdict(&job(json!({})), None), "");
    let mut long = job(json!({"numTrials": 11}));
    long["metadata"]["name"] = json!("a".repeat(55));
    let lr = |space: Value| json!({"parameters": [{"name": "lr", "searchSpace": space}]});
    let trainer = |over: Value| job(json!({"trainJobTemplate": {"spec": {"trainer": over}}}));
    let cases = [
        (
            trainer(json!({"args": ["x", "--lr=$(KUBEFLOW_TRAINER_OPT_LEARNING_RATE)"]})),
            r#"spec.trainJobTemplate.spec.trainer.args[1]: Unsupported value: "$(KUBEFLOW_TRAINER_OPT_LEARNING_RATE)": supported values: "$(KUBEFLOW_TRAINER_OPT_LR)", "$(KUBEFLOW_TRAINER_OPT_BATCH_SIZE)""#,
        ),
        (
            trainer(json!({"env": [{"name": "KUBEFLOW_TRAINER_OPT_LR", "value": "1"}]})),
            r#"spec.trainJobTemplate.spec.trainer.env[0].name: Forbidden: KUBEFLOW_TRAINER_OPT_LR tells a trial the parameter "lr": take it out"#,
        ),
        (
            job(lr(json!({"uniform": {"min": "0.2", "max": "0.8", "type": "Int"}}))),
            r#"spec.parameters[0].searchSpace.uniform.type: Invalid value: "Int": there is no whole number between 0.2 and 0.8"#,
        ),
        (
            job(lr(json!({"uniform": {"min": "2", "max": "1"}}))),
            r#"spec.parameters[0].searchSpace.uniform.max: Invalid value: "1": must be above min, by a finite number"#,
        ),
        (
            job(json!({"parameters": [{"name": "a-b", "searchSpace": {"categorical": {"choices": ["1"]}}},
                {"name": "a_b", "searchSpace": {"categorical": {"choices": ["1"]}}}],
                "trainJobTemplate": {"spec": {"trainer": null}}})),
            r#"spec.parameters[1].name: Invalid value: "a_b": is passed to trials as KUBEFLOW_TRAINER_OPT_A_B, and so is parameters[0]: rename one of them"#,
        ),
        (
            job(json!({"searchAlgorithm": {"random": null, "grid": {}}})),
            "spec.searchAlgorithm.grid: Forbidden: a grid needs categorical parameters: there is no end of numbers between two bounds",
        ),
        (
            annotated(job(json!({})), ANNOTATION_ALGORITHM, "bayes"),
            r#"metadata.annotations[trainyard.dev/search-algorithm]: Unsupported value: "bayes": supported values: "tpe""#,
        ),
        (
            annotated(
                job(json!({"searchAlgorithm": {"random": null, "grid": {}},
                "parameters": [{"name": "lr", "searchSpace": {"categorical": {"choices": ["1"]}}}]})),
                ANNOTATION_ALGORITHM,
                TPE,
            ),
            "metadata.annotations[trainyard.dev/search-algorithm]: Forbidden: spec.searchAlgorithm.grid is set: take one of them out",
        ),
        (
            job(
                json!({"trainJobTemplate": {"metadata": {"annotations": {"trainyard.dev/ttl-seconds-after-finished": "1"}}}}),
            ),
            "spec.trainJobTemplate.metadata.annotations[trainyard.dev/ttl-seconds-after-finished]: Forbidden: trials are what the search remembers: they go with the OptimizationJob, not before",
        ),
        (
            job(json!({"trainJobTemplate": {"spec": {"runtimeRef": {"name": "none"}}}})),
            r#"spec.trainJobTemplate: Forbidden: the TrainJob of a trial would be refused: spec.RuntimeRef: Invalid value: {"#,
        ),
        (
            job(json!({"objectives": "loss"})),
            r#"[spec.objectives: Invalid value: "loss": invalid type: string "loss", expected a sequence, spec.objectives[0].metric: Required value]"#,
        ),
        (
            long,
            &*format!(
                "metadata.name: Invalid value: \"{0}\": may not be longer than 54 characters: its trials are called {0}-trial-0 and so on",
                "a".repeat(55)
            ),
        ),
    ];
    for (new, wanted) in cases {
        let said = verdict(&new, None);
        assert!(said.starts_with(wanted), "{said}\ninstead of\n{wanted}");
    }
    // once it is there, only its algorithm is guarded: the schema keeps the spec
    let (plain, tpe) = (job(json!({})), annotated(job(json!({})), ANNOTATION_ALGORITHM, TPE));
    assert_eq!(verdict(&tpe, Some(&tpe)), "");
    let wanted = "metadata.annotations[trainyard.dev/search-algorithm]: Forbidden: the algorithm cannot change once the search is there";
    assert_eq!((&*verdict(&tpe, Some(&plain)), &*verdict(&plain, Some(&tpe))), (wanted, wanted));
}

/// Numbers between -5 and 5, and a choice.
fn plane(algorithm: &str, seed: i64) -> Search {
    let number = |name: &str| json!({"name": name, "searchSpace": {"uniform": {"min": "-5", "max": "5"}}});
    let choice = json!({"name": "c", "searchSpace": {"categorical": {"choices": ["a", "b", "c", "d"]}}});
    let over = json!({
        "searchAlgorithm": {"random": {"seed": seed}}, "numTrials": 50,
        "parameters": [number("x"), number("y"), choice], "trainJobTemplate": {"spec": {"trainer": null}},
    });
    let job = match algorithm {
        TPE => annotated(job(over), ANNOTATION_ALGORITHM, TPE),
        _ => job(over),
    };
    Search::parse(&job).unwrap_or_else(|errors| panic!("a good search: {}", aggregate(&errors)))
}

/// The least loss of a search of so many trials, some at once.
fn least(search: &Search, trials: usize, at_once: usize, loss: impl Fn(f64, f64, &str) -> f64) -> f64 {
    let of = |values: &[Assignment]| {
        loss(values[0].value.parse().expect("a number"), values[1].value.parse().expect("a number"), &values[2].value)
    };
    let mut history: Vec<Known> = Vec::new();
    while history.len() < trials {
        let first = history.len();
        for index in first..(first + at_once).min(trials) {
            let parameters = suggest(search, index, &history);
            history.push(Known { parameters, value: None });
        }
        history[first..].iter_mut().for_each(|known| known.value = Some(of(&known.parameters)));
    }
    history.iter().filter_map(|known| known.value).fold(f64::INFINITY, f64::min)
}

#[test]
fn the_estimator_beats_chance() {
    type Loss = fn(f64, f64, &str) -> f64;
    let functions: [(&str, Loss); 4] = [
        ("sphere", |x, y, _| (x - 1.5).powi(2) + (y + 2.0).powi(2)),
        ("with a choice", |x, y, c| x.powi(2) + y.powi(2) + if c == "c" { 0.0 } else { 5.0 }),
        // a valley along which both parameters must move together
        ("valley", |x, y, _| (x + y).powi(2) * 4.0 + (x - 2.0).powi(2)),
        ("ripples", |x, y, _| x.powi(2) + y.powi(2) + 2.0 * (2.0 - (3.0 * x).cos() - (3.0 * y).cos())),
    ];
    for (name, function) in functions {
        for at_once in [1, 4] {
            let seeds = 0..10;
            let mean = |algorithm: &str| -> f64 {
                seeds.clone().map(|seed| least(&plane(algorithm, seed), 50, at_once, function)).sum::<f64>() / 10.0
            };
            let (tpe, random) = (mean(TPE), mean("random"));
            println!("{name}, {at_once} at once: tpe {tpe:.4}, random {random:.4}");
            assert!(tpe < 0.5 * random, "{name}, {at_once} at once: tpe {tpe}, random {random}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the spaces, the history and the algorithm: values of the spaces, the same when asked again.
    #[test]
    fn suggestions_are_of_the_space_and_repeatable(
        seed: i64, index in 0..100_usize, losses in prop::collection::vec(prop::option::of(-1e3..1e3_f64), 0..40),
    ) {
        for algorithm in [TPE, "random"] {
            let search = plane(algorithm, seed);
            let history: Vec<Known> = losses
                .iter()
                .enumerate()
                .map(|(at, loss)| Known { parameters: suggest(&search, at, &[]), value: *loss })
                .collect();
            let values = suggest(&search, index, &history);
            prop_assert_eq!(&values, &suggest(&search, index, &history));
            prop_assert_eq!(values.len(), search.parameters.len());
            for (parameter, given) in search.parameters.iter().zip(values) {
                prop_assert_eq!(&parameter.name, &given.name);
                prop_assert!(parameter.space.point(&given.value).is_some(), "{given:?}");
            }
        }
    }
}
