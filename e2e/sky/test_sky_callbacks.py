"""Callbacks of managed jobs: what they see, what follows when they fail or hang, and a killed control plane."""

from __future__ import annotations

import pathlib
import re

from conftest import wait_for
from test_sky_jobs import WAIT, Jobs, launch, state, until

import test_sky_jobs

jobs = test_sky_jobs.jobs


def lines(path: pathlib.Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def told(path: pathlib.Path, *expected: str) -> None:
    """Waits for these lines of a file, and no others."""
    wait_for(f"{expected} in {path.name}", lambda: len(lines(path)) >= len(expected), WAIT)
    assert lines(path) == list(expected)


def callback_pods(jobs: Jobs, number: int) -> list[str]:
    names = jobs.kubectl("get", "pods", "-l", f"sky.trainyard.dev/callback=job-{number}", "-o", "name").stdout
    return sorted(name.removeprefix("pod/") for name in names.split())


def no_machines(jobs: Jobs) -> None:
    kinds = "clusters.sky.trainyard.dev,machines.sky.trainyard.dev"
    wait_for("all machines to be gone", lambda: not jobs.kubectl("get", kinds, "-o", "name").stdout.strip(), WAIT)


def test_a_callback_sees_each_change(jobs: Jobs) -> None:
    out = jobs.user / "told"
    task = jobs.write(
        "told.yaml",
        f"""
name: told
resources: {{infra: local}}
envs: {{A: value}}
secrets: {{B: hidden}}
run: echo done
event_callback: |
  echo "$JOB_STATUS $JOB_ID $TASK_ID $TASK_NAME $CLUSTER_NAME $A $B $SKYPILOT_TASK_ID" >>{out}
  echo "told of $JOB_STATUS"
""",
    )
    number = launch(jobs, task)
    until(jobs, number, "SUCCEEDED")
    wait_for("four callbacks", lambda: len(lines(out)) == 4, WAIT)
    task_id = lines(out)[0].split()[-1]
    assert re.fullmatch(rf"sky-managed-\d{{4}}-\S+_told_{number}-0", task_id), task_id
    rest = f"{number} 0 told told-{number}-0-1 value hidden {task_id}"
    assert lines(out) == [f"{status} {rest}" for status in ("SUBMITTED", "STARTING", "STARTED", "SUCCEEDED")]
    no_machines(jobs)
    # the latest three stay, and their output can be read
    pods = [f"job-{number}-0-callback-{event}" for event in (2, 3, 4)]
    wait_for("three pods", lambda: callback_pods(jobs, number) == pods, WAIT)
    assert jobs.kubectl("logs", pods[-1]).stdout == "told of SUCCEEDED\n"
    explained = jobs.sky("jobs", "explain", str(number))
    assert "callback" not in explained, explained
    assert "hidden" not in jobs.kubectl("get", "pods,managedjobs,configmaps,events", "-o", "yaml").stdout
    jobs.kubectl("delete", "managedjob", f"job-{number}")
    wait_for("the pods to be gone", lambda: not callback_pods(jobs, number), WAIT)


def test_one_that_fails_or_hangs_changes_nothing_about_its_job(jobs: Jobs) -> None:
    out = jobs.user / "bad"
    task = jobs.write(
        "bad.yaml",
        f"""
resources: {{infra: local}}
run: echo done
event_callback: |
  echo "$JOB_STATUS" >>{out}
  case $JOB_STATUS in
    SUBMITTED) exec sleep 1000 ;;
    STARTED) echo "no such host"; exit 3 ;;
  esac
""",
    )
    number = launch(jobs, task)
    until(jobs, number, "SUCCEEDED")
    hanging = f"job-{number}-0-callback-1"
    told(out, "SUBMITTED")
    explained = jobs.sky("jobs", "explain", str(number))
    assert f"The callback of SUBMITTED has not ended; `kubectl logs {hanging}` shows its output" in explained, explained
    assert jobs.kubectl("get", "pod", hanging, "-o", "jsonpath={.spec.activeDeadlineSeconds}").stdout == "300"
    # it survives its control plane, as the job's events do
    jobs.kill()
    jobs.up()
    jobs.kubectl("delete", "pod", hanging)
    told(out, "SUBMITTED", "STARTING", "STARTED", "SUCCEEDED")
    failed = f"job-{number}-0-callback-3"
    latest = f"2 callbacks failed. Latest: the callback of STARTED exited with 3; `kubectl logs {failed}` shows its output"
    wait_for("what failed", lambda: latest in jobs.sky("jobs", "explain", str(number)), WAIT)
    assert jobs.kubectl("logs", failed).stdout == "no such host\n"
    assert state(jobs, number) == "SUCCEEDED"
    events = jobs.kubectl("get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}").stdout
    assert f"CallbackFailed the callback of STARTED of task 0 exited with 3; `kubectl logs {failed}`" in events, events


def test_a_cancelled_job_reports_its_end(jobs: Jobs) -> None:
    out = jobs.user / "ended"
    number = launch(
        jobs,
        jobs.write(
            "ended.yaml",
            f"""
resources: {{infra: local}}
run: sleep 1000
event_callback: echo "$JOB_STATUS" >>{out}
""",
        ),
    )
    until(jobs, number, "RUNNING")
    jobs.sky("jobs", "cancel", "-y", str(number))
    until(jobs, number, "CANCELLED")
    told(out, "SUBMITTED", "STARTING", "STARTED", "CANCELLING", "CANCELLED")
