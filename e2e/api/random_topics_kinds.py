"""More topics of `random_topics.py`: what single kinds are known for (services and their addresses, secrets by type, roles, jobs that
change, claims and volumes, nodes), their tables, status and scale, and the documents in which a server describes its kinds.
"""

from __future__ import annotations

import copy
import json

from random_api import OBJECTS, PARTIAL, TABLE, Step
from random_topics import CORE, Rng, apply, config_map, container, crd, delete, get, patch, post, put, some, topic, widget, widgets
from random_topics_beside import DEFINITIONS, INT, TEXT


@topic
def services(rng: Rng, ns: str) -> list[Step]:
    """Services: types and what goes with them, addresses, families, ports, changes from one to the other."""
    path = f"{CORE}{ns}/services"
    service = lambda name, **spec: {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
    parts = [
        {"type": "ClusterIP"}, {"type": "NodePort"}, {"type": "LoadBalancer"}, {"type": "ExternalName", "externalName": "example.com"}, {"type": "ExternalName"}, {"type": "ExternalName", "externalName": "Bad_Name"}, {"type": "Odd"}, {"clusterIP": "None"}, {"clusterIP": "None", "type": "NodePort"}, {"clusterIP": "10.0.0.1"},
        {"clusterIP": "bad"}, {"clusterIPs": ["None"]}, {"clusterIPs": ["None", "10.96.0.5"], "clusterIP": "None"}, {"clusterIP": "None", "clusterIPs": ["10.96.0.5"]}, {"ipFamilies": ["IPv6"]}, {"ipFamilies": ["IPv4", "IPv6"]}, {"ipFamilies": ["IPv4", "IPv4"]}, {"ipFamilies": ["Odd"]}, {"ipFamilyPolicy": "RequireDualStack"},
        {"ipFamilyPolicy": "PreferDualStack"}, {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}, {"ipFamilyPolicy": "Odd"}, {"ipFamilies": ["IPv6"], "clusterIP": "None"}, {"ipFamilyPolicy": "RequireDualStack", "clusterIP": "None", "selector": {"a": "b"}}, {"ipFamilyPolicy": "RequireDualStack", "clusterIP": "None"},
        {"ports": []}, {"ports": [{"port": 0}]}, {"ports": [{"port": 80}, {"port": 81}]}, {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}, {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}, {"ports": [{"port": 80, "protocol": "ICMP"}]}, {"ports": [{"port": 80, "targetPort": "Bad_"}]}, {"ports": [{"port": 80, "targetPort": 0}]},
        {"ports": [{"port": 80, "targetPort": "web"}]}, {"ports": [{"port": 80, "nodePort": 30000}]}, {"type": "NodePort", "ports": [{"port": 80, "nodePort": 5}]}, {"ports": [{"port": 80, "appProtocol": "Bad value"}]}, {"ports": [{"port": 80, "appProtocol": "example.com/h2"}]}, {"sessionAffinity": "ClientIP"}, {"sessionAffinity": "Odd"},
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}, {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}, {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}, {"externalTrafficPolicy": "Local"}, {"type": "NodePort", "externalTrafficPolicy": "Local"},
        {"type": "LoadBalancer", "externalTrafficPolicy": "Odd"}, {"internalTrafficPolicy": "Local"}, {"internalTrafficPolicy": "Odd"}, {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}, {"type": "LoadBalancer", "loadBalancerSourceRanges": ["bad"]}, {"loadBalancerSourceRanges": ["10.0.0.0/8"]}, {"loadBalancerIP": "1.2.3.4"},
        {"loadBalancerClass": "example.com/x"}, {"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}, {"type": "LoadBalancer", "loadBalancerClass": "Bad class"}, {"allocateLoadBalancerNodePorts": False}, {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, {"healthCheckNodePort": 30001}, {"externalIPs": ["1.2.3.4"]}, {"externalIPs": ["bad", "127.0.0.1"]},
        {"selector": {"a b": "c"}}, {"publishNotReadyAddresses": True}, {"trafficDistribution": "PreferClose"}, {"trafficDistribution": "Odd"}, {"selector": None}, {"externalName": "example.com"}, {"type": "LoadBalancer", "healthCheckNodePort": 30002}, {"trafficDistribution": "PreferSameNode"}, {"ipFamilyPolicy": "SingleStack", "clusterIPs": ["None"]},
    ]  # fmt: skip
    steps: list[Step] = []
    dry = "?dryRun=All"
    for i in range(6):
        spec: dict = {}
        for part in rng.sample(parts, rng.choice([1, 1, 2])):
            spec |= copy.deepcopy(part)
        steps.append(post(path, service(f"s{i}", **spec), dry))
    steps.append(post(path, service("a", **rng.choice([{"clusterIP": "None"}, {"type": "ExternalName", "externalName": "example.com", "ports": None}, {"clusterIP": "None", "selector": {"a": "b"}}, {}, {"type": "NodePort"}]))))
    for _ in range(7):
        spec = copy.deepcopy(rng.choice(parts))
        steps.append(rng.choice([patch(path + "/a", "merge", {"spec": spec}, dry), patch(path + "/a", "strategic", {"spec": spec}, dry), put(path + "/a", service("a", **spec), dry), apply(path + "/a", service("a", **spec), "m", True, "&dryRun=All")]))
    status = {"loadBalancer": rng.choice([{}, {"ingress": [{"ip": "1.2.3.4"}]}, {"ingress": [{"ip": "bad"}]}, {"ingress": [{"hostname": "Bad_"}]}, {"ingress": [{"ip": "1.2.3.4", "ipMode": "Odd"}]}, {"ingress": [{"ip": "1.2.3.4", "ports": [{"port": 80, "protocol": "TCP", "error": "bad error"}]}]}])}
    return [*steps, patch(path + "/a/status", "merge", {"status": status}, dry), get(path + "/a", TABLE), get(path + "/none"), delete(path + "/a"), get(path + "/a")]


@topic
def secrets(rng: Rng, ns: str) -> list[Step]:
    """Secrets and config maps: types with their keys, data of both sorts, what is immutable."""
    paths = {"Secret": f"{CORE}{ns}/secrets", "ConfigMap": f"{CORE}{ns}/configmaps"}
    typed = [("kubernetes.io/basic-auth", ["username", "password"]), ("kubernetes.io/ssh-auth", ["ssh-privatekey"]), ("kubernetes.io/tls", ["tls.crt", "tls.key"]), ("kubernetes.io/dockerconfigjson", [".dockerconfigjson"]), ("kubernetes.io/dockercfg", [".dockercfg"]), ("kubernetes.io/service-account-token", ["token"]),
             ("bootstrap.kubernetes.io/token", ["token-id"]), ("Opaque", ["x"]), ("", ["x"]), ("example.com/own", ["x"])]  # fmt: skip
    values = ["", "x", "{}", "{", '{"auths":{}}', '{"auths":{"r":{"auth":"eDp5"}}}', "[]", '"text"', "null"]
    data = [{"k": "dg=="}, {"k": "!"}, {"k": "dg"}, {"k": None}, {"k": ""}, {"k": 5}, {"bad key": "dg=="}, {"..": "dg=="}, {".": "dg=="}, {"": "dg=="}, {"x" * 254: "dg=="}, {".a": "dg=="}, {"k": ["a"]}, [], "x", None]
    steps: list[Step] = []

    def secret(name: str) -> dict:
        kind, keys = rng.choice(typed)
        o: dict = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": rng.choice([{}, {"kubernetes.io/service-account.name": "none"}])}, "type": kind, "stringData": {k: rng.choice(values) for k in keys if rng.random() < 0.7}}
        if rng.random() < 0.3:
            o["data"] = copy.deepcopy(rng.choice(data))
        return o | rng.choice([{}, {}, {}, {"immutable": True}, {"immutable": False}, {"immutable": None}, {"immutable": "yes"}])

    def config(name: str) -> dict:
        return config_map(name) | {"data": copy.deepcopy(rng.choice(data)), **rng.choice([{}, {"binaryData": copy.deepcopy(rng.choice(data))}, {"immutable": rng.choice([True, False, None])}])}

    for i in range(6):
        o = rng.choice([secret, config])(f"n{i}")
        steps.append(post(paths[o["kind"]], o, rng.choice(["?dryRun=All", "?dryRun=All", "?dryRun=All&fieldValidation=Strict"])))
    kind = rng.choice(list(paths))
    one = paths[kind] + "/a"
    fixed = rng.random() < 0.5
    steps.append(post(paths[kind], {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", "labels": {"a": "b"}}, "data": {"k": "dg==", "l": "dw=="}, **({"immutable": True} if fixed else {})}))
    changes = [{"data": {"k": "dw=="}}, {"data": {"l": None}}, {"data": None}, {"immutable": True}, {"immutable": False}, {"immutable": None}, {"metadata": {"labels": {"x": "1"}}}, {"stringData": {"k": "plain"}}, {"binaryData": {"b": "AQI="}}, {"binaryData": {"k": "AQI="}}, {"type": "other"}, {"data": {"new": "dg=="}},
               {"metadata": {"annotations": {"a": "b"}}, "data": {"k": "dg=="}}, {"data": {"k": "!"}}, {"data": {"bad key": "dg=="}}]  # fmt: skip
    for _ in range(8):
        change = copy.deepcopy(rng.choice(changes))
        whole = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, "data": {"k": "dg==", "l": "dw=="}, **change}
        steps.append(rng.choice([patch(one, rng.choice(["merge", "strategic"]), change, rng.choice(["", "?dryRun=All"])), put(one, whole), apply(one, {**whole, "metadata": {"name": "a", **change.get("metadata", {})}}, "m", True)]))
    return [*steps, get(one), get(one, TABLE), get(paths[kind] + "?fieldSelector=type%3DOpaque")]


@topic
def tables(rng: Rng, ns: str) -> list[Step]:
    """Objects of several kinds as tables and as metadata."""
    steps: list[Step] = []
    ours = json.loads(json.dumps(OBJECTS).replace("${NS}", ns))
    kinds = [k for k, e in ours.items() if f"/namespaces/{ns}/" in e["path"]]
    forms = [TABLE, TABLE, "application/json;as=Table;g=meta.k8s.io;v=v1beta1", PARTIAL, f"{TABLE},application/json;q=0.5", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1;charset=utf-8"]
    for kind in rng.sample(kinds, 4):
        entry = ours[kind]
        o, path = entry["object"], entry["path"]
        name = o["metadata"]["name"]
        steps.append(post(path, o, rng.choice(["", "", "?dryRun=All"]), Accept=rng.choice(["application/json", TABLE, PARTIAL])))
        if entry.get("status"):
            steps.append(patch(f"{path}/{name}/status", "merge", {"status": entry["status"]}))
        steps.append(patch(f"{path}/{name}", "merge", {"metadata": {"labels": {"of": "table"}}}))
        steps += [get(f"{path}/{name}" + rng.choice(["", "?includeObject=None", "?includeObject=Object", "?includeObject=Metadata", "?includeObject=Odd"]), rng.choice(forms)),
                  get(path + "?labelSelector=of%3Dtable" + rng.choice(["", "&includeObject=None", "&includeObject=Object", "&limit=1"]), rng.choice(forms)),
                  get(path + "?labelSelector=of%3Dtable&watch=1&timeoutSeconds=1" + rng.choice(["", "&includeObject=None", "&includeObject=Object"]), rng.choice(forms[:4]))]  # fmt: skip
    return steps


@topic
def statuses(rng: Rng, ns: str) -> list[Step]:
    """What a write of the status may change and what it leaves alone; generations."""
    ours = json.loads(json.dumps(OBJECTS).replace("${NS}", ns))
    kind = rng.choice(["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "PersistentVolumeClaim", "Service", "Ingress", "ReplicationController", "NetworkPolicy", "Pod", "Lease"])
    entry = ours[kind]
    o, path = entry["object"], entry["path"]
    if kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
        o["spec"]["replicas"] = 0
    one = f"{path}/{o['metadata']['name']}"
    status = entry.get("status") or {"x": 1}
    condition = {"type": "T", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    states = [status, {}, None, {**status, "unknown": 1}, {"conditions": [condition]}, {"conditions": [condition, condition]}, {"conditions": [{"type": "T"}]}, {"conditions": [{**condition, "status": "Maybe"}]}, {"conditions": [{**condition, "lastTransitionTime": "bad"}]}, {"observedGeneration": -1}, {"replicas": -1}, {"observedGeneration": 5}, {"replicas": 2, "readyReplicas": 3},
              {"replicas": 2, "readyReplicas": 1, "availableReplicas": 2}, {"phase": "Odd"}, "x", [], {"active": 1}, {"collisionCount": 1}, {"collisionCount": -1}]  # fmt: skip
    both = lambda s: {**o, "metadata": {"name": o["metadata"]["name"], "labels": {"via": "status"}, "annotations": {"via": "status"}}, "status": copy.deepcopy(s)}
    steps = [post(path, {**o, "status": copy.deepcopy(status)}, "?fieldManager=maker"), get(one)]
    for _ in range(9):
        s, q = rng.choice(states), rng.choice(["", "", "?dryRun=All", "?fieldManager=m", "?fieldValidation=Strict"])
        steps.append(rng.choice([put(one + "/status", both(s), q), patch(one + "/status", "merge", {"status": copy.deepcopy(s)}, q), patch(one + "/status", "strategic", {"status": copy.deepcopy(s), "metadata": {"labels": {"y": "2"}}}, q), patch(one + "/status", "merge", {"spec": {"replicas": 9, "suspend": True}, "metadata": {"annotations": {"z": "3"}}}, q),
                                 patch(one, "merge", {"status": copy.deepcopy(s)}, q), patch(one, "merge", {"metadata": {"labels": {"l": rng.choice("12")}}}), patch(one, "merge", {"metadata": {"generation": 9}}), apply(one + "/status", {k: v for k, v in both(s).items() if k != "spec"}, "s", rng.random() < 0.5), patch(one + "/status", "json", [{"op": "add", "path": "/status", "value": copy.deepcopy(s)}], q),
                                 patch(one + "/status", "merge", {"metadata": {"finalizers": ["example.com/x"], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": "u"}]}}, "?dryRun=All"), patch(one + "/status", "merge", {"metadata": {"resourceVersion": rng.choice(["1", "${rv}"])}, "status": {}}, q),
                                 get(one + "/status", rng.choice(["", TABLE, PARTIAL]))]))  # fmt: skip
    return [*steps, get(one)]


@topic
def scales(rng: Rng, ns: str) -> list[Step]:
    """The scale of built-in and custom kinds, written in every way."""
    ours = json.loads(json.dumps(OBJECTS).replace("${NS}", ns))
    kind, steps = rng.choice(["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Widget"]), []
    if kind == "Widget":
        path, name = widgets(ns), "a"
        paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", **rng.choice([{}, {"labelSelectorPath": ".status.s"}])}
        steps = crd(ns, {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {**INT, "maximum": 50}, "s": TEXT}}, "status": {"type": "object", "properties": {"n": INT, "s": TEXT}}}}, subresources={"status": {}, "scale": paths})
        steps += [post(path, widget(ns, "a", rng.choice([{"n": 2}, {}, {"n": 0}]))), patch(path + "/a/status", "merge", {"status": rng.choice([{"n": 1, "s": "app=a"}, {"n": 3}, {}])})]
    else:
        o, path = ours[kind]["object"], ours[kind]["path"]
        o["spec"]["replicas"], name = 0, o["metadata"]["name"]
        steps = [post(path, o, "?fieldManager=maker")]
    one = f"{path}/{name}/scale"
    scale = lambda replicas, **m: {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name, "namespace": ns, **m}, "spec": {"replicas": replicas}}
    amount = lambda: rng.choice([0, 0, 1, 2, -1, "x", 1.5, None, 2**31, 60])
    dry = lambda: rng.choice(["", "?dryRun=All", "?fieldManager=m", "?fieldValidation=Strict"]) if kind == "Widget" else rng.choice(["?dryRun=All", "?dryRun=All&fieldManager=m", "?dryRun=All&fieldValidation=Strict"])
    for _ in range(11):
        steps.append(rng.choice([
            get(one), get(one, rng.choice([TABLE, PARTIAL, "application/yaml"])), put(one, scale(amount()), dry()), put(one, scale(amount(), resourceVersion=rng.choice(["1", "${rv}", "x"])), dry()), put(one, scale(amount(), uid=rng.choice(["x", "${uid}"])), dry()), put(one, {**scale(1), "metadata": {"name": "other"}}, dry()),
            put(one, {**scale(1), "metadata": {"name": name, "namespace": "other"}}, dry()), put(one, {**scale(1), "kind": rng.choice(["Deployment", "Odd", ""])}, dry()), put(one, {**scale(1), "apiVersion": rng.choice(["autoscaling/v2", "v1", "extensions/v1beta1"])}, dry()), put(one, {**scale(1), "spec": rng.choice([{}, None, {"unknown": 1}, []])}, dry()),
            patch(one, "merge", {"spec": {"replicas": amount()}}, dry()), patch(one, "strategic", {"spec": {"replicas": amount()}}, dry()), patch(one, "json", [{"op": rng.choice(["replace", "test", "add", "remove"]), "path": "/spec/replicas", "value": amount()}], dry()), patch(one, "merge", {"metadata": {"labels": {"a": "b"}}}, dry()), patch(one, "merge", {"status": {"replicas": 9}}, dry()),
            apply(one, scale(amount()), "m", rng.random() < 0.5, "&dryRun=All" if kind != "Widget" else ""), apply(one, {**scale(1), "metadata": {"name": name}}, "m", query="&dryRun=All"), post(one, scale(1)), delete(one), get(f"{path}/none/scale"), put(f"{path}/none/scale", {**scale(1), "metadata": {"name": "none"}}), patch(f"{path}/none/scale", "merge", {"spec": {"replicas": 1}}),
        ]))  # fmt: skip
    return [*steps, get(f"{path}/{name}")]


@topic
def roles(rng: Rng, ns: str) -> list[Step]:
    """Roles and bindings: rules, subjects, references, and who may hand out what."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}"
    cluster = "/apis/rbac.authorization.k8s.io/v1"
    of = lambda kind, name, **m: {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **m}
    rule = lambda: rng.choice([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"verbs": ["get"]}, {"apiGroups": [""], "resources": ["pods"], "verbs": []}, {"resources": ["pods"], "verbs": ["get"]}, {"apiGroups": [""], "verbs": ["get"]}, {"nonResourceURLs": ["/healthz"], "verbs": ["get"]},
                               {"nonResourceURLs": ["/healthz"], "apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}, {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get", "update"]}, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "unknown": 1}, {}, {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["bind", "escalate", "create"]}])  # fmt: skip
    subject = lambda: rng.choice([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "User", "name": "jane", "apiGroup": "v1"}, {"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "name": "sa", "namespace": ns}, {"kind": "ServiceAccount", "name": "sa"}, {"kind": "ServiceAccount", "name": "Bad_", "namespace": ns},
                                  {"kind": "ServiceAccount", "name": "sa", "namespace": ns, "apiGroup": "x"}, {"kind": "Odd", "name": "x"}, {"kind": "User", "name": ""}, {"kind": "User", "name": "jane", "namespace": "x"}, {}])  # fmt: skip
    reference = lambda: rng.choice([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}, {"kind": "Role", "name": "r"}, {"apiGroup": "", "kind": "Role", "name": "r"}, {"apiGroup": "x", "kind": "Role", "name": "r"}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "Odd", "name": "r"},
                                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ""}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a/b"}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "none"}, {}])  # fmt: skip
    good = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    steps = [post(base + "/roles", of("Role", "r", rules=[{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}])), post(base + "/rolebindings", of("RoleBinding", "b", roleRef=good, subjects=[{"kind": "User", "name": f"jane-{ns}"}]))]
    dry = "?dryRun=All"
    asks = [lambda: post(base + "/roles", of("Role", "x", rules=[rule() for _ in range(rng.randint(0, 2))]), dry), lambda: post(base + "/rolebindings", of("RoleBinding", "x", roleRef=reference(), subjects=[subject() for _ in range(rng.randint(0, 2))]), dry), lambda: post(cluster + "/clusterroles", of("ClusterRole", f"x-{ns}", rules=[rule()]), dry),
            lambda: post(cluster + "/clusterrolebindings", of("ClusterRoleBinding", f"x-{ns}", roleRef=reference(), subjects=[subject()]), dry), lambda: patch(base + "/rolebindings/b", "merge", {"roleRef": reference()}, dry), lambda: patch(base + "/rolebindings/b", "merge", {"subjects": [subject()]}, dry), lambda: patch(base + "/roles/r", "merge", {"rules": [rule()]}, dry),
            lambda: post(cluster + "/clusterroles", of("ClusterRole", f"y-{ns}", aggregationRule=rng.choice([{"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}, {"clusterRoleSelectors": []}, {}, {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}]), rules=rng.choice([[], [rule()]])), dry), lambda: put(base + "/rolebindings/b", of("RoleBinding", "b", roleRef=reference()), dry),
            lambda: get(base + "/roles/r", TABLE), lambda: get(base + "/rolebindings/b", TABLE), lambda: apply(base + "/roles/r", of("Role", "r", rules=[rule()]), "m", rng.random() < 0.5, "&dryRun=All"), lambda: apply(base + "/rolebindings/b", of("RoleBinding", "b", roleRef=reference(), subjects=[subject(), subject()]), "m", True, "&dryRun=All"),
            # one who may write roles, and has few rights
            lambda: post(base + "/roles", of("Role", "x", rules=[rule()]), dry, Impersonate_User=f"jane-{ns}"), lambda: Step("GET", f"{CORE}{ns}/configmaps/none", None, {"Impersonate-User": f"jane-{ns}"}), lambda: post(base + "/rolebindings", of("RoleBinding", "x", roleRef=reference(), subjects=[subject()]), dry, Impersonate_User=f"jane-{ns}"),
            lambda: post(base + "/roles", of("Role", "a:b.c/d", rules=[]), dry), lambda: post(base + "/roles", of("Role", "a:B", rules=[]), dry), lambda: post(base + "/roles", of("Role", "a%b", rules=[]), dry), lambda: post(base + "/roles", of("Role", "..", rules=[]), dry)]  # fmt: skip
    steps += [rng.choice(asks)() for _ in range(4)]
    if rng.random() < 0.6:
        # what she may is known to both before she tries
        rights = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
        steps += [patch(base + "/roles/r", "merge", {"rules": rights}), Step("GET", base + "/roles/r", None, {"Impersonate-User": f"jane-{ns}"}, until=200)]
    return steps + [rng.choice(asks)() for _ in range(10)]


@topic
def jobs(rng: Rng, ns: str) -> list[Step]:
    """Jobs that nobody runs: what they may be, and what of them may change."""
    path = f"/apis/batch/v1/namespaces/{ns}/jobs"
    template = lambda **spec: {"spec": {"restartPolicy": "Never", "containers": [container()], **spec}}
    job = lambda name, **spec: {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"managedBy": "example.com/nobody", "template": template(), **spec}}
    parts = [
        {"parallelism": 0}, {"parallelism": -1}, {"completions": 3}, {"completions": -1}, {"completions": None}, {"completionMode": "Indexed", "completions": 2}, {"completionMode": "Indexed"}, {"completionMode": "Odd"}, {"backoffLimit": 0}, {"backoffLimit": -1}, {"backoffLimitPerIndex": 1}, {"backoffLimitPerIndex": 1, "completionMode": "Indexed", "completions": 2},
        {"maxFailedIndexes": 1, "completionMode": "Indexed", "completions": 2}, {"maxFailedIndexes": 5, "backoffLimitPerIndex": 1, "completionMode": "Indexed", "completions": 2}, {"ttlSecondsAfterFinished": 5}, {"ttlSecondsAfterFinished": -5}, {"activeDeadlineSeconds": 0}, {"activeDeadlineSeconds": 9}, {"suspend": True}, {"suspend": False}, {"manualSelector": True}, {"selector": {"matchLabels": {"a": "b"}}},
        {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, **template()}}, {"manualSelector": True, "selector": {"matchLabels": {"a": "b"}}}, {"template": template(restartPolicy="Always")}, {"template": template(restartPolicy="OnFailure")}, {"template": template(restartPolicy=None)}, {"podReplacementPolicy": "Failed"}, {"podReplacementPolicy": "Odd"},
        {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 2]}}]}}, {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}, {"podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]}}, {"podFailurePolicy": {"rules": [{"action": "Odd"}]}},
        {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [2, 1, 1, 0]}}]}}, {"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"}, {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1], "containerName": "none"}, "onPodConditions": [{"type": "X", "status": "Odd"}]}]}},
        {"successPolicy": {"rules": [{"succeededCount": 1}]}, "completionMode": "Indexed", "completions": 2}, {"successPolicy": {"rules": [{"succeededIndexes": "0-1,x"}]}, "completionMode": "Indexed", "completions": 2}, {"successPolicy": {"rules": [{"succeededIndexes": "1,0"}]}, "completionMode": "Indexed", "completions": 2}, {"successPolicy": {"rules": []}}, {"successPolicy": {"rules": [{}]}, "completionMode": "Indexed", "completions": 2},
        {"successPolicy": {"rules": [{"succeededCount": 5, "succeededIndexes": "0"}]}, "completionMode": "Indexed", "completions": 2}, {"managedBy": "kubernetes.io/job-controller", "suspend": True}, {"managedBy": "bad"}, {"managedBy": ""}, {"managedBy": "example.com/" + "x" * 80}, {"template": template(containers=[])}, {"template": template(nodeSelector={"a": "b"})}, {"template": template(activeDeadlineSeconds=5)},
        {"template": template(containers=[container(ports=[{"containerPort": 80}, {"containerPort": 80}])])}, {"completionMode": "Indexed", "completions": 100001, "parallelism": 100001}, {"completionMode": "Indexed", "completions": 200000, "parallelism": 20000, "backoffLimitPerIndex": 1}, {"template": {**template(), "metadata": {"labels": {"x": "1"}}}}, {"template": template(schedulingGates=[{"name": "g"}])},
    ]  # fmt: skip
    steps = [post(path, job(f"n{i}", **copy.deepcopy({**rng.choice(parts), **(rng.choice(parts) if rng.random() < 0.3 else {})})), "?dryRun=All") for i in range(6)]
    steps.append(post(path, job("a", **rng.choice([{"suspend": True}, {}, {"completionMode": "Indexed", "completions": 3}, {"suspend": True, "completionMode": "Indexed", "completions": 3, "parallelism": 3}, {"completions": 2}]))))
    states = [{"startTime": "2026-01-01T00:00:00Z"}, {"active": 1, "startTime": "2026-01-01T00:00:00Z"}, {"conditions": [{"type": "Complete", "status": "True"}]}, {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, {"conditions": [{"type": "Failed", "status": "True"}, {"type": "FailureTarget", "status": "True"}]}, {"succeeded": -1}, {"completedIndexes": "0,1"}, {"completedIndexes": "1,0"},
              {"ready": 5}, {"completionTime": "2026-01-01T00:00:00Z"}, {"uncountedTerminatedPods": {"succeeded": ["a", "a"]}}, {"uncountedTerminatedPods": {"succeeded": [""]}}, {"failedIndexes": "0"}, {"active": 0}, {"terminating": 1}, {"conditions": [{"type": "Suspended", "status": "True"}]}]  # fmt: skip
    for _ in range(10):
        spec, q = copy.deepcopy(rng.choice(parts)), rng.choice(["", "?dryRun=All", "?dryRun=All"])
        steps.append(rng.choice([patch(path + "/a", "merge", {"spec": spec}, q), patch(path + "/a", "strategic", {"spec": spec}, "?dryRun=All"), put(path + "/a", job("a", **spec), "?dryRun=All"), apply(path + "/a", job("a", **spec), "m", True, "&dryRun=All"), patch(path + "/a/status", "merge", {"status": copy.deepcopy(rng.choice(states))}, q),
                                 patch(path + "/a/status", "merge", {"status": copy.deepcopy({**rng.choice(states), **rng.choice(states)})}, q)]))  # fmt: skip
    return [*steps, get(path + "/a", TABLE), get(path + "?fieldSelector=status.successful%3D0"), get(path + "/a"), get(path + "?fieldSelector=spec.x%3D0")]


@topic
def storage(rng: Rng, ns: str) -> list[Step]:
    """Claims, volumes and storage classes: what they may be, and what of them may change."""
    path, volumes, classes = f"{CORE}{ns}/persistentvolumeclaims", "/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses"
    claim = lambda name, **s: {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {"storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **s}}
    parts = [{"accessModes": []}, {"accessModes": ["Odd"]}, {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, {"accessModes": ["ReadWriteOncePod"]}, {"resources": {}}, {"resources": {"requests": {"storage": "0"}}}, {"resources": {"requests": {"storage": "2Gi"}}}, {"resources": {"requests": {"storage": "1Mi"}}}, {"resources": {"requests": {"cpu": "1"}}}, {"storageClassName": "Bad_"},
             {"storageClassName": ""}, {"storageClassName": None}, {"storageClassName": "other"}, {"volumeMode": "Block"}, {"volumeMode": "Odd"}, {"volumeName": "v"}, {"volumeName": "Bad_"}, {"selector": {"matchLabels": {"a": "b"}}}, {"selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}, {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}, {"dataSource": {"kind": "Pod", "name": "x"}},
             {"dataSource": {"kind": "VolumeSnapshot", "name": "x", "apiGroup": "snapshot.storage.k8s.io"}}, {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x"}}, {"dataSourceRef": {"kind": "Odd", "name": "x", "apiGroup": "example.com"}}, {"dataSourceRef": {"kind": "X", "name": ""}}, {"volumeAttributesClassName": "x"}, {"dataSource": {"kind": "", "name": ""}},
             {"resources": {"requests": {"storage": "1Gi"}, "limits": {"storage": "500Mi"}}}, {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x", "namespace": "y"}}]  # fmt: skip
    volume = lambda name, **s: {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{name}-{ns}"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, **s}}
    kinds = [{"hostPath": {"path": "/a/../b"}}, {"hostPath": {"path": ""}}, {"hostPath": {"path": "/", "type": "Odd"}}, {"nfs": {"server": "s", "path": "/p"}, "hostPath": None}, {"nfs": {"server": "", "path": "p"}, "hostPath": None}, {"csi": {"driver": "d.example.com", "volumeHandle": "h"}, "hostPath": None}, {"csi": {"driver": "Bad_", "volumeHandle": ""}, "hostPath": None}, {"hostPath": None},
             {"nfs": {"server": "s", "path": "/p"}}, {"local": {"path": "/l"}, "hostPath": None}, {"local": {"path": "/l"}, "hostPath": None, "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}, {"capacity": {}}, {"capacity": {"storage": "-1"}}, {"capacity": {"storage": "1Gi", "cpu": "1"}}, {"accessModes": []}, {"accessModes": ["Odd"]},
             {"persistentVolumeReclaimPolicy": "Recycle"}, {"persistentVolumeReclaimPolicy": "Odd"}, {"volumeMode": "Block"}, {"volumeMode": "Odd"}, {"mountOptions": ["ro"]}, {"storageClassName": "x"}, {"storageClassName": "Bad_"}, {"claimRef": {"namespace": ns, "name": "c"}}, {"claimRef": {"name": "c"}}, {"nodeAffinity": {}}, {"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}, {"hostPath": {"path": "/"}, "persistentVolumeReclaimPolicy": "Recycle"}]  # fmt: skip
    sc = lambda name, **s: {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": f"{name}-{ns}"}, "provisioner": "example.com/p", **s}
    options = [{}, {"provisioner": ""}, {"provisioner": "Bad_/x/y"}, {"reclaimPolicy": "Retain"}, {"reclaimPolicy": "Odd"}, {"volumeBindingMode": "WaitForFirstConsumer"}, {"volumeBindingMode": "Odd"}, {"allowVolumeExpansion": True}, {"parameters": {"": "x"}}, {"parameters": {"a": "b"}}, {"mountOptions": ["ro"]}, {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": []}]}]}, {"parameters": {"a": "x" * 300000}},
               {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b"]}]}], "volumeBindingMode": "WaitForFirstConsumer"}, {"allowedTopologies": [{"matchLabelExpressions": [{"key": "a", "values": ["b", "b"]}]}]}, {"reclaimPolicy": "Recycle"}]  # fmt: skip
    dry = "?dryRun=All"
    steps = [post(path, claim("a"))]
    for i in range(13):
        steps.append(rng.choice([
            lambda: post(path, claim(f"n{i}", **copy.deepcopy(rng.choice(parts))), dry), lambda: patch(path + "/a", "merge", {"spec": copy.deepcopy(rng.choice(parts))}, dry), lambda: post(volumes, volume(f"v{i}", **copy.deepcopy(rng.choice(kinds))), dry), lambda: post(classes, sc(f"s{i}", **copy.deepcopy(rng.choice(options))), dry),
            lambda: patch(path + "/a/status", "merge", {"status": rng.choice([{"phase": "Bound"}, {"phase": "Odd"}, {"capacity": {"storage": "2Gi"}}, {"capacity": {"storage": "-1"}}, {"accessModes": ["ReadWriteOnce"]}, {"conditions": [{"type": "Resizing", "status": "True"}]}, {"allocatedResources": {"storage": "1Gi"}}, {"allocatedResourceStatuses": {"storage": "Odd"}}])}, dry),
            lambda: put(path + "/a", claim("a", **copy.deepcopy(rng.choice(parts))), dry), lambda: apply(path + "/a", claim("a", **copy.deepcopy(rng.choice(parts))), "m", True, "&dryRun=All"),
        ])())  # fmt: skip
    return [*steps, get(path + "/a", TABLE), get(path + "/a")]


@topic
def documents(rng: Rng, ns: str) -> list[Step]:
    """What a server says of itself: groups, kinds, versions, and forms of these documents."""
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": INT}}}}
    names = {"plural": "widgets", "kind": "Widget", **rng.choice([{}, {"shortNames": ["w", "wd"]}, {"categories": ["all", "tools"]}, {"singular": "widget", "listKind": "WidgetList"}, {"shortNames": ["w"], "categories": ["x"]}])}
    sub = rng.choice([{}, {"subresources": {"status": {}}}, {"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}}])
    o = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{ns}.example"}, "spec": {"group": f"{ns}.example", "scope": "Namespaced", "names": names, "versions": [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **sub}, *([{"name": rng.choice(["v2", "v1beta1", "v1alpha1"]), "served": rng.random() < 0.8, "storage": False, "schema": {"openAPIV3Schema": schema}}] if rng.random() < 0.5 else [])]}}  # fmt: skip
    group = f"/apis/{ns}.example"
    asks = [get(group), get(group, rng.choice([TABLE, "application/yaml", "text/html", "application/vnd.kubernetes.cbor", PARTIAL])), get(f"{group}/v1"), get(f"{group}/v1", rng.choice(["application/yaml", TABLE, "*/*", aggregated])), get(f"{group}/v9"), get(f"{group}/v1/"), get(f"{group}/"), Step("POST", group, {}), Step("DELETE", f"{group}/v1"), get(group, aggregated),
            Step("HEAD", f"{group}/v1"), Step("OPTIONS", f"{group}/v1"), get(f"{group}/v1/widgets/a/b"), get(f"{group}/v1/nothings"), get("/apis/none.example"), get("/apis/apps"), get("/apis/batch"), get("/apis/apps/v2"), get("/apis/batch/v1"), get("/apis/apps/v1"), get("/apis/rbac.authorization.k8s.io/v1"), get("/apis/coordination.k8s.io/v1"), get("/apis/policy/v1"), get("/apis/scheduling.k8s.io/v1"), get("/api"),
            get("/apis/events.k8s.io/v1"), get("/apis/discovery.k8s.io/v1"), get("/apis/networking.k8s.io"), get("/apis/apiextensions.k8s.io/v1"), get("/apis/authentication.k8s.io/v1"), get("/apis/authorization.k8s.io/v1"), get("/apis/node.k8s.io/v1"), get("/api/v1"), get("/api/v1", "application/yaml"), get("/api", aggregated), get("/apis", aggregated), get("/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
            get("/apis", aggregated + ",application/json"), get("/apis", aggregated + ";profile=nopeer"), get("/apis", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList"), get("/api/v2"), get("/api/v1/"), get("/openapi/v3/apis/none.example/v1"), get(f"/openapi/v3{group}/v1"), get("/openapi/v3/nothing"), get("/healthz"), get("/livez"), get("/readyz/ping"), get("/readyz/none"),
            get("/livez?exclude=etcd"), get("/healthz/ping"), Step("POST", "/healthz", {}), get("/nothing"), get("/api/"), get("/apis/"), *(get(f"/openapi/v3/{g}") for g in ("api/v1", "apis/apps/v1", "apis/batch/v1", "apis/coordination.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1", "apis/policy/v1", "apis/scheduling.k8s.io/v1", "apis/apiextensions.k8s.io/v1"))]  # fmt: skip
    return [post(DEFINITIONS, o), Step("GET", widgets(ns), until=200), Step("GET", f"/openapi/v3{group}/v1", until=200), *some(rng, asks, 12, 15)]
