//! The tasks of a provider of machines.

use futures::future::BoxFuture;
use managed::provider::{Failure, Fate, Found, Handle, Request, Seen};

/// An answer that is on its way.
pub type Answering<'a, T> = BoxFuture<'a, Result<T, Failure>>;

/// Makes, finds, stops and ends machines.
///
/// Every call may be repeated, and any answer may be lost; the caller then asks again. Dropping a call does not undo it. The fate of a
/// failure says what happens next: the same request again, a request elsewhere, or none.
///
/// [`Found::Ended`] is proof, with its reason: the provider looked where the machine was. A provider that merely does not see a machine
/// answers [`Found::Absent`], and one that cannot look answers with a failure.
pub trait Provider: Send + Sync + 'static {
    /// Its name in `spec.candidate.provider`: `local`, `ssh`.
    fn name(&self) -> &'static str;

    /// Makes the machine of this token, and starts a node agent on it. If a machine of this token exists, returns that one. Returns once
    /// the provider knows the machine, which may start to run later.
    ///
    /// # Errors
    /// `NextCandidate` if there is no room, `GiveUp` if the request is refused; then nothing of the machine is left.
    fn create<'a>(&'a self, request: &'a Request) -> Answering<'a, Seen>;

    /// The present state of the machine. Makes sure that a machine that must run has its agent, also after a restart of this process.
    fn observe<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found>;

    /// Begins to stop the machine; its disk stays.
    fn stop<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found>;

    /// Begins to start a stopped machine, and its agent.
    fn start<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found>;

    /// Begins to end the machine and all that was made for it. Returns `Ended` once nothing of it is left; only that ends the ledger's
    /// line.
    fn delete<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found>;

    /// All machines that this installation ever made and that are not gone.
    fn list_owned(&self) -> Answering<'_, Vec<Seen>>;
}

/// Refuses a wish to stop or start a machine that comes after a later one: it is of a control plane that was killed.
///
/// # Errors
/// `wish` is of a lower generation than `last`.
pub(crate) fn in_time(wish: i64, last: i64) -> Result<(), Failure> {
    if wish >= last {
        return Ok(());
    }
    Err(Failure::new(Fate::Retry, format!("wish {wish} comes too late: {last} was the last one")))
}

/// A request for a place of another provider.
pub(crate) fn not_ours(name: &str, request: &Request) -> Failure {
    let what = format!("the provider {name} makes no machines of provider {:?}", request.candidate.provider);
    Failure::new(Fate::GiveUp, what)
}
