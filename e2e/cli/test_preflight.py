"""What `run` refuses before anything is created: one line with the flag and the value, exit code 2. And the runtime `plain`."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BINARY, Yard, write

# Folders of this interpreter and of the shell alone: no torchrun, whatever is installed beside.
BARE_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A virtual environment without packages, with a blank in its path."""
    folder = tmp_path_factory.mktemp("with a blank") / "my venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture
def bare(yard: Yard, venv: pathlib.Path, tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of somebody whose Python has nothing installed, with a cache of his own."""
    env = {k: v for k, v in yard.env.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYENV_VERSION")}
    return {**env, "PATH": f"{venv}/bin:{BARE_PATH}", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def jobs(yard: Yard) -> str:
    return yard.kubectl("get", "trainjobs", "-o", "name").stdout


def refused(yard: Yard, *words: str, **options) -> str:
    """The error's first line: exit code 2, and nothing was created."""
    before = jobs(yard)
    done = yard.run("run", *map(str, words), check=False, **options)
    assert done.returncode == 2, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert jobs(yard) == before
    assert re.match(r"error\[TY0[012]\d\d\]: ", done.stderr), done.stderr
    return done.stderr


def test_flags_that_cannot_be_meant_so(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "a.py", "print(1)\n")
    cpus = len(os.sched_getaffinity(0))
    cases = {
        ("--gpus", "999"): "--gpus 999: this machine has ",
        ("--cpus", "100000"): "--cpus 100000: this machine has ",
        ("--nodes", "99", "--cpus", str(cpus)): "--nodes 99 --cpus",
        ("--memory", "8"): "--memory 8: that is 8 bytes; with a unit: 8Gi",
        ("--memory", "lots"): "--memory lots: that is no quantity",
        ("--name", "My_Job"): "--name My_Job: names are lower-case letters",
        ("--name", "x" * 60): "60 characters, and 48 are the most",
        ("--runtime", "plian"): '--runtime plian: there is no such runtime; did you mean "plain"?',
    }
    for flags, told in cases.items():
        flags = flags if flags[0] == "--runtime" else ("--runtime", "plain", *flags)
        error = refused(yard, *flags, script)
        assert told in error.splitlines()[0], error


def test_a_name_that_is_taken(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "a.py", "print(1)\n")
    yard.run("run", "--runtime", "plain", "--name", "taken", str(script))
    error = refused(yard, "--runtime", "plain", "--name", "taken", script)
    assert "--name taken: there is a job of this name (complete" in error and "trainyard delete taken" in error
    yard.run("delete", "taken")


def test_a_syntax_error_is_told_before_anything_starts(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "broken.py", "import os\nprint(1\n")
    for _ in range(2):  # asked, and from the cache
        assert re.search(r"broken\.py, line \d: SyntaxError: .* \(Python 3\.", refused(yard, "--runtime", "plain", script))
    script.write_text("print('mended')\n")
    assert "[rank 0] mended" in yard.run("run", "--runtime", "plain", str(script)).stdout


def test_a_framework_that_is_missing(yard: Yard, bare: dict, venv: pathlib.Path, tmp_path: pathlib.Path):
    script = write(tmp_path / "uses.py", "import helper\n")
    write(tmp_path / "helper.py", "def train():\n    import torch\n    print('with', torch.__file__)\n\n\ntrain()\n")
    error = refused(yard, script, env=bare)
    assert "error[TY0205]: uses.py imports torch, which is not installed for" in error, error
    assert f"'{venv}/bin/python" in error and "-m pip install torch" in error, "the command that installs it into this environment"
    # installed since: a package that is nothing but there, as this looks and does not import
    (site,) = venv.glob("lib/python3*/site-packages")
    package = write(site / "torch/__init__.py", "")
    write(venv / "bin/torchrun", f"#!/bin/sh\nexec '{venv}/bin/python' \"$@\"\n", 0o755)
    done = yard.run("run", str(script), env=bare)
    assert f"with {package}" in done.stdout, done.stdout + done.stderr
    shutil.rmtree(package.parent)
    (venv / "bin/torchrun").unlink()
    assert "torch" in refused(yard, script, env=bare)


def test_without_torch_a_plain_script_runs_plain(yard: Yard, bare: dict, tmp_path: pathlib.Path):
    script = write(tmp_path / "hello.py", "import os\nprint('hello', os.environ['RANK'], os.environ['WORLD_SIZE'])\n")
    done = yard.run("run", "--nodes", "2", str(script), env=bare)
    assert "hello.py does not import torch, and" in done.stderr and "--runtime plain" in done.stderr
    assert {"[rank 0] hello 0 2", "[rank 1] hello 1 2"} <= set(done.stdout.splitlines())


def test_an_interpreter_that_does_not_run(yard: Yard, bare: dict, tmp_path: pathlib.Path):
    script = write(tmp_path / "a.py", "print(1)\n")
    shims = write(tmp_path / "shims/python3", "#!/bin/sh\necho 'pyenv: version `3.99` is not installed' >&2\nexit 1\n", 0o755)
    error = refused(yard, "--runtime", "plain", script, env={**bare, "PATH": f"{shims.parent}:{BARE_PATH}"})
    assert "does not run: pyenv: version `3.99` is not installed" in error and "--python" in error
    error = refused(yard, "--runtime", "plain", script, env={**bare, "PATH": str(tmp_path / "nothing")})
    assert "there is no python3 on the PATH that the job gets" in error


def test_commands_programs_and_scripts_of_other_languages(yard: Yard, tmp_path: pathlib.Path):
    command = ["--runtime", "plain", "--nodes", "2", "--", "sh", "-c", 'echo "$RANK of $WORLD_SIZE in $TRAINYARD_JOB, $JOB_COMPLETION_INDEX"']
    done = yard.run("run", "--name", "words", *command)
    assert {f"[rank {n}] {n} of 2 in words, {n}" for n in (0, 1)} == set(done.stdout.splitlines())
    script = write(tmp_path / "go now.sh", "#!/bin/sh -e\necho \"$2 $(basename \"$0\")\"\n")
    done = yard.run("run", str(script), "a", "b c")
    assert done.stdout == "[rank 0] b c go now.sh\n" and "go now.sh is not a Python file" in done.stderr
    assert "no-such-program is not on the PATH" in refused(yard, "--runtime", "plain", "no-such-program")
    assert 'did you mean "go now.sh"?' in refused(yard, tmp_path / "go_now.sh")


def test_the_first_node_is_found_by_its_name(yard: Yard, tmp_path: pathlib.Path):
    script = write(tmp_path / "ring.py", """
import os, socket, time
rank, address = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        print("heard", peer.recv(10).decode())
else:
    for attempt in range(200):
        try:
            socket.create_connection(address).send(b"rank 1")
            break
        except OSError:
            time.sleep(0.05)
""")
    assert "[rank 0] heard rank 1" in yard.run("run", "--runtime", "plain", "--nodes", "2", str(script)).stdout


def test_another_users_runtime_of_that_name_is_left_alone(yard: Yard):
    runtime = json.loads(yard.kubectl("get", "clustertrainingruntime", "plain", "-o", "json").stdout)
    yard.kubectl("delete", "clustertrainingruntime", "plain")
    runtime["metadata"] = {"name": "plain", "labels": {**runtime["metadata"]["labels"], "mine": "yes"}}
    runtime["spec"]["mlPolicy"]["numNodes"] = 2
    yard.kubectl("create", "-f", "-", input=json.dumps(runtime))
    yard.run("down")
    yard.up()
    again = json.loads(yard.kubectl("get", "clustertrainingruntime", "plain", "-o", "json").stdout)
    assert again["spec"]["mlPolicy"]["numNodes"] == 2 and again["metadata"]["labels"]["mine"] == "yes"
    yard.kubectl("delete", "clustertrainingruntime", "plain")
    yard.run("down")
    yard.up()
    assert "plain" in yard.run("runtimes").stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run the client as somebody else")
def test_a_script_that_the_user_may_not_read(tmp_path_factory: pytest.TempPathFactory):
    """An ordinary user with an own control plane, and files of root's."""
    folder = pathlib.Path(f"/var/tmp/trainyard-preflight-{os.getpid()}")
    folder.mkdir()
    try:
        folder.chmod(0o777)
        binary = shutil.copy(BINARY, folder / "trainyard")
        script = write(folder / "secret.py", "print(1)\n", 0o600)
        env = {"PATH": BARE_PATH, "HOME": str(folder), "TRAINYARD_HOME": str(folder / "home")}
        done = subprocess.run([binary, "run", "--runtime", "plain", script], env=env, cwd=folder, user=65534, group=65534,
                              extra_groups=[], capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 2 and f"{script}: the job may not read it: Permission denied" in done.stderr, done.stderr
        assert not (folder / "home").exists(), "nothing was started for it"
    finally:
        shutil.rmtree(folder)
