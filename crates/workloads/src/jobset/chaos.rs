//! The JobSet controller under faults: crashes between any two writes, and decisions taken on a view that was stale when
//! they were carried out. Jobs become ready, complete and fail at random; users suspend and resume.
//!
//! Seeded; a seed that fails is printed and, once fixed, kept in [`REMEMBERED`]. The last part of each run is free of
//! faults and must come to rest.

use super::JobSetController;
use super::jobs as job_gvk;
use api::jobset::{self, keys};
use api::object::{self, Key, Target};
use reconcile::testing::{Model, merge};
use reconcile::{Decision, World};
use serde_json::{Value, json};

/// Seeds that found a fault once.
const REMEMBERED: &[u64] = &[];

/// A small deterministic generator (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A JobSet of up to three replicated jobs with policies by chance.
fn random(dice: &mut Dice) -> Value {
    let count = 1 + dice.below(3);
    let in_order = dice.chance(25);
    let replicated: Vec<Value> = (0..count)
        .map(|index| {
            let mut job = json!({"name": format!("r{index}"), "replicas": dice.below(4), "groupName": "default",
                "template": {"spec": {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": []}}}}});
            if index > 0 && !in_order && dice.chance(40) {
                let status = if dice.chance(50) { "Ready" } else { "Complete" };
                job["dependsOn"] = json!([{"name": "r0", "status": status}]);
            }
            job
        })
        .collect();
    let mut spec = json!({"replicatedJobs": replicated, "suspend": dice.chance(20),
        "successPolicy": {"operator": if dice.chance(70) { "All" } else { "Any" }}});
    if in_order {
        spec["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"});
    }
    if dice.chance(80) {
        let strategy = if dice.chance(50) { "Recreate" } else { "BlockingRecreate" };
        spec["failurePolicy"] = json!({"maxRestarts": dice.below(3), "restartStrategy": strategy});
        let action = ["RestartJobSetAndIgnoreMaxRestarts", "FailJobSet", "RestartJobSet"][dice.below(3) as usize];
        if dice.chance(50) {
            let rule = json!({"name": "rule", "action": action, "onJobFailureReasons": ["PodFailurePolicy"]});
            spec["failurePolicy"]["rules"] = json!([rule]);
        }
    }
    json!({"apiVersion": jobset::API_VERSION, "kind": "JobSet", "metadata": {"name": "js", "namespace": "ns"}, "spec": spec})
}

struct Run {
    model: Model,
    target: Target,
    dice: Dice,
    /// Decided some time ago, not carried out yet.
    late: Option<Decision>,
    /// How it ended, once it has.
    end: Option<String>,
}

impl Run {
    fn stored(&self) -> Value {
        (*self.model.one("JobSet", "js").expect("nobody deletes it")).clone()
    }

    fn reconcile(&mut self) {
        let Some(mut decision) = self.model.decide(&JobSetController, &self.target) else { return };
        match self.dice.below(10) {
            // a crash
            0 | 1 => {
                decision.writes.truncate(self.dice.below(decision.writes.len() as u64 + 1) as usize);
                (decision.status, decision.events) = (None, Vec::new());
            }
            // a slow worker
            2 => return self.late = Some(decision),
            3 => {
                if let Some(late) = self.late.take() {
                    self.model.execute(&self.target, &late);
                }
            }
            _ => {}
        }
        self.model.execute(&self.target, &decision);
    }

    /// What the Job controller, garbage collection and users do meanwhile.
    fn happen(&mut self) {
        for job in self.model.all("Job") {
            let key = Key::of(&job);
            let ended = job["status"].get("conditions").is_some();
            if object::is_terminating(&job) {
                if self.dice.chance(50) {
                    self.model.change(&job_gvk(), &key, |job| job["metadata"]["finalizers"] = json!([]));
                }
            } else if !ended && job["spec"]["suspend"] == false && self.dice.chance(40) {
                let at = self.model.now.to_string();
                let status = match self.dice.below(6) {
                    0..=2 => json!({"ready": 1, "active": 1}),
                    3 | 4 => json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}),
                    _ => {
                        let reason = if self.dice.chance(50) { "PodFailurePolicy" } else { "BackoffLimitExceeded" };
                        json!({"conditions": [{"type": "Failed", "status": "True", "reason": reason,
                            "message": "m", "lastTransitionTime": at}]})
                    }
                };
                self.model.change(&job_gvk(), &key, |job| merge(&mut job["status"], &status));
            }
        }
        if self.dice.chance(8) {
            let suspend = self.dice.chance(30);
            let key = self.target.key.clone();
            self.model.change(&jobset::gvk(), &key, |jobset| jobset["spec"]["suspend"] = suspend.into());
        }
        self.model.pass(1);
    }

    /// What holds at any time.
    fn check(&mut self) {
        let stored = self.stored();
        let conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        assert!(!(holds("Completed") && holds("Failed")), "completed and failed");
        assert!(!(holds("StartupPolicyInProgress") && holds("StartupPolicyCompleted")), "starting and started");
        let terminal = object::text(&stored["status"], "terminalState").to_owned();
        assert_eq!(terminal.is_empty(), !(holds("Completed") || holds("Failed")));
        match &self.end {
            Some(end) => assert_eq!(*end, terminal, "the end is the end"),
            None if !terminal.is_empty() => self.end = Some(terminal),
            None => {}
        }
        let number = |member: &str| stored["status"][member].as_i64().unwrap_or_default();
        let max = stored["spec"]["failurePolicy"]["maxRestarts"].as_i64().unwrap_or_default();
        assert!(number("restartsCountTowardsMax") <= max, "too many restarts");
        assert!(number("restartsCountTowardsMax") <= number("restarts"));
        for job in self.model.all("Job") {
            let attempt: i64 =
                object::label(&job, keys::RESTART_ATTEMPT).and_then(|a| a.parse().ok()).expect("an attempt");
            assert!(attempt <= number("restarts"), "a Job of an attempt to come");
        }
    }

    /// No faults any more: everything comes to rest, and rest is silent.
    fn settle(&mut self) {
        for _ in 0..50 {
            self.model.run(&JobSetController, &self.target);
            let terminating: Vec<_> =
                self.model.all("Job").into_iter().filter(|job| object::is_terminating(job)).collect();
            if terminating.is_empty() {
                break;
            }
            for job in terminating {
                self.model.change(&job_gvk(), &Key::of(&job), |job| job["metadata"]["finalizers"] = json!([]));
            }
        }
        self.check();
        let decision = self.model.decide(&JobSetController, &self.target).expect("it is there");
        assert!(decision.is_silent(), "not at rest: {decision:?}");
        let stored = self.stored();
        let jobs = self.model.list(&job_gvk(), None);
        let restarts = stored["status"]["restarts"].as_i64().unwrap_or_default().to_string();
        if self.end.is_some() {
            assert!(
                jobs.iter().all(|job| job["status"].get("conditions").is_some()
                    || object::label(job, keys::RESTART_ATTEMPT) != Some(&restarts)),
                "a Job outlived the end"
            );
        } else {
            let suspended = stored["spec"]["suspend"] == true;
            for job in &jobs {
                assert_eq!(object::label(job, keys::RESTART_ATTEMPT), Some(restarts.as_str()), "an old Job stayed");
                assert!(!suspended || job["spec"]["suspend"] == true || job["status"].get("conditions").is_some());
            }
        }
    }
}

fn play(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let stored = random(&mut dice);
    let mut run = Run { target: Target::of(&stored), model: Model::of([stored]), dice, late: None, end: None };
    for _ in 0..40 {
        run.reconcile();
        run.check();
        if run.dice.chance(60) {
            run.happen();
        }
    }
    run.settle();
}

#[test]
fn faults_do_no_lasting_harm() {
    for seed in REMEMBERED.iter().copied().chain(1..400) {
        if let Err(panic) = std::panic::catch_unwind(|| play(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
