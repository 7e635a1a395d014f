//! Fills a pod's volumes: directories below the pod's own, or directories of the host if the pod asks for them; and what of them its
//! containers mount.

mod contents;
mod needs;
mod switch;

pub use needs::{Tokens, needs};

use crate::env::{Environment, ReferenceError, Sources, expand};
use crate::fields::Facts;
use crate::poddir::PodDir;
use crate::wire::{Mount, Tmpfs};
use api::quantity::Quantity;
use contents::{Files, config_map_files, projected_files};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Volume};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use switch::write_atomically;

/// The ConfigMap whose volume one of the containers mounts at this path.
pub fn config_map_at(pod: &Pod, path: &str) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let mounts = spec.containers.iter().flat_map(|container| container.volume_mounts.iter().flatten());
    let names: Vec<&str> =
        mounts.filter(|m| m.mount_path.trim_end_matches('/') == path).map(|m| m.name.as_str()).collect();
    let mut volumes = spec.volumes.iter().flatten().filter(|volume| names.contains(&volume.name.as_str()));
    volumes.find_map(|volume| volume.config_map.as_ref().map(|source| source.name.clone()))
}

/// A pod's volumes on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Volumes {
    /// The host directory (or file) of each volume.
    pub paths: BTreeMap<String, PathBuf>,
    pub tmpfs: Vec<Tmpfs>,
}

/// Why a volume cannot be made, or not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("{}: {error}", path.display())]
    Disk { path: PathBuf, error: io::Error },
    #[error(
        "this kind of volume is not available to pods that run as processes (available: configMap, downwardAPI, \
             emptyDir, ephemeral, hostPath, persistentVolumeClaim, projected, secret)"
    )]
    Kind,
    #[error("hostPath type check failed: {} is not {what}", path.display())]
    HostPath { path: PathBuf, what: &'static str },
    #[error("volume {name:?} not found")]
    Unknown { name: String },
    #[error("subPath {path:?} must stay inside its volume")]
    SubPath { path: String },
}

/// Where a pod's volumes are made.
pub struct Place<'a> {
    pub dir: &'a PodDir,
    /// The agent's data directory: claims live there.
    pub data: &'a Path,
}

/// Makes (or refreshes) the pod's volumes.
///
/// # Errors
/// `(volume, why)`: an object is missing (worded as the kubelet does), a kind of volume is not supported here, or the disk.
pub fn make(
    place: &Place<'_>,
    pod: &Pod,
    facts: &Facts,
    sources: &Sources,
    tokens: &Tokens,
) -> Result<Volumes, (String, VolumeError)> {
    let mut volumes = Volumes::default();
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let path = make_one(place, pod, facts, sources, tokens, volume, &mut volumes.tmpfs)
            .map_err(|why| (volume.name.clone(), why))?;
        volumes.paths.insert(volume.name.clone(), path);
    }
    Ok(volumes)
}

/// Writes again what changes while a pod runs: config maps, secrets, tokens, the downward API. Files that cannot be made
/// now stay as they are.
pub fn refresh(place: &Place<'_>, pod: &Pod, facts: &Facts, sources: &Sources, tokens: &Tokens) {
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        if let Some(files) = projected_files(pod, facts, sources, tokens, volume) {
            replace(place.dir, volume, files);
        }
    }
}

/// Writes again the volumes that this ConfigMap alone is shown in.
pub fn show(dir: &PodDir, pod: &Pod, map: &ConfigMap) {
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let Some(source) = volume.config_map.as_ref() else { continue };
        if map.metadata.name.as_deref() == Some(source.name.as_str()) {
            replace(dir, volume, config_map_files(source, Some(map)));
        }
    }
}

/// Replaces what a volume shows. Where its files cannot be made now, they stay as they are.
fn replace(dir: &PodDir, volume: &Volume, files: Result<Files, ReferenceError>) {
    if let Ok(files) = files
        && let Err(error) = write_atomically(&dir.volume(&volume.name), &files)
    {
        tracing::warn!(volume = volume.name, %error, "cannot refresh a volume");
    }
}

fn make_one(
    place: &Place<'_>,
    pod: &Pod,
    facts: &Facts,
    sources: &Sources,
    tokens: &Tokens,
    volume: &Volume,
    tmpfs: &mut Vec<Tmpfs>,
) -> Result<PathBuf, VolumeError> {
    let own = place.dir.volume(&volume.name);
    let directory = |path: PathBuf| fs::create_dir_all(&path).map(|()| path.clone()).map_err(|e| on_disk(&path, e));
    if let Some(files) = projected_files(pod, facts, sources, tokens, volume) {
        write_atomically(&own, &files?).map_err(|e| on_disk(&own, e))?;
        return Ok(own);
    }
    if let Some(source) = &volume.empty_dir {
        let path = directory(own)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(|e| on_disk(&path, e))?;
        if source.medium.as_deref() == Some("Memory") {
            let size = source.size_limit.as_ref().and_then(|q| Quantity::parse(&q.0).ok()).map(Quantity::value);
            let size = size.and_then(|n| u64::try_from(n).ok());
            tmpfs.push(Tmpfs { path: path.clone(), size_bytes: size.filter(|n| *n > 0) });
        }
        return Ok(path);
    }
    if let Some(source) = &volume.host_path {
        let path = PathBuf::from(&source.path);
        return host_path(path, source.type_.as_deref().unwrap_or_default());
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(source) = &volume.persistent_volume_claim {
        return directory(claim(place.data, namespace, &source.claim_name));
    }
    if volume.ephemeral.is_some() {
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        return directory(claim(place.data, namespace, &format!("{pod_name}-{}", volume.name)));
    }
    Err(VolumeError::Kind)
}

/// The directory that stands for a persistent volume claim on this machine.
pub fn claim(data: &Path, namespace: &str, name: &str) -> PathBuf {
    data.join("claims").join(namespace).join(name)
}

fn on_disk(path: &Path, error: io::Error) -> VolumeError {
    VolumeError::Disk { path: path.to_owned(), error }
}

fn host_path(path: PathBuf, kind: &str) -> Result<PathBuf, VolumeError> {
    let text = |e: io::Error| on_disk(&path, e);
    let wrong = |what| Err(VolumeError::HostPath { path: path.clone(), what });
    match kind {
        // Container runtimes make a directory where there is nothing.
        "" | "DirectoryOrCreate" if !path.exists() => fs::create_dir_all(&path).map_err(text)?,
        "FileOrCreate" if !path.exists() => fs::write(&path, "").map_err(text)?,
        "Directory" | "DirectoryOrCreate" if !path.is_dir() => return wrong("a directory"),
        "File" | "FileOrCreate" if !path.is_file() => return wrong("a file"),
        "" => {}
        _ if !path.exists() => return wrong("there"),
        _ => {}
    }
    Ok(path)
}

/// A path inside the volume; the API server refuses others, and so do we.
fn safe(path: &str) -> io::Result<&Path> {
    let path = Path::new(path);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && path.components().next().is_some() { Ok(path) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// What a container mounts, from its `volumeMounts`.
///
/// # Errors
/// A volume that the pod does not have, or a `subPath` that leads out of its volume.
pub fn mounts(volumes: &Volumes, container: &Container, env: &Environment) -> Result<Vec<Mount>, VolumeError> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let base = volumes.paths.get(&mount.name).ok_or_else(|| VolumeError::Unknown { name: mount.name.clone() })?;
        let expression = mount.sub_path_expr.as_deref().map(|text| expand(text, |name| env.get(name)));
        let sub_path = expression.or_else(|| mount.sub_path.clone()).filter(|s| !s.is_empty());
        let source = match sub_path {
            None => base.clone(),
            Some(sub_path) => sub_directory(base, &sub_path)?,
        };
        let read_only = mount.read_only == Some(true);
        mounts.push(Mount { source, target: PathBuf::from(&mount.mount_path), read_only });
    }
    Ok(mounts)
}

fn sub_directory(base: &Path, sub_path: &str) -> Result<PathBuf, VolumeError> {
    let wrong = || VolumeError::SubPath { path: sub_path.to_owned() };
    let path = base.join(safe(sub_path.trim_end_matches('/')).map_err(|_| wrong())?);
    if !path.exists() {
        fs::create_dir_all(&path).map_err(|e| on_disk(&path, e))?;
    }
    let real = path.canonicalize().map_err(|e| on_disk(&path, e))?;
    let base = base.canonicalize().map_err(|e| on_disk(base, e))?;
    if real.starts_with(&base) { Ok(real) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_of_all_kinds() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = PodDir::of(tmp.path(), "u");
        let place = Place { dir: &dir, data: tmp.path() };
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"a": "1", "b": "2"}},
            "spec": {
                "containers": [{"name": "c", "volumeMounts": [
                    {"name": "cm", "mountPath": "/etc/cm", "readOnly": true},
                    {"name": "data", "mountPath": "/data", "subPathExpr": "$(NAME)/x"},
                    {"name": "cm", "mountPath": "/etc/one", "subPath": "key"}
                ]}],
                "volumes": [
                    {"name": "cm", "configMap": {"name": "cm"}},
                    {"name": "keys", "secret": {"secretName": "s", "defaultMode": 256, "items": [{"key": "k", "path": "deep/id", "mode": 384}]}},
                    {"name": "api", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}
                    ]}},
                    {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}
                ]
            }
        }))
        .unwrap();
        let found = needs(&pod);
        assert_eq!(found.config_maps, ["cm".to_owned()].into());
        assert_eq!(found.tokens, [(String::new(), 3607)].into());
        let cm = |value: &str| serde_json::from_value(json!({"data": {"key": value}})).unwrap();
        let secret = serde_json::from_value(json!({"data": {"k": "c2VjcmV0"}})).unwrap();
        let mut sources = Sources {
            config_maps: [("cm".to_owned(), Some(cm("one")))].into(),
            secrets: [("s".to_owned(), Some(secret))].into(),
        };
        let tokens: Tokens = [((String::new(), 3607), "jwt".to_owned())].into();
        let facts = Facts::default();
        let volumes = make(&place, &pod, &facts, &sources, &tokens).unwrap();
        let read = |volume: &str, path: &str| fs::read_to_string(dir.volume(volume).join(path)).unwrap();
        assert_eq!(read("cm", "key"), "one");
        assert_eq!(read("keys", "deep/id"), "secret");
        let mode = fs::metadata(dir.volume("keys").join("deep/id")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(read("api", "token"), "jwt");
        assert_eq!(read("api", "labels"), "a=\"1\"\nb=\"2\"");
        assert_eq!(volumes.tmpfs, [Tmpfs { path: dir.volume("shm"), size_bytes: Some(1 << 20) }]);

        let mut env = Environment::default();
        env.set("NAME", "n");
        let mounts = mounts(&volumes, &pod.spec.as_ref().unwrap().containers[0], &env).unwrap();
        assert_eq!(mounts[1].source, tmp.path().canonicalize().unwrap().join("claims/ns/claim/n/x"));
        assert!(mounts[0].read_only && mounts[2].source.is_file());

        sources.config_maps.insert("cm".to_owned(), Some(cm("two")));
        refresh(&place, &pod, &facts, &sources, &tokens);
        assert_eq!(read("cm", "key"), "two");
        sources.config_maps.insert("cm".to_owned(), None);
        refresh(&place, &pod, &facts, &sources, &tokens);
        assert_eq!(read("cm", "key"), "two");
        let missing = make(&place, &pod, &facts, &sources, &tokens).unwrap_err();
        assert_eq!((missing.0.as_str(), missing.1.to_string().as_str()), ("cm", "configmap \"cm\" not found"));
    }
}
