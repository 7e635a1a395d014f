//! `trainyard backup` and `trainyard restore`: a home as one file.
//!
//! The file is a tar archive, compressed with gzip: `backup.json` (a description), `store.db` (all objects as of one moment), the identity of
//! the home (keys, tokens, ports, the node's name), and what jobs left (`metrics/`, `history/`). Running processes are not a part of it.

use crate::up::UpError;
use cli::args::{BackupArgs, Format, Global, RestoreArgs};
use cli::codes::ErrorCode;
use cli::connect::Cluster;
use cli::error::CliError;
use cli::home::Home;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// Version of the archive's layout.
const FORMAT: u32 = 1;
const DESCRIPTION: &str = "backup.json";
const DATABASE: &str = "store.db";
/// Files by which clients and pods know a home.
const FILES: [&str; 7] =
    ["token", "serviceaccounts.key", "pki/ca.crt", "pki/ca.key", "port", "status-port", "node/node-name"];
/// Folders of what jobs left.
const FOLDERS: [&str; 2] = ["metrics", "history"];
/// The folder of a restore under way; while it is there, the home is not whole.
pub(crate) const UNFINISHED: &str = "restore-unfinished";
/// In that folder: the files that are not in their places yet.
const GATHERED: &str = "files";
/// In that folder: a note that the database which the restore replaces has been moved aside.
const KEPT: &str = "old-database-kept";

/// What an archive is.
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

/// `trainyard backup`: online where a control plane runs.
pub(crate) async fn backup(args: &BackupArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global)?;
    let file = std::path::absolute(&args.file).map_err(|source| cannot("resolve", &args.file, source))?;
    if file.exists() && !args.force {
        return Err(UpError::Usage(
            ErrorCode::OutputExists,
            format!("{} exists already; to overwrite it: --force", file.display()),
        ));
    }
    if !home.root().join(DATABASE).exists() {
        return Err(UpError::Usage(
            ErrorCode::NothingToBackUp,
            format!("there is nothing to back up under {}: it has no database", home.root().display()),
        ));
    }
    let unfinished = beside(&file);
    let result = write(args, &home, &unfinished).await;
    let result =
        result.and_then(|()| put_in_place(&unfinished, &file).map_err(|source| cannot("write", &file, source)));
    if let Err(error) = result {
        let _ = fs::remove_file(&unfinished); // it may never have been made
        return Err(error);
    }
    let bytes = fs::metadata(&file).map_or(0, |metadata| metadata.len());
    let told = serde_json::json!({"file": file, "bytes": bytes});
    let size = bytes.div_ceil(1024);
    let words = format!("{} ({size} KiB); it holds this home's keys: keep it as safe", file.display());
    Ok(print(args.output.output, &told, &file, &words))
}

/// Prints what was done: as data, as the one path, or in words. Who reads no more has read enough.
fn print(format: Format, told: &serde_json::Value, path: &Path, words: &str) -> u8 {
    let text = match format {
        Format::Json => format!("{told}\n"),
        Format::Yaml => serde_saphyr::to_string(told).expect("plain data"),
        Format::Name => format!("{}\n", path.display()),
        Format::Table | Format::Wide => format!("{words}\n"),
    };
    let _ = io::stdout().write_all(text.as_bytes());
    cli::exit::OK
}

async fn write(args: &BackupArgs, home: &Home, to: &Path) -> Result<(), UpError> {
    let failed = |source| cannot("write", to, source);
    let out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to).map_err(failed)?;
    let database = with_suffix(to, ".db");
    let copied = copy_database(home, &database).await;
    let result = copied.and_then(|()| pack(args, home, out, &database).map_err(failed));
    let _ = fs::remove_file(&database); // it may never have been made
    result
}

/// All objects of one moment: from the control plane that runs, else from the file.
async fn copy_database(home: &Home, to: &Path) -> Result<(), UpError> {
    if let Some(lock) = home.try_lock()? {
        let (path, to) = (home.root().join(DATABASE), to.to_owned());
        let copied = tokio::task::spawn_blocking(move || {
            let result = store::back_up_closed(&path, &to).map(drop);
            drop(lock);
            result.map_err(|source| UpError::Store { path, source: Box::new(source) })
        });
        return copied.await.expect("copying a database does not panic");
    }
    let Some(_running) = home.wait_running() else {
        return Err(UpError::Usage(
            ErrorCode::BackupFailed,
            format!("the control plane under {} is starting or stopping; try again", home.root().display()),
        ));
    };
    let of_home = Global {
        home: Some(home.root().to_owned()),
        kubeconfig: None,
        context: None,
        namespace: None,
        verbose: 0,
        plugin: false,
    };
    let cluster = Cluster::existing(&of_home).await?;
    let request = http::Request::get("/trainyard/backup").body(kube::client::Body::empty()).expect("a plain request");
    let api = |error: kube::Error| {
        CliError::Api(ErrorCode::BackupFailed, format!("the control plane cannot make a backup: {error}"))
    };
    let answer = cluster.client.send(request).await.map_err(api)?;
    let code = answer.status();
    let mut body = std::pin::pin!(http_body_util::BodyExt::into_data_stream(answer.into_body()));
    let failed = |source| cannot("write", to, source);
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(to).map_err(failed)?;
    while let Some(chunk) = body.try_next().await.map_err(api)? {
        out.write_all(&chunk).map_err(failed)?;
    }
    if !code.is_success() {
        let text = fs::read_to_string(to).unwrap_or_default();
        let status = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or(&text);
        return Err(CliError::Api(
            ErrorCode::BackupFailed,
            format!("the control plane cannot make a backup: {message}"),
        )
        .into());
    }
    Ok(())
}

fn pack(args: &BackupArgs, home: &Home, out: File, database: &Path) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::fast()));
    let description = Description {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().as_second(),
        home: home.root().to_owned(),
    };
    append(&mut archive, Path::new(DESCRIPTION), &serde_json::to_vec_pretty(&description)?)?;
    append_file(&mut archive, Path::new(DATABASE), database)?;
    for name in FILES {
        append_file(&mut archive, Path::new(name), &home.root().join(name))?;
    }
    if !args.no_history {
        for folder in FOLDERS {
            append_folder(&mut archive, home.root(), Path::new(folder))?;
        }
    }
    let file = archive.into_inner()?.finish()?;
    file.sync_all()
}

/// A file as long as it is now: it may grow meanwhile, or be gone, which is fine.
fn append_file(archive: &mut tar::Builder<impl Write>, name: &Path, path: &Path) -> io::Result<()> {
    match fs::read(path) {
        Ok(bytes) => append(archive, name, &bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn append(archive: &mut tar::Builder<impl Write>, name: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o600);
    archive.append_data(&mut header, name, bytes)
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

/// `trainyard restore`: puts a backup in the place of what a home holds. Nothing of the home is changed before the backup has been
/// read as a whole and its database checked.
pub(crate) fn restore(args: &RestoreArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global)?;
    let database = home.root().join(DATABASE);
    let busy = || {
        UpError::Usage(
            ErrorCode::RestoreWhileRunning,
            format!("a control plane is running under {}; stop it first: trainyard down", home.root().display()),
        )
    };
    if home.is_locked() {
        return Err(busy());
    }
    let staging = home.root().join(UNFINISHED);
    let replaces = database.exists() || staging.exists();
    if replaces && !args.force {
        return Err(UpError::Usage(
            ErrorCode::RestoreOverData,
            format!(
                "{} holds a control plane's data; --force replaces it (the database that is there is kept as {DATABASE}.before-restore)",
                home.root().display()
            ),
        ));
    }
    let mut archive = File::open(&args.file).map_err(|source| cannot("open", &args.file, source))?;
    home.create()?;
    let _lock = home.try_lock()?.ok_or_else(busy)?;
    let gathering = with_suffix(&staging, ".new");
    let result = gather(&mut archive, &gathering, args);
    let (description, objects, revision) = match result {
        Ok(found) => found,
        Err(error) => {
            let _ = fs::remove_dir_all(&gathering); // it may never have been made
            return Err(error);
        }
    };
    exchange(&home, &gathering, &staging).map_err(|source| cannot("write", home.root(), source))?;
    let told = serde_json::json!({"home": home.root(), "objects": objects, "revision": revision,
        "version": description.version, "created": description.created});
    let made = jiff::Timestamp::from_second(description.created).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    let root = home.root();
    let words = format!("restored {objects} objects of {made} to {}; start it: trainyard up --detach", root.display());
    Ok(print(args.output.output, &told, root, &words))
}

/// Unpacks an archive into a folder of its own, and checks what came out.
fn gather(archive: &mut File, into: &Path, args: &RestoreArgs) -> Result<(Description, usize, u64), UpError> {
    let not_ours = |what: String| {
        UpError::Usage(
            ErrorCode::NotABackup,
            format!("{} is not a backup that this version can restore: {what}", args.file.display()),
        )
    };
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
        store::adopt(&database).map_err(|source| UpError::Store { path: database, source: Box::new(source) })?;
    Ok((description, objects, revision))
}

/// Whether a file of this name belongs into a home.
fn is_known(name: &Path) -> bool {
    name.components().all(|part| matches!(part, Component::Normal(_)))
        && (name == Path::new(DESCRIPTION)
            || name == Path::new(DATABASE)
            || FILES.iter().any(|file| name == Path::new(file))
            || FOLDERS.iter().any(|folder| name.starts_with(folder) && name != Path::new(folder)))
}

/// Puts the gathered files in their places. Interrupted anywhere, it leaves the folder `staging`: `up` says what to do, and a restore that
/// is run again knows by it what is still the old data.
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
    // in one step: without its note, what is left of the folder would look like a restore that has just begun
    let done = with_suffix(staging, ".done");
    fs::remove_dir_all(&done).or_else(absent)?;
    put_in_place(staging, &done)?;
    fs::remove_dir_all(done)
}

/// Moves the database that a restore replaces aside, once: what lies in its place after that came from a try that was interrupted.
fn keep_database(home: &Home, staging: &Path) -> io::Result<()> {
    let database = home.root().join(DATABASE);
    let old = with_suffix(&database, ".before-restore");
    let note = staging.join(KEPT);
    if note.exists() {
        fs::remove_file(&database).or_else(absent)?;
        return fs::remove_file(with_suffix(&database, "-wal")).or_else(absent);
    }
    // A log belongs to its database alone. Interrupted between the two moves, the next try finds the log and no database.
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

fn beside(file: &Path) -> PathBuf {
    with_suffix(file, &format!(".{}.tmp", std::process::id()))
}

fn cannot(doing: &'static str, path: &Path, source: io::Error) -> UpError {
    CliError::Io { doing, path: path.to_owned(), source }.into()
}
