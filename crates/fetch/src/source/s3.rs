//! S3 and what speaks like it.

mod credentials;
mod stretches;

use super::extent::Extent;
use super::objects::{self, Object, PATH, Page, Prefix, SEGMENT, nothing};
use super::xml::{self, Document, Node};
use super::{Content, Listing, Opened, Told, broken_off, incomplete, no_ranges, patiently, range_header};
use crate::http::{Answer, Bound, Client, Fault, Reading, Redirects, request, set};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::location::Objects;
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::Settings;
use crate::plan::verify::Check;
use credentials::Credentials;
use http::Method;
use percent_encoding::utf8_percent_encode;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use stretches::From;

/// What servers call credentials that were valid once.
const EXPIRED: [&str; 6] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestExpired",
    "InvalidAccessKeyId",
];

pub struct Bucket {
    objects: Objects,
    /// `None`: AWS.
    endpoint: Option<String>,
    /// Where the bucket is; the server may know better.
    region: Mutex<String>,
    credentials: Credentials,
    filter: Filter,
    client: Client,
    /// Bytes of memory that a listing may take.
    listing: usize,
}

impl Bucket {
    /// # Errors
    /// An endpoint that is no URL.
    pub fn new(objects: Objects, settings: &Settings, client: &Client) -> Result<Self, Error> {
        let variables = &settings.variables;
        let endpoint = variables.first(&[
            "ENDPOINT",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT",
            "AWS_S3_ENDPOINT",
        ]);
        let endpoint = endpoint.map(|endpoint| {
            let endpoint = endpoint.trim().trim_end_matches('/');
            if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") }
        });
        if let Some(endpoint) = &endpoint
            && endpoint.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::len)).is_none()
        {
            return Err(Error::config(format!("ENDPOINT is {:?}, which is no URL", shown(endpoint))));
        }
        let region =
            variables.first(&["REGION", "AWS_REGION", "AWS_DEFAULT_REGION"]).filter(|region| *region != "auto");
        Ok(Self {
            objects,
            endpoint,
            region: Mutex::new(region.unwrap_or("us-east-1").trim().to_owned()),
            credentials: Credentials::new(variables, client),
            filter: settings.filter(),
            client: client.clone(),
            listing: settings.listing,
        })
    }

    fn region(&self) -> String {
        self.region.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `s3://bucket`
    fn name(&self) -> String {
        format!("s3://{}", self.objects.bucket)
    }

    fn url(&self, key: &str, query: &str) -> String {
        let (bucket, key) = (&self.objects.bucket, utf8_percent_encode(key, &PATH));
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}{}{key}{query}", if query.is_empty() { "/" } else { "" }),
            None => {
                let host = format!("s3.{}.amazonaws.com", self.region());
                // a certificate's star stands for one label
                if bucket.contains('.') {
                    format!("https://{host}/{bucket}/{key}{query}")
                } else {
                    format!("https://{bucket}.{host}/{key}{query}")
                }
            }
        }
    }

    /// One signed request; of a bucket in another region, to there.
    async fn ask(
        &self,
        method: Method,
        key: &str,
        query: &str,
        headers: &[(&'static str, String)],
    ) -> Result<Answer, Fault> {
        let mut is_renewed = false;
        for _ in 0..4 {
            let region = self.region();
            let mut request = request(method.clone(), &self.url(key, query))?;
            for (name, value) in headers {
                set(&mut request, name, value)?;
            }
            let request = self.credentials.sign(request, &region).await?;
            let is_signed = request.headers().contains_key(http::header::AUTHORIZATION);
            let mut answer = self.client.send(request.clone(), Redirects::Show).await?;
            // a refusal of HEAD says no more than its status
            if is_signed && matches!(answer.status.as_u16(), 400 | 401 | 403) && !is_renewed {
                let code = match method {
                    Method::HEAD => None,
                    _ => xml::parse(&answer.peeked().await?)
                        .and_then(|error| error.root().text("Code").map(str::to_owned)),
                };
                let may_be_old = match code {
                    Some(code) => EXPIRED.contains(&code.as_str()),
                    None => method == Method::HEAD,
                };
                if may_be_old && self.credentials.renewed(&request).await? {
                    is_renewed = true;
                    continue;
                }
            }
            // servers for tests check no key, but want one: theirs is any
            let refused = answer.status.as_u16() == 403 && !is_signed;
            if refused && self.endpoint.is_some() && self.credentials.pretend().await {
                continue;
            }
            let elsewhere = matches!(answer.status.as_u16(), 301 | 307 | 400 | 403);
            match answer.header("x-amz-bucket-region").filter(|other| elsewhere && *other != region) {
                Some(other) => *self.region.lock().unwrap_or_else(PoisonError::into_inner) = other.to_owned(),
                None if elsewhere && answer.status.as_u16() != 403 && method != Method::HEAD => {
                    let (status, text) = (answer.status, answer.refusal().await?);
                    let said = xml::parse(&text).and_then(|error| error.root().text("Region").map(str::to_owned));
                    match said.filter(|other| *other != region) {
                        Some(other) => *self.region.lock().unwrap_or_else(PoisonError::into_inner) = other,
                        None => return Err(self.refusal(status.as_u16(), &text, key)),
                    }
                }
                None => return Ok(answer),
            }
        }
        let text = format!("{}: the servers send from region to region; set REGION to the bucket's", self.name());
        Err(Error::new(Kind::Other, text).into())
    }

    async fn page(&self, prefix: &str, delimiter: bool, most: u32, from: &From) -> Result<Page, Fault> {
        let encoded = |text: &str| utf8_percent_encode(text, &SEGMENT).to_string();
        let mut query = Vec::new();
        if let From::Rest(token) = from {
            query.push(format!("continuation-token={}", encoded(token)));
        }
        query.extend(delimiter.then(|| "delimiter=%2F".to_owned()));
        query.push("encoding-type=url".to_owned());
        query.push("list-type=2".to_owned());
        query.push(format!("max-keys={most}"));
        query.push(format!("prefix={}", encoded(prefix)));
        if let From::After(key) = from {
            query.push(format!("start-after={}", encoded(key)));
        }
        let query = query.join("&");
        patiently(|| async {
            let answer = self.ask(Method::GET, "", &query, &[]).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, prefix).await);
            }
            let text = answer.text(Bound::PAGE).await?;
            let listing = xml::parse(&text);
            let listing = listing.as_ref().map(Document::root).filter(|root| root.name() == "ListBucketResult");
            match listing.map(page) {
                Some(page) => page.map_err(|why| incomplete(&self.name(), &why)),
                None if text.contains("<ListBucketResult") => Err(broken_off(&self.name())),
                None => {
                    let text = format!("{}: the answer is no listing of S3's; is ENDPOINT right?", self.name());
                    Err(Error::new(Kind::Other, text).into())
                }
            }
        })
        .await
    }

    /// All objects that the prefix means. `known`: keys that were there when it was listed last, or none.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read.
    pub async fn list(self: &Arc<Self>, known: Vec<&str>) -> Result<Listing, Fault> {
        let prefix = Prefix::new(&self.objects.prefix);
        let mut exact = None;
        if let Some(key) = prefix.exact {
            // of all keys that begin so, the one that is the prefix itself comes first
            let first = self.page(key, false, 1, &From::Start).await?;
            exact = first.objects.into_iter().find(|object| object.key == key);
        }
        let (bucket, folder): (_, Arc<str>) = (Arc::clone(self), prefix.folder.as_str().into());
        let page = move |from: From| {
            let (bucket, folder) = (Arc::clone(&bucket), Arc::clone(&folder));
            async move { bucket.page(&folder, false, 1000, &from).await }
        };
        let extent = Arc::new(Extent::new(self.name(), self.listing));
        let below = stretches::listed(page, extent, stretches::bounds(known)).await?;
        if let Some(listing) = prefix.listing(&self.name(), exact, below, &self.filter) {
            return Ok(listing);
        }
        let keys = async |prefix: String, most: u32| Ok(self.page(&prefix, true, most, &From::Start).await?.names());
        Err(nothing(&self.name(), &self.objects.prefix, keys).await?.into())
    }

    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn describe(&self, entry: &Entry) -> Result<Entry, Fault> {
        let checksums = [("x-amz-checksum-mode", "ENABLED".to_owned())];
        patiently(|| async {
            let answer = self.ask(Method::HEAD, &entry.source, "", &checksums).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, &entry.source).await);
            }
            let etag = answer.header("etag").unwrap_or_default().to_owned();
            let listed = Check::from_hex("md5", etag.trim_matches('"'));
            let check = match told(&answer) {
                Told::Nothing => listed,
                Told::NoChecksum => None,
                Told::Checksum(check) => Some(check),
            };
            let version = Some(etag).filter(|etag| !etag.is_empty());
            Ok(Entry { size: answer.length(), ranges: version.is_some(), check, version, ..entry.clone() })
        })
        .await
    }

    /// # Errors
    /// It cannot be read, or is no longer this version.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        let mut headers = Vec::new();
        if let Some(version) = &entry.version {
            headers.push(("if-match", version.clone()));
        }
        match &range {
            Some(range) => headers.push(("range", range_header(range))),
            None => headers.push(("x-amz-checksum-mode", "ENABLED".to_owned())),
        }
        let answer = self.ask(Method::GET, &entry.source, "", &headers).await?;
        let changed = |why: &str| Err(Fault::Changed(format!("{}/{}: {why}", self.name(), entry.source)));
        match answer.reading(range.as_ref(), entry.size) {
            Reading::Asked => {}
            Reading::Whole => return Err(no_ranges(&format!("{}/{}", self.name(), entry.source))),
            Reading::Other => return changed("the server sends another range than it was asked for"),
            Reading::Refused if answer.status == 412 => return changed("the object was replaced while it was fetched"),
            Reading::Refused => return Err(self.refused(answer, &entry.source).await),
        }
        let told = if range.is_none() { told(&answer) } else { Told::Nothing };
        Ok(Opened { content: Content::Net(answer.body), told, is_packed: false })
    }

    async fn refused(&self, answer: Answer, key: &str) -> Fault {
        let general = answer.fault(&self.name());
        if matches!(general, Fault::Again(..)) {
            return general;
        }
        let status = answer.status.as_u16();
        match answer.refusal().await {
            Ok(text) => self.refusal(status, &text, key),
            Err(fault) => fault,
        }
    }

    fn refusal(&self, status: u16, text: &str, key: &str) -> Fault {
        let error = xml::parse(text);
        let said = |name: &str| error.as_ref().and_then(|error| error.root().text(name)).unwrap_or_default().to_owned();
        let (name, code, message) = (self.name(), said("Code"), said("Message"));
        let object = format!("{name}/{key}");
        let has_keys = self.credentials.are_found();
        let (kind, text) = match (code.as_str(), status) {
            ("NoSuchBucket", _) => {
                (Kind::NotFound, format!("{name}: there is no such bucket; check its name, ENDPOINT and REGION"))
            }
            ("NoSuchKey", _) | (_, 404) => (Kind::NotFound, format!("{object}: there is no such object")),
            ("InvalidObjectState", _) => (
                Kind::NoAccess,
                format!("{object}: the object is archived (Glacier); restore it first, then run this again"),
            ),
            ("RequestTimeTooSkewed", _) => (
                Kind::NoAccess,
                format!(
                    "{object}: the clock of this machine is not the server's ({message}); set it right (by NTP), then run this again"
                ),
            ),
            (_, 401 | 403) if !has_keys => (
                Kind::NoAccess,
                format!(
                    "{object}: it is not open to all, and no credentials were found; set ACCESS_KEY_ID and SECRET_ACCESS_KEY"
                ),
            ),
            (
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired",
                _,
            ) => (
                Kind::NoAccess,
                format!(
                    "{object}: the server does not take the credentials ({code}: {message}); check ACCESS_KEY_ID and SECRET_ACCESS_KEY"
                ),
            ),
            ("PreconditionFailed", _) | (_, 412) => {
                return Fault::Changed(format!("{object}: the object was replaced while it was fetched"));
            }
            ("SlowDown" | "InternalError" | "ServiceUnavailable" | "RequestTimeout", _) => {
                return Fault::Again(
                    crate::plan::pace::Failure::Server,
                    format!("{object}: the server answers {code}"),
                );
            }
            (_, 401 | 403) => (
                Kind::NoAccess,
                format!(
                    "{object}: the credentials have no right to read it ({code} {message}); it takes s3:ListBucket and s3:GetObject"
                ),
            ),
            _ => (Kind::Other, format!("{object}: the server answers {status} {code}: {message}")),
        };
        Error::new(kind, text).into()
    }
}

/// What the headers say of the whole object. An etag of an object that is encrypted with a key of KMS or the caller's is no MD5.
fn told(answer: &Answer) -> Told {
    let composite = answer.header("x-amz-checksum-type").is_some_and(|value| value.eq_ignore_ascii_case("COMPOSITE"));
    for name in ["sha256", "sha1", "crc64nvme", "crc32c", "crc32"] {
        // the value of a composite one ends in -PARTS, and is no base64 of the right length
        let value = answer.header(&format!("x-amz-checksum-{name}")).filter(|_| !composite);
        if let Some(check) = value.and_then(|value| Check::from_base64(name, value)) {
            return Told::Checksum(check);
        }
    }
    let kms = answer.header("x-amz-server-side-encryption").is_some_and(|value| value.starts_with("aws:kms"));
    let own = answer.header("x-amz-server-side-encryption-customer-algorithm").is_some();
    if kms || own { Told::NoChecksum } else { Told::Nothing }
}

fn page(listing: Node<'_>) -> Result<Page, String> {
    let encoded = listing.text("EncodingType") == Some("url");
    let object = |node: Node<'_>| {
        let (key, is_garbled) = decoded(node.text("Key").ok_or("an object has no key")?, encoded);
        let size = node.text("Size").and_then(|size| size.trim().parse().ok());
        let size = size.ok_or_else(|| format!("the object {key:?} has no size"))?;
        let etag = node.text("ETag").unwrap_or_default().trim_matches('"');
        Ok::<Object, String>(Object {
            is_mark: key.ends_with('/') && size == 0,
            is_garbled,
            is_packed: false,
            // a multipart etag, or one of a service that makes its own, is no MD5 of the content
            check: Check::from_hex("md5", etag),
            version: Some(etag).filter(|etag| !etag.is_empty()).map(|etag| format!("\"{etag}\"")),
            key,
            size,
        })
    };
    let folders = listing.all("CommonPrefixes").filter_map(|node| node.text("Prefix"));
    let is_truncated = listing.text("IsTruncated").is_some_and(|text| text.trim() == "true");
    let next = listing.text("NextContinuationToken").filter(|token| !token.is_empty());
    let mut objects = Vec::with_capacity(listing.all("Contents").count());
    for node in listing.all("Contents") {
        objects.push(object(node)?);
    }
    let folders = folders.map(|folder| decoded(folder, encoded).0).collect();
    let is_cut = is_truncated && next.is_none();
    Ok(Page { objects, folders, next: next.filter(|_| is_truncated).map(str::to_owned), is_cut })
}

/// Listings encode keys as forms do.
fn decoded(text: &str, encoded: bool) -> (String, bool) {
    match encoded {
        true if text.contains(['%', '+']) => objects::decoded(&text.replace('+', " ")),
        true => (text.to_owned(), false),
        // what was no UTF-8 was replaced when the answer was read
        false => (text.to_owned(), text.contains('\u{fffd}')),
    }
}
