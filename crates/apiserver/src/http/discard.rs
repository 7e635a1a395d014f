//! What is left of a request's body when the request has been answered without it is read and thrown away, for a while.
//!
//! A client that is still sending sees the answer only if the connection lives: one that is closed with bytes unread is reset, and a
//! client reads nothing more from a connection that was reset.

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::Handle;

/// Bytes of a body that are thrown away; a client that sends more is cut off.
const BYTES_MAX: usize = 64 << 20;
/// How long the rest of a body may take to come.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How long a client may send nothing of it.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Reads the rest of a body in a task of its own, within the bounds above. `also` lives as long.
pub(super) fn discard<B>(body: Pin<Box<B>>, also: impl Send + 'static)
where
    B: Body<Data = Bytes> + Send + 'static,
{
    // without a runtime there is no connection either
    let Ok(runtime) = Handle::try_current() else { return };
    runtime.spawn(async move {
        drop(tokio::time::timeout(TIME_MAX, read(body)).await);
        drop(also);
    });
}

async fn read<B: Body<Data = Bytes>>(mut body: Pin<Box<B>>) {
    let mut left = BYTES_MAX;
    while !body.is_end_stream() {
        let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE_MAX, body.frame()).await else { return };
        let size = frame.data_ref().map_or(0, Buf::remaining);
        let Some(rest) = left.checked_sub(size) else { return };
        left = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer;
    use super::super::halves::{Halves, Ledger, connected};
    use super::*;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    const PART: usize = 64 << 10;

    /// A server that refuses all requests, and reads of a body only the first frame, where the path says so.
    fn serve() -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = tokio::io::duplex(PART);
        let ledger = Ledger::default();
        let halves = Halves::new(server, ledger.clone());
        let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (mut request, open) = ledger.open(request);
            async move {
                if request.uri().path() == "/begun" {
                    assert!(request.body_mut().frame().await.is_some());
                }
                Ok::<_, Infallible>(open.answer(answer::response(413, "text/plain", "too large")))
            }
        });
        let connection = tokio::spawn(connected(halves, service));
        (client, connection)
    }

    /// Sends a head and then parts of a body, until the server takes no more: how many it took.
    async fn send(client: &mut DuplexStream, head: &str, parts: usize, pause: Duration) -> usize {
        client.write_all(head.as_bytes()).await.unwrap();
        for part in 0..parts {
            tokio::time::sleep(pause).await;
            if client.write_all(&[b'x'; PART]).await.is_err() {
                return part;
            }
        }
        parts
    }

    async fn answer_of(client: &mut DuplexStream) -> String {
        let mut told = Vec::new();
        while !told.ends_with(b"too large") {
            assert_ne!(client.read_buf(&mut told).await.unwrap(), 0, "{told:?}");
        }
        String::from_utf8(told).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_large_body_slowly_reads_the_refusal_and_goes_on() {
        let parts = (10 << 20) / PART;
        for path in ["/", "/begun"] {
            let (mut client, connection) = serve();
            for _ in 0..2 {
                let head = format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n\r\n", parts * PART);
                assert_eq!(send(&mut client, &head, parts, Duration::from_millis(200)).await, parts);
                assert!(answer_of(&mut client).await.starts_with("HTTP/1.1 413"));
            }
            client.shutdown().await.unwrap();
            connection.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_without_end_is_cut_off() {
        let head = "POST / HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n";
        let most = BYTES_MAX / PART;
        let (mut client, connection) = serve();
        let taken = send(&mut client, head, 10 * most, Duration::ZERO).await;
        assert!((most..most + 20).contains(&taken), "{taken} parts");
        connection.await.unwrap();
        // by time, where it comes slowly
        let (mut client, connection) = serve();
        let begin = Instant::now();
        let taken = send(&mut client, head, most, PAUSE_MAX / 2).await;
        assert!(taken < most && begin.elapsed() < TIME_MAX + PAUSE_MAX, "{taken} parts in {:?}", begin.elapsed());
        connection.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        for (header, patience) in [("X: y", PAUSE_MAX), ("Expect: 100-continue", Duration::ZERO)] {
            let (mut client, connection) = serve();
            let head = format!("POST / HTTP/1.1\r\n{header}\r\nContent-Length: 1000000\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            let begin = Instant::now();
            assert!(answer_of(&mut client).await.starts_with("HTTP/1.1 413"), "{header}");
            assert_eq!(client.read(&mut [0; 10]).await.unwrap(), 0, "{header}");
            assert_eq!(begin.elapsed().as_secs(), patience.as_secs(), "{header}");
            connection.await.unwrap();
        }
    }
}
