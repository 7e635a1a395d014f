"""Faults on played pods: what `trainyard explain` makes of statuses and events that a cluster's scheduler and kubelets write.

The control plane has no node, so that the test plays it. The cases are data (`faults/pods.yaml`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from conftest import ROOT, Yard, plain_runtime, stop, wait_for
from test_explain_faults import check_command, explained

CASES = yaml.safe_load((ROOT / "e2e/faults/pods.yaml").read_text())
LONG = 30


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    started = Yard(tmp_path_factory.mktemp("home"), "--no-node", "--controllers", "all")
    started.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("bare", None, None)))
    yield started
    stop(started)


def only(yard: Yard, kind: str, name: str) -> dict | None:
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    items = json.loads(yard.kubectl("get", kind, "-l", selector, "-o", "json").stdout)["items"]
    return items[0] if items else None


def played(yard: Yard, name: str, case: dict) -> None:
    """Makes the job, and writes what the cluster would."""
    restarts = "CrashLoop" in json.dumps(case.get("status", {}))
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": name, "annotations": {} if restarts else {"trainyard.dev/failure-policy": "fail-fast"}},
        "spec": {"runtimeRef": {"name": "bare"}, "trainer": {"image": "x", "command": ["train"]}},
    }  # fmt: skip
    if case.get("no_pods"):
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        yard.kubectl("apply", "-f", "-", input=json.dumps(quota))
    yard.kubectl("create", "-f", "-", input=json.dumps(manifest))
    about = {"Job": wait_for("its Job", lambda: only(yard, "job", name), LONG)}
    if not case.get("no_pods"):
        about["Pod"] = wait_for("its pod", lambda: only(yard, "pod", name), LONG)
    for count, event in enumerate(case.get("events", [])):
        regarding = about[event.get("about", "Pod")]
        body = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{name}.{count}"},
            "involvedObject": {"kind": regarding["kind"], "name": regarding["metadata"]["name"], "namespace": "default",
                               "uid": regarding["metadata"]["uid"], "apiVersion": regarding["apiVersion"]},
            "type": event["type"], "reason": event["reason"], "message": event["message"], "source": {"component": "played"},
            "firstTimestamp": "2030-01-01T00:00:00Z", "lastTimestamp": "2030-01-01T00:00:00Z", "count": 1,
        }  # fmt: skip
        yard.kubectl("create", "-f", "-", input=json.dumps(body))
    if "status" in case and "Pod" in about:
        pod = about["Pod"]["metadata"]["name"]
        yard.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps({"status": case["status"]}))


@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", CASES)
def test_the_reason_is_named(yard: Yard, name: str):
    case = CASES[name]
    played(yard, name, case)
    try:
        state = case.get("state", "failed")
        wait_for(f"state {state}", lambda: explained(yard, name)["state"] == state, LONG)
        told = explained(yard, name)
        assert re.fullmatch(case["reason"], told["reason"]), told
        assert any(re.search(case["evidence"], quote["text"]) for quote in told["evidence"]), told
        assert told["remedies"], told
        for remedy in told["remedies"]:
            if remedy["command"]:
                check_command(remedy["command"], name)
        if "next" in case:
            assert any(re.search(case["next"], f"{remedy['text']} {remedy['command']}") for remedy in told["remedies"]), told
    finally:
        yard.kubectl("delete", "trainjob", name, "--wait=false")
        yard.kubectl("delete", "resourcequota", "none", "--ignore-not-found")
