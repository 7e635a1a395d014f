//! Exec, attach and port-forward over WebSocket: the channel protocols of Kubernetes (`v4.channel.k8s.io` and `v5`).
//!
//! A frame is one byte of channel and the rest data. Of exec and attach: 0 input, 1 output, 2 errors, 3 the result as a
//! Status, 4 the terminal's size; 255 (v5 only) ends the channel that its second byte names. Of port-forward: two
//! channels for each port, data and errors, each beginning with the port in two bytes, low byte first. kubectl forwards
//! ports in SPDY frames instead (`spdy`).

use crate::spdy::{self, Frame};
use apiserver::streams::StreamOptions;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use node::exec::{Exec, ExecExit, ExecOptions, Terminal};
use node::logs::LogOptions;
use node::poddir::PodDir;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc, watch};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// Bytes of data in a frame.
const FRAME_BYTES: usize = 32 * 1024;
/// How long output may pause after the command ended, before it is taken for complete: what the command left behind may
/// hold its streams open for ever.
const LINGER: Duration = Duration::from_millis(500);

type Frames = Arc<Mutex<SplitSink<WebSocket, Message>>>;

async fn send(frames: &Frames, channel: u8, data: &[u8]) -> bool {
    let mut frame = Vec::with_capacity(data.len() + 1);
    frame.push(channel);
    frame.extend_from_slice(data);
    frames.lock().await.send(Message::Binary(Bytes::from(frame))).await.is_ok()
}

/// Ends the connection. Clients take any code but "normal" for an error.
async fn close(frames: &Frames) {
    let normal = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let _ = frames.lock().await.send(Message::Close(Some(normal))).await; // the client may have closed first
}

async fn finish(frames: &Frames, result: &Value) {
    send(frames, RESULT, result.to_string().as_bytes()).await;
    close(frames).await;
}

fn failure(message: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500})
}

fn result_of(code: std::io::Result<i32>) -> Value {
    match code {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => failure(&format!("the pod ended: {error}")),
    }
}

/// Executes a command in a running container.
pub async fn exec(dir: PodDir, options: StreamOptions, socket: WebSocket) {
    let (sink, mut input) = socket.split();
    let frames: Frames = Arc::new(Mutex::new(sink));
    let StreamOptions { container, command, stdin, stdout, stderr, tty, .. } = options;
    let run = match node::exec::exec(&dir, ExecOptions { container, command, stdin, tty }).await {
        Ok(run) => run,
        Err(error) => return finish(&frames, &failure(&error.to_string())).await,
    };
    // An empty frame tells the client that the connection stands.
    let first = if stdout {
        STDOUT
    } else if stderr {
        STDERR
    } else {
        RESULT
    };
    send(&frames, first, &[]).await;
    let Exec { stdin, stdout: out, stderr: err, terminal, exit } = run;
    let (ended, over) = watch::channel(false);
    let output = async {
        let err = async {
            if let Some(err) = err {
                pump(err, &frames, STDERR, stderr, over.clone()).await;
            }
        };
        tokio::join!(pump(out, &frames, STDOUT, stdout, over.clone()), err, wait(exit, ended))
    };
    tokio::select! {
        ((), (), code) = output => finish(&frames, &result_of(code)).await,
        () = feed(&mut input, stdin, terminal) => {}
    }
}

async fn wait(exit: ExecExit, ended: watch::Sender<bool>) -> std::io::Result<i32> {
    let code = exit.wait().await;
    ended.send_replace(true);
    code
}

/// Sends what comes from a stream (or drops it, if the client did not ask for it) until it ends.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    frames: &Frames,
    channel: u8,
    wanted: bool,
    mut over: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; FRAME_BYTES];
    loop {
        let ended = *over.borrow_and_update();
        let size = if ended {
            match tokio::time::timeout(LINGER, from.read(&mut buffer)).await {
                Ok(size) => size,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                size = from.read(&mut buffer) => size,
                _ = over.changed() => continue,
            }
        };
        match size {
            Ok(0) | Err(_) => return,
            Ok(size) => {
                if wanted && !send(frames, channel, &buffer[..size]).await {
                    return;
                }
            }
        }
    }
}

/// Hands on what the client sends; returns when the client has gone.
async fn feed(
    input: &mut (impl StreamExt<Item = Result<Message, axum::Error>> + Unpin),
    mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    terminal: Option<Terminal>,
) {
    while let Some(Ok(message)) = input.next().await {
        let frame = match message {
            Message::Binary(frame) => frame,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        match frame.split_first() {
            Some((&STDIN, data)) => {
                if let Some(to) = &mut stdin
                    && to.write_all(data).await.is_err()
                {
                    stdin = None; // the command reads no more
                }
            }
            Some((&RESIZE, data)) => {
                let size: Value = serde_json::from_slice(data).unwrap_or_default();
                let of = |member: &str| size[member].as_u64().and_then(|n| u16::try_from(n).ok());
                if let (Some(terminal), Some(columns), Some(rows)) = (&terminal, of("Width"), of("Height")) {
                    let _ = terminal.resize(columns, rows); // a command that has ended needs no size
                }
            }
            Some((&CLOSE, [STDIN, ..])) => stdin = None,
            Some(_) | None => {}
        }
    }
}

/// Follows what a container prints from now on. Processes have no input that could be attached to.
pub async fn attach(dir: PodDir, pod: &str, options: StreamOptions, socket: WebSocket) {
    let (sink, mut input) = socket.split();
    let frames: Frames = Arc::new(Mutex::new(sink));
    let asked = LogOptions { follow: true, tail_lines: Some(0), ..LogOptions::default() };
    let log = match node::logs::read(&dir, pod, &options.container, asked) {
        Ok(log) => log,
        Err(error) => return finish(&frames, &failure(&error.to_string())).await,
    };
    send(&frames, STDOUT, &[]).await;
    let mut log = Box::pin(log);
    let output = async {
        while let Some(Ok(chunk)) = log.next().await {
            if !send(&frames, STDOUT, &chunk).await {
                return;
            }
        }
    };
    tokio::select! {
        () = output => finish(&frames, &result_of(Ok(0))).await,
        () = feed(&mut input, None, None) => {}
    }
}

/// The protocol of `kubectl port-forward`.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Pieces of data that may wait for a server that does not read.
const WAITING_MAX: usize = 64;

/// Connects the client to ports of a pod.
pub async fn forward(address: Ipv4Addr, options: StreamOptions, socket: WebSocket) {
    if options.protocol == TUNNEL {
        tunnel(address, socket).await;
    } else {
        forward_channels(address, options, socket).await;
    }
}

/// One connection that the client asked for: two streams with one request id.
#[derive(Default)]
struct Request {
    error: Option<u32>,
    data: Option<(u32, u16)>,
}

/// Speaks SPDY with the client: each connection is an error stream and a data stream.
async fn tunnel(address: Ipv4Addr, socket: WebSocket) {
    let (sink, mut input) = socket.split();
    let frames: Frames = Arc::new(Mutex::new(sink));
    let (mut reader, mut writer) = (spdy::Reader::new(), spdy::Writer::default());
    let mut requests: BTreeMap<String, Request> = BTreeMap::new();
    let mut inputs: BTreeMap<u32, mpsc::Sender<Bytes>> = BTreeMap::new();
    let mut connections = tokio::task::JoinSet::new();
    'connected: while let Some(Ok(message)) = input.next().await {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Close(_) => break,
            Message::Text(_) | Message::Ping(_) | Message::Pong(_) => continue,
        };
        let arrived = match reader.push(&bytes) {
            Ok(arrived) => arrived,
            Err(error) => {
                tracing::debug!(%error, "port-forward");
                break;
            }
        };
        while connections.try_join_next().is_some() {}
        for frame in arrived {
            match frame {
                Frame::Open { stream, headers, .. } => {
                    if !send_bytes(&frames, writer.reply(stream)).await {
                        break 'connected;
                    }
                    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
                    let id = header("requestid");
                    let request = requests.entry(id.clone()).or_default();
                    if header("streamtype") == "error" {
                        request.error = Some(stream);
                    } else {
                        request.data = header("port").parse().ok().map(|port| (stream, port));
                    }
                    if let Request { error: Some(error), data: Some((data, port)) } = *request {
                        requests.remove(&id);
                        let (sender, receiver) = mpsc::channel(WAITING_MAX);
                        inputs.insert(data, sender);
                        connections.spawn(connection(address, port, data, error, receiver, Arc::clone(&frames)));
                    }
                }
                Frame::Data { stream, bytes, fin } => {
                    if let Some(input) = inputs.get(&stream) {
                        // A server that has gone reads no more; its end is on the way to the client.
                        let _ = input.send(Bytes::from(bytes)).await;
                    }
                    if fin {
                        inputs.remove(&stream);
                    }
                }
                Frame::Reset { stream } => drop(inputs.remove(&stream)),
                Frame::Ping { id } => drop(send_bytes(&frames, writer.ping(id)).await),
                Frame::GoAway => break 'connected,
                Frame::Other => {}
            }
        }
    }
    close(&frames).await;
}

async fn send_bytes(frames: &Frames, bytes: Vec<u8>) -> bool {
    frames.lock().await.send(Message::Binary(Bytes::from(bytes))).await.is_ok()
}

/// Carries one connection; both streams end with it.
async fn connection(
    address: Ipv4Addr,
    port: u16,
    data: u32,
    error: u32,
    mut input: mpsc::Receiver<Bytes>,
    frames: Frames,
) {
    let writer = spdy::Writer::default(); // of data frames, which know nothing of each other
    match node::exec::connect(address, port).await {
        Ok(server) => {
            let (mut from, mut to) = server.into_split();
            let writing = async {
                while let Some(bytes) = input.recv().await {
                    if to.write_all(&bytes).await.is_err() {
                        input.close(); // or the reader of frames would wait for us
                        return;
                    }
                }
                let _ = to.shutdown().await; // the client said that this is all; the server may be gone
            };
            let reading = async {
                let mut buffer = vec![0; FRAME_BYTES];
                while let Ok(size @ 1..) = from.read(&mut buffer).await {
                    if !send_bytes(&frames, writer.data(data, &buffer[..size], false)).await {
                        return;
                    }
                }
                send_bytes(&frames, writer.data(data, &[], true)).await;
            };
            tokio::join!(writing, reading);
        }
        Err(why) => {
            let text = format!("an error occurred forwarding {port}: {why}");
            send_bytes(&frames, writer.data(error, text.as_bytes(), false)).await;
            send_bytes(&frames, writer.data(data, &[], true)).await;
        }
    }
    send_bytes(&frames, writer.data(error, &[], true)).await;
}

async fn forward_channels(address: Ipv4Addr, options: StreamOptions, socket: WebSocket) {
    let (sink, mut input) = socket.split();
    let frames: Frames = Arc::new(Mutex::new(sink));
    let mut writers = Vec::new();
    let mut readers = tokio::task::JoinSet::new();
    for (index, port) in options.ports.iter().enumerate().take(usize::from(u8::MAX) / 2) {
        let (data, errors) = (2 * index as u8, 2 * index as u8 + 1);
        send(&frames, data, &port.to_le_bytes()).await;
        send(&frames, errors, &port.to_le_bytes()).await;
        match node::exec::connect(address, *port).await {
            Ok(stream) => {
                let (mut reader, writer) = stream.into_split();
                writers.push(Some(writer));
                let frames = Arc::clone(&frames);
                readers.spawn(async move {
                    let mut buffer = vec![0; FRAME_BYTES];
                    while let Ok(size @ 1..) = reader.read(&mut buffer).await {
                        if !send(&frames, data, &buffer[..size]).await {
                            return;
                        }
                    }
                });
            }
            Err(error) => {
                writers.push(None);
                let text = format!("an error occurred forwarding {port}: {error}");
                send(&frames, errors, text.as_bytes()).await;
            }
        }
    }
    let writing = async {
        while let Some(Ok(message)) = input.next().await {
            let frame = match message {
                Message::Binary(frame) => frame,
                Message::Close(_) => return,
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) => continue,
            };
            if let Some((channel, data)) = frame.split_first()
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
    }
    close(&frames).await;
}
