"""PyTorch DDP of one SkyPilot task file: on machines that are reached by SSH, on pods of a Kubernetes cluster, and on this computer's."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

import pytest
from conftest import ROOT, TORCH_ABORTED, stop, wait_for
from sshd import SSHD, Host, Lan, can
from test_sky_kubernetes import Home
from test_sky_ssh import Sky, lan, nothing_left, sky

pytestmark = [
    pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed"),
    # of four ranks in each run one may abort at its end; whatever else fails is not tried again
    pytest.mark.flaky(reruns=3, only_rerun=TORCH_ABORTED),
]
__all__ = ["lan", "sky"]
VENV = pathlib.Path(sys.prefix)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The example, from its folder, with fewer epochs."""
    monkeypatch.chdir(ROOT / "examples/sky-ddp")
    return ["task.yaml", "--env", "EPOCHS=8", "--env", f"PATH={VENV}/bin:/usr/bin:/bin"]


def trained(out: str) -> tuple[list[str], str]:
    """What each rank says that it has of the images, and the accuracy that the head tells."""
    assert "Job finished (status: SUCCEEDED)" in out, out
    ranks = re.findall(r"\((head|worker\d), rank=(\d), .*\) rank (\d) of 4 on \S+: (\d+) images", out)
    assert sorted(int(rank) for _, rank, _, _ in ranks) == [0, 1, 2, 3] and all(rank == own for _, rank, own, _ in ranks), out
    [accuracy] = re.findall(r"\(head, rank=0, .*\) final accuracy (\S+) after", out)
    return sorted(" ".join(one) for one in ranks), accuracy


def lend(hosts: list[Host]) -> None:
    """They have this Python and its torch: they cannot reach an index of packages."""
    for host in hosts:
        host.lend(VENV, pathlib.Path(sys.base_prefix), *[folder for folder in [ROOT / "target/sshd"] if folder in SSHD.parents])


def test_four_machines_train_as_one(lan: Lan, sky: Sky, task: list[str]) -> None:
    hosts = [lan.host() for _ in range(4)]
    lan.join()
    lan.pools(lan.pool("lab", *hosts))
    lend(hosts)

    out = sky.sky("launch", "-y", "-c", "digits", "--infra", "ssh/lab", *task)
    _, accuracy = trained(out)
    assert float(accuracy.rstrip("%")) > 50, out
    nodes = sky.status("digits")["nodes"]
    assert sorted(node["address"] for node in nodes) == sorted(host.address for host in hosts)
    # a rank that fails ends the others, and the command says so
    out = sky.sky("exec", "digits", "--num-nodes", "4", "[ $SKYPILOT_NODE_RANK = 3 ] && exit 7; sleep 1000", code=100)
    assert "Job finished (status: FAILED)" in out, out
    sky.sky("down", "-y", "digits")
    nothing_left(sky, *hosts)


@pytest.fixture
def cluster(lan: Lan) -> Iterator[Home]:
    """A Kubernetes cluster that runs pods, to which the kubeconfig of the machines' user leads."""
    cluster = Home(lan.folder / "c", lan.folder / "ch")
    try:
        (lan.user / ".kube").mkdir()
        (lan.user / ".kube/config").write_text(pathlib.Path(cluster.kubeconfig).read_text())
        yield cluster
    finally:
        stop(cluster)


TWO_BY_TWO = """
name: digits
num_nodes: 2
resources: {cpus: 0.5+, memory: 0.25+}
workdir: WORKDIR
file_mounts: {~/in/epochs.txt: EPOCHS}
secrets: {WORD: hush}
setup: |
  python3 -c 'import torch, sklearn' && cp ~/in/epochs.txt ~/epochs
  echo "set up rank $SKYPILOT_SETUP_NODE_RANK of $(echo "$SKYPILOT_SETUP_NODE_IPS" | wc -l) in ${PWD##*/}"
run: |
  head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)
  echo "node $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES in ${PWD##*/}, $WORD, $(cat ~/in/epochs.txt) epochs"
  [ -z "$FAILS" ] || { [ "$SKYPILOT_NODE_RANK" != "$FAILS" ] || exit 7; exec sleep 1000; }
  torchrun --nnodes "$SKYPILOT_NUM_NODES" --node-rank "$SKYPILOT_NODE_RANK" --nproc-per-node 2 \
    --master-addr "$head" --master-port 29510 train.py --epochs "$(cat ~/epochs)"
"""
PREFIX = re.compile(r"^\((?:(setup) |(head|worker\d), rank=(\d), )pid=\d+(?:, ip=[^)]*)?\) (.*)$")


# processes of one rank that speak at once may do so in one line
LINES = re.compile(
    r"set up rank \d of \d in \w+|node \d of \d in \w+, \w+, \d+ epochs|rank \d of 4 on \S+: \d+ images"
    r"|epoch \d+/\d+  loss \d+\.\d{4}  accuracy \d+\.\d%|final accuracy \d+\.\d\d% after \S+ s on \d ranks"
)


def said(out: str) -> list[tuple[str, str]]:
    """What setup and each rank said, by rank, in an order of its own; without names of hosts and times."""
    found = [match.groups() for line in out.splitlines() if (match := PREFIX.match(line))]
    plain = lambda text: re.sub(r" after \S+ s ", " ", re.sub(r" on \S+: ", ": ", text))
    return sorted((setup or f"{who} {rank}", plain(one)) for setup, who, rank, text in found for one in LINES.findall(text))


def test_one_file_everywhere(lan: Lan, cluster: Home, sky: Sky) -> None:
    """Two machines of two processes each: the same output, ranks and exit codes over SSH, in pods, and here."""
    hosts = [lan.host() for _ in range(2)]
    lan.join()
    lan.pools(lan.pool("lab", *hosts))
    lend(hosts)
    context = cluster.kubectl("config", "current-context").stdout.strip()
    (lan.user / "epochs.txt").write_text("6\n")
    task = lan.user / "task.yaml"
    task.write_text(TWO_BY_TWO.replace("WORKDIR", str(ROOT / "examples/torch-digits")).replace("EPOCHS", str(lan.user / "epochs.txt")))
    path = f"PATH={VENV}/bin:/usr/bin:/bin"
    outs = {}
    for name, infra in (("far", "ssh/lab"), ("pods", f"k8s/{context}"), ("here", "local")):
        out = sky.sky("launch", "-y", "-c", name, "--infra", infra, "--env", path, str(task))
        assert "Job finished (status: SUCCEEDED)" in out, out
        # a rank that fails ends the job, and the command says so
        failed = sky.sky("exec", name, "--env", path, "--env", "FAILS=1", str(task), code=100)
        assert "Job finished (status: FAILED)" in failed, failed
        outs[name] = (said(out), said(failed), len(sky.status(name)["nodes"]))
        sky.sky("down", "-y", name)
    lines, again, nodes = outs["far"]
    assert nodes == 2
    texts = [text for _, text in lines]
    assert [text for who, text in lines if who == "setup"] == [f"set up rank {rank} of 2 in sky_workdir" for rank in range(2)], lines
    assert [line for line in lines if line[1].startswith("node ")] == [
        (f"{who} {rank}", f"node {rank} of 2 in sky_workdir, hush, 6 epochs") for rank, who in enumerate(("head", "worker1"))
    ], lines
    # ranks of processes follow those of machines
    ranks = [(who, int(text.split()[1])) for who, text in lines if text.startswith("rank ")]
    assert sorted(ranks) == [("head 0", 0), ("head 0", 1), ("worker1 1", 2), ("worker1 1", 3)], lines
    assert any(text.startswith("final accuracy") for text in texts), lines
    # the other rank may be ended before it says a word
    assert ("worker1 1", "node 1 of 2 in sky_workdir, hush, 6 epochs") in again, again
    for name in ("pods", "here"):
        assert (outs[name][0], outs[name][2]) == (lines, nodes), name
        assert ("worker1 1", "node 1 of 2 in sky_workdir, hush, 6 epochs") in outs[name][1], name
    wait_for("its pods to be gone", lambda: not cluster.holders())
    nothing_left(sky, *hosts)
