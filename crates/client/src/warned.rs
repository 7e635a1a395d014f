//! Warnings of the API server (the header `Warning`), each once.

use http::{HeaderMap, Response};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tower::util::MapResponseLayer;

/// A layer of a client that calls `tell` with each new warning of an answer.
pub(crate) fn layer<B>(tell: fn(&str)) -> MapResponseLayer<impl Fn(Response<B>) -> Response<B> + Clone> {
    let told: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    MapResponseLayer::new(move |response: Response<B>| {
        for warning in warnings(response.headers()) {
            if told.lock().unwrap_or_else(PoisonError::into_inner).insert(warning.clone()) {
                tell(&warning);
            }
        }
        response
    })
}

/// The texts of `299 AGENT "TEXT"` (RFC 7234).
fn warnings(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    values.filter_map(text_of).collect()
}

fn text_of(value: &str) -> Option<String> {
    let quoted = value.strip_prefix("299 ")?.split_once('"')?.1;
    let mut text = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next()),
            '"' => return Some(text),
            letter => text.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_between_quotes() {
        let mut headers = HeaderMap::new();
        for value in
            [r#"299 - "numNodes is 1, but \"2 pods\" run""#, r#"299 - "other""#, r#"110 - "stale""#, r#"299 - "cut"#]
        {
            headers.append("warning", value.parse().unwrap());
        }
        assert_eq!(warnings(&headers), ["numNodes is 1, but \"2 pods\" run", "other"]);
    }
}
