//! The routes, and the state that they share.

use crate::guard::{HALF, HostNames, guard};
use crate::index::Index;
use crate::kept::KeptFile;
use crate::problem::{Problem, Reason};
use crate::sessions::{Accepted, BearerToken, Session, Sessions};
use crate::{actions, assets, job, jobs, logs, series, sheets, sign_in, submit, whole_log};
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use client::{ApiServer, ClientError, Cluster};
use http::header::COOKIE;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Bytes of a request's body.
const BODY_MAX: usize = 2 << 20;

/// The settings of a dashboard.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `HOST:PORT`, the first for messages.
    pub names: HostNames,
    /// Whether browsers reach it by HTTPS.
    pub is_secure: bool,
    /// The port that browsers use: cookies of several dashboards on one host must not replace each other.
    pub port: u16,
    /// The API server, which is asked as each user.
    pub server: ApiServer,
    /// The administrator of a control plane that this dashboard is a part of.
    pub own: Option<Own>,
}

/// An administrator whose sessions outlive a restart.
#[derive(Clone, Debug)]
pub struct Own {
    /// As the API server calls them.
    pub user: String,
    pub token: BearerToken,
    /// Where their sessions are kept.
    pub file: PathBuf,
}

impl Settings {
    /// The name of the cookie of a session.
    fn cookie(&self) -> String {
        match self.is_secure {
            // a browser keeps what begins so for this host, and for HTTPS
            true => "__Host-trainyard".to_owned(),
            false => format!("trainyard-{}", self.port),
        }
    }
}

/// What all requests share.
pub(crate) struct App {
    pub settings: Settings,
    pub sessions: Sessions,
    pub index: Index,
    pub downloads: whole_log::Downloads,
}

/// A dashboard.
#[derive(Clone)]
pub struct Dashboard(Arc<App>);

impl Dashboard {
    /// Errors: `Kubeconfig`, for an API server whose address or certificate is none.
    pub async fn new(settings: Settings, index: Index) -> Result<Self, ClientError> {
        let sessions = match &settings.own {
            None => Sessions::default(),
            Some(own) => {
                let cluster = Cluster::of_token(&settings.server, own.token.exposed()).await?;
                let own_user = Accepted { user: own.user.clone(), cluster, is_own: true };
                Sessions::restored(KeptFile::new(own.file.clone(), &own.token), &own_user, Instant::now())
            }
        };
        Ok(Self(Arc::new(App { settings, sessions, index, downloads: whole_log::Downloads::default() })))
    }

    fn router(&self) -> Router {
        let app = self.0.clone();
        Router::new()
            .route("/api/codes", post(sign_in::code))
            .route("/api/session", get(sign_in::who).post(sign_in::begin).delete(sign_in::end))
            .route("/api/jobs", get(jobs::list))
            .route("/api/jobs/live", get(jobs::live))
            .route("/api/jobs/{kind}/{namespace}/{name}", get(job::page))
            .route("/api/jobs/{kind}/{namespace}/{name}/logs", get(logs::tail))
            .route("/api/jobs/{kind}/{namespace}/{name}/logs/live", get(logs::live))
            .route("/api/sheets/{topic}", get(sheets::list))
            .route("/api/sheets/{topic}/{namespace}/{name}", get(sheets::one))
            .route("/api/jobs/{kind}/{namespace}/{name}/logs/search", get(whole_log::search))
            .route("/api/jobs/{kind}/{namespace}/{name}/logs/download", post(whole_log::prepare))
            .route("/api/downloads/{code}", get(whole_log::download))
            .route("/api/jobs/{kind}/{namespace}/{name}/series", get(series::series))
            .route("/api/submit", get(submit::form).post(submit::submit))
            .route("/api/actions", post(actions::act))
            .route("/api/{*rest}", any(async || Problem::not_found("there is nothing at this address")))
            .fallback(get(assets::serve))
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .layer(from_fn_with_state(app.clone(), guard))
            .with_state(app)
    }

    /// Answers requests until `stop` is cancelled.
    ///
    /// Errors: the listener fails.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) -> std::io::Result<()> {
        let serving = axum::serve(listener, self.router());
        tokio::select! {
            done = serving => done,
            // pages come back by themselves: streams that go on for ever are not waited for
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// The values of a cookie. There may be several of one name, for other paths.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(move |(of, _)| *of == name).map(|(_, value)| value)
}

impl App {
    pub fn session_of(&self, headers: &HeaderMap) -> Result<Arc<Session>, Problem> {
        let half = headers.get(HALF).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let name = self.settings.cookie();
        let found = cookies(headers, &name).find_map(|cookie| self.sessions.find(cookie, half, Instant::now()));
        found.ok_or_else(Problem::signed_out)
    }

    /// Ends the session that a request names.
    pub fn end_session(&self, headers: &HeaderMap) {
        let name = self.settings.cookie();
        cookies(headers, &name).for_each(|cookie| self.sessions.end(cookie));
    }

    /// The header that gives a browser its cookie; with an empty value, that takes it away.
    pub fn set_cookie(&self, value: &str) -> String {
        let secure = if self.settings.is_secure { "; Secure" } else { "" };
        let ends = if value.is_empty() { "; Max-Age=0" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}", self.settings.cookie())
    }
}

/// Somebody who is signed in: without both halves of a session's name a request ends here.
pub(crate) struct SignedIn(pub Arc<Session>);

impl FromRequestParts<Arc<App>> for SignedIn {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        app.session_of(&parts.headers).map(Self)
    }
}

/// The parameters of an address, in their order.
pub(crate) struct Parameters(pub Vec<(String, String)>);

impl FromRequestParts<Arc<App>> for Parameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let query = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, Reason::BadRequest, format!("the address cannot be read: {error}"))
        })
    }
}
