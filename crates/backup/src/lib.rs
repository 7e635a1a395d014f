//! A home as one file. [`back_up`] writes it, whether a control plane runs or not; [`restore`] replaces a home's data with it.
//!
//! The file is a tar archive, compressed with gzip: `backup.json` (a description), `store.db` (all objects as of one moment), the identity
//! of the home (keys, tokens, ports, the node's name), and the leftovers of jobs (`metrics/`, `history/`, `managed/`). It does not
//! contain running processes.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))] // they panic on a full disk

mod error;

pub use error::BackupError;

use client::codes::ErrorCode;
use client::{Choice, ClientError, Cluster, Home};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Version of the archive's layout.
const FORMAT: u32 = 1;
const DESCRIPTION: &str = "backup.json";
const DATABASE: &str = "store.db";
/// Files by which clients and pods identify a home.
const FILES: [&str; 7] =
    ["token", "serviceaccounts.key", "pki/ca.crt", "pki/ca.key", "port", "status-port", "node/node-name"];
/// Folders of the leftovers of jobs.
const FOLDERS: [&str; 3] = ["metrics", "history", "managed"];
/// The folder of a restore in progress; while it exists, the home is incomplete.
const UNFINISHED: &str = "restore-unfinished";
/// In that folder: the files that are not yet in their places.
const GATHERED: &str = "files";
/// In that folder: a note that the old database has been moved aside.
const KEPT: &str = "old-database-kept";

/// The description of an archive.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Description {
    format: u32,
    /// Of the program that made it.
    version: String,
    /// Seconds since 1970.
    created: i64,
    home: PathBuf,
}

/// How to make a backup.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Overwrites an existing file.
    pub replaces: bool,
    /// Includes the leftovers of jobs, which may be large.
    pub history: bool,
}

/// Writes the home to a file, through the control plane if one runs. Returns the file's size in bytes.
///
/// # Errors
/// The home has nothing to back up, the file exists, or something cannot be read or written. No partial file stays.
pub async fn back_up(home: &Home, file: &Path, options: Options) -> Result<u64, BackupError> {
    let exists_already = || BackupError::OutputExists { file: file.to_owned() };
    if file.exists() && !options.replaces {
        return Err(exists_already());
    }
    if !home.root().join(DATABASE).exists() {
        return Err(BackupError::NothingThere { home: home.root().to_owned() });
    }
    refuse_unfinished(home)?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let failed = |source| cannot("write", file, source);
    let out = Unnamed::new(folder).map_err(failed)?;
    let database = copy_database(home, folder).await?;
    let packed = pack(options, home, out.file.try_clone().map_err(failed)?, database);
    packed.and_then(|()| out.name(file, options.replaces)).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => exists_already(),
        _ => failed(source),
    })?;
    Ok(fs::metadata(file).map_or(0, |metadata| metadata.len()))
}

/// Refuses a home whose restore is incomplete: some of its files are those of a backup.
///
/// # Errors
/// The home is such a home.
pub fn refuse_unfinished(home: &Home) -> Result<(), BackupError> {
    if !home.root().join(UNFINISHED).exists() {
        return Ok(());
    }
    Err(BackupError::RestoreUnfinished { home: home.root().to_owned() })
}

/// A file that gets its name once it is complete. So no program meets half of it, and a killed process leaves nothing.
struct Unnamed {
    file: File,
    /// Its temporary name, if the file system does not support files without names.
    stand_in: Option<PathBuf>,
}

impl Unnamed {
    /// A new file in this folder's file system, for its owner alone.
    fn new(folder: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        match options.clone().custom_flags(nix::libc::O_TMPFILE).open(folder) {
            Ok(file) => Ok(Self { file, stand_in: None }),
            // a kernel or a file system that does not know the flag answers "is a directory"
            Err(error) if matches!(error.raw_os_error(), Some(nix::libc::EOPNOTSUPP | nix::libc::EISDIR)) => {
                let path = beside(folder);
                let file = options.create_new(true).open(&path)?;
                Ok(Self { file, stand_in: Some(path) })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the file its name, durably. A file that already has the name is replaced, or an error.
    fn name(self, path: &Path, replaces: bool) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        // a link names a file only if the name is free; only a rename takes a name from another file
        let other = beside(folder);
        self.link(if replaces { &other } else { path })?;
        if replaces && let Err(error) = fs::rename(&other, path) {
            let _ = fs::remove_file(&other); // the first error says why
            return Err(error);
        }
        sync(folder)
    }

    fn link(&self, path: &Path) -> io::Result<()> {
        if let Some(stand_in) = &self.stand_in {
            return fs::hard_link(stand_in, path);
        }
        let here = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let (cwd, follow) = (nix::fcntl::AT_FDCWD, nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW);
        Ok(nix::unistd::linkat(cwd, here.as_str(), cwd, path, follow)?)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(path) = &self.stand_in {
            let _ = fs::remove_file(path);
        }
    }
}

/// The control plane that runs in a home.
///
/// # Errors
/// None is ready.
pub async fn running(home: &Home) -> Result<Cluster, BackupError> {
    let Some(_running) = home.wait_running() else {
        return Err(BackupError::NotReady { home: home.root().to_owned() });
    };
    Ok(Cluster::existing(&Choice::of_home(home)).await?)
}

/// A copy of all objects as of one moment, as a nameless file in `folder` or in the home: from the control plane if one runs, else from the
/// database.
async fn copy_database(home: &Home, folder: &Path) -> Result<File, BackupError> {
    if let Some(lock) = home.try_lock()? {
        let path = home.root().join(DATABASE);
        // the server writes its copies there, too
        let to = with_suffix(&path, ".backup");
        let copied = tokio::task::spawn_blocking(move || {
            let copied = store::back_up_closed(&path, &to).map_err(|source| BackupError::Database { path, source });
            let file = copied.and_then(|_| File::open(&to).map_err(|source| cannot("open", &to, source)));
            let _ = fs::remove_file(&to); // it may never have been made
            drop(lock);
            file
        });
        return copied.await.expect("copying a database does not panic");
    }
    let cluster = running(home).await?;
    let request = http::Request::get("/trainyard/backup").body(kube::client::Body::empty()).expect("a plain request");
    let api = |error: kube::Error| {
        ClientError::Api(ErrorCode::BackupFailed, format!("the control plane cannot make a backup: {error}"))
    };
    let answer = cluster.client.send(request).await.map_err(api)?;
    let code = answer.status();
    let mut body = std::pin::pin!(http_body_util::BodyExt::into_data_stream(answer.into_body()));
    let failed = |source| cannot("write", folder, source);
    let mut out = Unnamed::new(folder).map_err(failed)?.file.try_clone().map_err(failed)?;
    while let Some(chunk) = body.try_next().await.map_err(api)? {
        out.write_all(&chunk).map_err(failed)?;
    }
    out.rewind().map_err(failed)?;
    if !code.is_success() {
        let mut text = String::new();
        out.take(1 << 16).read_to_string(&mut text).map_err(failed)?;
        let status = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or(&text);
        return Err(ClientError::Api(
            ErrorCode::BackupFailed,
            format!("the control plane cannot make a backup: {message}"),
        )
        .into());
    }
    Ok(out)
}

fn pack(options: Options, home: &Home, out: File, mut database: File) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
    let description = Description {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().as_second(),
        home: home.root().to_owned(),
    };
    append(&mut archive, Path::new(DESCRIPTION), &serde_json::to_vec_pretty(&description)?)?;
    let mut header = header(database.metadata()?.len());
    archive.append_data(&mut header, DATABASE, &mut database)?;
    for name in FILES {
        append_file(&mut archive, Path::new(name), &home.root().join(name))?;
    }
    if options.history {
        for folder in FOLDERS {
            append_folder(&mut archive, home.root(), Path::new(folder))?;
        }
    }
    let file = archive.into_inner()?.finish()?;
    file.sync_all()
}

/// A file at its present length. It may grow meanwhile, or be gone; neither is an error.
fn append_file(archive: &mut tar::Builder<impl Write>, name: &Path, path: &Path) -> io::Result<()> {
    match fs::read(path) {
        Ok(bytes) => append(archive, name, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn append(archive: &mut tar::Builder<impl Write>, name: &Path, bytes: &[u8]) -> io::Result<()> {
    archive.append_data(&mut header(bytes.len() as u64), name, bytes)
}

fn header(bytes: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header
}

fn append_folder(archive: &mut tar::Builder<impl Write>, root: &Path, name: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(root.join(name)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = name.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => append_folder(archive, root, &name)?,
            Ok(kind) if kind.is_file() => append_file(archive, &name, &entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

/// The contents of a restored backup.
#[derive(Clone, Debug)]
pub struct Restored {
    pub objects: usize,
    pub revision: u64,
    /// Of the program that made the backup.
    pub version: String,
    /// When it was made, in seconds since 1970.
    pub created: i64,
}

/// Replaces the data of a home with a backup. Before it changes the home, it reads the whole backup and checks its database.
///
/// # Errors
/// A control plane runs, the home has data and `replaces` is false, the file is not a backup, or something cannot be read or written.
pub fn restore(home: &Home, file: &Path, replaces: bool) -> Result<Restored, BackupError> {
    let busy = || BackupError::RestoreWhileRunning { home: home.root().to_owned() };
    if home.is_locked() {
        return Err(busy());
    }
    let staging = home.root().join(UNFINISHED);
    let has_data = home.root().join(DATABASE).exists() || staging.exists();
    if has_data && !replaces {
        return Err(BackupError::RestoreOverData { home: home.root().to_owned() });
    }
    let mut archive = File::open(file).map_err(|source| cannot("open", file, source))?;
    home.create()?;
    let _lock = home.try_lock()?.ok_or_else(busy)?;
    let gathering = with_suffix(&staging, ".new");
    let result = gather(&mut archive, &gathering, file);
    let (description, objects, revision) = match result {
        Ok(found) => found,
        Err(error) => {
            let _ = fs::remove_dir_all(&gathering); // it may never have been made
            return Err(error);
        }
    };
    exchange(home, &gathering, &staging).map_err(|source| cannot("write", home.root(), source))?;
    let Description { version, created, .. } = description;
    Ok(Restored { objects, revision, version, created })
}

/// Unpacks an archive into a new folder, and checks the files.
fn gather(archive: &mut File, into: &Path, file: &Path) -> Result<(Description, usize, u64), BackupError> {
    let not_ours = |what: String| BackupError::NotABackup { file: file.to_owned(), what };
    let failed = |source| cannot("write", into, source);
    if into.exists() {
        fs::remove_dir_all(into).map_err(failed)?;
    }
    folder(into).map_err(failed)?;
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let entries = archive.entries().map_err(|error| not_ours(error.to_string()))?;
    for entry in entries {
        let mut entry = entry.map_err(|error| not_ours(error.to_string()))?;
        let name = entry.path().map_err(|error| not_ours(error.to_string()))?.into_owned();
        if !entry.header().entry_type().is_file() || !is_known(&name) {
            return Err(not_ours(format!("it holds {}", name.display())));
        }
        let path = into.join(&name);
        folder(path.parent().unwrap_or(into)).map_err(failed)?;
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        io::copy(&mut entry, &mut out).map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem => failed(error),
            _ => not_ours(error.to_string()),
        })?;
        out.sync_all().map_err(failed)?;
    }
    let description = fs::read(into.join(DESCRIPTION)).map_err(|_| not_ours(format!("it has no {DESCRIPTION}")))?;
    let description: Description = serde_json::from_slice(&description).map_err(|error| not_ours(error.to_string()))?;
    if description.format != FORMAT {
        let Description { format, version, .. } = description;
        return Err(not_ours(format!(
            "trainyard {version} made it in format {format}, this version knows format {FORMAT}"
        )));
    }
    let database = into.join(DATABASE);
    let (objects, revision) =
        store::adopt(&database).map_err(|source| BackupError::Database { path: database, source })?;
    Ok((description, objects, revision))
}

/// Whether a file of this name belongs in a home.
fn is_known(name: &Path) -> bool {
    name.components().all(|part| matches!(part, Component::Normal(_)))
        && (name == Path::new(DESCRIPTION)
            || name == Path::new(DATABASE)
            || FILES.iter().any(|file| name == Path::new(file))
            || FOLDERS.iter().any(|folder| name.starts_with(folder) && name != Path::new(folder)))
}

/// Puts the unpacked files in their places. If it is interrupted, the folder `staging` remains: `up` explains what to do, and a repeated
/// restore finds in it which data are still the old ones.
fn exchange(home: &Home, gathering: &Path, staging: &Path) -> io::Result<()> {
    folder(staging)?;
    sync(home.root())?;
    let files = staging.join(GATHERED);
    fs::remove_dir_all(&files).or_else(absent)?;
    put_in_place(gathering, &files)?;
    keep_database(home, staging)?;
    for name in FOLDERS.into_iter().filter(|name| files.join(name).exists()) {
        fs::remove_dir_all(home.root().join(name)).or_else(absent)?;
        put_in_place(&files.join(name), &home.root().join(name))?;
    }
    for name in FILES.into_iter().chain([DATABASE]).filter(|name| files.join(name).exists()) {
        let to = home.root().join(name);
        folder(to.parent().unwrap_or(home.root()))?;
        put_in_place(&files.join(name), &to)?;
    }
    // in one step: without its note, the rest of the folder would look like a restore that has just begun
    let done = with_suffix(staging, ".done");
    fs::remove_dir_all(&done).or_else(absent)?;
    put_in_place(staging, &done)?;
    fs::remove_dir_all(done)
}

/// Moves aside the database that a restore replaces, once. A database found in its place after that came from an interrupted restore.
fn keep_database(home: &Home, staging: &Path) -> io::Result<()> {
    let database = home.root().join(DATABASE);
    let old = with_suffix(&database, ".before-restore");
    let note = staging.join(KEPT);
    if note.exists() {
        fs::remove_file(&database).or_else(absent)?;
        return fs::remove_file(with_suffix(&database, "-wal")).or_else(absent);
    }
    // A log belongs to one database. After an interruption between the two moves, the next try finds the log and no database.
    let (log, old_log) = (with_suffix(&database, "-wal"), with_suffix(&old, "-wal"));
    if database.exists() {
        fs::remove_file(&old_log).or_else(absent)?;
        fs::rename(&database, &old)?;
    }
    fs::rename(&log, &old_log).or_else(absent)?;
    sync(home.root())?;
    File::create(&note)?.sync_all()?;
    sync(staging)
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Renames durably.
fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync(to.parent().unwrap_or(Path::new("/")))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// An unused name in a folder.
fn beside(folder: &Path) -> PathBuf {
    folder.join(format!(".trainyard-backup.{:016x}", rand::random::<u64>()))
}

fn cannot(doing: &'static str, path: &Path, source: io::Error) -> BackupError {
    ClientError::Io { doing, path: path.to_owned(), source }.into()
}
