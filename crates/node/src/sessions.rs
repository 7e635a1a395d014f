//! Who is logged in over SSH: terminals of this user that an sshd has made.
//!
//! A terminal comes and goes with a file of `/dev/pts`, of which the system tells. Whose it is, is seen in `/proc`: its processes descend
//! from an sshd. Commands without a terminal, such as our own connections, are no sessions.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use tokio::net::unix::pipe;

const TERMINALS: &str = "/dev/pts";
/// How long a new terminal has to get its processes, and how often all of them are looked at, at most.
const SETTLES: Duration = Duration::from_millis(300);
/// What the servers call their processes (`sshd-session`: OpenSSH since 9.8).
const SERVERS: [&str; 3] = ["sshd", "sshd-session", "dropbear"];
/// Major numbers of terminals in `/dev/pts`.
const MAJORS: std::ops::RangeInclusive<u32> = 136..=143;

/// Tells when somebody may have come or gone.
#[derive(Debug)]
pub struct Sessions {
    /// Reads as a pipe does.
    events: pipe::Receiver,
}

impl Sessions {
    /// Follows the terminals of this machine.
    ///
    /// # Errors
    /// The system does not tell of them.
    pub fn follow() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        // opened: by the first process of a terminal, once it is that process's own
        let what = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_OPEN;
        inotify.add_watch(TERMINALS, what)?;
        Ok(Self { events: pipe::Receiver::from_owned_fd_unchecked(inotify.into())? })
    }

    /// Returns when a terminal has come, gone or been opened, and a moment has passed since.
    pub async fn changed(&mut self) {
        // what is told is of no interest, only that something is
        let mut told = [0_u8; 4096];
        loop {
            let read = match self.events.readable().await {
                Ok(()) => self.events.try_read(&mut told),
                Err(error) => Err(error),
            };
            match read {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    tracing::warn!(%error, "sessions over SSH are not seen any more");
                    return std::future::pending().await;
                }
            }
        }
        tokio::time::sleep(SETTLES).await;
        while self.events.try_read(&mut told).is_ok() {}
    }
}

struct Process {
    name: String,
    parent: u32,
    terminal: Option<u32>,
    is_ours: bool,
}

/// How many terminals there are of sessions over SSH of this process's user.
pub fn count() -> usize {
    count_in(Path::new("/proc"), nix::unistd::geteuid().as_raw())
}

fn count_in(proc: &Path, user: u32) -> usize {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let all: BTreeMap<u32, Process> = entries
        .filter_map(|entry| {
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            let is_ours = entry.metadata().ok()?.uid() == user;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((number, process(&stat, is_ours)?))
        })
        .collect();
    let comes_from_a_server = |process: &Process| {
        let mut at = process.parent;
        // a parent is older than its child, unless numbers have begun anew meanwhile
        for _ in 0..all.len() {
            let Some(parent) = all.get(&at) else { return false };
            if SERVERS.contains(&parent.name.as_str()) {
                return true;
            }
            at = parent.parent;
        }
        false
    };
    let logged_in = all.values().filter(|process| process.is_ours && comes_from_a_server(process));
    logged_in.filter_map(|process| process.terminal).collect::<BTreeSet<_>>().len()
}

/// A process, of the text of its `stat`: `7 (a name) S 1 7 7 34816 …`.
fn process(stat: &str, is_ours: bool) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = rest.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let terminal: u32 = fields.nth(2)?.parse().ok()?;
    let major = (terminal >> 8) & 0xfff;
    Some(Process { name: name.to_owned(), parent, terminal: MAJORS.contains(&major).then_some(terminal), is_ours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_of_an_sshd_are_sessions() {
        let proc = tempfile::tempdir().unwrap();
        let put = |number: u32, name: &str, parent: u32, terminal: u32| {
            let dir = proc.path().join(number.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), format!("{number} ({name}) S {parent} 1 1 {terminal} -1 4194560")).unwrap();
        };
        let user = fs::metadata(proc.path()).unwrap().uid();
        let count = || count_in(proc.path(), user);
        fs::write(proc.path().join("uptime"), "1 1").unwrap();
        put(1, "init", 0, 0);
        put(10, "sshd", 1, 0);
        put(11, "sshd-session", 10, 0);
        // a command without a terminal: our own connection
        put(12, "sh", 11, 0);
        put(13, "trainyard", 1, 0);
        // a terminal that nobody reached by SSH, and the machine's own one
        put(14, "bash", 13, (136 << 8) | 3);
        put(15, "login) (x", 1, (4 << 8) | 1);
        assert_eq!(count(), 0);
        put(20, "bash", 11, 136 << 8);
        put(21, "my (odd) name", 20, 136 << 8);
        assert_eq!(count(), 1);
        put(22, "tmux", 11, (136 << 8) | 1);
        assert_eq!((count(), count_in(proc.path(), user.wrapping_add(1))), (2, 0));
        // two that say that they are each other's parents are nobody's
        put(30, "a", 31, (136 << 8) | 2);
        put(31, "b", 30, (136 << 8) | 2);
        assert_eq!(count(), 2);
    }

    #[tokio::test]
    async fn the_system_tells_of_a_terminal() {
        let mut sessions = Sessions::follow().unwrap();
        let made = nix::pty::openpty(None, None).unwrap();
        tokio::time::timeout(Duration::from_secs(20), sessions.changed()).await.unwrap();
        drop(made);
        tokio::time::timeout(Duration::from_secs(20), sessions.changed()).await.unwrap();
    }
}
