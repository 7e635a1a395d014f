"""Pools: workers that wait, and the managed jobs that run on them."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from conftest import stop, wait_for
from test_sky_jobs import WAIT, Jobs, job, launch, state, until
from test_sky_ssh import offered

POOL = """
name: warm
pool: {workers: %s}
resources: {infra: local}
setup: echo made > ~/made
"""


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="p"))
    of = None
    try:
        of = Jobs(folder)
        yield of
    finally:
        if of is not None:
            stop(of)
        shutil.rmtree(folder, ignore_errors=True)


def pool(of: Jobs, name: str) -> dict:
    return json.loads(of.kubectl("get", "pool", name, "-o", "json", check=False).stdout or "{}")


def ready(of: Jobs, name: str) -> list[int]:
    return [one["number"] for one in pool(of, name).get("status", {}).get("replicas", []) if one.get("state") == "READY"]


def apply(of: Jobs, name: str, workers: int, *words: str) -> None:
    said = of.sky("jobs", "pool", "apply", "-y", "-p", name, *words)
    assert f"Pool '{name}' is being" in said, said
    wait_for(f"{workers} workers of {name}", lambda: len(ready(of, name)) == workers, WAIT)


def down(of: Jobs, name: str) -> str:
    said = of.sky("jobs", "pool", "down", "-y", name)
    wait_for(f"{name} to be gone", lambda: not pool(of, name), WAIT)
    return said


def numbers(said: str) -> list[int]:
    first, last = re.search(r"Managed Job IDs: (\d+)-(\d+)", said).groups()
    return list(range(int(first), int(last) + 1))


def test_a_sweep_runs_on_warm_workers(jobs: Jobs) -> None:
    jobs.write("pool.yaml", POOL % 2)
    apply(jobs, "warm", 2, "pool.yaml")
    jobs.write("code/a.txt", "as submitted\n")
    task = jobs.write(
        "sweep.yaml",
        """
name: sweep
workdir: code
envs: {A: value}
run: echo "$(cat ~/made) $(cat a.txt) A=$A rank=$SKYPILOT_JOB_RANK of $SKYPILOT_NUM_JOBS"
""",
    )
    said = jobs.sky("jobs", "launch", "-y", "-p", "warm", "--num-jobs", "6", task)
    assert "Submitting to pool 'warm' with 6 jobs. 2 of its 2 workers are ready." in said, said
    ids = numbers(said)
    for rank, number in enumerate(ids):
        done = until(jobs, number, "SUCCEEDED")
        assert done["attempt"] == 1 and done["cluster"] in ("warm-1", "warm-2"), done
        assert f"made as submitted A=value rank={rank} of 6" in jobs.sky("jobs", "logs", "--no-follow", str(number))
    table = jobs.sky("jobs", "queue", "-a")
    row = next(line for line in table.splitlines() if line.startswith(f"{ids[0]} "))
    assert row.rstrip().endswith("warm"), table
    # nothing of the jobs stays on the workers but their output
    names = "launches.sky.trainyard.dev,jobsets.jobset.x-k8s.io"
    wait_for(
        "the jobs to leave the workers",
        lambda: "job-" not in jobs.kubectl("get", names, "-l", "sky.trainyard.dev/managed-job", "-o", "name").stdout,
        WAIT,
    )
    said = jobs.sky("jobs", "pool", "status", "warm")
    assert "Pool Workers" in said and "2/2" in said, said
    assert "made" not in jobs.sky("jobs", "pool", "logs", "warm", "1", "--no-follow")


def test_a_worker_that_dies_delays_only_its_own_job(jobs: Jobs) -> None:
    task = jobs.write(
        "wait.yaml",
        """
name: wait
run: |
  echo "rank $SKYPILOT_JOB_RANK begins"
  sleep 1000
""",
    )
    said = jobs.sky("jobs", "launch", "-y", "-p", "warm", "--num-jobs", "2", task)
    first, second = numbers(said)
    for number in (first, second):
        until(jobs, number, "RUNNING")
    used = jobs.sky("jobs", "pool", "status", "warm")
    assert all(re.search(rf"READY\s+{number}\b", used) for number in (first, second)), used
    worker = job(jobs, first)["status"]["worker"]
    # its cluster goes, as when its machine is lost
    jobs.kubectl("patch", "managedjob", f"pool-warm-{worker}", "--type=merge", "-p", '{"spec":{"cancel":true}}')
    wait_for("a new worker", lambda: len(ready(jobs, "warm")) == 2 and worker not in ready(jobs, "warm"), WAIT)
    wait_for("the job to run again", lambda: state(jobs, first) == "RUNNING" and job(jobs, first)["status"]["recoveries"] == 1, WAIT)
    assert job(jobs, first)["status"]["worker"] != worker
    task = job(jobs, first)["status"]["tasks"][0]
    assert task["attempts"][0]["evidence"].startswith(f"worker {worker} of pool warm"), task
    assert not job(jobs, second)["status"].get("recoveries")
    said = jobs.sky("jobs", "logs", "--no-follow", str(first), code=101)
    assert said.count("rank 0 begins") == 2, said
    assert "are scheduled to be cancelled" in jobs.sky("jobs", "cancel", "-y", "-p", "warm")
    for number in (first, second):
        until(jobs, number, "CANCELLED")


def test_the_number_of_workers_changes_without_a_new_file(jobs: Jobs) -> None:
    before = ready(jobs, "warm")
    apply(jobs, "warm", 3, "--workers", "3")
    assert set(before) < set(ready(jobs, "warm")), "the workers that were there stay"
    apply(jobs, "warm", 1, "--workers", "1")


def test_jobs_outlive_the_control_plane(jobs: Jobs) -> None:
    task = jobs.write("long.yaml", "name: long\nrun: for i in $(seq 30); do echo tick $i; sleep 0.1; done\n")
    number = launch(jobs, "-p", "warm", task)
    until(jobs, number, "RUNNING")
    jobs.kill()
    jobs.up()
    done = until(jobs, number, "SUCCEEDED")
    assert done["attempt"] == 1 and not done.get("recoveries"), done
    said = jobs.sky("jobs", "logs", "--no-follow", str(number))
    assert [line for line in said.splitlines() if "tick" in line][-1].endswith("tick 30"), said


def test_a_pool_from_zero_and_what_is_wrong(jobs: Jobs) -> None:
    jobs.write(
        "zero.yaml",
        """
pool: {min_workers: 0, max_workers: 1, queue_length_threshold: 5}
resources: {infra: local}
""",
    )
    apply(jobs, "zero", 0, "zero.yaml")
    assert (offered(jobs, "jobs", "pool", "down", "ze"), offered(jobs, "jobs", "launch", "-p", "ze")) == (["zero"], ["zero"])
    task = jobs.write("hi.yaml", "name: hi\nsetup: exit 1\nrun: echo hi\n")
    said = jobs.sky("jobs", "launch", "-y", "-p", "zero", task)
    assert "`setup` has no effect on a job in a pool" in said, said
    until(jobs, int(re.search(r"Managed Job ID: (\d+)", said).group(1)), "SUCCEEDED")
    for words, says, code in [
        (("jobs", "launch", "-y", "-p", "wram", task), "Pool 'wram' does not exist. Did you mean warm?", 1),
        (("jobs", "launch", "-y", "-p", "warm", jobs.write("none.yaml", "setup: echo x\n")), "A job in a pool needs `run`", 1),
        (("jobs", "pool", "apply", "-y", "-p", "warm", "hi.yaml"), "Pool section not found in the YAML file.", 1),
        (("jobs", "pool", "apply", "-y", "-p", "warm"), "Name the file of a pool, or both --pool and --workers.", 2),
        (("jobs", "pool", "apply", "-y", "--workers", "2"), "A pool name must be provided", 2),
        (("jobs", "pool", "apply", "-y", "-p", "warm", "--workers", "2", "zero.yaml"), "Cannot specify both --workers and POOL_YAML", 2),
        (
            ("jobs", "pool", "apply", "-y", "-p", "warm", jobs.write("both.yaml", "pool: {workers: 1}\nservice: {readiness_probe: /}\n")),
            "both service and pool",
            1,
        ),
        (("jobs", "pool", "status", "nosuch"), "Pool 'nosuch' does not exist.", 102),
        (("jobs", "pool", "logs", "warm", "99"), "Worker 99 of pool 'warm' does not exist.", 1),
        (("jobs", "cancel", "-y", "-p", "warm"), "No running job found in pool 'warm'.", 102),
    ]:
        said = jobs.sky(*words, code=code)
        assert says in said, f"{words}: {said}"


def test_a_pool_that_ends_ends_its_jobs(jobs: Jobs) -> None:
    task = jobs.write("sleep.yaml", "name: sleep\nrun: sleep 1000\n")
    first, second = launch(jobs, "-p", "warm", task), launch(jobs, "-p", "warm", task)
    until(jobs, first, "RUNNING")
    table = jobs.sky("jobs", "queue", "-v")
    assert "it waits for a free worker of pool warm" in table, table
    said = down(jobs, "warm")
    assert "2 jobs are being cancelled." in said, said
    for number in (first, second):
        until(jobs, number, "CANCELLED")
    # a pool that is deleted as an object
    number = launch(jobs, "-p", "zero", task)
    until(jobs, number, "RUNNING")
    jobs.kubectl("delete", "pool", "zero", "--wait=false")
    until(jobs, number, "FAILED_NO_RESOURCE")
    wait_for("zero to be gone", lambda: not pool(jobs, "zero"), WAIT)
    assert "pool zero was deleted" in jobs.sky("jobs", "queue", "-a", "-v")
    kinds = "launches.sky.trainyard.dev,clusters.sky.trainyard.dev,machines.sky.trainyard.dev"
    wait_for("nothing to be left", lambda: not jobs.kubectl("get", kinds, "-o", "name").stdout.strip(), WAIT)
    assert "No live pools." in jobs.sky("jobs", "pool", "status")
