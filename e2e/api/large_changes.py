"""What long changes and questions cost: updates and patches of every form, selectors, parameters, subresources, reviews, definitions and the
answers of webhooks, each filled until it has a size, then four times as much.

    python e2e/api/large_changes.py SERVER TOKEN PID [BYTES [PART…]]

PART: a kind of api_objects.yaml, or one of `operations`, `questions`, `subresources`, `definitions`, `stored`. Changes of kinds are
not stored (`dryRun=All`). `SHARE` of all questions are asked, and of those about kinds a tenth of that; `SEED` says which. As `large_bodies.py`, it prints what costs far more than its length, what leaves much memory behind, and what is answered
with a 5xx; the exit code is 1 if there is any.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Iterator

import yaml

from large_bodies import HERE, Documents, Meter, Path, filled, put
from schemas import Server

JSON, MERGE, STRATEGIC, APPLY, OPERATIONS = (
    f"application/{name}" for name in ("json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml", "json-patch+json")
)
MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# The longest address that is sent; servers take no longer ones.
ADDRESS = 60_000
DRY = "dryRun=All&fieldManager=m&force=true"
KINDS = yaml.safe_load((HERE / "api_objects.yaml").read_text().replace("${NS}", "default"))


def make(server: Server, path: str, body: dict) -> str:
    """Creates an object unless it is there; its path."""
    code, told = server.ask("POST", path, json.dumps(body).encode())
    assert code in (201, 409), told[:500]
    return f"{path}/{body['metadata']['name']}"


def kinds(meter: Meter, documents: Documents, only: set[str]) -> None:
    """Each list and map of each kind by update and by patches of each form."""
    for kind, entry in KINDS.items():
        if kind not in only:
            continue
        base = copy.deepcopy(entry["object"])
        base["metadata"]["name"] = "large-changes"
        namespaced = "/namespaces/default/" in entry["path"]
        path = make(meter.server, entry["path"], base)
        base["metadata"] |= {"namespace": "default"} if namespaced else {}
        for where, node, alike, named in documents.fields(base):
            if where[:2] == ("metadata", "managedFields"):
                continue
            for method, media in (("PUT", JSON), ("PATCH", MERGE), ("PATCH", STRATEGIC), ("PATCH", APPLY), ("PATCH", OPERATIONS)):
                if media == STRATEGIC and "." in base["apiVersion"].partition("/")[0] and not base["apiVersion"].split("/")[0].endswith("k8s.io"):
                    continue

                def request(
                    bytes_: int, method: str = method, media: str = media, where: Path = where, node: dict = node, alike: bool = alike
                ) -> tuple[str, object]:
                    value = filled(documents, node, bytes_, alike)
                    own = f"{path}?{DRY if media == APPLY else DRY.removesuffix('&force=true')}"
                    match media:
                        case "application/json-patch+json":
                            return own, [{"op": "add", "path": f"/{where[0]}", "value": put(copy.deepcopy(base), where, value)[where[0]]}]
                        case "application/json" | "application/apply-patch+yaml":
                            return own, put(copy.deepcopy(base), where, value)
                        case _:
                            return own, put({}, where, value)

                meter.look(f"{method} {media.split('/')[1]} {kind} {named}", method, request, media)


def operations(meter: Meter) -> None:
    """Patches of many operations, and patches of large stored objects."""
    server = meter.server
    small = make(server, MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"}, "data": {"k": "v"}})
    meta = {"name": "large", "finalizers": [f"example.com/f{n}" for n in range(8_000)], "labels": {f"l{n}": "v" for n in range(8_000)}}
    large = make(server, MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {f"k{n}": f"v{n}" for n in range(8_000)}})
    one = {
        "add": lambda n: {"op": "add", "path": f"/data/k{n}", "value": "v"},
        "add first": lambda n: {"op": "add", "path": "/metadata/finalizers/0", "value": f"example.com/g{n}"},
        "add last": lambda n: {"op": "add", "path": "/metadata/finalizers/-", "value": f"example.com/g{n}"},
        "test": lambda n: {"op": "test", "path": "/data/k", "value": "v"},
        "test all": lambda n: {"op": "test", "path": "", "value": {}},
        "copy": lambda n: {"op": "copy", "from": "/data", "path": f"/metadata/x{n}"},
        "copy in itself": lambda n: {"op": "copy", "from": "/metadata", "path": "/metadata/x"},
        "move": lambda n: {"op": "move", "from": "/data", "path": "/data"},
        "move there and back": lambda n: {"op": "move", "from": ("/data", "/other")[n % 2], "path": ("/other", "/data")[n % 2]},
        "remove first": lambda n: {"op": "remove", "path": "/metadata/finalizers/0"},
        "replace": lambda n: {"op": "replace", "path": "/data/k", "value": f"v{n}"},
        "deep": lambda n: {"op": "add", "path": "/metadata" + "/a" * 500, "value": {}},
    }
    for name, operation in one.items():
        for target, path in (("small", small), ("large", large)):

            def many(bytes_: int, operation=operation, path: str = path) -> tuple[str, object]:
                count = max(1, bytes_ // len(json.dumps(operation(100_000))))
                return f"{path}?dryRun=All", [operation(n) for n in range(count)]

            meter.look(f"{name}, {target}", "PATCH", many, OPERATIONS)
    texts = {
        "finalizers": lambda n: {"metadata": {"finalizers": [f"example.com/g{i}" for i in range(n // 20)]}},
        "finalizers deleted": lambda n: {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"example.com/f{i}" for i in range(n // 20)]}},
        "finalizers ordered": lambda n: {"metadata": {"$setElementOrder/finalizers": [f"example.com/f{i}" for i in range(n // 20)]}},
        "owners": lambda n: {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": f"u{i}"} for i in range(n // 60)]}},
        "owners deleted": lambda n: {"metadata": {"ownerReferences": [{"$patch": "delete", "uid": f"u{i}"} for i in range(n // 60)]}},
        "labels deleted": lambda n: {"metadata": {"labels": {f"l{i}": None for i in range(n // 14)}}},
        "data": lambda n: {"data": {f"k{i}": "other" for i in range(n // 16)}},
        "keys retained": lambda n: {"data": {"$retainKeys": [f"k{i}" for i in range(n // 8)]}},
    }
    for name, patch in texts.items():
        for media in (MERGE, STRATEGIC, APPLY):

            def change(bytes_: int, patch=patch, media: str = media) -> tuple[str, object]:
                body = patch(bytes_)
                if media == APPLY:
                    body = {"apiVersion": "v1", "kind": "ConfigMap", **body}
                    body.setdefault("metadata", {})["name"] = "large"
                return f"{large}?dryRun=All&fieldManager=m" + ("&force=true" if media == APPLY else ""), body

            meter.look(f"{name}, {media.split('/')[1]}", "PATCH", change, media)
    managers = lambda n: [
        {"manager": f"m{i}", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:data": {f"f:k{i}": {}}}} for i in range(n // 180)]  # fmt: skip
    meter.look("managers", "PUT", lambda n: (f"{small}?dryRun=All", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small", "managedFields": managers(n)}, "data": {"k": "v"}}))  # fmt: skip
    versions = lambda n: [{**entry, "manager": "m", "apiVersion": f"v{i}"} for i, entry in enumerate(managers(n))]
    meter.look("managers of versions", "PUT", lambda n: (f"{small}?dryRun=All", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small", "managedFields": versions(n)}, "data": {"k": "v"}}))  # fmt: skip


def questions(meter: Meter) -> None:
    """Selectors and parameters, on a list of many."""
    for n in range(300):
        make(meter.server, MAPS, {"metadata": {"name": f"m{n}", "labels": {f"k{i}": f"v{n}" for i in range(20)}}})
    number = lambda n, each: range(max(1, n * ADDRESS // meter.size // each))
    texts = {
        "labelSelector": {
            "equal": lambda n: ",".join(f"k{i}=v" for i in number(n, 8)),
            "in": lambda n: "k1 in (" + ",".join(f"v{i}" for i in number(n, 6)) + ")",
            "not in": lambda n: "k1 notin (" + ",".join(f"v{i}" for i in number(n, 6)) + ")",
            "not there": lambda n: ",".join(f"!x{i}" for i in number(n, 8)),
            "many of many": lambda n: ",".join(f"k{i} notin (a,b,c,d,e,f,g)" for i in number(n, 40)),
            "commas": lambda n: "," * len(number(n, 1)),
            "brackets": lambda n: "(" * len(number(n, 1)),
            "spaces": lambda n: "+" * len(number(n, 1)),
            "one": lambda n: "k" * len(number(n, 1)),
        },
        "fieldSelector": {
            "equal": lambda n: ",".join(f"metadata.name=v{i}" for i in number(n, 18)),
            "unequal": lambda n: ",".join(f"metadata.name!=v{i}" for i in number(n, 18)),
            "escaped": lambda n: "metadata.name=" + "%5C%2C" * len(number(n, 6)),
            "commas": lambda n: "," * len(number(n, 1)),
        },
        "continue": {"long": lambda n: "a" * len(number(n, 1))},
        "resourceVersion": {"digits": lambda n: "1" * len(number(n, 1))},
        "fieldManager": {"long": lambda n: "a" * len(number(n, 1)), "control": lambda n: "%01" * len(number(n, 3))},
        "x": {"percent": lambda n: "%25" * len(number(n, 3)), "broken": lambda n: "%zz" * len(number(n, 3))},
    }
    for parameter, forms in texts.items():
        for form, text in forms.items():
            ask = lambda n, text=text, parameter=parameter: (f"{MAPS}?{parameter}={text(n).replace(' ', '+')}", None)
            meter.look(f"GET {parameter} {form}", "GET", ask)
            meter.look(f"DELETE {parameter} {form}", "DELETE", lambda n, ask=ask: (ask(n)[0] + "&dryRun=All", None))
    for path, parameter in ((MAPS, "dryRun=All"), (MAPS, "labelSelector=a"), ("/readyz", "exclude=etcd"), ("/readyz", "exclude=x{}"), (MAPS, "{}")):
        repeated = lambda n, path=path, parameter=parameter: (
            f"{path}?" + "&".join(parameter.format(i) for i in number(n, len(parameter) + 1)), None)  # fmt: skip
        meter.look(f"{path}, {parameter} repeated", "GET", repeated)
    meter.look("slashes", "GET", lambda n: (MAPS + "/" * len(number(n, 1)), None))
    meter.look("segments", "GET", lambda n: (MAPS + "/a" * len(number(n, 2)), None))
    meter.look("escapes", "GET", lambda n: (MAPS + "/" + "%2e" * len(number(n, 3)), None))


def subresources(meter: Meter) -> None:
    """Bodies of subresources and of reviews."""
    server = meter.server
    pod = copy.deepcopy(KINDS["Pod"]["object"])
    pod["metadata"] |= {"name": "large-changes", "finalizers": ["example.com/stays"]}
    pods = "/api/v1/namespaces/default/pods"
    path = make(server, pods, pod)
    account = make(server, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "large-changes"}})
    words = lambda n: [f"w{i}" for i in range(n // 9)]
    members = lambda n: {f"k{i}": f"v{i}" for i in range(n // 18)}
    conditions = lambda n: [{"type": f"c{i}", "status": "True"} for i in range(n // 36)]
    spec = {"namespace": "default", "verb": "get", "resource": "pods"}
    review = lambda kind, more: {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": more}
    reviews = "/apis/authorization.k8s.io/v1"
    posts: dict[str, tuple[str, object]] = {
        "eviction": (f"{path}/eviction?dryRun=All", lambda n: {"metadata": {"name": "large-changes", "labels": members(n)}}),
        "eviction dry": (f"{path}/eviction", lambda n: {"metadata": {"name": "large-changes"}, "deleteOptions": {"dryRun": ["All"] * (n // 6)}}),
        "binding": (f"{path}/binding?dryRun=All", lambda n: {"metadata": {"annotations": members(n)}, "target": {"kind": "Node", "name": "n" * n}}),
        "token": (f"{account}/token", lambda n: {"spec": {"audiences": words(n)}}),
        "token alike": (f"{account}/token", lambda n: {"spec": {"audiences": ["a"] * (n // 4)}}),
        "access groups": (f"{reviews}/subjectaccessreviews", lambda n: review("SubjectAccessReview", {"user": "u", "groups": words(n), "resourceAttributes": spec})),
        "access extra": (f"{reviews}/subjectaccessreviews", lambda n: review("SubjectAccessReview", {
            "user": "u", "extra": {key: [value] for key, value in members(n).items()}, "resourceAttributes": spec})),
        "access name": (f"{reviews}/selfsubjectaccessreviews", lambda n: review("SelfSubjectAccessReview", {"resourceAttributes": {**spec, "name": "n" * n}})),
        "access requirements": (f"{reviews}/selfsubjectaccessreviews", lambda n: review("SelfSubjectAccessReview", {"resourceAttributes": {
            **spec, "labelSelector": {"requirements": [{"key": f"k{i}", "operator": "In", "values": ["v"]} for i in range(n // 50)]}}})),
        "rules": (f"{reviews}/selfsubjectrulesreviews", lambda n: review("SelfSubjectRulesReview", {"namespace": "n" * n})),
        "tokenreview": ("/apis/authentication.k8s.io/v1/tokenreviews", lambda n: {"spec": {"token": "a." * (n // 2)}}),
        "tokenreview audiences": ("/apis/authentication.k8s.io/v1/tokenreviews", lambda n: {"spec": {"token": "a", "audiences": words(n)}}),
    }  # fmt: skip
    for name, (address, body) in posts.items():
        meter.look(f"POST {name}", "POST", lambda n, address=address, body=body: (address, {**body(n)}))
    changes = {
        "status": lambda n: {"status": {"conditions": conditions(n)}},
        "resize": lambda n: {"spec": {"containers": [{"name": f"c{i}", "resources": {}} for i in range(n // 30)]}},
        "ephemeralcontainers": lambda n: {"spec": {"ephemeralContainers": [{"name": f"c{i}", "image": "i"} for i in range(n // 30)]}},
    }
    for name, change in changes.items():
        meter.look(f"PUT {name}", "PUT", lambda n, name=name, change=change: (f"{path}/{name}?dryRun=All", {
            "apiVersion": "v1", "kind": "Pod", **pod, **change(n)}))  # fmt: skip
        for media in (MERGE, STRATEGIC):
            meter.look(f"PATCH {media} {name}", "PATCH", lambda n, name=name, change=change: (f"{path}/{name}?dryRun=All", change(n)), media)
    jobsets = copy.deepcopy(KINDS["Deployment"])
    jobsets["object"]["metadata"]["name"] = "large-changes"
    scaled = make(server, jobsets["path"], jobsets["object"]) + "/scale?dryRun=All"
    scale = lambda n: {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "large-changes", "labels": members(n)}, "spec": {"replicas": 1}}
    meter.look("PUT scale", "PUT", lambda n: (scaled, scale(n)))
    for media in (MERGE, STRATEGIC):
        meter.look(f"PATCH {media} scale", "PATCH", lambda n: (scaled, scale(n)), media)
    server.ask("PATCH", path, b'{"metadata":{"finalizers":null}}', MERGE)
    server.ask("DELETE", f"{path}?gracePeriodSeconds=0")


def schemas() -> Iterator[tuple[str, object]]:
    """Schemas of definitions by what is large in them: functions of a size to the schema of `spec`."""
    text, whole = {"type": "string"}, {"type": "integer"}
    yield "wide", lambda n: {"type": "object", "properties": {f"p{i}": text for i in range(n // 26)}}

    def deep(n: int, key: str) -> dict:
        node: dict = dict(text)
        for _ in range(min(n // 50, 400)):
            node = {"type": "array", "items": node} if key == "items" else {"type": "object", "properties": {"p": node}}
        return node

    yield "deep objects", lambda n: deep(n, "properties")
    yield "deep lists", lambda n: deep(n, "items")
    yield "enum", lambda n: {"type": "string", "enum": [f"e{i}" for i in range(n // 9)]}
    yield "enum of objects", lambda n: {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "enum": [{"a": i} for i in range(n // 12)]}
    yield "required", lambda n: {"type": "object", "properties": {f"p{i}": text for i in range(n // 36)}, "required": [f"p{i}" for i in range(n // 36)]}
    yield "defaults", lambda n: {"type": "object", "properties": {f"p{i}": {"type": "integer", "default": i} for i in range(n // 40)}}
    yield "large default", lambda n: {"type": "object", "default": {}, "properties": {"p": {"type": "string", "default": "x" * n}}}
    yield "rules", lambda n: {"type": "object", "properties": {"p": whole}, "x-kubernetes-validations": [{"rule": f"self.p != {i}"} for i in range(n // 30)]}
    yield (
        "long rule",
        lambda n: {"type": "object", "properties": {"p": whole}, "x-kubernetes-validations": [{"rule": "self.p != 0" + " && self.p != 1" * (n // 15)}]},
    )
    yield (
        "deep rule",
        lambda n: {"type": "object", "properties": {"p": whole}, "x-kubernetes-validations": [{"rule": "(" * (n // 2) + "self.p != 0" + ")" * (n // 2)}]},
    )
    yield "dear rule", lambda n: {"type": "object", "properties": {"p": {"type": "array", "items": whole}}, "x-kubernetes-validations": [
        {"rule": "self.p.all(a, self.p.all(b, a == b))"}] * (n // 70)}  # fmt: skip
    yield "anyOf", lambda n: {"type": "object", "properties": {"p": whole}, "anyOf": [{"properties": {"p": {"minimum": i}}} for i in range(n // 40)]}

    def nested(n: int) -> dict:
        node: dict = {"properties": {"p": {"minimum": 1}}}
        for _ in range(min(n // 100, 200)):
            node = {"anyOf": [node, {"not": {"properties": {"p": {"minimum": 2}}}}]}
        return {"type": "object", "properties": {"p": whole}, **node}

    yield "nested anyOf", nested
    yield "pattern", lambda n: {"type": "string", "pattern": "(a*)*" * (n // 5)}
    yield "counted pattern", lambda n: {"type": "string", "pattern": "((((a{0,99}){0,99}){0,99}){0,99}){0," + "9" * (1 + n // 500_000) + "}"}
    yield "list keys", lambda n: {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [f"p{i}" for i in range(n // 40)],
                                  "items": {"type": "object", "properties": {f"p{i}": text for i in range(n // 40)}, "required": [f"p{i}" for i in range(n // 40)]}}  # fmt: skip
    yield "description", lambda n: {"type": "object", "description": "x" * n}


def definition(name: str, spec: dict, **more: object) -> dict:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{name}.large.example.com"},
        "spec": {"group": "large.example.com", "scope": "Namespaced", "names": {"plural": name, "singular": name, "kind": name.title(), "listKind": f"{name.title()}List"},
                 "versions": [{**version, **more}]},
    }  # fmt: skip


def definitions(meter: Meter) -> None:
    """Definitions, not stored."""
    for name, schema in schemas():
        meter.look(f"definition {name}", "POST", lambda n, schema=schema: (f"{DEFINITIONS}?dryRun=All", definition("things", schema(n))))
    columns = lambda n: [{"name": f"c{i}", "type": "string", "jsonPath": f".spec.p{i}"} for i in range(n // 60)]
    meter.look(
        "definition columns", "POST", lambda n: (f"{DEFINITIONS}?dryRun=All", definition("things", {"type": "object"}, additionalPrinterColumns=columns(n)))
    )
    fields = lambda n: [{"jsonPath": f".spec.p{i}"} for i in range(n // 30)]
    meter.look("definition fields", "POST", lambda n: (f"{DEFINITIONS}?dryRun=All", definition("things", {"type": "object"}, selectableFields=fields(n))))

    def versions(n: int) -> tuple[str, object]:
        whole = definition("things", {"type": "object"})
        (first,) = whole["spec"]["versions"]
        whole["spec"]["versions"] = [first, *({**first, "name": f"v{i}", "storage": False} for i in range(2, n // 150))]
        return f"{DEFINITIONS}?dryRun=All", whole

    meter.look("definition versions", "POST", versions)
    names = lambda n: [f"s{i}" for i in range(n // 9)]

    def named(n: int) -> tuple[str, object]:
        whole = definition("things", {"type": "object"})
        whole["spec"]["names"] |= {"shortNames": names(n), "categories": names(n)}
        return f"{DEFINITIONS}?dryRun=All", whole

    meter.look("definition names", "POST", named)


def stored(meter: Meter) -> None:
    """Definitions of a size that are stored, and objects of them: what a schema makes of a body."""
    server, size = meter.server, meter.size // 8
    values = {
        "wide": lambda n: {f"p{i}": "v" for i in range(n // 10)},
        "enum": lambda n: "e1",
        "defaults": lambda n: {},
        "large default": lambda n: {},
        "anyOf": lambda n: {"p": -1},
        "nested anyOf": lambda n: {"p": 1},
        "pattern": lambda n: "a" * min(n, 100_000) + "b",
        "counted pattern": lambda n: "a" * min(n, 10_000) + "b",
        "rules": lambda n: {"p": 1_000_000},
        "long rule": lambda n: {"p": 2},
        "list keys": lambda n: [{}] * (n // 20),
        "enum of objects": lambda n: {"a": -1},
    }  # fmt: skip
    for name, schema in schemas():
        if name not in values or not meter.chosen(f"object of {name}"):
            continue
        plural = "".join(c for c in name if c.isalpha()).lower()
        code, told = server.ask("POST", DEFINITIONS, json.dumps(definition(plural, schema(size))).encode())
        if code not in (201, 409):
            print(f"{name} is refused: {code} {told[:120].decode(errors='replace')}", flush=True)
            continue
        path = f"/apis/large.example.com/v1/namespaces/default/{plural}"
        until = time.monotonic() + 30
        while server.ask("GET", path)[0] != 200 and time.monotonic() < until:
            time.sleep(0.05)

        def request(n: int, name: str = name, plural: str = plural, path: str = path) -> tuple[str, object]:
            body = {"apiVersion": "large.example.com/v1", "kind": plural.title(), "metadata": {"name": "a"}, "spec": values[name](n)}
            return f"{path}?dryRun=All&fieldManager=m", body

        meter.look(f"object of {name}", "POST", request)
        server.ask("DELETE", f"{DEFINITIONS}/{plural}.large.example.com")
    if not meter.chosen("growth by a default"):
        return
    # one default, into each element
    filler = {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "x" * (size // 2)}}}}
    server.ask("POST", DEFINITIONS, json.dumps(definition("growths", filler)).encode())
    path = "/apis/large.example.com/v1/namespaces/default/growths"
    until = time.monotonic() + 30
    while server.ask("GET", path)[0] != 200 and time.monotonic() < until:
        time.sleep(0.05)
    growth = lambda n: (f"{path}?dryRun=All", {
        "apiVersion": "large.example.com/v1", "kind": "Growths", "metadata": {"name": "a"}, "spec": [{}] * (n // 3)})  # fmt: skip
    meter.look("growth by a default", "POST", growth)
    server.ask("DELETE", f"{DEFINITIONS}/growths.large.example.com")


PARTS = {"operations": operations, "questions": questions, "subresources": subresources, "definitions": definitions, "stored": stored}


def main() -> int:
    server = Server(sys.argv[1], sys.argv[2])
    share, seed = float(os.environ.get("SHARE", "1")), os.environ.get("SEED", "")
    meter = Meter(server, int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1_500_000, share, seed)
    parts = set(sys.argv[5:]) or {*PARTS, *KINDS}
    begun = time.monotonic()
    documents = Documents(server)  # before definitions come and go
    for name, part in PARTS.items():
        if name in parts:
            part(meter)
    if parts & set(KINDS):
        meter.share = share if share >= 1 else share / 10
        kinds(meter, documents, parts & set(KINDS))
    print(f"{meter.asked} requests, {len(meter.found)} findings, {time.monotonic() - begun:.0f} s")
    return 1 if meter.found else 0


if __name__ == "__main__":
    sys.exit(main())
