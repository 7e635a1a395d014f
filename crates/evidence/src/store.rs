//! The files of what is kept, and the book that says whose they are.
//!
//! ```text
//! <root>/ended/<pod uid>/                  where the node puts a pod's directory
//! <root>/jobs/<job uid>/job.json           the job's kind and name, and the parts that it had
//! <root>/jobs/<job uid>/pods/<pod uid>/    a pod's directory: pod.json, journal.jsonl, containers/<name>/<attempt>.log
//! ```
//!
//! A pod names the part of a job that it belongs to: a TrainJob's JobSet, an MPIJob's launcher (a Job) or, as a worker does, the MPIJob
//! itself. Only the part names the job: so parts are written down before they can be gone. Everything moves by rename, so that no
//! crash leaves half of anything. Methods wait for the disk.

use crate::bounds::{self, Kept, Limits};
use crate::runs;
use api::jobset::keys::JOBSET_UID;
use api::mpi::names::{LABEL_JOB_ROLE, LABEL_REPLICA_INDEX};
use api::object::{self, Key};
use k8s_openapi::api::core::v1::Pod;
use node::evidence::Keep;
use node::poddir::PodDir;
use node::shim::log_writer::rotated_files;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a pod may lie about whose part nobody has heard of. The watches are late by milliseconds.
const UNKNOWN_MAX: Duration = Duration::from_secs(600);
/// Jobs that are gone and remembered, because their last pods go after them.
const GONE_MAX: usize = 1000;

/// The store of what is kept. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
    limits: Limits,
    book: Arc<Mutex<Book>>,
    /// Rings when the node has put something into `ended`.
    pub bell: Arc<Notify>,
}

/// A kind of job whose pods are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// What a page is about that names no kind: those of before there were others.
    #[default]
    TrainJob,
    #[serde(rename = "MPIJob")]
    MpiJob,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TrainJob => "TrainJob",
            Self::MpiJob => api::mpi::KIND,
        }
    }
}

#[derive(Debug, Default)]
struct Book {
    loaded: bool,
    jobs: BTreeMap<String, Job>,
    /// The job of each part; `None` where it has none.
    owners: BTreeMap<String, Option<String>>,
    gone: VecDeque<String>,
    /// Pods in `ended` that could not be assigned yet, since when.
    unknown: BTreeMap<String, Instant>,
}

#[derive(Debug, Default)]
struct Job {
    kind: Kind,
    key: Key,
    /// The attempt that each part of it is or was; 0 for one that serves several.
    parts: BTreeMap<String, i64>,
    /// A watch has seen it.
    exists: bool,
    /// When it ended, as text that sorts.
    finished: Option<String>,
    /// The book's page is on disk as it is here.
    is_written: bool,
    /// What is kept, and how many bytes of it.
    pods: BTreeMap<String, u64>,
}

/// `job.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Page {
    #[serde(default)]
    kind: Kind,
    namespace: String,
    name: String,
    /// Called what it was when JobSets were the only ones.
    #[serde(rename = "jobsets")]
    parts: BTreeMap<String, i64>,
}

impl Keep for Store {
    fn place(&self, pod: &Pod) -> Option<PathBuf> {
        let object = serde_json::to_value(pod).ok()?;
        let part = part_of(&object)?;
        let uid = plain(pod.metadata.uid.as_deref()?)?;
        // JobSets of others are known at once; what is unknown, or cannot be asked without waiting for the disk, is looked at
        // again later
        if self.book.try_lock().is_ok_and(|book| book.owners.get(part).is_some_and(Option::is_none)) {
            return None;
        }
        let ended = self.ended();
        match private_folder(&ended) {
            Ok(()) => Some(ended.join(uid)),
            Err(error) => {
                tracing::warn!(folder = %ended.display(), %error, "logs of a pod cannot be kept");
                None
            }
        }
    }

    fn moved(&self) {
        self.bell.notify_one();
    }
}

impl Store {
    /// The store below this folder, which is made when there is something to keep.
    pub fn new(root: PathBuf) -> Self {
        Self { root, limits: Limits::default(), book: Arc::default(), bell: Arc::default() }
    }

    fn ended(&self) -> PathBuf {
        self.root.join("ended")
    }

    fn jobs(&self) -> PathBuf {
        self.root.join("jobs")
    }

    fn job(&self, uid: &str) -> PathBuf {
        self.jobs().join(uid)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The book, with what an earlier process has left.
    fn loaded(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book();
        if !book.loaded {
            book.loaded = true;
            if let Err(error) = self.load(&mut book) {
                tracing::warn!(folder = %self.root.display(), %error, "kept logs cannot be read");
            }
        }
        book
    }

    fn load(&self, book: &mut Book) -> io::Result<()> {
        for uid in names(&self.jobs())? {
            let page = fs::read(self.job(&uid).join("job.json")).ok();
            let Some(page) = page.and_then(|bytes| serde_json::from_slice::<Page>(&bytes).ok()) else {
                // its removal was cut short, or its making
                fs::remove_dir_all(self.job(&uid))?;
                continue;
            };
            book.owners.extend(page.parts.keys().map(|part| (part.clone(), Some(uid.clone()))));
            let mut pods = BTreeMap::new();
            for pod in names(&self.job(&uid).join("pods"))? {
                let bytes = size(&self.job(&uid).join("pods").join(&pod));
                pods.insert(pod, bytes);
            }
            let key = Key::new(&page.namespace, &page.name);
            let job = Job { kind: page.kind, key, parts: page.parts, is_written: true, pods, ..Job::default() };
            book.jobs.insert(uid, job);
        }
        Ok(())
    }

    /// The jobs of a kind that are known: what a list should name, if they still exist.
    pub fn known(&self, kind: Kind) -> BTreeSet<String> {
        let book = self.loaded();
        book.jobs.iter().filter(|(_, job)| job.kind == kind).map(|(uid, _)| uid.clone()).collect()
    }

    /// A part of a job is there: by its uid and the job's, where it has one.
    pub fn saw_part(&self, part: &str, owner: Option<(Kind, &str)>, attempt: i64) {
        let mut book = self.loaded();
        book.owners.insert(part.to_owned(), owner.map(|(_, owner)| owner.to_owned()));
        let owner = owner.filter(|(_, owner)| !book.gone.iter().any(|gone| gone == owner));
        let Some((kind, owner)) = owner else { return };
        let job = book.jobs.entry(owner.to_owned()).or_default();
        job.kind = kind;
        if job.parts.insert(part.to_owned(), attempt) != Some(attempt) {
            job.is_written = false;
        }
        self.write(owner, job);
    }

    /// A part that no job owned is gone: so are its pods, or soon. Others are remembered with their jobs.
    pub fn part_gone(&self, uid: &str) {
        let mut book = self.loaded();
        if book.owners.get(uid).is_some_and(Option::is_none) && book.owners.len() > GONE_MAX {
            book.owners.remove(uid);
        }
    }

    /// A job is there.
    pub fn saw_job(&self, kind: Kind, uid: &str, key: &Key, finished: Option<String>) {
        let mut book = self.loaded();
        let job = book.jobs.entry(uid.to_owned()).or_default();
        job.kind = kind;
        job.key = key.clone();
        job.finished = finished;
        job.exists = true;
        self.write(uid, job);
    }

    /// A job is gone, and with it all that was kept of it.
    pub fn job_gone(&self, uid: &str) {
        let mut book = self.loaded();
        let Some(job) = book.jobs.remove(uid) else { return };
        if job.is_written || !job.pods.is_empty() {
            remove(&self.job(uid));
        }
        book.gone.push_back(uid.to_owned());
        if book.gone.len() > GONE_MAX
            && let Some(oldest) = book.gone.pop_front()
        {
            book.owners.retain(|_, owner| owner.as_ref() != Some(&oldest));
        }
    }

    /// Writes the book's page of a job that is known to exist and has parts.
    fn write(&self, uid: &str, job: &mut Job) {
        if job.is_written || !job.exists || job.parts.is_empty() {
            return;
        }
        let Key { namespace, name } = job.key.clone();
        let page = Page { kind: job.kind, namespace, name, parts: job.parts.clone() };
        let bytes = serde_json::to_vec(&page).expect("invariant: plain data");
        let folder = self.job(uid);
        match private_folder(&folder).and_then(|()| write_whole(&folder.join("job.json"), &bytes)) {
            Ok(()) => job.is_written = true,
            Err(error) => tracing::warn!(job = %job.key, %error, "cannot write down the parts of a job"),
        }
    }

    /// Gives the pods in `ended` to their jobs, and removes what is too much.
    pub fn sweep(&self) {
        let mut book = self.loaded();
        let ended = names(&self.ended()).unwrap_or_default();
        book.unknown.retain(|pod, _| ended.contains(pod));
        if ended.is_empty() {
            return;
        }
        let mut grown = BTreeSet::new();
        for pod in ended {
            let dir = self.ended().join(&pod);
            match book.owner(&dir) {
                Owner::Unknown => {
                    let since = *book.unknown.entry(pod).or_insert_with(Instant::now);
                    if since.elapsed() > UNKNOWN_MAX {
                        remove(&dir);
                    }
                }
                Owner::None => remove(&dir),
                Owner::Job(uid) => match self.give(&dir, &uid, &pod) {
                    Ok(bytes) => {
                        if let Some(job) = book.jobs.get_mut(&uid) {
                            job.pods.insert(pod, bytes);
                        }
                        grown.insert(uid);
                    }
                    Err(error) => tracing::warn!(pod.uid = pod, %error, "cannot keep the logs of a pod"),
                },
            }
        }
        for uid in grown {
            self.bound_job(&mut book, &uid);
        }
        self.bound_all(&mut book);
    }

    fn give(&self, dir: &Path, job: &str, pod: &str) -> io::Result<u64> {
        let pods = self.job(job).join("pods");
        private_folder(&pods)?;
        let bytes = size(dir);
        fs::rename(dir, pods.join(pod))?;
        Ok(bytes)
    }

    fn bound_job(&self, book: &mut Book, uid: &str) {
        let Some(job) = book.jobs.get_mut(uid) else { return };
        if job.pods.len() <= self.limits.job_pods && job.pods.values().sum::<u64>() <= self.limits.job_bytes {
            return;
        }
        let pods = self.job(uid).join("pods");
        let kept: Vec<Kept> = job.pods.keys().flat_map(|pod| kept(&PodDir::new(pods.join(pod)))).collect();
        let surplus = bounds::surplus(&kept, &self.limits);
        let mut changed = surplus.pods.clone();
        for pod in &surplus.pods {
            remove(&pods.join(pod));
        }
        for (at, whole) in
            surplus.logs.iter().map(|at| (*at, true)).chain(surplus.old_parts.iter().map(|at| (*at, false)))
        {
            let run = &kept[at];
            cut(&PodDir::new(pods.join(&run.pod)), run, whole);
            changed.insert(run.pod.clone());
        }
        for pod in changed {
            if pods.join(&pod).exists() {
                job.pods.insert(pod.clone(), size(&pods.join(&pod)));
            } else {
                job.pods.remove(&pod);
            }
        }
    }

    /// Of all jobs, those that ended first lose what is kept of them; then, if need be, those that still run.
    fn bound_all(&self, book: &mut Book) {
        let mut bytes: u64 = book.jobs.values().map(|job| job.pods.values().sum::<u64>()).sum();
        if bytes <= self.limits.bytes {
            return;
        }
        let order = |job: &Job| (job.finished.is_none(), job.finished.clone());
        let mut jobs: Vec<(&String, &mut Job)> = book.jobs.iter_mut().filter(|(_, job)| !job.pods.is_empty()).collect();
        jobs.sort_by_key(|(_, job)| order(job));
        for (uid, job) in jobs {
            if bytes <= self.limits.bytes {
                return;
            }
            bytes -= job.pods.values().sum::<u64>();
            tracing::warn!(job = %job.key, "too many logs are kept; those of this job go");
            remove(&self.job(uid).join("pods"));
            job.pods.clear();
        }
    }

    /// The parts that a job is known to have had, and the attempt that each was.
    pub fn parts(&self, job: &str) -> BTreeMap<String, i64> {
        self.loaded().jobs.get(job).map(|job| job.parts.clone()).unwrap_or_default()
    }

    /// The directories of the pods that are kept of a job.
    pub fn pods(&self, job: &str) -> Vec<PodDir> {
        let pods = self.job(job).join("pods");
        let book = self.loaded();
        let kept = book.jobs.get(job).into_iter().flat_map(|job| job.pods.keys());
        kept.map(|pod| PodDir::new(pods.join(pod))).collect()
    }

    /// The directories of pods that no job has been given yet: the watch that tells whose they are may be late.
    pub fn waiting(&self) -> Vec<PodDir> {
        let ended = self.ended();
        names(&ended).unwrap_or_default().iter().map(|pod| PodDir::new(ended.join(pod))).collect()
    }
}

/// Whose a pod is.
enum Owner {
    Job(String),
    /// Nobody's, or a job's that is gone.
    None,
    /// Nobody has heard of its part, or of that one's job, yet.
    Unknown,
}

impl Book {
    fn owner(&self, dir: &Path) -> Owner {
        let Some(pod) = read_pod(&PodDir::new(dir)) else { return Owner::None };
        let Some(owner) = part_of(&pod).and_then(|part| self.owners.get(part)) else {
            return Owner::Unknown;
        };
        match owner {
            None => Owner::None,
            Some(job) if self.gone.contains(job) => Owner::None,
            Some(job) => match self.jobs.get(job) {
                Some(known) if known.exists => Owner::Job(job.clone()),
                _ => Owner::Unknown,
            },
        }
    }
}

/// The uid of the part of a job that a pod belongs to: its JobSet's or, of an MPIJob, that of what controls the pod.
pub fn part_of(pod: &Value) -> Option<&str> {
    let controller = || {
        object::label(pod, LABEL_JOB_ROLE)?;
        object::controller_of(pod).map(|owner| object::text(owner, "uid"))
    };
    object::label(pod, JOBSET_UID).or_else(controller)
}

/// The pod that a directory is of, as it was written last.
pub fn read_pod(dir: &PodDir) -> Option<Value> {
    serde_json::from_slice(&fs::read(dir.pod()).ok()?).ok()
}

/// The runs of a kept pod.
fn kept(dir: &PodDir) -> Vec<Kept> {
    let pod = read_pod(dir).unwrap_or_default();
    let label = |key: &str| object::label(&pod, key).unwrap_or_default();
    let of = format!(
        "{}/{}/{}/{}",
        label("jobset.sigs.k8s.io/job-global-index"),
        label(api::jobset::keys::COMPLETION_INDEX),
        label(LABEL_JOB_ROLE),
        label(LABEL_REPLICA_INDEX)
    );
    let containers = runs::of(dir, &pod).unwrap_or_default();
    let runs = containers.into_iter().flat_map(|container| {
        let name = container.name;
        container.attempts.into_iter().map(move |run| (name.clone(), run))
    });
    runs.map(|(container, run)| Kept {
        pod: dir.uid(),
        container,
        attempt: run.attempt,
        of: of.clone(),
        started: run.started_at.unwrap_or_default(),
        failed: run.exit_code.is_some_and(|code| code != 0),
        bytes: run.log_bytes,
    })
    .collect()
}

/// Removes a run's log, or its older parts, and leaves a mark.
fn cut(dir: &PodDir, run: &Kept, whole: bool) {
    let path = dir.log(&run.container, run.attempt);
    let parts = rotated_files(&path).unwrap_or_default().into_iter().map(|(_, path)| path);
    let files: Vec<PathBuf> = parts.chain(whole.then_some(path)).collect();
    if files.is_empty() {
        return;
    }
    let marked =
        private().write(true).create(true).truncate(true).open(runs::cut_mark(dir, &run.container, run.attempt));
    for file in marked.and(Ok(files)).unwrap_or_default() {
        if let Err(error) = fs::remove_file(&file) {
            tracing::warn!(file = %file.display(), %error, "cannot remove an old log");
        }
    }
}

fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(folder = %folder.display(), %error, "cannot remove what was kept");
        }
        _ => {}
    }
}

/// The uid if it can be a folder's name.
fn plain(uid: &str) -> Option<&str> {
    let is_plain = !uid.is_empty() && uid.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_plain.then_some(uid)
}

/// Names in a folder; none where it is not there.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
    }
}

/// The bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("tmp");
    private().write(true).create(true).truncate(true).open(&fresh)?.write_all(bytes)?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests;
