"""Long changes and questions cost what their length allows: a tenth of what `large_changes.py` asks, chosen by `SEED`."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from conftest import Yard, stop
from large_bodies import SHORT, Meter
from test_api import Raw

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("large"), "--no-node")
    yield yard
    stop(yard)


def test_changes_cost_what_their_length_allows(yard: Yard) -> None:
    token = Raw(yard).headers["Authorization"].split()[1]
    environment = {"SEED": "1", "SHARE": "0.1", **os.environ}
    words = [sys.executable, HERE / "large_changes.py", yard.running["server"], token, str(yard.running["pid"]), "500000"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"SEED={environment['SEED']}: {done.stdout[-10_000:]}{done.stderr[-5000:]}"
    print(done.stdout)
    assert Raw(yard).open("/readyz").read() == b"ok"


class Pretended:
    """A server in this process, whose answers take so many seconds of its processor for a body's length."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.spent = 0.0

    def ask(self, method: str, path: str, text: bytes, media: str) -> tuple[int, bytes]:
        self.spent += self.seconds(len(text))
        return 200, b""


@pytest.mark.parametrize(
    ("seconds", "is_found"),
    [(lambda n: n / 1e6, False), (lambda n: (n / 1e6) ** 2 * 2, True), (lambda n: 1.5 * SHORT, False), (lambda n: n / 4e4, True)],
    ids=["linear", "square", "dear from the start", "far too long"],
)
def test_the_meter_finds_what_costs_more(seconds, is_found: bool) -> None:
    server = Pretended(seconds)
    meter = Meter(server, os.getpid(), 1_500_000)
    meter.processor = lambda: server.spent
    meter.look("it", "POST", lambda size: ("/", "x" * size))
    assert bool(meter.found) == is_found


@pytest.mark.parametrize(("held", "is_found"), [([0, 700, 700, 100], False), ([0, *[700] * 9], True)], ids=["given back", "kept"])
def test_the_meter_finds_what_is_left_behind(monkeypatch: pytest.MonkeyPatch, held: list[int], is_found: bool) -> None:
    monkeypatch.setattr("large_bodies.MOMENT", 0.5)
    meter = Meter(Pretended(lambda _: 0), os.getpid(), 1_500_000)
    seen = iter(held)
    meter.resident = lambda: next(seen, held[-1])
    meter.look("it", "POST", lambda size: ("/", "x" * size))
    assert bool(meter.found) == is_found


def test_a_seed_chooses_its_share() -> None:
    of = lambda seed: {n for n in range(1000) if Meter(None, os.getpid(), 1, 0.1, seed).chosen(f"field {n}")}
    assert of("1") == of("1") != of("2") and 60 < len(of("1")) < 140
