"""`trainyard describe` and `get -o wide`: why a job waits, in words that say what to do."""

import json
import pathlib

import pytest

from conftest import Yard, wait_for
from test_annotations import create, manifest, runtime, step, apply_runtime  # noqa: F401 (runtime is a fixture)

LONG = 120


def told(yard: Yard, name: str, text: str) -> str:
    """What `describe` says once it says this."""

    def look() -> str:
        said = yard.run("describe", name).stdout
        return said if text in said else ""

    return wait_for(f"{name}: {text}", look, LONG)


def test_what_does_not_fit_says_what_is_missing(yard: Yard, runtime: str):  # noqa: F811
    spec = {"trainer": {"command": ["true"], "resourcesPerNode": {"requests": {"cpu": "10k"}}}}
    create(yard, "huge", runtime, "true", spec)
    said = told(yard, "huge", "Insufficient cpu")
    assert "0/1 nodes are available" in said and "State:      Pending" in said
    wide = yard.run("get", "-o", "wide").stdout
    assert any("huge" in line and "needs 10k cpu" in line for line in wide.splitlines()), wide
    why = json.loads(yard.run("describe", "huge", "-o", "json").stdout)
    assert len(why["explanation"]) == 1 and "needs 10k cpu" in why["explanation"][0]
    assert why["diagnosis"]["reason"] == "NeverFits"
    yard.run("delete", "huge")


def test_a_quota_that_is_full_is_named(yard: Yard, runtime: str):  # noqa: F811
    yard.kubectl("create", "namespace", "full")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    yard.kubectl("apply", "-n", "full", "-f", "-", input=json.dumps(quota))
    # the quota counts from when its status says what is used
    used = lambda: json.loads(yard.kubectl("get", "-n", "full", "quota", "none", "-o", "json").stdout).get("status", {}).get("used")
    wait_for("the quota to be summed up", used, LONG)
    body = json.loads(manifest("barred", runtime, "true"))
    body["spec"]["runtimeRef"] = {"name": "torch-distributed"}
    yard.kubectl("create", "-n", "full", "-f", "-", input=json.dumps(body))
    said = wait_for("the quota to be named", lambda: "exceeded quota: none" in (s := yard.run("describe", "barred", "--namespace", "full").stdout) and s, LONG)
    assert "quota none refuses its pods" in said
    yard.kubectl("delete", "namespace", "full", "--wait=false")


def test_a_step_that_waits_for_another_says_for_which(yard: Yard, tmp_path: pathlib.Path):
    gate = tmp_path / "gate"
    first = step("dataset-initializer", "dataset-initializer")
    container = first["template"]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f"while ! test -e {gate}; do sleep 0.1; done"]
    awaited = {"name": "dataset-initializer", "status": "Complete"}
    apply_runtime(yard, "gated", [first, step("node", "trainer", dependsOn=[awaited])])
    create(yard, "gated", "gated", "true")
    steps = json.loads(yard.run("describe", "gated", "-o", "json").stdout)
    assert steps["restarts"] == {"jobset": 0, "containers": 0} and steps["attempt"] == 1
    gate_closed = wait_for(
        "a pod", lambda: [p for p in json.loads(yard.run("describe", "gated", "-o", "json").stdout)["pods"]], LONG
    )
    assert [p["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] for p in gate_closed] == ["dataset-initializer"]
    told(yard, "gated", "node waits until dataset-initializer is complete")
    gate.touch()
    yard.run("wait", "gated", "--timeout", "100s")


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_it_is_data_too(yard: Yard, runtime: str, form: str):  # noqa: F811
    import yaml

    name = f"data-{form}"
    create(yard, name, runtime, "exit 3")
    wait_for("it to fail", lambda: "Failed" in yard.run("get", name).stdout, LONG)
    read = {"json": json.loads, "yaml": yaml.safe_load}[form](yard.run("describe", name, "-o", form).stdout)
    assert read["explanation"] == ["rank 0 ended with exit code 3"]
    assert {"job", "jobset", "pods", "events", "attempt", "attempts", "restarts"} <= read.keys()
