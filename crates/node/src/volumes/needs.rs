//! What a pod's volumes and environments refer to, which must be there before they are made.

use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// How long a service account token is valid where the pod does not say, in seconds.
pub const TOKEN_SECS: i64 = 3600;

/// Tokens that volumes need, by (audience, seconds).
pub type Tokens = BTreeMap<(String, i64), String>;

/// What the volumes of a pod refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub config_maps: BTreeSet<String>,
    pub secrets: BTreeSet<String>,
    pub tokens: BTreeSet<(String, i64)>,
}

/// Everything the pod refers to, in volumes and environments.
pub fn needs(pod: &Pod) -> Needs {
    let mut needs = Needs::default();
    let Some(spec) = &pod.spec else { return needs };
    for volume in spec.volumes.iter().flatten() {
        needs.config_maps.extend(volume.config_map.iter().map(|source| source.name.clone()));
        needs.secrets.extend(volume.secret.iter().filter_map(|source| source.secret_name.clone()));
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            needs.config_maps.extend(source.config_map.iter().map(|source| source.name.clone()));
            needs.secrets.extend(source.secret.iter().map(|source| source.name.clone()));
            let token = source.service_account_token.iter();
            needs.tokens.extend(
                token.map(|t| (t.audience.clone().unwrap_or_default(), t.expiration_seconds.unwrap_or(TOKEN_SECS))),
            );
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        for from in container.env_from.iter().flatten() {
            needs.config_maps.extend(from.config_map_ref.iter().map(|source| source.name.clone()));
            needs.secrets.extend(from.secret_ref.iter().map(|source| source.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
            needs.config_maps.extend(from.config_map_key_ref.iter().map(|source| source.name.clone()));
            needs.secrets.extend(from.secret_key_ref.iter().map(|source| source.name.clone()));
        }
    }
    needs
}
