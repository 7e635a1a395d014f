//! The whole log of a job: a search in it, and a download.
//!
//! Both read the runs as a stream, so a log of any length needs no memory. A download is a link that a browser opens by itself, without the
//! second half of its session: the page asks for a code first, which is good once, for a minute, and for this log alone.

use crate::job::{Address, Named};
use crate::logs::{Asked, Shown, chosen, job_of};
use crate::problem::Problem;
use crate::server::{App, Parameters, SignedIn};
use crate::sessions::{Secret, Session};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use facts::merged::MergedLog;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE};
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use view::lines::Line;

/// How long a download may wait to be opened.
const OPENED_WITHIN: Duration = Duration::from_secs(60);
/// Downloads that wait.
const WAITING_MAX: usize = 100;
/// Bytes of a portion, before they are compressed.
const PORTION: usize = 1 << 20;
/// Portions that wait for a slow browser.
const IN_FLIGHT: usize = 4;
/// Bytes of an expression, and of the program that it becomes.
const EXPRESSION_MAX: usize = 1000;
const PROGRAM_MAX: usize = 1 << 20;
/// Lines around a line that is found.
const AROUND: usize = 3;
/// Lines that are found before a search ends.
const FOUND_MAX: usize = 200;

/// A log that somebody may download.
pub(crate) struct Waiting {
    session: Arc<Session>,
    named: Named,
    asked: Asked,
    until: Instant,
}

/// Downloads that wait to be opened, by code.
#[derive(Default)]
pub(crate) struct Downloads(Mutex<HashMap<String, Waiting>>);

impl Downloads {
    fn add(&self, code: String, waiting: Waiting, now: Instant) -> Result<(), Problem> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, waiting| waiting.until > now);
        if all.len() >= WAITING_MAX {
            return Err(Problem::bad_request("too many downloads wait to be opened; try again in a minute"));
        }
        all.insert(code, waiting);
        Ok(())
    }

    fn take(&self, code: &str, now: Instant) -> Option<Waiting> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(code).filter(|waiting| waiting.until > now && !waiting.session.is_over())
    }
}

/// Where a download is.
#[derive(Debug, Serialize)]
pub(crate) struct Ready {
    address: String,
}

/// Prepares a download.
pub async fn prepare(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    address: Address,
    Parameters(parameters): Parameters,
) -> Result<Json<Ready>, Problem> {
    let named = Named::of(&session, address)?;
    let asked = Asked::parse(&parameters)?;
    named.object().await?;
    if job_of(&named).is_none() {
        return Err(Problem::bad_request("jobs of this kind have no log of their own"));
    }
    let code = Secret::new()?.shown().to_owned();
    let address = format!("/api/downloads/{code}");
    let now = Instant::now();
    let until = api::time::after(now, OPENED_WITHIN);
    app.downloads.add(code, Waiting { session, named, asked, until }, now)?;
    Ok(Json(Ready { address }))
}

/// Sends all lines, compressed with gzip, each with its time and its rank.
pub async fn download(State(app): State<Arc<App>>, Path(code): Path<String>) -> Result<Response, Problem> {
    let waiting = app.downloads.take(&code, Instant::now()).ok_or_else(|| {
        Problem::not_found(
            "this download was opened before, or is older than a minute; start it again on the job's page",
        )
    })?;
    let file = format!("attachment; filename=\"{}.log.gz\"", waiting.named.name);
    let file = HeaderValue::from_str(&file).map_err(|_| Problem::not_found("there is no such job"))?;
    let mut log = opened(&waiting.named, &waiting.asked).await?;
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(async move {
        let mut portions = Portions::default();
        while let Some(line) = log.next().await {
            if let Some(portion) = portions.add(&told(&line))
                && sender.send(portion).await.is_err()
            {
                return; // the browser has gone
            }
        }
        // a log that broke off must not look whole
        for trouble in std::mem::take(&mut log.troubles) {
            portions.add(&format!("[trainyard] {trouble}\n"));
        }
        let _gone = sender.send(portions.end()).await;
    });
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|portion: std::io::Result<Vec<u8>>| (portion, receiver))
    });
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
    headers.insert(CONTENT_DISPOSITION, file);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn opened(named: &Named, asked: &Asked) -> Result<MergedLog, Problem> {
    let Some(job) = job_of(named) else {
        return Err(Problem::bad_request("jobs of this kind have no log of their own"));
    };
    let runs = chosen(named, job, asked).await?;
    let runs: Vec<_> = runs.iter().collect();
    Ok(MergedLog::open(&named.cluster, job, &runs, asked.show.clone()).await)
}

/// A line of the downloaded file.
fn told(line: &Line) -> String {
    let (rank, text) = line.source.rank_of(&line.text);
    let who = rank.map_or_else(|| line.source.step.clone(), |rank| format!("rank {rank}"));
    format!("{} {who}: {text}\n", line.time)
}

/// Text in compressed portions.
struct Portions {
    encoder: GzEncoder<Vec<u8>>,
    /// Bytes since the last portion.
    since: usize,
}

impl Default for Portions {
    fn default() -> Self {
        Self { encoder: GzEncoder::new(Vec::new(), Compression::fast()), since: 0 }
    }
}

impl Portions {
    /// Adds text; returns a portion once there is enough of it.
    fn add(&mut self, text: &str) -> Option<std::io::Result<Vec<u8>>> {
        if let Err(error) = self.encoder.write_all(text.as_bytes()) {
            return Some(Err(error));
        }
        self.since = self.since.saturating_add(text.len());
        (self.since >= PORTION).then(|| {
            self.since = 0;
            Ok(std::mem::take(self.encoder.get_mut()))
        })
    }

    fn end(self) -> std::io::Result<Vec<u8>> {
        self.encoder.finish()
    }
}

/// A line that was found, with those around it.
#[derive(Debug, Serialize)]
struct Passage {
    /// Its number in the merged log, from 1.
    number: u64,
    /// Its place in `lines`.
    at: usize,
    lines: Vec<Shown>,
}

/// What a search has found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    passages: Vec<Passage>,
    /// Lines that were searched.
    searched: u64,
    /// Whether the search ended because so many lines were found.
    has_more: bool,
    troubles: Vec<String>,
}

/// Searches all lines for a regular expression, in any case. Each line that is found comes with the lines around it.
pub async fn search(
    SignedIn(session): SignedIn,
    address: Address,
    Parameters(mut parameters): Parameters,
) -> Result<Json<Found>, Problem> {
    let named = Named::of(&session, address)?;
    let at = parameters.iter().position(|(name, _)| name == "pattern");
    let pattern = at.map(|at| parameters.remove(at).1).unwrap_or_default();
    let expression = expression(&pattern)?;
    let asked = Asked::parse(&parameters)?;
    named.object().await?;
    let mut log = opened(&named, &asked).await?;
    let mut search = Search::default();
    while let Some(line) = log.next().await {
        if search.see(line, &expression) {
            break;
        }
    }
    Ok(Json(Found {
        passages: search.passages.into_iter().map(Passage::from).collect(),
        searched: search.number,
        has_more: search.is_over,
        troubles: log.troubles,
    }))
}

fn expression(pattern: &str) -> Result<Regex, Problem> {
    if pattern.is_empty() || pattern.len() > EXPRESSION_MAX {
        return Err(Problem::bad_request(format!(
            "the expression to search for has {} bytes; it must have 1 to {EXPRESSION_MAX}",
            pattern.len()
        )));
    }
    let built = RegexBuilder::new(pattern).case_insensitive(true).size_limit(PROGRAM_MAX).build();
    built.map_err(|error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Problem::bad_request(format!("{pattern:?} is not a regular expression: {why}"))
    })
}

/// A search on its way.
#[derive(Default)]
struct Search {
    number: u64,
    before: VecDeque<Line>,
    passages: Vec<Around>,
    is_over: bool,
}

struct Around {
    number: u64,
    at: usize,
    lines: Vec<Line>,
}

impl From<Around> for Passage {
    fn from(Around { number, at, lines }: Around) -> Self {
        Self { number, at, lines: lines.iter().map(Shown::of).collect() }
    }
}

impl Search {
    /// Takes the next line; `true`: enough was found, with what is around it.
    fn see(&mut self, line: Line, expression: &Regex) -> bool {
        self.number = self.number.saturating_add(1);
        let wants = |passage: &&mut Around| passage.lines.len() <= passage.at.saturating_add(AROUND);
        // only the latest ones still want lines
        let open: Vec<&mut Around> = self.passages.iter_mut().rev().take(AROUND).filter(wants).collect();
        let is_open = !open.is_empty();
        open.into_iter().for_each(|passage| passage.lines.push(line.clone()));
        if self.is_over {
            return !is_open;
        }
        let (_, text) = line.source.rank_of(&line.text);
        if expression.is_match(text) {
            let mut lines: Vec<Line> = self.before.iter().cloned().collect();
            let at = lines.len();
            lines.push(line.clone());
            self.passages.push(Around { number: self.number, at, lines });
            self.is_over = self.passages.len() >= FOUND_MAX;
        }
        self.before.push_back(line);
        if self.before.len() > AROUND {
            self.before.pop_front();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use view::lines::{Drawn, Source};

    fn lines(count: usize) -> impl Iterator<Item = Line> {
        let source = Arc::new(Source::of(&serde_json::json!({"metadata": {"name": "p"}}), 1));
        (1..=count).map(move |number| Line {
            source: Arc::clone(&source),
            time: String::new(),
            text: format!("line {number}"),
            folded: 0,
            drawn: Drawn::Once,
        })
    }

    fn found(count: usize, pattern: &str) -> Search {
        let expression = expression(pattern).unwrap();
        let mut search = Search::default();
        for line in lines(count) {
            if search.see(line, &expression) {
                break;
            }
        }
        search
    }

    fn texts(around: &Around) -> Vec<&str> {
        around.lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn a_line_is_found_with_what_is_around_it() {
        let search = found(20, "LINE 9$|line 1$|line 20");
        let [first, middle, last] = search.passages.as_slice() else { panic!("{}", search.passages.len()) };
        assert_eq!((first.number, first.at, texts(first)), (1, 0, vec!["line 1", "line 2", "line 3", "line 4"]));
        assert_eq!((middle.number, middle.at), (9, 3));
        assert_eq!(texts(middle), ["line 6", "line 7", "line 8", "line 9", "line 10", "line 11", "line 12"]);
        assert_eq!((last.number, texts(last)), (20, vec!["line 17", "line 18", "line 19", "line 20"]));
        assert!(!search.is_over);
    }

    #[test]
    fn a_search_ends_when_enough_was_found() {
        let search = found(10_000, "line");
        assert_eq!((search.passages.len(), search.is_over), (FOUND_MAX, true));
        assert_eq!(search.passages.last().unwrap().lines.len(), 2 * AROUND + 1);
        assert_eq!(search.number as usize, FOUND_MAX + AROUND + 1);
    }

    #[test]
    fn expressions_have_bounds() {
        for (pattern, wanted) in [
            ("", "has 0 bytes"),
            ("(", "is not a regular expression"),
            (&*"x".repeat(1001), "it must have 1 to 1000"),
            ("(a{1000}){1000}", "is not a regular expression"),
        ] {
            let message = expression(pattern).unwrap_err().message;
            assert!(message.contains(wanted), "{message}");
        }
    }

    #[test]
    fn portions_are_one_file() {
        let mut portions = Portions::default();
        let (mut file, mut text) = (Vec::new(), String::new());
        for number in 0..200_000 {
            let line = format!("line {number}\n");
            text.push_str(&line);
            file.extend(portions.add(&line).transpose().unwrap().unwrap_or_default());
        }
        assert!(!file.is_empty(), "it comes in portions");
        file.extend(portions.end().unwrap());
        let mut read = String::new();
        flate2::read::GzDecoder::new(file.as_slice()).read_to_string(&mut read).unwrap();
        assert!(read == text);
    }
}
