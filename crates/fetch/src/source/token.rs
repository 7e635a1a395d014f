//! Tokens that are asked for: kept while they are valid, asked for anew before they expire.

use crate::http::{Bound, Client, Fault, Redirects, request, set};
use crate::plan::error::{Error, Kind, shown};
use bytes::Bytes;
use http::{Method, Request};
use percent_encoding::utf8_percent_encode;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A token is asked for anew when it has less than this left.
const HEADROOM: Duration = Duration::from_secs(300);
/// What a token lives whose lifetime nobody tells: those of clouds live an hour.
const UNTOLD: Duration = Duration::from_secs(3000);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub value: String,
    pub valid: Duration,
}

/// A token as it was last got.
#[derive(Default)]
pub struct Kept(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    NotAsked,
    /// There are no credentials.
    Nobody,
    Have(String, Instant),
}

impl Kept {
    /// The kept token, or what `ask` brings; `None`: there are no credentials.
    ///
    /// # Errors
    /// As those of `ask`; not while the token that is there is still valid.
    pub async fn get(
        &self,
        client: &Client,
        ask: impl Future<Output = Result<Option<Token>, Fault>>,
    ) -> Result<Option<String>, Fault> {
        let mut state = self.0.lock().await;
        let now = Instant::now();
        match &*state {
            State::Nobody => return Ok(None),
            State::Have(value, until) if until.saturating_duration_since(now) > HEADROOM => {
                return Ok(Some(value.clone()));
            }
            _ => {}
        }
        let found = match (ask.await, &*state) {
            (Err(_), State::Have(value, until)) if *until > now => return Ok(Some(value.clone())),
            (other, _) => other?,
        };
        *state = match &found {
            None => State::Nobody,
            Some(token) => {
                client.secrets.learn(&token.value);
                State::Have(token.value.clone(), now.checked_add(token.valid).unwrap_or(now))
            }
        };
        Ok(found.map(|token| token.value))
    }

    /// The server does not take `refused`: it is asked for anew, unless another stream has done so.
    pub async fn forget(&self, refused: &str) {
        let mut state = self.0.lock().await;
        if matches!(&*state, State::Have(value, _) if value == refused) {
            *state = State::NotAsked;
        }
    }

    /// Whether requests go without a name, as far as it is known.
    pub async fn is_nobody(&self) -> bool {
        matches!(&*self.0.lock().await, State::Nobody)
    }
}

/// A form as the body of a POST.
///
/// # Errors
/// The URL cannot be one.
pub fn form(url: &str, fields: &[(&str, &str)]) -> Result<Request<Bytes>, Fault> {
    let mut request = request(Method::POST, url)?;
    let encoded = |text: &str| utf8_percent_encode(text, &super::objects::SEGMENT).to_string();
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    set(&mut request, "content-type", "application/x-www-form-urlencoded")?;
    *request.body_mut() = Bytes::from(fields.join("&"));
    Ok(request)
}

/// JSON as the body of a POST.
///
/// # Errors
/// The URL cannot be one.
pub fn json(url: &str, body: &Value) -> Result<Request<Bytes>, Fault> {
    let mut request = request(Method::POST, url)?;
    set(&mut request, "content-type", "application/json")?;
    *request.body_mut() = Bytes::from(body.to_string());
    Ok(request)
}

/// What a server for tokens answers.
///
/// # Errors
/// It refuses (no access; `what` says whose token it was), or cannot be asked.
pub async fn answer(client: &Client, request: Request<Bytes>, what: &str) -> Result<Value, Fault> {
    let url = shown(&request.uri().to_string());
    let answer = client.send(request, Redirects::Show).await?;
    let status = answer.status;
    if !status.is_success() {
        let general = answer.fault(&format!("{what}: {url}"));
        if matches!(general, Fault::Again(..)) {
            return Err(general);
        }
        let said: Value = serde_json::from_str(&answer.refusal().await?).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        // OAuth's two forms, and Google's own
        let said = text(&said["error_description"])
            .or_else(|| text(&said["error"]["message"]))
            .or_else(|| text(&said["error"]))
            .unwrap_or_else(|| "it says no more".to_owned());
        let said = said.lines().next().unwrap_or_default();
        let text = format!("{what}: {url} gives no token ({status}: {said})");
        return Err(Error::new(Kind::NoAccess, text).into());
    }
    let text = answer.text(Bound::TOKEN).await?;
    serde_json::from_str(&text)
        .map_err(|_| Error::new(Kind::NoAccess, format!("{what}: {url} answers with something that is no JSON")).into())
}

/// The token of an answer of OAuth's.
///
/// # Errors
/// There is none in it.
pub fn read(answer: &Value, what: &str) -> Result<Token, Fault> {
    let value = answer["access_token"].as_str().filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| Error::new(Kind::NoAccess, format!("{what}: the answer holds no token")))?;
    // Azure's machines tell the seconds as text
    let seconds = answer["expires_in"].as_u64().or_else(|| answer["expires_in"].as_str()?.parse().ok());
    Ok(Token { value: value.to_owned(), valid: seconds.map_or(UNTOLD, Duration::from_secs) })
}

/// A token that was given as it is: nobody knows for how long.
pub fn given(value: &str) -> Token {
    Token { value: value.trim().to_owned(), valid: Duration::from_secs(365 * 86_400) }
}

/// What a metadata service answers, if there is one. It is asked twice: it answers at once, or is not there.
///
/// # Errors
/// It is there and cannot answer now.
pub async fn metadata(
    client: &Client,
    make: impl Fn() -> Result<Request<Bytes>, Fault>,
) -> Result<Option<crate::http::Answer>, Fault> {
    for _ in 0..2 {
        match client.send(make()?, Redirects::Show).await {
            Ok(answer) if answer.status.is_success() => return Ok(Some(answer)),
            Ok(answer) => match answer.fault("the metadata service") {
                fault @ Fault::Again(..) => return Err(fault),
                _ => return Ok(None),
            },
            Err(Fault::Again(..)) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}
