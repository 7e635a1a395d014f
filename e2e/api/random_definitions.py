"""CustomResourceDefinitions made up at random, and objects that fit them."""

from __future__ import annotations

import contextlib
import copy
import random

RULES = [
    {"rule": "!has(self.count) || self.count >= 0", "message": "count must not be negative"},
    {"rule": "!has(self.count) || !has(self.limit) || self.count <= self.limit", "messageExpression": "'count is above ' + string(self.limit)"},
    {"rule": "!has(oldSelf.name) || self.name == oldSelf.name", "message": "name is immutable", "fieldPath": ".name"},
    {"rule": "!has(self.tags) || self.tags.all(t, size(t) < 10)", "reason": "FieldValueForbidden"},
    {"rule": "!has(self.name) || self.name.startsWith('a')"},
    {"rule": "!has(self.parts) || self.parts.all(p, p.size < 100)", "fieldPath": ".parts", "reason": "FieldValueInvalid"},
    {"rule": "!has(self.parts) || !has(oldSelf.parts) || self.parts.all(p, oldSelf.parts.exists(o, o.name == p.name))", "reason": "FieldValueForbidden",
     "messageExpression": "'parts stay ' + oldSelf.parts.map(p, p.name).join(',')"},
    {"rule": "self.count != 7", "reason": "FieldValueDuplicate", "messageExpression": "self.count > 5 ? '' : 'few'", "message": "not seven"},
    {"rule": "!oldSelf.hasValue() || self.count >= oldSelf.value().count", "optionalOldSelf": True, "messageExpression": "'was ' + string(oldSelf.value().count)"},
]
# What stands in a definition where it must not.
BROKEN = [
    lambda s: s["properties"]["spec"].pop("type", None),
    lambda s: s["properties"]["spec"].update({"x-kubernetes-validations": [{"rule": "self.missing == 1"}]}),
    lambda s: s["properties"]["spec"].update({"x-kubernetes-validations": [{"rule": "self.count +"}]}),
    lambda s: s["properties"]["spec"]["properties"].update(bad={"type": "array"}),
    lambda s: s["properties"]["spec"]["properties"].update(bad={"type": "string", "default": 5}),
    lambda s: s["properties"]["spec"]["properties"].update(bad={"type": "what"}),
    lambda s: s["properties"]["spec"]["properties"].update(bad={"type": "string", "pattern": "("}),
    lambda s: s["properties"]["spec"]["properties"].update(bad={"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
    lambda s: s["properties"]["spec"].update(uniqueItems=True),
    lambda s: s["properties"]["spec"].update(additionalProperties=True),
    lambda s: s.pop("type"),
    lambda s: s["properties"]["metadata"].update(properties={"labels": {"type": "object"}}) if "metadata" in s["properties"] else None,
]


def definition(rng: random.Random, namespace: str) -> dict:
    """A definition of Things in a group of its own."""
    group = f"{namespace}.example.com"
    versions = [version(rng, "v1")]
    if rng.random() < 0.25:
        versions.append({**copy.deepcopy(versions[0]), "name": "v1beta1", "storage": False, "served": rng.random() < 0.8})
        if rng.random() < 0.5:
            versions[1] |= {"deprecated": True, **({"deprecationWarning": "use v1"} if rng.random() < 0.5 else {})}
        if rng.random() < 0.3:
            versions.reverse()
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": rng.choice(["Namespaced", "Namespaced", "Cluster"]), "versions": versions,
                 "names": {"plural": "things", "kind": "Thing", **rng.choice([{}, {"singular": "thing", "listKind": "ThingList",
                           "shortNames": [f"t{namespace[5:]}"], "categories": ["all"]}])}},
    }  # fmt: skip
    return crd


def broken(rng: random.Random, namespace: str) -> dict:
    """One that should be refused, most often."""
    crd = definition(rng, namespace)
    spec = crd["spec"]
    for _ in range(rng.choice([1, 1, 2])):
        # a second fault may find that the first took its place away
        with contextlib.suppress(KeyError, IndexError):
            roll = rng.random()
            if roll < 0.7:
                rng.choice(BROKEN)(spec["versions"][0]["schema"]["openAPIV3Schema"])
            else:
                rng.choice([
                    lambda: spec["versions"][0].update(storage=False), lambda: spec["names"].pop("kind"), lambda: spec.update(scope="Wide"),
                    lambda: crd["metadata"].update(name="things.other"), lambda: spec["names"].update(plural="Things!"),
                    lambda: spec["versions"][0].update(name="V1"), lambda: spec["versions"][0].pop("schema"), lambda: spec.update(versions=[]),
                    lambda: spec["versions"].append(copy.deepcopy(spec["versions"][0])), lambda: spec.update(preserveUnknownFields=True),
                    lambda: spec.update(conversion={"strategy": "Webhook"}), lambda: spec["names"].update(shortNames=["Not_A_Name"]),
                    lambda: spec["versions"][0].update(selectableFields=[{"jsonPath": ".spec.nope"}]),
                    lambda: spec["versions"][0].update(additionalPrinterColumns=[{"name": "x", "type": "what", "jsonPath": "bad["}]),
                    lambda: spec["versions"][0].update(subresources={"scale": {"specReplicasPath": "x", "statusReplicasPath": ".status.n"}}),
                ])()  # fmt: skip
    return crd


def version(rng: random.Random, name: str) -> dict:
    fields = {
        "name": {"type": "string", "maxLength": 12, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "format": "int32", "minimum": -5, "maximum": 100, "default": 1},
        "limit": {"type": "integer", "format": "int64"},
        "ratio": {"type": "number", "multipleOf": 0.5, "exclusiveMinimum": True, "minimum": 0},
        "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow"},
        "port": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "on": {"type": "boolean", "default": False},
        "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 20}, "x-kubernetes-list-type": "set"},
        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
        "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "maxItems": 10, "items": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 20}, "size": {"type": "integer", "default": 2}}}},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "map": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "minLength": 1}},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "x"}, "list": {"type": "array", "items": {"type": "integer"}}}},
        "when": {"type": "string", "format": "date-time"},
        "email": {"type": "string", "format": rng.choice(["email", "ipv4", "uuid", "uri", "byte", "duration", "cidr"])},
        "either": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
        "deep": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "n": {"type": "integer", "default": 7}, "l": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}}}},
        "pairs": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {
            "type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "integer", "default": 1}, "v": {"type": "string", "nullable": True}}}},
        "some": {"type": "string", "anyOf": [{"maxLength": 2}, {"pattern": "^x"}]},
        "other": {"type": "string", "not": {"enum": ["bad", ""]}},
        "all": {"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 9}]},
        "wide": {"type": "object", "minProperties": 1, "maxProperties": 2, "x-kubernetes-preserve-unknown-fields": True},
        "once": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "once"}]},
        "numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3, "x-kubernetes-list-type": "set"},
        "choice": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+%?$"},
        "times": {"type": "array", "items": {"type": "string", "format": "date"}, "nullable": True},
    }  # fmt: skip
    chosen = {k: v for k, v in fields.items() if k in ("name", "count", "tags", "limit") or rng.random() < 0.5}
    spec = {"type": "object", "properties": chosen}
    if rng.random() < 0.4:
        spec["required"] = rng.sample(sorted(chosen), 1)
    if rng.random() < 0.6:
        spec["x-kubernetes-validations"] = rng.sample(RULES, rng.choice([1, 2]))
    if rng.random() < 0.15:
        spec["x-kubernetes-preserve-unknown-fields"] = True
    status = {"type": "object", "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}, "replicas": {"type": "integer"},
              "selector": {"type": "string"}, "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
              "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}}}}  # fmt: skip
    out = {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}}
    if rng.random() < 0.7:
        out["subresources"] = {"status": {}}
        if rng.random() < 0.6:
            out["subresources"]["scale"] = {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.replicas",
                                            **rng.choice([{}, {"labelSelectorPath": ".status.selector"}])}  # fmt: skip
    if rng.random() < 0.5:
        out["additionalPrinterColumns"] = rng.sample([
            {"name": "Count", "type": "integer", "jsonPath": ".spec.count"}, {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}, {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]"},
            {"name": "First", "type": "string", "jsonPath": ".spec.tags[0]", "description": "the first tag"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
            {"name": "On", "type": "boolean", "jsonPath": ".spec.on"}, {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio", "format": "double"}], 3)  # fmt: skip
    if rng.random() < 0.3:
        out["selectableFields"] = [{"jsonPath": ".spec.name"}, {"jsonPath": ".spec.count"}]
    return out


def custom(rng: random.Random, crd: dict, name: str) -> dict:
    """An object that fits the version of that name."""
    values = {
        "name": "abc", "count": 2, "limit": 9, "ratio": 1.5, "mode": "fast", "port": "web", "maybe": None, "on": True, "tags": ["x", "y"],
        "words": ["a", "a"], "parts": [{"name": "p", "size": 1}, {"name": "q"}], "extra": {"any": [1, {"b": None}]}, "map": {"k": "v"},
        "nested": {"list": [1, 2]}, "when": "2026-01-01T00:00:00Z", "either": {"a": "x"}, "whole": {"a": "x", "b": 1},
        "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "in"}, "spec": {"x": 1}}, "deep": {"k": {}, "l": {"n": 1, "l": ["a", "b"]}},
        "pairs": [{"a": "x", "v": None}, {"a": "x", "b": 2}], "some": "xyz", "other": "good", "all": 3, "wide": {"k": [1]}, "once": "x",
        "numbers": [1, 2.5], "choice": "50%", "times": ["2026-01-01"],
    }  # fmt: skip
    chosen = next(v for v in crd["spec"]["versions"] if v["name"] == name)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    meta = {"name": "a", "labels": {"app": "one"}} if crd["spec"]["scope"] == "Namespaced" else {"name": crd["spec"]["group"].split(".")[0], "labels": {"app": "one"}}
    return {"apiVersion": f"{crd['spec']['group']}/{name}", "kind": "Thing", "metadata": meta,
            "spec": {k: copy.deepcopy(v) for k, v in values.items() if k in chosen}}  # fmt: skip
