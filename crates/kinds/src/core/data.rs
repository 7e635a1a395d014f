//! Config maps and secrets.

use super::*;

/// Most bytes that a config map or secret may hold.
const MAX_DATA: usize = 1024 * 1024;

fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(2)
}

fn key_faults(object: &Value, field: &str, errors: &mut ErrorList) {
    for (key, _) in members(object, field) {
        for fault in names::config_key_faults(key) {
            errors.push(Error::invalid(&Path::new(field).key(key), key.as_str(), fault));
        }
    }
}

fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut ErrorList) {
    if !is_true(old, "immutable") {
        return;
    }
    let detail = "field is immutable when `immutable` is set";
    if !is_true(new, "immutable") {
        errors.push(Error::forbidden(&Path::new("immutable"), detail));
    }
    for field in fields {
        if !kit::same(at(new, field), at(old, field)) {
            errors.push(Error::forbidden(&Path::new(field), detail));
        }
    }
}

/// The kind `ConfigMap`.
pub struct ConfigMaps;

impl ConfigMaps {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        key_faults(object, "data", &mut errors);
        for (key, _) in members(object, "data") {
            if at(object, "binaryData").get(key).is_some() {
                let detail = "duplicate of key present in binaryData";
                errors.push(Error::invalid(&Path::new("data").key(key), key.as_str(), detail));
            }
        }
        key_faults(object, "binaryData", &mut errors);
        let texts: usize = members(object, "data").map(|(_, v)| v.as_str().unwrap_or_default().len()).sum();
        let total = texts + members(object, "binaryData").map(|(_, v)| decoded_len(v)).sum::<usize>();
        if total > MAX_DATA {
            // Upstream's path for the whole object.
            errors.push(Error::too_long(&Path::new("[]"), MAX_DATA));
        }
        errors
    }
}

impl Strategy for ConfigMaps {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, ..Facts::default() }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        frozen(new, old, &["data", "binaryData"], &mut errors);
        errors.extend(Self::faults(new));
        errors
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = members(object, "data").count() + members(object, "binaryData").count();
        vec![json!(text(object, "metadata.name")), json!(count), age(object, now)]
    }
}

/// The kind `Secret`.
pub struct Secrets;

impl Secrets {
    fn faults(object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        key_faults(object, "data", &mut errors);
        let total: usize = members(object, "data").map(|(_, v)| decoded_len(v)).sum();
        if total > MAX_DATA {
            errors.push(Error::too_long(&Path::new("data"), MAX_DATA));
        }
        let data = Path::new("data");
        let there = |key: &str| at(object, "data").get(key).is_some();
        let mut required = |keys: &[&str]| {
            for key in keys {
                if !there(key) {
                    errors.push(Error::required(&data.key(key), ""));
                }
            }
        };
        match text(object, "type") {
            "kubernetes.io/service-account-token" => {
                let name = api::object::annotation(object, "kubernetes.io/service-account.name");
                if name.unwrap_or_default().is_empty() {
                    let path = Path::new("metadata").child("annotations").key("kubernetes.io/service-account.name");
                    errors.push(Error::required(&path, ""));
                }
            }
            "kubernetes.io/dockercfg" => {
                required(&[".dockercfg"]);
                json_value(object, ".dockercfg", &mut errors);
            }
            "kubernetes.io/dockerconfigjson" => {
                required(&[".dockerconfigjson"]);
                json_value(object, ".dockerconfigjson", &mut errors);
            }
            "kubernetes.io/basic-auth" if !there("username") && !there("password") => {
                required(&["username", "password"]);
            }
            "kubernetes.io/ssh-auth" => {
                let empty = at(object, "data").get("ssh-privatekey").is_none_or(unset);
                if empty {
                    errors.push(Error::required(&data.key("ssh-privatekey"), ""));
                }
            }
            "kubernetes.io/tls" => required(&["tls.crt", "tls.key"]),
            _ => {}
        }
        errors
    }
}

fn json_value(object: &Value, key: &str, errors: &mut ErrorList) {
    let Some(encoded) = at(object, "data").get(key).and_then(Value::as_str) else { return };
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
    // null is an object without members
    if let Err(error) = serde_json::from_slice::<Option<serde_json::Map<String, Value>>>(&bytes) {
        let why = in_go(&error, &bytes);
        errors.push(Error::invalid(&Path::new("data").key(key), "<secret contents redacted>", why));
    }
}

/// Why bytes are no JSON object, in Go's words.
fn in_go(error: &serde_json::Error, bytes: &[u8]) -> String {
    use serde_json::error::Category;
    let what = match (error.classify(), bytes.trim_ascii_start().first()) {
        (Category::Eof, _) => return "unexpected end of JSON input".to_owned(),
        (Category::Data, Some(b'"')) => "string",
        (Category::Data, Some(b'[')) => "array",
        (Category::Data, Some(b't' | b'f')) => "bool",
        (Category::Data, _) => "number",
        (_, _) => {
            let at = bytes.get(error.column().saturating_sub(1)).copied().unwrap_or_default();
            return format!("invalid character '{}' looking for beginning of value", char::from(at));
        }
    };
    format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
}

/// What Go's `tls.X509KeyPair` misses in a pair of certificate and key: their PEM blocks. What is in the blocks is not looked at.
fn pair_fault(certificate: &str, key: &str) -> Option<String> {
    let types = pem_types(certificate);
    if !types.contains(&"CERTIFICATE") {
        return Some(match types.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched"
                    .to_owned()
            }
            types => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                types.join(" ")
            ),
        });
    }
    let types = pem_types(key);
    if types.iter().any(|one| *one == "PRIVATE KEY" || one.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match types.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
        types => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of \
             the following types: [{}]",
            types.join(" ")
        ),
    })
}

/// The types of the PEM blocks in a text.
fn pem_types(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("-----BEGIN ") {
        rest = behind;
        let Some((name, body)) = behind.split_once("-----") else { break };
        let Some((body, behind)) = body.split_once(&format!("-----END {name}-----")) else { continue };
        // headers, if any, end with an empty line
        let data = body.split_once("\n\n").map_or(body, |(_, data)| data);
        let data: String = data.split_whitespace().collect();
        if base64::engine::general_purpose::STANDARD.decode(data).is_ok() {
            types.push(name);
            rest = behind;
        }
    }
    types
}

impl Strategy for Secrets {
    fn facts(&self) -> Facts {
        Facts { has_generation: false, ..Facts::default() }
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>) -> Vec<String> {
        if text(new, "type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let plain = |key: &str| {
            let encoded = at(new, "data").get(key).and_then(Value::as_str).unwrap_or_default();
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        pair_fault(&plain("tls.crt"), &plain("tls.key")).into_iter().collect()
    }

    fn default(&self, object: &mut Value) {
        kit::default(object, "type", "Opaque");
        let plain = map(object).remove("stringData");
        if let Some(Value::Object(plain)) = plain {
            let data = map(child(object, "data"));
            for (key, value) in plain {
                let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
                data.insert(key, encoded.into());
            }
        }
    }

    fn validate_create(&self, _cx: &Context<'_>, new: &Value) -> ErrorList {
        Self::faults(new)
    }

    fn validate_update(&self, _cx: &Context<'_>, new: &Value, old: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        immutable(new, old, "type", &Path::new("type"), &mut errors);
        frozen(new, old, &["data"], &mut errors);
        errors.extend(Self::faults(new));
        errors
    }

    fn prepare_update(&self, _cx: &Context<'_>, new: &mut Value, old: &Value) {
        // A type that is left out stays.
        if text(new, "type").is_empty() {
            keep(new, old, "type");
        }
    }

    fn selectable(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("type", text(object, "type").to_owned())]
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let count = members(object, "data").count();
        vec![json!(text(object, "metadata.name")), json!(text(object, "type")), json!(count), age(object, now)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_certificate_and_key_are_looked_through_for_their_blocks() {
        let block = |name: &str| format!("-----BEGIN {name}-----\nAAAA\n-----END {name}-----\n");
        let (certificate, key, other) = (block("CERTIFICATE"), block("RSA PRIVATE KEY"), block("X"));
        let headed = "-----BEGIN PRIVATE KEY-----\nA: b\n\nAAAA\n-----END PRIVATE KEY-----\n";
        let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        for (certificate, key, fault) in [
            (certificate.as_str(), key.as_str(), None),
            (&format!("text\n{other}{certificate}"), headed, None),
            ("", "", Some("tls: failed to find any PEM data in certificate input")),
            (broken, &key, Some("tls: failed to find any PEM data in certificate input")),
            (&key, &certificate, Some("but did find a private key; PEM inputs may have been switched")),
            (&format!("{other}{other}"), &key, Some("after skipping PEM blocks of the following types: [X X]")),
            (&certificate, "x", Some("tls: failed to find any PEM data in key input")),
            (&certificate, &certificate, Some("tls: found a certificate rather than a key")),
            (&certificate, &other, Some("in key input after skipping PEM blocks of the following types: [X]")),
        ] {
            let found = pair_fault(certificate, key);
            let fits = fault.map_or(found.is_none(), |fault| found.as_ref().is_some_and(|found| found.contains(fault)));
            assert!(fits, "{certificate:?} {key:?}: {found:?}");
        }
    }
}
