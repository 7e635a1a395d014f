//! `cp`: files and folders from and to the container of a running rank, as archives through `tar` in the container.

use crate::exec::{begin, outcome, running_pod, where_the_rank_runs};
use crate::exit;
use api::foreign::visible_line;
use api::object;
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use files::Pieces;
use grammar::CpArgs;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde_json::Value;
use std::fs;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::io::SyncIoBridge;

/// Bytes of what tar says that are shown.
const SAID_MAX: u64 = 4096;

/// One end of a copy.
#[derive(Debug, PartialEq, Eq)]
enum End<'a> {
    Here(&'a Path),
    There { job: &'a str, path: &'a str },
}

impl<'a> End<'a> {
    /// `JOB:PATH`, or a path of this machine. A path with a colon needs a slash before it: `./a:b`.
    fn of(text: &'a str) -> Self {
        let is_job = |job: &str| {
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-./".contains(c);
            !job.is_empty() && job.chars().all(is_name) && !job.starts_with(['/', '.'])
        };
        match text.split_once(':') {
            Some((job, path)) if is_job(job) => Self::There { job, path: if path.is_empty() { "." } else { path } },
            _ => Self::Here(Path::new(text)),
        }
    }
}

/// What was copied.
#[derive(Default)]
struct Done {
    files: usize,
    bytes: u64,
}

/// `trainyard cp`.
pub(crate) async fn cp(cluster: &Cluster, args: &CpArgs) -> Result<u8, ClientError> {
    let done = match (End::of(&args.from), End::of(&args.to)) {
        (End::There { job, path }, End::Here(to)) => fetch(cluster, args, job, path, to).await?,
        (End::Here(from), End::There { job, path }) => send(cluster, args, from, job, path).await?,
        (End::Here(_), End::Here(_)) => {
            return Err(usage("both paths are on this machine; write the one in the job as JOB:PATH".to_owned()));
        }
        (End::There { .. }, End::There { .. }) => {
            return Err(usage("both paths are in jobs; copy to this machine first".to_owned()));
        }
    };
    eprintln!("{} copied, {}", submission::files(done.files), files::size_shown(done.bytes));
    Ok(exit::OK)
}

fn usage(why: String) -> ClientError {
    ClientError::Usage(ErrorCode::FlagRefused, why)
}

fn io_error(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> ClientError + use<> {
    let path = path.to_owned();
    move |source| ClientError::Io { doing, path: path.clone(), source }
}

/// A command in the rank's container whose folder is the rank's.
struct There<'a> {
    cluster: &'a Cluster,
    pod: Value,
    rank: Option<i64>,
}

impl There<'_> {
    fn command(&self, words: &[&str]) -> Vec<String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        where_the_rank_runs(self.cluster, &self.pod, self.rank, words)
    }

    fn name(&self) -> &str {
        object::meta(&self.pod, "name")
    }

    /// Whether a path is a folder there.
    async fn is_folder(&self, path: &str) -> Result<bool, ClientError> {
        let command = self.command(&["test", "-d", path]);
        let mut process = begin(self.cluster, &self.pod, command, false, false).await?;
        let status = process.take_status();
        let (out, err) = (process.stdout(), process.stderr());
        tokio::join!(drained(out), drained(err));
        Ok(self.outcome(status).await? == exit::OK)
    }

    /// The exit code of a command there; `status`: of its process, which its streams hold up.
    async fn outcome(&self, status: Option<impl Future<Output = Option<Status>>>) -> Result<u8, ClientError> {
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        outcome(status, self.name())
    }

    /// What tar came to, by its exit code and what it has said.
    fn tar(&self, code: u8, said: &str) -> Result<(), ClientError> {
        match code {
            exit::OK => Ok(()),
            126 | 127 => Err(ClientError::Api(
                ErrorCode::RequestRefused,
                format!("the container of pod {} has no tar, which cp needs", self.name()),
            )),
            _ => {
                let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("tar has failed");
                let line = line.trim_start_matches("tar: ");
                Err(ClientError::Api(
                    ErrorCode::RequestRefused,
                    format!("in pod {}: {}", self.name(), visible_line(line)),
                ))
            }
        }
    }
}

async fn drained(from: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else { return String::new() };
    let mut text = Vec::new();
    let _ = (&mut from).take(SAID_MAX).read_to_end(&mut text).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// The folder of a path in a container, and its name in it.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        None => (".", path),
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
    }
}

/// Copies from a container. A folder that is there already gets the copy into it.
async fn fetch(cluster: &Cluster, args: &CpArgs, job: &str, path: &str, to: &Path) -> Result<Done, ClientError> {
    let pod = running_pod(cluster, job, args.rank, args.step.as_deref()).await?;
    let there = There { cluster, pod, rank: args.rank };
    let trimmed = match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    let name = Path::new(trimmed).file_name();
    // the content of `.`, `..` and `/` has no name of its own
    let target = match name {
        Some(name) if to.is_dir() => to.join(name),
        _ => to.to_owned(),
    };
    let (folder, what) = match name {
        None => (trimmed, ".".to_owned()),
        Some(_) => {
            let (folder, name) = split(trimmed);
            (folder, format!("./{name}"))
        }
    };
    let command = there.command(&["tar", "-c", "-f", "-", "-C", folder, "--", &what]);
    let mut process = begin(cluster, &there.pod, command, false, false).await?;
    let status = process.take_status();
    let Some(out) = process.stdout() else {
        return Err(ClientError::Api(ErrorCode::StreamLost, "the connection has no streams".to_owned()));
    };
    let is_whole = name.is_none();
    let write = tokio::task::spawn_blocking(move || {
        let mut out = SyncIoBridge::new(out);
        let done = unpack(&mut out, &target, is_whole);
        // tar there ends when all that it wrote was read
        let _ = io::copy(&mut out, &mut io::sink());
        done
    });
    let (written, said) = tokio::join!(write, drained(process.stderr()));
    let code = there.outcome(status).await?;
    let written = written.map_err(|error| ClientError::Api(ErrorCode::StreamLost, error.to_string()))?;
    match written {
        // what tar says comes first: it is the reason for an archive that breaks off
        Err(error) => there.tar(code, &said).and(Err(error)),
        // 1: a file changed while it was read
        Ok(done) if code == 1 && done.files > 0 => {
            for line in said.lines() {
                eprintln!("warning: {}", visible_line(line));
            }
            Ok(done)
        }
        Ok(done) => there.tar(code, &said).map(|()| done),
    }
}

/// Writes what an archive holds: its one entry, and all below it, as `target`; with `is_whole` its content into it. What cannot be a file or folder
/// below it is left out with a warning: the archive comes from a program of somebody else.
fn unpack(from: &mut impl Read, target: &Path, is_whole: bool) -> Result<Done, ClientError> {
    let mut done = Done::default();
    let mut archive = tar::Archive::new(from);
    let broken =
        |error: io::Error| ClientError::Api(ErrorCode::StreamLost, format!("the archive cannot be read: {error}"));
    let mut modes = Vec::new();
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let named = entry.path().map_err(broken)?.into_owned();
        let left_out = |why: &str| {
            eprintln!("warning: {} is left out: {why}", visible_line(&named.to_string_lossy()));
        };
        let mut parts: Vec<Component<'_>> =
            named.components().filter(|part| !matches!(part, Component::CurDir)).collect();
        if parts.iter().any(|part| !matches!(part, Component::Normal(_))) {
            left_out("its path is outside the copied folder");
            continue;
        }
        if !is_whole && !parts.is_empty() {
            parts.remove(0);
        }
        let below: PathBuf = parts.iter().collect();
        let path = if below.as_os_str().is_empty() { target.to_owned() } else { target.join(&below) };
        if through_link(target, &below) {
            left_out("its path goes through a symbolic link");
            continue;
        }
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        match entry.header().entry_type() {
            tar::EntryType::Directory => {
                fs::create_dir_all(&path).map_err(io_error("make the folder", &path))?;
                modes.push((path, mode | 0o700));
            }
            tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                    fs::create_dir_all(folder).map_err(io_error("make the folder", folder))?;
                }
                let failed = io_error("write", &path);
                // a link of this name is replaced, and not written through
                if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
                    fs::remove_file(&path).map_err(&failed)?;
                }
                let mut file = fs::File::create(&path).map_err(&failed)?;
                let copied = io::copy(&mut entry, &mut file).map_err(&failed)?;
                done.bytes = done.bytes.saturating_add(copied);
                done.files = done.files.saturating_add(1);
                modes.push((path, mode));
            }
            tar::EntryType::Symlink => {
                let Some(points) = entry.link_name().map_err(broken)? else { continue };
                if points.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
                    left_out("it is a link that leads out of its folder");
                    continue;
                }
                let _ = fs::remove_file(&path);
                std::os::unix::fs::symlink(&points, &path).map_err(io_error("make the link", &path))?;
            }
            tar::EntryType::Link => left_out("it is a hard link"),
            _ => left_out("it is neither a file, a folder nor a link"),
        }
    }
    // folders last, and those below first: one that may not be written keeps nothing out
    for (path, mode) in modes.into_iter().rev() {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
    }
    Ok(done)
}

/// Whether a link is on the way to a path below a folder.
fn through_link(target: &Path, below: &Path) -> bool {
    let mut at = target.to_owned();
    let mut parts = below.components().peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        if parts.peek().is_some() && at.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
            return true;
        }
    }
    false
}

/// Copies to a container. A folder that is there already gets the copy into it.
async fn send(cluster: &Cluster, args: &CpArgs, from: &Path, job: &str, path: &str) -> Result<Done, ClientError> {
    let found = from.metadata().map_err(io_error("read", from))?;
    if !found.is_dir() && !found.is_file() {
        return Err(usage(format!("{} is neither a file nor a folder", from.display())));
    }
    let pod = running_pod(cluster, job, args.rank, args.step.as_deref()).await?;
    let there = There { cluster, pod, rank: args.rank };
    let own = from.canonicalize().map_err(io_error("read", from))?;
    let own = own.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (folder, name) = match path.trim_end_matches('/') {
        "" => ("/", own),
        trimmed if there.is_folder(path).await? => (trimmed, own),
        _ if path.ends_with('/') => {
            return Err(usage(format!("{path} is no folder in pod {}", there.name())));
        }
        trimmed => {
            let (folder, name) = split(trimmed);
            (folder, name.to_owned())
        }
    };
    // -m: times of now, as a new file there would have; -o: the owner is who runs tar
    let command = there.command(&["tar", "-x", "-m", "-o", "-f", "-", "-C", folder]);
    let mut process = begin(cluster, &there.pod, command, true, false).await?;
    let status = process.take_status();
    let (Some(mut input), out, err) = (process.stdin(), process.stdout(), process.stderr()) else {
        return Err(ClientError::Api(ErrorCode::StreamLost, "the connection has no streams".to_owned()));
    };
    let (pieces, mut waiting) = Pieces::channel();
    let (root, is_folder) = (from.to_owned(), found.is_dir());
    let pack = tokio::task::spawn_blocking(move || packed(&root, &name, is_folder, pieces));
    let sends = async {
        while let Some(piece) = waiting.recv().await {
            // what tar says of it comes below
            if input.write_all(&piece).await.is_err() {
                break;
            }
        }
        drop(waiting);
        let _ = input.shutdown().await;
        input
    };
    let (_input, _, said, packed) = tokio::join!(sends, drained(out), drained(err), pack);
    there.tar(there.outcome(status).await?, &said)?;
    packed.map_err(|error| ClientError::Api(ErrorCode::StreamLost, error.to_string()))?
}

fn packed(root: &Path, name: &str, is_folder: bool, to: Pieces) -> Result<Done, ClientError> {
    let failed = io_error("send", root);
    let mut archive = tar::Builder::new(to);
    archive.mode(tar::HeaderMode::Complete);
    archive.follow_symlinks(false);
    let done = if is_folder {
        let done = count(root).map_err(&failed)?;
        archive.append_dir_all(name, root).map_err(&failed)?;
        done
    } else {
        let mut file = fs::File::open(root).map_err(&failed)?;
        let done = Done { files: 1, bytes: file.metadata().map_err(&failed)?.len() };
        archive.append_file(name, &mut file).map_err(&failed)?;
        done
    };
    archive.into_inner().and_then(Pieces::end).map_err(&failed)?;
    Ok(done)
}

/// Counts the files below a folder, and their bytes.
fn count(folder: &Path) -> io::Result<Done> {
    let mut done = Done::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let meta = path.symlink_metadata()?;
            if meta.is_dir() {
                folders.push(path);
            } else if meta.is_file() {
                done.files = done.files.saturating_add(1);
                done.bytes = done.bytes.saturating_add(meta.len());
            }
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_told_from_a_path() {
        let there = |job, path| End::There { job, path };
        for (text, end) in [
            ("train:out/model.pt", there("train", "out/model.pt")),
            ("mpijob/train:/tmp/x", there("mpijob/train", "/tmp/x")),
            ("train:", there("train", ".")),
            ("./a:b", End::Here(Path::new("./a:b"))),
            ("/data/a:b", End::Here(Path::new("/data/a:b"))),
            ("C:x", End::Here(Path::new("C:x"))),
            ("model.pt", End::Here(Path::new("model.pt"))),
        ] {
            assert_eq!(End::of(text), end, "{text}");
        }
    }

    fn archive(entries: &[(&str, tar::EntryType, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_ustar();
            // as a hostile program writes it: `set_path` would refuse
            header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o644);
            let is_link = matches!(kind, tar::EntryType::Symlink | tar::EntryType::Link);
            header.set_size(if is_link { 0 } else { content.len() as u64 });
            if is_link {
                header.set_link_name_literal(content).unwrap();
            }
            header.set_cksum();
            archive.append(&header, if is_link { &b""[..] } else { content.as_bytes() }).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn nothing_is_written_outside_of_the_target() {
        use tar::EntryType::{Directory, Fifo, Link, Regular, Symlink};
        let root = std::env::temp_dir().join(format!("trainyard-cp-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("mine"), "mine").unwrap();
        let sent = archive(&[
            ("./out", Directory, ""),
            ("./out/a", Regular, "a"),
            ("./out/../../mine", Regular, "theirs"),
            ("/mine", Regular, "theirs"),
            ("./out/up", Symlink, ".."),
            ("./out/up/mine", Regular, "theirs"),
            ("./out/away", Symlink, "/etc"),
            ("./out/b", Symlink, "a"),
            ("./out/pipe", Fifo, ""),
            ("./out/hard", Link, "/etc/passwd"),
            ("./out/in", Symlink, "c"),
            ("./out/in/d", Regular, "theirs"),
        ]);
        let done = unpack(&mut sent.as_slice(), &root.join("copy"), false).unwrap();
        // `up` was left out, so the file below it is one in a folder of that name
        assert_eq!((done.files, done.bytes), (2, 7));
        assert_eq!(fs::read_to_string(root.join("mine")).unwrap(), "mine");
        let mut left: Vec<String> = fs::read_dir(root.join("copy"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["a", "b", "in", "up"]);
        assert_eq!(fs::read_to_string(root.join("copy/b")).unwrap(), "a");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_is_packed_is_unpacked_as_it_was() {
        let root = std::env::temp_dir().join(format!("trainyard-cp-both-{}", std::process::id()));
        fs::create_dir_all(root.join("from/deep/er")).unwrap();
        fs::write(root.join("from/deep/er/x"), vec![7; 100_000]).unwrap();
        fs::write(root.join("from/y"), "y").unwrap();
        let (pieces, mut waiting) = Pieces::channel();
        let sent = packed(&root.join("from"), "named", true, pieces).unwrap();
        let mut bytes = Vec::new();
        while let Ok(piece) = waiting.try_recv() {
            bytes.extend(piece);
        }
        assert_eq!((bytes.len() % 10_240, sent.files, sent.bytes), (0, 2, 100_001));
        let done = unpack(&mut bytes.as_slice(), &root.join("to"), false).unwrap();
        assert_eq!((done.files, done.bytes), (2, 100_001));
        assert_eq!(fs::read(root.join("to/deep/er/x")).unwrap(), vec![7; 100_000]);
        fs::remove_dir_all(root).unwrap();
    }
}
