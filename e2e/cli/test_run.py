"""`trainyard run` and the other verbs, as their user types them."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import ROOT, Yard, wait_for

EXAMPLE = ROOT / "examples/torch-digits/train.py"


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(text)
    return path


@pytest.mark.timeout(240)
def test_digits_on_four_ranks(yard: Yard):
    done = yard.run("run", "--name", "digits", "--nodes", "2", "--nproc-per-node", "2", str(EXAMPLE), "--epochs", "15", timeout=200)
    assert re.search(r"^\[rank 0\] final accuracy 9\d\.\d\d% .* on 4 ranks$", done.stdout, re.M), done.stdout
    for rank in range(4):
        assert re.search(rf"^\[rank {rank}\] rank {rank} of 4 on digits-node-0-{rank // 2}: \d+ images$", done.stdout, re.M)
    assert yard.job("digits")["status"]["conditions"][-1]["type"] == "Complete"
    assert yard.job("digits")["status"]["trainerStatus"]["progressPercentage"] == 100
    assert re.search(r"^digits: running \d/2 pods \[#+ *\] \d+% .*loss=", done.stderr, re.M), done.stderr
    assert len(yard.run("metrics", "digits", "-o", "csv").stdout.splitlines()) == 1 + 15
    again = yard.run("logs", "digits", "--rank", "0", "--no-prefix").stdout
    assert "final accuracy" in again and "rank 1 of 4" not in again
    assert "Complete" in yard.run("get").stdout
    assert yard.run("describe", "digits").returncode == 0


def test_exit_code_is_the_jobs(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = write(tmp_path / "fails.py", "import sys\nprint('about to fail')\nsys.exit(7)\n")
    done = yard.run("run", "--runtime", plain, "--name", "fails", str(script), check=False)
    assert done.returncode == 7
    assert "[rank 0] about to fail" in done.stdout
    assert "trainyard explain fails" in done.stderr
    told = yard.run("describe", "fails").stdout
    assert "exit code 7" in told and "about to fail" in told


def test_any_directory_arguments_and_environment(yard: Yard, plain: str, tmp_path: pathlib.Path):
    write(tmp_path / "data.txt", "from the caller's directory")
    write(tmp_path / "show.py", "import os, sys\nprint(open('data.txt').read(), sys.argv[1:], os.environ['COLOUR'])\n")
    own = ["--flag", "a b", "$HOME", "--name", "x", "-e", "1", "--help"]  # some are ours as well
    done = yard.run("run", "--runtime", plain, "-e", "COLOUR=blue", "show.py", *own, cwd=tmp_path)
    assert f"[rank 0] from the caller's directory {own} blue" in done.stdout


def test_a_rank_or_step_that_is_not_there(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = write(tmp_path / "ranks.py", "print('x')\n")
    yard.run("run", "--runtime", plain, "--nodes", "2", "--name", "ranks", str(script))
    done = yard.run("logs", "ranks", "--rank", "2", check=False)
    assert done.returncode == 2 and "no rank 2: its ranks are 0 to 1" in done.stderr
    done = yard.run("logs", "ranks", "--step", "node-7", check=False)
    assert done.returncode == 2 and "its steps: node-0, node-1" in done.stderr


def test_a_restart_is_told(yard: Yard, plain: str, tmp_path: pathlib.Path):
    """Under a runtime that restarts, a job that fails goes on for minutes: say why, from the first failure on."""
    runtime = json.loads(yard.kubectl("get", "clustertrainingruntime", plain, "-o", "json").stdout)
    runtime["metadata"] = {"name": "again", "labels": runtime["metadata"]["labels"]}
    node = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    node["backoffLimit"], node["template"]["spec"]["restartPolicy"] = 6, "OnFailure"
    yard.kubectl("apply", "-f", "-", input=json.dumps(runtime))
    marker = tmp_path / "tried"
    script = write(tmp_path / "second.py", f"""
import os, sys
if not os.path.exists({str(marker)!r}):
    open({str(marker)!r}, "w").close()
    sys.exit(9)
print("second try")
""")
    done = yard.run("run", "--runtime", "again", "--name", "second", str(script))
    assert "[rank 0] second try" in done.stdout
    assert "node-0: container node ended with exit code 9; it is tried again (restart 1)" in done.stderr


def test_wait_for_a_deletion_and_for_what_does_not_come(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = write(tmp_path / "sleeps.py", "import time\ntime.sleep(600)\n")
    yard.run("run", "--detach", "--runtime", plain, "--name", "sleeps", str(script))
    yard.run("wait", "sleeps", "--for", "running", "--timeout", "60s")
    late = yard.run("wait", "sleeps", "--timeout", "1s", check=False)
    assert late.returncode == 124 and "timed out" in late.stderr
    waiting = yard.spawn("wait", "sleeps", "--for", "deleted", "--timeout", "60s")
    yard.run("delete", "sleeps")
    out, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, out + errors


def test_every_node_resolves_the_others(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = write(tmp_path / "names.py", """
import os, socket, time
name = socket.gethostname()
stem = name.rsplit("-", 1)[0]
for peer in (f"{stem}-0.names", f"{stem}-1.names", f"{stem}-1.names.default.svc.cluster.local"):
    for attempt in range(100):
        try:
            print(peer, socket.gethostbyname(peer))
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"{peer} does not resolve")
""")
    done = yard.run("run", "--runtime", plain, "--name", "names", "--nodes", "2", str(script))
    addresses = set(re.findall(r"names-node-0-\d\.names\S* (\S+)", done.stdout))
    assert len(addresses) == 2 and all(a.startswith("127.") for a in addresses), done.stdout


def test_ctrl_c_stops_the_job_and_says_how_to_go_on(yard: Yard, plain: str, tmp_path: pathlib.Path):
    script = write(tmp_path / "long.py", "import time\nprint('started', flush=True)\ntime.sleep(600)\n")
    process = yard.spawn("run", "--runtime", plain, "--name", "long", str(script))
    lines = []
    wait_for("the first line", lambda: lines.append(process.stdout.readline()) or "started" in lines[-1])
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "trainyard resume long" in errors and "trainyard delete long" in errors
    wait_for("its pods to end", lambda: "long-node" not in yard.kubectl("get", "pods", "-o", "name").stdout)
    assert yard.run("get", "long", "-o", "json").returncode == 0
    yard.run("resume", "long")
    yard.run("wait", "long", "--for", "running", "--timeout", "30s")
    yard.run("suspend", "long")
    yard.run("wait", "long", "--for", "suspended", "--timeout", "30s")
    yard.run("delete", "long")
    assert yard.run("get", "long", check=False).returncode == 3


def test_run_starts_the_control_plane_when_none_runs(tmp_path: pathlib.Path):
    from conftest import BINARY

    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}
    env.pop("TRAINYARD_HOME", None)
    script = write(tmp_path / "hello.py", "print('hello')\n")
    job = ["run", "--runtime", "jax-distributed", str(script)]
    try:
        done = subprocess.run([BINARY, *job], capture_output=True, text=True, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "[rank 0] hello" in done.stdout
        home = tmp_path / "data/trainyard"
        assert (home / "kubeconfig").stat().st_mode & 0o777 == 0o600
        assert home.stat().st_mode & 0o777 == 0o700
        status = subprocess.run([BINARY, "status"], capture_output=True, text=True, env=env)
        assert status.returncode == 0 and "running" in status.stdout
    finally:
        subprocess.run([BINARY, "down"], env=env)
    stopped = subprocess.run([BINARY, "status"], capture_output=True, text=True, env=env)
    assert stopped.returncode == 4 and "not running" in stopped.stdout


def test_everything_prints_json_and_yaml(yard: Yard, plain: str, tmp_path: pathlib.Path):
    import yaml

    script = write(tmp_path / "quick.py", "print('x')\n")
    yard.run("run", "--runtime", plain, "--name", "printed", str(script))
    for words in (["get"], ["get", "printed"], ["describe", "printed"], ["runtimes"], ["status"], ["wait", "printed"]):
        assert json.loads(yard.run(*words, "-o", "json").stdout) is not None, words
        assert yaml.safe_load(yard.run(*words, "-o", "yaml").stdout) is not None, words
    line = json.loads(yard.run("logs", "printed", "-o", "json").stdout.splitlines()[0])
    assert line["line"] == "x" and line["rank"] == 0 and line["step"] == "node-0"


def test_two_jobs_at_once_do_not_share_ports(yard: Yard):
    """Both use torchrun's default port on every node."""
    runs = [
        yard.spawn("run", "--name", f"twin-{n}", "--nodes", "2", str(EXAMPLE), "--epochs", "3", "--target", "0.2") for n in "ab"
    ]
    for run in runs:
        out, errors = run.communicate(timeout=200)
        assert run.returncode == 0, out + errors
        assert "on 2 ranks" in out
