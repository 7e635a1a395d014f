//! The client's side of an exec or attach, over WebSocket or SPDY.
//!
//! Over WebSocket (`v4.channel.k8s.io`, `v5`) a message is one byte of channel and the rest data: 0 input, 1 output, 2
//! errors, 3 the result as a Status, 4 the terminal's size; 255 (v5 only) ends the channel that its second byte names.
//! Over SPDY each of these is a stream, which its header `streamtype` names; before v4 the result is a text, which is empty
//! on success.

use crate::frames;
use crate::spdy::Frame;
use crate::wire::{self, Activity, Inbound, Outbound, Part, split};
use crate::{Socket, StreamOptions};
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::Mutex;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// How long a client may take to open its streams, as a kubelet has it.
const OPENING_MAX: Duration = Duration::from_secs(30);

/// A terminal's size takes some 30 bytes; more is none.
pub(super) const SIZE_BYTES_MAX: usize = 4096;

/// Where the client hears something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Output,
    Errors,
}

/// What the client says.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    Data(Bytes),
    /// There will be no more data.
    End,
    /// The terminal's size.
    Size {
        columns: u16,
        rows: u16,
    },
}

/// The streams of a client that speaks SPDY.
#[derive(Debug, Default)]
pub struct Streams {
    error: Option<u32>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Streams {
    /// Where the number of a stream of this type belongs; `None` for types that there are not.
    fn of_type(&mut self, name: &str) -> Option<&mut Option<u32>> {
        match name {
            "error" => Some(&mut self.error),
            "stdin" => Some(&mut self.stdin),
            "stdout" => Some(&mut self.stdout),
            "stderr" => Some(&mut self.stderr),
            "resize" => Some(&mut self.resize),
            _ => None,
        }
    }

    /// Whether all are there without which the work cannot begin.
    fn suffice(&self, options: &StreamOptions) -> bool {
        self.error.is_some()
            && (!options.stdin || self.stdin.is_some())
            && (!options.stdout || self.stdout.is_some())
            && (!options.stderr || self.stderr.is_some())
    }
}

/// What is said to the client.
pub enum Speaker {
    Channels(Mutex<Outbound>),
    Spdy {
        sender: frames::Sender,
        error: Option<u32>,
        stdout: Option<u32>,
        stderr: Option<u32>,
        /// The result is a Status, not a text.
        as_status: bool,
    },
}

/// What is heard of the client.
pub enum Listener {
    Channels {
        from: Inbound,
        message: Message,
    },
    Spdy {
        receiver: frames::Receiver,
        sender: frames::Sender,
        streams: Streams,
        /// Part of a size whose rest is on the way.
        sizes: Vec<u8>,
        /// The last data came with the end.
        ended: bool,
    },
}

/// Takes up the connection; `None` where the client does not open the streams that it asked for.
pub async fn connect(socket: Socket, options: &StreamOptions) -> Option<(Speaker, Listener, Activity)> {
    let is_spdy = matches!(socket, Socket::Spdy(_));
    let (from, to, activity) = split(socket);
    if !is_spdy {
        return Some((
            Speaker::Channels(Mutex::new(to)),
            Listener::Channels { from, message: Message::default() },
            activity,
        ));
    }
    let sender = frames::Sender::new(to);
    let mut receiver = frames::Receiver::new(from, sender.clone());
    let mut streams = Streams::default();
    let opening = async {
        while !streams.suffice(options) {
            if let Frame::Open { stream, headers, .. } = receiver.next().await? {
                open(&sender, &mut streams, stream, &headers).await;
            }
        }
        Some(())
    };
    if !matches!(tokio::time::timeout(OPENING_MAX, opening).await, Ok(Some(()))) {
        sender.close().await;
        return None;
    }
    let speaker = Speaker::Spdy {
        sender: sender.clone(),
        error: streams.error,
        stdout: streams.stdout,
        stderr: streams.stderr,
        as_status: matches!(options.protocol.as_str(), "v4.channel.k8s.io" | "v5.channel.k8s.io"),
    };
    Some((speaker, Listener::Spdy { receiver, sender, streams, sizes: Vec::new(), ended: false }, activity))
}

/// Accepts a stream of a known type that is not there yet; refuses any other.
async fn open(
    sender: &frames::Sender,
    streams: &mut Streams,
    stream: u32,
    headers: &std::collections::BTreeMap<String, String>,
) {
    let kind = headers.get("streamtype").map_or("", String::as_str);
    match streams.of_type(kind) {
        Some(place @ None) => {
            *place = Some(stream);
            sender.accept(stream).await;
        }
        Some(Some(_)) | None => drop(sender.reset(stream).await),
    }
}

impl Speaker {
    /// Tells the client that the work has begun: an empty message, which SPDY does without.
    pub async fn begin(&self, options: &StreamOptions) {
        if let Self::Channels(out) = self {
            let channel = if options.stdout {
                STDOUT
            } else if options.stderr {
                STDERR
            } else {
                RESULT
            };
            out.lock().await.send(&[channel]).await;
        }
    }

    /// Sends data; false once the client is gone.
    pub async fn send(&self, channel: Channel, data: &[u8]) -> bool {
        match self {
            Self::Channels(out) => {
                let mut message = Vec::with_capacity(data.len() + 1);
                message.push(if channel == Channel::Output { STDOUT } else { STDERR });
                message.extend_from_slice(data);
                out.lock().await.send(&message).await
            }
            Self::Spdy { sender, stdout, stderr, .. } => match if channel == Channel::Output { stdout } else { stderr }
            {
                Some(stream) => sender.data(*stream, data, false).await,
                None => true,
            },
        }
    }

    /// Returns once the client is gone: also where nobody reads what it sent, so that its end would not be seen.
    pub async fn gone(&self) {
        match self {
            Self::Channels(out) => wire::gone(out).await,
            Self::Spdy { sender, .. } => sender.gone().await,
        }
    }

    /// Says what it came to, and ends.
    pub async fn finish(&self, result: &Value) {
        match self {
            Self::Channels(out) => {
                let mut out = out.lock().await;
                let mut message = vec![RESULT];
                message.extend_from_slice(result.to_string().as_bytes());
                out.send(&message).await;
                out.close().await;
            }
            Self::Spdy { sender, error, stdout, stderr, as_status } => {
                for stream in [stdout, stderr].into_iter().flatten() {
                    sender.data(*stream, &[], true).await;
                }
                let text = match as_status {
                    true => result.to_string(),
                    false if result["status"] == "Success" => String::new(),
                    false => result["message"].as_str().unwrap_or_default().to_owned(),
                };
                if let Some(error) = error {
                    if !text.is_empty() {
                        sender.data(*error, text.as_bytes(), false).await;
                    }
                    sender.data(*error, &[], true).await;
                }
                sender.close().await;
            }
        }
    }
}

impl Listener {
    /// What the client says next; `None` once it has gone.
    pub async fn next(&mut self) -> Option<Input> {
        match self {
            Self::Channels { from, message } => loop {
                if let Some(input) = message.part(from.next().await?) {
                    return Some(input);
                }
            },
            Self::Spdy { receiver, sender, streams, sizes, ended } => loop {
                if std::mem::take(ended) {
                    return Some(Input::End);
                }
                match receiver.next().await? {
                    Frame::Open { stream, headers, .. } => open(sender, streams, stream, &headers).await,
                    Frame::Data { stream, bytes, fin } if Some(stream) == streams.stdin => {
                        *ended = fin;
                        return Some(Input::Data(bytes));
                    }
                    Frame::Data { stream, bytes, .. } if Some(stream) == streams.resize => {
                        if let Some(size) = last_size(sizes, &bytes) {
                            return Some(size);
                        }
                    }
                    Frame::Reset { stream } if Some(stream) == streams.stdin => return Some(Input::End),
                    _ => {}
                }
            },
        }
    }

    /// See `Inbound::run_dry`.
    pub async fn run_dry(&mut self) {
        match self {
            Self::Channels { from, .. } => from.run_dry().await,
            Self::Spdy { receiver, .. } => receiver.run_dry().await,
        }
    }
}

/// A message over WebSocket, as it comes: input is handed on part by part.
#[derive(Debug, Default)]
pub struct Message {
    channel: Option<u8>,
    /// What there is of a message that is no input, while it may be one that is listened to.
    text: Vec<u8>,
    is_long: bool,
}

impl Message {
    /// What the next part says, with those before it; `None`: nothing yet, or nothing that is listened to.
    pub(super) fn part(&mut self, part: Part) -> Option<Input> {
        if part.begins {
            *self = Self::default();
        }
        let mut bytes = part.bytes;
        let channel = match self.channel {
            Some(channel) => channel,
            None => *self.channel.insert(*bytes.split_to(bytes.len().min(1)).first()?),
        };
        if channel == STDIN {
            return Some(Input::Data(bytes));
        }
        self.is_long |= self.text.len().saturating_add(bytes.len()) > SIZE_BYTES_MAX;
        if self.is_long {
            self.text = Vec::new();
            return None;
        }
        self.text.extend_from_slice(&bytes);
        match (channel, self.text.as_slice()) {
            (RESIZE, text) if part.ends => size(&serde_json::from_slice(text).ok()?),
            (CLOSE, [STDIN, ..]) if part.ends => Some(Input::End),
            _ => None,
        }
    }
}

fn size(value: &Value) -> Option<Input> {
    let of = |member: &str| u16::try_from(value[member].as_u64()?).ok();
    Some(Input::Size { columns: of("Width")?, rows: of("Height")? })
}

/// Sizes come as JSON objects one after the other, cut anywhere: the newest that is complete. `waiting`: what is not.
fn last_size(waiting: &mut Vec<u8>, bytes: &[u8]) -> Option<Input> {
    waiting.extend_from_slice(bytes);
    let mut values = serde_json::Deserializer::from_slice(waiting).into_iter::<Value>();
    let mut last = None;
    for value in values.by_ref() {
        match value {
            Ok(value) => last = size(&value).or(last),
            Err(_) => break,
        }
    }
    let read = values.byte_offset();
    waiting.drain(..read);
    if waiting.len() > SIZE_BYTES_MAX {
        waiting.clear();
    }
    last
}

/// A Status that says that nothing came of it.
pub fn failure(message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::testing::Opener;
    use crate::spdy::{Reader, Writer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn sizes_come_in_pieces_and_the_last_counts() {
        let mut waiting = Vec::new();
        assert_eq!(last_size(&mut waiting, b"{\"Width\":80,\"Hei"), None);
        assert_eq!(
            last_size(&mut waiting, b"ght\":24}\n{\"Width\":100,\"Height\":30}\n{\"Wid"),
            Some(Input::Size { columns: 100, rows: 30 })
        );
        assert_eq!(
            last_size(&mut waiting, b"th\":1,\"Height\":2}"),
            Some(Input::Size { columns: 1, rows: 2 }),
            "nothing is lost"
        );
        for _ in 0..100 {
            assert_eq!(last_size(&mut waiting, &[b'x'; 1000]), None);
            assert!(waiting.len() <= 4096, "{}", waiting.len());
        }
    }

    fn options(protocol: &str) -> StreamOptions {
        StreamOptions { stdin: true, stdout: true, protocol: protocol.to_owned(), ..StreamOptions::default() }
    }

    /// What a client gets that opens its streams and says `hello`, for this result.
    async fn talk(protocol: &str, result: &Value) -> Vec<Frame> {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let (mut opener, writer) = (Opener::default(), Writer::default());
        for (stream, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stdout")] {
            client.write_all(&opener.open(stream, &[("streamtype", kind)])).await.unwrap();
        }
        client.write_all(&writer.ping(9)).await.unwrap();
        client.write_all(&writer.data(3, b"hello", true)).await.unwrap();
        let options = options(protocol);
        let (speaker, mut listener, _) = connect(Socket::Spdy(Box::new(server)), &options).await.unwrap();
        assert_eq!(listener.next().await, Some(Input::Data("hello".into())));
        assert_eq!(listener.next().await, Some(Input::End));
        speaker.begin(&options).await;
        assert!(speaker.send(Channel::Output, b"out").await);
        assert!(speaker.send(Channel::Errors, b"nobody asked for it").await);
        speaker.finish(result).await;
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        // acceptances are of no kind that the reader tells apart
        let mut reader = Reader::new();
        reader.push(&bytes);
        let frames = std::iter::from_fn(|| reader.frame().unwrap());
        frames.filter(|frame| *frame != Frame::Other).collect()
    }

    #[tokio::test]
    async fn a_client_of_spdy_is_served() {
        let data = |stream, text: &str, fin| Frame::Data { stream, bytes: text.to_owned().into(), fin };
        let expected = |result: &str| {
            let begun = [Frame::Reset { stream: 7 }, Frame::Ping { id: 9 }, data(5, "out", false), data(5, "", true)];
            let result = (!result.is_empty()).then(|| data(1, result, false));
            begun.into_iter().chain(result).chain([data(1, "", true), Frame::GoAway]).collect::<Vec<_>>()
        };
        let bad = failure("it went wrong");
        assert_eq!(talk("v4.channel.k8s.io", &bad).await, expected(&bad.to_string()));
        assert_eq!(talk("v3.channel.k8s.io", &bad).await, expected("it went wrong"));
        assert_eq!(talk("v2.channel.k8s.io", &json!({"status": "Success"})).await, expected(""));
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_do_not_come_are_not_waited_for() {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        client.write_all(&Opener::default().open(1, &[("streamtype", "error")])).await.unwrap();
        assert!(connect(Socket::Spdy(Box::new(server)), &options("v4.channel.k8s.io")).await.is_none());
    }
}
