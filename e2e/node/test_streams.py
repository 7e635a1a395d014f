"""Exec, copies and forwarded ports through real kubectls: the oldest speaks SPDY, the newest WebSocket."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request

import pytest
from conftest import Screen, Yard, wait_for

MEGABYTES = 50
SERVER = """
import http.server, os, sys
os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
open("port.part", "w").write(str(server.server_port))
os.rename("port.part", "port")
server.serve_forever()
"""


@pytest.fixture(scope="module", params=["oldest", "newest"])
def kubectl(request: pytest.FixtureRequest, kubectls: dict[str, str]) -> str:
    ordered = sorted(kubectls, key=lambda version: int(version.split(".")[1]))
    return kubectls[ordered[0] if request.param == "oldest" else ordered[-1]]


@pytest.fixture(scope="module")
def pod(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pathlib.Path]:
    """A pod that serves a folder over HTTP."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "large").write_bytes(os.urandom(1 << 20) * MEGABYTES)
    command = [sys.executable, "-c", SERVER, str(folder)]
    spec = {"containers": [{"name": "c", "image": "none", "command": command}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server"}, "spec": spec}
    yard.kubectl("apply", "-f", "-", input=json.dumps(body))
    wait_for("the server", (folder / "port").exists)
    return "server", folder


def test_output_errors_and_exit_code(yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str) -> None:
    done = yard.kubectl("exec", pod[0], "--", "sh", "-c", "echo out; echo err >&2; exit 7", check=False, program=kubectl)
    assert (done.returncode, done.stdout) == (7, "out\n") and "err\n" in done.stderr
    done = yard.kubectl("exec", pod[0], "--", "no-such-program", check=False, program=kubectl)
    assert done.returncode != 0 and "no-such-program" in done.stderr


def test_much_input_arrives(yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str) -> None:
    """All of it where it is read; where it is not, the command's end is the end."""
    large = (pod[1] / "large").open("rb")
    words = [kubectl, "--kubeconfig", yard.kubeconfig, "exec", "-i", pod[0], "--"]
    done = subprocess.run([*words, "sha256sum"], stdin=large, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[0] == hashlib.sha256((pod[1] / "large").read_bytes()).hexdigest()
    large.seek(0)
    done = subprocess.run([*words, "head", "-c", "4"], stdin=large, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, (pod[1] / "large").read_bytes()[:4])


def test_trees_are_copied_both_ways(
    yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str, tmp_path: pathlib.Path
) -> None:
    tree = tmp_path / "tree"
    for number in range(300):
        file = tree / f"folder {number % 7}" / f"file {number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(number * 50))
    yard.kubectl("cp", str(tree), f"{pod[0]}:{tmp_path}/there", program=kubectl)
    yard.kubectl("cp", f"{pod[0]}:{tmp_path}/there", str(tmp_path / "back"), program=kubectl)
    assert subprocess.run(["diff", "-r", tree, tmp_path / "back"], capture_output=True, text=True).stdout == ""


def test_a_terminal_has_a_size_and_takes_ctrl_c(yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    script = "trap 'echo caught; exit 4' INT; echo ready; while :; do stty size; sleep 0.05; done"
    words = [kubectl, "--kubeconfig", yard.kubeconfig, "exec", "-it", pod[0], "--", "sh", "-c", script]
    running = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    screen = Screen(ours)
    wait_for("the terminal's size", lambda: screen.says(b"31 97"))
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.kill(running.pid, signal.SIGWINCH)
    wait_for("the new size", lambda: screen.says(b"40 120"))
    os.write(ours, b"\x03")
    wait_for("the trap", lambda: screen.says(b"caught"))
    assert running.wait(20) == 4
    os.close(ours)


def test_ports_are_forwarded(yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str) -> None:
    port = (pod[1] / "port").read_text()
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        nobody = dead.getsockname()[1]
    words = [kubectl, "--kubeconfig", yard.kubeconfig, "port-forward", f"pod/{pod[0]}", f":{port}", f":{nobody}"]
    forward = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        local: dict[str, str] = {}
        while len(local) < 2:
            here, there = re.search(r"(?:127\.0\.0\.1|\[::1\]):(\d+) -> (\d+)", forward.stdout.readline()).groups()
            local.setdefault(there, here)
        whole = hashlib.sha256((pod[1] / "large").read_bytes()).digest()
        for _ in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{local[port]}/large", timeout=60) as answer:
                assert hashlib.sha256(answer.read()).digest() == whole
        with socket.create_connection(("127.0.0.1", int(local[str(nobody)]))) as connection:
            connection.settimeout(20)
            assert connection.recv(1) == b"", "a port where nobody listens"
        assert forward.wait(20) != 0
        assert "refused" in forward.stderr.read()
    finally:
        forward.kill()
        forward.wait()


def runs(words: bytes) -> bool:
    """Whether a process has these words and no others."""

    def is_it(entry: pathlib.Path) -> bool:
        try:
            return (entry / "cmdline").read_bytes() == words
        except OSError:
            return False

    return any(is_it(entry) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit())


def test_a_command_ends_with_its_client(yard: Yard, pod: tuple[str, pathlib.Path], kubectl: str) -> None:
    """Also one that reads nothing while its client floods it."""
    large = (pod[1] / "large").open("rb")
    words = [kubectl, "--kubeconfig", yard.kubeconfig, "exec", "-i", pod[0], "--"]
    for number, input in ((4111, subprocess.PIPE), (4112, large)):
        seconds = f"{number}{os.getpid()}"
        words_of_it = f"sleep\0{seconds}\0".encode()
        client = subprocess.Popen([*words, "sleep", seconds], stdin=input, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("the command", lambda it=words_of_it: runs(it))
        client.kill()
        client.wait(20)
        wait_for("its end", lambda it=words_of_it: not runs(it), 60)
