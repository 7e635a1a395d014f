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

fn scope(schema: &Schema) -> Scope<'_> {
    Scope { schema, root: true, optional_old: false }
}

fn rule_of(rule: &str) -> Result<Accepted, String> {
    check_rule(rule, scope(&schema())).map_err(|error| error.to_string())
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
        "self.spec.l.transformList(i, x, i > 0, x + 'a').size() == 1 && self.spec.l.all(i, x, i < 5 || x == '')",
        "self.spec.l.sortBy(x, x.size())[0] == 'a' && self.spec.?s.optMap(x, x + '!').orValue('') == 'a!'",
        "sets.contains(self.spec.l, ['a']) && self.spec.s in ['a', 'b'] && size(self.spec.l) == 1",
        "self.spec.s.matches('^a') && duration(self.spec.s) <= duration('1h') && self.spec.i % 2 == 0",
        "[1, 2, 3].map(x, x * 2).sum() == 12 && self.spec.s.split(',').exists_one(x, x == 'a')",
    ];
    for rule in rules {
        assert!(rule_of(rule).is_ok(), "{rule}: {:?}", rule_of(rule));
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
        "self.spec.free.anything == 5",
        "self.metadata.labels.size() == 0",
        "cel.bind(x, self.spec.i, x > 1)",
        "dyn(self.spec.s)",
        "quantity(self.spec.s).sign() == 1",
        "[1, 'a'].size() == 2",
        "self.spec.s.matches('(')",
        "duration(self.spec.s) > duration('5 parsecs')",
    ];
    for rule in rules {
        assert!(rule_of(rule).is_err(), "{rule}");
    }
    assert!(check_message("5", scope(&schema())).is_err());
    assert!(check_message("'a' + self.spec.s", scope(&schema())).is_ok());
}

#[test]
fn says_where_and_why() {
    // in the words of a live kube-apiserver
    let cases = [
        (
            "self.spec.s == 1",
            "1:13: found no matching overload for '_==_' applied to '(string, int)'\n | self.spec.s == 1\n | ............^",
        ),
        ("has(self.spec.b)", "1:4: undefined field 'b'\n | has(self.spec.b)\n | ...^"),
        ("self.spec.s.x", "1:12: type 'string' does not support field selection\n | self.spec.s.x\n | ...........^"),
        (
            "self.spec.s.all(x, x == 'a')",
            "1:10: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)\n \
             | self.spec.s.all(x, x == 'a')\n | .........^",
        ),
        (
            "self.spec.s.matches('(')",
            "1:21: invalid matches argument\n | self.spec.s.matches('(')\n | ....................^",
        ),
        ("for", "1:1: reserved identifier: for\n | for\n | ^"),
        (
            "a || b",
            "1:1: undeclared reference to 'a' (in container '')\n | a || b\n | ^\n\
             ERROR: <input>:1:6: undeclared reference to 'b' (in container '')\n | a || b\n | .....^",
        ),
    ];
    for (rule, why) in cases {
        assert_eq!(rule_of(rule).map(|_| ()), Err(format!("compilation failed: ERROR: <input>:{why}")), "{rule}");
    }
}
