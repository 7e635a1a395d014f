//! What `doctor` compares a cluster with.

use ::operator::embedded::install::cluster_kinds;

/// As this binary has it.
pub fn built_in() -> cli::BuiltIn {
    cli::BuiltIn {
        kinds: cluster_kinds(),
        roles: include_str!("../../../manifests/base/rbac/role.yaml"),
        roles_of_one_namespace: include_str!("../../../manifests/overlays/namespaced/role.yaml"),
        roles_to_install_runtimes: include_str!("../../../manifests/base/rbac/runtimes.yaml"),
    }
}
