//! Files and buckets that a task finds on its machines.

use crate::error::TaskError;
use crate::schema::{self, Reader};
use crate::shapes::shape;
use crate::value::{Map, Value};

/// How a bucket comes to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a file system.
    Mount,
    /// As files, copied once.
    Copy,
    /// As a file system that writes back later.
    MountCached,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Mount => "MOUNT",
            Self::Copy => "COPY",
            Self::MountCached => "MOUNT_CACHED",
        }
    }
}

/// What a task mounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mounts {
    /// Target and source: a path of this machine, or the URL of a bucket or a file.
    pub files: Vec<(String, String)>,
    /// Target and bucket.
    pub buckets: Vec<(String, Bucket)>,
    /// Disks of a cloud: they belong to the resources.
    pub disks: Vec<Value>,
}

/// A bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// How it comes to the machine.
    pub mode: Mode,
    /// As a file for the server has it.
    pub config: Map,
}

/// The schemes of buckets.
const CLOUD_STORES: [&str; 10] = ["s3", "gs", "https", "cos", "r2", "oci", "nebius", "cw", "vastdata", "hf"];

/// Whether a text is the URL of something in a cloud.
pub fn is_cloud_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| CLOUD_STORES.contains(&scheme))
}

impl Mounts {
    /// Reads `file_mounts`.
    ///
    /// # Errors
    /// For a source that is neither a text nor a storage object, or a storage object that asks for what does not go together.
    pub fn read(config: Map, reader: Reader) -> Result<Self, TaskError> {
        let mut mounts = Self::default();
        let mut buckets = Vec::new();
        for (target, source) in config {
            let target = target.text();
            match source {
                Value::Str(source) => mounts.files.push((target, source)),
                Value::Map(storage) if storage.get("store").and_then(Value::as_str) == Some("volume") => {
                    mounts.add_disk(&target, &storage)
                }
                Value::Map(storage) => buckets.push((target, storage)),
                other => {
                    return Err(TaskError::value(format!("Unable to parse file_mount {target}:{}", other.text()))
                        .at("$.file_mounts"));
                }
            }
        }
        for (target, storage) in buckets {
            let bucket = Bucket::read(storage, reader)?;
            mounts.buckets.push((target, bucket));
        }
        Ok(mounts)
    }

    fn add_disk(&mut self, target: &str, storage: &Map) {
        let mut disk = Map::from_iter([("path", target)]);
        disk.insert_some("name", storage.get("name").filter(|name| name.is_truthy()).cloned());
        disk.insert("auto_delete", !storage.get("persistent").is_some_and(Value::is_truthy));
        if let Some(Value::Map(config)) = storage.get("config") {
            disk.extend(config.clone());
        }
        self.disks.push(Value::Map(disk));
        if let Some(source) = storage.get("source").filter(|source| source.is_truthy()) {
            self.files.push((format!("{}/data", target.trim_end_matches('/')), source.text()));
        }
    }

    /// Whether machines must be able to mount file systems of their users.
    pub fn requires_fuse(&self) -> bool {
        self.buckets.iter().any(|(_, bucket)| bucket.mode != Mode::Copy)
    }

    /// As a file for the server has them.
    pub fn write(&self) -> Map {
        let files = self.files.iter().map(|(target, source)| (target.clone(), Value::Str(source.clone())));
        let buckets = self.buckets.iter().map(|(target, bucket)| (target.clone(), Value::Map(bucket.config.clone())));
        files.chain(buckets).collect()
    }
}

impl Bucket {
    fn read(mut storage: Map, reader: Reader) -> Result<Self, TaskError> {
        schema::check(&storage, shape("storage"), reader)
            .map_err(|refusal| TaskError::refused(refusal, "Invalid storage YAML: ", "$.file_mounts"))?;
        let upper = |value: Option<Value>| value.map(|value| value.text().to_uppercase());
        let mode = match upper(storage.take("mode")).as_deref() {
            Some("COPY") => Mode::Copy,
            Some("MOUNT_CACHED") => Mode::MountCached,
            _ => Mode::Mount,
        };
        let kind = upper(storage.take("type"));
        let config = match storage.take("config") {
            Some(Value::Map(config)) => config,
            _ => Map::new(),
        };
        let (cached, plain) = (config.given("mount_cached"), config.given("mount"));
        let only = |what: &str, wanted: Mode| {
            TaskError::storage(format!(
                "{what} can only be specified when mode is {}. Got mode={}.",
                wanted.name(),
                mode.name()
            ))
        };
        if kind.is_some() && mode != Mode::MountCached {
            return Err(only("type", Mode::MountCached));
        }
        if cached.is_some() && mode != Mode::MountCached {
            return Err(only("config.mount_cached", Mode::MountCached));
        }
        if plain.is_some() && mode != Mode::Mount {
            return Err(only("config.mount", Mode::Mount));
        }
        let source = storage.take("source");
        let in_cloud = source.as_ref().and_then(Value::as_str).is_some_and(is_cloud_url);
        let mut out = Map::new();
        out.insert_some("name", storage.take("name").filter(|_| !in_cloud));
        out.insert_some("source", source);
        out.insert_some("store", upper(storage.take("store")));
        out.insert_some("_is_sky_managed", storage.take("_is_sky_managed"));
        out.insert("persistent", storage.take("persistent").unwrap_or(Value::Bool(true)));
        out.insert("mode", mode.name());
        out.insert_some("type", kind);
        out.insert_some("_force_delete", storage.take("_force_delete").filter(Value::is_truthy));
        out.insert_some("_bucket_sub_path", storage.take("_bucket_sub_path"));
        let settings = [("mount_cached", cached), ("mount", plain)].into_iter().filter_map(|(key, value)| {
            let given: Map = value?
                .as_map()?
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            (!given.is_empty()).then_some((key, Value::Map(given)))
        });
        out.insert_some("config", Some(settings.collect::<Map>()).filter(|settings| !settings.is_empty()));
        Ok(Self { mode, config: out })
    }
}
