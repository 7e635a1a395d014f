//! Serves the metrics; with `metrics.auth.enabled` only to users whom the API server allows to read them.

use crate::cluster::leader::form;
use crate::numbers;
use crate::serve::{Answer, Service, answer, text};
use api::metrics::text::{OPEN_METRICS, PLAIN_TEXT, to_open, wants_open_metrics};
use driver::metrics::Registry;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a reader counts as one without another look, as with controller-runtime's.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// How many readers are remembered; all are forgotten beyond that.
const GOOD_MAX: usize = 256;

/// Answers `GET /metrics`.
pub(crate) struct MetricsServer {
    pub metrics: Arc<Registry>,
    /// Who may read; `None`: everybody.
    pub readers: Option<Readers>,
}

impl Service for MetricsServer {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.uri().path() != "/metrics" {
            return text(StatusCode::NOT_FOUND, "not found");
        }
        if let Some(readers) = &self.readers {
            match readers.look(request.headers().get(AUTHORIZATION)).await {
                Ok(Standing::Reads) => {}
                Ok(Standing::Unknown) => return text(StatusCode::UNAUTHORIZED, "Unauthorized"),
                Ok(Standing::Denied(user)) => {
                    return text(StatusCode::FORBIDDEN, format!("Authorization denied for user {user}"));
                }
                Err(error) => {
                    tracing::warn!(request = "GET /metrics", %error, "cannot ask the API server who may read metrics");
                    return text(StatusCode::INTERNAL_SERVER_ERROR, "Authentication failed");
                }
            }
        }
        numbers::note_memory(&self.metrics);
        numbers::note_processor_time(&self.metrics);
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if wants_open_metrics(accept) {
            return answer(StatusCode::OK, OPEN_METRICS, to_open(&self.metrics.render()));
        }
        answer(StatusCode::OK, PLAIN_TEXT, self.metrics.render())
    }
}

/// Whether a client may read metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Reads,
    /// No token, or none that the API server knows.
    Unknown,
    /// This user may not.
    Denied(String),
}

/// Who may read metrics. The API server decides, by token review and access review; a yes is kept for a minute.
pub(crate) struct Readers {
    client: Client,
    /// By SHA-256 of the token: until when it is good.
    good: Mutex<BTreeMap<[u8; 32], Instant>>,
}

impl Readers {
    pub fn new(client: Client) -> Self {
        Self { client, good: Mutex::default() }
    }

    /// # Errors
    /// The API server does not say.
    async fn look(&self, header: Option<&HeaderValue>) -> Result<Standing, kube::Error> {
        let words = header.and_then(|value| value.to_str().ok()).and_then(|value| value.split_once(' '));
        let token = match words {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Ok(Standing::Unknown),
        };
        if token.is_empty() {
            return Ok(Standing::Unknown);
        }
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let now = Instant::now();
        let held = self.good.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).copied();
        if held.is_some_and(|until| now < until) {
            return Ok(Standing::Reads);
        }
        let standing = self.ask(token).await?;
        if standing == Standing::Reads {
            let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
            if good.len() >= GOOD_MAX {
                good.clear();
            }
            good.insert(digest, api::time::after(now, GOOD_FOR));
        }
        Ok(standing)
    }

    async fn ask(&self, token: &str) -> Result<Standing, kube::Error> {
        let user = self.review("authentication.k8s.io", "TokenReview", json!({"token": token})).await?;
        if user["authenticated"] != true {
            return Ok(Standing::Unknown);
        }
        let user = &user["user"];
        let spec = json!({"user": user["username"], "uid": user["uid"], "groups": user["groups"],
            "extra": user["extra"], "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
        let access = self.review("authorization.k8s.io", "SubjectAccessReview", spec).await?;
        let name = user["username"].as_str().unwrap_or_default();
        Ok(if access["allowed"] == true { Standing::Reads } else { Standing::Denied(name.to_owned()) })
    }

    /// The status of a review.
    async fn review(&self, group: &str, kind: &str, spec: Value) -> Result<Value, kube::Error> {
        let review = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec});
        let path = format!("/apis/{group}/v1/{}s", kind.to_lowercase());
        let mut review: Value = self.client.request(form(Method::POST, &path, Some(&review))).await?;
        Ok(review["status"].take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::convert::Infallible;

    /// An API server that knows reader and stranger by their tokens, and lets the former read; it counts what it is asked.
    fn api() -> (Client, Arc<Mutex<usize>>) {
        let asked = Arc::new(Mutex::new(0));
        let count = asked.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            *count.lock().unwrap() += 1;
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let status = match body["kind"].as_str().unwrap() {
                    "TokenReview" => {
                        let token = body["spec"]["token"].as_str().unwrap();
                        json!({"authenticated": token != "nobody", "user": {"username": token}})
                    }
                    _ => {
                        let asks = &body["spec"]["nonResourceAttributes"];
                        assert_eq!(*asks, json!({"path": "/metrics", "verb": "get"}));
                        json!({"allowed": body["spec"]["user"] == "reader"})
                    }
                };
                let body = kube::client::Body::from(json!({"status": status}).to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(201).body(body).unwrap())
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_server_says_who_reads_and_is_asked_once_a_minute() {
        let (client, asked) = api();
        let readers = Readers::new(client);
        let look = async |header: &'static str| readers.look(Some(&HeaderValue::from_static(header))).await.unwrap();
        for unknown in ["", "Basic reader", "Bearer ", "Bearer nobody"] {
            assert_eq!(look(unknown).await, Standing::Unknown, "{unknown}");
        }
        assert_eq!(look("Bearer stranger").await, Standing::Denied("stranger".to_owned()));
        *asked.lock().unwrap() = 0;
        assert_eq!((look("bearer reader").await, look("Bearer reader").await), (Standing::Reads, Standing::Reads));
        assert_eq!(*asked.lock().unwrap(), 2);
        tokio::time::advance(GOOD_FOR).await;
        assert_eq!((look("Bearer reader").await, *asked.lock().unwrap()), (Standing::Reads, 4));
    }
}
