//! What is wanted, what of it is there, and what is missing: nothing is written here.

use super::piece::Origin;
use super::{FileReport, Mode, Report, Said, Say, folder};
use crate::http::{Client, Fault};
use crate::plan::error::{Error, Kind};
use crate::plan::restart::{Complete, Entry, Need, Record, State, need};
use crate::plan::settings::Settings;
use crate::source::Source;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinSet;

/// A wanted file.
#[derive(Clone)]
pub struct Item {
    pub entry: Entry,
    pub origin: Origin,
}

/// What is known of all locations before anything is written.
pub struct Wanted {
    pub items: Vec<Item>,
    /// Locations with a pin, and their files' names.
    pub pinned: Vec<Complete>,
    /// Records of files of locations that need no look: all is there.
    pub present: Vec<Record>,
}

/// Asks all locations what they hold; one that is pinned and complete is not asked.
pub async fn look(settings: &Settings, target: &Path, mode: Mode, client: &Client, say: &Say) -> Result<Wanted, Error> {
    let state = folder::read_state(target);
    let mut wanted = Wanted { items: Vec::new(), pinned: Vec::new(), present: Vec::new() };
    for one in &settings.wanted {
        let source = Arc::new(Source::new(one, settings, client, target)?);
        let known =
            state.complete.iter().find(|known| known.location == one.name && known.settings == settings.fingerprint());
        if let Some(known) = known.filter(|_| mode != Mode::Verify) {
            let pin = source.pin().await.map_err(Fault::into_error)?;
            if let Some(records) = all_there(&state, known, target).filter(|_| pin.as_deref() == Some(&known.pin)) {
                say(Said::Info(format!("{}: all {} files of {} are there", one.name, records.len(), known.pin)));
                wanted.present.extend(records);
                wanted.pinned.push(known.clone());
                continue;
            }
        }
        let listing = source.list().await.map_err(Fault::into_error)?;
        listing.warnings.into_iter().for_each(|text| say(Said::Warning(text)));
        if let Some(pin) = listing.pin {
            let files = listing.entries.iter().map(|entry| entry.target.clone()).collect();
            wanted.pinned.push(Complete { location: one.name.clone(), pin, settings: settings.fingerprint(), files });
        }
        let origin = Origin { source, location: one.name.as_str().into() };
        wanted.items.extend(listing.entries.into_iter().map(|entry| Item { entry, origin: origin.clone() }));
    }
    Ok(wanted)
}

/// The records of all files of a complete location, if each is on the disk as it was put there.
fn all_there(state: &State, known: &Complete, target: &Path) -> Option<Vec<Record>> {
    let one = |name: &String| {
        let (record, synced) = state.files.get(name)?;
        let found = folder::found(target, name)?;
        (*synced && found.size == record.size && found.modified == record.modified).then(|| record.clone())
    };
    known.files.iter().map(one).collect()
}

/// What each file needs. Contents are compared on threads of their own, a few at a time.
pub async fn needs(target: &Path, items: &[Item], state: &State, every_byte: bool) -> Result<Vec<bool>, Error> {
    const AT_ONCE: usize = 4;
    let mut missing = vec![false; items.len()];
    let mut running: JoinSet<(usize, bool)> = JoinSet::new();
    for (index, item) in items.iter().enumerate() {
        // what a verification does not find is told with all else; a run must not begin
        let found = match every_byte {
            true => folder::found(target, &item.entry.target),
            false => folder::free(target, &item.entry.target)?,
        };
        let record = state.files.get(&item.entry.target);
        let mut what = need(&item.entry, &item.origin.name(&item.entry), record, found);
        if every_byte && what == Need::Nothing {
            let recorded = record.map(|(record, _)| record.check.clone());
            what = item.entry.check.clone().or(recorded).map_or(Need::Nothing, Need::Compare);
        }
        match what {
            Need::Nothing => {}
            Need::Fetch => missing[index] = true,
            Need::Compare(check) => {
                if running.len() >= AT_ONCE
                    && let Some(Ok((index, differs))) = running.join_next().await
                {
                    missing[index] = differs;
                }
                let path = target.join(&item.entry.target);
                running.spawn_blocking(move || {
                    (index, folder::hash(&path, check.algorithm).ok().is_none_or(|found| found != check))
                });
            }
        }
    }
    while let Some(done) = running.join_next().await {
        let (index, differs) = done.map_err(|e| Error::new(Kind::Other, e.to_string()))?;
        missing[index] = differs;
    }
    Ok(missing)
}

pub fn total(items: &[Item]) -> u64 {
    items.iter().fold(0, |sum: u64, item| sum.saturating_add(item.entry.size.unwrap_or(0)))
}

pub async fn compare(target: &Path, wanted: &Wanted, mode: Mode) -> Result<Report, Error> {
    let state = folder::read_state(target);
    let missing = needs(target, &wanted.items, &state, mode == Mode::Verify).await?;
    let files = wanted.items.iter().zip(&missing).map(|(item, missing)| FileReport {
        path: item.entry.target.clone(),
        size: item.entry.size,
        state: match (missing, mode) {
            (false, _) => "present",
            (true, Mode::Verify) if folder::found(target, &item.entry.target).is_some() => "different",
            (true, _) => "missing",
        },
    });
    let present = wanted.present.iter().map(|record| FileReport {
        path: record.target.clone(),
        size: Some(record.size),
        state: "present",
    });
    let report = Report { files: files.chain(present).collect(), bytes: total(&wanted.items), ..Report::default() };
    let wrong: Vec<&FileReport> = report.files.iter().filter(|file| file.state != "present").collect();
    match (mode, wrong.as_slice()) {
        (Mode::Verify, [first, ..]) => {
            let text = format!(
                "{}: {} of {} files are not as their source has them; the first is {:?} ({}). Run without --verify to mend them",
                target.display(),
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
