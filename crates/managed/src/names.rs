//! Names of objects, made of what users call their clusters.

/// Longest name of a cluster's object: Jobs and pods add to it.
const NAME_MAX: usize = 36;

/// What a cluster's object is called: its name, where that is a DNS label and short; else what is left of it, and a hash of it all.
pub fn object_name(cluster: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if cluster.len() <= NAME_MAX && !cluster.ends_with('-') && cluster.chars().all(fits) {
        return cluster.to_owned();
    }
    let lower = cluster.to_lowercase();
    let clean: String = lower.chars().map(|c| if fits(c) { c } else { '-' }).take(NAME_MAX.saturating_sub(9)).collect();
    format!("{}-{:08x}", clean.trim_end_matches('-'), hash(cluster))
}

/// The parts of a place, such as provider, region and zone, as one text; empty parts are left out.
pub(crate) fn place(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// FNV-1a of 32 bits.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels() {
        assert_eq!(object_name("dev"), "dev");
        for name in ["Dev", "a_b", "a.b", &"x".repeat(60)] {
            let made = object_name(name);
            assert!(made.len() <= NAME_MAX && api::names::label_faults(&made, false).is_empty(), "{made}");
            assert_ne!(made, name);
        }
        assert_ne!(object_name("a_b"), object_name("a.b"));
    }
}
