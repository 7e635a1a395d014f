//! A client that has ended its half of a connection gets the answers to what it asked before. Most such clients are gone, so a stream
//! that has nothing to say to one ends.
//!
//! hyper takes the end of a client's half for the end of the connection, and drops the answers that are being made. So [`Halves`] tells
//! it of that end only once all requests are answered. While an answer goes out, hyper may not read at all (where it has read the
//! beginning of another request), and so does not see that the client is gone; [`Halves::watched`] looks for that.

use super::answer::Body;
use super::discard::discard;
use bytes::{Buf, Bytes, BytesMut};
use http::{Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Bytes that are read from a client while hyper does not ask for them.
const AHEAD_MAX: usize = 16 << 10;
/// How long a stream may have nothing to say to a client that has ended its half.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long a body that has come may take to be read.
const READING_MAX: Duration = Duration::from_secs(1);

/// Requests of a connection.
#[derive(Default)]
struct Requests {
    /// Those whose answers have not been handed over.
    open: usize,
    /// Of those, the ones whose bodies are on the way.
    reading: usize,
    /// What was handed over may still wait in hyper's buffers.
    unwritten: bool,
    /// Waits to hear of the end of the client's half.
    waiting: Option<Waker>,
}

impl Requests {
    fn are_answered(&self) -> bool {
        self.open == 0 && !self.unwritten
    }

    /// All that was asked has come, and not all is answered.
    fn are_owed(&self) -> bool {
        self.open > 0 && self.reading == 0
    }
}

/// What all requests of a connection share.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    requests: Arc<Mutex<Requests>>,
    /// The client has ended its half.
    ended: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // nothing that holds these panics
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Notes a request, until what is returned is dropped.
    pub(super) fn open<B>(&self, request: Request<B>) -> (Request<Asked<B>>, Open)
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
    {
        let reads = !request.body().is_end_stream();
        let announced = request.headers().contains_key(header::EXPECT);
        let mut requests = lock(&self.requests);
        requests.open = requests.open.saturating_add(1);
        requests.reading = requests.reading.saturating_add(usize::from(reads));
        drop(requests);
        let reading = reads.then(|| Reading(self.clone()));
        (request.map(|body| Asked { body: Some(Box::pin(body)), reading, announced }), Open(self.clone()))
    }

    fn change(&self, change: impl FnOnce(&mut Requests)) {
        let mut requests = lock(&self.requests);
        change(&mut requests);
        let waiting = if requests.are_answered() { requests.waiting.take() } else { None };
        drop(requests);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

/// A request that is not answered.
pub(super) struct Open(Ledger);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.change(|requests| {
            requests.open = requests.open.saturating_sub(1);
            requests.unwritten = true;
        });
    }
}

impl Open {
    /// The answer, which is owed until it has been handed over.
    pub(super) fn answer(self, response: Response<Body>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        let ended = Box::pin(self.0.ended.clone().cancelled_owned());
        response.map(|body| Body::new(Answer { body, ended, pause: None, _open: self }))
    }
}

struct Reading(Ledger);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.change(|requests| requests.reading = requests.reading.saturating_sub(1));
    }
}

/// A request's body. What of it nobody has read is thrown away as it comes, so that its sender sees the answer.
pub(super) struct Asked<B: http_body::Body<Data = Bytes> + Send + 'static> {
    /// Only a dropped one has none.
    body: Option<Pin<Box<B>>>,
    /// While more is to come.
    reading: Option<Reading>,
    /// The client sends nothing before it is asked to.
    announced: bool,
}

impl<B: http_body::Body<Data = Bytes> + Send + 'static> http_body::Body for Asked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.announced = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            self.reading = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, |body| body.size_hint())
    }
}

impl<B: http_body::Body<Data = Bytes> + Send + 'static> Drop for Asked<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(reading), false) = (self.body.take(), self.reading.take(), self.announced) {
            discard(body, reading);
        }
    }
}

/// An answer's body.
struct Answer {
    body: Body,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Runs while there is nothing to say to a client that has ended its half.
    pause: Option<Pin<Box<Sleep>>>,
    _open: Open,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.pause = None;
            return Poll::Ready(frame);
        }
        let has_length = self.body.size_hint().exact().is_some();
        if has_length || (self.pause.is_none() && self.ended.as_mut().poll(cx).is_pending()) {
            return Poll::Pending;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE_MAX)));
        // cut off, as this is not the end of the stream
        let why = "the client has ended its half, and there was nothing to say to it";
        pause.as_mut().poll(cx).map(|()| Some(Err(axum::Error::new(why))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Inner<S> {
    io: S,
    /// What the client sent that nobody has asked for yet.
    ahead: BytesMut,
    has_ended: bool,
    /// hyper has had the time to begin with the requests that came right before the end.
    is_known: bool,
    /// Runs from the end of the client's half: a body that is not whole then never will be.
    reading: Option<Pin<Box<Sleep>>>,
}

/// A connection, whose halves are looked at apart.
pub(super) struct Halves<S> {
    inner: Arc<Mutex<Inner<S>>>,
    ledger: Ledger,
}

impl<S> Clone for Halves<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), ledger: self.ledger.clone() }
    }
}

impl<S: AsyncRead + Unpin> Halves<S> {
    pub(super) fn new(io: S, ledger: Ledger) -> Self {
        let inner = Inner { io, ahead: BytesMut::new(), has_ended: false, is_known: false, reading: None };
        Self { inner: Arc::new(Mutex::new(inner)), ledger }
    }

    /// Looks out for the end of the client's half while an answer is made. It is to be polled in the task of the connection, after it;
    /// it never returns.
    pub(super) async fn watched(self) {
        std::future::poll_fn(|cx| {
            self.look(cx);
            Poll::<()>::Pending
        })
        .await;
    }

    fn look(&self, cx: &mut Context<'_>) {
        if !lock(&self.ledger.requests).are_owed() {
            return;
        }
        let mut inner = lock(&self.inner);
        while !inner.has_ended && inner.ahead.len() < AHEAD_MAX {
            let mut bytes = [0; 1024];
            let mut buf = ReadBuf::new(&mut bytes);
            match inner.poll(cx, &mut buf, &self.ledger) {
                Poll::Pending => return,
                Poll::Ready(read) => {
                    if read.is_ok() {
                        inner.ahead.extend_from_slice(buf.filled());
                    }
                    // the connection may wait for just that
                    cx.waker().wake_by_ref();
                }
            }
        }
        // who sends so much while it is to listen is not waited for either
        self.ledger.ended.cancel();
    }
}

impl<S: AsyncRead + Unpin> Inner<S> {
    /// Reads; notes when the client's half has ended. TLS without a farewell is such an end, too: HTTP says by itself whether a request
    /// is whole.
    fn poll(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>, ledger: &Ledger) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match ready!(Pin::new(&mut self.io).poll_read(cx, buf)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read,
        };
        if read.is_err() || (buf.filled().len() == before && buf.remaining() > 0) {
            self.has_ended = true;
            ledger.ended.cancel();
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Halves<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = lock(&self.inner);
        if inner.ahead.has_remaining() {
            let size = inner.ahead.len().min(buf.remaining());
            buf.put_slice(&inner.ahead.split_to(size));
            return Poll::Ready(Ok(()));
        }
        if !inner.has_ended {
            let before = buf.filled().len();
            ready!(inner.poll(cx, buf, &self.ledger))?;
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
        let mut requests = lock(&self.ledger.requests);
        if requests.are_answered() {
            if inner.is_known {
                return Poll::Ready(Ok(()));
            }
            inner.is_known = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        requests.waiting = Some(cx.waker().clone());
        if requests.reading == 0 {
            return Poll::Pending;
        }
        drop(requests);
        let reading = inner.reading.get_or_insert_with(|| Box::pin(tokio::time::sleep(READING_MAX)));
        reading.as_mut().poll(cx).map(Ok)
    }
}

impl<S> Halves<S> {
    /// What did not go out now waits.
    fn writes<T>(&self, outcome: Poll<T>) -> Poll<T> {
        if outcome.is_pending() {
            lock(&self.ledger.requests).unwritten = true;
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Halves<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut lock(&self.inner).io).poll_write(cx, buf);
        self.writes(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut lock(&self.inner).io).poll_write_vectored(cx, bufs);
        self.writes(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        lock(&self.inner).io.is_write_vectored()
    }

    /// hyper flushes when it has written all that it has.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut lock(&self.inner).io).poll_flush(cx));
        self.ledger.change(|requests| requests.unwritten = false);
        Poll::Ready(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut lock(&self.inner).io).poll_shutdown(cx)
    }
}

/// A connection of the tests, until it ends or its client is gone.
#[cfg(test)]
pub(super) async fn connected<S>(halves: Halves<tokio::io::DuplexStream>, service: S)
where
    S: hyper::service::Service<
            Request<hyper::body::Incoming>,
            Response = Response<Body>,
            Error = std::convert::Infallible,
        >,
    S::Future: Send + 'static,
{
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(halves.clone()), service);
    tokio::select! {
        biased;
        _ = connection => {}
        () = halves.watched() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;

    /// A server whose answer to `/stream` is a stream that says one thing and then nothing, and to everything else, after a second, the
    /// request's body. What the stream waits for is closed once nobody listens.
    fn serve() -> (DuplexStream, JoinHandle<()>, mpsc::Sender<Bytes>) {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (sender, lines) = mpsc::channel(1);
        let lines = Mutex::new(Some(lines));
        let ledger = Ledger::default();
        let halves = Halves::new(server, ledger.clone());
        let lines = Arc::new(lines);
        let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
            let (request, open) = ledger.open(request);
            let lines = lines.clone();
            async move {
                if request.uri().path() == "/stream" {
                    let lines = lock(&lines).take().expect("one stream");
                    let lines = futures::stream::unfold(lines, |mut lines| async {
                        Some((Ok::<_, Infallible>(lines.recv().await?), lines))
                    });
                    return Ok::<_, Infallible>(open.answer(Response::new(Body::from_stream(lines))));
                }
                let (code, body) = match request.into_body().collect().await {
                    Ok(body) => (200, body.to_bytes()),
                    Err(_) => (400, Bytes::new()),
                };
                tokio::time::sleep(Duration::from_secs(60)).await;
                let mut response = Response::new(Body::from(body));
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                Ok(open.answer(response))
            }
        });
        let connection = tokio::spawn(connected(halves, service));
        (client, connection, sender)
    }

    async fn all_of(client: &mut DuplexStream) -> String {
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        String::from_utf8(all).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_asked_and_says_no_more_is_answered() {
        for (sent, code, body) in [
            ("GET / HTTP/1.1\r\n\r\n", "200", ""),
            ("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "200", "hello"),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "200", "hello"),
            // in the middle of a body
            ("POST / HTTP/1.1\r\nContent-Length: 50\r\n\r\nhello", "400", ""),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "400", ""),
            ("PO", "", ""),
        ] {
            let (mut client, connection, _) = serve();
            client.write_all(sent.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            let told = all_of(&mut client).await;
            assert!(told.starts_with(&format!("HTTP/1.1 {code}")) || code.is_empty(), "{sent:?}: {told:?}");
            assert!(told.ends_with(body), "{sent:?}: {told:?}");
            connection.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_slowly_reads_all() {
        let (mut client, connection, _) = serve();
        let sent = "x".repeat(500_000);
        let request = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{sent}", sent.len());
        client.write_all(request.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut told, mut part) = (Vec::new(), [0; 1000]);
        while let size @ 1.. = client.read(&mut part).await.unwrap() {
            told.extend_from_slice(&part[..size]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let told = String::from_utf8(told).unwrap();
        assert!(told.ends_with(&sent), "{} bytes", told.len());
        connection.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_a_listener_ends_whatever_came_before() {
        let long = "x".repeat(10 * AHEAD_MAX);
        for more in ["", "GET / HTTP/1.1\r\n\r\n", "G", &long] {
            let (mut client, connection, lines) = serve();
            let sent = format!("GET /stream HTTP/1.1\r\n\r\n{more}");
            let (mut from, mut to) = tokio::io::split(&mut client);
            let talk = async {
                let _ = to.write_all(sent.as_bytes()).await;
                let _ = to.shutdown().await;
            };
            // it is told all that comes while there is something to tell
            let stream = async {
                for n in 0..5 {
                    lines.send(format!("line {n}\n").into()).await.unwrap();
                    tokio::time::sleep(PAUSE_MAX / 2).await;
                }
                let silent = tokio::time::Instant::now();
                lines.closed().await;
                silent.elapsed()
            };
            let mut told = Vec::new();
            let (_, silent, _) = tokio::join!(talk, stream, from.read_to_end(&mut told));
            let told = String::from_utf8(told).unwrap();
            assert!(
                told.contains("line 4\n") && !told.contains("0\r\n\r\n"),
                "a part does not pass for the whole: {told:?}"
            );
            assert!(silent <= PAUSE_MAX, "{silent:?}");
            connection.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_listened_to_goes_on() {
        let (mut client, connection, lines) = serve();
        client.write_all(b"GET /stream HTTP/1.1\r\n\r\n").await.unwrap();
        lines.send("begun\n".into()).await.unwrap();
        tokio::time::sleep(PAUSE_MAX * 100).await;
        lines.send("still here\n".into()).await.unwrap();
        drop(lines);
        client.shutdown().await.unwrap();
        assert!(all_of(&mut client).await.contains("still here\n"));
        connection.await.unwrap();
    }
}
