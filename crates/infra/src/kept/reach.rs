//! The differences between providers of a [`Keeper`].

use super::{Keeper, Kept, Machine, Tunnel};
use crate::fault::Fault;
use crate::host::Said;
use managed::provider::{Ended, Failure, Found, Handle, Request, Seen};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Runs functions of `host.sh` on a machine.
pub trait Line: Clone + Send + Sync + 'static {
    /// Calls a function with these variables; `payload` is its input.
    ///
    /// # Errors
    /// The machine's fault, or `Broken`.
    fn call(
        &self,
        function: &str,
        variables: &[(&str, &str)],
        payload: Option<&Path>,
        limit: Duration,
    ) -> impl Future<Output = Result<Said, Fault>> + Send;
}

/// The state in which a machine is found.
pub enum Stands<R: Reach> {
    /// It must run, and is connected: the port of the tunnel.
    Linked(R::Line, u16),
    /// It must run, and is not connected yet.
    Runs(R::Spot),
    /// It has ended, does not run yet, or must not run.
    Otherwise(Found),
}

/// How to start a stopped machine.
pub enum Next {
    /// It cannot be started.
    Ended(Ended),
    /// It must be made again.
    Make(Box<Request>),
    /// It exists.
    Up,
}

/// How machines of a provider are reached.
///
/// Methods that take a [`Machine`] are called while its turn is held. They take the keeper, whose `reach` is the implementation.
pub trait Reach: Sized + Send + Sync + 'static {
    /// Its name in `spec.candidate.provider`.
    const NAME: &'static str;
    /// How long a quick command may take.
    const QUICK: Duration;
    /// The longest pause before a lost connection is tried again.
    const AGAIN_MAX: Duration;
    /// Whether an image may have brought the program.
    const ADOPTS: bool;

    type Record: Kept;
    type Line: Line;
    /// The place of a running machine that must be connected.
    type Spot: Send;
    /// The handle of an open connection.
    type Held: Clone + Send + Sync;
    /// Other facts about a machine that are kept as long as this process lives.
    type Memory: Default + Send + Sync;

    /// The provider's name for the machine of a record.
    fn id(record: &Self::Record) -> String;

    /// Why a machine without a record has ended.
    fn over() -> Ended;

    /// Runs scripts on the machine.
    fn line(spot: &Self::Spot) -> Self::Line;

    /// Additional variables for the start of the agent.
    fn of_agent(record: &Self::Record) -> Vec<(&'static str, String)>;

    /// Records everything that must be durable before the machine is made.
    ///
    /// # Errors
    /// It cannot be made.
    fn note(keeper: &Keeper<Self>, request: &Request) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Makes the machine, or finds it if it exists.
    fn make(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        request: Request,
    ) -> impl Future<Output = Result<Seen, Failure>> + Send;

    /// Finds the machine. If it must stop or go, it is stopped or removed.
    fn find(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
    ) -> impl Future<Output = Result<Stands<Self>, Failure>> + Send;

    /// The machine's facts about itself: `dir`, `address`, `sha256`. The machine then has our claim.
    fn look(
        keeper: &Keeper<Self>,
        record: &Self::Record,
        spot: &mut Self::Spot,
    ) -> impl Future<Output = Result<Said, Fault>> + Send;

    /// Opens a tunnel from the machine's loopback to the API server, at this port if possible.
    fn tunnel(
        keeper: &Keeper<Self>,
        spot: Self::Spot,
        port: Option<u16>,
        dir: &str,
    ) -> impl Future<Output = Result<Tunnel<Self::Held>, Fault>> + Send;

    /// Stops the machine; a request of a lower generation comes too late.
    fn stop(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        generation: i64,
    ) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Records that a stopped machine must run.
    fn aim(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        generation: i64,
    ) -> impl Future<Output = Result<Next, Failure>> + Send;

    /// Removes all that is left of the machine of this handle.
    fn remove(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        handle: &Handle,
    ) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Removes a machine that has no record.
    fn remove_unrecorded(keeper: &Keeper<Self>, handle: &Handle)
    -> impl Future<Output = Result<Found, Failure>> + Send;

    /// All our machines. Places that do not answer are skipped.
    fn owned(keeper: &Arc<Keeper<Self>>) -> impl Future<Output = Result<Vec<Seen>, Failure>> + Send;
}
