//! Exec and attach: carries data between a client and a container.

use crate::client::{self, Channel, Input, Listener, Speaker, failure};
use crate::wire::PIECE_BYTES;
use crate::{Command, LogOptions, PodStreams, Resize, Socket, StreamOptions};
use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;

/// How long output may pause after the command ended, before it is taken for complete: what the command left behind may
/// hold its streams open for ever.
const LINGER: Duration = Duration::from_millis(500);

fn result_of(code: std::io::Result<i32>) -> Value {
    match code {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: exit status {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => failure(&format!("the pod ended: {error}")),
    }
}

/// Executes a command in a running container.
pub async fn exec(agent: &dyn PodStreams, pod: &Value, options: StreamOptions, socket: Socket) {
    let Some((speaker, mut listener, activity)) = client::connect(socket, &options).await else { return };
    let result = match agent.exec(pod, &options).await {
        Err(why) => failure(&why),
        Ok(run) => {
            speaker.begin(&options).await;
            let Command { stdin, stdout, stderr, resize, exit } = run;
            let (ended, over) = watch::channel(false);
            let output = async {
                let errors = async {
                    if let Some(stderr) = stderr {
                        pump(stderr, &speaker, Channel::Errors, options.stderr, over.clone()).await;
                    }
                };
                let output = pump(stdout, &speaker, Channel::Output, options.stdout, over.clone());
                tokio::join!(output, errors, wait(exit, ended)).2
            };
            tokio::select! {
                code = output => result_of(code),
                () = feed(&mut listener, stdin, resize) => return,
                () = speaker.gone() => return,
                () = activity.idle() => failure("the connection was idle for too long"),
            }
        }
    };
    speaker.finish(&result).await;
    listener.run_dry().await;
}

async fn wait(exit: BoxFuture<'static, std::io::Result<i32>>, ended: watch::Sender<bool>) -> std::io::Result<i32> {
    let code = exit.await;
    ended.send_replace(true);
    code
}

/// Sends what comes from a stream (or drops it, if the client did not ask for it) until it ends.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    speaker: &Speaker,
    channel: Channel,
    wanted: bool,
    mut over: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let ended = *over.borrow_and_update();
        let size = if ended {
            match tokio::time::timeout(LINGER, from.read(&mut buffer)).await {
                Ok(size) => size,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                size = from.read(&mut buffer) => size,
                _ = over.changed() => continue,
            }
        };
        match size {
            Ok(0) | Err(_) => return,
            Ok(size) => {
                if wanted && !speaker.send(channel, &buffer[..size]).await {
                    return;
                }
            }
        }
    }
}

/// Hands on what the client sends; returns when the client has gone.
async fn feed(listener: &mut Listener, mut stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>, resize: Option<Resize>) {
    while let Some(input) = listener.next().await {
        match input {
            Input::Data(data) => {
                if let Some(to) = &mut stdin
                    && to.write_all(&data).await.is_err()
                {
                    stdin = None; // the command reads no more
                }
            }
            Input::End => stdin = None,
            Input::Size { columns, rows } => {
                if let Some(resize) = &resize {
                    resize(columns, rows);
                }
            }
        }
    }
}

/// Follows what a container prints from now on. Processes have no input that could be attached to.
pub async fn attach(agent: &dyn PodStreams, pod: Arc<Value>, options: StreamOptions, socket: Socket) {
    let Some((speaker, mut listener, activity)) = client::connect(socket, &options).await else { return };
    let container = options.container.clone();
    let asked = LogOptions { container, follow: true, tail_lines: Some(0), ..LogOptions::default() };
    let result = match agent.logs(pod, asked).await {
        Err(status) => failure(&status.message),
        Ok(log) => {
            speaker.begin(&options).await;
            let mut log = log;
            let output = async {
                while let Some(chunk) = log.next().await {
                    if !speaker.send(Channel::Output, &chunk).await {
                        return;
                    }
                }
            };
            tokio::select! {
                () = output => result_of(Ok(0)),
                () = feed(&mut listener, None, None) => return,
                () = speaker.gone() => return,
                () = activity.idle() => failure("the connection was idle for too long"),
            }
        }
    };
    speaker.finish(&result).await;
    listener.run_dry().await;
}
