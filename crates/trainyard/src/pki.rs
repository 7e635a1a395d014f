//! The control plane's certificate authority, certificates, tokens and kubeconfigs. They are made here and kept under
//! the home with mode 0600; private keys never leave the machine, except in kubeconfigs for users.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Years that the authority lives. Server certificates are made anew at each start.
const AUTHORITY_YEARS: i32 = 20;

/// Why keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read or write {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot make a certificate; if {home}/pki is damaged, remove it and start again")]
    Certificate {
        home: PathBuf,
        #[source]
        source: rcgen::Error,
    },
}

/// What a server needs to be trusted, as PEM texts.
pub struct Identity {
    pub authority: String,
    pub certificate: String,
    pub key: String,
}

/// What signs, and its certificate.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// The authority of this home, made at the first start.
fn authority(home: &Path) -> Result<Authority, PkiError> {
    let folder = home.join("pki");
    fs::create_dir_all(&folder).map_err(|source| PkiError::Io { path: folder.clone(), source })?;
    let made = |source| PkiError::Certificate { home: home.to_owned(), source };
    let (key_path, certificate_path) = (folder.join("ca.key"), folder.join("ca.crt"));
    if !key_path.exists() || !certificate_path.exists() {
        let key = KeyPair::generate().map_err(made)?;
        let certificate = authority_params().self_signed(&key).map_err(made)?;
        write_private(&certificate_path, &certificate.pem())?;
        write_private(&key_path, &key.serialize_pem())?;
    }
    let key = KeyPair::from_pem(&read(&key_path)?).map_err(made)?;
    Ok(Authority { certificate: read(&certificate_path)?, issuer: Issuer::new(authority_params(), key) })
}

/// A certificate by which a client is this user, a member of this group, for so many days.
pub fn client(home: &Path, user: &str, group: Option<&str>, days: u16) -> Result<Identity, PkiError> {
    let Authority { certificate: authority, issuer } = authority(home)?;
    let made = |source| PkiError::Certificate { home: home.to_owned(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = name(user);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let now = std::time::SystemTime::now();
    // clocks differ, and are set
    let (before, after) = (Duration::from_secs(24 * 60 * 60), Duration::from_secs(u64::from(days) * 24 * 60 * 60));
    params.not_before = now.checked_sub(before).unwrap_or(now).into();
    params.not_after = now.checked_add(after).unwrap_or(now).into();
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.signed_by(&key, &issuer).map_err(made)?;
    Ok(Identity { authority, certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The certificate of this home's authority, by which clients know the server.
pub fn authority_certificate(home: &Path) -> Result<String, PkiError> {
    Ok(authority(home)?.certificate)
}

/// The authority of this home (made at the first start) and a fresh certificate for these addresses.
pub fn identity(home: &Path, addresses: &[IpAddr]) -> Result<Identity, PkiError> {
    let Authority { certificate: authority, issuer } = authority(home)?;
    let made = |source| PkiError::Certificate { home: home.to_owned(), source };
    let mut params =
        CertificateParams::new(vec!["localhost".to_owned(), "kubernetes.default.svc".to_owned()]).map_err(made)?;
    params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
    params.distinguished_name = name("trainyard");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(made)?;
    let certificate = params.signed_by(&key, &issuer).map_err(made)?;
    Ok(Identity { authority, certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The same at each start, so that the issuer of later certificates is the one of the stored certificate.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("trainyard local authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let year = i32::from(jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).year());
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year + AUTHORITY_YEARS, 1, 1);
    params
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// A secret of 32 random bytes that is made once and kept.
pub fn secret(path: &Path) -> Result<[u8; 32], PkiError> {
    if let Ok(text) = fs::read_to_string(path)
        && let Some(bytes) = from_hex(text.trim())
    {
        return Ok(bytes);
    }
    let bytes: [u8; 32] = rand::random();
    write_private(path, &to_hex(&bytes))?;
    Ok(bytes)
}

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| PkiError::Io { path: path.to_owned(), source })
}

/// Writes a file that only its owner can read, whole or not at all.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let failed = |source| PkiError::Io { path: path.to_owned(), source };
    let part = path.with_extension("part");
    let _ = fs::remove_file(&part);
    let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&part, path).map_err(failed)
}

/// What a client identifies itself by.
pub enum Credential<'a> {
    Token(&'a str),
    Certificate(&'a Identity),
}

/// A kubeconfig for one user, named after the cluster.
pub fn kubeconfig(server: &str, authority: &str, credential: &Credential<'_>) -> String {
    kubeconfig_of("trainyard", server, authority, credential)
}

/// A kubeconfig for one user.
pub fn kubeconfig_of(name: &str, server: &str, authority: &str, credential: &Credential<'_>) -> String {
    use base64::Engine;
    let encode = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let authority = encode(authority);
    let user = match credential {
        Credential::Token(token) => format!("token: {token}"),
        Credential::Certificate(Identity { certificate, key, .. }) => {
            format!("client-certificate-data: {}\n    client-key-data: {}", encode(certificate), encode(key))
        }
    };
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: trainyard\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: {authority}\nusers:\n- name: {name}\n  user:\n    {user}\ncontexts:\n- name: \
         trainyard\n  context:\n    cluster: trainyard\n    user: {name}\n    namespace: default\ncurrent-context: trainyard\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("trainyard-pki-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn the_authority_stays_and_certificates_are_fresh() {
        let home = folder("identity");
        let first = identity(&home, &["127.0.0.1".parse().unwrap()]).unwrap();
        let second = identity(&home, &["127.0.0.1".parse().unwrap()]).unwrap();
        assert_eq!(first.authority, second.authority);
        assert_ne!(first.certificate, second.certificate);
        let mode = fs::metadata(home.join("pki/ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn secrets_are_kept() {
        let home = folder("secret");
        let first = secret(&home.join("token")).unwrap();
        assert_eq!(first, secret(&home.join("token")).unwrap());
        assert_ne!(first, secret(&home.join("other")).unwrap());
        assert_eq!(from_hex(&to_hex(&first)), Some(first));
        fs::remove_dir_all(home).unwrap();
    }
}
