//! `cargo xtask sbom`: prints the bill of materials of the binary (CycloneDX 1.5).
//!
//! It lists only what is linked into `trainyard` on Linux: no build tools, no macros, no test code. The same Cargo.lock
//! gives the same document, so it has neither time nor serial number.

use crate::licences;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// The package whose binary it is.
const PACKAGE: &str = "trainyard";
/// What is linked differs little between machines; this is the image's usual one.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Name and version.
type Id = (String, String);

/// Writes the document to a file, or prints it.
pub fn run(root: &Path, out: Option<&Path>) -> Result<()> {
    let (document, _) = document(root)?;
    match out {
        Some(path) => std::fs::write(path, document).with_context(|| format!("writing {}", path.display())),
        None => std::io::stdout().write_all(document.as_bytes()).context("writing to stdout"),
    }
}

/// The document, and the version of what it describes.
pub fn document(root: &Path) -> Result<(String, String)> {
    let tree = cargo(
        root,
        &[
            "tree",
            "--locked",
            "--package",
            PACKAGE,
            "--edges",
            "normal,no-proc-macro",
            "--target",
            TARGET,
            "--prefix",
            "depth",
            "--format",
            " {p}",
        ],
    )?;
    let links = links(&tree)?;
    let metadata = cargo(root, &["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET])?;
    let metadata: Value = serde_json::from_str(&metadata).context("parsing cargo metadata")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    let value = bill(&links, &metadata, &checksums(&lock))?;
    let version = value["metadata"]["component"]["version"].as_str().unwrap_or_default().to_owned();
    Ok((format!("{value:#}\n"), version))
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo).args(arguments).current_dir(root).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).context("reading what cargo says")
}

/// What each package links, from `cargo tree --prefix depth`. A package that was shown before comes without what is below it.
fn links(tree: &str) -> Result<BTreeMap<Id, BTreeSet<Id>>> {
    let mut links: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    let mut above: Vec<Id> = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (depth, package) = line.split_once(' ').with_context(|| format!("cargo tree: {line}"))?;
        let depth: usize = depth.parse().with_context(|| format!("cargo tree: {line}"))?;
        let mut words = package.split_whitespace();
        let (name, version) = (words.next(), words.next().and_then(|version| version.strip_prefix('v')));
        let (Some(name), Some(version)) = (name, version) else { anyhow::bail!("cargo tree: {line}") };
        let id = (name.to_owned(), version.to_owned());
        above.truncate(depth);
        if let Some(parent) = above.last() {
            links.entry(parent.clone()).or_default().insert(id.clone());
        }
        links.entry(id.clone()).or_default();
        above.push(id);
    }
    Ok(links)
}

/// SHA-256 of what was downloaded, from Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Id, String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    let package = |block: &str| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?));
    lock.split("[[package]]").filter_map(package).collect()
}

fn bill(links: &BTreeMap<Id, BTreeSet<Id>>, metadata: &Value, checksums: &BTreeMap<Id, String>) -> Result<Value> {
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let known: BTreeMap<Id, &Value> =
        packages.iter().map(|package| ((text(&package["name"]), text(&package["version"])), package)).collect();
    let mut own = None;
    let mut components = Vec::new();
    for id in links.keys() {
        let package = known.get(id).with_context(|| format!("cargo metadata does not know {} {}", id.0, id.1))?;
        let component = component(id, package, checksums.get(id));
        if id.0 == PACKAGE {
            own = Some(component);
        } else {
            components.push(component);
        }
    }
    let dependencies = links.iter().map(|(id, below)| {
        json!({"ref": reference(id, known[id]), "dependsOn": below.iter().map(|id| reference(id, known[id])).collect::<Vec<_>>()})
    });
    let dependencies: Vec<Value> = dependencies.collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own.with_context(|| format!("cargo tree does not name {PACKAGE}"))?},
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(id: &Id, package: &Value, checksum: Option<&String>) -> Value {
    let mut component = json!({
        "type": if id.0 == PACKAGE { "application" } else { "library" },
        "bom-ref": reference(id, package),
        "name": id.0,
        "version": id.1,
        "scope": "required",
    });
    if let Some(licence) = package["license"].as_str() {
        component["licenses"] = json!([{"expression": licences::modern(licence)}]);
    }
    if let Some(about) = package["description"].as_str() {
        component["description"] = about.split_whitespace().collect::<Vec<_>>().join(" ").into();
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if !is_ours(package) {
        component["purl"] = reference(id, package).into();
    }
    component
}

/// Whether a package lies in this repository.
fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

/// What the document calls a package. Ours are in no registry, where others may have their names.
fn reference(id: &Id, package: &Value) -> String {
    let (name, version) = id;
    // the only character of versions that package URLs escape
    let version = version.replace('+', "%2B");
    if is_ours(package) { format!("trainyard/{name}@{version}") } else { format!("pkg:cargo/{name}@{version}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the schema of CycloneDX 1.5 demands, of our own document.
    #[test]
    fn the_bill_is_whole() {
        let root = crate::root();
        let (text, version) = document(&root).unwrap();
        assert_eq!(document(&root).unwrap().0, text, "it is the same each time");
        let bill: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        assert_eq!(bill["metadata"]["component"]["version"], version.as_str());
        let components = bill["components"].as_array().unwrap();
        let names: Vec<&str> = components.iter().map(|component| component["name"].as_str().unwrap()).collect();
        for linked in ["tokio", "rustls", "ring", "libsqlite3-sys", "operator", "plan"] {
            assert!(names.contains(&linked), "{linked}");
        }
        for not_linked in ["proptest", "insta", "serde_derive", "cc", "xtask", "sim", "windows-sys"] {
            assert!(!names.contains(&not_linked), "{not_linked}");
        }
        let mut references = BTreeSet::from([bill["metadata"]["component"]["bom-ref"].as_str().unwrap()]);
        for component in components {
            let name = &component["name"];
            assert!(references.insert(component["bom-ref"].as_str().unwrap()), "{name} twice");
            assert_eq!(component["type"], "library");
            let licence = component["licenses"][0]["expression"].as_str().unwrap();
            assert!(!licence.is_empty() && !licence.contains('/'), "{name}: {licence}");
            let Some(purl) = component["purl"].as_str() else {
                assert!(component["hashes"].is_null(), "{name} is ours");
                continue;
            };
            assert!(purl.starts_with("pkg:cargo/"), "{purl}");
            assert_eq!(component["hashes"][0]["content"].as_str().unwrap().len(), 64, "{name}");
        }
        for dependency in bill["dependencies"].as_array().unwrap() {
            let below = dependency["dependsOn"].as_array().unwrap();
            for name in below.iter().chain([&dependency["ref"]]) {
                assert!(references.contains(name.as_str().unwrap()), "{name}");
            }
        }
    }

    #[test]
    fn a_tree_is_read_by_its_depth() {
        let tree = "0 a v1.0.0 (/x)\n1 b v2.0.0\n2 c v3.0.0+x\n1 c v3.0.0+x (*)\n";
        let links = links(tree).unwrap();
        let id = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        let (b, c) = (id("b", "2.0.0"), id("c", "3.0.0+x"));
        assert_eq!(links[&id("a", "1.0.0")], BTreeSet::from([b.clone(), c.clone()]));
        assert_eq!(links[&b], BTreeSet::from([c]));
    }
}
