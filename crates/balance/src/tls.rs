//! TLS of the listener.

use crate::config::CertificatePair;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("tls.certificate is not PEM: {0}. Write a PEM chain, the server's certificate first")]
    Certificate(pem::Error),
    #[error("tls.key is not a private key in PEM. Write a key in PKCS #8, PKCS #1 or SEC1 format")]
    Key,
    #[error("tls.certificate and tls.key do not work together: {0}. Write the key that the certificate was made for")]
    Pair(rustls::Error),
}

/// What the listener does with a new connection.
#[derive(Clone)]
pub(crate) enum Tls {
    Off,
    On(TlsAcceptor),
    /// TLS is required, but there is no usable certificate: the connection is closed.
    Unusable,
}

/// Accepts HTTP/2 and HTTP/1.1 by ALPN.
///
/// # Errors
/// The certificate or the key cannot be parsed, or they do not belong together.
pub(crate) fn acceptor(pair: &CertificatePair) -> Result<TlsAcceptor, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect();
    let chain = chain.map_err(CertificateError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|_| CertificateError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(CertificateError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
