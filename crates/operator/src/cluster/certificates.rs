//! The operator's own certificate authority, kept in a Secret that all replicas share, and when to renew what.
//!
//! [`advance`] is pure but for the keys that it makes. Nothing is ever shown that the API server does not trust yet: a new
//! authority is first published beside the old one, then certificates are made with it, and the old one goes last.

use api::object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Whose certificates they are.
const AUTHORITY: &str = "kubeflow-trainer-ca";
const ORGANISATION: &str = "kubeflow-trainer";
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// How long an authority lives: ten years.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// How long a certificate lives: a year.
const CERTIFICATE_LIFE: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Both are renewed this long before their end.
const AHEAD: SignedDuration = SignedDuration::from_hours(24 * 90);

/// Annotation of the Secret: when its authority ends.
const EXPIRES: &str = "trainyard.dev/authority-expires";
/// Annotation of the Secret: since when its certificate is shown.
const SINCE: &str = "trainyard.dev/certificate-since";
/// Key in the Secret: the authority before, as long as some replica may show a certificate of it.
const PREVIOUS: &str = "ca-previous.crt";

/// Why no certificate can be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate for {names}")]
pub struct MakeError {
    names: String,
    #[source]
    source: rcgen::Error,
}

/// What the Secret holds; each part may be missing. No `Debug`: keys are in it.
#[derive(Clone, Default, PartialEq)]
pub struct Material {
    authority: Option<String>,
    authority_key: Option<String>,
    expires: Option<Timestamp>,
    previous: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
    since: Option<Timestamp>,
}

impl Material {
    /// From the Secret as the API gives it. What cannot be read is not there.
    pub fn read(secret: &Value) -> Self {
        let part = |key: &str| {
            let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
            String::from_utf8(bytes).ok().filter(|text| !text.trim().is_empty())
        };
        let time = |name: &str| object::annotation(secret, name)?.parse().ok();
        Self {
            authority: part("ca.crt"),
            authority_key: part("ca.key"),
            expires: time(EXPIRES),
            previous: part(PREVIOUS),
            certificate: part("tls.crt"),
            key: part("tls.key"),
            since: time(SINCE),
        }
    }

    /// Puts it into the Secret; other annotations, labels and keys stay.
    pub fn write(&self, secret: &mut Value) {
        for member in ["data", "metadata"] {
            if !secret[member].is_object() {
                secret[member] = json!({});
            }
        }
        if !secret["metadata"]["annotations"].is_object() {
            secret["metadata"]["annotations"] = json!({});
        }
        let parts = [
            ("ca.crt", &self.authority),
            ("ca.key", &self.authority_key),
            (PREVIOUS, &self.previous),
            ("tls.crt", &self.certificate),
            ("tls.key", &self.key),
        ];
        let put = |map: &mut Value, key: &str, value: Option<String>| {
            let map = map.as_object_mut().expect("invariant: made an object above");
            match value {
                Some(value) => map.insert(key.to_owned(), value.into()),
                None => map.remove(key),
            };
        };
        for (key, value) in parts {
            put(&mut secret["data"], key, value.as_ref().map(|text| STANDARD.encode(text)));
        }
        for (name, time) in [(EXPIRES, self.expires), (SINCE, self.since)] {
            put(&mut secret["metadata"]["annotations"], name, time.map(|time| time.to_string()));
        }
    }

    /// The same without its authority: what a replica goes on from when the Secret is taken away. The old authority is still
    /// trusted, for its certificate is still shown.
    #[must_use]
    pub fn disowned(&self) -> Self {
        Self { previous: self.authority.clone(), authority: None, authority_key: None, expires: None, ..self.clone() }
    }

    /// The authorities to trust, PEM.
    pub fn bundle(&self) -> String {
        let mut bundle = String::new();
        for authority in [&self.authority, &self.previous].into_iter().flatten() {
            bundle += authority.trim_end();
            bundle.push('\n');
        }
        bundle
    }

    /// Whether a client that trusts `bundle` takes the certificate for all these names at that time.
    fn is_good(&self, bundle: &str, names: &[String], at: Timestamp) -> bool {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else { return false };
        let pair = crate::cluster::tls::Shown::default();
        pair.show(certificate, key).is_ok() && is_trusted(certificate, bundle, names, at)
    }

    /// A certificate of our authority; `None` where that authority cannot sign (any more).
    fn issue(&mut self, names: &[String], now: Timestamp) -> Option<()> {
        let (authority, key) = (self.authority.as_deref()?, self.authority_key.as_deref()?);
        let issuer = Issuer::new(authority_params(now), KeyPair::from_pem(key).ok()?);
        let mut params = CertificateParams::new(names.to_vec()).ok()?;
        params.distinguished_name = distinguished(names.first().map_or("", String::as_str));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        live(&mut params, now, CERTIFICATE_LIFE);
        let key = KeyPair::generate().ok()?;
        let certificate = params.signed_by(&key, &issuer).ok()?.pem();
        let made =
            Self { certificate: Some(certificate), key: Some(key.serialize_pem()), since: Some(now), ..self.clone() };
        if !made.is_good(authority, names, now) {
            return None;
        }
        *self = made;
        Some(())
    }
}

/// What the Secret should hold, given what it holds. `settled`: the present bundle has been in the webhook configurations for
/// so long that every API server goes by it, and every replica has read the Secret. `retire`: how long the authority before
/// is still trusted once the certificate is one of the new authority.
///
/// Guarantees: a client that trusts the bundle of `held` accepts the certificate of the answer, unless there was no bundle.
pub fn advance(
    held: Material,
    names: &[String],
    now: Timestamp,
    settled: bool,
    retire: SignedDuration,
) -> Result<Material, MakeError> {
    let mut next = held;
    let later = now.checked_add(AHEAD).unwrap_or(Timestamp::MAX);
    let can_sign = |next: &Material| {
        next.expires.is_some_and(|expires| expires > later) && next.clone().issue(names, now).is_some()
    };
    let authority = next.authority.clone().unwrap_or_default();
    if next.is_good(&authority, names, later) && next.expires.is_some_and(|expires| expires > later) {
        if next.previous.is_some() && next.since.is_none_or(|since| now.duration_since(since) > retire) {
            next.previous = None;
        }
        return Ok(next);
    }
    if !can_sign(&next) {
        if next.authority.is_some() {
            next.previous = next.authority.take();
        }
        let made = |source| MakeError { names: names.join(", "), source };
        let key = KeyPair::generate().map_err(made)?;
        next.authority = Some(authority_params(now).self_signed(&key).map_err(made)?.pem());
        next.authority_key = Some(key.serialize_pem());
        next.expires = now.checked_add(AUTHORITY_LIFE).ok();
        if next.is_good(&next.bundle(), names, now) {
            // the old certificate does until the new authority is known everywhere
            return Ok(next);
        }
    }
    if settled || !next.is_good(&next.bundle(), names, now) {
        next.issue(names, now)
            .ok_or_else(|| MakeError { names: names.join(", "), source: rcgen::Error::CouldNotParseCertificate })?;
    }
    Ok(next)
}

fn distinguished(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, ORGANISATION);
    name.push(DnType::CommonName, common);
    name
}

fn authority_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished(AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
    live(&mut params, now, AUTHORITY_LIFE);
    params
}

/// From a day ago, for clocks differ, until `life` from now; in whole days.
fn live(params: &mut CertificateParams, now: Timestamp, life: SignedDuration) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(now.checked_sub(DAY).unwrap_or(now));
    params.not_after = day(now.checked_add(life).unwrap_or(now));
}

fn is_trusted(certificate: &str, bundle: &str, names: &[String], at: Timestamp) -> bool {
    let certificates =
        |pem: &str| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap_or_default();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(bundle));
    let provider = Arc::new(ring::default_provider());
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build() else {
        return false;
    };
    let chain = certificates(certificate);
    let Some((first, rest)) = chain.split_first() else { return false };
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0)));
    names.iter().all(|name| {
        ServerName::try_from(name.as_str())
            .is_ok_and(|name| verifier.verify_server_cert(first, rest, &name, &[], time).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETIRE: SignedDuration = SignedDuration::from_mins(10);

    fn names() -> Vec<String> {
        vec!["operator.ns.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn next(held: &Material, now: Timestamp, settled: bool) -> Material {
        advance(held.clone(), &names(), now, settled, RETIRE).unwrap()
    }

    fn after(now: Timestamp, span: SignedDuration) -> Timestamp {
        now.checked_add(span).unwrap()
    }

    #[test]
    fn the_first_is_made_at_once_and_stays() {
        let now = Timestamp::now();
        let first = next(&Material::default(), now, false);
        assert!(first.is_good(&first.bundle(), &names(), now));
        assert!(!first.is_good(&first.bundle(), &["other".to_owned()], now));
        assert!(next(&first, after(now, DAY), true) == first);
        let mut secret = json!({"metadata": {"annotations": {"a": "b"}}, "data": {"x": "eQ=="}});
        first.write(&mut secret);
        assert!(Material::read(&secret) == first);
        assert_eq!((&secret["data"]["x"], &secret["metadata"]["annotations"]["a"]), (&json!("eQ=="), &json!("b")));
    }

    #[test]
    fn a_certificate_is_renewed_before_its_end_by_the_same_authority() {
        let now = Timestamp::now();
        let first = next(&Material::default(), now, false);
        let late = after(now, DAY * 300);
        assert!(next(&first, late, false) == first, "not before the bundle is known to be everywhere");
        let renewed = next(&first, late, true);
        assert!(renewed.certificate != first.certificate && renewed.bundle() == first.bundle());
        let expired = next(&first, after(now, DAY * 400), false);
        assert!(expired.certificate != first.certificate, "an expired one serves nobody");
    }

    #[test]
    fn a_new_authority_is_published_before_it_is_used_and_the_old_one_goes_last() {
        let now = Timestamp::now();
        let first = next(&Material::default(), now, false);
        // taken away: replicas that still show the old certificate stay trusted
        for held in [first.disowned(), Material { expires: Some(now), ..first.clone() }] {
            let published = next(&held, now, true);
            assert_eq!(published.certificate, first.certificate);
            assert!(published.bundle().ends_with(&first.bundle()) && published.bundle() != first.bundle());
            assert!(next(&published, now, false) == published, "it has not settled");
            let moved = next(&published, now, true);
            assert!(moved.certificate != first.certificate);
            assert!(moved.is_good(&moved.bundle(), &names(), now) && moved.is_good(&published.bundle(), &names(), now));
            assert!(next(&moved, after(now, RETIRE), true) == moved);
            let alone = next(&moved, after(now, RETIRE + DAY), true);
            assert!(alone.previous.is_none() && alone.certificate == moved.certificate);
        }
    }

    #[test]
    fn somebody_elses_authority_is_followed_by_one_of_ours() {
        // upstream's key is of a form that is not ours to read, and says no end
        let now = Timestamp::now();
        let theirs =
            Material { expires: None, authority_key: Some("RSA".to_owned()), ..next(&Material::default(), now, false) };
        let ours = next(&theirs, now, false);
        assert!(ours.authority != theirs.authority && ours.previous == theirs.authority);
        assert_eq!(ours.certificate, theirs.certificate);
        let damaged = Material { certificate: Some("x".to_owned()), ..theirs };
        let ours = next(&damaged, now, false);
        assert!(ours.is_good(&ours.bundle(), &names(), now));
    }
}
