//! Memory limit for bodies in flight: a bound for all bodies together, however many clients send without end or never read.

use super::answer::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use resource::status::Status;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Bytes of all bodies that are on their way at a time.
const ROOM: usize = 256 << 20;
/// What is counted together.
const UNIT: usize = 1 << 10;
/// Bodies up to here are not counted: there are no more of them than connections and streams.
const SMALL: usize = 4 << 10;
/// Bytes of an answer that are handed over at once.
const CHUNK: usize = 32 << 10;
/// A client that takes no chunk for so long is cut off, and the answer forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

/// The room that is left.
pub(super) struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM / UNIT)))
    }
}

impl Room {
    /// Takes room for a body of so many bytes, until what is returned is dropped.
    ///
    /// # Errors
    /// 429 when there is none: the client is to try again in a second, as upstream answers when there are too many requests.
    pub(super) fn take(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Status> {
        if bytes <= SMALL {
            return Ok(None);
        }
        // one that is larger than all the room goes alone
        let units = bytes.div_ceil(UNIT).min(ROOM / UNIT);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(units).map(Some).map_err(|_| {
            let mut status = Status::new(
                429,
                "TooManyRequests",
                "Too many requests: the server has reached its limit of bytes in flight",
            );
            status.details = Some(serde_json::json!({"retryAfterSeconds": 1}));
            status
        })
    }

    /// An answer whose body waits for its client no longer than [`PATIENCE`], and is counted until then. Streams make their own
    /// pace, and stay as they are.
    ///
    /// # Errors
    /// As [`Room::take`].
    pub(super) async fn lend(&self, response: Response<Body>) -> Result<Response<Body>, Status> {
        use http_body_util::BodyExt as _;
        let Some(length) = response.body().size_hint().exact() else { return Ok(response) };
        let Some(place) = self.take(usize::try_from(length).unwrap_or(usize::MAX))? else { return Ok(response) };
        let (parts, body) = response.into_parts();
        // it is there already: nothing waits here
        let Ok(bytes) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
            return Ok(Response::from_parts(parts, Body::empty()));
        };
        let (sender, chunks) = mpsc::channel(1);
        tokio::spawn(async move {
            for chunk in bytes.chunks(CHUNK) {
                // a copy: a part of the whole would keep the whole
                let sent = sender.send(Bytes::copy_from_slice(chunk));
                if !matches!(tokio::time::timeout(PATIENCE, sent).await, Ok(Ok(()))) {
                    break;
                }
            }
            drop((bytes, place));
        });
        Ok(Response::from_parts(parts, Body::new(Lent { chunks, left: length })))
    }
}

/// A body that comes in chunks.
struct Lent {
    chunks: mpsc::Receiver<Bytes>,
    left: u64,
}

impl http_body::Body for Lent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.chunks.poll_recv(cx)) {
            Some(chunk) => {
                self.left = self.left.saturating_sub(chunk.len() as u64);
                Ok(Frame::data(chunk))
            }
            None => {
                self.left = 0;
                Err(io::Error::new(io::ErrorKind::TimedOut, "the client read nothing for too long"))
            }
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    fn answer(bytes: usize) -> Response<Body> {
        Response::new(Body::from(vec![7_u8; bytes]))
    }

    #[tokio::test]
    async fn an_answer_is_whole_and_gives_its_room_back() {
        let room = Room::default();
        for bytes in [0, 1, SMALL, SMALL + 1, CHUNK, CHUNK * 3 + 1] {
            let lent = room.lend(answer(bytes)).await.unwrap();
            assert_eq!(lent.body().size_hint().exact(), Some(bytes as u64));
            assert_eq!(lent.into_body().collect().await.unwrap().to_bytes(), vec![7_u8; bytes]);
        }
        let all = u32::try_from(ROOM / UNIT).unwrap();
        drop(tokio::time::timeout(PATIENCE, room.0.acquire_many(all)).await.expect("all of it is back").unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_keeps_no_room() {
        let room = Room::default();
        let unread: Vec<_> =
            [room.lend(answer(ROOM / 2)).await.unwrap(), room.lend(answer(ROOM / 2)).await.unwrap()].into();
        let refused = room.lend(answer(SMALL + 1)).await.unwrap_err();
        assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
        assert!(room.lend(answer(SMALL)).await.is_ok(), "what is small goes through");
        tokio::time::sleep(PATIENCE * 2).await;
        assert!(room.lend(answer(ROOM * 2)).await.is_ok(), "and what is larger than everything goes alone");
        for answer in unread {
            assert!(answer.into_body().collect().await.is_err(), "a part must not pass for the whole");
        }
    }
}
