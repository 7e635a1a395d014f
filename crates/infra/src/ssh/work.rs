//! How a machine is made on a host of its pool, and how its connection is kept.

use super::fit::unsuitable;
use super::machines::{NAME, Settings};
use super::record::{Place, Record};
use super::session::{Line, PATIENT, Session};
use crate::access::Access;
use crate::fault::Fault;
use crate::host::{Answer as Said, first, taken};
use crate::making::Making;
use crate::program::Program;
use crate::provider::not_ours;
use crate::records::Records;
use api::sky::Place as Wanted;
use futures::FutureExt;
use futures::future::BoxFuture;
use managed::provider::{Ended, Failure, Fate, Found, Request, Seen, State};
use serde_json::json;
use sky::pools::{self, Pools};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long most tries of a connection that was lost wait for an answer; every eighth waits as long as the first connection may.
const HASTY: Duration = Duration::from_secs(5);
const PATIENT_EVERY: u32 = 8;
/// How long a host may take for what is quick, to end what runs there, and to take the program.
pub const QUICK: Duration = Duration::from_secs(45);
pub const ENDING: Duration = Duration::from_secs(90);
const UPLOAD: Duration = Duration::from_secs(900);
/// KiB of disk that must be left beside the program.
const SPARE_KIB: u64 = 64 << 10;
/// How long a host that may have been taken is waited for, before another one is taken.
const PATIENCE: Duration = Duration::from_secs(60);
/// First and longest pause before a lost connection is tried again.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(5);

pub struct Inner {
    pub settings: Settings,
    pub access: Arc<dyn Access>,
    pub records: Records<Record>,
    pub program: Program,
    pub machines: Mutex<BTreeMap<String, Arc<Machine>>>,
}

/// What is known of a machine while this process lives.
#[derive(Default)]
pub struct Machine {
    /// One call at a time.
    pub turn: tokio::sync::Mutex<()>,
    pub making: Making,
    /// What looks at it and brings it up, which may copy the program anew.
    pub coming_up: Making<Found>,
    pub link: Mutex<Option<Link>>,
    /// Since when the host that may be taken does not answer.
    pub silent: Mutex<Option<Instant>>,
    /// How often a connection was tried since the last one.
    tries: AtomicU32,
}

impl Machine {
    /// How long the next try may wait for an answer. A try that begins while a host is away may hear nothing of its return, so most tries
    /// are short; a slow host has the others.
    fn patience(&self) -> Duration {
        let tries = self.tries.fetch_add(1, Ordering::Relaxed);
        if tries % PATIENT_EVERY == PATIENT_EVERY - 1 { PATIENT } else { HASTY }
    }
}

/// A connection that is kept; it is closed when this goes.
pub struct Link {
    pub line: Line,
    pub ended: CancellationToken,
    pub close: CancellationToken,
    /// Of the host's loopback: the tunnel.
    pub port: u16,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection for some calls: the one that is kept, or one of its own.
pub enum Way {
    Kept(Line),
    Own(Box<Session>),
}

impl Way {
    pub fn line(&self) -> Line {
        match self {
            Self::Kept(line) => line.clone(),
            Self::Own(session) => session.line(),
        }
    }
}

impl Inner {
    pub fn new(settings: Settings, access: Arc<dyn Access>, records: Records<Record>) -> Self {
        let program = Program::new(settings.program.clone());
        Self { settings, access, records, program, machines: Mutex::default() }
    }

    pub fn machine(&self, token: &str) -> Arc<Machine> {
        locked(&self.machines).entry(token.to_owned()).or_default().clone()
    }

    pub fn pools(&self) -> Result<Pools, Failure> {
        let path = &self.settings.pools;
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => {
                text.map_err(|error| Failure::new(Fate::Retry, format!("cannot read {}: {error}", path.display())))?
            }
        };
        pools::parse(&text, &self.settings.home, Path::is_file)
            .map_err(|why| Failure::new(Fate::GiveUp, format!("{}: {why}", path.display())))
    }

    /// The hosts of a pool, or of all.
    pub fn places(&self, pool: &str) -> Result<Vec<(Place, Option<String>)>, Failure> {
        let mut pools = self.pools()?;
        if !pool.is_empty() && !pools.contains_key(pool) {
            let known: Vec<&str> = pools.keys().map(String::as_str).collect();
            let file = self.settings.pools.display();
            let what = format!("there is no pool {pool:?} in {file}; there are: [{}]", known.join(", "));
            return Err(Failure::new(Fate::GiveUp, what));
        }
        if let Some(Err(why)) = pools.get(pool) {
            let file = self.settings.pools.display();
            return Err(Failure::new(Fate::GiveUp, format!("pool {pool:?} of {file} is of no use: {why}")));
        }
        pools.retain(|name, _| pool.is_empty() || name == pool);
        let all = pools.into_iter().flat_map(|(pool, hosts)| {
            hosts.unwrap_or_default().into_iter().map(move |host| {
                let (name, user, identity_file) = (host.name, host.user, host.identity_file);
                (Place { pool: pool.clone(), name, user, identity_file }, host.password)
            })
        });
        Ok(all.collect())
    }

    pub async fn open(&self, place: &Place) -> Result<Session, Fault> {
        self.open_within(place, PATIENT).await
    }

    async fn open_within(&self, place: &Place, patience: Duration) -> Result<Session, Fault> {
        // keys and passwords may have changed since the place was noted
        let known = self.places("").ok().into_iter().flatten().find(|(known, _)| known.is(place));
        let (place, password) = known.unwrap_or_else(|| (place.clone(), None));
        Session::open(&self.settings.folder, &place, password.as_deref(), patience).await
    }

    pub async fn way(&self, machine: &Machine, place: &Place) -> Result<Way, Fault> {
        let kept =
            locked(&machine.link).as_ref().filter(|link| !link.ended.is_cancelled()).map(|link| link.line.clone());
        match kept.filter(|line| line.place.is(place)) {
            Some(line) => Ok(Way::Kept(line)),
            None => {
                let session = self.open_within(place, machine.patience()).await?;
                machine.tries.store(0, Ordering::Relaxed);
                Ok(Way::Own(Box::new(session)))
            }
        }
    }

    /// Makes the machine on the first host that can have it.
    pub async fn make(self: Arc<Self>, request: Request) -> Result<Seen, Failure> {
        self.records.create_folder()?;
        let machine = self.machine(&request.token);
        let _turn = machine.turn.lock().await;
        let mut record = self.records.read(&request.token)?.unwrap_or_else(|| Record {
            token: request.token.clone(),
            node: request.node.clone(),
            labels: request.labels.clone(),
            taints: request.taints.clone(),
            places: Vec::new(),
            current: None,
            address: String::new(),
            home: String::new(),
        });
        let Wanted::Ssh { pool, host: wanted } = request.candidate.place() else {
            return Err(not_ours(NAME, &request));
        };
        let mut hosts: Vec<Place> = self.places(pool)?.into_iter().map(|(place, _)| place).collect();
        hosts.retain(|place| wanted.is_none_or(|wanted| wanted == place.name));
        // what may be taken already comes first
        hosts.sort_by_key(|place| !record.places.iter().any(|one| one.is(place)));
        let (mut told, mut may_come) = (Vec::new(), false);
        for place in hosts {
            let begun = record.places.iter().any(|one| one.is(&place));
            let fault = match self.make_on(&machine, &mut record, &place, &request).await? {
                Ok(seen) => return Ok(seen),
                Err(fault) => fault,
            };
            match &fault {
                Fault::Broken(_) | Fault::Stuck(_) => return Err(fault.failure(&place.id())),
                Fault::Unreachable(_) if begun => {
                    let since = *locked(&machine.silent).get_or_insert_with(Instant::now);
                    if since.elapsed() < PATIENCE {
                        return Err(fault.failure(&place.id()));
                    }
                    may_come = true;
                }
                Fault::Unreachable(_) | Fault::NoRoom(_) => may_come = true,
                Fault::Refused(_) | Fault::Unfit(_) | Fault::Absent => {}
            }
            told.push(format!("{}: {}", place.host(), fault.what()));
        }
        let fate = if may_come { Fate::NextCandidate } else { Fate::GiveUp };
        let what = if told.is_empty() {
            format!("pool {pool} has no host {:?}", wanted.unwrap_or_default())
        } else {
            told.join("; ")
        };
        Err(Failure::new(fate, what))
    }

    /// The outer error is about this side.
    pub async fn make_on(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        record: &mut Record,
        place: &Place,
        request: &Request,
    ) -> Result<Result<Seen, Fault>, Failure> {
        let session = match self.open(place).await {
            Ok(session) => session,
            Err(fault) => return Ok(Err(fault)),
        };
        *locked(&machine.silent) = None;
        let line = session.line();
        let said = match line.call("look", &[("token", &record.token)], None, QUICK).await {
            Ok(said) => said,
            Err(fault) => return Ok(Err(fault)),
        };
        let ours = first(&said, "holder") == record.token;
        if !ours {
            let need = match self.program.digest().await {
                Ok((_, bytes)) => (bytes / 1024).saturating_mul(2).saturating_add(SPARE_KIB),
                Err(fault) => return Ok(Err(fault)),
            };
            if let Some(fault) = unsuitable(&said, &request.candidate, need) {
                return Ok(Err(fault));
            }
        }
        record.forget(place);
        record.places.push(place.clone());
        record.current = Some(place.clone());
        self.records.write(record)?;
        let claim = json!({"owner": self.settings.owner, "node": record.node, "pool": place.pool, "host": place.name})
            .to_string();
        let claimed = line.call("claim", &[("token", &record.token), ("record", &claim)], None, QUICK).await;
        let fault = match claimed {
            Ok(_) => match self.bring(machine, record, session, None).await {
                Ok(seen) => return Ok(Ok(seen)),
                Err(fault @ (Fault::Broken(_) | Fault::Stuck(_))) => return Ok(Err(fault)),
                Err(fault) => match line.call("end", &[("token", &record.token)], None, ENDING).await {
                    Ok(_) | Err(Fault::Absent) => fault,
                    Err(left) => return Ok(Err(Fault::Stuck(format!("{}; and then: {}", fault.what(), left.what())))),
                },
            },
            Err(fault @ Fault::NoRoom(_)) => fault,
            Err(fault) => return Ok(Err(fault)),
        };
        record.forget(place);
        self.records.write(record)?;
        Ok(Err(fault))
    }

    /// Sees to it that program, tunnel and agent are there, and keeps the connection. `said` is what the host has just said of itself.
    pub async fn bring(
        self: &Arc<Self>,
        machine: &Arc<Machine>,
        record: &mut Record,
        session: Session,
        said: Option<Said>,
    ) -> Result<Seen, Fault> {
        let line = session.line();
        let said = match said {
            Some(said) => said,
            None => self.look(&line, record).await?,
        };
        self.upload(&line, record, &said).await?;
        let token = ("token", record.token.as_str());
        let entered = line.call("enter", &[token], None, QUICK).await?;
        let target = self.settings.api_server;
        let port = match first(&entered, "port").parse().ok() {
            // the old port where it can be had: pods know it
            Some(port) => match line.forward(Some(port), target).await {
                Ok(port) => port,
                Err(Fault::Unfit(_)) => line.forward(None, target).await?,
                Err(fault) => return Err(fault),
            },
            None => line.forward(None, target).await?,
        };
        self.start_agent(&line, record, port).await?;
        let seen = self.seen(record, &session.place, &said, State::Running);
        self.keep(machine, record, session, port);
        Ok(seen)
    }

    pub async fn upload(&self, line: &Line, record: &Record, said: &Said) -> Result<(), Fault> {
        let (sha256, _) = self.program.digest().await?;
        if first(said, "sha256") == sha256 {
            return Ok(());
        }
        let variables = [("token", record.token.as_str()), ("sha256", sha256.as_str())];
        line.call("upload", &variables, Some(&self.program.path), UPLOAD).await.map(drop)
    }

    pub async fn start_agent(&self, line: &Line, record: &Record, port: u16) -> Result<(), Fault> {
        let (sha256, _) = self.program.digest().await?;
        let pass = self.access.pass(&record.identity(), port).await.map_err(Fault::Stuck)?;
        let (port, node) = (port.to_string(), format!("{} {port}", pass.uid));
        let variables = [
            ("token", record.token.as_str()),
            ("sha256", sha256),
            ("node", &node),
            ("port", &port),
            ("kubeconfig", &pass.kubeconfig),
        ];
        line.call("start", &variables, None, ENDING).await.map(drop)
    }

    /// What is on the host, if it has our claim.
    pub async fn look(&self, line: &Line, record: &Record) -> Result<Said, Fault> {
        self.find(line, record).await?.map_err(|_| Fault::Absent)
    }

    /// What is on the host, if it has our claim; else why the machine is not there.
    pub async fn find(&self, line: &Line, record: &Record) -> Result<Result<Said, Ended>, Fault> {
        let said = line.call("look", &[("token", &record.token)], None, QUICK).await?;
        if first(&said, "holder") == record.token { Ok(Ok(said)) } else { Ok(Err(unclaimed(&line.place, &said))) }
    }

    pub fn seen(&self, record: &mut Record, place: &Place, said: &Said, state: State) -> Seen {
        let (address, home) = (first(said, "address").to_owned(), format!("{}/home", first(said, "dir")));
        if (&record.address, &record.home) != (&address, &home) {
            (record.address, record.home) = (address, home);
            if let Err(error) = self.records.write(record) {
                tracing::warn!(%error, "cannot note where a machine is");
            }
        }
        seen_of(record, place, state)
    }

    /// Keeps the connection, and makes a new one when it ends, until it is dropped.
    pub fn keep(self: &Arc<Self>, machine: &Arc<Machine>, record: &Record, mut session: Session, port: u16) {
        let (ended, close) = (CancellationToken::new(), CancellationToken::new());
        let link = Link { line: session.line(), ended: ended.clone(), close: close.clone(), port };
        tracing::info!(machine = session.place.id(), port, "the machine is connected");
        *locked(&machine.link) = Some(link);
        let (inner, token, node) = (self.clone(), record.token.clone(), record.node.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = close.cancelled() => return,
                () = session.ended() => ended.cancel(),
            }
            let id = session.place.id();
            drop(session);
            inner.settings.attention.look_at(&node);
            tracing::warn!(machine = id, "the connection to a machine is lost; its pods go on");
            let mut pause = AGAIN;
            loop {
                tokio::select! {
                    () = close.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = pause.saturating_mul(2).min(AGAIN_MAX);
                // boxed: it keeps the next one in turn
                let up: BoxFuture<'_, Result<Found, Failure>> = inner.up(&token).boxed();
                match up.await {
                    Ok(_) => return,
                    Err(error) => tracing::debug!(%error, machine = id, "not connected yet"),
                }
            }
        });
    }
}

/// Why the machine is not on this host, by what the host says of itself.
fn unclaimed(place: &Place, said: &Said) -> Ended {
    if first(said, "holder").is_empty() {
        return absent(place);
    }
    let whose = taken(first(said, "record"), "another machine has claimed it");
    Ended::because(format!("its claim on host {} is gone, and {whose}", place.id()))
}

/// The host has no claim of the machine.
pub fn absent(place: &Place) -> Ended {
    Ended::because(format!("its claim on host {} is gone: it was removed from outside", place.id()))
}

pub fn seen_of(record: &Record, place: &Place, state: State) -> Seen {
    Seen {
        token: record.token.clone(),
        id: place.id(),
        state,
        node: record.node.clone(),
        address: record.address.clone(),
        home: record.home.clone(),
    }
}
