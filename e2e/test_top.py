"""What pods use: `kubectl top` and `metrics.k8s.io`."""

from __future__ import annotations

import json
import re
import sys

import pytest
from conftest import Yard, wait_for

HUNGRY = "import time; held = bytearray(b'x') * (150 << 20); print('holds', flush=True)\nwhile True: pass"


@pytest.fixture(scope="module")
def busy(yard: Yard) -> str:
    """A pod that holds 150 MiB and never rests, and one that sleeps."""
    for name, argv in [("hungry", [sys.executable, "-c", HUNGRY]), ("idle", ["sleep", "1000"])]:
        spec = {"containers": [{"name": "c", "image": "none", "command": argv}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"is": name}}, "spec": spec}
        yard.kubectl("apply", "-f", "-", input=json.dumps(body))
    wait_for("the memory", lambda: "holds" in yard.kubectl("logs", "hungry", check=False).stdout)
    wait_for("the other", lambda: "Running" in yard.kubectl("get", "pod", "idle").stdout)
    return "hungry"


def amounts(table: str) -> dict[str, tuple[int, int]]:
    """Thousandths of a processor and MiB, by name."""
    rows = re.findall(r"^(\S+)\s+(\d+)m.*?(\d+)Mi", table, re.MULTILINE)
    return {name: (int(cpu), int(memory)) for name, cpu, memory in rows}


def test_kubectl_top(yard: Yard, busy: str, kubectls: dict[str, str]) -> None:
    for version, program in sorted(kubectls.items()):
        used = amounts(yard.kubectl("top", "pod", program=program).stdout)
        assert set(used) == {"hungry", "idle"}, version
        assert used["hungry"][0] >= 100 and 150 <= used["hungry"][1] < 300, (version, used)
        assert used["idle"][0] <= 50 and used["idle"][1] < 20, (version, used)
        assert set(amounts(yard.kubectl("top", "pod", "-l", "is=idle", program=program).stdout)) == {"idle"}, version
        (node,) = amounts(yard.kubectl("top", "node", program=program).stdout).values()
        assert node[0] >= 100 and node[1] >= 150, (version, node)


def test_the_api_is_metrics_servers(yard: Yard, busy: str) -> None:
    raw = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
    pod = json.loads(yard.kubectl("get", "--raw", f"{raw}/{busy}").stdout)
    assert (pod["kind"], pod["metadata"]["labels"]) == ("PodMetrics", {"is": busy})
    (container,) = pod["containers"]
    assert container["name"] == "c" and re.fullmatch(r"\d+n", container["usage"]["cpu"])
    table = yard.kubectl("get", "podmetrics").stdout.splitlines()
    assert table[0].split() == ["NAME", "CPU", "MEMORY", "WINDOW"] and len(table) == 3
    refused = yard.kubectl("get", "podmetrics", "nobody", check=False)
    assert 'pods.metrics.k8s.io "nobody" not found' in refused.stderr
    assert "MethodNotAllowed" in yard.kubectl("get", "podmetrics", "-w", check=False).stderr
    done = yard.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--as", "eve", check=False)
    assert done.stdout.strip() == "no"
    yard.kubectl("create", "rolebinding", "eve", "--clusterrole=view", "--user=eve")
    wait_for(
        "the right to look",
        lambda: yard.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--as", "eve", check=False).returncode == 0,
    )
