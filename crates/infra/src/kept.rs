//! The common part of providers whose machines are reached through a shell: hosts by SSH, pods by the API server of their cluster.
//!
//! A [`Keeper`] makes one call at a time for each machine. It reads and writes the machine's record, brings the program and the agent
//! there, and holds a connection through which the agent reaches the API server. It replaces a connection that ends, with a backoff.
//! [`Reach`] holds the differences: where a machine is, how a script runs there, how it is made and removed.

mod link;
mod reach;
mod record;

pub use link::{AGAIN, Link, Tunnel};
pub use reach::{Line, Next, Reach, Stands};
pub use record::{Kept, Records, Who};

use crate::access::Access;
use crate::attention::Attention;
use crate::fault::Fault;
use crate::host::{Said, first};
use crate::making::Making;
use crate::program::Program;
use crate::provider::{Answering, Provider};
use futures::FutureExt;
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen, State};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long it may take to end all processes of a machine, and to bring the program there.
pub const ENDING: Duration = Duration::from_secs(90);
const UPLOAD: Duration = Duration::from_secs(900);

/// Keeps the machines of one provider.
pub struct Keeper<R: Reach> {
    pub reach: R,
    pub records: Records<R::Record>,
    pub program: Program,
    pub access: Arc<dyn Access>,
    /// Woken when a connection is lost.
    attention: Attention,
    machines: Mutex<BTreeMap<String, Arc<Machine<R>>>>,
}

/// Facts about a machine that are kept as long as this process lives.
pub struct Machine<R: Reach> {
    /// One call at a time.
    pub turn: tokio::sync::Mutex<()>,
    making: Making,
    /// The task that checks it and brings it up; it may have to copy the program again.
    coming_up: Making<Found>,
    link: Mutex<Option<Link<R::Held>>>,
    /// Whether a task tries again and again to reach it.
    awaited: AtomicBool,
    pub memory: R::Memory,
}

impl<R: Reach> Default for Machine<R> {
    fn default() -> Self {
        let (turn, making, coming_up) = (tokio::sync::Mutex::default(), Making::default(), Making::default());
        let (link, awaited) = (Mutex::default(), AtomicBool::default());
        Self { turn, making, coming_up, link, awaited, memory: R::Memory::default() }
    }
}

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Reach> Machine<R> {
    /// The open connection: its port on the machine, and the provider's handle.
    pub fn linked(&self) -> Option<(u16, R::Held)> {
        let link = locked(&self.link);
        link.as_ref().filter(|link| !link.ended()).map(|link| (link.port, link.held.clone()))
    }

    /// Closes the connection.
    pub fn unlink(&self) {
        *locked(&self.link) = None;
    }

    /// Closes the connection if `is_meant` holds for the provider's handle.
    pub fn unlink_if(&self, is_meant: impl FnOnce(&R::Held) -> bool) {
        let mut link = locked(&self.link);
        if link.as_ref().is_some_and(|link| is_meant(&link.held)) {
            *link = None;
        }
    }
}

impl<R: Reach> Keeper<R> {
    /// `folder` holds the records; `program` runs on the machines too.
    pub fn new(reach: R, folder: PathBuf, program: PathBuf, attention: Attention, access: Arc<dyn Access>) -> Self {
        let (records, program) = (Records::new(folder), Program::new(program));
        Self { reach, records, program, access, attention, machines: Mutex::default() }
    }

    pub fn machine(&self, token: &str) -> Arc<Machine<R>> {
        locked(&self.machines).entry(token.to_owned()).or_default().clone()
    }

    /// Forgets a machine that is completely gone.
    fn forget_if_over(&self, record: &R::Record) {
        if record.is_over() {
            locked(&self.machines).remove(&record.who().token);
        }
    }

    async fn create(self: &Arc<Self>, request: &Request) -> Result<Seen, Failure> {
        self.records.create_folder()?;
        R::note(self, request).await?;
        self.made(request.clone()).await
    }

    /// Makes a machine; several callers share one making.
    async fn made(self: &Arc<Self>, request: Request) -> Result<Seen, Failure> {
        let machine = self.machine(&request.token);
        let (keeper, its) = (self.clone(), machine.clone());
        let work = || async move {
            let _turn = its.turn.lock().await;
            R::make(&keeper, &its, request).await
        };
        machine.making.join(work).await
    }

    /// Like [`Self::up`], but goes on if its caller is cut off: copying the program again may take longer than a call.
    async fn observe(self: &Arc<Self>, token: &str) -> Result<Found, Failure> {
        let (keeper, its) = (self.clone(), token.to_owned());
        let machine = self.machine(token);
        let found = machine.coming_up.join(|| async move { keeper.up(&its).await }).await;
        if found.as_ref().is_err_and(|failure| failure.fate == Fate::Retry) {
            self.await_return(token, machine);
        }
        found
    }

    /// The state of the machine. One that must run has its agent and its connection afterwards.
    pub async fn up(self: &Arc<Self>, token: &str) -> Result<Found, Failure> {
        let machine = self.machine(token);
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(token)? else { return Ok(Found::Ended(R::over())) };
        let stands = R::find(self, &machine, &mut record).await?;
        let id = R::id(&record);
        let failed = |fault: Fault| fault.failure(&id);
        match stands {
            Stands::Otherwise(found) => {
                self.forget_if_over(&record);
                Ok(found)
            }
            Stands::Runs(spot) => self.bring(&machine, &mut record, spot).await.map(Found::There).map_err(failed),
            // an agent that ended by itself is started again
            Stands::Linked(line, port) => {
                self.start_agent(&line, &record, port).await.map_err(failed)?;
                Ok(Found::There(record.who().seen(id, State::Running)))
            }
        }
    }

    async fn start(self: &Arc<Self>, handle: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(&handle.token);
        machine.coming_up.end();
        let next = {
            let _turn = machine.turn.lock().await;
            let Some(mut record) = self.records.read(&handle.token)? else { return Ok(Found::Ended(R::over())) };
            R::aim(self, &machine, &mut record, handle.generation).await?
        };
        match next {
            Next::Ended(ended) => Ok(Found::Ended(ended)),
            Next::Make(request) => self.made(*request).await.map(Found::There),
            Next::Up => self.observe(&handle.token).await,
        }
    }

    async fn stop(self: &Arc<Self>, handle: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(&handle.token);
        machine.coming_up.end();
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(&handle.token)? else { return Ok(Found::Ended(R::over())) };
        R::stop(self, &machine, &mut record, handle.generation).await
    }

    async fn delete(self: &Arc<Self>, handle: &Handle) -> Result<Found, Failure> {
        let machine = self.machine(&handle.token);
        machine.making.end();
        machine.coming_up.end();
        let _turn = machine.turn.lock().await;
        let Some(mut record) = self.records.read(&handle.token)? else {
            return R::remove_unrecorded(self, handle).await;
        };
        let found = R::remove(self, &machine, &mut record, handle).await?;
        self.forget_if_over(&record);
        Ok(found)
    }

    /// Makes sure that program, tunnel and agent are there, and keeps the connection.
    pub async fn bring(
        self: &Arc<Self>,
        machine: &Arc<Machine<R>>,
        record: &mut R::Record,
        mut spot: R::Spot,
    ) -> Result<Seen, Fault> {
        let said = R::look(self, record, &mut spot).await?;
        let line = R::line(&spot);
        self.upload(&line, record, &said, R::ADOPTS).await?;
        let entered = line.call("enter", &[("token", &record.who().token)], None, R::QUICK).await?;
        let dir = first(&said, "dir");
        // the old port if possible, because pods know it
        let port = first(&entered, "port").parse().ok();
        let tunnel = R::tunnel(self, spot, port, dir).await?;
        self.note(record, first(&said, "address"), dir);
        let link = self.link(record, tunnel);
        self.start_agent(&line, record, link.port).await?;
        *locked(&machine.link) = Some(link);
        Ok(record.who().seen(R::id(record), State::Running))
    }

    /// Records where the machine is, according to the machine.
    pub fn note(&self, record: &mut R::Record, address: &str, dir: &str) {
        let home = format!("{dir}/home");
        let who = record.who_mut();
        if (who.address.as_str(), &who.home) == (address, &home) {
            return;
        }
        (who.address, who.home) = (address.to_owned(), home);
        if let Err(error) = self.records.write(record) {
            tracing::warn!(%error, "cannot note where a machine is");
        }
    }

    /// Copies the program to the machine, unless it is there. With `adopts`, a copy in the machine's image is enough.
    pub async fn upload(&self, line: &R::Line, record: &R::Record, said: &Said, adopts: bool) -> Result<(), Fault> {
        let (sha256, size) = self.program.digest().await?;
        if first(said, "sha256") == sha256 {
            return Ok(());
        }
        let known = [("token", record.who().token.as_str()), ("sha256", sha256)];
        if adopts && first(&line.call("adopt", &known, None, R::QUICK).await?, "sha256") == sha256 {
            return Ok(());
        }
        let size = size.to_string();
        let [token, sha256] = known;
        line.call("upload", &[token, sha256, ("size", &size)], Some(&self.program.path), UPLOAD).await.map(drop)
    }

    async fn start_agent(&self, line: &R::Line, record: &R::Record, port: u16) -> Result<(), Fault> {
        let (sha256, _) = self.program.digest().await?;
        let who = record.who();
        let pass = self.access.pass(&who.identity(), port).await;
        let pass = pass.map_err(|error| Fault::Stuck(api::error_chain(&error)))?;
        let (port, node) = (port.to_string(), format!("{} {port}", pass.uid));
        let more = R::of_agent(record);
        let mut variables = vec![
            ("token", who.token.as_str()),
            ("sha256", sha256),
            ("node", &node),
            ("port", &port),
            ("kubeconfig", &pass.kubeconfig),
        ];
        variables.extend(more.iter().map(|(name, value)| (*name, value.as_str())));
        line.call("start", &variables, None, ENDING).await.map(drop)
    }
}

/// The provider of the machines of a [`Keeper`].
pub struct Machines<R: Reach>(pub(crate) Arc<Keeper<R>>);

impl<R: Reach> Provider for Machines<R> {
    fn name(&self) -> &'static str {
        R::NAME
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answering<'a, Seen> {
        self.0.create(request).boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.0.observe(&machine.token).boxed()
    }

    fn stop<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.0.stop(machine).boxed()
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.0.start(machine).boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        self.0.delete(machine).boxed()
    }

    fn list_owned(&self) -> Answering<'_, Vec<Seen>> {
        R::owned(&self.0).boxed()
    }
}
