"""PyTorch DDP of one SkyPilot task file: on four machines that are reached by SSH, and on four of this computer's."""

from __future__ import annotations

import pathlib
import re
import sys

import pytest
from conftest import ROOT
from sshd import SSHD, Lan, can
from test_sky_ssh import Sky, lan, nothing_left, sky

pytestmark = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")
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


def test_four_machines_train_as_one(lan: Lan, sky: Sky, task: list[str]) -> None:
    hosts = [lan.host() for _ in range(4)]
    lan.join()
    lan.pools(lan.pool("lab", *hosts))
    # they have this Python and its torch: they cannot reach an index of packages
    for host in hosts:
        host.lend(VENV, pathlib.Path(sys.base_prefix), *[folder for folder in [ROOT / "target/sshd"] if folder in SSHD.parents])

    out = sky.sky("launch", "-y", "-c", "digits", "--infra", "ssh/lab", *task)
    there = trained(out)
    nodes = sky.status("digits")["nodes"]
    assert sorted(node["address"] for node in nodes) == sorted(host.address for host in hosts)
    # a rank that fails ends the others, and the command says so
    out = sky.sky("exec", "digits", "--num-nodes", "4", "[ $SKYPILOT_NODE_RANK = 3 ] && exit 7; sleep 1000", code=100)
    assert "Job finished (status: FAILED)" in out, out
    sky.sky("down", "-y", "digits")
    nothing_left(sky, *hosts)

    # the same file on this computer
    here = trained(sky.sky("launch", "-y", "--down", "-c", "near", "--infra", "local", *task))
    assert here == there
