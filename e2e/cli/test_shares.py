"""Of long tests each gate plays a share (`shares.py`): in the long run all of them are played."""

from __future__ import annotations

import collections

import pytest
import shares

E2E = shares.ROOT / "e2e"


@pytest.mark.parametrize("begin", shares.SHARES)
def test_what_is_named_is_there(begin: str) -> None:
    path, _, name = begin.partition("::")
    assert f"def {name.partition('[')[0] or 'test_'}" in (E2E / path).read_text()


def test_every_test_is_played_by_one_gate_in_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [(f"operator/test_x.py::test_{number}", True) for number in range(23)]
    tests += [(f"mpi/test_mpijob_live.py::test_{number}", False) for number in range(7)] + [("api/test_a.py::test_b", False)]
    played: collections.Counter[str] = collections.Counter()
    gates = 400
    for gate in range(gates):
        monkeypatch.setattr(shares, "seed", lambda gate=gate: str(gate))
        chosen = shares.played(tests)
        played.update(chosen)
        for on_real_clusters in (True, False):
            named = [name for name, is_real in tests if is_real == on_real_clusters and shares.share(name, is_real) > 1]
            least = len(named) // shares.ON_REAL_CLUSTERS
            assert least <= sum(name in chosen for name in named) <= least + 1, "each gate plays as many"
    for name, on_real_clusters in tests:
        wanted = gates / shares.share(name, on_real_clusters)
        assert 0.6 * wanted <= played[name] <= 1.4 * wanted, (name, played[name])


def test_tests_of_one_dear_module_are_played_together(monkeypatch: pytest.MonkeyPatch) -> None:
    [module] = shares.TOGETHER
    names = [f"{module}::test_{number}" for number in range(5)]
    for gate in range(50):
        monkeypatch.setattr(shares, "seed", lambda gate=gate: str(gate))
        assert len(shares.played([(name, False) for name in names])) in (0, 5)
