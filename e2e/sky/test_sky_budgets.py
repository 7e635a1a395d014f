"""Budgets: real jobs wait for room, are stopped when the limit is reached, and go on when it is raised."""

from __future__ import annotations

import datetime
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from conftest import stop, wait_for
from test_sky_jobs import Jobs, job, launch, nothing_left, state, until

# seconds that a limit of 0.001 hours lasts
LASTS = 3.6
# the most seconds from the crossing until the job is stopped
STOPPED_MAX = 60


@pytest.fixture(scope="module")
def jobs() -> Iterator[Jobs]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="b"))
    of = None
    try:
        of = Jobs(folder)
        yield of
    finally:
        if of is not None:
            stop(of)
        shutil.rmtree(folder, ignore_errors=True)


def budget(of: Jobs, name: str, spec: dict, ok: bool = True) -> str:
    kind = {"apiVersion": "sky.trainyard.dev/v1alpha1", "kind": "Budget"}
    file = of.write(f"{name}.json", json.dumps({**kind, "metadata": {"name": name}, "spec": spec}))
    done = of.run("apply", "-f", file, check=False, cwd=of.user)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def status(of: Jobs, name: str) -> dict:
    return json.loads(of.kubectl("get", "budget", name, "-o", "json").stdout).get("status", {})


def message(of: Jobs, number: int) -> str:
    tasks = job(of, number).get("status", {}).get("tasks") or [{}]
    return tasks[0].get("message", "")


def time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def test_a_job_is_stopped_when_the_limit_is_reached(jobs: Jobs) -> None:
    budget(jobs, "small", {"limit": {"machineHours": 0.001}, "reserveMinutes": 0})
    first = launch(jobs, "--infra", "local", "sleep 1000")
    task = until(jobs, first, "FAILED_NO_RESOURCE")
    assert "budget small: the limit of 0.001 machine-hours is reached" in task["message"], task
    assert task["attempts"][0]["ground"] == "Budget", task
    nothing_left(jobs)
    began = time(json.loads(jobs.kubectl("get", "budget", "small", "-o", "json").stdout)["status"]["exceededAt"])
    stopped = (time(task["endedAt"]) - began).total_seconds()
    print(f"stopped {stopped:.1f} s after the crossing")
    assert stopped < STOPPED_MAX
    told = status(jobs, "small")
    spent = told["spent"]["machineHours"] * 3600
    assert LASTS <= spent < LASTS + STOPPED_MAX, told
    assert told["jobs"][0] | {"at": ""} == {"name": f"job-{first}", "action": "Stopped", "at": ""}, told
    table = jobs.kubectl("get", "budgets").stdout
    assert "small" in table and "True" in table, table
    assert task["message"] in jobs.sky("jobs", "explain", str(first))

    # a second one waits, says for what, and goes on when the limit is raised
    second = launch(jobs, "--infra", "local", "echo here")
    wait_for("the reason", lambda: message(jobs, second))
    expected = "it waits for budget small: the limit of 0.001 machine-hours is used up; raise spec.limit.machineHours of the budget"
    assert message(jobs, second) == expected
    assert expected in jobs.sky("jobs", "explain", str(second))
    assert state(jobs, second) == "PENDING"
    assert status(jobs, "small")["jobs"][-1]["action"] == "Waits"
    jobs.kubectl("patch", "budget", "small", "--type=merge", "-p", json.dumps({"spec": {"limit": {"machineHours": 1}}}))
    until(jobs, second, "SUCCEEDED")
    nothing_left(jobs)
    jobs.kubectl("delete", "budget", "small")


def test_a_budget_of_zero_lets_nothing_begin(jobs: Jobs) -> None:
    budget(jobs, "none", {"limit": {"dollars": 0}, "user": "me"})
    number = launch(jobs, "--infra", "local", "echo here")
    wait_for("the reason", lambda: "budget none" in message(jobs, number))
    assert state(jobs, number) == "PENDING"
    assert not jobs.kubectl("get", "launches.sky.trainyard.dev", "-o", "name").stdout
    # without the budget it begins
    jobs.kubectl("delete", "budget", "none")
    until(jobs, number, "SUCCEEDED")
    nothing_left(jobs)


def test_an_attempt_needs_room_for_its_reservation(jobs: Jobs) -> None:
    budget(jobs, "minutes", {"limit": {"machineHours": 0.05}})
    number = launch(jobs, "--infra", "local", "echo here")
    wait_for("the reason", lambda: "has no room for 10 minutes of its machines" in message(jobs, number))
    budget(jobs, "minutes", {"limit": {"machineHours": 0.05}, "reserveMinutes": 1})
    until(jobs, number, "SUCCEEDED")
    nothing_left(jobs)
    jobs.kubectl("delete", "budget", "minutes")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"limit": {}}, "a budget needs a limit: set at least one of dollars, gpuHours and machineHours"),
        ({}, "spec.limit: Required value"),
        ({"limit": {"dollars": -1}}, "spec.limit.dollars in body should be greater than or equal to 0"),
        ({"limit": {"dollars": "ten"}}, ".spec.limit.dollars: expected numeric"),
        ({"limit": {"dollars": 1}, "period": "Week"}, "spec.period: Unsupported value: \"Week\""),
        ({"limit": {"dollars": 1}, "reserveMinutes": -1}, "spec.reserveMinutes in body should be greater than or equal to 0"),
    ],
)
def test_wrong_budgets_are_refused(jobs: Jobs, spec: dict, said: str) -> None:
    assert said in (told := budget(jobs, "wrong", spec, ok=False)), told
