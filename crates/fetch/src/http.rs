//! Requests over hyper and rustls: proxies, redirects, deadlines. Nothing is tried twice here.

mod bound;
mod connect;

use crate::plan::error::{Error, Kind, scrubbed, shown};
use crate::plan::pace::{Failure, retry_after};
pub use bound::Bound;
use bytes::Bytes;
use connect::{Connector, is_metadata};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use std::error::Error as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a request, or the reading of an answer, came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It may go better next time.
    Again(Failure, String),
    /// The content is no longer the version that was asked for.
    Changed(String),
    /// Asked for a part, the server sends the whole: it has no ranges, whatever it says.
    Whole(String),
    /// It will not go better.
    Fatal(Error),
}

impl Fault {
    /// When patience has ended.
    pub fn into_error(self) -> Error {
        match self {
            Fault::Again(_, text) => Error::new(Kind::Network, text),
            Fault::Changed(text) => Error::new(Kind::Damaged, text),
            Fault::Whole(text) => Error::new(Kind::Other, text),
            Fault::Fatal(error) => error,
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Fatal(error)
    }
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Where it came from, after redirects.
    pub uri: Uri,
    pub body: Body,
}

#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    /// What was read of it already, and comes first.
    ahead: Option<Bytes>,
    stall: Duration,
    /// Bytes that came since, and how long they were waited for.
    lately: (u64, Duration),
    /// For messages.
    from: String,
}

/// Fewer bytes than these in so many times the longest silence are as good as none: else a byte now and then would hold a file up for ever.
const SLOWEST: u64 = 64 << 10;
const SLOW_FOR: u32 = 4;

/// What an answer is to a read of a file, or of a range of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What was asked for, or all of it from where the range begins.
    Asked,
    /// All of the file in place of a part.
    Whole,
    /// Another range, or another length.
    Other,
    Refused,
}

/// What a request may do with redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirects {
    Follow,
    /// The answer is returned as it is.
    Show,
}

/// Texts that may be shown nowhere: those that were given, and those that were got on the way.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Mutex<Vec<String>>>);

impl Secrets {
    pub fn new(given: Vec<String>) -> Self {
        let all = Self::default();
        given.iter().for_each(|secret| all.learn(secret));
        all
    }

    pub fn learn(&self, secret: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| known == secret) {
            all.push(secret.to_owned());
            // a longer one first, lest a part of it be replaced and the rest be left
            all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// The text without them.
    pub fn scrubbed(&self, text: &str) -> String {
        scrubbed(text, &self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Clone)]
pub struct Client {
    pool: Pool<Connector, Full<Bytes>>,
    proxies: Arc<Matcher>,
    pub secrets: Secrets,
    /// How long no byte may come.
    stall: Duration,
}

const REDIRECTS_MAX: usize = 10;
/// Bytes that a connection reads ahead at most, which also bounds the head of an answer. With many streams this is most of the memory of a
/// download.
const READ_MOST: usize = 128 << 10;
/// What another host than the one that a request was for may be told. Whatever else a request carries may be a secret.
const FOR_ALL: [HeaderName; 6] =
    [header::ACCEPT, header::ACCEPT_ENCODING, header::IF_MATCH, header::IF_RANGE, header::RANGE, header::USER_AGENT];

/// Whether two addresses are of one server: scheme, whole host name and port are the same.
pub fn same_origin(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().or(if uri.scheme_str() == Some("https") { Some(443) } else { Some(80) });
    let hosts = a.host().zip(b.host()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
    hosts && a.scheme() == b.scheme() && port(a) == port(b)
}

impl Client {
    /// `proxies`: HTTP_PROXY and the like. `authority`: a file with the only certificates that are trusted.
    pub fn new(proxies: Matcher, stall: Duration, secrets: Secrets, authority: Option<PathBuf>) -> Self {
        let proxies = Arc::new(proxies);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .http1_max_buf_size(READ_MOST)
            .build(Connector::new(Arc::clone(&proxies), authority));
        Self { pool, proxies, secrets, stall }
    }

    /// Sends a request and follows redirects: credentials stay with the host that they are for, and nothing goes from https to http.
    ///
    /// # Errors
    /// No answer; an answer of any status is one.
    pub async fn send(&self, request: Request<Bytes>, redirects: Redirects) -> Result<Answer, Fault> {
        let (mut parts, body) = request.into_parts();
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.once(&parts, &body).await?;
            let Some(next) = redirect(&answer).filter(|_| redirects == Redirects::Follow) else { return Ok(answer) };
            let from = shown(&parts.uri.to_string());
            let next = join(&parts.uri, &next)
                .ok_or_else(|| Error::new(Kind::Other, format!("{from} sends to an address that cannot be read")))?;
            if parts.uri.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                let to = shown(&next.to_string());
                return Err(Error::new(
                    Kind::NoAccess,
                    format!("{from} sends from https to {to}, which is not followed"),
                )
                .into());
            }
            if !same_origin(&parts.uri, &next) {
                let all = std::mem::take(&mut parts.headers);
                parts
                    .headers
                    .extend(all.into_iter().filter(|(name, _)| name.as_ref().is_some_and(|n| FOR_ALL.contains(n))));
            }
            if answer.status == StatusCode::SEE_OTHER && parts.method != Method::HEAD {
                parts.method = Method::GET;
            }
            parts.uri = next;
        }
        let from = shown(&parts.uri.to_string());
        Err(Error::new(Kind::Other, format!("{from}: more than {REDIRECTS_MAX} redirects, one after the other")).into())
    }

    async fn once(&self, parts: &http::request::Parts, body: &Bytes) -> Result<Answer, Fault> {
        let name = shown(&parts.uri.to_string());
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        let agent = HeaderValue::from_static(concat!("trainyard/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(header::USER_AGENT).or_insert(agent);
        if parts.uri.scheme_str() == Some("http")
            && !is_metadata(&parts.uri)
            && let Some(auth) = self.proxies.intercept(&parts.uri).as_ref().and_then(|proxy| proxy.basic_auth())
        {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, auth.clone());
        }
        let answer = tokio::time::timeout(self.stall, self.pool.request(request)).await;
        let answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(unanswered(&name, &parts.uri, &error)),
            Err(_) => {
                let text = format!("{name}: no answer for {} seconds", self.stall.as_secs());
                return Err(Fault::Again(Failure::Broken, text));
            }
        };
        let (answer, incoming) = answer.into_parts();
        let body = Body { incoming, ahead: None, stall: self.stall, lately: (0, Duration::ZERO), from: name };
        Ok(Answer { status: answer.status, headers: answer.headers, uri: parts.uri.clone(), body })
    }
}

fn unanswered(name: &str, uri: &Uri, error: &hyper_util::client::legacy::Error) -> Fault {
    let mut causes = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    let why = if causes.is_empty() { error.to_string() } else { causes.join(": ") };
    if why.contains("invalid peer certificate") || why.contains("CA certificate") {
        let hint = "set SSL_CERT_FILE to the certificates that this machine should trust";
        return Fault::Fatal(Error::new(Kind::Network, format!("{name}: {why}; {hint}")));
    }
    let failure = if error.is_connect() { Failure::Unreachable } else { Failure::Broken };
    let host = uri.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    let what = if error.is_connect() { format!("{host} cannot be reached") } else { "the connection broke".to_owned() };
    Fault::Again(failure, format!("{name}: {what}: {why}"))
}

fn redirect(answer: &Answer) -> Option<String> {
    let sends = matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308);
    answer.header(header::LOCATION.as_str()).filter(|_| sends).map(str::to_owned)
}

/// A reference in a `Location` or `Link`, resolved.
pub fn join(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    if let Ok(uri) = reference.parse::<Uri>()
        && uri.scheme().is_some()
        && uri.authority().is_some()
    {
        return matches!(uri.scheme_str(), Some("http" | "https")).then_some(uri);
    }
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = match reference {
        rest if rest.starts_with("//") => format!("{scheme}:{rest}"),
        path if path.starts_with('/') => format!("{scheme}://{authority}{path}"),
        query if query.starts_with('?') => format!("{scheme}://{authority}{}{query}", base.path()),
        relative => {
            let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{scheme}://{authority}{folder}/{relative}")
        }
    };
    text.parse().ok()
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub fn length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// Of a 206: the first byte and the size of the whole.
    pub fn content_range(&self) -> Option<(u64, Option<u64>)> {
        let (range, total) = self.header("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
        Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()))
    }

    /// What came of a read; `size`: of the whole file, where it is known.
    pub fn reading(&self, range: Option<&Range<u64>>, size: Option<u64>) -> Reading {
        let is_whole = || size.is_none() || self.length().is_none_or(|length| Some(length) == size);
        match (self.status.as_u16(), range) {
            (200, None) => Reading::Asked,
            (206, Some(range)) if self.content_range().is_some_and(|(start, _)| start == range.start) => Reading::Asked,
            (200, Some(range)) if range.start == 0 && Some(range.end) == size && is_whole() => Reading::Asked,
            (200, Some(_)) if is_whole() => Reading::Whole,
            (200 | 206 | 416, _) => Reading::Other,
            _ => Reading::Refused,
        }
    }

    /// What to do about a status that no source has a word of its own for.
    pub fn fault(&self, what: &str) -> Fault {
        let asked = self.header("retry-after").and_then(|value| retry_after(value, jiff::Timestamp::now()));
        let asked = asked.or_else(|| self.rate_limit_reset());
        let text = format!("{what}: the server answers {}", self.status);
        match self.status.as_u16() {
            429 => Fault::Again(Failure::Busy(asked), text),
            503 => Fault::Again(Failure::Busy(asked), text),
            408 | 500 | 502 | 504 => {
                Fault::Again(asked.map_or(Failure::Server, |asked| Failure::Busy(Some(asked))), text)
            }
            401 | 403 => Error::new(Kind::NoAccess, text).into(),
            404 | 410 => Error::new(Kind::NotFound, text).into(),
            412 => Fault::Changed(text),
            code if code >= 500 => Fault::Again(Failure::Server, text),
            _ => Error::new(Kind::Other, text).into(),
        }
    }

    /// `RateLimit: "api";r=0;t=55`
    fn rate_limit_reset(&self) -> Option<Duration> {
        let fields = self.header("ratelimit")?.split(';').map(str::trim);
        fields.filter_map(|field| field.strip_prefix("t=")).next()?.parse().ok().map(Duration::from_secs)
    }
}

impl Body {
    /// The next bytes; `None`: the end, and as many came as were announced.
    ///
    /// # Errors
    /// The connection broke, or nothing came for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(ahead) = self.ahead.take().filter(|bytes| !bytes.is_empty()) {
            return Ok(Some(ahead));
        }
        loop {
            let asked = Instant::now();
            let frame = tokio::time::timeout(self.stall, self.incoming.frame()).await;
            // the time that the bytes before took to be written is not the server's
            let (bytes, waited) = (self.lately.0, self.lately.1.saturating_add(asked.elapsed()));
            let again = |why: String| Fault::Again(Failure::Broken, format!("{}: {why}", self.from));
            match frame {
                Err(_) => return Err(again(format!("no byte came for {} seconds", self.stall.as_secs()))),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(again(format!("the answer broke off: {error}"))),
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    let bytes = bytes.saturating_add(data.len() as u64);
                    let window = self.stall.saturating_mul(SLOW_FOR);
                    self.lately = if waited < window { (bytes, waited) } else { (0, Duration::ZERO) };
                    if waited >= window && bytes < SLOWEST {
                        return Err(again(format!("only {bytes} bytes came in {} seconds", window.as_secs())));
                    }
                    if !data.is_empty() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// A GET or HEAD of `url`.
///
/// # Errors
/// The URL cannot be one.
pub fn request(method: Method, url: &str) -> Result<Request<Bytes>, Fault> {
    let uri: Uri = url.parse().map_err(|e| Error::config(format!("{}: no URL: {e}", shown(url))))?;
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Ok(request)
}

/// # Errors
/// The value cannot be sent; it is not shown, for it may be a secret.
pub fn set(request: &mut Request<Bytes>, name: &'static str, value: &str) -> Result<(), Fault> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| Error::config(format!("a value for the header {name} has characters that cannot be sent")))?;
    value.set_sensitive(name == "authorization");
    request.headers_mut().insert(name, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a server says, in whichever order secrets became known.
        #[test]
        fn no_secret_stays_in_a_text(
            given in prop::collection::vec("[a-zA-Z0-9/+=._-]{4,40}", 0..4),
            learnt in prop::collection::vec("[a-zA-Z0-9/+=._-]{4,40}", 1..4),
            between in prop::collection::vec("[ -~]{0,12}", 8),
        ) {
            let secrets = Secrets::new(given.clone());
            learnt.iter().for_each(|secret| secrets.learn(secret));
            let all: Vec<&String> = given.iter().chain(&learnt).collect();
            let text: String = all.iter().zip(&between).map(|(secret, gap)| format!("{gap}{secret}")).collect();
            let clean = secrets.scrubbed(&text);
            for secret in all {
                // what stands around may be the secret's own letters
                prop_assert!(!clean.replace("[secret]", "\n").contains(secret.as_str()), "{clean}: {secret}");
            }
        }
    }

    #[test]
    fn a_server_is_its_scheme_whole_host_and_port() {
        for (a, b, same) in [
            ("https://hub.example", "https://HUB.example:443/x?y", true),
            ("http://hub:8080", "http://hub:8080/x", true),
            ("http://hub:8080", "http://hub:80801/x", false),
            ("http://hub:80", "http://hub:8080/x", false),
            ("https://hub.example", "https://hub.example.evil.com/x", false),
            ("https://hub.example", "https://hub.example@evil.com/x", false),
            ("https://hub.example", "https://evil.com/hub.example", false),
            ("https://hub.example", "https://hub.examples/x", false),
            ("https://hub.example", "http://hub.example/x", false),
        ] {
            let (a, b): (Uri, Result<Uri, _>) = (a.parse().unwrap(), b.parse());
            assert_eq!(b.is_ok_and(|b| same_origin(&a, &b)), same, "{a}");
        }
    }

    #[test]
    fn references_are_joined() {
        let base: Uri = "http://h:1/a/b?x=1".parse().unwrap();
        for (reference, joined) in [
            ("/c?y=2", Some("http://h:1/c?y=2")),
            ("c", Some("http://h:1/a/c")),
            ("?y", Some("http://h:1/a/b?y")),
            ("//o/c", Some("http://o/c")),
            ("https://o/c#frag", Some("https://o/c")),
            ("ftp://o/c", None),
        ] {
            assert_eq!(join(&base, reference).map(|uri| uri.to_string()).as_deref(), joined, "{reference}");
        }
    }
}
