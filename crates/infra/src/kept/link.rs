//! A connection to a machine, through which its agent reaches the API server, and what happens when it ends.

use super::{Keeper, Kept, Machine, Reach, locked};
use futures::FutureExt;
use futures::future::BoxFuture;
use managed::provider::{Failure, Found};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The pause before the first retry of a lost connection; it doubles up to [`Reach::AGAIN_MAX`].
pub const AGAIN: Duration = Duration::from_millis(500);

/// A tunnel that is open.
pub struct Tunnel<H> {
    /// The port of the machine's loopback that leads to the API server.
    pub port: u16,
    /// The provider's handle of the connection.
    pub held: H,
    /// Carries the tunnel until it ends; dropping it closes the connection.
    pub carried: BoxFuture<'static, ()>,
}

/// A connection that is kept open; dropping this closes it.
pub struct Link<H> {
    pub port: u16,
    pub held: H,
    ended: CancellationToken,
    _task: AbortOnDropHandle<()>,
}

impl<H> Link<H> {
    pub fn ended(&self) -> bool {
        self.ended.is_cancelled()
    }
}

impl<R: Reach> Keeper<R> {
    /// Keeps a tunnel until it ends. Then the machine is brought up again, unless its link was closed or replaced.
    pub(super) fn link(self: &Arc<Self>, record: &R::Record, tunnel: Tunnel<R::Held>) -> Link<R::Held> {
        let Tunnel { port, held, carried } = tunnel;
        let (ended, id) = (CancellationToken::new(), R::id(record));
        tracing::info!(machine = id, port, "the machine is connected");
        let (keeper, over) = (self.clone(), ended.clone());
        let (token, node) = (record.who().token.clone(), record.who().node.clone());
        let task = tokio::spawn(async move {
            carried.await;
            over.cancel();
            keeper.attention.look_at(&node);
            tracing::warn!(machine = id, "the connection to a machine is lost; its pods go on");
            // in its own task, because the new link ends this one; a link that was closed or replaced needs nothing
            tokio::spawn(async move { keeper.up_again(&token, &id, |link| link.is_some_and(Link::ended)).await });
        });
        Link { port, held, ended, _task: AbortOnDropHandle::new(task) }
    }

    /// Tries until a machine that this process has never reached is up. After a restart of the control plane there is no lost link that would
    /// have it brought up again.
    pub(super) fn await_return(self: &Arc<Self>, token: &str, machine: Arc<Machine<R>>) {
        if locked(&machine.link).is_some() || machine.awaited.swap(true, Ordering::AcqRel) {
            return;
        }
        let (keeper, token) = (self.clone(), token.to_owned());
        tokio::spawn(async move {
            keeper.up_again(&token, &token, |link| link.is_none()).await;
            machine.awaited.store(false, Ordering::Release);
        });
    }

    /// Tries until the machine is up, or its link is no longer as `goes_on` says.
    async fn up_again(
        self: &Arc<Self>,
        token: &str,
        id: &str,
        goes_on: impl Fn(Option<&Link<R::Held>>) -> bool + Send + Sync,
    ) {
        let mut pause = AGAIN;
        loop {
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(R::AGAIN_MAX);
            if !goes_on(locked(&self.machine(token).link).as_ref()) {
                return;
            }
            // boxed, because it keeps the next link in turn
            let up: BoxFuture<'_, Result<Found, Failure>> = self.up(token).boxed();
            match up.await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, machine = id, "not connected yet"),
            }
        }
    }
}
