"""Waiting reasons and where they are shown: `explain`, `get NAME` and `logs -f` name each reason that a job on a laptop can wait for, within
two seconds.

`ROWS` makes a job for each reason; `ELSEWHERE` says of the others why there is none. The binary's own list of codes (those of pods that are
not made, not placed, or whose containers do not start) is compared with both, so that a new reason without a row fails.
"""

from __future__ import annotations

import concurrent.futures
import copy
import json
import os
import pathlib
import time

import pytest
from conftest import Yard, plain_runtime, wait_for

# what is promised, and what a look itself may take on a machine that runs other tests meanwhile
SOON, SLACK = 2.0, 2.0
# by reason: what of the runtime's pod, of its container or of the job is other than usual, and objects of the namespace
ROWS: dict[str, dict] = {
    "QuotaExceeded": {"objects": [{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}]},
    "LimitRange": {"objects": [{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
                                "spec": {"limits": [{"type": "Container", "max": {"memory": "1Mi"}}]}}],
                   "trainer": {"resourcesPerNode": {"limits": {"memory": "64Mi"}}}},
    "PriorityClassMissing": {"pod": {"priorityClassName": "nope"}},
    "RuntimeClassMissing": {"pod": {"runtimeClassName": "nope"}},
    "ServiceAccountMissing": {"pod": {"serviceAccountName": "nobody"}},
    "NeverFits": {"trainer": {"resourcesPerNode": {"requests": {"cpu": "100000"}}}},
    "Busy": {"trainer": {"resourcesPerNode": {"requests": {"cpu": f"{(os.cpu_count() or 1) * 900}m"}}}, "beside": True},
    "NodeSelector": {"pod": {"nodeSelector": {"disk": "ssd"}}},
    "SchedulingGated": {"pod": {"schedulingGates": [{"name": "example.com/hold"}]}},
    "VolumeMissing": {"pod": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nope"}}]}},
    "ConfigMissing": {"container": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k"}}}]}},
}  # fmt: skip
CLUSTER = "a cluster's; played in test_explain_pods.py or crates/diagnose"
REFUSED = "refused when the job is created"
ELSEWHERE = {
    "RuntimeMissing": REFUSED, "NoController": "`up` without controllers", "AdmissionRefused": CLUSTER, "PodSecurityRefused": CLUSTER,
    "WebhookDown": CLUSTER, "NamespaceEnding": "the job goes with its namespace", "StepWaiting": CLUSTER, "PodsMissing": CLUSTER,
    "MpiJobInvalid": REFUSED, "ChildNameTaken": "an MPIJob's: e2e/mpi", "NodeTainted": CLUSTER, "PodsApart": CLUSTER, "NodesNotReady": CLUSTER,
    "GangWaiting": "another reason is named for the pod that does not fit", "Unschedulable": "what the others do not name",
    "VolumeElsewhere": CLUSTER, "VolumePending": CLUSTER, "EarlierRunEnding": "test_endings.py", "ImagePull": "images are ignored here",
    "ImagePlatform": "images are ignored here", "InvalidImage": CLUSTER, "RunsAsRoot": CLUSTER, "MountFailed": CLUSTER,
    "CannotStart": "it has failed and does not wait", "SandboxFailed": CLUSTER, "CrashLoop": "it runs between its failures", "ProbeFailed": CLUSTER,
    "PortsTaken": "test_ports.py",
}  # fmt: skip


def test_every_reason_has_a_row(yard: Yard) -> None:
    listed = json.loads(yard.run("explain", "--list", "-o", "json").stdout)
    known = {one["name"] for one in listed if one["code"][:4] in ("TY19", "TY20", "TY21")}
    assert known == set(ROWS) | set(ELSEWHERE), "a reason is new or has gone: give it a row"
    assert not set(ROWS) & set(ELSEWHERE)


class Waiting:
    """A job that waits for a reason, in a namespace of its own."""

    def __init__(self, yard: Yard, reason: str):
        self.yard, self.reason = yard, reason
        self.row, self.name = ROWS[reason], reason.lower()
        runtime = plain_runtime(self.name)
        pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod.update(self.row.get("pod", {}))
        pod["containers"][0].update(self.row.get("container", {}))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        objects = copy.deepcopy(self.row.get("objects", []))
        for one in objects:
            one["metadata"]["namespace"] = self.name
        for one in [namespace, runtime, *objects]:
            yard.kubectl("create", "-f", "-", input=json.dumps(one))
        if self.reason == "QuotaExceeded":
            quota = lambda: json.loads(yard.kubectl("get", "resourcequota", "none", "-n", self.name, "-o", "json").stdout)
            wait_for("the quota to count", lambda: quota().get("status", {}).get("hard"))
        if self.row.get("beside"):
            self.create("beside")
            yard.run("wait", "beside", "-n", self.name, "--for", "running", "--timeout", "60s")

    def create(self, name: str) -> None:
        trainer = {"command": ["sleep", "600"], **self.row.get("trainer", {})}
        job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name, "namespace": self.name},
               "spec": {"runtimeRef": {"name": self.name}, "trainer": trainer}}  # fmt: skip
        self.yard.kubectl("create", "-f", "-", input=json.dumps(job))

    def is_named(self) -> dict[str, float]:
        """How long each reader took to name it."""
        self.create("waits")
        begun = time.monotonic()
        follows = self.yard.spawn("logs", "-f", "waits", "-n", self.name)
        took: dict[str, float] = {}
        where = ("waits", "-n", self.name)
        explained = lambda: json.loads(self.yard.run("explain", *where, "-o", "json").stdout)
        try:
            wait_for(f"{self.reason} in explain", lambda: explained()["reason"] == self.reason, 20)
            took["explain"] = time.monotonic() - begun
            why = explained()["why"]
            wait_for(f"{self.reason} in get", lambda: f"({self.reason}, " in self.yard.run("get", *where).stderr, 20)
            took["get"] = time.monotonic() - begun
            # the scheduler's own sentence, or ours
            said = []
            for line in follows.stderr:
                said.append(line)
                if "waiting: " in line:
                    break
            assert said and "waiting: " in said[-1], f"{self.reason}: {said}; {why}"
            took["logs -f"] = time.monotonic() - begun
        finally:
            follows.kill()
            follows.communicate()
            self.yard.run("delete", "--all", "--yes", "--no-wait", "-n", self.name)
        return took


@pytest.mark.timeout(120)
def test_reasons_are_named_soon(yard: Yard, tmp_path: pathlib.Path) -> None:
    """Two at a time: a machine has two processors."""
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda reason: Waiting(yard, reason), ROWS))
    late = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for job, took in zip(jobs, pool.map(Waiting.is_named, jobs), strict=True):
            print(job.reason, {reader: round(seconds, 1) for reader, seconds in took.items()}, flush=True)
            late.update({(job.reason, reader): seconds for reader, seconds in took.items() if seconds > SOON + SLACK})
    assert not late, late
