//! The ranks of a warm start: made ready together, let go together, and ended together when one fails.

use super::plan::Plan;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::pipe2;
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The user's namespace first: entering the others takes the rights that it gives.
const NAMESPACES: [&str; 4] = ["user", "mnt", "uts", "ipc"];
/// How long ranks have after SIGTERM, as torchrun gives them.
const GRACE: Duration = Duration::from_secs(30);
/// How long lines may come after the last rank has ended, from processes that it left.
const DRAIN: Duration = Duration::from_secs(1);
/// Longest piece of a line that is held back until its end.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// To a guardian: let the rank go. Any other byte is a signal.
const GO: u8 = 0;
/// Exit code of a rank whose end nobody saw: it was killed.
const KILLED: u8 = 137;

/// What a guardian says.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Ready {
        pid: i32,
    },
    Refused {
        cold: String,
        #[serde(default)]
        again: bool,
    },
    Ended {
        exited: u8,
        at: f64,
    },
}

/// A rank that is ready and waits to be let go.
#[derive(Debug)]
pub struct Rank {
    guardian: BufReader<UnixStream>,
    /// Its standard output and error, where lines are marked.
    output: Vec<OwnedFd>,
}

/// What came of making ranks ready.
#[derive(Debug)]
pub enum Prepared {
    Ready(Vec<Rank>),
    /// What was imported is no longer as it was.
    Outdated,
    Refused(String),
}

/// Has every rank forked and made ready. Unless all are, none runs: a guardian whose launcher hangs up kills its rank.
///
/// # Errors
/// The zygote is gone or does not answer in time, or the machine refuses.
pub fn prepare(
    plan: &Plan,
    folder: &Path,
    patience: Duration,
    connect: impl Fn() -> io::Result<UnixStream>,
) -> io::Result<Prepared> {
    let namespaces = NAMESPACES.map(|name| File::open(format!("/proc/self/ns/{name}")));
    let namespaces = namespaces.into_iter().collect::<io::Result<Vec<File>>>()?;
    let mut ranks = Vec::new();
    // all are asked before any answer is waited for: they are made ready side by side
    for env in &plan.ranks {
        let mut stream = connect()?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let (output, ends) = if plan.tee { pipes()? } else { (Vec::new(), Vec::new()) };
        let streams: [RawFd; 3] = match &ends[..] {
            [stdout, stderr] => [0, stdout.as_raw_fd(), stderr.as_raw_fd()],
            _ => [0, 1, 2],
        };
        let descriptors: Vec<RawFd> = streams.into_iter().chain(namespaces.iter().map(AsRawFd::as_raw_fd)).collect();
        let request = json!({"argv": plan.argv, "env": env, "folder": folder, "namespaces": NAMESPACES});
        let text = serde_json::to_vec(&request)?;
        let head = (text.len() as u64).to_le_bytes();
        let control = [ControlMessage::ScmRights(&descriptors)];
        let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&head)], &control, MsgFlags::MSG_NOSIGNAL, None)?;
        stream.write_all(&head[sent..])?;
        stream.write_all(&text)?;
        ranks.push(Rank { guardian: BufReader::new(stream), output });
    }
    for rank in &mut ranks {
        match read(&mut rank.guardian)? {
            Some(Said::Ready { pid }) => {
                // a rank is forked from a process outside of the pod
                if let Ok(own) = std::fs::read("/proc/self/oom_score_adj") {
                    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), own);
                }
                if let Err(e) = crate::cgroup::bring(pid) {
                    return Ok(Prepared::Refused(format!("the pod's limits would not hold: cgroup: {e}")));
                }
            }
            Some(Said::Refused { again: true, .. }) => return Ok(Prepared::Outdated),
            Some(Said::Refused { cold, .. }) => return Ok(Prepared::Refused(cold)),
            Some(Said::Ended { .. }) | None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    for rank in &ranks {
        // how long the rank runs is its own affair
        rank.guardian.get_ref().set_read_timeout(None)?;
        rank.guardian.get_ref().set_write_timeout(None)?;
    }
    Ok(Prepared::Ready(ranks))
}

/// Two pipes for standard output and error: the ends to read, and those to write.
fn pipes() -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let flags = nix::fcntl::OFlag::O_CLOEXEC;
    let (stdout, stdout_in) = pipe2(flags)?;
    let (stderr, stderr_in) = pipe2(flags)?;
    Ok((vec![stdout, stderr], vec![stdout_in, stderr_in]))
}

fn read(guardian: &mut BufReader<UnixStream>) -> io::Result<Option<Said>> {
    let mut line = String::new();
    if guardian.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).map_err(io::Error::other)
}

/// What the launcher waits for.
#[derive(Debug)]
enum Happened {
    Signal(Signal),
    /// A rank ended; `None`: its guardian is gone, and the rank with it.
    Ended {
        local: usize,
        how: Option<(u8, f64)>,
    },
    /// A stream of a rank ended.
    Drained,
}

/// Lets the ranks go and waits for their ends; the exit code of the one that failed first, or 0.
pub fn run(ranks: Vec<Rank>, plan: &Plan) -> u8 {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    // before there are threads, which inherit it: signals wait for the thread that asks for them
    let _ = signals.thread_block();
    let (sender, happened) = mpsc::channel();
    let told = sender.clone();
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            let _ = told.send(Happened::Signal(signal));
        }
    });
    let mut streams = 0;
    let mut guardians = Vec::new();
    for (local, Rank { guardian, output }) in ranks.into_iter().enumerate() {
        for (stream, is_error) in output.into_iter().zip([false, true]) {
            streams += 1;
            let told = sender.clone();
            thread::spawn(move || mark(local, File::from(stream), is_error, &told));
        }
        // the reader reports a guardian that is gone
        guardians.extend(guardian.get_ref().try_clone());
        let told = sender.clone();
        thread::spawn(move || attend(local, guardian, &told));
    }
    drop(sender);
    tell_all(&guardians, GO);
    let mut left = guardians.len();
    let mut failed: Option<(f64, usize, u8)> = None;
    let mut kill_at: Option<Instant> = None;
    while left > 0 {
        let now = Instant::now();
        if kill_at.is_some_and(|at| at <= now) {
            kill_at = None;
            tell_all(&guardians, Signal::SIGKILL as u8);
        }
        let wait = kill_at.map_or(Duration::MAX, |at| at.duration_since(now));
        match happened.recv_timeout(wait) {
            Ok(Happened::Signal(signal)) => {
                tell_all(&guardians, signal as u8);
                kill_at = kill_at.or(Some(api::time::after(now, GRACE)));
            }
            Ok(Happened::Drained) => streams -= 1,
            Ok(Happened::Ended { local, how }) => {
                left -= 1;
                let (code, at) = how.unwrap_or((KILLED, f64::INFINITY));
                if code == 0 {
                    continue;
                }
                if failed.is_none() && left > 0 && kill_at.is_none() {
                    tell_all(&guardians, Signal::SIGTERM as u8);
                    kill_at = Some(api::time::after(now, GRACE));
                }
                if failed.is_none_or(|(first, ..)| at < first) {
                    failed = Some((at, local, code));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let drained_by = api::time::after(Instant::now(), DRAIN);
    while streams > 0 {
        match happened.recv_timeout(drained_by.saturating_duration_since(Instant::now())) {
            Ok(Happened::Drained) => streams -= 1,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    let Some((_, local, code)) = failed else { return 0 };
    if plan.ranks.len() > 1 {
        let rank = plan.first_rank as usize + local;
        crate::say!(
            "trainyard: rank {rank} failed first, with exit code {code}; the other ranks of this node were ended"
        );
    }
    code
}

fn tell_all(guardians: &[UnixStream], byte: u8) {
    for mut guardian in guardians {
        // one that is gone has ended its rank
        let _ = guardian.write_all(&[byte]);
    }
}

/// Tells how a rank ends.
fn attend(local: usize, mut guardian: BufReader<UnixStream>, told: &Sender<Happened>) {
    let how = loop {
        match read(&mut guardian) {
            Ok(Some(Said::Ended { exited, at })) => break Some((exited, at)),
            Ok(Some(Said::Ready { .. } | Said::Refused { .. })) => {}
            Ok(None) | Err(_) => break None,
        }
    };
    let _ = told.send(Happened::Ended { local, how });
}

/// Copies a rank's lines to our own stream, each with its local rank before it, as torchrun's tee does.
fn mark(local: usize, stream: File, is_error: bool, told: &Sender<Happened>) {
    let mut stream = BufReader::new(stream);
    let write = |bytes: &[u8]| {
        if is_error { io::stderr().lock().write_all(bytes) } else { io::stdout().lock().write_all(bytes) }
    };
    let mut begins = true;
    loop {
        let mut piece = if begins { format!("[default{local}]:").into_bytes() } else { Vec::new() };
        match (&mut stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut piece) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        begins = piece.ends_with(b"\n");
        let _ = write(&piece);
    }
    if !begins {
        let _ = write(b"\n");
    }
    let _ = io::stdout().flush();
    let _ = told.send(Happened::Drained);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_zygote_that_does_not_answer_is_not_waited_for() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("s");
        // like a stopped zygote: the kernel accepts the connection, and nobody reads from it
        let _listener = UnixListener::bind(&path).unwrap();
        let argv = vec!["train.py".to_owned()];
        let plan = Plan { python: None, argv, ranks: vec![BTreeMap::new(); 2], tee: false, first_rank: 0 };
        let ready = prepare(&plan, Path::new("/"), Duration::from_millis(50), || UnixStream::connect(&path));
        assert_eq!(ready.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
