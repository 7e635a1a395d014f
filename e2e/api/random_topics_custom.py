"""More topics of `random_topics.py`: schemas, rules, columns, subresources and versions of custom resources, and definitions themselves."""

from __future__ import annotations

import copy

from random_api import PARTIAL, TABLE, Step
from random_topics import Rng, crd, delete, get, patch, post, put, some, topic, widget, widgets

TEXT, INT = {"type": "string"}, {"type": "integer"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# A field's schema, and values for it: right ones, odd ones, wrong ones.
FIELDS: list[tuple[dict, list]] = [
    ({"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "a", "abcde", "üüüü", "", 5, None]),
    ({"type": "string", "pattern": "^[a-z]+$"}, ["ab", "A", "", True]),
    ({"type": "string", "enum": ["a", "b"]}, ["a", "c", "", None, 1]),
    ({"type": "string", "enum": ["a", "b"], "nullable": True, "default": "a"}, ["b", "c", None]),
    ({"type": "string", "default": "d"}, ["x", None, 5]),
    ({"type": "string", "nullable": True}, [None, "x", 5]),
    ({"type": "integer", "minimum": 1, "maximum": 5}, [1, 0, 6, 1.0, 1.5, "1", None, 2**63]),
    ({"type": "integer", "exclusiveMinimum": True, "minimum": 1, "exclusiveMaximum": True, "maximum": 5}, [1, 2, 5]),
    ({"type": "integer", "multipleOf": 3}, [3, 4, 0, -6]), ({"type": "integer", "enum": [1, 2]}, [1, 3, "1"]), ({"type": "integer", "format": "int32"}, [1, 2**31, -(2**31) - 1]),
    ({"type": "integer", "format": "int64"}, [2**63 - 1, 1]), ({"type": "number", "multipleOf": 0.1}, [0.3, 0.25, 1]), ({"type": "number", "minimum": 0.5}, [0.5, 0.4, 1, "0.5", 1e400 if False else 1e30]),
    ({"type": "number", "format": "float"}, [1.5, 1e39]), ({"type": "boolean"}, [True, "true", 1, None]), ({"type": "boolean", "default": True}, [False, None]),
    ({"type": "array", "items": TEXT, "minItems": 1, "maxItems": 2}, [[], ["a"], ["a", "b", "c"], "a", [1], [None], None, {}]),
    ({"type": "array", "items": {"type": "object", "properties": {"a": {**INT, "default": 5}, "b": TEXT}, "required": ["b"]}}, [[{"b": "x"}], [{}], [{"a": None, "b": "x"}], [5], [{"b": "x", "c": 1}]]),
    ({"type": "array", "items": INT, "x-kubernetes-list-type": "set"}, [[1, 2], [1, 1], []]), ({"type": "array", "items": {"type": "array", "items": INT}}, [[[1], []], [1], [["a"]]]),
    ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": INT}}}, [[{"k": "a"}], [{"k": "a"}, {"k": "a", "v": 1}], [{"v": 1}], []]),
    ({"type": "object", "properties": {"a": TEXT, "b": INT}, "required": ["a"], "minProperties": 2}, [{"a": "x", "b": 1}, {"a": "x"}, {"b": 1}, {}, None, []]),
    ({"type": "object", "additionalProperties": INT, "maxProperties": 2}, [{"x": 1}, {"x": "1"}, {"x": 1, "y": 2, "z": 3}, {"x": None}, {}]),
    ({"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {**TEXT, "default": "d"}}}}, [{"x": {}}, {"x": {"b": 1}}, {"x": None}]),
    ({"type": "object", "default": {}, "properties": {"deep": {"type": "object", "default": {}, "properties": {"n": {**INT, "default": 3}}}, "m": {**TEXT, "default": "m"}}}, [{}, {"deep": {}}, {"m": "x"}, None]),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": INT}}, [{"x": {"y": None}}, {"known": "a"}, {"known": 1, "z": []}]),
    ({"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}, [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "x": 1}}, {"kind": "Pod"}, {}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c"}, "name": "P!"}}]),
    ({"x-kubernetes-int-or-string": True}, [1, "a", 1.5, True, None, []]), ({"x-kubernetes-int-or-string": True, "anyOf": [INT, TEXT], "pattern": "^[0-9]+%$"}, [5, "5%", "x"]), ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": [1]}, None, "x"]),
    ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": "x"}, {}, {"a": "x", "b": "y"}]),
    ({"type": "object", "properties": {"a": TEXT, "b": TEXT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": "x"}, {}]),
    ({"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 5}]}, [4, 2, 6]), ({"type": "string", "not": {"enum": ["x"]}}, ["x", "y"]), ({"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 2}]}, ["abc", "bb", "bcd"]),
    ({"type": "string", "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, ["ab", "a", "c"]), ({"type": "object", "properties": {"a": INT}, "not": {"required": ["a"]}}, [{}, {"a": 1}]),
    *(({"type": "string", "format": f}, v) for f, v in {
        "date": ["2026-01-01", "2026-13-01"], "date-time": ["2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "2026-01-01T00:00:00.123+01:00", "x"], "duration": ["1h", "1 hour", "x", "3d", "1m30s"], "ipv4": ["1.2.3.4", "1.2.3", "::1", "01.2.3.4"],
        "ipv6": ["::1", "1.2.3.4", "fe80::1%eth0"], "cidr": ["10.0.0.0/8", "10.0.0.0", "10.0.0.1/8"], "mac": ["00:11:22:33:44:55", "x", "00-11-22-33-44-55"], "uuid": ["11111111-2222-3333-4444-555555555555", "x", "11111111222233334444555555555555"],
        "uuid4": ["11111111-2222-4333-8444-555555555555", "11111111-2222-3333-4444-555555555555"], "email": ["a@b.c", "a", "a b@c.d", "A <a@b.c>"], "uri": ["http://x/y", "x", "/a", "http://a b"], "hostname": ["a.b", "-a", "a_b", "x" * 64], "byte": ["YQ==", "!", "YQ"],
        "password": ["x"], "hexcolor": ["#fff", "fff", "red"], "rgbcolor": ["rgb(1,2,3)", "x"], "ssn": ["111-11-1111", "x"], "creditcard": ["4111111111111111", "1"], "isbn": ["978-3-16-148410-0", "x"], "bsonobjectid": ["507f1f77bcf86cd799439011", "x"], "unknown": ["x"],
        "k8s-short-name": ["a", "A", "a.b"], "k8s-long-name": ["a.b", "A_", "-"], "isbn10": ["0-306-40615-2", "x"], "uuid3": ["x"], "uuid5": ["x"]}.items()),
]  # fmt: skip
# A rule on a string field, and values.
RULES: list[tuple[str, list]] = [
    ("self.startsWith('a') && self.endsWith('z')", ["az", "b"]), ("self.size() < 3", ["ab", "abcd"]), ("self.matches('^[a-z]*$')", ["ab", "A"]), ("int(self) > 5", ["6", "5", "x"]), ("double(self) < 1.5", ["1", "2", "x"]), ("bool(self)", ["true", "false", "x"]),
    ("self in ['a', 'b']", ["a", "c"]), ("self.lowerAscii() == self", ["ab", "AB"]), ("self.upperAscii() == 'AB'", ["ab", "c"]), ("self.trim() == self", ["a", " a"]), ("self.split('-').size() == 2", ["a-b", "a"]), ("self.split('-', 2)[1] == 'b-c'", ["a-b-c", "a"]),
    ("self.replace('a', 'b') == 'bb'", ["aa", "c"]), ("self.indexOf('b') == 1", ["ab", "c"]), ("self.lastIndexOf('a') == 2", ["aba", "b"]), ("self.substring(1) == 'b'", ["ab", ""]), ("self.charAt(0) == 'a'", ["a", ""]), ("['a', self].join('-') == 'a-b'", ["b", "c"]),
    ("self.find('[0-9]+') == '42'", ["a42", "a"]), ("self.findAll('[0-9]').size() == 2", ["1a2", "1"]), ("self.findAll('[0-9]', 1).size() == 1", ["1a2", "a"]), ("duration(self) < duration('1h')", ["1m", "2h", "x"]), ("timestamp(self).getFullYear() == 2026", ["2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "x"]),
    ("timestamp(self).getDayOfWeek() == 4", ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]), ("isQuantity(self)", ["1Gi", "x"]), ("quantity(self).isLessThan(quantity('1'))", ["500m", "2", "x"]), ("quantity(self).asInteger() == 5", ["5", "500m"]), ("quantity(self).add(quantity('1')).compareTo(quantity('2')) == 0", ["1", "2"]),
    ("quantity(self).sign() == 1", ["1", "-1", "0"]), ("isURL(self)", ["http://a", "a"]), ("url(self).getHostname() == 'a.b'", ["http://a.b:80/x", "http://c", "x"]), ("url(self).getPort() == '80'", ["http://a.b:80/x", "http://a"]), ("url(self).getQuery()['k'] == ['v']", ["http://a?k=v", "http://a"]),
    ("url(self).getEscapedPath() == '/x%20y'", ["http://a/x y", "http://a/"]), ("isIP(self)", ["1.2.3.4", "::1", "x"]), ("ip(self).isLoopback()", ["127.0.0.1", "1.2.3.4", "x"]), ("ip(self).family() == 6", ["::1", "1.2.3.4"]), ("ip.isCanonical(self)", ["::1", "0:0::1", "x"]), ("ip(self).isLinkLocalUnicast()", ["169.254.1.1", "1.1.1.1"]),
    ("isCIDR(self)", ["10.0.0.0/8", "x"]), ("cidr('10.0.0.0/8').containsIP(self)", ["10.1.1.1", "11.1.1.1", "x"]), ("cidr(self).prefixLength() == 8", ["10.0.0.0/8", "10.0.0.0/9", "x"]), ("cidr('10.0.0.0/8').containsCIDR(self)", ["10.1.0.0/16", "11.0.0.0/16"]), ("cidr(self).masked() == cidr(self)", ["10.0.0.0/8", "10.0.0.1/8"]),
    ("!format.dns1123Label().validate(self).hasValue()", ["a", "A"]), ("format.named('uuid').hasValue()", ["a"]), ("!format.qualifiedName().validate(self).hasValue()", ["a/b", "a b"]), ("format.dns1123Subdomain().validate(self).orValue([]).size() == 0", ["a.b", "A"]), ("isSemver(self)", ["1.2.3", "1.2"]), ("semver(self).major() == 1", ["1.2.3", "2.0.0", "x"]),
    ("semver(self).isLessThan(semver('1.0.0'))", ["0.1.0", "1.0.0"]), ("self.format([1]) == '1'", ["%d", "x", "%s"]), ("'%s-%d'.format([self, 2]) == 'a-2'", ["a", "b"]), ("self.reverse() == 'ba'", ["ab", "c"]), ("strings.quote(self) == '\"a\"'", ["a", "b"]), ("[1, 2, 3].sum() == int(self)", ["6", "5"]), ("['b', 'a'].isSorted() || self == 'x'", ["x", "y"]),
    ("[3, 1].max() == int(self) && [3, 1].min() == 1", ["3", "1"]), ("self.contains('a') ? self.size() == 1 : true", ["a", "ab"]), ("[1, 2].exists(x, string(x) == self)", ["1", "3"]), ("[1, 2].all(x, x < int(self))", ["3", "2"]), ("[1, 2].exists_one(x, string(x) == self)", ["1", "3"]), ("[1, 2].map(x, x > 1, x * 2) == [int(self)]", ["4", "2"]),
    ("[1, 2].filter(x, x > 1) == [int(self)]", ["2", "1"]), ("sets.contains(['a', 'b'], [self])", ["a", "c"]), ("sets.intersects(['a'], [self])", ["a", "c"]), ("sets.equivalent(['a', 'a'], [self])", ["a", "c"]), ("{'a': 1}.all(k, k == self)", ["a", "b"]), ("optional.of(self).orValue('x') == 'a'", ["a", "b"]),
    ("{'a': 1}[?self].hasValue()", ["a", "b"]), ("[1, 2][?int(self)].orValue(0) == 2", ["1", "5"]), ("{'a': 1}[self] == 1", ["a", "b"]), ("[1][int(self)] == 1", ["0", "1", "-1"]), ("10 / int(self) == 5", ["2", "0"]), ("10 % int(self) == 1", ["3", "0"]), ("9223372036854775807 + int(self) > 0", ["0", "1"]), ("b'abc' == bytes(self)", ["abc", "x"]),
    ("base64.encode(bytes(self)) == 'YQ=='", ["a"]), ("type(self) == string", ["a"]), ("dyn(self) == 1", ["1"]), ("self == oldSelf", ["a", "b"]), ("cel.bind(x, self, x + x == 'aa')", ["a", "b"]), ("math.greatest([1, int(self)]) == 3", ["3"]), ("lists.range(int(self)) == [0, 1]", ["2", "3"]), ("[1, 2].indexOf(int(self)) == 1", ["2", "5"]), ("[[1], [2]].flatten() == [1, int(self)]", ["2", "3"]),
    ("self.size() > 0 ? true", ["a"]), ("self.nothing()", ["a"]), ("self + 1 == 2", ["a"]), ("undefined == 1", ["a"]), ("size(self)", ["a"]), ("", ["a"]), ("self.all(x, x == 'a')", ["a"]), ("1 == 1", ["a"]), ("self > 'b'", ["c", "a"]), ("string(1.5) == self", ["1.5", "1"]), ("string(duration('90s')) == self", ["90s", "x"]), ("string(quantity('1Ki')) == self", ["1Ki", "x"]),
]  # fmt: skip


@topic
def schemas(rng: Rng, ns: str) -> list[Step]:
    """Fields of every sort: what is defaulted, pruned, refused, and how it is said."""
    chosen = rng.sample(FIELDS, 6)
    spec: dict = {"type": "object", "properties": {f"f{i}": copy.deepcopy(s) for i, (s, _) in enumerate(chosen)}}
    if rng.random() < 0.3:
        spec["required"] = [f"f{rng.randint(0, 5)}"]
    if rng.random() < 0.2:
        spec["default"] = {}
    schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}, **({"required": ["spec"]} if rng.random() < 0.2 else {})}
    steps, path = crd(ns, schema, **({"subresources": {"status": {}}} if rng.random() < 0.3 else {})), widgets(ns)
    good = widget(ns, "a", {f"f{i}": v[0] for i, (_, v) in enumerate(chosen)})
    steps.append(post(path, good))
    query = lambda: rng.choice(["", "", "", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?dryRun=All"])
    for n in range(11):
        values = {f"f{i}": copy.deepcopy(rng.choice(v)) for i, (_, v) in enumerate(chosen) if rng.random() < 0.35}
        roll = rng.random()
        if roll < 0.45:
            steps.append(post(path, widget(ns, f"n{n}", {**good["spec"], **values} if rng.random() < 0.7 else values), query()))
        elif roll < 0.7:
            steps.append(patch(path + "/a", "merge", {"spec": values}, query()))
        elif roll < 0.8:
            steps.append(put(path + "/a", widget(ns, "a", values), query()))
        elif roll < 0.9:
            steps.append(patch(path + "/a", "json", [{"op": rng.choice(["add", "replace", "remove"]), "path": f"/spec/f{rng.randint(0, 5)}", "value": rng.choice([1, "x", None, {}, []])}], query()))
        else:
            steps.append(patch(path + "/a", "apply", widget(ns, "a", values), "?fieldManager=m&force=true"))
    return [*steps, post(path, rng.choice([widget(ns, "z"), widget(ns, "z", []), widget(ns, "z", "x"), {**widget(ns, "z", {}), "status": {"x": 1}}, widget(ns, "z", {}, extra=1)])), get(path, rng.choice([TABLE, PARTIAL, ""]))]


@topic
def rules(rng: Rng, ns: str) -> list[Step]:
    """CEL: the library, messages, reasons, paths, transitions."""
    chosen = rng.sample(RULES, 5)
    fields = {}
    for i, (rule, _) in enumerate(chosen):
        fields[f"f{i}"] = {"type": "string", "maxLength": 40, "x-kubernetes-validations": [{"rule": rule, **rng.choice([{}, {"message": f"m{i}"}, {"messageExpression": "'not ' + self"}, {"reason": "FieldValueForbidden", "message": "no"}, {"reason": "FieldValueDuplicate"}])}]}
    more = rng.sample([
        {"rule": "!has(self.n) || self.n >= 0"}, {"rule": "!has(self.n) || self.n < 10", "fieldPath": ".n"}, {"rule": "!has(oldSelf.n) || has(self.n)", "message": "n cannot go"}, {"rule": "has(oldSelf.n) == has(self.n)", "reason": "FieldValueInvalid"},
        {"rule": "!has(self.n) || !oldSelf.hasValue() || self.n >= oldSelf.value().n", "optionalOldSelf": True, "message": "n only grows"}, {"rule": "!has(self.l) || self.l.all(x, x.v < 5)", "fieldPath": ".l", "messageExpression": "'list of ' + string(self.l.size())"},
        {"rule": "!has(self.l) || self.l.map(x, x.k).all(k, k.size() < 3)"}, {"rule": "!has(self.m) || !('x' in self.m) || self.m['x'] == 'y'", "fieldPath": ".m['x']"}, {"rule": "!has(self.n) || self.n != 7", "message": "a\nb"}, {"rule": "self.n > 0"}, {"rule": "!has(self.n) || self.n != 8", "messageExpression": "string(self.n / 0)"},
        {"rule": "!has(self.n) || self.n != 9", "messageExpression": "''", "message": "fallback"}, {"rule": "!has(self.n) || self.n != 6", "messageExpression": "'  '"}, {"rule": "self.n == self.missing"}, {"rule": "!has(self.n) || self.n != 5", "reason": "Odd"}, {"rule": "!has(self.d) || self.d > duration('1s')"},
        {"rule": "!has(self.t) || self.t < timestamp('2027-01-01T00:00:00Z')"}, {"rule": "!has(self.e) || self.e in ['a', 'b']", "fieldPath": ".nope"}, {"rule": "!has(self.ios) || (type(self.ios) == int ? self.ios > 1 : self.ios.endsWith('%'))"}, {"rule": "!has(self.n) || self.n == oldSelf.n", "message": "fixed"},
    ], rng.randint(1, 4))  # fmt: skip
    item = {"type": "object", "required": ["k"], "properties": {"k": {**TEXT, "maxLength": 10}, "v": INT}}
    if rng.random() < 0.4:
        item["x-kubernetes-validations"] = [{"rule": "!has(oldSelf.v) || self.v == oldSelf.v", "message": "v is fixed"}]
    spec = {"type": "object", "x-kubernetes-validations": more, "properties": {**fields, "n": INT, "l": {"type": "array", "maxItems": 10, "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            "m": {"type": "object", "maxProperties": 10, "additionalProperties": {**TEXT, "maxLength": 10}}, "d": {**TEXT, "format": "duration"}, "t": {**TEXT, "format": "date-time"}, "e": {**TEXT, "maxLength": 20}, "ios": {"x-kubernetes-int-or-string": True, "maxLength": 10}}}  # fmt: skip
    root = {"type": "object", "properties": {"spec": spec}}
    if rng.random() < 0.3:
        root["x-kubernetes-validations"] = [{"rule": rng.choice(["self.metadata.name.size() < 3", "has(self.spec)", "self.kind == 'Widget'", "self.metadata.labels.size() > 0", "has(self.metadata.generateName)", "self.metadata.namespace == 'x'"])}]
    steps, path = crd(ns, root), widgets(ns)
    # where one of the rules does not compile, the definition's refusal is all there is to see
    steps.append(post(path, widget(ns, "a", {})))
    for n in range(11):
        values: dict = {f"f{i}": rng.choice(v) for i, (_, v) in enumerate(chosen) if rng.random() < 0.5}
        for key, options in {"n": [1, -1, 12, 5, 6, 7, 8, 9, "x", None], "l": [[{"k": "a", "v": 1}], [{"k": "a", "v": 9}], [{"k": "long"}], [{"k": "a"}]], "m": [{"x": "y"}, {"x": "z"}, {}], "d": ["2s", "1ms", "x"], "t": ["2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "x"], "e": ["a", "c"], "ios": [1, 2, "5%", "x"]}.items():
            if rng.random() < 0.3:
                values[key] = copy.deepcopy(rng.choice(options))
        steps.append(rng.choice([post(path, widget(ns, f"n{n}", values)), patch(path + "/a", "merge", {"spec": values}), patch(path + "/a", "apply", widget(ns, "a", values), "?fieldManager=m&force=true")]))
    return steps


@topic
def views(rng: Rng, ns: str) -> list[Step]:
    """Columns, the status and scale subresources, selectable fields, and scope."""
    scope = rng.choice(["Namespaced", "Cluster"])
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {**INT, "minimum": 0}, "color": TEXT, "when": {**TEXT, "format": "date-time"}, "list": {"type": "array", "items": TEXT}, "on": {"type": "boolean"}, "ratio": {"type": "number"},
              "map": {"type": "object", "additionalProperties": TEXT}}}, "status": {"type": "object", "properties": {"replicas": INT, "selector": TEXT, "phase": TEXT, "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": TEXT, "status": TEXT}}}}}}}  # fmt: skip
    columns = rng.sample([
        {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}, {"name": "Color", "type": "string", "jsonPath": ".spec.color", "description": "the color"}, {"name": "When", "type": "date", "jsonPath": ".spec.when"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "First", "type": "string", "jsonPath": ".spec.list[0]"}, {"name": "All", "type": "string", "jsonPath": ".spec.list[*]"}, {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1}, {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio", "format": "float"}, {"name": "Map", "type": "string", "jsonPath": ".spec.map"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}, {"name": "Wrong", "type": "integer", "jsonPath": ".spec.color"}, {"name": "Label", "type": "string", "jsonPath": ".metadata.labels.app"}, {"name": "List", "type": "string", "jsonPath": ".spec.list"}, {"name": "NotDate", "type": "date", "jsonPath": ".spec.color"},
        {"name": "Dotted", "type": "string", "jsonPath": ".metadata.annotations.a\\.b"}, {"name": "Last", "type": "string", "jsonPath": ".spec.list[-1:]"}, {"name": "NumberAsText", "type": "string", "jsonPath": ".spec.replicas"}, {"name": "BoolAsText", "type": "string", "jsonPath": ".spec.on"}, {"name": "Int", "type": "integer", "jsonPath": ".spec.ratio"},
    ], rng.randint(0, 6))  # fmt: skip
    sub: dict = {}
    if rng.random() < 0.7:
        sub["status"] = {}
    if rng.random() < 0.7:
        sub["scale"] = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", **rng.choice([{}, {"labelSelectorPath": ".status.selector"}])}
    steps = crd(ns, schema, scope, **({"subresources": sub} if sub else {}), **({"additionalPrinterColumns": columns} if columns else {}))
    path = widgets(ns, scope)
    good = widget(ns, "a", {"replicas": 2, "color": "red", "when": "2020-01-01T00:00:00Z", "list": ["x", "y"], "on": True, "ratio": 1.5, "map": {"k": "v"}}, status={"replicas": 1, "phase": "A"})
    good["metadata"] |= {"labels": {"app": "one"}, "annotations": {"a.b": "c"}}
    steps += [post(path, good), post(path, widget(ns, "b", {k: v for k, v in {"replicas": 0, "color": "", "list": [], "on": False, "ratio": 2}.items() if rng.random() < 0.6})), get(path, TABLE)]
    scale = lambda n, **m: {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", **({"namespace": ns} if scope == "Namespaced" else {}), **m}, "spec": {"replicas": n}}
    return [*steps, *some(rng, [
        get(path + "/a/scale"), put(path + "/a/scale", scale(5)), put(path + "/a/scale", scale(0)), put(path + "/a/scale", scale(-1)), put(path + "/a/scale", scale(3, resourceVersion="1")), put(path + "/a/scale", scale(3, resourceVersion="${own_rv}")), put(path + "/a/scale", scale(2, name="b")), put(path + "/a/scale", {**scale(2), "kind": "Other"}),
        patch(path + "/a/scale", "merge", {"spec": {"replicas": 4}}), patch(path + "/a/scale", "json", [{"op": "replace", "path": "/spec/replicas", "value": 6}]), patch(path + "/a/scale", "apply", {**scale(7)}, "?fieldManager=m&force=true"), patch(path + "/a/scale", "apply", {**scale(8)}, "?fieldManager=n"), patch(path + "/a/scale", "strategic", {"spec": {"replicas": 4}}),
        patch(path + "/b/scale", "merge", {"spec": {"replicas": 1}}), get(path + "/b/scale"), get(path + "/none/scale"), get(path + "/a/scale", TABLE), get(path + "/a/scale", PARTIAL), delete(path + "/a/scale"), patch(path + "/a/scale", "merge", {"spec": {"replicas": "x"}}), patch(path + "/a/scale", "merge", {"status": {"replicas": 9}}),
        get(path + "/a/status"), put(path + "/a/status", {**good, "status": {"replicas": 3, "selector": "app=x"}}), patch(path + "/a/status", "merge", {"status": {"replicas": 4, "conditions": [{"type": "Ready", "status": "True"}]}}), patch(path + "/a/status", "merge", {"spec": {"color": "blue"}, "metadata": {"labels": {"n": "1"}}, "status": {"phase": "B"}}),
        patch(path + "/a/status", "json", [{"op": "add", "path": "/status/phase", "value": 5}]), patch(path + "/a", "merge", {"status": {"phase": "C"}}), patch(path + "/a", "merge", {"spec": {"color": "green"}, "status": {"phase": "C"}}), patch(path + "/a/status", "apply", {**widget(ns, "a"), "status": {"phase": "D"}}, "?fieldManager=s"), delete(path + "/a/status"),
        post(path + "/a/status", good), get(path + "/a/status", TABLE), get(path + "/a/status", PARTIAL), get(path, TABLE), get(path + "/a", TABLE), get(path + "?watch=1&timeoutSeconds=1", TABLE), get(path + "?watch=1&timeoutSeconds=1&resourceVersion=0", PARTIAL), get(path + "?includeObject=Object", TABLE), get(path + "?includeObject=None", TABLE),
        get(path + "?fieldSelector=spec.color%3Dred"), get(f"/apis/{ns}.example/v1/widgets?limit=5"), get(f"/apis/{ns}.example/v1/namespaces/{ns}/widgets"), get(f"/apis/{ns}.example/v1"), get(f"/apis/{ns}.example"), get(f"/apis/{ns}.example/v2"), post(f"/apis/{ns}.example/v1/widgets", widget(ns, "q")), get(DEFINITIONS + f"/widgets.{ns}.example", TABLE),
        get(f"/openapi/v3/apis/{ns}.example/v1") if rng.random() < 0 else get(path + "/a/nothing"), put(path + "/c", widget(ns, "c", {"color": "x"})), put(path + "/c", {**widget(ns, "c"), "metadata": {"name": "c", "resourceVersion": "1"}}), patch(path + "/c", "merge", {}), delete(path + "?labelSelector=app%3Done&dryRun=All"),
    ], 10, 14)]  # fmt: skip


@topic
def definitions(rng: Rng, ns: str) -> list[Step]:
    """Definitions that are made and changed, and those that may not be."""
    group = f"{ns}.example"
    any_spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    props = lambda **p: {"type": "object", "properties": {"spec": {"type": "object", "properties": p}}}
    version = lambda name="v1", schema=None, **m: {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema or {"type": "object"}}, **m}
    whole = lambda versions, scope="Namespaced", names=None, **m: {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{group}"},
                                                                   "spec": {"group": group, "scope": scope, "names": {"plural": "widgets", "kind": "Widget", **(names or {})}, "versions": versions, **m}}  # fmt: skip
    v = lambda **p: whole([version(schema=props(**p))])
    cel = lambda rule, schema=None, **m: v(a={**(schema or {**TEXT, "maxLength": 9}), "x-kubernetes-validations": [{"rule": rule, **m}]})
    wrong = [
        v(a={"type": "array"}), v(a={"type": "object", "additionalProperties": {}}), v(a={}), v(a={"type": "string", "default": 1}), v(a={"type": "integer", "default": "x"}), v(a={"type": "string", "maxLength": 1, "default": "long"}), v(a={"type": "object", "default": {"b": 1}}), v(a={"type": "string", "format": 5}),
        v(a={"type": ["string", "null"]}), v(a={"type": "null"}), v(a={"type": "string", "nullable": "x"}), v(a={"type": "string", "enum": []}), v(a={"type": "string", "enum": ["a", "a"]}), v(a={"type": "string", "pattern": "["}), v(a={"type": "string", "minLength": -1}), v(a={"type": "array", "items": TEXT, "uniqueItems": True}),
        v(a={"type": "array", "items": [TEXT, INT]}), v(a={"type": "object", "patternProperties": {"x": TEXT}}), v(a={"$ref": "#/x"}), v(a={"type": "object", "definitions": {"x": TEXT}}), v(a={"type": "object", "dependencies": {"x": ["y"]}}), v(a={"type": "object", "properties": {"x": TEXT}, "additionalProperties": TEXT}),
        v(a={"type": "object", "additionalProperties": False}), v(a={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}), v(a={"type": "array", "items": {"type": "object", "properties": {"k": TEXT}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}), v(a={"type": "string", "x-kubernetes-list-type": "set"}),
        v(a={"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}), v(a={"type": "array", "items": TEXT, "x-kubernetes-list-type": "odd"}), v(a={"type": "array", "items": {"type": "object", "properties": {"k": TEXT}, "required": ["k"]}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"]}),
        v(a={"type": "array", "items": {"type": "object", "properties": {"k": {"type": "object"}}, "required": ["k"]}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}), v(a={"type": "object", "x-kubernetes-map-type": "odd"}), v(a={"type": "string", "x-kubernetes-map-type": "atomic"}), v(a={"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
        v(a={"type": "string", "x-kubernetes-embedded-resource": True}), v(a={"type": "object", "x-kubernetes-embedded-resource": True}), v(a={"x-kubernetes-int-or-string": True, "type": "string"}), v(a={"type": "object", "anyOf": [{"type": "object"}]}), v(a={"type": "object", "anyOf": [{"properties": {"x": TEXT}}]}), v(a={"type": "object", "allOf": [{"default": {}}]}),
        v(a={"type": "string", "allOf": [{"x-kubernetes-validations": [{"rule": "true"}]}]}), v(a={"type": "string", "not": {"type": "string"}}), v(a={"type": "object", "oneOf": [{"additionalProperties": TEXT}]}), v(a={"type": "string", "anyOf": [{"nullable": True}]}), v(metadata=TEXT), whole([version(schema={"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}})]),
        whole([version(schema={"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {**TEXT, "maxLength": 3}}}}})]), whole([version(schema={"type": "string"})]), whole([version(schema={"type": "object", "default": {}})]), whole([version(schema={"type": "object", "nullable": True})]), whole([version(schema={"type": "object", "properties": {"kind": INT}})]),
        cel("self =="), cel("self.x"), cel("size(self)"), cel("self == 1"), cel("true", message="a\nb"), cel("true", message=" "), cel("true", reason="Odd"), cel("true", fieldPath="x"), cel("true", fieldPath=".x"), cel("true", messageExpression="1"), cel("true", messageExpression="self +"), cel(""), cel("self == oldSelf", {**TEXT, "maxLength": 3}, optionalOldSelf=True), cel("true", optionalOldSelf=True),
        cel("self.all(x, x == 'a')", {"type": "array", "items": TEXT}), cel("self.all(x, self.all(y, x == y))", {"type": "array", "items": TEXT}), cel("self.exists(k, k == 'a')", {"type": "object", "additionalProperties": TEXT}), cel("self.matches('(')"), cel("self.a == 1", {"type": "object", "properties": {"a": INT}}), cel("has(self.b)", {"type": "object", "properties": {"a": INT}}),
        whole([version()], "Wide"), whole([version("V1")]), whole([version("v1-x")]), whole([version(""), ]), whole([version(), version()]), whole([version(), version("v2")]), whole([version(), version("v2", storage=False)]), whole([version(storage=False)]), whole([version(served=False)]), whole([]), whole([{"name": "v1", "served": True, "storage": True}]), whole([version()], names={"kind": "widget!"}),
        whole([version()], names={"kind": ""}), whole([version()], names={"singular": "Widget"}), whole([version()], names={"shortNames": ["W"]}), whole([version()], names={"shortNames": ["w", "w"]}), whole([version()], names={"listKind": "Widget"}), whole([version()], names={"categories": ["A B"]}), whole([version()], names={"plural": "gadgets"}), whole([version()], names={"kind": "x" * 64}),
        whole([version()], preserveUnknownFields=True), whole([version()], preserveUnknownFields=False), whole([version()], conversion={"strategy": "None"}), whole([version()], conversion={"strategy": "Webhook"}), whole([version()], conversion={"strategy": "Odd"}), whole([version()], conversion={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
        whole([version()], conversion={"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9"], "clientConfig": {"url": "https://x/y"}}}), whole([version()], conversion={"strategy": "Webhook", "webhook": {"conversionReviewVersions": [], "clientConfig": {"url": "http://x"}}}), whole([version()], conversion={"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": {"name": "n", "namespace": "m", "port": 99999}}}}),
        whole([version(subresources={"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}})]), whole([version(subresources={"scale": {"specReplicasPath": "spec.n", "statusReplicasPath": ".spec.n"}})]), whole([version(subresources={"scale": {}})]), whole([version(subresources={"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".x[0]"}})]),
        whole([version(additionalPrinterColumns=[{"name": "a", "type": "odd", "jsonPath": ".x"}])]), whole([version(additionalPrinterColumns=[{"name": "", "type": "string", "jsonPath": ""}])]), whole([version(additionalPrinterColumns=[{"name": "a", "type": "string", "jsonPath": ".x", "format": "odd"}])]), whole([version(additionalPrinterColumns=[{"name": "a", "type": "string", "jsonPath": "{.x}"}])]),
        whole([version(schema=props(a=TEXT), selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}])]), whole([version(schema=props(a={"type": "object"}), selectableFields=[{"jsonPath": ".spec.a"}])]), whole([version(schema=props(a=TEXT), selectableFields=[{"jsonPath": "spec.a"}])]), whole([version(selectableFields=[{"jsonPath": ".metadata.name"}])]), whole([version(schema=props(a={"type": "array", "items": TEXT}), selectableFields=[{"jsonPath": ".spec.a[0]"}])]),
        whole([version(deprecated=False, deprecationWarning="x")]), whole([version(deprecated=True, deprecationWarning="x" * 257)]), whole([version(deprecated=True, deprecationWarning="a\nb")]), {**whole([version()]), "metadata": {"name": "widgets"}}, {**whole([version()]), "metadata": {"name": f"Widgets.{group}"}}, {**whole([version()]), "metadata": {}}, {**whole([version()]), "spec": {}}, {**whole([version()]), "apiVersion": "apiextensions.k8s.io/v1beta1"},
        {**whole([version()]), "status": {"storedVersions": ["v9"]}}, whole([version(schema=any_spec)]), whole([version(schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"spec": {}}})]), v(a={"type": "object", "x-kubernetes-group-version-kind": [{"group": "g", "version": "v", "kind": "k"}]}), v(a={"type": "string", "x-unknown": 1}), v(a={"type": "string", "example": {"a": 1}, "title": "t", "externalDocs": {"url": "x"}, "description": "d"}),
    ]  # fmt: skip
    for o in wrong:
        # the group must be of more than one part; the annotation protects only k8s.io
        o["metadata"] = dict(o["metadata"])
    steps = [post(DEFINITIONS, o, rng.choice(["?dryRun=All", "?dryRun=All", "?dryRun=All&fieldValidation=Strict"])) for o in rng.sample(wrong, 12)]
    first = whole([version(schema=props(a=TEXT), subresources={"status": {}})])
    one = f"{DEFINITIONS}/widgets.{group}"
    changes = [
        patch(one, "merge", {"spec": {"scope": "Cluster"}}), patch(one, "merge", {"spec": {"group": "other.example"}}), patch(one, "merge", {"spec": {"names": {"kind": "Gadget"}}}), patch(one, "merge", {"spec": {"names": {"plural": "gadgets"}}}), patch(one, "merge", {"spec": {"versions": []}}),
        patch(one, "merge", {"spec": {"versions": [version("v2")]}}), patch(one, "merge", {"spec": {"preserveUnknownFields": True}}), patch(one, "json", [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a", "value": {"type": "array"}}]), patch(one, "merge", {"metadata": {"labels": {"x": "1"}}}),
        patch(one + "/status", "merge", {"status": {"storedVersions": []}}), patch(one + "/status", "merge", {"status": {"storedVersions": ["v9"]}}), patch(one, "strategic", {"spec": {"names": {"shortNames": ["wi"]}}}), patch(one, "json", [{"op": "remove", "path": "/spec/versions/0/schema"}]), delete(one), patch(one, "merge", {"spec": {"names": None}}),
    ]  # fmt: skip
    return [*steps, post(DEFINITIONS, first), Step("GET", widgets(ns), until=200), *(Step(s.method, s.path + "?dryRun=All", s.body, s.headers) for s in some(rng, changes, 4, 6))]
