"""Of long tests each gate plays a share (`shares.py`): in the long run all of them are played."""

from __future__ import annotations

import pytest
import shares

E2E = shares.ROOT / "e2e"


@pytest.mark.parametrize("begin", shares.SHARES)
def test_what_is_named_is_there(begin: str) -> None:
    path, _, name = begin.partition("::")
    assert f"def {name.partition('[')[0] or 'test_'}" in (E2E / path).read_text()


def test_every_test_is_played_by_about_one_gate_in_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = range(400)
    for name, on_real_clusters in [("operator/test_x.py::test_y", True), ("mpi/test_mpijob_live.py::test_z", False), ("api/test_a.py::test_b", False)]:
        played = 0
        for gate in gates:
            monkeypatch.setattr(shares, "seed", lambda gate=gate: str(gate))
            played += shares.is_played(name, on_real_clusters)
        wanted = len(gates) / shares.share(name, on_real_clusters)
        assert 0.6 * wanted <= played <= 1.4 * wanted, (name, played)


def test_tests_of_one_dear_module_are_played_together(monkeypatch: pytest.MonkeyPatch) -> None:
    [module] = shares.TOGETHER
    for gate in range(50):
        monkeypatch.setattr(shares, "seed", lambda gate=gate: str(gate))
        assert len({shares.is_played(f"{module}::test_{number}", False) for number in range(5)}) == 1
