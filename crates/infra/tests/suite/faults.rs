//! Providers with one fault each: the suite must find it.

use futures::FutureExt;
use infra::{Answering, Failure, Fate, Found, Handle, Provider, Request, Seen, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A repeated creation makes another machine.
    MakesTwo,
    /// A repeated creation gives the machine another name.
    RenamesIt,
    /// An unreachable machine is reported as ended.
    SilenceIsLoss,
    /// An ended machine is reported as absent.
    NoProof,
    /// An end has no reason.
    NoReason,
    /// Delete answers without doing anything.
    DeletesNothing,
    /// Delete fails for a machine that is gone.
    GoneIsAnError,
    /// A request of a lower generation is carried out.
    ObeysLateWishes,
    /// The list is empty.
    ListsNothing,
    /// Stop answers without doing anything.
    StopsNothing,
}

pub const ALL: [Fault; 10] = [
    Fault::MakesTwo,
    Fault::RenamesIt,
    Fault::SilenceIsLoss,
    Fault::NoProof,
    Fault::NoReason,
    Fault::DeletesNothing,
    Fault::GoneIsAnError,
    Fault::ObeysLateWishes,
    Fault::ListsNothing,
    Fault::StopsNothing,
];

/// A correct provider, changed by a fault.
pub struct Faulty {
    inner: Arc<dyn Provider>,
    fault: Fault,
    created: AtomicUsize,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Provider>, fault: Fault) -> Self {
        Self { inner, fault, created: AtomicUsize::new(0) }
    }

    fn told(&self, found: Result<Found, Failure>) -> Result<Found, Failure> {
        match (self.fault, found) {
            (Fault::SilenceIsLoss, Err(failure)) => Ok(Found::ended(failure.what)),
            (Fault::NoProof, Ok(Found::Ended(_))) => Ok(Found::Absent),
            (Fault::NoReason, Ok(Found::Ended(_))) => Ok(Found::ended("")),
            (_, found) => found,
        }
    }
}

impl Provider for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn create<'a>(&'a self, request: &'a Request) -> Answering<'a, Seen> {
        async move {
            let nth = self.created.fetch_add(1, Ordering::SeqCst);
            if self.fault == Fault::MakesTwo && nth > 0 {
                let token = format!("{nth}{}", request.token);
                return self.inner.create(&Request { token, ..request.clone() }).await;
            }
            let mut seen = self.inner.create(request).await?;
            if self.fault == Fault::RenamesIt {
                seen.id = format!("{}-{nth}", seen.id);
            }
            Ok(seen)
        }
        .boxed()
    }

    fn observe<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        async move { self.told(self.inner.observe(machine).await) }.boxed()
    }

    fn stop<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        async move {
            if self.fault == Fault::StopsNothing {
                let found = self.inner.observe(machine).await?;
                return Ok(match found {
                    Found::There(seen) => Found::There(Seen { state: State::Stopped, ..seen }),
                    other => other,
                });
            }
            self.told(self.inner.stop(machine).await)
        }
        .boxed()
    }

    fn start<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        async move {
            let generation = if self.fault == Fault::ObeysLateWishes { 99 } else { machine.generation };
            self.told(self.inner.start(&Handle { generation, ..machine.clone() }).await)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, machine: &'a Handle) -> Answering<'a, Found> {
        async move {
            match self.fault {
                Fault::DeletesNothing => Ok(Found::ended("it is deleted")),
                Fault::GoneIsAnError => match self.inner.observe(machine).await? {
                    Found::There(_) => self.inner.delete(machine).await,
                    Found::Ended(_) | Found::Absent => Err(Failure::new(Fate::GiveUp, "there is no such machine")),
                },
                _ => self.told(self.inner.delete(machine).await),
            }
        }
        .boxed()
    }

    fn list_owned(&self) -> Answering<'_, Vec<Seen>> {
        match self.fault {
            Fault::ListsNothing => async { Ok(Vec::new()) }.boxed(),
            _ => self.inner.list_owned(),
        }
    }
}
