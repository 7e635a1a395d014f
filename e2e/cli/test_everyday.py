"""The everyday conveniences of the command line: which Python, `init`, `queue`, and `run` with --watch, --sweep and --output."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from conftest import Yard, wait_for, write

PLAIN = ("run", "--runtime", "plain")


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A virtual environment with one package, with a blank in its path."""
    folder = tmp_path_factory.mktemp("with a blank") / "my venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    write(site / "only_here.py", "text = 'found'\n")
    return folder


def test_the_python_that_flags_choose(yard: Yard, venv: pathlib.Path, tmp_path: pathlib.Path):
    write(tmp_path / "a.py", """
import os, shutil, sys, only_here
print(only_here.text, sys.prefix, os.environ.get("VIRTUAL_ENV"), os.path.dirname(shutil.which("python")))
""")
    wanted = f"[rank 0] found {venv} {venv} {venv}/bin\n"
    uv = write(tmp_path / "bin/uv", f'#!/bin/sh\n[ "$1 $2" = "run python" ] || exit 3\nshift 2\nexec "{venv}/bin/python" "$@"\n', 0o755)
    with_uv = {**yard.env, "PATH": f"{uv.parent}:{yard.env['PATH']}"}
    for flags in (["--venv", os.path.relpath(venv, tmp_path)], ["--python", f"{venv}/bin/python3"], ["--uv"]):
        done = yard.run(*PLAIN, *flags, "a.py", cwd=tmp_path, env=with_uv)
        assert done.stdout == wanted, (flags, done.stderr)

    without_uv = {**yard.env, "PATH": f"{venv}/bin:/usr/bin:/bin"}
    cases = {
        ("--venv", "nowhere"): "--venv nowhere: it is not a virtual environment",
        ("--python", "python9.99"): "--python python9.99: there is none on the PATH",
        ("--python", "./python"): "--python ./python: there is no such file",
        ("--uv",): "--uv: uv is not on the PATH",
        ("--uv", "--venv", "x"): "cannot be used with",
    }
    for flags, told in cases.items():
        done = yard.run(*PLAIN, *flags, "a.py", cwd=tmp_path, env=without_uv, check=False)
        assert done.returncode == 2 and told in done.stderr, done.stderr


@pytest.mark.skipif(shutil.which("torchrun") is None, reason="PyTorch is not on the PATH")
def test_torchrun_of_a_chosen_python(yard: Yard, tmp_path: pathlib.Path):
    """Without torchrun on the PATH, and with ranks that torchrun gives."""
    script = write(tmp_path / "a.py", "import os, sys\nprint(os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.executable)\n")
    python = pathlib.Path(shutil.which("torchrun")).parent / "python"
    env = {**yard.env, "PATH": "/usr/bin:/bin"}
    done = yard.run("run", "--python", str(python), "--nproc-per-node", "2", str(script), env=env)
    assert {f"[rank {n}] {n} of 2 {python}" for n in (0, 1)} <= set(done.stdout.splitlines())


def test_a_written_job_runs_by_kubectl(yard: Yard, tmp_path: pathlib.Path):
    folder = tmp_path / "my code"
    write(folder / "hello.py", "import os\nprint('hello', os.getcwd(), os.environ['JOB_COMPLETION_INDEX'])\n")
    done = yard.run("init", "--nodes", "2", "hello.py", cwd=folder)
    assert done.stdout.split() == ["job.yaml", "runtime.yaml"]
    for file in ("runtime.yaml", "job.yaml"):
        yard.kubectl("apply", "-f", str(folder / file))
    yard.run("wait", "hello", "--timeout", "60s")
    assert set(yard.run("logs", "hello").stdout.splitlines()) == {f"[rank {n}] hello {folder} {n}" for n in (0, 1)}
    before = (folder / "job.yaml").read_text()
    again = yard.run("init", "--nodes", "3", "hello.py", cwd=folder, check=False)
    assert again.returncode == 2 and "job.yaml exists" in again.stderr and (folder / "job.yaml").read_text() == before
    yard.run("init", "--nodes", "3", "--force", "hello.py", cwd=folder)
    assert "numNodes: 3" in (folder / "job.yaml").read_text()
    write(folder / "train.py", "import torch\n")
    yard.run("init", "--force", cwd=folder)
    assert '"torch-distributed"' in (folder / "job.yaml").read_text() and "torchrun" in (folder / "job.yaml").read_text()


def test_the_queue_says_what_would_let_a_job_run(yard: Yard, tmp_path: pathlib.Path):
    node = json.loads(yard.kubectl("get", "nodes", "-o", "json").stdout)["items"][0]
    cpus = int(node["status"]["allocatable"]["cpu"])
    script = write(tmp_path / "sleeps.py", "import time\ntime.sleep(600)\n")
    assert json.loads(yard.run("queue", "-o", "json").stdout)["waiting"] == []
    yard.run(*PLAIN, "--detach", "--name", "runs", "--cpus", str(cpus), str(script))
    yard.run("wait", "runs", "--for", "running", "--timeout", "60s")
    for name in ("waits", "waits-too"):
        yard.run(*PLAIN, "--detach", "--name", name, "--cpus", "1", str(script))

    def waiting() -> dict:
        found = {entry["name"]: entry for entry in json.loads(yard.run("queue", "-o", "json").stdout)["waiting"]}
        return found if len(found) == 2 and all(entry["heldBy"] == "scheduler" for entry in found.values()) else {}

    found = wait_for("both to wait", waiting)
    assert found["waits"]["position"] == 1 and found["waits"]["ahead"] == [] and found["waits-too"]["ahead"] == ["waits"]
    told = f"1 CPU more (it needs 1 CPU; free: 0 of {cpus}); held by: runs {cpus}"
    assert found["waits"]["wouldLetItRun"] == [told] and found["waits"]["needs"]["cpu"] == "1"
    assert f"would let it run: {told}" in yard.run("queue").stdout
    assert "Queue:      place 2, behind waits\n" in yard.run("describe", "waits-too").stdout
    assert json.loads(yard.run("describe", "waits", "-o", "json").stdout)["queue"] == {"position": 1, "overall": 1, "ahead": []}
    assert json.loads(yard.run("describe", "runs", "-o", "json").stdout)["queue"] is None
    yard.run("delete", "runs")
    yard.run("wait", "waits", "--for", "running", "--timeout", "60s")
    yard.run("delete", "waits", "waits-too")
    assert "nothing waits in namespace default" in yard.run("queue").stderr


def test_results_of_all_nodes_are_in_one_folder(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "writes.py", "import os\nopen(os.environ['TRAINYARD_OUTPUT'] + '/rank', 'w').write(os.environ['RANK'])\n")
    folder = tmp_path / "my results"
    done = yard.run(*PLAIN, "--nodes", "2", "--name", "writes", "--output-dir", folder.name, str(script), cwd=tmp_path)
    written = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}
    assert written == {"writes/node-0/rank": "0", "writes/node-1/rank": "1"}
    told = f"{folder}/writes (2 files, 2 B)"
    assert f"results: {told}" in done.stderr and f"Results:    {told}" in yard.run("describe", "writes").stdout
    yard.run("delete", "writes")
    assert (folder / "writes/node-0/rank").exists(), "it outlives the job"
    (tmp_path / "file").touch()
    refused = yard.run(*PLAIN, "--output-dir", "file", str(script), cwd=tmp_path, check=False)
    assert refused.returncode == 2 and "--output-dir " in refused.stderr and "cannot be written" in refused.stderr


def test_a_watched_script_runs_again_when_it_changes(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "watched.py", "from helper import text\nprint('first', text)\n")
    write(tmp_path / "helper.py", "text = 'a'\n")
    process = yard.spawn(*PLAIN, "--watch", "--name", "watched", str(script))
    errors: list[str] = []

    def says(stream, text: str) -> None:
        lines: list[str] = errors if stream is process.stderr else []
        wait_for(text, lambda: lines.append(stream.readline()) or text in lines[-1] or (not lines[-1] and pytest.fail("".join(errors))))

    says(process.stdout, "first a")
    says(process.stderr, "waiting for a change of 2 files")
    write(tmp_path / "helper.py", "text = 'bb'\n")
    says(process.stdout, "first bb")
    says(process.stderr, "waiting for a change")
    script.write_text("print(\n")
    says(process.stderr, "SyntaxError")
    script.write_text("import time\nprint('third', flush=True)\ntime.sleep(600)\n")
    says(process.stdout, "third")
    script.write_text("import time\nprint('fourth', flush=True)\ntime.sleep(600)\n")  # while it runs
    says(process.stdout, "fourth")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert yard.run("get", "watched", check=False).returncode == 3, "it is deleted"


@pytest.mark.timeout(240)
def test_a_sweep_finds_the_best_of_a_grid(yard: Yard, tmp_path: pathlib.Path):
    from test_optimization import TRIAL

    script = write(tmp_path / "search.py", TRIAL + """
given = dict(word.lstrip("-").split("=") for word in sys.argv[2:])
report(loss=abs(float(given["lr"]) - 0.1) + float(os.environ["WD"]))
""")
    words = [*PLAIN, "--name", "swept", "--sweep", "lr=0.1,0.2", "--sweep", "WD=0.5,0.25", "--objective", "loss:min", "--parallel-trials", "2"]
    done = yard.run(*words, str(script), str(tmp_path), timeout=200)
    assert done.stdout.startswith("best: lr=0.1 WD=0.25  loss 0.25  (swept-trial-1)"), done.stdout + done.stderr
    for n in range(1, 5):
        assert f"trial {n}/4: lr=" in done.stderr
    trials = json.loads(yard.run("trials", "swept", "-o", "json").stdout)["trials"]
    assert len(trials) == 4 and [trial["name"] for trial in trials if trial["best"]] == ["swept-trial-1"]
    assert all(trial["state"] == "Complete" for trial in trials)
    yard.kubectl("delete", "optimizationjob", "swept")
    refused = yard.run(*PLAIN, "--sweep", "lr=1,2", str(script), check=False)
    assert refused.returncode == 2 and "--objective" in refused.stderr
