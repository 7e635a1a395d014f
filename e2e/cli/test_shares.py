"""Of long tests each gate plays a share (`shares.py`), and five shares are all of them."""

from __future__ import annotations

import pytest
import shares

E2E = shares.ROOT / "e2e"


@pytest.mark.parametrize("begin", (*shares.NAMED, *shares.ALWAYS, *shares.TOGETHER))
def test_what_is_named_is_there(begin: str) -> None:
    path, _, name = begin.partition("::")
    assert f"def {name.partition('[')[0] or 'test_'}" in (E2E / path).read_text()


def test_every_recorded_test_is_there() -> None:
    gone = []
    for name in shares.durations():
        path, _, test = name.partition("::")
        file = E2E / path
        if not file.exists() or f"def {test.partition('[')[0]}(" not in file.read_text():
            gone.append(name)
    assert not gone, "take them out of e2e/durations.json, or run make durations"


def test_five_gates_play_every_test_and_each_takes_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {f"sky/test_x.py::test_{number}": 20.0 + number * 7 % 60 for number in range(41)} | {"cli/test_run.py::test_short": 5.0}
    monkeypatch.setattr(shares, "durations", lambda: took)
    tests = [(name, False) for name in took] + [(f"operator/test_x.py::test_{number}", True) for number in range(7)]
    named = [name for name, _ in tests]
    long = {name for name, on_real_clusters in tests if shares.is_long(name, on_real_clusters)}
    assert long == set(named) - {"cli/test_run.py::test_short"}
    gates = []
    for turn in range(shares.SHARES):
        monkeypatch.setattr(shares, "turn", lambda turn=turn: turn)
        gates.append(shares.played(tests))
    for name in named:
        assert sum(name in gate for gate in gates) == (1 if name in long else shares.SHARES), name
    times = [sum(map(shares.seconds, gate)) for gate in gates]
    assert max(times) - min(times) <= 60


def test_commits_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = set()
    for commit in range(50):
        monkeypatch.setattr(shares, "seed", lambda commit=commit: str(commit))
        turns.add(shares.turn())
    assert turns == set(range(shares.SHARES))


def test_tests_of_one_dear_module_are_played_together() -> None:
    module = shares.TOGETHER[0]
    names = [f"{module}::test_{number}" for number in range(5)]
    assert sorted(len(share) for share in shares.shares(names)) == [0] * (shares.SHARES - 1) + [5]
