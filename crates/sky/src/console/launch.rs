//! `sky launch --dryrun`: which machine a task would get.

use placement::place::{Placement, Plan, Ranked};
use placement::search::{Candidate, Why};
use placement::{Cloud, Market, Rules, Target, Unplaceable, place};
use regex::Regex;

use super::options::{given, override_all};
use super::{Printed, World, table};
use crate::check::{PathKind, Surroundings, check};
use crate::commands::Call;
use crate::error::TaskError;
use crate::file::File;
use crate::place::{describe, refusal, wanted};
use crate::schema::Reader;
use crate::task::Task;
use crate::value::{quote, quote_all};

/// Names of clusters.
const CLUSTER_NAME: &str = "[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?";

/// A task that is to be launched or to be run on a cluster that is there.
pub struct Prepared {
    /// The task, with the options of the command line over it.
    pub task: Task,
    /// What is said of it first.
    pub told: String,
}

/// The one task that `launch` and `exec` name, with the options of the command line over it.
///
/// # Errors
/// What is printed where there is none.
pub fn prepared(call: &Call, world: &World<'_>) -> Result<Prepared, Printed> {
    let mut printed = Printed::default();
    let (mut tasks, told) = match entrypoint(call, world, &mut printed) {
        Entry::Tasks(tasks, told) => (tasks, told),
        Entry::Refused(error) => return Err(printed.refused(&error)),
        Entry::Aborted => return Err(printed.fail(1, "Aborted!")),
    };
    printed.line(told);
    if tasks.len() > 1 {
        let verb = call.path.trim_start_matches("sky ");
        return Err(printed.misused(
            &call.path,
            format!("YAML specifies a DAG which is only supported by `sky jobs launch`. `sky {verb}` supports a single task only."),
        ));
    }
    if let Err(error) = override_all(&mut tasks, call, world) {
        return Err(printed.refused(&error));
    }
    match tasks.pop() {
        Some(task) => Ok(Prepared { task, told: printed.out }),
        None => Err(printed.fail(1, "ValueError: the file holds no task.")),
    }
}

/// Whether a cluster may be called so; else what is said.
///
/// # Errors
/// The message.
pub fn check_name(cluster: &str) -> Result<(), String> {
    let is_name = Regex::new(&format!("^{CLUSTER_NAME}$")).is_ok_and(|pattern| pattern.is_match(cluster));
    if is_name {
        return Ok(());
    }
    Err(format!(
        "sky.exceptions.InvalidClusterNameError: Cluster name \"{cluster}\" is invalid; ensure it is fully matched by regex (e.g., only contains letters, numbers and dash): {CLUSTER_NAME}"
    ))
}

pub(super) fn dryrun(call: &Call, world: &World<'_>) -> Printed {
    let mut printed = Printed::default();
    let mut tasks = match prepared(call, world) {
        Ok(Prepared { task, told }) => {
            printed.out = told;
            vec![task]
        }
        Err(printed) => return printed,
    };
    let cluster = call.value("cluster").unwrap_or(world.cluster);
    printed.line(format!("Running on cluster: {cluster}"));
    let mut printed = match chosen(printed, &mut tasks, world) {
        Ok((printed, _)) => printed,
        Err(printed) => return printed,
    };
    if let Some(Err(message)) = call.value("cluster").map(check_name) {
        return printed.fail(1, message);
    }
    printed.line("Dryrun finished.");
    printed
}

/// A machine for the one task of a launch.
pub struct Planned {
    /// Where it may be: the chosen one first, then those to try where it is not to be had.
    pub candidates: Vec<Candidate>,
    /// Clouds that were passed over as nobody makes machines there yet.
    pub passed_over: Vec<Cloud>,
    /// What is said of it: the table of what was considered.
    pub told: String,
}

/// Looks for machines for a task that is to be launched.
///
/// # Errors
/// What is printed where there is nothing that will do.
pub fn planned(task: &mut Task, world: &World<'_>) -> Result<Planned, Printed> {
    let mut tasks = vec![task.clone()];
    let found = chosen(Printed::default(), &mut tasks, world);
    // as it was checked: regions, names of accelerators
    if let Some(checked) = tasks.pop() {
        *task = checked;
    }
    let (printed, plan) = found?;
    let placements = plan.tasks.first();
    let mut ways: Vec<&Ranked> = placements.and_then(Placement::chosen).into_iter().collect();
    let others = placements.into_iter().flat_map(|placement| &placement.ranked);
    ways.extend(others.filter(|way| placements.and_then(Placement::chosen) != Some(*way)));
    let (makeable, others): (Vec<&Ranked>, Vec<&Ranked>) =
        ways.into_iter().partition(|way| world.makes.contains(&way.candidate.cloud));
    let mut passed_over: Vec<Cloud> = others.iter().map(|way| way.candidate.cloud).collect();
    passed_over.sort();
    passed_over.dedup();
    let candidates = makeable.into_iter().map(|way| way.candidate.clone()).collect();
    Ok(Planned { candidates, passed_over, told: printed.out })
}

/// What tasks get, and what is said of it.
fn chosen(mut printed: Printed, tasks: &mut [Task], world: &World<'_>) -> Result<(Printed, Plan), Printed> {
    if tasks.iter().any(|task| task.resources.list.iter().any(|one| one.use_spot == Some(true))) {
        printed.line("Launching a spot job that does not automatically recover from preemptions. To get automatic recovery, use managed job instead: sky jobs launch or sky.jobs.launch().");
    }
    let plan = match find(tasks, world) {
        Ok(plan) => plan,
        Err(Failure::Refused(error)) => return Err(printed.refused(&error)),
        Err(Failure::Nothing(unplaceable)) => {
            nothing(&mut printed, tasks, &unplaceable, world);
            return Err(printed.refused(&refusal(&unplaceable, tasks, world.enabled)));
        }
    };
    considered(&mut printed, tasks, &plan);
    Ok((printed, plan))
}

/// What a command line names.
pub(super) enum Entry {
    /// Its tasks, and what to say of them.
    Tasks(Vec<Task>, String),
    Refused(TaskError),
    /// It looks like a file and is none, and nobody says what is meant.
    Aborted,
}

/// Why there is no plan.
pub(super) enum Failure {
    Refused(TaskError),
    Nothing(Unplaceable),
}

/// The task file that the command line names, or the command that it is.
pub(super) fn entrypoint(call: &Call, world: &World<'_>, printed: &mut Printed) -> Entry {
    let text = call.values("entrypoint").join(" ");
    let named_like_a_file = [".yaml", ".yml"].iter().any(|end| text.to_lowercase().ends_with(end));
    let given = match given(call, world) {
        Ok(given) => given,
        Err(error) => return Entry::Refused(error),
    };
    let read = |document: &str| File::read(document, &given, Reader::Client, world.catalogue);
    if named_like_a_file && (world.path)(&text) == PathKind::File {
        let tasks = (world.read)(&text).map_err(|why| TaskError::value(format!("{text} cannot be read: {why}")));
        return match tasks.and_then(|document| read(&document)) {
            Ok(file) => Entry::Tasks(file.tasks, format!("YAML to run: {text}")),
            Err(error) => Entry::Refused(error),
        };
    }
    if named_like_a_file && !text.contains(' ') {
        printed.line(format!("{} looks like a yaml path but does not exist. Please check if the path is correct.\nIt will be treated as a command to be run remotely. Continue? [y/N]:", quote(&text)));
        return Entry::Aborted;
    }
    let document = serde_json::json!({ "run": text }).to_string();
    match read(if text.is_empty() { "{}" } else { &document }) {
        Ok(file) => Entry::Tasks(file.tasks, format!("Command to run: {text}")),
        Err(error) => Entry::Refused(error),
    }
}

/// Looks for machines.
pub(super) fn find(tasks: &mut [Task], world: &World<'_>) -> Result<Plan, Failure> {
    let around = Surroundings {
        catalogue: world.catalogue,
        enabled: world.enabled,
        contexts: world.contexts,
        ssh_pools: world.pools,
        slurm_clusters: &[],
        on_server: false,
        path: world.path,
    };
    for task in tasks.iter_mut() {
        check(task, &around).map_err(Failure::Refused)?;
    }
    let wanted = wanted(tasks).map_err(Failure::Refused)?;
    let market = Market {
        catalogue: world.catalogue,
        enabled: world.enabled,
        nodes: world.nodes,
        blocked: &[],
        rules: Rules::default(),
    };
    place(&wanted, &market, Target::Cost).map_err(Failure::Nothing)
}

/// What is said before the error: each description for which there is nothing, what is near it, and what would help.
fn nothing(printed: &mut Printed, tasks: &[Task], unplaceable: &Unplaceable, world: &World<'_>) {
    let Unplaceable::Nothing { task, search } = unplaceable else { return };
    let Some(task) = tasks.get(*task) else { return };
    if Cloud::ALL.iter().all(|cloud| world.catalogue.offers(*cloud).is_empty()) {
        printed
            .line(format!("No price list is in {}: `sky catalog import` says what to fetch.", world.catalogue_folder));
    }
    for one in &task.resources.list {
        let nodes = if task.num_nodes > 1 { format!("{}x ", task.num_nodes) } else { String::new() };
        let all: Vec<&str> = world.enabled.iter().map(|cloud| cloud.display()).collect();
        let clouds = match (one.infra.cloud, all.as_slice()) {
            (Some(cloud), _) => cloud.display().to_owned(),
            (None, [cloud]) => (*cloud).to_owned(),
            (None, many) => format!("[{}]", many.join(", ")),
        };
        printed.line(format!("No resource satisfying {nodes}{} on {clouds}.", describe(one, true)));
        let near = search.near(|_| true);
        if !near.is_empty() {
            printed.line(format!("Did you mean: {}", quote_all(&near)));
            continue;
        }
        if one.cpus.is_some() {
            printed.line("- Try specifying a different CPU count, or add \"+\" to the end of the CPU count to allow for larger instances.");
        }
        if one.memory.is_some() {
            printed.line("- Try specifying a different memory size, or add \"+\" to the end of the memory size to allow for larger instances.");
        }
        if one.local_disk.is_some() {
            printed.line("- Try using \"+\" suffix for at-least matching (e.g., \"nvme:500+\"), or reduce the size requirement. ");
        }
        if let Some(cost) = &one.max_hourly_cost {
            printed.line(format!("- Max hourly cost limit (${}/hr) may be too restrictive. Try increasing the limit or removing it to see available options.", cost.text()));
        }
    }
}

/// The table of what was considered: the best of each cloud, accelerator and kind of price.
pub(super) fn considered(printed: &mut Printed, tasks: &[Task], plan: &Plan) {
    for (task, placement) in tasks.iter().zip(&plan.tasks) {
        let of_task = match (&task.name, tasks.len()) {
            (Some(name), 2..) => format!("for task {} ", quote(name)),
            _ => String::new(),
        };
        let plural = if task.num_nodes > 1 { "s" } else { "" };
        printed.line(format!("Considered resources {of_task}({} node{plural}):", task.num_nodes));
        let rows: Vec<Vec<String>> = rows(placement).into_iter().map(|(row, chosen)| line(row, chosen)).collect();
        let head = ["INFRA", "INSTANCE", "vCPUs", "Mem(GB)", "GPUS", "COST ($)", "CHOSEN"];
        printed.line(table::ruled(&head, &rows));
        several(printed, placement);
    }
}

/// Where a cloud has several types of machines with the chosen accelerator, which one was considered.
fn several(printed: &mut Printed, placement: &Placement) {
    let Some((name, count)) = placement.chosen().and_then(|way| way.candidate.accelerator.clone()) else { return };
    let mut told = false;
    for cloud in Cloud::ALL.iter().copied() {
        let others = placement.search.rejections.iter().filter(|one| one.cloud == cloud);
        let mut types: Vec<String> = Vec::new();
        for one in others {
            if let (Some(other), Why::Dearer { than }) = (&one.what, &one.why) {
                types.extend([than, other].into_iter().cloned());
            }
        }
        let mut unique: Vec<String> = Vec::new();
        types.into_iter().for_each(|name| {
            if !unique.contains(&name) {
                unique.push(name)
            }
        });
        if let Some(least) = unique.first() {
            told = true;
            printed.line(format!(
                "🔍 Multiple {} instances satisfy {name}:{count}. The cheapest {least} is considered among: {}.",
                cloud.display(),
                unique.join(", ")
            ));
        }
    }
    if told {
        printed.line(format!("To list more details, run: sky gpus list {name}\n"));
    }
}

fn rows(placement: &Placement) -> Vec<(&Ranked, bool)> {
    let key = |way: &Ranked| {
        let one = &way.candidate;
        (one.cloud, one.accelerator.clone(), one.use_spot)
    };
    let chosen = placement.chosen();
    let mut rows: Vec<(&Ranked, bool)> = Vec::new();
    for way in chosen.into_iter().chain(&placement.ranked) {
        if !rows.iter().any(|(row, _)| key(row) == key(way)) {
            rows.push((way, rows.is_empty()));
        }
    }
    // equal prices stand as they are tried
    rows.sort_by(|(a, _), (b, _)| a.candidate.request.cmp(&b.candidate.request).then(a.dollars.total_cmp(&b.dollars)));
    rows.sort_by(|(a, _), (b, _)| cents(a.dollars).total_cmp(&cents(b.dollars)));
    rows
}

fn cents(dollars: f64) -> f64 {
    (dollars * 100.0).round()
}

fn line(way: &Ranked, chosen: bool) -> Vec<String> {
    let one = &way.candidate;
    let number = |number: Option<f64>| match number {
        None => "-".to_owned(),
        Some(number) if number.fract() == 0.0 => format!("{number:.0}"),
        Some(number) => format!("{number:.1}"),
    };
    let spot = if one.use_spot { "[Spot]" } else { "" };
    let accelerator = one.accelerator.as_ref().map(|(name, count)| format!("{name}:{count}"));
    let infra = match super::pool(one.zone.as_ref().unwrap_or(&one.region)) {
        "" => one.cloud.display().to_owned(),
        place => format!("{} ({place})", one.cloud.display()),
    };
    vec![
        infra,
        format!("{}{spot}", one.instance_type),
        number(one.cpus),
        number(one.memory),
        accelerator.unwrap_or_else(|| "-".to_owned()),
        format!("{:.2}", way.dollars),
        if chosen { "   ✔".to_owned() } else { String::new() },
    ]
}
