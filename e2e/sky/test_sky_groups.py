"""Job groups: tasks that start together, reach one another by name, and end together."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

import pytest
from conftest import stop, wait_for
from sshd import Lan

import test_sky_ssh
from test_sky_jobs import WAIT, Jobs, by_ssh, job, launch, until, wipe

lan, sky = test_sky_ssh.lan, test_sky_ssh.sky
# the client waits until both servers answer, so it must have begun together with them
PAIR = """\
name: pair
execution: parallel
primary_tasks: [client]
termination_delay: {server: 2s}
---
name: server
num_nodes: 2
resources: {infra: local}
run: |
  echo hello from $SKYPILOT_NODE_RANK of $SKYPILOT_JOBGROUP_NAME >index.html
  exec python3 -m http.server 18123 --bind "$(echo "$SKYPILOT_NODE_IPS" | sed -n "$((SKYPILOT_NODE_RANK + 1))p")"
---
name: client
resources: {infra: local}
run: |
  for name in server-0.pair server-1.pair; do
    for i in $(seq 100); do curl -sf http://$name:18123/index.html && break; sleep 0.2; done
  done
  echo I am at $(getent hosts client-0.pair)
"""


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path_factory.mktemp("groups"))
    yield jobs
    stop(jobs)


def tasks(of: Jobs | test_sky_ssh.Sky, number: int) -> list[dict]:
    return job(of, number)["status"]["tasks"]


def test_tasks_reach_one_another_and_the_primary_one_ends_the_group(jobs: Jobs) -> None:
    number = launch(jobs, jobs.write("pair.yaml", PAIR))
    said = jobs.sky("jobs", "logs", str(number))
    for rank in (0, 1):
        assert re.search(rf"^\[client\] \(client, pid=\d+\) hello from {rank} of pair$", said, re.M), said
    assert re.search(r"I am at 127\.\S+ +client-0\.pair", said), said
    server, client = tasks(jobs, number)
    assert (server["state"], client["state"]) == ("CANCELLED", "SUCCEEDED")
    assert server["attempts"][0]["ground"] == "Group", server
    queue = jobs.sky("jobs", "queue", "-a")
    assert re.search(r"client \[P\] .*SUCCEEDED", queue) and re.search(r"server  .*CANCELLED", queue), queue
    told = jobs.sky("jobs", "explain", str(number))
    assert "Reason: all primary tasks of its group have ended" in told, told
    wait_for("nothing to be left", lambda: not jobs.kubectl("get", "clusters,machines,launches", "-o", "name").stdout, WAIT)


def test_a_group_whose_setup_fails_does_not_start(jobs: Jobs) -> None:
    text = PAIR.replace("num_nodes: 2\n", "setup: exit 3\n")
    number = launch(jobs, jobs.write("fails.yaml", text))
    jobs.sky("jobs", "logs", str(number), code=103)
    server, client = tasks(jobs, number)
    assert (server["state"], client["state"]) == ("FAILED_SETUP", "CANCELLED")
    assert client["message"] == "task server of its group failed before the group started, so this task was cancelled"
    assert "startedAt" not in client


def test_a_group_is_cancelled_as_a_whole(jobs: Jobs) -> None:
    number = launch(jobs, jobs.write("long.yaml", PAIR.replace("echo I am", "sleep 1000; echo I am")))
    until(jobs, number, "RUNNING")
    jobs.sky("jobs", "cancel", "-y", str(number))
    until(jobs, number, "CANCELLED")
    assert [task["state"] for task in tasks(jobs, number)] == ["CANCELLED", "CANCELLED"]


def finder(place: str) -> str:
    """A group in which `a` looks for `b` all the time."""
    return (
        f"name: g\nexecution: parallel\n---\nname: a\nresources: {{infra: {place}}}\n"
        "run: while sleep 1; do echo found $(getent hosts b-0.g); done\n"
        f"---\nname: b\nresources: {{infra: {place}}}\nrun: sleep 1000\n"
    )


def address(of: Jobs | test_sky_ssh.Sky, number: int, attempt: int) -> str:
    """Of b's machine in this attempt; empty: it has none yet."""
    found = of.kubectl("get", "cluster", f"g-{number}-1-{attempt}", "-o", "jsonpath={.status.nodes[0].address}", check=False)
    return found.stdout.strip()


def is_found(of: Jobs | test_sky_ssh.Sky, number: int, attempt: int) -> None:
    """Task `a`, which goes on running, finds `b` at the address of this attempt."""
    wait_for("b to run", lambda: tasks(of, number)[1]["state"] == "RUNNING", WAIT)
    at = address(of, number, attempt)
    output = lambda: of.sky("jobs", "logs", str(number), "--no-follow", code=101)
    wait_for(f"a to find b at {at}", lambda: f"found {at} " in output().splitlines()[-1], WAIT)


def ends(of: Jobs | test_sky_ssh.Sky, number: int) -> None:
    of.sky("jobs", "cancel", "-y", str(number))
    until(of, number, "CANCELLED")


def test_a_task_that_goes_elsewhere_is_found_there(jobs: Jobs) -> None:
    number = launch(jobs, jobs.write("finder.yaml", finder("local")))
    until(jobs, number, "RUNNING")
    is_found(jobs, number, 1)
    before = address(jobs, number, 1)
    jobs.sky("down", "-y", f"g-{number}-1-1")
    wait_for("b to go elsewhere", lambda: tasks(jobs, number)[1].get("attempt") == 2, WAIT)
    is_found(jobs, number, 2)
    assert address(jobs, number, 2) != before
    assert tasks(jobs, number)[0]["attempt"] == 1
    ends(jobs, number)


@by_ssh
def test_tasks_on_other_machines_find_one_another(lan: Lan, sky: test_sky_ssh.Sky, tmp_path: pathlib.Path) -> None:
    hosts = [lan.host() for _ in range(3)]
    lan.pools(lan.pool("lab", *hosts))
    file = tmp_path / "group.yaml"
    file.write_text(finder("ssh/lab"))
    number = launch(sky, str(file))
    until(sky, number, "RUNNING")
    is_found(sky, number, 1)
    at = address(sky, number, 1)
    wipe(next(host for host in hosts if host.address == at))
    wait_for("b to be started again", lambda: tasks(sky, number)[1].get("attempt") == 2, WAIT)
    is_found(sky, number, 2)
    assert tasks(sky, number)[0]["attempt"] == 1
    ends(sky, number)
