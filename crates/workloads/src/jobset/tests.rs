//! The JobSet controller from a JobSet's creation to its end, on a world in memory; Jobs are played by the tests.
//! The scenarios are those of `e2e/golden/jobset` and of upstream's quirks.

use super::*;
use api::jobset::keys;
use reconcile::testing::Model;
use serde_json::json;

/// A JobSet with its controller.
struct Play {
    model: Model,
    target: Target,
}

impl Play {
    /// A JobSet `js` of replicated jobs (name, replicas, other members), with other members of its spec.
    fn new(replicated: &[(&str, i32, Value)], spec: Value) -> Self {
        let jobs: Vec<Value> = replicated
            .iter()
            .map(|(name, replicas, more)| {
                let mut job = json!({"name": name, "groupName": "default", "replicas": replicas, "template": {"spec": {
                    "completionMode": "Indexed", "parallelism": 1, "completions": 1,
                    "template": {"metadata": {}, "spec": {"containers": [{"name": "main"}]}}}}});
                reconcile::testing::merge(&mut job, more);
                job
            })
            .collect();
        let mut jobset = json!({"apiVersion": api::jobset::API_VERSION, "kind": "JobSet",
            "metadata": {"name": "js", "namespace": "ns"},
            "spec": {"replicatedJobs": jobs, "network": {"enableDNSHostnames": true}, "successPolicy": {"operator": "All"}}});
        reconcile::testing::merge(&mut jobset["spec"], &spec);
        let target = Target::of(&jobset);
        let mut play = Self { model: Model::of([jobset]), target };
        play.run();
        play
    }

    fn run(&mut self) -> Next {
        self.model.run(&JobSetController, &self.target)
    }

    /// Changes a Job's status as the Job controller would, then reconciles.
    fn job(&mut self, name: &str, status: Value) -> &mut Self {
        self.model.change(&jobs(), &Key::new("ns", name), |job| reconcile::testing::merge(&mut job["status"], &status));
        self.run();
        self
    }

    fn ready(&mut self, name: &str) -> &mut Self {
        self.job(name, json!({"active": 1, "ready": 1}))
    }

    fn complete(&mut self, name: &str) -> &mut Self {
        self.job(name, json!({"active": null, "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}))
    }

    fn fail(&mut self, name: &str, reason: &str, message: &str, at: &str) -> &mut Self {
        let condition = json!({"type": "Failed", "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": at});
        self.job(name, json!({"active": null, "conditions": [condition]}))
    }

    fn set(&mut self, spec: Value) -> &mut Self {
        let key = self.target.key.clone();
        self.model.change(&api::jobset::gvk(), &key, |jobset| reconcile::testing::merge(&mut jobset["spec"], &spec));
        self.run();
        self
    }

    /// Garbage collection: lets go of what only waits for its dependents.
    fn collect(&mut self) -> &mut Self {
        for job in self.model.all("Job") {
            if object::is_terminating(&job) {
                self.model.change(&jobs(), &Key::of(&job), |job| {
                    let list = job["metadata"]["finalizers"].as_array_mut().expect("a finalizer");
                    list.retain(|finalizer| finalizer != "foregroundDeletion");
                });
            }
        }
        self.run();
        self
    }

    fn status(&self) -> Value {
        self.model.one("JobSet", "js").map(|jobset| jobset["status"].clone()).unwrap_or_default()
    }

    /// `Type=Status/Reason` of each condition, in order.
    fn conditions(&self) -> Vec<String> {
        let status = self.status();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let text = |c: &Value, member| object::text(c, member).to_owned();
        conditions.map(|c| format!("{}={}/{}", text(c, "type"), text(c, "status"), text(c, "reason"))).collect()
    }

    /// Names of the Jobs, with `@attempt` of later ones, `~` for suspended and `-` for terminating ones.
    fn jobs(&self) -> Vec<String> {
        self.model
            .all("Job")
            .iter()
            .map(|job| {
                let attempt = object::label(job, keys::RESTART_ATTEMPT).unwrap_or_default();
                let attempt = if attempt == "0" { String::new() } else { format!("@{attempt}") };
                let suspended = if job["spec"]["suspend"] == json!(true) { "~" } else { "" };
                let terminating = if object::is_terminating(job) { "-" } else { "" };
                format!("{}{attempt}{suspended}{terminating}", object::meta(job, "name"))
            })
            .collect()
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.model.events)
    }
}

fn plain() -> Value {
    json!({})
}

#[test]
fn a_jobset_lives() {
    let mut play = Play::new(&[("a", 1, plain()), ("b", 2, plain())], json!({}));
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0", "js-b-1"]);
    let service = play.model.one("Service", "js").expect("a headless Service");
    assert_eq!(service["spec"]["selector"], json!({keys::JOBSET_NAME: "js"}));
    assert_eq!(play.status()["restarts"], 0);
    play.ready("js-a-0").ready("js-b-0");
    let count = |ready, succeeded, active| json!({"active": active, "failed": 0, "ready": ready, "succeeded": succeeded, "suspended": 0});
    let counts = |play: &Play, at: usize| {
        let mut counts = play.status()["replicatedJobsStatus"][at].clone();
        counts.as_object_mut().unwrap().remove("name");
        counts
    };
    assert_eq!((counts(&play, 0), counts(&play, 1)), (count(1, 0, 1), count(1, 0, 1)));
    play.complete("js-a-0").complete("js-b-0");
    assert_eq!(play.conditions(), Vec::<String>::new());
    play.complete("js-b-1");
    assert_eq!(play.conditions(), ["Completed=True/AllJobsCompleted"]);
    assert_eq!(play.status()["terminalState"], "Completed");
    assert_eq!(play.events(), ["Normal AllJobsCompleted: jobset completed successfully"]);
    // the end is the end: neither suspension nor a deleted Job changes anything
    play.set(json!({"suspend": true}));
    assert_eq!((play.conditions().len(), play.events().len()), (1, 0));
}

#[test]
fn success_counts_the_targets() {
    let any = json!({"successPolicy": {"operator": "Any", "targetReplicatedJobs": ["a"]}});
    let mut play = Play::new(&[("a", 2, plain()), ("b", 1, plain())], any);
    play.complete("js-b-0");
    assert_eq!(play.conditions(), Vec::<String>::new());
    play.complete("js-a-1");
    assert_eq!(play.conditions(), ["Completed=True/AllJobsCompleted"]);
    // the Job that still ran is deleted by the next pass, the others stay
    play.collect();
    assert_eq!(play.jobs(), ["js-a-1", "js-b-0"]);

    let all = json!({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["a"]}});
    let mut play = Play::new(&[("a", 2, plain()), ("b", 1, plain())], all);
    play.complete("js-a-0");
    assert_eq!(play.conditions(), Vec::<String>::new());
    play.complete("js-a-1");
    assert_eq!(play.conditions(), ["Completed=True/AllJobsCompleted"]);
}

#[test]
fn without_a_policy_the_first_failure_is_the_end() {
    let mut play = Play::new(&[("a", 2, plain())], json!({}));
    play.fail("js-a-1", "BackoffLimitExceeded", "m", "2026-01-01T00:00:05Z");
    assert_eq!(play.conditions(), ["Failed=True/FailedJobs"]);
    let text = "Warning FailedJobs: jobset failed due to one or more job failures (first failed job: js-a-1)";
    assert_eq!(play.events(), [text]);
    assert_eq!(play.collect().jobs(), ["js-a-1"]);
}

#[test]
fn restarts_are_counted_and_limited() {
    let mut play = Play::new(&[("w", 2, plain())], json!({"failurePolicy": {"maxRestarts": 1}}));
    play.fail("js-w-0", "BackoffLimitExceeded", "m", "2026-01-01T00:00:05Z");
    assert_eq!(play.conditions(), ["RestartingJobSet=True/DefaultFailurePolicy"]);
    let text = "applying RestartJobSet failure policy action (first failed job: js-w-0)";
    assert_eq!(
        play.events(),
        [format!("Warning DefaultFailurePolicy: {text}"), format!("Warning RestartJobSetFailurePolicyAction: {text}")]
    );
    assert_eq!(play.collect().jobs(), ["js-w-0@1", "js-w-1@1"]);
    assert_eq!((&play.status()["restarts"], &play.status()["restartsCountTowardsMax"]), (&json!(1), &json!(1)));
    play.ready("js-w-0").ready("js-w-1");
    assert_eq!(play.conditions(), ["RestartingJobSet=False/JobsReady"]);
    play.fail("js-w-1", "BackoffLimitExceeded", "m", "2026-01-01T00:00:09Z");
    assert_eq!(play.conditions(), ["RestartingJobSet=False/JobSetFailed", "Failed=True/ReachedMaxRestarts"]);
    let text = "jobset failed due to reaching max number of restarts (first failed job: js-w-1)";
    assert_eq!(
        play.events(),
        [
            "Normal JobsReady: all jobs are ready".to_owned(),
            format!("Warning ReachedMaxRestarts: {text}"),
            "Normal JobSetFailed: jobset failed".to_owned()
        ]
    );
}

#[test]
fn the_first_matching_rule_decides() {
    let rules = |rules: Value| json!({"failurePolicy": {"maxRestarts": 0, "rules": rules}});
    let free = json!({"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"], "targetReplicatedJobs": ["b"]});
    let fatal =
        json!({"name": "fatal", "action": "FailJobSet", "onJobFailureMessagePatterns": ["(", "exit code 4[0-9]"]});
    for (reason, message, condition, restarts) in [
        ("PodFailurePolicy", "exit code 42", "RestartingJobSet=True/FailurePolicy_free", 1),
        ("BackoffLimitExceeded", "with exit code 42.", "Failed=True/FailJobSetFailurePolicyAction", 0),
        ("BackoffLimitExceeded", "exit code 3", "Failed=True/ReachedMaxRestarts", 0),
    ] {
        let mut play = Play::new(&[("a", 1, plain()), ("b", 1, plain())], rules(json!([free, fatal])));
        play.fail("js-b-0", reason, message, "2026-01-01T00:00:05Z");
        assert_eq!(play.conditions(), [condition], "{message}");
        assert_eq!(play.status()["restarts"], restarts);
        assert_eq!(play.status().get("restartsCountTowardsMax"), None);
    }
    // of several failures the earliest that the rule matches, whatever else failed before
    let target = json!([{"name": "t", "action": "FailJobSet", "targetReplicatedJobs": ["a"]}]);
    let mut play = Play::new(&[("a", 2, plain()), ("b", 1, plain())], rules(target));
    for (job, at) in [("js-b-0", "01"), ("js-a-0", "09"), ("js-a-1", "05")] {
        let condition =
            json!([{"type": "Failed", "status": "True", "lastTransitionTime": format!("2026-01-01T00:00:{at}Z")}]);
        play.model.change(&jobs(), &Key::new("ns", job), |job| job["status"] = json!({"conditions": condition}));
    }
    play.run();
    assert!(play.events()[0].ends_with("(first failed job: js-a-1)"));
}

#[test]
fn jobs_are_made_again_one_by_one_or_all_at_once() {
    for (strategy, meanwhile) in
        [("Recreate", ["js-w-0-", "js-w-1@1"].as_slice()), ("BlockingRecreate", ["js-w-0-"].as_slice())]
    {
        let policy = json!({"failurePolicy": {"maxRestarts": 1, "restartStrategy": strategy}});
        let mut play = Play::new(&[("w", 2, plain())], policy);
        play.model.change(&jobs(), &Key::new("ns", "js-w-0"), |job| {
            job["metadata"]["finalizers"] = json!(["example.com/hold"]);
        });
        play.fail("js-w-1", "BackoffLimitExceeded", "m", "2026-01-01T00:00:05Z").collect();
        assert_eq!(play.jobs(), meanwhile, "{strategy}");
        play.model.change(&jobs(), &Key::new("ns", "js-w-0"), |job| job["metadata"]["finalizers"] = json!([]));
        play.run();
        assert_eq!(play.jobs(), ["js-w-0@1", "js-w-1@1"], "{strategy}");
    }
}

#[test]
fn in_order_each_waits_for_the_one_before() {
    let in_order = json!({"startupPolicy": {"startupPolicyOrder": "InOrder"}});
    let mut play = Play::new(&[("a", 1, plain()), ("b", 2, plain())], in_order.clone());
    assert_eq!(play.jobs(), ["js-a-0"]);
    assert_eq!(play.conditions(), ["StartupPolicyInProgress=True/InOrderStartupPolicyInProgress"]);
    play.ready("js-a-0");
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0", "js-b-1"]);
    play.ready("js-b-0").ready("js-b-1");
    let done = [
        "StartupPolicyInProgress=False/InOrderStartupPolicyInProgress",
        "StartupPolicyCompleted=True/InOrderStartupPolicyCompleted",
    ];
    assert_eq!(play.conditions(), done);

    let mut spec = in_order;
    spec["suspend"] = true.into();
    let mut play = Play::new(&[("a", 1, plain()), ("b", 1, plain())], spec);
    assert_eq!(play.jobs(), ["js-a-0~", "js-b-0~"]);
    assert_eq!(play.conditions(), ["Suspended=True/SuspendedJobs"]);
    play.set(json!({"suspend": false}));
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0~"]);
    assert_eq!(
        play.conditions(),
        ["Suspended=True/SuspendedJobs", "StartupPolicyInProgress=True/InOrderStartupPolicyInProgress"]
    );
    play.ready("js-a-0").ready("js-b-0");
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0"]);
    assert_eq!(play.conditions(), ["Suspended=False/ResumeJobs", done[0], done[1]]);
}

#[test]
fn dependents_wait() {
    let on = |name: &str, status: &str| json!({"dependsOn": [{"name": name, "status": status}]});
    let mut play = Play::new(
        &[
            ("none", 0, plain()),
            ("a", 1, on("none", "Complete")),
            ("b", 1, on("a", "Ready")),
            ("c", 1, on("a", "Complete")),
        ],
        json!({"suspend": true}),
    );
    assert_eq!(play.jobs(), ["js-a-0~"]);
    play.set(json!({"suspend": false}));
    assert_eq!(play.jobs(), ["js-a-0"]);
    assert_eq!(play.conditions(), ["Suspended=False/ResumeJobs"]);
    play.ready("js-a-0");
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0"]);
    play.complete("js-a-0");
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0", "js-c-0"]);
    // suspended and resumed, the sequence starts again: b depends on a, which is done
    play.set(json!({"suspend": true}));
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0~", "js-c-0~"]);
    play.set(json!({"suspend": false}));
    assert_eq!(play.jobs(), ["js-a-0", "js-b-0", "js-c-0"]);
}

#[test]
fn what_changed_while_suspended_reaches_the_jobs() {
    let template = json!({"template": {"spec": {"template": {"metadata": {"labels": {"app": "x"}},
        "spec": {"nodeSelector": {"arch": "amd64"}, "tolerations": [{"key": "a"}]}}}}});
    let mut play = Play::new(&[("w", 1, template)], json!({"suspend": true}));
    play.model
        .change(&jobs(), &Key::new("ns", "js-w-0"), |job| job["status"]["startTime"] = "2026-01-01T00:00:00Z".into());
    let key = play.target.key.clone();
    play.model.change(&api::jobset::gvk(), &key, |jobset| {
        let pod = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        pod["metadata"] = json!({"labels": {"queue": "gpu", keys::JOB_INDEX: "9"}, "annotations": {"flavor": "a100"}});
        pod["spec"]["nodeSelector"] = json!({"pool": "a100"});
        pod["spec"]["tolerations"] = json!([{"key": "b"}]);
        pod["spec"]["schedulingGates"] = json!([{"name": "x/y"}]);
        jobset["spec"]["suspend"] = false.into();
    });
    play.run();
    let job = play.model.one("Job", "js-w-0").expect("the Job");
    let pod = &job["spec"]["template"];
    assert_eq!(object::label(pod, "app"), Some("x"));
    assert_eq!(object::label(pod, "queue"), Some("gpu"));
    assert_eq!(object::label(pod, keys::JOB_INDEX), Some("0"));
    assert_eq!(object::annotation(pod, "flavor"), Some("a100"));
    assert_eq!(pod["spec"]["nodeSelector"], json!({"arch": "amd64", "pool": "a100"}));
    assert_eq!(pod["spec"]["tolerations"], json!([{"key": "a"}, {"key": "b"}]));
    assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": "x/y"}]));
    assert_eq!(job["status"].get("startTime"), None);
    assert_eq!(play.conditions(), ["Suspended=False/ResumeJobs"]);
}

#[test]
fn suspending_ends_a_restart() {
    let mut play = Play::new(&[("w", 1, plain())], json!({"failurePolicy": {"maxRestarts": 2}}));
    play.fail("js-w-0", "BackoffLimitExceeded", "m", "2026-01-01T00:00:05Z");
    play.set(json!({"suspend": true}));
    assert_eq!(play.conditions(), ["RestartingJobSet=False/JobSetSuspended", "Suspended=True/SuspendedJobs"]);
    assert_eq!(play.collect().jobs(), ["js-w-0@1~"]);
}

#[test]
fn claims_are_owned_unless_they_are_retained() {
    let claim = |name: &str| json!({"metadata": {"name": name, "labels": {"l": "1"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let policies = json!({"suspend": true, "volumeClaimPolicies": [
        {"templates": [claim("data")], "retentionPolicy": {"whenDeleted": "Delete"}},
        {"templates": [claim("model")], "retentionPolicy": {"whenDeleted": "Retain"}}]});
    let mounts = json!({"template": {"spec": {"template": {"spec": {"containers":
        [{"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}}}}});
    let play = Play::new(&[("a", 1, mounts), ("b", 1, plain())], policies);
    for (name, owned) in [("data-js", true), ("model-js", false)] {
        let claim = play.model.one("PersistentVolumeClaim", name).expect("a claim");
        assert_eq!(claim["metadata"].get("ownerReferences").is_some(), owned);
        assert_eq!(claim["metadata"]["labels"], json!({"l": "1", keys::JOBSET_NAME: "js"}));
    }
    let volumes = |job: &str| play.model.one("Job", job).unwrap()["spec"]["template"]["spec"].get("volumes").cloned();
    assert_eq!(volumes("js-a-0"), Some(json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data-js"}}])));
    assert_eq!(volumes("js-b-0"), None);
}

#[test]
fn a_child_that_cannot_be_made_ends_the_pass() {
    let mut play =
        Play::new(&[("good", 1, plain()), ("bad", 1, plain()), ("after", 1, plain())], json!({"managedBy": "x/y"}));
    assert_eq!((play.jobs().len(), play.status()), (0, Value::Null));
    play.model.refuse = Some(|write| write.ends_with("js-bad-0").then(|| "Job.batch is invalid".to_owned()));
    play.set(json!({"managedBy": null}));
    assert_eq!((play.jobs(), play.status()), (vec!["js-good-0".to_owned()], Value::Null));
    let text = "Warning JobCreationFailed: job \"js-bad-0\" creation failed with error: Job.batch is invalid";
    assert_eq!(play.events()[0], text);

    // somebody else has the name
    let taken = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "js-bad-0", "namespace": "ns"}, "spec": {}});
    play.model.put(taken);
    play.model.refuse = None;
    assert_eq!(play.run(), Next::Backoff);
    assert_eq!((play.jobs().len(), play.status()), (2, Value::Null));
    let text = "job \"js-bad-0\" creation failed with error: jobs.batch \"js-bad-0\" already exists";
    assert_eq!(play.events()[0], format!("Warning JobCreationFailed: {text}"));
}

#[test]
fn the_service_is_shared_and_made_again() {
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "ring", "namespace": "ns"}, "spec": {}});
    let mut play = Play::new(&[("a", 1, plain())], json!({"managedBy": "x/y", "network": {"subdomain": "ring"}}));
    play.model.put(service);
    play.set(json!({"managedBy": null}));
    assert_eq!(play.model.all("Service").len(), 1);
    assert_eq!(play.model.one("Job", "js-a-0").unwrap()["spec"]["template"]["spec"]["subdomain"], "ring");
    let target = Target { gvk: services(), key: Key::new("ns", "ring") };
    play.model.delete(&target, Propagation::Background, None);
    play.run();
    assert_eq!(play.model.one("Service", "ring").unwrap()["spec"]["clusterIP"], "None");

    let quiet =
        Play::new(&[("a", 1, plain())], json!({"network": {"enableDNSHostnames": false, "subdomain": "unused"}}));
    assert_eq!(quiet.model.all("Service").len(), 0);
    assert_eq!(quiet.model.one("Job", "js-a-0").unwrap()["spec"]["template"]["spec"].get("subdomain"), None);
}

#[test]
fn finished_jobsets_expire() {
    let mut play = Play::new(&[("a", 1, plain())], json!({"ttlSecondsAfterFinished": 10}));
    play.complete("js-a-0");
    play.model.pass(4);
    assert_eq!(play.run(), Next::After(SignedDuration::from_secs(6)));
    play.model.pass(6);
    play.run();
    assert!(object::is_terminating(&play.model.one("JobSet", "js").expect("held by its children")));

    // set after the end, it counts from the end
    let mut play = Play::new(&[("a", 1, plain())], json!({}));
    play.complete("js-a-0");
    play.model.pass(60);
    play.set(json!({"ttlSecondsAfterFinished": 60}));
    assert!(object::is_terminating(&play.model.one("JobSet", "js").expect("held by its children")));
}

#[test]
fn without_replicated_jobs_there_is_a_service_and_nothing_else() {
    let mut play = Play::new(&[], json!({}));
    assert_eq!(play.model.writes, ["create Service js"]);
    assert_eq!((play.events().len(), play.status()), (0, Value::Null));
}

#[test]
fn jobs_of_other_owners_are_left_alone() {
    let mut play = Play::new(&[("a", 1, plain())], json!({}));
    let foreign = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other", "namespace": "ns",
        "labels": {keys::JOBSET_NAME: "js", keys::REPLICATED_JOB_NAME: "a"},
        "ownerReferences": [{"apiVersion": api::jobset::API_VERSION, "kind": "JobSet", "name": "js", "uid": "old", "controller": true}]},
        "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    play.model.put(foreign);
    play.model.writes.clear();
    play.run();
    assert_eq!(play.model.writes, Vec::<String>::new());
}

#[test]
fn new_jobs_are_counted_together_with_what_became_of_them() {
    let mut play = Play::new(&[("a", 2, json!({}))], json!({}));
    play.model.delete(&Target { gvk: jobs(), key: Key::new("ns", "js-a-0") }, Propagation::Background, None);
    play.model.change(&jobs(), &Key::new("ns", "js-a-1"), |job| job["status"] = json!({"active": 1}));
    let decision = play.model.decide(&JobSetController, &play.target).expect("a decision");
    assert_eq!((decision.writes.iter().filter(|write| makes_job(write)).count(), &decision.status), (1, &None));
    play.job("js-a-1", json!({"ready": 1}));
    let counts = json!([{"name": "a", "active": 1, "failed": 0, "ready": 1, "succeeded": 0, "suspended": 0}]);
    assert_eq!(play.status()["replicatedJobsStatus"], counts);
}
