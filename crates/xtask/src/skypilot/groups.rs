//! Recordings of job groups: the place and the machine of each task.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use placement::group::{Apart, shared_place};
use placement::place::{Ranked, Task as Wanted};
use placement::{Catalogue, Cloud, Market, Rules, Target, place};
use serde_json::{Value as Json, json};
use sky::check::Surroundings;
use sky::file::{Group, Kind};
use sky::place::{refusal, wanted};
use sky::{File, Given, Reader, Task, TaskError};

use super::jobs::{cases, read};
use super::optimizer::Outcome;
use super::{PathKind, text_of};

/// Replays `group-placement.json`, by our choice of machines and, where that gives something else, by SkyPilot's.
pub fn replay(path: &Path, catalogue: &Catalogue) -> Result<Vec<(String, Outcome)>> {
    let recorded = read(path)?;
    Ok(cases(&recorded).map(|case| (text_of(&case["name"]), outcome(case, catalogue))).collect())
}

fn outcome(case: &Json, catalogue: &Catalogue) -> Outcome {
    let text = text_of(&case["task.yaml"]);
    let file = File::read(&text, &Given::default(), Reader::Client, catalogue);
    let enabled: Vec<Cloud> =
        case["clouds"].as_array().into_iter().flatten().filter_map(|name| Cloud::from_name(name.as_str()?)).collect();
    let differs = |rules| {
        let market = Market { catalogue, enabled: &enabled, nodes: &[], blocked: &[], rules };
        match &file {
            Err(error) => compare(&Err(Refusal::Task(error.clone())), &Group::default(), &case["expected"]),
            Ok(File { kind: Kind::Parallel(group), tasks, .. }) => {
                compare(&placed(tasks.clone(), group, &market), group, &case["expected"])
            }
            Ok(_) => Outcome::Differs("its file is no job group".to_owned()),
        }
    };
    match differs(Rules::Own) {
        Outcome::Differs(difference) => match differs(Rules::SkyPilot) {
            Outcome::Same => Outcome::OnPurpose(difference),
            theirs => theirs,
        },
        same => same,
    }
}

/// A task's name, all machines that it could have, and the index of its own.
struct Placed {
    name: String,
    ranked: Vec<Ranked>,
    chosen: usize,
}

/// Why SkyPilot places no group.
enum Refusal {
    /// What a single task would be refused for.
    Task(TaskError),
    /// This task has no machine anywhere.
    NoMachine(String),
    /// Tasks must be connected, and this one names only these other clouds.
    NamesOthers(String, Vec<&'static str>),
    /// Tasks must be connected, and this one has no machine on Kubernetes.
    NotOnKubernetes(String),
    /// Tasks have no place in common, and may not be apart.
    NothingShared,
}

fn name_of(task: &Task) -> String {
    task.name.clone().unwrap_or_default()
}

fn placed(mut tasks: Vec<Task>, group: &Group, market: &Market<'_>) -> Result<Vec<Placed>, Refusal> {
    let around = Surroundings {
        catalogue: market.catalogue,
        enabled: market.enabled,
        contexts: &[],
        ssh_pools: &[],
        slurm_clusters: &[],
        on_server: true,
        path: &|_| PathKind::Folder,
    };
    for task in &mut tasks {
        sky::check::check(task, &around).map_err(Refusal::Task)?;
    }
    let all: Vec<Wanted> = wanted(&tasks).map_err(Refusal::Task)?;
    // tasks of a group wait for no other
    let all: Vec<Wanted> = all.into_iter().map(|task| Wanted { parents: Vec::new(), ..task }).collect();
    let are_connected = group.inter_connection == Some(true);
    if are_connected {
        for task in &tasks {
            if let Some(clouds) = clouds(task).filter(|clouds| !clouds.contains(&Cloud::Kubernetes)) {
                let names = clouds.into_iter().map(Cloud::display).collect();
                return Err(Refusal::NamesOthers(name_of(task), names));
            }
        }
    } else if are_contrary(&tasks) {
        return alone(&tasks, &all, market);
    }
    let mut ranked = Vec::new();
    for (task, wanted) in tasks.iter().zip(&all) {
        let found = place(std::slice::from_ref(wanted), market, Target::Cost);
        let found = found.ok().and_then(|plan| plan.tasks.into_iter().next());
        let mut ways = found.ok_or_else(|| Refusal::NoMachine(name_of(task)))?.ranked;
        ways.retain(|way| !are_connected || way.candidate.cloud == Cloud::Kubernetes);
        if ways.is_empty() {
            return Err(Refusal::NotOnKubernetes(name_of(task)));
        }
        ranked.push(ways);
    }
    let region = |way: &Ranked| (way.candidate.cloud.name(), way.candidate.region.clone());
    let ways: Vec<Vec<_>> =
        ranked.iter().map(|ranked| ranked.iter().map(|way| (region(way), way.dollars)).collect()).collect();
    let shared = match shared_place(&ways) {
        Ok(shared) => shared,
        Err(Apart::NothingShared) if group.inter_connection != Some(false) => return Err(Refusal::NothingShared),
        Err(_) => return alone(&tasks, &all, market),
    };
    let chosen = |(task, mut ranked): (&Task, Vec<Ranked>)| {
        ranked.retain(|way| region(way) == shared);
        Placed { name: name_of(task), ranked, chosen: 0 }
    };
    Ok(tasks.iter().zip(ranked).map(chosen).collect())
}

/// Places each task as if it were the only one.
fn alone(tasks: &[Task], all: &[Wanted], market: &Market<'_>) -> Result<Vec<Placed>, Refusal> {
    let one = |(task, wanted): (&Task, &Wanted)| {
        let name = name_of(task);
        match place(std::slice::from_ref(wanted), market, Target::Cost) {
            Err(nothing) => Err(Refusal::Task(refusal(&nothing, std::slice::from_ref(task), market.enabled))),
            Ok(plan) => match plan.tasks.into_iter().next() {
                None => Err(Refusal::NoMachine(name)),
                Some(found) => Ok(Placed { name, chosen: found.chosen, ranked: found.ranked }),
            },
        }
    };
    tasks.iter().zip(all).map(one).collect()
}

/// The clouds that a task names; `None`: one of its alternatives names none.
fn clouds(task: &Task) -> Option<BTreeSet<Cloud>> {
    task.resources.list.iter().map(|one| one.infra.cloud).collect()
}

fn regions(task: &Task) -> Option<BTreeSet<String>> {
    task.resources.list.iter().map(|one| one.infra.region.clone()).collect()
}

/// Whether the tasks that name clouds have no cloud in common, or those that name regions no region. A region counts without its cloud.
fn are_contrary(tasks: &[Task]) -> bool {
    fn have_none_in_common<T: Clone + Ord>(mut all: impl Iterator<Item = BTreeSet<T>>) -> bool {
        let first = all.next();
        first.is_some_and(|first| all.fold(first, |common, one| &common & &one).is_empty())
    }
    have_none_in_common(tasks.iter().filter_map(clouds)) || have_none_in_common(tasks.iter().filter_map(regions))
}

fn compare(got: &Result<Vec<Placed>, Refusal>, group: &Group, expected: &Json) -> Outcome {
    let error = &expected["error"];
    let tasks = expected["tasks"].as_array();
    match (got, tasks) {
        (Err(refusal), None) if is_meant(refusal, error) => Outcome::Same,
        (Err(refusal), _) => Outcome::Differs(format!("{} instead of {expected}", told(refusal))),
        (Ok(_), None) => Outcome::Differs(format!("a place instead of {error}")),
        (Ok(placed), Some(tasks)) => {
            let connected = group.inter_connection != Some(false)
                && placed.iter().all(|task| task.own().is_some_and(|own| own.candidate.cloud == Cloud::Kubernetes));
            if placed.len() != tasks.len() || expected["inter_connection"] != connected {
                return Outcome::Differs(format!("{} tasks, connected: {connected}", placed.len()));
            }
            let mut dearer = None;
            for (placed, task) in placed.iter().zip(tasks) {
                match placed.compare(task) {
                    Outcome::Same => {}
                    Outcome::OnPurpose(difference) => dearer = Some(difference),
                    differs @ Outcome::Differs(_) => return differs,
                }
            }
            dearer.map_or(Outcome::Same, Outcome::OnPurpose)
        }
    }
}

impl Placed {
    fn own(&self) -> Option<&Ranked> {
        self.ranked.get(self.chosen)
    }

    /// Among the alternatives of a task SkyPilot takes at a place the one that its hash order puts first, not the cheapest.
    fn compare(&self, task: &Json) -> Outcome {
        let Some(own) = self.own() else { return Outcome::Differs(format!("{} has no machine", self.name)) };
        if self.name == text_of(&task["name"]) && machine(own, task) {
            return Outcome::Same;
        }
        let difference = format!("{}: {} in {}", self.name, own.candidate.instance_type, own.candidate.infra());
        let same_region = |way: &&Ranked| way.candidate.region == own.candidate.region;
        let is_dearer = |way: &Ranked| way.candidate.request != own.candidate.request && way.dollars >= own.dollars;
        match self.ranked.iter().filter(same_region).find(|way| machine(way, task)) {
            Some(recorded) if is_dearer(recorded) => Outcome::OnPurpose(format!("{difference} costs less than {task}")),
            _ => Outcome::Differs(format!("{difference} instead of {task}")),
        }
    }
}

/// Whether a machine is the recorded one.
fn machine(way: &Ranked, task: &Json) -> bool {
    let one = &way.candidate;
    let counts = |(name, count): &(String, f64)| json!({name.clone(): count});
    let accelerators = match task["accelerators"].as_object() {
        None => Json::Null,
        Some(map) => map.iter().map(|(name, count)| (name.clone(), json!(count.as_f64()))).collect(),
    };
    let hourly = task["hourly_cost"].as_f64().unwrap_or(f64::NAN);
    task["infra"] == one.infra()
        && task["instance_type"] == one.instance_type
        && task["use_spot"] == one.use_spot
        && one.accelerator.as_ref().map_or(Json::Null, counts) == accelerators
        && (one.hourly - hourly).abs() < 1e-6
}

/// Whether an error says the same as the recorded one: about the same task, for the same reason. Our command line words it otherwise.
fn is_meant(refusal: &Refusal, error: &Json) -> bool {
    let message = text_of(&error["message"]);
    let says = |parts: &[&str]| {
        error["class"] == "ResourcesUnavailableError" && parts.iter().all(|part| message.contains(part))
    };
    let job = |name: &str| format!("job \"{name}\"");
    match refusal {
        // SkyPilot finds an unknown type of machine later, and says the same otherwise
        Refusal::Task(own) if own.message.starts_with("No instance type ") => {
            error["class"] == own.class.name() && message.starts_with("Invalid instance type ")
        }
        Refusal::Task(own) => error["class"] == own.class.name() && message == own.message,
        Refusal::NoMachine(name) => says(&["No resources available for", &job(name)]),
        Refusal::NamesOthers(name, clouds) => {
            says(&[&job(name), "pins non-Kubernetes infra", &format!("(['{}'])", clouds.join("', '"))])
        }
        Refusal::NotOnKubernetes(name) => says(&[&job(name), "no feasible Kubernetes placement"]),
        Refusal::NothingShared => says(&["No single infrastructure can host all"]),
    }
}

fn told(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Task(error) => error.message.clone(),
        Refusal::NoMachine(name) => format!("{name} has no machine"),
        Refusal::NamesOthers(name, clouds) => format!("{name} names {}", clouds.join(", ")),
        Refusal::NotOnKubernetes(name) => format!("{name} has no machine on Kubernetes"),
        Refusal::NothingShared => "the tasks have no place in common".to_owned(),
    }
}
