"""Lives of TrainJobs, in the form of the recordings: those of `random_trainjobs.py` on a runtime of their namespace, and what then happens
to them, their pods, their runtime and what was made of them.
"""

from __future__ import annotations

import copy
import random

import random_trainjobs
from random_jobs import Scenario, without_none

REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"


class Lives:
    kinds = ["TrainJob", "JobSet", "Job", "Pod", "Service", "ConfigMap", "Secret"]

    def __init__(self, rng: random.Random, namespace: str):
        self.rng, self.namespace = rng, namespace

    def scenario(self) -> Scenario:
        rng = self.rng
        case = self.case()
        runtime, job = case.runtime, case.job
        # PodGroups are the matter of test_differential.py, as are claims
        runtime["spec"].pop("podGroupPolicy", None)
        runtime["spec"]["template"]["spec"].pop("volumeClaimPolicies", None)
        runtime["kind"], runtime["metadata"] = "TrainingRuntime", {"name": "rt"}
        job["spec"]["runtimeRef"] = {"name": "rt", "kind": "TrainingRuntime"}
        job["metadata"].pop("namespace")
        if rng.random() < 0.08:
            job["metadata"]["finalizers"] = ["example.com/hold"]
        if rng.random() < 0.1:
            runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
        self.name, self.jobs = job["metadata"]["name"], [one["name"] for one in runtime["spec"]["template"]["spec"]["replicatedJobs"]]
        self.made = {"create": job}
        short = rng.random() < 0.1
        if short:
            # long enough for the status to tell of the Jobs first, even on a busy machine
            job["spec"]["activeDeadlineSeconds"] = 8
        steps = [{"create": runtime}, self.settle(), self.made]
        if short and not job["spec"].get("suspend") and "managedBy" not in job["spec"]:
            steps.append({"wait": {"kind": "TrainJob", "name": self.name, "condition": "Failed", "timeout": 20}})
        steps.append(self.settle())
        held = "finalizers" in job["metadata"]
        ways = {self.all_run: 3, self.some_run: 2, self.some_succeed: 6, self.one_fails: 4, self.suspend: 4, self.resume: 3, self.patches: 1.5, self.put: 1.5, self.delete: 1 if held else 0.4,
                self.unhold: 1 if held else 0, self.again: 0.5, self.child_deleted: 1, self.child_edited: 1, self.runtime_edited: 1, self.runtime_deleted: 0.4, self.status: 0.4, self.edit: 1.5}  # fmt: skip
        for _ in range(rng.randint(3, 7)):
            way = rng.choices(list(ways), list(ways.values()))[0]()
            for step in way if isinstance(way, list) else [way]:
                steps += [step, self.settle()]
        return Scenario(self.namespace, "TrainJob", self.kinds, [*steps, {"events": {"kinds": ["TrainJob"]}}])

    def case(self) -> random_trainjobs.Case:
        while True:
            self.maker = random_trainjobs.Maker(self.rng, self.namespace)
            case = self.maker.case()
            # those that are refused are the matter of test_differential.py
            if case.runtime and case.job["metadata"]["name"] in ("job", "train-it", "x"):
                return case

    def settle(self) -> dict:
        return {"settle": {"kinds": self.kinds}}

    def patch(self, kind: str, body: dict, name: str, **more: str) -> dict:
        return {"patch": {"kind": kind, "name": name, "type": "merge", "body": body, **more}}

    def change(self, **spec: object) -> dict:
        return self.patch("TrainJob", {"spec": spec}, self.name)

    def of_one(self) -> str:
        return f"{REPLICATED}={self.rng.choice(self.jobs)}"

    def all_run(self) -> dict:
        return {"pods": {"phase": "Running"}}

    def some_run(self) -> dict:
        return {"pods": without_none(phase="Running", selector=self.of_one(), ready=self.rng.choice([None, False]))}

    def some_succeed(self) -> dict:
        return {"pods": without_none(phase="Succeeded", selector=self.rng.choice([None, self.of_one()]))}

    def one_fails(self) -> dict:
        return {"pods": {"phase": "Failed", "selector": self.of_one(), "limit": 1, "exitCode": self.rng.choice([1, 42])}}

    def suspend(self) -> list[dict]:
        return [self.change(suspend=True), *([self.change(suspend=False)] if self.rng.random() < 0.4 else [])]

    def resume(self) -> dict:
        return self.change(suspend=False)

    def patches(self) -> list[dict]:
        patches = self.change(runtimePatches=self.maker.patches())
        return [self.change(suspend=True), patches, self.change(suspend=False)] if self.rng.random() < 0.6 else [patches]

    def put(self) -> dict:
        made = copy.deepcopy(self.made["create"])
        made["spec"]["suspend"] = self.rng.random() < 0.5
        return {self.rng.choice(["update", "apply"]): made}

    def edit(self) -> dict:
        return self.rng.choice([
            self.change(managedBy="kueue.x-k8s.io/multikueue"), self.change(activeDeadlineSeconds=self.rng.choice([100000, 0])), self.change(suspend=None),
            self.patch("TrainJob", {"metadata": {"labels": {"later": "1"}, "annotations": {"later": "1"}}}, self.name), self.change(runtimeRef={"name": "other"})])  # fmt: skip

    def delete(self) -> dict:
        return {"delete": without_none(kind="TrainJob", name=self.name, propagation=self.rng.choice([None, "Background", "Foreground", "Orphan"]))}

    def unhold(self) -> dict:
        return self.patch("TrainJob", {"metadata": {"finalizers": None}}, self.name)

    def again(self) -> dict:
        return self.made

    def child_deleted(self) -> dict:
        kind, suffix = self.rng.choice([("JobSet", ""), ("JobSet", ""), ("Job", f"-{self.jobs[-1]}-0"), ("Service", ""), ("ConfigMap", "-runtime-snapshot"), ("ConfigMap", "-mpi-hostfile"), ("Secret", "-mpi-ssh-auth")])
        return {"delete": {"kind": kind, "name": self.name + suffix, "propagation": "Background"}}

    def child_edited(self) -> dict:
        return self.patch("JobSet", self.rng.choice([
            {"metadata": {"labels": {"mine": "1"}}}, {"spec": {"suspend": True}}, {"spec": {"suspend": False}}, {"spec": {"ttlSecondsAfterFinished": 0}},
            {"metadata": {"ownerReferences": None}}]), self.name)  # fmt: skip

    def runtime_edited(self) -> dict:
        return self.patch("TrainingRuntime", self.rng.choice([
            {"metadata": {"labels": {"mine": "1"}}}, {"metadata": {"labels": {"trainer.kubeflow.org/support": "deprecated"}}},
            {"spec": {"template": {"metadata": {"labels": {"late": "1"}}}}}, {"metadata": {"finalizers": None}}]), "rt")  # fmt: skip

    def runtime_deleted(self) -> dict:
        return {"delete": {"kind": "TrainingRuntime", "name": "rt"}}

    def status(self) -> dict:
        return self.patch("TrainJob", {"status": self.rng.choice([
            {"conditions": None}, {"jobsStatus": None}, {"conditions": [{"type": "Suspended", "status": "True", "reason": "Mine", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}])},
            self.name, subresource="status")  # fmt: skip
