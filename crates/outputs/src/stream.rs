//! One stream over the parts of a job's output.
//!
//! A part is followed by the next one when it is complete. If its machines do not answer, it holds up the next one for seconds only. Lines
//! that arrive later are kept, and shown to readers that begin later.

use crate::part::Spot;
use crate::reader::{Reader, Step};
use crate::serve::managed_job;
use crate::store::{JobOutput, Outputs};
use api::sky::keys;
use bytes::Bytes;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long the end of a job waits for output that is still being read.
const ENDING_MAX: Duration = Duration::from_secs(30);
/// The time between two looks at limits of time and at pods.
const LOOK: Duration = Duration::from_millis(500);
/// The same where changes are announced.
const LOOK_IDLE: Duration = Duration::from_secs(30);
/// Lines that arrive within this time are sent together.
const TOGETHER: Duration = Duration::from_millis(20);
/// The line after the last one, if places are asked for.
const END: &[u8] = b".\n";

/// What a client asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// One task; `None`: all.
    pub task: Option<u32>,
    /// Go on until the task or the job has ended.
    pub follow: bool,
    /// Begin with the last lines of what is there.
    pub tail: Option<usize>,
    /// Begin after this place.
    pub from: Option<Spot>,
    /// Put the place after each line before it.
    pub places: bool,
}

/// The job that a stream is of.
#[derive(Clone)]
pub(crate) struct Of {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    pub job: Arc<JobOutput>,
}

/// A stream that has begun.
pub(crate) struct Streaming {
    outputs: Outputs,
    of: Of,
    request: Request,
    reader: Reader,
    changes: watch::Receiver<u64>,
    /// Since when everything is shown and the job has ended.
    ending: Option<Instant>,
    /// All pods were kept to their end before the last look.
    is_settled: bool,
    is_over: bool,
}

impl Streaming {
    pub fn new(outputs: Outputs, of: Of, request: Request) -> Self {
        let (changes, reader) = (of.job.changes(), Reader::new(request));
        Self { outputs, of, request, reader, changes, ending: None, is_settled: false, is_over: false }
    }

    /// The next lines; `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        while !self.is_over {
            self.changes.mark_unchanged();
            match self.step().await {
                Ok(Step::Text(text)) => {
                    (self.ending, self.is_settled) = (None, false);
                    if !text.is_empty() {
                        return Some(text.into());
                    }
                }
                Ok(Step::Facts) => self.read_job().await,
                Ok(Step::Wait { is_timed }) => self.wait(is_timed).await,
                Ok(Step::End) if !self.request.follow || self.is_settled => return self.end(),
                Ok(Step::End) => {
                    self.is_settled = self.settled().await;
                    if !self.is_settled {
                        self.wait(true).await;
                    }
                }
                // the body has begun: the client sees that its end is missing, and asks again
                Err(error) => {
                    tracing::warn!(job = self.of.name, %error, "kept output cannot be read");
                    return None;
                }
            }
        }
        None
    }

    fn end(&mut self) -> Option<Bytes> {
        self.is_over = true;
        self.request.places.then(|| Bytes::from_static(END))
    }

    async fn step(&mut self) -> io::Result<Step> {
        let (outputs, job, mut reader) = (self.outputs.clone(), self.of.job.clone(), self.reader.clone());
        let work = move || {
            let step = reader.step(&outputs, &job);
            (step, reader)
        };
        let (step, reader) = tokio::task::spawn_blocking(work).await?;
        self.reader = reader;
        step
    }

    /// Takes over the present state of the job. Without it, a mark says less.
    async fn read_job(&self) {
        let Ok(Some(job)) = managed_job(&self.of.client, &self.of.namespace, &self.of.name).await else { return };
        let outputs = self.outputs.clone();
        let _ = tokio::task::spawn_blocking(move || outputs.saw_job(&job)).await;
    }

    /// Waits for a change.
    async fn wait(&mut self, is_timed: bool) {
        let longest = if is_timed { LOOK } else { LOOK_IDLE };
        tokio::select! {
            _ = self.changes.changed() => tokio::time::sleep(TOGETHER).await,
            () = tokio::time::sleep(longest) => {}
        }
    }

    /// Whether the output of all pods that began is kept to its end.
    async fn settled(&mut self) -> bool {
        let since = *self.ending.get_or_insert_with(Instant::now);
        if self.of.job.is_closed() || since.elapsed() > ENDING_MAX {
            return true;
        }
        let task = self.request.task.map(|task| format!(",{}={task}", keys::TASK)).unwrap_or_default();
        let wanted = ListParams::default().labels(&format!("{}={}{task}", keys::MANAGED_JOB, self.of.name));
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
        let pods: Api<DynamicObject> = Api::namespaced_with(self.of.client.clone(), &self.of.namespace, &kind);
        let Ok(listed) = pods.list(&wanted).await else { return false };
        let mut begun = listed.iter().filter(|pod| pod.data["status"]["phase"] != "Pending");
        begun.all(|pod| self.outputs.is_done(&pod.uid().unwrap_or_default()))
    }
}
