//! Rules about single files: words that are forbidden in pure code, unfinished code, hosts of registries, unreadable YAML.

use super::crates::PURE;
use serde_json::Value;

/// Words that are forbidden in pure crates, and why. The `clippy.toml` of these crates gives the compiler the same rules.
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

/// Words that are forbidden in all code except tests.
const UNFINISHED: [&str; 3] = ["todo!(", "unimplemented!(", "dbg!("];

pub(super) fn is_test_file(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    file.contains("/tests/") || matches!(name, "tests.rs" | "testing.rs" | "fixture.rs" | "fixtures.rs")
}

/// The lines of a source file with their numbers, without tests and comments.
pub(super) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut test = false;
    let mut marked = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let trimmed = line.trim_start();
        // Test modules are at the end of a file.
        test |= marked && trimmed.starts_with("mod ") && trimmed.ends_with('{');
        marked = trimmed == "#[cfg(test)]";
        let code = trimmed.split("//").next().unwrap_or_default();
        (!test && !code.is_empty()).then_some((number + 1, code))
    })
}

/// The findings about one source file.
pub(super) fn faults(file: &str, text: &str) -> Vec<String> {
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
                // reported at its first line
                Some(import) => *import.lines.start() == number && import.paths.iter().any(|path| path.contains(word)),
                None => line.contains(word),
            };
            for (word, why) in IMPURE_WORDS.iter().filter(|(word, _)| says(word)) {
                findings.push(format!("{file}:{number}: `{word}` in a pure crate: {why}"));
            }
        }
        // skip the list above, which contains these words
        if !file.starts_with("crates/xtask/") {
            for word in UNFINISHED.iter().filter(|word| line.contains(*word)) {
                findings.push(format!("{file}:{number}: `{word}…)` is not finished"));
            }
        }
    }
    findings
}

/// A `use` statement: its first and last line, and the paths that it imports, one by one, without their braces.
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

/// No file names the host of a registry of packages or images: the user who builds or pulls chooses the mirror. The names are put together
/// here, so that this file contains none either.
pub(super) fn registries(file: &str, text: &str) -> Vec<String> {
    if file == "Cargo.lock" {
        return Vec::new();
    }
    let packages = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("python", "hosted.org"),
        concat!("npmjs", ".org"),
        concat!("proxy.golang", ".org"),
    ];
    let packages = packages.into_iter().filter(|host| text.contains(host));
    let mut findings: Vec<String> = packages.map(|host| format!("{file}: names the package registry {host}")).collect();
    // upstream's own texts stay unchanged: its runtimes, and recordings of its answers
    let is_upstreams = ["manifests/runtimes/", "e2e/golden/", "crates/plan/testdata/"];
    if !is_upstreams.iter().any(|folder| file.starts_with(folder)) {
        let images = IMAGE_REGISTRIES.iter().filter(|host| pulls_from(text, host));
        findings.extend(
            images
                .map(|host| format!("{file}: names the image registry {host}: leave it out, or use registry.example")),
        );
    }
    findings
}

const IMAGE_REGISTRIES: [&str; 9] = [
    concat!("docker", ".io"),
    concat!("docker", ".com"),
    concat!("ghcr", ".io"),
    concat!("quay", ".io"),
    concat!("gcr", ".io"),
    concat!("nvcr", ".io"),
    concat!("registry.k8s", ".io"),
    concat!("public.ecr", ".aws"),
    concat!("mcr.microsoft", ".com"),
];

/// Images of upstream's jobs, by which we recognize these jobs. Recognizing them needs no mirror, and nothing here pulls them.
const UPSTREAM_IMAGES: [&str; 2] = [concat!("ghcr", ".io/kubeflow/"), concat!("ghcr", ".io/converged-computing/")];

/// Whether the text names this host or a subdomain, except in the name of one of upstream's images.
fn pulls_from(text: &str, host: &str) -> bool {
    text.match_indices(host).any(|(at, _)| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let begins = !text[..at].ends_with(is_word);
        let ends = !text[at.saturating_add(host.len())..].starts_with(is_word);
        begins && ends && !UPSTREAM_IMAGES.iter().any(|image| text[at..].starts_with(image))
    })
}

/// Checks that every YAML file can be read: otherwise a test that reads it long after the build would stop the gate. Templates become YAML
/// only when Helm fills them in, and recordings keep faults on purpose.
pub(super) fn unreadable(file: &str, text: &str) -> Option<String> {
    let is_yaml = file.ends_with(".yaml") || file.ends_with(".yml");
    if !is_yaml || file.contains("/templates/") || file.contains("golden/") {
        return None;
    }
    let error = serde_saphyr::from_multiple::<Value>(text).err()?.to_string();
    Some(format!("{file}: is no YAML: {}", error.lines().next().unwrap_or_default()))
}

/// Notes long files that do not say why they are long: whether to split one is a judgement.
pub(super) fn too_long(file: &str, text: &str) -> Option<String> {
    const LINES_MAX: usize = 800;
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| format!("{file} has {lines} lines: split it, or say in its first lines why not"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_read_without_tests_and_comments() {
        let pure = "//! About.\nuse std::collections::HashMap; // HashMap\n// HashSet\n#[cfg(test)]\nmod tests {\n    HashSet\n}\n";
        assert_eq!(faults("crates/plan/src/a.rs", pure).len(), 1);
        assert!(faults("crates/driver/src/a.rs", pure).is_empty());
        assert!(faults("crates/plan/src/x/tests.rs", pure).is_empty());
        let excused = "//! A.\n#[expect(clippy::disallowed_types, reason = \"theirs\")]\nlet a = HashMap::new();\n";
        assert!(faults("crates/merge/src/a.rs", excused).is_empty());
        assert_eq!(faults("crates/driver/src/a.rs", "fn a() { todo!() }\n").len(), 2);
    }

    #[test]
    fn imports_are_seen_through_braces() {
        let found = |text: &str| faults("crates/plan/src/a.rs", &format!("//! A.\n{text}\n"));
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
        let [docker, github, google] = [concat!("docker", ".io"), concat!("ghcr", ".io"), concat!("gcr", ".io")];
        for named in [
            format!("{docker}/library/python"),
            format!("eu.{google}/a"),
            format!("FROM {github}:443/a"),
            docker.into(),
        ] {
            assert_eq!(registries("docs/a.md", &named).len(), 1, "{named}");
            assert!(registries("e2e/golden/a/expected.yaml", &named).is_empty(), "{named}");
        }
        for other in
            ["python:3.12", "registry.example/a", &format!("{github}/kubeflow/trainer/x"), &format!("my{google}")]
        {
            assert!(registries("docs/a.md", other).is_empty(), "{other}");
        }
    }
}
