//! What a task serves: replicas behind a load balancer (`service`), or a pool of workers (`pool`).

use crate::error::TaskError;
use crate::schema::{self, Reader};
use crate::shapes::shape;
use crate::value::{Map, Value};

/// Seconds before a replica that is not ready counts as failed.
const INITIAL_DELAY: i128 = 1200;
/// Seconds that a probe may take.
const PROBE_TIMEOUT: i128 = 15;
/// Seconds between probes.
const PROBE_INTERVAL: f64 = 10.0;
/// Seconds that a stream through the load balancer may be silent.
const STREAM_TIMEOUT: f64 = 120.0;

/// Reads `service` and gives it as a file for the server has it.
///
/// # Errors
/// For what is no service.
pub fn service(config: Map, reader: Reader) -> Result<Map, TaskError> {
    check(&config, reader, "$.service")?;
    let pool = config.given("pool").and_then(Value::as_map).cloned();
    if config.contains("replicas") && config.contains("replica_policy") {
        return Err(TaskError::value(
            "Cannot specify both `replicas` and `replica_policy` in the service YAML. Please use one of them.",
        ));
    }
    let probe = Probe::read(config.get("readiness_probe"))?;
    let ports = config.given("ports").and_then(Value::as_number);
    if ports.is_some_and(|port| !(1.0..=65535.0).contains(&port)) {
        return Err(TaskError::value("Port must be between 1 and 65535.").at("$.service.ports"));
    }
    let policy = config.given("replica_policy").and_then(Value::as_map).cloned();
    let (replicas, workers) = (config.given("replicas").cloned(), config.given("workers").cloned());
    if policy.is_some() && pool.as_ref().is_some_and(|pool| !pool.is_empty()) {
        return Err(TaskError::value(
            "Cannot specify `replica_policy` for cluster pool. Only `workers: <num>` or `min_workers: <num> max_workers: <num>` is supported for pool now.",
        ));
    }
    if replicas.is_some() && workers.is_some() {
        return Err(TaskError::value("Cannot specify both `replicas` and `workers`. Please use one of them."));
    }
    if let Some(pool) = pool {
        return worker_pool(pool, replicas.or(workers));
    }
    let policy = match (policy, replicas.or(workers)) {
        (Some(policy), None) => policy,
        (_, fixed) => Map::from_iter([("min_replicas", fixed.unwrap_or(Value::Int(1)))]),
    };
    let balancing = config.given("load_balancing_policy").cloned();
    check_policy(&policy, balancing.as_ref())?;
    if !probe.path.starts_with('/') {
        return Err(TaskError::value(format!("readiness_path must start with a slash (/). Got: {}", probe.path))
            .at("$.service.readiness_probe"));
    }
    if let Some(name) = balancing.as_ref().map(Value::text).filter(|name| !LOAD_BALANCING.contains(&name.as_str())) {
        return Err(TaskError::value(format!(
            "Unknown load balancing policy: {name}. Available policies: {}",
            crate::value::quote_all(LOAD_BALANCING)
        )));
    }
    let mut out = Map::from_iter([("readiness_probe", probe.write())]);
    let stream = config
        .get("load_balancer")
        .and_then(Value::as_map)
        .and_then(|balancer| balancer.given("stream_timeout_seconds"))
        .cloned();
    if let Some(seconds) = stream.filter(|seconds| seconds.as_number() != Some(STREAM_TIMEOUT)) {
        out.insert("load_balancer", Map::from_iter([("stream_timeout_seconds", seconds)]));
    }
    out.insert("replica_policy", policy.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map>());
    out.insert_some("load_balancing_policy", balancing);
    #[expect(clippy::cast_possible_truncation, reason = "a port, checked above")]
    out.insert_some("ports", ports.map(|port| Value::Int(port as i128)));
    out.insert_some("tls", config.given("tls").cloned());
    Ok(out)
}

/// Ways to choose a replica for a request.
const LOAD_BALANCING: [&str; 3] = ["round_robin", "least_load", "instance_aware_least_load"];

/// Reads `pool` and gives it as a file for the server has it: in `service`.
///
/// # Errors
/// For what is no pool.
pub fn pool(config: Map, reader: Reader) -> Result<Map, TaskError> {
    check(&Map::from_iter([("pool", config.clone())]), reader, "$")?;
    worker_pool(config, None)
}

fn check(config: &Map, reader: Reader, below: &str) -> Result<(), TaskError> {
    // SkyPilot passes over keys without a value, those that it does not know as well
    schema::check_given(config, shape("service"), reader)
        .map_err(|refusal| TaskError::refused(refusal, "Invalid service YAML: ", below))
}

/// The readiness probe, with defaults.
struct Probe {
    path: String,
    section: Map,
}

impl Probe {
    fn read(section: Option<&Value>) -> Result<Self, TaskError> {
        let section = match section {
            Some(Value::Map(section)) => section.clone(),
            Some(Value::Str(path)) => Map::from_iter([("path", path.as_str())]),
            _ => Map::from_iter([("path", "/")]),
        };
        let path = section.get("path").map(Value::text).unwrap_or_default();
        Ok(Self { path, section: with_json_body(section)? })
    }

    fn write(self) -> Map {
        let given = |key: &str| self.section.given(key).cloned();
        let mut out = Map::from_iter([
            ("path", Value::Str(self.path.clone())),
            ("initial_delay_seconds", given("initial_delay_seconds").unwrap_or(Value::Int(INITIAL_DELAY))),
        ]);
        out.insert_some("post_data", given("post_data"));
        out.insert("timeout_seconds", given("timeout_seconds").unwrap_or(Value::Int(PROBE_TIMEOUT)));
        let interval =
            given("endpoint_probe_interval_seconds").filter(|seconds| seconds.as_number() != Some(PROBE_INTERVAL));
        out.insert_some("endpoint_probe_interval_seconds", interval);
        out.insert_some("consecutive_failure_threshold_timeout", given("consecutive_failure_threshold_timeout"));
        out.insert_some("headers", given("headers"));
        out
    }
}

/// A body that is a text is JSON.
fn with_json_body(mut section: Map) -> Result<Map, TaskError> {
    if let Some(Value::Str(text)) = section.get("post_data") {
        let parsed: serde_json::Value = serde_json::from_str(text).map_err(|_| {
            TaskError::value(
                "Invalid JSON string for `post_data` in the `readiness_probe` section of your service YAML.",
            )
            .at("$.service.readiness_probe.post_data")
        })?;
        section.insert("post_data", from_json(&parsed));
    }
    Ok(section)
}

/// JSON as a value.
pub(crate) fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| Value::Float(number.as_f64().unwrap_or(f64::NAN)), |whole| Value::Int(whole.into())),
        Json::String(text) => Value::Str(text.clone()),
        Json::Array(list) => Value::List(list.iter().map(from_json).collect()),
        Json::Object(map) => Value::Map(map.iter().map(|(key, value)| (key.clone(), from_json(value))).collect()),
    }
}

/// What a policy's numbers must be to one another.
fn check_policy(policy: &Map, balancing: Option<&Value>) -> Result<(), TaskError> {
    let number = |key: &str| policy.given(key).and_then(Value::as_number);
    let qps = policy.given("target_qps_per_replica");
    let by_instance = balancing.and_then(Value::as_str) == Some("instance_aware_least_load");
    match qps {
        Some(Value::Map(_)) if !by_instance => {
            return Err(TaskError::value(
                "When using dict type target_qps_per_replica, load_balancing_policy must be \"instance_aware_least_load\".",
            ));
        }
        Some(Value::Map(_)) => {}
        _ if by_instance => {
            return Err(TaskError::value(
                "When using \"instance_aware_least_load\" policy, target_qps_per_replica must be a dict mapping GPU types to QPS values.",
            ));
        }
        _ => {}
    }
    let (least, most) = (number("min_replicas").unwrap_or(1.0), number("max_replicas"));
    let message = match (most, qps) {
        (Some(most), _) if most < least => format!(
            "max_replicas must be greater than or equal to min_replicas. Found: min_replicas={}, max_replicas={}",
            policy.get("min_replicas").map(Value::text).unwrap_or_default(),
            policy.get("max_replicas").map(Value::text).unwrap_or_default()
        ),
        (None, Some(_)) => "max_replicas must be set where target_qps_per_replica is set.".to_owned(),
        #[expect(clippy::float_cmp, reason = "both are whole numbers of a file")]
        (Some(most), None) if most != least => {
            "Detected different min_replicas and max_replicas while target_qps_per_replica is not set. To enable autoscaling, please set target_qps_per_replica.".to_owned()
        }
        _ => return Ok(()),
    };
    Err(TaskError::value(message).at("$.service.replica_policy"))
}

fn worker_pool(pool: Map, fixed: Option<Value>) -> Result<Map, TaskError> {
    let (least, most, queue) =
        (pool.given("min_workers"), pool.given("max_workers"), pool.given("queue_length_threshold"));
    let workers = pool.given("workers").cloned().or(fixed);
    let refuse = |message: &str| Err(TaskError::value(message).at("$.pool"));
    if least.is_none() && most.is_none() && workers.is_none() {
        return refuse("One of workers, or both min_workers and max_workers must be set for pool autoscaling.");
    }
    if queue.is_some() && most.is_none() {
        return refuse("max_workers must be set when queue_length_threshold is specified for pool autoscaling.");
    }
    if least.is_some() && most.is_none() {
        return refuse("max_workers must be set when min_workers is specified for pool autoscaling.");
    }
    let number = |value: Option<&Value>| value.and_then(Value::as_number);
    if let (Some(least), Some(most)) = (least, most)
        && number(Some(least)) > number(Some(most))
    {
        return refuse(&format!(
            "min_workers ({}) must be <= max_workers ({}) for pool autoscaling.",
            least.text(),
            most.text()
        ));
    }
    let mut out = pool.clone();
    let Some(most) = most else {
        // a pool of a fixed size has nothing to wait for before it grows
        if let Some(delay) =
            ["upscale_delay_seconds", "downscale_delay_seconds"].into_iter().find(|key| pool.given(key).is_some())
        {
            return refuse(&format!("{delay} is not supported for pool."));
        }
        out.insert_some("workers", workers);
        return Ok(Map::from_iter([("pool", out)]));
    };
    let least = least.cloned().or(workers).unwrap_or(Value::Int(1));
    if number(Some(most)) < number(Some(&least)) {
        return refuse(&format!(
            "max_replicas must be greater than or equal to min_replicas. Found: min_replicas={}, max_replicas={}",
            least.text(),
            most.text()
        ));
    }
    out.insert("min_workers", least);
    out.insert("queue_length_threshold", queue.cloned().unwrap_or(Value::Int(1)));
    Ok(Map::from_iter([("pool", out)]))
}
