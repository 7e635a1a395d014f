//! An upgraded connection: binary messages of a WebSocket, or the bytes of a socket.

use super::{Io, Socket};
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::{Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// Bytes that are read from a socket, or sent to it, at once.
pub const PIECE_BYTES: usize = 32 * 1024;
/// How long a connection may be without a single byte in either direction, as a kubelet's.
const IDLE_MAX: Duration = Duration::from_secs(4 * 60 * 60);
/// How often a client is asked for a sign of life: one that is gone is noticed by the next, even while nothing it sent is read.
pub(super) const PING_EVERY: Duration = Duration::from_secs(10);
/// How long a client may take to close its end once all is said.
const FAREWELL_MAX: Duration = Duration::from_secs(5);

/// When bytes last went either way.
#[derive(Clone)]
pub struct Activity(Arc<watch::Sender<Instant>>);

impl Activity {
    fn touch(&self) {
        self.0.send_replace(Instant::now());
    }

    /// Returns once the connection has been idle for too long.
    pub async fn idle(&self) {
        loop {
            let until = api::time::after(*self.0.borrow(), IDLE_MAX);
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

enum From {
    WebSocket(SplitStream<Box<WebSocket>>),
    Io(ReadHalf<Box<dyn Io>>),
}

enum To {
    WebSocket(SplitSink<Box<WebSocket>, Message>),
    /// With bytes that are not written yet: a send that is given up midway leaves them for the next one, so that messages
    /// stay whole.
    Io(WriteHalf<Box<dyn Io>>, BytesMut),
}

/// What the client sends.
pub struct Inbound {
    from: From,
    activity: Activity,
}

/// What is sent to the client.
pub struct Outbound {
    to: To,
    activity: Activity,
}

/// Takes a connection apart into its directions.
pub fn split(socket: Socket) -> (Inbound, Outbound, Activity) {
    let (from, to) = match socket {
        Socket::WebSocket(socket) => {
            let (to, from) = socket.split();
            (From::WebSocket(from), To::WebSocket(to))
        }
        Socket::Spdy(io) => {
            let (from, to) = tokio::io::split(io);
            (From::Io(from), To::Io(to, BytesMut::new()))
        }
    };
    let activity = Activity(Arc::new(watch::Sender::new(Instant::now())));
    (Inbound { from, activity: activity.clone() }, Outbound { to, activity: activity.clone() }, activity)
}

/// Returns once a WebSocket client is gone: also where nobody reads what it sent, so that its end would not be seen.
pub async fn gone(out: &Mutex<Outbound>) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        if !out.lock().await.ping().await {
            return;
        }
    }
}

impl Inbound {
    /// A message, or as many bytes as are there; `None` once the client has ended.
    pub async fn next(&mut self) -> Option<Bytes> {
        let bytes = match &mut self.from {
            From::WebSocket(from) => loop {
                match from.next().await?.ok()? {
                    Message::Binary(bytes) => break bytes,
                    Message::Text(text) => break Bytes::from(text),
                    Message::Close(_) => return None,
                    Message::Ping(_) => self.activity.touch(),
                    // we asked for it
                    Message::Pong(_) => {}
                }
            },
            From::Io(from) => {
                let mut buffer = Vec::with_capacity(PIECE_BYTES);
                let size = from.read_buf(&mut buffer).await.ok()?;
                if size == 0 {
                    return None;
                }
                buffer.into()
            }
        };
        self.activity.touch();
        Some(bytes)
    }

    /// Reads on, to no use, until the client has closed its end: closing a socket that holds unread bytes would take the
    /// last answer away from the client.
    pub async fn run_dry(&mut self) {
        let dry = async { while self.next().await.is_some() {} };
        let _ = tokio::time::timeout(FAREWELL_MAX, dry).await;
    }
}

impl Outbound {
    /// Sends a message, or bytes; false once the client is gone.
    pub async fn send(&mut self, bytes: Vec<u8>) -> bool {
        let sent = match &mut self.to {
            To::WebSocket(to) => to.send(Message::Binary(bytes.into())).await.is_ok(),
            To::Io(to, unsent) => {
                unsent.extend_from_slice(&bytes);
                to.write_all_buf(unsent).await.is_ok() && to.flush().await.is_ok()
            }
        };
        if sent {
            self.activity.touch();
        }
        sent
    }

    /// Asks a WebSocket client for a sign of life; false once it is gone.
    async fn ping(&mut self) -> bool {
        match &mut self.to {
            To::WebSocket(to) => to.send(Message::Ping(Bytes::new())).await.is_ok(),
            To::Io(..) => true,
        }
    }

    /// Ends this direction; the client may have gone before.
    pub async fn close(&mut self) {
        match &mut self.to {
            To::WebSocket(to) => {
                // clients take any code but "normal" for an error
                let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
                let _ = to.send(Message::Close(Some(normal))).await;
            }
            To::Io(to, _) => drop(to.shutdown().await),
        }
    }
}
