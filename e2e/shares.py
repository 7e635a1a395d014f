"""Which of the long tests a gate plays: one in five. They are divided into five shares that take about the same time, and the commit chooses one.

A test is long if it took `LONG` seconds or more in the last whole run (`durations.json`), if it is on a real cluster, or if it is named here,
because it repeats at length what other tests of the gate do in short. `make suites ONLY=long` plays all of them, and so does every run outside
the gate.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
import zlib
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
# one gate in so many plays a long test
SHARES = 5
# seconds
LONG = 10.0
# by the beginning of a test's name, from the folder of its area on
NAMED = (
    "cli/test_explain_faults.py",
    "cli/test_second_try.py",
    "api/test_api_differential.py",
    "api/test_kubectl_matrix.py",
    "data/test_initializers.py::test_recordings_of_upstreams_initializers",
    "data/test_initializers_clouds.py",
    "data/test_initializers_faults.py",
    "mpi/test_mpijob_live.py",
    "node/test_frameworks.py",
    "operator/test_chart.py",
)
# played by every gate, however long they take
ALWAYS = (
    "api/test_recordings.py",
    "cli/test_transcripts.py::test_commands_do_what_the_document_says[user-README",
    "dashboard/test_dashboard.py::test_pages_are_accessible[light]",
    "mpi/test_mpijob_live.py::test_the_example_trains[",
    "operator/test_cluster_cli.py::test_on_kubernetes",
    "operator/test_operator.py::test_a_leader_may_be_killed_while_jobs_come_in",
)
# tests that every gate plays, with a share of their scenarios
IN_PART = "api/test_recordings.py::test_recordings"
# modules whose tests share what takes most of their time, such as a program that is built: all of them are played, or none
TOGETHER = ("cli/test_explain_faults.py", "operator/test_chart.py", "operator/test_kueue.py")
# seconds of each test that took `RECORDED` or more in the last whole run, which `make durations` writes
DURATIONS = ROOT / "e2e/durations.json"
RECORDED = 3.0
# what a test counts that is not in the record
SHORT = 1.0


@functools.cache
def seed() -> str:
    """$SHARE_SEED, or the commit."""
    if given := os.environ.get("SHARE_SEED"):
        return given
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@functools.cache
def durations() -> dict[str, float]:
    return json.loads(DURATIONS.read_text())


def seconds(name: str) -> float:
    """How long a test takes, by the record."""
    return durations().get(name, SHORT)


def is_long(name: str, on_real_clusters: bool) -> bool:
    """Whether only one gate in `SHARES` plays this test."""
    return not name.startswith(ALWAYS) and (on_real_clusters or seconds(name) >= LONG or name.startswith(NAMED))


def turn() -> int:
    """Which of the shares this gate plays."""
    return zlib.crc32(seed().encode()) % SHARES


def scenarios(names: list[str]) -> list[str]:
    """The scenarios of a recording that this gate plays; outside the gate all."""
    return sorted(names)[turn() :: SHARES] if "TRAINYARD_GATE" in os.environ else names


def shares(names: Iterable[str]) -> list[list[str]]:
    """Divides tests into shares of about the same duration: each test, the longest first, goes to the share that is shortest so far."""
    units: dict[str, list[str]] = {}
    for name in names:
        units.setdefault(next((begin for begin in TOGETHER if name.startswith(begin)), name), []).append(name)
    took = {unit: sum(map(seconds, named)) for unit, named in units.items()}
    divided: list[list[str]] = [[] for _ in range(SHARES)]
    filled = [0.0] * SHARES
    for unit in sorted(units, key=lambda unit: (-took[unit], unit)):
        least = filled.index(min(filled))
        divided[least] += units[unit]
        filled[least] += took[unit]
    return divided


def played(tests: list[tuple[str, bool]]) -> set[str]:
    """The names of the tests that this gate plays, of all, each with whether it is on a real cluster."""
    long = [name for name, on_real_clusters in tests if is_long(name, on_real_clusters)]
    return {name for name, _ in tests}.difference(long).union(shares(long)[turn()])
