"""Callbacks of managed jobs and hooks of clusters: what they see, what follows when they fail or hang, and a killed control plane."""

from __future__ import annotations

import json
import pathlib
import re

from conftest import wait_for
from sshd import Lan
from test_sky_jobs import WAIT, Jobs, by_ssh, launch, state, until

import test_sky_jobs
import test_sky_ssh

jobs, lan, sky = test_sky_jobs.jobs, test_sky_jobs.lan, test_sky_jobs.sky


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
    assert f"The callback for SUBMITTED has not ended. `kubectl logs {hanging}` shows its output." in explained, explained
    assert jobs.kubectl("get", "pod", hanging, "-o", "jsonpath={.spec.activeDeadlineSeconds}").stdout == "300"
    # it survives its control plane, as the job's events do
    jobs.kill()
    jobs.up()
    jobs.kubectl("delete", "pod", hanging)
    told(out, "SUBMITTED", "STARTING", "STARTED", "SUCCEEDED")
    failed = f"job-{number}-0-callback-3"
    latest = f"2 callbacks failed. Latest: the callback for STARTED exited with 3; `kubectl logs {failed}` shows its output"
    wait_for("what failed", lambda: latest in jobs.sky("jobs", "explain", str(number)), WAIT)
    assert jobs.kubectl("logs", failed).stdout == "no such host\n"
    assert state(jobs, number) == "SUCCEEDED"
    events = jobs.kubectl("get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.message}{'\\n'}{end}").stdout
    assert f"CallbackFailed task 0: the callback for STARTED exited with 3; `kubectl logs {failed}`" in events, events


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


def test_hooks_run_before_machines_stop_and_end(jobs: Jobs) -> None:
    out = jobs.user / "hooks"
    hooks = f"""
resources: {{infra: local}}
num_nodes: 2
run: echo ran
config:
  hooks:
    - run: |
        echo "$SKYPILOT_HOOK_EVENT $SKYPILOT_NODE_RANK" >>{out}
        echo "goodbye from $SKYPILOT_NODE_RANK"
      events: [stop, down]
    - {{run: exit 4, events: [stop]}}
    - {{run: sleep 1000, events: [down], timeout: 1}}
"""
    jobs.sky("launch", "-y", "-c", "hooked", jobs.write("hooks.yaml", hooks))
    said = jobs.sky("logs", "--hook", "hooked", code=1)
    assert "No hook has fired yet on this cluster." in said, said
    said = jobs.sky("stop", "-y", "hooked")
    assert "Running stop hooks on cluster hooked; `trainyard sky logs --hook stop hooked` shows their output." in said, said
    assert "stop hooks of cluster hooked failed: machine hooked-0-1: a hook exited with 4" in said, said
    assert "Stopping cluster hooked...done." in said, said
    assert sorted(lines(out)) == ["stop 0", "stop 1"]
    jobs.sky("start", "-y", "hooked")
    said = jobs.sky("logs", "--hook", "stop", "--no-follow", "hooked")
    assert said.splitlines() == [
        "(head) goodbye from 0", "(head) hook 2 of 2 exited with 4", "(worker1) goodbye from 1", "(worker1) hook 2 of 2 exited with 4",
    ], said  # fmt: skip
    said = jobs.sky("down", "-y", "hooked")
    assert "down hooks of cluster hooked failed: machine hooked-0-0: a hook ran longer than its timeout" in said, said
    assert sorted(lines(out)) == ["down 0", "down 1", "stop 0", "stop 1"]
    no_machines(jobs)


def test_a_launch_without_hooks_removes_them(jobs: Jobs) -> None:
    out = jobs.user / "removed"
    task = jobs.write(
        "removed.yaml",
        f"""
resources: {{infra: local}}
config:
  hooks:
  - run: echo $SKYPILOT_HOOK_EVENT >>{out}
  - {{run: save, events: [preemption], timeout: 60}}
""",
    )
    said = jobs.sky("launch", "-y", "-c", "removed", task)
    assert "A hook for `preemption` alone has no effect" in said, said
    hooks = json.loads(jobs.kubectl("get", "cluster", "removed", "-o", "json").stdout)["spec"]["hooks"]
    assert [(hook["events"], hook["timeoutSeconds"]) for hook in hooks] == [(["stop", "preemption", "down"], 3600), (["preemption"], 60)]
    # `exec` leaves them as they are
    jobs.sky("exec", "removed", "true")
    assert json.loads(jobs.kubectl("get", "cluster", "removed", "-o", "json").stdout)["spec"]["hooks"] == hooks
    jobs.sky("launch", "-y", "-c", "removed", "--infra", "local", "true")
    jobs.sky("down", "-y", "removed")
    assert lines(out) == []


def test_a_killed_control_plane_runs_hooks_once(jobs: Jobs) -> None:
    out, go = jobs.user / "once", jobs.user / "go"
    task = jobs.write(
        "once.yaml",
        f"""
resources: {{infra: local}}
config: {{hooks: [{{run: 'echo begun | tee -a {out}; until [ -e {go} ]; do sleep 0.1; done; echo ended >>{out}'}}]}}
""",
    )
    jobs.sky("launch", "-y", "-c", "once", task)
    jobs.sky("down", "-y", "--async", "once")
    told(out, "begun")
    jobs.kill()
    jobs.up()
    wait_for("its output", lambda: "begun" in jobs.sky("logs", "--hook", "down", "--no-follow", "once"), WAIT)
    go.touch()
    no_machines(jobs)
    told(out, "begun", "ended")
    # and one that hangs is skipped
    go.unlink()
    jobs.sky("launch", "-y", "-c", "once", task)
    jobs.sky("down", "-y", "--async", "once")
    told(out, "begun", "ended", "begun")
    jobs.sky("down", "-y", "--purge", "once")
    assert lines(out) == ["begun", "ended", "begun"]


def test_a_managed_job_runs_its_hooks_at_its_end(jobs: Jobs) -> None:
    out = jobs.user / "job-hooks"
    number = launch(
        jobs,
        jobs.write(
            "job-hooks.yaml",
            f"""
resources: {{infra: local}}
run: echo ran
config: {{hooks: [{{run: 'echo $SKYPILOT_HOOK_EVENT >>{out}'}}]}}
""",
        ),
    )
    until(jobs, number, "SUCCEEDED")
    no_machines(jobs)
    assert lines(out) == ["down"]


@by_ssh
def test_hooks_run_on_hosts_that_are_reached_by_ssh(lan: Lan, sky: test_sky_ssh.Sky) -> None:
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    task = lan.user / "far.yaml"
    task.write_text("""
resources: {infra: ssh/lab}
run: echo ran
config: {hooks: [{run: 'echo "at $PWD before $SKYPILOT_HOOK_EVENT"', events: [stop]}]}
""")
    sky.sky("launch", "-y", "-c", "far", str(task))
    sky.sky("stop", "-y", "far")
    (log,) = host.home.glob(".trainyard-machine/*/home/.sky/hooks/stop.log")
    assert re.fullmatch(r"at \S+/home before stop\n", log.read_text()), log.read_text()
    assert "It is only allowed for UP" in sky.sky("logs", "--hook", "far", code=1)
    sky.sky("start", "-y", "far")
    assert log.read_text() in sky.sky("logs", "--hook", "far")
    sky.sky("down", "-y", "far")
