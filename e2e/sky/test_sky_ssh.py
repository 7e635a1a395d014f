"""Clusters on machines that are reached by SSH: real sshds, and what happens to them.

`SOAK_KILLS` says how many machines come and go while the control plane is killed on the way up and on the way down (1; `make soak`: 20), has it
killed while a job runs, and on the way to a stop and to a start, and has the cable cut; `SOAK_WIDTH` how many of them at a time (4); `SEED` how
chance begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import BINARY, Yard, stop, wait_for
from sshd import PASSWORD, UID, USER, Host, Lan, can, run

pytestmark = pytest.mark.skipif(not can(), reason="root, sshd (make sshd), unshare, nsenter and ip are needed")
# the program is copied to each machine, of some hundred MB where it was built for tests
WAIT = 300
SOAK = "SOAK_KILLS" in os.environ


class Sky(Yard):
    """A control plane of a user who has pools."""

    def __init__(self, lan: Lan, home: pathlib.Path):
        self.home, self.flags = home, ()
        self.env = {**os.environ, "TRAINYARD_HOME": str(home), **lan.env}
        self.env.pop("KUBECONFIG", None)
        self.up()

    def cluster(self, name: str, *pools: str, nodes: int = 1, **spec: object) -> None:
        candidates = [{"provider": "ssh", "region": pool} for pool in pools]
        spec = {"nodes": nodes, "candidates": candidates, **spec}
        self.apply({"apiVersion": "sky.trainyard.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec})

    def apply(self, *objects: dict) -> None:
        self.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def get(self, *words: str) -> dict:
        return json.loads(self.kubectl("get", *words, "-o", "json", check=False).stdout or "{}")

    def status(self, name: str) -> dict:
        return self.get("cluster", name).get("status", {})

    def machines(self, name: str) -> list[dict]:
        return self.get("machines", "-l", f"sky.trainyard.dev/cluster={name}").get("items", [])

    def until_up(self, name: str) -> None:
        try:
            wait_for(f"{name} to be up", lambda: self.status(name).get("phase") == "UP", WAIT)
        except pytest.fail.Exception as failure:
            pytest.fail(f"{failure}\n{json.dumps(self.get('cluster', name))}\n{json.dumps(self.machines(name))}\n{json.dumps(self.get('nodes'))}")

    def pod(self, name: str, node: str, script: str) -> None:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
        spec = {
            "nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        }  # fmt: skip
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        wait_for(f"pod {name} to run", lambda: self.phase(name) == "Running", WAIT)

    def phase(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}", check=False).stdout

    def ready(self, node: str) -> str:
        path = '{.status.conditions[?(@.type=="Ready")].status}'
        return self.kubectl("get", "node", node, "-o", f"jsonpath={path}", check=False).stdout

    def log(self, pod: str) -> str:
        return self.kubectl("logs", pod, check=False).stdout

    def sky(self, *words: str, code: int = 0) -> str:
        """What `sky WORDS…` prints."""
        done = self.run("sky", *words, check=False, timeout=WAIT)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def delete(self, name: str) -> None:
        self.kubectl("delete", "cluster", name, "--wait=false", "--ignore-not-found")
        wait_for(f"{name} to be gone", lambda: not self.get("cluster", name) and not self.machines(name), WAIT)

    def connections(self) -> list[int]:
        """Processes of ssh that this control plane, or an earlier one, keeps."""
        found = subprocess.run(["pgrep", "-af", "ssh .*-S c[0-9a-f.]* .*-M "], capture_output=True, text=True).stdout.splitlines()
        kept = []
        for line in found:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.readlink(f"/proc/{line.split()[0]}/cwd") == str((self.home / "ssh").resolve()):
                    kept.append(int(line.split()[0]))
        return kept


def offered(of: Yard, *words: str) -> list[str]:
    """What a shell offers for the last word, options aside: the same behind `trainyard sky` and behind a link named `sky`."""
    answers = []
    for line in (["trainyard", "sky", *words], ["sky", *words]):
        asked = {"TRAINYARD_COMPLETE": "bash", "_CLAP_COMPLETE_INDEX": str(len(line) - 1), "_CLAP_IFS": "\n", "_CLAP_COMPLETE_COMP_TYPE": "9"}
        done = subprocess.run([BINARY, "--", *line], capture_output=True, text=True, env={**of.env, **asked}, timeout=60)
        answers.append([word for word in done.stdout.split() if not word.startswith("-")])
    assert answers[0] == answers[1], words
    return answers[0]


@pytest.fixture
def lan() -> Iterator[Lan]:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lan-"))
    lan = Lan(folder)
    try:
        yield lan
    finally:
        lan.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def sky(lan: Lan) -> Iterator[Sky]:
    yard = Sky(lan, lan.folder / "yard")
    try:
        yield yard
    finally:
        stop(yard)
        for pid in yard.connections():
            os.kill(pid, 9)


def nothing_left(sky: Sky, *hosts: Host) -> None:
    """No process, file, mount, tunnel or key of ours, on the machines and here."""
    for host in hosts:
        wait_for("its processes to end", lambda host=host: not host.ours())
        wait_for("its sessions to end", lambda host=host: not [s for s in host.processes() if f"{USER}@" in s[1]])
        assert (host.files(), host.mounted(), host.listening()) == ([], [], []), host.name
        assert host.authorized == (host.folder / "authorized_keys").read_text(), host.name
    wait_for("connections to be closed", lambda: not sky.connections())
    left = [path.name for path in (sky.home / "ssh").iterdir()] if (sky.home / "ssh").exists() else []
    assert left == [] and sky.get("machines").get("items") == []
    assert not [node for node in sky.get("nodes")["items"] if "sky.trainyard.dev/token" in node["metadata"]["labels"]]


def test_two_machines_from_nothing_to_nothing(lan: Lan, sky: Sky) -> None:
    one, two = lan.host(), lan.host()
    lan.pools(lan.pool("lab", one, two))
    sky.cluster("dev", "lab", nodes=2)
    sky.until_up("dev")
    nodes = sky.status("dev")["nodes"]
    assert sorted(node["address"] for node in nodes) == [one.address, two.address]
    for node in nodes:
        sky.pod(f"on-{node['node']}", node["node"], "echo here $(hostname) $(id -un) $HOME; sleep 1000")
        host = next(host for host in (one, two) if host.address == node["address"])
        home = f"{host.home}/.trainyard-machine/{host.name}/home"
        wait_for("its line", lambda node=node: "here" in sky.log(f"on-{node['node']}"))
        assert f"{USER} {home}\n" in sky.log(f"on-{node['node']}")
        done = sky.kubectl("exec", "-i", f"on-{node['node']}", "--", "sh", "-c", "tr a-z A-Z; exit 7", input="abc\n" * 5000, check=False)
        assert (done.returncode, done.stdout) == (7, "ABC\n" * 5000), done.stderr
    # what holds the node's token is its user's alone, and no argument of any process
    for host in (one, two):
        kubeconfig = host.home / f".trainyard-machine/{host.name}/kubeconfig"
        assert kubeconfig.stat().st_mode & 0o777 == 0o600 and kubeconfig.stat().st_uid == UID
        token = kubeconfig.read_text().split("token: ")[1].split()[0].strip('"')
        assert len(token) > 30 and not [words for _, words in host.processes() if token in words]
    # a third machine has no host: those are taken, and the message says by which cluster
    sky.cluster("more", "lab")
    wait_for("a failure", lambda: sky.status("more").get("rejected"), WAIT)
    assert sky.status("more")["rejected"][0].count("it is taken by machine dev-0-") == 2, sky.status("more")
    sky.delete("more")
    sky.delete("dev")
    nothing_left(sky, one, two)


def writes(path: pathlib.Path, ended: threading.Event) -> None:
    """Appends to a file until it is told to end."""
    with path.open("a") as file:
        while not ended.wait(0.05):
            file.write("one more line\n" * 100)
            file.flush()


def test_a_task_file_from_launch_to_down(lan: Lan, sky: Sky) -> None:
    one, two = lan.host(), lan.host()
    lan.config.write_text(f"{lan.config.read_text()}Host second\n  HostName {two.address}\n")
    configuration = lan.config.read_text()
    lan.pools(f"{lan.pool('lab', one)}  - second\n")
    work = lan.user / "work"
    (work / "src").mkdir(parents=True)
    (work / "src/a.py").write_text("print('first')\n")
    (work / "b.txt").write_text("kept\n")
    # what cannot be sent, links in rings, and a file that somebody writes
    (work / "ring").symlink_to("ring")
    (work / "src/up").symlink_to("..")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.path.relpath(work / "sock"))
    ended = threading.Event()
    writer = threading.Thread(target=writes, args=(work / "grows.log", ended))
    writer.start()
    (lan.user / "data.txt").write_text("mounted\n")
    (lan.user / "task.yaml").write_text(
        f"""
name: train
num_nodes: 2
resources: {{infra: ssh/lab}}
workdir: {work}
file_mounts: {{~/in/data.txt: {lan.user}/data.txt}}
secrets: {{WORD: hush}}
setup: touch ~/was_set_up; echo set up $SKYPILOT_SETUP_NODE_RANK
run: |
  ls ~/was_set_up; cat b.txt ~/in/data.txt; python3 src/a.py
  echo "rank=$SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES ips=$(echo $SKYPILOT_NODE_IPS) $WORD"
"""
    )
    try:
        out = sky.sky("launch", "-y", "-c", "dev", str(lan.user / "task.yaml"))
    finally:
        ended.set()
        writer.join()
        sock.close()
    assert out.count("/work/sock is a socket: left out") == 1, out
    nodes = sky.status("dev")["nodes"]
    assert sorted(node["address"] for node in nodes) == [one.address, two.address]
    ranks = [next(host for host in (one, two) if host.address == node["address"]) for node in nodes]
    ips = " ".join(host.address for host in ranks)
    for rank in range(2):
        assert f"rank={rank} of 2 ips={ips} hush" in out, out
    assert out.count(") first") == 2 and out.count(") mounted") == 2 and "Job finished (status: SUCCEEDED)" in out, out
    assert "cannot access" not in out

    # OpenSSH knows the machines by the cluster's name, and the user's configuration is otherwise as it was
    ssh = lambda *words: subprocess.run(["ssh", "-n", *words], env=sky.env, capture_output=True, text=True, timeout=60)
    for alias, host in zip(("dev", "dev-worker1"), ranks, strict=True):
        assert ssh(alias, "hostname; id -un").stdout == f"{host.name}\n{USER}\n", ssh("-v", alias, "true").stderr
    # a shell begins where jobs are at home; commands, copies and tunnels are the user's own
    for alias, host in zip(("dev", "dev-worker1"), ranks, strict=True):
        home = host.home / f".trainyard-machine/{host.name}/home"
        shell = subprocess.run(["ssh", alias], input="pwd; echo $HOME; ls; exit 3\n", env=sky.env, capture_output=True, text=True, timeout=60)
        assert (shell.returncode, shell.stdout.splitlines()) == (3, [str(home)] * 2 + ["in", "sky_logs", "sky_workdir", "was_set_up"]), shell
        assert ssh(alias, "pwd").stdout == f"{host.home}\n"
        subprocess.run(["scp", "-O", "-q", "-S", lan.folder / "bin/ssh", f"{alias}:{home}/in/data.txt", lan.user / "copied.txt"], env=sky.env, check=True, timeout=60)
        assert (lan.user / "copied.txt").read_text() == "mounted\n"
    assert "To log into the head VM:\tssh dev\n" in out
    assert lan.config.read_text().endswith(f"\n\n{configuration}") and lan.config.read_text().count("Include ") == 1

    # a changed file is the only one that is sent
    homes = [host.home / f".trainyard-machine/{host.name}/home" for host in ranks]
    for home in homes:
        there = home / "sky_workdir"
        assert (os.readlink(there / "ring"), os.readlink(there / "src/up"), (there / "sock").exists()) == ("ring", "..", False)
        assert (there / "grows.log").read_text().startswith("one more line\n")
    stamps = lambda name: [(home / "sky_workdir" / name).stat().st_ctime_ns for home in homes]
    kept, changed = stamps("b.txt"), stamps("src/a.py")
    (work / "src/a.py").write_text("print('second')\n")
    out = sky.sky("exec", "dev", str(lan.user / "task.yaml"))
    assert out.count(") second") == 2 and "set up" not in out, out
    assert stamps("b.txt") == kept and all(now > before for now, before in zip(stamps("src/a.py"), changed, strict=True))

    # a disk that is full ends the command with that line, and no job is submitted
    disk = homes[1] / "in"
    ranks[1].inside("mount", "-t", "tmpfs", "-o", f"size=64k,uid={UID}", "tmpfs", disk)
    (lan.user / "data.txt").write_text("x" * 1_000_000)
    out = sky.sky("exec", "dev", str(lan.user / "task.yaml"), code=1)
    assert "cannot copy the task's files to dev-0-1: " in out and "No space left on device" in out, out
    ranks[1].inside("umount", disk)

    sky.sky("exec", "-d", "dev", "echo begun; exec sleep 600")
    wait_for("it to run", lambda: "begun" in sky.sky("logs", "dev", "3", "--no-follow", code=101))
    assert "Cancelled jobs with IDs: 3" in sky.sky("cancel", "-y", "dev", "3")
    assert "begun" in sky.sky("logs", "dev", "3", code=103), "its output outlives its pod"
    sky.sky("exec", "dev", "exit 9", code=100)
    jobs = json.loads(sky.run("sky", "queue", "dev", "-o", "json").stdout)["dev"]
    assert [(job["job_id"], job["status"]) for job in jobs] == [(4, "FAILED"), (3, "CANCELLED"), (2, "SUCCEEDED"), (1, "SUCCEEDED")]

    # somebody who is logged in keeps the cluster; when they leave, the minutes begin
    logged_in = lambda: [condition["status"] for condition in sky.get("node", nodes[0]["node"])["status"]["conditions"] if condition["type"] == "SSHSessions"]
    assert logged_in() == ["False"]
    shell = subprocess.Popen(["ssh", "-tt", "dev", "echo in; cat"], env=sky.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.stdout.readline().strip() == b"in"
    wait_for("the session to be seen", lambda: logged_in() == ["True"])
    sky.sky("autostop", "-y", "dev", "-i", "0")
    assert ") still there" in sky.sky("exec", "dev", "echo still there")
    assert ") and now" in sky.sky("exec", "dev", "echo and now"), "the end of a job would have stopped it"
    shell.kill()
    wait_for("it to stop by itself", lambda: sky.status("dev").get("phase") == "STOPPED", WAIT)
    sky.sky("start", "-y", "dev")

    sky.sky("stop", "-y", "dev")
    assert sky.status("dev")["phase"] == "STOPPED" and not one.ours() and not two.ours()
    assert ssh("dev", "true").returncode == 255
    sky.sky("start", "-y", "dev")
    assert ssh("dev", "hostname").stdout == f"{ranks[0].name}\n"
    assert ") was_set_up" in sky.sky("exec", "dev", "ls ~"), "the machine keeps its home"
    sky.sky("down", "-y", "dev")
    nothing_left(sky, one, two)
    assert ssh("dev", "true").returncode == 255 and lan.config.read_text().count("Include ") == 1


def test_a_lost_connection_ends_nothing(lan: Lan, sky: Sky) -> None:
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    sky.cluster("dev", "lab")
    sky.until_up("dev")
    node = sky.status("dev")["nodes"][0]["node"]
    starts = host.home / "starts"
    starts.touch(0o666)
    os.chown(starts, UID, UID)
    sky.pod("lasting", node, f"echo once >>{starts}; echo begun; sleep 10000")
    exec_works = lambda: sky.kubectl("exec", "lasting", "--", "echo", "hello", check=False).stdout == "hello\n"
    wait_for("commands to run", exec_works)

    host.kill_sshd()
    host.start()
    wait_for("commands to run again", exec_works, WAIT)

    # no packet says that the cable is out: the old session keeps its port until the next one ends it
    if SOAK:
        old, cut = host.sessions(), time.monotonic()
        host.cut()
        wait_for("the node to be given up", lambda: sky.ready(node) == "Unknown", WAIT)
        wait_for("the reason to be told", lambda: "cannot be reached" in str(sky.machines("dev")[0]["status"].get("message")), WAIT)
        wait_for("a minute to be over", lambda: time.monotonic() - cut > 60, 61)
        host.mend()
        wait_for("commands to run again", exec_works, WAIT)
        wait_for("the node to be back", lambda: sky.ready(node) == "True", WAIT)
        assert not set(old) & {pid for pid in host.sessions() if f"{USER}@" in dict(host.processes()).get(pid, "")}

    # the ssh of a control plane that was killed may outlive it, and ends when there is a new one: it takes nothing of that one with it
    old = sky.connections()
    sockets = lambda: {path.name for path in (sky.home / "ssh").glob("c*") if path.is_socket()}
    assert len(old) == 1 and len(sockets()) == 1
    os.kill(old[0], signal.SIGSTOP)
    sky.kill()
    sky.up()
    wait_for("commands to run again", exec_works, WAIT)
    sky.until_up("dev")
    new = wait_for("a connection of its own", lambda: [pid for pid in sky.connections() if pid not in old])
    with contextlib.suppress(ProcessLookupError):  # a stopped process may be hung up when its parent is killed
        os.kill(old[0], signal.SIGCONT)
    wait_for("the old one to end", lambda: sky.connections() == new)
    assert len(sockets()) == 1, "the new one has its socket"
    sky.sky("status", "-r", "dev")
    assert sky.connections() == new, "and is the one that is used"

    # the agent and the program there are of another version: both are replaced, and the pod goes on
    there = host.home / f".trainyard-machine/{host.name}"
    program, agent = (there / "program").read_bytes(), (there / "node/agent.lock").read_text()
    (there / "older").write_bytes(program + b"older")
    (there / "older").rename(there / "program")
    (there / "node.of").write_text("older\n")
    sky.kill()
    wait_for("connections to end with the control plane", lambda: not sky.connections())
    sky.up()
    wait_for("commands to run again", exec_works, WAIT)
    sky.until_up("dev")
    wait_for("the program to be the one of now", lambda: (there / "program").read_bytes() == program)
    wait_for("another agent", lambda: (there / "node/agent.lock").read_text() not in ("", agent))
    wait_for("commands to run again", exec_works, WAIT)
    assert starts.read_text() == "once\n" and sky.phase("lasting") == "Running"
    starts.unlink()
    sky.delete("dev")
    nothing_left(sky, host)


def test_hosts_that_cannot_be_had(lan: Lan, sky: Sky) -> None:
    """Each has an error of one line, and the next one is taken."""
    away, changed, strange, locked, off, good = (lan.host() for _ in range(6))
    away.kill_sshd()
    off.kill_sshd()
    other = lan.folder / "other"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other)
    lan.know(changed, other)
    lan.known.write_text("".join(line for line in lan.known.read_text().splitlines(True) if strange.address not in line))
    (locked.folder / "authorized_keys").write_text("")
    locked.authorized = ""
    lan.pools(
        lan.pool("away", away) + lan.pool("changed", changed) + lan.pool("strange", strange) + lan.pool("locked", locked)
        + lan.pool("mixed", off, good)
    )  # fmt: skip
    sky.cluster("dev", "nowhere", "away", "changed", "strange", "locked", "mixed")
    sky.until_up("dev")
    told = sky.status("dev")["rejected"]
    says = [
        ("ssh/nowhere: there is no pool", "there are: [away, changed, locked, mixed, strange]"),
        (f"ssh/away: {USER}@{away.address}: it cannot be reached", ""),
        (f"ssh/changed: {USER}@{changed.address}: its host key is not the known one", "ssh-keygen -R"),
        (f"ssh/strange: {USER}@{strange.address}: its host key is not known here", f"ssh {USER}@{strange.address}"),
        (f"ssh/locked: {USER}@{locked.address}: it takes neither key nor password", "Permission denied"),
    ]
    assert len(told) == len(says) and not any("\n" in line for line in told), told
    for line, (begins, contains) in zip(told, says, strict=True):
        assert line.startswith(begins) and contains in line, line
    assert sky.status("dev")["nodes"][0]["address"] == good.address
    sky.delete("dev")
    sky.cluster("never", "locked")
    failed = lambda: [c for c in sky.status("never").get("conditions", []) if c["type"] == "Failed" and c["status"] == "True"]
    wait_for("the cluster to fail", failed, WAIT)
    sky.delete("never")
    nothing_left(sky, changed, strange, locked, good)


def test_a_password_is_no_argument(lan: Lan, sky: Sky) -> None:
    host = lan.host(PasswordAuthentication="yes", PubkeyAuthentication="no")
    lan.pools(f"lab:\n  user: {USER}\n  password: {PASSWORD}\n  hosts: [{host.address}]\n")
    sky.cluster("dev", "lab")
    sky.until_up("dev")
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert PASSWORD not in shown
    sky.delete("dev")
    lan.pools(f"lab:\n  user: {USER}\n  password: wrong\n  hosts: [{host.address}]\n")
    sky.cluster("dev", "lab")
    wait_for("a refusal", lambda: "neither key nor password" in str(sky.status("dev").get("rejected")), WAIT)
    sky.delete("dev")
    nothing_left(sky, host)


def test_kills_of_the_control_plane_leave_one_machine_or_none(lan: Lan, sky: Sky) -> None:
    """So many launches, several at a time: each has jobs, is stopped and started, and ends; the control plane is killed on each of these ways."""
    left, begun = int(os.environ.get("SOAK_KILLS", "1")), time.monotonic()
    width = min(left, int(os.environ.get("SOAK_WIDTH", "4")))
    hosts = [lan.host() for _ in range(width + 1)]
    lan.pools(lan.pool("lab", *hosts))
    chance = random.Random(int(os.environ.get("SEED", "1")))
    kills = launches = 0

    def killed_within(seconds: float) -> None:
        nonlocal kills
        time.sleep(chance.uniform(0, seconds))  # anywhere on the way
        sky.kill()
        sky.up()
        kills += 1

    def took(what: str) -> None:
        if SOAK:
            print(f"{time.monotonic() - begun:7.1f} s: {what}", flush=True)

    def power(names: list[str], wanted: str) -> None:
        for name in names:
            sky.kubectl("patch", "cluster", name, "--type=merge", "-p", json.dumps({"spec": {"power": wanted}}))

    def until_up(names: list[str]) -> None:
        for name in names:
            sky.until_up(name)

    while left:
        names = [f"dev{at}" for at in range(min(width, left))]
        left -= len(names)
        for name in names:
            sky.cluster(name, "lab")
        killed_within(6)
        until_up(names)
        taken = lambda: [host for host in hosts if claim(host).exists()]
        wait_for("one claim each", lambda: len(taken()) == len(names), WAIT)
        launches += len(names)
        took(f"{launches} launches, {kills} kills, up")
        if SOAK:
            for name in names:
                sky.pod(f"job-{name}", sky.status(name)["nodes"][0]["node"], 'echo once >>"$HOME/../../ran"; sleep 3')
            killed_within(3)
            for name in names:
                wait_for("the job to end", lambda name=name: sky.phase(f"job-{name}") == "Succeeded", WAIT)
            took("jobs ended")
            for host in taken():
                ran = host.home / ".trainyard-machine/ran"
                assert ran.read_text() == "once\n", host.name
                ran.unlink()
            sky.kubectl("delete", "pod", *[f"job-{name}" for name in names])
            power(names, "Stopped")
            killed_within(3)
            for name in names:
                wait_for("it to be stopped", lambda name=name: sky.status(name).get("phase") == "STOPPED", WAIT)
            wait_for("its processes to end", lambda: not any(host.ours() for host in hosts), WAIT)
            took("stopped")
            power(names, "Running")
            killed_within(6)
            until_up(names)
            took("up again")
        sky.kubectl("delete", "cluster", *names, "--wait=false")
        killed_within(3)
        for name in names:
            sky.delete(name)
        nothing_left(sky, *hosts)
        took("nothing is left")
    took(f"{launches} launches, {kills} kills, no process, file, tunnel or key left on {len(hosts)} machines")


def test_a_stop_that_comes_late_stops_nothing(lan: Lan, sky: Sky) -> None:
    """A control plane that was killed had sent it; the next one has started the machine again when it arrives."""
    host = lan.host()
    lan.pools(lan.pool("lab", host))
    # what is done on machines is the last argument and the input
    calls = lan.folder / "calls"
    program = lan.folder / "bin/ssh"
    plain = lan.folder / "bin/plain"
    program.rename(plain)
    program.write_text(
        f"""#!/bin/sh
[ -d {calls} ] || exec {plain} "$@"
for last; do :; done
case $last in *"dd bs=1 count="*) ;; *) exec {plain} "$@" ;; esac
call=$(mktemp {calls}/XXXXXX)
printf %s "$last" >$call.command
tee $call.input | {plain} "$@"
"""
    )
    program.chmod(0o755)
    sky.cluster("dev", "lab")
    sky.until_up("dev")
    power = lambda wanted: sky.kubectl("patch", "cluster", "dev", "--type=merge", "-p", json.dumps({"spec": {"power": wanted}}))
    calls.mkdir()
    power("Stopped")
    wait_for("it to be stopped", lambda: sky.status("dev").get("phase") == "STOPPED", WAIT)
    calls.rename(lan.folder / "then")
    stops = [path for path in (lan.folder / "then").glob("*.input") if path.read_text().rstrip().endswith("\nstop")]
    assert stops
    sky.kill()
    sky.up()
    power("Running")
    sky.until_up("dev")
    node = sky.status("dev")["nodes"][0]["node"]
    sky.pod("lasting", node, "echo begun; sleep 10000")
    for path in stops:
        words = ["ssh", "-T", "-i", lan.key, "-l", USER, host.address, path.with_suffix(".command").read_text()]
        with path.open() as said:
            late = subprocess.run(words, env=sky.env, stdin=said, capture_output=True, text=True, timeout=60)
        assert (late.returncode, "comes too late" in late.stdout) == (17, True), late
    assert sky.phase("lasting") == "Running" and sky.status("dev")["phase"] == "UP"
    assert sky.kubectl("exec", "lasting", "--", "echo", "hello").stdout == "hello\n"
    # one of now is obeyed
    power("Stopped")
    wait_for("it to be stopped", lambda: sky.status("dev").get("phase") == "STOPPED", WAIT)
    assert not host.ours()
    sky.delete("dev")
    nothing_left(sky, host)


def claim(host: Host) -> pathlib.Path:
    return host.home / f".trainyard-machine/{host.name}/claim"


def test_a_full_disk_and_a_machine_that_starts_anew(lan: Lan, sky: Sky) -> None:
    host = lan.host()
    host.inside("mount", "-t", "tmpfs", "-o", "size=100m,mode=0755,uid=54321", "tmpfs", host.home)
    lan.pools(lan.pool("lab", host))
    sky.cluster("small", "lab")
    wait_for("a refusal", lambda: "MiB of disk left" in str(sky.status("small").get("rejected")), WAIT)
    assert host.inside("ls", "-A", host.home) == ""
    sky.delete("small")
    host.inside("umount", host.home)

    sky.cluster("dev", "lab")
    sky.until_up("dev")
    node = sky.status("dev")["nodes"][0]["node"]
    sky.sky("exec", "-d", "dev", "echo begun; exec sleep 1000")
    wait_for("the job to run", lambda: "begun" in sky.sky("logs", "dev", "1", "--no-follow", code=101), WAIT)
    # no sshd, no agent, no pods: the machine was switched off
    host.halt()
    host.boot()
    # its job went with it, and says so; the machine is the cluster's again
    wait_for("the job to have failed", lambda: "FAILED" in sky.sky("queue", "dev"), WAIT)
    assert ") back" in sky.sky("exec", "dev", "echo back")
    sky.pod("after", node, "echo here; sleep 1000")
    wait_for("its line", lambda: sky.log("after") == "here\n", WAIT)

    sky.kubectl("patch", "cluster", "dev", "--type=merge", "-p", '{"spec":{"power":"Stopped"}}')
    wait_for("it to be stopped", lambda: sky.status("dev").get("phase") == "STOPPED", WAIT)
    wait_for("connections to be closed", lambda: not sky.connections())
    assert not host.ours() and claim(host).exists()
    sky.kubectl("patch", "cluster", "dev", "--type=merge", "-p", '{"spec":{"power":"Running"}}')
    sky.until_up("dev")
    sky.delete("dev")
    nothing_left(sky, host)
