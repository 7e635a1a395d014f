//! The code that `run` sends to the pods of a cluster: a script or a folder, in a ConfigMap that is mounted at [`MOUNT`].

use client::ClientError;
use client::codes::ErrorCode;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the files are in the pods; read-only.
pub(crate) const MOUNT: &str = "/mnt/trainyard";
/// Most bytes in a ConfigMap: Kubernetes' own limit.
const BYTES_MAX: u64 = 1 << 20;
/// Most files: the TrainJob names each of them, and the size of an object is limited.
const FILES_MAX: usize = 1000;
/// How many of the largest files are named if all of them are too large together.
const TOLD_MAX: usize = 3;
/// Folders that tools use for themselves, and that are no part of a program.
const IGNORED: [&str; 6] = [".git", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"];
/// The file that marks a folder as a virtual environment, whatever its name.
const ENVIRONMENT: &str = "pyvenv.cfg";
/// Permissions of files that can be executed, and of the others.
const MODES: (i64, i64) = (0o755, 0o644);

/// Files to send, by their paths in the pods below [`MOUNT`].
#[derive(Debug, Default)]
pub(crate) struct Bundle {
    files: BTreeMap<String, File>,
    /// Skipped items that the job may need.
    pub skipped: Vec<String>,
}

#[derive(Debug)]
struct File {
    source: PathBuf,
    bytes: u64,
    executable: bool,
}

impl Bundle {
    /// One script under its own name.
    ///
    /// Errors: the file cannot be read, or is larger than a ConfigMap may be.
    pub(crate) fn script(script: &Path) -> Result<Self, ClientError> {
        let mut bundle = Self::default();
        let metadata = std::fs::metadata(script).map_err(failed(script))?;
        let name = script.file_name().map(Path::new).unwrap_or(script);
        bundle.add(name, script, &metadata)?;
        bundle.fits(script)?;
        Ok(bundle)
    }

    /// All files of a folder, except those of tools ([`IGNORED`], virtual environments).
    ///
    /// Errors: something cannot be read, or the files are too large for a ConfigMap; the error names the largest.
    pub(crate) fn folder(folder: &Path) -> Result<Self, ClientError> {
        let mut bundle = Self::default();
        bundle.walk(folder, folder)?;
        bundle.fits(folder)?;
        Ok(bundle)
    }

    fn walk(&mut self, root: &Path, folder: &Path) -> Result<(), ClientError> {
        for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
            let path = entry.map_err(failed(folder))?.path();
            let inner = path.strip_prefix(root).expect("invariant: found below it");
            let is_link = path.is_symlink();
            if inner.to_string_lossy().starts_with("..") {
                self.skipped.push(format!("{}: Kubernetes keeps names that begin with .. for itself", inner.display()));
                continue;
            }
            let Ok(metadata) = std::fs::metadata(&path) else {
                self.skipped.push(format!("{}: a link that leads nowhere, or may not be followed", inner.display()));
                continue;
            };
            if metadata.is_dir() {
                let name = path.file_name().unwrap_or_default();
                if IGNORED.iter().any(|ignored| name == *ignored) || path.join(ENVIRONMENT).exists() || name == ".venv"
                {
                    continue;
                }
                if is_link {
                    self.skipped.push(format!("{}: a link to a folder", inner.display()));
                    continue;
                }
                self.walk(root, &path)?;
            } else if metadata.is_file() {
                self.add(inner, &path, &metadata)?;
                if self.files.len() > FILES_MAX {
                    return Err(ClientError::Usage(
                        ErrorCode::CodeTooLarge,
                        format!(
                            "{} has more than {FILES_MAX} files, too many to send to the cluster's pods; {}",
                            root.display(),
                            INSTEAD
                        ),
                    ));
                }
            } else {
                self.skipped.push(format!("{}: neither file nor folder", inner.display()));
            }
        }
        Ok(())
    }

    fn add(&mut self, inner: &Path, source: &Path, metadata: &std::fs::Metadata) -> Result<(), ClientError> {
        let Some(path) = inner.to_str() else {
            return Err(ClientError::Usage(
                ErrorCode::CodeTooLarge,
                format!("{} has a name that is not UTF-8: rename it", source.display()),
            ));
        };
        let executable = metadata.permissions().mode() & 0o111 != 0;
        let file = File { source: source.to_owned(), bytes: metadata.len(), executable };
        self.files.insert(path.to_owned(), file);
        Ok(())
    }

    fn fits(&self, what: &Path) -> Result<(), ClientError> {
        if self.bytes() <= BYTES_MAX {
            return Ok(());
        }
        let mut largest: Vec<(&String, u64)> = self.files.iter().map(|(path, file)| (path, file.bytes)).collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let told: Vec<String> = largest
            .iter()
            .take(TOLD_MAX)
            .map(|(path, bytes)| format!("{path} ({})", ::files::size_shown(*bytes)))
            .collect();
        Err(ClientError::Usage(
            ErrorCode::CodeTooLarge,
            format!(
                "{} is {} in {}: a cluster's pods can be sent {} (what a ConfigMap holds); the largest: {}; {INSTEAD}",
                what.display(),
                ::files::size_shown(self.bytes()),
                files(self.files.len()),
                ::files::size_shown(BYTES_MAX),
                told.join(", "),
            ),
        ))
    }

    fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }

    /// `3 files, 1.2 KiB`.
    pub(crate) fn summary(&self) -> String {
        format!("{}, {}", files(self.files.len()), ::files::size_shown(self.bytes()))
    }

    /// Each file's key in the ConfigMap: its path, with `_` for characters that a key may not have, and a number if two keys are equal.
    fn keys(&self) -> BTreeMap<String, &String> {
        let mut keys: BTreeMap<String, &String> = BTreeMap::new();
        for path in self.files.keys() {
            let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
            let mut stem: String = path.chars().map(allowed).collect();
            // a key ends at 253 characters and is none of `.`, `..`, `..data`
            stem = stem.split_off(stem.len().saturating_sub(200));
            if stem.starts_with('.') {
                stem.insert(0, '_');
            }
            let mut key = stem.clone();
            for number in 2.. {
                if !keys.contains_key(&key) {
                    break;
                }
                key = format!("{stem}.{number}");
            }
            keys.insert(key, path);
        }
        keys
    }

    /// The ConfigMap; the server makes its name from `stem`. Text stays text, so that people can read it.
    ///
    /// Errors: a file cannot be read, or is now too large.
    pub(crate) fn config_map(&self, stem: &str) -> Result<ConfigMap, ClientError> {
        let mut map = ConfigMap { immutable: Some(true), ..ConfigMap::default() };
        map.metadata.generate_name = Some(format!("{stem}-code-"));
        map.metadata.labels =
            Some(BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "trainyard".to_owned())]));
        let (mut text, mut binary) = (BTreeMap::new(), BTreeMap::new());
        for (key, path) in self.keys() {
            let source = &self.files[path].source;
            match String::from_utf8(std::fs::read(source).map_err(failed(source))?) {
                Ok(content) => {
                    text.insert(key, content);
                }
                Err(not_text) => {
                    binary.insert(key, ByteString(not_text.into_bytes()));
                }
            }
        }
        map.data = Some(text).filter(|text| !text.is_empty());
        map.binary_data = Some(binary).filter(|binary| !binary.is_empty());
        Ok(map)
    }

    /// The pods' volume with the files at their paths.
    pub(crate) fn volume(&self, name: &str, config_map: &str) -> Value {
        let item = |(key, path): (String, &String)| {
            let mode = if self.files[path].executable { MODES.0 } else { MODES.1 };
            json!({"key": key, "path": path, "mode": mode})
        };
        let items: Vec<Value> = self.keys().into_iter().map(item).collect();
        json!({"name": name, "configMap": {"name": config_map, "items": items}})
    }
}

const INSTEAD: &str = "send a smaller folder (--workdir DIR), or put the rest into the pods' image (--image) or a volume of \
the runtime";

fn failed(path: &Path) -> impl Fn(std::io::Error) -> ClientError {
    move |source| ClientError::Io { doing: "read", path: path.to_owned(), source }
}

pub fn files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary folder, removed with the value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
            let root = std::env::temp_dir().join(format!("trainyard-ship-{name}-{}", std::process::id()));
            for (path, content) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, content).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_sent_without_what_tools_keep_there() {
        let folder = Folder::new(
            "folder",
            &[
                ("train.py", b"print(1)\n"),
                ("pkg/deep/a.py", b"a"),
                ("pkg_deep/a.py", b"b"),
                ("weights.bin", b"\xff\x00"),
                ("run me.sh", b"#!/bin/sh\n"),
                ("..odd", b"x"),
                (".hidden", b"x"),
                (".git/HEAD", b"x"),
                ("pkg/__pycache__/a.pyc", b"x"),
                (".venv/x", b"x"),
                ("my-env/pyvenv.cfg", b"x"),
            ],
        );
        let executable = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.0.join("run me.sh"), executable).unwrap();
        std::os::unix::fs::symlink(folder.0.join("pkg"), folder.0.join("again")).unwrap();
        std::os::unix::fs::symlink("nowhere", folder.0.join("dangling")).unwrap();
        std::os::unix::fs::symlink("train.py", folder.0.join("link.py")).unwrap();
        let bundle = Bundle::folder(&folder.0).unwrap();
        let map = bundle.config_map("train").unwrap();
        let (text, binary) = (map.data.unwrap(), map.binary_data.unwrap());
        assert_eq!(text["pkg_deep_a.py"], "a");
        assert_eq!(text["pkg_deep_a.py.2"], "b");
        assert_eq!(text["link.py"], text["train.py"]);
        assert_eq!(binary["weights.bin"].0, b"\xff\x00");
        let volume = bundle.volume("code", "train-code-x");
        let items = volume["configMap"]["items"].as_array().unwrap();
        let paths: Vec<&str> = items.iter().map(|item| item["path"].as_str().unwrap()).collect();
        assert_eq!(paths.len(), 7, "{paths:?}");
        for item in [
            json!({"key": "pkg_deep_a.py.2", "path": "pkg_deep/a.py", "mode": 0o644}),
            json!({"key": "run_me.sh", "path": "run me.sh", "mode": 0o755}),
            json!({"key": "_.hidden", "path": ".hidden", "mode": 0o644}),
        ] {
            assert!(items.contains(&item), "{item} in {volume}");
        }
        let mut skipped = bundle.skipped;
        skipped.sort();
        assert_eq!(skipped.len(), 3, "{skipped:?}");
        assert!(skipped[1].starts_with("again: a link to a folder"), "{skipped:?}");
    }

    #[test]
    fn what_does_not_fit_is_told_with_figures() {
        let large = vec![b'x'; 900 << 10];
        let folder = Folder::new("large", &[("a.bin", &large), ("b/c.bin", &large), ("d", b"")]);
        let error = Bundle::folder(&folder.0).unwrap_err().to_string();
        assert!(error.contains("is 1.8 MiB in 3 files"), "{error}");
        assert!(error.contains("can be sent 1.0 MiB"), "{error}");
        assert!(error.contains("the largest: a.bin (900.0 KiB), b/c.bin (900.0 KiB), d (0 B)"), "{error}");
        assert_eq!(Bundle::script(&folder.0.join("a.bin")).unwrap().summary(), "1 file, 900.0 KiB");
    }

    #[test]
    fn too_many_files_are_told() {
        let names: Vec<String> = (0..=FILES_MAX).map(|n| format!("f{n}")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        let folder = Folder::new("many", &files);
        assert!(Bundle::folder(&folder.0).unwrap_err().to_string().contains("more than 1000 files"));
    }
}
