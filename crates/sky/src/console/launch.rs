//! `sky launch --dryrun`: which machine a task would get.

use placement::place::{Placement, Plan, Ranked};
use placement::search::Why;
use placement::{Cloud, Market, Rules, Target, Unplaceable, place};
use regex::Regex;

use super::{Printed, World, table};
use crate::check::{PathKind, Surroundings, check};
use crate::commands::Call;
use crate::error::TaskError;
use crate::file::File;
use crate::infra::Infra;
use crate::place::{describe, refusal, wanted};
use crate::resources::Alternatives;
use crate::schema::Reader;
use crate::suggest;
use crate::task::{Given, Task};
use crate::value::{Map, Value, quote, quote_all};

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
    if tasks.iter().any(|task| task.resources.list.iter().any(|one| one.use_spot == Some(true))) {
        printed.line("Launching a spot job that does not automatically recover from preemptions. To get automatic recovery, use managed job instead: sky jobs launch or sky.jobs.launch().");
    }
    let plan = match find(&mut tasks, world) {
        Ok(plan) => plan,
        Err(Failure::Refused(error)) => return printed.refused(&error),
        Err(Failure::Nothing(unplaceable)) => {
            nothing(&mut printed, &tasks, &unplaceable, world);
            return printed.refused(&refusal(&unplaceable, &tasks, world.enabled));
        }
    };
    considered(&mut printed, &tasks, &plan);
    if let Some(Err(message)) = call.value("cluster").map(check_name) {
        return printed.fail(1, message);
    }
    printed.line("Dryrun finished.");
    printed
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

/// Variables and secrets of the command line; one without a value has the one of the environment.
fn given(call: &Call, world: &World<'_>) -> Result<Given, TaskError> {
    let pairs = |name: &str, file: &str| {
        let mut pairs: Vec<(String, String)> = Vec::new();
        if let Some(path) = call.value(file) {
            let text = (world.read)(path).map_err(|why| TaskError::value(format!("{path} cannot be read: {why}")))?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            pairs.extend(lines.filter_map(|line| {
                let (key, value) = line.trim_start_matches("export ").split_once('=')?;
                Some((key.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
            }));
        }
        for one in call.values(name) {
            pairs.push(match one.split_once('=') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None => {
                    let missing = || TaskError::value(format!("{one} is not set in local env."));
                    (one.clone(), (world.variable)(one).ok_or_else(missing)?)
                }
            });
        }
        Ok::<_, TaskError>(pairs)
    };
    Ok(Given { envs: pairs("env", "env_file")?, secrets: pairs("secret", "secret_file")? })
}

/// Options of the command line take the place of what the file says, in each of its alternatives.
pub(super) fn override_all(tasks: &mut [Task], call: &Call, world: &World<'_>) -> Result<(), TaskError> {
    let fields = fields(call)?;
    for task in tasks {
        if let Some(name) = call.value("name") {
            task.name = Some(name.to_owned());
        }
        if let Some(path) = call.value("workdir") {
            task.workdir = Some(Value::from(path));
        }
        if let Some(count) = call.value("num_nodes").and_then(|count| count.trim().parse().ok()) {
            if count < 1 {
                return Err(TaskError::value(format!("num_nodes should be a positive int. Got: {count}")));
            }
            task.num_nodes = count;
        }
        if fields.is_empty() {
            continue;
        }
        let mut list = Vec::new();
        let mut order = task.resources.order;
        for one in &task.resources.list {
            let mut map = one.write(world.catalogue);
            if fields.contains("instance_type") {
                // what was written down for the other type does not count
                map.remove("memory");
            }
            for (key, value) in fields.iter() {
                match value {
                    Value::Null => drop(map.remove(&key.text())),
                    value => map.insert(key.clone(), value.clone()),
                }
            }
            let read = Alternatives::read(map, None, Reader::Server, world.catalogue)?;
            if read.list.len() > 1 {
                order = read.order;
            }
            list.extend(read.list);
        }
        task.resources = Alternatives { order, list };
    }
    Ok(())
}

/// Fields of `resources` that the command line gives; null takes one away.
fn fields(call: &Call) -> Result<Map, TaskError> {
    let mut fields = Map::new();
    for (option, field) in [
        ("cpus", "cpus"),
        ("memory", "memory"),
        ("gpus", "accelerators"),
        ("instance_type", "instance_type"),
        ("disk_size", "disk_size"),
        ("disk_tier", "disk_tier"),
        ("network_tier", "network_tier"),
        ("local_disk", "local_disk"),
        ("image_id", "image_id"),
    ] {
        if let Some(value) = call.value(option) {
            let none = value.eq_ignore_ascii_case("none");
            fields.insert(field, if none { Value::Null } else { Value::from(value) });
        }
    }
    if let Some(spot) = call.value("use_spot") {
        fields.insert("use_spot", spot == "true");
    }
    if !call.values("ports").is_empty() {
        fields.insert("ports", call.values("ports"));
    }
    let place = place_of(call)?;
    if place != Infra::default() {
        fields.insert("infra", place.text().map_or(Value::Null, Value::from));
    }
    Ok(fields)
}

/// Where the command line says that the machines are to be.
fn place_of(call: &Call) -> Result<Infra, TaskError> {
    let mut place = match call.value("infra") {
        Some(text) => {
            check_cloud(text.split('/').next().unwrap_or_default())?;
            Infra::read(text)?
        }
        None => Infra::default(),
    };
    if let Some(name) = call.value("cloud") {
        check_cloud(name)?;
        place.cloud = Cloud::from_name(name);
    }
    for (option, field) in [("region", &mut place.region), ("zone", &mut place.zone)] {
        if let Some(value) = call.value(option) {
            *field = Some(value.to_owned());
        }
    }
    Ok(place)
}

fn check_cloud(name: &str) -> Result<(), TaskError> {
    if matches!(name.trim(), "" | "*") || Cloud::from_name(name.trim()).is_some() {
        return Ok(());
    }
    // the order in which SkyPilot's modules make themselves known
    let mut names: Vec<&str> = Cloud::ALL.iter().map(|cloud| cloud.name()).collect();
    names.sort_by_key(|name| (*name != "gcp", *name != "verda", *name));
    names.extend(["digitalocean", "k8s"]);
    let near = suggest::nearest(&name.to_lowercase(), names.iter().copied());
    let hint = near.map(|near| format!(" Did you mean {}?", quote(near))).unwrap_or_default();
    Err(TaskError::value(format!("Cloud {} is not a valid cloud among {}.{hint}", quote(name), quote_all(&names))))
}

/// Looks for machines.
pub(super) fn find(tasks: &mut [Task], world: &World<'_>) -> Result<Plan, Failure> {
    let around = Surroundings {
        catalogue: world.catalogue,
        enabled: world.enabled,
        contexts: &[],
        ssh_pools: &[],
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
        nodes: &[],
        blocked: &[],
        rules: Rules::default(),
    };
    place(&wanted, &market, Target::Cost).map_err(Failure::Nothing)
}

/// What is said before the error: each description for which there is nothing, what is near it, and what would help.
fn nothing(printed: &mut Printed, tasks: &[Task], unplaceable: &Unplaceable, world: &World<'_>) {
    let Unplaceable::Nothing { task, search } = unplaceable else { return };
    let Some(task) = tasks.get(*task) else { return };
    if world.enabled.is_empty() {
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
    vec![
        format!("{} ({})", one.cloud.display(), one.zone.as_ref().unwrap_or(&one.region)),
        format!("{}{spot}", one.instance_type),
        number(one.cpus),
        number(one.memory),
        accelerator.unwrap_or_else(|| "-".to_owned()),
        format!("{:.2}", way.dollars),
        if chosen { "   ✔".to_owned() } else { String::new() },
    ]
}
