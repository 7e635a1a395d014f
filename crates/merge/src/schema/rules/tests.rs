//! Rules: their messages, transitions, and what may stay.

use super::*;
use serde_json::json;

fn texts(schema: &Value, value: &Value, old: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let schema = Schema::node_from_openapi(schema).expect("a schema");
    let found = schema.check(value, old, &Path::root());
    (found.errors.iter().map(ToString::to_string).collect(), found.warnings)
}

fn messages() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
    "properties": {
        "min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"},
        "my_field": {"type": "integer"}, "q": {"x-kubernetes-int-or-string": true},
        "hosts": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [
            {"rule": "self.endsWith('.example')", "message": "must be an example"}]}},
        "m": {"type": "object", "additionalProperties": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "self % 2 == 0", "message": "must be even"}]}}
    },
    "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min over max",
            "fieldPath": ".min", "reason": "FieldValueForbidden"},
        {"rule": "!has(self.name) || self.name.startsWith('a')",
            "messageExpression": "'name was ' + self.name + ', wants an a'", "fieldPath": ".name"},
        {"rule": "!has(self.q) || (type(self.q) == int ? self.q < 10 : self.q == 'lots')"},
        {"rule": "!has(self.name) || self.name != 'ax'", "messageExpression": "''", "message": "fallback"},
        {"rule": "!has(self.m) || !('need' in self.m) || has(self.name)", "reason": "FieldValueRequired",
            "fieldPath": ".name", "message": "name is needed"},
        {"rule": "!has(self.name) || self.name != 'adup'", "reason": "FieldValueDuplicate",
            "fieldPath": ".hosts", "message": "dup"},
        {"rule": "!has(self.my_field) || self.my_field > 1", "message": "my field"}
    ]}}})
}

#[test]
fn rules_speak_as_upstreams() {
    let cases = [
        (json!({"min": 1, "max": 2, "name": "abc", "hosts": ["a.example"], "m": {"k": 2}, "q": "lots"}), vec![]),
        (json!({"min": 3, "max": 2}), vec!["spec.min: Forbidden: min over max"]),
        (json!({"name": "bcd"}), vec!["spec.name: Invalid value: name was bcd, wants an a"]),
        (
            json!({"hosts": ["a.example", "b.test"]}),
            vec!["spec.hosts[1]: Invalid value: \"b.test\": must be an example"],
        ),
        (json!({"m": {"k": 1}}), vec!["spec.m[k]: Invalid value: 1: must be even"]),
        (
            json!({"q": 10}),
            vec![
                "spec: Invalid value: failed rule: !has(self.q) || (type(self.q) == int ? self.q < 10 : self.q == 'lots')",
            ],
        ),
        (json!({"name": "ax"}), vec!["spec: Invalid value: fallback"]),
        (json!({"m": {"need": 2}}), vec!["spec.name: Required value: name is needed"]),
        (json!({"name": "adup"}), vec!["spec.hosts: Duplicate value"]),
        (json!({"my_field": 1}), vec!["spec: Invalid value: my field"]),
        (
            json!({"min": "x"}),
            vec![
                "spec.min: Invalid value: \"string\": spec.min in body must be of type integer: \"string\"",
                "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation",
            ],
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(texts(&messages(), &json!({"spec": spec}), None).0, expected, "{spec}");
    }
}

#[test]
fn transitions_compare_with_what_was() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "field is immutable"}]},
        "up": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf",
            "messageExpression": "oldSelf > 9 ? 'may not shrink that far' : 'may not shrink'"}]},
        "opt": {"type": "string", "x-kubernetes-validations": [{"optionalOldSelf": true, "message": "stays",
            "rule": "oldSelf.hasValue() ? self == oldSelf.value() : self == 'start'"}]},
        "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"},
                "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}}
    }, "x-kubernetes-validations": [
        {"rule": "has(self.fixed) == has(oldSelf.fixed)", "message": "fixed may not come or go"}]}}});
    let old = json!({"spec": {"fixed": "a", "up": 3, "opt": "start", "items": [{"k": "1", "v": 5}]}});
    let with = |change: Value| crate::merge_patch::apply(&old, &json!({"spec": change}));
    let cases = [
        (with(json!({})), vec![]),
        (with(json!({"fixed": "b"})), vec!["spec.fixed: Invalid value: \"b\": field is immutable"]),
        (with(json!({"fixed": null})), vec!["spec: Invalid value: fixed may not come or go"]),
        (with(json!({"up": 2})), vec!["spec.up: Invalid value: 2: may not shrink"]),
        (with(json!({"opt": "end"})), vec!["spec.opt: Invalid value: \"end\": stays"]),
        (
            with(json!({"items": [{"k": "2", "v": 1}, {"k": "1", "v": 4}]})),
            vec!["spec.items[1].v: Invalid value: 4: failed rule: self >= oldSelf"],
        ),
    ];
    for (new, expected) in cases {
        assert_eq!(texts(&schema, &new, Some(&old)).0, expected, "{new}");
    }
    let created = json!({"spec": {"opt": "middle"}});
    assert_eq!(texts(&schema, &created, None).0, ["spec.opt: Invalid value: \"middle\": stays"]);
}

#[test]
fn what_did_not_change_may_stay() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 3}, "b": {"type": "string"},
        "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "string"}, "v": {"type": "string", "enum": ["ok"]}}}},
        "c": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'even'", "message": "must be even"}]}
    }}}});
    let old = json!({"spec": {"a": "long value", "l": [{"k": "1", "v": "bad"}, {"k": "2", "v": "ok"}], "c": "odd"}});
    let with = |change: Value| crate::merge_patch::apply(&old, &json!({"spec": change}));
    let warning = "spec.c: Invalid value: \"odd\": must be even".to_owned();
    for new in [with(json!({"b": "y"})), with(json!({"l": [{"k": "2", "v": "ok"}, {"k": "1", "v": "bad"}]}))] {
        assert_eq!(texts(&schema, &new, Some(&old)), (vec![], vec![warning.clone()]), "{new}");
    }
    let cases = [
        (with(json!({"a": "longer value"})), "spec.a: Too long: may not be more than 3 bytes"),
        (
            with(json!({"l": [{"k": "1", "v": "worse"}]})),
            "spec.l[0].v: Unsupported value: \"worse\": supported values: \"ok\"",
        ),
        (with(json!({"c": "odder"})), "spec.c: Invalid value: \"odder\": must be even"),
    ];
    for (new, expected) in cases {
        assert_eq!(texts(&schema, &new, Some(&old)).0[0], expected, "{new}");
    }
}

#[test]
fn field_paths_lead_into_the_schema() {
    let schema = Schema::node_from_openapi(&json!({"type": "object", "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "string"}, "c.d": {"type": "string"}}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "w": {"type": "object", "additionalProperties": true, "properties": {"x": {"type": "string"}}}}}))
    .expect("a schema");
    let cases = [
        (".a.b", Some("a.b")),
        (".a['c.d']", Some("a.c.d")),
        (".m['k']", Some("m[k]")),
        (".nope", None),
        ("a", None),
        (".w.x", Some("w.x")),
        (".w.nope", None),
    ];
    for (text, expected) in cases {
        assert_eq!(field_path(text, &schema).as_deref(), expected, "{text}");
    }
}

#[test]
fn rules_are_not_asked_of_what_is_refused_already() {
    use api::field::{Error, Path};
    let nameless = [Error::required(&Path::new("metadata").child("name"), "name or generateName is required")];
    let value = json!({"spec": {"name": "bcd"}});
    let schema = Schema::node_from_openapi(&messages()).expect("a schema");
    let details = |before: &[Error]| -> Vec<String> {
        schema.validate_new(&value, before).into_iter().map(|error| error.detail).collect()
    };
    assert_eq!(details(&[]), ["name was bcd, wants an a"]);
    assert!(
        matches!(details(&nameless).as_slice(), [only] if only.starts_with("some validation rules were not checked"))
    );
}
