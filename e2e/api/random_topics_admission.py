"""More topics of `random_topics.py`: namespaces that go with what is in them, policies about parts of objects and about what is in no namespace."""

from __future__ import annotations

import copy

from random_api import TABLE, Step
from random_topics import CORE, Rng, apply, config_map, container, delete, deployment, get, patch, pod, post, put, some, topic

BASE = "/apis/admissionregistration.k8s.io/v1"


@topic
def terminations(rng: Rng, ns: str) -> list[Step]:
    """A namespace with content goes, and is made again."""
    path, name = "/api/v1/namespaces", f"of-{ns}"
    one, maps, secrets = f"{path}/{name}", f"{path}/{name}/configmaps", f"{path}/{name}/secrets"
    leases, sets = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases", f"/apis/apps/v1/namespaces/{name}/deployments"
    of = lambda **m: {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **m}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}
    held = rng.choice([{}, {}, {"finalizers": ["example.com/a"]}])
    begin = [
        post(path, {**of(labels={"a": "b"}, **held), "spec": rng.choice([{}, {}, {"finalizers": ["example.com/x"]}])}), post(maps, config_map("a", {"k": "v"}, **rng.choice([{}, {"finalizers": ["example.com/c"]}]))), post(sets, deployment("d")),
        post(f"{path}/{name}/serviceaccounts", account), post(leases, lease),
    ]  # fmt: skip
    begin[0].save = "made"
    how = rng.choice([None, None, {"propagationPolicy": rng.choice(["Background", "Foreground", "Orphan"])}, {"gracePeriodSeconds": 0}, {"preconditions": {"uid": "${made_uid}"}}, {"orphanDependents": rng.random() < 0.5}])
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview", "metadata": {"namespace": name}, "spec": {"user": "u", "resourceAttributes": {"namespace": name, "verb": "get", "resource": "pods"}}}
    finalize = lambda query, *f, **m: Step("PUT", f"{one}/finalize{query}", {**of(**m), "spec": {"finalizers": list(f)}})
    condition = {"type": "NamespaceContentRemaining", "status": "True", "reason": "R", "message": "M", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    going = [
        get(one), get(one, TABLE), get(f"{path}?fieldSelector=metadata.name%3D{name},status.phase%3DTerminating", TABLE), get(f"{path}?fieldSelector=metadata.name%3D{name},status.phase%3DActive"), delete(one), delete(one, {"propagationPolicy": rng.choice(["Orphan", "Foreground", "Background"])}), delete(one + "?dryRun=All"),
        delete(one, {"preconditions": {"resourceVersion": rng.choice(["1", "${own_rv}"])}}), delete(one, {"gracePeriodSeconds": rng.choice([0, 30])}), post(maps, config_map("b")), post(maps, config_map("b"), "?dryRun=All"), post(maps, {**config_map("x"), "metadata": {"generateName": "g-"}}), post(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}),
        post(f"{path}/{name}/pods", pod("p")), post(f"{path}/{name}/events", {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"kind": "Namespace", "namespace": name}}), put(leases + "/l", {**lease, "spec": {"holderIdentity": "you"}}), put(leases + "/new", {**lease, "metadata": {"name": "new"}}),
        apply(maps + "/new", config_map("new"), "m"), apply(maps + "/a", config_map("a", {"k": "w"}), "m", True), patch(maps + "/a", "merge", {"data": {"l": "2"}}), patch(maps + "/a", "json", [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/d"]}]), put(maps + "/a", config_map("a", {"z": "1"})), delete(maps + "/a"), delete(maps + "/b"), delete(maps + "?dryRun=All"),
        patch(sets + "/d/scale", "merge", {"spec": {"replicas": 2}}), patch(sets + "/d/status", "merge", {"status": {"replicas": 1}}), delete(sets + "/d", {"propagationPolicy": rng.choice(["Background", "Foreground"])}), post(f"{path}/{name}/serviceaccounts/s/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}, "?dryRun=All"),
        post(f"/apis/authorization.k8s.io/v1/namespaces/{name}/localsubjectaccessreviews", review), patch(one, "merge", {"metadata": {"labels": {"x": "1", "kubernetes.io/metadata.name": None}}}), patch(one, "merge", {"metadata": {"finalizers": rng.choice([[], ["example.com/a"], ["example.com/a", "example.com/new"], None])}}), patch(one, "merge", {"spec": {"finalizers": []}}),
        patch(one, "merge", {"metadata": {"deletionTimestamp": None}}), put(one, of(labels={"z": "1"})), put(one, {**of(), "status": {"phase": "Active"}}), apply(one, of(annotations={"q": "1"}), "m"), patch(one + "/status", "strategic", {"status": {"conditions": [condition]}}), patch(one + "/status", "merge", {"status": {"phase": rng.choice(["Active", "Terminating", None])}}),
        patch(one + "/status", "merge", {"metadata": {"labels": {"by": "status"}}, "spec": {"finalizers": []}}), finalize("?dryRun=All"), finalize("?dryRun=All", "kubernetes"), finalize("", "example.com/y", "kubernetes"), finalize("", "kubernetes", labels={"f": "1"}), finalize("", resourceVersion="1"), finalize("", uid="wrong"), finalize("", "bad one"), post(path, of()), post(path, of(), "?dryRun=All"),
        get(maps), get(maps + "?watch=1&timeoutSeconds=1&resourceVersion=${made_rv}"), get(one + "/status"), delete(f"{path}/{name}/serviceaccounts/s"), delete(leases), apply(one + "/status", {**of(), "status": {"conditions": [condition]}}, "m"), put(one + "/status", {**of(), "status": {"phase": "Terminating", "conditions": [condition]}}),
        post(f"{path}/{name}/configmaps", {**config_map("z"), "metadata": {"name": "z", "namespace": "other"}}), post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/roles", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": []}), delete(path + "/" + name + "/configmaps/none"),
    ]  # fmt: skip
    end = [finalize(""), get(one)]
    gone = [
        get(maps), get(maps + "/a"), post(maps, config_map("b")), delete(one), finalize(""), patch(one, "merge", {"metadata": {"labels": {"x": "1"}}}), patch(one, "merge", {"metadata": {"finalizers": None}}), patch(maps + "/a", "merge", {"data": {"l": "3"}}), apply(maps + "/n", config_map("n"), "m"), apply(one, of(labels={"again": "1"}), "m"), delete(maps + "/a"), put(one, of()), get(leases + "/l"),
        post(path, of(labels={"a": "c"})), put(leases + "/l", lease), put(leases + "/other", {**lease, "metadata": {"name": "other"}}), delete(maps), get(f"{path}?fieldSelector=metadata.name%3D{name}"), post(f"/apis/authorization.k8s.io/v1/namespaces/{name}/localsubjectaccessreviews", review),
    ]  # fmt: skip
    return [*begin, delete(one, how), *some(rng, going, 9, 12), *(end if rng.random() < 0.7 else []), *some(rng, gone, 4, 6)]


@topic
def part_policies(rng: Rng, ns: str) -> list[Step]:
    """Policies, of both kinds, about subresources."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": ns}}
    meta = lambda kind, name: {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": f"{ns}-{name}"}}
    group, resources = rng.choice([("apps", ["deployments/scale"]), ("apps", ["deployments/status"]), ("apps", ["deployments/*"]), ("apps", ["*/scale", "*/status"]), ("", ["pods/status"]), ("", ["pods/binding"]), ("", ["pods/eviction"]), ("", ["pods/ephemeralcontainers", "pods/resize"]), ("", ["serviceaccounts/token"]),
                                   ("*", ["*/*"]), ("", ["pods", "pods/*"]), ("", ["bindings"]), ("apps", ["deployments"])])  # fmt: skip
    rules = [{"apiGroups": [group], "apiVersions": ["*"], "operations": rng.choice([["*"], ["UPDATE"], ["CREATE", "UPDATE"]]), "resources": resources, "scope": "Namespaced"}]
    # a policy about all must let the last one become known
    spared = [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["leases"]}]
    constraints = {"namespaceSelector": here, "resourceRules": rules, "excludeResourceRules": spared, **rng.choice([{}, {}, {"objectSelector": {"matchLabels": {"app": "a"}}}, {"matchPolicy": "Exact"}])}
    conditions = rng.choice([{}, {}, {"matchConditions": [{"name": "c", "expression": rng.choice(["request.subResource != ''", "request.subResource == 'status'", "has(object.spec)", "request.requestSubResource == request.subResource", "oldObject != null", "request.kind.kind != 'Scale'"])}]}])
    applied = [
        'Object{metadata: Object.metadata{labels: {"set": "by-policy"}}}', 'Object{spec: Object.spec{replicas: 7}}', 'Object{status: Object.status{replicas: 5}}', 'Object{metadata: Object.metadata{annotations: {"sub": request.subResource, "kind": request.kind.kind}}}', 'Object{spec: Object.spec{replicas: object.spec.replicas + 1}}',
        'Object{status: Object.status{phase: "Running"}}', 'Object{target: Object.target{name: "elsewhere"}}', 'Object{spec: Object.spec{expirationSeconds: 1200}}', 'Object{spec: Object.spec{nope: "x"}}', 'Object{}', 'Object{spec: Object.spec{replicas: -3}}', 'Object{deleteOptions: Object.deleteOptions{gracePeriodSeconds: 3}}',
    ]  # fmt: skip
    patched = [
        '[JSONPatch{op: "replace", path: "/spec/replicas", value: 9}]', '[JSONPatch{op: "add", path: "/metadata/labels", value: {"l": "1"}}]', '[JSONPatch{op: "add", path: "/status/replicas", value: 4}]', 'has(object.status) ? [JSONPatch{op: "remove", path: "/status"}] : []', '[JSONPatch{op: "add", path: "/metadata/annotations", value: {"by": request.name}}]',
        '[JSONPatch{op: "test", path: "/kind", value: "Scale"}]', '[JSONPatch{op: "add", path: "/spec/template", value: {}}]', '[JSONPatch{op: "add", path: "/unknown", value: 1}]', '[]',
    ]  # fmt: skip
    validated = ["request.subResource == 'scale' ? object.spec.replicas < 5 : true", "request.subResource != 'status'", "object.kind != 'Scale'", "!has(object.status) || !has(object.status.replicas) || object.status.replicas < 4", "oldObject == null || object.metadata.name == oldObject.metadata.name", "request.operation != 'CREATE'",
                 "has(object.metadata.labels)", "request.resource.resource != 'pods'", "request.options.kind == 'UpdateOptions'", "request.requestKind.kind == request.kind.kind"]  # fmt: skip
    mutates = rng.random() < 0.6
    if mutates:
        kind, plural = "MutatingAdmissionPolicy", f"{BASE}/mutatingadmissionpolic"
        mutation = lambda: {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": rng.choice(applied)}} if rng.random() < 0.5 else {"patchType": "JSONPatch", "jsonPatch": {"expression": rng.choice(patched)}}
        spec: dict = {"matchConstraints": constraints, "reinvocationPolicy": rng.choice(["Never", "IfNeeded"]), "mutations": [mutation() for _ in range(rng.choice([1, 1, 2]))], **conditions, **rng.choice([{}, {}, {"failurePolicy": "Ignore"}])}
        refusal: dict = {"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": '[JSONPatch{op: "odd"}]'}}]}
        acts: dict = {}
    else:
        kind, plural = "ValidatingAdmissionPolicy", f"{BASE}/validatingadmissionpolic"
        spec = {"matchConstraints": constraints, "validations": [{"expression": rng.choice(validated), **rng.choice([{}, {"message": "not so"}, {"reason": "Forbidden"}])} for _ in range(rng.choice([1, 2]))], **conditions, **rng.choice([{}, {"failurePolicy": "Ignore"}])}
        refusal, acts = {"validations": [{"expression": "false"}]}, {"validationActions": rng.choice([["Deny"], ["Deny", "Audit"], ["Warn"]])}
    last = {"matchConstraints": {"namespaceSelector": here, "resourceRules": [{**spared[0], "operations": ["CREATE"]}]}, **refusal}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "canary"}}
    sets, pods, accounts = f"/apis/apps/v1/namespaces/{ns}/deployments", CORE + ns + "/pods", CORE + ns + "/serviceaccounts"
    labelled = lambda o: {**o, "metadata": {**o["metadata"], "labels": {"app": "a"}}}
    steps = [post(sets, labelled(deployment("a"))), post(pods, pod("a")), post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "labels": {"app": "a"}}})]
    steps += [
        post(plural + "ies", {**meta(kind, "p"), "spec": spec}), post(plural + "ybindings", {**meta(kind + "Binding", "p"), "spec": {"policyName": f"{ns}-p", **acts}}), post(plural + "ies", {**meta(kind, "z"), "spec": last}),
        post(plural + "ybindings", {**meta(kind + "Binding", "z"), "spec": {"policyName": f"{ns}-z", **({"validationActions": ["Deny"]} if acts else {})}}), Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases?dryRun=All", lease, until=403 if mutates else 422),
    ]  # fmt: skip
    scale = lambda n, **m: {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": ns, **m}, "spec": {"replicas": n}}
    query = lambda: rng.choice(["", "", "?dryRun=All", "?fieldManager=me"])
    asked = [
        put(sets + "/a/scale", scale(3), query()), patch(sets + "/a/scale", "merge", {"spec": {"replicas": rng.choice([2, 6])}}, query()), apply(sets + "/a/scale", scale(4), "s", True), get(sets + "/a/scale"), patch(sets + "/a/status", "merge", {"status": {"replicas": rng.choice([1, 5])}}, query()), patch(sets + "/a", "merge", {"spec": {"paused": True}}), get(sets + "/a"),
        apply(sets + "/a/status", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "status": {"readyReplicas": 1}}, "st", True), patch(pods + "/a/status", "merge", {"status": {"phase": "Running", "podIP": "10.1.2.3"}}, query()), post(pods + "/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "nowhere"}}, rng.choice(["", "?dryRun=All"])),
        post(pods + "/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}, "?dryRun=All"), patch(pods + "/a/ephemeralcontainers", "strategic", {"spec": {"ephemeralContainers": [container("debug")]}}, query()), patch(pods + "/a/resize", "strategic", {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}, query()),
        post(accounts + "/a/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}}, "?dryRun=All"), get(pods + "/a"), patch(pods + "/a", "merge", {"metadata": {"annotations": {"q": "1"}}}), post(CORE + ns + "/bindings", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}, "?dryRun=All"),
    ]  # fmt: skip
    return [*steps, *some(rng, asked, 9, 11), get(sets + "/a"), delete(f"{plural}ybindings/{ns}-p"), delete(f"{plural}ies/{ns}-p")]


@topic
def cluster_policies(rng: Rng, ns: str) -> list[Step]:
    """Policies about what is in no namespace, namespaces and policies among them."""
    meta = lambda kind, name: {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": f"{ns}-{name}"}}
    marked = {"matchLabels": {"set": ns}}
    group, resources = rng.choice([("", ["namespaces"]), ("", ["namespaces", "namespaces/*"]), ("storage.k8s.io", ["storageclasses"]), ("node.k8s.io", ["runtimeclasses"]), ("rbac.authorization.k8s.io", ["clusterroles"]), ("*", ["*"]), ("admissionregistration.k8s.io", ["*"]), ("scheduling.k8s.io", ["priorityclasses"]), ("apiextensions.k8s.io", ["*"])])
    rules = [{"apiGroups": [group], "apiVersions": ["*"], "operations": rng.choice([["*"], ["CREATE"], ["CREATE", "UPDATE"]]), "resources": resources, **rng.choice([{}, {"scope": "Cluster"}, {"scope": "Namespaced"}])}]
    constraints = {"objectSelector": marked, "resourceRules": rules, **rng.choice([{}, {}, {"namespaceSelector": marked}, {"namespaceSelector": {"matchExpressions": [{"key": "set", "operator": "DoesNotExist"}]}}])}
    expressions = ["object == null || !has(object.metadata.annotations)", "request.namespace == ''", "namespaceObject == null", "object == null || object.metadata.labels['set'] != 'x' && !('bad' in object.metadata.labels)", "request.operation != 'DELETE'", "oldObject == null || object == null || object.metadata.labels == oldObject.metadata.labels",
                   "request.name != ''", "object.metadata.name.startsWith('of-')", "request.kind.kind != 'Namespace'"]  # fmt: skip
    mutates = rng.random() < 0.4
    if mutates:
        kind, plural = "MutatingAdmissionPolicy", f"{BASE}/mutatingadmissionpolic"
        change = rng.choice(['Object{metadata: Object.metadata{annotations: {"by": "policy", "ns": request.namespace}}}', 'Object{metadata: Object.metadata{labels: {"kubernetes.io/metadata.name": "lie", "l": "1"}}}', 'Object{spec: Object.spec{finalizers: ["example.com/p"]}}', 'Object{metadata: Object.metadata{annotations: {"n": string(namespaceObject == null)}}}'])
        rules[0]["operations"] = rng.choice([["CREATE", "UPDATE"], ["CREATE"], ["*"]])
        spec: dict = {"matchConstraints": constraints, "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}], **rng.choice([{}, {"failurePolicy": "Ignore"}])}
        refusal: dict = {"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": '[JSONPatch{op: "odd"}]'}}]}
        acts: dict = {}
    else:
        kind, plural = "ValidatingAdmissionPolicy", f"{BASE}/validatingadmissionpolic"
        spec = {"matchConstraints": constraints, "validations": [{"expression": rng.choice(expressions), **rng.choice([{}, {"message": "not so"}])} for _ in range(rng.choice([1, 2]))], **rng.choice([{}, {"failurePolicy": "Ignore"}])}
        refusal, acts = {"validations": [{"expression": "false"}]}, {"validationActions": rng.choice([["Deny"], ["Deny", "Audit"], ["Warn"]])}
    here = {"matchLabels": {"kubernetes.io/metadata.name": ns}}
    last = {"matchConstraints": {"namespaceSelector": here, "resourceRules": [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["leases"]}]}, **refusal}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "canary"}}
    steps = [
        post(plural + "ies", {**meta(kind, "p"), "spec": spec}), post(plural + "ybindings", {**meta(kind + "Binding", "p"), "spec": {"policyName": f"{ns}-p", **acts}}), post(plural + "ies", {**meta(kind, "z"), "spec": last}),
        post(plural + "ybindings", {**meta(kind + "Binding", "z"), "spec": {"policyName": f"{ns}-z", **({"validationActions": ["Deny"]} if acts else {})}}), Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases?dryRun=All", lease, until=403 if mutates else 422),
    ]  # fmt: skip
    name = f"of-{ns}"
    made: dict[str, dict] = {
        "/api/v1/namespaces": {"apiVersion": "v1", "kind": "Namespace"}, "/apis/storage.k8s.io/v1/storageclasses": {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/d"}, "/apis/node.k8s.io/v1/runtimeclasses": {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h"},
        "/apis/rbac.authorization.k8s.io/v1/clusterroles": {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}, "/apis/scheduling.k8s.io/v1/priorityclasses": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 3},
        f"{BASE}/validatingadmissionpolicybindings": {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "spec": {"policyName": "none", "validationActions": ["Deny"]}},
        f"{CORE}{ns}/configmaps": config_map(name),
    }  # fmt: skip
    wanted = [path for path in made if any(path.endswith("/" + r.split("/")[0]) for r in resources)] or rng.sample(list(made), 3)
    asked: list[Step] = []
    for path in {*wanted, *rng.sample(list(made), 2)}:
        labels = lambda: {"set": ns, **rng.choice([{}, {}, {"bad": "1"}])}
        o = {**copy.deepcopy(made[path]), "metadata": {"name": name, "labels": labels(), **rng.choice([{}, {"annotations": {"a": "b"}}])}}
        asked += [post(path, o), *some(rng, [
            patch(f"{path}/{name}", "merge", {"metadata": {"labels": labels()}}), patch(f"{path}/{name}", "merge", {"metadata": {"annotations": {"c": "d"}}}), apply(f"{path}/{name}", o, "m", True), patch(f"{path}/{name}", "merge", {"metadata": {"labels": {"set": None}}}), get(f"{path}/{name}"),
            *([Step("PUT", f"{path}/{name}/finalize", {**o, "spec": {"finalizers": ["kubernetes"]}}), patch(f"{path}/{name}/status", "merge", {"metadata": {"labels": {"s": "1"}}})] if path.endswith("namespaces") else []),
            post(path, {**o, "metadata": {**o["metadata"], "name": "", "generateName": f"{name}-"}}, "?dryRun=All"),
        ], 3, 4), delete(f"{path}/{name}"), delete(f"{path}/{name}")]  # fmt: skip
    return [*steps, *asked, delete(f"{plural}ybindings/{ns}-p"), delete(f"{plural}ies/{ns}-p")]
