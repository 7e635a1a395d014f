//! The recorded grammar of SkyPilot's command line against ours.

use serde_json::{Value as Json, json};
use sky::commands::{Command, Kind, Param, commands};

/// How each recorded command differs from ours.
pub fn replay(recorded: &Json) -> Vec<(String, Option<String>)> {
    let ours = commands();
    let cases = recorded["cases"].as_array().cloned().unwrap_or_default();
    cases
        .iter()
        .map(|case| {
            let path = case["command"].as_str().unwrap_or_default();
            let difference = match ours.iter().find(|command| command.path == path && !command.ours) {
                None => Some("there is no such command".to_owned()),
                Some(command) => differs(command, case),
            };
            (path.to_owned(), difference)
        })
        .collect()
}

fn differs(command: &Command, case: &Json) -> Option<String> {
    let told = json!({"hidden": command.hidden, "group": command.group, "deprecated": command.deprecated});
    if let Some((key, value)) = told.as_object()?.iter().find(|(key, value)| case[*key] != **value) {
        return Some(format!("{key} is {value} instead of {}", case[key]));
    }
    let ours: Vec<Json> = command.params.iter().filter(|param| !param.ours).map(written).collect();
    let theirs = case["params"].as_array()?;
    let longest = ours.len().max(theirs.len());
    (0..longest).find_map(|at| {
        let (ours, theirs) = (ours.get(at), theirs.get(at));
        (ours != theirs).then(|| format!("parameter {at} is {ours:?} instead of {theirs:?}"))
    })
}

/// A parameter in the form of the recording.
fn written(param: &Param) -> Json {
    let kind = match &param.kind {
        Kind::Boolean => json!("boolean"),
        Kind::Float => json!("float"),
        Kind::Integer(name) if name == "integer-range" => json!("integer range"),
        Kind::Integer(name) | Kind::Text(name) => json!(name),
        Kind::Choice(list) => json!({ "choice": list }),
    };
    let mut out = json!({"name": param.name, "type": kind, "required": param.required});
    if param.is_argument() {
        out["kind"] = json!("argument");
        out["nargs"] = json!(if param.many { -1 } else { 1 });
        return out;
    }
    out["kind"] = json!("option");
    out["opts"] = json!(param.opts);
    out["off"] = json!(param.off);
    out["flag"] = json!(param.flag);
    out["multiple"] = json!(param.many);
    out["hidden"] = json!(param.hidden);
    if let Some(default) = &param.default {
        let number = default.parse::<i64>().ok().filter(|_| matches!(param.kind, Kind::Integer(_)));
        out["default"] = match default.as_str() {
            "true" => json!(true),
            "false" => json!(false),
            text => number.map_or_else(|| json!(text), Json::from),
        };
    }
    out
}
