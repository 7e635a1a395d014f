//! Agents on other machines: the connections that they keep open, by node, and what the API server asks over them.

use crate::streams::{NodeStreams, asked, not_running};
use ::streams::{Command, Io, LogOptions, PodStreams, Resize, StreamKind, StreamOptions, Tunnels};
use api::node::{Connections, Heard, LEASE_GRACE};
use api::object;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use jiff::Timestamp;
use node::exec::ExecOptions;
use node::tunnel::{Far, FarError, FarExec, PROTOCOL};
use resource::status::Status;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};

/// The connections that are open. Bounded by the number of nodes: each has one.
#[derive(Clone)]
pub struct Open {
    nodes: Arc<Mutex<BTreeMap<String, (u64, Far)>>>,
    ended: Arc<Mutex<Ended>>,
    /// Told of each connection that ends.
    attention: infra::Attention,
}

/// When connections have ended, for as long as that counts.
struct Ended {
    /// The times of the last minute or so, and those of the one before.
    recent: BTreeMap<String, Timestamp>,
    earlier: BTreeMap<String, Timestamp>,
    /// When `recent` was begun.
    since: Timestamp,
    /// The time of those that are not known.
    began: Timestamp,
}

impl Ended {
    fn new(now: Timestamp) -> Self {
        Self { recent: BTreeMap::new(), earlier: BTreeMap::new(), since: now, began: now }
    }

    fn note(&mut self, node: &str, now: Timestamp) {
        if now.duration_since(self.since).abs() > LEASE_GRACE {
            self.earlier = std::mem::take(&mut self.recent);
            self.since = now;
        }
        self.recent.insert(node.to_owned(), now);
    }

    fn of(&self, node: &str) -> Timestamp {
        self.recent.get(node).or_else(|| self.earlier.get(node)).copied().unwrap_or(self.began)
    }
}

impl Open {
    /// No connections yet.
    pub fn new(attention: infra::Attention) -> Self {
        Self { nodes: Arc::default(), ended: Arc::new(Mutex::new(Ended::new(clock::now()))), attention }
    }

    /// The connection of a node; `None` while there is none.
    fn of(&self, node: &str) -> Option<Far> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.get(node).map(|(_, far)| far.clone()).filter(|far| !far.is_closed())
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").finish_non_exhaustive()
    }
}

impl Connections for Open {
    fn heard(&self, node: &str) -> Heard {
        match self.of(node) {
            Some(_) => Heard::Now,
            None => Heard::At(self.ended.lock().unwrap_or_else(PoisonError::into_inner).of(node)),
        }
    }
}

impl Tunnels for Open {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn serve(&self, node: String, io: Box<dyn Io>) -> BoxFuture<'static, ()> {
        let Self { nodes, ended, attention } = self.clone();
        Box::pin(async move {
            let (far, connection) = match Far::connect(io).await {
                Ok(connected) => connected,
                Err(error) => {
                    tracing::warn!(node, %error, "the connection of a node's agent cannot be used");
                    return;
                }
            };
            let number = {
                let mut nodes = nodes.lock().unwrap_or_else(PoisonError::into_inner);
                let number = nodes.get(&node).map_or(0, |(last, _)| last.wrapping_add(1));
                nodes.insert(node.clone(), (number, far));
                number
            };
            tracing::info!(node, "the node's agent is connected");
            let entry = Entry { nodes, ended, node, number, attention };
            connection.await;
            drop(entry);
        })
    }
}

/// The entry of a connection; it goes also where the connection is dropped, as that of a deleted node is.
struct Entry {
    nodes: Arc<Mutex<BTreeMap<String, (u64, Far)>>>,
    ended: Arc<Mutex<Ended>>,
    node: String,
    number: u64,
    attention: infra::Attention,
}

impl Drop for Entry {
    fn drop(&mut self) {
        tracing::info!(node = self.node, "the node's agent is no longer connected");
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).note(&self.node, clock::now());
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.get(&self.node).is_some_and(|(last, _)| *last == self.number) {
            nodes.remove(&self.node);
        }
        drop(nodes);
        self.attention.look_at(&self.node);
    }
}

/// Pods of this machine and of all others.
pub struct AllStreams {
    /// This machine's node, if it is one.
    pub own: Option<(String, NodeStreams)>,
    pub open: Open,
}

/// Where a pod runs.
enum Place<'a> {
    Here(&'a NodeStreams),
    There(Far),
}

impl AllStreams {
    /// # Errors
    /// The node's agent is not connected; a sentence.
    fn place(&self, pod: &Value) -> Result<Place<'_>, String> {
        let node = object::text(&pod["spec"], "nodeName");
        match &self.own {
            Some((own, streams)) if own == node || streams.has(pod) => Ok(Place::Here(streams)),
            _ => {
                let far = self.open.of(node).map(Place::There);
                far.ok_or_else(|| format!("no node agent answers for the node {node:?}: it is not connected"))
            }
        }
    }
}

fn unavailable(why: String) -> Status {
    Status::new(503, "ServiceUnavailable", why)
}

impl PodStreams for AllStreams {
    fn logs(
        &self,
        pod: Arc<Value>,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> {
        let far = match self.place(&pod) {
            Ok(Place::Here(streams)) => return streams.logs(pod, options),
            Ok(Place::There(far)) => far,
            Err(why) => return Box::pin(std::future::ready(Err(unavailable(why)))),
        };
        Box::pin(async move {
            let (container, options) = asked(options);
            let log = far.log(object::uid(&pod), object::meta(&pod, "name"), &container, options).await;
            let log = log.map_err(|error| match error {
                FarError::Refused(why) => Status::bad_request(why),
                FarError::Lost(error) => unavailable(error.to_string()),
            })?;
            // a connection that is lost ends the log: there is nobody to tell in the middle of a body
            Ok(log
                .take_while(|chunk| std::future::ready(chunk.is_ok()))
                .filter_map(|c| std::future::ready(c.ok()))
                .boxed())
        })
    }

    fn check(&self, pod: &Value, kind: StreamKind, options: &StreamOptions) -> BoxFuture<'static, Result<(), Status>> {
        let far = match self.place(pod) {
            Ok(Place::Here(streams)) => return streams.check(pod, kind, options),
            Ok(Place::There(far)) => far,
            Err(why) => return Box::pin(std::future::ready(Err(unavailable(why)))),
        };
        let (uid, refusal) = (object::uid(pod).to_owned(), not_running(pod, kind, options));
        Box::pin(async move {
            match far.check(&uid).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(refusal),
                Err(error) => Err(unavailable(error.to_string())),
            }
        })
    }

    fn connect(&self, pod: &Value, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let far = match self.place(pod) {
            Ok(Place::Here(streams)) => return streams.connect(pod, port),
            Ok(Place::There(far)) => far,
            Err(why) => return Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::NotConnected, why)))),
        };
        let uid = object::uid(pod).to_owned();
        Box::pin(async move { Ok(Box::new(far.port(&uid, port).await?) as Box<dyn Io>) })
    }

    fn exec(&self, pod: &Value, options: &StreamOptions) -> BoxFuture<'static, Result<Command, String>> {
        let far = match self.place(pod) {
            Ok(Place::Here(streams)) => return streams.exec(pod, options),
            Ok(Place::There(far)) => far,
            Err(why) => return Box::pin(std::future::ready(Err(why))),
        };
        let uid = object::uid(pod).to_owned();
        let StreamOptions { container, command, stdin, tty, .. } = options.clone();
        Box::pin(async move {
            let FarExec { stdin, stdout, stderr, sizes, exit } = far
                .exec(&uid, ExecOptions { container, command, stdin, tty })
                .await
                .map_err(|error| error.to_string())?;
            let stderr = stderr.map(|stderr| Box::new(stderr) as Box<dyn tokio::io::AsyncRead + Send + Unpin>);
            let resize = sizes.map(|sizes| -> Resize {
                Box::new(move |columns, rows| {
                    let _ = sizes.try_send((columns, rows)); // the next one counts
                })
            });
            let exit = Box::pin(async move {
                exit.await.unwrap_or_else(|_| Err(io::Error::other("the connection to its node is lost")))
            });
            Ok(Command { stdin, stdout: Box::new(stdout), stderr, resize, exit })
        })
    }
}
