//! Kubernetes' rules for names where JobSet's webhook words them in its own way.

/// What is wrong with a DNS label by RFC 1035; `too_long` replaces the words about its length.
pub(super) fn dns_1035_label(value: &str, too_long: &str) -> Vec<String> {
    let faults = api::names::dns1035_faults(value, false).into_iter();
    faults.map(|fault| if fault.starts_with("must be no more than") { too_long.to_owned() } else { fault }).collect()
}

/// What is wrong with the path of a domain-prefixed path.
pub(super) fn http_path(value: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    (value.is_empty() || !value.chars().all(allowed))
        .then(|| r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')".to_owned())
}
