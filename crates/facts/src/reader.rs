//! Reads the log of one run of a container to its end, while it is being written.

use crate::bytes::{self, Piece};
use crate::history::{self, RunOf, Window};
use client::Cluster;
use futures::AsyncBufRead;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use view::fold::Fold;
use view::lines::{Drawn, Line, Show, Source};
use view::marks::Pieces;
use view::runs::statuses;

/// Between attempts to read a log that broke off.
const RETRY: Duration = Duration::from_millis(300);

/// How often the log of a pod that is gone is looked for: on this machine it goes into the history of its job.
const GONE_TRIES: u32 = 5;

/// A run that is read.
pub struct Reader {
    pub cluster: Cluster,
    pub job: String,
    pub source: Arc<Source>,
    /// Uid of its pod.
    pub pod: String,
    pub container: String,
    pub restarts: i64,
    pub show: Arc<Show>,
    /// The pod as it is seen; `None`: its object is gone.
    pub seen: watch::Receiver<Option<Value>>,
    pub sender: mpsc::Sender<Line>,
    /// Called with the reason why a log cannot be read yet.
    pub tell: fn(&str),
}

/// What became of a run, as its pod tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// It runs, or nobody knows better.
    Runs,
    /// It has ended; its log is the container's.
    Ended,
    /// It has ended, and the container was started once more: its log is the one before.
    Previous,
    /// Its log cannot be had any more.
    Lost,
}

/// Why a log is not read on.
enum Stopped {
    /// All of it is read.
    Done,
    /// There is nobody to read for.
    Unwanted,
    /// To be tried again.
    Broken,
}

impl Reader {
    /// Reads to the end of the run. A log that breaks off is read on from the last line's time; lines may share a time, so
    /// it is also counted how many of that time were seen.
    ///
    /// The end of a stream is not the end of a container: a kubelet that is restarted ends it as if all were read. So the
    /// pod has to say that this run has ended, and what came until then is read.
    pub async fn read(mut self) {
        let mut taken = Taken { seen: Seen::default(), pieces: Pieces::default(), fold: Fold::default() };
        // this machine's server tells runs apart, and has their logs also when their pods are gone
        let mut by_history = self.cluster.local;
        let (mut told, mut missed) = (false, 0);
        loop {
            let stands = self.stands();
            let opened = match by_history {
                true => self.open_history(&taken.seen).await,
                false => self.open_pod(&taken.seen, stands).await,
            };
            let is_whole = by_history || stands != Stands::Runs;
            match opened {
                Ok(stream) => match self.pump(stream, &mut taken).await {
                    Stopped::Unwanted => return,
                    Stopped::Done if is_whole => return self.finish(taken).await,
                    Stopped::Done if self.stands() != Stands::Runs => continue,
                    Stopped::Done | Stopped::Broken => {}
                },
                Err(kube::Error::Api(status)) if by_history && matches!(status.code, 400 | 403 | 404) => {
                    by_history = false;
                    continue;
                }
                // the pod is gone, and its log with it, or on its way into the history
                Err(kube::Error::Api(status)) if is_gone(&status, &self.source.pod) => {
                    missed += 1;
                    by_history = self.cluster.local;
                    if !by_history || missed >= GONE_TRIES {
                        return self.finish(taken).await;
                    }
                }
                // what the server says of the node, or of our rights, is worth knowing; that it restarts is not
                Err(kube::Error::Api(status)) => {
                    if !std::mem::replace(&mut told, true) {
                        (self.tell)(&format!("no log of pod {} yet: {}", self.source.pod, status.message.trim()));
                    }
                    if status.code == 403 {
                        return;
                    }
                }
                Err(_) => {}
            }
            if self.seen.has_changed().is_err() && stands == Stands::Lost && missed == 0 {
                return self.finish(taken).await;
            }
            tokio::select! {
                changed = self.seen.changed() => if changed.is_err() {
                    tokio::time::sleep(RETRY).await;
                },
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    fn stands(&mut self) -> Stands {
        stands(self.seen.borrow_and_update().as_ref(), &self.container, self.restarts)
    }

    async fn open_history(&self, seen: &Seen) -> kube::Result<Pin<Box<dyn AsyncBufRead + Send>>> {
        let attempt = u32::try_from(self.restarts).unwrap_or(0);
        let run = RunOf { pod: &self.pod, container: &self.container, attempt };
        let window = Window { tail: self.tail(seen), since: self.since(seen) };
        Ok(Box::pin(history::open(&self.cluster, history::Job::Train(&self.job), run, window, true).await?))
    }

    async fn open_pod(&self, seen: &Seen, stands: Stands) -> kube::Result<Pin<Box<dyn AsyncBufRead + Send>>> {
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let parameters = LogParams {
            container: Some(self.container.clone()),
            follow: stands == Stands::Runs,
            previous: stands == Stands::Previous,
            timestamps: true,
            tail_lines: self.tail(seen),
            since_time: self.since(seen).map(whole_second),
            ..LogParams::default()
        };
        Ok(Box::pin(api.log_stream(&self.source.pod, &parameters).await?))
    }

    fn tail(&self, seen: &Seen) -> Option<i64> {
        self.show.tail.filter(|_| seen.stamp.is_empty())
    }

    fn since(&self, seen: &Seen) -> Option<Timestamp> {
        seen.stamp.parse().ok().or(self.show.since)
    }

    /// Hands on what a stream brings.
    async fn pump(&self, stream: Pin<Box<dyn AsyncBufRead + Send>>, taken: &mut Taken) -> Stopped {
        let mut pieces = bytes::Pieces::new(stream);
        let mut resumed = taken.seen.clone();
        loop {
            match pieces.next().await {
                Ok(Some(Piece::State(state))) => {
                    let (stamp, text) = history::stamped(&state);
                    let line = Line { drawn: Drawn::Still, ..self.line(stamp, text.to_owned()) };
                    if self.sender.send(line).await.is_err() {
                        return Stopped::Unwanted;
                    }
                }
                Ok(Some(Piece::Line { text: line, was_redrawn })) => {
                    let (stamp, text) = history::stamped(&line);
                    if resumed.was_seen(stamp) {
                        continue;
                    }
                    taken.seen.note(stamp);
                    let text = self.source.whole(&mut taken.pieces, text);
                    let drawn = if was_redrawn { Drawn::Again } else { Drawn::Once };
                    if !self.send(Line { drawn, ..self.line(stamp, text) }, &mut taken.fold).await {
                        return Stopped::Unwanted;
                    }
                }
                Ok(None) => return Stopped::Done,
                Err(_) => return Stopped::Broken,
            }
        }
    }

    async fn finish(&self, mut taken: Taken) {
        for text in taken.pieces.rest() {
            if !self.send(self.line("", text), &mut taken.fold).await {
                return;
            }
        }
        for folded in taken.fold.finish() {
            _ = self.sender.send(Line::of(folded)).await;
        }
    }

    fn line(&self, time: &str, text: String) -> Line {
        Line { source: Arc::clone(&self.source), time: time.to_owned(), text, folded: 0, drawn: Drawn::Once }
    }

    async fn send(&self, line: Line, fold: &mut Fold<Line>) -> bool {
        if !self.show.folds() {
            return self.sender.send(line).await.is_ok();
        }
        for folded in fold.push(line) {
            if self.sender.send(Line::of(folded)).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// A pod's log is asked for by whole seconds, and the client would round to the nearest one, which may be the next.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// What was read so far.
struct Taken {
    seen: Seen,
    pieces: Pieces,
    fold: Fold<Line>,
}

/// Where a run stands, by its pod.
fn stands(pod: Option<&Value>, container: &str, restarts: i64) -> Stands {
    let Some(pod) = pod else { return Stands::Lost };
    let Some(status) = statuses(pod).find(|status| status["name"] == *container) else { return Stands::Runs };
    let is_over = api::object::has_ended(pod);
    let ended = |state: &str| status[state].get("terminated").is_some();
    let waits_again = status["state"].get("waiting").is_some() && ended("lastState");
    match status["restartCount"].as_i64().unwrap_or(0) - restarts {
        ..=0 if is_over || ended("state") || waits_again => Stands::Ended,
        ..=0 => Stands::Runs,
        1 => Stands::Previous,
        2.. => Stands::Lost,
    }
}

/// The time of the last line that was read, as text (finer than what `sinceTime` can say), and how many lines had it.
#[derive(Clone, Debug, Default)]
struct Seen {
    stamp: String,
    lines: usize,
}

impl Seen {
    fn note(&mut self, stamp: &str) {
        if self.stamp == stamp {
            self.lines += 1;
        } else {
            *self = Self { stamp: stamp.to_owned(), lines: 1 };
        }
    }

    /// Whether a line of a resumed stream is one that was read before.
    fn was_seen(&mut self, stamp: &str) -> bool {
        if stamp < self.stamp.as_str() {
            return true;
        }
        let again = stamp == self.stamp && self.lines > 0;
        if again {
            self.lines -= 1;
        }
        again
    }
}

/// Whether a log is not there because its pod is not. That a pod's node is gone is said in the same words, with its name.
pub fn is_gone(status: &kube::core::Status, pod: &str) -> bool {
    status.code == 404 && status.details.as_ref().is_none_or(|about| about.name.is_empty() || about.name == pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resumed_log_repeats_and_loses_nothing() {
        let log = ["1 a", "2 b", "2 c", "2 d", "3 e"];
        for broken_at in 0..=log.len() {
            let mut seen = Seen::default();
            let mut read: Vec<&str> = Vec::new();
            for stream in [&log[..broken_at], &log[..]] {
                let mut resumed = seen.clone();
                for line in stream {
                    let stamp = line.split(' ').next().unwrap();
                    if !resumed.was_seen(stamp) {
                        seen.note(stamp);
                        read.push(line);
                    }
                }
            }
            assert_eq!(read, log, "broken off after {broken_at} lines");
        }
    }

    #[test]
    fn a_run_has_ended_when_its_pod_says_so() {
        let pod = |phase: &str, restarts: i64, state: Value, last: Value| {
            let status = json!({"name": "node", "restartCount": restarts, "state": state, "lastState": last});
            json!({"status": {"phase": phase, "containerStatuses": [status]}})
        };
        let (running, ended, waiting) = (json!({"running": {}}), json!({"terminated": {}}), json!({"waiting": {}}));
        let cases = [
            (Some(pod("Running", 0, running.clone(), json!({}))), Stands::Runs),
            (Some(pod("Running", 0, ended.clone(), json!({}))), Stands::Ended),
            (Some(pod("Running", 0, waiting.clone(), ended.clone())), Stands::Ended),
            (Some(pod("Failed", 0, running.clone(), json!({}))), Stands::Ended),
            (Some(pod("Running", 1, running.clone(), ended.clone())), Stands::Previous),
            (Some(pod("Running", 2, running, ended)), Stands::Lost),
            (Some(pod("Pending", 0, waiting, json!({}))), Stands::Runs),
            (Some(json!({})), Stands::Runs),
            (None, Stands::Lost),
        ];
        for (pod, expected) in cases {
            assert_eq!(stands(pod.as_ref(), "node", 0), expected, "{pod:?}");
        }
    }
}
