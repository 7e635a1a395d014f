"""Clusters whose machines are pods of a Kubernetes cluster: another control plane of ours, which runs pods as processes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from conftest import Yard, stop, wait_for

# the program goes into each pod, of some hundred MB where it was built for tests
WAIT = 300
TOKEN = "sky.trainyard.dev/token"


class Home(Yard):
    """A control plane of a user with a home directory of their own."""

    def __init__(self, root: pathlib.Path, user: pathlib.Path):
        user.mkdir()
        self.user, self.home, self.flags = user, root, ()
        self.env = {**os.environ, "TRAINYARD_HOME": str(root), "HOME": str(user)}
        self.env.pop("KUBECONFIG", None)
        self.up()

    def get(self, *words: str) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json", check=False).stdout or "{}")

    def sky(self, *words: str, code: int = 0) -> str:
        """What `sky WORDS…` prints."""
        done = self.run("sky", *words, check=False, timeout=WAIT, cwd=self.user)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def holders(self) -> list[dict]:
        """Pods that hold machines."""
        return self.get("pods", "-l", TOKEN).get("items", [])


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Home, Home]]:
    """A cluster, and somebody whose kubeconfig leads there."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="k"))
    cluster = Home(folder / "c", folder / "ch")
    sky = None
    try:
        sky = Home(folder / "s", folder / "sh")
        (sky.user / ".kube").mkdir()
        kubeconfig = pathlib.Path(cluster.kubeconfig).read_text()
        (sky.user / ".kube/config").write_text(kubeconfig)
        yield cluster, sky
    finally:
        for one in (sky, cluster):
            if one is not None:
                stop(one)
        shutil.rmtree(folder, ignore_errors=True)


def nothing_left(cluster: Home, sky: Home) -> None:
    wait_for("its pods to be gone", lambda: not cluster.holders())
    assert sky.get("machines").get("items") == []
    assert not [node for node in sky.get("nodes")["items"] if TOKEN in node["metadata"]["labels"]]
    assert list((sky.home / "kubernetes").glob("*")) == []
    left = cluster.user / ".trainyard-machine"
    wait_for("its processes to end", lambda: not processes(left))
    assert not left.exists()


def processes(folder: pathlib.Path) -> list[str]:
    """The command lines that name a folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [words for words in found if str(folder) in words]


def test_a_task_file_from_launch_to_down(pair: tuple[Home, Home]) -> None:
    cluster, sky = pair
    context = cluster.kubectl("config", "current-context").stdout.strip()
    seen = sky.sky("check", "k8s")
    assert f"k8s/{context}" in seen and "pods may be created in namespace default; free on its nodes" in seen, seen
    (sky.user / "work").mkdir()
    (sky.user / "work/a.txt").write_text("first\n")
    (sky.user / "task.yaml").write_text(
        f"""
name: train
num_nodes: 2
resources: {{infra: k8s/{context}, cpus: 0.5, memory: 0.25, image_id: "docker:example.com/mine:1", labels: {{team: us}}}}
workdir: work
config: {{kubernetes: {{pod_config: {{metadata: {{annotations: {{note: mine}}}}}}}}}}
setup: touch ~/was_set_up
run: |
  cat a.txt; ls ~/was_set_up
  echo "rank=$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES ips=$(echo "$SKYPILOT_NODE_IPS" | wc -l)"
"""
    )
    out = sky.sky("launch", "-y", "-c", "dev", "task.yaml")
    assert out.count(") first") == 2 and "rank=1 of 2 ips=2" in out and "cannot access" not in out, out
    assert "Job finished (status: SUCCEEDED)" in out and "kubectl --context" in out
    holders = cluster.holders()
    for pod in holders:
        assert pod["metadata"]["labels"]["team"] == "us" and pod["metadata"]["annotations"]["note"] == "mine"
        [container] = pod["spec"]["containers"]
        assert (container["image"], container["resources"]["requests"]["cpu"]) == ("example.com/mine:1", "500m")
    nodes = [node for node in sky.get("nodes")["items"] if TOKEN in node["metadata"]["labels"]]
    assert len(holders) == len(nodes) == 2 and {node["status"]["capacity"]["cpu"] for node in nodes} == {"500m"}

    (sky.user / "work/a.txt").write_text("second\n")
    assert sky.sky("exec", "dev", "task.yaml").count(") second") == 2

    # the control plane dies: jobs go on, and there is a new relay
    sky.sky("exec", "-d", "dev", "until [ -e ~/go ]; do sleep 0.1; done; echo went")
    wait_for("it to run", lambda: "RUNNING" in sky.sky("queue", "dev"))
    sky.kill()
    sky.up()
    sky.sky("exec", "-d", "dev", "true")
    homes = [node["home"] for node in sky.get("cluster", "dev")["status"]["nodes"]]
    for home in homes:
        (pathlib.Path(home) / "go").touch()
    assert "went" in sky.sky("logs", "dev", "3")

    sky.sky("stop", "-y", "dev")
    assert not cluster.holders()
    sky.sky("start", "-y", "dev")
    assert "was_set_up" not in sky.sky("exec", "dev", "ls ~"), "a pod's disk goes with it"

    # somebody has deleted a pod: what is left of it is ended as well
    name = cluster.holders()[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", name)
    # a real one's disk would have gone with it
    shutil.rmtree(cluster.user / ".trainyard-machine" / name)
    sky.sky("down", "-y", "dev")
    nothing_left(cluster, sky)


def test_places_that_cannot_be_had(pair: tuple[Home, Home]) -> None:
    """Each error is one line."""
    cluster, sky = pair
    out = sky.sky("launch", "-y", "-c", "x", "--infra", "k8s/nope", "true", code=1)
    assert "Context nope not found in kubeconfig" in out
    out = sky.sky("launch", "-y", "-c", "x", "--infra", "k8s", "--ports", "80", "--cpus", "0.1", "--memory", "0.1", "true", code=1)
    assert out.splitlines()[-1].startswith("sky.exceptions.NotSupportedError: `ports`: no service is made"), out
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1"}}}
    cluster.kubectl("apply", "-f", "-", input=json.dumps(quota))
    wait_for("the quota", lambda: cluster.get("resourcequota", "q").get("status", {}).get("hard"))
    out = sky.sky("launch", "-y", "-c", "x", "--infra", "k8s", "--cpus", "2", "--memory", "0.1", "true", code=1)
    assert "Failed to provision all possible launchable resources" in out and "exceeded quota" in out, out
    cluster.kubectl("delete", "resourcequota", "q")
    (sky.user / "picky.yaml").write_text(
        """
resources: {infra: k8s, cpus: 0.1, memory: 0.1}
config: {kubernetes: {provision_timeout: 1, pod_config: {spec: {nodeSelector: {nobody: has}}}}}
run: "true"
"""
    )
    out = sky.sky("launch", "-y", "-c", "x", "picky.yaml", code=1)
    assert "no node was found for the pod within 1 s: 0/1 nodes are available" in out, out
    nothing_left(cluster, sky)
