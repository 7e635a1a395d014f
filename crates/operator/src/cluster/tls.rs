//! The TLS settings of the operator's servers, and the one certificate that they share and exchange while they run.

use api::config::Tls;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ServerConfig};
use std::sync::{Arc, PoisonError, RwLock};

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate is not PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    #[error("the key is not PEM")]
    Key,
    #[error("the certificate and its key cannot be used together")]
    Pair(#[source] rustls::Error),
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

/// The certificate that is shown to clients now. Until there is one, handshakes fail.
#[derive(Debug, Default)]
pub struct Shown(RwLock<Option<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows another certificate from the next handshake on.
    pub fn show(&self, certificate: &str, key: &str) -> Result<(), TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| TlsError::Key)?;
        let pair = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(TlsError::Pair)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What TLS the servers speak: the configuration's `tls` section. What is unknown is reported and ignored, as upstream does;
/// TLS 1.3's suites are always there, as in Go.
pub fn server_config(tls: &Tls, shown: Arc<Shown>) -> Result<ServerConfig, TlsError> {
    let versions = match tls.min_version.as_deref() {
        Some("1.3") => &[&rustls::version::TLS13][..],
        None | Some("1.2") => rustls::ALL_VERSIONS,
        Some(old @ ("1.0" | "1.1")) => {
            tracing::warn!(asked = old, "tls.minVersion: 1.2 is the oldest version that is spoken");
            rustls::ALL_VERSIONS
        }
        Some(unknown) => {
            tracing::warn!(asked = unknown, "tls.minVersion: not a version of TLS (1.0, 1.1, 1.2, 1.3); ignored");
            rustls::ALL_VERSIONS
        }
    };
    let mut provider = ring::default_provider();
    if !tls.cipher_suites.is_empty() {
        choose(&mut provider, &tls.cipher_suites);
    }
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .map_err(TlsError::Setup)?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = tls.next_protos.iter().map(|name| name.clone().into_bytes()).collect();
    Ok(config)
}

fn choose(provider: &mut CryptoProvider, names: &[String]) {
    let called = |suite: CipherSuite, name: &str| suite.as_str() == Some(name);
    for name in names {
        if !provider.cipher_suites.iter().any(|known| called(known.suite(), name)) && !name.starts_with("TLS_AES") {
            tracing::warn!(suite = name, "tls.cipherSuites: unknown or insecure; ignored");
        }
    }
    provider
        .cipher_suites
        .retain(|known| known.tls13().is_some() || names.iter().any(|name| called(known.suite(), name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_ignored() {
        let config = |tls: &Tls| server_config(tls, Arc::default()).unwrap();
        let usual = config(&Tls::default());
        assert_eq!(usual.alpn_protocols, [b"http/1.1".to_vec()]);
        let one = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned();
        let odd = Tls {
            min_version: Some("9".to_owned()),
            cipher_suites: vec![one.clone(), "X".to_owned()],
            ..Tls::default()
        };
        let suites = config(&odd).crypto_provider().cipher_suites.clone();
        let old: Vec<_> = suites.iter().filter(|s| s.tls13().is_none()).map(|s| s.suite().as_str()).collect();
        assert_eq!(old, [Some(one.as_str())]);
        assert!(suites.len() > 1);
    }
}
