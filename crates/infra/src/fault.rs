//! Faults of a machine that is reached through a shell: each has a message of one line, and decides what happens next.

use api::foreign::visible_line;
use managed::provider::{Failure, Fate};
use std::borrow::Cow;

/// Why an action on a host failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection: nothing was done. The host may be reachable later.
    Unreachable(String),
    /// No connection until a user changes something: a key, a password, a host key.
    Refused(String),
    /// The connection broke: the action may have been done.
    Broken(String),
    /// The host belongs to another machine, is too small, or is full: nothing was done.
    NoRoom(String),
    /// The host has no claim of this machine.
    Absent,
    /// The host cannot do it: programs do not run there, or tunnels are not allowed.
    Unfit(String),
    /// The action began and does not end: to be tried again.
    Stuck(String),
}

impl Fault {
    /// What happened.
    pub fn what(&self) -> &str {
        match self {
            Self::Unreachable(what)
            | Self::Refused(what)
            | Self::Broken(what)
            | Self::NoRoom(what)
            | Self::Unfit(what)
            | Self::Stuck(what) => what,
            Self::Absent => "there is no claim of this machine on it any more",
        }
    }

    /// The failure of a call about a machine that may exist.
    pub fn failure(&self, host: &str) -> Failure {
        Failure::new(Fate::Retry, format!("{host}: {}", self.what()))
    }
}

/// The meaning of ssh's message about a connection that failed.
pub fn of_ssh(host: &str, stderr: &str) -> Fault {
    let has = |text: &str| stderr.contains(text);
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") || has("has changed and you have requested strict checking") {
        return Fault::Refused(format!(
            "its host key is not the known one; if that is meant, forget the old one: ssh-keygen -R {host}"
        ));
    }
    if has("Host key verification failed") || has("host key is known for") {
        return Fault::Refused(format!("its host key is not known here; look at it and accept it once: ssh {host}"));
    }
    if has("Permission denied") || has("Too many authentication failures") || has("No more authentication methods") {
        return Fault::Refused(format!(
            "it takes neither key nor password ({}); `ssh {host}` as this user must work",
            last_line(stderr)
        ));
    }
    if has("Bad configuration option") || has("terminating, ") {
        return Fault::Refused(format!("OpenSSH's configuration cannot be used: {}", last_line(stderr)));
    }
    Fault::Unreachable(format!("it cannot be reached: {}", last_line(stderr)))
}

/// The meaning of a command's exit code on the host, as host.sh defines it.
pub fn of_host(code: i32, error: &str, stderr: &str) -> Fault {
    let (error, why) = (&*shown(error), &*last_line(stderr));
    let what = match (error.is_empty(), why == NOTHING) {
        (false, true) => error.to_owned(),
        (true, _) => why.to_owned(),
        (false, false) => format!("{error}: {why}"),
    };
    match code {
        10 => Fault::NoRoom(what),
        11 => Fault::Absent,
        12 => Fault::NoRoom(what),
        14 | 15 => Fault::Unfit(what),
        13 | 255 => Fault::Broken(what),
        _ => Fault::Stuck(what),
    }
}

/// The message in place of an empty one.
const NOTHING: &str = "ssh said nothing";
/// The longest part of a machine's message that is passed on.
const SHOWN_MAX: usize = 400;

/// A machine's message on one line, without control characters for terminals.
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_MAX) {
        None => visible_line(text),
        Some((end, _)) => Cow::Owned(format!("{}…", visible_line(text.get(..end).unwrap_or_default()))),
    }
}

/// The last line that is not empty.
pub fn last_line(text: &str) -> Cow<'_, str> {
    let said = |line: &&str| !line.is_empty() && !line.starts_with("Warning: Permanently added");
    text.lines().map(str::trim).rfind(said).map_or(Cow::Borrowed(NOTHING), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_has_a_fate() {
        let refused = |stderr: &str, says: &str| {
            let Fault::Refused(what) = of_ssh("h", stderr) else { panic!("{stderr}: {:?}", of_ssh("h", stderr)) };
            assert!(what.contains(says), "{what}");
        };
        refused(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n",
            "ssh-keygen -R h",
        );
        refused(
            "No ED25519 host key is known for h and you have requested strict checking.\n",
            "accept it once: ssh h",
        );
        refused("banner\nme@h: Permission denied (publickey).\r\n", "(me@h: Permission denied (publickey).)");
        let gone = of_ssh("h", "ssh: connect to host h port 22: Connection refused\r\n");
        let what = "it cannot be reached: ssh: connect to host h port 22: Connection refused";
        assert_eq!(gone, Fault::Unreachable(what.to_owned()));
        let full = of_host(12, "cannot write /h/program", "cat: write error: No space left on device\n");
        let what = "cannot write /h/program: cat: write error: No space left on device";
        assert_eq!(full, Fault::NoRoom(what.to_owned()));
        // a host's message controls no terminal, and is bounded
        let hostile = of_host(16, "\x1b]0;title\x07", &format!("a\r\u{202e}b{}", "x".repeat(9999)));
        assert!(hostile.what().starts_with("\\x1b]0;title\\x07: ") && hostile.what().len() < 500, "{hostile:?}");
        assert!(!hostile.what().contains(|c: char| c.is_control() || c == '\u{202e}'), "{hostile:?}");
        assert_eq!(of_host(11, "", ""), Fault::Absent);
        assert_eq!(of_host(14, "no", ""), Fault::Unfit("no".to_owned()));
    }
}
