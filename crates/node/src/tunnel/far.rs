//! The API server's side: asks the agent of another machine.

use super::mux::{Asking, From, To};
use super::{Ask, FRAME_MAX, Kind, Reply, WAITING_BYTES, read_frame, read_line, write_frame, write_line};
use crate::exec::ExecOptions;
use crate::logs::LogOptions;
use bytes::Bytes;
use futures::Stream;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, Join};
use tokio::sync::{mpsc, oneshot};
use tokio_util::io::ReaderStream;

/// How long an agent may take to answer a request, before what follows the answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Why an agent does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum FarError {
    /// What the agent said.
    #[error("{0}")]
    Refused(String),
    /// The connection is lost, or the agent does not answer.
    #[error(transparent)]
    Lost(#[from] io::Error),
}

/// A connection to the agent of a node.
#[derive(Clone)]
pub struct Far {
    asking: Asking,
}

/// A command that runs there; the fields as those of `exec::Exec`. Dropping it closes its streams.
pub struct FarExec {
    pub stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub stdout: DuplexStream,
    /// `None` in a terminal.
    pub stderr: Option<DuplexStream>,
    /// In a terminal: columns and rows go here. What it cannot take at once is dropped: the next size counts.
    pub sizes: Option<mpsc::Sender<(u16, u16)>>,
    /// The exit code; an error where the agent or the connection has gone.
    pub exit: oneshot::Receiver<io::Result<i32>>,
}

impl Far {
    /// Speaks over a connection that an agent has opened. The future carries it, and ends with it.
    ///
    /// # Errors
    /// The other side speaks something else.
    pub async fn connect<I>(io: I) -> io::Result<(Self, impl Future<Output = ()> + Send + use<I>)>
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (asking, connection) = Asking::connect(io).await.map_err(io::Error::other)?;
        Ok((Self { asking }, connection))
    }

    pub fn is_closed(&self) -> bool {
        self.asking.is_closed()
    }

    /// The stream once the agent has agreed, or its refusal. An agent whose connection is alive may still not answer.
    async fn ask(&self, ask: &Ask) -> Result<(From, To), FarError> {
        let asked = async {
            let (mut from, mut to) = self.asking.open().await?;
            write_line(&mut to, ask).await?;
            match read_line(&mut from).await? {
                Reply::Ok => Ok((from, to)),
                Reply::No(why) => Err(FarError::Refused(why)),
            }
        };
        tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| {
            let seconds = ANSWER_MAX.as_secs();
            let why = format!("the node's agent is connected, and did not answer within {seconds} s");
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }

    /// Whether the pod runs.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn check(&self, uid: &str) -> io::Result<bool> {
        match self.ask(&Ask::Check { uid: uid.to_owned() }).await {
            Ok(_) => Ok(true),
            Err(FarError::Refused(_)) => Ok(false),
            Err(FarError::Lost(error)) => Err(error),
        }
    }

    /// A container's log.
    ///
    /// # Errors
    /// Why there is none, as `logs::LogError` says it, or that the connection is lost.
    pub async fn log(
        &self,
        uid: &str,
        pod: &str,
        container: &str,
        options: LogOptions,
    ) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>, FarError> {
        let (uid, pod, container) = (uid.to_owned(), pod.to_owned(), container.to_owned());
        let (from, to) = self.ask(&Ask::Log { uid, pod, container, options }).await?;
        // held until the log ends: the agent takes its end for ours
        Ok(futures::stream::unfold((ReaderStream::new(from), to), |(mut log, to)| async move {
            let chunk = futures::StreamExt::next(&mut log).await?;
            Some((chunk, (log, to)))
        }))
    }

    /// A connection to a port on which a process of the pod listens.
    ///
    /// # Errors
    /// As `ports::connect`, or that the connection is lost.
    pub async fn port(&self, uid: &str, port: u16) -> io::Result<Join<From, To>> {
        match self.ask(&Ask::Connect { uid: uid.to_owned(), port }).await {
            Ok((from, to)) => Ok(tokio::io::join(from, to)),
            Err(FarError::Refused(why)) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)),
            Err(FarError::Lost(error)) => Err(error),
        }
    }

    /// Executes a command in a running container.
    ///
    /// # Errors
    /// Why it could not be, as `exec::ExecError` says it, or that the connection is lost.
    pub async fn exec(&self, uid: &str, options: ExecOptions) -> Result<FarExec, FarError> {
        let (tty, has_input) = (options.tty, options.stdin);
        let (from, to) = self.ask(&Ask::Exec { uid: uid.to_owned(), options }).await?;
        let (stdout, stdout_in) = tokio::io::duplex(WAITING_BYTES);
        let (stderr, stderr_in) = tokio::io::duplex(WAITING_BYTES);
        let (exited, exit) = oneshot::channel();
        let (sizes, asked_sizes) = mpsc::channel(4);
        let (input, stdin) = tokio::io::duplex(WAITING_BYTES);
        let stdin = has_input.then(|| Box::new(stdin) as Box<dyn AsyncWrite + Send + Unpin>);
        tokio::spawn(async move {
            let mut exited = exited;
            tokio::select! {
                end = receive(from, stdout_in, stderr_in) => drop(exited.send(end)),
                () = exited.closed() => {} // nobody wants it any more
                () = send(to, input, asked_sizes) => {}
            }
        });
        Ok(FarExec { stdin, stdout, stderr: (!tty).then_some(stderr), sizes: tty.then_some(sizes), exit })
    }
}

/// Hands on what the command says; its exit code once both outputs have ended as well.
async fn receive(mut from: From, stdout: DuplexStream, stderr: DuplexStream) -> io::Result<i32> {
    let (mut stdout, mut stderr) = (Some(stdout), Some(stderr));
    let mut code = None;
    loop {
        let frame = match (read_frame(&mut from).await, code) {
            (Ok(frame), _) => frame,
            (Err(_), Some(code)) => return Ok(code),
            (Err(error), None) => return Err(error),
        };
        match frame {
            (Kind::Output, content) => forward(&mut stdout, &content).await,
            (Kind::Errors, content) => forward(&mut stderr, &content).await,
            (Kind::Exit, content) => {
                code = Some(i32::from_be_bytes(content.try_into().map_err(|_| io::Error::other("no exit code"))?));
            }
            (Kind::Lost, content) => return Err(io::Error::other(String::from_utf8_lossy(&content).into_owned())),
            (other @ (Kind::Input | Kind::Size), _) => {
                return Err(io::Error::other(format!("a frame of kind {other:?} goes the other way")));
            }
        }
    }
}

/// An empty piece ends the output; so does a reader that is gone.
async fn forward(to: &mut Option<DuplexStream>, content: &[u8]) {
    let Some(writer) = to else { return };
    if content.is_empty() {
        let _ = writer.shutdown().await; // a client that is gone needs no end
        *to = None;
    } else if writer.write_all(content).await.is_err() {
        *to = None;
    }
}

/// Sends input and sizes until the connection ends.
async fn send(mut to: To, mut input: DuplexStream, mut sizes: mpsc::Receiver<(u16, u16)>) {
    let mut buffer = vec![0; FRAME_MAX];
    let (mut has_input, mut has_sizes) = (true, true);
    loop {
        let sent = tokio::select! {
            size = input.read(&mut buffer), if has_input => {
                let size = size.unwrap_or(0);
                has_input = size > 0;
                write_frame(&mut to, Kind::Input, &buffer[..size]).await
            }
            size = sizes.recv(), if has_sizes => match size {
                Some((columns, rows)) => {
                    write_frame(&mut to, Kind::Size, &[columns.to_be_bytes(), rows.to_be_bytes()].concat()).await
                }
                None => {
                    has_sizes = false;
                    continue;
                }
            },
            else => std::future::pending().await,
        };
        if sent.is_err() {
            // what the command said is on its way, its end too
            std::future::pending::<()>().await;
        }
    }
}
