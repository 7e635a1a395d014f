//! Just enough gRPC to put keys into etcd as fast as its own clients do: HTTP/2, one connection, many streams.

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// An etcd of one member, with its default durability: every write is synced before it is acknowledged.
pub struct Etcd {
    process: Child,
    port: u16,
    _data: TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Etcd {
    pub fn start(program: &Path, port: u16) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", port + 1));
        let process = Command::new(program)
            .arg("--data-dir")
            .arg(data.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { process, port, _data: data })
    }

    pub async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        crate::peer::until(Duration::from_secs(10), || async {
            let socket = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
            socket.set_nodelay(true)?;
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
            tokio::spawn(connection);
            put(&mut sender, b"ready", b"1").await?;
            Ok(sender)
        })
        .await
    }
}

/// One `etcdserverpb.KV/Put`.
pub async fn put(sender: &mut SendRequest<Full<Bytes>>, key: &[u8], value: &[u8]) -> Result<()> {
    let mut message = BytesMut::new();
    for (number, field) in [(1u8, key), (2, value)] {
        message.put_u8(number << 3 | 2);
        let mut length = field.len();
        while length >= 0x80 {
            message.put_u8((length as u8 & 0x7f) | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(field);
    }
    let mut body = BytesMut::with_capacity(message.len() + 5);
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len())?);
    body.put_slice(&message);
    let request = http::Request::post("http://etcd/etcdserverpb.KV/Put")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(body.freeze()))?;
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let collected = response.into_body().collect().await?;
    let code = collected.trailers().and_then(|t| t.get("grpc-status")).map(|c| c.as_bytes().to_vec());
    if !status.is_success() || code.as_deref() != Some(b"0") {
        bail!("etcd refused a put: {status}, grpc-status {code:?}");
    }
    Ok(())
}
