//! Bodies of requests and answers on their way. Neither is ever complete in memory.

use crate::balancer::Flight;
use crate::link::Link;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// When a request last moved a byte, in either direction.
#[derive(Debug)]
pub(crate) struct Activity {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), last: AtomicU64::new(0) })
    }

    pub(crate) fn touch(&self) {
        let passed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(passed, Ordering::Relaxed);
    }

    /// When the request ends if no byte moves until then.
    pub(crate) fn deadline(&self, limit: Duration) -> Instant {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.start.checked_add(last.saturating_add(limit)).unwrap_or_else(far)
    }

    /// Returns after no byte has moved for this time.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let deadline = self.deadline(limit);
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

/// A time that no request reaches.
fn far() -> Instant {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(MONTH).unwrap_or(now)
}

/// The body of a request on its way to a backend.
#[derive(Debug)]
pub(crate) struct RequestBody(Option<(Incoming, Arc<Activity>)>);

impl RequestBody {
    pub(crate) fn new(body: Incoming, activity: &Arc<Activity>) -> Self {
        Self((!body.is_end_stream()).then(|| (body, Arc::clone(activity))))
    }

    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) const fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some((body, activity)) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if polled.is_ready() {
            activity.touch();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

/// Why the body of an answer ended early. The client's connection is closed, so it notices.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the backend's answer ended early")]
    Backend(#[source] hyper::Error),
    #[error("no byte moved for {} s", .0.as_secs())]
    Idle(Duration),
}

/// The body of an answer on its way to a client.
pub(crate) enum ResponseBody {
    /// Our own text, or nothing.
    Text(Option<Bytes>),
    Stream(Box<Stream>),
}

/// The body of a backend's answer.
pub(crate) struct Stream {
    body: Incoming,
    activity: Arc<Activity>,
    limit: Duration,
    /// Set while the backend sends nothing.
    timer: Option<Pin<Box<Sleep>>>,
    /// Until the body ends.
    open: Option<(Flight, Link)>,
}

impl ResponseBody {
    /// Passes an answer's body on. At its end the request counts as done, and its connection can serve the next.
    pub(crate) fn new(body: Incoming, flight: Flight, link: Link, activity: Arc<Activity>, limit: Duration) -> Self {
        if body.is_end_stream() {
            flight.upstream.keep(link);
            return Self::Text(None);
        }
        Self::Stream(Box::new(Stream { body, activity, limit, timer: None, open: Some((flight, link)) }))
    }
}

impl Stream {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_pending()
            && let Some((_, link)) = &mut self.open
        {
            link.drive(cx);
            polled = Pin::new(&mut self.body).poll_frame(cx);
        }
        match polled {
            Poll::Pending => self.poll_timer(cx),
            Poll::Ready(Some(Err(error))) => {
                self.open = None;
                Poll::Ready(Some(Err(Cut::Backend(error))))
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.activity.touch();
                if self.body.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        loop {
            let deadline = self.activity.deadline(self.limit);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline <= Instant::now() {
                self.open = None;
                return Poll::Ready(Some(Err(Cut::Idle(self.limit))));
            }
            timer.as_mut().reset(deadline);
        }
    }

    fn end(&mut self) {
        if let Some((flight, link)) = self.open.take() {
            flight.upstream.keep(link);
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut *self {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Stream(stream) => stream.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Stream(stream) => stream.body.size_hint(),
        }
    }
}
