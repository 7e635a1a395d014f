//! Random options over random task files: the task that `launch` and `exec` make of them, or what they say instead.

use placement::{Catalogue, Cloud};
use serde_json::{Value as Json, json};
use sky::commands::{Parsed, commands, parse};
use sky::console::{Prepared, Printed, World, prepared};
use sky::value::Value;

use super::{CRASHES, NUMBERS, PathKind, sorted, text_of};

/// How a case differs from its recording.
pub fn replay(case: &Json, words: &[String], catalogue: &Catalogue) -> Option<String> {
    let files = case["files"].as_object().cloned().unwrap_or_default();
    let path = |path: &str| match path {
        "." => PathKind::Folder,
        path if files.contains_key(path) => PathKind::File,
        path if files.keys().any(|file| file.starts_with(&format!("{path}/"))) => PathKind::Folder,
        _ => PathKind::Missing,
    };
    let world = World {
        catalogue,
        catalogue_folder: "",
        enabled: &[Cloud::Aws, Cloud::Gcp, Cloud::Azure, Cloud::Lambda, Cloud::RunPod],
        makes: &[],
        nodes: &[],
        pools: &[],
        contexts: &[],
        unusable: &[],
        read: &|path| files.get(path).map(text_of).ok_or_else(|| "there is no such file".to_owned()),
        path: &path,
        variable: &|name| (name == "SET").then(|| "here".to_owned()),
        cluster: "",
    };
    let said = |printed: Printed| match printed.code {
        2 => ("usage", json!(printed.err.trim_end())),
        _ if printed.err.starts_with("Aborted!") => ("aborted", json!(true)),
        _ => ("error", json!(printed.err.trim_end().trim_start_matches("sky.exceptions."))),
    };
    let (told, (kind, got)) = match parse(&commands(), words) {
        Ok(Parsed::Call(call)) => match prepared(&call, &world) {
            Ok(Prepared { task, told }) => (told, ("task", sorted(Value::Map(task.write(catalogue)).to_json()))),
            Err(printed) => (printed.out.clone(), said(printed)),
        },
        Ok(_) => return Some("help".to_owned()),
        Err(error) => (String::new(), ("usage", json!(error.to_string()))),
    };
    let (wanted_kind, wanted) = ["task", "error", "usage", "aborted"].into_iter().find_map(|kind| {
        let wanted = case.get(kind)?;
        Some(match kind {
            "task" => (kind, sorted(wanted.clone())),
            "error" => {
                (kind, json!(format!("{}: {}", text_of(&wanted["class"]), text_of(&wanted["message"])).trim_end()))
            }
            "usage" => (kind, json!(text_of(wanted).trim_end())),
            _ => (kind, wanted.clone()),
        })
    })?;
    let (class, message) = (text_of(&case["error"]["class"]), text_of(&case["error"]["message"]));
    let crashed = CRASHES.contains(&class.as_str()) || NUMBERS.iter().any(|start| message.starts_with(start));
    if crashed {
        let meant = class == "JSONDecodeError"
            || ["Invalid task args: ", "cloud must be specified"].iter().any(|start| message.starts_with(start));
        return (kind == "task" && !meant).then(|| format!("a task instead of {wanted}"));
    }
    if (kind, &got) != (wanted_kind, &wanted) {
        return Some(format!("{kind} {got} instead of {wanted_kind} {wanted}"));
    }
    // what is asked is on the standard output there
    let (told, wanted) = (told.trim_end(), text_of(&case["told"]));
    (told != wanted.trim_end() && kind != "aborted").then(|| format!("told {told:?} instead of {wanted:?}"))
}
