//! `cargo xtask tidy`: checks the rules of the repository.
//!
//! Every rule reads facts (`cargo metadata`, files that git knows) and returns its findings as lines. All rules run, so
//! that one run shows all findings.

use crate::documents::{self, Facts};
use crate::errors;
use crate::licences;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Which of our crates each of our crates may depend on. What is not here is an arrow that points up.
// ARCHITECTURE.md, "Which way the arrows run".
const ARROWS: &[(&str, &[&str])] = &[
    // tier 0
    ("api", &[]),
    ("merge", &["api"]),
    ("reconcile", &["api"]),
    ("resource", &["api", "merge"]),
    // tier 1
    ("diagnose", &["api"]),
    ("kinds", &["api", "merge", "resource"]),
    ("managed", &["api", "reconcile"]),
    ("placement", &[]),
    ("plan", &["api", "merge", "reconcile"]),
    ("sky", &["placement"]),
    ("workloads", &["api", "reconcile"]),
    // tier 2
    ("clock", &[]),
    ("store", &["api"]),
    ("apiserver", &["api", "clock", "merge", "resource", "store"]),
    ("driver", &["api", "clock", "reconcile"]),
    ("node", &["api", "clock"]),
    ("fetch", &[]),
    ("infra", &["api", "managed", "placement"]),
    // tier 3
    ("operator", &["api", "driver", "managed", "plan", "reconcile", "workloads"]),
    ("cli", &["api", "diagnose", "managed", "placement", "sky"]),
    (
        "trainyard",
        &[
            "api",
            "apiserver",
            "cli",
            "clock",
            "driver",
            "fetch",
            "infra",
            "kinds",
            "managed",
            "merge",
            "node",
            "operator",
            "plan",
            "reconcile",
            "resource",
            "store",
            "workloads",
        ],
    ),
    // tools: nothing depends on them but tests
    (
        "testkit",
        &["api", "apiserver", "driver", "merge", "node", "operator", "plan", "reconcile", "store", "workloads"],
    ),
    (
        "sim",
        &["api", "apiserver", "clock", "kinds", "operator", "plan", "reconcile", "resource", "trainyard", "workloads"],
    ),
    ("xtask", &["api", "managed", "merge", "placement", "sky"]),
    (
        "benches",
        &["api", "apiserver", "driver", "merge", "node", "operator", "plan", "reconcile", "store", "workloads"],
    ),
];

/// Crates that tests may depend on, whatever the arrows say: tools, and the kinds that the tests of the API server serve.
const FOR_TESTS: [&str; 3] = ["testkit", "sim", "kinds"];

/// Crates without I/O, clock and chance.
const PURE: [&str; 11] =
    ["api", "merge", "reconcile", "resource", "diagnose", "kinds", "managed", "plan", "workloads", "placement", "sky"];

/// Libraries that would carry I/O into a pure crate, however deep.
const IMPURE_LIBRARIES: [&str; 10] =
    ["axum", "hyper", "kube", "kube-client", "mio", "nix", "reqwest", "rusqlite", "tokio", "tower"];

/// Libraries that would put chance or files within a pure crate's reach. Deeper down they do no harm: parsers have them.
const IMPURE_AT_HAND: [&str; 4] = ["getrandom", "rand", "tempfile", "uuid"];

/// What the code of a pure crate must not say, and why. `clippy.toml` beside each of them says the same to the compiler.
const IMPURE_WORDS: &[(&str, &str)] = &[
    ("SystemTime::now", "`now` is an argument"),
    ("Instant::now", "`now` is an argument"),
    ("Timestamp::now", "`now` is an argument"),
    ("Zoned::now", "`now` is an argument"),
    ("env::var", "settings are arguments"),
    ("env::args", "settings are arguments"),
    ("env::current_dir", "settings are arguments"),
    ("env::temp_dir", "files are tier 2's"),
    ("std::env", "settings are arguments"),
    ("std::fs", "files are read by tier 2"),
    ("Mutex", "state between calls is the shell's"),
    ("RwLock", "state between calls is the shell's"),
    ("Condvar", "nothing waits here"),
    ("mpsc", "nothing waits here"),
    ("sync::atomic", "state between calls is the shell's"),
    ("TimeZone::system", "a machine's time zone is its own: UTC, or an argument"),
    ("TimeZone::try_system", "a machine's time zone is its own: UTC, or an argument"),
    ("TcpStream", "the network is tier 2's"),
    ("TcpListener", "the network is tier 2's"),
    ("UdpSocket", "the network is tier 2's"),
    ("ToSocketAddrs", "the network is tier 2's"),
    ("std::process", "processes are the node's"),
    ("thread::", "no threads: the shell decides who runs where"),
    ("HashMap", "iteration order is part of the contract: BTreeMap"),
    ("HashSet", "iteration order is part of the contract: BTreeSet"),
    ("Uuid::new", "names are functions of their parents, never chance"),
    ("rand::", "chance is an argument"),
    ("async fn", "thought is synchronous"),
];

/// What no code says outside of tests.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

/// Runs all rules.
pub fn run(root: &Path) -> Result<()> {
    let metadata = metadata(root)?;
    let files = tracked_files(root)?;
    // read once, for all rules; what is not text is nobody's concern
    let texts: Vec<(&str, String)> =
        files.iter().filter_map(|file| Some((file.as_str(), std::fs::read_to_string(root.join(file)).ok()?))).collect();
    let mut findings = arrows(&metadata)?;
    findings.extend(purity(&metadata)?);
    findings.extend(licences::check(&metadata, &read(root, "Cargo.lock")?)?);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = ["tree", "--package", "trainyard", "--edges", "normal", "--prefix", "none", "--format", "{p}: {f}"];
    findings.extend(for_tests_only(&output(root, &cargo, &tree)?));
    findings.extend(architecture(root)?);
    findings.extend(documents(root, &metadata, &files, &texts)?);
    findings.extend(unused(&metadata, &texts));
    findings.extend(lints(&texts));
    let mut long = Vec::new();
    for (file, text) in &texts {
        findings.extend(registries(file, text));
        findings.extend(unreadable(file, text));
        if file.ends_with(".rs") {
            findings.extend(source(file, text));
            long.extend(too_long(file, text));
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

/// `cargo metadata` for the platform that this runs on: other platforms' packages may not be there to look at.
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

/// Our crates' dependencies on each other against [`ARROWS`].
fn arrows(metadata: &Value) -> Result<Vec<String>> {
    let members: BTreeSet<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let ours: Vec<&Value> = list(metadata, "packages").filter(|p| members.contains(text(p, "id"))).collect();
    let names: BTreeSet<&str> = ours.iter().map(|p| text(p, "name")).collect();
    let mut findings = Vec::new();
    for package in ours {
        let name = text(package, "name");
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == name) else {
            findings.push(format!("{name}: xtask tidy does not know which crates it may depend on"));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let on = text(dependency, "name");
            let for_tests = text(dependency, "kind") == "dev";
            if names.contains(on) && !allowed.contains(&on) && !(for_tests && FOR_TESTS.contains(&on)) {
                findings.push(format!("{name} -> {on}: no arrow may point there"));
            }
            if PURE.contains(&name) && IMPURE_AT_HAND.contains(&on) && !for_tests {
                findings.push(format!("{name}: {on} is at hand, and it must be pure"));
            }
        }
    }
    Ok(findings)
}

/// Libraries beneath pure crates, through any number of others, against [`IMPURE_LIBRARIES`].
fn purity(metadata: &Value) -> Result<Vec<String>> {
    let names: BTreeMap<&str, &str> = list(metadata, "packages").map(|p| (text(p, "id"), text(p, "name"))).collect();
    let nodes: BTreeMap<&str, &Value> = list(&metadata["resolve"], "nodes").map(|n| (text(n, "id"), n)).collect();
    let members: Vec<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let mut findings = Vec::new();
    for id in members.into_iter().filter(|id| names.get(id).is_some_and(|name| PURE.contains(name))) {
        let mut seen = BTreeSet::from([id]);
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let node = nodes.get(id).with_context(|| format!("cargo metadata resolves no {id}"))?;
            for dependency in list(node, "deps") {
                let normal = list(dependency, "dep_kinds").any(|kind| kind["kind"].is_null());
                let on = text(dependency, "pkg");
                if normal && seen.insert(on) {
                    next.push(on);
                }
            }
        }
        let beneath = seen.iter().filter_map(|id| names.get(id));
        findings.extend(
            beneath
                .filter(|name| IMPURE_LIBRARIES.contains(name))
                .map(|library| format!("{}: {library} is beneath it, and it must be pure", names[id])),
        );
    }
    Ok(findings)
}

/// Features that no program needs outside of its tests, against what is built into the binary (`package: features`, a line each).
fn for_tests_only(tree: &str) -> Vec<String> {
    // the tree names a package each time that something needs it, with a mark from the second time on
    let features = tree.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once(": "));
    let found: BTreeSet<&str> = features
        .filter(|(_, features)| features.split(',').any(|feature| feature == "test-util"))
        .map(|(package, _)| package)
        .collect();
    found.into_iter().map(|package| format!("{package} is built into the binary with its feature test-util")).collect()
}

/// The crates that ARCHITECTURE.md names are those that there are.
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

/// Arrows, absences, paths and commands of the pages (`documents`).
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
    // the check's own cases are not here
    let ours = ours.filter(|(file, _)| !file.starts_with("crates/xtask/src/documents"));
    findings.extend(ours.flat_map(|(file, text)| documents::comments(file, text, files)));
    // the rule's own cases are not here
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

/// No file names the host of a package registry: which mirror is used is the builder's business. Put together here so that
/// this file names none either.
fn registries(file: &str, text: &str) -> Vec<String> {
    if file == "Cargo.lock" {
        return Vec::new();
    }
    let hosts = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("python", "hosted.org"),
        concat!("npmjs", ".org"),
        concat!("proxy.golang", ".org"),
    ];
    hosts
        .into_iter()
        .filter(|host| text.contains(host))
        .map(|host| format!("{file}: names the package registry {host}"))
        .collect()
}

/// Every YAML file of ours can be read: one that a test reads long after the build would stop the gate there. Templates are no
/// YAML before Helm has filled them in, and recordings keep faults on purpose.
fn unreadable(file: &str, text: &str) -> Option<String> {
    let is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
    if !is_yaml || file.contains("/templates/") || file.contains("golden/") {
        return None;
    }
    let error = serde_saphyr::from_multiple::<Value>(text).err()?.to_string();
    Some(format!("{file}: is no YAML: {}", error.lines().next().unwrap_or_default()))
}

fn is_test_file(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    file.contains("/tests/") || matches!(name, "tests.rs" | "testing.rs" | "fixture.rs" | "fixtures.rs")
}

/// The lines of a source file that are neither tests nor comments, with their numbers.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut test = false;
    let mut marked = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let trimmed = line.trim_start();
        // Test modules stand at the end of a file.
        test |= marked && trimmed.starts_with("mod ") && trimmed.ends_with('{');
        marked = trimmed == "#[cfg(test)]";
        let code = trimmed.split("//").next().unwrap_or_default();
        (!test && !code.is_empty()).then_some((number + 1, code))
    })
}

/// What one source file says.
fn source(file: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        findings.push(format!("{file}: does not begin with `//!`, what the module is about"));
    }
    if is_test_file(file) {
        return findings;
    }
    let pure = PURE.iter().any(|name| file.starts_with(&format!("crates/{name}/src/")));
    let imports = if pure { imports(text) } else { Vec::new() };
    let mut before = "";
    for (number, line) in code(text) {
        // A lint that is expected to fire gives its reason to the compiler.
        let excused = before.contains("clippy::disallowed");
        before = line;
        if pure && !excused {
            let import = imports.iter().find(|import| import.lines.contains(&number));
            let says = |word: &str| match import {
                // told at its first line
                Some(import) => *import.lines.start() == number && import.paths.iter().any(|path| path.contains(word)),
                None => line.contains(word),
            };
            for (word, why) in IMPURE_WORDS.iter().filter(|(word, _)| says(word)) {
                findings.push(format!("{file}:{number}: `{word}` in a pure crate: {why}"));
            }
        }
        // The list above would find itself.
        if !file.starts_with("crates/xtask/") {
            for word in UNFINISHED.iter().filter(|word| line.contains(*word)) {
                findings.push(format!("{file}:{number}: `{word}…)` is not finished"));
            }
        }
    }
    findings
}

/// A statement `use`: its first and last line, and the paths that it brings in, one by one, whatever braces they stand in.
struct Import {
    lines: std::ops::RangeInclusive<usize>,
    paths: Vec<String>,
}

fn imports(text: &str) -> Vec<Import> {
    fn expand(prefix: &str, tree: &str, into: &mut Vec<String>) {
        let Some((head, rest)) = tree.split_once('{') else {
            let path = tree.split(" as ").next().unwrap_or_default().trim();
            return into.push(if path == "self" {
                prefix.trim_end_matches("::").to_owned()
            } else {
                format!("{prefix}{path}")
            });
        };
        let (mut depth, mut start) = (0usize, 0);
        let inner = rest.trim_end().strip_suffix('}').unwrap_or(rest);
        let prefix = format!("{prefix}{}", head.trim());
        for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
            match c {
                '{' => depth = depth.saturating_add(1),
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    if !inner[start..at].trim().is_empty() {
                        expand(&prefix, inner[start..at].trim(), into);
                    }
                    start = at.saturating_add(1);
                }
                _ => {}
            }
        }
    }
    let mut imports = Vec::new();
    let mut statement: Option<(usize, String)> = None;
    for (number, line) in code(text) {
        let words = line.strip_prefix("pub ").unwrap_or(line);
        if statement.is_none() && words.starts_with("use ") {
            statement = Some((number, String::new()));
        }
        let Some((first, text)) = &mut statement else { continue };
        text.push_str(words.trim_start_matches("use "));
        if let Some(tree) = text.trim_end().strip_suffix(';') {
            let mut paths = Vec::new();
            expand("", tree, &mut paths);
            imports.push(Import { lines: *first..=number, paths });
            statement = None;
        }
    }
    imports
}

/// Dependencies that no source of their crate names. What is there for its features alone says so in the manifest:
/// `[package.metadata.tidy] unnamed = ["…"]`.
fn unused(metadata: &Value, texts: &[(&str, String)]) -> Vec<String> {
    let root = text(metadata, "workspace_root");
    let members: BTreeSet<&str> = list(metadata, "workspace_members").filter_map(Value::as_str).collect();
    let mut findings = Vec::new();
    for package in list(metadata, "packages").filter(|p| members.contains(text(p, "id"))) {
        let manifest = text(package, "manifest_path");
        let folder =
            manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches('/').trim_end_matches("Cargo.toml");
        let sources: Vec<&(&str, String)> =
            texts.iter().filter(|(file, _)| file.starts_with(folder) && file.ends_with(".rs")).collect();
        let unnamed: Vec<&str> = list(&package["metadata"]["tidy"], "unnamed").filter_map(Value::as_str).collect();
        for dependency in list(package, "dependencies") {
            let name = dependency["rename"].as_str().unwrap_or(text(dependency, "name"));
            // md-5 calls itself md5: a library may have a name without the package's hyphens
            let word = name.replace('-', "_");
            let joined = name.replace('-', "");
            let is_named = sources.iter().any(|(file, text)| {
                let in_tests =
                    is_test_file(file) || !file.starts_with(&format!("{folder}src/")) && !file.ends_with("build.rs");
                let lines: Vec<&str> = match dependency["kind"].as_str() {
                    Some("dev") => text.lines().collect(),
                    _ if in_tests => Vec::new(),
                    _ => code(text).map(|(_, line)| line).collect(),
                };
                lines.iter().any(|line| names(line, &word) || names(line, &joined))
            });
            if !is_named && !unnamed.contains(&name) {
                findings.push(format!("{folder}Cargo.toml: nothing names its dependency {name}"));
            }
        }
    }
    findings
}

/// Whether a line has this word, by itself.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at..].trim_start_matches(word).starts_with(is_part))
}

/// The lints of pure crates are in one file, which each of them has (by a link) as its own.
fn lints(texts: &[(&str, String)]) -> Vec<String> {
    let text_of = |wanted: &str| texts.iter().find(|(file, _)| *file == wanted).map(|(_, text)| text);
    let lacking = PURE.iter().filter(|name| {
        let own = text_of(&format!("crates/{name}/clippy.toml"));
        own.is_none() || own != text_of("clippy-pure.toml")
    });
    lacking
        .map(|name| format!("crates/{name}/clippy.toml is not clippy-pure.toml: ln -s ../../clippy-pure.toml there"))
        .collect()
}

/// Files that are long without a word why, as a note: splitting is judgement.
fn too_long(file: &str, text: &str) -> Option<String> {
    const LINES_MAX: usize = 800;
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{file} has {lines} lines: split it, or say in its first lines why not"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arrows_point_down() {
        let package = |name: &str, dependencies: Value| json!({"id": name, "name": name, "dependencies": dependencies});
        let metadata = json!({
            "workspace_members": ["plan", "driver", "testkit"],
            "packages": [
                package("plan", json!([{"name": "driver", "kind": null}, {"name": "testkit", "kind": "dev"}, {"name": "serde"}])),
                package("driver", json!([])),
                package("testkit", json!([{"name": "driver", "kind": null}])),
            ],
        });
        assert_eq!(arrows(&metadata).unwrap(), ["plan -> driver: no arrow may point there"]);
    }

    #[test]
    fn purity_looks_through_libraries() {
        let node =
            |id: &str, on: &str, kind: Value| json!({"id": id, "deps": [{"pkg": on, "dep_kinds": [{"kind": kind}]}]});
        let metadata = json!({
            "workspace_members": ["plan", "api"],
            "packages": [{"id": "plan", "name": "plan"}, {"id": "api", "name": "api"}, {"id": "x", "name": "x"}, {"id": "t", "name": "tokio"}],
            "resolve": {"nodes": [
                node("plan", "x", Value::Null),
                node("x", "t", Value::Null),
                node("api", "t", json!("dev")),
                {"id": "t", "deps": []},
            ]},
        });
        assert_eq!(purity(&metadata).unwrap(), ["plan: tokio is beneath it, and it must be pure"]);
    }

    #[test]
    fn the_binary_holds_nothing_for_tests() {
        let tree = "trainyard v0.1.0: \ntokio v1.0.0: default,test-util,time\nx v1.0.0: test-utils\ntokio v1.0.0: default,test-util,time (*)\n";
        assert_eq!(for_tests_only(tree), ["tokio v1.0.0 is built into the binary with its feature test-util"]);
    }

    #[test]
    fn source_is_read_without_tests_and_comments() {
        let pure = "//! About.\nuse std::collections::HashMap; // HashMap\n// HashSet\n#[cfg(test)]\nmod tests {\n    HashSet\n}\n";
        assert_eq!(source("crates/plan/src/a.rs", pure).len(), 1);
        assert!(source("crates/driver/src/a.rs", pure).is_empty());
        assert!(source("crates/plan/src/x/tests.rs", pure).is_empty());
        let excused = "//! A.\n#[expect(clippy::disallowed_types, reason = \"theirs\")]\nlet a = HashMap::new();\n";
        assert!(source("crates/merge/src/a.rs", excused).is_empty());
        assert_eq!(source("crates/driver/src/a.rs", "fn a() { todo!() }\n").len(), 2);
    }

    #[test]
    fn imports_are_seen_through_braces() {
        let found = |text: &str| source("crates/plan/src/a.rs", &format!("//! A.\n{text}\n"));
        for impure in [
            "use std::{fs, path::Path};",
            "use std::{\n    collections::{BTreeMap, HashMap},\n    fmt,\n};",
            "use std::sync::{Arc, Mutex as Lock};",
            "use std::{env::{self}, io};",
            "pub use std::sync::atomic::AtomicU64;",
            "let zone = TimeZone::system();",
            "let here = std::env::current_dir();",
        ] {
            assert!(!found(impure).is_empty(), "{impure}");
        }
        assert!(
            found("use std::{collections::{BTreeMap, BTreeSet}, fmt, sync::{Arc, LazyLock, OnceLock}};").is_empty()
        );
    }

    #[test]
    fn dependencies_are_named_somewhere() {
        let dependency = |name: &str, kind: Value| json!({"name": name, "kind": kind, "rename": null});
        let metadata = json!({"workspace_root": "/w", "workspace_members": ["a"], "packages": [{
            "id": "a", "name": "a", "manifest_path": "/w/crates/a/Cargo.toml", "metadata": {"tidy": {"unnamed": ["for-features"]}},
            "dependencies": [
                dependency("used-here", Value::Null), dependency("used", Value::Null), dependency("for-tests", json!("dev")),
                dependency("in-tests-alone", Value::Null), dependency("for-features", Value::Null)],
        }]});
        let texts = [
            ("crates/a/src/lib.rs", "//! used\nuse used_here::X;\n".to_owned()),
            ("crates/a/tests/it/main.rs", "use for_tests::X;\nuse in_tests_alone::Y;\n".to_owned()),
            ("crates/b/src/lib.rs", "use used::X;\n".to_owned()),
        ];
        let expected =
            ["used", "in-tests-alone"].map(|name| format!("crates/a/Cargo.toml: nothing names its dependency {name}"));
        assert_eq!(unused(&metadata, &texts), expected);
    }

    #[test]
    fn pure_crates_share_their_lints() {
        let mut texts: Vec<(String, String)> =
            PURE.map(|name| (format!("crates/{name}/clippy.toml"), "x".to_owned())).to_vec();
        texts.push(("clippy-pure.toml".to_owned(), "x".to_owned()));
        let found = |texts: &[(String, String)]| {
            lints(&texts.iter().map(|(file, text)| (file.as_str(), text.clone())).collect::<Vec<_>>())
        };
        assert!(found(&texts).is_empty());
        texts[0].1 = "y".to_owned();
        texts.remove(1);
        assert_eq!(found(&texts).len(), 2);
    }

    #[test]
    fn yaml_files_can_be_read() {
        let colon = "rules:\n- why: the audience is a gap: upstream writes it\n";
        assert!(unreadable("e2e/differences.yaml", colon).unwrap().starts_with("e2e/differences.yaml: is no YAML: "));
        assert!(unreadable("e2e/golden/case/input.yaml", colon).is_none());
        assert!(unreadable("charts/a/templates/b.yaml", "{{ if .Values.a }}").is_none());
        assert!(unreadable("a.yaml", "a: 1\n---\nb: 2\n").is_none());
    }

    #[test]
    fn registries_are_named_nowhere() {
        let text = format!("see https://{}/x", concat!("crates", ".io"));
        assert_eq!(registries("README.md", &text).len(), 1);
        assert!(registries("Cargo.lock", &text).is_empty());
    }
}
