//! `cargo xtask tidy`: checks the rules of the repository.
//!
//! Every rule reads facts (`cargo metadata`, files that git knows) and returns its findings as lines. All rules run, so
//! that one run shows all findings.

mod crates;
mod metrics;
mod names;
mod source;

use crate::documents::{self, Facts};
use crate::errors;
use crate::licences;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use source::{code, is_test_file};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Runs all rules.
pub fn run(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let files = tracked_files(root)?;
    // read once for all rules; files that are not text are skipped
    let texts: Vec<(&str, String)> =
        files.iter().filter_map(|file| Some((file.as_str(), std::fs::read_to_string(root.join(file)).ok()?))).collect();
    let mut findings = crates::arrows(&metadata)?;
    findings.extend(crates::purity(&metadata)?);
    findings.extend(licences::check(&metadata, &read(root, "Cargo.lock")?)?);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = ["tree", "--package", "trainyard", "--edges", "normal", "--prefix", "none", "--format", "{p}: {f}"];
    findings.extend(crates::for_tests_only(&output(root, &cargo, &tree)?));
    findings.extend(architecture(root)?);
    findings.extend(documents(root, &metadata, &files, &texts)?);
    findings.extend(crates::unused(&metadata, &texts));
    findings.extend(crates::lints(&texts));
    findings.extend(names::more(&texts));
    findings.extend(metrics::listed(&read(root, metrics::PAGE)?));
    let mut long = Vec::new();
    for (file, text) in &texts {
        findings.extend(source::registries(file, text));
        findings.extend(source::unreadable(file, text));
        if file.ends_with(".rs") {
            findings.extend(source::faults(file, text));
            findings.extend(metrics::spelled(file, text));
            long.extend(source::too_long(file, text));
        }
    }
    for note in long {
        println!("note: {note}");
    }
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, no findings", files.len());
    Ok(())
}

fn read(root: &Path, file: &str) -> Result<String> {
    std::fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))
}

fn output(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .output()
        .with_context(|| format!("running {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading what {program} says"))
}

/// `cargo metadata` for this platform: the packages of other platforms may not be on this machine.
fn metadata(root: &Path) -> Result<Value> {
    let version = output(root, "rustc", &["-vV"])?;
    let host = version.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc does not name its host")?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let text = output(root, &cargo, &["metadata", "--format-version", "1", "--filter-platform", host])?;
    serde_json::from_str(&text).context("parsing cargo metadata")
}

fn tracked_files(root: &Path) -> Result<Vec<String>> {
    Ok(output(root, "git", &["ls-files"])?.lines().map(str::to_owned).collect())
}

fn list<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = &'a Value> {
    value[member].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// Compares the crates that ARCHITECTURE.md names with those that exist.
fn architecture(root: &Path) -> Result<Vec<String>> {
    let Ok(page) = std::fs::read_to_string(root.join("ARCHITECTURE.md")) else {
        return Ok(Vec::new());
    };
    let named: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("crates/"))
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        .collect();
    let mut there = BTreeSet::new();
    for entry in std::fs::read_dir(root.join("crates")).context("reading crates")? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").exists() {
            there.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let missing = there.difference(&named).map(|name| format!("ARCHITECTURE.md does not name crates/{name}"));
    let gone = named.difference(&there).map(|name| format!("ARCHITECTURE.md names crates/{name}, which is not there"));
    Ok(missing.chain(gone).collect())
}

/// Checks arrows, absences, paths and commands of the pages (`documents`).
fn documents(root: &Path, metadata: &Value, files: &[String], texts: &[(&str, String)]) -> Result<Vec<String>> {
    let members: BTreeSet<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let ours = || list(metadata, "packages").filter(|package| members.contains(text(package, "id")));
    let names: BTreeSet<&str> = ours().map(|package| text(package, "name")).collect();
    let mut arrows = BTreeMap::new();
    for package in ours() {
        let normal = list(package, "dependencies").filter(|dependency| dependency["kind"].is_null());
        let on = normal.map(|dependency| text(dependency, "name")).filter(|on| names.contains(on));
        arrows.insert(text(package, "name").to_owned(), on.map(str::to_owned).collect());
    }
    let makefile = read(root, "Makefile")?;
    let targets = makefile.lines().filter_map(|line| line.split_once(':')).map(|(target, _)| target.to_owned());
    let chores = crate::chores();
    let sources = texts.iter().filter(|(file, _)| {
        [".rs", ".py", ".sh", "Makefile"].iter().any(|end| file.ends_with(end)) && !file.starts_with("e2e/golden")
    });
    let sources = sources.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let facts = Facts { files, arrows, targets: targets.collect(), chores, sources };
    let page = read(root, "ARCHITECTURE.md")?;
    let mut findings = documents::arrows(&page, &facts.arrows);
    let rust = || texts.iter().filter(|(file, _)| file.ends_with(".rs"));
    let lines = rust()
        .filter(|(file, _)| !is_test_file(file))
        .flat_map(|(file, text)| code(text).map(move |(number, line)| (*file, number, line)));
    findings.extend(documents::absences(&page, lines));
    for name in documents::PAGES {
        findings.extend(documents::claims(name, &read(root, name)?, &facts));
    }
    let ours = texts.iter().filter(|(file, _)| file.ends_with(".rs") || file.ends_with(".py"));
    // skip the check's own cases
    let ours = ours.filter(|(file, _)| !file.starts_with("crates/xtask/src/documents"));
    findings.extend(ours.flat_map(|(file, text)| documents::comments(file, text, files)));
    // skip the rule's own cases
    let with_codes = texts.iter().filter(|(file, _)| {
        [".rs", ".py", ".md"].iter().any(|end| file.ends_with(end)) && !file.ends_with("xtask/src/errors.rs")
    });
    findings.extend(errors::pages(with_codes.map(|(file, text)| (*file, text.as_str()))));
    findings.extend(
        rust()
            .filter(|(file, _)| !file.ends_with("xtask/src/errors.rs"))
            .flat_map(|(file, text)| errors::repeated_sources(file, text)),
    );
    Ok(findings)
}
