//! In whose name requests to Azure's storage go: account keys, signatures (SAS), service principals, workload identity, managed
//! identity; else nobody's.

use crate::http::{Bound, Client, Fault, request, set};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::settings::Variables;
use crate::small;
use crate::source::token::{self, Kept, Token};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use percent_encoding::percent_decode_str;
use ring::hmac;
use std::collections::BTreeMap;

const SCOPE: &str = "https://storage.azure.com/.default";
const RESOURCE: &str = "https%3A%2F%2Fstorage.azure.com%2F";
const WHAT: &str = "no credentials for Azure's storage";
/// What everybody knows: Azurite's account and its key, from its documentation.
pub const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub struct Credentials {
    chain: Chain,
    kept: Kept,
    client: Client,
}

enum Chain {
    Key(Result<hmac::Key, Error>),
    /// What follows the question mark.
    Signature(String),
    Given(String),
    Principal {
        authority: String,
        tenant: String,
        id: String,
        proof: Proof,
    },
    /// A service beside the program (App Service, Container Apps).
    Service {
        url: String,
        header: String,
        id: Option<String>,
    },
    /// `sure`: somebody said that it is there.
    Machine {
        host: String,
        id: Option<String>,
        sure: bool,
    },
}

enum Proof {
    Secret(String),
    /// The token of another identity, in a file that is renewed.
    File(String),
}

/// `AccountName=…;AccountKey=…;…`
pub fn connection(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect()
}

impl Credentials {
    pub fn new(variables: &Variables, client: &Client, is_emulator: bool) -> Self {
        let chain = Self::chain(variables, client, is_emulator);
        Self { chain, kept: Kept::default(), client: client.clone() }
    }

    fn chain(variables: &Variables, client: &Client, is_emulator: bool) -> Chain {
        let connection = connection(variables.get("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default());
        let text = |names: &[&str]| variables.first(names).map(|text| text.trim().to_owned());
        let key = connection.get("accountkey").cloned();
        let key = key.or_else(|| text(&["AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"]));
        let key = key.or_else(|| is_emulator.then(|| EMULATOR_KEY.to_owned()));
        let signature = connection.get("sharedaccesssignature").cloned();
        let signature = signature.or_else(|| text(&["AZURE_STORAGE_SAS_TOKEN"]));
        if let Some(key) = key {
            client.secrets.learn(&key);
            let wrong = |_| Error::config("the account key of Azure's storage (AZURE_STORAGE_KEY) is no base64");
            return Chain::Key(STANDARD.decode(key).map(|key| hmac::Key::new(hmac::HMAC_SHA256, &key)).map_err(wrong));
        }
        if let Some(signature) = signature {
            let signature = signature.trim_start_matches('?').to_owned();
            for value in signature.split('&').filter_map(|pair| pair.strip_prefix("sig=")) {
                client.secrets.learn(value);
                client.secrets.learn(&percent_decode_str(value).decode_utf8_lossy());
            }
            client.secrets.learn(&signature);
            return Chain::Signature(signature);
        }
        if let Some(token) = text(&["AZURE_STORAGE_TOKEN", "AZURE_STORAGE_AUTH_TOKEN"]) {
            return Chain::Given(token);
        }
        let id = text(&["AZURE_CLIENT_ID"]);
        let secret = text(&["AZURE_CLIENT_SECRET"]).map(Proof::Secret);
        let proof = secret.or_else(|| text(&["AZURE_FEDERATED_TOKEN_FILE"]).map(Proof::File));
        if let (Some(tenant), Some(id), Some(proof)) = (text(&["AZURE_TENANT_ID"]), id.clone(), proof) {
            let authority = text(&["AZURE_AUTHORITY_HOST"]);
            let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
            return Chain::Principal { authority: authority.trim_end_matches('/').to_owned(), tenant, id, proof };
        }
        if let Some((url, header)) = text(&["IDENTITY_ENDPOINT"]).zip(text(&["IDENTITY_HEADER"])) {
            return Chain::Service { url, header, id };
        }
        let host = text(&["AZURE_POD_IDENTITY_AUTHORITY_HOST"]);
        let sure = host.is_some() || id.is_some();
        let host = host.unwrap_or_else(|| "http://169.254.169.254".to_owned());
        Chain::Machine { host: host.trim_end_matches('/').to_owned(), id, sure }
    }

    pub async fn are_nobodys(&self) -> bool {
        self.kept.is_nobody().await
    }

    /// What the address must have in its query.
    pub fn query(&self) -> Option<&str> {
        match &self.chain {
            Chain::Signature(query) => Some(query),
            _ => None,
        }
    }

    /// Signs a request whose headers are complete; the token that it has now, if it is one.
    ///
    /// # Errors
    /// Credentials are there but cannot be used or got.
    pub async fn sign(&self, request: &mut Request<Bytes>, account: &str) -> Result<Option<String>, Fault> {
        match &self.chain {
            Chain::Signature(_) => Ok(None),
            Chain::Key(key) => {
                let key = key.as_ref().map_err(Clone::clone)?;
                let text = to_sign(request.method(), request.uri(), request.headers(), account);
                let signature = STANDARD.encode(hmac::sign(key, text.as_bytes()).as_ref());
                set(request, "authorization", &format!("SharedKey {account}:{signature}"))?;
                Ok(None)
            }
            _ => {
                let token = self.kept.get(&self.client, self.ask()).await?;
                if let Some(token) = &token {
                    set(request, "authorization", &format!("Bearer {token}"))?;
                }
                Ok(token)
            }
        }
    }

    /// The server does not take this token.
    pub async fn forget(&self, token: &str) {
        self.kept.forget(token).await;
    }

    async fn ask(&self) -> Result<Option<Token>, Fault> {
        match &self.chain {
            Chain::Key(_) | Chain::Signature(_) => Ok(None),
            Chain::Given(token) => Ok(Some(token::given(token))),
            Chain::Principal { authority, tenant, id, proof } => {
                let url = format!("{authority}/{tenant}/oauth2/v2.0/token");
                let mut fields =
                    vec![("client_id", id.as_str()), ("scope", SCOPE), ("grant_type", "client_credentials")];
                let token;
                match proof {
                    Proof::Secret(secret) => fields.push(("client_secret", secret)),
                    Proof::File(path) => {
                        let read = small::read_aside(path.as_str()).await;
                        token = read.map_err(|e| {
                            let text = format!("{WHAT}: {path} (AZURE_FEDERATED_TOKEN_FILE) cannot be read: {e}");
                            Error::new(Kind::NoAccess, text)
                        })?;
                        self.client.secrets.learn(token.trim());
                        fields
                            .push(("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"));
                        fields.push(("client_assertion", token.trim()));
                    }
                }
                let what = format!("{WHAT} by client {id}");
                token::read(&token::answer(&self.client, token::form(&url, &fields)?, &what).await?, &what).map(Some)
            }
            Chain::Service { url, header, id } => {
                let id = id.as_ref().map(|id| format!("&client_id={id}")).unwrap_or_default();
                let mut request =
                    request(Method::GET, &format!("{url}?api-version=2019-08-01&resource={RESOURCE}{id}"))?;
                set(&mut request, "x-identity-header", header)?;
                token::read(&token::answer(&self.client, request, WHAT).await?, WHAT).map(Some)
            }
            Chain::Machine { host, id, sure } => {
                let id = id.as_ref().map(|id| format!("&client_id={id}")).unwrap_or_default();
                let path = "metadata/identity/oauth2/token";
                let url = format!("{host}/{path}?api-version=2018-02-01&resource={RESOURCE}{id}");
                let make = || {
                    let mut request = request(Method::GET, &url)?;
                    set(&mut request, "metadata", "true")?;
                    Ok(request)
                };
                match token::metadata(&self.client, make).await? {
                    Some(answer) => {
                        let answer = serde_json::from_str(&answer.text(Bound::TOKEN).await?).unwrap_or_default();
                        token::read(&answer, WHAT).map(Some)
                    }
                    None if *sure => {
                        let text = format!("{WHAT}: the metadata service at {} gives no token", shown(host));
                        Err(Error::new(Kind::NoAccess, text).into())
                    }
                    None => Ok(None),
                }
            }
        }
    }
}

/// What is signed with an account's key, as "Authorize with Shared Key" describes it.
fn to_sign(method: &Method, uri: &http::Uri, headers: &HeaderMap, account: &str) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut lines = vec![method.as_str().to_owned()];
    for name in [
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-type",
        "date",
        "if-modified-since",
        "if-match",
        "if-none-match",
        "if-unmodified-since",
        "range",
    ] {
        lines.push(text(name));
    }
    let mut own: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    own.retain(|name| name.starts_with("x-ms-"));
    own.sort();
    lines.extend(own.iter().map(|name| format!("{name}:{}", text(name).trim())));
    let mut resource = format!("/{account}{}", uri.path());
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let mut pairs: Vec<(String, String)> = pairs
        .map(|(name, value)| (name.to_ascii_lowercase(), percent_decode_str(value).decode_utf8_lossy().into_owned()))
        .collect();
    pairs.sort();
    for (name, value) in pairs {
        resource.push_str(&format!("\n{name}:{value}"));
    }
    lines.push(resource);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed() {
        let uri = "http://h/acc/c?restype=container&comp=list&prefix=a%2Fb%20c".parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-ms-version", "2021-12-02".parse().unwrap());
        headers.insert("x-ms-date", "D".parse().unwrap());
        headers.insert("range", "bytes=0-1".parse().unwrap());
        let text = to_sign(&Method::GET, &uri, &headers, "acc");
        assert_eq!(
            text,
            "GET\n\n\n\n\n\n\n\n\n\n\nbytes=0-1\nx-ms-date:D\nx-ms-version:2021-12-02\n/acc/acc/c\ncomp:list\nprefix:a/b c\nrestype:container"
        );
    }

    #[test]
    fn connection_strings() {
        let text = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=b==;EndpointSuffix=core.windows.net;";
        let found = connection(text);
        assert_eq!(found.get("accountkey").map(String::as_str), Some("b=="));
        assert_eq!(found.len(), 4);
    }
}
