//! Services and pools against recordings: how many replicas there are, and where spot machines are.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use api::sky::{ReplicaState, UpdateMode};
use managed::autoscale::{Demanded, Member, Scaler, Scaling, ScalingRules};
use managed::spot::{self, Zone};
use serde_json::{Value as Json, json};

use super::jobs::{Found, cases, read};
use super::text_of;

fn whole(value: &Json) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is no whole number"))
}

fn small(value: &Json) -> Result<u32> {
    Ok(u32::try_from(whole(value)?)?)
}

fn member(recorded: &Json) -> Result<Member> {
    let state = text_of(&recorded["status"]);
    Ok(Member {
        number: small(&recorded["id"])?,
        version: small(&recorded["version"])?,
        state: ReplicaState::parse(&state).with_context(|| format!("there is no state {state}"))?,
        is_spot: recorded["spot"].as_bool().unwrap_or(false),
        gpu: recorded["gpu"].as_str().unwrap_or_default().to_owned(),
        jobs: recorded["jobs"].as_u64().unwrap_or(0),
        is_fatal: recorded["unrecoverable"].as_bool().unwrap_or(false),
    })
}

fn load(step: &Json) -> Result<Demanded> {
    Ok(match step.get("pending") {
        Some(pending) => Demanded::Waiting(whole(pending)?),
        None => Demanded::Requests(whole(&step["in_window"])?),
    })
}

fn decision(change: Scaling) -> Json {
    match change {
        Scaling::Add(None) => json!(["scale_up", null]),
        Scaling::Add(Some(is_spot)) => json!(["scale_up", {"use_spot": is_spot}]),
        Scaling::End(number) => json!(["scale_down", number]),
    }
}

/// The first step that differs.
fn scaled(case: &Json) -> Result<Option<String>> {
    let mut scaler = Scaler::new(ScalingRules::of(&case["service"]), 1);
    let mut before = Demanded::Requests(0);
    for step in case["steps"].as_array().context("a case has steps")? {
        if let Some(update) = step.get("update") {
            let mode = if update["mode"] == "blue_green" { UpdateMode::BlueGreen } else { UpdateMode::Rolling };
            scaler.update(ScalingRules::of(&update["service"]), small(&update["version"])?, mode, before);
            if json!(scaler.memory.target) != update["target"] {
                return Ok(Some(format!("{}: target {} after the update {update}", step["at"], scaler.memory.target)));
            }
        }
        let members: Vec<Member> =
            step["replicas"].as_array().into_iter().flatten().map(member).collect::<Result<_>>()?;
        let active: Vec<u32> =
            step["active_versions"].as_array().into_iter().flatten().map(small).collect::<Result<_>>()?;
        let load = load(step)?;
        before = load;
        scaler.note_ready(&members);
        let mut decisions = Vec::new();
        if !scaler.is_stuck(&members) {
            decisions.extend(scaler.outdated(&members, &active).into_iter().map(Scaling::End));
            scaler.look(load, &members);
            decisions.extend(scaler.changes(&members));
        }
        let got = json!({
            "decisions": decisions.into_iter().map(decision).collect::<Vec<_>>(),
            "target": scaler.memory.target, "next_in": scaler.interval(),
        });
        for name in ["decisions", "target", "next_in"] {
            if got[name] != step[name] {
                return Ok(Some(format!("at {}: {name} {} instead of {}", step["at"], got[name], step[name])));
            }
        }
    }
    Ok(None)
}

/// Replays `autoscaler.json`.
pub fn autoscaler(path: &Path) -> Result<Found> {
    let recorded = read(path)?;
    cases(&recorded).map(|case| Ok((text_of(&case["name"]), scaled(case)?))).collect()
}

/// The first operation that differs.
fn placed(case: &Json) -> Option<String> {
    let zones: Vec<Zone> = case["locations"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| Zone { place: text_of(&one["zone"]), hourly: one["hourly"].as_f64().unwrap_or(0.0) })
        .collect();
    let mut preempted = BTreeSet::new();
    let active = |preempted: &BTreeSet<String>| -> Json {
        let all: BTreeSet<&String> =
            zones.iter().map(|zone| &zone.place).filter(|place| !preempted.contains(*place)).collect();
        json!(all)
    };
    for op in case["ops"].as_array().into_iter().flatten() {
        let zone = text_of(&op["zone"]);
        let got = match op["op"].as_str() {
            Some("next") => {
                let used: Vec<String> = op["used"].as_array().into_iter().flatten().map(text_of).collect();
                let next = spot::next(&zones, &preempted, &used).map(|zone| zone.place.clone());
                (next.as_deref() != Some(zone.as_str())).then(|| format!("{op}: {next:?}"))
            }
            Some("preempted") => {
                spot::note_preempted(&zones, &mut preempted, &zone);
                (active(&preempted) != op["active"]).then(|| format!("{op}: {}", active(&preempted)))
            }
            Some("active") => {
                preempted.remove(&zone);
                (active(&preempted) != op["active"]).then(|| format!("{op}: {}", active(&preempted)))
            }
            Some("ended") => None,
            _ => Some(format!("there is no operation {op}")),
        };
        if got.is_some() {
            return got;
        }
    }
    None
}

/// Replays `spot-placer.json`.
pub fn spot_placer(path: &Path) -> Result<Found> {
    let recorded = read(path)?;
    Ok(cases(&recorded).map(|case| (text_of(&case["name"]), placed(case))).collect())
}
