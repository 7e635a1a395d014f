//! A SPDY connection to a client: reads its frames, and writes ours.

use crate::spdy::{self, Frame};
use crate::wire::{Inbound, Outbound, PING_EVERY};
use std::sync::Arc;
use tokio::sync::Mutex;

/// Frames to the client; each sender has a clone.
#[derive(Clone)]
pub struct Sender(Arc<Mutex<(Outbound, spdy::Writer)>>);

impl Sender {
    pub fn new(out: Outbound) -> Self {
        Self(Arc::new(Mutex::new((out, spdy::Writer::default()))))
    }

    /// Sends what `frame` makes; false once the client is gone.
    async fn frame(&self, frame: impl FnOnce(&mut spdy::Writer) -> Vec<u8>) -> bool {
        let mut locked = self.0.lock().await;
        let (out, writer) = &mut *locked;
        let bytes = frame(writer);
        out.send(&bytes).await
    }

    /// Accepts a stream.
    pub async fn accept(&self, stream: u32) -> bool {
        self.frame(|writer| writer.reply(stream)).await
    }

    /// Refuses a stream, or ends it before its end.
    pub async fn reset(&self, stream: u32) -> bool {
        self.frame(|writer| writer.reset(stream)).await
    }

    pub async fn data(&self, stream: u32, bytes: &[u8], fin: bool) -> bool {
        self.frame(|writer| writer.data(stream, bytes, fin)).await
    }

    /// Returns once the client is gone: also where nobody reads what it sent, so that its end would not be seen.
    pub async fn gone(&self) {
        loop {
            tokio::time::sleep(PING_EVERY).await;
            // those that a server asks for have even numbers
            if !self.frame(|writer| writer.ping(2)).await {
                return;
            }
        }
    }

    /// Says that nothing follows, and closes this direction.
    pub async fn close(&self) {
        self.frame(|writer| writer.go_away()).await;
        self.0.lock().await.0.close().await;
    }
}

/// Frames from the client.
pub struct Receiver {
    from: Inbound,
    reader: spdy::Reader,
    sender: Sender,
}

impl Receiver {
    pub fn new(from: Inbound, sender: Sender) -> Self {
        Self { from, reader: spdy::Reader::new(), sender }
    }

    /// The next frame that says something about a stream; pings are answered. `None` once the client has ended, or speaks
    /// no SPDY.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            // a message may hold a million frames of which none is waited for
            tokio::task::coop::consume_budget().await;
            match self.reader.frame() {
                Ok(Some(Frame::Ping { id })) => drop(self.sender.frame(|writer| writer.ping(id)).await),
                Ok(Some(Frame::GoAway)) => return None,
                Ok(Some(Frame::Other)) => {}
                Ok(Some(frame)) => return Some(frame),
                Ok(None) => self.reader.push(&self.from.next().await?.bytes),
                Err(error) => {
                    tracing::debug!(%error, "a client's stream is ended");
                    return None;
                }
            }
        }
    }

    /// See `Inbound::run_dry`.
    pub async fn run_dry(&mut self) {
        self.from.run_dry().await;
    }
}
