//! Work that may take longer than a call, such as making a machine. It goes on if its caller goes away, and several callers share it.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use managed::provider::{Failure, Fate, Seen};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_util::task::AbortOnDropHandle;

/// The result of the work, for each caller that waits for it.
type Result<T> = std::result::Result<T, Failure>;

struct Running<T> {
    result: Shared<BoxFuture<'static, Result<T>>>,
    _task: AbortOnDropHandle<()>,
}

/// The work in progress, or finished work whose result no caller has taken yet.
pub struct Making<T = Seen>(Mutex<Option<Running<T>>>);

impl<T> Default for Making<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone + Send + Sync + 'static> Making<T> {
    fn slot(&self) -> MutexGuard<'_, Option<Running<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the work in progress, or begins it with `work`.
    pub async fn join<W>(&self, work: impl FnOnce() -> W) -> Result<T>
    where
        W: Future<Output = Result<T>> + Send + 'static,
    {
        let result = self.slot().get_or_insert_with(|| begin(work())).result.clone();
        let made = result.clone().await;
        let mut slot = self.slot();
        // other work may have begun meanwhile
        if slot.as_ref().is_some_and(|now| now.result.ptr_eq(&result)) {
            *slot = None;
        }
        made
    }

    /// Ends the work where it is; its waiting callers get an error.
    pub fn end(&self) {
        drop(self.slot().take());
    }
}

fn begin<T>(work: impl Future<Output = Result<T>> + Send + 'static) -> Running<T>
where
    T: Clone + Send + Sync + 'static,
{
    let (done, result) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move { drop(done.send(work.await)) });
    let dropped = || Failure::new(Fate::Retry, "it was given up on the way");
    let result = result.map(move |made| made.unwrap_or_else(|_| Err(dropped()))).boxed().shared();
    Running { result, _task: AbortOnDropHandle::new(task) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    fn failure() -> Result<Seen> {
        Err(Failure::new(Fate::GiveUp, "no"))
    }

    #[tokio::test]
    async fn callers_share_one_making_which_goes_on_without_them() {
        let (making, begun, go) = (Making::<Seen>::default(), AtomicUsize::new(0), Arc::new(Notify::new()));
        let work = || {
            begun.fetch_add(1, Ordering::Relaxed);
            let go = go.clone();
            async move {
                go.notified().await;
                failure()
            }
        };
        // a caller that goes away
        assert!(making.join(work).now_or_never().is_none());
        go.notify_one();
        let (first, second) = tokio::join!(making.join(work), making.join(work));
        assert_eq!((first, second), (failure(), failure()));
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        go.notify_one();
        assert_eq!(making.join(work).await, failure());
        assert_eq!(begun.load(Ordering::Relaxed), 2, "what was taken is not given again");
    }

    #[tokio::test]
    async fn a_making_ends_at_once_though_a_caller_waits_and_is_to_be_tried_again() {
        let making = Making::<Seen>::default();
        let (made, ()) = tokio::join!(making.join(std::future::pending), async { making.end() });
        let Err(failure) = made else { panic!("it cannot have been made") };
        assert_eq!(failure.fate, Fate::Retry);
        assert!(making.slot().is_none());
    }
}
