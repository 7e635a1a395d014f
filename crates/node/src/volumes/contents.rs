//! The files of volumes that are made of objects: config maps, secrets, tokens, the downward API. Nothing is written here.

use super::needs::{TOKEN_SECS, Tokens};
use crate::env::{ReferenceError, Sources, find_container};
use crate::fields::{self, Facts};
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, ConfigMapVolumeSource, DownwardAPIVolumeFile, KeyToPath, Pod, Secret,
    SecretProjection, Volume,
};
use std::collections::BTreeMap;

/// Mode of a projected file where the pod does not say.
const FILE_MODE: u32 = 0o644;
/// Contents and mode by path in the volume.
pub type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// The files of a volume that is made of objects; `None` for any other volume.
pub fn projected_files(
    pod: &Pod,
    facts: &Facts,
    sources: &Sources,
    tokens: &Tokens,
    volume: &Volume,
) -> Option<Result<Files, ReferenceError>> {
    if let Some(source) = &volume.config_map {
        let found = sources.config_map(&source.name, source.optional == Some(true));
        return Some(found.and_then(|map| config_map_files(source, map)));
    }
    if let Some(source) = &volume.secret {
        let mode = mode(source.default_mode);
        let name = source.secret_name.as_deref().unwrap_or_default();
        let found = sources.secret(name, source.optional == Some(true));
        return Some(found.and_then(|secret| {
            select(&secret_data(secret), source.items.as_deref(), source.optional == Some(true), mode, || {
                ReferenceError::SecretItem { name: name.to_owned() }
            })
        }));
    }
    if let Some(source) = &volume.downward_api {
        return Some(downward_files(pod, facts, source.items.as_deref(), mode(source.default_mode)));
    }
    let source = volume.projected.as_ref()?;
    let default = mode(source.default_mode);
    let mut files = Files::new();
    for part in source.sources.iter().flatten() {
        let added = if let Some(map) = &part.config_map {
            config_map_part(sources, map, default)
        } else if let Some(secret) = &part.secret {
            secret_part(sources, secret, default)
        } else if let Some(downward) = &part.downward_api {
            downward_files(pod, facts, downward.items.as_deref(), default)
        } else if let Some(token) = &part.service_account_token {
            let key = (token.audience.clone().unwrap_or_default(), token.expiration_seconds.unwrap_or(TOKEN_SECS));
            match tokens.get(&key) {
                Some(text) => Ok([(token.path.clone(), (text.clone().into_bytes(), default))].into()),
                None => Err(ReferenceError::Token),
            }
        } else {
            Err(ReferenceError::Projection)
        };
        match added {
            Ok(added) => files.extend(added),
            Err(why) => return Some(Err(why)),
        }
    }
    Some(Ok(files))
}

pub fn config_map_files(source: &ConfigMapVolumeSource, map: Option<&ConfigMap>) -> Result<Files, ReferenceError> {
    let (optional, mode) = (source.optional == Some(true), mode(source.default_mode));
    select(&config_map_data(map), source.items.as_deref(), optional, mode, || ReferenceError::ConfigMapItem {
        name: source.name.clone(),
    })
}

fn mode(given: Option<i32>) -> u32 {
    given.and_then(|m| u32::try_from(m).ok()).unwrap_or(FILE_MODE)
}

fn config_map_part(sources: &Sources, part: &ConfigMapProjection, mode: u32) -> Result<Files, ReferenceError> {
    let optional = part.optional == Some(true);
    let map = sources.config_map(&part.name, optional)?;
    select(&config_map_data(map), part.items.as_deref(), optional, mode, || ReferenceError::ConfigMapItem {
        name: part.name.clone(),
    })
}

fn secret_part(sources: &Sources, part: &SecretProjection, mode: u32) -> Result<Files, ReferenceError> {
    let optional = part.optional == Some(true);
    let secret = sources.secret(&part.name, optional)?;
    select(&secret_data(secret), part.items.as_deref(), optional, mode, || ReferenceError::SecretItem {
        name: part.name.clone(),
    })
}

fn config_map_data(map: Option<&ConfigMap>) -> BTreeMap<String, Vec<u8>> {
    let Some(map) = map else { return BTreeMap::new() };
    let text = map.data.iter().flatten().map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    text.chain(map.binary_data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone()))).collect()
}

fn secret_data(secret: Option<&Secret>) -> BTreeMap<String, Vec<u8>> {
    let Some(secret) = secret else { return BTreeMap::new() };
    secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

/// All keys, or those that `items` names, under the paths it gives them.
fn select(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    optional: bool,
    default: u32,
    missing: impl Fn() -> ReferenceError,
) -> Result<Files, ReferenceError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.iter().map(|(key, bytes)| (key.clone(), (bytes.clone(), default))).collect());
    };
    let mut files = Files::new();
    for item in items {
        match data.get(&item.key) {
            Some(bytes) => {
                let mode = item.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(default);
                files.insert(item.path.clone(), (bytes.clone(), mode));
            }
            None if optional => {}
            None => return Err(missing()),
        }
    }
    Ok(files)
}

fn downward_files(
    pod: &Pod,
    facts: &Facts,
    items: Option<&[DownwardAPIVolumeFile]>,
    default: u32,
) -> Result<Files, ReferenceError> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = if let Some(source) = &item.field_ref {
            fields::field(pod, facts, &source.field_path)
                .ok_or_else(|| ReferenceError::Field { path: source.field_path.clone() })?
        } else if let Some(source) = &item.resource_field_ref {
            let container = source.container_name.as_deref().and_then(|name| find_container(pod, name));
            container
                .and_then(|container| fields::resource(container, facts, source))
                .ok_or_else(|| ReferenceError::Resource { resource: source.resource.clone() })?
        } else {
            String::new()
        };
        let mode = item.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(default);
        files.insert(item.path.clone(), (text.into_bytes(), mode));
    }
    Ok(files)
}
