//! What must hold after every step of every run, written once.

use crate::cluster::{Cluster, JOBSET_NAME};
use api::object;
use api::trainer::annotations;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Remembers what may not be taken back.
#[derive(Default)]
pub struct Watchdog {
    /// How each object ended, by uid.
    ended: BTreeMap<String, (String, &'static str)>,
    /// The JobSet of each attempt: uid of the TrainJob and number of the attempt, to uid.
    attempts: BTreeMap<(String, i64), String>,
    /// The values of each trial: uid of the search and name of the trial, to what it was told.
    values: BTreeMap<(String, String), Value>,
}

/// The final condition of an object that has one; an error where it has both.
fn ending(object: &Value) -> Result<Option<&'static str>, String> {
    let is = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|c| c["type"] == kind && c["status"] == "True")
    };
    match (is("Complete") || is("Completed"), is("Failed")) {
        (true, true) => Err(format!("{} is complete and failed", object::meta(object, "name"))),
        (true, false) => Ok(Some("complete")),
        (false, true) => Ok(Some("failed")),
        (false, false) => Ok(None),
    }
}

fn is_live(pod: &Value) -> bool {
    !object::is_terminating(pod) && !matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

impl Watchdog {
    /// How many objects have ended.
    pub fn finished(&self) -> usize {
        self.ended.len()
    }

    /// After every step.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check(&mut self, cluster: &Cluster) -> Result<(), String> {
        if let Some(strayed) = cluster.strayed.borrow().first() {
            return Err(format!("a write left its namespace: {strayed}"));
        }
        let pods = cluster.all("Pod");
        let mut live = BTreeSet::new();
        for pod in pods.iter().filter(|pod| is_live(pod)) {
            let Some(owner) = object::controller_of(pod) else { continue };
            let index = object::label(pod, COMPLETION_INDEX).unwrap_or_default();
            if !live.insert((object::text(owner, "uid").to_owned(), index.to_owned())) {
                return Err(format!("two live pods for index {index} of {}", object::text(owner, "name")));
            }
        }
        for kind in ["OptimizationJob", "TrainJob", "JobSet", "Job"] {
            for object in cluster.all(kind) {
                let now = ending(&object)?;
                let uid = object::uid(&object).to_owned();
                match (self.ended.get(&uid), now) {
                    (Some((name, was)), now) if now != Some(*was) => {
                        return Err(format!("{kind} {name} was {was} and is {now:?}"));
                    }
                    (None, Some(now)) => {
                        self.ended.insert(uid, (object::meta(&object, "name").to_owned(), now));
                    }
                    (Some(_) | None, _) => {}
                }
            }
        }
        self.check_attempts(cluster)?;
        self.check_searches(cluster)?;
        for jobset in cluster.all("JobSet") {
            let most = jobset["spec"]["failurePolicy"]["maxRestarts"].as_i64().unwrap_or(0);
            let counted = jobset["status"]["restartsCountTowardsMax"].as_i64().unwrap_or(0);
            if counted > most {
                return Err(format!("JobSet {} restarted {counted} times of {most}", object::meta(&jobset, "name")));
            }
        }
        Ok(())
    }

    /// Each attempt of a TrainJob is made once, none beyond those it asked for, and it fails after the last only.
    fn check_attempts(&mut self, cluster: &Cluster) -> Result<(), String> {
        let number = |object: &Value, key| object::annotation(object, key).and_then(|text| text.parse::<i64>().ok());
        // what a stale view makes for a TrainJob that is deleted is garbage, and collected
        let jobs = cluster.all("TrainJob");
        let living = jobs.iter().filter(|job| !object::is_terminating(job)).map(|job| object::uid(job));
        let living: BTreeSet<&str> = living.collect();
        for jobset in cluster.all("JobSet") {
            let owner = object::controller_of(&jobset).filter(|owner| living.contains(object::text(owner, "uid")));
            let Some(owner) = owner else { continue };
            let attempt = number(&jobset, annotations::ATTEMPT).unwrap_or(1);
            let key = (object::text(owner, "uid").to_owned(), attempt);
            let uid = object::uid(&jobset);
            if self.attempts.entry(key).or_insert_with(|| uid.to_owned()) != uid {
                return Err(format!("attempt {attempt} of {} was made twice", object::text(owner, "name")));
            }
        }
        for job in &jobs {
            let (name, uid) = (object::meta(job, "name"), object::uid(job));
            let made = self.attempts.keys().filter(|(owner, _)| owner == uid).map(|(_, attempt)| *attempt).max();
            let (made, most) = (made.unwrap_or(0), number(job, annotations::RETRIES).unwrap_or(0) + 1);
            if made > most {
                return Err(format!("TrainJob {name} is at attempt {made} of {most}"));
            }
            // one that is deleted is not tried again
            if ending(job)? == Some("failed") && made < most && !object::is_terminating(job) {
                return Err(format!("TrainJob {name} has failed after {made} of {most} attempts"));
            }
        }
        Ok(())
    }

    /// No more trials at once than asked for, none beyond the last, and none ever with other values.
    fn check_searches(&mut self, cluster: &Cluster) -> Result<(), String> {
        let jobs = cluster.all("TrainJob");
        for search in cluster.all("OptimizationJob").iter().filter(|search| !object::is_terminating(search)) {
            let count = |field: &str| search["spec"][field].as_u64().unwrap_or(1) as usize;
            let trials: Vec<_> = jobs.iter().filter(|job| is_owned(job, search)).collect();
            if trials.len() > count("numTrials") {
                return Err(format!("{} trials of {}", trials.len(), count("numTrials")));
            }
            let mut running = 0;
            for trial in trials {
                running += usize::from(!object::is_terminating(trial) && ending(trial)?.is_none());
                let key = (object::uid(search).to_owned(), object::meta(trial, "name").to_owned());
                let told = &trial["spec"]["trainer"]["env"];
                if *self.values.entry(key).or_insert_with(|| told.clone()) != *told {
                    return Err(format!("trial {} was run with other values", object::meta(trial, "name")));
                }
            }
            if running > count("parallelTrials") {
                return Err(format!("{running} trials run at once, not {}", count("parallelTrials")));
            }
        }
        Ok(())
    }

    /// A search that has ended names the best of its trials; one that has not waits for a trial that waits for room.
    fn check_results(cluster: &Cluster) -> Result<(), String> {
        let jobs = cluster.all("TrainJob");
        for search in cluster.all("OptimizationJob") {
            let trials: Vec<_> = jobs.iter().filter(|job| is_owned(job, &search)).collect();
            let waits = trials.iter().any(|trial| cannot_fit(cluster, object::meta(trial, "name")));
            let loss = |trial: &Value| {
                let told = trial["status"]["trainerStatus"]["metrics"][0]["value"].as_str()?.parse::<f64>().ok();
                told.filter(|_| matches!(ending(trial), Ok(Some("complete"))))
            };
            let best = trials.iter().filter_map(|trial| loss(trial)).min_by(f64::total_cmp);
            let named = search["status"]["result"]["trainJobName"].as_str();
            let named = trials.iter().find(|trial| named == Some(object::meta(trial, "name")));
            match ending(&search)? {
                None if !waits => return Err(format!("the search has not ended: {}", search["status"])),
                Some("complete") if named.and_then(|trial| loss(trial)) != best || best.is_none() => {
                    return Err(format!("the best loss is {best:?}, the result {}", search["status"]["result"]));
                }
                Some("failed") if best.is_some() => return Err(format!("the search failed with a best of {best:?}")),
                _ => {}
            }
        }
        Ok(())
    }

    /// At rest, after the last fault.
    ///
    /// # Errors
    /// The promise that is broken.
    pub fn check_at_rest(&mut self, cluster: &Cluster) -> Result<(), String> {
        self.check(cluster)?;
        Self::check_results(cluster)?;
        for job in cluster.all("TrainJob") {
            let name = object::meta(&job, "name");
            if object::is_terminating(&job) {
                return Err(format!("TrainJob {name} is still being deleted"));
            }
            if ending(&job)?.is_none() && !cannot_fit(cluster, name) {
                return Err(format!("TrainJob {name} has not ended: {}", job["status"]));
            }
        }
        // every child has a live owner
        let kinds = ["OptimizationJob", "TrainJob", "JobSet", "Job", "Pod", "Service", "ConfigMap", "Secret"];
        let uids: BTreeSet<String> =
            kinds.iter().flat_map(|kind| cluster.all(kind)).map(|object| object::uid(&object).to_owned()).collect();
        for object in kinds.iter().flat_map(|kind| cluster.all(kind)) {
            if let Some(owner) = object::controller_of(&object)
                && !uids.contains(object::text(owner, "uid"))
            {
                return Err(format!(
                    "{} {} has no owner any more",
                    object::text(&object, "kind"),
                    object::meta(&object, "name")
                ));
            }
        }
        // a gang is placed as a whole or not at all
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for pod in cluster.all("Pod").iter().filter(|pod| is_live(pod)) {
            let gang = gangs.entry(object::label(pod, JOBSET_NAME).unwrap_or_default().to_owned()).or_default();
            gang.1 += 1;
            gang.0 += usize::from(!object::text(&pod["spec"], "nodeName").is_empty());
        }
        match gangs.iter().find(|(_, (placed, all))| *placed != 0 && placed != all) {
            Some((name, (placed, all))) => Err(format!("{placed} of {all} pods of {name} are placed")),
            None => Ok(()),
        }
    }
}

fn is_owned(job: &Value, search: &Value) -> bool {
    object::controller_of(job).is_some_and(|owner| object::text(owner, "uid") == object::uid(search))
}

/// Whether the job's pods wait for more than the node has: then waiting for ever is right.
fn cannot_fit(cluster: &Cluster, job: &str) -> bool {
    cluster.all("Pod").iter().any(|pod| {
        object::label(pod, JOBSET_NAME) == Some(job)
            && pod["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["reason"] == "Unschedulable")
    })
}
