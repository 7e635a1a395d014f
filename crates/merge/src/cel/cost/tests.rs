//! What rules cost, as a live kube-apiserver says.

use super::*;
use crate::cel::{Scope, check_rule};
use serde_json::{Value, json};

fn cost(schema: Value, rule: &str) -> u64 {
    let schema = Schema::node_from_openapi(&schema).expect("a schema");
    let accepted = check_rule(rule, Scope { schema: &schema, root: false, optional_old: false });
    accepted.unwrap_or_else(|why| panic!("{rule}: {why}")).cost
}

#[test]
fn bounds_of_the_schema_bound_costs() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let few = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 30}});
    assert!(cost(texts, "self.all(x, self.all(y, x == y))") > 1_000_000_000_000);
    assert!(cost(few, "self.all(x, self.all(y, x == y))") < 10_000);
    // nobody says how long the text of a number is, and adding to it copies it
    let number = json!({"type": "integer"});
    assert!(cost(number.clone(), "string(self) + '!' == 'a'") > 1_000_000_000_000);
    assert_eq!(cost(number, "self + self > 2"), 4);
    assert_eq!(cost(json!({"type": "string", "maxLength": 20}), "self + '!' == 'a'"), 1 + 9 + 1);
}

#[test]
fn rules_run_for_each_element() {
    let inside = Cardinality::once().times(Some(10));
    assert_eq!(inside.total(7, &<Schema as Default>::default()), 70);
    let text = Schema::node_from_openapi(&json!({"type": "string"})).expect("a schema");
    assert_eq!(inside.times(None).total(2, &text), 2 * (REQUEST_BYTES_MAX / 3));
}

#[test]
fn fields_have_their_bounds() {
    let spec = json!({"type": "object", "additionalProperties": true, "properties": {
        "name": {"type": "string", "maxLength": 12},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 20}},
    }});
    assert_eq!(cost(spec.clone(), "self.name == oldSelf.name"), 4 + 5);
    assert_eq!(cost(spec.clone(), "self.tags.all(t, size(t) < 10)"), 2 + 3 * (2 + 4) + 1);
    assert_eq!(cost(spec, "!has(self.name) || self.name == oldSelf.name"), 2 + 4 + 5);
}
