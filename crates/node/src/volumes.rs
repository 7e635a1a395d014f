//! Fills a pod's volumes: directories below the pod's own, or directories of the host if the pod asks for them.
//!
//! Config maps, secrets, tokens and downward API files are written as the kubelet writes them: into a new directory that
//! replaces the old one by the switch of one link (`..data`), so that a reader sees all of the old or all of the new.

use crate::env::{Environment, Sources, expand, find_container};
use crate::fields::{self, Facts};
use crate::poddir::PodDir;
use crate::wire::{Mount, Tmpfs};
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapProjection, ConfigMapVolumeSource, Container, DownwardAPIVolumeFile, KeyToPath, Pod, Secret,
    SecretProjection, Volume,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

/// Mode of a projected file where the pod does not say.
const FILE_MODE: u32 = 0o644;
/// How long a service account token is valid where the pod does not say, in seconds.
const TOKEN_SECS: i64 = 3600;

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
) -> Result<Volumes, (String, String)> {
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
fn replace(dir: &PodDir, volume: &Volume, files: Result<Files, String>) {
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
) -> Result<PathBuf, String> {
    let own = place.dir.volume(&volume.name);
    let directory = |path: PathBuf| fs::create_dir_all(&path).map(|()| path.clone()).map_err(|e| io_text(&path, &e));
    if let Some(files) = projected_files(pod, facts, sources, tokens, volume) {
        write_atomically(&own, &files?).map_err(|e| io_text(&own, &e))?;
        return Ok(own);
    }
    if let Some(source) = &volume.empty_dir {
        let path = directory(own)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(|e| io_text(&path, &e))?;
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
    Err("this kind of volume is not available to pods that run as processes (available: configMap, downwardAPI, \
         emptyDir, ephemeral, hostPath, persistentVolumeClaim, projected, secret)"
        .to_owned())
}

/// The directory that stands for a persistent volume claim on this machine.
pub fn claim(data: &Path, namespace: &str, name: &str) -> PathBuf {
    data.join("claims").join(namespace).join(name)
}

fn io_text(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn host_path(path: PathBuf, kind: &str) -> Result<PathBuf, String> {
    let text = |e: io::Error| io_text(&path, &e);
    let wrong = |what: &str| Err(format!("hostPath type check failed: {} is not {what}", path.display()));
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

/// Contents and mode by path in the volume.
type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// The files of a volume that is made of objects; `None` for any other volume.
fn projected_files(
    pod: &Pod,
    facts: &Facts,
    sources: &Sources,
    tokens: &Tokens,
    volume: &Volume,
) -> Option<Result<Files, String>> {
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
                format!("references non-existent secret key: {name}")
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
                None => Err("no service account token".to_owned()),
            }
        } else {
            Err("this kind of projection is not available to pods that run as processes".to_owned())
        };
        match added {
            Ok(added) => files.extend(added),
            Err(why) => return Some(Err(why)),
        }
    }
    Some(Ok(files))
}

fn config_map_files(source: &ConfigMapVolumeSource, map: Option<&ConfigMap>) -> Result<Files, String> {
    let (optional, mode) = (source.optional == Some(true), mode(source.default_mode));
    select(&config_map_data(map), source.items.as_deref(), optional, mode, || {
        format!("configmap references non-existent config key: {}", source.name)
    })
}

fn mode(given: Option<i32>) -> u32 {
    given.and_then(|m| u32::try_from(m).ok()).unwrap_or(FILE_MODE)
}

fn config_map_part(sources: &Sources, part: &ConfigMapProjection, mode: u32) -> Result<Files, String> {
    let optional = part.optional == Some(true);
    let map = sources.config_map(&part.name, optional)?;
    select(&config_map_data(map), part.items.as_deref(), optional, mode, || {
        format!("configmap references non-existent config key: {}", part.name)
    })
}

fn secret_part(sources: &Sources, part: &SecretProjection, mode: u32) -> Result<Files, String> {
    let optional = part.optional == Some(true);
    let secret = sources.secret(&part.name, optional)?;
    select(&secret_data(secret), part.items.as_deref(), optional, mode, || {
        format!("references non-existent secret key: {}", part.name)
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
    missing: impl Fn() -> String,
) -> Result<Files, String> {
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
) -> Result<Files, String> {
    let mut files = Files::new();
    for item in items.unwrap_or_default() {
        let text = if let Some(source) = &item.field_ref {
            fields::field(pod, facts, &source.field_path)
                .ok_or_else(|| format!("unsupported fieldPath: {}", source.field_path))?
        } else if let Some(source) = &item.resource_field_ref {
            let container = source.container_name.as_deref().and_then(|name| find_container(pod, name));
            container
                .and_then(|container| fields::resource(container, facts, source))
                .ok_or_else(|| format!("unsupported resource: {}", source.resource))?
        } else {
            String::new()
        };
        let mode = item.mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(default);
        files.insert(item.path.clone(), (text.into_bytes(), mode));
    }
    Ok(files)
}

/// Replaces the contents of `dir` by these files, all at once; does nothing if they are there already.
fn write_atomically(dir: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let data = dir.join("..data");
    let old = fs::read_link(&data).ok();
    if old.is_some() && is_there(&data, files)? {
        return Ok(());
    }
    let now = clock::now();
    let name = format!("..{}.{:09}", now.strftime("%Y_%m_%d_%H_%M_%S"), now.subsec_nanosecond());
    let new = dir.join(&name);
    fs::create_dir(&new)?;
    for (path, (bytes, mode)) in files {
        let path = new.join(safe(path)?);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
    }
    let switch = dir.join("..data_tmp");
    let _ = fs::remove_file(&switch);
    symlink(&name, &switch)?;
    fs::rename(&switch, &data)?;
    let tops: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let link = dir.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(top), &link)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let known = file_name.to_str().is_some_and(|n| n.starts_with("..") || tops.contains(n));
        if !known {
            fs::remove_file(entry.path())?;
        }
    }
    if let Some(old) = old {
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(())
}

fn is_there(data: &Path, files: &Files) -> io::Result<bool> {
    fn count(dir: &Path) -> io::Result<usize> {
        fs::read_dir(dir)?.try_fold(0, |sum, entry| {
            let entry = entry?;
            Ok(sum + if entry.file_type()?.is_dir() { count(&entry.path())? } else { 1 })
        })
    }
    let same = |(path, (bytes, _)): (&String, &(Vec<u8>, u32))| {
        crate::files::read(&data.join(path), u64::MAX).is_ok_and(|b| b == *bytes)
    };
    Ok(files.iter().all(same) && count(data).unwrap_or(usize::MAX) == files.len())
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
pub fn mounts(volumes: &Volumes, container: &Container, env: &Environment) -> Result<Vec<Mount>, String> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let base = volumes.paths.get(&mount.name).ok_or_else(|| format!("volume {:?} not found", mount.name))?;
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

fn sub_directory(base: &Path, sub_path: &str) -> Result<PathBuf, String> {
    let wrong = || format!("subPath {sub_path:?} must stay inside its volume");
    let path = base.join(safe(sub_path.trim_end_matches('/')).map_err(|_| wrong())?);
    if !path.exists() {
        fs::create_dir_all(&path).map_err(|e| io_text(&path, &e))?;
    }
    let real = path.canonicalize().map_err(|e| io_text(&path, &e))?;
    let base = base.canonicalize().map_err(|e| io_text(base, &e))?;
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
        assert_eq!(missing, ("cm".to_owned(), "configmap \"cm\" not found".to_owned()));
    }
}
