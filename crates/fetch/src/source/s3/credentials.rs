//! Whose name requests are signed with: upstream's variables, AWS' own, files, web identity, containers, the machine's; else nobody's.

use crate::http::{Bound, Client, Fault, Redirects, Secrets};
use crate::plan::error::{Error, Kind, shown};
use crate::plan::pace::Failure;
use crate::plan::settings::Variables;
use crate::small;
use bytes::Bytes;
use http::{Request, Response, Uri};
use reqsign_aws_v4::{
    AssumeRoleCredentialProvider, Credential, DefaultCredentialProvider, RequestSigner, StaticCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, Env, FileRead, HttpSend, ProvideCredential, SignRequest, Signer, SigningCredential};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

/// Credentials are asked for anew when they have less than this left.
const HEADROOM: Duration = Duration::from_secs(300);

/// Of AWS' partitions.
const STS_SUFFIXES: [&str; 8] = [
    "amazonaws.com",
    "amazonaws.com.cn",
    "amazonaws.eu",
    "c2s.ic.gov",
    "sc2s.sgov.gov",
    "cloud.adc-e.uk",
    "csp.hci.ic.gov",
    "api.aws",
];
/// Where containers and pods find their credentials.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
/// Who sets one of these wants to be somebody.
const WANTED: [&str; 11] = [
    "ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY",
    "ROLE_ARN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
];
/// Keys, and what opens nothing without the other.
const PAIRS: [(&str, &str); 2] =
    [("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"), ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")];

/// A key without its secret, or the other way round: what is set, and what is not.
fn half(variables: &Variables) -> Option<(&'static str, &'static str)> {
    let both = PAIRS.into_iter().flat_map(|(id, secret)| [(id, secret), (secret, id)]);
    both.into_iter().find(|(there, not)| variables.get(there).is_some() && variables.get(not).is_none())
}

pub struct Credentials {
    context: Context,
    /// Why nothing can be asked for.
    wrong: Option<Error>,
    /// No variable asks for credentials.
    are_unwanted: bool,
    half: Option<(&'static str, &'static str)>,
    chain: Chain,
    kept: Mutex<Kept>,
    found: AtomicBool,
    secrets: Secrets,
}

enum Kept {
    NotAsked,
    Nobody,
    Own(Credential),
    /// A key that opens nothing, for servers that only want to see one.
    Placeholder(Credential),
}

enum Chain {
    Given(StaticCredentialProvider),
    Found(DefaultCredentialProvider),
    Role(Box<AssumeRoleCredentialProvider>),
}

impl Credentials {
    pub fn new(variables: &Variables, client: &Client) -> Self {
        let sts = variables.get("AWS_ENDPOINT_URL_STS").map(sts_elsewhere).transpose();
        let (sts, wrong) = match (sts, container(variables)) {
            (Err(wrong), _) => (None, Some(wrong)),
            (Ok(sts), wrong) => (sts, wrong),
        };
        let context = Context::new()
            .with_env(Environment(Arc::new(variables.clone())))
            .with_file_read(Files(client.secrets.clone()))
            .with_http_send(Http(client.clone(), sts.clone()));
        let given = variables.get("ACCESS_KEY_ID").zip(variables.get("SECRET_ACCESS_KEY"));
        let given = given.map(|(id, secret)| StaticCredentialProvider::new(id.trim(), secret.trim()));
        let found = || DefaultCredentialProvider::builder().build();
        let region =
            variables.first(&["REGION", "AWS_REGION", "AWS_DEFAULT_REGION"]).filter(|region| *region != "auto");
        let region = region.unwrap_or("us-east-1");
        let chain = match (variables.get("ROLE_ARN"), given) {
            (Some(role), given) => {
                let signer = Sts { signer: RequestSigner::new("sts", region), elsewhere: sts };
                let signer = match given {
                    Some(given) => Signer::new(context.clone(), given, signer),
                    None => Signer::new(context.clone(), found(), signer),
                };
                let provider = AssumeRoleCredentialProvider::new(role.trim().to_owned(), signer);
                let provider = provider.with_role_session_name("trainyard".to_owned());
                Chain::Role(Box::new(provider.with_region(region.to_owned()).with_regional_sts_endpoint()))
            }
            (None, Some(given)) => Chain::Given(given),
            (None, None) => Chain::Found(found()),
        };
        Self {
            are_unwanted: WANTED.iter().all(|name| variables.get(name).is_none()),
            half: half(variables),
            context,
            wrong,
            chain,
            kept: Mutex::new(Kept::NotAsked),
            found: AtomicBool::new(false),
            secrets: client.secrets.clone(),
        }
    }

    /// Whether requests are signed.
    pub fn are_found(&self) -> bool {
        self.found.load(Ordering::Relaxed)
    }

    /// If there are no credentials, and none were asked for, requests are signed with a placeholder from now on; whether they are.
    pub async fn pretend(&self) -> bool {
        if !self.are_unwanted {
            return false;
        }
        let mut kept = self.kept.lock().await;
        if matches!(&*kept, Kept::Nobody) {
            let placeholder = StaticCredentialProvider::new("anonymous", "anonymous");
            if let Ok(Some(placeholder)) = placeholder.provide_credential(&self.context).await {
                *kept = Kept::Placeholder(placeholder);
            }
        }
        matches!(&*kept, Kept::Placeholder(_))
    }

    /// # Errors
    /// Credentials are there but cannot be used or got.
    pub async fn sign(&self, request: Request<Bytes>, region: &str) -> Result<Request<Bytes>, Fault> {
        let Some(credential) = self.credential().await? else { return Ok(request) };
        let (mut parts, body) = request.into_parts();
        let signer = RequestSigner::new("s3", region);
        signer.sign_request(&self.context, &mut parts, Some(&credential), None).await.map_err(|e| failed(&e))?;
        Ok(Request::from_parts(parts, body))
    }

    /// The server says that what the request was signed with is valid no longer. Whether something else is there, to sign it
    /// with once more: another stream may have asked for it meanwhile.
    ///
    /// # Errors
    /// As those of `sign`.
    pub async fn renewed(&self, refused: &Request<Bytes>) -> Result<bool, Fault> {
        let key = |request: &Request<Bytes>| {
            let text =
                |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let id = text("authorization")
                .and_then(|text| Some(text.split_once("Credential=")?.1.split_once('/')?.0.to_owned()));
            (id, text("x-amz-security-token"))
        };
        let refused = key(refused);
        let is_it = |credential: &Credential| {
            refused == (Some(credential.access_key_id.clone()), credential.session_token.clone())
        };
        {
            let mut kept = self.kept.lock().await;
            match &*kept {
                Kept::Own(credential) if is_it(credential) => *kept = Kept::NotAsked,
                Kept::Own(_) => return Ok(true),
                // another stream asks just now
                Kept::NotAsked => {}
                Kept::Nobody | Kept::Placeholder(_) => return Ok(false),
            }
        }
        Ok(self.credential().await?.is_some_and(|now| !is_it(&now)))
    }

    async fn credential(&self) -> Result<Option<Credential>, Fault> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone().into());
        }
        let mut kept = self.kept.lock().await;
        match &*kept {
            Kept::Nobody => return Ok(None),
            Kept::Placeholder(credential) => return Ok(Some(credential.clone())),
            Kept::Own(credential) => {
                #[expect(clippy::arithmetic_side_effects, reason = "five minutes from now are in the calendar")]
                let soon = Timestamp::now() + HEADROOM;
                if credential.is_valid_at(soon) {
                    return Ok(Some(credential.clone()));
                }
            }
            Kept::NotAsked => {}
        }
        let found = match &self.chain {
            Chain::Given(provider) => provider.provide_credential(&self.context).await,
            Chain::Found(provider) => provider.provide_credential(&self.context).await,
            Chain::Role(provider) => provider.provide_credential(&self.context).await,
        };
        let found = match (found, &*kept) {
            (Ok(found), _) => found,
            // what is still valid serves until it is not
            (Err(_), Kept::Own(credential)) if credential.is_valid() => return Ok(Some(credential.clone())),
            (Err(error), _) => return Err(failed(&error)),
        };
        if let (None, Some((there, not))) = (&found, self.half) {
            return Err(Error::config(format!(
                "{there} is set, and {not} is not: requests cannot be signed by one of them"
            ))
            .into());
        }
        if let Some(found) = &found {
            self.secrets.learn(&found.secret_access_key);
            found.session_token.iter().for_each(|token| self.secrets.learn(token));
        }
        self.found.store(found.is_some(), Ordering::Relaxed);
        *kept = found.clone().map_or(Kept::Nobody, Kept::Own);
        Ok(found)
    }
}

fn failed(error: &reqsign_core::Error) -> Fault {
    let text = format!("no credentials for S3: {error}");
    if error.is_retryable() {
        return Fault::Again(Failure::Server, text);
    }
    Error::new(Kind::NoAccess, text).into()
}

struct Environment(Arc<Variables>);

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Environment")
    }
}

impl Env for Environment {
    fn var(&self, key: &str) -> Option<String> {
        self.0.get(key).map(str::to_owned)
    }

    fn vars(&self) -> HashMap<String, String> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    fn home_dir(&self) -> Option<PathBuf> {
        self.0.get("HOME").map(PathBuf::from)
    }
}

struct Files(Secrets);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let read = small::read_aside(path).await;
        let read = read.map_err(|e| reqsign_core::Error::unexpected(format!("{path}: {e}")))?;
        // a file of one line is a token
        let text = read.trim();
        if !text.is_empty() && !text.contains('\n') {
            self.0.learn(text);
        }
        Ok(read.into_bytes())
    }
}

/// `AWS_ENDPOINT_URL_STS`.
fn sts_elsewhere(url: &str) -> Result<Uri, Error> {
    let uri = url.trim().parse::<Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    uri.ok_or_else(|| Error::config(format!("AWS_ENDPOINT_URL_STS is {:?}, which is no URL", shown(url))))
}

/// A container's credentials, and the token that opens them, go over TLS or stay on the machine: the rule of AWS' own clients.
fn container(variables: &Variables) -> Option<Error> {
    let url = variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")?;
    let uri = url.trim().parse::<Uri>().ok();
    let is_safe = uri.as_ref().is_some_and(|uri| {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = |address: IpAddr| address.is_loopback() || CONTAINER_HOSTS.contains(&host);
        uri.scheme_str() == Some("https") || host == "localhost" || host.parse().is_ok_and(is_here)
    });
    let why =
        "which is neither https nor an address of this machine or of its container service; no token is sent there";
    (!is_safe).then(|| Error::config(format!("AWS_CONTAINER_CREDENTIALS_FULL_URI is {:?}, {why}", shown(url))))
}

/// Whether it is one of AWS' own STS hosts, of whichever partition and region.
fn is_sts(host: &str) -> bool {
    let Some(rest) = host.strip_prefix("sts.") else { return false };
    let is_suffix = |rest: &str| STS_SUFFIXES.contains(&rest);
    is_suffix(rest) || rest.split_once('.').is_some_and(|(_, rest)| is_suffix(rest))
}

/// `uri` with scheme and host of `to`, and below its path.
fn moved(uri: &Uri, to: &Uri) -> Result<Uri, reqsign_core::Error> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = format!("{}{path}", to.path().trim_end_matches('/'));
    let parts = (to.scheme().cloned(), to.authority().cloned());
    let (Some(scheme), Some(authority)) = parts else { return Ok(uri.clone()) };
    Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(path)
        .build()
        .map_err(|_| reqsign_core::Error::config_invalid("AWS_ENDPOINT_URL_STS is no URL"))
}

/// Signs requests to STS; where it is elsewhere, for there: the host is part of what is signed.
struct Sts {
    signer: RequestSigner,
    elsewhere: Option<Uri>,
}

impl std::fmt::Debug for Sts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sts")
    }
}

impl SignRequest for Sts {
    type Credential = Credential;

    fn required_valid_until(&self, credential: &Credential, expires_in: Option<Duration>) -> Timestamp {
        self.signer.required_valid_until(credential, expires_in)
    }

    async fn sign_request(
        &self,
        context: &Context,
        request: &mut http::request::Parts,
        credential: Option<&Credential>,
        expires_in: Option<Duration>,
    ) -> reqsign_core::Result<()> {
        let before = request.uri.clone();
        if let Some(elsewhere) = &self.elsewhere {
            request.uri = moved(&before, elsewhere)?;
        }
        let signed = self.signer.sign_request(context, request, credential, expires_in).await;
        if signed.is_err() {
            request.uri = before;
        }
        signed
    }
}

/// With the address of another STS, for requests that are not signed for it.
struct Http(Client, Option<Uri>);

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Http")
    }
}

impl HttpSend for Http {
    async fn http_send(&self, mut request: Request<Bytes>) -> reqsign_core::Result<Response<Bytes>> {
        let is_sts = request.uri().host().is_some_and(is_sts);
        if let Some(elsewhere) = self.1.as_ref().filter(|_| is_sts) {
            *request.uri_mut() = moved(request.uri(), elsewhere)?;
            request.headers_mut().remove(http::header::HOST);
        }
        let answer = self.0.send(request, Redirects::Show).await;
        let failed = |fault: Fault| {
            let retryable = matches!(fault, Fault::Again(..));
            reqsign_core::Error::unexpected(fault.into_error().text).set_retryable(retryable)
        };
        let answer = answer.map_err(failed)?;
        let (status, headers) = (answer.status, answer.headers.clone());
        let mut response = Response::new(Bytes::from(answer.text(Bound::TOKEN).await.map_err(failed)?));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_service_is_known_by_its_whole_host() {
        for (url, safe) in [
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://127.0.0.1:9/x", true),
            ("http://localhost/x", true),
            ("https://anywhere.example/x", true),
            ("http://169.254.170.23.evil.com/x", false),
            ("http://localhost.evil.com/x", false),
            ("http://10.0.0.1/x", false),
            ("nonsense", false),
        ] {
            let variables = [("AWS_CONTAINER_CREDENTIALS_FULL_URI".to_owned(), url.to_owned())];
            assert_eq!(container(&Variables::new(variables)).is_none(), safe, "{url}");
        }
    }

    #[test]
    fn sts_is_known_by_its_whole_host() {
        for (host, is) in [
            ("sts.amazonaws.com", true),
            ("sts.eu-west-1.amazonaws.com", true),
            ("sts.cn-north-1.amazonaws.com.cn", true),
            ("sts.amazonaws.com.evil.com", false),
            ("sts.evil.com", false),
            ("sts.amazonaws.com-evil.com", false),
            ("my.sts.amazonaws.com", false),
        ] {
            assert_eq!(is_sts(host), is, "{host}");
        }
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let there = moved(&uri("https://sts.amazonaws.com/?Action=x"), &uri("http://127.0.0.1:7/sts/")).unwrap();
        assert_eq!(there.to_string(), "http://127.0.0.1:7/sts/?Action=x");
    }

    #[test]
    fn half_a_key_is_none() {
        let read =
            |names: &[&str]| half(&Variables::new(names.iter().map(|name| ((*name).to_owned(), "x".to_owned()))));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&["ACCESS_KEY_ID", "SECRET_ACCESS_KEY"]), None);
        assert_eq!(read(&["SECRET_ACCESS_KEY"]), Some(("SECRET_ACCESS_KEY", "ACCESS_KEY_ID")));
        assert_eq!(read(&["AWS_ACCESS_KEY_ID"]), Some(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")));
    }
}
