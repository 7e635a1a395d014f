//! An upgraded connection: messages of a WebSocket, in the parts in which they come, or the bytes of a socket.

use crate::websocket::{self, NORMAL, PROTOCOL_ERROR, Piece};
use crate::{Io, Socket};
use bytes::{Bytes, BytesMut};
use std::sync::{Arc, PoisonError};
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
pub const FAREWELL_MAX: Duration = Duration::from_secs(5);

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

/// The way to the client, with bytes that are not written yet: a send that is given up midway leaves them for the next one, so that
/// messages stay whole.
struct To {
    half: WriteHalf<Box<dyn Io>>,
    unsent: BytesMut,
    /// Nothing may follow.
    closed: bool,
}

impl To {
    async fn write(&mut self, bytes: &[u8]) -> bool {
        if self.closed {
            return false;
        }
        self.unsent.extend_from_slice(bytes);
        self.half.write_all_buf(&mut self.unsent).await.is_ok() && self.half.flush().await.is_ok()
    }
}

/// What both directions of a WebSocket write to.
#[derive(Clone)]
struct Shared {
    to: Arc<Mutex<To>>,
    /// The answer to the newest ping that is not sent: older ones need none.
    pong: Arc<std::sync::Mutex<Option<Bytes>>>,
}

impl Shared {
    fn pong(&self) -> std::sync::MutexGuard<'_, Option<Bytes>> {
        self.pong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a frame, and what is to be answered; false once the client is gone.
    async fn send(&self, to: &mut To, frame: &[u8]) -> bool {
        let mut sent = frame.is_empty() || to.write(frame).await;
        while sent {
            let Some(bytes) = self.pong().take() else { break };
            sent = to.write(&websocket::pong(&bytes)).await;
        }
        sent
    }

    /// Answers a ping, now or, where something is being sent, after that: reading does not wait for a client that does not read.
    async fn answer(&self, bytes: Bytes) {
        *self.pong() = Some(bytes);
        if let Ok(mut to) = self.to.try_lock() {
            self.send(&mut to, &[]).await;
        }
    }

    /// Says why the connection ends, after which nothing is sent.
    async fn close(&self, code: u16) {
        let mut to = self.to.lock().await;
        if to.write(&websocket::close(code)).await {
            to.closed = true;
        }
    }
}

enum From {
    WebSocket { half: ReadHalf<Box<dyn Io>>, reader: Box<websocket::Reader>, to: Shared, ended: bool },
    Io(ReadHalf<Box<dyn Io>>),
}

/// What the client sends.
pub struct Inbound {
    from: From,
    activity: Activity,
}

/// A part of a message, or bytes of a socket.
#[derive(Debug)]
pub struct Part {
    pub bytes: Bytes,
    pub begins: bool,
    pub ends: bool,
}

/// What is sent to the client.
pub struct Outbound {
    to: Shared,
    is_websocket: bool,
    activity: Activity,
}

/// Takes a connection apart into its directions.
pub fn split(socket: Socket) -> (Inbound, Outbound, Activity) {
    let (is_websocket, io) = match socket {
        Socket::WebSocket(io) => (true, io),
        Socket::Spdy(io) => (false, io),
    };
    let (from, half) = tokio::io::split(io);
    let to = To { half, unsent: BytesMut::new(), closed: false };
    let to = Shared { to: Arc::new(Mutex::new(to)), pong: Arc::default() };
    let from = match is_websocket {
        true => From::WebSocket { half: from, reader: Box::default(), to: to.clone(), ended: false },
        false => From::Io(from),
    };
    let activity = Activity(Arc::new(watch::Sender::new(Instant::now())));
    (Inbound { from, activity: activity.clone() }, Outbound { to, is_websocket, activity: activity.clone() }, activity)
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
    /// A part of a message, or as many bytes as are there; `None` once the client has ended, or speaks no WebSocket.
    pub async fn next(&mut self) -> Option<Part> {
        let part = match &mut self.from {
            From::WebSocket { ended: true, .. } => return None,
            From::WebSocket { half, reader, to, ended } => loop {
                // a piece may hold thousands of frames of which none is waited for
                tokio::task::coop::consume_budget().await;
                match reader.piece() {
                    Ok(Some(Piece::Data { bytes, begins, ends })) => break Part { bytes, begins, ends },
                    Ok(Some(Piece::Ping(bytes))) => {
                        self.activity.touch();
                        to.answer(bytes).await;
                    }
                    // we asked for it
                    Ok(Some(Piece::Pong)) => {}
                    Ok(Some(Piece::Close)) => {
                        *ended = true;
                        let _ = tokio::time::timeout(FAREWELL_MAX, to.close(NORMAL)).await;
                        return None;
                    }
                    Ok(None) => {
                        let buffer = reader.buffer();
                        buffer.reserve(PIECE_BYTES);
                        if half.read_buf(buffer).await.ok()? == 0 {
                            return None;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a client's stream is ended");
                        *ended = true;
                        let farewell = async {
                            to.close(PROTOCOL_ERROR).await;
                            // closing a socket that holds unread bytes would take the reason away from the client
                            let mut rest = vec![0; PIECE_BYTES];
                            while let Ok(1..) = half.read(&mut rest).await {}
                        };
                        let _ = tokio::time::timeout(FAREWELL_MAX, farewell).await;
                        return None;
                    }
                }
            },
            From::Io(from) => {
                let mut buffer = Vec::with_capacity(PIECE_BYTES);
                let size = from.read_buf(&mut buffer).await.ok()?;
                if size == 0 {
                    return None;
                }
                Part { bytes: buffer.into(), begins: true, ends: true }
            }
        };
        self.activity.touch();
        Some(part)
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
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        if self.is_websocket { self.pass(&websocket::message(bytes)).await } else { self.pass(bytes).await }
    }

    /// Sends a message of text over a WebSocket; false once the client is gone.
    pub async fn send_text(&mut self, text: &[u8]) -> bool {
        self.pass(&websocket::text(text)).await
    }

    async fn pass(&mut self, frame: &[u8]) -> bool {
        let mut to = self.to.to.lock().await;
        let sent = self.to.send(&mut to, frame).await;
        if sent {
            self.activity.touch();
        }
        sent
    }

    /// Asks a WebSocket client for a sign of life; false once it is gone.
    async fn ping(&mut self) -> bool {
        if !self.is_websocket {
            return true;
        }
        let mut to = self.to.to.lock().await;
        self.to.send(&mut to, &websocket::ping()).await
    }

    /// Ends this direction; the client may have gone before.
    pub async fn close(&mut self) {
        if self.is_websocket {
            // clients take any code but "normal" for an error
            self.to.close(NORMAL).await;
        } else {
            drop(self.to.to.lock().await.half.shutdown().await);
        }
    }
}
