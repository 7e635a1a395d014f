//! The home of a local control plane: the folder with its data, its files by name, and its lock. Several control planes can exist side by
//! side, one for each home.

use crate::codes::ErrorCode;
use crate::error::ClientError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a control plane may take to start before nobody waits for it any more.
const START_MAX: Duration = Duration::from_secs(60);

/// A control plane's directory (mode 0700).
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// What a running control plane says about itself, in `up.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    pub pid: u32,
    pub server: String,
    pub kubeconfig: PathBuf,
    pub version: String,
    /// Seconds since 1970.
    pub started: i64,
    /// How pods run here: `hosts`, `plain`, or `none` with `--no-node`.
    pub node: String,
    /// Where training code reports its progress, a URL; absent where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_server: Option<String>,
    /// Where the dashboard is, a URL; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard: Option<String>,
}

impl Home {
    /// `--home`, else `$TRAINYARD_HOME`, else `$XDG_DATA_HOME/trainyard`, else `~/.local/share/trainyard`.
    pub fn find(home: Option<&Path>) -> Result<Self, ClientError> {
        let root = match home {
            Some(home) => std::path::absolute(home).map_err(|source| ClientError::Io {
                doing: "resolve",
                path: home.to_owned(),
                source,
            })?,
            None => {
                let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
                // an empty $HOME is none, and must not mean the current folder
                let home = std::env::home_dir().filter(|home| home.is_absolute());
                let data = data.or_else(|| home.map(|home| home.join(".local/share")));
                let data = data.ok_or_else(|| {
                    ClientError::Usage(ErrorCode::NoHomeFolder, format!(
                        "there is no home directory to keep data in: HOME is not set, and this user (id {}) has none; name a folder: --home DIR or \
                         TRAINYARD_HOME",
                        nix::unistd::getuid()
                    ))
                })?;
                data.join("trainyard")
            }
        };
        Ok(Self { root })
    }

    /// The home in this directory.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The home whose kubeconfig this is; `None` where it is any other file.
    pub fn of_kubeconfig(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let home = Self { root: path.parent()?.to_owned() };
        (home.kubeconfig() == path && home.lock().exists()).then_some(home)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Held (flock) by the control plane while it runs.
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("up.log")
    }

    pub fn running_file(&self) -> PathBuf {
        self.root.join("up.json")
    }

    /// Makes the directory, for its owner alone. One that is there keeps its mode: it may be more than ours. What is put into it
    /// is for its owner alone in any case.
    pub fn create(&self) -> Result<(), ClientError> {
        use std::os::unix::fs::DirBuilderExt;
        let failed = |source| ClientError::Io { doing: "create", path: self.root.clone(), source };
        for folder in ["", "node", "pki", "metrics", "history"] {
            let path = self.root.join(folder);
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes private the files that earlier versions left readable to all users who could enter the home.
    pub fn close_to_others(&self) {
        use std::os::unix::fs::PermissionsExt;
        for name in ["lock", "store.db", "store.db-wal", "up.log", "pki", "node", "metrics", "history"] {
            let path = self.root.join(name);
            let mode = if path.is_dir() { 0o700 } else { 0o600 };
            if path.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
                let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)); // somebody else's: they decide
            }
        }
    }

    /// The control plane that runs here, if one does: its lock is held and its description is there.
    pub fn running(&self) -> Option<Running> {
        if !self.is_locked() {
            return None;
        }
        let text = std::fs::read(self.running_file()).ok()?;
        let running: Running = serde_json::from_slice(&text).ok()?;
        // the holder of the lock may have been killed before, and started again without having written its state yet
        let pid = nix::unistd::Pid::from_raw(i32::try_from(running.pid).ok()?);
        (nix::sys::signal::kill(pid, None) != Err(nix::errno::Errno::ESRCH)).then_some(running)
    }

    /// As [`Home::running`]; waits for one that is starting. `None` where none does any more, or it takes longer than a minute.
    pub fn wait_running(&self) -> Option<Running> {
        let deadline = api::time::after(Instant::now(), START_MAX);
        loop {
            if let Some(running) = self.running() {
                return Some(running);
            }
            if !self.is_locked() || Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a process holds the lock.
    pub fn is_locked(&self) -> bool {
        let Ok(file) = std::fs::File::open(self.lock()) else { return false };
        match nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockSharedNonblock) {
            Ok(_held_and_released) => false,
            Err((_, error)) => error == nix::errno::Errno::EWOULDBLOCK,
        }
    }

    /// Takes the lock for as long as the returned value lives; `None` where another process has it.
    pub fn try_lock(&self) -> Result<Option<nix::fcntl::Flock<std::fs::File>>, ClientError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.lock();
        let file = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|source| ClientError::Io { doing: "open", path: path.clone(), source })?;
        match nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(held)),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(ClientError::Io { doing: "lock", path, source: error.into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_seen_and_a_freed_one_is_not() {
        let root = std::env::temp_dir().join(format!("trainyard-home-{}", std::process::id()));
        let home = Home { root: root.clone() };
        home.create().unwrap();
        assert!(!home.is_locked());
        assert!(Home::of_kubeconfig(&home.kubeconfig()).is_none());
        let held = home.try_lock().unwrap();
        assert!(held.is_some());
        std::fs::write(home.kubeconfig(), "").unwrap();
        assert!(Home::of_kubeconfig(&home.kubeconfig()).is_some());
        assert!(home.is_locked());
        assert!(home.try_lock().unwrap().is_none());
        drop(held);
        assert!(!home.is_locked());
        std::fs::remove_dir_all(root).unwrap();
    }
}
