"""Launchers of real MPIs whose workers come late: `make mpijob-starts`, outside the gate.

    STARTS=100 SEED=1 pytest e2e/mpi/live_mpijob_starts.py      a hundred of each MPI; 10 by default

Each worker of a job of two comes up after 0 to 5 s, by the seed. Half of the launchers wait for workers that can be reached, half are
made at once. No launcher is tried twice, so one that fails for want of a worker fails its job.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import time

import pytest
import yaml

from conftest import ROOT, Yard, stop, wait_for

SEED, STARTS = os.environ.get("SEED", "1"), int(os.environ.get("STARTS", "10"))
# How many are under way at a time, and how long all may take for each start.
AT_ONCE, PATIENCE = 6, 60
PROGRAMS = {"OpenMPI": None, "MPICH": ROOT / ".venv/mpi/mpich/bin", "Intel": ROOT / ".venv/mpi/intel/bin"}


def job(implementation: str, number: int) -> dict:
    """A job whose two workers come up late, each on its own."""
    rng = random.Random(f"{SEED}/{implementation}/{number}")
    delays = [round(rng.uniform(0, 5), 2) for _ in range(2)]
    cases = " ".join(f"*-worker-{index}) exec sleep {delay};;" for index, delay in enumerate(delays))
    late = {"name": "late", "image": "none", "command": ["sh", "-c", f"case $(hostname) in {cases} esac; exit 9"]}
    pod = lambda command, **spec: {"template": {"spec": {**spec, "containers": [{"name": "main", "image": "none", "command": command}]}}}
    roles = {"Launcher": {"replicas": 1, "restartPolicy": "Never", **pod(["mpirun", "-n", "2", "hostname"])},
             "Worker": {"replicas": 2, **pod(["/usr/sbin/sshd", "-De"], initContainers=[late])}}  # fmt: skip
    asked = {"trainyard.dev/wait-for-workers": "reachable"} if number % 2 else {}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": f"start-{number}", "annotations": asked},
            "spec": {"mpiImplementation": implementation, "runPolicy": {"backoffLimit": 0, "cleanPodPolicy": "All"}, "mpiReplicaSpecs": roles}}  # fmt: skip


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("implementation", PROGRAMS)
def test_no_launcher_fails_for_want_of_a_worker(implementation: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = PROGRAMS[implementation]
    if not shutil.which("mpirun", path=programs and str(programs)):
        pytest.skip(f"there is no mpirun of {implementation}: `make e2e` installs it")
    if programs:
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    yard = Yard(tmp_path / "home")
    begin, ended, left = time.monotonic(), {}, list(range(STARTS))
    under_way: set[str] = set()

    def goes_on() -> bool:
        """Makes as many as may be under way, and notes which have ended."""
        made = [job(implementation, left.pop(0)) for _ in range(min(len(left), AT_ONCE - len(under_way)))]
        if made:
            yard.kubectl("create", "-f", "-", input=yaml.safe_dump_all(made))
            under_way.update(o["metadata"]["name"] for o in made)
        for o in json.loads(yard.kubectl("get", "mpijobs", "-o", "json").stdout)["items"]:
            name, conditions = o["metadata"]["name"], o.get("status", {}).get("conditions", [])
            end = next((c for c in conditions if c["type"] in ("Succeeded", "Failed") and c["status"] == "True"), None)
            if end and name in under_way:
                said = yard.run("mpijob", "logs", name, check=False).stdout
                entered = {f"{name}-worker-0", f"{name}-worker-1"} <= set(said.split())
                ended[name] = "well" if end["type"] == "Succeeded" and entered else f"{end}: {said}"
                under_way.discard(name)
                yard.kubectl("delete", "mpijob", name, "--wait=false")
        return not left and not under_way

    try:
        wait_for(f"{STARTS} starts of {implementation}", goes_on, PATIENCE * STARTS)
    finally:
        stop(yard)
    failed = {name: how for name, how in ended.items() if how != "well"}
    print(f"{implementation}, seed {SEED}: {len(ended)} starts, {len(failed)} failed, in {time.monotonic() - begin:.0f} s")
    assert len(ended) == STARTS and not failed, failed
