//! The file of sessions that outlive a restart of the control plane: the hashes of their halves, and which token they are for.

use crate::sessions::{BearerToken, Hash};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Bytes of the file that are read.
const BYTES_MAX: u64 = 1 << 20;

/// A session's halves, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub cookie: Hash,
    pub half: Hash,
}

#[derive(Serialize, Deserialize)]
struct Content {
    /// Of the administrator. Sessions that were kept for another token are ignored.
    token: Hash,
    sessions: Vec<Kept>,
}

/// The file, for the sessions of one token.
#[derive(Clone, Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    token: Hash,
}

impl KeptFile {
    pub fn new(path: PathBuf, token: &BearerToken) -> Self {
        Self { path, token: Sha256::digest(token.exposed().as_bytes()).into() }
    }

    /// The sessions; none where the file is missing, damaged, too long or for another token: their users sign in again.
    pub fn read(&self) -> Vec<Kept> {
        if std::fs::metadata(&self.path).is_ok_and(|file| file.len() > BYTES_MAX) {
            return Vec::new();
        }
        let content = std::fs::read(&self.path).ok().and_then(|text| serde_json::from_slice::<Content>(&text).ok());
        content.filter(|content| content.token == self.token).map(|content| content.sessions).unwrap_or_default()
    }

    /// Replaces them. What cannot be written costs a sign-in after the next restart, and nothing else.
    pub fn write(&self, sessions: Vec<Kept>) {
        let text = serde_json::to_vec(&Content { token: self.token, sessions }).expect("plain data");
        let new = self.path.with_extension("new");
        let open = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = open.and_then(|mut file| file.write_all(&text)).and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = written {
            tracing::warn!(%error, path = %self.path.display(), "sessions of the dashboard cannot be kept over a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_come_back_for_the_same_token_alone() {
        let path = std::env::temp_dir().join(format!("trainyard-sessions-{}", std::process::id()));
        let file = |token: &str| KeptFile::new(path.clone(), &BearerToken::new(token.to_owned()));
        assert!(file("a").read().is_empty());
        let one = Kept { cookie: [1; 32], half: [2; 32] };
        file("a").write(vec![one]);
        assert_eq!(file("a").read(), [one]);
        assert!(file("b").read().is_empty());
        std::fs::write(&path, "{").unwrap();
        assert!(file("a").read().is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
