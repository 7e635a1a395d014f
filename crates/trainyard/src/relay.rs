//! `trainyard relay`: makes a port of this machine's loopback lead to the program at the other end of the standard streams. It runs in
//! pods that hold machines of sky's clusters, so that the agent there reaches an API server that the pod cannot reach.

use cli::exit;
use grammar::RelayArgs;
use node::tunnel::mux::{Asking, answering};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// How long the port is waited for that an earlier relay may still hold.
const PORT_MAX: Duration = Duration::from_secs(20);

/// Runs until the streams end. The first line on the standard output says which port it is; what follows is HTTP/2.
pub async fn relay(args: &RelayArgs) -> u8 {
    match run(args.port).await {
        Ok(()) => exit::OK,
        Err(error) => {
            node::say!("error: {}", api::error_chain(&error));
            exit::FAILURE
        }
    }
}

async fn run(port: u16) -> std::io::Result<()> {
    let listener = listen(port).await?;
    let port = listener.local_addr()?.port();
    let mut out = std::io::stdout();
    writeln!(out, "trainyard-relay {port}")?;
    out.flush()?;
    let streams = tokio::io::join(tokio::io::stdin(), tokio::io::stdout());
    let (asking, connection) = Asking::connect(streams).await.map_err(std::io::Error::other)?;
    let accepting = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let asking = asking.clone();
            tokio::spawn(async move {
                if let Ok((from, to)) = asking.open().await {
                    join(stream, from, to).await;
                }
            });
        }
    };
    tokio::select! {
        () = connection => Ok(()),
        () = accepting => Ok(()),
    }
}

/// Listens on this port; on any that is free where it is not to be had.
async fn listen(port: u16) -> std::io::Result<TcpListener> {
    let until = api::time::after(Instant::now(), PORT_MAX);
    loop {
        match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                sleep(Duration::from_millis(100)).await;
            }
            Err(_) if port != 0 => return TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await,
            listening => return listening,
        }
    }
}

/// Carries bytes between a connection and a stream, in both directions to their ends.
async fn join(stream: TcpStream, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (mut read, mut write) = stream.into_split();
    let there = async {
        let _ = tokio::io::copy(&mut read, &mut to).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut to).await;
    };
    let back = async {
        let _ = tokio::io::copy(&mut from, &mut write).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
    };
    tokio::join!(there, back);
}

/// The other end: leads connections that come over a relay to an address, until it ends.
pub async fn carry(relay: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, to: SocketAddr) {
    let ended = answering(relay, move |from, back| async move {
        match TcpStream::connect(to).await {
            Ok(stream) => join(stream, from, back).await,
            Err(error) => tracing::warn!(%error, "the API server cannot be reached for an agent"),
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a relay ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn connections_go_to_the_other_end_and_back() {
        let server = listen(0).await.unwrap();
        let at = server.local_addr().unwrap();
        let upper = tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
        });
        let (near, far) = tokio::io::duplex(1 << 16);
        let carried = tokio::spawn(carry(far, at));
        let (asking, connection) = Asking::connect(near).await.unwrap();
        let connection = tokio::spawn(connection);
        let (mut from, mut to) = asking.open().await.unwrap();
        to.write_all(b"hello").await.unwrap();
        to.shutdown().await.unwrap();
        let mut text = String::new();
        from.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "HELLO");
        upper.await.unwrap();
        drop((asking, from, to));
        connection.await.unwrap();
        carried.await.unwrap();
    }
}
