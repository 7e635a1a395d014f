//! Expressions that may stand in a CRD, and those that may not.

use super::*;
use serde_json::json;

fn schema() -> Schema {
    Schema::from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "s": {"type": "string"}, "i": {"type": "integer"}, "l": {"type": "array", "items": {"type": "string"}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}}, "q": {"x-kubernetes-int-or-string": true},
        "o": {"type": "object", "properties": {"a-b": {"type": "string"}, "t": {"type": "string", "format": "date-time"}}},
        "free": {"x-kubernetes-preserve-unknown-fields": true}
    }}}}))
    .expect("a schema")
}

#[test]
fn admits() {
    let rules = [
        "self.spec.s == 'x' && self.spec.i > 5",
        "self.metadata.name.size() < 10 && self.apiVersion.endsWith('/v1')",
        "has(self.spec.o) && self.spec.o.a__dash__b == ''",
        "self.spec.l.all(x, x.startsWith('a')) && self.spec.l.exists(x, x == 'b')",
        "self.spec.l.map(x, x.size()).sum() > 3 && self.spec.l.filter(x, x != '').size() == 1",
        "self.spec.m.all(k, self.spec.m[k] > 1) && 'a' in self.spec.m",
        "type(self.spec.q) == int ? self.spec.q < 10 : self.spec.q == 'lots'",
        "self.spec.o.t < timestamp('2024-01-01T00:00:00Z')",
        "self.spec.?s.orValue('') == 'x' && oldSelf.spec.s == self.spec.s",
        "quantity(self.spec.s).isLessThan(quantity('1Gi')) && url(self.spec.s).getHost() == 'x'",
        "!format.dns1123Label().validate(self.spec.s).hasValue()",
        "self.spec.free.anything.goes == 5 && cel.bind(x, self.spec.i, x > 1)",
        "sets.contains(self.spec.l, ['a']) && self.spec.s in ['a', 'b'] && size(self.spec.l) == 1",
        "self.spec.s.matches('^a') && duration(self.spec.s) <= duration('1h') && self.spec.i % 2 == 0",
        "[1, 2, 3].map(x, x * 2).sum() == 12 && self.spec.s.split(',').exists_one(x, x == 'a')",
    ];
    for rule in rules {
        assert!(check_rule(rule, &schema(), false).is_ok(), "{rule}: {:?}", check_rule(rule, &schema(), false));
    }
}

#[test]
fn refuses() {
    let rules = [
        "self.spec.s > 5",
        "self.spec.s",
        "other == 'a'",
        "self.spec.s.foo() == 'a'",
        "self.spec.nope == 1",
        "self.spec.i.contains('a')",
        "self.spec.i && true",
        "self.spec.l == 'x'",
        "self.spec.i.all(x, x)",
        "self.spec.s + 1 == 'a'",
        "!self.spec.s",
        "self ==",
    ];
    for rule in rules {
        assert!(check_rule(rule, &schema(), false).is_err(), "{rule}");
    }
    assert!(check_message("5", &schema()).is_err());
    assert!(check_message("'a' + self.spec.s", &schema()).is_ok());
}
