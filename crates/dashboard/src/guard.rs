//! What every request has to pass, and what every answer carries: the names of this server, the origin of the page, headers that keep a
//! browser from running or sending anything that is not ours.

use crate::problem::{Problem, Reason};
use crate::server::App;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, HeaderName, ORIGIN};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

/// The header that carries the second half of a session's name.
pub const HALF: HeaderName = HeaderName::from_static("x-trainyard-session");

/// Headers of every answer.
const HEADERS: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()"),
];

/// What a page may load and run: only what this server sends. `nonce` allows the styles of the editor.
pub fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; font-src 'self' data:; \
         connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// The names by which a server may be called. A page of another name is another site, which may have let its own name lead here.
#[derive(Clone, Debug)]
pub struct HostNames(pub Vec<String>);

impl HostNames {
    fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        // of HTTP/1.1 every request has one
        let host = text(&HOST).unwrap_or_default();
        if !self.0.iter().any(|name| name.eq_ignore_ascii_case(host)) {
            let message = format!(
                "this dashboard is not called {:?}; open it as {}",
                host,
                self.0.first().map_or("", String::as_str)
            );
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, Reason::WrongOrigin, message));
        }
        match text(&ORIGIN) {
            None => Ok(()),
            Some(origin) if origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host)) => Ok(()),
            Some(origin) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                Reason::WrongOrigin,
                format!("a page of another site ({origin:?}) sent this request"),
            )),
        }
    }
}

/// Lets a request pass if it came by one of our names and from no other site; adds the headers of every answer.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let mut response = match app.settings.names.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if is_api {
        headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if !headers.contains_key(http::header::CONTENT_SECURITY_POLICY) {
        headers.insert(
            http::header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_and_pages_pass() {
        let names = HostNames(vec!["127.0.0.1:6480".to_owned(), "localhost:6480".to_owned()]);
        let check = |host: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            host.map(|host| headers.insert(HOST, host.parse().unwrap()));
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            names.check(&headers).is_ok()
        };
        assert!(check(Some("127.0.0.1:6480"), None) && check(Some("LocalHost:6480"), Some("http://localhost:6480")));
        for (host, origin) in [
            (None, None),
            (Some(""), None),
            (Some("evil.example:6480"), None),
            (Some("127.0.0.1"), None),
            (Some("127.0.0.1:6480"), Some("http://evil.example")),
            (Some("127.0.0.1:6480"), Some("http://127.0.0.1:6481")),
            (Some("127.0.0.1:6480"), Some("http://localhost:6480")),
            (Some("127.0.0.1:6480"), Some("null")),
            (Some("127.0.0.1:6480"), Some("")),
        ] {
            assert!(!check(host, origin), "{host:?} {origin:?}");
        }
    }
}
