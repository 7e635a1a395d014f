"""Managed jobs: made, watched, made again and removed by the control plane.

`KILLS` says at how many moments of a job its control plane is killed (3; `make soak`: 40).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator

import pytest
from conftest import Yard, stop, wait_for
from sshd import Host, Lan, can

import test_sky_ssh
from test_sky_ssh import offered

lan, sky = test_sky_ssh.lan, test_sky_ssh.sky
WAIT = 120
KILLS = int(os.environ.get("KILLS", "3"))
by_ssh = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")


class Jobs(Yard):
    """A control plane of a user with a home of their own."""

    def __init__(self, folder: pathlib.Path):
        self.user, self.home, self.flags = folder / "user", folder / "home", ()
        self.user.mkdir()
        self.env = {**os.environ, "TRAINYARD_HOME": str(self.home), "HOME": str(self.user), "USER": "me"}
        self.env.pop("KUBECONFIG", None)
        self.up()

    def sky(self, *words: str, code: int = 0) -> str:
        done = self.run("sky", *words, check=False, timeout=WAIT, cwd=self.user)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def write(self, name: str, text: str) -> str:
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name


def launch(of: Jobs | test_sky_ssh.Sky, *words: str) -> int:
    """The number of the job that is launched."""
    said = of.sky("jobs", "launch", "-y", *words)
    return int(re.search(r"Managed Job ID: (\d+)", said).group(1))


def job(of: Yard, number: int) -> dict:
    return json.loads(of.kubectl("get", "managedjob", f"job-{number}", "-o", "json", check=False).stdout or "{}")


def state(of: Yard, number: int) -> str:
    return job(of, number).get("status", {}).get("state", "PENDING")


def until(of: Yard, number: int, *wanted: str) -> dict:
    """The first task of the job, once the job has come to one of these states."""
    try:
        wait_for(f"job {number} to be {wanted}", lambda: state(of, number) in wanted, WAIT)
    except pytest.fail.Exception as failure:
        all_there = of.kubectl("get", "managedjobs,launches,clusters,machines,jobsets,pods", "-o", "yaml", check=False).stdout
        pytest.fail(f"{failure}\n{json.dumps(job(of, number), indent=1)}\n{all_there[-20000:]}")
    return job(of, number)["status"]["tasks"][0]


def nothing_left(of: Yard) -> None:
    kinds = "launches.sky.trainyard.dev,clusters.sky.trainyard.dev,machines.sky.trainyard.dev"
    wait_for("nothing to be left", lambda: not of.kubectl("get", kinds, "-o", "name").stdout.strip(), WAIT)


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="j"))
    of = None
    try:
        of = Jobs(folder)
        yield of
    finally:
        if of is not None:
            stop(of)
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_runs_to_its_end(jobs: Jobs) -> None:
    jobs.write("code/a.txt", "as submitted\n")
    task = jobs.write("train.yaml", """
name: train
resources: {infra: local}
workdir: code
envs: {A: value}
secrets: {B: hidden}
setup: echo set up
run: |
  echo "$(cat a.txt) A=$A B=$B job=$SKYPILOT_MANAGED_JOB_ID"
  echo "id=$SKYPILOT_TASK_ID"
""")
    number = launch(jobs, task)
    jobs.write("code/a.txt", "changed since\n")
    done = until(jobs, number, "SUCCEEDED")
    assert done["attempt"] == 1 and not done.get("recoveries"), done
    said = jobs.sky("jobs", "logs", str(number))
    assert f"as submitted A=value B=hidden job={number}" in said and "set up" in said
    assert re.search(rf"id=sky-managed-\d{{4}}-\S+_train_{number}-0\b", said), said
    assert offered(jobs, "jobs", "logs", "")[0] == str(number)
    table = jobs.sky("jobs", "queue", "-a")
    row = next(line for line in table.splitlines() if line.startswith(f"{number} "))
    assert "train" in row and "SUCCEEDED" in row, table
    nothing_left(jobs)
    # its output stays
    assert f"as submitted A=value B=hidden job={number}" in jobs.sky("jobs", "logs", str(number), "--no-follow")
    told = jobs.sky("jobs", "explain", str(number))
    assert f"Managed job {number} 'train': SUCCEEDED" in told and "attempt 1 on local" in told, told
    # nothing of its clusters is told
    assert f"train-{number}-0-1" not in jobs.sky("status")


def test_a_failure_is_told_with_its_code(jobs: Jobs) -> None:
    number = launch(jobs, "--infra", "local", "echo begun; exit 7")
    done = until(jobs, number, "FAILED")
    assert done["message"] == "run failed; exit codes by rank: 7", done
    said = jobs.sky("jobs", "logs", str(number), code=100)
    assert "begun" in said
    nothing_left(jobs)


def test_failures_are_tried_again_as_the_file_says(jobs: Jobs) -> None:
    task = jobs.write("again.yaml", """
resources: {infra: local, job_recovery: {max_restarts_on_errors: 1, recover_on_exit_codes: [33]}}
run: |
  echo "$SKYPILOT_TASK_ID" >>~/ids
  case $(wc -l <~/ids) in 1) exit 33;; 2) exit 1;; *) uniq ~/ids | wc -l;; esac
""")
    number = launch(jobs, task)
    done = until(jobs, number, "SUCCEEDED", "FAILED")
    assert (done["state"], done["attempt"], done["recoveries"], done["restarts"]) == ("SUCCEEDED", 3, 2, 1), done
    said = jobs.sky("jobs", "logs", str(number))
    assert re.search(r"\) 1$", said, re.M), said
    assert "attempt 2" in said and "attempt 3" in said, said
    nothing_left(jobs)


def test_cancel_ends_it_for_good(jobs: Jobs) -> None:
    number = launch(jobs, "--infra", "local", "trap 'echo bye; exit 0' TERM; echo begun; sleep 1000 & wait")
    until(jobs, number, "RUNNING")
    wait_for("its output", lambda: "begun" in jobs.sky("jobs", "logs", str(number), "--no-follow", code=101), WAIT)
    jobs.sky("jobs", "cancel", "-y", str(number))
    until(jobs, number, "CANCELLED")
    nothing_left(jobs)
    assert "begun" in jobs.sky("jobs", "logs", str(number), code=103)
    jobs.sky("jobs", "cancel", "-y", str(number))
    assert state(jobs, number) == "CANCELLED"


def test_a_job_that_is_deleted_takes_all_with_it(jobs: Jobs) -> None:
    number = launch(jobs, "--infra", "local", "sleep 1000")
    until(jobs, number, "RUNNING")
    jobs.kubectl("delete", "managedjob", f"job-{number}")
    nothing_left(jobs)


def test_tasks_of_a_file_run_one_after_another(jobs: Jobs) -> None:
    task = jobs.write("pipeline.yaml", """
name: both
---
name: first
resources: {infra: local}
run: echo one; echo "$SKYPILOT_TASK_IDS" | wc -l
---
name: second
resources: {infra: local}
run: echo two; exit 3
---
name: third
resources: {infra: local}
run: echo three
""")
    number = launch(jobs, task)
    until(jobs, number, "FAILED")
    states = [task["state"] for task in job(jobs, number)["status"]["tasks"]]
    assert states == ["SUCCEEDED", "FAILED", "CANCELLED"], states
    said = jobs.sky("jobs", "logs", str(number), code=100)
    assert "one" in said and re.search(r"\) 3$", said, re.M) and "two" in said and "three" not in said, said
    nothing_left(jobs)


def submission(jobs: Jobs, number: int) -> list[dict]:
    """The tasks of the job as they were submitted."""
    name = job(jobs, number)["spec"]["submission"]
    return json.loads(json.loads(jobs.kubectl("get", "configmap", name, "-o", "json").stdout)["data"]["job"])["tasks"]


def test_tasks_of_a_group_are_bound_to_one_place(jobs: Jobs) -> None:
    # no cluster has run on this host, so it counts as usable
    pools = jobs.user / ".sky/ssh_node_pools.yaml"
    pools.parent.mkdir(exist_ok=True)
    pools.write_text("lab: {hosts: [192.0.2.1]}\n")
    header = "name: g\nexecution: parallel\nprimary_tasks: [a]\ntermination_delay: {default: 2m, c: 5}\n"
    a = "---\nname: a\nrun: sleep 1000\n"
    b = "---\nname: b\nresources: {any_of: [{infra: local, cpus: 1+}, {infra: ssh/lab}]}\nrun: sleep 1000\n"
    c = "---\nname: c\nresources: {infra: %s}\nrun: sleep 1000\n"
    try:
        said = jobs.sky("jobs", "launch", "-y", jobs.write("group.yaml", header + a + b + c % "local"))
        assert "Job group 'g' will be launched on (estimated):" in said and "All tasks run on: Local" in said, said
        number = int(re.search(r"Managed Job ID: (\d+)", said).group(1))
        assert job(jobs, number)["spec"]["group"] is True
        tasks = submission(jobs, number)
        assert [task["task"]["resources"]["infra"] for task in tasks] == ["local"] * 3, tasks
        assert [task.get("auxiliary") for task in tasks] == [None, 120, 5]
        jobs.sky("jobs", "cancel", "-y", str(number))
        # nothing is bound where the tasks may be apart
        apart = jobs.write("group.yaml", f"inter_connection: false\n{header}---\nname: b\nresources: {{infra: local}}\nrun: x\n{a}{c % 'ssh/lab'}")
        said = jobs.sky("jobs", "launch", apart, code=1)
        assert "each is placed alone" in said and "First choice: SSH lab" in said and "Aborted!" in said, said
        together = jobs.write("group.yaml", f"{header}---\nname: b\nresources: {{infra: local}}\nrun: x\n{a}{c % 'ssh/lab'}")
        said = jobs.sky("jobs", "launch", "-y", together, code=1)
        assert "Job group 'g' cannot be placed: no place has machines for all its tasks. Possible are task 'b' on Local; task 'a' on " in said, said
        assert "task 'c' on SSH lab. Request resources that one place has" in said, said
    finally:
        pools.unlink()
    nothing_left(jobs)


def test_many_are_submitted_at_once(jobs: Jobs) -> None:
    said = jobs.sky("jobs", "launch", "-y", "--num-jobs", "6", "--infra", "local", "-n", "many", "true")
    first, last = map(int, re.search(r"Managed Job IDs: (\d+)-(\d+)", said).groups())
    assert last - first == 5
    for number in range(first, last + 1):
        until(jobs, number, "SUCCEEDED")
    nothing_left(jobs)


@pytest.mark.parametrize(("words", "code", "says"), [
    (("--job-recovery", "SOMEDAY", "true"), 1, "ValueError: Jobs recovery strategy 'SOMEDAY' is not a valid jobs recovery strategy"),
    (("--priority", "2000", "true"), 1, "Priority must be between -1000 and 1000. Found: 2000"),
    (("--num-jobs", "0", "true"), 2, "--num-jobs"),
    (("-p", "pool", "true"), 1, "Pool 'pool' does not exist"),
    (("--gpus", "H100:64", "--infra", "local", "true"), 1, "sky.exceptions.ResourcesUnavailableError"),
])  # fmt: skip
def test_what_cannot_be_is_refused_at_once(jobs: Jobs, words: tuple[str, ...], code: int, says: str) -> None:
    before = jobs.kubectl("get", "managedjobs", "-o", "name").stdout
    assert says in jobs.sky("jobs", "launch", "-y", *words, code=code)
    assert jobs.kubectl("get", "managedjobs", "-o", "name").stdout == before


def test_the_control_plane_may_be_killed_at_any_moment(jobs: Jobs) -> None:
    for kill in range(KILLS):
        number = launch(jobs, "--infra", "local", "echo run >>~/ran; sleep 1; echo over $(wc -l <~/ran)")
        time.sleep(kill * 3 / KILLS)
        os.kill(json.loads((jobs.home / "up.json").read_text())["pid"], signal.SIGKILL)
        jobs.up()
        done = until(jobs, number, "SUCCEEDED")
        assert done["attempt"] == 1 and not done.get("recoveries"), done
        said = jobs.sky("jobs", "logs", str(number))
        assert len(re.findall(r"\) over 1$", said, re.M)) == 1, said
    nothing_left(jobs)


def wipe(host: Host) -> None:
    """The host is switched off, and comes again with an empty disk."""
    host.halt()
    shutil.rmtree(host.home / ".trainyard-machine")
    host.boot()


@by_ssh
def test_a_host_that_restarts_is_not_blamed_on_the_code(lan: Lan, sky: test_sky_ssh.Sky) -> None:
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    number = launch(sky, "--infra", "ssh/lab", "echo begun; [ -e ~/again ] && exit 0; touch ~/again; sleep 1000")
    until(sky, number, "RUNNING")
    wait_for("its output", lambda: "begun" in sky.sky("jobs", "logs", str(number), "--no-follow", code=101), WAIT)
    host.halt()
    host.boot()
    done = until(sky, number, "SUCCEEDED", "FAILED")
    told = (done["state"], done["attempt"], done["recoveries"], done.get("restarts"), done["attempts"][0]["ground"])
    assert told == ("SUCCEEDED", 2, 1, None, "Interrupted"), done
    nothing_left(sky)


@by_ssh
def test_a_lost_host_is_replaced_and_the_other_stays(lan: Lan, sky: test_sky_ssh.Sky) -> None:
    hosts = [lan.host() for _ in range(3)]
    lan.pools(lan.pool("lab", *hosts))
    script = 'echo "attempt on $(hostname -I) of $SKYPILOT_NUM_NODES id=$SKYPILOT_TASK_ID"; [ -e /tmp/go-$SKYPILOT_MANAGED_JOB_ID ] || sleep 1000'
    number = launch(sky, "--infra", "ssh/lab", "--num-nodes", "2", script)
    until(sky, number, "RUNNING")
    wait_for("both ranks to begin", lambda: sky.sky("jobs", "logs", str(number), "--no-follow", code=101).count("attempt on") == 2, WAIT)
    machines = {machine["metadata"]["name"]: machine["metadata"]["uid"] for machine in sky.get("machines")["items"]}
    [second] = [machine for machine in sky.get("machines")["items"] if machine["spec"]["rank"] == 1]
    [lost] = [host for host in hosts if host.address == second["status"]["address"]]
    wipe(lost)
    with contextlib.suppress(FileNotFoundError):
        pathlib.Path(f"/tmp/go-{number}").unlink()
    wait_for("the job to recover", lambda: job(sky, number)["status"].get("recoveries") == 1, WAIT)
    done = until(sky, number, "RUNNING")
    wait_for("both ranks to begin again", lambda: sky.sky("jobs", "logs", str(number), "--no-follow", code=101).count("attempt on") == 4, WAIT)
    assert done["attempts"][0]["ground"] == "MachinesLost", done
    now = {machine["metadata"]["name"]: machine["metadata"]["uid"] for machine in sky.get("machines")["items"]}
    assert sorted(now) == sorted(machines)
    assert sum(machines[name] == now[name] for name in now) == 1, (machines, now)
    ids = set(re.findall(r"\bid=(sky\S+)", sky.sky("jobs", "logs", str(number), "--no-follow", code=101)))
    assert len(ids) == 1, ids
    sky.sky("jobs", "cancel", "-y", str(number))
    until(sky, number, "CANCELLED")
    nothing_left(sky)


@by_ssh
def test_a_job_goes_on_elsewhere_with_what_it_wrote_before(lan: Lan, sky: test_sky_ssh.Sky) -> None:
    hosts = [lan.host() for _ in range(2)]
    lan.pools(lan.pool("one", hosts[0]) + lan.pool("two", hosts[1]))
    number = launch(sky, "--infra", "ssh", "for i in $(seq 1000); do echo line $i; sleep 0.2; done")
    until(sky, number, "RUNNING")
    wait_for("output", lambda: "line 5" in sky.sky("jobs", "logs", str(number), "--no-follow", code=101), WAIT)
    [machine] = sky.get("machines")["items"]
    [lost] = [host for host in hosts if host.address == machine["status"]["address"]]
    wipe(lost)
    wait_for("the job to recover", lambda: job(sky, number)["status"].get("recoveries") == 1, WAIT)
    done = until(sky, number, "RUNNING")
    places = [attempt["place"] for attempt in done["attempts"]]
    assert len(set(places)) == 2, f"it went back to the region that it lost: {places}"
    wait_for("output again", lambda: sky.sky("jobs", "logs", str(number), "--no-follow", code=101).count("line 1\n") == 2, WAIT)
    said = sky.sky("jobs", "logs", str(number), "--no-follow", code=101)
    assert said.index("line 5") < said.index("attempt 2") < said.rindex("line 1\n"), said
    sky.sky("jobs", "cancel", "-y", str(number))
    until(sky, number, "CANCELLED")
    nothing_left(sky)


@by_ssh
def test_a_job_that_waits_gets_the_machine_when_it_is_free(lan: Lan, sky: test_sky_ssh.Sky) -> None:
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    until_told = "until [ -e /tmp/end-$SKYPILOT_MANAGED_JOB_ID ]; do sleep 0.1; done"

    def launched() -> int:
        number = launch(sky, "--infra", "ssh/lab", until_told)
        pathlib.Path(f"/tmp/end-{number}").unlink(missing_ok=True)
        return number

    def waits(number: int) -> None:
        wait_for(f"job {number} to find no room", lambda: job(sky, number).get("status", {}).get("tasks", [{}])[0].get("failures"), WAIT)

    first = launched()
    until(sky, first, "RUNNING")
    second = launched()
    waits(second)
    told = sky.sky("jobs", "explain", str(second))
    assert f"Managed job {second} " in told and "PENDING" in told, told
    assert "It waits for capacity: the control plane tries again when a machine of ssh/lab becomes free" in told, told
    pathlib.Path(f"/tmp/end-{first}").touch()
    ended = until(sky, first, "SUCCEEDED")["endedAt"]
    began = until(sky, second, "RUNNING")["attempts"][-1]["beganAt"]
    took = (datetime.datetime.fromisoformat(began) - datetime.datetime.fromisoformat(ended)).total_seconds()
    print(f"the launch that got the machine began {took:.1f} s after the end of the job that had it")
    # first the output is kept, and the machine removed
    assert took < 15, took
    # a job that recovers comes before one that waits, whatever its priority
    third = launch(sky, "--infra", "ssh/lab", "--priority", "1000", "true")
    waits(third)
    wipe(host)
    wait_for("the job to recover", lambda: job(sky, second)["status"].get("recoveries") == 1, WAIT)
    until(sky, second, "RUNNING")
    assert not job(sky, third)["status"]["tasks"][0].get("startedAt"), "it is tried, but the machine is taken"
    # what waits is in the objects
    os.kill(json.loads((sky.home / "up.json").read_text())["pid"], signal.SIGKILL)
    sky.up()
    pathlib.Path(f"/tmp/end-{second}").touch()
    until(sky, second, "SUCCEEDED")
    until(sky, third, "SUCCEEDED")
    nothing_left(sky)
