//! Which pods can be reached, for `ssh` between pods and for launchers that wait for their workers.
//!
//! A pod is reached through its shim, so it is up when that runs its first container. Whether a pod that is not up is on its
//! way is in the asking pod's hosts file: the agent writes the names of all pods there that are bound to this node.

use crate::poddir::PodDir;
use crate::wire::{Event, Launch, Record};
use api::mpi::names::hosts;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often is looked.
const PAUSE: Duration = Duration::from_millis(100);
/// How long `ssh` waits for a name of its own service that nobody has yet: what ten attempts, a second apart, take.
const UNBOUND: Duration = Duration::from_secs(10);
/// How long `ssh` waits for a pod that is bound.
const BOUND: Duration = Duration::from_secs(600);
/// How long `ssh` waits for one that comes in the place of a pod that has ended.
const ENDED: Duration = Duration::from_secs(2);

/// What a pod sees of its service: the pods that were made ready to run, and the names of all that are bound to this node.
struct View {
    made: Vec<(PodDir, Launch)>,
    bound: BTreeSet<String>,
}

/// Where a host name leads to.
pub(super) enum Place {
    /// A pod that runs its first container.
    Up(Box<(PodDir, Launch)>),
    /// A pod that is bound to this node, or is to be.
    Coming,
    /// The name would be one of our service's, and nobody has it.
    Nobody,
    /// A pod that has ended, or is being stopped.
    Over,
    /// Not a pod of our service.
    Elsewhere,
}

/// The asking pod.
pub(super) struct Me {
    pods: PathBuf,
    launch: Launch,
}

impl Me {
    /// The pod that this process is in; `None` outside of pods.
    pub(super) fn new(pods: &Path) -> Option<Self> {
        let dir = PodDir::new(pods.join(std::env::var("TRAINYARD_POD_UID").ok()?));
        Some(Self { pods: pods.to_owned(), launch: dir.read_launch().ok()?? })
    }

    /// Notes that this pod enters another: before it does, so that its end never comes first.
    pub(super) fn note_entry(&self) -> io::Result<()> {
        let dir = PodDir::new(self.pods.join(&self.launch.uid));
        fs::OpenOptions::new().create(true).append(true).open(dir.entered()).map(drop)
    }

    /// Whether this pod is of our service.
    fn is_peer(&self, other: &Launch) -> bool {
        let Launch { namespace, subdomain, .. } = &self.launch;
        !subdomain.is_empty() && other.namespace == *namespace && other.subdomain == *subdomain
    }

    /// Whether a host name is one that this pod of our service has.
    fn is_called(&self, peer: &Launch, host: &str) -> bool {
        self.is_peer(peer) && (host == peer.address || self.label(host) == Some(&peer.hostname))
    }

    /// The pod's own name in a host name of our service.
    fn label<'a>(&self, host: &'a str) -> Option<&'a str> {
        let Launch { namespace, subdomain, .. } = &self.launch;
        let (label, rest) = host.split_once('.').unwrap_or((host, subdomain));
        let rest = rest.strip_prefix(subdomain.as_str())?;
        let is_domain = |rest: &str| rest.is_empty() || rest == ".svc" || rest.starts_with(".svc.");
        let is_its = rest.is_empty() || rest.strip_prefix('.')?.strip_prefix(namespace.as_str()).is_some_and(is_domain);
        (!label.is_empty() && !subdomain.is_empty() && is_its).then_some(label)
    }

    /// What there is of our service now.
    fn view(&self) -> View {
        let dirs = fs::read_dir(&self.pods).into_iter().flatten().flatten().map(|entry| PodDir::new(entry.path()));
        let made = dirs.filter_map(|dir| {
            let launch = dir.read_launch().ok()??;
            self.is_peer(&launch).then_some((dir, launch))
        });
        let text = fs::read_to_string(PodDir::new(self.pods.join(&self.launch.uid)).hosts()).unwrap_or_default();
        let bound = text.lines().flat_map(|line| line.split_whitespace().skip(1)).map(str::to_owned).collect();
        View { made: made.collect(), bound }
    }

    /// Where a host name leads to.
    fn look(&self, view: &View, host: &str) -> Place {
        let mut is_over = false;
        for (dir, launch) in view.made.iter().filter(|(_, launch)| self.is_called(launch, host)) {
            match state(dir, launch) {
                State::Up => return Place::Up(Box::new((dir.clone(), launch.clone()))),
                State::Coming => return Place::Coming,
                // one that comes in its place may be there already
                State::Over => is_over = true,
            }
        }
        let label = self.label(host);
        let is_bound = |label: &str| view.bound.contains(&format!("{label}.{}", self.launch.subdomain));
        match (is_over, label.is_some_and(is_bound), label) {
            (true, _, _) => Place::Over,
            (false, true, Some(_)) => Place::Coming,
            // without a dot it may as well be a machine
            (false, _, Some(_)) if host.contains('.') => Place::Nobody,
            (false, _, _) => Place::Elsewhere,
        }
    }

    /// The pod of this name, once it is up; its fate where it does not come.
    pub(super) fn wait_for(&self, host: &str) -> Result<Place, &'static str> {
        let began = Instant::now();
        loop {
            let place = self.look(&self.view(), host);
            let most = match place {
                Place::Up(_) | Place::Elsewhere => return Ok(place),
                Place::Over => (ENDED, "that pod has ended"),
                Place::Coming => (BOUND, "that pod does not start"),
                Place::Nobody => (UNBOUND, "there is no such pod"),
            };
            if began.elapsed() >= most.0 {
                return Err(most.1);
            }
            sleep(PAUSE);
        }
    }
}

enum State {
    Coming,
    Up,
    Over,
}

fn state(dir: &PodDir, launch: &Launch) -> State {
    let Ok(records) = dir.read_journal() else { return State::Coming };
    let main = launch.containers.first().map(|container| container.name.as_str()).unwrap_or_default();
    match (of_journal(&records, main), dir.shim()) {
        // its shim is gone without a word: the agent will say so
        (State::Up, Ok(None)) => State::Over,
        (state, _) => state,
    }
}

fn of_journal(records: &[Record], main: &str) -> State {
    let mut state = State::Coming;
    for record in records {
        match &record.event {
            Event::Running { container, .. } if container == main => state = State::Up,
            // it may be started again; where it is not, more records follow
            Event::Exited { container, .. } if container == main => state = State::Coming,
            Event::Stopping { .. } | Event::Finished | Event::Lost { .. } => return State::Over,
            Event::Taken { .. }
            | Event::Running { .. }
            | Event::Exited { .. }
            | Event::Waiting { .. }
            | Event::Started { .. }
            | Event::HookFailed { .. } => {}
        }
    }
    state
}

/// `mpi-wait` of a pod: returns once each host of the hostfile is a pod that is up, but the own one.
pub fn main(pods: &Path, words: &[OsString]) -> ExitCode {
    let (hostfile, most) = match arguments(words) {
        Ok(arguments) => arguments,
        Err(why) => {
            crate::say!("mpi-wait: {why}");
            return ExitCode::from(2);
        }
    };
    let Some(me) = Me::new(pods) else {
        crate::say!("mpi-wait: this is no pod");
        return ExitCode::from(2);
    };
    let began = Instant::now();
    let mut told = usize::MAX;
    loop {
        let (count, missing) = missing(&me, &hostfile);
        if missing.as_ref().is_ok_and(Vec::is_empty) {
            return ExitCode::SUCCESS;
        }
        if began.elapsed() >= most {
            let why = crate::programs::missing_workers(&hostfile, count, missing, "reached", most);
            crate::say!("{why}");
            crate::programs::leave_word(&why);
            return ExitCode::FAILURE;
        }
        if let Ok(missing) = missing
            && missing.len() != told
        {
            told = missing.len();
            crate::say!("mpi-wait: waiting for {told} of {count} workers");
        }
        sleep(PAUSE);
    }
}

/// How many workers there are, and those that are not up, with the reason.
fn missing(me: &Me, hostfile: &Path) -> (usize, io::Result<Vec<String>>) {
    let text = match fs::read_to_string(hostfile) {
        Ok(text) => text,
        Err(error) => return (0, Err(error)),
    };
    let workers: Vec<&str> = hosts(&text).into_iter().filter(|host| !me.is_called(&me.launch, host)).collect();
    let view = me.view();
    let why = |host: &&str| {
        let why = match me.look(&view, host) {
            Place::Up(_) => return None,
            Place::Coming => "its pod does not run yet",
            Place::Over => "its pod has ended",
            Place::Nobody | Place::Elsewhere => "no pod of that name is on this node",
        };
        Some(format!("{host} ({why})"))
    };
    (workers.len(), Ok(workers.iter().filter_map(why).collect()))
}

/// An argument of `mpi-wait` that is none.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum ArgumentError {
    #[error("{0}: not a number of seconds")]
    Seconds(String),
    #[error("{0}: arguments are --hostfile=FILE, --timeout=SECONDS and --port=PORT")]
    Unknown(String),
}

/// `--hostfile=FILE` and `--timeout=SECONDS`; ports are of no interest here.
fn arguments(words: &[OsString]) -> Result<(PathBuf, Duration), ArgumentError> {
    let (mut hostfile, mut most) = (PathBuf::from("/etc/mpi/hostfile"), BOUND);
    for word in words {
        let word = word.to_string_lossy();
        match word.split_once('=') {
            Some(("--hostfile", file)) => hostfile = file.into(),
            Some(("--timeout", text)) => {
                let seconds =
                    text.trim_end_matches('s').parse().map_err(|_| ArgumentError::Seconds(word.to_string()))?;
                most = Duration::from_secs(seconds);
            }
            Some(("--port", _)) => {}
            _ => return Err(ArgumentError::Unknown(word.into_owned())),
        }
    }
    Ok((hostfile, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Exit, StopReason};
    use jiff::Timestamp;

    fn journal(events: Vec<Event>) -> Vec<Record> {
        events.into_iter().map(|event| Record { at: Timestamp::UNIX_EPOCH, uptime: None, event }).collect()
    }

    #[test]
    fn a_pod_is_up_while_its_first_container_runs() {
        let running = |container: &str| Event::Running { container: container.to_owned(), attempt: 0, pid: 1 };
        let at = Timestamp::UNIX_EPOCH;
        let exit = Exit {
            code: 1,
            signal: None,
            reason: "Error".to_owned(),
            message: String::new(),
            started_at: at,
            finished_at: at,
            peak_memory_bytes: None,
        };
        let exited =
            |container: &str| Event::Exited { container: container.to_owned(), attempt: 0, exit: exit.clone() };
        let stopping = || Event::Stopping { why: StopReason::Deleted, grace_secs: 1 };
        for (events, expected) in [
            (vec![], "coming"),
            (vec![running("init")], "coming"),
            (vec![running("init"), exited("init"), running("main")], "up"),
            (vec![running("main"), running("other"), exited("other")], "up"),
            (vec![running("main"), exited("main")], "coming"),
            (vec![running("main"), exited("main"), running("main")], "up"),
            (vec![running("main"), stopping()], "over"),
            (vec![running("main"), exited("main"), Event::Finished], "over"),
            (vec![Event::Lost { message: String::new() }], "over"),
        ] {
            let state = match of_journal(&journal(events.clone()), "main") {
                State::Coming => "coming",
                State::Up => "up",
                State::Over => "over",
            };
            assert_eq!(state, expected, "{events:?}");
        }
    }

    #[test]
    fn arguments_are_the_subcommands() {
        let read = |text: &str| arguments(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(read("--port=22 --port=2222"), Ok(("/etc/mpi/hostfile".into(), BOUND)));
        assert_eq!(read("--hostfile=/a=b --timeout=3s"), Ok(("/a=b".into(), Duration::from_secs(3))));
        assert!(read("--timeout=soon").is_err() && read("now").is_err());
    }
}
