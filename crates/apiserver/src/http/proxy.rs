//! Forwards requests to a port of a pod: `pods/[SCHEME:]NAME[:PORT]/proxy/PATH`.

use super::Server;
use super::answer::Body;
use super::handle::Ask;
use crate::registry::Target;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Request, Response};
use hyper_util::rt::TokioIo;
use resource::status::Status;
use serde_json::Value;
use std::sync::Arc;

/// Which port of which pod, by `[SCHEME:]NAME[:PORT]`.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Place<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some(Self { scheme, name, port })
    }

    /// The port that is meant: where none is named the first that a container declares, else 80.
    fn port(&self, pod: &Value) -> Option<u16> {
        if !self.port.is_empty() {
            return self.port.parse().ok();
        }
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let declared = containers.filter_map(|container| container["ports"][0]["containerPort"].as_u64()).next();
        declared.map_or(Some(80), |port| u16::try_from(port).ok())
    }
}

impl Server {
    /// The pod's answer. Connections are not upgraded, and TLS is not spoken to pods.
    pub(super) async fn pod_proxy(self: &Arc<Self>, ask: &Ask, target: &Target) -> Result<Response<Body>, Status> {
        let wrong = || Status::bad_request(format!("invalid pod request {:?}", target.name));
        let place = Place::parse(&target.name).ok_or_else(wrong)?;
        self.admit_connection(ask, target)?;
        let of_pod = Target { name: place.name.to_owned(), subresource: String::new(), ..target.clone() };
        let pod = self.core.get(&of_pod)?.value();
        if api::object::text(&pod["status"], "podIP").is_empty() {
            return Err(Status::bad_request("address not allowed"));
        }
        if place.scheme == "https" {
            return Err(Status::bad_request("pods are reached over plain HTTP only"));
        }
        let port = place.port(&pod).ok_or_else(wrong)?;
        let unreachable = |error: &dyn std::fmt::Display| {
            let why = format!("error trying to reach port {port} of pod {:?}: {error}", place.name);
            Status { code: 503, reason: "ServiceUnavailable", message: why, ..Status::bad_request("") }
        };
        let streams = self.streams.as_ref().ok_or_else(|| unreachable(&"no node agent answers for it"))?;
        let connection = streams.connect(&pod, port).await.map_err(|error| unreachable(&error))?;
        let request = passed_on(ask, port).map_err(|error| unreachable(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection))
            .await
            .map_err(|error| unreachable(&error))?;
        tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let mut answer = answer.map(Body::new);
        // of one connection each; this one's are set anew
        [CONNECTION, TRANSFER_ENCODING].iter().for_each(|name| drop(answer.headers_mut().remove(name)));
        Ok(answer)
    }
}

/// What follows `proxy` in the path, as it was written.
pub(super) fn rest(ask: &Ask) -> &str {
    // "", api, v1, namespaces, NAMESPACE, pods, NAME, proxy, and the rest
    ask.path.splitn(9, '/').nth(8).unwrap_or_default()
}

/// The request as the pod sees it: what follows `proxy` in the path, and nothing of the user.
fn passed_on(ask: &Ask, port: u16) -> Result<Request<Body>, http::Error> {
    let rest = rest(ask);
    let query = ask.parts.lock().ok().and_then(|parts| Some(parts.as_ref()?.uri.query()?.to_owned()));
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let mut request = Request::builder().method(ask.method.clone()).uri(format!("/{rest}{query}"));
    if let Some(headers) = request.headers_mut() {
        let own = [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];
        headers.extend(ask.headers.iter().filter(|(name, _)| !own.contains(name)).map(|(n, v)| (n.clone(), v.clone())));
        headers.insert(HOST, HeaderValue::from_str(&format!("localhost:{port}"))?);
    }
    request.body(Body::from(ask.body.text().clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_are_told_from_names() {
        let place = |scheme, name, port| Some(Place { scheme, name, port });
        assert_eq!(Place::parse("p"), place("", "p", ""));
        assert_eq!(Place::parse("p:8080"), place("", "p", "8080"));
        assert_eq!(Place::parse("https:p:"), place("https", "p", ""));
        for wrong in ["", ":80", "ftp:p:1", "a:b:c:d"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
        let pod = json!({"spec": {"containers": [{}, {"ports": [{"containerPort": 6006}]}]}});
        let port = |text| Place::parse(text).unwrap().port(&pod);
        assert_eq!((port("p"), port("p:1"), port("p:x")), (Some(6006), Some(1), None));
        assert_eq!(Place::parse("p").unwrap().port(&json!({})), Some(80));
    }
}
