//! Logs and shells of pods: connects the API server with the directory of the node agent.

use ::streams::{Command, Io, LogOptions, PodStreams, Resize, StreamKind, StreamOptions};
use api::object;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use node::exec::{Exec, ExecOptions};
use node::poddir::PodDir;
use resource::status::Status;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The pods of the agent that keeps its data here, and of the agents of machines in this folder.
pub struct NodeStreams {
    data: PathBuf,
    machines: PathBuf,
}

impl NodeStreams {
    pub fn new(data: PathBuf, machines: PathBuf) -> Self {
        Self { data, machines }
    }

    /// Whether an agent of this machine has the pod.
    pub fn has(&self, pod: &Value) -> bool {
        self.dir(pod).path().exists()
    }

    fn dir(&self, pod: &Value) -> PodDir {
        let uid = object::uid(pod);
        let own = PodDir::of(&self.data, uid);
        if own.path().exists() {
            return own;
        }
        let machines = std::fs::read_dir(&self.machines).into_iter().flatten().flatten();
        let mut there = machines.map(|machine| PodDir::of(&machine.path().join("node"), uid));
        there.find(|dir| dir.path().exists()).unwrap_or(own)
    }
}

/// The container, and the rest as the agent knows it.
pub(crate) fn asked(options: LogOptions) -> (String, node::logs::LogOptions) {
    let LogOptions { container, follow, previous, timestamps, since, tail_lines, limit_bytes } = options;
    let (tail_lines, limit_bytes) = (unsigned(tail_lines), unsigned(limit_bytes));
    (container, node::logs::LogOptions { follow, previous, since, tail_lines, timestamps, limit_bytes })
}

/// What clients are told of a pod that no shim runs.
pub(crate) fn not_running(pod: &Value, kind: StreamKind, options: &StreamOptions) -> Status {
    let name = object::meta(pod, "name");
    match kind {
        StreamKind::Exec | StreamKind::Attach => {
            Status::bad_request(format!("container {:?} in pod {name:?} is not running", options.container))
        }
        StreamKind::PortForward => Status::bad_request(format!("pod {name:?} is not running")),
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
            let (container, asked) = asked(options);
            let stream = node::logs::read_when_started(&dir, &name, &container, asked).await;
            let stream = stream.map_err(|error| Status::bad_request(error.to_string()))?;
            // a file that cannot be read any further ends the log: there is nobody to tell in the middle of a body
            Ok(stream
                .take_while(|chunk| std::future::ready(chunk.is_ok()))
                .filter_map(|c| std::future::ready(c.ok()))
                .boxed())
        })
    }

    fn check(&self, pod: &Value, kind: StreamKind, options: &StreamOptions) -> BoxFuture<'static, Result<(), Status>> {
        let runs = matches!(self.dir(pod).shim(), Ok(Some(_)));
        let answer = if runs { Ok(()) } else { Err(not_running(pod, kind, options)) };
        Box::pin(std::future::ready(answer))
    }

    fn connect(&self, pod: &Value, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        let dir = self.dir(pod);
        Box::pin(async move { Ok(Box::new(node::ports::connect(&dir, port).await?) as Box<dyn Io>) })
    }

    fn exec(&self, pod: &Value, options: &StreamOptions) -> BoxFuture<'static, Result<Command, String>> {
        let dir = self.dir(pod);
        let StreamOptions { container, command, stdin, tty, .. } = options.clone();
        Box::pin(async move {
            let asked = ExecOptions { container, command, stdin, tty };
            let run = node::exec::exec(&dir, asked).await.map_err(|error| error.to_string())?;
            let Exec { stdin, stdout, stderr, terminal, exit } = run;
            let resize = terminal.map(|terminal| -> Resize {
                Box::new(move |columns, rows| {
                    let _ = terminal.resize(columns, rows); // a command that has ended needs no size
                })
            });
            Ok(Command { stdin, stdout, stderr, resize, exit: Box::pin(exit.wait()) })
        })
    }
}
