//! Rules about crates: which crate may depend on which, what pure crates must not reach, which dependencies are unused.

use super::source::{code, is_test_file};
use super::{list, text};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The faces and tools: tier 3, and what stands beside the tiers.
const FACES: &[&str] =
    &["benches", "cli", "dashboard", "delegates", "grammar", "operator", "sim", "testkit", "trainyard", "xtask"];

/// Whether a crate is of tiers 0 to 2.
pub(super) fn is_room(name: &str) -> bool {
    !FACES.contains(&name) && ARROWS.iter().any(|(room, _)| *room == name)
}

/// The crates that each of our crates may depend on. An arrow that is missing here is not allowed.
// ARCHITECTURE.md, "Which way the arrows run".
const ARROWS: &[(&str, &[&str])] = &[
    // tier 0
    ("api", &[]),
    ("objects", &["api"]),
    ("merge", &["api", "objects"]),
    ("reconcile", &["api", "objects"]),
    ("resource", &["api", "merge"]),
    // tier 1
    ("diagnose", &["api"]),
    ("kinds", &["api", "merge", "objects", "resource"]),
    ("managed", &["api", "placement", "reconcile", "sky"]),
    ("placement", &[]),
    ("plan", &["api", "merge", "objects", "reconcile"]),
    ("sky", &["placement"]),
    ("view", &["api", "diagnose"]),
    ("workloads", &["api", "merge", "objects", "reconcile"]),
    // tier 2
    ("clock", &[]),
    ("balance", &["clock"]),
    ("memory", &[]),
    ("removal", &[]),
    ("store", &["objects"]),
    ("apiserver", &["api", "clock", "merge", "objects", "resource", "store", "streams"]),
    ("streams", &["api", "resource"]),
    ("driver", &["api", "clock", "objects", "reconcile"]),
    ("effects", &["api", "reconcile"]),
    ("client", &["api", "diagnose", "objects"]),
    ("facts", &["api", "client", "diagnose", "objects", "view"]),
    ("doctor", &["api", "client", "diagnose", "view"]),
    ("submission", &["api", "client", "files", "view"]),
    ("node", &["api", "clock", "removal"]),
    ("fetch", &[]),
    ("files", &["api", "client"]),
    ("offers", &["api", "managed", "placement", "sky"]),
    ("infra", &["api", "clock", "effects", "managed", "placement", "reconcile", "removal", "sky"]),
    ("launcher", &["api", "effects", "files", "managed", "offers", "placement", "reconcile", "sky"]),
    ("evidence", &["api", "apiserver", "driver", "node", "objects", "resource"]),
    // `streams`: its tests imitate agents
    ("outputs", &["api", "apiserver", "driver", "objects", "resource", "streams"]),
    ("backup", &["client", "store"]),
    ("clusters", &["api", "client", "facts", "files", "managed", "offers", "placement", "sky"]),
    ("leftovers", &["api", "client"]),
    // tier 3
    ("grammar", &["api", "sky", "view"]),
    ("dashboard", &["api", "client", "diagnose", "driver", "facts", "managed", "objects", "view"]),
    ("delegates", &["api", "apiserver", "client", "driver", "files", "launcher", "objects", "operator", "resource"]),
    (
        "operator",
        &["api", "clock", "driver", "managed", "objects", "plan", "reconcile", "resource", "view", "workloads"],
    ),
    (
        "cli",
        &[
            "api",
            "client",
            "clusters",
            "diagnose",
            "doctor",
            "facts",
            "files",
            "grammar",
            "leftovers",
            "managed",
            "objects",
            "offers",
            "placement",
            "sky",
            "submission",
            "view",
        ],
    ),
    (
        "trainyard",
        &[
            "api",
            "apiserver",
            "backup",
            "balance",
            "cli",
            "client",
            "clock",
            "dashboard",
            "delegates",
            "driver",
            "evidence",
            "fetch",
            "grammar",
            "infra",
            "kinds",
            "launcher",
            "managed",
            "memory",
            "merge",
            "node",
            "objects",
            "operator",
            "outputs",
            "plan",
            "reconcile",
            "resource",
            "store",
            "streams",
            "workloads",
        ],
    ),
    // tools: only tests depend on them
    (
        "testkit",
        &["api", "apiserver", "driver", "merge", "node", "operator", "plan", "reconcile", "store", "workloads"],
    ),
    (
        "sim",
        &[
            "api",
            "apiserver",
            "clock",
            "driver",
            "infra",
            "kinds",
            "launcher",
            "managed",
            "operator",
            "plan",
            "reconcile",
            "resource",
            "streams",
            "workloads",
        ],
    ),
    ("xtask", &["api", "balance", "managed", "merge", "placement", "sky"]),
    (
        "benches",
        &[
            "api",
            "apiserver",
            "driver",
            "merge",
            "node",
            "operator",
            "placement",
            "plan",
            "reconcile",
            "store",
            "workloads",
        ],
    ),
];

/// Crates that tests may depend on, whatever the arrows: tools, and the kinds that the tests of the API server serve.
const FOR_TESTS: [&str; 3] = ["testkit", "sim", "kinds"];

/// Crates without I/O, clock and chance.
pub(super) const PURE: [&str; 13] = [
    "api",
    "objects",
    "merge",
    "reconcile",
    "resource",
    "diagnose",
    "kinds",
    "managed",
    "plan",
    "workloads",
    "placement",
    "sky",
    "view",
];

/// Libraries that would bring I/O into a pure crate, at any depth.
const IMPURE_LIBRARIES: [&str; 10] =
    ["axum", "hyper", "kube", "kube-client", "mio", "nix", "reqwest", "rusqlite", "tokio", "tower"];

/// Libraries that would give a pure crate chance or files. As indirect dependencies they are harmless: parsers have them.
const IMPURE_AT_HAND: [&str; 4] = ["getrandom", "rand", "tempfile", "uuid"];

/// Compares our crates' dependencies on each other with [`ARROWS`].
pub(super) fn arrows(metadata: &Value) -> Result<Vec<String>> {
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

/// Compares all direct and indirect libraries of pure crates with [`IMPURE_LIBRARIES`].
pub(super) fn purity(metadata: &Value) -> Result<Vec<String>> {
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

/// Features that only a program's tests may need, but that are built into the binary (`package: features`, one per line).
pub(super) fn for_tests_only(tree: &str) -> Vec<String> {
    // the tree repeats a package for each dependent, with a mark from the second time on
    let features = tree.lines().filter_map(|line| line.trim_end_matches(" (*)").split_once(": "));
    let found: BTreeSet<&str> = features
        .filter(|(_, features)| features.split(',').any(|feature| feature == "test-util"))
        .map(|(package, _)| package)
        .collect();
    found.into_iter().map(|package| format!("{package} is built into the binary with its feature test-util")).collect()
}

/// Dependencies that no source of their crate names. The manifest lists those that exist only for their features: `[package.metadata.tidy]
/// unnamed = ["…"]`.
pub(super) fn unused(metadata: &Value, texts: &[(&str, String)]) -> Vec<String> {
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

/// Whether a line contains this word as a whole word.
fn names(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at..].trim_start_matches(word).starts_with(is_part))
}

/// Pure crates share one file of lints: each has a link to it.
pub(super) fn lints(texts: &[(&str, String)]) -> Vec<String> {
    let text_of = |wanted: &str| texts.iter().find(|(file, _)| *file == wanted).map(|(_, text)| text);
    let lacking = PURE.iter().filter(|name| {
        let own = text_of(&format!("crates/{name}/clippy.toml"));
        own.is_none() || own != text_of("clippy-pure.toml")
    });
    lacking
        .map(|name| format!("crates/{name}/clippy.toml is not clippy-pure.toml: ln -s ../../clippy-pure.toml there"))
        .collect()
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
}
