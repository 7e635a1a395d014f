//! Sends the files of a folder to the control plane, which keeps them by content: only parts that it does not have travel.

use crate::store::{Digest, together};
use crate::tree::LIST_MAX;
use crate::{Entry, PART, Skipped, Source, Tree, named};
use http::Request;
use kube::Client;
use nix::libc;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// The API group of parts. `POST parts/sha256/missing` with digests, a line each, answers with those that are not kept;
/// `POST parts/sha256/contents` keeps parts (see [`together`]).
pub const GROUP: &str = "files.trainyard.dev";
pub const VERSION: &str = "v1alpha1";
pub const PLURAL: &str = "parts";
/// The name of the collection of parts: how they are named.
pub const NAMED_BY: &str = "sha256";

/// The most digests that are asked about at once.
const ASKED_MAX: usize = 16 << 10;

/// How far the sending is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of files that the control plane has by now.
    pub bytes: u64,
    /// Bytes of all files.
    pub all_bytes: u64,
}

/// Why files were not sent.
#[derive(Debug)]
pub enum SendError {
    /// A file or folder that cannot be read; its path is in the message.
    Read(io::Error),
    /// The control plane's answer.
    Api(kube::Error),
}

impl From<kube::Error> for SendError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// What an earlier launch knew about the files of a folder, in a file: files that have not changed since need not be read again.
#[derive(Clone, Debug)]
pub struct Known(PathBuf);

impl Known {
    /// About this source, kept below this folder.
    pub fn of(source: &Source, folder: &Path) -> Self {
        Self(folder.join(api::stable::digits([source.shown().as_str()])))
    }

    fn read(&self) -> Tree {
        let opened = File::open(&self.0).ok();
        let mut bytes = Vec::new();
        let read = opened.map(|file| file.take(LIST_MAX).read_to_end(&mut bytes));
        // without it all files are read
        read.and_then(Result::ok).and_then(|_| Tree::read(&bytes).ok()).unwrap_or_default()
    }

    /// Keeps what is known now, but of files that were changed within the last two seconds: they may change again in the same moment.
    fn write(&self, tree: &Tree) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let settled = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(2);
        let is_settled = |entry: &Entry| matches!(entry, Entry::File { changed, .. } if changed.0 < settled);
        let mut known = tree.clone();
        known.entries.retain(|_, entry| is_settled(entry) || *entry == Entry::Folder);
        known.parts.retain(|path, _| known.entries.contains_key(path));
        known.ignored.clear();
        known.file = None;
        let written = || {
            fs::create_dir_all(self.0.parent().unwrap_or(&self.0))?;
            let fresh = self.0.with_extension(std::process::id().to_string());
            fs::write(&fresh, known.to_bytes())?;
            fs::rename(&fresh, &self.0)
        };
        let _: io::Result<()> = written(); // it saves time only
    }
}

/// Sends what the control plane lacks of a listed folder, and returns the digests of its list. `skipped` gets a line for each
/// file that is not sent as it was listed.
///
/// # Errors
/// A file cannot be read, or the control plane does not take it.
pub async fn send(
    client: &Client,
    namespace: &str,
    source: Source,
    known: &Known,
    skipped: &mut Skipped,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<Digest>, SendError> {
    let to = To { client, namespace };
    let Source { root, mut tree } = source;
    let all_bytes = tree.bytes();
    let unread = to.unread(&mut tree, &known.read()).await?;
    let left: u64 = unread.iter().map(|(_, entry)| entry.length()).sum();
    let mut now = Progress { bytes: all_bytes.saturating_sub(left), all_bytes };
    progress(now);
    let (groups, mut ready) = mpsc::channel(2);
    let reads = tokio::task::spawn_blocking(move || read_all(&root, unread, &groups));
    while let Some(group) = ready.recv().await {
        let sent = to.send(&group).await;
        now.bytes = now.bytes.saturating_add(group.iter().map(|(_, part)| part.len() as u64).sum());
        sent.inspect_err(|_| ready.close())?;
        progress(now);
    }
    let read = reads.await.map_err(|error| SendError::Read(io::Error::other(error)))?.map_err(SendError::Read)?;
    for (path, what) in read {
        match what {
            Became::File(entry, parts, line) => {
                skipped.extend(line);
                tree.parts.insert(path.clone(), parts);
                tree.entries.insert(path, entry);
            }
            Became::LeftOut(line) => {
                skipped.push(line);
                tree.entries.remove(&path);
                tree.ignored.insert(path);
            }
        }
    }
    known.write(&tree);
    let mut list = Vec::new();
    for part in tree.to_bytes().chunks(PART) {
        let part = (Digest::of(part), part.to_vec());
        list.push(part.0);
        to.send(&[part]).await?;
    }
    Ok(list)
}

/// The control plane that keeps parts.
struct To<'a> {
    client: &'a Client,
    namespace: &'a str,
}

impl To<'_> {
    async fn post(&self, what: &str, body: Vec<u8>) -> Result<String, kube::Error> {
        let path = format!("/apis/{GROUP}/{VERSION}/namespaces/{}/{PLURAL}/{NAMED_BY}/{what}", self.namespace);
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/octet-stream");
        self.client.request_text(request.body(body).map_err(kube::Error::HttpError)?).await
    }

    /// Those of these parts that are not kept there.
    async fn missing(&self, digests: &[Digest]) -> Result<std::collections::BTreeSet<Digest>, kube::Error> {
        let mut missing = std::collections::BTreeSet::new();
        for asked in digests.chunks(ASKED_MAX) {
            let lines: String = asked.iter().map(|digest| format!("{digest}\n")).collect();
            let answer = self.post("missing", lines.into_bytes()).await?;
            missing.extend(answer.lines().filter_map(|line| line.parse::<Digest>().ok()));
        }
        Ok(missing)
    }

    /// Notes the parts of files that have not changed since they were read last and are kept, and returns the other files.
    async fn unread(&self, tree: &mut Tree, known: &Tree) -> Result<Vec<(PathBuf, Entry)>, kube::Error> {
        let is_file = |entry: &Entry| matches!(entry, Entry::File { .. });
        let files: Vec<(PathBuf, Entry)> = tree
            .entries
            .iter()
            .filter(|(_, entry)| is_file(entry))
            .map(|(path, entry)| (path.clone(), entry.clone()))
            .collect();
        let parts_of =
            |(path, entry): &(PathBuf, Entry)| known.parts.get(path).filter(|_| known.entries.get(path) == Some(entry));
        let assumed: Vec<Digest> = files.iter().filter_map(parts_of).flatten().copied().collect();
        let missing = self.missing(&assumed).await?;
        let mut unread = Vec::new();
        for file in files {
            match parts_of(&file) {
                Some(parts) if !parts.iter().any(|part| missing.contains(part)) => {
                    tree.parts.insert(file.0, parts.clone());
                }
                _ => unread.push(file),
            }
        }
        Ok(unread)
    }

    /// Sends those of these parts that are not there.
    async fn send(&self, group: &[(Digest, Vec<u8>)]) -> Result<(), kube::Error> {
        let digests: Vec<Digest> = group.iter().map(|(digest, _)| *digest).collect();
        let missing = self.missing(&digests).await?;
        let mut body = Vec::new();
        for (_, part) in group.iter().filter(|(digest, _)| missing.contains(digest)) {
            together::add(&mut body, part);
        }
        if !body.is_empty() {
            self.post("contents", body).await?;
        }
        Ok(())
    }
}

/// What became of a file that was to be read.
enum Became {
    /// As it was read, its parts, and what is to be said of it.
    File(Entry, Vec<Digest>, Option<String>),
    /// Why it is not sent.
    LeftOut(String),
}

/// Reads files, and hands on their parts in groups that one request can carry.
fn read_all(
    root: &Path,
    files: Vec<(PathBuf, Entry)>,
    groups: &mpsc::Sender<Vec<(Digest, Vec<u8>)>>,
) -> io::Result<BTreeMap<PathBuf, Became>> {
    let mut read = BTreeMap::new();
    let (mut group, mut bytes) = (Vec::new(), 0_usize);
    let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
    for (path, _) in files {
        let source = root.join(&path);
        let what = read_file(&source, &mut |part| {
            // a length stands before each
            let more = part.len().saturating_add(4);
            if bytes.saturating_add(more) > together::MOST {
                groups.blocking_send(std::mem::take(&mut group)).map_err(gone)?;
                bytes = 0;
            }
            bytes = bytes.saturating_add(more);
            let digest = Digest::of(&part);
            group.push((digest, part));
            Ok(digest)
        });
        read.insert(path, what.map_err(|error| named(error, &source))?);
    }
    if !group.is_empty() {
        groups.blocking_send(group).map_err(gone)?;
    }
    Ok(read)
}

/// Reads a file of which it is not known any more that it is one: a pipe in its place is not waited for.
fn read_file(source: &Path, part: &mut dyn FnMut(Vec<u8>) -> io::Result<Digest>) -> io::Result<Became> {
    let shown = source.display();
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(source);
    let mut file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Became::LeftOut(format!("{shown} was deleted meanwhile: left out")));
        }
        // what opens a socket, or a link
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ELOOP)) => {
            return Ok(Became::LeftOut(format!("{shown} is no file any more: left out")));
        }
        Err(error) => return Err(error),
    };
    let before = file.metadata()?;
    if !before.is_file() {
        return Ok(Became::LeftOut(format!("{shown} is no file any more: left out")));
    }
    let (mut parts, mut read) = (Vec::new(), 0_u64);
    // what grows meanwhile is sent the next time
    while read < before.len() {
        let mut bytes = Vec::new();
        let most = before.len().saturating_sub(read).min(PART as u64);
        (&mut file).take(most).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            break;
        }
        read = read.saturating_add(bytes.len() as u64);
        parts.push(part(bytes)?);
    }
    let Entry::File { changed, mode, .. } = Entry::of_file(&before) else { unreachable!("it is a file's") };
    let is_same = Entry::of_file(&file.metadata()?) == Entry::of_file(&before);
    let line = (!is_same).then(|| format!("{shown} changed while it was read: the first {read} bytes are sent"));
    Ok(Became::File(Entry::File { length: read, changed, mode }, parts, line))
}

/// Keeps the files of a source in a store without a control plane between.
#[cfg(test)]
pub(crate) fn kept(source: &Source, store: &crate::Store) -> Tree {
    let mut tree = source.tree.clone();
    for path in
        source.tree.entries.iter().filter(|(_, entry)| matches!(entry, Entry::File { .. })).map(|(path, _)| path)
    {
        let Became::File(entry, parts, _) = read_file(&source.root.join(path), &mut |part| store.add(&part)).unwrap()
        else {
            panic!("{} is no file", path.display())
        };
        tree.parts.insert(path.clone(), parts);
        tree.entries.insert(path.clone(), entry);
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path, meanwhile: &dyn Fn()) -> Result<Became, String> {
        let mut part = |bytes: Vec<u8>| {
            meanwhile();
            Ok(Digest::of(&bytes))
        };
        read_file(path, &mut part).map_err(|error| error.to_string())
    }

    #[test]
    fn what_changes_while_it_is_read_costs_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, vec![b'a'; PART + 5]).unwrap();
        let Ok(Became::File(Entry::File { length, .. }, parts, None)) = read(&path, &|| {}) else { panic!() };
        assert_eq!((length, parts.len()), (PART as u64 + 5, 2));
        assert_eq!(parts[1], Digest::of(b"aaaaa"));
        let shorter = read(&path, &|| File::options().write(true).open(&path).unwrap().set_len(3).unwrap());
        let Ok(Became::File(Entry::File { length, .. }, _, Some(line))) = shorter else { panic!() };
        assert_eq!(length, PART as u64);
        assert!(line.ends_with(&format!("x changed while it was read: the first {PART} bytes are sent")), "{line}");

        fs::remove_file(&path).unwrap();
        assert!(matches!(read(&path, &|| {}), Ok(Became::LeftOut(line)) if line.contains("deleted meanwhile")));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(matches!(read(&path, &|| {}), Ok(Became::LeftOut(line)) if line.contains("no file any more")));
    }

    #[test]
    fn what_was_read_is_known_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let known = Known(folder.path().join("known/x"));
        assert_eq!(known.read(), Tree::default());
        let file = |seconds: i64| Entry::File { length: 1, changed: (seconds, 0), mode: 0o644 };
        let digest = Digest::of(b"x");
        let tree = Tree {
            entries: [
                ("a".into(), Entry::Folder),
                ("a/old".into(), file(1_700_000_000)),
                ("a/young".into(), file(i64::MAX)),
            ]
            .into(),
            parts: [("a/old".into(), vec![digest]), ("a/young".into(), vec![digest])].into(),
            ignored: ["log".into()].into(),
            file: None,
        };
        known.write(&tree);
        let read = known.read();
        assert_eq!(read.parts, [("a/old".into(), vec![digest])].into());
        assert_eq!(read.entries.get(Path::new("a/old")), Some(&file(1_700_000_000)));
    }
}
