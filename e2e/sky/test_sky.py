"""SkyPilot's commands: by a link named `sky` and as `trainyard sky`, without a control plane."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import BINARY, ROOT

CATALOGUE = ROOT / "crates/sky/golden/catalog/v8"


@pytest.fixture
def home(tmp_path: pathlib.Path) -> pathlib.Path:
    """A home with price lists where SkyPilot keeps them, and a link to us."""
    shutil.copytree(CATALOGUE, tmp_path / ".sky/catalogs/v8")
    (tmp_path / "sky").symlink_to(BINARY.resolve())
    return tmp_path


def run(home: pathlib.Path, *words: object, cwd: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a program with that home, and nothing but it."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "USER": "somebody"}
    command = [str(word) for word in words]
    return subprocess.run(command, env=environment, cwd=cwd or home, capture_output=True, text=True, timeout=60)


def test_a_task_file_is_planned_and_nothing_is_touched(home):
    (home / "task.yaml").write_text("name: t\nresources: {accelerators: V100, any_of: [{infra: aws}, {infra: gcp}]}\nrun: nvidia-smi\n")
    before = sorted(path.name for path in home.iterdir())
    by_link = run(home, home / "sky", "launch", "--dryrun", "-c", "dev", "task.yaml")
    assert (by_link.returncode, by_link.stderr) == (0, "")
    chosen = next(line for line in by_link.stdout.splitlines() if "✔" in line)
    assert chosen.split()[:3] == ["GCP", "(us-central1-a)", "n1-highmem-8"]
    assert "2.95" in chosen
    assert run(home, BINARY, "sky", "launch", "--dryrun", "-c", "dev", "task.yaml").stdout == by_link.stdout
    assert sorted(path.name for path in home.iterdir()) == before


def test_explain_says_why_all_else_was_dropped(home):
    (home / "task.yaml").write_text("resources: {accelerators: V100, max_hourly_cost: 3}\n")
    told = run(home, home / "sky", "explain", "task.yaml")
    assert told.returncode == 0, told.stderr
    lines = {line.split()[0]: line for line in told.stdout.splitlines() if line.startswith(("AWS", "Lambda"))}
    assert "over max_hourly_cost: the cheapest costs $3.06 an hour" in lines["AWS"]
    assert "max_hourly_cost: 3.06" in lines["AWS"]
    assert "accelerators: V100:8" in lines["Lambda"]
    nothing = run(home, home / "sky", "explain", "--gpus", "V100:3", "task.yaml")
    assert nothing.returncode == 1
    assert "Nothing that may be used meets" in nothing.stderr


def test_price_lists_are_a_folder_of_choice(home, tmp_path_factory):
    bare = tmp_path_factory.mktemp("bare")
    named = run(bare, BINARY, "sky", "explain", "--catalog", CATALOGUE, "--gpus", "T4", "true")
    assert (named.returncode, named.stderr) == (0, "")
    assert "g4dn.xlarge" in named.stdout
    missing = run(bare, BINARY, "sky", "explain", "--catalog", bare / "no", "true")
    assert missing.returncode == 2
    assert "cannot be read" in missing.stderr
    here = run(bare, BINARY, "sky", "launch", "--dryrun", "true")
    assert here.returncode == 0, here.stderr
    assert next(line for line in here.stdout.splitlines() if "✔" in line).split()[0] == "Local"
    without = run(bare, BINARY, "sky", "launch", "--dryrun", "--infra", "aws", "true")
    assert without.returncode == 1
    assert "`trainyard sky catalog import` says what to fetch" in without.stdout
    assert f"{bare}/.sky/catalogs/v8/aws/vms.csv" in run(bare, BINARY, "sky", "catalog", "import").stdout
    (home / ".sky/config.yaml").write_text("allowed_clouds: [lambda]\n")
    only = run(home, home / "sky", "explain", "--gpus", "A10", "true")
    assert "lambda/us-east-1" in only.stdout
    assert "azure" not in only.stdout


def test_check_says_where_machines_are_made_and_why_not_elsewhere(home):
    (home / ".sky/ssh_node_pools.yaml").write_text("lab:\n  user: me\n  hosts: [gpu-1, {ip: 10.0.0.2}]\nempty: {}\n")
    rows = {line.split()[0]: line for line in run(home, home / "sky", "check").stdout.splitlines() if line.strip()}
    assert rows["local"].split()[1] == "yes"
    # nobody answers there: each host that was tried is named
    assert rows["ssh/lab"].split()[1] == "no" and "gpu-1: " in rows["ssh/lab"] and "10.0.0.2: " in rows["ssh/lab"]
    assert rows["ssh/empty"].split()[1] == "no" and "it has no hosts" in rows["ssh/empty"]
    assert rows["aws"].split()[1] == "no" and "no machines are made there yet" in rows["aws"]
    only = run(home, home / "sky", "check", "ssh/lab").stdout
    assert "ssh/lab" in only and "aws" not in only and "local" not in only
    unknown = run(home, home / "sky", "check", "ssh/nope")
    assert unknown.returncode == 1 and "no pool nope" in unknown.stderr
    told = run(home, home / "sky", "explain", "--num-nodes", "3", "--infra", "ssh/lab", "true")
    assert told.returncode == 1 and "2 such machines are free, and 3 are needed" in told.stdout
    table = run(home, home / "sky", "launch", "--dryrun", "--gpus", "H100:8", "true").stdout
    assert next(line for line in table.splitlines() if "✔" in line).split()[:2] == ["SSH", "(lab)"]


def test_a_verb_that_is_not_there_says_so_and_fails(home):
    for words in (["jobs", "dashboard"], ["volume", "ls"], ["ssh", "up"]):
        done = run(home, home / "sky", *words)
        assert (done.returncode, done.stdout) == (1, ""), words
        assert "does nothing yet" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    wrong = run(home, home / "sky", "launch", "--fast-please", "x")
    assert wrong.returncode == 2
    assert "Did you mean --fast?" in wrong.stderr
