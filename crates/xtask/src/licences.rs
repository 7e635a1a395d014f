//! Licences and sources of everything we link, and libraries that we refuse: the rules of `deny.toml`, without a tool to install.

use anyhow::Result;
use serde_json::Value;

/// Licences that we may link under (SPDX identifiers). The same as in `deny.toml`.
const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Libraries that must not be linked on any platform, and why.
const BANNED: [(&str, &str); 3] = [
    ("aws-lc-sys", "needs a C toolchain of its own; rustls runs on ring"),
    ("openssl-sys", "links the system's OpenSSL; rustls runs on ring"),
    ("native-tls", "links the system's TLS; rustls runs on ring"),
];

/// Findings about `cargo metadata` and the text of `Cargo.lock`.
pub fn check(metadata: &Value, lock: &str) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        match package["license"].as_str() {
            Some(expression) if is_allowed(expression) => {}
            Some(expression) => findings.push(format!("{name}: licence {expression} is not one we link under")),
            None => findings.push(format!("{name}: does not say its licence")),
        }
    }
    findings.extend(sources(metadata));
    for (name, why) in BANNED {
        if lock.lines().any(|line| line.trim() == format!("name = \"{name}\"")) {
            findings.push(format!("Cargo.lock holds {name}: {why}"));
        }
    }
    Ok(findings)
}

/// All that is not ours comes from one registry, and nothing from a repository.
fn sources(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let foreign: Vec<(&str, &str)> =
        packages.filter_map(|package| Some((package["name"].as_str()?, package["source"].as_str()?))).collect();
    let registry = foreign.iter().map(|(_, source)| *source).find(|source| source.starts_with("registry+"));
    let strange = foreign.into_iter().filter(|(_, source)| Some(*source) != registry);
    strange.map(|(name, source)| format!("{name}: comes from {source}, not from the registry of all others")).collect()
}

/// An SPDX expression without the old form of "or".
pub fn modern(expression: &str) -> String {
    expression.replace('/', " OR ")
}

/// Whether an SPDX expression leaves us a way that is allowed altogether.
fn is_allowed(expression: &str) -> bool {
    let spaced = modern(expression).replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

/// `a OR b`, where `AND` binds tighter.
fn either(rest: &mut &[&str]) -> bool {
    let mut result = both(rest);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        result |= both(rest);
    }
    result
}

fn both(rest: &mut &[&str]) -> bool {
    let mut result = single(rest);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        result &= single(rest);
    }
    result
}

fn single(rest: &mut &[&str]) -> bool {
    let Some((&first, after)) = rest.split_first() else { return false };
    *rest = after;
    if first == "(" {
        let result = either(rest);
        if rest.first() == Some(&")") {
            *rest = &rest[1..];
        }
        return result;
    }
    let mut name = first.to_owned();
    if let ["WITH", exception, after @ ..] = rest {
        name = format!("{name} WITH {exception}");
        *rest = after;
    }
    ALLOWED.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_are_weighed() {
        let cases = [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("MIT AND GPL-2.0-only", false),
            ("(MIT OR GPL-2.0-only) AND Unicode-3.0", true),
            ("MIT OR GPL-2.0-only AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
            ("Apache-2.0 WITH Strange-exception", false),
            ("", false),
        ];
        for (expression, allowed) in cases {
            assert_eq!(is_allowed(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn refused_libraries_are_found_in_the_lock_file() {
        let metadata =
            json!({"packages": [{"name": "a", "license": "MIT"}, {"name": "b"}, {"name": "c", "license": "AGPL-3.0"}]});
        let found = check(&metadata, "[[package]]\nname = \"openssl-sys\"\n").unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn there_is_one_source() {
        let package = |name: &str, source: Value| json!({"name": name, "source": source});
        let packages = json!({"packages": [package("ours", Value::Null), package("a", json!("registry+x")),
            package("b", json!("git+https://b")), package("c", json!("registry+y"))]});
        assert_eq!(sources(&packages).len(), 2);
    }
}
