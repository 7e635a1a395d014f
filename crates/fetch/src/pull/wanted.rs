//! What is wanted, what of it is there, and what is missing: nothing is written here.

use super::folder::Seen;
use super::piece::Origin;
use super::{FileReport, Mode, Report, Said, Say, folder};
use crate::http::{Client, Fault};
use crate::plan::error::{Error, Kind};
use crate::plan::location::Location;
use crate::plan::names::{self, Name};
use crate::plan::patterns::Tally;
use crate::plan::restart::{Complete, Entry, Known, Need, need};
use crate::plan::settings::Settings;
use crate::plan::verify::Check;
use crate::source::{Source, Unfit};
use std::path::Path;
use std::sync::Arc;
use tokio::task::{JoinHandle, JoinSet};

/// A wanted file.
#[derive(Clone)]
pub struct Item {
    pub entry: Arc<Entry>,
    pub origin: Origin,
}

/// A file that is there, of a location that needs no look.
pub struct Present {
    pub target: String,
    pub size: u64,
}

impl Present {
    pub fn report(&self) -> FileReport {
        FileReport { path: self.target.clone(), size: Some(self.size), state: "present" }
    }
}

/// How a wanted file stands in the target.
#[derive(Clone, PartialEq, Eq)]
pub enum Stand {
    Missing,
    /// As it is recorded.
    Known,
    /// Its content was read, and is this.
    Compared(Check),
}

/// What is known of all locations before anything is written.
pub struct Wanted {
    pub items: Vec<Item>,
    /// Locations with a pin, and their files' names.
    pub pinned: Vec<Complete>,
    pub present: Vec<Present>,
    /// What cannot be a file of the target, by location.
    pub unfit: Vec<(Arc<str>, Unfit)>,
}

/// How many files are named of those that are left out.
const NAMED: usize = 10;

impl Wanted {
    /// Takes out what cannot be a file of the target. A location with such a file is never complete: the next run is to say so, too.
    ///
    /// # Errors
    /// Names of different locations exclude each other, or all files of a location are left out, or `strict` forbids to leave any out.
    pub fn take_out_unfit(&mut self, target: &Path, strict: bool) -> Result<(), Error> {
        let own = self.items.iter().map(|item| Name {
            source: &item.entry.source,
            target: &item.entry.target,
            location: item.origin.number,
        });
        let present = self.present.iter().map(|there| Name {
            source: &there.target,
            target: &there.target,
            location: usize::MAX,
        });
        let names: Vec<Name<'_>> = own.chain(present).collect();
        let mut left = names::unfit(&names, target.as_os_str().len())?.into_iter().peekable();
        drop(names);
        let mut at = 0_usize;
        let unfit = &mut self.unfit;
        self.items.retain(|item| {
            let own = at;
            at = at.saturating_add(1);
            let Some((_, why)) = left.next_if(|(place, _)| *place == own) else { return true };
            unfit.push((Arc::clone(&item.origin.location), Unfit { source: item.entry.source.clone(), why }));
            false
        });
        let Some((location, _)) = self.unfit.first() else { return Ok(()) };
        let of = |name: &str| self.unfit.iter().any(|(location, _)| **location == *name);
        self.pinned.retain(|complete| !of(&complete.location));
        let has_none = !self.items.iter().any(|item| item.origin.location == *location);
        if strict || has_none && self.present.is_empty() {
            let why = if strict { "; without --strict (STRICT) only these are left out" } else { "" };
            return Err(Error::config(format!("{}{why}. Nothing was written", self.unfit_summary())));
        }
        Ok(())
    }

    /// The files that are left out, for the last word of a run.
    pub fn unfit_summary(&self) -> String {
        let named = self.unfit.iter().take(NAMED);
        let mut list: Vec<String> = named.map(|(_, one)| format!("{:?} ({})", one.source, one.why)).collect();
        if let Some(more) = self.unfit.len().checked_sub(NAMED).filter(|more| *more > 0) {
            list.push(format!("and {more} more"));
        }
        let (files, are) = if self.unfit.len() == 1 { ("file", "is") } else { ("files", "are") };
        format!(
            "{} {files} cannot be written to the target and {are} left out: {}; rename them at their source, or exclude them with \
             IGNORE_PATTERNS",
            self.unfit.len(),
            list.join(", ")
        )
    }
}

/// The folder's state, which is read and looked into while sources are asked.
enum Reading {
    Running(JoinHandle<Result<Arc<Seen>, Error>>),
    Done(Arc<Seen>),
}

impl Reading {
    fn start(target: &Path) -> Self {
        let path = target.to_owned();
        Self::Running(tokio::task::spawn_blocking(move || {
            let seen = Arc::new(Seen::read(&path)?);
            let ahead = Arc::clone(&seen);
            tokio::task::spawn_blocking(move || ahead.look());
            Ok(seen)
        }))
    }

    async fn seen(&mut self) -> Result<Arc<Seen>, Error> {
        let seen = match self {
            Self::Running(running) => running.await.map_err(|e| Error::new(Kind::Other, e.to_string()))??,
            Self::Done(seen) => Arc::clone(seen),
        };
        *self = Self::Done(Arc::clone(&seen));
        Ok(seen)
    }
}

/// Asks all locations what they hold; one that is pinned and complete is not asked. What the folder's state told meanwhile.
pub async fn look(
    settings: &Settings,
    target: &Path,
    mode: Mode,
    client: &Client,
    say: &Say,
) -> Result<(Wanted, Arc<Seen>), Error> {
    let mut reading = Reading::start(target);
    let mut wanted = Wanted { items: Vec::new(), pinned: Vec::new(), present: Vec::new(), unfit: Vec::new() };
    // of a location that is not listed, nobody knows which patterns match
    let mut tally = Some(Tally::default());
    for (number, one) in settings.wanted.iter().enumerate() {
        let source = Arc::new(Source::new(one, settings, client, target)?);
        // these ask for less, or for more at once, where an earlier run has been
        let seen = match one.location {
            Location::Hub(_) | Location::S3(_) => Some(reading.seen().await?),
            Location::Google(_) | Location::Azure(_) | Location::Web(_) | Location::File(_) => None,
        };
        let is_it = |known: &&Complete| known.location == one.name && known.settings == settings.fingerprint();
        let known = seen.as_ref().and_then(|seen| Some((seen, seen.state.complete.iter().find(is_it)?)));
        if let Some((seen, known)) = known.filter(|_| mode != Mode::Verify) {
            let pin = source.pin().await.map_err(Fault::into_error);
            let present = all_there(seen, known);
            let count = present.as_ref().map_or(0, Vec::len);
            match (pin, present) {
                (Ok(pin), Some(present)) if pin.as_deref() == Some(&known.pin) => {
                    say(Said::Info(format!("{}: all {count} files of {} are there", one.name, known.pin)));
                    wanted.present.extend(present);
                    wanted.pinned.push(known.clone());
                    tally = None;
                    continue;
                }
                // as upstream has it, but of files that are known to be whole alone
                (Err(error), Some(present)) if is_away(&error) => {
                    say(Said::Warning(format!(
                        "{}; all {count} files of {} are there from an earlier run, and are taken",
                        error.text, known.pin
                    )));
                    wanted.present.extend(present);
                    wanted.pinned.push(known.clone());
                    tally = None;
                    continue;
                }
                (pin, _) => _ = pin?,
            }
        }
        let known = seen.as_ref().map(|seen| seen.state.sources(&one.name)).unwrap_or_default();
        let listing = source.list(known).await.map_err(Fault::into_error)?;
        listing.warnings.into_iter().for_each(|text| say(Said::Warning(text)));
        if let Some(pin) = listing.pin {
            let files = listing.entries.iter().map(|entry| entry.target.clone()).collect();
            wanted.pinned.push(Complete { location: one.name.clone(), pin, settings: settings.fingerprint(), files });
        }
        let origin = Origin { source, location: one.name.as_str().into(), number };
        wanted.unfit.extend(listing.unfit.into_iter().map(|unfit| (Arc::clone(&origin.location), unfit)));
        if let Some(tally) = &mut tally {
            tally.add(listing.tally);
        }
        wanted
            .items
            .extend(listing.entries.into_iter().map(|entry| Item { entry: Arc::new(entry), origin: origin.clone() }));
    }
    if let Some(tally) = tally {
        settings.idle_patterns(&tally).into_iter().for_each(|text| say(Said::Warning(text)));
    }
    Ok((wanted, reading.seen().await?))
}

/// Whether the source was not asked, or did not answer: its network is away, or the settings forbid to go there.
fn is_away(error: &Error) -> bool {
    matches!(error.kind, Kind::Network | Kind::Config)
}

/// All files of a complete location, if each is on the disk as it was put there.
fn all_there(seen: &Seen, known: &Complete) -> Option<Vec<Present>> {
    let mut next = 0;
    let one = |name: &String| {
        let at = seen.state.find(name, &mut next)?;
        let Known { record, synced } = seen.state.files().get(at)?;
        let found = seen.free(at).ok()??;
        let present = || Present { target: name.clone(), size: record.size };
        (*synced && found.size == record.size && found.modified == record.modified).then(present)
    };
    known.files.iter().map(one).collect()
}

/// Files that one thread looks at.
const LOOKED_AT: usize = 1024;

/// What each file needs, by what is recorded and what is there.
fn looks(seen: &Seen, items: &[Item], every_byte: bool) -> Result<Vec<Need>, Error> {
    let one = |item: &Item, next: &mut usize| {
        let at = seen.state.find(&item.entry.target, next);
        let found = match at {
            Some(at) => seen.free(at),
            None => seen.target.free(&item.entry.target),
        };
        // what a verification does not find is told with all else; a run must not begin
        let found = if every_byte { found.unwrap_or_default() } else { found? };
        let known = at.and_then(|at| seen.state.files().get(at));
        let what = need(&item.entry, &item.origin.location, known, found);
        if every_byte && what == Need::Nothing {
            let recorded = known.map(|known| known.record.check.clone());
            return Ok(item.entry.check.clone().or(recorded).map_or(Need::Nothing, Need::Compare));
        }
        Ok(what)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = items.len().div_ceil(threads).max(LOOKED_AT);
    std::thread::scope(|scope| {
        let some = |items: &[Item]| {
            let mut next = 0;
            items.iter().map(|item| one(item, &mut next)).collect::<Result<Vec<Need>, Error>>()
        };
        let running: Vec<_> = items.chunks(share).map(|items| scope.spawn(move || some(items))).collect();
        let mut all = Vec::with_capacity(items.len());
        for looked in running {
            all.extend(looked.join().map_err(|_| Error::new(Kind::Other, "a thread that looks at files was lost"))??);
        }
        Ok(all)
    })
}

/// How each file stands. Contents are compared on threads of their own, a few at a time.
pub async fn needs(seen: &Seen, items: &[Item], every_byte: bool) -> Result<Vec<Stand>, Error> {
    const AT_ONCE: usize = 4;
    let mut stands = vec![Stand::Known; items.len()];
    let mut running: JoinSet<(usize, Stand)> = JoinSet::new();
    let looked = looks(seen, items, every_byte)?;
    for (index, (item, what)) in items.iter().zip(looked).enumerate() {
        match what {
            Need::Nothing => {}
            Need::Fetch => stands[index] = Stand::Missing,
            Need::Compare(check) => {
                if running.len() >= AT_ONCE
                    && let Some(Ok((index, stand))) = running.join_next().await
                {
                    stands[index] = stand;
                }
                let path = seen.target.path.join(&item.entry.target);
                running.spawn_blocking(move || {
                    let is_same = folder::hash(&path, check.algorithm).is_ok_and(|found| found == check);
                    (index, if is_same { Stand::Compared(check) } else { Stand::Missing })
                });
            }
        }
    }
    while let Some(done) = running.join_next().await {
        let (index, stand) = done.map_err(|e| Error::new(Kind::Other, e.to_string()))?;
        stands[index] = stand;
    }
    Ok(stands)
}

pub fn total(items: &[Item]) -> u64 {
    items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.entry.size.unwrap_or(0)))
}

pub async fn compare(seen: &Seen, wanted: &Wanted, mode: Mode) -> Result<Report, Error> {
    let stands = needs(seen, &wanted.items, mode == Mode::Verify).await?;
    let files = wanted.items.iter().zip(&stands).map(|(item, stand)| FileReport {
        path: item.entry.target.clone(),
        size: item.entry.size,
        state: match (stand, mode) {
            (Stand::Known | Stand::Compared(_), _) => "present",
            (Stand::Missing, Mode::Verify) if seen.target.found(&item.entry.target).is_some() => "different",
            (Stand::Missing, _) => "missing",
        },
    });
    let present = wanted.present.iter().map(Present::report);
    let report = Report { files: files.chain(present).collect(), bytes: total(&wanted.items), ..Report::default() };
    let wrong: Vec<&FileReport> = report.files.iter().filter(|file| file.state != "present").collect();
    match (mode, wrong.as_slice()) {
        (Mode::Verify, [first, ..]) => {
            let text = format!(
                "{}: {} of {} files are not as their source has them; the first is {:?} ({}). Run without --verify to mend them",
                seen.target.path.display(),
                wrong.len(),
                report.files.len(),
                first.path,
                first.state
            );
            Err(Error::new(Kind::Damaged, text))
        }
        _ => Ok(report),
    }
}
