//! One pod, from the agent's side: makes it ready to run, starts its shim, reports what the journal says, and stops and
//! removes it when its object goes. Level-triggered: each round looks at everything and does what is missing.

mod end;
mod report;
mod start;

use crate::agent::Shared;
use crate::cgroup;
use crate::env::Sources;
use crate::evidence;
use crate::identity::Peer;
use crate::link::{self, Link};
use crate::orphans::{self, StillAlive};
use crate::poddir::{JournalReader, JournalWriter, PodDir};
use crate::prepare::{self, Choice, PrepareError};
use crate::probes::{Finding, Probes, What};
use crate::status::{self, ContainerState, Observed, PodView, Problem};
use crate::volumes::{self, Place, Tokens};
use crate::wire::{Event, Held, HookKind, Record, Request, boot_of};
use crate::world::{EventType, PodApi, TokenAsk, WorldError};
use api::time::after;
use end::end_orphans;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use report::ready_before;
use serde_json::{Value, json};
use start::problem;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// First and longest wait before something that failed is tried again.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// How long a pod that was just launched may take to its first process before the cluster hears that it is being started: most
/// pods run by then, and have one status to be written instead of three.
const FIRST_PROCESS: Duration = Duration::from_millis(100);

/// How long a pod of many that start at once runs before the cluster hears of it: a short one has ended by then, and one status to be written.
/// A kubelet with many pods takes longer.
const SETTLES: Duration = Duration::from_millis(100);

/// Where launchers of MPI have the list of their hosts. A change of it is seen there at once.
const MPI_HOSTS: &str = "/etc/mpi";

/// Grace, in seconds, for processes of a pod whose object is gone already.
const GRACE_GONE_SECS: u64 = 1;

/// Why a round could not be done; the next one tries again.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Machine(#[from] io::Error),
    #[error(transparent)]
    Cluster(#[from] WorldError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    StillAlive(#[from] StillAlive),
    #[error(transparent)]
    Object(#[from] serde_json::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// The pod is one of another version's.
    #[error("{0}")]
    Foreign(String),
}

/// What the cluster wants of a pod.
#[derive(Clone, Debug)]
pub struct Desired {
    pub pod: Arc<Pod>,
    /// The object is gone.
    pub gone: bool,
}

impl Desired {
    pub fn is_ending(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Seconds of grace once it is ending.
    fn grace_secs(&self) -> u64 {
        if self.gone {
            return GRACE_GONE_SECS;
        }
        let asked = self.pod.metadata.deletion_grace_period_seconds;
        let own = self.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
        u64::try_from(asked.or(own).unwrap_or(30)).unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or_default();
        phase == "Succeeded" || phase == "Failed"
    }
}

/// What the pod's life is at.
enum Stage {
    /// Nothing was started.
    New,
    /// The launch description is written; a shim runs, or is to be started, or has died.
    Launched,
    /// Nothing of it runs, or will.
    Over,
    /// What there is cannot be read, and why: the work of a later version, or a damaged file. What runs is left alone.
    Foreign(String),
}

/// Whether the worker goes on.
enum Round {
    Wait,
    Again,
    End(Ended),
}

/// Why a worker has nothing to do any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The pod is gone from the cluster and from this machine.
    Gone,
    /// The pod has ended and the cluster knows all of it; the next worker is for its end.
    Rests,
}

pub struct Worker<W> {
    shared: Arc<Shared<W>>,
    dir: PodDir,
    peer: Peer,
    desired: watch::Receiver<Desired>,
    stage: Stage,
    journal: JournalReader,
    link: Option<Link>,
    /// The grace that the shim was told.
    stop_sent: Option<u64>,
    start_time: Timestamp,
    problem: Option<Problem>,
    retry: Duration,
    retry_at: Option<Instant>,
    /// When the status of a pod without a process is reported.
    report_at: Instant,
    /// How long a pod that has one is not.
    settles: Duration,
    /// When its first process was seen.
    runs_since: Option<Instant>,
    refresh_at: Instant,
    /// How long a refresh that fails waits for the next try.
    refresh_retry: Duration,
    /// Changes of the ConfigMap with the hosts of an MPI job, where the pod mounts it.
    /// The lock is never contended: a stream alone cannot be referred to from two threads, which tasks have to bear.
    hosts: Option<Mutex<BoxStream<'static, ConfigMap>>>,
    probes: Probes,
    ready: BTreeMap<String, bool>,
    /// What an earlier agent found of containers that still run: it holds until a probe finds otherwise.
    ready_before: BTreeMap<String, bool>,
    /// The status that was reported last.
    reported: Value,
    events_sent: usize,
}

impl<W: PodApi> Worker<W> {
    pub fn new(shared: Arc<Shared<W>>, uid: &str, peer: Peer, desired: watch::Receiver<Desired>) -> Self {
        let dir = PodDir::of(&shared.config.data, uid);
        let hosts = {
            let pod = &desired.borrow().pod;
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let name = volumes::config_map_at(pod, MPI_HOSTS);
            name.map(|name| Mutex::new(shared.world.config_map_changes(namespace, &name)))
        };
        let refresh_at = after(Instant::now(), shared.config.refresh);
        let start_time = {
            let pod = &desired.borrow().pod;
            let known = pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map(|t| t.0);
            known.unwrap_or_else(clock::now)
        };
        Self {
            journal: JournalReader::new(dir.clone()),
            probes: Probes::new(dir.clone(), peer.address),
            dir,
            peer,
            shared,
            desired,
            stage: Stage::New,
            link: None,
            stop_sent: None,
            start_time,
            problem: None,
            retry: RETRY_MIN,
            retry_at: None,
            report_at: Instant::now(),
            settles: Duration::ZERO,
            runs_since: None,
            refresh_at,
            refresh_retry: RETRY_MIN,
            hosts,
            ready: BTreeMap::new(),
            ready_before: BTreeMap::new(),
            reported: Value::Null,
            events_sent: 0,
        }
    }

    /// Runs until there is nothing to do for the pod, for now or for ever.
    pub async fn run(mut self) -> Ended {
        match self.dir.read_launch() {
            Ok(Some(launch)) => {
                self.start_time = launch.start_time;
                self.stage = Stage::Launched;
                // Events about what happened before were another agent's to send.
                self.events_sent = self.read_journal();
                self.probes.use_ports(launch.ports);
                self.ready_before = ready_before(&self.desired.borrow().pod, &PodView::of(&self.journal.records));
            }
            Ok(None) => {}
            Err(error) => {
                // Where nothing was ever started of it, it can be made ready anew.
                let is_new =
                    matches!((self.dir.shim(), self.dir.read_journal()), (Ok(None), Ok(records)) if records.is_empty());
                if !is_new {
                    self.stage = Stage::Foreign(error.to_string());
                    self.tell_foreign(&error.to_string()).await;
                }
            }
        }
        loop {
            let desired = self.desired.borrow_and_update().clone();
            self.retry_at = None;
            match self.round(&desired).await {
                Ok(Round::End(ended)) => return ended,
                Ok(Round::Again) => continue,
                Ok(Round::Wait) => {}
                Err(why) => {
                    tracing::warn!(why = why.to_string(), "trying again");
                    self.retry_at = Some(after(Instant::now(), self.retry));
                    self.retry = self.retry.saturating_mul(2).min(RETRY_MAX);
                }
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        let timer = next_look(&self.stage, self.retry_at, self.refresh_at);
        let (link, hosts) = (&mut self.link, &mut self.hosts);
        tokio::select! {
            changed = self.desired.changed() => {
                if changed.is_err() {
                    // The agent is going down; it aborts us.
                    std::future::pending::<()>().await;
                }
            }
            alive = async {
                match link {
                    Some(link) => link.notified().await,
                    None => std::future::pending().await,
                }
            } => {
                if !alive {
                    self.link = None;
                }
            }
            finding = self.probes.next() => self.on_finding(finding).await,
            // an elastic launcher asks for them each second: a kubelet's minute would be too late
            changed = async {
                match hosts {
                    Some(hosts) => hosts.get_mut().unwrap_or_else(PoisonError::into_inner).next().await,
                    None => std::future::pending().await,
                }
            } => match changed {
                Some(hosts) => self.show_hosts(&hosts),
                None => self.hosts = None,
            },
            () = async {
                match timer {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            } => {}
        }
    }

    fn read_journal(&mut self) -> usize {
        if let Err(error) = self.journal.read() {
            tracing::warn!(%error, "cannot read the journal");
        }
        self.journal.records.len()
    }

    async fn round(&mut self, desired: &Desired) -> Result<Round, RoundError> {
        match &self.stage {
            Stage::New => self.round_new(desired).await,
            Stage::Launched => self.round_launched(desired).await,
            Stage::Over => self.round_over(desired).await,
            Stage::Foreign(why) => {
                let why = why.clone();
                self.round_foreign(desired, why).await
            }
        }
    }

    /// A pod that is not for this version: it is let go once its object is to go and its shim has gone by itself.
    async fn round_foreign(&mut self, desired: &Desired, why: String) -> Result<Round, RoundError> {
        if self.dir.shim()?.is_some() || !desired.is_ending() {
            return Err(RoundError::Foreign(why));
        }
        if let Some(held) = self.dir.read_held()? {
            end_orphans(held, Vec::new()).await?;
        }
        self.shared.registry().release(&self.dir.uid());
        self.stage = Stage::Over;
        Ok(Round::Again)
    }

    async fn round_new(&mut self, desired: &Desired) -> Result<Round, RoundError> {
        if desired.gone {
            self.retire(desired)?;
            return Ok(Round::End(Ended::Gone));
        }
        if desired.is_ending() || desired.is_over() {
            self.stage = Stage::Over;
            return Ok(Round::Again);
        }
        match self.launch(&desired.pod).await {
            Ok(()) => {
                self.warn_of_plain_mode(&desired.pod).await;
                self.stage = Stage::Launched;
                self.report_at = after(Instant::now(), FIRST_PROCESS);
                self.settles = if self.shared.starts.note(Instant::now()) { SETTLES } else { Duration::ZERO };
                self.problem = None;
                self.retry = RETRY_MIN;
                Ok(Round::Again)
            }
            Err(why) => {
                let problem = problem(&why);
                let is_new = self.problem.as_ref() != Some(&problem);
                self.problem = Some(problem);
                if is_new {
                    let reason = match &why {
                        PrepareError::Volume { .. } => "FailedMount",
                        PrepareError::Container { .. } => "Failed",
                        PrepareError::Machine(_) => "FailedCreatePodSandBox",
                    };
                    let message = match &why {
                        PrepareError::Container { why, .. } => format!("Error: {why}"),
                        PrepareError::Volume { .. } | PrepareError::Machine(_) => why.to_string(),
                    };
                    self.shared.world.event(&desired.pod, EventType::Warning, reason, &message).await;
                }
                self.report(desired).await?;
                Err(why.into())
            }
        }
    }

    async fn round_launched(&mut self, desired: &Desired) -> Result<Round, RoundError> {
        self.read_journal();
        let view = PodView::of(&self.journal.records);
        if view.over.is_some() {
            self.link = None;
            self.probes.clear();
            self.remove_group().await;
            self.shared.registry().release(&self.dir.uid());
            self.stage = Stage::Over;
            return Ok(Round::Again);
        }
        if self.link.is_none() && !self.connect(desired).await? {
            return Ok(Round::Again);
        }
        // Somebody else may have declared the pod over (an eviction): then nothing of it is to run.
        if desired.is_ending() || desired.is_over() {
            self.send_stop(desired).await;
        }
        for container in self.probes.follow(&desired.pod, &view) {
            self.ready.remove(&container);
        }
        for (container, ready) in std::mem::take(&mut self.ready_before) {
            self.ready.insert(container, ready);
        }
        let now = Instant::now();
        if !view.containers.is_empty() {
            self.runs_since.get_or_insert(now);
        }
        let settled_at = self.runs_since.map(|since| after(since, self.settles));
        match starts_until(&view, desired.is_ending(), now, self.report_at, settled_at) {
            Some(at) => self.retry_at = Some(at),
            None => self.report(desired).await?,
        }
        self.send_events(desired).await;
        self.refresh(&desired.pod).await;
        self.retry = RETRY_MIN;
        Ok(Round::Wait)
    }

    async fn on_finding(&mut self, finding: Finding) {
        if !self.probes.is_current(&finding) {
            return; // about an attempt that has ended meanwhile
        }
        let Finding { container, what, .. } = finding;
        match what {
            What::Ready(ready) => {
                self.ready.insert(container, ready);
            }
            What::Started => {
                if !self.ask(&Request::Started { container: container.clone() }).await {
                    self.probes.forget(&container);
                }
            }
            What::Unhealthy { kind, message, kill } => {
                let pod = Arc::clone(&self.desired.borrow().pod);
                let text = format!("{kind} probe failed: {message}");
                self.shared.world.event(&pod, EventType::Warning, "Unhealthy", &text).await;
                // While the pod ends, its containers do so anyway.
                let Some(grace_secs) = kill.filter(|_| !self.desired.borrow().is_ending()) else { return };
                let restarts = pod.spec.as_ref().and_then(|s| s.restart_policy.as_deref()) != Some("Never");
                let what_follows = if restarts { ", will be restarted" } else { "" };
                let message = format!("Container {container} failed {} probe{what_follows}", kind.to_lowercase());
                let request = Request::Kill {
                    container: container.clone(),
                    message: message.clone(),
                    grace_secs,
                    over_memory: None,
                };
                if self.ask(&request).await {
                    self.shared.world.event(&pod, EventType::Normal, "Killing", &message).await;
                } else {
                    self.probes.forget(&container);
                }
            }
        }
    }

    /// Sends a request to the shim; whether there was one to take it.
    async fn ask(&mut self, request: &Request) -> bool {
        let Some(link) = &mut self.link else { return false };
        let sent = link.send(request).await.is_ok();
        if !sent {
            self.link = None;
        }
        sent
    }

    async fn round_over(&mut self, desired: &Desired) -> Result<Round, RoundError> {
        if desired.gone {
            self.retire(desired)?;
            return Ok(Round::End(Ended::Gone));
        }
        self.report(desired).await?;
        self.send_events(desired).await;
        if desired.is_ending() {
            match self.shared.world.delete_pod(&desired.pod).await {
                // The watch says when it is really gone.
                Ok(()) | Err(WorldError::NotFound) => {}
                Err(e @ WorldError::Failed { .. }) => return Err(e.into()),
            }
            return Ok(Round::Wait);
        }
        Ok(Round::End(Ended::Rests))
    }
}

/// Until when nothing is to be told of a pod that starts; `None`: its status is due. `report_at` is for one without a process,
/// `settled_at` for one that has one.
fn starts_until(
    view: &PodView,
    is_ending: bool,
    now: Instant,
    report_at: Instant,
    settled_at: Option<Instant>,
) -> Option<Instant> {
    let has_process = !view.containers.is_empty();
    let due = settled_at.filter(|_| has_process).unwrap_or(report_at);
    (!is_ending && now < due).then_some(due)
}

/// When to look again although nothing happened. Only rounds of a launched pod refresh its volumes and so move `refresh_at`:
/// to wait for it elsewhere would be not to wait.
fn next_look(stage: &Stage, retry_at: Option<Instant>, refresh_at: Instant) -> Option<Instant> {
    match stage {
        Stage::Launched => retry_at.or(Some(refresh_at)),
        Stage::New | Stage::Over | Stage::Foreign(_) => retry_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pod_is_told_of_with_its_first_process_or_after_a_moment() {
        let now = Instant::now();
        let due = now + FIRST_PROCESS;
        let event = Event::Running { container: "c".to_owned(), attempt: 0, pid: 1 };
        let running = PodView::of(&[Record::now(event)]);
        assert_eq!(starts_until(&PodView::default(), false, now, due, None), Some(due));
        assert_eq!(starts_until(&PodView::default(), false, due, due, None), None);
        assert_eq!(starts_until(&PodView::default(), true, now, due, None), None);
        assert_eq!(starts_until(&running, false, now, due, Some(now)), None);
        // one of a crowd: once it has settled
        let settled = now + SETTLES / 2;
        assert_eq!(starts_until(&running, false, now, due, Some(settled)), Some(settled));
        assert_eq!(starts_until(&running, false, settled, due, Some(settled)), None);
        assert_eq!(starts_until(&running, true, now, due, Some(settled)), None);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_time_that_has_passed() {
        let passed = Instant::now();
        let later = passed + Duration::from_secs(1);
        assert_eq!(next_look(&Stage::Over, None, passed), None, "a pod that is over has nothing to refresh");
        assert_eq!(next_look(&Stage::New, Some(later), passed), Some(later));
        assert_eq!(next_look(&Stage::Launched, Some(later), passed), Some(later));
        assert_eq!(next_look(&Stage::Launched, None, later), Some(later));
    }
}
