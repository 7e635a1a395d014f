//! Whose token requests to Google's storage carry: given ones, key files, the user's login, other clouds' identities, the
//! machine's; else nobody's. The forms of files are those of "Application Default Credentials".

use crate::http::{Bound, Client, Fault, request, set};
use crate::plan::error::{Error, Kind};
use crate::plan::settings::Variables;
use crate::small;
use crate::source::token::{self, Kept, Token};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_only";
/// Of a token that becomes another one.
const SCOPE_TO_BECOME: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKENS: &str = "https://oauth2.googleapis.com/token";
const WHAT: &str = "no credentials for Google Cloud Storage";

pub struct Credentials {
    chain: Chain,
    kept: Kept,
    client: Client,
}

enum Chain {
    Given(String),
    /// The text of a file; from where it came, for messages.
    File(String, Result<Value, String>),
    /// `sure`: somebody said that it is there.
    Machine {
        host: String,
        sure: bool,
    },
    Nobody,
}

impl Credentials {
    pub fn new(variables: &Variables, client: &Client, is_emulator: bool) -> Self {
        let chain = Self::chain(variables, client, is_emulator);
        Self { chain, kept: Kept::default(), client: client.clone() }
    }

    fn chain(variables: &Variables, client: &Client, is_emulator: bool) -> Chain {
        if let Some(token) = variables.first(&["GOOGLE_OAUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN"]) {
            return Chain::Given(token.to_owned());
        }
        for name in ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS"] {
            match variables.get(name).map(str::trim) {
                // a Secret's keys become variables: there the file's content stands
                Some(text) if text.starts_with('{') => {
                    return Chain::file(name.to_owned(), Ok(text.to_owned()), client);
                }
                Some(path) => return Chain::file(path.to_owned(), small::read(path.as_ref()), client),
                None => {}
            }
        }
        // as Google's own clients: an emulator asks for no name
        if is_emulator {
            return Chain::Nobody;
        }
        let folder = variables.get("CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(PathBuf::from(variables.get("HOME")?).join(".config/gcloud")));
        let login = folder.map(|folder| folder.join("application_default_credentials.json"));
        if let Some(path) = login.filter(|path| path.is_file()) {
            return Chain::file(path.display().to_string(), small::read(&path), client);
        }
        if variables.get("NO_GCE_CHECK").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Chain::Nobody;
        }
        let host = variables.get("GCE_METADATA_HOST");
        Chain::Machine { host: host.unwrap_or("169.254.169.254").to_owned(), sure: host.is_some() }
    }

    /// # Errors
    /// Credentials are there but cannot be used or got.
    pub async fn token(&self) -> Result<Option<String>, Fault> {
        self.kept.get(&self.client, self.ask()).await
    }

    /// The server does not take this token.
    pub async fn forget(&self, token: &str) {
        self.kept.forget(token).await;
    }

    pub async fn are_nobodys(&self) -> bool {
        self.kept.is_nobody().await
    }

    /// Who pays, as the file says.
    pub fn project(&self) -> Option<String> {
        match &self.chain {
            Chain::File(_, Ok(file)) => file["quota_project_id"].as_str().map(str::to_owned),
            _ => None,
        }
    }

    async fn ask(&self) -> Result<Option<Token>, Fault> {
        match &self.chain {
            Chain::Nobody => Ok(None),
            Chain::Given(token) => Ok(Some(token::given(token))),
            Chain::File(from, Err(why)) => Err(unusable(from, why)),
            Chain::File(from, Ok(file)) => self.of_file(from, file, SCOPE).await.map(Some),
            Chain::Machine { host, sure } => {
                let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
                let make = || {
                    let mut request = request(Method::GET, &url)?;
                    set(&mut request, "metadata-flavor", "Google")?;
                    Ok(request)
                };
                match token::metadata(&self.client, make).await? {
                    // another server that listens there is not Google's
                    Some(answer) if answer.header("metadata-flavor") == Some("Google") => {
                        let text = answer.text(Bound::TOKEN).await?;
                        let answer = serde_json::from_str(&text).unwrap_or_default();
                        token::read(&answer, WHAT).map(Some)
                    }
                    None if *sure => {
                        let text = format!("{WHAT}: the metadata service at {host} (GCE_METADATA_HOST) gives no token");
                        Err(Error::new(Kind::NoAccess, text).into())
                    }
                    _ => Ok(None),
                }
            }
        }
    }

    async fn of_file(&self, from: &str, file: &Value, scope: &str) -> Result<Token, Fault> {
        let text = |name: &str| {
            file[name]
                .as_str()
                .filter(|text| !text.is_empty())
                .ok_or_else(|| unusable(from, &format!("it has no {name}")))
        };
        let what = format!("{WHAT} by {from}");
        match text("type")? {
            "service_account" => {
                let url = file["token_uri"].as_str().unwrap_or(TOKENS);
                let key = (text("client_email")?, text("private_key")?, file["private_key_id"].as_str());
                let assertion = assertion(key, url, scope).map_err(|why| unusable(from, &why))?;
                let fields =
                    [("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"), ("assertion", assertion.as_str())];
                self.client.secrets.learn(&assertion);
                token::read(&token::answer(&self.client, token::form(url, &fields)?, &what).await?, &what)
            }
            "authorized_user" => {
                let url = file["token_uri"].as_str().unwrap_or(TOKENS);
                let fields = [
                    ("grant_type", "refresh_token"),
                    ("client_id", text("client_id")?),
                    ("client_secret", text("client_secret")?),
                    ("refresh_token", text("refresh_token")?),
                ];
                token::read(&token::answer(&self.client, token::form(url, &fields)?, &what).await?, &what)
            }
            "external_account" => {
                let subject = self.subject(from, &file["credential_source"]).await?;
                self.client.secrets.learn(&subject);
                let becomes = file["service_account_impersonation_url"].as_str();
                let fields = [
                    ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                    ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
                    ("audience", text("audience")?),
                    ("scope", if becomes.is_some() { SCOPE_TO_BECOME } else { scope }),
                    ("subject_token_type", text("subject_token_type")?),
                    ("subject_token", subject.as_str()),
                ];
                let request = token::form(text("token_url")?, &fields)?;
                let first = token::read(&token::answer(&self.client, request, &what).await?, &what)?;
                match becomes {
                    Some(url) => self.become_other(&first, url, &[], scope, &what).await,
                    None => Ok(first),
                }
            }
            "impersonated_service_account" => {
                let source = &file["source_credentials"];
                let first = Box::pin(self.of_file(from, source, SCOPE_TO_BECOME)).await?;
                let delegates = file["delegates"].as_array().map_or(&[][..], Vec::as_slice);
                self.become_other(&first, text("service_account_impersonation_url")?, delegates, scope, &what).await
            }
            other => Err(unusable(from, &format!("credentials of type {other:?} are not known here"))),
        }
    }

    async fn become_other(
        &self,
        first: &Token,
        url: &str,
        delegates: &[Value],
        scope: &str,
        what: &str,
    ) -> Result<Token, Fault> {
        self.client.secrets.learn(&first.value);
        let mut request = token::json(url, &json!({"scope": [scope], "delegates": delegates, "lifetime": "3600s"}))?;
        set(&mut request, "authorization", &format!("Bearer {}", first.value))?;
        let answer = token::answer(&self.client, request, what).await?;
        let value = answer["accessToken"].as_str();
        let value = value.ok_or_else(|| Error::new(Kind::NoAccess, format!("{what}: the answer holds no token")))?;
        let until = answer["expireTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let seconds = until.map(|time| time.as_second().saturating_sub(jiff::Timestamp::now().as_second()));
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(3000);
        Ok(Token { value: value.to_owned(), valid: Duration::from_secs(seconds) })
    }

    /// The token of another identity, which is exchanged for Google's.
    async fn subject(&self, from: &str, source: &Value) -> Result<String, Fault> {
        let text = if let Some(path) = source["file"].as_str() {
            let read = small::read_aside(path).await;
            read.map_err(|e| unusable(from, &format!("the token's file {path} cannot be read: {e}")))?
        } else if let Some(url) = source["url"].as_str() {
            let mut request = request(Method::GET, url)?;
            for (name, value) in source["headers"].as_object().into_iter().flatten() {
                let value = value.as_str().and_then(|value| value.parse().ok());
                let pair = name.parse::<http::HeaderName>().ok().zip(value);
                let (name, value) = pair.ok_or_else(|| unusable(from, "a header of its source cannot be sent"))?;
                request.headers_mut().insert(name, value);
            }
            let answer = self.client.send(request, crate::http::Redirects::Show).await?;
            if !answer.status.is_success() {
                return Err(answer.fault(&format!("{WHAT} by {from}: the source of its token")));
            }
            answer.text(Bound::TOKEN).await?
        } else {
            return Err(unusable(from, "of its sources of tokens, only file and url are known here"));
        };
        let format = &source["format"];
        let token = match format["type"].as_str() {
            Some("json") => {
                let field = format["subject_token_field_name"].as_str().unwrap_or("access_token");
                let answer: Value = serde_json::from_str(&text).unwrap_or_default();
                answer[field].as_str().map(str::to_owned)
            }
            _ => Some(text.trim().to_owned()),
        };
        token.filter(|token| !token.is_empty()).ok_or_else(|| unusable(from, "the source of its token holds none"))
    }
}

impl Chain {
    fn file(from: String, text: std::io::Result<String>, client: &Client) -> Self {
        let value = match text {
            Ok(text) => serde_json::from_str::<Value>(&text).map_err(|_| "it is no JSON".to_owned()),
            Err(e) => Err(format!("it cannot be read: {e}")),
        };
        if let Ok(file) = &value {
            for file in [file, &file["source_credentials"]] {
                for name in ["private_key", "client_secret", "refresh_token"] {
                    file[name].as_str().into_iter().for_each(|secret| client.secrets.learn(secret));
                }
            }
        }
        Chain::File(from, value)
    }
}

fn unusable(from: &str, why: &str) -> Fault {
    Error::new(Kind::NoAccess, format!("{WHAT}: {from}: {why}")).into()
}

/// What a service account signs to get a token (RFC 7523). `key`: the account, the key in PEM, its name.
fn assertion((who, key, id): (&str, &str, Option<&str>), url: &str, scope: &str) -> Result<String, String> {
    let now = jiff::Timestamp::now().as_second();
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": id});
    let claims = json!({"iss": who, "scope": scope, "aud": url, "iat": now, "exp": now.saturating_add(3600)});
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encoded(&header), encoded(&claims));
    let wrong = "its private_key is no RSA key in PEM (PKCS #8)";
    let key = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).map_err(|_| wrong)?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| wrong)?;
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).map_err(|_| wrong)?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}
