//! The crate against the CRDs that this project ships.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

use merge::schema::Schema;
use merge::structural;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn manifests() -> Vec<(PathBuf, Value)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/crds");
    let mut out = Vec::new();
    let entries = [dir.clone(), dir.join("mpi")].map(|dir| std::fs::read_dir(dir).expect("manifests/crds"));
    for entry in entries.into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|e| e == "yaml") {
            let text = std::fs::read_to_string(&path).expect("a file");
            out.push((path, serde_saphyr::from_str(&text).expect("YAML")));
        }
    }
    assert!(!out.is_empty(), "{} holds no CRDs", dir.display());
    out
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd["spec"]["versions"].as_array().into_iter().flatten().map(|version| &version["schema"]["openAPIV3Schema"])
}

#[test]
fn our_schemas_are_structural() {
    for (path, crd) in manifests() {
        for openapi in versions(&crd) {
            let faults = structural::check(openapi, &api::field::Path::new("schema"));
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            assert!(texts.is_empty(), "{}:\n{}", path.display(), texts.join("\n"));
        }
    }
}

#[test]
fn our_schemas_survive_publishing() {
    for (path, crd) in manifests() {
        for openapi in versions(&crd) {
            let once = Schema::from_openapi(openapi).expect("a schema").to_openapi();
            let twice = Schema::from_openapi(&once).expect("a schema").to_openapi();
            assert_eq!(once, twice, "{}", path.display());
        }
    }
}
