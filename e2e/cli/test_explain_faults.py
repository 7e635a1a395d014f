"""Faults on real processes: `trainyard explain` names the reason, quotes the evidence, and says what to do next.

The cases are data (`faults/processes.yaml`). All jobs are started first and looked at as they end, so that the whole takes about as
long as the slowest of them.
"""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from conftest import BINARY, ROOT, Yard, plain_runtime, wait_for, write

CASES = yaml.safe_load((ROOT / "e2e/faults/processes.yaml").read_text())
# The machine has two processors, and a dozen interpreters that import torch at once are slow on them.
AT_ONCE = 6
LONG = 300


def has(module: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def runtimes(yard: Yard) -> dict[bool, str]:
    """A runtime without a framework that says nothing of restarts, and one whose containers are restarted."""
    for runtime in (plain_runtime("bare", None, None), plain_runtime("again", "OnFailure", 6)):
        yard.kubectl("apply", "-f", "-", input=json.dumps(runtime))
    return {False: "bare", True: "again"}


def start(yard: Yard, folder: pathlib.Path, name: str, case: dict, runtimes: dict[bool, str]) -> None:
    flags = list(case.get("flags", []))
    if "nodes" in case:
        flags += ["--nodes", str(case["nodes"])]
    runtime = case.get("runtime", runtimes[case.get("restarts", False)])
    if "command" in case:
        manifest = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": name, "annotations": {"trainyard.dev/failure-policy": "fail-fast"}},
            "spec": {"runtimeRef": {"name": runtime}, "trainer": {"command": case["command"]}},
        }  # fmt: skip
        yard.kubectl("create", "-f", "-", input=json.dumps(manifest))
        return
    # of its own: Python looks for modules in the folder of the script
    script = write(folder / name / ("job.sh" if "shell" in case else "job.py"), case.get("shell") or case["script"])
    path = f"{pathlib.Path(sys.executable).parent}:{yard.env['PATH']}"
    yard.run("run", "--detach", "--name", name, "--runtime", runtime, *flags, str(script), env={**yard.env, "PATH": path})


def explained(yard: Yard, name: str) -> dict:
    return json.loads(yard.run("explain", name, "-o", "json").stdout)


@pytest.fixture(scope="module")
def found(yard: Yard, runtimes: dict[bool, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What is explained of each case once its state is the expected one."""
    folder = tmp_path_factory.mktemp("faults")
    waiting = [name for name, case in CASES.items() if "needs" not in case or has(case["needs"])]
    under_way: list[str] = []
    results: dict[str, dict] = {}

    def step() -> bool:
        while waiting and len(under_way) < AT_ONCE:
            name = waiting.pop(0)
            start(yard, folder, name, CASES[name], runtimes)
            under_way.append(name)
        for name in list(under_way):
            told = explained(yard, name)
            if told["state"] == CASES[name].get("state", "failed"):
                results[name] = told
                under_way.remove(name)
        return not waiting and not under_way

    try:
        wait_for("all faults to be explained", step, LONG)
    except pytest.fail.Exception:
        for name in under_way:
            results[name] = explained(yard, name)
    return results


@pytest.mark.timeout(LONG + 60)
@pytest.mark.parametrize("name", CASES)
def test_the_reason_is_named(yard: Yard, found: dict[str, dict], name: str):
    case = CASES[name]
    if name not in found:
        pytest.skip(f"{case['needs']} is not installed")
    told = found[name]
    assert told["state"] == case.get("state", "failed"), told
    assert re.fullmatch(case["reason"], told["reason"]), told
    if "rank" in case:
        assert told["rank"] == case["rank"], told
    if "evidence" in case:
        assert any(re.search(case["evidence"], quote["text"]) for quote in told["evidence"]), told
    assert told["remedies"], told
    for remedy in told["remedies"]:
        assert remedy["text"]
        if remedy["command"]:
            check_command(remedy["command"], name)
    if "next" in case:
        assert any(re.search(case["next"], f"{remedy['text']} {remedy['command']}") for remedy in told["remedies"]), told


def check_command(command: str, job: str) -> None:
    """A remedy's command can be typed: its program is there, ours are real commands, and none leads back to where one is."""
    words = [word for word in shlex.split(command) if "=" not in word.split("/")[0] or word.startswith("-")]
    program = words[0]
    known = {"kubectl", "sudo", "nvidia-smi", "docker", "huggingface-cli", "hf", "uv", "apt-get", "export"}
    assert program in known or shutil.which(program) or program == "trainyard", command
    if program == "trainyard":
        assert words[1] not in ("describe", "explain"), f"{command} leads back to {job}"
        helped = subprocess.run([BINARY, words[1], "--help"], capture_output=True, text=True)
        assert helped.returncode == 0, command
        for flag in (word.split("=")[0] for word in words[2:] if word.startswith("--") and word != "--"):
            if words[1] == "run" and words.index(flag) > next((i for i, w in enumerate(words) if w.endswith(".py")), 99):
                break
            assert flag in helped.stdout, f"{command}: {flag} is no flag of {words[1]}"


@pytest.mark.timeout(120)
def test_a_manifests_job_runs_again_as_proposed(yard: Yard, runtimes: dict[bool, str]):
    """Not made by `run`: the command is a pipeline of kubectl, which is typed as it stands."""
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
        "metadata": {"name": "typed", "annotations": {"trainyard.dev/failure-policy": "fail-fast"}},
        "spec": {"runtimeRef": {"name": runtimes[False]}, "trainer": {"command": ["sh", "-c", "echo no data; exit 9"]}},
    }  # fmt: skip
    yard.kubectl("create", "-f", "-", input=json.dumps(manifest))
    wait_for("the job to fail", lambda: explained(yard, "typed")["state"] == "failed")
    (again,) = [r["command"] for r in explained(yard, "typed")["remedies"] if "replace" in (r["command"] or "")]
    first = yard.job("typed")["metadata"]["uid"]
    done = subprocess.run(["sh", "-c", again], capture_output=True, text=True, env=yard.env)
    assert done.returncode == 0, done.stderr
    assert yard.job("typed")["metadata"]["uid"] != first
    wait_for("the new job to fail", lambda: explained(yard, "typed")["state"] == "failed")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "exit" in case and "needs" not in case])
def test_run_returns_the_scripts_own_exit_code(yard: Yard, runtimes: dict[bool, str], tmp_path: pathlib.Path, name: str):
    case = CASES[name]
    script = tmp_path / "script.py"
    script.write_text(case["script"])
    done = yard.run("run", "--runtime", runtimes[False], *case.get("flags", []), str(script), check=False)
    assert done.returncode == case["exit"], done.stderr
    assert re.search(r"^ *why: ", done.stderr, re.M) and re.search(r"^ *next: ", done.stderr, re.M), done.stderr


@pytest.mark.timeout(120)
def test_run_returns_the_exit_code_of_a_rank_under_torchrun(yard: Yard, tmp_path: pathlib.Path):
    if not has("torch"):
        pytest.skip("torch is not installed")
    case = CASES["torchrun-exit-code"]
    script = tmp_path / "script.py"
    script.write_text(case["script"])
    path = f"{pathlib.Path(sys.executable).parent}:{yard.env['PATH']}"
    done = yard.run("run", *case["flags"], str(script), check=False, env={**yard.env, "PATH": path})
    assert done.returncode == case["exit"], done.stderr
