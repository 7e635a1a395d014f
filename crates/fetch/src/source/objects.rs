//! What object stores have in common: keys under a prefix, and the names that they get.

use super::extent::{Chain, Extent};
use super::{Listing, Unfit, incomplete};
use crate::http::Fault;
use crate::plan::error::{Error, Kind};
use crate::plan::patterns::Filter;
use crate::plan::restart::Entry;
use crate::plan::verify::Check;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str};
use std::borrow::Cow;

/// What may stand in a value of a query, or in a segment of a path.
pub const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What may stand in a path.
pub const PATH: AsciiSet = SEGMENT.remove(b'/');

pub struct Object {
    pub key: String,
    pub size: u64,
    /// What changes with the content.
    pub version: Option<String>,
    pub check: Option<Check>,
    /// It stands for a folder, and holds nothing.
    pub is_mark: bool,
    /// The key is not UTF-8, so it cannot be asked for by what is known of it.
    pub is_garbled: bool,
    /// It is stored packed, and comes so.
    pub is_packed: bool,
}

/// One answer of a listing.
#[derive(Default)]
pub struct Page {
    pub objects: Vec<Object>,
    /// Prefixes that stand for all below them, where that was asked for.
    pub folders: Vec<String>,
    /// What asks for the rest.
    pub next: Option<String>,
    /// There is a rest, and nothing asks for it.
    pub is_cut: bool,
}

impl Page {
    /// What asks for the rest, once this page is counted.
    ///
    /// # Errors
    /// The listing is too large, or leads nowhere.
    pub fn counted(&self, extent: &Extent, chain: &mut Chain<'_>) -> Result<Option<String>, Fault> {
        extent.count(self.objects.iter().map(|object| object.key.len()))?;
        if self.is_cut {
            return Err(incomplete(extent.name(), "the server says that there is more, and not how to ask for it"));
        }
        self.next.as_ref().map(|next| chain.follow(next, self.objects.len()).map(|()| next.clone())).transpose()
    }

    /// Keys and prefixes.
    pub fn names(self) -> Vec<String> {
        self.objects.into_iter().map(|object| object.key).chain(self.folders).collect()
    }
}

/// What a prefix means. One that ends in a slash, or none: all below it. Another: the object of that key, and all below the folder
/// of that name; never what merely begins alike.
pub struct Prefix<'a> {
    /// The key of one object, if it may be one.
    pub exact: Option<&'a str>,
    pub folder: String,
}

impl<'a> Prefix<'a> {
    pub fn new(prefix: &'a str) -> Self {
        if prefix.is_empty() || prefix.ends_with('/') {
            Self { exact: None, folder: prefix.to_owned() }
        } else {
            Self { exact: Some(prefix), folder: format!("{prefix}/") }
        }
    }

    /// The files of it, by the patterns; `None`: nothing is there. `name`: the bucket's, for messages.
    pub fn listing(&self, name: &str, exact: Option<Object>, below: Vec<Object>, filter: &Filter) -> Option<Listing> {
        let (mut entries, mut ignored, mut is_there) = (Vec::with_capacity(below.len()), Vec::new(), false);
        let files = || exact.iter().chain(&below).filter(|object| !object.is_mark);
        let tally = filter.tally(files().map(|object| object.key.as_str()));
        let mut unfit = Vec::new();
        for object in exact.into_iter().filter(|object| !object.is_mark).chain(below) {
            is_there = true;
            if object.is_mark {
                continue;
            }
            if !filter.wants(&object.key) {
                ignored.push(object.key);
                continue;
            }
            if object.is_garbled {
                unfit.push(Unfit { source: object.key, why: "its name is not UTF-8".to_owned() });
                continue;
            }
            let below = object.key.strip_prefix(&self.folder);
            let target = below.unwrap_or_else(|| object.key.rsplit('/').next().unwrap_or(&object.key)).to_owned();
            entries.push(Entry {
                ranges: object.version.is_some(),
                check: object.check,
                version: object.version,
                size: Some(object.size),
                source: object.key,
                target,
            });
        }
        if !is_there {
            return None;
        }
        let mut warnings = Vec::new();
        if entries.is_empty() && unfit.is_empty() && !ignored.is_empty() {
            let why = filter.why_nothing(ignored.iter().map(String::as_str));
            let prefix = self.exact.unwrap_or(&self.folder);
            warnings.push(format!("{name}/{prefix}: nothing is left to fetch: {why}"));
        }
        Some(Listing { entries, pin: None, warnings, unfit, tally })
    }
}

/// What to say of a prefix under which there is nothing: the keys that are nearest. `keys` lists what begins with a prefix, up to
/// a number of them, each to the next slash.
///
/// # Errors
/// As those of `keys`.
pub async fn nothing(
    name: &str,
    prefix: &str,
    keys: impl AsyncFn(String, u32) -> Result<Vec<String>, Fault>,
) -> Result<Error, Fault> {
    if prefix.is_empty() {
        return Ok(Error::new(Kind::NotFound, format!("{name}: the bucket is empty")));
    }
    let bare = prefix.trim_end_matches('/');
    let longer = keys(bare.to_owned(), 5).await?;
    if !longer.is_empty() {
        let list = quoted(&longer);
        let text = format!("{name}: there is no object {bare:?} and no folder \"{bare}/\"; keys that begin so: {list}");
        return Ok(Error::new(Kind::NotFound, text));
    }
    let mut folder = bare;
    let mut near = Vec::new();
    while near.is_empty() && !folder.is_empty() {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
        let above = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        near = keys(above, 1000).await?;
    }
    near.sort_by_key(|key| strsim::levenshtein(key.trim_end_matches('/'), bare));
    near.truncate(3);
    let hint =
        if near.is_empty() { "the bucket is empty".to_owned() } else { format!("the nearest are {}", quoted(&near)) };
    Ok(Error::new(Kind::NotFound, format!("{name}: there is no key under {prefix:?}; {hint}")))
}

/// A name that a listing has percent-encoded, and whether what comes of that is no UTF-8.
pub fn decoded(text: &str) -> (String, bool) {
    match percent_decode_str(text).decode_utf8_lossy() {
        Cow::Borrowed(plain) => (plain.to_owned(), false),
        // an owned one without that character was only decoded
        Cow::Owned(plain) => {
            let is_garbled = plain.contains('\u{fffd}') && percent_decode_str(text).decode_utf8().is_err();
            (plain, is_garbled)
        }
    }
}

fn quoted(keys: &[String]) -> String {
    keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ")
}
