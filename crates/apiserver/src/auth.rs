//! Authentication: tokens, client certificates, impersonation.

use crate::registry::Core;
use api::names::{label_faults, subdomain_faults};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use resource::status::Status;
use resource::{Tokens, User, bearer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What the subjects of nodes' tokens begin with.
const NODE_SUBJECT: &str = "system:node:";
/// What a user brings along whose token is bound to a Node: its uid.
pub(crate) const NODE_UID: &str = "authentication.kubernetes.io/node-uid";
const AUTHENTICATED: &str = "system:authenticated";

/// Knows bearer tokens: the fixed ones it was given, and the service account tokens that it signs itself.
pub struct Authenticator {
    /// By SHA-256 of the token, so that looking one up takes the same time for all.
    fixed: BTreeMap<[u8; 32], User>,
    /// Signs service account tokens (HMAC-SHA256).
    key: [u8; 32],
    issuer: String,
}

impl Default for Authenticator {
    fn default() -> Self {
        Self::new(rand::random())
    }
}

impl Authenticator {
    /// `key` signs service account tokens; tokens survive a restart if it does.
    pub fn new(key: [u8; 32]) -> Self {
        Self { fixed: BTreeMap::new(), key, issuer: "https://kubernetes.default.svc.cluster.local".to_owned() }
    }

    /// Takes this token for this user.
    #[must_use]
    pub fn with_token(mut self, token: &str, user: User) -> Self {
        self.fixed.insert(Sha256::digest(token.as_bytes()).into(), user);
        self
    }

    /// A token for the agent of a node, good for so many seconds, and no longer than the Node object with this uid is there.
    pub fn node_token(&self, node: &str, uid: &str, now: Timestamp, seconds: i64) -> String {
        let issued = now.as_second();
        self.sign(&json!({
            "aud": [self.issuer],
            "iss": self.issuer,
            "iat": issued,
            "nbf": issued,
            "exp": issued.saturating_add(seconds),
            "kubernetes.io": {"node": {"name": node, "uid": uid}},
            "sub": format!("{NODE_SUBJECT}{node}"),
        }))
    }

    fn mac(&self, text: &str) -> [u8; 32] {
        // HMAC (RFC 2104) over SHA-256, whose block has 64 bytes.
        let pad = |byte: u8| {
            let mut block = [byte; 64];
            for (b, k) in block.iter_mut().zip(self.key) {
                *b ^= k;
            }
            block
        };
        let inner = Sha256::new().chain_update(pad(0x36)).chain_update(text.as_bytes()).finalize();
        Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().into()
    }
}

impl Tokens for Authenticator {
    fn sign(&self, claims: &Value) -> String {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "typ": "JWT"}).to_string());
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(self.mac(&signed));
        format!("{signed}.{signature}")
    }

    fn claims(&self, token: &str, now: Timestamp) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let expected = self.mac(signed);
        let differs = signature.len() != 32 || signature.iter().zip(expected).fold(0, |acc, (a, b)| acc | (a ^ b)) != 0;
        if differs {
            return None;
        }
        let (_, claims) = signed.split_once('.')?;
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        (claims.get("exp")?.as_i64()? > now.as_second()).then_some(claims)
    }

    fn user(&self, token: &str, now: Timestamp) -> Option<User> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = self.fixed.get(&digest) {
            return Some(user.clone());
        }
        let claims = self.claims(token, now)?;
        let subject = claims.get("sub")?.as_str()?;
        if let Some(node) = subject.strip_prefix(NODE_SUBJECT) {
            let mut user = User::of_node(node);
            if let Some(uid) = claims["kubernetes.io"]["node"]["uid"].as_str() {
                user.extra.insert(NODE_UID.to_owned(), vec![uid.to_owned()]);
            }
            return Some(user);
        }
        let (namespace, name) = subject.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        let mut user = User::service_account(namespace, name);
        let own = &claims["kubernetes.io"];
        user.uid = own["serviceaccount"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut extra = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
            }
        };
        let credential = claims["jti"].as_str().map(|jti| format!("JTI={jti}"));
        extra("credential-id", credential.as_deref());
        extra("pod-name", own["pod"]["name"].as_str());
        extra("pod-uid", own["pod"]["uid"].as_str());
        extra("node-name", own["node"]["name"].as_str());
        extra("node-uid", own["node"]["uid"].as_str());
        Some(user)
    }

    fn audiences(&self, token: &str, now: Timestamp) -> Vec<String> {
        let claims = self.claims(token, now).unwrap_or_default();
        let told: Vec<String> = match &claims["aud"] {
            Value::String(one) => vec![one.clone()],
            several => several.as_array().into_iter().flatten().filter_map(|a| a.as_str().map(str::to_owned)).collect(),
        };
        if told.is_empty() { vec![self.issuer.clone()] } else { told }
    }

    fn issuer(&self) -> &str {
        &self.issuer
    }
}

/// 401 for credentials that are not good.
pub(crate) fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

impl Core {
    /// The user of a bearer token that is meant for this server.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        let lookup = |group: &str, plural: &str, namespace: &str, name: &str| {
            resource::admission::Objects::get(self, group, plural, namespace, name)
        };
        let now = self.world.now();
        let user = bearer(&*self.tokens, token, now, &lookup)?;
        // A token for somebody else is none for this server.
        self.tokens.audiences(token, now).iter().any(|audience| audience == self.tokens.issuer()).then_some(user)
    }
}

/// Namespace and name of the service account whose user name this is. A name that only begins like one, but could be no
/// account's, is a plain user's: it gets none of the accounts' groups.
pub(crate) fn account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = label_faults(namespace, false).is_empty() && subdomain_faults(name, false).is_empty();
    valid.then_some((namespace, name))
}

/// Who a client certificate is for: the subject's common name, its organisations as groups. The TLS layer has verified it.
pub(crate) fn certificate_user(der: &[u8]) -> Option<User> {
    let (name, organisations) = subject(der)?;
    let mut groups = organisations;
    groups.push(AUTHENTICATED.to_owned());
    Some(User { name, groups, ..User::default() })
}

/// One DER element: tag, content, what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count > 4 {
            return None;
        }
        let (digits, rest) = rest.split_at_checked(count)?;
        (digits.iter().fold(0, |n, d| n << 8 | usize::from(*d)), rest)
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// Common name and organisations of an X.509 certificate's subject.
fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    const EXPLICIT_VERSION: u8 = 0xa0;
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];
    let (_, certificate, _) = element(der)?;
    let (_, mut body, _) = element(certificate)?;
    if body.first() == Some(&EXPLICIT_VERSION) {
        body = element(body)?.2;
    }
    // serial, signature algorithm, issuer, validity
    for _ in 0..4 {
        body = element(body)?.2;
    }
    let (_, mut names, _) = element(body)?;
    let (mut common, mut organisations) = (String::new(), Vec::new());
    while !names.is_empty() {
        let (_, mut set, rest) = element(names)?;
        names = rest;
        while !set.is_empty() {
            let (_, pair, rest) = element(set)?;
            set = rest;
            let (_, oid, value) = element(pair)?;
            let text = String::from_utf8(element(value)?.1.to_vec()).ok()?;
            match oid {
                COMMON_NAME => common = text,
                ORGANISATION => organisations.push(text),
                _ => {}
            }
        }
    }
    (!common.is_empty()).then_some((common, organisations))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_begins_like_an_accounts_is_not_one() {
        assert_eq!(account_of("system:serviceaccount:ns:a.b"), Some(("ns", "a.b")));
        for name in ["alice", "ns:a", ":ns", ":ns:", ":ns:a:b", "::a", ":n.s:a", ":NS:a", ":ns:A"] {
            assert_eq!(account_of(&format!("system:serviceaccount{name}")), None, "{name}");
        }
    }

    #[test]
    fn signs_and_expires() {
        let tokens = Authenticator::new([7; 32]).with_token("secret", User::admin());
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let claims = json!({"sub": "system:serviceaccount:ns:sa", "exp": now.as_second() + 10,
            "kubernetes.io": {"serviceaccount": {"uid": "u"}}});
        let token = tokens.sign(&claims);
        let user = tokens.user(&token, now).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:sa", "u"));
        assert_eq!(tokens.user(&token, now + jiff::SignedDuration::from_secs(11)), None);
        assert_eq!(tokens.user(&format!("{token}x"), now), None);
        assert_eq!(Authenticator::new([8; 32]).user(&token, now), None);
        assert!(tokens.user("secret", now).unwrap().is_master());
    }

    #[test]
    fn a_nodes_token_dies_with_its_node() {
        let tokens = Authenticator::new([7; 32]);
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let token = tokens.node_token("one", "u", now, 60);
        let there = |uid: &'static str| {
            move |_: &str, plural: &str, _: &str, name: &str| {
                assert_eq!((plural, name), ("nodes", "one"));
                let meta = match uid {
                    "going" => json!({"uid": "u", "finalizers": ["x"], "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                    uid => json!({"uid": uid}),
                };
                (!uid.is_empty()).then(|| std::sync::Arc::new(json!({"metadata": meta})))
            }
        };
        assert_eq!(bearer(&tokens, &token, now, &there("u")).unwrap().node(), Some("one"));
        assert_eq!(bearer(&tokens, &token, now, &there("other")), None, "another node of that name");
        assert_eq!(bearer(&tokens, &token, now, &there("going")), None, "one that a finalizer holds");
        assert_eq!(bearer(&tokens, &token, now, &there("")), None);
        let later = now + jiff::SignedDuration::from_secs(61);
        assert_eq!(bearer(&tokens, &token, later, &there("u")), None);
    }

    #[test]
    fn reads_the_subject_of_a_certificate() {
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:masters");
        params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        let user = certificate_user(cert.der()).unwrap();
        assert_eq!(user.name, "alice");
        assert!(user.is_master());
    }
}
