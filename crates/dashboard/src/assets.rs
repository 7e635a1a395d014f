//! The pages: built by `make web`, compressed, and a part of this binary. Where they were not built, a page says so.

use crate::guard::policy;
use crate::sessions::Secret;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderValue, StatusCode, Uri};

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// What stands in the page for the nonce of this answer.
const NONCE: &str = "{{nonce}}";
/// The page that all others begin with.
const INDEX: &str = "index.html";

const NOT_BUILT: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Trainyard</title></head><body>\
<h1>The pages of the dashboard are missing</h1><p>This binary was built without them, because Node.js was missing. Install Node.js 20 or \
newer, run <code>make release</code>, and start the control plane again. The command line works without them: \
<code>trainyard get</code>.</p></body></html>";

fn file(path: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes)
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        "png" => "image/png",
        "json" => "application/json",
        "html" => "text/html; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// A file of the pages. Addresses of pages lead to the first page, which knows them.
pub async fn serve(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    if let Some(name) = path.strip_prefix("assets/") {
        // their names change with what they hold
        let found = file(&format!("assets/{name}.gz")).map(|bytes| (bytes, true));
        return match found.or_else(|| file(path).map(|bytes| (bytes, false))) {
            Some((bytes, is_compressed)) => {
                let mut response = Body::from(bytes).into_response();
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
                if is_compressed {
                    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                }
                response
            }
            None => (StatusCode::NOT_FOUND, "no such file").into_response(),
        };
    }
    page()
}

fn page() -> Response {
    let nonce = Secret::new().map(|secret| secret.shown().to_owned()).unwrap_or_default();
    let text = match file(INDEX) {
        Some(bytes) => String::from_utf8_lossy(bytes).replace(NONCE, &nonce),
        None => NOT_BUILT.to_owned(),
    };
    let mut response = Body::from(text).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let policy = HeaderValue::from_str(&policy(&nonce)).expect("invariant: hexadecimal fits into a header");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    response
}
