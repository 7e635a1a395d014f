//! The line of waiting jobs: which jobs wait, in which order, and what for. A pure function of objects.

use crate::amounts::{Amounts, add, amounts, held, of_pod, shown, take};
use crate::job::{is_finished, job_of};
use crate::state::Attempts;
use api::job_kind::JobKind;
use api::object;
use api::quantity::Quantity;
use api::queue_place::AHEAD_MAX;
use api::queue_place::QueuePlace;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Label of a job that Kueue lets in: its LocalQueue.
pub const KUEUE_QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// How many of the jobs that hold what is missing are named.
const HOLDERS_MAX: usize = 3;

/// What the queue is read from.
#[derive(Debug, Default)]
pub struct Facts {
    pub jobs: Vec<Value>,
    pub mpijobs: Vec<Value>,
    /// Of all namespaces, as far as they may be listed.
    pub pods: Vec<Value>,
    /// None where they may not be listed.
    pub nodes: Vec<Value>,
    /// Kueue's Workloads.
    pub workloads: Vec<Value>,
    /// Positions in LocalQueue and ClusterQueue, by Workload.
    pub positions: BTreeMap<String, (i64, i64)>,
}

/// A job that waits.
#[derive(Debug, PartialEq)]
pub struct Waiting {
    pub namespace: String,
    pub name: String,
    /// Place in line, from 1; `None` where somebody else keeps the line and does not tell.
    pub position: Option<i64>,
    /// How many jobs of the line are tried before it.
    pub ahead: usize,
    /// Pods without a node, and what they need together.
    pub pods: usize,
    pub needs: Amounts,
    /// Who keeps it waiting: `scheduler`, `kueue`, `retry`, `controller`.
    pub by: &'static str,
    /// Why it waits.
    pub why: String,
    /// What would let it run.
    pub would: Vec<String>,
}

/// The queue, and what the nodes have.
#[derive(Debug)]
pub struct Queue {
    pub waiting: Vec<Waiting>,
    /// Jobs that the scheduler is to place, in the order in which it tries them.
    pub line: Vec<String>,
    pub free: Amounts,
    pub capacity: Amounts,
}

impl Queue {
    pub fn of(facts: &Facts, now: Timestamp) -> Self {
        let (nodes, others) = (Room::of(facts), Others::of(facts));
        let waiting = candidates(facts, &others, now);
        let mut line: Vec<String> = Vec::new();
        let mut entries = Vec::new();
        for candidate in &waiting {
            entries.push(candidate.judged(facts, &nodes, &others, line.len(), now));
            if candidate.by() == "scheduler" {
                line.push(candidate.title());
            }
        }
        let sum = |list: &[Amounts]| {
            let mut total = Amounts::new();
            list.iter().for_each(|amounts| add(&mut total, amounts));
            total
        };
        Self { waiting: entries, line, free: sum(&nodes.free), capacity: sum(&nodes.capacity) }
    }

    /// The jobs that are tried before this one.
    pub fn ahead(&self, waiting: &Waiting) -> &[String] {
        self.line.get(..waiting.ahead).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        let text = |amounts: &Amounts| -> Value {
            amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
        };
        let waiting = self.waiting.iter().map(|waiting| {
            let ahead: Vec<&String> = self.ahead(waiting).iter().take(AHEAD_MAX).collect();
            json!({
                "namespace": waiting.namespace, "name": waiting.name, "position": waiting.position,
                "ahead": ahead, "pods": waiting.pods, "needs": text(&waiting.needs), "heldBy": waiting.by,
                "why": waiting.why, "wouldLetItRun": waiting.would,
            })
        });
        json!({"waiting": waiting.collect::<Vec<_>>(), "free": text(&self.free), "capacity": text(&self.capacity)})
    }
}

/// [`Queue::line`] alone. Jobs, and those of their pods that have no node, are facts enough.
pub fn of(facts: &Facts, now: Timestamp) -> Vec<String> {
    let others = Others::of(facts);
    let waiting = candidates(facts, &others, now);
    waiting.iter().filter(|candidate| candidate.by() == "scheduler").map(Candidate::title).collect()
}

/// The jobs that may wait, in the order in which they are tried.
fn candidates<'a>(facts: &'a Facts, others: &Others<'a>, now: Timestamp) -> Vec<Candidate<'a>> {
    let of_train = facts.jobs.iter().map(|job| (JobKind::Train, job));
    let of_mpi = facts.mpijobs.iter().map(|job| (JobKind::Mpi, job));
    let candidates = of_train.chain(of_mpi).filter_map(|(kind, job)| Candidate::of(kind, job, others, now));
    let mut waiting: Vec<Candidate<'_>> = candidates.collect();
    waiting.sort_by(|a, b| a.order().cmp(&b.order()));
    waiting
}

/// What nodes have, and what is left of it.
struct Room {
    capacity: Vec<Amounts>,
    free: Vec<Amounts>,
}

impl Room {
    fn of(facts: &Facts) -> Self {
        let usable = |node: &&Value| node["spec"]["unschedulable"] != true;
        let nodes: Vec<&Value> = facts.nodes.iter().filter(usable).collect();
        let capacity: Vec<Amounts> = nodes.iter().map(|node| amounts(&node["status"]["allocatable"])).collect();
        let mut free = capacity.clone();
        for pod in facts.pods.iter().filter(|pod| !object::has_ended(pod)) {
            let on = object::text(&pod["spec"], "nodeName");
            if let Some(at) = nodes.iter().position(|node| object::meta(node, "name") == on) {
                take(&mut free[at], &of_pod(pod));
            }
        }
        Self { capacity, free }
    }

    /// Whether all of these pods find a place at once, each on the first node with room for it.
    fn holds(free: &[Amounts], pods: &[&Value]) -> bool {
        let mut free = free.to_vec();
        pods.iter().all(|pod| {
            let needs = of_pod(pod);
            let fits = |node: &&mut Amounts| needs.iter().all(|(name, amount)| held(node, name) >= *amount);
            free.iter_mut().find(fits).map(|node| take(node, &needs)).is_some()
        })
    }
}

/// Everybody's pods and Workloads, by what is asked of them: there may be thousands of jobs.
struct Others<'a> {
    /// By namespace and job.
    pods: BTreeMap<(String, String), Vec<&'a Value>>,
    /// Kueue's Workloads, by the uid of their owner.
    workloads: BTreeMap<&'a str, &'a Value>,
    /// Who holds how much of a resource, the most first.
    holders: BTreeMap<String, Vec<(String, Quantity)>>,
}

impl<'a> Others<'a> {
    fn of(facts: &'a Facts) -> Self {
        let mut pods: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
        let mut held: BTreeMap<String, BTreeMap<String, Quantity>> = BTreeMap::new();
        for pod in &facts.pods {
            let job = job_of(pod);
            if let Some(job) = &job {
                pods.entry((object::meta(pod, "namespace").to_owned(), job.clone())).or_default().push(pod);
            }
            if object::has_ended(pod) || object::text(&pod["spec"], "nodeName").is_empty() {
                continue;
            }
            let holder = job.unwrap_or_else(|| object::meta(pod, "name").to_owned());
            for (resource, amount) in of_pod(pod).into_iter().filter(|(_, amount)| !amount.is_zero()) {
                let sum = held.entry(resource).or_default().entry(holder.clone()).or_insert(Quantity::ZERO);
                *sum = sum.plus(amount);
            }
        }
        let sorted = |(resource, held): (String, BTreeMap<String, Quantity>)| {
            let mut held: Vec<(String, Quantity)> = held.into_iter().collect();
            held.sort_by_key(|(name, amount)| (std::cmp::Reverse(*amount), name.clone()));
            (resource, held)
        };
        let mut workloads = BTreeMap::new();
        for workload in &facts.workloads {
            for owner in workload["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                workloads.entry(object::text(owner, "uid")).or_insert(workload);
            }
        }
        Self { pods, workloads, holders: held.into_iter().map(sorted).collect() }
    }

    /// Which jobs hold most of a resource, but for one of them: the end of a sentence.
    fn holding(&self, resource: &str, but: &str) -> String {
        let holders = self.holders.get(resource).into_iter().flatten().filter(|(name, _)| name != but);
        let told: Vec<String> = holders.take(HOLDERS_MAX).map(|(name, amount)| format!("{name} {amount}")).collect();
        if told.is_empty() { String::new() } else { format!("; held by: {}", told.join(", ")) }
    }
}

/// Whether somebody has suspended it, or Kueue holds it back.
fn is_suspended(kind: JobKind, job: &Value) -> bool {
    match kind {
        JobKind::Train | JobKind::Search => job["spec"]["suspend"] == true,
        JobKind::Mpi => job["spec"]["runPolicy"]["suspend"] == true,
    }
}

/// A job that may wait, with its pods that do.
struct Candidate<'a> {
    kind: JobKind,
    job: &'a Value,
    pods: Vec<&'a Value>,
    retry: Option<String>,
}

impl<'a> Candidate<'a> {
    /// `None`: it has ended, is suspended by somebody, or all of its pods have nodes.
    fn of(kind: JobKind, job: &'a Value, others: &Others<'a>, now: Timestamp) -> Option<Self> {
        let queued = object::label(job, KUEUE_QUEUE).is_some();
        if is_finished(kind, job) || (is_suspended(kind, job) && !queued) {
            return None;
        }
        let title = kind.short_name(object::meta(job, "name"));
        let its = others.pods.get(&(object::meta(job, "namespace").to_owned(), title));
        let its = its.map(Vec::as_slice).unwrap_or_default();
        let pods: Vec<&Value> = its
            .iter()
            .copied()
            .filter(|pod| object::text(&pod["spec"], "nodeName").is_empty() && !object::has_ended(pod))
            .filter(|pod| !object::is_terminating(pod))
            .collect();
        let retry = Attempts::of(job).waits(now);
        let waits = !pods.is_empty() || is_suspended(kind, job) || its.is_empty() || retry.is_some();
        waits.then_some(Self { kind, job, pods, retry })
    }

    fn by(&self) -> &'static str {
        match () {
            () if is_suspended(self.kind, self.job) => "kueue",
            () if self.retry.is_some() => "retry",
            () if self.pods.is_empty() => "controller",
            () => "scheduler",
        }
    }

    /// As the scheduler tries them: by priority, then age, then name.
    fn order(&self) -> (i64, &str, &str, &str) {
        let priority = self.pods.iter().filter_map(|pod| pod["spec"]["priority"].as_i64()).max().unwrap_or(0);
        let meta = |member| object::meta(self.job, member);
        (priority.saturating_neg(), meta("creationTimestamp"), meta("namespace"), meta("name"))
    }

    fn title(&self) -> String {
        self.kind.short_name(object::meta(self.job, "name"))
    }

    fn judged(&self, facts: &Facts, room: &Room, others: &Others<'_>, ahead: usize, now: Timestamp) -> Waiting {
        let mut needs = Amounts::new();
        self.pods.iter().for_each(|pod| add(&mut needs, &of_pod(pod)));
        let by = self.by();
        let mut waiting = Waiting {
            namespace: object::meta(self.job, "namespace").to_owned(),
            name: self.title(),
            position: None,
            ahead: 0,
            pods: self.pods.len(),
            needs,
            by,
            why: String::new(),
            would: Vec::new(),
        };
        match by {
            "kueue" => self.of_kueue(facts, others, &mut waiting),
            "retry" => waiting.why = Attempts::of(self.job).waits(now).unwrap_or_default(),
            "controller" => {
                waiting.why = "it has no pods yet".to_owned();
                waiting.would.push(format!("see why: trainyard describe {}", waiting.name));
            }
            _ => {
                waiting.position = Some(ahead as i64 + 1);
                waiting.ahead = ahead;
                self.of_scheduler(facts, room, others, &mut waiting);
            }
        }
        waiting
    }

    /// Kueue's own account: the Workload's condition, and its position where Kueue gives one.
    fn of_kueue(&self, facts: &Facts, others: &Others<'_>, waiting: &mut Waiting) {
        let queue = object::label(self.job, KUEUE_QUEUE).unwrap_or_default();
        let Some(workload) = others.workloads.get(object::uid(self.job)) else {
            waiting.why = format!("Kueue has not taken it into queue {queue} yet");
            return;
        };
        let position = facts.positions.get(object::meta(workload, "name"));
        waiting.position = position.map(|(_, of_cluster)| of_cluster + 1);
        let conditions = workload["status"]["conditions"].as_array();
        let reserved = conditions.into_iter().flatten().find(|condition| condition["type"] == "QuotaReserved");
        let said = reserved.map(|condition| object::text(condition, "message")).filter(|text| !text.is_empty());
        waiting.why = format!("queue {queue}: {}", said.unwrap_or("Kueue has not said why"));
        if let Some((local, of_cluster)) = position {
            waiting.why += &format!(" (place {} in its LocalQueue, {} in the ClusterQueue)", local + 1, of_cluster + 1);
        }
        waiting.would.push(format!("quota that gets free in queue {queue}"));
    }

    fn of_scheduler(&self, facts: &Facts, room: &Room, others: &Others<'_>, waiting: &mut Waiting) {
        let said = self.pods.iter().find_map(|pod| {
            let conditions = pod["status"]["conditions"].as_array()?;
            let unscheduled =
                |condition: &&Value| condition["type"] == "PodScheduled" && condition["status"] == "False";
            conditions.iter().find(unscheduled).map(|condition| object::text(condition, "message").to_owned())
        });
        waiting.why = said.clone().unwrap_or_else(|| "the scheduler has not said why".to_owned());
        if facts.nodes.is_empty() {
            return;
        }
        if !Room::holds(&room.capacity, &self.pods) {
            waiting.would.push("nothing here: all nodes together, empty, have too little room for it".to_owned());
        }
        if Room::holds(&room.free, &self.pods) {
            let text = "there is room for it: what keeps it is not CPUs, memory or GPUs, or the scheduler is about to place it";
            waiting.would.push(text.to_owned());
            return;
        }
        let total =
            |list: &[Amounts], name: &str| list.iter().fold(Quantity::ZERO, |sum, node| sum.plus(held(node, name)));
        let mut short = false;
        for (name, amount) in &waiting.needs {
            let free = total(&room.free, name);
            if *amount <= free {
                continue;
            }
            short = true;
            let text = format!(
                "{} more (it needs {}; free: {} of {})",
                shown(name, amount.minus(free)),
                shown(name, *amount),
                free,
                total(&room.capacity, name)
            );
            waiting.would.push(format!("{text}{}", others.holding(name, &waiting.name)));
        }
        if !short {
            waiting
                .would
                .push("its pods' needs free on one node each: there is enough, but on too many nodes".to_owned());
        }
    }
}

/// `a and 3 more`.
pub fn named(first: &str, more: usize) -> String {
    if more == 0 { first.to_owned() } else { format!("{first} and {more} more") }
}

/// `place 3, behind a and 1 more`.
pub fn told_place(place: &QueuePlace) -> String {
    let mut told = format!("place {}", place.position);
    if let Some(first) = place.ahead.first() {
        told += &format!(", behind {}", named(first, place.position.saturating_sub(2)));
    }
    if let Some(overall) = place.overall.filter(|overall| *overall > place.position) {
        told += &format!("; place {overall} of all namespaces");
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::trainer::names::LABEL_JOBSET_NAME;

    fn job(name: &str, made: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": made}, "spec": {}})
    }

    fn pod(job: &str, cpu: &str, node: &str) -> Value {
        let mut pod = json!({
            "metadata": {"name": format!("{job}-0"), "namespace": "ns", "labels": {LABEL_JOBSET_NAME: job}},
            "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
            pod["status"] = json!({"phase": "Running"});
        }
        pod
    }

    fn facts() -> Facts {
        Facts {
            jobs: vec![
                job("late", "2026-01-01T00:00:03Z"),
                job("runs", "2026-01-01T00:00:01Z"),
                job("first", "2026-01-01T00:00:02Z"),
            ],
            pods: vec![pod("runs", "3", "n"), pod("late", "1", ""), pod("first", "1", ""), pod("first", "1", "")],
            nodes: vec![json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}})],
            ..Facts::default()
        }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:10:00Z".parse().expect("a time")
    }

    #[test]
    fn the_line_is_by_age_and_says_what_is_missing() {
        let queue = Queue::of(&facts(), now());
        let names: Vec<&str> = queue.waiting.iter().map(|waiting| waiting.name.as_str()).collect();
        assert_eq!(names, ["first", "late"]);
        let first = &queue.waiting[0];
        assert_eq!((first.position, first.pods, first.why.as_str()), (Some(1), 2, "no room"));
        assert_eq!(first.would, ["1 CPU more (it needs 2 CPUs; free: 1 of 4); held by: runs 3"]);
        let late = &queue.waiting[1];
        assert_eq!((late.position, queue.ahead(late)), (Some(2), &["first".to_owned()][..]));
        assert!(late.would[0].starts_with("there is room for it"), "{late:?}");
        assert_eq!(queue.json()["free"]["cpu"], "1");
        assert_eq!(of(&facts(), now()), ["first", "late"]);
    }

    #[test]
    fn what_never_fits_and_what_kueue_keeps_is_said() {
        let mut facts = facts();
        facts.pods.push(pod("huge", "9", ""));
        facts.jobs.push(job("huge", "2026-01-01T00:00:00Z"));
        let mut queued = job("queued", "2026-01-01T00:00:00Z");
        queued["metadata"]["labels"] = json!({KUEUE_QUEUE: "main"});
        queued["spec"]["suspend"] = true.into();
        facts.jobs.push(queued);
        facts.workloads = vec![json!({"metadata": {"name": "w", "ownerReferences": [{"uid": "queued"}]},
            "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": "quota is used up"}]}})];
        facts.positions.insert("w".to_owned(), (0, 4));
        let queue = Queue::of(&facts, now());
        let of = |name: &str| queue.waiting.iter().find(|waiting| waiting.name == name).expect("it waits");
        assert!(of("huge").would[0].starts_with("nothing here"));
        assert_eq!((of("queued").by, of("queued").position), ("kueue", Some(5)));
        assert!(
            of("queued")
                .why
                .contains("queue main: quota is used up (place 1 in its LocalQueue, 5 in the ClusterQueue)")
        );
        assert!(!queue.ahead(of("first")).contains(&"queued".to_owned()), "another line");
    }
}
