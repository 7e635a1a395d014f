//! HTTP GET as a kubelet sends it to a pod: probes and lifecycle hooks. Certificates are not looked at, since pods make their own;
//! redirects are followed as long as they stay on the host.

use crate::wire::HttpGet;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The kubelet's limit.
const REDIRECTS_MAX: usize = 10;
/// Who asks; the kubelet of the version that the node names.
const USER_AGENT: &str = "kube-probe/1.36";

/// Why a pod gave no answer, in the kubelet's words.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    #[error("Get {url:?}: {why}")]
    Failed { url: String, why: ExchangeError },
    #[error("Get {url:?}: stopped after {REDIRECTS_MAX} redirects")]
    Redirects { url: String },
}

/// Why one request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("header {name:?}: {why}")]
    Header { name: String, why: http::Error },
    /// The connection ended within the answer.
    #[error("EOF")]
    Incomplete,
    /// A name, TLS or HTTP.
    #[error(transparent)]
    Protocol(Box<dyn std::error::Error + Send + Sync>),
}

impl ExchangeError {
    fn protocol(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Protocol(Box::new(error))
    }
}

/// Why a port of a pod cannot be connected to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("dial tcp {host}:{port}: connect: connection refused")]
    Refused { host: String, port: u16 },
    #[error("dial tcp {host}:{port}: {error}")]
    Failed { host: String, port: u16, error: std::io::Error },
}

/// The status of the answer, after redirects on the same host.
///
/// # Errors
/// There was no answer: what a kubelet would say of it, beginning with `Get "<url>"`.
pub async fn get(target: &HttpGet) -> Result<StatusCode, GetError> {
    let mut target = target.clone();
    for _ in 0..=REDIRECTS_MAX {
        let failed = |why| GetError::Failed { url: url(&target), why };
        let (status, location) = once(&target).await.map_err(failed)?;
        match location.filter(|_| status.is_redirection()).and_then(|location| redirected(&target, &location)) {
            Some(next) => target = next,
            None => return Ok(status),
        }
    }
    Err(GetError::Redirects { url: url(&target) })
}

/// The address that is asked, as text.
pub fn url(target: &HttpGet) -> String {
    let scheme = if target.https { "https" } else { "http" };
    format!("{scheme}://{}{}", authority(target), target.path)
}

fn authority(target: &HttpGet) -> String {
    match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    }
}

/// Where a redirect leads, if it stays on the host; one that leaves it is an answer like others.
fn redirected(target: &HttpGet, location: &str) -> Option<HttpGet> {
    if location.starts_with('/') && !location.starts_with("//") {
        return Some(HttpGet { path: location.to_owned(), ..target.clone() });
    }
    let uri: Uri = location.parse().ok()?;
    let https = match uri.scheme_str()? {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    if uri.host()?.trim_matches(['[', ']']) != target.host {
        return None;
    }
    let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    Some(HttpGet { https, port, path, ..target.clone() })
}

async fn once(target: &HttpGet) -> Result<(StatusCode, Option<String>), ExchangeError> {
    let stream = connect(&target.host, target.port).await?;
    if !target.https {
        return exchange(target, stream).await;
    }
    let name = ServerName::try_from(target.host.clone()).map_err(ExchangeError::protocol)?;
    let connector = TlsConnector::from(Arc::new(tls()?));
    let stream = connector.connect(name, stream).await.map_err(ExchangeError::protocol)?;
    exchange(target, stream).await
}

/// Connects, with a kubelet's words where that fails.
pub async fn connect(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    match TcpStream::connect((host, port)).await {
        Ok(stream) => Ok(stream),
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => {
            Err(ConnectError::Refused { host: host.to_owned(), port })
        }
        Err(error) => Err(ConnectError::Failed { host: host.to_owned(), port, error }),
    }
}

async fn exchange<S>(target: &HttpGet, stream: S) -> Result<(StatusCode, Option<String>), ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = request(target)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(ExchangeError::protocol)?;
    let sent = sender.send_request(request);
    let answer = beside(connection, sent)
        .await
        .map_err(|e| if e.is_incomplete_message() { ExchangeError::Incomplete } else { ExchangeError::protocol(e) })?;
    let location = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok((answer.status(), location))
}

/// Drives a connection for as long as what happens on it takes.
pub async fn beside<T>(connection: impl Future, exchange: impl Future<Output = T>) -> T {
    let (mut connection, mut exchange) = (pin!(connection), pin!(exchange));
    tokio::select! {
        biased;
        result = &mut exchange => return result,
        _ = &mut connection => {}
    }
    exchange.await // the connection is over, and so is this
}

fn request(target: &HttpGet) -> Result<Request<Empty<bytes::Bytes>>, ExchangeError> {
    let mut request = Request::get(target.path.as_str()).body(Empty::new()).map_err(ExchangeError::protocol)?;
    let headers = request.headers_mut();
    for (name, value) in &target.headers {
        let name_text = || name.clone();
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|e| ExchangeError::Header { name: name_text(), why: e.into() })?;
        let value =
            HeaderValue::from_str(value).map_err(|e| ExchangeError::Header { name: name_text(), why: e.into() })?;
        headers.append(name, value);
    }
    let mut default = |name: HeaderName, value: &str| {
        if !headers.contains_key(&name)
            && let Ok(value) = HeaderValue::from_str(value)
        {
            headers.insert(name, value);
        }
    };
    default(header::HOST, &authority(target));
    default(header::USER_AGENT, USER_AGENT);
    default(header::ACCEPT, "*/*");
    default(header::CONNECTION, "close");
    Ok(request)
}

fn tls() -> Result<ClientConfig, ExchangeError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(ExchangeError::protocol)?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(Anybody { schemes })).with_no_client_auth())
}

/// Takes every certificate, as a kubelet does: it asks whether the pod answers, not who it is.
#[derive(Debug)]
struct Anybody {
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_on_the_host() {
        let target =
            HttpGet { https: false, host: "127.9.9.9".into(), port: 8080, path: "/a".into(), headers: Vec::new() };
        let cases = [
            ("/b?c", Some("http://127.9.9.9:8080/b?c")),
            ("https://127.9.9.9/d", Some("https://127.9.9.9:443/d")),
            ("http://127.9.9.9:99", Some("http://127.9.9.9:99/")),
            ("http://example.com/", None),
            ("//example.com/", None),
            ("ftp://127.9.9.9/", None),
        ];
        for (location, expected) in cases {
            assert_eq!(redirected(&target, location).map(|t| url(&t)).as_deref(), expected, "{location}");
        }
    }
}
