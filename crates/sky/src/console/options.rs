//! What the command line says of a task: variables, and what takes the place of the file's.

use placement::Cloud;

use super::World;
use crate::commands::Call;
use crate::error::TaskError;
use crate::infra::Infra;
use crate::resources::Alternatives;
use crate::schema::Reader;
use crate::suggest;
use crate::task::{Given, Task};
use crate::value::{Map, Value, quote, quote_all};

/// Variables and secrets of the command line; one without a value has the one of the environment.
pub(super) fn given(call: &Call, world: &World<'_>) -> Result<Given, TaskError> {
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
        repository(task, call)?;
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
