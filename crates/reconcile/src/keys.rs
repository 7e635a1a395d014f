//! Keys for objects that need them ([`crate::Op::CreateGenerated`]): functions of chance that the shell has drawn.

use crate::Generator;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use p521::elliptic_curve::sec1::ToSec1Point;
use p521::pkcs8::LineEnding;
use serde_json::Value;

/// The alphabet of Z85 (ZeroMQ RFC 32).
const Z85: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// As many random bytes as the largest key takes: 521 bits.
pub type Entropy = [u8; 66];

/// The object with `{public}` and `{private}` filled in under `stringData`: a key pair of this kind, made of `entropy` alone.
pub fn fill(mut object: Value, generator: Generator, entropy: &Entropy) -> Value {
    let (public, private) = match generator {
        Generator::SshKeyPair => ssh_key_pair(entropy),
        Generator::CurveKeyPair => curve_key_pair(entropy),
    };
    if let Some(data) = object.get_mut("stringData").and_then(Value::as_object_mut) {
        for text in data.values_mut() {
            if let Some(template) = text.as_str() {
                *text = template.replace("{public}", &public).replace("{private}", &private).into();
            }
        }
    }
    object
}

fn ssh_key_pair(entropy: &Entropy) -> (String, String) {
    let mut bytes = *entropy;
    // 521 bits: one bit of the first byte
    bytes[0] &= 1;
    let secret = p521::SecretKey::from_slice(&bytes).unwrap_or_else(|_| {
        // zero, or one of the few numbers above the group's order (one draw in 2^260): half of it is below
        bytes[0] = 0;
        bytes[65] |= 1;
        p521::SecretKey::from_slice(&bytes).expect("invariant: above zero and below the order")
    });
    let private = secret.to_sec1_pem(LineEnding::LF).expect("invariant: a valid key has a PEM form").to_string();
    let point = secret.public_key().to_sec1_point(false);
    let mut wire = Vec::new();
    for part in [b"ecdsa-sha2-nistp521".as_slice(), b"nistp521", point.as_bytes()] {
        wire.extend(u32::try_from(part.len()).expect("invariant: parts of a key are short").to_be_bytes());
        wire.extend(part);
    }
    (format!("ecdsa-sha2-nistp521 {}\n", STANDARD.encode(wire)), private)
}

fn curve_key_pair(entropy: &Entropy) -> (String, String) {
    let (bytes, _) = entropy.split_first_chunk::<32>().expect("invariant: there are 66");
    let secret = x25519_dalek::StaticSecret::from(*bytes);
    let public = x25519_dalek::PublicKey::from(&secret);
    (z85(public.as_bytes()), z85(secret.as_bytes()))
}

/// Z85 of a multiple of four bytes: each four become five characters.
fn z85(bytes: &[u8; 32]) -> String {
    let mut text = String::with_capacity(40);
    for chunk in bytes.chunks_exact(4) {
        let mut number = chunk.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let mut digits = [0u8; 5];
        for digit in digits.iter_mut().rev() {
            *digit = Z85[(number % 85) as usize];
            number /= 85;
        }
        text.extend(digits.iter().map(|d| char::from(*d)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ssh_keys_have_the_forms_that_openssh_reads() {
        let object = json!({"stringData": {"ssh-privatekey": "{private}", "ssh-publickey": "{public}"}});
        let filled = fill(object.clone(), Generator::SshKeyPair, &[7; 66]);
        let private = filled["stringData"]["ssh-privatekey"].as_str().unwrap();
        let public = filled["stringData"]["ssh-publickey"].as_str().unwrap();
        assert!(private.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{private}");
        let (kind, rest) = public.split_once(' ').unwrap();
        assert_eq!(kind, "ecdsa-sha2-nistp521");
        let wire = STANDARD.decode(rest.trim_end()).unwrap();
        assert_eq!(wire.len(), 4 + 19 + 4 + 8 + 4 + 133);
        assert_ne!(filled, fill(object, Generator::SshKeyPair, &[8; 66]), "other chance, another key");
    }

    #[test]
    fn any_chance_makes_a_key() {
        let object = json!({"stringData": {"key": "{private}"}});
        for generator in [Generator::SshKeyPair, Generator::CurveKeyPair] {
            let made = [[0; 66], [0xff; 66], [7; 66]].map(|chance| fill(object.clone(), generator, &chance));
            let again = [[0; 66], [0xff; 66], [7; 66]].map(|chance| fill(object.clone(), generator, &chance));
            assert_eq!(made, again);
            assert!(made[0] != made[1] && made[1] != made[2], "{made:?}");
        }
    }

    #[test]
    fn z85_agrees_with_the_rfc() {
        let mut bytes = [0u8; 32];
        bytes[..8].copy_from_slice(&[0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B]);
        assert!(z85(&bytes).starts_with("HelloWorld"));
    }
}
