//! What patches make of objects, and patches that are refused.

use super::*;
use crate::schema::{PatchStrategy, Type};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

fn object(properties: &[(&str, Schema)]) -> Schema {
    Schema {
        kind: Type::Object,
        properties: properties.iter().map(|(name, s)| ((*name).to_owned(), Arc::new(s.clone()))).collect(),
        ..<Schema as Default>::default()
    }
}

fn list(key: Option<&str>, items: Schema) -> Schema {
    Schema {
        kind: Type::Array,
        items: Some(Arc::new(items)),
        patch: PatchStrategy { merge: true, merge_key: key.map(str::to_owned), ..PatchStrategy::default() },
        ..<Schema as Default>::default()
    }
}

fn pod() -> Schema {
    let env = list(Some("name"), object(&[]));
    let atomic = Schema { kind: Type::Array, ..<Schema as Default>::default() };
    let container = object(&[("env", env), ("args", atomic)]);
    object(&[
        ("containers", list(Some("name"), container)),
        ("finalizers", list(None, <Schema as Default>::default())),
        ("volumes", list(Some("name"), object(&[]))),
    ])
}

#[test]
fn merges() {
    let named = |names: &[&str]| Value::from(names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>());
    let cases = [
        // The worked example of the weave: a new element precedes those that the patch does not name.
        (
            json!({"containers":[{"name":"n","env":[{"name":"INIT","value":"a"},{"name":"PATH","value":"b"}]}]}),
            json!({"containers":[{"name":"n","env":[{"name":"INIT","value":"c"},{"name":"NEW","value":"d"}]}]}),
            json!({"containers":[{"name":"n","env":[
                {"name":"INIT","value":"c"},{"name":"NEW","value":"d"},{"name":"PATH","value":"b"}]}]}),
        ),
        // Naming one element does not move it.
        (
            json!({"containers":named(&["a","b","c"])}),
            json!({"containers":named(&["b"])}),
            json!({"containers":named(&["a","b","c"])}),
        ),
        (
            json!({"containers":named(&["a","b"])}),
            json!({"containers":named(&["z"])}),
            json!({"containers":named(&["z","a","b"])}),
        ),
        // Lists without strategy are replaced, nulls delete, nested nulls of new values are dropped.
        (
            json!({"containers":[{"name":"a","args":["1","2"],"x":1}]}),
            json!({"containers":[{"name":"a","args":["3"],"x":null}]}),
            json!({"containers":[{"name":"a","args":["3"]}]}),
        ),
        (json!({}), json!({"a":{"b":null,"c":1},"d":null}), json!({"a":{"c":1}})),
        // Sets of scalars.
        (json!({"finalizers":["a","b"]}), json!({"finalizers":["c","a"]}), json!({"finalizers":["c","a","b"]})),
        (
            json!({"finalizers":["a","b","c"]}),
            json!({"$deleteFromPrimitiveList/finalizers":["b","x"]}),
            json!({"finalizers":["a","c"]}),
        ),
        (json!({}), json!({"$deleteFromPrimitiveList/finalizers":["b"]}), json!({})),
        (
            json!({"finalizers":["a","b","c"]}),
            json!({"$setElementOrder/finalizers":["c","a"]}),
            json!({"finalizers":["b","c","a"]}),
        ),
        // Directives in elements.
        (
            json!({"containers":named(&["a","b"])}),
            json!({"containers":[{"$patch":"delete","name":"a"},{"$patch":"delete","name":"q"}]}),
            json!({"containers":named(&["b"])}),
        ),
        (
            json!({"containers":named(&["a","b"])}),
            json!({"containers":[{"$patch":"replace"},{"name":"z"}]}),
            json!({"containers":named(&["z"])}),
        ),
        // Directives in objects.
        (json!({"n":{"a":1,"b":2}}), json!({"n":{"$patch":"replace","c":3}}), json!({"n":{"c":3}})),
        (json!({"n":{"a":1}}), json!({"n":{"$patch":"delete"}}), json!({"n":{}})),
        (json!({}), json!({"n":{"$patch":"merge","d":4}}), json!({})),
        // Order.
        (
            json!({"containers":named(&["a","b","c"])}),
            json!({"$setElementOrder/containers":named(&["c","a","b"]),"containers":[{"name":"a","x":1}]}),
            json!({"containers":[{"name":"c"},{"name":"a","x":1},{"name":"b"}]}),
        ),
        (
            json!({"containers":named(&["c","a","b"])}),
            json!({"$setElementOrder/containers":named(&["d","a"]),"containers":[{"name":"d"}]}),
            json!({"containers":named(&["d","c","a","b"])}),
        ),
        // What takes a deleted element's place in the list counts as standing there.
        (
            json!({"containers":named(&["b","a","c"])}),
            json!({"$setElementOrder/containers":named(&["a","c","d"]),"containers":[
                {"$patch":"delete","name":"a"},{"$patch":"delete","name":"c"},{"name":"d"}]}),
            json!({"containers":named(&["b","d"])}),
        ),
        // A union's other member goes.
        (
            json!({"volumes":[{"name":"v","emptyDir":{}}]}),
            json!({"volumes":[{"name":"v","$retainKeys":["name","configMap"],"configMap":{"name":"x"}}]}),
            json!({"volumes":[{"name":"v","configMap":{"name":"x"}}]}),
        ),
    ];
    for (doc, patch, expected) in cases {
        assert_eq!(apply(&doc, &patch, &pod()), Ok(expected), "{doc} with {patch}");
    }
}

#[test]
fn elements_of_several_types_are_shown_with_their_lists() {
    let (live, patch) = (json!({"containers": [{"name": "a"}]}), json!({"containers": [{"name": "b"}, "x"]}));
    let refused = apply(&live, &patch, &pod()).expect_err("must be refused").to_string();
    assert_eq!(refused, "list element types are not identical: [[map[name:a]] [map[name:b] x]]");
}

#[test]
fn refuses() {
    let cases = [
        (json!({"containers":[]}), json!([]), 400),
        (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"x":1}]}), 500),
        (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"$patch":"explode","name":"a"}]}), 500),
        (json!({"containers":[{"name":"a"}]}), json!({"containers":[{"$patch":"merge","name":"a"}]}), 500),
        (json!({"n":{}}), json!({"n":{"$patch":"merge"}}), 500),
        (json!({"n":{"a":1}}), json!({"n":{"$retainKeys":["b"],"c":1}}), 400),
        (json!({"n":{"a":1}}), json!({"n":{"$retainKeys":"b"}}), 400),
        (json!({"finalizers":["a"]}), json!({"finalizers":[["b"]]}), 500),
        (json!({"finalizers":[]}), json!({"finalizers":[["b"]]}), 422),
        (json!({}), json!({"finalizers":[],"$setElementOrder/finalizers":["a"]}), 500),
        (
            json!({"containers":[{"name":"a"}]}),
            json!({"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}),
            500,
        ),
    ];
    for (doc, patch, code) in cases {
        let error = apply(&doc, &patch, &pod()).expect_err("must be refused");
        assert_eq!(error.code(), code, "{doc} with {patch}: {error}");
    }
}

/// As [`order_after_merge`], as upstream does it: in place, looking at each element for each of the patch.
fn order_in_place(mut list: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let visible = list.len();
    let mut length = visible;
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_owned);
    for item in patch.iter().filter(|item| directive(item).as_deref() == Some("delete")) {
        while let Some(at) = list[..length].iter().position(|other| other.get(key) == item.get(key)) {
            for i in at..length - 1 {
                list[i] = list[i + 1].clone();
            }
            length -= 1;
        }
    }
    if !patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        for item in patch.iter().filter(|item| directive(item).is_none()) {
            if !list[..length].iter().any(|other| other.get(key) == item.get(key)) {
                match list.get_mut(length) {
                    Some(place) => *place = item.clone(),
                    None => list.push(item.clone()),
                }
                length += 1;
            }
        }
    }
    list.truncate(visible);
    list
}

/// The elements of two lists merged, each looked for among all.
fn merge_by_search(live: &[Value], patch: &[Value], key: &str) -> Vec<Value> {
    let position = |list: &[Value], item: &Value| list.iter().position(|other| other.get(key) == item.get(key));
    let mut merged = live.to_vec();
    for change in patch {
        match position(&merged, change) {
            Some(at) => {
                let Value::Object(found) = std::mem::take(&mut merged[at]) else { panic!("elements are objects") };
                let members = change.as_object().expect("elements are objects");
                merged[at] = Value::Object(merge_object(found, members, &UNKNOWN).expect("no directives"));
            }
            None => merged.push(change.clone()),
        }
    }
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(patch, item).is_some());
    named.sort_by_key(|item| position(patch, item));
    others.sort_by_key(|item| position(live, item).unwrap_or(usize::MAX));
    let mut out = Vec::new();
    while let (Some(other), Some(name)) = (others.first(), named.first()) {
        let first = matches!((position(live, other), position(live, name)), (Some(o), Some(n)) if o < n);
        out.push(if first { others.remove(0) } else { named.remove(0) });
    }
    out.extend(named.into_iter().chain(others));
    out
}

fn elements(directives: bool) -> impl Strategy<Value = Vec<Value>> {
    let one = (0..6u8, 0..9u8, any::<bool>()).prop_map(move |(name, value, directive)| {
        if directives && directive {
            json!({"$patch": "delete", "name": name})
        } else {
            json!({"name": name, "value": value})
        }
    });
    prop::collection::vec(one, 0..10)
}

proptest! {
    #[test]
    fn lists_are_ordered_as_upstream_does_in_place(live in elements(false), patch in elements(true)) {
        prop_assert_eq!(order_after_merge(live.clone(), &patch, "name"), order_in_place(live, &patch, "name"));
    }

    #[test]
    fn lists_are_merged_as_by_searching_them(live in elements(false), patch in elements(false)) {
        prop_assume!(!live.is_empty() || !patch.is_empty());
        let found = merge_field_list(live.clone(), &patch, &list(Some("name"), object(&[])));
        prop_assert_eq!(found, Ok(merge_by_search(&live, &patch, "name")));
    }
}

#[test]
fn a_patch_is_shown_as_it_was_used() {
    let element = list(Some("name"), object(&[]));
    let whole = Schema { patch: PatchStrategy { replace: true, ..PatchStrategy::default() }, ..object(&[]) };
    let schema = object(&[("spec", object(&[("a", object(&[])), ("l", element)])), ("whole", whole)]);
    let doc = json!({"spec": {"a": {"x": 1}, "l": [{"name": "v"}]}, "whole": {"a": 1}});
    assert_eq!(apply(&doc, &json!({"whole": {"b": null}}), &schema).expect("a patch")["whole"], json!({"b": null}));
    let cases = [
        (json!({"spec": {"$patch": "replace", "a": {"x": null}}}), "map[spec:map[a:map[x:<nil>]]]"),
        (json!({"spec": {"l": [{"$retainKeys": ["name"], "name": "v"}]}}), "map[spec:map[l:[map[name:v]]]]"),
        (json!({"spec": {"l": [{"name": "v", "$patch": "delete"}]}}), "map[spec:map[l:[map[$patch:delete name:v]]]]"),
        (json!({"spec": {"b": 1, "l": [{"name": "v"}], "$setElementOrder/l": [{"name": "v"}]}}), "map[spec:map[b:1]]"),
        (json!({"whole": {"b": null}, "n": null}), "map[n:<nil> whole:map[b:<nil>]]"),
        (json!({"new": {"$patch": "replace", "b": null, "c": 1}}), "map[new:map[$patch:replace c:1]]"),
        (json!({"new": {"l": [{"name": "v", "$patch": "delete"}, {"n": null}]}}), "map[new:map[l:[map[]]]]"),
        (json!({"spec": 5, "l": [{"name": "v", "$patch": "delete"}]}), "map[l:[map[$patch:delete name:v]] spec:5]"),
    ];
    for (patch, text) in cases {
        assert_eq!(shown(&doc, &patch, &schema), text);
    }
}
