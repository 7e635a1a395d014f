//! How an API server on another machine reaches the pods of this one: over a connection that the agent keeps open to it.
//!
//! The agent dials (`dial`), so no port is opened here. On the connection, once it is upgraded, the server asks and the agent
//! answers (`serve`), over as many streams as there are requests (`mux`). Each stream begins with a line of JSON from the server
//! (`Ask`) and one from the agent (`Reply`); what follows depends on what was asked.

mod dial;
mod far;
pub mod mux;
mod serve;

pub use dial::{DialError, keep_open};
pub use far::{Far, FarError, FarExec};
pub use serve::serve;

use crate::exec::ExecOptions;
use crate::logs::LogOptions;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What is spoken, with its version: it changes where an agent and a server of different versions would not understand each other.
pub const PROTOCOL: &str = "trainyard-node/1";
/// Where agents dial in.
pub const PATH: &str = "/trainyard/tunnel";
/// The header in which an agent says what version of the program it is.
pub const VERSION_HEADER: &str = "trainyard-version";

/// Bytes of a line; commands of exec are in it.
const LINE_MAX: u64 = 4 << 20;
/// Bytes that wait between a stream and its reader.
const WAITING_BYTES: usize = 64 << 10;

/// What is asked of a pod. Pods go by uid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Ask {
    /// Then the agent sends the log.
    Log { uid: String, pod: String, container: String, options: LogOptions },
    /// Whether a shim runs the pod; nothing follows.
    Check { uid: String },
    /// Then both send frames.
    Exec { uid: String, options: ExecOptions },
    /// Then both send bytes.
    Connect { uid: String, port: u16 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply {
    Ok,
    /// Why not, in a sentence for the client.
    No(String),
}

async fn write_line(to: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line).await
}

async fn read_line<T: DeserializeOwned>(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<T> {
    let mut line = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut line).await?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&line).map_err(io::Error::other)
}

/// A part of what a command and its client say: kind, length (four bytes, most significant first), content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Input, output, errors; an empty one is the end.
    Input,
    Output,
    Errors,
    /// Columns and rows, two bytes each.
    Size,
    /// Four bytes, most significant first.
    Exit,
    /// The command's end cannot be known; a sentence.
    Lost,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Input, Self::Output, Self::Errors, Self::Size, Self::Exit, Self::Lost];

    fn byte(self) -> u8 {
        Self::ALL.iter().position(|kind| *kind == self).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }
}

/// Bytes of one frame.
const FRAME_MAX: usize = 32 << 10;

async fn write_frame(to: &mut (impl AsyncWrite + Unpin), kind: Kind, content: &[u8]) -> io::Result<()> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(content.len().saturating_add(5));
    frame.push(kind.byte());
    frame.extend(length.to_be_bytes());
    frame.extend(content);
    to.write_all(&frame).await
}

async fn read_frame(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<(Kind, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let kind =
        Kind::ALL.get(usize::from(kind)).copied().ok_or_else(|| io::Error::other("a frame of an unknown kind"))?;
    let length = usize::try_from(from.read_u32().await?).map_err(io::Error::other)?;
    if length > FRAME_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content).await?;
    Ok((kind, content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poddir::PodDir;
    use tokio::io::BufReader;

    #[tokio::test]
    async fn frames_and_lines() {
        let mut wire = Vec::new();
        write_line(&mut wire, &Ask::Check { uid: "ü\n".to_owned() }).await.unwrap();
        for kind in Kind::ALL {
            write_frame(&mut wire, kind, b"abc").await.unwrap();
        }
        let mut from = BufReader::new(wire.as_slice());
        assert_eq!(read_line::<Ask>(&mut from).await.unwrap(), Ask::Check { uid: "ü\n".to_owned() });
        for kind in Kind::ALL {
            assert_eq!(read_frame(&mut from).await.unwrap(), (kind, b"abc".to_vec()));
        }
        assert!(read_frame(&mut from).await.is_err(), "the end");
        for wrong in [&[9, 0, 0, 0, 0][..], &[0, 255, 0, 0, 0], &[0, 0, 0, 0, 5, 1]] {
            assert!(read_frame(&mut BufReader::new(wrong)).await.is_err(), "{wrong:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_answers_nothing_is_not_waited_for() {
        let (server, agent) = tokio::io::duplex(1 << 16);
        // it keeps the connection alive, takes each request, and is silent
        let agent = tokio::spawn(mux::answering(agent, |from, to| async move {
            let _held = (from, to);
            std::future::pending::<()>().await;
        }));
        let (far, connection) = Far::connect(server).await.unwrap();
        let connection = tokio::spawn(connection);
        let why = "the node's agent is connected, and did not answer within 30 s";
        assert_eq!(far.check("u").await.unwrap_err().to_string(), why);
        assert_eq!(far.log("u", "pod", "c", LogOptions::default()).await.err().unwrap().to_string(), why);
        assert_eq!(far.exec("u", ExecOptions::default()).await.err().unwrap().to_string(), why);
        assert_eq!(far.port("u", 80).await.err().unwrap().to_string(), why);
        agent.abort();
        connection.abort();
    }

    #[tokio::test]
    async fn a_pod_that_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(PodDir::of(folder.path(), "u").path()).unwrap();
        let (server, agent) = tokio::io::duplex(1 << 16);
        let agent = tokio::spawn(serve(agent, folder.path().to_owned()));
        let (far, connection) = Far::connect(server).await.unwrap();
        let connection = tokio::spawn(connection);
        assert!(!far.check("u").await.unwrap());
        let log = far.log("u", "pod", "c", LogOptions::default()).await.err().unwrap();
        assert_eq!(log.to_string(), "container \"c\" in pod \"pod\" is waiting to start: ContainerCreating");
        let exec = far.exec("u", ExecOptions { container: "c".to_owned(), ..ExecOptions::default() }).await;
        assert_eq!(exec.err().unwrap().to_string(), "container \"c\" is not running");
        let refused = far.port("u", 80).await.err().unwrap();
        assert_eq!(refused.to_string(), "connection refused: no process of the pod listens on port 80");
        agent.abort();
        assert!(agent.await.is_err());
        connection.await.unwrap();
        let why = far.check("u").await.unwrap_err();
        assert!(why.to_string().contains("connection to the node"), "{why}");
    }
}
