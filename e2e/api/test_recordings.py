"""The recordings of the real systems, played against our server.

`not-yet.yaml` names the scenarios that do not pass yet, each with its reason. The list only shrinks: a scenario on it
that passes must be taken off, and one that is not on it must pass. A reason that begins with "on purpose" stands for
upstream behaviour that is not wanted; one that begins with "sometimes" for a scenario that may pass.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree

import pytest
import yaml

import shares
from conftest import ROOT, Yard, stop

GOLDEN = ROOT / "e2e/golden"
NOT_YET: dict[str, dict[str, str]] = yaml.safe_load((GOLDEN / "not-yet.yaml").read_text()) or {}
JOBS = os.environ.get("GOLDEN_JOBS", "6")


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A server with its controllers but without a node: the scenarios play the kubelet."""
    yard = Yard(tmp_path_factory.mktemp("bare"), "--no-node", "--token", "golden")
    yield yard
    stop(yard)


@pytest.fixture(scope="module")
def reporting(tmp_path_factory):
    """The same with the status server: its address, and the control plane."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    yard = Yard(tmp_path_factory.mktemp("reporting"), "--no-node", "--token", "golden", "--status-server", address)
    yield address, yard
    stop(yard)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("folder", ["api", "job", "jobset", "mpijob", "trainer"])
def test_recordings(bare: Yard, folder: str, tmp_path: pathlib.Path):
    play(bare, folder, tmp_path)


@pytest.mark.timeout(300)
def test_recordings_of_the_status_server(reporting: tuple[str, Yard], tmp_path: pathlib.Path):
    address, yard = reporting
    play(yard, "trainer-status-server", tmp_path, "--status-server", f"https://{address}")


def play(yard: Yard, folder: str, tmp_path: pathlib.Path, *flags: str) -> None:
    """Plays a folder of recordings and holds the outcome against the list."""
    server = ["--server", yard.running["server"], "--token", "golden", "--insecure"]
    count, failed = replay(tmp_path, folder, *server, *flags)
    hold(count, failed, folder, NOT_YET.get(folder, {}))


def replay(tmp_path: pathlib.Path, folder: str, *flags: str) -> tuple[int, dict[str, str]]:
    """Plays a folder of recordings; how many there are, and what is wrong with those that fail."""
    report = tmp_path / "report.xml"
    # scenarios of the API make roles and bindings of the whole cluster for the same user: one after the other
    jobs = "1" if folder == "api" else JOBS
    chosen = played(folder)
    done = subprocess.run(
        [sys.executable, GOLDEN / "replay.py", "check", *chosen.values(), "-j", jobs, "--junit", report, *flags],
        capture_output=True, text=True,
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    cases = list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    failed = {c.get("name"): (c.find("failure") if c.find("failure") is not None else c.find("error")) for c in cases}
    assert len(cases) >= len(chosen), "not every scenario was played"
    return len(cases), {name: fault.text or "" for name, fault in failed.items() if fault is not None}


def played(folder: str) -> dict[str, pathlib.Path]:
    """The scenarios of a folder that are played, by their names: in the gate a share of them."""
    every = {file.parent.name: file.parent for file in (GOLDEN / folder).rglob("scenario.yaml")}
    return {name: every[name] for name in shares.scenarios(list(every))}


def hold(count: int, failed: dict[str, str], folder: str, listed: dict[str, str]) -> None:
    """Holds an outcome against the list."""
    listed = {name: reason for name, reason in listed.items() if name in played(folder)}
    new = {name: text[:2000] for name, text in failed.items() if name not in listed}
    passed = sorted(name for name, reason in listed.items() if name not in failed and not reason.startswith("sometimes"))
    print(f"{folder}: {count - len(failed)} of {count} pass")
    assert not new, "these should pass:\n" + "\n".join(f"--- {name}\n{text}" for name, text in new.items())
    assert not passed, f"these pass now; take them off e2e/golden/not-yet.yaml: {passed}"


def test_the_list_names_scenarios_that_exist():
    for folder, names in NOT_YET.items():
        for name, reason in names.items():
            assert (GOLDEN / folder / name / "scenario.yaml").exists(), f"{folder}/{name}"
            assert re.search(r"\w{3}", reason), f"{folder}/{name} needs a reason"
