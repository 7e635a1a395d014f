//! The manifests that are written from the code are what the code says.

#![allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should")]

use operator::cluster::access;
use operator::cluster::registration::{Place, configurations};
use serde_json::Value;
use std::path::Path;

/// Compares a manifest with what it should be; `UPDATE=1` writes it.
fn holds(file: &str, objects: &[Value]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file);
    let mut text = "# Written from the code: UPDATE=1 cargo test -p operator --test it\n".to_owned();
    for object in objects {
        text += &format!("---\n{}", serde_saphyr::to_string(object).unwrap());
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let held = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(held == text, "{} is out of date: UPDATE=1 cargo test -p operator --test it", path.display());
}

#[test]
fn the_roles_are_what_the_controllers_need() {
    holds("base/rbac/role.yaml", &access::roles());
    holds("overlays/namespaced/role.yaml", &access::namespaced_roles());
    holds("components/optimization/role.yaml", &[access::optimization_role()]);
    holds("components/mpi/role.yaml", &access::mpi_roles());
    holds("overlays/openshift/role.yaml", &[access::mpi_openshift_role()]);
}

#[test]
fn the_webhook_configurations_are_what_is_served() {
    let place = Place::Service { namespace: access::NAMESPACE.to_owned(), name: access::NAME.to_owned() };
    holds("base/webhook/manifests.yaml", &configurations(&place, None, None));
}
