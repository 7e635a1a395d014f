//! What must hold after every step of every run, written once.

use crate::cluster::{Cluster, JOBSET_NAME, Workload};
use crate::view::View;
use api::jobset::keys;
use api::mpi::names::{LABEL_JOB_NAME, LABEL_REPLICA_INDEX};
use api::object::{self, Gvk, Key};
use api::quantity::Quantity;
use api::trainer::annotations;
use reconcile::{Decision, Op, World};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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
    match (is("Complete") || is("Completed") || is("Succeeded"), is("Failed")) {
        (true, true) => Err(format!("{} is complete and failed", object::meta(object, "name"))),
        (true, false) => Ok(Some("complete")),
        (false, true) => Ok(Some("failed")),
        (false, false) => Ok(None),
    }
}

fn is_live(pod: &Value) -> bool {
    !object::is_terminating(pod) && !matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

/// A gang of which a decision gives some pods a node and others none, though none of it ever ran. Between the writes of a decision
/// anything may happen; what is decided must be all or nothing.
pub fn torn_gang(decision: &Decision, view: &View) -> Option<String> {
    let bound: BTreeSet<&str> = decision
        .writes
        .iter()
        .filter_map(|write| match &write.op {
            Op::Subresource { target, subresource: "binding", .. } => Some(target.key.name.as_str()),
            _ => None,
        })
        .collect();
    if bound.is_empty() {
        return None;
    }
    let mut gangs: BTreeMap<(&str, &str), Vec<&Value>> = BTreeMap::new();
    let pods = view.list(&Gvk::new("", "v1", "Pod"), None);
    // nobody waits for anybody in a MPIJob that is suspended, deleted or has ended
    let is_starting = |job: &std::sync::Arc<Value>| {
        let is_over = object::is_terminating(job) || !job["status"]["completionTime"].is_null();
        !is_over && job["spec"]["runPolicy"]["suspend"] != true
    };
    let mpijobs = view.list(&api::mpi::gvk(), None);
    let starting: BTreeSet<&str> =
        mpijobs.iter().filter(|job| is_starting(job)).map(|job| object::meta(job, "name")).collect();
    for pod in &pods {
        if let (Some(jobset), Some(attempt)) =
            (object::label(pod, JOBSET_NAME), object::label(pod, keys::RESTART_ATTEMPT))
        {
            gangs.entry((jobset, attempt)).or_default().push(pod);
        }
        if let Some(mpijob) = object::label(pod, LABEL_JOB_NAME).filter(|name| starting.contains(*name)) {
            gangs.entry((mpijob, "")).or_default().push(pod);
        }
    }
    for ((name, _), pods) in gangs {
        // what replaces members that had a node follows one by one
        if pods.iter().any(|pod| !object::text(&pod["spec"], "nodeName").is_empty()) {
            continue;
        }
        let waiting: Vec<&&Value> = pods.iter().filter(|pod| is_live(pod)).collect();
        let placed = waiting.iter().filter(|pod| bound.contains(object::meta(pod, "name"))).count();
        if placed != 0 && placed != waiting.len() {
            return Some(format!("{placed} of {} pods of {name} are to get a node", waiting.len()));
        }
    }
    None
}

/// A scheduler's decision that ends pods for a gang that is no more important or asks for no preemption, or that ends a gang in part.
pub fn wrong_preemption(decision: &Decision, view: &View) -> Option<String> {
    let pods = view.list(&Gvk::new("", "v1", "Pod"), None);
    let priority = |pod: &Value| pod["spec"]["priority"].as_i64().unwrap_or_default();
    let mut ended = BTreeSet::new();
    for write in &decision.writes {
        let Op::Delete { target, .. } = &write.op else { continue };
        ended.insert(&target.key);
        let Some(victim) = pods.iter().find(|pod| Key::of(pod) == target.key) else { continue };
        let said = write.on_success.as_ref().map(|event| event.message.as_str()).unwrap_or_default();
        // one that is carried on with after a crash names nobody
        let Some(uid) = said.strip_prefix("Preempted by pod ").and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        let Some(by) = pods.iter().find(|pod| object::uid(pod) == uid) else {
            return Some(format!("{} is ended for a pod that is not there", target.key));
        };
        if priority(victim) >= priority(by) || by["spec"]["preemptionPolicy"] == "Never" {
            return Some(format!("{} is ended for {}, which may not ask for it", target.key, Key::of(by)));
        }
    }
    let gang = |pod: &Value| {
        let attempt = object::label(pod, keys::RESTART_ATTEMPT)?;
        Some((object::label(pod, JOBSET_NAME)?.to_owned(), attempt.to_owned()))
    };
    let is_ended = |pod: &&std::sync::Arc<Value>| ended.contains(&Key::of(pod));
    let torn: BTreeSet<_> = pods.iter().filter(is_ended).filter_map(|pod| gang(pod)).collect();
    let runs = |pod: &Value| is_live(pod) && !object::text(&pod["spec"], "nodeName").is_empty();
    let left =
        pods.iter().find(|pod| runs(pod) && !is_ended(pod) && gang(pod).is_some_and(|gang| torn.contains(&gang)));
    left.map(|pod| format!("{} goes on without those of its gang that are ended", Key::of(pod)))
}

/// What a pod asks for, in thousandths of a processor.
fn cpu(holder: &Value) -> i64 {
    Quantity::from_json(&holder["cpu"]).map_or(0, Quantity::milli_value)
}

/// What all containers of a pod ask for.
fn asked(pod: &Value) -> i64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.map(|container| cpu(&container["resources"]["requests"])).sum()
}

/// By node, what its pods ask for together.
fn used(pods: &[std::sync::Arc<Value>]) -> BTreeMap<&str, i64> {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !matches!(object::text(&pod["status"], "phase"), "Succeeded" | "Failed")) {
        *used.entry(object::text(&pod["spec"], "nodeName")).or_default() += asked(pod);
    }
    used
}

/// The name of a pod's JobSet or MPIJob; empty where it has none.
fn gang_of(pod: &Value) -> &str {
    object::label(pod, JOBSET_NAME).or_else(|| object::label(pod, LABEL_JOB_NAME)).unwrap_or_default()
}

/// Whether no node has room for any of the pods that this gang lacks.
fn finds_no_room(cluster: &Cluster, gang: &str) -> bool {
    let (pods, nodes) = (cluster.all("Pod"), cluster.all("Node"));
    let used = used(&pods);
    let free = |node: &Value| cpu(&node["status"]["allocatable"]) - used.get(object::meta(node, "name")).unwrap_or(&0);
    let most = nodes.iter().filter(|node| is_ready(node)).map(|node| free(node)).max().unwrap_or(0);
    let lacks_seat = |pod: &Value| is_live(pod) && object::text(&pod["spec"], "nodeName").is_empty();
    pods.iter().filter(|pod| gang_of(pod) == gang && lacks_seat(pod)).all(|pod| asked(pod) > most)
}

/// No node is given more than it has.
fn check_capacity(cluster: &Cluster, pods: &[std::sync::Arc<Value>]) -> Result<(), String> {
    let used = used(pods);
    for node in cluster.all("Node") {
        let (name, has) = (object::meta(&node, "name"), cpu(&node["status"]["allocatable"]));
        if let Some(used) = used.get(name).filter(|used| **used > has) {
            return Err(format!("{name} has {has} m of processors, and its pods ask for {used} m"));
        }
    }
    Ok(())
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
        if let Some(promise) = cluster.broken_promises.borrow().first() {
            return Err(promise.clone());
        }
        let pods = cluster.all("Pod");
        check_capacity(cluster, &pods)?;
        let mut live = BTreeSet::new();
        for pod in pods.iter().filter(|pod| is_live(pod)) {
            let Some(owner) = object::controller_of(pod) else { continue };
            let index = object::label(pod, keys::COMPLETION_INDEX).or_else(|| object::label(pod, LABEL_REPLICA_INDEX));
            let index = index.unwrap_or_default();
            if !live.insert((object::text(owner, "uid").to_owned(), index.to_owned())) {
                return Err(format!("two live pods for index {index} of {}", object::text(owner, "name")));
            }
        }
        for kind in ["OptimizationJob", cluster.workload.kind(), "JobSet", "Job"] {
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
    fn check_results(&self, cluster: &Cluster) -> Result<(), String> {
        let jobs = cluster.all("TrainJob");
        for search in cluster.all("OptimizationJob") {
            let trials: Vec<_> = jobs.iter().filter(|job| is_owned(job, &search)).collect();
            let waits = trials.iter().any(|trial| cannot_fit(cluster, object::meta(trial, "name")));
            let mut conditions = search["status"]["conditions"].as_array().into_iter().flatten();
            let judged = conditions
                .find(|one| one["status"] == "True" && (one["type"] == "Complete" || one["type"] == "Failed"));
            let judged = judged.map(|one| object::text(one, "lastTransitionTime").to_owned());
            let loss = |trial: &Value| {
                let report = &trial["status"]["trainerStatus"];
                let told = report["metrics"][0]["value"].as_str()?.parse::<f64>().ok();
                // what a machine that was cut off reports afterwards changes no result
                let is_late = judged.as_deref().is_some_and(|at| object::text(report, "lastUpdatedTime") > at);
                told.filter(|_| !is_late && matches!(ending(trial), Ok(Some("complete"))))
            };
            let best = trials.iter().filter_map(|trial| loss(trial)).min_by(f64::total_cmp);
            let name = search["status"]["result"]["trainJobName"].as_str().unwrap_or_default();
            let named = trials.iter().find(|trial| name == object::meta(trial, "name"));
            // the user may have deleted the best of them since
            let is_gone =
                named.is_none() && self.values.contains_key(&(object::uid(&search).to_owned(), name.to_owned()));
            match ending(&search)? {
                None if !waits => return Err(format!("the search has not ended: {}", search["status"])),
                Some("complete") if is_gone => {}
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
        self.check_results(cluster)?;
        let kind = cluster.workload.kind();
        for job in cluster.all(kind) {
            let name = object::meta(&job, "name");
            if object::is_terminating(&job) {
                return Err(format!("{kind} {name} is still being deleted"));
            }
            let waits_rightly = match cluster.workload {
                Workload::TrainJobs => cannot_fit(cluster, name),
                // at rest nothing runs but gangs that lost a node for good and wait for another, and so may those who fit beside them
                Workload::MpiJobs => !fits_alone(cluster, &job) || is_held_up(cluster),
            };
            if ending(&job)?.is_none() && !waits_rightly {
                return Err(format!("{kind} {name} has not ended: {}", job["status"]));
            }
        }
        if let Some(stuck) = cluster.all("Namespace").iter().find(|namespace| object::is_terminating(namespace)) {
            return Err(format!("Namespace {} is still being deleted", object::meta(stuck, "name")));
        }
        // every child has a live owner
        let kinds = ["OptimizationJob", kind, "JobSet", "Job", "Pod", "Service", "ConfigMap", "Secret"];
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
        // a gang is placed as a whole or not at all; one that runs keeps its seats where a node was lost for good with one of them
        let has_silent_nodes = cluster.all("Node").iter().any(|node| !is_ready(node));
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut running: BTreeSet<String> = BTreeSet::new();
        for pod in cluster.all("Pod").iter().filter(|pod| is_live(pod)) {
            let name = gang_of(pod).to_owned();
            if object::text(&pod["status"], "phase") == "Running" {
                running.insert(name.clone());
            }
            let gang = gangs.entry(name).or_default();
            gang.1 += 1;
            gang.0 += usize::from(!object::text(&pod["spec"], "nodeName").is_empty());
        }
        // a node that is gone leaves no trace: then there must be no room for what the gang lacks
        let lost_a_seat =
            |name: &str| has_silent_nodes || (cluster.has_removed_nodes() && finds_no_room(cluster, name));
        let keeps_seats = |name: &String| running.contains(name) && lost_a_seat(name);
        match gangs.iter().find(|(name, (placed, all))| *placed != 0 && placed != all && !keeps_seats(name)) {
            Some((name, (placed, all))) => Err(format!("{placed} of {all} pods of {name} are placed")),
            None => Ok(()),
        }
    }
}

fn is_owned(job: &Value, search: &Value) -> bool {
    object::controller_of(job).is_some_and(|owner| object::text(owner, "uid") == object::uid(search))
}

/// Whether pods that run keep seats while another of their job has none, for a node was lost. While none is, gangs that fit alone
/// never block each other.
fn is_held_up(cluster: &Cluster) -> bool {
    if !cluster.has_lost_nodes() {
        return false;
    }
    let pods = cluster.all("Pod");
    let job = |pod: &Value| object::label(pod, LABEL_JOB_NAME).map(str::to_owned);
    let lacks_seat = |pod: &Value| is_live(pod) && object::text(&pod["spec"], "nodeName").is_empty();
    let waiting: BTreeSet<String> = pods.iter().filter(|pod| lacks_seat(pod)).filter_map(|pod| job(pod)).collect();
    let runs = |pod: &Value| object::text(&pod["status"], "phase") == "Running";
    pods.iter().any(|pod| runs(pod) && job(pod).is_some_and(|job| waiting.contains(&job)))
}

/// Whether a MPIJob's pods fit on the nodes when nothing else runs: each goes to the first that has room, the largest first.
fn fits_alone(cluster: &Cluster, job: &Value) -> bool {
    let roles = job["spec"]["mpiReplicaSpecs"].as_object().into_iter().flat_map(|roles| roles.values());
    let mut asked: Vec<i64> = Vec::new();
    for role in roles {
        let container = &role["template"]["spec"]["containers"][0];
        let count = usize::try_from(role["replicas"].as_i64().unwrap_or(0)).unwrap_or(0);
        asked.extend(std::iter::repeat_n(cpu(&container["resources"]["requests"]), count));
    }
    asked.sort_unstable_by(|a, b| b.cmp(a));
    let mut free: Vec<i64> = cluster
        .all("Node")
        .iter()
        .filter(|node| is_ready(node))
        .map(|node| cpu(&node["status"]["allocatable"]))
        .collect();
    asked.into_iter().all(|needs| match free.iter_mut().find(|free| **free >= needs) {
        Some(free) => {
            *free -= needs;
            true
        }
        None => false,
    })
}

fn is_ready(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether the job's pods wait for more than the node has: then waiting for ever is right.
fn cannot_fit(cluster: &Cluster, job: &str) -> bool {
    cluster.all("Pod").iter().any(|pod| {
        object::label(pod, JOBSET_NAME) == Some(job)
            && pod["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["reason"] == "Unschedulable")
    })
}
