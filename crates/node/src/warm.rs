//! Warm starts, from the agent's side: processes that have imported a framework and wait to be forked (zygotes).
//!
//! A pod's launcher (`shim::warm`) asks here for the zygote of its interpreter and environment, and is given a socket. Zygotes
//! are children of the agent, outside of all pods, and end when it does; the ranks that they forked go on.
//!
//! A warm pod's main process is the launcher. It hands the zygote the pod's namespaces, environment and streams,
//! and has a rank forked for each local rank. Between zygote and rank is a guardian, the rank's parent: it tells
//! the launcher how the rank ends, and kills all that the rank started when the launcher is gone. Commands that
//! cannot be forked are started normally.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout};

/// Zygotes at a time: each holds some hundred megabytes.
const ZYGOTES_MAX: usize = 2;
/// A zygote that nobody asked ends.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long an import may take; on a cold disk it is many seconds.
const IMPORT_MAX: Duration = Duration::from_secs(120);
/// How long a launcher may take to say what it wants, and how much it may say.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const ASK_BYTES_MAX: u64 = 4 << 20;
/// The agent's socket in the directory of warm starts.
pub const SOCKET: &str = "sock";

const PROGRAM: &str = include_str!("warm/zygote.py");

/// What a zygote is for. It is started with these variables and no others, so that it can depend on nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub python: String,
    /// Where it is started; of meaning only where the search path has relative parts.
    pub folder: PathBuf,
    pub env: BTreeMap<String, String>,
    pub modules: Vec<String>,
}

/// A launcher's request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    #[serde(flatten)]
    pub ask: Ask,
    /// The socket of one that turned out to be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not: Option<String>,
}

/// The agent's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The name of the zygote's socket, beside the agent's.
    Socket(String),
    /// Why there is none.
    Cold(String),
}

/// What a zygote says first.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Said {
    Ready(#[expect(dead_code, reason = "it says no more than that it is ready")] bool),
    Error(String),
}

/// Why there is no zygote for a launcher.
#[derive(Debug, thiserror::Error)]
enum ZygoteError {
    #[error("{python}: {error}")]
    Spawn { python: String, error: io::Error },
    /// What its import said.
    #[error("{python}: {why}")]
    Import { python: String, why: String },
    #[error("{python} ended while it imported {modules}; see {}", log.display())]
    Ended { python: String, modules: String, log: PathBuf },
    #[error("{python} took too long to import {modules}")]
    TimedOut { python: String, modules: String },
}

#[derive(Debug)]
struct Zygote {
    ask: Ask,
    socket: String,
    child: Child,
    /// Ends with this.
    _alive: ChildStdin,
    used: Instant,
}

/// The zygotes of one agent.
#[derive(Debug)]
pub struct Zygotes {
    dir: PathBuf,
    zygotes: Vec<Zygote>,
    started: u32,
}

impl Zygotes {
    /// Makes the directory anew: what listened there has ended with the agent that started it.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn new(dir: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        DirBuilder::new().mode(0o700).create(&dir)?;
        fs::write(dir.join("zygote.py"), PROGRAM)?;
        Ok(Self { dir, zygotes: Vec::new(), started: 0 })
    }

    /// Answers launchers, one after the other; returns why it cannot.
    pub async fn serve(mut self) -> io::Error {
        let listener = match self.listen() {
            Ok(listener) => listener,
            Err(error) => return error,
        };
        loop {
            let answered = match listener.accept().await {
                Ok((stream, _)) => self.answer(stream).await,
                Err(error) => return error,
            };
            if let Err(error) = answered {
                tracing::debug!(%error, "a launcher hung up");
            }
        }
    }

    fn listen(&self) -> io::Result<UnixListener> {
        // Through a descriptor of the directory: the path of a socket is limited to 107 bytes.
        let directory = File::open(&self.dir)?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?;
        fs::set_permissions(self.dir.join(SOCKET), Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    async fn answer(&mut self, stream: UnixStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        timeout(ASK_TIMEOUT, (&mut stream).take(ASK_BYTES_MAX).read_line(&mut line)).await??;
        let request: Request = serde_json::from_str(&line).map_err(io::Error::other)?;
        let answer = match self.find(&request).await {
            Ok(socket) => Answer::Socket(socket),
            Err(why) => Answer::Cold(why.to_string()),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        stream.get_mut().write_all(&line).await
    }

    /// The socket of a living zygote that fits, which is started if there is none.
    async fn find(&mut self, request: &Request) -> Result<String, ZygoteError> {
        let Request { ask, not } = request;
        self.zygotes.retain_mut(|zygote| {
            let is_out = not.as_ref() == Some(&zygote.socket);
            if is_out {
                let _ = zygote.child.start_kill(); // one that is stopped would not see the end of its input
            }
            !is_out && matches!(zygote.child.try_wait(), Ok(None))
        });
        if let Some(zygote) = self.zygotes.iter_mut().find(|zygote| zygote.ask == *ask) {
            zygote.used = Instant::now();
            return Ok(zygote.socket.clone());
        }
        while self.zygotes.len() >= ZYGOTES_MAX {
            let oldest = (0..self.zygotes.len()).min_by_key(|&index| self.zygotes[index].used);
            self.zygotes.swap_remove(oldest.unwrap_or(0));
        }
        let zygote = self.start(ask.clone()).await?;
        let socket = zygote.socket.clone();
        self.zygotes.push(zygote);
        Ok(socket)
    }

    async fn start(&mut self, ask: Ask) -> Result<Zygote, ZygoteError> {
        self.started += 1;
        let socket = self.started.to_string();
        let python = ask.python.clone();
        let (mut child, stdout) = match self.spawn(&ask, &socket) {
            Ok(started) => started,
            Err(error) => return Err(ZygoteError::Spawn { python, error }),
        };
        let alive = child.stdin.take().expect("invariant: stdin is piped");
        let mut said = String::new();
        let read = timeout(IMPORT_MAX, BufReader::new(stdout).read_line(&mut said)).await;
        match read.map(|read| read.map(|_| serde_json::from_str(&said))) {
            Ok(Ok(Ok(Said::Ready(_)))) => Ok(Zygote { ask, socket, child, _alive: alive, used: Instant::now() }),
            Ok(Ok(Ok(Said::Error(why)))) => Err(ZygoteError::Import { python, why }),
            Ok(Ok(Err(_)) | Err(_)) => {
                Err(ZygoteError::Ended { python, modules: ask.modules.join(", "), log: self.log() })
            }
            Err(_) => Err(ZygoteError::TimedOut { python, modules: ask.modules.join(", ") }),
        }
    }

    fn spawn(&self, ask: &Ask, socket: &str) -> io::Result<(Child, tokio::process::ChildStdout)> {
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(self.log())?;
        let mut command = Command::new(&ask.python);
        command.arg("-u").arg(self.dir.join("zygote.py")).arg(self.dir.join(socket));
        command.arg(IDLE.as_secs().to_string()).args(&ask.modules);
        command.env_clear().envs(&ask.env).current_dir(&ask.folder).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
        let stdout = child.stdout.take().expect("invariant: stdout is piped");
        Ok((child, stdout))
    }

    fn log(&self) -> PathBuf {
        self.dir.join("zygote.log")
    }
}

/// The directory of warm starts in the agent's.
pub fn directory(data: &Path) -> PathBuf {
    data.join("warm")
}
