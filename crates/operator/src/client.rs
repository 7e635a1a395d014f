//! The operator's client, which counts all requests that the operator sends.

use api::metrics::CLIENT_REQUESTS;
use driver::metrics::Registry;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// A client that counts in `metrics`.
///
/// # Errors
/// The configuration makes no client: a certificate that cannot be read, most likely.
pub fn counted(config: Config, metrics: Arc<Registry>) -> Result<Client, kube::Error> {
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    Ok(ClientBuilder::try_from(config)?.with_layer(&Counting { metrics, host }).build())
}

struct Counting {
    metrics: Arc<Registry>,
    host: String,
}

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, metrics: self.metrics.clone(), host: self.host.clone() }
    }
}

struct Counted<S> {
    inner: S,
    metrics: Arc<Registry>,
    host: String,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.method().clone();
        let (metrics, host) = (self.metrics.clone(), self.host.clone());
        let path = request.uri().path().to_owned();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer.as_ref().ok().map(Response::status);
            let code = code.as_ref().map_or("<error>", |code| code.as_str());
            if answer.as_ref().map_or(true, |answer| answer.status().is_server_error()) {
                tracing::debug!(request = format!("{method} {path}"), code, "the API server did not do it");
            }
            metrics.add(&CLIENT_REQUESTS, &[("code", code), ("host", &host), ("method", method.as_str())], 1.0);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use tower::ServiceExt;

    #[tokio::test]
    async fn requests_are_counted_by_what_came_of_them() {
        let metrics = Arc::new(Registry::default());
        let api = tower::service_fn(async |request: Request<Body>| match request.uri().path() {
            "/broken" => Err("no answer"),
            path => {
                let code = if path == "/api" { StatusCode::OK } else { StatusCode::NOT_FOUND };
                Ok(Response::builder().status(code).body(Body::empty()).expect("a constant head"))
            }
        });
        let mut counted = Counting { metrics: metrics.clone(), host: "h:1".to_owned() }.layer(api);
        for path in ["/api", "/api", "/nowhere", "/broken"] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = counted.ready().await.unwrap().call(request).await;
            assert_eq!(answer.is_err(), path == "/broken");
        }
        let text = metrics.render();
        for (code, count) in [("200", 2), ("404", 1), ("<error>", 1)] {
            let line = format!("rest_client_requests_total{{code=\"{code}\",host=\"h:1\",method=\"GET\"}} {count}");
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
