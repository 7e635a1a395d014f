//! Logs and shells of pods, from the node agent's directory to the API server.

use crate::shells;
use api::object;
use apiserver::status::Status;
use apiserver::streams::{LogOptions, PodStreams, Socket, StreamKind, StreamOptions};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use node::logs::LogError;
use node::poddir::PodDir;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// How long a follower's request waits for the container's start. Upstream's kubelet refuses it at once (400, ContainerCreating), and so
/// do we after that: who follows a pod that was just made gets its lines, who asks for a pod that cannot start still hears so.
const START_MAX: Duration = Duration::from_secs(10);
/// How often it looks: a start is a matter of tens of milliseconds.
const START_LOOK: Duration = Duration::from_millis(10);

/// The pods of the agent that keeps its data here.
pub struct NodeStreams {
    data: PathBuf,
}

impl NodeStreams {
    pub fn new(data: PathBuf) -> Self {
        Self { data }
    }

    fn dir(&self, pod: &Value) -> PodDir {
        PodDir::of(&self.data, object::uid(pod))
    }
}

fn unsigned(number: Option<i64>) -> Option<u64> {
    number.and_then(|number| u64::try_from(number).ok())
}

impl PodStreams for NodeStreams {
    fn logs(
        &self,
        pod: Arc<Value>,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> {
        let dir = self.dir(&pod);
        Box::pin(async move {
            let name = object::meta(&pod, "name").to_owned();
            let LogOptions { container, follow, previous, timestamps, since, tail_lines, limit_bytes } = options;
            let asked = node::logs::LogOptions {
                follow,
                previous,
                since,
                tail_lines: unsigned(tail_lines),
                timestamps,
                limit_bytes: unsigned(limit_bytes),
            };
            let until = api::time::after(Instant::now(), START_MAX);
            let stream = loop {
                match node::logs::read(&dir, &name, &container, asked.clone()) {
                    Err(LogError::NotStarted { .. }) if follow && Instant::now() < until => sleep(START_LOOK).await,
                    answer => break answer.map_err(|error| Status::bad_request(error.to_string()))?,
                }
            };
            // a file that cannot be read any further ends the log: there is nobody to tell in the middle of a body
            Ok(stream
                .take_while(|chunk| std::future::ready(chunk.is_ok()))
                .filter_map(|c| std::future::ready(c.ok()))
                .boxed())
        })
    }

    fn check(&self, pod: &Value, kind: StreamKind, options: &StreamOptions) -> Result<(), Status> {
        if matches!(self.dir(pod).shim(), Ok(Some(_))) {
            return Ok(());
        }
        let name = object::meta(pod, "name");
        Err(match kind {
            StreamKind::Exec | StreamKind::Attach => {
                Status::bad_request(format!("container {:?} in pod {name:?} is not running", options.container))
            }
            StreamKind::PortForward => Status::bad_request(format!("pod {name:?} is not running")),
        })
    }

    fn connect(&self, pod: &Value, port: u16) -> BoxFuture<'static, io::Result<TcpStream>> {
        let dir = self.dir(pod);
        Box::pin(async move { node::ports::connect(&dir, port).await })
    }

    fn stream(
        &self,
        pod: Arc<Value>,
        kind: StreamKind,
        options: StreamOptions,
        socket: Socket,
    ) -> BoxFuture<'static, ()> {
        let dir = self.dir(&pod);
        Box::pin(async move {
            match kind {
                StreamKind::Exec => shells::exec(dir, options, socket).await,
                StreamKind::Attach => shells::attach(dir, object::meta(&pod, "name"), options, socket).await,
                StreamKind::PortForward => shells::forward(object::meta(&pod, "name"), &dir, options, socket).await,
            }
        })
    }
}
