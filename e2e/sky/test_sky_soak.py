"""The soak of managed jobs (`soak_jobs.py`) in short: an agent, a machine and the control plane are killed while two jobs run."""

from __future__ import annotations

import os

import pytest
import soak_jobs
from sshd import can

pytestmark = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")


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
