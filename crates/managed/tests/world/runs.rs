//! The processes of attempts, and what agents report of them.

use crate::control::sets;
use crate::jobs::{CHECKPOINT, Of, Sim, later, read};
use api::object::{self, Key};
use api::sky::{Machine, keys, machine_gvk};
use jiff::Timestamp;
use managed::machine::token;
use reconcile::World;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The processes of an attempt.
#[derive(Clone, Debug)]
pub struct Run {
    pub of: Of,
    pub set: String,
    pub cluster: String,
    pub attempt: u32,
    pub tokens: Vec<String>,
    pub zone: usize,
    pub began: Timestamp,
    /// Seconds of work when it began.
    pub from: i64,
    /// When its processes end by a signal.
    pub stops: Option<Timestamp>,
    /// How it ended by itself: an exit code, and when.
    pub exited: Option<(Timestamp, i64)>,
    /// When the processes of the machines that are left fail, because others are lost.
    pub breaks: Option<Timestamp>,
    pub is_over: bool,
}

impl Sim {
    pub fn are_all_well(&self, run: &Run) -> bool {
        run.tokens.iter().all(|token| self.cloud.machine(token).is_some())
    }

    /// Whether processes of a run exist.
    pub fn is_live(&self, run: &Run) -> bool {
        let now = self.model.now;
        let has_stopped = run.stops.is_some_and(|at| at <= now) || run.exited.is_some_and(|(at, _)| at <= now);
        !run.is_over && !has_stopped && run.tokens.iter().any(|token| self.cloud.machine(token).is_some())
    }

    /// When the code of a run fails by itself next.
    pub fn fails(&self, run: &Run) -> Option<(Timestamp, i64)> {
        let seen = self.failed.get(&run.of).copied().unwrap_or(0);
        let (at, code) = self.asked(run.of).fails.get(seen)?;
        Some((later(run.began, (at - run.from).max(1)), *code))
    }

    /// Processes begin, work, fail and end.
    pub fn processes(&mut self) {
        self.begin_runs();
        let now = self.model.now;
        for at in 0..self.runs.len() {
            if self.runs[at].is_over {
                continue;
            }
            let run = self.runs[at].clone();
            let work = self.asked(run.of).work;
            let worked = run.from + now.duration_since(run.began).as_secs();
            let is_whole = self.are_all_well(&run);
            if is_whole && run.exited.is_none() && run.stops.is_none_or(|at| at > now) {
                let held = self.done.entry(run.of).or_insert(0);
                *held = (*held).max(worked.min(work) / CHECKPOINT * CHECKPOINT);
                if let Some((_, code)) = self.fails(&run).filter(|(at, _)| *at <= now) {
                    *self.failed.entry(run.of).or_insert(0) += 1;
                    self.runs[at].exited = Some((now, code));
                } else if worked >= work {
                    self.done.insert(run.of, work);
                    self.runs[at].exited = Some((now, 0));
                }
            } else if !is_whole && run.breaks.is_none() && run.exited.is_none() {
                // the others hang, or fail at once
                let after = if self.chance.percent(50) { 1 } else { self.chance.secs(30, 900) };
                self.runs[at].breaks = Some(later(now, after));
            }
            if run.breaks.is_some_and(|at| at <= now) && run.exited.is_none() {
                self.runs[at].exited = Some((now, 143));
            }
            self.tell(at);
        }
    }

    fn begin_runs(&mut self) {
        for set in self.model.list(&sets(), None) {
            let name = object::meta(&set, "name").to_owned();
            let begins = set["spec"]["suspend"] == false && !object::is_terminating(&set);
            if !begins || self.runs.iter().any(|run| run.set == name) {
                continue;
            }
            let label = |key: &str| object::label(&set, key).unwrap_or_default().to_owned();
            let job: u32 = label(keys::MANAGED_JOB).trim_start_matches("job-").parse().expect("a number");
            let of = (job, label(keys::TASK).parse().expect("a number"));
            let nodes: BTreeSet<String> = set["spec"]["replicatedJobs"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|rank| {
                    let spec = &rank["template"]["spec"]["template"]["spec"];
                    spec["nodeSelector"]["kubernetes.io/hostname"].as_str().map(str::to_owned)
                })
                .collect();
            let machines: Vec<Machine> = self.model.list(&machine_gvk(), None).iter().map(|one| read(one)).collect();
            let tokens: Vec<String> = machines
                .iter()
                .filter(|one| nodes.contains(&one.status.node))
                .map(|one| token(one).to_owned())
                .collect();
            let zone = tokens.iter().find_map(|token| self.cloud.machine(token)).map(|made| made.zone);
            // agents of a zone that is dark have not heard of it
            if zone.is_some_and(|zone| self.cloud.is_dark(zone, self.model.now)) {
                continue;
            }
            self.runs.push(Run {
                of,
                set: name,
                cluster: label(keys::CLUSTER),
                attempt: label(keys::ATTEMPT).parse().expect("a number"),
                tokens,
                zone: zone.unwrap_or(0),
                began: self.model.now,
                from: self.done.get(&of).copied().unwrap_or(0),
                stops: None,
                exited: None,
                breaks: None,
                is_over: false,
            });
        }
    }

    /// What agents report of a run, and what they hear.
    fn tell(&mut self, at: usize) {
        let run = self.runs[at].clone();
        let now = self.model.now;
        if self.cloud.is_dark(run.zone, now) {
            return;
        }
        let key = Key::new("default", &run.set);
        let Some(set) = self.model.get(&sets(), &key) else {
            self.runs[at].is_over = !self.is_live(&run);
            return;
        };
        let is_asked = set["spec"]["suspend"] == true || object::is_terminating(&set);
        if is_asked && run.stops.is_none() {
            let ends = later(now, self.chance.secs(1, 25));
            self.timers.insert(ends);
            self.runs[at].stops = Some(ends);
        }
        // nobody tells of processes on a machine that is gone; they count until it is known to be lost, and its Node goes
        let machines = self.model.all("Machine");
        let counts = machines.iter().filter(|one| one["status"]["phase"] != "Lost");
        let objects: BTreeSet<String> = counts.map(|one| object::uid(one).to_owned()).collect();
        let is_there = |token: &String| self.cloud.machine(token).is_some();
        let untold = run.tokens.iter().filter(|token| !is_there(token) && objects.contains(*token)).count();
        let processes = self.is_live(&run);
        let live = if processes { run.tokens.iter().filter(|token| is_there(token)).count() } else { 0 };
        let active = live + untold;
        let is_live = active > 0;
        let has_agent = run.tokens.iter().any(is_there);
        let ended = run.exited.filter(|_| has_agent);
        let has_said = set["status"].get("conditions").is_some();
        let mut status = json!({"replicatedJobsStatus": [{"name": "r", "active": active}]});
        if let (Some((_, code)), false) = (ended, has_said) {
            let kind = if code == 0 { "Completed" } else { "Failed" };
            status["conditions"] = json!([{"type": kind, "status": "True", "lastTransitionTime": now.to_string()}]);
            self.report(&set, &run, code);
        }
        self.model.change(&sets(), &key, |object| {
            for (name, value) in status.as_object().into_iter().flatten() {
                object["status"][name] = value.clone();
            }
            if !is_live && object::is_terminating(object) {
                object["metadata"]["finalizers"] = json!([]);
            }
        });
        if !is_live && (ended.is_some() || is_asked) {
            self.runs[at].is_over = true;
        }
    }

    /// The pods of a run that failed, with the exit code of its head.
    fn report(&mut self, set: &Value, run: &Run, code: i64) {
        let job = self.model.put(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": run.set, "namespace": "default",
                "ownerReferences": [{"kind": "JobSet", "name": run.set, "uid": object::uid(set)}]},
        }));
        self.model.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": run.set, "namespace": "default",
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": run.set, "jobset.sigs.k8s.io/replicatedjob-name": "head",
                    keys::CLUSTER: run.cluster,
                },
                "ownerReferences": [{"kind": "Job", "name": run.set, "uid": object::uid(&job)}],
            },
            "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}]},
        }));
    }
}
