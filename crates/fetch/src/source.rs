//! Where data come from: each source lists its files, and opens one of them at a byte.

pub mod azure;
mod extent;
pub mod files;
pub mod google;
pub mod hub;
mod objects;
pub mod s3;
mod token;
pub mod web;
mod xml;

use crate::http::{Body, Client, Fault};
use crate::plan::error::{Error, Kind};
use crate::plan::location::Location;
use crate::plan::pace;
use crate::plan::patterns::Tally;
use crate::plan::restart::Entry;
use crate::plan::settings::{Settings, Wanted};
use crate::plan::verify::Check;
use serde::Serialize;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What a location holds.
#[derive(Debug, Default)]
pub struct Listing {
    pub entries: Vec<Entry>,
    /// What pins all of it: a commit.
    pub pin: Option<String>,
    pub warnings: Vec<String>,
    /// What cannot be fetched under any name.
    pub unfit: Vec<Unfit>,
    /// Of all names, those that are not wanted too.
    pub tally: Tally,
}

/// A file that is left out, and why.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Unfit {
    pub source: String,
    pub why: String,
}

pub enum Content {
    Net(Body),
    Local(File),
}

/// A checksum of the whole file that came with its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Nothing,
    /// What the listing said is no checksum after all.
    NoChecksum,
    Checksum(Check),
}

/// A file, opened at the byte that was asked for.
pub struct Opened {
    pub content: Content,
    pub told: Told,
    /// It must be unpacked: the server packed it for the way.
    pub is_packed: bool,
}

pub enum Source {
    Hub(Box<hub::Hub>),
    S3(Arc<s3::Bucket>),
    Google(Box<google::Bucket>),
    Azure(Box<azure::Container>),
    Web(Box<web::Web>),
    Files(files::Files),
}

impl Source {
    /// # Errors
    /// Variables that cannot be used.
    pub fn new(wanted: &Wanted, settings: &Settings, client: &Client, target: &Path) -> Result<Self, Error> {
        Ok(match &wanted.location {
            Location::Hub(repository) => Source::Hub(Box::new(hub::Hub::new(repository.clone(), settings, client)?)),
            Location::S3(objects) => Source::S3(Arc::new(s3::Bucket::new(objects.clone(), settings, client)?)),
            Location::Google(objects) => {
                Source::Google(Box::new(google::Bucket::new(objects.clone(), settings, client)?))
            }
            Location::Azure(blobs) => Source::Azure(Box::new(azure::Container::new(blobs.clone(), settings, client)?)),
            Location::Web(file) => Source::Web(Box::new(web::Web::new(file.clone(), settings, client))),
            Location::File(path) => Source::Files(files::Files::new(path.clone(), settings, target)),
        })
    }

    /// What pins the content, if one request (or none) tells.
    ///
    /// # Errors
    /// The location cannot be read.
    pub async fn pin(&self) -> Result<Option<String>, Fault> {
        match self {
            Source::Hub(hub) => hub.commit().await.map(Some),
            Source::S3(_) | Source::Google(_) | Source::Azure(_) | Source::Web(_) | Source::Files(_) => Ok(None),
        }
    }

    /// All files that are wanted. `known`: names of those that an earlier run found there, which is told where it is asked for.
    ///
    /// # Errors
    /// The location cannot be read, or holds nothing.
    pub async fn list(&self, known: Vec<&str>) -> Result<Listing, Fault> {
        match self {
            Source::Hub(hub) => hub.list().await,
            Source::S3(bucket) => bucket.list(known).await,
            Source::Google(bucket) => bucket.list().await,
            Source::Azure(container) => container.list().await,
            Source::Web(web) => web.list().await,
            Source::Files(files) => files.list().await,
        }
    }

    /// What is to be known of a file before it is fetched in parts, or after it changed.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn describe(&self, entry: &Entry) -> Result<Entry, Fault> {
        match self {
            Source::Hub(_) => Ok(entry.clone()),
            Source::S3(bucket) => bucket.describe(entry).await,
            Source::Google(bucket) => bucket.describe(entry).await,
            Source::Azure(container) => container.describe(entry).await,
            Source::Web(web) => web.describe().await,
            Source::Files(files) => files.describe(entry),
        }
    }

    /// Opens a file at `range`; `None`: all of it.
    ///
    /// # Errors
    /// It cannot be read, or is no longer this version.
    pub async fn open(&self, entry: &Entry, range: Option<Range<u64>>) -> Result<Opened, Fault> {
        // boxed: hundreds of streams would each have room for the largest of these
        match self {
            Source::Hub(hub) => Box::pin(hub.open(entry, range)).await,
            Source::S3(bucket) => Box::pin(bucket.open(entry, range)).await,
            Source::Google(bucket) => Box::pin(bucket.open(entry, range)).await,
            Source::Azure(container) => Box::pin(container.open(entry, range)).await,
            Source::Web(web) => Box::pin(web.open(entry, range)).await,
            Source::Files(files) => files.open(entry, range),
        }
    }
}

/// A `Range` header for what lies between; the end of a range in HTTP belongs to it.
pub fn range_header(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

/// A listing that ends before it is complete, of a server that does not say how long it is.
fn broken_off(name: &str) -> Fault {
    Fault::Again(pace::Failure::Broken, format!("{name}: the listing broke off"))
}

/// The whole came where a part was asked for.
fn no_ranges(what: &str) -> Fault {
    Fault::Whole(format!("{what}: the server was asked for a part and sends the whole file"))
}

/// A listing that leaves out what is needed to fetch all of it: to go on would fetch a part, and call it all.
fn incomplete(name: &str, why: &str) -> Fault {
    Error::new(Kind::Other, format!("{name}: the listing is incomplete: {why}")).into()
}

/// Tries until it goes well, fails for good, or patience ends.
///
/// # Errors
/// As `attempt`'s last.
pub async fn patiently<T, F: Future<Output = Result<T, Fault>>>(mut attempt: impl FnMut() -> F) -> Result<T, Fault> {
    let mut tries = 0_u32;
    loop {
        let fault = match attempt().await {
            Err(Fault::Again(failure, text)) => Fault::Again(failure, text),
            other => return other,
        };
        tries = tries.saturating_add(1);
        let Fault::Again(failure, _) = &fault else { return Err(fault) };
        match pace::wait(*failure, tries, rand::random()) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(fault),
        }
    }
}
