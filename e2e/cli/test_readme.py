"""What the README says is so."""

from __future__ import annotations

import re
import subprocess

import pytest

from conftest import BINARY, ROOT, Yard, wait_for


def test_the_readmes_verbs_and_flags_exist():
    readme = (ROOT / "README.md").read_text()
    table = [line for line in readme.splitlines() if line.startswith("| `trainyard ")]
    verbs = set()
    for line in table:
        for words in re.findall(r"`([^`]+)`", re.split(r"(?<!\\)\|", line)[1]):
            path = re.match(r"(?:[a-z][a-z-]*(?: |$))+", words.removeprefix("trainyard "))[0].split()
            verb = path[0]
            if verb in ("kubectl", "oc"):
                continue  # the same by another name
            verbs.add(verb)
            told = subprocess.run([BINARY, *path, "--help"], capture_output=True, text=True)
            assert told.returncode == 0, f"{path}: {told.stderr}"
            for flag in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", words):
                assert flag in told.stdout, f"{path} has no {flag}"
    offered = subprocess.run([BINARY, "--help"], capture_output=True, text=True).stdout
    listed = set(re.findall(r"^  ([a-z][a-z-]*)  ", offered.split("Commands:")[1].split("Options:")[0], re.M))
    assert verbs == listed - {"help"}


@pytest.mark.timeout(240)
def test_the_readmes_kubectl_session(yard: Yard):
    """The commands under "Kubernetes clients", up to the moment when all ranks are at work."""
    assert yard.run("kubeconfig").stdout.strip() == yard.kubeconfig
    env = {**yard.env, "KUBECONFIG": yard.kubeconfig}
    listed = subprocess.run(["kubectl", "get", "clustertrainingruntimes"], capture_output=True, text=True, env=env).stdout
    for framework in ("torch", "jax", "xgboost", "deepspeed", "mlx"):
        assert f"{framework}-distributed" in listed
    assert "torchtune" in listed
    (line,) = re.findall(r"^sed .*\| kubectl apply -f -$", (ROOT / "README.md").read_text(), re.M)
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0 and "torch-digits created" in done.stdout, done.stderr
    wait_for("all ranks", lambda: {f"rank {n} of 4" for n in range(4)} <= ranks(yard.run("logs", "torch-digits").stdout), 150)
    yard.run("delete", "torch-digits")


def ranks(log: str) -> set[str]:
    return set(re.findall(r"rank \d of \d", log))
