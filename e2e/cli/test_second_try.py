"""The tests' own harness (conftest.py): a test that is tried again has new fixtures of its module, and leaves nothing behind."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import ROOT, TORCH_ABORTED, Yard, plain_runtime, stop, wait_for

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


@pytest.mark.parametrize(("faults", "code"), [(["no prompt"], 0), (["no prompt", "no line"], 1), ([TORCH_ABORTED, "no prompt"], 0)])
@pytest.mark.parametrize("workers", [0, 2])
def test_one_test_may_fail_once(tmp_path: pathlib.Path, faults: list[str], code: int, workers: int):
    """A second makes the whole run fail, but for aborts of torch's own."""
    for number, fault in enumerate(faults):
        (tmp_path / f"test_{number}.py").write_text(
            f"import pathlib\n\ndef test_it():\n    tried = pathlib.Path({str(tmp_path / str(number))!r})\n    was = tried.exists()\n"
            f"    tried.touch()\n    assert was, {fault!r}\n"
        )
    words = ["-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "--rootdir", str(tmp_path), "--reruns", "1", "-n", str(workers), str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "e2e")}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("2 tests passed at a second try only" in done.stdout) == bool(code), done.stdout


def commands(text: str) -> list[str]:
    """The command lines that hold this."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if text in line]


def test_nothing_of_a_pod_outlives_its_yard(tmp_path: pathlib.Path):
    """Its shim and those who keep its containers are killed at once: what programs have started is nobody's then."""
    yard = Yard(tmp_path / "home")
    try:
        job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "tree"},
               "spec": {"runtimeRef": {"name": "plain"},
                        "trainer": {"numNodes": 1, "command": ["sh", "-c", "setsid sleep 97531 & sleep 97532; true"]}}}  # fmt: skip
        for made in (plain_runtime("plain"), job):
            yard.kubectl("apply", "-f", "-", input=json.dumps(made))
        wait_for("the pod's programs", lambda: {"sleep 97531", "sleep 97532"} <= set(commands("sleep 9753")))
    finally:
        stop(yard)
    assert not commands("sleep 9753")
