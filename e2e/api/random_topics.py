"""Scenarios about one topic each, as somebody records them who wants to know what an API server does there.

`random_api.py` changes objects anywhere; here each scenario goes through the cases of a topic (apply by several managers, directives
of strategic patches, pages, finalizers, schemas and rules of a CRD, pods' subresources, …), and chance chooses which and in what order.
Nothing here needs a controller.
"""

from __future__ import annotations

import copy
import os
import random
import urllib.parse
from collections.abc import Callable

from random_api import PARTIAL, PARTIALS, PATCHES, TABLE, Scenario, Step

Rng = random.Random
TOPICS: dict[str, Callable[[Rng, str], list[Step]]] = {}
CORE = "/api/v1/namespaces/"


def topic(make: Callable[[Rng, str], list[Step]]) -> Callable[[Rng, str], list[Step]]:
    TOPICS[make.__name__] = make
    return make


def make(seed: str, number: int) -> Scenario:
    """The scenario of that number; the topics take turns, but for `TOPIC=name`, which asks for one."""
    rng, names = random.Random(f"topic/{seed}/{number}"), [os.environ["TOPIC"]] if "TOPIC" in os.environ else list(TOPICS)
    name = names[number % len(names)]
    return Scenario(f"topic-{number}", name, TOPICS[name](rng, f"topic-{number}"))


def some(rng: Rng, steps: list[Step], least: int, most: int) -> list[Step]:
    """A few of the steps, in an order of chance."""
    return rng.sample(steps, min(len(steps), rng.randint(least, most)))


def post(path: str, body: object, query: str = "", **headers: str) -> Step:
    return Step("POST", path + query, body, {k.replace("_", "-"): v for k, v in headers.items()})


def put(path: str, body: object, query: str = "") -> Step:
    return Step("PUT", path + query, body)


def patch(path: str, way: str, body: object, query: str = "") -> Step:
    return Step("PATCH", path + query, body, {"Content-Type": PATCHES[way]})


def apply(path: str, body: object, manager: str, force: bool = False, query: str = "") -> Step:
    return patch(path, "apply", body, f"?fieldManager={manager}" + ("&force=true" if force else "") + query)


def get(path: str, accept: str = "") -> Step:
    return Step("GET", path, None, {"Accept": accept} if accept else {})


def delete(path: str, body: object = None) -> Step:
    return Step("DELETE", path, body)


def config_map(name: str, data: dict | None = None, **meta: object) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, **({} if data is None else {"data": data})}


def container(name: str = "main", **more: object) -> dict:
    return {"name": name, "image": "busybox", **more}


def pod(name: str, **spec: object) -> dict:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"schedulerName": "nobody", "containers": [container()], **spec}}  # fmt: skip


def deployment(name: str, **spec: object) -> dict:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()], **spec}}}}  # fmt: skip


def crd(ns: str, schema: dict, scope: str = "Namespaced", **version: object) -> list[Step]:
    """A definition of Widgets, and the wait until they are served."""
    o = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{ns}.example"},
         "spec": {"group": f"{ns}.example", "scope": scope, "names": {"plural": "widgets", "kind": "Widget"}, "versions": [
             {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}]}}  # fmt: skip
    return [post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", o), Step("GET", widgets(ns, scope), until=200)]


def widgets(ns: str, scope: str = "Namespaced") -> str:
    return f"/apis/{ns}.example/v1" + (f"/namespaces/{ns}" if scope == "Namespaced" else "") + "/widgets"


def widget(ns: str, name: str, spec: object = None, **more: object) -> dict:
    return {"apiVersion": f"{ns}.example/v1", "kind": "Widget", "metadata": {"name": name}, **({} if spec is None else {"spec": spec}), **more}


# -- apply


@topic
def applies(rng: Rng, ns: str) -> list[Step]:
    """Several managers apply, update and patch one object of a built-in kind."""
    kind = rng.choice(["configmaps", "deployments", "services", "pods", "serviceaccounts"])
    base = f"/apis/apps/v1/namespaces/{ns}" if kind == "deployments" else CORE + ns
    path = f"{base}/{kind}/a"

    def object_of() -> dict:
        meta: dict = {"name": "a"}
        if rng.random() < 0.6:
            meta["labels"] = {k: rng.choice("12") for k in rng.sample("xyz", rng.randint(0, 2))}
        if rng.random() < 0.3:
            meta["annotations"] = {k: rng.choice("12") for k in rng.sample("xyz", rng.randint(1, 2))}
        if rng.random() < 0.3:
            meta["finalizers"] = rng.sample(["example.com/a", "example.com/b", "example.com/c"], rng.randint(0, 2))
        if kind == "configmaps":
            o: dict = {"apiVersion": "v1", "kind": "ConfigMap"}
            if rng.random() < 0.9:
                o["data"] = {k: rng.choice("12") for k in rng.sample("klm", rng.randint(0, 3))}
            if rng.random() < 0.2:
                o["binaryData"] = {"b": rng.choice(["AQI=", "AQ=="])}
            if rng.random() < 0.1:
                o["data"] = rng.choice([None, {"k": None}, {"k": 1}, []])
        elif kind == "serviceaccounts":
            o = {"apiVersion": "v1", "kind": "ServiceAccount", **({"automountServiceAccountToken": rng.random() < 0.5} if rng.random() < 0.5 else {}),
                 "imagePullSecrets": [{"name": n} for n in rng.sample("abc", rng.randint(0, 2))]}  # fmt: skip
            if rng.random() < 0.3:
                o["secrets"] = [{"name": n} for n in rng.sample("abc", rng.randint(0, 2))]
        elif kind == "services":
            ports = [{"port": 80, "name": "http"}, {"port": 80, "protocol": "UDP", "name": "u"}, {"port": 443, "name": "https", "targetPort": rng.choice([8443, "web"])}]
            o = {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": rng.sample(ports, rng.randint(1, 3))}}
            if rng.random() < 0.5:
                o["spec"]["selector"] = {k: rng.choice("12") for k in rng.sample("xyz", rng.randint(1, 2))}
            if rng.random() < 0.2:
                o["spec"]["clusterIP"] = rng.choice([None, "None"])
        else:
            def one(name: str) -> dict:
                c: dict = {"name": name}
                if rng.random() < 0.8:
                    c["image"] = rng.choice(["a", "b"])
                if rng.random() < 0.4:
                    c["env"] = [{"name": n, **rng.choice([{"value": "1"}, {"value": "2"}, {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {}])}
                                for n in rng.sample("ABC", rng.randint(1, 2))]  # fmt: skip
                if rng.random() < 0.3:
                    c["args"] = rng.choice([["x"], ["x", "y"], []])
                if rng.random() < 0.4:
                    c["ports"] = rng.sample([{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}, {"containerPort": 90, "name": "n"}], rng.randint(1, 2))
                if rng.random() < 0.3:
                    c["resources"] = {"limits": {"cpu": rng.choice(["1", "1000m", 2]), "memory": "1Gi"}}
                return c

            spec: dict = {"containers": [one(n) for n in rng.sample(["main", "side"], rng.randint(1, 2))]}
            if rng.random() < 0.3:
                spec["tolerations"] = [{"key": "k", "operator": "Exists", **rng.choice([{}, {"effect": "NoSchedule"}])}]
            if rng.random() < 0.3:
                spec["volumes"] = [{"name": n, **rng.choice([{"emptyDir": {}}, {"configMap": {"name": "c"}}, {}])} for n in rng.sample("vw", rng.randint(1, 2))]
            if rng.random() < 0.2:
                spec["nodeSelector"] = dict.fromkeys(rng.sample("xyz", 1), "1")
            if rng.random() < 0.2:
                spec["hostAliases"] = [{"ip": "1.2.3.4", "hostnames": rng.sample(["a", "b"], 1)}]
            if rng.random() < 0.2:
                spec["imagePullSecrets"] = [{"name": n} for n in rng.sample("ab", 1)]
            if kind == "pods":
                o = {"apiVersion": "v1", "kind": "Pod", "spec": {**spec, "schedulerName": "nobody"}}
            else:
                o = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {
                    "metadata": {"labels": {"app": "a"}}, "spec": spec}}}  # fmt: skip
                o["spec"]["replicas"] = 0
                if rng.random() < 0.3:
                    o["spec"]["strategy"] = rng.choice([{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": rng.choice([1, "25%"])}}])
        return {**o, "metadata": meta}

    steps: list[Step] = []
    for _ in range(rng.randint(8, 13)):
        roll, o = rng.random(), object_of()
        if roll < 0.7:
            steps.append(apply(path, o, rng.choice(["one", "two", "three", "one"]), rng.random() < 0.5, rng.choice(["", "", "", "&dryRun=All"])))
        elif roll < 0.8:
            steps.append(put(path, o, rng.choice(["?fieldManager=four", "?fieldManager=one"])))
        elif roll < 0.88:
            steps.append(patch(path, "merge", {"metadata": {"labels": rng.choice([None, {"x": None}, {"x": "3"}])}}, "?fieldManager=five"))
        elif roll < 0.93:
            steps.append(patch(path, "merge", {"metadata": {"managedFields": rng.choice([[{}], [], None])}}, "?fieldManager=six"))
        elif roll < 0.96:
            steps.append(patch(path, "json", [{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "renamed"}]))
        else:
            steps.append(patch(path, "strategic", {k: v for k, v in o.items() if k not in ("apiVersion", "kind")}, "?fieldManager=seven"))
    return steps


@topic
def custom_applies(rng: Rng, ns: str) -> list[Step]:
    """Several managers apply, update and patch a custom resource with every type of list and map."""
    text = {"type": "string"}
    item = {"type": "object", "required": ["name"], "properties": {
        "name": text, "port": {"type": "integer", **({"default": 1} if rng.random() < 0.5 else {})}, "value": text, "inner": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}}}  # fmt: skip
    keys = rng.choice([["name"], ["name", "port"]])
    if keys == ["name", "port"] and "default" not in item["properties"]["port"]:
        item["required"] = ["name", "port"]
    spec = {"type": "object", "properties": {
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}, "list": {"type": "array", "items": text},
        "atomic": {"type": "array", "items": {"type": "object", "properties": {"a": text}}, "x-kubernetes-list-type": "atomic"},
        "map": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text, "b": text}},
        "parts": {"type": "object", "properties": {"a": text, "b": text}}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "values": {"type": "object", "additionalProperties": {"type": "integer"}}, "deep": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": text}}},
        "n": {"type": "integer", **({"default": 3} if rng.random() < 0.5 else {})}, "maybe": {"type": "string", "nullable": True}}}  # fmt: skip
    status = {"type": "object", "properties": {"phase": text, "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
              "items": {"type": "object", "required": ["type"], "properties": {"type": text, "status": text}}}}}  # fmt: skip
    sub = rng.random() < 0.5
    steps = crd(ns, {"type": "object", "properties": {"spec": spec, "status": status}}, **({"subresources": {"status": {}}} if sub else {}))
    path = widgets(ns) + "/a"

    def pick(**options: list) -> dict:
        return {k: copy.deepcopy(rng.choice(v)) for k, v in options.items() if rng.random() < 0.3}

    def object_of() -> dict:
        spec = pick(
            set=[["a"], ["a", "b"], ["c"], [], ["a", "a"]], list=[["a"], ["b", "a"], []], atomic=[[{"a": "1"}], [{"a": "1"}, {"a": "1"}], []],
            map=[[{"name": "a", "port": 1}], [{"name": "a", "port": 1, "value": "1"}, {"name": "b", "port": 1}], [{"name": "a", "port": 2, "inner": ["x"]}], [{"name": "b"}], [], [{"port": 1}],
                 [{"name": "a", "port": 1}, {"name": "a", "port": 1}], [{"name": "a", "port": 1, "inner": ["x", "y"]}]],
            whole=[{"a": "1"}, {"b": "1"}, {"a": "1", "b": "2"}, {}], parts=[{"a": "1"}, {"b": "1"}, {"a": "2"}, {}, None],
            free=[{"x": 1}, {"x": {"y": 1}}, {"z": [1, 2]}, {"z": [1]}, {}], values=[{"a": 1}, {"a": 2}, {"b": 1}, {"a": "x"}, {}], deep=[{"k": {"a": "1"}}, {"k": {}}, {"l": {"a": "2"}}],
            n=[1, 2, None, 3], maybe=["x", None], unknown=[1])  # fmt: skip
        more = {"status": pick(phase=["A", "B"], conditions=[[{"type": "R", "status": "True"}], [{"type": "S"}], []])} if rng.random() < 0.3 else {}
        o = widget(ns, "a", spec if rng.random() < 0.95 else None, **more)
        if rng.random() < 0.3:
            o["metadata"]["labels"] = pick(x=["1", "2"], y=["1"])
        return o

    for _ in range(rng.randint(8, 13)):
        roll, o, at = rng.random(), object_of(), path + rng.choice(["", "", "", "/status" if sub else ""])
        if roll < 0.72:
            steps.append(apply(at, o, rng.choice(["one", "two", "three", "one"]), rng.random() < 0.5, rng.choice(["", "", "", "&dryRun=All", "&fieldValidation=Strict"])))
        elif roll < 0.82:
            o["metadata"]["resourceVersion"] = "${rv}"
            steps.append(put(at, o, rng.choice(["?fieldManager=four", "?fieldManager=one"])))
        elif roll < 0.95:
            steps.append(patch(at, "merge", {k: v for k, v in o.items() if k in ("spec", "status")}, rng.choice(["?fieldManager=five", "?fieldManager=one"])))
        else:
            steps.append(patch(path, "merge", {"metadata": {"managedFields": rng.choice([[{}], [], None])}}))
    return steps


# -- the other patches


@topic
def strategic(rng: Rng, ns: str) -> list[Step]:
    """Directives and merge keys of strategic merge patches."""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    o = deployment("a", containers=[
        container("main", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}], args=["x", "y"], ports=[{"containerPort": 80, "name": "web"}, {"containerPort": 81}],
                  volumeMounts=[{"name": "v", "mountPath": "/v"}], command=["c"], resources={"limits": {"cpu": "1"}}),
        container("side", envFrom=[{"configMapRef": {"name": "c"}}])],
        volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "c"}}], tolerations=[{"key": "k", "operator": "Exists"}],
        initContainers=[container("init")], nodeSelector={"x": "1", "y": "2"}, imagePullSecrets=[{"name": "s"}], hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a"]}],
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}])  # fmt: skip
    o["metadata"] |= {"labels": {"x": "1"}, "finalizers": ["example.com/a", "example.com/b"], "annotations": {"n": "1"}}

    def spec() -> dict:
        parts = [
            {"containers": [{"name": "side", "$patch": "delete"}]}, {"containers": [{"name": "main", "image": "new"}]}, {"containers": [{"name": "third", "image": "x"}]},
            {"containers": [{"$patch": "replace"}, {"name": "only", "image": "x"}]}, {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}], "containers": [{"name": "main", "image": "o"}]},
            {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}, {"$setElementOrder/containers": [{"name": "nobody"}, {"name": "main"}, {"name": "side"}]},
            {"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}, {"name": "C", "value": "3"}]}]}, {"containers": [{"name": "main", "env": None}]},
            {"containers": [{"name": "main", "$setElementOrder/env": [{"name": "B"}, {"name": "A"}], "env": [{"name": "A", "value": "9"}]}]}, {"containers": [{"name": "main", "args": ["z"]}]},
            {"containers": [{"name": "main", "ports": [{"containerPort": 80, "name": "other"}]}]}, {"containers": [{"name": "main", "ports": [{"containerPort": 82}]}]},
            {"containers": [{"name": "main", "ports": [{"containerPort": 81, "$patch": "delete"}]}]}, {"containers": [{"image": "nameless"}]}, {"containers": []}, {"containers": "x"},
            {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/v", "$patch": "delete"}]}]}, {"containers": [{"name": "nobody", "$patch": "delete"}]},
            {"containers": [{"name": "main", "$patch": "replace", "image": "r"}]}, {"containers": [{"name": "main", "resources": {"$patch": "replace", "requests": {"cpu": "1"}}}]},
            {"volumes": [{"name": "w", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}, {"volumes": [{"name": "w", "emptyDir": {}}]}, {"volumes": [{"name": "w", "$patch": "delete"}]},
            {"volumes": [{"name": "w", "$retainKeys": ["name"], "emptyDir": {}}]}, {"tolerations": [{"key": "l", "operator": "Exists"}]}, {"nodeSelector": {"$patch": "replace", "z": "1"}},
            {"nodeSelector": {"x": None}}, {"nodeSelector": None}, {"initContainers": [{"name": "init", "$patch": "delete"}]}, {"imagePullSecrets": [{"name": "t"}]},
            {"imagePullSecrets": [{"name": "s", "$patch": "delete"}]}, {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["b"]}]}, {"$patch": "delete"}, {"$patch": "what"}, {"$patch": 1},
            {"topologySpreadConstraints": [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}, {"$retainKeys": ["containers"]}, {"$retainKeys": "x"},
            {"securityContext": {"runAsUser": 5}}, {"dnsConfig": {"nameservers": ["1.1.1.1"]}}, {"unknown": 1}, {"restartPolicy": None}, {"terminationGracePeriodSeconds": None},
            {"$setElementOrder/tolerations": [{"key": "k"}]}, {"$deleteFromPrimitiveList/x": ["a"]},
        ]  # fmt: skip
        out: dict = {}
        for part in rng.sample(parts, rng.choice([1, 1, 1, 2])):
            out |= copy.deepcopy(part)
        return out

    def body() -> dict:
        roll = rng.random()
        if roll < 0.7:
            return {"spec": {"template": {"spec": spec()}}}
        return copy.deepcopy(rng.choice([
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}, {"metadata": {"finalizers": ["example.com/c"]}}, {"metadata": {"finalizers": None}},
            {"metadata": {"$setElementOrder/finalizers": ["example.com/b", "example.com/a"], "finalizers": ["example.com/b"]}}, {"metadata": {"labels": {"$patch": "delete"}}},
            {"metadata": {"labels": {"$patch": "replace", "q": "1"}}}, {"metadata": {"labels": {"x": None, "y": "2"}}}, {"metadata": {"annotations": {"n": 1}}}, {"spec": {"$patch": "replace"}},
            {"metadata": {"ownerReferences": [{"uid": "u", "name": "n", "kind": "K", "apiVersion": "v1"}]}}, {"metadata": {"ownerReferences": [{"uid": "u", "$patch": "delete"}]}},
            {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, {"spec": {"strategy": {"type": "Recreate"}}}, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "50%"}}}},
            {"spec": {"selector": {"matchLabels": {"app": "b"}}}}, {"spec": {"replicas": "x"}}, {"spec": {"replicas": None}}, {"spec": None}, {"$patch": "delete"}, {"$patch": "replace"}, {},
            {"metadata": None}, {"metadata": {"name": "b"}}, {"kind": "Pod"}, {"spec": {"template": {"metadata": {"labels": {"app": None}}}}}, {"metadata": {"resourceVersion": "1"}},
        ]))  # fmt: skip

    return [post(path, o), *(patch(path + "/a", "strategic", body(), rng.choice(["", "", "", "?dryRun=All", "?fieldManager=m", "?fieldValidation=Strict"])) for _ in range(12))]


@topic
def json_patches(rng: Rng, ns: str) -> list[Step]:
    """JSON patches and merge patches: every operation, pointers, what fails."""
    custom = rng.random() < 0.4
    if custom:
        any_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        steps, path, at = crd(ns, {"type": "object", "properties": {"spec": any_object}}), widgets(ns), "/spec"
        steps.append(post(path, widget(ns, "a", {"k": "v", "l": [1, 2, 3], "m": {"a": {"b": None}}, "a/b": 1, "m~n": 2, "": 3})))
    else:
        path, at, steps = CORE + ns + "/configmaps", "/data", []
        steps.append(post(path, config_map("a", {"k": "v", "l": "w", "a.b": "c"}, labels={"x": "1", "e.g/y": "2"}, annotations={"a~b": "1"}, finalizers=["example.com/a", "example.com/b"])))
    if not custom:
        steps[-1].body["metadata"]["annotations"] = {"a.b": "1"}
    op = lambda o, p, **m: {"op": o, "path": p, **m}
    ops = [
        op("add", at + "/new", value="n"), op("add", at, value={"k": "2"}), op("replace", at + "/k", value="r"), op("replace", at + "/none", value="r"), op("remove", at + "/k"),
        op("remove", at + "/none"), op("test", at + "/k", value="v"), op("test", at + "/k", value="w"), op("test", at + "/none", value=None), op("test", at + "/none", value="x"),
        op("copy", at + "/copied", **{"from": at + "/k"}), op("move", at + "/moved", **{"from": at + "/l"}), op("copy", at + "/c", **{"from": at + "/none"}), op("move", at + "/x", **{"from": "/nope"}),
        op("add", "/metadata/finalizers/-", value="example.com/c"), op("add", "/metadata/finalizers/0", value="example.com/d"), op("add", "/metadata/finalizers/9", value="example.com/d"),
        op("remove", "/metadata/finalizers/0"), op("remove", "/metadata/finalizers/-1"), op("remove", "/metadata/finalizers/x"), op("replace", "/metadata/finalizers/1", value="example.com/z"),
        op("add", "/metadata/labels/e.g~1z", value="1"), op("replace", "/metadata/labels/e.g~1y", value="5"), op("remove", "/metadata/labels"), op("add", "/metadata/labels", value={"q": "1"}),
        op("test", "/metadata/labels/x", value="1"), op("test", "/metadata/labels", value={"x": "1", "e.g/y": "2"}), op("add", "/metadata/labels/n", value=1), op("replace", "", value={}),
        op("add", "/", value=1), op("what", "/a", value=1), {"path": "/a"}, {"op": "add"}, op("add", "bad", value=1), op("add", at + "/a~2b", value="x"), op("test", "/metadata/name", value="a"),
        op("replace", "/metadata/name", value="b"), op("replace", "/metadata/namespace", value="other"), op("replace", "/metadata/uid", value="x"), op("replace", "/metadata/resourceVersion", value="1"),
        op("remove", "/metadata/resourceVersion"), op("add", at + "/deep/er", value="x"), op("add", at + "/k/er", value="x"), op("add", at + "/nul", value=None), op("replace", "/kind", value="Pod"),
        op("add", "/unknown", value=1), op("test", "/metadata/finalizers/0", value="example.com/a"), op("move", at, **{"from": at}), op("copy", "/metadata/annotations", **{"from": "/metadata/labels"}),
        op("add", at + "/l/-", value=4), op("add", at + "/l/1", value=9), op("remove", at + "/l/0"), op("replace", at + "/m/a/b", value=1), op("test", at + "/l", value=[1, 2, 3]),
        op("test", at + "/l/0", value=1.0), op("test", at + "/m", value={"a": {"b": None}}), op("test", at + "/m/a/b", value=None), op("add", at + "/a~1b", value="s"), op("add", at + "/m~0n", value="t"),
    ]  # fmt: skip
    merges = [{"metadata": {"labels": None}}, {"metadata": {"finalizers": []}}, {at[1:]: None}, {at[1:]: {"k": None, "z": "1"}}, {at[1:]: {"k": {"a": "b"}}}, {at[1:]: [1]}, [], "x", 5, None, {},
              {"metadata": {"labels": {"x": 5}}}, {"metadata": {"labels": {"e.g/y": None, "w": "1"}}}, {"metadata": {"name": "b"}}, {"metadata": {"namespace": "other"}}, {"unknown": {"a": 1}},
              {"metadata": {"creationTimestamp": None}}, {"metadata": {"uid": "x"}}, {"metadata": {"generation": 7}}, {"metadata": {"resourceVersion": "1"}}, {"metadata": {"resourceVersion": "${rv}"}},
              {"apiVersion": "v2"}, {"kind": "Other"}, {"metadata": {"annotations": {"a": "x" * 300}}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, {"metadata": []}]  # fmt: skip
    query = lambda: rng.choice(["", "", "", "?dryRun=All", "?fieldManager=m", "?fieldValidation=Strict", "?fieldValidation=Ignore", "?force=true"])
    for _ in range(12):
        if rng.random() < 0.3:
            steps.append(patch(path + "/a", "merge", copy.deepcopy(rng.choice(merges)), query()))
        else:
            steps.append(patch(path + "/a", "json", copy.deepcopy(rng.sample(ops, rng.choice([1, 1, 2, 3]))), query()))
    steps.append(get(path + "/a"))
    return steps


# -- reading


@topic
def lists(rng: Rng, ns: str) -> list[Step]:
    """Lists, pages, selectors, versions, forms and watches of a few objects."""
    kind = rng.choice(["configmaps", "pods", "secrets", "widgets"])
    path, steps = CORE + ns + "/" + kind, []
    if kind == "widgets":
        text = {"type": "string"}
        steps += crd(ns, {"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": text, "n": {"type": "integer"}, "on": {"type": "boolean"}}}}},
                     selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.on"}],
                     additionalPrinterColumns=[{"name": "Color", "type": "string", "jsonPath": ".spec.color"}, {"name": "N", "type": "integer", "jsonPath": ".spec.n", "priority": 1}])  # fmt: skip
        path = widgets(ns)
    for i, name in enumerate(rng.sample(["a", "b", "c", "d", "e"], rng.randint(3, 5))):
        o = {"configmaps": lambda n: config_map(n, {"k": n}), "pods": pod, "widgets": lambda n: widget(ns, n, {"color": rng.choice(["red", "blue"]), "n": rng.randint(0, 2), "on": rng.random() < 0.5}),
             "secrets": lambda n: {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": n}, "type": rng.choice(["Opaque", "example.com/x"]), "stringData": {"a": "b"}}}[kind](name)  # fmt: skip
        o["metadata"]["labels"] = {"app": rng.choice(["one", "two"]), **({"x": rng.choice(["1", "2"])} if rng.random() < 0.5 else {}), "set": ns}
        step = post(path, o)
        step.save = f"made{i}"
        steps.append(step)
    if rng.random() < 0.7:
        steps.append(patch(path + "/a", "merge", {"metadata": {"labels": {"app": rng.choice(["one", "two", None])}}}))
    if rng.random() < 0.5:
        steps.append(delete(path + "/b", {"gracePeriodSeconds": 0} if kind == "pods" else None))
    label = ["app=one", "app in (one,two)", "app notin (two),set", "x", "!x", "app=one,x=1", "x!=1", "app==two", "", "app in (one", "a=b=c", "app,!app", "app=one,", " app = one ", "x in (1, 2),app",
             "x in ()", "=", "!", "app>1", "x>0", "x<2", "app in one", "app=!", "-a=b", "a=-b", "set in (" + ns + ")"]  # fmt: skip
    field = ["metadata.name=a", "metadata.name!=a", "metadata.namespace=" + ns, "metadata.name=a,metadata.namespace=" + ns, "metadata.name==b", "spec.nodeName=", "spec.nodeName=x", "status.phase=Pending",
             "status.phase!=Running", "type=Opaque", "type!=Opaque", "spec.color=red", "spec.n=1", "spec.on=true", "spec.color!=red,spec.n!=0", "nope=1", "metadata.name", "metadata.labels.app=one",
             "spec.restartPolicy=Always", "=a", "metadata.name=a=b", "metadata.name in (a)", "", ",", "metadata.name=", "spec.schedulerName=nobody", "status.podIP=", "spec.hostNetwork=false", "data.k=a"]  # fmt: skip
    forms = ["", "", "", TABLE, PARTIALS, PARTIAL, "application/yaml", TABLE + ",application/json", "application/json;as=Table;g=meta.k8s.io;v=v1beta1", "application/json;as=Table;v=v2;g=meta.k8s.io"]
    for _ in range(9):
        q: dict[str, str] = {}
        if rng.random() < 0.5:
            q["labelSelector"] = rng.choice(label)
        if rng.random() < 0.4:
            q["fieldSelector"] = rng.choice(field)
        roll, step = rng.random(), None
        if roll < 0.25:
            q |= {"watch": rng.choice(["1", "true"]), "timeoutSeconds": "1"}
            q |= rng.choice([{}, {"resourceVersion": "${made0_rv}"}, {"resourceVersion": "${made1_rv}"}, {"resourceVersion": "0"}, {"resourceVersion": "${rv}"}, {"resourceVersionMatch": "NotOlderThan"},
                             {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}, {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"},
                             {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true", "resourceVersion": "${made1_rv}"}, {"limit": "1"}, {"resourceVersion": "-1"},
                             {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, {"sendInitialEvents": "x"}, {"continue": "x"}, {"resourceVersion": "99999999999"}])  # fmt: skip
        elif roll < 0.5:
            q |= {"limit": rng.choice(["1", "2", "3", "100", "0", "-1", "x"])}
            q |= rng.choice([{}, {}, {"resourceVersion": "0"}, {"resourceVersion": "${made1_rv}"}, {"resourceVersion": "${made1_rv}", "resourceVersionMatch": "Exact"}, {"continue": "${continue}"},
                             {"continue": "${continue}"}, {"continue": "${continue}", "resourceVersion": "${rv}"}, {"continue": "abc"}, {"resourceVersion": "${made0_rv}", "resourceVersionMatch": "NotOlderThan"}])  # fmt: skip
        elif roll < 0.7:
            q |= rng.choice([{"resourceVersion": "${made1_rv}", "resourceVersionMatch": "Exact"}, {"resourceVersion": "${made1_rv}"}, {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
                             {"resourceVersion": "0"}, {"resourceVersionMatch": "Exact"}, {"resourceVersion": "x"}, {"resourceVersion": "1", "resourceVersionMatch": "What"}, {"resourceVersion": "${made2_rv}", "resourceVersionMatch": "NotOlderThan"},
                             {"includeObject": rng.choice(["None", "Object", "Metadata", "What"])}, {"pretty": "true"}, {"timeoutSeconds": "0"}, {"allowWatchBookmarks": "true"}])  # fmt: skip
        elif roll < 0.8:
            step = get(path + "/" + rng.choice(["a", "c", "none"]) + rng.choice(["", "", "?resourceVersion=0", "?resourceVersion=${made1_rv}", "?resourceVersion=x", "?resourceVersion=${made1_rv}&resourceVersionMatch=Exact"]), rng.choice(forms))
        elif roll < 0.85:
            step = Step("DELETE", path + "?" + urllib.parse.urlencode({**q, "dryRun": "All"}, safe="${}"))
        steps.append(step or get(path + ("?" + urllib.parse.urlencode(q, safe="${}") if q else ""), rng.choice(forms)))
    return steps
