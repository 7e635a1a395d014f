"""Topics about how things come, change and go: owners and what goes with them, definitions, watches from any moment, and parts of objects
that are written apart. See `random_topics.py`."""

from __future__ import annotations

import copy

from random_api import PARTIAL, PARTIALS, TABLE, Step
from random_topics import CORE, Rng, apply, delete, get, patch, post, put, some, topic
from random_topics_custom import DEFINITIONS

HOLD = "example.com/hold"
KINDS = {
    "configmaps": ("v1", "ConfigMap", {}),
    "secrets": ("v1", "Secret", {}),
    "serviceaccounts": ("v1", "ServiceAccount", {}),
    "leases": ("coordination.k8s.io/v1", "Lease", {}),
    "roles": ("rbac.authorization.k8s.io/v1", "Role", {}),
}


def place(ns: str, version: str, plural: str) -> str:
    return f"{'/api' if version == 'v1' else '/apis'}/{version}/namespaces/{ns}/{plural}"


@topic
def owners(rng: Rng, ns: str) -> list[Step]:
    """Objects that others own, and how they are deleted: the server's part of it. All that is kept has an owner that is there, so that
    nothing is collected."""
    plural = rng.choice(list(KINDS))
    version, kind, rest = KINDS[plural]
    path = place(ns, version, plural)
    made = lambda name, **meta: {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}, **copy.deepcopy(rest)}
    owner = lambda **m: {"apiVersion": version, "kind": kind, "name": "owner", "uid": "${owner_uid}", **m}
    odd = [
        owner(controller=True, blockOwnerDeletion=True), owner(blockOwnerDeletion=True), owner(controller=True), owner(blockOwnerDeletion=False), owner(), owner(name="other"), owner(kind="Other"), owner(apiVersion="v9"), owner(apiVersion=""), owner(kind=""), owner(name=""), owner(uid=""),
        owner(uid="other"), owner(apiVersion="a/b/c"), owner(kind="Event", apiVersion="v1"), owner(controller="x"), owner(extra=1), {}, None, owner(apiVersion="apps/v1", kind="Deployment", controller=True), owner(apiVersion="v1", kind="Node", blockOwnerDeletion=True),
    ]  # fmt: skip
    owned = lambda *refs: {"ownerReferences": list(refs)}
    two, sound = [owner(controller=True), owner(uid="second", controller=True)], odd[:5]
    one = path + "/child"
    policies = ["Foreground", "Background", "Orphan", "Odd", "", None]
    options = lambda **m: {"kind": "DeleteOptions", "apiVersion": rng.choice(["v1", version]), **m}
    steps = [
        Step("POST", path, made("owner", finalizers=[HOLD]), save="owner"),
        Step("POST", path, made("child", finalizers=[HOLD], **owned(rng.choice(odd[:5]))), save="child"),
    ]
    return [*steps, *some(rng, [
        *(post(path, made(f"c{i}", **owned(*refs)), rng.choice(["?dryRun=All", "?dryRun=All&fieldValidation=Strict"])) for i, refs in enumerate([rng.sample(odd, 1) for _ in range(6)] + [two, [owner(uid="second")] * 2, [owner(), owner(name="other")]])),
        post(path, made("d", **owned(rng.choice(sound)))), *(patch(one, way, {"metadata": owned(rng.choice(sound))}) for way in ("merge", "strategic")), *(patch(one, way, {"metadata": owned(rng.choice(odd))}, "?dryRun=All") for way in ("merge", "strategic", "merge", "strategic")),
        patch(one, "strategic", {"metadata": owned({"uid": "${owner_uid}", "$patch": "delete"})}), patch(one, "strategic", {"metadata": owned(owner(uid="second"))}, "?dryRun=All"), patch(one, "json", [{"op": "remove", "path": "/metadata/ownerReferences/0"}]), patch(one, "json", [{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner(uid="third")}], "?dryRun=All"),
        apply(one, made("child", **owned(owner(controller=True))), "one"), apply(one, made("child", **owned(owner(uid="second"))), "two", query="&dryRun=All"), apply(one, made("child"), "one"), patch(one, "merge", {"metadata": owned()}), patch(one, "merge", {"metadata": {"ownerReferences": None}}), patch(one, "strategic", {"metadata": owned(*two)}, "?dryRun=All"),
        *(delete(f"{path}/{rng.choice(['owner', 'child'])}?dryRun=All", options(**({} if p is None else {"propagationPolicy": p}), **rng.choice([{}, {}, {"gracePeriodSeconds": 5}, {"preconditions": {"uid": "x"}}, {"preconditions": {"uid": "${owner_uid}"}}, {"preconditions": {"resourceVersion": "1"}}]))) for p in policies),
        *(delete(f"{path}/child?dryRun=All&propagationPolicy={p or 'Odd'}") for p in rng.sample(policies, 3)), delete(one + "?dryRun=All", options(orphanDependents=True)), delete(one + "?dryRun=All", options(orphanDependents=False)), delete(one + "?dryRun=All", options(orphanDependents=True, propagationPolicy="Orphan")),
        delete(one + "?dryRun=All&orphanDependents=true"), delete(one + "?dryRun=All&orphanDependents=false&propagationPolicy=Orphan"), delete(path + "?dryRun=All&propagationPolicy=Foreground"), delete(path + "?dryRun=All&labelSelector=x%3Dy", options(propagationPolicy="Orphan")), delete(one, options(propagationPolicy="Background")), delete(path + "/owner?propagationPolicy=Background"),
        patch(one, "merge", {"metadata": {"finalizers": rng.choice([[HOLD, "example.com/more"], [], [HOLD, "kubernetes"], [HOLD, "odd"], [HOLD, HOLD], ["example.com/UP", HOLD]])}}), patch(one, "merge", {"metadata": {"deletionTimestamp": None}}), patch(one, "merge", {"metadata": {"deletionGracePeriodSeconds": 9}}), get(one), get(one, PARTIAL), get(path, PARTIALS),
        get(path + "?watch=1&timeoutSeconds=1&resourceVersion=${owner_rv}"), get(path, TABLE), put(one, made("child", **owned(rng.choice(odd))), "?dryRun=All"), put(path + "/owner", made("owner"), "?dryRun=All"), post(path, made("child")), post(path, made("child"), "?dryRun=All"),
    ], 12, 18), get(path + "?watch=1&timeoutSeconds=1&resourceVersion=${owner_rv}")]  # fmt: skip


@topic
def moments(rng: Rng, ns: str) -> list[Step]:
    """Lists and watches from any moment on, in any form."""
    plural = rng.choice(["configmaps", "leases", "roles", "secrets"])
    version, kind, _ = KINDS[plural]
    path = place(ns, version, plural)
    made = lambda name, **meta: {"apiVersion": version, "kind": kind, "metadata": {"name": name, **meta}}
    steps = [Step("GET", path, save="before"), Step("POST", path, made("a", labels={"x": "1"}), save="a"), Step("POST", path, made("b", labels={"x": "2"}), save="b"), Step("PATCH", path + "/a", {"metadata": {"labels": {"x": "2"}}}, {"Content-Type": "application/merge-patch+json"}, save="moved"),
             Step("DELETE", path + "/b"), Step("POST", path, made("c", labels={"x": "1"}), save="c"), Step("GET", path + "?limit=1", save="page")]  # fmt: skip
    versions = ["", "0", "1", "${before_rv}", "${a_rv}", "${b_rv}", "${moved_rv}", "${c_rv}", "99999999", "x", "-1", "01", "1.5", "18446744073709551616"]
    selectors = [
        "",
        "",
        "",
        "&labelSelector=x%3D1",
        "&labelSelector=x%3D2",
        "&fieldSelector=metadata.name%3Da",
        "&labelSelector=x!%3D1",
        "&fieldSelector=metadata.name!%3Da",
        "&labelSelector=x%20in%20(1,2)",
        "&labelSelector=!x",
        "&labelSelector=x%20y",
        "&fieldSelector=odd%3D1",
    ]
    matches = ["", "", "NotOlderThan", "Exact", "Odd"]
    accepts = ["", "", TABLE, PARTIALS]

    def listed() -> Step:
        query = [f"resourceVersion={v}" for v in [rng.choice(versions)] if v] + [f"resourceVersionMatch={m}" for m in [rng.choice(matches)] if m]
        query += rng.choice(
            [
                [],
                [],
                ["limit=1"],
                ["limit=2"],
                ["limit=0"],
                ["limit=-1"],
                ["limit=x"],
                ["limit=1", "continue=${page_continue}"],
                ["continue=${page_continue}"],
                ["continue=odd"],
                ["timeoutSeconds=5"],
                ["sendInitialEvents=true"],
                ["sendInitialEvents=false"],
            ]
        )
        return get(f"{path}?{'&'.join(query)}{rng.choice(selectors)}", rng.choice(accepts))

    def watched() -> Step:
        query = ["watch=" + rng.choice(["1", "true", "1", "yes"]), "timeoutSeconds=1"] + [f"resourceVersion={v}" for v in [rng.choice(versions)] if v]
        query += rng.choice([[], [], [], ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan"], ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true"], ["sendInitialEvents=false", "resourceVersionMatch=NotOlderThan"], ["sendInitialEvents=true"], ["sendInitialEvents=true", "resourceVersionMatch=Exact"],
                             ["resourceVersionMatch=NotOlderThan"], ["resourceVersionMatch=Odd"], ["limit=1"], ["continue=x"], ["sendInitialEvents=odd", "resourceVersionMatch=NotOlderThan"], ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "limit=1"]])  # fmt: skip
        return get(f"{path}?{'&'.join(query)}{rng.choice(selectors)}", rng.choice(["", "", TABLE, PARTIAL, PARTIALS]))

    single = [
        get(f"{path}/a?resourceVersion={rng.choice(versions)}"),
        get(f"{path}/b?resourceVersion=${{b_rv}}"),
        get(f"{path}/none?resourceVersion=0"),
        get(f"{path}/a?watch=1&timeoutSeconds=1&resourceVersion=${{a_rv}}"),
        get(f"{path}/a?resourceVersionMatch=Exact&resourceVersion=1"),
    ]
    return [*steps, *some(rng, [listed() for _ in range(12)] + [watched() for _ in range(10)] + single, 12, 16)]


@topic
def definition_lives(rng: Rng, ns: str) -> list[Step]:
    """A definition from its making to its end: versions come and go, names are taken, objects outlive it for a while."""
    group = f"{ns}.example"
    one = f"{DEFINITIONS}/widgets.{group}"
    text, number = {"type": "string"}, {"type": "integer"}
    wide = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    strict = lambda **p: {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": p or {"a": text}}, "status": {"type": "object", "properties": {"s": text}}},
    }
    version = lambda name, served=True, storage=False, schema=None, **m: {
        "name": name,
        "served": served,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema or strict()},
        **m,
    }
    whole = lambda *versions, names=None, **m: {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{group}", **m},
                                                "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", **(names or {})}, "versions": list(versions)}}  # fmt: skip
    versions = lambda *all_: {"spec": {"versions": list(all_)}}
    path = lambda v="v1": f"/apis/{group}/{v}/namespaces/{ns}/widgets"
    made = lambda name, v="v1", **spec: {"apiVersion": f"{group}/{v}", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
    first = whole(
        version("v1", storage=True, schema=rng.choice([wide, strict()])), version("v2", served=rng.random() < 0.7), **rng.choice([{}, {"finalizers": [HOLD]}])
    )
    steps = [
        post(DEFINITIONS, first),
        Step("GET", path(), until=200),
        post(path(), {**made("a", a="x", b=1, n=None), "status": {"s": "t"}}),
        post(path("v2"), made("b", "v2", a="y", c=2)),
        get(path()),
        get(path("v2")),
    ]
    changes = [
        patch(one, "merge", versions(version("v1", storage=True, schema=strict(a=text, d={**text, "default": "new"})), version("v2"))), patch(one, "merge", versions(version("v1"), version("v2", storage=True))), patch(one, "merge", versions(version("v1", storage=True), version("v2", served=False))), patch(one, "merge", versions(version("v1", served=False), version("v2", storage=True))),
        patch(one, "merge", versions(version("v2", storage=True))), patch(one, "merge", versions(version("v1", storage=True), version("v2"), version("v3beta1"))), patch(one, "merge", versions(version("v1", storage=True, subresources={"status": {}}), version("v2"))), patch(one, "merge", versions(version("v1", storage=True, schema=strict(a=number)), version("v2"))),
        patch(one, "merge", versions(version("v1", storage=True, deprecated=True), version("v2", deprecated=True, deprecationWarning="old"))), patch(one, "merge", versions(version("v1", storage=True, additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a"}]), version("v2"))),
        patch(one, "merge", versions(version("v1", storage=True, selectableFields=[{"jsonPath": ".spec.a"}]), version("v2"))), patch(one, "merge", {"spec": {"names": {"shortNames": ["wd"], "categories": ["all"]}}}), patch(one, "merge", {"spec": {"names": {"listKind": "WidgetCollection"}}}), patch(one, "merge", {"spec": {"names": {"singular": "wid"}}}), patch(one, "merge", {"spec": {"conversion": {"strategy": "None"}}}),
        patch(one + "/status", "merge", {"status": {"storedVersions": ["v2"]}}), patch(one + "/status", "merge", {"status": {"storedVersions": ["v1", "v2"]}}),
    ]  # fmt: skip

    def uses() -> list[Step]:
        v = rng.choice(["v1", "v1", "v2", "v3beta1"])
        return some(rng, [
            get(path(v)), get(path(v) + "/a"), get(path(v) + "/b", TABLE), get(path(v), PARTIALS), post(path(v), made(f"n{rng.randint(0, 9)}", v, a="z", b=3, d="e"), rng.choice(["", "?fieldValidation=Strict", "?fieldValidation=Warn", "?dryRun=All"])), patch(path(v) + "/a", "merge", {"spec": {"a": "w", "q": 1}}), patch(path(v) + "/a", "json", [{"op": "add", "path": "/spec/e", "value": 1}]),
            patch(path(v) + "/a/status", "merge", {"status": {"s": "u"}}), apply(path(v) + "/a", made("a", v, a="applied"), "m", rng.random() < 0.5), put(path(v) + "/a", {**made("a", v, a="put"), "metadata": {"name": "a", "resourceVersion": "${own_rv}"}}), get(f"/apis/{group}"), get(f"/apis/{group}/{v}"), get(path(v) + "?fieldSelector=spec.a%3Dx"), get(path(v) + "?watch=1&timeoutSeconds=1"),
            delete(path(v) + "/b"), get(one), get(one, TABLE), get(f"/apis/{group}/{v}/widgets"), post(path(v), made("wrong", "v1" if v == "v2" else "v2", a="z")),
        ], 1, 3)  # fmt: skip

    # upstream serves a change a moment later
    pause = get(f"{CORE}{ns}/pods?watch=1&timeoutSeconds=1")
    for change in some(rng, changes, 2, 4):
        steps += [change, pause, *uses()]
    other = whole(
        version("v1", storage=True),
        names={
            "plural": "gadgets",
            "kind": rng.choice(["Widget", "Gadget"]),
            "singular": rng.choice(["widget", "gadget"]),
            "listKind": rng.choice(["WidgetList", "GadgetList"]),
        },
    )
    other["metadata"]["name"] = f"gadgets.{group}"
    end = [
        post(DEFINITIONS, other, "?dryRun=All"),
        patch(one, "merge", {"metadata": {"labels": {"l": "1"}}}),
        delete(one + "?dryRun=All"),
        delete(one + "?dryRun=All&propagationPolicy=Orphan"),
        delete(one, {"preconditions": {"uid": "x"}}),
        post(DEFINITIONS, first),
        put(one, first),
        apply(one, first, "m", True),
    ]
    return [*steps, *some(rng, end, 2, 4)]


@topic
def parts(rng: Rng, ns: str) -> list[Step]:
    """Status and scale, by every kind of patch, tried and for good, with every care for unknown fields."""
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
    selector = {"matchLabels": {"app": "a"}}
    kinds = {
        "deployments": ("apps/v1", "Deployment", {"replicas": 2, "selector": selector, "template": pod}), "replicasets": ("apps/v1", "ReplicaSet", {"replicas": 2, "selector": selector, "template": pod}), "statefulsets": ("apps/v1", "StatefulSet", {"replicas": 2, "serviceName": "s", "selector": selector, "template": pod}),
        "replicationcontrollers": ("v1", "ReplicationController", {"replicas": 0, "selector": {"app": "a"}, "template": pod}), "persistentvolumeclaims": ("v1", "PersistentVolumeClaim", {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}), "ingresses": ("networking.k8s.io/v1", "Ingress", {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}),
        "daemonsets": ("apps/v1", "DaemonSet", {"selector": selector, "template": pod, "updateStrategy": {"type": "OnDelete"}}), "cronjobs": ("batch/v1", "CronJob", {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}}}}}),
    }  # fmt: skip
    plural = rng.choice(list(kinds))
    version, kind, spec = kinds[plural]
    path = place(ns, version, plural)
    # paused, so that no controller of ours writes meanwhile
    if plural == "deployments":
        spec = {**spec, "paused": True, "replicas": 0}
    spec = {**spec, **({"replicas": 0} if "replicas" in spec else {})}
    made = lambda **m: {"apiVersion": version, "kind": kind, "metadata": {"name": "a", **m}, "spec": spec}
    condition = lambda **m: {"type": "Odd", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", **m}
    statuses = [
        {"conditions": [condition()]}, {"conditions": [condition(status="odd")]}, {"conditions": [condition(type="")]}, {"conditions": []}, {"conditions": [condition(), condition(status="False")]}, {"conditions": [condition(extra=1)]}, {"conditions": None}, {"conditions": [{"type": "Odd", "$patch": "delete"}]}, {"odd": 1}, {"conditions": {}}, {}, None, "x",
        {"observedGeneration": 1}, {"observedGeneration": -1}, {"observedGeneration": "1"}, {"replicas": 1}, {"replicas": -1}, {"readyReplicas": 3, "replicas": 1}, {"availableReplicas": 9}, {"collisionCount": 1}, {"phase": "Bound"}, {"phase": "Odd"}, {"capacity": {"storage": "2Gi"}}, {"capacity": {"storage": "x"}}, {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
        {"loadBalancer": {"ingress": [{"ip": "x"}]}}, {"loadBalancer": {"ingress": [{"hostname": "1.2.3.4"}]}}, {"currentNumberScheduled": 1, "desiredNumberScheduled": -1}, {"lastScheduleTime": "2026-01-01T00:00:00Z"}, {"lastScheduleTime": "x"}, {"active": [{"kind": "Job", "name": "j"}]}, {"accessModes": ["Odd"]}, {"replicas": 4294967296}, {"replicas": 1.5},
    ]  # fmt: skip
    queries = [
        "",
        "",
        "?dryRun=All",
        "?fieldValidation=Strict",
        "?fieldValidation=Warn",
        "?fieldValidation=Ignore",
        "?dryRun=All&fieldValidation=Strict",
        "?fieldManager=m",
        "?dryRun=Odd",
        "?fieldValidation=Odd",
    ]

    def written() -> Step:
        status, query, at = rng.choice(statuses), rng.choice(queries), path + "/a/status"
        more = rng.choice(
            [
                {},
                {},
                {"spec": {"replicas": 9}},
                {"metadata": {"labels": {"n": "1"}}},
                {"metadata": {"annotations": {"k": "v"}, "finalizers": [HOLD]}},
                {"spec": {"odd": 1}},
            ]
        )
        way = rng.choice(["merge", "strategic", "json", "apply", "put"])
        if way == "json":
            return patch(
                at,
                way,
                rng.choice(
                    [
                        [{"op": "add", "path": "/status", "value": status}],
                        [{"op": "add", "path": "/status/conditions", "value": [condition()]}],
                        [{"op": "test", "path": "/status/replicas", "value": 0}, {"op": "add", "path": "/metadata/labels", "value": {"j": "1"}}],
                        [{"op": "remove", "path": "/status"}],
                        [{"op": "replace", "path": "/status/odd", "value": 1}],
                    ]
                ),
                query,
            )
        if way == "apply":
            return apply(
                at,
                {**{k: v for k, v in made().items() if k != "spec"}, **more, "metadata": {"name": "a", **more.get("metadata", {})}, "status": status},
                rng.choice(["one", "two"]),
                rng.random() < 0.5,
                query.replace("?", "&").replace("&fieldManager=m", ""),
            )
        if way == "put":
            return put(at, {**made(**more.get("metadata", {})), "status": status}, query)
        return patch(at, way, {**more, "status": status}, query)

    def scaled() -> Step:
        spec = rng.choice(
            [{"replicas": 0}, {"replicas": "1"}, {"replicas": -1}, {"replicas": None}, {}, None, {"replicas": 4294967297}, {"replicas": 1.5}, {"odd": 1}]
        )
        query, at, way = rng.choice(queries), path + "/a/scale", rng.choice(["merge", "strategic", "json", "apply", "put"])
        body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": spec}
        if way == "json":
            return patch(at, way, [{"op": "replace", "path": "/spec/replicas", "value": (spec or {}).get("replicas")}], query)
        if way == "apply":
            return apply(at, body, "one", rng.random() < 0.5, query.replace("?", "&").replace("&fieldManager=m", ""))
        return put(at, body, query) if way == "put" else patch(at, way, {"spec": spec}, query)

    has_scale = "replicas" in spec
    more = [
        get(path + "/a/status"),
        get(path + "/a/status", TABLE),
        get(path + "/a"),
        delete(path + "/a/status"),
        post(path + "/a/status", made()),
        *([get(path + "/a/scale"), delete(path + "/a/scale")] if has_scale else []),
    ]
    return [post(path, made()), *some(rng, [written() for _ in range(14)] + [scaled() for _ in range(6 if has_scale else 1)] + more, 12, 16), get(path + "/a")]
