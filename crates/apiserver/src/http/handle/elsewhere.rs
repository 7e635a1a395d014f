//! Paths that are no resources: what is served, documents, health, the version.

use super::*;

impl Server {
    pub(super) fn discovery(&self, ask: &Ask, what: &Discovery) -> Result<Response<Body>, Status> {
        let catalog = self.core.catalog();
        let known = |group: &str| catalog.groups.iter().any(|g| g == group);
        match what {
            Discovery::Group(group) | Discovery::Resources { group, .. } if !group.is_empty() && !known(group) => {
                return Ok(nothing_here());
            }
            Discovery::Resources { group, version }
                if catalog.of(group, version).next().is_none()
                    && catalog.kinds.values().any(|s| s.resource.group == *group && s.custom.is_some()) =>
            {
                return Ok(nothing_here());
            }
            _ => {}
        }
        // Groups, and the lists of custom kinds, are shown whatever the method: upstream has no router before them.
        let any_method = match what {
            Discovery::Groups | Discovery::Group(_) => true,
            Discovery::Resources { group, version } => {
                if discovery::resources(&catalog, group, version).is_none() {
                    return Err(no_resource());
                }
                catalog.of(group, version).all(|served| served.custom.is_some())
            }
            _ => false,
        };
        if !any_method && ask.method != Method::GET {
            return Err(not_allowed());
        }
        let accept = ask.accept();
        let aggregated = discovery::aggregated(accept.as_deref());
        let host = ask.header(header::HOST).unwrap_or_default();
        let value = match (what, aggregated) {
            (Discovery::Legacy, Some(version)) => {
                return Ok(aggregate(&discovery::aggregate(&catalog, true, version), version));
            }
            (Discovery::Groups, Some(version)) => {
                return Ok(aggregate(&discovery::aggregate(&catalog, false, version), version));
            }
            (Discovery::Legacy, None) => discovery::legacy(host),
            (Discovery::Groups, None) => discovery::groups(&catalog),
            (Discovery::Group(group), _) => discovery::group(&catalog, group).ok_or_else(no_resource)?,
            (Discovery::Resources { group, version }, _) => {
                discovery::resources(&catalog, group, version).ok_or_else(no_resource)?
            }
        };
        let accepted = ask.negotiate(Offer { routed: !any_method, ..PLAIN })?;
        Ok(answer::encode(200, discovery::text(&value), &accepted))
    }

    pub(super) fn other(self: &Arc<Self>, ask: &Ask, path: &str) -> Result<Response<Body>, Status> {
        let reads = matches!(ask.method, Method::GET | Method::HEAD);
        match path {
            "/version" if !reads => Err(not_allowed()),
            "/version" => {
                negotiate::accept_json(ask.accept().as_deref())?;
                let accepted = Accepted { encoding: Encoding::Json, ..ask.negotiate(PLAIN).unwrap_or_default() };
                let mut answer = answer::encode(200, version().to_string().into_bytes(), &accepted);
                // the home's time, by which agents of other machines go; every other answer has the machine's
                let now = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&clock::now());
                if let Some(now) = now.ok().and_then(|now| http::HeaderValue::from_str(&now).ok()) {
                    answer.headers_mut().insert(http::header::DATE, now);
                }
                Ok(answer)
            }
            "/metrics" if reads => Ok(self.metrics.answer(ask.accept().as_deref().unwrap_or_default())),
            "/openapi/v2" => self.openapi_v2(ask),
            "/openapi/v3" => Ok(answer::encode(
                200,
                crate::openapi::index(&self.core.catalog()).to_string().into_bytes(),
                &Accepted::default(),
            )),
            "/" => {
                let catalog = self.core.catalog();
                let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
                for group in catalog.groups.iter().filter(|g| !g.is_empty()) {
                    paths.push(format!("/apis/{group}"));
                    paths.extend(catalog.versions(group).iter().map(|v| format!("/apis/{group}/{v}")));
                }
                paths.extend(
                    ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
                        .map(str::to_owned),
                );
                Ok(answer::encode(200, json!({"paths": paths}).to_string().into_bytes(), &Accepted::default()))
            }
            // upstream's router has the version below a root of its own
            _ if path.starts_with("/version/") => Err(no_resource()),
            _ => {
                if let Some(answer) = self.health(ask, path) {
                    return Ok(answer);
                }
                if let Some(document) = path.strip_prefix("/openapi/v3/") {
                    let Some(bytes) = self.openapi.document(&self.core.catalog(), document) else {
                        let mut answer = response(404, "", Bytes::new());
                        answer.headers_mut().remove(header::CONTENT_TYPE);
                        return Ok(answer);
                    };
                    let mut answer = response(200, "application/json", Bytes::from(bytes.to_vec()));
                    if ask.query.get("hash").is_some() {
                        let value = http::HeaderValue::from_static("public, max-age=31536000, immutable");
                        answer.headers_mut().insert(header::CACHE_CONTROL, value);
                    }
                    return Ok(answer);
                }
                Ok(nothing_here())
            }
        }
    }

    /// Old kubectls ask for this in protobuf, which there is none of; new ones do without.
    pub(super) fn openapi_v2(&self, ask: &Ask) -> Result<Response<Body>, Status> {
        let accepts = ask.accept().unwrap_or_default();
        let catalog = self.core.catalog();
        if accepts.contains(v2::PROTOBUF) {
            return Ok(response(200, v2::PROTOBUF_ANSWER, self.openapi.v2(&catalog, true).to_vec()));
        }
        if !accepts.is_empty() && !accepts.contains("json") && !accepts.contains('*') {
            let offer = format!("only the following media types are accepted: application/json, {}", v2::PROTOBUF);
            return Err(Status::new(406, "NotAcceptable", offer));
        }
        Ok(answer::encode(200, self.openapi.v2(&catalog, false).to_vec(), &Accepted::default()))
    }
}

fn aggregate(value: &Value, version: &str) -> Response<Body> {
    let media = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let mut bytes = discovery::aggregated_text(value);
    bytes.push(b'\n');
    response(200, &media, bytes)
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": format!("v1.36.3+trainyard-{}", env!("CARGO_PKG_VERSION")), "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, match std::env::consts::ARCH {
            "x86_64" => "amd64", "aarch64" => "arm64", other => other,
        }),
    })
}
