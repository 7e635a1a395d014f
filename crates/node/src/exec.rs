//! Commands in running containers: what `kubectl exec` needs.

use crate::link::Link;
use crate::poddir::PodDir;
use crate::wire::{Reply, Request};
use nix::fcntl::OFlag;
use nix::pty::{Winsize, openpty};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::unix::pipe;

/// What to execute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOptions {
    pub container: String,
    pub command: Vec<String>,
    /// Whether there is something to read; otherwise the command's input ends at once.
    pub stdin: bool,
    /// Run in a terminal: one stream for output and errors, and a size.
    pub tty: bool,
}

/// Why a command could not be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("container {0:?} is not running")]
    NotRunning(String),
    /// The container's process could not execute it (no such program, …).
    #[error("{0}")]
    Refused(String),
    #[error("executing a command")]
    Io(#[source] io::Error),
}

/// A running command. Dropping it, or its `exit` alone, kills the command if it has not ended.
pub struct Exec {
    /// `None` if not asked for. Drop it to end the input.
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// `None` in a terminal.
    pub stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// In a terminal: changes its size.
    pub terminal: Option<Terminal>,
    pub exit: ExecExit,
}

/// Where the exit code of a command arrives.
#[derive(Debug)]
pub struct ExecExit {
    link: Link,
}

impl ExecExit {
    /// The exit code (128 + number for a signal). All output may not have been read yet.
    ///
    /// # Errors
    /// The pod ended before the command did.
    pub async fn wait(mut self) -> io::Result<i32> {
        loop {
            match self.link.reply().await? {
                Reply::Started { .. } => {}
                Reply::Exited { code } => return Ok(code),
                Reply::Refused { message } => return Err(io::Error::other(message)),
            }
        }
    }
}

/// Executes a command in a container of a pod on this machine.
///
/// # Expected flow
/// Read `stdout` and `stderr` to their ends while writing `stdin`, then `exit.wait()`.
///
/// # Guarantees
/// When this returns, the command runs.
///
/// # Caveats
/// What a command that has ended leaves behind keeps running, and keeps the streams open, until the pod ends.
///
/// # Errors
/// See `ExecError`.
pub async fn exec(dir: &PodDir, options: ExecOptions) -> Result<Exec, ExecError> {
    let not_running = || ExecError::NotRunning(options.container.clone());
    let mut link = Link::connect(dir).await.map_err(|_| not_running())?;
    let request = Request::Exec {
        container: options.container.clone(),
        argv: options.command.clone(),
        tty: options.tty,
        kill_on_close: true,
    };
    let (theirs, mut exec) = streams(&options).map_err(ExecError::Io)?;
    let borrowed: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    link.send_with(&request, &borrowed).await.map_err(ExecError::Io)?;
    drop(borrowed);
    drop(theirs); // or the ends of the output would never show
    match link.reply().await {
        Ok(Reply::Started { .. }) => Ok(exec(link)),
        Ok(Reply::Refused { message }) => Err(ExecError::Refused(message)),
        Ok(Reply::Exited { code }) => Err(ExecError::Refused(format!("exit code {code}"))),
        Err(_) => Err(not_running()),
    }
}

type Finish = Box<dyn FnMut(Link) -> Exec + Send>;

/// The command's ends of its streams, and what makes an `Exec` of ours.
fn streams(options: &ExecOptions) -> io::Result<(Vec<OwnedFd>, Finish)> {
    if options.tty {
        let pty = openpty(&Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }, None)?;
        let flags = OFlag::from_bits_retain(nix::fcntl::fcntl(&pty.master, nix::fcntl::FcntlArg::F_GETFL)?);
        nix::fcntl::fcntl(&pty.master, nix::fcntl::FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let close_on_exec = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
        nix::fcntl::fcntl(&pty.master, close_on_exec)?;
        #[expect(unsafe_code, reason = "the descriptor is owned by what is registered, and never replaced")]
        let master = unsafe { AsyncFd::register_with_interest(pty.master, Interest::READABLE | Interest::WRITABLE) }?;
        let master = Arc::new(master);
        let stdin = options.stdin;
        let finish = move |link| Exec {
            stdin: stdin.then(|| Box::new(Terminal(Arc::clone(&master))) as Box<dyn AsyncWrite + Send + Unpin>),
            stdout: Box::new(Terminal(Arc::clone(&master))),
            stderr: None,
            terminal: Some(Terminal(Arc::clone(&master))),
            exit: ExecExit { link },
        };
        return Ok((vec![pty.slave], Box::new(finish)));
    }
    let (stdin, stdin_in) = if options.stdin {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        nonblocking(&writer)?;
        (reader, Some(pipe::Sender::from_owned_fd(writer)?))
    } else {
        (std::fs::File::open("/dev/null")?.into(), None)
    };
    let output = || -> io::Result<(pipe::Receiver, OwnedFd)> {
        let (reader, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        nonblocking(&reader)?;
        Ok((pipe::Receiver::from_owned_fd(reader)?, writer))
    };
    let ((stdout, stdout_in), (stderr, stderr_in)) = (output()?, output()?);
    let mut ours = Some((stdin_in, stdout, stderr));
    let finish = move |link| {
        let (stdin, stdout, stderr) = ours.take().expect("invariant: called once");
        Exec {
            stdin: stdin.map(|stdin| Box::new(stdin) as Box<dyn AsyncWrite + Send + Unpin>),
            stdout: Box::new(stdout),
            stderr: Some(Box::new(stderr)),
            terminal: None,
            exit: ExecExit { link },
        }
    };
    Ok((vec![stdin, stdout_in, stderr_in], Box::new(finish)))
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_GETFL)?);
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// Our side of a command's terminal.
#[derive(Clone, Debug)]
pub struct Terminal(Arc<AsyncFd<OwnedFd>>);

impl Terminal {
    /// Changes the terminal's size; the command gets SIGWINCH.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        #[expect(unsafe_code, reason = "nix has no wrapper for TIOCSWINSZ")]
        let result = unsafe { nix::libc::ioctl(self.0.as_raw_fd(), nix::libc::TIOCSWINSZ, &size) };
        nix::errno::Errno::result(result).map(drop).map_err(io::Error::from)
    }
}

impl AsyncRead for Terminal {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled();
            match guard.try_io(|fd| nix::unistd::read(fd.get_ref(), space).map_err(io::Error::from)) {
                Ok(Ok(size)) => {
                    buf.advance(size);
                    return Poll::Ready(Ok(()));
                }
                // The last process closed the terminal: its end.
                Ok(Err(e)) if e.raw_os_error() == Some(nix::libc::EIO) => return Poll::Ready(Ok(())),
                Ok(Err(e)) => return Poll::Ready(Err(e)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Terminal {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            match guard.try_io(|fd| nix::unistd::write(fd.get_ref(), bytes).map_err(io::Error::from)) {
                Ok(result) => return Poll::Ready(result),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
