//! `cargo xtask image`: writes a container image as an OCI archive, without a daemon.
//!
//! The image contains only the binary and its bill of materials: no shell, no libraries, no /tmp. The same binaries at
//! the same commit give the same bytes. The image for initializers has certificates, too, and the binary under the names by which
//! upstream's image is called: `python -m pkg.initializers.dataset`, also through `bash -c`.

use crate::{elf, sbom};
use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tar::EntryType;

/// Without any rights of its own; what manifests/ run it as.
const USER: &str = "65532:65532";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What to build.
#[derive(clap::Args)]
pub struct Options {
    /// A static binary; more than one, of different machines, make one image for all of them [default: built first]
    #[arg(long)]
    binary: Vec<PathBuf>,
    /// Where the archive goes [default: target/image/trainyard.tar]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Name and tag [default: trainyard:VERSION, trainyard-initializer:VERSION]
    #[arg(long)]
    tag: Option<String>,
    /// The image for initializers: data sets and models
    #[arg(long)]
    initializer: bool,
    /// With --initializer: the certificates of trusted authorities
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt")]
    certificates: PathBuf,
}

/// The names under which the binary stands in for the programs of upstream's image of initializers.
const STAND_INS: [&str; 5] = ["bash", "initializer", "python", "python3", "sh"];

/// What every image of one run has in common.
struct Identity {
    tag: String,
    version: String,
    /// Commit, and whether something was changed since.
    revision: String,
    /// Seconds since 1970: `SOURCE_DATE_EPOCH`, or the commit's time.
    created: u64,
    sbom: String,
    /// Of the image for initializers: whom it trusts.
    certificates: Option<Vec<u8>>,
}

/// Builds the archive and prints its path.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let mut paths = options.binary.clone();
    if paths.is_empty() {
        paths.push(build(root)?);
    }
    let binaries = paths.iter().map(|path| binary(path)).collect::<Result<Vec<_>>>()?;
    let (document, version) = sbom::document(root)?;
    let identity = Identity {
        tag: options
            .tag
            .clone()
            .unwrap_or_else(|| format!("trainyard{}:{version}", if options.initializer { "-initializer" } else { "" })),
        certificates: options.initializer.then(|| read(&options.certificates)).transpose()?,
        version,
        revision: git(root, &["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])?,
        created: created(root)?,
        sbom: document,
    };
    let name = if options.initializer { "initializer" } else { "trainyard" };
    let out = options.out.clone().unwrap_or_else(|| root.join(format!("target/image/{name}.tar")));
    if let Some(folder) = out.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    std::fs::write(&out, archive(&binaries, &identity)?).with_context(|| format!("writing {}", out.display()))?;
    println!("{}", out.display());
    Ok(())
}

/// Builds the binary for this machine, linked with musl, without a trace of where it was built.
fn build(root: &Path) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let folder = root.join("target/image");
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let remaps = [(Some(root.to_owned()), "/src"), (cargo_home, "/cargo")];
    let remaps: Vec<(String, &str)> =
        remaps.into_iter().filter_map(|(from, to)| Some((from?.display().to_string(), to))).collect();
    let flags: Vec<String> = remaps.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    let for_c: Vec<String> = remaps.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).collect();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--package", "trainyard", "--target", &target, "--target-dir"])
        .arg(&folder)
        .current_dir(root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CFLAGS", for_c.join(" "))
        .status()
        .context("running cargo build")?;
    ensure!(
        status.success(),
        "the static binary was not built; it needs `rustup target add {target}` and musl-gcc (on Debian: musl-tools)"
    );
    Ok(folder.join(target).join("release/trainyard"))
}

/// A binary and the machine that it is for.
struct Binary {
    architecture: &'static str,
    bytes: Vec<u8>,
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}

fn binary(path: &Path) -> Result<Binary> {
    let bytes = read(path)?;
    let elf = elf::read(&bytes).with_context(|| format!("{} is no program for Linux", path.display()))?;
    if let Some(interpreter) = elf.interpreter {
        anyhow::bail!(
            "{} needs {interpreter}, and nothing is in the image but the binary: give a static one \
             (cargo build --release --package trainyard --target {}-unknown-linux-musl), or none, and it is built",
            path.display(),
            std::env::consts::ARCH
        );
    }
    Ok(Binary { architecture: elf.architecture, bytes })
}

fn created(root: &Path) -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => git(root, &["log", "-1", "--format=%ct"])?,
    };
    text.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text:?} is not a number of seconds"))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("running git")?;
    ensure!(output.status.success(), "git {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The files of an OCI layout, as they are made.
struct Layout(Vec<(String, Vec<u8>)>);

impl Layout {
    /// Adds a blob, and returns what others say of it.
    fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest(&bytes);
        let size = bytes.len();
        let name = format!("blobs/sha256/{digest}");
        if !self.0.iter().any(|(held, _)| *held == name) {
            self.0.push((name, bytes));
        }
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size})
    }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The whole archive: an OCI layout, which `docker load`, too, can read.
fn archive(binaries: &[Binary], identity: &Identity) -> Result<Vec<u8>> {
    let mut layout = Layout(Vec::new());
    let mut manifests = Vec::new();
    let mut loads = Vec::new();
    for binary in binaries {
        let (manifest, load) = image(&mut layout, binary, identity)?;
        manifests.push(manifest);
        loads.push(load);
    }
    let mut top = match manifests.as_slice() {
        [one] => one.clone(),
        _ => {
            let all = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
            layout.add(INDEX, serde_json::to_vec(&all)?)
        }
    };
    let (_, tag) = identity.tag.rsplit_once(':').with_context(|| format!("--tag {}: no tag", identity.tag))?;
    top["annotations"] = json!({"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": identity.tag});
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]});

    let mut files = Archive::new(identity.created);
    for folder in ["blobs", "blobs/sha256"] {
        files.folder(folder)?;
    }
    layout.0.sort();
    for (name, bytes) in &layout.0 {
        files.file(name, 0o644, bytes)?;
    }
    files.file("index.json", 0o644, &serde_json::to_vec(&index)?)?;
    files.file("manifest.json", 0o644, &serde_json::to_vec(&loads)?)?;
    files.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    files.finish()
}

/// Adds the image for one machine; returns its descriptor, and the entry of `docker load`'s list.
fn image(layout: &mut Layout, binary: &Binary, identity: &Identity) -> Result<(Value, Value)> {
    let mut files = Archive::new(identity.created);
    if let Some(certificates) = &identity.certificates {
        files.folder("bin")?;
        for name in STAND_INS {
            files.link(&format!("bin/{name}"), "/trainyard")?;
        }
        for folder in ["etc", "etc/ssl", "etc/ssl/certs"] {
            files.folder(folder)?;
        }
        files.file("etc/ssl/certs/ca-certificates.crt", 0o644, certificates)?;
    }
    files.file("sbom.cdx.json", 0o644, identity.sbom.as_bytes())?;
    files.file("trainyard", 0o755, &binary.bytes)?;
    let files = files.finish()?;
    let unpacked = digest(&files);
    let mut packed = GzBuilder::new().mtime(0).write(Vec::new(), Compression::new(6));
    packed.write_all(&files)?;
    let layer = layout.add(LAYER, packed.finish()?);

    let labels = json!({
        "org.opencontainers.image.title": "trainyard",
        "org.opencontainers.image.description": "Distributed training: Kubeflow Trainer's API, operator and laptop mode",
        "org.opencontainers.image.version": identity.version,
        "org.opencontainers.image.revision": identity.revision,
        "org.opencontainers.image.licenses": "Apache-2.0",
    });
    let program = if identity.certificates.is_some() { "/bin/initializer" } else { "/trainyard" };
    let created = Timestamp::from_second(identity.created.try_into()?)?.to_string();
    let config = json!({
        "created": created,
        "architecture": binary.architecture,
        "os": "linux",
        "config": {"User": USER, "Entrypoint": [program], "Env": ["PATH=/bin"], "WorkingDir": "/", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{unpacked}")]},
        "history": [{"created": created, "created_by": "cargo xtask image"}],
    });
    let config = layout.add(CONFIG, serde_json::to_vec(&config)?);
    let load = json!({"Config": blob(&config), "RepoTags": [identity.tag], "Layers": [blob(&layer)]});
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
        "annotations": labels});
    let mut manifest = layout.add(MANIFEST, serde_json::to_vec(&manifest)?);
    manifest["platform"] = json!({"architecture": binary.architecture, "os": "linux"});
    Ok((manifest, load))
}

/// The path of a blob in the archive.
fn blob(descriptor: &Value) -> String {
    descriptor["digest"].as_str().unwrap_or_default().replacen("sha256:", "blobs/sha256/", 1)
}

/// An archive in which everything is root's, and of one age: nothing of the machine that writes it.
struct Archive {
    files: tar::Builder<Vec<u8>>,
    /// Seconds since 1970.
    modified: u64,
}

impl Archive {
    fn new(modified: u64) -> Self {
        Self { files: tar::Builder::new(Vec::new()), modified }
    }

    fn file(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
        self.entry(name, EntryType::Regular, mode, contents)
    }

    fn folder(&mut self, name: &str) -> Result<()> {
        self.entry(&format!("{name}/"), EntryType::Directory, 0o755, &[])
    }

    fn link(&mut self, name: &str, to: &str) -> Result<()> {
        let mut header = self.header(EntryType::Symlink, 0o777);
        header.set_size(0);
        self.files.append_link(&mut header, name, to).with_context(|| format!("adding {name} to the archive"))
    }

    fn header(&self, kind: EntryType, mode: u32) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(self.modified);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    fn entry(&mut self, name: &str, kind: EntryType, mode: u32, contents: &[u8]) -> Result<()> {
        let mut header = self.header(kind, mode);
        header.set_size(contents.len().try_into()?);
        self.files.append_data(&mut header, name, contents).with_context(|| format!("adding {name} to the archive"))
    }

    fn finish(self) -> Result<Vec<u8>> {
        Ok(self.files.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::io::Read;

    fn identity() -> Identity {
        Identity {
            tag: "trainyard:1.2.3".to_owned(),
            version: "1.2.3".to_owned(),
            revision: "abc".to_owned(),
            created: 1_700_000_000,
            sbom: "{}".to_owned(),
            certificates: None,
        }
    }

    fn made(architecture: &'static str) -> Binary {
        Binary { architecture, bytes: format!("a program for {architecture}").into_bytes() }
    }

    /// Follows a descriptor, and checks that it says the truth.
    fn follow<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let bytes = &files[&blob(descriptor)];
        assert_eq!(descriptor["digest"], format!("sha256:{}", digest(bytes)));
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    /// The files of an archive by name.
    fn unpacked(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let files =
            archive.entries().unwrap().map(Result::unwrap).filter(|entry| entry.header().entry_type().is_file());
        let read = |mut entry: tar::Entry<'_, &[u8]>| {
            let header = entry.header();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 1_700_000_000));
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            (entry.path().unwrap().display().to_string(), contents)
        };
        files.map(read).collect()
    }

    fn json_of(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn the_image_for_initializers_answers_to_upstreams_commands() {
        let identity = Identity { certificates: Some(b"CERTIFICATES".to_vec()), ..identity() };
        let bytes = archive(&[made("amd64")], &identity).unwrap();
        let files = unpacked(&bytes);
        let manifest = json_of(follow(&files, &json_of(&files["index.json"])["manifests"][0]));
        let config = json_of(follow(&files, &manifest["config"]));
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/initializer"]));
        let mut layer = Vec::new();
        let packed = follow(&files, &manifest["layers"][0]);
        flate2::read::GzDecoder::new(packed).read_to_end(&mut layer).unwrap();
        assert_eq!(unpacked(&layer)["etc/ssl/certs/ca-certificates.crt"], b"CERTIFICATES");
        let mut layer = tar::Archive::new(layer.as_slice());
        let links = layer.entries().unwrap().map(Result::unwrap).filter_map(|entry| {
            let to = entry.link_name().unwrap()?.display().to_string();
            Some((entry.path().unwrap().display().to_string(), to))
        });
        let expected = STAND_INS.map(|name| (format!("bin/{name}"), "/trainyard".to_owned()));
        assert_eq!(links.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_image_is_whole_and_the_same_each_time() {
        let bytes = archive(&[made("amd64")], &identity()).unwrap();
        assert_eq!(bytes, archive(&[made("amd64")], &identity()).unwrap());
        let files = unpacked(&bytes);
        assert_eq!(json_of(&files["oci-layout"])["imageLayoutVersion"], "1.0.0");
        let index = json_of(&files["index.json"]);
        assert_eq!(index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
        let manifest = json_of(follow(&files, &index["manifests"][0]));
        let config = json_of(follow(&files, &manifest["config"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        let mut layer = Vec::new();
        let packed = follow(&files, &manifest["layers"][0]);
        flate2::read::GzDecoder::new(packed).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", digest(&layer))]));
        let held = unpacked(&layer);
        assert_eq!(held["trainyard"], made("amd64").bytes);
        assert_eq!(held.keys().collect::<Vec<_>>(), ["sbom.cdx.json", "trainyard"]);
        let load = json_of(&files["manifest.json"]);
        assert!(files.contains_key(load[0]["Config"].as_str().unwrap()));
        assert!(files.contains_key(load[0]["Layers"][0].as_str().unwrap()));
    }

    #[test]
    fn one_image_may_be_for_several_machines() {
        let bytes = archive(&[made("amd64"), made("arm64")], &identity()).unwrap();
        let files = unpacked(&bytes);
        let index = json_of(&files["index.json"]);
        let all = json_of(follow(&files, &index["manifests"][0]));
        for (i, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            assert_eq!(all["manifests"][i]["platform"]["architecture"], architecture);
            let manifest = json_of(follow(&files, &all["manifests"][i]));
            assert_eq!(json_of(follow(&files, &manifest["config"]))["architecture"], architecture);
        }
    }
}
