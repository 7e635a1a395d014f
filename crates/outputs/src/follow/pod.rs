//! A pod of a managed job, and the reading of its log to the end.

use super::lines::Lines;
use crate::part::{Part, Stage};
use crate::record::{Line, Position};
use crate::serve::managed_job;
use crate::store::{Outputs, Reach, Writer, is_plain};
use api::jobset::keys::{JOBSET_NAME, REPLICATED_JOB_NAME};
use api::object::{self, Key};
use api::sky::keys;
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use serde_json::Value;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The pause before a log is read again: doubled each time, as long as nothing new arrives.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long an open log may be silent after its pod has ended, and after the pod was deleted.
const ENDED_SILENCE_MAX: Duration = Duration::from_secs(30);
const GONE_SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long the log of an ended pod is asked for. Its machine is held for it, and costs money.
const UNREAD_MAX: Duration = Duration::from_secs(600);

/// Where a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing of it has run.
    Waiting,
    Running,
    Ended,
    /// The object was deleted.
    Gone,
}

/// A pod whose output is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobPod {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub jobset: String,
    /// The name of the ManagedJob.
    pub job: String,
    part: Part,
    rank: String,
}

impl JobPod {
    /// `None`: it is no pod of a managed job.
    pub fn of(pod: &Value) -> Option<(Self, State)> {
        let label = |name: &str| object::label(pod, name);
        let number = |name: &str| label(name).and_then(|text| text.parse().ok());
        let job = label(keys::MANAGED_JOB)?.to_owned();
        let (task, attempt) = (number(keys::TASK).unwrap_or(0), number(keys::ATTEMPT).unwrap_or(1));
        let stage = label(keys::STAGE).and_then(Stage::parse).unwrap_or(Stage::Run);
        let rank = label(REPLICATED_JOB_NAME).filter(|rank| is_plain(rank)).unwrap_or("-");
        let uid = Some(object::uid(pod)).filter(|uid| is_plain(uid))?;
        let state = match object::text(&pod["status"], "phase") {
            "Running" => State::Running,
            "Succeeded" | "Failed" => State::Ended,
            _ => State::Waiting,
        };
        let found = Self {
            uid: uid.to_owned(),
            namespace: object::meta(pod, "namespace").to_owned(),
            name: object::meta(pod, "name").to_owned(),
            jobset: label(JOBSET_NAME).unwrap_or_default().to_owned(),
            job,
            part: Part { task, attempt, stage },
            rank: rank.to_owned(),
        };
        Some((found, state))
    }

    /// The uid of its job. `None`: there is no such job.
    async fn job_uid(&self, client: &Client, outputs: &Outputs) -> Result<Option<String>, String> {
        let key = Key::new(&self.namespace, &self.job);
        if let Some(uid) = blocking(outputs, move |outputs| Ok(outputs.uid(&key))).await.map_err(text)? {
            return Ok(Some(uid));
        }
        let Some(job) = managed_job(client, &self.namespace, &self.job).await.map_err(|status| status.message)? else {
            return Ok(None);
        };
        let uid = job.metadata.uid.clone();
        blocking(outputs, move |outputs| Ok(outputs.saw_job(&job))).await.map_err(text)?;
        Ok(uid)
    }

    fn log_path(&self, since: &str, follow: bool) -> String {
        let Self { namespace, name, .. } = self;
        let since = if since.is_empty() { String::new() } else { format!("&sinceTime={since}") };
        format!("/api/v1/namespaces/{namespace}/pods/{name}/log?timestamps=true&follow={follow}{since}")
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}

/// Calls a function that waits for the disk.
async fn blocking<T: Send + 'static>(
    outputs: &Outputs,
    work: impl FnOnce(&Outputs) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let outputs = outputs.clone();
    tokio::task::spawn_blocking(move || work(&outputs)).await?
}

/// Keeps the output of a pod to its end.
pub(super) async fn keep(client: Client, outputs: Outputs, pod: JobPod, mut state: watch::Receiver<State>) {
    let mut pause = PAUSE_MIN;
    loop {
        match begin(&client, &outputs, &pod).await {
            Ok(Some(writer)) => {
                let reading = Reading { client, outputs: outputs.clone(), pod: pod.clone(), writer: Arc::new(writer) };
                reading.to_end(&mut state).await;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(pod = pod.name, error, "the output of a pod cannot be kept; trying again");
                if *state.borrow() != State::Gone {
                    tokio::time::sleep(pause).await;
                    pause = longer(pause);
                    continue;
                }
            }
        }
        outputs.saw_pod(&pod.uid, Reach::Done);
        return;
    }
}

async fn begin(client: &Client, outputs: &Outputs, pod: &JobPod) -> Result<Option<Writer>, String> {
    let Some(uid) = pod.job_uid(client, outputs).await? else { return Ok(None) };
    let JobPod { part, uid: of, rank, .. } = pod.clone();
    blocking(outputs, move |outputs| outputs.begin(&uid, part, &of, &rank)).await.map_err(text)
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(PAUSE_MAX)
}

/// Until a log is silent for too long.
async fn silence(state: State, since: Instant) {
    let longest = match state {
        State::Waiting | State::Running => return std::future::pending().await,
        State::Ended => ENDED_SILENCE_MAX,
        State::Gone => GONE_SILENCE_MAX,
    };
    tokio::time::sleep(longest.saturating_sub(since.elapsed())).await;
}

/// A pod's log while it is read.
struct Reading {
    client: Client,
    outputs: Outputs,
    pod: JobPod,
    writer: Arc<Writer>,
}

/// What a look at the log brought.
#[derive(Default)]
struct Look {
    /// New lines were kept.
    has_news: bool,
    /// The log was read to its end: if the pod had ended before, nothing more comes.
    is_whole: bool,
    error: Option<String>,
}

impl Look {
    fn failed(error: impl std::fmt::Display) -> Self {
        Self { error: Some(error.to_string()), ..Self::default() }
    }
}

impl Reading {
    async fn to_end(&self, state: &mut watch::Receiver<State>) {
        let mut pause = PAUSE_MIN;
        let mut unread: Option<Instant> = None;
        loop {
            let position = match self.write(|writer| writer.position()).await {
                Ok(Some(position)) => position,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(pod = self.pod.name, %error, "kept output cannot be read; trying again");
                    tokio::time::sleep(PAUSE_MAX).await;
                    continue;
                }
            };
            // looked at before the log: what it has afterwards is all
            let before = *state.borrow_and_update();
            let look = self.look(position, before, state).await;
            self.outputs.saw_pod(&self.pod.uid, if look.error.is_some() { Reach::Cut } else { Reach::Reading });
            if self.writer.is_closed() {
                return;
            }
            let is_over = before == State::Gone || before == State::Ended && look.is_whole && !look.has_news;
            if is_over && self.complete().await {
                return;
            }
            if look.has_news {
                (pause, unread) = (PAUSE_MIN, None);
                if before == State::Ended {
                    continue;
                }
            } else if before == State::Ended && unread.get_or_insert_with(Instant::now).elapsed() > UNREAD_MAX {
                return self.give_up(look.error.as_deref().unwrap_or("lines that were read before are missing")).await;
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = longer(pause),
                Ok(()) = state.changed() => pause = PAUSE_MIN,
            }
        }
    }

    async fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(&Writer) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let writer = self.writer.clone();
        tokio::task::spawn_blocking(move || write(&writer)).await?
    }

    /// Whether the end is on disk.
    async fn complete(&self) -> bool {
        let done = self.write(|writer| writer.complete()).await;
        done.inspect_err(|error| tracing::warn!(pod = self.pod.name, %error, "kept output cannot be completed")).is_ok()
    }

    async fn give_up(&self, error: &str) {
        tracing::warn!(pod = self.pod.name, error, "the output of an ended pod cannot be read; given up");
        let note = format!("--- the rest of the output of {} could not be read: {error} ---", self.pod.rank);
        let _ = self.write(move |writer| writer.note(&note)).await;
        self.complete().await;
    }

    /// Reads the log from the last kept line on, as far as it goes.
    async fn look(&self, kept: Position, before: State, state: &mut watch::Receiver<State>) -> Look {
        let path = self.pod.log_path(&kept.time, before == State::Running);
        let request = match http::Request::get(path).body(Vec::new()) {
            Ok(request) => request,
            Err(error) => return Look::failed(error),
        };
        let stream = match self.client.request_stream(request).await {
            Ok(stream) => stream,
            // nothing of it has run
            Err(kube::Error::Api(status)) if status.code == 400 && before == State::Ended => {
                return Look { is_whole: true, ..Look::default() };
            }
            Err(error) => return Look::failed(error),
        };
        self.outputs.saw_pod(&self.pod.uid, Reach::Reading);
        let (mut lines, mut look) = (Lines::after(kept), Look::default());
        let mut pumped = self.pump(pin!(stream), &mut lines, &mut look, state).await;
        if *state.borrow() == State::Gone {
            let rest = lines.finish().into_iter().collect();
            pumped = self.append(&mut lines, rest, &mut look).await.and(pumped);
        }
        look.is_whole = pumped.is_ok() && lines.is_aligned();
        look.error = pumped.err().map(text);
        look
    }

    /// Keeps the lines of a log until it ends. A log whose pod has ended must not be silent for long.
    async fn pump(
        &self,
        mut log: Pin<&mut (impl AsyncBufRead + Send)>,
        lines: &mut Lines,
        look: &mut Look,
        state: &mut watch::Receiver<State>,
    ) -> io::Result<()> {
        let mut since = Instant::now();
        loop {
            let silence = silence(*state.borrow(), since);
            let bytes = tokio::select! {
                bytes = log.fill_buf() => bytes?,
                () = silence => return Err(io::Error::other("its machine does not answer")),
                Ok(()) = state.changed() => {
                    since = Instant::now();
                    continue;
                }
            };
            if bytes.is_empty() {
                return Ok(());
            }
            let (length, new) = (bytes.len(), lines.take(bytes));
            log.consume_unpin(length);
            self.append(lines, new, look).await?;
            since = Instant::now();
        }
    }

    async fn append(&self, lines: &mut Lines, new: Vec<Line>, look: &mut Look) -> io::Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let gap = lines.take_gap().then(|| {
            format!("--- lines of {} are missing: its machine removed them before they were read ---", self.pod.rank)
        });
        let written = self.write(move |writer| {
            gap.map_or(Ok(()), |gap| writer.note(&gap))?;
            writer.append(&new)
        });
        written.await.inspect_err(|error| tracing::warn!(pod = self.pod.name, %error, "output cannot be kept"))?;
        look.has_news = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_of_managed_jobs_are_known_by_their_labels() {
        let labels = json!({
            keys::MANAGED_JOB: "job-3", keys::TASK: "1", keys::ATTEMPT: "2", keys::STAGE: "setup",
            REPLICATED_JOB_NAME: "worker1", JOBSET_NAME: "c-1",
        });
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u-1", "labels": labels}, "status": {"phase": "Failed"},
        });
        let (found, state) = JobPod::of(&pod).unwrap();
        assert_eq!(state, State::Ended);
        assert_eq!((found.part, found.rank.as_str()), (Part { task: 1, attempt: 2, stage: Stage::Setup }, "worker1"));
        assert_eq!(
            found.log_path("2026-01-01T00:00:00.000000001Z", true),
            "/api/v1/namespaces/n/pods/p/log?timestamps=true&follow=true&sinceTime=2026-01-01T00:00:00.000000001Z"
        );
        let mut other = pod.clone();
        other["metadata"]["uid"] = "../u".into();
        assert!(JobPod::of(&other).is_none());
        assert!(JobPod::of(&json!({"metadata": {"name": "p", "uid": "u"}})).is_none());
    }
}
