"""Scenarios for the Job and JobSet controllers made up at random, in the form of the recordings (`golden/replay.py`); the same
seed gives the same.

What the recordings vary one at a time is varied here together: how a Job counts and retries, what its policies say of failures
and successes, what a JobSet makes of its Jobs; and then pods run, end and are deleted, and clients suspend, resume, scale and edit.
"""

from __future__ import annotations

import dataclasses
import random

JOBSET = "jobset.x-k8s.io/v1alpha2"
INDEX = "batch.kubernetes.io/job-completion-index"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


@dataclasses.dataclass
class Scenario:
    """`kinds` are those that a settle looks at."""

    namespace: str
    kind: str
    kinds: list[str]
    steps: list[dict]


def without_none(**fields: object) -> dict:
    return {k: v for k, v in fields.items() if v is not None}


class Maker:
    kinds: list[str]

    def __init__(self, rng: random.Random, namespace: str):
        self.rng, self.namespace = rng, namespace

    def maybe(self, share: float, *values: object) -> object:
        """One of the values, or none."""
        return self.rng.choice(values) if self.rng.random() < share else None

    def settle(self) -> dict:
        return {"settle": {"kinds": self.kinds}}

    def alter(self, meta: dict, spec: dict, before: list[dict]) -> None:
        """Where a wider maker changes what is made, or what is there before it."""

    def more(self) -> dict:
        """What else may happen, of a wider maker, with weights."""
        return {}

    # -- Jobs, which are the template of JobSets as well

    def job(self, alone: bool) -> dict:
        rng = self.rng
        self.indexed = rng.random() < 0.55
        self.containers = ["main", *(["side"] if rng.random() < 0.2 else [])]
        indexed = self.indexed or rng.random() < 0.04
        counts = {"completions": rng.choice([1, 2, 2, 3, 4]) if self.indexed else self.maybe(0.6, 1, 2, 3), "parallelism": self.maybe(0.8, 0, 1, 2, 2, 3, 4)}
        if not alone:
            counts = {"completions": rng.choice([1, 1, 2, 4]), "parallelism": rng.choice([1, 1, 2, 4])}
        spec = without_none(
            **counts,
            completionMode="Indexed" if self.indexed else self.maybe(0.2, "NonIndexed"),
            backoffLimit=self.maybe(0.6, 0, 0, 1, 2),
            backoffLimitPerIndex=self.maybe(0.35, 0, 0, 1) if indexed else None,
            podFailurePolicy=self.failures(indexed) if rng.random() < 0.35 else None,
            successPolicy={"rules": [self.success() for _ in range(rng.choice([1, 1, 2]))]} if indexed and rng.random() < 0.25 else None,
            podReplacementPolicy=self.maybe(0.3, "Failed", "TerminatingOrFailed", "Failed"),
            activeDeadlineSeconds=self.maybe(0.1, 100000),
        )
        if "backoffLimitPerIndex" in spec and rng.random() < 0.3:
            spec["maxFailedIndexes"] = rng.choice([0, 1, 1])
        if alone:
            spec |= without_none(suspend=self.maybe(0.2, True, False), ttlSecondsAfterFinished=self.maybe(0.07, 0, 100000),
                                 managedBy=self.maybe(0.03, "example.com/other", "kubernetes.io/job-controller"))  # fmt: skip
        metadata = without_none(labels=self.maybe(0.2, {"app": "one"}), annotations=self.maybe(0.15, {"note": "x"}))
        node = self.maybe(0.2, f"golden-{self.namespace}") if alone else None
        # one that is held without a node is ended by upstream at a moment of chance, within 20 s
        if node and rng.random() < 0.2:
            metadata["finalizers"] = ["example.com/keep"]
        policies: list[str | None] = ["Never"] * 6 + ["OnFailure"] * 2 if alone else ["Never"] * 6 + ["OnFailure", None]
        spec["template"] = {
            **({"metadata": metadata} if metadata else {}),
            "spec": without_none(
                restartPolicy=rng.choice(policies),
                containers=[{"name": name, "image": "app:1"} for name in self.containers],
                initContainers=self.maybe(0.1, [{"name": "early", "image": "app:1"}], [{"name": "early", "image": "app:1", "restartPolicy": "Always"}]),
                # a pod that is deleted stays until a kubelet says that it has ended, where it has a node
                nodeName=node,
                subdomain=self.maybe(0.1, "svc") if alone else None,
            ),
        }
        self.in_place = spec["template"]["spec"].get("restartPolicy") != "Never"
        return spec

    def failures(self, indexed: bool) -> dict:
        return {"rules": [self.failure(indexed) for _ in range(self.rng.choice([1, 1, 2, 3]))]}

    def failure(self, indexed: bool) -> dict:
        rng = self.rng
        action = rng.choice(["FailJob", "Ignore", "Count", *(["FailIndex"] * 2 if indexed else [])])
        if rng.random() < 0.4:
            return {"action": action, "onPodConditions": [without_none(type=rng.choice(["DisruptionTarget", "DisruptionTarget", "Custom"]), status=self.maybe(0.5, "True", "False"))]}
        codes = {"operator": rng.choice(["In", "In", "NotIn"]), "values": rng.choice([[1], [42], [1, 42], [3, 42, 137]])}
        return {"action": action, "onExitCodes": without_none(containerName=self.maybe(0.25, "main", "main", "side"), **codes)}

    def success(self) -> dict:
        indexes = self.maybe(0.7, "0", "1", "0-1", "0,2", "1-3")
        return without_none(succeededIndexes=indexes, succeededCount=self.maybe(0.5 if indexes else 1, 1, 1, 2))

    def ends(self, selector: str | None) -> dict:
        """A step in which pods end."""
        rng = self.rng
        if rng.random() < 0.5:
            return {"pods": without_none(phase="Succeeded", selector=selector, limit=self.maybe(0.4, 1, 1, 2))}
        return {"pods": without_none(
            phase="Failed", selector=selector, limit=self.maybe(0.6, 1, 1, 2), exitCode=self.maybe(0.7, 1, 42, 42, 3, 137),
            container=self.maybe(0.3, *self.containers), reason=self.maybe(0.2, "Evicted", "NodeLost"), message=self.maybe(0.2, "it went wrong"),
            conditions=self.maybe(0.3, [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
                                  [{"type": "Custom", "status": "False"}]),
        )}  # fmt: skip

    def runs(self, selector: str | None) -> dict:
        restarts = self.maybe(0.5 if self.in_place else 0.05, 0, 1, 1, 2, 3)
        return {"pods": without_none(phase="Running", selector=selector, limit=self.maybe(0.4, 1, 2), ready=self.maybe(0.25, False), restarts=restarts)}

    def patch(self, kind: str, body: dict | list, name: str = "a") -> dict:
        return {"patch": {"kind": kind, "name": name, "type": "json" if isinstance(body, list) else "merge", "body": body}}

    def edit_pods(self, selector: str | None) -> dict:
        """Somebody edits pods that a controller has made: what it keeps in them, and by what it knows them."""
        body = self.rng.choice([
            {"metadata": {"finalizers": None}}, {"metadata": {"labels": {"seen": "1"}}},
            {"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "other", "controller-uid": "other", "app": "other"}}},
            {"metadata": {"ownerReferences": None}}, {"metadata": {"annotations": {INDEX: self.rng.choice(["1", "7", "x", None])}}},
            {"metadata": {"annotations": {"batch.kubernetes.io/job-index-failure-count": self.rng.choice(["0", "3", "x"])}}}])  # fmt: skip
        return {"patch": {"kind": "Pod", "selector": selector or "batch.kubernetes.io/job-name", "type": "merge", "body": body}}

    def template_edits(self, where: str) -> list[dict]:
        """What may change in the template of a suspended Job, and what may not, as a patch of its parts."""
        rng = self.rng
        edits = [
            ("metadata", {"labels": {"queue": "x"}, "annotations": {"n": "1"}}), ("spec/nodeSelector", {"pool": "y"}),
            ("spec/tolerations", [{"key": "k", "operator": "Exists"}]), ("spec/schedulingGates", [{"name": "example.com/g"}]),
            ("spec/affinity", {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}]}}),
            ("spec/containers/0/resources", {"requests": {"cpu": "1"}}), ("spec/containers/0/image", "app:2"), ("spec/priorityClassName", "x"),
        ]  # fmt: skip
        names = rng.sample(edits[:4], rng.randint(1, 3)) if rng.random() < 0.6 else rng.sample(edits, rng.randint(1, 2))
        # labels are added one by one: the controllers' own stay
        return [{"op": "add", "path": f"{where}/{path}", "value": value} for path, value in names if path != "metadata"] + [
            {"op": "add", "path": f"{where}/metadata/labels/queue", "value": rng.choice(["x", "y"])} for path, _ in names if path == "metadata"]


    def terminated(self) -> dict:
        """Pods that are being deleted end."""
        return {"pods": {"phase": self.rng.choice(["Failed", "Failed", "Succeeded"]), "terminating": True}}


class Jobs(Maker):
    kinds = ["Job", "Pod"]

    def scenario(self) -> Scenario:
        rng = self.rng
        spec = self.job(alone=True)
        meta = without_none(name="a", labels=self.maybe(0.2, {"own": "label"}), finalizers=self.maybe(0.1, ["example.com/hold"]))
        template = spec["template"]
        before = []
        self.account = None
        if template["spec"].get("nodeName"):
            before.append({"create": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"golden-{self.namespace}"}}})
        if rng.random() < 0.06:
            # its pods are refused until somebody makes the account
            self.account = template["spec"]["serviceAccountName"] = "later"
        if rng.random() < 0.08:
            spec |= {"manualSelector": True, "selector": {"matchLabels": {"app": "one"}}}
            template["metadata"] = {**template.get("metadata", {}), "labels": {"app": "one"}}
            if rng.random() < 0.6:
                before.append(self.stray())
        self.alter(meta, spec, before)
        self.name = meta["name"]
        self.made = {"create": {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}}
        steps = [*before, self.made, self.settle()]
        if rng.random() < 0.07:
            steps = [*before, *self.too_long(spec)]
        held = "finalizers" in meta or "finalizers" in template.get("metadata", {})
        ways = {self.some_end: 8, self.some_run: 3, self.suspend: 2, self.scale: 2, self.edit: 1.5, self.delete_pods: 1.5,
                self.delete: 1.5 if held else 0.3, self.unhold: 1 if held else 0, self.again: 0.2,
                self.suspended_edit: 0.8, self.pods_edited: 0.5, self.stray: 0.3, self.orphan: 0.2, self.status: 0.2,
                self.make_account: 4 if self.account else 0, self.terminated: 2 if "nodeName" in template["spec"] else 0, **self.more()}  # fmt: skip
        for _ in range(rng.randint(3, 7)):
            way = rng.choices(list(ways), list(ways.values()))[0]()
            for step in way if isinstance(way, list) else [way]:
                steps += [step, self.settle()]
        return Scenario(self.namespace, "Job", self.kinds, [*steps, {"events": {"without": "already exists$"}}])

    def too_long(self, spec: dict) -> list[dict]:
        """A Job whose deadline passes while nothing else happens, perhaps since it was resumed."""
        spec["activeDeadlineSeconds"] = 2
        over = "FailureTarget" if "nodeName" in spec["template"]["spec"] else "Failed"
        resumed = [self.settle(), self.patch("Job", {"spec": {"suspend": False}})] if spec.get("suspend") else []
        return [self.made, *resumed, {"wait": {"kind": "Job", "name": "a", "condition": over, "timeout": 12}}, self.settle()]

    def again(self) -> dict:
        """The same Job once more, where it is gone by then."""
        return self.made

    def unhold(self) -> dict:
        return self.patch("Job", {"metadata": {"finalizers": None}})

    def suspended_edit(self) -> list[dict]:
        steps = [self.patch("Job", {"spec": {"suspend": True}})] if self.rng.random() < 0.7 else []
        steps.append(self.patch("Job", self.template_edits("/spec/template")))
        return steps + ([self.patch("Job", {"spec": {"suspend": False}})] if self.rng.random() < 0.7 else [])

    def pods_edited(self) -> dict:
        return self.edit_pods(self.selector())

    def stray(self) -> dict:
        """A pod that no controller has made."""
        index = self.maybe(0.5, "0", "1", "9")
        meta = without_none(name=self.rng.choice(["stray", "stray", "other"]), labels={"app": "one"}, annotations=index and {INDEX: index},
                            finalizers=self.maybe(0.3, ["batch.kubernetes.io/job-tracking"]))  # fmt: skip
        return {"create": {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}}

    def orphan(self) -> dict:
        return {"delete": {"kind": "Job", "name": "a", "propagation": "Orphan"}}

    def status(self) -> dict:
        """Somebody writes into the status."""
        step = self.patch("Job", {"status": self.rng.choice([
            {"active": 7}, {"ready": 1}, {"terminating": 3}, {"failed": 2}, {"succeeded": 1}, {"completedIndexes": "0"}, {"failedIndexes": "1"},
            {"startTime": None}, {"conditions": []}, {"uncountedTerminatedPods": {"failed": ["not-there"]}},
            {"conditions": [{"type": "FailureTarget", "status": "True", "reason": "Mine", "message": "so it is"}]},
            {"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "Mine", "message": "so it is"}]}])})  # fmt: skip
        step["patch"]["subresource"] = "status"
        return step

    def make_account(self) -> dict:
        return {"create": {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "later"}}}

    def selector(self) -> str | None:
        return self.maybe(0.6, *(f"{INDEX}={n}" for n in (0, 0, 1, 2)), f"{INDEX} in (0,1)") if self.indexed else None

    def some_end(self) -> dict:
        return self.ends(self.selector())

    def some_run(self) -> dict:
        return self.runs(self.selector())

    def suspend(self) -> dict:
        return self.patch("Job", {"spec": {"suspend": self.rng.random() < 0.6}})

    def scale(self) -> dict:
        # which of several indexes goes first whose pods are alike is chance upstream
        n = self.rng.choice([0, 4] if self.indexed else [0, 1, 2, 3, 4])
        size = self.rng.choice([0, 1, 2, 3, 4])
        both = {"parallelism": size, "completions": max(size, 1)}
        return self.patch("Job", {"spec": self.rng.choice([both, {"parallelism": n}, {"parallelism": n}, {"completions": n}])})

    def edit(self) -> dict:
        template = lambda **pod: {"spec": {"template": {"spec": pod}}}
        return self.patch("Job", self.rng.choice([
            {"spec": {"backoffLimit": 4}}, {"spec": {"ttlSecondsAfterFinished": 100000}}, {"spec": {"activeDeadlineSeconds": 1}},
            {"spec": {"podFailurePolicy": None}}, {"spec": {"completionMode": "Indexed"}}, {"metadata": {"labels": {"new": "label"}}},
            {"spec": {"backoffLimitPerIndex": 1}}, {"spec": {"maxFailedIndexes": 2}}, {"spec": {"successPolicy": {"rules": [{"succeededCount": 1}]}}},
            {"spec": {"podReplacementPolicy": "Failed"}}, {"spec": {"managedBy": "example.com/other"}}, {"spec": {"manualSelector": True}},
            template(nodeSelector={"pool": "x"}), template(tolerations=[{"key": "k", "operator": "Exists"}]),
            template(containers=[{"name": "main", "image": "app:2"}]), template(restartPolicy="OnFailure"),
            {"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}}]))  # fmt: skip

    def delete_pods(self) -> dict:
        selector = self.rng.choice(["batch.kubernetes.io/job-name%3Da", f"{INDEX}%3D0" if self.indexed else "batch.kubernetes.io/job-name%3Da"])
        return {"request": {"method": "DELETE", "path": f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={selector}", "only": "kind"}}

    def delete(self) -> dict:
        return {"delete": without_none(kind="Job", name="a", propagation=self.maybe(0.8, "Background", "Foreground", "Orphan"))}


class JobSets(Maker):
    kinds = ["JobSet", "Job", "Pod", "Service", "PersistentVolumeClaim"]

    def scenario(self) -> Scenario:
        rng = self.rng
        names = ["a", "b", "c"][: rng.choice([1, 1, 2, 2, 3])]
        self.names = names
        spec = without_none(
            replicatedJobs=[self.replicated(i) for i in range(len(names))],
            suspend=self.maybe(0.2, True, False),
            successPolicy=self.maybe(0.3, {"operator": rng.choice(["All", "Any"]), **without_none(targetReplicatedJobs=self.maybe(0.6, names[:1], names[-1:], ["ghost"] if rng.random() < 0.1 else names))}),
            failurePolicy=self.policy() if rng.random() < 0.6 else None,
            startupPolicy=self.maybe(0.2, {"startupPolicyOrder": "InOrder"}, {"startupPolicyOrder": "AnyOrder"}),
            network=self.maybe(0.25, {"subdomain": "sub"}, {"enableDNSHostnames": False}, {"enableDNSHostnames": True, "publishNotReadyAddresses": False}, {}, {"subdomain": "Bad_"}),
            coordinator=self.maybe(0.12, {"replicatedJob": names[-1]}, {"replicatedJob": names[0], "jobIndex": 0, "podIndex": 0}, {"replicatedJob": names[0], "jobIndex": 1}, {"replicatedJob": names[0], "podIndex": 1}, {"replicatedJob": "ghost"}),
            ttlSecondsAfterFinished=self.maybe(0.05, 100000, 0),
            managedBy=self.maybe(0.03, "example.com/other", "jobset.sigs.k8s.io/jobset-controller"),
        )
        self.any_will_do = spec.get("successPolicy", {}).get("operator") == "Any"
        annotations = self.maybe(0.1, {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}, {"note": "x"},
                                 {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", "alpha.jobset.sigs.k8s.io/node-selector": "true"})  # fmt: skip
        if rng.random() < 0.12:
            self.claim(spec)
        meta = without_none(name=rng.choice(["a"] * 12 + ["x" * 60, "a.b"]), labels=self.maybe(0.2, {"own": "label"}), annotations=annotations,
                            finalizers=self.maybe(0.06, ["example.com/hold"]))  # fmt: skip
        self.name = meta["name"]
        self.made = {"create": {"apiVersion": JOBSET, "kind": "JobSet", "metadata": meta, "spec": spec}}
        before = []
        placed = rng.random() < 0.12
        if placed:
            # pods that have a node by themselves: leaders that followers follow, and pods that end slowly
            node = f"golden-{self.namespace}"
            before.append({"create": {"apiVersion": "v1", "kind": "Node", "metadata": without_none(name=node, labels=self.maybe(0.8, {"rack": "r1"}))}})
            for replicated in rng.sample(spec["replicatedJobs"], rng.randint(1, len(spec["replicatedJobs"]))):
                replicated["template"]["spec"]["template"]["spec"]["nodeName"] = node
            if rng.random() < 0.6:
                exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
                rng.choice([meta, spec["replicatedJobs"][0]["template"].setdefault("metadata", {})]).setdefault("annotations", {}).update(exclusive)
        if rng.random() < 0.08:
            before.append(self.taken())
            # what upstream is refused first, for its name or for what is wrong with it, is not told apart here
            spec["replicatedJobs"][-1]["template"]["spec"].pop("podFailurePolicy", None)
        self.alter(meta, spec, before)
        steps = [*before, self.made, self.settle()]
        held = "finalizers" in meta
        ways = {self.some_end: 8, self.some_run: 3, self.suspend: 2, self.edit: 2, self.delete_one: 1, self.delete: 1.5 if held else 0.3,
                self.unhold: 1 if held else 0, self.again: 0.2, self.suspended_edit: 1, self.child: 1, self.pods_edited: 0.3, self.status: 0.2,
                self.all_run: 1, self.one_fails: 3, self.terminated: 3 if placed else 0, **self.more()}  # fmt: skip
        for _ in range(rng.randint(3, 7)):
            way = rng.choices(list(ways), list(ways.values()))[0]()
            for step in way if isinstance(way, list) else [way]:
                steps += [step, self.settle()]
        # which of these come is a matter of what a controller has seen yet
        without = "already exists$|AllJobsReady|JobsReady|AllReplicatedJobsStarted"
        return Scenario(self.namespace, "JobSet", self.kinds, [*steps, {"events": {"kinds": ["JobSet", "Job"], "without": without}}])

    def replicated(self, place: int) -> dict:
        rng, before = self.rng, self.names[:place]
        metadata = without_none(labels=self.maybe(0.1, {"job": "label"}), annotations=self.maybe(0.1, {"job": "note"}))
        names = rng.sample(before, rng.randint(1, len(before))) if before and rng.random() < 0.3 else []
        depends = [{"name": name, "status": rng.choice(["Ready", "Complete"])} for name in names] or None
        return without_none(
            name=self.names[place], replicas=self.maybe(0.5, 1, 2, 2, 0), groupName=self.maybe(0.1, "left", "right"), dependsOn=depends,
            template={**({"metadata": metadata} if metadata else {}), "spec": self.job(alone=False)},
        )  # fmt: skip

    def claim(self, spec: dict) -> None:
        """Claims, and containers that mount some of them."""
        rng = self.rng
        names = rng.sample(["data", "ckpt"], rng.randint(1, 2))
        template = lambda name: {"metadata": without_none(name=name, labels=self.maybe(0.3, {"l": "1"}), annotations=self.maybe(0.3, {"n": "1"})),
                                 "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
        spec["volumeClaimPolicies"] = [without_none(templates=[template(name)], retentionPolicy=self.maybe(0.7, {"whenDeleted": "Retain"}, {"whenDeleted": "Delete"}, {}))
                                       for name in names]  # fmt: skip
        for replicated in spec["replicatedJobs"]:
            container = replicated["template"]["spec"]["template"]["spec"]["containers"][0]
            container["volumeMounts"] = [{"name": name, "mountPath": f"/{name}"} for name in names if rng.random() < 0.8]

    def taken(self) -> dict:
        """Something that bears the name of a child already."""
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"a-{self.names[-1]}-0"}, "spec": {"suspend": True, "template": {"spec": pod}}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"clusterIP": "None", "selector": {"mine": "1"}}}
        return {"create": self.rng.choice([job, service])}

    def again(self) -> dict:
        """The same JobSet once more, where it is gone by then."""
        return self.made

    def unhold(self) -> dict:
        return self.patch("JobSet", {"metadata": {"finalizers": None}}, self.name)

    def suspended_edit(self) -> list[dict]:
        """Templates change while all is suspended, with what else the same patch says."""
        rng, place = self.rng, self.rng.randrange(len(self.names))
        where = f"/spec/replicatedJobs/{place}/template/spec/template"
        edits = [{"op": "add", "path": f"{where}/metadata", "value": {"labels": {"queue": "x"}, "annotations": {"n": "1"}}}] if rng.random() < 0.4 else [
            edit for edit in self.template_edits(where) if "/metadata/" not in edit["path"]]  # fmt: skip
        together = rng.random() < 0.3
        steps = [] if together or rng.random() < 0.2 else [self.patch("JobSet", {"spec": {"suspend": True}}, self.name)]
        if together:
            edits.insert(0, {"op": "add", "path": "/spec/suspend", "value": rng.random() < 0.5})
        if edits:
            steps.append(self.patch("JobSet", edits, self.name))
        return steps + ([self.patch("JobSet", {"spec": {"suspend": False}}, self.name)] if rng.random() < 0.7 else [])

    def child(self) -> dict:
        """Somebody edits a Job of the JobSet, or holds it."""
        rng = self.rng
        # not to some of its pods: which indexes go is chance. Not its suspension: where the JobSet resumes it before the Job controller has seen that, it has no start time upstream
        return self.patch("Job", rng.choice([
            {"metadata": {"finalizers": ["example.com/keep"]}}, {"metadata": {"finalizers": ["example.com/keep"]}}, {"metadata": {"finalizers": None}},
            {"metadata": {"finalizers": None}}, {"spec": {"suspend": False}}, {"metadata": {"labels": {"mine": "1"}}},
            {"metadata": {"ownerReferences": None}}, {"spec": {"parallelism": rng.choice([0, 4])}}, {"spec": {"activeDeadlineSeconds": 1}},
            {"metadata": {"labels": {"jobset.sigs.k8s.io/restart-attempt": rng.choice([None, "0", "1", "x"])}}},
            {"metadata": {"labels": {REPLICATED: rng.choice([None, "ghost", self.names[-1]])}}}]),
            f"{self.name}-{rng.choice(self.names)}-{rng.choice([0, 0, 1])}")  # fmt: skip

    def pods_edited(self) -> dict:
        return self.edit_pods(self.selector())

    def status(self) -> dict:
        """Somebody writes into the status."""
        step = self.patch("JobSet", {"status": self.rng.choice([
            {"restarts": 1}, {"restarts": 2, "restartsCountTowardsMax": 1}, {"terminalState": "Completed"}, {"replicatedJobsStatus": []}, {"restartsCountTowardsMax": 5},
            {"conditions": [{"type": "Completed", "status": "True", "reason": "Mine", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            {"conditions": [{"type": "RestartingJobSet", "status": "True", "reason": "Mine", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}])}, self.name)  # fmt: skip
        step["patch"]["subresource"] = "status"
        return step

    def all_run(self) -> dict:
        return {"pods": {"phase": "Running"}}

    def one_fails(self) -> dict:
        """One pod of one Job."""
        return {"pods": without_none(phase="Failed", selector=self.one_job(), limit=1, exitCode=self.maybe(0.5, 1, 42, 3))}

    def policy(self) -> dict:
        rng = self.rng
        rules = [without_none(
            name=self.maybe(0.3, "one", "two"),
            action=rng.choice(["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob", "RestartJobAndIgnoreMaxRestarts"][:3 if rng.random() < 0.85 else 5]),
            onJobFailureReasons=self.maybe(0.4, ["BackoffLimitExceeded"], ["PodFailurePolicy"], ["DeadlineExceeded", "FailedIndexes"], ["MaxFailedIndexesExceeded"]),
            onJobFailureMessagePatterns=self.maybe(0.1, ["backoff limit"], ["exit code 4[0-9]"], ["("]),
            targetReplicatedJobs=self.maybe(0.3, self.names[:1], self.names[-1:]),
        ) for _ in range(rng.choice([1, 1, 2]))] if rng.random() < 0.6 else None  # fmt: skip
        return without_none(maxRestarts=self.maybe(0.8, 0, 1, 1, 2), restartStrategy=self.maybe(0.3, "Recreate", "BlockingRecreate"), rules=rules)

    def selector(self) -> str | None:
        one = self.maybe(0.7, *self.names)
        return one and f"{REPLICATED}={one}" + self.rng.choice(["", "", ",jobset.sigs.k8s.io/job-index=0"])

    def one_job(self) -> str:
        return f"{REPLICATED}={self.rng.choice(self.names)},jobset.sigs.k8s.io/job-index={self.rng.choice([0, 0, 1])}"

    def some_end(self) -> dict:
        step = self.ends(self.selector())
        if step["pods"]["phase"] == "Failed" or self.any_will_do:
            # which of several Jobs ends first, and decides what becomes of the others, is chance
            step["pods"]["selector"] = self.one_job()
        return step

    def some_run(self) -> dict:
        return self.runs(self.selector())

    def suspend(self) -> dict:
        return self.patch("JobSet", {"spec": {"suspend": self.rng.random() < 0.6}}, self.name)

    def edit(self) -> dict:
        # not a success policy that goes: upstream's controller does not survive the first Job that then ends, nor without a network a suspension
        return self.patch("JobSet", self.rng.choice([
            {"spec": {"failurePolicy": {"maxRestarts": 3}}}, {"spec": {"failurePolicy": None}}, {"spec": {"network": {}}},
            {"spec": {"successPolicy": {"operator": "Any"}}}, {"spec": {"startupPolicy": None}}, {"spec": {"network": {"subdomain": "other"}}},
            {"spec": {"ttlSecondsAfterFinished": 100000}}, {"spec": {"managedBy": "example.com/other"}}, {"spec": {"coordinator": {"replicatedJob": "a"}}},
            {"spec": {"suspend": None}}, {"spec": {"volumeClaimPolicies": None}}, {"spec": {"ttlSecondsAfterFinished": 0}},
            {"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}},
            {"metadata": {"labels": {"new": "label"}}}, {"spec": {"replicatedJobs": []}}, {"spec": {"replicatedJobs": None}}]), self.name)  # fmt: skip

    def delete_one(self) -> dict:
        """Something that the JobSet has made goes."""
        return {"delete": {"kind": self.rng.choice(["Job", "Job", "Service"]), "propagation": self.rng.choice(["Background", "Foreground", "Orphan"]),
                           "name": self.rng.choice([f"{self.name}-{self.names[0]}-0", f"{self.name}-{self.names[-1]}-0", self.name])}}  # fmt: skip

    def delete(self) -> dict:
        return {"delete": without_none(kind="JobSet", name=self.name, propagation=self.maybe(0.8, "Background", "Foreground", "Orphan"))}
