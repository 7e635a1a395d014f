//! Why a home cannot be backed up or restored.

use crate::DATABASE;
use client::ClientError;
use client::codes::ErrorCode;
use std::path::PathBuf;

/// Why a home cannot be backed up or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("there is nothing to back up under {}: it has no database", home.display())]
    NothingThere { home: PathBuf },
    #[error("{} exists already; to overwrite it: --force", file.display())]
    OutputExists { file: PathBuf },
    #[error("the control plane under {} is starting or stopping; try again", home.display())]
    NotReady { home: PathBuf },
    #[error("cannot open the database {path}")]
    Database {
        path: PathBuf,
        #[source]
        source: store::OpenError,
    },
    #[error("{} is not a backup that this version can restore: {what}", file.display())]
    NotABackup { file: PathBuf, what: String },
    #[error("a control plane is running under {}; stop it first: trainyard down", home.display())]
    RestoreWhileRunning { home: PathBuf },
    #[error("{} holds a control plane's data; --force replaces it (the database that is there is kept as {DATABASE}.before-restore)",
        home.display())]
    RestoreOverData { home: PathBuf },
    #[error("a restore into {} was interrupted; do it again: trainyard restore FILE --force", home.display())]
    RestoreUnfinished { home: PathBuf },
}

impl BackupError {
    /// Its code in documentation and for programs.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Client(error) => error.code(),
            Self::NothingThere { .. } => ErrorCode::NothingToBackUp,
            Self::OutputExists { .. } => ErrorCode::OutputExists,
            Self::NotReady { .. } => ErrorCode::BackupFailed,
            Self::Database { source: store::OpenError::Newer { .. }, .. } => ErrorCode::DatabaseNewer,
            Self::Database { .. } => ErrorCode::DatabaseUnopened,
            Self::NotABackup { .. } => ErrorCode::NotABackup,
            Self::RestoreWhileRunning { .. } => ErrorCode::RestoreWhileRunning,
            Self::RestoreOverData { .. } => ErrorCode::RestoreOverData,
            Self::RestoreUnfinished { .. } => ErrorCode::RestoreUnfinished,
        }
    }
}
