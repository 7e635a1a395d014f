//! URLs as Go's `net/url` reads them (`k8s.io/apiserver/pkg/cel/library`, `urls.go`): ports stay where they are the scheme's own,
//! hosts keep their letters, and what is absolute is a matter of the path.

use super::{Cel, network};
use crate::gotext::quoted;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map as CelMap, Opaque};
use kube_cel::cel::{Context, ExecutionError};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// A URL taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    pub scheme: String,
    pub user: Option<String>,
    /// With its port.
    pub host: String,
    /// What follows a scheme without a slash.
    opaque: String,
    /// As it is written where that is valid, else escaped.
    path: String,
    pub query: String,
    pub fragment: String,
}

impl Opaque for Url {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.URL"
    }
}

type Part = fn(&Url) -> Cel;

pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("url", |text: Arc<String>| match Url::parse(&text) {
        Ok(url) => Ok(Cel::Opaque(Arc::new(url))),
        Err(why) => Err(ExecutionError::function_error(
            "url",
            format!("URL parse error during conversion from string: parse {}: {why}", quoted(&text)),
        )),
    });
    context.add_function("isURL", |text: Arc<String>| -> Result<Cel, ExecutionError> {
        Ok(Cel::Bool(Url::parse(&text).is_ok()))
    });
    let parts: [(&str, Part); 6] = [
        ("getScheme", |url| text(url.scheme.clone())),
        ("getHost", |url| text(url.host.clone())),
        ("getHostname", |url| text(url.split_host().0)),
        ("getPort", |url| text(url.split_host().1)),
        ("getEscapedPath", |url| text(url.path.clone())),
        ("getQuery", |url| url.queries()),
    ];
    for (name, part) in parts {
        context.add_function(name, move |This(value): This<Cel>| match &value {
            Cel::Opaque(opaque) => opaque.downcast_ref::<Url>().map(part).ok_or(ExecutionError::NoSuchOverload),
            _ => Err(ExecutionError::NoSuchOverload),
        });
    }
}

fn text(text: String) -> Cel {
    Cel::String(Arc::new(text))
}

/// Why a text is no URL, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("net/url: invalid control character in URL")]
    Control,
    #[error("empty url")]
    Empty,
    #[error("invalid URI for request")]
    Request,
    #[error("first path segment in URL cannot contain colon")]
    Colon,
    #[error("missing protocol scheme")]
    NoScheme,
    #[error("net/url: invalid userinfo")]
    User,
    #[error("invalid port {} after host", quoted(port))]
    Port { port: String },
    #[error("missing ']' in host")]
    Bracket,
    #[error("invalid host: {why}")]
    Host { why: String },
    #[error("invalid IP-literal")]
    Literal,
    #[error("invalid URL escape {}", quoted(text))]
    Escape { text: String },
    #[error("invalid character {} in host name", quoted(text))]
    Character { text: String },
}

/// Where a part stands decides which characters it may hold.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    User,
    Host,
    Path,
    Query,
    Fragment,
}

impl Url {
    /// `ParseRequestURI`, then `Parse`.
    fn parse(text: &str) -> Result<Self, UrlError> {
        Self::read(text, true)?;
        Self::reference(text)
    }

    /// `Parse`, which knows fragments.
    ///
    /// # Errors
    /// Why the text is no URL, in Go's words.
    pub fn reference(text: &str) -> Result<Self, UrlError> {
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::read(whole, false)?;
        unescape(fragment, Place::Fragment)?;
        fragment.clone_into(&mut url.fragment);
        Ok(url)
    }

    fn read(text: &str, request: bool) -> Result<Self, UrlError> {
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err(UrlError::Control);
        }
        if text.is_empty() && request {
            return Err(UrlError::Empty);
        }
        let mut url = Self::default();
        if text == "*" {
            text.clone_into(&mut url.path);
            return Ok(url);
        }
        let (scheme, rest) = scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        let mut rest = rest;
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if request {
                return Err(UrlError::Request);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err(UrlError::Colon);
            }
        }
        let named = !scheme.is_empty() || (!request && !rest.starts_with("///"));
        if let (true, Some(after)) = (named, rest.strip_prefix("//")) {
            let end = after.find('/').unwrap_or(after.len());
            rest = &after[end..];
            (url.user, url.host) = authority(&url.scheme, &after[..end])?;
        }
        let path = unescape(rest, Place::Path)?;
        let kept = rest.bytes().all(|byte| {
            matches!(byte, b'!' | b'\'' | b'(' | b')' | b'*' | b'[' | b']' | b'%') || !escapes(byte, Place::Path)
        });
        url.path = if kept { rest.to_owned() } else { escape(&path) };
        Ok(url)
    }

    /// The host without brackets, and the port.
    fn split_host(&self) -> (String, String) {
        let host = self.host.as_str();
        let colon = host.rfind(':').filter(|at| is_port(&host[*at..]));
        let (host, port) = colon.map_or((host, ""), |at| (&host[..at], &host[at + 1..]));
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (bare.to_owned(), port.to_owned())
    }

    /// What is no pair is left out.
    fn queries(&self) -> Cel {
        let mut all: BTreeMap<String, Vec<Cel>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Ok(key), Ok(value)) = (unescape(key, Place::Query), unescape(value, Place::Query)) {
                all.entry(key).or_default().push(text(value));
            }
        }
        let map = all.into_iter().map(|(key, values)| (Key::String(Arc::new(key)), Cel::List(Arc::new(values))));
        Cel::Map(CelMap { map: Arc::new(map.collect()) })
    }
}

/// The scheme, which may be absent, and what follows it.
fn scheme(text: &str) -> Result<(&str, &str), UrlError> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err(UrlError::NoScheme),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

/// User and host.
fn authority(scheme: &str, text: &str) -> Result<(Option<String>, String), UrlError> {
    let (user, host) = text.rsplit_once('@').map_or((None, text), |(user, host)| (Some(user), host));
    let host = host_of(scheme, host)?;
    let Some(user) = user else { return Ok((None, host)) };
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(valid) {
        return Err(UrlError::User);
    }
    let (name, password) = user.split_once(':').map_or((user, None), |(name, password)| (name, Some(password)));
    unescape(name, Place::User)?;
    password.map_or(Ok(String::new()), |password| unescape(password, Place::User))?;
    Ok((Some(user.to_owned()), host))
}

fn host_of(scheme: &str, host: &str) -> Result<String, UrlError> {
    let checked = |port: &str| match port.is_empty() || is_port(port) {
        true => Ok(()),
        false => Err(UrlError::Port { port: port.to_owned() }),
    };
    match host.rfind('[') {
        Some(0) => {
            let end = host.rfind(']').ok_or(UrlError::Bracket)?;
            checked(&host[end + 1..])?;
            let address = unescape(host[1..end].split("%25").next().unwrap_or_default(), Place::Host)?;
            let address = network::unparsed(&address).map_err(|why| UrlError::Host { why })?;
            if address.is_ipv4() {
                return Err(UrlError::Literal);
            }
        }
        Some(_) => return Err(UrlError::Literal),
        // a host has one colon, but for schemes with hosts of their own
        None => {
            let web = matches!(scheme, "http" | "https");
            let colon = if web { host.find(':') } else { host.rfind(':') };
            checked(colon.map_or("", |at| &host[at..]))?;
        }
    }
    unescape(host, Place::Host)
}

/// A colon and digits, or a colon alone.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a character must be escaped there (RFC 3986, 2.3, and what each part allows).
fn escapes(byte: u8, place: Place) -> bool {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => false,
        b'!' | b'\'' | b'(' | b')' | b'*' | b'[' | b']' | b'<' | b'>' | b'"' if place == Place::Host => false,
        b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' => match place {
            Place::Host => matches!(byte, b'/' | b'?' | b'@'),
            Place::User => matches!(byte, b'@' | b'/' | b'?' | b':'),
            Place::Path => byte == b'?',
            Place::Query => true,
            Place::Fragment => false,
        },
        _ => true,
    }
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if escapes(byte, Place::Path) {
            let _ = write!(out, "%{byte:02X}");
        } else {
            out.push(char::from(byte));
        }
    }
    out
}

fn unescape(text: &str, place: Place) -> Result<String, UrlError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let value = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
                let shown = || text.get(at..text.len().min(at + 3)).unwrap_or("%");
                let fault = || UrlError::Escape { text: shown().to_owned() };
                let value = value.ok_or_else(fault)?;
                // hosts hold escapes of what is not ASCII alone
                if place == Place::Host && value < 0x80 && shown() != "%25" {
                    return Err(fault());
                }
                out.push(value);
                at += 3;
            }
            b'+' if place == Place::Query => {
                out.push(b' ');
                at += 1;
            }
            _ if place == Place::Host && byte < 0x80 && escapes(byte, place) => {
                return Err(UrlError::Character { text: char::from(byte).to_string() });
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_as_go_does() {
        for (text, scheme, host, hostname, port, path) in [
            ("http://a.b:80/x", "http", "a.b:80", "a.b", "80", "/x"),
            ("HTTPS://A.b/", "https", "A.b", "A.b", "", "/"),
            ("https://a.b", "https", "a.b", "a.b", "", ""),
            ("https://u:p@[::1]:8/%2f b", "https", "[::1]:8", "::1", "8", "//%20b"),
            ("/a/b?c=d", "", "", "", "", "/a/b"),
            ("mailto:a@b", "mailto", "", "", "", ""),
            ("file:///x", "file", "", "", "", "/x"),
            ("https://a.b/x!(y)#f/g?h", "https", "a.b", "a.b", "", "/x!(y)"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            let (name, number) = url.split_host();
            let found = (&*url.scheme, &*url.host, &*name, &*number, &*url.path);
            assert_eq!(found, (scheme, host, hostname, port, path), "{text}");
        }
        for (text, why) in [
            ("", "empty url"),
            ("a.b", "invalid URI for request"),
            (":x", "missing protocol scheme"),
            ("http://a b/", "invalid character \" \" in host name"),
            ("http://a:b/", "invalid port \":b\" after host"),
            ("http://a:1:2/", "invalid port \":1:2\" after host"),
            ("http://[::1", "missing ']' in host"),
            ("http://[zz]/", "invalid host: ParseAddr(\"zz\"): unable to parse IP"),
            ("/%zz", "invalid URL escape \"%zz\""),
            ("http://a\n", "net/url: invalid control character in URL"),
        ] {
            assert_eq!(Url::parse(text).unwrap_err().to_string(), why, "{text}");
        }
    }
}
