//! Signing in and out: by a code that `trainyard dashboard` asked for, or by a token.

use crate::problem::{Problem, Reason};
use crate::rights;
use crate::server::{App, SignedIn};
use crate::sessions::{Accepted, BearerToken, CODE_LASTS};
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::{AppendHeaders, IntoResponse};
use client::{ClientError, Cluster};
use http::header::{AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a token.
const TOKEN_MAX: usize = 16 << 10;

/// With what somebody signs in.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Credential {
    Code(String),
    Token(String),
}

/// The user of a token, as the API server knows them.
///
/// Errors: `SignedOut`, if the API server does not accept it.
async fn accepted(app: &App, token: BearerToken) -> Result<Accepted, Problem> {
    if token.exposed().is_empty() || token.exposed().len() > TOKEN_MAX || !token.exposed().is_ascii() {
        return Err(refused());
    }
    let cluster = Cluster::of_token(&app.settings.server, token.exposed()).await?;
    match rights::who(&cluster).await {
        Ok(user) => {
            let is_own = app.settings.own.as_ref().is_some_and(|own| own.token.exposed() == token.exposed());
            Ok(Accepted { user, cluster, is_own })
        }
        Err(ClientError::Unauthorized(_) | ClientError::Forbidden { .. }) => Err(refused()),
        Err(error) => Err(error.into()),
    }
}

fn refused() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        Reason::SignedOut,
        "the API server does not accept this token; on OpenShift, `oc whoami -t` prints yours",
    )
}

/// A code for the user whose token the request carries.
pub async fn code(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Json<Value>, Problem> {
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = header.strip_prefix("Bearer ").ok_or_else(refused)?;
    let accepted = accepted(&app, BearerToken::new(token.trim().to_owned())).await?;
    let code = app.sessions.code(accepted, Instant::now())?;
    Ok(Json(json!({"code": code.shown(), "expiresInSeconds": CODE_LASTS.as_secs()})))
}

/// Begins a session. The answer sets the cookie, and has the half that the page keeps.
pub async fn begin(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    credential: Result<Json<Credential>, JsonRejection>,
) -> Result<impl IntoResponse, Problem> {
    let Json(credential) = credential.map_err(|error| Problem::bad_request(error.body_text()))?;
    let accepted = match credential {
        Credential::Token(token) => accepted(&app, BearerToken::new(token.trim().to_owned())).await?,
        Credential::Code(code) => app.sessions.redeem(&code, Instant::now()).ok_or_else(|| {
            Problem::new(
                StatusCode::UNAUTHORIZED,
                Reason::CodeUsed,
                "this link was used before or is older than a minute; run `trainyard dashboard` for a new one",
            )
        })?,
    };
    // who signs in again leaves no session behind
    app.end_session(&headers);
    let user = accepted.user.clone();
    let halves = app.sessions.begin(accepted, Instant::now())?;
    let cookie = app.set_cookie(halves.cookie.shown());
    Ok((AppendHeaders([(SET_COOKIE, cookie)]), Json(json!({"user": user, "half": halves.header.shown()}))))
}

/// Who is signed in.
pub async fn who(State(app): State<Arc<App>>, SignedIn(session): SignedIn) -> Json<Value> {
    Json(json!({
        "user": session.user,
        "server": app.settings.server.url,
        "isLocal": app.settings.server.home.is_some(),
        "version": env!("CARGO_PKG_VERSION"),
        "namespace": session.cluster.namespace,
    }))
}

/// Ends the session.
pub async fn end(State(app): State<Arc<App>>, SignedIn(_): SignedIn, headers: HeaderMap) -> impl IntoResponse {
    app.end_session(&headers);
    (AppendHeaders([(SET_COOKIE, app.set_cookie(""))]), StatusCode::NO_CONTENT)
}
