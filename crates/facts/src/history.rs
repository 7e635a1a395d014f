//! Reads the history of a job's pods and their logs (`history.trainyard.dev`), if the server keeps one.

use api::job_history::{self, JobEvents, JobHistory};
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use futures::AsyncBufRead;
use futures::io::AsyncReadExt;
use jiff::Timestamp;
use serde_json::Value;

/// The job that a history is about, by its name.
#[derive(Clone, Copy, Debug)]
pub enum Job<'a> {
    Train(&'a str),
    Mpi(&'a str),
}

impl Job<'_> {
    fn path(self, namespace: &str) -> String {
        match self {
            Self::Train(name) => job_history::path(namespace, job_history::TRAINJOBS, name),
            Self::Mpi(name) => job_history::path(namespace, job_history::MPIJOBS, name),
        }
    }
}

/// All pods that a job has and had, with the runs of their containers; in the order in which they were made.
pub type Past = JobHistory;

/// Which lines of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// Only so many from the end.
    pub tail: Option<i64>,
    /// Only those written at or after this time.
    pub since: Option<Timestamp>,
}

/// A run of a container.
#[derive(Clone, Copy, Debug)]
pub struct RunOf<'a> {
    /// The pod's uid.
    pub pod: &'a str,
    pub container: &'a str,
    /// `Run::attempt`.
    pub attempt: u32,
}

/// The history of a job. `None` where the server keeps none (a cluster), has none of this job, or may not be asked.
pub async fn of(cluster: &Cluster, job: Job<'_>) -> Result<Option<Past>, ClientError> {
    let request = get(job.path(&cluster.namespace));
    match cluster.client.request::<Past>(request).await {
        Ok(past) => Ok(Some(past)),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The events that may be about what has a name. `None` where the server does not look for them (a cluster), or may not be asked.
pub async fn events(cluster: &Cluster, name: &str) -> Result<Option<Vec<Value>>, ClientError> {
    let request = get(job_history::path(&cluster.namespace, job_history::EVENTS, name));
    match cluster.client.request::<JobEvents>(request).await {
        Ok(events) => Ok(Some(events.items)),
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The log of a run, each line beginning with its time and a blank; with `follow` to the run's end.
pub async fn open(
    cluster: &Cluster,
    job: Job<'_>,
    run: RunOf<'_>,
    window: Window,
    follow: bool,
) -> kube::Result<impl AsyncBufRead + use<>> {
    let mut path = format!(
        "{}/{}?pod={}&container={}&attempt={}&timestamps=true&follow={follow}",
        job.path(&cluster.namespace),
        job_history::LOG,
        run.pod,
        run.container,
        run.attempt
    );
    if let Some(lines) = window.tail {
        path += &format!("&tailLines={lines}");
    }
    if let Some(since) = window.since {
        path += &format!("&sinceTime={since}");
    }
    cluster.client.request_stream(get(path)).await
}

/// The lines of a run, with the time of each.
pub async fn lines(
    cluster: &Cluster,
    job: Job<'_>,
    run: RunOf<'_>,
    window: Window,
) -> Result<Vec<(String, String)>, ClientError> {
    let mut bytes = Vec::new();
    let mut stream = std::pin::pin!(open(cluster, job, run, window, false).await?);
    stream
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| ClientError::Api(ErrorCode::StreamLost, format!("a log broke off: {error}")))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(stamped).map(|(time, line)| (time.to_owned(), line.to_owned())).collect())
}

/// A line that begins with its time, in two.
pub fn stamped(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn get(path: String) -> http::Request<Vec<u8>> {
    http::Request::get(path).body(Vec::new()).expect("names of objects fit into a path")
}
