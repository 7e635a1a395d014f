//! How a host is reached: the functions of `host.sh` run over the permanent connection, or over a temporary one.

use super::machines::{NAME, Settings};
use super::record::{Place, Record};
use super::session::{Line, PATIENT, Session};
use crate::fault::Fault;
use crate::host::{Said, first, taken};
use crate::kept::{ENDING, Keeper, Line as _, Machine, Next, Reach, Stands, Tunnel};
use futures::{FutureExt, StreamExt};
use managed::provider::{Ended, Failure, Fate, Found, Handle, Request, Seen, State};
use sky::pools::{self, Pools};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long most retries of a lost connection wait for an answer; every eighth waits as long as a first connection may.
const HASTY: Duration = Duration::from_secs(5);
const PATIENT_EVERY: u32 = 8;
/// How long a quick action on a host may take.
pub const QUICK: Duration = Duration::from_secs(45);
/// How many hosts are asked at the same time.
const AT_ONCE: usize = 16;

/// Hosts of the pools.
pub struct Ssh {
    pub settings: Settings,
}

/// Facts about a machine that are kept as long as this process lives.
#[derive(Default)]
pub struct Memory {
    /// Since when the possibly taken host does not answer.
    pub silent: Mutex<Option<Instant>>,
    /// Number of attempts to connect since the last connection.
    tries: AtomicU32,
}

impl Memory {
    /// How long the next attempt may wait for an answer. Most attempts are short, because one that begins while a host is away may not
    /// notice its return; the long ones are for slow hosts.
    fn patience(&self) -> Duration {
        let tries = self.tries.fetch_add(1, Ordering::Relaxed);
        if tries % PATIENT_EVERY == PATIENT_EVERY - 1 { PATIENT } else { HASTY }
    }
}

/// A host with our claim, with an open connection.
pub struct Spot {
    pub session: Session,
    /// The host's newest facts about itself.
    pub said: Option<Said>,
}

/// A connection for some calls: the permanent one, or a temporary one.
enum Way {
    Kept(Line),
    Own(Box<Session>),
}

impl Way {
    fn line(&self) -> Line {
        match self {
            Self::Kept(line) => line.clone(),
            Self::Own(session) => session.line(),
        }
    }
}

impl Ssh {
    fn pools(&self) -> Result<Pools, Failure> {
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
        // keys and passwords may have changed since the place was recorded
        let known = self.places("").ok().into_iter().flatten().find(|(known, _)| known.is(place));
        let (place, password) = known.unwrap_or_else(|| (place.clone(), None));
        Session::open(&self.settings.folder, &place, password.as_deref(), patience).await
    }

    async fn way(&self, machine: &Machine<Self>, place: &Place) -> Result<Way, Fault> {
        match machine.linked().map(|(_, line)| line).filter(|line| line.place.is(place)) {
            Some(line) => Ok(Way::Kept(line)),
            None => {
                let session = self.open_within(place, machine.memory.patience()).await?;
                machine.memory.tries.store(0, Ordering::Relaxed);
                Ok(Way::Own(Box::new(session)))
            }
        }
    }
}

/// The host's facts, if it has our claim; else why the machine is not there.
async fn claimed(line: &Line, record: &Record) -> Result<Result<Said, Ended>, Fault> {
    let said = line.call("look", &[("token", &record.who.token)], None, QUICK).await?;
    if first(&said, "holder") == record.who.token { Ok(Ok(said)) } else { Ok(Err(unclaimed(&line.place, &said))) }
}

/// Why the machine is not on this host, according to the host's facts.
fn unclaimed(place: &Place, said: &Said) -> Ended {
    if first(said, "holder").is_empty() {
        return absent(place);
    }
    let whose = taken(first(said, "record"), "another machine has claimed it");
    Ended::because(format!("its claim on host {} is gone, and {whose}", place.id()))
}

/// The host has no claim of the machine.
fn absent(place: &Place) -> Ended {
    Ended::because(format!("its claim on host {} is gone: it was removed from outside", place.id()))
}

impl Keeper<Ssh> {
    /// Ends all that is ours on one host.
    async fn end(&self, machine: &Machine<Ssh>, record: &mut Record, place: &Place) -> Result<Found, Failure> {
        let left = |fault: Fault| {
            let what = format!("{}; what is on it cannot be removed", fault.what());
            Failure::new(Fate::Retry, format!("{}: {what}", place.id()))
        };
        let way = self.reach.way(machine, place).await.map_err(left)?;
        let line = way.line();
        let said = claimed(&line, record).await.map_err(left)?;
        if let Ok(said) = &said
            && first(said, "sha256").is_empty()
        {
            // without the program, the processes that it started cannot be ended
            match self.upload(&line, record, said, Ssh::ADOPTS).await {
                Ok(()) | Err(Fault::Absent | Fault::NoRoom(_) | Fault::Unfit(_)) => {}
                Err(fault) => return Err(left(fault)),
            }
        }
        match line.call("end", &[("token", &record.who.token)], None, ENDING).await {
            Ok(_) | Err(Fault::Absent) => {}
            Err(fault) => return Err(left(fault)),
        }
        machine.unlink_if(|line| line.place.is(place));
        record.forget(place);
        self.records.write(record)?;
        Ok(Found::ended(format!(
            "host {} was told that the machine is to go, and nothing of it is left there",
            place.id()
        )))
    }

    /// The claims of a record's hosts, if they can be reached; places without a claim are forgotten.
    async fn owned(&self, record: Record) -> Vec<Seen> {
        let machine = self.machine(&record.who.token);
        // the task that works on the record checks by itself
        let Ok(_turn) = machine.turn.try_lock() else {
            return record.current.iter().map(|place| record.seen(place, State::Starting)).collect();
        };
        let Ok(Some(mut record)) = self.records.read(&record.who.token) else { return Vec::new() };
        let mut found = Vec::new();
        for place in record.places.clone() {
            let Ok(way) = self.reach.way(&machine, &place).await else { continue };
            match claimed(&way.line(), &record).await {
                Ok(Ok(said)) => {
                    let state = match first(&said, "goal") {
                        "gone" => State::Ending,
                        "stopped" => State::Stopped,
                        _ => State::Running,
                    };
                    found.push(record.seen(&place, state));
                }
                Ok(Err(_)) if record.current.as_ref().is_none_or(|current| !current.is(&place)) => {
                    record.forget(&place);
                    let _ = self.records.write(&record); // it is forgotten another time
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
        found
    }
}

impl Reach for Ssh {
    const NAME: &'static str = NAME;
    const QUICK: Duration = QUICK;
    const AGAIN_MAX: Duration = Duration::from_secs(5);
    const ADOPTS: bool = false;

    type Record = Record;
    type Line = Line;
    type Spot = Spot;
    type Held = Line;
    type Memory = Memory;

    fn id(record: &Record) -> String {
        record.current.as_ref().map_or_else(|| record.who.node.clone(), Place::id)
    }

    /// A host is forgotten only after it has confirmed that nothing is left.
    fn over() -> Ended {
        Ended::because("none of its hosts has anything of it any more, as they have said themselves")
    }

    fn line(spot: &Spot) -> Line {
        spot.session.line()
    }

    fn of_agent(_: &Record) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Each host is recorded just before it is tried.
    async fn note(_: &Keeper<Self>, _: &Request) -> Result<(), Failure> {
        Ok(())
    }

    async fn make(keeper: &Arc<Keeper<Self>>, machine: &Arc<Machine<Self>>, request: Request) -> Result<Seen, Failure> {
        keeper.make(machine, request).await
    }

    async fn find(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
    ) -> Result<Stands<Self>, Failure> {
        let Some(place) = record.current.clone() else { return Ok(Stands::Otherwise(Found::Ended(Self::over()))) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = keeper.reach.way(machine, &place).await.map_err(failed)?;
        let said = match claimed(&way.line(), record).await.map_err(failed)? {
            Ok(said) => said,
            Err(ended) => return Ok(Stands::Otherwise(Found::Ended(ended))),
        };
        match (first(&said, "goal"), way) {
            ("gone", _) => keeper.end(machine, record, &place).await.map(Stands::Otherwise),
            ("stopped", _) => {
                keeper.note(record, first(&said, "address"), first(&said, "dir"));
                Ok(Stands::Otherwise(Found::There(record.seen(&place, State::Stopped))))
            }
            (_, Way::Own(session)) => Ok(Stands::Runs(Spot { session: *session, said: Some(said) })),
            (_, Way::Kept(line)) => {
                keeper.note(record, first(&said, "address"), first(&said, "dir"));
                Ok(match machine.linked() {
                    Some((port, _)) => Stands::Linked(line, port),
                    None => Stands::Otherwise(Found::There(record.seen(&place, State::Running))),
                })
            }
        }
    }

    async fn look(_: &Keeper<Self>, record: &Record, spot: &mut Spot) -> Result<Said, Fault> {
        match spot.said.take() {
            Some(said) => Ok(said),
            None => claimed(&spot.session.line(), record).await?.map_err(|_| Fault::Absent),
        }
    }

    async fn tunnel(keeper: &Keeper<Self>, spot: Spot, port: Option<u16>, _: &str) -> Result<Tunnel<Line>, Fault> {
        let (mut session, target) = (spot.session, keeper.reach.settings.api_server);
        let line = session.line();
        let port = match line.forward(port, target).await {
            // the old port is in use
            Err(Fault::Unfit(_)) if port.is_some() => line.forward(None, target).await?,
            opened => opened?,
        };
        let carried = async move { session.ended().await }.boxed();
        Ok(Tunnel { port, held: line, carried })
    }

    /// Ends the agent and all pods; the host and its folder stay ours.
    async fn stop(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
        generation: i64,
    ) -> Result<Found, Failure> {
        let Some(place) = record.current.clone() else { return Ok(Found::Ended(Self::over())) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = keeper.reach.way(machine, &place).await.map_err(failed)?;
        let (line, generation) = (way.line(), generation.to_string());
        let variables = [("token", record.who.token.as_str()), ("generation", &generation)];
        match line.call("stop", &variables, None, ENDING).await {
            Ok(_) => {}
            Err(Fault::Absent) => return Ok(Found::Ended(absent(&place))),
            Err(fault) => return Err(failed(fault)),
        }
        let said = claimed(&line, record).await.map_err(failed)?;
        machine.unlink();
        match said {
            Ok(said) => {
                keeper.note(record, first(&said, "address"), first(&said, "dir"));
                Ok(Found::There(record.seen(&place, State::Stopped)))
            }
            Err(ended) => Ok(Found::Ended(ended)),
        }
    }

    async fn aim(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
        generation: i64,
    ) -> Result<Next, Failure> {
        let Some(place) = record.current.clone() else { return Ok(Next::Ended(Self::over())) };
        let failed = |fault: Fault| fault.failure(&place.id());
        let way = keeper.reach.way(machine, &place).await.map_err(failed)?;
        let generation = generation.to_string();
        let variables = [("token", record.who.token.as_str()), ("goal", ""), ("generation", generation.as_str())];
        match way.line().call("aim", &variables, None, QUICK).await {
            Ok(_) => Ok(Next::Up),
            Err(Fault::Absent) => Ok(Next::Ended(absent(&place))),
            Err(fault) => Err(failed(fault)),
        }
    }

    async fn remove(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Record,
        handle: &Handle,
    ) -> Result<Found, Failure> {
        let current = record.current.as_ref().map(Place::id);
        // if the handle names another place than the recorded one, only that place is ended
        let alone = handle.id.as_ref().filter(|id| current.as_ref().is_some_and(|current| current != *id));
        for place in record.places.clone() {
            if alone.is_none_or(|id| *id == place.id()) {
                keeper.end(machine, record, &place).await?;
            }
        }
        Ok(Found::Ended(Self::over()))
    }

    async fn remove_unrecorded(_: &Keeper<Self>, _: &Handle) -> Result<Found, Failure> {
        Ok(Found::Ended(Self::over()))
    }

    /// Hosts that cannot be reached are skipped.
    async fn owned(keeper: &Arc<Keeper<Self>>) -> Result<Vec<Seen>, Failure> {
        let asked = futures::stream::iter(keeper.records.all()?.into_iter().map(|record| keeper.owned(record)));
        Ok(asked.buffered(AT_ONCE).collect::<Vec<_>>().await.concat())
    }
}
