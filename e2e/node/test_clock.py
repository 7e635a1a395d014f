"""A machine's clock that is set, by more than an hour and in either direction, ends, evicts and expires nothing, and nothing hangs.

A layer before the C library (`faults/clock.c`) sets the clock of the processes of one home; the machine's own stays as it is.
"""

from __future__ import annotations

import datetime
import json
import pathlib
import struct
import subprocess
from collections.abc import Callable, Iterator

import pytest

from conftest import ROOT, Yard, stop, wait_for

LAYER = ROOT / "e2e/faults" / "clock.c"
SHIFT = 4000
# Job's first pause between two pods, in seconds.
BACKOFF = 10


class Clock:
    def __init__(self, folder: pathlib.Path):
        library = folder / "clock.so"
        subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, LAYER], check=True)
        self.file = folder / "offset"
        self.file.write_bytes(struct.pack("=q", 0))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(self.file)}

    def set(self, by: int) -> None:
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", by))


@pytest.fixture
def clock(tmp_path: pathlib.Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def shifted(clock: Clock, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    with monkeypatch.context() as patched:
        for name, value in clock.environment.items():
            patched.setenv(name, value)
        yard = Yard(tmp_path / "home")
    yield yard
    stop(yard)


def job(name: str, script: str, policy: str = "Never", pod: dict | None = None, **spec: object) -> dict:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    spec.setdefault("backoffLimit", 3)
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {**spec, "template": {"spec": {"restartPolicy": policy, "containers": [container], **(pod or {})}}},
    }  # fmt: skip


def read(time: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(time)


def state(yard: Yard, name: str) -> dict:
    return json.loads(yard.kubectl("get", "job", name, "-o", "json").stdout)


def ended(yard: Yard, name: str) -> str:
    """`Complete` or `Failed`; empty while it goes on."""
    conditions = state(yard, name)["status"].get("conditions", [])
    return next((c["type"] for c in conditions if c["status"] == "True" and c["type"] in ("Complete", "Failed")), "")


def pods(yard: Yard, name: str) -> list[dict]:
    found = json.loads(yard.kubectl("get", "pods", "-l", f"job-name={name}", "-o", "json").stdout)["items"]
    return sorted(found, key=lambda pod: pod["metadata"]["creationTimestamp"])


def runs(yard: Yard, name: str) -> Callable[[], bool]:
    return lambda: any(pod["status"].get("phase") == "Running" for pod in pods(yard, name))


@pytest.mark.parametrize("by", [SHIFT, -SHIFT], ids=["forward", "back"])
def test_a_clock_that_is_set(shifted: Yard, clock: Clock, tmp_path: pathlib.Path, by: int):
    yard, go = shifted, tmp_path / "go"
    wait_to = f"until [ -e {go} ]; do sleep 0.1; done"
    stubborn = f"trap '' TERM; touch {tmp_path}/trapped; {wait_to}"
    jobs = [
        job("long", wait_to, activeDeadlineSeconds=2000),
        job("again", f"[ -e {tmp_path}/failed ] || {{ touch {tmp_path}/failed; exit 1; }}"),
        job("waits", "true", pod={"nodeSelector": {"there-is": "none"}}, activeDeadlineSeconds=2000),
        job("kept", "true", ttlSecondsAfterFinished=2000),
        job("dropped", "true", ttlSecondsAfterFinished=8),
        job("stubborn", stubborn, pod={"terminationGracePeriodSeconds": 6}),
    ]
    yard.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": jobs}))
    yard.kubectl("create", "serviceaccount", "visitor")
    token = yard.kubectl("create", "token", "visitor", "--duration=10m").stdout.strip()
    wait_for("the long job to run", runs(yard, "long"))
    wait_for("the stubborn one to be", (tmp_path / "trapped").exists)
    for name in ("kept", "dropped"):
        wait_for(f"{name} to end", lambda name=name: ended(yard, name) == "Complete")
    wait_for("the first failure", lambda: state(yard, "again")["status"].get("failed"))
    yard.kubectl("delete", "job", "stubborn", "--wait=false", "--cascade=foreground")

    clock.set(by)

    # what pauses goes on after its pause, no sooner and no hour later
    wait_for("a second try", lambda: ended(yard, "again") == "Complete")
    wait_for("the end of the grace period", lambda: not pods(yard, "stubborn"))
    wait_for("the end of the time to live", lambda: "dropped" not in yard.kubectl("get", "jobs", "-o", "name").stdout)
    assert state(yard, "again")["status"]["failed"] == 1
    (first, second) = pods(yard, "again")
    failed = first["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    pause = (read(second["metadata"]["creationTimestamp"]) - read(failed)).total_seconds()
    # times are told in whole seconds
    assert BACKOFF - 2 <= pause < SHIFT / 2, pause

    # what is younger than its bound is there
    yard.kubectl("get", "job", "kept")
    assert yard.kubectl("auth", "whoami", "--token", token, check=False).returncode == 0
    reasons = {event["reason"] for event in json.loads(yard.kubectl("get", "events", "-o", "json").stdout)["items"]}
    assert {"SuccessfulCreate", "Started"} <= reasons and "NodeNotReady" not in reasons, reasons

    # also for a control plane that starts anew, which has no other memory than its files
    yard.kill()
    yard.up()
    yard.kubectl("apply", "-f", "-", input=json.dumps(job("after", "true")))
    wait_for("a job after the start", lambda: ended(yard, "after") == "Complete")
    assert (ended(yard, "long"), ended(yard, "waits")) == ("", "")
    yard.kubectl("get", "job", "kept")
    (node,) = json.loads(yard.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    (ready,) = [c for c in node["status"]["conditions"] if c["type"] == "Ready"]
    assert ready["status"] == "True"

    # and nothing ends before it began
    go.touch()
    wait_for("the long job's end", lambda: ended(yard, "long") == "Complete")
    for name in ("long", "again", "after"):
        status = state(yard, name)["status"]
        assert read(status["startTime"]) <= read(status["completionTime"]), status
        for pod in pods(yard, name):
            done = pod["status"]["containerStatuses"][0]["state"]["terminated"]
            assert read(pod["metadata"]["creationTimestamp"]) <= read(done["startedAt"]) <= read(done["finishedAt"]), done
    created = [read(state(yard, name)["metadata"]["creationTimestamp"]) for name in ("long", "after")]
    assert datetime.timedelta() <= created[1] - created[0] < datetime.timedelta(seconds=SHIFT / 2)
