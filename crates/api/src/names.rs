//! Checks of names: each returns all faults in Kubernetes' words, and none for a valid name.
//!
//! Source of rules and texts: `k8s.io/apimachinery/pkg/{util/validation,api/validate/content}` (1.36).

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const KEY_NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Longest DNS label, in bytes.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain, in bytes.
pub const SUBDOMAIN_MAX: usize = 253;

/// `text (e.g. 'a',  or 'b', regex used for validation is 're')`, as upstream renders it.
fn pattern(text: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{text} (regex used for validation is '{pattern}')");
    }
    let examples: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

fn lower_alphanumeric(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn is_label(value: &str) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            lower_alphanumeric(first)
                && lower_alphanumeric(last)
                && bytes.iter().all(|&c| lower_alphanumeric(c) || c == b'-')
        }
        _ => false,
    }
}

fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

/// A generated name's prefix may end with a dash: what follows makes it good.
fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    match name.strip_suffix('-') {
        // a letter takes the place of the last byte before the dash; of one that is no ASCII, a part would stay
        Some(head) if prefix && head.ends_with(|c: char| c.is_ascii()) => format!("{}a", &head[..head.len() - 1]),
        _ => name.to_owned(),
    }
}

/// A DNS-1123 label (`my-name`): at most 63 characters. `prefix`: a dash at the end does not count.
pub fn label_faults(name: &str, prefix: bool) -> Vec<String> {
    let value = mask_trailing_dash(name, prefix);
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !is_label(&value) {
        faults.push(if is_subdomain(&value) {
            "must not contain dots".to_owned()
        } else {
            pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    faults
}

/// A DNS-1123 subdomain (`example.com`): at most 253 characters. `prefix`: a dash at the end does not count.
pub fn subdomain_faults(name: &str, prefix: bool) -> Vec<String> {
    let value = mask_trailing_dash(name, prefix);
    let mut faults = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        faults.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if !is_subdomain(&value) {
        faults.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    faults
}

/// A domain that names are looked up in: a subdomain whose labels may hold underscores.
pub fn search_faults(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        faults.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    let is_end = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let whole = bytes.iter().all(|&c| is_end(c) || c == b'-' || c == b'_');
        whole && bytes.first().copied().is_some_and(is_end) && bytes.last().copied().is_some_and(is_end)
    };
    if !name.split('.').all(is_part) {
        faults.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must \
             start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    faults
}

/// A DNS-1035 label (a DNS-1123 label that starts with a letter). `prefix`: a dash at the end does not count.
pub fn dns1035_faults(name: &str, prefix: bool) -> Vec<String> {
    let value = mask_trailing_dash(name, prefix);
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(format!("must be no more than {LABEL_MAX} characters"));
    }
    if !is_label(&value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    faults
}

fn is_key_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(c))
        }
        _ => false,
    }
}

/// The reason of a condition: words with `_`, `,` and `:` between them.
pub fn condition_reason_fault(reason: &str) -> Option<String> {
    let word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let bytes = reason.as_bytes();
    let is_reason = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(|&c| word(c))
        && bytes.iter().all(|&c| word(c) || matches!(c, b',' | b':'));
    let text = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
                characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    (!is_reason).then(|| pattern(text, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples))
}

/// The key of a label, an annotation (lower-cased) or an extended resource: a name with an optional `subdomain/`.
pub fn qualified_name_faults(value: &str) -> Vec<String> {
    let name_pattern = || {
        pattern(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character",
            KEY_NAME,
            &["MyName", "my.name", "123-abc"],
        )
    };
    let mut faults = Vec::new();
    let parts: Vec<&str> = value.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                // This message is the content package's, which counts bytes where the other counts characters.
                faults.extend(subdomain_faults(prefix, false).into_iter().map(|fault| {
                    let fault = fault.replace("no more than 253 characters", "no more than 253 bytes");
                    format!("prefix part {fault}")
                }));
            }
            *name
        }
        _ => {
            faults.push(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                name_pattern()
            ));
            return faults;
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_MAX {
        faults.push(format!("name part must be no more than {LABEL_MAX} bytes"));
    }
    if !is_key_name(name) {
        faults.push(format!("name part {}", name_pattern()));
    }
    faults
}

/// The value of a label: empty, or at most 63 bytes.
pub fn label_value_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > LABEL_MAX {
        faults.push(format!("must be no more than {LABEL_MAX} bytes"));
    }
    if !value.is_empty() && !is_key_name(value) {
        faults.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    faults
}

/// A name that only has to fit into a path (RBAC's roles and bindings).
pub fn path_segment_faults(name: &str, prefix: bool) -> Vec<String> {
    if !prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"].iter().filter(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

fn dot_faults(value: &str) -> Vec<String> {
    match value {
        "." => vec!["must not be '.'".to_owned()],
        ".." => vec!["must not be '..'".to_owned()],
        _ if value.starts_with("..") => vec!["must not start with '..'".to_owned()],
        _ => Vec::new(),
    }
}

/// A key in the data of a ConfigMap or a Secret, which becomes a file's name.
pub fn config_key_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > SUBDOMAIN_MAX {
        faults.push(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    if value.is_empty() || !value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c)) {
        faults.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    faults.extend(dot_faults(value));
    faults
}

/// The name of an environment variable: any printable ASCII but `=`.
pub fn env_name_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.is_empty() {
        faults.push("environment variable name must be non-empty".to_owned());
    }
    if value.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        faults.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    faults
}

/// The name of a port (an IANA service name): at most 15 characters.
pub fn port_name_faults(value: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if value.len() > 15 {
        faults.push("must be no more than 15 characters".to_owned());
    }
    if value.is_empty() || !value.bytes().all(|c| lower_alphanumeric(c) || c == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|c| c.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

/// A port's number: 1 to 65535.
pub fn port_number_faults(port: i64) -> Vec<String> {
    range_faults(port, 1, 65535)
}

/// A number within bounds, both included.
pub fn range_faults(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        Vec::new()
    } else {
        vec![format!("must be between {low} and {high}, inclusive")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_have_no_faults() {
        for name in ["a", "a-1", "0", "a--b"] {
            assert!(label_faults(name, false).is_empty(), "{name}");
        }
        assert!(label_faults("a-", true).is_empty());
        assert!(subdomain_faults("a.b-c.d", false).is_empty());
        assert!(qualified_name_faults("example.com/My_Name").is_empty());
        assert!(label_value_faults("").is_empty());
        assert!(config_key_faults(".dot").is_empty());
        assert!(dns1035_faults("a1", false).is_empty());
    }

    #[test]
    fn faults_read_like_upstream() {
        assert_eq!(
            label_faults("A", false),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
              end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(label_faults("a.b", false), ["must not contain dots"]);
        assert_eq!(label_faults(&"a".repeat(64), false), ["must be no more than 63 characters"]);
        assert_eq!(label_value_faults(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(qualified_name_faults("/x"), ["prefix part must be non-empty"]);
        assert_eq!(config_key_faults("..x"), ["must not start with '..'"]);
        assert_eq!(path_segment_faults("a/b", false), ["may not contain '/'"]);
        assert!(!dns1035_faults("1a", false).is_empty());
        assert!(!subdomain_faults("a..b", false).is_empty());
        assert_eq!(port_name_faults("1-").len(), 2);
    }
}
