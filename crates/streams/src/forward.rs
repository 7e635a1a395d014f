//! Port-forward: connects a client to ports of a pod.
//!
//! kubectl uses SPDY: each connection is a data stream and an error stream with one `requestid`. Other clients use two WebSocket
//! channels for each port, data and errors, each beginning with the port in two bytes, low byte first.

use crate::frames::{Receiver, Sender};
use crate::spdy::Frame;
use crate::wire::{self, FAREWELL_MAX, Inbound, Outbound, PIECE_BYTES, Part, split};
use crate::{Io, PodStreams, Socket, StreamOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

/// SPDY within WebSocket messages.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Bytes of one connection that may wait for a server that does not read. Once they do, all connections of the client wait: the
/// channels of WebSockets have no means to hold back one alone, and SPDY's windows are what kubectl's library neither keeps to nor sends
/// (`spdystream` has no flow control), so a kubelet's client waits in the same way, and without these bytes.
const WAITING_BYTES_MAX: usize = 256 << 10;
/// Connections that one client may have at a time.
const CONNECTIONS_MAX: usize = 1000;
/// Bytes of the id that pairs a connection's streams; clients send numbers.
const ID_BYTES_MAX: usize = 256;
/// How long the second stream of a connection may take to follow the first, as a kubelet has it.
const PAIRING_MAX: Duration = Duration::from_secs(30);

/// The pod of the ports, and the way there.
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
    // each connection holds one end until its server has all that the client sent
    let (writes, mut written) = mpsc::channel::<Infallible>(1);
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
                // a client that has gone hears nothing, yet what it sent before is still to be read
                sender.accept(stream).await;
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
                    let (pod, sender, writes) = (pod.clone(), sender.clone(), writes.clone());
                    connections.spawn(async move {
                        connection(&pod, port, (data, error), waiting, writes, &sender).await;
                        data
                    });
                }
            }
            Frame::Data { stream, bytes, fin } => {
                if let Some(input) = inputs.get_mut(&stream) {
                    // a server that has gone reads no more; its end is on the way to the client
                    let ended = tokio::select! {
                        written = input.write_all(&bytes) => written.is_err(),
                        () = &mut gone => break,
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
    // what was sent before the end is not lost with it
    inputs.clear();
    drop(writes);
    let _ = tokio::time::timeout(FAREWELL_MAX, written.recv()).await;
    let _ = tokio::time::timeout(FAREWELL_MAX, sender.close()).await; // the client may read nothing
}

/// Carries one connection; both streams, of data and of errors, end with it. `writes` is let go of once the server has all input.
async fn connection(
    pod: &To,
    port: u16,
    (data, error): (u32, u32),
    mut input: DuplexStream,
    writes: mpsc::Sender<Infallible>,
    sender: &Sender,
) {
    match pod.connect(port).await {
        Ok(server) => {
            let (mut from, mut to) = tokio::io::split(server);
            let writing = async {
                if tokio::io::copy(&mut input, &mut to).await.is_ok() {
                    let _ = to.shutdown().await; // the client said that this is all; the server may be gone
                }
                drop((input, writes)); // or the reader of frames would wait for us
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
            drop((input, writes));
            sender.data(error, pod.refusal(port, &why).as_bytes(), false).await;
            sender.data(data, &[], true).await;
        }
    }
    sender.data(error, &[], true).await;
}

async fn channels(pod: &To, ports: &[u16], mut from: Inbound, to: Outbound) {
    let to = Arc::new(Mutex::new(to));
    let mut inputs = Vec::new();
    let mut writers = JoinSet::new();
    let mut readers = JoinSet::new();
    for (index, port) in ports.iter().enumerate().take(usize::from(u8::MAX) / 2) {
        let (data, errors) = (2 * index as u8, 2 * index as u8 + 1);
        send(&to, data, &port.to_le_bytes()).await;
        send(&to, errors, &port.to_le_bytes()).await;
        match pod.connect(*port).await {
            Ok(stream) => {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let (input, mut waiting) = tokio::io::duplex(WAITING_BYTES_MAX);
                inputs.push(Some(input));
                writers.spawn(async move {
                    if tokio::io::copy(&mut waiting, &mut writer).await.is_ok() {
                        let _ = writer.shutdown().await; // the server may be gone
                    }
                });
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
                inputs.push(None);
                send(&to, errors, pod.refusal(*port, &why).as_bytes()).await;
            }
        }
    }
    let writing = async {
        let mut channel = None;
        while let Some(Part { mut bytes, begins, .. }) = from.next().await {
            if begins {
                channel = None;
            }
            if channel.is_none() {
                channel = bytes.split_to(bytes.len().min(1)).first().copied();
            }
            // what comes on a channel of errors is for nobody
            if let Some(number) = channel.filter(|number| number % 2 == 0)
                && let Some(place) = inputs.get_mut(usize::from(number / 2))
                && let Some(input) = place
                && input.write_all(&bytes).await.is_err()
            {
                *place = None; // the server reads no more; the other ports go on
            }
        }
        // what was sent before the end is not lost with it
        inputs.clear();
        let _ = tokio::time::timeout(FAREWELL_MAX, async { while writers.join_next().await.is_some() {} }).await;
    };
    let reading = async { while readers.join_next().await.is_some() {} };
    tokio::select! {
        () = writing => {}
        () = reading => {}
        () = wire::gone(&to) => {}
    }
    let _ = tokio::time::timeout(FAREWELL_MAX, async { to.lock().await.close().await }).await; // the client may read nothing
}

async fn send(to: &Mutex<Outbound>, channel: u8, data: &[u8]) -> bool {
    let mut message = Vec::with_capacity(data.len() + 1);
    message.push(channel);
    message.extend_from_slice(data);
    to.lock().await.send(&message).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spdy::Writer;
    use crate::spdy::testing::Opener;
    use crate::websocket::testing::masked;
    use crate::{Command, LogOptions, StreamKind};
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use resource::status::Status;

    /// A pod with a port 1 where nobody reads, and others where what is sent comes back.
    struct Echo(std::sync::Mutex<Vec<DuplexStream>>);

    impl PodStreams for Echo {
        fn logs(
            &self,
            _pod: Arc<Value>,
            _options: LogOptions,
        ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> {
            Box::pin(async { Err(Status::bad_request("no logs")) })
        }

        fn check(&self, _: &Value, _: StreamKind, _: &StreamOptions) -> BoxFuture<'static, Result<(), Status>> {
            Box::pin(async { Ok(()) })
        }

        fn connect(&self, _pod: &Value, port: u16) -> BoxFuture<'static, std::io::Result<Box<dyn Io>>> {
            let (ours, theirs) = tokio::io::duplex(1024);
            if port == 1 {
                self.0.lock().unwrap().push(theirs);
            } else {
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(theirs);
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
            Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
        }

        fn exec(&self, _: &Value, _: &StreamOptions) -> BoxFuture<'static, Result<Command, String>> {
            Box::pin(async { Err("no commands".to_owned()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_not_read_holds_no_other_up() {
        let (client, server) = tokio::io::duplex(1 << 16);
        let options = StreamOptions { ports: vec![1, 2], ..StreamOptions::default() };
        let pod = Arc::new(serde_json::json!({"metadata": {"name": "pod"}}));
        let echo = Arc::new(Echo(std::sync::Mutex::default()));
        let session = tokio::spawn(forward(echo, pod, options, Socket::WebSocket(Box::new(server))));
        let (mut from, mut to) = tokio::io::split(client);
        let talk = async {
            let much = [&[0][..], &vec![b'x'; WAITING_BYTES_MAX - 1024]].concat();
            to.write_all(&masked(true, 2, &much, [9; 4])).await.unwrap();
            // a message in parts, of which the first is not even the channel
            for (opcode, fin, bytes) in [(2, false, &b""[..]), (0, false, b"\x02he"), (0, true, b"llo")] {
                to.write_all(&masked(fin, opcode, bytes, [7; 4])).await.unwrap();
            }
            let mut heard = Vec::new();
            let mut buffer = [0; 1024];
            while !heard.ends_with(b"llo") {
                let size = from.read(&mut buffer).await.unwrap();
                assert!(size > 0, "{heard:?}");
                heard.extend_from_slice(&buffer[..size]);
            }
            // what is on its way at the end still arrives, and the session ends though port 1 is never read
            to.write_all(&masked(true, 8, &[], [7; 4])).await.unwrap();
            session.await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(60), talk).await.expect("the other port waits");
    }

    /// A client of SPDY sends these bytes to port 1 (`whole`: and says that this is all), and is gone before anybody reads there. Gives
    /// what remains of the session, and the port.
    async fn left_behind(sent: &[u8], whole: bool) -> (tokio::task::JoinHandle<()>, DuplexStream) {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let pod = Arc::new(serde_json::json!({"metadata": {"name": "pod"}}));
        let echo = Arc::new(Echo(std::sync::Mutex::default()));
        let socket = Socket::Spdy(Box::new(server));
        let session = tokio::spawn(forward(echo.clone(), pod, StreamOptions::default(), socket));
        let mut opener = Opener::default();
        for (stream, kind) in [(1, "error"), (3, "data")] {
            let headers = [("streamtype", kind), ("port", "1"), ("requestid", "0")];
            client.write_all(&opener.open(stream, &headers)).await.unwrap();
        }
        client.write_all(&Writer::default().data(3, sent, whole)).await.unwrap();
        drop(client);
        for _ in 0..1000 {
            if let Some(port) = echo.0.lock().unwrap().pop() {
                return (session, port);
            }
            tokio::task::yield_now().await;
        }
        panic!("nobody has connected to the port");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_client_of_spdy_sent_before_its_end_arrives() {
        let sent: Vec<u8> = (0..WAITING_BYTES_MAX - 1024).map(|at| (at % 251) as u8).collect();
        for whole in [true, false] {
            let (session, mut port) = left_behind(&sent, whole).await;
            let mut got = vec![0; 1];
            port.read_exact(&mut got).await.unwrap();
            tokio::time::advance(FAREWELL_MAX / 2).await;
            port.read_to_end(&mut got).await.unwrap();
            assert!(got == sent, "{} of {} bytes arrived", got.len(), sent.len());
            session.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_not_read_does_not_outlive_its_client() {
        let begun = tokio::time::Instant::now();
        let (session, _port) = left_behind(&[0; 10_000], true).await;
        tokio::time::timeout(2 * FAREWELL_MAX, session).await.expect("it ends").unwrap();
        assert!(begun.elapsed() >= FAREWELL_MAX, "it was not waited for");
    }
}
