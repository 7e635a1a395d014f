"""Jobs on machines that are lost: one is switched off, and of one the cable is pulled out. Nothing answers there, and nothing says so."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest
from conftest import BINARY, Yard, plain_runtime, stop, wait_for, write
from sshd import Host, Lan, can

from test_node import ready

pytestmark = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")

# a node that has been silent for 50 s is not ready; its pods are given up so much later
GIVEN_UP = 20
# from the loss to the sentence about it
TOLD = 90
STARTS = "echo $NODE $(date +%s) >>{starts}; echo begun; exec sleep 98765"


class Machines:
    """A control plane whose own node takes no pods, and machines that run agents for it."""

    def __init__(self, folder: pathlib.Path):
        self.lan = Lan(folder)
        self.hosts = {f"n{number}": self.lan.host() for number in range(3)}
        # at an address that outlives the other machines' cables
        self.yard = Yard(folder / "yard", "--listen", f"{self.hosts['n0'].near}:0")
        [own] = self.yard.kubectl("get", "nodes", "-o", "name").stdout.split()
        self.yard.kubectl("cordon", own)
        self.agents: list[subprocess.Popen] = []

    def join(self, *names: str) -> None:
        for name in names:
            host = self.hosts[name]
            write(host.folder / "kubeconfig", self.yard.run("kubeconfig", "--node", name).stdout, 0o600)
            inside = ["nsenter", "--target", str(host.pid), "--mount", "--pid", "--uts", "--net", "--ipc", "--"]
            words = [BINARY, "node", "--kubeconfig", host.folder / "kubeconfig", "--data", host.folder / "data", "--capacity", "cpu=2"]
            with open(host.folder / "log", "a") as log:
                self.agents.append(subprocess.Popen([*inside, *words], stdout=log, stderr=log))
        for name in names:
            wait_for(f"{name} to be ready", lambda name=name: ready(self.yard, name) == "True")

    def end(self) -> None:
        stop(self.yard)
        self.lan.end()
        for agent in self.agents:
            agent.kill()
            agent.wait()


@pytest.fixture
def machines() -> Iterator[Machines]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lost-"))
    made = Machines(folder)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def explained(yard: Yard, job: str) -> str:
    """What `explain` says, in one line."""
    return " ".join(yard.run("explain", job, check=False).stdout.split())


def sleeping(host: Host) -> list[int]:
    return [pid for pid, words in host.processes() if words.startswith("sleep 98765")]


def test_jobs_on_lost_machines(machines: Machines, tmp_path: pathlib.Path) -> None:
    yard = machines.yard
    runtime = plain_runtime("impatient")
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    pod["tolerations"] = [unreachable | {"tolerationSeconds": GIVEN_UP}]
    pod["containers"][0]["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    yard.kubectl("apply", "-f", "-", input=json.dumps(runtime))
    machines.join("n1", "n2")
    # "again" is tried again, "once" is not; each fills a machine
    for name, flags in (("again", ["--retries", "1"]), ("once", [])):
        script = write(tmp_path / f"{name}.sh", STARTS.format(starts=tmp_path / name), 0o755)
        words = ["--runtime", "impatient", "--cpus", "2", "--name", name, *flags, "--detach", str(script)]
        yard.run("run", *words)

    def starts(name: str) -> list[list[str]]:
        path = tmp_path / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    for name in ("again", "once"):
        wait_for(f"{name} to run", lambda name=name: "Running" in yard.run("get", name).stdout and starts(name))
    on = {name: starts(name)[0][0] for name in ("again", "once")}
    assert sorted(on.values()) == ["n1", "n2"], on
    assert yard.run("logs", "once").stdout.count("begun") == 1
    machines.join("n0")  # room for what is lost
    followers = {name: yard.spawn("logs", "-f", name) for name in on}
    try:
        assert all(follower.stdout.readline().endswith("begun\n") for follower in followers.values())
        lost = time.time()
        machines.hosts[on["once"]].halt()
        machines.hosts[on["again"]].cut()
        said = {name: re.compile(rf"node {node}, on which node-0 ran, has not answered since (\S+Z)") for name, node in on.items()}
        for name in on:
            since = wait_for(f"explain to name {on[name]}", lambda name=name: said[name].search(explained(yard, name)), TOLD)[1]
            assert lost <= time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone <= time.time() + 1
            got = yard.run("get", name)
            assert said[name].search(got.stderr) and "(NodeLost, TY2204)" in got.stderr, got
            assert ready(yard, on[name]) == "Unknown"
            assert len(starts(name)) == 1, "nothing starts anew before the node is given up"

        # one fails, the other starts anew, and no earlier than its machine was given up
        out, err = followers["once"].communicate(timeout=60)
        assert followers["once"].returncode != 0 and said["once"].search(err), (out, err)
        told = explained(yard, "once")
        given_up = re.search(rf"node {on['once']}, on which node-0 ran, did not answer, and its pods were given up at (\S+Z)", told)
        assert "failed (NodeLost, TY2204)" in told and given_up, told
        wait_for("the second attempt", lambda: len(starts("again")) == 2, 60)
        node, at = starts("again")[1]
        assert node == "n0" and int(at) >= lost + 50 + GIVEN_UP - 1, (starts("again"), lost)
        wait_for("the job to run", lambda: re.search(r"again +Running", yard.run("get", "again").stdout))
        assert len(starts("once")) == 1

        # the machine is back: what ran there is ended, and nothing else
        machines.hosts[on["again"]].mend()
        wait_for("the node to be back", lambda: ready(yard, on["again"]) == "True", 90)
        wait_for("its old process to end", lambda: not sleeping(machines.hosts[on["again"]]))
        assert len(sleeping(machines.hosts["n0"])) == 1 and len(starts("again")) == 2
        yard.run("delete", "again")
        out, err = followers["again"].communicate(timeout=60)
        assert said["again"].search(err) and "begun" in out, (out, err)
    finally:
        for follower in followers.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(follower.pid, signal.SIGKILL)
            follower.wait()
