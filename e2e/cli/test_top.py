"""What pods use (`metrics.k8s.io`, `kubectl top`, `trainyard top`), and commands in them (`trainyard exec`, `shell`)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import struct
import sys
import termios

import pytest
from conftest import Screen, Yard, wait_for

HUNGRY = "import time; held = bytearray(b'x') * (150 << 20); print('holds', flush=True)\nwhile True: pass"


@pytest.fixture(scope="module")
def busy(yard: Yard) -> str:
    """A pod that holds 150 MiB and never rests, and one that sleeps."""
    for name, argv in [("hungry", [sys.executable, "-c", HUNGRY]), ("idle", ["sleep", "1000"])]:
        spec = {"containers": [{"name": "c", "image": "none", "command": argv}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"is": name}}, "spec": spec}
        yard.kubectl("apply", "-f", "-", input=json.dumps(body))
    wait_for("the memory", lambda: "holds" in yard.kubectl("logs", "hungry", check=False).stdout)
    wait_for("the other", lambda: "Running" in yard.kubectl("get", "pod", "idle").stdout)
    return "hungry"


def amounts(table: str) -> dict[str, tuple[int, int]]:
    """Thousandths of a processor and MiB, by name."""
    rows = re.findall(r"^(\S+)\s+(\d+)m.*?(\d+)Mi", table, re.MULTILINE)
    return {name: (int(cpu), int(memory)) for name, cpu, memory in rows}


def test_kubectl_top(yard: Yard, busy: str, kubectls: dict[str, str]) -> None:
    # its share may be small while other tests are at work
    wait_for("a tenth of a processor", lambda: amounts(yard.kubectl("top", "pod").stdout).get("hungry", (0, 0))[0] >= 100)
    for version, program in sorted(kubectls.items()):
        used = amounts(yard.kubectl("top", "pod", program=program).stdout)
        assert set(used) == {"hungry", "idle"}, version
        assert used["hungry"][0] >= 50 and 150 <= used["hungry"][1] < 300, (version, used)
        assert used["idle"][0] <= 50 and used["idle"][1] < 20, (version, used)
        assert set(amounts(yard.kubectl("top", "pod", "-l", "is=idle", program=program).stdout)) == {"idle"}, version
        (node,) = amounts(yard.kubectl("top", "node", program=program).stdout).values()
        assert node[0] >= 50 and node[1] >= 150, (version, node)


def test_the_api_is_metrics_servers(yard: Yard, busy: str) -> None:
    raw = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
    pod = json.loads(yard.kubectl("get", "--raw", f"{raw}/{busy}").stdout)
    assert (pod["kind"], pod["metadata"]["labels"]) == ("PodMetrics", {"is": busy})
    (container,) = pod["containers"]
    assert container["name"] == "c" and re.fullmatch(r"\d+n", container["usage"]["cpu"])
    table = yard.kubectl("get", "podmetrics").stdout.splitlines()
    assert table[0].split() == ["NAME", "CPU", "MEMORY", "WINDOW"] and len(table) == 3
    refused = yard.kubectl("get", "podmetrics", "nobody", check=False)
    assert 'pods.metrics.k8s.io "nobody" not found' in refused.stderr
    assert "MethodNotAllowed" in yard.kubectl("get", "podmetrics", "-w", check=False).stderr
    done = yard.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--as", "eve", check=False)
    assert done.stdout.strip() == "no"
    yard.kubectl("create", "rolebinding", "eve", "--clusterrole=view", "--user=eve")
    wait_for(
        "the right to look",
        lambda: yard.kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--as", "eve", check=False).returncode == 0,
    )


@pytest.fixture(scope="module")
def job(yard: Yard, plain: str) -> str:
    """Two nodes that work until they are told to stop."""
    container = {"command": ["sh", "-c", "while true; do :; done"]}
    spec = {"runtimeRef": {"name": plain}, "trainer": {"numNodes": 2, **container}}
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "works"}, "spec": spec}
    yard.kubectl("apply", "-f", "-", input=json.dumps(body))
    yard.run("wait", "works", "--for", "running")
    wait_for("both nodes", lambda: len(json.loads(yard.run("top", "works", "-o", "json").stdout)) == 2)
    return "works"


def test_trainyard_top(yard: Yard, job: str) -> None:
    def used() -> list[dict]:
        return json.loads(yard.run("top", job, "-o", "json").stdout)

    wait_for("processor time on both", lambda: min(row["cpus"] for row in used()) > 0.05)
    first, second = used()
    assert (first["step"], second["step"]) == ("node-0", "node-1") and first["job"] == job
    assert first["memoryBytes"] > 100_000 and first["gpuPercent"] is None
    table = yard.run("top", job).stdout.splitlines()
    assert table[0].split()[:4] == ["STEP", "RANKS", "CPUS", "MEMORY"] and table[2].startswith("node-1")
    jobs = yard.run("top").stdout.splitlines()
    assert jobs[1].split()[:2] == [job, "2"]
    missing = yard.run("top", "nobody", check=False)
    assert missing.returncode == 3 and "not found" in missing.stderr


# Node 1 sends to node 0, for as long as they run; they know each other by the variables of the job.
SENDS = """
import os, socket, time
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    connection, _ = socket.create_server(("", address[1])).accept()
    while connection.recv(1 << 20):
        pass
while True:
    try:
        connection = socket.create_connection(address)
        break
    except OSError:
        time.sleep(0.05)
while True:
    connection.sendall(bytes(50_000))
    time.sleep(0.05)
"""


def test_the_network_by_rank(yard: Yard, tmp_path: pathlib.Path) -> None:
    (tmp_path / "sends.py").write_text(SENDS)
    yard.run("run", "--detach", "--name", "sends", "--runtime", "plain", "--nodes", "2", "sends.py", cwd=tmp_path)

    def carried() -> list[tuple[int, int]]:
        rows = json.loads(yard.run("top", "sends", "-o", "json", check=False).stdout or "[]")
        return [(row["networkSentBytesPerSecond"], row["networkReceivedBytesPerSecond"]) for row in rows]

    def flows() -> bool:
        match carried():
            case [(sent_0, received_0), (sent_1, received_1)]:
                return received_0 > 10_000 > sent_0 and sent_1 > 10_000 > received_1
        return False

    wait_for("what node 1 sends to be counted there, and received by node 0", flows)
    header = yard.run("top", "sends").stdout.splitlines()[0].split()
    assert header[-4:] == ["NET-SENT", "NET-RECEIVED", "POD", "NODE"]
    yard.run("delete", "sends")


def test_trainyard_exec(yard: Yard, job: str) -> None:
    done = yard.run("exec", job, "--rank", "1", "--", "sh", "-c", "hostname; echo no >&2; exit 9", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (9, "works-node-0-1\n", "no\n")
    done = yard.run("exec", job, "-i", "--step", "node-0", "--", "sha256sum", input="x" * 3_000_000)
    assert done.stdout.split()[0] == hashlib.sha256(b"x" * 3_000_000).hexdigest()
    done = yard.run("exec", job, "--rank", "7", "--", "true", check=False)
    assert done.returncode == 2 and "its ranks are 0 to 1" in done.stderr
    done = yard.run("exec", job, "--", "no-such-program", check=False)
    assert done.returncode == 127 and "no-such-program" in done.stderr


def test_trainyard_shell(yard: Yard, job: str) -> None:
    """A real terminal: its size and changes of it, Ctrl-C for what runs there and not for us."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    before = termios.tcgetattr(theirs)
    shell = yard.spawn_in(theirs, "shell", job, "--rank", "1")
    screen = Screen(ours)
    def type(text: str) -> None:
        os.write(ours, text.encode())

    type("echo host=$(hostname) size=$(stty size)\r")
    wait_for("the shell", lambda: screen.says(b"host=works-node-0-1 size=31 97"))
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.kill(shell.pid, signal.SIGWINCH)
    type("until test \"$(stty size)\" = '40 120'; do :; done; echo re''sized; sleep 1000\r")
    wait_for("the new size", lambda: screen.says(b"resized"))
    type("\x03")
    type("echo inter''rupted $?\r")
    wait_for("the prompt", lambda: screen.says(b"interrupted 130"))
    type("exit 5\r")
    assert shell.wait(20) == 5
    assert termios.tcgetattr(theirs) == before, "the terminal is as it was"
    os.close(ours)
    os.close(theirs)
    piped = yard.run("shell", job, input="echo from-$(hostname)\nexit 6\n", check=False)
    assert (piped.returncode, piped.stdout) == (6, "from-works-node-0-0\n")


def test_top_in_a_terminal_ends_with_the_job(yard: Yard, job: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 30, 0, 0))
    top = yard.spawn_in(theirs, "top", job, "--interval", "1s")
    os.close(theirs)
    screen = Screen(ours)
    wait_for("a second table", lambda: screen.says(b"\x1b[3A"))
    yard.run("delete", job)
    assert top.wait(20) == 3, "the job is gone"
    lines = re.sub(rb"\x1b\[\w+", b"", screen.heard).replace(b"\r", b"").split(b"\n")
    assert max(len(line) for line in lines if not line.startswith(b"error")) <= 30
    os.close(ours)
