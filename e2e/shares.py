"""Long tests of which the gate plays a share, chosen by the commit: each of them is played by one gate in so many.

They repeat at length what other tests of the gate do in short, or compare with upstream's live systems. `make suites ONLY=long` plays all of
them, and so does every run outside the gate.
"""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
import zlib
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
# one gate in so many plays a test on a real cluster that is not named below
ON_REAL_CLUSTERS = 5
# by the beginning of a test's name, from the folder of its area on; the longest counts
SHARES = {
    "cli/test_explain_faults.py": 5,
    "cli/test_run.py::test_two_jobs_at_once_do_not_share_ports": 3,
    "cli/test_second_try.py": 5,
    "cli/test_secrets_places.py::test_markers_are_in_secrets_alone": 5,
    "cli/test_transcripts.py::test_commands_do_what_the_document_says[root": 5,
    "cli/test_transcripts.py::test_commands_do_what_the_document_says[user": 5,
    "cli/test_transcripts.py::test_commands_do_what_the_document_says[user-README": 3,
    "api/test_api_differential.py": 3,
    "api/test_kubectl.py::test_a_jobs_life": 3,
    "api/test_schemas.py::test_no_request_made_of_the_documents_fails_the_server": 3,
    "api/test_kubectl_matrix.py": 5,
    "api/test_large.py::test_changes_cost_what_their_length_allows": 5,
    "data/test_initializers.py::test_recordings_of_upstreams_initializers": 5,
    "data/test_initializers_clouds.py": 5,
    "data/test_initializers_faults.py": 5,
    "mpi/test_mpijob_live.py": 5,
    "mpi/test_mpijob_live.py::test_the_example_trains[": 1,
    "node/test_frameworks.py": 5,
    "operator/test_chart.py::test_over_upstreams_release": 5,
    "operator/test_chart.py::test_nothing_of_a_release_stays": 5,
    "operator/test_cluster_cli.py::test_on_kubernetes": 1,
    "operator/test_operator.py::test_a_leader_may_be_killed_while_jobs_come_in": 1,
    "sky/test_sky_ddp.py": 5,
    "sky/test_sky_kubernetes.py": 3,
}
# each scenario of a recording is played by one gate in so many
SCENARIOS = 3
# tests that every gate plays, with a share of their scenarios
IN_PART = "api/test_recordings.py::test_recordings"
# modules whose tests share what takes most of their time: all of them are played, or none
TOGETHER = ("cli/test_explain_faults.py",)


@functools.cache
def seed() -> str:
    """$SHARE_SEED, or the commit."""
    if given := os.environ.get("SHARE_SEED"):
        return given
    return subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def share(name: str, on_real_clusters: bool) -> int:
    """One gate in how many plays this test."""
    found = [begin for begin in SHARES if name.startswith(begin)]
    if found:
        return SHARES[max(found, key=len)]
    return ON_REAL_CLUSTERS if on_real_clusters else 1


def in_turn(names: Iterable[str], one_in: int) -> list[str]:
    """The names that this gate plays. `one_in` gates together play each name once."""
    turn = zlib.crc32(seed().encode()) % one_in
    return [name for at, name in enumerate(sorted(names)) if at % one_in == turn]


def scenarios(names: list[str]) -> list[str]:
    """The scenarios of a recording that this gate plays; outside the gate all."""
    return in_turn(names, SCENARIOS) if "TRAINYARD_GATE" in os.environ else names


def played(tests: list[tuple[str, bool]]) -> set[str]:
    """The names of the tests that this gate plays, of all, each with whether it is on a real cluster. Those of a share are played in turn, so
    each gate plays as many."""
    chosen, units = set(), {}
    for name, on_real_clusters in tests:
        unit = next((begin for begin in TOGETHER if name.startswith(begin)), name)
        units.setdefault(share(name, on_real_clusters), {}).setdefault(unit, []).append(name)
    for one_in, named in units.items():
        for unit in in_turn(named, one_in):
            chosen.update(named[unit])
    return chosen
