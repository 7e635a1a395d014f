"""A host whose name changes: it keeps its node, or its node's pods are evicted and their jobs go on."""

import json
import pathlib

import pytest

from conftest import Yard, wait_for


def job(name: str, command: str) -> str:
    """A Job of one pod that tolerates no silence of its node."""
    toleration = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    container = {"name": "main", "image": "none", "command": ["sh", "-c", command]}
    spec = {"restartPolicy": "Never", "tolerations": [toleration], "containers": [container]}
    return json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                       "spec": {"backoffLimit": 3, "template": {"spec": spec}}})  # fmt: skip


def running(yard: Yard, name: str) -> dict | None:
    """The pod of the Job that runs."""
    pods = json.loads(yard.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json").stdout)["items"]
    return next((pod for pod in pods if pod["status"]["phase"] == "Running"), None)


def test_a_host_that_comes_back_under_another_name(tmp_path_factory: pytest.TempPathFactory, tmp_path: pathlib.Path):
    yard = Yard(tmp_path_factory.mktemp("named"))
    try:
        starts, go = tmp_path / "starts", tmp_path / "go"
        command = f"echo start >> {starts}; until [ -e {go} ]; do sleep 0.1; done"
        yard.kubectl("create", "-f", "-", input=job("long", command))
        pod = wait_for("a pod that runs", lambda: running(yard, "long"))
        first, name_file = pod["spec"]["nodeName"], yard.home / "node/node-name"
        assert name_file.read_text() == first

        # the note of the name is lost, not the pods: they tell it
        yard.kill()
        name_file.unlink()
        yard.up()
        assert name_file.read_text() == first
        assert running(yard, "long")["metadata"]["uid"] == pod["metadata"]["uid"], "the pod goes on"
        assert starts.read_text() == "start\n"

        # another name: nobody is the old node any more
        yard.kill()
        name_file.write_text("another-name")
        yard.up()
        lease = ("-n", "kube-node-lease", "patch", "lease", first, "--type=merge", "-p")
        yard.kubectl(*lease, '{"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}')  # so that nobody waits 50 s
        pod = wait_for("a pod on the other node", lambda: (found := running(yard, "long"))
                       and found["spec"]["nodeName"] == "another-name" and found)  # fmt: skip
        assert starts.read_text() == "start\n" * 2
        ready = yard.kubectl("get", "node", first, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")
        assert ready.stdout == "Unknown"
        assert "TaintManagerEviction" in yard.kubectl("get", "events").stdout
        go.touch()
        yard.kubectl("wait", "job/long", "--for=condition=Complete", "--timeout=60s")
    finally:
        yard.down()
