//! Certificates and tokens of a control plane, made on its first start.

use super::write_private;
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::Path;

/// The authority that signed all certificates, and the administrator's token.
pub struct Keys {
    /// PEM.
    pub authority: String,
    token: String,
}

impl Keys {
    /// Those in `dir`, made where they are missing: `ca.crt`, `server.crt` and `.key` (of the API server and of the
    /// webhooks), `service-accounts.key` and `.pub`, `tokens.csv`.
    pub fn make(dir: &Path) -> Result<Self> {
        let tokens = dir.join("tokens.csv");
        if !tokens.exists() {
            let mut authority = named("a control plane to compare with");
            authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            let authority_key = KeyPair::generate()?;
            let authority_pem = authority.self_signed(&authority_key)?.pem();
            let authority = Issuer::new(authority, authority_key);
            let mut certificate = named("localhost");
            certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            certificate.subject_alt_names =
                vec![SanType::IpAddress(Ipv4Addr::LOCALHOST.into()), SanType::DnsName("localhost".try_into()?)];
            let server = KeyPair::generate()?;
            let certificate = certificate.signed_by(&server, &authority)?;
            write_private(&dir.join("ca.crt"), &authority_pem)?;
            write_private(&dir.join("server.crt"), &certificate.pem())?;
            write_private(&dir.join("server.key"), &server.serialize_pem())?;
            let accounts = KeyPair::generate()?;
            write_private(&dir.join("service-accounts.key"), &accounts.serialize_pem())?;
            write_private(&dir.join("service-accounts.pub"), &accounts.public_key_pem())?;
            // last: it stands for all of them
            write_private(&tokens, &format!("{},admin,admin,system:masters\n", uuid::Uuid::new_v4().simple()))?;
        }
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).with_context(|| format!("reading {name}"));
        let tokens = read("tokens.csv")?;
        let token = tokens.split(',').next().context("tokens.csv is empty")?.to_owned();
        Ok(Self { authority: read("ca.crt")?, token })
    }

    /// The authority as webhook configurations and kubeconfigs want it.
    pub fn bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.authority)
    }

    /// The administrator's kubeconfig. JSON is YAML too.
    pub fn kubeconfig(&self, port: u16) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "local",
            "clusters": [{"name": "local", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": self.bundle(),
            }}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "admin"}}],
        });
        format!("{config:#}\n")
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_made_once_and_nobody_else_reads_them() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = Keys::make(dir.path()).expect("keys");
        let second = Keys::make(dir.path()).expect("keys");
        assert_eq!(first.kubeconfig(1), second.kubeconfig(1));
        for entry in std::fs::read_dir(dir.path()).expect("the folder is there") {
            let entry = entry.expect("an entry");
            assert_eq!(entry.metadata().expect("a file").permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
    }
}
