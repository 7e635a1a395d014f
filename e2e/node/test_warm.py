"""`trainyard run --warm`: ranks that are forked from a process that has imported torch."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import sysconfig

import pytest

from conftest import Yard, wait_for

pytest.importorskip("torch", reason="torch is not installed: nothing can wait with it")

# What each rank says of itself: its zygote is its parent's parent.
TELL = """
import json, os, sys
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
warm = b"zygote.py" in open("/proc/self/cmdline", "rb").read()
zygote = parent(os.getppid()) if warm else None
def tell(**more):
    print(json.dumps({"warm": warm, "zygote": zygote, "pid": os.getpid(), **more}), flush=True)
"""


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(TELL + text)
    return path


def told(text: str) -> list[dict]:
    return [json.loads(line) for line in re.findall(r"^\[rank \d+\] (\{.*\})$", text, re.M)]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # a zombie that nobody has waited for yet has ended, too
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of its own: what is remembered of one is not what another test finds."""
    folder = tmp_path / "a project"
    folder.mkdir()
    return folder


def test_ranks_train_together_and_the_folder_is_remembered(yard: Yard, project: pathlib.Path):
    script = write(project / "together.py", """
import random, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(sum)
tell(sum=sum.item(), rank=dist.get_rank(), world=dist.get_world_size(), local=os.environ["LOCAL_RANK"],
     host=socket.gethostname(), argv=sys.argv, folder=os.getcwd(), first=sys.path[0], main=__name__,
     colour=os.environ["COLOUR"], file=__file__, random=random.random())
dist.destroy_process_group()
""")
    words = ["--nodes", "2", "--nproc-per-node", "2", "-e", "COLOUR=blue", "together.py", "--lr", "a b"]
    first = yard.run("run", "--warm", "--name", "one", *words, cwd=project)
    assert "start warm from now on" in first.stderr
    second = yard.run("run", "--name", "two", *words, cwd=project)
    assert "start warm" not in second.stderr
    ranks = [sorted(told(done.stdout), key=lambda rank: rank["rank"]) for done in (first, second)]
    assert [len(four) for four in ranks] == [4, 4], first.stdout + second.stdout
    for name, four in zip(["one", "two"], ranks):
        assert all(rank["warm"] and rank["sum"] == 10 and rank["world"] == 4 for rank in four)
        assert [rank["local"] for rank in four] == ["0", "1", "0", "1"]
        assert [rank["host"] for rank in four] == [f"{name}-node-0-{node}" for node in (0, 0, 1, 1)]
        for rank in four:
            assert rank["argv"][1:] == ["--lr", "a b"] and rank["main"] == "__main__" and rank["colour"] == "blue"
            assert (rank["folder"], rank["first"], rank["file"]) == (str(project), str(project), str(script))
    assert len({rank["zygote"] for four in ranks for rank in four}) == 1, "one import for both runs"
    assert len({rank["random"] for four in ranks for rank in four}) == 8, "chance is not shared"
    assert json.loads(yard.run("get", "two", "-o", "json").stdout)["status"]["conditions"][-1]["type"] == "Complete"
    cold = yard.run("run", "--no-warm", "--name", "three", *words[2:], cwd=project)
    assert not any(rank["warm"] for rank in told(cold.stdout))


def test_the_first_failure_ends_all_ranks_with_its_exit_code(yard: Yard, project: pathlib.Path):
    write(project / "fails.py", """
import subprocess, time
helper = subprocess.Popen(["sleep", "600"])
tell(helper=helper.pid)
if os.environ["RANK"] == "1":
    sys.exit(7)
time.sleep(600)
""")
    done = yard.run("run", "--warm", "--nproc-per-node", "2", "fails.py", check=False, cwd=project)
    assert done.returncode == 7, done.stdout + done.stderr
    assert "rank 1 failed first, with exit code 7" in done.stdout
    ranks = told(done.stdout)
    assert len(ranks) == 2 and all(rank["warm"] for rank in ranks)
    for rank in ranks:
        wait_for("the rank and what it started to be gone", lambda: is_gone(rank["pid"]) and is_gone(rank["helper"]))


def test_a_rank_ends_as_a_program_does(yard: Yard, project: pathlib.Path):
    """Only what libtorch registered for the end is left out."""
    script = write(project / "ends.py", """
import atexit, ctypes
tell()
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.__cxa_atexit(libc.puts, ctypes.c_void_p(libc.strdup(b"a library's handler")), None)
libc.printf(b"in a stream of C\\n")
atexit.register(print, "a handler of Python")
class Held:
    def __del__(self, write=os.write):
        write(1, b"an object's end\\n")
held = Held()
left_open = open("left-open", "w")
left_open.write("whole")
sys.exit(7)
""")
    done = yard.run("run", "--warm", "--nproc-per-node", "1", script.name, cwd=project, check=False)
    assert done.returncode == 7, done.stderr
    assert [rank["warm"] for rank in told(done.stdout)] == [True], done.stdout + done.stderr
    for line in ["a library's handler", "in a stream of C", "a handler of Python", "an object's end"]:
        assert line in done.stdout, done.stdout
    assert (project / "left-open").read_text() == "whole"


def test_an_exception_is_told_as_python_tells_it(yard: Yard, project: pathlib.Path):
    write(project / "raises.py", "def inner():\n    raise ValueError('told')\ninner()\n")
    done = yard.run("run", "--warm", "--nproc-per-node", "1", "raises.py", check=False, cwd=project)
    assert done.returncode == 1
    lines = [line.removeprefix("[rank 0] ") for line in done.stdout.splitlines()]
    assert lines[0] == "Traceback (most recent call last):" and lines[-1] == "ValueError: told", done.stdout
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{project}/raises.py", line {line}, in {where}'
        for line, where in [(TELL.count("\n") + 3, "<module>"), (TELL.count("\n") + 2, "inner")]
    ]


def test_sigterm_reaches_the_ranks(yard: Yard, project: pathlib.Path):
    write(project / "ends.py", """
import signal, time
def end(*_):
    print("asked to end", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
tell()
while True:
    time.sleep(600)
""")
    process = yard.spawn("run", "--warm", "--name", "ends", "--nproc-per-node", "2", "ends.py", cwd=project)
    lines: list[str] = []
    wait_for("both ranks", lambda: lines.append(process.stdout.readline()) or len(told("".join(lines))) == 2)
    yard.run("suspend", "ends")
    wait_for("the ranks to end", lambda: all(is_gone(rank["pid"]) for rank in told("".join(lines))))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert re.findall(r"\[rank (\d)\] asked to end", "".join(lines) + rest)


def test_ranks_count_to_their_pod_and_end_with_their_launcher(yard: Yard, project: pathlib.Path):
    write(project / "waits.py", "import time\nheld = b'x' * (150 << 20)\ntell()\ntime.sleep(600)\n")
    process = yard.spawn("run", "--warm", "--name", "waits", "--nproc-per-node", "2", "waits.py", cwd=project)
    lines: list[str] = []
    wait_for("both ranks", lambda: lines.append(process.stdout.readline()) or len(told("".join(lines))) == 2)
    pods = json.loads(yard.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods").stdout)["items"]
    (pod,) = [pod for pod in pods if pod["metadata"]["name"].startswith("waits-")]
    memory = pod["containers"][0]["usage"]["memory"]
    assert int(memory.removesuffix("Ki")) > 300 << 10, "both ranks hold 150 MiB"
    (launcher,) = [
        pid for pid in yard.processes()
        if pid != process.pid and b"--warm" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    groups = {pid: re.findall("^0::.*", pathlib.Path(f"/proc/{pid}/cgroup").read_text(), re.M)
              for pid in [launcher, *(rank["pid"] for rank in told("".join(lines)))]}  # fmt: skip
    assert len(set(map(tuple, groups.values()))) == 1, f"the pod's limits hold for its ranks, too: {groups}"
    os.kill(launcher, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 137, errors
    wait_for("the ranks to be gone", lambda: all(is_gone(rank["pid"]) for rank in told("".join(lines))))


def test_a_changed_environment_ends_the_process_that_waits(yard: Yard, project: pathlib.Path, tmp_path: pathlib.Path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "the-real-ones.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (venv / "bin/torchrun").write_text(f"#!{venv}/bin/python\nfrom torch.distributed.run import main\nmain()\n")
    (venv / "bin/torchrun").chmod(0o755)
    write(project / "tells.py", "tell(python=sys.executable)\n")
    env = {**yard.env, "PATH": f"{venv}/bin:{os.environ['PATH']}"}

    def run() -> dict:
        done = yard.run("run", "--warm", "--nproc-per-node", "1", "tells.py", cwd=project, env=env)
        (rank,) = told(done.stdout)
        assert rank["warm"] and rank["python"] == f"{venv}/bin/python", done.stdout
        return rank

    before = run()["zygote"]
    assert run()["zygote"] == before
    (packages / "installed-1.0.dist-info").mkdir()
    assert run()["zygote"] != before
    wait_for("the one that is out of date to be gone", lambda: is_gone(before))


def test_a_stopped_process_that_waits_is_replaced(yard: Yard, project: pathlib.Path):
    write(project / "quick.py", "tell()\n")
    run = lambda: yard.run("run", "--warm", "--runtime", "torch-distributed", "quick.py", cwd=project, timeout=90)
    (before,) = told(run().stdout)
    os.kill(before["zygote"], signal.SIGSTOP)
    done = run()
    (cold,) = told(done.stdout)
    assert not cold["warm"] and "did not answer within 10 s" in done.stdout + done.stderr, done.stdout + done.stderr
    wait_for("the stopped process to be ended", lambda: is_gone(before["zygote"]))
    (after,) = told(run().stdout)
    assert after["warm"] and after["zygote"] != before["zygote"]


def test_what_cannot_start_warm_starts_cold_and_says_so(yard: Yard, project: pathlib.Path):
    write(project / "tells.py", "import optparse\ntell(optparse=optparse.__file__)\n")
    own = project / "optparse.py"
    own.write_text("")
    # whether torch imports it or not, the script's own goes first, as without us
    shutil.copy(project / "tells.py", project / "again.py")
    done = yard.run("run", "--warm", "--nproc-per-node", "1", "tells.py", cwd=project)
    assert told(done.stdout)[0]["optparse"] == str(own)
    done = yard.run("run", "-e", "PET_MAX_RESTARTS=1", "--nproc-per-node", "1", "again.py", cwd=project)
    assert not told(done.stdout)[0]["warm"]
    assert done.stdout.count("trainyard: not a warm start: PET_MAX_RESTARTS is set") == 1


def test_warm_is_for_torch(yard: Yard, plain: str, project: pathlib.Path):
    write(project / "tells.py", "tell()\n")
    done = yard.run("run", "--warm", "--runtime", plain, "tells.py", check=False, cwd=project)
    assert done.returncode == 2 and "--warm works with torch only" in done.stderr
