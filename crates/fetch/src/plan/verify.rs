//! Checksums: what a source says of a file, and what is computed of its bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use md5::Md5;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Md5,
    /// SHA-1 of git's header and the content.
    GitSha1,
    Sha1,
    Crc64Nvme,
    Sha256,
    Sha512,
}

/// A checksum of a whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub algorithm: Algorithm,
    /// Hex, lower case.
    pub value: String,
}

impl Algorithm {
    fn bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme => 8,
            Algorithm::Md5 => 16,
            Algorithm::GitSha1 | Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Algorithm::Md5 | Algorithm::GitSha1 | Algorithm::Sha1 | Algorithm::Sha256 | Algorithm::Sha512 => None,
        }
    }

    /// Whether the sum of a whole follows from those of its parts.
    pub fn is_joinable(self) -> bool {
        self.crc().is_some()
    }

    pub fn parse(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "crc32" => Algorithm::Crc32,
            "crc32c" => Algorithm::Crc32c,
            "crc64nvme" => Algorithm::Crc64Nvme,
            "md5" => Algorithm::Md5,
            "git-sha1" => Algorithm::GitSha1,
            "sha" | "sha1" | "sha-1" => Algorithm::Sha1,
            "sha256" | "sha-256" => Algorithm::Sha256,
            "sha512" | "sha-512" => Algorithm::Sha512,
            _ => return None,
        })
    }
}

impl Check {
    pub fn from_hex(algorithm: &str, hex: &str) -> Option<Self> {
        let algorithm = Algorithm::parse(algorithm)?;
        let right =
            hex.len() == algorithm.bytes().saturating_mul(2) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        right.then(|| Self { algorithm, value: hex.to_ascii_lowercase() })
    }

    pub fn from_base64(algorithm: &str, text: &str) -> Option<Self> {
        let algorithm = Algorithm::parse(algorithm)?;
        let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| bytes.len() == algorithm.bytes())?;
        Some(Self { algorithm, value: hex(&bytes) })
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A checksum in the making.
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Crc(Digest),
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// `size` of the whole content: git's hash begins with it.
    pub fn new(algorithm: Algorithm, size: u64) -> Self {
        let state = match algorithm {
            Algorithm::Crc32 => State::Crc(Digest::new(CrcAlgorithm::Crc32IsoHdlc)),
            Algorithm::Crc32c => State::Crc(Digest::new(CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Crc64Nvme => State::Crc(Digest::new(CrcAlgorithm::Crc64Nvme)),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
            Algorithm::GitSha1 => State::Sha1(Sha1::new_with_prefix(format!("blob {size}\0"))),
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        };
        Self { algorithm, state }
    }

    /// Whether it takes bytes as fast as memory is copied.
    pub fn is_quick(&self) -> bool {
        matches!(self.state, State::Crc(_))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Crc(state) => state.update(bytes),
            State::Md5(state) => state.update(bytes),
            State::Sha1(state) => state.update(bytes),
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// What joins to the sums of other parts; `None`: it is none that can be joined.
    pub fn crc(self) -> Option<Crc> {
        match self.state {
            State::Crc(state) => {
                Some(Crc { algorithm: self.algorithm, count: state.get_amount(), value: state.finalize() })
            }
            State::Md5(_) | State::Sha1(_) | State::Sha256(_) | State::Sha512(_) => None,
        }
    }

    pub fn finish(self) -> Check {
        let value = match self.state {
            State::Crc(state) => crc_hex(self.algorithm, state.finalize()),
            State::Md5(state) => hex(&state.finalize()),
            State::Sha1(state) => hex(&state.finalize()),
            State::Sha256(state) => hex(&state.finalize()),
            State::Sha512(state) => hex(&state.finalize()),
        };
        Check { algorithm: self.algorithm, value }
    }
}

fn crc_hex(algorithm: Algorithm, value: u64) -> String {
    format!("{value:0width$x}", width = algorithm.bytes().saturating_mul(2))
}

/// The sum of a stretch of bytes, and their number: what it takes to join it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    algorithm: Algorithm,
    value: u64,
    count: u64,
}

impl Crc {
    /// Of no bytes.
    pub fn nothing(algorithm: Algorithm) -> Self {
        Self { algorithm, value: 0, count: 0 }
    }

    /// Of the bytes of this one, then those of `next`.
    pub fn joined(self, next: Self) -> Self {
        let count = self.count.saturating_add(next.count);
        let value = match self.algorithm.crc() {
            _ if self.count == 0 => next.value,
            Some(crc) => checksum_combine(crc, self.value, next.value, next.count),
            None => next.value,
        };
        Self { value, count, ..self }
    }

    pub fn check(self) -> Check {
        Check { algorithm: self.algorithm, value: crc_hex(self.algorithm, self.value) }
    }
}

/// CRC-32 of a part, by which a part on the disk is known again.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::default();
    crc.update(bytes);
    crc.finish()
}

/// The same of bytes that come one after the other.
pub struct Crc32(Digest);

impl Default for Crc32 {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32IsoHdlc))
    }
}

impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> u32 {
        u32::try_from(self.0.finalize()).unwrap_or_default() // 32 bits, of 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        for (name, answer) in [
            ("crc32", "cbf43926"),
            ("crc32c", "e3069283"),
            ("crc64nvme", "ae8b14860a799888"),
            ("md5", "25f9e794323b453885f5181f1b624d0b"),
            ("sha1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            // git hash-object
            ("git-sha1", "e2e107ac61ac259b87c544f6e7a4eb03422c6c21"),
            ("sha256", "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ] {
            let mut hasher = Hasher::new(Algorithm::parse(name).unwrap(), 9);
            hasher.update(b"1234");
            hasher.update(b"56789");
            assert_eq!(Some(hasher.finish()), Check::from_hex(name, answer), "{name}");
        }
    }

    #[test]
    fn checksums_have_their_length() {
        assert!(Check::from_hex("md5", "12").is_none());
        assert!(Check::from_hex("md5", "zz".repeat(16).as_str()).is_none());
        assert_eq!(Check::from_base64("crc32", "y/Q5Jg==").unwrap().value, "cbf43926");
        assert!(Check::from_base64("sha256", "y/Q5Jg==").is_none());
        assert!(Check::from_base64("crc32", "y/Q5Jg==-3").is_none());
    }
}
