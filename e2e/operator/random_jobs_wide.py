"""Scenarios of `random_jobs.py` with what is rarer: fields that a JobSet hands down unseen, names and labels that clash, whole objects
that are put and applied, pods that get a node late, are evicted or forced away, and times that pass.
"""

from __future__ import annotations

import copy
import random

from random_jobs import INDEX, JOBSET, REPLICATED, Jobs, JobSets, Maker, Scenario, without_none
from random_train_lives import Lives

KEY = "jobset.sigs.k8s.io"
TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def make(seed: str, number: int, kind: str) -> Scenario:
    """The scenario of that number."""
    maker = {"job": Jobs, "jobset": JobSets, "wide-job": WideJobs, "wide-jobset": WideJobSets, "trainjob": Lives}[kind]
    return maker(random.Random(f"{kind}/{seed}/{number}"), f"{kind}-{number}").scenario()


class Wide(Maker):
    """What both have in common."""

    plural: str

    def odd_pod(self) -> dict:
        """Fields of a pod template, of which the controllers look at few."""
        rng = self.rng
        return rng.choice([
            {"subdomain": "sub"}, {"hostname": "host"}, {"setHostnameAsFQDN": True}, {"hostNetwork": True}, {"schedulerName": "mine"},
            {"priorityClassName": "system-node-critical"}, {"priorityClassName": "absent"}, {"nodeSelector": {"pool": "x"}},
            {"tolerations": [{"key": "k", "operator": "Exists"}]}, {"activeDeadlineSeconds": rng.choice([100000, 0])}, {"schedulingGates": [{"name": "example.com/g"}]},
            {"terminationGracePeriodSeconds": rng.choice([0, 5])}, {"restartPolicy": "Always"}, {"serviceAccountName": "absent"},
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}}},
            {"containers": [{"name": "main", "image": "app:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1"}}}]},
            {"containers": []}, {"containers": [{"name": "main"}]}, {"containers": [{"name": "main", "image": "app:1", "restartPolicy": "Always"}]},
            {"containers": [{"name": "main", "image": "app:1", "restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}]},
            {"shareProcessNamespace": True, "dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.0.0.1"]}},
            {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["batch.kubernetes.io/job-name"]}]},
        ])  # fmt: skip

    def odd_job(self) -> dict:
        """Fields of a Job, some of which do not go together."""
        rng = self.rng
        return rng.choice([
            {"backoffLimit": 6}, {"backoffLimit": -1}, {"parallelism": 0}, {"parallelism": -1}, {"completions": 0}, {"completions": 5, "parallelism": 5}, {"completions": 6, "parallelism": 3},
            {"completions": 3, "parallelism": 6}, {"manualSelector": True}, {"manualSelector": True, "selector": {"matchLabels": {"x": "y"}}}, {"selector": {"matchLabels": {"x": "y"}}},
            {"maxFailedIndexes": 1}, {"maxFailedIndexes": 2, "backoffLimitPerIndex": 0}, {"completionMode": "Odd"}, {"podReplacementPolicy": "Odd"},
            {"podFailurePolicy": {"rules": []}}, {"podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [0, 2]}}]}},
            {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"containerName": "ghost", "operator": "In", "values": [5, 2]}}]}},
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}, {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0, 3]}}]}},
            {"podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]}}, {"successPolicy": {"rules": [{"succeededIndexes": "1,0"}]}},
            {"successPolicy": {"rules": [{"succeededIndexes": "0-9"}]}}, {"successPolicy": {"rules": [{"succeededCount": 9}]}}, {"successPolicy": {"rules": [{}]}}, {"successPolicy": {"rules": []}},
            {"activeDeadlineSeconds": 0}, {"ttlSecondsAfterFinished": -1}, {"ttlSecondsAfterFinished": 1},
        ])  # fmt: skip

    def odd_labels(self) -> dict:
        """Labels that the controllers mean to set themselves."""
        rng = self.rng
        return rng.choice([
            {"job-name": "mine"}, {"batch.kubernetes.io/job-name": "mine"}, {"batch.kubernetes.io/controller-uid": "mine"}, {"controller-uid": "mine"},
            {INDEX: "7"}, {f"{KEY}/jobset-name": "mine"}, {REPLICATED: "mine"}, {f"{KEY}/restart-attempt": "5"}, {f"{KEY}/job-index": "9"},
            {f"{KEY}/job-key": "mine"}, {f"{KEY}/coordinator": "mine"}, {f"{KEY}/group-name": "mine"}, {f"{KEY}/priority": "1"}, {"no label": "!"},
        ])  # fmt: skip

    def bind(self) -> list[dict]:
        """Pods get a node, which is there."""
        return [{"bind": without_none(node=self.node, selector=self.maybe(0.5, f"{INDEX}=0"), limit=self.maybe(0.3, 1, 2))}]

    def evict(self) -> dict:
        return {"leave": without_none(way=self.rng.choice(["evict", "force", "delete"]), selector=self.maybe(0.5, f"{INDEX}=0"), limit=self.maybe(0.5, 1))}

    def whole(self, kind: str, change: dict) -> dict:
        """The object as it was made, with a change, put or applied."""
        verb = self.rng.choice(["update", "apply"])
        made = copy.deepcopy(self.made["create"])
        return {verb: {**(made if verb == "apply" else {"apiVersion": made["apiVersion"], "kind": kind, "metadata": {"name": made["metadata"]["name"]}}), **change}}

    def with_node(self, before: list[dict], labels: dict | None = None) -> None:
        self.node = f"golden-{self.namespace}"
        if not any(step["create"]["kind"] == "Node" for step in before):
            before.append({"create": {"apiVersion": "v1", "kind": "Node", "metadata": without_none(name=self.node, labels=labels)}})

    def expire(self) -> list[dict]:
        """Its time after the end is set, and perhaps taken back."""
        kind, spec = self.made["create"]["kind"], lambda seconds: {"spec": {"ttlSecondsAfterFinished": seconds}}
        return [self.patch(kind, spec(self.rng.choice([1, 0, 100000, None, -1])), self.name)]


class WideJobs(Wide, Jobs):
    plural = "jobs"

    def alter(self, meta: dict, spec: dict, before: list[dict]) -> None:
        rng, template = self.rng, spec["template"]
        self.bound = rng.random() < 0.3 and "nodeName" not in template["spec"]
        if self.bound:
            self.with_node(before)
        if rng.random() < 0.3:
            template["spec"] |= self.odd_pod()
        if rng.random() < 0.3:
            spec |= self.odd_job()
        if rng.random() < 0.12:
            template.setdefault("metadata", {})["labels"] = {**template.get("metadata", {}).get("labels", {}), **self.odd_labels()}
        if rng.random() < 0.12:
            template.setdefault("metadata", {}).update(rng.choice([{"name": "mine"}, {"namespace": "mine"}, {"generateName": "mine-"}, {"annotations": {INDEX: "5", "n": "1"}}, {"finalizers": ["example.com/keep"]}]))
            if "finalizers" in template["metadata"] and "nodeName" not in template["spec"]:
                template["metadata"].pop("finalizers")

    def more(self) -> dict:
        return {self.bind: 4 if self.bound else 0, self.evict: 3, self.put: 1.5, self.expire: 0.6, self.json_edit: 1, self.unknown: 0.5, self.another: 0.4, self.terminated: 4 if self.bound else 0}

    def put(self) -> dict:
        rng = self.rng
        return self.whole("Job", rng.choice([
            {"spec": {**copy.deepcopy(self.made["create"]["spec"]), **self.odd_job()}}, {"spec": {**copy.deepcopy(self.made["create"]["spec"]), "suspend": rng.random() < 0.6}},
            {"metadata": {"name": self.name, "labels": {"put": "1"}}}, {"spec": {**copy.deepcopy(self.made["create"]["spec"]), "parallelism": rng.choice([0, 4]), "completions": rng.choice([2, 4])}}]))  # fmt: skip

    def json_edit(self) -> dict:
        rng = self.rng
        return self.patch("Job", [rng.choice([
            {"op": "remove", "path": "/spec/suspend"}, {"op": "remove", "path": "/spec/backoffLimit"}, {"op": "remove", "path": "/spec/completions"}, {"op": "remove", "path": "/spec/parallelism"},
            {"op": "test", "path": "/spec/suspend", "value": True}, {"op": "replace", "path": "/spec/template/metadata/labels", "value": {"x": "y"}}, {"op": "remove", "path": "/spec/selector"},
            {"op": "add", "path": "/spec/podFailurePolicy", "value": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}},
            {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "more", "image": "app:1"}}, {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold"]},
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 100000}, {"op": "add", "path": "/spec/completions", "value": 4}])])  # fmt: skip

    def unknown(self) -> dict:
        return {"pods": without_none(phase=self.rng.choice(["Unknown", "Pending"]), selector=self.selector(), limit=self.maybe(0.4, 1), ready=False)}

    def another(self) -> dict:
        """A Job whose pods would be those of the other."""
        made = copy.deepcopy(self.made["create"])
        made["metadata"] = {"name": self.rng.choice(["b", "x" * 63, "a.b", "x" * 64, "Bad_"])}
        made["spec"] |= {"suspend": self.rng.random() < 0.5}
        return {"create": made}


class WideJobSets(Wide, JobSets):
    plural = "jobsets"

    def alter(self, meta: dict, spec: dict, before: list[dict]) -> None:
        rng = self.rng
        nodes = any(step["create"]["kind"] == "Node" for step in before)
        # not pods that follow a leader: those that were refused come again at a moment of chance, once it has its node
        self.bound = not nodes and TOPOLOGY not in meta.get("annotations", {}) and rng.random() < 0.25
        if self.bound:
            self.with_node(before, self.maybe(0.8, {"rack": "r1"}))
        jobs = spec["replicatedJobs"]
        job = rng.choice(jobs)
        template = job["template"]["spec"]["template"]
        if rng.random() < 0.35:
            template["spec"] |= self.odd_pod()
        if rng.random() < 0.25:
            job["template"]["spec"] |= self.odd_job()
        if rng.random() < 0.15:
            where = rng.choice([template, job["template"], {"metadata": meta}])
            where.setdefault("metadata", {}).setdefault("labels", {}).update(self.odd_labels())
        if rng.random() < 0.1 and not self.bound:
            where = rng.choice([template, job["template"]])
            where.setdefault("metadata", {}).setdefault("annotations", {}).update(rng.choice([
                {f"{KEY}/coordinator": "mine"}, {f"{KEY}/jobset-name": "mine"}, {TOPOLOGY: "rack"}, {f"{KEY}/restart-attempt": "5"}, {f"{KEY}/job-index": "9"}, {f"{KEY}/job-key": "x"}]))
        if rng.random() < 0.1:
            template.setdefault("metadata", {}).update(rng.choice([{"name": "mine"}, {"namespace": "mine"}, {"generateName": "mine-"}]))
        if rng.random() < 0.06:
            job["template"]["metadata"] = {**job["template"].get("metadata", {}), **rng.choice([{"name": "mine"}, {"namespace": "mine"}, {"generateName": "mine-"}, {"finalizers": ["example.com/keep"]}])}
        if rng.random() < 0.15:
            job["template"]["spec"] |= rng.choice([
                {"suspend": True}, {"suspend": False}, {"managedBy": "example.com/other"}, {"managedBy": "kubernetes.io/job-controller"},
                {"ttlSecondsAfterFinished": 100000}, {"ttlSecondsAfterFinished": 0}])  # fmt: skip
        if rng.random() < 0.12:
            self.odd(meta, spec)
        if rng.random() < 0.1:
            before.append(self.beside(spec))

    def odd(self, meta: dict, spec: dict) -> None:
        """What admission refuses, or lets through by a hair."""
        rng, jobs = self.rng, spec["replicatedJobs"]
        rules = lambda *names: spec.update(failurePolicy={"rules": [{"name": name, "action": "FailJobSet"} for name in names]})
        self.rng.choice([
            lambda: jobs[0].update(groupName=rng.choice(["Bad_", "g" * 64, "1g"])), lambda: jobs[-1].update(name=rng.choice(["Bad_", "1j", "a.b", "j" * 60, "a"])),
            lambda: jobs[0].update(replicas=rng.choice([-1, 2147483647, 100000])), lambda: rules(rng.choice(["", "1x", "a b", "x" * 129, "ok_", "bad:"])), lambda: rules("same", "same"),
            lambda: spec.update(failurePolicy={"restartStrategy": "InPlaceRestart", "maxRestarts": 1}), lambda: spec.update(failurePolicy={"maxRestarts": -1}),
            lambda: spec.update(failurePolicy={"rules": [{"action": "FailJobSet", "targetReplicatedJobs": ["ghost"]}]}), lambda: spec.update(failurePolicy={"rules": [{"action": "Odd"}]}),
            lambda: spec.update(failurePolicy={"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["Odd"]}]}), lambda: spec.update(successPolicy={"operator": "Odd"}),
            lambda: spec.update(successPolicy={"operator": "All", "targetReplicatedJobs": ["ghost", "a"]}), lambda: spec.update(startupPolicy={"startupPolicyOrder": "Odd"}), lambda: spec.update(startupPolicy={}),
            lambda: spec.update(managedBy=rng.choice(["", "plain", "a.b/" + "x" * 70, "/x", "a.io/B_c"])), lambda: spec.update(network={"subdomain": rng.choice(["", "s" * 64, "1s", "a.b"])}),
            lambda: jobs[0].update(dependsOn=[{"name": "a", "status": "Ready"}]), lambda: jobs[-1].update(dependsOn=[{"name": rng.choice(["ghost", jobs[-1]["name"]]), "status": "Complete"}]),
            lambda: jobs[-1].update(dependsOn=[{"name": "a", "status": "Odd"}]), lambda: spec.update(replicatedJobs=[]), lambda: spec.pop("replicatedJobs"), lambda: spec.update(suspend=None),
            lambda: spec.update(ttlSecondsAfterFinished=-1), lambda: spec.update(coordinator={"replicatedJob": "a", "jobIndex": -1}), lambda: spec.update(coordinator={"replicatedJob": "a", "podIndex": 9}),
            lambda: jobs[-1].update(dependsOn=[{"name": "a", "status": "Ready"}, {"name": "a", "status": "Complete"}]), lambda: spec.update(coordinator={}), lambda: meta.update(name="b" * 45),
            lambda: spec.update(volumeClaimPolicies=[{"templates": []}]), lambda: spec.update(volumeClaimPolicies=[{}]), lambda: jobs[0]["template"].pop("spec"),
        ])()  # fmt: skip
        self.name = meta["name"]

    def beside(self, spec: dict) -> dict:
        """A JobSet, or a claim, whose names are those of another's."""
        rng = self.rng
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
        other = {"apiVersion": JOBSET, "kind": "JobSet", "metadata": {"name": rng.choice(["b", "a-a"])}, "spec": without_none(
            network=rng.choice([None, {"subdomain": "sub"}, {"subdomain": "a"}]),
            replicatedJobs=[{"name": rng.choice(["a", "0"]), "template": {"spec": {"template": {"spec": pod}}}}])}  # fmt: skip
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"{rng.choice(['data', 'ckpt'])}-a"},
                 "spec": {"accessModes": [rng.choice(["ReadWriteOnce", "ReadWriteMany"])], "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
        return {"create": claim if "volumeClaimPolicies" in spec else other}

    def more(self) -> dict:
        return {self.bind: 4 if self.bound else 0, self.terminated: 3 if self.bound else 0, self.evict: 2, self.put: 1.5, self.expire: 0.5,
                self.jobs_edited: 1.5, self.claim_deleted: 0.2, self.service_edited: 0.3, self.node_edited: 0.5 if self.bound else 0, self.child_put: 0.4}  # fmt: skip

    def put(self) -> dict:
        rng, spec = self.rng, copy.deepcopy(self.made["create"]["spec"])
        change = rng.choice([{"suspend": True}, {"suspend": False}, {"ttlSecondsAfterFinished": 100000}, {"failurePolicy": {"maxRestarts": 2}}, {"network": {"enableDNSHostnames": False}}, {}])
        return self.whole("JobSet", rng.choice([{"spec": {**spec, **change}}, {"spec": {**spec, **change}}, {"metadata": {"name": self.name, "labels": {"put": "1"}}}]))

    def jobs_edited(self) -> list[dict]:
        """The list of replicated jobs changes, which it may in few ways."""
        rng = self.rng
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
        edit = rng.choice([
            {"op": "add", "path": "/spec/replicatedJobs/-", "value": {"name": "z", "template": {"spec": {"template": {"spec": pod}}}}}, {"op": "remove", "path": f"/spec/replicatedJobs/{len(self.names) - 1}"},
            {"op": "replace", "path": "/spec/replicatedJobs/0/replicas", "value": rng.choice([0, 1, 3])}, {"op": "add", "path": "/spec/replicatedJobs/0/template/spec/parallelism", "value": 3},
            {"op": "add", "path": "/spec/replicatedJobs/0/template/spec/backoffLimit", "value": 3}, {"op": "add", "path": "/spec/replicatedJobs/0/groupName", "value": "left"},
            {"op": "add", "path": "/spec/replicatedJobs/0/template/metadata/labels", "value": {"x": "y"}}, {"op": "add", "path": "/spec/replicatedJobs/0/dependsOn", "value": [{"name": "a", "status": "Ready"}]},
            {"op": "replace", "path": "/spec/replicatedJobs/0/name", "value": "other"}, {"op": "add", "path": "/spec/replicatedJobs/0/template/spec/suspend", "value": True},
            {"op": "add", "path": "/spec/replicatedJobs/0/template/spec/template/spec/priorityClassName", "value": "x"}])  # fmt: skip
        suspends = [self.patch("JobSet", {"spec": {"suspend": True}}, self.name)] if rng.random() < 0.4 else []
        return [*suspends, self.patch("JobSet", [edit], self.name)]

    def claim_deleted(self) -> dict:
        return {"delete": {"kind": "PersistentVolumeClaim", "name": f"data-{self.name}"}}

    def service_edited(self) -> dict:
        return self.patch("Service", self.rng.choice([{"spec": {"publishNotReadyAddresses": False}}, {"spec": {"selector": {"x": "y"}}}, {"metadata": {"ownerReferences": None}}, {"metadata": {"labels": {"x": "y"}}}]), self.name)

    def node_edited(self) -> dict:
        return self.patch("Node", {"metadata": {"labels": {"rack": self.rng.choice(["r2", None])}}}, self.node)

    def child_put(self) -> dict:
        """A Job of the JobSet expires, or is held to a deadline."""
        return self.patch("Job", self.rng.choice([{"spec": {"ttlSecondsAfterFinished": 0}}, {"spec": {"ttlSecondsAfterFinished": 100000}}, {"spec": {"backoffLimit": 9}}, {"spec": {"completions": 3}}]), f"{self.name}-{self.names[0]}-0")
