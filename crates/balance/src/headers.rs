//! Headers on their way through a proxy (RFC 9110, section 7.6).

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, request};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Who sent a request.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its IP address.
    pub(crate) address: HeaderValue,
    pub(crate) is_tls: bool,
}

/// Changes a request's head into what a backend gets. Returns whether it asks for another protocol, such as WebSocket.
///
/// `X-Forwarded-For` gets the client's address as its last item. `X-Forwarded-Proto` and `X-Forwarded-Host` are set only if the client,
/// which may be another proxy, has not set them.
pub(crate) fn to_backend(parts: &mut request::Parts, client: &Client) -> bool {
    let upgrade = (parts.version == Version::HTTP_11).then(|| upgrade(&parts.headers)).flatten();
    let is_upgrade = upgrade.is_some();
    strip(&mut parts.headers);
    // The request's `100 Continue` is sent when the backend's connection reads the body.
    parts.headers.remove(EXPECT);
    if let Some(protocol) = upgrade {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, protocol);
    }
    if let Some(authority) = parts.uri.authority() {
        // The target names the host in HTTP/2, and in HTTP/1.1 when a client takes us for a forward proxy.
        if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
            parts.headers.insert(HOST, host);
        }
        parts.uri = parts.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    forwarded(&mut parts.headers, client);
    is_upgrade
}

/// HTTP/2 may send each cookie in a header of its own; HTTP/1.1 has one header (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

fn forwarded(headers: &mut HeaderMap, client: &Client) {
    let before: Vec<&[u8]> = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes).collect();
    let address = if before.is_empty() {
        client.address.clone()
    } else {
        let all = [&before.join(&b", "[..]), client.address.as_bytes()].join(&b", "[..]);
        HeaderValue::from_bytes(&all).unwrap_or_else(|_| client.address.clone())
    };
    headers.insert(FORWARDED_FOR, address);
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(if client.is_tls { "https" } else { "http" }));
    }
    if !headers.contains_key(FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
}

/// Removes what concerns only one connection from an answer's head. `upgraded`: the answer changes the protocol.
pub(crate) fn to_client(headers: &mut HeaderMap, upgraded: bool) {
    let protocol = upgraded.then(|| headers.get(UPGRADE).cloned()).flatten();
    strip(headers);
    if let Some(protocol) = protocol {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
}

/// The protocol that a request asks for.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let is_listed = items(headers).any(|item| item.eq_ignore_ascii_case("upgrade"));
    is_listed.then(|| protocol.clone())
}

/// The items of the `Connection` header.
fn items(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Removes the headers of one connection, and those that `Connection` lists.
fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let usual =
            |item: &str| ["close", "keep-alive", "upgrade", "te"].iter().any(|one| item.eq_ignore_ascii_case(one));
        let listed: Vec<HeaderName> =
            items(headers).filter(|item| !usual(item)).filter_map(|item| item.parse().ok()).collect();
        for name in listed.iter().filter(|name| **name != CONTENT_LENGTH && **name != HOST) {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    if headers.remove(TRANSFER_ENCODING).is_some() {
        // With both, the length is wrong.
        headers.remove(CONTENT_LENGTH);
    }
    for name in [KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, UPGRADE] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn sent(request: http::request::Builder) -> (request::Parts, bool) {
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let client = Client { address: HeaderValue::from_static("192.0.2.7"), is_tls: true };
        let is_upgrade = to_backend(&mut parts, &client);
        (parts, is_upgrade)
    }

    #[test]
    fn headers_of_one_connection_are_removed() {
        let request = Request::get("/a?b=1")
            .header("host", "example.com")
            .header("connection", "close, X-Private , Host")
            .header("x-private", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("transfer-encoding", "chunked")
            .header("content-length", "7")
            .header("upgrade", "h2c")
            .header("accept", "*/*");
        let (parts, is_upgrade) = sent(request);
        assert!(!is_upgrade);
        let mut left: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]);
    }

    #[test]
    fn another_protocol_is_passed_on() {
        let request = Request::get("/").header("connection", "keep-alive, Upgrade").header("upgrade", "websocket");
        let (parts, is_upgrade) = sent(request);
        assert!(is_upgrade);
        assert_eq!(parts.headers["connection"], "upgrade");
        assert_eq!(parts.headers["upgrade"], "websocket");
    }

    #[test]
    fn cookies_of_http2_become_one_header() {
        let request = Request::get("https://example.com/").version(Version::HTTP_2);
        let (parts, _) = sent(request.header("cookie", "a=1").header("cookie", "b=2"));
        let cookies: Vec<_> = parts.headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2"]);
    }

    #[test]
    fn forwarded_headers_extend_those_of_another_proxy() {
        let request = Request::get("http://example.com/x?y")
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-for", "198.51.100.2")
            .header("x-forwarded-proto", "http");
        let (parts, _) = sent(request);
        assert_eq!(parts.uri, "/x?y");
        assert_eq!(parts.headers["host"], "example.com");
        assert_eq!(parts.headers["x-forwarded-for"], "198.51.100.1, 198.51.100.2, 192.0.2.7");
        assert_eq!(parts.headers["x-forwarded-proto"], "http");
        assert_eq!(parts.headers["x-forwarded-host"], "example.com");
    }
}
