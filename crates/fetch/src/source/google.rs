//! Google Cloud Storage, by its JSON API.

mod credentials;

use super::extent::Extent;
use super::objects::{Object, Page, Prefix, SEGMENT, nothing};
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
use serde_json::Value;
use std::ops::Range;

const FIELDS: &str = "name,size,generation,crc32c,md5Hash,contentEncoding";

pub struct Bucket {
    objects: Objects,
    endpoint: String,
    credentials: Credentials,
    /// Whose account pays for what is read, where the bucket's owner does not.
    project: Option<String>,
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
        let emulator = variables.get("STORAGE_EMULATOR_HOST");
        let endpoint = match (emulator, variables.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE")) {
            (Some(host), _) if !host.contains("://") => format!("http://{host}"),
            (Some(given), _) | (None, Some(given)) => given.to_owned(),
            (None, None) => "https://storage.googleapis.com".to_owned(),
        };
        let endpoint = endpoint.trim().trim_end_matches('/').trim_end_matches("/storage/v1").to_owned();
        if endpoint.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::len)).is_none() {
            let text = format!("the address of Google's storage is {:?}, which is no URL", shown(&endpoint));
            return Err(Error::config(text));
        }
        let credentials = Credentials::new(variables, client, emulator.is_some());
        let project = variables.get("GOOGLE_CLOUD_QUOTA_PROJECT").map(str::to_owned);
        Ok(Self {
            objects,
            endpoint,
            project: project.or_else(|| credentials.project()),
            credentials,
            filter: settings.filter(),
            client: client.clone(),
            listing: settings.listing,
        })
    }

    /// `gs://bucket`
    fn name(&self) -> String {
        format!("gs://{}", self.objects.bucket)
    }

    async fn ask(&self, path: &str, headers: &[(&'static str, String)]) -> Result<Answer, Fault> {
        let bucket = utf8_percent_encode(&self.objects.bucket, &SEGMENT);
        let mut is_renewed = false;
        loop {
            let mut request = request(Method::GET, &format!("{}/storage/v1/b/{bucket}/o{path}", self.endpoint))?;
            let token = self.credentials.token().await?;
            if let Some(token) = &token {
                set(&mut request, "authorization", &format!("Bearer {token}"))?;
            }
            if let Some(project) = &self.project {
                set(&mut request, "x-goog-user-project", project)?;
            }
            for (name, value) in headers {
                set(&mut request, name, value)?;
            }
            let answer = self.client.send(request, Redirects::Follow).await?;
            match token {
                // it may have expired, or been taken back, before its time: once more with a new one
                Some(token) if answer.status == 401 && !is_renewed => {
                    self.credentials.forget(&token).await;
                    is_renewed = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    async fn json(&self, path: &str, key: &str) -> Result<Value, Fault> {
        patiently(|| async {
            let answer = self.ask(path, &[]).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, key).await);
            }
            let text = answer.text(Bound::PAGE).await?;
            let wrong =
                || Error::new(Kind::Other, format!("{}: the answer is no JSON; is the address right?", self.name()));
            serde_json::from_str(&text).map_err(|e| if e.is_eof() { broken_off(&self.name()) } else { wrong().into() })
        })
        .await
    }

    async fn page(&self, prefix: &str, delimiter: bool, most: u32, token: Option<&str>) -> Result<Value, Fault> {
        let encoded = |text: &str| utf8_percent_encode(text, &SEGMENT).to_string();
        let mut query = format!("?maxResults={most}&prefix={}", encoded(prefix));
        query.push_str(&format!("&fields=nextPageToken,prefixes,items({FIELDS})"));
        if delimiter {
            query.push_str("&delimiter=%2F");
        }
        if let Some(token) = token {
            query.push_str(&format!("&pageToken={}", encoded(token)));
        }
        self.json(&query, prefix).await
    }

    async fn below(&self, folder: &str) -> Result<Vec<Object>, Fault> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        let extent = Extent::new(self.name(), self.listing);
        let mut chain = extent.chain();
        loop {
            let page = self.page(folder, false, 1000, token.as_deref()).await?;
            let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
            let objects: Option<Vec<Object>> = items.iter().map(object).collect();
            let objects = objects.ok_or_else(|| incomplete(&self.name(), "an object has no name or no size"))?;
            let next = page["nextPageToken"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
            let page = Page { objects, next, ..Page::default() };
            token = page.counted(&extent, &mut chain)?;
            all.extend(page.objects);
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    /// All objects that the prefix means.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read.
    pub async fn list(&self) -> Result<Listing, Fault> {
        let prefix = Prefix::new(&self.objects.prefix);
        let mut first = Value::Null;
        if let Some(key) = prefix.exact {
            // of all names that begin so, the one that is the prefix itself comes first
            let page = self.page(key, false, 1, None).await?;
            let found = page["items"].as_array().into_iter().flatten().find(|item| item["name"] == key);
            first = found.cloned().unwrap_or_default();
        }
        let below = self.below(&prefix.folder).await?;
        let exact = object(&first);
        let packed: Vec<&str> =
            below.iter().chain(&exact).filter(|one| one.is_packed).map(|one| one.key.as_str()).collect();
        let warning = packed.first().map(|first| {
            format!(
                "{}: {} objects are stored packed (Content-Encoding: gzip), among them {first:?}; they come as they are stored",
                self.name(),
                packed.len()
            )
        });
        if let Some(mut listing) = prefix.listing(&self.name(), exact, below, &self.filter) {
            listing.warnings.extend(warning);
            return Ok(listing);
        }
        let keys = async |prefix: String, most: u32| {
            let page = self.page(&prefix, true, most, None).await?;
            let names = page["items"].as_array().into_iter().flatten().filter_map(|item| item["name"].as_str());
            let folders = page["prefixes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Ok(names.chain(folders).map(str::to_owned).collect())
        };
        Err(nothing(&self.name(), &self.objects.prefix, keys).await?.into())
    }

    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn describe(&self, entry: &Entry) -> Result<Entry, Fault> {
        let path = format!("/{}?fields={FIELDS}", utf8_percent_encode(&entry.source, &SEGMENT));
        let item = self.json(&path, &entry.source).await?;
        let found = object(&item);
        let unread = || Error::new(Kind::Other, format!("{}/{}: the answer tells no size", self.name(), entry.source));
        let found = found.ok_or_else(unread)?;
        let (size, version, check) = (Some(found.size), found.version, found.check);
        Ok(Entry { size, ranges: version.is_some(), version, check, ..entry.clone() })
    }

    /// # Errors
    /// It cannot be read, or is no longer this version.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        // objects stored with gzip are sent as they are to clients that accept gzip, and only so can be verified
        let mut headers = vec![("accept-encoding", "gzip".to_owned())];
        headers.extend(range.iter().map(|range| ("range", range_header(range))));
        let generation = entry.version.as_ref().map(|version| format!("&generation={version}")).unwrap_or_default();
        let path = format!("/{}?alt=media{generation}", utf8_percent_encode(&entry.source, &SEGMENT));
        let answer = self.ask(&path, &headers).await?;
        let changed = |why: &str| Err(Fault::Changed(format!("{}/{}: {why}", self.name(), entry.source)));
        match answer.reading(range.as_ref(), entry.size) {
            Reading::Asked => {}
            Reading::Whole => return Err(no_ranges(&format!("{}/{}", self.name(), entry.source))),
            Reading::Other => return changed("the server sends another range than it was asked for"),
            Reading::Refused if entry.version.is_some() && matches!(answer.status.as_u16(), 404 | 412) => {
                return changed("the object was replaced while it was fetched");
            }
            Reading::Refused => return Err(self.refused(answer, &entry.source).await),
        }
        if answer
            .header("x-goog-generation")
            .is_some_and(|now| entry.version.as_deref().is_some_and(|then| now != then))
        {
            return changed("the object was replaced while it was fetched");
        }
        Ok(Opened { content: Content::Net(answer.body), told: Told::Nothing, is_packed: false })
    }

    async fn refused(&self, answer: Answer, key: &str) -> Fault {
        let general = answer.fault(&self.name());
        if matches!(general, Fault::Again(..)) {
            return general;
        }
        let status = answer.status.as_u16();
        let said: Value = match answer.refusal().await {
            Ok(text) => serde_json::from_str(&text).unwrap_or_default(),
            Err(fault) => return fault,
        };
        let message = said["error"]["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default();
        let (name, object) = (self.name(), format!("{}/{key}", self.name()));
        let (kind, text) = match status {
            400 if message.contains("requester pays") => (
                Kind::NoAccess,
                format!("{name}: who reads from it pays; set GOOGLE_CLOUD_QUOTA_PROJECT to the project that does"),
            ),
            401 | 403 if self.credentials.are_nobodys().await => (
                Kind::NoAccess,
                format!(
                    "{object}: it is not open to all, and no credentials were found; set GOOGLE_APPLICATION_CREDENTIALS to a \
                     key file (or its content)"
                ),
            ),
            401 => (Kind::NoAccess, format!("{object}: the server does not take the token ({message})")),
            403 => (
                Kind::NoAccess,
                format!(
                    "{object}: the credentials have no right to read it ({message}); it takes the role Storage Object Viewer"
                ),
            ),
            404 => (Kind::NotFound, format!("{object}: there is no such bucket or object ({message})")),
            _ => (Kind::Other, format!("{object}: the server answers {status}: {message}")),
        };
        Error::new(kind, text).into()
    }
}

fn object(item: &Value) -> Option<Object> {
    let text = |name: &str| item[name].as_str().filter(|text| !text.is_empty());
    let key = text("name")?.to_owned();
    let size = text("size")?.parse().ok()?;
    let check = text("crc32c").and_then(|value| Check::from_base64("crc32c", value));
    let check = check.or_else(|| Check::from_base64("md5", text("md5Hash")?));
    Some(Object {
        is_mark: key.ends_with('/') && size == 0,
        // JSON has UTF-8 alone: what was none was replaced when the answer was read
        is_packed: item["contentEncoding"] == "gzip",
        is_garbled: key.contains('\u{fffd}'),
        version: text("generation").map(str::to_owned),
        check,
        key,
        size,
    })
}
