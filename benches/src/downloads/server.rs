//! A store of objects that is all in memory: as much of S3 and of a Hugging Face hub as the clients here ask for, with a latency, and a
//! rate for each connection. It is no limit: bodies are slices of one block, copied to the socket and nothing else.

use bytes::Bytes;
use futures::stream;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The commit of everything in the hub.
const COMMIT: &str = "0123456789012345678901234567890123456789";
const PAGE: usize = 1000;
const CHUNK: u64 = 256 << 10;

/// An object: a stretch of the block, begun at its own place and repeated.
pub struct Object {
    pub start: u64,
    pub size: u64,
    /// Base64, of all bytes.
    pub crc64: String,
    /// Hex: as S3 tells it of what came in one part.
    pub md5: Option<String>,
    /// Hex: SHA-256 of a large file, git's SHA-1 of a small one.
    pub oid: String,
}

/// What the server is like.
#[derive(Clone, Copy)]
pub struct Line {
    /// Before each answer.
    pub latency: Duration,
    /// Bytes a second, for each connection.
    pub rate: Option<u64>,
}

pub struct Store {
    pub block: Bytes,
    pub objects: BTreeMap<String, Object>,
    /// From which size on the hub says that a file lies elsewhere.
    pub large: u64,
}

impl Object {
    fn etag(&self) -> String {
        match &self.md5 {
            Some(md5) => format!("\"{md5}\""),
            None => format!("\"{:032x}-{}\"", self.start, self.size.div_ceil(8 << 20)),
        }
    }
}

impl Store {
    /// The bytes of a range, as slices of the block.
    pub fn slices(&self, object: &Object, range: Range<u64>) -> impl Iterator<Item = Bytes> + use<> {
        let (block, length, start) = (self.block.clone(), self.block.len() as u64, object.start);
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let from = start.wrapping_add(at) % length;
            let count = CHUNK.min(range.end - at).min(length - from);
            at += count;
            Some(block.slice(usize::try_from(from).ok()?..usize::try_from(from + count).ok()?))
        })
    }

    /// Listens on a free port of this machine until the process ends.
    pub async fn serve(self: Arc<Self>, line: Line) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                let store = Arc::clone(&self);
                tokio::spawn(async move {
                    let answer = service_fn(move |request| {
                        let store = Arc::clone(&store);
                        async move { Ok::<_, Infallible>(store.answer(&request, line).await) }
                    });
                    // clients go when they have what they want
                    let _ =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), answer).await;
                });
            }
        });
        Ok(address)
    }

    async fn answer(&self, request: &Request<Incoming>, line: Line) -> Response<Body> {
        if !line.latency.is_zero() {
            tokio::time::sleep(line.latency).await;
        }
        let path = unquoted(request.uri().path());
        let query: BTreeMap<&str, String> = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name, unquoted(value)))
            .collect();
        if let Some(rest) = path.strip_prefix("/bucket") {
            let key = rest.trim_start_matches('/');
            return if key.is_empty() { self.list(&query) } else { self.object(key, request, line, true) };
        }
        if let Some(key) = path.strip_prefix("/cdn/") {
            return self.object(key, request, line, false);
        }
        if path.starts_with("/api/datasets/bench/data/revision/") {
            return json(
                format!(
                    "{{\"sha\":\"{COMMIT}\",\"id\":\"bench/data\",\"siblings\":[],\"tags\":[],\"private\":false,\"downloads\":0}}"
                ),
                None,
            );
        }
        if path.starts_with("/api/datasets/bench/data/tree/") {
            return self.tree(query.get("cursor").map_or("", String::as_str), request.headers());
        }
        if let Some(key) = path.strip_prefix(&format!("/datasets/bench/data/resolve/{COMMIT}/")) {
            return self.resolve(key, request, line);
        }
        empty(StatusCode::NOT_FOUND)
    }

    fn list(&self, query: &BTreeMap<&str, String>) -> Response<Body> {
        let prefix = query.get("prefix").map_or("", String::as_str);
        let rest = query.get("continuation-token").cloned().map(Bound::Included);
        let after = query.get("start-after").cloned().map(Bound::Excluded);
        let begin = rest.or(after).unwrap_or(Bound::Unbounded);
        let most = query.get("max-keys").and_then(|most| most.parse().ok()).unwrap_or(PAGE).min(PAGE);
        let found = self.objects.range((begin, Bound::Unbounded)).filter(|(key, _)| key.starts_with(prefix));
        let found: Vec<_> = found.take(most + 1).collect();
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>\
             <Prefix>{prefix}</Prefix><MaxKeys>{most}</MaxKeys><KeyCount>{}</KeyCount>",
            found.len().min(most)
        );
        if let Some((next, _)) = found.get(most) {
            let _ =
                write!(text, "<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>");
        } else {
            text.push_str("<IsTruncated>false</IsTruncated>");
        }
        for (key, object) in found.iter().take(most) {
            let etag = object.etag().replace('"', "&quot;");
            let _ = write!(
                text,
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{etag}</ETag><Size>{}</Size>\
                 <StorageClass>STANDARD</StorageClass></Contents>",
                object.size
            );
        }
        text.push_str("</ListBucketResult>");
        let mut response = Response::new(full(text));
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/xml"));
        response
    }

    fn object(&self, key: &str, request: &Request<Incoming>, line: Line, is_s3: bool) -> Response<Body> {
        let Some(object) = self.objects.get(key) else { return empty(StatusCode::NOT_FOUND) };
        let asked = request.headers().get("range").and_then(|value| value.to_str().ok()).and_then(|value| {
            let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
            let end = last.parse::<u64>().map_or(object.size, |last| last.saturating_add(1).min(object.size));
            Some(first.parse::<u64>().ok()?..end)
        });
        let range = asked.clone().unwrap_or(0..object.size);
        let length = range.end.saturating_sub(range.start);
        let mut slices = self.slices(object, range.clone());
        let body = match (request.method() == Method::HEAD, line.rate) {
            (true, _) => full(Bytes::new()),
            (false, None) => StreamBody::new(stream::iter(slices.map(|bytes| Ok(Frame::data(bytes))))).boxed_unsync(),
            (false, Some(rate)) => {
                let slow = stream::unfold((Instant::now(), 0_u64), move |(start, sent)| {
                    let next = slices.next();
                    async move {
                        let bytes = next?;
                        let due = Duration::from_micros(sent.saturating_mul(1_000_000) / rate.max(1));
                        tokio::time::sleep(due.saturating_sub(start.elapsed())).await;
                        let sent = sent.saturating_add(bytes.len() as u64);
                        Some((Ok(Frame::data(bytes)), (start, sent)))
                    }
                });
                StreamBody::new(slow).boxed_unsync()
            }
        };
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        put(headers, "content-length", &length.to_string());
        put(headers, "content-type", "application/octet-stream");
        put(headers, "accept-ranges", "bytes");
        put(headers, "last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
        put(headers, "etag", &object.etag());
        if asked.is_some() {
            put(
                headers,
                "content-range",
                &format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), object.size),
            );
        } else if is_s3 && request.headers().get("x-amz-checksum-mode").is_some() || request.method() == Method::HEAD {
            put(headers, "x-amz-checksum-crc64nvme", &object.crc64);
            put(headers, "x-amz-checksum-type", "FULL_OBJECT");
        }
        if asked.is_some() {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }

    fn tree(&self, cursor: &str, headers: &HeaderMap) -> Response<Body> {
        let found: Vec<_> = self.objects.range(cursor.to_owned()..).take(PAGE + 1).collect();
        let entries = found.iter().take(PAGE).map(|(path, object)| {
            let (oid, size) = (&object.oid, object.size);
            if size < self.large {
                return format!("{{\"type\":\"file\",\"path\":\"{path}\",\"oid\":\"{oid}\",\"size\":{size}}}");
            }
            let lfs = format!("{{\"oid\":\"{oid}\",\"size\":{size},\"pointerSize\":134}}");
            format!(
                "{{\"type\":\"file\",\"path\":\"{path}\",\"oid\":\"{}\",\"size\":{size},\"lfs\":{lfs}}}",
                "0".repeat(40)
            )
        });
        let text = format!("[{}]", entries.collect::<Vec<_>>().join(","));
        let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let next = found.get(PAGE).map(|(path, _)| {
            format!("<http://{host}/api/datasets/bench/data/tree/{COMMIT}?recursive=true&expand=false&cursor={path}>; rel=\"next\"")
        });
        json(text, next)
    }

    fn resolve(&self, key: &str, request: &Request<Incoming>, line: Line) -> Response<Body> {
        let Some(object) = self.objects.get(key) else { return empty(StatusCode::NOT_FOUND) };
        let mut response = if object.size < self.large {
            self.object(key, request, line, false)
        } else {
            let mut response = empty(StatusCode::FOUND);
            let host = request.headers().get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
            put(response.headers_mut(), "location", &format!("http://{host}/cdn/{key}"));
            put(response.headers_mut(), "x-linked-etag", &format!("\"{}\"", object.oid));
            put(response.headers_mut(), "x-linked-size", &object.size.to_string());
            response
        };
        put(response.headers_mut(), "etag", &format!("\"{}\"", object.oid));
        put(response.headers_mut(), "x-repo-commit", COMMIT);
        response
    }
}

fn unquoted(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
        let value = std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(value);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn json(text: String, next: Option<String>) -> Response<Body> {
    let mut response = Response::new(full(text));
    put(response.headers_mut(), "content-type", "application/json");
    if let Some(next) = next {
        put(response.headers_mut(), "link", &next);
    }
    response
}
