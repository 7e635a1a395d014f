//! `/metrics`: what the server does, for Prometheus.
//!
//! [`api::metrics`] has the names.

use super::answer::{Body, response};
use crate::registry::Catalog;
use crate::route::{self, Path, Route};
use api::metrics::text::{OPEN_METRICS, PLAIN_TEXT, to_open, to_plain, wants_open_metrics};
use api::metrics::{self as names, Metric};
use http::Response;
use http::request::Parts;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use store::{SECONDS, Store};

/// Numbers of other parts of the process, in the plain text format; none of them is one of the server's.
pub type MoreNumbers = Arc<dyn Fn() -> String + Send + Sync>;

/// Upper bounds of the classes of a request's duration, in seconds (of upstream's, every second one).
const DURATIONS: [f64; 12] = [0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0, 2.0, 4.0, 10.0, 60.0];

/// What a request is about. Names are of kinds that are served: others are empty, so that nobody can make up series.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct About {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    #[prometheus(flatten)]
    about: About,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    request_kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    resource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cluster {
    storage_cluster_id: &'static str,
}

/// The server's numbers.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<About, Histogram, fn() -> Histogram>,
    in_flight: Family<Kind, Gauge>,
    long_running: Family<About, Gauge>,
    more: Option<MoreNumbers>,
}

impl Metrics {
    pub(super) fn new(store: Store, more: Option<MoreNumbers>) -> Self {
        let requests = Family::default();
        let durations = Family::new_with_constructor((|| Histogram::new(DURATIONS)) as fn() -> Histogram);
        let (in_flight, long_running) = (Family::default(), Family::default());
        let mut registry = Registry::default();
        registry.register(names::REQUESTS.stem(), names::REQUESTS.help, requests.clone());
        let Metric { help, .. } = names::REQUEST_SECONDS;
        registry.register_with_unit(names::REQUEST_SECONDS.stem(), help, Unit::Seconds, durations.clone());
        registry.register(names::IN_FLIGHT.stem(), names::IN_FLIGHT.help, in_flight.clone());
        registry.register(names::LONG_RUNNING.stem(), names::LONG_RUNNING.help, long_running.clone());
        registry.register_collector(Box::new(Sources(store)));
        Self { registry, requests, durations, in_flight, long_running, more }
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>, parts: &Parts, catalog: &Catalog) -> Request {
        let about = about(parts, catalog);
        let request_kind = match about.verb {
            "GET" | "LIST" | "HEAD" => "readOnly",
            _ => "mutating",
        };
        // a watch is answered as soon as it has begun: what is open is counted where it is
        let gauge = (about.verb != "WATCH").then(|| self.in_flight.get_or_create(&Kind { request_kind }).clone());
        Request { metrics: self.clone(), about, since: Instant::now(), _in_flight: gauge.map(Held::new) }
    }

    /// A watch is open until what is returned is dropped.
    pub(super) fn watches(&self, group: &str, version: &str, plural: &str, namespaced: bool) -> Held {
        let about = About {
            verb: "WATCH",
            group: group.to_owned(),
            version: version.to_owned(),
            resource: plural.to_owned(),
            scope: if namespaced { "namespace" } else { "cluster" },
            component: "apiserver",
            ..About::default()
        };
        let gauge = self.long_running.get_or_create(&about).clone();
        Held::new(gauge)
    }

    /// # Parameters
    /// - `accept`: the formats that the client takes.
    pub(super) fn answer(&self, accept: &str) -> Response<Body> {
        let mut text = String::new();
        let more = || self.more.as_ref().map(|more| more()).unwrap_or_default();
        match encode(&mut text, &self.registry) {
            Ok(()) if wants_open_metrics(accept) => {
                let own = text.strip_suffix("# EOF\n").unwrap_or(&text);
                response(200, OPEN_METRICS, format!("{own}{}", to_open(&more())))
            }
            Ok(()) => response(200, PLAIN_TEXT, to_plain(&text) + &more()),
            Err(error) => response(500, "text/plain; charset=utf-8", format!("the metrics cannot be written: {error}")),
        }
    }
}

/// One more of a gauge, until it is dropped.
pub(super) struct Held(Gauge);

impl Held {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A request that is being answered. One whose client goes away before is counted as answered with 499.
pub(super) struct Request {
    metrics: Arc<Metrics>,
    about: About,
    since: Instant,
    _in_flight: Option<Held>,
}

impl Request {
    pub(super) fn end(self, code: u16) {
        let Self { metrics, about, since, .. } = self;
        if about.verb != "WATCH" && about.verb != "CONNECT" {
            metrics.durations.get_or_create(&about).observe(since.elapsed().as_secs_f64());
        }
        metrics.requests.get_or_create(&Answered { about, code }).inc();
    }
}

fn about(parts: &Parts, catalog: &Catalog) -> About {
    use http::Method;
    let Route::Resource(path) = route::parse(parts.uri.path()) else {
        return About { verb: plain(&parts.method), component: "apiserver", ..About::default() };
    };
    let Path { group, version, namespace, plural, name, subresource, watch, .. } = path;
    let query = parts.uri.query().unwrap_or_default();
    let watches = watch || query.split('&').any(|word| matches!(word, "watch=true" | "watch=1" | "watch"));
    let collection = name.is_empty();
    let connects = matches!(subresource.as_str(), "exec" | "attach" | "portforward" | "proxy");
    let applies = || {
        let content = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        content.is_some_and(|content| content.starts_with("application/apply-patch"))
    };
    let verb = match parts.method {
        _ if connects => "CONNECT",
        Method::GET if watches => "WATCH",
        Method::GET if collection => "LIST",
        Method::PATCH if applies() => "APPLY",
        Method::DELETE if collection => "DELETECOLLECTION",
        ref other => plain(other),
    };
    let scope = match (collection, namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    match catalog.get(&group, &version, &plural) {
        Some(served) => {
            let known = served.subresource(&subresource).is_some();
            let subresource = if known { subresource } else { String::new() };
            About { verb, group, version, resource: plural, subresource, scope, component: "apiserver" }
        }
        None => About { verb, component: "apiserver", ..About::default() },
    }
}

fn plain(method: &http::Method) -> &'static str {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        .into_iter()
        .find(|name| *name == method.as_str())
        .unwrap_or("other")
}

/// Numbers that are read when somebody asks: the store's and the process's.
struct Sources(Store);

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sources")
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let health = self.0.health();
        let bounds = SECONDS.into_iter().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(health.commits.iter().copied()).collect();
        let count = health.commits.iter().sum();
        let Metric { help, .. } = names::COMMIT_SECONDS;
        encoder
            .encode_descriptor(names::COMMIT_SECONDS.stem(), help, Some(&Unit::Seconds), MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(health.commit_time.as_secs_f64(), count, &buckets, None)?;

        let mut counter = |metric: &Metric, value: u64| {
            let encoder = encoder.encode_descriptor(metric.stem(), metric.help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(encoder)
        };
        counter(&names::TRANSACTIONS, health.transactions)?;
        counter(&names::FAILED_COMMITS, health.failed)?;

        let mut gauge = |metric: &Metric, value: u64| {
            let encoder = encoder.encode_descriptor(metric.stem(), metric.help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        gauge(&names::WRITABLE, u64::from(health.trouble.is_none()))?;
        gauge(&names::SET_ASIDE, health.set_aside.len() as u64)?;
        if let Some(bytes) = resident_memory() {
            gauge(&names::PROCESS_MEMORY, bytes)?;
        }

        let Metric { help, .. } = names::STORED_BYTES;
        let mut sizes = encoder.encode_descriptor(names::STORED_BYTES.stem(), help, None, MetricType::Gauge)?;
        let cluster = Cluster { storage_cluster_id: "sqlite" };
        ConstGauge::new(health.bytes).encode(sizes.encode_family(&cluster)?)?;

        let Metric { help, .. } = names::STORED_OBJECTS;
        let mut objects = encoder.encode_descriptor(names::STORED_OBJECTS.stem(), help, None, MetricType::Gauge)?;
        for (bucket, count) in self.0.counts() {
            let resource = match bucket.split_once('/') {
                Some(("", plural)) => plural.to_owned(),
                Some((group, plural)) => format!("{plural}.{group}"),
                None => bucket.to_string(),
            };
            ConstGauge::new(count as u64).encode(objects.encode_family(&Of { resource })?)?;
        }
        Ok(())
    }
}

/// Pages are Linux' usual ones.
fn resident_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split(' ').nth(1)?.parse::<u64>().ok()?.checked_mul(4096)
}
