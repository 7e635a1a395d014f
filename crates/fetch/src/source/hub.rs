//! A Hugging Face hub: models and data sets, each commit's files with a checksum of their content.

use super::extent::Extent;
use super::{Content, Listing, Opened, Told, broken_off, no_ranges, patiently, range_header};
use crate::http::{Answer, Bound, Client, Fault, Reading, Redirects, join, request, same_origin, set};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::location::{Kind as What, Repository};
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::settings::{Settings, Variables};
use crate::plan::verify::Check;
use crate::small;
use http::{Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

const DEFAULT: &str = "https://huggingface.co";
/// What stays as it is in a segment of a path.
const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What the hub serves over plain HTTP.
const LARGEST: u64 = 50_000_000_000;

pub struct Hub {
    repository: Repository,
    what: What,
    base: String,
    /// Of `base`: the token is for this server alone.
    origin: Uri,
    /// The variable that forbids to ask it.
    offline: Option<&'static str>,
    token: Option<String>,
    filter: Filter,
    client: Client,
    /// Bytes of memory that a listing may take.
    listing: usize,
    /// Where large files lie, by path in the repository: signed addresses, which expire.
    places: Mutex<BTreeMap<String, Uri>>,
    commit: Mutex<Option<String>>,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
}

#[derive(Deserialize)]
struct Item {
    r#type: String,
    path: String,
    #[serde(default)]
    oid: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

/// As the hub's own client reads a switch.
fn is_on(variables: &Variables, name: &str) -> bool {
    variables.get(name).is_some_and(|value| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str()))
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit())
}

impl Hub {
    /// # Errors
    /// An endpoint that is no URL.
    pub fn new(mut repository: Repository, settings: &Settings, client: &Client) -> Result<Self, Error> {
        let variables = &settings.variables;
        repository.revision = repository.revision.or_else(|| settings.revision.clone());
        let offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"].into_iter().find(|name| is_on(variables, name));
        let base = variables.get("HF_ENDPOINT").unwrap_or(DEFAULT).trim().trim_end_matches('/').to_owned();
        let origin = base.parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
        let origin = origin.ok_or_else(|| {
            Error::config(format!("HF_ENDPOINT is {:?}, which is no URL; write https://HOST", shown(&base)))
        })?;
        Ok(Self {
            repository,
            what: settings.kind,
            base,
            origin,
            offline,
            token: token(variables),
            filter: settings.hub_filter(),
            client: client.clone(),
            listing: settings.listing,
            places: Mutex::default(),
            commit: Mutex::default(),
        })
    }

    fn plural(&self) -> &'static str {
        match self.what {
            What::Dataset => "datasets",
            What::Model => "models",
        }
    }

    /// `hf://owner/name`
    fn name(&self) -> String {
        format!("hf://{}", self.repository.id)
    }

    async fn ask(&self, url: &str, range: Option<&Range<u64>>, redirects: Redirects) -> Result<Answer, Fault> {
        if let Some(variable) = self.offline {
            let name = self.name();
            let text = format!("{name}: {variable} is set, so the hub is not asked; unset it to fetch from the hub");
            return Err(Error::config(text).into());
        }
        let mut request = request(Method::GET, url)?;
        if let Some(token) = self.token.as_ref().filter(|_| same_origin(&self.origin, request.uri())) {
            set(&mut request, "authorization", &format!("Bearer {token}"))?;
        }
        if let Some(range) = range {
            set(&mut request, "range", &range_header(range))?;
        }
        self.client.send(request, redirects).await
    }

    fn known_commit(&self) -> Option<String> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The commit that is meant: asked for once.
    ///
    /// # Errors
    /// No such repository or revision, or no access.
    pub async fn commit(&self) -> Result<String, Fault> {
        if let Some(commit) = self.known_commit() {
            return Ok(commit);
        }
        let revision = self.repository.revision.as_deref().unwrap_or("main");
        let commit = if is_commit(revision) {
            revision.to_ascii_lowercase()
        } else {
            let id = &self.repository.id;
            let encoded = utf8_percent_encode(revision, &SEGMENT);
            let url = format!("{}/api/{}/{id}/revision/{encoded}", self.base, self.plural());
            let (answer, _): (Revision, _) = patiently(|| self.read(&url)).await?;
            if !is_commit(&answer.sha) {
                return Err(Error::new(
                    Kind::Other,
                    format!("{}: the hub names no commit for {revision:?}", self.name()),
                )
                .into());
            }
            answer.sha
        };
        *self.commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(commit.clone());
        Ok(commit)
    }

    fn unreadable(&self, url: &str, error: &serde_json::Error) -> Fault {
        if error.is_eof() {
            return broken_off(&self.name());
        }
        let text = format!("{}: {} is not what a hub answers: {error}; is HF_ENDPOINT right?", self.name(), shown(url));
        Error::new(Kind::Other, text).into()
    }

    /// A JSON answer, and where its next page is.
    async fn read<T: DeserializeOwned>(&self, url: &str) -> Result<(T, Option<Uri>), Fault> {
        let answer = self.ask(url, None, Redirects::Follow).await?;
        if !answer.status.is_success() {
            return Err(self.refused(answer).await);
        }
        let next = answer.header("link").and_then(|links| {
            let link = links.split(',').find(|link| link.contains("rel=\"next\""))?;
            join(&answer.uri, link.split_once('<')?.1.split_once('>')?.0)
        });
        let text = answer.text(Bound::LARGE_PAGE).await?;
        Ok((serde_json::from_str(&text).map_err(|e| self.unreadable(url, &e))?, next))
    }

    /// # Errors
    /// No such repository, no access, or a path that is not there.
    pub async fn list(&self) -> Result<Listing, Fault> {
        let commit = self.commit().await?;
        let id = &self.repository.id;
        let mut url = format!("{}/api/{}/{id}/tree/{commit}?recursive=true&expand=false", self.base, self.plural());
        let path = self.repository.path.as_str();
        let mut inside: Vec<Entry> = Vec::new();
        let mut outside: Vec<Entry> = Vec::new();
        let extent = Extent::new(self.name(), self.listing);
        let mut chain = extent.chain();
        loop {
            let (page, next): (Vec<Item>, _) = patiently(|| self.read(&url)).await?;
            extent.count(page.iter().map(|item| item.path.len()))?;
            let names = page.len();
            for item in page.into_iter().filter(|item| item.r#type == "file") {
                match below(path, &item.path) {
                    Some(target) => inside.push(entry(target, item)),
                    None => outside.push(entry(item.path.clone(), item)),
                }
            }
            match next {
                Some(next) => {
                    url = next.to_string();
                    chain.follow(&url, names)?;
                }
                None => break,
            }
        }
        let mut warnings = Vec::new();
        if inside.is_empty() && !path.is_empty() {
            if !self.repository.path_may_miss {
                let text = format!("{}: there is no {path:?} in commit {commit}", self.name());
                return Err(Error::new(Kind::NotFound, text).into());
            }
            warnings.push(format!("{}: there is no {path:?} in it, so all of it is fetched", self.name()));
            inside = outside;
        }
        let tally = self.filter.tally(inside.iter().map(|entry| entry.source.as_str()));
        let (entries, rest): (Vec<_>, Vec<_>) = inside.into_iter().partition(|entry| self.filter.wants(&entry.source));
        if entries.is_empty() && !rest.is_empty() {
            let why = self.filter.why_nothing(rest.iter().map(|entry| entry.source.as_str()));
            warnings.push(format!("{}: nothing is left to fetch: {why}", self.name()));
        }
        let ends =
            |list: &[Entry], ends: &[&str]| list.iter().any(|entry| ends.iter().any(|end| entry.source.ends_with(end)));
        if self.what == What::Model
            && ends(&rest, &[".bin", ".pt", ".pth", ".h5", ".msgpack"])
            && !ends(&entries, &[".safetensors", ".gguf", ".bin", ".pt", ".pth", ".h5", ".msgpack"])
        {
            warnings.push(format!(
                "{}: no weights are fetched, for the repository has none as safetensors or gguf; ALLOW_PATTERNS=*.json,*.txt,*.model,*.bin \
                 brings those that it has",
                self.name()
            ));
        }
        Ok(Listing { entries, pin: Some(commit), warnings, unfit: Vec::new(), tally })
    }

    /// # Errors
    /// It cannot be read.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        let refuses = |answer: &Answer| matches!(answer.status.as_u16(), 400 | 401 | 403 | 404 | 410);
        let mut was_refused = false;
        if let Some(place) = self.place(&entry.source) {
            let answer = self.ask(&place.to_string(), range.as_ref(), Redirects::Follow).await?;
            if !refuses(&answer) {
                return self.content(entry, range.as_ref(), answer, true).await;
            }
            // the address has expired, or the file has moved: ask the hub anew
            self.set_place(&entry.source, None);
            was_refused = true;
        }
        let commit = self.known_commit().unwrap_or_else(|| "main".to_owned()); // files are opened once they have been listed
        let path: Vec<String> =
            entry.source.split('/').map(|part| utf8_percent_encode(part, &SEGMENT).to_string()).collect();
        let prefix = if self.what == What::Dataset { "datasets/" } else { "" };
        let url = format!("{}/{prefix}{}/resolve/{commit}/{}", self.base, self.repository.id, path.join("/"));
        loop {
            let answer = self.ask(&url, range.as_ref(), Redirects::Follow).await?;
            let is_elsewhere = answer.uri.to_string() != url;
            if is_elsewhere && refuses(&answer) && !was_refused {
                was_refused = true;
                continue;
            }
            // of what comes in one go it is of no use
            if is_elsewhere && answer.status.is_success() && range.is_some() {
                self.set_place(&entry.source, Some(answer.uri.clone()));
            }
            return self.content(entry, range.as_ref(), answer, is_elsewhere).await;
        }
    }

    fn place(&self, path: &str) -> Option<Uri> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn set_place(&self, path: &str, place: Option<Uri>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        match place {
            Some(place) => _ = places.insert(path.to_owned(), place),
            None => _ = places.remove(path),
        }
    }

    /// A file's refusal: of the server that the hub sends to for it, or of the hub, which lists it.
    async fn refused_file(&self, entry: &Entry, answer: Answer, is_elsewhere: bool) -> Fault {
        let (name, path) = (self.name(), &entry.source);
        let is_unnamed = answer.header("x-error-code").is_none();
        match answer.fault(&format!("{name}: {path}")) {
            Fault::Fatal(error) if is_elsewhere => {
                let place = shown(&answer.uri.to_string());
                let text = format!(
                    "{}, at {place}, to which the hub sends for it; run this again, and if it stays so, ask whether a proxy refuses that server",
                    error.text
                );
                Error::new(error.kind, text).into()
            }
            Fault::Fatal(error) if is_unnamed && error.kind == Kind::NotFound => {
                Error::new(error.kind, format!("{}, though the hub lists the file; run this again", error.text)).into()
            }
            _ => self.refused(answer).await,
        }
    }

    async fn content(
        &self,
        entry: &Entry,
        range: Option<&Range<u64>>,
        answer: Answer,
        is_elsewhere: bool,
    ) -> Result<Opened, Fault> {
        let again = |why: &str| {
            let text = format!("{}: {}: {why}", self.name(), entry.source);
            Err(Fault::Again(crate::plan::pace::Failure::Broken, text))
        };
        match answer.reading(range, entry.size) {
            Reading::Asked => {}
            Reading::Whole => return Err(no_ranges(&format!("{}: {}", self.name(), entry.source))),
            Reading::Other => return again("the server sends another range than it was asked for"),
            Reading::Refused => {
                let fault = self.refused_file(entry, answer, is_elsewhere).await;
                return Err(match fault {
                    Fault::Fatal(error) if entry.size.is_some_and(|size| size > LARGEST) => {
                        let text = format!(
                            "{}; files of more than 50 GB may be served by the xet protocol alone, which is not spoken here",
                            error.text
                        );
                        Error::new(error.kind, text).into()
                    }
                    other => other,
                });
            }
        }
        if answer.length().is_some_and(|length| {
            length != range.map_or(entry.size.unwrap_or(length), |r| r.end.saturating_sub(r.start))
        }) {
            return again("it has another length than the hub lists");
        }
        Ok(Opened { content: Content::Net(answer.body), told: Told::Nothing, is_packed: false })
    }

    /// What the hub's refusal means, and what to do.
    async fn refused(&self, answer: Answer) -> Fault {
        let code = answer.header("x-error-code").unwrap_or_default().to_owned();
        let message = answer.header("x-error-message").unwrap_or_default().to_owned();
        let (name, what, status) = (self.name(), self.what.word(), answer.status.as_u16());
        let page = format!(
            "{}/{}{}",
            self.base,
            if self.what == What::Dataset { "datasets/" } else { "" },
            self.repository.id
        );
        let token = self.token.is_some();
        let revision = self.repository.revision.as_deref().unwrap_or("main");
        let (kind, text) = match (status, code.as_str()) {
            (_, "GatedRepo") if token => (
                Kind::NoAccess,
                format!(
                    "{name}: the {what} is gated, and the account of the token has no access: ask for it at {page}, then run this again"
                ),
            ),
            (_, "GatedRepo") => (
                Kind::NoAccess,
                format!(
                    "{name}: the {what} is gated: ask for access at {page}, and give the account's token as ACCESS_TOKEN or HF_TOKEN"
                ),
            ),
            (_, "RevisionNotFound") => (Kind::NotFound, format!("{name}: the {what} has no revision {revision:?}")),
            (_, "EntryNotFound") => (Kind::NotFound, format!("{name}: a file of the listing is not there: {message}")),
            (401, _) if message.contains("Invalid credentials") => (
                Kind::NoAccess,
                format!(
                    "{name}: the hub does not know the token; make a new one in the hub's settings, and set ACCESS_TOKEN or HF_TOKEN to it"
                ),
            ),
            (403, _) if message.contains("disabled") => {
                (Kind::NoAccess, format!("{name}: the hub has disabled the {what}"))
            }
            (401, _) => (
                Kind::NoAccess,
                format!(
                    "{name}: there is no such {what}, or it is private or gated, which the hub does not tell apart without a token; \
                     check the name, and set ACCESS_TOKEN or HF_TOKEN if it is yours"
                ),
            ),
            (403, _) => (Kind::NoAccess, format!("{name}: the token has no access to the {what}{}", told(&message))),
            (404, _) => (
                Kind::NotFound,
                format!("{name}: there is no such {what}, or the token has no access to it; the names' case counts"),
            ),
            _ => return answer.fault(&name),
        };
        Error::new(kind, text).into()
    }
}

fn entry(target: String, item: Item) -> Entry {
    let (size, oid, check) = match item.lfs {
        Some(lfs) => (lfs.size, lfs.oid.clone(), Check::from_hex("sha256", &lfs.oid)),
        None => (item.size, item.oid.clone(), Check::from_hex("git-sha1", &item.oid)),
    };
    let version = Some(oid).filter(|version| !version.is_empty());
    Entry { source: item.path, target, size: Some(size), version, check, ranges: true }
}

fn told(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// The name in the target of what lies at or below `folder`.
fn below(folder: &str, path: &str) -> Option<String> {
    if folder.is_empty() {
        return Some(path.to_owned());
    }
    if path == folder {
        return Some(path.rsplit('/').next().unwrap_or(path).to_owned());
    }
    path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned)
}

/// The variables of the hub's own client come before upstream's, which is no more than a login to it; then the file that a login leaves.
fn token(variables: &Variables) -> Option<String> {
    if is_on(variables, "HF_HUB_DISABLE_IMPLICIT_TOKEN") {
        return None;
    }
    let own =
        variables.first(&["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "ACCESS_TOKEN"]).map(|token| token.trim().to_owned());
    own.or_else(|| {
        let cache = variables.get("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = || cache.or_else(|| Some(PathBuf::from(variables.get("HOME")?).join(".cache")));
        let home = variables.get("HF_HOME").map(PathBuf::from);
        let file = variables.get("HF_TOKEN_PATH").map(PathBuf::from);
        let file = file.or_else(|| Some(home.or_else(|| Some(cache()?.join("huggingface")))?.join("token")));
        small::read(&file?).ok().map(|token| token.trim().to_owned())
    })
    .filter(|token| !token.is_empty())
}
