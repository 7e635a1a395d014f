//! The status server: training code posts its progress here, and it becomes `status.trainerStatus` of its TrainJob.
//!
//! One path, one method. The API server decides who may post (`review`): a token made for exactly this TrainJob's
//! audience, by a service account of its namespace. The CRD's schema decides what may be posted: the API server refuses the write
//! or takes it whole.
//!
//! A job may report as often as it likes: `pacing` decides when its status is written, `reports` does it, and every report goes
//! into the job's history (`series`). `follow` watches for jobs and pods that end, `printed` reads the output of jobs that print
//! their metrics.
//! Source: upstream's `pkg/statusserver` (feature gate `TrainJobStatus`).
//!
//! A job's first report is written at once. What follows within five seconds is held back, and the newest of it is
//! written when they end; or at once when a pod of the job or the job itself ends, at 100 %, and when the server
//! stops. With many jobs the seconds grow, so that all together cost at most 500 writes each. On a laptop every
//! report is in the job's series file before it is answered; a start after a crash compares, and writes what is
//! missing. On a cluster, which has no disk, each replica puts what it took into a ConfigMap beside the TrainJob
//! (`kept`).

mod follow;
mod kept;
mod pacing;
mod printed;
mod reports;
mod review;
mod series;

pub use series::Series;

use crate::serve::{self, Answer, Ends, Service};
use api::object::Key;
use api::trainer::{API_VERSION, UpdateTrainJobStatusRequest};
use driver::{Feed, Source};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use kept::Kept;
use kube::Client;
use printed::Printed;
use reports::{Fault, Reports};
use review::Reviews;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A body may have this many bytes.
const BODY_MAX: u64 = 65536;
/// How long a client may take for a request, and we for an answer.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Answers posts of progress by means of a client that may review tokens, write TrainJobs' statuses, list and watch
/// TrainJobs and pods, and read the pods' logs and OptimizationJobs.
pub struct StatusServer {
    client: Client,
    reviews: Reviews,
    reports: Reports,
    feed: Feed,
}

/// What becomes of a request that is refused: code, reason and message of a `Status`.
struct Refusal(StatusCode, &'static str, String);

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self(code, reason, message.into())
    }

    fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "Internal error")
    }

    fn payload() -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", "Invalid payload")
    }
}

impl StatusServer {
    /// A server that keeps no history.
    pub fn new(client: Client) -> Self {
        let (reviews, reports) = (Reviews::new(client.clone()), Reports::new(client.clone()));
        Self { reviews, reports, feed: Feed::Requests { client: client.clone(), namespace: None }, client }
    }

    /// Watches the TrainJobs and pods of this namespace alone; those of others are posted to without their ends being seen.
    #[must_use]
    pub fn within(mut self, namespace: Option<&str>) -> Self {
        self.feed = Feed::Requests { client: self.client.clone(), namespace: namespace.map(str::to_owned) };
        self
    }

    /// Follows TrainJobs and pods in the server in this process.
    #[must_use]
    pub fn beside(mut self, source: Arc<dyn Source>) -> Self {
        self.feed = Feed::Source(source);
        self
    }

    /// Writes statuses no faster than so: a second in the long run, and at once. Without it, at its own pace.
    #[must_use]
    pub fn paced(mut self, limit: Option<(f64, f64)>) -> Self {
        if let Some((per_second, burst)) = limit {
            self.reports = self.reports.paced(per_second, burst);
        }
        self
    }

    /// Keeps every report in these series, and removes those of TrainJobs that are gone.
    #[must_use]
    pub fn with_history(mut self, series: Series) -> Self {
        self.reports.series = Some(series);
        self
    }

    /// Keeps every report in a ConfigMap beside its TrainJob.
    #[must_use]
    pub fn with_config_maps(mut self) -> Self {
        self.reports.kept = Some(Kept::new(self.client.clone()));
        self
    }

    /// Serves a socket over TLS until told to stop; requests under way then have 5 s, and what is held back another 5 s to be
    /// written.
    ///
    /// Guarantees: a post that was answered with 200 is in the TrainJob's status a few seconds later at most (longer where
    /// thousands of jobs report), or a newer one is; when the job ends, at once. With a history this holds after a crash
    /// too. Assumptions: the certificate is for the name that pods are told (`Settings::status_server`).
    pub async fn serve(self, listener: TcpListener, tls: &rustls::ServerConfig, ends: impl Into<Ends>) {
        let Self { client, reviews, reports, feed } = self;
        let reports = Arc::new(reports);
        let listening = Arc::new(Listening { reviews, reports: reports.clone() });
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Writing goes on until the last request is answered.
        let closed = CancellationToken::new();
        let writer = tokio::spawn(reports.clone().run(closed.clone()));
        let (keeping, ended) = (reports.clone(), closed.clone());
        let keeper = tokio::spawn(async move {
            if let Some(kept) = &keeping.kept {
                kept.run(ended).await;
            }
        });
        let (following, ended) = (reports.clone(), closed.clone());
        let printed = Printed::new(client, reports.clone());
        let follower = tokio::spawn(async move { follow::follow(&feed, &following, &printed, ended).await });
        serve::serve(listener, Some(Arc::new(tls)), listening, ends).await;
        closed.cancel();
        drop((writer.await, follower.await, keeper.await));
    }

    /// The answer to one request, as without a socket: nothing is held back.
    #[cfg(test)]
    async fn answer(self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        Listening { reviews: self.reviews, reports: Arc::new(self.reports) }.reply(request).await
    }
}

/// The part of the server that answers.
struct Listening {
    reviews: Reviews,
    reports: Arc<Reports>,
}

impl Listening {
    /// The answer to one request.
    async fn reply<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let answered = tokio::time::timeout(REQUEST_MAX, self.post(request)).await;
        match answered.unwrap_or_else(|_| Err(Refusal::internal())) {
            Ok(body) => respond(StatusCode::OK, &body),
            Err(Refusal(code, reason, message)) => {
                let status = json!({
                    "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code.as_u16(),
                });
                respond(code, &status)
            }
        }
    }

    async fn post<B>(&self, request: Request<B>) -> Result<Value, Refusal>
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let declared = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length > BODY_MAX) {
            let code = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(code, "RequestEntityTooLarge", "Payload too large"));
        }
        let target = (request.method() == Method::POST).then(|| target(request.uri().path())).flatten();
        let Some(key) = target.map(|(namespace, name)| Key::new(namespace, name)) else {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "NotFound", "Not found"));
        };
        let token = request.headers().get(AUTHORIZATION).and_then(bearer).unwrap_or_default().to_owned();
        let reviewed = async {
            self.reviews.may_post(&token, &key).await.map_err(|error| {
                tracing::warn!(%error, job.namespace = key.namespace, job.name = key.name, "a token cannot be reviewed");
                Refusal::internal()
            })
        };
        if token.is_empty() || !reviewed.await? {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "Forbidden", "Forbidden"));
        }
        let limit = usize::try_from(BODY_MAX).expect("invariant: a small number");
        let body = Limited::new(request.into_body(), limit).collect().await.map_err(|_| Refusal::payload())?;
        let update: UpdateTrainJobStatusRequest =
            serde_json::from_slice(&body.to_bytes()).map_err(|_| Refusal::payload())?;
        if let Some(status) = update.trainer_status.clone() {
            let status = self.reports.joined(&key, status);
            self.reports.take(&key, &status).await.map_err(|fault| match fault {
                Fault::Invalid(message) => Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message),
                Fault::NotFound => Refusal::new(StatusCode::NOT_FOUND, "NotFound", "Train job not found"),
                Fault::Internal => Refusal::internal(),
            })?;
        }
        serde_json::to_value(&update).map_err(|_| Refusal::internal())
    }
}

impl Service for Listening {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        self.reply(request).await
    }
}

/// Namespace and name out of the path of a TrainJob's status. Both are names of objects: letters, digits, `-` and `.`.
fn target(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/apis/")?.strip_prefix(API_VERSION)?.strip_prefix("/namespaces/")?;
    let (namespace, rest) = rest.split_once('/')?;
    let name = rest.strip_prefix("trainjobs/")?.strip_suffix("/status")?;
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'))
    };
    (is_name(namespace) && is_name(name)).then_some((namespace, name))
}

/// The token of `Bearer <token>`: two words, the first in any case.
fn bearer(header: &HeaderValue) -> Option<&str> {
    let mut words = header.to_str().ok()?.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(scheme), Some(token), None) if scheme.eq_ignore_ascii_case("bearer") => Some(token),
        _ => None,
    }
}

fn respond(code: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Mutex;

    const PATH: &str = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/train/status";

    /// An API server that knows one token, and answers writes with `write`; it notes what is written.
    fn api(write: (u16, Value)) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let notes = written.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (notes, write) = (notes.clone(), write.clone());
            async move {
                let path = request.uri().to_string();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let (code, answer) = if path.ends_with("/tokenreviews") {
                    let good = body["spec"]["token"] == "good";
                    let user = json!({"username": "system:serviceaccount:ns:default"});
                    let status = json!({"authenticated": good, "audiences": body["spec"]["audiences"], "user": user});
                    (201, json!({"status": status}))
                } else {
                    notes.lock().unwrap().push(json!([path, body["status"]]));
                    write
                };
                let response =
                    Response::builder().status(code).body(kube::client::Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        (Client::new(service, "default"), written)
    }

    async fn ask(client: Client, method: Method, path: &str, token: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header(AUTHORIZATION, token);
        let response =
            StatusServer::new(client).answer(request.body(Full::<Bytes>::from(body.to_owned())).unwrap()).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_good_post_is_applied_and_echoed() {
        let (client, written) = api((200, json!({})));
        let status = json!({"trainerStatus": {"progressPercentage": 30, "lastUpdatedTime": "2026-01-02T03:04:05Z",
                            "metrics": [{"name": "loss", "value": "0.5"}]}});
        let answer = ask(client, Method::POST, PATH, "bearer   good", &status.to_string()).await;
        assert_eq!(answer, (200, status.clone()));
        let path = format!("{PATH}?fieldManager=trainer-status&force=true");
        assert_eq!(*written.lock().unwrap(), [json!([path, status])]);
    }

    #[tokio::test]
    async fn a_post_with_fields_that_nobody_knows_is_taken_whole() {
        let (client, written) = api((200, json!({})));
        let known = json!({"trainerStatus": {"progressPercentage": 30, "lastUpdatedTime": "2026-01-02T03:04:05Z",
                           "metrics": [{"name": "loss", "value": "0.5"}, {"name": "accuracy", "value": "0.9"}]}});
        let mut sent = known.clone();
        sent["more"] = json!({"of": ["this"]});
        sent["trainerStatus"]["epoch"] = json!(3);
        sent["trainerStatus"]["metrics"][0]["unit"] = json!("nats");
        let answer = ask(client, Method::POST, PATH, "Bearer good", &sent.to_string()).await;
        assert_eq!(answer, (200, known.clone()));
        let path = format!("{PATH}?fieldManager=trainer-status&force=true");
        assert_eq!(*written.lock().unwrap(), [json!([path, known])]);
    }

    #[tokio::test]
    async fn everything_else_is_refused_in_upstreams_words() {
        let invalid =
            json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "too much"});
        let gone = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "no"});
        let broken = json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "no"});
        let ok = || (200, json!({}));
        let good = r#"{"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z"}}"#;
        let long = " ".repeat(70_000);
        let post = Method::POST;
        let cases = [
            (ok(), Method::GET, PATH, "Bearer good", good, 404, "Not found"),
            (ok(), post.clone(), "/healthz", "Bearer good", good, 404, "Not found"),
            (
                ok(),
                post.clone(),
                "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/a%2Fb/status",
                "Bearer good",
                good,
                404,
                "Not found",
            ),
            (ok(), post.clone(), PATH, "", good, 403, "Forbidden"),
            (ok(), post.clone(), PATH, "Token good", good, 403, "Forbidden"),
            (ok(), post.clone(), PATH, "Bearer good extra", good, 403, "Forbidden"),
            (ok(), post.clone(), PATH, "Bearer bad", good, 403, "Forbidden"),
            (ok(), post.clone(), PATH, "Bearer good", "not json", 422, "Invalid payload"),
            (
                ok(),
                post.clone(),
                PATH,
                "Bearer good",
                r#"{"trainerStatus": {"progressPercentage": "ten"}}"#,
                422,
                "Invalid payload",
            ),
            (ok(), post.clone(), PATH, "Bearer good", &long, 422, "Invalid payload"),
            ((422, invalid), post.clone(), PATH, "Bearer good", good, 422, "too much"),
            ((404, gone), post.clone(), PATH, "Bearer good", good, 404, "Train job not found"),
            ((503, broken), post, PATH, "Bearer good", good, 500, "Internal error"),
        ];
        for (write, method, path, token, body, code, message) in cases {
            let (client, _) = api(write);
            let (got, status) = ask(client, method, path, token, body).await;
            assert_eq!((got, &status["message"]), (code, &json!(message)), "{path} {token} {body}");
            assert_eq!((&status["code"], &status["status"]), (&json!(code), &json!("Failure")));
        }
    }

    #[tokio::test]
    async fn a_declared_length_is_believed_before_anything_else() {
        let (client, _) = api((200, json!({})));
        let request = Request::builder().method(Method::GET).uri("/x").header(CONTENT_LENGTH, "65537");
        let response = StatusServer::new(client).answer(request.body(Full::<Bytes>::default()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn nothing_to_write_is_fine_and_no_time_is_for_the_schema_to_refuse() {
        for body in ["{}", r#"{"trainerStatus": null}"#] {
            let (client, written) = api((500, json!({})));
            assert_eq!(ask(client, Method::POST, PATH, "Bearer good", body).await, (200, json!({})));
            assert!(written.lock().unwrap().is_empty());
        }
        let (client, written) = api((200, json!({})));
        ask(client, Method::POST, PATH, "Bearer good", r#"{"trainerStatus": {"progressPercentage": 1}}"#).await;
        assert_eq!(written.lock().unwrap()[0][1]["trainerStatus"]["lastUpdatedTime"], Value::Null);
    }
}
