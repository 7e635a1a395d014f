//! What the command line says of a task: variables, and what takes the place of the file's.

use std::collections::BTreeMap;

use placement::Cloud;

use super::variables::{Variable, variables};
use super::{Circumstances, Printed};
use crate::check::PathKind;
use crate::check::check_strategy;
use crate::commands::Call;
use crate::error::TaskError;
use crate::infra::Infra;
use crate::resources::{Resources, recovery};
use crate::schema::Reader;
use crate::suggest;
use crate::task::{Given, Task};
use crate::value::{Map, Value, parse_int, quote, quote_all};

/// Variables and secrets of the command line, and what of its values only the computer can tell: files, folders, the environment. In the order
/// in which the options stand there.
///
/// # Errors
/// What is printed where one of them will not do.
pub(super) fn given(call: &Call, world: &Circumstances<'_>) -> Result<Given, Printed> {
    let misused = |message: String| Printed::default().misused(&call.path, message);
    let mut files: BTreeMap<&str, Vec<Variable>> = BTreeMap::new();
    let mut pairs: BTreeMap<&str, Vec<Variable>> = BTreeMap::new();
    for option in call.given() {
        match option {
            "workdir" => {
                let path = call.value(option).unwrap_or_default();
                let why = match (world.path)(path) {
                    PathKind::Folder => continue,
                    PathKind::File => "is a file",
                    PathKind::Missing => "does not exist",
                };
                return Err(misused(format!("Invalid value for '--workdir': Directory {} {why}.", quote(path))));
            }
            "env_file" | "secret_file" => {
                let path = call.value(option).unwrap_or_default();
                if (world.path)(path) != PathKind::File {
                    return Err(misused(format!(
                        "Dotenv file does not exist: {path}. Provide a path to an existing file, or remove the flag."
                    )));
                }
                let unreadable =
                    |why| Printed::default().refused(&TaskError::value(format!("{path} cannot be read: {why}")));
                files.insert(option, variables(&(world.read)(path).map_err(unreadable)?, world.variable));
            }
            "env" | "secret" => {
                for one in call.values(option) {
                    let value = match one.split_once('=') {
                        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                        None => match (world.variable)(one) {
                            Some(value) => (one.clone(), Some(value)),
                            None => return Err(misused(format!("{one} is not set in local environment."))),
                        },
                    };
                    pairs.entry(option).or_default().push(value);
                }
            }
            _ => {}
        }
    }
    let merged = |sources: [Option<&Vec<Variable>>; 3]| {
        let mut all: Vec<Variable> = Vec::new();
        for (name, value) in sources.into_iter().flatten().flatten() {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some(known) => known.1.clone_from(value),
                None => all.push((name.clone(), value.clone())),
            }
        }
        all
    };
    Ok(Given {
        envs: merged([None, files.get("env_file"), pairs.get("env")]),
        secrets: merged([files.get("env_file"), files.get("secret_file"), pairs.get("secret")]),
        on_command_line: true,
    })
}

/// Variables and secrets of a command, which no file has: those of a file may have any name that its other rules allow, and each a value.
///
/// # Errors
/// A name that no variable has.
pub(super) fn of_command(given: &Given) -> Result<(), TaskError> {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    for (kind, all) in [("env", &given.envs), ("secret", &given.secrets)] {
        if let Some((name, _)) = all.iter().find(|(name, _)| !is_name(name)) {
            return Err(TaskError::value(format!("Invalid {kind} key: {name}")));
        }
    }
    Ok(())
}

/// What of a task the command line says otherwise than its file.
#[derive(Default)]
pub(super) struct Overrides {
    /// Fields of `resources`; null takes one away.
    fields: Map,
    /// Parts of the place; one that is there and holds nothing takes it away.
    place: Place,
    /// What is said of them.
    pub(super) told: String,
}

/// A cloud, a region and a zone, each of which may take the file's away.
#[derive(Default)]
struct Place {
    cloud: Option<Option<String>>,
    region: Option<Option<String>>,
    zone: Option<Option<String>>,
}

impl Overrides {
    /// All of them, as Python writes them, for a file in which nothing takes them.
    pub(super) fn ignored(&self) -> Option<String> {
        let mut all: Vec<String> = Vec::new();
        let Place { cloud, region, zone } = &self.place;
        if let Some(cloud) = cloud {
            let shown =
                cloud.as_deref().map(|name| Cloud::from_name(name.trim()).map_or(name, |cloud| cloud.display()));
            all.push(format!("'cloud': {}", shown.unwrap_or("None")));
        }
        for (key, part) in [("region", region), ("zone", zone)] {
            if let Some(part) = part {
                all.push(format!("'{key}': {}", part.as_deref().map_or_else(|| "None".to_owned(), quote)));
            }
        }
        const ORDER: [&str; 11] = [
            "accelerators",
            "cpus",
            "memory",
            "instance_type",
            "use_spot",
            "image_id",
            "disk_size",
            "disk_tier",
            "network_tier",
            "local_disk",
            "ports",
        ];
        for key in ORDER {
            match self.fields.get(key) {
                None => {}
                Some(Value::List(ports)) => all.push(format!("'{key}': {}", tuple(ports))),
                Some(value) => all.push(format!("'{key}': {}", value.quoted())),
            }
        }
        (!all.is_empty()).then(|| format!("{{{}}}", all.join(", ")))
    }
}

/// A list as Python writes what does not change.
fn tuple(list: &[Value]) -> String {
    let list: Vec<String> = list.iter().map(Value::quoted).collect();
    let comma = if list.len() == 1 { "," } else { "" };
    format!("({}{comma})", list.join(", "))
}

/// Where the command line says that the machines are to be, and what is said of that.
///
/// # Errors
/// `infra` that is none, or both ways to say it.
pub(super) fn place_of(call: &Call) -> Result<Overrides, (String, TaskError)> {
    let mut out = Overrides::default();
    let apart = ["cloud", "region", "zone"].map(|option| call.value(option));
    if apart.iter().any(Option::is_some) {
        out.told = "The --cloud, --region, and --zone options are deprecated. Use --infra instead.\n".to_owned();
    }
    let part =
        |text: &str| Some(text).filter(|text| !text.eq_ignore_ascii_case("none") && *text != "*").map(str::to_owned);
    let [cloud, region, zone] = apart.map(|one| one.map(part));
    out.place = Place { cloud, region, zone };
    let Some(text) = call.value("infra") else { return Ok(out) };
    if apart.iter().any(Option::is_some) {
        let both = TaskError::value("Cannot specify both --infra and --cloud, --region, or --zone.");
        return Err((out.told, both));
    }
    let [cloud, region, zone] = Infra::parts(text).map_err(|error| (String::new(), error))?;
    let part = |one: Option<String>| Some(one.as_deref().and_then(part));
    out.place = Place { cloud: part(cloud), region: part(region), zone: part(zone) };
    Ok(out)
}

/// With what else it says of the machines.
///
/// # Errors
/// A cloud that there is not, and ports that are none and others.
pub(super) fn with_fields(mut out: Overrides, call: &Call) -> Result<Overrides, TaskError> {
    if let Some(Some(name)) = &out.place.cloud {
        check_cloud(name)?;
    }
    for (option, field) in [
        ("gpus", "accelerators"),
        ("cpus", "cpus"),
        ("memory", "memory"),
        ("instance_type", "instance_type"),
        ("image_id", "image_id"),
        ("disk_tier", "disk_tier"),
        ("network_tier", "network_tier"),
        ("local_disk", "local_disk"),
    ] {
        if let Some(value) = call.value(option) {
            let none = value.eq_ignore_ascii_case("none");
            out.fields.insert(field, if none { Value::Null } else { Value::from(value) });
        }
    }
    if let Some(size) = call.value("disk_size").and_then(parse_int) {
        out.fields.insert("disk_size", Value::Int(size));
    }
    if let Some(spot) = call.value("use_spot") {
        out.fields.insert("use_spot", spot == "true");
    }
    let ports = call.values("ports");
    match ports.iter().any(|port| port.eq_ignore_ascii_case("none")) {
        true if ports.len() > 1 => return Err(TaskError::value("Cannot specify both \"none\" and other ports.")),
        true => out.fields.insert("ports", Value::Null),
        false if ports.is_empty() => {}
        false => out.fields.insert("ports", ports),
    }
    if call.path == "sky exec" {
        // the machines are there
        for field in ["cpus", "memory", "disk_size", "disk_tier", "local_disk", "ports"] {
            match out.fields.remove(field) {
                None | Some(Value::Null) => {}
                Some(Value::List(ports)) => {
                    out.told += &format!("Override param {field}={} is ignored.\n", tuple(&ports));
                }
                Some(value) => out.told += &format!("Override param {field}={} is ignored.\n", value.text()),
            }
        }
    }
    Ok(out)
}

/// Options of the command line take the place of what the file says, in each of its alternatives.
pub(super) fn override_all(
    tasks: &mut [Task],
    overrides: &Overrides,
    call: &Call,
    world: &Circumstances<'_>,
) -> Result<(), TaskError> {
    for task in tasks {
        if let Some(path) = call.value("workdir") {
            task.workdir = Some(Value::from(path));
        }
        repository(task, call)?;
        override_resources(task, overrides, world)?;
        if let Some(count) = call.value("num_nodes") {
            task.num_nodes = match count.parse() {
                Ok(count) if count > 0 => count,
                _ => return Err(TaskError::value(format!("num_nodes should be a positive int. Got: {count}"))),
            };
        }
        if let Some(name) = call.value("name") {
            task.name = Some(name.to_owned());
        }
        for one in &task.resources.list {
            one.check_instance_type(world.catalogue)?;
        }
    }
    Ok(())
}

/// What `jobs launch` says of priority and recovery, in all tasks.
pub(super) fn override_job(tasks: &mut [Task], call: &Call) -> Result<(), TaskError> {
    let priority = match call.value("priority").map(|text| (text, parse_int(text))) {
        None => None,
        Some((_, Some(priority))) if (-1000..=1000).contains(&priority) => Some(Value::Int(priority)),
        Some((text, _)) => {
            return Err(TaskError::value(format!("Priority must be between -1000 and 1000. Found: {text}")));
        }
    };
    let named = call.value("job_recovery");
    for one in tasks.iter_mut().flat_map(|task| task.resources.list.iter_mut()) {
        if let Some(priority) = &priority {
            one.priority = Some(priority.clone());
        }
        if let Some(name) = named {
            one.job_recovery = recovery(Some(Value::from(name.to_lowercase())));
            one.never_recovers = one.job_recovery.is_none();
        }
        check_strategy(one, named)?;
    }
    Ok(())
}

fn override_resources(task: &mut Task, overrides: &Overrides, world: &Circumstances<'_>) -> Result<(), TaskError> {
    let Overrides { fields, place, .. } = overrides;
    let moves = [&place.cloud, &place.region, &place.zone].iter().any(|part| part.is_some());
    if fields.is_empty() && !moves {
        return Ok(());
    }
    let size = match fields.get("disk_size") {
        Some(Value::Int(size)) if *size <= 0 => {
            return Err(TaskError::value(format!("\"disk_size\" must be a positive integer (in GB). Got: {size}.")));
        }
        Some(Value::Int(size)) => Some(*size),
        _ => None,
    };
    for one in &mut task.resources.list {
        let mut map = one.write(world.catalogue);
        if fields.contains("instance_type") && one.memory.is_none() {
            // it is that of the other type
            map.remove("memory");
        }
        for (key, value) in fields.iter() {
            match value {
                Value::Null => drop(map.remove(&key.text())),
                value => map.insert(key.clone(), value.clone()),
            }
        }
        if moves {
            let mut infra = one.infra.clone();
            if let Some(cloud) = &place.cloud {
                infra.cloud = cloud.as_deref().and_then(Cloud::from_name);
            }
            for (part, given) in [(&mut infra.region, &place.region), (&mut infra.zone, &place.zone)] {
                if let Some(given) = given {
                    part.clone_from(given);
                }
            }
            map.remove("infra");
            map.insert_some("infra", infra.text());
        }
        let read = Resources::read(map, None, Reader::Client)?;
        *one = Resources { hooks: std::mem::take(&mut one.hooks), disk_size: size.or(read.disk_size), ..read };
    }
    Ok(())
}

/// The Git repository that the command line names as the working directory, or what of the file's it wants.
fn repository(task: &mut Task, call: &Call) -> Result<(), TaskError> {
    let (url, reference) = (call.value("git_url"), call.value("git_ref"));
    if url.is_none() && reference.is_none() {
        return Ok(());
    }
    if call.value("workdir").is_some() {
        return Err(TaskError::value(
            "Cannot use --workdir together with --git-url or --git-ref: the working directory is one of them.",
        ));
    }
    let mut map = task.workdir.as_ref().and_then(Value::as_map).cloned().unwrap_or_default();
    if url.is_none() && !map.contains("url") {
        return Err(TaskError::value("--git-ref needs --git-url, or a `workdir` with a `url` in the task file."));
    }
    for (key, value) in [("url", url), ("ref", reference)] {
        if let Some(value) = value {
            map.insert(key, value);
        }
    }
    task.workdir = Some(Value::Map(map));
    Ok(())
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
