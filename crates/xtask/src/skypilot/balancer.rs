//! The choice of a replica for each request against recordings.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use balance::{Picker, Policy, capacity_of};
use serde_json::Value as Json;

use super::text_of;

/// Replays `balancer.json`: each case, and how it differs.
pub fn replay(path: &Path) -> Result<Vec<(String, Option<String>)>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let recorded: Json = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let cases = recorded["cases"].as_array().context("there are no cases")?;
    cases.iter().map(|case| Ok((text_of(&case["name"]), difference(case)?))).collect()
}

/// The first request that another replica gets.
fn difference(case: &Json) -> Result<Option<String>> {
    let policy = text_of(&case["policy"]);
    let mut picker = Picker::new(Policy::parse(&policy).with_context(|| format!("there is no policy {policy}"))?);
    let mut given: BTreeMap<u64, &str> = BTreeMap::new();
    let mut info = &Json::Null;
    for op in case["ops"].as_array().into_iter().flatten() {
        let id = op["id"].as_u64().unwrap_or_default();
        match op["op"].as_str() {
            Some("info") => info = op,
            Some("ready") => picker.set_ready(ready(op, info)),
            Some("request") => {
                let got = picker.pick(|_| false);
                if got != op["replica"].as_str() {
                    return Ok(Some(format!("request {id} to {got:?} instead of {}", op["replica"])));
                }
                given.extend(got.map(|got| (id, got)));
            }
            Some("done") => {
                if let Some(replica) = given.remove(&id) {
                    picker.done(&replica);
                }
            }
            _ => bail!("an unknown step: {op}"),
        }
    }
    Ok(None)
}

/// The ready replicas with their capacities.
fn ready<'a>(op: &'a Json, info: &Json) -> Vec<(&'a str, Option<f64>)> {
    let targets = info["target_qps"].as_object().into_iter().flatten();
    let targets: Vec<(&str, f64)> = targets.filter_map(|(gpu, rate)| Some((gpu.as_str(), rate.as_f64()?))).collect();
    let replicas = op["replicas"].as_array().into_iter().flatten().filter_map(Json::as_str);
    let gpu = |replica: &str| info["replicas"][replica]["gpu_type"].as_str().unwrap_or_default();
    replicas.map(|replica| (replica, capacity_of(gpu(replica), targets.iter().copied()))).collect()
}
