//! Reads a page of a list, of each object no more than is wanted.

use kube::core::ListMeta;
use objects::take::{Take, Taking};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    pub items: Vec<Value>,
    /// Where the next one begins, unless this is the last.
    pub rest: Option<String>,
}

/// Reads the text of an answer.
///
/// Errors: it is no list.
pub(crate) fn read(text: &str, take: fn(&str) -> Take) -> serde_json::Result<Page> {
    Reading(take).deserialize(&mut serde_json::Deserializer::from_str(text))
}

struct Reading(fn(&str) -> Take);

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Page, A::Error> {
        let mut page = Page { items: Vec::new(), rest: None };
        while let Some(name) = members.next_key::<String>()? {
            match name.as_str() {
                "metadata" => {
                    let meta: ListMeta = members.next_value()?;
                    page.rest = meta.continue_.filter(|next| !next.is_empty());
                }
                "items" => {
                    if let Value::Array(items) = members.next_value_seed(Taking(self.0))? {
                        page.items = items;
                    }
                }
                _ => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_has_what_is_wanted_and_says_whether_there_are_more() {
        let name = |member: &str| if member == "name" { Take::All } else { Take::Nothing };
        let text = json!({"kind": "PodList", "metadata": {"continue": "x", "resourceVersion": "1"},
            "items": [{"name": "a", "more": [1]}, {"name": "b"}]});
        let page = read(&text.to_string(), name).unwrap();
        assert_eq!((page.items, page.rest.as_deref()), (vec![json!({"name": "a"}), json!({"name": "b"})], Some("x")));
        for last in [json!({"metadata": {"continue": ""}, "items": null}), json!({"metadata": {}, "items": []})] {
            let page = read(&last.to_string(), name).unwrap();
            assert!(page.items.is_empty() && page.rest.is_none());
        }
        assert!(read("[]", name).is_err() && read("{\"items\"", name).is_err());
    }
}
