//! Finds and removes items of this machine that no job and no control plane uses: caches, leftovers of jobs that are gone, the database that
//! a restore replaced, files of killed SSH connections, records of removed clusters.
//!
//! Only the control plane knows which jobs are gone, so their leftovers are listed only while it answers. Items in use are never listed:
//! a repository that a launch has locked, a connection or a process whose owner runs.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that panics fails, as it should"))]

use api::object;
use api::sky::keys;
use client::{Choice, Cluster, Home};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Leftovers younger than this may belong to a job that the control plane does not know yet.
const UNKNOWN_MAX: Duration = Duration::from_secs(900);

/// Kinds of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Python,
    Git,
    Logs,
    Metrics,
    Clusters,
    Database,
    Ssh,
    Warm,
}

impl Kind {
    pub const ALL: [Self; 8] =
        [Self::Python, Self::Git, Self::Logs, Self::Metrics, Self::Clusters, Self::Database, Self::Ssh, Self::Warm];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Git => "git",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
            Self::Clusters => "clusters",
            Self::Database => "database",
            Self::Ssh => "ssh",
            Self::Warm => "warm",
        }
    }

    /// A description of such items.
    pub fn what(self) -> &'static str {
        match self {
            Self::Python => "cached facts about Pythons",
            Self::Git => "repositories fetched for sky launch",
            Self::Logs => "logs of jobs that are gone",
            Self::Metrics => "metrics of jobs that are gone",
            Self::Clusters => "records of removed clusters (sky cost-report needs them)",
            Self::Database => "databases that a restore replaced",
            Self::Ssh => "files of killed SSH connections",
            Self::Warm => "processes and logs of warm starts",
        }
    }
}

/// How an item is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// Files and folders that belong together.
    Files(Vec<PathBuf>),
    /// A ConfigMap, by namespace and name.
    Record(String, String),
    Process(i32),
}

/// An item that can be removed.
#[derive(Clone, Debug)]
pub struct Item {
    pub kind: Kind,
    pub name: String,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Time since its last change.
    pub age: Duration,
    pub thing: Thing,
}

/// The items found on this machine.
pub struct Leftovers {
    pub items: Vec<Item>,
    /// Why leftovers of removed jobs and clusters are missing from the list.
    pub unlisted: Option<String>,
    cluster: Option<Cluster>,
}

impl Leftovers {
    /// All items of this home, by kind and name. `cache`: the folder with facts about Pythons.
    pub async fn of(home: &Home, cache: Option<PathBuf>) -> Self {
        let runs = home.is_locked();
        let cluster = match home.running() {
            None => Err("no control plane runs".to_owned()),
            Some(_) => Cluster::existing(&Choice::of_home(home)).await.map_err(|error| api::error_chain(&error)),
        };
        let known = match &cluster {
            Err(why) => Err(why.clone()),
            Ok(cluster) => tokio::try_join!(jobs(cluster), records(cluster, Timestamp::now()))
                .map_err(|error| api::error_chain(&error)),
        };
        let (jobs, mut items, unlisted) = match known {
            Ok((uids, records)) => (Some(uids), records, None),
            Err(why) => (None, Vec::new(), Some(why)),
        };
        let user = std::env::home_dir().filter(|home| home.is_absolute());
        let places = Places { cache, user, home: home.root(), runs, jobs, now: SystemTime::now() };
        items.extend(places.found());
        items.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Self { items, unlisted, cluster: cluster.ok() }
    }

    /// Removes an item. An item that no longer exists counts as removed.
    pub async fn remove(&self, item: &Item) -> Result<(), NotRemoved> {
        remove(item, self.cluster.as_ref()).await
    }
}

/// Folders to search, and what is known about the jobs.
struct Places<'a> {
    cache: Option<PathBuf>,
    user: Option<PathBuf>,
    home: &'a Path,
    /// Whether a control plane runs with this home.
    runs: bool,
    /// The uids of all jobs; `None` if no control plane answers.
    jobs: Option<BTreeSet<String>>,
    now: SystemTime,
}

/// The entries of a folder; none if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    found.sort();
    found.into_iter()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Bytes on the disk; links are not followed.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = path.symlink_metadata() else { return 0 };
    let below: u64 = if metadata.is_dir() { entries(path).map(|entry| size(&entry)).sum() } else { 0 };
    below.saturating_add(metadata.blocks().saturating_mul(512))
}

impl Places<'_> {
    fn age(&self, path: &Path) -> Option<Duration> {
        let changed = path.symlink_metadata().ok()?.modified().ok()?;
        Some(self.now.duration_since(changed).unwrap_or_default())
    }

    /// Files as one item, as old as the youngest of them.
    fn item(&self, kind: Kind, name: String, files: Vec<PathBuf>) -> Option<Item> {
        let age = files.iter().filter_map(|path| self.age(path)).min()?;
        let bytes = files.iter().map(|path| size(path)).sum();
        Some(Item { kind, name, bytes, age, thing: Thing::Files(files) })
    }

    fn pythons(&self) -> Vec<Item> {
        let files = self.cache.iter().flat_map(|folder| entries(folder));
        let ours = files.filter(|path| name_of(path).starts_with("python-"));
        ours.filter_map(|path| self.item(Kind::Python, name_of(&path), vec![path])).collect()
    }

    /// Repositories that no launch has locked.
    fn repositories(&self) -> Vec<Item> {
        let Some(folder) = self.user.as_ref().map(|home| home.join(".sky/git")) else { return Vec::new() };
        let repositories = entries(&folder).filter(|path| path.join(".git").is_dir() && !path.is_symlink());
        let free = repositories.filter(|path| !is_locked(&path.with_extension("lock")));
        free.filter_map(|path| self.item(Kind::Git, name_of(&path), vec![path.clone(), path.with_extension("lock")]))
            .collect()
    }

    /// Logs and metrics of jobs that are gone; none if no control plane answers.
    fn of_jobs(&self) -> Vec<Item> {
        let Some(jobs) = &self.jobs else { return Vec::new() };
        let is_gone = |uid: &str| !uid.is_empty() && !jobs.contains(uid);
        let histories = entries(&self.home.join("history/jobs")).filter(|path| is_gone(&name_of(path)));
        let histories = histories.filter_map(|path| {
            let page: Value = serde_json::from_slice(&fs::read(path.join("job.json")).ok()?).ok()?;
            let name = format!("{}/{}", object::text(&page, "namespace"), object::text(&page, "name"));
            self.item(Kind::Logs, name, vec![path])
        });
        let series = entries(&self.home.join("metrics")).flat_map(|folder| entries(&folder).collect::<Vec<_>>());
        let series = series.filter_map(|path| {
            let file = name_of(&path);
            let (name, uid) = file.strip_suffix(".jsonl")?.rsplit_once('.')?;
            let namespace = path.parent().map(name_of).unwrap_or_default();
            is_gone(uid).then(|| self.item(Kind::Metrics, format!("{namespace}/{name}"), vec![path.clone()]))?
        });
        histories.chain(series).filter(|item| item.age >= UNKNOWN_MAX).collect()
    }

    fn databases(&self) -> Vec<Item> {
        let named = |name: &str| self.home.join(name);
        let files = [named("store.db.before-restore"), named("store.db.before-restore-wal")];
        let files: Vec<PathBuf> = files.into_iter().filter(|path| path.exists()).collect();
        self.item(Kind::Database, "store.db.before-restore".to_owned(), files).into_iter().collect()
    }

    /// Sockets and password files `c<process>.<number>…` of processes that are gone.
    fn connections(&self) -> Vec<Item> {
        let files = entries(&self.home.join("ssh")).filter(|path| {
            let name = name_of(path);
            let process = name.strip_prefix('c').and_then(|rest| rest.split_once('.')).map(|(process, _)| process);
            process.and_then(|process| i32::from_str_radix(process, 16).ok()).is_some_and(|pid| !is_alive(pid))
        });
        files.filter_map(|path| self.item(Kind::Ssh, name_of(&path), vec![path])).collect()
    }

    /// Leftovers of warm starts, if no control plane runs: processes without children, which ran nothing, and their log.
    fn warm(&self) -> Vec<Item> {
        if self.runs {
            return Vec::new();
        }
        let folder = self.home.join("node/warm");
        let program = folder.join("zygote.py");
        let log = self.item(Kind::Warm, "zygote.log".to_owned(), vec![folder.join("zygote.log")]);
        let processes = zygotes(&program).into_iter().filter_map(|pid| {
            let age = self.age(Path::new(&format!("/proc/{pid}")))?;
            Some(Item { kind: Kind::Warm, name: format!("process {pid}"), bytes: 0, age, thing: Thing::Process(pid) })
        });
        processes.chain(log).collect()
    }

    fn found(&self) -> Vec<Item> {
        let all =
            [self.pythons(), self.repositories(), self.of_jobs(), self.databases(), self.connections(), self.warm()];
        all.concat()
    }
}

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None) != Err(nix::errno::Errno::ESRCH)
}

/// Whether a process holds the lock of this file. A missing file is not locked.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err()
}

/// Processes that run this program and have no children.
fn zygotes(program: &Path) -> Vec<i32> {
    let word = program.as_os_str().as_encoded_bytes();
    let pids = entries(Path::new("/proc")).filter_map(|path| name_of(&path).parse::<i32>().ok());
    let runs = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|one| one == word)
    };
    let children = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    pids.filter(runs).filter(|pid| children(pid).is_ok_and(|children| children.trim().is_empty())).collect()
}

/// The uids of all jobs whose logs and metrics are kept.
async fn jobs(cluster: &Cluster) -> Result<BTreeSet<String>, kube::Error> {
    let mut uids = BTreeSet::new();
    for kind in [client::Kind::TrainJob, client::Kind::MpiJob] {
        let listed = cluster.api_all(kind).list_metadata(&ListParams::default()).await?;
        uids.extend(listed.iter().filter_map(ResourceExt::uid));
    }
    Ok(uids)
}

/// Records of removed clusters.
async fn records(cluster: &Cluster, now: Timestamp) -> Result<Vec<Item>, kube::Error> {
    let wanted = ListParams::default().labels(&format!("{}=true", keys::HISTORY));
    let listed = cluster.api_all(client::Kind::ConfigMap).list(&wanted).await?;
    let items = listed.into_iter().filter_map(|map| {
        let text = |name: &str| map.data["data"][name].as_str();
        let ended: Timestamp = text("endedAt")?.parse().ok()?;
        Some(Item {
            kind: Kind::Clusters,
            name: text("name").unwrap_or_default().to_owned(),
            bytes: map.data.to_string().len() as u64,
            age: Duration::try_from(now.duration_since(ended)).unwrap_or_default(),
            thing: Thing::Record(map.namespace().unwrap_or_default(), map.name_any()),
        })
    });
    Ok(items.collect())
}

/// Why an item was not removed.
#[derive(Debug, thiserror::Error)]
pub enum NotRemoved {
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, io::Error),
    #[error("process {0}: {1}")]
    Process(i32, nix::errno::Errno),
    #[error("{0}: no control plane answers")]
    NoServer(String),
    #[error("{0}: {1}")]
    Record(String, kube::Error),
}

async fn remove(item: &Item, cluster: Option<&Cluster>) -> Result<(), NotRemoved> {
    match (&item.thing, cluster) {
        (Thing::Files(files), _) => files.iter().try_for_each(|path| {
            let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            match if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) } {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(NotRemoved::File(path.clone(), error)),
                _ => Ok(()),
            }
        }),
        (Thing::Process(pid), _) => match kill(Pid::from_raw(*pid), Signal::SIGTERM) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(NotRemoved::Process(*pid, error)),
        },
        (Thing::Record(..), None) => Err(NotRemoved::NoServer(item.name.clone())),
        (Thing::Record(namespace, name), Some(cluster)) => {
            let there = Cluster { namespace: namespace.clone(), ..cluster.clone() };
            match there.api(client::Kind::ConfigMap).delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                Err(error) => Err(NotRemoved::Record(name.clone(), error)),
                Ok(_) => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    fn names(items: &[Item]) -> Vec<String> {
        items.iter().map(|item| format!("{}/{}", item.kind.as_str(), item.name)).collect()
    }

    fn places(root: &Path, jobs: Option<&[&str]>) -> Vec<Item> {
        let places = Places {
            cache: Some(root.join("cache")),
            user: Some(root.join("user")),
            home: &root.join("home"),
            runs: true,
            jobs: jobs.map(|jobs| jobs.iter().map(|uid| (*uid).to_owned()).collect()),
            now: SystemTime::now() + UNKNOWN_MAX + Duration::from_secs(86_400),
        };
        places.found()
    }

    #[test]
    fn what_is_in_use_is_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let page = r#"{"namespace": "ns", "name": "n"}"#;
        for uid in ["live", "gone"] {
            write(root.join(format!("home/history/jobs/{uid}/job.json")));
            fs::write(root.join(format!("home/history/jobs/{uid}/job.json")), page).unwrap();
            write(root.join(format!("home/metrics/ns/n.{uid}.jsonl")));
        }
        for file in [
            "cache/python-1.json",
            "cache/mine",
            "home/store.db",
            "home/store.db.before-restore",
            "home/node/warm/zygote.log",
        ] {
            write(root.join(file));
        }
        write(root.join(format!("home/ssh/c{:x}.0", std::process::id())));
        // above the largest number that a process can have
        for file in ["c7ffffff0.1", "c7ffffff0.1.password", "record.json"] {
            write(root.join("home/ssh").join(file));
        }
        for repository in ["a", "b"] {
            write(root.join(format!("user/.sky/git/{repository}/.git/config")));
            write(root.join(format!("user/.sky/git/{repository}.lock")));
        }
        let lock = fs::File::open(root.join("user/.sky/git/b.lock")).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        let rest = ["database/store.db.before-restore", "ssh/c7ffffff0.1", "ssh/c7ffffff0.1.password"];
        let all = [&["python/python-1.json", "git/a", "logs/ns/n", "metrics/ns/n"][..], &rest].concat();
        assert_eq!(names(&places(root, Some(&["live"]))), all);
        drop(lock);
        let unasked = [&["python/python-1.json", "git/a", "git/b"][..], &rest].concat();
        assert_eq!(names(&places(root, None)), unasked, "no control plane answers");
    }

    #[tokio::test]
    async fn removal_takes_what_was_listed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root.join("outside/kept"));
        write(root.join("user/.sky/git/a/.git/config"));
        std::os::unix::fs::symlink(root.join("outside"), root.join("user/.sky/git/a/link")).unwrap();
        std::os::unix::fs::symlink(root.join("outside"), root.join("user/.sky/git/linked")).unwrap();
        let items = places(root, None);
        assert_eq!(names(&items), ["git/a"]);
        assert!(items.iter().all(|item| item.age >= Duration::from_secs(86_400)));
        for _ in 0..2 {
            assert!(remove(&items[0], None).await.is_ok(), "an item that no longer exists counts as removed");
        }
        assert!(root.join("outside/kept").exists() && !root.join("user/.sky/git/a").exists());
    }

    #[test]
    fn a_process_that_has_children_is_no_leftover() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("zygote.py");
        fs::write(&program, "read line\n").unwrap();
        let spawn = |script: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).arg("sh").arg(&program);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap()
        };
        let mut idle = spawn("echo; read line");
        let mut busy = spawn("cat; :");
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        // `cat` returns its input, so by then it has started
        io::Write::write_all(busy.stdin.as_mut().unwrap(), b"x\n").unwrap();
        for child in [&mut idle, &mut busy] {
            io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        }
        let found = zygotes(&program);
        drop((idle.stdin.take(), busy.stdin.take()));
        assert_eq!(found, [pid(&idle)]);
        idle.wait().unwrap();
        busy.wait().unwrap();
    }
}
