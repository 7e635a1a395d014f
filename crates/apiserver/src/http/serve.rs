//! Listens on sockets, sets up TLS, and serves connections.

use super::Server;
use super::halves::{Halves, Ledger};
use super::handle::Caller;
use super::patient::Patient;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use nix::sys::socket::{setsockopt, sockopt};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

/// Connections at a time, and never more than three quarters of the descriptors that the process may have open; one more is closed
/// at once, so that those that are there go on, and files can be opened.
const CONNECTIONS_MAX: usize = 16_384;
/// A TLS handshake may take this long, and so may the first request after it.
const BEGIN_MAX: Duration = Duration::from_secs(10);
/// A request's head may take this long from the end of the answer before it: also the time that a connection may be idle.
const HEAD_MAX: Duration = Duration::from_secs(120);
/// A client of HTTP/2 that is silent for so long is asked whether it is there, and has as long to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
/// A client that takes nothing of what waits for it: long enough for a user who reads a log in a pager.
const STALL_MAX: Duration = Duration::from_secs(15 * 60);
/// A client whose machine is gone says nothing of it: one that is silent for so many seconds
/// is asked whether it is there.
const ALIVE_AFTER: u32 = 60;
/// Seconds between these questions.
const ALIVE_EVERY: u32 = 20;
const ALIVE_ASKED: u32 = 3;
/// Bytes of answers that wait for a client's connection; a request's head may not be longer either.
const BUFFER: usize = 64 << 10;
/// Bytes of answers that wait for a client encrypted, and so in a copy of its own.
const BUFFER_TLS: usize = 16 << 10;
/// Bytes that the kernel keeps of them (it takes twice as much): enough for 20 MB/s to a client 10 ms away.
const BUFFER_KERNEL: usize = 256 << 10;

/// Why TLS cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the certificate or key is no PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("the certificate and key cannot be used")]
    Tls(#[from] rustls::Error),
    #[error("client certificates cannot be verified")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// TLS from PEM texts. `client_ca`: clients may identify themselves by certificates of this authority (common name: user,
/// organisations: groups).
///
/// # Errors
/// What is wrong with the texts.
pub fn tls_config(cert: &str, key: &str, client_ca: Option<&str>) -> Result<Arc<rustls::ServerConfig>, ServeError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            for cert in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(cert?)?;
            }
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn connections_max() -> usize {
    let descriptors = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let (soft, _) = descriptors.unwrap_or((nix::libc::RLIM_INFINITY, 0));
    usize::try_from(soft / 4 * 3).map_or(CONNECTIONS_MAX, |most| most.clamp(1, CONNECTIONS_MAX))
}

impl Server {
    /// Serves a socket until `shutdown` comes true; then lets requests end for at most two seconds.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Option<Arc<rustls::ServerConfig>>,
        shutdown: impl Future<Output = ()>,
    ) {
        let acceptor = tls.map(TlsAcceptor::from);
        let bound = connections_max();
        let places = Arc::new(Semaphore::new(bound));
        let graceful = GracefulShutdown::new();
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut shutdown => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: some will be closed soon.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else {
                tracing::warn!("there are {bound} connections; another one is refused");
                continue;
            };
            self.clone().spawn_connection(stream, acceptor.clone(), graceful.watcher(), place);
        }
        self.stops.store(true, Ordering::Relaxed);
        drop(listener);
        drop(tokio::time::timeout(Duration::from_secs(2), graceful.shutdown()).await);
    }

    /// A function of its own, so that what serves a connection is compiled with this crate, not with the caller of `serve`.
    fn spawn_connection(
        self: Arc<Self>,
        stream: TcpStream,
        acceptor: Option<TlsAcceptor>,
        watcher: Watcher,
        place: OwnedSemaphorePermit,
    ) {
        tokio::spawn(async move {
            self.connection(stream, acceptor, watcher).await;
            drop(place);
        });
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, acceptor: Option<TlsAcceptor>, watcher: Watcher) {
        let from = stream.peer_addr().ok().map(|address| address.ip());
        // Small writes of a watch must not wait for each other.
        drop(stream.set_nodelay(true));
        // The kernel would take megabytes for a client that does not read.
        _ = setsockopt(&stream, sockopt::SndBuf, &BUFFER_KERNEL);
        _ = setsockopt(&stream, sockopt::TcpKeepIdle, &ALIVE_AFTER);
        _ = setsockopt(&stream, sockopt::TcpKeepInterval, &ALIVE_EVERY);
        _ = setsockopt(&stream, sockopt::TcpKeepCount, &ALIVE_ASKED);
        _ = setsockopt(&stream, sockopt::KeepAlive, &true);
        match acceptor {
            None => self.http(Patient::new(stream, STALL_MAX), None, from, watcher).await,
            Some(acceptor) => match tokio::time::timeout(BEGIN_MAX, acceptor.accept(stream)).await {
                Ok(Ok(mut stream)) => {
                    stream.get_mut().1.set_buffer_limit(Some(BUFFER_TLS));
                    let peer = stream.get_ref().1.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec());
                    self.http(Patient::new(stream, STALL_MAX), peer, from, watcher).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                Err(_) => tracing::debug!("a TLS handshake took too long"),
            },
        }
    }

    async fn http<S>(self: Arc<Self>, io: S, certificate: Option<Vec<u8>>, peer: Option<IpAddr>, watcher: Watcher)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let certificate: Option<Arc<[u8]>> = certificate.map(Into::into);
        let begun = Arc::new(AtomicBool::new(false));
        let begins = begun.clone();
        let ledger = Ledger::default();
        let halves = Halves::new(io, ledger.clone());
        let service = hyper::service::service_fn(move |request| {
            begins.store(true, Ordering::Relaxed);
            let (server, certificate) = (self.clone(), certificate.clone());
            let (request, open) = ledger.open(request);
            async move {
                let response = server.handle(request, Caller::Socket { certificate, peer }).await;
                Ok::<_, Infallible>(open.answer(response))
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(BUFFER);
        let mut http2 = builder.http2();
        http2.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_EVERY);
        http2.max_send_buf_size(BUFFER);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(halves.clone()), service).into_owned();
        // which version of HTTP it is shows in the first bytes: until they come no timer of hyper's runs
        let silent = async {
            tokio::time::sleep(BEGIN_MAX).await;
            if begun.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke");
            },
            () = silent => tracing::debug!("no request came over a connection"),
            () = halves.watched() => {}
        }
    }
}
