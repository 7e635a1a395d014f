//! The user: makes jobs and searches, suspends, resumes and deletes them, and over weeks whatever else a cluster has.

use super::{Cluster, JSON, MERGE, NAMESPACE, Workload, is_trial};
use crate::dice::Dice;
use api::object::{self, Gvk, Key, Target};
use api::trainer::annotations;
use serde_json::{Value, json};

/// How many jobs there are at once, trials apart.
const JOBS_MAX: usize = 3;

impl Cluster {
    /// The number of a new thing.
    pub(super) fn number(&self) -> usize {
        self.made.replace(self.made.get() + 1)
    }

    pub(super) fn make_job(&self, dice: &mut Dice) {
        if self.all("TrainJob").iter().filter(|job| !is_trial(job)).count() >= JOBS_MAX {
            return;
        }
        let number = self.number();
        let name = format!("job{number}");
        // half of the jobs matter more, where their runtime says so; they also ask for more, so that there is not always room
        let matters = number % 2 == 1;
        let cpu = if matters { ["1", "2", "2"] } else { ["1", "2", "500m"] }[dice.below(3) as usize];
        let nodes = if matters { 2 + dice.below(2) } else { 1 + dice.below(3) };
        let mut runtime = json!({"name": "torch-distributed"});
        if dice.chance(60) {
            let runtime_name = format!("runtime{number}");
            let mut template = json!({"spec": {"replicatedJobs": [{"name": "node", "template": {
                "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                "spec": {"backoffLimit": dice.below(3), "template": {"spec": {"restartPolicy": "Never",
                    "containers": [{"name": "node", "image": "none"}]}}}}}]}});
            // a quarter of them preempts nobody
            if matters {
                let class = if number % 8 == 7 { "patient" } else { "urgent" };
                template["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["priorityClassName"] =
                    class.into();
            }
            if dice.chance(50) {
                template["spec"]["failurePolicy"] = json!({"maxRestarts": dice.below(3)});
            }
            let object = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime",
                "metadata": {"name": runtime_name, "namespace": NAMESPACE},
                "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": template}});
            self.must(
                "POST",
                &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainingruntimes"),
                &object,
            );
            runtime = json!({"name": runtime_name, "kind": "TrainingRuntime"});
        }
        let mut annotations = json!({});
        if dice.chance(50) {
            annotations[annotations::RETRIES] = (1 + dice.below(2)).to_string().into();
            annotations[annotations::RETRY_BACKOFF] = ["0s", "3s", "1m", "6h"][dice.below(4) as usize].into();
        }
        if dice.chance(30) {
            annotations[annotations::LIFECYCLE] = "true".into();
        }
        if dice.chance(20) {
            annotations[annotations::TTL_SECONDS] = ["30", "3600", "90000"][dice.below(3) as usize].into();
        }
        let job = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"runtimeRef": runtime, "suspend": dice.chance(20), "trainer": {"numNodes": nodes,
                "command": ["true"], "resourcesPerNode": {"requests": {"cpu": cpu}}}}});
        self.note(format!("user: makes {name}"));
        self.must("POST", &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"), &job);
    }

    /// A search over a few trials, one or two at once.
    pub(super) fn make_search(&self, dice: &mut Dice) {
        let choices: Vec<String> = (0..1 + dice.below(3)).map(|n| n.to_string()).collect();
        let algorithm = match dice.chance(50) {
            true => json!({"grid": {}}),
            false => json!({"random": {"seed": dice.below(100)}}),
        };
        let trials = 1 + dice.below(4);
        let search = json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "OptimizationJob",
            "metadata": {"name": format!("search{}", self.number()), "namespace": NAMESPACE},
            "spec": {"objectives": [{"metric": "loss", "direction": "Minimize"}], "searchAlgorithm": algorithm,
                "parameters": [{"name": "x", "searchSpace": {"categorical": {"choices": choices}}}],
                "numTrials": trials, "parallelTrials": 1 + dice.below(trials.min(2)),
                "trainJobTemplate": {"spec": {"runtimeRef": {"name": "torch-distributed"},
                    "trainer": {"numNodes": 1 + dice.below(2), "command": ["true"]}}}}});
        self.note("user: makes a search".to_owned());
        self.must(
            "POST",
            &format!("/apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/optimizationjobs"),
            &search,
        );
    }

    pub(super) fn job_path(job: &Value) -> String {
        Self::path(&Gvk::of(job), &Key::of(job))
    }

    /// What a user does in the course of weeks beside what [`Cluster::user_step`] has: makes and ends searches, volumes, budgets
    /// and namespaces with what is in them, and clears away what has ended.
    pub fn user_day(&self, dice: &mut Dice) {
        if self.workload == Workload::MpiJobs {
            return self.mpi_user_day(dice);
        }
        match dice.below(10) {
            0 if self.all("OptimizationJob").is_empty() => self.make_search(dice),
            1 => self.make_namespace(dice),
            2 => self.make_budget_and_claim(dice),
            3 => self.end_something(dice),
            4..6 => self.clear(),
            _ => self.user_step(dice),
        }
    }

    /// Deletes what has ended; trials go with their search.
    fn clear(&self) {
        let jobs = self.all("TrainJob");
        for object in jobs.iter().filter(|job| !is_trial(job)).chain(&self.all("OptimizationJob")) {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            if conditions
                .into_iter()
                .any(|c| matches!(object::text(c, "type"), "Complete" | "Failed") && c["status"] == "True")
            {
                self.note(format!("user: clears {} away", object::meta(object, "name")));
                self.act("DELETE", &Self::job_path(object), JSON, &json!({"propagationPolicy": "Background"}));
            }
        }
    }

    /// A team of its own: a quota, some settings, and now and then a job.
    fn make_namespace(&self, dice: &mut Dice) {
        if self.all("Namespace").iter().any(|namespace| object::meta(namespace, "name").starts_with("team")) {
            return;
        }
        let name = format!("team{}", self.number());
        self.note(format!("user: makes namespace {name}"));
        self.act(
            "POST",
            "/api/v1/namespaces",
            JSON,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        let inside = |plural: &str| format!("/api/v1/namespaces/{name}/{plural}");
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": {"configmaps": "5"}}});
        self.act("POST", &inside("resourcequotas"), JSON, &quota);
        for number in 0..dice.below(4) {
            let settings =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("settings{number}")}});
            self.act("POST", &inside("configmaps"), JSON, &settings);
        }
    }

    /// A budget over all pods, and a volume claim that nobody uses yet.
    fn make_budget_and_claim(&self, dice: &mut Dice) {
        let number = self.number();
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": format!("budget{number}")},
            "spec": {"minAvailable": dice.below(3), "selector": {}}});
        self.act("POST", &format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"), JSON, &budget);
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": format!("claim{number}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        self.act("POST", &format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"), JSON, &claim);
    }

    /// Deletes one of those.
    fn end_something(&self, dice: &mut Dice) {
        let mut things = self.all("PodDisruptionBudget");
        things.extend(self.all("PersistentVolumeClaim"));
        things.extend(
            self.all("Namespace").into_iter().filter(|namespace| object::meta(namespace, "name").starts_with("team")),
        );
        if let Some(thing) = dice.pick(&things) {
            self.note(format!("user: deletes {}", Target::of(thing)));
            self.act("DELETE", &Self::job_path(thing), JSON, &Value::Null);
        }
    }

    /// The user makes, suspends, resumes or deletes a job.
    pub fn user_step(&self, dice: &mut Dice) {
        if self.workload == Workload::MpiJobs {
            return self.mpi_user_step(dice);
        }
        let searches = self.all("OptimizationJob");
        if let Some(search) = dice.pick(&searches).filter(|_| dice.chance(5)) {
            self.note("user: deletes the search".to_owned());
            self.act("DELETE", &Self::job_path(search), JSON, &json!({"propagationPolicy": "Background"}));
            return;
        }
        let jobs = self.all("TrainJob");
        match (dice.below(100), dice.pick(&jobs)) {
            (0..40, _) | (_, None) => self.make_job(dice),
            (40..80, Some(job)) => {
                let suspend = job["spec"]["suspend"] != true;
                self.note(format!(
                    "user: {} {}",
                    if suspend { "suspends" } else { "resumes" },
                    object::meta(job, "name")
                ));
                self.act("PATCH", &Self::job_path(job), MERGE, &json!({"spec": {"suspend": suspend}}));
            }
            (_, Some(job)) => {
                let policy = ["Background", "Foreground"][dice.below(2) as usize];
                self.note(format!("user: deletes {} ({policy})", object::meta(job, "name")));
                self.act("DELETE", &Self::job_path(job), JSON, &json!({"propagationPolicy": policy}));
            }
        }
    }

    /// Nobody waits for the user at the end.
    pub fn resume_all(&self) {
        if self.workload == Workload::MpiJobs {
            return self.resume_mpijobs();
        }
        for job in self.all("TrainJob") {
            self.act("PATCH", &Self::job_path(&job), MERGE, &json!({"spec": {"suspend": false}}));
        }
    }
}
