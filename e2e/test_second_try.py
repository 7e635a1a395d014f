"""The tests' own harness (conftest.py): a test that failed is tried again with new fixtures of its module."""

import os
import pathlib
import subprocess
import sys

from conftest import ROOT

PROBE = """
import itertools
import pytest

numbers = itertools.count()

@pytest.fixture(scope="module")
def module():
    number = next(numbers)
    yield number
    print(f"module {number} ended")

def test_fails_once(module):
    print(f"tried in module {module}")
    assert module == 1

def test_after_it(module):
    assert module == 1
"""


def test_a_second_try_starts_clean(tmp_path: pathlib.Path):
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    words = ["-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "-s", "--rootdir", str(tmp_path), "--reruns", "1", str(probe)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "e2e")}
    env.pop("ALONE", None)  # it would end the fixtures after every test
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert "2 passed, 1 rerun" in done.stdout, done.stdout + done.stderr
    first, ended, second = map(done.stdout.index, ("tried in module 0", "module 0 ended", "tried in module 1"))
    assert first < ended < second, done.stdout
