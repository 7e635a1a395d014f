//! When a certificate expires.
//!
//! Our own reader of a few bytes of DER: the one date is all that is needed, and a library for X.509 would add twelve crates to the binary.

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;

/// The end of the first certificate of a PEM text; `None` where it is none, or its date cannot be read.
pub fn expires(pem: &str) -> Option<Timestamp> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate, _) = element(&certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = element(fields)?.2;
    }
    // serial number, algorithm, issuer
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (tag, validity, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let (kind, end, _) = element(element(validity)?.2)?;
    let text = std::str::from_utf8(end).ok()?.strip_suffix('Z')?;
    let text = match kind {
        // two digits of the year: up to 49 they are of this century (RFC 5280)
        UTC_TIME if text.get(..2)?.parse::<u8>().ok()? < 50 => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => text.to_owned(),
    };
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", text).ok()?;
    time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// The first element: its tag, its content, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            // four bytes of length: more than any certificate has
            let digits = (digits.len() <= 4).then_some(digits)?;
            (digits.iter().fold(0_usize, |length, digit| (length << 8) | usize::from(*digit)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn the_end_is_read_from_both_forms_of_dates() {
        for (year, end) in [(2031, "2031-02-03T00:00:00Z"), (2070, "2070-02-03T00:00:00Z")] {
            let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 2, 3);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(expires(&certificate.pem()), Some(end.parse().unwrap()), "{year}");
            let whole = certificate.der();
            for end in 0..whole.len() {
                // a cut certificate is none, and no reason to fail
                let _ = element(&whole[..end]).map(|(_, content, _)| element(content));
            }
        }
        assert_eq!(expires("nothing"), None);
    }
}
