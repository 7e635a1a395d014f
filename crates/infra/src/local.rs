//! The provider `local`: each machine is a folder of this computer, with its own node agent, a home directory and an address of
//! 127.0.0.0/8.
//!
//! A machine's folder is named after its token and holds `machine.json`, which is written before anything is started. So after a crash
//! there is either nothing, or a machine that `list_owned` reports. The agents run in this process: the program that composes the parts
//! says how.

use crate::provider::{Answering, Provider, in_time};
use futures::FutureExt;
use futures::future::BoxFuture;
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen, State};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The name.
pub const NAME: &str = api::sky::providers::LOCAL;
/// Digits of the token in a folder's name: the paths of sockets below it must stay short.
const ID_LENGTH: usize = 12;

/// The resources of this machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    pub cpus: f64,
    /// GiB.
    pub memory: f64,
    /// The GPUs: their indices and product names.
    pub gpus: Vec<(u32, String)>,
}

/// A machine whose agent must run.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// Its folder: `node` holds the agent's data, `home` is the home directory of jobs.
    pub folder: PathBuf,
    pub node: String,
    pub address: Ipv4Addr,
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeMap<String, String>,
    /// Indices of the GPUs that it has.
    pub gpus: Vec<u32>,
}

/// Runs node agents in this process.
pub trait Agents: Send + Sync + 'static {
    /// Starts the agent of a machine, unless it runs.
    fn start<'a>(&'a self, machine: &'a Local) -> BoxFuture<'a, std::io::Result<()>>;

    /// Whether anything that the agent of the machine in this folder started still runs.
    fn is_busy(&self, folder: &Path) -> bool;

    /// Stops the agent of the machine in this folder, if it runs; returns once it has stopped.
    fn stop<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, ()>;

    /// GPUs in use by pods of this machine itself, which run on none of the provider's machines.
    fn gpus_in_use(&self) -> BTreeSet<u32>;

    /// Keeps such pods from these GPUs, and from no others. Returns false, and changes nothing, if a pod has got one of them meanwhile.
    fn keep_gpus(&self, gpus: BTreeSet<u32>) -> bool;
}

/// The provider.
pub struct Machines {
    root: PathBuf,
    host: Host,
    agents: Arc<dyn Agents>,
    /// Held during a call: GPUs and addresses are chosen by looking at those of other machines.
    turn: Mutex<()>,
}

/// `machine.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    token: String,
    node: String,
    address: Ipv4Addr,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: BTreeMap<String, String>,
    #[serde(default)]
    gpus: Vec<u32>,
    goal: Goal,
    /// Of the last request to stop or start it.
    #[serde(default)]
    generation: i64,
}

/// The goal of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Goal {
    Running,
    Stopped,
    Gone,
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let what = format!("cannot {what} {}", path.display());
    move |error| Failure::new(Fate::Retry, format!("{what}: {error}"))
}

impl Machines {
    /// Machines in folders of `root`, which is made with the first of them.
    pub fn new(root: PathBuf, host: Host, agents: Arc<dyn Agents>) -> Self {
        Self { root, host, agents, turn: Mutex::new(()) }
    }

    fn records(&self) -> Result<Vec<(PathBuf, Record)>, Failure> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.root))?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let folder = entry.map_err(failed("read", &self.root))?.path();
            match read(&folder) {
                Ok(Some(record)) => records.push((folder, record)),
                // the folder exists without a record, so nothing was started in it
                Ok(None) => drop(std::fs::remove_dir(&folder)),
                Err(error) => return Err(error),
            }
        }
        records.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(records)
    }

    fn find(&self, machine: &Handle) -> Result<Option<(PathBuf, Record)>, Failure> {
        let mut all = self.records()?;
        all.retain(|(folder, record)| {
            record.token == machine.token && machine.id.as_ref().is_none_or(|id| *id == id_of(folder))
        });
        Ok(all.pop())
    }

    /// The GPUs of machines on which something runs, or may run at any time. A stopped machine releases its GPUs.
    fn kept<'a>(&self, records: impl IntoIterator<Item = &'a (PathBuf, Record)>) -> BTreeSet<u32> {
        let runs = |(folder, record): &&(PathBuf, Record)| record.goal == Goal::Running || self.agents.is_busy(folder);
        records.into_iter().filter(runs).flat_map(|(_, record)| record.gpus.iter().copied()).collect()
    }

    /// Keeps pods of this machine itself from the GPUs that the provider's machines have now. Call it once, before such pods are started.
    ///
    /// # Errors
    /// A machine's record cannot be read.
    pub fn keep_gpus(&self) -> Result<(), Failure> {
        if !self.host.gpus.is_empty() {
            // no pod has one of them: pods were kept from them since the machine got them
            self.agents.keep_gpus(self.kept(&self.records()?));
        }
        Ok(())
    }

    /// Takes `count` free GPUs that a name matches, and keeps all others from them.
    fn take_gpus(&self, name: &str, count: usize, others: &[(PathBuf, Record)]) -> Result<Vec<u32>, Failure> {
        let mut taken = self.kept(others);
        let in_use = self.agents.gpus_in_use();
        let is_free = |index: &u32| !taken.contains(index) && !in_use.contains(index);
        let free =
            self.host.gpus.iter().filter(|(index, product)| placement::is_named(product, name) && is_free(index));
        let free: Vec<u32> = free.map(|(index, _)| *index).take(count).collect();
        if free.len() < count {
            let what = format!("this machine has {} of {count} {name} free; `nvidia-smi` lists its GPUs", free.len());
            return Err(Failure::new(Fate::NextCandidate, what));
        }
        taken.extend(free.iter().copied());
        match count == 0 || self.agents.keep_gpus(taken) {
            true => Ok(free),
            false => Err(Failure::new(Fate::Retry, "a job has taken one of the GPUs meanwhile".to_owned())),
        }
    }

    fn gpus_for(&self, request: &Request, others: &[(PathBuf, Record)]) -> Result<Vec<u32>, Failure> {
        let Some(wanted) = &request.candidate.accelerators else { return Ok(Vec::new()) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let count = wanted.count.ceil().clamp(0.0, 1e4) as usize;
        self.take_gpus(&wanted.name, count, others)
    }

    /// GPUs for a stopped machine, of the kind that it had: the same ones, or others if the same ones are taken.
    fn gpus_again(&self, folder: &Path, record: &Record) -> Result<Vec<u32>, Failure> {
        let Some(first) = record.gpus.first() else { return Ok(Vec::new()) };
        let mut others = self.records()?;
        others.retain(|(other, _)| other != folder);
        let mut all = self.kept(&others);
        all.extend(record.gpus.iter().copied());
        let is_free = self.kept(&others).is_disjoint(&record.gpus.iter().copied().collect());
        if is_free && self.agents.keep_gpus(all) {
            return Ok(record.gpus.clone());
        }
        let name = self.host.gpus.iter().find(|(index, _)| index == first).map_or("", |(_, product)| product);
        let chosen = self.take_gpus(name, record.gpus.len(), &others);
        // an existing machine has no other candidate
        chosen.map_err(|failure| Failure { fate: Fate::Retry, ..failure })
    }

    fn make(&self, request: &Request) -> Result<(PathBuf, Record), Failure> {
        let others = self.records()?;
        if let Some(found) = others.iter().find(|(_, record)| record.token == request.token) {
            return Ok(found.clone());
        }
        let (wanted, host) = (&request.candidate, &self.host);
        for (what, wanted, has) in
            [("processors", wanted.cpus, host.cpus), ("GiB of memory", wanted.memory, host.memory)]
        {
            if wanted > has {
                let what = format!("this machine has {has:.1} {what}, and {wanted:.1} are asked for");
                return Err(Failure::new(Fate::NextCandidate, what));
            }
        }
        let gpus = self.gpus_for(request, &others)?;
        let addresses: BTreeSet<Ipv4Addr> = others.iter().map(|(_, record)| record.address).collect();
        let record = Record {
            token: request.token.clone(),
            node: request.node.clone(),
            address: address(&request.token, &addresses),
            labels: request.labels.clone(),
            taints: request.taints.clone(),
            gpus,
            goal: Goal::Running,
            generation: 0,
        };
        let folder = self.root.join(id(&request.token));
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for path in [folder.join("home"), folder.join("node")] {
            builder.create(&path).map_err(failed("make", &path))?;
        }
        write(&folder, &record)?;
        Ok((folder, record))
    }

    /// Does the remaining work for a machine's goal, and returns its state afterwards.
    async fn advance(&self, folder: PathBuf, record: Record) -> Result<Found, Failure> {
        let machine = Local {
            folder: folder.clone(),
            node: record.node.clone(),
            address: record.address,
            labels: record.labels.clone(),
            taints: record.taints.clone(),
            gpus: record.gpus.clone(),
        };
        let start = || async {
            let started = self.agents.start(&machine).await;
            started
                .map_err(|why| Failure::new(Fate::Retry, format!("cannot start the agent of {}: {why}", record.node)))
        };
        let busy = self.agents.is_busy(&folder);
        let state = match (record.goal, busy) {
            (Goal::Running, _) => {
                start().await?;
                State::Running
            }
            // the agent ends the processes that still run there
            (Goal::Stopped, true) => {
                start().await?;
                State::Stopping
            }
            (Goal::Gone, true) => {
                start().await?;
                State::Ending
            }
            (Goal::Stopped, false) => {
                self.agents.stop(&folder).await;
                State::Stopped
            }
            (Goal::Gone, false) => {
                self.agents.stop(&folder).await;
                remove(&folder).await?;
                return Ok(Found::ended(format!("its folder {} was removed, as asked", folder.display())));
            }
        };
        Ok(Found::There(seen(&folder, &record, state)))
    }

    async fn to(&self, machine: &Handle, goal: Option<Goal>) -> Result<Found, Failure> {
        let _turn = self.turn.lock().await;
        let Some((folder, mut record)) = self.find(machine)? else {
            // the folder exists before the machine does, and goes last
            let folder = self.root.join(id(&machine.token));
            return Ok(Found::ended(format!("its folder {} is gone", folder.display())));
        };
        let wish = machine.generation;
        if matches!(goal, Some(Goal::Running | Goal::Stopped)) && record.goal != Goal::Gone {
            in_time(wish, record.generation)?;
            if wish > record.generation {
                record.generation = wish;
                write(&folder, &record)?;
            }
        }
        // a machine that must go keeps that goal
        if let Some(goal) = goal.filter(|goal| *goal != record.goal && record.goal != Goal::Gone) {
            if goal == Goal::Running {
                record.gpus = self.gpus_again(&folder, &record)?;
            }
            record.goal = goal;
            write(&folder, &record)?;
        }
        let seen = self.advance(folder, record).await;
        self.keep_gpus()?;
        seen
    }
}

impl Provider for Machines {
    fn name(&self) -> &'static str {
        NAME
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answering<'a, Seen> {
        async move {
            let _turn = self.turn.lock().await;
            let (folder, record) = self.make(request)?;
            let gone = || Failure::new(Fate::Retry, format!("machine {} is on its way out", request.node));
            self.advance(folder, record).await?.there().ok_or_else(gone)
        }
        .boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.to(machine, None).boxed()
    }

    fn stop<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.to(machine, Some(Goal::Stopped)).boxed()
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.to(machine, Some(Goal::Running)).boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.to(machine, Some(Goal::Gone)).boxed()
    }

    fn list_owned(&self) -> Answering<'_, Vec<Seen>> {
        async {
            let state = |goal| match goal {
                Goal::Running => State::Running,
                Goal::Stopped => State::Stopped,
                Goal::Gone => State::Ending,
            };
            let records = self.records()?;
            Ok(records.iter().map(|(folder, record)| seen(folder, record, state(record.goal))).collect())
        }
        .boxed()
    }
}

/// The name of a machine with this token. It has twelve digits of the uid, which are enough, because the digits mean nothing to people.
fn id(token: &str) -> String {
    token.chars().filter(char::is_ascii_alphanumeric).take(ID_LENGTH).collect()
}

fn id_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn seen(folder: &Path, record: &Record, state: State) -> Seen {
    Seen {
        token: record.token.clone(),
        id: id_of(folder),
        state,
        node: record.node.clone(),
        address: record.address.to_string(),
        home: folder.join("home").display().to_string(),
    }
}

/// An address of 127.0.0.0/8 that no other machine has; the same for the same token, if it is free.
fn address(token: &str, taken: &BTreeSet<Ipv4Addr>) -> Ipv4Addr {
    let hash = token.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let tries = (0..u32::MAX).map(|more| {
        let [_, b, c, d] = hash.wrapping_add(more).to_be_bytes();
        Ipv4Addr::new(127, b.clamp(64, 127), c, d.clamp(1, 254))
    });
    tries.into_iter().find(|address| !taken.contains(address)).unwrap_or(Ipv4Addr::LOCALHOST)
}

fn read(folder: &Path) -> Result<Option<Record>, Failure> {
    let path = folder.join("machine.json");
    let text = match crate::answer::record(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(failed("read", &path))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        Failure::new(
            Fate::GiveUp,
            format!("{} cannot be read: {error}; end what runs there, and remove the folder", path.display()),
        )
    })
}

/// Writes the record completely or not at all.
fn write(folder: &Path, record: &Record) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let (path, fresh) = (folder.join("machine.json"), folder.join("machine.json.new"));
    let text = serde_json::to_vec(record).map_err(|error| Failure::new(Fate::GiveUp, error.to_string()))?;
    let written = || {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    written().map_err(failed("write", &path))
}

/// Removes a machine's folder, and the record last, so a half-removed machine is still listed.
async fn remove(folder: &Path) -> Result<(), Failure> {
    let owned = folder.to_owned();
    let removed = tokio::task::spawn_blocking(move || {
        for entry in std::fs::read_dir(&owned)? {
            let path = entry?.path();
            if path.ends_with("machine.json") {
                continue;
            }
            if path.symlink_metadata()?.is_dir() {
                removal::remove_dir_all(&path)?
            } else {
                std::fs::remove_file(&path)?
            }
        }
        std::fs::remove_file(owned.join("machine.json"))?;
        std::fs::remove_dir(&owned)
    });
    let removed = removed.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    removed.map_err(failed("remove", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Nothing {
        in_use: std::sync::Mutex<BTreeSet<u32>>,
        kept: std::sync::Mutex<BTreeSet<u32>>,
    }

    impl Agents for Nothing {
        fn start<'a>(&'a self, _: &'a Local) -> BoxFuture<'a, std::io::Result<()>> {
            async { Ok(()) }.boxed()
        }

        fn is_busy(&self, folder: &Path) -> bool {
            folder.join("node/busy").exists()
        }

        fn stop<'a>(&'a self, _: &'a Path) -> BoxFuture<'a, ()> {
            async {}.boxed()
        }

        fn gpus_in_use(&self) -> BTreeSet<u32> {
            self.in_use.lock().unwrap().clone()
        }

        fn keep_gpus(&self, gpus: BTreeSet<u32>) -> bool {
            let is_free = gpus.is_disjoint(&self.in_use.lock().unwrap());
            if is_free {
                *self.kept.lock().unwrap() = gpus;
            }
            is_free
        }
    }

    fn request(token: &str, gpus: f64) -> Request {
        let accelerators = Some(api::sky::Accelerators { name: "H100".into(), count: gpus });
        let candidate = api::sky::Candidate {
            provider: NAME.into(),
            accelerators: accelerators.filter(|all| all.count > 0.0),
            ..api::sky::Candidate::default()
        };
        let (labels, taints) = (BTreeMap::new(), BTreeMap::new());
        Request { token: token.into(), node: "dev-0-0".into(), candidate, labels, taints }
    }

    #[tokio::test]
    async fn gpus_are_of_one_machine_or_of_a_pod() {
        let root = tempfile::tempdir().unwrap();
        let gpus = [0, 1, 2].map(|index| (index, "NVIDIA H100".to_owned())).to_vec();
        let host = Host { cpus: 2.0, memory: 4.0, gpus };
        let agents = Arc::new(Nothing::default());
        let folder = root.path().join("machines");
        let provider = Machines::new(folder.clone(), host.clone(), agents.clone());
        let kept = || agents.kept.lock().unwrap().clone();
        *agents.in_use.lock().unwrap() = [0].into();
        let one = provider.create(&request("1111-aaaa", 1.0)).await.unwrap();
        let two = provider.create(&request("2222-bbbb", 1.0)).await.unwrap();
        assert_eq!(kept(), [1, 2].into());
        let full = provider.create(&request("3333-cccc", 1.0)).await.unwrap_err();
        assert_eq!(full.fate, Fate::NextCandidate, "a pod has the third");
        let handle = |seen: &Seen| Handle { token: seen.token.clone(), id: None, generation: 0 };

        provider.stop(&handle(&one)).await.unwrap();
        assert_eq!(kept(), [2].into(), "a stopped machine lets go of its own");
        *agents.in_use.lock().unwrap() = [0, 1].into();
        assert_eq!(provider.start(&handle(&one)).await.unwrap_err().fate, Fate::Retry);
        *agents.in_use.lock().unwrap() = [1].into();
        provider.start(&handle(&one)).await.unwrap();
        assert_eq!(kept(), [0, 2].into(), "another one of its kind");

        *agents.kept.lock().unwrap() = BTreeSet::new();
        Machines::new(folder, host, agents.clone()).keep_gpus().unwrap();
        assert_eq!(kept(), [0, 2].into(), "the same after a restart");
        provider.delete(&handle(&two)).await.unwrap();
        assert_eq!(kept(), [0].into());
    }

    #[tokio::test]
    async fn a_machine_is_made_once_and_ends_when_nothing_runs_there() {
        let root = tempfile::tempdir().unwrap();
        let host = Host {
            cpus: 2.0,
            memory: 4.0,
            gpus: vec![(0, "NVIDIA H100".into()), (1, "NVIDIA H100".into()), (2, "NVIDIA L40S".into())],
        };
        let provider = Machines::new(root.path().join("machines"), host, Arc::new(Nothing::default()));
        let one = provider.create(&request("1111-aaaa", 1.0)).await.unwrap();
        let again = provider.create(&request("1111-aaaa", 1.0)).await.unwrap();
        assert_eq!(one, again);
        let full = provider.create(&request("2222-bbbb", 2.0)).await.unwrap_err();
        assert_eq!(full.fate, Fate::NextCandidate);
        let mut other = request("3333-cccc", 1.0);
        other.candidate.accelerators = Some(api::sky::Accelerators { name: "L4".into(), count: 1.0 });
        assert_eq!(provider.create(&other).await.unwrap_err().fate, Fate::NextCandidate, "an L40S is no L4");
        let two = provider.create(&request("2222-bbbb", 1.0)).await.unwrap();
        assert_ne!(one.address, two.address);
        let handle = Handle { token: one.token.clone(), id: None, generation: 0 };
        let state = |found: Result<Found, Failure>| found.unwrap().there().unwrap().state;
        assert_eq!(state(provider.stop(&handle).await), State::Stopped);
        assert_eq!(state(provider.start(&handle).await), State::Running);
        let pod = root.path().join("machines").join(&one.id).join("node/busy");
        std::fs::create_dir_all(&pod).unwrap();
        assert_eq!(state(provider.delete(&handle).await), State::Ending);
        assert_eq!(state(provider.start(&handle).await), State::Ending, "what is to go stays so");
        std::fs::remove_dir(&pod).unwrap();
        let folder = root.path().join("machines").join(&one.id);
        let removed = format!("its folder {} was removed, as asked", folder.display());
        assert_eq!(provider.observe(&handle).await.unwrap(), Found::ended(removed));
        let gone = format!("its folder {} is gone", folder.display());
        assert_eq!(provider.delete(&handle).await.unwrap(), Found::ended(gone));
        let left = provider.list_owned().await.unwrap();
        assert_eq!(left.iter().map(|seen| seen.token.as_str()).collect::<Vec<_>>(), ["2222-bbbb"]);
    }
}
