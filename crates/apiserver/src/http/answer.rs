//! Turns answers of the core into HTTP responses.

use crate::negotiate::{Accepted, Encoding};
use crate::registry::{Answer, Object};
use crate::wire;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use resource::status::Status;
use serde_json::Value;
use std::collections::BTreeSet;

/// Characters that all warnings of an answer may have; more, and each of them is cut.
const WARNINGS_MAX: usize = 4096;
/// Characters of one warning where they are cut.
const WARNING_MAX: usize = 256;

/// Bodies of responses.
pub type Body = axum::body::Body;

/// A response with a body of bytes.
pub(crate) fn response(code: u16, media_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(media_type) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Compact JSON in the encoding that the client wants. Protobuf falls back to JSON for what has no protobuf form.
pub(crate) fn encode(code: u16, json: Vec<u8>, accepted: &Accepted) -> Response<Body> {
    match accepted.encoding {
        Encoding::Json if accepted.pretty => response(code, "application/json", wire::pretty(&json)),
        Encoding::Json => {
            let mut json = json;
            if json.last() != Some(&b'\n') {
                json.push(b'\n');
            }
            response(code, "application/json", json)
        }
        Encoding::Yaml => match serde_json::from_slice::<Value>(&json).ok().as_ref().and_then(yaml) {
            Some(text) => response(code, "application/yaml", text),
            None => response(code, "application/json", json),
        },
        Encoding::Protobuf => {
            let value = serde_json::from_slice::<Value>(&json).ok();
            match value.as_ref().and_then(crate::protobuf::encode) {
                Some(bytes) => response(code, crate::negotiate::PROTOBUF, bytes),
                None => response(code, "application/json", json),
            }
        }
    }
}

/// Block-style YAML with sorted keys.
pub(crate) fn yaml(value: &Value) -> Option<String> {
    serde_saphyr::to_string(value).ok()
}

/// A failure.
pub(crate) fn failure(status: &Status, accepted: &Accepted) -> Response<Body> {
    let mut response = encode(status.code, status.to_json().into_bytes(), accepted);
    warn(&mut response, &status.warnings);
    if let Some(secs) = status.details.as_ref().and_then(|d| d.get("retryAfterSeconds")).and_then(Value::as_i64) {
        response.headers_mut().insert(header::RETRY_AFTER, secs.into());
    }
    response
}

/// Answers of this size and more are compressed for clients that take it (upstream's bound).
const ZIP_FROM: u64 = 128 << 10;

/// Compresses a large answer whose length is known; streams stay as they are, so that each event arrives at once.
pub(crate) async fn zip(response: Response<Body>) -> Response<Body> {
    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    use std::io::Write as _;
    if response.body().size_hint().exact().is_none_or(|size| size < ZIP_FROM) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(plain) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Response::from_parts(parts, Body::empty());
    };
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(plain.len() / 8), flate2::Compression::fast());
    let Ok(zipped) = encoder.write_all(&plain).and_then(|()| encoder.finish()) else {
        return Response::from_parts(parts, Body::from(plain));
    };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::from(zipped))
}

/// One object's bytes, as its kind lays them out.
pub(crate) fn object_bytes(object: &Object, custom: bool) -> Vec<u8> {
    match object {
        Object::Stored(entry) => entry.bytes().into(),
        Object::Made(value) if value["kind"] == "Status" && value["apiVersion"] == "v1" => {
            wire::in_order(value, &wire::STATUS)
        }
        Object::Made(value) => wire::to_vec(value, custom),
    }
}

/// Adds `Warning: 299` headers: each text once, and not more of them than clients take (`k8s.io/apiserver/pkg/endpoints/filters`).
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let all: usize = warnings.iter().map(|text| text.chars().count()).sum();
    let each = if all > WARNINGS_MAX { WARNING_MAX } else { usize::MAX };
    let mut seen = BTreeSet::new();
    let mut left = WARNINGS_MAX;
    for text in warnings {
        let text: String = text.chars().take(each).collect();
        if !seen.insert(text.clone()) {
            continue;
        }
        let Some(rest) = left.checked_sub(text.chars().count()) else { break };
        left = rest;
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{clean}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Warns of this before all that the response warns of already.
pub(crate) fn warn_first(response: &mut Response<Body>, warning: &str) {
    let others: Vec<HeaderValue> = response.headers().get_all(header::WARNING).iter().cloned().collect();
    response.headers_mut().remove(header::WARNING);
    warn(response, &[warning.to_owned()]);
    let first = response.headers().get(header::WARNING).cloned();
    for other in others.into_iter().filter(|other| Some(other) != first.as_ref()) {
        response.headers_mut().append(header::WARNING, other);
    }
}

/// An answer of the core about one object.
pub(crate) fn object(answer: &Answer, custom: bool, accepted: &Accepted) -> Response<Body> {
    let mut response = encode(answer.code, object_bytes(&answer.object, custom), accepted);
    warn(&mut response, &answer.warnings);
    response
}

/// An answer of the core about one object, to who takes the object as it is held.
pub(crate) fn handed(answer: &Answer, custom: bool) -> Response<Body> {
    let mut response = response(answer.code, "application/json", Bytes::new());
    response.extensions_mut().insert(answer.object.packed(custom));
    warn(&mut response, &answer.warnings);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_have_a_bound() {
        let warned = |warnings: &[String]| {
            let mut response = response(200, "application/json", "{}");
            warn(&mut response, warnings);
            response.headers().get_all(header::WARNING).iter().map(|value| value.len()).collect::<Vec<_>>()
        };
        let many: Vec<String> = (0..100_000).map(|i| format!("unknown field \"spec.f{i}\"")).collect();
        let told = warned(&many);
        assert!(told.len() > 100 && told.iter().sum::<usize>() < 8192, "{told:?}");
        assert_eq!(warned(&["x".repeat(100_000)]), [WARNING_MAX + "299 - \"\"".len()]);
        assert_eq!(warned(&["a".to_owned(), "a".to_owned()]).len(), 1);
    }
}
