//! What a request is answered with that cannot be carried out: what happened, and what to do.

use crate::query::BadQuery;
use axum::Json;
use axum::response::{IntoResponse, Response};
use client::ClientError;
use http::StatusCode;
use serde::Serialize;

/// A request that failed. Pages show `message`, and go by `reason`.
#[derive(Debug)]
pub(crate) struct Problem {
    pub status: StatusCode,
    pub reason: Reason,
    pub message: String,
}

/// What a page does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Reason {
    /// Sign in, again.
    SignedOut,
    /// The code was used before, or is older than a minute.
    CodeUsed,
    /// The user has no right to it.
    Forbidden,
    /// It does not exist.
    NotFound,
    /// The request makes no sense.
    BadRequest,
    /// It came from another site, or by another name of this server.
    WrongOrigin,
    /// The API server does not answer.
    Unreachable,
    /// It was refused by the API server.
    Refused,
}

#[derive(Serialize)]
struct Body<'a> {
    reason: Reason,
    message: &'a str,
}

impl Problem {
    pub fn new(status: StatusCode, reason: Reason, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Reason::BadRequest, message)
    }

    pub fn signed_out() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Reason::SignedOut, "you are not signed in, or your session has ended")
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Reason::NotFound, message)
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let (status, reason) = match &error {
            ClientError::NotFound { .. } | ClientError::NotServed | ClientError::NoMpiJobs => {
                (StatusCode::NOT_FOUND, Reason::NotFound)
            }
            ClientError::Forbidden { .. } => (StatusCode::FORBIDDEN, Reason::Forbidden),
            ClientError::Unauthorized(_) => return Self::signed_out(),
            ClientError::Unreachable { .. } | ClientError::NotRunning { .. } | ClientError::NotReady { .. } => {
                (StatusCode::BAD_GATEWAY, Reason::Unreachable)
            }
            ClientError::Usage(..) => (StatusCode::BAD_REQUEST, Reason::BadRequest),
            ClientError::Api(..) | ClientError::Io { .. } | ClientError::Kubeconfig { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, Reason::Refused)
            }
        };
        Self { status, reason, message: api::foreign::visible(&api::error_chain(&error)).to_string() }
    }
}

impl From<BadQuery> for Problem {
    fn from(error: BadQuery) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<getrandom::Error> for Problem {
    fn from(error: getrandom::Error) -> Self {
        let message = format!("sign-in does not work, because the system returns no random bytes: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Reason::Refused, message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body { reason: self.reason, message: &self.message };
        (self.status, Json(body)).into_response()
    }
}
