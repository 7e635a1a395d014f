//! Faults: each told once, within bounds, and elements that are found again.

use super::*;
use proptest::prelude::*;
use serde_json::json;

/// As [`Correlation::of`], by looking at each element.
fn by_search<'a>(keys: &[&str], item: &Value, old: &'a [Value]) -> Option<&'a Value> {
    old.iter().find(|other| keys.iter().all(|key| other.get(key) == item.get(key)))
}

/// Elements times parts of their schema: 25 million faults once took 8 GB.
#[test]
fn faults_have_a_bound_and_hide_none_that_matters() {
    let names: Vec<String> = (0..2000).map(|n| format!("p{n}")).collect();
    let element = json!({"type": "object", "required": names});
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": names, "items": element,
    });
    let words: Vec<String> = (0..20_000).map(|n| format!("word{n}")).collect();
    let listed = json!({"type": "array", "items": {"type": "string", "enum": words}});
    for (schema, element) in [(keyed, json!({})), (listed, json!("other"))] {
        let schema = Schema::node_from_openapi(&schema).expect("a schema");
        let many = json!(vec![element.clone(); 2000]);
        let errors = schema.validate(&many, None, &Path::new("spec"));
        let bytes: usize = errors.iter().map(|error| error.detail.len()).sum();
        assert!(!errors.is_empty() && errors.len() <= FAULTS + 2 && bytes < 2 * FAULTS_BYTES, "{}", errors.len());
        // what was there before may stay, a fault that is new is found behind however many of those
        assert!(
            schema
                .validate(&many, Some(&many), &Path::new("spec"))
                .iter()
                .all(|e| e.kind.as_str() == "FieldValueDuplicate")
        );
    }
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}, "b": {"type": "integer"}}});
    let schema = Schema::node_from_openapi(&schema).expect("a schema");
    let old = json!({"a": vec!["y"; 5000], "b": 1});
    let new = json!({"a": vec!["y"; 5000], "b": "wrong"});
    assert_eq!(schema.validate(&new, Some(&old), &Path::root()).len(), 1);
}

proptest! {
    #[test]
    fn elements_correlate_as_by_searching_them(
        old in prop::collection::vec((0..4u8, 0..4u8, any::<bool>()), 0..12),
        new in prop::collection::vec((0..4u8, 0..4u8, any::<bool>()), 0..12),
    ) {
        let element = |(n, (port, protocol, given)): (usize, &(u8, u8, bool))| match given {
            true => json!({"port": port, "protocol": protocol, "n": n}),
            false => json!({"port": port, "n": n}),
        };
        let list = |of: &[(u8, u8, bool)]| of.iter().enumerate().map(element).collect::<Vec<Value>>();
        let schema = Schema::node_from_openapi(&json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object"},
        })).expect("a schema");
        let (old, new) = (list(&old), list(&new));
        let before = Value::from(old.clone());
        let correlation = Correlation::new(&schema, Some(&before));
        for item in &new {
            prop_assert_eq!(correlation.of(item), by_search(&["port", "protocol"], item, &old));
        }
    }
}

#[test]
fn a_fault_that_two_branches_find_is_told_once() {
    let schema = Schema::node_from_openapi(&json!({
        "type": "object", "properties": {"a": {"type": "string", "maxLength": 1}},
        "allOf": [{"properties": {"a": {"maxLength": 1}}}],
    }))
    .expect("a schema");
    let faults = schema.validate(&json!({"a": "long"}), None, &Path::root());
    let of_a: Vec<&Error> = faults.iter().filter(|fault| fault.field.as_str() == "a").collect();
    assert_eq!(of_a.len(), 1, "{faults:?}");
}
