"""Two control planes on one machine: their jobs never meet at each other's port, though all ask for 29500."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from conftest import BINARY, Yard, stop, wait_for, write

# Rank 0 tells which home it is of at the port that all ranks of its job were given; rank 1 asks there. They do so when told to, so
# that in between everybody else has chosen a port as well: a free one may have been taken by then.
SCRIPT = """
import os, pathlib, socket, sys, time
folder, home = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, port = os.environ["RANK"], int(os.environ["MASTER_PORT"])
(folder / f"{home}-{rank}.port").write_text(str(port))
while not (folder / "go").exists():
    time.sleep(0.02)
if rank == "0":
    server = socket.create_server(("", port))
    server.accept()[0].sendall(home.encode())
else:
    while True:
        try:
            found = socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=30).recv(99).decode()
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    assert found == home, f"{home} met {found} at port {port}"
"""


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Yard]]:
    started = {name: Yard(tmp_path_factory.mktemp(name)) for name in ("one", "other")}
    yield started
    for yard in started.values():
        stop(yard)


def start(yard: Yard, name: str, script: pathlib.Path, *words: str) -> None:
    yard.run("run", "--detach", "--name", name, "--runtime", "plain", "--nodes", "2", str(script), *words)


def ports(folder: pathlib.Path, home: str) -> set[str]:
    found = [folder / f"{home}-{rank}.port" for rank in (0, 1)]
    wait_for(f"the ranks of {home}", lambda: all(path.exists() and path.read_text() for path in found))
    return {path.read_text() for path in found}


@pytest.mark.timeout(180)
def test_jobs_of_two_homes_have_ports_of_their_own(homes: dict[str, Yard], tmp_path: pathlib.Path):
    script = write(tmp_path / "meet.py", SCRIPT)
    # the same name: both begin to look for a port at the same place
    for home, yard in homes.items():
        start(yard, "meet", script, str(tmp_path), home)
    chosen = {home: ports(tmp_path, home) for home in homes}
    assert all(len(of_job) == 1 for of_job in chosen.values()), f"all ranks of a job have the same: {chosen}"
    assert chosen["one"] != chosen["other"] and {"29500"} not in chosen.values(), chosen
    write(tmp_path / "go", "")
    for home, yard in homes.items():
        done = yard.run("wait", "meet", "--timeout", "60s", check=False)
        assert done.returncode == 0, f"{home}: {done.stderr}{yard.run('logs', 'meet').stdout}"


@pytest.mark.timeout(180)
def test_a_killed_control_plane_keeps_the_ports_of_what_runs(homes: dict[str, Yard], tmp_path: pathlib.Path):
    script = write(tmp_path / "meet.py", SCRIPT)
    one, other = homes["one"], homes["other"]
    start(one, "again", script, str(tmp_path), "one")
    held = ports(tmp_path, "one")
    one.kill()
    # nothing listens at the port, and no agent holds it: the processes that supervise the pods do
    start(other, "again", script, str(tmp_path), "other")
    assert ports(tmp_path, "other") != held
    one.up()
    write(tmp_path / "go", "")
    for yard in (one, other):
        yard.run("wait", "again", "--timeout", "60s")


# the id of a user that no machine has
STRANGER = 54321
# holds what a stranger can, says so, and lets go when its standard input ends
HOLDS = """
import resource, socket, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []
for port in range(20000, 29400, 8):
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    held[-1].bind(f"\\0trainyard/ports/{port}")
print(len(held), flush=True)
sys.stdin.read()
"""


class Apart(Yard):
    """A control plane in a network of its own: names of slots are its network's."""

    def __init__(self, home: pathlib.Path, network: subprocess.Popen):
        self.inside = ["nsenter", "--target", str(network.pid), "--net", "--"]
        super().__init__(home)

    def run(self, *words: str, check: bool = True, timeout: float = 120, **options) -> subprocess.CompletedProcess:
        options = {"env": self.env, **options}
        done = subprocess.run([*self.inside, BINARY, *words], capture_output=True, text=True, timeout=timeout, **options)
        assert not check or done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root makes a network, and runs something as another user")
def test_a_stranger_who_holds_all_slots_is_named(tmp_path: pathlib.Path):
    network = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 1000"], stdout=subprocess.PIPE)
    holder = yard = None
    try:
        assert network.stdout.readline() == b"up\n"
        yard = Apart(tmp_path / "home", network)
        as_stranger = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "--"]
        words = [*yard.inside, *as_stranger, "/usr/bin/python3", "-c", HOLDS]
        holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
        assert holder.stdout.readline() == b"1175\n"
        start(yard, "starved", write(tmp_path / "hello.py", "print('hello')\n"))
        named = f"the user with id {STRANGER} holds most of this machine's"
        wait_for("explain to name the user", lambda: named in yard.run("explain", "starved", check=False).stdout)
        holder.stdin.close()
        assert yard.run("wait", "starved", "--timeout", "60s", check=False).returncode == 0
    finally:
        if yard is not None:
            stop(yard)
        for process in filter(None, (holder, network)):
            process.kill()
            process.wait()
