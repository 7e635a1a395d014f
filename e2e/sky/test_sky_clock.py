"""Machines whose clocks are an hour off: what they write down of themselves has the control plane's time."""

from __future__ import annotations

import datetime
import json
import pathlib
import shutil
import subprocess
import time

import pytest
from conftest import wait_for
from sshd import Lan, can
from test_sky_ssh import SOAK, WAIT, Sky, lan, nothing_left, sky

pytestmark = pytest.mark.skipif(not can() or not shutil.which("cc"), reason="root, sshd (make sshd), unshare, nsenter, ip and cc are needed")
__all__ = ["lan", "sky"]

# what programs get when they ask for the time of day
SHIFTED = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
  int code = syscall(SYS_clock_gettime, id, at);
  if (code == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += SHIFT;
  return code;
}
time_t time(time_t *to) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to) *to = at.tv_sec;
  return at.tv_sec;
}
int gettimeofday(struct timeval *to, void *zone) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  if (to) *to = (struct timeval){at.tv_sec, at.tv_nsec / 1000};
  return 0;
}
"""


def shifted(folder: pathlib.Path, seconds: int) -> pathlib.Path:
    """A library with which a program's clock is off."""
    library = folder / f"shift{seconds}.so"
    words = ["cc", "-shared", "-fPIC", f"-DSHIFT={seconds}L", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=SHIFTED, text=True, check=True)
    library.chmod(0o755)
    return library


def age(stamp: str) -> float:
    """Seconds since then."""
    return time.time() - datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def test_clocks_that_are_an_hour_off(lan: Lan, sky: Sky) -> None:
    ahead, behind = (lan.host(SetEnv=f"LD_PRELOAD={shifted(lan.folder, seconds)}") for seconds in (3600, -3600))
    lan.pools(lan.pool("lab", ahead, behind))
    out = sky.sky("launch", "-y", "-c", "dev", "--infra", "ssh/lab", "--num-nodes", "2", "sleep 2; echo done")
    assert out.count(") done") == 2, out
    nodes = sky.status("dev")["nodes"]
    for host, by in ((ahead, 3600), (behind, -3600)):
        alias = "dev" if nodes[0]["address"] == host.address else "dev-worker1"
        told = subprocess.run(["ssh", "-n", alias, "date +%s"], env=sky.env, capture_output=True, text=True, timeout=60).stdout
        assert abs(float(told) - time.time() - by) < 60, "the machine's clock is off"

    # jobs last as long as they do
    [job] = json.loads(sky.run("sky", "queue", "dev", "-o", "json").stdout)["dev"]
    assert 1 <= job["end_at"] - job["start_at"] < 60 and abs(time.time() - job["end_at"]) < 60, job

    # nodes are heard of now, and lines and pods have the time at which they came
    sky.sky("exec", "-d", "dev", "--num-nodes", "2", "echo begun; sleep 1000")
    wait_for("it to run", lambda: sky.sky("logs", "dev", "--no-follow", code=101).count("begun") == 2)
    for node in nodes:
        assert sky.ready(node["node"]) == "True"
        assert abs(age(sky.get("lease", "-n", "kube-node-lease", node["node"])["spec"]["renewTime"])) < 60
        told = {one["type"]: one for one in sky.get("node", node["node"])["status"]["conditions"]}
        assert abs(age(told["Ready"]["lastHeartbeatTime"])) < 120 and told["SSHSessions"]["status"] == "False"
    pods = sky.get("pods", "-l", "sky.trainyard.dev/cluster=dev,sky.trainyard.dev/job=2")["items"]
    assert len(pods) == 2
    for pod in pods:
        name = pod["metadata"]["name"]
        assert abs(age(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"])) < 60
        lines = sky.kubectl("logs", name, "--timestamps", "--since", "60s").stdout.splitlines()
        assert [line.split(" ", 1)[1].endswith("begun") for line in lines] == [True] and abs(age(lines[0].split()[0][:26] + "Z")) < 60, lines

    # who leaves a terminal leaves it now: idle minutes begin, neither over already nor an hour from now
    for alias, node in (("dev", nodes[0]), ("dev-worker1", nodes[1])):
        session = lambda node=node: next(one for one in sky.get("node", node["node"])["status"]["conditions"] if one["type"] == "SSHSessions")
        shell = subprocess.Popen(["ssh", "-tt", alias, "cat"], env=sky.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        wait_for("the terminal to be seen", lambda session=session: session()["status"] == "True")
        shell.kill()
        wait_for("its end to be seen", lambda session=session: session()["status"] == "False")
        assert abs(age(session()["lastTransitionTime"])) < 60
    sky.sky("cancel", "-y", "dev", "--all")
    sky.sky("autostop", "-y", "dev", "-i", "0", "--down")
    wait_for("it to end by itself", lambda: not sky.get("cluster", "dev") and not sky.machines("dev"), WAIT)
    nothing_left(sky, ahead, behind)

    if SOAK:  # one that is lost is missed within the usual time
        sky.sky("launch", "-y", "-c", "dev", "--infra", "ssh/lab", "--num-nodes", "2", "true")
        ahead.cut()
        lost = next(node["node"] for node in sky.status("dev")["nodes"] if node["address"] == ahead.address)
        wait_for("it to be given up", lambda: sky.ready(lost) == "Unknown", 90)
        ahead.mend()
        wait_for("it to be back", lambda: sky.ready(lost) == "True", WAIT)
        sky.sky("down", "-y", "dev")
        nothing_left(sky, ahead, behind)
