//! `sky launch --dryrun`: which machine a task would get.

use placement::place::{Placement, Plan, Ranked};
use placement::search::{Candidate, Why};
use placement::{Cloud, Market, Rules, Target, Unplaceable, place};
use regex::Regex;

use super::options::{Overrides, given, of_command, override_all, override_job, place_of, with_fields};
use super::source::{Source, check_whole};
use super::{Circumstances, Printed, table};
use crate::check::{PathKind, Surroundings, check};
use crate::commands::Call;
use crate::error::TaskError;
use crate::file::{File, Kind, is_group};
use crate::place::{describe, refusal, wanted};
use crate::schema::Reader;
use crate::suggest;
use crate::task::Task;
use crate::value::{Value, quote, quote_all};
use crate::yaml::{self, documents};

/// Names of clusters.
const CLUSTER_NAME: &str = "[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?";

/// A task that is to be launched or to be run on a cluster that is there.
pub struct Prepared {
    /// The task, with the options of the command line over it.
    pub task: Task,
    /// What is said of it first.
    pub told: String,
    /// The file that it stands in, if it stands in one.
    pub source: Option<Source>,
}

/// The one task that `launch` and `exec` name, with the options of the command line over it.
///
/// # Errors
/// What is printed where there is none.
pub fn prepared(call: &Call, world: &Circumstances<'_>) -> Result<Prepared, Printed> {
    let Named { mut tasks, is_dag, overrides, mut printed, source, .. } = named(call, world)?;
    if is_dag {
        let message = match call.path.as_str() {
            "sky exec" => "YAML specifies a DAG, while `sky exec` supports a single task only.".to_owned(),
            path => format!(
                "YAML specifies a DAG which is only supported by `sky jobs launch`. `{path}` supports a single task only."
            ),
        };
        return Err(printed.misused(&call.path, message));
    }
    if let Err(error) = override_all(&mut tasks, &overrides, call, world) {
        return Err(printed.refused_in(&error, source.as_ref()));
    }
    match tasks.pop() {
        Some(task) => Ok(Prepared { task, told: std::mem::take(&mut printed.out), source }),
        None => Err(printed.fail(1, "ValueError: the file holds no task.")),
    }
}

/// A managed job that is to be launched.
pub struct PreparedJob {
    /// What the job is called.
    pub name: String,
    /// How its tasks run.
    pub kind: Kind,
    /// Its tasks, with the options of the command line over them where there is one.
    pub tasks: Vec<Task>,
    /// What is said of it first.
    pub told: String,
    /// The file that it stands in, if it stands in one.
    pub source: Option<Source>,
}

/// The tasks that `jobs launch` names, with the options of the command line over a single one.
///
/// # Errors
/// What is printed where there is none.
pub fn prepared_job(call: &Call, world: &Circumstances<'_>) -> Result<PreparedJob, Printed> {
    let Named { name, kind, mut tasks, is_dag, overrides, printed, source } = named(call, world)?;
    let overridden = match is_dag {
        true => Ok(()),
        false => override_all(&mut tasks, &overrides, call, world),
    };
    let done = overridden.and_then(|()| override_job(&mut tasks, call));
    if let Err(error) = done {
        return Err(printed.refused_in(&error, source.as_ref()));
    }
    let first = tasks.first().and_then(|task| task.name.clone());
    let name = call.value("name").map(str::to_owned).or(name).or(first.filter(|_| !is_dag));
    let name = name.unwrap_or_else(|| world.cluster.to_owned());
    Ok(PreparedJob { name, kind, tasks, told: printed.out, source })
}

/// A name that no cluster may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "sky.exceptions.InvalidClusterNameError: Cluster name \"{0}\" is invalid; ensure it is fully matched by regex (e.g., only contains letters, numbers and dash): {CLUSTER_NAME}"
)]
pub struct NameError(String);

/// Whether a cluster may be called so.
///
/// # Errors
/// It may not.
pub fn check_name(cluster: &str) -> Result<(), NameError> {
    let is_name = Regex::new(&format!("^{CLUSTER_NAME}$")).is_ok_and(|pattern| pattern.is_match(cluster));
    is_name.then_some(()).ok_or_else(|| NameError(cluster.to_owned()))
}

pub(super) fn dryrun(call: &Call, world: &Circumstances<'_>) -> Printed {
    let mut printed = Printed::default();
    let (mut tasks, source) = match prepared(call, world) {
        Ok(Prepared { task, told, source }) => {
            printed.out = told;
            (vec![task], source)
        }
        Err(printed) => return printed,
    };
    let cluster = call.value("cluster").unwrap_or(world.cluster);
    printed.line(format!("Running on cluster: {cluster}"));
    let mut printed = match chosen(printed, &mut tasks, source.as_ref(), world) {
        Ok((printed, _)) => printed,
        Err(printed) => return printed,
    };
    if let Some(Err(error)) = call.value("cluster").map(check_name) {
        return printed.fail(1, error.to_string());
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
pub fn planned(task: &mut Task, source: Option<&Source>, world: &Circumstances<'_>) -> Result<Planned, Printed> {
    let mut tasks = vec![task.clone()];
    let found = chosen(Printed::default(), &mut tasks, source, world);
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
fn chosen(
    mut printed: Printed,
    tasks: &mut [Task],
    source: Option<&Source>,
    world: &Circumstances<'_>,
) -> Result<(Printed, Plan), Printed> {
    if tasks.iter().any(|task| task.resources.list.iter().any(|one| one.use_spot == Some(true))) {
        printed.line("Launching a spot job that does not automatically recover from preemptions. To get automatic recovery, use managed job instead: sky jobs launch or sky.jobs.launch().");
    }
    let plan = match find(tasks, world) {
        Ok(plan) => plan,
        Err(Failure::Refused(error)) => return Err(printed.refused_in(&error, source)),
        Err(Failure::Nothing(unplaceable)) => {
            nothing(&mut printed, tasks, &unplaceable, world);
            return Err(printed.refused(&refusal(&unplaceable, tasks, world.enabled)));
        }
    };
    considered(&mut printed, tasks, &plan);
    Ok((printed, plan))
}

/// What a command line names.
pub(super) struct Named {
    /// The name of the whole.
    name: Option<String>,
    kind: Kind,
    pub(super) tasks: Vec<Task>,
    /// Whether they are more than one, or might be.
    is_dag: bool,
    pub(super) overrides: Overrides,
    /// What is said of it.
    pub(super) printed: Printed,
    /// The file, if it is one.
    pub(super) source: Option<Source>,
}

/// Why there is no plan.
pub(super) enum Failure {
    Refused(TaskError),
    Nothing(Unplaceable),
}

/// The task file that the command line names, or the command that it is, and what the command line says of the task.
///
/// # Errors
/// What is printed where it is neither.
pub(super) fn named(call: &Call, world: &Circumstances<'_>) -> Result<Named, Printed> {
    let given = given(call, world)?;
    let mut printed = Printed::default();
    if call.path == "sky exec" && call.values("entrypoint").is_empty() && call.value("cluster_option").is_none() {
        return Err(printed.misused(&call.path, "Missing argument '[ENTRYPOINT]...'"));
    }
    let mut overrides =
        place_of(call).map_err(|(told, error)| Printed { out: told, ..Printed::default() }.refused(&error))?;
    printed.out.push_str(&std::mem::take(&mut overrides.told));
    let entry = match call.path.as_str() {
        "sky jobs pool apply" => "pool_yaml",
        path if path.starts_with("sky serve") => "service_yaml",
        _ => "entrypoint",
    };
    let text = call.values(entry).join(" ");
    if text.strip_prefix("recipes:").is_some_and(|name| !name.is_empty() && !name.contains(char::is_whitespace)) {
        return Err(printed.fail(1, format!("{text}: there is no hub of recipes here; name a task file or a command.")));
    }
    let document = task_file(&text, world);
    match &document {
        Some(_) => printed.line(format!("YAML to run: {text}")),
        None if named_like_a_file(&text) => {
            let why = match (world.path)(&text) {
                PathKind::Missing => "does not exist. Please check if the path is correct.",
                PathKind::File => "holds a text, and no task with fields such as `run`.",
                PathKind::Folder => "is not a file. Please check if the path is correct.",
            };
            printed.line(format!(
                "{} looks like a yaml path but {why}\nIt will be treated as a command to be run remotely. Continue? [y/N]:",
                quote(&text)
            ));
            return Err(printed.fail(1, "Aborted!"));
        }
        None if text.is_empty() => {}
        None => printed.line(format!("Command to run: {text}")),
    }
    let overrides = match with_fields(overrides, call) {
        Ok(overrides) => overrides,
        Err(error) => return Err(printed.refused(&error)),
    };
    printed.out.push_str(&overrides.told);
    let command = match text.is_empty() {
        true => serde_json::json!({"name": "sky-cmd"}),
        false => serde_json::json!({"name": "sky-cmd", "run": text}),
    };
    if document.is_none()
        && let Err(error) = of_command(&given)
    {
        return Err(printed.refused(&error));
    }
    let is_file = document.is_some();
    let document = document.unwrap_or_else(|| Ok(command.to_string()));
    let documents = document.as_ref().map_or_else(|_| Vec::new(), |text| documents(text).unwrap_or_default());
    let source = is_file.then(|| Source::of(&text, &documents, call));
    if is_group(&documents).unwrap_or(false) {
        printed.line("Detected Job Group YAML");
    }
    let whole = document.and_then(|document| {
        let is_yaml = is_file && (!documents.is_empty() || yaml::documents(&document).is_ok());
        if is_yaml {
            check_whole(&text, &documents)?;
        }
        Ok(document)
    });
    let read = whole.and_then(|document| File::read(&document, &given, Reader::Client, world.catalogue));
    match read {
        Ok(File { name, kind, tasks, .. }) => {
            let is_dag = tasks.len() > 1 || matches!(kind, Kind::Parallel(_));
            if let Some(ignored) = overrides.ignored().filter(|_| is_dag) {
                printed.line(match kind {
                    Kind::Parallel(_) => format!("WARNING: override params {ignored} are ignored for Job Group YAML."),
                    Kind::Serial => format!(
                        "WARNING: override params {ignored} are ignored, since the yaml file contains multiple tasks."
                    ),
                });
            }
            Ok(Named { name, kind, tasks, is_dag, overrides, printed, source })
        }
        Err(error) => Err(printed.refused_in(&error, source.as_ref())),
    }
}

fn named_like_a_file(text: &str) -> bool {
    !text.contains(char::is_whitespace) && (text.ends_with("yaml") || text.ends_with(".yml"))
}

/// The text of the file that is named, if it is a task's and not a script: its first document is no text.
fn task_file(text: &str, world: &Circumstances<'_>) -> Option<Result<String, TaskError>> {
    if (world.path)(text) != PathKind::File {
        return None;
    }
    let unreadable = |why| TaskError::value(format!("{text} cannot be read: {why}"));
    match (world.read)(text).map_err(unreadable) {
        Ok(document) => {
            let is_task = match documents(&document) {
                Ok(all) => !all.first().is_some_and(|first| matches!(first.value, Some(Value::Str(_)))),
                Err(_) => named_like_a_file(text),
            };
            is_task.then_some(Ok(document))
        }
        Err(error) => named_like_a_file(text).then_some(Err(error)),
    }
}

/// Looks for machines.
pub(super) fn find(tasks: &mut [Task], world: &Circumstances<'_>) -> Result<Plan, Failure> {
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
fn nothing(printed: &mut Printed, tasks: &[Task], unplaceable: &Unplaceable, world: &Circumstances<'_>) {
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
        if let Some((name, _)) = &one.accelerators {
            unknown_accelerator(printed, name, world);
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

/// A note about an accelerator that no price list and no machine has.
fn unknown_accelerator(printed: &mut Printed, name: &str, world: &Circumstances<'_>) {
    let offered = Cloud::ALL.iter().flat_map(|cloud| world.catalogue.offers(*cloud));
    let mut names: Vec<&str> =
        offered.filter_map(|offer| offer.accelerators.as_ref()).map(|(name, _)| name.as_str()).collect();
    names.extend(world.nodes.iter().filter_map(|node| node.accelerator.as_ref()).map(|(name, _)| name.as_str()));
    names.sort_unstable();
    names.dedup();
    if names.is_empty() || names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return;
    }
    let near = suggest::near(name, names.iter().copied(), 3);
    let told = match near.is_empty() {
        true => format!("No price list has an accelerator {name}."),
        false => format!("No price list has an accelerator {name}; near it are {}.", near.join(", ")),
    };
    printed.add_note(&told);
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
