//! Budgets: jobs that wait for room, and jobs that are stopped; `sums` has the arithmetic.

mod sums;

use api::object::{self, Key, Target};
use api::sky::{
    API_VERSION, BudgetAction, BudgetStatus, ManagedJob, ManagedState as State, budget_gvk, cluster_gvk, keys,
    machine_gvk, managed_job_gvk,
};
use managed::budget::WAITS;
use managed::cluster::ClusterController;
use managed::job::ManagedJobController;
use managed::job_turns::JobTurns;
use proptest::prelude::*;
use reconcile::testing::Model;
use reconcile::{Decision, Propagation, Reconciler};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use sums::close;

/// Jobs, their budgets and their machines.
struct Scene {
    model: Model,
    turns: JobTurns,
    /// What was there at the latest look.
    seen: BTreeMap<(String, Key), Arc<Value>>,
}

fn key(name: &str) -> Key {
    Key::new("default", name)
}

impl Scene {
    fn new() -> Self {
        let mut model = Model::default();
        for (name, rate) in
            [("tasks", json!({"dollars": 6.0, "gpus": 8.0, "machines": 1.0})), ("local", json!({"machines": 1.0}))]
        {
            let file = json!({"submitted": "2026", "tasks": [{"name": "train", "task": {"run": "x"}, "rate": rate}]});
            model.put(json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
                "data": {"job": file.to_string()},
            }));
        }
        Self { model, turns: JobTurns::default(), seen: BTreeMap::new() }
    }

    fn budget(&mut self, name: &str, spec: &Value) {
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        }));
    }

    fn job_of(&mut self, id: u32, submission: &str, user: &str, labels: &Value) {
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "ManagedJob",
            "metadata": {"name": format!("job-{id}"), "namespace": "default", "labels": labels},
            "spec": {"id": id, "name": "train", "submission": submission, "user": user},
        }));
    }

    fn job(&mut self, id: u32) {
        self.job_of(id, "tasks", "me", &json!({}));
    }

    /// The turns look once at what has changed.
    fn look(&mut self) -> Option<Decision> {
        let mut now: BTreeMap<(String, Key), Arc<Value>> = BTreeMap::new();
        for kind in ["Budget", "Machine", "ManagedJob"] {
            now.extend(self.model.all(kind).into_iter().map(|one| ((kind.to_owned(), Key::of(&one)), one)));
        }
        let changed = now.iter().filter(|(key, one)| self.seen.get(*key) != Some(one));
        let gone = self.seen.iter().filter(|(key, _)| !now.contains_key(*key));
        for (_, object) in changed.chain(gone) {
            for watch in self.turns.watches() {
                watch.woken_by(&self.turns.primary(), &self.model, &object::Gvk::of(object), object);
            }
        }
        self.seen = now;
        let target = Target { gvk: managed_job_gvk(), key: Key::default() };
        self.model.decide(&self.turns, &target)
    }

    /// All controllers, until nothing changes. `kills`: after so many writes of a decision the control plane is killed.
    fn run_with(&mut self, kills: &mut dyn FnMut(usize) -> Option<usize>) {
        for _ in 0..60 {
            let before = self.model.revision();
            if let Some(mut decision) = self.look() {
                if let Some(done) = kills(decision.writes.len()) {
                    decision.writes.truncate(done);
                    (self.turns, self.seen) = (JobTurns::default(), BTreeMap::new());
                }
                let target = Target { gvk: managed_job_gvk(), key: Key::default() };
                self.model.execute(&target, &decision);
            }
            for job in self.model.all("ManagedJob") {
                self.once(&ManagedJobController, &Target::of(&job));
            }
            for cluster in self.model.all("Cluster") {
                self.once(&ClusterController, &Target::of(&cluster));
            }
            self.outside();
            if self.model.revision() == before {
                return;
            }
        }
        panic!("it does not come to rest: {:?}", self.model.writes.iter().rev().take(9).collect::<Vec<_>>());
    }

    fn run(&mut self) {
        self.run_with(&mut |_| None);
    }

    fn once<R: Reconciler>(&mut self, reconciler: &R, target: &Target) {
        if let Some(decision) = self.model.decide(reconciler, target) {
            self.model.execute(target, &decision);
        }
    }

    /// What launchers and providers do: launches get clusters, machines run, and those that are deleted go.
    fn outside(&mut self) {
        for launch in self.model.all("Launch") {
            let target = Target::of(&launch);
            if object::is_terminating(&launch) {
                self.model.change(&target.gvk, &target.key, |one| one["metadata"]["finalizers"] = json!([]));
                continue;
            }
            let name = launch["spec"]["cluster"].as_str().unwrap();
            if self.model.one("Cluster", name).is_none() && launch["status"]["phase"] != "Succeeded" {
                let read = serde_json::from_value(launch["spec"].clone()).unwrap();
                let read = api::sky::Launch {
                    metadata: serde_json::from_value(launch["metadata"].clone()).unwrap(),
                    spec: read,
                    ..api::sky::Launch::default()
                };
                let task = managed::launch::task_of(&read, &placement::Catalogue::default()).unwrap();
                let place =
                    json!({"provider": "cloud", "hourlyPrice": 6.0, "accelerators": {"name": "H100", "count": 8.0}});
                let places = vec![serde_json::from_value(place).unwrap()];
                let mut cluster = managed::launch::cluster_of(&read, &task, places, self.model.now);
                cluster["metadata"]["namespace"] = "default".into();
                let cluster = self.model.put(cluster);
                self.model.change(&target.gvk, &target.key, |one| {
                    one["status"] = json!({"phase": "Succeeded", "clusterUid": object::uid(&cluster), "job": 1});
                });
            }
        }
        for machine in self.model.all("Machine") {
            self.model.change(&machine_gvk(), &Key::of(&machine), |one| {
                if object::is_terminating(one) {
                    one["metadata"]["finalizers"].as_array_mut().unwrap().retain(|name| *name != keys::LEDGER);
                } else if one["status"].is_null() {
                    one["status"] = json!({"phase": "Running", "id": "i", "node": "n"});
                }
            });
        }
    }

    fn read(&self, id: u32) -> ManagedJob {
        serde_json::from_value((*self.model.one("ManagedJob", &format!("job-{id}")).unwrap()).clone()).unwrap()
    }

    fn state(&self, id: u32) -> State {
        self.read(id).status.state
    }

    fn message(&self, id: u32) -> String {
        self.read(id).status.tasks.first().map(|task| task.message.clone()).unwrap_or_default()
    }

    fn status(&self, name: &str) -> BudgetStatus {
        let object = self.model.one("Budget", name).unwrap();
        serde_json::from_value(object["status"].clone()).unwrap()
    }

    fn limit(&mut self, name: &str, limit: &Value) {
        self.model.change(&budget_gvk(), &key(name), |one| one["spec"]["limit"] = limit.clone());
    }

    fn cancel(&mut self, id: u32) {
        let key = key(&format!("job-{id}"));
        self.model.change(&managed_job_gvk(), &key, |one| one["spec"]["cancel"] = true.into());
    }
}

#[test]
fn two_jobs_cannot_both_take_the_last_room() {
    let mut scene = Scene::new();
    // 10 minutes of 6 dollars an hour are 1 dollar
    scene.budget("team", &json!({"limit": {"dollars": 1.5}}));
    scene.job(1);
    scene.job(2);
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::Starting, State::Pending));
    assert_eq!(
        scene.message(2),
        "it waits for budget team: the limit of 1.5 dollars has no room for 10 minutes of its machines (1 dollars); \
         raise spec.limit.dollars of the budget"
    );
    let status = scene.status("team");
    assert_eq!((status.reserved.dollars, status.jobs[0].name.as_str()), (1.0, "job-2"));
    assert_eq!((status.jobs[0].action, status.jobs.len()), (BudgetAction::Waits, 1));
    assert_eq!(status.message, "Jobs wait because there is no room for their next attempts.");
    // a control plane that starts again decides the same
    (scene.turns, scene.seen) = (JobTurns::default(), BTreeMap::new());
    scene.run();
    assert_eq!(scene.state(2), State::Pending);
    // the first one goes, and costs nothing any more
    scene.cancel(1);
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::Cancelled, State::Starting));
    assert!(scene.status("team").jobs.is_empty());
}

#[test]
fn jobs_are_stopped_when_the_limit_is_reached() {
    let mut scene = Scene::new();
    scene.budget("team", &json!({"limit": {"machineHours": 0.5, "gpuHours": 1000}}));
    scene.job(1);
    scene.run();
    assert_eq!(scene.state(1), State::Starting);
    let machine = scene.model.all("Machine")[0].clone();
    assert_eq!(object::annotation(&machine, keys::BUDGETS), Some("team"));
    scene.model.pass(60);
    scene.run();
    assert_eq!(scene.status("team").spent.gpu_hours, 0.133334);
    // the next look is at the crossing
    scene.model.pass(1700);
    scene.run();
    let Some(reconcile::Next::After(pause)) = scene.look().map(|decision| decision.next) else { panic!("it waits") };
    assert!((39_990..40_010).contains(&pause.as_millis()), "{pause}");
    scene.model.pass(41);
    scene.job(2);
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::FailedNoResource, State::Pending));
    assert_eq!(
        scene.message(1),
        "budget team: the limit of 0.5 machine-hours is reached, 0.5003 were spent since 2026-01-01T00:00:00Z; \
         raise spec.limit.machineHours and launch the job again"
    );
    assert!(scene.message(2).starts_with(WAITS), "{}", scene.message(2));
    assert!(scene.model.all("Machine").is_empty() && scene.model.all("Cluster").is_empty());
    let status = scene.status("team");
    assert_eq!(status.conditions[0].status, "True");
    assert_eq!((status.exceeded_at.as_str(), status.spent), ("2026-01-01T00:30:01Z", status.settled_up()));
    let listed: Vec<_> = status.jobs.iter().map(|job| (job.name.as_str(), job.action)).collect();
    assert_eq!(listed, [("job-1", BudgetAction::Stopped), ("job-2", BudgetAction::Waits)]);
    // with a higher limit the others go on
    scene.limit("team", &json!({"machineHours": 2}));
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::FailedNoResource, State::Starting));
    assert_eq!((scene.message(2).as_str(), scene.status("team").exceeded_at.as_str()), ("", ""));
}

trait Settled {
    fn settled_up(&self) -> api::sky::BudgetAmount;
}

impl Settled for BudgetStatus {
    /// What is settled, as it is shown.
    fn settled_up(&self) -> api::sky::BudgetAmount {
        let up = |number: f64| (number * 1e6).ceil() / 1e6;
        api::sky::BudgetAmount {
            dollars: up(self.settled.dollars),
            gpu_hours: up(self.settled.gpu_hours),
            machine_hours: up(self.settled.machine_hours),
        }
    }
}

#[test]
fn under_a_budget_of_zero_nothing_is_launched() {
    for limit in [json!({"dollars": 0}), json!({"machineHours": 0}), json!({"dollars": 5, "gpuHours": 0})] {
        let mut scene = Scene::new();
        scene.budget("none", &json!({"limit": limit, "reserveMinutes": 0}));
        scene.job_of(1, "local", "me", &json!({}));
        scene.run();
        assert_eq!(scene.state(1), State::Pending, "{limit}");
        assert!(scene.message(1).starts_with("it waits for budget none: the limit of 0 "), "{}", scene.message(1));
        assert!(scene.model.all("Launch").is_empty());
    }
}

#[test]
fn a_budget_is_for_the_jobs_that_it_names() {
    let mut scene = Scene::new();
    scene.budget("both", &json!({"limit": {"dollars": 0}, "user": "eve", "selector": {"matchLabels": {"team": "x"}}}));
    scene.budget("bob", &json!({"limit": {"dollars": 0}, "user": "bob"}));
    scene.job_of(1, "tasks", "eve", &json!({"team": "x"}));
    scene.job_of(2, "tasks", "eve", &json!({"team": "y"}));
    scene.job_of(3, "tasks", "me", &json!({"team": "x"}));
    scene.job_of(4, "tasks", "bob", &json!({}));
    scene.run();
    let states = [1, 2, 3, 4].map(|id| scene.state(id));
    assert_eq!(states, [State::Pending, State::Starting, State::Starting, State::Pending]);
    assert!(scene.message(1).contains("budget both") && scene.message(4).contains("budget bob"));
    // a job that gets the label is counted from then on, and one that loses it goes on
    scene.model.change(&managed_job_gvk(), &key("job-1"), |one| one["metadata"]["labels"]["team"] = "z".into());
    scene.model.change(&managed_job_gvk(), &key("job-2"), |one| one["metadata"]["labels"]["team"] = "x".into());
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::Starting, State::FailedNoResource));
}

#[test]
fn replicas_count_as_jobs_do() {
    let mut scene = Scene::new();
    scene.budget("web", &json!({"limit": {"dollars": 1.5}, "selector": {"matchLabels": {keys::FLEET: "web"}}}));
    for id in [1, 2] {
        scene.job_of(id, "tasks", "me", &json!({keys::FLEET: "web", keys::FLEET_KIND: "service"}));
        scene.model.change(&managed_job_gvk(), &key(&format!("job-{id}")), |one| {
            one["spec"]["replica"] = json!({"name": "web", "version": 1, "holds": true});
        });
    }
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::Starting, State::Pending));
    scene.model.pass(901);
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::FailedNoResource, State::Pending));
}

#[test]
fn many_jobs_get_their_reasons_in_parts() {
    let mut scene = Scene::new();
    scene.budget("none", &json!({"limit": {"dollars": 0}}));
    for id in 1..=2_000 {
        scene.job(id);
    }
    let target = Target { gvk: managed_job_gvk(), key: Key::default() };
    let decision = scene.look().unwrap();
    assert_eq!(decision.next, reconcile::Next::After(jiff::SignedDuration::from_secs(1)), "reasons come in parts");
    let told = decision.writes.iter().filter(|write| format!("{write:?}").contains(WAITS)).count();
    assert_eq!(told, 64);
    scene.model.execute(&target, &decision);
    let more = scene.look().unwrap();
    assert!(more.writes.iter().filter(|write| format!("{write:?}").contains(WAITS)).count() == 64);
}

#[test]
fn jobs_that_run_already_count_for_a_new_budget() {
    let mut scene = Scene::new();
    scene.job(1);
    scene.run();
    let before = scene.model.all("Machine")[0].clone();
    assert_eq!((object::annotation(&before, keys::BUDGETS), scene.state(1)), (None, State::Starting));
    scene.budget("late", &json!({"limit": {"machineHours": 1}, "reserveMinutes": 0}));
    scene.run();
    let machine = scene.model.all("Machine")[0].clone();
    assert_eq!(object::annotation(&machine, keys::BUDGETS), Some("late"));
    scene.model.pass(3601);
    scene.run();
    assert_eq!(scene.state(1), State::FailedNoResource);
    // a budget that is deleted holds no machine
    scene.job(2);
    scene.limit("late", &json!({"machineHours": 2}));
    scene.run();
    let target = Target { gvk: budget_gvk(), key: key("late") };
    scene.model.delete(&target, Propagation::Background, None);
    scene.cancel(2);
    scene.run();
    assert!(scene.model.all("Machine").is_empty());
}

#[test]
fn a_budget_bounds_attempts_after_a_recovery() {
    let mut scene = Scene::new();
    scene.budget("team", &json!({"limit": {"machineHours": 0.3}}));
    scene.job(1);
    scene.run();
    scene.model.pass(600);
    // somebody removes its cluster
    let target = Target { gvk: cluster_gvk(), key: key("train-1-0-1") };
    scene.model.delete(&target, Propagation::Background, None);
    scene.run();
    assert_eq!((scene.state(1), scene.read(1).status.tasks[0].attempt), (State::Recovering, 1));
    assert!(scene.message(1).starts_with(WAITS), "{}", scene.message(1));
    assert_eq!(scene.status("team").settled.machine_hours, 600.0 / 3600.0);
    scene.limit("team", &json!({"machineHours": 0.4}));
    scene.run();
    assert_eq!((scene.state(1), scene.read(1).status.tasks[0].attempt), (State::Recovering, 2));
    assert!(scene.model.one("Launch", "job-1-0-2").is_some());
}

#[test]
fn the_next_period_begins_with_nothing_spent() {
    let mut scene = Scene::new();
    scene.budget("daily", &json!({"limit": {"dollars": 12}, "period": "Day"}));
    scene.job(1);
    scene.run();
    scene.model.pass(2 * 3600 + 1);
    scene.run();
    scene.job(2);
    scene.run();
    assert_eq!((scene.state(1), scene.state(2)), (State::FailedNoResource, State::Pending));
    assert!(scene.message(2).ends_with("or wait until 2026-01-02T00:00:00Z"), "{}", scene.message(2));
    scene.model.pass(22 * 3600);
    scene.run();
    assert_eq!(scene.state(2), State::Starting);
    assert_eq!(scene.status("daily").period_start, "2026-01-02T00:00:00Z");
}

#[test]
fn jobs_without_a_budget_cost_no_write() {
    let writes = |is_elsewhere: bool| {
        let mut scene = Scene::new();
        if is_elsewhere {
            scene.model.put(json!({
                "apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": "other", "namespace": "other"},
                "spec": {"limit": {"dollars": 0}},
            }));
            scene.run();
            scene.model.writes.clear();
        }
        for id in 1..4 {
            scene.job(id);
        }
        scene.run();
        scene.cancel(2);
        scene.model.pass(100);
        scene.run();
        scene.model.writes.clone()
    };
    assert_eq!(writes(true), writes(false));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn kills_between_writes_lose_and_double_nothing(
        kills in prop::collection::vec(prop::option::weighted(0.4, 0_usize..6), 0..60),
        pauses in prop::collection::vec(1_i64..900, 6),
    ) {
        let mut scene = Scene::new();
        scene.budget("team", &json!({"limit": {"machineHours": 100, "dollars": 1000}}));
        let mut kills = kills.into_iter();
        let mut dies = |count: usize| kills.next().flatten().map(|done| done.min(count));
        let mut exact = 0;
        for (id, pause) in (1..).zip(&pauses) {
            scene.job(id);
            scene.run_with(&mut dies);
            scene.run();
            let there = i64::try_from(scene.model.all("Machine").len()).unwrap();
            scene.model.pass(*pause);
            exact += there * pause;
            // every second one ends
            if id % 2 == 0 {
                scene.cancel(id);
            }
            scene.run_with(&mut dies);
            scene.run();
        }
        for id in (1..7).filter(|id| id % 2 == 1) {
            scene.cancel(id);
        }
        scene.run_with(&mut dies);
        scene.run();
        prop_assert!(scene.model.all("Machine").is_empty());
        #[expect(clippy::cast_precision_loss, reason = "seconds")]
        let hours = exact as f64 / 3600.0;
        let settled = scene.status("team").settled;
        prop_assert!(close(settled.machine_hours, hours), "{} of {hours}", settled.machine_hours);
        prop_assert!(close(settled.dollars, 6.0 * hours) && close(settled.gpu_hours, 8.0 * hours));
    }
}
