"""More topics of `random_topics.py`: policies that change objects, what their expressions make, and in what order they run."""

from __future__ import annotations

import copy

from random_api import TABLE, Step
from random_topics import CORE, Rng, apply, config_map, container, delete, get, patch, pod, post, put, topic

BASE = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = BASE + "/mutatingadmissionpolicies", BASE + "/mutatingadmissionpolicybindings"

APPLIED = [
    'Object{metadata: Object.metadata{labels: {"set": "by-policy"}}}', 'Object{data: {"added": "1", "k": "changed"}}', 'Object{metadata: Object.metadata{annotations: {"n": string(int(object.metadata.?annotations["n"].orValue("0")) + 1)}}}',
    'has(object.data) && "k" in object.data ? Object{data: {"copy": object.data.k}} : Object{}', 'Object{metadata: Object.metadata{labels: {"a": 1}}}', 'Object{spec: Object.wrong{x: 1}}', 'Object{nope: "x"}', 'Object{data: {"x": object.data.absent}}',
    'Object{metadata: Object.metadata{?labels: object.metadata.?labels, annotations: {"did": request.operation}}}', 'Object{metadata: Object.metadata{finalizers: ["example.com/f"]}}', 'Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{apiVersion: "v1", kind: "X", name: "x", uid: "u"}]}}',
    'Object{immutable: true}', 'Object{metadata: Object.metadata{name: "renamed"}}', 'Object{data: {"v": variables.v}}', 'Object{data: {"v": variables.broken}}', 'Object{kind: "Secret"}',
]  # fmt: skip
PATCHED = [
    '[JSONPatch{op: "add", path: "/data/" + jsonpatch.escapeKey("added"), value: "1"}]', '[JSONPatch{op: "test", path: "/data/k", value: "v"}, JSONPatch{op: "replace", path: "/data/k", value: "w"}]', '[JSONPatch{op: "remove", path: "/data/k"}]', '[JSONPatch{op: "copy", from: "/data/k", path: "/data/copy"}]',
    '[JSONPatch{op: "move", from: "/data/k", path: "/data/moved"}]', '[JSONPatch{op: "add", path: "/metadata/labels", value: Object.metadata.labels{a: "b"}}]', '[JSONPatch{op: "add", path: "/metadata/annotations", value: {"x/y": "z"}}]', '[JSONPatch{op: "add", path: "/nope", value: "x"}]', '[JSONPatch{op: "add", path: "/data/x", value: 5}]',
    '[JSONPatch{op: "odd", path: "/data"}]', '[JSONPatch{op: "add", path: "/absent/x", value: "y"}]', 'has(object.data) ? [JSONPatch{op: "replace", path: "/data", value: {"only": "this"}}] : [JSONPatch{op: "add", path: "/data", value: {}}]', '[JSONPatch{op: "add", path: "/data/n", value: string(int(object.data.?n.orValue("0")) + 1)}]',
    '[JSONPatch{op: "add", path: "/metadata/finalizers", value: ["example.com/g"]}]', '[JSONPatch{op: "replace", path: "/metadata/name", value: "renamed"}]', '[JSONPatch{op: "add", path: "/data/v", value: variables.v}]', '[JSONPatch{op: "remove", path: "/metadata/managedFields"}]', '[JSONPatch{op: "test", path: "", value: 1}]',
]  # fmt: skip
IN_PODS = [
    'Object{spec: Object.spec{containers: [Object.spec.containers{name: "side", image: "s"}]}}', 'Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: "E", value: "1"}]})}}', 'Object{spec: Object.spec{nodeSelector: {"a": "b"}}}',
    'Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: "k"}]}}', 'Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "init", image: "i", restartPolicy: "Always"}]}}', 'Object{spec: Object.spec{priorityClassName: "system-node-critical"}}', 'Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsUser: 7}}}',
    'Object{spec: Object.spec{containers: [Object.spec.containers{image: "s"}]}}', 'Object{spec: Object.spec{containers: [Object.spec.containers{name: "main", ports: [Object.spec.containers.ports{containerPort: 80}]}]}}',
]  # fmt: skip
FAULTY = [
    {"mutations": []}, {"mutations": [{"patchType": "Odd"}]}, {"mutations": [{}]}, {"mutations": [{"patchType": "JSONPatch"}]}, {"mutations": [{"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}}]}, {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": " "}}]}, {"reinvocationPolicy": "Odd"}, {"reinvocationPolicy": None}, {"failurePolicy": "Odd"},
    {"matchConstraints": None}, {"matchConstraints": {"resourceRules": []}}, {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]}}, {"variables": [{"name": "x", "expression": "Object{}"}]}, {"matchConditions": [{"name": "a", "expression": "1"}]},
    {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}, "applyConfiguration": {"expression": "Object{}"}}]},
]  # fmt: skip
EXPRESSIONS = [
    "object", "Object{}.x", "Foo{a: 1}", "Object.spec{}", 'Object{a: unknown}', "Object{a: 1, a: 2}", "true ? Object{} : Object.x{}", "[Object{}][0]", "variables.nope", "params.x", "Object{?a: 1}", "Object{?a: optional.of(1)}", 'Object{a: "x".matches("(")}', "Object{a: [1, 'x']}", "[]", "[object]", "[JSONPatch{}]", '[JSONPatch{op: 1}]', '[JSONPatch{odd: "x"}]',
    '[JSONPatch{op: "add"}, {"a": "b"}]', "[1, 2].map(i, JSONPatch{op: string(i)})", "JSONPatch{}", '[{"op": "add"}]', "has(object.x) ? [JSONPatch{}] : []", '[JSONPatch{op: "a"}.op]', "jsonpatch.escapeKey('a')", "[JSONPatch{path: jsonpatch.escapeKey(1)}]", '[JSONPatch{value: Object.x{}}]', '[JSONPatch{op: object.x}]', "type(Object{}) == Object ? Object{} : Object{}", "dyn(Object{})",
]  # fmt: skip


def mutation(kind: str, expression: str) -> dict:
    return {"patchType": kind, kind[0].lower() + kind[1:] if kind != "JSONPatch" else "jsonPatch": {"expression": expression}}


@topic
def mutating_policies(rng: Rng, ns: str) -> list[Step]:
    """Mutating admission policies with bindings, parameters, variables and conditions, and requests that meet them."""
    maps, pods = CORE + ns + "/configmaps", CORE + ns + "/pods"
    here = {"matchLabels": {"kubernetes.io/metadata.name": ns}}
    meta = lambda kind, name: {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": f"{ns}-{name}"}}
    in_pods = rng.random() < 0.3
    rules = [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": rng.choice([["CREATE", "UPDATE"], ["*"], ["CREATE"], ["UPDATE"]]),
            "resources": ["pods"] if in_pods else rng.choice([["configmaps"], ["*"]]),
            **rng.choice([{}, {"scope": "Namespaced"}]),
        }
    ]
    constraints = {
        "namespaceSelector": here,
        "resourceRules": rules,
        **rng.choice(
            [
                {},
                {},
                {},
                {"objectSelector": {"matchLabels": {"app": "one"}}},
                {
                    "excludeResourceRules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"], "resourceNames": ["free"]}
                    ]
                },
            ]
        ),
    }

    def made() -> dict:
        kind = rng.choice(["ApplyConfiguration", "JSONPatch"])
        if in_pods:
            return mutation("ApplyConfiguration", rng.choice(IN_PODS))
        return mutation(kind, rng.choice(APPLIED if kind == "ApplyConfiguration" else PATCHED))

    spec: dict = {"matchConstraints": constraints, "reinvocationPolicy": rng.choice(["Never", "IfNeeded"]), "mutations": [made() for _ in range(rng.randint(1, 2))], **rng.choice([{}, {}, {"failurePolicy": "Ignore"}]),
                  "variables": [{"name": "v", "expression": "object.metadata.name + '!'"}, {"name": "broken", "expression": "object.data['absent'] + 'x'"}]}  # fmt: skip
    takes = rng.random() < 0.35
    binding: dict = {"policyName": f"{ns}-p"}
    if takes:
        # upstream may miss parameters for a while, which shows only where it then refuses
        spec |= {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "failurePolicy": "Fail"}
        spec["mutations"].append(
            mutation(
                "ApplyConfiguration",
                rng.choice(
                    [
                        'Object{data: {"max": params.data.max}}',
                        'Object{data: {"p": string(params == null)}}',
                        'Object{metadata: Object.metadata{labels: {"from": params.metadata.name}}}',
                    ]
                ),
            )
        )
        binding["paramRef"] = rng.choice(
            [
                {"name": "limits", "namespace": ns, "parameterNotFoundAction": "Deny"},
                {"name": "limits", "parameterNotFoundAction": "Deny"},
                {"name": "absent", "namespace": ns, "parameterNotFoundAction": rng.choice(["Deny", "Allow"])},
                {"selector": {"matchLabels": {"set": ns}}, "parameterNotFoundAction": "Deny"},
            ]
        )
    if rng.random() < 0.3:
        spec["matchConditions"] = [
            {
                "name": "c",
                "expression": rng.choice(["request.name != 'a'", "has(object.metadata.labels)", "object.data.k == 'v'", "request.userInfo.username != 'jane'"]),
            }
        ]
    if rng.random() < 0.25:
        binding["matchResources"] = rng.choice(
            [
                {"objectSelector": {"matchLabels": {"app": "one"}}},
                {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps", "pods"]}]},
                {"namespaceSelector": {"matchLabels": {"x": "y"}}},
            ]
        )
    # the last that becomes known: it refuses all
    only: dict = {
        "matchConstraints": {
            "namespaceSelector": here,
            "resourceRules": [{"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["leases"]}],
        },
        "reinvocationPolicy": "Never",
        "mutations": [mutation("JSONPatch", '[JSONPatch{op: "odd"}]')],
    }
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "canary"}}
    steps = [
        post(maps, config_map("limits", {"max": "3"}, labels={"set": ns})), post(maps, config_map("a", {"k": "v", "n": "1"}, labels={"app": "one"})), post(maps, config_map("free", {"k": "w"})),
        post(POLICIES, {**meta("MutatingAdmissionPolicy", "p"), "spec": spec}), post(BINDINGS, {**meta("MutatingAdmissionPolicyBinding", "p"), "spec": binding}),
        post(POLICIES, {**meta("MutatingAdmissionPolicy", "z"), "spec": only}), post(BINDINGS, {**meta("MutatingAdmissionPolicyBinding", "z"), "spec": {"policyName": f"{ns}-z"}}),
        Step("POST", f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases?dryRun=All", lease, until=403),
    ]  # fmt: skip
    labels = lambda: rng.choice([{}, {"labels": {"app": "one"}}, {"labels": {"app": "two", "x": "y"}}])
    data = lambda: rng.choice([{"k": "v"}, {"k": "v", "n": "7"}, {"k": "other"}, {"n": "2"}, {}, None])
    asked = []
    for i in range(7):
        roll = rng.random()
        if in_pods and roll < 0.7:
            asked.append(
                post(
                    pods,
                    pod(
                        f"p{i}",
                        containers=[
                            container(
                                **rng.choice(
                                    [
                                        {},
                                        {"env": [{"name": "E", "value": "0"}, {"name": "F", "value": "2"}]},
                                        {"ports": [{"containerPort": 80, "name": "http"}]},
                                    ]
                                )
                            )
                        ],
                    ),
                    rng.choice(["", "?dryRun=All"]),
                )
            )
        elif roll < 0.4:
            asked.append(post(maps, config_map(rng.choice([f"m{i}", "b"]), data(), **labels()), rng.choice(["", "?dryRun=All", "?fieldManager=me"])))
        elif roll < 0.6:
            asked.append(patch(maps + "/a", rng.choice(["merge", "strategic"]), {"data": data()}))
        elif roll < 0.7:
            asked.append(put(maps + rng.choice(["/a", "/free"]), config_map("a", data(), **labels())))
        elif roll < 0.9:
            asked.append(apply(maps + rng.choice(["/a", "/new"]), config_map(rng.choice(["a", "new"]), data()), "m", True))
        else:
            asked.append(Step("POST", maps, config_map(f"u{i}", data()), {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}))
    faulty = {**meta("MutatingAdmissionPolicy", "w"), "spec": {**copy.deepcopy(spec), **rng.choice(FAULTY)}}
    odd = {
        **meta("MutatingAdmissionPolicy", "w"),
        "spec": {**copy.deepcopy(spec), "mutations": [mutation(rng.choice(["ApplyConfiguration", "JSONPatch"]), rng.choice(EXPRESSIONS)) for _ in range(3)]},
    }
    other = {
        **meta("MutatingAdmissionPolicyBinding", "w"),
        "spec": {
            **copy.deepcopy(binding),
            **rng.choice(
                [
                    {"policyName": ""},
                    {"policyName": "A B"},
                    {"paramRef": {}},
                    {"paramRef": {"name": "a"}},
                    {"matchResources": {"matchPolicy": "Odd"}},
                    {"matchResources": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]}},
                ]
            ),
        },
    }
    reserved = {**meta("MutatingAdmissionPolicy", "w.static.k8s.io"), "spec": spec}
    return [*steps, *asked, post(POLICIES, faulty, "?dryRun=All"), post(POLICIES, odd, "?dryRun=All"), post(BINDINGS, other, "?dryRun=All"), post(POLICIES, reserved, "?dryRun=All"),
            patch(f"{POLICIES}/{ns}-p", "merge", {"spec": {"reinvocationPolicy": "Never"}}), get(f"{POLICIES}?fieldSelector=metadata.name%3D{ns}-p", TABLE), get(f"{BINDINGS}?fieldSelector=metadata.name%3D{ns}-p", TABLE),
            delete(f"{BINDINGS}/{ns}-p"), delete(f"{POLICIES}/{ns}-p")]  # fmt: skip
