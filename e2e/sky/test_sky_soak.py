"""The soak of managed jobs (`soak_jobs.py`) in short: an agent, a machine and the control plane are killed while two jobs run."""

from __future__ import annotations

import os
import types

import pytest
import soak_jobs
from sshd import can


@pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")
def test_jobs_outlive_kills() -> None:
    seed = int(os.environ.get("SEED", "1"))
    deck = (soak_jobs.AGENT, soak_jobs.POWER)
    settings = soak_jobs.Settings(seed=seed, seconds=8, machines=2, jobs=2, every=4, control_every=6, deck=deck, away=(1, 2), work=14)
    found = soak_jobs.play(settings, print)
    assert not found["broken"], found["broken"]
    assert found["kills"] == {soak_jobs.AGENT: 1, soak_jobs.POWER: 1, soak_jobs.CONTROL: 1}
    assert [one["ground"] for one in found["recoveries"]] == ["Interrupted"], found
    assert found["succeeded"] == 2 and 0.5 < found["goodput"] < 1, found


def test_a_plan_follows_from_its_seed() -> None:
    plans = [soak_jobs.plan(soak_jobs.Settings(seed=seed, seconds=540)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    kinds = [kill.what for kill in plans[0] if kill.machines]
    assert sorted(kinds) == sorted(soak_jobs.DECK * 2)


LOG = "(soak, pid=7) soak 1 1 1000.000\n(soak, pid=7) soak 1 2 1003.000\n"


@pytest.mark.parametrize(
    ("killed", "log", "false", "lost", "twice"),
    [
        # the last line was written 1 s before the loss
        ((soak_jobs.POWER, "m0", 1006), LOG, 0, 0, 0),
        # the line before it was not
        ((soak_jobs.POWER, "m0", 1006), LOG[: LOG.index("\n") + 1], 0, 1, 0),
        ((soak_jobs.POWER, "m0", 1006), LOG + LOG, 0, 0, 2),
        # these kills explain no recovery, and excuse no line
        ((soak_jobs.POWER, "m1", 1006), LOG, 1, 1, 0),
        ((soak_jobs.AGENT, "m0", 1006), LOG, 1, 1, 0),
        ((soak_jobs.CONTROL, None, 1006), LOG, 1, 1, 0),
        # the loss came after the recovery
        ((soak_jobs.POWER, "m0", 1010), LOG, 1, 1, 0),
    ],
)
def test_broken_promises_are_found(killed: tuple, log: str, false: int, lost: int, twice: int) -> None:
    """A job that printed at 1000, 1003 and 1005 s on m0, and was recovered at 1007 s."""
    soak = object.__new__(soak_jobs.Soak)
    soak.begin, soak.broken, soak.log = 0.0, [], print
    soak.killed = [soak_jobs.Killed(*killed, until=1006.5)]
    soak.lan = types.SimpleNamespace(hosts=[types.SimpleNamespace(address=f"10.0.0.{at}", name=f"m{at}") for at in range(2)])
    soak.watcher = soak_jobs.Watcher(None)
    stamp = "1970-01-01T00:16:%sZ"
    attempt = {"cluster": "a", "beganAt": stamp % "30", "endedAt": stamp % "47", "ground": "Interrupted", "evidence": "it is said"}
    soak.watcher.attempts[1] = {1: attempt, 2: {"cluster": "a"}}
    soak.watcher.addresses["a"] = [(995.0, "10.0.0.0")]
    soak.sky = types.SimpleNamespace(run=lambda *_, **__: types.SimpleNamespace(stdout=log))
    lines = [(1, 1, 1000.0), (1, 2, 1003.0), (1, 3, 1005.0)]
    task = soak_jobs.Task(1, [{"job": 1, "machine": "m0", "at": 999.0}, {"job": 1, "machine": "m0", "at": 1007.5}], lines, "")
    [one] = soak.recoveries(1, task)
    assert (one["loss"] is None, one["next"]) == (bool(false), 0.5), one
    found = soak.output(task)
    assert found == (lost, twice), soak.broken
    assert len(soak.broken) == (found[0] > 0) + (found[1] > 0)
