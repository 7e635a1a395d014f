//! Schemas that are refused, and why.

use super::*;
use serde_json::json;

fn texts(schema: &Value) -> Vec<String> {
    let mut texts: Vec<String> = check(schema, &Path::new("s"))
        .iter()
        .map(|e| e.to_string().replacen("s.properties[spec].properties[x]", "X", 9))
        .collect();
    texts.sort();
    texts
}

fn of_x(x: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": x}}}})
}

#[test]
fn refuses_what_is_not_structural() {
    let cases: Vec<(Value, &[&str])> = vec![
        (
            json!({"properties": {"spec": {"type": "object"}}}),
            &["s.type: Required value: must not be empty at the root"],
        ),
        (
            json!({"type": "array", "items": {"type": "object"}}),
            &["s.type: Invalid value: \"array\": must be object at the root"],
        ),
        (of_x(json!({})), &["X.type: Required value: must not be empty for specified object fields"]),
        (
            of_x(json!({"type": "thing"})),
            &[
                "X.type: Unsupported value: \"thing\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
               \"object\", \"string\"",
            ],
        ),
        (of_x(json!({"type": "array"})), &["X.items: Required value: must be specified"]),
        (
            of_x(json!({"type": "array", "items": {}})),
            &["X.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            of_x(
                json!({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}}),
            ),
            &["X.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
        ),
        (of_x(json!({"$ref": "#/definitions/y"})), &["X.$ref: Forbidden: $ref is not supported"]),
        (
            of_x(json!({"anyOf": [{"type": "integer"}, {"type": "string"}]})),
            &["X.type: Required value: must not be empty for specified object fields"],
        ),
        (of_x(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})), &[]),
        (
            of_x(json!({"type": "object", "properties": {"a": {"type": "string"}},
                "anyOf": [{"properties": {"a": {"type": "string"}}}]})),
            &["X.anyOf[0].properties[a].type: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]}),
            &["s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]"],
        ),
        (of_x(json!({"type": "object", "anyOf": [{"properties": {"a": {"minLength": 1}}}]})), &[]),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            &[
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata \
               is implicitly specified",
            ],
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
            &[],
        ),
        (
            of_x(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}})),
            &[
                "X.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        ),
        (
            of_x(json!({"type": "string", "pattern": "(["})),
            &[
                "X.pattern: Invalid value: \"([\": must be a valid regular expression, but isn't: error parsing regexp: \
               missing closing ]: `[`",
            ],
        ),
        (
            of_x(json!({"type": "integer", "default": "s"})),
            &["X.default: Invalid value: \"string\":  in body must be of type integer: \"string\""],
        ),
        (
            of_x(json!({"type": "integer", "default": 1, "minimum": 5})),
            &["X.default: Invalid value: 1:  in body should be greater than or equal to 5"],
        ),
        (
            of_x(json!({"type": "object", "default": {"b": "pruned"}, "properties": {"a": {"type": "string"}}})),
            &["X.default: Invalid value: {\"b\":\"pruned\"}: must not have unknown fields"],
        ),
        (
            of_x(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
            &["X.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
               x-kubernetes-preserve-unknown-fields"],
        ),
        (
            of_x(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
            &["X.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
        ),
        (
            of_x(json!({"type": "array", "x-kubernetes-list-type": "map",
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}})),
            &["X.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"],
        ),
        (
            of_x(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}})),
            &[
                "X.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
               have a default or be a required property",
            ],
        ),
        (
            of_x(json!({"type": "array", "x-kubernetes-list-type": "heap", "items": {"type": "string"}})),
            &["X.x-kubernetes-list-type: Unsupported value: \"heap\": supported values: \"atomic\", \"set\", \"map\""],
        ),
        (
            of_x(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}})),
            &["X.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
               x-kubernetes-list-type=set"],
        ),
    ];
    for (schema, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|e| (*e).to_owned()).collect();
        assert_eq!(texts(&schema), expected, "{schema}");
    }
}

#[test]
fn refuses_bad_rules() {
    let rule = |kind: &str, rule: Value| of_x(json!({"type": kind, "x-kubernetes-validations": [rule]}));
    let fields = |schema: &Value| -> Vec<String> {
        check(schema, &Path::new("s"))
            .iter()
            .map(|e| {
                e.field.to_string().replacen("s.properties[spec].properties[x].x-kubernetes-validations[0].", "", 1)
            })
            .collect()
    };
    let cases = [
        (rule("string", json!({"rule": "self =="})), vec!["rule"]),
        (rule("string", json!({"rule": "self > 5"})), vec!["rule"]),
        (rule("string", json!({"rule": "self"})), vec!["rule"]),
        (rule("string", json!({"rule": "other == 'a'"})), vec!["rule"]),
        (rule("string", json!({"rule": "self.foo() == 'a'"})), vec!["rule"]),
        (rule("string", json!({"rule": ""})), vec!["rule"]),
        (rule("string", json!({"rule": "true", "message": "two\nlines"})), vec!["message"]),
        (rule("string", json!({"rule": "true", "reason": "Because"})), vec!["reason"]),
        (rule("string", json!({"rule": "true", "fieldPath": ".nope"})), vec!["fieldPath"]),
        (rule("string", json!({"rule": "true", "messageExpression": "5"})), vec!["messageExpression"]),
        (rule("string", json!({"rule": "self == 'a'", "optionalOldSelf": true})), vec!["optionalOldSelf"]),
        (rule("string", json!({"rule": "self == oldSelf"})), vec![]),
        (
            rule("string", json!({"rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true})),
            vec![],
        ),
        (rule("integer", json!({"rule": "self.a == 1"})), vec!["rule"]),
    ];
    for (schema, expected) in cases {
        assert_eq!(fields(&schema), expected, "{schema}");
    }
    let in_list = of_x(json!({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3,
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}));
    assert_eq!(
        texts(&in_list),
        [
            "X.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the \
          uncorrelatable portion of the schema within X"
        ]
    );
}

/// A map may also have members of its own, each of which then counts as often as the map may have parts.
#[test]
fn rules_below_lists_and_maps_cost_as_often_as_they_run() {
    let rule = json!([{"rule": "self == oldSelf"}]);
    let text = json!({"type": "string", "maxLength": 1000, "x-kubernetes-validations": rule});
    let of = |node: Value, rest: Value| {
        let mut node = node;
        node.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        of_x(node)
    };
    let own = json!({"properties": {"a": text}});
    let cases = [
        (of(json!({"type": "object"}), own.clone()), false),
        (of(json!({"type": "object", "additionalProperties": true}), own.clone()), true),
        (of(json!({"type": "object", "additionalProperties": true, "maxProperties": 2}), own), false),
        (of(json!({"type": "object", "additionalProperties": text}), json!({})), true),
        (of(json!({"type": "object", "additionalProperties": text, "maxProperties": 2}), json!({})), false),
    ];
    for (schema, expensive) in cases {
        let found = texts(&schema);
        assert_eq!(found.iter().any(|text| text.contains("exceeds budget")), expensive, "{schema} {found:?}");
    }
}

#[test]
fn definitions_that_multiply_are_refused_in_time() {
    let patterns: serde_json::Map<String, Value> =
        (0..3).map(|i| (format!("p{i}"), json!({"type": "string", "pattern": format!("{i}\\pL{{900}}")}))).collect();
    let faults = check(&json!({"type": "object", "properties": patterns}), &Path::new("s"));
    assert!(
        faults.len() == 1 && faults[0].detail.starts_with("the patterns of the schema are too large"),
        "{faults:?}"
    );
}

/// Two of them would each be allowed.
#[test]
fn defaults_take_their_steps_together() {
    let branches: Vec<Value> = (0..100).map(|i| json!({"maxLength": i})).collect();
    let items = json!({"type": "string", "allOf": branches});
    let default = json!({"type": "array", "items": items, "default": vec![""; 100]});
    for (schema, allowed) in [(json!({"a": default}), true), (json!({"a": default, "b": default}), false)] {
        let (steps, mut faults) = (Steps::of(30_000), ErrorList::new());
        let schema = json!({"type": "object", "properties": schema});
        default_faults(&schema, &Path::new("s"), &steps, &mut faults);
        assert_eq!((faults, steps.spent(&Path::new("s")).is_none()), (Vec::new(), allowed));
    }
}
