//! Watches over WebSocket: each event is a message, of text, or of protobuf for clients that take it.

use super::Server;
use super::answer::Body;
use super::handle::Ask;
use super::node_life::NodeLife;
use super::upgrade;
use crate::negotiate::Accepted;
use crate::query::ListOptions;
use crate::registry::Target;
use crate::table::Include;
use bytes::Bytes;
use http::Response;
use resource::status::Status;
use std::sync::Arc;
use streams::wire::{self, FAREWELL_MAX};
use streams::{Io, Socket};
use tokio::sync::{Mutex, mpsc};

impl Server {
    /// A watch whose events go through a WebSocket.
    pub(crate) fn watch_websocket(
        self: &Arc<Self>,
        ask: &Ask,
        target: Target,
        options: ListOptions,
        accepted: Accepted,
        include: Include,
    ) -> Result<Response<Body>, Status> {
        let (sender, events) = mpsc::channel::<Vec<Bytes>>(1);
        let binary = accepted.streams_protobuf();
        let life = NodeLife::of(&self.core, &ask.user);
        self.spawn_watch(target, options, accepted, include, life, sender)?;
        upgrade::to_frames(ask, "", move |io| Box::pin(tell(io, events, binary)))
    }
}

/// Sends events until there are no more, or the client is gone.
async fn tell(io: Box<dyn Io>, mut events: mpsc::Receiver<Vec<Bytes>>, binary: bool) {
    let (mut from, to, _) = wire::split(Socket::WebSocket(io));
    let to = Mutex::new(to);
    let telling = async {
        while let Some(chunk) = events.recv().await {
            for event in chunk.iter().flat_map(|chunk| messages(chunk, binary)) {
                let mut to = to.lock().await;
                let sent = if binary { to.send(&event).await } else { to.send_text(&event).await };
                if !sent {
                    return false;
                }
            }
        }
        true
    };
    // what a client says is for nobody; that it ends is
    let listening = async { while from.next().await.is_some() {} };
    let ended = tokio::select! {
        ended = telling => ended,
        () = listening => false,
        () = wire::gone(&to) => false,
    };
    if ended {
        let _ = tokio::time::timeout(FAREWELL_MAX, async { to.lock().await.close().await }).await; // the client may read nothing
        from.run_dry().await;
    }
}

/// The events of a chunk.
fn messages(chunk: &Bytes, binary: bool) -> Vec<Bytes> {
    if binary {
        return super::watch::frames(chunk).collect();
    }
    chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| chunk.slice_ref(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use streams::testing::masked;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_watch_hears_frames_of_any_length_and_the_clients_end() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (sender, events) = mpsc::channel(1);
        let session = tokio::spawn(tell(Box::new(server), events, false));
        // 2^40 bytes are announced, of which some come
        client.write_all(&[0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4]).await.unwrap();
        for _ in 0..100 {
            client.write_all(&[7; 32 << 10]).await.unwrap();
        }
        sender.send(vec![Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n")]).await.unwrap();
        let mut heard = [0; 18];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"\x81\x07{\"a\":1}\x81\x07{\"b\":2}");
        drop(client);
        tokio::time::timeout(Duration::from_secs(1), session).await.expect("it ends").unwrap();
        assert!(sender.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_time_is_up_says_goodbye() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (sender, events) = mpsc::channel(1);
        let session = tokio::spawn(tell(Box::new(server), events, true));
        drop(sender);
        let mut heard = [0; 4];
        client.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, [0x88, 2, 3, 232], "closed, code 1000");
        client.write_all(&masked(true, 8, &1000_u16.to_be_bytes(), [1; 4])).await.unwrap();
        session.await.unwrap();
    }
}
