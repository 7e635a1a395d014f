"""Metrics that a script prints: `run --metric`, the objective of a search, and what TensorBoard gets of them."""

import json
import pathlib
import struct
from collections.abc import Iterator

import pytest

from conftest import Yard, wait_for
from test_progress import REPORTS, finished, history, start

pytestmark = [pytest.mark.usefixtures("plain"), pytest.mark.timeout(300)]


def metrics(report: dict) -> dict[str, str]:
    return {metric["name"]: metric["value"] for metric in report.get("metrics", [])}


def test_what_is_printed_is_a_report(yard: Yard, tmp_path: pathlib.Path):
    (tmp_path / "prints.py").write_text(
        "import sys, time\n"
        "for step, loss in enumerate((1.0, 0.5, 0.25)):\n"
        "    print(f'step={step} loss: {loss} eval_loss=9', flush=True)\n"
        "    time.sleep(1.1)\n"
        "sys.stdout.buffer.write(b'\\xff\\x1b[32mloss\\x1b[0m=0.125\\n')\n"
        "print('accuracy is 93.5%, and that is all')\n"
    )
    flags = ["--metric", "loss", "--metric", r"accuracy is (?<accuracy>[0-9.]+)%", "--metric", "lr"]
    ran = yard.run("run", "--runtime", "plain", "--name", "prints", *flags, "prints.py", cwd=tmp_path)
    assert "rank 0 printed no value for --metric lr\n" in ran.stderr
    assert metrics(yard.job("prints")["status"]["trainerStatus"]) == {"accuracy": "93.5", "loss": "0.125"}
    course = [metrics(report)["loss"] for report in history(yard, "prints")]
    assert course[:3] == ["1.0", "0.5", "0.25"] and course[-1] == "0.125"
    assert "loss" in yard.run("metrics", "prints").stdout


def records(file: pathlib.Path) -> Iterator[bytes]:
    data = file.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        yield data[12 : 12 + length]
        data = data[16 + length :]


def test_tensorboard_gets_the_course(yard: Yard, tmp_path: pathlib.Path):
    start(yard, "board", tmp_path, REPORTS + 'for loss in ("0.5", "0.25"):\n    post({"metrics": [{"name": "loss", "value": loss}, {"name": "step", "value": "7"}]})\n')
    finished(yard, "board")
    said = yard.run("metrics", "board", "--tensorboard", str(tmp_path / "runs"))
    (file,) = (tmp_path / "runs/board").iterdir()
    assert said.stdout == f"{file}\n" and "2 reports of job board" in said.stderr
    version, *events = records(file)
    assert version.endswith(b"brain.Event:2") and len(events) == 4
    # the first value: field 1 of Summary.Value is its tag, field 2 its number; the step is the job's own
    assert b"\x0a\x04loss\x15" + struct.pack("<f", 0.5) in events[0] and b"\x10\x07" in events[0]


def test_a_search_reads_what_its_trials_print(yard: Yard, tmp_path: pathlib.Path):
    (tmp_path / "trial.py").write_text("import sys\nx = float(sys.argv[1].removeprefix('--x='))\nprint(f'epoch=1 loss={(x - 2) ** 2}')\n")
    words = ["run", "--runtime", "plain", "--name", "searched", "--sweep", "x=1,2,4", "--objective", "loss", "--parallel-trials", "2", "trial.py"]
    found = yard.run(*words, cwd=tmp_path, timeout=200)
    assert found.stdout.startswith("best: x=2  loss 0.0  ("), found.stdout + found.stderr


def test_reports_and_prints_are_one_status(yard: Yard, tmp_path: pathlib.Path):
    """And no line is lost where the control plane is killed between two."""
    code = REPORTS + (
        "print('loss=1 speed=5', flush=True)\n"
        "wait_for_file('printed')\n"
        "assert post({'progressPercentage': 40, 'metrics': [{'name': 'speed', 'value': '7'}]}) == 200\n"
        "print('loss=2 speed=6', flush=True)\n"
        "wait_for_file('killed')\n"
        "print('loss=3', flush=True)\n"
        "wait_for_file('up')\n"
        "print('grad=4', flush=True)\n"
    )
    (tmp_path / "both.py").write_text(code)
    yard.run("run", "--detach", "--runtime", "plain", "--name", "both", "--metric", "loss", "--metric", "speed", "--metric", "grad", "both.py", cwd=tmp_path)
    now = lambda: metrics(yard.job("both").get("status", {}).get("trainerStatus", {}))
    wait_for("what was printed first", lambda: now() == {"loss": "1", "speed": "5"}, 60)
    (tmp_path / "printed").touch()
    wait_for("its own report beside it", lambda: now() == {"loss": "2", "speed": "7"}, 60)
    assert yard.job("both")["status"]["trainerStatus"]["progressPercentage"] == 40
    yard.kill()
    (tmp_path / "killed").touch()
    yard.up()
    (tmp_path / "up").touch()
    finished(yard, "both")
    wait_for("all of it", lambda: now() == {"loss": "3", "speed": "7", "grad": "4"}, 30)


def test_wrong_patterns_are_refused(yard: Yard, tmp_path: pathlib.Path):
    (tmp_path / "x.py").write_text("print(1)\n")
    for pattern, told in (("loss=[0-9]", "a group for the number is missing"), ("loss=([0-9", "no regular expression"), ("([0-9]+)", "the metric has no name"), ("", "is no pattern")):
        refused = yard.run("run", "--runtime", "plain", "--metric", pattern, "x.py", cwd=tmp_path, check=False)
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr
    job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
           "metadata": {"name": "x", "annotations": {"trainyard.dev/metrics": "([0-9]+)"}}, "spec": {"runtimeRef": {"name": "plain"}}}  # fmt: skip
    refused = yard.kubectl("create", "-f", "-", input=json.dumps(job), check=False)
    assert "metadata.annotations[trainyard.dev/metrics]: Invalid value" in refused.stderr
    yard.run("run", "--runtime", "plain", "--name", "quiet", "--metric", "loss", "x.py", cwd=tmp_path)
    assert "no line of rank 0 matches: loss" in yard.run("metrics", "quiet").stderr
