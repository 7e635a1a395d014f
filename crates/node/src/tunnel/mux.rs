//! Many streams over one connection: HTTP/2, in which the side that was dialled asks. A stream is a request whose body is one
//! direction and whose answer's body is the other.

use super::WAITING_BYTES;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, DuplexStream};
use tokio_util::io::{ReaderStream, StreamReader};

/// How often each side looks whether the other still answers, and how long an answer may take: a connection that is cut without a
/// word is given up after both.
const LOOK: Duration = Duration::from_secs(5);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Bytes of one stream, and of all together, that may be on their way.
const STREAM_WINDOW: u32 = 1 << 20;
const WINDOW: u32 = 16 << 20;
/// Streams at a time: each follower of a log is one.
const STREAMS_MAX: u32 = 10_000;
/// Streams that the asking side may give up at once.
const RESETS_MAX: usize = 4096;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What comes from the other side.
pub type From = BufReader<Box<dyn AsyncRead + Send + Unpin>>;
/// What goes there; dropping it (or shutting it down) ends that direction.
pub type To = DuplexStream;

/// One direction to write to, as the body that is sent.
fn outgoing() -> (To, Body) {
    let (near, far) = tokio::io::duplex(WAITING_BYTES);
    let chunks = ReaderStream::with_capacity(far, WAITING_BYTES).map(|chunk| chunk.map(Frame::data));
    (near, StreamBody::new(chunks).boxed_unsync())
}

fn incoming(body: Incoming) -> From {
    let chunks = body.into_data_stream().map(|chunk| chunk.map_err(io::Error::other));
    BufReader::new(Box::new(StreamReader::new(chunks)))
}

/// The side that asks.
#[derive(Clone)]
pub struct Asking {
    sender: SendRequest<Body>,
}

impl Asking {
    /// The future carries the connection; it ends with it.
    pub async fn connect<I>(io: I) -> Result<(Self, impl Future<Output = ()> + Send + use<I>), hyper::Error>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(LOOK))
            .keep_alive_timeout(ANSWER_MAX)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(io))
            .await?;
        let connection = async {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection of a node ended");
            }
        };
        Ok((Self { sender }, connection))
    }

    /// A new stream.
    pub async fn open(&self) -> io::Result<(From, To)> {
        let lost = |error: hyper::Error| io::Error::other(format!("the connection to the node is lost: {error}"));
        let (to, body) = outgoing();
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(lost)?;
        let request = Request::post("http://node/").body(body).map_err(io::Error::other)?;
        let answer = sender.send_request(request).await.map_err(lost)?;
        Ok((incoming(answer.into_body()), to))
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The side that answers: hands each stream to `take`, until the connection ends.
pub async fn answering<I, F>(io: I, take: impl Fn(From, To) -> F) -> Result<(), hyper::Error>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let (to, body) = outgoing();
        tokio::spawn(take(incoming(request.into_body()), to));
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(LOOK))
        .keep_alive_timeout(ANSWER_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(None)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .serve_connection(TokioIo::new(io), service)
        .await
}
