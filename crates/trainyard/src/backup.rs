//! `trainyard backup` and `trainyard restore`.

use crate::up::UpError;
use backup::{BackupError, Options, Restored};
use client::{ClientError, Home};
use grammar::{BackupArgs, Format, Global, RestoreArgs};
use std::io::Write;
use std::path::Path;

/// Backs up the home, and prints where.
pub(crate) async fn backup(args: &BackupArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global.home.as_deref())?;
    let file = std::path::absolute(&args.file).map_err(|source| {
        let path = args.file.clone();
        ClientError::Io { doing: "resolve", path, source }
    })?;
    let bytes = backup::back_up(&home, &file, Options { replaces: args.force, history: !args.no_history }).await?;
    let told = serde_json::json!({"file": file, "bytes": bytes});
    let size = bytes.div_ceil(1024);
    let words = format!("{} ({size} KiB); it holds this home's keys: keep it as safe", file.display());
    Ok(print(args.output.output, &told, &file, &words))
}

/// Restores the home from a backup, and prints what came of it.
pub(crate) fn restore(args: &RestoreArgs, global: &Global) -> Result<u8, UpError> {
    let home = Home::find(global.home.as_deref())?;
    let Restored { objects, revision, version, created } = backup::restore(&home, &args.file, args.force)?;
    let root = home.root();
    let told = serde_json::json!({"home": root, "objects": objects, "revision": revision, "version": version, "created": created});
    let made = jiff::Timestamp::from_second(created).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    let words = format!("restored {objects} objects of {made} to {}; start it: trainyard up --detach", root.display());
    Ok(print(args.output.output, &told, root, &words))
}

/// Prints what was done: as data, as the one path, or in words. Who reads no more has read enough.
fn print(format: Format, told: &serde_json::Value, path: &Path, words: &str) -> u8 {
    let text = match format {
        Format::Json => format!("{told}\n"),
        Format::Yaml => serde_saphyr::to_string(told).expect("plain data"),
        Format::Name => format!("{}\n", path.display()),
        Format::Table | Format::Wide => format!("{words}\n"),
    };
    let _ = std::io::stdout().write_all(text.as_bytes());
    cli::exit::OK
}

impl From<BackupError> for UpError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Client(error) => Self::Client(error),
            BackupError::Database { path, source } => Self::Store { path, source: Box::new(source) },
            refused => Self::Usage(refused.code(), refused.to_string()),
        }
    }
}
