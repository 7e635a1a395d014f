//! Talks to a pod's shim: starts it, follows its journal, asks it to stop or to execute.

use crate::poddir::PodDir;
use crate::shim::READY;
use crate::wire::{Isolation, Reply, Request};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;

/// How long a new shim may take until it has its pod. On a loaded machine with a slow disk, seconds; never this long.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a shim for the pod directory, which keeps `held` open as long as it lives; returns once it has the pod (or
/// another shim has).
pub async fn start(shim: &[OsString], dir: &PodDir, held: Option<OwnedFd>) -> io::Result<()> {
    let log = File::options().append(true).create(true).open(dir.shim_log())?;
    let stdin = held.map_or_else(Stdio::null, Stdio::from);
    let mut child = command(shim)?.arg(dir.path()).stdin(stdin).stdout(Stdio::piped()).stderr(log).spawn()?;
    let mut stdout = child.stdout.take().expect("invariant: stdout is piped");
    let mut said = vec![0; READY.len()];
    let ready = tokio::time::timeout(START_TIMEOUT, stdout.read_exact(&mut said)).await;
    // The program that runs the agent must not wait for the shim. Tokio reaps it when it ends.
    drop(child);
    match ready {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(io::Error::other(format!("the shim ended: {}", crate::shim::complaint(dir)))),
        Err(_) => Err(io::Error::other("the shim does not answer")),
    }
}

fn command(shim: &[OsString]) -> io::Result<Command> {
    let (program, args) = shim.split_first().ok_or_else(|| io::Error::other("no shim program"))?;
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

/// Finds out what isolation this machine allows, in `dir` (created if it is not there).
pub async fn probe(shim: &[OsString], dir: &Path) -> io::Result<Isolation> {
    std::fs::create_dir_all(dir)?;
    let output = command(shim)?.arg("--probe").arg(dir).stdin(Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        io::Error::other(format!("the shim's probe failed: {}", String::from_utf8_lossy(&output.stderr).trim_end()))
    })
}

/// A connection to a living shim.
#[derive(Debug)]
pub struct Link {
    stream: BufReader<UnixStream>,
}

impl Link {
    /// Connects. Fails if no shim is there.
    pub async fn connect(dir: &PodDir) -> io::Result<Self> {
        // Through a descriptor of the directory: the path of a socket is limited to 107 bytes.
        let directory = File::open(dir.path())?;
        let path = format!("/proc/self/fd/{}/sock", directory.as_raw_fd());
        let stream = UnixStream::connect(path).await?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks for something that has no answer.
    pub async fn send(&mut self, request: &Request) -> io::Result<()> {
        self.stream.get_mut().write_all(&line(request)).await
    }

    /// Asks for something that comes with descriptors.
    pub async fn send_with(&mut self, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let line = line(request);
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let stream = self.stream.get_mut();
        loop {
            stream.writable().await?;
            let sent = stream.try_io(tokio::io::Interest::WRITABLE, || {
                let parts = [IoSlice::new(&line)];
                let control = [ControlMessage::ScmRights(&raw)];
                sendmsg::<()>(stream.as_raw_fd(), &parts, &control, MsgFlags::MSG_NOSIGNAL, None)
                    .map_err(io::Error::from)
            });
            match sent {
                Ok(sent) => return stream.write_all(&line[sent..]).await,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for the next notification; `false`: the shim is gone. Cancel safe.
    pub async fn notified(&mut self) -> bool {
        matches!(self.stream.fill_buf().await, Ok(bytes) if !bytes.is_empty()) && {
            let read = self.stream.buffer().len();
            self.stream.consume(read);
            true
        }
    }

    /// Waits for the next reply; an error if the shim is gone.
    pub async fn reply(&mut self) -> io::Result<Reply> {
        let mut text = String::new();
        if self.stream.read_line(&mut text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&text).map_err(io::Error::other)
    }
}

fn line(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).expect("invariant: requests are plain data");
    line.push(b'\n');
    line
}
