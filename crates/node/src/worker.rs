//! One pod, from the agent's side: makes it ready to run, starts its shim, reports what the journal says, and stops and
//! removes it when its object goes. Level-triggered: each round looks at everything and does what is missing.

use crate::agent::Shared;
use crate::cgroup;
use crate::env::Sources;
use crate::evidence;
use crate::identity::Peer;
use crate::link::{self, Link};
use crate::orphans;
use crate::poddir::{JournalReader, JournalWriter, PodDir};
use crate::prepare::{self, Choice, PrepareError};
use crate::probes::{Finding, Probes, What};
use crate::status::{self, ContainerState, Observed, PodView, Problem};
use crate::volumes::{self, Place, Tokens};
use crate::wire::{Event, Held, HookKind, Record, Request, boot_of};
use crate::world::{EventType, TokenAsk, World, WorldError};
use api::time::after;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// First and longest wait before something that failed is tried again.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Where launchers of MPI have the list of their hosts. A change of it is seen there at once.
const MPI_HOSTS: &str = "/etc/mpi";
/// Grace, in seconds, for processes of a pod whose object is gone already.
const GRACE_GONE_SECS: u64 = 1;

/// What the cluster wants of a pod.
#[derive(Clone, Debug)]
pub struct Desired {
    pub pod: Arc<Pod>,
    /// The object is gone.
    pub gone: bool,
}

impl Desired {
    fn is_ending(&self) -> bool {
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
    Done,
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
    refresh_at: Instant,
    /// Changes of the ConfigMap with the hosts of an MPI job, where the pod mounts it.
    /// The lock is never contended: a stream alone cannot be referred to from two threads, which tasks have to bear.
    hosts: Option<Mutex<BoxStream<'static, ()>>>,
    probes: Probes,
    ready: BTreeMap<String, bool>,
    /// What an earlier agent found of containers that still run: it holds until a probe finds otherwise.
    ready_before: BTreeMap<String, bool>,
    /// The status that was reported last.
    reported: Value,
    events_sent: usize,
}

impl<W: World> Worker<W> {
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
            known.unwrap_or_else(Timestamp::now)
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
            refresh_at,
            hosts,
            ready: BTreeMap::new(),
            ready_before: BTreeMap::new(),
            reported: Value::Null,
            events_sent: 0,
        }
    }

    /// Runs until the pod is gone from the cluster and from this machine.
    pub async fn run(mut self) {
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
                Ok(Round::Done) => return,
                Ok(Round::Again) => continue,
                Ok(Round::Wait) => {}
                Err(why) => {
                    tracing::warn!(why, "trying again");
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
                Some(()) => self.refresh_at = Instant::now(),
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

    async fn round(&mut self, desired: &Desired) -> Result<Round, String> {
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

    async fn tell_foreign(&self, why: &str) {
        let pod = Arc::clone(&self.desired.borrow().pod);
        self.shared.world.event(&pod, EventType::Warning, "FailedAdoption", why).await;
    }

    /// A pod that is not for this version: it is let go once its object is to go and its shim has gone by itself.
    async fn round_foreign(&mut self, desired: &Desired, why: String) -> Result<Round, String> {
        let text = |e: io::Error| e.to_string();
        if self.dir.shim().map_err(text)?.is_some() || !desired.is_ending() {
            return Err(why);
        }
        if let Some(held) = self.dir.read_held().map_err(text)? {
            end_orphans(held, Vec::new()).await?;
        }
        self.shared.registry().release(&self.dir.uid());
        self.stage = Stage::Over;
        Ok(Round::Again)
    }

    async fn round_new(&mut self, desired: &Desired) -> Result<Round, String> {
        if desired.gone {
            self.retire(desired)?;
            return Ok(Round::Done);
        }
        if desired.is_ending() || desired.is_over() {
            self.stage = Stage::Over;
            return Ok(Round::Again);
        }
        match self.launch(&desired.pod).await {
            Ok(()) => {
                self.warn_of_plain_mode(&desired.pod).await;
                self.stage = Stage::Launched;
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
                Err(why.to_string())
            }
        }
    }

    /// Says what a pod that relies on names or paths of its own gets instead.
    async fn warn_of_plain_mode(&self, pod: &Pod) {
        let Some(spec) = pod.spec.as_ref().filter(|_| !self.shared.settings.isolation.is_hosts()) else { return };
        let mounts = spec.containers.iter().flat_map(|c| c.volume_mounts.iter().flatten());
        let paths: Vec<String> = mounts.map(|mount| mount.mount_path.clone()).collect();
        let mut changes = Vec::new();
        if !self.peer.subdomain.is_empty() {
            changes.push(format!("host names of {:?} were replaced by 127.0.0.1", self.peer.subdomain));
        }
        if !paths.is_empty() {
            changes.push(format!("paths beneath {} were replaced by where the volumes are", paths.join(", ")));
        }
        if !changes.is_empty() {
            let message = format!(
                "This machine gives pods no names and paths of their own; in commands and environments, {}",
                changes.join(", and ")
            );
            self.shared.world.event(pod, EventType::Warning, "PlainMode", &message).await;
        }
    }

    /// Fetches what the pod refers to and writes its directory; the launch description last.
    async fn launch(&mut self, pod: &Arc<Pod>) -> Result<(), PrepareError> {
        let machine = |e: io::Error| PrepareError::Machine(format!("{}: {e}", self.dir.path().display()));
        let (sources, tokens) = self.fetch(pod).await?;
        let given = self.shared.registry().give(pod);
        let given = given.map_err(|lack| PrepareError::Machine(lack.to_string()))?;
        let choice =
            Choice { peer: self.peer.clone(), ports: given.ports, gpus: given.gpus, start_time: self.start_time };
        let launch = prepare::prepare(&self.shared.settings, &self.dir, pod, &choice, &sources, &tokens)?;
        self.shared.registry().write_hosts(&launch.uid).map_err(machine)?;
        self.probes.use_ports(launch.ports.clone());
        let as_json = |e: serde_json::Error| machine(e.into());
        self.dir.write_whole(&self.dir.pod(), &serde_json::to_vec(pod.as_ref()).map_err(as_json)?).map_err(machine)?;
        self.dir.write_whole(&self.dir.launch(), &serde_json::to_vec(&launch).map_err(as_json)?).map_err(machine)
    }

    /// The objects and tokens that the pod refers to.
    async fn fetch(&self, pod: &Pod) -> Result<(Sources, Tokens), PrepareError> {
        let needs = volumes::needs(pod);
        let world = &self.shared.world;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let failed = |e: WorldError| PrepareError::Machine(e.to_string());
        let mut sources = Sources::default();
        for name in needs.config_maps {
            let found = absent_is_none(world.config_map(namespace, &name).await).map_err(failed)?;
            sources.config_maps.insert(name, found);
        }
        for name in needs.secrets {
            let found = absent_is_none(world.secret(namespace, &name).await).map_err(failed)?;
            sources.secrets.insert(name, found);
        }
        let mut tokens = Tokens::new();
        for (audience, expiration_secs) in needs.tokens {
            let account = pod.spec.as_ref().and_then(|s| s.service_account_name.as_deref()).filter(|s| !s.is_empty());
            let ask = TokenAsk {
                namespace: namespace.to_owned(),
                service_account: account.unwrap_or("default").to_owned(),
                audience: audience.clone(),
                expiration_secs,
                pod_name: pod.metadata.name.clone().unwrap_or_default(),
                pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
            };
            let token = world.token(&ask).await.map_err(|e| {
                PrepareError::Machine(format!(
                    "failed to fetch token of service account {:?}: {e}",
                    ask.service_account
                ))
            })?;
            tokens.insert((audience, expiration_secs), token);
        }
        Ok((sources, tokens))
    }

    async fn round_launched(&mut self, desired: &Desired) -> Result<Round, String> {
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
        self.report(desired).await?;
        self.send_events(desired).await;
        self.refresh(&desired.pod).await;
        self.retry = RETRY_MIN;
        Ok(Round::Wait)
    }

    /// Finds the pod's shim, or starts it if there never was one. `false`: look at the journal again.
    async fn connect(&mut self, desired: &Desired) -> Result<bool, String> {
        let text = |e: io::Error| e.to_string();
        if self.dir.shim().map_err(text)?.is_none() {
            if self.journal.read().map_err(text)? {
                return Ok(false);
            }
            if !self.journal.records.is_empty() {
                return self.write_off().await.map(|()| false);
            }
            if desired.is_ending() {
                // Written, but never started: there is nothing to stop.
                let mut journal = JournalWriter::open(&self.dir).map_err(text)?;
                journal.append(Timestamp::now(), Event::Finished).map_err(text)?;
                return Ok(false);
            }
            let held = self.shared.registry().hold(&self.dir.uid());
            link::start(&self.shared.config.shim, &self.dir, held).await.map_err(text)?;
        }
        let mut link = Link::connect(&self.dir).await.map_err(text)?;
        link.send(&Request::Subscribe).await.map_err(text)?;
        self.link = Some(link);
        self.stop_sent = None;
        Ok(true)
    }

    /// Removes the pod's cgroup, in which nothing of use runs any more.
    async fn remove_group(&self) {
        let Ok(Some(launch)) = self.dir.read_launch() else { return };
        let Some(group) = launch.cgroup else { return };
        let removed = tokio::task::spawn_blocking(move || cgroup::remove(&group)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "cannot remove the pod's cgroup; the next start tries again");
        }
    }

    /// The shim died without an end in the journal: so is the pod to. What is left of it is ended first, so that nobody gets
    /// its GPUs and ports beside it.
    async fn write_off(&mut self) -> Result<(), String> {
        let text = |e: io::Error| e.to_string();
        if let Some(held) = self.dir.read_held().map_err(text)? {
            end_orphans(held, self.journal.records.clone()).await?;
        }
        let boot = boot_of(&self.journal.records);
        let message = if boot.is_some_and(|boot| boot != crate::host::boot_id()) {
            "The machine was restarted while the pod ran"
        } else {
            "The process that supervised the pod was killed, and the pod with it"
        };
        tracing::warn!(message, "pod lost");
        let mut journal = JournalWriter::open(&self.dir).map_err(text)?;
        journal.append(Timestamp::now(), Event::Lost { message: message.to_owned() }).map_err(text)
    }

    async fn send_stop(&mut self, desired: &Desired) {
        let grace_secs = desired.grace_secs();
        if self.stop_sent.is_some_and(|sent| sent <= grace_secs) {
            return;
        }
        if let Some(link) = &mut self.link {
            match link.send(&Request::Stop { grace_secs }).await {
                Ok(()) => self.stop_sent = Some(grace_secs),
                Err(_) => self.link = None, // gone: the journal tells
            }
        }
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
                let request = Request::Kill { container: container.clone(), message: message.clone(), grace_secs };
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

    async fn round_over(&mut self, desired: &Desired) -> Result<Round, String> {
        if desired.gone {
            self.retire(desired)?;
            return Ok(Round::Done);
        }
        self.report(desired).await?;
        self.send_events(desired).await;
        if desired.is_ending() {
            match self.shared.world.delete_pod(&desired.pod).await {
                // The watch says when it is really gone.
                Ok(()) | Err(WorldError::NotFound) => {}
                Err(e @ WorldError::Failed { .. }) => return Err(e.to_string()),
            }
        }
        Ok(Round::Wait)
    }

    /// Clears the pod's directory away, but for what is to be kept of it.
    fn retire(&mut self, desired: &Desired) -> Result<(), String> {
        self.read_journal();
        let last = self.last_state(desired).map_err(|e| e.to_string())?;
        let keep = self.shared.config.keep.as_deref();
        evidence::retire(&self.dir, &desired.pod, &last, keep).map_err(|e| e.to_string())
    }

    /// The pod as it was last. Its object may have gone before the status told how it ended: then the journal does.
    fn last_state(&self, desired: &Desired) -> serde_json::Result<Value> {
        let mut pod = serde_json::to_value(&*desired.pod)?;
        if let Some(meta) = pod["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        if desired.is_over() || self.journal.records.is_empty() {
            return Ok(pod);
        }
        let Value::Object(known) = self.status(desired) else { return Ok(pod) };
        let status = &mut pod["status"];
        let others = status["conditions"].take();
        known.into_iter().for_each(|(member, value)| status[member.as_str()] = value);
        if let Some(conditions) = status["conditions"].as_array_mut() {
            let others = others.as_array().into_iter().flatten();
            let others: Vec<&Value> =
                others.filter(|c| !conditions.iter().any(|ours| ours["type"] == c["type"])).collect();
            let others: Vec<Value> = others.into_iter().cloned().collect();
            conditions.extend(others);
        }
        Ok(pod)
    }

    /// The status as the journal has it.
    fn status(&self, desired: &Desired) -> Value {
        status::status(&Observed {
            pod: &desired.pod,
            records: &self.journal.records,
            ready: &self.ready,
            address: self.peer.address,
            host_ip: self.shared.config.host_ip,
            start_time: self.start_time,
            problem: self.problem.as_ref(),
            previous: &self.reported,
            entered: crate::programs::has_hosts(&desired.pod).then(|| self.dir.entered().exists()),
            now: Timestamp::now(),
        })
    }

    /// Writes the status if it differs from the last one.
    async fn report(&mut self, desired: &Desired) -> Result<(), String> {
        if desired.gone || (desired.is_over() && self.journal.records.is_empty()) {
            return Ok(());
        }
        let mut status = self.status(desired);
        if let Some(known) = desired.pod.status.as_ref().filter(|_| desired.is_over()) {
            // A pod that is over stays over, for the reason it was given first.
            status["phase"] = json!(known.phase);
            status["reason"] = json!(known.reason);
            status["message"] = json!(known.message);
        }
        if status == self.reported {
            return Ok(());
        }
        match self.shared.world.patch_status(&desired.pod, status.clone()).await {
            Ok(()) => self.reported = status,
            Err(WorldError::NotFound) => {} // the watch will say so
            Err(e @ WorldError::Failed { .. }) => return Err(e.to_string()),
        }
        Ok(())
    }

    /// Events for journal records that none was sent for.
    async fn send_events(&mut self, desired: &Desired) {
        let records = self.journal.records.get(self.events_sent..).unwrap_or_default().to_vec();
        self.events_sent = self.journal.records.len();
        for record in records {
            let (kind, reason, message) = match record.event {
                Event::Running { container, .. } => {
                    (EventType::Normal, "Started", format!("Container started: {container}"))
                }
                Event::Exited { exit, .. } if matches!(exit.reason.as_str(), "StartError" | "RunContainerError") => {
                    (EventType::Warning, "Failed", format!("Error: {}", exit.message))
                }
                Event::Exited { container, exit, .. } if exit.code != 0 => {
                    let text = format!("Container {container} exited with code {} ({})", exit.code, exit.reason);
                    (EventType::Warning, "Failed", text)
                }
                Event::Waiting { container, back_off_secs, .. } => {
                    let text = format!("Back-off {back_off_secs}s restarting failed container {container}");
                    (EventType::Warning, "BackOff", text)
                }
                Event::HookFailed { hook: HookKind::PostStart, .. } => {
                    (EventType::Warning, "FailedPostStartHook", "PostStartHook failed".to_owned())
                }
                Event::HookFailed { hook: HookKind::PreStop, .. } => {
                    (EventType::Warning, "FailedPreStopHook", "PreStopHook failed".to_owned())
                }
                Event::Stopping { .. } => (EventType::Normal, "Killing", "Stopping the pod's containers".to_owned()),
                Event::Lost { message } => (EventType::Warning, "SupervisorLost", message),
                Event::Exited { .. } | Event::Taken { .. } | Event::Started { .. } | Event::Finished => continue,
            };
            self.shared.world.event(&desired.pod, kind, reason, &message).await;
        }
    }

    /// Keeps what volumes show of config maps, secrets, tokens and the pod itself up to date.
    async fn refresh(&mut self, pod: &Arc<Pod>) {
        if Instant::now() < self.refresh_at {
            return;
        }
        self.refresh_at = after(Instant::now(), self.shared.config.refresh);
        let has_projections =
            pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()).any(|v| {
                v.config_map.is_some() || v.secret.is_some() || v.projected.is_some() || v.downward_api.is_some()
            });
        if !has_projections {
            return;
        }
        match self.fetch(pod).await {
            Ok((sources, tokens)) => {
                let place = Place { dir: &self.dir, data: &self.shared.config.data };
                let facts = self.shared.settings.facts(self.peer.address);
                volumes::refresh(&place, pod, &facts, &sources, &tokens);
            }
            Err(error) => tracing::warn!(%error, "cannot refresh the pod's volumes"),
        }
    }
}

/// When to look again although nothing happened. Only rounds of a launched pod refresh its volumes and so move `refresh_at`:
/// to wait for it elsewhere would be not to wait.
fn next_look(stage: &Stage, retry_at: Option<Instant>, refresh_at: Instant) -> Option<Instant> {
    match stage {
        Stage::Launched => retry_at.or(Some(refresh_at)),
        Stage::New | Stage::Over | Stage::Foreign(_) => retry_at,
    }
}

/// Which probed containers were said to be ready, of those that still run the attempt that it was said of.
fn ready_before(pod: &Pod, view: &PodView) -> BTreeMap<String, bool> {
    let statuses =
        pod.status.iter().flat_map(|s| s.container_statuses.iter().chain(&s.init_container_statuses).flatten());
    let runs = |name: &str, restarts: i32| {
        view.containers.get(name).is_some_and(|c| {
            matches!(c.state, ContainerState::Running { .. }) && i32::try_from(c.attempt) == Ok(restarts)
        })
    };
    let known = statuses.filter(|status| status.ready && runs(&status.name, status.restart_count));
    known.map(|status| (status.name.clone(), true)).collect()
}

async fn end_orphans(held: Held, records: Vec<Record>) -> Result<(), String> {
    let ended = tokio::task::spawn_blocking(move || orphans::end(&held, &records)).await;
    ended.map_err(|e| e.to_string())?
}

fn absent_is_none<T>(result: Result<T, WorldError>) -> Result<Option<T>, WorldError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(WorldError::NotFound) => Ok(None),
        Err(e @ WorldError::Failed { .. }) => Err(e),
    }
}

fn problem(why: &PrepareError) -> Problem {
    match why {
        PrepareError::Volume { .. } | PrepareError::Machine(_) => {
            Problem { container: None, reason: "ContainerCreating", message: why.to_string() }
        }
        PrepareError::Container { container, why } => {
            Problem { container: Some(container.clone()), reason: "CreateContainerConfigError", message: why.clone() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
