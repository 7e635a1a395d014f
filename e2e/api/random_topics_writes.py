"""More topics of `random_topics.py`: writing, deleting, what pods have beside themselves, reviews, and how requests are spoken."""

from __future__ import annotations

import copy
import json
import urllib.parse

from random_api import PARTIAL, PARTIALS, TABLE, Step
from random_topics import CORE, Rng, apply, config_map, container, crd, delete, deployment, get, patch, pod, post, put, some, topic, widget, widgets


@topic
def strictness(rng: Rng, ns: str) -> list[Step]:
    """fieldValidation with unknown, misspelt and repeated fields, in every way to write."""
    custom = rng.random() < 0.4
    steps, path = ([], f"/apis/apps/v1/namespaces/{ns}/deployments")
    good: dict = deployment("a")
    spots = [("spec", "unknown"), ("spec", "template", "spec", "bogus"), ("metadata", "other"), ("spec", "Replicas"), ("top",), ("spec", "template", "spec", "containers", 0, "imag")]
    if custom:
        inner = {"type": "object", "properties": {"a": {"type": "string"}, "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "integer"}}}},
                 "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "emb": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}}}  # fmt: skip
        steps, path = crd(ns, {"type": "object", "properties": {"spec": inner}}), widgets(ns)
        good = widget(ns, "a", {"a": "x", "l": [{"b": 1}], "free": {"q": 1}, "emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}})
        spots = [("spec", "unknown"), ("spec", "l", 0, "c"), ("metadata", "other"), ("top",), ("spec", "free", "deep"), ("spec", "emb", "x"), ("spec", "emb", "metadata", "y"), ("spec", "A")]

    def wrong() -> dict:
        o = copy.deepcopy(good)
        for spot in rng.sample(spots, rng.randint(1, 3)):
            parent = o
            for part in spot[:-1]:
                parent = parent[part]
            parent[spot[-1]] = rng.choice([1, "x", {"y": 1}, None, [1]])
        return o

    def doubled(o: dict, yaml: bool) -> str:
        text = json.dumps(o)
        for _ in range(rng.randint(1, 2)):
            key = rng.choice(['"name": "a"', '"kind":', '"spec": {', '"a": "x"', '"replicas": 0', '"image": "busybox"'])
            extra = {'"kind":': f'"kind": "{o["kind"]}", "kind":', '"spec": {': '"spec": {"x": 1, "x": 2, '}.get(key, key + ", " + key)
            text = text.replace(key, extra, 1)
        return text

    query = lambda: rng.choice(["", "?fieldValidation=Strict", "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore", "?fieldValidation=", "?fieldValidation=strict"])
    more = lambda q: q + ("&" if q else "?") + "dryRun=All" if rng.random() < 0.3 else q
    steps.append(post(path, good))
    for _ in range(11):
        roll, o, q = rng.random(), rng.choice([wrong, wrong, lambda: copy.deepcopy(good)])(), more(query())
        yaml = rng.random() < 0.3
        body: object = doubled(o, yaml) if rng.random() < 0.4 else o
        if roll < 0.3:
            o["metadata"]["name"] = rng.choice(["a", "b", "c"])
            steps.append(Step("POST", path + q, body, {"Content-Type": "application/yaml"} if yaml else {}))
        elif roll < 0.55:
            steps.append(Step("PUT", path + "/a" + q, body, {"Content-Type": "application/yaml"} if yaml else {}))
        elif roll < 0.75:
            steps.append(Step("PATCH", path + "/a" + q + ("&" if q else "?") + "fieldManager=m&force=true", body, {"Content-Type": "application/apply-patch+yaml"}))
        elif roll < 0.87:
            steps.append(patch(path + "/a", "merge", body if isinstance(body, str) else {k: v for k, v in o.items() if k not in ("apiVersion", "kind")}, q))
        elif roll < 0.94 and not custom:
            steps.append(patch(path + "/a", "strategic", {k: v for k, v in o.items() if k not in ("apiVersion", "kind")}, q))
        else:
            spot = rng.choice(spots)
            steps.append(patch(path + "/a", "json", [{"op": "add", "path": "/" + "/".join(map(str, spot)), "value": 1}], q))
    return steps


@topic
def deletions(rng: Rng, ns: str) -> list[Step]:
    """Finalizers, preconditions, policies, and what may be written to an object that is going."""
    steps, path = [], CORE + ns + "/configmaps"
    good = config_map("a", {"k": "v"}, finalizers=rng.sample(["example.com/a", "example.com/b", "example.com/c"], rng.randint(1, 2)))
    if rng.random() < 0.4:
        steps, path = crd(ns, {"type": "object", "properties": {"spec": {"type": "object", "properties": {"k": {"type": "string"}}}}}), widgets(ns)
        good = {**widget(ns, "a", {"k": "v"}), "metadata": good["metadata"]}
    one = path + "/a"
    steps.append(post(path, good))
    refused = [delete(one, {"preconditions": {"uid": "x"}}), delete(one, {"preconditions": {"resourceVersion": "1"}}), delete(one, {"preconditions": {"uid": "x", "resourceVersion": "1"}}),
               delete(one, {"propagationPolicy": "What"}), delete(one, {"propagationPolicy": "Orphan", "orphanDependents": True}), delete(one, {"gracePeriodSeconds": -1}), delete(one, {"dryRun": ["Some"]}),
               delete(one + "?propagationPolicy=Sideways"), delete(one + "?dryRun=Yes"), delete(one + "?gracePeriodSeconds=x"), delete(path + "/none"), delete(one, {"kind": "DeleteOptions", "apiVersion": "v2"}),
               delete(one, {"dryRun": ["All"]}), delete(one + "?dryRun=All", {"preconditions": {"uid": "${uid}"}}), delete(one, "not json"), delete(one, {"unknown": 1}), delete(one, []),
               delete(one, {"apiVersion": "v1", "kind": "ConfigMap"}), delete(one, {"apiVersion": "meta.k8s.io/v1", "kind": "DeleteOptions", "dryRun": ["All"]}), delete(one + "?dryRun=All", {"gracePeriodSeconds": 0}),
               delete(one + "?dryRun=All", {"ignoreStoreReadErrorWithClusterBreakingPotential": True}), delete(one + "?dryRun=All&propagationPolicy=Foreground"), delete(one, {"propagationPolicy": ""})]  # fmt: skip
    steps += some(rng, refused, 3, 5)
    steps.append(delete(one + rng.choice(["", "", "?gracePeriodSeconds=5", "?propagationPolicy=Background"]), rng.choice([None, {}, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "${uid}"}}])))
    going = lambda **m: {**good, "metadata": {**good["metadata"], **m}}
    steps += some(rng, [
        get(one), delete(one), post(path, good), patch(one, "merge", {"metadata": {"finalizers": ["example.com/new"]}}), patch(one, "merge", {"metadata": {"labels": {"x": "1"}}}), get(path, TABLE),
        put(one, going(labels={"y": "1"})), put(one, going(finalizers=[*good["metadata"]["finalizers"], "example.com/z"])), patch(one, "merge", {"metadata": {"deletionTimestamp": None}}),
        apply(one, {k: v for k, v in going(finalizers=["example.com/z"]).items() if k != "data"}, "m"), patch(one, "json", [{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/y"}]),
        delete(one + "?propagationPolicy=Orphan&dryRun=All"), delete(one, {"gracePeriodSeconds": 0}), patch(one, "merge", {"metadata": {"deletionGracePeriodSeconds": 9}}), delete(path + "?dryRun=All"),
        patch(one, "merge", {"metadata": {"finalizers": list(reversed(good["metadata"]["finalizers"]))}}),
    ], 4, 8)  # fmt: skip
    last = rng.choice([patch(one, "json", [{"op": "remove", "path": "/metadata/finalizers"}]), patch(one, "merge", {"metadata": {"finalizers": None}}), put(one, going(finalizers=[])),
                       patch(one, "merge", {"metadata": {"finalizers": []}}, "?dryRun=All")])  # fmt: skip
    return [*steps, last, get(one), post(path, good), get(one)]


@topic
def metadata(rng: Rng, ns: str) -> list[Step]:
    """Names, generated names, labels, annotations, owners, finalizers, and metadata that only the server writes."""
    steps: list[Step] = []
    kind = rng.choice(["configmaps", "services", "namespaces", "secrets", "widgets", "roles", "serviceaccounts", "leases", "priorityclasses"])
    path = {"namespaces": "/api/v1/namespaces", "roles": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", "leases": f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
            "widgets": widgets(ns), "priorityclasses": "/apis/scheduling.k8s.io/v1/priorityclasses"}.get(kind, f"{CORE}{ns}/{kind}")  # fmt: skip
    body = {"configmaps": {"apiVersion": "v1", "kind": "ConfigMap"}, "services": {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": [{"port": 80}]}},
            "namespaces": {"apiVersion": "v1", "kind": "Namespace"}, "secrets": {"apiVersion": "v1", "kind": "Secret"}, "widgets": {"apiVersion": f"{ns}.example/v1", "kind": "Widget"},
            "roles": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}, "serviceaccounts": {"apiVersion": "v1", "kind": "ServiceAccount"},
            "leases": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, "priorityclasses": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5}}[kind]  # fmt: skip
    if kind == "widgets":
        steps += crd(ns, {"type": "object"})
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
    metas: list = [
        {"name": "A"}, {"name": "a_b"}, {"name": "a.b"}, {"name": "x" * 64}, {"name": "x" * 254}, {"name": "-a"}, {"name": ""}, {}, {"name": "a/b"}, {"name": "."}, {"name": ".."}, {"name": "a%b"},
        {"generateName": "g-"}, {"generateName": "G_"}, {"generateName": "x" * 70}, {"generateName": "g-", "name": "n"}, {"name": "n", "labels": {"a b": "c"}}, {"name": "n", "labels": {"a": "b c"}},
        {"name": "n", "labels": {"a": "x" * 64}}, {"name": "n", "labels": {"x" * 64: "a"}}, {"name": "n", "labels": {"A.B/c": "d"}}, {"name": "n", "labels": {"a/b/c": "d"}}, {"name": "n", "labels": {"": "d"}},
        {"name": "n", "labels": {"a": 1}}, {"name": "n", "labels": {"a": None}}, {"name": "n", "labels": []}, {"name": "n", "annotations": {"a b": "c"}}, {"name": "n", "annotations": {"A.b/C": "d"}},
        {"name": "n", "annotations": {"a": "x" * 262145}}, {"name": "n", "annotations": {"a": 5}}, {"name": "n", "finalizers": ["x"]}, {"name": "n", "finalizers": ["a b"]}, {"name": "n", "finalizers": ["example.com/a", "example.com/a"]},
        {"name": "n", "finalizers": [""]}, {"name": "n", "finalizers": ["kubernetes"]}, {"name": "n", "finalizers": ["foregroundDeletion", "orphan"]}, {"name": "n", "ownerReferences": [{}]},
        {"name": "n", "ownerReferences": [{**owner, "controller": True}, {**owner, "uid": "v", "controller": True}]}, {"name": "n", "ownerReferences": [{**owner, "apiVersion": "a/b/c"}]},
        {"name": "n", "ownerReferences": [{**owner, "name": ""}]}, {"name": "n", "ownerReferences": [owner, owner]}, {"name": "n", "ownerReferences": [{**owner, "kind": "Event"}]},
        {"name": "n", "ownerReferences": [{**owner, "blockOwnerDeletion": True, "unknown": 1}]}, {"name": "n", "resourceVersion": "5"}, {"name": "n", "uid": "mine"}, {"name": "n", "generation": 7},
        {"name": "n", "creationTimestamp": "2020-01-01T00:00:00Z"}, {"name": "n", "creationTimestamp": "bad"}, {"name": "n", "deletionTimestamp": "2020-01-01T00:00:00Z"}, {"name": "n", "selfLink": "x"},
        {"name": "n", "namespace": "other"}, {"name": "n", "namespace": ns}, {"name": "n", "managedFields": [{"manager": "x"}]}, {"name": "n", "managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1",
         "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}]}, {"name": "n", "deletionGracePeriodSeconds": 3}, {"name": 5}, {"name": None}, None, [], "x", {"name": "n", "labels": {"a": "x" * 63, "x" * 63: ""}},
        {"name": "n", "annotations": {"x" * 254 + "/a": ""}}, {"name": "n", "labels": {"UPPER.case/a": ""}},
    ]  # fmt: skip
    # nothing stays that a garbage collector could take away
    dry = "?dryRun=All"
    for meta in rng.sample(metas, 8):
        steps.append(post(path, {**body, "metadata": meta}, dry))
    if kind not in ("namespaces", "priorityclasses"):
        steps.append(post(path, {**body, "metadata": {"name": "n"}}))
        for meta in rng.sample(metas, 4):
            steps.append(put(f"{path}/n", {**body, "metadata": meta}, "?dryRun=All"))
            steps.append(patch(f"{path}/n", "merge", {"metadata": meta}, "?dryRun=All"))
    return steps


@topic
def spoken(rng: Rng, ns: str) -> list[Step]:
    """Media types both ways, YAML, methods and paths that do not fit, query parameters."""
    path, group = CORE + ns + "/configmaps", f"/apis/apps/v1/namespaces/{ns}"
    accepts = ["application/json", "application/yaml", "*/*", "application/*", "text/plain", "text/html", "application/xml", "application/json;q=0.5,application/yaml", "application/json; charset=utf-8", "", TABLE, PARTIAL,
               PARTIALS, "application/yaml;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Foo;g=meta.k8s.io;v=v1", "application/json;as=Table;g=other;v=v1", "application/json;as=Table", "image/png,*/*;q=0.1",
               "application/json;stream=watch", "application/json;pretty=1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1", "application/cbor", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "garbage", "a/b/c"]  # fmt: skip
    yaml_bodies = ["apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  a: 'b'\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: 1}\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: yes}\n",
                   "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n---\nkind: x\n", "a: b\na: c\n", "- 1\n", "kind: ConfigMap\n", "{}", "", "null",
                   "apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: y}\ndata: {a: |\n  x\n  y\n}", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y, labels: {a: b, a: c}}\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\nunknown: 1\n",
                   "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\ndata: {a: 0x10, b: 1e3, c: ~, d: 2020-01-01}\n", '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"}}']  # fmt: skip
    bodies: list = ["", "{", "[]", "null", "5", '"x"', "{}", {"kind": "ConfigMap"}, {"apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "v1"}, {"kind": "ConfigMap", "apiVersion": "v2"}, {"kind": "ConfigMap", "apiVersion": "apps/v1"},
                    config_map("b", {"a": 1}), config_map("b", {"a": None}), {**config_map("b"), "data": "x"}, {**config_map("b"), "data": []}, {**config_map("b"), "metadata": "x"}, {"kind": 5, "apiVersion": "v1"}, {"metadata": {"name": "b"}},
                    {**config_map("b"), "immutable": "yes"}, {**config_map("b"), "binaryData": {"a": "!!"}}, {**config_map("b"), "binaryData": {"a": 5}}, '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}} x', "{'a': 1}",
                    {"apiVersion": "v1", "kind": "ConfigMapList", "items": []}, {"apiVersion": "v1", "kind": "List", "items": []}, "\ufeff{}", {"KIND": "ConfigMap", "apiVersion": "v1"}, config_map("b", {"": "x"}), config_map("b", {"a b": "x"}),
                    config_map("b", {"..": "x"}), {**config_map("b", {"k": "x"}), "binaryData": {"k": "AQ=="}}, {**config_map("b", {"k": "x"}), "immutable": True}, config_map("b", {"x" * 254: ""})]  # fmt: skip
    steps = [post(path, config_map("a", {"k": "v"}, labels={"x": "1"}))]
    for _ in range(13):
        roll, accept = rng.random(), rng.choice(accepts)
        if roll < 0.25:
            steps.append(get(rng.choice([path, path + "/a", path + "/none", CORE + ns, group + "/deployments"]) + rng.choice(["", "", "?pretty=true", "?watch=1&timeoutSeconds=1&resourceVersion=0"]), accept))
        elif roll < 0.3:
            steps.append(Step(rng.choice(["POST", "PUT"]), path, config_map("z"), {"Accept": accept}))
        elif roll < 0.5:
            steps.append(Step("POST", path + rng.choice(["", "?fieldValidation=Strict"]) + "", rng.choice(yaml_bodies), {"Content-Type": rng.choice(["application/yaml", "application/yaml", "application/json"])}))
            steps.append(delete(path + "/y"))
        elif roll < 0.7:
            way = rng.random()
            if way < 0.6:
                steps.append(Step("POST", path + "?dryRun=All", rng.choice(bodies)))
            elif way < 0.8:
                steps.append(Step("PUT", path + "/a?dryRun=All", rng.choice(bodies)))
            else:
                steps.append(Step("POST", path, config_map("q"), {"Content-Type": rng.choice(["text/plain", "application/xml", "application/json; charset=utf-8", "json", "", "application/cbor", "application/vnd.kubernetes.protobuf", "application/x-yaml", "text/yaml"])}))
                steps.append(delete(path + "/q"))
        elif roll < 0.85:
            at = rng.choice([path, path + "/a", path + "/a/status", path + "/a/scale", path + "/a/nothing", path + "/none/x", CORE + ns + "/nothings", "/api/v1/nothings", "/api/v1/configmaps", "/api/v1/configmaps/a", CORE + ns, f"{CORE}{ns}/status",
                             f"{CORE}{ns}/finalize", group, group + "/deployments/a/scale", "/apis/apps/v1/deployments", "/apis/apps/v2/deployments", "/apis/nothing.example/v1/x", "/apis/apps", "/nothing", "/api", f"/api/v1/namespaces//configmaps?fieldSelector=metadata.namespace%3D{ns},metadata.name%3Da",
                             path + "//a", "/api/v1/nodes/none/status", "/api/v1/watch/namespaces/" + ns + "/configmaps?timeoutSeconds=1&limit=1", "/api/v1/proxy/x", "/api/v1/namespaces/" + ns + "/pods/p/log", "/apis/apps/v1/namespaces/" + ns + "/deployments/none/scale"])  # fmt: skip
            method = rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "FOO"])
            if not ((method == "DELETE" and at in (path, path + "/a", CORE + ns, CORE + ns + "/status")) or (at in ("/api", "/apis/apps", group, CORE + ns) and method == "GET") or at == "/api/v1/configmaps"):
                steps.append(Step(method, at, config_map("a") if method in ("POST", "PUT") else None, {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}))
        else:
            query = rng.choice(["dryRun=All&dryRun=All", "dryRun=", "dryRun=all", "fieldManager=", "fieldManager=" + "x" * 129, "fieldManager=a%0Ab", "fieldManager=a%20b", "fieldValidation=Strict&fieldValidation=Warn", "pretty=x", "force=true", "force=x",
                                "timeout=1s", "timeout=x", "timeout=0", "timeout=-1s", "foo=bar", "gracePeriodSeconds=1", "limit=1", "resourceVersion=5"])  # fmt: skip
            way = rng.random()
            steps.append(patch(path + "/a", "merge", {"data": {"k": rng.choice("abc")}}, "?" + query) if way < 0.4 else apply(path + "/a", config_map("a", {"k": "v"}), "m", True, "&" + query) if way < 0.6
                         else put(path + "/a", config_map("a", {"k": rng.choice("abc")}), "?" + query) if way < 0.8 else post(path, config_map("a"), "?" + query))  # fmt: skip
    return steps


@topic
def pods(rng: Rng, ns: str) -> list[Step]:
    """The subresources of pods: status, binding, eviction, ephemeral containers, resize; and what may change in a pod."""
    path = CORE + ns + "/pods"
    good = pod("a", containers=[container(resources={"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}, ports=[{"containerPort": 80}])],
               terminationGracePeriodSeconds=0, tolerations=[{"key": "a", "operator": "Exists"}], **({"nodeName": "n1"} if rng.random() < 0.4 else {}), **({"activeDeadlineSeconds": 100} if rng.random() < 0.3 else {}),
               **({"schedulingGates": [{"name": "example.com/g"}]} if rng.random() < 0.15 else {}))  # fmt: skip
    if "nodeName" in good["spec"]:
        good["spec"].pop("schedulingGates", None)
    if rng.random() < 0.3:
        good["spec"]["initContainers"] = [container("init", restartPolicy="Always") if rng.random() < 0.5 else container("init")]
    one = path + "/a"
    status = {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "hostIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z",
              "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
              "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "image": "busybox", "imageID": "x", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}  # fmt: skip
    steps = [post(path, good), *([patch(one + "/status", "merge", {"status": status})] if rng.random() < 0.5 else [])]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n2"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": ns}}
    debug = {"name": "d", "image": "busybox", "targetContainerName": "main"}
    changes = [
        post(one + "/binding", binding), post(one + "/binding", {**binding, "target": {"name": "n2", "kind": "Pod"}}), post(one + "/binding", {**binding, "metadata": {"name": "b"}}), post(one + "/binding", {**binding, "target": {}}),
        post(path[:-5] + "/bindings", binding), post(one + "/binding", {**binding, "metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}, "annotations": {"x": "y"}}}), post(one + "/binding", binding, "?dryRun=All"),
        post(path + "/none/binding", {**binding, "metadata": {"name": "none"}}), post(one + "/eviction", eviction, "?dryRun=All"), post(one + "/eviction", {**eviction, "metadata": {"name": "b"}}), post(path + "/none/eviction", {**eviction, "metadata": {"name": "none"}}),
        post(one + "/eviction", {**eviction, "deleteOptions": {"dryRun": ["All"]}}), post(one + "/eviction", {**eviction, "deleteOptions": {"preconditions": {"uid": "wrong"}}}), post(one + "/eviction", {"metadata": {"name": "a"}}, "?dryRun=All"),
        post(one + "/eviction", {**eviction, "apiVersion": "policy/v1beta1"}, "?dryRun=All"), post(one + "/eviction", {**eviction, "deleteOptions": {"propagationPolicy": "X"}}),
        patch(one + "/ephemeralcontainers", "strategic", {"spec": {"ephemeralContainers": [debug]}}), patch(one + "/ephemeralcontainers", "merge", {"spec": {"ephemeralContainers": [{**debug, "name": "e"}]}}),
        patch(one + "/ephemeralcontainers", "strategic", {"spec": {"ephemeralContainers": [{**debug, "name": "main"}]}}), patch(one + "/ephemeralcontainers", "strategic", {"spec": {"ephemeralContainers": [{**debug, "name": "f", "ports": [{"containerPort": 1}]}]}}),
        patch(one + "/ephemeralcontainers", "strategic", {"spec": {"ephemeralContainers": [{"name": "g", "image": "x", "targetContainerName": "none", "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"exec": {"command": ["x"]}}}]}}),
        patch(one + "/ephemeralcontainers", "merge", {"spec": {"ephemeralContainers": None}}), patch(one + "/ephemeralcontainers", "strategic", {"spec": {"containers": [{"name": "main", "image": "new"}]}}), get(one + "/ephemeralcontainers"),
        patch(one, "strategic", {"spec": {"ephemeralContainers": [debug]}}), patch(one + "/resize", "strategic", {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}), get(one + "/resize"),
        patch(one + "/resize", "strategic", {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "5"}}}]}}), patch(one + "/resize", "strategic", {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
        patch(one + "/resize", "strategic", {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "32Mi"}}}]}}), patch(one + "/resize", "merge", {"metadata": {"labels": {"q": "1"}}}),
        patch(one + "/resize", "strategic", {"spec": {"containers": [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}, "requests": {"example.com/gpu": "1"}}}]}}), patch(one, "strategic", {"spec": {"containers": [{"name": "main", "image": "new"}]}}),
        patch(one, "strategic", {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}), patch(one, "merge", {"spec": {"activeDeadlineSeconds": 50}}), patch(one, "merge", {"spec": {"activeDeadlineSeconds": 500}}), patch(one, "merge", {"spec": {"activeDeadlineSeconds": None}}),
        patch(one, "strategic", {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}]}}), patch(one, "merge", {"spec": {"tolerations": []}}), patch(one, "merge", {"spec": {"terminationGracePeriodSeconds": 1}}), patch(one, "merge", {"spec": {"nodeName": "n9"}}),
        patch(one, "merge", {"spec": {"schedulingGates": None}}), patch(one, "merge", {"spec": {"schedulingGates": [{"name": "example.com/h"}]}}), patch(one, "merge", {"spec": {"nodeSelector": {"a": "b"}}}), patch(one, "merge", {"spec": {"priority": 5}}),
        patch(one, "strategic", {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "200m"}}}]}}), patch(one, "strategic", {"spec": {"containers": [{"name": "extra", "image": "x"}]}}), patch(one, "merge", {"spec": {"hostname": "h"}}),
        patch(one + "/status", "merge", {"status": {"phase": "Failed", "reason": "Evicted"}}), patch(one + "/status", "strategic", {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R"}, {"type": "example.com/x", "status": "True"}]}}),
        patch(one + "/status", "strategic", {"status": {"containerStatuses": [{"name": "main", "restartCount": 3, "ready": False, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}}), patch(one + "/status", "merge", {"status": {"phase": "Odd"}}),
        patch(one + "/status", "merge", {"status": {"podIPs": [{"ip": "bad"}]}}), patch(one + "/status", "merge", {"status": {"conditions": [{"type": "bad type", "status": "Maybe"}]}}), patch(one + "/status", "merge", {"spec": {"hostname": "h"}, "metadata": {"labels": {"s": "1"}}}),
        patch(one + "/status", "merge", {"status": {"observedGeneration": 9}}), patch(one + "/status", "merge", {"status": {"qosClass": "Guaranteed"}}), patch(one + "/status", "merge", {"status": {"nominatedNodeName": "n"}}), patch(one + "/status", "merge", {"status": None}),
        patch(one + "/status", "merge", {"status": {"hostIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}]}}), apply(one + "/status", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"conditions": [{"type": "example.com/a", "status": "True"}]}}, "c"),
        get(one, TABLE), get(path, TABLE), get(one), get(path + "?fieldSelector=spec.nodeName%3Dn1,status.phase%3DRunning", PARTIALS), get(one + "/status", PARTIAL), get(one + "/log"), get(one + "/log?container=none"), get(one + "/log?tailLines=-1"), get(one + "/log?follow=x"),
        post(one + "/exec?command=ls", None), get(one + "/exec"), post(one + "/attach", None), post(one + "/portforward", None), delete(one + "?dryRun=All"), delete(one + "?gracePeriodSeconds=0&dryRun=All"), delete(one + "/status"),
    ]  # fmt: skip
    return [*steps, *some(rng, changes, 9, 12)]


@topic
def warned(rng: Rng, ns: str) -> list[Step]:
    """What is accepted with a warning: in pods and in templates of pods."""
    old = rng.choice(["beta.kubernetes.io/arch", "beta.kubernetes.io/os", "failure-domain.beta.kubernetes.io/zone", "beta.kubernetes.io/instance-type", "kubernetes.io/os"])
    term = {"topologyKey": rng.choice(["zone", "failure-domain.beta.kubernetes.io/zone"]), **rng.choice([{}, {"labelSelector": {}}])}
    want = {"matchExpressions": [{"key": old, "operator": "Exists"}]}
    parts: list[dict] = [
        {"nodeSelector": {old: "x"}}, {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [want]}}}}, {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}]},
        {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": want}]}}}, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}}, {"volumes": [{"name": "g", "gitRepo": {"repository": "x"}}]}, {"volumes": [{"name": "g", "glusterfs": {"endpoints": "x", "path": "y"}}]},
        {"volumes": [{"name": "g", "cephfs": {"monitors": ["x"]}}, {"name": "h", "rbd": {"monitors": ["x"], "image": "i"}}]}, {"volumes": [{"name": "g", "flocker": {"datasetName": "x"}}, {"name": "q", "quobyte": {"registry": "a:1", "volume": "v"}}]}, {"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}] * 2},
        {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, {"imagePullSecrets": [{"name": ""}]}, {"terminationGracePeriodSeconds": -1}, {"dnsConfig": {"nameservers": [rng.choice(["1.1.1.1", "::ffff:1.2.3.4", "::1"])]}}, {"hostAliases": [{"ip": "::ffff:1.2.3.4", "hostnames": ["a"]}]},
        {"containers": [container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": rng.choice(["2", "$(A)"])}, {"name": "B", "value": "3"}])]}, {"containers": [container(resources={"requests": {"memory": "100m"}, "limits": {"memory": "1500m", "ephemeral-storage": "1m"}})]},
        {"containers": [container(ports=[{"containerPort": 80}, {"containerPort": 80}])]}, {"containers": [container(ports=[{"containerPort": 80, "name": "p"}]), container("b", ports=[{"containerPort": 81, "name": "p"}])]}, {"containers": [container(ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 80}])]},
        {"containers": [container(ports=[{"containerPort": 80}]), container("b", ports=[{"containerPort": 80}])]}, {"initContainers": [container("i", env=[{"name": "A"}, {"name": "A"}])]}, {"containers": [container(livenessProbe={"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": rng.choice([0, 5, -1])})]},
        {"volumes": [{"name": "p", "projected": {"sources": [{"configMap": {"name": "a", "items": [{"key": "k", "path": "x"}]}}, {"secret": {"name": "b", "items": [{"key": "k", "path": "x"}]}}]}}]}, {"overhead": {"memory": "1m"}}, {"containers": [container(ports=[{"containerPort": 80, "protocol": "UDP"}, {"containerPort": 80}])]},
        {"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}}, {"initContainers": [container("i", ports=[{"containerPort": 80, "name": "p"}])], "containers": [container(ports=[{"containerPort": 80, "name": "p"}])]}, {"containers": [container(resources={"limits": {"cpu": "0.5m"}})]},
    ]  # fmt: skip
    notes = [{}, {}, {}, {"scheduler.alpha.kubernetes.io/critical-pod": ""}, {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}, {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}, {"security.alpha.kubernetes.io/sysctls": "a=b"},
             {"container.seccomp.security.alpha.kubernetes.io/main": "unconfined"}, {"kubernetes.io/psp": "x"}]  # fmt: skip
    steps = []
    for i in range(10):
        spec: dict = {"containers": [container()]}
        for part in rng.sample(parts, rng.choice([1, 1, 2])):
            spec |= copy.deepcopy(part)
        template = {"metadata": {"labels": {"app": "a"}, "annotations": rng.choice(notes)}, "spec": spec}
        name = rng.choice([f"a{i}", f"a{i}", f"a.{i}", "x" * 63 + str(i)])
        roll = rng.random()
        if roll < 0.4:
            steps.append(post(CORE + ns + "/pods", {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}, "?dryRun=All"))
        elif roll < 0.6:
            o = deployment(name)
            o["spec"]["template"] = template
            o["spec"]["selector"]["matchLabels"] = {"app": "a"}
            steps.append(post(f"/apis/apps/v1/namespaces/{ns}/deployments", o, "?dryRun=All"))
        else:
            job = {"suspend": True, "template": {**template, "spec": {**spec, "restartPolicy": "Never"}}}
            if roll < 0.8:
                steps.append(post(f"/apis/batch/v1/namespaces/{ns}/jobs", {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": job}, "?dryRun=All"))
            elif roll < 0.9:
                steps.append(post(f"/apis/batch/v1/namespaces/{ns}/cronjobs", {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name[:50]}, "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job}}}, "?dryRun=All"))
            else:
                steps.append(post(CORE + ns + "/podtemplates", {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template}, "?dryRun=All"))
    return steps


@topic
def reviews(rng: Rng, ns: str) -> list[Step]:
    """Who may do what, who one is, tokens."""
    access, authn, account = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1", CORE + ns + "/serviceaccounts"
    review = lambda kind, spec, **m: {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec, **m}
    get_pods = {"namespace": ns, "verb": "get", "resource": "pods"}
    user = f"system:serviceaccount:{ns}:sa"
    token = lambda **spec: {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    save = post(account + "/sa/token", token(expirationSeconds=600))
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [
        {"apiGroups": [rng.choice(["", "*", "apps"])], "resources": rng.sample(["pods", "pods/log", "configmaps", "*", "pods/*"], 2), "verbs": rng.sample(["get", "list", "*", "create", "watch"], 2), **({"resourceNames": ["a"]} if rng.random() < 0.3 else {})}]}  # fmt: skip
    bind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": ns}]}  # fmt: skip
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"
    steps = [post(account, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}), save, post(rbac + "/roles", role), post(rbac + "/rolebindings", bind)]
    asks = [
        post(access + "/selfsubjectaccessreviews", review("SelfSubjectAccessReview", {"resourceAttributes": get_pods})), post(access + "/selfsubjectaccessreviews", review("SelfSubjectAccessReview", {})),
        post(access + "/selfsubjectaccessreviews", review("SelfSubjectAccessReview", {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}})), post(access + "/selfsubjectaccessreviews", review("SelfSubjectAccessReview", {"resourceAttributes": get_pods, "nonResourceAttributes": {"path": "/x", "verb": "get"}})),
        post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": user, "resourceAttributes": {**get_pods, **rng.choice([{}, {"verb": "list"}, {"resource": "configmaps"}, {"subresource": "log"}, {"name": "a"}, {"group": "apps", "resource": "deployments"}, {"namespace": ""}])}})),
        post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"resourceAttributes": get_pods})), post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": "u", "groups": ["system:masters"], "resourceAttributes": get_pods})),
        post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": "u"})), post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": user, "nonResourceAttributes": {"path": "/version", "verb": "get"}, "groups": ["system:authenticated"]})),
        post(f"{access}/namespaces/{ns}/localsubjectaccessreviews", review("LocalSubjectAccessReview", {"user": user, "resourceAttributes": get_pods}, metadata={"namespace": ns})), post(f"{access}/namespaces/{ns}/localsubjectaccessreviews", review("LocalSubjectAccessReview", {"user": user, "resourceAttributes": {**get_pods, "namespace": "other"}})),
        post(f"{access}/namespaces/{ns}/localsubjectaccessreviews", review("LocalSubjectAccessReview", {"user": user, "nonResourceAttributes": {"path": "/x", "verb": "get"}})), post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": user, "resourceAttributes": {**get_pods, "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}, "fieldSelector": {"rawSelector": "metadata.name=a"}}})),
        post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": user, "resourceAttributes": get_pods}, metadata={"name": "x"})), post(access + "/subjectaccessreviews", review("SubjectAccessReview", {"user": user, "resourceAttributes": {**get_pods, "fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}}})),
        post(access + "/selfsubjectrulesreviews", review("SelfSubjectRulesReview", {}), Impersonate_User=user), post(access + "/selfsubjectrulesreviews", review("SelfSubjectRulesReview", {"namespace": ns}), Impersonate_User=user, Impersonate_Group="system:serviceaccounts"),
        post(authn + "/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, Impersonate_User="jane", Impersonate_Group="g", Impersonate_Extra_Scopes="a", Impersonate_Uid="7"),
        post(authn + "/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, Impersonate_User=user), post(authn + "/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, Impersonate_Group="g"),
        post(authn + "/tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": rng.choice(["nonsense", "a.b.c", ""])}}), post(authn + "/tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {"namespace": "x"}, "spec": {"token": "t"}}),
        post(account + "/sa/token", token(expirationSeconds=rng.choice([0, 60, 599, 2**32 + 1, -5, "x", 700]))), post(account + "/sa/token", token(audiences=rng.choice([[], [""], ["a"], "x"]))), post(account + "/none/token", token()), post(account + "/sa/token", {}),
        post(account + "/sa/token", token(boundObjectRef=rng.choice([{"kind": "Pod", "apiVersion": "v1", "name": "none"}, {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}, {"kind": "Secret", "apiVersion": "v1", "name": "none"}, {"kind": "Node", "apiVersion": "v1", "name": "none"}, {"name": "x"}]))),
        post(account + "/sa/token", {**token(), "metadata": {"name": "other"}}), post(account + "/sa/token", {**token(), "metadata": {"namespace": "other"}}), get(account + "/sa/token"), post(account + "/sa/token", token(), "?dryRun=All"), get(access + "/subjectaccessreviews"), get(authn + "/tokenreviews/x"),
        Step("GET", CORE + ns + "/pods", None, {"Impersonate-User": user}), Step("GET", CORE + ns + "/secrets", None, {"Impersonate-User": user}), Step("GET", CORE + ns + "/configmaps/a", None, {"Impersonate-User": user}), Step("DELETE", CORE + ns + "/configmaps/a", None, {"Impersonate-User": "jane"}),
        Step("POST", CORE + ns + "/configmaps", config_map("x"), {"Impersonate-User": user}), Step("GET", "/version", None, {"Impersonate-User": "system:anonymous", "Impersonate-Group": "system:unauthenticated", "Accept": "application/xml"}), Step("GET", "/nothing", None, {"Impersonate-User": "jane"}),
        Step("GET", CORE + "kube-system/secrets?watch=1", None, {"Impersonate-User": "jane"}), Step("GET", "/api/v1/nodes/n", None, {"Impersonate-User": "jane"}), Step("PATCH", CORE + ns + "/pods/a/status", {}, {"Impersonate-User": "jane", "Content-Type": "application/merge-patch+json"}),
        Step("GET", CORE + ns + "/pods", None, {"Authorization": "Bearer bad"}), Step("GET", CORE + ns + "/pods", None, {"Authorization": "Basic abc"}), Step("GET", "/api", None, {"Authorization": "Bearer bad"}),
    ]  # fmt: skip
    return [*steps, *some(rng, asks, 9, 12)]


@topic
def limits(rng: Rng, ns: str) -> list[Step]:
    """Limit ranges, priority classes and what admission makes of pods and claims."""
    ranges = CORE + ns + "/limitranges"
    item = rng.choice([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}}, {"type": "Container", "max": {"cpu": "1", "memory": "1Gi"}, "min": {"cpu": "50m"}}, {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
        {"type": "Pod", "max": {"cpu": "1"}, "min": {"memory": "10Mi"}}, {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}, "min": {"storage": "1Gi"}}, {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "500m"}},
        {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}, {"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "1"}}, {"type": "Container", "defaultRequest": {"cpu": "2"}, "default": {"cpu": "1"}}, {"type": "Pod", "default": {"cpu": "1"}},
        {"type": "What", "max": {"cpu": "1"}}, {"type": "Container", "max": {"bogus!": "1"}}, {"type": "Container", "max": {"cpu": "-1"}}, {"type": "PersistentVolumeClaim"}, {"type": "Container", "maxLimitRequestRatio": {"cpu": "0.5"}},
    ])  # fmt: skip
    steps = [post(ranges, {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [item, *([copy.deepcopy(item)] if rng.random() < 0.1 else [])]}}), get(ranges + "/l")]
    resources = lambda: rng.choice([{}, {"limits": {"cpu": "2"}}, {"requests": {"cpu": "10m"}}, {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1"}}, {"limits": {"cpu": "1"}, "requests": {"cpu": "200m"}}, {"requests": {"cpu": "600m", "memory": "5Mi"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}}])
    for i in range(4):
        o = pod(f"p{i}", containers=[container(resources=resources()), *([container("two", resources=resources())] if rng.random() < 0.4 else [])], **({"initContainers": [container("init", resources=resources())]} if rng.random() < 0.3 else {}))
        if rng.random() < 0.2:
            o["spec"]["resources"] = resources()
        steps.append(post(CORE + ns + "/pods", o))
    steps.append(post(CORE + ns + "/persistentvolumeclaims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": rng.choice(["500Mi", "1Gi", "5Gi"])}}}}))
    classes, name = "/apis/scheduling.k8s.io/v1/priorityclasses", f"class-{ns}"
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": rng.choice([1, 1000, -5, 2000000000]), **rng.choice([{}, {"preemptionPolicy": "Never"}, {"description": "d"}])}
    steps.append(post(classes, made))
    steps += some(rng, [
        post(CORE + ns + "/pods", pod("q1", priorityClassName=name)), post(CORE + ns + "/pods", pod("q2", priorityClassName="none")), post(CORE + ns + "/pods", pod("q3", priorityClassName=name, priority=7)), post(CORE + ns + "/pods", pod("q4", priority=7)),
        post(CORE + ns + "/pods", pod("q5", priorityClassName=name, preemptionPolicy="Never")), post(CORE + ns + "/pods", pod("q6", priorityClassName="system-node-critical")), post(classes, {**made, "metadata": {"name": "system-x"}}), post(classes, {**made, "value": 2000000001, "metadata": {"name": name + "x"}}),
        put(classes + "/" + name, {**made, "value": 9}), patch(classes + "/" + name, "merge", {"preemptionPolicy": "Never"}), patch(classes + "/" + name, "merge", {"description": "new", "metadata": {"labels": {"a": "b"}}}), patch(classes + "/" + name, "merge", {"globalDefault": "x"}),
        post(classes, {**made, "metadata": {"name": name + "y"}, "preemptionPolicy": "Odd"}, "?dryRun=All"), get(classes + "/" + name, TABLE), delete(classes + "/system-node-critical?dryRun=All"), post(classes, {k: v for k, v in made.items() if k != "value"} | {"metadata": {"name": name + "z"}}),
        patch(ranges + "/l", "merge", {"spec": {"limits": []}}), patch(ranges + "/l", "merge", {"spec": {"limits": [{"type": "Container"}, {"type": "Container"}]}}), get(ranges, TABLE),
    ], 5, 8)  # fmt: skip
    return steps


@topic
def events(rng: Rng, ns: str) -> list[Step]:
    """Events in both groups."""
    core, other = CORE + ns + "/events", f"/apis/events.k8s.io/v1/namespaces/{ns}/events"
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": ns, "uid": "u"}
    old = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"}, "involvedObject": about, "reason": "R", "message": "m", "type": "Normal", "count": 2, "source": {"component": "c", "host": "h"},
           "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z"}  # fmt: skip
    new = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "b"}, "regarding": about, "reason": "R", "note": "n", "type": "Warning", "action": "A", "eventTime": "2026-01-01T00:00:00.000000Z",
           "reportingController": "example.com/c", "reportingInstance": "i"}  # fmt: skip
    change = lambda o, **m: {**o, "metadata": {"name": "c"}, **m}
    steps = [post(core, old), post(other, new)]
    steps += some(rng, [
        get(core), get(other), get(core + "/b"), get(other + "/a"), get(core, TABLE), get(other, TABLE), post(core, change(old, involvedObject={**about, "namespace": "other"})), post(core, change(old, type="Odd")), post(core, change(old, reason="")),
        post(other, change(new, type="Odd")), post(other, change(new, reason="")), post(other, change(new, reason="x" * 129)), post(other, change(new, action="")), post(other, change(new, note="x" * 1025)), post(other, change(new, reportingController="")),
        post(other, change(new, reportingController="a b")), post(other, change(new, reportingInstance="x" * 129)), post(other, change(new, eventTime=None)), post(other, change(new, regarding={**about, "namespace": "other"})), post(other, change(new, series={"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"})),
        post(other, change(new, deprecatedCount=3)), post(other, change(new, regarding={"kind": "Node", "name": "n", "apiVersion": "v1"})), post(core, change(old, involvedObject={"kind": "Node", "name": "n", "apiVersion": "v1"})), post(core, change(old, eventTime="2026-01-01T00:00:00Z")), post(core, change(old, eventTime="bad")),
        patch(other + "/b", "merge", {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}), patch(other + "/b", "merge", {"reason": "Changed"}), patch(other + "/b", "merge", {"note": "other"}), patch(core + "/a", "merge", {"count": 5}), patch(core + "/a", "merge", {"message": "new"}),
        patch(core + "/a", "strategic", {"count": 6, "lastTimestamp": "2026-01-01T00:02:00Z"}), patch(core + "/b", "merge", {"count": 5}), patch(other + "/a", "merge", {"deprecatedCount": 8}), patch(other + "/b", "merge", {"regarding": {"name": "q"}}), put(core + "/a", {**old, "count": 9}), get("/api/v1/events?fieldSelector=metadata.namespace%3D" + ns),
        *(get(f"{p}?fieldSelector=" + urllib.parse.quote(f)) for p in (core, other) for f in ("involvedObject.name=p", "reason=R", "type=Warning", "involvedObject.kind=Pod,reason!=R", "source=c", "reportingComponent=c", "regarding.name=p", "involvedObject.uid=u", "involvedObject.fieldPath=")),
        apply(core + "/d", {**old, "metadata": {"name": "d"}}, "m"), apply(other + "/e", {**new, "metadata": {"name": "e"}}, "m"), delete(core + "?dryRun=All"), post(core, change(old, unknown=1), "?fieldValidation=Strict"), post(core, {**change(old), "metadata": {"generateName": "g."}}, "?dryRun=All"),
    ], 9, 13)  # fmt: skip
    return steps
