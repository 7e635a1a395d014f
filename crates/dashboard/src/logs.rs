//! The log of a job: the last lines of all ranks and attempts merged by time, and new lines as they come.

use crate::job::{Address, Named};
use crate::problem::Problem;
use crate::row::Kind;
use crate::server::{Parameters, SignedIn};
use api::object;
use axum::Json;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use facts::follow::{Audience, follow_from};
use facts::history::{self, Job, Past};
use facts::{pods_of_job, run_log};
use futures::{Stream, StreamExt};
use serde::Serialize;
use serde_json::Value;
use std::convert::Infallible;
use tokio::sync::mpsc;
use view::lines::{Line, Show};
use view::runs::{Run, Runs, Which};
use view::state::Phase;

/// Lines that a request gets, unless it asks for fewer or more.
const LINES: usize = 1000;
const LINES_MAX: usize = 10_000;
/// Characters of a line; the page offers the rest as a download.
const LINE_MAX: usize = 20_000;
/// Lines that wait for a slow page.
const IN_FLIGHT: usize = 1024;
/// Lines of each rank that a stream begins with: what was written since the page has read the end of the log is among them, and the page knows
/// the others.
const OVERLAP: i64 = 200;
/// Lines that are sent together.
const TOGETHER: usize = 256;

/// A line, as a page shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    time: String,
    rank: Option<i64>,
    step: String,
    attempt: i64,
    text: String,
    /// Characters that were left out at its end.
    cut: usize,
}

impl Shown {
    pub fn of(line: &Line) -> Self {
        let (rank, text) = line.source.rank_of(&line.text);
        let mut characters = text.char_indices();
        let (text, cut) = match characters.nth(LINE_MAX) {
            Some((at, _)) => (text.get(..at).unwrap_or(text), characters.count().saturating_add(1)),
            None => (text, 0),
        };
        Self {
            time: line.time.clone(),
            rank,
            step: line.source.step.clone(),
            attempt: line.source.attempt,
            text: text.to_owned(),
            cut,
        }
    }
}

/// The end of a log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    lines: Vec<Shown>,
    /// There are earlier lines.
    has_more: bool,
    /// Logs that could not be read, and why.
    troubles: Vec<String>,
    /// Attempts that have a log.
    attempts: i64,
}

/// Which lines are asked for.
pub(crate) struct Asked {
    pub show: Show,
    which: Which,
    most: usize,
}

impl Asked {
    pub fn parse(parameters: &[(String, String)]) -> Result<Self, Problem> {
        let mut asked = Self { show: Show { all: true, ..Show::default() }, which: Which::All, most: LINES };
        for (name, value) in parameters {
            let bad = |wanted: &str| Problem::bad_request(format!("{name} {value:?} is not {wanted}"));
            match name.as_str() {
                "rank" => asked.show.rank = Some(value.parse().map_err(|_| bad("the number of a rank"))?),
                "step" => asked.show.step = Some(value.clone()),
                "attempt" if value == "all" => asked.which = Which::All,
                "attempt" if value == "last" => asked.which = Which::Last,
                "attempt" => {
                    let number = value.parse().ok().filter(|number| *number > 0);
                    asked.which = Which::Nth(number.ok_or_else(|| bad("all, last, or the number of an attempt"))?);
                }
                "lines" => {
                    let most = value.parse().ok().filter(|most| (1..=LINES_MAX).contains(most));
                    asked.most = most.ok_or_else(|| bad(&format!("a number from 1 to {LINES_MAX}")))?;
                }
                _ => return Err(Problem::bad_request(format!("there is no parameter {name:?}"))),
            }
        }
        Ok(asked)
    }
}

/// The job as its history calls it; `None` for kinds that have no log of their own.
pub(crate) fn job_of(named: &Named) -> Option<Job<'_>> {
    match named.kind {
        Kind::TrainJob => Some(Job::Train(&named.name)),
        Kind::MpiJob => Some(Job::Mpi(&named.name)),
        Kind::JobSet | Kind::OptimizationJob | Kind::ManagedJob => None,
    }
}

/// All runs of a job.
async fn runs(named: &Named, job: Job<'_>) -> Result<Runs, Problem> {
    let past: Option<Past> = history::of(&named.cluster, job).await?;
    Ok(match past {
        Some(past) => Runs::of_past(&past),
        None => {
            let labels = named.kind.of_command().and_then(|kind| pods_of_job(kind, &named.name)).unwrap_or_default();
            Runs::of_pods(&named.cluster.list(client::Kind::Pod, &labels).await?)
        }
    })
}

/// The runs that are asked for.
fn choose<'a>(named: &Named, runs: &'a Runs, asked: &Asked) -> Result<Vec<&'a Run>, Problem> {
    let no_such = |part: view::NoSuch| Problem::not_found(part.to_string());
    asked.show.check(&named.name, &runs.sources()).map_err(no_such)?;
    let wanted = |source: &view::lines::Source| asked.show.wants_pod(source);
    runs.choose(&named.name, asked.which, wanted).map_err(no_such)
}

/// The same, read from the server.
pub(crate) async fn chosen(named: &Named, job: Job<'_>, asked: &Asked) -> Result<Vec<Run>, Problem> {
    let runs = runs(named, job).await?;
    Ok(choose(named, &runs, asked)?.into_iter().cloned().collect())
}

/// The last lines.
pub async fn tail(
    SignedIn(session): SignedIn,
    address: Address,
    Parameters(parameters): Parameters,
) -> Result<Json<Answer>, Problem> {
    let named = Named::of(&session, address)?;
    let asked = Asked::parse(&parameters)?;
    named.object().await?;
    let Some(job) = job_of(&named) else {
        return Ok(Json(Answer { lines: Vec::new(), has_more: false, troubles: Vec::new(), attempts: 0 }));
    };
    let runs = runs(&named, job).await?;
    let chosen = choose(&named, &runs, &asked)?;
    let tail = run_log::tail(&named.cluster, job, &chosen, &asked.show, asked.most).await;
    Ok(Json(Answer {
        lines: tail.lines.iter().map(Shown::of).collect(),
        has_more: tail.has_more,
        troubles: tail.troubles,
        attempts: runs.most(|_| true),
    }))
}

/// What a followed job says.
enum News {
    Line(Shown),
    Note(String),
}

/// Sends what happens to a page; who does not read any more ends it.
struct Sender {
    news: mpsc::Sender<News>,
    /// Lines that were dropped because the page reads too slowly. The next note says how many.
    lost: usize,
}

impl Sender {
    fn send(&mut self, news: News) {
        if self.lost > 0 {
            let text = format!("{} lines came faster than this page reads; reload it to see them", self.lost);
            if self.news.try_send(News::Note(text)).is_ok() {
                self.lost = 0;
            }
        }
        if self.news.try_send(news).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

impl Audience for Sender {
    fn line(&mut self, line: Line) {
        self.send(News::Line(Shown::of(&line)));
    }

    fn pods<'p>(&mut self, _: impl Iterator<Item = &'p Value>) {}

    fn status<'p>(&mut self, _: &Value, _: impl Iterator<Item = &'p Value>) {}

    fn note(&mut self, note: &str) {
        self.send(News::Note(note.to_owned()));
    }

    fn ending(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.note(&text);
        }
    }

    fn finish(&mut self) {}
}

/// New lines from now on, until the job ends.
pub async fn live(
    SignedIn(session): SignedIn,
    address: Address,
    Parameters(parameters): Parameters,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let named = Named::of(&session, address)?;
    let asked = Asked::parse(&parameters)?;
    let job = named.object().await?;
    let Some(of) = job_of(&named).filter(|of| matches!(of, Job::Train(_))) else {
        return Err(Problem::bad_request("only the log of a TrainJob can be followed"));
    };
    let runs = runs(&named, of).await?;
    let is_finished = Phase::of(&job).is_finished();
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let since = object::meta(&job, "creationTimestamp").parse().ok();
    let show = Show { tail: Some(OVERLAP), since, ..asked.show };
    let followed = async move {
        let mut sender = Sender { news: sender, lost: 0 };
        let closed = sender.news.clone();
        tokio::select! {
            done = follow_from(&named.cluster, &named.name, &show, runs, is_finished, &mut sender, |_| {}) => {
                if let Err(error) = done {
                    sender.note(&api::error_chain(&error));
                }
            }
            () = closed.closed() => {}
        }
    };
    tokio::spawn(followed);
    let portions = tokio_stream(receiver).ready_chunks(TOGETHER).flat_map(|news| {
        let mut lines: Vec<Shown> = Vec::new();
        let mut events = Vec::new();
        for one in news {
            match one {
                News::Line(line) => lines.push(line),
                News::Note(note) => events.push(Event::default().event("note").data(note)),
            }
        }
        if !lines.is_empty() {
            let text = serde_json::to_string(&lines).expect("plain data");
            events.insert(0, Event::default().event("lines").data(text));
        }
        futures::stream::iter(events.into_iter().map(Ok))
    });
    let ended = futures::stream::once(async { Ok(Event::default().event("end").data("")) });
    Ok(Sse::new(portions.chain(ended)).keep_alive(KeepAlive::default()))
}

fn tokio_stream(receiver: mpsc::Receiver<News>) -> impl Stream<Item = News> {
    futures::stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|news| (news, receiver)) })
}
