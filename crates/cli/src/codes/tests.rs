//! The pages of docs/errors and the catalogue are held to each other.
//!
//! Of a reason's page, "Why" is written by hand; all else comes from the catalogue, the advice and the cases of `diagnose`.
//! `UPDATE=1 cargo test -p cli codes` writes it, and the index.

use super::*;
use client::codes::{all, is_code};
use diagnose::{Diagnosis, Facts, Reason, State, diagnose, remedies_of, said_of};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn is_update() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// Compares a file with what it has to be, or writes it.
fn hold(file: &Path, text: &str) {
    if is_update() {
        std::fs::write(file, text).expect("the file can be written");
    }
    let there = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        there == text,
        "{} is not what the catalogue says; UPDATE=1 cargo test -p cli codes writes it",
        file.display()
    );
}

/// The text below a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let after = page.split_once(&format!("\n## {heading}\n")).map_or("", |(_, after)| after);
    after.split("\n## ").next().unwrap_or_default().trim()
}

#[test]
fn codes_are_numbered_by_area() {
    let mut seen = BTreeSet::new();
    for (title, entries) in all() {
        let blocks: BTreeSet<&str> = entries.iter().map(|entry| &entry.code[..4]).collect();
        assert_eq!(blocks.len(), 1, "{title} has more than one block of numbers: {blocks:?}");
        for entry in entries {
            let number = entry.code.strip_prefix("TY").expect("TY");
            assert!(number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit()), "{}", entry.code);
            assert!(seen.insert(entry.code), "{} is there twice", entry.code);
            assert!(seen.insert(entry.name), "{} is there twice", entry.name);
        }
    }
}

#[test]
fn each_page_says_what_happened_why_and_what_to_do() {
    for entry in entries() {
        let Entry { code, name, meaning, page } = entry;
        assert!(page.starts_with(&format!("# {code}: {name}\n\n{meaning}\n\n## Why\n")), "{code}: {page}");
        for heading in ["Why", "What to do", "Example"] {
            assert!(!section(page, heading).is_empty(), "docs/errors/{code}.md says nothing under {heading}");
        }
        let example = section(page, "Example");
        assert!(
            example.starts_with("```text\n$ trainyard ") || example.starts_with("```text\n$ env "),
            "{code}: {example}"
        );
        assert!(example.contains(code), "the example of {code} does not show the code");
    }
}

#[test]
fn each_page_has_a_code() {
    let codes: BTreeSet<String> = entries().map(|entry| format!("{}.md", entry.code)).collect();
    let files = std::fs::read_dir(root().join("docs/errors")).expect("docs/errors");
    let files: BTreeSet<String> = files
        .map(|file| file.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(files, codes);
}

#[test]
fn the_index_lists_all_codes() {
    let mut text = String::from(
        "# Errors and reasons\n\nEach error that trainyard prints, each finding of `trainyard doctor` and each reason of `trainyard explain JOB` has a \
         code. A code keeps its meaning for ever. `trainyard explain CODE` prints the page; `-o json` of `explain`, `describe` and `doctor` has the \
         code as `code`.\n\nThis list is written by the tests of `crates/cli` (`UPDATE=1 cargo test -p cli codes`).\n",
    );
    for (title, entries) in all() {
        text += &format!("\n## {title}\n\n| code | name | what it means |\n|---|---|---|\n");
        for Entry { code, name, meaning, .. } in entries {
            text += &format!("| [{code}]({code}.md) | {name} | {meaning} |\n");
        }
    }
    hold(&root().join("docs/errors/README.md"), &text);
}

/// The cases of `diagnose`, by reason: the one that is called like the reason, else the first.
fn cases() -> BTreeMap<&'static str, Diagnosis> {
    let folder = root().join("crates/diagnose/testdata");
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("testdata").map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    let mut cases: BTreeMap<&'static str, (bool, Diagnosis)> = BTreeMap::new();
    for folder in folders {
        let diagnosis = diagnose(&facts(&folder.join("input.yaml")));
        let name = folder.file_name().expect("a name").to_string_lossy().replace('-', "");
        let same = name.eq_ignore_ascii_case(diagnosis.reason.as_str());
        match cases.get(diagnosis.reason.as_str()) {
            Some((held, _)) if *held || !same => {}
            _ => _ = cases.insert(diagnosis.reason.as_str(), (same, diagnosis)),
        }
    }
    cases.into_iter().map(|(reason, (_, diagnosis))| (reason, diagnosis)).collect()
}

fn facts(input: &Path) -> Facts {
    let text = std::fs::read_to_string(input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    let mut value: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
    for tail in value.get_mut("logs").and_then(Value::as_array_mut).into_iter().flatten() {
        let tail = tail.as_object_mut().expect("a log is a map");
        let rank = tail.remove("rank").unwrap_or(Value::Null);
        if let Some(Value::String(log)) = tail.remove("log") {
            let lines: Vec<Value> = log.lines().map(|text| json!({"rank": rank, "text": text})).collect();
            tail.insert("lines".to_owned(), lines.into());
        }
    }
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", input.display()))
}

/// In which state a job of the group is, where no case shows it.
fn state(group: &str, reason: Reason) -> State {
    match (reason, group) {
        (Reason::Complete, _) => State::Complete,
        (Reason::Suspended, _) => State::Suspended,
        (Reason::Running, _) => State::Running,
        (Reason::RetryWaiting, _) => State::Restarting,
        (Reason::Slow, _) => State::Slow,
        (Reason::Stuck, _) => State::Stuck,
        (
            _,
            "Nothing is wrong" | "Pods that are not made" | "Pods that are not placed" | "Containers that do not start",
        ) => State::Pending,
        _ => State::Failed,
    }
}

#[test]
fn pages_of_reasons_say_what_explain_says() {
    let cases = cases();
    let unknown: Facts = serde_json::from_value(json!({"job": {"metadata": {"name": "train", "namespace": "default"}},
        "home": {"local": true}}))
    .expect("facts");
    for (group, reasons) in Reason::groups() {
        for reason in reasons {
            let (code, name, meaning) = (reason.code(), reason.as_str(), reason.meaning());
            let file = root().join(format!("docs/errors/{code}.md"));
            let why = section(reason.page(), "Why");
            let mut page = format!("# {code}: {name}\n\n{meaning}\n\n## Why\n\n{why}\n\n## What to do\n\n");
            let remedies = remedies_of(reason);
            for (text, command) in &remedies {
                match command {
                    Some(command) => {
                        page += &format!("- {} `{command}`\n", text.trim_end_matches('.').to_owned() + ":")
                    }
                    None => page += &format!("- {text}\n"),
                }
            }
            if remedies.is_empty() {
                page += match reason {
                    Reason::Complete | Reason::Running | Reason::Starting => "Nothing.\n",
                    _ => "- Type the commands that `trainyard explain JOB` prints for the job.\n",
                };
            }
            let diagnosis = match cases.get(name) {
                Some(diagnosis) => diagnosis.clone(),
                None => said_of(reason, state(group, reason), &unknown),
            };
            page += &format!(
                "\n## Example\n\n```text\n$ trainyard explain train\n{}```\n",
                view::explained::text("train", &diagnosis)
            );
            hold(&file, &page);
        }
    }
}

#[test]
fn a_job_is_not_taken_for_a_code() {
    assert!(is_code("TY0101") && is_code("TY99") && is_code("CudaOutOfMemory"));
    assert!(!is_code("ty0101") && !is_code("train") && !is_code("complete"));
}
