//! The log of a run that is read once: from the server's history, or from its pod's node.

use crate::bytes::{Piece, Pieces as Bytes};
use crate::history::{self, Job, RunOf, Window};
use crate::reader::whole_second;
use client::codes::ErrorCode;
use client::{ClientError, Cluster, Kind};
use futures::{AsyncBufRead, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use view::lines::{Drawn, Line, Show};
use view::marks::Pieces;
use view::runs::Run;

/// Runs that are read at the same time.
const AT_ONCE: usize = 8;
/// How long a node may take to send the end of a log.
const READ_MAX: Duration = Duration::from_secs(10);

/// Why a log could not be read.
#[derive(Debug)]
pub enum Unread {
    Api(Box<kube::core::Status>),
    Other(ClientError),
}

impl Unread {
    /// As a sentence about the pod.
    pub fn told(&self, pod: &str) -> String {
        match self {
            Self::Api(status) => format!("no log of pod {pod}: {}", status.message.trim()),
            Self::Other(error) => format!("no log of pod {pod}: {error}"),
        }
    }
}

impl From<kube::Error> for Unread {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Api(status),
            error => Self::Other(error.into()),
        }
    }
}

/// The lines of a run, each beginning with its time and a blank.
///
/// Errors: the API server does not have it, or the pod's node does not answer.
pub async fn open(
    cluster: &Cluster,
    job: Job<'_>,
    run: &Run,
    window: Window,
) -> Result<Pin<Box<dyn AsyncBufRead + Send>>, Unread> {
    if run.kept {
        let attempt = u32::try_from(run.restarts).unwrap_or(0);
        let run = RunOf { pod: &run.pod, container: &run.container, attempt };
        return Ok(Box::pin(history::open(cluster, job, run, window, false).await?));
    }
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
    let pod = cluster.find(Kind::Pod, &run.source.pod).await.map_err(Unread::Other)?.unwrap_or_default();
    let mut statuses = view::runs::statuses(&pod);
    let now =
        statuses.find(|status| status["name"] == *run.container).and_then(|status| status["restartCount"].as_i64());
    let parameters = LogParams {
        container: Some(run.container.clone()),
        previous: now.is_some_and(|now| now > run.restarts),
        timestamps: true,
        tail_lines: window.tail,
        since_time: window.since.map(whole_second),
        ..LogParams::default()
    };
    Ok(Box::pin(api.log_stream(&run.source.pod, &parameters).await?))
}

/// A line of a run.
pub fn line(run: &Run, time: &str, text: String) -> Line {
    Line { source: Arc::clone(&run.source), time: time.to_owned(), text, folded: 0, drawn: Drawn::Once }
}

/// The last lines of several runs, merged by time.
#[derive(Debug, Default)]
pub struct Tail {
    pub lines: Vec<Line>,
    /// Whether there are earlier ones.
    pub has_more: bool,
    /// Logs that could not be read, and why.
    pub troubles: Vec<String>,
}

/// The last lines of these runs that `show` asks for, `most` at most.
pub async fn tail(cluster: &Cluster, job: Job<'_>, runs: &[&Run], show: &Show, most: usize) -> Tail {
    let reads: Vec<_> = runs.iter().map(|run| end_of(cluster, job, run, show, most)).collect();
    let mut tail = Tail::default();
    let mut reads = futures::stream::iter(reads).buffered(AT_ONCE);
    while let Some(read) = reads.next().await {
        match read {
            Ok((lines, has_more)) => {
                tail.lines.extend(lines);
                tail.has_more |= has_more;
            }
            Err(trouble) => tail.troubles.push(trouble),
        }
    }
    // runs are in order; lines without a time stay with those before them
    tail.lines.sort_by(|a, b| a.time.cmp(&b.time));
    if let Some(surplus) = tail.lines.len().checked_sub(most).filter(|surplus| *surplus > 0) {
        tail.lines.drain(..surplus);
        tail.has_more = true;
    }
    tail
}

/// The same of one run; the error is a sentence.
async fn end_of(
    cluster: &Cluster,
    job: Job<'_>,
    run: &Run,
    show: &Show,
    most: usize,
) -> Result<(Vec<Line>, bool), String> {
    let pod = &run.source.pod;
    match tokio::time::timeout(READ_MAX, tail_of(cluster, job, run, show, most)).await {
        Ok(Ok(lines)) => Ok(lines),
        Ok(Err(error)) => Err(error.told(pod)),
        Err(_late) => Err(format!("no log of pod {pod}: its node did not answer within {} s", READ_MAX.as_secs())),
    }
}

/// The last lines of a run, and whether there may be more.
async fn tail_of(
    cluster: &Cluster,
    job: Job<'_>,
    run: &Run,
    show: &Show,
    most: usize,
) -> Result<(Vec<Line>, bool), Unread> {
    // what is left out of the lines afterwards must not be counted before
    let is_filtered = show.rank.is_some() || show.grep.is_some();
    let asked = i64::try_from(most).ok().filter(|_| !is_filtered);
    let mut read = Bytes::new(open(cluster, job, run, Window { tail: asked, since: show.since }).await?);
    let mut pieces = Pieces::default();
    let mut lines: Vec<Line> = Vec::new();
    let (mut count, mut last_time) = (0_usize, String::new());
    let add = |lines: &mut Vec<Line>, line: Line| {
        if show.wants(&line) {
            lines.push(line);
        }
        if lines.len() >= most.saturating_mul(2).max(1) {
            lines.drain(..lines.len().saturating_sub(most));
        }
    };
    loop {
        let next = read.next().await.map_err(|error| {
            let message = format!("the log of pod {} broke off: {error}", run.source.pod);
            Unread::Other(ClientError::Api(ErrorCode::StreamLost, message))
        })?;
        let Some(piece) = next else { break };
        let Piece::Line { text: raw, was_redrawn } = piece else { continue };
        count = count.saturating_add(1);
        let (time, text) = history::stamped(&raw);
        time.clone_into(&mut last_time);
        let drawn = if was_redrawn { Drawn::Again } else { Drawn::Once };
        let text = run.source.whole(&mut pieces, text);
        add(&mut lines, Line { drawn, ..line(run, time, text) });
    }
    for text in pieces.rest() {
        add(&mut lines, line(run, &last_time, text));
    }
    let has_more =
        lines.len() > most || asked.is_some_and(|asked| usize::try_from(asked).is_ok_and(|asked| count >= asked));
    lines.drain(..lines.len().saturating_sub(most));
    Ok((lines, has_more))
}
