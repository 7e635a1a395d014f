//! What differs between providers of a [`Keeper`].

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
    /// What the machine says, or `Broken`.
    fn call(
        &self,
        function: &str,
        variables: &[(&str, &str)],
        payload: Option<&Path>,
        limit: Duration,
    ) -> impl Future<Output = Result<Said, Fault>> + Send;
}

/// How a machine is found.
pub enum Stands<R: Reach> {
    /// It is to run, and is connected: the port of the tunnel.
    Linked(R::Line, u16),
    /// It is to run, and is to be connected.
    Runs(R::Spot),
    /// It has ended, does not run yet, or is not to run.
    Otherwise(Found),
}

/// What is to be done to start a stopped machine.
pub enum Next {
    /// It cannot be started.
    Ended(Ended),
    /// It has to be made again.
    Make(Box<Request>),
    /// It is there.
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
    /// Where a machine runs that is to be connected.
    type Spot: Send;
    /// What is held of an open connection.
    type Held: Clone + Send + Sync;
    /// What else is known of a machine while this process lives.
    type Memory: Default + Send + Sync;

    /// What the provider calls the machine of a record.
    fn id(record: &Self::Record) -> String;

    /// Why a machine without a record has ended.
    fn over() -> Ended;

    /// The way to run scripts there.
    fn line(spot: &Self::Spot) -> Self::Line;

    /// Variables that the start of the agent has beside the common ones.
    fn of_agent(record: &Self::Record) -> Vec<(&'static str, String)>;

    /// Notes what must be durable before the machine is made.
    ///
    /// # Errors
    /// It cannot be made.
    fn note(keeper: &Keeper<Self>, request: &Request) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Makes the machine, or finds it made.
    fn make(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        request: Request,
    ) -> impl Future<Output = Result<Seen, Failure>> + Send;

    /// Looks where the machine is. One that is to stop or to go is stopped or removed.
    fn find(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
    ) -> impl Future<Output = Result<Stands<Self>, Failure>> + Send;

    /// What the machine says of itself: `dir`, `address`, `sha256`. It has our claim then.
    fn look(
        keeper: &Keeper<Self>,
        record: &Self::Record,
        spot: &mut Self::Spot,
    ) -> impl Future<Output = Result<Said, Fault>> + Send;

    /// Opens a tunnel from the machine's loopback to the API server: at this port where it can be had.
    fn tunnel(
        keeper: &Keeper<Self>,
        spot: Self::Spot,
        port: Option<u16>,
        dir: &str,
    ) -> impl Future<Output = Result<Tunnel<Self::Held>, Fault>> + Send;

    /// Stops the machine; a wish of a lower generation comes too late.
    fn stop(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        generation: i64,
    ) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Notes that a stopped machine is to run.
    fn aim(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        generation: i64,
    ) -> impl Future<Output = Result<Next, Failure>> + Send;

    /// Removes all that is left of the machine that the handle means.
    fn remove(
        keeper: &Arc<Keeper<Self>>,
        machine: &Arc<Machine<Self>>,
        record: &mut Self::Record,
        handle: &Handle,
    ) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// Removes a machine that has no record.
    fn remove_unrecorded(keeper: &Keeper<Self>, handle: &Handle)
    -> impl Future<Output = Result<Found, Failure>> + Send;

    /// All machines of ours. Places that do not answer are left out.
    fn owned(keeper: &Arc<Keeper<Self>>) -> impl Future<Output = Result<Vec<Seen>, Failure>> + Send;
}
