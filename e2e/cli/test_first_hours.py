"""The first hour of each of four ways of use, as an 80-column terminal shows it: with a train.py on a laptop, with MPIJobs, with SkyPilot's
commands, and with kubectl.

Each transcript is a file in `hours`: `$ COMMAND`, then what is printed. What differs from run to run (ages, hashes, ports, paths) is replaced
by words. `UPDATE=1` writes the files anew; review them as if they were your own words.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios

import pytest
from conftest import BINARY, ROOT, Yard, plain_runtime, write
from test_terminal import Terminal

HOURS = ROOT / "e2e/cli/hours"
COLUMNS = 80
TRAIN = 'for step in range(3):\n    print(f"step {step} loss={1 / (step + 1):.2f}", flush=True)\n'
JOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: applied}
spec:
  runtimeRef: {name: plain}
  trainer: {command: [sh, -c, "echo trained"]}
"""
# what differs from run to run
# before lines wrap: their lengths differ
NAMED = [
    (r"(-\d+-\d+|-launcher)-[a-z0-9]{5}\b", r"\1-HASH"), (r"machines/[0-9a-f]{12}", "machines/HASH"), (r"pid=\d+", "pid=N"),
    (r"127\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS"), (r"sky-\d{4}-\d\d-\d\d-[\d-]+", "RUN"), (r"-{20,}", "-" * 20),
    (r" deleted from \w+ namespace", " deleted"),
]  # fmt: skip
VARIES = [
    (r"\b(\d+h)?(\d+m)?\d+(\.\d+)?s\b", "AGE"), (r"\b\d+ (secs?|mins?|minutes?|seconds?)( ago)?\b", "AGE"), (r"a few secs? ago|just now", "AGE"),
    (r"process \d+", "process N"), (r"\(of \d+\)", "(of N)"),
    (r"version \d+\.\d+\.\d+\S*", "version V"), (r"\d+ CPUs?\b", "N CPUs"), (r"\d+ GiB", "N GiB"), (r"\d{4}-\d\d-\d\d[ T][\d:.]+Z?", "TIME"),
    (r"  +", "  "), (r"(Local  -  )\d+  [\d.]+", r"\1N  N"),
]  # fmt: skip
WAYS: dict[str, list[str]] = {
    "laptop": [
        "trainyard run --runtime plain --name first train.py", "trainyard get", "trainyard logs first", "trainyard logs --tail 1 first",
        "trainyard explain first", "trainyard metrics first", "trainyard queue", "trainyard run --runtime plain --name second missing.py",
        "trainyard explain TY0201 | head -3", "trainyard get firts", "trainyard delete first", "trainyard get",
    ],
    "mpi": [
        "trainyard mpijob create", "trainyard mpijob create pi --workers 2 --image none --command 'echo pi is 3.14'",
        "trainyard mpijob wait pi --timeout 60s", "trainyard mpijob get", "trainyard mpijob logs pi", "trainyard get mpijob/pi",
        "trainyard explain mpijob/pi", "trainyard mpijob suspend pi", "trainyard mpijob logs pie", "trainyard mpijob delete pi",
        "trainyard mpijob get",
    ],
    "sky": [
        "trainyard sky check local", "trainyard sky launch -y -c dev 'echo hello from sky'", "trainyard sky status", "trainyard sky queue dev",
        "trainyard sky exec dev 'echo again'", "trainyard sky logs dev 1", "trainyard sky logs devv", "trainyard sky lunch",
        "trainyard sky autostop -y dev -i 10", "trainyard sky down -y dev", "trainyard sky status",
    ],
    "kubectl": [
        "kubectl apply -f job.yaml", "kubectl wait trainjob/applied --for=condition=Complete --timeout=60s", "kubectl get trainjob applied",
        "kubectl get jobset applied", "kubectl get pods -l jobset.sigs.k8s.io/jobset-name=applied", "kubectl logs job/applied-node-0",
        "kubectl auth can-i create trainjobs", "kubectl apply -f wrong.yaml", "trainyard explain applied", "trainyard logs applied",
        "kubectl delete -f job.yaml",
    ],
}  # fmt: skip


def shown(command: str, yard: Yard, folder: pathlib.Path, env: dict[str, str]) -> str:
    """What a terminal of 80 columns shows after the command."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    running = subprocess.Popen(["bash", "-c", command], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env, start_new_session=True)
    os.close(theirs)
    out = b""
    try:
        while some := os.read(ours, 1 << 16):
            out += some
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    code = running.wait(120)
    # the program knows of 80 columns; that longer lines wrap is the terminal's, and depends on the length of paths
    terminal = Terminal(10 * COLUMNS)
    text = re.sub(r"\x1b\[\?25[hl]", "", out.decode(errors="replace"))
    terminal.feed(settled(text.replace(str(yard.home), "HOME").replace(str(folder), "FOLDER"), NAMED))
    lines = [row.rstrip() for row in terminal.rows]
    return settled("\n".join(line for line in lines if line), VARIES) + (f"\nexit {code}" if code else "")


def settled(text: str, varies: list[tuple[str, str]]) -> str:
    for pattern, word in varies:
        text = re.sub(pattern, word, text)
    return text


@pytest.mark.parametrize("way", WAYS)
def test_a_first_hour(yard: Yard, way: str) -> None:
    # short paths: long ones would wrap in other places
    folder = pathlib.Path(f"/tmp/hour-{os.getpid()}-{way}")
    folder.mkdir()
    try:
        yard.kubectl("apply", "-f", "-", input=json.dumps(plain_runtime("plain")))
        write(folder / "train.py", TRAIN)
        write(folder / "job.yaml", JOB)
        write(folder / "wrong.yaml", JOB.replace("name: plain", "name: plian").replace("applied", "wrong"))
        tools = folder / "bin"
        tools.mkdir()
        (tools / "trainyard").symlink_to(BINARY)
        env = {**yard.env, "PATH": f"{tools}:{yard.env['PATH']}", "HOME": str(folder), "KUBECONFIG": yard.kubeconfig, "NO_COLOR": "1", "TERM": "xterm", "USER": "ann"}
        said = [f"$ {command}\n{shown(command, yard, folder, env)}" for command in WAYS[way]]
        file = HOURS / f"{way}.txt"
        if "UPDATE" in os.environ:
            file.write_text("\n".join(said) + "\n")
        expected = re.split(r"\n(?=\$ )", file.read_text().rstrip("\n"))
        assert [one.rstrip("\n") for one in said] == expected
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)
