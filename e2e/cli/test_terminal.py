"""What a person sees: `logs -f` on terminals of several widths, with and without colours."""

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
from conftest import BINARY, Yard, wait_for


class Terminal:
    """As much of a terminal as matters here: rows of a width, on which long lines wrap."""

    def __init__(self, columns: int):
        self.columns, self.rows, self.row, self.column = columns, [""], 0, 0

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|.", text, re.DOTALL):
            if part == "\r":
                self.column = 0
            elif part == "\n":
                self.down()
            elif part.startswith("\x1b"):
                assert part.endswith(("m", "K")), part
                if part.endswith("K"):
                    self.rows[self.row] = self.rows[self.row][: self.column]
            else:
                if self.column == self.columns:
                    self.down()
                    self.column = 0
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[: self.column] + part + row[self.column + 1 :]
                self.column += 1

    def down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")


@pytest.mark.parametrize("columns", [20, 50, 80, 200])
@pytest.mark.parametrize("colours", [True, False])
def test_the_status_line_leaves_nothing_behind(yard: Yard, plain: str, tmp_path: pathlib.Path, columns: int, colours: bool) -> None:
    name, go = f"width-{columns}-{'c' if colours else 'n'}", tmp_path / "go"
    script = f"echo begin; until test -e {go}; do sleep 0.05; done; echo end; echo 'a line of more than twenty columns'"
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": plain}, "trainer": {"numNodes": 1, "command": ["sh", "-c", script]}},
    }  # fmt: skip
    yard.kubectl("apply", "-f", "-", input=json.dumps(job))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**yard.env, "TERM": "xterm", **({} if colours else {"NO_COLOR": "1"})}
    followed = subprocess.Popen([BINARY, "logs", "-f", name], stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=env)
    os.close(theirs)
    seen = ""

    def read(until: str) -> None:
        nonlocal seen
        while until not in seen:
            seen += os.read(ours, 1 << 16).decode()

    read("running 1/1 pods"[: columns - 2])
    metrics = [{"name": f"metric_{n}", "value": "0.123"} for n in range(3)]
    status = {"status": {"trainerStatus": {"lastUpdatedTime": "2026-01-02T03:04:05Z", "progressPercentage": 40, "estimatedRemainingSeconds": 100, "metrics": metrics}}}
    yard.kubectl("patch", "trainjob", name, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    read("…" if columns < 100 else "metric_2")
    go.touch()
    try:
        while some := os.read(ours, 1 << 16):
            seen += some.decode(errors="replace")
    except OSError:
        pass  # the other side is closed
    assert followed.wait(30) == 0
    assert "\r\x1b[K" in seen, "the line is redrawn, also without colours"
    assert bool(re.search(r"\x1b\[[0-9;]*m", seen)) == colours
    assert "100%" not in seen and "complete [" not in seen
    terminal = Terminal(columns)
    terminal.feed(seen)
    expected = "".join(f"[rank 0] {line}".ljust(-(-len(f"[rank 0] {line}") // columns) * columns) for line in ("begin", "end", "a line of more than twenty columns"))
    assert "".join(row.ljust(columns) for row in terminal.rows).rstrip() == expected.rstrip(), terminal.rows
    wait_for("the job to be gone", lambda: yard.run("delete", name).returncode == 0)
