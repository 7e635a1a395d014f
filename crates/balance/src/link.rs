//! A connection to a backend.
//!
//! hyper splits a connection into a sender and a driver that moves the bytes. The usual task for the driver costs two wake-ups for each
//! message, often across cores. So a request without a body drives its connection itself, while it waits for the answer and for the
//! answer's body. Two kinds of requests need the task: one with a body, which moves while its answer is not read, and one that changes the
//! protocol.

use crate::body::RequestBody;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::net::TcpStream;

/// Headers of an answer, and what is read at once.
const BUFFER_MOST: usize = 64 << 10;

pub(crate) struct Link {
    sender: SendRequest<RequestBody>,
    driver: Driver,
}

enum Driver {
    /// The request that uses the connection polls it.
    Own(Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>),
    /// A task polls it until it ends: when the backend closes it, or when the sender and the body of its answer are dropped.
    Task,
    Closed,
}

impl Link {
    pub(crate) async fn new(stream: TcpStream) -> hyper::Result<Self> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_MOST);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Driver::Own(Box::pin(connection.with_upgrades())) })
    }

    /// Gives the connection a task of its own.
    pub(crate) fn detach(&mut self) {
        if let Driver::Own(connection) = std::mem::replace(&mut self.driver, Driver::Task) {
            tokio::spawn(connection);
        }
    }

    /// Moves bytes. Returns whether the connection is closed.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.driver.drive(cx)
    }

    /// Whether the connection is open, and its last answer complete.
    pub(crate) fn is_usable(&mut self) -> bool {
        !self.drive(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }

    /// Sends a request. Returns the head of the answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let mut sent = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        poll_fn(|cx| {
            let polled = sent.as_mut().poll(cx);
            if polled.is_ready() {
                return polled;
            }
            driver.drive(cx);
            sent.as_mut().poll(cx)
        })
        .await
    }
}

impl Driver {
    fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Own(connection) = self
            && let Poll::Ready(_ended) = connection.as_mut().poll(cx)
        {
            *self = Self::Closed;
        }
        matches!(self, Self::Closed)
    }
}
