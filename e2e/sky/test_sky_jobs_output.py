"""Output of managed jobs on machines that are lost: real sshds, real agents. The pods are made by hand, with the labels of a managed job."""

from __future__ import annotations

import os
import re
import time

import pytest
from conftest import wait_for
from sshd import UID, Lan, can

import test_sky_ssh
from test_sky_ssh import WAIT, Sky

lan, sky = test_sky_ssh.lan, test_sky_ssh.sky
pytestmark = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")


def pod(sky: Sky, name: str, node: str, script: str, attempt: int) -> None:
    labels = {
        "sky.trainyard.dev/managed-job": "by-hand", "sky.trainyard.dev/task": "0", "sky.trainyard.dev/attempt": str(attempt),
        "sky.trainyard.dev/stage": "run", "jobset.sigs.k8s.io/replicatedjob-name": "head",
    }  # fmt: skip
    container = {"name": "task", "image": "none", "command": ["bash", "-c", script]}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container], "tolerations": [{"operator": "Exists"}]}
    sky.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})


def kept(sky: Sky, attempt: int) -> list[int]:
    """The numbers of the lines in the files of an attempt."""
    files = sorted(sky.home.glob(f"managed/*/0/{attempt}/run/*.log"))
    text = "".join(file.read_text() for file in files)
    return [int(number) for number in re.findall(r"line (\d+)$", text, re.MULTILINE)]


def test_lines_outlive_their_machines(lan: Lan, sky: Sky) -> None:
    host, other = lan.host(), lan.host()
    lan.pools(lan.pool("lab", host) + lan.pool("spare", other))
    sky.cluster("dev", "lab")
    sky.cluster("next", "spare")
    spec = {"id": 900, "name": "by-hand", "submission": "none"}
    sky.apply({"apiVersion": "sky.trainyard.dev/v1alpha1", "kind": "ManagedJob", "metadata": {"name": "by-hand"}, "spec": spec})
    sky.until_up("dev")
    written = host.home / "written"
    written.touch(0o666)
    os.chown(written, UID, UID)
    node = sky.status("dev")["nodes"][0]["node"]
    pod(sky, "first", node, f"for ((i = 1; ; i++)); do echo line $i; echo $i >{written}; sleep 0.05; done", 1)

    def last() -> int:
        return int(written.read_text() or 0)

    def catches_up(what: str, limit: float = WAIT) -> None:
        wanted = last()
        wait_for(what, lambda: kept(sky, 1)[-1:] >= [wanted], limit)

    wait_for("the pod to write", lambda: last() > 20, WAIT)
    catches_up("the first lines to be kept")
    catches_up("a line to be kept within a second", 1)

    # a lost connection, and a control plane that is killed: lines come late, and once
    host.kill_sshd()
    before = last()
    wait_for("the machine to go on", lambda: last() > before + 10)
    host.start()
    catches_up("lines of the time without a connection")
    sky.kill()
    before = last()
    wait_for("the machine to go on", lambda: last() > before + 10)
    sky.up()
    catches_up("lines of the time without a control plane")
    numbers = kept(sky, 1)
    assert numbers == list(range(1, len(numbers) + 1))

    # the machine dies
    seen = last()
    died = time.monotonic() + 2
    wait_for("two seconds", lambda: time.monotonic() > died)
    host.halt()
    numbers = kept(sky, 1)
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= seen

    # another machine goes on, and both are one stream
    sky.until_up("next")
    pod(sky, "second", sky.status("next")["nodes"][0]["node"], "echo line 1; echo the end", 2)
    shown = lambda: sky.run("sky", "jobs", "logs", "900", "--no-follow", check=False, timeout=WAIT).stdout.splitlines()
    wait_for("the second attempt to be shown", lambda: shown()[-1:] == ["the end"], WAIT)
    lines = shown()
    assert lines[0].startswith("--- attempt 1") and lines[-3].startswith("--- attempt 2") and len(lines) >= seen + 4
