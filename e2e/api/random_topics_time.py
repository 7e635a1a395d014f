"""More topics of `random_topics.py`, where what came before decides: schemas that become stricter, who manages which field, histories
that a watch tells, collections that are deleted, namespaces that go.
"""

from __future__ import annotations

import copy
import urllib.parse

from random_api import PARTIAL, PARTIALS, TABLE, Step
from random_topics import CORE, Rng, apply, config_map, crd, delete, deployment, get, patch, pod, post, put, some, topic, widget, widgets
from random_topics_beside import DEFINITIONS, INT, TEXT


# -- ratcheting


# A field before, a field after, and values: the first is what an object holds already.
STRICTER: list[tuple[dict, dict, list]] = [
    (TEXT, {**TEXT, "maxLength": 3}, ["long value", "long", "ab"]), (TEXT, {**TEXT, "enum": ["a", "b"]}, ["z", "y", "a"]), (TEXT, {**TEXT, "pattern": "^a+$"}, ["zzz", "bbb", "aa"]), (TEXT, {**TEXT, "format": "ipv4"}, ["no", "nope", "10.0.0.1"]),
    (INT, {**INT, "maximum": 5}, [9, 8, 2]), (INT, {**INT, "minimum": 5, "exclusiveMinimum": True}, [1, 2, 7]), (INT, {**INT, "multipleOf": 2}, [3, 5, 4]),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": {**TEXT, "maxLength": 2}}, [["long", "a"], ["long", "b"], ["a", "b"], ["longer", "a"], ["a", "long"]]),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": TEXT, "maxItems": 1}, [["a", "b"], ["a", "c"], ["a"], ["b", "a"]]),
    ({"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, {"type": "array", "items": {**TEXT, "maxLength": 2}, "x-kubernetes-list-type": "set"}, [["long", "a"], ["a", "long"], ["long", "b"], ["longer", "a"], ["a"]]),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, [["a", "a"], ["a", "a", "b"], ["a"], ["b", "b"]]),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "additionalProperties": {**TEXT, "maxLength": 2}}, [{"k": "long", "l": "a"}, {"k": "long", "l": "b"}, {"k": "longer", "l": "a"}, {"k": "a"}, {"l": "long"}]),
    ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "additionalProperties": TEXT, "maxProperties": 1}, [{"k": "a", "l": "b"}, {"k": "a", "l": "c"}, {"k": "a"}]),
    ({"type": "object", "properties": {"p": TEXT, "q": TEXT}}, {"type": "object", "properties": {"p": {**TEXT, "minLength": 3}, "q": TEXT}, "required": ["q"]}, [{"p": "x"}, {"p": "y"}, {"p": "x", "q": "1"}, {"p": "long", "q": "1"}, {"p": "long"}]),
    ({"type": "object", "properties": {"p": TEXT, "q": TEXT}}, {"type": "object", "properties": {"p": TEXT, "q": TEXT}, "oneOf": [{"required": ["p"]}, {"required": ["q"]}]}, [{"p": "x", "q": "x"}, {"p": "y", "q": "x"}, {"p": "x"}, {}]),
    (TEXT, {**TEXT, "maxLength": 40, "x-kubernetes-validations": [{"rule": "self.startsWith('a')", "message": "starts with a"}]}, ["zzz", "bbb", "aa"]),
    (TEXT, {**TEXT, "maxLength": 40, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]}, ["zzz", "bbb", "aa"]),
    (TEXT, {**TEXT, "maxLength": 40, "x-kubernetes-validations": [{"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": True}]}, ["zzz", "bbb", "new"]),
    ({"type": "object", "properties": {"p": INT, "q": INT}}, {"type": "object", "properties": {"p": INT, "q": INT}, "x-kubernetes-validations": [{"rule": "!has(self.p) || !has(self.q) || self.p < self.q", "fieldPath": ".p"}]}, [{"p": 3, "q": 1}, {"p": 3, "q": 2}, {"p": 1, "q": 2}]),
    ({"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": TEXT}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
     {"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": {**TEXT, "maxLength": 2}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
     [[{"k": "a", "v": "long"}, {"k": "b"}], [{"k": "b"}, {"k": "a", "v": "long"}], [{"k": "a", "v": "longer"}], [{"k": "c", "v": "long"}], [{"k": "a", "v": "x"}], [{"k": "a", "v": "long"}, {"k": "c"}]]),
    ({"type": "array", "items": {"type": "object", "properties": {"k": TEXT, "v": TEXT}}}, {"type": "array", "items": {"type": "object", "properties": {"k": TEXT, "v": {**TEXT, "maxLength": 2}}}},
     [[{"k": "a", "v": "long"}, {"k": "b"}], [{"k": "b"}, {"k": "a", "v": "long"}], [{"k": "a", "v": "long"}], [{"k": "a", "v": "long"}, {"k": "c"}], [{"k": "b"}]]),
    ({**TEXT, "nullable": True}, TEXT, [None, "x", None]), ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True, "maxLength": 2}, ["long", "longer", 5, "a"]), (TEXT, {**TEXT, "default": "abc", "maxLength": 2}, ["long", "longer", None, "a"]),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"type": "object", "properties": {"p": {**TEXT, "maxLength": 2}}}, [{"p": "long", "gone": 1}, {"p": "long"}, {"p": "longer"}, {"p": "a", "gone": 2}]),
]  # fmt: skip


@topic
def ratchets(rng: Rng, ns: str) -> list[Step]:
    """A schema becomes stricter than the objects that are there: what of them may stay."""
    chosen = rng.sample(STRICTER, 5)
    made = lambda at: {"type": "object", "properties": {
        "canary": TEXT if at == 0 else {**TEXT, "maxLength": 1}, **{f"f{i}": copy.deepcopy(c[at]) for i, c in enumerate(chosen)}}}
    root = lambda at: {"type": "object", "properties": {"spec": made(at), "status": {"type": "object", "properties": {"s": TEXT if at == 0 else {**TEXT, "maxLength": 2}}}},
                       **({"x-kubernetes-validations": [{"rule": "self.metadata.name.size() > 1"}]} if at and named else {})}
    named, sub = rng.random() < 0.2, rng.choice([{}, {"subresources": {"status": {}}}])
    steps, path = crd(ns, root(0), **sub), widgets(ns)
    good = {f"f{i}": copy.deepcopy(values[0]) for i, (_, _, values) in enumerate(chosen)}
    steps += [post(path, {**widget(ns, "a", good), "status": {"s": "long"}}), post(path, widget(ns, "b", {k: v for k, v in good.items() if rng.random() < 0.5}))]
    if sub:
        steps.append(patch(path + "/a/status", "merge", {"status": {"s": "long"}}))
    steps.append(patch(f"{DEFINITIONS}/widgets.{ns}.example", "merge", {"spec": {"versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root(1)}, **sub}]}}))
    steps.append(Step("POST", path + "?dryRun=All", widget(ns, "canary", {"canary": "long"}), until=422))
    query = lambda: rng.choice(["", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=m"])
    for n in range(12):
        changed = {f"f{i}": copy.deepcopy(rng.choice(values)) for i, (_, _, values) in enumerate(chosen) if rng.random() < 0.35}
        one = path + rng.choice(["/a", "/a", "/a", "/b"])
        roll = rng.random()
        if roll < 0.4:
            steps.append(patch(one, "merge", {"spec": changed}, query()))
        elif roll < 0.5:
            steps.append(patch(one, "merge", {"metadata": {"labels": {"n": str(n)}}}, query()))
        elif roll < 0.65:
            steps.append(put(one, widget(ns, one[-1], {**good, **changed}, metadata={"name": one[-1], "resourceVersion": "${rv}"}) if rng.random() < 0.5 else widget(ns, one[-1], {**good, **changed}), query()))
        elif roll < 0.75:
            steps.append(apply(one, widget(ns, one[-1], changed), "m", True))
        elif roll < 0.82:
            steps.append(patch(one, "json", [{"op": rng.choice(["add", "replace", "remove"]), "path": f"/spec/f{rng.randint(0, 4)}" + rng.choice(["", "", "/0", "/p", "/k"]), "value": rng.choice(["long", 1, {}])}], query()))
        elif roll < 0.9:
            steps.append(patch(one + rng.choice(["", "/status"]), "merge", {"status": {"s": rng.choice(["long", "longer", "x"])}}, query()))
        else:
            steps.append(post(path, widget(ns, f"n{n}", {**good, **changed}), "?dryRun=All"))
    return [*steps, get(path + "/a")]


# -- managers


@topic
def managers(rng: Rng, ns: str) -> list[Step]:
    """Who manages what: dry runs, force, subresources, what is given up, taken over, reset, moved from one manager to another."""
    kind = rng.choice(["Deployment", "ConfigMap", "Service", "Widget", "Pod"])
    path, sub, steps = f"/apis/apps/v1/namespaces/{ns}/deployments", ["status", "scale"], []
    if kind == "Deployment":
        base = deployment("a")
        fields = [{"replicas": 2}, {"replicas": 3}, {"paused": True}, {"minReadySeconds": 5}, {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}, {"template": {"spec": {"containers": [{"name": "side", "image": "y"}]}}},
                  {"template": {"spec": {"terminationGracePeriodSeconds": 5, "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}}}, {"strategy": {"type": "Recreate"}}]  # fmt: skip
        states = [{"replicas": 1}, {"readyReplicas": 0}, {"conditions": [{"type": "Available", "status": "True"}]}, {"observedGeneration": 1}]
    elif kind == "ConfigMap":
        path, sub, base, states = f"{CORE}{ns}/configmaps", ["status"], config_map("a", {"k": "v"}), [{}]
        fields = [{"k": "1"}, {"k": "2"}, {"l": "1"}, {"m": "1", "k": "v"}, {}]
    elif kind == "Service":
        path, sub, base = f"{CORE}{ns}/services", ["status"], {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
        fields = [{"ports": [{"port": 80, "name": "http"}]}, {"ports": [{"port": 80, "targetPort": 8080}]}, {"ports": [{"port": 90, "name": "n"}, {"port": 80, "name": "http"}]}, {"selector": {"x": "1"}}, {"publishNotReadyAddresses": True}, {"sessionAffinity": "ClientIP"}]
        states = [{"loadBalancer": {}}, {"conditions": [{"type": "X", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}]
    elif kind == "Pod":
        path, sub, base = f"{CORE}{ns}/pods", ["status", "resize"], pod("a")
        fields = [{"activeDeadlineSeconds": 5}, {"containers": [{"name": "main", "image": "x"}]}, {"tolerations": [{"key": "k", "operator": "Exists"}]}, {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}]
        states = [{"phase": "Running"}, {"conditions": [{"type": "Ready", "status": "True"}]}, {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}]
    else:
        path, sub = widgets(ns), ["status", "scale"]
        free = {"type": "object", "properties": {"n": INT, "s": TEXT, "l": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, "m": {"type": "object", "additionalProperties": TEXT}, "a": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT}}}
        steps = crd(ns, {"type": "object", "properties": {"spec": free, "status": {"type": "object", "properties": {"n": INT, "phase": TEXT}}}}, subresources={"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}})
        base = widget(ns, "a", {"n": 1, "s": "x"})
        fields, states = [{"n": 2}, {"n": 3}, {"s": "y"}, {"l": ["a"]}, {"l": ["b", "a"]}, {"m": {"x": "1"}}, {"m": {"y": "1"}}, {"a": {"x": "1"}}, {"a": {"y": "1"}}, {}], [{"n": 1}, {"phase": "P"}, {"n": 2, "phase": "Q"}]
    of = {"apiVersion": base["apiVersion"], "kind": base["kind"]}
    one, where = path + "/a", "data" if kind == "ConfigMap" else "spec"
    whole = lambda: {**of, "metadata": {"name": "a", **rng.choice([{}, {}, {"labels": {"x": rng.choice("12")}}, {"annotations": {"n": rng.choice("12")}}])}, where: copy.deepcopy(rng.choice(fields))}
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": ns}, "spec": {"replicas": rng.choice([1, 4])}}
    entry = {"manager": "by-hand", "operation": "Update", "apiVersion": base["apiVersion"], "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {f"f:{where}": {"f:k": {}, "f:n": {}}}}
    entries: list = [[{}], [], None, [entry], [entry, entry], [{**entry, "operation": "Apply"}], [{**entry, "operation": "What"}], [{**entry, "fieldsType": "FieldsV2"}], [{**entry, "manager": "x" * 129}], [{**entry, "apiVersion": "v9"}], [{**entry, "subresource": "status"}],
                     [{**entry, "fieldsV1": {"bad": {}}}], [{**entry, "fieldsV1": {}}], [{k: v for k, v in entry.items() if k != "time"}], [{k: v for k, v in entry.items() if k != "fieldsType"}], [{**entry, "apiVersion": ""}], [{**entry, "time": None}], "x", [1]]  # fmt: skip
    steps.append(rng.choice([post(path, base, "?fieldManager=maker"), apply(one, base, "first"), post(path, base, "?fieldManager=kubectl-client-side-apply")]))
    for _ in range(12):
        who, dry = rng.choice(["first", "second", "third", "first"]), rng.choice(["", "", "", "&dryRun=All"])
        roll = rng.random()
        if roll < 0.45:
            steps.append(apply(one, whole(), who, rng.random() < 0.4, dry))
        elif roll < 0.55 and sub:
            name = rng.choice(sub)
            if name == "scale":
                steps.append(rng.choice([apply(one + "/scale", scale, who, rng.random() < 0.5, dry), put(one + "/scale", scale, f"?fieldManager={who}{dry}"), patch(one + "/scale", "merge", {"spec": {"replicas": rng.randint(0, 5)}}, f"?fieldManager={who}{dry}"), get(one + "/scale")]))
            elif name == "resize":
                steps.append(patch(one + "/resize", rng.choice(["strategic", "apply"]), {**of, "metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}, f"?fieldManager={who}{dry}"))
            else:
                state = copy.deepcopy(rng.choice(states))
                steps.append(rng.choice([apply(one + "/status", {**whole(), "status": state}, who, rng.random() < 0.5, dry), patch(one + "/status", "merge", {"status": state}, f"?fieldManager={who}{dry}")]))
        elif roll < 0.65:
            steps.append(patch(one, "merge", {where: copy.deepcopy(rng.choice(fields))}, f"?fieldManager={who}{dry}"))
        elif roll < 0.75:
            steps.append(patch(one, "merge", {"metadata": {"managedFields": copy.deepcopy(rng.choice(entries))}, **rng.choice([{}, {where: copy.deepcopy(rng.choice(fields))}])}, f"?fieldManager={who}{dry}"))
        elif roll < 0.8:
            steps.append(put(one, {**base, "metadata": {"name": "a", "managedFields": copy.deepcopy(rng.choice(entries))}}, f"?fieldManager={who}{dry}"))
        elif roll < 0.85:
            steps.append(patch(one, "json", rng.choice([[{"op": "remove", "path": "/metadata/managedFields/0"}], [{"op": "remove", "path": "/metadata/managedFields"}], [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}], [{"op": "replace", "path": "/metadata/managedFields/0/operation", "value": "Update"}],
                                                        [{"op": "replace", "path": "/metadata/managedFields/0/manager", "value": "second"}], [{"op": "add", "path": "/metadata/managedFields/0/subresource", "value": "status"}]]), dry.replace("&", "?")))  # fmt: skip
        elif roll < 0.9:
            steps.append(put(one, {**base, **({where: {**base[where], "k": "9"}} if where == "data" else {})}, f"?fieldManager={who}{dry}"))
        else:
            steps.append(rng.choice([apply(one, {**whole(), "metadata": {"name": "a", "managedFields": []}}, who), apply(one, {**whole(), "metadata": {"name": "a", "managedFields": [entry]}}, who), apply(one, {**whole(), "metadata": {"name": "a", "resourceVersion": "1"}}, who), apply(one, {**whole(), "metadata": {"name": "a", "uid": "x"}}, who),
                                     patch(one, "apply", whole()), patch(one, "apply", whole(), "?fieldManager="), patch(one, "merge", {}, "?fieldManager=a&force=true"), apply(one, {**whole(), "metadata": {"name": "b"}}, who), apply(one, {**whole(), "kind": "Other"}, who), apply(one, {**whole(), "apiVersion": "v9"}, who),
                                     apply(one, {k: v for k, v in whole().items() if k != "kind"}, who), apply(one, {**whole(), "metadata": {}}, who), apply(path + "/absent", {**whole(), "metadata": {"name": "absent"}}, who, query="&dryRun=All"), apply(one, [], who), apply(one, "x: [", who)]))  # fmt: skip
    return [*steps, get(one)]


# -- histories


@topic
def histories(rng: Rng, ns: str) -> list[Step]:
    """What a watch tells of changes that were made: under selectors that objects come into and leave, in every form, from every version."""
    kind, steps = rng.choice(["configmaps", "pods", "widgets", "secrets"]), []
    path = CORE + ns + "/" + kind
    if kind == "widgets":
        path = widgets(ns)
        steps += crd(ns, {"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": TEXT}}}}, selectableFields=[{"jsonPath": ".spec.color"}], subresources={"status": {}},
                     additionalPrinterColumns=[{"name": "Color", "type": "string", "jsonPath": ".spec.color"}])  # fmt: skip
    o = {"configmaps": lambda n: config_map(n, {"k": "v"}), "pods": pod, "widgets": lambda n: widget(ns, n, {"color": "red"}), "secrets": lambda n: {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": n}}}[kind]
    changes = {"configmaps": [{"data": {"k": "w"}}], "secrets": [{"data": {"k": "dg=="}}], "widgets": [{"spec": {"color": "blue"}}, {"spec": {"color": "red"}}], "pods": [{"metadata": {"annotations": {"x": "1"}}}]}[kind]
    for i, name in enumerate("abc"):
        made = o(name)
        made["metadata"]["labels"] = {"set": ns, "on": rng.choice(["yes", "no"])}
        step = post(path, made)
        step.save = f"made{i}"
        steps.append(step)
    for i in range(rng.randint(4, 7)):
        one = path + "/" + rng.choice("abc")
        step = rng.choice([patch(one, "merge", {"metadata": {"labels": {"on": rng.choice(["yes", "no", None])}}}), patch(one, "merge", copy.deepcopy(rng.choice(changes))), patch(one, "merge", {"metadata": {"labels": {"on": "yes"}, "finalizers": rng.choice([["example.com/a"], None])}}),
                           delete(one + "?gracePeriodSeconds=0"), *([patch(one + "/status", "merge", {"status": {"phase": rng.choice(["Running", "Succeeded"])}})] if kind == "pods" else [])])  # fmt: skip
        step.save = f"changed{i}"
        steps.append(step)
    label = ["", "", "on=yes", "on!=yes", "on", "!on", "on in (yes,no)", "set=" + ns, "set=other"]
    field = ["", "", "", "metadata.name=a", "metadata.name!=a", "metadata.namespace=" + ns, *{"pods": ["status.phase=Running", "status.phase!=Pending", "spec.nodeName="], "widgets": ["spec.color=red", "spec.color!=red"], "secrets": ["type=Opaque"]}.get(kind, [])]
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    for _ in range(8):
        q = {"watch": "true", "timeoutSeconds": "1", **({"labelSelector": chosen} if (chosen := rng.choice(label)) else {}), **({"fieldSelector": chosen} if (chosen := rng.choice(field)) else {})}
        q |= rng.choice([{"resourceVersion": "${made0_rv}"}, {"resourceVersion": "${made0_rv}"}, {"resourceVersion": "${made2_rv}"}, {"resourceVersion": "${changed1_rv}"}, {"resourceVersion": "${changed2_rv}"}, {}, {"resourceVersion": "0"}, initial, {**initial, "resourceVersion": "0"},
                         {**initial, "resourceVersion": "${made1_rv}"}, {**initial, "sendInitialEvents": "false", "resourceVersion": "${made1_rv}"}, {k: v for k, v in initial.items() if k != "allowWatchBookmarks"}])  # fmt: skip
        base = path if rng.random() < 0.85 else path.replace("/api/v1/", "/api/v1/watch/") if kind != "widgets" else path
        at = base + (rng.choice(["", "/a"]) if "/watch/" in base else "")
        if at.endswith("/a"):
            q.pop("fieldSelector", None)
        steps.append(get(at + "?" + urllib.parse.urlencode(q, safe="${}"), rng.choice(["", "", "", TABLE, PARTIAL, PARTIALS, "application/json;stream=watch", "application/yaml", TABLE + "," + "application/json"])))
    return steps


# -- collections


@topic
def collections(rng: Rng, ns: str) -> list[Step]:
    """Collections that are deleted, and what is left of them."""
    kind, steps = rng.choice(["configmaps", "secrets", "widgets", "leases", "serviceaccounts", "roles", "endpoints"]), []
    path = {"leases": f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", "roles": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", "widgets": widgets(ns)}.get(kind, CORE + ns + "/" + kind)
    of = {"configmaps": {"apiVersion": "v1", "kind": "ConfigMap"}, "secrets": {"apiVersion": "v1", "kind": "Secret"}, "leases": {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}, "widgets": {"apiVersion": f"{ns}.example/v1", "kind": "Widget"},
          "serviceaccounts": {"apiVersion": "v1", "kind": "ServiceAccount"}, "roles": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}, "endpoints": {"apiVersion": "v1", "kind": "Endpoints"}}[kind]  # fmt: skip
    if kind == "widgets":
        steps += crd(ns, {"type": "object"})
    names = rng.sample("abcdef", rng.randint(3, 6))
    for name in names:
        steps.append(post(path, {**of, "metadata": {"name": name, "labels": {"app": rng.choice(["one", "two"]), "set": "s"}, **({"finalizers": ["example.com/hold"]} if rng.random() < 0.3 else {})}}))
    own = "labelSelector=set%3Ds"
    body = lambda: rng.choice([None, None, {}, {"propagationPolicy": "Background"}, {"gracePeriodSeconds": 0}, {"dryRun": ["All"]}, {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "1"}}, {"kind": "DeleteOptions", "apiVersion": "v1"}, {"propagationPolicy": "Odd"}, {"orphanDependents": False}, {"unknown": 1},
                               {"gracePeriodSeconds": -5}, {"kind": "Pod", "apiVersion": "v1"}, {"dryRun": ["No"]}, "x"])  # fmt: skip
    query = lambda: rng.choice([own, own + ",app%3Done", own + ",app%21%3Done", own + "&fieldSelector=metadata.name%3D" + names[0], own + "&fieldSelector=metadata.name%21%3D" + names[0], own + "&limit=1", own + "&limit=2&continue=${continue}", own + "&dryRun=All", own + "&resourceVersion=0", own + "&timeoutSeconds=5",
                                own + "&propagationPolicy=Background", own + "&gracePeriodSeconds=0", own + "&watch=true", own + "&continue=bad", own + "&fieldSelector=spec.x%3D1", "labelSelector=app+in+(", own + "&pretty=false", own + "&resourceVersionMatch=Exact", own + "&dryRun=Some",
                                own + "&propagationPolicy=No", own + "&limit=x", own + "&ignoreStoreReadErrorWithClusterBreakingPotential=true"])  # fmt: skip
    for _ in range(6):
        steps += [Step("DELETE", path + "?" + query(), body(), {"Accept": rng.choice([TABLE, PARTIAL, "application/yaml"])} if rng.random() < 0.15 else {}), get(path + "?" + own)]
    return [*steps, get(path + "?" + own + "&limit=1"), get(path + "?" + own + "&limit=1&continue=${continue}")]


# -- namespaces


@topic
def namespaces(rng: Rng, ns: str) -> list[Step]:
    """Namespaces: their labels, status and finalizers, and what may be written while one goes."""
    path, name = "/api/v1/namespaces", f"of-{ns}"
    of = lambda **m: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **m}}
    # an unknown finalizer keeps every controller from ending it
    steps = [post(path, {**of(labels={"a": "b"}), "spec": rng.choice([{}, {"finalizers": []}, {"finalizers": ["kubernetes"]}, {"finalizers": ["example.com/x"]}])})]
    one = path + "/" + name
    finalize = lambda *f, **m: Step("PUT", one + "/finalize" + rng.choice(["", "", "?dryRun=All"]), {**of(**m), "spec": {"finalizers": list(f)}})
    asks = [
        post(path, of()), get(one), patch(one, "merge", {"metadata": {"labels": {"kubernetes.io/metadata.name": rng.choice(["lie", None]), "x": "1"}}}), patch(one, "merge", {"spec": {"finalizers": rng.choice([[], None, ["example.com/y"]])}}), patch(one, "merge", {"spec": None}), put(one, of(labels={"z": "1"})),
        put(one, {**of(), "spec": {"finalizers": []}}), patch(one + "/status", "merge", {"status": {"phase": rng.choice(["Active", "Terminating", "Odd", None])}}, "?dryRun=All"), apply(one, of(labels={"q": "1"}), "m"), apply(one, {**of(), "spec": {"finalizers": ["example.com/z"]}}, "m"), apply(one, of(labels={"kubernetes.io/metadata.name": "lie"}), "m"),
        patch(one + "/status", "merge", {"status": {"conditions": [{"type": "T", "status": "True", "reason": "R", "message": "M", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}, "?dryRun=All"), patch(one + "/status", "strategic", {"status": {"phase": "Terminating"}}, "?dryRun=All"), get(one, TABLE), get(one + "/status"), get(one + "/finalize"),
        finalize("kubernetes", "example.com/x"), finalize("bad finalizer"), finalize("kubernetes"), finalize("kubernetes", labels={"n": "1"}), finalize("nodomain"), post(one + "/finalize", {**of(), "spec": {"finalizers": ["kubernetes"]}}), put(path + "/other/finalize", of()), put(one + "/finalize", {**of(), "metadata": {"name": "other"}}),
        delete(one + "?dryRun=All"), delete(one, {"preconditions": {"uid": "x"}}), delete(path), delete(one + "?propagationPolicy=Sideways"), delete(one, {"propagationPolicy": "Orphan", "dryRun": ["All"]}), post(path, {**of(), "metadata": {"name": "Bad_"}}), post(path, {**of(), "metadata": {"name": "a.b"}}), post(path, {**of(), "metadata": {"generateName": "gen-"}}, "?dryRun=All"),
        get(f"{path}?fieldSelector=metadata.name%3D{name}"), get(f"{path}?fieldSelector=metadata.name%3D{name},status.phase%3DActive", TABLE), get(f"{path}?fieldSelector=status.phase%3DTerminating,metadata.name%3D{name}"), get(f"{path}?fieldSelector=name%3D{name}"), get(f"{path}?fieldSelector=spec.x%3D1"),
        post(path, {**of(), "metadata": {"name": "none", "namespace": "x"}}, "?dryRun=All"), patch(one, "json", [{"op": "add", "path": "/spec/finalizers/-", "value": "example.com/j"}]), post(path, {**of(), "metadata": {"name": "labelled", "labels": {"kubernetes.io/metadata.name": "lie"}}}, "?dryRun=All"),
        post(path, {**of(), "metadata": {"name": "phased"}, "status": {"phase": "Terminating"}}, "?dryRun=All"), post(path, {**of(), "metadata": {"name": "held"}, "spec": {"finalizers": ["bad finalizer"]}}, "?dryRun=All"), post(path, {**of(), "metadata": {"name": "held"}, "spec": {"finalizers": ["nodomain"]}}, "?dryRun=All"),
        post(path, {**of(), "metadata": {"name": "m", "finalizers": ["example.com/meta"]}}, "?dryRun=All"), post(path, {**of(), "metadata": {"name": "pod-security", "labels": {"pod-security.kubernetes.io/enforce": rng.choice(["restricted", "odd", "baseline"])}}}, "?dryRun=All"),
    ]  # fmt: skip
    guarded = f"{CORE}{ns}"
    missing = [post(f"{CORE}none/configmaps", config_map("x")), get(f"{CORE}none/configmaps"), get(f"{CORE}none/configmaps/x"), delete(f"{CORE}none/configmaps/x"), apply(f"{CORE}none/configmaps/x", config_map("x"), "m"), patch(f"{CORE}none/configmaps/x", "merge", {}), post(f"{CORE}none/pods", pod("p"), "?dryRun=All"),
               post(f"{guarded}/configmaps", config_map("x", namespace="other")), put(f"{CORE}none/configmaps/x", config_map("x")), post("/apis/apps/v1/namespaces/none/deployments", deployment("d")), delete(f"{CORE}none/configmaps"), post(f"{CORE}Bad_Name/configmaps", config_map("x")), get(f"{CORE}none/configmaps?watch=1&timeoutSeconds=1"),
               delete(f"{path}/{rng.choice(['default', 'kube-system', 'kube-public'])}", {"dryRun": ["All"]}), delete(f"{path}/none")]  # fmt: skip
    return [*steps, *some(rng, asks, 10, 13), *some(rng, missing, 3, 4)]
