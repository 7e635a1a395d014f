"""Scenarios for an API server made up at random: an object of some kind, and what clients do to it; the same seed gives the same.

Objects start as the valid ones of `api_objects.yaml` (or of a definition out of `random_definitions.py`) and are changed field by
field, by the table of Kubernetes' types that the server itself reads (`crates/merge/data/kubernetes-types.json`), to values that
are right, odd or wrong. A step may use what an earlier answer of the same server said: `${rv}`, `${uid}`, `${continue}`;
`${own_rv}` is that of the object that was seen last: the version of a list is that of the whole server.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pathlib
import random
import urllib.parse

import yaml

from random_definitions import broken, custom, definition

HERE = pathlib.Path(__file__).parent
TYPES: dict[str, list[dict]] = json.loads((HERE.parent.parent / "crates/merge/data/kubernetes-types.json").read_text())
OBJECTS: dict[str, dict] = yaml.safe_load((HERE / "api_objects.yaml").read_text())
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Kinds that users meet daily are taken more often.
OFTEN = {"Pod": 6, "Job": 4, "Service": 3, "ConfigMap": 4, "Secret": 2, "PersistentVolumeClaim": 2, "Deployment": 2, "Custom": 14, "Definition": 3}
PATCHES = {"json": "application/json-patch+json", "merge": "application/merge-patch+json",
           "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml"}  # fmt: skip
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Metadata that a mutation may reach: the rest is the server's, or would keep a namespace from being used again.
OWN_META = ("labels", "annotations", "finalizers", "ownerReferences", "name", "namespace", "generateName", "uid", "resourceVersion")
WORDS = ["", "a", "b", "main", "web", "one", "Invalid Name!", "x" * 64, "example.com/a", "-bad-", "a.b", "10.1.2.3", "/data", "TCP",
         "None", "Never", "Always", "true", "1", "$(A)", "kubernetes.io/x", "ünï", "all", "*"]  # fmt: skip
# Values that mean something to a field, by its name: a word out of the pool above would never hit them.
MEANT = {
    "restartPolicy": ["Always", "OnFailure", "Never"], "dnsPolicy": ["ClusterFirst", "Default", "None", "ClusterFirstWithHostNet"],
    "imagePullPolicy": ["Always", "IfNotPresent", "Never"], "protocol": ["TCP", "UDP", "SCTP"], "operator": ["In", "NotIn", "Exists",
    "DoesNotExist", "Equal", "Gt", "Lt"], "effect": ["NoSchedule", "PreferNoSchedule", "NoExecute"], "fieldPath": ["metadata.name",
    "metadata.labels", "status.podIP", "spec.nodeName", "metadata.labels['a']"], "completionMode": ["Indexed", "NonIndexed"],
    "podReplacementPolicy": ["Failed", "TerminatingOrFailed"], "concurrencyPolicy": ["Allow", "Forbid", "Replace"],
    "schedule": ["* * * * *", "@daily", "TZ=UTC * * * * *", "61 * * * *"], "accessModes": ["ReadWriteOnce", "ReadOnlyMany",
    "ReadWriteOncePod"], "volumeMode": ["Block", "Filesystem"], "sessionAffinity": ["ClientIP", "None"], "policyTypes": ["Ingress",
    "Egress"], "unhealthyPodEvictionPolicy": ["IfHealthyBudget", "AlwaysAllow"], "topologyKey": ["kubernetes.io/hostname", "zone"],
    "whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"], "action": ["FailJob", "Ignore", "Count", "FailIndex"], "verbs": ["get",
    "*"], "type": ["ClusterIP", "NodePort", "ExternalName", "LoadBalancer", "Opaque", "RollingUpdate", "Recreate", "OnDelete",
    "Container", "Pod", "Normal", "Warning", "RuntimeDefault", "Ready", "kubernetes.io/tls", "kubernetes.io/basic-auth"],
    "terminationMessagePolicy": ["File", "FallbackToLogsOnError"], "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": ["SingleStack",
    "PreferDualStack", "RequireDualStack"], "reclaimPolicy": ["Delete", "Retain"], "persistentVolumeReclaimPolicy": ["Delete",
    "Retain", "Recycle"], "cidr": ["10.0.0.0/8", "2001:db8::/32", "10.0.0.1/8"], "failurePolicy": ["Fail", "Ignore"],
    "sideEffects": ["None", "Some"], "matchPolicy": ["Exact", "Equivalent"], "kind": ["Pod", "User", "Role", "Deployment"],
    "podManagementPolicy": ["OrderedReady", "Parallel"], "preemptionPolicy": ["Never", "PreemptLowerPriority"], "scheme": ["HTTP",
    "HTTPS"], "medium": ["Memory", "HugePages"], "mountPropagation": ["None", "Bidirectional"], "clusterIP": ["None", "", "10.96.3.4"],
    "reinvocationPolicy": ["Never", "IfNeeded"], "patchType": ["ApplyConfiguration", "JSONPatch"], "parameterNotFoundAction": ["Allow", "Deny"],
    "validationActions": ["Deny", "Warn", "Audit"], "operations": ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], "scope": ["*", "Namespaced", "Cluster"],
    "expression": ["true", "object.metadata.name == 'x'", "Object{}", "Object{metadata: Object.metadata{labels: {'a': 'b'}}}", "[JSONPatch{op: 'remove', path: '/x'}]",
    "params.data.x == 'y'", "variables.v", "object.x ==", "[]"], "phase": ["Active", "Terminating", "Running"], "url": ["https://a.example.com/x", "http://a", "https://u@h",
    "https://h#f", "%zz"], "finalizers": ["kubernetes", "example.com/other", "nodomain"], "hostname": ["a", "A"], "whenDeleted": ["Retain", "Delete"], "whenScaled": ["Retain", "Delete"],
}  # fmt: skip
LABELS = ["app=one", "app!=one", "app in (one,two)", "app notin (two)", "app", "!app", "app==one,x!=y", "app=", "app in ()", "a=b=c",
          "=x", "app>1", "Invalid Key!=a", "app=" + "x" * 64, "app in (one", "x/y/z=1"]  # fmt: skip
UNKNOWN_QUERIES = ["pretty=true", "pretty=false", "foo=bar", "timeoutSeconds=abc", "limit=-1", "limit=x", "watch=maybe&timeoutSeconds=1", "continue=zzz",
                   "resourceVersion=abc", "resourceVersionMatch=Exact", "resourceVersionMatch=Other&resourceVersion=1",
                   "resourceVersion=0&resourceVersionMatch=NotOlderThan", "sendInitialEvents=true", "resourceVersion=0", "limit=0",
                   "resourceVersionMatch=NotOlderThan", "resourceVersion=1&resourceVersionMatch=Exact&continue=x", "limit=1",
                   "allowWatchBookmarks=true", "timeoutSeconds=5", "labelSelector=", "fieldSelector=metadata.name%3Da"]  # fmt: skip


@dataclasses.dataclass
class Step:
    """One request. `until`: asked again until the code is this one, and not compared. `save`: what later steps know of the answer as
    `${rv}` and the like, they know as `${SAVE_rv}` for good."""

    method: str
    path: str
    body: object = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    until: int | None = None
    save: str = ""


@dataclasses.dataclass
class Scenario:
    namespace: str
    kind: str
    steps: list[Step]


def make(seed: str, number: int) -> Scenario:
    """The scenario of that number; the kinds come by chance, but for `KIND=name`, which asks for one."""
    return Maker(random.Random(f"{seed}/{number}"), f"case-{number}").scenario()


class Maker:
    def __init__(self, rng: random.Random, namespace: str):
        self.rng, self.namespace = rng, namespace

    def scenario(self) -> Scenario:
        rng = self.rng
        kinds = [*OBJECTS, "Custom", "Definition"]
        self.kind = rng.choices(kinds, [OFTEN.get(k, 1) for k in kinds])[0]
        self.kind = os.environ.get("KIND", self.kind)
        steps: list[Step] = []
        if self.kind == "Definition":
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All"
            make = lambda: (broken if rng.random() < 0.8 else definition)(rng, self.namespace)
            return Scenario(self.namespace, self.kind, [Step("POST", path, make()) for _ in range(8)])
        if self.kind == "Custom":
            crd = definition(rng, self.namespace)
            self.version = next(v for v in crd["spec"]["versions"] if v["served"])
            self.base = custom(rng, crd, self.version["name"])
            scope = f"/namespaces/{self.namespace}" if crd["spec"]["scope"] == "Namespaced" else ""
            self.path = f"/apis/{crd['spec']['group']}/{self.version['name']}{scope}/things"
            self.entry = {"status": {"phase": "Ready", "count": 3, "replicas": 2}, "scale": "scale" in self.version.get("subresources", {}),
                          "fields": [f["jsonPath"][1:] for f in self.version.get("selectableFields", [])]}  # fmt: skip
            self.type = None
            steps.append(Step("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd))
            steps.append(Step("GET", self.path, until=200))
        else:
            self.entry = json.loads(json.dumps(OBJECTS[self.kind]).replace("${NS}", self.namespace))
            self.base, self.path = self.entry["object"], self.entry["path"]
            self.type = type_of(self.base)
        self.name = self.base["metadata"]["name"]
        steps.append(self.create())
        if rng.random() < 0.7:
            # mostly there is a good one to go on with
            steps.append(Step("POST", self.path + "?fieldManager=maker", self.base))
        steps += self.life() if rng.random() < 0.2 else [self.step() for _ in range(rng.randint(5, 11))]
        return Scenario(self.namespace, self.kind, steps)

    # -- steps

    def query(self, **given: object) -> str:
        rng, q = self.rng, {k: v for k, v in given.items() if v}
        if rng.random() < 0.12:
            q["dryRun"] = rng.choice(["All", "All", "Some"])
        if rng.random() < 0.3:
            q["fieldValidation"] = rng.choice(["Strict", "Warn", "Ignore", "Loud"])
        if rng.random() < 0.3 and "fieldManager" not in q:
            q["fieldManager"] = rng.choice(["me", "you", "x" * 129, "m\tx"])
        if rng.random() < 0.04:
            q["pretty"] = "false"
        return "?" + urllib.parse.urlencode(q) if q else ""

    def create(self) -> Step:
        rng, o = self.rng, copy.deepcopy(self.base)
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            self.mutate(o)
        if rng.random() < 0.08 and isinstance(o.get("metadata"), dict):
            o["metadata"].pop("name", None)
            o["metadata"]["generateName"] = rng.choice(["a-", "x" * 70, "Bad_", ""])
        if rng.random() < 0.05:
            o[rng.choice(["kind", "apiVersion"])] = rng.choice(["Pod", "v2", "", "batch/v1", 5])
        if rng.random() < 0.04:
            return Step("POST", self.path + self.query(), self.malformed(o), {"Content-Type": rng.choice(
                ["application/json", "application/yaml", "text/plain", "application/xml"])})  # fmt: skip
        if rng.random() < 0.06:
            return Step("POST", self.path + self.query(), yaml.safe_dump(o), {"Content-Type": "application/yaml"})
        return Step("POST", self.path + self.query(), o, self.accept(write=True))

    def malformed(self, o: dict) -> str:
        text = json.dumps(o)
        return self.rng.choice([text[: len(text) // 2], "", "[]", "null", "{", '"text"', text.replace('"metadata"', '"metadata":{},"metadata"', 1),
                                "a: [b", text + "}", '{"kind":"Status"}', text.replace("{", "{,", 1)])  # fmt: skip

    def accept(self, write: bool = False) -> dict[str, str]:
        roll = self.rng.random()
        if roll < (0.93 if write else 0.55):
            return {}
        return {"Accept": self.rng.choice([TABLE, PARTIAL, TABLE + ",application/json", "application/yaml", PARTIALS, "text/html", "*/*",
                                           "application/cbor", "application/json;as=Table;g=meta.k8s.io;v=v9", "application/json, */*"])}  # fmt: skip

    def one(self) -> str:
        # an apply may make it: what is in no namespace is each scenario's own
        absent = "absent" if f"/namespaces/{self.namespace}/" in self.path else f"absent-{self.namespace}"
        return f"{self.path}/{self.name if self.rng.random() < 0.95 else absent}"

    def life(self) -> list[Step]:
        """What happens to one object from its creation to the next of its name."""
        rng, item = self.rng, f"{self.path}/{self.name}"
        applied = lambda manager, force="": Step("PATCH", f"{item}?fieldManager={manager}{force}", copy.deepcopy(self.base), {"Content-Type": PATCHES["apply"]})
        steps = [Step("POST", self.path, self.base), applied("one"), applied("two", rng.choice(["", "&force=true"]))]
        steps += [self.patch() for _ in range(rng.randint(2, 4))]
        steps += [rng.choice([self.status, self.subresource, self.put])() for _ in range(rng.randint(1, 3))]
        steps += [applied("one", rng.choice(["", "&force=true"])), Step("GET", item)]
        wrong = rng.choice([{"uid": "wrong"}, {"resourceVersion": "1"}, {"uid": "${uid}", "resourceVersion": "1"}])
        steps += [Step("DELETE", item, {"preconditions": wrong}), Step("DELETE", item, {"preconditions": {"resourceVersion": "${own_rv}"}})]
        return [*steps, self.create(), Step("POST", self.path, self.base), self.patch(), Step("GET", item)]

    def step(self) -> Step:
        ways = {self.get: 3, self.list: 4, self.put: 3, self.patch: 9, self.status: 2, self.delete: 1, self.watch: 0.5, self.subresource: 1.5,
                self.collection: 0.3, self.create: 1, self.odd: 0.5}  # fmt: skip
        return self.rng.choices(list(ways), list(ways.values()))[0]()

    def get(self) -> Step:
        query = "" if self.rng.random() < 0.85 else "?" + self.rng.choice(UNKNOWN_QUERIES)
        return Step("GET", self.one() + query, None, self.accept())

    def selectors(self) -> dict[str, str]:
        rng, q = self.rng, {}
        if rng.random() < 0.5:
            q["labelSelector"] = rng.choice(LABELS)
        if rng.random() < 0.4:
            field = rng.choice(["metadata.name", "metadata.namespace", "spec.other", *self.entry.get("fields", [])])
            q["fieldSelector"] = f"{field}{rng.choice(['=', '==', '!=', '=', '>'])}{rng.choice([self.name, 'x', '', self.namespace, 'a,b'])}"
        if "/namespaces/" not in self.path:
            # what other scenarios made of the kind is not looked at
            q["fieldSelector"] = f"metadata.name={self.name}"
        return q

    def list(self) -> Step:
        rng, q = self.rng, urllib.parse.urlencode(self.selectors())
        if rng.random() < 0.35:
            q = "&".join(filter(None, [q, rng.choice(UNKNOWN_QUERIES)]))
        return Step("GET", self.path + ("?" + q if q else ""), None, self.accept())

    def watch(self) -> Step:
        rng = self.rng
        q = {"watch": "1", "timeoutSeconds": "1", **self.selectors()}
        extra = rng.choice(["", "&resourceVersion=${rv}", "&resourceVersion=0", "&allowWatchBookmarks=true", "&resourceVersion=1x",
                            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "&sendInitialEvents=true",
                            "&resourceVersionMatch=NotOlderThan", "&limit=1"])  # fmt: skip
        return Step("GET", f"{self.path}?{urllib.parse.urlencode(q)}{extra}", None, self.accept())

    def put(self) -> Step:
        rng, o = self.rng, copy.deepcopy(self.base)
        for _ in range(rng.choice([0, 1, 1, 2])):
            self.mutate(o)
        meta = o.get("metadata")
        if isinstance(meta, dict) and rng.random() < 0.8:
            meta["resourceVersion"] = rng.choice(["${own_rv}", "${own_rv}", "${own_rv}", "1", "", "abc"])
        if isinstance(meta, dict) and rng.random() < 0.1:
            meta["uid"] = rng.choice(["${uid}", "wrong"])
        return Step("PUT", self.one() + self.query(), o, self.accept(write=True))

    def patch(self, subresource: str = "") -> Step:
        rng, way = self.rng, self.rng.choice(["json", "merge", "strategic", "apply", "apply"])
        path = self.one() + subresource
        changed = copy.deepcopy(self.base)
        if subresource == "/status":
            changed["status"] = copy.deepcopy(self.entry.get("status") or {"x": 1})
        spots = [self.mutate(changed) for _ in range(rng.choice([1, 1, 2]))]
        headers = {"Content-Type": PATCHES[way]}
        force = None
        if way == "json":
            body: object = [self.operation(changed, spot) for spot in spots]
            if rng.random() < 0.1:
                body = rng.choice([{}, [{"op": "what", "path": "/a"}], [{"path": "/metadata"}], "x", [{"op": "replace", "path": "/nope/x", "value": 1}],
                                   [{"op": "test", "path": "/metadata/name", "value": "other"}], [{"op": "remove", "path": "bad"}], []])  # fmt: skip
        elif way == "apply":
            body = {k: v for k, v in changed.items() if k in ("apiVersion", "kind", "metadata") or rng.random() < 0.8}
            meta = body.get("metadata")
            if isinstance(meta, dict) and meta.get("name") and not path.split("/status")[0].endswith(str(meta["name"])) and rng.random() < 0.9:
                meta["name"] = path.removesuffix(subresource).rsplit("/", 1)[1]
            force = rng.choice([None, None, "true", "false"])
            if rng.random() < 0.05:
                body["metadata"] = {**(meta if isinstance(meta, dict) else {}), "managedFields": [{"manager": "x", "operation": "Apply"}]}
            manager = rng.choice(["me", "you", "third", "me", ""])
            return Step("PATCH", path + self.query(fieldManager=manager, force=force), body, headers)
        else:
            body = difference(self.base, changed)
            if way == "strategic":
                body = self.directed(body)
            if rng.random() < 0.06:
                body = rng.choice([[], "x", {}, None, {"metadata": None}, {"metadata": {"resourceVersion": "1"}}, {"kind": "Other"},
                                   {"metadata": {"name": "other"}}, {"unknown": {"a": 1}}, {"metadata": {"labels": {"app": None}}}])  # fmt: skip
            if rng.random() < 0.05:
                force = "true"
        if rng.random() < 0.02:
            headers["Content-Type"] = rng.choice(["application/json", "application/merge-patch", "text/plain"])
        return Step("PATCH", path + self.query(force=force), body, headers)

    def operation(self, changed: object, spot: tuple) -> dict:
        rng, value = self.rng, changed
        for part in spot:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                value = None
                break
        pointer = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in spot)
        op = rng.choice(["add", "add", "replace", "replace", "remove", "test", "copy", "move"])
        if op in ("copy", "move"):
            return {"op": op, "from": rng.choice(["/metadata/labels", "/metadata/name", pointer, "/nope"]), "path": rng.choice([pointer, "/metadata/annotations"])}
        return {"op": op, "path": pointer + rng.choice(["", "", "", "/-", "/0"]), **({} if op == "remove" else {"value": value})}

    def directed(self, body: object) -> object:
        """Strategic directives, somewhere in the patch."""
        rng = self.rng
        if not isinstance(body, dict) or rng.random() < 0.6:
            return body
        spec = body.setdefault("spec", {})
        if isinstance(spec, dict):
            extra = rng.choice([
                {"containers": [{"name": "main", "$patch": "delete"}]}, {"containers": [{"name": "more", "image": "x"}]}, {"$patch": "replace"},
                {"$setElementOrder/containers": [{"name": "main"}]}, {"$retainKeys": ["containers"]}, {"tolerations": [{"key": "b", "operator": "Exists"}]},
                {"ports": [{"port": 80, "name": "other"}]}, {"$patch": "what"}, {"volumes": [{"name": "data", "$retainKeys": ["name", "configMap"],
                 "configMap": {"name": "x"}}]}, {"containers": [{"image": "nameless"}]}, {"$deleteFromPrimitiveList/finalizers": ["a"]},
            ])  # fmt: skip
            spec.update(extra)
        return body

    def status(self) -> Step:
        rng = self.rng
        if rng.random() < 0.2:
            return Step("GET", self.one() + "/status", None, self.accept())
        if rng.random() < 0.5:
            return self.patch("/status")
        o = copy.deepcopy(self.base)
        o["status"] = copy.deepcopy(self.entry.get("status") or {"x": 1})
        if rng.random() < 0.5:
            self.mutate(o, "status")
        o["metadata"]["resourceVersion"] = rng.choice(["${own_rv}", "${own_rv}", "1"])
        return Step("PUT", self.one() + "/status" + self.query(), o)

    def delete(self) -> Step:
        rng = self.rng
        body = rng.choice([None, None, {}, {"propagationPolicy": rng.choice(["Background", "Orphan", "Foreground", "What"])},
                           {"preconditions": {"uid": rng.choice(["${uid}", "wrong"])}}, {"preconditions": {"resourceVersion": rng.choice(["${own_rv}", "1"])}},
                           {"gracePeriodSeconds": rng.choice([0, 5, -1])}, {"dryRun": ["All"]}, {"orphanDependents": True, "propagationPolicy": "Orphan"},
                           {"kind": "DeleteOptions", "apiVersion": "v1"}, {"kind": "Pod", "apiVersion": "v1"}, {"foo": 1}])  # fmt: skip
        query = rng.choice(["", "", "", "?propagationPolicy=Background", "?gracePeriodSeconds=0", "?gracePeriodSeconds=x", "?dryRun=All", "?orphanDependents=true"])
        return Step("DELETE", self.one() + query, body)

    def collection(self) -> Step:
        query = {**self.selectors(), "dryRun": "All"}
        return Step("DELETE", self.path + "?" + urllib.parse.urlencode(query))

    def subresource(self) -> Step:
        rng, bodies = self.rng, self.entry.get("subresources") or {}
        if self.entry.get("scale") and (not bodies or rng.random() < 0.8):
            if rng.random() < 0.3:
                return Step("GET", self.one() + "/scale", None, self.accept())
            scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": self.name, "namespace": self.namespace},
                     "spec": {"replicas": rng.choice([0, 1, 5, -1])}}  # fmt: skip
            if rng.random() < 0.5:
                return Step("PUT", self.one() + "/scale" + self.query(), scale)
            return Step("PATCH", self.one() + "/scale" + self.query(), {"spec": {"replicas": rng.choice([0, 3, -1, "x"])}}, {"Content-Type": PATCHES["merge"]})
        if self.entry.get("finalize"):
            o = copy.deepcopy(self.base)
            o["metadata"] |= rng.choice([{}, {}, {"resourceVersion": rng.choice(["${own_rv}", "1"])}, {"uid": rng.choice(["${uid}", "wrong"])}, {"labels": {"n": "1"}}, {"name": "other"}])
            o["spec"]["finalizers"] = rng.choice([[], ["kubernetes"], ["example.com/first"], ["bad one"], ["nodomain"], ["kubernetes", "kubernetes"], None])
            if rng.random() < 0.2:
                self.mutate(o)
            return Step("PUT", self.one() + "/finalize" + self.query(), o)
        if bodies:
            name = rng.choice(list(bodies))
            if name in ("resize", "ephemeralcontainers"):
                return Step("PATCH", f"{self.one()}/{name}" + self.query(), bodies[name], {"Content-Type": PATCHES["strategic"]})
            return Step("POST", f"{self.one()}/{name}" + self.query(), bodies[name])
        return Step(rng.choice(["GET", "PUT", "POST"]), f"{self.one()}/{rng.choice(['scale', 'status', 'nothing'])}", {})

    def odd(self) -> Step:
        rng, group = self.rng, self.path.split("/namespaces/")[0].rsplit("/", 1)[0] if "/namespaces/" not in self.path else self.path.split("/namespaces/")[0]
        path = rng.choice([group, group + "/nothings", group + "/namespaces/absent/" + self.path.rsplit("/", 1)[1], "/apis/none.example.com",
                           "/apis/none.example.com/v1/x", self.path + "/a/b/c", self.path + "/", "/api/v2", self.path + "/Invalid%20Name"])  # fmt: skip
        if path == self.path + "/" and f"/namespaces/{self.namespace}/" not in path:
            # all objects of a kind without namespaces are other scenarios', too
            path += "a/b"
        return Step(rng.choice(["GET", "GET", "POST", "DELETE", "PATCH", "PUT"]), path, None)

    # -- changing an object

    def mutate(self, o: dict, only: str | None = None) -> tuple:
        """Changes one place of an object, and says where."""
        rng = self.rng
        spots = [s for s in places(o) if s and s[0] not in ("apiVersion", "kind") and (only is None or s[0] == only)
                 and (s[0] != "metadata" or (len(s) > 1 and s[1] in OWN_META and s[1] not in ("name", "finalizers")))]  # fmt: skip
        spots = spots or [("metadata",)]
        # what a kind is about counts for more than labels do
        spot = rng.choices(spots, [0.3 if s[0] == "metadata" else 1 for s in spots])[0]
        parent = o
        for part in spot[:-1]:
            parent = parent[part]
        shape = shape_at(self.type, spot)
        roll = rng.random()
        if roll < 0.15:
            if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[spot[-1]]))
            else:
                del parent[spot[-1]]
        elif roll < 0.2 and isinstance(parent[spot[-1]], dict):
            parent[spot[-1]][rng.choice(["unknown", "Name", "extra"])] = rng.choice([1, "x", {}, None])
        elif roll < 0.65 and isinstance(parent[spot[-1]], dict) and shape in TYPES:
            field = rng.choice([f for f in flat(shape) if f["j"] not in ("apiVersion", "kind", "managedFields", "status")] or [{"j": "x", "t": "string"}])
            parent[spot[-1]][field["j"]] = self.value(field["t"], field["j"])
            return (*spot, field["j"])
        elif roll < 0.72:
            parent[spot[-1]] = rng.choice([None, 5, "text", [], {}, True, 1.5, [1], {"a": "b"}])
        else:
            parent[spot[-1]] = self.value(shape, spot[-1], parent[spot[-1]])
        return spot

    def value(self, shape: str | None, name: object = "", old: object = None, depth: int = 3) -> object:
        rng = self.rng
        if shape is None:
            if isinstance(old, bool):
                return not old
            if isinstance(old, int):
                return rng.choice([0, 1, -1, 3, 11, 101, 2**31, 2**63 - 1])
            if isinstance(old, float):
                return rng.choice([0, 0.5, 1e3, -2.5])
            if isinstance(old, dict):
                return rng.choice([{}, {"a": "b"}, {**old, "more": 1}])
            if isinstance(old, list):
                return rng.choice([[], old + old, old + [1], ["a", "a"]])
            return rng.choice(WORDS)
        if shape.startswith("[]"):
            return [self.value(shape[2:], name, depth=depth - 1) for _ in range(rng.choice([0, 1, 1, 2]))]
        if shape.startswith("{}"):
            return {rng.choice([*WORDS, "cpu", "memory"]): self.value(shape[2:], name, depth=depth - 1) for _ in range(rng.choice([0, 1, 1, 2]))}
        if shape in TYPES:
            fields = [f for f in flat(shape) if f["j"] not in ("managedFields",)]
            chosen = [f for f in fields if (f.get("r") and rng.random() < 0.9) or rng.random() < 2 / (len(fields) + 1)]
            return {f["j"]: self.value(f["t"], f["j"], depth=depth - 1) for f in chosen} if depth > 0 else {}
        if shape == "string":
            return rng.choice(MEANT[name]) if name in MEANT and rng.random() < 0.8 else rng.choice(WORDS)
        if shape in ("int32", "int64"):
            return rng.choice([0, 1, -1, 2, 5, 30, 80, 420, 65536, 2**31 - 1])
        return {"boolean": lambda: rng.random() < 0.5, "number": lambda: rng.choice([0.5, 2]), # of certificates an empty one stays upstream, and is a change of whoever writes next
                "byte": lambda: rng.choice(["dmFsdWU=", "!" if name == "caBundle" else "", "!"]),
                "quantity": lambda: rng.choice(["1", "500m", "1Gi", "2000m", "-1", "abc", 5, "0", "1.5", "1e3", "0.0001"]),
                "intorstring": lambda: rng.choice([1, 0, "web", "50%", -1, 70000, "x" * 20, "abc%"]),
                "time": lambda: rng.choice(["2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "bad"]),
                "microtime": lambda: rng.choice(["2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00Z", "bad"])}.get(shape, lambda: {"a": 1})()  # fmt: skip


def type_of(o: dict) -> str | None:
    """The name in the table of types of an object's kind."""
    group, _, version = o["apiVersion"].rpartition("/")
    package = group.split(".")[0] if group else "core"
    package = {"rbac": "rbac", "coordination": "coordination"}.get(package, package)
    return next((t for t in (f"io.k8s.api.{package}.{version}.{o['kind']}",) if t in TYPES), None)


def flat(name: str) -> list[dict]:
    """The fields of a type, those of inlined ones among them."""
    out = []
    for field in TYPES[name]:
        if field.get("i"):
            out += flat(field["t"])
        elif "j" in field:
            out.append(field)
    return out


def shape_at(name: str | None, spot: tuple) -> str | None:
    """What the table says of a place in an object of that type."""
    shape = name
    for part in spot:
        if shape is None:
            return None
        if shape[:2] in ("[]", "{}"):
            shape = shape[2:]
        elif shape in TYPES:
            shape = next((f["t"] for f in flat(shape) if f["j"] == part), None)
        else:
            return None
    return shape


def places(value: object, spot: tuple = ()) -> list[tuple]:
    out = [spot]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        out += places(member, (*spot, key))
    return out


def difference(old: object, new: object) -> object:
    """A merge patch from one to the other."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    gone = {k: None for k in old if k not in new}
    return {**gone, **{k: difference(old.get(k), v) for k, v in new.items() if k not in old or old[k] != v}}
