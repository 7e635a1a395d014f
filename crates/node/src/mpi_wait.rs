//! `trainyard mpi-wait`: a launcher's init container, which ends once all workers answer by SSH.

use api::mpi::names::hosts;
use futures::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// What an SSH server says first, before any key is asked for (RFC 4253, section 4.2).
const GREETING: &[u8] = b"SSH-";
/// What it may say before that, in bytes.
const BEFORE_MAX: usize = 8 << 10;
/// How long one attempt at a host may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(500);
/// Hosts that are asked at the same time.
const AT_ONCE: usize = 64;
/// 128 and SIGTERM's number, as shells have it.
const STOPPED: u8 = 143;

/// Whom to wait for, and how long.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Names the hosts; read again in each round.
    pub hostfile: PathBuf,
    /// An SSH server may listen on any of them.
    pub ports: Vec<u16>,
    /// In all.
    pub timeout: Duration,
}

/// Why a host has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Silent {
    NoName(String),
    /// By port.
    NoServer(Vec<(u16, String)>),
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName(why) => write!(f, "its name cannot be resolved: {why}"),
            Self::NoServer(ports) => {
                for (at, (port, why)) in ports.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}port {port}: {why}")?;
                }
                Ok(())
            }
        }
    }
}

/// Waits; returns the process's exit code.
pub async fn wait(args: &Wait) -> u8 {
    let own = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (Ok(mut terminated), Ok(mut interrupted)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        crate::say!("mpi-wait: this process cannot be told to stop");
        return 1;
    };
    tokio::select! {
        result = all(args, &own) => match result {
            Ok(count) => {
                crate::say!("mpi-wait: {count} workers answer");
                0
            }
            Err(why) => {
                crate::say!("{why}");
                crate::programs::leave_word(&why);
                1
            }
        },
        _ = terminated.recv() => STOPPED,
        _ = interrupted.recv() => STOPPED,
    }
}

/// Waits until all hosts but `own` have answered once; returns how many they are, or which have not.
async fn all(args: &Wait, own: &str) -> Result<usize, String> {
    let until = api::time::after(Instant::now(), args.timeout);
    let mut answered: BTreeSet<String> = BTreeSet::new();
    let mut told = usize::MAX;
    loop {
        let wanted = read(args, own);
        let missing: Vec<String> = wanted.iter().flatten().filter(|host| !answered.contains(*host)).cloned().collect();
        let asked = futures::stream::iter(missing).map(|host| async {
            let silent = ask(&host, &args.ports, until).await.err();
            (host, silent)
        });
        let asked: Vec<(String, Option<Silent>)> = asked.buffer_unordered(AT_ONCE).collect().await;
        let mut silent: BTreeMap<String, Silent> = BTreeMap::new();
        for (host, why) in asked {
            match why {
                Some(why) => _ = silent.insert(host, why),
                None => _ = answered.insert(host),
            }
        }
        // the list may have changed meanwhile: a worker that is scaled away need not answer
        let wanted = read(args, own);
        if let Ok(wanted) = &wanted
            && wanted.iter().all(|host| answered.contains(host))
        {
            return Ok(wanted.len());
        }
        if Instant::now() >= until {
            return Err(complaint(args, wanted, &silent));
        }
        if let Ok(wanted) = &wanted
            && told != silent.len()
        {
            told = silent.len();
            crate::say!("mpi-wait: waiting for {told} of {} workers", wanted.len());
        }
        sleep(PAUSE).await;
    }
}

/// The hosts to wait for. The launcher may be among them (it runs ranks, too): its server is started after us.
fn read(args: &Wait, own: &str) -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string(&args.hostfile)?;
    let is_own = |host: &str| !own.is_empty() && host.split('.').next() == own.split('.').next();
    Ok(hosts(&text).into_iter().filter(|host| !is_own(host)).map(str::to_owned).collect())
}

fn complaint(args: &Wait, wanted: io::Result<Vec<String>>, silent: &BTreeMap<String, Silent>) -> String {
    let count = wanted.as_ref().map_or(0, Vec::len);
    // in the hostfile's order
    let missing =
        wanted.map(|hosts| hosts.iter().filter_map(|host| Some(format!("{host} ({})", silent.get(host)?))).collect());
    crate::programs::missing_workers(&args.hostfile, count, missing, "reached by SSH", args.timeout)
}

/// Whether an SSH server greets on one of the ports.
async fn ask(host: &str, ports: &[u16], until: Instant) -> Result<(), Silent> {
    let until = until.min(api::time::after(Instant::now(), ATTEMPT));
    let late = || "no answer in time".to_owned();
    let addresses = match timeout_at(until, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(addresses)) => addresses.map(|address| address.ip()).collect::<Vec<_>>(),
        Ok(Err(error)) => return Err(Silent::NoName(error.to_string())),
        Err(_) => return Err(Silent::NoName(late())),
    };
    let tries = ports.iter().map(|port| {
        let addresses = &addresses;
        async move {
            let mut why = "it has no address".to_owned();
            for address in addresses {
                match timeout_at(until, greets((*address, *port))).await {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => why = error.to_string(),
                    Err(_) => why = late(),
                }
            }
            Err((*port, why))
        }
    });
    let mut refused = Vec::new();
    for tried in futures::future::join_all(tries).await {
        match tried {
            Ok(()) => return Ok(()),
            Err(why) => refused.push(why),
        }
    }
    Err(Silent::NoServer(refused))
}

/// Reads until the greeting's line begins; a server may say other lines before it.
async fn greets(address: (std::net::IpAddr, u16)) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut heard = Vec::new();
    let mut buffer = [0_u8; 512];
    while heard.len() < BEFORE_MAX {
        let count = match timeout(ATTEMPT, stream.read(&mut buffer)).await {
            Ok(read) => read?,
            Err(_) => break,
        };
        heard.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if heard.split(|&byte| byte == b'\n').any(|line| line.starts_with(GREETING)) {
            return Ok(());
        }
        if count == 0 {
            break;
        }
    }
    Err(io::Error::other("what answers is no SSH server"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    /// A server that says this to everybody.
    async fn server(text: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(text).await;
            }
        });
        port
    }

    /// A port on which nobody listens.
    async fn silent() -> u16 {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
    }

    async fn outcome(hostfile: &str, port: Vec<u16>, secs: u64) -> Result<usize, String> {
        let dir = tempfile();
        let file = dir.join("hostfile");
        std::fs::write(&file, hostfile).unwrap();
        let args = Wait { hostfile: file, ports: port, timeout: Duration::from_secs(secs) };
        let outcome = all(&args, "train-launcher").await;
        std::fs::remove_dir_all(dir).unwrap();
        outcome
    }

    fn tempfile() -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("mpi-wait-{:016x}", rand::random::<u64>()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[tokio::test]
    async fn servers_that_greet_end_the_wait() {
        let (ssh, talks) = (server(b"SSH-2.0-x\r\n").await, server(b"welcome\r\nSSH-2.0-y\r\n").await);
        let refused = silent().await;
        let hosts = "train-launcher.train.ns.svc slots=1\n127.0.0.1:4\nlocalhost slots=2\n";
        assert_eq!(outcome(hosts, vec![refused, ssh], 60).await, Ok(2));
        assert_eq!(outcome("127.0.0.1\n", vec![talks], 60).await, Ok(1));
        assert_eq!(outcome("", vec![refused], 60).await, Ok(0), "there is nobody to wait for");
    }

    #[tokio::test]
    async fn who_is_missing_is_named() {
        let (web, refused) = (server(b"HTTP/1.1 400 Bad Request\r\n\r\n").await, silent().await);
        let why = outcome("127.0.0.1 slots=1\n", vec![web, refused], 0).await.unwrap_err();
        assert!(why.starts_with("1 of 1 workers could not be reached by SSH within 0 s: 127.0.0.1 (port "), "{why}");
        let why = outcome("no-such-host.invalid slots=1\n127.0.0.1\n", vec![refused], 0).await.unwrap_err();
        assert!(why.contains("2 of 2") && why.contains("no-such-host.invalid ("), "{why}");
        let args = Wait { hostfile: "/nowhere/hostfile".into(), ports: vec![22], timeout: Duration::ZERO };
        let why = all(&args, "").await.unwrap_err();
        assert!(why.starts_with("/nowhere/hostfile: No such file"), "{why}");
    }

    #[tokio::test]
    async fn what_answers_late_or_otherwise_is_told() {
        let web = server(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let until = api::time::after(Instant::now(), Duration::from_secs(60));
        let said = ask("127.0.0.1", &[web], until).await.unwrap_err().to_string();
        assert_eq!(said, format!("port {web}: what answers is no SSH server"));
    }
}
