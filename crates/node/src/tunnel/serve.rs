//! The agent's side: answers what is asked of the pods in its directory.

use super::mux::{self, From, To};
use super::{Ask, FRAME_MAX, Kind, Reply, read_frame, read_line, write_frame, write_line};
use crate::exec::{Exec, ExecOptions};
use crate::logs::LogOptions;
use crate::poddir::PodDir;
use futures::StreamExt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

/// Answers over this connection until it ends. `data`: the agent's directory.
///
/// # Errors
/// What ended it, where it did not end well.
pub async fn serve<I>(io: I, data: PathBuf) -> io::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let data = Arc::new(data);
    let take = move |from: From, to: To| {
        let data = Arc::clone(&data);
        async move {
            if let Err(error) = talk(&data, from, to).await {
                tracing::debug!(%error, "a request of the API server ended");
            }
        }
    };
    mux::answering(io, take).await.map_err(io::Error::other)
}

async fn talk(data: &std::path::Path, mut from: From, mut to: To) -> io::Result<()> {
    match read_line(&mut from).await? {
        Ask::Log { uid, pod, container, options } => {
            log(&PodDir::of(data, &uid), &pod, &container, options, from, to).await
        }
        Ask::Check { uid } => {
            let runs = matches!(PodDir::of(data, &uid).shim(), Ok(Some(_)));
            let reply = if runs { Reply::Ok } else { Reply::No("it does not run".to_owned()) };
            write_line(&mut to, &reply).await
        }
        Ask::Exec { uid, options } => exec(&PodDir::of(data, &uid), options, from, to).await,
        Ask::Connect { uid, port } => match crate::ports::connect(&PodDir::of(data, &uid), port).await {
            Ok(mut stream) => {
                write_line(&mut to, &Reply::Ok).await?;
                let mut both = tokio::io::join(from, to);
                tokio::io::copy_bidirectional(&mut both, &mut stream).await.map(drop)
            }
            Err(error) => write_line(&mut to, &Reply::No(error.to_string())).await,
        },
    }
}

async fn log(
    dir: &PodDir,
    pod: &str,
    container: &str,
    options: LogOptions,
    mut from: From,
    mut to: To,
) -> io::Result<()> {
    let sending = async {
        let mut log = match crate::logs::read_when_started(dir, pod, container, options).await {
            Ok(log) => Box::pin(log),
            Err(error) => return write_line(&mut to, &Reply::No(error.to_string())).await,
        };
        write_line(&mut to, &Reply::Ok).await?;
        while let Some(chunk) = log.next().await {
            to.write_all(&chunk?).await?;
        }
        Ok(())
    };
    // the server says no more, so what comes is its end
    tokio::select! {
        sent = sending => sent,
        _ = from.read_u8() => Ok(()),
    }
}

async fn exec(dir: &PodDir, options: ExecOptions, mut from: From, mut to: To) -> io::Result<()> {
    let Exec { mut stdin, stdout, stderr, terminal, exit } = match crate::exec::exec(dir, options).await {
        Ok(run) => run,
        Err(error) => return write_line(&mut to, &Reply::No(error.to_string())).await,
    };
    write_line(&mut to, &Reply::Ok).await?;
    let to = Mutex::new(to);
    let output = async {
        let errors = async {
            if let Some(stderr) = stderr {
                pump(stderr, Kind::Errors, &to).await;
            }
        };
        let end = async {
            let (kind, content) = match exit.wait().await {
                Ok(code) => (Kind::Exit, code.to_be_bytes().to_vec()),
                Err(error) => (Kind::Lost, error.to_string().into_bytes()),
            };
            write_frame(&mut *to.lock().await, kind, &content).await
        };
        tokio::join!(pump(stdout, Kind::Output, &to), errors, end).2
    };
    let input = async {
        loop {
            match read_frame(&mut from).await? {
                (Kind::Input, content) if content.is_empty() => stdin = None,
                (Kind::Input, content) => {
                    if let Some(to) = &mut stdin
                        && to.write_all(&content).await.is_err()
                    {
                        stdin = None; // the command reads no more
                    }
                }
                (Kind::Size, content) => {
                    if let ([a, b, c, d], Some(terminal)) = (content.as_slice(), &terminal) {
                        let (columns, rows) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
                        let _ = terminal.resize(columns, rows); // a command that has ended needs no size
                    }
                }
                (other, _) => return Err(io::Error::other(format!("a frame of kind {other:?} goes the other way"))),
            }
        }
    };
    tokio::select! {
        sent = output => sent,
        ended = input => ended,
    }
}

/// Sends what comes from a command until it ends; an empty frame says so.
async fn pump(mut from: impl AsyncRead + Unpin, kind: Kind, to: &Mutex<To>) {
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        let size = from.read(&mut buffer).await.unwrap_or(0);
        let sent = write_frame(&mut *to.lock().await, kind, &buffer[..size]).await;
        if size == 0 || sent.is_err() {
            return;
        }
    }
}
