//! The answers to writes, on their way from the writer thread to the callers that wait for them.

use crate::{Event, WriteError};
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// Where the answer to a write goes.
pub(crate) struct Ack {
    answer: oneshot::Sender<Result<Vec<Event>, WriteError>>,
    /// What the transaction held.
    hold: Option<Arc<dyn Any + Send + Sync>>,
}

impl Ack {
    pub(crate) fn new(
        hold: Option<Arc<dyn Any + Send + Sync>>,
    ) -> (Self, oneshot::Receiver<Result<Vec<Event>, WriteError>>) {
        let (answer, waiting) = oneshot::channel();
        (Self { answer, hold }, waiting)
    }

    /// Answers. Who has gone away meanwhile does not hear it.
    pub(crate) fn send(self, result: Result<Vec<Event>, WriteError>) {
        drop(self.hold);
        drop(self.answer.send(result));
    }
}

pub(crate) fn stopped() -> WriteError {
    WriteError::Failed("the writer has stopped".to_owned())
}

/// The answer to a write, when it comes: the events it made, in the order of its operations.
pub enum Commit {
    Done(Option<Result<Vec<Event>, WriteError>>),
    Waiting(oneshot::Receiver<Result<Vec<Event>, WriteError>>),
}

impl Commit {
    /// Blocks the thread until the write is durable: for callers without a runtime and for moments, such as a start, where
    /// a runtime's thread may stand still for milliseconds. Async code awaits the value instead.
    ///
    /// # Errors
    /// An expectation did not hold, or the database cannot be written.
    pub fn wait(self) -> Result<Vec<Event>, WriteError> {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut commit = std::pin::pin!(self);
        loop {
            match commit.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Future for Commit {
    type Output = Result<Vec<Event>, WriteError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Done(result) => Poll::Ready(result.take().unwrap_or_else(|| Err(stopped()))),
            Self::Waiting(answer) => Pin::new(answer).poll(cx).map(|answer| answer.unwrap_or_else(|_| Err(stopped()))),
        }
    }
}
