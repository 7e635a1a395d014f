//! Agents of machines, as a test scripts them: the logs of pods, and machines that do not answer.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use resource::status::Status;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use streams::{Command, Io, LogOptions, PodStreams, StreamKind, StreamOptions};
use tokio::sync::watch;

/// The log of a pod.
#[derive(Clone, Default)]
struct Log {
    lines: Vec<(String, String)>,
    has_ended: bool,
    is_cut: bool,
    /// How often it was opened.
    opened: usize,
}

#[derive(Clone, Default)]
pub struct Machines {
    /// By the name of the pod.
    logs: Arc<watch::Sender<BTreeMap<String, Log>>>,
    lines: Arc<Mutex<u32>>,
    /// Held by each log that is being read.
    reading: Arc<()>,
}

impl Machines {
    fn change(&self, pod: &str, change: impl FnOnce(&mut Log)) {
        self.logs.send_modify(|logs| change(logs.entry(pod.to_owned()).or_default()));
    }

    /// The pod writes a line. Two lines share a time.
    pub fn write(&self, pod: &str, text: &str) {
        let mut count = self.lines.lock().unwrap();
        *count += 1;
        let time = format!("2026-01-01T00:{:02}:{:02}.000000001Z", *count / 2 / 60, *count / 2 % 60);
        self.change(pod, |log| log.lines.push((time, text.to_owned())));
    }

    pub fn end(&self, pod: &str) {
        self.change(pod, |log| log.has_ended = true);
    }

    /// The machine does not answer, or does again. A log that is being read breaks off.
    pub fn cut(&self, pod: &str, is_cut: bool) {
        self.change(pod, |log| log.is_cut = is_cut);
    }

    /// Whether no log is being read.
    pub fn are_idle(&self) -> bool {
        let held_by_agents = Arc::strong_count(&self.logs);
        Arc::strong_count(&self.reading) == held_by_agents
    }

    pub fn opened(&self, pod: &str) -> usize {
        self.logs.borrow().get(pod).map_or(0, |log| log.opened)
    }
}

impl PodStreams for Machines {
    fn logs(
        &self,
        pod: Arc<Value>,
        options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, Status>> {
        let name = api::object::meta(&pod, "name").to_owned();
        self.change(&name, |log| log.opened += 1);
        let (logs, reading) = (self.logs.subscribe(), self.reading.clone());
        Box::pin(async move {
            if logs.borrow()[&name].is_cut {
                return Err(Status::new(503, "ServiceUnavailable", "the machine does not answer"));
            }
            let since = options.since.map(|since| since.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string());
            Ok(stream::unfold((logs, 0), move |(mut logs, mut at)| {
                let reading = reading.clone();
                let (name, since) = (name.clone(), since.clone());
                async move {
                    let _reading = reading;
                    loop {
                        let log = logs.borrow_and_update()[&name].clone();
                        if log.is_cut {
                            return None;
                        }
                        if let Some((time, text)) = log.lines.get(at) {
                            at += 1;
                            if since.as_ref().is_some_and(|since| time < since) {
                                continue;
                            }
                            return Some((Bytes::from(format!("{time} {text}\n")), (logs, at)));
                        }
                        if log.has_ended || !options.follow {
                            return None;
                        }
                        logs.changed().await.ok()?;
                    }
                }
            })
            .boxed())
        })
    }

    fn check(&self, _: &Value, _: StreamKind, _: &StreamOptions) -> BoxFuture<'static, Result<(), Status>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn connect(&self, _: &Value, _: u16) -> BoxFuture<'static, io::Result<Box<dyn Io>>> {
        Box::pin(std::future::ready(Err(io::Error::other("no ports here"))))
    }

    fn exec(&self, _: &Value, _: &StreamOptions) -> BoxFuture<'static, Result<Command, String>> {
        Box::pin(std::future::ready(Err("no commands here".to_owned())))
    }
}
