//! Recordings of SkyPilot's optimizer: which machine a task gets, what else was considered, and what it costs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use placement::place::USUAL_SECONDS;
use placement::{Block, Catalogue, Cloud, Market, Plan, Rules, Target, place};
use serde_json::{Map, Value as Json, json};
use sky::check::Surroundings;
use sky::place::{block, refusal, wanted};
use sky::{File, Given, Reader};

use super::{PathKind, text_of};

/// What came of a case.
pub enum Outcome {
    /// As recorded.
    Same,
    /// As recorded by SkyPilot's rules; by ours it differs, and COMPATIBILITY.md says why.
    OnPurpose(String),
    /// Otherwise than recorded.
    Differs(String),
}

/// Replays a case, by our rules and, where these give something else, by SkyPilot's.
pub fn replay(case: &Path, catalogue: &Catalogue) -> Result<Outcome> {
    let read = |name: &str| {
        fs::read_to_string(case.join(name)).with_context(|| format!("reading {}", case.join(name).display()))
    };
    let text = read("task.yaml")?;
    let options: Json = serde_json::from_str(&read("options.json")?)?;
    let expected: Json = serde_json::from_str(&read("expected.json")?)?;
    let ours = outcome(&text, &options, catalogue, Rules::Own);
    let Some(difference) = compare(&ours, &expected) else { return Ok(Outcome::Same) };
    let theirs = outcome(&text, &options, catalogue, Rules::SkyPilot);
    Ok(match compare(&theirs, &expected) {
        None => Outcome::OnPurpose(difference),
        Some(_) if is_better(&theirs, &expected, &options) => Outcome::OnPurpose(difference),
        Some(difference) => Outcome::Differs(difference),
    })
}

/// Whether a plan of the recorded candidates beats the recorded one: of equal plans SkyPilot takes the first that it comes upon, which
/// may hang on the hash seed.
fn is_better(got: &Json, expected: &Json, options: &Json) -> bool {
    let candidates = |plan: &Json| -> Option<Vec<Json>> {
        plan["tasks"].as_array()?.iter().map(|task| Some(json!(sorted(task["candidates"].as_array()?)))).collect()
    };
    let (Some(ours), Some(theirs)) = (candidates(got), candidates(expected)) else { return false };
    let same = differs(&json!(ours), &json!(theirs), "", &[]).is_none();
    let total = |plan: &Json, of: &str| plan[of].as_f64().unwrap_or(f64::INFINITY);
    let (first, second) = match options["minimize"] == "time" {
        true => ("total_seconds", "total_cost"),
        false => ("total_cost", "total_seconds"),
    };
    let less = |of: &str, margin: f64| total(got, of) < total(expected, of) + margin;
    same && less(first, 1e-6) && (less(first, -1e-6) || less(second, 1e-6))
}

/// What comes of a file, in the form of the recordings.
fn outcome(text: &str, options: &Json, catalogue: &Catalogue, rules: Rules) -> Json {
    match plan(text, options, catalogue, rules) {
        Ok((plan, names, target)) => told(&plan, &names, target, catalogue),
        Err(error) => json!({"error": {"class": error.class.name(), "message": error.message}}),
    }
}

type Placed = (Plan, Vec<Option<String>>, Target);

fn plan(text: &str, options: &Json, catalogue: &Catalogue, rules: Rules) -> Result<Placed, sky::TaskError> {
    let names = options["clouds"].as_array().cloned().unwrap_or_default();
    let enabled: Vec<Cloud> = names.iter().filter_map(|name| Cloud::from_name(name.as_str()?)).collect();
    let around = Surroundings {
        catalogue,
        enabled: &enabled,
        contexts: &[],
        ssh_pools: &[],
        slurm_clusters: &[],
        on_server: true,
        path: &|_| PathKind::Folder,
    };
    let mut file = File::read(text, &Given::default(), Reader::Client, catalogue)?;
    for task in &mut file.tasks {
        sky::check::check(task, &around)?;
    }
    let mut tasks = wanted(&file.tasks)?;
    for (task, wanted) in file.tasks.iter().zip(&mut tasks) {
        let hours = &options["hours"][task.name.as_deref().unwrap_or_default()];
        for (request, seconds) in &mut wanted.requests {
            let name = request.accelerator.as_ref().map_or("*", |(name, _)| name);
            let hours = hours[name].as_f64().or_else(|| hours["*"].as_f64());
            *seconds = hours.map_or(USUAL_SECONDS, |hours| hours * 3600.0);
        }
    }
    let blocked = blocks(&options["blocked"], &around)?;
    let market = Market { catalogue, enabled: &enabled, nodes: &[], blocked: &blocked, rules };
    let target = if options["minimize"] == "time" { Target::Time } else { Target::Cost };
    let names = file.tasks.iter().map(|task| task.name.clone()).collect();
    match place(&tasks, &market, target) {
        Ok(plan) => Ok((plan, names, target)),
        Err(error) => Err(refusal(&error, &file.tasks, &enabled)),
    }
}

/// Blocked resources, which are written as a task's resources are.
fn blocks(list: &Json, around: &Surroundings<'_>) -> Result<Vec<Block>, sky::TaskError> {
    let mut blocks = Vec::new();
    for one in list.as_array().into_iter().flatten() {
        let text = json!({"resources": one}).to_string();
        let file = File::read(&text, &Given::default(), Reader::Client, around.catalogue)?;
        for task in &file.tasks {
            for resources in &task.resources.list {
                let mut block = block(resources);
                if let (Some(cloud), Some(name), None) = (block.cloud, &block.instance_type, &block.accelerator) {
                    block.accelerator =
                        around.catalogue.machine(cloud, name).and_then(|offer| offer.accelerators.clone());
                }
                blocks.push(block);
            }
        }
    }
    Ok(blocks)
}

fn told(plan: &Plan, names: &[Option<String>], target: Target, catalogue: &Catalogue) -> Json {
    let number = |count: f64| if count.fract() == 0.0 { json!(count as i64) } else { json!(count) };
    let machine = |one: &placement::search::Candidate| {
        let accelerators = one.accelerator.as_ref().map(|(name, count)| json!({name.clone(): number(*count)}));
        json!({
            "accelerators": accelerators, "hourly_cost": one.hourly, "infra": one.infra(),
            "instance_type": one.instance_type, "use_spot": one.use_spot,
        })
    };
    let tasks: Vec<Json> = plan
        .tasks
        .iter()
        .zip(names)
        .map(|(task, name)| {
            let candidates: Vec<Json> = task
                .ranked
                .iter()
                .map(|ranked| {
                    let mut out = machine(&ranked.candidate);
                    match target {
                        Target::Cost => out["cost"] = json!(ranked.dollars),
                        Target::Time => out["time"] = json!(ranked.seconds),
                    }
                    out
                })
                .collect();
            let chosen = task.chosen().map(|ranked| &ranked.candidate);
            json!({
                "name": name, "candidates": candidates, "chosen": chosen.map(machine),
                "tries": chosen.map(|one| placement::search::tries(catalogue, one)),
            })
        })
        .collect();
    json!({"tasks": tasks, "total_cost": plan.dollars, "total_seconds": plan.seconds})
}

fn compare(got: &Json, expected: &Json) -> Option<String> {
    match (got.get("error"), expected.get("error")) {
        (Some(got), Some(expected)) => {
            let same = got["class"] == expected["class"]
                && expected.get("message").is_none_or(|message| {
                    got["message"] == *message
                        // told at once here: where the file is written as well, SkyPilot says the same
                        || text_of(&got["message"]).starts_with("No instance type ")
                            && text_of(message).starts_with("Invalid instance type ")
                });
            (!same).then(|| format!("error {got} instead of {expected}"))
        }
        (Some(got), None) if expected.get("tasks").is_some() => Some(format!("error {got} instead of a plan")),
        (None, Some(expected)) => Some(format!("a plan instead of {expected}")),
        _ => {
            let unsteady: Vec<&str> =
                expected["not_steady"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
            let expected: Map<String, Json> =
                expected.as_object()?.iter().filter(|(key, _)| *key != "not_steady").map(own).collect();
            expected.iter().find_map(|(key, value)| differs(&got[key], value, &format!("/{key}"), &unsteady))
        }
    }
}

fn own((key, value): (&String, &Json)) -> (String, Json) {
    (key.clone(), value.clone())
}

/// How a value differs from the recorded one; what is not recorded is not compared.
fn differs(got: &Json, expected: &Json, at: &str, unsteady: &[&str]) -> Option<String> {
    let told = || Some(format!("{at}: {} instead of {}", short(got), short(expected)));
    match (got, expected) {
        (Json::Number(got), Json::Number(expected)) => {
            let (got, expected) = (got.as_f64()?, expected.as_f64()?);
            if (got - expected).abs() > 1e-6 { told() } else { None }
        }
        // what differs with the hash seed is left out, and an empty mapping may be all that is left
        (_, Json::Object(fields)) if fields.is_empty() && !unsteady.is_empty() => None,
        (Json::Object(_), Json::Object(fields)) => {
            if at.ends_with("accelerators") && got != expected {
                return told();
            }
            // ours has no number of nodes
            fields
                .iter()
                .filter(|(key, _)| *key != "nodes")
                .find_map(|(key, value)| differs(&got[key], value, &format!("{at}/{key}"), unsteady))
        }
        (Json::Array(got), Json::Array(expected)) => {
            let (got, expected) = if at.ends_with("candidates") {
                (sorted(got), sorted(expected))
            } else {
                (got.clone(), expected.clone())
            };
            if got.len() != expected.len() {
                return Some(format!("{at}: {} of them instead of {}", got.len(), expected.len()));
            }
            got.iter()
                .zip(&expected)
                .enumerate()
                .find_map(|(index, (got, expected))| differs(got, expected, &format!("{at}/{index}"), unsteady))
        }
        _ if got == expected => None,
        _ => told(),
    }
}

fn sorted(list: &[Json]) -> Vec<Json> {
    let key = |one: &Json| {
        let text = |field: &str| one[field].to_string();
        (text("infra"), text("instance_type"), text("accelerators"), text("use_spot"))
    };
    let mut list = list.to_vec();
    // one machine may stand for several descriptions, with other hours
    let objective = |one: &Json| one["time"].as_f64().or(one["cost"].as_f64()).unwrap_or(0.0);
    list.sort_by(|a, b| key(a).cmp(&key(b)).then(objective(a).total_cmp(&objective(b))));
    list
}

fn short(value: &Json) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", text_of(&json!(text.get(..end).unwrap_or_default()))),
        None => text,
    }
}
