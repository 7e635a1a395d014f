//! Random options over random task files: the task that `launch` and `exec` make of them, or what they say instead.

use placement::Catalogue;
use serde_json::{Value as Json, json};
use sky::commands::{Parsed, commands, parse};
use sky::console::{Circumstances, Prepared, Printed, prepared};
use sky::value::Value;

use super::{PathKind, file_of, is_crash, kind_of, sorted, text_of, world};

/// How a case differs from its recording.
pub fn replay(case: &Json, words: &[String], catalogue: &Catalogue) -> Option<String> {
    let files = case["files"].as_object().cloned().unwrap_or_default();
    let path = |path: &str| match path {
        "." => PathKind::Folder,
        path => kind_of(&files, path),
    };
    let around = Circumstances {
        read: &|path| file_of(&files, path),
        path: &path,
        variable: &|name| (name == "SET").then(|| "here".to_owned()),
        ..world(catalogue)
    };
    let said = |printed: Printed| match printed.code {
        2 => ("usage", json!(printed.err.trim_end())),
        _ if printed.err.starts_with("Aborted!") => ("aborted", json!(true)),
        _ => ("error", json!(printed.err.trim_end().trim_start_matches("sky.exceptions."))),
    };
    let (told, (kind, got)) = match parse(&commands(), words) {
        Ok(Parsed::Call(call)) => match prepared(&call, &around) {
            Ok(Prepared { task, told, .. }) => (told, ("task", sorted(Value::Map(task.write(catalogue)).to_json()))),
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
    if is_crash(&class, &message) {
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
