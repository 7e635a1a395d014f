//! A hash for what is stored or is a part of a name: the same on every machine and in every version, which the standard library's
//! hashers do not promise. It is no protection against somebody who looks for collisions.

/// FNV-1a of 64 bits over parts, each after its length, so that what moves from one part to the next changes it.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes =
        parts.into_iter().flat_map(|part| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied()));
    of_bytes(bytes)
}

/// FNV-1a of 64 bits.
pub fn of_bytes(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The same of texts, in 16 hexadecimal digits.
pub fn digits<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    format!("{:016x}", hash(texts.into_iter().map(str::as_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_never_changes() {
        // computed by another program
        assert_eq!(hash([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digits(["a"]), digits(["a"]));
        assert_ne!(digits(["ab", "c"]), digits(["a", "bc"]));
        assert_eq!(digits(["trainyard", ""]), DIGITS);
    }

    const DIGITS: &str = "e9861f3c47e09982";
}
