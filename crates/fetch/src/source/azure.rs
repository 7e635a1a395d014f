//! Azure Blob Storage, also of accounts with folders (Data Lake): their files are blobs too.

mod credentials;

use super::extent::Extent;
use super::objects::{self, Object, PATH, Page, Prefix, SEGMENT, nothing};
use super::xml::{self, Document, Node};
use super::{Content, Listing, Opened, Told, broken_off, incomplete, no_ranges, patiently, range_header};
use crate::http::{Answer, Bound, Client, Fault, Reading, Redirects, request, set};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::location::Blobs;
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::{Settings, Variables};
use crate::plan::verify::Check;
use credentials::{Credentials, EMULATOR, connection};
use http::Method;
use percent_encoding::utf8_percent_encode;
use std::ops::Range;

/// Of 2021-12-02: the newest that Azurite and the clouds of nations all know.
const VERSION: &str = "2021-12-02";

pub struct Container {
    container: String,
    prefix: String,
    account: String,
    /// With the account, where it is part of the path.
    endpoint: String,
    credentials: Credentials,
    filter: Filter,
    client: Client,
    /// Bytes of memory that a listing may take.
    listing: usize,
}

/// The account's name and where its blobs are.
fn place(given: Option<&str>, variables: &Variables) -> Result<(String, String, bool), Error> {
    let connection = connection(variables.get("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default());
    let is_true = |text: &String| text.eq_ignore_ascii_case("true") || text == "1";
    let is_emulator = connection.get("usedevelopmentstorage").is_some_and(is_true)
        || variables.get("AZURE_STORAGE_USE_EMULATOR").is_some_and(|text| is_true(&text.to_owned()));
    let given = given.map(|host| host.split_once('.').map_or((host, None), |(name, rest)| (name, Some(rest))));
    let named = connection.get("accountname").map(String::as_str);
    let named = named.or_else(|| variables.first(&["AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"]));
    let account = given.map(|(name, _)| name).or(named).or(is_emulator.then_some(EMULATOR));
    let account = account.map(str::trim).ok_or_else(|| {
        Error::config("no account of Azure's storage is named: set AZURE_STORAGE_ACCOUNT, or write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH")
    })?;
    let endpoint = connection.get("blobendpoint").map(String::as_str);
    let endpoint = endpoint.or_else(|| variables.first(&["AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_BLOB_ENDPOINT"]));
    let endpoint = endpoint.or(is_emulator.then_some("http://127.0.0.1:10000"));
    let endpoint = match endpoint {
        Some(endpoint) => endpoint.trim().trim_end_matches('/').to_owned(),
        None => {
            let suffix =
                given.and_then(|(_, rest)| rest).map(|rest| rest.split_once('.').map_or(rest, |(_, rest)| rest));
            let suffix = suffix.or_else(|| connection.get("endpointsuffix").map(String::as_str));
            format!("https://{account}.blob.{}", suffix.unwrap_or("core.windows.net"))
        }
    };
    let uri = endpoint.parse::<http::Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    let uri = uri.ok_or_else(|| {
        Error::config(format!("the address of Azure's storage is {:?}, which is no URL", shown(&endpoint)))
    })?;
    // an emulator has no name for each account: there the account begins the path
    let host = uri.host().unwrap_or_default();
    let is_bare = uri.path().trim_matches('/').is_empty();
    let in_path = is_bare
        && (is_emulator || host == "localhost" || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok());
    let endpoint = if in_path { format!("{endpoint}/{account}") } else { endpoint };
    Ok((account.to_owned(), endpoint, is_emulator))
}

impl Container {
    /// # Errors
    /// An account that is not named, an endpoint that is no URL.
    pub fn new(blobs: Blobs, settings: &Settings, client: &Client) -> Result<Self, Error> {
        let (account, endpoint, is_emulator) = place(blobs.account.as_deref(), &settings.variables)?;
        Ok(Self {
            container: blobs.container,
            prefix: blobs.prefix,
            credentials: Credentials::new(&settings.variables, client, is_emulator && account == EMULATOR),
            account,
            endpoint,
            filter: settings.filter(),
            client: client.clone(),
            listing: settings.listing,
        })
    }

    /// `az://container`
    fn name(&self) -> String {
        format!("az://{} of {}", self.container, self.account)
    }

    async fn ask(
        &self,
        method: Method,
        key: &str,
        query: &str,
        headers: &[(&'static str, String)],
    ) -> Result<Answer, Fault> {
        let container = utf8_percent_encode(&self.container, &SEGMENT);
        let mut url = format!("{}/{container}", self.endpoint);
        if !key.is_empty() {
            url.push_str(&format!("/{}", utf8_percent_encode(key, &PATH)));
        }
        let mut sign = '?';
        for query in [Some(query).filter(|query| !query.is_empty()), self.credentials.query()].into_iter().flatten() {
            url.push(sign);
            url.push_str(query);
            sign = '&';
        }
        let mut is_renewed = false;
        loop {
            let mut request = request(method.clone(), &url)?;
            let date = jiff::fmt::rfc2822::DateTimePrinter::new();
            let date = date.timestamp_to_rfc9110_string(&jiff::Timestamp::now());
            set(&mut request, "x-ms-date", &date.map_err(|e| Error::new(Kind::Other, format!("the clock: {e}")))?)?;
            set(&mut request, "x-ms-version", VERSION)?;
            for (name, value) in headers {
                set(&mut request, name, value)?;
            }
            let token = self.credentials.sign(&mut request, &self.account).await?;
            let answer = self.client.send(request, Redirects::Follow).await?;
            match token {
                // it may have expired, or been taken back, before its time: once more with a new one
                Some(token) if matches!(answer.status.as_u16(), 401 | 403) && !is_renewed => {
                    self.credentials.forget(&token).await;
                    is_renewed = true;
                }
                _ => return Ok(answer),
            }
        }
    }

    async fn page(&self, prefix: &str, delimiter: bool, most: u32, marker: Option<&str>) -> Result<Page, Fault> {
        let encoded = |text: &str| utf8_percent_encode(text, &SEGMENT).to_string();
        let mut query = format!("restype=container&comp=list&include=metadata&maxresults={most}");
        if !prefix.is_empty() {
            query.push_str(&format!("&prefix={}", encoded(prefix)));
        }
        if delimiter {
            query.push_str("&delimiter=%2F");
        }
        if let Some(marker) = marker {
            query.push_str(&format!("&marker={}", encoded(marker)));
        }
        patiently(|| async {
            let answer = self.ask(Method::GET, "", &query, &[]).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, prefix).await);
            }
            let text = answer.text(Bound::LARGE_PAGE).await?;
            // it begins with a byte order mark
            let listing = xml::parse(text.trim_start_matches('\u{feff}'));
            let listing = listing.as_ref().map(Document::root).filter(|root| root.name() == "EnumerationResults");
            match listing.map(page) {
                Some(page) => page.map_err(|why| incomplete(&self.name(), &why)),
                None if text.contains("<EnumerationResults") => Err(broken_off(&self.name())),
                None => {
                    let text = format!("{}: the answer is no listing of Azure's; is the address right?", self.name());
                    Err(Error::new(Kind::Other, text).into())
                }
            }
        })
        .await
    }

    /// All objects that the prefix means.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be read.
    pub async fn list(&self) -> Result<Listing, Fault> {
        let prefix = Prefix::new(&self.prefix);
        let mut exact = None;
        if let Some(key) = prefix.exact {
            // of all names that begin so, the one that is the prefix itself comes first
            exact = self.page(key, false, 1, None).await?.objects.into_iter().find(|object| object.key == key);
        }
        let mut below = Vec::new();
        let mut marker: Option<String> = None;
        let extent = Extent::new(self.name(), self.listing);
        let mut chain = extent.chain();
        loop {
            let page = self.page(&prefix.folder, false, 5000, marker.as_deref()).await?;
            marker = page.counted(&extent, &mut chain)?;
            below.extend(page.objects);
            if marker.is_none() {
                break;
            }
        }
        if let Some(listing) = prefix.listing(&self.name(), exact, below, &self.filter) {
            return Ok(listing);
        }
        let keys = async |prefix: String, most: u32| Ok(self.page(&prefix, true, most, None).await?.names());
        Err(nothing(&self.name(), &self.prefix, keys).await?.into())
    }

    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn describe(&self, entry: &Entry) -> Result<Entry, Fault> {
        patiently(|| async {
            let answer = self.ask(Method::HEAD, &entry.source, "", &[]).await?;
            if !answer.status.is_success() {
                return Err(self.refused(answer, &entry.source).await);
            }
            let check = answer.header("content-md5").and_then(|value| Check::from_base64("md5", value));
            let version = answer.header("etag").map(str::to_owned);
            Ok(Entry { size: answer.length(), ranges: version.is_some(), check, version, ..entry.clone() })
        })
        .await
    }

    /// # Errors
    /// It cannot be read, or is no longer this version.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        let mut headers = Vec::new();
        headers.extend(entry.version.iter().map(|version| ("if-match", version.clone())));
        headers.extend(range.iter().map(|range| ("range", range_header(range))));
        let answer = self.ask(Method::GET, &entry.source, "", &headers).await?;
        let changed = |why: &str| Err(Fault::Changed(format!("{}/{}: {why}", self.name(), entry.source)));
        match answer.reading(range.as_ref(), entry.size) {
            Reading::Asked => {}
            Reading::Whole => return Err(no_ranges(&format!("{}/{}", self.name(), entry.source))),
            Reading::Other => return changed("the server sends another range than it was asked for"),
            Reading::Refused if answer.status == 412 => return changed("the blob was replaced while it was fetched"),
            Reading::Refused => return Err(self.refused(answer, &entry.source).await),
        }
        Ok(Opened { content: Content::Net(answer.body), told: Told::Nothing, is_packed: false })
    }

    async fn refused(&self, answer: Answer, key: &str) -> Fault {
        let general = answer.fault(&self.name());
        if matches!(general, Fault::Again(..)) {
            return general;
        }
        let status = answer.status.as_u16();
        let code = answer.header("x-ms-error-code").map(str::to_owned);
        let (name, object) = (self.name(), format!("{}/{key}", self.name()));
        // the body's texts repeat what was signed
        let code = match (code, answer.refusal().await) {
            (Some(code), _) => code,
            (None, Ok(text)) => xml::parse(text.trim_start_matches('\u{feff}'))
                .and_then(|e| e.root().text("Code").map(str::to_owned))
                .unwrap_or_default(),
            (None, Err(fault)) => return fault,
        };
        let (kind, text) = match (code.as_str(), status) {
            ("ContainerNotFound", _) => {
                (Kind::NotFound, format!("{name}: there is no such container; check its name and the account"))
            }
            ("BlobArchived" | "BlobBeingRehydrated", _) => (
                Kind::NoAccess,
                format!("{object}: the blob is archived; bring it to the hot or cool tier first, then run this again"),
            ),
            (_, 401 | 403 | 404 | 409) if self.credentials.are_nobodys().await => (
                Kind::NoAccess,
                format!(
                    "{object}: it is not open to all, and no credentials were found ({status} {code}); set AZURE_STORAGE_KEY, \
                     AZURE_STORAGE_SAS_TOKEN, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
                ),
            ),
            ("BlobNotFound" | "ResourceNotFound", _) | (_, 404) => {
                (Kind::NotFound, format!("{object}: there is no such blob"))
            }
            ("AuthenticationFailed" | "InvalidAuthenticationInfo", _) => (
                Kind::NoAccess,
                format!(
                    "{object}: the server does not take the credentials ({code}); check the key, whether a signature (SAS) has \
                     expired, and this machine's clock"
                ),
            ),
            (_, 401 | 403) => (
                Kind::NoAccess,
                format!(
                    "{object}: the credentials have no right to read it ({code}); it takes the role Storage Blob Data Reader, of a \
                     signature (SAS) the rights to read and to list"
                ),
            ),
            _ => (Kind::Other, format!("{object}: the server answers {status} {code}")),
        };
        Error::new(kind, text).into()
    }
}

/// Names with characters that XML lacks are percent-encoded, and say so. Also whether the name is no UTF-8.
fn name_of(node: Node<'_>) -> Option<(String, bool)> {
    let name = node.text("Name")?;
    match node.child("Name").is_some_and(Node::is_encoded) {
        true => Some(objects::decoded(name)),
        false => Some((name.to_owned(), name.contains('\u{fffd}'))),
    }
}

fn page(listing: Node<'_>) -> Result<Page, String> {
    let object = |node: Node<'_>| {
        let (key, is_garbled) = name_of(node).ok_or("a blob has no name")?;
        let properties = node.child("Properties").ok_or_else(|| format!("the blob {key:?} has no properties"))?;
        let is_folder = properties.text("ResourceType") == Some("directory")
            || node
                .child("Metadata")
                .and_then(|metadata| metadata.text("hdi_isfolder"))
                .is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let size = properties.text("Content-Length").and_then(|size| size.trim().parse().ok());
        let size = size.or(is_folder.then_some(0)).ok_or_else(|| format!("the blob {key:?} has no size"))?;
        let etag = properties.text("Etag").map(|etag| etag.trim_matches('"')).filter(|etag| !etag.is_empty());
        Ok::<Object, String>(Object {
            is_mark: is_folder || key.ends_with('/') && size == 0,
            is_garbled,
            is_packed: false,
            version: etag.map(|etag| format!("\"{etag}\"")),
            check: properties.text("Content-MD5").and_then(|value| Check::from_base64("md5", value)),
            key,
            size,
        })
    };
    let blobs = listing.child("Blobs");
    Ok(Page {
        objects: blobs.into_iter().flat_map(|blobs| blobs.all("Blob")).map(object).collect::<Result<_, _>>()?,
        folders: blobs
            .into_iter()
            .flat_map(|blobs| blobs.all("BlobPrefix"))
            .filter_map(|node| name_of(node).map(|(name, _)| name))
            .collect(),
        next: listing.text("NextMarker").filter(|next| !next.is_empty()).map(str::to_owned),
        is_cut: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(given: Option<&str>, pairs: &[(&str, &str)]) -> Result<(String, String, bool), Error> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        place(given, &Variables::new(pairs))
    }

    #[test]
    fn accounts_and_their_addresses() {
        let account = ("AZURE_STORAGE_ACCOUNT", "acc");
        for (given, pairs, found, address) in [
            (None, &[account][..], "acc", "https://acc.blob.core.windows.net"),
            (Some("x.dfs.core.chinacloudapi.cn"), &[account], "x", "https://x.blob.core.chinacloudapi.cn"),
            (Some("x"), &[], "x", "https://x.blob.core.windows.net"),
            (None, &[("AZURE_STORAGE_USE_EMULATOR", "true")], EMULATOR, "http://127.0.0.1:10000/devstoreaccount1"),
            (None, &[account, ("AZURE_STORAGE_ENDPOINT", "http://localhost:7/")], "acc", "http://localhost:7/acc"),
            (None, &[account, ("AZURE_STORAGE_ENDPOINT", "https://a.b.c")], "acc", "https://a.b.c"),
            (
                None,
                &[(
                    "AZURE_STORAGE_CONNECTION_STRING",
                    "AccountName=n;AccountKey=eA==;BlobEndpoint=http://127.0.0.1:1/n;",
                )],
                "n",
                "http://127.0.0.1:1/n",
            ),
        ] {
            let (name, endpoint, _) = placed(given, pairs).unwrap();
            assert_eq!((name.as_str(), endpoint.as_str()), (found, address));
        }
        assert_eq!(placed(None, &[]).unwrap_err().exit_code(), 2);
        assert_eq!(placed(Some("x"), &[("AZURE_STORAGE_ENDPOINT", "nonsense")]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn folders_of_accounts_with_folders_are_no_files() {
        let text = "<EnumerationResults><Blobs><Blob><Name>a</Name><Properties><Content-Length>0</Content-Length><ResourceType>directory\
                    </ResourceType></Properties></Blob><Blob><Name>b</Name><Properties><Content-Length>0</Content-Length></Properties>\
                    <Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob><Blob><Name Encoded=\"true\">c%01</Name><Properties>\
                    <Content-Length>3</Content-Length><Etag>0x1</Etag></Properties></Blob></Blobs></EnumerationResults>";
        let all = page(xml::parse(text).unwrap().root()).unwrap().objects;
        assert_eq!(all.iter().map(|object| object.is_mark).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!((all[2].key.as_str(), all[2].version.as_deref()), ("c\u{1}", Some("\"0x1\"")));
    }
}
