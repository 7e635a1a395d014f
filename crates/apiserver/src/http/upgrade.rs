//! Connections that are upgraded from HTTP to WebSocket, or to SPDY for older clients.

use super::answer::Body;
use super::handle::Ask;
use crate::registry::internal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use resource::status::Status;
use sha1::{Digest, Sha1};
use streams::Io;

/// The header in which a client lists the protocols that it speaks over SPDY, and the server the one it chose.
const PROTOCOL: &str = "x-stream-protocol-version";
/// The header in which a server lists its own where none fits.
const ACCEPTED: &str = "x-accepted-stream-protocol-versions";

/// What a server's key is made of, beside the client's (RFC 6455, 1.3).
const WEBSOCKET_ID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Whether the client asks for an upgrade to this protocol.
pub(super) fn wanted(ask: &Ask, protocol: &str) -> bool {
    let has = |name: header::HeaderName, word: &str| {
        ask.header(name).is_some_and(|v| v.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    has(header::CONNECTION, "upgrade") && has(header::UPGRADE, protocol)
}

fn parts(ask: &Ask) -> Result<Parts, Status> {
    let mut parts = ask.parts.lock().map_err(|_| internal("a request was taken twice"))?;
    parts.take().ok_or_else(|| internal("a request was taken twice"))
}

/// The answer that turns the connection into WebSocket frames, whose bytes `then` gets; `protocol` is the one agreed upon, if one is.
pub(super) fn to_frames(
    ask: &Ask,
    protocol: &'static str,
    then: impl FnOnce(Box<dyn Io>) -> BoxFuture<'static, ()> + Send + 'static,
) -> Result<Response<Body>, Status> {
    if ask.method != Method::GET {
        return Err(Status::bad_request("a WebSocket is opened by GET"));
    }
    if ask.header(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version.trim() != "13") {
        return Err(Status::bad_request("the header `Sec-WebSocket-Version` is not 13"));
    }
    let Some(key) = ask.header(header::SEC_WEBSOCKET_KEY) else {
        return Err(Status::bad_request("the header `Sec-WebSocket-Key` is missing"));
    };
    let accept = STANDARD.encode(Sha1::digest([key, WEBSOCKET_ID].concat()));
    let upgrade = parts(ask)?.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("this connection cannot be upgraded"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, HeaderValue::from_str(&accept).map_err(not_a_header)?);
    if !protocol.is_empty() {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => then(Box::new(TokioIo::new(connection))).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    });
    Ok(response)
}

/// The answer that turns the connection into SPDY; `then` gets the chosen protocol (empty where the client names none) and
/// the connection.
pub(super) fn to_spdy(
    ask: &Ask,
    ours: &[&str],
    then: impl FnOnce(String, Box<dyn Io>) -> BoxFuture<'static, ()> + Send + 'static,
) -> Result<Response<Body>, Status> {
    let mut response = Response::new(Body::empty());
    let theirs = ask.headers.get_all(PROTOCOL).iter().filter_map(|v| v.to_str().ok());
    let theirs: Vec<&str> = theirs.flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.is_empty()).collect();
    let chosen = match choose(&theirs, ours) {
        Some(chosen) => chosen,
        None => {
            let why = format!(
                "unable to negotiate protocol: client supports {}, server accepts {}",
                go_list(&theirs),
                go_list(ours)
            );
            *response.status_mut() = StatusCode::FORBIDDEN;
            for protocol in ours {
                response.headers_mut().append(ACCEPTED, HeaderValue::from_str(protocol).map_err(not_a_header)?);
            }
            *response.body_mut() = Body::from(why);
            return Ok(response);
        }
    };
    let upgrade = parts(ask)?.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("this connection cannot be upgraded"))?;
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    if !chosen.is_empty() {
        headers.insert(PROTOCOL, HeaderValue::from_str(chosen).map_err(not_a_header)?);
    }
    let chosen = chosen.to_owned();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => then(chosen, Box::new(TokioIo::new(connection))).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    });
    Ok(response)
}

/// The answer that turns the connection of a node's agent into what `tunnels` speak.
pub(super) fn to_tunnel(
    ask: &Ask,
    protocol: &'static str,
    then: impl FnOnce(Box<dyn Io>) -> BoxFuture<'static, ()> + Send + 'static,
) -> Result<Response<Body>, Status> {
    let upgrade = parts(ask)?.extensions.remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| Status::bad_request("this connection cannot be upgraded"))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(protocol));
    tokio::spawn(async move {
        match upgrade.await {
            Ok(connection) => then(Box::new(TokioIo::new(connection))).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    });
    Ok(response)
}

fn not_a_header(error: http::header::InvalidHeaderValue) -> Status {
    internal(error.to_string())
}

/// The first of the client's protocols that is also ours; the empty one where it names none.
fn choose<'a>(theirs: &[&'a str], ours: &[&str]) -> Option<&'a str> {
    if theirs.is_empty() {
        return Some("");
    }
    theirs.iter().find(|protocol| ours.contains(protocol)).copied()
}

fn go_list(words: &[&str]) -> String {
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_order_counts() {
        let ours = ["v4", "v3", "v2"];
        assert_eq!(choose(&[], &ours), Some(""), "the oldest clients name none");
        assert_eq!(choose(&["v9", "v3", "v4"], &ours), Some("v3"));
        assert_eq!(choose(&["v9"], &ours), None);
    }
}
