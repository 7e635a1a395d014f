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

/// With a hundredth of the steps, as this build takes long for them all.
#[test]
fn what_multiplies_ends_at_a_bound() {
    let many = |n: usize| (0..n).map(|i| format!("v{i}").into()).collect::<Vec<Value>>();
    let branches = |n: usize| vec![json!({"minLength": 0}); n];
    let failing = |n: usize| [branches(n), vec![json!({"minLength": 1})]].concat();
    let array = |items: Value| json!({"type": "array", "items": items});
    for (schema, value, allowed) in [
        (array(json!({"type": "string", "enum": many(5000)})), json!(vec!["v4999"; 10]), true),
        (array(json!({"type": "string", "enum": many(5000)})), json!(vec!["v4999"; 1000]), false),
        (array(json!({"type": "string", "allOf": branches(10)})), json!(vec![""; 10_000]), true),
        (array(json!({"type": "string", "allOf": branches(1000)})), json!(vec![""; 10_000]), false),
        (array(json!({"type": "string", "not": {"allOf": failing(10)}})), json!(vec![""; 1000]), true),
        (array(json!({"type": "string", "not": {"allOf": failing(1000)}})), json!(vec![""; 10_000]), false),
        (json!({"type": "string", "pattern": "(a|b|ab)*c?"}), json!("ab".repeat(70_000)), true),
        (json!({"type": "string", "pattern": "[ab]*a[ab]{90}c"}), json!("ab".repeat(70_000)), false),
        (json!({"type": "string", "pattern": "[ab]*a[ab]{90}c?"}), json!("ab".repeat(1000)), true),
    ] {
        let schema = Schema::node_from_openapi(&schema).unwrap();
        // what is wrong already may stay, yet not unseen
        for old in [None, Some(&value)] {
            let steps = Steps::of(STEPS_MAX / 100);
            let mut faults = schema.validate_within(&steps, &value, old);
            let spent = steps.spent(&Path::new("f"));
            assert_eq!(spent.is_none(), allowed, "{schema:?} {faults:?}");
            faults.extend(spent);
            assert_eq!(faults.is_empty(), allowed, "{faults:?}");
        }
    }
}

#[test]
fn faults_with_long_values_are_few() {
    let schema =
        Schema::node_from_openapi(&json!({"type": "string", "allOf": (0..1000).map(|i| json!({"pattern": format!("^x{i}$")})).collect::<Vec<_>>()})).unwrap();
    let faults = schema.validate(&json!("a".repeat(100_000)), None, &Path::new("f"));
    assert!((2..20).contains(&faults.len()), "{}", faults.len());
}

#[test]
fn multiples_of_minus_one_are_judged() {
    let schema = Schema::node_from_openapi(&json!({"type": "integer", "multipleOf": -1})).unwrap();
    assert!(!schema.validate(&json!(i64::MIN), None, &Path::new("f")).is_empty());
}
