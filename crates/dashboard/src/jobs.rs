//! The table of jobs: a page of it, and the same page again whenever it changes.

use crate::problem::Problem;
use crate::query::{Page, Query};
use crate::reasons;
use crate::row::Kind;
use crate::server::{App, Parameters, SignedIn};
use crate::sessions::Session;
use axum::Json;
use axum::extract::State;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::Stream;
use futures::stream;
use jiff::Timestamp;
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The least time between two pages of a stream: changes in between come together.
const TOGETHER: Duration = Duration::from_millis(400);
/// After so long without a change a page is looked at again: rights end, and states depend on the time.
const LOOK: Duration = Duration::from_secs(10);

/// A page of the table, as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    #[serde(flatten)]
    page: Page,
    /// The server's time, seconds since 1970: ages count from it.
    now: i64,
    /// Kinds that the user may not list here, in words that say what is missing.
    hidden: Vec<String>,
    /// Kinds that are still being read.
    loading: Vec<Kind>,
}

/// What the view shows to this user now.
async fn answer(app: &App, session: &Session, query: &Query) -> Result<Answer, Problem> {
    let kinds: Vec<Kind> = match query.kinds.is_empty() {
        true => Kind::ALL.to_vec(),
        false => query.kinds.iter().copied().collect(),
    };
    let chosen = match query.namespaces.is_empty() {
        true => vec![session.cluster.namespace.clone()],
        false => query.namespaces.clone(),
    };
    let visible = session.rights.visible(&session.cluster, &kinds, &chosen).await?;
    let hidden = visible.hidden.iter().map(|kind| {
        let plural = client::Kind::from(*kind).resource().plural;
        let places = chosen.join(", ");
        format!("you have no right to list {plural} in {places}")
    });
    let hidden = hidden.collect();
    app.index.ready(&kinds).await;
    let listed = app.index.listed();
    let loading = kinds.iter().copied().filter(|kind| !listed.contains(kind)).collect();
    let (index, query) = (app.index.clone(), query.clone());
    let now = Timestamp::now();
    // a hundred thousand rows take a while
    let page = tokio::task::spawn_blocking(move || {
        query.page(index.rows(now, |kind, namespace| visible.shows(kind, namespace)))
    });
    let mut page = page.await.unwrap_or_default();
    session.reasons.fill(&mut page.rows);
    Ok(Answer { page, now: now.as_second(), hidden, loading })
}

/// A page of the table.
pub async fn list(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    Parameters(parameters): Parameters,
) -> Result<Json<Answer>, Problem> {
    let query = Query::parse(&parameters)?;
    Ok(Json(answer(&app, &session, &query).await?))
}

/// A stream of a page: as it is, then again whenever it changes.
struct Live {
    app: Arc<App>,
    session: Arc<Session>,
    query: Query,
    changes: watch::Receiver<u64>,
    /// What was sent last.
    sent: Option<Answer>,
    is_over: bool,
}

impl Live {
    /// The next page that differs from the last one; `None` once the session is over.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if self.is_over || self.session.is_over() {
                return None;
            }
            self.changes.mark_unchanged();
            let answer = match answer(&self.app, &self.session, &self.query).await {
                Ok(answer) => answer,
                Err(problem) => {
                    // the page then opens a new stream, and the answer to that request says what is wrong
                    self.is_over = true;
                    return Some((Ok(Event::default().event("problem").data(problem.message)), self));
                }
            };
            let is_news = self.sent.as_ref().is_none_or(|sent| Answer { now: sent.now, ..answer.clone() } != *sent);
            if is_news {
                self.sent = Some(answer.clone());
                let text = serde_json::to_string(&answer).expect("plain data");
                return Some((Ok(Event::default().event("page").data(text)), self));
            }
            if reasons::find(&self.session, &answer.page.rows).await {
                continue;
            }
            tokio::select! {
                changed = self.changes.changed() => {
                    changed.ok()?;
                    tokio::time::sleep(TOGETHER).await;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// The same page, live.
pub async fn live(
    State(app): State<Arc<App>>,
    SignedIn(session): SignedIn,
    Parameters(parameters): Parameters,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let query = Query::parse(&parameters)?;
    let changes = app.index.changes();
    let live = Live { app, session, query, changes, sent: None, is_over: false };
    Ok(Sse::new(stream::unfold(live, Live::next)).keep_alive(KeepAlive::default()))
}
