//! One task: what runs, where, and with what.

use std::sync::LazyLock;

use regex::Regex;

use placement::Catalogue;

use crate::check::{is_remote_workdir, taken_by_workdir};
use crate::error::TaskError;
use crate::mounts::{Mounts, is_cloud_url};
use crate::quantity::seconds;
use crate::resources::Alternatives;
use crate::schema::{self, Reader};
use crate::secrets::Secrets;
use crate::service;
use crate::shapes::shape;
use crate::value::{Map, Value, quote, quote_all};

/// What the command line adds to a file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `--env NAME=VALUE`; a file of variables may name one without a value.
    pub envs: Vec<(String, Option<String>)>,
    /// `--secret NAME=VALUE`, and as above.
    pub secrets: Vec<(String, Option<String>)>,
    /// Whether options of a command line change the task once it is read: its type of machine is looked at after that, and a list of secrets
    /// is one of names, as secrets may come with it.
    pub on_command_line: bool,
}

/// A task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name.
    pub name: Option<String>,
    /// What it asks for.
    pub resources: Alternatives,
    /// How many machines of that.
    pub num_nodes: i128,
    /// What runs once on each machine before.
    pub setup: Option<String>,
    /// What runs.
    pub run: Option<String>,
    /// The folder that goes along: a path, or a mapping of `url` and `ref`.
    pub workdir: Option<Value>,
    /// Its variables.
    pub envs: Map,
    /// Its secrets.
    pub secrets: Secrets,
    /// Files and buckets.
    pub mounts: Mounts,
    /// Path and volume.
    pub volumes: Map,
    /// A script that a managed job runs whenever its state changes.
    pub event_callback: Option<String>,
    /// Data read: where it is, and gigabytes.
    pub inputs: Option<(String, Value)>,
    /// Data written: where it goes, and gigabytes.
    pub outputs: Option<(String, Value)>,
    /// What it serves, as a file for the server has it.
    pub service: Option<Map>,
    /// Whether a managed job may talk to the API.
    pub api_server_access: bool,
    /// What the platform keeps with a task that goes through it.
    pub internal: Map,
}

/// Variables of a login to a container registry: all or none of them.
const DOCKER_LOGIN: [&str; 3] = ["SKYPILOT_DOCKER_PASSWORD", "SKYPILOT_DOCKER_SERVER", "SKYPILOT_DOCKER_USERNAME"];

impl Task {
    /// Reads a document.
    ///
    /// # Errors
    /// For what is no task.
    pub fn read(document: Value, given: &Given, reader: Reader, catalogue: &Catalogue) -> Result<Self, TaskError> {
        let mut config = match document {
            Value::Map(config) => config,
            other => {
                return Err(TaskError::shape(format!(
                    "A task is a mapping of fields such as `run` and `resources`, not {}.",
                    other.quoted()
                ))
                .at("$"));
            }
        };
        for (key, lists) in [("envs", false), ("secrets", true)] {
            if let Some(texts) = config.get(key).and_then(|value| as_texts(value, lists)) {
                config.insert(key, texts);
            }
        }
        let refused = |refusal| TaskError::refused(refusal, "Invalid task YAML: ", "$");
        schema::check_given(&config, shape("task"), reader).map_err(refused)?;
        let written = config.clone();
        let envs = variables(&mut config, given)?;
        let secrets = secret_values(&mut config, given);
        let mut known = envs.clone();
        if let Some(Value::Map(values)) = &secrets {
            known.extend(
                values
                    .iter()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
            );
        }
        for key in ["file_mounts", "service", "workdir", "volumes"] {
            if let Some(value) = config.take(key) {
                config.insert(key, substituted(value, &known));
            }
        }
        let task = Self::build(config, envs, secrets, reader, catalogue)?;
        schema::check_nulls(&written, shape("task"), reader).map_err(refused)?;
        Ok(task)
    }

    fn build(
        mut config: Map,
        envs: Map,
        secrets: Option<Value>,
        reader: Reader,
        catalogue: &Catalogue,
    ) -> Result<Self, TaskError> {
        let secrets = Secrets::read(secrets, config.take("managed_secrets"))?;
        let login = docker_login(&envs, &secrets.values)?;
        let mut text = |key: &str| config.take(key).map(|value| value.text());
        let (name, run, setup, event_callback) = (text("name"), text("run"), text("setup"), text("event_callback"));
        let num_nodes = match config.take("num_nodes") {
            None => 1,
            Some(Value::Int(count)) if count > 0 => count,
            Some(other) => {
                return Err(TaskError::value(format!("num_nodes should be a positive int. Got: {}", other.text()))
                    .at("$.num_nodes"));
            }
        };
        let workdir = config.take("workdir");
        let map = |value: Option<Value>| match value {
            Some(Value::Map(map)) => map,
            _ => Map::new(),
        };
        let mounts = Mounts::read(map(config.take("file_mounts")), reader)?;
        for (target, _) in &mounts.buckets {
            if is_remote_workdir(target) && workdir.is_some() {
                return Err(TaskError::value(taken_by_workdir()).at("$.file_mounts"));
            }
            if is_cloud_url(target) {
                return Err(
                    TaskError::value("Storage mount destination path cannot be cloud storage").at("$.file_mounts")
                );
            }
        }
        let volumes = map(config.take("volumes"));
        let (inputs, outputs) = (data(config.take("inputs"), "input")?, data(config.take("outputs"), "output")?);
        let mut overrides = map(config.take("config"));
        let hooks = overrides.take("hooks");
        let mut resources = map(config.take("resources"));
        if resources.contains("hooks") {
            return Err(TaskError::value(
                "Lifecycle hooks live under top-level `config.hooks:`, not `resources.hooks:`. Move the list to `config.hooks` at the top level of the task YAML.",
            )
            .at("$.resources.hooks"));
        }
        if !overrides.is_empty() {
            if resources.given("_cluster_config_overrides").is_some() {
                return Err(TaskError::value(
                    "`config` and `resources._cluster_config_overrides` mean the same: leave one of them out.",
                )
                .at("$.config"));
            }
            resources.insert("_cluster_config_overrides", overrides);
        }
        if !mounts.disks.is_empty() {
            resources.insert("volumes", Value::List(mounts.disks.clone()));
        }
        let resources = Alternatives::read(resources, hooks, reader, catalogue)?;
        let resources = with_task(resources, login.as_ref(), &envs, &secrets.values, &mounts)?;
        let service = match (config.take("service"), config.take("pool")) {
            (Some(_), Some(_)) => {
                return Err(TaskError::value("Cannot set both service and pool in the same task.").at("$.pool"));
            }
            (Some(Value::Map(service)), None) => Some(service::service(service, reader)?),
            (None, Some(Value::Map(pool))) => Some(service::pool(pool, reader)?),
            _ => None,
        };
        // written and empty is no, as in SkyPilot
        let api_server_access = config.remove("api_server_access").is_none_or(|value| value.is_truthy());
        let kept = ["file_mounts_mapping", "volume_mounts", "_metadata"]
            .into_iter()
            .filter_map(|key| Some((key, config.take(key)?)));
        let internal = kept.filter(|(key, value)| *key != "_metadata" || value.is_truthy()).collect();
        Ok(Self {
            name,
            resources,
            num_nodes,
            setup,
            run,
            workdir,
            envs,
            secrets,
            mounts,
            volumes,
            event_callback,
            inputs,
            outputs,
            service,
            api_server_access,
            internal,
        })
    }

    /// As a file for the server has it.
    pub fn write(&self, catalogue: &Catalogue) -> Map {
        let mut out = Map::new();
        out.insert_some("name", self.name.clone());
        out.insert("resources", self.resources.write(catalogue));
        if let Some(with_hooks) = self.resources.list.iter().find(|resources| !resources.hooks.is_empty()) {
            let hooks = with_hooks.hooks.iter().cloned().map(Value::Map).collect::<Vec<_>>();
            out.insert("config", Map::from_iter([("hooks", Value::List(hooks))]));
        }
        out.insert_some("service", self.service.clone());
        out.insert("num_nodes", self.num_nodes);
        for (key, data) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            out.insert_some(key, data.clone().map(|(url, gigabytes)| Map::from_iter([(url, gigabytes)])));
        }
        out.insert_some("setup", self.setup.clone());
        out.insert_some("workdir", self.workdir.clone());
        out.insert_some("event_callback", self.event_callback.clone());
        out.insert_some("run", self.run.clone());
        out.insert_some("envs", Some(self.envs.clone()).filter(|envs| !envs.is_empty()));
        self.secrets.write(&mut out);
        out.insert("file_mounts", self.mounts.write());
        out.insert("volumes", self.volumes.clone());
        out.extend(self.internal.clone());
        if !self.api_server_access {
            out.insert("api_server_access", false);
        }
        out
    }
}

/// Variables and secrets are texts, whatever YAML makes of them; `lists`: also those of a list.
fn as_texts(value: &Value, lists: bool) -> Option<Value> {
    let text = |value: &Value| if value.is_null() { Value::Null } else { Value::Str(value.text()) };
    match value {
        Value::Map(map) => Some(Value::Map(map.iter().map(|(key, value)| (key.text(), text(value))).collect())),
        Value::List(list) if lists => Some(Value::List(list.iter().map(|item| Value::Str(item.text())).collect())),
        _ => None,
    }
}

/// The variables of the file and of the command line, each with a value.
fn variables(config: &mut Map, given: &Given) -> Result<Map, TaskError> {
    let mut envs = match config.remove("envs") {
        Some(Value::Map(envs)) => envs,
        Some(Value::Null) if given.envs.is_empty() => {
            return Err(TaskError::value("`envs` is empty. Name variables below it, or leave it out.").at("$.envs"));
        }
        _ => Map::new(),
    };
    given.envs.iter().for_each(|(name, value)| envs.insert(name.as_str(), text_or_null(value)));
    let without = envs.iter().find(|(_, value)| value.is_null()).map(|(name, _)| name.clone());
    match without {
        None => Ok(envs),
        Some(name) => Err(TaskError::value(format!(
            "Environment variable {} is None. Please set a value for it in task YAML or with --env flag. To set it to be empty, use an empty string ({name}: \"\" in task YAML or --env {name}=\"\" in CLI).",
            name.quoted(),
            name = name.text()
        ))
        .at(format!("$.envs.{}", name.text()))),
    }
}

fn text_or_null(value: &Option<String>) -> Value {
    value.as_deref().map_or(Value::Null, Value::from)
}

/// The secrets of the file and of the command line.
fn secret_values(config: &mut Map, given: &Given) -> Option<Value> {
    let own = config.take("secrets");
    if given.secrets.is_empty() && (own.is_none() || !given.on_command_line) {
        return own;
    }
    let mut all: Map = match own {
        Some(Value::List(list)) => list.into_iter().map(|item| (item, Value::Null)).collect(),
        Some(Value::Map(map)) => map,
        _ => Map::new(),
    };
    given.secrets.iter().for_each(|(name, value)| all.insert(name.as_str(), text_or_null(value)));
    Some(Value::Map(all))
}

static VARIABLE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\$\{?\b([a-zA-Z_][a-zA-Z0-9_]*)\b\}?").ok());

/// A value with `$NAME` and `${NAME}` replaced in its texts and keys; unknown names stay. Numbers and dates become what JSON has.
fn substituted(value: Value, known: &Map) -> Value {
    let replace = |text: &str| match LazyLock::force(&VARIABLE) {
        Some(pattern) => pattern
            .replace_all(text, |found: &regex::Captures<'_>| {
                let name = found.get(1).map_or("", |name| name.as_str());
                known
                    .get(name)
                    .map_or_else(|| found.get(0).map_or(String::new(), |all| all.as_str().to_owned()), Value::text)
            })
            .into_owned(),
        None => text.to_owned(),
    };
    match value {
        Value::Str(text) => Value::Str(replace(&text)),
        Value::List(list) => Value::List(list.into_iter().map(|item| substituted(item, known)).collect()),
        Value::Map(map) => Value::Map(
            map.into_iter().map(|(key, value)| (replace(&key.json_key()), substituted(value, known))).collect(),
        ),
        other => other,
    }
}

/// The login to a registry, from variables or from secrets, never from both.
fn docker_login(envs: &Map, secrets: &Map) -> Result<Option<Map>, TaskError> {
    let there = |map: &Map| DOCKER_LOGIN.into_iter().filter(|key| map.contains(key)).collect::<Vec<_>>();
    let (in_envs, in_secrets) = (there(envs), there(secrets));
    let (place, found, map) = match (in_envs.is_empty(), in_secrets.is_empty()) {
        (true, true) => return Ok(None),
        (false, false) => {
            return Err(TaskError::value(format!(
                "Docker login variables must be specified together either in envs OR secrets, not split across both. Found in envs: {}, Found in secrets: {}",
                quote_all(in_envs),
                quote_all(in_secrets)
            )));
        }
        (false, true) => ("envs", in_envs, envs),
        (true, false) => ("secrets", in_secrets, secrets),
    };
    let missing: Vec<&str> = DOCKER_LOGIN.into_iter().filter(|key| !found.contains(key)).collect();
    if !missing.is_empty() {
        return Err(TaskError::value(format!(
            "Docker login variables must be specified together in {place}. Missing from {place}: {}",
            quote_all(missing)
        ))
        .at(format!("$.{place}")));
    }
    let value = |key: &str| map.get(key).cloned().unwrap_or(Value::Null);
    Ok(Some(Map::from_iter([
        ("username", value("SKYPILOT_DOCKER_USERNAME")),
        ("password", value("SKYPILOT_DOCKER_PASSWORD")),
        ("server", value("SKYPILOT_DOCKER_SERVER")),
    ])))
}

/// The resources with what the rest of the task means for them.
fn with_task(
    mut resources: Alternatives,
    login: Option<&Map>,
    envs: &Map,
    secrets: &Map,
    mounts: &Mounts,
) -> Result<Alternatives, TaskError> {
    let mut priorities = resources.list.iter().filter_map(|resources| resources.priority.as_ref());
    if let Some(first) = priorities.next()
        && let Some(other) = priorities.find(|other| *other != first)
    {
        return Err(TaskError::value(format!(
            "Priority is not consistent across resources: {} and {}",
            first.text(),
            other.text()
        ))
        .at("$.resources"));
    }
    let user = secrets
        .get("SKYPILOT_RUNPOD_DOCKER_USERNAME")
        .or_else(|| envs.get("SKYPILOT_RUNPOD_DOCKER_USERNAME"))
        .map(Value::text);
    resources.list = resources
        .list
        .into_iter()
        .map(|mut one| {
            if let Some(login) = login {
                one = one.with_docker_login(login);
            }
            if user.is_some() {
                one.runpod_docker_username.clone_from(&user);
            }
            if mounts.requires_fuse() {
                one.requires_fuse = Some(true);
            }
            one
        })
        .collect();
    Ok(resources)
}

/// Where data are, and gigabytes of them: one place.
fn data(field: Option<Value>, what: &str) -> Result<Option<(String, Value)>, TaskError> {
    let Some(Value::Map(map)) = field else { return Ok(None) };
    match map.into_iter().next() {
        Some((url, gigabytes)) => Ok(Some((url.text(), gigabytes))),
        None => Err(TaskError::value(format!("Only one {what} is allowed.")).at(format!("$.{what}s"))),
    }
}

/// Whether a text is a duration in seconds as `termination_delay` takes it: `30`, `30s`, `5M`.
pub(crate) fn check_duration(text: &str, field: &str) -> Result<(), TaskError> {
    if seconds(text).is_some() {
        return Ok(());
    }
    Err(TaskError::value(format!(
        "Invalid time duration for {field}: {}. Expected format: NUMBER[s|m|h|d|w] (e.g., \"30s\", \"5m\", \"1h\")",
        quote(text)
    )))
}
