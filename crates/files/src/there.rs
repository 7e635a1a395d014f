//! Files for a machine that is somewhere else: through a pod on it, in which `find` tells what is there and `tar` takes the rest.
//!
//! The pod ends with the command that it serves: it waits for a lock, which that command holds until it ends, or its client is gone.

use crate::sent::{self, LISTED_MAX, Listed, file_of};
use crate::{Entry, Pieces, Store, Tree, named};
use api::object;
use api::sky::{ClusterNode, keys};
use client::ClientError;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{ApiResource, AttachParams, DeleteParams, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long a pod may take to start, seconds.
const START_MAX: u64 = 120;
/// The most that is read of a file of output.
pub const LOG_MAX: u64 = 256 << 20;
/// The most that a machine may tell of one of its files; how long it may be silent meanwhile.
const FIELD_MAX: usize = 64 << 10;
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long a command may take to begin, and how much it may say behind what it was asked for.
const BEGIN_MAX: Duration = Duration::from_secs(30);
const REST_MAX: u64 = 64 << 10;

/// What the pod does: it gives its command a minute to come, then waits for its end.
const WAITS: &str = "sleep 60; exec flock ~/.sky-sync-lock true";

/// The command. Arguments: the folder, and the name of the one file if it is one, the file below the home that keeps what was sent, and the length
/// of what it is to keep now. Tells what was sent (what that file has), a type `.`, and what is there, as type, length, time of change and
/// permissions, then path, then what a link points to, each with a NUL behind it; an empty type ends the list. Then takes paths to remove,
/// a `d` before those of folders and an `f` before all others, a NUL behind each, an empty one at the end; then what to keep; then an archive.
const TAKES: &str = r#"exec 9>~/.sky-sync-lock && flock 9 || exit 1
folder=$1 kept=$HOME/$3
case $folder in '~') folder=$HOME;; '~/'*) folder=$HOME/${folder#??};; /*) ;; *) folder=$HOME/$folder;; esac
place=$folder${2:+/$2}
if [ -f "$kept" ]; then cat -- "$kept"; fi
printf '.\0\0\0'
if [ -e "$place" ] || [ -L "$place" ]; then find "$place" -printf '%y %s %T@ %m\0%P\0%l\0' || exit 1; fi
printf '\0'
while IFS= read -r -d '' gone && [ -n "$gone" ]; do
  path=${gone#?} path=$place${path:+/$path}
  case $gone in d*) rmdir -- "$path" 2>/dev/null;; *) rm -f -- "$path";; esac
done
mkdir -p -- "${kept%/*}" && head -c "$4" > "$kept.new" && mv -- "$kept.new" "$kept" || exit 1
mkdir -p -- "$folder" && cd -- "$folder" || exit 1
exec tar --extract --preserve-permissions --no-same-owner --file=-"#;

/// What the machine's tar says went wrong. Of a file for which the disk has no room it names the bytes alone.
fn told(line: &str) -> String {
    match line.contains(": Wrote only ") {
        true => format!("{line}: No space left on device"),
        false => line.to_owned(),
    }
}

/// Prints a file below the home directory.
const READS: &str = r#"cd && exec cat -- "./$1""#;

/// A cluster whose machines are reached through pods.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    pub namespace: String,
    /// The name of its object.
    pub name: String,
    pub uid: String,
}

impl Cluster {
    /// Pods, as they come.
    fn untyped_pods(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::erase::<Pod>(&()))
    }

    /// The same for commands alone: a reader of all that a typed pod may hold costs the binary half a megabyte.
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// Puts trees onto a machine, each to its path there: below the home unless it is absolute.
///
/// # Errors
/// What the machine says, or which file cannot be read.
async fn fill_one(
    cluster: &Cluster,
    node: &ClusterNode,
    store: &Store,
    trees: &[(Arc<Tree>, String)],
) -> Result<(), String> {
    let pod = start(cluster, node).await?;
    let mut done = Ok(());
    for (tree, to) in trees {
        done = one(cluster, &pod, store, tree, to).await;
        if done.is_err() {
            break;
        }
    }
    // one that stays ends by itself
    let _ = cluster.untyped_pods().delete(&pod, &DeleteParams::default().grace_period(0)).await;
    done
}

/// Starts the pod, and returns its name once it runs.
async fn start(cluster: &Cluster, node: &ClusterNode) -> Result<String, String> {
    let said = |error: ClientError| error.to_string();
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-files-", cluster.name),
            "labels": {keys::CLUSTER: cluster.name},
            "ownerReferences": [{
                "apiVersion": api::sky::API_VERSION, "kind": "Cluster", "name": cluster.name, "uid": cluster.uid,
            }],
        },
        "spec": {
            "nodeName": node.node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": keys::CLUSTER, "operator": "Exists"}],
            "containers": [{"name": "files", "image": "sky", "command": ["/bin/bash", "-c", WAITS]}],
        },
    });
    let pods = cluster.untyped_pods();
    let object = serde_json::from_value(object).map_err(|_| "the pod is no object".to_owned())?;
    let made = pods.create(&PostParams::default(), &object).await;
    let name = made.map_err(|error| said(error.into()))?.name_any();
    let running = client::until(pods.clone(), &name, |object| {
        let status = object.map(|object| &object.data["status"]);
        match status.and_then(|status| status["phase"].as_str()) {
            Some("Running") => Some(Ok(())),
            Some("Pending") => None,
            None if status.is_some() => None,
            other => Some(Err(format!(
                "the pod that takes the files is {}: {}",
                other.unwrap_or("gone"),
                status.map_or("", |status| object::text(status, "message"))
            ))),
        }
    });
    let outcome = match tokio::time::timeout(Duration::from_secs(START_MAX), running).await {
        Ok(outcome) => outcome.map_err(said).and_then(|outcome| outcome),
        Err(_) => Err(format!(
            "the pod that takes the files has not started within {START_MAX} s; `kubectl describe node {}` tells more",
            node.node
        )),
    };
    match outcome {
        Ok(()) => Ok(name),
        Err(why) => {
            let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            Err(why)
        }
    }
}

/// What is in a file below the home directory of a machine; `None` where there is none.
///
/// # Errors
/// What the machine says.
pub async fn read_file(cluster: &Cluster, node: &ClusterNode, file: &str) -> Result<Option<Vec<u8>>, String> {
    let pod = start(cluster, node).await?;
    let read = async {
        let words = ["/bin/bash", "-c", READS, "sky", file].map(str::to_owned);
        let asked = AttachParams { stdin: false, stdout: true, stderr: false, ..AttachParams::default() };
        let mut process = begun(cluster.pods().exec(&pod, words, &asked)).await?;
        let status = process.take_status();
        let mut text = Vec::new();
        if let Some(out) = process.stdout() {
            let mut out = out.take(LOG_MAX);
            let mut piece = vec![0_u8; 64 * 1024];
            loop {
                let count = heard(out.read(&mut piece)).await.map_err(|error| error.to_string())?;
                text.extend_from_slice(piece.get(..count).unwrap_or_default());
                if count == 0 {
                    break;
                }
            }
        }
        if text.len() as u64 >= LOG_MAX {
            return Ok(Some(text));
        }
        let status = match status {
            Some(status) => tokio::time::timeout(SILENCE_MAX, status).await.ok().flatten(),
            None => None,
        };
        let is_there = status.is_some_and(|status| status.status.as_deref() == Some("Success"));
        Ok(is_there.then_some(text))
    };
    let done = read.await;
    let _ = cluster.untyped_pods().delete(&pod, &DeleteParams::default().grace_period(0)).await;
    done
}

/// A command in a pod that begins soon, or not at all.
async fn begun(
    begins: impl Future<Output = kube::Result<kube::api::AttachedProcess>>,
) -> Result<kube::api::AttachedProcess, String> {
    let begun = tokio::time::timeout(BEGIN_MAX, begins).await;
    let late = |_| format!("a command on the machine has not begun within {} s", BEGIN_MAX.as_secs());
    begun.map_err(late)?.map_err(|error| error.to_string())
}

/// What a machine says next, unless it is silent for too long.
async fn heard<T>(reads: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::other(format!("it has been silent for {} s", SILENCE_MAX.as_secs()));
    tokio::time::timeout(SILENCE_MAX, reads).await.map_err(late)?
}

/// Sends one tree.
async fn one(cluster: &Cluster, pod: &str, store: &Store, tree: &Arc<Tree>, to: &str) -> Result<(), String> {
    let (folder, name) = match &tree.file {
        None => (to.to_owned(), String::new()),
        Some(_) => {
            let (folder, name) = to.rsplit_once('/').unwrap_or(("~", to));
            (if folder.is_empty() { "/" } else { folder }.to_owned(), name.to_owned())
        }
    };
    let keeps = sent::text(&tree.below());
    let length = keeps.len().to_string();
    let words = ["/bin/bash", "-c", TAKES, "sky", &folder, &name, &file_of(to), &length].map(str::to_owned);
    let asked = AttachParams { stdin: true, stdout: true, stderr: true, ..AttachParams::default() };
    let mut process = begun(cluster.pods().exec(pod, words, &asked)).await?;
    let status = process.take_status();
    let (Some(mut input), Some(mut out), Some(mut err)) = (process.stdin(), process.stdout(), process.stderr()) else {
        return Err("the connection has no streams".to_owned());
    };
    let says = async {
        let mut text = Vec::new();
        let _ = (&mut err).take(64 * 1024).read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).trim().to_owned()
    };
    let sends = async {
        let told = listed(&mut out).await;
        let (old, has) = told.map_err(|error| format!("the machine does not tell what it has: {error}"))?;
        let before = [removals(&tree.leftovers(&old, |path| has.get(path).cloned())), keeps].concat();
        // what the machine says of it comes below
        let _ = input.write_all(&before).await;
        let has = match &tree.file {
            None => has,
            // the file may be called otherwise there
            Some(here) => {
                has.get(Path::new("")).map(|entry| (PathBuf::from(here), entry.clone())).into_iter().collect()
            }
        };
        let lacking: Vec<(PathBuf, Entry)> =
            tree.lacking(&has).into_iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect();
        let (store, kept, file) = (store.clone(), tree.clone(), tree.file.as_ref().map(|_| PathBuf::from(&name)));
        let (pieces, mut waiting) = Pieces::channel();
        let packs = tokio::task::spawn_blocking(move || pack(&store, &kept, file.as_deref(), &lacking, pieces));
        while let Some(piece) = waiting.recv().await {
            // what the machine says of it comes below
            if input.write_all(&piece).await.is_err() {
                break;
            }
        }
        drop(waiting);
        let packed = packs.await.map_err(|error| error.to_string())?;
        if let Err(error) = packed
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            return Err(error.to_string());
        }
        let _ = input.flush().await;
        // the other end hangs up when it has all, and says nothing more
        let rest = tokio::io::copy(&mut (&mut out).take(REST_MAX), &mut tokio::io::sink()).await;
        if rest.is_ok_and(|count| count >= REST_MAX) {
            return Err(format!("the machine sent more than {} KiB after the end of the archive", REST_MAX >> 10));
        }
        Ok(input)
    };
    let (sent, said) = tokio::join!(sends, says);
    let input = sent?;
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    drop(input);
    match status {
        Some(status) if status.status.as_deref() == Some("Success") => Ok(()),
        Some(status) => {
            let why = said.lines().next().map(told);
            Err(why.or(status.message).unwrap_or_else(|| "tar has failed".to_owned()))
        }
        None => Err("the connection ended before all was sent: run the command again".to_owned()),
    }
}

/// Reads what `TAKES` tells: what was sent, and what is there.
async fn listed(out: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Result<(Listed, Listed)> {
    let (mut before, mut found) = (Listed::new(), Listed::new());
    let mut held: Vec<u8> = Vec::new();
    let mut fields: Vec<Vec<u8>> = Vec::new();
    let mut piece = vec![0_u8; 64 * 1024];
    let mut all = 0_u64;
    loop {
        let count = heard(out.read(&mut piece)).await?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended at once"));
        }
        all = all.saturating_add(count as u64);
        if all > LISTED_MAX {
            return Err(io::Error::other(format!("its list of files is larger than {} MiB", LISTED_MAX >> 20)));
        }
        if held.len() > FIELD_MAX {
            return Err(io::Error::other(format!("a name in its list is longer than {} KiB", FIELD_MAX >> 10)));
        }
        for byte in piece.get(..count).unwrap_or_default() {
            if *byte != 0 {
                held.push(*byte);
                continue;
            }
            if fields.is_empty() && held.is_empty() {
                return Ok((before, found));
            }
            fields.push(std::mem::take(&mut held));
            if let [facts, path, points] = fields.as_slice() {
                if facts == b"." {
                    before = std::mem::take(&mut found);
                } else {
                    found.extend(sent::entry(facts, path, points));
                }
                fields.clear();
            }
        }
    }
}

/// The paths to remove, as `TAKES` reads them.
fn removals(gone: &[(&Path, &Entry)]) -> Vec<u8> {
    let one = |(path, was): &(&Path, &Entry)| {
        let mark: &[u8] = if **was == Entry::Folder { b"d" } else { b"f" };
        [mark, path.as_os_str().as_bytes(), &[0]].concat()
    };
    gone.iter().flat_map(one).chain([0]).collect()
}

/// Makes the archive of some of a tree's entries. `file`: what the one file is to be called.
fn pack(store: &Store, tree: &Tree, file: Option<&Path>, entries: &[(PathBuf, Entry)], to: Pieces) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    archive.mode(tar::HeaderMode::Complete);
    for (path, entry) in entries {
        let name = file.unwrap_or(path);
        let mut header = tar::Header::new_gnu();
        let packed = match entry {
            Entry::Folder => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                archive.append_data(&mut header, name, io::empty())
            }
            Entry::Link(points) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                archive.append_link(&mut header, name, points)
            }
            Entry::File { length, changed: (seconds, nanoseconds), mode } => {
                let changed = format!("{seconds}.{nanoseconds:09}");
                archive.append_pax_extensions([("mtime", changed.as_bytes())])?;
                header.set_size(*length);
                header.set_mode(*mode);
                header.set_mtime(u64::try_from(*seconds).unwrap_or(0));
                archive.append_data(&mut header, name, tree.file(store, path))
            }
        };
        match packed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Err(error),
            packed => packed.map_err(|error| named(error, path))?,
        }
    }
    archive.into_inner()?.end()
}

/// Puts trees onto several machines at once, each to its path there: below the home unless it is absolute.
///
/// # Errors
/// The machine that failed first, and what it says.
pub async fn fill(
    cluster: &Cluster,
    nodes: Vec<ClusterNode>,
    store: &Store,
    trees: &[(Arc<Tree>, String)],
) -> Result<(), (String, String)> {
    let fills = nodes.into_iter().map(|node| {
        let (cluster, store, trees) = (cluster.clone(), store.clone(), trees.to_vec());
        async move { fill_one(&cluster, &node, &store, &trees).await.map_err(|why| (node.machine, why)) }
    });
    let done: Vec<Result<(), (String, String)>> =
        futures::stream::iter(fills).buffer_unordered(AT_ONCE).collect().await;
    done.into_iter().collect()
}

/// Machines that are sent to at the same time.
const AT_ONCE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[tokio::test]
    async fn a_machine_tells_what_it_has() {
        let mut told: &[u8] = b"f 1 1.0 644\0old\0\0.\0\0\0d 4096 1700000000.0000000000 755\0a\0\0f 12 1700000000.1234567890 644\0a/x y\0\0l 1 1.0 777\0l\0../z\0\0rest";
        let (sent, found) = listed(&mut told).await.unwrap();
        assert!(sent.is_empty(), "its time is too short: {sent:?}");
        let file = Entry::File { length: 12, changed: (1_700_000_000, 123_456_789), mode: 0o644 };
        let wanted = [("a", Entry::Folder), ("a/x y", file), ("l", Entry::Link("../z".into()))];
        assert_eq!(found, wanted.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect());
        assert!(listed(&mut &b"d 1"[..]).await.is_err());
        // a host that prints without end
        let endless = listed(&mut tokio::io::repeat(b'x')).await.unwrap_err();
        assert!(endless.to_string().contains("longer than 64 KiB"), "{endless}");
    }

    /// What a machine does is what these programs do: here they do it on this one.
    #[tokio::test]
    async fn only_what_differs_is_sent() {
        let (from, to, kept) =
            (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::new(kept.path(), "default");
        let at = |name: &str| from.path().join(name);
        let long = "a/".repeat(80) + "file";
        std::fs::create_dir_all(at(&long).parent().unwrap()).unwrap();
        for name in [&long, "two words", "-x"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
        let sent = async |only: &str| {
            let tree = Arc::new(crate::send::kept(&Source::list(from.path(), &mut Vec::new()).unwrap(), &store));
            let keeps = sent::text(&tree.below());
            let mut child = tokio::process::Command::new("bash")
                .args(["-c", TAKES, "sky", "~/w", only, &file_of("~/w"), &keeps.len().to_string()])
                .env("HOME", to.path())
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let (old, has) = listed(child.stdout.as_mut().unwrap()).await.unwrap();
            let before = [removals(&tree.leftovers(&old, |path| has.get(path).cloned())), keeps].concat();
            let lacking: Vec<(PathBuf, Entry)> =
                tree.lacking(&has).into_iter().map(|(path, entry)| (path.to_owned(), entry.clone())).collect();
            let (pieces, mut waiting) = Pieces::channel();
            let (store, list) = (store.clone(), lacking.clone());
            let packs = tokio::task::spawn_blocking(move || pack(&store, &tree, None, &list, pieces));
            let mut input = child.stdin.take().unwrap();
            input.write_all(&before).await.unwrap();
            while let Some(piece) = waiting.recv().await {
                input.write_all(&piece).await.unwrap();
            }
            packs.await.unwrap().unwrap();
            // it ends though its input stays open
            assert!(child.wait().await.unwrap().success());
            lacking.len()
        };
        assert!(sent("").await > 80);
        assert_eq!(std::fs::read_to_string(to.path().join("w").join(&long)).unwrap(), long);
        assert_eq!(std::fs::read_link(to.path().join("w/link")).unwrap(), Path::new("nowhere"));
        assert_eq!(sent("").await, 0);
        std::fs::write(at("two words"), "changed").unwrap();
        assert_eq!(sent("").await, 1);
        assert_eq!(std::fs::read_to_string(to.path().join("w/two words")).unwrap(), "changed");
        // a file becomes a folder, a folder a file; one is deleted; what a job wrote stays
        std::fs::write(to.path().join("w/a/result"), "of a job").unwrap();
        std::fs::remove_file(at("two words")).unwrap();
        std::fs::create_dir(at("two words")).unwrap();
        std::fs::remove_file(at("-x")).unwrap();
        std::fs::remove_dir_all(at("a")).unwrap();
        sent("").await;
        assert!(to.path().join("w/two words").is_dir() && !to.path().join("w/-x").exists());
        assert_eq!(std::fs::read_dir(to.path().join("w/a")).unwrap().count(), 1, "the job's alone");
        std::fs::remove_file(to.path().join("w/a/result")).unwrap();
        std::fs::create_dir(at("a")).unwrap();
        sent("").await;
        std::fs::remove_dir(at("a")).unwrap();
        std::fs::write(at("a"), "a file").unwrap();
        sent("").await;
        assert!(to.path().join("w/a").is_file());
    }
}
