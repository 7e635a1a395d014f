//! One file of a web server. Servers differ: no HEAD, no ranges, weak etags, packed answers.

use super::{Content, Listing, Opened, Told, no_ranges, patiently, range_header};
use crate::http::{Answer, Client, Fault, Redirects, request, set};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::location::WebFile;
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::Settings;
use crate::plan::verify::Check;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use percent_encoding::percent_decode_str;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct Web {
    file: WebFile,
    name: String,
    authorization: Option<String>,
    filter: Filter,
    client: Client,
    /// Whatever the server says, it was asked for a part and sent the whole.
    sends_whole: AtomicBool,
}

impl Web {
    pub fn new(file: WebFile, settings: &Settings, client: &Client) -> Self {
        let basic = file
            .user
            .as_ref()
            .map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
        let bearer = || settings.variables.get("BEARER_TOKEN").map(|token| format!("Bearer {}", token.trim()));
        Self {
            name: shown(&file.url),
            authorization: basic.or_else(bearer),
            file,
            filter: settings.filter(),
            client: client.clone(),
            sends_whole: AtomicBool::new(false),
        }
    }

    async fn ask(&self, method: Method, headers: &[(&'static str, String)]) -> Result<Answer, Fault> {
        let mut request = request(method, &self.file.url)?;
        if let Some(authorization) = &self.authorization {
            set(&mut request, "authorization", authorization)?;
        }
        for (name, value) in headers {
            set(&mut request, name, value)?;
        }
        self.client.send(request, Redirects::Follow).await
    }

    /// # Errors
    /// The server does not answer with the file.
    pub async fn list(&self) -> Result<Listing, Fault> {
        let entry = self.describe().await?;
        let wants = self.filter.wants(&entry.target);
        let why = || self.filter.why_nothing([entry.target.as_str()].into_iter());
        let warnings =
            if wants { Vec::new() } else { vec![format!("{}: nothing is left to fetch: {}", self.name, why())] };
        let tally = self.filter.tally([entry.target.as_str()].into_iter());
        let entries = if wants { vec![entry] } else { Vec::new() };
        Ok(Listing { entries, pin: None, warnings, unfit: Vec::new(), tally })
    }

    /// # Errors
    /// The server does not answer with the file.
    pub async fn describe(&self) -> Result<Entry, Fault> {
        patiently(|| async {
            let head = self.ask(Method::HEAD, &[]).await?;
            if head.status.is_success() {
                let takes_ranges = head.header("accept-ranges").is_some_and(|value| value.trim() == "bytes");
                return self.entry(&head, head.length(), takes_ranges);
            }
            if head.status.is_server_error() && head.status.as_u16() != 501 || head.status.as_u16() == 429 {
                return Err(head.fault(&self.name));
            }
            // a server that refuses HEAD may answer GET; so may a signed address, which is for GET alone
            let get = self.ask(Method::GET, &[("range", "bytes=0-0".to_owned())]).await?;
            match get.status.as_u16() {
                206 => {
                    let size = get.content_range().and_then(|(_, size)| size);
                    self.entry(&get, size, size.is_some())
                }
                200 => self.entry(&get, get.length(), false),
                // no first byte: it is empty
                416 => self.entry(&get, Some(0), false),
                _ => Err(self.refused(&get)),
            }
        })
        .await
    }

    fn refused(&self, answer: &Answer) -> Fault {
        let hint = match (answer.status.as_u16(), self.authorization.is_some()) {
            (401 | 403, false) => "; it may want BEARER_TOKEN, or a user and password in the URL",
            (401 | 403, true) => "; the credentials that were sent do not open it",
            _ => return answer.fault(&self.name),
        };
        Error::new(Kind::NoAccess, format!("{}: the server answers {}{hint}", self.name, answer.status)).into()
    }

    fn entry(&self, answer: &Answer, size: Option<u64>, takes_ranges: bool) -> Result<Entry, Fault> {
        let target = self.target(answer)?;
        let packed = self.is_packed(answer, &target)?;
        let version = version(answer);
        let size = size.filter(|_| !packed);
        let told = || (!packed).then(|| digest(answer)).flatten();
        Ok(Entry {
            source: self.name.clone(),
            check: self.file.check.clone().or_else(told),
            ranges: takes_ranges
                && !self.sends_whole.load(Ordering::Relaxed)
                && !packed
                && size.is_some()
                && version.is_some(),
            target,
            size,
            version,
        })
    }

    /// Packed for the way, as gzip. What is packed in another way is not what was asked for, unless a checksum can tell.
    fn is_packed(&self, answer: &Answer, name: &str) -> Result<bool, Fault> {
        let codings = answer.header("content-encoding").unwrap_or_default().trim().to_ascii_lowercase();
        match codings.as_str() {
            "" | "identity" => Ok(false),
            coding if stays(coding, name) => Ok(false),
            "gzip" | "x-gzip" => Ok(true),
            _ if self.file.check.is_some() => Ok(false),
            coding => {
                let text = format!(
                    "{}: the server packs it as {coding:?}, though it was asked not to, and that is not unpacked here; fetch it from \
                     another server, or name its checksum (#sha256=…) if it is meant to stay so",
                    self.name
                );
                Err(Error::new(Kind::Other, text).into())
            }
        }
    }

    /// The last segment of the path; else what the server calls it.
    fn target(&self, answer: &Answer) -> Result<String, Fault> {
        let path = shown(&self.file.url);
        let path = path.split_once("://").map_or("", |(_, rest)| rest);
        let last = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next()).unwrap_or_default();
        let name = percent_decode_str(last).decode_utf8_lossy().into_owned();
        let name =
            Some(name).filter(|name| !name.is_empty()).or_else(|| disposition(answer.header("content-disposition")?));
        let name = name.map(|name| name.replace('/', "_"));
        name.ok_or_else(|| {
            Error::config(format!("{}: neither the address nor the server gives the file a name", self.name)).into()
        })
    }

    /// # Errors
    /// It cannot be read, or is no longer this version.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        let mut headers = Vec::new();
        if let Some(range) = &range {
            headers.push(("range", range_header(range)));
            if let Some(version) = &entry.version {
                headers.push(("if-range", version.clone()));
            }
        }
        let answer = self.ask(Method::GET, &headers).await?;
        let changed = |why: &str| Err(Fault::Changed(format!("{}: {why}", self.name)));
        match (answer.status.as_u16(), &range) {
            (206, Some(range)) => match answer.content_range() {
                Some((start, size)) if start == range.start && (size.is_none() || size == entry.size) => {}
                _ => return changed("the server sends another range than it was asked for"),
            },
            (200, None) => {
                if entry.version.is_some() && version(&answer) != entry.version {
                    return changed("the file changed while it was fetched");
                }
            }
            (200, Some(_)) if entry.version.is_some() && version(&answer) == entry.version => {
                self.sends_whole.store(true, Ordering::Relaxed);
                return Err(no_ranges(&self.name));
            }
            (200, Some(_)) => return changed("the file changed while it was fetched"),
            (416, _) => return changed("the file is shorter than it was"),
            _ => return Err(self.refused(&answer)),
        }
        let is_packed = self.is_packed(&answer, &entry.target)?;
        if is_packed && range.is_some() {
            return changed("the server packs what it sends");
        }
        let told = match digest(&answer).filter(|_| range.is_none() && !is_packed && self.file.check.is_none()) {
            Some(check) => Told::Checksum(check),
            None => Told::Nothing,
        };
        Ok(Opened { content: Content::Net(answer.body), told, is_packed })
    }
}

/// What tells versions of the content apart, byte for byte: a strong etag, else a date that was old when it was told.
fn version(answer: &Answer) -> Option<String> {
    let etag = answer.header("etag").filter(|etag| etag.starts_with('"'));
    let dated = || {
        let modified = answer.header("last-modified")?;
        let time = |text: &str| jiff::fmt::rfc2822::parse(text).ok().map(|zoned| zoned.timestamp().as_second());
        let age = time(answer.header("date")?)?.saturating_sub(time(modified)?);
        (age >= 60).then_some(modified)
    };
    etag.or_else(dated).map(str::to_owned)
}

/// How a file is named that is meant to stay packed.
fn stays(coding: &str, name: &str) -> bool {
    let ends: &[&str] = match coding {
        "gzip" | "x-gzip" => &[".gz", ".tgz", ".gzip"],
        "br" => &[".br"],
        "zstd" => &[".zst", ".zstd"],
        "compress" | "x-compress" => &[".Z"],
        _ => &[],
    };
    ends.iter().any(|end| name.ends_with(end))
}

/// What the server says of the whole content.
fn digest(answer: &Answer) -> Option<Check> {
    let repr = answer.header("repr-digest").into_iter().flat_map(|value| value.split(','));
    let repr = repr.filter_map(|item| {
        let (name, value) = item.trim().split_once('=')?;
        Check::from_base64(name, value.strip_prefix(':')?.strip_suffix(':')?)
    });
    let old = answer.header("digest").into_iter().flat_map(|value| value.split(','));
    let old =
        old.filter_map(|item| item.trim().split_once('=').and_then(|(name, value)| Check::from_base64(name, value)));
    let md5 = || Check::from_base64("md5", answer.header("content-md5")?);
    repr.chain(old).max_by_key(|check| check.algorithm).or_else(|| md5().filter(|_| answer.status.as_u16() == 200))
}

/// `attachment; filename="a b.txt"`, `filename*=UTF-8''a%20b.txt`
fn disposition(value: &str) -> Option<String> {
    let parameters = value.split(';').skip(1).filter_map(|part| part.trim().split_once('='));
    let (extended, plain): (Vec<_>, Vec<_>) = parameters.partition(|(name, _)| name.eq_ignore_ascii_case("filename*"));
    let extended = extended.first().and_then(|(_, value)| value.rsplit_once("''"));
    let extended = extended.map(|(_, value)| percent_decode_str(value).decode_utf8_lossy().into_owned());
    let plain = || {
        plain
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("filename"))
            .map(|(_, v)| v.trim_matches('"').to_owned())
    };
    extended.or_else(plain).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_server_gives() {
        for (value, name) in [
            ("attachment; filename=\"a b.txt\"", Some("a b.txt")),
            ("attachment; filename=x; filename*=UTF-8''%C3%BC.txt", Some("ü.txt")),
            ("inline", None),
        ] {
            assert_eq!(disposition(value).as_deref(), name);
        }
    }
}
