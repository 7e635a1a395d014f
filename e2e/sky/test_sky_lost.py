"""Machines that are gone: their jobs end within ten seconds, and the next job does not wait for them. What this side cannot see is not gone.

What is gone is known from the provider: the host answers and nothing of ours runs there, or the pod that held the machine is gone. A host or
a cluster that does not answer says nothing, and its jobs go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import time

import pytest
from conftest import wait_for
from sshd import Host, Lan, can

import test_sky_kubernetes
import test_sky_ssh
from test_sky_kubernetes import Home
from test_sky_ssh import SOAK, WAIT, Sky, offered

pair, lan, sky = test_sky_kubernetes.pair, test_sky_ssh.lan, test_sky_ssh.sky

# from the loss to the end of the job: the promise
SOON = 10
BEGUN = "echo begun; exec sleep 1000"

by_ssh = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")


def begins(sky: Sky | Home, cluster: str, job: str, *options: str, script: str = BEGUN) -> None:
    sky.sky("exec", "-d", *options, cluster, script)
    wait_for("the job to run", lambda: "begun" in sky.sky("logs", cluster, job, "--no-follow", code=101), WAIT)


def ends_soon(sky: Sky | Home, what: str, is_over) -> None:
    """Waits for the end of the job and fails if it took too long."""
    began = time.monotonic()
    wait_for(what, is_over, WAIT)
    took = time.monotonic() - began
    print(f"{what}: {took:.1f} s", flush=True)
    assert took < SOON, f"{what} took {took:.1f} s"


def kill_all_of_ours(host: Host) -> None:
    """Ends the agent, the shims and the jobs of a host at once, as the host's own lack of memory or its administrator does."""
    for pid, words in host.processes():
        if "sshd" not in words and ("trainyard-machine" in words or "sleep 1000" in words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@by_ssh
def test_a_host_whose_processes_are_gone(lan: Lan, sky: Sky) -> None:
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    assert "1 host connected" in sky.sky("check", "ssh")
    sky.cluster("dev", "lab")
    sky.until_up("dev")
    begins(sky, "dev", "1")
    # a shell completes what there is
    assert (offered(sky, "down", ""), offered(sky, "logs", "dev", "")) == (["dev"], ["1"])
    assert offered(sky, "check", "ssh/") == ["ssh/lab"]
    kill_all_of_ours(host)
    ends_soon(sky, "the job of killed processes to fail", lambda: "FAILED" in sky.sky("queue", "dev"))
    assert ") next" in sky.sky("exec", "dev", "echo next")

    # the machine is switched off and on again
    begins(sky, "dev", "3")
    host.halt()
    [tried] = json.loads(sky.sky("check", "ssh/lab", "-o", "json"))
    assert not tried["usable"] and tried["why"].startswith(f"{host.address}: "), tried
    host.boot()
    ends_soon(sky, "the job of a host that starts again to fail", lambda: "RUNNING" not in sky.sky("queue", "dev"))
    assert ") next" in sky.sky("exec", "dev", "echo next")
    sky.delete("dev")


if SOAK:  # it waits for a connection to be given up; test_sky_ssh.py has the short form

    @by_ssh
    def test_a_host_that_this_side_cannot_see_is_not_gone(lan: Lan, sky: Sky) -> None:
        """The cable is out for longer than a loss takes, and the control plane starts anew meanwhile."""
        host = lan.host()
        lan.pools(lan.pool("lab", host))
        sky.cluster("dev", "lab")
        sky.until_up("dev")
        node = sky.status("dev")["nodes"][0]["node"]
        begins(sky, "dev", "1", script="echo begun; until [ -e ~/go ]; do sleep 0.1; done; echo went")
        message = lambda: str(sky.machines("dev")[0]["status"].get("message"))
        host.cut()
        wait_for("the connection to be given up", lambda: "cannot be reached" in message(), WAIT)
        sky.kill()
        sky.up()
        wait_for("the host to be looked for", lambda: "cannot be reached" in message(), WAIT)
        host.mend()
        assert "RUNNING" in sky.sky("queue", "dev")
        wait_for("the node to be back", lambda: sky.ready(node) == "True", WAIT)
        wait_for("the host to be reached", lambda: "cannot be reached" not in message(), WAIT)
        pathlib.Path(sky.status("dev")["nodes"][0]["home"], "go").touch()
        out = sky.sky("logs", "dev", "1")
        assert out.count(") begun") == 1 and ") went" in out, out
        sky.delete("dev")


def lose(cluster: Home, pod: str) -> None:
    """A pod goes at once, with its disk."""
    cluster.kubectl("delete", "pod", pod, "--grace-period=1")
    shutil.rmtree(cluster.user / ".trainyard-machine" / pod, ignore_errors=True)


def test_pods_that_are_gone_and_a_cluster_that_does_not_answer(pair: tuple[Home, Home]) -> None:
    cluster, sky = pair
    context = cluster.kubectl("config", "current-context").stdout.strip()
    size = ("--cpus", "0.5", "--memory", "0.25")
    sky.sky("launch", "-y", "-d", "-c", "dev", "--infra", f"k8s/{context}", "--num-nodes", "2", *size, BEGUN)
    wait_for("the job to run", lambda: "begun" in sky.sky("logs", "dev", "1", "--no-follow", code=101), WAIT)

    if SOAK:
        cluster.kill()
        failures = lambda: [machine["status"].get("failures", 0) for machine in sky.get("machines")["items"]]
        wait_for("the cluster to be missed", lambda: all(failures()), WAIT)
        phases = {machine["status"]["phase"] for machine in sky.get("machines")["items"]}
        assert phases == {"Running"} and "RUNNING" in sky.sky("queue", "dev")
        cluster.up()
        wait_for("the machines to be found", lambda: not any(failures()), WAIT)
        assert "RUNNING" in sky.sky("queue", "dev")

    names = [pod["metadata"]["name"] for pod in cluster.holders()]
    lose(cluster, names[0])
    ends_soon(sky, "the job of a pod that is gone to fail", lambda: "FAILED" in sky.sky("queue", "dev"))

    # all machines are gone, and so is the cluster: its name is free at once
    lose(cluster, names[1])
    ends_soon(sky, "a cluster without machines to go", lambda: not sky.get("cluster", "dev"))
    if SOAK:
        assert ") next" in sky.sky("launch", "-y", "-c", "dev", "--infra", "k8s", *size, "echo next")
        sky.sky("down", "-y", "dev")
