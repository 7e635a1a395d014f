"""Endings: a job whose ranks take three seconds or more to end is suspended, resumed, deleted, run again, loses its shims or its control plane.

In each case: never two processes of the same rank at once, every last line is seen, and `get` never says that it is over before it is.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
from collections.abc import Callable

from conftest import Yard, wait_for

NODES = 2
# the book has a line for each begin and each end of a rank: they alternate, or two processes were there at once
SCRIPT = """
rank=$JOB_COMPLETION_INDEX
trap 'echo "ending $rank" >>{book}; while [ -e {book}.held ]; do sleep 0.1; done; sleep 3 & wait $!; echo "last line of $rank"; echo "end $rank" >>{book}; exit 0' TERM
echo "begin $rank" >>{book}
echo "first line of $rank"
while :; do sleep 60 & wait $!; done
"""


class Job:
    """A job of two ranks that run."""

    def __init__(self, yard: Yard, name: str, runtime: str, folder: pathlib.Path):
        self.yard, self.name, self.runtime, self.book = yard, name, runtime, folder / f"{name}.book"
        self.create()
        self.begun(1)

    def create(self) -> None:
        command = ["sh", "-c", SCRIPT.format(book=self.book)]
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": self.name},
            "spec": {"runtimeRef": {"name": self.runtime}, "trainer": {"numNodes": NODES, "command": command}},
        }  # fmt: skip
        self.yard.kubectl("create", "-f", "-", input=json.dumps(job))

    def entries(self, word: str) -> int:
        return self.book.read_text().split().count(word) if self.book.exists() else 0

    def begun(self, times: int) -> None:
        wait_for(f"{self.name} to run {times} times", lambda: self.entries("begin") == times * NODES)

    def ended(self, times: int) -> bool:
        return self.entries("end") == times * NODES

    def is_truthful(self, times: int, over: Callable[[str], bool]) -> None:
        """While its processes end, `get` does not say that it is over; looks until they have ended."""

        def looked() -> bool:
            row, done = self.yard.run("get", self.name).stdout, self.ended(times)
            assert done or not over(row), row
            return done

        wait_for(f"{self.name} to end", looked)

    def is_alone(self) -> None:
        """No rank had two processes at once."""
        for rank in range(NODES):
            words = [line.split()[0] for line in self.book.read_text().splitlines() if line.endswith(f" {rank}")]
            words = [word for word in words if word != "ending"]
            assert words == ["begin", "end"] * (len(words) // 2) + ["begin"] * (len(words) % 2), f"{self.name}: {words}"

    def said(self, text: str, times: int = 1) -> None:
        for rank in range(NODES):
            assert text.count(f"last line of {rank}") == times, f"{self.name}: {text}"


def suspended(job: Job) -> None:
    """`suspend` returns when all have ended."""
    job.yard.run("suspend", job.name)
    assert job.ended(1)
    assert "Suspended" in job.yard.run("get", job.name).stdout
    job.said(job.yard.run("logs", job.name).stdout)


def resumed(job: Job) -> None:
    """At once: the next run waits for the last one, whose ranks end only after `resume` has answered."""
    held = job.book.with_name(f"{job.book.name}.held")
    held.touch()
    job.yard.run("suspend", "--no-wait", job.name)
    # a `resume` before that would find a job whose ranks run on
    wait_for("its ranks to end", lambda: job.entries("ending") == NODES)
    out = job.yard.run("resume", job.name)
    held.unlink()
    assert "still ending" in out.stderr, out.stderr
    job.begun(2)
    assert job.ended(1)
    job.said(job.yard.run("logs", "--attempt", "all", job.name).stdout)


def deleted(job: Job) -> None:
    """Who follows it sees the last lines, and `delete` returns when it is over."""
    follows = job.yard.spawn("logs", "-f", job.name)
    read = [follows.stdout.readline() for _ in range(NODES)]
    assert sum("first line" in line for line in read) == NODES, read
    job.yard.run("delete", job.name)
    assert job.ended(1)
    assert job.yard.run("get", job.name, check=False).returncode == 3
    out, _ = follows.communicate(timeout=60)
    job.said(out)


def replaced(job: Job) -> None:
    """Deleted without waiting, and made again under its name."""
    job.yard.run("delete", "--no-wait", job.name)
    wait_for("its name to be free", lambda: job.yard.run("get", job.name, check=False).returncode == 3)
    job.create()
    job.begun(2)
    assert job.ended(1)


def kept_by_nobody(job: Job) -> None:
    """The shims are killed while the ranks end: no process outlives the answer of `suspend`."""
    label = f"jobset.sigs.k8s.io/jobset-name={job.name}"
    pods = lambda: json.loads(job.yard.kubectl("get", "pods", "-l", label, "-o", "json").stdout)["items"]
    uids = [pod["metadata"]["uid"] for pod in pods()]
    assert len(uids) == NODES
    job.yard.run("suspend", "--no-wait", job.name)
    # before that it would be a failure, and the job would be over
    wait_for("its pods to end", lambda: all("deletionTimestamp" in pod["metadata"] for pod in pods()))
    killed = 0
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes()
            if b"\0shim\0" in words and any(uid.encode() in words for uid in uids):
                os.kill(int(entry.parent.name), signal.SIGKILL)
                killed += 1
    assert killed >= NODES
    job.yard.run("suspend", job.name)
    assert not alive(uids), "processes outlive their job's end"
    job.yard.run("resume", job.name)
    job.begun(2)
    assert not alive(uids)


def alive(uids: list[str]) -> list[str]:
    """Processes of these pods."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if any(f"TRAINYARD_POD_UID={uid}".encode() in entry.read_bytes() for uid in uids):
                found.append((entry.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


CASES = [suspended, resumed, deleted, replaced, kept_by_nobody]


def test_endings_are_whole(yard: Yard, plain: str, tmp_path: pathlib.Path) -> None:
    """All cases at once: each takes some seconds, most of which it waits."""
    jobs = {case: Job(yard, case.__name__.replace("_", "-"), plain, tmp_path) for case in CASES}
    with concurrent.futures.ThreadPoolExecutor(len(CASES)) as pool:
        for done in [pool.submit(case, job) for case, job in jobs.items()]:
            done.result()
    for case, job in jobs.items():
        if case is not kept_by_nobody:  # what is killed writes no end into the book
            job.is_alone()
    yard.run("delete", "--all", "--yes", "--no-wait")


def test_an_ending_goes_on_without_a_control_plane(yard: Yard, plain: str, tmp_path: pathlib.Path) -> None:
    job = Job(yard, "alone", plain, tmp_path)
    yard.run("suspend", "--no-wait", "alone")
    wait_for("its ranks to be told", lambda: job.entries("ending") == NODES)
    yard.kill()
    wait_for("its ranks to end", lambda: job.ended(1))
    yard.up()
    yard.run("resume", "alone")
    job.begun(2)
    job.is_alone()
    job.said(yard.run("logs", "--attempt", "all", "alone").stdout)
    yard.run("suspend", "--no-wait", "alone")
    job.is_truthful(2, lambda row: "Complete" in row or "Failed" in row)
    yard.run("delete", "alone")
    assert job.ended(2)
