//! Output of jobs: from their pods while these exist, else from the files on their machines.

use crate::{Found, Show, Sky};
use api::foreign::visible_line;
use api::object;
use api::sky::ClusterPhase;
use client::ClientError;
use facts::{self, Piece};
use files::{here, there};
use futures::io::AsyncRead;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams, LogParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use managed::jobs::{Job, Status, jobs, log_file, stages};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Lines in flight between the readers and the printer.
const LINES_MAX: usize = 1024;
/// Time between two attempts to read on.
pub(crate) const RETRY: Duration = Duration::from_millis(300);
/// How long the control plane may be unreachable.
const ABSENCE_MAX: Duration = Duration::from_secs(120);

/// The pods of a job, by the names of its JobSets.
fn pods_of(job: &Job) -> String {
    let names: Vec<&str> = stages(job).map(|jobset| object::meta(jobset, "name")).collect();
    format!("{} in ({})", api::jobset::keys::JOBSET_NAME, names.join(","))
}

/// The present state of the job.
pub async fn job(sky: &Sky, found: &Found, id: u32) -> Result<Option<Job>, ClientError> {
    Ok(sky.jobs(found.name()).await?.into_iter().find(|job| job.id == id))
}

/// Shows a job's output to its end, and returns how it ended; `None` if the job is gone. `tail` limits the output that is already written
/// to its last lines.
pub async fn follow(
    sky: &Sky,
    found: &Found,
    id: u32,
    worker: Option<u32>,
    tail: Option<usize>,
    show: Show<'_>,
) -> Result<Option<Status>, ClientError> {
    let Some(mut now) = job(sky, found, id).await? else { return Ok(None) };
    if now.status.has_ended() {
        print(sky, found, &now, worker, tail, show).await?;
        return Ok(Some(now.status));
    }
    let (lines, mut printed) = mpsc::channel::<String>(LINES_MAX);
    let mut readers = JoinSet::new();
    let mut read: BTreeSet<String> = BTreeSet::new();
    let name = object::meta(&now.run, "name").to_owned();
    let ended = client::until(sky.jobsets(), &name, |object| {
        let Some(object) = object else { return Some(None) };
        let run = serde_json::to_value(object).ok()?;
        let job = jobs([&run]).pop()?;
        job.status.has_ended().then_some(Some(job.status))
    });
    let mut ended = std::pin::pin!(ended);
    let selector = pods_of(&now);
    let told = match tail {
        None => BTreeMap::new(),
        Some(tail) => last_lines(sky, &selector, worker, tail, show).await?,
    };
    let mut patience = Patience::default();
    let end = 'watch: loop {
        let there = match sky.untyped_pods().list(&ListParams::default().labels(&selector)).await {
            Ok(there) => there,
            Err(error) => {
                patience.wait(error.into(), show).await?;
                continue;
            }
        };
        patience = Patience::default();
        let version = there.metadata.resource_version.clone().unwrap_or_default();
        let start = |pod: DynamicObject, readers: &mut JoinSet<()>, read: &mut BTreeSet<String>| {
            let uid = pod.uid().unwrap_or_default();
            let begun = !matches!(object::text(&pod.data["status"], "phase"), "" | "Pending");
            if begun && is_of(&pod, worker) && read.insert(uid.clone()) {
                let skip = told.get(&uid).copied().unwrap_or(0);
                readers.spawn(read_pod(sky.pods(), pod.name_any(), lines.clone(), skip));
            }
        };
        there.items.into_iter().for_each(|pod| start(pod, &mut readers, &mut read));
        let wanted = WatchParams::default().labels(&selector);
        let mut events = match sky.untyped_pods().watch(&wanted, &version).await {
            Ok(events) => events.boxed(),
            Err(error) => {
                patience.wait(error.into(), show).await?;
                continue;
            }
        };
        loop {
            tokio::select! {
                Some(line) = printed.recv() => (show.line)(&line),
                Some(_) = readers.join_next(), if !readers.is_empty() => {}
                over = &mut ended => break 'watch over?,
                event = events.try_next() => match event {
                    Ok(Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod))) => start(pod, &mut readers, &mut read),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => continue 'watch,
                },
            }
        }
    };
    // output from before the end is still on its way; readers end with their containers
    drop(lines);
    let rest = async {
        loop {
            tokio::select! {
                line = printed.recv() => match line { Some(line) => (show.line)(&line), None => break },
                Some(_) = readers.join_next(), if !readers.is_empty() => {}
            }
        }
    };
    let _ = tokio::time::timeout(std::time::Duration::from_secs(10), rest).await;
    match job(sky, found, id).await? {
        Some(job) => now = job,
        // a cluster that is removed with its last job may be gone by now; the end of the job was reported before
        None => return Ok(end),
    }
    // the job was so short that its pods were never seen
    if read.is_empty() {
        print(sky, found, &now, worker, tail, show).await?;
    }
    Ok(Some(now.status))
}

fn is_of(pod: &DynamicObject, worker: Option<u32>) -> bool {
    let Some(worker) = worker else { return true };
    let name = managed::jobs::name_of_rank(worker);
    pod.labels().get(api::jobset::keys::REPLICATED_JOB_NAME).is_some_and(|held| *held == name)
}

/// Shows the last lines of the pods' output, and returns how many lines of each pod are done.
async fn last_lines(
    sky: &Sky,
    selector: &str,
    worker: Option<u32>,
    tail: usize,
    show: Show<'_>,
) -> Result<BTreeMap<String, usize>, ClientError> {
    let mut all: Vec<String> = Vec::new();
    let mut told = BTreeMap::new();
    for pod in sky.untyped_pods().list(&ListParams::default().labels(selector)).await? {
        if !is_of(&pod, worker) {
            continue;
        }
        let written = facts::whole(&sky.pods(), &pod.name_any(), &LogParams::default()).await.unwrap_or_default();
        // an unfinished line is shown later, with its rest
        let before = all.len();
        all.extend(facts::lines(ended(&written)));
        told.insert(pod.uid().unwrap_or_default(), all.len() - before);
    }
    let skip = all.len().saturating_sub(tail);
    all.iter().skip(skip).for_each(|line| (show.line)(line));
    Ok(told)
}

/// The lines of a text that have ended.
pub(crate) fn ended(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    text.get(..end).unwrap_or_default()
}

/// Reads a pod's log to its end. It reads on after a restart of the control plane, which ends the stream as if all were read.
pub(crate) async fn read_pod(pods: Api<Pod>, name: String, lines: mpsc::Sender<String>, skip: usize) {
    let wanted = LogParams { follow: true, ..LogParams::default() };
    let mut done = skip;
    loop {
        // looked at before the log: what that has afterwards is all
        let has_ended = match pods.get_opt(&name).await {
            Ok(Some(pod)) => {
                let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
                matches!(phase.as_str(), "Succeeded" | "Failed")
            }
            Ok(None) => true,
            Err(_) => false,
        };
        match pods.log_stream(&name, &wanted).await {
            Ok(stream) => match hand_on(stream, &lines, &mut done).await {
                Some(true) if has_ended => return,
                Some(_) => {}
                None => return,
            },
            Err(_) if has_ended => return,
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// How long to wait for a control plane that does not answer.
#[derive(Default)]
pub(crate) struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// Waits a little. Returns the error if it is another one, or has lasted too long.
    pub(crate) async fn wait(&mut self, error: ClientError, show: Show<'_>) -> Result<(), ClientError> {
        let ClientError::Unreachable { .. } = error else { return Err(error) };
        if self.since.is_none() {
            (show.note)("the control plane does not answer; the job goes on, and its output follows");
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() > ABSENCE_MAX {
            return Err(error);
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }
}

/// Passes on the lines of a stream, without those that were shown before, and counts them. `Some(true)`: the stream has ended;
/// `Some(false)`: it broke off; `None`: the receiver is gone.
async fn hand_on(stream: impl AsyncRead + Unpin, lines: &mpsc::Sender<String>, done: &mut usize) -> Option<bool> {
    let mut pieces = facts::Pieces::new(futures::io::BufReader::new(stream));
    let mut left = *done;
    loop {
        let text = match pieces.next().await {
            Ok(Some(Piece::Line { text, .. })) => text,
            Ok(Some(Piece::State(_))) => continue,
            Ok(None) => return Some(true),
            Err(_) => return Some(false),
        };
        if left > 0 {
            left -= 1;
            continue;
        }
        if lines.send(text).await.is_err() {
            return None;
        }
        *done += 1;
    }
}

/// Shows the output of a job so far; `tail` limits it to the last lines.
pub async fn print(
    sky: &Sky,
    found: &Found,
    job: &Job,
    worker: Option<u32>,
    tail: Option<usize>,
    show: Show<'_>,
) -> Result<(), ClientError> {
    let written = written(sky, found, job, worker, show).await?;
    let all: Vec<String> = written.iter().flat_map(|(_, text)| facts::lines(text)).collect();
    let skip = tail.map_or(0, |tail| all.len().saturating_sub(tail));
    all.iter().skip(skip).for_each(|line| (show.line)(line));
    Ok(())
}

/// Why output was not written into a folder.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("job {0} names its folder of logs {1:?}, which is no name of a folder: nothing was written")]
    Name(u32, String),
    #[error("cannot write {}: {}", .0.display(), .1)]
    Write(PathBuf, std::io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Writes the output of a job so far into `sky_logs/TIMESTAMP` below this folder, and returns the folder that it filled.
pub async fn download(
    sky: &Sky,
    found: &Found,
    job: &Job,
    worker: Option<u32>,
    into: &Path,
    show: Show<'_>,
) -> Result<PathBuf, DownloadError> {
    let name = own_name(&job.run_timestamp).ok_or_else(|| DownloadError::Name(job.id, job.run_timestamp.clone()))?;
    let folder = into.join("sky_logs").join(name);
    std::fs::create_dir_all(&folder).map_err(|error| DownloadError::Write(folder.clone(), error))?;
    for (file, text) in written(sky, found, job, worker, show).await? {
        let Some(file) = Path::new(&file).file_name() else { continue };
        let path = folder.join(file);
        write_new(&path, &text).map_err(|error| DownloadError::Write(path, error))?;
    }
    Ok(folder)
}

/// Accepts a name that others chose if it is the name of one folder: it leads nowhere else, and listings show it.
fn own_name(text: &str) -> Option<&str> {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    (is_plain && !text.is_empty() && !text.starts_with(['.', '-']) && text.len() <= 255).then_some(text)
}

/// Replaces a file. A link is replaced too, not followed.
fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    begin_new(path)?.write_all(text)
}

/// An empty file in place of another, or of a link.
pub(crate) fn begin_new(path: &Path) -> std::io::Result<std::fs::File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)
}

/// The output of a job's ranks so far, each with the name of its file below a home directory.
async fn written(
    sky: &Sky,
    found: &Found,
    job: &Job,
    worker: Option<u32>,
    show: Show<'_>,
) -> Result<Vec<(String, Vec<u8>)>, ClientError> {
    let mut all = Vec::new();
    let pods = sky.untyped_pods().list(&ListParams::default().labels(&pods_of(job))).await?;
    for stage in stages(job) {
        let name = object::meta(stage, "name");
        let is_setup = object::label(stage, api::sky::keys::STAGE) == Some("setup");
        let ranks = stage["spec"]["replicatedJobs"].as_array().map_or(0, Vec::len);
        let ranks = u32::try_from(ranks).unwrap_or(u32::MAX);
        for rank in (0..ranks).filter(|rank| worker.is_none_or(|worker| worker == *rank)) {
            let file = log_file(&job.run_timestamp, is_setup, ranks, rank);
            let pod = pods.iter().find(|pod| {
                pod.labels().get(api::jobset::keys::JOBSET_NAME).is_some_and(|held| held == name)
                    && is_of(pod, Some(rank))
            });
            let text = match pod {
                Some(pod) => facts::whole(&sky.pods(), &pod.name_any(), &LogParams::default()).await.ok(),
                None => None,
            };
            let text = match text.filter(|text| !text.is_empty()) {
                None => on_disk(sky, found, job, rank, &file, show).await,
                text => text,
            };
            all.extend(text.map(|text| (file, text)));
        }
    }
    Ok(all)
}

/// A file of a machine. The job may have replaced it by a device or a pipe, which has no end.
fn read_regular(path: &Path) -> std::io::Result<Vec<u8>> {
    let waitless = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(waitless).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    file.take(there::LOG_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// The output of a rank as its machine keeps it, which lacks the prefix: it is the task's own.
async fn on_disk(sky: &Sky, found: &Found, job: &Job, rank: u32, file: &str, show: Show<'_>) -> Option<Vec<u8>> {
    let node = job.machines.get(rank as usize)?;
    let node = found.cluster.status.nodes.iter().find(|one| one.node == *node)?;
    // the annotation may name any file of the machine
    own_name(&job.run_timestamp)?;
    if here::is_here(&found.cluster, node) {
        return read_regular(&Path::new(&node.home).join(file)).ok();
    }
    let shown = found.shown();
    let read = match found.cluster.status.phase {
        ClusterPhase::Up => {
            let cluster = there::Cluster {
                client: sky.client.clone(),
                namespace: sky.namespace.clone(),
                name: found.name().to_owned(),
                uid: object::uid(&found.object).to_owned(),
            };
            let read = there::read_file(&cluster, node, file).await;
            let is_cut = |text: &Option<Vec<u8>>| text.as_ref().is_some_and(|text| text.len() as u64 >= there::LOG_MAX);
            read.inspect(|text| {
                if is_cut(text) {
                    (show.note)(&format!("{file}: only its first {} MiB are read", there::LOG_MAX >> 20));
                }
            })
        }
        phase => Err(format!("the cluster is {}; `sky start {shown}` starts it", phase.as_str())),
    };
    let told = |why: &String| {
        (show.note)(&format!(
            "the output of job {} is on {} and cannot be had: {}",
            job.id,
            node.machine,
            visible_line(why)
        ))
    };
    read.inspect_err(told).ok().flatten()
}

/// How the ranks of a job ended, as far as their pods still say.
#[derive(Debug, Default, PartialEq)]
pub struct Codes {
    /// Exit code and time of the end, by rank; `None`: its pod is gone, or has not ended.
    ranks: Vec<Option<(i64, String)>>,
}

impl Codes {
    /// `ERROR: Job 1 failed with return code list: [?, 7]. Rank 1 (worker1) failed first, with exit code 7.` `None`: nothing is known.
    pub fn sentence(&self, id: u32) -> Option<String> {
        let known = self.ranks.iter().enumerate().filter_map(|(rank, end)| end.as_ref().map(|end| (rank, end)));
        // ranks that were ended together with the job report 143 or 137
        let is_own = |code: i64| code != 0 && code != 143 && code != 137;
        let failed = known.filter(|(_, (code, _))| *code != 0);
        let (rank, (code, _)) = failed.min_by_key(|(rank, (code, at))| (!is_own(*code), at.clone(), *rank))?;
        let list: Vec<String> =
            self.ranks.iter().map(|end| end.as_ref().map_or("?".to_owned(), |(code, _)| code.to_string())).collect();
        let name = managed::jobs::name_of_rank(u32::try_from(rank).unwrap_or(u32::MAX));
        let list = list.join(", ");
        Some(match self.ranks.len() {
            0 | 1 => format!("ERROR: Job {id} failed with return code list: [{list}]"),
            _ => format!(
                "ERROR: Job {id} failed with return code list: [{list}]. Rank {rank} ({name}) failed first, with exit code {code}; \
                 the other ranks were ended with it."
            ),
        })
    }
}

/// The exit codes of a job's ranks.
pub async fn codes(sky: &Sky, found: &Found, id: u32) -> Option<Codes> {
    let job = job(sky, found, id).await.ok()??;
    let pods = sky.untyped_pods().list(&ListParams::default().labels(&pods_of(&job))).await.ok()?;
    let mut codes = Codes { ranks: vec![None; usize::try_from(job.nodes).unwrap_or(1).max(1)] };
    for pod in &pods.items {
        let name = pod.labels().get(api::jobset::keys::REPLICATED_JOB_NAME).map(String::as_str).unwrap_or_default();
        let rank = (0..job.nodes.max(1)).find(|rank| managed::jobs::name_of_rank(*rank) == name);
        let statuses = pod.data["status"]["containerStatuses"].as_array();
        let ended = statuses.and_then(|statuses| Some(&statuses.first()?["state"]["terminated"]));
        if let (Some(rank), Some(ended)) = (rank.and_then(|rank| usize::try_from(rank).ok()), ended)
            && let (Some(slot), Some(code)) = (codes.ranks.get_mut(rank), ended["exitCode"].as_i64())
        {
            *slot = Some((code, object::text(ended, "finishedAt").to_owned()));
        }
    }
    Some(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_failed_by_itself_is_named() {
        let end = |code: i64, at: &str| Some((code, at.to_owned()));
        let told = |ranks: Vec<Option<(i64, String)>>| Codes { ranks }.sentence(1);
        let said = told(vec![end(143, "1"), None, end(7, "2")]).unwrap();
        assert_eq!(
            said,
            "ERROR: Job 1 failed with return code list: [143, ?, 7]. Rank 2 (worker2) failed first, with exit code 7; \
             the other ranks were ended with it."
        );
        assert_eq!(told(vec![end(3, "1")]).as_deref(), Some("ERROR: Job 1 failed with return code list: [3]"));
        assert!(told(vec![end(2, "2"), end(1, "1")]).unwrap().contains("Rank 1 (worker1) failed first"));
        assert_eq!(told(vec![None]), None);
    }

    #[test]
    fn a_folder_of_logs_leads_nowhere_else() {
        for good in ["sky-2026-11-28-19-00-00-123456", "a", "x..y"] {
            assert_eq!(own_name(good), Some(good));
        }
        let long = "x".repeat(256);
        for bad in ["", ".", "..", "../x", "a/../../b", "/etc", "a/b", ".ssh", "-x", "a\0b", "a\nb", "\u{1b}[2J", &long]
        {
            assert_eq!(own_name(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_link_is_replaced_and_a_device_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("mine"), "mine").unwrap();
        std::os::unix::fs::symlink(at("mine"), at("run.log")).unwrap();
        write_new(&at("run.log"), b"output").unwrap();
        write_new(&at("run.log"), b"output").unwrap();
        assert_eq!(read_regular(&at("run.log")).unwrap(), b"output");
        assert_eq!(std::fs::read(at("mine")).unwrap(), b"mine");
        std::os::unix::fs::symlink("/dev/zero", at("zero")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_regular(&at("zero")).is_err() && read_regular(&at("pipe")).is_err());
    }
}
