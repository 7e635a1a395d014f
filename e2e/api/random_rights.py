"""Roles, bindings and users made up by seed, and what each user asks (`test_rights_differential.py` puts it to two servers).

All requests are dry runs, so that none changes what the next may do, and all users share two namespaces.
"""

from __future__ import annotations

import json
import random
import urllib.parse
from dataclasses import dataclass, field

HERE, THERE = "rights-a", "rights-b"
RBAC = "rbac.authorization.k8s.io"
POLICIES = "admissionregistration.k8s.io"
# plural: group, version, namespaced, kind, body beside the metadata, subresources
KINDS: dict[str, tuple[str, str, bool, str, dict, list[str]]] = {
    "configmaps": ("", "v1", True, "ConfigMap", {"data": {"a": "b"}}, []),
    "secrets": ("", "v1", True, "Secret", {"type": "Opaque"}, []),
    "services": ("", "v1", True, "Service", {"spec": {"ports": [{"port": 80}]}}, ["status", "proxy"]),
    "serviceaccounts": ("", "v1", True, "ServiceAccount", {}, ["token"]),
    "pods": ("", "v1", True, "Pod", {"spec": {"containers": [{"name": "main", "image": "x"}]}},
             ["status", "log", "eviction", "binding", "ephemeralcontainers", "resize", "exec", "attach", "portforward", "proxy"]),
    "namespaces": ("", "v1", False, "Namespace", {}, ["status", "finalize"]),
    "nodes": ("", "v1", False, "Node", {}, ["status", "proxy"]),
    "jobs": ("batch", "v1", True, "Job", {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}}}, ["status"]),
    "leases": ("coordination.k8s.io", "v1", True, "Lease", {"spec": {}}, []),
    "roles": (RBAC, "v1", True, "Role", {}, []),
    "clusterroles": (RBAC, "v1", False, "ClusterRole", {}, []),
    "rolebindings": (RBAC, "v1", True, "RoleBinding", {}, []),
    "clusterrolebindings": (RBAC, "v1", False, "ClusterRoleBinding", {}, []),
    "customresourcedefinitions": ("apiextensions.k8s.io", "v1", False, "CustomResourceDefinition", {}, ["status"]),
    "validatingadmissionpolicies": (POLICIES, "v1", False, "ValidatingAdmissionPolicy", {}, ["status"]),
    "validatingadmissionpolicybindings": (POLICIES, "v1", False, "ValidatingAdmissionPolicyBinding", {}, []),
    "mutatingadmissionpolicies": (POLICIES, "v1", False, "MutatingAdmissionPolicy", {}, []),
    "mutatingadmissionpolicybindings": (POLICIES, "v1", False, "MutatingAdmissionPolicyBinding", {}, []),
}  # fmt: skip
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
NAMES = ["one", "two", "absent"]
URLS = ["/healthz", "/livez", "/metrics", "/version", "/api", "/apis", "/apis/batch", "/logs", "/foo", "/foo/bar", "/openapi/v2"]
EXTRA = "example.com/scope"
# what parameters of policies may be of; the last is of no kind that there is
PARAMETERS = [("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Namespace"), ("batch/v1", "Job"), ("example.com/v1", "Nothing")]


# of nodes: two that there are, the pods on them, and what these use
NODES, PODS, USED = ["node-a", "node-b"], ["pod-a", "pod-b", "absent"], ["of-a", "of-b", "one", "pod-a", "pod-b"]


@dataclass
class Request:
    """`as_account`: with the token of the scenario's service account, also where it impersonates another user; else as its user."""

    method: str
    path: str
    body: object = None
    headers: dict[str, object] = field(default_factory=dict)
    as_account: bool = False


@dataclass
class Scenario:
    user: str
    group: str
    account: str
    objects: list[tuple[str, dict]]
    requests: list[Request]


def collection(plural: str, namespace: str) -> str:
    group, version, namespaced, *_ = KINDS[plural]
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{base}/namespaces/{namespace}/{plural}" if namespaced else f"{base}/{plural}"


class Maker:
    def __init__(self, seed: str, number: int):
        self.rng = random.Random(f"{seed}/{number}")
        self.number = number = f"{seed}-{number}"
        self.user, self.group, self.account = f"user-{number}", f"group-{number}", f"account-{number}"
        self.roles: list[str] = []
        # what this user's rules and requests are about: few, so that they meet
        self.plurals = self.rng.sample(list(KINDS), 3)
        if self.rng.random() < 0.6:
            self.plurals[0] = self.rng.choice(["roles", "clusterroles", "rolebindings", "clusterrolebindings"])

    def some(self, of: list, most: int = 3) -> list:
        return self.rng.sample(of, self.rng.randint(1, min(most, len(of))))

    def rule(self) -> dict:
        rng = self.rng
        plural = rng.choice(self.plurals)
        group, *_, subresources = KINDS[plural]
        resources = [plural] if rng.random() < 0.6 else []
        resources += [f"{plural}/{s}" for s in subresources if rng.random() < 0.4]
        resources += rng.choice([[], [], [], ["*"], [f"{plural}/*"], ["*/status"], ["*/*"]])
        verbs = self.some(VERBS, 5) + rng.choice([[], [], [], ["*"], ["bind"], ["escalate"], ["bind", "escalate"]])
        rule = {"apiGroups": [rng.choice([group, group, group, group, "*", "other"])], "resources": resources or [plural], "verbs": verbs}
        if rng.random() < 0.3:
            rule["resourceNames"] = self.some([*NAMES, f"role-{self.number}-0"], 2)
        return rule

    def impersonation(self) -> dict:
        rng = self.rng
        what = rng.choice([["users"], ["groups"], ["serviceaccounts"], ["uids"], [f"userextras/{EXTRA}"], ["userextras"], ["users", "groups"], ["*"]])
        group = "authentication.k8s.io" if what[0] in ("uids", "userextras", f"userextras/{EXTRA}") else ""
        rule = {"apiGroups": [rng.choice([group, group, "*"])], "resources": what, "verbs": ["impersonate"]}
        if rng.random() < 0.4:
            rule["resourceNames"] = self.some(["alice", "bob", "dev", "system:masters", "one", "1234", "view", f"system:serviceaccount:{HERE}:one"])
        return rule

    def rules(self, cluster: bool) -> list[dict]:
        rng = self.rng
        rules = [self.rule() for _ in range(rng.choice([1, 1, 2, 3]))]
        if rng.random() < 0.4:
            rules.append(self.impersonation())
        if cluster and rng.random() < 0.4:
            rules.append({"nonResourceURLs": self.some([*URLS, "/foo/*", "/api*", "*", "/*"]), "verbs": self.some(["get", "post", "*", "head", "delete"], 2)})
        return rules

    def objects(self) -> list[tuple[str, dict]]:
        rng, n = self.rng, self.number
        out = [(collection("serviceaccounts", HERE), {"metadata": {"name": self.account}})]
        subjects = [{"kind": "User", "name": self.user, "apiGroup": RBAC}, {"kind": "Group", "name": self.group, "apiGroup": RBAC},
                    {"kind": "ServiceAccount", "name": self.account, "namespace": HERE}]  # fmt: skip
        for k in range(rng.choice([1, 2, 3])):
            name, cluster = f"role-{n}-{k}", rng.random() < 0.6
            self.roles.append(name)
            namespace = rng.choice([HERE, HERE, THERE])
            role = {"metadata": {"name": name}, "rules": self.rules(cluster)}
            if cluster and rng.random() < 0.15:
                role = {"metadata": {"name": name}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"for": name}}]}}
                out.append((collection("clusterroles", ""), {"metadata": {"name": f"{name}-part", "labels": {"for": name}}, "rules": self.rules(True)}))
            out.append((collection("clusterroles" if cluster else "roles", namespace), role))
            binding = {"metadata": {"name": name}, "subjects": [*self.some(subjects, 2), subjects[2]],
                       "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole" if cluster else "Role", "name": name}}  # fmt: skip
            everywhere = cluster and rng.random() < 0.6
            out.append((collection("clusterrolebindings" if everywhere else "rolebindings", namespace), binding))
        return out

    def body(self, plural: str, name: str, namespace: str) -> dict:
        rng = self.rng
        group, version, namespaced, kind, rest, _ = KINDS[plural]
        body = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind, "metadata": {"name": name}, **rest}
        if namespaced:
            body["metadata"]["namespace"] = namespace
        if plural in ("roles", "clusterroles"):
            body["rules"] = self.rules(plural == "clusterroles") if rng.random() < 0.8 else []
            if plural == "clusterroles" and rng.random() < 0.2:
                body["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {"for": rng.choice(["me", self.roles[0]])}}]}
        if group == POLICIES:
            body["spec"] = self.policy(plural) if plural.endswith("policies") else self.policy_binding(plural)
        elif plural.endswith("bindings"):
            role = rng.choice([*self.roles, "view", "cluster-admin", "absent", "one"])
            body["roleRef"] = {"apiGroup": RBAC, "kind": rng.choice(["ClusterRole", "ClusterRole", "Role"]) if namespaced else "ClusterRole", "name": role}
            body["subjects"] = [{"kind": "User", "name": self.user, "apiGroup": RBAC}]
        if plural == "customresourcedefinitions":
            body["metadata"]["name"] = f"{name}s.example.com"
            body["spec"] = {"group": "example.com", "scope": "Namespaced", "names": {"plural": f"{name}s", "kind": name.title()},
                            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}  # fmt: skip
        return body

    def policy(self, plural: str) -> dict:
        """A policy's spec; it matches nothing that there is."""
        api_version, kind = self.rng.choice(PARAMETERS)
        spec = policy_spec(plural)
        if self.rng.random() < 0.8:
            spec["paramKind"] = {"apiVersion": api_version, "kind": kind}
        return spec

    def policy_binding(self, plural: str) -> dict:
        rng = self.rng
        spec: dict = {"policyName": rng.choice(["one", "one", "two", "absent"])}
        if plural.startswith("validating"):
            spec["validationActions"] = ["Deny"]
        if rng.random() < 0.85:
            which = {"name": rng.choice(NAMES)} if rng.random() < 0.6 else {"selector": {}}
            spec["paramRef"] = {**which, "parameterNotFoundAction": "Deny", **({"namespace": rng.choice([HERE, THERE])} if rng.random() < 0.7 else {})}
        return spec

    def request(self) -> Request:
        rng = self.rng
        roll = rng.random()
        if roll < 0.1:
            return Request(rng.choice(["GET", "GET", "GET", "POST", "DELETE"]), rng.choice(URLS))
        if roll < 0.2:
            return self.review()
        if roll < 0.4:
            return self.impersonated()
        plural = rng.choice([*self.plurals, *self.plurals, rng.choice(list(KINDS))])
        *_, subresources = KINDS[plural]
        namespace = rng.choice([HERE, HERE, HERE, THERE])
        base, name = collection(plural, namespace), rng.choice([*NAMES, "one", "one"])
        if plural == "customresourcedefinitions":
            name = f"{name}s.example.com"
        if subresources and rng.random() < 0.45:
            return self.subresource(f"{base}/{name}", plural, rng.choice(subresources), name, namespace)
        selector = rng.choice(["", "", f"&fieldSelector=metadata.name%3D{name}", "&fieldSelector=metadata.name!%3Done"])
        body = self.body(plural, name.removesuffix("s.example.com"), namespace)
        way = rng.choice(["get", "list", "watch", "create", "create", "update", "update", "patch", "apply", "apply", "json", "delete", "deletecollection"])
        dry = "?dryRun=All"
        if way == "list":
            every = base.replace(f"/namespaces/{namespace}/", "/") if rng.random() < 0.2 else base
            return Request("GET", f"{every}?limit=1{selector}")
        patched = {k: v for k, v in body.items() if k in ("metadata", "rules", "aggregationRule")}
        return {
            "get": lambda: Request("GET", f"{base}/{name}"),
            # refused once it is allowed, so that nobody waits
            "watch": lambda: Request("GET", f"{base}?watch=1&resourceVersion=1x{selector}"),
            "create": lambda: Request("POST", base + dry, body),
            "update": lambda: Request("PUT", f"{base}/{name}{dry}", body),
            "patch": lambda: Request("PATCH", f"{base}/{name}{dry}", patched, {"Content-Type": "application/merge-patch+json"}),
            "apply": lambda: Request("PATCH", f"{base}/{name}{dry}&fieldManager=me&force=true", body, {"Content-Type": "application/apply-patch+yaml"}),
            "json": lambda: Request("PATCH", f"{base}/{name}{dry}", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
                *([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]}] if rng.random() < 0.5 else [])],
                {"Content-Type": "application/json-patch+json"}),
            "delete": lambda: Request("DELETE", f"{base}/{name}{dry}"),
            "deletecollection": lambda: Request("DELETE", f"{base}{dry}{selector}"),
        }[way]()  # fmt: skip

    def subresource(self, one: str, plural: str, subresource: str, name: str, namespace: str) -> Request:
        dry, merge = "?dryRun=All", {"Content-Type": "application/merge-patch+json"}
        path = f"{one}/{subresource}"
        if subresource == "token":
            return Request("POST", path + dry, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}})
        if subresource in ("exec", "attach", "portforward", "proxy"):
            # there is no container, so only whether it is allowed is compared
            return Request(self.rng.choice(["GET", "POST"]), path + ("/" if subresource == "proxy" else "?command=x&stdout=1"))
        if subresource == "log":
            return Request("GET", path)
        if subresource == "eviction":
            return Request("POST", path + dry, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}})
        if subresource == "binding":
            return Request("POST", path + dry, {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": "nowhere"}})
        if subresource == "finalize":
            return Request("PUT", path + dry, self.body(plural, name, namespace))
        if self.rng.random() < 0.3:
            return Request("GET", path)
        return Request("PATCH", path + dry, {"metadata": {"labels": {"a": "b"}}}, merge)

    def review(self) -> Request:
        rng = self.rng
        kind = rng.choice(["SelfSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview", "SubjectAccessReview"])
        group = "authentication" if kind == "SelfSubjectReview" else "authorization"
        plural = rng.choice(self.plurals)
        about = {"namespace": rng.choice([HERE, THERE, ""]), "verb": rng.choice([*VERBS, "*", "impersonate", "bind"]), "group": rng.choice([KINDS[plural][0], "*"]),
                 "resource": rng.choice([plural, plural, "*", "users"]), "subresource": rng.choice(["", "", "status", "*"]), "name": rng.choice(["", "one", "two"])}  # fmt: skip
        spec: dict = {"resourceAttributes": {k: v for k, v in about.items() if v}}
        if rng.random() < 0.2:
            spec = {"nonResourceAttributes": {"path": rng.choice(URLS), "verb": rng.choice(["get", "post", "*"])}}
        if kind == "SelfSubjectRulesReview":
            spec = {"namespace": rng.choice([HERE, THERE])}
        if kind == "SubjectAccessReview":
            spec["user"] = "alice"
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, **({} if kind == "SelfSubjectReview" else {"spec": spec})}
        return Request("POST", f"/apis/{group}.k8s.io/v1/{kind.lower()}s", body, as_account=rng.random() < 0.3)

    def impersonated(self) -> Request:
        rng = self.rng
        headers: dict[str, object] = {}
        if rng.random() < 0.95:
            headers["Impersonate-User"] = rng.choice(["alice", "bob", f"system:serviceaccount:{HERE}:one", f"system:serviceaccount:{THERE}:two", "system:anonymous",
                                                      f"system:serviceaccount:{HERE}", "system:node:one", f"system:serviceaccount:{HERE}:one:x"])  # fmt: skip
        if rng.random() < 0.4:
            headers["Impersonate-Group"] = self.some(["dev", "system:masters", "system:authenticated", "system:unauthenticated", "system:nodes"], 2)
        if rng.random() < 0.2:
            headers["Impersonate-Uid"] = rng.choice(["1234", "5"])
        if rng.random() < 0.2:
            headers["Impersonate-Extra-" + rng.choice([EXTRA.replace("/", "%2F"), EXTRA.replace("/", "%2f").upper(), "scopes"])] = rng.choice(["view", ["view", "edit"]])
        if rng.random() < 0.5:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            return Request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body, headers, as_account=True)
        return Request("GET", f"{collection(rng.choice(self.plurals), HERE)}?limit=1", None, headers, as_account=True)


def make(seed: str, number: int, requests: int = 25) -> Scenario:
    maker = Maker(seed, number)
    objects = maker.objects()
    return Scenario(maker.user, maker.group, maker.account, objects, [maker.request() for _ in range(requests)])


class NodeMaker:
    """What the agent of a node asks, with the groups that its user has: about its own Node and pods, others', and what they use."""

    def __init__(self, seed: str, number: int):
        self.rng = random.Random(f"{seed}/node/{number}")
        self.node = self.rng.choice([*NODES, "node-x"])

    def scenario(self, requests: int) -> Scenario:
        user, group = f"system:node:{self.node}", "system:nodes"
        return Scenario(user, group, "", [], [self.request() for _ in range(requests)])

    def request(self) -> Request:
        return self.rng.choice([self.read, self.read, self.read_of_all, self.change_node, self.change_node, self.change_pod, self.lease, self.token, self.other])()

    def read(self) -> Request:
        rng = self.rng
        base = collection(rng.choice(["secrets", "configmaps", "secrets", "configmaps", "pods", "services", "serviceaccounts"]), rng.choice([HERE, HERE, THERE]))
        if rng.random() < 0.4:
            return Request("GET", f"{base}/{rng.choice(USED)}")
        return Request("GET", base + self.query())

    def read_of_all(self) -> Request:
        return Request("GET", f"/api/v1/{self.rng.choice(['secrets', 'configmaps', 'pods', 'nodes', 'nodes', 'services'])}{self.query()}")

    def query(self) -> str:
        rng = self.rng
        name = rng.choice([*USED, *NODES])
        term = lambda: rng.choice([f"metadata.name={name}", f"metadata.name=={name}", f"metadata.name!={name}", f"spec.nodeName={self.node}", f"spec.nodeName={rng.choice(NODES)}",
                                   f"spec.nodeName!={self.node}", f"metadata.name!=x\\,metadata.name={name}", f"metadata.name!=x\\,spec.nodeName={self.node}"])  # fmt: skip
        selector = ",".join(term() for _ in range(rng.choice([0, 1, 1, 1, 2])))
        watch = "&watch=1&resourceVersion=1x" if rng.random() < 0.3 else ""
        return f"?limit=1{watch}" + (f"&fieldSelector={urllib.parse.quote(selector)}" if selector else "")

    def patch(self, path: str, change: dict) -> Request:
        return Request("PATCH", f"{path}?dryRun=All", change, {"Content-Type": "application/merge-patch+json"})

    def change_node(self) -> Request:
        rng = self.rng
        name = rng.choice([self.node, self.node, self.node, rng.choice(NODES)])
        if rng.random() < 0.1:
            return Request(rng.choice(["GET", "DELETE"]), f"/api/v1/nodes/{name}" + ("/proxy/" if rng.random() < 0.3 else "?dryRun=All"))
        label = rng.choice(["mine", "kubernetes.io/os", "kubernetes.io/x", "node-role.kubernetes.io/control-plane", "node.kubernetes.io/x", "kubelet.kubernetes.io/x",
                            "x.node-restriction.kubernetes.io/y", "topology.kubernetes.io/zone", "a.k8s.io/b", "node.kubernetes.io/instance-type", "kept.kubernetes.io/x"])  # fmt: skip
        owner = {"apiVersion": "v1", "kind": "Node", "name": "node-b", "uid": "u"}
        change: dict = rng.choice([
            {"metadata": {"labels": {label: rng.choice(["x", "y", None])}}},
            {"metadata": {"labels": {label: "x"}}},
            {"metadata": {"annotations": {"a": "b"}, "finalizers": ["example.com/x"]}},
            {"metadata": {"ownerReferences": rng.choice([[owner], []])}},
            {"spec": {"taints": rng.choice([[{"key": "k", "effect": "NoSchedule"}], [], None])}},
            {"spec": {"unschedulable": True}},
            {"status": {"capacity": {"cpu": "3"}}},
        ])  # fmt: skip
        if rng.random() < 0.15:
            meta = {"name": name, **{k: v for k, v in change.get("metadata", {}).items() if k == "labels" and None not in v.values()}}
            return Request("POST", "/api/v1/nodes?dryRun=All", {"apiVersion": "v1", "kind": "Node", "metadata": {**meta, "name": rng.choice([self.node, name, "node-y"])}})
        return self.patch(f"/api/v1/nodes/{name}{rng.choice(['', '/status', '/status'])}", change)

    def change_pod(self) -> Request:
        rng = self.rng
        path = f"{collection('pods', HERE)}/{rng.choice(PODS)}"
        if rng.random() < 0.2:
            return Request("DELETE", f"{path}?dryRun=All")
        if rng.random() < 0.2:
            return Request(rng.choice(["GET", "POST"]), f"{path}/{rng.choice(['exec?command=x&stdout=1', 'log', 'attach?stdout=1', 'portforward', 'binding', 'ephemeralcontainers'])}", {})
        change = rng.choice([{"metadata": {"labels": {"a": "b"}}}, {"status": {"phase": "Running"}}, {"metadata": {"annotations": {"a": "b"}}},
                             {"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "b"}]}}])  # fmt: skip
        return self.patch(f"{path}{rng.choice(['/status', '/status', '/status', '', '/resize'])}", change)

    def lease(self) -> Request:
        rng = self.rng
        base = f"/apis/coordination.k8s.io/v1/namespaces/{rng.choice(['kube-node-lease', 'kube-node-lease', HERE])}/leases"
        name = rng.choice([self.node, *NODES])
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": {"leaseDurationSeconds": 40}}
        return rng.choice([Request("POST", f"{base}?dryRun=All", body), Request("GET", f"{base}/{name}"), Request("GET", f"{base}?limit=1"),
                           self.patch(f"{base}/{name}", {"spec": {"leaseDurationSeconds": 41}}), Request("DELETE", f"{base}/{name}?dryRun=All")])  # fmt: skip

    def token(self) -> Request:
        rng = self.rng
        spec: dict = {"expirationSeconds": 600}
        if rng.random() < 0.7:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": rng.choice(["Pod", "Pod", "Secret"]), "name": rng.choice(PODS), "uid": "0"}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return Request("POST", f"{collection('serviceaccounts', HERE)}/{rng.choice(['one', 'two', 'default'])}/token?dryRun=All", body)

    def other(self) -> Request:
        rng = self.rng
        plural = rng.choice([plural for plural in KINDS if plural not in ("nodes", "leases", "pods")])
        name = f"{'one'}{'s.example.com' if plural == 'customresourcedefinitions' else ''}"
        base = collection(plural, HERE)
        return Request(*rng.choice([("GET", f"{base}?limit=1"), ("GET", f"{base}/{name}"), ("DELETE", f"{base}/{name}?dryRun=All"), ("DELETE", f"{base}?dryRun=All")]))


def make_node(seed: str, number: int, requests: int = 25) -> Scenario:
    return NodeMaker(seed, number).scenario(requests)


def machines() -> list[tuple[str, dict]]:
    """Nodes, and pods on them with what they use, whose names both namespaces have."""
    out: list[tuple[str, dict]] = []
    for name in NODES:
        out.append(("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "kept.kubernetes.io/x": "x"}}}))
    for namespace in (HERE, THERE):
        out += [(collection(plural, namespace), {"metadata": {"name": name}}) for plural in ("secrets", "configmaps") for name in ("of-a", "of-b")]
    for name, node, used in (("pod-a", "node-a", "of-a"), ("pod-b", "node-b", "of-b")):
        volumes = [{"name": "s", "secret": {"secretName": used}}, {"name": "m", "configMap": {"name": used}}]
        spec = {"nodeName": node, "serviceAccountName": "one", "containers": [{"name": "main", "image": "x"}], "volumes": volumes}
        out.append((collection("pods", HERE), {"metadata": {"name": name}, "spec": spec}))
    return out


def policy_spec(plural: str) -> dict:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}
    spec: dict = {"matchConstraints": {"resourceRules": [rule]}}
    if plural.startswith("validating"):
        return {**spec, "validations": [{"expression": "true"}]}
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
    return {**spec, "reinvocationPolicy": "Never", "mutations": [change]}


def everybodys() -> list[tuple[str, dict]]:
    """What is there to ask for, in both namespaces."""
    out: list[tuple[str, dict]] = [("/api/v1/namespaces", {"metadata": {"name": name}}) for name in (HERE, THERE)]
    for namespace in (HERE, THERE):
        for plural in ("configmaps", "secrets", "services", "serviceaccounts", "leases"):
            out += [(collection(plural, namespace), {"metadata": {"name": name}, **json.loads(json.dumps(KINDS[plural][4]))}) for name in ("one", "two")]
        out.append((collection("roles", namespace), {"metadata": {"name": "one"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}))
    for plural in ("validatingadmissionpolicies", "mutatingadmissionpolicies"):
        for name, (api_version, kind) in zip(("one", "two"), PARAMETERS, strict=False):
            out.append((collection(plural, ""), {"metadata": {"name": name}, "spec": {**policy_spec(plural), "paramKind": {"apiVersion": api_version, "kind": kind}}}))
        actions = {"validationActions": ["Deny"]} if plural.startswith("validating") else {}
        out.append((collection(plural.replace("policies", "policybindings"), ""), {"metadata": {"name": "one"}, "spec": {"policyName": "one", **actions}}))
    return out
