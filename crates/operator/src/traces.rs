//! Traces for an OpenTelemetry collector: OTLP over HTTP, in JSON. What becomes a span is the driver's word
//! ([`driver::SPANS`]): each look at an object, and in it each request.
//!
//! Told by the standard's environment: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`, the whole address), and
//! `OTEL_SERVICE_NAME`. The collector is one in the cluster or on the machine: it is spoken to without TLS.

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, filter_fn};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Spans that wait to be sent; more are dropped.
const WAITING_MAX: usize = 8192;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long a span may wait for others.
const LINGER: Duration = Duration::from_secs(1);
/// How long a collector may take.
const SEND_MAX: Duration = Duration::from_secs(10);
/// How long what is left may take at the end.
const FINISH_MAX: Duration = Duration::from_secs(3);

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("{variable}={value}: {why}")]
pub struct TracesError {
    variable: &'static str,
    value: String,
    why: &'static str,
}

/// Where to send, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    authority: String,
    path: String,
    service: String,
}

impl Collector {
    /// What the environment says; `None` where it names no collector.
    ///
    /// # Errors
    /// It names one that cannot be spoken to.
    pub fn told(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TracesError> {
        const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
        {
            return Ok(None);
        }
        let (variable, value, ending) = match (get(TRACES), get(ALL)) {
            (Some(value), _) => (TRACES, value, ""),
            (None, Some(value)) => (ALL, value, "/v1/traces"),
            (None, None) => return Ok(None),
        };
        let fault = |why| TracesError { variable, value: value.clone(), why };
        let uri: Uri = value.parse().map_err(|_| fault("not a URL: http://HOST:4318"))?;
        if uri.scheme_str() != Some("http") {
            return Err(fault("only http:// is spoken: name a collector in the cluster, which may send on over TLS"));
        }
        let authority = uri.authority().ok_or_else(|| fault("names no host"))?;
        let path = format!("{}{ending}", uri.path().trim_end_matches('/'));
        let service = get("OTEL_SERVICE_NAME").unwrap_or_else(|| "trainyard-operator".to_owned());
        Ok(Some(Self { authority: authority.to_string(), path, service }))
    }

    /// Starts sending; the layer collects.
    pub fn start<S: Subscriber + for<'a> LookupSpan<'a>>(self) -> (impl Layer<S>, Traces) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let task = tokio::spawn(self.send_all(receiver));
        let ours: FilterFn<fn(&Metadata<'_>) -> bool> = filter_fn(|metadata| metadata.target() == driver::SPANS);
        let layer = Collecting { sender: sender.clone() }.with_filter(ours);
        (layer, Traces { task, sender })
    }

    async fn send_all(self, mut spans: mpsc::Receiver<Message>) {
        let mut healthy = true;
        let mut open = true;
        while open {
            let mut batch = Vec::new();
            let Some(first) = spans.recv().await else { return };
            let deadline = api::time::after(tokio::time::Instant::now(), LINGER);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Span(span) => batch.push(span),
                    Message::End => open = false,
                }
                let full = batch.len() >= BATCH_MAX;
                next = match open {
                    _ if full => None,
                    true => tokio::time::timeout_at(deadline, spans.recv()).await.ok().flatten(),
                    false => spans.try_recv().ok(),
                };
            }
            if batch.is_empty() {
                continue;
            }
            let sent = tokio::time::timeout(SEND_MAX, self.send(batch)).await;
            let failure = match sent {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer".to_owned()),
            };
            match &failure {
                None if !healthy => tracing::info!(collector = self.authority, "spans are taken again"),
                Some(error) if healthy => {
                    tracing::warn!(collector = self.authority, error, "spans are not taken, and dropped");
                }
                _ => {}
            }
            healthy = failure.is_none();
        }
    }

    async fn send(&self, spans: Vec<Value>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let service = json!({"key": "service.name", "value": {"stringValue": self.service}});
        let body = json!({"resourceSpans": [{"resource": {"attributes": [service]},
            "scopeSpans": [{"scope": {"name": "trainyard"}, "spans": spans}]}]});
        let address = if self.authority.rsplit(']').next().is_some_and(|tail| tail.contains(':')) {
            self.authority.clone()
        } else {
            format!("{}:80", self.authority)
        };
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(http::header::HOST, &self.authority)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::CONNECTION, "close")
            .body(Full::<Bytes>::from(body.to_string()))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let _ = answer.into_body().collect().await;
        connection.abort();
        if status.is_success() { Ok(()) } else { Err(format!("HTTP status {status}").into()) }
    }
}

enum Message {
    Span(Value),
    End,
}

/// The sending.
pub struct Traces {
    task: JoinHandle<()>,
    sender: mpsc::Sender<Message>,
}

impl Traces {
    /// Sends what is left; waits 3 s at most.
    pub async fn finish(self) {
        let finished = async {
            let _ = self.sender.send(Message::End).await;
            let _ = self.task.await;
        };
        let _ = tokio::time::timeout(FINISH_MAX, finished).await;
    }
}

/// A span that is not over.
struct Open {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    start: u128,
    attributes: Vec<Value>,
    failed: bool,
}

struct Collecting {
    sender: mpsc::Sender<Message>,
}

fn nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collecting {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let above = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Open>().map(|open| (open.trace, open.id))
        });
        let mut open = Open {
            trace: above.map_or_else(rand::random, |(trace, _)| trace),
            id: rand::random(),
            parent: above.map(|(_, id)| id),
            start: nanos(),
            attributes: Vec::new(),
            failed: false,
        };
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        // a collector that is too slow costs spans, never work
        let _ = self.sender.try_send(Message::Span(open.closed(span.name())));
    }
}

impl Open {
    /// The span in OTLP's JSON: numbers of 64 bits are strings, kinds and codes are numbers.
    fn closed(self, name: &str) -> Value {
        // INTERNAL, CLIENT
        let kind = if name == "request" { 3 } else { 1 };
        let mut span = json!({
            "traceId": format!("{:032x}", self.trace), "spanId": format!("{:016x}", self.id), "name": name, "kind": kind,
            "startTimeUnixNano": self.start.to_string(), "endTimeUnixNano": nanos().to_string(),
            "attributes": self.attributes,
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if self.failed {
            span["status"] = json!({"code": 2});
        }
        span
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.attributes.push(json!({"key": field.name(), "value": value}));
    }
}

impl Visit for Open {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.failed |= field.name() == "http.response.status_code" && value >= 400;
        self.add(field, json!({"intValue": value.to_string()}));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.failed |= field.name() == "outcome" && value == "error";
        self.add(field, json!({"stringValue": value}));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.add(field, json!({"stringValue": format!("{value:?}")}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{Answer, Service, serve, text};
    use http::StatusCode;
    use hyper::body::Incoming;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;
    use tracing::Instrument;
    use tracing_subscriber::layer::SubscriberExt;

    fn told(variables: &[(&str, &str)]) -> Result<Option<Collector>, String> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        Collector::told(|name| variables.get(name).map(ToString::to_string)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_environment_names_the_collector() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel.monitoring:4318/");
        let collector = |path: &str, service: &str| {
            let (authority, path) = ("otel.monitoring:4318".to_owned(), path.to_owned());
            Ok(Some(Collector { authority, path, service: service.to_owned() }))
        };
        assert_eq!(told(&[]), Ok(None));
        assert_eq!(told(&[all]), collector("/v1/traces", "trainyard-operator"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://otel.monitoring:4318/x");
        assert_eq!(told(&[all, traces, ("OTEL_SERVICE_NAME", "me")]), collector("/x", "me"));
        assert_eq!(told(&[all, ("OTEL_SDK_DISABLED", "true")]), Ok(None));
        assert_eq!(told(&[all, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        let wrong = told(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://x")]).unwrap_err();
        assert!(wrong.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT=https://x: only http://"), "{wrong}");
    }

    /// A collector that hands on what it gets.
    struct Tiny(mpsc::UnboundedSender<(String, Value)>);

    impl Service for Tiny {
        async fn answer(&self, request: Request<Incoming>) -> Answer {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            self.0.send((path, serde_json::from_slice(&body).unwrap())).unwrap();
            text(StatusCode::OK, "{}")
        }
    }

    #[tokio::test]
    async fn spans_arrive_with_their_parents() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, mut arrived) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(listener, None, Arc::new(Tiny(sender)), stop.clone()));
        let collector = told(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]).unwrap().unwrap();
        let (layer, traces) = collector.start();
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let outer = tracing::trace_span!(target: driver::SPANS, "reconcile", object = %"ns/train", outcome = tracing::field::Empty);
        async {
            let inner = tracing::trace_span!(target: driver::SPANS, "request", http.response.status_code = 409);
            async {}.instrument(inner).await;
            let others = tracing::info_span!("somebody else's");
            async {}.instrument(others).await;
        }
        .instrument(outer.clone())
        .await;
        outer.record("outcome", "success");
        drop(outer);
        drop(guard);
        traces.finish().await;

        let (path, body) = arrived.recv().await.unwrap();
        assert_eq!(path, "/v1/traces");
        let sent = &body["resourceSpans"][0];
        assert_eq!(sent["resource"]["attributes"][0]["value"]["stringValue"], "trainyard-operator");
        let spans = sent["scopeSpans"][0]["spans"].as_array().unwrap();
        let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["request", "reconcile"], "in the order in which they ended; others are not ours");
        let (request, reconcile) = (&spans[0], &spans[1]);
        assert_eq!(request["traceId"], reconcile["traceId"]);
        assert_eq!(request["parentSpanId"], reconcile["spanId"]);
        assert_eq!((&request["status"]["code"], &reconcile["status"]), (&json!(2), &Value::Null));
        let attributes = json!([{"key": "object", "value": {"stringValue": "ns/train"}},
            {"key": "outcome", "value": {"stringValue": "success"}}]);
        assert_eq!((&reconcile["attributes"], &reconcile["parentSpanId"]), (&attributes, &Value::Null));
        stop.cancel();
        server.await.unwrap();
    }
}
