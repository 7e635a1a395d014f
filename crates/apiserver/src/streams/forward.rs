//! Port-forward: connects a client to ports of a pod.
//!
//! kubectl uses SPDY: each connection is a data stream and an error stream with one `requestid`. Other clients use two WebSocket
//! channels for each port, data and errors, each beginning with the port in two bytes, low byte first.

use super::frames::{Receiver, Sender};
use super::spdy::Frame;
use super::wire::{self, Inbound, Outbound, PIECE_BYTES, split};
use super::{Io, PodStreams, Socket, StreamOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

/// SPDY within WebSocket messages.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Bytes of one connection that may wait for a server that does not read. Once they do, all connections of the client wait:
/// the protocol has no means to hold back one alone.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Connections that one client may have at a time.
const CONNECTIONS_MAX: usize = 1000;
/// Bytes of the id that pairs a connection's streams; clients send numbers.
const ID_BYTES_MAX: usize = 256;
/// How long the second stream of a connection may take to follow the first, as a kubelet has it.
const PAIRING_MAX: Duration = Duration::from_secs(30);

/// The pod that the ports are of, and who leads there.
#[derive(Clone)]
struct To {
    agent: Arc<dyn PodStreams>,
    pod: Arc<Value>,
}

impl To {
    async fn connect(&self, port: u16) -> std::io::Result<Box<dyn Io>> {
        self.agent.connect(&self.pod, port).await
    }

    fn refusal(&self, port: u16, why: &std::io::Error) -> String {
        format!("error forwarding port {port} to pod {}: {why}", api::object::meta(&self.pod, "name"))
    }
}

/// Connects the client to ports of a pod.
pub async fn forward(agent: Arc<dyn PodStreams>, pod: Arc<Value>, options: StreamOptions, socket: Socket) {
    let pod = To { agent, pod };
    let speaks_spdy = matches!(socket, Socket::Spdy(_)) || options.protocol == TUNNEL;
    let (from, to, activity) = split(socket);
    tokio::select! {
        () = activity.idle() => {}
        () = async {
            if speaks_spdy {
                streams(&pod, from, to).await;
            } else {
                channels(&pod, &options.ports, from, to).await;
            }
        } => {}
    }
}

/// One connection that the client asked for: two streams with one request id.
struct Request {
    error: Option<u32>,
    data: Option<(u32, u16)>,
    since: Instant,
}

async fn streams(pod: &To, from: Inbound, to: Outbound) {
    let sender = Sender::new(to);
    let mut receiver = Receiver::new(from, sender.clone());
    let mut requests: BTreeMap<String, Request> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, DuplexStream> = BTreeMap::new();
    let mut connections = JoinSet::new();
    let gone = sender.gone();
    tokio::pin!(gone);
    while let Some(frame) = receiver.next().await {
        while let Some(ended) = connections.try_join_next() {
            if let Ok(stream) = ended {
                inputs.remove(&stream); // nobody reads it any more
            }
        }
        match frame {
            Frame::Open { stream, headers, .. } => {
                requests.retain(|_, request| request.since.elapsed() < PAIRING_MAX);
                let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
                let (kind, port) = (header("streamtype"), header("port").parse::<u16>());
                let known = matches!(kind.as_str(), "data" | "error");
                let id = header("requestid");
                let fits = id.len() <= ID_BYTES_MAX && requests.len() + connections.len() < CONNECTIONS_MAX;
                if !known || port.is_err() || !fits || inputs.contains_key(&stream) {
                    sender.reset(stream).await;
                    continue;
                }
                if !sender.accept(stream).await {
                    break;
                }
                let new = || Request { error: None, data: None, since: Instant::now() };
                let request = requests.entry(id.clone()).or_insert_with(new);
                match port {
                    Ok(port) if kind == "data" => request.data = Some((stream, port)),
                    _ => request.error = Some(stream),
                }
                if let Request { error: Some(error), data: Some((data, port)), .. } = *request {
                    requests.remove(&id);
                    let (input, waiting) = tokio::io::duplex(WAITING_BYTES_MAX);
                    inputs.insert(data, input);
                    let (pod, sender) = (pod.clone(), sender.clone());
                    connections.spawn(async move {
                        connection(&pod, port, data, error, waiting, &sender).await;
                        data
                    });
                }
            }
            Frame::Data { stream, bytes, fin } => {
                if let Some(input) = inputs.get_mut(&stream) {
                    // a server that has gone reads no more; its end is on the way to the client
                    let ended = tokio::select! {
                        written = input.write_all(&bytes) => written.is_err(),
                        () = &mut gone => return,
                    };
                    if fin || ended {
                        inputs.remove(&stream);
                    }
                }
            }
            Frame::Reset { stream } => drop(inputs.remove(&stream)),
            Frame::Ping { .. } | Frame::GoAway | Frame::Other => {}
        }
    }
    sender.close().await;
}

/// Carries one connection; both streams end with it.
async fn connection(pod: &To, port: u16, data: u32, error: u32, mut input: DuplexStream, sender: &Sender) {
    match pod.connect(port).await {
        Ok(server) => {
            let (mut from, mut to) = tokio::io::split(server);
            let writing = async {
                if tokio::io::copy(&mut input, &mut to).await.is_ok() {
                    let _ = to.shutdown().await; // the client said that this is all; the server may be gone
                }
                drop(input); // or the reader of frames would wait for us
            };
            let reading = async {
                let mut buffer = vec![0; PIECE_BYTES];
                while let Ok(size @ 1..) = from.read(&mut buffer).await {
                    if !sender.data(data, &buffer[..size], false).await {
                        return;
                    }
                }
                sender.data(data, &[], true).await;
            };
            tokio::join!(writing, reading);
        }
        Err(why) => {
            sender.data(error, pod.refusal(port, &why).as_bytes(), false).await;
            sender.data(data, &[], true).await;
        }
    }
    sender.data(error, &[], true).await;
}

async fn channels(pod: &To, ports: &[u16], mut from: Inbound, to: Outbound) {
    let to = Arc::new(Mutex::new(to));
    let mut writers = Vec::new();
    let mut readers = JoinSet::new();
    for (index, port) in ports.iter().enumerate().take(usize::from(u8::MAX) / 2) {
        let (data, errors) = (2 * index as u8, 2 * index as u8 + 1);
        send(&to, data, &port.to_le_bytes()).await;
        send(&to, errors, &port.to_le_bytes()).await;
        match pod.connect(*port).await {
            Ok(stream) => {
                let (mut reader, writer) = tokio::io::split(stream);
                writers.push(Some(writer));
                let to = Arc::clone(&to);
                readers.spawn(async move {
                    let mut buffer = vec![0; PIECE_BYTES];
                    while let Ok(size @ 1..) = reader.read(&mut buffer).await {
                        if !send(&to, data, &buffer[..size]).await {
                            return;
                        }
                    }
                });
            }
            Err(why) => {
                writers.push(None);
                send(&to, errors, pod.refusal(*port, &why).as_bytes()).await;
            }
        }
    }
    let writing = async {
        while let Some(message) = from.next().await {
            if let Some((channel, data)) = message.split_first()
                && let Some(Some(writer)) = writers.get_mut(usize::from(channel / 2))
                && writer.write_all(data).await.is_err()
            {
                return;
            }
        }
    };
    let reading = async { while readers.join_next().await.is_some() {} };
    tokio::select! {
        () = writing => {}
        () = reading => {}
        () = wire::gone(&to) => {}
    }
    to.lock().await.close().await;
}

async fn send(to: &Mutex<Outbound>, channel: u8, data: &[u8]) -> bool {
    let mut message = Vec::with_capacity(data.len() + 1);
    message.push(channel);
    message.extend_from_slice(data);
    to.lock().await.send(message).await
}
