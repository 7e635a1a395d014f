"""More topics of `random_topics.py`: writes that other objects decide about (quotas, disruption budgets, admission policies), and what
a definition makes of its kind (names, versions, documents).

Upstream's controllers are stopped: what they would write into a status, a scenario writes. Its API server learns of quotas, policies
and definitions a moment later than ours; a step with `until` waits for that.
"""

from __future__ import annotations

import copy

from random_api import PARTIAL, PARTIALS, TABLE, Step
from random_topics import CORE, Rng, apply, config_map, container, delete, get, patch, pod, post, put, some, topic, widgets

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT, INT = {"type": "string"}, {"type": "integer"}


# -- quotas


@topic
def quotas(rng: Rng, ns: str) -> list[Step]:
    """A quota, and objects that come up to it."""
    path, core = CORE + ns + "/resourcequotas", CORE + ns
    # every namespace is born with one ConfigMap, and the quota is there itself
    used = {"configmaps": "1", "count/configmaps": "1", "resourcequotas": "1"}
    scoped = rng.random() < 0.35
    counted = {"pods": ["1", "2", "0"], "requests.cpu": ["1", "500m", "250m"], "limits.memory": ["1Gi", "200Mi"], "cpu": ["1", "300m"], "memory": ["512Mi"], "limits.cpu": ["1", "2"]}
    counted |= {"count/pods": ["1", "3"], "requests.example.com/gpu": ["1", "0"], "requests.ephemeral-storage": ["1Gi"], "requests.memory": ["256Mi"]} if not scoped else {}
    others = {"configmaps": ["2", "1"], "services": ["1"], "services.nodeports": ["0", "1"], "services.loadbalancers": ["0"], "secrets": ["1"], "persistentvolumeclaims": ["1"], "requests.storage": ["1Gi"], "count/deployments.apps": ["1"],
              "count/configmaps": ["2"], "count/jobs.batch": ["0"], "resourcequotas": ["1"], "fast.storageclass.storage.k8s.io/requests.storage": ["1Gi"], "replicationcontrollers": ["1"], "count/cronjobs.batch": ["1"]}  # fmt: skip
    names = rng.sample(sorted(counted), rng.randint(1, 3)) + ([] if scoped else rng.sample(sorted(others), rng.randint(1, 4)))
    hard = {n: rng.choice({**counted, **others}[n]) for n in names}
    spec: dict = {"hard": hard}
    if scoped:
        best = {"pods": hard.get("pods", "1")}
        spec |= rng.choice([{"scopes": ["NotBestEffort"]}, {"scopes": ["NotTerminating"]}, {"scopes": ["Terminating"]}, {"scopes": ["BestEffort"], "hard": best}, {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}},
                            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}}, {"scopes": ["Terminating", "NotBestEffort"]}, {"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}, "hard": best}])  # fmt: skip
        hard = spec["hard"]
    canary = "count/leases.coordination.k8s.io"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec}
    guard = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "guard"}, "spec": {"hard": {canary: "0"}}}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "canary"}}
    status = lambda q: {"status": {"hard": q["spec"]["hard"], "used": {n: used.get(n, "0") for n in q["spec"]["hard"]}}}
    if "resourcequotas" in hard:
        used["resourcequotas"] = "2"
    # the guard's status comes last: when it is known, so is the other's
    steps = [post(path, quota, "?dryRun=All"), post(path, guard), post(path, quota), patch(path + "/q/status", "merge", status(quota)), patch(path + "/guard/status", "merge", status(guard)),
             Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases?dryRun=All", lease, until=403)]  # fmt: skip
    resources = lambda: rng.choice([{}, {"requests": {"cpu": "200m"}}, {"requests": {"cpu": "200m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "150Mi"}}, {"limits": {"cpu": "600m", "memory": "300Mi"}},
                                    {"limits": {"example.com/gpu": "1"}}, {"requests": {"cpu": "2", "memory": "1Gi", "ephemeral-storage": "2Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}])  # fmt: skip

    def one_pod(i: int) -> dict:
        more = rng.choice([{}, {}, {"activeDeadlineSeconds": 50}, {"priorityClassName": "system-node-critical"}, {"overhead": {"cpu": "10m"}}])
        o = pod(f"p{i}", containers=[container(resources=resources()), *([container("two", resources=resources())] if rng.random() < 0.3 else [])], **more)
        if rng.random() < 0.25:
            o["spec"]["initContainers"] = [container("init", resources=resources(), **rng.choice([{}, {"restartPolicy": "Always"}]))]
        return o

    service = lambda i, **s: {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{i}"}, "spec": {"ports": [{"port": 80}], **s}}
    claim = lambda i, **s: {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"c{i}"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": rng.choice(["500Mi", "700Mi", "2Gi"])}}, **s}}
    deploy = lambda i: {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"d{i}"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container()]}}}}
    job = lambda i: {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"j{i}"}, "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}}
    dry = lambda: rng.choice(["", "", "", "?dryRun=All"])
    for i in range(9):
        makes = [lambda: post(core + "/pods", one_pod(i), dry())] * 5
        if not scoped:
            makes += [lambda: post(core + "/configmaps", config_map(f"m{i}", {"a": "b"}), dry()), lambda: post(core + "/services", service(i, clusterIP="None"), dry()), lambda: post(core + "/services", service(i, type="NodePort", ports=[{"port": 80, "nodePort": 30000 + rng.randrange(2768)}]), "?dryRun=All"),
                      lambda: post(core + "/services", service(i, type="LoadBalancer", allocateLoadBalancerNodePorts=False), "?dryRun=All"), lambda: post(core + "/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"x{i}"}}, dry()),
                      lambda: post(core + "/persistentvolumeclaims", claim(i, **rng.choice([{}, {"storageClassName": "fast"}])), dry()), lambda: post(f"/apis/apps/v1/namespaces/{ns}/deployments", deploy(i), dry()),
                      lambda: post(f"/apis/batch/v1/namespaces/{ns}/jobs", job(i), "?dryRun=All"), lambda: post(path, {**quota, "metadata": {"name": f"q{i}"}}, "?dryRun=All")]  # fmt: skip
        steps.append(rng.choice(makes)())
    wrong = [{"hard": {"pods": "-1"}}, {"hard": {"pods": "1.5"}}, {"hard": {"bogus!": "1"}}, {"hard": {"bogus": "1"}}, {"hard": {"count/": "1"}}, {"hard": {"count/x.y": "1"}}, {"hard": {"pods": "1"}, "scopes": ["Odd"]}, {"hard": {"services": "1"}, "scopes": ["BestEffort"]},
             {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}, {"hard": {"pods": "1"}, "scopes": ["Terminating", "NotTerminating"]}, {"hard": {"pods": "x"}}, {"hard": {"requests.example.com/gpu": "1500m"}}, {"hard": {"limits.example.com/gpu": "1"}},
             {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}, {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["a"]}]}}, {}, {"hard": {}}, {"hard": {"hugepages-2Mi": "1Gi"}},
             {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}]}}, {"hard": {"example.com/gpu": "1"}}, {"hard": {"requests.storage": "1Gi"}, "scopes": ["Terminating"]}, {"hard": {"pods": "1"}, "scopes": ["CrossNamespacePodAffinity"]},
             {"hard": {"pods": "1"}, "scopes": ["BestEffort", "BestEffort"]}, {"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["a"]}]}}]  # fmt: skip
    return [*steps, *(post(path, {**quota, "metadata": {"name": "w"}, "spec": s}, "?dryRun=All") for s in rng.sample(wrong, 3)), patch(path + "/q", "merge", {"spec": {"scopes": ["Terminating"]}}, "?dryRun=All")]


# -- evictions


@topic
def budgets(rng: Rng, ns: str) -> list[Step]:
    """Disruption budgets, and evictions that they allow or do not."""
    path, pods = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", CORE + ns + "/pods"
    budget = lambda name, **s: {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": s}
    state = lambda ready, phase="Running": {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}
    count, least, ready = rng.randint(1, 3), rng.randint(0, 3), rng.random() < 0.8
    steps: list[Step] = []
    for i in range(count):
        o = pod(f"p{i}", terminationGracePeriodSeconds=0)
        o["metadata"]["labels"] = {"app": "a", "n": str(i)}
        steps += [post(pods, o), patch(f"{pods}/p{i}/status", "merge", state(ready or i > 0, rng.choice(["Running"] * 4 + ["Pending", "Succeeded"]) if i else "Running"))]
    policy = rng.choice([{}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, {"unhealthyPodEvictionPolicy": "IfHealthyBudget"}])
    spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "a"}}, **policy}
    ours = [s.body["status"] for s in steps if s.method == "PATCH"]
    healthy = sum(s["conditions"][0]["status"] == "True" for s in ours)
    expected = len(ours)
    # what upstream's controller would write and ours does
    counts = {"observedGeneration": 1, "disruptionsAllowed": max(0, healthy - least) if expected else 0, "currentHealthy": healthy, "desiredHealthy": least, "expectedPods": expected}
    steps += [post(path, budget("a", **spec)), patch(path + "/a/status", "merge", {"status": counts})]
    evict = lambda name, query="", **o: post(f"{pods}/{name}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": ns}, **o}, query)
    steps += some(rng, [
        evict("p0", "?dryRun=All"), evict("p0", deleteOptions={"dryRun": ["All"]}), evict("p0", deleteOptions={"preconditions": {"uid": "wrong"}, "dryRun": ["All"]}), evict("none"), evict(f"p{count - 1}", "?dryRun=All"), evict("p0", "?dryRun=All", deleteOptions={"gracePeriodSeconds": 5}),
        evict("p0", "?fieldValidation=Strict&dryRun=All", extra=1), evict("p0", "?dryRun=All", kind="Pod"), evict("p0", "?dryRun=All", apiVersion="policy/v1beta1"), evict("p0", "?dryRun=Some"), evict("p0", deleteOptions={"dryRun": ["Some"]}), evict("p0", "?dryRun=All", deleteOptions="x"),
        post(path, budget("b", **spec), "?dryRun=All"), post(path, budget("c", minAvailable="50%", maxUnavailable=1), "?dryRun=All"), post(path, budget("c", minAvailable=-1), "?dryRun=All"), post(path, budget("c", maxUnavailable="101%"), "?dryRun=All"), post(path, budget("c", maxUnavailable="x"), "?dryRun=All"),
        post(path, budget("c"), "?dryRun=All"), post(path, budget("c", minAvailable=1, unhealthyPodEvictionPolicy="Odd"), "?dryRun=All"), post(path, budget("c", selector={"matchLabels": {"a b": "c"}}), "?dryRun=All"), post(path, budget("c", selector={"matchExpressions": [{"key": "a", "operator": "In"}]}), "?dryRun=All"),
        patch(path + "/a/status", "merge", {"status": {"disruptionsAllowed": -1}}, "?dryRun=All"), patch(path + "/a/status", "merge", {"status": {"conditions": [{"type": "x"}]}}, "?dryRun=All"), get(path + "/none"), delete(path + "/a?dryRun=All"), patch(path + "/a", "merge", {"spec": {"maxUnavailable": 1}}, "?dryRun=All"),
        post(pods + "/p0/eviction", {}), post(pods + "/p0/eviction", {"metadata": {"name": "p0"}}, "?dryRun=All"), Step("GET", pods + "/p0/eviction"), Step("PUT", pods + "/p0/eviction", {}), post(path.replace("poddisruptionbudgets", "evictions"), {}), apply(path + "/d", budget("d", minAvailable=0), "m", query="&dryRun=All"),
    ], 5, 8)  # fmt: skip
    if rng.random() < 0.3:
        steps += [post(path, budget("second", minAvailable=0, selector=rng.choice([{"matchLabels": {"n": "0"}}, {}, {"matchExpressions": [{"key": "n", "operator": "Exists"}]}]))), evict("p0", rng.choice(["", "?dryRun=All"]))]
    else:
        steps += [evict("p0", deleteOptions=rng.choice([{}, {"gracePeriodSeconds": 0}, {"propagationPolicy": "Background"}])), get(pods + "/p0"), evict("p0")]
    return steps


# -- admission policies


@topic
def policies(rng: Rng, ns: str) -> list[Step]:
    """Validating admission policies with bindings, parameters, variables and conditions, and requests that meet them."""
    base, maps = "/apis/admissionregistration.k8s.io/v1", CORE + ns + "/configmaps"
    here = {"matchLabels": {"kubernetes.io/metadata.name": ns}}
    meta = lambda kind, name: {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": f"{ns}-{name}"}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": rng.choice([["CREATE", "UPDATE"], ["*"], ["CREATE"], ["UPDATE"], ["DELETE"], ["CREATE", "UPDATE", "DELETE"]]), "resources": rng.choice([["configmaps"], ["configmaps", "pods"], ["*"]]), "scope": "Namespaced"}]
    constraints = {"namespaceSelector": here, "resourceRules": rules, **rng.choice([{}, {}, {"objectSelector": {"matchLabels": {"app": "one"}}}, {"excludeResourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "resourceNames": ["free"]}]}, {"matchPolicy": "Exact"}])}
    takes = rng.random() < 0.5
    expressions = [
        "object == null || !has(object.data) || object.data.size() < 3", "object == null || object.metadata.name.size() < 4", "!has(object.data) || object.data.all(k, object.data[k] != 'bad')", "object.data.k == 'v'", "oldObject == null || object == null || object.metadata.labels == oldObject.metadata.labels",
        "request.operation != 'DELETE'", "request.userInfo.username.startsWith('jane')", "'system:masters' in request.userInfo.groups", "namespaceObject.metadata.name == request.namespace", "request.name != 'b'", "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'", "!request.dryRun",
        "has(object.metadata.labels) && object.metadata.labels['app'] == 'one'", "int(object.data.n) < 5", "object.data.n.matches('^[0-9]+$')", "request.options.kind == 'CreateOptions'", "object.data.?k.orValue('v') == 'v'", "authorizer.group('').resource('pods').namespace('default').check('get').allowed()",
        "authorizer.requestResource.check('update').allowed()", "!has(object.immutable) || !object.immutable", "request.requestKind == request.kind", "namespaceObject.metadata.labels['kubernetes.io/metadata.name'].startsWith('topic')", "request.subResource == ''", "object.data.map(k, k).exists(k, k == 'k')", "size(object.data) * 2 == 2",
        *(["params.data.max == '3'", "has(params.data) && int(params.data.max) > object.data.size()", "params == null || params.metadata.name == 'limits'", "object.data.k == params.data.k"] if takes else []),
    ]  # fmt: skip
    variables = [{"name": "n", "expression": "object == null || !has(object.data) ? 0 : object.data.size()"}, {"name": "low", "expression": "variables.n < 2"}, {"name": "broken", "expression": "object.data['absent'] + 'x'"}]
    expressions += ["variables.n < 2", "variables.low", "variables.broken == 'x'"]

    def validation() -> dict:
        return {"expression": rng.choice(expressions), **rng.choice([{}, {}, {"message": "not so"}, {"messageExpression": "'name is ' + object.metadata.name"}, {"messageExpression": "object.data['absent']", "message": "fallback"}, {"messageExpression": "'  '"}]),
                **rng.choice([{}, {}, {"reason": "Forbidden"}, {"reason": "Unauthorized"}, {"reason": "RequestEntityTooLarge"}, {"reason": "Invalid"}])}  # fmt: skip

    spec: dict = {"matchConstraints": constraints, "validations": [validation() for _ in range(rng.randint(1, 3))], "variables": variables, **rng.choice([{}, {"failurePolicy": "Ignore"}, {"failurePolicy": "Fail"}])}
    if takes:
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    if rng.random() < 0.3:
        spec["matchConditions"] = [{"name": "c", "expression": rng.choice(["request.name != 'a'", "has(object.metadata.labels)", "object.data.k == 'v'", "request.userInfo.username != 'jane'"])}]
    if rng.random() < 0.2:
        spec["auditAnnotations"] = [{"key": "k", "valueExpression": "'x'"}]
    binding: dict = {"policyName": f"{ns}-p", "validationActions": rng.choice([["Deny"], ["Deny"], ["Warn"], ["Deny", "Audit"], ["Warn", "Audit"], ["Audit"]])}
    if takes:
        binding["paramRef"] = rng.choice([{"name": "limits", "namespace": ns, "parameterNotFoundAction": "Deny"}, {"name": "limits", "parameterNotFoundAction": "Deny"}, {"name": "absent", "namespace": ns, "parameterNotFoundAction": rng.choice(["Deny", "Allow"])},
                                          {"selector": {"matchLabels": {"set": ns}}, "parameterNotFoundAction": "Deny"}, {"selector": {"matchLabels": {"set": "none"}}, "namespace": ns, "parameterNotFoundAction": rng.choice(["Deny", "Allow"])}])  # fmt: skip
    if rng.random() < 0.3:
        binding["matchResources"] = rng.choice([{"objectSelector": {"matchLabels": {"app": "one"}}}, {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}, {"namespaceSelector": {"matchLabels": {"x": "y"}}}])
    all_policies, all_bindings = base + "/validatingadmissionpolicies", base + "/validatingadmissionpolicybindings"
    # the last that becomes known
    only: dict = {"matchConstraints": {"namespaceSelector": here, "resourceRules": [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["leases"]}]},
                  "validations": [{"expression": "object.metadata.name != 'canary'", "reason": "Forbidden"}]}  # fmt: skip
    last: dict = {"policyName": f"{ns}-z", "validationActions": ["Deny"]}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "canary"}}
    steps = [
        post(maps, config_map("limits", {"max": "3", "k": "v"}, labels={"set": ns})), post(maps, config_map("a", {"k": "v", "n": "1"}, labels={"app": "one"})), post(maps, config_map("free", {"k": "w"})),
        post(all_policies, {**meta("ValidatingAdmissionPolicy", "p"), "spec": spec}), post(all_bindings, {**meta("ValidatingAdmissionPolicyBinding", "p"), "spec": binding}),
        post(all_policies, {**meta("ValidatingAdmissionPolicy", "z"), "spec": only}), post(all_bindings, {**meta("ValidatingAdmissionPolicyBinding", "z"), "spec": last}),
        Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases?dryRun=All", lease, until=403),
    ]  # fmt: skip
    labels = lambda: rng.choice([{}, {"labels": {"app": "one"}}, {"labels": {"app": "two", "x": "y"}}])
    data = lambda: rng.choice([{"k": "v"}, {"k": "bad"}, {"k": "v", "n": "7", "m": "x"}, {"n": "x"}, {}, None, {"n": "2"}])
    asked = [Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {**lease, "metadata": {"name": "other"}})]
    for i in range(8):
        roll = rng.random()
        if roll < 0.4:
            asked.append(post(maps, config_map(rng.choice([f"m{i}", "b", "long-name"]), data(), **labels()), rng.choice(["", "?dryRun=All"])))
        elif roll < 0.55:
            asked.append(patch(maps + "/a", "merge", {"data": data()}))
        elif roll < 0.65:
            asked.append(put(maps + rng.choice(["/a", "/free"]), config_map("a", data(), **labels())))
        elif roll < 0.75:
            asked.append(apply(maps + rng.choice(["/a", "/new"]), config_map("a", data()), "m", True))
        elif roll < 0.9:
            asked.append(delete(maps + rng.choice(["/a?dryRun=All", "/free", "?dryRun=All&labelSelector=app%3Done", "/m1"])))
        else:
            asked.append(Step("POST", maps, config_map(f"u{i}", data()), {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}))
    changed = {**meta("ValidatingAdmissionPolicy", "w"), "spec": {**copy.deepcopy(spec), **rng.choice([{"validations": []}, {"validations": [{"expression": ""}]}, {"validations": [{"expression": "1"}]}, {"validations": [{"expression": "object.x ="}]}, {"validations": [{"expression": "true", "message": "a\nb"}]},
               {"validations": [{"expression": "true", "reason": "Odd"}]}, {"validations": [{"expression": "true", "messageExpression": "1"}]}, {"matchConstraints": None}, {"matchConstraints": {"resourceRules": []}}, {"paramKind": {"apiVersion": "v1"}}, {"paramKind": {"apiVersion": "a/b/c", "kind": "K"}}, {"failurePolicy": "Odd"},
               {"variables": [{"name": "1x", "expression": "1"}]}, {"variables": [{"name": "x", "expression": "y"}]}, {"variables": [{"name": "x", "expression": "1"}, {"name": "x", "expression": "2"}]}, {"matchConditions": [{"name": "a b", "expression": "true"}]}, {"matchConditions": [{"name": "a", "expression": "1"}]},
               {"auditAnnotations": [{"key": "a b", "valueExpression": "'x'"}]}, {"auditAnnotations": [{"key": "a", "valueExpression": "1"}]}, {"validations": [{"expression": "params.x == 1"}], "paramKind": None}, {"validations": [{"expression": "variables.nope"}]}, {"validations": [{"expression": "unknown == 1"}]}])}}  # fmt: skip
    other = {**meta("ValidatingAdmissionPolicyBinding", "w"), "spec": {**copy.deepcopy(binding), **rng.choice([{"policyName": ""}, {"policyName": "A B"}, {"validationActions": []}, {"validationActions": ["Deny", "Warn"]}, {"validationActions": ["Odd"]}, {"validationActions": ["Deny", "Deny"]}, {"paramRef": {}},
             {"paramRef": {"name": "a", "selector": {}}}, {"paramRef": {"name": "a"}}, {"paramRef": {"name": "a", "parameterNotFoundAction": "Odd"}}, {"matchResources": {"matchPolicy": "Odd"}}, {"matchResources": {"resourceRules": [{"apiGroups": [], "apiVersions": [], "operations": [], "resources": []}]}}])}}  # fmt: skip
    return [*steps, *asked, post(all_policies, changed, "?dryRun=All"), post(all_bindings, other, "?dryRun=All"), get(f"{all_policies}?fieldSelector=metadata.name%3D{ns}-p", TABLE), get(f"{all_bindings}?fieldSelector=metadata.name%3D{ns}-p", TABLE),
            delete(f"{all_bindings}/{ns}-p"), delete(f"{all_policies}/{ns}-p")]  # fmt: skip


# -- definitions


def several(ns: str, versions: list[dict], **spec: object) -> dict:
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{ns}.example"},
            "spec": {"group": f"{ns}.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": versions, **spec}}  # fmt: skip


@topic
def versions(rng: Rng, ns: str) -> list[Step]:
    """A kind in several versions that nobody converts: written in one, read in another, while definitions change."""
    fields = {"a": TEXT, "n": {**INT, "default": 1}, "l": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, "m": {"type": "object", "properties": {"x": {**TEXT, "default": "d"}}}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    more = {**fields, "only": TEXT, "n": {**INT, "default": rng.choice([1, 2]), **rng.choice([{}, {"maximum": 5}])}, "l": rng.choice([fields["l"], {"type": "array", "items": TEXT}])}
    if rng.random() < 0.3:
        del more["a"]
    body = lambda properties: {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}, "status": {"type": "object", "properties": {"phase": TEXT}}}}}
    sub = lambda: rng.choice([{}, {"subresources": {"status": {}}}])
    names = rng.choice([["v1", "v2"], ["v1beta1", "v1"], ["v1alpha1", "v2"]])
    old = {"name": names[0], "served": True, "storage": True, "schema": body(fields), **sub(), **rng.choice([{}, {"deprecated": True}, {"deprecated": True, "deprecationWarning": "go on"}])}
    new = {"name": names[1], "served": True, "storage": False, "schema": body(more), **sub(), **rng.choice([{}, {"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}]}])}
    definition = several(ns, [old, new], **rng.choice([{}, {"conversion": {"strategy": "None"}}]))
    first, second = (f"/apis/{ns}.example/{v}/namespaces/{ns}/widgets" for v in names)
    of = lambda v, name, spec, **m: {"apiVersion": f"{ns}.example/{v}", "kind": "Widget", "metadata": {"name": name}, "spec": spec, **m}
    spec = lambda: {k: rng.choice(v) for k, v in {"a": ["x", "y"], "n": [1, 7, None], "l": [["p"], ["p", "q"], []], "m": [{}, {"x": "z"}], "only": ["o"], "free": [{"q": 1}], "unknown": [1]}.items() if rng.random() < 0.45}
    one = f"{DEFINITIONS}/widgets.{ns}.example"
    steps = [post(DEFINITIONS, definition), Step("GET", first, until=200), Step("GET", second, until=200), post(first, of(names[0], "a", spec())), post(second, of(names[1], "b", spec()))]

    def write() -> list[Step]:
        out = []
        for _ in range(5):
            v, path = rng.choice([(names[0], first), (names[1], second)])
            at, q = path + rng.choice(["/a", "/b"]), rng.choice(["", "", "?dryRun=All", "?fieldValidation=Strict", "?fieldManager=me"])
            name = at[-1]
            out.append(rng.choice([
                apply(at, of(v, name, spec()), rng.choice(["one", "two"]), rng.random() < 0.5), patch(at, "merge", {"spec": spec()}, q), patch(at, "merge", {"status": {"phase": "P"}}, q), put(at, {**of(v, name, spec()), "metadata": {"name": name, "resourceVersion": "${rv}"}}, q),
                post(path, of(names[0], f"n{rng.randint(0, 9)}", spec()), q), patch(at, "json", [{"op": "replace", "path": "/apiVersion", "value": f"{ns}.example/{names[1]}"}], q), apply(at, of(names[1], name, spec()), "one"), get(at), get(path, rng.choice([TABLE, PARTIALS, ""])),
                get(path + "?watch=1&timeoutSeconds=1", rng.choice([TABLE, ""])), patch(at + "/status", "merge", {"status": {"phase": "Q"}}), apply(at + "/status", of(v, name, spec(), status={"phase": "R"}), "s"), get(f"/apis/{ns}.example"), get(f"/apis/{ns}.example/{v}"), delete(at + "?dryRun=All"),
            ]))  # fmt: skip
        return out

    steps += write()
    turned = [{**old, "storage": False}, {**new, "storage": True}]
    gone = [{**old, "storage": False, "served": False}, {**new, "storage": True}]
    steps += [patch(one, "merge", {"spec": {"versions": [{**old, "storage": True}, {**new, "storage": True}]}}), patch(one, "merge", {"spec": {"versions": [new]}})]
    if rng.random() < 0.5:
        steps += [patch(one, "merge", {"spec": {"versions": turned}}), *write()[:3], patch(one + "/status", "merge", {"status": {"storedVersions": rng.choice([[names[1]], [names[0]], [], ["v9"]])}}, rng.choice(["", "?dryRun=All"]))]
    else:
        steps += [patch(one, "merge", {"spec": {"versions": gone}}), Step("GET", first, until=404), get(first + "/a"), get(second), patch(second + "/a", "merge", {"spec": spec()}), apply(second + "/b", of(names[1], "b", spec()), "one"), get(f"/apis/{ns}.example"), post(first, of(names[0], "x", {}))]
    return [*steps, get(second + "/a"), get(one, TABLE), get(one, PARTIAL)]


@topic
def published(rng: Rng, ns: str) -> list[Step]:
    """The document that a definition's kind is published in."""
    leaf = [TEXT, INT, {**INT, "format": "int64", "minimum": 0, "exclusiveMinimum": True}, {**TEXT, "enum": ["a", "b"], "default": "a"}, {**TEXT, "pattern": "^a", "maxLength": 9}, {"type": "boolean", "default": False}, {"type": "number", "multipleOf": 0.5}, {"x-kubernetes-int-or-string": True}, {**TEXT, "nullable": True},
            {**TEXT, "format": "date-time"}, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"x-kubernetes-preserve-unknown-fields": True}, {"type": "object", "additionalProperties": TEXT}, {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}, {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"q": INT}},
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": INT}}}, {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}, "metadata": {"type": "object"}}}, {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}, {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {**TEXT, "allOf": [{"minLength": 1}, {"maxLength": 5}]}, {**TEXT, "not": {"enum": ["x"]}}, {**TEXT, "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "no"}], "maxLength": 5}, {**TEXT, "description": "a text", "title": "T", "example": "e"}, {**TEXT, "externalDocs": {"url": "https://example.com", "description": "d"}},
            {"type": "object", "minProperties": 1, "maxProperties": 3, "additionalProperties": {"type": "object", "nullable": True, "properties": {"z": TEXT}}}, {"type": "array", "items": {"x-kubernetes-int-or-string": True}, "minItems": 1, "maxItems": 4}, {"type": "object", "default": {"q": 1}, "properties": {"q": INT}}, {"type": "array", "nullable": True, "items": {**TEXT, "default": "x"}},
            {**TEXT, "format": "byte"}, {**TEXT, "format": "odd"}, {"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}]  # fmt: skip
    spec = {"type": "object", "properties": {f"f{i}": copy.deepcopy(s) for i, s in enumerate(rng.sample(leaf, rng.randint(5, 9)))}, **rng.choice([{}, {"required": ["f0", "f1"]}, {"description": "what is wanted"}])}
    root: dict = {"type": "object", "properties": {"spec": spec}}
    root |= rng.choice([{}, {}, {"description": "A Widget."}, {"x-kubernetes-preserve-unknown-fields": True}, {"required": ["spec"]}, {"x-kubernetes-validations": [{"rule": "has(self.spec)"}]}])
    if rng.random() < 0.3:
        root["properties"]["metadata"] = {"type": "object", "properties": {"name": {**TEXT, "maxLength": 9}}}
    if rng.random() < 0.1:
        root = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    extra: dict = {}
    if rng.random() < 0.6:
        extra["subresources"] = rng.choice([{"status": {}}, {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}, {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}])
    if rng.random() < 0.3:
        extra["selectableFields"] = [{"jsonPath": ".spec.s"}]
        if "spec" in root.get("properties", {}):
            spec["properties"]["s"] = TEXT
        else:
            del extra["selectableFields"]
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}, **extra}
    o = several(ns, [version], scope=rng.choice(["Namespaced", "Namespaced", "Cluster"]))
    document = f"/openapi/v3/apis/{ns}.example/v1"
    at = widgets(ns, o["spec"]["scope"])
    return [post(DEFINITIONS, o), Step("GET", at, until=200), Step("GET", document, until=200), get(document), get(f"/apis/{ns}.example/v1"), get(f"/apis/{ns}.example")]


# -- names


@topic
def generated(rng: Rng, ns: str) -> list[Step]:
    """Names that the server makes, of every kind of name."""
    kinds: dict[str, tuple[str, dict]] = {
        "configmaps": (CORE + ns, {"apiVersion": "v1", "kind": "ConfigMap"}), "secrets": (CORE + ns, {"apiVersion": "v1", "kind": "Secret"}), "serviceaccounts": (CORE + ns, {"apiVersion": "v1", "kind": "ServiceAccount"}), "services": (CORE + ns, {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}),
        "pods": (CORE + ns, {"apiVersion": "v1", "kind": "Pod", "spec": {"schedulerName": "nobody", "containers": [container()]}}), "jobs": (f"/apis/batch/v1/namespaces/{ns}", {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}}),
        "cronjobs": (f"/apis/batch/v1/namespaces/{ns}", {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"suspend": True, "schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container()]}}}}}}), "roles": (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}),
        "deployments": (f"/apis/apps/v1/namespaces/{ns}", {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}}}), "leases": (f"/apis/coordination.k8s.io/v1/namespaces/{ns}", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
        "statefulsets": (f"/apis/apps/v1/namespaces/{ns}", {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"serviceName": "s", "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}}}), "limitranges": (CORE + ns, {"apiVersion": "v1", "kind": "LimitRange"}),
        "networkpolicies": (f"/apis/networking.k8s.io/v1/namespaces/{ns}", {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}}), "events": (CORE + ns, {"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": ns}}), "podtemplates": (CORE + ns, {"apiVersion": "v1", "kind": "PodTemplate", "template": {"spec": {"containers": [container()]}}}),
        "endpointslices": (f"/apis/discovery.k8s.io/v1/namespaces/{ns}", {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": []}), "controllerrevisions": (f"/apis/apps/v1/namespaces/{ns}", {"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {"a": 1}}),
    }  # fmt: skip
    prefixes = ["g-", "g", "G-", "g.", "a_b", "x" * 57, "x" * 63, "x" * 300, "-a", "", "a b", "ü-", "1", "a/b", "a--", "a.b-", "%", "x" * 52 + "-"]
    steps = []
    for _ in range(13):
        plural = rng.choice(list(kinds))
        base, body = kinds[plural]
        meta: dict = {"generateName": rng.choice(prefixes), **rng.choice([{}, {}, {}, {"name": ""}, {"name": "given"}, {"namespace": ns}, {"namespace": "other"}, {"labels": {"a": "b"}}, {"resourceVersion": "1"}])}
        roll, path = rng.random(), f"{base}/{plural}"
        if roll < 0.8:
            steps.append(post(path, {**copy.deepcopy(body), "metadata": meta}, rng.choice(["?dryRun=All", "", "", "?fieldManager=me"])))
        elif roll < 0.9:
            steps.append(put(f"{path}/given", {**copy.deepcopy(body), "metadata": meta}, "?dryRun=All"))
        else:
            steps.append(apply(f"{path}/given", {**copy.deepcopy(body), "metadata": meta}, "m", query="&dryRun=All"))
    return steps
