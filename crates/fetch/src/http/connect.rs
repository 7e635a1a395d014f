//! Connections: straight or through a proxy, plain or TLS.

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

const CONNECT: Duration = Duration::from_secs(10);
/// Addresses that answer at once or are not there: metadata services of clouds.
const CONNECT_LINK_LOCAL: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
    /// Read when first needed: a plain server needs no certificates.
    tls: Arc<OnceLock<Result<Arc<ClientConfig>, String>>>,
    /// A file with the only certificates that are trusted, in place of the machine's.
    authority: Option<PathBuf>,
}

trait Io: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// A connection.
pub struct Stream {
    io: TokioIo<Pin<Box<dyn Io>>>,
    to_proxy: bool,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// The metadata service of a cloud: the machine's own, which no proxy reaches, and whose answers are for no proxy's eyes.
pub fn is_metadata(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        // Amazon's, a unique local one
        Ok(IpAddr::V6(address)) => address.segments()[..2] == [0xfd00, 0xec2],
        Err(_) => host.eq_ignore_ascii_case("metadata.google.internal"),
    }
}

impl Connector {
    pub fn new(proxies: Arc<Matcher>, authority: Option<PathBuf>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        Self { tcp, proxies, tls: Arc::default(), authority }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, Failed> {
        let config = self.tls.get_or_init(|| {
            let found = match &self.authority {
                // SSL_CERT_FILE and SSL_CERT_DIR before the system's own
                None => rustls_native_certs::load_native_certs(),
                Some(file) => rustls_native_certs::load_certs_from_paths(Some(file), None),
            };
            let mut roots = RootCertStore::empty();
            let (taken, _) = roots.add_parsable_certificates(found.certs);
            if taken == 0 {
                return Err(
                    "no CA certificate was found on this machine: install ca-certificates, or set SSL_CERT_FILE"
                        .to_owned(),
                );
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?
                .with_root_certificates(roots)
                .with_no_client_auth();
            Ok(Arc::new(config))
        });
        config.clone().map_err(Failed::from)
    }

    async fn connect(mut self, to: Uri) -> Result<Stream, Failed> {
        let is_tls = to.scheme_str() == Some("https");
        let proxy = self.proxies.intercept(&to).filter(|_| !is_metadata(&to));
        if is_metadata(&to) {
            self.tcp.set_connect_timeout(Some(CONNECT_LINK_LOCAL));
        }
        let to_proxy = proxy.is_some() && !is_tls;
        let tcp: TcpStream = match proxy {
            None => self.tcp.call(to.clone()).await?.into_inner(),
            Some(proxy) if is_tls => {
                let tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
                let mut tunnel = match proxy.basic_auth() {
                    Some(auth) => tunnel.with_auth(auth.clone()),
                    None => tunnel,
                };
                tunnel.call(to.clone()).await?.into_inner()
            }
            Some(proxy) => self.tcp.call(proxy.uri().clone()).await?.into_inner(),
        };
        let io: Pin<Box<dyn Io>> = if is_tls {
            let host = to.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let name = ServerName::try_from(host)?;
            let connector = TlsConnector::from(self.config()?);
            Box::pin(tokio::time::timeout(CONNECT, connector.connect(name, tcp)).await??)
        } else {
            Box::pin(tcp)
        };
        Ok(Stream { io: TokioIo::new(io), to_proxy })
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failed>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.to_proxy)
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_services_are_known_by_their_whole_address() {
        for (url, is) in [
            ("http://169.254.169.254/latest", true),
            ("http://169.254.170.23:80/x", true),
            ("http://[fd00:ec2::254]/latest", true),
            ("http://metadata.google.internal/x", true),
            ("http://169.254.169.254.evil.com/x", false),
            ("http://169.254.evil.com/x", false),
            ("http://metadata.google.internal.evil.com/x", false),
            ("http://10.0.0.1/x", false),
        ] {
            assert_eq!(is_metadata(&url.parse().unwrap()), is, "{url}");
        }
    }
}
