//! A run: what is there and what is wanted, then everything that is missing at once, then the state of the folder.

mod folder;
mod jobs;
mod piece;
mod sink;
mod status;
mod sum;
mod wanted;

use crate::http::{Client, Secrets};
use crate::plan::error::{Error, Kind};
use crate::plan::progress::bytes;
use crate::plan::restart::{Line, Record};
use crate::plan::settings::Settings;
use crate::plan::verify::Check;
use crate::source::Unfit;
use folder::{Folder, Seen, Target};
use hyper_util::client::proxy::matcher::Matcher;
use jobs::Jobs;
use piece::Shared;
use serde::Serialize;
use status::Status;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::mpsc;
use wanted::{Item, Present, Stand, Wanted, compare, look, needs, total};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Fetch,
    /// Only say what would be fetched.
    DryRun,
    /// Only compare what is there with the source.
    Verify,
}

/// What is said on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Info(String),
    Warning(String),
}

pub type Say = Arc<dyn Fn(Said) + Send + Sync>;

/// One file, and what became of it.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct FileReport {
    pub path: String,
    pub size: Option<u64>,
    /// `present`, `fetched`; of a dry run `missing`; of a verification `present`, `missing`, `different`.
    pub state: &'static str,
}

#[derive(Clone, Debug, Default, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub files: Vec<FileReport>,
    /// Of all files.
    pub bytes: u64,
    /// That came over the line, also those that were of no use.
    pub bytes_fetched: u64,
    pub seconds: f64,
    /// What cannot be a file of the target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Unfit>,
}

/// Fills `target`. `stop` ends it: what came is kept for the next run.
///
/// # Errors
/// Whatever kept it from being filled; the error's kind is the process's exit code.
pub async fn run(
    settings: Settings,
    target: PathBuf,
    mode: Mode,
    say: Say,
    stop: impl Future<Output = ()>,
) -> Result<Report, Error> {
    let secrets = Secrets::new(settings.secrets());
    let clean = secrets.clone();
    let say: Say = Arc::new(move |said| {
        say(match said {
            Said::Info(text) => Said::Info(short(clean.scrubbed(&text))),
            Said::Warning(text) => Said::Warning(short(clean.scrubbed(&text))),
        });
    });
    let client = Client::new(Matcher::from_env(), settings.stall, secrets.clone(), None);
    let result = tokio::select! {
        result = filled(&settings, &target, mode, &client, &say) => result,
        () = stop => Err(Error::new(Kind::Stopped, "stopped; what was fetched is kept, and the next run continues from there")),
    };
    result.map_err(|error| {
        let then = match error.kind {
            Kind::Network => "; once that is over, run this again: it continues where it stopped",
            _ => "",
        };
        Error::new(error.kind, format!("{}{then}", short(secrets.scrubbed(&error.text))))
    })
}

/// What is said has an end, however much of it is a server's.
fn short(mut text: String) -> String {
    const MOST: usize = 16 << 10;
    if text.len() > MOST {
        text.truncate(text.floor_char_boundary(MOST));
        text.push('…');
    }
    text
}

async fn filled(settings: &Settings, target: &Path, mode: Mode, client: &Client, say: &Say) -> Result<Report, Error> {
    let start = Instant::now();
    settings.warnings.iter().for_each(|text| say(Said::Warning(text.clone())));
    let (mut wanted, seen) = look(settings, target, mode, client, say).await?;
    wanted.take_out_unfit(target, settings.strict)?;
    // said before the download, which may be long, and once more as its last word
    let unfit = (!wanted.unfit.is_empty()).then(|| wanted.unfit_summary());
    unfit.iter().for_each(|text| say(Said::Warning(text.clone())));
    let mut report = match mode {
        Mode::Fetch => {
            let status = Status::start(&settings.variables, &client.secrets, say);
            let fetched = fetch(settings, target, &wanted, seen, say, status.as_ref()).await;
            if let Some(status) = status {
                status.close().await;
            }
            fetched?
        }
        Mode::DryRun | Mode::Verify => compare(&seen, &wanted, mode).await?,
    };
    report.seconds = start.elapsed().as_secs_f64();
    report.left_out = wanted.unfit.into_iter().map(|(_, unfit)| unfit).collect();
    if mode == Mode::Fetch {
        unfit.into_iter().for_each(|text| say(Said::Warning(text)));
    }
    Ok(report)
}

async fn fetch(
    settings: &Settings,
    target: &Path,
    wanted: &Wanted,
    seen: Arc<Seen>,
    say: &Say,
    status: Option<&Status>,
) -> Result<Report, Error> {
    if wanted.items.is_empty() && !wanted.present.is_empty() {
        return Ok(report(wanted, &[], 0));
    }
    let lock = match folder::lock(target, false)? {
        Some(lock) => lock,
        None => {
            say(Said::Info(format!("another run fills {}; waiting until it has ended", target.display())));
            let path = target.to_owned();
            let waiting = tokio::task::spawn_blocking(move || folder::lock(&path, true)).await;
            let lock = waiting.map_err(|e| Error::new(Kind::Other, e.to_string()))??;
            lock.ok_or_else(|| Error::new(Kind::Other, "the lock of the folder was lost"))?
        }
    };
    // read before the lock was ours; another run may have written since
    let seen = if seen.is_current() { seen } else { Arc::new(Seen::read(target)?) };
    let stands = needs(&seen, &wanted.items, false).await?;
    let missing = wanted.items.iter().zip(&stands).filter(|(_, stand)| **stand == Stand::Missing);
    let todo: Vec<Item> = missing.map(|(item, _)| item.clone()).collect();
    say(Said::Info(format!(
        "{} files, {} to fetch ({})",
        wanted.items.len().saturating_add(wanted.present.len()),
        todo.len(),
        bytes(total(&todo))
    )));
    let is_settled = stands.iter().all(|stand| *stand == Stand::Known)
        && wanted.pinned.iter().all(|location| seen.state.complete.contains(location));
    if is_settled {
        return Ok(report(wanted, &stands, 0));
    }
    // what was read and is right gets a record, so that the next run need not read it
    let compared = wanted.items.iter().zip(&stands).filter_map(|(item, stand)| match stand {
        Stand::Compared(check) => record(&seen.target, item, check.clone()),
        Stand::Missing | Stand::Known => None,
    });
    let compared: Vec<Record> = compared.collect();
    let mut state = Arc::try_unwrap(seen).map_or_else(|seen| seen.state.clone(), |seen| seen.state);
    state.begin(compared);
    let folder = Folder::open(target, lock, &state)?;
    drop(state);
    room(target, &folder, &todo)?;
    let (busy, patience) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared { folder, fetched: AtomicU64::new(0), busy });
    let all = todo.len();
    Jobs::new(settings, &shared, todo, say, status).run(patience).await?;
    let complete: Vec<Line> = wanted.pinned.iter().cloned().map(Line::Complete).collect();
    let sync = Arc::clone(&shared);
    tokio::task::spawn_blocking(move || sync.folder.synced(&complete))
        .await
        .map_err(|e| Error::new(Kind::Other, e.to_string()))??;
    shared.folder.clear_parts();
    if all > 0 {
        say(Said::Info(format!("done: {} files in {}", wanted.items.len(), target.display())));
    }
    Ok(report(wanted, &stands, shared.fetched.load(Ordering::Relaxed)))
}

/// Of a file that is in its place with this content.
fn record(target: &Target, item: &Item, check: Check) -> Option<Record> {
    let found = target.found(&item.entry.target)?;
    Some(Record {
        target: item.entry.target.clone(),
        origin: item.origin.name(&item.entry),
        version: item.entry.version.clone(),
        size: found.size,
        modified: found.modified,
        check,
    })
}

fn report(wanted: &Wanted, stands: &[Stand], fetched: u64) -> Report {
    let files = wanted.items.iter().enumerate().map(|(index, item)| FileReport {
        path: item.entry.target.clone(),
        size: item.entry.size,
        state: if stands.get(index) == Some(&Stand::Missing) { "fetched" } else { "present" },
    });
    let present = wanted.present.iter().map(Present::report);
    let size = wanted.present.iter().fold(total(&wanted.items), |sum, there| sum.saturating_add(there.size));
    Report { files: files.chain(present).collect(), bytes: size, bytes_fetched: fetched, ..Report::default() }
}

/// Asked before the first byte.
fn room(target: &Path, folder: &Folder, todo: &[Item]) -> Result<(), Error> {
    let reserved = todo.iter().fold(0_u64, |sum, item| {
        sum.saturating_add(folder.allocated(&item.entry.target).min(item.entry.size.unwrap_or(0)))
    });
    let needed = total(todo).saturating_sub(reserved);
    match folder::room(target) {
        Some(free) if free < needed => Err(Error::new(
            Kind::NoRoom,
            format!(
                "{}: {} are missing: {} are to be fetched, and {} are free; nothing was fetched",
                target.display(),
                bytes(needed.saturating_sub(free)),
                bytes(needed),
                bytes(free)
            ),
        )),
        _ => Ok(()),
    }
}
