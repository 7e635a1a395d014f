//! Property tests of upgraded connections: whatever a client sends, its session ends with it and stays within its bounds. The frames
//! are whole, cut, changed, too long, or inflate to more than they are. `PROPTEST_CASES` asks for more (`make soak`).

use crate::client::{Input, Message, SIZE_BYTES_MAX, connect};
use crate::forward::forward;
use crate::spdy::testing::Opener;
use crate::spdy::{Frame, HEADER_BYTES_MAX, Reader, Writer};
use crate::wire;
use crate::{Command, Io, LogOptions, PodStreams, Socket, StreamKind, StreamOptions};
use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use resource::status::Status;
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// An agent whose pods are not there.
struct Nobody;

impl PodStreams for Nobody {
    fn logs(
        &self,
        _pod: Arc<serde_json::Value>,
        _options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> {
        Box::pin(async { Err(Status::bad_request("nobody")) })
    }

    fn check(
        &self,
        _pod: &serde_json::Value,
        _kind: StreamKind,
        _options: &StreamOptions,
    ) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(async { Ok(()) })
    }

    fn connect(&self, _pod: &serde_json::Value, _port: u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn exec(&self, _pod: &serde_json::Value, _options: &StreamOptions) -> BoxFuture<'static, Result<Command, String>> {
        Box::pin(async { Err("nobody".to_owned()) })
    }
}

fn pod() -> Arc<serde_json::Value> {
    Arc::new(json!({"metadata": {"name": "pod"}}))
}

/// A part of what a client sends.
#[derive(Clone, Debug)]
enum Part {
    Open(u32, Vec<(&'static str, String)>),
    Data(u32, Vec<u8>, bool),
    /// A control frame of any kind and length, whose body need not be as long as it says.
    Control {
        kind: u16,
        flags: u8,
        says: u32,
        body: Vec<u8>,
    },
    /// A new stream whose headers are so many zero bytes once they are inflated.
    Bomb(usize),
    /// Header blocks as they are, or are not, compressed.
    Block(Vec<u8>),
    Bytes(Vec<u8>),
}

fn part() -> impl Strategy<Value = Part> {
    let stream = prop_oneof![0_u32..8, select(vec![0x7fff_ffff, 0x7fff_fffe])];
    let name = select(vec!["streamtype", "port", "requestid", "StreamType", ""]);
    let value = prop_oneof![
        select(vec!["data", "error", "stdin", "stdout", "stderr", "resize", "80", "65536", "-1", ""])
            .prop_map(str::to_owned),
        (0_usize..40_000).prop_map(|length| "x".repeat(length)),
    ];
    let sizes = select(vec![0_u32, 4, 8, 10, 18, 1 << 20, (1 << 20) + 1, 0xff_ffff]);
    prop_oneof![
        6 => (stream.clone(), vec((name, value), 0..4)).prop_map(|(stream, headers)| Part::Open(stream, headers)),
        4 => (stream, vec(any::<u8>(), 0..200), any::<bool>()).prop_map(|(stream, bytes, fin)| Part::Data(stream, bytes, fin)),
        3 => (0_u16..10, any::<u8>(), prop_oneof![sizes, 0_u32..64], vec(any::<u8>(), 0..64))
            .prop_map(|(kind, flags, says, body)| Part::Control { kind, flags, says, body }),
        1 => (0_usize..3 * HEADER_BYTES_MAX).prop_map(Part::Bomb),
        1 => vec(any::<u8>(), 0..64).prop_map(Part::Block),
        1 => vec(any::<u8>(), 0..64).prop_map(Part::Bytes),
    ]
}

fn control(kind: u16, flags: u8, says: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&((u32::from(flags) << 24) | (says & 0xff_ffff)).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// A SYN_STREAM with these headers, as they go over the wire.
fn open_with(block: &[u8]) -> Vec<u8> {
    let body = [&[0, 0, 0, 9, 0, 0, 0, 0, 0, 0], block].concat();
    control(1, 0, body.len() as u32, &body)
}

fn bomb(size: usize) -> Vec<u8> {
    let mut deflate = Compress::new(Compression::best(), true);
    let mut block = Vec::with_capacity(size / 100 + 1024);
    deflate.compress_vec(&vec![0; size], &mut block, FlushCompress::Sync).unwrap();
    open_with(&block)
}

/// The bytes of it all, with one bit changed or not.
fn bytes(parts: &[Part], flip: Option<(Index, u8)>) -> Vec<u8> {
    let (mut opener, writer) = (Opener::default(), Writer::default());
    let mut all: Vec<u8> = parts
        .iter()
        .flat_map(|part| match part {
            Part::Open(stream, headers) => {
                let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                opener.open(*stream, &headers)
            }
            Part::Data(stream, bytes, fin) => writer.data(*stream, bytes, *fin),
            Part::Control { kind, flags, says, body } => control(*kind, *flags, *says, body),
            Part::Bomb(size) => bomb(*size),
            Part::Block(block) => open_with(block),
            Part::Bytes(bytes) => bytes.clone(),
        })
        .collect();
    if let Some((at, bit)) = flip
        && !all.is_empty()
    {
        let at = at.index(all.len());
        all[at] ^= 1 << bit;
    }
    all
}

/// The frames of bytes that come in pieces of these sizes, and whether the last was followed by what is no frame.
fn read(bytes: &[u8], pieces: &[usize]) -> (Vec<Frame>, bool) {
    let mut reader = Reader::new();
    let (mut frames, mut rest) = (Vec::new(), bytes);
    let mut sizes = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
        rest = after;
        reader.push(piece);
        loop {
            match reader.frame() {
                // data comes in parts
                Ok(Some(Frame::Data { stream, bytes, fin })) => match frames.last_mut() {
                    Some(Frame::Data { stream: last, bytes: before, fin: ended @ false }) if *last == stream => {
                        (*before, *ended) = ([&before[..], &bytes[..]].concat().into(), fin);
                    }
                    _ => frames.push(Frame::Data { stream, bytes, fin }),
                },
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

fn exec_options() -> StreamOptions {
    StreamOptions { stdin: true, stdout: true, protocol: "v4.channel.k8s.io".to_owned(), ..StreamOptions::default() }
}

/// Sends all of it, reads every answer, and closes; `session` is what the server does with its end.
fn played<F: Future<Output = ()>>(sent: &[u8], session: impl FnOnce(Socket) -> F) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (mut from, mut to) = tokio::io::split(client);
        let talk = async {
            let _ = to.write_all(sent).await; // the server may have had enough
            let _ = to.shutdown().await;
        };
        let hear = async { tokio::io::copy(&mut from, &mut tokio::io::sink()).await };
        let all = async { tokio::join!(session(Socket::Spdy(Box::new(server))), talk, hear) };
        // the clock moves where nothing else can: this is how long a session waits, not how long it works
        tokio::time::timeout(Duration::from_secs(3600), all).await.is_ok()
    })
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_how_they_are_cut(
        parts in vec(part(), 0..12), flip in proptest::option::of((any::<Index>(), 0_u8..8)), pieces in vec(1_usize..3000, 0..200),
    ) {
        let sent = bytes(&parts, flip);
        let (frames, broken) = read(&sent, &[]);
        prop_assert_eq!((&frames, broken), (&read(&sent, &pieces).0, read(&sent, &pieces).1));
        let held: usize = frames.iter().map(|frame| match frame {
            Frame::Data { bytes, .. } => bytes.len() + 8,
            _ => 8,
        }).sum();
        prop_assert!(held <= sent.len(), "{held} bytes of {}", sent.len());
        for frame in frames {
            if let Frame::Open { headers, .. } = frame {
                // a byte that is no UTF-8 becomes three
                let size: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                prop_assert!(size <= 3 * HEADER_BYTES_MAX, "{size} bytes of headers");
            }
        }
    }

    #[test]
    fn headers_that_inflate_without_end_are_refused(size in HEADER_BYTES_MAX + 8192..8 * HEADER_BYTES_MAX) {
        let (frames, broken) = read(&bomb(size), &[]);
        prop_assert!(frames.is_empty() && broken);
    }

    #[test]
    fn a_shell_ends_with_its_client(parts in vec(part(), 0..12), opened in any::<bool>()) {
        let mut sent = Vec::new();
        if opened {
            let mut opener = Opener::default();
            for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")] {
                sent.extend(opener.open(stream, &[("streamtype", kind)]));
            }
        }
        sent.extend(bytes(&parts, None));
        let ended = played(&sent, async |socket| {
            if let Some((speaker, mut listener, _)) = connect(socket, &exec_options()).await {
                while listener.next().await.is_some() {}
                speaker.finish(&serde_json::json!({"status": "Success"})).await;
            }
        });
        prop_assert!(ended);
    }

    #[test]
    fn a_forwarding_ends_with_its_client(parts in vec(part(), 0..12)) {
        let ended = played(&bytes(&parts, None), async |socket| {
            forward(Arc::new(Nobody), pod(), StreamOptions::default(), socket).await;
        });
        prop_assert!(ended);
    }

    #[test]
    fn channels_say_what_they_are_for(cut: Index, channel in 0_u8..=255, text in prop_oneof![
        vec(any::<u8>(), 0..64),
        "[\\[{\"Width\":0-9,}]{0,64}".prop_map(String::into_bytes),
        (0_usize..3 * SIZE_BYTES_MAX).prop_map(|depth| vec![b'['; depth]),
        any::<(u64, u64)>().prop_map(|(width, height)| format!("{{\"Width\":{width},\"Height\":{height}}}").into_bytes()),
    ]) {
        let bytes = Bytes::from([&[channel], text.as_slice()].concat());
        let part = |bytes: Bytes, begins, ends| wire::Part { bytes, begins, ends };
        let whole = Message::default().part(part(bytes.clone(), true, true));
        // in parts it says the same
        let (mut message, at) = (Message::default(), cut.index(bytes.len() + 1));
        let parts = [message.part(part(bytes.slice(..at), true, false)), message.part(part(bytes.slice(at..), false, true))];
        let parts: Vec<Input> = parts.into_iter().flatten().collect();
        let data = |input: &Input| if let Input::Data(bytes) = input { bytes.to_vec() } else { Vec::new() };
        match &whole {
            Some(Input::Data(bytes)) => prop_assert_eq!(&parts.iter().flat_map(data).collect::<Vec<u8>>(), bytes),
            Some(other) => prop_assert_eq!(parts.iter().collect::<Vec<_>>(), [other]),
            None => prop_assert!(parts.is_empty()),
        }
        match whole {
            Some(Input::Data(data)) => prop_assert!(channel == 0 && data == text),
            Some(Input::Size { .. }) => prop_assert!(channel == 4 && text.len() <= SIZE_BYTES_MAX),
            Some(Input::End) => prop_assert!(channel == 255 && text.first() == Some(&0)),
            None => prop_assert!(channel != 0),
        }
    }
}

#[tokio::test]
async fn connections_that_ended_are_forgotten() {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let session = forward(Arc::new(Nobody), pod(), StreamOptions::default(), Socket::Spdy(Box::new(server)));
    let talk = async {
        let mut opener = Opener::default();
        let mut reader = Reader::new();
        // far more than may be at a time, and twice by the same number: each is refused by the pod and its place is free
        for round in 0..2500_u32 {
            let (error, data) = (1 + 4 * (round % 1250), 3 + 4 * (round % 1250));
            for (stream, kind) in [(error, "error"), (data, "data")] {
                let headers = [("streamtype", kind), ("port", "1"), ("requestid", &round.to_string())];
                client.write_all(&opener.open(stream, &headers)).await.unwrap();
            }
            let mut ended = false;
            while !ended {
                let mut buffer = [0; 4096];
                let size = client.read(&mut buffer).await.unwrap();
                reader.push(&buffer[..size]);
                while let Some(frame) = reader.frame().unwrap() {
                    assert!(!matches!(frame, Frame::Reset { .. }), "round {round}: {frame:?}");
                    ended |= matches!(frame, Frame::Data { stream, fin: true, .. } if stream == error);
                }
            }
        }
        drop(client);
    };
    tokio::join!(session, talk);
}
