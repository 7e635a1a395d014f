//! Connections that changed their protocol, such as WebSocket: bytes move both ways.

use crate::balancer::Flight;
use crate::body::Activity;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

/// Bytes that are read at once, for each direction of a tunnel.
const BUFFER: usize = 8 << 10;

/// Starts a tunnel. It ends with either side, after no byte moved for the limit, or when the load balancer is killed.
pub(crate) fn start(client: OnUpgrade, backend: OnUpgrade, flight: Flight, activity: Arc<Activity>, limit: Duration) {
    let balancer = Arc::clone(&flight.balancer);
    let killed = balancer.killed.clone();
    balancer.tasks.spawn(async move {
        let _flight = flight;
        let copied = async {
            // Either fails if its connection broke before the change of protocol.
            let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
            let side = |io: Upgraded| Side { io: TokioIo::new(io), activity: Arc::clone(&activity) };
            let (mut client, mut backend) = (side(client), side(backend));
            let _ended = copy_bidirectional_with_sizes(&mut client, &mut backend, BUFFER, BUFFER).await;
        };
        tokio::select! {
            () = copied => {}
            () = activity.idle(limit) => {}
            () = killed.cancelled() => {}
        }
    });
}

/// One side of a tunnel. Notes when bytes arrive.
struct Side {
    io: TokioIo<Upgraded>,
    activity: Arc<Activity>,
}

impl AsyncRead for Side {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_read(cx, buffer);
        if polled.is_ready() {
            self.activity.touch();
        }
        polled
    }
}

impl AsyncWrite for Side {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
